/* model.c - opening a model for computing, and one step of it.
 *
 * Opening reads configuration and headers first and asks the caller whether memory will do; only then weights are loaded. A
 * plan runs the same code up to there. A step checks its batch, places its arrays where kernels read, and runs the forward.
 * Guarantee: a step allocates in the arena alone, exactly what qr_model_act_bytes said.
 * Thread: a model is immutable once open; a step runs on the thread that owns the exec. */
#include "model/model.h"

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"
#include "comm/device_comm.h"
#include "loader/config/hf_config.h"
#include "loader/families/family.h"
#include "loader/stores/other_files.h"
#include "loader/pack/share.h"
#include "loader/weights.h"
#include "model/arch.h"
#include "model/lora.h"
#include "model/ranks.h"
#include "model/repeat.h"
#include "model/rope.h"
#include "model/step_bytes.h"

#define BLOCK_TOKENS 16 /* what the backend is asked about; pages are no part of a model */

struct rotation {
    struct qr_rope_freqs freqs; /* owned */
    const double *inv_freq;     /* its numbers where kernels read them */
    void *device_freq;          /* owned: where that is no place of the host, else NULL */
};

struct qr_model {
    struct qr_model_config config;
    struct qr_share share;     /* this rank's part of it */
    struct qr_comm *comm;      /* borrowed; NULL: one rank */
    struct qr_device_comm *devices; /* owned; NULL: not opened, or nothing that ranks compute lies on devices */
    bool on_device;            /* the backend's memory is not the host's */
    struct qr_weights weights; /* owned, unless borrowed */
    bool borrowed;             /* the weights are the caller's */
    bool untied;               /* config.json says that its head is the embedding, and it is not */
    struct rotation rope, local; /* the second of layers with a window, where the model has one */
    const struct qr_mem_ops *mem; /* borrowed: whose it is */
    const struct qr_kernels *k;   /* borrowed: those it was opened for */
    enum qr_dtype kv_dtype;
};

/* ---- opening ---- */

static int set_context(struct qr_model_config *c, int32_t ctx_max, struct qr_err *err)
{
    const int32_t limit = qr_model_ctx_limit(c), usual = qr_model_ctx_usual(c);
    if (ctx_max < 0 || ctx_max > limit)
        return qr_err_set(err, QR_E_USAGE, "--max-len must be from 1 to %d (max_position_embeddings%s) or 0 for %d, found %d", limit,
                          limit > c->ctx_max ? ", stretched by rope_scaling" : "", usual, ctx_max);
    c->ctx_max = ctx_max > 0 ? ctx_max : usual;
    return 0;
}

static enum qr_dtype choose_kv_dtype(enum qr_kv_cache kv_cache, enum qr_dtype weights)
{
    static const enum qr_dtype named[] = {[QR_KV_CACHE_F32] = QR_F32, [QR_KV_CACHE_BF16] = QR_BF16, [QR_KV_CACHE_INT8] = QR_I8,
                                          [QR_KV_CACHE_FP8] = QR_E4M3};
    if (kv_cache == QR_KV_CACHE_AUTO)
        return weights == QR_F32 || weights == QR_F64 ? weights : QR_BF16;
    QR_ASSERT((int)kv_cache > 0 && kv_cache < QR_COUNT(named));
    return named[kv_cache];
}

enum qr_dtype qr_quantize_dtype(enum qr_quantize t)
{
    static const enum qr_dtype types[] = {
        [QR_QUANTIZE_INT8] = QR_Q8, [QR_QUANTIZE_INT8_G32] = QR_C8_G32, [QR_QUANTIZE_INT8_G64] = QR_C8_G32, [QR_QUANTIZE_INT8_G128] = QR_C8_G32,
        [QR_QUANTIZE_INT4] = QR_Q4, [QR_QUANTIZE_INT4_G64] = QR_C4_G64, [QR_QUANTIZE_INT4_G128] = QR_C4_G128,
        [QR_QUANTIZE_W8A16] = QR_C8_G32, [QR_QUANTIZE_W4A16] = QR_C4_G32, [QR_QUANTIZE_W4A16_G64] = QR_C4_G64,
        [QR_QUANTIZE_W4A16_G128] = QR_C4_G128, [QR_QUANTIZE_FP8] = QR_F8};
    QR_ASSERT((int)t > (int)QR_QUANTIZE_NONE && (int)t < QR_COUNT(types));
    return types[t];
}

