/* attention.c - softmax attention over the paged cache, in pieces of 256 positions.
 *
 * A query tile is some rows of one sequence times the query heads that share a kv head: up to 48 queries that read the same keys and
 * values. For each piece of its context the tile
 *   1. copies the keys to scratch as f32, 16 positions side by side: [16 positions' group][K][16], so that
 *   2. scores are a matrix product whose panels are positions (micro.c),
 *   3. takes each query's softmax over its own range of positions,
 *   4. multiplies the probabilities with the values, another matrix product whose inputs are positions,
 *   5. merges (max, sum, weighted values) into what the earlier pieces gave.
 * Every sum is a chain in the order of positions (or of K), and a query that does not see a position never touches it: its own
 * range decides, not the tile's. So a tile's shape is a matter of speed only.
 *
 * Where there are fewer tiles than threads could use (long contexts, few sequences), the pieces of a tile are spread over several items,
 * which leave each piece's result in shared scratch; a second launch merges them in the same order.
 */
#include <math.h>

#include "base/assert.h"
#include "kernels/cpu/attn_plan.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/micro.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/pool.h"

#define PIECE QR_ATTN_PIECE
#define QUERIES QR_ATTN_QUERIES
#define STEP 64 /* positions whose keys are staged at once: with K = 64 they stay in the first-level cache */
#define K_MAX 256

/* Scratch of one worker. */
struct scratch {
    float keys[STEP * K_MAX];            /* [STEP / 16][K][16] */
    float values[PIECE * K_MAX];         /* [PIECE][K rounded up to 16] when staged */
    float q[QUERIES * QR_X_ROW];         /* rounded to bf16 where the cache is */
    float p[QUERIES * QR_X_ROW];         /* scores, then probabilities */
    float piece_out[QUERIES * K_MAX];
    float out[QUERIES * K_MAX];
    float max[QUERIES], sum[QUERIES];              /* of the pieces so far; sum 0: none yet */
    float piece_max[QUERIES], piece_sum[QUERIES];  /* sum 0: the query sees nothing of this piece */
    int32_t see[QUERIES], see_end[QUERIES];        /* range of positions each query sees */
    int32_t in[QUERIES], in_end[QUERIES];          /* the same within the piece, relative to its begin */
};
_Static_assert(sizeof(struct scratch) <= QR_WORKER_SCRATCH_BYTES, "scratch of a worker");

/* One item: a tile and some of its pieces. */
struct tile {
    const struct qr_attention_args *a;
    const int32_t *blocks;        /* the sequence's row of the block table */
    struct scratch *s;
    int32_t kv_head, first_head, n_heads; /* query heads of the tile */
    int32_t first_row, n_rows, n_queries;
    int32_t n_blocks;             /* register blocks of queries */
    int32_t k, k_pad;
    const char *plane[2];         /* keys and values of this layer and head in block 0 */
    size_t block_bytes, row_bytes;
    int32_t block_shift;          /* log2 of block_tokens */
    int32_t see_max;              /* end of the positions that some query sees */
    bool staged_values;
};

static int32_t query_row(const struct tile *t, int32_t i)
{
    return t->first_row + i / t->n_heads;
}

static int32_t query_head(const struct tile *t, int32_t i)
{
    return t->first_head + i % t->n_heads;
}

/* Address of the key (which 0) or value (1) at position pos. */
static const char *cache_row(const struct tile *t, int32_t which, int32_t pos)
{
    int32_t block = t->blocks[pos >> t->block_shift];
    QR_ASSERT(block >= 0 && block < t->a->kv->n_blocks);
    return t->plane[which] + (size_t)block * t->block_bytes + (size_t)(pos & (t->a->kv->block_tokens - 1)) * t->row_bytes;
}

/* Positions from pos on that lie behind one another in memory, at most n. */
static int32_t run_length(const struct tile *t, int32_t pos, int32_t n)
{
    int32_t rest = t->a->kv->block_tokens - (pos & (t->a->kv->block_tokens - 1));
    return rest < n ? rest : n;
}

/* Asks for the keys or values of up to 16 positions from pos on: blocks lie scattered, where the processor's own prefetching begins anew
 * each time. Beyond what the tile sees nothing is asked for. */
