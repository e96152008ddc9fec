/* ref_linear.c - the plain form of products: packing, linear with all that stands beside it, rows read back. Weights of
 * any type are unpacked a row at a time and multiplied in order of inputs. These loops are the oracle of every other
 * implementation, in f32, and in double for the bounds of the tests (ref.h). Pure; on the caller's thread. */
#include "kernels/ref/ref.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "kernels/code_numbers.h"
#include "kernels/coded.h"
#include "kernels/f8.h"

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
        out[o] = y;
    else
        out[o - n_gates] = qr_ref_glu(out[o - n_gates], y, a->act, &a->clamp);
}

/* Quantized weights lie row-major here: n_out scales, then 16 bits for each weight, times its multiple; of fp8 its code. */
static const int16_t *QR_REF(quant_row)(const struct qr_linear_args *a, int32_t o)
{
    return (const int16_t *)((const float *)a->w->packed + a->n_out) + (int64_t)o * a->n_in;
}

static float QR_REF(quant_row_scale)(float *inverse, const struct qr_linear_args *a, const real *x, real rms, float largest)
{
    uint32_t most = 0;
    for (int32_t i = 0; i < a->n_in; i++)
        most = qr_quant_max_bits(most, &(float){(float)QR_REF(linear_x)(a, x, rms, i)}, 1);
    return qr_quant_scale(inverse, most, largest);
}

/* What a row's element is does not depend on the output: it is worked out once for so many outputs, in pieces of so many elements. Every sum still
 * goes from the first element to the last. */
#define LINEAR_OUTS 64
#define LINEAR_PIECE 256

struct QR_REF(linear_block) {
    const struct qr_linear_args *a;
    const real *x;
    real rms;
    float inverse;             /* of the row's scale, where it becomes integers */
    int32_t first, n;          /* outputs, at most LINEAR_OUTS */
};

/* Products with integers, in any order the same. */
static void QR_REF(linear_integers)(int64_t sum[LINEAR_OUTS], const struct QR_REF(linear_block) *b)
{
    const int32_t n_in = b->a->n_in;
    memset(sum, 0, sizeof *sum * LINEAR_OUTS);
    for (int32_t i0 = 0; i0 < n_in; i0 += LINEAR_PIECE) {
        const int32_t n = n_in - i0 < LINEAR_PIECE ? n_in - i0 : LINEAR_PIECE;
        float met[LINEAR_PIECE];
        int8_t q[LINEAR_PIECE];
        for (int32_t i = 0; i < n; i++)
            met[i] = (float)QR_REF(linear_x)(b->a, b->x, b->rms, i0 + i);
        qr_quant_int8(q, met, n, b->inverse);
        for (int32_t o = 0; o < b->n; o++) {
            const int16_t *w = QR_REF(quant_row)(b->a, b->first + o) + i0;
            int64_t more = 0;
            for (int32_t i = 0; i < n; i++)
                more += q[i] * w[i];
            sum[o] += more;
        }
    }
}

/* Products of E4M3 numbers. */
static void QR_REF(linear_f8)(real sum[LINEAR_OUTS], const struct QR_REF(linear_block) *b)
{
    const int32_t n_in = b->a->n_in;
    const uint8_t *codes = (const uint8_t *)((const float *)b->a->w->packed + b->a->n_out);
    for (int32_t o = 0; o < LINEAR_OUTS; o++)
        sum[o] = 0;
    for (int32_t i = 0; i < n_in; i++) {
        const float x = (float)QR_REF(linear_x)(b->a, b->x, b->rms, i);
        uint8_t code;
        qr_f8_codes(&code, &x, 1, b->inverse);
        for (int32_t o = 0; o < b->n; o++)
            sum[o] += (real)qr_e4m3_to_f32(code) * (real)qr_e4m3_to_f32(codes[(int64_t)(b->first + o) * n_in + i]);
    }
}

/* n elements of output o's weights, from i0 on. */
static void QR_REF(linear_weights)(real *w, const struct QR_REF(linear_block) *b, int32_t o, int32_t i0, int32_t n)
{
    qr_ref_load_row(w, b->a->w->packed, qr_ref_packed(b->a->w->packed_dtype), (size_t)(b->first + o) * (size_t)b->a->n_in + (size_t)i0, n);
}

