/* vectors.h - the two products of a query tile by vectors: keys and values are staged as f32 and go through micro.c. Included by
 * attention.c only. A query adds up its own range of positions; the tile's never decides. At level avx2 a lone row over a bf16 cache has
 * register blocks of its own (pairs.h).
 */
#ifndef QR_KERNELS_CPU_ISA_ATTENTION_VECTORS_H
#define QR_KERNELS_CPU_ISA_ATTENTION_VECTORS_H

#include "kernels/cpu/isa/attention/int8.h"
#include "kernels/cpu/isa/attention/tile.h"

_Static_assert(QR_X_ROW >= K_MAX, "a row of queries");

#define BLOCK_ROWS QR_ISA_NAME(micro_rows_max)

/* The first query of register block b of n: blocks of nearly equal height. */
static int32_t block_first(const struct tile *t, int32_t b, int32_t n)
{
    return t->q0 + t->n_queries * b / n;
}

/* Whether values are copied, so that short runs of positions need not be visited one by one. */
static bool stages_values(const struct tile *t)
{
    return t->k_pad != t->k || is_int8(t) || (t->a->kv->dtype == QR_BF16 && t->n_queries > BLOCK_ROWS);
}

static void begin_rows(const struct tile *t)
{
    const struct qr_attention_args *a = t->a;
    QR_ASSERT(query_end(t) <= QUERIES);
    for (int32_t i = t->q0; i < query_end(t); i++) {
        const float *q = query(t, place_of(t, i));
        for (int32_t k = 0; k < t->k; k += VF_LEN) {
            vf v = vf_load_n(q + k, vf_min_len(t->k - k));
            vf_store(t->s->q + i * QR_X_ROW + k, a->kv->dtype == QR_BF16 ? vf_round_bf16(v) : v);
        }
    }
}

static void end_products(const struct tile *t)
{
    (void)t;
}

