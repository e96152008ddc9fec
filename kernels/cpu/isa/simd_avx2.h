/* simd_avx2.h - simd.h with 256-bit vectors (AVX2, FMA, F16C). Included by simd.h only. */
#ifndef QR_KERNELS_CPU_SIMD_AVX2_H
#define QR_KERNELS_CPU_SIMD_AVX2_H

#define VF_LEN 8
typedef __m256 vf;

/* All bits set in the lanes below n. */
VF_FN __m256i vf_mask(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

VF_FN vf vf_zero(void)
{
    return _mm256_setzero_ps();
}

VF_FN vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}

VF_FN vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

/* Whole vectors go the plain way: masked stores are 40 operations on AMD's processors, and their results reach no load before they are in the cache. */
VF_FN vf vf_load_n(const float *p, int64_t n)
{
    return n >= VF_LEN ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, vf_mask(n));
}

VF_FN void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}

VF_FN void vf_store_n(float *p, vf x, int64_t n)
{
    if (n >= VF_LEN)
        _mm256_storeu_ps(p, x);
    else
        _mm256_maskstore_ps(p, vf_mask(n), x);
}

/* x where the lane is below n, else 0. */
VF_FN vf vf_keep_n(vf x, int64_t n)
{
    return _mm256_and_ps(_mm256_castsi256_ps(vf_mask(n)), x);
}

/* a where first <= lane < end, else b; 0 <= first <= end <= VF_LEN. */
VF_FN vf vf_pick_range(int64_t first, int64_t end, vf a, vf b)
{
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(_mm256_andnot_si256(vf_mask(first), vf_mask(end))));
}

VF_FN vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

VF_FN vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

VF_FN vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

VF_FN vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

VF_FN vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

VF_FN vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}

VF_FN vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* c - a b */
VF_FN vf vf_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

VF_FN vf vf_abs(vf x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

VF_FN vf vf_copysign(vf size, vf sign)
{
    const __m256 bit = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(bit, size), _mm256_and_ps(bit, sign));
}

VF_FN vf vf_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

VF_FN vf vf_power2(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* x 2^n for whole n, |n| <= 250: two factors, so that neither overflows and denormal results are rounded once, by the second. */
VF_FN vf vf_scale2(vf x, vf n)
{
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    return _mm256_mul_ps(_mm256_mul_ps(x, vf_power2(half)), vf_power2(_mm256_sub_epi32(whole, half)));
}

/* t as whole part *n and fraction in [0, 1]; below -151 all is -151. */
VF_FN vf vf_split_exponent(vf t, vf *n)
{
    t = _mm256_max_ps(_mm256_set1_ps(-151.0f), t); /* t second: NaN passes */
    *n = _mm256_floor_ps(t);
    return _mm256_sub_ps(t, *n);
}

/* a where x is 0, else b. */
VF_FN vf vf_pick_zero(vf x, vf a, vf b)
{
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_EQ_OQ));
}

/* x where a is less than b, else y. */
VF_FN vf vf_pick_less(vf a, vf b, vf x, vf y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

/* The sum of all lanes: halves added until one is left. */
VF_FN float vf_sum(vf x)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

VF_FN float vf_max_all(vf x)
{
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

/* n 16-bit numbers, zeros behind them. */
VF_FN __m128i vf_load_u16_n(const uint16_t *p, int64_t n)
{
    if (n == VF_LEN)
        return _mm_loadu_si128((const __m128i *)p);
    uint16_t part[VF_LEN] = {0};
    memcpy(part, p, (size_t)n * sizeof *p);
    return _mm_loadu_si128((const __m128i *)part);
}

VF_FN vf vf_load_bf16(const uint16_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}

VF_FN vf vf_load_bf16_n(const uint16_t *p, int64_t n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(vf_load_u16_n(p, n)), 16));
}

/* n integers of 8 bits, n a multiple of 8. */
VF_FN vf vf_load_i8_n(const int8_t *p, int64_t n)
{
    return n < VF_LEN ? vf_zero() : _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

VF_FN vf vf_load_f16_n(const uint16_t *p, int64_t n)
{
    return _mm256_cvtph_ps(vf_load_u16_n(p, n));
}

typedef __m256i vpairs;

VF_FN vpairs vf_as_pairs(vf x)
{
    return _mm256_castps_si256(x);
}

VF_FN vpairs vf_load_pairs(const void *p)
{
    return _mm256_loadu_si256(p);
}

/* The first (second) numbers of VF_LEN pairs of bf16. */
VF_FN vf vf_pairs_first(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}

VF_FN vf vf_pairs_second(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000)));
}

/* Of VF_LEN groups of four integers of 8 bits, those at place `which`. */
VF_FN vf vf_quads_at(__m256i quads, const int which)
{
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(quads, 24 - 8 * which), 24));
}

/* The nearest bf16 (ties to even, NaN stays NaN) in the upper half of each lane; the lower half is 0. */
VF_FN __m256i vf_to_bf16_bits(vf x)
{
    __m256i u = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    r = _mm256_blendv_epi8(r, _mm256_or_si256(u, _mm256_set1_epi32(0x400000)), nan);
    return _mm256_and_si256(r, _mm256_set1_epi32((int)0xffff0000));
}

VF_FN vf vf_round_bf16(vf x)
{
    return _mm256_castsi256_ps(vf_to_bf16_bits(x));
}

VF_FN void vf_store_bf16_n(uint16_t *p, vf x, int64_t n)
{
    __m256i h = _mm256_srli_epi32(vf_to_bf16_bits(x), 16);
    __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
    if (n == VF_LEN) {
        _mm_storeu_si128((__m128i *)p, packed);
        return;
    }
    uint16_t part[VF_LEN];
    _mm_storeu_si128((__m128i *)part, packed);
    memcpy(p, part, (size_t)n * sizeof *p);
}

/* VF_LEN rows of VF_LEN 32-bit lanes become columns. */
VF_FN void vf_transpose(vf r[VF_LEN])
{
    __m256d b[VF_LEN];
    for (int i = 0; i < 8; i += 4) {
        __m256d lo0 = _mm256_castps_pd(_mm256_unpacklo_ps(r[i], r[i + 1])), hi0 = _mm256_castps_pd(_mm256_unpackhi_ps(r[i], r[i + 1]));
        __m256d lo1 = _mm256_castps_pd(_mm256_unpacklo_ps(r[i + 2], r[i + 3]));
        __m256d hi1 = _mm256_castps_pd(_mm256_unpackhi_ps(r[i + 2], r[i + 3]));
        b[i] = _mm256_unpacklo_pd(lo0, lo1);
        b[i + 1] = _mm256_unpackhi_pd(lo0, lo1);
        b[i + 2] = _mm256_unpacklo_pd(hi0, hi1);
        b[i + 3] = _mm256_unpackhi_pd(hi0, hi1);
    }
    for (int c = 0; c < 4; c++) { /* half L of b[4i + c] holds column 4L + c of rows 4i .. 4i+3 */
        r[c] = _mm256_castpd_ps(_mm256_permute2f128_pd(b[c], b[4 + c], 0x20));
        r[4 + c] = _mm256_castpd_ps(_mm256_permute2f128_pd(b[c], b[4 + c], 0x31));
    }
}

#endif
