/* halves.h - emulated 512-bit vectors: what an AVX2 operation on each half does. Included by include/immintrin.h only.
 *
 * A vector has the compiler's own type, which it keeps in memory or in two registers. Operations follow MXCSR as the processor's do (amx/attn_few.h
 * changes it). What an instruction leaves undefined is filled with 0xa5 here, so that code which reads it is found out. */
#ifndef QR_TESTS_ISA_EMU_HALVES_H
#define QR_TESTS_ISA_EMU_HALVES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EMU static inline __attribute__((always_inline, unused))
#define EMU_CALLED static __attribute__((noinline, unused)) /* what is long: kernels unroll much, and the compiler would take minutes over them */

union emu_v {
    __m512 f;
    __m512d d;
    __m512i i;
    __m256 hf[2];
    __m256d hd[2];
    __m256i hi[2];
    __m128i q[4];
    int8_t s8[64];
    uint8_t u8[64];
    int16_t s16[32];
    uint16_t u16[32];
    int32_t s32[16];
    uint32_t u32[16];
    int64_t s64[8];
    uint64_t u64[8];
    float f32[16];
    double f64[8];
};

EMU union emu_v emu_of(__m512i x)
{
    return (union emu_v){.i = x};
}

EMU union emu_v emu_of_ps(__m512 x)
{
    return (union emu_v){.f = x};
}

EMU union emu_v emu_of_pd(__m512d x)
{
    return (union emu_v){.d = x};
}

EMU __m512i emu_join(__m256i low, __m256i high)
{
    return (union emu_v){.hi = {low, high}}.i;
}

EMU __m512 emu_join_ps(__m256 low, __m256 high)
{
    return (union emu_v){.hf = {low, high}}.f;
}

EMU __m512d emu_join_pd(__m256d low, __m256d high)
{
    return (union emu_v){.hd = {low, high}}.d;
}

/* What the processor answers with an exception. */
EMU_CALLED __attribute__((noreturn, cold)) void emu_fault(const char *exception, const char *why)
{
    fprintf(stderr, "emulated level: %s: %s\n", exception, why);
    abort();
}

EMU void emu_aligned(const void *p)
{
    if ((uintptr_t)p % 64 != 0)
        emu_fault("#GP", "an aligned load or store of 64 bytes at an address that is no multiple of 64");
}

/* ---- the same on both halves ---- */

#define EMU_2(name, half)                                              \
    EMU __m512i emu_mm512_##name(__m512i a, __m512i b)                 \
    {                                                                  \
        union emu_v x = emu_of(a), y = emu_of(b);                      \
        return emu_join(half(x.hi[0], y.hi[0]), half(x.hi[1], y.hi[1])); \
    }
#define EMU_2_PS(name, half)                                           \
    EMU __m512 emu_mm512_##name(__m512 a, __m512 b)                    \
    {                                                                  \
        union emu_v x = emu_of_ps(a), y = emu_of_ps(b);                \
        return emu_join_ps(half(x.hf[0], y.hf[0]), half(x.hf[1], y.hf[1])); \
    }
#define EMU_2_PD(name, half)                                           \
    EMU __m512d emu_mm512_##name(__m512d a, __m512d b)                 \
    {                                                                  \
        union emu_v x = emu_of_pd(a), y = emu_of_pd(b);                \
        return emu_join_pd(half(x.hd[0], y.hd[0]), half(x.hd[1], y.hd[1])); \
    }
#define EMU_3_PS(name, half)                                           \
    EMU __m512 emu_mm512_##name(__m512 a, __m512 b, __m512 c)          \
    {                                                                  \
        union emu_v x = emu_of_ps(a), y = emu_of_ps(b), z = emu_of_ps(c); \
        return emu_join_ps(half(x.hf[0], y.hf[0], z.hf[0]), half(x.hf[1], y.hf[1], z.hf[1])); \
    }
#define EMU_3_PD(name, half)                                           \
    EMU __m512d emu_mm512_##name(__m512d a, __m512d b, __m512d c)      \
    {                                                                  \
        union emu_v x = emu_of_pd(a), y = emu_of_pd(b), z = emu_of_pd(c); \
        return emu_join_pd(half(x.hd[0], y.hd[0], z.hd[0]), half(x.hd[1], y.hd[1], z.hd[1])); \
    }
#define EMU_SHIFT(name, half)                                          \
    EMU __m512i emu_mm512_##name(__m512i a, unsigned count)            \
    {                                                                  \
        union emu_v x = emu_of(a);                                     \
        const int n = (int)(count & 255);                              \
        return emu_join(half(x.hi[0], n), half(x.hi[1], n));           \
    }

