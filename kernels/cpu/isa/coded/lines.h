/* lines.h - codes of 2, 3 and 5 bits as parts of the lines that 4 bits have (coded.h). Included by files that are
 * compiled for a level.
 *
 * 32 inputs of a panel are four lines L[0] to L[3] of 64 bytes, with a code in each half of a byte:
 *     2 bits   two lines: line i is L[2 i] | L[2 i + 1] << 2
 *     3 bits   three lines: line i is L[i] | (L[3] & 1 << i, in each half of a byte) << (3 - i)
 *     5 bits   (avx2) four lines of the lower four bits, and one of the fifth bits: that of line i is bit i of the same half of the same byte
 * So a few operations on registers make of them what 4 bits are, and all else is common. Codes are levels less the
 * least. */
#ifndef QR_KERNELS_CPU_ISA_CODED_LINES_H
#define QR_KERNELS_CPU_ISA_CODED_LINES_H

#include <immintrin.h>

#include "kernels/cpu/isa/coded/coded.h"
#include "kernels/cpu/isa/quant/vectors.h"

#define LINES_32 4 /* lines of 32 inputs with 4 bits */

VF_FN vi lines_moved(vi x, const int right, const int mask)
{
    return VI_AND(right > 0 ? VI(srli_epi16)(x, (unsigned)right) : x, VI(set1_epi8)((char)mask));
}

/* L[3] of 3 bits. codes: as below. */
VF_FN vi lines_fourth(const uint8_t *codes)
{
    const vi first = lines_moved(VI_LOAD(codes), 3, 0x11),
             second = lines_moved(VI_LOAD(codes + QR_CODED_LINE), 2, 0x22);
    return VI_OR(VI_OR(first, second), lines_moved(VI_LOAD(codes + 2 * QR_CODED_LINE), 1, 0x44));
}

VF_FN __m256i lines_halves(__m256i x, const int mask, const int left)
{
    return _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi8((char)mask)), left);
}

/* Half a line each: `to` gets lines of 2 or 3 bits of l[0] to l[3]. */
VF_FN void lines_store_low(uint8_t *to, const __m256i l[LINES_32], const int bits)
{
    __m256i v[3];
    v[0] = _mm256_or_si256(l[0], bits == 2 ? _mm256_slli_epi16(l[1], 2) : lines_halves(l[3], 0x11, 3));
    v[1] = bits == 2 ? _mm256_or_si256(l[2], _mm256_slli_epi16(l[3], 2))
                     : _mm256_or_si256(l[1], lines_halves(l[3], 0x22, 2));
    v[2] = _mm256_or_si256(l[2], lines_halves(l[3], 0x44, 1));
    for (int32_t i = 0; i < bits; i++)
        _mm256_storeu_si256((__m256i *)(void *)(to + i * QR_CODED_LINE), v[i]);
}

#ifdef QR_ISA_avx2
/* L[i] of 2 or 3 bits, known to the compiler, or a register's part of it. codes: where the first line has that part. */
VF_FN vi lines_low(const int bits, const uint8_t *codes, const int i)
{
    if (bits == 2)
        return lines_moved(VI_LOAD(codes + i / 2 * QR_CODED_LINE), i % 2 * 2, 0x33);
    return i == 3 ? lines_fourth(codes) : lines_moved(VI_LOAD(codes + i * QR_CODED_LINE), 0, 0x77);
}

#define LINES_UPPER (LINES_32 * QR_CODED_LINE) /* where the bits above the lower four begin, of 32 inputs */

/* Codes of 5 bits of line i, known to the compiler, a byte each: of the lower halves, and of the upper ones.
 * codes: as above. */
VF_FN void lines_five(vi code[2], const uint8_t *codes, const int i)
{
    const vi v = VI_LOAD(codes + i * QR_CODED_LINE), upper = VI_LOAD(codes + LINES_UPPER);
    const vi four = VI(set1_epi8)(15), mask = VI(set1_epi8)(16);
    code[0] = VI_OR(VI_AND(v, four), VI_AND(VI(slli_epi16)(upper, 4 - i), mask));
    code[1] = VI_OR(VI_AND(VI(srli_epi16)(v, 4), four), VI_AND(i > 0 ? VI(srli_epi16)(upper, i) : upper, mask));
}

/* 32 inputs of eight outputs, of 5 bits: t[i] has the codes of inputs 4 i to 4 i + 3, a byte each. */
VF_FN void lines_store_five(uint8_t *to, const vi t[2 * LINES_32])
{
    const vi low = VI(set1_epi8)(1), high = VI(set1_epi8)(16), four = VI(set1_epi8)(15);
    vi up = VI(setzero_si256)();
    for (int i = 0; i < LINES_32; i++) {
        const vi upper = VI_OR(VI_AND(VI(srli_epi16)(t[2 * i], 4), low), VI_AND(t[2 * i + 1], high));
        VI_STORE(to + i * QR_CODED_LINE, VI_OR(VI_AND(t[2 * i], four), VI(slli_epi16)(VI_AND(t[2 * i + 1], four), 4)));
        up = VI_OR(up, VI(slli_epi16)(upper, i));
    }
    VI_STORE(to + LINES_UPPER, up);
}
#endif

#endif
