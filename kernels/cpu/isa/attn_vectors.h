/* attn_vectors.h - the two products of a query tile by vectors: keys and values are staged as f32 and go through micro.c. Included by
 * attention.c only. A query adds up its own range of positions; the tile's never decides.
 */
#ifndef QR_KERNELS_CPU_ATTN_VECTORS_H
#define QR_KERNELS_CPU_ATTN_VECTORS_H

#include "kernels/cpu/isa/attn_int8.h"
#include "kernels/cpu/isa/attn_tile.h"

#define BLOCK_ROWS QR_ISA_NAME(micro_rows_max)
#define PRODUCTS_ROUND false /* probabilities come rounded to what the cache holds */

/* Whether values are copied, so that short runs of positions need not be visited one by one. */
static bool stages_values(const struct tile *t)
{
    return t->k_pad != t->k || is_int8(t) || (t->a->kv->dtype == QR_BF16 && t->n_queries > BLOCK_ROWS);
}

static void begin_products(const struct tile *t)
{
    QR_ASSERT(t->n_queries <= QUERIES);
}

static void end_products(void)
{
}

/* Unit i of all lanes as floats: one of 32 bits as it is, two of bf16, four of int8. */
VF_FN void store_unit(float *dst, vf unit, const int in_unit)
{
    if (in_unit == 1) {
        vf_store(dst, unit);
    } else if (in_unit == 2) {
        vf_store(dst, vf_pairs_first(vf_as_pairs(unit)));
        vf_store(dst + QR_PANEL, vf_pairs_second(vf_as_pairs(unit)));
    } else {
        vf_store(dst, vf_quads_at(vf_as_pairs(unit), 0));
        vf_store(dst + QR_PANEL, vf_quads_at(vf_as_pairs(unit), 1));
        vf_store(dst + 2 * QR_PANEL, vf_quads_at(vf_as_pairs(unit), 2));
        vf_store(dst + 3 * QR_PANEL, vf_quads_at(vf_as_pairs(unit), 3));
    }
}

/* VF_LEN rows (NULL: zeros) as columns: dst[i][QR_PANEL], i over the numbers of n 32-bit units from unit `first`. */
VF_FN void columns_of(float *dst, const char *const row[VF_LEN], int32_t first, int64_t n, const int in_unit)
{
    vf r[VF_LEN] QR_UNINITIALIZED;
    const int64_t step = in_unit * QR_PANEL;
    dst += first * step;
    if (n == VF_LEN && row[0] && row[VF_LEN - 1]) { /* ranges have no holes: all are there */
        for (int i = 0; i < VF_LEN; i++)
            r[i] = vf_load((const float *)row[i] + first);
        vf_transpose(r);
        for (int i = 0; i < VF_LEN; i++)
            store_unit(dst + i * step, r[i], in_unit);
        return;
    }
    for (int i = 0; i < VF_LEN; i++)
        r[i] = row[i] ? vf_load_n((const float *)row[i] + first, n) : vf_zero();
    vf_transpose(r);
    for (int i = 0; i < VF_LEN; i++)
        if (i < n)
            store_unit(dst + i * step, r[i], in_unit);
}

/* Keys of positions [begin, end) of the piece at `base` to scratch, from the group of 16 on in which they begin; what else those groups
 * hold becomes zero. */
VF_FN void stage_keys_of(const struct tile *t, int32_t base, int32_t begin, int32_t end, const int in_unit)
{
    int32_t units = t->k / in_unit;
    const char *row[VF_LEN] QR_UNINITIALIZED;
    const int32_t first = begin / QR_PANEL * QR_PANEL, last = (end + QR_PANEL - 1) / QR_PANEL * QR_PANEL;
    for (int32_t at = first; at < last; at += VF_LEN) {
        float *dst = t->s->keys + (at - first) / QR_PANEL * QR_PANEL * t->k + at % QR_PANEL;
        cache_rows(t, 0, row, VF_LEN, base + at, base + begin, base + end);
        if (at % QR_PANEL == 0)
            prefetch(t, 1, base + at);
        for (int32_t u = 0; u < units; u += VF_LEN)
            columns_of(dst, row, u, vf_min_len(units - u), in_unit);
    }
}

static void stage_keys(const struct tile *t, int32_t base, int32_t begin, int32_t end)
{
    if (is_int8(t))
        stage_keys_of(t, base, begin, end, 4);
    else if (t->a->kv->dtype == QR_BF16)
        stage_keys_of(t, base, begin, end, 2);
    else
        stage_keys_of(t, base, begin, end, 1);
}