EMU_2(add_epi8, _mm256_add_epi8)
EMU_2(add_epi16, _mm256_add_epi16)
EMU_2(add_epi32, _mm256_add_epi32)
EMU_2(add_epi64, _mm256_add_epi64)
EMU_2(sub_epi8, _mm256_sub_epi8)
EMU_2(sub_epi16, _mm256_sub_epi16)
EMU_2(sub_epi32, _mm256_sub_epi32)
EMU_2(mullo_epi16, _mm256_mullo_epi16)
EMU_2(mul_epu32, _mm256_mul_epu32)
EMU_2(madd_epi16, _mm256_madd_epi16)
EMU_2(maddubs_epi16, _mm256_maddubs_epi16)
EMU_2(max_epu8, _mm256_max_epu8)
EMU_2(max_epu16, _mm256_max_epu16)
EMU_2(max_epu32, _mm256_max_epu32)
EMU_2(and_si512, _mm256_and_si256)
EMU_2(or_si512, _mm256_or_si256)
EMU_2(xor_si512, _mm256_xor_si256)
EMU_2(srlv_epi32, _mm256_srlv_epi32)
EMU_2(shuffle_epi8, _mm256_shuffle_epi8) /* these work within 16 bytes in either width */
EMU_2(packus_epi16, _mm256_packus_epi16)
EMU_2(packus_epi32, _mm256_packus_epi32)
EMU_2(unpacklo_epi8, _mm256_unpacklo_epi8)
EMU_2(unpackhi_epi8, _mm256_unpackhi_epi8)
EMU_2(unpacklo_epi16, _mm256_unpacklo_epi16)
EMU_2(unpackhi_epi16, _mm256_unpackhi_epi16)
EMU_2(unpacklo_epi32, _mm256_unpacklo_epi32)
EMU_2(unpackhi_epi32, _mm256_unpackhi_epi32)
EMU_2(unpacklo_epi64, _mm256_unpacklo_epi64)
EMU_2(unpackhi_epi64, _mm256_unpackhi_epi64)
EMU_SHIFT(slli_epi16, _mm256_slli_epi16)
EMU_SHIFT(slli_epi32, _mm256_slli_epi32)
EMU_SHIFT(slli_epi64, _mm256_slli_epi64)
EMU_SHIFT(srli_epi16, _mm256_srli_epi16)
EMU_SHIFT(srli_epi32, _mm256_srli_epi32)
EMU_SHIFT(srli_epi64, _mm256_srli_epi64)
EMU_SHIFT(srai_epi16, _mm256_srai_epi16)
EMU_SHIFT(srai_epi32, _mm256_srai_epi32)

EMU_2_PS(add_ps, _mm256_add_ps)
EMU_2_PS(sub_ps, _mm256_sub_ps)
EMU_2_PS(mul_ps, _mm256_mul_ps)
EMU_2_PS(div_ps, _mm256_div_ps)
EMU_2_PS(max_ps, _mm256_max_ps)
EMU_2_PS(min_ps, _mm256_min_ps)
EMU_2_PS(and_ps, _mm256_and_ps)
EMU_2_PS(or_ps, _mm256_or_ps)
EMU_2_PS(andnot_ps, _mm256_andnot_ps)
EMU_2_PS(unpacklo_ps, _mm256_unpacklo_ps)
EMU_2_PS(unpackhi_ps, _mm256_unpackhi_ps)
EMU_3_PS(fmadd_ps, _mm256_fmadd_ps)
EMU_3_PS(fnmadd_ps, _mm256_fnmadd_ps)
EMU_2_PD(add_pd, _mm256_add_pd)
EMU_2_PD(mul_pd, _mm256_mul_pd)
EMU_2_PD(unpacklo_pd, _mm256_unpacklo_pd)
EMU_2_PD(unpackhi_pd, _mm256_unpackhi_pd)
EMU_3_PD(fmadd_pd, _mm256_fmadd_pd)
EMU_3_PD(fnmadd_pd, _mm256_fnmadd_pd)

EMU __m512 emu_mm512_abs_ps(__m512 a)
{
    const __m256 bits = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    union emu_v x = emu_of_ps(a);
    return emu_join_ps(_mm256_and_ps(x.hf[0], bits), _mm256_and_ps(x.hf[1], bits));
}

/* ---- other types, halves, constants ---- */

EMU __m512 emu_mm512_castpd_ps(__m512d a)
{
    return (__m512)a;
}

EMU __m512d emu_mm512_castps_pd(__m512 a)
{
    return (__m512d)a;
}

EMU __m512i emu_mm512_castps_si512(__m512 a)
{
    return (__m512i)a;
}

