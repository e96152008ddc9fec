/* peers.h - ranks' devices, as device.c and the kernels know them (kernels/peers.h is what the program sees). Inside kernels/cuda/ only. */
#ifndef QR_KERNELS_CUDA_PEERS_H
#define QR_KERNELS_CUDA_PEERS_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "kernels/peers.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct qr_peer_ops qr_cuda_peer_ops;

/* Whether there is a library that does. */
bool qr_cuda_peers_there(char message[QR_PEERS_MESSAGE]);

/* Until the event was reached (NULL: until the queue is empty), or a rank is lost: then it will be soon. p NULL: returns at once. */
void qr_cuda_peers_await(struct qr_peers *p, cudaEvent_t event);

/* out[i] = the tree's sum of rank r's terms: own[i] of this rank, in[r * stride + i] of others, i < n. out may be own. peer_sum.cu */
void qr_cuda_peer_sum(cudaStream_t stream, float *out, const float *own, const float *in, int64_t stride, int64_t n, int32_t rank, int32_t size);

#ifdef __cplusplus
}
#endif
#endif
