/* pack.c - rows of weights rounded to 8 or 4 bits into the panels of quant.h.
 *
 * All 16 rows of a panel at once: some inputs of them are turned, so that a vector has one input of as many rows as it has lanes, and everything that
 * kernels/quant.h does with a row is done in a row's own lane, in its order: the bits are the same. A number's integer is the low bits of the number plus
 * 3 * 2^22, so that a row's integers of several inputs become one lane of packed ones by shifts and sums. Panels of which some rows are packed apart, or that
 * have a row of zeros or without a largest number, are packed row by row.
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
#ifdef QR_ISA_avx2
    int64_t ahead; /* rows until those that the same thread will pack next, if threads draw panels in turns */
#endif
};

#ifdef QR_ISA_avx2
#define ROWS_AHEAD(p) (p)->ahead
#else
#define ROWS_AHEAD(p) QR_PANEL
#endif

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
#define PAGE_BYTES 4096
#define WHOLE 0x1.8p23f           /* plus an integer: that is its low bits */
#define WHOLE_BITS 0x4b400000u

/* A panel's rows: number k of row r of `from` at rows + r * stride, from k on. */
struct strip {
    const char *rows;
    int64_t stride;
    enum qr_dtype from;
};

enum { VECTOR_HALVES = sizeof(vi) / 2 }; /* numbers of 16 bits in a vector */

/* The largest magnitude of n numbers of 16 bits, whose bits order like the numbers. */
static uint16_t most_of_halves(const uint16_t *h, int64_t n)
{
    const vi size = VI(set1_epi16)(0x7fff);
    uint16_t most = 0;
    vi v = VI(set1_epi16)(0);
    int64_t i = 0;
#ifdef QR_ISA_avx2
    vi two = v; /* two at a time */
    for (; i + 2 * VECTOR_HALVES <= n; i += 2 * VECTOR_HALVES) {
        v = VI(max_epu16)(v, VI_AND(VI_LOAD(h + i), size));
        two = VI(max_epu16)(two, VI_AND(VI_LOAD(h + i + VECTOR_HALVES), size));
    }
    v = VI(max_epu16)(v, two);
#endif
    for (; i + VECTOR_HALVES <= n; i += VECTOR_HALVES)
        v = VI(max_epu16)(v, VI_AND(VI_LOAD(h + i), size));
#ifdef QR_ISA_avx2 /* in registers: memory for lanes would be cleared for every row */
    const __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)), ones = _mm_set1_epi16(-1);
    most = (uint16_t)~_mm_extract_epi16(_mm_minpos_epu16(_mm_xor_si128(eight, ones)), 0);
#else
    uint16_t lane[VECTOR_HALVES];
    VI_STORE(lane, v);
    for (int32_t k = 0; k < VECTOR_HALVES; k++)
        most = lane[k] > most ? lane[k] : most;
#endif
    for (; i < n; i++)
        most = (h[i] & 0x7fff) > most ? h[i] & 0x7fff : most;
    return most;
}

static uint32_t most_of_row(const void *row, enum qr_dtype from, int64_t n)
{
    if (from == QR_F32)
        return qr_quant_row_max(row, from, n);
    const uint16_t most = most_of_halves(row, n);
#ifdef QR_ISA_avx2
    if (from == QR_BF16)
        return (uint32_t)most << 16;
#endif
    return qr_quant_row_max(&most, from, 1);
}

/* Inputs [k, k + n) of the rows from `row` on times `by`, v[i] those of input k + i. n is a multiple of 32. */
VF_FN void turn(vf *v, const struct strip *s, int32_t row, int64_t k, int32_t n, vf by)
{
#ifdef QR_ISA_avx2
    const char *x = s->rows + row * s->stride + k * (s->from == QR_F32 ? 4 : 2); /* without a call for each group */
#else
    const char *x = s->rows + row * s->stride + k * (int64_t)qr_dtype_bytes(s->from);
#endif
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

/* m + 1 where a is less than b. */
VF_FN vf more_where_less(vf m, vf a, vf b)
{
#ifdef QR_ISA_avx2
    return vf_add(m, _mm256_and_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ), vf_set1(1)));
