/* kv_prefix.c - the index of cached blocks by content. A block's key is a hash chained from its parent's, so a look-up
 * walks a prompt block by block. A hit counts only when the block's tokens and its parent compare equal: a collision of
 * hashes costs time, never a wrong answer. The engine thread owns it; nothing is allocated after opening. */
#include "kvcache/kv_prefix.h"

#include <string.h>

#include "base/assert.h"
#include "kvcache/kv_internal.h"

/* A look-up goes by groups: enough misses in flight to hide memory, few enough hashes wasted behind the first miss. */
#define GROUP QR_KV_GROUP

/* How many blocks ahead of believing the earlier stages run, where the hashes are known. */
enum { MEMBERS_AHEAD = 2 * GROUP, HEADS_AHEAD = 4 * GROUP, SLOTS_AHEAD = 8 * GROUP };

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

static int32_t min_i32(int32_t a, int32_t b)
{
    return a < b ? a : b;
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

static int32_t *tokens_of(const struct qr_kv_pool *p, int32_t b)
{
    return (int32_t *)(qr_kv_at(p, b) + 1);
}

/* Is block b the entry (parent entry, tokens)? Exact: for a first block the salt itself is compared. Any block may be asked about:
 * one that left the index still holds the tokens and the parent that it had there. */
static inline __attribute__((always_inline)) bool is_entry(const struct qr_kv_pool *p, int32_t b, uint64_t parent_uid, struct qr_hash128 salt,
                     const int32_t *tokens)
{
    const struct qr_kv_block *x = qr_kv_at(p, b);
    if (!x->indexed || x->parent_uid != parent_uid || !equal_tokens(tokens_of(p, b), tokens, p->block_tokens))
        return false;
    return parent_uid != 0 || (p->origin[b].parent.lo == salt.lo && p->origin[b].parent.hi == salt.hi);
}

/* The block that is the entry (parent entry, tokens), or -1. */
static __attribute__((noinline)) int32_t find_entry(const struct qr_kv_pool *p, struct qr_hash128 hash, uint64_t parent_uid,
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

/* One look-up, a pipeline of four stages over the groups of the prompt: the slots of the heads are fetched, the heads are
 * guessed and fetched, the members they remember are guessed and fetched, and at last every block is verified. Blocks of one
 * sequence were released together, so they stand side by side on the cached list, and are taken off it as one run. */
struct look_up {
    const int32_t *tokens;
    const struct qr_hash128 *hashes;
    struct qr_hash128 salt;
    int32_t n_slots, n_heads, n_members; /* positions before which the stage is done; multiples of GROUP */
    uint64_t uid;                /* the entry of the last block believed; 0 before the first */
    int32_t run_newest, run_oldest; /* ends of the run of cached blocks believed and still listed; -1: none */
    int32_t n_run;
};

static void fetch_block(const struct qr_kv_pool *p, int32_t b)
{
    const struct qr_kv_block *x = qr_kv_at(p, b);
    __builtin_prefetch(x, 1);
    __builtin_prefetch(x + 1); /* its tokens, or the first sixteen of them */
}

/* The blocks behind the head at `at`, up to position n, as far as they are of its group. A group without a head is left to the
 * search. */
static void guess_members(const struct qr_kv_pool *p, int32_t *blocks, int32_t at, int32_t n)
{
    int32_t head = blocks[at], n_members = min_i32(GROUP, n - at) - 1, *guess = blocks + at + 1;
    if (head < 0) {
        for (int32_t i = 0; i < n_members; i++)
            guess[i] = -1;
        return;
    }
    memcpy(guess, qr_kv_at(p, head)->member, (size_t)n_members * sizeof *guess);
    for (int32_t i = 0; i < n_members; i++)
        fetch_block(p, guess[i]);
}

/* Runs the stages before believing. Believed are the blocks before position n_found, known the hashes before n_hashed. */
static void look_ahead(const struct qr_kv_pool *p, struct look_up *u, int32_t *blocks, int32_t n_found, int32_t n_hashed, int32_t n)
{
    for (int32_t end = min_i32(n_hashed, n_found + SLOTS_AHEAD); u->n_slots < end; u->n_slots += GROUP)
        __builtin_prefetch(&p->slot[(uint32_t)u->hashes[u->n_slots].lo & p->slot_mask]);
    for (int32_t end = min_i32(n_hashed, n_found + HEADS_AHEAD); u->n_heads < end; u->n_heads += GROUP) {
        int32_t head = blocks[u->n_heads] = guess_entry(p, (uint32_t)u->hashes[u->n_heads].lo);
        if (head >= 0)
            fetch_block(p, head);
    }
    for (int32_t end = min_i32(n_hashed, n_found + MEMBERS_AHEAD); u->n_members < end; u->n_members += GROUP)
        guess_members(p, blocks, u->n_members, n);
}

static void take_run(struct qr_kv_pool *p, struct look_up *u)
{
    if (u->n_run == 0)
        return;
    int32_t next = qr_kv_at(p, u->run_newest)->next, prev = qr_kv_at(p, u->run_oldest)->prev;
    qr_kv_at(p, prev)->next = next;
    qr_kv_at(p, next)->prev = prev;
    *qr_kv_n_cached(p, u->run_newest) -= u->n_run; /* neighbours are of one tier */
    u->n_run = 0;
    u->run_oldest = -1;
}

/* Verifies the guesses, or searches where one is wrong, and takes a reference on each. Returns the first position without an
 * entry, or `to`. */
static int32_t believe(struct qr_kv_pool *p, struct look_up *u, int32_t *blocks, int32_t from, int32_t to)
{
    const int32_t *want = u->tokens + (size_t)from * (size_t)p->block_tokens;
    for (int32_t i = from; i < to; i++, want += p->block_tokens) {
        int32_t b = blocks[i];
        if (b >= 0 && !is_entry(p, b, u->uid, u->salt, want))
            b = blocks[i] = find_entry(p, u->hashes[i], u->uid, u->salt, want);
        if (b < 0)
            return i;
        struct qr_kv_block *x = qr_kv_at(p, b);
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

int32_t qr_kv_prefix_find(struct qr_kv_pool *p, int32_t *blocks, int32_t n_max, const int32_t *tokens, int32_t n_tokens,
                          struct qr_hash128 salt, struct qr_hash128 *hashes, int32_t *n_hashed)
{
    QR_ASSERT(p != NULL && blocks != NULL && tokens != NULL);
    QR_ASSERT(hashes != NULL && n_hashed != NULL && *n_hashed >= 0);
    QR_ASSERT(n_max >= 0 && n_tokens >= 0);
    int32_t n = p->prefix_cache ? min_i32(n_tokens / p->block_tokens, n_max) : 0;
    struct look_up u = {.tokens = tokens, .hashes = hashes, .salt = salt, .run_newest = -1, .run_oldest = -1};
    int32_t n_found = 0;
    while (n_found < n) {
        /* The first group goes alone: nothing is hashed in vain behind a first block that is not cached. */
        hash_up_to(p, min_i32(n_found + (n_found == 0 ? 1 : 2) * GROUP, n), tokens, salt, hashes, n_hashed);
        look_ahead(p, &u, blocks, n_found, min_i32(*n_hashed, n), n);
        int32_t to = min_i32(n_found + GROUP, n);
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

/* Gives a new entry its place behind its parent; the head of its group remembers it. */
static void join_group(struct qr_kv_pool *p, int32_t block, int32_t parent)
{
    QR_ASSERT(block != parent && qr_kv_at(p, block)->indexed);
    QR_ASSERT(parent < 0 || qr_kv_at(p, parent)->uid != 0);
    struct qr_kv_block *x = qr_kv_at(p, block);
    x->place = (uint8_t)(parent >= 0 ? (qr_kv_at(p, parent)->place + 1) % GROUP : 0);
    x->head = x->place > 0 ? qr_kv_at(p, parent)->head : block;
    if (x->place > 0)
        qr_kv_at(p, x->head)->member[x->place - 1] = block;
}

bool qr_kv_prefix_enter(struct qr_kv_pool *p, int32_t block, int32_t parent, struct qr_hash128 salt, const int32_t *tokens)
{
    QR_ASSERT(p != NULL && tokens != NULL);
    QR_ASSERT(block >= 0 && block < p->n_blocks && qr_kv_at(p, block)->refs > 0);
    QR_ASSERT(parent >= -1 && parent < p->n_blocks && parent != block);
    struct qr_kv_block *x = qr_kv_at(p, block);
    uint64_t parent_uid = parent >= 0 ? qr_kv_at(p, parent)->uid : 0;
    if (!p->prefix_cache || x->indexed || (parent >= 0 && parent_uid == 0))
        return false;
    struct qr_kv_origin *from = &p->origin[block];
    from->parent = parent >= 0 ? p->origin[parent].hash : salt;
    from->hash = qr_kv_chain(p, from->parent, tokens);
    x->parent_uid = parent_uid;
    int32_t same = find_entry(p, from->hash, parent_uid, salt, tokens);
    if (same >= p->n_blocks && qr_kv_at(p, same)->refs == 0) { /* computed again: the slower copy is of no use */
        qr_kv_index_move(p, same, block);
        qr_kv_host_free(p, same);
        return true;
    }
    if (same >= 0) {
        x->uid = qr_kv_at(p, same)->uid;
        x->head = qr_kv_at(p, same)->head;
        x->place = qr_kv_at(p, same)->place;
        return false;
    }
    uint32_t tag = (uint32_t)from->hash.lo, i = tag & p->slot_mask;
    while (p->slot[i].block >= 0)
        i = (i + 1) & p->slot_mask;
    p->slot[i] = (struct qr_kv_slot){.tag = tag, .block = block};
    memcpy(tokens_of(p, block), tokens, (size_t)p->block_tokens * sizeof *tokens);
    x->uid = ++p->uid_last;
    x->indexed = true;
    join_group(p, block, parent);
    return true;
}

const int32_t *qr_kv_prefix_tokens(const struct qr_kv_pool *p, int32_t block)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(block >= 0 && block < qr_kv_n_all(p));
    return qr_kv_at(p, block)->indexed ? tokens_of(p, block) : NULL;
}

static uint32_t slot_of(const struct qr_kv_pool *p, int32_t block)
{
    uint32_t i = (uint32_t)p->origin[block].hash.lo & p->slot_mask;
    while (p->slot[i].block >= 0 && p->slot[i].block != block)
        i = (i + 1) & p->slot_mask;
    return i;
}

void qr_kv_index_drop(struct qr_kv_pool *p, int32_t block)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(block >= 0 && block < qr_kv_n_all(p) && qr_kv_at(p, block)->indexed);
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
    qr_kv_at(p, block)->indexed = false;
    qr_kv_at(p, block)->uid = 0;
}

void qr_kv_index_move(struct qr_kv_pool *p, int32_t from, int32_t to)
{
    QR_ASSERT(p != NULL && from != to);
    QR_ASSERT(qr_kv_at(p, from)->indexed && !qr_kv_at(p, to)->indexed);
    struct qr_kv_block *x = qr_kv_at(p, to), *old = qr_kv_at(p, from);
    const uint32_t at = slot_of(p, from);
    QR_ASSERT(p->slot[at].block == from);
    p->slot[at].block = to;
    p->origin[to] = p->origin[from];
    memcpy(tokens_of(p, to), tokens_of(p, from), (size_t)p->block_tokens * sizeof(int32_t));
    memcpy(x->member, old->member, sizeof x->member);
    x->uid = old->uid;
    x->parent_uid = old->parent_uid;
    x->place = old->place;
    x->head = old->head == from ? to : old->head;
    x->indexed = true;
    if (x->place > 0)
        qr_kv_at(p, x->head)->member[x->place - 1] = to;
    old->indexed = false;
    old->uid = 0;
}

static void clear_cached(struct qr_kv_pool *p, int32_t tier)
{
    while (*qr_kv_n_cached(p, tier) > 0) {
        int32_t b = qr_kv_at(p, qr_kv_cached_head(p, tier))->next;
        qr_kv_unlink(p, b);
        --*qr_kv_n_cached(p, tier);
        qr_kv_index_drop(p, b);
        qr_kv_link_before(p, qr_kv_free_head(p, tier), b);
        ++*qr_kv_n_free(p, tier);
    }
}

void qr_kv_prefix_clear(struct qr_kv_pool *p)
{
    QR_ASSERT(p != NULL);
    clear_cached(p, 0);
    clear_cached(p, p->n_blocks);
    for (int32_t b = 0; b < qr_kv_n_all(p); b++) {
        if (qr_kv_at(p, b)->indexed)
            qr_kv_index_drop(p, b);
        qr_kv_at(p, b)->uid = 0; /* private copies of entries that are gone */
    }
}

const char *qr_kv_index_check(const struct qr_kv_pool *p)
{
    QR_ASSERT(p != NULL);
    int32_t n_indexed = 0, n_slots = 0;
    for (uint32_t i = 0; i <= p->slot_mask; i++)
        n_slots += p->slot[i].block >= 0;
    for (int32_t b = 0; b < qr_kv_n_all(p); b++) {
        const struct qr_kv_block *x = qr_kv_at(p, b);
        if (!x->indexed)
            continue;
        n_indexed++;
        if (x->uid == 0 || x->uid > p->uid_last || x->parent_uid >= x->uid)
            return "an index entry is not younger than its parent";
        const struct qr_kv_origin *from = &p->origin[b];
        struct qr_hash128 h = qr_kv_chain(p, from->parent, tokens_of(p, b));
        if (h.lo != from->hash.lo || h.hi != from->hash.hi)
            return "an index entry's hash is not the hash of its tokens";
        uint32_t i = slot_of(p, b);
        if (p->slot[i].block != b || p->slot[i].tag != (uint32_t)from->hash.lo)
            return "an index entry is not where its hash says";
        if (find_entry(p, from->hash, x->parent_uid, from->parent, tokens_of(p, b)) != b)
            return "a content is in the index twice";
    }
    return n_slots == n_indexed ? NULL : "the table holds other blocks than those that are indexed";
}
