/* rows.c - gradients of what treats rows one by one, and the loss. Gradients of activations are split by rows; those of parameters, chains over
 * rows, by columns: first each row's factors go to scratch, then every column walks down the rows. */
#include <math.h>

#include "base/assert.h"
#include "kernels/cpu/isa/backward/back.h"
#include "kernels/cpu/isa/row.h"
#include "kernels/cpu/pool.h"

#define COLS 64 /* columns of an item of a walk down the rows */

/* Rows [row0, row0 + n_rows) of a norm, as many as scratch has room for. */
struct norm_job {
    const void *a;
    float *scratch;       /* of the launch: each row's factor, or each head's */
    int64_t n_rows, row0;
};

/* ---- norms ---- */

/* dx += of one row's norm; returns 1 / rms. */
static float norm_row_back(float *dx, const float *dy, const float *x, const float *w, int64_t n, float eps)
{
    vf squares = vf_zero(), dots = vf_zero();
    for (int64_t i = 0; i < n; i += VF_LEN) {
        const int64_t len = vf_min_len(n - i);
        vf v = vf_load_n(x + i, len);
        squares = vf_fma(v, v, squares);
        dots = vf_fma(vf_mul(vf_load_n(w + i, len), vf_load_n(dy + i, len)), v, dots);
    }
    const float r = 1.0f / sqrtf(vf_sum(squares) / (float)n + eps);
    const vf scale = vf_set1(r), pull = vf_set1(r * r * (vf_sum(dots) / (float)n));
    for (int64_t i = 0; i < n; i += VF_LEN) {
        const int64_t len = vf_min_len(n - i);
        vf d = vf_fnma(vf_load_n(x + i, len), pull, vf_mul(vf_load_n(w + i, len), vf_load_n(dy + i, len)));
        vf_store_n(dx + i, vf_fma(scale, d, vf_load_n(dx + i, len)), len);
    }
    return r;
}

static void norm_rows(const void *arg, int64_t first, int64_t end)
{
    const struct norm_job *j = arg;
    const struct qr_norm_back_args *a = j->a;
    for (int64_t i = first, n = j->row0 + first; i < end; i++, n++)
        j->scratch[i] = norm_row_back(a->dx + n * a->dx_stride, a->dy + n * a->dy_stride, a->x + n * a->x_stride, a->w, a->n_cols, a->eps);
}

/* dw of COLS columns from i on: sums stay in registers while rows pass by, some lines of each. */
static void norm_dw_whole(const struct norm_job *j, int64_t i)
{
    const struct qr_norm_back_args *a = j->a;
    const float *dy = a->dy + j->row0 * a->dy_stride + i, *x = a->x + j->row0 * a->x_stride + i;
    vf sum[COLS / VF_LEN];
    for (int c = 0; c < COLS / VF_LEN; c++)
        sum[c] = vf_load(a->dw + i + c * VF_LEN);
    for (int64_t n = 0; n < j->n_rows; n++, dy += a->dy_stride, x += a->x_stride) {
        const vf r = vf_set1(j->scratch[n]);
        for (int c = 0; c < COLS / VF_LEN; c++)
            sum[c] = vf_fma(vf_mul(vf_load(dy + c * VF_LEN), vf_load(x + c * VF_LEN)), r, sum[c]);
    }
    for (int c = 0; c < COLS / VF_LEN; c++)
        vf_store(a->dw + i + c * VF_LEN, sum[c]);
}

static void norm_dw_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct norm_job *j = arg;
    const struct qr_norm_back_args *a = j->a;
    if (a->n_cols - (int64_t)item * COLS >= COLS) {
        norm_dw_whole(j, (int64_t)item * COLS);
        return;
    }
    for (int64_t i = (int64_t)item * COLS; i < a->n_cols; i += VF_LEN) {
        const int64_t len = vf_min_len(a->n_cols - i);
        vf sum = vf_load_n(a->dw + i, len);
        for (int64_t n = 0; n < j->n_rows; n++) {
            const float *dy = a->dy + (j->row0 + n) * a->dy_stride + i, *x = a->x + (j->row0 + n) * a->x_stride + i;
            sum = vf_fma(vf_mul(vf_load_n(dy, len), vf_load_n(x, len)), vf_set1(j->scratch[n]), sum);
        }
        vf_store_n(a->dw + i, sum, len);
    }
}