static enum qr_dtype choose_dtype(const struct qr_tensor_files *st, const struct qr_share *share, const struct qr_backend *be,
                                  const struct qr_model_options *options)
{
    const enum qr_compute compute = options->compute;
    if (options->quantize != QR_QUANTIZE_NONE)
        return qr_quantize_dtype(options->quantize);
    if (compute == QR_COMPUTE_AUTO)
        return qr_weights_stored_dtype(st, share, be->k);
    return compute == QR_COMPUTE_F32 ? QR_F32 : QR_BF16;
}

static void warn_of_weights(const struct qr_tensor_files *st, const struct qr_model *m)
{
    const char *first;
    int32_t n = qr_weights_unused(st, &m->config, &first);
    if (n > 0)
        qr_log(QR_LOG_WARN, "loader", "unused tensors n=%d first=%s", n, first);
    if (m->untied)
        qr_log(QR_LOG_WARN, "model", "config.json says that the head is the embedding, but lm_head.weight has other numbers and is used, as by transformers 5");
}

/* What of the model is this rank's; for a plan, rank 0's. */
static int share_out(struct qr_model *m, const struct qr_backend *be, const struct qr_model_options *options, struct qr_err *err)
{
    const int32_t n = options->comm ? options->comm->size : options->n_ranks > 0 ? options->n_ranks : 1, rank = options->comm ? options->comm->rank : 0;
    if (n > 1 && !be->mem->host && !be->peers)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%d ranks on the device %s, whose kernels do not reach other devices; use --tensor-parallel 1, or "
                          "--device cpu", n, be->name);
    m->on_device = !be->mem->host;
    m->comm = n > 1 ? options->comm : NULL;
    return qr_share_make(&m->share, &m->config, rank, n, err);
}

/* Kernels that only some architectures need, and devices may lack. */
static int check_kernels(const struct qr_backend *be, const struct qr_model_config *c, struct qr_err *err)
{
    const struct {
        const char *what;
        bool needed, there;
    } row[] = {{"LayerNorm", c->layer_norm, be->k->layer_norm != NULL},
               {"feed-forwards without gates", c->ungated, be->k->unit != NULL},
               {"experts", c->moe.n_experts > 0, be->k->route && be->k->experts},
               {"capped logits", c->logits_softcap > 0, be->k->softcap != NULL}};
    for (int i = 0; i < QR_COUNT(row); i++)
        if (row[i].needed && !row[i].there)
            return qr_err_set(err, QR_E_UNSUPPORTED, "%s needs %s, which \"%s\" does not compute: take --device cpu", c->arch_name, row[i].what, be->name);
    return 0;
}

