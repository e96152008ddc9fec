#include "kernels/ref/ref.h"

#include "base/assert.h"

void QR_REF(linear)(struct qr_queue *q, const struct qr_linear_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->w != NULL && a->w->packed != NULL);
    QR_ASSERT(a->w->packed_dtype == QR_F32 || a->w->packed_dtype == QR_BF16);
    for (int32_t n = 0; n < a->n_rows; n++) {
        const real *x = (const real *)a->x + n * a->x_stride;
        real *out = (real *)a->out + n * a->out_stride;
        for (int32_t o = 0; o < a->n_out; o++) {
            real sum = 0;
            for (int32_t i = 0; i < a->n_in; i++)
                sum += qr_ref_meet(x[i], a->w->packed_dtype) *
                       (real)qr_ref_load(a->w->packed, a->w->packed_dtype, (size_t)o * (size_t)a->n_in + (size_t)i);
            if (a->bias)
                sum += (real)a->bias[o];
            out[o] = a->add ? sum + out[o] : sum;
        }
    }
}

/* Packed is row-major here: nothing is to be gained by order. */
size_t QR_REF(linear_packed_bytes)(enum qr_dtype to, int64_t n_out, int64_t n_in)
{
    QR_ASSERT(to == QR_F32 || to == QR_BF16);
    QR_ASSERT(n_out >= 0 && n_in >= 0);
    return (size_t)n_out * (size_t)n_in * qr_dtype_bytes(to);
}

void QR_REF(linear_pack)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0,
                         const void *rows, enum qr_dtype from, int64_t n_rows)
{
    (void)q;
    QR_ASSERT(dst != NULL && rows != NULL);
    QR_ASSERT(row0 >= 0 && n_rows >= 0 && row0 + n_rows <= n_out);
    for (int64_t i = 0; i < n_rows * n_in; i++)
        qr_ref_store(dst, to, (size_t)(row0 * n_in + i), qr_ref_load(rows, from, (size_t)i));
}
