/* planes.h - codes of 16 outputs and 32 inputs at a time, from where the planes of a file's block have their bits (struct qr_coded_blocks), through
 * registers into a panel (coded.h). Inside kernels/cpu/isa only. */
#ifndef QR_KERNELS_CPU_ISA_CODED_PLANES_H
#define QR_KERNELS_CPU_ISA_CODED_PLANES_H

#include "kernels/cpu/isa/coded/turn.h"
#include "kernels/kernels.h"

#define PLANES_IN 32 /* inputs at a time */

/* ---- out of the file ---- */

/* Where inputs i to i + 31 have theirs: bytes from the plane's begin on, and places to the left. */
struct plane_part {
    int64_t at;
    __m256i by;
};

/* So that they come to lie from bit `to` of a byte on. A plane whose bytes have less than 32 inputs is taken whole. */
VF_FN struct plane_part plane_part_of(int32_t bits, int32_t width, int32_t i, int32_t to)
{
    if (width < PLANES_IN)
        return (struct plane_part){0, _mm256_setzero_si256()};
    const int32_t all = width * 8 / bits, in = i % all;
    return (struct plane_part){i / all * width + in % width, _mm256_set1_epi32((to - in / width * bits) & 31)};
}

/* Every 32 bits of x turned, so that what leaves a byte is in the one beside it: in bits that nobody asks for. */
VF_FN __m256i plane_turn(__m256i x, __m256i by)
{
#ifdef __AVX512VL__
    return _mm256_rolv_epi32(x, by);
#else
    return _mm256_or_si256(_mm256_sllv_epi32(x, by), _mm256_srlv_epi32(x, _mm256_sub_epi32(_mm256_set1_epi32(32), by)));
#endif
}

/* Bits `to` to `to` + bits - 1 of each of 32 bytes, others 0. */
VF_FN __m256i plane_bits(const uint8_t *plane, int32_t bits, int32_t to, const struct plane_part *part)
{
    const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(plane + part->at));
    return _mm256_and_si256(plane_turn(x, part->by), _mm256_set1_epi8((char)(((1 << bits) - 1) << to)));
}

/* The lower halves of 16 bytes, then the upper ones. */
VF_FN __m256i plane_halves(const uint8_t *plane)
{
    const __m256i x = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)plane));
    return _mm256_and_si256(_mm256_srlv_epi32(x, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4)), _mm256_set1_epi8(15));
}

/* Bit i of a word as bit `to` of byte i. */
VF_FN __m256i plane_single(const uint8_t *plane, int32_t to)
{
    int32_t word;
    memcpy(&word, plane, sizeof word);
    const __m256i set = _mm256_set1_epi8((char)(1 << to));
#ifdef __AVX512VL__
    return _mm256_maskz_mov_epi8((__mmask32)word, set);
#else
    const __m256i each = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i one = _mm256_set1_epi64x((int64_t)0x8040201008040201u);
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(word), each);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, one), one), set);
#endif
}

/* ---- into a panel ---- */

#ifdef QR_ISA_amx
/* Eight outputs' lines, of rows i and i + 4 in v[i]: every other one of them is the other outputs' (coded.h). A line's 8 outputs of 6 bytes come as 0, 1,
 * 4, 5, 2, 3, 6, 7, two words of three bytes each. */
VF_FN void planes_put_6(uint8_t *to, const __m512i v[4])
{
    static const uint8_t order[64] = {0,  1,  2,  4,  5,  6,  8,  9,  10, 12, 13, 14, 32, 33, 34, 36, 37, 38, 40, 41, 42, 44, 45, 46,
                                      16, 17, 18, 20, 21, 22, 24, 25, 26, 28, 29, 30, 48, 49, 50, 52, 53, 54, 56, 57, 58, 60, 61, 62};
    const __m512i pairs = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
    const __m512i in = _mm512_loadu_si512(order);
    __m512i x[4];
    for (int i = 0; i < 4; i++) {
        const __m512i codes = _mm512_shuffle_epi8(_mm512_and_si512(v[i], _mm512_set1_epi8(63)), pairs);
        x[i] = _mm512_madd_epi16(_mm512_maddubs_epi16(codes, _mm512_set1_epi16(1 | 1 << 14)), _mm512_set1_epi32(1 | 1 << 28));
    }
    const __m512i a = _mm512_unpacklo_epi64(x[0], x[1]), b = _mm512_unpackhi_epi64(x[0], x[1]); /* inputs / 8 even, odd */
    const __m512i c = _mm512_unpacklo_epi64(x[2], x[3]), d = _mm512_unpackhi_epi64(x[2], x[3]);
    const __m512i line[4] = {_mm512_shuffle_i32x4(a, c, 0x88), _mm512_shuffle_i32x4(b, d, 0x88), _mm512_shuffle_i32x4(a, c, 0xdd),
                             _mm512_shuffle_i32x4(b, d, 0xdd)};
    for (int i = 0; i < 4; i++)
        _mm512_mask_storeu_epi8(to + i * 96, 0xffffffffffff, _mm512_permutexvar_epi8(in, line[i]));
}

