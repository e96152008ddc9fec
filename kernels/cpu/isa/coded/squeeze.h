/* squeeze.h - lines of 64 levels (coded.h) from a byte for each to 5 or 6 bits, and single ones back. Included by files that are compiled
 * for a level. */
#ifndef QR_KERNELS_CPU_ISA_CODED_SQUEEZE_H
#define QR_KERNELS_CPU_ISA_CODED_SQUEEZE_H

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/isa/coded/coded.h"

/* Code c of a line: a level, but for 4 bits, whose codes lie another way. */
static inline int32_t coded_code_in(const uint8_t *line, struct qr_coded_format f, int32_t c)
{
    const int32_t bit = c * f.bits, at = bit / 8, shift = bit % 8;
    const uint32_t bytes = (uint32_t)line[at] | (shift + f.bits > 8 ? (uint32_t)line[at + 1] << 8 : 0), code = bytes >> shift & ((1u << f.bits) - 1);
    return (int32_t)((code - (uint32_t)qr_coded_least(f)) & ((1u << f.bits) - 1)) + qr_coded_least(f);
}

/* Neighbours are joined two by two: bytes, words, and where a word of 20 bits would end within a byte, these as well. */
#ifdef __AVX512BW__
static inline void coded_squeeze_codes(uint8_t *to, __m512i x, const int bits)
{
    const __m128i three = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const __m128i five = _mm_setr_epi8(0, 1, 2, 3, 4, 8, 9, 10, 11, 12, -1, -1, -1, -1, -1, -1);
    const __m512i words6 = _mm512_set_epi16(0, 0, 0, 0, 0, 0, 0, 0, 29, 28, 27, 26, 25, 24, 21, 20, 19, 18, 17, 16, 13, 12, 11, 10, 9, 8, 5, 4, 3, 2, 1, 0);
    const __m512i words5 = _mm512_set_epi16(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 28, 27, 26, 25, 24, 20, 19, 18, 17, 16, 12, 11, 10, 9, 8, 4, 3, 2, 1, 0);
    const __m512i codes = _mm512_and_si512(x, _mm512_set1_epi8((char)((1 << bits) - 1)));
    const __m512i twos = _mm512_maddubs_epi16(codes, _mm512_set1_epi16((int16_t)(1 | 1 << (8 + bits))));
    __m512i v = _mm512_madd_epi16(twos, _mm512_set1_epi32(1 | 1 << (16 + 2 * bits)));
    if (bits == 5)
        v = _mm512_ternarylogic_epi64(v, _mm512_srli_epi64(v, 12), _mm512_set1_epi64(0xfffff), 0xe4); /* lower 20 bits of the first, else of the second */
    v = _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(bits == 6 ? three : five));
    _mm512_mask_storeu_epi8(to, (1ull << 8 * bits) - 1, _mm512_permutexvar_epi16(bits == 6 ? words6 : words5, v));
}

static inline void coded_squeeze_line(uint8_t *to, const uint8_t *from, const int bits)
{
    coded_squeeze_codes(to, _mm512_loadu_si512(from), bits);
}
#else
static inline void coded_squeeze_line(uint8_t *to, const uint8_t *from, const int bits)
{
    const __m256i three = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    const __m256i five = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 8, 9, 10, 11, 12, -1, -1, -1, -1, -1, -1));
    for (int half = 0; half < 2; half++, to += 4 * bits, from += 32) {
        const __m256i codes = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)from), _mm256_set1_epi8((char)((1 << bits) - 1)));
        const __m256i twos = _mm256_maddubs_epi16(codes, _mm256_set1_epi16((int16_t)(1 | 1 << (8 + bits))));
        __m256i v = _mm256_madd_epi16(twos, _mm256_set1_epi32(1 | 1 << (16 + 2 * bits)));
        if (bits == 5) {
            const __m256i low = _mm256_set1_epi64x(0xfffff);
            v = _mm256_or_si256(_mm256_and_si256(low, v), _mm256_andnot_si256(low, _mm256_srli_epi64(v, 12)));
        }
        uint8_t quarters[32];
        _mm256_storeu_si256((__m256i *)(void *)quarters, _mm256_shuffle_epi8(v, bits == 6 ? three : five));
        memcpy(to, quarters, (size_t)(2 * bits));
        memcpy(to + 2 * bits, quarters + 16, (size_t)(2 * bits));
    }
}
#endif

/* join: other codes of these lines are there already, and zeros where these go. */
static inline void coded_squeeze(uint8_t *lines, const uint8_t *bytes, int32_t bits, int64_t n_lines, bool join)
{
    uint8_t line[QR_CODED_LINE];
    for (int64_t i = 0; i < n_lines; i++, bytes += QR_CODED_LINE, lines += 8 * bits) {
        if (bits == 6)
            coded_squeeze_line(join ? line : lines, bytes, 6);
        else
            coded_squeeze_line(join ? line : lines, bytes, 5);
        for (int32_t at = 0; join && at < 8 * bits; at++)
            lines[at] |= line[at];
    }
}

#endif
