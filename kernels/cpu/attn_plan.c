#include "kernels/cpu/attn_plan.h"

#include "base/assert.h"
#include "kernels/cpu/tuned.h"

/* Items that a thread should find, so that the last one to finish is not far behind. */
#define ITEMS_PER_THREAD 8
#define ITEMS_MAX (1 << 30)
/* Scores times head dim below which one thread needs about 3 us. */
#define WORK_ALONE 32768
/* Items of several head tiles that a thread should find at least: with fewer, tiles are attended one by one. */
#define WIDE_ITEMS_PER_THREAD 2

static int32_t min32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t most_rows(const struct qr_batch *b)
{
    int32_t most = 1;
    for (int32_t s = 0; s < b->n_seqs; s++)
        most = b->row_start[s + 1] - b->row_start[s] > most ? b->row_start[s + 1] - b->row_start[s] : most;
    return most;
}

/* Tile shape: all heads that share a kv head, and as many rows as fit, or as make tiles of one size, a multiple of 32 if so many fit: then so are
 * queries. */
static void plan_tiles(struct qr_attn_plan *plan, int32_t queries_max)
{
    plan->group = plan->a->n_heads / plan->a->kv->n_kv_heads;
    plan->tile_heads = min32(plan->group, queries_max);
    plan->tile_rows = queries_max / plan->tile_heads;
    if (plan->tile_rows > 32) {
        const int32_t fit = plan->tile_rows / 32, n = (most_rows(plan->a->batch) + 31) / 32, n_tiles = (n + fit - 1) / fit;
        plan->tile_rows = (n + n_tiles - 1) / n_tiles * 32;
    }
    plan->tile_rows = min32(plan->tile_rows, most_rows(plan->a->batch)); /* partial results take no more room than there are rows */
    plan->tile_queries = plan->tile_rows * plan->tile_heads;
    plan->head_parts = (plan->group + plan->tile_heads - 1) / plan->tile_heads;
    plan->n_head_tiles = plan->head_parts * plan->a->kv->n_kv_heads;
}

static void plan_seq(struct qr_attn_plan *plan, struct qr_attn_seq *p, int32_t s)
{
    const struct qr_batch *b = plan->a->batch;
    int32_t first = b->row_start[s], end = b->row_start[s + 1], low = INT32_MAX, high = 0;
    QR_ASSERT(first >= 0 && first <= end && end <= b->n_tokens);
    for (int32_t r = first; r < end; r++) {
        low = min32(low, b->pos[r]);
        high = b->pos[r] > high ? b->pos[r] : high;
    }
    *p = (struct qr_attn_seq){.seq = s, .n_row_tiles = (end - first + plan->tile_rows - 1) / plan->tile_rows, .n_chunks = 1};
    if (first == end)
        return;
    QR_ASSERT(low >= 0 && high / b->block_tokens < b->table_stride);
    int32_t seen = plan->a->window > 0 && low >= plan->a->window ? low - plan->a->window + 1 : 0;
    p->first_piece = seen / QR_ATTN_PIECE;
    p->n_pieces = high / QR_ATTN_PIECE - p->first_piece + 1;
    p->n_seen = high + 1 - seen;
}

/* Tiles of few queries share items: what an item costs beside its positions is then paid once for several. Returns how many tiles' pieces remain as
 * units of work. */
static int64_t widen(struct qr_attn_plan *plan, int64_t n_pieces, struct qr_attn_room room)
{
    int64_t n = 0;
    for (int32_t i = 0; i < plan->n_seqs; i++) {
        struct qr_attn_seq *p = &plan->seq[i];
        const int64_t queries = (int64_t)(plan->a->batch->row_start[p->seq + 1] - plan->a->batch->row_start[p->seq]) * plan->tile_heads;
        p->width = queries <= room.few_queries ? min32(room.few_tiles, plan->n_head_tiles) : 1;
        p->n_head_items = (plan->n_head_tiles + p->width - 1) / p->width;
        n += (int64_t)p->n_row_tiles * p->n_head_items * p->n_pieces;
    }
    if (plan->small || n >= (int64_t)plan->queue->n_threads * WIDE_ITEMS_PER_THREAD)
        return n;
    for (int32_t i = 0; i < plan->n_seqs; i++) {
        plan->seq[i].width = 1;
        plan->seq[i].n_head_items = plan->n_head_tiles;
    }
    return n_pieces;
}

