/* ref_back_linear.c - the plain form of a product's gradients (backward.h, ref.h). */
#include "base/assert.h"
#include "kernels/ref/ref.h"

void QR_REF(linear_dx)(struct qr_queue *q, const struct qr_linear_dx_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->dx != NULL && a->dy != NULL);
    QR_ASSERT(a->w != NULL && a->w->t.data != NULL);
    const struct qr_tensor *w = &a->w->t;
    for (int32_t n = 0; n < a->n_rows; n++) {
        const real *dy = (const real *)a->dy + n * a->dy_stride;
        for (int32_t i = 0; i < a->n_in; i++) {
            real *dx = (real *)a->dx + n * a->dx_stride + i;
            *dx = a->fresh ? 0 : *dx;
            for (int32_t o = 0; o < a->n_out; o++)
                *dx += qr_ref_meet(dy[o], w->dtype) * (real)qr_ref_load(w->data, w->dtype, (size_t)o * (size_t)a->n_in + (size_t)i);
        }
    }
}

void QR_REF(linear_dw)(struct qr_queue *q, const struct qr_linear_dw_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->dw != NULL);
    QR_ASSERT(a->dy != NULL && a->x != NULL);
    for (int64_t i = 0; a->fresh && i < (int64_t)a->n_out * a->n_in; i++)
        ((param *)a->dw)[i] = 0;
    for (int32_t n = 0; n < a->n_rows; n++) {
        const real *dy = (const real *)a->dy + n * a->dy_stride, *x = (const real *)a->x + n * a->x_stride;
        for (int32_t o = 0; o < a->n_out; o++) {
            const real d = qr_ref_meet(dy[o], a->product);
            param *dw = (param *)a->dw + (int64_t)o * a->n_in;
            for (int32_t i = 0; i < a->n_in; i++)
                dw[i] += (param)(d * qr_ref_meet(x[i], a->product));
            if (a->dbias)
                ((param *)a->dbias)[o] += (param)dy[o];
        }
    }
}
