/* queue.h - the queue of kernels/cuda: one stream of one device, and what launches share. Inside kernels/cuda/ only.
 *
 * Made by device.c, used by the thread that opened it. Launches and copies go to `stream` and nowhere else, so they happen in order and memory needs no
 * further synchronization. Scratch belongs to the launch that runs: the next one may overwrite it.
 */
#ifndef QR_KERNELS_CUDA_QUEUE_H
#define QR_KERNELS_CUDA_QUEUE_H

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/check.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QR_CUDA_MARKS 2
#define QR_CUDA_SLOTS 4
#define QR_CUDA_MET 64
#define QR_CUDA_SLOT_BYTES ((size_t)8 << 20)

/* A piece of pinned memory that is copied to the device. */
struct qr_cuda_slot {
    uint8_t *data;
    size_t n_bytes;
    cudaEvent_t done; /* the copy out of it; recorded once `busy` */
    bool busy;
};

struct qr_queue {
    cudaStream_t stream;
    cublasLtHandle_t lt;
    int32_t index;              /* of the device */
    int32_t n_sms, sm;          /* multiprocessors; 90 for compute capability 9.0 */
    int32_t shared_max;         /* bytes of shared memory that a block may ask for */
    int32_t step_rows_max;
    void *workspace;            /* cuBLASLt's */
    size_t workspace_bytes;
    void *scratch;              /* of one launch */
    size_t scratch_bytes;
    struct qr_cuda_slot slot[QR_CUDA_SLOTS], large; /* staging; `large` for a piece that no slot holds */
    int32_t next_slot;
    bool records;               /* steps as graphs; QUIRE_CUDA_GRAPHS=0: never */
    bool overlaps;              /* kernels of QR_LAUNCH_NEXT begin early: from 9.0 on; QUIRE_CUDA_OVERLAP=0: never */
    bool stops;                 /* its kernels say where they stop (stop.h) */
    bool follows;               /* the last launch was such a kernel's, and nothing else was asked of the stream since */
    cudaEvent_t mark[QR_CUDA_MARKS]; /* made when first set */
    struct qr_cuda_slot *staged; /* what the last `stage` gave, or NULL */
    void *products;             /* linear.cu: freed by qr_cuda_products_free */
    size_t few_allowed[6];      /* few.cu: bytes of shared memory that its kernels were given */
    bool experts_allowed[3];    /* experts.cu: which kernels were given their shared memory */
    const void *met[QR_CUDA_MET]; /* kernels of attention that were: qr_queue_meets */
    int32_t n_met;
    struct qr_plans *plans;     /* owned (plans.h), NULL before the first */
    int64_t lt_elements_min;    /* weights of the smallest product that cuBLASLt may have; 0: none, QUIRE_CUDA_LT_MIN */
    bool plain;                 /* neither cuBLASLt nor attention_hopper.cu */
    bool deterministic, keeps_plans; /* only what has a row's bits in any batch; choices are read from and kept in a file */
    uint64_t wait_ns;           /* longer waits of a kernel for its own copies end the launch: QUIRE_CUDA_WAIT_S seconds, or 4 */
    struct qr_peers *peers;     /* borrowed: those of other ranks, which a waiting thread checks; or NULL */
    struct qr_cuda_hopper *hopper; /* owned (hopper.h), NULL before the first */
    char name[128];             /* of the device */
    int64_t memory_bytes;
    double bytes_s;
};

/* Whether this kernel is met first: then it is told what it may have, once, since the driver may wait for copies whenever a kernel is told something. */
static inline bool qr_queue_meets(struct qr_queue *q, const void *kernel)
{
    for (int32_t i = 0; i < q->n_met; i++)
        if (q->met[i] == kernel)
            return false;
    if (q->n_met < QR_CUDA_MET)
        q->met[q->n_met++] = kernel;
    return true;
}

/* Whether the kernel that is launched next may begin early; and it is one that others may follow. */
static inline bool qr_queue_follows(struct qr_queue *q)
{
    const bool early = q->overlaps && q->follows;
    q->follows = true;
    return early;
}

/* The stream, for what is no kernel of QR_LAUNCH_NEXT: it begins when all before it has ended, and the next kernel when it has. */
static inline cudaStream_t qr_queue_apart(struct qr_queue *q)
{
    q->follows = false;
    return q->stream;
}

#ifdef __cplusplus
}

static inline cudaStream_t qr_stream_of(struct qr_queue *q) /* launch.h */
{
    return qr_queue_apart(q);
}
#endif

#endif
