#include "loader/pack/coded_rows.h"

#include <string.h>

#include "base/assert.h"
#include "kernels/coded.h"
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
        out->levels = out->type == QR_CODED ? NULL : qr_quantized_levels(t, out->type);
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

void qr_stored_code_widen(struct qr_stored_code *c)
{
    QR_ASSERT(c != NULL && qr_dtype_is_coded(c->type));
    if (qr_dtype_coded(c->type).bits >= 4)
        return;
    c->levels = qr_gguf_levels(c->type == QR_C2_G16_SO ? QR_GGUF_T_Q4_K : QR_GGUF_T_Q4_0); /* 0 to 15, -8 to 7 */
    c->type = c->type == QR_C2_G16_SO ? QR_C4_G16_SO : QR_C4_G16_S;
}

static void fill(const void *arg, const struct qr_coded_rows *to, int64_t first, int64_t n)
{
    const struct qr_stored_rows *r = arg;
    const enum qr_gguf_type type = (enum qr_gguf_type)r->t->type->gguf;
    const struct qr_gguf_layout *l = qr_gguf_layout((uint32_t)type);
    const struct qr_coded_format f = qr_dtype_coded(r->as.type);
    const int64_t n_in = r->cols.n;
    QR_ASSERT(f.group == qr_dtype_coded(qr_gguf_coded(type)).group);
    QR_ASSERT(r->cols.first % l->elements == 0 && n_in % l->elements == 0);
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *b = qr_tensor_files_row(r->files, r->t, r->first_row + first + i);
        b += r->cols.first / l->elements * l->bytes;
        const struct qr_coded_rows row = qr_coded_row(to, f, n_in, i);
        qr_gguf_unpack_row(type, &row, b, n_in / l->elements);
    }
}

static void fill_quantized(const void *arg, const struct qr_coded_rows *to, int64_t first, int64_t n)
{
    const struct qr_stored_rows *r = arg;
    qr_quantized_fill(r->files, r->t, r->as.type, to, r->first_row + first, n, r->cols.first, r->cols.n);
}

struct qr_coded_source qr_stored_source(const struct qr_stored_rows *rows)
{
    QR_ASSERT(rows != NULL && rows->t != NULL);
    QR_ASSERT(rows->t->type->blocks);
    struct qr_coded_source s = {.fill = fill, .arg = rows};
    if (rows->t->quantized) {
        s.fill = fill_quantized;
        s.together = qr_quantized_together(rows->t);
        s.words = rows->first_row % 8 == 0 && qr_quantized_words(rows->files, rows->t);
    }
    const int8_t *levels = rows->t->quantized ? qr_quantized_levels(rows->t, rows->as.type) : rows->as.levels;
    if (levels)
        memcpy(s.levels, levels, sizeof s.levels);
    return s;
}
