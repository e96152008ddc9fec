/* Single rules of the scheduler, one small scene each. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "kvcache/kv_internal.h"
#include "tests/scheduler/scene.h"

Test(sched, refuses_settings_that_contradict_each_other_by_name)
{
    struct qr_hash_secret secret;
    qr_hash_secret_seeded(&secret, 3);
    struct qr_kv_pool *pool = qr_kv_pool_new(8, P, true, &secret);
    struct qr_sched_config c[9];
    static const char *name[9] = {"running_max",    "waiting_max",     "step_tokens_max", "chunk_tokens_max", "logit_rows_max",
                                  "preempt_max",    "watermark_blocks", "ctx_max",        "policy"};
    for (int i = 0; i < 9; i++)
        c[i] = usual();
    c[0].running_max = 0, c[1].waiting_max = 0, c[2].step_tokens_max = 7, c[3].chunk_tokens_max = 0, c[4].logit_rows_max = 7;
    c[5].preempt_max = -1, c[6].watermark_blocks = 8, c[7].ctx_max = 0, c[8].policy = (enum qr_sched_policy)3;
    for (int i = 0; i < 9; i++) {
        struct qr_sched *s = NULL;
        struct qr_err err = {0};
        cr_assert_eq(qr_sched_new(&s, &c[i], pool, &err), QR_E_USAGE, "%s", name[i]);
        cr_assert(s == NULL && strncmp(err.msg, name[i], strlen(name[i])) == 0, "%s", err.msg);
    }
    struct qr_sched_config edge = usual();
    edge.step_tokens_max = edge.logit_rows_max = edge.running_max;
    edge.watermark_blocks = 7;
    struct qr_sched *s = NULL;
    struct qr_err err;
    cr_assert_eq(qr_sched_new(&s, &edge, pool, &err), 0);
    qr_sched_free(s);
    qr_kv_pool_free(pool);
}

Test(sched, says_what_a_sequence_needs_when_it_can_never_fit)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(4, true, &c);
    add(s, 10, 7, 0); /* 16 rows: the 17th token is sampled, never computed */
    struct qr_sched_add a = request(s, 10, 8, 0);
    cr_assert_eq(qr_sched_add(s->sched, &a, &s->err), QR_E_NO_ROOM);
    cr_assert_str_eq(s->err.msg, "10 prompt tokens and up to 8 new ones need 5 cache blocks of 4 tokens; there are 4");
    end(s);
}

Test(sched, says_busy_when_all_places_are_taken)
{
    struct qr_sched_config c = usual();
    c.running_max = 2, c.waiting_max = 3;
    struct scene *s = begin(16, true, &c);
    for (int i = 0; i < 5; i++)
        add(s, 3, 3, 0);
    struct qr_sched_add a = request(s, 3, 3, 0);
    cr_assert_eq(qr_sched_add(s->sched, &a, &s->err), QR_E_BUSY);
    cr_assert_str_eq(s->err.msg, "the queue is full: 5 sequences wait or run");
    qr_sched_finish(s->sched, 4);
    add(s, 3, 3, 0);
    end(s);
}

Test(sched, plans_nothing_when_nothing_is_there)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(4, true, &c);
    cr_assert_not(plan(s));
    cr_assert(s->plan.n_prefill == 0 && s->plan.n_decode == 0 && s->plan.n_tokens == 0);
    end(s);
}

Test(sched, plans_decode_rows_first_and_prompt_chunks_in_the_rest)
{
    struct qr_sched_config c = usual();
    c.step_tokens_max = 20;
    struct scene *s = begin(64, true, &c);
    int32_t a = add(s, 5, 50, 0), b = add(s, 6, 50, 100);
    step(s);
    int32_t long_one = add(s, 100, 5, 200);
    step(s);
    cr_assert(s->plan.n_decode == 2 && s->plan.n_prefill == 1 && s->plan.n_tokens == 20);
    cr_assert(item_of(s, a)->n_tokens == 1 && item_of(s, b)->n_tokens == 1 && item_of(s, long_one)->n_tokens == 18);
    cr_assert_eq(item_of(s, long_one)->n_logits, 0);
    for (int i = 0; i < 5; i++) {
        step(s);
        cr_assert_eq(s->plan.n_decode, 2, "a long prompt held decode up");
    }
    cr_assert(state(s, long_one) == QR_SEQ_DECODE && item_of(s, long_one)->n_logits == 1);
    end(s);
}

static const int32_t guesses[40] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

