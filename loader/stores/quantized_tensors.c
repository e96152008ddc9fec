/* quantized_tensors.c - which tensors of a Hugging Face checkpoint make up a quantized matrix, and whether they fit each other.
 *
 * A row of `forms` is one checkpoint format: names of tensors, what codes and scales mean, and a function that checks
 * shapes and fills in sizes and strides. What is found becomes a tensor of the set with a struct qr_quantized behind it.
 * Orders of inputs and zeros are read once, here, because they decide which coded type keeps the matrix.
 * Guarantee: the reader (quantized_read.c) may trust every shape and every group.
 * Thread: the one that opens the files. */
#include "loader/stores/quantized_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "loader/pack/gguf_blocks.h"

#define LOOKED_WORDS 2048  /* of zeros, or of an order, at a time */
#define LINE_WORDS 16      /* of memory */

/* ---- putting together ---- */

struct finder {
    struct qr_tensor_files *st;
    const struct qr_quant_scheme *s;
    const struct qr_quant_form *form;
    char base[QR_STORED_NAME_MAX + 1];
    struct qr_err *err;
};

static const struct qr_stored_tensor *part(const struct finder *f, const char *suffix)
{
    QR_UNINITIALIZED char name[QR_STORED_NAME_MAX + 64];
    if (!suffix)
        return NULL;
    const char *end = stpcpy(stpcpy(name, f->base), suffix); /* a thousand times in a model: faster than by a format */
    const int32_t i = qr_map_find(&f->st->by_name, name, (size_t)(end - name), -1); /* no part is called as what is made of parts */
    return i < 0 ? NULL : qr_tensor_files_at(f->st, i);
}

static int wrong(const struct finder *f, const struct qr_stored_tensor *t, const char *expected)
{
    char shape[160];
    return qr_err_set(f->err, QR_E_DAMAGED, "%s: byte %" PRIu64 ": tensor %s is %s %s, expected %s", qr_tensor_files_shard_name(f->st, t->shard), t->offset,
                      t->name, t->type->name, qr_shape_text(shape, sizeof shape, t->shape, t->n_dims), expected);
}

static bool is(const struct qr_stored_tensor *t, const char *type, int64_t rows, int64_t cols)
{
    return strcmp(t->type->name, type) == 0 && t->n_dims == 2 && t->shape[0] == rows && t->shape[1] == cols;
}

/* How many inputs share a scale: as the configuration says where that fits the scales, else as the scales' number says. */
static int set_groups(const struct finder *f, struct qr_quantized *q, int64_t n_groups)
{
    q->n_groups = n_groups;
    q->group = f->s->group;
    if (q->group > 0 && (q->n_in + q->group - 1) / q->group == n_groups)
        return 0;
    q->group = n_groups > 0 ? q->n_in / n_groups : 0;
    if (q->group > 0 && q->group * n_groups == q->n_in)
        return 0;
    return wrong(f, q->scale, "scales for groups of as many inputs each");
}

/* Scales as [O, G], and what is narrower: for all, for outputs, for blocks. */
static int set_scales(const struct finder *f, struct qr_quantized *q)
{
    const struct qr_stored_tensor *t = q->scale;
    const int64_t rows = t->n_dims > 0 ? t->shape[0] : 1, cols = t->n_dims > 1 ? t->shape[1] : 1;
    const struct qr_quant_scheme *s = f->s;
    q->block_out = 1;
    if (rows == 1 && cols == 1) {
        q->n_groups = 1;
        q->group = q->n_in;
        return 0;
    }
    if (t->n_dims <= 2 && rows == q->n_out) {
        q->out_stride = cols;
        q->in_stride = 1;
        return set_groups(f, q, cols);
    }
    if (t->n_dims != 2 || s->block_out == 0 || rows != (q->n_out + s->block_out - 1) / s->block_out || cols != (q->n_in + s->block_in - 1) / s->block_in)
        return wrong(f, t, "one scale, one for each output or group of it, or one for each block of the configured size");
    q->block_out = s->block_out;
    q->group = s->block_in;
    q->n_groups = q->out_stride = cols;
    q->in_stride = 1;
    return 0;
}

