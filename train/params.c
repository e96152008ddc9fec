/* params.c - the parameters' arrays: f32 masters, gradients, the rounded copy, packed matrices. They are laid out once,
 * so index i means the same element in all of them. After a step values are rounded by chance from (seed, step, index)
 * and packed anew, on the pool. Gradients that nothing has added to yet count as 0 and are not read. One owning thread;
 * the tape and the optimizer borrow. */
#include "train/params.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/round_trip.h"
#include "loader/config/hf_config.h"
#include "loader/stores/tensor_files.h"

#define ALIGN 16 /* elements between tensors that are not pieces of one matrix */
#define PACKED_ALIGN 64
#define FILL_MAX ((int64_t)1 << 20) /* values that are copied to a device together */
#define DRAW_NUMBERS 4096           /* that a thread draws at a time */
#define TRIP_ROWS 16 /* of a worker at a time */
#define LAST_NORM "model.norm.weight"
#define PLAN_BASE ((uintptr_t)1 << 40) /* where addresses begin while planning; they are never touched */

/* ---- the plan: where everything lies ---- */

static bool divides_logits(const struct qr_model_config *c)
{
    return c->logits_divisor > 0 && c->logits_divisor != 1;
}

/* In f32, as the loader of served models has it. */
static double last_norm_factor(const struct qr_params *p)
{
    return (double)(1 / p->config.logits_divisor);
}

static bool is_param(const struct qr_weight_walk *k)
{
    return k->row->when != QR_WHEN_TIED;
}

static int64_t count_of(const struct qr_weight_walk *k, enum qr_dim rows)
{
    return qr_dim_value(k->c, rows) * (k->row->kind == QR_KIND_VECTOR ? 1 : qr_dim_value(k->c, k->row->n_in));
}

static struct qr_weight *weight_at(struct qr_weights *w, const struct qr_weight_walk *k)
{
    char *owner = k->layer < 0 ? (char *)w : (char *)&w->layer[k->layer];
    return (struct qr_weight *)(void *)(owner + k->row->at);
}

/* What the forward reads of parameters that begin at `first`. */
static void *compute_rows(const struct qr_params *p, enum qr_weight_kind kind, int64_t first)
{
    if (kind == QR_KIND_MATRIX && p->seen)
        return p->seen + first;
    if (kind != QR_KIND_VECTOR && p->half)
        return p->half + first;
    return (char *)p->value + first * (int64_t)qr_dtype_bytes(p->real);
}

static enum qr_dtype packed_as(const struct qr_params *p, const struct qr_weight_walk *k)
{
    return qr_weight_row_packed_as(k->row, p->packs);
}

static size_t packed_bytes(const struct qr_params *p, const struct qr_weight_walk *k)
{
    size_t n = p->be->k->linear_packed_bytes(packed_as(p, k), qr_dim_value(k->c, k->row->total), qr_dim_value(k->c, k->row->n_in));
    return qr_align_up(n, PACKED_ALIGN);
}

static bool is_whole(const struct qr_weight_walk *k, enum qr_weight_kind kind)
{
    return k->row->kind == kind && k->row->first == QR_DIM_ZERO;
}

/* Names, shapes and places of all tensors. */
static void lay_out(struct qr_params *p)
{
    int64_t base = 0;
    for (struct qr_weight_walk k = qr_weight_walk_begin(&p->config); qr_weight_walk_next(&k);)
        p->n_params += is_param(&k);
    p->param = qr_alloc((size_t)p->n_params, sizeof *p->param);
    struct qr_param *t = p->param;
    for (struct qr_weight_walk k = qr_weight_walk_begin(&p->config); qr_weight_walk_next(&k);) {
        if (is_whole(&k, QR_KIND_MATRIX))
            p->weights.region_bytes += packed_bytes(p, &k);
        if (!is_param(&k))
            continue;
        if (k.row->first == QR_DIM_ZERO) {
            base = p->n;
            p->n = (int64_t)qr_align_up((size_t)(base + count_of(&k, k.row->total)), ALIGN);
        }
        qr_weight_walk_name(t->name, &k);
        t->n_dims = qr_weight_walk_shape(t->shape, &k);
        t->first = base + count_of(&k, k.row->first);
        t->n = count_of(&k, k.row->n_out);
        t->decays = k.row->kind != QR_KIND_VECTOR;
        t++;
    }
}

