/* ref_rows.c - the plain form of everything that works on rows: norms, activations, embedding, rotation, gathering.
 * These loops are the oracle of every other implementation, in f32, and in double for the bounds of the tests (ref.h).
 * Written to be compared with the formulas of kernels.h, not to be fast. Pure; on the caller's thread. */
#include "kernels/ref/ref.h"

#include <math.h>

#include "base/assert.h"

/* x[0..n) scaled so that its mean square is 1 (eps aside), times w. */
static void norm_row(real *out, const real *x, const param *w, int32_t n, float eps)
{
    real rms = qr_ref_rms(x, n, eps);
    for (int32_t i = 0; i < n; i++)
        out[i] = x[i] / rms * (real)w[i];
}

void QR_REF(rms_norm)(struct qr_queue *q, const struct qr_norm_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->x != NULL);
    QR_ASSERT(a->n_cols > 0);
    for (int32_t n = 0; n < a->n_rows; n++) {
        const real *x = (const real *)a->x + n * a->x_stride;
        norm_row((real *)a->out + n * a->out_stride, x, (const param *)a->w, a->n_cols, a->eps);
    }
}

void QR_REF(head_norm)(struct qr_queue *q, const struct qr_head_norm_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->x != NULL);
    QR_ASSERT(a->head_dim > 0);
    for (int32_t n = 0; n < a->n_rows; n++)
        for (int32_t h = 0; h < a->n_heads; h++) {
            real *x = (real *)a->x + n * a->stride + (int64_t)h * a->head_dim;
            norm_row(x, x, (const param *)a->w, a->head_dim, a->eps);
        }
}

void QR_REF(residual_add)(struct qr_queue *q, const struct qr_add_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->x != NULL);
    QR_ASSERT(a->delta != NULL);
    for (int32_t n = 0; n < a->n_rows; n++)
        for (int32_t i = 0; i < a->n_cols; i++)
            ((real *)a->x)[n * a->x_stride + i] += ((const real *)a->delta)[n * a->delta_stride + i];
}

void QR_REF(embed)(struct qr_queue *q, const struct qr_embed_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->table != NULL && (a->table->data != NULL) != (a->packed != NULL));
    QR_ASSERT(a->table->n_dims == 2);
    int64_t n_cols = a->table->shape[1];
    const void *rows = a->packed ? a->packed : a->table->data; /* packed rows lie as they are here */
    for (int32_t n = 0; n < a->n_rows; n++) {
        QR_ASSERT(a->ids[n] >= 0 && a->ids[n] < a->table->shape[0]);
        size_t first = (size_t)a->ids[n] * (size_t)a->table->stride[0];
        for (int64_t i = 0; i < n_cols; i++)
            ((real *)a->out)[n * a->out_stride + i] = (real)a->scale * (real)qr_ref_load(rows, qr_ref_packed(a->table->dtype), first + (size_t)i);
    }
}

void QR_REF(glu)(struct qr_queue *q, const struct qr_glu_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->gate_up != NULL);
    QR_ASSERT(a->act != QR_ACT_CLAMPED || a->clamp.limit > 0);
    for (int32_t n = 0; n < a->n_rows; n++) {
        const real *gate = (const real *)a->gate_up + n * a->gate_up_stride, *up = gate + a->n_cols;
        for (int32_t f = 0; f < a->n_cols; f++)
            ((real *)a->out)[n * a->out_stride + f] = qr_ref_glu(gate[f], up[f], a->act, &a->clamp);
    }
}

void QR_REF(layer_norm)(struct qr_queue *q, const struct qr_layer_norm_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->x != NULL);
    QR_ASSERT(a->out != NULL && a->n_cols > 0);
    for (int32_t n = 0; n < a->n_rows; n++) {
        const real *x = (const real *)a->x + n * a->x_stride;
        real *out = (real *)a->out + n * a->out_stride, sum = 0;
        for (int32_t i = 0; i < a->n_cols; i++)
            sum += x[i];
        const real mean = sum / (real)a->n_cols;
        for (int32_t i = 0; i < a->n_cols; i++)
            out[i] = x[i] - mean;
        const real deviation = qr_ref_rms(out, a->n_cols, a->eps);
        for (int32_t i = 0; i < a->n_cols; i++)
            out[i] = out[i] / deviation * (real)((const param *)a->w)[i] + (a->bias ? (real)((const param *)a->bias)[i] : 0);
    }
}

void QR_REF(unit)(struct qr_queue *q, const struct qr_unit_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->x != NULL);
    QR_ASSERT(a->act == QR_ACT_SILU || a->act == QR_ACT_GELU_TANH);
    for (int32_t n = 0; n < a->n_rows; n++) {
        real *x = (real *)a->x + n * a->stride;
        for (int32_t i = 0; i < a->n_cols; i++)
            x[i] = qr_ref_act(x[i], a->act);
    }
}

void QR_REF(softcap)(struct qr_queue *q, const struct qr_softcap_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->x != NULL);
    QR_ASSERT(a->cap > 0 && a->n_cols > 0);
    const real cap = (real)a->cap;
    for (int32_t n = 0; n < a->n_rows; n++) {
        real *x = (real *)a->x + n * a->stride;
        for (int32_t i = 0; i < a->n_cols; i++)
            x[i] = cap * (real)tanh((double)(x[i] / cap));
        if (a->stretches)
            QR_REF(stretches)(a->stretches, n, x, a->n_cols);
    }
}

