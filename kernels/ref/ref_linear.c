#include "kernels/ref/ref.h"

#include "base/assert.h"
#include "kernels/quant.h"

/* Element i of a row x whose rms is `rms`, as the product meets it. */
static real QR_REF(linear_x)(const struct qr_linear_args *a, const real *x, real rms, int32_t i)
{
    return a->norm_w ? x[i] / rms * (real)((const param *)a->norm_w)[i] : x[i];
}

static real QR_REF(linear_rms)(const struct qr_linear_args *a, const real *x)
{
    return a->norm_w ? qr_ref_rms(x, a->n_in, a->eps) : 1;
}

/* Where the sum y of output o goes. Gates come first, each up finds its own at hand. */
static void QR_REF(linear_put)(const struct qr_linear_args *a, real *out, int32_t o, real y)
{
    const int32_t n_gates = a->n_out / 2;
    if (a->bias)
        y += (real)((const param *)a->bias)[o];
    if (!a->glu)
        out[o] = a->add ? y + out[o] : y;
    else if (o < n_gates)
        out[o] = qr_ref_act(y, a->act);
    else
        out[o - n_gates] *= y;
}

/* Quantized weights lie row-major here: n_out scales, then 16 bits for each weight, times its multiple. */
static const int16_t *QR_REF(quant_row)(const struct qr_linear_args *a, int32_t o)
{
    return (const int16_t *)((const float *)a->w->packed + a->n_out) + (int64_t)o * a->n_in;
}

static float QR_REF(quant_row_scale)(float *inverse, const struct qr_linear_args *a, const real *x, real rms)
{
    uint32_t most = 0;
    for (int32_t i = 0; i < a->n_in; i++)
        most = qr_quant_max_bits(most, &(float){(float)QR_REF(linear_x)(a, x, rms, i)}, 1);
    return qr_quant_scale(inverse, most, QR_Q8_LARGEST);
}

static void QR_REF(linear_quant)(const struct qr_linear_args *a)
{
    for (int32_t n = 0; n < a->n_rows; n++) {
        const real *x = (const real *)a->x + n * a->x_stride;
        real *out = (real *)a->out + n * a->out_stride;
        const real rms = QR_REF(linear_rms)(a, x);
        float inverse, scale = QR_REF(quant_row_scale)(&inverse, a, x, rms);
        for (int32_t o = 0; o < a->n_out; o++) {
            const int16_t *w = QR_REF(quant_row)(a, o);
            int64_t sum = 0;
            for (int32_t i = 0; i < a->n_in; i++) {
                int8_t q;
                qr_quant_int8(&q, &(float){(float)QR_REF(linear_x)(a, x, rms, i)}, 1, inverse);
                sum += q * w[i];
            }
            QR_REF(linear_put)(a, out, o, (real)sum * (real)(scale * ((const float *)a->w->packed)[o]));
        }
    }
}

static void QR_REF(linear_weight_only)(const struct qr_linear_args *a)
{
    for (int32_t n = 0; n < a->n_rows; n++) {
        const real *x = (const real *)a->x + n * a->x_stride;
        real *out = (real *)a->out + n * a->out_stride;
        const real rms = QR_REF(linear_rms)(a, x);
        for (int32_t o = 0; o < a->n_out; o++) {
            const int16_t *w = QR_REF(quant_row)(a, o);
            real sum = 0;
            for (int32_t i = 0; i < a->n_in; i++)
                sum += qr_ref_meet(QR_REF(linear_x)(a, x, rms, i), QR_BF16) * (real)w[i];
            QR_REF(linear_put)(a, out, o, sum * (real)((const float *)a->w->packed)[o]);
        }
    }
}

void QR_REF(linear)(struct qr_queue *q, const struct qr_linear_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->w != NULL && a->w->packed != NULL);
    QR_ASSERT(qr_dtype_packs(a->w->packed_dtype) || a->w->packed_dtype == QR_F64);
    QR_ASSERT(!a->glu || (!a->add && a->n_out % 2 == 0));
    if (qr_dtype_is_quantized(a->w->packed_dtype)) {
        if (qr_dtype_format(a->w->packed_dtype).weight_only)
            QR_REF(linear_weight_only)(a);
        else
            QR_REF(linear_quant)(a);
        return;
    }
    for (int32_t n = 0; n < a->n_rows; n++) {
        const real *x = (const real *)a->x + n * a->x_stride;
        real *out = (real *)a->out + n * a->out_stride;
        const real rms = QR_REF(linear_rms)(a, x);
        for (int32_t o = 0; o < a->n_out; o++) {
            real sum = 0;
            for (int32_t i = 0; i < a->n_in; i++)
                sum += qr_ref_meet(QR_REF(linear_x)(a, x, rms, i), a->w->packed_dtype) *
                       (real)qr_ref_load(a->w->packed, a->w->packed_dtype, (size_t)o * (size_t)a->n_in + (size_t)i);
            QR_REF(linear_put)(a, out, o, sum);
        }
    }
}

/* Packed is row-major here: nothing is to be gained by order. */
size_t QR_REF(linear_packed_bytes)(enum qr_dtype to, int64_t n_out, int64_t n_in)
{
    QR_ASSERT(qr_dtype_packs(to) || to == QR_F64);
    QR_ASSERT(n_out >= 0 && n_in >= 0);
    if (qr_dtype_is_quantized(to))
        return (size_t)n_out * ((size_t)n_in * sizeof(int16_t) + sizeof(float));
    return (size_t)n_out * (size_t)n_in * qr_dtype_bytes(to);
}

static void QR_REF(pack_quant_row)(int16_t *dst, float *scale, enum qr_dtype to, int64_t n_in, const void *row, enum qr_dtype from)
{
    const struct qr_quant_format f = qr_dtype_format(to);
    const int64_t group = f.group ? f.group : QR_QUANT_GROUP;
    float x[QR_QUANT_GROUP_MAX], inverse;
    *scale = qr_quant_scale(&inverse, qr_quant_row_max(row, from, n_in), qr_quant_largest(f));
    for (int64_t i = 0; i < n_in; i += group) {
        int64_t n = n_in - i < group ? n_in - i : group;
        int8_t q[QR_QUANT_GROUP_MAX];
        int32_t m = 1;
        qr_quant_load(x, group, row, from, i, n);
        if (f.group)
            m = qr_quant_group(q, x, f, inverse);
        else
            qr_quant_int8(q, x, n, inverse);
        for (int64_t j = 0; j < n; j++)
            dst[i + j] = (int16_t)(q[j] * m);
    }
}

void QR_REF(linear_pack)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0,
                         const void *rows, enum qr_dtype from, int64_t n_rows)
{
    (void)q;
    QR_ASSERT(dst != NULL && rows != NULL);
    QR_ASSERT(row0 >= 0 && n_rows >= 0 && row0 + n_rows <= n_out);
    for (int64_t o = 0; qr_dtype_is_quantized(to) && o < n_rows; o++)
        QR_REF(pack_quant_row)((int16_t *)((float *)dst + n_out) + (row0 + o) * n_in, (float *)dst + row0 + o, to, n_in,
                               (const char *)rows + (size_t)(o * n_in) * qr_dtype_bytes(from), from);
    for (int64_t i = 0; !qr_dtype_is_quantized(to) && i < n_rows * n_in; i++)
        qr_ref_store(dst, to, (size_t)(row0 * n_in + i), qr_ref_load(rows, from, (size_t)i));
}
