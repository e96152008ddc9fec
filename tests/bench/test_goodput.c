/* Goodput under overload, in virtual time: a public trace at a machine's capacity and at twice that, with goals and without. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/bench/sim.h"
#include "tests/full.h"

/* Machines on which SmolLM2-135M decodes one sequence: tiles (AMX) and AVX2, as docs/performance.md has them. */
static const struct machine {
    const char *name;
    struct qr_sim_cost cost;
} machines[] = {{"tiles", {.base_us = 5000, .token_us = 110, .context_us = 1000}}, {"avx2", {.base_us = 9000, .token_us = 1500, .context_us = 1000}}};

struct scene {
    struct qr_trace whole;  /* lengths and times as recorded */
    struct qr_trace trace;
    const struct machine *machine;
    double seconds, capacity; /* capacity: requests a second */
};

static void scene_open(struct scene *s, const char *name, const struct machine *m, double seconds)
{
    const char *data = getenv("QUIRE_DATA");
    char path[1024];
    struct qr_err err;
    snprintf(path, sizeof path, "%s/traces/%s", data ? data : "../shared/data", name);
    if (access(path, R_OK) != 0)
        cr_skip_test("%s is not there: set QUIRE_DATA to the conformance data", path);
    *s = (struct scene){.machine = m, .seconds = seconds};
    cr_assert_eq(qr_trace_read(&s->whole, path, INT32_MAX, &err), 0, "%s", err.msg);
    s->trace = s->whole;
    s->trace.entry = qr_alloc((size_t)s->whole.n, sizeof *s->trace.entry);
}

static void scene_close(struct scene *s)
{
    qr_free(s->trace.entry);
    qr_trace_release(&s->whole);
}

/* Requests of `seconds` at so many a second, at the trace's distances; rate 0: n of them at once. Lengths are capped to the context. */
static void arrive_at(struct scene *s, double rate, int32_t n)
{
    const double trace_rate = s->whole.n / ((double)s->whole.entry[s->whole.n - 1].arrival_us * 1e-6), scale = rate > 0 ? trace_rate / rate : 0;
    s->trace.n = 0;
    for (int32_t i = 0; i < s->whole.n && (rate > 0 || i < n); i++) {
        struct qr_trace_entry e = s->whole.entry[i];
        e.arrival_us = (int64_t)((double)e.arrival_us * scale);
        if ((double)e.arrival_us > s->seconds * 1e6)
            break;
        e.n_prompt = e.n_prompt < 7000 ? e.n_prompt : 7000;
        e.n_new = e.n_new < 1000 ? e.n_new : 1000;
        s->trace.entry[s->trace.n++] = e;
    }
}

static struct qr_sim_config config_of(const struct scene *s, int64_t itl_goal_us, int64_t ttft_goal_us)
{
    const struct qr_sim_cost *c = &s->machine->cost;
    const double alone_us = c->base_us + c->token_us + c->context_us; /* a token of one sequence, at a thousand rows */
    return (struct qr_sim_config){
        .sched = {.running_max = 64, .waiting_max = 256, .step_tokens_max = 512, .chunk_tokens_max = 256, .logit_rows_max = 64, .ctx_max = 8192,
                  .preempt_max = 4, .watermark_blocks = 80, .policy = QR_SCHED_MIXED},
        .n_blocks = 8192, .block_tokens = 16, .prefix_cache = true, .cost = *c, .paced = true,
        .itl_goal_us = itl_goal_us ? itl_goal_us : (int64_t)(2 * alone_us), .ttft_goal_us = ttft_goal_us,
        .good_ttft_us = 4e6, .good_tpot_us = 2 * alone_us};
}

static struct qr_sim_result run(const struct scene *s, const struct qr_sim_config *c, const char *name)
{
    struct qr_sim_result r;
    struct qr_err err;
    cr_assert_eq(qr_sim_run(&r, &s->trace, c, NULL, &err), 0);
    cr_assert_null(r.broken, "%s", r.broken);
    cr_assert_eq(r.n_finished + r.n_skipped + r.n_refused + r.n_shed, s->trace.n);
    fprintf(stderr, "%s, %s: %d came, %d refused, %d shed, %d good (%.3f/s) | ttft s p50 %.2f p99 %.2f | tpot ms p50 %.1f p90 %.1f goal %.1f | "
            "running <= %d | predictions miss by %.1f %%\n", s->machine->name, name, s->trace.n, r.n_refused, r.n_shed, r.n_good, r.n_good / s->seconds,
            r.ttft_ms.p50 * 1e-3, r.ttft_ms.p99 * 1e-3, r.tpot_ms.p50, r.tpot_ms.p90, c->good_tpot_us * 1e-3, r.running_most, 100 * r.missed);
    return r;
}

/* As fast as the machine can: what a long queue gets done. */
static double capacity_of(struct scene *s)
{
    struct qr_sim_config c = config_of(s, 90000, 0);
    c.sched.waiting_max = 1024;
    arrive_at(s, 0, 400);
    const struct qr_sim_result r = run(s, &c, "a full queue");
    return r.n_finished / r.virtual_s;
}

/* Goodput of a load, of so many times the capacity; also that of 1x, which comes first. */
static double good_share(struct scene *s, const struct qr_sim_config *c, const char *name, int32_t *good)
{
    arrive_at(s, s->capacity, 0);
    const struct qr_sim_result one = run(s, c, name);
    arrive_at(s, 2 * s->capacity, 0);
    const struct qr_sim_result two = run(s, c, name);
    *good = two.n_good;
    return (double)two.n_good / one.n_good;
}

/* What the issue asks of the real server, on its cost model: nine tenths. Without the goals the same load loses most answers. */
Test(goodput, at_twice_the_capacity_is_nine_tenths_of_that_at_once)
{
    for (int i = 0; i < QR_COUNT(machines); i++) {
        struct scene s;
        int32_t with, without;
        scene_open(&s, "azure_llm_2023_conv.csv", &machines[i], 600);
        s.capacity = capacity_of(&s);
        const struct qr_sim_config goals = config_of(&s, 0, 4000000), usual = config_of(&s, 90000, 0);
        const double kept = good_share(&s, &goals, "both goals", &with), lost = good_share(&s, &usual, "no goal but 90 ms", &without);
        fprintf(stderr, "%s: goodput at 2x is %.2f of that at 1x, without goals %.2f; %d good answers against %d\n", s.machine->name, kept, lost, with,
                without);
        cr_assert_geq(kept, 0.9);
        cr_assert_gt(with, 3 * without);
        scene_close(&s);
    }
}

Test(goodput, what_is_let_in_is_begun_in_time)
{
    struct scene s;
    scene_open(&s, "azure_llm_2023_conv.csv", &machines[0], 300);
    s.capacity = capacity_of(&s);
    arrive_at(&s, 2 * s.capacity, 0);
    const struct qr_sim_config c = config_of(&s, 0, 4000000);
    const struct qr_sim_result r = run(&s, &c, "both goals, 2.0x");
    cr_assert_leq(r.ttft_ms.p90, 4000);
    cr_assert_leq(r.ttft_ms.p99, 5000); /* patience, and what begun prompts took longer than predicted */
    cr_assert_leq(r.n_shed * 4, r.n_refused); /* most hear at once that they would wait in vain */
    cr_assert_leq(r.missed, 0.05);
    scene_close(&s);
}
