/* e4m3.h - E4M3 codes of one panel (coded.h) as floats, a vector of outputs at a time, and what scales make of them:
 * exact but for the roundings that a weight has (kernels.h, linear_pack_coded), so the bits are ref's. Included by
 * files that are compiled for avx2 or avx512. Other codes are multiplied as they are (q16.h).
 *
 * Rounding to bf16 takes two operations. Scales are 2^16 times what they are meant to be, and so is what comes of
 * them, X = 2^16 x. Say x is from p, a power of two, up to 2 p. T, the float nearest to x - X = -X (1 - 2^-16), lies
 * between 2^16 p and 2^17 p and so is a multiple of p 2^-7, as X is. X + T is one then, exact, and the nearest to x: a
 * bf16. A tie goes to even: x then ends in a one and 15 zeros, X is an even multiple of p 2^-7, and the even T makes
 * an even sum. Where T falls short of 2^16 p it may be on a grid twice as fine, but then x is within 2^-16 p of p, and
 * p is nearest on both. Zeros become 0, NaN stays NaN. */
#ifndef QR_KERNELS_CPU_ISA_CODED_E4M3_H
#define QR_KERNELS_CPU_ISA_CODED_E4M3_H

#include "kernels/cpu/isa/coded/coded.h"
#include "kernels/cpu/isa/quant/vectors.h"

#define E4M3_LARGER 0x1p16f

VF_FN vf e4m3_rounded(vf larger)
{
    return vf_add(larger, vf_mul(larger, vf_set1(-0x1.fffep-1f)));
}

/* Four codes each of outputs o on, from a line: two in the lower half of the vector, two in the upper one. */
VF_FN vi e4m3_codes(const uint8_t *line, int o)
{
#ifdef QR_ISA_avx2
    const __m128i first = _mm_loadu_si128((const __m128i *)(const void *)(line + 2 * o));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(first),
                                   _mm_loadu_si128((const __m128i *)(const void *)(line + QR_CODED_LINE / 2 + 2 * o)),
                                   1);
#else
    return VI_LOAD(line + o);
#endif
}

/* Number k of each output's four, 2^-8 of what is meant: of two codes in 16 bits one moves to where an f16 has the
 * same sign, exponent and fraction, and processors convert these at full speed, small ones without exponents as well.
 * */
VF_FN vf e4m3_number(vi codes, const int k)
{
    const vi top = k % 2 ? codes : VI(slli_epi16)(codes, 8),
             half = VI_AND(VI(srai_epi16)(top, 1), VI(set1_epi16)((int16_t)0xbf80));
#ifdef QR_ISA_avx2
    return _mm256_cvtph_ps(k / 2 ? _mm256_extracti128_si256(half, 1) : _mm256_castsi256_si128(half));
#else
    return _mm512_cvtph_ps(k / 2 ? _mm512_extracti64x4_epi64(half, 1) : _mm512_castsi512_si256(half));
#endif
}

/* From input `in` of the block and output `o` of the panel on: 2^16 times what is meant, and 2^8 for e4m3_number. */
VF_FN vf e4m3_scale(const struct qr_coded_shape *s, const uint8_t *block, int32_t in, int32_t o)
{
    return vf_mul(vf_load((const float *)(const void *)block + (in >> s->unit_shift) * QR_PANEL + o),
                  vf_set1(256 * E4M3_LARGER));
}

/* Two rows of floats as pairs of bf16, which they are. */
VF_FN vi e4m3_pair(vf first, vf second)
{
    return VI_OR(VI(srli_epi32)(VI_OF_FLOATS(first), 16), VI_OF_FLOATS(second));
}

/* 32 inputs from k on, as [16][16][2] of bf16. */
VF_FN void e4m3_unpack_32(uint8_t *dst, const struct qr_coded_shape *s, const uint8_t *panel, int32_t k, int64_t ahead)
{
    const uint8_t *block = qr_coded_block(s, panel, k), *codes = block + qr_coded_codes_at(s, k);
    const int32_t in = k & ((1 << s->block_shift) - 1);
    if (in == 0)
        qr_coded_prefetch_scales(s, block, ahead);
    for (int32_t o = 0; o < QR_PANEL; o += VF_LEN) {
        const vf scale = e4m3_scale(s, block, in, o);
        uint8_t *to = dst + o * 4;
        for (int32_t i = 0; i < 8; i++, to += 2 * QR_CODED_LINE) {
            const vi code = e4m3_codes(codes + i * QR_CODED_LINE, o);
            vf number[4] QR_UNINITIALIZED;
            if (o == 0)
                _mm_prefetch((const char *)codes + i * QR_CODED_LINE + ahead, _MM_HINT_T1);
#pragma GCC unroll 4
            for (int t = 0; t < 4; t++)
                number[t] = e4m3_rounded(vf_mul(e4m3_number(code, t), scale));
            VI_STORE(to, e4m3_pair(number[0], number[1]));
            VI_STORE(to + QR_CODED_LINE, e4m3_pair(number[2], number[3]));
        }
    }
}

/* Groups of 32 inputs [block, block + n) of a panel as bf16, [k / 2][16][2], from dst's begin on. Prefetches weights
 * `ahead` bytes further on. */
static inline void qr_e4m3_unpack(uint8_t *dst, const struct qr_coded_shape *s, const uint8_t *panel, int32_t block,
                                  int32_t n, int64_t ahead)
{
    QR_ASSERT(s->f.e4m3);
    for (int32_t i = 0; i < n; i++)
        e4m3_unpack_32(dst + (size_t)i * 32 * QR_PANEL * 2, s, panel, (block + i) * 32, ahead);
}

#endif