/* Products with numbers. Four outputs side by side: the sum of one would wait for itself at each element. */
static void QR_REF(linear_numbers)(real sum[LINEAR_OUTS], const struct QR_REF(linear_block) *b)
{
    const int32_t n_in = b->a->n_in;
    const enum qr_dtype type = qr_ref_packed(b->a->w->packed_dtype);
    QR_UNINITIALIZED real met[LINEAR_PIECE], w[4][LINEAR_PIECE];
    for (int32_t o = 0; o < LINEAR_OUTS; o++)
        sum[o] = 0;
    for (int32_t i0 = 0; i0 < n_in; i0 += LINEAR_PIECE) {
        const int32_t n = n_in - i0 < LINEAR_PIECE ? n_in - i0 : LINEAR_PIECE;
        for (int32_t i = 0; i < n; i++)
            met[i] = qr_ref_meet(QR_REF(linear_x)(b->a, b->x, b->rms, i0 + i), type);
        for (int32_t o = 0; o < b->n; o += 4) {
            const int32_t more = b->n - o < 4 ? b->n - o : 4;
            for (int32_t k = 0; k < 4; k++)
                QR_REF(linear_weights)(w[k], b, o + (k < more ? k : 0), i0, n);
            real y[4] = {sum[o], sum[o + 1], sum[o + 2], sum[o + 3]};
            for (int32_t i = 0; i < n; i++) {
#pragma GCC unroll 4
                for (int32_t k = 0; k < 4; k++)
                    y[k] += met[i] * w[k][i];
            }
            for (int32_t k = 0; k < more; k++)
                sum[o + k] = y[k];
        }
    }
}

static void QR_REF(linear_row)(const struct qr_linear_args *a, real *out, const real *x)
{
    const enum qr_dtype type = a->w->packed_dtype;
    const bool f8 = type == QR_F8, integers = qr_dtype_is_quantized(type);
    struct QR_REF(linear_block) b = {.a = a, .x = x, .rms = QR_REF(linear_rms)(a, x)};
    const float scale = integers || f8 ? QR_REF(quant_row_scale)(&b.inverse, a, x, b.rms, f8 ? QR_E4M3_MAX : QR_Q8_LARGEST) : 1;
    real number[LINEAR_OUTS];
    int64_t integer[LINEAR_OUTS];
    for (; b.first < a->n_out; b.first += LINEAR_OUTS) {
        b.n = a->n_out - b.first < LINEAR_OUTS ? a->n_out - b.first : LINEAR_OUTS;
        if (integers)
            QR_REF(linear_integers)(integer, &b);
        else if (f8)
            QR_REF(linear_f8)(number, &b);
        else
            QR_REF(linear_numbers)(number, &b);
        for (int32_t o = 0; o < b.n; o++) {
            real y = integers ? (real)integer[o] : number[o];
            if (integers || f8)
                y *= (real)(scale * ((const float *)a->w->packed)[b.first + o]);
            QR_REF(linear_put)(a, out, b.first + o, y);
        }
    }
}

/* What is asked of n outputs of row `row`. */
static void QR_REF(stretch)(const struct qr_stretches *s, int64_t row, int64_t stretch, const real *out, int32_t n)
{
    real most = -INFINITY, sum = 0;
    for (int32_t o = 0; o < n; o++)
        most = out[o] > most ? out[o] : most;
    ((real *)s->largest)[row * s->stride + stretch] = most;
    if (!s->sum || !(s->scale[row] > 0))
        return;
    for (int32_t o = 0; o < n; o++) {
        const double p = exp((double)s->scale[row] * (double)(out[o] - most));
        sum += isnan(p) ? 0 : (real)p;
    }
    ((real *)s->sum)[row * s->stride + stretch] = sum;
}

void QR_REF(stretches)(const struct qr_stretches *s, int64_t row, const real *out, int32_t n_out)
{
    QR_ASSERT(s != NULL && s->largest != NULL);
    QR_ASSERT(out != NULL && row >= 0);
    for (int32_t o = 0; o < n_out; o += QR_LINEAR_STRETCH)
        QR_REF(stretch)(s, row, o / QR_LINEAR_STRETCH, out + o, n_out - o < QR_LINEAR_STRETCH ? n_out - o : QR_LINEAR_STRETCH);
}

