/* rig.h - a model with a backend, a cache and an arena around it, and steps made of any mix of sequences; for tests. */
#ifndef QR_TESTS_MODEL_RIG_H
#define QR_TESTS_MODEL_RIG_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "loader/write/make_model.h"
#include "base/files/map_file.h"
#include "model/lora.h"
#include "model/model.h"
#include "model/ranks.h"
#include "tests/levels.h"
#include "tests/model/plain_ops.h"
#include "tests/temp.h"

#define RIG_SEQS_MAX 16
#define RIG_SLOTS_MAX 4 /* of adapters */
#define RIG_RANK_MAX 12

struct rig {
    struct qr_backend *be;
    struct qr_model *model;
    struct qr_kv_view kv;
    struct qr_arena act;
    struct qr_exec exec, *x; /* x: what runs; a test may put its own exec there */
    struct qr_ops ops;        /* with rig_options.plain or apart */
    struct qr_lora *lora;     /* with rig_options.slots */
    void *kv_mem, *act_mem;
    int32_t block_tokens, rows_max;
};

/* A sequence: where its blocks are and how many tokens it has in the cache. */
struct rig_seq {
    int32_t *table;
    int32_t n_done;
    int32_t adapter; /* the slot of its adapter + 1; 0: none */
};

enum rig_want { RIG_NONE, RIG_LAST, RIG_ALL };

struct rig_item {
    struct rig_seq *seq;
    const int32_t *ids;
    int32_t n;
    enum rig_want want;
};

struct rig_options {
    const char *device; /* NULL: the processor */
    const char *isa;    /* NULL: the best */
    int32_t n_threads, ctx_max, n_blocks, block_tokens, rows_max;
    enum qr_compute compute;
    enum qr_quantize quantize;
    bool plain; /* one kernel for each verb */
    bool apart; /* and one product for each matrix */
    enum qr_kv_cache kv_cache;
    struct qr_comm *comm; /* the ranks that share the model, or NULL */
    int32_t slots;        /* for adapters, of ranks up to RIG_RANK_MAX */
};

/* Skips the test, loudly, where the conformance data is not there. */
static inline const char *data_dir(void)
{
    const char *dir = getenv("QUIRE_DATA");
    if (!dir || !*dir)
        dir = "../shared/data";
    struct qr_map_file probe;
    struct qr_err err;
    char path[1024];
    snprintf(path, sizeof path, "%s/README.md", dir);
    if (qr_map_file_open(&probe, path, SIZE_MAX, &err) != 0)
        cr_skip_test("no conformance data at %s (set QUIRE_DATA)", dir);
    qr_map_file_close(&probe);
    return dir;
}

/* NaN everywhere: reading what was not written shows. */
static inline void rig_spoil(struct qr_backend *be, void *p, size_t n_bytes)
{
    uint8_t *ones = qr_alloc(n_bytes, 1);
    memset(ones, 0xff, n_bytes);
    be->mem->put(be->queue, p, ones, n_bytes);
    qr_free(ones);
}