Test(sched, guesses_take_rows_that_nothing_else_wants_and_stand_between_prompts_and_plain_rows)
{
    struct qr_sched_config c = usual();
    c.step_tokens_max = 40, c.logit_rows_max = 8;
    struct scene *s = begin(64, true, &c);
    int32_t a = add(s, 5, 50, 0), b = add(s, 6, 50, 100), d = add(s, 6, 7, 120);
    step(s);
    int32_t prompt = add(s, 70, 5, 200);
    qr_sched_draft(s->sched, a, guesses, 10);
    qr_sched_draft(s->sched, d, guesses, 10);
    cr_assert_eq(qr_sched_seq(s->sched, d)->n_draft, 5, "the last of 7 tokens is drawn and never computed");
    step(s);
    cr_assert(s->plan.n_prefill == 1 && s->plan.n_checked == 1 && s->plan.n_decode == 2 && s->plan.item[0].seq == prompt && s->plan.item[1].seq == a);
    cr_assert(item_of(s, prompt)->n_tokens == 32 && item_of(s, a)->n_tokens == 6 && item_of(s, a)->n_logits == 6 && item_of(s, b)->n_tokens == 1);
    cr_assert_eq(s->plan.n_tokens, 40);
    step(s);
    cr_assert(item_of(s, d)->n_tokens == 1, "guesses hold for one plan, in which there was no room");
    qr_sched_draft(s->sched, a, guesses, 10);
    step(s);
    cr_assert(item_of(s, prompt)->n_logits == 1 && item_of(s, a)->n_tokens == 1 + 4 && s->plan.n_logits == 8);
    end(s);
}

Test(sched, guesses_count_and_are_found_by_others_from_the_draw_that_equals_them)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(64, true, &c);
    int32_t a = add(s, 6, 50, 0), found[4];
    const struct qr_seq *q = qr_sched_seq(s->sched, a);
    struct qr_hash128 hashes[4];
    int32_t n_hashed = 0;
    step(s);
    qr_sched_draft(s->sched, a, guesses, 6);
    cr_assert(plan(s) && item_of(s, a)->first == 6 && item_of(s, a)->n_tokens == 7 && item_of(s, a)->n_logits == 7);
    qr_sched_commit(s->sched, &s->plan);
    cr_assert(q->n_computed == 7 && q->n_ids == 7 && q->n_draft == 6);
    cr_assert(qr_sched_push(s->sched, a, 1) && q->n_computed == 8 && q->n_draft == 5);
    for (int i = 2; i < 4; i++)
        cr_assert(qr_sched_push(s->sched, a, i));
    check(s);
    cr_assert_not(qr_sched_push(s->sched, a, 77));
    check(s);
    cr_assert(q->n_computed == 10 && q->n_ids == 11 && q->n_draft == 0 && q->ids[10] == 77);
    const int32_t n = qr_kv_prefix_find(s->pool, found, 3, q->ids, 11, q->salt, hashes, &n_hashed);
    cr_assert_eq(n, 2, "8 of the rows that count fill blocks");
    for (int32_t i = 0; i < n; i++)
        qr_kv_unref(s->pool, found[i]);
    step(s);
    cr_assert(item_of(s, a)->first == 10 && item_of(s, a)->n_tokens == 1, "what was dropped is written over");
    end(s);
}

Test(sched, guesses_take_blocks_only_while_each_that_runs_could_have_one_more_above_the_watermark)
{
    struct qr_sched_config c = usual();
    c.watermark_blocks = 2;
    struct scene *s = begin(11, false, &c);
    int32_t a = add(s, 7, 30, 0), b = add(s, 8, 30, 100); /* 2 blocks each, and one more for b's next row */
    step(s);
    qr_sched_draft(s->sched, a, guesses, 20);
    qr_sched_draft(s->sched, b, guesses, 20);
    step(s);
    cr_assert_eq(item_of(s, a)->n_tokens, 1 + 8, "of 6 blocks 2 are above the watermark of 2 and the 2 that may be needed next");
    cr_assert_eq(item_of(s, b)->n_tokens, 1 + 3, "as many as its block has place for");
    cr_assert_eq(s->plan.n_preempted, 0);
    end(s);
}

Test(sched, ids_known_without_a_draw_are_one_item_with_one_row_of_logits_as_far_as_the_budget_goes)
{
    struct qr_sched_config c = usual();
    c.step_tokens_max = 10;
    struct scene *s = begin(64, true, &c);
    int32_t a = add(s, 4, 40, 0), b = add(s, 4, 40, 100);
    step(s);
    for (int32_t i = 0; i < 12; i++)
        qr_sched_force(s->sched, a, i);
    check(s);
    qr_sched_draft(s->sched, a, guesses, 5);
    cr_assert(plan(s) && s->plan.n_checked == 1 && s->plan.n_decode == 1 && s->plan.n_tokens == 10);
    cr_assert(item_of(s, a)->n_tokens == 9 && item_of(s, a)->n_logits == 0 && item_of(s, b)->n_tokens == 1);
    commit(s);
    qr_sched_draft(s->sched, a, guesses, 3);
    step(s);
    cr_assert(item_of(s, a)->first == 13 && item_of(s, a)->n_tokens == 4 + 3 && item_of(s, a)->n_logits == 1 + 3);
    cr_assert(qr_sched_seq(s->sched, a)->n_computed == 17 && qr_sched_seq(s->sched, a)->n_ids == 18);
    end(s);
}

