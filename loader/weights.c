/* weights.c - from a set of tensors to packed weights: chooses the type of each matrix, lays all of them out in one region, and
 * hands each tensor to the packer.
 *
 * A matrix of several tensors (q, k, v) that are stored alike has one type, else a part for each run that is alike. The walk over
 * the weight table is the same for choosing, placing and filling, so that the places agree.
 * Guarantee: the region's bytes depend on files, share and kernels alone.
 * Thread: the one that opens the model; packing runs on the backend's pool. */
#include "loader/weights.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/size.h"
#include "loader/pack/coded_rows.h"
#include "loader/stores/quantized_tensors.h"
#include "loader/pack/packed_cache.h"
#include "loader/pack/pack_matrix.h"
#include "loader/stores/tensor_files_parts.h"
#include "loader/weight_table.h"

#define REGION_ALIGN 64
#define RUN_BYTES ((uint64_t)128 << 20)     /* of the file that wait until all threads pack them: the end of each is waited for */
#define DECODE_ROWS QR_LINEAR_PACKED_TOGETHER /* of a thread at a time */

/* ---- types ---- */

static bool f16_fits_bf16(const uint8_t *bytes, uint64_t n_bytes)
{
    for (uint64_t i = 0; i < n_bytes; i += 2) {
        uint16_t h;
        memcpy(&h, bytes + i, 2);
        float v = qr_f16_to_f32(h), back = qr_bf16_to_f32(qr_f32_to_bf16(v));
        if (memcmp(&v, &back, sizeof v) != 0)
            return false;
    }
    return true;
}

/* Whether bf16 would lose something of what is stored. Blocks hold less than bf16 does, but for a scale's last bits. */
static bool needs_f32(const struct qr_tensor_files *st, const struct qr_stored_tensor *t)
{
    QR_ASSERT(t != NULL && t->type->computable);
    return !t->type->blocks && t->type->dtype != QR_BF16 && (t->type->dtype == QR_F32 || !f16_fits_bf16(qr_tensor_files_data(st, t), t->n_bytes));
}

/* The type that loses nothing. */
static enum qr_dtype lossless_dtype(const struct qr_tensor_files *st, const struct qr_model_config *c)
{
    char name[QR_WEIGHT_NAME_MAX];
    for (struct qr_weight_walk k = qr_weight_walk_begin(c); qr_weight_walk_next(&k);) {
        const struct qr_stored_tensor *t = qr_weights_find(&k, st, name);
        if (k.row->kind == QR_KIND_MATRIX && needs_f32(st, t))
            return QR_F32;
    }
    return QR_BF16;
}

/* The pieces that are multiplied as one with the one that the walk is at: *i is where to look for the next. False: there are no more. */
static bool next_piece(struct qr_weight_walk *piece, int32_t *i, const struct qr_weight_walk *k)
{
    for (; *i < k->n_rows; (*i)++) {
        const struct qr_weight_row *row = &k->table[*i];
        if (row->kind != k->row->kind || row->at != k->row->at || row->per_layer != k->row->per_layer || !qr_weight_row_holds(row, k->c, k->layer))
            continue;
        *piece = *k;
        piece->row = row;
        (*i)++;
        return true;
    }
    return false;
}

/* What a matrix is packed as: one code, or one for each run of its pieces that are stored alike. */
struct codes {
    struct qr_stored_code code[QR_WEIGHT_PARTS_MAX];
    int64_t n_out[QR_WEIGHT_PARTS_MAX]; /* of a share */
    int32_t n;
};

/* Whether a share's columns can be packed in a code. False: there are too many, or they begin or end in the middle of a group. */
static bool fits_columns(const struct qr_stored_code *code, const struct qr_share *share, enum qr_dim n_in)
{
    struct qr_span cols[QR_SHARE_SPANS_MAX];
    if (qr_share_spans(cols, share, n_in) != 1 || qr_dim_value(&share->whole, n_in) > qr_linear_inputs_max(code->type))
        return false;
    const struct qr_coded_format f = qr_dtype_coded(code->type);
    const int64_t unit = f.steps ? QR_CODED_UNIT : f.group;
    const bool ends = f.e4m3 && cols[0].first + cols[0].n == qr_dim_value(&share->whole, n_in); /* where its last group may be a part */
    return cols[0].first % unit == 0 && (cols[0].n % unit == 0 || ends);
}

