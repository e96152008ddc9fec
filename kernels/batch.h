/* batch.h - one step's work as flat arrays that a kernel can read, and the cache it reads and writes.
 *
 * Rows (tokens) of all sequences are concatenated. A decode row, a prompt chunk and a verification run are all "append" rows:
 * row r of sequence s has position pos[r]; it sees positions 0 .. pos[r] of its own sequence. Built by engine/lower.c (serving)
 * and by the trainer (identity block tables); read only by everybody else.
 */
#ifndef QR_KERNELS_BATCH_H
#define QR_KERNELS_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/dtype.h"

struct qr_batch {
    int32_t n_tokens, n_seqs, n_prefill_seqs; /* prefill sequences come first */
    int32_t n_logits;
    int32_t block_tokens;         /* P, a power of two */
    int32_t table_stride;         /* entries per row of block_table */
    const int32_t *ids;           /* [n_tokens] */
    const int32_t *pos;           /* [n_tokens] */
    const int32_t *slot;          /* [n_tokens] cache row: block * P + pos % P */
    const int32_t *row_start;     /* [n_seqs + 1] first row of each sequence */
    const int32_t *ctx_len;       /* [n_seqs] tokens visible after this step: pos of the last row + 1 */
    const int32_t *block_table;   /* [n_seqs][table_stride] */
    const int32_t *logit_row;     /* [n_logits] rows whose logits are wanted, increasing */
};

/* The paged cache of one rank: [block][layer][K|V][kv_head][block_tokens][head_dim]; all layers of a block are contiguous. */
struct qr_kv_view {
    void *base;                   /* borrowed */
    enum qr_dtype dtype;          /* f32 or bf16 */
    int32_t n_blocks, n_layers, n_kv_heads, block_tokens, head_dim;
};

/* Bytes of one block with all its layers, keys and values. */
static inline size_t qr_kv_block_bytes(const struct qr_kv_view *kv)
{
    return (size_t)kv->n_layers * 2 * (size_t)kv->n_kv_heads * (size_t)kv->block_tokens * (size_t)kv->head_dim *
           qr_dtype_bytes(kv->dtype);
}

/* Element offset of [block][layer][which][head][0][0]; which: 0 keys, 1 values. */
static inline size_t qr_kv_offset(const struct qr_kv_view *kv, int32_t block, int32_t layer, int32_t which, int32_t head)
{
    size_t i = (((size_t)block * (size_t)kv->n_layers + (size_t)layer) * 2 + (size_t)which) * (size_t)kv->n_kv_heads + (size_t)head;
    return i * (size_t)kv->block_tokens * (size_t)kv->head_dim;
}

#endif