Test(sched, prompt_tokens_beside_decode_rows_keep_a_limit_of_their_own)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(64, true, &c);
    qr_sched_limit_mixed(s->sched, 7);
    int32_t a = add(s, 12, 50, 0);
    step(s);
    cr_assert_eq(item_of(s, a)->n_tokens, 12, "nothing decodes yet");
    int32_t b = add(s, 10, 50, 100), d = add(s, 10, 50, 200);
    cr_assert_eq(qr_sched_n_decode(s->sched), 1);
    step(s);
    cr_assert(item_of(s, a)->n_tokens == 1 && item_of(s, b)->n_tokens == 7 && item_of(s, d) == NULL);
    step(s);
    cr_assert(item_of(s, b)->n_tokens == 3 && item_of(s, d)->n_tokens == 4);
    qr_sched_limit_mixed(s->sched, INT32_MAX);
    step(s);
    cr_assert(s->plan.n_decode == 2 && item_of(s, d)->n_tokens == 6);
    end(s);
}

Test(sched, cuts_prompts_to_the_chunk_limit)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(64, true, &c);
    int32_t a = add(s, 70, 5, 0);
    static const int32_t expected[] = {32, 32, 6};
    for (int i = 0; i < 3; i++) {
        step(s);
        cr_assert_eq(item_of(s, a)->n_tokens, expected[i]);
        cr_assert_eq(item_of(s, a)->n_logits, i == 2);
    }
    end(s);
}

Test(sched, prompts_that_may_have_whole_steps_are_computed_one_after_another_but_for_short_ones)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(256, true, &c);
    qr_sched_limit_chunk(s->sched, 64);
    int32_t a = add(s, 100, 1, 0), b = add(s, 150, 1, 1000);
    step(s);
    cr_assert(item_of(s, a)->n_tokens == 64 && item_of(s, b) == NULL);
    step(s);
    cr_assert(item_of(s, a)->n_tokens == 36 && item_of(s, b)->n_tokens == 28);
    int32_t d = add(s, 33, 1, 2000), e = add(s, 100, 1, 3000);
    step(s);
    cr_assert(item_of(s, b)->n_tokens == 64 && item_of(s, d) == NULL, "one row too many to end in the rest of the step");
    qr_sched_finish(s->sched, d);
    d = add_as(s, (struct qr_sched_add){.ids = s->ids[SEQS_MAX - 1], .n_prompt = 32, .new_max = 1, .group = -1, .priority = -1});
    step(s);
    cr_assert(item_of(s, b)->n_tokens + item_of(s, d)->n_tokens == 64 && state(s, d) == QR_SEQ_DECODE && item_of(s, e) == NULL);
    qr_sched_limit_chunk(s->sched, 1);
    step(s);
    cr_assert(item_of(s, b)->n_tokens == 26 && item_of(s, e)->n_tokens == 32, "no more than the chunk limit again");
    end(s);
}

Test(sched, beside_decode_rows_prompts_read_no_more_of_the_cache_than_they_may)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(256, true, &c);
    int32_t a = add(s, 160, 5, 0);
    qr_sched_limit_reads(s->sched, 100);
    for (int32_t i = 0; i < 5; i++) {
        step(s);
        cr_assert_eq(item_of(s, a)->n_tokens, 32, "nothing decodes yet");
    }
    int32_t b = add(s, 170, 5, 0), d = add(s, 8, 5, 500);
    step(s);
    cr_assert(item_of(s, a)->n_tokens == 1 && item_of(s, b)->first == 160 && item_of(s, b)->n_tokens == 1, "one row may read all");
    cr_assert_null(item_of(s, d), "the rest of the step is behind it");
    qr_sched_limit_reads(s->sched, 3 * 162 + 5);
    step(s);
    cr_assert(item_of(s, b)->n_tokens == 3 && item_of(s, d)->n_tokens == 5);
    qr_sched_limit_reads(s->sched, 150);
    step(s);
    cr_assert(item_of(s, b)->n_tokens == 1 && item_of(s, d) == NULL);
    qr_sched_limit_reads(s->sched, INT64_MAX);
    step(s);
    cr_assert(item_of(s, b)->n_tokens == 5 && item_of(s, d)->n_tokens == 3);
    end(s);
}

