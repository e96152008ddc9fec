/* Sequences that are held, and blocks of theirs that land meanwhile. */
#include <string.h>

#include "kvcache/kv_internal.h"
#include "tests/scheduler/scene.h"

static int32_t add_held(struct scene *s, int32_t n_prompt, int32_t first_token)
{
    struct qr_sched_add a = request(s, n_prompt, 4, first_token);
    a.held = true;
    return add_as(s, a);
}

/* The content of block `index` comes. */
static void land(struct scene *s, int32_t seq, int32_t index)
{
    const int32_t block = qr_sched_place(s->sched, seq, index);
    cr_assert_geq(block, 0, "block %d: %d", index, block);
    qr_sched_land(s->sched, seq, block);
    check(s);
}

static int32_t n_found(const struct scene *s, int32_t seq)
{
    return qr_sched_seq(s->sched, seq)->n_found;
}

/* Nothing but held ones: as if none were there. */
Test(held, a_sequence_is_in_no_plan_queue_or_estimate_until_it_is_let_go)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(32, true, &c);
    const int32_t seq = add_held(s, 20, 0);
    struct qr_sched_stats stats;
    int32_t n;
    for (int i = 0; i < 3; i++)
        cr_assert(!plan(s));
    qr_sched_stats(s->sched, &stats);
    cr_assert(stats.n_held == 1 && stats.held_tokens == 20 && stats.n_waiting == 0 && stats.waiting_tokens == 0 && stats.oldest_arrival_us == -1);
    (void)qr_sched_order(s->sched, &n);
    cr_assert(n == 0 && qr_sched_prompt_tokens(s->sched) == 0);
    cr_assert(qr_sched_list(s->sched, QR_SEQ_HELD, &n)[0] == seq && n == 1);
    qr_sched_let_go(s->sched, seq);
    qr_sched_stats(s->sched, &stats);
    cr_assert(stats.n_held == 0 && stats.n_waiting == 1 && stats.waiting_tokens == 20 && qr_sched_prompt_tokens(s->sched) == 20);
    step(s);
    cr_assert(state(s, seq) == QR_SEQ_DECODE && qr_sched_seq(s->sched, seq)->arrived_us == 0);
    end(s);
}

Test(held, a_sequence_that_is_let_go_stands_where_it_would_have_by_its_arrival)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(32, true, &c);
    qr_sched_limit_running(s->sched, 1);
    const int32_t first = add(s, 5, 9, 0), held = add_held(s, 5, 100), last = add(s, 5, 9, 200);
    step(s);
    qr_sched_let_go(s->sched, held);
    cr_assert(state(s, first) == QR_SEQ_DECODE && state(s, held) == QR_SEQ_WAITING);
    qr_sched_finish(s->sched, first);
    step(s);
    cr_assert(state(s, held) == QR_SEQ_DECODE && state(s, last) == QR_SEQ_WAITING);
    end(s);
}

Test(held, a_sequence_takes_a_place_and_gives_it_back_when_it_ends)
{
    struct qr_sched_config c = usual();
    c.running_max = 1, c.waiting_max = 2;
    struct scene *s = begin(16, true, &c);
    int32_t seq[3];
    for (int i = 0; i < 3; i++)
        seq[i] = add_held(s, 9, 100 * i);
    struct qr_sched_add a = request(s, 9, 1, 0);
    cr_assert_eq(qr_sched_add(s->sched, &a, &s->err), QR_E_BUSY);
    land(s, seq[1], 0);
    for (int i = 0; i < 3; i++) {
        qr_sched_finish(s->sched, seq[i]);
        check(s);
    }
    cr_assert(!plan(s));
    cr_assert_eq(qr_kv_pool_available(s->pool), 16);
    end(s);
}

Test(held, siblings_are_let_go_together_and_share_what_the_leader_computes)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(64, true, &c);
    int32_t seq[3];
    for (int i = 0; i < 3; i++) {
        struct qr_sched_add a = request(s, 18, 6, 0);
        a.group = 7, a.leader = i == 0, a.held = true;
        seq[i] = add_as(s, a);
    }
    land(s, seq[0], 0);
    land(s, seq[0], 1);
    for (int i = 0; i < 3; i++)
        qr_sched_let_go(s->sched, seq[i]);
    step(s);
    cr_assert(item_of(s, seq[0])->first == 2 * P && s->plan.n_prefill == 1);
    step(s);
    cr_assert(item_of(s, seq[1])->first == 17 && item_of(s, seq[2])->first == 17 && s->plan.n_copies == 2);
    end(s);
}

