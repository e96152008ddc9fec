#include "kvcache/kv_prefix.h"

#include <string.h>

#include "base/assert.h"
#include "kvcache/kv_internal.h"

/* Blocks looked at together: enough misses in flight to hide memory, few enough hashes wasted behind the first miss. */
#define GROUP 8

struct qr_hash128 qr_kv_chain(const struct qr_kv_pool *p, struct qr_hash128 parent, const int32_t *tokens)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(tokens != NULL);
    struct {
        struct qr_hash128 parent;
        int32_t tokens[QR_KV_BLOCK_TOKENS_MAX];
    } text;
    size_t n_bytes = (size_t)p->block_tokens * sizeof *tokens;
    text.parent = parent;
    memcpy(text.tokens, tokens, n_bytes);
    struct qr_hash128 h = qr_hash128_keyed(&text, sizeof parent + n_bytes, &p->secret);
    h.lo &= p->hash_keep;
    h.hi &= p->hash_keep;
    return h;
}

typedef uint64_t lanes __attribute__((vector_size(16)));

static inline lanes differ(const int32_t *a, const int32_t *b)
{
    lanes x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x ^ y;
}

static inline bool equal_tokens(const int32_t *a, const int32_t *b, int32_t n)
{
    if (n != 16)
        return memcmp(a, b, (size_t)n * sizeof *a) == 0;
    /* The usual size: no call, no loop. */
    lanes diff = differ(a, b) | differ(a + 4, b + 4) | differ(a + 8, b + 8) | differ(a + 12, b + 12);
    return (diff[0] | diff[1]) == 0;
}

static const int32_t *tokens_of(const struct qr_kv_pool *p, int32_t b)
{
    return p->tokens + (size_t)b * (size_t)p->block_tokens;
}

/* Is block b the entry (parent entry, tokens)? Exact: for a first block the salt itself is compared. */
static bool is_entry(const struct qr_kv_pool *p, int32_t b, uint64_t parent_uid, struct qr_hash128 salt,
                     const int32_t *tokens)
{
    const struct qr_kv_block *x = &p->block[b];
    if (x->parent_uid != parent_uid || !equal_tokens(tokens_of(p, b), tokens, p->block_tokens))
        return false;
    return parent_uid != 0 || (x->parent.lo == salt.lo && x->parent.hi == salt.hi);
}

/* The block that is the entry (parent entry, tokens), or -1. */
static int32_t find_entry(const struct qr_kv_pool *p, struct qr_hash128 hash, uint64_t parent_uid,
                          struct qr_hash128 salt, const int32_t *tokens)
{
    uint32_t tag = (uint32_t)hash.lo;
    for (uint32_t i = tag & p->slot_mask; p->slot[i].block >= 0; i = (i + 1) & p->slot_mask) {
        if (p->slot[i].tag == tag && is_entry(p, p->slot[i].block, parent_uid, salt, tokens))
            return p->slot[i].block;
    }
    return -1;
}

/* The first block in the table with this tag: nearly always the right one. It is not believed yet. */
static int32_t guess_entry(const struct qr_kv_pool *p, uint32_t tag)
{
    uint32_t i = tag & p->slot_mask;
    while (p->slot[i].block >= 0 && p->slot[i].tag != tag)
        i = (i + 1) & p->slot_mask;
    return p->slot[i].block;
}

static void hash_up_to(const struct qr_kv_pool *p, int32_t n, const int32_t *tokens, struct qr_hash128 salt,
                       struct qr_hash128 *hashes, int32_t *n_hashed)
{
    for (int32_t i = *n_hashed; i < n; i++)
        hashes[i] = qr_kv_chain(p, i == 0 ? salt : hashes[i - 1], tokens + (size_t)i * (size_t)p->block_tokens);
    *n_hashed = *n_hashed > n ? *n_hashed : n;
}

/* One look-up. Guessing and prefetching run a group ahead of believing. Blocks of one sequence were released together, so
 * they stand side by side on the cached list, and are taken off it as one run. */
struct look_up {
    const int32_t *tokens;
    const struct qr_hash128 *hashes;
    struct qr_hash128 salt;
    uint64_t uid;                /* the entry of the last block believed; 0 before the first */
    int32_t run_newest, run_oldest; /* ends of the run of cached blocks believed and still listed; -1: none */
    int32_t n_run;
};

