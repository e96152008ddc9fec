/* nccl.h - what is used of NCCL: its C interface as of 2.14, which later versions keep. NCCL is no part of the CUDA toolkit and is not linked: peers.c opens it
 * when several ranks ask for it. Where NVIDIA's own header lies beside the compiler, peers.c compares. */
#ifndef QR_KERNELS_CUDA_NCCL_H
#define QR_KERNELS_CUDA_NCCL_H

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

#define QR_NCCL_VERSION_MIN 21400 /* 2.14: graphs, and groups whose end is said */

enum { QR_NCCL_SUCCESS = 0, QR_NCCL_IN_PROGRESS = 7 };
enum { QR_NCCL_INT8 = 0, QR_NCCL_FLOAT32 = 7 };
enum { QR_NCCL_SUM = 0 };

struct qr_nccl_group; /* its communicator */

struct qr_nccl_id {
    char bytes[128];
};

/* F(what it returns, its member in struct qr_nccl, its name in the library, arguments) */
#define QR_NCCL_FUNCTIONS(F)                                                                                                         \
    F(int, get_version, ncclGetVersion, (int *version))                                                                            \
    F(int, get_id, ncclGetUniqueId, (struct qr_nccl_id *id))                                                                       \
    F(int, init, ncclCommInitRank, (struct qr_nccl_group **out, int size, struct qr_nccl_id id, int rank))                           \
    F(int, finalize, ncclCommFinalize, (struct qr_nccl_group *g))                                                                  \
    F(int, destroy, ncclCommDestroy, (struct qr_nccl_group *g))                                                                    \
    F(int, abort, ncclCommAbort, (struct qr_nccl_group *g))                                                                        \
    F(int, get_error, ncclCommGetAsyncError, (struct qr_nccl_group *g, int *error))                                                \
    F(const char *, error_text, ncclGetErrorString, (int error))                                                                   \
    F(const char *, last_error, ncclGetLastError, (struct qr_nccl_group *g))                                                       \
    F(int, all_reduce, ncclAllReduce,                                                                                              \
      (const void *from, void *to, size_t n, int type, int op, struct qr_nccl_group *g, cudaStream_t stream))                        \
    F(int, all_gather, ncclAllGather, (const void *from, void *to, size_t n, int type, struct qr_nccl_group *g, cudaStream_t stream)) \
    F(int, broadcast, ncclBroadcast,                                                                                               \
      (const void *from, void *to, size_t n, int type, int root, struct qr_nccl_group *g, cudaStream_t stream))                      \
    F(int, send, ncclSend, (const void *from, size_t n, int type, int peer, struct qr_nccl_group *g, cudaStream_t stream))         \
    F(int, receive, ncclRecv, (void *to, size_t n, int type, int peer, struct qr_nccl_group *g, cudaStream_t stream))              \
    F(int, group_begin, ncclGroupStart, (void))                                                                                    \
    F(int, group_end, ncclGroupEnd, (void))

#define QR_NCCL_MEMBER(result, name, symbol, arguments) result (*name) arguments;
struct qr_nccl {
    QR_NCCL_FUNCTIONS(QR_NCCL_MEMBER)
};

#endif
