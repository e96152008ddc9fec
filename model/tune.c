#include "model/tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"

#define BLOCK_TOKENS 16
#define GROUPS_MAX 24
#define SAMPLES_MAX 512
#define SAMPLES_WANTED 16  /* of a half and shape, about: half of them of each side */
#define HEAD_CALLS 8       /* of the head in one step, as there is one only */
#define CONFIRM_TIMES 3    /* as many samples decide in the end */
#define SCREEN_GAIN 1.02   /* what makes a value part of the next trials */
#define KEEP_GAIN 1.01     /* what one of several values must be worth in the end */
#define DEPTH_FEW 1024     /* tokens in the cache of each sequence: with up to 4, and with more */
#define DEPTH_MANY 128

/* How many rows stand for a bucket. */
static const int32_t bucket_rows[QR_TUNE_BUCKETS] = {1, 4, 16, 32, 64, 512};

/* A shape on trial. Side 0 is what is in force, side 1 the candidate. */
struct group {
    struct qr_tune_key key;
    struct qr_tunables side[2];
    bool trying;
    int32_t n_calls;               /* in this step */
    int32_t field, next;           /* of the candidate; the next of its values */
    int32_t field_value;           /* the best of the field so far, 0: none */
    double field_gain;
    double own_s, best_s;
    int32_t n[2][2];               /* samples by half and side */
    float sample[2][2][SAMPLES_MAX];
};

struct tuner {
    struct qr_exec exec; /* first: the verbs find the tuner by it */
    struct qr_tune *table;
    struct group *group; /* owned [GROUPS_MAX] */
    int32_t n_groups, bucket, pass, n_passes;
    struct qr_batch batch;
    struct qr_kv_view kv;
    struct qr_arena act;
    void *kv_mem, *act_mem;
    int32_t *ints;       /* owned: the batch's arrays */
};

/* ---- verbs that take the time ---- */

/* The shape's group; a new one is made. NULL: there is nothing to choose, or its rows belong to another bucket. */
static struct group *group_of(struct tuner *t, struct qr_tune_key key)
{
    if (key.bucket != t->bucket || qr_tune_uses(t->table, key) == 0)
        return NULL;
    for (int32_t i = 0; i < t->n_groups; i++)
        if (qr_tune_same_key(&t->group[i].key, &key))
            return &t->group[i];
    if (t->n_groups == GROUPS_MAX)
        return NULL;
    struct group *g = &t->group[t->n_groups++];
    memset(g, 0, sizeof *g);
    g->key = key;
    return g;
}

/* Puts the side in force whose turn it is; returns when the call begins. */
static int64_t begin(struct tuner *t, struct group *g)
{
    if (g)
        qr_tune_set(t->table, g->key, &g->side[g->trying ? (g->n_calls + t->pass) & 1 : 0]);
    return qr_clock_ns();
}

static void end(struct tuner *t, struct group *g, int64_t began)
{
    const float s = (float)(qr_clock_ns() - began) * 1e-9f;
    if (!g)
        return;
    const int half = 2 * t->pass >= t->n_passes, side = g->trying ? (g->n_calls + t->pass) & 1 : 0;
    g->n_calls++;
    if (g->n[half][side] < SAMPLES_MAX)
        g->sample[half][side][g->n[half][side]++] = s;
}

static struct tuner *tuner_of(struct qr_exec *x)
{
    QR_ASSERT(x != NULL);
    return (struct tuner *)(void *)x;
}

static struct qr_tune_key key_of(enum qr_tune_op op, const struct qr_weight *w, int64_t n_rows, int32_t n_products)
{
    QR_ASSERT(w->packed != NULL && w->t.n_dims == 2);
    return (struct qr_tune_key){.op = (uint8_t)op, .type = (uint8_t)w->packed_dtype, .bucket = (uint8_t)qr_tune_bucket((int32_t)n_rows),
                                .a = (int32_t)w->t.shape[1], .b = (int32_t)w->t.shape[0], .c = n_products};
}

static struct group *product_group(struct qr_exec *x, const struct qr_weight *w, int64_t n_rows)
{
    return group_of(tuner_of(x), key_of(QR_TUNE_LINEAR, w, n_rows, 0));
}

static struct qr_tensor timed_linear(struct qr_exec *x, const struct qr_tensor *in, const struct qr_weight *w, const struct qr_weight *bias)
{
    struct group *g = product_group(x, w, in->shape[0]);
    int64_t began = begin(tuner_of(x), g);
    struct qr_tensor out = qr_ops_serve.linear(x, in, w, bias);
    end(tuner_of(x), g, began);
    return out;
}