/* Everything short of loading: configuration, checked headers, the types that will be computed in. On success *files is the caller's. */
static int examine(struct qr_model *m, struct qr_tensor_files **files, enum qr_dtype *dtype, const char *dir, struct qr_backend *be,
                   const struct qr_model_options *options, struct qr_err *err)
{
    struct qr_tensor_files *st = NULL;
    struct qr_model_config *c = &m->config;
    struct qr_source *source = options->source ? qr_source_ref(options->source) : NULL;
    int rc = source ? 0 : qr_source_open(&source, dir, err);
    rc = rc ? rc : qr_model_config_from(c, source, err);
    int context_rc = rc ? 0 : set_context(c, options->ctx_max, err);
    if (!rc && !context_rc)
        rc = qr_tensor_files_open_from(&st, source, &c->quant, err);
    qr_source_unref(source);
    if (rc)
        return rc;
    rc = context_rc;
    const bool tied = c->tied_head;
    if (!rc)
        qr_weights_fit(c, st);
    m->untied = tied && !c->tied_head;
    if (!rc && c->headless && !options->embeds)
        rc = qr_err_set(err, QR_E_UNSUPPORTED, "%s has no head: with quire serve %s, no text", c->arch_name, qr_headless_does(c));
    if (!rc)
        rc = qr_weights_check(st, c, err);
    m->k = be->k;
    if (!rc)
        rc = share_out(m, be, options, err);
    if (!rc) {
        *dtype = choose_dtype(st, &m->share, be, options);
        m->kv_dtype = choose_kv_dtype(options->kv_cache, *dtype);
        rc = qr_backend_supports(be, *dtype, qr_weights_inputs_max(c), m->kv_dtype, c->head_dim, BLOCK_TOKENS, err);
        rc = rc ? rc : check_kernels(be, c, err);
    }
    if (rc) {
        qr_tensor_files_close(st);
        return qr_source_blame(err, dir);
    }
    *files = st;
    return 0;
}

static void place_rotation(struct rotation *r, struct qr_model *m, struct qr_backend *be, const struct qr_rope_config *c)
{
    qr_rope_freqs_init(&r->freqs, c, m->config.head_dim, m->config.ctx_max);
    r->inv_freq = r->freqs.inv_freq;
    if (!be || be->mem->host)
        return;
    const size_t n_bytes = (size_t)r->freqs.n_rot / 2 * sizeof *r->inv_freq;
    m->mem = be->mem;
    r->inv_freq = r->device_freq = be->mem->alloc(n_bytes);
    be->mem->put(be->queue, r->device_freq, r->freqs.inv_freq, n_bytes);
}

static void drop_rotation(struct rotation *r, const struct qr_mem_ops *mem)
{
    qr_rope_freqs_release(&r->freqs);
    if (r->device_freq)
        mem->free(r->device_freq);
}

/* Computes what the forward needs beside weights. Without a backend: for planning, nothing of it is read. */
static void bind(struct qr_model *m, struct qr_backend *be)
{
    place_rotation(&m->rope, m, be, &m->config.rope);
    if (m->config.local_theta <= 0)
        return;
    const struct qr_rope_config local = {.type = QR_ROPE_DEFAULT, .theta = m->config.local_theta, .factor = 1, .partial = m->config.rope.partial};
    place_rotation(&m->local, m, be, &local);
}

/* Weights and the embedding's rows in another format; in their own one where this device has no kernels for that. */
static size_t bytes_as(const struct qr_model *o, struct qr_tensor_files *files, const struct qr_backend *be, enum qr_dtype t)
{
    struct qr_err none;
    const bool there = qr_backend_supports(be, t, 64, o->kv_dtype, o->config.head_dim, 16, &none) == 0;
    return there ? qr_weights_bytes_as(files, &o->share, be->k, t) : o->weights.region_bytes + o->weights.table_bytes;
}

