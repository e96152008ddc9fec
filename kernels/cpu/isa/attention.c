/* attention.c - softmax attention over the paged cache, in pieces of 256 positions.
 *
 * A query tile is some rows of one sequence times the query heads that share a kv head: up to 48 queries (tiles: 128) that read the same keys and
 * values. For each piece of its context the tile
 *   1. copies the keys to scratch, 16 positions side by side: [16 positions' group][K][16], so that
 *   2. scores are a matrix product whose panels are positions,
 *   3. takes each query's softmax over its own range of positions,
 *   4. multiplies the probabilities with the values, another matrix product whose inputs are positions,
 *   5. merges (max, sum, weighted values) into what the earlier pieces gave.
 * The products are vectors' (attn_vectors.h) or, at the amx level with a bf16 cache, tiles' (amx/attn_tiles.h). Every sum runs in the
 * order of positions (or of K), and a query gets nothing from a position that it does not see: its own range decides, not the tile's.
 * So a tile's shape is a matter of speed only.
 *
 * Where there are fewer tiles than threads could use (long contexts, few sequences), the pieces of a tile are spread over several items,
 * which leave each piece's result in shared scratch; a second launch merges them in the same order.
 */
#include <math.h>

#include "base/assert.h"
#include "kernels/cpu/attn_plan.h"
#include "kernels/cpu/isa/isa.h"
#ifdef QR_ISA_amx
#include "kernels/cpu/amx/attn_tiles.h"
#else
#include "kernels/cpu/isa/attn_vectors.h"
#endif
#include "kernels/cpu/pool.h"

/* All scores of positions [begin, end) of the piece at `base`. */
static void score_piece(const struct tile *t, int32_t base, int32_t begin, int32_t end)
{
    for (int32_t from = begin, to; from < end; from = to) {
        to = from / STEP * STEP + STEP;
        to = to < end ? to : end;
        stage_keys(t, base, from, to);
        for (int32_t b = 0; b < t->n_blocks; b++)
            score_block(t, block_first(t, b), block_first(t, b + 1) - block_first(t, b), from, to);
    }
}

VF_FN vf scaled(vf s, const vf scale, const float cap)
{
    s = vf_mul(s, scale);
    return cap > 0 ? vf_mul(vf_set1(cap), vf_tanh(vf_div(s, vf_set1(cap)))) : s;
}

/* Scores of query i become e^(score - max) in its range and 0 in the rest of the vectors it touches. Only the first and the last vector
 * of the range can hold lanes outside it. With an int8 cache they meet the positions' scales, and lanes outside the range become anything. */
VF_FN void softmax_of(const struct tile *t, int32_t i, const bool capped, const bool rounded, const bool int8)
{
    struct scratch *s = t->s;
    float *p = s->p + i * QR_X_ROW;
    const int32_t first = s->in[i], end = s->in_end[i], begin = first / VF_LEN * VF_LEN, last = (end - 1) / VF_LEN * VF_LEN;
    const vf low = vf_set1(-INFINITY), scale = vf_set1(t->a->scale);
    vf max = low, sum = vf_zero();
    for (int32_t at = begin; at <= last; at += VF_LEN) {
        vf v = scaled(vf_load(p + at), int8 ? vf_load(s->key_scale + at) : scale, capped ? t->a->softcap : 0);
        if (at == begin || at == last)
            v = vf_pick_range(first > at ? first - at : 0, vf_min_len(end - at), v, low);
        vf_store(p + at, v);
        max = vf_max(v, max);
    }
    s->piece_max[i] = vf_max_all(max);
    max = vf_set1(s->piece_max[i]);
    for (int32_t at = begin; at <= last; at += VF_LEN) {
        vf e = vf_exp_of_negative(vf_sub(vf_load(p + at), max));
        if (at == begin || at == last)
            e = vf_pick_range(first > at ? first - at : 0, vf_min_len(end - at), e, vf_zero());
        sum = vf_add(sum, e);
        if (int8)
            e = vf_mul(e, vf_load(s->value_scale + at)); /* NaN for a value that was not finite; the sum does not have that one */
        vf_store(p + at, !rounded ? e : int8 ? vf_round_bf16(e) : vf_round_bf16_number(e)); /* a NaN stays in the sum and comes out by the division */
    }
    s->piece_sum[i] = vf_sum(sum);
}