static struct qr_tensor timed_norm_linear(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight *norm, float eps,
                                          const struct qr_weight *w, const struct qr_weight *bias)
{
    struct group *g = product_group(x, w, h->shape[0]);
    int64_t began = begin(tuner_of(x), g);
    struct qr_tensor out = qr_serve_norm_linear(x, h, norm, eps, w, bias);
    end(tuner_of(x), g, began);
    return out;
}

static struct qr_tensor timed_norm_gated(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight *norm, float eps,
                                         const struct qr_weight *w, const struct qr_weight *bias, enum qr_act act)
{
    struct group *g = product_group(x, w, h->shape[0]);
    int64_t began = begin(tuner_of(x), g);
    struct qr_tensor out = qr_serve_norm_gated(x, h, norm, eps, w, bias, act);
    end(tuner_of(x), g, began);
    return out;
}

static void timed_linear_onto(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *in, const struct qr_weight *w,
                              const struct qr_weight *bias)
{
    struct group *g = product_group(x, w, in->shape[0]);
    int64_t began = begin(tuner_of(x), g);
    qr_serve_linear_onto(x, h, in, w, bias);
    end(tuner_of(x), g, began);
}

/* A step has one head, so it is computed several times. */
static struct qr_tensor timed_norm_logits(struct qr_exec *x, const struct qr_tensor *h, const struct qr_head_weights *w, float eps)
{
    struct tuner *t = tuner_of(x);
    struct group *g = product_group(x, w->head, h->shape[0]);
    struct qr_tensor out = {0};
    const size_t mark = qr_arena_mark(x->act);
    for (int32_t i = 0; i < (g && g->trying ? HEAD_CALLS : 1); i++) {
        qr_arena_rewind(x->act, mark);
        int64_t began = begin(t, g);
        out = qr_ops_serve.norm_logits(x, h, w, eps);
        end(t, g, began);
    }
    return out;
}

static struct qr_tensor timed_attend(struct qr_exec *x, const struct qr_tensor *h, const struct qr_attend_weights *w, float eps,
                                     const struct qr_attn_spec *spec)
{
    struct tuner *t = tuner_of(x);
    if (w->norm_bias || w->qkv->n_parts > 0) /* not taken apart: what its products take is the kernels' own choice */
        return qr_ops_serve.attend(x, h, w, eps, spec);
    struct qr_tensor qkv = timed_norm_linear(x, h, w->norm, eps, w->qkv, w->qkv_bias);
    struct group *g = group_of(t, (struct qr_tune_key){.op = QR_TUNE_ATTENTION, .type = (uint8_t)x->kv->dtype,
                                                       .bucket = (uint8_t)qr_tune_bucket(x->batch->n_tokens), .a = spec->n_heads,
                                                       .b = spec->n_kv_heads, .c = spec->head_dim});
    int64_t began = begin(t, g);
    struct qr_tensor out = qr_serve_attend_from(x, &qkv, w, eps, spec);
    end(t, g, began);
    return out;
}

/* Product by product, as a chain of few rows is done, too. */
static void timed_feed(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *mixed, const struct qr_feed_weights *w, float eps, enum qr_act act)
{
    if (!qr_feed_is_chain(w)) {
        qr_ops_serve.feed(x, h, mixed, w, eps, act);
        return;
    }
    timed_linear_onto(x, h, mixed, w->out, w->out_bias);
    struct qr_tensor gated = timed_norm_gated(x, h, w->norm, eps, w->gate_up, w->gate_up_bias, act);
    timed_linear_onto(x, h, &gated, w->down, w->down_bias);
}

/* Chains as they are served: how many rows a thread takes through one. The first has attention behind it, which does not change. */
static struct qr_tensor chained_attend(struct qr_exec *x, const struct qr_tensor *h, const struct qr_attend_weights *w, float eps,
                                       const struct qr_attn_spec *spec)
{
    struct group *g = group_of(tuner_of(x), key_of(QR_TUNE_CHAIN, w->qkv, h->shape[0], 1));
    int64_t began = begin(tuner_of(x), g);
    struct qr_tensor out = qr_ops_serve.attend(x, h, w, eps, spec);
    end(tuner_of(x), g, began);
    return out;
}

static void chained_feed(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *mixed, const struct qr_feed_weights *w, float eps,
                         enum qr_act act)
{
    struct group *g = group_of(tuner_of(x), key_of(QR_TUNE_CHAIN, w->out, h->shape[0], 3));
    int64_t began = begin(tuner_of(x), g);
    qr_ops_serve.feed(x, h, mixed, w, eps, act);
    end(tuner_of(x), g, began);
}

static struct qr_ops chained_verbs(void)
{
    struct qr_ops o = qr_ops_serve;
    o.attend = chained_attend;
    o.feed = chained_feed;
    return o;
}

static struct qr_ops timed_verbs(void)
{
    struct qr_ops o = qr_ops_serve;
    o.linear = timed_linear;
    o.norm_logits = timed_norm_logits;
    o.attend = timed_attend;
    o.feed = timed_feed;
    return o;
}