/* Scales are numbers, and codes a matrix. */
static int check_parts(const struct finder *f, const struct qr_quantized *q)
{
    if (!q->scale->type->computable || q->scale->n_dims > 2 || q->scale->n_bytes == 0)
        return wrong(f, q->scale, "F32, F16 or BF16 in at most two dimensions");
    return q->codes->n_dims == 2 && q->codes->n_bytes > 0 ? 0 : wrong(f, q->codes, "two dimensions");
}

/* GPTQ and AWQ: outputs lie side by side. */
static int fit_columns(const struct finder *f, struct qr_quantized *q)
{
    const struct qr_stored_tensor *c = q->codes, *t = q->scale;
    const int rc = check_parts(f, q);
    if (rc)
        return rc;
    q->n_in = f->form->places ? c->shape[0] : c->shape[0] * 32 / q->bits;
    q->n_out = f->form->places ? c->shape[1] * 8 : c->shape[1];
    if (t->n_dims != 2 || t->shape[0] < 1 || t->shape[1] != q->n_out)
        return wrong(f, t, "a row for each group, a column for each output");
    q->code_out = q->zero_out = q->block_out = q->out_stride = 1;
    q->code_in = q->in_stride = q->n_out;
    q->zero_in = words(q->n_out, q->bits);
    q->zero = 1 << (q->bits - 1);
    q->zero_more = f->s->zeros_less_one;
    if (q->zeros && !is(q->zeros, "I32", t->shape[0], q->zero_in))
        return wrong(f, q->zeros, "as many groups and outputs as scales have");
    if (!q->zeros && f->form->places)
        return qr_err_set(f->err, QR_E_DAMAGED, "tensor %s.qzeros is missing", f->base);
    return set_groups(f, q, t->shape[0]);
}

/* compressed-tensors' words of codes of a row, of which the shape says how many there are. */
static int fit_packed(const struct finder *f, struct qr_quantized *q)
{
    const struct qr_stored_tensor *c = q->codes, *shape = q->shape;
    int64_t size[2];
    int rc = check_parts(f, q);
    if (rc)
        return rc;
    if (!shape || shape->n_bytes != sizeof size || strcmp(shape->type->name, "I64") != 0)
        return qr_err_set(f->err, QR_E_DAMAGED, "tensor %s.weight_shape is missing, or is not two I64", f->base);
    memcpy(size, qr_tensor_files_data(f->st, shape), sizeof size);
    const bool fits = size[0] == c->shape[0] && size[1] >= 1 && size[1] <= QR_LINEAR_INPUTS_MAX;
    if (fits && words(size[1], q->bits) != c->shape[1]) /* groups of modules may differ in it */
        q->bits = q->bits == 4 ? 8 : 4;
    if (!fits || words(size[1], q->bits) != c->shape[1])
        return wrong(f, c, "as many codes as weight_shape says");
    q->n_out = size[0];
    q->n_in = size[1];
    q->code_out = c->shape[1];
    q->code_in = q->zero_in = 1;
    q->zero = 1 << (q->bits - 1);
    rc = set_scales(f, q);
    q->zero_out = q->n_groups;
    if (!rc && q->zeros && !(is(q->zeros, "I32", words(q->n_out, q->bits), q->n_groups) && q->block_out == 1 && q->out_stride))
        rc = wrong(f, q->zeros, "as many groups and outputs as scales have");
    return rc;
}

static int fit_bytes(const struct finder *f, struct qr_quantized *q)
{
    int rc = check_parts(f, q);
    if (rc)
        return rc;
    q->n_out = q->codes->shape[0];
    q->n_in = q->codes->shape[1];
    rc = set_scales(f, q);
    if (rc || !q->zeros)
        return rc;
    const uint64_t n_scales = q->scale->n_bytes / qr_dtype_bytes(q->scale->type->dtype);
    return strcmp(q->zeros->type->name, "I8") == 0 && q->zeros->n_bytes == n_scales ? 0 : wrong(f, q->zeros, "as many as there are scales");
}

