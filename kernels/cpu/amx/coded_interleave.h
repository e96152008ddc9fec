/* coded_interleave.h - codes of 16 outputs and 32 inputs into a panel's order (isa/coded/coded.h) where tiles are made
 * of them. For isa/coded/pack.c. */
#ifndef QR_KERNELS_CPU_AMX_CODED_INTERLEAVE_H
#define QR_KERNELS_CPU_AMX_CODED_INTERLEAVE_H

#include "kernels/cpu/isa/coded/lines.h"

/* What codes are levels less of; with 4 bits a table says what codes are. */
#define INTERLEAVE_LEAST(f) ((f).bits < 4 ? qr_coded_least(f) : 0)

/* Lines of 6 bits of eight outputs, of outputs i and i + 4 in v[i]: every other line is the other outputs' (coded.h).
 * A line's 8 outputs of 6 bytes come as 0, 1, 4, 5, 2, 3, 6, 7, two words of three bytes each. */
VF_FN void interleave_6(uint8_t *to, const __m512i v[4])
{
    static const uint8_t order[64] = {0,  1,  2,  4,  5,  6,  8,  9,  10, 12, 13, 14, 32, 33, 34, 36,
                                      37, 38, 40, 41, 42, 44, 45, 46, 16, 17, 18, 20, 21, 22, 24, 25,
                                      26, 28, 29, 30, 48, 49, 50, 52, 53, 54, 56, 57, 58, 60, 61, 62};
    const __m512i pairs = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
    const __m512i in = _mm512_loadu_si512(order);
    __m512i x[4];
    for (int i = 0; i < 4; i++) {
        const __m512i codes = _mm512_shuffle_epi8(v[i], pairs);
        x[i] = _mm512_madd_epi16(_mm512_maddubs_epi16(codes, _mm512_set1_epi16(1 | 1 << 14)),
                                 _mm512_set1_epi32(1 | 1 << 28));
    }
    const __m512i a = _mm512_unpacklo_epi64(x[0], x[1]),
                  b = _mm512_unpackhi_epi64(x[0], x[1]); /* inputs / 8 even, odd */
    const __m512i c = _mm512_unpacklo_epi64(x[2], x[3]), d = _mm512_unpackhi_epi64(x[2], x[3]);
    const __m512i line[4] = {_mm512_shuffle_i32x4(a, c, 0x88), _mm512_shuffle_i32x4(b, d, 0x88),
                             _mm512_shuffle_i32x4(a, c, 0xdd), _mm512_shuffle_i32x4(b, d, 0xdd)};
    for (int i = 0; i < 4; i++)
        _mm512_mask_storeu_epi8(to + i * 96, 0xffffffffffff, _mm512_permutexvar_epi8(in, line[i]));
}

/* A line of 5 bits of two outputs, one in each half of v. */
VF_FN void interleave_5(uint8_t *to, __m512i v)
{
    static const uint8_t order[64] = {0,  1,  2,  3,  4,  8,  9,  10, 11, 12, 16, 17, 18, 19, 20, 24, 25, 26, 27, 28,
                                      32, 33, 34, 35, 36, 40, 41, 42, 43, 44, 48, 49, 50, 51, 52, 56, 57, 58, 59, 60};
    const __m512i by_turns = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    const __m512i twos = _mm512_maddubs_epi16(v, _mm512_set1_epi16(1 | 1 << 13));
    const __m512i x = _mm512_permutexvar_epi32(by_turns, _mm512_madd_epi16(twos, _mm512_set1_epi32(1 | 1 << 26)));
    const __m512i joined = _mm512_ternarylogic_epi64(_mm512_set1_epi64(0xfffff), x, _mm512_srli_epi64(x, 12),
                                                     0xca); /* the first 20 bits are x's */
    _mm512_mask_storeu_epi8(to, 0xffffffffff, _mm512_permutexvar_epi8(_mm512_loadu_si512(order), joined));
}

VF_FN __m512i interleave_both(__m256i a, __m256i b)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

/* Eight bytes of a by turns with eight of b (8 bits), four bytes (E4M3 codes), one (halves of bytes): the first and
 * second 32 bytes of that. */
#define INTERLEAVE_BY_TURNS(to, lo, hi)                                                                                \
    do {                                                                                                               \
        _mm256_storeu_si256((__m256i *)(void *)(to), _mm256_permute2x128_si256(lo, hi, 0x20));                         \
        _mm256_storeu_si256((__m256i *)(void *)((to) + QR_CODED_LINE / 2), _mm256_permute2x128_si256(lo, hi, 0x31));   \
    } while (0)