/* The memory of a model that was examined; m stays as it was. */
static void outline(struct qr_model_plan *out, const struct qr_model *m, struct qr_tensor_files *files, enum qr_dtype dtype, struct qr_backend *be,
                    int32_t n_tokens, int32_t n_logits)
{
    struct qr_model o = *m;
    qr_weights_outline(&o.weights, files, &o.share, be->k, dtype);
    bind(&o, NULL);
    *out = (struct qr_model_plan){.config = o.config, .weight_dtype = dtype, .kv_dtype = o.kv_dtype,
                                  .weight_bytes = o.weights.region_bytes, .table_bytes = o.weights.table_bytes,
                                  .int8_bytes = bytes_as(&o, files, be, QR_Q8),
                                  .int4_bytes = bytes_as(&o, files, be, QR_Q4),
                                  .act_bytes = qr_model_act_bytes(&o, n_tokens, n_logits),
                                  .adapted_act_bytes = qr_model_unfused_act_bytes(&o, n_tokens, n_logits)};
    out->own = o.share.own;
    for (int32_t i = 0; i < qr_tensor_files_n_shards(files); i++)
        out->file_bytes += (size_t)qr_tensor_files_shard_bytes(files, i);
    out->n_ranks = o.share.size;
    out->config.n_kv_heads = o.share.own.n_kv_heads;
    if (out->adapted_act_bytes < out->act_bytes)
        out->adapted_act_bytes = out->act_bytes;
    struct qr_kv_view token = qr_model_kv_view(&o, NULL, 0, 1);
    out->kv_token_bytes = qr_kv_block_bytes(&token);
    drop_rotation(&o.rope, o.mem);
    drop_rotation(&o.local, o.mem);
    o.weights.files = NULL; /* the caller's */
    qr_weights_release(&o.weights);
}

static int admit(const struct qr_model *m, struct qr_tensor_files *files, enum qr_dtype dtype, struct qr_backend *be, const struct qr_model_options *o,
                 struct qr_err *err)
{
    struct qr_model_plan plan;
    if (!o->admit)
        return 0;
    outline(&plan, m, files, dtype, be, o->plan_tokens, o->plan_logits);
    return o->admit(o->admit_user, &plan, err);
}

int qr_model_open(struct qr_model **out, const char *dir, struct qr_backend *be, const struct qr_model_options *options,
                  struct qr_err *err)
{
    QR_ASSERT(out != NULL && dir != NULL && be != NULL);
    QR_ASSERT(options != NULL && err != NULL);
    struct qr_model *m = qr_alloc(1, sizeof *m);
    struct qr_tensor_files *files;
    enum qr_dtype dtype;
    int rc = examine(m, &files, &dtype, dir, be, options, err);
    if (rc) {
        qr_free(m);
        return rc;
    }
    warn_of_weights(files, m);
    qr_other_files_log(dir);
    rc = m->comm && m->on_device ? qr_device_comm_open(&m->devices, m->comm, be, err) : 0; /* first: it takes memory of the device, and is soon refused */
    rc = rc ? rc : admit(m, files, dtype, be, options, err);
    const struct qr_weights_options wo = {.cache_dir = options->cache_packed, .progress = options->progress, .user = options->progress_user,
                                           .checked = true};
    rc = rc ? rc : qr_weights_load(&m->weights, files, &m->share, be, dtype, &wo, err);
    if (rc) {
        qr_device_comm_close(m->devices);
        qr_tensor_files_close(files);
        qr_free(m);
        return qr_source_blame(err, dir);
    }
    bind(m, be);
    *out = m;
    return 0;
}

int qr_model_over(struct qr_model **out, const struct qr_model_config *c, const struct qr_weights *w, struct qr_backend *be, struct qr_err *err)
{
    QR_ASSERT(out != NULL && c != NULL && w != NULL);
    QR_ASSERT(be != NULL && err != NULL && w->n_layers == c->n_layers);
    const enum qr_dtype dtype = w->matrix_dtype;
    const enum qr_dtype kv = choose_kv_dtype(QR_KV_CACHE_AUTO, dtype);
    const int rc = dtype == QR_F64 ? 0 : qr_backend_supports(be, dtype, qr_weights_inputs_max(c), kv, c->head_dim, BLOCK_TOKENS, err);
    if (rc)
        return rc;
    struct qr_model *m = qr_alloc(1, sizeof *m);
    m->config = *c;
    qr_share_whole(&m->share, c);
    m->weights = *w;
    m->borrowed = true;
    m->kv_dtype = kv;
    m->k = be->k;
    m->on_device = !be->mem->host;
    bind(m, be);
    *out = m;
    return 0;
}

