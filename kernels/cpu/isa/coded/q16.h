/* q16.h - products with coded weights (coded.h) by integers, for avx2: the arithmetic, which few rows (gemv.h) and
 * many have in common. All codes but E4M3 numbers. Included by files that are compiled for avx2.
 *
 * A weight is level times scale plus offset and not rounded to anything. x becomes integers of 16 bits, 32 inputs at a
 * time, with a power of two as unit:
 *     e = the least from -111 on with |x| < 2^e for all of the 32, unit = 2^(e - 15), X = min(x / unit, 32767), rounded to the nearest, even on a tie
 * so X is within a unit of x / unit, and within half of one but for x within 2^(e - 16) of 2^e; numbers whose bits all
 * lie from 2^(e - 1) to 2^(e - 15) are kept as they are. An infinity or NaN among the 32 makes the unit NaN. Inputs
 * that are missing are 0. For each run of inputs that share a scale, 16 with groups of 16 and else 32, in the order of
 * k,
 *     I = sum (level - zero) X, S = sum X       exact: |X| <= 2^15, |level - zero| <= 2^8, 2^28 at most; zero 0 where the type has none
 *     acc = fma(float(I) unit, scale, acc)      float(I) is the one rounding of I; unit is at least 2^-126 and I at most 2^28, so the product is exact
 *     acc = fma(float(S) unit, offset, acc)     where the type has offsets; S has 21 bits: exact
 * from acc = 0 on, where scale = f16 factor (step), and so offset, is exact in f32 (11 + 8 bits). An infinite float(I)
 * unit needs an |x| of 2^114. What I is summed up from is free: levels that go up by one are codes plus a constant,
 * and their sum is that of codes plus the constant times S.
 *
 * Against numbers: each x errs by half a unit (at the top by one), so the sum by less than sum |w| unit, and the chain
 * by 2^-24 of what it has come to at each step.
 *
 * In memory each four inputs are in the order 0 2 1 3, as pairs of 16 bits: so a lane of 32 bits that holds the codes
 * of four inputs of an output becomes two pairs by a shift and a mask, and vpmaddwd multiplies and adds a pair.
 */
#ifndef QR_KERNELS_CPU_ISA_CODED_Q16_H
#define QR_KERNELS_CPU_ISA_CODED_Q16_H

#include "kernels/cpu/isa/coded/lines.h"
#include "kernels/cpu/isa/coded/gemm_parts.h"

/* ---- x ---- */

/* 32 inputs of a row. Halves: of 16 inputs. */
struct q16_x {
    _Alignas(32) int16_t x[Q16_K]; /* in the order of q16.h */
    int32_t sum[2];                  /* of each half */
    float half_ones[2];              /* float(sum) unit; NaN where the unit is */
    float unit, ones;                /* ones: of all 32 */
    int32_t all;                     /* sum of all 32 */
};

/* Units of a row. */
static inline int32_t q16_units(int64_t n_in)
{
    return (int32_t)((n_in + Q16_K - 1) / Q16_K);
}

/* Numbers 8 j to 8 j + 7 are v[j]. */
VF_FN void q16_x_make(struct q16_x *to, const vf v[4])
{
    const vi size = VI(set1_epi32)(0x7fffffff);
    const vi most8 = VI(max_epi32)(VI(max_epi32)(VI_AND(VI_OF_FLOATS(v[0]), size), VI_AND(VI_OF_FLOATS(v[1]), size)),
                                   VI(max_epi32)(VI_AND(VI_OF_FLOATS(v[2]), size), VI_AND(VI_OF_FLOATS(v[3]), size)));
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128(most8), _mm256_extracti128_si256(most8, 1));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1));
    const __m128i least = _mm_set1_epi32(15), exponent = _mm_max_epi32(_mm_srli_epi32(most, 23), least); /* e + 126 */
    const __m128i none = _mm_and_si128(_mm_cmpeq_epi32(exponent, _mm_set1_epi32(255)), _mm_set1_epi32(0x7fc00000));
    const __m128 unit = _mm_castsi128_ps(_mm_or_si128(_mm_slli_epi32(_mm_sub_epi32(exponent, _mm_set1_epi32(14)), 23), none));
    const vf inverse = _mm256_broadcastss_ps(_mm_castsi128_ps(_mm_slli_epi32(_mm_sub_epi32(_mm_set1_epi32(268), exponent), 23)));
    vi w[4] QR_UNINITIALIZED;
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        w[i] = _mm256_cvtps_epi32(vf_mul(v[i], inverse));
    const vi order = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15)), one = VI(set1_epi16)(1);
    const vi first = VI(shuffle_epi8)(_mm256_permute4x64_epi64(_mm256_packs_epi32(w[0], w[1]), 0xd8), order);
    const vi second = VI(shuffle_epi8)(_mm256_permute4x64_epi64(_mm256_packs_epi32(w[2], w[3]), 0xd8), order);
    VI_STORE(to->x, first);
    VI_STORE(to->x + 16, second);
    vi pairs = _mm256_hadd_epi32(VI(madd_epi16)(first, one), VI(madd_epi16)(second, one));
    pairs = _mm256_hadd_epi32(pairs, pairs); /* in both halves: of the first 16, of the second */
    const __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    const __m128i all = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    _mm_storel_epi64((__m128i *)(void *)to->sum, sum);
    _mm_storel_pi((__m64 *)(void *)to->half_ones, _mm_mul_ps(_mm_cvtepi32_ps(sum), unit));
    to->unit = _mm_cvtss_f32(unit);
    to->ones = _mm_cvtss_f32(_mm_mul_ps(_mm_cvtepi32_ps(all), unit));
    to->all = _mm_cvtsi128_si32(all);
}

