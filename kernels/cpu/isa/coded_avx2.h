/* coded_avx2.h - coded weights of one panel (coded.h) as floats, eight outputs to a vector, and what scales and offsets make of them. Included by files that
 * are compiled for avx2. All of it is exact but for the roundings that a weight has (kernels.h, linear_pack_coded), so the bits are ref's.
 *
 * A code becomes a float without a conversion. Of 4 bits its level's two upper bytes are looked up, each in a table of its own, 32 codes at a time: a level
 * has 8 bits, so these are all of it. 5, 6 and 8 bits are put behind the exponent of a power of two 2^e, from bit s of the fraction on, e = 23 - s, which
 * makes 2^e + code, or with its sign bit turned 2^e + 2^(bits - 1) + level: level and `more`. scale (level + more) + (-more scale) is then what scale level
 * was, in one rounding: more has 9 bits at most and a scale without steps 11, or more two and a scale 18, so more scale is exact. Where that is not so, or
 * there is an offset, `more` is taken away first (`apart`).
 *
 * Rounding to bf16 takes two operations. Scales and offsets are 2^16 times what they are meant to be, and so is what comes of them, X = 2^16 x. Say x is from
 * p, a power of two, up to 2 p. T, the float nearest to x - X = -X (1 - 2^-16), lies between 2^16 p and 2^17 p and so is a multiple of p 2^-7, as X is. X + T
 * is one then, exact, and the nearest to x: a bf16. A tie goes to even: x then ends in a one and 15 zeros, X is an even multiple of p 2^-7, and the even T
 * makes an even sum. Where T falls short of 2^16 p it may be on a grid twice as fine, but then x is within 2^-16 p of p, and p is nearest on both. Zeros
 * become 0, NaN stays NaN. */
#ifndef QR_KERNELS_CPU_ISA_CODED_AVX2_H
#define QR_KERNELS_CPU_ISA_CODED_AVX2_H

#include "kernels/cpu/isa/coded.h"
#include "kernels/cpu/isa/quant_vectors.h"

#define CODED_LARGER 0x1p16f

VF_FN vf coded_rounded(vf larger)
{
    return vf_add(larger, vf_mul(larger, vf_set1(-0x1.fffep-1f)));
}

/* Inputs of a line, and its bytes. */
VF_FN int coded_line_inputs(const int bits)
{
    return bits == 4 ? 8 : 4;
}

VF_FN int coded_line_bytes(const int bits)
{
    return bits == 4 || bits >= 8 ? 64 : QR_CODED_LINE / 8 * bits;
}

/* ---- codes ---- */

/* Bytes 2 and 3 of the 16 levels as floats, in both halves. */
struct coded_levels {
    vi low, high;
};

VF_FN struct coded_levels coded_levels_from(const int8_t level[16])
{
    const vi a = _mm256_srli_epi32(VI_OF_FLOATS(vf_load_i8_n(level, 8)), 16), b = _mm256_srli_epi32(VI_OF_FLOATS(vf_load_i8_n(level + 8, 8)), 16);
    const vi upper = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
    const vi low = _mm256_packus_epi16(VI_AND(upper, _mm256_set1_epi16(255)), _mm256_srli_epi16(upper, 8)); /* bytes 2 of 0-7, 3 of 0-7; 2 of 8-15, 3 */
    const vi both = _mm256_permute4x64_epi64(low, 0xd8);
    return (struct coded_levels){_mm256_permute2x128_si256(both, both, 0x00), _mm256_permute2x128_si256(both, both, 0x11)};
}

VF_FN struct coded_levels coded_levels_of(const int bits, const uint8_t *panel)
{
    const struct coded_levels none = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    return bits == 4 ? coded_levels_from((const int8_t *)panel + QR_CODED_LEVELS_AT) : none;
}

/* Eight outputs' codes of a line: four bytes in each lane, with 4 bits twice, then in halves of [4 inputs][4 outputs]. */
struct coded_line {
    vi code[2];
};

/* Half a line of less than 8 bits, 4 `bits` bytes, which end where the second load does. An odd lane of 5 bits begins in the middle of a byte. */
VF_FN vi coded_widened(const int bits, const uint8_t *codes)
{
    const __m128i low = _mm_loadu_si128((const __m128i *)(const void *)codes), high = _mm_loadu_si128((const __m128i *)(const void *)(codes + 4 * bits - 16));
    const __m128i six = _mm_setr_epi8(0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12), five = _mm_setr_epi8(0, 1, 2, 3, 2, 3, 4, 5, 5, 6, 7, 8, 7, 8, 9, 10);
    const __m128i first = bits == 6 ? six : five, second = _mm_add_epi8(first, _mm_set1_epi8((char)(16 - 2 * bits)));
    const vi v = VI(shuffle_epi8)(_mm256_set_m128i(high, low), _mm256_set_m128i(second, first));
    return bits == 6 ? v : _mm256_srlv_epi32(v, _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4));
}