static void finish_to_tiles(const struct tile *t, struct place at, const struct joined *j, vf inv)
{
    (void)at;
    (void)j;
    (void)inv;
    QR_ASSERT(t->a->out_tiles == NULL); /* tiles of rows are the amx level's */
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
    float *keys = (float *)(void *)t->s->keys;
    const int32_t first = begin / QR_PANEL * QR_PANEL, last = (end + QR_PANEL - 1) / QR_PANEL * QR_PANEL;
    for (int32_t at = first; at < last; at += VF_LEN) {
        float *dst = keys + (at - first) / QR_PANEL * QR_PANEL * t->k + at % QR_PANEL;
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
            float *dst = (float *)(void *)t->s->values + (at + j) * t->k_pad;
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
    bool bf16 = t->a->kv->dtype == QR_BF16 && !stages_values(t);
    size_t bytes = bf16 ? 2 : 4;
    for (int32_t n; from < end; from += n) {
        n = stages_values(t) ? end - from : run_length(t, base + from, end - from);
        struct qr_micro_args m = {
            .c = t->s->piece_out + q0 * t->k_pad,
            .x = t->s->p + q0 * QR_X_ROW + from,
            .w = stages_values(t) ? (const void *)(t->s->values + (size_t)from * (size_t)t->k_pad * sizeof(float)) : cache_row(t, 1, base + from),
            .c_stride = t->k_pad,
            .w_panel = QR_PANEL * bytes,
            .w_step = (size_t)t->k_pad * bytes,
            .n_steps = n,
            .onto = true,
        };
        if (!stages_values(t))
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

/* All scores of positions [begin, end) of the piece at `base`, for n register blocks of queries. */
static void score_piece(const struct tile *t, int32_t n, int32_t base, int32_t begin, int32_t end)
{
    for (int32_t from = begin, to; from < end; from = to) {
        to = from / STEP * STEP + STEP;
        to = to < end ? to : end;
        stage_keys(t, base, from, to);
        for (int32_t b = 0; b < n; b++)
            score_block(t, block_first(t, b, n), block_first(t, b + 1, n) - block_first(t, b, n), from, to);
    }
}

/* Scores of query i become 2^(factor score - maximum) in its range and 0 in the rest of the vectors it touches. Only the first and the last
 * vector of the range can hold lanes outside it. With an int8 cache positions have factors (key NULL: scores have met them) and
 * probabilities meet the values' scales; lanes outside the range become anything. */
VF_FN void softmax_of(const struct tile *t, int32_t i, const bool rounded, const bool int8, const float *key)
{
    struct scratch *s = t->s;
    float *p = s->p + i * QR_X_ROW;
    const int32_t first = s->in[i], end = s->in_end[i], begin = first / VF_LEN * VF_LEN, last = (end - 1) / VF_LEN * VF_LEN;
    const vf low = vf_set1(-INFINITY), factor = vf_set1(t->factor);
    vf max = low, sum = vf_zero();
    for (int32_t at = begin; at <= last; at += VF_LEN) {
        vf v = vf_mul(vf_load(p + at), key ? vf_load(key + at) : factor);
        if (at == begin || at == last)
            v = vf_pick_range(first > at ? first - at : 0, vf_min_len(end - at), v, low);
        max = vf_max(v, max);
    }
    s->piece_max[i] = vf_max_all(max);
    max = vf_set1(-s->piece_max[i]);
    for (int32_t at = begin; at <= last; at += VF_LEN) {
        vf e = vf_exp2_of_negative(vf_fma(vf_load(p + at), key ? vf_load(key + at) : factor, max));
        if (at == begin || at == last)
            e = vf_pick_range(first > at ? first - at : 0, vf_min_len(end - at), e, vf_zero());
        sum = vf_add(sum, e);
        if (int8)
            e = vf_mul(e, vf_load(s->value_scale + at)); /* NaN for a value that was not finite */
        vf_store(p + at, rounded ? vf_round_bf16(e) : e);
    }
    s->piece_sum[i] = vf_sum(sum);
}

static void softmax(const struct tile *t, int32_t i)
{
    const bool capped = t->a->softcap > 0;
    if (capped)
        cap_scores(t, t->s->p + i * QR_X_ROW, t->s->in[i], t->s->in_end[i], is_int8(t) ? t->s->key_scale : NULL);
    if (is_int8(t))
        softmax_of(t, i, false, true, capped ? NULL : t->s->key_scale);
    else if (t->a->kv->dtype == QR_BF16)
        softmax_of(t, i, true, false, NULL);
    else
        softmax_of(t, i, false, false, NULL);
}
/* attend_piece of a tile: its queries' results are left in piece_out. */
static void attend_tile(const struct tile *t, int32_t base, int32_t begin, int32_t end)
{
    struct scratch *s = t->s;
    const int32_t n = (t->n_queries + BLOCK_ROWS - 1) / BLOCK_ROWS;
    if (is_int8(t))
        stage_scales(t, base, begin, end);
    score_piece(t, n, base, begin, end);
    if (stages_values(t))
        stage_values(t, base, begin, end);
    for (int32_t b = 0; b < n; b++) {
        int32_t q0 = block_first(t, b, n), q1 = block_first(t, b + 1, n);
        for (int32_t i = q0; i < q1; i++) {
            s->piece_sum[i] = 0;
            if (s->in[i] < s->in_end[i])
                softmax(t, i);
        }
        weigh_block(t, q0, q1 - q0, base);
    }
}

#ifdef QR_ISA_avx2
#include "kernels/cpu/isa/attention/pairs.h"
#endif

static void begin_products(const struct tile *t)
{
#ifdef QR_ISA_avx2
    if (takes_pairs(t)) {
        begin_pairs(t);
        return;
    }
#endif
    begin_rows(t);
}

static struct qr_attn_room room_of(const struct qr_kv_view *kv)
{
    (void)kv;
    return (struct qr_attn_room){.queries = QUERIES, .few_tiles = TILES_MAX};
}

/* All queries' results for the piece, of which some query sees [begin, end). An item is one tile. */
static void attend_piece(struct tile *t, int32_t n_tiles, int32_t piece, int32_t begin, int32_t end, const struct after *after)
{
    QR_ASSERT(n_tiles == 1 && t->q0 == 0);
#ifdef QR_ISA_avx2
    if (takes_pairs(t))
        attend_pairs(t, piece * PIECE, begin, end, after);
    else
#endif
        attend_tile(t, piece * PIECE, begin, end);
    (void)after; /* a tile that stages its keys prefetches its own next piece */
    take_piece(t, piece, 0, t->n_queries, t->s->piece_out);
}

#endif
