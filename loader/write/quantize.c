/* quantize.c - `quire quantize`: the matrices of a model's layers with few bits, everything else as it is, in one safetensors file.
 *
 * With recorded inputs, what a norm feeds is smoothed first: columns are multiplied by powers of two, by which the norm is
 * divided, where that lowers the weighted error of rounding. Then the list of tensors is made, and each is written in turn.
 * Guarantee: a smoothed model computes the same before rounding; the file does not depend on the number of threads.
 * Thread: the caller's; rows are rounded on the backend's pool (round_rows.c). */
#include "loader/write/quantize.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/half.h"
#include "base/json.h"
#include "base/mem.h"
#include "loader/families/family.h"
#include "loader/stores/quantized_tensors.h"
#include "loader/write/round_rows.h"
#include "loader/write/safetensors_write.h"
#include "loader/weight_table.h"
#include "loader/weights.h"

#define FOLDS 2           /* of a layer: before attention, before the feed-forward */
#define WORTH 0.99        /* of the error: what smoothing must bring it below to be done at all */
#define EXPONENT_MAX 6    /* of what smoothing divides by */
#define COPY_ROWS 16

static const struct fold {
    size_t norm, matrix;
} folds[FOLDS] = {{offsetof(struct qr_layer_weights, norm_attn), offsetof(struct qr_layer_weights, qkv)},
                  {offsetof(struct qr_layer_weights, norm_mlp), offsetof(struct qr_layer_weights, gate_up)}};

/* One tensor of the file that is written. */
enum part { COPY, CODES, SCALES, ZEROS, SHAPE };
struct item {
    struct qr_round_matrix m;
    enum part part;
    float offset;                  /* that the file's vector has and the written one does not */
    char name[QR_WEIGHT_NAME_MAX]; /* the matrix' or vector's */
};

struct writer {
    const struct qr_tensor_files *st;
    const struct qr_model_config *c;
    const struct qr_quantize_options *o;
    struct qr_quantize_report *report;
    struct qr_err *err;
    struct qr_st_entry *entry; /* owned [n], names too */
    struct item *item;         /* owned [n] */
    int32_t n, cap;
    float **factor;            /* owned [n_layers * FOLDS], each [n_embd] or NULL */
    float *scaled;             /* owned: [inputs of the widest matrix] */
    struct qr_round_rows rows;
    struct qr_st_out out;
    uint64_t done, total;      /* numbers that were gone through, for progress */
};

static bool is_rounded(const struct qr_weight_row *row)
{
    return row->kind == QR_KIND_MATRIX && row->per_layer && row->n_out != QR_DIM_EXPERTS && row->n_out != QR_DIM_ONE;
}

static int64_t group_of(const struct qr_quantize_options *o, int64_t n_in)
{
    return qr_rounding_is_int4(o->type) ? o->group : n_in;
}

static int stopped(const struct writer *w)
{
    return w->o->stop && atomic_load(w->o->stop) ? qr_err_set(w->err, QR_E_CLOSED, "interrupted") : 0;
}

/* ---- what can be done ---- */

int qr_quantize_group(int64_t *out, const struct qr_model_config *c, int64_t asked, struct qr_err *err)
{
    QR_ASSERT(out != NULL && c != NULL);
    QR_ASSERT(asked >= 0 && err != NULL);
    int64_t group = asked ? asked : 128;
    for (struct qr_weight_walk k = qr_weight_walk_begin(c); qr_weight_walk_next(&k);) {
        const int64_t n_in = qr_dim_value(c, k.row->n_in);
        char name[QR_WEIGHT_NAME_MAX];
        while (is_rounded(k.row) && !asked && group > 32 && n_in % group != 0)
            group /= 2;
        if (is_rounded(k.row) && n_in % group != 0)
            return qr_err_set(err, QR_E_UNSUPPORTED, "%s has %lld inputs, which groups of %lld do not divide; use %s", qr_weight_walk_name(name, &k),
                              (long long)n_in, (long long)group, group > 32 ? "a smaller --group" : "--type int8 or fp8");
    }
    *out = group;
    return 0;
}

/* Whether norms stand before the halves of a layer, into which smoothing folds what it divides by. */
static bool norms_inputs(const struct qr_model_config *c)
{
    bool found = false;
    for (struct qr_weight_walk k = qr_weight_walk_begin(c); !found && qr_weight_walk_next(&k);)
        found = k.row->per_layer && k.row->at == folds[0].norm;
    return found;
}