VF_FN struct coded_line coded_line_at(const int bits, const uint8_t *codes)
{
    if (bits >= 8)
        return (struct coded_line){{VI_LOAD(codes)}};
    if (bits != 4)
        return (struct coded_line){{coded_widened(bits, codes)}};
    const vi turn = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)), low_half = VI(set1_epi8)(15);
    const vi v = VI(shuffle_epi8)(VI_LOAD(codes), turn);
    return (struct coded_line){{VI_AND(v, low_half), VI_AND(VI(srli_epi16)(v, 4), low_half)}};
}

/* Levels of four inputs (with 4 bits of the line's first or second four), exact or with `more`. */
VF_FN void coded_levels_4(vf level[4], vi code, const struct coded_levels *l)
{
    const vi low = VI(shuffle_epi8)(l->low, code), high = VI(shuffle_epi8)(l->high, code), none = _mm256_setzero_si256();
    const vi first = VI(unpacklo_epi8)(low, high), second = VI(unpackhi_epi8)(low, high);
    level[0] = VI_AS_FLOATS(VI(unpacklo_epi16)(none, first));
    level[1] = VI_AS_FLOATS(VI(unpackhi_epi16)(none, first));
    level[2] = VI_AS_FLOATS(VI(unpacklo_epi16)(none, second));
    level[3] = VI_AS_FLOATS(VI(unpackhi_epi16)(none, second));
}

VF_FN vf coded_more(const int bits, const bool offset)
{
    return vf_set1(bits == 8 ? 0x1p15f + 128 : bits == 5 && offset ? 32 : (float)(3 << (bits - 1)));
}

/* Byte k of each lane becomes byte 1; `biased`: the byte is 128 more than the level, else in two's complement. */
VF_FN vf coded_byte_and_more(vi code, const int k, const bool biased)
{
    const int none = 0x80;
    const vi place = _mm256_broadcastsi128_si256(_mm_setr_epi8((char)none, (char)k, (char)none, (char)none, (char)none, (char)(4 + k), (char)none, (char)none,
                                                               (char)none, (char)(8 + k), (char)none, (char)none, (char)none, (char)(12 + k), (char)none,
                                                               (char)none));
    return VI_AS_FLOATS(_mm256_xor_si256(VI(shuffle_epi8)(code, place), VI(set1_epi32)((127 + 15) << 23 | (biased ? 0 : 1 << 15))));
}

VF_FN vf coded_few_and_more(const int bits, const bool offset, vi code, const int k)
{
    const int at = bits * k, to = 23 - bits, sign = bits == 5 && offset ? 0 : 1 << 22;
    const vi there = at < to ? VI(slli_epi32)(code, to - at) : at > to ? VI(srli_epi32)(code, at - to) : code;
    return VI_AS_FLOATS(_mm256_xor_si256(VI_AND(there, VI(set1_epi32)(((1 << bits) - 1) << to)), VI(set1_epi32)((127 + bits) << 23 | sign)));
}

/* Number k of each output's four E4M3 codes, 2^-8 of what is meant: of two codes in 16 bits one moves to where an f16 has the same sign, exponent and fraction,
 * and processors convert these at full speed, small ones without exponents as well. */
VF_FN vf coded_number(vi codes, const int k)
{
    const vi top = k % 2 ? codes : VI(slli_epi16)(codes, 8), half = VI_AND(VI(srai_epi16)(top, 1), VI(set1_epi16)((int16_t)0xbf80));
    return _mm256_cvtph_ps(k / 2 ? _mm256_extracti128_si256(half, 1) : _mm256_castsi256_si128(half));
}

/* What scales are multiplied with: levels of four inputs; `more` is with them unless `apart`. */
VF_FN void coded_four(const int bits, const bool offset, const bool apart, vf level[4], vi code, const struct coded_levels *l)
{
    if (bits == 4) {
        coded_levels_4(level, code, l);
        return;
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        level[k] = bits == QR_CODED_E4M3 ? coded_number(code, k) : bits == 8 ? coded_byte_and_more(code, k, false) : coded_few_and_more(bits, offset, code, k);
        if (apart && bits != QR_CODED_E4M3)
            level[k] = vf_sub(level[k], coded_more(bits, offset));
    }
}

/* ---- scales ---- */

/* What the weights of a group are made of, for the outputs of a vector, 2^16 times as large; without an offset, what takes `more` back. */
struct coded_scales {
    vf scale, offset;
};