static void prefetch_slots(const struct qr_kv_pool *p, const struct look_up *u, int32_t from, int32_t to)
{
    for (int32_t i = from; i < to; i++)
        __builtin_prefetch(&p->slot[(uint32_t)u->hashes[i].lo & p->slot_mask]);
}

static void guess(const struct qr_kv_pool *p, const struct look_up *u, int32_t *blocks, int32_t from, int32_t to)
{
    for (int32_t i = from; i < to; i++) {
        int32_t b = blocks[i] = guess_entry(p, (uint32_t)u->hashes[i].lo);
        __builtin_prefetch(&p->block[b < 0 ? 0 : b], 1);
        __builtin_prefetch(tokens_of(p, b < 0 ? 0 : b));
    }
}

static void take_run(struct qr_kv_pool *p, struct look_up *u)
{
    if (u->n_run == 0)
        return;
    int32_t next = p->block[u->run_newest].next, prev = p->block[u->run_oldest].prev;
    p->block[prev].next = next;
    p->block[next].prev = prev;
    p->n_cached -= u->n_run;
    u->n_run = 0;
    u->run_oldest = -1;
}

/* Verifies the guesses, or searches where one is wrong, and takes a reference on each. Returns the first position without an
 * entry, or `to`. */
static int32_t believe(struct qr_kv_pool *p, struct look_up *u, int32_t *blocks, int32_t from, int32_t to)
{
    for (int32_t i = from; i < to; i++) {
        const int32_t *want = u->tokens + (size_t)i * (size_t)p->block_tokens;
        int32_t b = blocks[i];
        if (b >= 0 && !is_entry(p, b, u->uid, u->salt, want))
            b = blocks[i] = find_entry(p, u->hashes[i], u->uid, u->salt, want);
        if (b < 0)
            return i;
        struct qr_kv_block *x = &p->block[b];
        u->uid = x->uid;
        if (x->refs++ > 0)
            continue;
        if (x->next != u->run_oldest) {
            take_run(p, u);
            u->run_newest = b;
        }
        u->run_oldest = b;
        u->n_run++;
    }
    return to;
}

static int32_t min_i32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

int32_t qr_kv_prefix_find(struct qr_kv_pool *p, int32_t *blocks, int32_t n_max, const int32_t *tokens, int32_t n_tokens,
                          struct qr_hash128 salt, struct qr_hash128 *hashes, int32_t *n_hashed)
{
    QR_ASSERT(p != NULL && blocks != NULL && tokens != NULL);
    QR_ASSERT(hashes != NULL && n_hashed != NULL && *n_hashed >= 0);
    QR_ASSERT(n_max >= 0 && n_tokens >= 0);
    int32_t n = p->prefix_cache ? min_i32(n_tokens / p->block_tokens, n_max) : 0;
    struct look_up u = {.tokens = tokens, .hashes = hashes, .salt = salt, .run_newest = -1, .run_oldest = -1};
    int32_t n_found = 0, n_guessed = 0, n_fetched = 0;
    while (n_found < n) {
        /* The first group goes alone: nothing is hashed in vain behind a first block that nobody has. */
        int32_t ahead = min_i32(n_found + (n_found == 0 ? 1 : 2) * GROUP, n);
        hash_up_to(p, ahead, tokens, salt, hashes, n_hashed);
        guess(p, &u, blocks, n_guessed, ahead);
        n_guessed = ahead;
        int32_t far = min_i32(ahead + GROUP, min_i32(*n_hashed, n));
        prefetch_slots(p, &u, n_fetched > ahead ? n_fetched : ahead, far);
        n_fetched = far;
        int32_t to = min_i32(n_found + GROUP, ahead);
        n_found = believe(p, &u, blocks, n_found, to);
        if (n_found < to)
            break;
    }
    take_run(p, &u);
    return n_found;
}

void qr_kv_prefix_count(struct qr_kv_pool *p, int32_t n_query, int32_t n_hit)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(n_hit >= 0 && n_hit <= n_query);
    p->query_tokens += n_query;
    p->hit_tokens += n_hit;
}

