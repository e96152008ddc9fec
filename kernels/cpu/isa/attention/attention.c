/* attention.c - softmax attention over the paged cache, in pieces of 256 positions.
 *
 * A query tile is some rows of one sequence times the query heads that share a kv head: up to 48 queries (tiles: 512) that read the same keys and
 * values. For each piece of its context the tile
 *   1. copies the keys to scratch, 16 positions side by side: [16 positions' group][K][16], so that
 *   2. scores are a matrix product whose panels are positions,
 *   3. takes each query's softmax over its own range of positions,
 *   4. multiplies the probabilities with the values, another matrix product whose inputs are positions,
 *   5. merges (max, sum, weighted values) into what the earlier pieces gave.
 * Steps 1 to 4 are vectors' (vectors.h) or, at the amx level with a cache of bf16 or int8, tiles' (amx/attn_tiles.h,
 * amx/attn_lone.h, amx/attn_bytes.h).
 * Every sum runs in the order of positions (or of K), and a query gets nothing from a position that it does not see: its own range decides, not the tile's.
 * So a tile's shape is a matter of speed only.
 *
 * Probabilities are powers of two: 2^(f s - m) for a score s, f = scale / ln 2 and m = f times the piece's maximum, rounded once; merging and lse
 * work with this same m, so its rounding cancels.
 *
 * Where there are fewer tiles than threads could use (long contexts, few sequences), the pieces of a tile are spread over several items,
 * which leave each piece's result in shared scratch; a second launch merges them in the same order.
 */
#include <math.h>

#include "base/assert.h"
#include "kernels/cpu/attn_plan.h"
#include "kernels/cpu/isa/isa.h"
#ifdef QR_ISA_amx
#include "kernels/cpu/amx/attn_bytes.h"
#else
#include "kernels/cpu/isa/attention/vectors.h"
#endif
#include "kernels/cpu/pool.h"

