/* Same request, same bytes: whatever else runs, however prompts are cut, whatever was cached, preempted or shared. */
#include <criterion/criterion.h>

#include "base/json.h"
#include "base/rng.h"
#include "loader/write/make_model.h"
#include "tests/engine/cases.h"
#include "tests/full.h"
#include "tests/temp.h"

#define MODEL "models/stories260K"
#define NEED_DATA()                                                                                                    \
    do {                                                                                                               \
        if (!data_path(MODEL))                                                                                         \
            cr_skip_test("no conformance data (QUIRE_DATA): the engine tests need %s", MODEL);                         \
    } while (0)

/* How the engine may be set up without any answer changing. */
struct way {
    const char *name;
    int32_t n_threads, chunk, step, running, kv_tokens;
    bool prefix_cache;
    enum qr_sched_policy policy;
    int64_t itl_goal_us; /* 0: none. Below what a step takes: chunks follow the clock, and differ from run to run */
    enum guess_kind guesses;
};

static const struct way ways[] = {
    {"default", 2, 256, 512, 64, 0, true, QR_SCHED_MIXED, 0, GUESS_ANY},
    {"one thread", 1, 256, 512, 64, 0, true, QR_SCHED_MIXED, 0, GUESS_NONE},
    {"three threads", 3, 256, 512, 64, 0, true, QR_SCHED_MIXED, 0, GUESS_OWN},
    {"chunks of 1", 2, 1, 64, 64, 0, true, QR_SCHED_MIXED, 0, GUESS_WRONG},
    {"chunks of 7", 2, 7, 64, 16, 0, false, QR_SCHED_MIXED, 0, GUESS_RIGHT},
    {"chunks of 16, no cache", 2, 16, 64, 64, 0, false, QR_SCHED_PREFILL_FIRST, 0, GUESS_ANY},
    {"alternate", 2, 33, 64, 32, 0, true, QR_SCHED_ALTERNATE, 0, GUESS_OWN},
    {"few blocks, preemption", 2, 64, 128, 16, 720, true, QR_SCHED_MIXED, 0, GUESS_ANY},
    {"few blocks, no cache", 2, 64, 128, 16, 640, false, QR_SCHED_MIXED, 0, GUESS_NONE},
    {"an ITL goal of 300 us", 2, 256, 512, 64, 0, true, QR_SCHED_MIXED, 300, GUESS_RIGHT},
    {"an ITL goal nobody meets", 2, 256, 512, 32, 720, true, QR_SCHED_MIXED, 1, GUESS_WRONG},
};

static void check_ways_of(const struct setup *kind, const struct way *list, size_t n_ways)
{
    struct kase *k = qr_alloc(N_CASES, sizeof *k);
    struct flight *want = qr_alloc(N_CASES, sizeof *want), *got = qr_alloc(N_CASES, sizeof *got);
    struct setup setup;
    struct guesser guesser = {.rng = {.seed = 17}};
    int64_t n_preempted = 0, n_hits = 0;
    make_cases(k);
    setup = *kind;
    setup.n_threads = 1;
    run_alone(want, k, &setup);
    guesser_learn_all(&guesser, want, k);
    for (size_t i = 0; i < n_ways; i++) {
        const struct way *way = &list[i];
        struct qr_stats st;
        setup.n_threads = way->n_threads;
        setup.config.chunk_tokens_max = way->chunk;
        setup.config.step_tokens_max = way->step;
        setup.config.running_max = way->running;
        setup.config.kv_tokens = way->kv_tokens;
        setup.config.prefix_cache = way->prefix_cache;
        setup.config.policy = way->policy;
        setup.config.itl_goal_us = way->itl_goal_us;
        setup.config.ctx_max = way->kv_tokens ? 256 : 0;
        setup.config.kv_host_bytes = way->kv_tokens && way->prefix_cache && (kind->n_ranks > 1 || i % 2) ? 1 << 18 : 0;
        guesser_set(&guesser, way->guesses, &setup.config);
        run_crowded(got, k, &setup, 99 + i, way->kv_tokens > 0 && n_preempted == 0, &st);
        compare(want, got, k, way->name);
        n_preempted += st.sched.n_preempted;
        n_hits += st.kv.hit_tokens;
    }
    cr_log_info("isa %s: %lld preemptions, %lld cached tokens", kind->isa ? kind->isa : "best", (long long)n_preempted, (long long)n_hits);
    cr_assert(list[n_ways - 1].kv_tokens == 0 || n_preempted > 0, "the small pool preempted nothing: the test tests less than it says");
    cr_assert(n_hits > 0);
    qr_free(k);
    qr_free(want);
    qr_free(got);
}