static void prefetch(const struct tile *t, int32_t which, int32_t pos)
{
    int32_t n = t->see_max - pos < QR_PANEL ? t->see_max - pos : QR_PANEL;
    if (n <= 0)
        return;
    const char *p = cache_row(t, which, pos), *end = p + (size_t)run_length(t, pos, n) * t->row_bytes;
    for (; p < end; p += 64)
        _mm_prefetch(p, _MM_HINT_T1);
}

/* row[i] = the key at position first + i where begin <= first + i < end, else NULL; for n positions. */
static void key_rows(const struct tile *t, const char **row, int32_t n, int32_t first, int32_t begin, int32_t end)
{
    for (int32_t i = 0, run; i < n; i += run) {
        run = first + i < begin ? begin - first - i : first + i < end ? run_length(t, first + i, end - first - i) : n - i;
        run = run < n - i ? run : n - i;
        const char *p = first + i >= begin && first + i < end ? cache_row(t, 0, first + i) : NULL;
        for (int32_t j = 0; j < run; j++)
            row[i + j] = p ? p + (size_t)j * t->row_bytes : NULL;
    }
}

/* Unit i of all lanes: 32-bit floats as they are, pairs of bf16 as two vectors of floats. */
VF_FN void store_unit(float *dst, vf unit, bool pairs)
{
    if (!pairs) {
        vf_store(dst, unit);
        return;
    }
    vf_store(dst, vf_pairs_first(vf_as_pairs(unit)));
    vf_store(dst + QR_PANEL, vf_pairs_second(vf_as_pairs(unit)));
}

/* VF_LEN rows (NULL: zeros) as columns: dst[i][QR_PANEL], i over n 32-bit units from unit `first`. Pairs of bf16 are one unit. */
VF_FN void columns_of(float *dst, const char *const row[VF_LEN], int32_t first, int64_t n, const bool pairs)
{
    vf r[VF_LEN] QR_UNINITIALIZED;
    const int64_t step = pairs ? 2 * QR_PANEL : QR_PANEL;
    dst += first * step;
    if (n == VF_LEN && row[0] && row[VF_LEN - 1]) { /* ranges have no holes: all are there */
        for (int i = 0; i < VF_LEN; i++)
            r[i] = vf_load((const float *)row[i] + first);
        vf_transpose(r);
        for (int i = 0; i < VF_LEN; i++)
            store_unit(dst + i * step, r[i], pairs);
        return;
    }
    for (int i = 0; i < VF_LEN; i++)
        r[i] = row[i] ? vf_load_n((const float *)row[i] + first, n) : vf_zero();
    vf_transpose(r);
    for (int i = 0; i < VF_LEN; i++)
        if (i < n)
            store_unit(dst + i * step, r[i], pairs);
}

/* Keys of positions [begin, end) of the piece at `base` to scratch, from the group of 16 on in which they begin; what else those groups
 * hold becomes zero. */
VF_FN void stage_keys_of(const struct tile *t, int32_t base, int32_t begin, int32_t end, const bool pairs)
{
    int32_t units = pairs ? t->k / 2 : t->k;
    const char *row[VF_LEN] QR_UNINITIALIZED;
    const int32_t first = begin / QR_PANEL * QR_PANEL, last = (end + QR_PANEL - 1) / QR_PANEL * QR_PANEL;
    for (int32_t at = first; at < last; at += VF_LEN) {
        float *dst = t->s->keys + (at - first) / QR_PANEL * QR_PANEL * t->k + at % QR_PANEL;
        key_rows(t, row, VF_LEN, base + at, base + begin, base + end);
        if (at % QR_PANEL == 0)
            prefetch(t, 1, base + at);
        for (int32_t u = 0; u < units; u += VF_LEN)
            columns_of(dst, row, u, vf_min_len(units - u), pairs);
    }
}

static void stage_keys(const struct tile *t, int32_t base, int32_t begin, int32_t end)
{
    if (t->a->kv->dtype == QR_BF16)
        stage_keys_of(t, base, begin, end, true);
    else
        stage_keys_of(t, base, begin, end, false);
}

