/* pack.c - rows of weights rounded to 8 or 4 bits into the panels of quant.h, as kernels/quant.h says, to the bit.
 *
 * A panel's 16 rows are rounded at once. Some inputs of them are transposed, so that a vector has one input of as many rows as
 * it has lanes, and each lane does with its row what kernels/quant.h does, in its order. A number's integer is the low bits of
 * the number plus 3 * 2^22, so shifts and sums join a row's integers of several inputs in one lane. A panel is rounded row by
 * row where only some of its rows are given, or where one has only zeros or a number that is not finite. Items are panels;
 * workers share nothing.
 */
#include "base/assert.h"
#include "kernels/cpu/isa/quant/quant.h"
#include "kernels/cpu/isa/quant/vectors.h"
#include "kernels/cpu/pool.h"

struct packing {
    uint8_t *dst;
    const char *rows;
    enum qr_dtype from;
    struct qr_quant_format format;
    int64_t n_in, row0, n_rows, panel_bytes, head_bytes;
};

size_t QR_ISA_NAME(quant_packed_bytes)(enum qr_dtype to, int64_t n_out, int64_t n_in)
{
    QR_ASSERT(qr_dtype_is_quantized(to));
    QR_ASSERT(n_out >= 0 && n_in >= 0);
    return (size_t)((n_out + QR_PANEL - 1) / QR_PANEL) * (size_t)qr_quant_panel_bytes(to, n_in);
}

static void put_8(uint8_t *w, const int8_t *q, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        w[k / 4 * QR_PANEL * 4 + k % 4] = (uint8_t)(q[k] + 128);
}

/* n weights, a multiple of 8. */
static void put_4(uint8_t *w, const int8_t *q, int64_t n)
{
    for (int64_t i = 0; i < n / 8; i++)
        for (int t = 0; t < 4; t++)
            w[i * QR_PANEL * 4 + t] = (uint8_t)((q[8 * i + t] + 8) | (q[8 * i + 4 + t] + 8) << 4);
}

/* Output o (of the panel) from one stored row. */
static void pack_row(const struct packing *p, uint8_t *panel, int64_t o, const char *row)
{
    const struct qr_quant_format f = p->format;
    const int64_t n_k = qr_quant_k(p->n_in);
    float x[QR_QUANT_GROUP], inverse;
    int8_t q[QR_QUANT_GROUP];
    float scale = qr_quant_scale(&inverse, qr_quant_row_max(row, p->from, p->n_in), qr_quant_largest(f));
    memcpy(panel + o * (int64_t)sizeof scale, &scale, sizeof scale);
    uint8_t *multiple = panel + QR_PANEL * sizeof scale + o, *w = panel + p->head_bytes + o * 4;
    for (int64_t k = 0; k < p->n_in; k += QR_QUANT_GROUP) {
        int64_t n = p->n_in - k < QR_QUANT_GROUP ? p->n_in - k : QR_QUANT_GROUP;
        qr_quant_load(x, QR_QUANT_GROUP, row, p->from, k, n);
        if (f.group)
            multiple[k / QR_QUANT_GROUP * QR_PANEL] = (uint8_t)qr_quant_group(q, x, inverse);
        else
            qr_quant_int8(q, x, n, inverse);
        if (f.bits == 4)
            put_4(w + k / 2 * QR_PANEL, q, n_k - k < QR_QUANT_GROUP ? n_k - k : QR_QUANT_GROUP);
        else
            put_8(w + k * QR_PANEL, q, n);
    }
}

/* ---- 16 rows at once ---- */

#define HALVES (QR_PANEL / VF_LEN)
#define INTEGER 0x1.8p23f         /* plus an integer: that is its low bits */
#define INTEGER_BITS 0x4b400000u

/* A panel's rows, `stride` bytes apart. */
struct strip {
    const char *rows;
    int64_t stride;
    enum qr_dtype from;
};