void QR_ISA_NAME(rms_norm_back)(struct qr_queue *q, const struct qr_norm_back_args *a)
{
    QR_ASSERT(a != NULL && a->dx != NULL && a->dw != NULL && a->dy != NULL && a->x != NULL && a->w != NULL);
    QR_ASSERT(a->n_cols > 0);
    const int64_t fit = (int64_t)(q->shared_bytes / sizeof(float));
    struct norm_job j = {.a = a, .scratch = (float *)(void *)q->shared};
    for (; j.row0 < a->n_rows; j.row0 += j.n_rows) {
        j.n_rows = a->n_rows - j.row0 < fit ? a->n_rows - j.row0 : fit;
        qr_queue_run_rows(q, norm_rows, &j, j.n_rows, 4 * (int64_t)a->n_cols);
        qr_queue_run(q, norm_dw_item, &j, (a->n_cols + COLS - 1) / COLS);
    }
}

static void head_norm_rows(const void *arg, int64_t first, int64_t end)
{
    const struct norm_job *j = arg;
    const struct qr_head_norm_back_args *a = j->a;
    for (int64_t i = first, n = j->row0 + first; i < end; i++, n++)
        for (int64_t h = 0; h < a->n_heads; h++) {
            const int64_t at = h * a->head_dim;
            j->scratch[i * a->n_heads + h] = norm_row_back(a->dx + n * a->dx_stride + at, a->dy + n * a->dy_stride + at,
                                                           a->x + n * a->x_stride + at, a->w, a->head_dim, a->eps);
        }
}

static void head_norm_dw_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct norm_job *j = arg;
    const struct qr_head_norm_back_args *a = j->a;
    const int64_t i = (int64_t)item * VF_LEN, len = vf_min_len(a->head_dim - i);
    vf sum = vf_load_n(a->dw + i, len);
    for (int64_t n = 0; n < j->n_rows; n++)
        for (int64_t h = 0; h < a->n_heads; h++) {
            const int64_t at = h * a->head_dim + i;
            const float *dy = a->dy + (j->row0 + n) * a->dy_stride + at, *x = a->x + (j->row0 + n) * a->x_stride + at;
            sum = vf_fma(vf_mul(vf_load_n(dy, len), vf_load_n(x, len)), vf_set1(j->scratch[n * a->n_heads + h]), sum);
        }
    vf_store_n(a->dw + i, sum, len);
}

void QR_ISA_NAME(head_norm_back)(struct qr_queue *q, const struct qr_head_norm_back_args *a)
{
    QR_ASSERT(a != NULL && a->dx != NULL && a->dw != NULL && a->dy != NULL && a->x != NULL && a->w != NULL);
    QR_ASSERT(a->head_dim > 0 && a->n_heads > 0);
    const int64_t fit = (int64_t)(q->shared_bytes / sizeof(float)) / a->n_heads;
    struct norm_job j = {.a = a, .scratch = (float *)(void *)q->shared};
    QR_ASSERT(fit >= 1);
    for (; j.row0 < a->n_rows; j.row0 += j.n_rows) {
        j.n_rows = a->n_rows - j.row0 < fit ? a->n_rows - j.row0 : fit;
        qr_queue_run_rows(q, head_norm_rows, &j, j.n_rows, 4 * (int64_t)a->n_heads * a->head_dim);
        qr_queue_run(q, head_norm_dw_item, &j, (a->head_dim + VF_LEN - 1) / VF_LEN);
    }
}

/* ---- rope, glu ---- */

