/* rows.c - entries that treat rows one by one: norms, additions, embeddings, rotations, gated units, gathering. Items are runs of
 * rows (pool.h); softcap cuts rows as well. What a row gets depends on that row alone, so any worker may have it. */
#include <math.h>

#include "base/assert.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/row.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/pool.h"

#define SOFTCAP_PIECE (16 * QR_LINEAR_STRETCH) /* of a row for a thread at a time */

static void norm_rows(const void *arg, int64_t first, int64_t end)
{
    const struct qr_norm_args *a = arg;
    for (int64_t n = first; n < end; n++)
        row_norm(a->out + n * a->out_stride, a->x + n * a->x_stride, a->w, a->n_cols, a->eps);
}

void QR_ISA_NAME(rms_norm)(struct qr_queue *q, const struct qr_norm_args *a)
{
    QR_ASSERT(a != NULL && a->x != NULL && a->w != NULL);
    QR_ASSERT(a->n_cols > 0);
    qr_queue_run_rows(q, norm_rows, a, a->n_rows, 2 * (int64_t)a->n_cols);
}

static void layer_norm_rows(const void *arg, int64_t first, int64_t end)
{
    const struct qr_layer_norm_args *a = arg;
    for (int64_t n = first; n < end; n++)
        row_layer_norm(a->out + n * a->out_stride, a->x + n * a->x_stride, a->w, a->bias, a->n_cols, a->eps);
}

void QR_ISA_NAME(layer_norm)(struct qr_queue *q, const struct qr_layer_norm_args *a)
{
    QR_ASSERT(a != NULL && a->x != NULL && a->w != NULL);
    QR_ASSERT(a->out != NULL && a->n_cols > 0);
    qr_queue_run_rows(q, layer_norm_rows, a, a->n_rows, 3 * (int64_t)a->n_cols);
}

static void head_norm_rows(const void *arg, int64_t first, int64_t end)
{
    const struct qr_head_norm_args *a = arg;
    for (int64_t n = first; n < end; n++)
        for (int32_t h = 0; h < a->n_heads; h++) {
            float *x = a->x + n * a->stride + (int64_t)h * a->head_dim;
            row_norm(x, x, a->w, a->head_dim, a->eps);
        }
}

void QR_ISA_NAME(head_norm)(struct qr_queue *q, const struct qr_head_norm_args *a)
{
    QR_ASSERT(a != NULL && a->x != NULL && a->w != NULL);
    QR_ASSERT(a->head_dim > 0);
    qr_queue_run_rows(q, head_norm_rows, a, a->n_rows, 2 * (int64_t)a->n_heads * a->head_dim);
}

static void add_rows(const void *arg, int64_t first, int64_t end)
{
    const struct qr_add_args *a = arg;
    for (int64_t n = first; n < end; n++)
        row_add(a->x + n * a->x_stride, a->delta + n * a->delta_stride, a->n_cols);
}

void QR_ISA_NAME(residual_add)(struct qr_queue *q, const struct qr_add_args *a)
{
    QR_ASSERT(a != NULL && a->x != NULL);
    QR_ASSERT(a->delta != NULL);
    qr_queue_run_rows(q, add_rows, a, a->n_rows, a->n_cols);
}

static void embed_rows(const void *arg, int64_t first, int64_t end)
{
    const struct qr_embed_args *a = arg;
    const struct qr_tensor *t = a->table;
    for (int64_t n = first; n < end; n++) {
        QR_ASSERT(a->ids[n] >= 0 && a->ids[n] < t->shape[0]);
        size_t from = (size_t)a->ids[n] * (size_t)t->stride[0];
        for (int64_t i = 0; i < t->shape[1]; i += VF_LEN) {
            int64_t len = vf_min_len(t->shape[1] - i);
            vf v = vf_load_as_n(t->data, t->dtype, from + (size_t)i, len);
            vf_store_n(a->out + n * a->out_stride + i, vf_mul(vf_set1(a->scale), v), len);
        }
    }
}

void QR_ISA_NAME(embed)(struct qr_queue *q, const struct qr_embed_args *a)
{
    QR_ASSERT(a != NULL && a->table != NULL);
    QR_ASSERT(a->table->n_dims == 2 && a->table->stride[1] == 1);
    if (a->packed) {
        QR_ISA_NAME(embed_packed)(q, a);
        return;
    }
    QR_ASSERT(a->table->data != NULL);
    qr_queue_run_rows(q, embed_rows, a, a->n_rows, a->table->shape[1]);
}

static void rope_table_rows(const void *arg, int64_t first, int64_t end)
{
    const struct qr_rope_table_args *a = arg;
    const int32_t half = a->n_rot / 2;
    for (int64_t n = first; n < end; n++) {
        float *row = a->cos_sin + n * a->n_rot;
        for (int32_t i = 0; i < half; i++) {
            const double angle = (double)a->pos[n] * a->inv_freq[i];
            row[i] = (float)(cos(angle) * (double)a->attn_factor);
            row[half + i] = (float)(sin(angle) * (double)a->attn_factor);
        }
    }
}

