/* each.h - what the tests of emulated instructions share: vectors of odd numbers, and the comparison of an instruction's elements with what is expected. */
#ifndef QR_TESTS_ISA_EMU_EACH_H
#define QR_TESTS_ISA_EMU_EACH_H

#include <criterion/criterion.h>
#include <immintrin.h>
#include <math.h>

#include "base/rng.h"

#define TRIALS 300

static struct qr_rng rng;

/* Any bits; every third element is one where something special happens: a limit, a zero, an infinity, a NaN, a denormal number. */
static inline union emu_v some(void)
{
    static const uint32_t odd[] = {0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00001, 0xffa00000, 1, 0x807fffff, 0x00800000, 0x7f7fffff,
                                   0x3f800000, 0xc0200000, 0x80008000, 0x7fff7fff, 0x7f7f7f7f, 0x80808080, 0xffffffff, 0x3f808000, 0x3f818000};
    union emu_v x;
    for (int i = 0; i < 16; i++)
        x.u32[i] = i % 3 ? (uint32_t)qr_rng_next(&rng) : odd[qr_rng_next(&rng) % (sizeof(odd) / sizeof(odd[0]))];
    return x;
}

/* Floats of moderate size. */
static inline union emu_v some_floats(void)
{
    union emu_v x;
    for (int i = 0; i < 16; i++)
        x.f32[i] = ((float)(int32_t)qr_rng_next(&rng)) * 0x1p-26f;
    return x;
}

static inline uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

/* op(x, y) has `n` elements of the field `to`, each WANT of element i. */
#define EACH(op_text, result, member, to, n, WANT)                                                                               \
    for (int trial = 0; trial < TRIALS; trial++) {                                                                               \
        const union emu_v x = some(), y = some(), z = some();                                                                    \
        const uint64_t k = qr_rng_next(&rng);                                                                                    \
        const union emu_v got = {.member = result};                                                                              \
        (void)x, (void)y, (void)z, (void)k;                                                                                      \
        for (int i = 0; i < (n); i++)                                                                                            \
            cr_assert_eq((uint64_t)got.to[i], (uint64_t)(WANT), "%s: element %d is %llx", op_text, i, (unsigned long long)got.to[i]); \
    }
#define INTS(to, n, result, WANT) EACH(#result, result, i, to, n, WANT)
#define FLOATS(result, WANT) EACH(#result, result, f, u32, 16, bits_of(WANT))

static void init(void)
{
    rng = (struct qr_rng){.seed = 20261122};
}

#endif
