/* paged.h - what attention and its gradients share: one layer of the cache as its kernels read it, the cap of scores, and tiles of bf16 in shared memory. For
 * .cu files. */
#ifndef QR_KERNELS_CUDA_PAGED_H
#define QR_KERNELS_CUDA_PAGED_H

#include "kernels/cuda/num.h"
#include "kernels/cuda/ptx.h"

#define QR_LOG2_E 1.44269504088896340736f

struct qr_paged {
    const uint8_t *base; /* of the layer */
    const int32_t *table;
    int64_t block_bytes, plane_bytes;
    int32_t n_kv_heads, head_dim, n_blocks, block_tokens, table_stride;
};

static inline struct qr_paged qr_paged_of(const struct qr_kv_view *kv, const struct qr_batch *b, int32_t layer)
{
    const int64_t plane = (int64_t)(qr_kv_plane_elements(kv) * qr_dtype_bytes(kv->dtype));
    QR_ASSERT(kv->dtype == QR_BF16 || kv->dtype == QR_F32 || qr_kv_has_scales(kv->dtype));
    QR_ASSERT(kv->head_dim > 0 && kv->head_dim <= 256 && kv->head_dim % 8 == 0);
    QR_ASSERT(layer >= 0 && layer < kv->n_layers && QR_ADDRESS(kv->base) % 16 == 0);
    const struct qr_paged p = {(const uint8_t *)kv->base + layer * 2 * kv->n_kv_heads * plane, b->block_table, (int64_t)qr_kv_block_bytes(kv), plane,
                               kv->n_kv_heads, kv->head_dim, kv->n_blocks, kv->block_tokens, b->table_stride};
    return p;
}

/* The plane of keys (which 0) or values of kv head g in the block that position t of a sequence is in. */
QR_DEVICE const uint8_t *qr_paged_plane(const struct qr_paged &p, int32_t seq, int32_t which, int32_t g, int32_t t)
{
    const int32_t block = p.table[(int64_t)seq * p.table_stride + t / p.block_tokens];
    QR_DEVICE_ASSERT(block >= 0 && block < p.n_blocks);
    return p.base + block * p.block_bytes + (which * p.n_kv_heads + g) * p.plane_bytes;
}

/* The key or value at position t. Of an int8 or fp8 cache, what its numbers are multiplied by is number t % block_tokens of the f32 behind the plane's rows. */
QR_DEVICE const uint8_t *qr_paged_at(const struct qr_paged &p, int32_t seq, int32_t which, int32_t g, int32_t t, int32_t element_bytes)
{
    return qr_paged_plane(p, seq, which, g, t) + (int64_t)(t % p.block_tokens) * p.head_dim * element_bytes;
}

/* tanh within 2^-21, in five instructions instead of twenty and a branch: a score that is capped to 50 moves by 3e-5 at most. */
QR_DEVICE float qr_bend(float x)
{
    return fmaf(-2.0f, qr_reciprocal(qr_exp2(x * (2 * QR_LOG2_E)) + 1.0f), 1.0f);
}

/* Element 8 * chunk of a row of WIDTH bf16 numbers: chunks of 16 bytes change places with the row, so that eight rows lie in different banks. */
template <int WIDTH> QR_DEVICE uint16_t *qr_chunk_at(uint16_t *base, int32_t row, int32_t chunk)
{
    return base + row * WIDTH + (chunk ^ (row & 7)) * 8;
}

#endif