/* Splits the contexts that are long against the work that a thread should get, as far as partial results find room. */
static void split(struct qr_attn_plan *plan, int64_t n_pieces, int64_t partials_max)
{
    const int32_t measured = qr_tuned_attention(plan->queue, plan->a->kv, plan->a->batch->n_tokens);
    int64_t chunk = n_pieces / ((int64_t)plan->queue->n_threads * (measured ? measured : ITEMS_PER_THREAD)) + 1, used = 0;
    for (int32_t i = 0; i < plan->n_seqs; i++) {
        struct qr_attn_seq *p = &plan->seq[i];
        p->chunk_pieces = p->n_pieces;
        int64_t need = (int64_t)p->n_row_tiles * plan->n_head_tiles * plan->tile_queries * p->n_pieces;
        if (plan->queue->n_threads == 1 || p->n_pieces <= chunk || used + need > partials_max)
            continue;
        p->chunk_pieces = (int32_t)chunk;
        p->n_chunks = (p->n_pieces + p->chunk_pieces - 1) / p->chunk_pieces;
        p->first_partial = used;
        used += need;
        plan->any_split = true;
    }
}

void qr_attn_plan(struct qr_attn_plan *plan, struct qr_queue *q, const struct qr_attention_args *a, int32_t first_seq, struct qr_attn_room room)
{
    QR_ASSERT(plan != NULL && q != NULL && a != NULL);
    QR_ASSERT(room.queries >= 1 && room.few_queries <= room.queries && room.few_tiles >= 1);
    QR_ASSERT(first_seq >= 0 && first_seq < a->batch->n_seqs);
    *plan = (struct qr_attn_plan){.a = a, .queue = q, .seq = (struct qr_attn_seq *)q->shared};
    plan_tiles(plan, room.queries);
    size_t fit = q->shared_bytes / 2 / sizeof *plan->seq;
    plan->n_seqs = a->batch->n_seqs - first_seq < (int64_t)fit ? a->batch->n_seqs - first_seq : (int32_t)fit;
    plan->end_seq = first_seq + plan->n_seqs;
    int64_t n_pieces = 0, n_items = 0, n_scores = 0;
    for (int32_t i = 0; i < plan->n_seqs; i++) {
        struct qr_attn_seq *p = &plan->seq[i];
        plan_seq(plan, p, first_seq + i);
        n_pieces += (int64_t)p->n_row_tiles * plan->n_head_tiles * p->n_pieces;
        n_scores += (int64_t)(a->batch->row_start[first_seq + i + 1] - a->batch->row_start[first_seq + i]) * a->n_heads * p->n_seen;
    }
    plan->small = n_scores * a->kv->head_dim < WORK_ALONE;
    n_pieces = widen(plan, n_pieces, room);
    size_t plan_bytes = ((size_t)plan->n_seqs * sizeof *plan->seq + 63) / 64 * 64;
    plan->partials = (float *)(q->shared + plan_bytes);
    split(plan, n_pieces, (int64_t)((q->shared_bytes - plan_bytes) / sizeof(float)) / qr_attn_partial_floats(a->kv->head_dim));
    for (int32_t i = 0; i < plan->n_seqs; i++) {
        struct qr_attn_seq *p = &plan->seq[i];
        p->first_item = (int32_t)n_items;
        n_items += (int64_t)p->n_row_tiles * p->n_head_items * p->n_chunks;
        QR_ASSERT(n_items <= ITEMS_MAX);
    }
    plan->n_items = (int32_t)n_items;
}

const struct qr_attn_seq *qr_attn_find(const struct qr_attn_plan *plan, int32_t item)
{
    QR_ASSERT(plan->n_seqs > 0);
    QR_ASSERT(item >= 0 && item < plan->n_items);
    int32_t low = 0, high = plan->n_seqs;
    while (high - low > 1) { /* seq[low].first_item <= item < first item of seq[high] */
        int32_t mid = low + (high - low) / 2;
        if (plan->seq[mid].first_item <= item)
            low = mid;
        else
            high = mid;
    }
    return &plan->seq[low];
}
