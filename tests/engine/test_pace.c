/* How prompts are cut so that steps stay near a goal: against machines with known costs. */
#include <criterion/criterion.h>

#include "base/rng.h"
#include "engine/pace.h"

/* A machine: a step costs base + row * decode rows + token * prompt tokens, in us, give or take `noise` of it. */
struct machine {
    double base, row, token, noise;
};

static double cost(const struct machine *m, int32_t n_prompt, int32_t n_decode, struct qr_rng *r)
{
    double us = m->base + m->row * n_decode + m->token * n_prompt;
    return us * (1 + m->noise * (2 * qr_rng_next_unit(r) - 1));
}

static int32_t at_most(int32_t n, int32_t limit)
{
    return n < limit ? n : limit;
}

Test(pace, without_a_goal_or_before_anything_is_known_there_is_no_limit)
{
    struct qr_pace p;
    qr_pace_init(&p, 0);
    qr_pace_note(&p, 100, 4, 1e6);
    cr_assert_eq(qr_pace_tokens(&p, 4, 0), INT32_MAX);
    qr_pace_init(&p, 50000);
    cr_assert_eq(qr_pace_tokens(&p, 4, 0), INT32_MAX);
    qr_pace_note(&p, 0, 4, 1e4);
    cr_assert_eq(qr_pace_tokens(&p, 4, 0), INT32_MAX);
    qr_pace_note(&p, 256, 0, 1e5);
    cr_assert_lt(qr_pace_tokens(&p, 4, 0), 256);
}

/* Whatever decode-only steps were seen before, steady mixed load settles at the goal: after 40 steps within the noise (10 %), the 16 rows that a
 * tile rounds away, and 5 % for the estimate's own wandering. */
Test(pace, steps_of_steady_load_settle_at_the_goal)
{
    static const struct machine machines[] = {{11000, 200, 190, 0.1}, {5000, 50, 40, 0}, {11000, 200, 1400, 0.1}, {1000, 10, 20, 0.1}};
    const double goal = 80000;
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++)
        for (double stale = 0; stale <= 4; stale += 2) { /* decode steps seen: none, half as many rows' worth, twice */
            const struct machine *m = &machines[i];
            struct qr_rng r = {.seed = 3 + i};
            struct qr_pace p;
            qr_pace_init(&p, (int64_t)goal);
            if (stale > 0)
                qr_pace_note(&p, 0, 16, (m->base + m->row * 16) * stale / 2);
            qr_pace_note(&p, 512, 0, cost(m, 512, 0, &r));
            double sum = 0;
            for (int step = 0; step < 60; step++) {
                int32_t n = at_most(qr_pace_tokens(&p, 32, 0), 1 << 16);
                double us = cost(m, n, 32, &r);
                qr_pace_note(&p, n, 32, us);
                sum += step >= 40 ? us / 20 : 0;
            }
            cr_assert(sum > goal * 0.85 - 16 * m->token && sum < goal * 1.15, "machine %d, stale %.0f: steps of %.0f us", (int)i, stale, sum);
        }
}

Test(pace, prompts_go_on_when_decoding_alone_takes_longer_than_the_goal)
{
    struct qr_rng r = {.seed = 9};
    struct machine m = {200000, 100, 900, 0.05};
    struct qr_pace p;
    qr_pace_init(&p, 50000);
    for (int i = 0; i < 20; i++)
        qr_pace_note(&p, 0, 8, cost(&m, 0, 8, &r));
    for (int i = 0; i < 40; i++) {
        int32_t n = at_most(qr_pace_tokens(&p, 8, 0), 512);
        cr_assert_geq(n, QR_PACE_TOKENS_MIN);
        qr_pace_note(&p, n, 8, cost(&m, n, 8, &r));
    }
    int32_t n = qr_pace_tokens(&p, 8, 0); /* half of 200.8 ms at 0.9 ms a token: 111; the estimate wanders by the noise of the whole step */
    cr_assert(n > 70 && n < 170, "%d tokens", (int)n);
}

Test(pace, steps_grow_with_the_prompt_tokens_that_wait_up_to_fourfold)
{
    struct qr_rng r = {.seed = 8};
    struct machine m = {10000, 100, 100, 0};
    struct qr_pace p;
    qr_pace_init(&p, 80000);
    qr_pace_note(&p, 0, 16, cost(&m, 0, 16, &r));
    qr_pace_note(&p, 512, 0, cost(&m, 512, 0, &r) - m.base);
    const int32_t few = qr_pace_tokens(&p, 16, 2 * QR_PACE_BACKLOG), twice = qr_pace_tokens(&p, 16, 3 * QR_PACE_BACKLOG);
    const int32_t most = qr_pace_tokens(&p, 16, 5 * QR_PACE_BACKLOG);
    cr_assert_eq(qr_pace_tokens(&p, 16, 0), few);
    cr_assert(twice > 2 * few && twice < 2.5 * few, "%d, %d", (int)few, (int)twice); /* what decoding takes is not there twice */
    cr_assert(most > 4 * few && most < 5 * few, "%d, %d", (int)few, (int)most);
    cr_assert_eq(qr_pace_tokens(&p, 16, INT64_MAX / 2), most);
}

Test(pace, one_interrupted_step_changes_little)
{
    struct qr_rng r = {.seed = 10};
    struct machine m = {11000, 200, 190, 0};
    struct qr_pace p;
    qr_pace_init(&p, 80000);
    qr_pace_note(&p, 0, 32, cost(&m, 0, 32, &r));
    for (int i = 0; i < 30; i++) {
        int32_t n = at_most(qr_pace_tokens(&p, 32, 0), 512);
        qr_pace_note(&p, n, 32, cost(&m, n, 32, &r));
    }
    int32_t before = qr_pace_tokens(&p, 32, 0);
    qr_pace_note(&p, before, 32, 3e6);
    cr_assert_gt(qr_pace_tokens(&p, 32, 0), before / 2);
    qr_pace_note(&p, 1, 32, 1.9e4); /* the last token of a prompt tells little */
    qr_pace_note(&p, 1, 32, 1.9e4);
    cr_assert_gt(qr_pace_tokens(&p, 32, 0), before / 2 - 16);
}

Test(pace, rows_make_whole_tiles)
{
    struct qr_pace p;
    qr_pace_init(&p, 80000);
    qr_pace_note(&p, 256, 0, 256 * 333.0);
    for (int32_t n_decode = 1; n_decode < 64; n_decode++)
        cr_assert((qr_pace_tokens(&p, n_decode, 0) + n_decode) % 16 == 0);
}