void qr_model_close(struct qr_model *m)
{
    if (!m)
        return;
    drop_rotation(&m->rope, m->mem);
    drop_rotation(&m->local, m->mem);
    if (!m->borrowed)
        qr_weights_release(&m->weights);
    qr_device_comm_close(m->devices);
    qr_free(m);
}

static void prepare_matrix(struct qr_backend *be, const struct qr_weight *w, const struct qr_weight *bias, bool add, int32_t rows_max)
{
    if (!w->packed || w->t.n_dims != 2)
        return;
    for (int32_t i = 0; i < w->n_parts; i++) {
        const struct qr_weight part = qr_weight_of_part(w, i);
        prepare_matrix(be, &part, bias, add, rows_max);
    }
    if (w->n_parts > 0)
        return;
    const struct qr_linear_args a = {.w = w, .bias = bias ? bias->t.data : NULL, .n_in = (int32_t)w->t.shape[1], .n_out = (int32_t)w->t.shape[0], .add = add};
    qr_backend_prepare(be, &a, rows_max);
}

void qr_model_prepare(const struct qr_model *m, struct qr_backend *be, int32_t rows_max, int32_t logits_max)
{
    QR_ASSERT(m != NULL && be != NULL);
    QR_ASSERT(rows_max >= 1 && logits_max >= 0);
    for (int32_t i = 0; i < m->weights.n_layers; i++) { /* nearly always the same shapes again, which costs nothing */
        const struct qr_layer_weights *w = &m->weights.layer[i];
        prepare_matrix(be, &w->qkv, &w->qkv_bias, false, rows_max);
        prepare_matrix(be, &w->out, &w->out_bias, true, rows_max);
        prepare_matrix(be, &w->gate_up, &w->gate_up_bias, false, rows_max);
        prepare_matrix(be, &w->down, &w->down_bias, true, rows_max);
    }
    prepare_matrix(be, &m->weights.head, NULL, false, logits_max);
}

/* ---- facts ---- */

const struct qr_model_config *qr_model_config(const struct qr_model *m)
{
    QR_ASSERT(m != NULL);
    return &m->config;
}

void qr_model_default_eos(struct qr_model *m, int32_t id)
{
    QR_ASSERT(m != NULL);
    QR_ASSERT(id >= -1);
    if (m->config.n_eos == 0 && id >= 0 && id < m->config.n_vocab)
        m->config.eos_ids[m->config.n_eos++] = id;
}

const struct qr_share *qr_model_share(const struct qr_model *m)
{
    QR_ASSERT(m != NULL);
    return &m->share;
}

struct qr_comm *qr_model_comm(const struct qr_model *m)
{
    QR_ASSERT(m != NULL);
    return m->comm;
}

struct qr_device_comm *qr_model_device_comm(const struct qr_model *m)
{
    QR_ASSERT(m != NULL);
    return m->devices;
}

bool qr_model_on_device(const struct qr_model *m)
{
    QR_ASSERT(m != NULL);
    return m->on_device;
}

const struct qr_weights *qr_model_weights(const struct qr_model *m)
{
    QR_ASSERT(m != NULL);
    return &m->weights;
}

enum qr_dtype qr_model_weight_dtype(const struct qr_model *m)
{
    QR_ASSERT(m != NULL);
    return m->weights.matrix_dtype;
}

enum qr_dtype qr_model_kv_dtype(const struct qr_model *m)
{
    QR_ASSERT(m != NULL);
    return m->kv_dtype;
}

int64_t qr_model_weight_bytes(const struct qr_model *m)
{
    QR_ASSERT(m != NULL);
    return (int64_t)(m->weights.region_bytes + m->weights.table_bytes);
}

struct qr_kv_view qr_model_kv_view(const struct qr_model *m, void *base, int32_t n_blocks, int32_t block_tokens)
{
    QR_ASSERT(m != NULL && n_blocks >= 0);
    QR_ASSERT(block_tokens > 0 && (block_tokens & (block_tokens - 1)) == 0);
    return (struct qr_kv_view){.base = base, .dtype = qr_model_kv_dtype(m), .n_blocks = n_blocks, .n_layers = m->config.n_layers,
                               .n_kv_heads = m->share.own.n_kv_heads, .block_tokens = block_tokens, .head_dim = m->config.head_dim};
}