void QR_REF(gather_rows)(struct qr_queue *q, const struct qr_gather_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->x != NULL);
    QR_ASSERT(a->row != NULL || a->n_rows == 0);
    for (int32_t n = 0; n < a->n_rows; n++)
        for (int32_t i = 0; i < a->n_cols; i++)
            ((real *)a->out)[n * a->out_stride + i] = ((const real *)a->x)[a->row[n] * a->x_stride + i];
}

void QR_REF(pick_columns)(struct qr_queue *q, const struct qr_pick_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->x != NULL);
    QR_ASSERT(a->col != NULL || a->n_cols == 0);
    for (int32_t n = 0; n < a->n_rows; n++)
        for (int32_t i = 0; i < a->n_cols; i++)
            ((real *)a->out)[n * a->out_stride + i] = ((const real *)a->x)[n * a->x_stride + a->col[i]];
}

void QR_REF(rope_table)(struct qr_queue *q, const struct qr_rope_table_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->cos_sin != NULL);
    QR_ASSERT(a->n_rot > 0 && a->n_rot % 2 == 0);
    int32_t half = a->n_rot / 2;
    for (int32_t n = 0; n < a->n_rows; n++) {
        real *row = (real *)a->cos_sin + (size_t)n * (size_t)a->n_rot;
        for (int32_t i = 0; i < half; i++) {
            double angle = (double)a->pos[n] * a->inv_freq[i];
            row[i] = (real)(cos(angle) * (double)a->attn_factor);
            row[half + i] = (real)(sin(angle) * (double)a->attn_factor);
        }
    }
}

/* Turns every head's pairs by the angle, or back by it. */
static void turn(const struct qr_rope_args *a, real direction)
{
    QR_ASSERT(a != NULL && a->x != NULL);
    QR_ASSERT(a->n_rot > 0 && a->n_rot % 2 == 0 && a->n_rot <= a->head_dim);
    int32_t half = a->n_rot / 2;
    for (int32_t n = 0; n < a->n_rows; n++) {
        const real *c = (const real *)a->cos_sin + (size_t)n * (size_t)a->n_rot, *s = c + half;
        for (int32_t h = 0; h < a->n_heads; h++) {
            real *x = (real *)a->x + n * a->stride + (int64_t)h * a->head_dim;
            for (int32_t i = 0; i < half; i++) {
                real x0 = x[i], x1 = x[i + half], sine = direction * s[i];
                x[i] = x0 * c[i] - x1 * sine;
                x[i + half] = x1 * c[i] + x0 * sine;
            }
        }
    }
}

void QR_REF(rope)(struct qr_queue *q, const struct qr_rope_args *a)
{
    (void)q;
    turn(a, 1);
}

void QR_REF(rope_back)(struct qr_queue *q, const struct qr_rope_args *a)
{
    (void)q;
    turn(a, -1);
}

void QR_REF(qkv)(struct qr_queue *q, const struct qr_qkv_args *a)
{
    QR_ASSERT(a != NULL && a->x != NULL && a->kv != NULL);
    QR_ASSERT(a->n_heads > 0 && a->n_rows >= 0);
    const int32_t g = a->kv->n_kv_heads, dim = a->kv->head_dim;
    real *k = (real *)a->x + (int64_t)a->n_heads * dim, *v = k + (int64_t)g * dim;
    const struct qr_head_norm_args norm_q = {.x = a->x, .w = a->q_norm, .stride = a->stride, .n_rows = a->n_rows, .n_heads = a->n_heads,
                                             .head_dim = dim, .eps = a->eps};
    const struct qr_head_norm_args norm_k = {.x = (float *)k, .w = a->k_norm, .stride = a->stride, .n_rows = a->n_rows, .n_heads = g,
                                             .head_dim = dim, .eps = a->eps};
    const struct qr_rope_args rope = {.x = a->x, .cos_sin = a->cos_sin, .stride = a->stride, .n_rows = a->n_rows, .n_heads = a->n_heads + g,
                                      .head_dim = dim, .n_rot = a->n_rot};
    const struct qr_kv_write_args write = {.kv = a->kv, .k = (const float *)k, .v = (const float *)v, .slot = a->slot, .k_stride = a->stride,
                                           .v_stride = a->stride, .layer = a->layer, .n_rows = a->n_rows};
    if (a->q_norm)
        QR_REF(head_norm)(q, &norm_q);
    if (a->k_norm)
        QR_REF(head_norm)(q, &norm_k);
    if (a->n_rot > 0)
        QR_REF(rope)(q, &rope);
    QR_REF(kv_write)(q, &write);
}

void QR_REF(chain)(struct qr_queue *q, const struct qr_chain_args *a)
{
    QR_ASSERT(a != NULL && a->linear != NULL);
    QR_ASSERT(a->n >= 1 && a->n <= QR_CHAIN_MAX);
    for (int32_t i = 0; i < a->n; i++)
        QR_REF(linear)(q, &a->linear[i]);
    if (a->heads)
        QR_REF(qkv)(q, a->heads);
}
