/* words.h - codes of 4 bits in words of eight (kernels.h, struct qr_coded_words) into lines of panels (coded.h; on tiles: 32 inputs of four outputs, a
 * word of 16 bits for each input), without a byte for each code in between. Inside kernels/cpu/isa only. */
#ifndef QR_KERNELS_CPU_ISA_CODED_WORDS_H
#define QR_KERNELS_CPU_ISA_CODED_WORDS_H

#include "kernels/cpu/isa/coded/turn.h"

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

/* stream: not by way of a cache, and the thread has a fence behind it. */
VF_FN void words_store(uint8_t *to, __m512i v, const bool stream)
{
    if (stream)
        _mm512_stream_si512((__m512i *)(void *)to, v);
    else
        _mm512_storeu_si512(to, v);
}

/* 16 outputs whose words have eight inputs each, four rows of such words: to the four lines at `to`. far: they are asked for ahead; else lines are
 * streamed. */
VF_FN void words_along(uint8_t *to, const uint8_t *words, int64_t pitch, const bool far)
{
    /* A byte has two outputs' codes of an input, the word's eight inputs one after the other; then the quarter's other two outputs come between. */
    const __m512i between = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    __m512i v[4];
    for (int i = 0; i < 4; i++) {
        const uint8_t *from = words + i * pitch;
        if (far)
            _mm_prefetch((const char *)((uintptr_t)from + (uintptr_t)(4 * WORDS_AHEAD * pitch)), _MM_HINT_T0);
        v[i] = _mm512_shuffle_epi8(words_pick(_mm512_loadu_si512(from), 0x1c1814100c080400, 0x3834302c2824201c), between);
    }
    turn_lines(v, v[0], v[1], v[2], v[3]);
    for (int i = 0; i < 4; i++)
        words_store(to + i * 64, v[i], !far);
}

/* 32 inputs of n panels, at most 8, whose words have eight outputs each in the order 0 2 4 6 1 3 5 7, a row of words for each input: to the lines at `to` and
 * panel_bytes further on for each panel. far: as above. */
VF_FN void words_across(uint8_t *to, int64_t panel_bytes, int32_t n, const uint8_t *words, int64_t pitch, const bool far)
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
            words_store(line, _mm512_castps_si512(first[4 * quarter + i]), !far);
            if (2 * quarter + 1 < n)
                words_store(line + panel_bytes, _mm512_castps_si512(second[4 * quarter + i]), !far);
        }
}

#define WORDS_TURNED 32      /* bytes of an input of four panels, which words_turn leaves */
#define WORDS_TURNED_INPUTS 32 /* at a time */

/* Four lines of each of four panels, at from[4], to 32 rows of WORDS_TURNED bytes, one for each input. */
VF_FN void words_turn(uint8_t *to, const uint8_t *const from[4])
{
    const __m512i apart = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2,
                                           0);
    vf v[16] QR_UNINITIALIZED;
    for (int i = 0; i < 16; i++)
        v[i] = _mm512_loadu_ps(from[i / 4] + i % 4 * 64);
    vf_transpose(v);
    for (int i = 0; i < 16; i++)
        _mm512_storeu_si512(to + i * 2 * WORDS_TURNED, _mm512_permutexvar_epi16(apart, _mm512_castps_si512(v[i])));
}

/* 32 of those rows, of inputs in[32], to four lines of each panel, at to[4]. */
VF_FN void words_gather(uint8_t *const to[4], const uint8_t *turned, const int32_t in[32])
{
    const __m512i by_turns = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1,
                                              16, 0);
    vf v[16] QR_UNINITIALIZED;
    for (int i = 0; i < 16; i++) {
        const __m256i first = _mm256_loadu_si256((const __m256i *)(const void *)(turned + (int64_t)in[2 * i] * WORDS_TURNED));
        const __m256i second = _mm256_loadu_si256((const __m256i *)(const void *)(turned + (int64_t)in[2 * i + 1] * WORDS_TURNED));
        const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
        v[i] = _mm512_castsi512_ps(_mm512_permutexvar_epi16(by_turns, both));
    }
    vf_transpose(v);
    for (int i = 0; i < 16; i++)
        _mm512_storeu_ps(to[i / 4] + i % 4 * 64, v[i]);
}

