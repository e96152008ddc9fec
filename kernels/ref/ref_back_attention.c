/* ref_back_attention.c - the plain form of attention's gradients (backward.h, ref.h). */
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "kernels/ref/ref.h"

#define BACK_K_MAX 256
#define BACK_PIECE 64 /* positions whose part of dq is added at once */

/* One query head of one row, and what its gradients need. */
struct back_query {
    const struct qr_attention_back_args *a;
    const int32_t *blocks;          /* of its sequence */
    real q[BACK_K_MAX], dout[BACK_K_MAX]; /* as they meet the cache */
    real lse, weighed;              /* D = dout . out */
    int32_t group, first, last;     /* positions that it sees */
};

/* The first position that a row sees. */
static int32_t back_first(const struct qr_attention_back_args *a, int32_t row)
{
    const int32_t pos = a->batch->pos[row];
    return a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
}

static void back_query_of(struct back_query *b, const struct qr_attention_back_args *a, int32_t seq, int32_t row, int32_t head)
{
    const int32_t k = a->kv->head_dim;
    const real *out = (const real *)a->out + row * a->out_stride + (int64_t)head * k;
    const real *dout = (const real *)a->dout + row * a->dout_stride + (int64_t)head * k;
    b->a = a;
    b->blocks = a->batch->block_table + (int64_t)seq * a->batch->table_stride;
    b->lse = ((const real *)a->lse)[(int64_t)row * a->n_heads + head];
    b->group = head / (a->n_heads / a->kv->n_kv_heads);
    b->first = back_first(a, row);
    b->last = a->batch->pos[row];
    qr_ref_meet_row(b->q, (const real *)a->q + row * a->q_stride + (int64_t)head * k, k, a->kv->dtype);
    qr_ref_meet_row(b->dout, dout, k, a->kv->dtype);
    b->weighed = 0;
    for (int32_t i = 0; i < k; i++)
        b->weighed += dout[i] * out[i];
}

/* The key (which 0) or value (which 1) at position t. */
static void back_cached(real *row, const struct back_query *b, int32_t which, int32_t t)
{
    const struct qr_kv_view *kv = b->a->kv;
    const size_t at = qr_kv_offset(kv, b->blocks[t / kv->block_tokens], b->a->layer, which, b->group) +
                      (size_t)(t % kv->block_tokens) * (size_t)kv->head_dim;
    qr_ref_load_row(row, kv->base, kv->dtype, at, kv->head_dim);
}

/* The probability of position t, whose key is given, and the gradient of its unscaled score. */
static void back_position(const struct back_query *b, const real *key, int32_t t, real *p, real *ds)
{
    const struct qr_attention_back_args *a = b->a;
    real s = 0, dp = 0, slope = 1;
    QR_UNINITIALIZED real value[BACK_K_MAX];
    back_cached(value, b, 1, t);
    for (int32_t i = 0; i < a->kv->head_dim; i++) {
        s += b->q[i] * key[i];
        dp += b->dout[i] * value[i];
    }
    s *= qr_ref_scale(a->scale, a->kv);
    if (a->softcap > 0) {
        real bent = (real)tanh((double)(s / (real)a->softcap));
        s = (real)a->softcap * bent;
        slope = 1 - bent * bent;
    }
    *p = (real)exp((double)(s - b->lse));
    *ds = *p * (dp - b->weighed) * slope;
}

static void back_dq(const struct back_query *b, real *dq)
{
    const enum qr_dtype type = b->a->kv->dtype;
    const int32_t k = b->a->kv->head_dim;
    real sum[BACK_K_MAX] = {0}, p, ds;
    QR_UNINITIALIZED real key[BACK_K_MAX];
    for (int32_t t = b->first; t <= b->last; t++) {
        back_cached(key, b, 0, t);
        back_position(b, key, t, &p, &ds);
        const real met = qr_ref_meet(ds, type);
        for (int32_t i = 0; i < k; i++)
            sum[i] += met * key[i];
        for (int32_t i = 0; i < k && (t == b->last || t % BACK_PIECE == BACK_PIECE - 1); i++) {
            dq[i] += qr_ref_scale(b->a->scale, b->a->kv) * sum[i];
            sum[i] = 0;
        }
    }
}

/* Position t of one sequence and one kv head: every query that sees it. */
static void back_dkv(const struct qr_attention_back_args *a, int32_t seq, int32_t t, int32_t group)
{
    const int32_t k = a->kv->head_dim, per = a->n_heads / a->kv->n_kv_heads, row0 = a->batch->row_start[seq];
    const enum qr_dtype type = a->kv->dtype;
    real sum_k[BACK_K_MAX] = {0}, sum_v[BACK_K_MAX] = {0}, p, ds;
    QR_UNINITIALIZED real key[BACK_K_MAX];
    QR_UNINITIALIZED struct back_query b;
    for (int32_t h = group * per; h < (group + 1) * per; h++)
        for (int32_t r = row0 + t; r < a->batch->row_start[seq + 1] && t >= back_first(a, r); r++) {
            back_query_of(&b, a, seq, r, h);
            back_cached(key, &b, 0, t);
            back_position(&b, key, t, &p, &ds);
            const real met_ds = qr_ref_meet(ds, type), met_p = qr_ref_meet(p, type);
            for (int32_t i = 0; i < k; i++) {
                sum_k[i] += met_ds * b.q[i];
                sum_v[i] += met_p * b.dout[i];
            }
        }
    real *dk = (real *)a->dk + (row0 + t) * a->dk_stride + (int64_t)group * k;
    real *dv = (real *)a->dv + (row0 + t) * a->dv_stride + (int64_t)group * k;
    for (int32_t i = 0; i < k; i++) {
        dk[i] += qr_ref_scale(a->scale, a->kv) * sum_k[i];
        dv[i] += sum_v[i];
    }
}

static void back_zero(const struct qr_attention_back_args *a, int64_t row)
{
    const size_t head = (size_t)a->kv->head_dim * sizeof(real);
    memset((real *)a->dq + row * a->dq_stride, 0, (size_t)a->n_heads * head);
    memset((real *)a->dk + row * a->dk_stride, 0, (size_t)a->kv->n_kv_heads * head);
    memset((real *)a->dv + row * a->dv_stride, 0, (size_t)a->kv->n_kv_heads * head);
}

void QR_REF(attention_back)(struct qr_queue *q, const struct qr_attention_back_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->batch != NULL && a->kv != NULL && a->lse != NULL);
    QR_ASSERT(a->n_heads % a->kv->n_kv_heads == 0 && a->kv->head_dim <= BACK_K_MAX && !qr_kv_has_scales(a->kv->dtype));
    for (int32_t s = 0; s < a->batch->n_seqs; s++) {
        const int32_t row0 = a->batch->row_start[s], n_rows = a->batch->row_start[s + 1] - row0;
        for (int32_t t = 0; t < n_rows; t++) {
            QR_ASSERT(a->batch->pos[row0 + t] == t);
            if (a->fresh)
                back_zero(a, row0 + t);
            for (int32_t h = 0; h < a->n_heads; h++) {
                QR_UNINITIALIZED struct back_query b;
                back_query_of(&b, a, s, row0 + t, h);
                back_dq(&b, (real *)a->dq + (row0 + t) * a->dq_stride + (int64_t)h * a->kv->head_dim);
            }
            for (int32_t g = 0; g < a->kv->n_kv_heads; g++)
                back_dkv(a, s, t, g);
        }
    }
}