static void rope_rows(const void *arg, int64_t first, int64_t end)
{
    const struct qr_rope_args *a = arg;
    const int32_t half = a->n_rot / 2;
    for (int64_t n = first; n < end; n++) {
        const float *c = a->cos_sin + n * a->n_rot, *s = c + half;
        for (int32_t h = 0; h < a->n_heads; h++) {
            float *x = a->x + n * a->stride + (int64_t)h * a->head_dim;
            for (int32_t i = 0; i < half; i += VF_LEN) {
                const int64_t len = vf_min_len(half - i);
                vf x0 = vf_load_n(x + i, len), x1 = vf_load_n(x + half + i, len), cv = vf_load_n(c + i, len), sv = vf_load_n(s + i, len);
                vf_store_n(x + i, vf_fma(x1, sv, vf_mul(x0, cv)), len);
                vf_store_n(x + half + i, vf_fnma(x0, sv, vf_mul(x1, cv)), len);
            }
        }
    }
}

void QR_ISA_NAME(rope_back)(struct qr_queue *q, const struct qr_rope_args *a)
{
    QR_ASSERT(a != NULL && a->x != NULL && a->cos_sin != NULL);
    QR_ASSERT(a->n_rot > 0 && a->n_rot % 2 == 0 && a->n_rot <= a->head_dim);
    qr_queue_run_rows(q, rope_rows, a, a->n_rows, 2 * (int64_t)a->n_heads * a->n_rot);
}

/* act(x), and its derivative in *slope. */
VF_FN vf act_and_slope(vf x, enum qr_act act, vf *slope)
{
    const vf one = vf_set1(1.0f), half = vf_set1(0.5f);
    if (act == QR_ACT_SILU) {
        vf sigmoid = vf_div(one, vf_add(one, vf_exp(vf_sub(vf_zero(), x)))), y = vf_mul(x, sigmoid);
        *slope = vf_fma(y, vf_sub(one, sigmoid), sigmoid);
        return y;
    }
    vf square = vf_mul(x, x), inner = vf_mul(vf_fma(vf_mul(square, x), vf_set1(0.044715f), x), vf_set1(0.79788456080286535588f));
    vf t = vf_tanh(inner), rise = vf_fma(square, vf_set1((float)(3 * 0.044715 * 0.79788456080286535588)), vf_set1(0.79788456080286535588f));
    *slope = vf_mul(half, vf_fma(vf_mul(x, rise), vf_fnma(t, t, one), vf_add(one, t)));
    return vf_mul(vf_mul(half, x), vf_add(one, t));
}

static void glu_rows(const void *arg, int64_t first, int64_t end)
{
    const struct qr_glu_back_args *a = arg;
    for (int64_t n = first; n < end; n++) {
        const float *gate = a->gate_up + n * a->gate_up_stride, *up = gate + a->n_cols, *dout = a->dout + n * a->dout_stride;
        float *dgate = a->dgate_up + n * a->dgate_up_stride, *dup = dgate + a->n_cols;
        for (int64_t i = 0; i < a->n_cols; i += VF_LEN) {
            const int64_t len = vf_min_len(a->n_cols - i);
            vf slope, d = vf_load_n(dout + i, len), y = act_and_slope(vf_load_n(gate + i, len), a->act, &slope);
            vf_store_n(dgate + i, vf_fma(vf_mul(d, vf_load_n(up + i, len)), slope, a->fresh ? vf_zero() : vf_load_n(dgate + i, len)), len);
            vf_store_n(dup + i, vf_fma(d, y, a->fresh ? vf_zero() : vf_load_n(dup + i, len)), len);
        }
    }
}

void QR_ISA_NAME(glu_back)(struct qr_queue *q, const struct qr_glu_back_args *a)
{
    QR_ASSERT(a != NULL && a->dgate_up != NULL && a->gate_up != NULL && a->dout != NULL);
    QR_ASSERT(a->act == QR_ACT_SILU || a->act == QR_ACT_GELU_TANH);
    qr_queue_run_rows(q, glu_rows, a, a->n_rows, 8 * (int64_t)a->n_cols);
}

/* ---- rows added to rows: by columns, so that a row that is met twice is added to in order ---- */

