/* tape.c - the region of a tape, its nodes, and the walk back. Recording appends a node for each verb (ops_record.c);
 * qr_tape_backward runs their gradients from the end. A gradient lies at a fixed distance from its value, so views need
 * no code. Where the policy says so a layer's nodes run again first, at the same addresses, with the same bits. Saved
 * tensors have versions, and a stale one is an error by name. No step allocates. One owning thread, that of the
 * backend's queue. */
#include "train/tape.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "train/record.h"
#include "train/trains.h"

#define ALIGN 64
#define CHUNK_ROWS 256 /* the head and its gradient pass through memory once for each chunk */
#define CHUNK_UNIT 32  /* kernels/backward.h, linear_cross_entropy */
/* Where addresses begin while planning; they are never touched. */
#define PLAN_KEEP ((uintptr_t)64)
#define PLAN_WORK ((uintptr_t)1 << 62)

/* ---- areas ---- */

static bool in_area(const struct qr_arena *a, const void *p)
{
    return (uintptr_t)p >= (uintptr_t)a->base && (uintptr_t)p < (uintptr_t)a->base + a->size;
}

/* Doubles a list while planning; a step that was not planned for is a bug. */
static void *room_for(struct qr_tape *t, void *list, int32_t n, int32_t *max, size_t size)
{
    if (n < *max)
        return list;
    QR_ASSERT(t->planning);
    *max = *max ? 2 * *max : 64;
    return qr_realloc(list, (size_t)*max, size);
}

struct qr_node *qr_tape_node(struct qr_tape *t, const struct qr_verb *verb)
{
    QR_ASSERT(t != NULL && verb != NULL);
    t->node = room_for(t, t->node, t->n_nodes, &t->nodes_max, sizeof *t->node);
    struct qr_node *n = &t->node[t->n_nodes++];
    *n = (struct qr_node){.verb = verb, .scope = t->in_scope};
    const enum qr_recompute policy = t->o.recompute;
    n->redo = t->in_scope >= 0 && (policy == QR_RECOMPUTE_FULL || (policy == QR_RECOMPUTE_SELECTIVE && verb->cheap));
    return n;
}

static struct qr_tensor allocate(struct qr_tape *t, struct qr_arena *area, int64_t n_rows, int64_t n_cols)
{
    const size_t n_bytes = (size_t)n_rows * (size_t)n_cols * qr_dtype_bytes(t->real);
    t->storage = room_for(t, t->storage, t->n_storages, &t->storages_max, sizeof *t->storage);
    char *data = qr_arena_alloc(area, n_bytes, ALIGN);
    t->storage[t->n_storages++] = (struct qr_storage){.begin = data, .end = data + n_bytes, .culprit = -1};
    return qr_tensor_2d(data, t->real, n_rows, n_cols);
}

struct qr_tensor qr_tape_result(struct qr_tape *t, struct qr_node *n, int64_t n_rows, int64_t n_cols)
{
    QR_ASSERT(t != NULL && n != NULL);
    QR_ASSERT(n_rows >= 0 && n_cols > 0);
    return allocate(t, n->redo ? &t->work : &t->keep, n_rows, n_cols);
}

struct qr_tensor qr_tape_tensor(struct qr_tape *t, int64_t n_rows, int64_t n_cols)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(n_rows > 0 && n_cols > 0);
    return allocate(t, &t->keep, n_rows, n_cols);
}

void qr_tape_scope_begin(struct qr_tape *t)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(t->in_scope < 0);
    t->scope = room_for(t, t->scope, t->n_scopes, &t->scopes_max, sizeof *t->scope);
    t->in_scope = t->work_holds = t->n_scopes++;
    t->scope[t->in_scope] = (struct qr_scope){.first = t->n_nodes};
    qr_arena_rewind(&t->work, 0);
    if (t->layers.enter && !t->planning)
        t->layers.enter(t->layers.user, t->in_scope, false);
}

void qr_tape_scope_end(struct qr_tape *t)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(t->in_scope >= 0);
    t->scope[t->in_scope].end = t->n_nodes;
    t->scope[t->in_scope].work_used = t->work.used;
    if (t->layers.leave && !t->planning)
        t->layers.leave(t->layers.user, t->in_scope, false);
    t->in_scope = -1;
}