/* The largest magnitude of a row, as bits. Those of 16-bit numbers order like the numbers, too. */
static uint32_t row_max(const void *row, enum qr_dtype from, int64_t n)
{
    enum { NUMBERS = 2 * VF_LEN };
    if (from == QR_F32)
        return qr_quant_row_max(row, from, n);
    const uint16_t *h = row;
    uint16_t lane[NUMBERS], most = 0;
    vi v = VI(set1_epi16)(0);
    int64_t i = 0;
    for (; i + NUMBERS <= n; i += NUMBERS)
        v = VI(max_epu16)(v, VI_AND(VI_LOAD(h + i), VI(set1_epi16)(0x7fff)));
    VI_STORE(lane, v);
    for (int32_t k = 0; k < NUMBERS; k++)
        most = lane[k] > most ? lane[k] : most;
    for (; i < n; i++)
        most = (h[i] & 0x7fff) > most ? h[i] & 0x7fff : most;
    return qr_quant_row_max(&most, from, 1);
}

/* Inputs [k, k + n) of the rows from `row` on times `by`, v[i] those of input k + i. n is a multiple of 32. */
VF_FN void load_columns(vf *v, const struct strip *s, int32_t row, int64_t k, int32_t n, vf by)
{
    const char *x = s->rows + row * s->stride + k * (s->from == QR_F32 ? 4 : 2);
    for (int32_t i = 0; s->from == QR_BF16 && i < n; i += 2 * VF_LEN) {
        QR_UNINITIALIZED vf t[VF_LEN];
        for (int32_t r = 0; r < VF_LEN; r++)
            t[r] = vf_load((const float *)(const void *)(x + r * s->stride + i * 2));
        vf_transpose(t);
        for (int32_t c = 0; c < VF_LEN; c++) {
            v[i + 2 * c] = vf_mul(vf_pairs_first(vf_as_pairs(t[c])), by);
            v[i + 2 * c + 1] = vf_mul(vf_pairs_second(vf_as_pairs(t[c])), by);
        }
    }
    for (int32_t i = 0; s->from != QR_BF16 && i < n; i += VF_LEN) {
        QR_UNINITIALIZED vf t[VF_LEN];
        for (int32_t r = 0; r < VF_LEN; r++)
            t[r] = vf_load_as_n(x + r * s->stride, s->from, (size_t)i, VF_LEN);
        vf_transpose(t);
        for (int32_t c = 0; c < VF_LEN; c++)
            v[i + c] = vf_mul(t[c], by);
    }
}

/* qr_quant_smallest_multiple. The nearest integer to a seventh is that one or the one below, also where the product is off
 * by a few units in its last place: one that is rounded up to an integer is above. */
VF_FN vf smallest_multiple(const vf *v)
{
    vf part[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()}; /* one after the other waits for each */
    for (int32_t i = 0; i < QR_QUANT_GROUP; i += 4)
        for (int32_t j = 0; j < 4; j++)
            part[j] = vf_max(part[j], vf_abs(v[i + j]));
    const vf most = vf_max(vf_max(part[0], part[1]), vf_max(part[2], part[3]));
    const vf m = vf_round(vf_mul(most, vf_set1(1 / 7.0f)));
    const vf enough = vf_pick_less(vf_mul(m, vf_set1(7)), most, vf_add(m, vf_set1(1)), m);
    return vf_min(vf_max(enough, vf_set1(1)), vf_set1(QR_QUANT_MULTIPLE_MAX));
}

/* qr_quant_try's error. With the smallest multiple no integer is out of range. */
VF_FN vf error_of(const vf *v, vf m, const bool limited)
{
    const vf by = vf_div(vf_set1(1), m);
    QR_UNINITIALIZED vf part[8];
    for (int32_t j = 0; j < 8; j++)
        part[j] = vf_zero();
    for (int32_t h = 0; h < QR_QUANT_GROUP; h += 8)
#pragma GCC unroll 8
        for (int32_t j = 0; j < 8; j++) {
            vf k = vf_round(vf_mul(v[h + j], by)); /* -0 in place of 0 makes no difference to a square */
            if (limited)
                k = vf_min(vf_max(k, vf_set1(-8)), vf_set1(7));
            const vf d = vf_fnma(k, m, v[h + j]); /* k m is exact */
            part[j] = vf_add(part[j], vf_mul(d, d));
        }
    return vf_add(vf_add(vf_add(part[0], part[1]), vf_add(part[2], part[3])), vf_add(vf_add(part[4], part[5]), vf_add(part[6], part[7])));
}

