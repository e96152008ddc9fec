/* vectors.h - packed weights of one panel (quant.h) on their way to a product, and its sums on their way to floats. Included by files
 * that are compiled for a level.
 *
 * Each qr_unpack function takes groups of 32 of k [block, block + n) of the panel and writes them from dst's begin on; *ahead are weights that come
 * later, asked for meanwhile (NULL: not), as many bytes as are read.
 *     qr_unpack_4       4 bits to bytes n * m + 128, [k / 4][16][4]
 *     qr_unpack_12      8 bits with multiples to two panels of bytes: u + 128 at dst, l + 120 at dst + second (quant.h)
 *     qr_unpack_bf16    any to bf16, [k / 2][16][2], as linear reads bf16 weights
 */
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
#define VI_LOAD(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define VI_STORE(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), v)
#define VI_MULTIPLES(p) _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p)))
#define VI_AS_FLOATS _mm256_castsi256_ps
#define VI_OF_FLOATS _mm256_castps_si256
#else
typedef __m512i vi;
#define VI(op) _mm512_##op
#define VI_AND _mm512_and_si512
#define VI_OR _mm512_or_si512
#define VI_LOAD(p) _mm512_loadu_si512(p)
#define VI_STORE(p, v) _mm512_storeu_si512(p, v)
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

/* A panel, and how its groups share multiples. */
struct qr_unpack {
    const uint8_t *multiple, *w; /* of the panel's first k */
    int32_t sharing;             /* groups of 32 that share a multiple; 0: there are none */
};

static inline struct qr_unpack qr_unpack_of(const uint8_t *panel, int64_t head_bytes, struct qr_quant_format f)
{
    return (struct qr_unpack){.multiple = qr_quant_multiples(panel), .w = panel + head_bytes, .sharing = f.group / QR_QUANT_GROUP};
}

