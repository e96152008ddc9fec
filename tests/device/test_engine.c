/* An engine on a device whose memory the host cannot reach answers as one on the processor. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/rng.h"
#include "engine/view.h"
#include "tests/device/device.h"
#include "tests/engine/forced_cases.h"

enum { N_FEW = 6, SEED = 11 };

/* What one case may not say. */
struct never {
    int32_t bad[64], n_bad, allowed[64], n_allowed;
};

/* Prompts that share beginnings, all at once, so that cached blocks and chunks of prompts are met beside decoding rows. */
static void run_without(struct flight *f, const struct setup *setup, const struct never *never)
{
    struct world w;
    struct qr_rng rng = {.seed = SEED};
    struct qr_err err;
    int32_t prompt[90];
    for (int i = 0; i < QR_COUNT(prompt); i++)
        prompt[i] = 3 + (int32_t)qr_rng_below(&rng, 500);
    world_open(&w, setup);
    for (int c = 0; c < N_FEW; c++) {
        struct qr_sampling s;
        qr_sampling_init(&s);
        s.temperature = c % 2 ? 0.8f : 0;
        s.repetition = c % 3 == 2 ? 1.2f : 1;
        s.seed = (uint64_t)c;
        s.max_tokens = 20 + c;
        s.n_logprobs = c % 2 ? 3 : -1;
        s.ignore_eos = true;
        s.bad = never[c].bad, s.n_bad = never[c].n_bad;
        s.allowed = never[c].allowed, s.n_allowed = never[c].n_allowed;
        prompt[40 + c] = 3 + c;
        cr_assert_eq(flight_start(&w, &f[c], &s, prompt, 30 + 10 * c, c == 3 ? 3 : 1, &err), 0, "%s", err.msg);
    }
    for (int c = 0; c < N_FEW; c++)
        flight_finish(&w, &f[c]);
    world_close(&w);
}

static void run(struct flight *f, const struct setup *setup)
{
    static const struct never none[N_FEW];
    run_without(f, setup, none);
}

/* Runs of one to four ids that the answer has, some with the same last id, and others that it has not. Every third case may use its first ids only. */
static void forbid_parts(struct never *never, const struct answer *a, int c)
{
    static const int32_t runs[][2] = {{5, 1}, {3, 2}, {7, 2}, {9, 3}, {12, 4}, {15, 2}};
    never->n_bad = never->n_allowed = 0;
    for (int i = 0; i < QR_COUNT(runs); i++)
        for (int other = 0; other < 2; other++) {
            never->bad[never->n_bad++] = runs[i][1];
            for (int32_t k = 0; k < runs[i][1]; k++)
                never->bad[never->n_bad++] = k + 2 == runs[i][1] ? (a->id[runs[i][0] + k] + other) % 512 : a->id[runs[i][0] + k];
        }
    for (int i = 0; c % 3 == 1 && i < 12; i++)
        never->allowed[never->n_allowed++] = a->id[i];
}

static bool says(const struct answer *a, const int32_t *run)
{
    for (int32_t i = 0; i + run[0] <= a->n; i++)
        if (memcmp(a->id + i, run + 1, (size_t)run[0] * sizeof *run) == 0)
            return true;
    return false;
}

static float bring_near(float got, float want)
{
    cr_assert(fabsf(got - want) <= 0x1p-17f, "a log-probability of %.7f, expected %.7f", (double)got, (double)want);
    return want;
}

/* The processor's kernels sum a row's exponentials within 2^-18 (kernels.h, stretches), those of a device are summed by the sampler: its log-probabilities,
 * numbers below 32 with a rounding of 2^-20, become the processor's. */
static void bring_logprobs_near(struct answer *got, const struct answer *want)
{
    for (int32_t i = 0; i < got->n && i < want->n; i++) {
        got->logprob[i] = bring_near(got->logprob[i], want->logprob[i]);
        got->top[i] = bring_near(got->top[i], want->top[i]);
    }
}