Test(sched, where_prompts_may_read_little_their_rows_take_the_place_of_guesses)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(64, true, &c);
    int32_t a = add(s, 5, 50, 0), n_guesses[2];
    step(s);
    for (int i = 0; i < 2; i++) {
        int32_t prompt = add(s, 6, 1, 100 + 50 * i);
        if (i > 0)
            qr_sched_limit_reads(s->sched, 100);
        qr_sched_draft(s->sched, a, guesses, 20);
        step(s);
        cr_assert_eq(item_of(s, prompt)->n_tokens, 6);
        n_guesses[i] = item_of(s, a)->n_tokens - 1;
    }
    cr_assert_eq(n_guesses[0], 14, "rows of logits, but one of the sequence and one of the prompt: %d", n_guesses[0]);
    cr_assert_eq(n_guesses[1], 14 - 6);
    end(s);
}

Test(sched, prefill_first_computes_prompts_alone_while_there_are_any)
{
    struct qr_sched_config c = usual();
    c.policy = QR_SCHED_PREFILL_FIRST;
    struct scene *s = begin(64, true, &c);
    add(s, 5, 50, 0);
    step(s);
    int32_t b = add(s, 64, 5, 100);
    step(s);
    cr_assert(s->plan.n_prefill == 1 && s->plan.n_decode == 0);
    step(s);
    cr_assert(s->plan.n_prefill == 1 && s->plan.n_decode == 0 && state(s, b) == QR_SEQ_DECODE);
    step(s);
    cr_assert(s->plan.n_prefill == 0 && s->plan.n_decode == 2);
    end(s);
}

Test(sched, alternate_takes_turns_while_both_kinds_have_work)
{
    struct qr_sched_config c = usual();
    c.policy = QR_SCHED_ALTERNATE;
    c.chunk_tokens_max = 4;
    struct scene *s = begin(64, true, &c);
    add(s, 4, 50, 0);
    step(s);
    add(s, 40, 5, 100);
    for (int i = 0; i < 12; i++) {
        step(s);
        cr_assert_eq(s->plan.n_prefill > 0, i % 2 == 1, "step %d", i);
        cr_assert_eq(s->plan.n_decode > 0, i % 2 == 0, "step %d", i);
    }
    end(s);
}

Test(sched, nobody_overtakes_a_large_prompt_for_being_small)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(16, false, &c);
    int32_t running = add(s, 40, 20, 0);
    step(s);
    step(s);
    int32_t large = add(s, 30, 2, 100), small = add(s, 3, 2, 200);
    step(s);
    cr_assert(state(s, large) == QR_SEQ_WAITING && state(s, small) == QR_SEQ_WAITING);
    qr_sched_finish(s->sched, running);
    step(s);
    cr_assert(state(s, large) != QR_SEQ_WAITING && state(s, small) != QR_SEQ_WAITING);
    end(s);
}

Test(sched, a_smaller_priority_number_goes_first)
{
    struct qr_sched_config c = usual();
    c.running_max = 1;
    struct scene *s = begin(16, false, &c);
    struct qr_sched_add late = request(s, 4, 2, 0), early = request(s, 4, 2, 100);
    late.priority = 1, early.priority = -1;
    int32_t b = add_as(s, late), a = add_as(s, early);
    step(s);
    cr_assert(state(s, a) == QR_SEQ_DECODE && state(s, b) == QR_SEQ_WAITING);
    end(s);
}

Test(sched, admission_keeps_the_watermark_and_what_running_prompts_still_need)
{
    struct qr_sched_config c = usual();
    c.watermark_blocks = 2, c.chunk_tokens_max = 4;
    struct scene *s = begin(12, false, &c);
    int32_t a = add(s, 24, 2, 0);  /* 6 blocks, one a step */
    int32_t b = add(s, 16, 2, 100); /* 4 blocks: 12 - 6 - 4 = 2 */
    int32_t d = add(s, 4, 2, 200);  /* would leave 1 */
    step(s);
    cr_assert(state(s, a) == QR_SEQ_PREFILL && state(s, b) == QR_SEQ_PREFILL && state(s, d) == QR_SEQ_WAITING);
    qr_sched_finish(s->sched, b);
    step(s);
    cr_assert_neq(state(s, d), QR_SEQ_WAITING);
    end(s);
}

Test(sched, alone_a_sequence_runs_whatever_the_watermark)
{
    struct qr_sched_config c = usual();
    c.watermark_blocks = 3;
    struct scene *s = begin(4, false, &c);
    int32_t a = add(s, 15, 2, 0);
    step(s);
    cr_assert_eq(state(s, a), QR_SEQ_DECODE);
    end(s);
}