/* ---- versions ---- */

/* The allocation that a tensor lies in. The latest: `work` is used again by every layer. Empty tensors have none. */
static int32_t storage_of(const struct qr_tape *t, const struct qr_tensor *tensor)
{
    const char *p = tensor->data;
    for (int32_t i = t->n_storages - 1; i >= 0; i--)
        if (p >= t->storage[i].begin && p < t->storage[i].end)
            return i;
    return -1;
}

void qr_tape_save(struct qr_tape *t, struct qr_node *n, const struct qr_tensor *tensor, const char *name)
{
    QR_ASSERT(t != NULL && n != NULL && tensor != NULL && name != NULL);
    QR_ASSERT(n->n_saved < QR_NODE_SAVED_MAX);
    const int32_t s = storage_of(t, tensor);
    if (s >= 0)
        n->saved[n->n_saved++] = (struct qr_saved){.name = name, .storage = s, .version = t->storage[s].version};
}

void qr_tape_touch(struct qr_tape *t, const struct qr_node *n, const struct qr_tensor *tensor)
{
    QR_ASSERT(t != NULL && n != NULL && tensor != NULL);
    const int32_t s = storage_of(t, tensor);
    QR_ASSERT(s >= 0);
    /* Run again, it would change again what has not been made again. */
    QR_ASSERT(!n->redo || in_area(&t->work, tensor->data));
    t->storage[s].version++;
    t->storage[s].culprit = (int32_t)(n - t->node);
}

static int check_saved(const struct qr_tape *t, int32_t index, struct qr_err *err)
{
    const struct qr_node *n = &t->node[index];
    for (int32_t i = 0; i < n->n_saved; i++) {
        const struct qr_saved *s = &n->saved[i];
        const struct qr_storage *now = &t->storage[s->storage];
        if (now->version != s->version)
            return qr_err_set(err, QR_E_INTERNAL, "backward of %s (node %d): its saved tensor %s was changed in place by %s (node %d): version %u was "
                              "saved, %u found", n->verb->name, index, s->name, t->node[now->culprit].verb->name, now->culprit, s->version,
                              now->version);
    }
    return 0;
}

/* ---- gradients ---- */

void qr_tape_open_gradients(struct qr_tape *t)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(t->in_scope < 0);
    for (int32_t i = 0; i < t->n_storages; i++)
        t->storage[i].graded = in_area(&t->work, t->storage[i].begin); /* those are zeroed layer by layer */
}

/* The gradient of a storage (-1: of nothing) is there from now on. */
static void zero_grad(struct qr_tape *t, int32_t storage)
{
    if (storage < 0 || t->storage[storage].graded)
        return;
    struct qr_storage *s = &t->storage[storage];
    t->exec.be->mem->zero(t->exec.be->queue, t->keep_grad + (s->begin - (char *)t->keep.base), (size_t)(s->end - s->begin));
    s->graded = true;
}

/* Bytes of those of the tensors that lie in this storage. */
static size_t bytes_in(const struct qr_tape *t, int32_t storage, const struct qr_tensor *const *value, int32_t n)
{
    size_t sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += storage_of(t, value[i]) == storage ? (size_t)qr_tensor_count(value[i]) * qr_dtype_bytes(t->real) : 0;
    return sum;
}

bool qr_tape_grads_are_fresh(struct qr_tape *t, const struct qr_tensor *const *value, int32_t n)
{
    QR_ASSERT(t != NULL && value != NULL);
    QR_ASSERT(n > 0);
    bool fresh = true;
    for (int32_t i = 0; i < n; i++) {
        const int32_t k = storage_of(t, value[i]);
        fresh = fresh && k >= 0 && !t->storage[k].graded && bytes_in(t, k, value, n) == (size_t)(t->storage[k].end - t->storage[k].begin);
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t k = storage_of(t, value[i]);
        if (fresh)
            t->storage[k].graded = true;
        else
            zero_grad(t, k);
    }
    return fresh;
}

