/* simd.h - vectors of floats, the same names at every level, so that a kernel is written once.
 *
 * vf holds VF_LEN floats. Operations on part of a vector (…_n) never touch memory beyond n elements and see zeros there: the tail of
 * a row goes through the same arithmetic as its middle. Everything is static: a level must not borrow another one's code.
 */
#ifndef QR_KERNELS_CPU_SIMD_H
#define QR_KERNELS_CPU_SIMD_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/dtype.h"

#define VF_FN static inline __attribute__((always_inline, unused))

#if defined(QR_ISA_avx512) || defined(QR_ISA_amx)
#include "kernels/cpu/isa/simd_avx512.h"
#else
#include "kernels/cpu/isa/simd_avx2.h"
#endif

/* Elements of one vector or fewer at element i of an array of type t, as f32. */
VF_FN vf vf_load_as_n(const void *p, enum qr_dtype t, size_t i, int64_t n)
{
    if (t == QR_F32)
        return vf_load_n((const float *)p + i, n);
    return t == QR_BF16 ? vf_load_bf16_n((const uint16_t *)p + i, n) : vf_load_f16_n((const uint16_t *)p + i, n);
}

VF_FN int64_t vf_min_len(int64_t n)
{
    return n < VF_LEN ? n : VF_LEN;
}

/* exp(x) = 2^n (1 + p) with n = round(x / ln 2), r = x - n ln 2, |r| <= ln(2)/2 (1 + 2^-20), p = e^r - 1.
 *
 * Error of p: the Taylor series cut after r^7 leaves |r|^8/8! < 5.3e-9 (2^-27.5). ln 2 is split in 16 bits, whose product with
 * |n| <= 150 is exact, and the rest; the two subtractions err by at most 2^-25 * 0.35. Horner's last two steps, p = r + r^2 (...), err
 * by less than 2^-25 relative to p. Hence e^r within 2^-24 * (0.35 + 0.35 + 0.1) of the true value before the last addition. */
#define LN2_HI 0x1.62e4p-1f
#define LN2_LO 0x1.7f7d1cp-20f
#define EXP_MIN -104.0f /* below: 0 */
#define EXP_MAX 89.0f   /* above: infinity */

VF_FN vf vf_exp_parts(vf x, vf *n)
{
    *n = vf_round(vf_mul(x, vf_set1(0x1.715476p+0f)));
    vf r = vf_fnma(*n, vf_set1(LN2_HI), x);
    r = vf_fnma(*n, vf_set1(LN2_LO), r);
    vf s = vf_set1(1.0f / 5040);
    s = vf_fma(s, r, vf_set1(1.0f / 720));
    s = vf_fma(s, r, vf_set1(1.0f / 120));
    s = vf_fma(s, r, vf_set1(1.0f / 24));
    s = vf_fma(s, r, vf_set1(1.0f / 6));
    s = vf_fma(s, r, vf_set1(0.5f));
    return vf_fma(vf_mul(r, r), s, r);
}

/* e^x within 1.5 ulp (derived: 0.5 for the last addition, 0.8 for p, below 0.2 for a denormal result's second rounding; measured by
 * tests/kernels/test_exp_*.c); 0 below -104, infinity above 88.73; NaN stays NaN. */
VF_FN vf vf_exp(vf x)
{
    vf n, p;
    x = vf_min(vf_set1(EXP_MAX), vf_max(vf_set1(EXP_MIN), x)); /* x second: NaN passes */
    p = vf_exp_parts(x, &n);
    return vf_scale2(vf_add(vf_set1(1.0f), p), n);
}

/* 2^r for 0 <= r <= 1, as the next function says. */
VF_FN vf vf_exp2_of_fraction(vf r)
{
    vf q = vf_set1(0x1.e974fap-10f);
    q = vf_fma(q, r, vf_set1(0x1.277856p-7f));
    q = vf_fma(q, r, vf_set1(0x1.c91ce6p-5f));
    q = vf_fma(q, r, vf_set1(0x1.ebdb56p-3f));
    q = vf_fma(q, r, vf_set1(0x1.62e4bap-1f));
    return vf_fma(q, r, vf_set1(1.0f));
}

/* 2^t for t <= 1 or NaN, within a factor 1 +- 2^-22; 0 below -150. 2^t = 2^floor(t) (1 + r q(r)), 0 <= r <= 1, where q has the least largest
 * relative error of degree 4, 2^-23.5 (Remez); rounding its first coefficient and its own last step adds 2^-25 each, the last
 * addition 2^-24. No exponent needs to be split off ln 2, so this takes half of vf_exp's operations. */
VF_FN vf vf_exp2_of_negative(vf t)
{
    vf n, r = vf_split_exponent(t, &n);
    return vf_scale2(vf_exp2_of_fraction(r), n);
}

/* tanh x = e / (e + 2) with e = e^2|x| - 1 = 2^n p + (2^n - 1): no cancellation near 0. Within 4 ulp; beyond 10 it is 1. */
VF_FN vf vf_tanh(vf x)
{
    vf n, p, a = vf_min(vf_set1(10.0f), vf_abs(x));
    p = vf_exp_parts(vf_add(a, a), &n);
    vf two_n = vf_scale2(vf_set1(1.0f), n);
    vf e = vf_fma(two_n, p, vf_sub(two_n, vf_set1(1.0f)));
    return vf_copysign(vf_div(e, vf_add(e, vf_set1(2.0f))), x);
}

/* x / (1 + e^-x) */
VF_FN vf vf_silu(vf x)
{
    return vf_div(x, vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_zero(), x))));
}

/* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
VF_FN vf vf_gelu_tanh(vf x)
{
    vf inner = vf_fma(vf_mul(vf_mul(x, x), x), vf_set1(0.044715f), x);
    vf t = vf_tanh(vf_mul(inner, vf_set1(0.79788456080286535588f)));
    return vf_mul(vf_mul(vf_set1(0.5f), x), vf_add(vf_set1(1.0f), t));
}

#endif