Test(engine, answers_on_a_device_as_on_the_processor)
{
    if (!data_path("models/stories260K"))
        cr_skip_test("no conformance data (QUIRE_DATA)");
    static struct flight want[N_FEW], got[N_FEW];
    struct setup s;
    use_discrete("ref", NULL);
    setup_init(&s, "models/stories260K");
    s.config.chunk_tokens_max = 24;
    s.isa = "ref";
    run(want, &s);
    s.isa = NULL;
    s.device = "cuda";
    run(got, &s);
    for (int c = 0; c < N_FEW; c++)
        for (int k = 0; k < (c == 3 ? 3 : 1); k++) {
            bring_logprobs_near(&got[c].answer[k], &want[c].answer[k]);
            cr_assert(answers_equal(&want[c].answer[k], &got[c].answer[k]), "case %d choice %d", c, k);
        }
}

Test(engine, bad_words_and_allowed_ids_hold_on_a_device_that_draws_ahead_as_on_the_processor)
{
    if (!data_path("models/stories260K"))
        cr_skip_test("no conformance data (QUIRE_DATA)");
    static struct flight free_of[N_FEW], want[N_FEW], got[N_FEW];
    static struct never never[N_FEW];
    struct setup s;
    use_discrete("ref", NULL);
    setup_init(&s, "models/stories260K");
    s.isa = "ref";
    run(free_of, &s);
    for (int c = 0; c < N_FEW; c++)
        forbid_parts(&never[c], &free_of[c].answer[0], c);
    run_without(want, &s, never);
    s.isa = NULL;
    s.device = "cuda";
    run_without(got, &s, never);
    for (int c = 0; c < N_FEW; c++) {
        const struct answer *a = &want[c].answer[0];
        bring_logprobs_near(&got[c].answer[0], a);
        cr_assert(answers_equal(a, &got[c].answer[0]), "case %d", c);
        cr_assert(memcmp(a->id, free_of[c].answer[0].id, (size_t)a->n * sizeof a->id[0]) != 0, "case %d: nothing was forbidden", c);
        for (int32_t at = 0; at < never[c].n_bad; at += 1 + never[c].bad[at])
            cr_assert_not(says(a, never[c].bad + at), "case %d says run %d", c, at);
        for (int32_t i = 0; i < a->n && never[c].n_allowed > 0; i++) {
            bool allowed = false;
            for (int32_t k = 0; k < never[c].n_allowed; k++)
                allowed = allowed || never[c].allowed[k] == a->id[i];
            cr_assert(allowed, "case %d: id %d", c, a->id[i]);
        }
    }
}

Test(engine, a_prompt_comes_back_from_the_second_tier_of_a_devices_cache)
{
    if (!data_path("models/stories260K"))
        cr_skip_test("no conformance data (QUIRE_DATA)");
    struct setup s;
    use_discrete("ref", NULL);
    setup_init(&s, "models/stories260K");
    s.device = "cuda";
    check_second_tier(&s);
}

Test(engine, of_a_device_that_draws_ahead_every_token_is_in_a_record_and_looks_add_up)
{
    if (!data_path("models/stories260K"))
        cr_skip_test("no conformance data (QUIRE_DATA)");
    static struct flight f[4];
    static struct qr_step_record r[400];
    const int32_t prompt[30] = {1, 7};
    struct setup setup;
    struct world w;
    struct qr_sampling s;
    struct qr_stats st;
    struct qr_err err;
    uint64_t at = 0;
    int64_t n_prompt = 0, n_decode = 0, end_us = 0;
    int32_t n_running = 0;
    use_discrete("ref", NULL);
    setup_init(&setup, "models/stories260K");
    setup.device = "cuda";
    setup.config.prefix_cache = false;
    world_open(&w, &setup);
    qr_sampling_init(&s);
    s.max_tokens = 50;
    s.ignore_eos = true;
    for (int c = 0; c < 4; c++)
        cr_assert_eq(flight_start(&w, &f[c], &s, prompt, 30, 1, &err), 0);
    struct qr_view *view = qr_engine_view(w.engine);
    for (int i = 0; i < 40; i++) {
        const struct qr_look *l;
        qr_engine_look(w.engine);
        while (!(l = qr_view_take(view)))
            usleep(100);
        cr_assert_eq(l->n_free + l->n_cached + l->n_used + l->n_shared, l->n_blocks);
        int32_t n_blocks = 0;
        for (int c = 0; c < 4; c++)
            if (f[c].req && f[c].req->look.number == l->number)
                n_blocks += f[c].req->look.n_blocks;
        cr_assert(n_blocks == l->n_used && l->n_shared == 0);
        n_running += n_blocks > 0;
        qr_view_done(view);
        world_pump(&w, 1000);
    }
    world_settle(&w, &st);
    const int32_t n = qr_view_steps(view, &at, r, QR_COUNT(r));
    for (int32_t i = 0; i < n; i++) {
        cr_assert_geq(r[i].begun_us, end_us);
        end_us = r[i].begun_us + r[i].us;
        n_prompt += r[i].n_prompt;
        n_decode += r[i].n_decode;
    }
    cr_assert(n_prompt == 4 * 30 && n_decode >= 4 * 49 && n_running > 0); /* a step launched ahead has a row more of what has just ended */
    world_close(&w);
}

