#include "loader/quantize.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/half.h"
#include "base/json.h"
#include "base/mem.h"
#include "loader/quantized_tensors.h"
#include "loader/safetensors_write.h"
#include "loader/weight_table.h"
#include "loader/weights.h"

#define ROWS 16
#define FOLDS 2           /* of a layer: before attention, before the feed-forward */
#define WORTH 0.99        /* of the error: what smoothing must bring it below to be done at all */
#define EXPONENT_MAX 6    /* of what smoothing divides by */

static const struct fold {
    size_t norm, matrix;
} folds[FOLDS] = {{offsetof(struct qr_layer_weights, norm_attn), offsetof(struct qr_layer_weights, qkv)},
                  {offsetof(struct qr_layer_weights, norm_mlp), offsetof(struct qr_layer_weights, gate_up)}};

/* One tensor of the file that is written. */
enum part { COPY, CODES, SCALES, SHAPE };
struct item {
    const struct qr_stored_tensor *t;
    enum part part;
    const float *factor;     /* borrowed from the writer: columns are multiplied by it, norms divided; or NULL */
    const float *importance; /* borrowed: of a matrix' inputs; or NULL */
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
    float *rows, *scaled;      /* owned [ROWS][n_in], [n_in] */
    int8_t *code;              /* owned [n_in] */
    uint16_t *scale;           /* owned: of one matrix */
    struct qr_st_out out;
};

static bool is_rounded(const struct qr_weight_row *row)
{
    return row->kind == QR_KIND_MATRIX && row->per_layer && row->n_out != QR_DIM_EXPERTS && row->n_out != QR_DIM_ONE;
}

static int64_t group_of(const struct qr_quantize_options *o, int64_t n_in)
{
    return o->type == QR_ROUNDING_INT4 ? o->group : n_in;
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

const char *qr_quantize_unsmoothable(const struct qr_model_config *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->n_layers > 0);
    return c->layer_norm ? "its norms are LayerNorm, with biases" : c->norm_plus_one ? "its norms multiply by 1 + w" : NULL;
}

int qr_quantize_admits(const struct qr_model_config *c, struct qr_err *err)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(err != NULL);
    if (c->quant.method != QR_QUANT_NONE)
        return qr_err_set(err, QR_E_UNSUPPORTED, "it is quantized already (%s): rounding what is rounded loses twice; quantize the model it was made of",
                          qr_quant_method_name(c->quant.method));
    if (c->turned)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s stores its matrices with inputs first, which compressed-tensors' layouts do not have; serve it with "
                          "--quantize instead", c->arch_name);
    return 0;
}

/* ---- smoothing ---- */

/* A walk over the rows of the matrices that one norm feeds. */
struct search {
    struct writer *w;
    const float *importance;    /* [n_embd] */
    const float *factor;        /* or NULL */
    float *largest;             /* [n_embd] of columns, while they are looked for; else NULL */
    double error;
};

static void search_row(struct search *s, const float *row, int64_t n_in)
{
    struct writer *w = s->w;
    const int64_t group = group_of(w->o, n_in);
    for (int64_t i = 0; s->largest && i < n_in; i++)
        s->largest[i] = fmaxf(s->largest[i], fabsf(row[i]));
    if (s->largest)
        return;
    for (int64_t i = 0; i < n_in; i++)
        w->scaled[i] = row[i] * (s->factor ? s->factor[i] : 1);
    qr_round_row(w->code, w->scale, w->scaled, NULL, n_in, group, w->o->type, false);
    for (int64_t i = 0; i < n_in; i++) {
        const double rounded = (double)qr_bf16_to_f32(w->scale[i / group]) * (double)qr_rounded_value(w->code[i], w->o->type);
        const double off = ((double)w->scaled[i] - rounded) / (s->factor ? (double)s->factor[i] : 1);
        s->error += (double)s->importance[i] * off * off;
    }
}

