/* lora.c - slots of adapters beside a model's matrices, filled from files or from rank 0's messages, and the launch that adds
 * them to a product.
 *
 * A slot's image begins with a table of its pairs by layer and matrix; places in it are offsets until the image is complete,
 * so that it can be packed on one rank and used on another.
 * Guarantee: all memory is taken when slots are made; a row without an adapter computes as if there were none.
 * Thread: a slot is its filler's until a batch names it; computing is the engine's. */
#include "model/lora.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/half.h"
#include "base/mem.h"
#include "loader/pack/share.h"
#include "loader/weights.h"
#include "model/ranks.h"

#define KINDS_MAX 16 /* different matrices of a layer */
#define ALIGN 64
#define SERVED "the model that is served" /* in messages */
#define HEADER_MAX ((size_t)16 << 20)

/* The matrices that are adapted: one for each struct qr_weight of a layer, of up to three parts; `at` is the weight's offset in its layer. */
struct qr_lora {
    const struct qr_weights *weights; /* borrowed */
    struct qr_share share;            /* this rank's of the model */
    struct qr_backend *be;            /* borrowed */
    enum qr_dtype dtype;
    int32_t n_slots, rank_max, n_kinds;
    size_t at[KINDS_MAX];
    size_t whole_bytes;               /* of a slot, had this rank all of the model */
    size_t slot_bytes, table_bytes;   /* a slot begins with a copy of its parts, [n_layers][n_kinds], for kernels that look them up themselves */
    uint8_t *memory;                  /* owned [n_slots][slot_bytes], kernels' */
    uint8_t *host;                    /* the same, where fillers write it: owned, or memory itself; a device gets it with the first batch that names it */
    size_t *pending;                  /* owned [n_slots]: bytes of a slot that the device does not have yet; the filler's as the slot */
    struct qr_adapt_parts *parts;     /* owned [n_layers][n_kinds][n_slots]; a slot's are its filler's */
    float *mid;                       /* owned [n_tokens][mid_stride] */
    int64_t mid_stride;
    int32_t n_tokens;
    uint8_t *stage;                   /* owned [slot_bytes]: of rank 0 of several, else NULL: what another rank's slot will hold */
};

enum qr_dtype qr_lora_dtype(enum qr_dtype weights)
{
    return weights == QR_F32 ? QR_F32 : QR_BF16;
}

/* ---- sizes ---- */

/* As the product has it, however the model's file does. */
static void shape_of(int64_t shape[2], const struct qr_model_config *c, const struct qr_weight_row *row)
{
    shape[0] = qr_dim_value(c, row->n_out);
    shape[1] = qr_dim_value(c, row->n_in);
}

/* A matrix of a layer that is multiplied by itself, not with others of a stack (experts). */
static bool takes_adapter(const struct qr_weight_walk *k)
{
    return k->row->per_layer && k->row->kind == QR_KIND_MATRIX && !k->row->stacked;
}

/* Bytes of a pair, each matrix aligned. */
static size_t pair_bytes(int64_t n_out, int64_t n_in, int64_t rank, enum qr_dtype dtype)
{
    const size_t size = qr_dtype_bytes(dtype);
    return qr_align_up((size_t)(rank * n_in) * size, ALIGN) + qr_align_up((size_t)qr_adapt_b_elements(rank, n_out) * size, ALIGN);
}

/* Fills in at. */
static int32_t count_kinds(const struct qr_model_config *c, size_t at[KINDS_MAX])
{
    int32_t n = 0, layer = -1, seen[KINDS_MAX] = {0};
    for (struct qr_weight_walk k = qr_weight_walk_begin(c); qr_weight_walk_next(&k);) {
        if (k.layer != layer)
            memset(seen, 0, sizeof seen);
        layer = k.layer;
        if (!takes_adapter(&k))
            continue;
        int32_t i = 0;
        while (i < n && at[i] != k.row->at)
            i++;
        if (i == n) {
            QR_ASSERT(n < KINDS_MAX);
            at[n++] = k.row->at;
        }
        seen[i]++;
        QR_ASSERT(seen[i] <= QR_ADAPT_PARTS_MAX);
    }
    return n;
}