EMU __m512 emu_mm512_castsi512_ps(__m512i a)
{
    return (__m512)a;
}

EMU __m512i emu_mm512_castsi256_si512(__m256i a)
{
    return emu_join(a, _mm256_set1_epi8((char)0xa5));
}

EMU __m512 emu_mm512_castps256_ps512(__m256 a)
{
    return emu_join_ps(a, _mm256_castsi256_ps(_mm256_set1_epi8((char)0xa5)));
}

EMU __m512i emu_mm512_castsi128_si512(__m128i a)
{
    const __m128i undefined = _mm_set1_epi8((char)0xa5);
    return (union emu_v){.q = {a, undefined, undefined, undefined}}.i;
}

EMU __m128i emu_mm512_castsi512_si128(__m512i a)
{
    return emu_of(a).q[0];
}

EMU __m256i emu_mm512_castsi512_si256(__m512i a)
{
    return emu_of(a).hi[0];
}

EMU __m256 emu_mm512_castps512_ps256(__m512 a)
{
    return emu_of_ps(a).hf[0];
}

EMU __m256 emu_mm512_extractf32x8_ps(__m512 a, int which)
{
    return emu_of_ps(a).hf[which & 1];
}

EMU __m256i emu_mm512_extracti64x4_epi64(__m512i a, int which)
{
    return emu_of(a).hi[which & 1];
}

EMU __m512 emu_mm512_insertf32x8(__m512 a, __m256 b, int which)
{
    union emu_v x = emu_of_ps(a);
    x.hf[which & 1] = b;
    return x.f;
}

EMU __m512d emu_mm512_insertf64x4(__m512d a, __m256d b, int which)
{
    union emu_v x = emu_of_pd(a);
    x.hd[which & 1] = b;
    return x.d;
}

EMU __m512i emu_mm512_inserti64x4(__m512i a, __m256i b, int which)
{
    union emu_v x = emu_of(a);
    x.hi[which & 1] = b;
    return x.i;
}

EMU __m512i emu_mm512_inserti32x4(__m512i a, __m128i b, int which)
{
    union emu_v x = emu_of(a);
    x.q[which & 3] = b;
    return x.i;
}

EMU __m512i emu_mm512_broadcast_i32x4(__m128i a)
{
    return emu_join(_mm256_broadcastsi128_si256(a), _mm256_broadcastsi128_si256(a));
}

EMU __m512i emu_mm512_broadcast_i64x4(__m256i a)
{
    return emu_join(a, a);
}

EMU float emu_mm512_cvtss_f32(__m512 a)
{
    return emu_of_ps(a).f32[0];
}

EMU __m512i emu_mm512_setzero_si512(void)
{
    return emu_join(_mm256_setzero_si256(), _mm256_setzero_si256());
}

EMU __m512 emu_mm512_setzero_ps(void)
{
    return emu_join_ps(_mm256_setzero_ps(), _mm256_setzero_ps());
}

EMU __m512d emu_mm512_setzero_pd(void)
{
    return emu_join_pd(_mm256_setzero_pd(), _mm256_setzero_pd());
}

EMU __m512i emu_mm512_set1_epi8(char a)
{
    return emu_join(_mm256_set1_epi8(a), _mm256_set1_epi8(a));
}

EMU __m512i emu_mm512_set1_epi16(short a)
{
    return emu_join(_mm256_set1_epi16(a), _mm256_set1_epi16(a));
}

EMU __m512i emu_mm512_set1_epi32(int a)
{
    return emu_join(_mm256_set1_epi32(a), _mm256_set1_epi32(a));
}

EMU __m512i emu_mm512_set1_epi64(long long a)
{
    return emu_join(_mm256_set1_epi64x(a), _mm256_set1_epi64x(a));
}

EMU __m512 emu_mm512_set1_ps(float a)
{
    return emu_join_ps(_mm256_set1_ps(a), _mm256_set1_ps(a));
}

EMU __m512d emu_mm512_set1_pd(double a)
{
    return emu_join_pd(_mm256_set1_pd(a), _mm256_set1_pd(a));
}

/* Element 0 first; set_: element 0 last. */
#define emu_mm512_setr_epi32(...) ((union emu_v){.s32 = {__VA_ARGS__}}.i)
#define emu_mm512_setr_epi64(...) ((union emu_v){.s64 = {__VA_ARGS__}}.i)
#define emu_mm512_setr_ps(...) ((union emu_v){.f32 = {__VA_ARGS__}}.f)
#define emu_mm512_set_epi64(h, g, f, e, d, c, b, a) emu_mm512_setr_epi64(a, b, c, d, e, f, g, h)