/* Points every weight of the forward at its rows and its packed form. */
static void point_weights(struct qr_params *p)
{
    uint8_t *packed = p->weights.region;
    const struct qr_param *t = p->param;
    for (struct qr_weight_walk k = qr_weight_walk_begin(&p->config); qr_weight_walk_next(&k);) {
        struct qr_weight *w = weight_at(&p->weights, &k);
        const int64_t total = qr_dim_value(&p->config, k.row->total), n_in = qr_dim_value(&p->config, k.row->n_in);
        const bool tied = k.row->when == QR_WHEN_TIED;
        void *rows = compute_rows(p, k.row->kind, tied ? qr_params_find(p, k.row->name)->first : t->first);
        t += !tied;
        if (k.row->first != QR_DIM_ZERO)
            continue;
        w->split = k.row->split;
        w->t = k.row->kind == QR_KIND_VECTOR ? qr_tensor_1d(rows, p->real, total) : qr_tensor_2d(rows, p->compute, total, n_in);
        if (k.row->kind == QR_KIND_MATRIX) {
            w->packed = packed;
            w->packed_dtype = packed_as(p, &k);
            packed += packed_bytes(p, &k);
        }
    }
    QR_ASSERT(packed == (uint8_t *)p->weights.region + p->weights.region_bytes);
    if (p->last_norm)
        p->weights.norm.t.data = p->last_norm;
}

/* Everything but memory. */
static struct qr_params *params_shape(const struct qr_model_config *c, struct qr_backend *be, enum qr_dtype real, enum qr_dtype compute)
{
    QR_ASSERT(real == QR_F32 || real == QR_F64);
    QR_ASSERT(compute == real || (compute == QR_BF16 && real == QR_F32));
    struct qr_params *p = qr_alloc(1, sizeof *p);
    *p = (struct qr_params){.config = *c, .real = real, .compute = compute, .packs = compute, .be = be};
    p->weights = (struct qr_weights){.n_layers = c->n_layers, .matrix_dtype = compute, .mem = be->mem};
    p->weights.layer = qr_alloc((size_t)c->n_layers, sizeof *p->weights.layer);
    lay_out(p);
    return p;
}

static struct qr_params *params_new(const struct qr_model_config *c, struct qr_backend *be, enum qr_dtype real, enum qr_dtype compute,
                                    const struct qr_params_hold *hold)
{
    struct qr_params *p = params_shape(c, be, real, compute);
    const size_t n_bytes = (size_t)p->n * qr_dtype_bytes(real);
    p->value = be->mem->alloc(n_bytes);
    p->grad = be->mem->alloc(n_bytes);
    p->half = compute == QR_BF16 ? be->mem->alloc((size_t)p->n * sizeof *p->half) : NULL;
    p->weights.region = be->mem->alloc(p->weights.region_bytes);
    p->last_norm = divides_logits(c) ? be->mem->alloc((size_t)c->n_embd * qr_dtype_bytes(real)) : NULL;
    p->hold = hold ? *hold : p->hold;
    point_weights(p);
    if (p->hold.opened)
        p->hold.opened(p->hold.user, p);
    return p;
}

void qr_params_plan(struct qr_params **out, const struct qr_model_config *c, struct qr_backend *be, enum qr_dtype real, enum qr_dtype compute)
{
    QR_ASSERT(out != NULL && c != NULL && be != NULL);
    struct qr_params *p = params_shape(c, be, real, compute);
    p->planned = true;
    p->value = p->grad = p->weights.region = (void *)PLAN_BASE;
    p->half = compute == QR_BF16 ? (uint16_t *)PLAN_BASE : NULL;
    point_weights(p);
    *out = p;
}

/* An array of `had` elements as one of p->n. */
static void *regrow(const struct qr_params *p, void *old, int64_t had, size_t size)
{
    void *to = p->be->mem->alloc((size_t)p->n * size);
    p->be->mem->copy(p->be->queue, to, (size_t)had * size, old, (size_t)had * size, (size_t)had * size, 1);
    p->be->mem->free(old);
    return to;
}