/* The codes of the pieces of one matrix. False: one is stored as numbers, or their inputs stand in different orders, or a rank's columns cut a group. */
static bool codes_of(struct codes *out, const struct qr_tensor_files *st, const struct qr_share *share, const struct qr_weight_walk *k)
{
    char name[QR_WEIGHT_NAME_MAX];
    struct qr_weight_walk piece;
    *out = (struct codes){.n = 0};
    for (int32_t i = 0; next_piece(&piece, &i, k);) {
        struct qr_stored_code code, *last = out->n > 0 ? &out->code[out->n - 1] : NULL;
        if (!qr_stored_code(&code, qr_weights_find(&piece, st, name)) || (last && !qr_stored_code_in_order(last, &code)) ||
            !fits_columns(&code, share, k->row->n_in))
            return false;
        if (!last || !qr_stored_code_equal(last, &code))
            out->code[out->n++] = code;
        out->n_out[out->n - 1] += qr_dim_value(k->c, piece.row->n_out);
    }
    const bool unpicked = k->layer < 0 || k->row->stacked || share->size > 1; /* nothing picks a head's, an expert's or a rank's inputs */
    return out->n > 0 && !(out->code[0].inputs && unpicked);
}

/* And those of a stack, whose matrices have to be of one code: the walk is at its first expert. In types that the kernels have. */
static bool matrix_codes(struct codes *out, const struct qr_tensor_files *st, const struct qr_share *share, const struct qr_weight_walk *k,
                         const struct qr_kernels *kernels)
{
    struct qr_weight_walk other = *k;
    if (!codes_of(out, st, share, k) || (k->row->stacked && out->n > 1))
        return false;
    for (other.expert = 1; k->row->per_expert && other.expert < k->c->moe.n_experts; other.expert++) {
        struct codes c;
        if (!codes_of(&c, st, share, &other) || c.n > 1 || !qr_stored_code_equal(&c.code[0], &out->code[0]))
            return false;
    }
    for (int32_t i = 0; i < out->n; i++) {
        struct qr_stored_code *c = &out->code[i];
        if (kernels->linear_packed_bytes(c->type, QR_LINEAR_PACKED_TOGETHER, QR_CODED_UNIT) == 0)
            qr_stored_code_widen(c);
        if (kernels->linear_packed_bytes(c->type, QR_LINEAR_PACKED_TOGETHER, QR_CODED_UNIT) == 0 || (c->inputs && !kernels->pick_columns))
            return false;
    }
    return true;
}

/* What a matrix that is not kept as it is stored is packed as: a type that loses nothing. */
static enum qr_dtype numbers_as(const struct qr_tensor_files *st, const struct qr_weight_walk *k)
{
    char name[QR_WEIGHT_NAME_MAX];
    struct qr_weight_walk piece, one = *k;
    for (one.expert = 0; one.expert < (k->row->per_expert ? k->c->moe.n_experts : 1); one.expert++)
        for (int32_t i = 0; next_piece(&piece, &i, &one);)
            if (needs_f32(st, qr_weights_find(&piece, st, name)))
                return QR_F32;
    return QR_BF16;
}

/* Types of a matrix or table in a model of type `to`, and the order of its inputs, which is the file's until the matrix has its place. */
static void choose_type(struct qr_weight *dst, const struct qr_tensor_files *st, const struct qr_share *share, const struct qr_weight_walk *k,
                        const struct qr_kernels *kernels, enum qr_dtype to)
{
    struct codes c;
    const int64_t n_in = qr_dim_value(k->c, k->row->n_in);
    dst->packed_dtype = to != QR_CODED ? qr_weight_row_packed_as(k->row, to) : QR_CODED;
    if (to != QR_CODED)
        return;
    if (!matrix_codes(&c, st, share, k, kernels)) {
        dst->packed_dtype = numbers_as(st, k);
        return;
    }
    dst->inputs = qr_tensor_1d((void *)(uintptr_t)c.code[0].inputs, QR_I32, n_in);
    if (c.n == 1) {
        dst->packed_dtype = c.code[0].type;
        return;
    }
    size_t at = 0;
    for (int64_t first = 0; dst->n_parts < c.n; first += c.n_out[dst->n_parts++]) {
        const enum qr_dtype type = c.code[dst->n_parts].type;
        dst->part[dst->n_parts] = (struct qr_weight_part){type, first, c.n_out[dst->n_parts], at};
        at += qr_align_up(kernels->linear_packed_bytes(type, c.n_out[dst->n_parts], n_in), REGION_ALIGN);
    }
}