#else
    return _mm512_mask_add_ps(m, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), m, vf_set1(1));
#endif
}

/* x where a is less than b, else y. */
VF_FN vf pick_less(vf a, vf b, vf x, vf y)
{
#ifdef QR_ISA_avx2
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
#else
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), x);
#endif
}

/* 1 / m for whole m from 1 to 15, as a division gives it. */
VF_FN vf inverse_of(vf m)
{
#ifdef QR_ISA_avx2
    return vf_div(vf_set1(1), m);
#else
    const vf table = _mm512_setr_ps(0, 1, 1.0f / 2, 1.0f / 3, 1.0f / 4, 1.0f / 5, 1.0f / 6, 1.0f / 7, 1.0f / 8, 1.0f / 9, 1.0f / 10, 1.0f / 11, 1.0f / 12,
                                    1.0f / 13, 1.0f / 14, 1.0f / 15);
    return _mm512_permutexvar_ps(_mm512_cvtps_epi32(m), table);
#endif
}

/* The smallest multiple with which 7 of them hold `most`. The quotient's nearest integer is that one or the one below, also where the quotient is off
 * by a few units in its last place: one that is rounded up to an integer is above. */
VF_FN vf smallest_for(vf most)
{
#ifdef QR_ISA_avx2
    vf m = vf_round(vf_mul(most, vf_set1(1 / 7.0f)));
#else
    vf m = vf_round(vf_div(most, vf_set1(7)));
#endif
    m = more_where_less(m, vf_mul(m, vf_set1(7)), most);
    return vf_min(vf_max(m, vf_set1(1)), vf_set1(QR_QUANT_MULTIPLE_MAX));
}

/* qr_quant_smallest_multiple. */
VF_FN vf smallest_multiple(const vf *v)
{
    vf part[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()}; /* one after the other waits for each */
    for (int32_t i = 0; i < QR_QUANT_GROUP; i += 4)
        for (int32_t j = 0; j < 4; j++)
            part[j] = vf_max(part[j], vf_abs(v[i + j]));
    return smallest_for(vf_max(vf_max(part[0], part[1]), vf_max(part[2], part[3])));
}

/* The nearest integer, even on a tie. */
#ifdef QR_ISA_avx2
#define WHOLE_OF(x, whole) ((void)(whole), vf_round(x)) /* -0 in place of 0 makes no difference to a square */
#else
#define WHOLE_OF(x, whole) vf_sub(vf_add(x, whole), whole)
#endif

/* qr_quant_try's error. With the smallest multiple nothing is cut off. */
VF_FN vf error_of(const vf *v, vf m, const bool cut)
{
    const vf by = inverse_of(m), whole = vf_set1(WHOLE);
    QR_UNINITIALIZED vf part[8];
    for (int32_t j = 0; j < 8; j++)
        part[j] = vf_zero();
    for (int32_t h = 0; h < QR_QUANT_GROUP; h += 8)
#pragma GCC unroll 8
        for (int32_t j = 0; j < 8; j++) {
            vf k = WHOLE_OF(vf_mul(v[h + j], by), whole);
            if (cut)
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
        best = pick_less(error, least, m, best);
        least = vf_min(error, least);
    }
    return best;
}

/* Numbers times `by`, from -8 to 7 and less than an integer away from that, as half bytes n + 8: 8 of k a line. */
#ifdef QR_ISA_avx2
/* Four inputs of eight rows: in each half of four rows, input by input. */
VF_FN __m256i halves_of(const vf *v, vf by)
{
    const __m256i a = _mm256_packs_epi32(_mm256_cvtps_epi32(vf_mul(v[0], by)), _mm256_cvtps_epi32(vf_mul(v[1], by)));
    const __m256i b = _mm256_packs_epi32(_mm256_cvtps_epi32(vf_mul(v[2], by)), _mm256_cvtps_epi32(vf_mul(v[3], by)));
    /* 127 where an integer is 7 or more, and never below 0: a multiple is at most 3 below the smallest one that holds all, so no integer is below -28. */
    const __m256i most = _mm256_adds_epi8(_mm256_packs_epi16(a, b), _mm256_set1_epi8(120));
    return _mm256_subs_epu8(most, _mm256_set1_epi8(112));
}