void qr_params_extend(struct qr_params *p, const struct qr_param *more, int32_t n)
{
    QR_ASSERT(p != NULL && more != NULL);
    QR_ASSERT(n > 0 && p->real == QR_F32 && p->seen == NULL);
    const int64_t had = p->n;
    p->param = qr_realloc(p->param, (size_t)(p->n_params + n), sizeof *p->param);
    for (int32_t i = 0; i < n; i++) {
        struct qr_param *t = &p->param[p->n_params++];
        QR_ASSERT(more[i].n_dims == 2 && more[i].shape[0] > 0 && more[i].shape[1] > 0);
        *t = more[i];
        t->extra = true;
        t->first = p->n;
        t->n = t->shape[0] * t->shape[1];
        p->n = (int64_t)qr_align_up((size_t)(p->n + t->n), ALIGN);
    }
    if (!p->planned) {
        p->be->mem->free(p->grad); /* untouched so far */
        p->value = regrow(p, p->value, had, sizeof(float));
        p->half = p->half ? regrow(p, p->half, had, sizeof *p->half) : NULL;
        p->grad = p->be->mem->alloc((size_t)p->n * sizeof(float));
    }
    point_weights(p);
}

void qr_params_quantize(struct qr_params *p, enum qr_dtype to)
{
    QR_ASSERT(p != NULL && p->half != NULL && p->seen == NULL);
    QR_ASSERT(qr_dtype_rounds(to));
    if (!p->planned)
        p->be->mem->free(p->weights.region);
    p->packs = to;
    p->weights.region_bytes = 0;
    for (struct qr_weight_walk k = qr_weight_walk_begin(&p->config); qr_weight_walk_next(&k);)
        if (is_whole(&k, QR_KIND_MATRIX))
            p->weights.region_bytes += packed_bytes(p, &k);
    p->seen = p->planned ? (uint16_t *)PLAN_BASE : p->be->mem->alloc((size_t)p->n * sizeof *p->seen);
    p->weights.region = p->planned ? (void *)PLAN_BASE : p->be->mem->alloc(p->weights.region_bytes);
    point_weights(p);
    if (!p->planned)
        qr_params_pack(p);
}

size_t qr_params_bytes(const struct qr_params *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->n > 0);
    return (size_t)p->n * (2 * qr_dtype_bytes(p->real) + (p->half ? sizeof *p->half : 0) + (p->seen ? sizeof *p->seen : 0)) + p->weights.region_bytes +
           (divides_logits(&p->config) ? (size_t)p->config.n_embd * qr_dtype_bytes(p->real) : 0);
}

void qr_params_close(struct qr_params *p)
{
    if (!p)
        return;
    if (!p->planned) {
        p->be->mem->free(p->value);
        p->be->mem->free(p->grad);
        p->be->mem->free(p->half);
        p->be->mem->free(p->last_norm);
        p->be->mem->free(p->seen);
        p->be->mem->free(p->weights.region);
    }
    qr_free(p->fill.room);
    qr_free(p->weights.layer);
    qr_free(p->param);
    qr_free(p);
}

/* ---- values ---- */

/* Values that the host has made go to where it cannot write them. */
static void flush(struct qr_params *p)
{
    struct qr_params_fill *f = &p->fill;
    const size_t size = qr_dtype_bytes(p->real);
    if (f->n > 0)
        p->be->mem->put(p->be->queue, (char *)p->value + (size_t)f->first * size, f->room, (size_t)f->n * size);
    f->n = 0;
}

static void *fill_room(struct qr_params *p)
{
    if (!p->fill.room)
        p->fill.room = qr_alloc(FILL_MAX, qr_dtype_bytes(p->real));
    return p->fill.room;
}

/* Value i becomes x. On a device once enough neighbours have come together, or at flush(). */
static void put(struct qr_params *p, int64_t i, double x)
{
    struct qr_params_fill *f = &p->fill;
    void *to = p->value;
    if (!p->be->mem->host) {
        if (f->n == FILL_MAX || i != f->first + f->n)
            flush(p);
        f->first = f->n ? f->first : i;
        to = fill_room(p);
        i = f->n++;
    }
    if (p->real == QR_F64)
        ((double *)to)[i] = x;
    else
        ((float *)to)[i] = (float)x;
}

static void round_range(struct qr_params *p, int64_t first, int64_t n)
{
    flush(p);
    const struct qr_scale_args a = {.half = p->half + first, .x = (const float *)p->value + first, .n = n, .half_scale = 1};
    if (p->half && n > 0)
        p->be->b->scale(p->be->queue, &a);
}

/* A tensor's values are there. */
static void fill_ends(struct qr_params *p, const struct qr_param *t)
{
    const struct qr_param *last = &p->param[p->n_params - 1];
    round_range(p, t->first, t->n);
    if (p->hold.progress)
        qr_progress_show(p->hold.progress, (uint64_t)(t->first + t->n), (uint64_t)(last->first + last->n));
    if (p->hold.filled)
        p->hold.filled(p->hold.user, p, t);
}