enum qr_dtype qr_weights_stored_dtype(const struct qr_tensor_files *st, const struct qr_share *share, const struct qr_kernels *kernels)
{
    QR_ASSERT(st != NULL && share != NULL);
    QR_ASSERT(kernels != NULL);
    struct codes c;
    for (struct qr_weight_walk k = qr_weight_walk_begin(&share->own); kernels->linear_pack_coded && qr_weight_walk_next(&k);)
        if (k.row->kind == QR_KIND_MATRIX && k.expert == 0 && matrix_codes(&c, st, share, &k, kernels))
            return QR_CODED;
    return lossless_dtype(st, &share->whole);
}

/* ---- loading ---- */

static struct qr_weight *weight_at(const struct qr_weights *w, const struct qr_weight_walk *k)
{
    char *owner = k->layer < 0 ? (char *)(uintptr_t)w : (char *)&w->layer[k->layer];
    return (struct qr_weight *)(void *)(owner + k->row->at);
}

/* Whether the packed head is the embedding's rows, bit for bit and all of them: then these are read from it and need no memory of their own. */
static bool head_is_table(const struct qr_weights *w, const struct qr_share *share)
{
    return share->whole.tied_head && share->size == 1 && !qr_dtype_rounds(w->matrix_dtype);
}

/* Of an order of inputs, which lies behind its matrix; 0: they are in their own. */
static size_t order_bytes(const struct qr_weight *w, int64_t n_in)
{
    return w->inputs.data ? qr_align_up((size_t)n_in * sizeof(int32_t), REGION_ALIGN) : 0;
}

/* Of a packed matrix, all parts of it. */
static size_t packed_bytes(const struct qr_weight *w, int64_t n_out, int64_t n_in, const struct qr_kernels *kernels)
{
    if (w->n_parts == 0)
        return kernels->linear_packed_bytes(w->packed_dtype, n_out, n_in);
    const struct qr_weight_part *last = &w->part[w->n_parts - 1];
    QR_ASSERT(last->first + last->n_out == n_out);
    return last->at + kernels->linear_packed_bytes(last->packed_dtype, last->n_out, n_in);
}

/* Of a matrix whose type is known, or a vector; an embedding of blocks is a matrix, too. */
static size_t whole_bytes(const struct qr_weights *w, const struct qr_weight_walk *k, const struct qr_kernels *kernels)
{
    int64_t total = qr_dim_value(k->c, k->row->total), n_in = qr_dim_value(k->c, k->row->n_in);
    if (k->row->kind == QR_KIND_TABLE && !qr_dtype_is_coded(weight_at(w, k)->packed_dtype))
        return 0;
    const bool vectors = k->row->kind == QR_KIND_VECTOR && k->row->per_expert; /* all experts' lie at the first one's place */
    const size_t n_vectors = !vectors ? 1 : k->expert == 0 ? (size_t)k->c->moe.n_experts : 0;
    const size_t n_numbers = (size_t)total * n_vectors * (k->row->kind == QR_KIND_ROWS ? (size_t)n_in : 1);
    const bool packed = k->row->kind == QR_KIND_MATRIX || k->row->kind == QR_KIND_TABLE;
    const size_t n = packed ? packed_bytes(weight_at(w, k), total, n_in, kernels) : n_numbers * sizeof(float);
    return qr_align_up(n, REGION_ALIGN) + (packed ? order_bytes(weight_at(w, k), n_in) : 0);
}

/* The type of every matrix, and the bytes of all. */
static void choose_types(struct qr_weights *w, const struct qr_share *share, const struct qr_kernels *kernels)
{
    w->layer = qr_alloc((size_t)share->own.n_layers, sizeof *w->layer);
    w->region_bytes = 0;
    for (struct qr_weight_walk k = qr_weight_walk_begin(&share->own); qr_weight_walk_next(&k);) {
        const bool table = k.row->kind == QR_KIND_TABLE && w->matrix_dtype == QR_CODED && share->size == 1 && !head_is_table(w, share);
        if ((k.row->kind == QR_KIND_MATRIX || table) && k.row->first == QR_DIM_ZERO && k.expert == 0)
            choose_type(weight_at(w, &k), w->files, share, &k, kernels, w->matrix_dtype);
        if (k.row->first == QR_DIM_ZERO && !qr_add_size(w->region_bytes, whole_bytes(w, &k, kernels), &w->region_bytes)) {
            w->region_bytes = SIZE_MAX;
            return;
        }
    }
}