Test(sched, preempts_the_last_of_the_lowest_priority)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(6, false, &c);
    struct qr_sched_add x = request(s, 7, 9, 0), y = request(s, 7, 9, 100), z = request(s, 7, 9, 200);
    x.priority = 1, z.priority = 0, y.priority = 1;
    int32_t low_old = add_as(s, x), low_new = add_as(s, y), high = add_as(s, z);
    step(s); /* 2 blocks each: full */
    step(s); /* row 7, the last of block 1 */
    cr_assert_eq(s->plan.n_preempted, 0);
    step(s); /* row 8: the high one takes a block from the newer low one; that frees one more for the older low one */
    cr_assert_eq(s->plan.n_preempted, 1);
    cr_assert(state(s, high) == QR_SEQ_DECODE && state(s, low_old) == QR_SEQ_DECODE && state(s, low_new) == QR_SEQ_WAITING);
    cr_assert_eq(qr_sched_seq(s->sched, low_new)->n_preempted, 1);
    cr_assert_eq(qr_sched_seq(s->sched, low_new)->n_ids, 9, "a preempted sequence keeps its tokens");
    qr_sched_finish(s->sched, high);
    step(s);
    cr_assert_eq(item_of(s, low_new)->n_tokens, 9); /* prompt and generated tokens are computed again in one chunk */
    cr_assert_eq(item_of(s, low_new)->n_logits, 1);
    struct qr_sched_stats stats;
    qr_sched_stats(s->sched, &stats);
    cr_assert(stats.n_preempted == 1 && stats.n_recomputed == 8);
    end(s);
}

Test(sched, a_protected_sequence_reserves_its_whole_need_and_is_never_a_victim)
{
    struct qr_sched_config c = usual();
    c.preempt_max = 0; /* everybody is protected from the start */
    struct scene *s = begin(8, false, &c);
    int32_t a = add(s, 8, 9, 0), b = add(s, 8, 9, 100), d = add(s, 1, 1, 200);
    step(s); /* 4 blocks each are promised to a and b: nothing is left for d */
    cr_assert(state(s, a) == QR_SEQ_DECODE && state(s, b) == QR_SEQ_DECODE && state(s, d) == QR_SEQ_WAITING);
    for (int i = 0; i < 8; i++) {
        step(s);
        cr_assert(s->plan.n_decode == 2 && s->plan.n_preempted == 0);
    }
    end(s);
}

Test(sched, a_prefix_hit_leaves_the_last_prompt_token_to_compute)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(16, true, &c);
    int32_t a = add(s, 8, 4, 0);
    step(s);
    int32_t b = add(s, 8, 4, 0), d = add(s, 9, 4, 0);
    step(s);
    cr_assert_eq(item_of(s, b)->first, 4); /* two full blocks match, but then nothing would give logits */
    cr_assert_eq(item_of(s, d)->first, 8);
    cr_assert(qr_sched_seq(s->sched, b)->n_cached == 4 && qr_sched_seq(s->sched, d)->n_cached == 8);
    cr_assert_eq(qr_sched_seq(s->sched, d)->blocks[1], qr_sched_seq(s->sched, a)->blocks[1]);
    struct qr_kv_stats stats;
    qr_kv_pool_stats(s->pool, &stats);
    cr_assert(stats.query_tokens == 25 && stats.hit_tokens == 12);
    end(s);
}

Test(sched, finds_the_prefix_of_each_candidate_even_when_they_take_turns)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(12, true, &c);
    int32_t a = add(s, 13, 2, 0), b = add(s, 13, 2, 100);
    step(s);
    qr_sched_finish(s->sched, a);
    qr_sched_finish(s->sched, b);
    int32_t filler = add(s, 24, 20, 300);
    step(s);
    struct qr_sched_add first = request(s, 30, 2, 0), second = request(s, 30, 2, 100);
    first.priority = 1;
    int32_t d = add_as(s, first);
    step(s); /* hashed, no room */
    int32_t e = add_as(s, second);
    step(s); /* ranks before: hashed in its place, no room */
    cr_assert(state(s, d) == QR_SEQ_WAITING && state(s, e) == QR_SEQ_WAITING);
    qr_sched_finish(s->sched, filler);
    step(s);
    cr_assert_eq(qr_sched_seq(s->sched, e)->n_cached, 12, "the hashes of another candidate were used");
    end(s);
}

