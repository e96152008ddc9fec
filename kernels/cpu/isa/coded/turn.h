/* turn.h - codes of four outputs and 16 inputs at a time, as rows hold them, into the order in which a panel does (coded.h). What is moved are vectors
 * of 16 bytes, which every level has: memory is slower than that. Inside kernels/cpu/isa only. */
#ifndef QR_KERNELS_CPU_ISA_CODED_TURN_H
#define QR_KERNELS_CPU_ISA_CODED_TURN_H

#ifdef QR_ISA_avx2
#include "kernels/cpu/isa/coded/apart.h"
#endif
#include "kernels/cpu/isa/coded/fours.h"
#include "kernels/cpu/isa/coded/squeeze.h"
#include "kernels/cpu/isa/linear/micro.h"
#include "kernels/cpu/isa/simd.h"

/* join: other outputs' codes are there already, and zeros where these go. */
VF_FN void turn_store(uint8_t *to, __m128i v, bool join)
{
    __m128i *at = (__m128i *)(void *)to;
    _mm_storeu_si128(at, join ? _mm_or_si128(v, _mm_loadu_si128(at)) : v);
}

#ifndef QR_ISA_avx2
#define TURN_PICK 0xca /* bits of the second where the first has them, else of the third */
#endif

/* put_four: inputs k to k + 15 of a block (k a multiple of 16) whose codes begin at `codes`, of outputs 4 quad to 4 quad + 3 of a panel: v[i] has output
 * 4 quad + i's, one in a byte; codes of 5 and 6 bits stay in bytes, as many as 8 bits would be (squeeze.h, at avx2 apart.h). code_of: what input
 * `in` of output `row` has in a block, a level but for 4 bits; an E4M3 code's bits (with or without a sign: the low 8 count). */
#ifdef QR_ISA_amx
/* E4M3 codes as coded.h has them; and back. */
VF_FN __m512i turn_numbers(__m512i v)
{
    const __m512i low = _mm512_and_si512(v, _mm512_set1_epi8(0x0f)), sign = _mm512_set1_epi8(0x10), upper = _mm512_set1_epi8((char)0xe0);
    const __m512i some = _mm512_ternarylogic_epi32(low, _mm512_srli_epi16(v, 3), sign, 0xf8); /* low | (shifted & mask) */
    return _mm512_ternarylogic_epi32(some, _mm512_slli_epi16(v, 1), upper, 0xf8);
}

VF_FN __m128i turn_number(__m128i v)
{
    return _mm512_castsi512_si128(turn_numbers(_mm512_castsi128_si512(v)));
}

/* Where two outputs share lines, a byte each. */
static inline int32_t turn_pairs_at(int32_t in, int32_t row)
{
    return in / 32 * 512 + row / 2 * QR_CODED_LINE + in % 32 / 4 * 8 + row % 2 * 4 + in % 4;
}

static inline int32_t turn_back(int32_t code)
{
    return (code & 0x0f) | (code & 0x10) << 3 | (code & 0xe0) >> 1;
}

/* Two outputs to a line. */
VF_FN void turn_put_pairs(uint8_t *codes, int64_t k, int32_t quad, const __m128i v[4], bool join)
{
    uint8_t *to = codes + k / 32 * 512 + quad * 128 + k % 32 * 2;
    for (int i = 0; i < 4; i += 2, to += 64) {
        turn_store(to, _mm_unpacklo_epi32(v[i], v[i + 1]), join);
        turn_store(to + 16, _mm_unpackhi_epi32(v[i], v[i + 1]), join);
    }
}

