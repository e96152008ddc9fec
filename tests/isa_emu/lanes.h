/* lanes.h - emulated 512-bit vectors: masks, permutations, narrowing, and operations that AVX2 has none of. Included by include/immintrin.h only.
 *
 * Sources: Intel's SDM, volume 2 (the operation and the special cases of each instruction). */
#ifndef QR_TESTS_ISA_EMU_LANES_H
#define QR_TESTS_ISA_EMU_LANES_H

/* ---- masks: bit i is element i ---- */

/* All ones where an element's bit is set: 8, 16, 32 elements of a half. */
EMU __m256i emu_chosen32(uint32_t k)
{
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)k), bits), bits);
}

EMU __m256i emu_chosen16(uint32_t k)
{
    const __m256i bits = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, (short)-32768);
    return _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16((short)k), bits), bits);
}

EMU __m256i emu_chosen8(uint32_t k)
{
    const __m256i from = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bits = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32((int)k), from);
    return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bits), bits);
}

EMU __m512i emu_blend(__m512i old, __m512i a, __m256i low, __m256i high)
{
    union emu_v x = emu_of(old), y = emu_of(a);
    return emu_join(_mm256_blendv_epi8(x.hi[0], y.hi[0], low), _mm256_blendv_epi8(x.hi[1], y.hi[1], high));
}

EMU_CALLED __m512i emu_mm512_mask_mov_epi8(__m512i old, __mmask64 k, __m512i a)
{
    return emu_blend(old, a, emu_chosen8((uint32_t)k), emu_chosen8((uint32_t)(k >> 32)));
}

EMU __m512i emu_mm512_mask_mov_epi16(__m512i old, __mmask32 k, __m512i a)
{
    return emu_blend(old, a, emu_chosen16(k), emu_chosen16(k >> 16));
}

EMU __m512i emu_mm512_maskz_mov_epi16(__mmask32 k, __m512i a)
{
    return emu_mm512_mask_mov_epi16(emu_mm512_setzero_si512(), k, a);
}

EMU __m512i emu_mm512_maskz_set1_epi16(__mmask32 k, short a)
{
    return emu_mm512_maskz_mov_epi16(k, emu_mm512_set1_epi16(a));
}

EMU __m256i emu_mm256_maskz_mov_epi8(__mmask32 k, __m256i a)
{
    return _mm256_and_si256(a, emu_chosen8(k));
}

EMU __m512 emu_mm512_mask_mov_ps(__m512 old, __mmask16 k, __m512 a)
{
    return (__m512)emu_blend((__m512i)old, (__m512i)a, emu_chosen32(k), emu_chosen32((uint32_t)k >> 8));
}

EMU __m512 emu_mm512_maskz_mov_ps(__mmask16 k, __m512 a)
{
    return emu_mm512_mask_mov_ps(emu_mm512_setzero_ps(), k, a);
}

EMU __m512 emu_mm512_mask_add_ps(__m512 old, __mmask16 k, __m512 a, __m512 b)
{
    return emu_mm512_mask_mov_ps(old, k, emu_mm512_add_ps(a, b));
}

EMU __m512 emu_mm512_mask_max_ps(__m512 old, __mmask16 k, __m512 a, __m512 b)
{
    return emu_mm512_mask_mov_ps(old, k, emu_mm512_max_ps(a, b));
}

EMU __m512 emu_mm512_maskz_mul_ps(__mmask16 k, __m512 a, __m512 b)
{
    return emu_mm512_maskz_mov_ps(k, emu_mm512_mul_ps(a, b));
}

EMU __m512 emu_mm512_maskz_div_ps(__mmask16 k, __m512 a, __m512 b)
{
    return emu_mm512_maskz_mov_ps(k, emu_mm512_div_ps(a, b));
}

EMU __m512i emu_mm512_mask_or_epi32(__m512i old, __mmask16 k, __m512i a, __m512i b)
{
    return (__m512i)emu_mm512_mask_mov_ps((__m512)old, k, (__m512)emu_mm512_or_si512(a, b));
}