struct qr_tensor qr_tape_grad(struct qr_tape *t, const struct qr_tensor *value)
{
    QR_ASSERT(t != NULL && value != NULL);
    const bool work = in_area(&t->work, value->data);
    QR_ASSERT(work || in_area(&t->keep, value->data));
    struct qr_tensor g = *value;
    zero_grad(t, storage_of(t, value));
    g.data = work ? t->work_grad + ((char *)value->data - (char *)t->work.base) : t->keep_grad + ((char *)value->data - (char *)t->keep.base);
    return g;
}

/* ---- forward ---- */

static void compute(struct qr_tape *t, const struct qr_node *n, enum qr_tape_pass pass)
{
    void (*const what)(struct qr_tape *, const struct qr_node *) = pass == QR_PASS_BACKWARD ? n->verb->back : n->verb->run;
    if (!t->watch.end) {
        what(t, n);
        return;
    }
    const struct qr_tape_op op = {.verb = n->verb->name, .pass = pass, .layer = n->scope, .w = n->w, .in = n->in, .out = n->out};
    if (t->watch.begin)
        t->watch.begin(t->watch.user, &op);
    what(t, n);
    t->watch.end(t->watch.user, &op);
}

void qr_tape_set_watch(struct qr_tape *t, const struct qr_tape_watch *watch)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(!watch || watch->end);
    t->watch = watch ? *watch : (struct qr_tape_watch){0};
}

void qr_tape_set_layers(struct qr_tape *t, const struct qr_tape_layers *layers)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(!layers || (layers->enter && layers->leave));
    t->layers = layers ? *layers : (struct qr_tape_layers){0};
}

void qr_tape_run(struct qr_tape *t, const struct qr_node *n)
{
    QR_ASSERT(t != NULL && n != NULL);
    QR_ASSERT(n->verb->run != NULL);
    if (!t->planning)
        compute(t, n, QR_PASS_FORWARD);
}

/* Forgets the last recording. */
static void forget(struct qr_tape *t)
{
    t->n_nodes = t->n_storages = t->n_scopes = 0;
    t->in_scope = t->work_holds = -1;
    t->recorded = false;
    qr_arena_rewind(&t->work, 0);
}

void qr_tape_begin(struct qr_tape *t, const struct qr_batch *b)
{
    QR_ASSERT(t != NULL && b != NULL);
    QR_ASSERT(b->n_tokens <= t->o.n_tokens_max);
    forget(t);
    qr_arena_rewind(&t->keep, 0);
    qr_exec_set_batch(&t->exec, b);
    t->recorded = true;
}

static void note_peak(struct qr_tape *t, const struct qr_batch *b)
{
    int32_t n_blocks = 0;
    for (int32_t s = 0; s < b->n_seqs; s++)
        n_blocks += (b->ctx_len[s] + QR_TRAIN_BLOCK_TOKENS - 1) / QR_TRAIN_BLOCK_TOKENS;
    t->rows_peak = b->n_logits > t->rows_peak ? b->n_logits : t->rows_peak;
    t->blocks_peak = n_blocks > t->blocks_peak ? n_blocks : t->blocks_peak;
}

static struct qr_tensor record(struct qr_tape *t, const struct qr_batch *b)
{
    QR_ASSERT(b->n_tokens <= t->o.n_tokens_max && b->n_seqs <= t->o.n_seqs_max);
    forget(t);
    struct qr_tensor out = qr_model_forward(&t->exec, b);
    QR_ASSERT(t->in_scope < 0);
    if (!t->planning)
        note_peak(t, b);
    return out;
}

/* Of kept logits, which become nothing anybody reads. */
static void loss_of_logits(struct qr_tape *t, const struct qr_tensor *logits)
{
    const struct qr_cross_entropy_args a = {.logits = logits->data, .loss = t->losses, .target = t->target, .stride = logits->stride[0],
                                            .n_rows = t->n_targets, .n_cols = (int32_t)logits->shape[1]};
    t->exec.be->b->cross_entropy(t->exec.be->queue, &a);
}

/* To where kernels read them. */
static void place_targets(struct qr_tape *t, const struct qr_train_batch *b)
{
    t->target = b->target;
    if (!t->target_mem)
        return;
    t->exec.be->mem->put(t->exec.be->queue, t->target_mem, b->target, (size_t)b->b.n_logits * sizeof *b->target);
    t->target = t->target_mem;
}

