/* kv_prefix.h - finding blocks by content: a chained hash per full block, and token comparison on every hit.
 *
 * The chain starts from a salt (per API key, narrowed by cache_salt), so one tenant never finds another's blocks. Only
 * full blocks of computed tokens are entered. A hit is believed only after the block's own tokens and its parent entry
 * compare equal (the salt itself for a first block), so no collision of hashes can give a wrong block. A sequence that gives
 * its blocks back from the last to the first has its tails evicted before its heads, and an entry whose parent is gone
 * is rare; it is never found again and ages out. No allocation after the pool was made.
 */
#ifndef QR_KVCACHE_KV_PREFIX_H
#define QR_KVCACHE_KV_PREFIX_H

#include "kvcache/kv_pool.h"

/* The hash of block i of a sequence, given the hash of block i-1 (or the salt for i = 0) and its block_tokens tokens. */
struct qr_hash128 qr_kv_chain(const struct qr_kv_pool *p, struct qr_hash128 parent, const int32_t *tokens);

/* Finds the longest run of blocks for tokens[0..n_tokens), at most n_max; takes a reference on each and writes their ids to
 * blocks[n_max]. Returns the number found. hashes[n_max] keeps the chain hashes (hash of block i) as far as the search had to
 * look, *n_hashed says how many are valid; entries valid from an earlier call with the same tokens and salt are not computed
 * again. Start with *n_hashed = 0. With a second tier some of the blocks may be its, which are not to be read before qr_kv_bring.
 * With twins (kv_twin.h) blocks is such a table, with references on those of the last n_kept blocks found. */
int32_t qr_kv_prefix_find(struct qr_kv_pool *p, int32_t *blocks, int32_t n_max, const int32_t *tokens, int32_t n_tokens,
                          struct qr_hash128 salt, struct qr_hash128 *hashes, int32_t *n_hashed);

/* Adds to the statistics. Apart from the look-up, which admission repeats while it waits for room. */
void qr_kv_prefix_count(struct qr_kv_pool *p, int32_t n_query, int32_t n_hit);

/* Enters an owned, full block of computed tokens[0..block_tokens). `parent` is the block before it in the same sequence (found
 * or entered before), or -1 for a first block, whose chain starts from salt. If an equal entry exists already, the caller
 * keeps its private copy, and the copy may still be a parent. Returns true when entered. */
bool qr_kv_prefix_enter(struct qr_kv_pool *p, int32_t block, int32_t parent, struct qr_hash128 salt, const int32_t *tokens);

/* The tokens of the index entry that this block is, or NULL when it is none. For checks. */
const int32_t *qr_kv_prefix_tokens(const struct qr_kv_pool *p, int32_t block);

/* Drops every index entry; cached blocks become free. Pins keep their blocks, which nothing finds any more. */
void qr_kv_prefix_clear(struct qr_kv_pool *p);

#endif
