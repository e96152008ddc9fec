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

/* The same as levels of 6 bits, code after code: neighbours are joined two by two, bytes, then words. */
VF_FN void interleave_6(uint8_t *to, const vi t[VF_LEN])
{
    const vi three = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    for (int32_t i = 0; i < VF_LEN; i++, to += QR_CODED_LINE / 8 * 6) {
        uint8_t quarters[VI_BYTES];
        const vi twos = VI(maddubs_epi16)(t[i], VI(set1_epi16)(1 | 1 << 14));
        VI_STORE(quarters, VI(shuffle_epi8)(VI(madd_epi16)(twos, VI(set1_epi32)(1 | 1 << 28)), three));
        memcpy(to, quarters, 12);
        memcpy(to + 12, quarters + 16, 12);
    }
}

/* 32 codes of each of 16 outputs, none above its bits, as the panel has them from `to` on. */
static void interleave_32(uint8_t *to, struct qr_coded_format f, const vi v[QR_PANEL])
{
    for (int32_t half = 0; half < 2; half++) {
        uint8_t *at = to + half * (QR_CODED_LINE / 2);
        vf columns[VF_LEN] QR_UNINITIALIZED;
        vi t[VF_LEN] QR_UNINITIALIZED, l[LINES_32] QR_UNINITIALIZED; /* t[i]: inputs 4 i to 4 i + 3 of eight outputs */
        for (int32_t o = 0; o < VF_LEN; o++)
            columns[o] = VI_AS_FLOATS(v[VF_LEN * half + o]);
        vf_transpose(columns);
        for (int32_t i = 0; i < VF_LEN; i++)
            t[i] = VI_OF_FLOATS(columns[i]);
        for (int32_t i = 0; i < LINES_32; i++)
            l[i] = VI_OR(t[2 * i], VI(slli_epi16)(t[2 * i + 1], 4));
        if (f.e4m3)
            interleave_e4m3(to + half * QR_PANEL, t);
        else if (f.bits == 5)
            lines_store_five(at, t);
        else if (f.bits == 6)
            interleave_6(to + half * (QR_CODED_LINE / 16 * 6), t);
        else if (f.bits == 2)
            lines_store_low(at, l, 2);
        else if (f.bits == 3)
            lines_store_low(at, l, 3);
        else
            for (int32_t i = 0; i < f.bits; i++)
                VI_STORE(at + i * QR_CODED_LINE, f.bits == 4 ? l[i] : t[i]);
    }
}

#endif
