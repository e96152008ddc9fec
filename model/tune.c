/* tune.c - trials of items for each thread, in steps of the model itself.
 *
 * Of each bucket of rows one step is made, and for each kind of launch in it every number is tried against the kernels' own rule, step by step in turn.
 * A number stays where both halves of the samples agree, among the trials and then once more with more samples. Runs on the thread that owns the backend. */
#include "model/tune.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "loader/weights.h"

#define BLOCK_TOKENS 16
#define KINDS_MAX 16
#define PAIRS_LEAST 4      /* steps with either rule in a trial; a multiple of 2 */
#define PAIRS_MOST 64
#define TRIAL_S 0.4        /* what a trial may take, but for PAIRS_LEAST */
#define CONFIRM_TIMES 3    /* as many samples decide in the end */
#define DEPTH_FEW 1024     /* tokens in the cache of each sequence: with up to 4, and with more */
#define DEPTH_MANY 128

struct tuner {
    struct qr_exec exec;
    struct qr_batch batch;
    struct qr_kv_view kv;
    struct qr_arena act;
    void *kv_mem, *act_mem;
    int32_t *ints; /* owned: the batch's arrays */
};

/* ---- trials ---- */

static double step_s(struct tuner *t)
{
    const int64_t began_ns = qr_clock_ns();
    qr_model_forward(&t->exec, &t->batch);
    return (double)(qr_clock_ns() - began_ns) * 1e-9;
}

/* By how much r->items make a step faster, in the half of n_pairs that thinks less of them; the best steps are *r's. The
 * rule is in force afterwards. */
static double gain_of(struct tuner *t, struct qr_model_tuned *r, int32_t n_pairs)
{
    double gain = INFINITY;
    r->own_s = r->best_s = INFINITY;
    for (int half = 0; half < 2; half++) {
        double best[2] = {INFINITY, INFINITY};
        for (int32_t i = 0; i < n_pairs; i++) {
            const int side = (i + i / 2) % 2; /* 0 1 1 0 0 1 1 0 */
            qr_tune_set(t->exec.be->tune, r->kind, side ? r->items : 0);
            best[side] = fmin(best[side], step_s(t));
        }
        gain = fmin(gain, best[0] / best[1]);
        r->own_s = fmin(r->own_s, best[0]);
        r->best_s = fmin(r->best_s, best[1]);
    }
    qr_tune_set(t->exec.be->tune, r->kind, 0);
    return gain;
}

static void tune_kind(struct tuner *t, struct qr_model_tuned *r, int32_t n_pairs)
{
    static const int32_t tries[] = {2, 3, 4, 6, 8, 12};
    double most = 1;
    int32_t best = 0;
    for (int i = 0; i < QR_COUNT(tries); i++) {
        r->items = tries[i];
        const double gain = gain_of(t, r, n_pairs);
        best = gain > most ? tries[i] : best;
        most = fmax(gain, most);
    }
    r->items = best;
    if (best == 0 || gain_of(t, r, CONFIRM_TIMES * n_pairs) < QR_TUNE_GAIN) {
        r->items = 0;
        r->best_s = r->own_s;
    }
    qr_tune_set(t->exec.be->tune, r->kind, r->items);
}

/* ---- the step ---- */

