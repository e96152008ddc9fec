/* kv_internal.h - the pool's inside, shared by kv_pool.c and kv_prefix.c (and by tests that force hash collisions).
 *
 * An index entry is identified by a serial number, `uid`, and names its parent by the parent's uid. So equality is exact by
 * induction: same salt, or same parent entry, and the same tokens. The hash only says where to look; two prefixes whose
 * hashes collide are told apart always, not just probably.
 *
 * A block's record has its tokens right behind it. One open-addressing table of 8-byte slots leads from hashes to blocks (linear
 * probing, deletion by shifting back, so there are no tombstones to collect). Free and cached blocks are circular lists with sentinels.
 *
 * Blocks of the second tier are records behind those of the first and have ids from n_blocks on. An entry is one block's, of either
 * tier. When it changes the tier, record, tokens and place in the table go to the other block, and it keeps its uid.
 */
#ifndef QR_KVCACHE_KV_INTERNAL_H
#define QR_KVCACHE_KV_INTERNAL_H

#include "base/assert.h"
#include "kvcache/kv_name.h"
#include "kvcache/kv_pin.h"
#include "kvcache/kv_pool.h"
#include "kvcache/kv_twin.h"

#define QR_KV_BLOCK_TOKENS_MAX 256

struct qr_kv_block {
    uint64_t uid;             /* the index entry this content equals; 0: never entered, or forgotten */
    uint64_t parent_uid;      /* the entry of the block before; 0: this is a first block */
    int32_t refs;
    int32_t prev, next;       /* while refs is 0: neighbours on the free or the cached list */
    bool indexed;             /* this very block is the entry `uid` (false for a private copy of it) */
    struct qr_hash128 hash;   /* chain hash of the content; this and the next have a meaning while uid is not 0 */
    struct qr_hash128 parent; /* what that hash was chained from: the parent's hash, or the salt when parent_uid is 0 */
};

struct qr_kv_slot {
    uint32_t tag;  /* low half of hash.lo; its low bits are the home slot */
    int32_t block; /* -1: empty */
};

/* Lists of blocks, one pin's behind another's; a pin without a block is free. */
struct qr_kv_pins {
    int32_t n_blocks, n_blocks_max; /* different blocks that pins hold */
    int32_t n_listed, n_listed_max;
    uint8_t *n_of;                  /* owned [n_blocks of the pool]: pins that hold each */
    int32_t *listed;                /* owned [n_listed_max] */
    int32_t first[QR_KV_PINS_MAX], n[QR_KV_PINS_MAX];
};

/* Names of full blocks, the table that leads from a name to the entry, and the ring of notes. */
struct qr_kv_names {
    struct qr_kv_name *of;      /* owned [n_all]: of each full block that was entered, or is a private copy of an entry */
    int32_t *about;             /* owned [n_all]: the caller's, of each */
    int32_t *slot;              /* owned [slot_mask + 1]: blocks that are entries, -1: empty; probed and deleted as the pool's table */
    uint32_t slot_mask;
    char *note;                 /* owned [n_notes][note_bytes]: a qr_kv_note and its ids */
    size_t note_bytes;
    int32_t n_notes;
    uint64_t written, read;     /* notes ever */
    bool lost;                  /* since the last note that was taken */
    int64_t n_lost;
};

struct qr_kv_pool {
    int32_t n_blocks, block_tokens;
    int32_t n_host;             /* blocks of the second tier: ids n_blocks .. n_blocks + n_host - 1 */
    bool prefix_cache;
    uint32_t slot_mask;         /* slots - 1; slots >= 4 * blocks of both tiers */
    uint64_t hash_keep;         /* all ones; tests clear bits of it to force collisions */
    uint64_t uid_last;
    int32_t n_free, n_cached, n_ever_used, n_host_free, n_host_cached;
    int64_t n_evicted, n_out, n_in, query_tokens, hit_tokens;
    char *record;               /* owned [n_blocks + n_host + 4][record_bytes]: a qr_kv_block and its tokens; the last four head the lists */
    size_t record_bytes;
    uint8_t *use;               /* owned [n_blocks]: enum qr_kv_use of each, so that a look at all of them is cheap */
    uint32_t *owner;            /* owned [n_blocks + n_host]: of its content (qr_kv_owner); it has a meaning while the block is not free */
    int32_t n_shared;           /* blocks of the first tier with several owners */
    struct qr_kv_move *move;    /* owned [2 * n_blocks], with a second tier */
    int32_t n_moves;
    struct qr_kv_slot *slot;    /* owned [slot_mask + 1] */
    struct qr_kv_pins *pins;    /* owned; NULL: there are none */
    struct qr_kv_names *names;  /* owned; NULL: blocks have none */
    struct qr_kv_twins twins;
    struct qr_hash_secret secret;
};

static inline struct qr_kv_block *qr_kv_at(const struct qr_kv_pool *p, int32_t b)
{
    return (struct qr_kv_block *)(p->record + (size_t)b * p->record_bytes);
}