static void softmax(const struct tile *t, int32_t i)
{
    const bool rounded = t->a->kv->dtype != QR_F32 && !PRODUCTS_ROUND;
    if (t->a->softcap > 0)
        softmax_of(t, i, true, rounded, is_int8(t));
    else if (is_int8(t))
        softmax_of(t, i, false, !PRODUCTS_ROUND, true);
    else if (rounded)
        softmax_of(t, i, false, true, false);
    else
        softmax_of(t, i, false, false, false);
}

/* Each query's range within the piece; false when no query sees any of it. *begin, *end: what some query sees. */
static bool piece_range(const struct tile *t, int32_t base, int32_t *begin, int32_t *end)
{
    struct scratch *s = t->s;
    *begin = PIECE;
    *end = 0;
    for (int32_t i = 0; i < t->n_queries; i++) {
        int32_t a = s->see[i] - base, b = s->see_end[i] - base;
        a = a > 0 ? a : 0;
        b = b < PIECE ? b : PIECE;
        s->in[i] = a < b ? a : 0;
        s->in_end[i] = a < b ? b : 0;
        if (a < b) {
            *begin = a < *begin ? a : *begin;
            *end = b > *end ? b : *end;
        }
    }
    return *begin < *end;
}

/* piece_max, piece_sum, piece_out of every query for the piece at `base`. */
static bool attend_piece(const struct tile *t, int32_t base)
{
    struct scratch *s = t->s;
    int32_t begin, end;
    if (!piece_range(t, base, &begin, &end))
        return false;
    if (is_int8(t))
        stage_scales(t, base, begin, end);
    score_piece(t, base, begin, end);
    if (t->staged_values)
        stage_values(t, base, begin, end);
    for (int32_t b = 0; b < t->n_blocks; b++) {
        int32_t q0 = block_first(t, b), q1 = block_first(t, b + 1);
        for (int32_t i = q0; i < q1; i++) {
            s->piece_sum[i] = 0;
            if (s->in[i] < s->in_end[i])
                softmax(t, i);
        }
        weigh_block(t, q0, q1 - q0, base);
    }
    return true;
}

/* (max, sum, out) of query i takes in another piece's; sum 0 means nothing yet. */
static void merge(float *max, float *sum, float *out, float piece_max, float piece_sum, const float *piece_out, int32_t k_pad)
{
    if (piece_sum == 0)
        return;
    bool first = *sum == 0;
    float new_max = first || piece_max > *max ? piece_max : *max;
    float keep = first ? 0 : exp_of(*max - new_max), take = exp_of(piece_max - new_max);
    for (int32_t i = 0; i < k_pad; i += VF_LEN) {
        vf v = vf_mul(vf_add(vf_load(piece_out + i), vf_zero()), vf_set1(take)); /* + 0: no -0, see attn_tiles.h */
        vf_store(out + i, first ? v : vf_fma(vf_load(out + i), vf_set1(keep), v));
    }
    *sum = first ? piece_sum * take : *sum * keep + piece_sum * take;
    *max = new_max;
}

/* Divides by the denominator and writes query i's result. */
static void finish(const struct tile *t, int32_t i, float max, float sum, const float *out)
{
    const struct qr_attention_args *a = t->a;
    int32_t row = query_row(t, i), head = query_head(t, i);
    float *dst = a->out + row * a->out_stride + (int64_t)head * t->k;
    vf inv = vf_set1(1.0f / sum);
    for (int32_t k = 0; k < t->k; k += VF_LEN)
        vf_store_n(dst + k, vf_mul(vf_load(out + k), inv), vf_min_len(t->k - k));
    if (a->lse)
        a->lse[(int64_t)row * a->n_heads + head] = max + logf(sum);
}