#define WORDS_STRIP 8 /* panels that are taken from words of a file to a place of their own, and sorted from there */

/* Inputs k to k + 7 of n panels, at most WORDS_STRIP, whose words have eight inputs each: to a row of 64 bytes for each of all n_in inputs. A quarter has four
 * outputs of each panel in 16 bits. */
VF_FN void words_take(uint8_t *taken, int64_t n_in, int64_t k, const uint8_t *words, int32_t n)
{
    (void)n_in;
    uint8_t *to = taken + k * 64;
    const __m512i between = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    __m512i v[WORDS_STRIP], b[WORDS_STRIP];
    for (int32_t i = 0; i < WORDS_STRIP; i++) {
        const uint8_t *from = words + (i < n ? i : 0) * 64;
        v[i] = _mm512_shuffle_epi8(words_pick(_mm512_loadu_si512(from), 0x1c1814100c080400, 0x3834302c2824201c), between);
    }
    for (int32_t i = 0; i < 4; i++) { /* of two panels: inputs 0 to 3, then 4 to 7 */
        b[i] = _mm512_unpacklo_epi16(v[2 * i], v[2 * i + 1]);
        b[4 + i] = _mm512_unpackhi_epi16(v[2 * i], v[2 * i + 1]);
    }
    for (int32_t i = 0; i < 8; i += 4) {
        const __m512i a0 = _mm512_unpacklo_epi32(b[i], b[i + 1]), a1 = _mm512_unpackhi_epi32(b[i], b[i + 1]);
        const __m512i c0 = _mm512_unpacklo_epi32(b[i + 2], b[i + 3]), c1 = _mm512_unpackhi_epi32(b[i + 2], b[i + 3]);
        _mm512_storeu_si512(to + i * 64, _mm512_unpacklo_epi64(a0, c0));
        _mm512_storeu_si512(to + (i + 1) * 64, _mm512_unpackhi_epi64(a0, c0));
        _mm512_storeu_si512(to + (i + 2) * 64, _mm512_unpacklo_epi64(a1, c1));
        _mm512_storeu_si512(to + (i + 3) * 64, _mm512_unpackhi_epi64(a1, c1));
    }
}

/* 32 of those rows, of inputs in[32]: to four lines of each of n panels, the first at `to` and panel_bytes further on for each. stream: as above. */
VF_FN void words_give(uint8_t *to, int64_t panel_bytes, int32_t n, const uint8_t *taken, int64_t n_in, const int32_t in[32], const bool stream)
{
    (void)n_in;
    QR_UNINITIALIZED vf first[16], second[16]; /* [two inputs], a lane for four outputs: a quarter's panels 0 to 3, 4 to 7 */
    for (int i = 0; i < 16; i++) {
        const __m512i a = _mm512_loadu_si512(taken + (int64_t)in[2 * i] * 64), b = _mm512_loadu_si512(taken + (int64_t)in[2 * i + 1] * 64);
        first[i] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(a, b));
        second[i] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(a, b));
    }
    vf_transpose(first);
    vf_transpose(second);
    for (int32_t panel = 0; panel < n; panel++)
        for (int32_t i = 0; i < 4; i++) /* of a quarter each */
            words_store(to + panel * panel_bytes + i * 64, _mm512_castps_si512(panel < 4 ? first[4 * i + panel] : second[4 * i + panel - 4]), stream);
}
#else
#define WORDS_INPUTS 32 /* at a time: those of four lines */
#define WORDS_AHEAD 4   /* rows of words of eight inputs, in times of those that are read at once */
#define WORDS_ACROSS_AHEAD 16 /* rows of words of eight outputs */