int64_t qr_weights_inputs_max(const struct qr_model_config *c)
{
    QR_ASSERT(c != NULL);
    int64_t most = 0;
    for (struct qr_weight_walk k = qr_weight_walk_begin(c); qr_weight_walk_next(&k);) {
        int64_t n = k.row->kind == QR_KIND_MATRIX ? qr_dim_value(c, k.row->n_in) : 0;
        most = n > most ? n : most;
    }
    QR_ASSERT(most > 0);
    return most;
}

/* Gives every weight its place in the region, pieces of one matrix the same. */
static void place_all(struct qr_weights *w, const struct qr_model_config *c, const struct qr_kernels *kernels)
{
    uint8_t *at = w->region;
    for (struct qr_weight_walk k = qr_weight_walk_begin(c); qr_weight_walk_next(&k);) {
        struct qr_weight *dst = weight_at(w, &k);
        int64_t total = qr_dim_value(c, k.row->total), n_in = qr_dim_value(c, k.row->n_in);
        const bool table = k.row->kind == QR_KIND_TABLE;
        if ((table && !qr_dtype_is_coded(dst->packed_dtype)) || k.row->first != QR_DIM_ZERO)
            continue;
        dst->split = k.row->split;
        if (k.row->kind == QR_KIND_MATRIX && k.expert > 0) {
            dst->stack_bytes = k.expert == 1 ? (size_t)(at - (uint8_t *)dst->packed) : dst->stack_bytes; /* an expert's matrices lie side by side */
            QR_ASSERT(at == (uint8_t *)dst->packed + dst->stack_bytes * (size_t)k.expert);
        } else if (k.row->kind == QR_KIND_MATRIX || table) {
            dst->packed = at;
            dst->t = k.row->stacked ? qr_tensor_3d(NULL, dst->packed_dtype, k.row->per_expert ? c->moe.n_experts : 1, total, n_in)
                                    : qr_tensor_2d(NULL, dst->packed_dtype, total, n_in);
            dst->stack_bytes = k.row->stacked ? whole_bytes(w, &k, kernels) : 0;
            if (dst->inputs.data)
                dst->inputs.data = at + whole_bytes(w, &k, kernels) - order_bytes(dst, n_in);
        } else if (k.row->kind == QR_KIND_ROWS) {
            dst->t = qr_tensor_2d(at, QR_F32, total, n_in);
        } else if (k.expert == 0) {
            dst->t = k.row->per_expert ? qr_tensor_2d(at, QR_F32, c->moe.n_experts, total) : qr_tensor_1d(at, QR_F32, total);
        }
        at += whole_bytes(w, &k, kernels);
    }
    QR_ASSERT(at == (uint8_t *)w->region + w->region_bytes);
}

struct narrow {
    const struct qr_tensor_files *st;
    const struct qr_stored_tensor *t;
    uint16_t *to;
};

static void narrow_item(const void *arg, int32_t item, int32_t worker)
{
    const struct narrow *u = arg;
    const int64_t n_cols = u->t->shape[1], first = (int64_t)item * DECODE_ROWS;
    const int64_t n = u->t->shape[0] - first < DECODE_ROWS ? u->t->shape[0] - first : DECODE_ROWS;
    float *rows = qr_alloc((size_t)(n * n_cols), sizeof *rows);
    (void)worker;
    qr_tensor_files_decode(u->st, u->t, rows, first, n);
    for (int64_t i = 0; i < n * n_cols; i++)
        u->to[first * n_cols + i] = qr_f32_to_bf16(rows[i]);
    qr_free(rows);
}

/* An embedding that becomes rows of bf16 of its own: stored in blocks, of which a step reads few rows; or of a model that is computed in bf16, which is the
 * same model whatever it was stored as. An outline (no backend) only counts them. */