/* A line of two outputs, one in each half of v. */
VF_FN void planes_put_5(uint8_t *to, __m512i v)
{
    static const uint8_t order[64] = {0,  1,  2,  3,  4,  8,  9,  10, 11, 12, 16, 17, 18, 19, 20, 24, 25, 26, 27, 28,
                                      32, 33, 34, 35, 36, 40, 41, 42, 43, 44, 48, 49, 50, 51, 52, 56, 57, 58, 59, 60};
    const __m512i by_turns = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    const __m512i twos = _mm512_maddubs_epi16(_mm512_and_si512(v, _mm512_set1_epi8(31)), _mm512_set1_epi16(1 | 1 << 13));
    const __m512i x = _mm512_permutexvar_epi32(by_turns, _mm512_madd_epi16(twos, _mm512_set1_epi32(1 | 1 << 26)));
    const __m512i joined = _mm512_ternarylogic_epi64(_mm512_set1_epi64(0xfffff), x, _mm512_srli_epi64(x, 12), TURN_PICK);
    _mm512_mask_storeu_epi8(to, 0xffffffffff, _mm512_permutexvar_epi8(_mm512_loadu_si512(order), joined));
}

VF_FN __m512i planes_both(__m256i a, __m256i b)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

/* Codes of 5 or 6 bits, of inputs k to k + 31 of a block, k a multiple of 32, of 16 outputs; more bits than a code has are dropped. */
VF_FN void planes_put(int32_t bits, uint8_t *codes, int64_t k, const __m256i v[QR_PANEL])
{
    uint8_t *to = codes + k * 2 * bits;
    if (bits == 6)
        for (int i = 0; i < 2; i++) {
            const __m256i *half = v + 8 * i;
            const __m512i x[4] = {planes_both(half[0], half[4]), planes_both(half[1], half[5]), planes_both(half[2], half[6]), planes_both(half[3], half[7])};
            planes_put_6(to + 48 * i, x);
        }
    else
        for (int i = 0; i < QR_PANEL; i += 2)
            planes_put_5(to + 20 * i, planes_both(v[i], v[i + 1]));
}
#elif defined QR_ISA_avx2
/* Likewise. */
VF_FN void planes_put(int32_t bits, uint8_t *codes, int64_t k, const __m256i v[QR_PANEL])
{
    const __m256i mask = _mm256_set1_epi8((char)((1 << bits) - 1));
    for (int32_t half = 0; half < 2; half++) {
        uint8_t *to = codes + k * 2 * bits + half * (QR_CODED_LINE / 2);
        vf t[VF_LEN] QR_UNINITIALIZED; /* t[i]: inputs 4 i to 4 i + 3 of eight outputs */
        for (int32_t o = 0; o < VF_LEN; o++)
            t[o] = _mm256_castsi256_ps(_mm256_and_si256(v[VF_LEN * half + o], mask));
        vf_transpose(t);
        __m256i fours[VF_LEN] QR_UNINITIALIZED;
        for (int32_t i = 0; i < VF_LEN; i++)
            fours[i] = _mm256_castps_si256(t[i]);
        apart_store(to, fours, bits, false);
    }
}
#else
/* Likewise. */
VF_FN void planes_put(int32_t bits, uint8_t *codes, int64_t k, const __m256i v[QR_PANEL])
{
    _Alignas(64) uint8_t bytes[PLANES_IN * QR_PANEL] QR_UNINITIALIZED;
    const __m256i mask = _mm256_set1_epi8((char)((1 << bits) - 1));
    for (int32_t quad = 0; quad < QR_PANEL / 4; quad++) {
        __m128i lower[4], upper[4];
        for (int32_t o = 0; o < 4; o++) {
            const __m256i x = _mm256_and_si256(v[4 * quad + o], mask);
            lower[o] = _mm256_castsi256_si128(x);
            upper[o] = _mm256_extracti128_si256(x, 1);
        }
        put_four(bits, bytes, 0, quad, lower, false);
        put_four(bits, bytes, PLANES_IN / 2, quad, upper, false);
    }
    coded_squeeze(codes + k * 2 * bits, bytes, bits, sizeof bytes / QR_CODED_LINE, false);
}
#endif

#endif
