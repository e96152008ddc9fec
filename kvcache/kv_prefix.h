/* kv_prefix.h - finding blocks by content: a chained hash per full block, and token comparison on every hit.
 *
 * The chain starts from a salt (per API key, narrowed by cache_salt), so one tenant never finds another's blocks. Only
 * full blocks of computed tokens are entered. A hit is believed only after the block's own tokens and its parent entry
 * compare equal. No allocation after the pool was made.
 */
#ifndef QR_KVCACHE_KV_PREFIX_H
#define QR_KVCACHE_KV_PREFIX_H

#include "kvcache/kv_pool.h"

/* The hash of block i of a sequence, given the hash of block i-1 (or the salt for i = 0) and its block_tokens tokens. */
struct qr_hash128 qr_kv_chain(const struct qr_kv_pool *p, struct qr_hash128 parent, const int32_t *tokens);

/* Finds the longest run of cached blocks for tokens[0..n_tokens), at most n_max blocks; takes a reference on each and writes their
 * ids to blocks[] and the chain hashes of all n_tokens / block_tokens full blocks looked at to hashes[] (hash of block i).
 * Returns the number found. hashes[] may already hold *n_hashed valid entries from an earlier call (re-admission): they are
 * not recomputed. */
int32_t qr_kv_prefix_find(struct qr_kv_pool *p, int32_t *blocks, int32_t n_max, const int32_t *tokens, int32_t n_tokens,
                          struct qr_hash128 salt, struct qr_hash128 *hashes, int32_t *n_hashed);

/* Enters an owned, full block under its chain hash. If an equal entry exists already, nothing changes (the caller keeps its
 * private copy). Returns true when entered. */
bool qr_kv_prefix_enter(struct qr_kv_pool *p, int32_t block, struct qr_hash128 parent, struct qr_hash128 hash, const int32_t *tokens);

/* Drops every index entry; cached blocks become free. */
void qr_kv_prefix_clear(struct qr_kv_pool *p);

#endif