VF_FN void put_halves(uint8_t *w, const vf *v, int32_t n, vf by)
{
    const __m256i by_rows = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    for (int32_t i = 0; i < n; i += 8) {
        const __m256i both = _mm256_or_si256(halves_of(v + i, by), _mm256_slli_epi16(halves_of(v + i + 4, by), 4));
        VI_STORE(w + i * 8, _mm256_shuffle_epi8(both, by_rows));
    }
}
#else
VF_FN void put_halves(uint8_t *w, const vf *v, int32_t n, vf by)
{
    const vf low = vf_set1(WHOLE), high = vf_set1(WHOLE + 15), zero = vf_set1(WHOLE + 8);
    for (int32_t i = 0; i < n; i += 8) {
        vi sum = VI(set1_epi32)((int32_t)(0u - WHOLE_BITS * 0x11111111u));
#pragma GCC unroll 8
        for (int32_t t = 0; t < 8; t++) {
            const vf x = vf_min(vf_max(vf_add(vf_mul(v[i + t], by), zero), low), high);
            sum = VI(add_epi32)(sum, VI(slli_epi32)(VI_OF_FLOATS(x), (unsigned)(8 * (t % 4) + t / 4 * 4)));
        }
        VI_STORE(w + i * 8, sum);
    }
}
#endif

/* Likewise as bytes n + 128: 4 of k a line. */
VF_FN void put_bytes(uint8_t *w, const vf *v)
{
    const vf zero = vf_set1(WHOLE + 128);
    for (int32_t i = 0; i < QR_QUANT_GROUP; i += 4) {
        vi sum = VI(set1_epi32)((int32_t)(0u - WHOLE_BITS * 0x01010101u));
#pragma GCC unroll 4
        for (int32_t t = 0; t < 4; t++)
            sum = VI(add_epi32)(sum, VI(slli_epi32)(VI_OF_FLOATS(vf_add(v[i + t], zero)), (unsigned)(8 * t)));
        VI_STORE(w + i * 16, sum);
    }
}

#ifdef QR_ISA_avx2
/* Integers nearest to the 16 numbers of x times `by`, in 16 bits: in each half those of even inputs, then those of odd ones. */
VF_FN __m256i whole_of_row(__m256i x, vf by)
{
    const vf even = vf_mul(VI_AS_FLOATS(_mm256_slli_epi32(x, 16)), by);
    const vf odd = vf_mul(VI_AS_FLOATS(VI_AND(x, _mm256_set1_epi32((int32_t)0xffff0000u))), by);
    return _mm256_packs_epi32(_mm256_cvtps_epi32(even), _mm256_cvtps_epi32(odd));
}

/* Of 32 numbers of a row, in bytes, in words of four: from inputs 0, 4, 16, 20, 8, 12, 24, 28 on. */
VF_FN __m256i bytes_of_row(const char *x, vf by)
{
    const __m256i by_turns = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15));
    return _mm256_shuffle_epi8(_mm256_packs_epi16(whole_of_row(VI_LOAD(x), by), whole_of_row(VI_LOAD(x + 32), by)), by_turns);
}

