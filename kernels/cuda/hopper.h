/* hopper.h - what attention_hopper.cu needs to know of a device before it launches: whether its kernels may be used, and the copy engine's map of the cache.
 * Inside kernels/cuda/ only. */
#ifndef QR_KERNELS_CUDA_HOPPER_H
#define QR_KERNELS_CUDA_HOPPER_H

#include <cuda.h>

#include "kernels/cuda/queue.h"
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QR_HOPPER_TILE(head_dim) ((head_dim) > 128 ? 64 : 128) /* positions of a stage; boxes have no more rows */

enum qr_hopper_state { QR_HOPPER_UNTRIED, QR_HOPPER_ON, QR_HOPPER_OFF };

/* Where it is in memory: the driver writes a map only to a multiple of 64 bytes, and its type asks for 128, more than calloc gives. */
#define QR_HOPPER_ALIGNED 128

struct qr_cuda_hopper {
    void *encode;                  /* the driver's cuTensorMapEncodeTiled, or NULL */
    enum qr_hopper_state state[3]; /* of heads padded to 64, 128, 256 numbers */
    int64_t n_calls;               /* that went there */
    struct qr_kv_view kv;          /* of the map */
    CUtensorMap map __attribute__((aligned(QR_HOPPER_ALIGNED)));
};

/* Whether attention over a bf16 cache goes there. The first time for a size of heads it is tried beside attention.cu: then this waits. QUIRE_CUDA_HOPPER=0 in
 * the environment: no; 1: untried. */
bool qr_cuda_hopper_ready(struct qr_queue *q, int32_t head_dim);

/* q->hopper->map is that of this cache: one matrix with a row for each position of each plane. False: the driver makes none. */
bool qr_cuda_hopper_map(struct qr_queue *q, const struct qr_kv_view *kv);

/* Frees q->hopper; NULL there is fine. */
void qr_cuda_hopper_free(struct qr_queue *q);

#ifdef __cplusplus
}
#endif
#endif
