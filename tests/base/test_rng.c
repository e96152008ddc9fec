#include <criterion/criterion.h>
#include <math.h>

#include "base/rng.h"

/* Known answers of Philox4x32-10 from the Random123 distribution (Salmon et al. 2011): zero, all ones, digits of pi. */
Test(rng, agrees_with_the_published_vectors)
{
    static const struct {
        uint64_t pos, stream, seed; /* counter words 0-1, counter words 2-3, key */
        uint32_t want[4];
    } row[] = {{0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
               {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
               {0x85a308d3243f6a88, 0x0370734413198a2e, 0x299f31d0a4093822, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        uint32_t w[4];
        qr_rng_words(w, row[i].seed, row[i].stream, row[i].pos);
        for (int j = 0; j < 4; j++)
            cr_assert_eq(w[j], row[i].want[j], "vector %zu word %d: %08x", i, j, w[j]);
    }
}

Test(rng, draws_depend_on_nothing_but_seed_stream_and_position)
{
    double first = qr_rng_unit(7, 8, 9);
    (void)qr_rng_unit(1, 2, 3);
    cr_assert_eq(qr_rng_unit(7, 8, 9), first);
    cr_assert_neq(qr_rng_unit(8, 8, 9), first);
    cr_assert_neq(qr_rng_unit(7, 9, 9), first);
    cr_assert_neq(qr_rng_unit(7, 8, 10), first);
}

/* Mean of n uniform draws: 1/2 with standard deviation sqrt(1/12/n) = 0.00029 at n = 10^6; 6 of them. The seed is fixed, so this
 * either always passes or never. */
Test(rng, units_are_uniform_in_the_half_open_interval)
{
    double sum = 0, low = 1, high = 0;
    const int n = 1000000;
    for (int i = 0; i < n; i++) {
        double u = qr_rng_unit(42, 0, (uint64_t)i);
        sum += u;
        low = u < low ? u : low;
        high = u > high ? u : high;
    }
    cr_assert(low >= 0 && low < 1e-4);
    cr_assert(high < 1 && high > 1 - 1e-4);
    cr_assert_lt(fabs(sum / n - 0.5), 6 * 0.00029);
}

/* Counts per value: n/6 with standard deviation sqrt(n*5/36) = 289 at n = 600,000; 6 of them. */
Test(rng, below_is_uniform)
{
    struct qr_rng r = {.seed = 5};
    int count[6] = {0};
    for (int i = 0; i < 600000; i++) {
        uint32_t v = qr_rng_below(&r, 6);
        cr_assert_lt(v, 6);
        count[v]++;
    }
    for (int i = 0; i < 6; i++)
        cr_assert_lt(abs(count[i] - 100000), 6 * 289, "%d came %d times", i, count[i]);
    cr_assert_eq(qr_rng_below(&r, 1), 0);
    cr_assert_lt(qr_rng_below(&r, UINT32_MAX), UINT32_MAX);
}

Test(rng, replays_from_its_seed)
{
    struct qr_rng a = {.seed = 11}, b = {.seed = 11};
    for (int i = 0; i < 100; i++) {
        cr_assert_eq(qr_rng_next(&a), qr_rng_next(&b));
        cr_assert_eq(qr_rng_next_unit(&a), qr_rng_next_unit(&b));
    }
    cr_assert_neq(qr_rng_seed_random(), qr_rng_seed_random());
}