/* ---- masks of comparisons ---- */

EMU __mmask16 emu_mm512_cmp_ps_mask(__m512 a, __m512 b, int how)
{
    union emu_v x = emu_of_ps(a), y = emu_of_ps(b);
#define EMU_CMP(which)                                                                  \
    case which:                                                                         \
        return (__mmask16)((uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x.hf[0], y.hf[0], which)) | \
                           (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x.hf[1], y.hf[1], which)) << 8)
    switch (how) {
        EMU_CMP(_CMP_EQ_OQ);
        EMU_CMP(_CMP_LT_OQ);
        EMU_CMP(_CMP_UNORD_Q);
    default:
        emu_fault("not emulated", "a comparison of floats other than equal, less, unordered");
    }
#undef EMU_CMP
}

EMU_CALLED __mmask16 emu_mm512_cmpge_epu32_mask(__m512i a, __m512i b)
{
    union emu_v x = emu_of(a), y = emu_of(b);
    uint32_t k = 0;
    for (int i = 0; i < 16; i++)
        k |= (uint32_t)(x.u32[i] >= y.u32[i]) << i;
    return (__mmask16)k;
}

EMU_CALLED __mmask32 emu_mm512_cmpeq_epi16_mask(__m512i a, __m512i b)
{
    union emu_v x = emu_of(a), y = emu_of(b);
    uint32_t k = 0;
    for (int i = 0; i < 32; i++)
        k |= (uint32_t)(x.u16[i] == y.u16[i]) << i;
    return k;
}

EMU_CALLED __mmask64 emu_mm512_cmpeq_epi8_mask(__m512i a, __m512i b)
{
    union emu_v x = emu_of(a), y = emu_of(b);
    __mmask64 k = 0;
    for (int i = 0; i < 64; i++)
        k |= (__mmask64)(x.u8[i] == y.u8[i]) << i;
    return k;
}

EMU __mmask32 emu_mm512_testn_epi16_mask(__m512i a, __m512i b)
{
    return emu_mm512_cmpeq_epi16_mask(emu_mm512_and_si512(a, b), emu_mm512_setzero_si512());
}

EMU __mmask32 emu_mm512_test_epi16_mask(__m512i a, __m512i b)
{
    return ~emu_mm512_testn_epi16_mask(a, b);
}

/* ---- memory under a mask: nothing else is touched, which the address sanitizer sees ---- */

EMU_CALLED __m512i emu_mm512_maskz_loadu_epi8(__mmask64 k, const void *p)
{
    union emu_v x = emu_of(emu_mm512_setzero_si512());
    if (!~k)
        return emu_mm512_loadu_si512(p);
    for (int i = 0; i < 64; i++)
        if (k >> i & 1)
            x.u8[i] = ((const uint8_t *)p)[i];
    return x.i;
}

EMU_CALLED __m512i emu_mm512_maskz_loadu_epi16(__mmask32 k, const void *p)
{
    union emu_v x = emu_of(emu_mm512_setzero_si512());
    if (!~k)
        return emu_mm512_loadu_si512(p);
    for (int i = 0; i < 32; i++)
        if (k >> i & 1)
            memcpy(&x.u16[i], (const char *)p + 2 * i, 2);
    return x.i;
}

EMU_CALLED __m512 emu_mm512_mask_loadu_ps(__m512 old, __mmask16 k, const void *p)
{
    union emu_v x = emu_of_ps(old);
    if (k == 0xffff)
        return emu_mm512_loadu_ps(p);
    for (int i = 0; i < 16; i++)
        if (k >> i & 1)
            memcpy(&x.u32[i], (const char *)p + 4 * i, 4);
    return x.f;
}

EMU __m512 emu_mm512_maskz_loadu_ps(__mmask16 k, const void *p)
{
    return emu_mm512_mask_loadu_ps(emu_mm512_setzero_ps(), k, p);
}