static void embed_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct qr_embed_back_args *a = arg;
    const int64_t first = (int64_t)item * COLS, end = first + COLS < a->n_cols ? first + COLS : a->n_cols;
    const vf scale = vf_set1(a->scale);
    for (int64_t n = 0; n < a->n_rows; n++) {
        QR_ASSERT(a->ids[n] >= 0 && a->ids[n] < a->n_vocab);
        float *row = a->dtable + (int64_t)a->ids[n] * a->n_cols;
        for (int64_t i = first; i < end; i += VF_LEN) {
            const int64_t len = vf_min_len(end - i);
            vf_store_n(row + i, vf_fma(scale, vf_load_n(a->dout + n * a->dout_stride + i, len), vf_load_n(row + i, len)), len);
        }
    }
}

void QR_ISA_NAME(embed_back)(struct qr_queue *q, const struct qr_embed_back_args *a)
{
    QR_ASSERT(a != NULL && a->dtable != NULL);
    QR_ASSERT(a->n_rows == 0 || (a->ids != NULL && a->dout != NULL));
    qr_queue_run(q, embed_item, a, (a->n_cols + COLS - 1) / COLS);
}

static void scatter_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct qr_scatter_args *a = arg;
    const int64_t first = (int64_t)item * COLS, end = first + COLS < a->n_cols ? first + COLS : a->n_cols;
    for (int64_t n = 0; n < a->n_rows; n++)
        row_add(a->dx + a->row[n] * a->dx_stride + first, a->dout + n * a->dout_stride + first, end - first);
}

void QR_ISA_NAME(scatter_rows)(struct qr_queue *q, const struct qr_scatter_args *a)
{
    QR_ASSERT(a != NULL && a->dx != NULL);
    QR_ASSERT(a->n_rows == 0 || (a->row != NULL && a->dout != NULL));
    qr_queue_run(q, scatter_item, a, (a->n_cols + COLS - 1) / COLS);
}

/* ---- loss ---- */

static void loss_row(float *row, double *loss, int32_t target, int64_t n, float scale)
{
    vf most = vf_set1(-INFINITY), sums = vf_zero();
    for (int64_t i = 0; i < n; i += VF_LEN) {
        const int64_t len = vf_min_len(n - i);
        vf v = vf_load_n(row + i, len);
        most = vf_max(len == VF_LEN ? v : vf_pick_range(0, len, v, most), most);
    }
    const float top = vf_max_all(most), wanted = target < 0 ? 0 : row[target];
    for (int64_t i = 0; i < n; i += VF_LEN) {
        const int64_t len = vf_min_len(n - i);
        vf e = vf_exp(vf_sub(vf_load_n(row + i, len), vf_set1(top)));
        sums = vf_add(sums, vf_keep_n(e, len));
        vf_store_n(row + i, e, len);
    }
    const float sum = vf_sum(sums);
    const vf share = vf_set1(target < 0 ? 0 : scale / sum);
    *loss = target < 0 ? 0 : log((double)sum) + (double)top - (double)wanted;
    for (int64_t i = 0; i < n; i += VF_LEN)
        vf_store_n(row + i, vf_mul(vf_load_n(row + i, vf_min_len(n - i)), share), vf_min_len(n - i));
    if (target >= 0)
        row[target] -= scale;
}

static void loss_rows(const void *arg, int64_t first, int64_t end)
{
    const struct qr_cross_entropy_args *a = arg;
    for (int64_t n = first; n < end; n++) {
        QR_ASSERT(a->target[n] < a->n_cols);
        loss_row(a->logits + n * a->stride, &a->loss[n], a->target[n], a->n_cols, a->scale);
    }
}

void QR_ISA_NAME(cross_entropy)(struct qr_queue *q, const struct qr_cross_entropy_args *a)
{
    QR_ASSERT(a != NULL && a->logits != NULL && a->loss != NULL && a->target != NULL);
    QR_ASSERT(a->n_cols > 0);
    qr_queue_run_rows(q, loss_rows, a, a->n_rows, 6 * (int64_t)a->n_cols);
}