/* Inputs [k, k + 32) of a panel of bf16 as bytes: rounded row by row, so that words of four are turned, not numbers. */
VF_FN void put_rows(const struct strip *s, uint8_t *w, int64_t k, const float *inverse)
{
    static const int32_t line[VF_LEN] = {0, 1, 4, 5, 2, 3, 6, 7};
    for (int32_t h = 0; h < QR_PANEL; h += VF_LEN) {
        const char *x = s->rows + h * s->stride + 2 * k;
        vf v[VF_LEN];
        for (int32_t r = 0; r < VF_LEN; r++)
            v[r] = VI_AS_FLOATS(bytes_of_row(x + r * s->stride, _mm256_broadcast_ss(inverse + h + r)));
        vf_transpose(v);
        for (int32_t c = 0; c < VF_LEN; c++)
            VI_STORE(w + line[c] * QR_PANEL * 4 + h * 4, _mm256_xor_si256(VI_OF_FLOATS(v[c]), _mm256_set1_epi8((char)0x80)));
    }
}
#endif

#ifdef QR_ISA_avx2
/* A group's multiple for eight rows, and what its numbers are multiplied by. */
struct choice {
    vf m, by;
};

static __attribute__((noinline)) vf exact_multiple(const vf *v)
{
    return best_multiple(v);
}

/* `error` and the square that v adds to it, in units of the multiple: by is 1 / multiple, and the integer is cut off above 7 and below -8 where asked for. Its
 * bits order like the integer but for the sign. */
VF_FN vf more_error(vf error, vf v, vf by, const bool above, const bool below)
{
    const vf x = vf_mul(v, by);
    vi n = VI_OF_FLOATS(vf_round(x));
    if (above)
        n = _mm256_min_epi32(n, VI_OF_FLOATS(vf_set1(7)));
    if (below)
        n = _mm256_min_epu32(n, VI_OF_FLOATS(vf_set1(-8)));
    const vf d = vf_sub(x, VI_AS_FLOATS(n));
    return vf_fma(d, d, error);
}

/* All tries' errors in one pass. below: the second one, too, may have numbers below -8. */
VF_FN void errors_of(vf *error, const vf *v, const vf *by, const bool below)
{
#pragma GCC unroll 3
    for (int32_t t = 0; t < QR_QUANT_TRIES; t++)
        error[t] = vf_zero();
#pragma GCC unroll 2
    for (int32_t i = 0; i < QR_QUANT_GROUP; i++)
#pragma GCC unroll 3
        for (int32_t t = 0; t < QR_QUANT_TRIES; t++)
            error[t] = more_error(error[t], v[i], by[t], t > 0, t > 1 || (t == 1 && below));
}

/* best_multiple, given the smallest one; where there is no multiple below it, its error is none (NaN). Integers are those of qr_quant_try, as they come from
 * the same product. That is within 2^-23 of itself, so a square d^2 errs by 2^-22 |d v| at most, in v's units (|v| <= 105): by 2^-15 d^2 + 2^-31 v^2. Their
 * sum, of 32, errs by 2^-15 of itself and 2^-10.6, and by 2^-17 of itself for its roundings; qr_quant_try's own, in 8 chains, by 2^-19. So two errors
 * that are further apart than 2^-13 of one and 2^-9 are in the right order; others, of which there are few, are compared exactly. */
VF_FN struct choice choose_multiple(const vf *v, vf first)
{
    QR_UNINITIALIZED vf m[QR_QUANT_TRIES], by[QR_QUANT_TRIES], error[QR_QUANT_TRIES];
#pragma GCC unroll 3
    for (int32_t t = 0; t < QR_QUANT_TRIES; t++) {
        m[t] = t ? vf_max(vf_sub(first, vf_set1((float)t)), vf_zero()) : first;
        by[t] = inverse_of(m[t]);
    }
    if (_mm256_movemask_ps(_mm256_cmp_ps(first, vf_set1(6), _CMP_LT_OQ)) == 0)
        errors_of(error, v, by, false); /* 7 * 6 / 5 is below 8.5 */
    else
        errors_of(error, v, by, true);
    error[0] = vf_mul(error[0], vf_mul(m[0], m[0]));
    vf least = error[0], doubt = vf_zero();
    struct choice c = {m[0], by[0]};
#pragma GCC unroll 3
    for (int32_t t = 1; t < QR_QUANT_TRIES; t++) {
        error[t] = vf_mul(error[t], vf_mul(m[t], m[t]));
        const vf near = _mm256_cmp_ps(vf_abs(vf_sub(error[t], least)), vf_fma(least, vf_set1(0x1p-13f), vf_set1(0x1p-9f)), _CMP_LE_OQ);
        doubt = _mm256_or_ps(doubt, near);
        c.m = pick_less(error[t], least, m[t], c.m);
        c.by = pick_less(error[t], least, by[t], c.by);
        least = vf_min(error[t], least);
    }
    if (__builtin_expect(_mm256_movemask_ps(doubt) != 0, 0)) {
        c.m = exact_multiple(v);
        c.by = inverse_of(c.m);
    }
    return c;
}