/* ---- the step ---- */

static struct qr_tensor table_of(struct qr_exec *x, const struct rotation *r)
{
    const int32_t n = x->batch->n_tokens, half = r->freqs.n_rot / 2;
    float *cos_sin = qr_arena_alloc(x->act, (size_t)n * 2 * (size_t)half * qr_dtype_bytes(x->real), 64);
    const struct qr_rope_table_args a = {.cos_sin = cos_sin, .pos = x->batch->pos, .inv_freq = r->inv_freq, .n_rows = n,
                                         .n_rot = r->freqs.n_rot, .attn_factor = r->freqs.attn_factor};
    x->be->k->rope_table(x->be->queue, &a);
    return qr_tensor_3d(cos_sin, x->real, n, 2, half);
}

/* The rotary tables of the batch's positions, then the architecture's forward. */
static struct qr_tensor run_step(struct qr_exec *x, const struct qr_model *m)
{
    x->cos_sin = table_of(x, &m->rope);
    if (m->local.inv_freq)
        x->local_cos_sin = table_of(x, &m->local);
    return qr_llama_forward(x, &m->share.own, &m->weights);
}

/* What lower() guarantees; a wrong number here would read outside the embedding or the cache. */
static void assert_batch(const struct qr_exec *x, const struct qr_batch *b)
{
    const struct qr_model_config *c = &x->model->config;
    QR_ASSERT(b->n_tokens > 0 && b->n_seqs > 0 && b->n_logits >= 0 && b->n_hidden >= 0 && b->n_logits + b->n_hidden <= b->n_tokens);
    QR_ASSERT(x->kv != NULL && b->block_tokens == x->kv->block_tokens);
    const int64_t n_slots = (int64_t)x->kv->n_blocks * b->block_tokens;
    const int32_t n_parts = x->split ? 1 + x->split->n_twins : 1;
    for (int32_t i = 0; i < b->n_tokens; i++) {
        QR_ASSERT((b->ids[i] >= 0 || b->drawn) && b->ids[i] < c->n_vocab);
        QR_ASSERT(b->pos[i] >= 0 && b->pos[i] < c->ctx_max);
        for (int32_t part = 0; part < n_parts; part++) {
            const int32_t slot = b->slot[(part > 0 ? part * x->split->slot_part : 0) + i];
            QR_ASSERT(i < b->n_tokens - b->n_idle ? slot >= 0 && slot < n_slots : slot == -1);
        }
    }
    for (int32_t i = 0; i < b->n_logits; i++)
        QR_ASSERT(b->logit_row[i] >= 0 && b->logit_row[i] < b->n_tokens);
    for (int32_t i = 0; i < b->n_hidden; i++)
        QR_ASSERT(b->hidden_row[i] >= 0 && b->hidden_row[i] < b->n_tokens);
    QR_ASSERT(b->n_groups == 0 || x->lora != NULL);
}

struct qr_tensor qr_model_forward(struct qr_exec *x, const struct qr_batch *batch)
{
    QR_ASSERT(x != NULL && batch != NULL);
    QR_ASSERT((uintptr_t)x->act->base % 64 == 0);
    QR_ASSERT(x->ranks != NULL || x->model->share.size == 1);
    assert_batch(x, batch);
    if (x->ranks)
        qr_ranks_send(x, batch);
    qr_arena_rewind(x->act, 0);
    qr_exec_set_batch(x, batch);
    x->stretches = (struct qr_stretches){0};
    x->hidden = (struct qr_tensor){0};
    x->unfused = batch->n_groups > 0 || x->watch;
    if (batch->n_groups > 0)
        qr_lora_bring(x);
    return qr_repeats(x, batch) ? qr_repeat_step(x, batch, run_step) : run_step(x, x->model);
}

