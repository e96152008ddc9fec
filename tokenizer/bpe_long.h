/* bpe_long.h - merging a long run of symbols: a linked list, and pairs queued by rank.
 *
 * Pairs of one rank wait in one list, and the lists are taken in the order of their ranks; within a list, positions ascend. A
 * megabyte of one character has a handful of ranks, so this is nearly linear there, where a heap of all pairs would pay
 * log n cache misses for each. Only a pair whose rank is not above the one being worked on goes to a heap, which is
 * always asked first, so the order is exactly (rank, position) whatever the merges are. O(n log n) in the worst case.
 */
#ifndef QR_TOKENIZER_BPE_LONG_H
#define QR_TOKENIZER_BPE_LONG_H

#include <stdint.h>

struct qr_bpe;
struct qr_bpe_long; /* opaque: scratch space, grows to the longest run */

struct qr_bpe_long *qr_bpe_long_new(void);
void qr_bpe_long_free(struct qr_bpe_long *l); /* NULL is fine */

/* Merges sym[0..n) in place; returns how many symbols are left. */
int32_t qr_bpe_long_merge(struct qr_bpe_long *l, const struct qr_bpe *b, int32_t *sym, int32_t n);

#endif