int qr_params_open_held(struct qr_params **out, const char *dir, struct qr_backend *be, enum qr_dtype real, enum qr_dtype compute,
                        const struct qr_params_hold *hold, struct qr_err *err)
{
    QR_ASSERT(out != NULL && dir != NULL && be != NULL);
    QR_ASSERT(err != NULL);
    struct qr_model_config c;
    struct qr_tensor_files *st = NULL;
    struct qr_source *source;
    int rc = qr_source_open(&source, dir, err);
    if (rc)
        return rc;
    rc = qr_model_config_from(&c, source, err);
    rc = rc ? rc : qr_tensor_files_open_from(&st, source, &c.quant, err);
    qr_source_unref(source);
    if (rc)
        return rc;
    qr_weights_fit(&c, st);
    if (c.headless)
        rc = qr_err_set(err, QR_E_UNSUPPORTED, "%s without a head is served for embeddings, not trained or merged", c.arch_name);
    if (rc || (rc = qr_weights_check(st, &c, err)) != 0) {
        qr_tensor_files_close(st);
        return qr_err_prefix(err, "%s: ", dir);
    }
    struct qr_params *p = params_new(&c, be, real, compute, hold);
    for (int32_t k = 0; k < p->n_params; k++) {
        const struct qr_stored_tensor *t = qr_weights_find_named(st, c.arch, p->param[k].name);
        const int64_t n_cols = p->param[k].n / t->shape[0];
        float *row = qr_alloc((size_t)n_cols, sizeof *row);
        for (int64_t i = 0; i < p->param[k].n; i++) {
            if (i % n_cols == 0)
                qr_tensor_files_decode(st, t, row, i / n_cols, 1);
            put(p, p->param[k].first + i, (double)row[i % n_cols]);
        }
        qr_free(row);
        qr_tensor_files_drop(st, t);
        fill_ends(p, &p->param[k]);
    }
    qr_tensor_files_close(st);
    qr_params_pack(p);
    *out = p;
    return 0;
}

int qr_params_open(struct qr_params **out, const char *dir, struct qr_backend *be, enum qr_dtype real, enum qr_dtype compute, struct qr_err *err)
{
    return qr_params_open_held(out, dir, be, real, compute, NULL, err);
}

/* Box and Muller's normal numbers. */
static double normal(uint64_t seed, uint64_t stream, uint64_t pos)
{
    const double u = 1 - qr_rng_unit(seed, stream, 2 * pos), v = qr_rng_unit(seed, stream, 2 * pos + 1); /* u > 0 */
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

/* Normal numbers [at, at + n) of a tensor, which the host's threads draw. */
struct draw {
    float *to;
    double size;
    uint64_t seed, stream, at;
    int64_t n;
};

static void draw_item(const void *arg, int32_t item, int32_t worker)
{
    const struct draw *d = arg;
    const int64_t first = (int64_t)item * DRAW_NUMBERS, last = first + DRAW_NUMBERS < d->n ? first + DRAW_NUMBERS : d->n;
    for (int64_t i = first; i < last; i++)
        d->to[i] = (float)(d->size * normal(d->seed, d->stream, d->at + (uint64_t)i));
}

/* A tensor's values: `constant`, or with size > 0 normal numbers of that deviation, which are those of any number of threads. */
static void fill_tensor(struct qr_params *p, int32_t k, double size, double constant, uint64_t seed)
{
    const struct qr_param *t = &p->param[k];
    for (int64_t i = 0; size <= 0 && i < t->n; i++)
        put(p, t->first + i, constant);
    flush(p);
    for (int64_t at = 0; size > 0 && at < t->n; at += FILL_MAX) {
        const int64_t n = t->n - at < FILL_MAX ? t->n - at : FILL_MAX;
        float *value = (float *)p->value + t->first + at, *to = p->be->mem->host ? value : fill_room(p);
        const struct draw d = {.to = to, .size = size, .seed = seed, .stream = (uint64_t)k, .at = (uint64_t)at, .n = n};
        qr_backend_run(p->be, draw_item, &d, (int32_t)((n + DRAW_NUMBERS - 1) / DRAW_NUMBERS));
        if (to != value)
            p->be->mem->put(p->be->queue, value, to, (size_t)n * sizeof *to);
    }
    fill_ends(p, t);
}

void qr_params_init_held(struct qr_params **out, const struct qr_model_config *c, struct qr_backend *be, enum qr_dtype compute, double std, uint64_t seed,
                         const struct qr_params_hold *hold)
{
    QR_ASSERT(out != NULL && c != NULL && be != NULL);
    QR_ASSERT(std > 0 && (compute == QR_F32 || compute == QR_BF16));
    struct qr_params *p = params_new(c, be, QR_F32, compute, hold);
    for (int32_t k = 0; k < p->n_params; k++) {
        const struct qr_param *t = &p->param[k];
        const bool writes_residual = strstr(t->name, "o_proj.weight") || strstr(t->name, "down_proj.weight");
        const double size = writes_residual ? std / sqrt(2.0 * c->n_layers) : std;
        fill_tensor(p, k, t->decays ? size : 0, strstr(t->name, "norm.weight") ? 1 : 0, seed);
    }
    qr_params_pack(p);
    *out = p;
}

void qr_params_init(struct qr_params **out, const struct qr_model_config *c, struct qr_backend *be, enum qr_dtype compute, double std, uint64_t seed)
{
    qr_params_init_held(out, c, be, compute, std, seed, NULL);
}

void qr_params_round(struct qr_params *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->value != NULL);
    round_range(p, 0, p->n);
}