/* A stack of matrices in blocks of 32 inputs. */
static int fit_stack(const struct finder *f, struct qr_quantized *q)
{
    const struct qr_stored_tensor *c = q->codes, *s = q->scale;
    if (c->n_dims != 4 || c->shape[3] != 16 || c->n_bytes == 0)
        return wrong(f, c, "experts, outputs, and 16 bytes for each 32 inputs");
    if (strcmp(s->type->name, "U8") != 0 || s->n_dims != 3 || memcmp(s->shape, c->shape, 3 * sizeof *s->shape) != 0)
        return wrong(f, s, "a byte for each block of 16");
    q->n_matrices = c->shape[0];
    q->n_out = c->shape[1];
    q->n_groups = q->out_stride = c->shape[2];
    q->group = 32;
    q->n_in = 32 * q->n_groups;
    q->code_out = 4 * q->n_groups;
    q->code_in = q->block_out = q->in_stride = 1;
    return 0;
}

#define STORED(title) .stored = {.name = title, .computable = true, .dtype = QR_F32, .blocks = true}
#define NUMBERED(title, kind) STORED(title), .method = QR_QUANT_##kind, .made = ".weight"
static const uint8_t awq_places[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static const struct qr_quant_form forms[] = {
    {NUMBERED("GPTQ", GPTQ), .codes = ".qweight", .type = "I32", .scale = ".scales", .zeros = ".qzeros", .order = ".g_idx",
     .fit = fit_columns, .together = 4},
    {NUMBERED("AWQ", AWQ), .codes = ".qweight", .type = "I32", .scale = ".scales", .zeros = ".qzeros",
     .fit = fit_columns, .places = awq_places, .together = 8},
    {NUMBERED("PACKED", COMPRESSED), .codes = ".weight_packed", .type = "I32", .scale = ".weight_scale", .zeros = ".weight_zero_point",
     .order = ".weight_g_idx", .shape = ".weight_shape", .fit = fit_packed, .together = 1},
    {NUMBERED("INT8", COMPRESSED), .codes = ".weight", .type = "I8", .scale = ".weight_scale", .zeros = ".weight_zero_point",
     .bits = 8, .fit = fit_bytes, .together = 1, .bytes = true},
    {NUMBERED("FP8", COMPRESSED), .codes = ".weight", .type = "F8_E4M3", .scale = ".weight_scale",
     .bits = 8, .fit = fit_bytes, .together = 1, .bytes = true, .e4m3 = true, .coded = QR_C8_E4M3, .coded_group = 128},
    {NUMBERED("FP8", FP8), .codes = ".weight", .type = "F8_E4M3", .scale = ".weight_scale_inv", .other_scale = ".weight_scale",
     .bits = 8, .fit = fit_bytes, .together = 1, .bytes = true, .e4m3 = true, .coded = QR_C8_E4M3, .coded_group = 128},
    {STORED("MXFP4"), .method = QR_QUANT_MXFP4, .codes = "_blocks", .type = "U8", .scale = "_scales", .made = "",
     .bits = 4, .fit = fit_stack, .together = 1, .level = qr_mxfp4_level, .e8m0 = true, .coded = QR_C4_G32, .coded_group = 32},
};

/* Some bytes of a tensor. A file that has become shorter since it was opened has zeros there: reading all of it will say so. room: n_bytes, for them. */
static const uint8_t *look(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, uint64_t at, size_t n_bytes, void *room)
{
    if (!qr_tensor_files_read(st, t, at, n_bytes, room))
        memset(room, 0, n_bytes);
    return room;
}

/* How many inputs are not in the group that they would be in without an order. */
static int64_t out_of_order(const struct finder *f, const struct qr_quantized *q)
{
    QR_UNINITIALIZED uint32_t room[LOOKED_WORDS];
    int64_t others = 0, g = 0, group_end = q->group;
    for (int64_t at = 0, n; at < q->n_in; at += n) {
        n = q->n_in - at < LOOKED_WORDS ? q->n_in - at : LOOKED_WORDS;
        const uint8_t *p = look(f->st, q->order, 4 * (uint64_t)at, 4 * (size_t)n, room);
        for (int64_t i = at, end; i < at + n; i = end) {
            end = group_end < at + n ? group_end : at + n;
            for (int64_t k = i; k < end; k++)
                others += load_i32(p, k - at) != g;
            g += end == group_end;
            group_end += end == group_end ? q->group : 0;
        }
    }
    return others;
}

static int set_order(const struct finder *f, struct qr_quantized *q)
{
    if (!q->order)
        return 0;
    if (strcmp(q->order->type->name, "I32") != 0 || q->order->n_dims != 1 || q->order->shape[0] != q->n_in)
        return wrong(f, q->order, "the group of each input");
    q->ordered = out_of_order(f, q) > 0; /* nearly none is */
    const uint8_t *p = qr_tensor_files_data(f->st, q->order);
    for (int64_t i = 0; q->ordered && i < q->n_in; i++) {
        const int64_t g = load_i32(p, i);
        if (g < 0 || g >= q->n_groups)
            return qr_err_set(f->err, QR_E_DAMAGED, "tensor %s: input %" PRId64 " is in group %" PRId64 " of %" PRId64, q->order->name, i, g, q->n_groups);
    }
    return 0;
}

/* Inputs by groups, in a group as they come. Groups of another size than the others' are nothing that kernels know. */
static void sort_inputs(struct qr_arena *a, struct qr_quantized *q, const uint8_t *order)
{
    const size_t n_bytes = (size_t)q->n_in * sizeof(int32_t);
    if (!q->ordered || q->group * q->n_groups != q->n_in)
        return;
    int32_t *inputs = qr_arena_alloc(a, n_bytes, _Alignof(int32_t)), *place = qr_arena_alloc(a, n_bytes, _Alignof(int32_t));
    int32_t *next = qr_alloc((size_t)q->n_groups, sizeof *next);
    bool even = true;
    for (int64_t i = 0; even && i < q->n_in; i++) {
        const int64_t g = load_i32(order, i);
        even = next[g] < q->group;
        place[i] = (int32_t)(g * q->group) + next[g];
        next[g] += even;
        inputs[even ? place[i] : 0] = (int32_t)i;
    }
    qr_free(next);
    q->inputs = even ? inputs : NULL;
    q->place = even ? place : NULL;
}

/* Every zero is the one that stands in the middle of the codes: stored zeros are compared a word at a time. */
static bool is_symmetric(const struct qr_tensor_files *st, const struct qr_quantized *q)
{
    QR_UNINITIALIZED uint32_t room[LOOKED_WORDS];
    if (!q->zeros)
        return true;
    if (q->form->bytes) {
        const uint8_t *p = qr_tensor_files_data(st, q->zeros);
        return p[0] == 0 && memcmp(p, p + 1, (size_t)q->zeros->n_bytes - 1) == 0;
    }
    const int64_t per = 32 / q->bits, row = words(q->n_out, q->bits), n = row * q->n_groups;
    const uint32_t one = (1u << (q->bits - 1)) - (uint32_t)q->zero_more, middle = one * (UINT32_MAX / ((1u << q->bits) - 1));
    const uint32_t last = q->n_out % per ? (1u << (q->n_out % per * q->bits)) - 1 : UINT32_MAX; /* of the last word of outputs, the codes that are one's */
    uint32_t others = 0;
    for (int64_t at = 0, m; others == 0 && at < n; at += m) {
        m = at == 0 ? LINE_WORDS : LOOKED_WORDS; /* where they are not in the middle one line says so, and others would come from memory */
        m = n - at < m ? n - at : m;
        const uint8_t *p = look(st, q->zeros, 4 * (uint64_t)at, 4 * (size_t)m, room);
        for (int64_t i = 0; last == UINT32_MAX && i < m; i++)
            others |= (uint32_t)load_i32(p, i) ^ middle;
        for (int64_t i = 0; last != UINT32_MAX && i < m; i++) {
            const bool is_last = (at + i) / q->zero_out % row == row - 1;
            others |= ((uint32_t)load_i32(p, i) ^ middle) & (is_last ? last : UINT32_MAX);
        }
    }
    return others == 0;
}

/* The set gets a tensor for q. */
static int add(const struct finder *f, const struct qr_quantized *q)
{
    struct qr_tensor_files *st = f->st;
    char *name = qr_arena_alloc(&st->made.names, strlen(f->base) + strlen(f->form->made) + 1, 1);
    stpcpy(stpcpy(name, f->base), f->form->made);
    struct qr_stored_tensor *t = qr_stored_list_add(&st->made);
    *t = (struct qr_stored_tensor){.name = name, .type = &f->form->stored, .n_dims = 2, .shard = q->codes->shard,
                                   .shape = {q->n_out, q->n_in}, .offset = q->codes->offset, .quantized = q};
    if (q->n_matrices) {
        t->n_dims = 3;
        t->shape[0] = q->n_matrices, t->shape[1] = q->n_out, t->shape[2] = q->n_in;
    }
    if (qr_map_add(&st->made_by_name, name, strlen(name), st->made.n - 1))
        return 0;
    return qr_err_set(f->err, QR_E_DAMAGED, "tensor %s is quantized twice", name);
}

static int put_together(const struct finder *f, const struct qr_stored_tensor *codes)
{
    const struct qr_quant_form *form = f->form;
    struct qr_tensor_files *st = f->st;
    struct qr_quantized *q = qr_arena_alloc(&st->made.names, sizeof *q, _Alignof(struct qr_quantized));
    const int32_t said = f->s->bits ? f->s->bits : 4; /* by groups of modules: perhaps none, or others' */
    *q = (struct qr_quantized){.form = form, .bits = form->bits ? form->bits : said, .codes = codes, .scale = part(f, form->scale),
                               .zeros = part(f, form->zeros), .order = part(f, form->order), .shape = part(f, form->shape)};
    if (!q->scale)
        q->scale = part(f, form->other_scale);
    if (!q->scale)
        return qr_err_set(f->err, QR_E_DAMAGED, "tensor %s%s is missing, by which %s is multiplied", f->base, form->scale, codes->name);
    int rc = form->fit(f, q);
    rc = rc ? rc : set_order(f, q);
    if (rc)
        return rc;
    if (q->ordered)
        sort_inputs(&st->made.names, q, qr_tensor_files_data(st, q->order));
    q->symmetric = is_symmetric(st, q);
    return add(f, q);
}

int qr_quantized_tensors_find(struct qr_tensor_files *st, const struct qr_quant_scheme *s, struct qr_err *err)
{
    QR_ASSERT(st != NULL && s != NULL);
    QR_ASSERT(st->made.n == 0);
    struct finder f = {.st = st, .s = s, .err = err};
    int rc = 0;
    for (int32_t i = 0; i < st->list.n && !rc; i++) {
        const struct qr_stored_tensor *t = &st->list.item[i];
        const size_t len = strlen(t->name);
        for (int k = 0; k < QR_COUNT(forms) && !rc; k++) {
            const size_t n = strlen(forms[k].codes);
            if (forms[k].method != s->method || len <= n || strcmp(t->name + len - n, forms[k].codes) != 0 || strcmp(t->type->name, forms[k].type) != 0)
                continue;
            f.form = &forms[k];
            memcpy(f.base, t->name, len - n); /* QR_STORED_NAME_MAX at most */
            f.base[len - n] = 0;
            rc = put_together(&f, t);
        }
    }
    return rc;
}

const struct qr_stored_tensor *qr_quantized_part(const struct qr_stored_tensor *t, int i)
{
    QR_ASSERT(t != NULL && i >= 0 && i < QR_QUANTIZED_PARTS);
    QR_ASSERT(t->quantized != NULL);
    const struct qr_stored_tensor *const parts[QR_QUANTIZED_PARTS] = {t->quantized->codes, t->quantized->scale, t->quantized->zeros, t->quantized->order,
                                                                       t->quantized->shape};
    return parts[i];
}

/* Matrix e of a stack, as a tensor of its own. */
static const struct qr_stored_tensor *matrix_of(struct qr_tensor_files *st, const struct qr_stored_tensor *stack, int64_t e)
{
    struct qr_stored_tensor *t = qr_arena_alloc(&st->made.names, sizeof *t, _Alignof(struct qr_stored_tensor));
    *t = *stack;
    t->part_of = stack;
    t->n_bytes = stack->n_bytes / (uint64_t)stack->shape[0];
    t->offset += (uint64_t)e * t->n_bytes;
    return t;
}

const struct qr_quantized *qr_quantized_cut(struct qr_tensor_files *st, const struct qr_stored_tensor *stack, int64_t e,
                                            int64_t row_first, int64_t row_step)
{
    QR_ASSERT(st != NULL && stack != NULL && stack->quantized != NULL);
    QR_ASSERT(stack->n_dims == 3 && e >= 0 && e < stack->shape[0] && row_first < row_step);
    struct qr_quantized *q = qr_arena_alloc(&st->made.names, sizeof *q, _Alignof(struct qr_quantized));
    *q = *stack->quantized;
    q->codes = matrix_of(st, q->codes, e);
    q->scale = matrix_of(st, q->scale, e);
    q->n_out /= row_step;
    q->code_first = row_first * q->code_out;
    q->code_out *= row_step;
    q->scale_first = row_first * q->out_stride;
    q->out_stride *= row_step;
    return q;
}

/* ---- as coded rows ---- */

/* Groups of the coded type, which divide the stored ones; 0: none does. */
static int32_t coded_group(const struct qr_quantized *q)
{
    static const int32_t group[] = {128, 64, 32};
    for (int i = 0; i < QR_COUNT(group); i++)
        if ((q->n_groups == 1 ? q->n_in : q->group) % group[i] == 0)
            return group[i];
    return 0;
}

const int8_t *qr_quantized_levels(const struct qr_stored_tensor *t, enum qr_dtype coded)
{
    QR_ASSERT(t != NULL && t->quantized != NULL);
    const struct qr_coded_format f = qr_dtype_coded(coded);
    return qr_gguf_levels(f.bits == 8 ? QR_GGUF_T_Q8_0 : t->quantized->form->level ? QR_GGUF_T_MXFP4 : f.zero ? QR_GGUF_T_Q4_1 : QR_GGUF_T_Q4_0);
}

const int32_t *qr_quantized_inputs(const struct qr_stored_tensor *t)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(t->quantized != NULL);
    return t->quantized->inputs;
}

enum qr_dtype qr_quantized_coded(const struct qr_stored_tensor *t)
{
    QR_ASSERT(t != NULL && t->quantized != NULL);
    const struct qr_quantized *q = t->quantized;
    const struct qr_quant_form *form = q->form;
    const int32_t group = coded_group(q);
    if (form->coded_group)
        return q->n_groups == 1 || q->group % form->coded_group == 0 ? form->coded : QR_CODED;
    if ((q->ordered && !q->inputs) || q->block_out != 1 || group == 0 || q->scale->type->dtype == QR_F32)
        return QR_CODED;
    if (q->bits == 8)
        return q->symmetric ? QR_C8_G32 : QR_CODED;
    if (!q->symmetric)
        return group == 128 ? QR_C4_G128_Z : group == 64 ? QR_C4_G64_Z : QR_C4_G32_Z;
    return group == 128 ? QR_C4_G128 : group == 64 ? QR_C4_G64 : QR_C4_G32;
}