/* The same as bytes, in the order of the inputs: x = 256 high + low. */
struct q16_bytes {
    int8_t high[Q16_K];
    uint8_t low[Q16_K];
};

VF_FN void q16_bytes_make(struct q16_bytes *to, const struct q16_x *x)
{
    const vi order = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15));
    const vi first = VI_LOAD(x->x), second = VI_LOAD(x->x + 16), low = VI(set1_epi16)(255);
    const vi high = _mm256_packs_epi16(VI(srai_epi16)(first, 8), VI(srai_epi16)(second, 8));
    VI_STORE(to->high, VI(shuffle_epi8)(_mm256_permute4x64_epi64(high, 0xd8), order));
    VI_STORE(to->low, VI(shuffle_epi8)(_mm256_permute4x64_epi64(_mm256_packus_epi16(VI_AND(first, low), VI_AND(second, low)), 0xd8), order));
}

/* ---- levels ---- */

/* What codes of less than 8 bits stand for: themselves plus `shift`, or, where that is not so for all of them (4
 * bits), what the table says, in both halves. */
struct q16_levels {
    vi table;
    int32_t shift;
    bool even;
};

VF_FN struct q16_levels q16_levels_of(const struct qr_coded_format f, const uint8_t *panel)
{
    struct q16_levels l = {.table = VI(setzero_si256)(), .shift = f.bits == 6 || f.bits == 8 ? 0 : qr_coded_least(f), .even = true};
    if (f.bits != 4)
        return l;
    const __m128i table = _mm_loadu_si128((const __m128i *)(const void *)(panel + QR_CODED_LEVELS_AT));
    const __m128i first = _mm_set1_epi8((char)_mm_extract_epi8(table, 0));
    const __m128i even = _mm_add_epi8(first, _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    l.even = _mm_movemask_epi8(_mm_cmpeq_epi8(table, even)) == 0xffff && (int8_t)_mm_extract_epi8(table, 0) <= 127 - 15;
    l.shift = l.even ? (int8_t)_mm_extract_epi8(table, 0) : 0;
    l.table = _mm256_broadcastsi128_si256(table);
    return l;
}

/* Inputs of a line; whether lines of 32 inputs share what they are of, and `bits` is how many they then are in memory.
 * */
VF_FN int q16_line_inputs(const int bits)
{
    return bits == 8 || bits == 6 ? 4 : 8;
}

VF_FN bool q16_lines_share(const int bits)
{
    return bits != 4 && bits != 6 && bits != 8;
}

VF_FN int q16_line_bytes(const int bits)
{
    return bits == 6 ? QR_CODED_LINE / 8 * 6 : QR_CODED_LINE;
}

/* Bytes of both halves to pairs, the sign kept: inputs 0 and 2 of the four, 1 and 3. */
VF_FN void q16_byte_pairs(vi pairs[2], vi bytes)
{
    pairs[0] = VI(srai_epi16)(VI(slli_epi16)(bytes, 8), 8);
    pairs[1] = VI(srai_epi16)(bytes, 8);
}

/* Half a line of 6 bits, so that in each 16 bits the odd input's code is at the top and the even one's below it. */
VF_FN vi q16_widened(const uint8_t *codes)
{
    const __m128i low = _mm_loadu_si128((const __m128i *)(const void *)codes);
    const __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(codes + 8));
    const __m128i first = _mm_setr_epi8(0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11);
    const __m128i second = _mm_add_epi8(first, _mm_set1_epi8(4));
    const vi v = VI(shuffle_epi8)(_mm256_set_m128i(high, low), _mm256_set_m128i(second, first));
    return VI(mullo_epi16)(v, VI(set1_epi32)(1 << 16 | 16));
}

/* Levels with 6 and 8 bits or a table, else codes, of a vector of 8 outputs, as pairs of inputs: [0] 0 and 2, [1] 1 and 3,
 * in lines of eight [2] 4 and 6, [3] 5 and 7. codes: this vector's half of the line, or, where lines share it, of the
 * first of the 32 inputs that line i, known to the compiler, is of. */