/* Siblings of a group of three over a prompt of 10: blocks 0 and 1 are shared, rows 8 and 9 are in a copy each. */
static void check_siblings(bool prefix_cache)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(32, prefix_cache, &c);
    int32_t seq[3];
    for (int i = 0; i < 3; i++) {
        struct qr_sched_add a = request(s, 10, 6, 0);
        a.group = 7, a.leader = i == 0;
        seq[i] = add_as(s, a);
    }
    step(s);
    cr_assert(s->plan.n_prefill == 1 && item_of(s, seq[0])->n_tokens == 10);
    cr_assert(plan(s));
    cr_assert(s->plan.n_copies == 2 && s->plan.n_decode == 1 && s->plan.n_prefill == 2);
    const struct qr_seq *leader = qr_sched_seq(s->sched, seq[0]);
    for (int i = 1; i < 3; i++) {
        const struct qr_seq *q = qr_sched_seq(s->sched, seq[i]);
        cr_assert(item_of(s, seq[i])->first == 9 && item_of(s, seq[i])->n_tokens == 1 && item_of(s, seq[i])->n_logits == 1);
        cr_assert(q->blocks[0] == leader->blocks[0] && q->blocks[1] == leader->blocks[1] && q->blocks[2] != leader->blocks[2]);
        cr_assert(s->plan.copy[i - 1].src == leader->blocks[2] && s->plan.copy[i - 1].dst == q->blocks[2]);
        cr_assert_eq(q->n_cached, 0);
    }
    cr_assert_eq(qr_kv_refs(s->pool, leader->blocks[0]), 3);
    commit(s);
    qr_sched_finish(s->sched, seq[0]);
    step(s);
    cr_assert_eq(s->plan.n_decode, 2);
    end(s);
}

Test(sched, siblings_share_the_prompt_and_copy_its_last_block)
{
    check_siblings(true);
    check_siblings(false);
}

Test(sched, siblings_of_a_prompt_of_whole_blocks_copy_the_last_one)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(32, true, &c);
    struct qr_sched_add a = request(s, 8, 6, 0), b = request(s, 8, 6, 0);
    a.group = b.group = 0, a.leader = true;
    add_as(s, a);
    int32_t sibling = add_as(s, b);
    step(s);
    cr_assert(plan(s));
    cr_assert(s->plan.n_copies == 1 && item_of(s, sibling)->first == 7);
    commit(s);
    end(s);
}

Test(sched, a_sibling_takes_over_when_the_leader_is_gone)
{
    for (int when = 0; when < 3; when++) { /* before its first step, inside its prompt, after it */
        struct qr_sched_config c = usual();
        c.chunk_tokens_max = 6, c.running_max = 2;
        struct scene *s = begin(32, false, &c);
        int32_t seq[3];
        for (int i = 0; i < 3; i++) {
            struct qr_sched_add a = request(s, 10, 6, 0);
            a.group = 7, a.leader = i == 0;
            seq[i] = add_as(s, a);
        }
        for (int i = 0; i < when; i++)
            step(s);
        qr_sched_finish(s->sched, seq[0]);
        step(s);
        cr_assert(item_of(s, seq[1])->first == 0 && item_of(s, seq[2]) == NULL, "when %d", when);
        step(s);
        cr_assert(plan(s) && s->plan.n_copies == 1 && item_of(s, seq[2])->first == 9, "when %d", when);
        commit(s);
        end(s);
    }
}

Test(sched, prompt_logits_come_once_each_in_chunks_that_fit_the_logit_rows)
{
    struct qr_sched_config c = usual();
    c.logit_rows_max = 10;
    struct scene *s = begin(64, true, &c);
    int32_t first = add(s, 20, 5, 0);
    step(s);
    struct qr_sched_add a = request(s, 20, 3, 0);
    a.prompt_logits = true;
    int32_t seq = add_as(s, a), n_rows = 0;
    while (state(s, seq) != QR_SEQ_DECODE) {
        step(s);
        cr_assert_leq(s->plan.n_logits, 10);
        cr_assert_eq(item_of(s, seq)->n_logits, item_of(s, seq)->n_tokens);
        cr_assert_eq(item_of(s, seq)->first, n_rows);
        n_rows += item_of(s, seq)->n_tokens;
        if (state(s, first) == QR_SEQ_DECODE && qr_sched_seq(s->sched, first)->n_ids == 25)
            qr_sched_finish(s->sched, first), first = seq;
    }
    cr_assert_eq(n_rows, 20);
    cr_assert_eq(qr_sched_seq(s->sched, seq)->n_cached, 0);
    end(s);
}

Test(sched, finish_frees_at_once_in_every_state)
{
    struct qr_sched_config c = usual();
    c.running_max = 2;
    struct scene *s = begin(64, false, &c);
    int32_t decoding = add(s, 5, 9, 0);
    step(s);
    int32_t in_prompt = add(s, 100, 9, 100), queued = add(s, 5, 9, 300);
    step(s);
    cr_assert(state(s, decoding) == QR_SEQ_DECODE && state(s, in_prompt) == QR_SEQ_PREFILL && state(s, queued) == QR_SEQ_WAITING);
    qr_sched_finish(s->sched, queued);
    check(s);
    qr_sched_finish(s->sched, in_prompt);
    check(s);
    struct qr_kv_stats stats;
    qr_kv_pool_stats(s->pool, &stats);
    cr_assert_eq(stats.n_owned, 2);
    qr_sched_finish(s->sched, decoding);
    check(s);
    qr_kv_pool_stats(s->pool, &stats);
    cr_assert_eq(stats.n_owned, 0);
    end(s);
}

