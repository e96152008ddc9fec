/* table.h - the tables that libquire_cuda.so gives to the program, and what they can compute. Inside kernels/cuda/ only.
 * Every entry is a C launcher, declared in entries.h beside the file that has its kernel; table.c lists them. An entry that is not listed is NULL, and
 * the program refuses what needs it before anything is called (plugin.h).
 */
#ifndef QR_KERNELS_CUDA_TABLE_H
#define QR_KERNELS_CUDA_TABLE_H

#include "kernels/backward.h"
#include "kernels/cuda/plugin.h"
#include "kernels/kernels.h"

extern const struct qr_kernels qr_cuda_kernels;
extern const struct qr_backward qr_cuda_backward;

/* As in struct qr_cuda_plugin. */
bool qr_cuda_supports(struct qr_queue *q, enum qr_dtype weights, int64_t inputs_max, enum qr_dtype kv, int32_t head_dim, int32_t block_tokens,
                      char message[QR_CUDA_MESSAGE]);

/* Frees q->products; NULL there is fine. */
void qr_cuda_products_free(struct qr_queue *q);

#endif