VF_FN void q16_line(const int bits, const bool even, vi pairs[4], const uint8_t *codes, const int i, const struct q16_levels *l)
{
    if (bits == 8) {
        q16_byte_pairs(pairs, VI_LOAD(codes));
        return;
    }
    if (bits == 6) {
        const vi v = q16_widened(codes);
        pairs[0] = VI(srai_epi16)(VI(slli_epi16)(v, 6), 10);
        pairs[1] = VI(srai_epi16)(v, 10);
        return;
    }
    if (bits > 4) {
        vi code[2] QR_UNINITIALIZED;
        lines_five(code, codes, i);
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            pairs[2 * j] = VI_AND(code[j], VI(set1_epi16)(255));
            pairs[2 * j + 1] = VI(srli_epi16)(code[j], 8);
        }
        return;
    }
    const vi v = bits == 4 ? VI_LOAD(codes) : lines_low(bits, codes, i), low = VI(set1_epi32)(even ? 0x000f000f : 0x0f0f0f0f);
    if (even) {
        pairs[0] = VI_AND(v, low);
        pairs[1] = VI_AND(VI(srli_epi16)(v, 8), low);
        pairs[2] = VI_AND(VI(srli_epi16)(v, 4), low);
        pairs[3] = VI(srli_epi16)(v, 12);
        return;
    }
    q16_byte_pairs(pairs, VI(shuffle_epi8)(l->table, VI_AND(v, low)));
    q16_byte_pairs(pairs + 2, VI(shuffle_epi8)(l->table, VI_AND(VI(srli_epi16)(v, 4), low)));
}

/* ---- scales ---- */

/* Of the eight outputs from o on in a block; in: input of the block. zero: what is taken from levels; with shift, so
 * that codes and it give levels. */
struct q16_scales {
    vf scale, offset;
    vi zero;
};

VF_FN struct q16_scales q16_scales_at(const struct qr_coded_shape *s, const uint8_t *panel, const uint8_t *block, int32_t in, int32_t o, int32_t shift)
{
    const vf factor = vf_load((const float *)(const void *)panel + o);
    const uint16_t *unit = (const uint16_t *)(const void *)block + (in >> s->unit_shift) * QR_PANEL + o;
    const int8_t *step = (const int8_t *)block + (in >> s->group_shift) * QR_PANEL + o;
    struct q16_scales c = {vf_mul(vf_load_f16_n(unit, VF_LEN), factor), vf_zero(), VI(setzero_si256)()};
    if (s->f.offset)
        c.offset = vf_mul(vf_load_f16_n(unit + s->offset_at / 2, VF_LEN), factor);
    if (s->f.steps)
        c.scale = vf_mul(c.scale, vf_load_i8_n(step + s->step_at, VF_LEN));
    if (s->f.steps && s->f.offset)
        c.offset = vf_mul(c.offset, vf_load_i8_n(step + s->offset_step_at, VF_LEN));
    if (s->f.zero)
        c.zero = _mm256_sub_epi32(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(step + s->offset_step_at))), VI(set1_epi32)(shift));
    return c;
}

/* ---- the chain ---- */

/* I, the sum of levels (less zeros) times X. */
VF_FN vf q16_add(vf acc, vi sum, vf unit, vf scale)
{
    return vf_fma(vf_mul(_mm256_cvtepi32_ps(sum), unit), scale, acc);
}

/* ones: float(S) unit. */
VF_FN vf q16_add_offset(vf acc, vf ones, vf offset)
{
    return vf_fma(ones, offset, acc);
}

/* Inputs of a run. */
VF_FN int32_t q16_run(const struct qr_coded_shape *s)
{
    return s->group_shift == 4 ? 16 : Q16_K;
}

/* DO with the bits of format f, whether codes of 5 bits are levels, and whether all codes of 4 bits are even, all
 * known when compiling; not where a sanitizer takes apart whatever the compiler makes of it, which is then made once.
 * */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define Q16_BY_FORMAT(f, even, DO) DO((f).bits, (f).bits == 5 && (f).offset, (f).bits != 4 || (even))
#else
#define Q16_BY_FORMAT(f, even, DO)            \
    do {                                        \
        if ((f).bits == 2)                      \
            DO(2, false, true);                 \
        else if ((f).bits == 3)                 \
            DO(3, false, true);                 \
        else if ((f).bits == 4 && (even))       \
            DO(4, false, true);                 \
        else if ((f).bits == 4)                 \
            DO(4, false, false);                \
        else if ((f).bits == 5 && (f).offset)   \
            DO(5, true, true);                  \
        else if ((f).bits == 5)                 \
            DO(5, false, true);                 \
        else if ((f).bits == 6)                 \
            DO(6, false, true);                 \
        else                                    \
            DO(8, false, true);                 \
    } while (0)
#endif

#endif
