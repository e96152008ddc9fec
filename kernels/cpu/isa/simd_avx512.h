/* simd_avx512.h - simd.h with 512-bit vectors (AVX-512 F, BW, VL, DQ). Included by simd.h only. */
#ifndef QR_KERNELS_CPU_SIMD_AVX512_H
#define QR_KERNELS_CPU_SIMD_AVX512_H

#define VF_LEN 16
typedef __m512 vf;

VF_FN __mmask16 vf_mask(int64_t n)
{
    return (__mmask16)((1u << n) - 1u);
}

VF_FN vf vf_zero(void)
{
    return _mm512_setzero_ps();
}

VF_FN vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}

VF_FN vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

VF_FN vf vf_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(vf_mask(n), p);
}

VF_FN void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}

VF_FN void vf_store_n(float *p, vf x, int64_t n)
{
    _mm512_mask_storeu_ps(p, vf_mask(n), x);
}

/* x where the lane is below n, else 0. */
VF_FN vf vf_keep_n(vf x, int64_t n)
{
    return _mm512_maskz_mov_ps(vf_mask(n), x);
}

/* a where first <= lane < end, else b; 0 <= first <= end <= VF_LEN. */
VF_FN vf vf_pick_range(int64_t first, int64_t end, vf a, vf b)
{
    return _mm512_mask_mov_ps(b, (__mmask16)(vf_mask(end) & ~vf_mask(first)), a);
}

VF_FN vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

VF_FN vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

VF_FN vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

VF_FN vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

VF_FN vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

VF_FN vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

VF_FN vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* c - a b */
VF_FN vf vf_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

VF_FN vf vf_abs(vf x)
{
    return _mm512_abs_ps(x);
}

VF_FN vf vf_copysign(vf size, vf sign)
{
    const __m512 bit = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(bit, size), _mm512_and_ps(bit, sign));
}

VF_FN vf vf_round(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* x 2^n for whole n. */
VF_FN vf vf_scale2(vf x, vf n)
{
    return _mm512_scalef_ps(x, n);
}

/* t as whole part *n (what vf_scale2 makes of it) and fraction in [0, 1]; -infinity has the fraction 0. */
VF_FN vf vf_split_exponent(vf t, vf *n)
{
    *n = t; /* scalef takes the floor itself */
    return _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

/* a where x is 0, else b. */
VF_FN vf vf_pick_zero(vf x, vf a, vf b)
{
    return _mm512_mask_mov_ps(b, _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_EQ_OQ), a);
}

/* x where a is less than b, else y. */
VF_FN vf vf_pick_less(vf a, vf b, vf x, vf y)
{
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), x);
}

/* The sum of all lanes: halves added until one is left. */
VF_FN float vf_sum(vf x)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

VF_FN float vf_max_all(vf x)
{
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

VF_FN vf vf_load_bf16(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}

VF_FN vf vf_load_bf16_n(const uint16_t *p, int64_t n)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vf_mask(n), p)), 16));
}

/* n integers of 8 bits, n a multiple of 8. */
VF_FN vf vf_load_i8_n(const int8_t *p, int64_t n)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(vf_mask(n), p)));
}

VF_FN vf vf_load_f16_n(const uint16_t *p, int64_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vf_mask(n), p));
}

/* The first (second) numbers of VF_LEN pairs of bf16. */
VF_FN vf vf_pairs_first(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

VF_FN vf vf_pairs_second(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000)));
}

/* Of VF_LEN groups of four integers of 8 bits, those at place `which`. */
VF_FN vf vf_quads_at(__m512i quads, const int which)
{
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(quads, (unsigned)(24 - 8 * which)), 24));
}

typedef __m512i vpairs;

VF_FN vpairs vf_as_pairs(vf x)
{
    return _mm512_castps_si512(x);
}

VF_FN vpairs vf_load_pairs(const void *p)
{
    return _mm512_loadu_si512(p);
}

/* The nearest bf16 (ties to even, NaN stays NaN) in the upper half of each lane; the lower half is 0. */
VF_FN __m512i vf_to_bf16_bits(vf x)
{
    __m512i u = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    r = _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), u, _mm512_set1_epi32(0x400000));
    return _mm512_and_si512(r, _mm512_set1_epi32((int)0xffff0000));
}

VF_FN vf vf_round_bf16(vf x)
{
    return _mm512_castsi512_ps(vf_to_bf16_bits(x));
}

VF_FN void vf_store_bf16_n(uint16_t *p, vf x, int64_t n)
{
    __m256i h = _mm512_cvtepi32_epi16(_mm512_srli_epi32(vf_to_bf16_bits(x), 16));
    _mm256_mask_storeu_epi16(p, vf_mask(n), h);
}

/* VF_LEN rows of VF_LEN 32-bit lanes become columns. */
VF_FN void vf_transpose(vf r[VF_LEN])
{
    __m512d b[VF_LEN];
    for (int i = 0; i < 16; i += 4) {
        __m512d lo0 = _mm512_castps_pd(_mm512_unpacklo_ps(r[i], r[i + 1])), hi0 = _mm512_castps_pd(_mm512_unpackhi_ps(r[i], r[i + 1]));
        __m512d lo1 = _mm512_castps_pd(_mm512_unpacklo_ps(r[i + 2], r[i + 3]));
        __m512d hi1 = _mm512_castps_pd(_mm512_unpackhi_ps(r[i + 2], r[i + 3]));
        b[i] = _mm512_unpacklo_pd(lo0, lo1);
        b[i + 1] = _mm512_unpackhi_pd(lo0, lo1);
        b[i + 2] = _mm512_unpacklo_pd(hi0, hi1);
        b[i + 3] = _mm512_unpackhi_pd(hi0, hi1);
    }
    for (int c = 0; c < 4; c++) { /* quarter L of b[4i + c] holds column 4L + c of rows 4i .. 4i+3 */
        __m512d even0 = _mm512_shuffle_f64x2(b[c], b[4 + c], 0x88), odd0 = _mm512_shuffle_f64x2(b[c], b[4 + c], 0xdd);
        __m512d even1 = _mm512_shuffle_f64x2(b[8 + c], b[12 + c], 0x88), odd1 = _mm512_shuffle_f64x2(b[8 + c], b[12 + c], 0xdd);
        r[c] = _mm512_castpd_ps(_mm512_shuffle_f64x2(even0, even1, 0x88));
        r[4 + c] = _mm512_castpd_ps(_mm512_shuffle_f64x2(odd0, odd1, 0x88));
        r[8 + c] = _mm512_castpd_ps(_mm512_shuffle_f64x2(even0, even1, 0xdd));
        r[12 + c] = _mm512_castpd_ps(_mm512_shuffle_f64x2(odd0, odd1, 0xdd));
    }
}

#endif
