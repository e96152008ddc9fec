/* attention.h - how a launch of attention is cut into items; the same at every level. Inside kernels/cpu only. */
#ifndef QR_KERNELS_CPU_ATTENTION_H
#define QR_KERNELS_CPU_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/pool.h"
#include "kernels/kernels.h"

#define QR_ATTN_PIECE 256   /* positions; kernels.h names it */


/* One sequence's share of the items: n_chunks times (row tiles times head items), chunk by chunk. */
struct qr_attn_seq {
    int32_t seq, first_item, n_row_tiles;
    int32_t width;                 /* head tiles of an item; more than 1 where a tile has few queries */
    int32_t n_head_items;          /* of n_head_tiles / width, rounded up */
    int32_t first_piece, n_pieces; /* that any of its rows sees */
    int32_t n_seen;                /* positions that any of its rows sees */
    int32_t chunk_pieces, n_chunks;
    int64_t first_partial; /* slots; used when n_chunks > 1 */
};

struct qr_attn_plan {
    const struct qr_attention_args *a; /* borrowed */
    struct qr_queue *queue;            /* borrowed */
    struct qr_attn_seq *seq;           /* in shared scratch [n_seqs] */
    float *partials;                   /* in shared scratch, behind seq */
    int32_t n_seqs, end_seq, n_items;
    int32_t group;                     /* query heads that share a kv head */
    int32_t tile_heads, tile_rows, tile_queries, head_parts, n_head_tiles;
    bool any_split;
    bool small;                        /* the caller alone is done sooner than others would begin */
};

/* What fits a worker's scratch. */
struct qr_attn_room {
    int32_t queries;     /* rows times heads of a tile */
    int32_t few_queries; /* tiles of at most so many may share an item, one behind the other */
    int32_t few_tiles;   /* so many of them */
};

/* Plans sequences from first_seq on, as many as scratch has entries for; the next launch begins at plan->end_seq. Nothing about the results depends
 * on the plan. */
void qr_attn_plan(struct qr_attn_plan *plan, struct qr_queue *q, const struct qr_attention_args *a, int32_t first_seq, struct qr_attn_room room);

/* The sequence to which an item belongs. */
const struct qr_attn_seq *qr_attn_find(const struct qr_attn_plan *plan, int32_t item);

/* Floats of one partial result: max, sum, and from a cache line's begin the weighted values. */
static inline int64_t qr_attn_partial_floats(int32_t head_dim)
{
    return 16 + (head_dim + 15) / 16 * 16;
}

#endif