void QR_REF(linear)(struct qr_queue *q, const struct qr_linear_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->w != NULL && a->w->packed != NULL);
    QR_ASSERT(qr_dtype_multiplies(a->w->packed_dtype) || a->w->packed_dtype == QR_F64);
    QR_ASSERT(!a->glu || (!a->add && a->n_out % 2 == 0));
    QR_ASSERT(!a->stretches || (!a->add && !a->glu));
    for (int32_t n = 0; n < a->n_rows; n++) {
        real *out = (real *)a->out + n * a->out_stride;
        QR_REF(linear_row)(a, out, (const real *)a->x + n * a->x_stride);
        if (a->stretches)
            QR_REF(stretches)(a->stretches, n, out, a->n_out);
    }
}

/* Packed is row-major here: nothing is to be gained by order. */
size_t QR_REF(linear_packed_bytes)(enum qr_dtype to, int64_t n_out, int64_t n_in)
{
    QR_ASSERT(qr_dtype_multiplies(to) || to == QR_F64);
    QR_ASSERT(n_out >= 0 && n_in >= 0);
    if (to == QR_F8)
        return (size_t)n_out * ((size_t)n_in + sizeof(float));
    if (qr_dtype_is_quantized(to))
        return (size_t)n_out * ((size_t)n_in * sizeof(int16_t) + sizeof(float));
    return (size_t)n_out * (size_t)n_in * qr_dtype_bytes(qr_ref_packed(to));
}

void QR_REF(linear_pack)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0,
                         const void *rows, enum qr_dtype from, int64_t n_rows)
{
    (void)q;
    QR_ASSERT(dst != NULL && rows != NULL);
    QR_ASSERT(row0 >= 0 && n_rows >= 0 && row0 + n_rows <= n_out);
    if (qr_dtype_is_coded(to)) {
        const struct qr_numbers numbers = {rows, from, to, n_in};
        const struct qr_coded_source source = qr_numbers_source(&numbers);
        QR_REF(linear_pack_coded)(q, dst, to, n_out, n_in, row0, &source, n_rows);
        return;
    }
    for (int64_t o = 0; to == QR_F8 && o < n_rows; o++)
        ((float *)dst)[row0 + o] = qr_f8_row((uint8_t *)((float *)dst + n_out) + (row0 + o) * n_in,
                                             (const char *)rows + (size_t)(o * n_in) * qr_dtype_bytes(from), from, n_in);
    if (to == QR_F8)
        return;
    for (int64_t o = 0; qr_dtype_is_quantized(to) && o < n_rows; o++)
        ((float *)dst)[row0 + o] = qr_quant_row((int16_t *)((float *)dst + n_out) + (row0 + o) * n_in, to, n_in,
                                                (const char *)rows + (size_t)(o * n_in) * qr_dtype_bytes(from), from);
    for (int64_t i = 0; !qr_dtype_is_quantized(to) && i < n_rows * n_in; i++)
        qr_ref_store(dst, to, (size_t)(row0 * n_in + i), qr_ref_load(rows, from, (size_t)i));
}

/* Coded weights become the bf16 numbers that they stand for. */
void QR_REF(linear_pack_coded)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const struct qr_coded_source *rows,
                               int64_t n_rows)
{
    (void)q;
    QR_ASSERT(dst != NULL && rows != NULL && qr_dtype_is_coded(to));
    QR_ASSERT(row0 >= 0 && n_rows >= 0 && row0 + n_rows <= n_out && n_in > 0 && n_in <= QR_QUANT_INPUTS_MAX_WIDE);
    const struct qr_coded_format f = qr_dtype_coded(to);
    int32_t memory[(QR_QUANT_INPUTS_MAX_WIDE + QR_QUANT_INPUTS_MAX_WIDE / 16 * 2 + QR_QUANT_INPUTS_MAX_WIDE / 32 * 8) / 4 + 16];
    QR_ASSERT(qr_coded_rows_bytes(f, n_in, 1) <= (int64_t)sizeof memory);
    const struct qr_coded_rows row = qr_coded_rows_in(memory, f, n_in, 1);
    for (int64_t o = 0; o < n_rows; o++) {
        rows->fill(rows->arg, &row, o, 1);
        const float factor = qr_coded_factor(&row, f, n_in);
        for (int64_t u = 0; f.e4m3 && u < qr_coded_n_units(f, n_in); u++)
            row.scale[u] = qr_coded_e4m3_kept(&row, f, n_in, u);
        for (int64_t i = 0; i < n_in; i++)
            ((uint16_t *)dst)[(row0 + o) * n_in + i] = qr_coded_weight(&row, f, factor, i);
    }
}
