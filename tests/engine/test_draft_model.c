/* A draft model alone, beside a real scheduler: its guesses are its own greedy continuation, however its rows came to be computed. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/rng.h"
#include "engine/draft/model_internal.h"
#include "kvcache/kv_prefix.h"
#include "model/alone.h"
#include "tests/engine/cases.h"

#define MODEL "models/stories260K"
#define OTHER "models/rand-qwen2" /* of the same vocabulary */
#define NEED_DATA()                                                                                                    \
    do {                                                                                                               \
        if (!data_path(MODEL))                                                                                         \
            cr_skip_test("no conformance data (QUIRE_DATA): a draft model is %s", MODEL);                              \
    } while (0)

enum { RUNNING = 4, SEQS = 8, CTX = 160, ROOM = 6 };

struct bench {
    struct qr_backend *be;
    struct qr_tokenizer *tokenizer;
    struct qr_engine_config config;
    struct qr_engine_limits limits;
    struct qr_draft_model *draft;
    struct qr_model *model; /* the draft model, opened once more, */
    struct qr_alone alone;  /* and computing one sequence */
    struct qr_kv_pool *pool;
    struct qr_sched *sched;
    struct qr_plan plan;
    struct qr_rng rng;
    int32_t ids[SEQS][CTX];
    int32_t index[SEQS];
    int32_t n_vocab; /* of the model that is guessed for */
    int64_t n_guesses;
};

