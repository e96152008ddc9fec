/* Public traces through the real scheduler and pool in virtual time. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/sim.h"
#include "tests/full.h"

/* QUIRE_TEST_SCALE shortens the traces; under a sanitizer a tenth is enough. `whole` with QUIRE_FULL=1. */
static int32_t scaled(int32_t usual, int32_t whole)
{
    const int32_t n = full_size() ? whole : usual;
    double scale = test_scale();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    scale = scale < 0.1 ? scale : 0.1;
#endif
    return scale < 1 ? (int32_t)(n * scale) : n;
}

static void read_entries(struct qr_trace *t, const char *name, int32_t n)
{
    const char *data = getenv("QUIRE_DATA");
    char path[1024];
    struct qr_err err;
    snprintf(path, sizeof path, "%s/traces/%s", data ? data : "../shared/data", name);
    if (access(path, R_OK) != 0)
        cr_skip_test("%s is not there: set QUIRE_DATA to the conformance data", path);
    int rc = qr_trace_read(t, path, n, &err);
    cr_assert_eq(rc, 0, "%s", err.msg);
}

static void read_trace(struct qr_trace *t, const char *name, int32_t usual, int32_t whole)
{
    read_entries(t, name, scaled(usual, whole));
}

/* A large accelerator: 8 ms for the weights, 20,000 prompt tokens a second beyond that, 0.2 ms for a thousand rows of context. */
static struct qr_sim_config usual(void)
{
    return (struct qr_sim_config){
        .sched = {.running_max = 256, .waiting_max = 512, .step_tokens_max = 2048, .chunk_tokens_max = 512, .logit_rows_max = 256,
                  .ctx_max = 16384, .preempt_max = 4, .watermark_blocks = 64, .policy = QR_SCHED_MIXED},
        .n_blocks = 16384,
        .block_tokens = 16,
        .prefix_cache = true,
        .cost = {.base_us = 8000, .token_us = 50, .context_us = 200},
        .check_every = 5000,
    };
}

static void print(const char *name, const struct qr_sim_result *r)
{
    fprintf(stderr,
            "%s: finished %d (skipped %d) steps %lld rows %lld virtual %.0f s busy %.0f s | waste %.3f %% (plain %.3f %%) | running <= %d "
            "waiting <= %d blocks <= %d | preempted %lld (one <= %d) recomputed %lld evicted %lld | wait ms p50 %.1f p99 %.1f max %.0f "
            "ttft p50 %.0f p99 %.0f tpot p50 %.1f p99 %.1f | hit %.2f %% of at most %.2f %% | plan+commit %.2f us\n",
            name, r->n_finished, r->n_skipped, (long long)r->n_steps, (long long)r->n_rows, r->virtual_s, r->busy_s, r->waste * 100,
            r->waste_plain * 100, r->running_most, r->waiting_most, r->blocks_most, (long long)r->n_preempted, r->preempted_most,
            (long long)r->n_recomputed, (long long)r->n_evicted, r->wait_ms.p50, r->wait_ms.p99, r->wait_ms.max, r->ttft_ms.p50,
            r->ttft_ms.p99, r->tpot_ms.p50, r->tpot_ms.p99, r->hit_rate * 100, r->hit_rate_most * 100, r->plan_us_mean);
}

/* Of this thread: what it waits for a processor is nobody's work. */
static int64_t processor_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct qr_sim_result run_timed(const char *name, const struct qr_trace *t, const struct qr_sim_config *c, int64_t (*clock_ns)(void))
{
    struct qr_sim_result r;
    struct qr_err err;
    int rc = qr_sim_run(&r, t, c, clock_ns, &err);
    cr_assert_eq(rc, 0, "%s", err.msg);
    print(name, &r);
    cr_assert_null(r.broken, "%s", r.broken);
    cr_assert_eq(r.n_finished + r.n_skipped, t->n);
    cr_assert_leq(r.preempted_most, c->sched.preempt_max);
    return r;
}

static struct qr_sim_result run(const char *name, const struct qr_trace *t, const struct qr_sim_config *c)
{
    return run_timed(name, t, c, NULL);
}

Test(sim, wastes_at_most_one_percent_on_the_azure_conversations_and_nobody_starves)
{
    struct qr_trace t;
    read_trace(&t, "azure_llm_2023_conv.csv", 19366, 19366);
    struct qr_sim_config c = usual();
    struct qr_sim_result r = run_timed("azure conv", &t, &c, processor_ns);
    cr_assert_eq(r.n_skipped, 0);
    cr_assert_leq(r.waste, 0.01);
    cr_assert_leq(r.wait_ms.max, 5000); /* the load is feasible: a burst waits for seconds at most, and in its order */
    c.prefix_cache = false;
    struct qr_sim_result off = run_timed("azure conv, no prefix cache", &t, &c, processor_ns);
    double share = (r.plan_us_mean - off.plan_us_mean) / (off.busy_s * 1e6 / (double)off.n_steps);
    fprintf(stderr, "a prefix cache that finds nothing costs %.4f %% of a step\n", share * 100);
    cr_assert_leq(share, 0.005);
    qr_trace_release(&t);
}

