/* How prompts are cut so that steps stay near a goal: against machines with known costs. */
#include <criterion/criterion.h>

#include "base/rng.h"
#include "engine/pace.h"

/* Pace with a predictor that it feeds. */
struct paced {
    struct qr_pace pace;
    struct qr_predict predict;
    struct qr_step_size lately;
};

static void init(struct paced *p, double goal_us)
{
    *p = (struct paced){.pace.goal_us = goal_us};
    qr_predict_init(&p->predict);
}

static void note(struct paced *p, int32_t n_prompt, int32_t n_decode, double us)
{
    const struct qr_step_size size = {n_prompt, n_decode, n_decode, {n_decode * 0.5, n_prompt * 0.5}};
    qr_predict_note(&p->predict, &size, us);
    qr_step_size_note(&p->lately, &size);
}

static int32_t tokens(const struct paced *p, int32_t n_decode, int64_t waiting)
{
    return qr_pace_tokens(&p->pace, &p->predict, &p->lately, n_decode, waiting);
}

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
    struct paced p;
    init(&p, 0);
    note(&p, 100, 4, 1e6);
    cr_assert_eq(tokens(&p, 4, 0), INT32_MAX);
    init(&p, 50000);
    cr_assert_eq(tokens(&p, 4, 0), INT32_MAX);
    note(&p, 0, 4, 1e4);
    cr_assert_eq(tokens(&p, 4, 0), INT32_MAX);
    note(&p, 256, 0, 1e5);
    cr_assert_lt(tokens(&p, 4, 0), 256);
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
            struct paced p;
            init(&p, goal);
            if (stale > 0)
                note(&p, 0, 16, (m->base + m->row * 16) * stale / 2);
            note(&p, 512, 0, cost(m, 512, 0, &r));
            double sum = 0;
            for (int step = 0; step < 60; step++) {
                int32_t n = at_most(tokens(&p, 32, 0), 1 << 16);
                double us = cost(m, n, 32, &r);
                note(&p, n, 32, us);
                sum += step >= 40 ? us / 20 : 0;
            }
            cr_assert(sum > goal * 0.85 - 16 * m->token && sum < goal * 1.15, "machine %d, stale %.0f: steps of %.0f us", (int)i, stale, sum);
        }
}

Test(pace, prompts_go_on_when_decoding_alone_takes_longer_than_the_goal)
{
    struct qr_rng r = {.seed = 9};
    struct machine m = {200000, 100, 900, 0.05};
    struct paced p;
    init(&p, 50000);
    for (int i = 0; i < 20; i++)
        note(&p, 0, 8, cost(&m, 0, 8, &r));
    for (int i = 0; i < 40; i++) {
        int32_t n = at_most(tokens(&p, 8, 0), 512);
        cr_assert_geq(n, QR_PACE_TOKENS_MIN);
        note(&p, n, 8, cost(&m, n, 8, &r));
    }
    int32_t n = tokens(&p, 8, 0); /* half of 200.8 ms at 0.9 ms a token: 111; the estimate wanders by the noise of the whole step */
    cr_assert(n > 70 && n < 170, "%d tokens", (int)n);
}

Test(pace, steps_grow_with_the_prompt_tokens_that_wait_up_to_fourfold)
{
    struct qr_rng r = {.seed = 8};
    struct machine m = {10000, 100, 100, 0};
    struct paced p;
    init(&p, 80000);
    note(&p, 0, 16, cost(&m, 0, 16, &r));
    note(&p, 512, 0, cost(&m, 512, 0, &r) - m.base);
    const int32_t few = tokens(&p, 16, 2 * QR_PACE_BACKLOG), twice = tokens(&p, 16, 3 * QR_PACE_BACKLOG);
    const int32_t most = tokens(&p, 16, 5 * QR_PACE_BACKLOG);
    cr_assert_eq(tokens(&p, 16, 0), few);
    cr_assert(twice > 2 * few && twice < 2.5 * few, "%d, %d", (int)few, (int)twice); /* what decoding takes is not there twice */
    cr_assert(most > 4 * few && most < 5 * few, "%d, %d", (int)few, (int)most);
    cr_assert_eq(tokens(&p, 16, INT64_MAX / 2), most);
}

Test(pace, one_interrupted_step_changes_little)
{
    struct qr_rng r = {.seed = 10};
    struct machine m = {11000, 200, 190, 0};
    struct paced p;
    init(&p, 80000);
    note(&p, 0, 32, cost(&m, 0, 32, &r));
    for (int i = 0; i < 30; i++) {
        int32_t n = at_most(tokens(&p, 32, 0), 512);
        note(&p, n, 32, cost(&m, n, 32, &r));
    }
    int32_t before = tokens(&p, 32, 0);
    note(&p, before, 32, 3e6);
    cr_assert_gt(tokens(&p, 32, 0), before / 2);
    note(&p, 1, 32, 1.9e4); /* the last token of a prompt tells little */
    note(&p, 1, 32, 1.9e4);
    cr_assert_gt(tokens(&p, 32, 0), before / 2 - 16);
}

Test(pace, rows_make_whole_tiles)
{
    struct paced p;
    init(&p, 80000);
    note(&p, 256, 0, 256 * 333.0);
    for (int32_t n_decode = 1; n_decode < 64; n_decode++)
        cr_assert((tokens(&p, n_decode, 0) + n_decode) % 16 == 0);
}

Test(pace, a_firm_goal_does_not_stretch_and_runs_as_many_as_leave_a_third_to_prompts)
{
    struct qr_rng r = {.seed = 12};
    const struct machine m = {10000, 1000, 500, 0};
    struct paced p;
    init(&p, 24000);
    cr_assert_eq(qr_pace_running(&p.pace, &p.predict, &p.lately, 64), INT32_MAX);
    p.pace.firm = true;
    cr_assert_eq(qr_pace_running(&p.pace, &p.predict, &p.lately, 64), INT32_MAX, "nothing is known");
    for (int32_t n = 1; n <= 64; n *= 2)
        note(&p, 0, n, cost(&m, 0, n, &r));
    note(&p, 256, 0, cost(&m, 256, 0, &r));
    cr_assert_eq(qr_pace_running(&p.pace, &p.predict, &p.lately, 64), 6, "16 ms of 24");
    cr_assert_eq(qr_pace_running(&p.pace, &p.predict, &p.lately, 6), INT32_MAX, "no more may run in any case");
    const int32_t n = tokens(&p, 6, INT64_MAX / 2);
    cr_assert(n >= 1 && n + 6 <= 32 && cost(&m, n, 6, &r) <= 24000 * 1.1, "%d", (int)n);
    p.pace.goal_us = 12000;
    cr_assert_eq(qr_pace_running(&p.pace, &p.predict, &p.lately, 64), INT32_MAX, "one alone takes too long: there is nothing to keep");
}
