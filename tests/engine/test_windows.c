/* Models whose layers all have windows, or five of six: a long sequence in the cache that it holds at once, against a model by itself, which keeps all. */
#include <criterion/criterion.h>

#include "base/rng.h"
#include "engine/pins.h"
#include "loader/write/make_model.h"
#include "model/alone.h"
#include "scheduler/sched.h"
#include "tests/engine/harness.h"
#include "tests/temp.h"

#define MODEL "models/stories260K"

enum { WINDOW = 40, CHUNK = 24, N_PROMPT = 330, N_NEW = 90, BEGIN = 208, P = 16 };

/* Of a greedy answer, what comes of computing whole prompt and answer in one sequence that keeps all its keys and values. */
static void answer_alone(int32_t *ids, const char *dir)
{
    const struct qr_backend_options bo = {.device = "cpu", .n_threads = 1, .step_rows_max = N_PROMPT};
    const struct qr_model_options mo = {.ctx_max = N_PROMPT + N_NEW};
    struct qr_backend *be;
    struct qr_model *m;
    struct qr_alone a;
    struct qr_err err = {0};
    cr_assert_eq(qr_backend_open(&be, &bo, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_model_open(&m, dir, be, &mo, &err), 0, "%s", err.msg);
    qr_alone_init(&a, m, be, NULL, N_PROMPT + N_NEW, N_PROMPT, 1, false);
    for (int32_t n = 0, end = N_PROMPT; end < N_PROMPT + N_NEW; n = end++) {
        const struct qr_tensor logits = qr_alone_step(&a, ids, n, end - n);
        const float *x = logits.data;
        int32_t best = 0;
        for (int32_t i = 1; i < logits.shape[1]; i++)
            best = x[i] > x[best] ? i : best;
        ids[end] = best;
    }
    qr_alone_release(&a);
    qr_model_close(m);
    qr_backend_close(be);
}

/* Each so manieth of 6 layers has no window; every 0: all of 2 have it. */
static void make_model_of(char *dir, enum qr_arch arch, int32_t every)
{
    const struct qr_make_options o = {.store = QR_F32, .seed = 11, .std = 0.15};
    struct qr_model_config c = qr_model_config_small(arch);
    struct qr_err err = {0};
    char from[4096 + 64], to[128];
    c.n_vocab = 512;
    c.window = WINDOW;
    c.window_first_layer = 0;
    c.unwindowed[0] = 0;
    if (every > 0)
        qr_layers_every(c.unwindowed, c.n_layers = 6, every);
    temp_dir_make(dir, "windows");
    cr_assert_eq(qr_model_make(dir, &c, &o, &err), 0, "%s", err.msg);
    cr_assert_not_null(realpath(data_path(MODEL), from));
    strcat(from, "/tokenizer.json");
    snprintf(to, sizeof to, "%s/tokenizer.json", dir);
    cr_assert_eq(symlink(from, to), 0);
}

static void make_model(char *dir, bool mixed)
{
    make_model_of(dir, mixed ? QR_ARCH_GEMMA3 : QR_ARCH_MISTRAL, mixed ? 6 : 0);
}

static void remove_model(const char *dir)
{
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
    for (int i = 0; i < QR_COUNT(files); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        unlink(path);
    }
    cr_expect_eq(rmdir(dir), 0);
}

/* What a sequence of the whole context holds is all the cache there is. */
static void check_long(bool mixed)
{
    static struct flight first, again;
    int32_t ids[N_PROMPT + N_NEW];
    char dir[64];
    struct qr_rng rng = {.seed = 2};
    struct qr_sampling greedy;
    struct qr_stats st;
    struct setup s;
    struct world w;
    for (int32_t i = 0; i < N_PROMPT; i++)
        ids[i] = 3 + (int32_t)qr_rng_below(&rng, 500);
    make_model(dir, mixed);
    answer_alone(ids, dir);
    setup_init(&s, MODEL);
    s.dir = dir;
    s.guesses = true;
    s.config.step_tokens_max = s.config.chunk_tokens_max = s.config.running_max = CHUNK;
    s.config.ctx_max = N_PROMPT + N_NEW;
    const int32_t window_blocks = qr_sched_window_blocks(WINDOW, CHUNK, P), n_whole = (N_PROMPT + N_NEW + P - 1) / P;
    s.config.kv_tokens = (mixed ? (n_whole + 5 * window_blocks + 5) / 6 : window_blocks) * P;
    cr_assert_lt(window_blocks * P, WINDOW + CHUNK + 3 * P);
    qr_sampling_init(&greedy);
    greedy.temperature = 0;
    greedy.max_tokens = N_NEW;
    greedy.ignore_eos = true;
    world_open(&w, &s);
    const struct qr_engine_limits *l = qr_engine_limits(w.engine);
    cr_expect_eq(l->ctx_max, N_PROMPT + N_NEW);
    cr_expect_eq(l->seq_blocks, mixed ? n_whole + 5 * window_blocks : window_blocks);
    cr_expect(l->n_twins == 5 * mixed && l->n_blocks - l->seq_blocks < 6, "%d twins, %d blocks", l->n_twins, l->n_blocks);
    ask(&w, &first, &greedy, ids, N_PROMPT, 1);
    greedy.max_tokens = 1;
    ask(&w, &again, &greedy, ids, N_PROMPT + N_NEW - 1, 1); /* its blocks but for the last ones went to itself: nothing is found, nothing is wrong */
    world_settle(&w, &st);
    world_close(&w);
    cr_expect_eq(first.answer[0].n, N_NEW);
    cr_expect_eq(memcmp(first.answer[0].id, ids + N_PROMPT, N_NEW * sizeof *ids), 0);
    cr_expect_eq(again.n_cached, mixed ? (N_PROMPT + N_NEW - 2) / P * P : 0);
    cr_expect_eq(again.answer[0].id[0], ids[N_PROMPT + N_NEW - 1]);
    cr_expect_eq(st.sched.n_preempted, 0);
    remove_model(dir);
}

Test(windows, a_long_sequence_needs_the_blocks_of_a_window_and_a_step_and_says_the_same)
{
    if (!data_path(MODEL))
        cr_skip_test("no conformance data (QUIRE_DATA): the engine tests need %s", MODEL);
    check_long(false);
    check_long(true);
}

/* Also the beginning of it, whose window was left long ago: with other ids behind, and alone. */
static void check_prefix(bool mixed)
{
    static struct flight first, again, begun, other, other_alone;
    int32_t ids[N_PROMPT], changed[N_PROMPT];
    char dir[64];
    struct qr_rng rng = {.seed = 3};
    struct qr_sampling greedy;
    struct qr_stats st;
    struct setup s;
    struct world w;
    for (int32_t i = 0; i < N_PROMPT; i++) {
        ids[i] = 3 + (int32_t)qr_rng_below(&rng, 500);
        changed[i] = i < BEGIN ? ids[i] : 3 + (int32_t)qr_rng_below(&rng, 500);
    }
    make_model(dir, mixed);
    setup_init(&s, MODEL);
    s.dir = dir;
    s.guesses = true;
    qr_sampling_init(&greedy);
    greedy.temperature = 0;
    greedy.max_tokens = 20;
    greedy.n_logprobs = 1;
    greedy.ignore_eos = true;
    world_open(&w, &s);
    ask(&w, &first, &greedy, ids, N_PROMPT, 1);
    ask(&w, &again, &greedy, ids, N_PROMPT, 3);
    ask(&w, &other, &greedy, changed, N_PROMPT, 1);
    ask(&w, &begun, &greedy, ids, BEGIN, 1);
    world_settle(&w, &st);
    world_close(&w);
    s.config.prefix_cache = false;
    world_open(&w, &s);
    ask(&w, &other_alone, &greedy, changed, N_PROMPT, 1);
    world_close(&w);
    cr_expect_eq(again.n_cached, N_PROMPT / P * P);
    cr_expect_eq(other.n_cached, BEGIN / P * P);
    cr_expect_eq(begun.n_cached, (BEGIN - 1) / P * P);
    cr_expect(answers_equal(&other.answer[0], &other_alone.answer[0]));
    cr_expect_eq(other_alone.n_cached, 0);
    for (int i = 0; i < 3; i++)
        cr_expect(answers_equal(&first.answer[0], &again.answer[i]), "choice %d", i);
    remove_model(dir);
}

Test(windows, a_prefix_is_found_while_all_of_it_is_cached_and_holds_the_last_window_only)
{
    if (!data_path(MODEL))
        cr_skip_test("no conformance data (QUIRE_DATA): the engine tests need %s", MODEL);
    check_prefix(false);
    check_prefix(true);
}

/* Other prompts fill the cache many times; a pin has the twins that a hit of all of it needs. */
Test(windows, a_pinned_prompt_of_a_model_that_mixes_windows_is_found_however_much_came_since)
{
    if (!data_path(MODEL))
        cr_skip_test("no conformance data (QUIRE_DATA): the engine tests need %s", MODEL);
    static struct flight pin, others[6], again;
    struct qr_pin pins[QR_PINS_MAX];
    int32_t ids[N_PROMPT];
    char dir[64];
    struct qr_rng rng = {.seed = 4};
    struct qr_sampling greedy;
    struct qr_stats st;
    struct qr_err err = {0};
    struct setup s;
    struct world w;
    make_model(dir, true);
    setup_init(&s, MODEL);
    s.dir = dir;
    s.config.step_tokens_max = s.config.chunk_tokens_max = 64;
    s.config.ctx_max = 352;
    s.config.kv_tokens = 512;
    s.config.pinned_share = 0.9;
    qr_sampling_init(&greedy);
    greedy.temperature = 0;
    greedy.max_tokens = 1;
    world_open(&w, &s);
    const struct qr_engine_limits *l = qr_engine_limits(w.engine);
    cr_assert_eq(l->n_twins, 5);
    for (int32_t i = 0; i < 6; i++) {
        for (int32_t k = 0; k < N_PROMPT; k++)
            ids[k] = 3 + (int32_t)qr_rng_below(&rng, 500);
        if (i == 0) {
            cr_assert_eq(flight_pin(&w, &pin, ids, N_PROMPT, 0, &err), 0, "%s", err.msg);
            flight_finish(&w, &pin);
        }
        const int32_t first = ids[0];
        ids[0] = i;
        ask(&w, &others[i], &greedy, ids, N_PROMPT, 1);
        ids[0] = first;
        cr_expect_eq(others[i].n_cached, 0);
    }
    cr_assert_eq(qr_engine_pins(w.engine, pins), 1);
    cr_expect_eq(pins[0].n_blocks, N_PROMPT / P + 5 * ((WINDOW - 1 + P - 1) / P));
    rng = (struct qr_rng){.seed = 4};
    for (int32_t k = 0; k < N_PROMPT; k++)
        ids[k] = 3 + (int32_t)qr_rng_below(&rng, 500);
    ask(&w, &again, &greedy, ids, N_PROMPT, 1);
    cr_expect_eq(again.n_cached, N_PROMPT / P * P);
    world_unpin(&w, true);
    world_settle(&w, &st);
    cr_expect_gt(st.kv.n_evicted, l->n_blocks);
    world_close(&w);
    remove_model(dir);
}

/* A second tier, though one of no block, keeps the cache whole. */
Test(windows, families_that_mix_windows_say_the_same_with_a_cache_that_is_split_and_with_a_whole_one)
{
    if (!data_path(MODEL))
        cr_skip_test("no conformance data (QUIRE_DATA): the engine tests need %s", MODEL);
    static const struct {
        enum qr_arch arch;
        int32_t every;
        enum qr_kv_cache kv;
    } cases[] = {{QR_ARCH_GEMMA2, 2, QR_KV_CACHE_AUTO}, {QR_ARCH_GEMMA3, 6, QR_KV_CACHE_INT8}, {QR_ARCH_GPT_OSS, 2, QR_KV_CACHE_AUTO},
                 {QR_ARCH_OLMO3, 4, QR_KV_CACHE_BF16}, {QR_ARCH_QWEN3, 3, QR_KV_CACHE_INT8}};
    int32_t ids[N_PROMPT];
    struct qr_rng rng = {.seed = 6};
    struct qr_sampling s;
    for (int32_t i = 0; i < N_PROMPT; i++)
        ids[i] = 3 + (int32_t)qr_rng_below(&rng, 500);
    qr_sampling_init(&s);
    s.seed = 5;
    s.max_tokens = 40;
    s.n_logprobs = 1;
    s.ignore_eos = true;
    for (int i = 0; i < QR_COUNT(cases); i++) {
        static struct flight f[2];
        char dir[64];
        make_model_of(dir, cases[i].arch, cases[i].every);
        for (int whole = 0; whole < 2; whole++) {
            struct setup setup;
            struct world w;
            setup_init(&setup, MODEL);
            setup.dir = dir;
            setup.kv_cache = cases[i].kv;
            setup.config.chunk_tokens_max = CHUNK;
            setup.config.kv_host_bytes = whole;
            world_open(&w, &setup);
            cr_expect_eq(qr_engine_limits(w.engine)->n_twins > 0, !whole, "case %d", i);
            ask(&w, &f[whole], &s, ids, N_PROMPT, 2);
            world_close(&w);
        }
        for (int k = 0; k < 2; k++)
            cr_expect(answers_equal(&f[0].answer[k], &f[1].answer[k]), "case %d, choice %d", i, k);
        remove_model(dir);
    }
}