/* Numbers 2 c and 2 c + 1 of each of eight rows of 16 bits: t[c]. */
VF_FN void turn_pairs(vf t[VF_LEN], const char *x, int64_t stride)
{
    QR_UNINITIALIZED vf a[VF_LEN];
    for (int32_t r = 0; r < 4; r++)
        for (int32_t i = 0; i < 2; i++) {
            const float *first = (const float *)(const void *)(x + r * stride + 16 * i), *second = (const float *)(const void *)(x + (r + 4) * stride + 16 * i);
            a[4 * i + r] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(first)), _mm_loadu_ps(second), 1);
        }
    for (int32_t i = 0; i < VF_LEN; i += 4) {
        const vf p = _mm256_unpacklo_ps(a[i], a[i + 1]), q = _mm256_unpackhi_ps(a[i], a[i + 1]);
        const vf r = _mm256_unpacklo_ps(a[i + 2], a[i + 3]), s = _mm256_unpackhi_ps(a[i + 2], a[i + 3]);
        t[i] = _mm256_shuffle_ps(p, r, 0x44);
        t[i + 1] = _mm256_shuffle_ps(p, r, 0xee);
        t[i + 2] = _mm256_shuffle_ps(q, s, 0x44);
        t[i + 3] = _mm256_shuffle_ps(q, s, 0xee);
    }
}

/* turn, and the largest magnitudes of v. */
VF_FN vf turn_for_most(vf *v, const struct strip *s, int32_t row, int64_t k, int32_t n, vf by)
{
    if (s->from != QR_BF16) {
        vf most = vf_zero();
        turn(v, s, row, k, n, by);
        for (int32_t i = 0; i < n; i++)
            most = vf_max(most, vf_abs(v[i]));
        return most;
    }
    const char *x = s->rows + row * s->stride + k * 2;
    vi most = VI(set1_epi16)(0);
    for (int32_t i = 0; i < n; i += 2 * VF_LEN) {
        QR_UNINITIALIZED vf t[VF_LEN];
        turn_pairs(t, x + i * 2, s->stride);
        for (int32_t c = 0; c < VF_LEN; c++) {
            most = VI(max_epu16)(most, VI_AND(VI_OF_FLOATS(t[c]), VI(set1_epi16)(0x7fff)));
            v[i + 2 * c] = vf_mul(vf_pairs_first(vf_as_pairs(t[c])), by);
            v[i + 2 * c + 1] = vf_mul(vf_pairs_second(vf_as_pairs(t[c])), by);
        }
    }
    return vf_mul(vf_max(vf_pairs_first(most), vf_pairs_second(most)), by);
}

/* turn_for_most's smallest multiple, of rows 8 half on. */
VF_FN vf turn_for_first(vf *v, const struct strip *s, int32_t half, int64_t k, const float *inverse)
{
    return smallest_for(turn_for_most(v, s, half * VF_LEN, k, QR_QUANT_GROUP, vf_load(inverse + half * VF_LEN)));
}