/* Eight outputs' words of eight inputs: in bytes, of the even places 0 and 4, 2 and 6, of the odd ones 1 and 5, 3 and 7. */
VF_FN __m256i words_line(__m256i x)
{
    const __m256i half = _mm256_set1_epi8(15), by_turns = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15));
    const __m256i even = _mm256_and_si256(x, half), odd = _mm256_and_si256(_mm256_srli_epi16(x, 4), half);
    const __m256i a = _mm256_or_si256(even, _mm256_srli_epi32(even, 12)), b = _mm256_or_si256(odd, _mm256_srli_epi32(odd, 12));
    return _mm256_shuffle_epi8(_mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa), by_turns);
}

/* Half a line, whose other half comes next. stream: not by way of a cache, and the thread has a fence behind it: where lines are far from each other and not
 * looked at again soon, a store that brings each one to a cache waits for it. */
VF_FN void words_store(uint8_t *to, __m256i v, const bool stream)
{
    if (stream)
        _mm256_stream_si256((__m256i *)(void *)to, v);
    else
        _mm256_storeu_si256((__m256i *)(void *)to, v);
}

/* 16 outputs whose words have eight inputs each, four rows of such words: to the four lines at `to`. far: they are asked for ahead; else lines are
 * streamed. */
VF_FN void words_along(uint8_t *to, const uint8_t *words, int64_t pitch, const bool far)
{
    for (int i = 0; i < 4; i++, to += QR_CODED_LINE) {
        const uint8_t *from = words + i * pitch;
        if (far)
            _mm_prefetch((const char *)((uintptr_t)from + (uintptr_t)(4 * WORDS_AHEAD * pitch)), _MM_HINT_T0);
        for (int half = 0; half < 64; half += 32) {
            const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(from + half));
            words_store(to + half, words_line(x), !far);
        }
    }
}

/* Bytes of four registers by turns, as words of four: of each register's quarters of 16 bytes, first words' in to[0], second ones' in to[1], and so on. */
VF_FN void words_fours(__m256i to[4], const __m256i v[4])
{
    const __m256i a = _mm256_unpacklo_epi8(v[0], v[1]), b = _mm256_unpacklo_epi8(v[2], v[3]);
    const __m256i c = _mm256_unpackhi_epi8(v[0], v[1]), d = _mm256_unpackhi_epi8(v[2], v[3]);
    to[0] = _mm256_unpacklo_epi16(a, b);
    to[1] = _mm256_unpackhi_epi16(a, b);
    to[2] = _mm256_unpacklo_epi16(c, d);
    to[3] = _mm256_unpackhi_epi16(c, d);
}

/* Four outputs from the lower pair, the upper pair of what two places in a word gave. */
VF_FN __m256i words_pairs(__m256i low, __m256i high, const bool upper)
{
    const __m256 a = _mm256_castsi256_ps(low), b = _mm256_castsi256_ps(high);
    return _mm256_castps_si256(upper ? _mm256_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1)) : _mm256_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0)));
}

/* Eight inputs of four panels, whose words lie side by side in 32 bytes of each: v[4] those of the inputs from `words` on. Panels' lines are panel_bytes apart.
 * A byte gets inputs t and t + 4 of one output; even places have outputs 0 4 1 5, odd ones 2 6 3 7. */
