/* ref_back_rows.c - the plain form of the gradients of norms and of all else that works on rows (backward.h, ref.h). */
#include <math.h>

#include "base/assert.h"
#include "kernels/ref/ref.h"

/* Adds one row's gradients of the norm to dx and dw. */
static void norm_row_back(real *dx, param *dw, const real *dy, const real *x, const param *w, int32_t n, float eps)
{
    real sum = 0, dot = 0;
    for (int32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    const real r = 1 / (real)sqrt((double)(sum / (real)n + (real)eps));
    for (int32_t i = 0; i < n; i++)
        dot += (real)w[i] * dy[i] * x[i];
    const real pull = r * r * (dot / (real)n);
    for (int32_t i = 0; i < n; i++) {
        dx[i] += r * ((real)w[i] * dy[i] - x[i] * pull);
        dw[i] += (param)(dy[i] * x[i] * r);
    }
}

void QR_REF(rms_norm_back)(struct qr_queue *q, const struct qr_norm_back_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->dx != NULL && a->dw != NULL);
    QR_ASSERT(a->n_cols > 0);
    for (int32_t n = 0; n < a->n_rows; n++) {
        real *dx = (real *)a->dx + n * a->dx_stride;
        norm_row_back(dx, (param *)a->dw, (const real *)a->dy + n * a->dy_stride, (const real *)a->x + n * a->x_stride,
                      (const param *)a->w, a->n_cols, a->eps);
    }
}

void QR_REF(head_norm_back)(struct qr_queue *q, const struct qr_head_norm_back_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->dx != NULL && a->dw != NULL);
    QR_ASSERT(a->head_dim > 0);
    for (int32_t n = 0; n < a->n_rows; n++)
        for (int32_t h = 0; h < a->n_heads; h++) {
            int64_t at = (int64_t)h * a->head_dim;
            norm_row_back((real *)a->dx + n * a->dx_stride + at, (param *)a->dw, (const real *)a->dy + n * a->dy_stride + at,
                          (const real *)a->x + n * a->x_stride + at, (const param *)a->w, a->head_dim, a->eps);
        }
}

/* act(x) and its derivative. */
static void act_and_slope(real *y, real *slope, real x, enum qr_act kind)
{
    if (kind == QR_ACT_SILU) {
        real sigmoid = 1 / (1 + (real)exp(-(double)x));
        *y = x / (1 + (real)exp(-(double)x));
        *slope = sigmoid * (1 + x * (1 - sigmoid));
        return;
    }
    const double sqrt_2_over_pi = 0.79788456080286535588, v = (double)x;
    double t = tanh(sqrt_2_over_pi * (v + 0.044715 * v * v * v));
    *y = (real)(0.5 * v * (1 + t));
    *slope = (real)(0.5 * (1 + t) + 0.5 * v * (1 - t * t) * sqrt_2_over_pi * (1 + 3 * 0.044715 * v * v));
}

void QR_REF(glu_back)(struct qr_queue *q, const struct qr_glu_back_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->dgate_up != NULL && a->gate_up != NULL);
    QR_ASSERT(a->act == QR_ACT_SILU || a->act == QR_ACT_GELU_TANH);
    for (int32_t n = 0; n < a->n_rows; n++) {
        const real *gate = (const real *)a->gate_up + n * a->gate_up_stride, *up = gate + a->n_cols;
        const real *dout = (const real *)a->dout + n * a->dout_stride;
        real *dgate = (real *)a->dgate_up + n * a->dgate_up_stride, *dup = dgate + a->n_cols;
        for (int32_t f = 0; f < a->n_cols; f++) {
            real y, slope;
            act_and_slope(&y, &slope, gate[f], a->act);
            dgate[f] = (a->fresh ? 0 : dgate[f]) + dout[f] * up[f] * slope;
            dup[f] = (a->fresh ? 0 : dup[f]) + dout[f] * y;
        }
    }
}

void QR_REF(embed_back)(struct qr_queue *q, const struct qr_embed_back_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->dtable != NULL);
    QR_ASSERT(a->ids != NULL || a->n_rows == 0);
    for (int32_t n = 0; n < a->n_rows; n++) {
        QR_ASSERT(a->ids[n] >= 0 && a->ids[n] < a->n_vocab);
        param *row = (param *)a->dtable + (int64_t)a->ids[n] * a->n_cols;
        for (int32_t i = 0; i < a->n_cols; i++)
            row[i] += (param)((real)a->scale * ((const real *)a->dout)[n * a->dout_stride + i]);
    }
}

void QR_REF(scatter_rows)(struct qr_queue *q, const struct qr_scatter_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->dx != NULL);
    QR_ASSERT(a->row != NULL || a->n_rows == 0);
    for (int32_t n = 0; n < a->n_rows; n++)
        for (int32_t i = 0; i < a->n_cols; i++)
            ((real *)a->dx)[a->row[n] * a->dx_stride + i] += ((const real *)a->dout)[n * a->dout_stride + i];
}

void QR_REF(cross_entropy)(struct qr_queue *q, const struct qr_cross_entropy_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->logits != NULL && a->loss != NULL);
    QR_ASSERT(a->n_cols > 0 && a->target != NULL);
    for (int32_t n = 0; n < a->n_rows; n++) {
        real *row = (real *)a->logits + n * a->stride, most = row[0], sum = 0;
        const int32_t target = a->target[n];
        QR_ASSERT(target < a->n_cols);
        for (int32_t v = 0; v < a->n_cols; v++)
            most = row[v] > most ? row[v] : most;
        const double wanted = target < 0 ? 0 : (double)row[target];
        for (int32_t v = 0; v < a->n_cols; v++) {
            row[v] = (real)exp((double)(row[v] - most));
            sum += row[v];
        }
        a->loss[n] = target < 0 ? 0 : log((double)sum) + (double)most - wanted;
        for (int32_t v = 0; v < a->n_cols; v++)
            row[v] = target < 0 ? 0 : (real)a->scale * (row[v] / sum - (real)(v == target));
    }
}