static int search_rows(struct search *s, int32_t layer, size_t at)
{
    struct writer *w = s->w;
    int rc = 0;
    s->error = 0;
    for (struct qr_weight_walk k = qr_weight_walk_begin(w->c); rc == 0 && qr_weight_walk_next(&k);) {
        char name[QR_WEIGHT_NAME_MAX];
        if (k.layer != layer || k.row->at != at || !is_rounded(k.row))
            continue;
        const struct qr_stored_tensor *t = qr_weights_find(&k, w->st, name);
        for (int64_t first = 0; rc == 0 && first < t->shape[0]; first += ROWS) {
            const int64_t n = t->shape[0] - first < ROWS ? t->shape[0] - first : ROWS;
            qr_tensor_files_decode(w->st, t, w->rows, first, n);
            for (int64_t r = 0; r < n; r++)
                search_row(s, w->rows + r * t->shape[1], t->shape[1]);
            rc = stopped(w);
        }
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
    struct search s = {.w = w, .importance = importance, .largest = largest};
    int rc = search_rows(&s, layer, folds[f].matrix);
    s.largest = NULL;
    rc = rc ? rc : search_rows(&s, layer, folds[f].matrix);
    double least = s.error;
    for (int i = 0; rc == 0 && i < QR_COUNT(exponents); i++) {
        if (!factor)
            factor = qr_alloc((size_t)n, sizeof *factor);
        set_factor(factor, importance, largest, n, exponents[i]);
        s.factor = factor;
        rc = search_rows(&s, layer, folds[f].matrix);
        if (rc || !(s.error < (best ? least : WORTH * least)))
            continue;
        least = s.error;
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

static int smooth_all(struct writer *w)
{
    const bool can = w->o->smooth && w->o->inputs && !qr_quantize_unsmoothable(w->c);
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

static char *name_of(const struct qr_stored_tensor *t, const char *suffix)
{
    const size_t len = strlen(t->name), n = suffix ? len - strlen(".weight") : len;
    char *name = qr_alloc(n + (suffix ? strlen(suffix) : 0) + 1, 1);
    memcpy(name, t->name, n);
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
    *e = (struct qr_st_entry){.name = name_of(item->t, suffix), .dtype = item->t->type->dtype, .n_dims = 2};
    return e;
}

static void add_matrix(struct writer *w, struct item item)
{
    const int64_t n_out = item.t->shape[0], n_in = item.t->shape[1];
    const bool packed = w->o->type == QR_ROUNDING_INT4;
    item.part = CODES;
    struct qr_st_entry *e = add(w, &item, packed ? ".weight_packed" : ".weight");
    e->dtype = packed ? QR_I32 : QR_I8;
    e->type = w->o->type == QR_ROUNDING_FP8 ? "F8_E4M3" : NULL;
    e->type_bytes = 1;
    e->shape[0] = n_out;
    e->shape[1] = packed ? n_in / 8 : n_in;
    item.part = SCALES;
    e = add(w, &item, ".weight_scale");
    e->dtype = QR_BF16;
    e->shape[0] = n_out;
    e->shape[1] = n_in / group_of(w->o, n_in);
    w->report->n_matrices++;
    w->report->n_calibrated += item.importance != NULL;
}

static void add_copy(struct writer *w, const struct item *item)
{
    struct qr_st_entry *e = add(w, item, NULL);
    e->n_dims = item->t->n_dims;
    e->shape[0] = item->t->shape[0];
    e->shape[1] = item->t->n_dims == 2 ? item->t->shape[1] : 0;
    if (item->factor && e->dtype == QR_F16) /* what is divided may leave its range */
        e->dtype = QR_F32;
}

static void add_all(struct writer *w)
{
    char name[QR_WEIGHT_NAME_MAX];
    for (struct qr_weight_walk k = qr_weight_walk_begin(w->c); qr_weight_walk_next(&k);) {
        struct item item = {.t = qr_weights_find(&k, w->st, name)};
        if (k.row->when == QR_WHEN_TIED)
            continue;
        for (int32_t f = 0; k.layer >= 0 && f < FOLDS; f++)
            if (k.row->at == (is_rounded(k.row) ? folds[f].matrix : folds[f].norm))
                item.factor = w->factor[k.layer * FOLDS + f];
        if (is_rounded(k.row) && w->o->inputs)
            item.importance = w->o->inputs(w->o->user, k.layer, k.row->at);
        if (is_rounded(k.row))
            add_matrix(w, item);
        else
            add_copy(w, &item);
    }
    /* Sixteen bytes each: behind the others, which stay at multiples of what they were. */
    for (int32_t i = 0, n = w->n; w->o->type == QR_ROUNDING_INT4 && i < n; i++) {
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
static const float *scaled_importance(const struct item *item, float *out, int64_t n)
{
    if (!item->importance || !item->factor)
        return item->importance;
    for (int64_t i = 0; i < n; i++)
        out[i] = item->importance[i] / (item->factor[i] * item->factor[i]);
    return out;
}

static int put_row(struct writer *w, const struct item *item, float *row, int64_t o, const float *importance)
{
    const int64_t n_in = item->t->shape[1], group = group_of(w->o, n_in);
    for (int64_t i = 0; item->factor && i < n_in; i++)
        row[i] *= item->factor[i];
    if (!qr_round_row(w->code, w->scale + o * (n_in / group), row, importance, n_in, group, w->o->type, true))
        return qr_err_set(w->err, QR_E_DAMAGED, "tensor %s has a number in row %lld that is not finite", item->t->name, (long long)o);
    if (w->o->type != QR_ROUNDING_INT4)
        return qr_st_out_put(&w->out, w->code, (size_t)n_in, w->err);
    uint8_t *packed = (uint8_t *)w->code;
    for (int64_t i = 0; i < n_in; i += 2) /* eight of a word from the low bits up, and words low bytes first */
        packed[i / 2] = (uint8_t)((w->code[i] + 8) | (w->code[i + 1] + 8) << 4);
    return qr_st_out_put(&w->out, packed, (size_t)(n_in / 2), w->err);
}

/* Scales are kept until the next entry, which is theirs. */
static int put_codes(struct writer *w, const struct item *item)
{
    const int64_t n_out = item->t->shape[0], n_in = item->t->shape[1];
    const float *importance = scaled_importance(item, w->scaled, n_in);
    int rc = stopped(w);
    for (int64_t first = 0; rc == 0 && first < n_out; first += ROWS) {
        const int64_t n = n_out - first < ROWS ? n_out - first : ROWS;
        qr_tensor_files_decode(w->st, item->t, w->rows, first, n);
        for (int64_t r = 0; rc == 0 && r < n; r++)
            rc = put_row(w, item, w->rows + r * n_in, first + r, importance);
    }
    qr_tensor_files_drop(w->st, item->t);
    return rc;
}

/* Exact: factors are powers of two. */
static int put_norm(struct writer *w, const struct item *item, enum qr_dtype type)
{
    int rc = 0;
    qr_tensor_files_decode(w->st, item->t, w->scaled, 0, item->t->shape[0]);
    for (int64_t i = 0; rc == 0 && i < item->t->shape[0]; i++) {
        const float x = w->scaled[i] / item->factor[i];
        const uint16_t half = qr_f32_to_bf16(x);
        rc = qr_st_out_put(&w->out, type == QR_F32 ? (const void *)&x : &half, qr_dtype_bytes(type), w->err);
    }
    return rc;
}

static int put_item(struct writer *w, int32_t i)
{
    const struct item *item = &w->item[i];
    const struct qr_stored_tensor *t = item->t;
    if (item->part == CODES)
        return put_codes(w, item);
    if (item->part == SCALES)
        return qr_st_out_put(&w->out, w->scale, (size_t)qr_st_entry_bytes(&w->entry[i]), w->err);
    if (item->part == SHAPE)
        return qr_st_out_put(&w->out, t->shape, 2 * sizeof t->shape[0], w->err);
    return item->factor ? put_norm(w, item, w->entry[i].dtype) : qr_st_out_put(&w->out, qr_tensor_files_data(w->st, t), t->n_bytes, w->err);
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
    int64_t in_max = w->c->n_embd, scales_max = 0;
    for (struct qr_weight_walk k = qr_weight_walk_begin(w->c); qr_weight_walk_next(&k);) {
        const int64_t n_in = is_rounded(k.row) ? qr_dim_value(w->c, k.row->n_in) : 0;
        in_max = n_in > in_max ? n_in : in_max;
        const int64_t n = n_in ? qr_dim_value(w->c, k.row->n_out) * (n_in / group_of(w->o, n_in)) : 0;
        scales_max = n > scales_max ? n : scales_max;
    }
    w->factor = qr_alloc((size_t)w->c->n_layers * FOLDS, sizeof *w->factor);
    w->rows = qr_alloc((size_t)(ROWS * in_max), sizeof *w->rows);
    w->scaled = qr_alloc((size_t)in_max, sizeof *w->scaled);
    w->code = qr_alloc((size_t)in_max, sizeof *w->code);
    w->scale = qr_alloc((size_t)(scales_max + in_max), sizeof *w->scale);
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
    qr_free(w->rows);
    qr_free(w->scaled);
    qr_free(w->code);
    qr_free(w->scale);
}

int qr_quantize_write(const char *path, const struct qr_tensor_files *st, const struct qr_model_config *c, const struct qr_quantize_options *o,
                      struct qr_quantize_report *report, struct qr_err *err)
{
    QR_ASSERT(path != NULL && st != NULL && c != NULL && o != NULL && report != NULL);
    QR_ASSERT(c->quant.method == QR_QUANT_NONE && !c->turned);
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