const char *qr_quantize_unsmoothable(const struct qr_model_config *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->n_layers > 0);
    if (c->layer_norm)
        return "its norms are LayerNorm, with biases";
    return c->norm_plus_one ? "its norms multiply by 1 + w" : norms_inputs(c) ? NULL : "no norms stand before its products";
}

void qr_quantize_fit(struct qr_model_config *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->quant.method == QR_QUANT_NONE);
    c->norm_plus_one |= qr_family_of(c->arch)->norm_plus_one;
}

static int admits_gguf(const struct qr_model_config *c, const struct qr_tensor_files *st, struct qr_err *err)
{
    char name[QR_WEIGHT_NAME_MAX];
    for (struct qr_weight_walk k = qr_weight_walk_begin(c); qr_weight_walk_next(&k);) {
        const struct qr_stored_tensor *t = is_rounded(k.row) ? qr_weights_find(&k, st, name) : NULL;
        if (t && t->type->blocks && t->type->gguf != QR_GGUF_T_Q8_0)
            return qr_err_set(err, QR_E_UNSUPPORTED, "tensor %s is %s: rounding what is rounded loses twice; expected F32, F16, BF16 or Q8_0", t->name,
                              t->type->name);
    }
    return 0;
}

int qr_quantize_admits(const struct qr_model_config *c, const struct qr_tensor_files *gguf, struct qr_err *err)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(err != NULL);
    if (c->quant.method != QR_QUANT_NONE)
        return qr_err_set(err, QR_E_UNSUPPORTED, "it is quantized already (%s): rounding what is rounded loses twice; quantize the model it was made of",
                          qr_quant_method_name(c->quant.method));
    return gguf ? admits_gguf(c, gguf, err) : 0;
}

/* ---- smoothing ---- */

static void tell(struct writer *w, const struct qr_stored_tensor *t)
{
    w->done += (uint64_t)t->shape[0] * (uint64_t)t->shape[1];
    if (w->o->progress)
        w->o->progress(w->o->progress_user, w->done < w->total ? w->done : w->total, w->total);
}

/* Goes over the matrices that one norm feeds: `largest` of their columns where it is not NULL, else *error of rounding them with `factor`. */
static int search_rows(struct writer *w, float *largest, double *error, const float *factor, const float *importance, int32_t layer, size_t at)
{
    int rc = 0;
    *error = 0;
    for (struct qr_weight_walk k = qr_weight_walk_begin(w->c); rc == 0 && qr_weight_walk_next(&k);) {
        char name[QR_WEIGHT_NAME_MAX];
        if (k.layer != layer || k.row->at != at || !is_rounded(k.row))
            continue;
        const struct qr_round_matrix m = {.st = w->st, .t = qr_weights_find(&k, w->st, name), .transposed = qr_weight_row_transposed(k.row, w->c),
                                          .factor = factor, .importance = importance};
        if (largest)
            qr_round_rows_largest(&w->rows, &m, largest);
        else
            *error += qr_round_rows_error(&w->rows, &m);
        tell(w, m.t);
        rc = stopped(w);
    }
    return rc;
}

/* Powers of two whose middle is 1. */
static void set_factor(float *factor, const float *importance, const float *largest, int64_t n, double a)
{
    double sum = 0;
    int64_t n_live = 0;
    for (int64_t i = 0; i < n; i++) {
        const bool live = importance[i] > 0 && largest[i] > 0 && isfinite(importance[i]) && isfinite(largest[i]);
        factor[i] = live ? (float)(a / 2 * log2((double)importance[i]) - (1 - a) * log2((double)largest[i])) : NAN;
        sum += live ? (double)factor[i] : 0;
        n_live += live;
    }
    for (int64_t i = 0; i < n; i++) {
        const float exponent = isnan(factor[i]) ? 0 : rintf(factor[i] - (float)(sum / (double)n_live));
        factor[i] = exp2f(fmaxf(-EXPONENT_MAX, fminf(EXPONENT_MAX, exponent)));
    }
}