static size_t table_bytes(const struct qr_model_config *c)
{
    size_t at[KINDS_MAX];
    return qr_align_up((size_t)c->n_layers * (size_t)count_kinds(c, at) * sizeof(struct qr_adapt_parts), ALIGN);
}

int64_t qr_lora_slot_bytes(const struct qr_model_config *c, enum qr_dtype weights, int32_t rank_max)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(rank_max >= 1 && rank_max <= QR_LORA_RANK_MAX);
    size_t n = table_bytes(c);
    int64_t shape[2];
    for (struct qr_weight_walk k = qr_weight_walk_begin(c); qr_weight_walk_next(&k);)
        if (takes_adapter(&k)) {
            shape_of(shape, c, k.row);
            n += pair_bytes(shape[0], shape[1], rank_max, qr_lora_dtype(weights));
        }
    return (int64_t)n;
}

static int64_t mid_stride(int32_t rank_max)
{
    return (int64_t)QR_ADAPT_PARTS_MAX * rank_max;
}

int64_t qr_lora_shared_bytes(const struct qr_model_config *c, int32_t n_slots, int32_t rank_max, int32_t n_tokens)
{
    QR_ASSERT(c != NULL && n_slots >= 1);
    QR_ASSERT(rank_max >= 1 && n_tokens >= 1);
    size_t at[KINDS_MAX];
    const int64_t sites = (int64_t)c->n_layers * count_kinds(c, at);
    return sites * n_slots * (int64_t)sizeof(struct qr_adapt_parts) + (int64_t)n_tokens * mid_stride(rank_max) * (int64_t)sizeof(float);
}

int64_t qr_lora_stage_bytes(const struct qr_model_config *c, enum qr_dtype weights, int32_t rank_max)
{
    const int64_t slot = qr_lora_slot_bytes(c, weights, rank_max);
    return slot + (slot < QR_LORA_PIECE_MAX ? slot : QR_LORA_PIECE_MAX);
}

/* ---- life ---- */

int qr_lora_supports(const struct qr_backend *be, struct qr_err *err)
{
    QR_ASSERT(be != NULL);
    QR_ASSERT(err != NULL);
    if (be->k->adapt)
        return 0;
    return qr_err_set(err, QR_E_UNSUPPORTED, "adapters are not computed on %s; use --device cpu, or a model with them merged (quire lora merge)", be->title);
}

int qr_lora_new(struct qr_lora **out, const struct qr_model *m, struct qr_backend *be, int32_t n_slots, int32_t rank_max, int32_t n_tokens,
                struct qr_err *err)
{
    QR_ASSERT(out != NULL && m != NULL && be != NULL && err != NULL);
    QR_ASSERT(n_slots >= 1 && n_slots <= QR_LORA_SLOTS_MAX && rank_max >= 1 && rank_max <= QR_LORA_RANK_MAX && n_tokens >= 1);
    int64_t dtype = qr_lora_dtype(qr_model_weight_dtype(m)); /* ranks may have packed their parts of some weights as different types */
    int rc = qr_lora_supports(be, err);
    rc = rc ? rc : qr_ranks_agree(qr_model_comm(m), &dtype, 1, err);
    if (rc)
        return rc;
    struct qr_lora *l = qr_alloc(1, sizeof *l);
    l->weights = qr_model_weights(m);
    l->share = *qr_model_share(m);
    l->be = be;
    l->n_slots = n_slots;
    l->rank_max = rank_max;
    l->n_tokens = n_tokens;
    l->dtype = (enum qr_dtype)dtype;
    l->n_kinds = count_kinds(&l->share.own, l->at);
    l->table_bytes = table_bytes(&l->share.own);
    l->slot_bytes = (size_t)qr_lora_slot_bytes(&l->share.own, l->dtype, rank_max);
    l->whole_bytes = (size_t)qr_lora_slot_bytes(&l->share.whole, l->dtype, rank_max);
    l->mid_stride = mid_stride(rank_max);
    const size_t sites = (size_t)l->share.own.n_layers * (size_t)l->n_kinds, mid_bytes = (size_t)n_tokens * (size_t)l->mid_stride * sizeof *l->mid;
    l->parts = qr_alloc(sites * (size_t)n_slots, sizeof *l->parts);
    l->memory = be->mem->alloc((size_t)n_slots * l->slot_bytes);
    l->mid = be->mem->alloc(mid_bytes);
    l->host = be->mem->host ? l->memory : be->mem->host_alloc((size_t)n_slots * l->slot_bytes);
    l->pending = qr_alloc((size_t)n_slots, sizeof *l->pending);
    l->stage = l->share.size > 1 && l->share.rank == 0 ? qr_alloc(l->slot_bytes, 1) : NULL;
    qr_mem_populate(l->host, (size_t)n_slots * l->slot_bytes);
    if (be->mem->host)
        qr_mem_populate(l->mid, mid_bytes);
    *out = l;
    return 0;
}