bool qr_kv_prefix_enter(struct qr_kv_pool *p, int32_t block, int32_t parent, struct qr_hash128 salt, const int32_t *tokens)
{
    QR_ASSERT(p != NULL && tokens != NULL);
    QR_ASSERT(block >= 0 && block < p->n_blocks && p->block[block].refs > 0);
    QR_ASSERT(parent >= -1 && parent < p->n_blocks && parent != block);
    struct qr_kv_block *x = &p->block[block];
    uint64_t parent_uid = parent >= 0 ? p->block[parent].uid : 0;
    if (!p->prefix_cache || x->indexed || (parent >= 0 && parent_uid == 0))
        return false;
    x->parent = parent >= 0 ? p->block[parent].hash : salt;
    x->parent_uid = parent_uid;
    x->hash = qr_kv_chain(p, x->parent, tokens);
    int32_t same = find_entry(p, x->hash, parent_uid, salt, tokens);
    if (same >= 0) {
        x->uid = p->block[same].uid;
        return false;
    }
    uint32_t tag = (uint32_t)x->hash.lo, i = tag & p->slot_mask;
    while (p->slot[i].block >= 0)
        i = (i + 1) & p->slot_mask;
    p->slot[i] = (struct qr_kv_slot){.tag = tag, .block = block};
    memcpy(p->tokens + (size_t)block * (size_t)p->block_tokens, tokens, (size_t)p->block_tokens * sizeof *tokens);
    x->uid = ++p->uid_last;
    x->indexed = true;
    return true;
}

const int32_t *qr_kv_prefix_tokens(const struct qr_kv_pool *p, int32_t block)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(block >= 0 && block < p->n_blocks);
    return p->block[block].indexed ? tokens_of(p, block) : NULL;
}

static uint32_t slot_of(const struct qr_kv_pool *p, int32_t block)
{
    uint32_t i = (uint32_t)p->block[block].hash.lo & p->slot_mask;
    while (p->slot[i].block >= 0 && p->slot[i].block != block)
        i = (i + 1) & p->slot_mask;
    return i;
}

void qr_kv_index_drop(struct qr_kv_pool *p, int32_t block)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(block >= 0 && block < p->n_blocks && p->block[block].indexed);
    uint32_t hole = slot_of(p, block);
    QR_ASSERT(p->slot[hole].block == block);
    for (uint32_t i = (hole + 1) & p->slot_mask; p->slot[i].block >= 0; i = (i + 1) & p->slot_mask) {
        uint32_t home = p->slot[i].tag & p->slot_mask;
        if (((i - home) & p->slot_mask) >= ((i - hole) & p->slot_mask)) { /* its home is not behind the hole: it may move */
            p->slot[hole] = p->slot[i];
            hole = i;
        }
    }
    p->slot[hole].block = -1;
    p->block[block].indexed = false;
    p->block[block].uid = 0;
}

void qr_kv_prefix_clear(struct qr_kv_pool *p)
{
    QR_ASSERT(p != NULL);
    while (p->n_cached > 0) {
        int32_t b = p->block[qr_kv_cached_head(p)].next;
        qr_kv_unlink(p, b);
        p->n_cached--;
        qr_kv_index_drop(p, b);
        qr_kv_link_before(p, qr_kv_free_head(p), b);
        p->n_free++;
    }
    for (int32_t b = 0; b < p->n_blocks; b++) {
        if (p->block[b].indexed)
            qr_kv_index_drop(p, b);
        p->block[b].uid = 0; /* private copies of entries that are gone */
    }
}

const char *qr_kv_index_check(const struct qr_kv_pool *p)
{
    QR_ASSERT(p != NULL);
    int32_t n_indexed = 0, n_slots = 0;
    for (uint32_t i = 0; i <= p->slot_mask; i++)
        n_slots += p->slot[i].block >= 0;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const struct qr_kv_block *x = &p->block[b];
        if (!x->indexed)
            continue;
        n_indexed++;
        if (x->uid == 0 || x->uid > p->uid_last || x->parent_uid >= x->uid)
            return "an index entry is not younger than its parent";
        struct qr_hash128 h = qr_kv_chain(p, x->parent, tokens_of(p, b));
        if (h.lo != x->hash.lo || h.hi != x->hash.hi)
            return "an index entry's hash is not the hash of its tokens";
        uint32_t i = slot_of(p, b);
        if (p->slot[i].block != b || p->slot[i].tag != (uint32_t)x->hash.lo)
            return "an index entry is not where its hash says";
        if (find_entry(p, x->hash, x->parent_uid, x->parent, tokens_of(p, b)) != b)
            return "a content is in the index twice";
    }
    return n_slots == n_indexed ? NULL : "the table holds other blocks than those that are indexed";
}