EMU __m512i emu_mm512_maskz_loadu_epi32(__mmask16 k, const void *p)
{
    return (__m512i)emu_mm512_maskz_loadu_ps(k, p);
}

EMU __m256i emu_mm256_maskz_loadu_epi8(__mmask32 k, const void *p)
{
    return emu_of(emu_mm512_maskz_loadu_epi8(k, p)).hi[0];
}

EMU __m256i emu_mm256_maskz_loadu_epi16(__mmask16 k, const void *p)
{
    return emu_of(emu_mm512_maskz_loadu_epi16(k, p)).hi[0];
}

EMU __m128i emu_mm_maskz_loadu_epi8(__mmask16 k, const void *p)
{
    return emu_of(emu_mm512_maskz_loadu_epi8(k, p)).q[0];
}

EMU_CALLED void emu_mm512_mask_storeu_epi8(void *p, __mmask64 k, __m512i a)
{
    union emu_v x = emu_of(a);
    for (int i = 0; i < 64; i++)
        if (k >> i & 1)
            ((uint8_t *)p)[i] = x.u8[i];
}

EMU_CALLED void emu_mm512_mask_storeu_epi16(void *p, __mmask32 k, __m512i a)
{
    union emu_v x = emu_of(a);
    for (int i = 0; i < 32; i++)
        if (k >> i & 1)
            memcpy((char *)p + 2 * i, &x.u16[i], 2);
}

EMU void emu_mm256_mask_storeu_epi16(void *p, __mmask16 k, __m256i a)
{
    emu_mm512_mask_storeu_epi16(p, k, emu_join(a, a));
}

EMU_CALLED void emu_mm512_mask_storeu_ps(void *p, __mmask16 k, __m512 a)
{
    union emu_v x = emu_of_ps(a);
    for (int i = 0; i < 16; i++)
        if (k >> i & 1)
            memcpy((char *)p + 4 * i, &x.u32[i], 4);
}

/* ---- permutations ---- */

EMU_CALLED __m512i emu_mm512_permutexvar_epi8(__m512i index, __m512i a)
{
    union emu_v x = emu_of(index), y = emu_of(a), to = x;
    for (int i = 0; i < 64; i++)
        to.u8[i] = y.u8[x.u8[i] & 63];
    return to.i;
}

EMU_CALLED __m512i emu_mm512_permutexvar_epi16(__m512i index, __m512i a)
{
    union emu_v x = emu_of(index), y = emu_of(a), to = x;
    for (int i = 0; i < 32; i++)
        to.u16[i] = y.u16[x.u16[i] & 31];
    return to.i;
}

EMU __m512i emu_mm512_mask_permutexvar_epi16(__m512i old, __mmask32 k, __m512i index, __m512i a)
{
    return emu_mm512_mask_mov_epi16(old, k, emu_mm512_permutexvar_epi16(index, a));
}

EMU __m512i emu_mm512_maskz_permutexvar_epi16(__mmask32 k, __m512i index, __m512i a)
{
    return emu_mm512_maskz_mov_epi16(k, emu_mm512_permutexvar_epi16(index, a));
}

EMU_CALLED __m512i emu_mm512_permutexvar_epi32(__m512i index, __m512i a)
{
    union emu_v x = emu_of(index), y = emu_of(a), to = x;
    for (int h = 0; h < 2; h++) { /* from the lower or, where bit 3 is set, the upper half */
        const __m256i low = _mm256_permutevar8x32_epi32(y.hi[0], x.hi[h]), high = _mm256_permutevar8x32_epi32(y.hi[1], x.hi[h]);
        to.hi[h] = _mm256_blendv_epi8(low, high, _mm256_srai_epi32(_mm256_slli_epi32(x.hi[h], 28), 31));
    }
    return to.i;
}

EMU __m512 emu_mm512_permutexvar_ps(__m512i index, __m512 a)
{
    return (__m512)emu_mm512_permutexvar_epi32(index, (__m512i)a);
}