void qr_lora_free(struct qr_lora *l)
{
    if (!l)
        return;
    if (!l->be->mem->host) {
        l->be->mem->sync(l->be->queue); /* a slot may be under way */
        l->be->mem->host_free(l->host);
    }
    l->be->mem->free(l->memory);
    l->be->mem->free(l->mid);
    qr_free(l->stage);
    qr_free(l->pending);
    qr_free(l->parts);
    qr_free(l);
}

/* ---- filling ---- */

size_t qr_lora_file_max(const struct qr_lora *l)
{
    QR_ASSERT(l != NULL);
    QR_ASSERT(l->whole_bytes > 0);
    return l->whole_bytes / qr_dtype_bytes(l->dtype) * sizeof(float) + HEADER_MAX;
}

static void store(void *to, enum qr_dtype dtype, int64_t i, float x)
{
    if (dtype == QR_F32)
        ((float *)to)[i] = x;
    else
        ((uint16_t *)to)[i] = qr_f32_to_bf16(x);
}

/* The share's columns of A's rows, and its rows of B to where the kernel looks for them; `line` has room for the longer of either's rows. */
static void copy_pair(const struct qr_lora_file *f, const struct qr_lora_pair *pair, const struct qr_share *s, const struct qr_weight_row *w, void *a, void *b,
                      enum qr_dtype dtype, float *line)
{
    struct qr_span in[QR_SHARE_SPANS_MAX], out[QR_SHARE_SPANS_MAX];
    const int32_t n_in = qr_share_spans(in, s, w->n_in), n_out = qr_share_spans(out, s, w->n_out);
    const int64_t rank = pair->rank;
    int64_t at = 0, own = 0;
    for (int64_t j = 0; j < rank; j++) {
        qr_lora_file_decode(f, pair->a, line, j, 1);
        for (int32_t k = 0; k < n_in; k++)
            for (int64_t i = 0; i < in[k].n; i++)
                store(a, dtype, at++, line[in[k].first + i]);
    }
    memset(b, 0, (size_t)qr_adapt_b_elements(rank, qr_dim_value(&s->own, w->n_out)) * qr_dtype_bytes(dtype));
    for (int32_t k = 0; k < n_out; k++)
        for (int64_t o = 0; o < out[k].n; o++, own++) {
            qr_lora_file_decode(f, pair->b, line, out[k].first + o, 1);
            for (int64_t j = 0; j < rank; j++)
                store(b, dtype, qr_adapt_b_at(rank, own, j), line[j]);
        }
}

static int32_t kind_of(const struct qr_lora *l, size_t at)
{
    for (int32_t k = 0; k < l->n_kinds; k++)
        if (l->at[k] == at)
            return k;
    return -1;
}