/* A step is launched before the ids of the one before it are known: that shows in nothing, whatever ends when, is cancelled, preempted, shared or cut. */
Test(engine, answers_on_a_device_that_draws_do_not_depend_on_what_else_runs, .timeout = 280)
{
    if (!data_path("models/stories260K"))
        cr_skip_test("no conformance data (QUIRE_DATA)");
    static const struct {
        const char *name;
        int32_t chunk, step, running, kv_tokens;
        bool prefix_cache;
        enum qr_sched_policy policy;
        enum guess_kind guesses;
    } ways[] = {{"few blocks, preemption", 64, 128, 16, 560, true, QR_SCHED_MIXED, GUESS_NONE},
                {"some guesses", 64, 128, 16, 560, true, QR_SCHED_MIXED, GUESS_ANY},
                {"chunks of 7", 7, 64, 16, 0, false, QR_SCHED_MIXED, GUESS_OWN},
                {"alternate", 33, 64, 32, 0, true, QR_SCHED_ALTERNATE, GUESS_RIGHT}};
    struct kase *k = qr_alloc(N_CASES, sizeof *k);
    struct flight *want = qr_alloc(N_CASES, sizeof *want), *got = qr_alloc(N_CASES, sizeof *got);
    const int n_ways = test_scale() < 1 ? 2 : QR_COUNT(ways);
    struct guesser guesser = {.rng = {.seed = 23}};
    struct setup s;
    int64_t n_preempted = 0;
    const char *levels[8], *best = levels[qr_cpu_levels(levels) - 1];
    use_discrete(best, NULL);
    make_cases(k);
    setup_init(&s, "models/stories260K");
    s.isa = best;
    run_alone(want, k, &s);
    guesser_learn_all(&guesser, want, k);
    s.isa = NULL;
    s.device = "cuda";
    for (int i = 0; i < n_ways; i++) {
        struct qr_stats st;
        s.config.chunk_tokens_max = ways[i].chunk;
        s.config.step_tokens_max = ways[i].step;
        s.config.running_max = ways[i].running;
        s.config.kv_tokens = ways[i].kv_tokens;
        s.config.prefix_cache = ways[i].prefix_cache;
        s.config.policy = ways[i].policy;
        s.config.ctx_max = ways[i].kv_tokens ? 256 : 0;
        s.config.kv_host_bytes = ways[i].kv_tokens ? 1 << 18 : 0;
        guesser_set(&guesser, ways[i].guesses, &s.config);
        run_crowded(got, k, &s, 7 + (uint64_t)i, ways[i].kv_tokens > 0, &st);
        for (int c = 0; c < N_CASES; c++)
            for (int32_t n = 0; n < k[c].n_choices; n++)
                bring_logprobs_near(&got[c].answer[n], &want[c].answer[n]);
        compare(want, got, k, ways[i].name);
        n_preempted += st.sched.n_preempted;
    }
    cr_assert(n_preempted > 0, "the small pool preempted nothing: the test tests less than it says");
    qr_free(k);
    qr_free(want);
    qr_free(got);
}