static void check_ways(const char *isa, enum qr_compute compute, enum qr_kv_cache kv_cache, size_t n_ways)
{
    struct setup s;
    setup_init(&s, MODEL);
    s.isa = isa;
    s.compute = compute;
    s.kv_cache = kv_cache;
    check_ways_of(&s, ways, n_ways);
}

/* A format with the ways that cut its rows otherwise: who is next, and when, knows nothing of formats. */
static void check_cuts(enum qr_compute compute, enum qr_kv_cache kv_cache)
{
    static const int cut[] = {0, 3, 4, 7}; /* default, chunks of 1 and of 7, few blocks */
    struct way some[QR_COUNT(cut)];
    struct setup s;
    for (int i = 0; i < QR_COUNT(cut); i++)
        some[i] = ways[cut[i]];
    setup_init(&s, MODEL);
    s.compute = compute;
    s.kv_cache = kv_cache;
    if (full_size())
        check_ways_of(&s, ways, QR_COUNT(ways));
    else
        check_ways_of(&s, some, test_scale() < 1 ? 2 : QR_COUNT(some));
}

Test(engine, a_prompt_comes_back_from_the_second_tier_of_the_cache_of_one_rank_and_of_two)
{
    NEED_DATA();
    struct setup s;
    setup_init(&s, MODEL);
    check_second_tier(&s);
    s.n_ranks = 2;
    check_second_tier(&s);
}

Test(engine, answers_do_not_depend_on_the_batch_with_any_format_of_quantized_weights, .timeout = 280)
{
    NEED_DATA();
    struct setup s;
    setup_init(&s, MODEL);
    for (int i = QR_QUANTIZE_INT8; i < QR_QUANTIZE_COUNT; i += test_scale() < 1 ? 3 : 1) {
        s.quantize = (enum qr_quantize)i;
        check_ways_of(&s, full_size() ? ways : ways + i % 2, full_size() ? 2 : 1); /* threads by format: model/test_quantize */
    }
}

Test(engine, answers_do_not_depend_on_batch_chunks_cache_preemption_policy_or_threads, .timeout = 280)
{
    NEED_DATA();
    check_ways(NULL, QR_COMPUTE_AUTO, QR_KV_CACHE_AUTO, test_scale() < 1 ? 4 : QR_COUNT(ways));
}

Test(engine, answers_do_not_depend_on_the_batch_in_bf16, .timeout = 280)
{
    NEED_DATA();
    check_cuts(QR_COMPUTE_BF16, QR_KV_CACHE_AUTO);
}

/* A random model with stories260K's tokenizer. */
static void make_beside_tokenizer(char *dir, enum qr_arch arch, int32_t window)
{
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json"};
    const struct qr_make_options o = {.store = QR_F32, .seed = 7, .std = 0.15};
    struct qr_model_config c = qr_model_config_small(arch);
    struct qr_err err = {0};
    c.n_vocab = 512;
    c.window = window;
    temp_dir_make(dir, "engine");
    cr_assert_eq(qr_model_make(dir, &c, &o, &err), 0, "%s", err.msg);
    for (int i = 0; i < QR_COUNT(files); i++) {
        char to[128], from[4096 + 64];
        snprintf(to, sizeof to, "%s/%s", dir, files[i]);
        cr_assert_not_null(realpath(data_path(MODEL), from));
        strcat(strcat(from, "/"), files[i]);
        cr_assert_eq(symlink(from, to), 0);
    }
}

static void remove_model(const char *dir)
{
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"};
    for (int i = 0; i < QR_COUNT(files); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        unlink(path);
    }
    cr_expect_eq(rmdir(dir), 0);
}

Test(engine, answers_of_a_mixture_of_experts_do_not_depend_on_the_batch_chunks_or_threads, .timeout = 280)
{
    NEED_DATA();
    static const enum qr_arch archs[] = {QR_ARCH_QWEN2_MOE, QR_ARCH_MIXTRAL};
    for (int i = 0; i < QR_COUNT(archs); i += test_scale() < 1 ? 2 : 1) {
        struct setup s;
        char dir[64];
        make_beside_tokenizer(dir, archs[i], 0);
        setup_init(&s, MODEL);
        s.dir = dir;
        check_ways_of(&s, ways, test_scale() < 1 ? 2 : 4);
        remove_model(dir);
    }
}