EMU_CALLED __m512i emu_mm512_permutex2var_epi16(__m512i a, __m512i index, __m512i b)
{
    union emu_v x = emu_of(index), from[2] = {{.i = a}, {.i = b}}, to = x;
    for (int i = 0; i < 32; i++)
        to.u16[i] = from[x.u16[i] >> 5 & 1].u16[x.u16[i] & 31];
    return to.i;
}

EMU_CALLED __m512i emu_mm512_permutex2var_epi64(__m512i a, __m512i index, __m512i b)
{
    union emu_v x = emu_of(index), from[2] = {{.i = a}, {.i = b}}, to = x;
    for (int i = 0; i < 8; i++)
        to.u64[i] = from[x.u64[i] >> 3 & 1].u64[x.u64[i] & 7];
    return to.i;
}

/* Quarters: two of a, then two of b, by two bits of the number each. */
EMU __m512i emu_mm512_shuffle_i32x4(__m512i a, __m512i b, int which)
{
    union emu_v x = emu_of(a), y = emu_of(b);
    return (union emu_v){.q = {x.q[which & 3], x.q[which >> 2 & 3], y.q[which >> 4 & 3], y.q[which >> 6 & 3]}}.i;
}

EMU __m512i emu_mm512_shuffle_i64x2(__m512i a, __m512i b, int which)
{
    return emu_mm512_shuffle_i32x4(a, b, which);
}

EMU __m512 emu_mm512_shuffle_f32x4(__m512 a, __m512 b, int which)
{
    return (__m512)emu_mm512_shuffle_i32x4((__m512i)a, (__m512i)b, which);
}

EMU __m512d emu_mm512_shuffle_f64x2(__m512d a, __m512d b, int which)
{
    return (__m512d)emu_mm512_shuffle_i32x4((__m512i)a, (__m512i)b, which);
}

/* The same within each quarter. */
EMU_CALLED __m512 emu_mm512_shuffle_ps(__m512 a, __m512 b, int which)
{
    union emu_v x = emu_of_ps(a), y = emu_of_ps(b), to = x;
    for (int i = 0; i < 16; i += 4) {
        to.u32[i] = x.u32[i + (which & 3)];
        to.u32[i + 1] = x.u32[i + (which >> 2 & 3)];
        to.u32[i + 2] = y.u32[i + (which >> 4 & 3)];
        to.u32[i + 3] = y.u32[i + (which >> 6 & 3)];
    }
    return to.f;
}

/* ---- bits ---- */

/* Bit j of the result is bit (a_j, b_j, c_j) of the table. */
EMU_CALLED __m512i emu_mm512_ternarylogic_epi64(__m512i a, __m512i b, __m512i c, int table)
{
    union emu_v x = emu_of(a), y = emu_of(b), z = emu_of(c), to = {.i = emu_mm512_setzero_si512()};
    const __m256i ones = _mm256_set1_epi32(-1);
    for (int row = 0; row < 8; row++)
        if (table >> row & 1)
            for (int h = 0; h < 2; h++) {
                const __m256i is_a = row & 4 ? x.hi[h] : _mm256_xor_si256(x.hi[h], ones), is_b = row & 2 ? y.hi[h] : _mm256_xor_si256(y.hi[h], ones);
                const __m256i is_c = row & 1 ? z.hi[h] : _mm256_xor_si256(z.hi[h], ones);
                to.hi[h] = _mm256_or_si256(to.hi[h], _mm256_and_si256(is_a, _mm256_and_si256(is_b, is_c)));
            }
    return to.i;
}

EMU __m512i emu_mm512_ternarylogic_epi32(__m512i a, __m512i b, __m512i c, int table)
{
    return emu_mm512_ternarylogic_epi64(a, b, c, table);
}

EMU __m256i emu_mm256_ternarylogic_epi32(__m256i a, __m256i b, __m256i c, int table)
{
    return emu_of(emu_mm512_ternarylogic_epi64(emu_join(a, a), emu_join(b, b), emu_join(c, c), table)).hi[0];
}

