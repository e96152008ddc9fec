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

/* The least and the largest level that a code can stand for. */
struct range {
    int32_t least, most;
};

static struct range range_of(const struct qr_stored_code *c)
{
    const struct qr_coded_format f = qr_dtype_coded(c->type);
    if (f.bits != 4)
        return (struct range){qr_coded_least(f), qr_coded_least(f) + (1 << f.bits) - 1};
    struct range r = {c->levels[0], c->levels[0]};
    for (int i = 1; i < 16; i++) {
        r.least = c->levels[i] < r.least ? c->levels[i] : r.least;
        r.most = c->levels[i] > r.most ? c->levels[i] : r.most;
    }
    return r;
}

static bool same_order(const struct qr_stored_code *a, const struct qr_stored_code *b)
{
    if (a->inputs == NULL || b->inputs == NULL)
        return a->inputs == b->inputs;
    return a->n_in == b->n_in && memcmp(a->inputs, b->inputs, (size_t)a->n_in * sizeof *a->inputs) == 0;
}

bool qr_stored_code_join(struct qr_stored_code *out, const struct qr_stored_code *a, const struct qr_stored_code *b)
{
    QR_ASSERT(out != NULL && a != NULL);
    QR_ASSERT(b != NULL);
    if (!same_order(a, b))
        return false;
    if (a->type == b->type && a->levels == b->levels) {
        *out = *a;
        return true;
    }
    const struct qr_coded_format f = qr_dtype_coded(a->type), g = qr_dtype_coded(b->type);
    if (f.e4m3 || g.e4m3)
        return false;
    if (f.zero != g.zero && f.bits == g.bits && f.group == g.group && !f.steps && !g.steps && !f.offset && !g.offset) {
        *out = f.zero ? *a : *b; /* of a quantized checkpoint, and so is the other: its zeros are all in the middle */
        return true;
    }
    const uint8_t group = f.group < g.group ? f.group : g.group;
    const bool offset = f.offset || g.offset;
    const struct range ra = range_of(a), rb = range_of(b);
    if (f.steps != g.steps || f.zero || g.zero || (!f.steps && f.group != g.group))
        return false;
    for (int t = QR_C2_G16_SO; t < (int)QR_C8_E4M3; t++) {
        const struct qr_coded_format wide = qr_dtype_coded((enum qr_dtype)t);
        if (wide.bits == 4 && t != QR_C4_G16_SO) /* other levels than those that both have */
            continue;
        *out = (struct qr_stored_code){.type = (enum qr_dtype)t, .inputs = a->inputs, .n_in = a->n_in};
        out->levels = wide.bits == 4 ? qr_gguf_levels(QR_GGUF_T_Q4_K) : NULL;
        const struct range r = range_of(out);
        if (wide.steps == f.steps && wide.group <= group && (wide.offset || !offset) && r.least <= ra.least && r.least <= rb.least && r.most >= ra.most &&
            r.most >= rb.most)
            return true;
    }
    return false;
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
        qr_stored_code_as(c, c->type == QR_C2_G16_SO ? QR_C4_G16_SO : c->type == QR_C3_G16_S ? QR_C4_G16_S : QR_C6_G16_SO);
}

/* Where a block's parts go: to number i of row `row` on. */
static void put_block(const struct qr_coded_rows *to, struct qr_coded_format f, struct qr_coded_format own, const struct qr_gguf_scales *s, int64_t unit,
                      int64_t group, int32_t n)
{
    to->scale[unit] = s->scale;
    if (to->offset)
        to->offset[unit] = s->offset;
    for (int32_t g = 0; f.steps && g < n / f.group; g++) {
        const int32_t from = g * f.group / own.group;
        to->step[group + g] = s->step[from];
        if (to->offset_step)
            to->offset_step[group + g] = s->offset_step[from];
    }
}

static void fill(const void *arg, const struct qr_coded_rows *to, int64_t first, int64_t n)
{
    const struct qr_stored_rows *r = arg;
    const enum qr_gguf_type type = (enum qr_gguf_type)r->t->type->gguf;
    const struct qr_gguf_layout *l = qr_gguf_layout((uint32_t)type);
    const struct qr_coded_format f = qr_dtype_coded(r->as.type), own = qr_dtype_coded(qr_gguf_coded(type));
    const int64_t n_in = r->cols.n, n_blocks = n_in / l->elements, per_block = l->elements / f.group;
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *b = qr_tensor_files_row(r->files, r->t, r->first_row + first + i);
        b += r->cols.first / l->elements * l->bytes;
        if (f.group == own.group) {
            const struct qr_coded_rows row = qr_coded_row(to, f, n_in, i);
            qr_gguf_unpack_row(type, &row, b, n_blocks);
            continue;
        }
        for (int64_t k = 0; k < n_blocks; k++, b += l->bytes) {
            struct qr_gguf_scales s;
            qr_gguf_unpack(type, to->level + i * n_in + k * l->elements, &s, b);
            put_block(to, f, own, &s, i * n_blocks + k, (i * n_blocks + k) * per_block, l->elements);
        }
    }
}

static void fill_quantized(const void *arg, const struct qr_coded_rows *to, int64_t first, int64_t n)
{
    const struct qr_stored_rows *r = arg;
    qr_quantized_fill(r->files, r->t, r->as.type, to, r->first_row + first, n, r->cols.first, r->cols.n);
}

static struct qr_coded_source source_of_quantized(const struct qr_stored_rows *rows)
{
    struct qr_coded_source s = {.fill = fill_quantized, .arg = rows, .together = qr_quantized_together(rows->t)};
    const int8_t *levels = qr_quantized_levels(rows->t, rows->as.type); /* not the tensor's own, where it is packed with zeros for another's sake */
    if (levels)
        memcpy(s.levels, levels, sizeof s.levels);
    return s;
}

struct qr_coded_source qr_stored_source(const struct qr_stored_rows *rows)
{
    QR_ASSERT(rows != NULL && rows->t != NULL);
    if (rows->t->quantized)
        return source_of_quantized(rows);
    const struct qr_gguf_layout *l = qr_gguf_layout(rows->t->type->gguf);
    QR_ASSERT(rows->t->type->blocks && rows->cols.first % l->elements == 0 && rows->cols.n % l->elements == 0);
    struct qr_coded_source s = {.fill = fill, .arg = rows};
    if (rows->as.levels)
        memcpy(s.levels, rows->as.levels, sizeof s.levels);
    return s;
}
