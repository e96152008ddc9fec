#include "loader/stores/quantized_tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/e4m3.h"
#include "base/half.h"
#include "base/mem.h"
#include "kernels/stored.h"
#include "loader/pack/code_words.h"
#include "loader/stores/tensor_files_parts.h"

#define CHUNK 256 /* inputs at a time */
#define ROWS 16   /* outputs at a time */
#define SCALES 128 /* of outputs at a time */
#define LOOKED_WORDS 2048  /* of zeros, or of an order, at a time */
#define LINE_WORDS 16      /* of memory */
#define ORDERED_GROUPS 512 /* whose scales are looked up all at once where inputs are in any order */

enum layout { GPTQ, AWQ, PACKED, INT8, FP8 };

/* scale[(o / block_out) out_stride + g in_stride]; zeros of bytes likewise. */
struct qr_quantized {
    enum layout layout;
    int32_t bits, zero_more;           /* what is added to a stored zero */
    int32_t zero;                      /* where none are stored */
    int64_t n_out, n_in, n_groups, group;
    int64_t block_out, out_stride, in_stride;
    const struct qr_stored_tensor *codes, *scale, *zeros, *order, *shape; /* zeros, order, shape: or NULL */
    bool ordered;                      /* and the order is not the inputs' own */
    const int32_t *inputs, *place;     /* of an order with groups of one size, [n_in]: inputs by their groups, and of each input the place there; or NULL */
    bool symmetric;                    /* all zeros are the middle of the codes */
};

/* Which tensors make up a matrix of a layout. */
static const struct form {
    enum qr_quant_method method;
    enum layout layout;
    const char *codes, *type, *scale, *scale2, *zeros, *order;
} forms[] = {
    {QR_QUANT_GPTQ, GPTQ, ".qweight", "I32", ".scales", NULL, ".qzeros", ".g_idx"},
    {QR_QUANT_AWQ, AWQ, ".qweight", "I32", ".scales", NULL, ".qzeros", NULL},
    {QR_QUANT_COMPRESSED, PACKED, ".weight_packed", "I32", ".weight_scale", NULL, ".weight_zero_point", ".weight_g_idx"},
    {QR_QUANT_COMPRESSED, INT8, ".weight", "I8", ".weight_scale", NULL, ".weight_zero_point", NULL},
    {QR_QUANT_COMPRESSED, FP8, ".weight", "F8_E4M3", ".weight_scale", NULL, NULL, NULL},
    {QR_QUANT_FP8, FP8, ".weight", "F8_E4M3", ".weight_scale_inv", ".weight_scale", NULL, NULL},
};

static const struct qr_stored_type types[] = {
    [GPTQ] = {"GPTQ", 0, true, QR_F32, true, 0},   [AWQ] = {"AWQ", 0, true, QR_F32, true, 0},  [PACKED] = {"PACKED", 0, true, QR_F32, true, 0},
    [INT8] = {"INT8", 0, true, QR_F32, true, 0}, [FP8] = {"FP8", 0, true, QR_F32, true, 0},
};

/* ---- putting together ---- */

