/* permute.h - a keyed permutation of 0..n-1 computed index by index: what shuffling is made of. No table, no state: any thread.
 *
 * An unbalanced Feistel network over the next power of two, walked until it lands below n (fewer than two rounds of it on average). Its round function
 * is the counter-based generator of base/rng.h. Sources: Luby & Rackoff 1988; Black & Rogaway 2002, "Ciphers with arbitrary finite domains".
 */
#ifndef QR_TRAIN_DATA_PERMUTE_H
#define QR_TRAIN_DATA_PERMUTE_H

#include <stdint.h>

/* Where index i of 0..n-1 goes under the key (seed, stream). For every key a bijection of 0..n-1. Requires 0 <= i < n, n <= 2^62. */
int64_t qr_permute(int64_t i, int64_t n, uint64_t seed, uint64_t stream);

#endif