/* Finds what is best for one fold; w->factor stays NULL where nothing is better than nothing. */
static int smooth(struct writer *w, int32_t layer, int32_t f, const float *importance)
{
    static const double exponents[] = {0.25, 0.5, 0.75};
    const int64_t n = w->c->n_embd;
    float *largest = qr_alloc((size_t)n, sizeof *largest), *best = NULL, *factor = NULL;
    double error, least;
    int rc = search_rows(w, largest, &error, NULL, importance, layer, folds[f].matrix);
    rc = rc ? rc : search_rows(w, NULL, &least, NULL, importance, layer, folds[f].matrix);
    for (int i = 0; rc == 0 && i < QR_COUNT(exponents); i++) {
        if (!factor)
            factor = qr_alloc((size_t)n, sizeof *factor);
        set_factor(factor, importance, largest, n, exponents[i]);
        rc = search_rows(w, NULL, &error, factor, importance, layer, folds[f].matrix);
        if (rc || !(error < (best ? least : WORTH * least)))
            continue;
        least = error;
        qr_free(best);
        best = factor;
        factor = NULL;
    }
    qr_free(factor);
    qr_free(largest);
    w->factor[layer * FOLDS + f] = best;
    w->report->n_smoothed += best != NULL;
    return rc;
}

static bool smooths(const struct writer *w)
{
    return w->o->smooth && w->o->inputs && !qr_quantize_unsmoothable(w->c);
}

static int smooth_all(struct writer *w)
{
    const bool can = smooths(w);
    int rc = 0;
    for (int32_t layer = 0; can && layer < w->c->n_layers; layer++)
        for (int32_t f = 0; rc == 0 && f < FOLDS; f++) {
            const float *importance = w->o->inputs(w->o->user, layer, folds[f].matrix);
            if (!importance || (f == 1 && qr_layer_has_experts(w->c, layer))) /* the norm feeds the router and all experts */
                continue;
            w->report->n_smoothable++;
            rc = smooth(w, layer, f, importance);
        }
    return rc;
}

/* ---- the list of tensors ---- */

static char *name_of(const char *matrix, const char *suffix)
{
    const size_t len = strlen(matrix), n = suffix ? len - strlen(".weight") : len;
    char *name = qr_alloc(n + (suffix ? strlen(suffix) : 0) + 1, 1);
    memcpy(name, matrix, n);
    memcpy(name + n, suffix ? suffix : "", (suffix ? strlen(suffix) : 0) + 1);
    return name;
}

static struct qr_st_entry *add(struct writer *w, const struct item *item, const char *suffix)
{
    if (w->n == w->cap) {
        w->cap = w->cap ? 2 * w->cap : 256;
        w->entry = qr_realloc(w->entry, (size_t)w->cap, sizeof *w->entry);
        w->item = qr_realloc(w->item, (size_t)w->cap, sizeof *w->item);
    }
    w->item[w->n] = *item;
    struct qr_st_entry *e = &w->entry[w->n++];
    *e = (struct qr_st_entry){.name = name_of(item->name, suffix), .dtype = item->m.t->type->dtype, .n_dims = 2};
    return e;
}

/* Eight of four bits in a word. */
static int64_t words(int64_t n)
{
    return (n + 7) / 8;
}

static void add_matrix(struct writer *w, struct item item)
{
    const int64_t n_out = qr_round_matrix_outputs(&item.m), n_in = qr_round_matrix_inputs(&item.m), n_groups = n_in / group_of(w->o, n_in);
    const bool packed = qr_rounding_is_int4(w->o->type);
    item.part = CODES;
    struct qr_st_entry *e = add(w, &item, packed ? ".weight_packed" : ".weight");
    e->dtype = packed ? QR_I32 : QR_I8;
    e->type = w->o->type == QR_ROUNDING_FP8 ? "F8_E4M3" : NULL;
    e->type_bytes = 1;
    e->shape[0] = n_out;
    e->shape[1] = packed ? words(n_in) : n_in;
    if (w->o->type == QR_ROUNDING_INT4Z) {
        item.part = ZEROS;
        e = add(w, &item, ".weight_zero_point");
        e->dtype = QR_I32;
        e->shape[0] = words(n_out);
        e->shape[1] = n_groups;
    }
    item.part = SCALES;
    e = add(w, &item, ".weight_scale");
    e->dtype = QR_BF16;
    e->shape[0] = n_out;
    e->shape[1] = n_groups;
    w->report->n_matrices++;
    w->report->n_calibrated += item.m.importance != NULL;
}

