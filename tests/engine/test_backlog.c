/* When the work inside would be done: a queue played forward on a machine with known costs. */
#include <criterion/criterion.h>
#include <math.h>

#include "engine/backlog.h"

#define SLOTS 12

/* A prompt token takes 100 us, a step that only decodes 1 ms and 10 us for each further row. */
struct scene {
    struct qr_kv_pool *pool;
    struct qr_sched *sched;
    struct qr_backlog b;
    struct qr_predict predict;
    struct qr_pace pace;
    struct qr_backlog_steps steps;
    int32_t ids[400];
};

static void scene_open(struct scene *s, bool measured)
{
    const struct qr_sched_config c = {.running_max = 4, .waiting_max = SLOTS - 4, .step_tokens_max = 64, .chunk_tokens_max = 64, .logit_rows_max = 64,
                                      .ctx_max = 300, .preempt_max = 4};
    struct qr_hash_secret secret;
    struct qr_err err;
    qr_hash_secret_seeded(&secret, 1);
    *s = (struct scene){.pool = qr_kv_pool_new(100, 16, true, &secret)};
    cr_assert_eq(qr_sched_new(&s->sched, &c, s->pool, &err), 0);
    qr_backlog_init(&s->b, SLOTS);
    qr_predict_init(&s->predict);
    s->steps = (struct qr_backlog_steps){.predict = &s->predict, .pace = &s->pace, .running_max = 4, .tokens_max = 64, .kv_tokens = 1600};
    for (int32_t n = 1; n <= 4 && measured; n++)
        qr_predict_note(&s->predict, &(struct qr_step_size){.n_decode = n}, 990 + 10 * n);
    if (measured)
        qr_predict_note(&s->predict, &(struct qr_step_size){.n_prompt = 64}, 6400);
}

static void scene_close(struct scene *s)
{
    qr_backlog_release(&s->b);
    qr_sched_free(s->sched);
    qr_kv_pool_free(s->pool);
}

static int32_t add(struct scene *s, int32_t n_prompt, int32_t new_max, int32_t group, bool leader)
{
    struct qr_err err;
    const struct qr_sched_add a = {.ids = s->ids, .n_prompt = n_prompt, .new_max = new_max, .group = group, .leader = leader};
    const int32_t seq = qr_sched_add(s->sched, &a, &err);
    cr_assert_geq(seq, 0);
    return seq;
}

static double look(struct scene *s)
{
    return qr_backlog_look(&s->b, s->sched, &s->steps, NULL);
}

/* Costs are on the table's lines, but for rows between its points. */
static bool near(double a, double b)
{
    return fabs(a - b) <= 0.02 * b;
}

Test(backlog, is_nothing_without_work_and_before_anything_was_measured)
{
    struct scene s;
    scene_open(&s, false);
    cr_assert_eq(look(&s), 0);
    const int32_t seq = add(&s, 100, 50, -1, true);
    cr_assert_eq(look(&s), 0);
    cr_assert_eq(s.b.first_us[seq], 0);
    cr_assert_eq(qr_backlog_alone_us(&s.steps, 100), 0);
    scene_close(&s);
    scene_open(&s, true);
    cr_assert_eq(look(&s), 0);
    scene_close(&s);
}

Test(backlog, is_what_steps_take_one_after_the_other)
{
    struct scene s;
    scene_open(&s, true);
    const int32_t seq = add(&s, 128, 50, -1, true);
    cr_assert(near(look(&s), 12800 + 49 * 1000), "%f", look(&s));
    cr_assert(near(s.b.first_us[seq], 12800) && near(qr_backlog_alone_us(&s.steps, 128), 12800));
    cr_assert(near(qr_backlog_prompt_token_us(&s.steps, s.sched), 100));
    qr_backlog_answer(&s.b, 10); /* answers are shorter than they may be */
    qr_backlog_answer(&s.b, 20);
    cr_assert(near(look(&s), 12800 + 14 * 1000));
    qr_backlog_cache(&s.b, &(struct qr_kv_stats){.query_tokens = 1000, .hit_tokens = 250}); /* a quarter of what waits will be found */
    cr_assert(near(look(&s), 9600 + 14 * 1000));
    qr_sched_find(s.sched, seq); /* the cache was asked: it has nothing */
    cr_assert(near(look(&s), 12800 + 14 * 1000));
    scene_close(&s);
}