static void place_rounded_table(struct qr_weights *w, struct qr_weight *dst, const struct qr_stored_tensor *t, struct qr_backend *be)
{
    const size_t n_bytes = (size_t)t->shape[0] * (size_t)t->shape[1] * sizeof(uint16_t);
    struct narrow u = {.st = w->files, .t = t};
    if (be) {
        w->table_copy = be->mem->alloc(n_bytes);
        u.to = be->mem->host ? w->table_copy : qr_alloc(n_bytes, 1);
        qr_backend_run(be, narrow_item, &u, (int32_t)((t->shape[0] + DECODE_ROWS - 1) / DECODE_ROWS));
        if (!be->mem->host) {
            be->mem->put(be->queue, w->table_copy, u.to, n_bytes);
            qr_free(u.to);
        }
    }
    dst->t = qr_tensor_2d(be ? w->table_copy : (void *)(uintptr_t)REGION_ALIGN, QR_BF16, t->shape[0], t->shape[1]);
    w->table_bytes = n_bytes;
}

/* Bytes of a file to a device, by way of the memory that it copies from. */
static void upload(struct qr_backend *be, uint8_t *to, const uint8_t *from, size_t n_bytes)
{
    for (size_t at = 0, n; at < n_bytes; at += n) {
        n = n_bytes - at < QR_UPLOAD_BYTES ? n_bytes - at : QR_UPLOAD_BYTES;
        void *staged = be->mem->stage(be->queue, n);
        memcpy(staged, from + at, n);
        be->mem->put(be->queue, to + at, staged, n);
    }
}

/* The embedding keeps its rows where they are; unaligned ones are copied, because kernels read whole elements, and all of them to a device. Without a
 * backend nothing is copied (an outline). Returns whether they are read from the file. */
static bool place_table(struct qr_weights *w, struct qr_weight *dst, const struct qr_share *share, const struct qr_stored_tensor *t,
                        const uint8_t *src, struct qr_backend *be)
{
    if (head_is_table(w, share)) {
        QR_ASSERT(w->head.packed != NULL);
        dst->packed = w->head.packed;
        dst->packed_dtype = w->head.packed_dtype;
        dst->t = qr_tensor_2d(NULL, dst->packed_dtype, t->shape[0], t->shape[1]);
        return false;
    }
    if (t->type->blocks || (w->matrix_dtype == QR_BF16 && t->type->dtype != QR_BF16)) {
        place_rounded_table(w, dst, t, be);
        return false;
    }
    void *rows = (void *)(uintptr_t)src;
    if (be && (!be->mem->host || (uintptr_t)src % qr_dtype_bytes(t->type->dtype) != 0)) {
        w->table_copy = rows = be->mem->alloc((size_t)t->n_bytes);
        if (be->mem->host)
            memcpy(rows, src, (size_t)t->n_bytes);
        else
            upload(be, rows, src, (size_t)t->n_bytes);
    }
    dst->t = qr_tensor_2d(rows, t->type->dtype, t->shape[0], t->shape[1]);
    w->table_bytes = (size_t)t->n_bytes;
    return !w->table_copy;
}

/* Orders of inputs of matrices whose file has them in another one: of the first piece, all of them have the same. When all is packed: they lie in pages of
 * matrices, which threads have entered by then. */
static void fill_orders(const struct qr_weights *w, const struct qr_share *share)
{
    char name[QR_WEIGHT_NAME_MAX];
    for (struct qr_weight_walk k = qr_weight_walk_begin(&share->own); qr_weight_walk_next(&k);) {
        const struct qr_weight *dst = weight_at(w, &k);
        if (!dst->inputs.data || k.row->first != QR_DIM_ZERO)
            continue;
        const struct qr_stored_tensor *t = qr_weights_find(&k, w->files, name);
        QR_ASSERT(t != NULL && t->quantized != NULL && dst->t.shape[1] == t->shape[1]);
        memcpy(dst->inputs.data, qr_quantized_inputs(t), (size_t)t->shape[1] * sizeof(int32_t));
    }
}

/* The matrix that the walk's piece goes to, and the piece's first row there in place of that in all of dst. */
static struct qr_weight matrix_of(const struct qr_weight *dst, const struct qr_weight_walk *k, int64_t *first)
{
    int32_t i = dst->n_parts - 1;
    while (i > 0 && dst->part[i].first > *first)
        i--;
    if (i < 0)
        return k->row->stacked ? qr_weight_in_stack(dst, k->expert) : *dst;
    *first -= dst->part[i].first;
    return qr_weight_of_part(dst, i);
}

