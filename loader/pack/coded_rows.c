#include "loader/pack/coded_rows.h"

#include <string.h>

#include "base/assert.h"
#include "loader/pack/gguf_blocks.h"
#include "loader/stores/quantized_tensors.h"

bool qr_stored_code(struct qr_stored_code *out, const struct qr_stored_tensor *t)
{
    QR_ASSERT(out != NULL && t != NULL);
    if (!t->type->blocks || t->n_dims != 2)
        return false;
    *out = (struct qr_stored_code){.n_in = t->shape[1]};
    if (t->quantized) {
        out->type = qr_quantized_coded(t);
        out->levels = out->type == QR_CODED ? NULL : qr_quantized_levels(out->type);
        out->inputs = qr_quantized_inputs(t);
        return out->type != QR_CODED;
    }
    const enum qr_gguf_type type = (enum qr_gguf_type)t->type->gguf;
    out->type = qr_gguf_coded(type);
    out->levels = qr_gguf_levels(type);
    return out->type != QR_CODED;
}

bool qr_stored_code_in_order(const struct qr_stored_code *a, const struct qr_stored_code *b)
{
    if (a->inputs == NULL || b->inputs == NULL)
        return a->inputs == b->inputs;
    return a->n_in == b->n_in && memcmp(a->inputs, b->inputs, (size_t)a->n_in * sizeof *a->inputs) == 0;
}

bool qr_stored_code_equal(const struct qr_stored_code *a, const struct qr_stored_code *b)
{
    QR_ASSERT(a != NULL && b != NULL);
    return a->type == b->type && a->levels == b->levels && qr_stored_code_in_order(a, b);
}

void qr_stored_code_as(struct qr_stored_code *c, enum qr_dtype as)
{
    QR_ASSERT(c != NULL && qr_dtype_is_coded(c->type) && qr_dtype_is_coded(as));
    if (qr_dtype_coded(c->type).bits < 4)
        c->levels = qr_dtype_coded(as).bits != 4 ? NULL : qr_gguf_levels(qr_dtype_coded(as).offset ? QR_GGUF_T_Q4_K : QR_GGUF_T_Q4_0);
    c->type = as;
}

void qr_stored_code_widen(struct qr_stored_code *c)
{
    QR_ASSERT(c != NULL && qr_dtype_is_coded(c->type));
    if (qr_dtype_coded(c->type).bits < 4)
        qr_stored_code_as(c, c->type == QR_C2_G16_SO ? QR_C4_G16_SO : QR_C4_G16_S);
}

/* Where a block's parts go: to number i of row `row` on. */
static void put_block(const struct qr_coded_rows *to, struct qr_coded_format f, const struct qr_gguf_scales *s, int64_t unit, int64_t group,
                      int32_t n)
{
    to->scale[unit] = s->scale;
    if (to->offset)
        to->offset[unit] = s->offset;
    for (int32_t g = 0; f.steps && g < n / f.group; g++) {
        to->step[group + g] = s->step[g];
        if (to->offset_step)
            to->offset_step[group + g] = s->offset_step[g];
    }
}

static void fill(const void *arg, const struct qr_coded_rows *to, int64_t first, int64_t n)
{
    const struct qr_stored_rows *r = arg;
    const enum qr_gguf_type type = (enum qr_gguf_type)r->t->type->gguf;
    const struct qr_gguf_layout *l = qr_gguf_layout((uint32_t)type);
    const struct qr_coded_format f = qr_dtype_coded(r->as.type);
    const int64_t n_in = r->cols.n, n_blocks = n_in / l->elements, per_block = l->elements / f.group;
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *b = qr_tensor_files_row(r->files, r->t, r->first_row + first + i);
        b += r->cols.first / l->elements * l->bytes;
        for (int64_t k = 0; k < n_blocks; k++, b += l->bytes) {
            struct qr_gguf_scales s;
            qr_gguf_unpack(type, to->level + i * n_in + k * l->elements, &s, b);
            put_block(to, f, &s, i * n_blocks + k, (i * n_blocks + k) * per_block, l->elements);
        }
    }
}