VF_FN void put_four(int32_t bits, uint8_t *codes, int64_t k, int32_t quad, const __m128i v[4], bool join)
{
    if (bits == QR_CODED_E4M3) {
        const __m128i w[4] = {turn_number(v[0]), turn_number(v[1]), turn_number(v[2]), turn_number(v[3])};
        turn_put_pairs(codes, k, quad, w, join);
        return;
    }
    if (bits == 4) {
        uint8_t *to = codes + k / 32 * 256 + quad * 64 + k % 32 * 2;
        const __m128i ab = _mm_or_si128(v[0], _mm_slli_epi16(v[1], 4)), cd = _mm_or_si128(v[2], _mm_slli_epi16(v[3], 4));
        turn_store(to, _mm_unpacklo_epi8(ab, cd), join);
        turn_store(to + 16, _mm_unpackhi_epi8(ab, cd), join);
        return;
    }
    if (bits == 5) {
        turn_put_pairs(codes, k, quad, v, join);
        return;
    }
    const __m128i pairs = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    uint8_t *to = codes + k * QR_PANEL + quad / 2 * 64 + quad % 2 * 32;
    for (int i = 0; i < 4; i += 2, to += 16) {
        const __m128i a = _mm_shuffle_epi8(v[i], pairs), b = _mm_shuffle_epi8(v[i + 1], pairs);
        turn_store(to, _mm_unpacklo_epi64(a, b), join);
        turn_store(to + 128, _mm_unpackhi_epi64(a, b), join);
    }
}

static inline int32_t code_of(const uint8_t *codes, struct qr_coded_format f, int32_t in, int32_t row)
{
    if (f.bits == 4)
        return codes[in / 32 * 256 + row / 4 * 64 + in % 32 * 2 + row % 4 / 2] >> row % 2 * 4 & 15;
    if (f.bits < 4) /* likewise */
        return (fours_byte(codes + in / 32 * (f.bits * QR_CODED_LINE), f.bits, row / 4, in % 32 * 2 + row % 4 / 2) >> row % 2 * 4 & 15) + qr_coded_least(f);
    if (f.e4m3)
        return turn_back(codes[turn_pairs_at(in, row)]);
    if (f.bits == 5)
        return coded_code_in(codes + (in / 32 * 8 + row / 2) * (QR_CODED_LINE / 8 * 5), f, in % 32 / 4 * 8 + row % 2 * 4 + in % 4);
    return coded_code_in(codes + (in / 8 * 2 + row / 8) * (QR_CODED_LINE / 8 * f.bits), f, (row % 8 * 2 + in % 2) * 4 + in % 8 / 2);
}
#else
/* Numbers 0 and 2 of a and of b (first 0), or 1 and 3 (first 1). */
#define TURN_EVERY_OTHER(a, b, first) \
    _mm_castps_si128(_mm_shuffle_ps(_mm_castsi128_ps(a), _mm_castsi128_ps(b), (first) ? _MM_SHUFFLE(3, 1, 3, 1) : _MM_SHUFFLE(2, 0, 2, 0)))

/* Two codes of four outputs. */
VF_FN void turn_store_twos(uint8_t *to, __m128i v, bool join)
{
    __m128i *at = (__m128i *)(void *)to;
    _mm_storel_epi64(at, join ? _mm_or_si128(v, _mm_loadl_epi64(at)) : v);
}

/* Where the E4M3 codes of an output's input are, of inputs in twos. */
static inline int64_t turn_twos_at(int64_t in, int32_t row)
{
    return in / 4 * QR_CODED_LINE + row / VF_LEN * (4 * VF_LEN) + in % 4 / 2 * (2 * VF_LEN) + row % VF_LEN * 2;
}

VF_FN void turn_put_twos(uint8_t *codes, int64_t k, int32_t quad, const __m128i v[4], bool join)
{
    for (int half = 0; half < 2; half++, k += 8) {
        const __m128i ab = half ? _mm_unpackhi_epi16(v[0], v[1]) : _mm_unpacklo_epi16(v[0], v[1]);
        const __m128i cd = half ? _mm_unpackhi_epi16(v[2], v[3]) : _mm_unpacklo_epi16(v[2], v[3]);
        const __m128i first = _mm_unpacklo_epi32(ab, cd), second = _mm_unpackhi_epi32(ab, cd);
        turn_store_twos(codes + turn_twos_at(k, 4 * quad), first, join);
        turn_store_twos(codes + turn_twos_at(k + 2, 4 * quad), _mm_unpackhi_epi64(first, first), join);
        turn_store_twos(codes + turn_twos_at(k + 4, 4 * quad), second, join);
        turn_store_twos(codes + turn_twos_at(k + 6, 4 * quad), _mm_unpackhi_epi64(second, second), join);
    }
}