/* The share's part of the tensor that the walk is at, one after the other from the row's first on. */
static void fill_one(const struct qr_weights *w, const struct qr_weight_walk *k, const struct qr_share *share, const struct qr_stored_tensor *t,
                     struct qr_packer *packer)
{
    const struct qr_vector_change change = {.factor = qr_weight_row_factor(k->row, k->c), .offset = qr_weight_row_offset(k->row, k->c)};
    const struct qr_weight *dst = weight_at(w, k);
    struct qr_span rows[QR_SHARE_SPANS_MAX], cols[QR_SHARE_SPANS_MAX];
    const int32_t n = qr_share_spans(rows, share, k->row->n_out), n_cols = qr_share_spans(cols, share, k->row->n_in);
    const bool vector = k->row->kind != QR_KIND_MATRIX && k->row->kind != QR_KIND_TABLE;
    int64_t first = qr_dim_value(k->c, k->row->first) + (vector ? k->expert * qr_dim_value(k->c, k->row->total) : 0);
    const struct qr_weight one = vector ? *dst : matrix_of(dst, k, &first);
    QR_ASSERT(n_cols == 1);
    for (int32_t i = 0; i < n; first += rows[i++].n)
        if (vector)
            qr_packer_vector(packer, (float *)dst->t.data + first, t, &rows[i], &change);
        else
            qr_packer_matrix(packer, &one, first, t, &(struct qr_cut){rows[i], cols[0], qr_weight_row_transposed(k->row, k->c) && !t->quantized,
                                                                            w->matrix_dtype == QR_CODED && qr_dtype_is_coded(one.packed_dtype)});
}

static uint64_t stored_bytes(const struct qr_stored_tensor *t)
{
    uint64_t n = t->n_bytes;
    for (int i = 0; t->quantized && i < QR_QUANTIZED_PARTS; i++)
        n += qr_quantized_part(t, i) ? qr_quantized_part(t, i)->n_bytes : 0;
    return n;
}

/* packed: the region is, already. */
static int fill_all(struct qr_weights *w, const struct qr_share *share, struct qr_backend *be, bool packed, const struct qr_weights_options *o,
                    struct qr_err *err)
{
    char name[QR_WEIGHT_NAME_MAX];
    uint64_t done = 0, total = 0, waiting = 0;
    struct qr_packer *packer = qr_packer_new(be, w->files);
    for (int32_t i = 0; i < qr_tensor_files_n_shards(w->files); i++)
        total += qr_tensor_files_shard_bytes(w->files, i);
    const struct qr_stored_tensor *table = NULL;
    int32_t cut_file = -1;
    qr_tensor_files_drop_all(w->files); /* what choosing types read */
    for (struct qr_weight_walk k = qr_weight_walk_begin(&share->own); qr_weight_walk_next(&k);) {
        const struct qr_stored_tensor *t = qr_weights_find(&k, w->files, name);
        if (k.row->kind == QR_KIND_TABLE && !qr_dtype_is_coded(weight_at(w, &k)->packed_dtype)) {
            if (!qr_tensor_files_there(w->files, t)) {
                cut_file = t->shard;
            } else if (place_table(w, weight_at(w, &k), share, t, qr_tensor_files_data(w->files, t), be)) {
                table = t;
            }
            continue;
        }
        if (packed)
            continue;
        fill_one(w, &k, share, t, packer);
        waiting += stored_bytes(t);
        done += t->n_bytes;
        if (waiting < RUN_BYTES)
            continue;
        qr_packer_run(packer);
        waiting = 0;
        if (o->progress)
            o->progress(o->user, done < total ? done : total, total);
    }
    qr_packer_run(packer);
    if (!packed)
        fill_orders(w, share);
    const int32_t failed = cut_file >= 0 ? cut_file : qr_packer_failed(packer);
    qr_packer_free(packer);
    qr_tensor_files_drop_all(w->files);
    if (table) /* steps read its rows from the mapping */
        (void)qr_tensor_files_populate(w->files, table);
    if (o->progress && !packed)
        o->progress(o->user, done < total ? done : total, total);
    if (failed >= 0)
        return qr_err_set(err, QR_E_IO, "%s could not be read: it has become shorter since it was opened, or its disk fails; expected %" PRIu64 " bytes",
                          qr_tensor_files_shard_name(w->files, failed), qr_tensor_files_shard_bytes(w->files, failed));
    return 0;
}