/* What f adds to the matrix that the walk is at, whose shape is [n_out, n_in] in the whole model. */
static int find_pair(struct qr_lora_pair *out, int64_t shape[2], const struct qr_model_config *whole, struct qr_lora_file *f, const struct qr_weight_walk *k,
                     int32_t rank_max, struct qr_err *err)
{
    char name[QR_WEIGHT_NAME_MAX];
    shape_of(shape, whole, k->row);
    int rc = qr_lora_file_find(f, out, qr_weight_walk_name(name, k), shape[0], shape[1], SERVED, err);
    if (rc || !out->a)
        return rc;
    if (!takes_adapter(k))
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s: an adapter of an expert, expected adapters of matrices that every token goes through", name);
    if (out->rank > rank_max)
        return qr_err_set(err, QR_E_TOO_LARGE, "%s: its adapter has rank %d, expected at most %d (--lora-rank-max)", name, out->rank, rank_max);
    if (!isfinite(out->scale))
        return qr_err_set(err, QR_E_DAMAGED, "%s: alpha and rank %d give no scale, expected a finite number", name, out->rank);
    return 0;
}

int qr_lora_check(const struct qr_model_config *c, struct qr_lora_file *f, int32_t rank_max, struct qr_err *err)
{
    QR_ASSERT(c != NULL && f != NULL);
    QR_ASSERT(rank_max >= 1 && err != NULL);
    struct qr_lora_pair pair;
    int64_t shape[2];
    int rc = qr_lora_file_fit(f, c, c->transposed, err);
    for (struct qr_weight_walk k = qr_weight_walk_begin(c); rc == 0 && qr_weight_walk_next(&k);)
        if (k.row->per_layer && k.row->kind == QR_KIND_MATRIX)
            rc = find_pair(&pair, shape, c, f, &k, rank_max, err);
    return rc ? rc : qr_lora_file_check_used(f, SERVED, err);
}

/* A matrix of a layer: what is added to the share's part of it goes to the image at *used. f was checked. */
static void put_matrix(const struct qr_lora *l, uint8_t *image, const struct qr_share *s, struct qr_lora_file *f, const struct qr_weight_walk *k, size_t *used)
{
    int64_t whole[2], own[2];
    struct qr_lora_pair pair;
    struct qr_err err;
    if (find_pair(&pair, whole, &s->whole, f, k, l->rank_max, &err))
        qr_panic("an adapter that was checked: %s", err.msg);
    if (!pair.a)
        return;
    shape_of(own, &s->own, k->row);
    struct qr_adapt_parts *parts = (struct qr_adapt_parts *)(void *)image + (int64_t)k->layer * l->n_kinds + kind_of(l, k->row->at);
    const size_t a = *used, b = a + qr_align_up((size_t)(pair.rank * own[1]) * qr_dtype_bytes(l->dtype), ALIGN);
    float *line = qr_alloc((size_t)(whole[1] > pair.rank ? whole[1] : pair.rank), sizeof *line);
    *used += pair_bytes(own[0], own[1], pair.rank, l->dtype);
    QR_ASSERT(*used <= l->slot_bytes);
    copy_pair(f, &pair, s, k->row, image + a, image + b, l->dtype, line);
    qr_free(line);
    parts->part[parts->n++] = (struct qr_adapt_part){.a = (void *)(uintptr_t)a, .b = (void *)(uintptr_t)b,
                                                     .first = (int32_t)qr_dim_value(&s->own, k->row->first), .n_out = (int32_t)own[0],
                                                     .rank = pair.rank, .scale = pair.scale};
}

/* What a slot of the share holds of f, with places in the slot instead of addresses. Returns its bytes. */
static size_t put_image(const struct qr_lora *l, uint8_t *image, const struct qr_share *s, struct qr_lora_file *f)
{
    size_t used = l->table_bytes;
    memset(image, 0, used);
    for (struct qr_weight_walk k = qr_weight_walk_begin(&s->own); qr_weight_walk_next(&k);)
        if (takes_adapter(&k))
            put_matrix(l, image, s, f, &k, &used);
    return used;
}