/* A quarter of the lines of n inputs of 16 rows, as they follow each other in a panel that comes later; NULL: none comes. */
VF_FN void ask_quarter(const char **later, int32_t n, int64_t number)
{
    for (int64_t i = 0; *later && i < QR_PANEL * n * number / 4; i += 64, *later += 64)
        _mm_prefetch(*later, _MM_HINT_T1);
}

/* Whole groups of half bytes from input k to `end`, at w and `multiple` on. The next half of the rows is turned before this one's multiples are chosen: what
 * waits for divisions and for rows has other work meanwhile. later: where the next panel's rows begin. */
VF_FN void pack_groups4(const struct strip *s, uint8_t *w, uint8_t *multiple, int64_t k, int64_t end, const float *inverse, const char *later)
{
    enum { n = QR_QUANT_GROUP };
    const int64_t number = s->from == QR_F32 ? 4 : 2;
    QR_UNINITIALIZED vf v[HALVES][QR_QUANT_GROUP];
    QR_UNINITIALIZED vf first[HALVES];
    QR_UNINITIALIZED struct choice c[HALVES];
    if (k + n > end)
        return;
    first[0] = turn_for_first(v[0], s, 0, k, inverse);
    for (; k + n <= end; k += n, w += n * QR_PANEL / 2, multiple += QR_PANEL) {
        ask_quarter(&later, n, number);
        first[1] = turn_for_first(v[1], s, 1, k, inverse);
        ask_quarter(&later, n, number);
        c[0] = choose_multiple(v[0], first[0]);
        ask_quarter(&later, n, number);
        put_halves(w, v[0], n, c[0].by);
        if (k + 2 * n <= end)
            first[0] = turn_for_first(v[0], s, 0, k + n, inverse);
        ask_quarter(&later, n, number);
        c[1] = choose_multiple(v[1], first[1]);
        put_halves(w + VI_BYTES, v[1], n, c[1].by);
        const vi both = _mm256_permute4x64_epi64(_mm256_packs_epi32(_mm256_cvtps_epi32(c[0].m), _mm256_cvtps_epi32(c[1].m)), 0xd8);
        _mm_storeu_si128((__m128i *)(void *)multiple, _mm_packus_epi16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)));
    }
}
#endif