static double loss(struct qr_tape *t, const struct qr_train_batch *b, float scale, double *losses, bool gradients)
{
    QR_ASSERT(t != NULL && b != NULL);
    QR_ASSERT(b->b.n_tokens > 0 && (!t->o.logits || !gradients));
    place_targets(t, b);
    t->n_targets = b->b.n_logits;
    t->scale = scale;
    t->gradients = gradients;
    const struct qr_tensor out = record(t, &b->b);
    t->recorded = gradients;
    if (t->o.logits)
        loss_of_logits(t, &out);
    const double *each = qr_backend_read(t->exec.be, t->losses_read, t->losses, (size_t)t->n_targets * sizeof *losses);
    double sum = 0;
    for (int32_t i = 0; i < t->n_targets; i++)
        sum += each[i];
    if (losses)
        memcpy(losses, each, (size_t)t->n_targets * sizeof *losses);
    return sum;
}

double qr_tape_loss(struct qr_tape *t, const struct qr_train_batch *b, float scale, double *losses)
{
    return loss(t, b, scale, losses, true);
}

void qr_tape_set_loss(struct qr_tape *t, qr_tape_loss_rows *rows, void *user)
{
    QR_ASSERT(t != NULL && rows != NULL);
    QR_ASSERT(!t->o.logits);
    t->loss_rows = rows;
    t->loss_user = user;
}

int32_t qr_tape_chunk_rows(const struct qr_tape_options *options)
{
    QR_ASSERT(options != NULL);
    QR_ASSERT(options->n_tokens_max > 0);
    const int32_t rows = (int32_t)qr_align_up((size_t)options->n_tokens_max, CHUNK_UNIT);
    return options->chunk_rows ? options->chunk_rows : rows < CHUNK_ROWS ? rows : CHUNK_ROWS;
}

double qr_tape_evaluate(struct qr_tape *t, const struct qr_train_batch *b, double *losses)
{
    return loss(t, b, 0, losses, false);
}

struct qr_tensor qr_tape_logits(struct qr_tape *t, const struct qr_batch *b, struct qr_tensor *grad)
{
    QR_ASSERT(t != NULL && b != NULL && grad != NULL);
    QR_ASSERT(t->o.logits);
    struct qr_tensor out = record(t, b);
    t->recorded = true;
    qr_tape_open_gradients(t);
    *grad = qr_tape_grad(t, &out);
    return out;
}

/* ---- backward ---- */

/* The values of a layer are in place again, its own gradients zero. */
static void enter_scope(struct qr_tape *t, int32_t index)
{
    const struct qr_scope *s = &t->scope[index];
    if (t->layers.enter)
        t->layers.enter(t->layers.user, index, true);
    t->exec.be->mem->zero(t->exec.be->queue, t->work_grad, s->work_used);
    for (int32_t i = s->first; t->work_holds != index && i < s->end; i++)
        if (t->node[i].redo)
            compute(t, &t->node[i], QR_PASS_AGAIN);
    t->work_holds = index;
}

static void leave_scope(struct qr_tape *t, int32_t index)
{
    if (index >= 0 && t->layers.leave)
        t->layers.leave(t->layers.user, index, true);
}

void qr_tape_micro(struct qr_tape *t, int32_t i)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(i >= 0 && (i == 0 || i < t->o.n_micro));
    t->last_micro = t->later_max == 0 || i + 1 >= t->o.n_micro;
    if (i == 0)
        t->n_later = 0; /* something may have waited for a step that was given up */
}

int qr_tape_backward(struct qr_tape *t, struct qr_err *err)
{
    QR_ASSERT(t != NULL && err != NULL);
    QR_ASSERT(t->recorded);
    t->recorded = false;
    int32_t inside = -1;
    for (int32_t i = t->n_nodes - 1; i >= 0; i--) {
        const struct qr_node *n = &t->node[i];
        int rc = check_saved(t, i, err);
        if (rc)
            return rc;
        if (n->scope != inside)
            leave_scope(t, inside);
        if (n->scope >= 0 && n->scope != inside)
            enter_scope(t, n->scope);
        inside = n->scope;
        compute(t, n, QR_PASS_BACKWARD);
    }
    leave_scope(t, inside);
    qr_params_settle(t->params);
    return 0;
}