/* Where a matrix of bf16 lies in one of the arrays of such. */
static int64_t half_index(const struct qr_params *p, const struct qr_weight *w)
{
    const char *at = w->t.data, *base = (const char *)(p->seen ? p->seen : p->half);
    return (at - base) / (int64_t)sizeof *p->half;
}

struct trip {
    const uint16_t *from;
    uint16_t *to;
    enum qr_dtype type;
    int64_t n_rows, n_in;
};

static void trip_item(const void *arg, int32_t item, int32_t worker)
{
    const struct trip *j = arg;
    const int64_t first = (int64_t)item * TRIP_ROWS, n = j->n_rows - first < TRIP_ROWS ? j->n_rows - first : TRIP_ROWS;
    qr_round_trip(j->to + first * j->n_in, j->from + first * j->n_in, j->type, n, j->n_in);
}

/* One matrix: packed, and where products round it as they see it. */
static void pack_one(struct qr_params *p, const struct qr_weight *w)
{
    const int64_t n_rows = w->t.shape[0];
    const void *rows = p->seen ? p->half + half_index(p, w) : w->t.data;
    p->be->k->linear_pack(p->be->queue, w->packed, w->packed_dtype, n_rows, w->t.shape[1], 0, rows, w->t.dtype, n_rows);
    if (!p->seen)
        return;
    const struct trip j = {.from = rows, .to = w->t.data, .type = w->packed_dtype, .n_rows = n_rows, .n_in = w->t.shape[1]};
    qr_backend_run(p->be, trip_item, &j, (int32_t)((n_rows + TRIP_ROWS - 1) / TRIP_ROWS));
}

static void pack_layers(struct qr_params *p, int32_t first, int32_t last)
{
    for (struct qr_weight_walk k = qr_weight_walk_begin(&p->config); qr_weight_walk_next(&k);)
        if (k.layer >= first && k.layer <= last && is_whole(&k, QR_KIND_MATRIX))
            pack_one(p, weight_at(&p->weights, &k));
}

static void divide_last_norm(struct qr_params *p)
{
    const struct qr_param *t = qr_params_find(p, LAST_NORM);
    const struct qr_scale_args a = {.out = p->last_norm, .x = (const float *)(const void *)((char *)p->value + (size_t)t->first * qr_dtype_bytes(p->real)),
                                    .n = t->n, .scale = last_norm_factor(p)};
    p->be->b->scale(p->be->queue, &a);
}

void qr_params_pack(struct qr_params *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->weights.region != NULL);
    if (p->last_norm)
        divide_last_norm(p);
    pack_layers(p, -1, p->hold.layers_apart ? -1 : p->config.n_layers - 1);
}

void qr_params_pack_layer(struct qr_params *p, int32_t layer)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(layer >= -1 && layer < p->config.n_layers);
    pack_layers(p, layer, layer);
}

void *qr_params_packed(const struct qr_params *p, int32_t layer, size_t *n_bytes)
{
    QR_ASSERT(p != NULL && n_bytes != NULL);
    QR_ASSERT(layer >= -1 && layer < p->config.n_layers);
    size_t before = 0;
    *n_bytes = 0;
    for (struct qr_weight_walk k = qr_weight_walk_begin(&p->config); qr_weight_walk_next(&k);) {
        if (!is_whole(&k, QR_KIND_MATRIX) || k.layer > layer)
            continue;
        before += k.layer < layer ? packed_bytes(p, &k) : 0;
        *n_bytes += k.layer == layer ? packed_bytes(p, &k) : 0;
    }
    return (uint8_t *)p->weights.region + before;
}