/* The slot's image is complete, and gets its addresses. used 0: there is none. */
static void settle(const struct qr_lora *l, int32_t slot, size_t used)
{
    const int64_t sites = (int64_t)l->share.own.n_layers * l->n_kinds;
    const size_t at = (size_t)slot * l->slot_bytes;
    struct qr_adapt_parts *table = (struct qr_adapt_parts *)(void *)(l->host + at);
    if (used == 0)
        memset(table, 0, l->table_bytes);
    for (int64_t i = 0; i < sites; i++) {
        for (int32_t p = 0; p < table[i].n; p++) {
            struct qr_adapt_part *part = &table[i].part[p];
            part->a = l->memory + at + (uintptr_t)part->a;
            part->b = l->memory + at + (uintptr_t)part->b;
        }
        l->parts[i * l->n_slots + slot] = table[i];
    }
    l->pending[slot] = l->be->mem->host ? 0 : used;
}

int qr_lora_fill(struct qr_lora *l, int32_t slot, struct qr_lora_file *f, struct qr_err *err)
{
    QR_ASSERT(l != NULL && f != NULL && err != NULL);
    QR_ASSERT(slot >= 0 && slot < l->n_slots);
    const int rc = qr_lora_check(&l->share.whole, f, l->rank_max, err);
    settle(l, slot, rc ? 0 : put_image(l, l->host + (size_t)slot * l->slot_bytes, &l->share, f));
    return rc;
}

/* ---- other ranks' slots ---- */

int64_t qr_lora_pack(struct qr_lora *l, int32_t rank, struct qr_lora_file *f)
{
    QR_ASSERT(l != NULL && l->stage != NULL && f != NULL);
    QR_ASSERT(rank > 0 && rank < l->share.size);
    struct qr_share s;
    struct qr_err err;
    if (qr_share_make(&s, &l->share.whole, rank, l->share.size, &err))
        qr_panic("the share of rank %d: %s", rank, err.msg); /* this rank's was made */
    return (int64_t)put_image(l, l->stage, &s, f); /* no longer than a slot of rank 0, which has most of everything */
}

const uint8_t *qr_lora_packed(const struct qr_lora *l)
{
    QR_ASSERT(l != NULL);
    QR_ASSERT(l->stage != NULL);
    return l->stage;
}

void qr_lora_receive(const struct qr_lora *l, const struct qr_lora_piece *p, const uint8_t *bytes)
{
    QR_ASSERT(l != NULL && p != NULL && bytes != NULL);
    QR_ASSERT(p->slot >= 0 && p->slot < l->n_slots && p->first >= 0 && p->n >= 0);
    QR_ASSERT(p->first + p->n <= p->total && (size_t)p->total <= l->slot_bytes);
    memcpy(l->host + (size_t)p->slot * l->slot_bytes + p->first, bytes, (size_t)p->n);
    if (p->first + p->n == p->total)
        settle(l, p->slot, (size_t)p->total);
}

/* ---- files of one's own ---- */

/* Every rank reads them itself: they have to be those of rank 0. */
static int same_files(const struct qr_model *m, struct qr_lora_file *const *file, const char *const *dir, int32_t n, struct qr_err *err)
{
    int64_t theirs[2 * QR_LORA_SLOTS_MAX];
    for (int32_t i = 0; i < n; i++) {
        const struct qr_hash128 h = qr_lora_file_hash(file[i]);
        memcpy(&theirs[2 * i], &h, sizeof h);
    }
    int rc = qr_ranks_agree(qr_model_comm(m), theirs, 2 * n, err);
    for (int32_t i = 0; rc == 0 && i < n; i++) {
        const struct qr_hash128 h = qr_lora_file_hash(file[i]);
        if (memcmp(&theirs[2 * i], &h, sizeof h) != 0)
            rc = qr_err_set(err, QR_E_INVALID, "%s: other files than those of rank 0, expected the same adapter on every machine", dir[i]);
    }
    return rc;
}

static int open_all(struct qr_lora **out, const struct qr_model *m, struct qr_backend *be, struct qr_lora_file **file,
                    const char *const *dir, int32_t n, int32_t n_tokens, struct qr_err *err)
{
    int32_t rank = 1;
    for (int32_t i = 0; i < n; i++)
        rank = qr_lora_file_rank(file[i]) > rank ? qr_lora_file_rank(file[i]) : rank;
    int rc = same_files(m, file, dir, n, err);
    rc = rc ? rc : qr_lora_new(out, m, be, n, rank, n_tokens, err);
    for (int32_t i = 0; rc == 0 && i < n; i++) {
        rc = qr_lora_fill(*out, i, file[i], err);
        if (rc)
            qr_err_prefix(err, "%s: ", dir[i]);
    }
    return rc;
}