EMU __m256i emu_mm256_rolv_epi32(__m256i a, __m256i count)
{
    const __m256i n = _mm256_and_si256(count, _mm256_set1_epi32(31));
    return _mm256_or_si256(_mm256_sllv_epi32(a, n), _mm256_srlv_epi32(a, _mm256_sub_epi32(_mm256_set1_epi32(32), n))); /* by 32: 0 */
}

/* Each byte: eight bits of b's word from bit (6 bits of the byte of `at`) on, around its end. */
EMU_CALLED __m512i emu_mm512_multishift_epi64_epi8(__m512i at, __m512i b)
{
    union emu_v x = emu_of(at), y = emu_of(b), to = x;
    for (int i = 0; i < 64; i++) {
        const uint64_t word = y.u64[i / 8];
        const unsigned n = x.u8[i] & 63;
        to.u8[i] = (uint8_t)(word >> n | word << (-n & 63));
    }
    return to.i;
}

/* ---- narrowing ---- */

EMU_CALLED __m256i emu_mm512_cvtepi32_epi16(__m512i a)
{
    union emu_v x = emu_of(a), to = x;
    for (int i = 0; i < 16; i++)
        to.u16[i] = (uint16_t)x.u32[i];
    return to.hi[0];
}

EMU_CALLED __m128i emu_mm512_cvtepi32_epi8(__m512i a)
{
    union emu_v x = emu_of(a), to = x;
    for (int i = 0; i < 16; i++)
        to.u8[i] = (uint8_t)x.u32[i];
    return to.q[0];
}

/* VCVTNEPS2BF16: to nearest, ties to even, whatever MXCSR says; a denormal number becomes a zero of its sign, a NaN stays one and becomes quiet. */
EMU uint16_t emu_bf16_of(uint32_t x)
{
    const uint32_t size = x & 0x7fffffff;
    if (size < 0x00800000)
        return (uint16_t)(x >> 16 & 0x8000);
    if (size > 0x7f800000)
        return (uint16_t)(x >> 16 | 0x40);
    return (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

EMU_CALLED __m256i emu_mm512_cvtneps_pbh(__m512 a)
{
    union emu_v x = emu_of_ps(a), to = x;
    for (int i = 0; i < 16; i++)
        to.u16[i] = emu_bf16_of(x.u32[i]);
    return to.hi[0];
}

/* b's numbers first. */
EMU __m512i emu_mm512_cvtne2ps_pbh(__m512 a, __m512 b)
{
    return emu_join(emu_mm512_cvtneps_pbh(b), emu_mm512_cvtneps_pbh(a));
}

/* ---- sums ---- */

/* VPDPBUSD: four products of an unsigned byte of a and a signed one of b, which do not saturate on the way. */
EMU __m256i emu_dpbusd_half(__m256i sum, __m256i a, __m256i b)
{
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(a, _mm256_set1_epi16(255)), _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}

EMU __m512i emu_mm512_dpbusd_epi32(__m512i sum, __m512i a, __m512i b)
{
    union emu_v s = emu_of(sum), x = emu_of(a), y = emu_of(b);
    return emu_join(emu_dpbusd_half(s.hi[0], x.hi[0], y.hi[0]), emu_dpbusd_half(s.hi[1], x.hi[1], y.hi[1]));
}

EMU __m512i emu_mm512_dpwssd_epi32(__m512i sum, __m512i a, __m512i b)
{
    return emu_mm512_add_epi32(sum, emu_mm512_madd_epi16(a, b));
}

EMU_CALLED int emu_mm512_reduce_add_epi32(__m512i a)
{
    union emu_v x = emu_of(a);
    uint32_t sum = 0;
    for (int i = 0; i < 16; i++)
        sum += x.u32[i];
    return (int)sum;
}

EMU_CALLED unsigned emu_mm512_reduce_max_epu32(__m512i a)
{
    union emu_v x = emu_of(a);
    uint32_t most = 0;
    for (int i = 0; i < 16; i++)
        most = x.u32[i] > most ? x.u32[i] : most;
    return most;
}

/* ---- floats ---- */

EMU __m256 emu_round_half(__m256 a, int how)
{
    if ((how & 7) == _MM_FROUND_TO_NEAREST_INT)
        return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    if ((how & 7) == _MM_FROUND_TO_NEG_INF)
        return _mm256_round_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    emu_fault("not emulated", "a rounding other than to nearest and down");
}

/* To whole numbers: places behind the point (the upper half of the number) are not asked for. */
EMU __m512 emu_mm512_roundscale_ps(__m512 a, int how)
{
    union emu_v x = emu_of_ps(a);
    if (how >> 4)
        emu_fault("not emulated", "vrndscaleps with places behind the point");
    return emu_join_ps(emu_round_half(x.hf[0], how), emu_round_half(x.hf[1], how));
}

/* VREDUCEPS: a less what vrndscaleps makes of it. A result of 0 is -0 when rounded down and else +0; nothing is left of infinity. */
EMU_CALLED __m512 emu_mm512_reduce_ps(__m512 a, int how)
{
    union emu_v x = emu_of_ps(a), whole = emu_of_ps(emu_mm512_roundscale_ps(a, how)), to = x;
    const __m256 zero = _mm256_set1_ps((how & 7) == _MM_FROUND_TO_NEG_INF ? -0.0f : 0.0f);
    for (int h = 0; h < 2; h++) {
        const __m256 infinite = _mm256_cmp_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x.hf[h]), _mm256_set1_ps(__builtin_inff()), _CMP_EQ_OQ);
        const __m256 rest = _mm256_sub_ps(x.hf[h], whole.hf[h]);
        to.hf[h] = _mm256_blendv_ps(rest, zero, _mm256_cmp_ps(rest, _mm256_setzero_ps(), _CMP_EQ_OQ));
        to.hf[h] = _mm256_andnot_ps(infinite, to.hf[h]);
    }
    return to.f;
}

