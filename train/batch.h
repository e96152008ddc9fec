/* batch.h - sequences of token ids as one batch with targets: what a training step reads.
 *
 * Every sequence is a document (or a piece of one) of its own: attention does not leave it. Its cache blocks follow one another, so the paged
 * cache is a contiguous one (an identity block table). Arrays are allocated once; filling allocates nothing. One owning thread.
 */
#ifndef QR_TRAIN_BATCH_H
#define QR_TRAIN_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/batch.h"

#define QR_TRAIN_BLOCK_TOKENS 16

struct qr_train_batch {
    struct qr_batch b;                   /* its arrays are owned */
    int32_t *target;                     /* owned [b.n_logits]: the id that follows row b.logit_row[i] */
    int32_t n_tokens_max, n_seqs_max;
    int32_t n_blocks_max, n_blocks;      /* of cache: at most, and in use */
};

/* Room for n_seqs_max sequences of n_tokens_max rows together. */
void qr_train_batch_init(struct qr_train_batch *b, int32_t n_tokens_max, int32_t n_seqs_max);
void qr_train_batch_release(struct qr_train_batch *b);

/* Forgets all sequences. */
void qr_train_batch_clear(struct qr_train_batch *b);

/* Adds a sequence: ids[0..n-1) are its inputs, ids[1..n) what is to follow them. counts NULL: every target counts; else target ids[i] counts
 * where counts[i] (a chat trains on the assistant's turns only); rows whose target does not count get no logits. False, and nothing added, when it does
 * not fit. Requires n >= 2. */
bool qr_train_batch_add(struct qr_train_batch *b, const int32_t *ids, int32_t n, const bool *counts);

#endif