/* ---- trials ---- */

static int by_value(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double median(float *x, int32_t n)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(n > 0);
    qsort(x, (size_t)n, sizeof *x, by_value);
    return ((double)x[n / 2] + (double)x[(n - 1) / 2]) / 2;
}

/* Times the whole model n_passes times. */
static void run_passes(struct tuner *t, int32_t n_passes)
{
    t->n_passes = n_passes;
    for (int32_t i = 0; i < t->n_groups; i++)
        memset(t->group[i].n, 0, sizeof t->group[i].n);
    for (t->pass = 0; t->pass < n_passes; t->pass++) {
        for (int32_t i = 0; i < t->n_groups; i++)
            t->group[i].n_calls = 0;
        qr_model_forward(&t->exec, &t->batch);
    }
}

/* How many times the candidate is as fast, in the half that thinks less of it; 0: there are too few samples. */
static double gain_of(struct group *g)
{
    double gain = 0;
    for (int half = 0; half < 2; half++) {
        if (g->n[half][0] == 0 || g->n[half][1] == 0)
            return 0;
        const double old = median(g->sample[half][0], g->n[half][0]), new = median(g->sample[half][1], g->n[half][1]);
        gain = half == 0 || old / new < gain ? old / new : gain;
        g->own_s = half == 0 ? old : (g->own_s + old) / 2;
        g->best_s = half == 0 ? new : (g->best_s + new) / 2;
    }
    return gain;
}

/* The next candidate: one more value of the field at hand, then the following field with the best of this one in force. */
static void next_candidate(const struct tuner *t, struct group *g)
{
    const uint32_t uses = qr_tune_uses(t->table, g->key);
    g->trying = false;
    for (; g->field < QR_TUNE_FIELDS; g->field++) {
        const struct qr_tune_field *f = &qr_tune_fields[g->field];
        int32_t *in_force = qr_tune_value(&g->side[0], g->field);
        while ((f->uses & uses) && g->next < QR_COUNT(f->tries) && f->tries[g->next]) {
            const int32_t value = f->tries[g->next++];
            if (value == *in_force)
                continue;
            g->side[1] = g->side[0];
            *qr_tune_value(&g->side[1], g->field) = value;
            g->trying = true;
            return;
        }
        if (g->field_value)
            *in_force = g->field_value;
        g->field_value = g->next = 0;
        g->field_gain = SCREEN_GAIN;
    }
}