/* n_rows sequences with `depth` tokens each and one new one, or one prompt of n_rows. */
static void make_step(struct tuner *t, const struct qr_model *m, int32_t n_rows, int32_t n_seqs, int32_t depth)
{
    const int32_t each = n_rows / n_seqs, stride = (depth + each + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    struct qr_rng rng = {.seed = 1};
    t->kv = qr_model_kv_view(m, NULL, n_seqs * stride, BLOCK_TOKENS);
    const size_t kv_bytes = (size_t)t->kv.n_blocks * qr_kv_block_bytes(&t->kv), act_bytes = qr_model_act_bytes(m, n_rows, n_seqs);
    struct qr_backend *be = t->exec.be;
    t->kv.base = t->kv_mem = be->mem->alloc(kv_bytes);
    be->mem->zero(be->queue, t->kv_mem, kv_bytes); /* pages that were never written are all one, and cost no memory traffic */
    t->act_mem = be->mem->alloc(act_bytes);
    qr_arena_init_fixed(&t->act, t->act_mem, act_bytes);
    t->ints = qr_alloc((size_t)(3 * n_rows + 3 * n_seqs + 1 + n_seqs * stride), sizeof *t->ints);
    int32_t *ids = t->ints, *pos = ids + n_rows, *slot = pos + n_rows, *start = slot + n_rows, *ctx = start + n_seqs + 1, *logit = ctx + n_seqs;
    int32_t *blocks = logit + n_seqs;
    for (int32_t i = 0; i < n_seqs * stride; i++)
        blocks[i] = i;
    for (int32_t r = 0; r < n_rows; r++) {
        ids[r] = (int32_t)qr_rng_below(&rng, (uint32_t)qr_model_config(m)->n_vocab);
        pos[r] = depth + r % each;
        slot[r] = r / each * stride * BLOCK_TOKENS + pos[r];
    }
    for (int32_t s = 0; s < n_seqs; s++) {
        start[s + 1] = (s + 1) * each;
        ctx[s] = depth + each;
        logit[s] = (s + 1) * each - 1;
    }
    t->batch = (struct qr_batch){.n_tokens = n_rows, .n_seqs = n_seqs, .n_prefill_seqs = each > 1 ? n_seqs : 0, .n_logits = n_seqs,
                                 .block_tokens = BLOCK_TOKENS, .table_stride = stride, .ids = ids, .pos = pos, .slot = slot, .row_start = start,
                                 .ctx_len = ctx, .block_table = blocks, .logit_row = logit};
}

static void drop_step(struct tuner *t)
{
    t->exec.be->mem->free(t->kv_mem);
    t->exec.be->mem->free(t->act_mem);
    qr_free(t->ints);
}

static void add_kind(struct qr_tune_kind kind[KINDS_MAX], int32_t *n, struct qr_tune_kind k)
{
    for (int32_t i = 0; i < *n; i++)
        if (memcmp(&kind[i], &k, sizeof k) == 0)
            return;
    if (*n < KINDS_MAX)
        kind[(*n)++] = k;
}

/* The kinds of launches in a step of n_rows rows of which n_logits want logits. */
static int32_t list_kinds(struct qr_tune_kind kind[KINDS_MAX], const struct qr_model *m, int32_t n_rows, int32_t n_logits)
{
    const struct qr_weights *w = qr_model_weights(m);
    int32_t n = 0;
    add_kind(kind, &n, qr_tune_attention(qr_model_kv_dtype(m), n_rows));
    for (int32_t l = 0; l < w->n_layers; l++) {
        const struct qr_weight *const all[] = {&w->layer[l].qkv, &w->layer[l].out, &w->layer[l].gate_up, &w->layer[l].down};
        for (int i = 0; i < QR_COUNT(all); i++)
            if (all[i]->packed)
                add_kind(kind, &n, qr_tune_linear(all[i]->packed_dtype, n_rows, (int32_t)all[i]->t.shape[1], (int32_t)all[i]->t.shape[0]));
    }
    if (n_rows == n_logits && w->head.packed)
        add_kind(kind, &n, qr_tune_linear(w->head.packed_dtype, n_rows, (int32_t)w->head.t.shape[1], (int32_t)w->head.t.shape[0]));
    return n;
}

/* Rows of the step that stands for a bucket, where steps have rows_max at most: decoding, but for the last, which is a
 * prompt. 0: none. */
static int32_t rows_of(int32_t bucket, int32_t rows_max, int32_t ctx_max)
{
    static const int32_t rows[QR_TUNE_BUCKETS] = {1, 4, 16, 32, 64, 512};
    int32_t n = rows[bucket];
    if (bucket == QR_TUNE_BUCKETS - 1) {
        n = n < rows_max ? n : rows_max;
        n = n < ctx_max ? n : ctx_max;
    }
    return n <= rows_max && qr_tune_bucket(n) == bucket ? n : 0;
}

static void tune_bucket(struct tuner *t, const struct qr_model *m, int32_t n_rows, qr_model_tuned_fn *each, void *user)
{
    const int32_t ctx_max = qr_model_config(m)->ctx_max;
    const bool prompt = qr_tune_bucket(n_rows) == QR_TUNE_BUCKETS - 1;
    const int32_t depth = prompt ? 0 : n_rows <= 4 ? DEPTH_FEW : DEPTH_MANY;
    struct qr_tune_kind kind[KINDS_MAX];
    make_step(t, m, n_rows, prompt ? 1 : n_rows, depth < ctx_max ? depth : ctx_max - 1);
    qr_exec_init(&t->exec, m, t->exec.be, &t->act, &t->kv);
    step_s(t); /* warms up */
    const int32_t n_kinds = list_kinds(kind, m, n_rows, t->batch.n_logits), fit = (int32_t)(TRIAL_S / step_s(t)) / 4 * 2;
    const int32_t n_pairs = fit < PAIRS_LEAST ? PAIRS_LEAST : fit > PAIRS_MOST ? PAIRS_MOST : fit;
    for (int32_t i = 0; i < n_kinds; i++) {
        struct qr_model_tuned r = {.kind = kind[i], .n_rows = n_rows};
        tune_kind(t, &r, n_pairs);
        each(user, &r);
    }
    drop_step(t);
}

void qr_model_tune(const struct qr_model *m, struct qr_backend *be, int32_t rows_max, qr_model_tuned_fn *each, void *user)
{
    QR_ASSERT(m != NULL && be != NULL);
    QR_ASSERT(rows_max >= 1 && each != NULL);
    struct tuner t = {.exec.be = be};
    for (int32_t b = 0; be->tune && strcmp(be->k->name, "ref") != 0 && b < QR_TUNE_BUCKETS; b++) {
        const int32_t n_rows = rows_of(b, rows_max, qr_model_config(m)->ctx_max);
        if (n_rows > 0)
            tune_bucket(&t, m, n_rows, each, user);
    }
}

static void say(void *user, const struct qr_model_tuned *r)
{
    int32_t *n = user;
    n[0]++;
    n[1] += r->items > 0;
    qr_log(QR_LOG_INFO, "model", "tuned %s=%s size=%d rows=%d items=%d own_us=%.1f best_us=%.1f",
           r->kind.op == QR_TUNE_LINEAR ? "linear" : "attention", qr_dtype_name((enum qr_dtype)r->kind.type),
           (int)r->kind.size, (int)r->n_rows, (int)r->items, r->own_s * 1e6, r->best_s * 1e6);
}

void qr_model_tune_and_save(const struct qr_model *m, struct qr_backend *be, int32_t rows_max)
{
    QR_ASSERT(m != NULL && be != NULL);
    QR_ASSERT(rows_max >= 1);
    int32_t n[2] = {0, 0};
    char dir[4096];
    struct qr_err err;
    const int64_t began = qr_clock_ns();
    qr_log(QR_LOG_INFO, "model", "tuning begins: every shape is measured, which takes seconds to minutes");
    qr_model_tune(m, be, rows_max, say, n);
    if (!qr_tune_dir(dir, sizeof dir))
        snprintf(err.msg, sizeof err.msg, "neither XDG_CACHE_HOME nor HOME names a directory");
    else if (qr_tune_save(be->tune, dir, &err) == 0)
        err.msg[0] = '\0';
    qr_log(QR_LOG_INFO, "model", "tuned shapes=%d faster=%d level=%s threads=%d seconds=%.1f%s%s", (int)n[0], (int)n[1], be->k->name, (int)be->n_threads,
           (double)(qr_clock_ns() - began) * 1e-9, err.msg[0] ? " not saved: " : " saved", err.msg);
}