void qr_model_kv_copy(struct qr_exec *x, int32_t src, int32_t dst)
{
    QR_ASSERT(x != NULL && x->kv != NULL);
    QR_ASSERT(src >= 0 && src < x->kv->n_blocks && dst >= 0 && dst < x->kv->n_blocks);
    if (x->ranks)
        qr_ranks_note_copy(x->ranks, src, dst);
    x->be->k->kv_copy(x->be->queue, &(struct qr_kv_copy_args){.kv = x->kv, .src = src, .dst = dst});
}

void qr_model_kv_move(struct qr_exec *x, int32_t from, int32_t to)
{
    QR_ASSERT(x != NULL && x->kv != NULL && x->kv_host != NULL);
    QR_ASSERT(from >= 0 && to >= 0 && (from < x->kv->n_blocks) != (to < x->kv->n_blocks));
    const struct qr_mem_ops *mem = x->be->mem;
    const size_t bytes = qr_kv_block_bytes(x->kv), first = (size_t)x->kv->n_blocks;
    uint8_t *kv = x->kv->base;
    if (x->ranks)
        qr_ranks_note_copy(x->ranks, from, to);
    if ((size_t)to >= first)
        mem->fetch(x->be->queue, x->kv_host + ((size_t)to - first) * bytes, kv + (size_t)from * bytes, bytes);
    else
        mem->send(x->be->queue, kv + (size_t)to * bytes, x->kv_host + ((size_t)from - first) * bytes, bytes);
}

void *qr_model_act_alloc(const struct qr_model *m, struct qr_backend *be, size_t n_bytes)
{
    struct qr_err err;
    void *p;
    QR_ASSERT(m != NULL);
    QR_ASSERT(be != NULL);
    if (!m->comm || m->on_device)
        return be->mem->alloc(n_bytes);
    if (qr_comm_alloc(m->comm, &p, n_bytes, &err))
        qr_panic("%s", err.msg);
    return p;
}

void qr_model_act_free(const struct qr_model *m, struct qr_backend *be, void *p)
{
    QR_ASSERT(p == NULL || m != NULL);
    QR_ASSERT(p == NULL || be != NULL);
    if (p && m->comm && !m->on_device)
        qr_comm_free(m->comm, p);
    else if (p)
        be->mem->free(p);
}

/* A limit on rows of logits may be larger than the limit on rows; no step has more of them than rows. */
static size_t bytes_of_step(const struct qr_model *m, bool unfused, int32_t n_tokens, int32_t n_logits)
{
    QR_ASSERT(m != NULL);
    QR_ASSERT(n_tokens > 0 && n_logits >= 0);
    return qr_step_bytes(m, m->k, unfused, n_tokens, n_logits < n_tokens ? n_logits : n_tokens, run_step);
}

size_t qr_model_act_bytes(const struct qr_model *m, int32_t n_tokens, int32_t n_logits)
{
    return bytes_of_step(m, false, n_tokens, n_logits);
}

size_t qr_model_unfused_act_bytes(const struct qr_model *m, int32_t n_tokens, int32_t n_logits)
{
    return bytes_of_step(m, true, n_tokens, n_logits);
}

/* ---- planning ---- */

int qr_model_plan(struct qr_model_plan *out, const char *dir, struct qr_backend *be, const struct qr_model_options *options,
                  int32_t n_tokens, int32_t n_logits, struct qr_err *err)
{
    QR_ASSERT(out != NULL && dir != NULL && be != NULL);
    QR_ASSERT(options != NULL && err != NULL);
    struct qr_model m = {0};
    struct qr_tensor_files *files;
    enum qr_dtype dtype;
    int rc = examine(&m, &files, &dtype, dir, be, options, err);
    if (rc)
        return rc;
    outline(out, &m, files, dtype, be, n_tokens, n_logits);
    qr_tensor_files_close(files);
    return 0;
}