Test(sched, tells_how_much_waits_and_since_when)
{
    struct qr_sched_config c = usual();
    c.running_max = 1;
    struct scene *s = begin(64, false, &c);
    struct qr_sched_stats stats;
    qr_sched_stats(s->sched, &stats);
    cr_assert_eq(stats.oldest_arrival_us, -1);
    s->now_us = 500;
    add(s, 5, 9, 0);
    s->now_us = 700;
    add(s, 6, 9, 0);
    add(s, 7, 9, 0);
    step(s);
    qr_sched_stats(s->sched, &stats);
    cr_assert(stats.n_waiting == 2 && stats.n_decode == 1 && stats.waiting_tokens == 13 && stats.oldest_arrival_us == 700);
    cr_assert(qr_sched_seq(s->sched, 0)->arrived_us == 500 && qr_sched_seq(s->sched, 0)->admitted_us == s->now_us);
    end(s);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* glibc's own entry points: this program's malloc counts and passes on. */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static int64_t *n_mallocs(void)
{
    static int64_t n;
    return &n;
}

void *malloc(size_t n)
{
    ++*n_mallocs();
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    ++*n_mallocs();
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    ++*n_mallocs();
    return __libc_realloc(p, n);
}

Test(sched, allocates_nothing_after_it_was_made)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(24, true, &c);
    int64_t before = *n_mallocs();
    for (int round = 0; round < 20; round++) {
        s->n_added = 0;
        int32_t seq[6], n = 0;
        for (; n < 6; n++) {
            struct qr_sched_add a = request(s, 10 + n, 30, n % 2);
            a.group = n < 3 ? round : -1, a.leader = n == 0;
            seq[n] = qr_sched_add(s->sched, &a, &s->err);
        }
        for (int i = 0; i < 25 && qr_sched_plan(s->sched, &s->plan, i); i++) {
            qr_sched_commit(s->sched, &s->plan);
            for (int32_t k = 0; k < qr_plan_items(&s->plan); k++) {
                const struct qr_seq *q = qr_sched_seq(s->sched, s->plan.item[k].seq);
                if (q->n_computed == q->n_ids)
                    qr_sched_push(s->sched, s->plan.item[k].seq, i);
            }
        }
        while (n > 0)
            qr_sched_finish(s->sched, seq[--n]);
    }
    int64_t n_during = *n_mallocs() - before;
    struct qr_sched_stats stats;
    qr_sched_stats(s->sched, &stats);
    cr_assert_gt(stats.n_preempted, 0); /* the scene is not a harmless one */
    cr_assert_gt(before, 0, "the counting malloc is not in place");
    cr_assert_eq(n_during, 0, "%lld allocations", (long long)n_during);
    end(s);
}

/* What a plan must not do, as a yardstick: nanoseconds of reading every id of n sequences once, at best. */
static int64_t reading_ns(int32_t n_ids)
{
    int32_t *ids = qr_alloc((size_t)n_ids, sizeof *ids);
    int64_t best = INT64_MAX;
    memset(ids, 1, (size_t)n_ids * sizeof *ids);
    for (int k = 0; k < 20; k++) {
        volatile uint32_t sink;
        uint32_t sum = 0;
        int64_t began = qr_clock_ns();
        for (int32_t i = 0; i < n_ids; i++)
            sum += (uint32_t)ids[i];
        sink = sum;
        (void)sink;
        int64_t took = qr_clock_ns() - began;
        best = took < best ? took : best;
    }
    qr_free(ids);
    return best;
}

Test(sched, plans_64_running_and_256_waiting_sooner_than_their_ids_are_read)
{
    struct qr_sched_config c = usual();
    c.running_max = 64, c.waiting_max = 256, c.step_tokens_max = 2048, c.chunk_tokens_max = 512, c.logit_rows_max = 64;
    c.ctx_max = IDS_MAX;
    struct scene *s = begin(64 * IDS_MAX / P, true, &c);
    for (int i = 0; i < 320; i++)
        add(s, 100 + i, 2000, 1000 * i);
    while (!(plan(s) && s->plan.n_decode == 64))
        commit(s);
    int64_t plan_ns = INT64_MAX, commit_ns = INT64_MAX;
    for (int i = 0; i < 300; i++) {
        commit(s);
        int64_t began = qr_clock_ns();
        bool any = qr_sched_plan(s->sched, &s->plan, i);
        int64_t took = qr_clock_ns() - began;
        cr_assert(any && s->plan.n_decode == 64);
        plan_ns = took < plan_ns ? took : plan_ns;
        began = qr_clock_ns();
        qr_sched_commit(s->sched, &s->plan);
        took = qr_clock_ns() - began;
        commit_ns = took < commit_ns ? took : commit_ns;
        for (int32_t k = 0; k < 64; k++)
            qr_sched_push(s->sched, s->plan.item[k].seq, 7);
        plan(s);
    }
    const int64_t all_ns = reading_ns(320 * 2000);
    fprintf(stderr, "64 decoding, 256 waiting: plan %.2f us, commit %.2f us (best of 300), reading their ids %.2f us\n", (double)plan_ns / 1e3,
            (double)commit_ns / 1e3, (double)all_ns / 1e3);
    cr_assert_lt(2 * (plan_ns + commit_ns), all_ns);
    end(s);
}
#endif

