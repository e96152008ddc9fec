/* numbers.h - E4M3 codes of rows of a file into lines of panels (coded.h), looked at in one go. Inside kernels/cpu/isa only. */
#ifndef QR_KERNELS_CPU_ISA_CODED_NUMBERS_H
#define QR_KERNELS_CPU_ISA_CODED_NUMBERS_H

#include "kernels/cpu/isa/coded/coded.h"
#include "kernels/cpu/isa/coded/turn.h"

#ifdef QR_ISA_avx2
/* 32 inputs of eight rows from input k on, in twos: eight by eight words of 16 bits are turned in each half of the registers. `to`: the first two's place.
 * Returns the largest codes, each with its sign, and those of `most`. */
VF_FN __m256i numbers_twos(uint8_t *to, const uint8_t *const row[VF_LEN], int64_t k, __m256i most)
{
    const __m256i sign = _mm256_set1_epi8((char)0x80);
    __m256i v[VF_LEN], t[VF_LEN];
    for (int32_t i = 0; i < VF_LEN; i++) {
        v[i] = _mm256_loadu_si256((const __m256i *)(const void *)(row[i] + k));
        most = _mm256_max_epu8(most, _mm256_or_si256(v[i], sign));
    }
    for (int32_t i = 0; i < VF_LEN; i += 2) {
        t[i] = _mm256_unpacklo_epi16(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi16(v[i], v[i + 1]);
    }
    for (int32_t i = 0; i < VF_LEN; i += 4)
        for (int32_t j = 0; j < 2; j++) {
            v[i + 2 * j] = _mm256_unpacklo_epi32(t[i + j], t[i + 2 + j]);
            v[i + 2 * j + 1] = _mm256_unpackhi_epi32(t[i + j], t[i + 2 + j]);
        }
    for (int32_t j = 0; j < 4; j++) {
        t[2 * j] = _mm256_unpacklo_epi64(v[j], v[4 + j]);
        t[2 * j + 1] = _mm256_unpackhi_epi64(v[j], v[4 + j]);
    }
    for (int32_t i = 0; i < VF_LEN; i += 2) {
        uint8_t *at = to + turn_twos_at(2 * i, 0);
        _mm256_storeu_si256((__m256i *)(void *)at, _mm256_permute2x128_si256(t[i], t[i + 1], 0x20));
        _mm256_storeu_si256((__m256i *)(void *)(at + turn_twos_at(16, 0)), _mm256_permute2x128_si256(t[i], t[i + 1], 0x31));
    }
    return most;
}

/* Fewer than 32 inputs of 16 rows, further ones to a multiple of 16 are zeros. */
VF_FN void numbers_rest(uint8_t *codes, int64_t in, const uint8_t *const row[QR_PANEL], int64_t k, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        for (int32_t quad = 0; quad < QR_PANEL / 4; quad++) {
            __m128i v[4];
            for (int32_t o = 0; o < 4; o++) {
                uint8_t some[16] = {0};
                memcpy(some, row[4 * quad + o] + k + i, (size_t)(n - i < 16 ? n - i : 16));
                v[o] = _mm_loadu_si128((const __m128i *)(const void *)some);
            }
            put_four(QR_CODED_E4M3, codes, in + i, quad, v, false);
        }
}

/* A block's inputs [begin, end) of 16 rows. Returns whether a code may be no number. */
VF_FN bool numbers_block(uint8_t *codes, const uint8_t *const row[QR_PANEL], int64_t begin, int64_t end)
{
    const int64_t n = end - begin, whole = n / 32 * 32;
    __m256i most = _mm256_setzero_si256();
    for (int64_t i = 0; i < whole; i += 64) /* a row's line of the cache at once: rows may all lie in the same few places of it, and push each other out */
        for (int32_t o = 0; o < QR_PANEL; o += VF_LEN) {
            most = numbers_twos(codes + turn_twos_at(i, o), row + o, begin + i, most);
            if (i + 32 < whole)
                most = numbers_twos(codes + turn_twos_at(i + 32, o), row + o, begin + i + 32, most);
        }
    numbers_rest(codes, whole, row, begin + whole, n - whole);
    return whole < n || _mm256_movemask_epi8(_mm256_cmpeq_epi8(most, _mm256_set1_epi8(-1))) != 0;
}
#else
/* Inputs [k, k + n) of a block's codes, n <= 64; further ones are zeros. Returns `most` and their magnitudes, byte by byte the larger one: 0xff where a code is
 * no number. */
VF_FN __m512i numbers_64(uint8_t *codes, int64_t in, const uint8_t *const row[QR_PANEL], int64_t k, int64_t n, __m512i most)
{
    const __mmask64 there = n < 64 ? (1ull << n) - 1 : UINT64_MAX;
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    uint8_t *to = codes + in * QR_PANEL;
#ifdef QR_ISA_amx
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    for (int32_t o = 0; o < QR_PANEL; o += 2, to += QR_CODED_LINE) {
        const __m512i x = _mm512_maskz_loadu_epi8(there, row[o] + k), y = _mm512_maskz_loadu_epi8(there, row[o + 1] + k);
        const __m512i a = turn_numbers(x), b = turn_numbers(y), low = _mm512_unpacklo_epi32(a, b), high = _mm512_unpackhi_epi32(a, b);
        most = _mm512_max_epu8(most, _mm512_max_epu8(_mm512_or_si512(x, sign), _mm512_or_si512(y, sign)));
        _mm512_storeu_si512(to, _mm512_permutex2var_epi64(low, first, high));
        _mm512_storeu_si512(to + 32 * QR_PANEL, _mm512_permutex2var_epi64(low, second, high));
    }
#else
    const __m512i twos = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    vf v[QR_PANEL] QR_UNINITIALIZED;
    for (int32_t o = 0; o < QR_PANEL; o++) {
        const __m512i x = _mm512_maskz_loadu_epi8(there, row[o] + k);
        most = _mm512_max_epu8(most, _mm512_or_si512(x, sign));
        v[o] = _mm512_castsi512_ps(x);
    }
    vf_transpose(v);
    for (int32_t i = 0; i < 16; i++)
        _mm512_storeu_si512(to + i * QR_CODED_LINE, _mm512_permutexvar_epi16(twos, _mm512_castps_si512(v[i])));
#endif
    return most;
}

/* A block's inputs [begin, end) of 16 rows. Returns whether a code is no number. */
VF_FN bool numbers_block(uint8_t *codes, const uint8_t *const row[QR_PANEL], int64_t begin, int64_t end)
{
    __m512i most = _mm512_setzero_si512();
    for (int64_t k = begin; k < end; k += 64)
        most = numbers_64(codes, k - begin, row, k, end - k < 64 ? end - k : 64, most);
    return _mm512_cmpeq_epi8_mask(most, _mm512_set1_epi8(-1)) != 0;
}
#endif

#endif