static void bench_open(struct bench *b, int32_t n_blocks, int32_t block_tokens, int32_t n_vocab, uint64_t seed)
{
    const struct qr_backend_options bo = {.device = "cpu", .n_threads = 1};
    const struct qr_model_options mo = {0};
    struct qr_hash_secret secret;
    struct qr_err err = {0};
    static char dir[1024];
    snprintf(dir, sizeof dir, "%s", data_path(MODEL));
    *b = (struct bench){.rng = {.seed = seed}, .n_vocab = n_vocab};
    qr_engine_config_init(&b->config);
    b->config.running_max = RUNNING;
    b->config.chunk_tokens_max = 24;
    b->config.block_tokens = block_tokens;
    b->config.draft_model = dir;
    cr_assert_eq(qr_backend_open(&b->be, &bo, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_tokenizer_open(&b->tokenizer, dir, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_draft_model_open(&b->draft, &b->config, b->be, &mo, b->tokenizer, &err), 0, "%s", err.msg);
    b->limits = (struct qr_engine_limits){.ctx_max = CTX, .n_blocks = n_blocks, .block_tokens = block_tokens, .vocab = n_vocab};
    qr_draft_model_begin(b->draft, &b->limits, SEQS + RUNNING);
    cr_assert_eq(qr_model_open(&b->model, dir, b->be, &mo, &err), 0, "%s", err.msg);
    qr_alone_init(&b->alone, b->model, b->be, NULL, CTX, CTX, 1, false);
    qr_hash_secret_seeded(&secret, 7);
    b->pool = qr_kv_pool_new(n_blocks, block_tokens, true, &secret);
    const struct qr_sched_config sc = {.running_max = RUNNING, .waiting_max = SEQS, .step_tokens_max = 48, .chunk_tokens_max = 24, .logit_rows_max = 48,
                                       .ctx_max = CTX, .preempt_max = 4, .watermark_blocks = 0};
    cr_assert_eq(qr_sched_new(&b->sched, &sc, b->pool, &err), 0, "%s", err.msg);
    qr_plan_init(&b->plan, &sc);
}

static void bench_close(struct bench *b)
{
    qr_plan_release(&b->plan);
    qr_sched_free(b->sched);
    qr_kv_pool_free(b->pool);
    qr_alone_release(&b->alone);
    qr_model_close(b->model);
    qr_draft_model_close(b->draft);
    qr_tokenizer_close(b->tokenizer);
    qr_backend_close(b->be);
}

/* What the model says next, and how likely, of rows [first, n), those before being the ones of the last call. */
static int32_t says(struct bench *b, const int32_t *ids, int32_t first, int32_t n, double *p)
{
    const struct qr_tensor t = qr_alone_step(&b->alone, ids, first, n - first);
    const float *x = t.data;
    int32_t best = 0;
    double sum = 0;
    for (int32_t i = 1; i < 512; i++)
        best = x[i] > x[best] ? i : best;
    for (int32_t i = 0; i < 512; i++)
        sum += exp((double)x[i] - (double)x[best]);
    *p = 1 / sum;
    return best;
}

static void check(struct bench *b, const struct qr_draft_ask *ask)
{
    int32_t ids[CTX], n = ask->seq->n_ids;
    memcpy(ids, ask->seq->ids, (size_t)n * sizeof *ids);
    for (int32_t i = 0; i < ask->n; i++, n++) {
        double p;
        const int32_t id = says(b, ids, i == 0 ? 0 : n - 1, n, &p);
        cr_assert_eq(ask->ids[i], id, "guess %d behind %d ids: %d, expected %d", i, ask->seq->n_ids, ask->ids[i], id);
        cr_assert(ask->p[i] > 0 && ask->p[i] < 1 && id < b->n_vocab);
        cr_assert_float_eq(b->draft->track[ask->index].p[i], p, 1e-4, "guess %d: %g, expected %g", i, (double)b->draft->track[ask->index].p[i], p);
        ids[n] = id;
        b->n_guesses++;
    }
}

/* Guesses for all that decode, each with the room that it has. */
static void guess(struct bench *b, double step_us)
{
    struct qr_draft_ask ask[RUNNING];
    const struct qr_draft_price price = {.step_us = step_us, .n_seqs = 1};
    int32_t n = 0, n_decode;
    const int32_t *list = qr_sched_list(b->sched, QR_SEQ_DECODE, &n_decode);
    for (int32_t i = 0; i < n_decode; i++) {
        const struct qr_seq *seq = qr_sched_seq(b->sched, list[i]);
        const int32_t room = seq->n_prompt + seq->new_max - seq->n_ids - 1;
        if (seq->n_computed < seq->n_ids && qr_rng_below(&b->rng, 3) == 0)
            ask[n++] = (struct qr_draft_ask){.index = list[i], .seq = seq, .room = room < ROOM ? room : ROOM};
    }
    qr_draft_model_fill(b->draft, NULL, ask, n, &price);
    for (int32_t i = 0; i < n; i++) {
        check(b, &ask[i]);
        qr_sched_draft(b->sched, ask[i].index, ask[i].ids, (int32_t)qr_rng_below(&b->rng, (uint32_t)ask[i].n + 1));
    }
}

/* The next id of a sequence: mostly what the model says, so that guesses are right and wrong. */
static int32_t next_id(struct bench *b, const struct qr_seq *seq, uint32_t strays)
{
    double p;
    return qr_rng_below(&b->rng, 100) < strays ? 3 + (int32_t)qr_rng_below(&b->rng, 500) : says(b, seq->ids, 0, seq->n_ids, &p);
}

/* Computes one step of all, but for the model: what it would say is what the draft model would. */
static void step(struct bench *b, uint32_t strays)
{
    guess(b, 0);
    if (!qr_sched_plan(b->sched, &b->plan, 0))
        return;
    qr_draft_model_follow(b->draft, &b->plan, b->sched);
    qr_sched_commit(b->sched, &b->plan);
    for (int32_t i = 0; i < qr_plan_items(&b->plan); i++) {
        const struct qr_plan_item *item = &b->plan.item[i];
        const struct qr_seq *seq = qr_sched_seq(b->sched, item->seq);
        bool more = seq->n_computed == seq->n_ids;
        while (more && seq->n_ids < seq->n_prompt + seq->new_max)
            more = qr_sched_push(b->sched, item->seq, next_id(b, seq, strays));
        if (seq->n_ids == seq->n_prompt + seq->new_max)
            qr_sched_finish(b->sched, item->seq);
    }
    const char *broken = qr_sched_check(b->sched);
    cr_assert_null(broken, "%s", broken);
}

/* Prompts that begin alike, some the same for three choices. */
static void add_all(struct bench *b)
{
    for (int32_t i = 0; i < SEQS; i++) {
        struct qr_err err;
        const bool sibling = i % 4 > 0 && i < 8;
        const int32_t n_prompt = sibling ? 21 : 5 + (int32_t)qr_rng_below(&b->rng, 60);
        for (int32_t k = 0; k < n_prompt; k++)
            b->ids[i][k] = k < 40 ? 3 + (k * 37) % 500 : 3 + (int32_t)qr_rng_below(&b->rng, 500);
        const struct qr_sched_add add = {.ids = b->ids[i], .n_prompt = n_prompt, .new_max = 18 + 4 * (i % 5), .group = sibling ? i / 4 : -1,
                                         .leader = sibling && i % 4 == 1};
        cr_assert_geq(qr_sched_add(b->sched, &add, &err), 0, "%s", err.msg);
    }
}

static void check_guesses(int32_t n_blocks, int32_t block_tokens, int32_t n_vocab, uint32_t strays, bool preempts)
{
    struct bench b;
    struct qr_sched_stats st;
    struct qr_kv_stats kv;
    struct qr_draft_model_stats ds;
    bench_open(&b, n_blocks, block_tokens, n_vocab, (uint64_t)n_blocks * 100 + strays);
    for (int32_t turn = 0; turn < 2; turn++) { /* the second one finds blocks of the first */
        add_all(&b);
        do {
            step(&b, strays);
            qr_sched_stats(b.sched, &st);
        } while (st.n_waiting + st.n_prefill + st.n_decode > 0);
    }
    qr_kv_pool_stats(b.pool, &kv);
    qr_draft_model_stats(b.draft, &ds);
    cr_log_info("%lld guesses, %lld of %lld right, %lld rows in %lld forwards, %lld preemptions, %lld tokens found", (long long)b.n_guesses,
                (long long)ds.n_right, (long long)ds.n_judged, (long long)ds.n_rows, (long long)ds.n_forwards, (long long)st.n_preempted,
                (long long)kv.hit_tokens);
    cr_assert_gt(b.n_guesses, 70);
    cr_assert_eq(st.n_preempted > 0, preempts);
    cr_assert_gt(kv.hit_tokens, 0);
    cr_assert(strays > 0 || ds.n_right == ds.n_judged, "%lld of %lld guesses were right", (long long)ds.n_right, (long long)ds.n_judged);
    cr_assert(strays == 0 || (ds.n_right > 0 && ds.n_right < ds.n_judged));
    bench_close(&b);
}

Test(draft_model, its_guesses_are_its_greedy_continuation_and_all_right_where_it_is_the_model)
{
    NEED_DATA();
    check_guesses(64, 16, 512, 0, false);
}

Test(draft_model, its_guesses_are_its_greedy_continuation_behind_wrong_ones_too)
{
    NEED_DATA();
    check_guesses(60, 8, 380, 60, false);
}

Test(draft_model, its_guesses_are_its_greedy_continuation_with_preemption_and_blocks_given_out_again)
{
    NEED_DATA();
    check_guesses(22, 8, 512, 50, true);
}

Test(draft_model, it_computes_nothing_where_guesses_cannot_pay)
{
    NEED_DATA();
    struct bench b;
    struct qr_draft_model_stats before, after;
    bench_open(&b, 64, 16, 512, 3);
    add_all(&b);
    for (int i = 0; i < 20; i++)
        step(&b, 30);
    qr_draft_model_stats(b.draft, &before);
    for (int i = 0; i < 20; i++)
        guess(&b, 0.001);
    qr_draft_model_stats(b.draft, &after);
    cr_assert(before.n_forwards > 0 && after.n_forwards == before.n_forwards);
    for (int i = 0; i < 20; i++)
        guess(&b, 1e9);
    qr_draft_model_stats(b.draft, &after);
    cr_assert_gt(after.n_forwards, before.n_forwards);
    bench_close(&b);
}

static size_t n_taken;

static void *take(size_t n_bytes)
{
    n_taken += n_bytes;
    return qr_host_mem.alloc(n_bytes);
}

Test(draft_model, it_takes_the_memory_that_was_planned)
{
    NEED_DATA();
    struct bench b;
    struct qr_err err = {0};
    const struct qr_model_options mo = {0};
    struct qr_draft_size size;
    bench_open(&b, 10, 16, 512, 1);
    cr_assert_eq(qr_draft_model_size(&size, &b.config, b.be, &mo, &err), 0, "%s", err.msg);
    cr_assert_eq(size.weight_bytes, qr_model_weight_bytes(b.model));
    struct qr_mem_ops counting = *b.be->mem;
    const struct qr_mem_ops *const own = b.be->mem;
    counting.alloc = take;
    struct qr_draft_model *more;
    cr_assert_eq(qr_draft_model_open(&more, &b.config, b.be, &mo, b.tokenizer, &err), 0, "%s", err.msg);
    n_taken = 0;
    b.be->mem = &counting;
    qr_draft_model_begin(more, &b.limits, 4);
    b.be->mem = own;
    cr_assert_eq((int64_t)n_taken, 10 * 16 * size.token_bytes + size.act_bytes);
    qr_draft_model_close(more);
    bench_close(&b);
}

Test(draft_model, a_device_is_refused)
{
    NEED_DATA();
    struct bench b;
    struct qr_err err = {0};
    const struct qr_model_options mo = {0};
    struct qr_draft_size size;
    bench_open(&b, 10, 16, 512, 1);
    struct qr_mem_ops far = *b.be->mem;
    const struct qr_mem_ops *const own = b.be->mem;
    far.host = false;
    b.be->mem = &far;
    cr_assert_eq(qr_draft_model_size(&size, &b.config, b.be, &mo, &err), QR_E_UNSUPPORTED);
    cr_assert_str_eq(err.msg, "--draft-model: draft models are computed on the processor only; on the device \"cpu\" leave it out, or take --device cpu");
    b.be->mem = own;
    bench_close(&b);
}

Test(draft_model, another_vocabulary_is_refused_with_the_first_id_that_differs)
{
    NEED_DATA();
    struct setup s;
    struct qr_err err = {0};
    struct qr_tokenizer *t;
    setup_init(&s, MODEL);
    s.config.draft_model = "models/quire-tiny";
    cr_assert_eq(qr_tokenizer_open(&t, data_path(MODEL), &err), 0, "%s", err.msg);
    cr_assert_eq(qr_draft_model_check(&s.config, t, &err), QR_E_USAGE);
    cr_assert_str_eq(err.msg, "--draft-model models/quire-tiny: its vocabulary is another one: token 0 is '<|begin|>' there, and '<unk>' in the model's "
                              "(1536 and 512 tokens); a draft model needs the model's tokenizer");
    char other[1024];
    snprintf(other, sizeof other, "%s", data_path(OTHER));
    s.config.draft_model = other;
    cr_assert_eq(qr_draft_model_check(&s.config, t, &err), 0, "%s", err.msg);
    qr_tokenizer_close(t);
}

Test(draft_model, an_engine_is_not_opened_with_one_that_is_not_there_or_beside_a_second_tier)
{
    NEED_DATA();
    const struct qr_backend_options bo = {.device = "cpu", .n_threads = 1};
    const struct qr_model_options mo = {0};
    struct setup s;
    struct qr_err err = {0};
    struct qr_tokenizer *t;
    struct qr_engine *e;
    char dir[1024];
    setup_init(&s, MODEL);
    snprintf(dir, sizeof dir, "%s", data_path(MODEL));
    cr_assert_eq(qr_tokenizer_open(&t, dir, &err), 0, "%s", err.msg);
    s.config.draft_model = "/nowhere";
    cr_assert_eq(qr_engine_open(&e, dir, &s.config, &bo, &mo, t, NULL, NULL, &err), QR_E_NOT_FOUND);
    cr_assert_str_eq(err.msg, "--draft-model /nowhere: /nowhere/config.json does not exist; it says what the model is, and belongs beside the weights");
    s.config.draft_model = dir;
    s.config.kv_host_bytes = 1 << 20;
    cr_assert_eq(qr_engine_open(&e, dir, &s.config, &bo, &mo, t, NULL, NULL, &err), QR_E_USAGE);
    cr_assert_str_eq(err.msg, "--kv-host-gib and --draft-model: the second tier keeps the model's keys and values only; leave one of them out");
    qr_tokenizer_close(t);
}

/* No other guesses, and no time that they could be worth or not: the draft model always guesses. */
static void nothing(void *user __attribute__((unused)), struct qr_draft_ask *ask __attribute__((unused)), int32_t n __attribute__((unused)))
{
}

/* How an engine with a draft model may be set up. */
struct way {
    const char *draft;
    int32_t chunk, step, running, kv_tokens, n_ranks;
};

Test(draft_model, no_answer_depends_on_one, .timeout = 120)
{
    NEED_DATA();
    static const struct way ways[] = {
        {MODEL, 256, 512, 64, 0, 1},
        {OTHER, 7, 64, 16, 0, 1},
        {MODEL, 64, 128, 16, 480, 1}, /* preempts */
        {OTHER, 64, 128, 16, 0, 2},
    };
    struct kase *k = qr_alloc(N_CASES, sizeof *k);
    struct flight *want = qr_alloc(N_CASES, sizeof *want), *got = qr_alloc(N_CASES, sizeof *got);
    struct setup s;
    int64_t n_preempted = 0;
    make_cases(k);
    setup_init(&s, MODEL);
    s.n_threads = 1;
    s.config.draft_tokens = 6;
    s.config.draft_source.fill = nothing;
    struct qr_engine_config plain = s.config;
    plain.draft_tokens = 0;
    for (int i = 0; i < QR_COUNT(ways); i++) {
        char dir[1024];
        struct qr_stats st;
        snprintf(dir, sizeof dir, "%s", data_path(ways[i].draft));
        s.config.draft_model = dir;
        s.config.chunk_tokens_max = ways[i].chunk;
        s.config.step_tokens_max = ways[i].step;
        s.config.running_max = ways[i].running;
        s.config.kv_tokens = ways[i].kv_tokens;
        s.config.ctx_max = ways[i].kv_tokens ? 256 : 0;
        if (s.n_ranks != ways[i].n_ranks) {
            s.n_ranks = ways[i].n_ranks;
            const struct setup alone = {.model = MODEL, .device = "cpu", .n_threads = 1, .config = plain, .n_ranks = s.n_ranks};
            run_alone(want, k, &alone);
        }
        run_crowded(got, k, &s, 99 + (uint64_t)i, ways[i].kv_tokens > 0, &st);
        compare(want, got, k, ways[i].draft);
        cr_log_info("%s: %llu of %llu guesses right, %lld preemptions", ways[i].draft, (unsigned long long)st.n_accepted_tokens,
                    (unsigned long long)st.n_draft_tokens, (long long)st.sched.n_preempted);
        cr_assert_gt(st.n_draft_tokens, 100);
        cr_assert(strcmp(ways[i].draft, MODEL) == 0 ? st.n_accepted_tokens > st.n_draft_tokens / 6 : st.n_accepted_tokens < st.n_draft_tokens / 40);
        n_preempted += st.sched.n_preempted;
    }
    cr_assert(n_preempted > 0 || N_CASES < 32);
    qr_free(k);
    qr_free(want);
    qr_free(got);
}

Test(draft_model, all_guesses_of_greedy_answers_are_right_where_it_is_the_model)
{
    NEED_DATA();
    struct setup s;
    struct world w;
    struct qr_sampling greedy;
    struct qr_stats st;
    char dir[1024];
    const int32_t prompt[] = {1, 403, 407, 261, 378};
    static struct flight f[2];
    qr_sampling_init(&greedy);
    greedy.temperature = 0;
    greedy.max_tokens = 200;
    setup_init(&s, MODEL);
    snprintf(dir, sizeof dir, "%s", data_path(MODEL));
    s.config.draft_model = dir;
    s.config.draft_tokens = QR_DRAFT_MAX;
    s.config.draft_source.fill = nothing;
    world_open(&w, &s);
    ask(&w, &f[0], &greedy, prompt, QR_COUNT(prompt), 1);
    ask(&w, &f[1], &greedy, prompt, QR_COUNT(prompt), 2); /* its blocks are found */
    world_settle(&w, &st);
    world_close(&w);
    cr_assert_eq(f[0].answer[0].n, 200);
    cr_assert(answers_equal(&f[0].answer[0], &f[1].answer[0]) && answers_equal(&f[0].answer[0], &f[1].answer[1]));
    cr_assert_gt(st.n_draft_tokens, 500);
    cr_assert_eq(st.n_accepted_tokens, st.n_draft_tokens);
    cr_assert_leq(st.n_steps, 30, "%llu steps for 600 tokens", (unsigned long long)st.n_steps);
}