/* Blocks behind the window go to others meanwhile. A pool of few blocks holds a context of 256 many times then, and runs out of some all the same. */
Test(engine, answers_of_models_with_a_window_do_not_depend_on_batch_chunks_cache_or_preemption, .timeout = 280)
{
    NEED_DATA();
    static const struct {
        enum qr_arch arch;
        int32_t window, few_tokens;
    } models[] = {{QR_ARCH_MISTRAL, 24, 208}, {QR_ARCH_GEMMA3, 24, 400}};
    for (int i = 0; i < QR_COUNT(models); i++) {
        const struct way windowed[] = {
            {"default", 2, 256, 512, 64, 0, true, QR_SCHED_MIXED, 0, GUESS_ANY},
            {"chunks of 7", 2, 7, 16, 16, 0, true, QR_SCHED_MIXED, 0, GUESS_RIGHT},
            {"few blocks, preemption", 2, 16, 16, 16, models[i].few_tokens, true, QR_SCHED_MIXED, 0, GUESS_ANY},
            {"a second tier, beside which blocks have all layers", 2, 16, 16, 16, models[i].few_tokens, true, QR_SCHED_MIXED, 0, GUESS_ANY},
        };
        struct setup s;
        char dir[64];
        make_beside_tokenizer(dir, models[i].arch, models[i].window);
        setup_init(&s, MODEL);
        s.dir = dir;
        check_ways_of(&s, windowed, QR_COUNT(windowed) - (i == 0));
        remove_model(dir);
    }
}

Test(engine, answers_do_not_depend_on_batch_chunks_cache_or_preemption_with_an_int8_cache, .timeout = 280)
{
    NEED_DATA();
    check_cuts(QR_COMPUTE_BF16, QR_KV_CACHE_INT8);
}

/* The level that meets such a cache with 15 bits (tests/kernels/test_attention.c). */
Test(engine, answers_do_not_depend_on_the_batch_with_an_int8_cache_at_level_avx2, .timeout = 280)
{
    NEED_DATA();
    if (!has_level("avx2"))
        cr_skip_test("this processor has no avx2");
    check_ways("avx2", QR_COMPUTE_AUTO, QR_KV_CACHE_INT8, 1);
}

Test(engine, answers_do_not_depend_on_the_batch_on_any_isa_level, .timeout = 280)
{
    NEED_DATA();
    const char *levels[8];
    int32_t n = qr_cpu_levels(levels);
    for (int32_t i = test_scale() < 1 ? 1 : 0; i < n; i += test_scale() < 1 ? 2 : 1)
        check_ways(levels[i], QR_COMPUTE_AUTO, QR_KV_CACHE_AUTO, i == 0 || test_scale() < 1 ? 1 : 3); /* ref, the first, takes its time */
}

/* Ranks as threads, each with one worker: whatever is planned happens on all of them alike. */
Test(engine, answers_of_2_and_4_ranks_do_not_depend_on_batch_chunks_cache_or_preemption, .timeout = 280)
{
    NEED_DATA();
    static const struct way some[] = {
        {"default", 1, 256, 512, 64, 0, true, QR_SCHED_MIXED, 0, GUESS_ANY},
        {"chunks of 7", 1, 7, 64, 16, 0, false, QR_SCHED_MIXED, 0, GUESS_RIGHT},
        {"few blocks, preemption", 1, 64, 128, 16, 560, true, QR_SCHED_MIXED, 0, GUESS_ANY},
    };
    for (int32_t n = 2; n <= (test_scale() < 1 ? 2 : 4); n += 2) {
        struct setup s;
        setup_init(&s, MODEL);
        s.n_ranks = n;
        s.compute = n == 2 ? QR_COMPUTE_AUTO : QR_COMPUTE_BF16;
        s.quantize = n == 2 ? QR_QUANTIZE_NONE : QR_QUANTIZE_INT8;
        check_ways_of(&s, some, n == 2 ? QR_COUNT(some) : 1);
    }
}

