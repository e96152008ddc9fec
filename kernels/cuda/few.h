/* few.h - products with up to 16 rows, as decode steps have, together with what stands beside them. Inside kernels/cuda/ only. For .cu files. */
#ifndef QR_KERNELS_CUDA_FEW_H
#define QR_KERNELS_CUDA_FEW_H

#include "kernels/cuda/product.h"

#define QR_FEW_ROWS 16

struct qr_few {
    struct qr_product product;  /* of x bf16 or E4M3; NULL: */
    const float *floats;        /* f32 rows, which each block makes bf16 itself, behind their norm where there is norm_w */
    const float *norm_w;
    int64_t floats_stride;
    float eps;
    bool gated;                 /* half as many columns leave: act(gate) * up */
    enum qr_act act;
    struct qr_clamp clamp;
    uint16_t *halves;           /* gated, and as bf16 rows for the next product: not to product.out but here, zeros behind the last number */
    int64_t halves_stride;
    const struct qr_qkv_args *heads; /* of the result: then it is not added to what is there; or NULL */
};

/* Whether blocks make these rows of floats bf16 by themselves: they have room for them, and it costs less than a launch that does. */
bool qr_few_narrows(const struct qr_queue *q, const struct qr_few *f);

/* Whether the way from the product to the cache can be taken with it: no norm of heads, nothing that needs the largest number of a whole head. */
bool qr_few_heads(const struct qr_qkv_args *a);

/* 1 <= product.n_rows <= QR_FEW_ROWS. */
void qr_cuda_few(struct qr_queue *q, const struct qr_few *f);

#endif