EMU __m512i emu_mm512_set_epi16(short a31, short a30, short a29, short a28, short a27, short a26, short a25, short a24, short a23, short a22, short a21,
                                short a20, short a19, short a18, short a17, short a16, short a15, short a14, short a13, short a12, short a11, short a10,
                                short a9, short a8, short a7, short a6, short a5, short a4, short a3, short a2, short a1, short a0)
{
    return (union emu_v){.s16 = {a0,  a1,  a2,  a3,  a4,  a5,  a6,  a7,  a8,  a9,  a10, a11, a12, a13, a14, a15,
                                 a16, a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31}}.i;
}

/* ---- memory ---- */

EMU __m512i emu_mm512_loadu_si512(const void *p)
{
    const __m256i *at = (const __m256i *)p;
    return emu_join(_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1));
}

EMU __m512i emu_mm512_load_si512(const void *p)
{
    emu_aligned(p);
    return emu_mm512_loadu_si512(p);
}

EMU __m512 emu_mm512_loadu_ps(const void *p)
{
    return (__m512)emu_mm512_loadu_si512(p);
}

EMU void emu_mm512_storeu_si512(void *p, __m512i a)
{
    union emu_v x = emu_of(a);
    __m256i *at = (__m256i *)p;
    _mm256_storeu_si256(at, x.hi[0]);
    _mm256_storeu_si256(at + 1, x.hi[1]);
}

EMU void emu_mm512_storeu_ps(void *p, __m512 a)
{
    emu_mm512_storeu_si512(p, (__m512i)a);
}

EMU void emu_mm512_storeu_pd(void *p, __m512d a)
{
    emu_mm512_storeu_si512(p, (__m512i)a);
}

EMU void emu_mm512_stream_si512(void *p, __m512i a)
{
    emu_aligned(p);
    emu_mm512_storeu_si512(p, a);
}

/* ---- numbers of other types ---- */

EMU __m512i emu_mm512_cvtps_epi32(__m512 a)
{
    union emu_v x = emu_of_ps(a);
    return emu_join(_mm256_cvtps_epi32(x.hf[0]), _mm256_cvtps_epi32(x.hf[1]));
}

EMU __m512 emu_mm512_cvtepi32_ps(__m512i a)
{
    union emu_v x = emu_of(a);
    return emu_join_ps(_mm256_cvtepi32_ps(x.hi[0]), _mm256_cvtepi32_ps(x.hi[1]));
}

EMU __m512d emu_mm512_cvtepi32_pd(__m256i a)
{
    return emu_join_pd(_mm256_cvtepi32_pd(_mm256_castsi256_si128(a)), _mm256_cvtepi32_pd(_mm256_extracti128_si256(a, 1)));
}

EMU __m512d emu_mm512_cvtps_pd(__m256 a)
{
    return emu_join_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(a)), _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)));
}

EMU __m256 emu_mm512_cvtpd_ps(__m512d a)
{
    union emu_v x = emu_of_pd(a);
    return _mm256_set_m128(_mm256_cvtpd_ps(x.hd[1]), _mm256_cvtpd_ps(x.hd[0]));
}

EMU __m512 emu_mm512_cvtph_ps(__m256i a)
{
    return emu_join_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(a)), _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)));
}

/* To nearest, whatever MXCSR says; no other rounding is asked for. */
EMU __m256i emu_mm512_cvtps_ph(__m512 a, int rounding)
{
    union emu_v x = emu_of_ps(a);
    if ((rounding & 7) != _MM_FROUND_TO_NEAREST_INT)
        emu_fault("not emulated", "vcvtps2ph that does not round to nearest");
    return _mm256_set_m128i(_mm256_cvtps_ph(x.hf[1], _MM_FROUND_TO_NEAREST_INT), _mm256_cvtps_ph(x.hf[0], _MM_FROUND_TO_NEAREST_INT));
}

EMU __m512i emu_mm512_cvtepi8_epi32(__m128i a)
{
    return emu_join(_mm256_cvtepi8_epi32(a), _mm256_cvtepi8_epi32(_mm_srli_si128(a, 8)));
}

EMU __m512i emu_mm512_cvtepu8_epi32(__m128i a)
{
    return emu_join(_mm256_cvtepu8_epi32(a), _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8)));
}

EMU __m512i emu_mm512_cvtepu8_epi16(__m256i a)
{
    return emu_join(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(a)), _mm256_cvtepu8_epi16(_mm256_extracti128_si256(a, 1)));
}

EMU __m512i emu_mm512_cvtepu16_epi32(__m256i a)
{
    return emu_join(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)), _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1)));
}

#endif
