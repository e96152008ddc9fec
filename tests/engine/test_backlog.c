#include <criterion/criterion.h>
#include <math.h>

#include "engine/backlog.h"

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b); /* a few sums and products of doubles */
}

struct scene {
    struct qr_kv_pool *pool;
    struct qr_sched *sched;
    struct qr_backlog b;
    int32_t ids[400];
};

static void scene_open(struct scene *s)
{
    const struct qr_sched_config c = {.running_max = 4, .waiting_max = 8, .step_tokens_max = 64, .chunk_tokens_max = 64, .logit_rows_max = 64, .ctx_max = 300,
                                      .preempt_max = 4};
    struct qr_hash_secret secret;
    struct qr_err err;
    qr_hash_secret_seeded(&secret, 1);
    *s = (struct scene){.pool = qr_kv_pool_new(100, 16, true, &secret)};
    cr_assert_eq(qr_sched_new(&s->sched, &c, s->pool, &err), 0);
}

static void scene_close(struct scene *s)
{
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

Test(backlog, is_nothing_without_work_and_before_anything_was_measured)
{
    struct scene s;
    scene_open(&s);
    cr_assert_eq(qr_backlog_seconds(&s.b, s.sched), 0);
    add(&s, 100, 50, -1, true);
    cr_assert_eq(qr_backlog_seconds(&s.b, s.sched), 0);
    qr_backlog_step(&s.b, 0, 0, 100, 0);
    cr_assert_eq(qr_backlog_seconds(&s.b, s.sched), 0);
    scene_close(&s);
}

Test(backlog, is_tokens_left_times_what_they_took)
{
    struct scene s;
    scene_open(&s);
    add(&s, 100, 50, -1, true);
    qr_backlog_step(&s.b, 200, 0, 20000, 0); /* 100 us a prompt token */
    cr_assert(near(qr_backlog_seconds(&s.b, s.sched), 0.010));
    cr_assert(near(qr_backlog_prompt_token_s(&s.b), 100e-6));
    qr_backlog_step(&s.b, 0, 4, 8000, 0); /* 2 ms a token */
    cr_assert(near(qr_backlog_seconds(&s.b, s.sched), 0.010 + 0.100));
    qr_backlog_answer(&s.b, 10); /* answers are shorter than they may be */
    qr_backlog_answer(&s.b, 20);
    cr_assert(near(qr_backlog_seconds(&s.b, s.sched), 0.010 + 0.030));
    qr_backlog_cache(&s.b, &(struct qr_kv_stats){.query_tokens = 1000, .hit_tokens = 250}); /* a quarter of what waits will be found */
    cr_assert(near(qr_backlog_seconds(&s.b, s.sched), 0.0075 + 0.030));
    scene_close(&s);
}

Test(backlog, of_a_mixed_step_prompts_are_told_what_decoding_alone_leaves)
{
    struct qr_backlog b = {0};
    qr_backlog_step(&b, 30, 10, 1000, 0); /* not known: by rows */
    cr_assert(near(b.prompt_us.of, 750) && near(b.decode_us.of, 250));
    b = (struct qr_backlog){0};
    qr_backlog_step(&b, 30, 10, 1000, 400);
    cr_assert(near(b.prompt_us.of, 600) && near(b.decode_us.of, 400) && b.prompt_us.n == 30 && b.decode_us.n == 10);
    qr_backlog_step(&b, 30, 10, 1000, 2000); /* some is left in any case */
    cr_assert(near(b.prompt_us.of, 600 + 125));
}

Test(backlog, forgets_what_was_long_ago)
{
    struct qr_backlog b = {0};
    for (int i = 0; i < 1000; i++)
        qr_backlog_step(&b, 0, 1, 1e6, 0);
    for (int i = 0; i < 100000; i++)
        qr_backlog_step(&b, 0, 1, 1e3, 0);
    cr_assert(b.decode_us.of / b.decode_us.n < 1.1e3, "%f", b.decode_us.of / b.decode_us.n);
    for (int i = 0; i < 1000; i++)
        qr_backlog_answer(&b, 100);
    for (int i = 0; i < 3000; i++)
        qr_backlog_answer(&b, 10);
    cr_assert(b.answer_tokens.of / b.answer_tokens.n < 11);
}

Test(backlog, a_prompt_that_siblings_share_counts_once_and_what_was_computed_not_at_all)
{
    struct scene s;
    struct qr_plan plan;
    struct qr_sched_left left;
    const struct qr_sched_config c = {.running_max = 4};
    scene_open(&s);
    qr_plan_init(&plan, &c);
    for (int i = 0; i < 3; i++)
        add(&s, 100, 20, 1, i == 0);
    qr_sched_left(s.sched, 8, &left);
    cr_assert(left.waiting_tokens == 100 && left.begun_tokens == 0 && left.output_tokens == 3 * 8);
    cr_assert(qr_sched_plan(s.sched, &plan, 0)); /* 64 of them */
    qr_sched_commit(s.sched, &plan);
    qr_sched_left(s.sched, 8, &left);
    cr_assert(left.waiting_tokens == 0 && left.begun_tokens == 36 && left.output_tokens == 3 * 8);
    cr_assert(qr_sched_plan(s.sched, &plan, 0)); /* the rest; the others may begin */
    qr_sched_commit(s.sched, &plan);
    for (int i = 0; i < 9; i++) {
        qr_sched_push(s.sched, 0, 5);
        qr_sched_plan(s.sched, &plan, 0);
        qr_sched_commit(s.sched, &plan);
    }
    qr_sched_left(s.sched, 8, &left);
    cr_assert_eq(left.output_tokens, 1 + 2 * 8); /* one has drawn more than answers have: one more is expected */
    qr_sched_left(s.sched, INT32_MAX, &left);
    cr_assert_eq(left.output_tokens, 11 + 2 * 20);
    qr_plan_release(&plan);
    scene_close(&s);
}