/* A group, or 32 numbers where there are none: inputs [k, k + 32) of a strip to w, multiples to `multiple`. */
VF_FN void pack_group(const struct strip *s, uint8_t *w, uint8_t *multiple, struct qr_quant_format f, int64_t k, const float *inverse)
{
#ifdef QR_ISA_avx2
    if (f.bits == 8 && s->from == QR_BF16) {
        put_rows(s, w, k, inverse);
        return;
    }
    if (f.bits == 4) {
        pack_groups4(s, w, multiple, k, k + QR_QUANT_GROUP, inverse, NULL);
        return;
    }
#endif
    for (int32_t h = 0; h < HALVES; h++) {
        QR_UNINITIALIZED vf v[QR_QUANT_GROUP];
        turn(v, s, h * VF_LEN, k, QR_QUANT_GROUP, vf_load(inverse + h * VF_LEN));
        if (f.bits == 8) {
            put_bytes(w + h * VI_BYTES, v);
            continue;
        }
        const vf m = best_multiple(v);
        float lane[VF_LEN];
        vf_store(lane, m);
        for (int32_t r = 0; r < VF_LEN; r++)
            multiple[h * VF_LEN + r] = (uint8_t)lane[r];
        put_halves(w + h * VI_BYTES, v, QR_QUANT_GROUP, inverse_of(m));
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

#ifndef QR_ISA_avx2
/* Maps a panel's pages: what is asked for ahead in pages that are not is not brought. */
static void touch_pages(const char *rows, int64_t n_bytes)
{
    for (int64_t i = 0; i < n_bytes; i += PAGE_BYTES)
        (void)*(const volatile char *)(rows + i);
}

/* Inputs [k, k + n) of a panel that comes later. */
VF_FN void ask_for(const struct strip *s, int64_t k, int32_t n)
{
    const int64_t size = (int64_t)qr_dtype_bytes(s->from);
    for (int32_t r = 0; r < QR_PANEL; r++)
        for (int64_t i = 0; i < n * size; i += 64)
            _mm_prefetch(s->rows + r * s->stride + k * size + i, _MM_HINT_T1);
}
#endif

/* A whole panel, while the next one, if there is one, is brought into the cache. False: a row that has to go its own way, nothing was written. */
static bool pack_panel(const struct packing *p, uint8_t *panel, const char *rows, bool more)
{
    const struct qr_quant_format f = p->format;
    const struct strip s = {rows, p->n_in * (int64_t)qr_dtype_bytes(p->from), p->from}, next = {rows + ROWS_AHEAD(p) * s.stride, s.stride, s.from};
    float scale[QR_PANEL], inverse[QR_PANEL];
    for (int32_t r = 0; r < QR_PANEL; r++) {
        scale[r] = qr_quant_scale(&inverse[r], most_of_row(rows + r * s.stride, p->from, p->n_in), qr_quant_largest(f));
        if (inverse[r] == 0)
            return false;
    }
    memcpy(panel, scale, sizeof scale);
    uint8_t *multiple = panel + sizeof scale, *w = panel + p->head_bytes;
    int64_t k = 0;
#ifdef QR_ISA_avx2
    const char *later = more ? next.rows : NULL;
    if (f.bits == 4) {
        pack_groups4(&s, w, multiple, 0, p->n_in, inverse, later);
        k = p->n_in / QR_QUANT_GROUP * QR_QUANT_GROUP;
    }
#else
    if (more)
        touch_pages(next.rows, QR_PANEL * next.stride);
#endif
    for (; k + QR_QUANT_GROUP <= p->n_in; k += QR_QUANT_GROUP) {
#ifndef QR_ISA_avx2
        if (more)
            ask_for(&next, k, QR_QUANT_GROUP);
#endif
        pack_group(&s, w + k * QR_PANEL * f.bits / 8, multiple + k / QR_QUANT_GROUP * QR_PANEL, f, k, inverse);
    }
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
    size_t row_bytes = (size_t)p->n_in * qr_dtype_bytes(p->from);
#ifdef QR_ISA_avx2
    const bool more = p->format.bits == 4 && p->row0 + p->n_rows - end >= p->ahead; /* int8 rows come while their largest numbers are looked for */
#else
    const bool more = p->row0 + p->n_rows - end >= QR_PANEL;
#endif
    if (end - first == QR_PANEL && pack_panel(p, p->dst + panel * p->panel_bytes, p->rows + (size_t)(first - p->row0) * row_bytes, more))
        return;
    for (int64_t o = first; o < end; o++)
        pack_row(p, p->dst + panel * p->panel_bytes, o % QR_PANEL, p->rows + (size_t)(o - p->row0) * row_bytes);
}

void QR_ISA_NAME(quant_pack)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const void *rows,
                             enum qr_dtype from, int64_t n_rows)
{
    QR_ASSERT(dst != NULL && rows != NULL && qr_dtype_is_quantized(to));
    QR_ASSERT(row0 >= 0 && n_rows >= 0 && row0 + n_rows <= n_out);
    QR_ASSERT(n_in > 0 && n_in <= QR_QUANT_INPUTS_MAX);
    struct packing p = {.dst = dst, .rows = rows, .from = from, .format = qr_dtype_format(to), .n_in = n_in, .row0 = row0, .n_rows = n_rows,
                        .panel_bytes = qr_quant_panel_bytes(to, n_in), .head_bytes = qr_quant_head_bytes(to, n_in)};
#ifdef QR_ISA_avx2
    p.ahead = (int64_t)QR_PANEL * q->n_threads;
#endif
    if (n_rows > 0)
        qr_queue_run(q, pack_item, &p, (row0 + n_rows - 1) / QR_PANEL - row0 / QR_PANEL + 1);
}
