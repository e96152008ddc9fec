/* kv_prefix.c - the index of cached blocks by content. A block's key is a hash chained from its parent's, so a look-up
 * walks a prompt block by block. A hit counts only when the block's tokens and its parent compare equal: a collision of
 * hashes costs time, never a wrong answer. The engine thread owns it; nothing is allocated after opening. */
#include "kvcache/kv_prefix.h"

#include <string.h>

#include "base/assert.h"
#include "kvcache/kv_internal.h"

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

static int32_t *tokens_of(const struct qr_kv_pool *p, int32_t b)
{
    return (int32_t *)(qr_kv_at(p, b) + 1);
}

/* Is block b the entry (parent entry, tokens)? Exact: for a first block the salt itself is compared. */
static bool is_entry(const struct qr_kv_pool *p, int32_t b, uint64_t parent_uid, struct qr_hash128 salt, const int32_t *tokens)
{
    const struct qr_kv_block *x = qr_kv_at(p, b);
    if (x->parent_uid != parent_uid || memcmp(tokens_of(p, b), tokens, (size_t)p->block_tokens * sizeof *tokens) != 0)
        return false;
    return parent_uid != 0 || (x->parent.lo == salt.lo && x->parent.hi == salt.hi);
}

int32_t qr_kv_index_find(const struct qr_kv_pool *p, struct qr_hash128 hash, uint64_t parent_uid, struct qr_hash128 salt, const int32_t *tokens)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(tokens != NULL);
    const uint32_t tag = (uint32_t)hash.lo;
    for (uint32_t i = tag & p->slot_mask; p->slot[i].block >= 0; i = (i + 1) & p->slot_mask) {
        if (p->slot[i].tag == tag && is_entry(p, p->slot[i].block, parent_uid, salt, tokens))
            return p->slot[i].block;
    }
    return -1;
}

int32_t qr_kv_prefix_find(struct qr_kv_pool *p, int32_t *blocks, int32_t n_max, const int32_t *tokens, int32_t n_tokens,
                          struct qr_hash128 salt, struct qr_hash128 *hashes, int32_t *n_hashed)
{
    QR_ASSERT(p != NULL && blocks != NULL && tokens != NULL);
    QR_ASSERT(hashes != NULL && n_hashed != NULL && *n_hashed >= 0);
    QR_ASSERT(n_max >= 0 && n_tokens >= 0);
    const int32_t n_full = n_tokens / p->block_tokens, n = !p->prefix_cache ? 0 : n_full < n_max ? n_full : n_max;
    uint64_t uid = 0; /* the entry of the block before; 0 before the first */
    int32_t i = 0;
    for (; i < n; i++, tokens += p->block_tokens) {
        if (i == *n_hashed)
            hashes[(*n_hashed)++] = qr_kv_chain(p, i == 0 ? salt : hashes[i - 1], tokens);
        const int32_t b = qr_kv_index_find(p, hashes[i], uid, salt, tokens);
        if (b < 0)
            break;
        uid = qr_kv_at(p, b)->uid;
        qr_kv_hold(p, b);
        blocks[i] = b;
    }
    return p->twins.n > 0 ? qr_kv_twins_find(p, blocks, i) : i;
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
    QR_ASSERT(block >= 0 && block < p->n_blocks && qr_kv_at(p, block)->refs > 0);
    QR_ASSERT(parent >= -1 && parent < qr_kv_n_all(p) && parent != block);
    struct qr_kv_block *x = qr_kv_at(p, block);
    uint64_t parent_uid = parent >= 0 ? qr_kv_at(p, parent)->uid : 0;
    if (!p->prefix_cache || x->indexed || (parent >= 0 && parent_uid == 0))
        return false;
    x->parent = parent >= 0 ? qr_kv_at(p, parent)->hash : salt;
    x->hash = qr_kv_chain(p, x->parent, tokens);
    x->parent_uid = parent_uid;
    int32_t same = qr_kv_index_find(p, x->hash, parent_uid, salt, tokens);
    if ((same >= p->n_blocks || (same >= 0 && p->twins.n > 0)) && qr_kv_at(p, same)->refs == 0) {
        qr_kv_index_move(p, same, block); /* computed again: the slower copy, or that of what was no hit for want of twins, is of no use */
        qr_kv_uncache(p, same);
        return true;
    }
    if (same >= 0) {
        x->uid = qr_kv_at(p, same)->uid;
        return false;
    }
    uint32_t tag = (uint32_t)x->hash.lo, i = tag & p->slot_mask;
    while (p->slot[i].block >= 0)
        i = (i + 1) & p->slot_mask;
    p->slot[i] = (struct qr_kv_slot){.tag = tag, .block = block};
    memcpy(tokens_of(p, block), tokens, (size_t)p->block_tokens * sizeof *tokens);
    x->uid = ++p->uid_last;
    x->indexed = true;
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
    uint32_t i = (uint32_t)qr_kv_at(p, block)->hash.lo & p->slot_mask;
    while (p->slot[i].block >= 0 && p->slot[i].block != block)
        i = (i + 1) & p->slot_mask;
    return i;
}

void qr_kv_index_drop(struct qr_kv_pool *p, int32_t block)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(block >= 0 && block < qr_kv_n_all(p) && qr_kv_at(p, block)->indexed);
    qr_kv_name_drop(p, block);
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
    memcpy(tokens_of(p, to), tokens_of(p, from), (size_t)p->block_tokens * sizeof(int32_t));
    x->uid = old->uid;
    x->parent_uid = old->parent_uid;
    x->hash = old->hash;
    x->parent = old->parent;
    p->owner[to] = p->owner[from];
    x->indexed = true;
    old->indexed = false;
    old->uid = 0;
    qr_kv_name_move(p, from, to);
}

static void clear_cached(struct qr_kv_pool *p, int32_t tier)
{
    while (*qr_kv_n_cached(p, tier) > 0) {
        const int32_t b = qr_kv_at(p, qr_kv_cached_head(p, tier))->next;
        qr_kv_index_drop(p, b);
        qr_kv_uncache(p, b);
    }
}

void qr_kv_prefix_clear(struct qr_kv_pool *p)
{
    QR_ASSERT(p != NULL);
    qr_kv_name_clear(p);
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
        struct qr_hash128 h = qr_kv_chain(p, x->parent, tokens_of(p, b));
        if (h.lo != x->hash.lo || h.hi != x->hash.hi)
            return "an index entry's hash is not the hash of its tokens";
        uint32_t i = slot_of(p, b);
        if (p->slot[i].block != b || p->slot[i].tag != (uint32_t)x->hash.lo)
            return "an index entry is not where its hash says";
        if (qr_kv_index_find(p, x->hash, x->parent_uid, x->parent, tokens_of(p, b)) != b)
            return "a content is in the index twice";
    }
    return n_slots == n_indexed ? NULL : "the table holds other blocks than those that are indexed";
}
