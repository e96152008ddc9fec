/* ref_attention.c - the plain form of attention and of the paged cache's writes and copies (kernels.h, ref.h). */
#include "kernels/ref/ref_context.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "kernels/f8.h"

#define PIECE 256 /* positions between two merges */
#define K_MAX 256

/* x [K] to row t of the plane [block][layer][which][head]. */
static void write_row(const struct qr_kv_view *kv, int32_t block, int32_t layer, int32_t which, int32_t head, int32_t t, const real *x)
{
    size_t at = qr_kv_offset(kv, block, layer, which, head) + (size_t)t * (size_t)kv->head_dim;
    float row[K_MAX], inverse;
    QR_ASSERT(kv->head_dim <= K_MAX);
    if (qr_kv_has_scales(kv->dtype)) {
        const float largest = kv->dtype == QR_I8 ? QR_Q8_LARGEST : QR_E4M3_MAX;
        for (int32_t i = 0; i < kv->head_dim; i++)
            row[i] = (float)x[i];
        qr_kv_scales(kv, block, layer, which, head)[t] = qr_quant_scale(&inverse, qr_quant_max_bits(0, row, kv->head_dim), largest);
        if (kv->dtype == QR_I8)
            qr_quant_int8((int8_t *)kv->base + at, row, kv->head_dim, inverse);
        else
            qr_f8_codes((uint8_t *)kv->base + at, row, kv->head_dim, inverse);
        return;
    }
    for (int32_t i = 0; i < kv->head_dim; i++)
        qr_ref_store(kv->base, kv->dtype, at + (size_t)i, x[i]);
}

void QR_REF(kv_write)(struct qr_queue *q, const struct qr_kv_write_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->kv != NULL && a->kv->base != NULL);
    QR_ASSERT(a->layer >= 0 && a->layer < a->kv->n_layers);
    const struct qr_kv_view *kv = a->kv;
    for (int32_t n = 0; n < a->n_rows; n++) {
        int32_t block = a->slot[n] / kv->block_tokens, t = a->slot[n] % kv->block_tokens;
        QR_ASSERT(block >= 0 && block < kv->n_blocks);
        for (int32_t g = 0; g < kv->n_kv_heads; g++) {
            write_row(kv, block, a->layer, 0, g, t, (const real *)a->k + n * a->k_stride + (int64_t)g * kv->head_dim);
            write_row(kv, block, a->layer, 1, g, t, (const real *)a->v + n * a->v_stride + (int64_t)g * kv->head_dim);
        }
    }
}

void QR_REF(kv_copy)(struct qr_queue *q, const struct qr_kv_copy_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->kv != NULL && a->kv->base != NULL);
    QR_ASSERT(a->src >= 0 && a->src < a->kv->n_blocks && a->dst >= 0 && a->dst < a->kv->n_blocks);
    size_t n = qr_kv_block_bytes(a->kv);
    if (a->src != a->dst)
        memcpy((char *)a->kv->base + (size_t)a->dst * n, (const char *)a->kv->base + (size_t)a->src * n, n);
}

/* met: the query as it meets the cache. */
static real score(const struct context *c, const real *met, int32_t t)
{
    real sum = 0;
    QR_UNINITIALIZED real key[K_MAX];
    cached_row(key, c, 0, t);
    for (int32_t i = 0; i < c->a->kv->head_dim; i++)
        sum += met[i] * key[i];
    sum *= scale_of(c, 0, t) * qr_ref_scale(c->a->scale, c->a->kv);
    real cap = (real)c->a->softcap;
    return cap > 0 ? cap * (real)tanh((double)(sum / cap)) : sum;
}

/* Softmax sums of the positions [t0, t1): the largest score, the sum of exponentials, the weighted values. */
static void attend_piece(const struct context *c, const real *met, int32_t t0, int32_t t1, real *max, real *sum, real *out)
{
    QR_UNINITIALIZED real p[PIECE], value[K_MAX];
    *max = score(c, met, t0);
    for (int32_t t = t0; t < t1; t++) {
        p[t - t0] = score(c, met, t);
        *max = p[t - t0] > *max ? p[t - t0] : *max;
    }
    *sum = 0;
    memset(out, 0, sizeof *out * (size_t)c->a->kv->head_dim);
    for (int32_t t = t0; t < t1; t++) {
        real e = (real)exp((double)(p[t - t0] - *max));
        *sum += e;
        e = qr_ref_meet(e * scale_of(c, 1, t), c->a->kv->dtype);
        cached_row(value, c, 1, t);
        for (int32_t i = 0; i < c->a->kv->head_dim; i++)
            out[i] += e * value[i];
    }
}

/* One head's query over positions [first, last], piece after piece. */
static void attend(const struct context *c, int32_t head, real *out, real *lse, const real *q, int32_t first, int32_t last)
{
    int32_t k = c->a->kv->head_dim;
    real max = 0, sum = 0, piece_max, piece_sum, piece_out[K_MAX];
    QR_UNINITIALIZED real met[K_MAX];
    qr_ref_meet_row(met, q, k, c->a->kv->dtype);
    for (int32_t t0 = first; t0 <= last;) {
        int32_t t1 = t0 / PIECE * PIECE + PIECE;
        t1 = t1 <= last ? t1 : last + 1;
        attend_piece(c, met, t0, t1, &piece_max, &piece_sum, piece_out);
        real new_max = t0 == first || piece_max > max ? piece_max : max;
        real keep = t0 == first ? 0 : (real)exp((double)(max - new_max)), take = (real)exp((double)(piece_max - new_max));
        for (int32_t i = 0; i < k; i++)
            out[i] = (t0 == first ? 0 : out[i] * keep) + piece_out[i] * take;
        sum = sum * keep + piece_sum * take;
        max = new_max;
        t0 = t1;
    }
    const real sink = c->a->sinks ? (real)((const param *)c->a->sinks)[head] : -INFINITY;
    const real most = sink > max ? sink : max, keep = sink > max ? (real)exp((double)(max - sink)) : 1;
    if (sink > -INFINITY) /* a piece without values */
        sum = sum * keep + (real)exp((double)(sink - most));
    max = most;
    for (int32_t i = 0; i < k; i++)
        out[i] = out[i] * keep / sum;
    if (lse)
        *lse = max + (real)log((double)sum);
}

void QR_REF(attention)(struct qr_queue *q, const struct qr_attention_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->batch != NULL && a->kv != NULL);
    QR_ASSERT(a->n_heads % a->kv->n_kv_heads == 0 && a->kv->head_dim <= K_MAX);
    int32_t k = a->kv->head_dim, group = a->n_heads / a->kv->n_kv_heads;
    for (int32_t s = 0; s < a->batch->n_seqs; s++)
        for (int32_t r = a->batch->row_start[s]; r < a->batch->row_start[s + 1]; r++)
            for (int32_t h = 0; h < a->n_heads; h++) {
                struct context c = {a, a->batch->block_table + (int64_t)s * a->batch->table_stride, h / group};
                int32_t last = a->batch->pos[r], first = a->window > 0 && last >= a->window ? last - a->window + 1 : 0;
                attend(&c, h, (real *)a->out + r * a->out_stride + (int64_t)h * k,
                       a->lse ? (real *)a->lse + (int64_t)r * a->n_heads + h : NULL,
                       (const real *)a->q + r * a->q_stride + (int64_t)h * k, first, last);
            }
}