/* VSCALEFPS where a or n is no number. A NaN of n comes first unless a is one; n's infinities are limits. */
EMU_CALLED float emu_scalef_odd(float a, float n)
{
    const float none = -__builtin_nanf(""), infinity = __builtin_inff();
    if (__builtin_isnan(a))
        return __builtin_isnan(n) || !__builtin_isinf(n) ? a + a : n > 0 ? infinity : 0.0f;
    if (__builtin_isnan(n))
        return n + n;
    if (__builtin_isinf(a))
        return n == -infinity ? none : a;
    if (n == infinity)
        return a == 0 ? none : __builtin_copysignf(infinity, a);
    return __builtin_copysignf(0.0f, a);
}

/* Four elements: exact in double, then rounded once as MXCSR says. Beyond 2^+-400 nothing changes. */
EMU __m128 emu_scalef_quarter(__m128 a, __m128 n)
{
    const __m128 limit = _mm_set1_ps(400.0f);
    const __m128i whole = _mm_cvtps_epi32(_mm_floor_ps(_mm_max_ps(_mm_sub_ps(_mm_setzero_ps(), limit), _mm_min_ps(limit, n))));
    const __m256i power = _mm256_slli_epi64(_mm256_add_epi64(_mm256_cvtepi32_epi64(whole), _mm256_set1_epi64x(1023)), 52);
    return _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_cvtps_pd(a), _mm256_castsi256_pd(power)));
}

EMU_CALLED __m512 emu_mm512_scalef_ps(__m512 a, __m512 n)
{
    union emu_v x = emu_of_ps(a), y = emu_of_ps(n), to = x;
    for (int i = 0; i < 4; i++)
        to.q[i] = _mm_castps_si128(emu_scalef_quarter(_mm_castsi128_ps(x.q[i]), _mm_castsi128_ps(y.q[i])));
    for (int i = 0; i < 16; i++)
        if ((x.u32[i] & 0x7f800000) == 0x7f800000 || (y.u32[i] & 0x7f800000) == 0x7f800000)
            to.f32[i] = emu_scalef_odd(x.f32[i], y.f32[i]);
    return to.f;
}

#endif