Test(sim, ends_every_azure_conversation_with_a_quarter_of_the_cache)
{
    struct qr_trace t;
    read_trace(&t, "azure_llm_2023_conv.csv", 6000, 6000);
    static const char *name[3] = {"azure conv, few blocks, mixed", "azure conv, few blocks, prefill first", "azure conv, few blocks, alternate"};
    for (int i = 0; i < 3; i++) {
        struct qr_sim_config c = usual();
        c.n_blocks = 1500, c.sched.watermark_blocks = 8, c.sched.policy = (enum qr_sched_policy)i;
        struct qr_sim_result r = run(name[i], &t, &c);
        cr_assert_eq(r.n_skipped, 0);
        cr_assert_gt(r.n_preempted, 0);
        cr_assert_leq(r.wait_ms.max, r.virtual_s * 1000);
    }
    qr_trace_release(&t);
}

Test(sim, finds_the_shared_prefixes_of_the_mooncake_conversations)
{
    struct qr_trace t;
    read_trace(&t, "mooncake_conversation.jsonl", 2400, 6000);
    struct qr_sim_config c = usual();
    c.sched.ctx_max = 131072, c.sched.step_tokens_max = 8192, c.sched.chunk_tokens_max = 4096;
    c.sched.waiting_max = 4096;
    c.cost.token_us = 5, c.cost.context_us = 20; /* a node of eight of them: the trace is what such a node was given */
    c.n_blocks = 1 << 17;
    c.check_every = 20000;
    struct qr_sim_result small = run("mooncake conv, 2M tokens", &t, &c);
    cr_assert_leq(small.hit_rate, small.hit_rate_most);
    c.n_blocks = 1 << 20;
    struct qr_sim_result large = run("mooncake conv, 16M tokens", &t, &c);
    cr_assert(large.hit_rate >= small.hit_rate && large.hit_rate <= large.hit_rate_most);
    cr_assert_geq(large.hit_rate, 0.85 * large.hit_rate_most);
    t.n = t.n < 1152 ? t.n : 1152; /* as much as fits: nothing is evicted, so everything that could be found is */
    struct qr_sim_result all = run("mooncake conv, the first tenth", &t, &c);
    cr_assert_eq(all.n_evicted, 0);
    cr_assert_float_eq(all.hit_rate, all.hit_rate_most, 0.001); /* but for equal prompts computed side by side */
    qr_trace_release(&t);
}

/* More requests than are served in time, of three keys in turn: all have some waiting until one has none left. */
Test(sim, keys_that_wait_are_served_by_weight_within_the_bound_and_in_order_of_arrival_they_are_not)
{
    struct qr_trace t;
    read_entries(&t, "azure_llm_2023_conv.csv", 600); /* fewer end before order of arrival can be so unfair */
    struct qr_sim_config c = usual();
    c.sched.running_max = 4, c.sched.waiting_max = 3000, c.sched.ctx_max = 2048, c.n_blocks = 700, c.sched.watermark_blocks = 8;
    c.n_keys = 3, c.weight[0] = 1, c.weight[1] = 2, c.weight[2] = 5;
    for (int32_t i = 0; i < t.n; i++)
        t.entry[i].arrival_us = 0;
    for (int way = 0; way < 2; way++) {
        c.one_client = way == 1;
        struct qr_sim_result r = run(way == 0 ? "azure conv, three keys" : "azure conv, three keys as one", &t, &c);
        fprintf(stderr, "served %.0f %.0f %.0f, apart by %.0f at most of %.0f\n", r.served[0], r.served[1], r.served[2], r.unfair_most, r.unfair_bound);
        cr_assert_eq(r.unfair_most <= r.unfair_bound, way == 0);
    }
    qr_trace_release(&t);
}

Test(sim, gives_the_same_schedule_every_time)
{
    struct qr_trace t;
    read_trace(&t, "azure_llm_2023_code.csv", 2000, 2000);
    struct qr_sim_config c = usual();
    c.n_blocks = 2000;
    struct qr_sim_result a, b;
    struct qr_err err;
    cr_assert_eq(qr_sim_run(&a, &t, &c, NULL, &err), 0);
    cr_assert_eq(qr_sim_run(&b, &t, &c, NULL, &err), 0);
    cr_assert_eq(memcmp(&a, &b, sizeof a), 0);
    qr_trace_release(&t);
}
