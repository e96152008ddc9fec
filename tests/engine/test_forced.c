/* Tokens that a grammar or the end of a thinking forces are said without logits, and what else a grammar tells is guessed: nothing but time may show it. */
#include "tests/engine/forced_cases.h"

#define MODEL "models/stories260K"
#define NEED_DATA()                                                                                                    \
    do {                                                                                                               \
        if (!data_path(MODEL))                                                                                         \
            cr_skip_test("no conformance data (QUIRE_DATA): the engine tests need %s", MODEL);                         \
    } while (0)

Test(forced, answers_are_the_same_bytes_and_events_in_fewer_steps)
{
    NEED_DATA();
    struct setup s;
    struct qr_stats off, on;
    setup_init(&s, MODEL);
    expect_forced_same(&s, false, &off, &on);
    cr_expect_lt(on.n_steps, off.n_steps);
    cr_expect_gt(on.n_accepted_tokens, 0);
}

static void guess_nothing(void *user, struct qr_draft_ask *ask, int32_t n)
{
    (void)user, (void)ask, (void)n;
}

Test(forced, where_one_token_may_come_it_takes_no_step)
{
    NEED_DATA();
    struct setup s;
    struct qr_stats off, on;
    setup_init(&s, MODEL);
    s.config.draft_source.fill = guess_nothing;
    expect_forced_same(&s, false, &off, &on);
    cr_expect_lt(on.n_steps, off.n_steps - FORCED_CASES, "an end, or two ids that end a thinking, of each case");
}

Test(forced, answers_are_the_same_bytes_beside_each_other_with_preemption_and_on_two_ranks)
{
    NEED_DATA();
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct setup s;
        struct qr_stats off, on;
        setup_init(&s, MODEL);
        s.n_ranks = ranks;
        s.config.kv_tokens = 320;
        s.config.ctx_max = 256;
        int64_t n_preempted = 0;
        for (int tries = 0; tries < 10 && n_preempted == 0; tries++) { /* a test that is stopped between requests lets the first ones end */
            expect_forced_same(&s, true, &off, &on);
            n_preempted = off.sched.n_preempted + on.sched.n_preempted;
        }
        cr_expect_gt(n_preempted, 0);
    }
}