/* Values of positions [begin, end) to scratch as f32 rows of k_pad. */
static void stage_values(const struct tile *t, int32_t base, int32_t begin, int32_t end)
{
    const bool bf16 = t->a->kv->dtype == QR_BF16;
    for (int32_t at = begin, run; at < end; at += run) {
        run = run_length(t, base + at, end - at);
        const char *row = cache_row(t, 1, base + at);
        for (int32_t j = 0; j < run; j++, row += t->row_bytes) {
            float *dst = t->s->values + (at + j) * t->k_pad;
            for (int32_t i = 0; i < t->k; i += VF_LEN)
                vf_store(dst + i, t->k - i < VF_LEN ? vf_load_as_n(row, t->a->kv->dtype, (size_t)i, t->k - i)
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

/* The first query of block b: blocks of nearly equal height. */
static int32_t block_first(const struct tile *t, int32_t b)
{
    return t->n_queries * b / t->n_blocks;
}

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

VF_FN vf scaled(vf s, vf scale, const float cap)
{
    s = vf_mul(s, scale);
    return cap > 0 ? vf_mul(vf_set1(cap), vf_tanh(vf_div(s, vf_set1(cap)))) : s;
}

/* Scores of query i become e^(score - max) in its range and 0 in the rest of the vectors it touches. Only the first and the last vector
 * of the range can hold lanes outside it. */
VF_FN void softmax_of(const struct tile *t, int32_t i, const bool capped, const bool rounded)
{
    struct scratch *s = t->s;
    float *p = s->p + i * QR_X_ROW;
    const int32_t first = s->in[i], end = s->in_end[i], begin = first / VF_LEN * VF_LEN, last = (end - 1) / VF_LEN * VF_LEN;
    const vf low = vf_set1(-INFINITY), scale = vf_set1(t->a->scale);
    vf max = low, sum = vf_zero();
    for (int32_t at = begin; at <= last; at += VF_LEN) {
        vf v = scaled(vf_load(p + at), scale, capped ? t->a->softcap : 0);
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
        vf_store(p + at, rounded ? vf_round_bf16_number(e) : e); /* a NaN stays in the sum and comes out by the division */
    }
    s->piece_sum[i] = vf_sum(sum);
}

static void softmax(const struct tile *t, int32_t i)
{
    const bool rounded = t->a->kv->dtype == QR_BF16;
    if (t->a->softcap > 0)
        softmax_of(t, i, true, rounded);
    else if (rounded)
        softmax_of(t, i, false, true);
    else
        softmax_of(t, i, false, false);
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

/* The same over each query's own range: together where all see, one by one before and behind. */
static void weigh_block(const struct tile *t, int32_t q0, int32_t mr, int32_t base)
{
    const struct scratch *s = t->s;
    int32_t from = 0, end = PIECE;
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
    score_piece(t, base, begin, end);
    if (t->staged_values)
        stage_values(t, base, begin, end);
    memset(s->piece_out, 0, (size_t)t->n_queries * (size_t)t->k_pad * sizeof(float));
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
        vf v = vf_mul(vf_load(piece_out + i), vf_set1(take));
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
            vf_store(s->q + i * QR_X_ROW + k, a->kv->dtype == QR_BF16 ? vf_round_bf16(v) : v);
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
    t.n_blocks = (t.n_queries + QR_ISA_NAME(micro_rows_max) - 1) / QR_ISA_NAME(micro_rows_max);
    t.k = a->kv->head_dim;
    t.k_pad = (t.k + QR_PANEL - 1) / QR_PANEL * QR_PANEL;
    t.staged_values = t.k_pad != t.k || (a->kv->dtype == QR_BF16 && t.n_queries > QR_ISA_NAME(micro_rows_max));
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
    QR_ASSERT(a->kv->dtype == QR_F32 || a->kv->dtype == QR_BF16);
    QR_ASSERT(a->layer >= 0 && a->layer < a->kv->n_layers);
    struct qr_attn_plan plan;
    for (int32_t s = 0; s < a->batch->n_seqs; s = plan.end_seq) {
        qr_attn_plan(&plan, q, a, s);
        if (plan.small)
            qr_queue_run_here(attend_item, &plan, plan.n_items);
        else
            qr_queue_run(q, attend_item, &plan, plan.n_items);
        if (plan.any_split)
            qr_queue_run(q, merge_item, &plan, plan.n_items);
    }
}