Test(backlog, a_prompt_that_is_longer_than_any_step_so_far_may_take_as_long_as_short_steps_do)
{
    struct scene s;
    scene_open(&s, false);
    s.steps.tokens_max = 512;
    qr_predict_note(&s.predict, &(struct qr_step_size){.n_prompt = 64}, 6400);
    cr_assert(near(qr_backlog_alone_us(&s.steps, 4096), 8 * 6400), "a step of 512 is not feared");
    cr_assert(near(qr_backlog_alone_most_us(&s.steps, 4096), 64 * 6400));
    s.steps.tokens_max = 8;
    cr_assert_eq(qr_backlog_alone_most_us(&s.steps, 4096), qr_backlog_alone_us(&s.steps, 4096));
    scene_close(&s);
}

Test(backlog, what_finds_no_place_waits_until_one_ends)
{
    struct scene s;
    int32_t seq[6];
    scene_open(&s, true);
    for (int i = 0; i < 6; i++)
        seq[i] = add(&s, 64, i < 4 ? 101 : 2, -1, true);
    look(&s);
    cr_assert(near(s.b.first_us[seq[0]], 6400));
    cr_assert(s.b.first_us[seq[3]] >= 4 * 6400 && s.b.first_us[seq[3]] < 4 * 6400 + 3 * 1030, "%f", s.b.first_us[seq[3]]);
    cr_assert_geq(s.b.first_us[seq[4]], 90 * 1000); /* the first of them has a hundred steps to go */
    cr_assert_lt(s.b.first_us[seq[4]], 150 * 1000);
    cr_assert_gt(s.b.first_us[seq[5]], s.b.first_us[seq[4]]);
    scene_close(&s);
}

Test(backlog, of_what_is_late_the_first_goes_and_those_behind_it_are_looked_at_again)
{
    struct scene s;
    int32_t seq[5];
    double limit[SLOTS];
    bool late[SLOTS] = {false};
    scene_open(&s, true);
    for (int i = 0; i < SLOTS; i++)
        limit[i] = INFINITY;
    for (int i = 0; i < 5; i++) {
        seq[i] = add(&s, i == 1 ? 256 : 64, 2, -1, true);
        limit[seq[i]] = 25000;
    }
    limit[seq[0]] = 1; /* both the first, and the long one, have no time; the other three have once these are gone */
    cr_assert_eq(qr_backlog_late(&s.b, s.sched, &s.steps, limit, late), 2);
    cr_assert(late[seq[0]] && late[seq[1]] && !late[seq[2]] && !late[seq[3]] && !late[seq[4]]);
    cr_assert_gt(s.b.first_us[seq[1]], 25000, "what was predicted of it stays");
    cr_assert_leq(s.b.first_us[seq[4]], 25000);
    cr_assert_eq(qr_backlog_late(&s.b, s.sched, &s.steps, limit, late), 0);
    scene_close(&s);
}

Test(backlog, forgets_what_was_long_ago)
{
    struct scene s;
    scene_open(&s, true);
    for (int i = 0; i < 1000; i++)
        qr_backlog_answer(&s.b, 100);
    for (int i = 0; i < 3000; i++)
        qr_backlog_answer(&s.b, 10);
    cr_assert(s.b.answer_tokens.of / s.b.answer_tokens.n < 11);
    scene_close(&s);
}

Test(backlog, a_prompt_that_siblings_share_counts_once_and_what_was_computed_not_at_all)
{
    struct scene s;
    struct qr_plan plan;
    const struct qr_sched_config c = {.running_max = 4};
    scene_open(&s, true);
    qr_plan_init(&plan, &c);
    for (int i = 0; i < 3; i++)
        add(&s, 128, 20, 1, i == 0);
    cr_assert(near(look(&s), 12800 + 21 * 1020), "%f", look(&s)); /* siblings begin a step later each: their last token of the prompt is theirs */
    cr_assert(qr_sched_plan(s.sched, &plan, 0)); /* 64 of them */
    qr_sched_commit(s.sched, &plan);
    cr_assert(near(look(&s), 6400 + 21 * 1020), "%f", look(&s));
    cr_assert(qr_sched_plan(s.sched, &plan, 0)); /* the rest; the others may begin */
    qr_sched_commit(s.sched, &plan);
    qr_sched_push(s.sched, 0, 5);
    cr_assert(near(look(&s), 21 * 1020), "%f", look(&s));
    qr_plan_release(&plan);
    scene_close(&s);
}