Test(engine, a_rank_that_is_lost_ends_all_requests_with_an_error_and_the_engine_says_so)
{
    NEED_DATA();
    for (int busy = 0; busy < 2; busy++) {
        struct setup setup;
        struct world w;
        struct qr_err err = {0};
        struct qr_sampling s;
        struct qr_stats st;
        struct flight *f = qr_alloc(8, sizeof *f);
        const int32_t prompt[] = {5, 6, 7};
        setup_init(&setup, MODEL);
        setup.n_threads = 1;
        setup.n_ranks = 2;
        setup.config.running_max = 4; /* the others wait */
        world_open(&w, &setup);
        qr_sampling_init(&s);
        s.max_tokens = 400;
        s.ignore_eos = true;
        for (int i = 0; busy && i < 8; i++)
            cr_assert_eq(flight_start(&w, &f[i], &s, prompt, 3, 1, &err), 0);
        while (busy && f[0].answer[0].n < 3)
            world_pump(&w, 1000);
        cr_expect(!qr_engine_lost(w.engine, &err));
        qr_comm_abort(&w.comm[1], "enough");
        const int64_t began = qr_clock_us();
        while (!qr_engine_lost(w.engine, &err) && qr_clock_us() - began < 15000000)
            world_pump(&w, 1000);
        cr_expect_str_eq(err.msg, "rank 1 gave up: enough");
        int n_failed = 0; /* all, but that a test that was put aside meanwhile comes when some have all their tokens */
        for (int i = 0; busy && i < 8; i++) {
            flight_finish(&w, &f[i]);
            n_failed += f[i].answer[0].finish == QR_FINISH_ERROR;
            cr_expect(f[i].answer[0].finish == QR_FINISH_ERROR || f[i].answer[0].n == s.max_tokens);
        }
        cr_expect_lt(qr_clock_us() - began, 15000000);
        world_settle(&w, &st);
        cr_expect_eq(st.n_failed, n_failed);
        cr_expect_eq(n_failed > 0, busy);
        cr_expect_eq(flight_start(&w, &f[0], &s, prompt, 3, 1, &err), QR_E_CLOSED);
        world_close(&w);
        qr_free(f);
    }
}

/* The ids behind "key": [...] of one golden line, found by the strict reader. */
static int32_t golden_ids(int32_t *out, const struct qr_json *v, const char *key)
{
    int32_t n = 0;
    for (const struct qr_json *e = qr_json_first(qr_json_find(v, key)); e; e = qr_json_after(e)) {
        int64_t id;
        cr_assert(qr_json_i64(e, &id));
        out[n++] = (int32_t)id;
    }
    return n;
}

static void check_greedy(int32_t n_ranks)
{
    struct world w;
    struct setup setup;
    setup_init(&setup, MODEL);
    setup.n_ranks = n_ranks;
    world_open(&w, &setup);
    FILE *f = fopen(data_path(MODEL "/golden.jsonl"), "r");
    cr_assert(f != NULL);
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    int n_lines = 0;
    struct flight *flight = qr_alloc(1, sizeof *flight);
    for (; (len = getline(&line, &cap, f)) > 0; n_lines++) {
        struct qr_json *v;
        struct qr_err err;
        cr_assert(qr_json_parse(&v, line, (size_t)len, &qr_json_limits_file, &err) == 0, "%s", err.msg);
        int32_t prompt[512], ids[512], n_prompt = golden_ids(prompt, v, "prompt_ids"), n = golden_ids(ids, v, "greedy_ids");
        struct qr_sampling s;
        qr_sampling_init(&s);
        s.temperature = 0;
        s.max_tokens = n;
        s.ignore_eos = true;
        ask(&w, flight, &s, prompt, n_prompt, 1);
        cr_assert(flight->answer[0].n == n && memcmp(flight->answer[0].id, ids, (size_t)n * sizeof ids[0]) == 0, "line %d", n_lines);
        qr_json_free(v);
    }
    cr_assert(n_lines > 0);
    free(line);
    fclose(f);
    qr_free(flight);
    world_close(&w);
}

Test(engine, greedy_ids_equal_the_golden_of_every_prompt_on_one_rank_and_on_two)
{
    NEED_DATA();
    check_greedy(1);
    check_greedy(2);
}