static void load_queries(struct tile *t)
{
    const struct qr_attention_args *a = t->a;
    struct scratch *s = t->s;
    t->see_max = 0;
    for (int32_t i = 0; i < t->n_queries; i++) {
        int32_t row = query_row(t, i), pos = a->batch->pos[row];
        const float *q = a->q + row * a->q_stride + (int64_t)query_head(t, i) * t->k;
        for (int32_t k = 0; k < t->k; k += VF_LEN) {
            vf v = vf_load_n(q + k, vf_min_len(t->k - k));
            vf_store(s->q + i * QR_X_ROW + k, a->kv->dtype == QR_F32 ? v : vf_round_bf16(v));
        }
        s->see[i] = a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
        s->see_end[i] = pos + 1;
        t->see_max = pos + 1 > t->see_max ? pos + 1 : t->see_max;
        s->sum[i] = 0;
    }
}

/* Where the tile's keys and values lie. */
static void set_cache(struct tile *t)
{
    const struct qr_kv_view *kv = t->a->kv;
    size_t bytes = qr_dtype_bytes(kv->dtype);
    for (int32_t which = 0; which < 2; which++)
        t->plane[which] = (const char *)kv->base + qr_kv_offset(kv, 0, t->a->layer, which, t->kv_head) * bytes;
    t->block_bytes = qr_kv_block_bytes(kv);
    t->row_bytes = (size_t)t->k * bytes;
    t->block_shift = __builtin_ctz((unsigned)kv->block_tokens);
}

/* The tile that `item` of sequence plan `p` stands for; its pieces are [*piece, *piece_end). */
static struct tile item_tile(const struct qr_attn_plan *plan, int32_t item, int32_t worker, const struct qr_attn_seq **seq, int32_t *chunk)
{
    const struct qr_attention_args *a = plan->a;
    const struct qr_attn_seq *p = qr_attn_find(plan, item);
    int32_t at = item - p->first_item, n_tiles = p->n_row_tiles * plan->n_head_tiles, tile = at % n_tiles;
    int32_t head_tile = tile % plan->n_head_tiles, row_tile = tile / plan->n_head_tiles;
    int32_t part = head_tile % plan->head_parts, s = p->seq;
    struct tile t = {.a = a, .s = qr_queue_own(plan->queue, worker)};
    t.blocks = a->batch->block_table + (int64_t)s * a->batch->table_stride;
    t.kv_head = head_tile / plan->head_parts;
    t.first_head = t.kv_head * plan->group + part * plan->tile_heads;
    t.n_heads = plan->group - part * plan->tile_heads;
    t.n_heads = t.n_heads < plan->tile_heads ? t.n_heads : plan->tile_heads;
    t.first_row = a->batch->row_start[s] + row_tile * plan->tile_rows;
    t.n_rows = a->batch->row_start[s + 1] - t.first_row;
    t.n_rows = t.n_rows < plan->tile_rows ? t.n_rows : plan->tile_rows;
    t.n_queries = t.n_rows * t.n_heads;
    t.n_blocks = (t.n_queries + BLOCK_ROWS - 1) / BLOCK_ROWS;
    t.k = a->kv->head_dim;
    t.k_pad = (t.k + QR_PANEL - 1) / QR_PANEL * QR_PANEL;
    t.staged_values = stages_values(&t);
    set_cache(&t);
    *seq = p;
    *chunk = at / n_tiles;
    return t;
}

/* Where the result of (tile, piece, query) lies: [max, sum, 16-float aligned out]. */
static float *partial(const struct qr_attn_plan *plan, const struct qr_attn_seq *p, const struct tile *t, int32_t item, int32_t piece, int32_t i)
{
    int32_t tile = (item - p->first_item) % (p->n_row_tiles * plan->n_head_tiles);
    int64_t slot = ((int64_t)tile * p->n_pieces + (piece - p->first_piece)) * plan->tile_queries + i;
    return plan->partials + (p->first_partial + slot) * qr_attn_partial_floats(t->k);
}

