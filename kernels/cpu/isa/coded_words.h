/* coded_words.h - codes of 4 bits in words of eight (kernels.h, struct qr_coded_words) into lines of panels on tiles (coded.h: 32 inputs of four outputs, a
 * word of 16 bits for each input), without a byte for each code in between. Inside kernels/cpu/isa only. */
#ifndef QR_KERNELS_CPU_ISA_CODED_WORDS_H
#define QR_KERNELS_CPU_ISA_CODED_WORDS_H

#include "kernels/cpu/isa/coded_turn.h"

#ifdef QR_ISA_amx
#define WORDS_INPUTS 32 /* at a time: those of a line */
#define WORDS_AHEAD 4   /* rows of words of eight inputs, in times of those that are read at once */

/* In each word of 64 bits, byte j gets four bits from bit low[j] on, and above them those from bit high[j] + 4 on. */
VF_FN __m512i words_pick(__m512i x, int64_t low, int64_t high)
{
    const __m512i half = _mm512_set1_epi8(15);
    return _mm512_ternarylogic_epi32(half, _mm512_multishift_epi64_epi8(_mm512_set1_epi64(low), x), _mm512_multishift_epi64_epi8(_mm512_set1_epi64(high), x),
                                     TURN_PICK);
}

/* 16 outputs whose words have eight inputs each, four rows of such words: to the four lines at `to`. */
VF_FN void words_along(uint8_t *to, const uint8_t *words, int64_t pitch)
{
    /* A byte has two outputs' codes of an input, the word's eight inputs one after the other; then the quarter's other two outputs come between. */
    const __m512i between = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    __m512i v[4];
    for (int i = 0; i < 4; i++) {
        const uint8_t *from = words + i * pitch;
        _mm_prefetch((const char *)((uintptr_t)from + (uintptr_t)(4 * WORDS_AHEAD * pitch)), _MM_HINT_T0);
        v[i] = _mm512_shuffle_epi8(words_pick(_mm512_loadu_si512(from), 0x1c1814100c080400, 0x3834302c2824201c), between);
    }
    turn_quarters(to, v[0], v[1], v[2], v[3]);
}

/* 32 inputs of n panels, at most 8, whose words have eight outputs each in the order 0 2 4 6 1 3 5 7, a row of words for each input: to the lines at `to` and
 * panel_bytes further on for each panel. */
VF_FN void words_across(uint8_t *to, int64_t panel_bytes, int32_t n, const uint8_t *words, int64_t pitch)
{
    const __mmask16 there = (__mmask16)((1u << 2 * n) - 1);
    QR_UNINITIALIZED vf first[16], second[16]; /* [two inputs], a lane for four outputs: of each eight the first four, the second */
    for (int i = 0; i < 16; i++) {
        __m512i v[2];
        for (int k = 0; k < 2; k++) {
            const uint8_t *from = words + (2 * i + k) * pitch;
            v[k] = words_pick(_mm512_maskz_loadu_epi32(there, from), 0x2c2824200c080400, 0x3834302c1814100c);
        }
        first[i] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(v[0], v[1]));
        second[i] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(v[0], v[1]));
    }
    vf_transpose(first);
    vf_transpose(second);
    for (int32_t quarter = 0; quarter < (n + 1) / 2; quarter++) /* of a register: two panels */
        for (int32_t i = 0; i < 4; i++) {
            uint8_t *line = to + 2 * quarter * panel_bytes + i * 64;
            _mm512_storeu_ps(line, first[4 * quarter + i]);
            if (2 * quarter + 1 < n)
                _mm512_storeu_ps(line + panel_bytes, second[4 * quarter + i]);
        }
}
#endif

#endif
