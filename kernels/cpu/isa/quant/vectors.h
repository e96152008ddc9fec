/* vectors.h - packed weights of one panel (quant.h) on their way to a product, and its sums on their way to floats. Included by files
 * that are compiled for a level. */
#ifndef QR_KERNELS_CPU_ISA_QUANT_VECTORS_H
#define QR_KERNELS_CPU_ISA_QUANT_VECTORS_H

#include "kernels/cpu/isa/quant/quant.h"
#include "kernels/cpu/isa/simd.h"

/* Vectors of bytes of as many outputs, four bytes each, as fit. */
#ifdef QR_ISA_avx2
typedef __m256i vi;
#define VI(op) _mm256_##op
#define VI_AND _mm256_and_si256
#define VI_OR _mm256_or_si256
#define VI_XOR _mm256_xor_si256
#define VI_SET1_64 _mm256_set1_epi64x
#define VI_LOAD(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define VI_STORE(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), v)
#define VI_STREAM(p, v) _mm256_stream_si256((__m256i *)(void *)(p), v)
#define VI_MULTIPLES(p) _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p)))
#define VI_AS_FLOATS _mm256_castsi256_ps
#define VI_OF_FLOATS _mm256_castps_si256
#else
typedef __m512i vi;
#define VI(op) _mm512_##op
#define VI_AND _mm512_and_si512
#define VI_OR _mm512_or_si512
#define VI_XOR _mm512_xor_si512
#define VI_SET1_64 _mm512_set1_epi64
#define VI_LOAD(p) _mm512_loadu_si512(p)
#define VI_STORE(p, v) _mm512_storeu_si512(p, v)
#define VI_STREAM(p, v) _mm512_stream_si512((void *)(p), v)
#define VI_MULTIPLES(p) _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define VI_AS_FLOATS _mm512_castsi512_ps
#define VI_OF_FLOATS _mm512_castps_si512
#endif
#define VI_BYTES ((int32_t)sizeof(vi))

#ifdef QR_ISA_avx2
/* Sums where they lie. Left to itself the compiler adds products to each other first, and runs out of registers for them. */
VF_FN void add_onto_32(vi *sum, vi v)
{
    __asm__ volatile("vpaddd %1, %0, %0" : "+x"(*sum) : "x"(v));
}

VF_FN void add_onto_16(vi *sum, vi v)
{
    __asm__ volatile("vpaddw %1, %0, %0" : "+x"(*sum) : "x"(v));
}
#endif

/* A panel. */
struct qr_unpack {
    const uint8_t *multiple, *w; /* of the panel's first k */
};

static inline struct qr_unpack qr_unpack_of(const uint8_t *panel, int64_t head_bytes)
{
    return (struct qr_unpack){.multiple = qr_quant_multiples(panel), .w = panel + head_bytes};
}

/* The multiples of a group of 32 for the outputs from byte `at` of a vector row on, one in each lane. */
VF_FN vi multiples_at(const struct qr_unpack *u, int32_t block, int32_t at)
{
    return VI_MULTIPLES(u->multiple + block * QR_PANEL + at / 4);
}

/* What b holds for every output, in both halves; in all four bytes. */
VF_FN vi twice(vi b)
{
    return VI_OR(b, VI(slli_epi32)(b, 16));
}

VF_FN vi four_times(vi b)
{
    return twice(VI_OR(b, VI(slli_epi32)(b, 8)));
}

/* What 4-bit weights need: bytes n * m + 128 = (n + 8) * m + (128 - 8 m). Two products of a half and a multiple fit 16 bits side by side:
 * 15 * 15 < 256. */
struct multiple4 {
    vi m16, add;
};

VF_FN struct multiple4 multiple4_at(const struct qr_unpack *u, int32_t block, int32_t at)
{
    vi m = multiples_at(u, block, at);
    return (struct multiple4){twice(m), four_times(VI(sub_epi32)(VI(set1_epi32)(128), VI(slli_epi32)(m, 3)))};
}

VF_FN void unpack4(vi *low, vi *high, vi packed, const struct multiple4 *m)
{
    const vi low_half = VI(set1_epi8)(15);
    *low = VI(add_epi8)(VI(mullo_epi16)(VI_AND(packed, low_half), m->m16), m->add);
    *high = VI(add_epi8)(VI(mullo_epi16)(VI_AND(VI(srli_epi16)(packed, 4), low_half), m->m16), m->add);
}

/* Groups of 32 of k [block, block + n) of a panel of 4 bits, from dst's begin on, as bytes n * m + 128, [k / 4][16][4]. As many
 * bytes as are read are prefetched from `ahead` on (NULL: none). */
static inline void qr_unpack_4(uint8_t *dst, const struct qr_unpack *u, int32_t block, int32_t n, const uint8_t *ahead)
{
    const uint8_t *w = u->w + (int64_t)block * 256;
    for (int32_t g = 0; g < n; g++)
        for (int32_t at = 0; at < 64; at += VI_BYTES) {
            const struct multiple4 m = multiple4_at(u, block + g, at);
            for (int32_t i = 0; i < 4; i++) {
                vi low, high;
                unpack4(&low, &high, VI_LOAD(w + (g * 4 + i) * 64 + at), &m);
                if (ahead)
                    _mm_prefetch(ahead + (g * 4 + i) * 64, _MM_HINT_T1);
                VI_STORE(dst + (g * 8 + i * 2) * 64 + at, low);
                VI_STORE(dst + (g * 8 + i * 2 + 1) * 64 + at, high);
            }
        }
}

/* ---- sums to floats ---- */

/* VF_LEN sums less `minus`. */
VF_FN vf sums_at(const int32_t *c, int32_t minus)
{
    return VI(cvtepi32_ps)(VI(sub_epi32)(VI_LOAD(c), VI(set1_epi32)(minus)));
}

#endif