static void attend_item(const void *arg, int32_t item, int32_t worker)
{
    const struct qr_attn_plan *plan = arg;
    const struct qr_attn_seq *p;
    int32_t chunk;
    struct tile t = item_tile(plan, item, worker, &p, &chunk);
    struct scratch *s = t.s;
    load_queries(&t);
    begin_products(&t);
    int32_t piece = p->first_piece + chunk * p->chunk_pieces, end = piece + p->chunk_pieces;
    end = end < p->first_piece + p->n_pieces ? end : p->first_piece + p->n_pieces;
    for (; piece < end; piece++) {
        bool seen = attend_piece(&t, piece * PIECE);
        for (int32_t i = 0; i < t.n_queries; i++) {
            const float *out = s->piece_out + i * t.k_pad;
            if (p->n_chunks == 1) {
                if (seen)
                    merge(&s->max[i], &s->sum[i], s->out + i * t.k_pad, s->piece_max[i], s->piece_sum[i], out, t.k_pad);
                continue;
            }
            float *to = partial(plan, p, &t, item, piece, i);
            to[0] = s->piece_max[i];
            to[1] = seen ? s->piece_sum[i] : 0;
            if (seen)
                memcpy(to + QR_PANEL, out, (size_t)t.k_pad * sizeof(float));
        }
    }
    end_products();
    for (int32_t i = 0; p->n_chunks == 1 && i < t.n_queries; i++)
        finish(&t, i, s->max[i], s->sum[i], s->out + i * t.k_pad);
}

static void merge_item(const void *arg, int32_t item, int32_t worker)
{
    const struct qr_attn_plan *plan = arg;
    const struct qr_attn_seq *p;
    int32_t chunk;
    struct tile t = item_tile(plan, item, worker, &p, &chunk);
    if (p->n_chunks == 1 || chunk > 0)
        return;
    float *out = t.s->out;
    for (int32_t i = 0; i < t.n_queries; i++) {
        float max = 0, sum = 0;
        for (int32_t piece = p->first_piece; piece < p->first_piece + p->n_pieces; piece++) {
            const float *from = partial(plan, p, &t, item, piece, i);
            merge(&max, &sum, out, from[0], from[1], from + QR_PANEL, t.k_pad);
        }
        finish(&t, i, max, sum, out);
    }
}

void QR_ISA_NAME(attention)(struct qr_queue *q, const struct qr_attention_args *a)
{
    QR_ASSERT(a != NULL && a->batch != NULL && a->kv != NULL && a->kv->base != NULL);
    QR_ASSERT(a->kv->n_kv_heads > 0 && a->n_heads % a->kv->n_kv_heads == 0);
    QR_ASSERT(a->kv->head_dim % 8 == 0 && a->kv->head_dim > 0 && a->kv->head_dim <= K_MAX);
    QR_ASSERT(a->kv->dtype == QR_F32 || a->kv->dtype == QR_BF16 || a->kv->dtype == QR_I8);
    QR_ASSERT(a->layer >= 0 && a->layer < a->kv->n_layers);
#ifdef QR_ISA_amx
    if (a->kv->dtype == QR_F32) {
        qr_avx512_attention(q, a);
        return;
    }
#endif
    struct qr_attn_plan plan;
    for (int32_t s = 0; s < a->batch->n_seqs; s = plan.end_seq) {
        qr_attn_plan(&plan, q, a, s, QUERIES);
        if (plan.small)
            qr_queue_run_here(attend_item, &plan, plan.n_items);
        else
            qr_queue_run(q, attend_item, &plan, plan.n_items);
        if (plan.any_split)
            qr_queue_run(q, merge_item, &plan, plan.n_items);
    }
}
