/* kv_internal.h - the pool's inside, shared by kv_pool.c and kv_prefix.c (and by tests that force hash collisions).
 *
 * An index entry is identified by a serial number, `uid`, and names its parent by the parent's uid. So equality is exact by
 * induction: same salt, or same parent entry, and the same tokens. The hash only says where to look; two prefixes whose
 * hashes collide are told apart always, not just probably.
 *
 * One 64-byte line per block for everything a look-up touches besides the tokens, one open-addressing table of 8-byte slots
 * (linear probing, deletion by shifting back, so there are no tombstones to collect), two circular lists with sentinels.
 */
#ifndef QR_KVCACHE_KV_INTERNAL_H
#define QR_KVCACHE_KV_INTERNAL_H

#include "base/assert.h"
#include "kvcache/kv_pool.h"

#define QR_KV_BLOCK_TOKENS_MAX 256

struct qr_kv_block {
    struct qr_hash128 hash;   /* chain hash of the content; meaningful while uid != 0 */
    struct qr_hash128 parent; /* what that hash was chained from: the parent's hash, or the salt when parent_uid is 0 */
    uint64_t uid;             /* the index entry this content equals; 0: never entered, or forgotten */
    uint64_t parent_uid;      /* the entry of the block before; 0: this is a first block */
    int32_t refs;
    int32_t prev, next;       /* while refs is 0: neighbours on the free or the cached list */
    bool indexed;             /* this very block is the entry `uid` (false for a private copy of it) */
};

struct qr_kv_slot {
    uint32_t tag;  /* low half of hash.lo; its low bits are the home slot */
    int32_t block; /* -1: empty */
};

struct qr_kv_pool {
    int32_t n_blocks, block_tokens;
    bool prefix_cache;
    uint32_t slot_mask;         /* slots - 1; slots >= 4 * n_blocks */
    uint64_t hash_keep;         /* all ones; tests clear bits of it to force collisions */
    uint64_t uid_last;
    int32_t n_free, n_cached;
    int64_t n_evicted, query_tokens, hit_tokens;
    struct qr_kv_block *block;  /* owned [n_blocks + 2]; the last two are the sentinels of the lists */
    struct qr_kv_slot *slot;    /* owned [slot_mask + 1] */
    int32_t *tokens;            /* owned [n_blocks * block_tokens]; written for indexed blocks */
    struct qr_hash_secret secret;
};

static inline int32_t qr_kv_free_head(const struct qr_kv_pool *p)
{
    return p->n_blocks;
}

static inline int32_t qr_kv_cached_head(const struct qr_kv_pool *p)
{
    return p->n_blocks + 1;
}

/* Puts block b in front of `at`; with `at` a sentinel that is the end of its list. */
static inline void qr_kv_link_before(struct qr_kv_pool *p, int32_t at, int32_t b)
{
    struct qr_kv_block *x = &p->block[b];
    x->next = at;
    x->prev = p->block[at].prev;
    p->block[x->prev].next = b;
    p->block[at].prev = b;
}

static inline void qr_kv_unlink(struct qr_kv_pool *p, int32_t b)
{
    struct qr_kv_block *x = &p->block[b];
    p->block[x->prev].next = x->next;
    p->block[x->next].prev = x->prev;
}

/* Takes an indexed block out of the table and makes its content unknown. It stays on whatever list it is on. */
void qr_kv_index_drop(struct qr_kv_pool *p, int32_t block);

/* NULL, or what is wrong with the index. Part of qr_kv_pool_check. */
const char *qr_kv_index_check(const struct qr_kv_pool *p);

#endif