/* The prompt's step gives one token, each other step one more than guesses were right. */
Test(engine, guesses_are_counted_by_place_and_told_with_the_answer)
{
    NEED_DATA();
    struct world w;
    struct setup setup;
    struct qr_sampling s;
    struct qr_stats st;
    struct guesser g = {.rng = {.seed = 3}};
    struct flight *f = qr_alloc(3, sizeof *f);
    const int32_t prompt[3] = {1, 300, 301};
    uint64_t at_place = 0;
    setup_init(&setup, MODEL);
    guesser_set(&g, GUESS_RIGHT, &setup.config);
    world_open(&w, &setup);
    qr_sampling_init(&s);
    s.max_tokens = 60;
    s.ignore_eos = true;
    g.kind = GUESS_NONE;
    ask(&w, &f[0], &s, prompt, 3, 1);
    guesser_learn(&g, prompt, 3, &f[0].answer[0]);
    g.kind = GUESS_RIGHT;
    ask(&w, &f[1], &s, prompt, 3, 1);
    world_settle(&w, &st);
    cr_assert(answers_equal(&f[0].answer[0], &f[1].answer[0]));
    cr_assert(st.n_drafts == 8 && st.n_draft_tokens == 51 && st.n_accepted_tokens == 51, "59 tokens: 7 times 1 + 7, and 1 + 2");
    cr_assert(f[1].answer[0].n_accepted == 51 && f[1].answer[0].n_rejected == 0 && f[0].answer[0].n_accepted == 0);
    cr_assert(st.accepted_at[0] == 8 && st.accepted_at[1] == 8 && st.accepted_at[6] == 7 && st.accepted_at[7] == 0);
    g.kind = GUESS_WRONG;
    ask(&w, &f[2], &s, prompt, 3, 1);
    world_settle(&w, &st);
    for (int i = 0; i < QR_DRAFT_MAX; i++)
        at_place += st.accepted_at[i];
    cr_assert(answers_equal(&f[0].answer[0], &f[2].answer[0]));
    cr_assert(f[2].answer[0].n_accepted == 0 && f[2].answer[0].n_rejected == (int32_t)st.n_draft_tokens - 51 && at_place == 51);
    world_close(&w);
    qr_free(f);
}

Test(engine, prompt_log_probabilities_equal_those_of_generation)
{
    NEED_DATA();
    struct world w;
    struct setup setup;
    setup_init(&setup, MODEL);
    setup.config.chunk_tokens_max = 16;
    world_open(&w, &setup);
    struct flight *a = qr_alloc(1, sizeof *a);
    struct qr_sampling s;
    qr_sampling_init(&s);
    s.temperature = 0;
    s.max_tokens = 60;
    s.ignore_eos = true;
    s.n_logprobs = 2;
    int32_t prompt[80] = {1};
    ask(&w, a, &s, prompt, 1, 1);
    memcpy(prompt + 1, a->answer[0].id, 60 * sizeof prompt[0]);
    s.max_tokens = 0;
    s.n_prompt_logprobs = 2;
    struct qr_request *r = qr_request_new(&s, prompt, 61, 1);
    struct qr_err err;
    struct qr_node got, *node;
    r->arrived_us = qr_clock_us();
    cr_assert(qr_engine_submit(w.engine, r, &err) == 0);
    qr_list_init(&got);
    while (!(node = qr_list_pop_front(&got)))
        qr_engine_wait(w.engine, &got, 100000);
    struct qr_event *ev = QR_CONTAINER(node, struct qr_event, link);
    cr_assert(ev->last && ev->finish == QR_FINISH_LENGTH && ev->n_tokens == 0);
    for (int i = 1; i <= 60; i++) {
        cr_assert(r->prompt_logprobs[i].id == prompt[i]);
        cr_assert(memcmp(&r->prompt_logprobs[i].logprob, &a->answer[0].logprob[i - 1], sizeof(float)) == 0, "position %d", i);
        cr_assert(r->prompt_logprobs[i].n_top == 2);
    }
    cr_assert(r->prompt_logprobs[0].n_top == 0);
    qr_engine_recycle(w.engine, ev);
    qr_request_free(r);
    qr_free(a);
    world_close(&w);
}

Test(engine, cancelled_requests_give_their_blocks_back_in_queue_prefill_and_decode)
{
    NEED_DATA();
    struct world w;
    struct setup setup;
    struct qr_err err;
    struct qr_stats st;
    setup_init(&setup, MODEL);
    setup.config.running_max = 4;
    setup.config.chunk_tokens_max = 4;
    setup.config.step_tokens_max = 16;
    world_open(&w, &setup);
    struct flight *f = qr_alloc(20, sizeof *f);
    struct qr_sampling s;
    qr_sampling_init(&s);
    s.max_tokens = 300;
    s.ignore_eos = true;
    int32_t prompt[100];
    for (int i = 0; i < 100; i++)
        prompt[i] = 5 + i;
    for (int round = 0; round < 30; round++) {
        for (int i = 0; i < 20; i++)
            cr_assert(flight_start(&w, &f[i], &s, prompt, 100, 1 + i % 3, &err) == 0, "%s", err.msg);
        world_pump(&w, round * 300);
        for (int i = 0; i < 20; i++)
            if (f[i].req)
                qr_engine_cancel(w.engine, f[i].req);
        world_settle(&w, &st);
        for (int i = 0; i < 20; i++)
            cr_assert(f[i].done);
    }
    qr_free(f);
    world_close(&w);
}

/* One fills the cache until the two others wait: then these begin together, and grow until the first in rank takes the other's blocks, which has computed two
 * thirds of its prompt. */
