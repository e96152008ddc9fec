/* rows.c - everything that treats rows one by one: norms, additions, embeddings, gated units, gathering. */
#include "base/assert.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/row.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/pool.h"

#define SOFTCAP_PIECE (16 * QR_LINEAR_STRETCH) /* of a row for a thread at a time */

/* Runs fn over pieces of n_rows rows that hold about `cost` elements each. The arguments of every job here begin with the kernel's. */
struct row_job {
    const void *a;
    int64_t n_rows, rows_per_item;
};

static void run_rows(struct qr_queue *q, qr_job *fn, const void *a, int64_t n_rows, int64_t cost)
{
    struct row_job j = {a, n_rows, qr_queue_rows_per_item(cost)};
    qr_queue_run(q, fn, &j, (n_rows + j.rows_per_item - 1) / j.rows_per_item);
}

static int64_t first_row(const struct row_job *j, int32_t item)
{
    return item * j->rows_per_item;
}

static int64_t end_row(const struct row_job *j, int32_t item)
{
    int64_t end = (item + 1) * j->rows_per_item;
    return end < j->n_rows ? end : j->n_rows;
}

static void add_row(float *x, const float *delta, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF_LEN) {
        int64_t len = vf_min_len(n - i);
        vf_store_n(x + i, vf_add(vf_load_n(x + i, len), vf_load_n(delta + i, len)), len);
    }
}

static void norm_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct row_job *j = arg;
    const struct qr_norm_args *a = j->a;
    for (int64_t n = first_row(j, item); n < end_row(j, item); n++)
        row_norm(a->out + n * a->out_stride, a->x + n * a->x_stride, a->w, a->n_cols, a->eps);
}

void QR_ISA_NAME(rms_norm)(struct qr_queue *q, const struct qr_norm_args *a)
{
    QR_ASSERT(a != NULL && a->x != NULL && a->w != NULL);
    QR_ASSERT(a->n_cols > 0);
    run_rows(q, norm_item, a, a->n_rows, 2 * (int64_t)a->n_cols);
}

static void layer_norm_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct row_job *j = arg;
    const struct qr_layer_norm_args *a = j->a;
    for (int64_t n = first_row(j, item); n < end_row(j, item); n++)
        row_layer_norm(a->out + n * a->out_stride, a->x + n * a->x_stride, a->w, a->bias, a->n_cols, a->eps);
}

void QR_ISA_NAME(layer_norm)(struct qr_queue *q, const struct qr_layer_norm_args *a)
{
    QR_ASSERT(a != NULL && a->x != NULL && a->w != NULL);
    QR_ASSERT(a->out != NULL && a->n_cols > 0);
    run_rows(q, layer_norm_item, a, a->n_rows, 3 * (int64_t)a->n_cols);
}

static void head_norm_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct row_job *j = arg;
    const struct qr_head_norm_args *a = j->a;
    for (int64_t n = first_row(j, item); n < end_row(j, item); n++)
        for (int32_t h = 0; h < a->n_heads; h++) {
            float *x = a->x + n * a->stride + (int64_t)h * a->head_dim;
            row_norm(x, x, a->w, a->head_dim, a->eps);
        }
}

void QR_ISA_NAME(head_norm)(struct qr_queue *q, const struct qr_head_norm_args *a)
{
    QR_ASSERT(a != NULL && a->x != NULL && a->w != NULL);
    QR_ASSERT(a->head_dim > 0);
    run_rows(q, head_norm_item, a, a->n_rows, 2 * (int64_t)a->n_heads * a->head_dim);
}

static void add_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct row_job *j = arg;
    const struct qr_add_args *a = j->a;
    for (int64_t n = first_row(j, item); n < end_row(j, item); n++)
        add_row(a->x + n * a->x_stride, a->delta + n * a->delta_stride, a->n_cols);
}

void QR_ISA_NAME(residual_add)(struct qr_queue *q, const struct qr_add_args *a)
{
    QR_ASSERT(a != NULL && a->x != NULL);
    QR_ASSERT(a->delta != NULL);
    run_rows(q, add_item, a, a->n_rows, a->n_cols);
}

static void embed_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct row_job *j = arg;
    const struct qr_embed_args *a = j->a;
    const struct qr_tensor *t = a->table;
    for (int64_t n = first_row(j, item); n < end_row(j, item); n++) {
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
    run_rows(q, embed_item, a, a->n_rows, a->table->shape[1]);
}

static void glu_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct row_job *j = arg;
    const struct qr_glu_args *a = j->a;
    for (int64_t n = first_row(j, item); n < end_row(j, item); n++) {
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
    run_rows(q, glu_item, a, a->n_rows, 4 * (int64_t)a->n_cols);
}

static void unit_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct row_job *j = arg;
    const struct qr_unit_args *a = j->a;
    for (int64_t n = first_row(j, item); n < end_row(j, item); n++)
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
    run_rows(q, unit_item, a, a->n_rows, 4 * (int64_t)a->n_cols);
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

static void gather_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct row_job *j = arg;
    const struct qr_gather_args *a = j->a;
    for (int64_t n = first_row(j, item); n < end_row(j, item); n++)
        memcpy(a->out + n * a->out_stride, a->x + a->row[n] * a->x_stride, (size_t)a->n_cols * sizeof *a->out);
}

void QR_ISA_NAME(gather_rows)(struct qr_queue *q, const struct qr_gather_args *a)
{
    QR_ASSERT(a != NULL && a->x != NULL);
    QR_ASSERT(a->row != NULL || a->n_rows == 0);
    run_rows(q, gather_item, a, a->n_rows, a->n_cols);
}