static bool same_tunables(const struct qr_tunables *a, const struct qr_tunables *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static bool any_trying(const struct tuner *t)
{
    for (int32_t i = 0; i < t->n_groups; i++)
        if (t->group[i].trying)
            return true;
    return false;
}

/* One field after the other; each trial has one candidate of every shape. */
static void search(struct tuner *t, int32_t n_passes)
{
    for (int32_t i = 0; i < t->n_groups; i++) {
        t->group[i].field_gain = SCREEN_GAIN;
        next_candidate(t, &t->group[i]);
    }
    while (any_trying(t)) {
        run_passes(t, n_passes);
        for (int32_t i = 0; i < t->n_groups; i++) {
            struct group *g = &t->group[i];
            const double gain = g->trying ? gain_of(g) : 0;
            if (gain > g->field_gain) {
                g->field_gain = gain;
                g->field_value = *qr_tune_value(&g->side[1], g->field);
            }
            if (g->trying)
                next_candidate(t, g);
        }
    }
}

/* Each field of what was found has to earn its place: without it the shape must be slower. */
static void prune(struct tuner *t, int32_t n_passes)
{
    for (int f = 0; f < QR_TUNE_FIELDS; f++) {
        for (int32_t i = 0; i < t->n_groups; i++) {
            struct group *g = &t->group[i];
            g->trying = *qr_tune_value(&g->side[0], f) != 0;
            g->side[1] = g->side[0];
            *qr_tune_value(&g->side[1], f) = 0;
        }
        if (any_trying(t))
            run_passes(t, n_passes);
        for (int32_t i = 0; i < t->n_groups; i++)
            if (t->group[i].trying && gain_of(&t->group[i]) > 1 / KEEP_GAIN)
                t->group[i].side[0] = t->group[i].side[1];
    }
}

/* What was found against the kernels' own choice, with more samples: it stays, or nothing does. */
static void confirm(struct tuner *t, int32_t n_passes)
{
    const struct qr_tunables own = {0};
    for (int32_t i = 0; i < t->n_groups; i++) {
        struct group *g = &t->group[i];
        g->side[1] = g->side[0];
        g->side[0] = own;
        g->trying = !same_tunables(&g->side[1], &own);
    }
    run_passes(t, CONFIRM_TIMES * n_passes);
    for (int32_t i = 0; i < t->n_groups; i++) {
        struct group *g = &t->group[i];
        const bool better = g->trying && gain_of(g) >= QR_TUNE_GAIN;
        if (!g->trying)
            g->own_s = median(g->sample[0][0], g->n[0][0]);
        if (!better) {
            g->best_s = g->own_s;
            g->side[1] = own;
        }
        qr_tune_set(t->table, g->key, &g->side[1]);
    }
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

/* The shapes that these verbs meet, in the step that was made. */
static void tune_verbs(struct tuner *t, const struct qr_model *m, const struct qr_ops *verbs, int32_t n_rows, const struct qr_model_tune_options *o)
{
    const int32_t n_layers = qr_model_config(m)->n_layers, n_passes = 2 * ((SAMPLES_WANTED + n_layers - 1) / n_layers);
    t->exec.ops = verbs;
    t->n_groups = 0;
    run_passes(t, 2); /* finds the shapes, and warms up */
    search(t, n_passes);
    prune(t, n_passes);
    confirm(t, n_passes);
    for (int32_t i = 0; o->each && i < t->n_groups; i++) {
        const struct group *g = &t->group[i];
        const struct qr_model_tuned result = {.key = g->key, .n_rows = n_rows, .best = g->side[1], .own_s = g->own_s, .best_s = g->best_s};
        o->each(o->user, &result);
    }
}

static void tune_bucket(struct tuner *t, const struct qr_model *m, struct qr_backend *be, int32_t bucket, const struct qr_model_tune_options *o)
{
    const struct qr_ops timed = timed_verbs(), chained = chained_verbs();
    const int32_t ctx_max = qr_model_config(m)->ctx_max, most = o->rows_max < ctx_max ? o->rows_max : ctx_max;
    const bool prompt = bucket == QR_TUNE_BUCKETS - 1;
    int32_t n_rows = bucket_rows[bucket], depth = prompt ? 0 : n_rows <= 4 ? DEPTH_FEW : DEPTH_MANY;
    n_rows = n_rows < most || !prompt ? n_rows : most;
    depth = depth < ctx_max ? depth : ctx_max - 1;
    if (n_rows > o->rows_max || qr_tune_bucket(n_rows) != bucket)
        return;
    t->exec.be = be;
    make_step(t, m, n_rows, prompt ? 1 : n_rows, depth);
    qr_exec_init(&t->exec, m, be, &t->act, &t->kv);
    t->bucket = bucket;
    tune_verbs(t, m, &timed, n_rows, o);
    tune_verbs(t, m, &chained, n_rows, o);
    drop_step(t);
}

void qr_model_tune(const struct qr_model *m, struct qr_backend *be, const struct qr_model_tune_options *options)
{
    QR_ASSERT(m != NULL && be != NULL);
    QR_ASSERT(options != NULL && options->rows_max >= 1);
    const struct qr_tune_key any = {.op = QR_TUNE_ATTENTION};
    if (!be->tune || qr_tune_uses(be->tune, any) == 0)
        return;
    struct tuner *t = qr_alloc(1, sizeof *t);
    t->table = be->tune;
    t->group = qr_alloc(GROUPS_MAX, sizeof *t->group);
    for (int32_t b = 0; b < QR_TUNE_BUCKETS; b++)
        if (options->buckets == 0 || (options->buckets >> b & 1))
            tune_bucket(t, m, be, b, options);
    qr_free(t->group);
    qr_free(t);
}

static void count(void *user, const struct qr_model_tuned *result)
{
    static const struct qr_tunables own;
    int32_t *n = user;
    n[0]++;
    n[1] += !same_tunables(&result->best, &own);
}

void qr_model_tune_and_save(const struct qr_model *m, struct qr_backend *be, int32_t rows_max)
{
    QR_ASSERT(m != NULL && be != NULL);
    QR_ASSERT(rows_max >= 1);
    int32_t n[2] = {0, 0};
    const struct qr_model_tune_options o = {.rows_max = rows_max, .each = count, .user = n};
    char dir[4096];
    struct qr_err err;
    const int64_t began = qr_clock_ns();
    qr_log(QR_LOG_INFO, "model", "tuning begins: every shape is measured, which takes seconds to minutes");
    qr_model_tune(m, be, &o);
    if (!qr_tune_dir(dir, sizeof dir))
        snprintf(err.msg, sizeof err.msg, "neither XDG_CACHE_HOME nor HOME names a directory");
    else if (qr_tune_save(be->tune, dir, &err) == 0)
        err.msg[0] = '\0';
    qr_log(QR_LOG_INFO, "model", "tuned shapes=%d faster=%d level=%s threads=%d seconds=%.1f%s%s", (int)n[0], (int)n[1], be->k->name, (int)be->n_threads,
           (double)(qr_clock_ns() - began) * 1e-9, err.msg[0] ? " not saved: " : " saved", err.msg);
}