/* From input `in` of the block and output `o` of the panel on. */
VF_FN struct coded_scales coded_scales_at(const int bits, const bool apart, const struct qr_coded_shape *s, const uint8_t *panel, const uint8_t *block,
                                          int32_t in, int32_t o)
{
    if (bits == QR_CODED_E4M3) /* 256: of coded_number */
        return (struct coded_scales){vf_mul(vf_load((const float *)(const void *)block + (in >> s->unit_shift) * QR_PANEL + o), vf_set1(256 * CODED_LARGER)),
                                     vf_zero()};
    const vf factor = vf_mul(vf_load((const float *)(const void *)panel + o), vf_set1(CODED_LARGER));
    const uint16_t *unit = (const uint16_t *)(const void *)block + (in >> s->unit_shift) * QR_PANEL + o;
    const int8_t *step = (const int8_t *)block + (in >> s->group_shift) * QR_PANEL + o;
    struct coded_scales c = {vf_mul(vf_load_f16_n(unit, VF_LEN), factor), vf_zero()};
    if (s->f.offset)
        c.offset = vf_mul(vf_load_f16_n(unit + s->offset_at / 2, VF_LEN), factor);
    if (s->f.steps)
        c.scale = vf_mul(c.scale, vf_load_i8_n(step + s->step_at, VF_LEN));
    if (s->f.steps && s->f.offset)
        c.offset = vf_mul(c.offset, vf_load_i8_n(step + s->offset_step_at, VF_LEN));
    if (s->f.zero)
        c.offset = vf_fnma(c.scale, vf_load_i8_n(step + s->offset_step_at, VF_LEN), vf_zero());
    if (bits != 4 && !apart)
        c.offset = vf_fnma(c.scale, coded_more(bits, false), vf_zero());
    return c;
}

/* A block's scales, asked for `ahead` bytes before their time. */
VF_FN void coded_ask_scales(const struct qr_coded_shape *s, const uint8_t *block, int64_t ahead)
{
    for (int32_t at = 0; at < s->codes_at; at += 64)
        _mm_prefetch((const char *)block + at + ahead, _MM_HINT_T0);
}

/* DO with the bits of format f, whether it has offsets and whether levels are taken apart, all known when compiling. */
#define CODED_BY_FORMAT(f, DO)                             \
    do {                                                   \
        const bool apart_ = (f).offset;                    \
        if ((f).e4m3)                                      \
            DO(QR_CODED_E4M3, false, false);               \
        else if ((f).bits == 4)                            \
            DO(4, false, false);                           \
        else if ((f).bits == 5 && apart_)                  \
            DO(5, true, true);                             \
        else if ((f).bits == 5)                            \
            DO(5, false, false);                           \
        else if ((f).bits == 6 && apart_)                  \
            DO(6, true, true);                             \
        else if ((f).bits == 6)                            \
            DO(6, false, false);                           \
        else if (apart_ || (f).steps)                      \
            DO(8, true, true);                             \
        else                                               \
            DO(8, false, false);                           \
    } while (0)

/* ---- panels ---- */

/* Two rows of floats as pairs of bf16, which they are. */
VF_FN vi coded_pair(vf first, vf second)
{
    return VI_OR(VI(srli_epi32)(VI_OF_FLOATS(first), 16), VI_OF_FLOATS(second));
}

/* n inputs from k on, which share scales: [n / 2][16][2] of bf16. */
VF_FN void coded_unpack_run(const int bits, const bool offset, const bool apart, uint8_t *dst, const struct qr_coded_shape *s, const uint8_t *panel, int32_t k,
                            int32_t n, const struct coded_levels *l, int64_t ahead)
{
    const int line_k = coded_line_inputs(bits), line_bytes = coded_line_bytes(bits);
    const uint8_t *block = qr_coded_block(s, panel, k), *codes = block + qr_coded_codes_at(s, k);
    const int32_t in = k & ((1 << s->block_shift) - 1);
    if (in == 0)
        coded_ask_scales(s, block, ahead);
    for (int32_t j = 0; j < QR_PANEL / VF_LEN; j++) {
        const struct coded_scales c = coded_scales_at(bits, apart, s, panel, block, in, j * VF_LEN);
        uint8_t *to = dst + j * VI_BYTES;
        for (int32_t i = 0; i < n / line_k; i++) {
            const uint8_t *w = codes + i * line_bytes + j * (line_bytes / 2);
            const struct coded_line line = coded_line_at(bits, w);
            if (j == 0)
                _mm_prefetch((const char *)w + ahead, _MM_HINT_T1);
            for (int h = 0; h < line_k / 4; h++, to += 128) {
                vf level[4] QR_UNINITIALIZED;
                coded_four(bits, offset, apart, level, line.code[h], l);
#pragma GCC unroll 4
                for (int t = 0; t < 4; t++)
                    level[t] = coded_rounded(vf_fma(level[t], c.scale, c.offset));
                VI_STORE(to, coded_pair(level[0], level[1]));
                VI_STORE(to + 64, coded_pair(level[2], level[3]));
            }
        }
    }
}

/* Groups of 32 inputs [block, block + n) of a panel as bf16, [k / 2][16][2], from dst's begin on. Weights `ahead` bytes further on are asked for. */
static inline void qr_unpack_coded(uint8_t *dst, const struct qr_coded_shape *s, const uint8_t *panel, int32_t block, int32_t n, int64_t ahead)
{
    const int32_t run = s->f.group < 32 ? s->f.group : 32;
#define UNPACK(bits, offset, apart)                                                                              \
    do {                                                                                                         \
        const struct coded_levels l = coded_levels_of(bits, panel);                                              \
        for (int32_t k = block * 32; k < (block + n) * 32; k += run, dst += run * QR_PANEL * 2)                  \
            coded_unpack_run(bits, offset, apart, dst, s, panel, k, run, &l, ahead);                             \
    } while (0)
    CODED_BY_FORMAT(s->f, UNPACK);
#undef UNPACK
}

#endif