Test(engine, a_prompt_that_lost_its_blocks_before_it_was_complete_is_counted)
{
    NEED_DATA();
    struct setup setup;
    struct qr_err err;
    struct qr_stats st = {0};
    setup_init(&setup, MODEL);
    setup.config.ctx_max = 128;
    setup.config.kv_tokens = 128;
    setup.config.chunk_tokens_max = 1;
    setup.config.prefix_cache = false;
    setup.config.itl_goal_us = 0;
    struct flight *f = qr_alloc(3, sizeof *f);
    static const int32_t n_prompt[3] = {113, 1, 96}, max_tokens[3] = {2, 120, 1};
    int32_t prompt[128];
    for (int i = 0; i < 128; i++)
        prompt[i] = 5 + i;
    for (int i = 0; i < 100 && st.sched.n_preempted == 0; i++) { /* the others may come late */
        struct world w;
        world_open(&w, &setup);
        for (int k = 0; k < 3; k++) {
            struct qr_sampling s;
            qr_sampling_init(&s);
            s.max_tokens = max_tokens[k];
            s.ignore_eos = true;
            cr_assert(flight_start(&w, &f[k], &s, prompt, n_prompt[k], 1, &err) == 0, "%s", err.msg);
        }
        world_settle(&w, &st);
        cr_assert_eq(st.prompt_tokens, 113 + 1 + 96);
        cr_assert_eq(st.queue.n, 3);
        world_close(&w);
    }
    cr_assert_gt(st.sched.n_preempted, 0);
    qr_free(f);
}

Test(engine, a_full_queue_refuses_at_once_and_bad_requests_name_the_field)
{
    NEED_DATA();
    struct world w;
    struct setup setup;
    struct qr_err err;
    struct qr_stats st;
    setup_init(&setup, MODEL);
    setup.config.running_max = 2;
    setup.config.waiting_max = 3;
    world_open(&w, &setup);
    struct flight *f = qr_alloc(8, sizeof *f);
    struct qr_sampling s;
    qr_sampling_init(&s);
    s.max_tokens = 400;
    s.ignore_eos = true;
    int32_t prompt[600] = {1};
    int rc = 0;
    for (int tries = 0; tries < 20 && rc == 0; tries++) { /* were the test stopped meanwhile, the first would be at their ends */
        int n = 0;
        while (n < 6 && (rc = flight_start(&w, &f[n], &s, prompt, 1, 1, &err)) == 0)
            n++;
        for (int i = 0; i < n; i++)
            qr_engine_cancel(w.engine, f[i].req);
        world_settle(&w, &st);
        cr_assert(n == 6 || n == 5);
    }
    cr_assert_eq(rc, QR_E_BUSY);
    cr_assert(flight_start(&w, &f[5], &s, prompt, 513, 1, &err) == QR_E_INVALID && strcmp(err.param, "prompt") == 0);
    cr_assert(flight_start(&w, &f[5], &s, prompt, 113, 1, &err) == QR_E_INVALID && strcmp(err.param, "max_tokens") == 0);
    prompt[3] = 512;
    cr_assert(flight_start(&w, &f[5], &s, prompt, 10, 1, &err) == QR_E_INVALID && strcmp(err.param, "prompt") == 0);
    cr_assert(flight_start(&w, &f[5], &s, prompt, 0, 1, &err) == QR_E_INVALID && strcmp(err.param, "prompt") == 0);
    qr_engine_drain(w.engine);
    cr_assert(flight_start(&w, &f[5], &s, prompt, 2, 1, &err) == QR_E_CLOSED);
    f[5] = (struct flight){.req = qr_request_new_embedding(prompt, 2, QR_POOLING_LAST, qr_engine_model(w.engine)->n_embd)};
    f[5].req->user = &f[5];
    f[5].req->continues = true; /* more of what was begun */
    cr_assert(qr_engine_submit(w.engine, f[5].req, &err) == 0, "%s", err.msg);
    world_settle(&w, &st);
    qr_free(f);
    world_close(&w);
}

