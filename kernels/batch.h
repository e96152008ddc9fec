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
#include "kernels/sample.h"

/* Rows that want the same addition to what the model computes (kernels.h, adapt). */
struct qr_row_group {
    const int32_t *row; /* [n_rows] increasing */
    int32_t n_rows;
    int32_t slot;       /* of the adapter */
};

struct qr_batch {
    int32_t n_tokens, n_seqs, n_prefill_seqs; /* prefill sequences come first */
    int32_t n_logits, n_hidden;
    int32_t n_idle;               /* of the rows the last, nobody's: each a sequence of its own at position 0 with slot -1, where nothing is written. So that
                                   * steps come in few sizes, on devices that repeat them; what comes of these rows nobody reads */
    int32_t block_tokens;         /* P, a power of two */
    int32_t table_stride;         /* entries per row of block_table */
    const int32_t *ids;           /* [n_tokens] */
    const int32_t *pos;           /* [n_tokens] */
    const int32_t *slot;          /* [n_tokens] cache row: block * P + pos % P */
    const int32_t *row_start;     /* [n_seqs + 1] first row of each sequence */
    const int32_t *ctx_len;       /* [n_seqs] tokens visible after this step: pos of the last row + 1 */
    const int32_t *block_table;   /* [n_seqs][table_stride] */
    const int32_t *logit_row;     /* [n_logits] rows whose logits are wanted, increasing */
    const int32_t *hidden_row;    /* [n_hidden] rows wanted as they leave the last norm, and not as logits, increasing */
    const float *logit_scale;     /* [n_logits] what sums of e^(scale * logit) are taken of (kernels.h, stretches), 0: none; or NULL: no row wants any */
    const struct qr_row_group *group; /* [n_groups] rows with adapters, no row twice; the others have none. The host's */
    int32_t n_groups;
    const int32_t *row_slot;      /* [n_tokens] the slot of each row's adapter, -1: none; of batches that a device repeats, else NULL */
    struct qr_draws draws;        /* what the logits are for, where kernels draw (kernels.h, sample); else all 0 */
    const struct qr_drawn *drawn; /* kernels' memory, not copied: what ids below 0 name (kernels.h, embed); or NULL */
    const struct qr_batch *host;  /* the same numbers where the host can read them, when the arrays above are a device's; else NULL */
};

/* What the host may read of a batch: kernels that plan their work from row_start, ctx_len and the like do so here. */
static inline const struct qr_batch *qr_batch_host(const struct qr_batch *b)
{
    return b->host ? b->host : b;
}

/* The paged cache of one rank: [block][layer][K|V][kv_head] planes, all of a block contiguous. A plane is one head's numbers [P][K]; with int8 (QR_I8) they
 * are integers -127 .. 127 and the plane goes on with a scale for each token, f32 [P]: what token t holds is integer * scale[t]; with fp8 (QR_E4M3) E4M3
 * numbers likewise. So a block of any
 * type is one piece of memory to copy or to send. With a base aligned to 64 bytes and P >= 16, planes are (P K or P (K + 4) bytes, K a multiple of 8);
 * smaller blocks still align every scale to its 4 bytes. */
struct qr_kv_view {
    void *base;                   /* borrowed */
    enum qr_dtype dtype;          /* f32, bf16, int8 or fp8 */
    int32_t n_blocks, n_layers, n_kv_heads, block_tokens, head_dim;
};

static inline bool qr_kv_has_scales(enum qr_dtype cache)
{
    return cache == QR_I8 || cache == QR_E4M3;
}

/* Elements of a plane, its scales counted as the elements that would lie there. */
static inline size_t qr_kv_plane_elements(const struct qr_kv_view *kv)
{
    size_t row = (size_t)kv->head_dim + (qr_kv_has_scales(kv->dtype) ? sizeof(float) : 0);
    return (size_t)kv->block_tokens * row;
}

/* Bytes of one block with all its layers, keys and values; proportional to block_tokens. */
static inline size_t qr_kv_block_bytes(const struct qr_kv_view *kv)
{
    return (size_t)kv->n_layers * 2 * (size_t)kv->n_kv_heads * qr_kv_plane_elements(kv) * qr_dtype_bytes(kv->dtype);
}

/* Element offset of [block][layer][which][head][0][0]; which: 0 keys, 1 values. */
static inline size_t qr_kv_offset(const struct qr_kv_view *kv, int32_t block, int32_t layer, int32_t which, int32_t head)
{
    size_t i = (((size_t)block * (size_t)kv->n_layers + (size_t)layer) * 2 + (size_t)which) * (size_t)kv->n_kv_heads + (size_t)head;
    return i * qr_kv_plane_elements(kv);
}

/* The scales [P] of an int8 plane. */
static inline float *qr_kv_scales(const struct qr_kv_view *kv, int32_t block, int32_t layer, int32_t which, int32_t head)
{
    size_t at = qr_kv_offset(kv, block, layer, which, head) + (size_t)kv->block_tokens * (size_t)kv->head_dim;
    return (float *)(void *)((char *)kv->base + at);
}

#endif