/* Vectors of inputs of several lengths and poolings, side by side and beside sequences that decode, or each by itself. */
static void embed_all(struct world *w, double (*out)[64], bool together)
{
    enum { N_STREAMS = 3 };
    static struct flight f[N_FEW], streams[N_STREAMS];
    static const enum qr_pooling pooling[] = {QR_POOLING_LAST, QR_POOLING_MEAN, QR_POOLING_CLS};
    struct qr_sampling s;
    struct qr_err err;
    int32_t prompt[90];
    qr_sampling_init(&s);
    s.max_tokens = 30;
    s.ignore_eos = true;
    for (int i = 0; i < QR_COUNT(prompt); i++)
        prompt[i] = 3 + 7 * i % 500;
    for (int i = 0; together && i < N_STREAMS; i++)
        cr_assert_eq(flight_start(w, &streams[i], &s, prompt, 10 + i, 1, &err), 0, "%s", err.msg);
    for (int i = 0; i < N_FEW; i++) {
        prompt[20] = 3 + i;
        flight_embed(w, &f[i], pooling[i % 3], prompt, 1 + 17 * i, out[i]);
        if (!together)
            flight_finish(w, &f[i]);
    }
    for (int i = 0; i < N_FEW; i++) {
        flight_finish(w, &f[i]);
        cr_assert_eq(f[i].answer[0].finish, QR_FINISH_LENGTH);
    }
    for (int i = 0; together && i < N_STREAMS; i++)
        flight_finish(w, &streams[i]);
}

static void embed_with(struct setup *s, double (*out)[64], bool together)
{
    struct world w;
    s->config.chunk_tokens_max = together ? 7 : 256;
    s->config.prefix_cache = together;
    world_open(&w, s);
    embed_all(&w, out, together);
    world_close(&w);
}

Test(engine, embeddings_on_a_device_are_those_of_the_processor_whatever_runs_beside)
{
    if (!data_path("models/stories260K"))
        cr_skip_test("no conformance data (QUIRE_DATA)");
    static double want[N_FEW][64], got[N_FEW][64];
    const char *levels[8], *best = levels[qr_cpu_levels(levels) - 1];
    struct setup s;
    use_discrete(best, NULL);
    setup_init(&s, "models/stories260K");
    s.isa = best;
    embed_with(&s, want, false);
    s.isa = NULL;
    s.device = "cuda";
    embed_with(&s, got, true);
    for (int i = 0; i < N_FEW; i++)
        cr_assert_eq(memcmp(want[i], got[i], sizeof want[i]), 0, "input %d", i);
}

Test(engine, what_a_grammar_forces_or_tells_is_the_same_on_a_device_that_draws_ahead)
{
    if (!data_path("models/stories260K"))
        cr_skip_test("no conformance data (QUIRE_DATA)");
    const char *levels[8], *best = levels[qr_cpu_levels(levels) - 1];
    struct setup s;
    struct qr_stats off, on;
    use_discrete(best, NULL);
    setup_init(&s, "models/stories260K");
    s.device = "cuda";
    expect_forced_same(&s, true, &off, &on);
    cr_expect_gt(on.n_accepted_tokens, 0);
}

Test(engine, slots_for_adapters_are_refused_on_a_device_that_computes_none)
{
    if (!data_path("models/stories260K"))
        cr_skip_test("no conformance data (QUIRE_DATA)");
    struct qr_tokenizer *tokenizer;
    struct qr_engine *e;
    struct qr_engine_config config;
    struct qr_err err = {0};
    const struct qr_backend_options bo = {.device = "cuda", .n_threads = 1};
    const struct qr_model_options mo = {0};
    char dir[1024];
    snprintf(dir, sizeof dir, "%s", data_path("models/stories260K"));
    use_discrete("ref", NULL);
    qr_engine_config_init(&config);
    config.lora_slots = 1;
    cr_assert_eq(qr_tokenizer_open(&tokenizer, dir, &err), 0, "%s", err.msg);
    cr_expect_eq(qr_engine_open(&e, dir, &config, &bo, &mo, tokenizer, NULL, NULL, &err), QR_E_UNSUPPORTED);
    cr_expect(strstr(err.msg, "adapters are not computed on ") && strstr(err.msg, "use --device cpu"), "%s", err.msg);
    qr_tokenizer_close(tokenizer);
}