void qr_params_zero_grad(struct qr_params *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->grad != NULL);
    p->be->mem->zero(p->be->queue, p->grad, (size_t)p->n * qr_dtype_bytes(p->real));
    for (int32_t k = 0; k < p->n_params; k++)
        p->param[k].stale = false;
}

/* Zeroes a tensor's gradient if it is stale. */
static void zero_stale(const struct qr_params *p, struct qr_param *t)
{
    const size_t size = qr_dtype_bytes(p->real);
    if (t->stale)
        p->be->mem->zero(p->be->queue, (char *)p->grad + (size_t)t->first * size, (size_t)t->n * size);
    t->stale = false;
}

void qr_params_settle(struct qr_params *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(!p->planned);
    for (int32_t k = 0; k < p->n_params; k++)
        zero_stale(p, &p->param[k]);
}

/* Its first element in the arrays. */
static int64_t index_of(const struct qr_params *p, const struct qr_weight *w)
{
    const char *at = w->t.data, *half = (const char *)p->half, *seen = (const char *)p->seen, *value = p->value;
    const int64_t n_bytes = p->n * (int64_t)sizeof *p->half;
    const bool rounded = half && at >= half && at < half + n_bytes;
    if (seen && at >= seen && at < seen + n_bytes)
        return half_index(p, w);
    if (p->last_norm && at == p->last_norm)
        return qr_params_find(p, LAST_NORM)->first;
    const int64_t i = rounded ? (at - half) / (int64_t)sizeof *p->half : (at - value) / (int64_t)qr_dtype_bytes(p->real);
    QR_ASSERT(i >= 0 && i < p->n);
    return i;
}

void *qr_params_grad(const struct qr_params *p, const struct qr_weight *w)
{
    QR_ASSERT(p != NULL && w != NULL);
    QR_ASSERT(!p->planned);
    const int64_t first = index_of(p, w), end = first + qr_tensor_count(&w->t);
    for (int32_t k = 0; k < p->n_params; k++)
        if (p->param[k].first >= first && p->param[k].first < end)
            zero_stale(p, &p->param[k]);
    return (char *)p->grad + first * (int64_t)qr_dtype_bytes(p->real);
}

bool qr_params_grad_is_fresh(const struct qr_params *p, const struct qr_weight *w)
{
    QR_ASSERT(p != NULL && w != NULL);
    QR_ASSERT(!p->planned);
    const int64_t first = index_of(p, w), n = qr_tensor_count(&w->t);
    int64_t n_stale = 0;
    for (int32_t k = 0; k < p->n_params; k++)
        n_stale += p->param[k].stale && p->param[k].first >= first && p->param[k].first < first + n ? p->param[k].n : 0;
    for (int32_t k = 0; n_stale == n && k < p->n_params; k++)
        if (p->param[k].first >= first && p->param[k].first < first + n)
            p->param[k].stale = false;
    return n_stale == n;
}

void *qr_params_vector(const struct qr_params *p, const struct qr_weight *w, double *factor)
{
    QR_ASSERT(p != NULL && w != NULL && factor != NULL);
    QR_ASSERT(w->t.n_dims == 1 && !p->planned);
    *factor = p->last_norm && w->t.data == p->last_norm ? last_norm_factor(p) : 1;
    return (char *)p->value + index_of(p, w) * (int64_t)qr_dtype_bytes(p->real);
}

const char *qr_params_name(const struct qr_params *p, const struct qr_weight *w)
{
    QR_ASSERT(p != NULL && w != NULL);
    const int64_t first = index_of(p, w);
    int32_t k = p->n_params - 1;
    while (k > 0 && p->param[k].first > first)
        k--;
    QR_ASSERT(p->param[k].first == first);
    return p->param[k].name;
}

bool qr_param_is_layer_matrix(const struct qr_param *t)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(t->n_dims == 1 || t->n_dims == 2);
    return t->n_dims == 2 && strncmp(t->name, "model.layers.", 13) == 0;
}

const struct qr_param *qr_params_find(const struct qr_params *p, const char *name)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(name != NULL);
    for (int32_t i = 0; i < p->n_params; i++)
        if (strcmp(p->param[i].name, name) == 0)
            return &p->param[i];
    return NULL;
}