/* The multiples of a group of 32 for the outputs from byte `at` of a vector row on, one in each lane. */
VF_FN vi multiples_at(const struct qr_unpack *u, int32_t block, int32_t at)
{
    return VI_MULTIPLES(u->multiple + block / u->sharing * QR_PANEL + at / 4);
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

/* n * m + 2048 = (n + 128) * m + (2048 - 128 m) is positive and below 4096: its upper 8 bits are u + 128, its lower 4 l. */
static inline void qr_unpack_12(uint8_t *dst, int64_t second, const struct qr_unpack *u, int32_t block, int32_t n, const uint8_t *ahead)
{
    const uint8_t *w = u->w + (int64_t)block * 512;
    const vi low_byte = VI(set1_epi16)(255), low_half = VI(set1_epi8)(15), shift = VI(set1_epi8)(120);
    for (int32_t g = 0; g < n; g++)
        for (int32_t at = 0; at < 64; at += VI_BYTES) {
            const vi m = twice(multiples_at(u, block + g, at)), add = VI(sub_epi16)(VI(set1_epi16)(2048), VI(slli_epi16)(m, 7));
            for (int32_t i = g * 512 + at; i < (g + 1) * 512; i += 64) {
                vi b = VI_LOAD(w + i), even = VI(add_epi16)(VI(mullo_epi16)(VI_AND(b, low_byte), m), add);
                vi odd = VI(add_epi16)(VI(mullo_epi16)(VI(srli_epi16)(b, 8), m), add);
                if (ahead)
                    _mm_prefetch(ahead + i, _MM_HINT_T1);
                VI_STORE(dst + i, VI_OR(VI(srli_epi16)(even, 4), VI(slli_epi16)(VI(srli_epi16)(odd, 4), 8)));
                VI_STORE(dst + second + i, VI(add_epi8)(VI_AND(VI_OR(VI_AND(even, low_byte), VI(slli_epi16)(odd, 8)), low_half), shift));
            }
        }
}

/* Bytes v + 128 of four k as two rows of pairs of bf16. A byte in the lowest bits of 2^23 as a float, less 2^23 + 128, is v; its upper half
 * is v as bf16, exactly. */
VF_FN void store_pairs_of(uint8_t *dst, vi bytes)
{
    const vi low_byte = VI(set1_epi32)(255), large = VI(set1_epi32)(0x4b000000);
    const vf middle = vf_set1(0x1p23f + 128);
    vi f[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        vi byte = j < 3 ? VI_AND(VI(srli_epi32)(bytes, 8 * j), low_byte) : VI(srli_epi32)(bytes, 24);
        f[j] = VI_OF_FLOATS(vf_sub(VI_AS_FLOATS(VI_OR(byte, large)), middle));
    }
    VI_STORE(dst, VI_OR(VI(srli_epi32)(f[0], 16), f[1]));
    VI_STORE(dst + 64, VI_OR(VI(srli_epi32)(f[2], 16), f[3]));
}

/* The numbers of 4 bits of eight k as floats (n - 8) * m, exactly. Number k of a lane's 32 bits begins at bit 8 (k % 4) + 4 (k / 4). */
#ifdef QR_ISA_avx2
/* A number in the fraction of 2^23 from bit s on is 2^23 + n 2^s, and times m 2^-s, less (2^23 2^-s + 8) m in one rounding, (n - 8) m: of 24 bits, all
 * of these are exact. Beyond bit 16 the numbers come 16 bits lower first. */
struct floats4 {
    vf m[5], less[5];
};

VF_FN struct floats4 floats4_at(const struct qr_unpack *u, int32_t block, int32_t at)
{
    const vf m = _mm256_cvtepi32_ps(multiples_at(u, block, at));
    struct floats4 f;
    for (int i = 0; i < 5; i++) {
        f.m[i] = vf_mul(m, vf_set1(1.0f / (float)(1 << 4 * i)));
        f.less[i] = vf_mul(m, vf_set1((float)(1 << (23 - 4 * i)) + 8));
    }
    return f;
}

VF_FN vf float4(vi packed, const int k, const struct floats4 *f)
{
    const int bit = 8 * (k % 4) + 4 * (k / 4), s = bit > 16 ? bit - 16 : bit;
    const vi there = VI_AND(bit > 16 ? VI(srli_epi32)(packed, 16) : packed, VI(set1_epi32)(15 << s));
    return _mm256_fmsub_ps(VI_AS_FLOATS(VI_OR(there, VI(set1_epi32)(0x4b000000))), f->m[s / 4], f->less[s / 4]);
}
#else
/* A table of sixteen floats, looked up by the lowest four bits of each lane. */
struct floats4 {
    vf m, table;
};

VF_FN struct floats4 floats4_at(const struct qr_unpack *u, int32_t block, int32_t at)
{
    const vf table = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    return (struct floats4){_mm512_cvtepi32_ps(multiples_at(u, block, at)), table};
}

VF_FN vf float4(vi packed, const int k, const struct floats4 *f)
{
    return vf_mul(_mm512_permutexvar_ps(VI(srli_epi32)(packed, 8 * (k % 4) + 4 * (k / 4)), f->table), f->m);
}
#endif

/* |(n - 8) m| <= 120 has at most seven bits, so a float's upper half is all of it. */
static inline void qr_unpack_bf16_4(uint8_t *dst, const struct qr_unpack *u, int32_t block, int32_t n, const uint8_t *ahead)
{
    const uint8_t *w = u->w + (int64_t)block * 256;
    for (int32_t g = 0; g < n; g++)
        for (int32_t at = 0; at < 64; at += VI_BYTES) {
            const struct floats4 f = floats4_at(u, block + g, at);
            for (int32_t i = 0; i < 4; i++) {
                const vi packed = VI_LOAD(w + (g * 4 + i) * 64 + at);
                if (ahead)
                    _mm_prefetch(ahead + (g * 4 + i) * 64, _MM_HINT_T1);
#pragma GCC unroll 4
                for (int k = 0; k < 8; k += 2) {
                    const vi first = VI_OF_FLOATS(float4(packed, k, &f)), second = VI_OF_FLOATS(float4(packed, k + 1, &f));
                    VI_STORE(dst + (g * 16 + i * 4 + k / 2) * 64 + at, VI_OR(VI(srli_epi32)(first, 16), second));
                }
            }
        }
}

static inline void qr_unpack_bf16_8(uint8_t *dst, const struct qr_unpack *u, int32_t block, int32_t n, const uint8_t *ahead)
{
    const uint8_t *w = u->w + (int64_t)block * 512;
    for (int32_t i = 0; i < n * 8; i++) {
        for (int32_t at = 0; at < 64; at += VI_BYTES)
            store_pairs_of(dst + i * 128 + at, VI_LOAD(w + i * 64 + at));
        if (ahead)
            _mm_prefetch(ahead + i * 64, _MM_HINT_T1);
    }
}

/* ---- sums to floats ---- */

/* VF_LEN sums less `minus`. */
VF_FN vi sums_less(const int32_t *c, int32_t minus)
{
    return VI(sub_epi32)(VI_LOAD(c), VI(set1_epi32)(minus));
}

VF_FN vf sums_at(const int32_t *c, int32_t minus)
{
    return VI(cvtepi32_ps)(sums_less(c, minus));
}

/* 16 u + l, rounded once: exact in double. */
VF_FN vf sums_of_parts(vi u, vi l)
{
#ifdef QR_ISA_avx2
    const __m256d sixteen = _mm256_set1_pd(16);
    __m256d low = _mm256_fmadd_pd(_mm256_cvtepi32_pd(_mm256_castsi256_si128(u)), sixteen, _mm256_cvtepi32_pd(_mm256_castsi256_si128(l)));
    __m256d high = _mm256_fmadd_pd(_mm256_cvtepi32_pd(_mm256_extracti128_si256(u, 1)), sixteen, _mm256_cvtepi32_pd(_mm256_extracti128_si256(l, 1)));
    return _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low));
#else
    const __m512d sixteen = _mm512_set1_pd(16);
    __m512d low = _mm512_fmadd_pd(_mm512_cvtepi32_pd(_mm512_castsi512_si256(u)), sixteen, _mm512_cvtepi32_pd(_mm512_castsi512_si256(l)));
    __m512d high = _mm512_fmadd_pd(_mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(u, 1)), sixteen, _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(l, 1)));
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high), 1);
#endif
}

/* The value of sums before scales: c of one part or c and `second` floats further the other's. `offset`: what the sums hold 128 times too
 * often, the sum of the row's x, or 0; `sum`: that sum in any case. */
VF_FN vf sums_value(const int32_t *c, int64_t second, int32_t parts, int32_t offset, int32_t sum)
{
    if (parts == 1)
        return sums_at(c, 128 * offset);
    return sums_of_parts(sums_less(c, 128 * offset), sums_less(c + second, 128 * offset - 8 * sum));
}

#endif
