/* cache.h - one layer of the cache as it is written, and the rotation of what is written there. For .cu files. */
#ifndef QR_KERNELS_CUDA_CACHE_H
#define QR_KERNELS_CUDA_CACHE_H

#include "kernels/cuda/num.h"

#define QR_CACHE_HEAD_MAX 256

struct qr_cache { /* one layer of a struct qr_kv_view */
    uint8_t *base;
    int64_t block_bytes, plane_bytes;
    int32_t n_kv_heads, head_dim, block_tokens, n_blocks;
};

static inline struct qr_cache qr_cache_of(const struct qr_kv_view *kv, int32_t layer)
{
    const int64_t plane = (int64_t)(qr_kv_plane_elements(kv) * qr_dtype_bytes(kv->dtype));
    QR_ASSERT(layer >= 0 && layer < kv->n_layers);
    QR_ASSERT(kv->head_dim > 0 && kv->head_dim <= QR_CACHE_HEAD_MAX);
    const struct qr_cache c = {(uint8_t *)kv->base + layer * 2 * kv->n_kv_heads * plane, (int64_t)qr_kv_block_bytes(kv), plane, kv->n_kv_heads, kv->head_dim,
                               kv->block_tokens, kv->n_blocks};
    return c;
}

/* The plane of a head (which: 0 keys, 1 values) that has cache row `slot`, and the row's number in it. */
QR_DEVICE uint8_t *qr_cache_plane(const struct qr_cache &c, int32_t slot, int32_t which, int32_t head, int32_t *token)
{
    const int32_t block = slot / c.block_tokens;
    QR_DEVICE_ASSERT(slot >= 0 && block < c.n_blocks);
    *token = slot % c.block_tokens;
    return c.base + block * c.block_bytes + (which * c.n_kv_heads + head) * c.plane_bytes;
}

/* Numbers i and i + half of a head, rotated; one product each, one sum. */
QR_DEVICE float qr_turn_low(float low, float high, float c, float s)
{
    return low * c - high * s;
}

QR_DEVICE float qr_turn_high(float low, float high, float c, float s)
{
    return high * c + low * s;
}

#endif