static void add_copy(struct writer *w, const struct item *item, const struct qr_weight_row *row)
{
    const struct qr_stored_tensor *t = item->m.t;
    struct qr_st_entry *e = add(w, item, NULL);
    e->n_dims = t->n_dims;
    e->shape[0] = t->shape[0];
    e->shape[1] = t->n_dims == 2 ? t->shape[1] : 0;
    if (t->type->blocks) /* they would have to be quantized once more to stay as short */
        e->dtype = QR_BF16;
    else if (item->offset != 0 || (e->dtype == QR_F16 && (item->m.factor || !qr_stored_is_plain(t)))) /* what is divided may leave its range */
        e->dtype = QR_F32; /* put_numbers has no f16 */
    if (t->n_dims == 2) {
        const bool table = row->kind == QR_KIND_TABLE || (row->kind == QR_KIND_ROWS && row->when != QR_WHEN_CLASSIFIER);
        w->report->n_kept[table ? QR_KEPT_EMBEDDING : row->per_layer ? QR_KEPT_ROUTER : QR_KEPT_HEAD]++;
        w->report->kept_bytes += qr_st_entry_bytes(e);
    }
}

static void add_all(struct writer *w)
{
    for (struct qr_weight_walk k = qr_weight_walk_begin(w->c); qr_weight_walk_next(&k);) {
        struct item item = {.m = {.st = w->st}};
        const struct qr_stored_tensor *t = item.m.t = qr_weights_find(&k, w->st, item.name);
        if (k.row->when == QR_WHEN_TIED)
            continue;
        if (!w->o->rename)
            snprintf(item.name, sizeof item.name, "%s", t->name);
        for (int32_t f = 0; k.layer >= 0 && f < FOLDS; f++)
            if (k.row->at == (is_rounded(k.row) ? folds[f].matrix : folds[f].norm))
                item.m.factor = w->factor[k.layer * FOLDS + f];
        if (is_rounded(k.row) && w->o->inputs)
            item.m.importance = w->o->inputs(w->o->user, k.layer, k.row->at);
        item.m.transposed = qr_weight_row_transposed(k.row, w->c);
        item.offset = w->o->rename ? qr_weight_row_offset(k.row, w->c) : 0;
        if (is_rounded(k.row))
            add_matrix(w, item);
        else
            add_copy(w, &item, k.row);
    }
    /* Sixteen bytes each: behind the others, which stay at multiples of what they were. */
    for (int32_t i = 0, n = w->n; qr_rounding_is_int4(w->o->type) && i < n; i++) {
        struct item item = w->item[i];
        if (item.part != CODES)
            continue;
        item.part = SHAPE;
        struct qr_st_entry *e = add(w, &item, ".weight_shape");
        e->type = "I64";
        e->type_bytes = 8;
        e->n_dims = 1;
        e->shape[0] = 2;
    }
}

/* ---- writing ---- */

/* Importance of inputs is that of what they become: x / s. */
static const float *scaled_importance(const struct qr_round_matrix *m, float *out, int64_t n)
{
    if (!m->importance || !m->factor)
        return m->importance;
    for (int64_t i = 0; i < n; i++)
        out[i] = m->importance[i] / (m->factor[i] * m->factor[i]);
    return out;
}

/* Four bits each, in place; eight of a word from the low bits up, and words low bytes first. The last word of a row may have room left. */
static size_t pack_row(uint8_t *out, const int8_t *code, int64_t n)
{
    for (int64_t i = 0; i < n; i += 2)
        out[i / 2] = (uint8_t)((code[i] + 8) | (i + 1 < n ? code[i + 1] + 8 : 0) << 4);
    for (int64_t i = (n + 1) / 2; i < 4 * words(n); i++)
        out[i] = 0;
    return (size_t)(4 * words(n));
}

static int put_rows(struct writer *w, int64_t n, int64_t n_in)
{
    size_t len = 0;
    if (!qr_rounding_is_int4(w->o->type))
        return qr_st_out_put(&w->out, w->rows.codes, (size_t)(n * n_in), w->err);
    for (int64_t r = 0; r < n; r++)
        len += pack_row(w->rows.codes + len, (const int8_t *)w->rows.codes + r * n_in, n_in);
    return qr_st_out_put(&w->out, w->rows.codes, len, w->err);
}