/* ---- opening ---- */

static void plan_rope_table(struct qr_queue *q, const struct qr_rope_table_args *a)
{
}

/* The only kernel that a recording calls outside its nodes. */
static const struct qr_kernels plan_kernels = {.name = "plan", .rope_table = plan_rope_table};

/* Records the largest batch over addresses that are never touched; the areas' peaks are what they need. */
static void plan(struct qr_tape *t)
{
    const int32_t n = t->o.n_tokens_max;
    int32_t *zeros = qr_alloc((size_t)n, sizeof *zeros);
    struct qr_backend be = {.name = "plan", .k = &plan_kernels, .mem = &qr_host_mem};
    const struct qr_batch b = {.n_tokens = n, .n_seqs = t->o.n_seqs_max, .n_logits = n, .block_tokens = QR_TRAIN_BLOCK_TOKENS, .ids = zeros,
                               .pos = zeros, .slot = zeros, .logit_row = zeros};
    qr_arena_init_fixed(&t->keep, (void *)PLAN_KEEP, SIZE_MAX / 8);
    qr_arena_init_fixed(&t->work, (void *)PLAN_WORK, SIZE_MAX / 8);
    t->exec.be = &be;
    t->planning = t->gradients = true;
    t->n_targets = n;
    record(t, &b);
    t->planning = false;
    t->exec.be = t->params->be;
    t->memory.keep = qr_align_up(t->keep.peak, ALIGN);
    t->memory.work = qr_align_up(t->work.peak, ALIGN);
    t->memory.grad = t->memory.keep + t->memory.work;
    const size_t logits_row = (size_t)qr_logits_stride(t->params->config.n_vocab) * qr_dtype_bytes(t->real);
    t->memory.logits = t->o.logits ? 0 : qr_align_up((size_t)t->o.chunk_rows * logits_row, ALIGN);
    qr_free(zeros);
}

static size_t later_bytes(const struct qr_tape *t, int32_t n_rows)
{
    const size_t row = (size_t)t->params->config.n_embd * qr_dtype_bytes(t->real) + sizeof *t->later_ids;
    return qr_align_up((size_t)n_rows * row, ALIGN);
}

/* Rows of the embedding's gradient that wait for the last micro-batch. */
static int32_t later_rows(const struct qr_tape *t)
{
    const struct qr_model_config *c = &t->params->config;
    const int64_t rows = ((int64_t)t->o.n_micro - 1) * t->o.n_tokens_max;
    const int64_t most = (int64_t)(QR_TAPE_LATER_BYTES / qr_dtype_bytes(t->real)) / c->n_embd;
    if (!c->tied_head || rows <= 0 || qr_params_find(t->params, qr_params_name(t->params, &t->params->weights.embed))->frozen)
        return 0;
    return rows <= c->n_vocab || rows <= most ? (int32_t)rows : 0;
}

/* A tape that knows what it needs and has none of it yet. */
static int tape_new(struct qr_tape **out, struct qr_params *p, const struct qr_tape_options *options, struct qr_err *err)
{
    QR_ASSERT(out != NULL && p != NULL && options != NULL);
    QR_ASSERT(err != NULL && options->n_tokens_max > 0 && options->n_seqs_max > 0 && options->n_seqs_max <= options->n_tokens_max);
    struct qr_model *model;
    int rc = qr_train_takes(&p->config, err);
    rc = rc ? rc : qr_model_over(&model, &p->config, &p->weights, p->be, err);
    if (rc)
        return rc;
    struct qr_tape *t = qr_alloc(1, sizeof *t);
    *t = (struct qr_tape){.params = p, .model = model, .o = *options, .real = p->real};
    t->o.chunk_rows = qr_tape_chunk_rows(options);
    const int32_t n_blocks = (t->o.n_tokens_max + QR_TRAIN_BLOCK_TOKENS - 1) / QR_TRAIN_BLOCK_TOKENS + t->o.n_seqs_max;
    t->kv = qr_model_kv_view(model, NULL, n_blocks, QR_TRAIN_BLOCK_TOKENS);
    qr_exec_init(&t->exec, model, p->be, &t->keep, &t->kv);
    t->exec.ops = &qr_ops_record;
    t->exec.real = t->real;
    plan(t);
    struct qr_tape_memory *m = &t->memory;
    m->kv = (size_t)n_blocks * qr_kv_block_bytes(&t->kv);
    t->later_max = later_rows(t);
    t->last_micro = true;
    m->later = later_bytes(t, t->later_max);
    m->total = m->keep + m->work + m->grad + m->logits + m->later + m->kv;
    *out = t;
    return 0;
}

