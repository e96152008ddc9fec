/* A model whose layers all have windows: a long sequence in a cache of one window and one step, against a model by itself, which keeps all. */
#include <criterion/criterion.h>

#include "base/rng.h"
#include "loader/write/make_model.h"
#include "model/alone.h"
#include "scheduler/sched.h"
#include "tests/engine/harness.h"
#include "tests/temp.h"

#define MODEL "models/stories260K"

enum { WINDOW = 40, CHUNK = 24, N_PROMPT = 330, N_NEW = 90, P = 16 };

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

static void make_model(char *dir)
{
    const struct qr_make_options o = {.store = QR_F32, .seed = 11, .std = 0.15};
    struct qr_model_config c = qr_model_config_small(QR_ARCH_MISTRAL);
    struct qr_err err = {0};
    char from[4096 + 64], to[128];
    c.n_vocab = 512;
    c.window = WINDOW;
    temp_dir_make(dir, "windows");
    cr_assert_eq(qr_model_make(dir, &c, &o, &err), 0, "%s", err.msg);
    cr_assert_not_null(realpath(data_path(MODEL), from));
    strcat(from, "/tokenizer.json");
    snprintf(to, sizeof to, "%s/tokenizer.json", dir);
    cr_assert_eq(symlink(from, to), 0);
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

Test(windows, a_long_sequence_needs_the_blocks_of_a_window_and_a_step_and_says_the_same)
{
    if (!data_path(MODEL))
        cr_skip_test("no conformance data (QUIRE_DATA): the engine tests need %s", MODEL);
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
    make_model(dir);
    answer_alone(ids, dir);
    setup_init(&s, MODEL);
    s.dir = dir;
    s.guesses = true;
    s.config.step_tokens_max = s.config.chunk_tokens_max = s.config.running_max = CHUNK;
    s.config.ctx_max = N_PROMPT + N_NEW;
    s.config.kv_tokens = qr_sched_window_blocks(WINDOW, CHUNK, P) * P;
    cr_assert_lt(s.config.kv_tokens, WINDOW + CHUNK + 3 * P);
    qr_sampling_init(&greedy);
    greedy.temperature = 0;
    greedy.max_tokens = N_NEW;
    greedy.ignore_eos = true;
    world_open(&w, &s);
    cr_expect_eq(qr_engine_limits(w.engine)->ctx_max, N_PROMPT + N_NEW);
    ask(&w, &first, &greedy, ids, N_PROMPT, 1);
    greedy.max_tokens = 1;
    ask(&w, &again, &greedy, ids, N_PROMPT + N_NEW - 1, 1); /* its blocks but for the last ones went to itself: nothing is found, nothing is wrong */
    world_settle(&w, &st);
    world_close(&w);
    cr_expect_eq(first.answer[0].n, N_NEW);
    cr_expect_eq(memcmp(first.answer[0].id, ids + N_PROMPT, N_NEW * sizeof *ids), 0);
    cr_expect_eq(again.n_cached, 0);
    cr_expect_eq(again.answer[0].id[0], ids[N_PROMPT + N_NEW - 1]);
    cr_expect_eq(st.sched.n_preempted, 0);
    remove_model(dir);
}

Test(windows, a_prefix_is_found_while_all_of_it_is_cached_and_holds_the_last_window_only)
{
    if (!data_path(MODEL))
        cr_skip_test("no conformance data (QUIRE_DATA): the engine tests need %s", MODEL);
    static struct flight first, again;
    int32_t ids[N_PROMPT];
    char dir[64];
    struct qr_rng rng = {.seed = 3};
    struct qr_sampling greedy;
    struct qr_stats st;
    struct setup s;
    struct world w;
    for (int32_t i = 0; i < N_PROMPT; i++)
        ids[i] = 3 + (int32_t)qr_rng_below(&rng, 500);
    make_model(dir);
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
    world_settle(&w, &st);
    world_close(&w);
    cr_expect_eq(again.n_cached, N_PROMPT / P * P);
    for (int i = 0; i < 3; i++)
        cr_expect(answers_equal(&first.answer[0], &again.answer[i]), "choice %d", i);
    remove_model(dir);
}