static int32_t add_of(struct scene *s, uint64_t key, uint64_t user, int32_t weight, int32_t n_prompt)
{
    struct qr_sched_add a = request(s, n_prompt, 1, s->n_added * 300);
    a.client = (struct qr_client){.key = key, .user = user, .weight = weight};
    const int32_t seq = qr_sched_add(s->sched, &a, &s->err);
    cr_assert_geq(seq, 0, "%s", s->err.msg);
    return seq;
}

Test(sched, the_order_that_is_foretold_is_that_in_which_turns_are_taken)
{
    struct qr_sched_config c = usual();
    struct scene *s = begin(256, true, &c);
    int32_t n, foretold[12];
    for (int32_t i = 0; i < 12; i++)
        add_of(s, (uint64_t)(i % 3), (uint64_t)(i % 2), 1 + i % 3, 5 + 7 * i % 11);
    const int32_t *order = qr_sched_order(s->sched, &n);
    cr_assert_eq(n, 12);
    memcpy(foretold, order, sizeof foretold);
    qr_sched_limit_running(s->sched, 1);
    for (int32_t i = 0; i < 12; i++) {
        cr_assert(plan(s));
        cr_assert(s->plan.n_prefill == 1 && s->plan.item[0].seq == foretold[i], "turn %d: %d, not %d", i, s->plan.item[0].seq, foretold[i]);
        qr_sched_commit(s->sched, &s->plan);
        qr_sched_finish(s->sched, foretold[i]);
    }
    end(s);
}

/* Of a long sequence: blocks of its own and twins that it holds, in the pool's blocks. */
Test(sched, a_sequence_holds_twins_of_its_window_alone_however_long_it_gets)
{
    enum { WINDOW = 32, TWINS = 5, N_PROMPT = 900, N_NEW = 300 };
    struct qr_sched_config c = usual();
    struct qr_kv_stats stats;
    c.ctx_max = N_PROMPT + N_NEW, c.window = WINDOW, c.n_twins = TWINS;
    const int32_t runs = c.ctx_max / P, most = runs + TWINS * qr_sched_window_blocks(WINDOW, c.step_tokens_max, P);
    struct scene *s = begin(most, true, &c);
    const int32_t seq = add(s, N_PROMPT, N_NEW, 0);
    const struct qr_seq *q = qr_sched_seq(s->sched, seq);
    while (q->n_computed < N_PROMPT + N_NEW - 1) {
        cr_assert(plan(s));
        const int32_t n_twins = q->n_blocks - q->n_behind, chunk = s->plan.item[0].n_tokens;
        qr_kv_pool_stats(s->pool, &stats);
        cr_assert_eq(stats.n_owned, q->n_blocks + TWINS * n_twins);
        cr_assert_leq(n_twins, (WINDOW + chunk - 1 + P - 1) / P + 2);
        cr_assert(q->state != QR_SEQ_DECODE || n_twins <= WINDOW / P + 2);
        commit(s);
    }
    qr_kv_pool_stats(s->pool, &stats);
    cr_assert(stats.n_owned < 2 * runs && q->n_preempted == 0);
    qr_sched_finish(s->sched, seq);
    struct qr_sched_add whole = request(s, N_PROMPT + N_NEW - 1, 1, 0);
    memcpy(whole.ids, s->ids[0], (size_t)whole.n_prompt * sizeof *whole.ids);
    const int32_t again = add_as(s, whole);
    step(s);
    cr_assert_eq(qr_sched_seq(s->sched, again)->n_cached, (N_PROMPT + N_NEW - 2) / P * P);
    qr_sched_finish(s->sched, again);
    const int32_t part = add(s, N_PROMPT, 1, 0); /* the blocks are there, but what was given back behind them became others */
    step(s);
    cr_assert_eq(qr_sched_seq(s->sched, part)->n_cached, 0);
    end(s);
}