VF_FN void words_four_panels(uint8_t *to, int64_t panel_bytes, int32_t n, const uint8_t *words, int64_t pitch, const bool stream)
{
    const __m256i half = _mm256_set1_epi8(15);
    QR_UNINITIALIZED uint8_t part[8][32];
    __m256i even[4], odd[4], low[4], high[4];
    for (int i = 0; n < 4 && i < 8; i++) /* the last row's end may be the file's */
        memcpy(part[i], words + i * pitch, (size_t)(8 * n));
    words = n < 4 ? part[0] : words;
    pitch = n < 4 ? (int64_t)sizeof part[0] : pitch;
    for (int t = 0; t < 4; t++) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(words + t * pitch));
        const __m256i y = _mm256_loadu_si256((const __m256i *)(const void *)(words + (t + 4) * pitch));
        even[t] = _mm256_or_si256(_mm256_and_si256(x, half), _mm256_slli_epi16(_mm256_and_si256(y, half), 4));
        odd[t] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(x, 4), half), _mm256_andnot_si256(half, y));
    }
    words_fours(low, even);
    words_fours(high, odd);
    for (int pair = 0; pair < 2; pair++) { /* panels `pair` in the lower half of a register, 2 + `pair` in the upper one */
        __m256i out[4];
        for (int i = 0; i < 4; i++)
            out[i] = words_pairs(low[2 * pair + i / 2], high[2 * pair + i / 2], i % 2);
        for (int upper = 0; upper < 2 && 2 * upper + pair < n; upper++)
            for (int i = 0; i < 4; i += 2) {
                const __m256i v = upper ? _mm256_permute2x128_si256(out[i], out[i + 1], 0x31) : _mm256_permute2x128_si256(out[i], out[i + 1], 0x20);
                words_store(to + (2 * upper + pair) * panel_bytes + i * 16, v, stream);
            }
    }
}

/* 32 inputs of n panels, at most 8, whose words have eight outputs each in the order 0 2 4 6 1 3 5 7, a row of words for each input: to the lines at `to` and
 * panel_bytes further on for each panel. far: as above. */
VF_FN void words_across(uint8_t *to, int64_t panel_bytes, int32_t n, const uint8_t *words, int64_t pitch, const bool far)
{
    for (int32_t i = 0; i < WORDS_INPUTS; i += 8, to += QR_CODED_LINE, words += 8 * pitch) {
        for (int32_t k = 0; far && k < 8; k++) { /* too far apart for the processor to see where it goes on; a row's part lies across two lines */
            const char *ahead = (const char *)((uintptr_t)words + (uintptr_t)((WORDS_ACROSS_AHEAD + k) * pitch));
            _mm_prefetch(ahead, _MM_HINT_T0);
            _mm_prefetch(ahead + 8 * n - 1, _MM_HINT_T0);
        }
        for (int32_t panel = 0; panel < n; panel += 4)
            words_four_panels(to + panel * panel_bytes, panel_bytes, n - panel < 4 ? n - panel : 4, words + panel * 8, pitch, !far);
    }
}

#define WORDS_TURNED 32       /* bytes of an input of four panels, which words_turn leaves */
#define WORDS_TURNED_INPUTS 8 /* at a time */

/* The lower halves of a's bytes with b's above them, to *a; the upper ones likewise, to *b. */
VF_FN void words_swap(__m256i *a, __m256i *b)
{
    const __m256i others = _mm256_and_si256(_mm256_xor_si256(_mm256_srli_epi16(*a, 4), *b), _mm256_set1_epi8(15));
    *b = _mm256_xor_si256(*b, others);
    *a = _mm256_xor_si256(*a, _mm256_slli_epi16(others, 4));
}

/* Four registers of eight outputs by four bytes: to bytes of all outputs, one of the four after the other. A row: outputs 0 to 3 of each register, then
 * 4 to 7. */
VF_FN void words_bytes(uint8_t *to, const __m256i v[4])
{
    const __m256i by_byte = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m256i x0 = _mm256_shuffle_epi8(v[0], by_byte), x1 = _mm256_shuffle_epi8(v[1], by_byte);
    const __m256i x2 = _mm256_shuffle_epi8(v[2], by_byte), x3 = _mm256_shuffle_epi8(v[3], by_byte);
    const __m256i a = _mm256_unpacklo_epi32(x0, x1), b = _mm256_unpacklo_epi32(x2, x3);
    const __m256i c = _mm256_unpackhi_epi32(x0, x1), d = _mm256_unpackhi_epi32(x2, x3);
    _mm256_store_si256((__m256i *)(void *)to, _mm256_unpacklo_epi64(a, b));
    _mm256_store_si256((__m256i *)(void *)(to + WORDS_TURNED), _mm256_unpackhi_epi64(a, b));
    _mm256_store_si256((__m256i *)(void *)(to + 2 * WORDS_TURNED), _mm256_unpacklo_epi64(c, d));
    _mm256_store_si256((__m256i *)(void *)(to + 3 * WORDS_TURNED), _mm256_unpackhi_epi64(c, d));
}

