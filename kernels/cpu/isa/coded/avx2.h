/* avx2.h - E4M3 codes of one panel (coded.h) as floats, eight outputs to a vector, and what scales make of them. Included
 * by files that are compiled for avx2. All of it is exact but for the roundings that a weight has (kernels.h,
 * linear_pack_coded), so the bits are ref's. Other codes are multiplied as they are (whole.h).
 *
 * Rounding to bf16 takes two operations. Scales are 2^16 times what they are meant to be, and so is what comes of them, X = 2^16 x. Say x is from
 * p, a power of two, up to 2 p. T, the float nearest to x - X = -X (1 - 2^-16), lies between 2^16 p and 2^17 p and so is a multiple of p 2^-7, as X is. X + T
 * is one then, exact, and the nearest to x: a bf16. A tie goes to even: x then ends in a one and 15 zeros, X is an even multiple of p 2^-7, and the even T
 * makes an even sum. Where T falls short of 2^16 p it may be on a grid twice as fine, but then x is within 2^-16 p of p, and p is nearest on both. Zeros
 * become 0, NaN stays NaN. */
#ifndef QR_KERNELS_CPU_ISA_CODED_AVX2_H
#define QR_KERNELS_CPU_ISA_CODED_AVX2_H

#include "kernels/cpu/isa/coded/apart.h"

#define CODED_LARGER 0x1p16f

VF_FN vf coded_rounded(vf larger)
{
    return vf_add(larger, vf_mul(larger, vf_set1(-0x1.fffep-1f)));
}

/* In place of bits, known to the compiler: 5 or 6 and this, of codes as avx2 packs them (apart.h); without it, as avx512 does, whose products are
 * avx2's. */
#define CODED_APART 16

/* Inputs of a line, and its bytes; of 2, 3 and CODED_APART bits, of what they are with 4. */
VF_FN int coded_line_inputs(const int bits)
{
    return bits <= 4 || bits > CODED_APART ? 8 : 4;
}

VF_FN int coded_line_bytes(const int bits)
{
    return bits <= 4 || bits >= 8 ? 64 : QR_CODED_LINE / 8 * bits;
}

/* Whether lines of 32 inputs share what they are of, and how many they then are in memory. */
VF_FN bool coded_lines_share(const int bits)
{
    return bits < 4 || bits > CODED_APART;
}

VF_FN int coded_lines_32(const int bits)
{
    return bits < 4 ? bits : bits - CODED_APART;
}

/* ---- codes ---- */

/* Number k of each output's four E4M3 codes, 2^-8 of what is meant: of two codes in 16 bits one moves to where an f16 has the same sign, exponent and fraction,
 * and processors convert these at full speed, small ones without exponents as well. */
VF_FN vf coded_number(vi codes, const int k)
{
    const vi top = k % 2 ? codes : VI(slli_epi16)(codes, 8), half = VI_AND(VI(srai_epi16)(top, 1), VI(set1_epi16)((int16_t)0xbf80));
    return _mm256_cvtph_ps(k / 2 ? _mm256_extracti128_si256(half, 1) : _mm256_castsi256_si128(half));
}

/* ---- scales ---- */

/* Of E4M3 codes, from input `in` of the block and output `o` of the panel on: 2^16 times what is meant, and 2^8 for coded_number. */
VF_FN vf coded_scale_at(const struct qr_coded_shape *s, const uint8_t *block, int32_t in, int32_t o)
{
    return vf_mul(vf_load((const float *)(const void *)block + (in >> s->unit_shift) * QR_PANEL + o), vf_set1(256 * CODED_LARGER));
}

/* A block's scales, asked for `ahead` bytes before their time. */
VF_FN void coded_ask_scales(const struct qr_coded_shape *s, const uint8_t *block, int64_t ahead)
{
    for (int32_t at = 0; at < s->codes_at; at += 64)
        _mm_prefetch((const char *)block + at + ahead, _MM_HINT_T0);
}

/* ---- panels ---- */

/* Two rows of floats as pairs of bf16, which they are. */
VF_FN vi coded_pair(vf first, vf second)
{
    return VI_OR(VI(srli_epi32)(VI_OF_FLOATS(first), 16), VI_OF_FLOATS(second));
}

/* 32 inputs of E4M3 codes from k on, as [16][16][2] of bf16. */
VF_FN void coded_unpack_32(uint8_t *dst, const struct qr_coded_shape *s, const uint8_t *panel, int32_t k, int64_t ahead)
{
    const uint8_t *block = qr_coded_block(s, panel, k), *codes = block + qr_coded_codes_at(s, k);
    const int32_t in = k & ((1 << s->block_shift) - 1);
    if (in == 0)
        coded_ask_scales(s, block, ahead);
    for (int32_t j = 0; j < QR_PANEL / VF_LEN; j++) {
        const vf scale = coded_scale_at(s, block, in, j * VF_LEN);
        uint8_t *to = dst + j * VI_BYTES;
        for (int32_t i = 0; i < 8; i++, to += 128) {
            const uint8_t *w = codes + i * QR_CODED_LINE + j * VI_BYTES;
            const vi code = VI_LOAD(w);
            vf number[4] QR_UNINITIALIZED;
            if (j == 0)
                _mm_prefetch((const char *)w + ahead, _MM_HINT_T1);
#pragma GCC unroll 4
            for (int t = 0; t < 4; t++)
                number[t] = coded_rounded(vf_mul(coded_number(code, t), scale));
            VI_STORE(to, coded_pair(number[0], number[1]));
            VI_STORE(to + 64, coded_pair(number[2], number[3]));
        }
    }
}

/* Groups of 32 inputs [block, block + n) of a panel of E4M3 codes as bf16, [k / 2][16][2], from dst's begin on. Weights `ahead` bytes further on are asked
 * for. */
static inline void qr_unpack_coded(uint8_t *dst, const struct qr_coded_shape *s, const uint8_t *panel, int32_t block, int32_t n, int64_t ahead)
{
    QR_ASSERT(s->f.e4m3);
    for (int32_t i = 0; i < n; i++)
        coded_unpack_32(dst + (size_t)i * 32 * QR_PANEL * 2, s, panel, (block + i) * 32, ahead);
}

#endif