/* qr_quant_group's multiple. Where there is none below 1, that one is tried again, which is not better. */
VF_FN vf best_multiple(const vf *v)
{
    const vf first = smallest_multiple(v);
    vf best = first, least = error_of(v, first, false);
    for (int32_t t = 1; t < QR_QUANT_TRIES; t++) {
        const vf m = vf_max(vf_sub(first, vf_set1((float)t)), vf_set1(1)), error = error_of(v, m, true);
        best = vf_pick_less(error, least, m, best);
        least = vf_min(error, least);
    }
    return best;
}

/* Numbers times `by`, from -8 to 7 and less than an integer away from that, as half bytes n + 8: 8 of k a line. */
VF_FN void put_halves(uint8_t *w, const vf *v, vf by)
{
    const vf low = vf_set1(INTEGER), high = vf_set1(INTEGER + 15), zero = vf_set1(INTEGER + 8);
    for (int32_t i = 0; i < QR_QUANT_GROUP; i += 8) {
        vi sum = VI(set1_epi32)((int32_t)(0u - INTEGER_BITS * 0x11111111u));
#pragma GCC unroll 8
        for (int32_t t = 0; t < 8; t++) {
            const vf x = vf_min(vf_max(vf_add(vf_mul(v[i + t], by), zero), low), high);
            sum = VI(add_epi32)(sum, VI(slli_epi32)(VI_OF_FLOATS(x), (unsigned)(8 * (t % 4) + t / 4 * 4)));
        }
        VI_STORE(w + i * 8, sum);
    }
}

/* The same as bytes n + 128: 4 of k a line. */
VF_FN void put_bytes(uint8_t *w, const vf *v)
{
    const vf zero = vf_set1(INTEGER + 128);
    for (int32_t i = 0; i < QR_QUANT_GROUP; i += 4) {
        vi sum = VI(set1_epi32)((int32_t)(0u - INTEGER_BITS * 0x01010101u));
#pragma GCC unroll 4
        for (int32_t t = 0; t < 4; t++)
            sum = VI(add_epi32)(sum, VI(slli_epi32)(VI_OF_FLOATS(vf_add(v[i + t], zero)), (unsigned)(8 * t)));
        VI_STORE(w + i * 16, sum);
    }
}

/* A group, or 32 numbers where there are none: inputs [k, k + 32) of a strip to w, multiples to `multiple`. */
VF_FN void pack_group(const struct strip *s, uint8_t *w, uint8_t *multiple, struct qr_quant_format f, int64_t k, const float *inverse)
{
    for (int32_t h = 0; h < HALVES; h++) {
        QR_UNINITIALIZED vf v[QR_QUANT_GROUP];
        load_columns(v, s, h * VF_LEN, k, QR_QUANT_GROUP, vf_load(inverse + h * VF_LEN));
        if (f.bits == 8) {
            put_bytes(w + h * VI_BYTES, v);
            continue;
        }
        const vf m = best_multiple(v);
        float lane[VF_LEN];
        vf_store(lane, m);
        for (int32_t r = 0; r < VF_LEN; r++)
            multiple[h * VF_LEN + r] = (uint8_t)lane[r];
        put_halves(w + h * VI_BYTES, v, vf_div(vf_set1(1), m));
    }
}