/* A line of each of four panels, at from[4], to eight rows of WORDS_TURNED bytes, one for each input: codes of the first two panels in the lower halves of
 * bytes, of the other two in the upper ones. */
VF_FN void words_turn(uint8_t *to, const uint8_t *const from[4])
{
    __m256i low[4], high[4];
    for (int i = 0; i < 4; i++) {
        low[i] = _mm256_loadu_si256((const __m256i *)(const void *)(from[i / 2] + i % 2 * 32));
        high[i] = _mm256_loadu_si256((const __m256i *)(const void *)(from[2 + i / 2] + i % 2 * 32));
        words_swap(&low[i], &high[i]);
    }
    words_bytes(to, low);
    words_bytes(to + 4 * WORDS_TURNED, high);
}

/* Eight of those rows, of inputs in[8], to a line of each panel, at to[4]. stream: as above. */
VF_FN void words_gather_lines(uint8_t *const to[4], const uint8_t *turned, const int32_t in[8], const bool stream)
{
    __m256i low[4], high[4], out[8];
    for (int i = 0; i < 4; i++) {
        low[i] = _mm256_load_si256((const __m256i *)(const void *)(turned + (int64_t)in[i] * WORDS_TURNED));
        high[i] = _mm256_load_si256((const __m256i *)(const void *)(turned + (int64_t)in[i + 4] * WORDS_TURNED));
        words_swap(&low[i], &high[i]);
    }
    words_fours(out, low);
    words_fours(out + 4, high);
    for (int i = 0; i < 8; i++)
        words_store(to[i / 2] + i % 2 * 32, out[i], stream);
}

VF_FN void words_gather(uint8_t *const to[4], const uint8_t *turned, const int32_t in[8])
{
    words_gather_lines(to, turned, in, false);
}

#define WORDS_STRIP 8 /* panels that are taken from words of a file to a place of their own, and sorted from there */

/* Inputs k to k + 7 of n panels, at most WORDS_STRIP, whose words have eight inputs each: to a row of WORDS_TURNED bytes for each of all n_in inputs, then
 * likewise the second four panels. */
VF_FN void words_take(uint8_t *taken, int64_t n_in, int64_t k, const uint8_t *words, int32_t n)
{
    for (int32_t four = 0; four < n; four += 4) {
        QR_UNINITIALIZED uint8_t line[4][QR_CODED_LINE];
        for (int32_t i = 0; i < 4; i++)
            for (int half = 0; half < 64; half += 32) {
                const uint8_t *from = words + (four + i < n ? four + i : four) * 64 + half;
                _mm256_storeu_si256((__m256i *)(void *)(line[i] + half), words_line(_mm256_loadu_si256((const __m256i *)(const void *)from)));
            }
        words_turn(taken + (four / 4 * n_in + k) * WORDS_TURNED, (const uint8_t *const[]){line[0], line[1], line[2], line[3]});
    }
}

/* 32 of those inputs, in[32]: to four lines of each of n panels, the first at `to` and panel_bytes further on for each. stream: as above. */
VF_FN void words_give(uint8_t *to, int64_t panel_bytes, int32_t n, const uint8_t *taken, int64_t n_in, const int32_t in[32], const bool stream)
{
    for (int32_t four = 0; four < n; four += 4)
        for (int32_t k = 0; k < 32; k += WORDS_TURNED_INPUTS) {
            QR_UNINITIALIZED uint8_t none[QR_CODED_LINE] __attribute__((aligned(64)));
            uint8_t *line[4];
            for (int32_t i = 0; i < 4; i++)
                line[i] = four + i < n ? to + (four + i) * panel_bytes + k / WORDS_TURNED_INPUTS * QR_CODED_LINE : none;
            words_gather_lines(line, taken + four / 4 * n_in * WORDS_TURNED, in + k, stream);
        }
}
#endif

#endif