int qr_tape_plan(struct qr_tape_memory *out, struct qr_params *p, const struct qr_tape_options *options, struct qr_err *err)
{
    QR_ASSERT(out != NULL);
    struct qr_tape *t;
    int rc = tape_new(&t, p, options, err);
    if (rc)
        return rc;
    *out = t->memory;
    qr_tape_close(t);
    return 0;
}

int qr_tape_open(struct qr_tape **out, struct qr_params *p, const struct qr_tape_options *options, struct qr_err *err)
{
    QR_ASSERT(out != NULL && p != NULL);
    QR_ASSERT(!p->planned);
    struct qr_tape *t;
    int rc = tape_new(&t, p, options, err);
    if (rc)
        return rc;
    const struct qr_tape_memory *m = &t->memory;
    t->region = p->be->mem->alloc(m->total - m->kv);
    t->kv.base = t->kv_mem = p->be->mem->alloc(m->kv);
    t->losses = p->be->mem->alloc((size_t)t->o.n_tokens_max * sizeof *t->losses);
    if (!p->be->mem->host) {
        t->losses_read = p->be->mem->host_alloc((size_t)t->o.n_tokens_max * sizeof *t->losses);
        t->target_mem = p->be->mem->alloc((size_t)t->o.n_tokens_max * sizeof *t->target_mem);
    }
    char *at = t->region;
    qr_arena_init_fixed(&t->keep, at, m->keep);
    qr_arena_init_fixed(&t->work, at + m->keep, m->work);
    t->keep_grad = at + m->keep + m->work;
    t->work_grad = t->keep_grad + m->keep;
    t->logits = (float *)(void *)(t->work_grad + m->work);
    t->later = t->work_grad + m->work + m->logits;
    t->later_ids = (int32_t *)(void *)((char *)t->later + (size_t)t->later_max * (size_t)p->config.n_embd * qr_dtype_bytes(t->real));
    forget(t);
    *out = t;
    return 0;
}

void qr_tape_close(struct qr_tape *t)
{
    if (!t)
        return;
    qr_exec_release(&t->exec);
    const struct qr_mem_ops *mem = t->params->be->mem;
    mem->free(t->region);
    mem->free(t->kv_mem);
    mem->free(t->losses);
    mem->free(t->target_mem);
    mem->host_free(t->losses_read);
    qr_model_close(t->model);
    qr_free(t->node);
    qr_free(t->storage);
    qr_free(t->scope);
    qr_free(t);
}

const struct qr_tape_memory *qr_tape_memory(const struct qr_tape *t)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(t->region != NULL);
    return &t->memory;
}

struct qr_tape_memory qr_tape_peak(const struct qr_tape *t)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(t->region != NULL);
    const int32_t rows = t->rows_peak < t->o.chunk_rows ? t->rows_peak : t->o.chunk_rows;
    struct qr_tape_memory m = {.keep = t->keep.peak, .work = t->work.peak, .grad = t->keep.peak + t->work.peak,
                               .later = later_bytes(t, t->n_later_peak), .kv = (size_t)t->blocks_peak * qr_kv_block_bytes(&t->kv)};
    m.logits = t->o.logits ? 0 : (size_t)rows * (size_t)qr_logits_stride(t->params->config.n_vocab) * qr_dtype_bytes(t->real);
    m.total = m.keep + m.work + m.grad + m.logits + m.later + m.kv;
    return m;
}

struct qr_exec *qr_tape_exec(struct qr_tape *t)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(t->region != NULL);
    return &t->exec;
}