int qr_weights_load(struct qr_weights *w, struct qr_tensor_files *st, const struct qr_share *share, struct qr_backend *be, enum qr_dtype to,
                         const struct qr_weights_options *options, struct qr_err *err)
{
    QR_ASSERT(w != NULL && st != NULL && share != NULL);
    QR_ASSERT(be != NULL && (qr_dtype_packs(to) || to == QR_CODED));
    const struct qr_model_config *c = &share->own;
    const struct qr_weights_options none = {0};
    options = options ? options : &none;
    int rc = options->checked ? 0 : qr_weights_check(st, &share->whole, err);
    if (rc)
        return rc;
    *w = (struct qr_weights){.n_layers = c->n_layers, .matrix_dtype = to, .files = st, .mem = be->mem};
    qr_tensor_files_use(st, be->k->stored);
    choose_types(w, share, be->k);
    const size_t n_bytes = w->region_bytes;
    const size_t have = be->mem->host ? (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE) : (size_t)be->mem->available();
    if (n_bytes > have) {
        char t[2][QR_SIZE_TEXT];
        qr_free(w->layer);
        return qr_err_set(err, QR_E_NO_ROOM, "the weights take %s as %s, %s %s of memory", qr_size_text(t[0], (int64_t)n_bytes), qr_dtype_name(to),
                          be->mem->host ? "this machine has" : "the device has free", qr_size_text(t[1], (int64_t)have));
    }
    struct qr_packed_key key = {.path = ""};
    const bool keeps = options->cache_dir && be->mem->host;
    if (keeps) {
        qr_packed_key_make(&key, options->cache_dir, st, share, be->k->name, to, n_bytes);
        qr_packed_tidy(&key);
    }
    const bool packed = keeps && qr_packed_map(&w->packed, &key, n_bytes, be);
    w->region = packed ? (void *)(uintptr_t)(w->packed.data + QR_PACKED_HEADER_BYTES) : w->mem->alloc(n_bytes);
    place_all(w, c, be->k);
    rc = fill_all(w, share, be, packed, options, err);
    if (rc) {
        w->files = NULL; /* the caller's still */
        qr_weights_release(w);
        return rc;
    }
    if (keeps && !packed)
        qr_packed_keep(&key, w->region, n_bytes, be);
    return 0;
}

void qr_weights_outline(struct qr_weights *w, struct qr_tensor_files *st, const struct qr_share *share, const struct qr_kernels *kernels, enum qr_dtype to)
{
    QR_ASSERT(w != NULL && st != NULL && share != NULL);
    const struct qr_model_config *c = &share->own;
    QR_ASSERT(kernels != NULL && (qr_dtype_packs(to) || to == QR_CODED));
    /* Without an allocator nothing is owned but the files and the list of layers. */
    *w = (struct qr_weights){.n_layers = c->n_layers, .matrix_dtype = to, .files = st};
    w->region = (void *)(uintptr_t)REGION_ALIGN;
    choose_types(w, share, kernels);
    place_all(w, c, kernels);
    char name[QR_WEIGHT_NAME_MAX];
    for (struct qr_weight_walk k = qr_weight_walk_begin(c); qr_weight_walk_next(&k);) {
        const struct qr_stored_tensor *t = qr_weights_find(&k, st, name);
        if (k.row->kind == QR_KIND_TABLE && !qr_dtype_is_coded(weight_at(w, &k)->packed_dtype))
            place_table(w, weight_at(w, &k), share, t, qr_tensor_files_data(st, t), NULL);
    }
}

size_t qr_weights_bytes_as(struct qr_tensor_files *st, const struct qr_share *share, const struct qr_kernels *kernels, enum qr_dtype to)
{
    struct qr_weights w;
    QR_ASSERT(st != NULL && share != NULL && kernels != NULL);
    QR_ASSERT(qr_dtype_packs(to) || to == QR_CODED);
    qr_weights_outline(&w, st, share, kernels, to);
    const size_t n = w.region_bytes + w.table_bytes;
    w.files = NULL; /* the caller's */
    qr_weights_release(&w);
    return n;
}

void qr_weights_release(struct qr_weights *w)
{
    QR_ASSERT(w != NULL);
    if (w->mem) {
        w->mem->free(w->table_copy);
        if (w->packed.data)
            qr_map_file_close(&w->packed);
        else
            w->mem->free(w->region);
    }
    qr_free(w->layer);
    qr_tensor_files_close(w->files);
    *w = (struct qr_weights){0};
}