int qr_lora_open(struct qr_lora **out, const struct qr_model *m, struct qr_backend *be, const char *const *dir, int32_t n, int32_t n_tokens,
                 struct qr_err *err)
{
    QR_ASSERT(out != NULL && m != NULL && be != NULL);
    QR_ASSERT(dir != NULL && n >= 1 && n <= QR_LORA_SLOTS_MAX && err != NULL);
    struct qr_lora_file *file[QR_LORA_SLOTS_MAX] = {0};
    struct qr_lora *l = NULL;
    int rc = 0;
    for (int32_t i = 0; rc == 0 && i < n; i++)
        rc = qr_lora_file_open(&file[i], dir[i], NULL, SIZE_MAX, err);
    rc = rc ? rc : open_all(&l, m, be, file, dir, n, n_tokens, err);
    for (int32_t i = 0; i < n; i++)
        qr_lora_file_close(file[i]);
    if (rc)
        qr_lora_free(l);
    else
        *out = l;
    return rc;
}

/* ---- computing ---- */

void qr_lora_bring(struct qr_exec *x)
{
    QR_ASSERT(x != NULL && x->batch != NULL);
    QR_ASSERT(x->batch->n_groups == 0 || x->lora != NULL);
    const struct qr_lora *l = x->lora;
    for (int32_t g = 0; g < x->batch->n_groups; g++) {
        const size_t slot = (size_t)x->batch->group[g].slot;
        if (l->pending[slot] > 0)
            l->be->mem->send(l->be->queue, l->memory + slot * l->slot_bytes, l->host + slot * l->slot_bytes, l->pending[slot]);
        l->pending[slot] = 0;
    }
}

/* What each slot adds to w's product [by slot]; NULL: nothing is ever added to this one. */
static const struct qr_adapt_parts *parts_of(const struct qr_lora *l, const struct qr_weight *w)
{
    QR_ASSERT(l != NULL);
    QR_ASSERT(w != NULL);
    const uintptr_t first = (uintptr_t)l->weights->layer, at = (uintptr_t)w, size = sizeof *l->weights->layer;
    if (at < first || at - first >= size * (uintptr_t)l->weights->n_layers)
        return NULL;
    const int32_t kind = kind_of(l, (size_t)((at - first) % size));
    const int64_t site = (int64_t)((at - first) / size) * l->n_kinds + kind;
    return kind >= 0 ? &l->parts[site * l->n_slots] : NULL;
}

void qr_lora_apply(struct qr_exec *x, struct qr_tensor *out, const struct qr_tensor *in, const struct qr_weight *w)
{
    QR_ASSERT(x != NULL && out != NULL && in != NULL);
    QR_ASSERT(out->shape[0] == in->shape[0] && out->shape[0] == x->batch->n_tokens);
    const struct qr_lora *l = x->lora;
    const struct qr_adapt_parts *parts = l ? parts_of(l, w) : NULL;
    if (!parts)
        return;
    QR_ASSERT(x->batch->n_tokens <= l->n_tokens);
    const int64_t site = (parts - l->parts) / l->n_slots;
    const struct qr_adapt_args a = {.row_slot = x->batch->row_slot, .table = (const struct qr_adapt_parts *)(const void *)l->memory + site,
                                    .table_bytes = (int64_t)l->slot_bytes, .n_rows = x->batch->n_tokens, .n_out = (int32_t)out->shape[1], .out = out->data,
                                    .x = in->data, .mid = l->mid, .group = x->batch->group, .parts = parts,
                                    .out_stride = out->stride[0], .x_stride = in->stride[0], .mid_stride = l->mid_stride,
                                    .n_groups = x->batch->n_groups, .n_in = (int32_t)in->shape[1], .dtype = l->dtype};
    x->be->k->adapt(x->be->queue, &a);
}
