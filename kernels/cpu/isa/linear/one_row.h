/* one_row.h - one row times bf16 weights, which come from memory once: what decides is how they are read. Included by linear.c.
 *
 * Four panels are read side by side, with a gated unit two of gates and two of their ups: so many streams a processor follows by itself, and a lone core
 * gets a tenth more out of them than out of two. Each output is the chain of micro.c, in its order of k.
 */
#ifndef QR_KERNELS_CPU_ISA_LINEAR_ONE_ROW_H
#define QR_KERNELS_CPU_ISA_LINEAR_ONE_ROW_H

#include "kernels/cpu/isa/linear/micro.h"
#include "kernels/cpu/isa/simd.h"

#define ONE_ROW_PANELS 4 /* at most, read side by side */

/* sums[16 j ..] = x[0 .. 2 n_steps) times the panel at w[j]. */
VF_FN void one_row_block(float *sums, const float *x, const char *const *w, int64_t n_steps, const int n_panels)
{
    enum { PARTS = QR_PANEL / VF_LEN };
    const char *at[ONE_ROW_PANELS];
    vf acc[ONE_ROW_PANELS * PARTS];
#pragma GCC unroll 4
    for (int j = 0; j < n_panels; j++)
        at[j] = w[j];
#pragma GCC unroll 8
    for (int i = 0; i < n_panels * PARTS; i++)
        acc[i] = vf_zero();
    for (int64_t k = 0; k < n_steps; k++) {
        const vf first = vf_set1(x[2 * k]), second = vf_set1(x[2 * k + 1]);
#pragma GCC unroll 4
        for (int j = 0; j < n_panels; j++) {
#pragma GCC unroll 2
            for (int i = 0; i < PARTS; i++) {
                const vpairs pairs = vf_load_pairs(at[j] + i * (VF_LEN * 4));
                vf *const a = &acc[j * PARTS + i];
                *a = vf_fma(second, vf_pairs_second(pairs), vf_fma(first, vf_pairs_first(pairs), *a));
            }
            at[j] += QR_PANEL * 4;
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < n_panels * PARTS; i++)
        vf_store(sums + i * VF_LEN, acc[i]);
}

static void one_row_panels(float *sums, const float *x, const char *const *w, int64_t n_steps, int32_t n_panels)
{
    if (n_panels == 1)
        one_row_block(sums, x, w, n_steps, 1);
    else if (n_panels == 2)
        one_row_block(sums, x, w, n_steps, 2);
    else
        one_row_block(sums, x, w, n_steps, 4);
}

#endif
