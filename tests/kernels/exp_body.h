/* exp_body.h - sweeps vf_exp, vf_exp2_of_negative and vf_tanh of one level over all exponents. Included after simd.h by a file compiled for that level. */
#ifndef QR_TESTS_KERNELS_EXP_BODY_H
#define QR_TESTS_KERNELS_EXP_BODY_H

#include "tests/full.h"

/* Distance in units of the last place of the nearest float (denormals: 2^-149). */
static double ulps(double got, double want)
{
    int e;
    frexp(want, &e);
    double ulp = ldexp(1.0, (e < -125 ? -125 : e) - 24);
    return fabs(got - want) / ulp;
}

#if defined(__SANITIZE_ADDRESS__)
#define SWEEP_STEP 9973
#else
#define SWEEP_STEP (full_size() ? 997 : 3989)
#endif

struct sweep {
    double exp_worst, exp2_worst, tanh_worst; /* ulp, relative, ulp */
};

/* Every 3989th float of either sign, VF_LEN at a time: half a million of each, 2,100 between each power of two and the next (QUIRE_FULL=1: four times as many;
 * fewer where a sanitizer looks for bad accesses). */
static void sweep(struct sweep *s)
{
    float x[VF_LEN], e[VF_LEN], two[VF_LEN], t[VF_LEN];
    int lane = 0;
    for (uint64_t u = 0, step = SWEEP_STEP; u < 0x100000000u; u += step) {
        uint32_t bits = (uint32_t)u;
        float f;
        memcpy(&f, &bits, 4);
        if (!isfinite(f))
            continue;
        x[lane++] = f;
        if (lane < VF_LEN)
            continue;
        lane = 0;
        vf_store(e, vf_exp(vf_load(x)));
        vf_store(two, vf_exp2_of_negative(vf_load(x)));
        vf_store(t, vf_tanh(vf_load(x)));
        for (int i = 0; i < VF_LEN; i++) {
            double want = exp((double)x[i]);
            if (want > (double)3.402823466e38f)
                cr_assert(isinf(e[i]) || x[i] < 88.7229f, "exp(%.9g) = %.9g", (double)x[i], (double)e[i]);
            else
                s->exp_worst = fmax(s->exp_worst, ulps((double)e[i], want));
            want = exp2((double)x[i]);
            if (x[i] <= 1 && x[i] >= -125)
                s->exp2_worst = fmax(s->exp2_worst, fabs((double)two[i] / want - 1));
            else if (x[i] < -125)
                cr_assert(two[i] >= 0 && fabs((double)two[i] - want) <= 0x1p-148, "2^%.9g = %.9g", (double)x[i], (double)two[i]);
            if (fabsf(x[i]) > 1e-37f)
                s->tanh_worst = fmax(s->tanh_worst, ulps((double)t[i], tanh((double)x[i])));
        }
    }
}

static void check_special(void)
{
    float x[VF_LEN] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, -104.5f, 200.0f, 1.0f}, e[VF_LEN], two[VF_LEN], t[VF_LEN];
    vf_store(two, vf_exp2_of_negative(vf_load(x)));
    cr_assert(isnan(two[0]) && two[2] == 0 && two[3] == 1 && two[4] == 1 && two[7] == 2);
    vf_store(e, vf_exp(vf_load(x)));
    vf_store(t, vf_tanh(vf_load(x)));
    cr_assert(isnan(e[0]) && isnan(t[0]));
    cr_assert(isinf(e[1]) && e[1] > 0 && t[1] == 1);
    cr_assert(e[2] == 0 && t[2] == -1);
    cr_assert(e[3] == 1 && e[4] == 1 && t[3] == 0 && signbit(t[4]));
    cr_assert(e[5] == 0 && isinf(e[6]));
}

#endif
