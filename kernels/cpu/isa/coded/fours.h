/* fours.h - codes of 2 and 3 bits: 32 inputs of a panel are the four lines that they would be with 4 bits (coded.h), joined to two or three, so that a
 * few operations on registers make what 4 bits are and whatever is known of these goes on from there. Included by files that are compiled for a level.
 *     2 bits   line i is L[2 i] | L[2 i + 1] << 2
 *     3 bits   line i is L[i] | (L[3] & 1 << i, in each half of a byte) << (3 - i) */
#ifndef QR_KERNELS_CPU_ISA_CODED_FOURS_H
#define QR_KERNELS_CPU_ISA_CODED_FOURS_H

#include <immintrin.h>

#include "kernels/cpu/isa/coded/coded.h"
#include "kernels/cpu/isa/quant/vectors.h"

#define FOURS_LINES 4 /* of 32 inputs */

VF_FN vi fours_moved(vi x, const int right, const int mask)
{
    return VI_AND(right > 0 ? VI(srli_epi16)(x, (unsigned)right) : x, VI(set1_epi8)((char)mask));
}

/* L[3] of 3 bits. codes: as below. */
VF_FN vi fours_fourth(const uint8_t *codes)
{
    const vi first = fours_moved(VI_LOAD(codes), 3, 0x11), second = fours_moved(VI_LOAD(codes + QR_CODED_LINE), 2, 0x22);
    return VI_OR(VI_OR(first, second), fours_moved(VI_LOAD(codes + 2 * QR_CODED_LINE), 1, 0x44));
}

/* L[i], known to the compiler, or a register's part of it. codes: where the first line has that part. */
VF_FN vi fours_line(const int bits, const uint8_t *codes, const int i)
{
    if (bits == 2)
        return fours_moved(VI_LOAD(codes + i / 2 * QR_CODED_LINE), i % 2 * 2, 0x33);
    return i == 3 ? fours_fourth(codes) : fours_moved(VI_LOAD(codes + i * QR_CODED_LINE), 0, 0x77);
}

VF_FN __m256i fours_halves_of(__m256i x, const int mask, const int left)
{
    return _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi8((char)mask)), left);
}

/* Half a line each: `to` gets lines of `bits` bits of l[0] to l[3]. join: other codes of these lines are there already, and zeros where these go. */
VF_FN void fours_store(uint8_t *to, const __m256i l[FOURS_LINES], const int bits, bool join)
{
    __m256i v[3];
    v[0] = _mm256_or_si256(l[0], bits == 2 ? _mm256_slli_epi16(l[1], 2) : fours_halves_of(l[3], 0x11, 3));
    v[1] = bits == 2 ? _mm256_or_si256(l[2], _mm256_slli_epi16(l[3], 2)) : _mm256_or_si256(l[1], fours_halves_of(l[3], 0x22, 2));
    v[2] = _mm256_or_si256(l[2], fours_halves_of(l[3], 0x44, 1));
    for (int32_t i = 0; i < bits; i++) {
        __m256i *at = (__m256i *)(void *)(to + i * QR_CODED_LINE);
        _mm256_storeu_si256(at, join ? _mm256_or_si256(v[i], _mm256_loadu_si256(at)) : v[i]);
    }
}

/* 32 n inputs' lines of 4 bits at `fours`, whose codes are below 2^bits. */
static inline void fours_join(uint8_t *to, const uint8_t *fours, int32_t bits, int64_t n, bool join)
{
    for (int64_t i = 0; i < n; i++, to += bits * QR_CODED_LINE, fours += FOURS_LINES * QR_CODED_LINE)
        for (int32_t half = 0; half < QR_CODED_LINE; half += 32) {
            __m256i l[FOURS_LINES];
            for (int32_t j = 0; j < FOURS_LINES; j++)
                l[j] = _mm256_loadu_si256((const __m256i *)(const void *)(fours + j * QR_CODED_LINE + half));
            if (bits == 2)
                fours_store(to + half, l, 2, join);
            else
                fours_store(to + half, l, 3, join);
        }
}

/* Of 32 inputs: byte `at` of L[i]. */
static inline uint8_t fours_byte(const uint8_t *codes, int32_t bits, int32_t i, int32_t at)
{
    if (bits == 2)
        return codes[i / 2 * QR_CODED_LINE + at] >> i % 2 * 2 & 0x33;
    if (i < 3)
        return codes[i * QR_CODED_LINE + at] & 0x77;
    return (codes[at] >> 3 & 0x11) | (codes[QR_CODED_LINE + at] >> 2 & 0x22) | (codes[2 * QR_CODED_LINE + at] >> 1 & 0x44);
}

#endif