/* Slots of a table for so many entries: 1.2 probes a hit at most, on average. */
static inline uint32_t qr_kv_slots_for(int32_t n_all)
{
    uint32_t n = 16;
    while (n < 4 * (uint32_t)n_all)
        n *= 2;
    return n;
}

static inline int32_t qr_kv_n_all(const struct qr_kv_pool *p)
{
    return p->n_blocks + p->n_host;
}

/* Heads of the lists of block b's tier. */
static inline int32_t qr_kv_free_head(const struct qr_kv_pool *p, int32_t b)
{
    return qr_kv_n_all(p) + (b < p->n_blocks ? 0 : 2);
}

static inline int32_t qr_kv_cached_head(const struct qr_kv_pool *p, int32_t b)
{
    return qr_kv_free_head(p, b) + 1;
}

static inline int32_t *qr_kv_n_free(struct qr_kv_pool *p, int32_t b)
{
    return b < p->n_blocks ? &p->n_free : &p->n_host_free;
}

static inline int32_t *qr_kv_n_cached(struct qr_kv_pool *p, int32_t b)
{
    return b < p->n_blocks ? &p->n_cached : &p->n_host_cached;
}

/* Puts block b in front of `at`; with `at` a sentinel that is the end of its list. */
static inline void qr_kv_link_before(struct qr_kv_pool *p, int32_t at, int32_t b)
{
    struct qr_kv_block *x = qr_kv_at(p, b);
    x->next = at;
    x->prev = qr_kv_at(p, at)->prev;
    qr_kv_at(p, x->prev)->next = b;
    qr_kv_at(p, at)->prev = b;
}

static inline void qr_kv_unlink(struct qr_kv_pool *p, int32_t b)
{
    struct qr_kv_block *x = qr_kv_at(p, b);
    qr_kv_at(p, x->prev)->next = x->next;
    qr_kv_at(p, x->next)->prev = x->prev;
}

static inline enum qr_kv_use qr_kv_use_of(const struct qr_kv_block *x)
{
    return x->refs > 1 ? QR_KV_SHARED : x->refs == 1 ? QR_KV_USED : x->indexed ? QR_KV_CACHED : QR_KV_FREE;
}

/* Behind every change of a block's references, or of what an unreferenced one holds. */
static inline void qr_kv_note_use(struct qr_kv_pool *p, int32_t b)
{
    if (b >= p->n_blocks)
        return;
    const enum qr_kv_use use = qr_kv_use_of(qr_kv_at(p, b));
    p->n_shared += (use == QR_KV_SHARED) - (p->use[b] == QR_KV_SHARED);
    p->use[b] = (uint8_t)use;
}

/* One more owner of a block of either tier, which is owned or cached. */
static inline void qr_kv_hold(struct qr_kv_pool *p, int32_t b)
{
    struct qr_kv_block *x = qr_kv_at(p, b);
    if (x->refs++ == 0) {
        QR_ASSERT(x->indexed); /* a free block is not anybody's to share */
        qr_kv_unlink(p, b);
        --*qr_kv_n_cached(p, b);
    }
    qr_kv_note_use(p, b);
}

/* The block of either tier that is the entry (parent entry, tokens), or -1; salt: of a first block. */
int32_t qr_kv_index_find(const struct qr_kv_pool *p, struct qr_hash128 hash, uint64_t parent_uid, struct qr_hash128 salt, const int32_t *tokens);

/* Takes an indexed block out of the table and makes its content unknown. It stays on whatever list it is on. */
void qr_kv_index_drop(struct qr_kv_pool *p, int32_t block);

/* The entry that is block `from` becomes block `to`, which was none. Lists and references are the caller's. */
void qr_kv_index_move(struct qr_kv_pool *p, int32_t from, int32_t to);

/* A block whose content is known elsewhere, or was given up, and that has no holder: from its list to the free ones. */
void qr_kv_uncache(struct qr_kv_pool *p, int32_t block);

/* kv_name.c: an entry is dropped, goes from block to block, or all are dropped. Without names they do nothing. */
void qr_kv_name_drop(struct qr_kv_pool *p, int32_t block);
void qr_kv_name_move(struct qr_kv_pool *p, int32_t from, int32_t to);
void qr_kv_name_clear(struct qr_kv_pool *p);
void qr_kv_names_close(struct qr_kv_names *names); /* NULL is fine */
const char *qr_kv_names_check(const struct qr_kv_pool *p);

/* kv_twin.c: the ids of a block's twin k, into that room. And of n blocks that were found, how many are a hit: it lets go of the rest, takes a reference on
 * twins that are read, and where those are that are not writes the first one's number. */
const int32_t *qr_kv_twin_ids(int32_t ids[QR_KV_BLOCK_TOKENS_MAX], int32_t k);
int32_t qr_kv_twins_find(struct qr_kv_pool *p, int32_t *blocks, int32_t n);

/* NULL, or what is wrong with the index. Part of qr_kv_pool_check. */
const char *qr_kv_index_check(const struct qr_kv_pool *p);

/* kv_pin.c: the same of pins. */
void qr_kv_pins_close(struct qr_kv_pins *pins); /* NULL is fine */
const char *qr_kv_pins_check(const struct qr_kv_pool *p);

#endif