void qr_stored_rows_place(struct qr_stored_rows *rows)
{
    QR_ASSERT(rows != NULL && rows->t != NULL);
    QR_ASSERT(rows->first_row < rows->t->shape[0]);
    if (rows->t->quantized || rows->t->heads)
        return;
    const struct qr_gguf_layout *l = qr_gguf_layout(rows->t->type->gguf);
    rows->begin = (const uint8_t *)qr_tensor_files_row(rows->files, rows->t, rows->first_row) + rows->cols.first / l->elements * l->bytes;
    rows->pitch = rows->t->n_bytes / (uint64_t)rows->t->shape[0];
}

static const uint8_t *row_of(const void *arg, int64_t i)
{
    const struct qr_stored_rows *r = arg;
    if (r->begin)
        return r->begin + (uint64_t)i * r->pitch;
    const struct qr_gguf_layout *l = qr_gguf_layout(r->t->type->gguf);
    return (const uint8_t *)qr_tensor_files_row(r->files, r->t, r->first_row + i) + r->cols.first / l->elements * l->bytes;
}

static void fill_quantized(const void *arg, const struct qr_coded_rows *to, int64_t first, int64_t n)
{
    const struct qr_stored_rows *r = arg;
    qr_quantized_fill(r->files, r->t, r->as.type, to, r->first_row + first, n, r->cols.first, r->cols.n);
}

static const uint8_t *row_of_quantized(const void *arg, int64_t i)
{
    const struct qr_stored_rows *r = arg;
    return qr_quantized_row(r->files, r->t, r->first_row + i, r->cols.first);
}

static void scales_of_quantized(const void *arg, float *scale, int64_t first, int64_t n)
{
    const struct qr_stored_rows *r = arg;
    qr_quantized_scales(r->files, r->t, r->as.type, scale, r->first_row + first, n, r->cols.first, r->cols.n);
}

static void words_scales(const void *arg, float *scale, int8_t *zero, int64_t first, int64_t n, int64_t g)
{
    const struct qr_stored_rows *r = arg;
    qr_quantized_group_scales(r->files, r->t, scale, zero, r->first_row + first, n, r->cols.first + g * qr_dtype_coded(r->as.type).group);
}

static struct qr_coded_source source_of_quantized(const struct qr_stored_rows *rows)
{
    struct qr_coded_source s = {.fill = fill_quantized, .arg = rows, .together = qr_quantized_together(rows->t)};
    const int8_t *levels = qr_quantized_levels(rows->as.type);
    if (levels)
        memcpy(s.levels, levels, sizeof s.levels);
    if (rows->as.type == QR_C8_E4M3) {
        s.row = row_of_quantized;
        s.scales = scales_of_quantized;
    }
    if (levels && !qr_quantized_inputs(rows->t) && qr_quantized_words(&s.words, rows->files, rows->t, rows->first_row, rows->cols.first))
        s.words.scales = words_scales;
    return s;
}

bool qr_stored_unsorted_words(struct qr_coded_words *out, const struct qr_stored_rows *rows)
{
    QR_ASSERT(out != NULL && rows != NULL);
    QR_ASSERT(rows->t->quantized && rows->first_row == 0 && rows->cols.first == 0);
    if (!qr_quantized_levels(rows->as.type) || !qr_quantized_words(out, rows->files, rows->t, 0, 0))
        return false;
    out->scales = words_scales;
    return true;
}

struct qr_coded_source qr_stored_source(const struct qr_stored_rows *rows)
{
    QR_ASSERT(rows != NULL && rows->t != NULL);
    if (rows->t->quantized)
        return source_of_quantized(rows);
    const struct qr_gguf_layout *l = qr_gguf_layout(rows->t->type->gguf);
    QR_ASSERT(rows->t->type->blocks && rows->cols.first % l->elements == 0 && rows->cols.n % l->elements == 0);
    struct qr_coded_source s = {.fill = fill, .arg = rows, .row = row_of, .pitch = rows->begin ? (int64_t)rows->pitch : 0};
    const enum qr_gguf_type type = (enum qr_gguf_type)rows->t->type->gguf;
    if (rows->as.type == qr_gguf_coded(type))
        s.blocks = qr_gguf_coded_blocks(type);
    if (rows->as.levels)
        memcpy(s.levels, rows->as.levels, sizeof s.levels);
    return s;
}
