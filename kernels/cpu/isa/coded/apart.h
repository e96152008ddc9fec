/* apart.h - codes of 5 and 6 bits as level avx2 packs them (coded.h): 32 inputs of a panel are the four lines that their lower four bits would be with 4
 * bits, and behind these one line of the fifth bits, or two of the fifth and sixth. What line i has above the half of a byte is in the same half of the same
 * byte there:
 *     5 bits   from bit i on, of one line
 *     6 bits   from bit i % 2 * 2 on, of line i / 2: what is above is as codes of 2 bits are (fours.h)
 * So a few operations on registers make bytes of a line, and files, which have these bits apart as well, are packed nearly as those of 4 bits. Codes are
 * levels less the least. */
#ifndef QR_KERNELS_CPU_ISA_CODED_APART_H
#define QR_KERNELS_CPU_ISA_CODED_APART_H

#include "kernels/cpu/isa/coded/fours.h"

#define APART_ABOVE (FOURS_LINES * QR_CODED_LINE) /* where what is above four bits begins, of 32 inputs */

/* Lines of 32 inputs. */
VF_FN int apart_lines(const int bits)
{
    return bits;
}

/* Codes of line i, known to the compiler, a byte each: of the lower halves, and of the upper ones. codes: where the first line has this vector's part. */
VF_FN void apart_line(const int bits, vi code[2], const uint8_t *codes, const int i)
{
    const int more = bits - 4, from = i * more % 4;
    const vi v = VI_LOAD(codes + i * QR_CODED_LINE), above = VI_LOAD(codes + APART_ABOVE + i * more / 4 * QR_CODED_LINE);
    const vi four = VI(set1_epi8)(15), mask = VI(set1_epi8)((char)(((1 << more) - 1) << 4));
    code[0] = VI_OR(VI_AND(v, four), VI_AND(VI(slli_epi16)(above, 4 - from), mask));
    code[1] = VI_OR(VI_AND(VI(srli_epi16)(v, 4), four), VI_AND(from > 0 ? VI(srli_epi16)(above, from) : above, mask));
}

/* 32 inputs of eight outputs: t[i] has the codes of inputs 4 i to 4 i + 3, a byte each. join: other outputs' codes are there already, and zeros where these
 * go. */
VF_FN void apart_store(uint8_t *to, const vi t[2 * FOURS_LINES], const int bits, bool join)
{
    const int more = bits - 4;
    const vi low = VI(set1_epi8)((char)((1 << more) - 1)), high = VI(slli_epi16)(low, 4), four = VI(set1_epi8)(15);
    vi v[FOURS_LINES + 2] QR_UNINITIALIZED;
    v[FOURS_LINES] = v[FOURS_LINES + 1] = VI(setzero_si256)();
    for (int i = 0; i < FOURS_LINES; i++) {
        const vi above = VI_OR(VI_AND(VI(srli_epi16)(t[2 * i], 4), low), VI_AND(t[2 * i + 1], high));
        vi *up = &v[FOURS_LINES + i * more / 4];
        v[i] = VI_OR(VI_AND(t[2 * i], four), VI(slli_epi16)(VI_AND(t[2 * i + 1], four), 4));
        *up = VI_OR(*up, VI(slli_epi16)(above, i * more % 4));
    }
    for (int i = 0; i < apart_lines(bits); i++) {
        uint8_t *at = to + i * QR_CODED_LINE;
        VI_STORE(at, join ? VI_OR(v[i], VI_LOAD(at)) : v[i]);
    }
}

/* 32 n inputs, whose codes lie at `bytes` as those of 8 bits do. */
static inline void apart_join(uint8_t *to, const uint8_t *bytes, const int bits, int64_t n, bool join)
{
    for (int64_t i = 0; i < n; i++, to += apart_lines(bits) * QR_CODED_LINE, bytes += 32 * QR_PANEL)
        for (int32_t half = 0; half < QR_CODED_LINE; half += VI_BYTES) {
            vi t[2 * FOURS_LINES] QR_UNINITIALIZED;
            for (int32_t j = 0; j < 2 * FOURS_LINES; j++)
                t[j] = VI_LOAD(bytes + j * QR_CODED_LINE + half);
            apart_store(to + half, t, bits, join);
        }
}

/* What input `in` of output `row` has in a block. */
static inline int32_t apart_code(const uint8_t *codes, int32_t bits, int32_t in, int32_t row)
{
    const int32_t more = bits - 4, i = in % 32 / 8, at = row * 4 + in % 4, half = in % 8 / 4 * 4;
    const uint8_t *run = codes + in / 32 * (apart_lines(bits) * QR_CODED_LINE), *above = run + APART_ABOVE + i * more / 4 * QR_CODED_LINE;
    return (run[i * QR_CODED_LINE + at] >> half & 15) | (above[at] >> (half + i * more % 4) & ((1 << more) - 1)) << 4;
}

#endif
