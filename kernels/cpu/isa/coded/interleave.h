/* interleave.h - codes of 16 outputs and 32 inputs into a panel's order (coded.h), but for tiles
 * (amx/coded_interleave.h). For pack.c. */
#ifndef QR_KERNELS_CPU_ISA_CODED_INTERLEAVE_H
#define QR_KERNELS_CPU_ISA_CODED_INTERLEAVE_H

#include "kernels/cpu/isa/coded/lines.h"
#include "kernels/cpu/isa/simd.h"

/* What codes are levels less of; with 4 bits a table says what codes are. */
#define INTERLEAVE_LEAST(f) ((f).bits == 6 || (f).bits == 8 ? 0 : qr_coded_least(f))

/* Inputs of eight outputs, four to a register, as E4M3 numbers: the first and second two of them lie half a line
 * apart. */
VF_FN void interleave_e4m3(uint8_t *to, const vi t[VF_LEN])
{
    const vi twos = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    for (int32_t i = 0; i < VF_LEN; i++, to += QR_CODED_LINE) {
        const vi v = _mm256_permute4x64_epi64(VI(shuffle_epi8)(t[i], twos), 0xd8);
        _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(v));
        _mm_storeu_si128((__m128i *)(void *)(to + QR_CODED_LINE / 2), _mm256_extracti128_si256(v, 1));
    }
}

/* The same as levels of 6 bits, code after code: neighbours are joined two by two, bytes, then words, then both halves. */
VF_FN void interleave_6(uint8_t *to, const vi t[VF_LEN])
{
    const vi three = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    const vi six = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7);
    for (int32_t i = 0; i < VF_LEN; i++, to += QR_CODED_LINE / 8 * 6) {
        const vi twos = VI(maddubs_epi16)(t[i], VI(set1_epi16)(1 | 1 << 14));
        const vi halves = VI(shuffle_epi8)(VI(madd_epi16)(twos, VI(set1_epi32)(1 | 1 << 28)), three);
        const vi joined = _mm256_permutevar8x32_epi32(halves, six);
        _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(joined));
        _mm_storel_epi64((__m128i *)(void *)(to + 16), _mm256_extracti128_si256(joined, 1));
    }
}

#define INTERLEAVED VF_LEN /* outputs at a time */

/* 32 codes of each of eight outputs from output `first` on, none above its bits, as the panel has them from `to` on. */
VF_FN void interleave_32(uint8_t *to, struct qr_coded_format f, const vi v[INTERLEAVED], int32_t first)
{
    uint8_t *at = to + first * 4;
    vf columns[VF_LEN] QR_UNINITIALIZED;
    vi t[VF_LEN] QR_UNINITIALIZED, l[LINES_32] QR_UNINITIALIZED; /* t[i]: inputs 4 i to 4 i + 3 of eight outputs */
    for (int32_t o = 0; o < VF_LEN; o++)
        columns[o] = VI_AS_FLOATS(v[o]);
    vf_transpose(columns);
    for (int32_t i = 0; i < VF_LEN; i++)
        t[i] = VI_OF_FLOATS(columns[i]);
    for (int32_t i = 0; i < LINES_32; i++)
        l[i] = VI_OR(t[2 * i], VI(slli_epi16)(t[2 * i + 1], 4));
    if (f.e4m3)
        interleave_e4m3(to + first * 2, t);
    else if (f.bits == 5)
        lines_store_five(at, t);
    else if (f.bits == 6)
        interleave_6(to + first * 3, t);
    else if (f.bits == 2)
        lines_store_low(at, l, 2);
    else if (f.bits == 3)
        lines_store_low(at, l, 3);
    for (int32_t i = 0; f.bits == 4 && i < LINES_32; i++)
        VI_STORE(at + i * QR_CODED_LINE, l[i]);
    for (int32_t i = 0; f.bits == 8 && !f.e4m3 && i < VF_LEN; i++)
        VI_STORE(at + i * QR_CODED_LINE, t[i]);
}

#endif