/* Each query's range within the piece; false when no query sees any of it. *begin, *end: what some query sees. */
static bool piece_range(const struct tile *t, int32_t base, int32_t *begin, int32_t *end)
{
    struct scratch *s = t->s;
    *begin = PIECE;
    *end = 0;
    for (int32_t i = t->q0; i < query_end(t); i++) {
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

/* What the head's sink adds to query i's denominator: in double, as a sink may be far above all scores. */
static double sink_of(const struct tile *t, int32_t i, int32_t head)
{
    return t->a->sinks ? exp2((double)t->a->sinks[head] * LOG2_E - (double)t->s->max[i]) : 0;
}

/* Divides query i's weighted values by their denominator and writes its result. */
static void finish(const struct tile *t, int32_t i, struct place at, const struct joined *j)
{
    const struct qr_attention_args *a = t->a;
    const double sum = (double)t->s->sum[i] + sink_of(t, i, at.head);
    const vf inv = vf_set1((float)(1 / sum)); /* of a float, that is its quotient in f32 */
    if (a->out_tiles)
        finish_to_tiles(t, at, j, inv);
    else
        for (int32_t k = 0; k < t->k; k += VF_LEN)
            vf_store_n(a->out + at.row * a->out_stride + (int64_t)at.head * t->k + k, vf_mul(joined_at(j, k), inv), vf_min_len(t->k - k));
    if (a->lse)
        a->lse[(int64_t)at.row * a->n_heads + at.head] = (float)((double)t->s->max[i] / LOG2_E + log(sum));
}

/* Queries [q0, q0 + n) take in another piece's (piece_max, piece_sum, piece_out), rows `stride` apart; after the last one their results leave. */
static void merge(const struct tile *t, int32_t q0, int32_t n, const float *piece_out, int64_t stride, bool last)
{
    struct scratch *s = t->s;
    for (int32_t i = q0; i < q0 + n; i += VF_LEN) { /* lanes without a query hold what may be there */
        vf max = vf_load(s->max + i), sum = vf_load(s->sum + i), piece_max = vf_load(s->piece_max + i), piece_sum = vf_load(s->piece_sum + i);
        vf new_max = vf_pick_zero(sum, piece_max, vf_pick_zero(piece_sum, max, vf_max(max, piece_max)));
        vf keep = vf_pick_zero(sum, vf_set1(-1), vf_exp2_of_negative(vf_sub(max, new_max)));
        vf take = vf_pick_zero(piece_sum, vf_zero(), vf_exp2_of_negative(vf_sub(piece_max, new_max)));
        vf_store(s->max + i, new_max);
        vf_store(s->sum + i, vf_fma(sum, keep, vf_mul(piece_sum, take)));
        vf_store(s->keep + i, keep);
        vf_store(s->take + i, take);
    }
    struct place at = place_of(t, q0);
    for (int32_t i = q0; i < q0 + n; i++, next_place(t, &at), piece_out += stride) {
        float *out = s->out + i * t->k_pad;
        const struct joined j = {s->keep[i] < 0 ? NULL : out, s->piece_sum[i] == 0 ? NULL : piece_out, vf_set1(s->keep[i]), vf_set1(s->take[i])};
        if (last)
            finish(t, i, at, &j);
        else
            for (int32_t k = 0; j.piece && k < t->k_pad; k += VF_LEN)
                vf_store(out + k, joined_at(&j, k));
    }
}

/* Where the result of (tile, piece, query) lies: [max, sum, 16-float aligned out]. */
static float *partial(const struct tile *t, int32_t piece, int32_t i)
{
    const struct qr_attn_seq *p = t->seq;
    int64_t slot = ((int64_t)t->index * p->n_pieces + (piece - p->first_piece)) * t->plan->tile_queries + (i - t->q0);
    return t->plan->partials + (p->first_partial + slot) * qr_attn_partial_floats(t->k);
}

static void take_piece(const struct tile *t, int32_t piece, int32_t q0, int32_t n, const float *out)
{
    const struct scratch *s = t->s;
    if (t->seq->n_chunks == 1) {
        merge(t, q0, n, out, t->k_pad, piece == (t->see_max - 1) / PIECE);
        return;
    }
    for (int32_t i = q0; i < q0 + n; i++, out += t->k_pad) {
        float *to = partial(t, piece, i);
        to[0] = s->piece_max[i];
        to[1] = s->piece_sum[i];
        memcpy(to + QR_PANEL, out, (size_t)t->k_pad * sizeof(float));
    }
}

/* What each query sees. */
static void load_ranges(struct tile *t)
{
    const struct qr_attention_args *a = t->a;
    struct scratch *s = t->s;
    struct place at = place_of(t, t->q0);
    for (int32_t i = t->q0; i < query_end(t); i++, next_place(t, &at)) {
        const int32_t pos = a->batch->pos[at.row];
        s->see[i] = a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
        s->see_end[i] = pos + 1;
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
    t->plane_bytes = qr_kv_plane_elements(kv) * bytes;
    t->block_bytes = qr_kv_block_bytes(kv);
    t->row_bytes = (size_t)t->k * bytes;
    t->block_shift = __builtin_ctz((unsigned)kv->block_tokens);
}

/* Tile number `head_tile` of a row tile and chunk; the worker that attends it sets its place in scratch. */
static struct tile head_tile_of(const struct qr_attn_plan *plan, const struct qr_attn_seq *p, int32_t row_tile, int32_t head_tile, int32_t chunk)
{
    const struct qr_attention_args *a = plan->a;
    const int32_t s = p->seq, part = head_tile % plan->head_parts, row0 = a->batch->row_start[s] + row_tile * plan->tile_rows;
    struct tile t = {.a = a, .plan = plan, .seq = p, .index = row_tile * plan->n_head_tiles + head_tile, .chunk = chunk, .first_row = row0};
    t.blocks = a->batch->block_table + (int64_t)s * a->batch->table_stride;
    t.kv_head = head_tile / plan->head_parts;
    t.first_head = t.kv_head * plan->group + part * plan->tile_heads;
    t.n_heads = plan->group - part * plan->tile_heads;
    t.n_heads = t.n_heads < plan->tile_heads ? t.n_heads : plan->tile_heads;
    t.n_rows = a->batch->row_start[s + 1] - t.first_row;
    t.n_rows = t.n_rows < plan->tile_rows ? t.n_rows : plan->tile_rows;
    t.n_queries = t.n_rows * t.n_heads;
    t.by_head = a->q_bf16 && t.n_rows % QR_PANEL == 0;
    t.k = a->kv->head_dim;
    t.k_pad = (t.k + QR_PANEL - 1) / QR_PANEL * QR_PANEL;
    t.factor = (float)(LOG2_E * (a->softcap > 0 ? 1 : (double)a->scale));
    for (int32_t r = 0; r < t.n_rows; r++)
        t.see_max = a->batch->pos[t.first_row + r] >= t.see_max ? a->batch->pos[t.first_row + r] + 1 : t.see_max;
    set_cache(&t);
    return t;
}

/* The first tile that `item` stands for. The last rows come first: they see most. */
static struct tile first_tile(const struct qr_attn_plan *plan, int32_t item)
{
    const struct qr_attn_seq *p = qr_attn_find(plan, item);
    const int32_t at = item - p->first_item, n_items = p->n_row_tiles * p->n_head_items, index = at % n_items;
    return head_tile_of(plan, p, p->n_row_tiles - 1 - index / p->n_head_items, index % p->n_head_items * p->width, at / n_items);
}

/* All tiles of `item`, at most TILES_MAX; returns how many. */
static int32_t item_tiles(struct tile *tiles, const struct qr_attn_plan *plan, int32_t item, int32_t worker)
{
    const struct tile first = first_tile(plan, item);
    const int32_t row_tile = first.index / plan->n_head_tiles, head_tile = first.index % plan->n_head_tiles, width = first.seq->width;
    const int32_t n = plan->n_head_tiles - head_tile < width ? plan->n_head_tiles - head_tile : width;
    struct scratch *s = qr_queue_own(plan->queue, worker);
    QR_ASSERT(n >= 1 && n <= TILES_MAX);
    for (int32_t i = 0; i < n; i++) {
        tiles[i] = i == 0 ? first : head_tile_of(plan, first.seq, row_tile, head_tile + i, first.chunk);
        tiles[i].s = s;
        tiles[i].q0 = i * QR_PANEL;
        tiles[i].keys = s->keys + i * (int64_t)(sizeof s->keys / TILES_MAX) * k_units(&first);
        tiles[i].values = s->values + i * (int64_t)(sizeof s->values / TILES_MAX) * k_units(&first);
    }
    return n;
}

static int32_t first_piece(const struct tile *t)
{
    return t->seq->first_piece + t->chunk * t->seq->chunk_pieces;
}

static void attend_item(const void *arg, int32_t item, int32_t worker)
{
    const struct qr_attn_plan *plan = arg;
    struct tile tiles[TILES_MAX] QR_UNINITIALIZED, next = {0};
    const int32_t n = item_tiles(tiles, plan, item, worker);
    const struct qr_attn_seq *p = tiles->seq;
    if (item + 1 < plan->n_items) /* most often this worker's next */
        next = first_tile(plan, item + 1);
    for (struct tile *t = tiles; t < tiles + n; t++) {
        load_ranges(t);
        begin_products(t);
    }
    int32_t piece = first_piece(tiles), end = piece + p->chunk_pieces;
    end = end < p->first_piece + p->n_pieces ? end : p->first_piece + p->n_pieces;
    for (int32_t from, to; piece < end; piece++) {
        const struct after after = piece + 1 < end ? (struct after){tiles, (piece + 1) * PIECE}
                                                   : (struct after){next.a ? &next : NULL, next.a ? first_piece(&next) * PIECE : 0};
        bool seen = false; /* by some query of each of the tiles, which have the same rows, or by none */
        for (struct tile *t = tiles; t < tiles + n; t++)
            seen = piece_range(t, piece * PIECE, &from, &to);
        if (seen)
            attend_piece(tiles, n, piece, from, to, &after);
        for (struct tile *t = tiles; !seen && p->n_chunks > 1 && t < tiles + n; t++)
            for (int32_t i = t->q0; i < query_end(t); i++)
                partial(t, piece, i)[1] = 0;
    }
    end_products(tiles);
}

/* Merges what the chunks of a tile left. */
static void merge_chunks(const struct tile *t)
{
    const struct qr_attn_seq *p = t->seq;
    const int64_t stride = qr_attn_partial_floats(t->k);
    memset(t->s->sum + t->q0, 0, (size_t)t->n_queries * sizeof *t->s->sum);
    for (int32_t piece = p->first_piece; piece < p->first_piece + p->n_pieces; piece++) {
        const float *from = partial(t, piece, t->q0);
        for (int32_t i = t->q0; i < query_end(t); i++) {
            t->s->piece_max[i] = from[(i - t->q0) * stride];
            t->s->piece_sum[i] = from[(i - t->q0) * stride + 1];
        }
        merge(t, t->q0, t->n_queries, from + QR_PANEL, stride, piece == p->first_piece + p->n_pieces - 1);
    }
}

static void merge_item(const void *arg, int32_t item, int32_t worker)
{
    struct tile tiles[TILES_MAX] QR_UNINITIALIZED;
    const int32_t n = item_tiles(tiles, arg, item, worker);
    if (tiles->seq->n_chunks == 1 || tiles->chunk > 0)
        return;
    for (const struct tile *t = tiles; t < tiles + n; t++)
        merge_chunks(t);
}

void QR_ISA_NAME(attention)(struct qr_queue *q, const struct qr_attention_args *a)
{
    QR_ASSERT(a != NULL && a->batch != NULL && a->kv != NULL && a->kv->base != NULL);
    QR_ASSERT(a->kv->n_kv_heads > 0 && a->n_heads % a->kv->n_kv_heads == 0);
    QR_ASSERT(a->kv->head_dim % 8 == 0 && a->kv->head_dim > 0 && a->kv->head_dim <= K_MAX);
    QR_ASSERT(a->kv->dtype == QR_F32 || a->kv->dtype == QR_BF16 || a->kv->dtype == QR_I8);
    QR_ASSERT(a->scale > 0); /* so that the largest score is the largest exponent */
    QR_ASSERT(a->layer >= 0 && a->layer < a->kv->n_layers);
    QR_ASSERT(!a->q_bf16 || qr_takes_bf16_queries(&QR_ISA_NAME(kernels), a->kv));
    QR_ASSERT(!a->out_tiles || qr_takes_row_tiles(&QR_ISA_NAME(kernels), QR_BF16, a->kv));
#ifdef QR_ISA_amx
    if (a->kv->dtype == QR_F32) {
        qr_avx512_attention(q, a);
        return;
    }
#endif
    struct qr_attn_plan plan;
    for (int32_t s = 0; s < a->batch->n_seqs; s = plan.end_seq) {
        qr_attn_plan(&plan, q, a, s, room_of(a->kv));
        qr_queue_run_if(q, !plan.small, attend_item, &plan, plan.n_items);
        if (plan.any_split)
            qr_queue_run(q, merge_item, &plan, plan.n_items);
    }
}