Test(engine, a_request_that_forbids_every_token_ends_with_an_error_that_says_so)
{
    if (!data_path("models/stories260K"))
        cr_skip_test("no conformance data (QUIRE_DATA)");
    static const int32_t prompt[] = {1, 300, 301}, only[] = {300}, never[] = {2, 300, 300};
    static struct flight f;
    struct setup s;
    struct world w;
    struct qr_err err;
    setup_init(&s, "models/stories260K");
    world_open(&w, &s);
    for (int i = 0; i < 2; i++) {
        struct qr_sampling p;
        qr_sampling_init(&p);
        p.temperature = (float)i;
        p.allowed = only;
        p.n_allowed = 1;
        p.bad = never;
        p.n_bad = QR_COUNT(never);
        cr_assert_eq(flight_start(&w, &f, &p, prompt, QR_COUNT(prompt), 1, &err), 0, "%s", err.msg);
        flight_finish(&w, &f);
        cr_assert_eq(f.answer[0].finish, QR_FINISH_ERROR);
        cr_assert_eq(f.answer[0].n, 1, "300 alone is allowed once");
        cr_assert_eq(f.answer[0].id[0], 300);
    }
    world_close(&w);
}

Test(engine, closing_with_requests_inside_leaks_nothing)
{
    NEED_DATA();
    struct world w;
    struct setup setup;
    struct qr_err err;
    setup_init(&setup, MODEL);
    setup.config.running_max = 3;
    world_open(&w, &setup);
    struct flight *f = qr_alloc(40, sizeof *f);
    struct qr_sampling s;
    qr_sampling_init(&s);
    s.max_tokens = 400;
    s.ignore_eos = true;
    int32_t prompt[2] = {1, 300};
    for (int i = 0; i < 40; i++)
        cr_assert(flight_start(&w, &f[i], &s, prompt, 2, 1 + i % 2, &err) == 0);
    world_pump(&w, 20000);
    world_close(&w); /* the leak checker of the asan build is the judge */
    qr_free(f);
}

Test(engine, a_deadline_ends_a_request_with_an_error)
{
    NEED_DATA();
    struct world w;
    struct setup setup;
    struct qr_err err;
    setup_init(&setup, MODEL);
    world_open(&w, &setup);
    struct flight *f = qr_alloc(1, sizeof *f);
    struct qr_sampling s;
    qr_sampling_init(&s);
    s.max_tokens = 500;
    s.ignore_eos = true;
    int32_t prompt = 1;
    f->req = qr_request_new(&s, &prompt, 1, 1);
    f->req->user = f;
    f->req->arrived_us = qr_clock_us();
    f->req->deadline_us = f->req->arrived_us + 1;
    cr_assert(qr_engine_submit(w.engine, f->req, &err) == 0);
    flight_finish(&w, f);
    cr_assert(f->answer[0].finish == QR_FINISH_ERROR);
    qr_free(f);
    world_close(&w);
}

static void start_by(struct world *w, struct flight *f, int32_t n_choices, int32_t max_tokens, int64_t wait_us)
{
    struct qr_sampling s;
    struct qr_err err = {0};
    const int32_t prompt = 1;
    qr_sampling_init(&s);
    s.max_tokens = max_tokens;
    s.ignore_eos = true;
    memset(f, 0, sizeof *f);
    f->req = qr_request_new(&s, &prompt, 1, n_choices);
    f->req->user = f;
    f->req->arrived_us = qr_clock_us();
    f->req->start_by_us = wait_us > 0 ? f->req->arrived_us + wait_us : 0;
    cr_assert(qr_engine_submit(w->engine, f->req, &err) == 0, "%s", err.msg);
}

/* False when the machine stopped the test or the engine at a moment at which that matters: the first began too late, or had ended when the second did. */
static bool begin_by_times(struct world *w, struct flight *f)
{
    start_by(w, &f[0], 2, 300, 10000); /* its second choice waits longer, behind the first */
    while (f[0].answer[0].n == 0 && !f[0].done)
        world_pump(w, 100000);
    start_by(w, &f[1], 2, 1, 1);
    start_by(w, &f[2], 1, 1, 0);
    start_by(w, &f[3], 1, 1, 60000000);
    flight_finish(w, &f[1]);
    const bool in_time = !f[0].done;
    for (int i = 0; i < 4; i++)
        flight_finish(w, &f[i]);
    return in_time;
}

Test(engine, what_has_to_begin_by_a_time_ends_there_only_if_it_still_waits)
{
    NEED_DATA();
    struct world w;
    struct setup setup;
    setup_init(&setup, MODEL);
    setup.config.running_max = 1;
    world_open(&w, &setup);
    struct flight *f = qr_alloc(4, sizeof *f);
    bool in_time = false;
    for (int tries = 0; tries < 20 && !in_time; tries++)
        in_time = begin_by_times(&w, f);
    cr_assert(in_time);
    cr_assert(f[1].answer[0].finish == QR_FINISH_ERROR && f[1].answer[1].finish == QR_FINISH_ERROR);
    cr_assert(f[1].err.code == QR_E_BUSY && strstr(f[1].err.msg, "was not begun"), "%s", f[1].err.msg);
    cr_assert(f[0].answer[0].n == 300 && f[0].answer[1].n == 300 && f[2].answer[0].n == 1 && f[3].answer[0].n == 1);
    qr_free(f);
    world_close(&w);
}