/* Two outputs to a line of E4M3 codes: the upper three bits of the exponent, the sign, the lowest bit of the exponent,
 * the mantissa. */
VF_FN __m256i interleave_e4m3(__m256i v)
{
    const __m256i low = _mm256_and_si256(v, _mm256_set1_epi8(0x0f)),
                  sign = _mm256_and_si256(_mm256_srli_epi16(v, 3), _mm256_set1_epi8(0x10));
    return _mm256_or_si256(_mm256_or_si256(low, sign),
                           _mm256_and_si256(_mm256_slli_epi16(v, 1), _mm256_set1_epi8((char)0xe0)));
}

/* Two outputs' parts of lines of 8 bits, 8 inputs of which lie in every other line. */
VF_FN void interleave_8(uint8_t *to, __m256i a, __m256i b)
{
    const __m256i pairs =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
    const __m256i lo = _mm256_unpacklo_epi64(_mm256_shuffle_epi8(a, pairs), _mm256_shuffle_epi8(b, pairs));
    const __m256i hi = _mm256_unpackhi_epi64(_mm256_shuffle_epi8(a, pairs), _mm256_shuffle_epi8(b, pairs));
    const __m128i part[4] = {_mm256_castsi256_si128(lo), _mm256_castsi256_si128(hi), _mm256_extracti128_si256(lo, 1),
                             _mm256_extracti128_si256(hi, 1)};
    for (int i = 0; i < 4; i++)
        _mm_storeu_si128((__m128i *)(void *)(to + 2 * i * QR_CODED_LINE), part[i]);
}

/* Four lines of 4 bits, of four outputs each. */
VF_FN void interleave_4(uint8_t *lines, const __m256i v[QR_PANEL])
{
    for (int32_t quad = 0; quad < LINES_32; quad++, v += 4) {
        const __m256i ab = _mm256_or_si256(v[0], _mm256_slli_epi16(v[1], 4)),
                      cd = _mm256_or_si256(v[2], _mm256_slli_epi16(v[3], 4));
        INTERLEAVE_BY_TURNS(lines + quad * QR_CODED_LINE, _mm256_unpacklo_epi8(ab, cd), _mm256_unpackhi_epi8(ab, cd));
    }
}

/* Of 2 or 3 bits. */
VF_FN void interleave_low(uint8_t *to, const __m256i v[QR_PANEL], const int bits)
{
    uint8_t lines[LINES_32 * QR_CODED_LINE] QR_UNINITIALIZED;
    interleave_4(lines, v);
    for (int32_t half = 0; half < QR_CODED_LINE; half += 32) {
        __m256i l[LINES_32];
        for (int32_t i = 0; i < LINES_32; i++)
            l[i] = _mm256_loadu_si256((const __m256i *)(const void *)(lines + i * QR_CODED_LINE + half));
        lines_store_low(to + half, l, bits);
    }
}

#define INTERLEAVED QR_PANEL /* outputs at a time */

/* 32 codes of each of 16 outputs, none above its bits, as the panel has them from `to` on. */
static void interleave_32(uint8_t *to, struct qr_coded_format f, const __m256i v[INTERLEAVED], int32_t first)
{
    QR_ASSERT(first == 0);
    if (f.bits == 2)
        interleave_low(to, v, 2);
    else if (f.bits == 3)
        interleave_low(to, v, 3);
    else if (f.bits == 4)
        interleave_4(to, v);
    for (int32_t o = 0; f.bits == 5 && o < QR_PANEL; o += 2)
        interleave_5(to + 20 * o, interleave_both(v[o], v[o + 1]));
    for (int32_t o = 0; f.bits == 6 && o < QR_PANEL; o += 8) {
        const __m512i x[4] = {interleave_both(v[o], v[o + 4]), interleave_both(v[o + 1], v[o + 5]),
                              interleave_both(v[o + 2], v[o + 6]), interleave_both(v[o + 3], v[o + 7])};
        interleave_6(to + 6 * o, x);
    }
    for (int32_t o = 0; f.bits == 8 && o < QR_PANEL; o += 2) {
        const __m256i a = interleave_e4m3(v[o]), b = interleave_e4m3(v[o + 1]);
        if (f.e4m3)
            INTERLEAVE_BY_TURNS(to + o / 2 * QR_CODED_LINE, _mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        else
            interleave_8(to + o / 8 * QR_CODED_LINE + o % 8 * 8, v[o], v[o + 1]);
    }
}

#endif
