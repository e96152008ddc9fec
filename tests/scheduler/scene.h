/* scene.h - a small scheduler on its pool, and the steps of an engine without a model, for tests of single rules. */
#ifndef QR_TESTS_SCHEDULER_SCENE_H
#define QR_TESTS_SCHEDULER_SCENE_H

#include <criterion/criterion.h>

#include "base/mem.h"
#include "kvcache/kv_prefix.h"
#include "scheduler/sched.h"

enum { P = 4, IDS_MAX = 4096, SEQS_MAX = 512 };

struct scene {
    struct qr_kv_pool *pool;
    struct qr_sched *sched;
    struct qr_plan plan;
    int32_t ids[SEQS_MAX][IDS_MAX];
    int32_t n_added, next_token;
    int64_t now_us;
    struct qr_err err;
};

static inline struct qr_sched_config usual(void)
{
    return (struct qr_sched_config){
        .running_max = 8,
        .waiting_max = 16,
        .step_tokens_max = 64,
        .chunk_tokens_max = 32,
        .logit_rows_max = 16,
        .ctx_max = 256,
        .preempt_max = 4,
        .policy = QR_SCHED_MIXED,
    };
}

static inline struct scene *begin_tiers(int32_t n_blocks, int32_t n_host, bool prefix_cache, const struct qr_sched_config *config)
{
    struct scene *s = qr_alloc(1, sizeof *s);
    struct qr_hash_secret secret;
    qr_hash_secret_seeded(&secret, 3);
    s->pool = qr_kv_pool_new_tiers(n_blocks, n_host, P, prefix_cache, &secret);
    int rc = qr_sched_new(&s->sched, config, s->pool, &s->err);
    cr_assert_eq(rc, 0, "%s", s->err.msg);
    qr_plan_init(&s->plan, config);
    return s;
}

static inline struct scene *begin(int32_t n_blocks, bool prefix_cache, const struct qr_sched_config *config)
{
    return begin_tiers(n_blocks, 0, prefix_cache, config);
}

static inline void end(struct scene *s)
{
    qr_plan_release(&s->plan);
    qr_sched_free(s->sched);
    cr_assert_null(qr_kv_pool_check(s->pool));
    qr_kv_pool_free(s->pool);
    qr_free(s);
}

static inline struct qr_sched_add request(struct scene *s, int32_t n_prompt, int32_t new_max, int32_t first_token)
{
    int32_t *ids = s->ids[s->n_added++];
    for (int32_t i = 0; i < n_prompt; i++)
        ids[i] = first_token + i;
    return (struct qr_sched_add){
        .id = (uint64_t)s->n_added, .ids = ids, .n_prompt = n_prompt, .new_max = new_max, .group = -1, .now_us = s->now_us};
}

static inline int32_t add(struct scene *s, int32_t n_prompt, int32_t new_max, int32_t first_token)
{
    struct qr_sched_add a = request(s, n_prompt, new_max, first_token);
    int32_t seq = qr_sched_add(s->sched, &a, &s->err);
    cr_assert_geq(seq, 0, "%s", s->err.msg);
    return seq;
}

static inline int32_t add_as(struct scene *s, struct qr_sched_add a)
{
    int32_t seq = qr_sched_add(s->sched, &a, &s->err);
    cr_assert_geq(seq, 0, "%s", s->err.msg);
    return seq;
}

static inline void check(struct scene *s)
{
    const char *broken = qr_sched_check(s->sched);
    cr_assert_null(broken, "%s", broken);
}

static inline bool plan(struct scene *s)
{
    s->now_us += 1000;
    bool any = qr_sched_plan(s->sched, &s->plan, s->now_us);
    check(s);
    return any;
}

/* Commits; every sequence that gave its last row gets a token. Nobody is finished here. */
static inline void commit(struct scene *s)
{
    qr_sched_commit(s->sched, &s->plan);
    for (int32_t k = 0; k < qr_plan_items(&s->plan); k++) {
        const struct qr_seq *q = qr_sched_seq(s->sched, s->plan.item[k].seq);
        if (q->n_computed == q->n_ids && q->n_ids < q->n_prompt + q->new_max)
            qr_sched_push(s->sched, s->plan.item[k].seq, 1000 + s->next_token++);
    }
    check(s);
}

static inline void step(struct scene *s)
{
    cr_assert(plan(s));
    commit(s);
}

static inline const struct qr_plan_item *item_of(const struct scene *s, int32_t seq)
{
    for (int32_t k = 0; k < qr_plan_items(&s->plan); k++) {
        if (s->plan.item[k].seq == seq)
            return &s->plan.item[k];
    }
    return NULL;
}

static inline enum qr_seq_state state(const struct scene *s, int32_t seq)
{
    return qr_sched_seq(s->sched, seq)->state;
}

#endif
