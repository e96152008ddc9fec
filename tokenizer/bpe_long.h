/* bpe_long.h - merging a long run of symbols: a linked list, and a heap of its pairs by (rank, position). O(n log n).
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
