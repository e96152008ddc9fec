/* levels.h - the instruction-set levels of the processor that a test runs on. Each has ref; some have no other (docs/kernels.md). */
#ifndef QR_TESTS_LEVELS_H
#define QR_TESTS_LEVELS_H

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "kernels/backend.h"

static inline bool has_level(const char *isa)
{
    const char *names[8];
    for (int32_t n = qr_cpu_levels(names); n > 0; n--)
        if (strcmp(names[n - 1], isa) == 0)
            return true;
    return false;
}

/* The levels, the first of which is ref, for a test of the others: it is skipped where there are none. */
static inline int32_t levels_above_ref(const char *names[8])
{
    const int32_t n = qr_cpu_levels(names);
    if (n == 1)
        cr_skip_test("this processor has no level above ref");
    return n;
}

/* How far another order of additions may move results of f32 where no second level shows it: from `rounding`, how far results of bf16 lie from them.
 *
 * Take a sum of n products of x and w, and T^2, the sum of their squares. In bf16 each x is rounded, by up to 2^-8 of it, which adds up to c 2^-8 T over all
 * products; c depends on how roundings are distributed and is the same for f32. In f32 each of at most n partial sums is rounded, by up to 2^-24 of it, and is
 * about T or less where signs are mixed: c 2^-24 sqrt(n) T in all, and sqrt(2) times that between two orders. What the model makes of an error afterwards is
 * the same for both, and bf16 rounds in more products than ranks share. So n_in is the number of inputs of the widest product. */
static inline double order_moves(double rounding, int64_t n_in)
{
    return sqrt(2.0 * (double)n_in) * 0x1p-16 * rounding;
}

#endif