/* Scales and zeros are kept until the next entries, which are theirs. */
static int put_codes(struct writer *w, const struct item *item)
{
    const int64_t n_out = qr_round_matrix_outputs(&item->m), n_in = qr_round_matrix_inputs(&item->m);
    struct qr_round_matrix m = item->m;
    m.importance = scaled_importance(&item->m, w->scaled, n_in);
    int rc = 0;
    for (int64_t first = 0; rc == 0 && first < n_out; first += w->rows.piece) {
        const int64_t n = n_out - first < w->rows.piece ? n_out - first : w->rows.piece, bad = qr_round_rows_piece(&w->rows, &m, first, n);
        if (bad >= 0)
            return qr_err_set(w->err, QR_E_DAMAGED, "tensor %s has a number in row %lld that is not finite", item->name, (long long)bad);
        rc = put_rows(w, n, n_in);
        rc = rc ? rc : stopped(w);
    }
    qr_tensor_files_drop(w->st, item->m.t);
    tell(w, item->m.t);
    return rc;
}

/* Eight outputs of a group in a word. */
static int put_zeros(struct writer *w, const struct item *item)
{
    const int64_t n_out = qr_round_matrix_outputs(&item->m), n_groups = qr_round_matrix_inputs(&item->m) / w->o->group;
    int rc = 0;
    uint32_t *row = qr_alloc((size_t)n_groups, sizeof *row);
    for (int64_t first = 0; rc == 0 && first < n_out; first += 8) {
        memset(row, 0, (size_t)n_groups * sizeof *row);
        for (int64_t o = first; o < n_out && o < first + 8; o++)
            for (int64_t g = 0; g < n_groups; g++)
                row[g] |= (uint32_t)(w->rows.zero[o * n_groups + g] + 8) << 4 * (o - first);
        rc = qr_st_out_put(&w->out, row, (size_t)n_groups * sizeof *row, w->err);
    }
    qr_free(row);
    return rc;
}

/* n numbers as the type of the entry, f32 or bf16. x is overwritten. */
static int put_numbers(struct writer *w, float *x, int64_t n, enum qr_dtype type)
{
    uint8_t *half = (uint8_t *)x;
    for (int64_t i = 0; type != QR_F32 && i < n; i++) {
        const uint16_t h = qr_f32_to_bf16(x[i]);
        memcpy(half + 2 * i, &h, sizeof h);
    }
    return qr_st_out_put(&w->out, x, (size_t)n * qr_dtype_bytes(type), w->err);
}

/* Exact, as it is for whatever was 1 + w before: a number between 0.5 and 2, or a sum that was exact itself. */
static int subtract(struct writer *w, const struct item *item, float *x, int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n && item->offset != 0; i++) {
        const float was = x[i];
        x[i] -= item->offset;
        if (x[i] + item->offset != was)
            return qr_err_set(w->err, QR_E_UNSUPPORTED, "tensor %s: number %lld is %.9g, which is not 1 and a number: expected norms to which a converter has "
                              "added 1; quantize the Hugging Face directory", item->m.t->name, (long long)(first + i), (double)was);
    }
    return 0;
}

/* What is smoothed is exact: factors are powers of two. */
static int put_copy(struct writer *w, const struct item *item, enum qr_dtype type)
{
    const struct qr_stored_tensor *t = item->m.t;
    if (!item->m.factor && item->offset == 0 && qr_stored_is_plain(t))
        return qr_st_out_put(&w->out, qr_tensor_files_data(w->st, t), t->n_bytes, w->err);
    const int64_t n_cols = t->n_dims == 2 ? t->shape[1] : 1;
    QR_ASSERT((!item->m.factor && item->offset == 0) || t->n_dims == 1);
    float *x = qr_alloc((size_t)(COPY_ROWS * n_cols), sizeof *x);
    int rc = 0;
    for (int64_t first = 0; rc == 0 && first < t->shape[0]; first += COPY_ROWS) {
        const int64_t n = t->shape[0] - first < COPY_ROWS ? t->shape[0] - first : COPY_ROWS;
        qr_tensor_files_decode(w->st, t, x, first, n);
        for (int64_t i = 0; item->m.factor && i < n; i++)
            x[i] /= item->m.factor[first + i];
        rc = subtract(w, item, x, first, n);
        rc = rc ? rc : put_numbers(w, x, n * n_cols, type);
        rc = rc ? rc : stopped(w);
    }
    qr_free(x);
    return rc;
}