void QR_ISA_NAME(rope_table)(struct qr_queue *q, const struct qr_rope_table_args *a)
{
    QR_ASSERT(a != NULL && a->cos_sin != NULL && a->inv_freq != NULL);
    QR_ASSERT(a->n_rot > 0 && a->n_rot % 2 == 0);
    qr_queue_run_rows(q, rope_table_rows, a, a->n_rows, 32 * (int64_t)a->n_rot); /* an element costs as much as 32 additions */
}

static void rope_rows(const void *arg, int64_t first, int64_t end)
{
    const struct qr_rope_args *a = arg;
    for (int64_t n = first; n < end; n++) {
        const float *c = a->cos_sin + n * a->n_rot;
        for (int32_t h = 0; h < a->n_heads; h++)
            row_rotate(a->x + n * a->stride + (int64_t)h * a->head_dim, c, c + a->n_rot / 2, a->n_rot / 2);
    }
}

void QR_ISA_NAME(rope)(struct qr_queue *q, const struct qr_rope_args *a)
{
    QR_ASSERT(a != NULL && a->x != NULL && a->cos_sin != NULL);
    QR_ASSERT(a->n_rot > 0 && a->n_rot % 2 == 0 && a->n_rot <= a->head_dim);
    qr_queue_run_rows(q, rope_rows, a, a->n_rows, (int64_t)a->n_heads * a->head_dim);
}

static void glu_rows(const void *arg, int64_t first, int64_t end)
{
    const struct qr_glu_args *a = arg;
    for (int64_t n = first; n < end; n++) {
        const float *gate = a->gate_up + n * a->gate_up_stride, *up = gate + a->n_cols;
        for (int64_t i = 0; i < a->n_cols; i += VF_LEN) {
            int64_t len = vf_min_len(a->n_cols - i);
            const vf y = row_glu(vf_load_n(gate + i, len), vf_load_n(up + i, len), a->act, a->clamp);
            vf_store_n(a->out + n * a->out_stride + i, y, len);
        }
    }
}

void QR_ISA_NAME(glu)(struct qr_queue *q, const struct qr_glu_args *a)
{
    QR_ASSERT(a != NULL && a->gate_up != NULL);
    QR_ASSERT(a->act != QR_ACT_CLAMPED || a->clamp.limit > 0);
    qr_queue_run_rows(q, glu_rows, a, a->n_rows, 4 * (int64_t)a->n_cols);
}

static void unit_rows(const void *arg, int64_t first, int64_t end)
{
    const struct qr_unit_args *a = arg;
    for (int64_t n = first; n < end; n++)
        for (int64_t i = 0; i < a->n_cols; i += VF_LEN) {
            float *x = a->x + n * a->stride + i;
            const int64_t len = vf_min_len(a->n_cols - i);
            vf_store_n(x, row_act(vf_load_n(x, len), a->act), len);
        }
}

void QR_ISA_NAME(unit)(struct qr_queue *q, const struct qr_unit_args *a)
{
    QR_ASSERT(a != NULL && a->x != NULL);
    QR_ASSERT(a->act == QR_ACT_SILU || a->act == QR_ACT_GELU_TANH);
    qr_queue_run_rows(q, unit_rows, a, a->n_rows, 4 * (int64_t)a->n_cols);
}

/* A piece of one row, of whole stretches. */
static void softcap_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct qr_softcap_args *a = arg;
    const int64_t pieces = (a->n_cols + SOFTCAP_PIECE - 1) / SOFTCAP_PIECE, n = item / pieces, first = item % pieces * SOFTCAP_PIECE;
    const int64_t end = first + SOFTCAP_PIECE < a->n_cols ? first + SOFTCAP_PIECE : a->n_cols;
    const vf cap = vf_set1(a->cap);
    float *x = a->x + n * a->stride;
    for (int64_t i = first; i < end; i += VF_LEN) {
        const int64_t len = vf_min_len(end - i);
        vf_store_n(x + i, vf_mul(cap, vf_tanh(vf_div(vf_load_n(x + i, len), cap))), len);
    }
    const struct qr_linear_args rows = {.out = a->x, .out_stride = a->stride, .n_out = a->n_cols, .stretches = a->stretches};
    if (a->stretches)
        row_stretches(&rows, n, 1, first, end);
}

void QR_ISA_NAME(softcap)(struct qr_queue *q, const struct qr_softcap_args *a)
{
    QR_ASSERT(a != NULL && a->x != NULL);
    QR_ASSERT(a->cap > 0 && a->n_cols > 0);
    qr_queue_run(q, softcap_item, a, a->n_rows * ((a->n_cols + SOFTCAP_PIECE - 1) / SOFTCAP_PIECE));
}

static void gather_rows(const void *arg, int64_t first, int64_t end)
{
    const struct qr_gather_args *a = arg;
    for (int64_t n = first; n < end; n++)
        memcpy(a->out + n * a->out_stride, a->x + a->row[n] * a->x_stride, (size_t)a->n_cols * sizeof *a->out);
}

void QR_ISA_NAME(gather_rows)(struct qr_queue *q, const struct qr_gather_args *a)
{
    QR_ASSERT(a != NULL && a->x != NULL);
    QR_ASSERT(a->row != NULL || a->n_rows == 0);
    qr_queue_run_rows(q, gather_rows, a, a->n_rows, a->n_cols);
}
