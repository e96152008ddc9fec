#include "train/batch.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

static int32_t blocks_of(int32_t n_tokens)
{
    return (n_tokens + QR_TRAIN_BLOCK_TOKENS - 1) / QR_TRAIN_BLOCK_TOKENS;
}

static int32_t *ints(int64_t n)
{
    return qr_alloc((size_t)n, sizeof(int32_t));
}

void qr_train_batch_init(struct qr_train_batch *b, int32_t n_tokens_max, int32_t n_seqs_max)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(n_tokens_max > 0 && n_seqs_max > 0 && n_seqs_max <= n_tokens_max);
    const int32_t stride = blocks_of(n_tokens_max);
    *b = (struct qr_train_batch){.n_tokens_max = n_tokens_max, .n_seqs_max = n_seqs_max, .n_blocks_max = stride + n_seqs_max,
                                 .target = ints(n_tokens_max)};
    b->b = (struct qr_batch){.block_tokens = QR_TRAIN_BLOCK_TOKENS, .table_stride = stride, .ids = ints(n_tokens_max), .pos = ints(n_tokens_max),
                             .slot = ints(n_tokens_max), .row_start = ints(n_seqs_max + 1), .ctx_len = ints(n_seqs_max),
                             .block_table = ints((int64_t)n_seqs_max * stride), .logit_row = ints(n_tokens_max)};
}

void qr_train_batch_release(struct qr_train_batch *b)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(b->n_tokens_max > 0);
    const int32_t *const arrays[] = {b->b.ids, b->b.pos, b->b.slot, b->b.row_start, b->b.ctx_len, b->b.block_table, b->b.logit_row, b->target};
    for (int i = 0; i < QR_COUNT(arrays); i++)
        qr_free((int32_t *)(uintptr_t)arrays[i]);
    *b = (struct qr_train_batch){0};
}

void qr_train_batch_clear(struct qr_train_batch *b)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(b->target != NULL);
    b->b.n_tokens = b->b.n_seqs = b->b.n_prefill_seqs = b->b.n_logits = 0;
    b->n_blocks = 0;
}

/* The arrays are the batch's own; kernels see them as constant. */
static int32_t *own(const int32_t *array)
{
    return (int32_t *)(uintptr_t)array;
}

bool qr_train_batch_add(struct qr_train_batch *b, const int32_t *ids, int32_t n, const bool *counts)
{
    QR_ASSERT(b != NULL && ids != NULL);
    QR_ASSERT(n >= 2);
    const int32_t n_rows = n - 1, row0 = b->b.n_tokens, s = b->b.n_seqs, n_blocks = blocks_of(n_rows);
    if (s == b->n_seqs_max || n_rows > b->n_tokens_max - row0)
        return false;
    QR_ASSERT(b->n_blocks + n_blocks <= b->n_blocks_max);
    for (int32_t i = 0; i < n_blocks; i++)
        own(b->b.block_table)[(int64_t)s * b->b.table_stride + i] = b->n_blocks + i;
    for (int32_t i = 0; i < n_rows; i++) {
        own(b->b.ids)[row0 + i] = ids[i];
        own(b->b.pos)[row0 + i] = i;
        own(b->b.slot)[row0 + i] = b->n_blocks * QR_TRAIN_BLOCK_TOKENS + i; /* its blocks follow one another */
        if (counts && !counts[i + 1])
            continue;
        b->target[b->b.n_logits] = ids[i + 1];
        own(b->b.logit_row)[b->b.n_logits++] = row0 + i;
    }
    own(b->b.row_start)[s] = row0;
    own(b->b.row_start)[s + 1] = row0 + n_rows;
    own(b->b.ctx_len)[s] = n_rows;
    b->b.n_seqs = b->b.n_prefill_seqs = s + 1;
    b->b.n_tokens = row0 + n_rows;
    b->n_blocks += n_blocks;
    return true;
}