static int put_item(struct writer *w, int32_t i)
{
    const struct item *item = &w->item[i];
    const int64_t shape[2] = {item->part == SHAPE ? qr_round_matrix_outputs(&item->m) : 0, item->part == SHAPE ? qr_round_matrix_inputs(&item->m) : 0};
    switch (item->part) {
    case CODES: return put_codes(w, item);
    case SCALES: return qr_st_out_put(&w->out, w->rows.scale, (size_t)qr_st_entry_bytes(&w->entry[i]), w->err);
    case ZEROS: return put_zeros(w, item);
    case SHAPE: return qr_st_out_put(&w->out, shape, sizeof shape, w->err);
    case COPY: break;
    }
    return put_copy(w, item, w->entry[i].dtype);
}

static int put_all(struct writer *w, const char *path)
{
    int rc = qr_st_out_open(&w->out, path, w->entry, w->n, NULL, 0, w->err);
    if (rc)
        return rc;
    for (int32_t i = 0; rc == 0 && i < w->n; i++)
        rc = put_item(w, i);
    if (rc) {
        qr_st_out_abandon(&w->out);
        return rc;
    }
    rc = qr_st_out_close(&w->out, true, w->err);
    w->report->bytes = w->out.file.n_bytes;
    return rc;
}

static void take_memory(struct writer *w)
{
    int64_t in_max = w->c->n_embd, out_max = 1, groups_max = 1;
    for (struct qr_weight_walk k = qr_weight_walk_begin(w->c); qr_weight_walk_next(&k);) {
        const int64_t n_in = qr_dim_value(w->c, k.row->n_in), n_out = qr_dim_value(w->c, k.row->n_out);
        const bool folded = k.row->at == folds[0].matrix || k.row->at == folds[1].matrix;
        if (!is_rounded(k.row))
            continue;
        const int64_t n = n_out * (n_in / group_of(w->o, n_in));
        in_max = n_in > in_max ? n_in : in_max;
        out_max = n_out > out_max ? n_out : out_max;
        groups_max = n > groups_max ? n : groups_max;
        w->total += (uint64_t)(n_in * n_out) * (smooths(w) && folded ? 6 : 1); /* read for its columns, rounded four ways, written */
    }
    w->factor = qr_alloc((size_t)w->c->n_layers * FOLDS, sizeof *w->factor);
    w->scaled = qr_alloc((size_t)in_max, sizeof *w->scaled);
    qr_round_rows_init(&w->rows, w->o->be, w->o->type, qr_rounding_is_int4(w->o->type) ? w->o->group : 0, in_max, out_max, groups_max);
}

static void give_memory(struct writer *w)
{
    for (int32_t i = 0; i < w->n; i++)
        qr_free((char *)w->entry[i].name);
    for (int32_t i = 0; i < w->c->n_layers * FOLDS; i++)
        qr_free(w->factor[i]);
    qr_free(w->entry);
    qr_free(w->item);
    qr_free(w->factor);
    qr_free(w->scaled);
    qr_round_rows_release(&w->rows);
}

int qr_quantize_write(const char *path, const struct qr_tensor_files *st, const struct qr_model_config *c, const struct qr_quantize_options *o,
                      struct qr_quantize_report *report, struct qr_err *err)
{
    QR_ASSERT(path != NULL && st != NULL && c != NULL && o != NULL && report != NULL);
    QR_ASSERT(c->quant.method == QR_QUANT_NONE);
    struct writer w = {.st = st, .c = c, .o = o, .report = report, .err = err};
    const char *first;
    *report = (struct qr_quantize_report){0};
    int rc = qr_weights_check(st, c, err);
    if (rc)
        return rc;
    take_memory(&w);
    rc = smooth_all(&w);
    if (rc == 0) {
        add_all(&w);
        rc = put_all(&w, path);
    }
    report->n_left_out = qr_weights_unused(st, c, &first);
    give_memory(&w);
    return rc;
}