Test(engine, an_idle_time_is_no_standstill)
{
    NEED_DATA();
    struct world w;
    struct setup setup;
    struct qr_stats st;
    struct qr_sampling s;
    struct qr_err err = {0};
    const int32_t prompt = 1;
    setup_init(&setup, MODEL);
    world_open(&w, &setup);
    struct flight *f = qr_alloc(1, sizeof *f);
    qr_sampling_init(&s);
    s.max_tokens = 20;
    for (int i = 0; i < 20; i++) {
        bool has_work;
        const int64_t before_us = qr_clock_us();
        cr_assert_eq(flight_start(&w, f, &s, &prompt, 1, 1, &err), 0, "%s", err.msg);
        const int64_t progress_us = qr_engine_progress_us(w.engine, &has_work);
        cr_assert(!has_work || progress_us >= before_us, "%lld us before it was asked", (long long)(before_us - progress_us));
        flight_finish(&w, f);
        world_settle(&w, &st);
    }
    qr_free(f);
    world_close(&w);
}

Test(engine, choices_of_one_request_share_the_prompt_and_differ)
{
    NEED_DATA();
    struct world w;
    struct setup setup;
    setup_init(&setup, MODEL);
    world_open(&w, &setup);
    struct flight *f = qr_alloc(2, sizeof *f);
    struct qr_sampling s;
    qr_sampling_init(&s);
    s.max_tokens = 40;
    s.seed = 3;
    s.ignore_eos = true;
    int32_t prompt[70];
    for (int i = 0; i < 70; i++)
        prompt[i] = 10 + i;
    ask(&w, &f[0], &s, prompt, 70, 8);
    ask(&w, &f[1], &s, prompt, 70, 1);
    cr_assert(answers_equal(&f[0].answer[0], &f[1].answer[0]));
    for (int c = 1; c < 8; c++)
        cr_assert(memcmp(f[0].answer[0].id, f[0].answer[c].id, 40 * sizeof(int32_t)) != 0);
    cr_assert(f[1].n_cached == 64, "%d tokens came from the cache, four blocks of 16 were there", f[1].n_cached);
    qr_free(f);
    world_close(&w);
}

/* Choices begin as copies of the block that the prompt ends in: were a copy not complete, the greedy ones would part. */
Test(engine, greedy_choices_of_one_request_are_one_answer_with_every_type_of_cache)
{
    NEED_DATA();
    static const enum qr_kv_cache types[] = {QR_KV_CACHE_F32, QR_KV_CACHE_BF16, QR_KV_CACHE_INT8};
    struct flight *f = qr_alloc(2, sizeof *f);
    int32_t prompt[70];
    for (int i = 0; i < 70; i++)
        prompt[i] = 10 + i;
    for (int t = 0; t < QR_COUNT(types); t++) {
        struct world w;
        struct setup setup;
        struct qr_sampling s;
        setup_init(&setup, MODEL);
        setup.kv_cache = types[t];
        world_open(&w, &setup);
        qr_sampling_init(&s);
        s.temperature = 0;
        s.max_tokens = 40;
        s.n_logprobs = 1;
        s.ignore_eos = true;
        ask(&w, &f[0], &s, prompt, 70, 1);
        ask(&w, &f[1], &s, prompt, 70, 8);
        cr_assert_eq(f[1].n_cached, 64);
        for (int c = 0; c < 8; c++)
            cr_assert(answers_equal(&f[0].answer[0], &f[1].answer[c]), "cache type %d, choice %d", types[t], c);
        world_close(&w);
    }
    qr_free(f);
}

Test(engine, one_that_gets_no_tokenizer_is_closed_and_says_so)
{
    NEED_DATA();
    struct setup s;
    struct qr_err err = {0};
    char dir[1024];
    setup_init(&s, MODEL);
    snprintf(dir, sizeof dir, "%s", data_path(s.model));
    const struct qr_backend_options bo = {.device = s.device, .n_threads = s.n_threads};
    const struct qr_model_options mo = {0};
    struct qr_engine *e = qr_engine_begin(dir, &s.config, &bo, &mo, NULL, NULL);
    cr_assert_eq(qr_engine_finish(e, NULL, &err), QR_E_CLOSED);
    cr_assert_str_eq(err.msg, "there is no tokenizer");
}