static inline void rig_open(struct rig *r, const char *dir, struct rig_options o)
{
    struct qr_err err = {0};
    memset(r, 0, sizeof *r);
    r->block_tokens = o.block_tokens ? o.block_tokens : 16;
    r->rows_max = o.rows_max ? o.rows_max : 512;
    int32_t n_blocks = o.n_blocks ? o.n_blocks : 64;
    struct qr_backend_options bo = {.device = o.device, .isa = o.isa, .n_threads = o.n_threads ? o.n_threads : 1, .step_rows_max = r->rows_max};
    const struct qr_model_options mo = {.compute = o.compute, .quantize = o.quantize, .kv_cache = o.kv_cache, .ctx_max = o.ctx_max, .comm = o.comm};
    qr_comm_place(o.comm, &bo.rank, &bo.n_ranks);
    cr_assert_eq(qr_backend_open(&r->be, &bo, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_model_open(&r->model, dir, r->be, &mo, &err), 0, "%s", err.msg);
    r->kv = qr_model_kv_view(r->model, NULL, n_blocks, r->block_tokens);
    r->kv_mem = r->be->mem->alloc((size_t)n_blocks * qr_kv_block_bytes(&r->kv));
    rig_spoil(r->be, r->kv_mem, (size_t)n_blocks * qr_kv_block_bytes(&r->kv));
    r->kv.base = r->kv_mem;
    size_t n_act = PLAIN_ROOM * qr_model_act_bytes(r->model, r->rows_max, r->rows_max);
    r->act_mem = qr_model_act_alloc(r->model, r->be, n_act);
    rig_spoil(r->be, r->act_mem, n_act);
    qr_arena_init_fixed(&r->act, r->act_mem, n_act);
    qr_exec_init(&r->exec, r->model, r->be, &r->act, &r->kv);
    if (o.plain || o.apart) {
        r->ops = o.apart ? apart_ops() : plain_ops();
        r->exec.ops = &r->ops;
    }
    if (o.slots > 0)
        cr_assert_eq(qr_lora_new(&r->lora, r->model, r->be, o.slots, RIG_RANK_MAX, r->rows_max, &err), 0, "%s", err.msg);
    r->exec.lora = r->lora;
    qr_exec_join(&r->exec);
    r->x = &r->exec;
}

static inline void rig_close(struct rig *r)
{
    qr_exec_release(&r->exec);
    qr_lora_free(r->lora);
    r->be->mem->free(r->kv_mem);
    qr_model_act_free(r->model, r->be, r->act_mem);
    qr_model_close(r->model);
    qr_backend_close(r->be);
}

static inline int32_t rig_vocab(const struct rig *r)
{
    return qr_model_config(r->model)->n_vocab;
}

/* A sequence whose blocks are first, first+1, ...; or, with a generator, n_blocks distinct ones in random order. */
static inline struct rig_seq rig_seq_new(const struct rig *r, int32_t first, struct qr_rng *shuffle)
{
    struct rig_seq s = {.table = qr_alloc((size_t)r->kv.n_blocks, sizeof(int32_t))};
    for (int32_t i = 0; i < r->kv.n_blocks; i++)
        s.table[i] = (first + i) % r->kv.n_blocks;
    for (int32_t i = r->kv.n_blocks - 1; shuffle && i > 0; i--) {
        int32_t j = (int32_t)qr_rng_below(shuffle, (uint32_t)i + 1), t = s.table[i];
        s.table[i] = s.table[j];
        s.table[j] = t;
    }
    return s;
}

static inline void rig_seq_free(struct rig_seq *s)
{
    qr_free(s->table);
}

/* Rows by adapter; row has room for all. Returns the number of groups. */
static inline int32_t rig_groups(struct qr_row_group group[RIG_SLOTS_MAX], int32_t *row, const struct rig_item *item, int32_t n_items)
{
    int32_t n_groups = 0, n = 0;
    for (int32_t slot = 0; slot < RIG_SLOTS_MAX; slot++) {
        struct qr_row_group *g = &group[n_groups];
        *g = (struct qr_row_group){.row = row + n, .slot = slot};
        for (int32_t i = 0, at = 0; i < n_items; at += item[i++].n)
            for (int32_t j = 0; j < item[i].n && item[i].seq->adapter == slot + 1; j++)
                row[n + g->n_rows++] = at + j;
        n += g->n_rows;
        n_groups += g->n_rows > 0;
    }
    return n_groups;
}

/* One step. Returns the logits of all items in order, rows of n_vocab, to be freed with qr_free. */
static inline float *rig_step(struct rig *r, const struct rig_item *item, int32_t n_items)
{
    int32_t n = 0, stride = r->kv.n_blocks, n_logits = 0;
    for (int32_t i = 0; i < n_items; i++)
        n += item[i].n;
    struct qr_row_group group[RIG_SLOTS_MAX + 1];
    int32_t *a = qr_alloc((size_t)(n * 5 + (n_items + 1) * 2 + n_items * stride), sizeof *a);
    int32_t *ids = a, *pos = ids + n, *slot = pos + n, *rows = slot + n, *row_start = rows + n, *ctx = row_start + n_items + 1;
    int32_t *table = ctx + n_items + 1, *grouped = table + n_items * stride, at = 0;
    for (int32_t i = 0; i < n_items; i++) {
        struct rig_seq *s = item[i].seq;
        row_start[i] = at;
        memcpy(table + i * stride, s->table, (size_t)stride * sizeof *table);
        for (int32_t j = 0; j < item[i].n; j++, at++) {
            int32_t p = s->n_done + j;
            cr_assert_lt(p / r->block_tokens, stride);
            ids[at] = item[i].ids[j];
            pos[at] = p;
            slot[at] = s->table[p / r->block_tokens] * r->block_tokens + p % r->block_tokens;
            if (item[i].want == RIG_ALL || (item[i].want == RIG_LAST && j == item[i].n - 1))
                rows[n_logits++] = at;
        }
        s->n_done += item[i].n;
        ctx[i] = s->n_done;
    }
    row_start[n_items] = at;
    const struct qr_batch b = {.n_tokens = n, .n_seqs = n_items, .n_prefill_seqs = n_items, .n_logits = n_logits,
                               .block_tokens = r->block_tokens, .table_stride = stride, .ids = ids, .pos = pos, .slot = slot,
                               .row_start = row_start, .ctx_len = ctx, .block_table = table, .logit_row = rows,
                               .group = group, .n_groups = rig_groups(group, grouped, item, n_items)};
    struct qr_tensor out = qr_model_forward(r->x, &b);
    cr_assert_eq(out.shape[0], n_logits);
    size_t n_out = (size_t)n_logits * (size_t)rig_vocab(r);
    float *copy = qr_alloc(n_out + 1, sizeof *copy);
    r->be->mem->get(r->be->queue, copy, out.data, n_out * sizeof *copy);
    qr_free(a);
    return copy;
}

/* A whole prompt in chunks of at most `chunk` tokens; returns the logits of every position. */
static inline float *rig_prompt(struct rig *r, struct rig_seq *s, const int32_t *ids, int32_t n, int32_t chunk)
{
    size_t v = (size_t)rig_vocab(r);
    float *all = qr_alloc((size_t)n * v + 1, sizeof *all);
    for (int32_t at = 0; at < n; at += chunk) {
        int32_t k = n - at < chunk ? n - at : chunk;
        float *part = rig_step(r, &(struct rig_item){s, ids + at, k, RIG_ALL}, 1);
        memcpy(all + (size_t)at * v, part, (size_t)k * v * sizeof *all);
        qr_free(part);
    }
    return all;
}

static inline int32_t argmax(const float *x, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

static inline double log_sum_exp(const float *x, int32_t n)
{
    double most = (double)x[argmax(x, n)], sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - most);
    return most + log(sum);
}

/* ---- models made on the spot ---- */

struct temp_model {
    char dir[64];
};

/* Weights wide enough (0.15 at width 64) that attention chooses, rather than averages. */
static inline struct temp_model temp_model_make(const struct qr_model_config *c, enum qr_dtype store)
{
    struct temp_model t;
    struct qr_err err = {0};
    const struct qr_make_options o = {.store = store, .seed = 7, .std = 0.15};
    temp_dir_make(t.dir, "model");
    cr_assert_eq(qr_model_make(t.dir, c, &o, &err), 0, "%s", err.msg);
    return t;
}

static inline void temp_model_remove(const struct temp_model *t)
{
    char path[128];
    snprintf(path, sizeof path, "%s/config.json", t->dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", t->dir);
    unlink(path);
    rmdir(t->dir);
}

static inline int32_t *random_ids(struct qr_rng *rng, int32_t n, int32_t n_vocab)
{
    int32_t *ids = qr_alloc((size_t)n, sizeof *ids);
    for (int32_t i = 0; i < n; i++)
        ids[i] = (int32_t)qr_rng_below(rng, (uint32_t)n_vocab);
    return ids;
}

/* ---- golden files: one JSON object per line ---- */

struct golden {
    struct qr_map_file file;
    size_t at;
    struct qr_json *v; /* the current line */
};

static inline bool golden_next(struct golden *g, const char *path)
{
    struct qr_err err = {0};
    if (!g->file.data)
        cr_assert_eq(qr_map_file_open(&g->file, path, SIZE_MAX, &err), 0, "%s", err.msg);
    qr_json_free(g->v);
    g->v = NULL;
    if (g->at >= g->file.n_bytes) {
        qr_map_file_close(&g->file);
        return false;
    }
    const char *line = (const char *)g->file.data + g->at, *end = memchr(line, '\n', g->file.n_bytes - g->at);
    size_t n = end ? (size_t)(end - line) : g->file.n_bytes - g->at;
    g->at += n + 1;
    cr_assert_eq(qr_json_parse(&g->v, line, n, &qr_json_limits_file, &err), 0, "%s", err.msg);
    return true;
}

static inline int32_t *json_ids(const struct qr_json *list, int32_t *n)
{
    cr_assert_not_null(list);
    *n = qr_json_count(list);
    int32_t *ids = qr_alloc((size_t)*n + 1, sizeof *ids), i = 0;
    for (const struct qr_json *v = qr_json_first(list); v; v = qr_json_after(v))
        ids[i++] = (int32_t)qr_json_f64(v);
    return ids;
}

static inline double *json_numbers(const struct qr_json *list, int32_t *n)
{
    cr_assert_not_null(list);
    *n = qr_json_count(list);
    double *x = qr_alloc((size_t)*n + 1, sizeof *x);
    int32_t i = 0;
    for (const struct qr_json *v = qr_json_first(list); v; v = qr_json_after(v))
        x[i++] = qr_json_is_null(v) ? NAN : qr_json_f64(v);
    return x;
}

/* The instruction-set levels this machine has, the reference first. */
static inline int32_t levels(const char *names[8])
{
    int32_t n = qr_cpu_levels(names);
#if defined(__SANITIZE_ADDRESS__) /* the plainest level takes as long as all others, and has nothing but plain loops */
    if (n > 1)
        memmove(names, names + 1, (size_t)--n * sizeof *names);
#endif
    return n;
}

#endif
