/* kv_pool.h - which cache block is whose. Bookkeeping only: never touches a key or a value. One owning thread.
 *
 * A fixed pool of blocks of `block_tokens` tokens. A block is owned (refcount >= 1), cached (refcount 0, its content still
 * findable by the prefix index) or free (refcount 0, content unknown). free + cached + owned = total, always.
 * Allocation takes a free block first and then the least recently released cached one, whose index entry is dropped.
 *
 * There may be a second tier, blocks of slower memory that nothing is computed in. Then the content of a cached block
 * that is to be given out goes there, in place of the one that was released least recently of both tiers, and stays
 * findable. The finder of such a block (qr_kv_prefix_find) holds it until qr_kv_bring makes it one of the first tier,
 * or lets go of it. What has to be copied for that is a list, which the owner of the memory works off in its order
 * before anything is written to blocks given out since. */
#ifndef QR_KVCACHE_KV_POOL_H
#define QR_KVCACHE_KV_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

struct qr_kv_pool; /* opaque */

struct qr_kv_stats {
    int32_t n_blocks, n_free, n_cached, n_owned;
    int32_t n_shared;                     /* of those that are owned: by several */
    int32_t n_host, n_host_cached;        /* blocks of the second tier, and those with content */
    int32_t n_pinned, n_pinned_max;       /* of those that are owned: by pins (kv_pin.h), and how many may be */
    int64_t n_evicted;                    /* cached blocks whose content was given up, ever */
    int64_t n_out, n_in;                  /* blocks that went to the second tier and came back, ever */
    int64_t query_tokens, hit_tokens;     /* as told to qr_kv_prefix_count: tokens looked up, tokens found */
};

/* n_blocks >= 1, block_tokens a power of two <= 256. prefix_cache false: blocks are never kept. `secret` keys the chained hashes. */
struct qr_kv_pool *qr_kv_pool_new(int32_t n_blocks, int32_t block_tokens, bool prefix_cache, const struct qr_hash_secret *secret);

/* The same with n_host >= 0 blocks of a second tier, which need the prefix cache. Their ids follow the others'. */
struct qr_kv_pool *qr_kv_pool_new_tiers(int32_t n_blocks, int32_t n_host, int32_t block_tokens, bool prefix_cache, const struct qr_hash_secret *secret);

/* Bytes that such a pool takes. */
size_t qr_kv_pool_bytes(int32_t n_blocks, int32_t n_host, int32_t block_tokens, bool prefix_cache);
void qr_kv_pool_free(struct qr_kv_pool *p);

int32_t qr_kv_pool_block_tokens(const struct qr_kv_pool *p);
int32_t qr_kv_pool_available(const struct qr_kv_pool *p); /* blocks an allocation could take: free + cached */
void qr_kv_pool_stats(const struct qr_kv_pool *p, struct qr_kv_stats *out);

/* Only blocks 0 .. n-1 have been given out so far: how much of the cache's memory was ever touched. */
int32_t qr_kv_pool_ever_used(const struct qr_kv_pool *p);

int32_t qr_kv_alloc(struct qr_kv_pool *p);              /* a block with refcount 1, or -1 when none is available */
void qr_kv_ref(struct qr_kv_pool *p, int32_t block);    /* one more owner; a cached block becomes owned again */
void qr_kv_unref(struct qr_kv_pool *p, int32_t block);  /* one owner less; at zero: cached when indexed, free otherwise */
int32_t qr_kv_refs(const struct qr_kv_pool *p, int32_t block);

/* ---- for onlookers ---- */

enum qr_kv_use { QR_KV_FREE, QR_KV_CACHED, QR_KV_USED, QR_KV_SHARED }; /* SHARED: it has several owners. In order of importance */

/* What each block of the first tier is [n_blocks], as enum qr_kv_use. */
const uint8_t *qr_kv_uses(const struct qr_kv_pool *p);

/* Whose content a salt's blocks are: a digest under the pool's secret, from which the salt cannot be known. Blocks are told theirs when they are given out, and
 * keep it while they are cached; it moves with the content. qr_kv_owners has them all; a free block's says nothing. */
uint32_t qr_kv_owner(const struct qr_kv_pool *p, struct qr_hash128 salt);
void qr_kv_set_owner(struct qr_kv_pool *p, int32_t block, uint32_t owner);
const uint32_t *qr_kv_owners(const struct qr_kv_pool *p);

/* ---- the second tier ---- */

/* Block `from` is to be copied to block `to`. Of the two the one with an id of at least n_blocks is of the second tier. */
struct qr_kv_move {
    int32_t from, to;
};

bool qr_kv_is_host(const struct qr_kv_pool *p, int32_t block);

/* A block of the first tier with refcount 1 takes the place of `host`, which the caller alone holds. Some are available. */
int32_t qr_kv_bring(struct qr_kv_pool *p, int32_t host);

/* What is to be copied, in this order; and that it was. No more than n_blocks blocks can be given out in between. */
const struct qr_kv_move *qr_kv_moves(const struct qr_kv_pool *p, int32_t *n);
void qr_kv_moved(struct qr_kv_pool *p);

/* Full consistency check, O(n_blocks): returns NULL or a sentence that says what is broken. For tests and debug builds. */
const char *qr_kv_pool_check(const struct qr_kv_pool *p);

#endif
