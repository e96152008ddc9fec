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
