/* kv.c - writing to the paged cache, and the way of q, k, v there. */
#include "base/assert.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/row.h"
#include "kernels/cpu/pool.h"
#include "kernels/quant.h"

/* x[0..n) to row t of the plane [block][layer][which][head]. */
static void write_head(const struct qr_kv_view *kv, int32_t block, int32_t layer, int32_t which, int32_t head, int32_t t, const float *x)
{
    const int32_t n = kv->head_dim;
    const size_t at = qr_kv_offset(kv, block, layer, which, head) + (size_t)t * (size_t)n;
    if (kv->dtype == QR_I8) {
        float inverse;
        qr_kv_scales(kv, block, layer, which, head)[t] = qr_quant_scale(&inverse, qr_quant_max_bits(0, x, n), QR_Q8_LARGEST);
        qr_quant_int8((int8_t *)kv->base + at, x, n, inverse);
        return;
    }
    for (int32_t i = 0; i < n; i += VF_LEN) {
        int64_t len = vf_min_len(n - i);
        vf v = vf_load_n(x + i, len);
        if (kv->dtype == QR_F32)
            vf_store_n((float *)kv->base + at + i, v, len);
        else
            vf_store_bf16_n((uint16_t *)kv->base + at + i, v, len);
    }
}

/* k and v [G, K] of one row to cache row `slot`. */
static void write_row(const struct qr_kv_view *kv, int32_t layer, int32_t slot, const float *k, const float *v)
{
    const int32_t block = slot / kv->block_tokens, t = slot % kv->block_tokens;
    QR_ASSERT(slot >= 0 && block < kv->n_blocks);
    for (int32_t g = 0; g < kv->n_kv_heads; g++) {
        const int64_t from = (int64_t)g * kv->head_dim;
        write_head(kv, block, layer, 0, g, t, k + from);
        write_head(kv, block, layer, 1, g, t, v + from);
    }
}

static void kv_write_rows(const void *arg, int64_t first, int64_t end)
{
    const struct qr_kv_write_args *a = arg;
    for (int64_t n = first; n < end; n++)
        write_row(a->kv, a->layer, a->slot[n], a->k + n * a->k_stride, a->v + n * a->v_stride);
}

void QR_ISA_NAME(kv_write)(struct qr_queue *q, const struct qr_kv_write_args *a)
{
    QR_ASSERT(a != NULL && a->kv != NULL && a->kv->base != NULL);
    QR_ASSERT(a->layer >= 0 && a->layer < a->kv->n_layers);
    QR_ASSERT(a->kv->dtype == QR_F32 || a->kv->dtype == QR_BF16 || a->kv->dtype == QR_I8);
    qr_queue_run_rows(q, kv_write_rows, a, a->n_rows, 2 * (int64_t)a->kv->n_kv_heads * a->kv->head_dim);
}

/* n numbers as bf16, as tiles would round them. `to` may be where x is, or lie before it. */
static void round_queries(uint16_t *to, const float *x, int32_t n)
{
#ifdef QR_ISA_amx
    for (int32_t i = 0; i < n; i += 2 * VF_LEN)
        _mm512_storeu_si512(to + i, (__m512i)_mm512_cvtne2ps_pbh(vf_load(x + i + VF_LEN), vf_load(x + i)));
#else
    for (int32_t i = 0; i < n; i += VF_LEN)
        vf_store_bf16_n(to + i, vf_load(x + i), vf_min_len(n - i));
#endif
}

/* Heads of a row: their norm where there is one, their rotation, and their place in `rounded` where that is not NULL. */
static void rotate_heads(float *x, const float *w, const struct qr_qkv_args *a, const float *cos_sin, int32_t n_heads, uint16_t *rounded)
{
    const int32_t dim = a->kv->head_dim, half = a->n_rot / 2;
    for (int32_t h = 0; h < n_heads; h++, x += dim) {
        if (w)
            row_norm(x, x, w, dim, a->eps);
        if (half > 0)
            row_rotate(x, cos_sin, cos_sin + half, half);
        if (rounded)
            round_queries(rounded + h * dim, x, dim);
    }
}

void QR_ISA_NAME(qkv_rows)(const struct qr_qkv_args *a, int64_t first, int64_t end)
{
    QR_ASSERT(a != NULL && a->kv != NULL);
    QR_ASSERT(first >= 0 && end <= a->n_rows);
    const int32_t n_kv = a->kv->n_kv_heads, dim = a->kv->head_dim;
    for (int64_t n = first; n < end; n++) {
        const float *cos_sin = a->cos_sin + n * a->n_rot;
        float *q = a->x + n * a->stride, *k = q + (int64_t)a->n_heads * dim, *v = k + (int64_t)n_kv * dim;
        rotate_heads(q, a->q_norm, a, cos_sin, a->n_heads, a->q_bf16 ? (uint16_t *)(void *)q : NULL);
        rotate_heads(k, a->k_norm, a, cos_sin, n_kv, NULL);
        write_row(a->kv, a->layer, a->slot[n], k, v);
    }
}

static void qkv_some(const void *arg, int64_t first, int64_t end)
{
    QR_ISA_NAME(qkv_rows)(arg, first, end);
}

void QR_ISA_NAME(qkv)(struct qr_queue *q, const struct qr_qkv_args *a)
{
    QR_ASSERT(a != NULL && a->x != NULL && a->cos_sin != NULL && a->slot != NULL);
    QR_ASSERT(a->kv != NULL && a->kv->base != NULL && a->layer >= 0 && a->layer < a->kv->n_layers);
    QR_ASSERT(a->kv->dtype == QR_F32 || a->kv->dtype == QR_BF16 || a->kv->dtype == QR_I8);
    QR_ASSERT(a->n_rot >= 0 && a->n_rot % 2 == 0 && a->n_rot <= a->kv->head_dim);
    QR_ASSERT(!a->q_bf16 || a->kv->head_dim % 32 == 0);
    qr_queue_run_rows(q, qkv_some, a, a->n_rows, (int64_t)(a->n_heads + 2 * a->kv->n_kv_heads) * a->kv->head_dim);
}

void QR_ISA_NAME(kv_copy)(struct qr_queue *q, const struct qr_kv_copy_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->kv != NULL && a->kv->base != NULL);
    QR_ASSERT(a->src >= 0 && a->src < a->kv->n_blocks && a->dst >= 0 && a->dst < a->kv->n_blocks);
    size_t n = qr_kv_block_bytes(a->kv);
    if (a->src != a->dst)
        memcpy((char *)a->kv->base + (size_t)a->dst * n, (const char *)a->kv->base + (size_t)a->src * n, n);
}