/* Values of positions [begin, end) to scratch as f32 rows of k_pad. */
static void stage_values(const struct tile *t, int32_t base, int32_t begin, int32_t end)
{
    const bool bf16 = t->a->kv->dtype == QR_BF16, int8 = is_int8(t);
    for (int32_t at = begin, run; at < end; at += run) {
        run = run_length(t, base + at, end - at);
        const char *row = cache_row(t, 1, base + at);
        for (int32_t j = 0; j < run; j++, row += t->row_bytes) {
            float *dst = t->s->values + (at + j) * t->k_pad;
            for (int32_t i = 0; i < t->k; i += VF_LEN)
                vf_store(dst + i, int8                ? vf_load_i8_n((const int8_t *)row + i, vf_min_len(t->k - i))
                                  : t->k - i < VF_LEN ? vf_load_as_n(row, t->a->kv->dtype, (size_t)i, t->k - i)
                                  : bf16            ? vf_load_bf16((const uint16_t *)(const void *)row + i)
                                                    : vf_load((const float *)(const void *)row + i));
        }
    }
}

/* Scores of queries [q0, q0 + mr) for positions [begin, end), whose keys are staged. */
static void score_block(const struct tile *t, int32_t q0, int32_t mr, int32_t begin, int32_t end)
{
    int32_t group = begin / QR_PANEL, n_groups = (end + QR_PANEL - 1) / QR_PANEL - group;
    struct qr_micro_args m = {
        .c = t->s->p + q0 * QR_X_ROW + group * QR_PANEL,
        .x = t->s->q + q0 * QR_X_ROW,
        .w = t->s->keys,
        .c_stride = QR_X_ROW,
        .w_panel = (size_t)t->k * QR_PANEL * sizeof(float),
        .w_step = QR_PANEL * sizeof(float),
        .n_steps = t->k,
    };
    QR_ISA_NAME(micro)(QR_PANEL_ROWS_F32, mr, n_groups, &m);
}

/* piece_out of queries [q0, q0 + mr) += p v over positions [from, end) of the piece at `base`. */
static void weigh(const struct tile *t, int32_t q0, int32_t mr, int32_t base, int32_t from, int32_t end)
{
    bool bf16 = t->a->kv->dtype == QR_BF16 && !t->staged_values;
    size_t bytes = bf16 ? 2 : 4;
    for (int32_t n; from < end; from += n) {
        n = t->staged_values ? end - from : run_length(t, base + from, end - from);
        struct qr_micro_args m = {
            .c = t->s->piece_out + q0 * t->k_pad,
            .x = t->s->p + q0 * QR_X_ROW + from,
            .w = t->staged_values ? (const void *)(t->s->values + from * t->k_pad) : cache_row(t, 1, base + from),
            .c_stride = t->k_pad,
            .w_panel = QR_PANEL * bytes,
            .w_step = (size_t)t->k_pad * bytes,
            .n_steps = n,
            .onto = true,
        };
        if (!t->staged_values)
            prefetch(t, 0, base + from + PIECE);
        QR_ISA_NAME(micro)(bf16 ? QR_PANEL_ROWS_BF16 : QR_PANEL_ROWS_F32, mr, t->k_pad / QR_PANEL, &m);
    }
}

/* piece_out = p v over each query's own range: together where all see, one by one before and behind. */
static void weigh_block(const struct tile *t, int32_t q0, int32_t mr, int32_t base)
{
    const struct scratch *s = t->s;
    int32_t from = 0, end = PIECE;
    memset(t->s->piece_out + q0 * t->k_pad, 0, (size_t)mr * (size_t)t->k_pad * sizeof(float));
    for (int32_t i = q0; i < q0 + mr; i++) {
        from = s->in[i] > from ? s->in[i] : from;
        end = s->in_end[i] < end ? s->in_end[i] : end;
    }
    if (from >= end)
        from = end = PIECE;
    for (int32_t i = q0; i < q0 + mr; i++)
        weigh(t, i, 1, base, s->in[i], from < s->in_end[i] ? from : s->in_end[i]);
    weigh(t, q0, mr, base, from, end);
    for (int32_t i = q0; i < q0 + mr; i++)
        weigh(t, i, 1, base, end, s->in_end[i]);
}

#endif