VF_FN void put_four(int32_t bits, uint8_t *codes, int64_t k, int32_t quad, const __m128i v[4], bool join)
{
    if (bits == QR_CODED_E4M3) {
        turn_put_twos(codes, k, quad, v, join);
        return;
    }
    uint8_t *to = codes + (bits == 4 ? k * QR_PANEL / 2 : k * QR_PANEL) + quad * 16;
    if (bits == 4) { /* the lower four bytes of each half, and above them the upper four */
        __m128i w[4];
        for (int i = 0; i < 4; i++)
            w[i] = _mm_or_si128(v[i], _mm_srli_epi64(v[i], 28));
        const __m128i ab = TURN_EVERY_OTHER(w[0], w[1], 0), cd = TURN_EVERY_OTHER(w[2], w[3], 0);
        turn_store(to, TURN_EVERY_OTHER(ab, cd, 0), join);
        turn_store(to + 4 * QR_PANEL, TURN_EVERY_OTHER(ab, cd, 1), join);
        return;
    }
    const __m128i ab[2] = {_mm_unpacklo_epi32(v[0], v[1]), _mm_unpackhi_epi32(v[0], v[1])};
    const __m128i cd[2] = {_mm_unpacklo_epi32(v[2], v[3]), _mm_unpackhi_epi32(v[2], v[3])};
    for (int i = 0; i < 2; i++, to += 8 * QR_PANEL) {
        turn_store(to, _mm_unpacklo_epi64(ab[i], cd[i]), join);
        turn_store(to + 4 * QR_PANEL, _mm_unpackhi_epi64(ab[i], cd[i]), join);
    }
}

static inline int32_t code_of(const uint8_t *codes, struct qr_coded_format f, int32_t in, int32_t row)
{
    if (f.bits == 4)
        return codes[(in / 8 * QR_PANEL + row) * 4 + in % 4] >> in % 8 / 4 * 4 & 15;
    if (f.bits < 4) /* likewise */
        return (fours_byte(codes + in / 32 * (f.bits * QR_CODED_LINE), f.bits, in % 32 / 8, row * 4 + in % 4) >> in % 8 / 4 * 4 & 15) + qr_coded_least(f);
    if (f.e4m3)
        return codes[turn_twos_at(in, row) + in % 2];
#ifdef QR_ISA_avx2
    if (f.bits < 8)
        return apart_code(codes, f.bits, in, row) + qr_coded_least(f);
#endif
    return coded_code_in(codes + in / 4 * (QR_CODED_LINE / 8 * f.bits), f, row * 4 + in % 4);
}
#endif

/* from [16][n], n 8 or 16 and known to the compiler, as to [n][16]: the address of a byte, row and column, turns left by the row's four bits. */
VF_FN void turn_bytes(uint8_t *to, const int8_t *from, int32_t n)
{
    __m128i a[16], b[16];
    const int32_t half = n / 2;
    for (int32_t i = 0; i < n; i++)
        a[i] = _mm_loadu_si128((const __m128i *)(const void *)(from + 16 * i));
    for (int32_t step = 0; step < 4; step++) {
        for (int32_t i = 0; i < half; i++) {
            b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + half]);
            b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + half]);
        }
        for (int32_t i = 0; i < n; i++)
            a[i] = b[i];
    }
    for (int32_t i = 0; i < n; i++)
        _mm_storeu_si128((__m128i *)(void *)(to + 16 * i), a[i]);
}

#endif