Test(held, blocks_that_landed_are_what_the_sequence_finds_when_it_begins)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(32, true, &c);
    struct qr_kv_name name[4];
    qr_kv_names_open(s->pool, 16);
    struct qr_sched_add a = request(s, 17, 4, 0);
    a.held = true, a.root.byte[0] = 5, a.salt.lo = 6;
    const int32_t seq = add_as(s, a);
    qr_kv_name_all(name, &a.root, a.ids, 17, P);
    for (int i = 0; i < 4; i++) {
        land(s, seq, i);
        cr_assert(n_found(s, seq) == (i + 1) * P && qr_kv_name_find(s->pool, &name[i]) >= 0);
    }
    qr_sched_let_go(s->sched, seq);
    step(s);
    cr_assert(item_of(s, seq)->first == 16 && item_of(s, seq)->n_tokens == 1 && qr_sched_seq(s->sched, seq)->n_cached == 16);
    end(s);
}

Test(held, a_place_is_refused_where_the_block_is_cached_or_one_before_it_is_not)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(32, true, &c);
    const int32_t seq = add_held(s, 17, 0);
    cr_assert_eq(qr_sched_place(s->sched, seq, 1), QR_PLACE_NONE);
    land(s, seq, 0);
    cr_assert_eq(qr_sched_place(s->sched, seq, 0), QR_PLACE_HAS);
    cr_assert_eq(qr_sched_place(s->sched, seq, 3), QR_PLACE_NONE);
    const int32_t other = add(s, 13, 1, 0); /* computes what begins alike */
    step(s);
    qr_sched_finish(s->sched, other);
    cr_assert_eq(qr_sched_place(s->sched, seq, 1), QR_PLACE_HAS);
    cr_assert_eq(qr_sched_place(s->sched, seq, 2), QR_PLACE_HAS);
    cr_assert_eq(n_found(s, seq), 12);
    struct qr_sched_stats stats;
    qr_sched_stats(s->sched, &stats);
    cr_assert_eq(stats.held_tokens, 5);
    const int32_t block = qr_sched_place(s->sched, seq, 3);
    qr_kv_unref(s->pool, block); /* its content did not come to its end */
    check(s);
    land(s, seq, 3);
    qr_kv_prefix_clear(s->pool);
    cr_assert_eq(qr_sched_place(s->sched, seq, 3), QR_PLACE_NONE, "all before it is gone");
    land(s, seq, 0);
    end(s);
}

/* 16 blocks; a prompt of 36 tokens and its answer run with 4 blocks and will take 5 more, 3 are the watermark. */
Test(held, blocks_land_in_what_running_prompts_and_the_watermark_leave)
{
    struct qr_sched_config c = usual();
    c.watermark_blocks = 3, c.chunk_tokens_max = 16;
    struct scene *s = begin(16, true, &c);
    const int32_t running = add(s, 36, 4, 500), seq = add_held(s, 33, 0);
    cr_assert_eq(qr_sched_spare(s->sched), 13);
    step(s);
    cr_assert(state(s, running) == QR_SEQ_PREFILL && qr_sched_spare(s->sched) == 4);
    for (int i = 0; i < 4; i++)
        land(s, seq, i);
    cr_assert_eq(qr_sched_spare(s->sched), 4, "what landed may be taken again");
    step(s);
    step(s);
    cr_assert(state(s, running) == QR_SEQ_DECODE && qr_sched_seq(s->sched, running)->n_preempted == 0);
    for (int i = 4; i < 7; i++)
        land(s, seq, i);
    cr_assert_eq(qr_sched_place(s->sched, seq, 7), QR_PLACE_NONE, "to make room the one before it would go");
    check(s);
    qr_sched_finish(s->sched, running);
    qr_sched_let_go(s->sched, seq);
    step(s);
    cr_assert_eq(qr_sched_seq(s->sched, seq)->n_cached, 7 * P);
    end(s);
}

Test(held, blocks_land_behind_others_that_went_to_the_second_tier)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin_tiers(8, 8, true, &c);
    const int32_t seq = add_held(s, 17, 0);
    int32_t taken[8];
    for (int i = 0; i < 3; i++)
        land(s, seq, i);
    for (int i = 0; i < 8; i++)
        taken[i] = qr_kv_alloc(s->pool);
    for (int i = 0; i < 8; i++)
        qr_kv_unref(s->pool, taken[i]);
    qr_kv_moved(s->pool);
    land(s, seq, 3);
    qr_sched_let_go(s->sched, seq);
    step(s);
    cr_assert_eq(qr_sched_seq(s->sched, seq)->n_cached, 16);
    struct qr_kv_stats stats;
    qr_kv_pool_stats(s->pool, &stats);
    cr_assert(stats.n_out == 3 && stats.n_in == 3);
    end(s);
}