/* The last inputs, fewer than a group: as a group that ends in zeros. Missing inputs have no bytes, and half bytes up to a multiple of 64. */
static void pack_last(const struct packing *p, uint8_t *w, uint8_t *multiple, const char *rows, int64_t k, const float *inverse)
{
    QR_UNINITIALIZED float x[QR_PANEL * QR_QUANT_GROUP];
    QR_UNINITIALIZED uint8_t last[QR_PANEL * QR_QUANT_GROUP];
    const int64_t row_bytes = p->n_in * (int64_t)qr_dtype_bytes(p->from), m = p->n_in - k;
    for (int32_t r = 0; r < QR_PANEL; r++)
        qr_quant_load(x + r * QR_QUANT_GROUP, QR_QUANT_GROUP, rows + r * row_bytes, p->from, k, m);
    pack_group(&(struct strip){(const char *)x, QR_QUANT_GROUP * (int64_t)sizeof *x, QR_F32}, last, multiple, p->format, 0, inverse);
    for (int64_t i = m; p->format.bits == 8 && i < (m + 3) / 4 * 4; i++)
        for (int32_t o = 0; o < QR_PANEL; o++)
            last[i / 4 * QR_PANEL * 4 + o * 4 + i % 4] = 0;
    memcpy(w, last, (size_t)((p->format.bits == 4 ? QR_QUANT_GROUP / 8 : (m + 3) / 4) * QR_PANEL * 4));
}

/* All 16 rows. False: one of them has no scale, and nothing was written. */
static bool pack_panel(const struct packing *p, uint8_t *panel, const char *rows)
{
    const struct qr_quant_format f = p->format;
    const struct strip s = {rows, p->n_in * (int64_t)qr_dtype_bytes(p->from), p->from};
    float scale[QR_PANEL], inverse[QR_PANEL];
    for (int32_t r = 0; r < QR_PANEL; r++) {
        scale[r] = qr_quant_scale(&inverse[r], row_max(rows + r * s.stride, p->from, p->n_in), qr_quant_largest(f));
        if (inverse[r] == 0)
            return false;
    }
    memcpy(panel, scale, sizeof scale);
    uint8_t *multiple = panel + sizeof scale, *w = panel + p->head_bytes;
    int64_t k = 0;
    for (; k + QR_QUANT_GROUP <= p->n_in; k += QR_QUANT_GROUP)
        pack_group(&s, w + k * QR_PANEL * f.bits / 8, multiple + k / QR_QUANT_GROUP * QR_PANEL, f, k, inverse);
    if (k < p->n_in)
        pack_last(p, w + k * QR_PANEL * f.bits / 8, multiple + k / QR_QUANT_GROUP * QR_PANEL, rows, k, inverse);
    return true;
}

static void pack_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct packing *p = arg;
    int64_t panel = p->row0 / QR_PANEL + item, first = panel * QR_PANEL, end = first + QR_PANEL;
    first = first > p->row0 ? first : p->row0;
    end = end < p->row0 + p->n_rows ? end : p->row0 + p->n_rows;
    const size_t row_bytes = (size_t)p->n_in * qr_dtype_bytes(p->from);
    const char *rows = p->rows + (size_t)(first - p->row0) * row_bytes;
    if (end - first == QR_PANEL && pack_panel(p, p->dst + panel * p->panel_bytes, rows))
        return;
    for (int64_t o = first; o < end; o++)
        pack_row(p, p->dst + panel * p->panel_bytes, o % QR_PANEL, rows + (size_t)(o - first) * row_bytes);
}

void QR_ISA_NAME(quant_pack)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const void *rows,
                             enum qr_dtype from, int64_t n_rows)
{
    QR_ASSERT(dst != NULL && rows != NULL && qr_dtype_is_quantized(to));
    QR_ASSERT(row0 >= 0 && n_rows >= 0 && row0 + n_rows <= n_out);
    QR_ASSERT(n_in > 0 && n_in <= QR_QUANT_INPUTS_MAX);
    struct packing p = {.dst = dst, .rows = rows, .from = from, .format = qr_dtype_format(to), .n_in = n_in, .row0 = row0, .n_rows = n_rows,
                        .panel_bytes = qr_quant_panel_bytes(to, n_in), .head_bytes = qr_quant_head_bytes(to, n_in)};
    if (n_rows > 0)
        qr_queue_run(q, pack_item, &p, (row0 + n_rows - 1) / QR_PANEL - row0 / QR_PANEL + 1);
}
