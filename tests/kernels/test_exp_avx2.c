/* The exponential and the hyperbolic tangent of the avx2 level, measured against double. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "tests/levels.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#define QR_ISA_avx2 1
#include "kernels/cpu/isa/simd.h"
#include "tests/kernels/exp_body.h"

static void compare_moderate(const float x[VF_LEN])
{
    float all[VF_LEN], moderate[VF_LEN];
    vf_store(all, vf_exp2_of_negative(vf_load(x)));
    vf_store(moderate, vf_exp2_of_moderate(vf_load(x)));
    for (int i = 0; i < VF_LEN; i++)
        cr_assert(memcmp(&all[i], &moderate[i], sizeof all[i]) == 0, "2^%.9g: %.9g and %.9g", (double)x[i], (double)all[i], (double)moderate[i]);
}
#pragma GCC pop_options /* what asks whether the level is here runs where it is not */

/* 1.5 and 4 ulp are derived in simd.h; beside them the denormal results may be off by one unit of 2^-149. */
Test(exp_avx2, stays_within_the_stated_ulps_over_all_floats)
{
    if (!has_level("avx2"))
        cr_skip_test("this processor has no avx2");
    struct sweep s = {0, 0, 0};
    sweep(&s);
    check_special();
    printf("avx2: exp within %.3f ulp, 2^t within a factor 1 +- 2^%.2f, tanh within %.3f ulp\n", s.exp_worst, log2(s.exp2_worst), s.tanh_worst);
    cr_assert_leq(s.exp_worst, 1.5);
    cr_assert_leq(s.exp2_worst, 0x1p-22);
    cr_assert_leq(s.tanh_worst, 4.0);
}

/* Softmax takes the short way where it can, so a row's bits must not show which way it went. */
Test(exp_avx2, powers_of_two_have_the_same_bits_either_way_where_none_is_denormal)
{
    if (!has_level("avx2"))
        cr_skip_test("this processor has no avx2");
    float x[VF_LEN];
    int lane = 0;
    for (uint64_t u = 0, step = SWEEP_STEP; u < 0x100000000u; u += step) {
        uint32_t bits = (uint32_t)u;
        memcpy(&x[lane], &bits, 4);
        if (x[lane] > -120 && x[lane] <= 1 && ++lane == VF_LEN) {
            compare_moderate(x);
            lane = 0;
        }
    }
    for (int n = -119; n <= 1; n++) { /* whole numbers and those beside them */
        const float beside[VF_LEN] = {(float)n, nextafterf((float)n, -200), nextafterf((float)n, n < 1 ? 1.0f : 0.0f), NAN, 0.0f, -0.0f, 1.0f, -1e-30f};
        compare_moderate(beside);
    }
}