struct finder {
    struct qr_tensor_files *st;
    const struct qr_quant_scheme *s;
    const struct form *form;
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

static int64_t words(int64_t n, int32_t bits)
{
    return (n * bits + 31) / 32;
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

static int set_columns(const struct finder *f, struct qr_quantized *q)
{
    const struct qr_stored_tensor *c = q->codes, *t = q->scale;
    const bool gptq = q->layout == GPTQ;
    q->n_in = gptq ? c->shape[0] * 32 / q->bits : c->shape[0];
    q->n_out = gptq ? c->shape[1] : c->shape[1] * 8;
    if (t->n_dims != 2 || t->shape[0] < 1 || t->shape[1] != q->n_out)
        return wrong(f, t, "a row for each group, a column for each output");
    q->block_out = q->out_stride = 1;
    q->in_stride = q->n_out;
    q->zero = 1 << (q->bits - 1);
    q->zero_more = f->s->zeros_less_one;
    if (q->zeros && !is(q->zeros, "I32", t->shape[0], words(q->n_out, q->bits)))
        return wrong(f, q->zeros, "as many groups and outputs as scales have");
    if (!q->zeros && !gptq)
        return qr_err_set(f->err, QR_E_DAMAGED, "tensor %s.qzeros is missing", f->base);
    return set_groups(f, q, t->shape[0]);
}

static int set_rows(const struct finder *f, struct qr_quantized *q)
{
    const struct qr_stored_tensor *c = q->codes, *shape = q->shape;
    q->n_out = c->shape[0];
    q->n_in = c->shape[1];
    if (q->layout == PACKED) {
        int64_t size[2];
        if (!shape || shape->n_bytes != sizeof size || strcmp(shape->type->name, "I64") != 0)
            return qr_err_set(f->err, QR_E_DAMAGED, "tensor %s.weight_shape is missing, or is not two I64", f->base);
        memcpy(size, qr_tensor_files_data(f->st, shape), sizeof size);
        const bool fits = size[0] == q->n_out && size[1] >= 1 && size[1] <= QR_LINEAR_INPUTS_MAX;
        if (fits && words(size[1], q->bits) != c->shape[1]) /* groups of modules may differ in it */
            q->bits = q->bits == 4 ? 8 : 4;
        if (!fits || words(size[1], q->bits) != c->shape[1])
            return wrong(f, c, "as many codes as weight_shape says");
        q->n_in = size[1];
        q->zero = 1 << (q->bits - 1);
    }
    int rc = set_scales(f, q);
    if (rc || !q->zeros)
        return rc;
    if (q->layout == PACKED)
        return is(q->zeros, "I32", words(q->n_out, q->bits), q->n_groups) && q->block_out == 1 && q->out_stride
                   ? 0 : wrong(f, q->zeros, "as many groups and outputs as scales have");
    const uint64_t n_scales = q->scale->n_bytes / qr_dtype_bytes(q->scale->type->dtype);
    return strcmp(q->zeros->type->name, "I8") == 0 && q->zeros->n_bytes == n_scales ? 0 : wrong(f, q->zeros, "as many as there are scales");
}

static int64_t load_i32(const uint8_t *p, int64_t i)
{
    int32_t v;
    memcpy(&v, p + 4 * i, sizeof v);
    return v;
}

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

static bool is_symmetric(const struct qr_tensor_files *st, const struct qr_quantized *q);

static int put_together(struct finder *f, const struct qr_stored_tensor *codes)
{
    struct qr_tensor_files *st = f->st;
    struct qr_quantized *q = qr_arena_alloc(&st->made.names, sizeof *q, _Alignof(struct qr_quantized));
    const int32_t said = f->s->bits ? f->s->bits : 4; /* by groups of modules: perhaps none, or others' */
    *q = (struct qr_quantized){.layout = f->form->layout, .bits = f->form->layout == INT8 || f->form->layout == FP8 ? 8 : said,
                               .codes = codes, .scale = part(f, f->form->scale),
                               .zeros = part(f, f->form->zeros), .order = part(f, f->form->order),
                               .shape = f->form->layout == PACKED ? part(f, ".weight_shape") : NULL};
    if (!q->scale)
        q->scale = part(f, f->form->scale2);
    if (!q->scale)
        return qr_err_set(f->err, QR_E_DAMAGED, "tensor %s%s is missing, by which %s is multiplied", f->base, f->form->scale, codes->name);
    if (!q->scale->type->computable || q->scale->n_dims > 2 || q->scale->n_bytes == 0)
        return wrong(f, q->scale, "F32, F16 or BF16 in at most two dimensions");
    if (codes->n_dims != 2 || codes->n_bytes == 0)
        return wrong(f, codes, "two dimensions");
    int rc = q->layout == GPTQ || q->layout == AWQ ? set_columns(f, q) : set_rows(f, q);
    rc = rc ? rc : set_order(f, q);
    if (rc)
        return rc;
    if (q->ordered)
        sort_inputs(&st->made.names, q, qr_tensor_files_data(st, q->order));
    q->symmetric = q->layout != FP8 && is_symmetric(st, q);
    char *name = qr_arena_alloc(&st->made.names, strlen(f->base) + sizeof ".weight", 1);
    stpcpy(stpcpy(name, f->base), ".weight");
    *qr_stored_list_add(&st->made) = (struct qr_stored_tensor){.name = name, .type = &types[q->layout], .n_dims = 2, .shard = codes->shard,
                                                               .shape = {q->n_out, q->n_in}, .offset = codes->offset, .quantized = q};
    if (!qr_map_add(&st->made_by_name, name, strlen(name), st->made.n - 1))
        return qr_err_set(f->err, QR_E_DAMAGED, "tensor %s is quantized twice", name);
    return 0;
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

/* ---- reading ---- */

static float load_float(const uint8_t *p, enum qr_dtype type, int64_t i)
{
    float x;
    qr_stored_numbers(&x, p + (size_t)i * qr_dtype_bytes(type), type, 1);
    return x;
}

static int32_t bits_of(const uint8_t *p, int64_t word, int32_t bits, int64_t place)
{
    return (int32_t)((uint32_t)load_i32(p, word) >> (bits * (int32_t)place) & ((1u << bits) - 1));
}

/* Where output o of eight lies in a word of AWQ's. */
static const uint8_t awq_places[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static int32_t awq_place(int64_t o)
{
    return awq_places[o % 8];
}

/* AWQ's, eight outputs in a word, of which n from `first` on are wanted. */
static void unpack_awq(uint8_t code[ROWS][CHUNK], const struct qr_quantized *q, const uint8_t *p, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    const int64_t row = q->n_out / 8;
    for (int64_t o = first / 8 * 8; o < first + n; o += 8)
        for (int64_t i = 0; i < n_in; i += 8) {
            uint64_t x[8] = {0};
            for (int64_t k = 0; k < 8 && i + k < n_in; k++)
                x[k] = bytes_of(load_word(p, (at + i + k) * row + o / 8));
            turn(x);
            for (int64_t k = 0; k < 8; k++)
                if (o + k >= first && o + k < first + n)
                    memcpy(&code[o + k - first][i], &x[awq_place(k)], (size_t)(n_in - i < 8 ? n_in - i : 8));
        }
}

struct reader {
    const struct qr_quantized *q;
    const struct qr_stored_ops *ops; /* or NULL */
    const uint8_t *codes, *scale, *zeros, *order;
};

static struct reader reader_of(const struct qr_tensor_files *st, const struct qr_quantized *q)
{
    return (struct reader){.q = q, .ops = st->ops, .codes = qr_tensor_files_data(st, q->codes), .scale = qr_tensor_files_data(st, q->scale),
                           .zeros = q->zeros ? qr_tensor_files_data(st, q->zeros) : NULL, .order = q->ordered ? qr_tensor_files_data(st, q->order) : NULL};
}

/* Codes of outputs [first, first + n) and inputs [at, at + n_in), n <= ROWS, n_in <= CHUNK; at is a multiple of 8. INT8's are signed. */
static void unpack(uint8_t code[ROWS][CHUNK], const struct reader *r, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    const struct qr_quantized *q = r->q;
    const int64_t per = 32 / q->bits, row = words(q->n_in, q->bits);
    QR_ASSERT(n <= ROWS && n_in <= CHUNK && at % 8 == 0);
    if (q->layout == AWQ)
        unpack_awq(code, q, r->codes, first, n, at, n_in);
    for (int64_t o = first; o < first + n && q->layout != AWQ; o++)
        if (q->layout == GPTQ)
            unpack_words(code[o - first], r->codes, at / per * q->n_out + o, q->n_out, q->bits, n_in);
        else if (q->layout == PACKED)
            unpack_words(code[o - first], r->codes, o * row + at / per, 1, q->bits, n_in);
        else
            memcpy(code[o - first], r->codes + o * q->n_in + at, (size_t)n_in);
}

/* The same by loops of an instruction set. False: there are none for this. */
static bool unpack_by_ops(uint8_t *to, int64_t pitch, const struct reader *r, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    const struct qr_quantized *q = r->q;
    const int64_t outputs = 4 * q->n_out; /* bytes of a row of words that lie by outputs */
    if (!r->ops || q->bits != 4)
        return false;
    if (q->layout == AWQ && r->ops->across && first % 8 == 0 && n % 8 == 0) {
        r->ops->across(to, pitch, r->codes + at * (outputs / 8) + first / 8 * 4, outputs / 8, n / 8, n_in, awq_places);
        return true;
    }
    if (q->layout == GPTQ && r->ops->along) {
        r->ops->along(to, pitch, r->codes + at / 8 * outputs + first * 4, outputs, n, n_in);
        return true;
    }
    return false;
}

/* Codes of any rows and inputs as bytes, rows `pitch` apart; at is a multiple of 8. */
static void read_codes(uint8_t *to, int64_t pitch, const struct reader *r, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    QR_UNINITIALIZED uint8_t code[ROWS][CHUNK];
    QR_ASSERT(at % 8 == 0 && n_in <= pitch);
    if (unpack_by_ops(to, pitch, r, first, n, at, n_in))
        return;
    for (int64_t row = 0; row < n; row += ROWS)
        for (int64_t c = 0; c < n_in; c += CHUNK) {
            const int64_t m = n_in - c < CHUNK ? n_in - c : CHUNK, rows = n - row < ROWS ? n - row : ROWS;
            unpack(code, r, first + row, rows, at + c, m);
            for (int64_t k = 0; k < rows; k++)
                memcpy(to + (row + k) * pitch + c, code[k], (size_t)m);
        }
}

static int64_t scale_at(const struct qr_quantized *q, int64_t o, int64_t g)
{
    return o / q->block_out * q->out_stride + g * q->in_stride;
}

static int32_t zero_of(const struct reader *r, int64_t o, int64_t g)
{
    const struct qr_quantized *q = r->q;
    const int64_t per = 32 / q->bits;
    if (!r->zeros)
        return q->zero;
    if (q->layout == INT8)
        return (int8_t)r->zeros[scale_at(q, o, g)];
    if (q->layout == PACKED)
        return bits_of(r->zeros, o / per * q->n_groups + g, q->bits, o % per);
    const int64_t word = g * words(q->n_out, q->bits) + o / per;
    return bits_of(r->zeros, word, q->bits, q->layout == AWQ ? awq_place(o) : o % per) + q->zero_more;
}

/* Codes that share a scale. */
static void decode_run(float *dst, const uint8_t *code, int64_t n, enum layout layout, float scale, int32_t zero)
{
    if (layout == FP8)
        for (int64_t i = 0; i < n; i++)
            dst[i] = scale * qr_e4m3_to_f32(code[i]);
    else if (layout == INT8)
        for (int64_t i = 0; i < n; i++)
            dst[i] = scale * (float)((int8_t)code[i] - zero);
    else
        for (int64_t i = 0; i < n; i++)
            dst[i] = scale * (float)(code[i] - zero);
}

/* One row's codes where inputs are in any order: by their groups' scales and zeros. */
static void decode_ordered(const struct reader *r, float *dst, const uint8_t *code, int64_t row, int64_t at, int64_t n_in)
{
    const struct qr_quantized *q = r->q;
    QR_UNINITIALIZED float scale[ORDERED_GROUPS], zero[ORDERED_GROUPS];
    const bool all = q->n_groups <= ORDERED_GROUPS;
    for (int64_t g = 0; all && g < q->n_groups; g++) {
        scale[g] = load_float(r->scale, q->scale->type->dtype, scale_at(q, row, g));
        zero[g] = (float)zero_of(r, row, g);
    }
    for (int64_t i = 0; i < n_in; i++) {
        const int64_t g = load_i32(r->order, at + i);
        const float by = all ? scale[g] : load_float(r->scale, q->scale->type->dtype, scale_at(q, row, g));
        dst[i] = by * ((float)code[i] - (all ? zero[g] : (float)zero_of(r, row, g)));
    }
}

static void decode_chunk(const struct reader *r, float *dst, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    const struct qr_quantized *q = r->q;
    QR_UNINITIALIZED uint8_t code[ROWS][CHUNK];
    read_codes(code[0], CHUNK, r, first, n, at, n_in);
    for (int64_t k = 0; k < n && r->order; k++)
        decode_ordered(r, dst + k * q->n_in + at, code[k], first + k, at, n_in);
    for (int64_t k = 0; k < n && !r->order; k++)
        for (int64_t i = 0, end; i < n_in; i = end) {
            const int64_t g = (at + i) / q->group;
            end = (g + 1) * q->group - at < n_in ? (g + 1) * q->group - at : n_in;
            const float scale = load_float(r->scale, q->scale->type->dtype, scale_at(q, first + k, g));
            decode_run(dst + k * q->n_in + at + i, code[k] + i, end - i, q->layout, scale, q->layout == FP8 ? 0 : zero_of(r, first + k, g));
        }
}

/* E4M3 numbers of inputs [at, at + n_in) of rows [first, first + n), which lie in one group and one block and so have one scale. */
static void put_halves(const struct reader *r, uint16_t *dst, int64_t pitch, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    const struct qr_quantized *q = r->q;
    const float scale = load_float(r->scale, q->scale->type->dtype, scale_at(q, first, at / q->group));
    const uint8_t *code = r->codes + first * q->n_in + at;
    uint16_t number[256];
    for (int32_t i = 0; i < 256; i++)
        number[i] = qr_f32_to_bf16(scale * qr_e4m3_to_f32((uint8_t)i));
    for (int64_t row = 0; row < n; row++)
        for (int64_t i = 0; i < n_in; i++)
            dst[row * pitch + i] = number[code[row * q->n_in + i]];
}

bool qr_quantized_halves(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, uint16_t *dst, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    QR_ASSERT(st != NULL && t != NULL && t->quantized != NULL && dst != NULL);
    QR_ASSERT(first >= 0 && n <= t->shape[0] - first && at >= 0 && n_in <= t->shape[1] - at);
    const struct qr_quantized *q = t->quantized;
    const struct reader r = reader_of(st, q);
    if (q->layout != FP8)
        return false;
    const int64_t block = q->out_stride ? q->block_out : n; /* rows that share their scales */
    for (int64_t row = 0, rows; row < n; row += rows) {
        rows = q->out_stride ? block - (first + row) % block : n;
        rows = rows < n - row ? rows : n - row;
        for (int64_t i = 0, m; i < n_in; i += m) {
            m = q->group - (at + i) % q->group;
            m = m < n_in - i ? m : n_in - i;
            put_halves(&r, dst + row * n_in + i, n_in, first + row, rows, at + i, m);
        }
    }
    return true;
}

void qr_quantized_decode(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, float *dst, int64_t first, int64_t n)
{
    QR_ASSERT(st != NULL && t != NULL && dst != NULL);
    QR_ASSERT(t->quantized != NULL && first >= 0 && n <= t->shape[0] - first);
    const struct qr_quantized *q = t->quantized;
    const struct reader r = reader_of(st, q);
    for (int64_t row = 0; row < n; row += ROWS)
        for (int64_t at = 0; at < q->n_in; at += CHUNK)
            decode_chunk(&r, dst + row * q->n_in, first + row, n - row < ROWS ? n - row : ROWS, at, q->n_in - at < CHUNK ? q->n_in - at : CHUNK);
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

static bool all_zero(const uint8_t *p, uint64_t n)
{
    bool all = true;
    for (uint64_t i = 0; all && i < n; i++)
        all = p[i] == 0;
    return all;
}

/* Every zero is the one that stands in the middle of the codes: what is stored is looked at a word at a time, as many as there are groups of 8 outputs. */
static bool is_symmetric(const struct qr_tensor_files *st, const struct qr_quantized *q)
{
    QR_UNINITIALIZED uint32_t room[LOOKED_WORDS];
    if (!q->zeros)
        return true;
    if (q->layout == INT8)
        return all_zero(qr_tensor_files_data(st, q->zeros), q->zeros->n_bytes);
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
            const bool is_last = (q->layout == PACKED ? (at + i) / q->n_groups : (at + i) % row) == row - 1;
            others |= ((uint32_t)load_i32(p, i) ^ middle) & (is_last ? last : UINT32_MAX);
        }
    }
    return others == 0;
}

const int8_t *qr_quantized_levels(enum qr_dtype coded)
{
    static const int8_t unsigned_levels[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    static const int8_t signed_levels[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    const struct qr_coded_format f = qr_dtype_coded(coded);
    return f.bits == 8 ? NULL : f.zero ? unsigned_levels : signed_levels;
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
    const int32_t group = coded_group(q);
    if (q->layout == FP8)
        return q->n_groups == 1 || q->group % 128 == 0 ? QR_C8_E4M3 : QR_CODED;
    if ((q->ordered && !q->inputs) || q->block_out != 1 || group == 0 || q->scale->type->dtype == QR_F32)
        return QR_CODED;
    if (q->bits == 8)
        return q->symmetric ? QR_C8_G32 : QR_CODED;
    if (!q->symmetric)
        return group == 128 ? QR_C4_G128_Z : group == 64 ? QR_C4_G64_Z : QR_C4_G32_Z;
    return group == 128 ? QR_C4_G128 : group == 64 ? QR_C4_G64 : QR_C4_G32;
}

/* Of outputs [first, first + n) and one group: where scales lie by outputs, all at once. */
static void scales_of(const struct reader *r, float *scale, int64_t first, int64_t n, int64_t g)
{
    const struct qr_quantized *q = r->q;
    const enum qr_dtype type = q->scale->type->dtype;
    const uint8_t *at = r->scale + (size_t)scale_at(q, first, g) * qr_dtype_bytes(type);
    const bool together = q->block_out == 1 && q->out_stride == 1;
    if (together)
        qr_stored_numbers(scale, at, type, n);
    for (int64_t i = 0; !together && i < n; i++)
        scale[i] = load_float(r->scale, type, scale_at(q, first + i, g));
}

/* Four codes of 4 bits, each in a byte and a byte of zeros above it: AWQ's order has 0 2 4 6 in a word's lower half. */
static uint64_t apart(uint64_t four)
{
    four = (four | four << 24) & 0x000000ff000000ffu;
    return (four | four << 12) & 0x000f000f000f000fu;
}

/* Likewise zeros: where eight lie in a word, a word at a time. */
static void zeros_of(const struct reader *r, int8_t *zero, int64_t first, int64_t n, int64_t g)
{
    const struct qr_quantized *q = r->q;
    const bool columns = r->zeros && q->bits == 4 && (q->layout == AWQ || q->layout == GPTQ) && first % 8 == 0;
    const uint64_t more = (uint64_t)q->zero_more * 0x0101010101010101u; /* to each, of which none is over 15 */
    int64_t i = 0;
    for (; columns && i + 8 <= n; i += 8) {
        const uint32_t word = load_word(r->zeros, g * words(q->n_out, 4) + (first + i) / 8);
        const uint64_t eight = (q->layout == AWQ ? apart(word & 0xffff) | apart(word >> 16) << 8 : bytes_of(word)) + more;
        memcpy(zero + i, &eight, sizeof eight);
    }
    for (; i < n; i++)
        zero[i] = (int8_t)zero_of(r, first + i, g);
}

int32_t qr_quantized_together(const struct qr_stored_tensor *t)
{
    QR_ASSERT(t != NULL && t->quantized != NULL);
    return t->quantized->layout == AWQ ? 8 : t->quantized->layout == GPTQ ? 4 : 1;
}

/* Words of ROWS outputs, eight inputs in each, one row of words after the other: codes of n of the outputs and of inputs in[n_in]. Vectors of outputs become
 * words of these inputs first. */
static void pick_inputs(uint8_t *to, int64_t pitch, const struct reader *r, const uint32_t *words, int64_t n, const int32_t *in, int64_t n_in)
{
    uint32_t picked[CHUNK / 8][ROWS] = {0};
    for (int64_t i = 0; i < n_in; i++) {
        const uint32_t *from = words + in[i] / 8 * ROWS;
        uint32_t *word = picked[i / 8], some[ROWS];
        const int down = in[i] % 8 * 4, up = (int)(i % 8) * 4;
        for (int64_t o = 0; o < ROWS; o++)
            some[o] = word[o] | (from[o] >> down & 15) << up;
        memcpy(word, some, sizeof some);
    }
    if (r->ops && r->ops->along)
        r->ops->along(to, pitch, (const uint8_t *)picked, sizeof *picked, n, n_in);
    for (int64_t o = 0; o < n && !(r->ops && r->ops->along); o++)
        unpack_words(to + o * pitch, (const uint8_t *)picked, o, ROWS, 4, n_in);
}

/* The same of GPTQ's words of 4 bits where inputs are sorted by groups: at and n_in are places there. In the file lines of an output are as far from each other
 * as a cache has room for few of: those of some outputs come side by side first. */
static void read_picked(uint8_t *to, const struct reader *r, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    const struct qr_quantized *q = r->q;
    const int64_t n_words = q->n_in / 8;
    uint32_t *words = qr_alloc((size_t)n_words * ROWS, sizeof *words);
    for (int64_t row = 0, rows; row < n; row += rows) {
        rows = n - row < ROWS ? n - row : ROWS;
        for (int64_t i = 0; i < n_words; i++)
            memcpy(words + i * ROWS, r->codes + 4 * (i * q->n_out + first + row), (size_t)rows * sizeof *words);
        for (int64_t c = 0; c < n_in; c += CHUNK)
            pick_inputs(to + row * n_in + c, n_in, r, words, rows, q->inputs + at + c, n_in - c < CHUNK ? n_in - c : CHUNK);
    }
    qr_free(words);
}

/* Likewise of other words: a chunk of inputs of some rows is read as it lies, then each goes to its place. */
static void read_sorted(uint8_t *to, const struct reader *r, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    const struct qr_quantized *q = r->q;
    QR_UNINITIALIZED uint8_t code[ROWS][CHUNK];
    for (int64_t row = 0; row < n; row += ROWS)
        for (int64_t c = 0; c < q->n_in; c += CHUNK) {
            const int64_t m = q->n_in - c < CHUNK ? q->n_in - c : CHUNK, rows = n - row < ROWS ? n - row : ROWS;
            read_codes(code[0], CHUNK, r, first + row, rows, c, m);
            for (int64_t i = 0; i < m; i++) {
                const int64_t place = q->place[c + i] - at;
                for (int64_t k = 0; k < rows && place >= 0 && place < n_in; k++)
                    to[(row + k) * n_in + place] = code[k][i];
            }
        }
}

void qr_quantized_fill(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, enum qr_dtype as, const struct qr_coded_rows *to, int64_t first,
                       int64_t n, int64_t at, int64_t n_in)
{
    QR_ASSERT(st != NULL && t != NULL && t->quantized != NULL && to != NULL);
    QR_ASSERT(first >= 0 && n <= t->shape[0] - first && at >= 0 && n_in <= t->shape[1] - at);
    const struct qr_quantized *q = t->quantized;
    const struct reader r = reader_of(st, q);
    const struct qr_coded_format f = qr_dtype_coded(as);
    const int64_t n_groups = (n_in + f.group - 1) / f.group;
    const uint8_t middle = (uint8_t)(f.zero || q->layout == INT8 || f.e4m3 ? 0 : 1 << (q->bits - 1));
    QR_ASSERT(!f.steps && !f.offset && at % f.group == 0);
    if (q->inputs && q->layout == GPTQ && q->bits == 4)
        read_picked((uint8_t *)to->level, &r, first, n, at, n_in);
    else if (q->inputs)
        read_sorted((uint8_t *)to->level, &r, first, n, at, n_in);
    else
        read_codes((uint8_t *)to->level, n_in, &r, first, n, at, n_in);
    for (int64_t i = 0; middle && i < n * n_in; i++)
        to->level[i] = (int8_t)((uint8_t)to->level[i] - middle);
    for (int64_t k = 0; k < n; k += SCALES)
        for (int64_t g = 0; g < n_groups; g++) {
            const int64_t stored = (at + g * f.group) / q->group, m = n - k < SCALES ? n - k : SCALES;
            QR_UNINITIALIZED float scale[SCALES];
            QR_UNINITIALIZED int8_t zero[SCALES];
            scales_of(&r, scale, first + k, m, stored);
            for (int64_t i = 0; i < m; i++)
                to->scale[(k + i) * n_groups + g] = scale[i];
            if (!f.zero)
                continue;
            zeros_of(&r, zero, first + k, m, stored);
            for (int64_t i = 0; i < m; i++)
                to->offset_step[(k + i) * n_groups + g] = zero[i];
        }
}
