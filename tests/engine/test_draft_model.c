/* A draft model alone, beside a real scheduler: its guesses are its own greedy continuation, however its rows came to be computed. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/rng.h"
#include "engine/draft/model.h"
#include "kvcache/kv_prefix.h"
#include "model/alone.h"
#include "tests/engine/harness.h"

#define MODEL "models/stories260K"
#define OTHER "models/rand-qwen2" /* of the same vocabulary */
#define NEED_DATA()                                                                                                    \
    do {                                                                                                               \
        if (!data_path(MODEL))                                                                                         \
            cr_skip_test("no conformance data (QUIRE_DATA): a draft model is %s", MODEL);                              \
    } while (0)

enum { RUNNING = 4, SEQS = 12, CTX = 160, ROOM = 12 };

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
    int64_t n_guesses;
};

static void bench_open(struct bench *b, int32_t n_blocks, int32_t block_tokens, uint64_t seed)
{
    const struct qr_backend_options bo = {.device = "cpu", .n_threads = 1};
    const struct qr_model_options mo = {0};
    struct qr_hash_secret secret;
    struct qr_err err = {0};
    static char dir[1024];
    snprintf(dir, sizeof dir, "%s", data_path(MODEL));
    *b = (struct bench){.rng = {.seed = seed}};
    qr_engine_config_init(&b->config);
    b->config.running_max = RUNNING;
    b->config.chunk_tokens_max = 24;
    b->config.block_tokens = block_tokens;
    b->config.draft_model = dir;
    cr_assert_eq(qr_backend_open(&b->be, &bo, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_tokenizer_open(&b->tokenizer, dir, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_draft_model_open(&b->draft, &b->config, b->be, &mo, &err), 0, "%s", err.msg);
    b->limits = (struct qr_engine_limits){.ctx_max = CTX, .n_blocks = n_blocks, .block_tokens = block_tokens};
    qr_draft_model_begin(b->draft, &b->limits, SEQS + RUNNING, 512);
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
        cr_assert(ask->p[i] > 0 && ask->p[i] < 1);
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
        if (seq->n_computed < seq->n_ids && qr_rng_below(&b->rng, 4) > 0)
            ask[n++] = (struct qr_draft_ask){.index = list[i], .seq = seq, .room = room < ROOM ? room : ROOM};
    }
    qr_draft_model_fill(b->draft, ask, n, &price);
    for (int32_t i = 0; i < n; i++)
        check(b, &ask[i]);
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
    int64_t now = 0;
    guess(b, 0);
    if (!qr_sched_plan(b->sched, &b->plan, now))
        return;
    qr_draft_model_follow(b->draft, &b->plan, b->sched);
    qr_sched_commit(b->sched, &b->plan);
    for (int32_t i = 0; i < b->plan.n_prefill + b->plan.n_decode; i++) {
        const struct qr_plan_item *item = &b->plan.item[i];
        const struct qr_seq *seq = qr_sched_seq(b->sched, item->seq);
        if (item->first + item->n_tokens < seq->n_ids)
            continue;
        if (seq->n_ids < seq->n_prompt + seq->new_max)
            qr_sched_push(b->sched, item->seq, next_id(b, seq, strays));
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
        const struct qr_sched_add add = {.ids = b->ids[i], .n_prompt = n_prompt, .new_max = 20 + 5 * (i % 5), .group = sibling ? i / 4 : -1,
                                         .leader = sibling && i % 4 == 1};
        cr_assert_geq(qr_sched_add(b->sched, &add, &err), 0, "%s", err.msg);
    }
}

static void check_guesses(int32_t n_blocks, int32_t block_tokens, uint32_t strays, bool preempts)
{
    struct bench b;
    struct qr_sched_stats st;
    struct qr_kv_stats kv;
    struct qr_draft_model_stats ds;
    bench_open(&b, n_blocks, block_tokens, (uint64_t)n_blocks * 100 + strays);
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
    cr_assert_gt(b.n_guesses, 500);
    cr_assert_eq(st.n_preempted > 0, preempts);
    cr_assert_gt(kv.hit_tokens, 0);
    cr_assert(strays > 0 || ds.n_right == ds.n_judged, "%lld of %lld guesses were right", (long long)ds.n_right, (long long)ds.n_judged);
    cr_assert(strays == 0 || (ds.n_right > 0 && ds.n_right < ds.n_judged));
    bench_close(&b);
}

Test(draft_model, its_guesses_are_its_greedy_continuation_and_all_right_where_it_is_the_model)
{
    NEED_DATA();
    check_guesses(64, 16, 0, false);
}

Test(draft_model, its_guesses_are_its_greedy_continuation_behind_wrong_ones_too)
{
    NEED_DATA();
    check_guesses(64, 16, 30, false);
    check_guesses(60, 8, 60, false);
}

Test(draft_model, its_guesses_are_its_greedy_continuation_with_preemption_and_blocks_given_out_again)
{
    NEED_DATA();
    check_guesses(10, 16, 20, true);
    check_guesses(22, 8, 50, true);
}
