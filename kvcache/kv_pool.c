#include "kvcache/kv_pool.h"

#include "base/assert.h"
#include "base/mem.h"
#include "kvcache/kv_internal.h"

static uint32_t slots_for(int32_t n_blocks, bool prefix_cache)
{
    uint32_t n = prefix_cache ? 16 : 1;
    while (prefix_cache && n < 4 * (uint32_t)n_blocks) /* 1.2 probes a hit at most, on average */
        n *= 2;
    return n;
}

static size_t record_bytes_of(int32_t block_tokens, bool prefix_cache)
{
    return sizeof(struct qr_kv_block) + (prefix_cache ? ((size_t)block_tokens * sizeof(int32_t) + 63) / 64 * 64 : 0);
}

size_t qr_kv_pool_bytes(int32_t n_blocks, int32_t block_tokens, bool prefix_cache)
{
    QR_ASSERT(n_blocks >= 1 && n_blocks <= INT32_MAX / 8);
    QR_ASSERT(block_tokens >= 1 && block_tokens <= QR_KV_BLOCK_TOKENS_MAX);
    return ((size_t)n_blocks + 2) * record_bytes_of(block_tokens, prefix_cache) + slots_for(n_blocks, prefix_cache) * sizeof(struct qr_kv_slot) +
           (prefix_cache ? (size_t)n_blocks * sizeof(struct qr_kv_origin) : 0);
}

struct qr_kv_pool *qr_kv_pool_new(int32_t n_blocks, int32_t block_tokens, bool prefix_cache,
                                  const struct qr_hash_secret *secret)
{
    QR_ASSERT(n_blocks >= 1 && n_blocks <= INT32_MAX / 8);
    QR_ASSERT(block_tokens >= 1 && block_tokens <= QR_KV_BLOCK_TOKENS_MAX && (block_tokens & (block_tokens - 1)) == 0);
    QR_ASSERT(secret != NULL);
    struct qr_kv_pool *p = qr_alloc(1, sizeof *p);
    p->n_blocks = n_blocks;
    p->block_tokens = block_tokens;
    p->prefix_cache = prefix_cache;
    p->hash_keep = UINT64_MAX;
    p->secret = *secret;
    p->record_bytes = record_bytes_of(block_tokens, prefix_cache);
    p->record = qr_alloc_aligned(((size_t)n_blocks + 2) * p->record_bytes, 128);
    qr_kv_at(p, qr_kv_free_head(p))->prev = qr_kv_at(p, qr_kv_free_head(p))->next = qr_kv_free_head(p);
    qr_kv_at(p, qr_kv_cached_head(p))->prev = qr_kv_at(p, qr_kv_cached_head(p))->next = qr_kv_cached_head(p);
    for (int32_t b = 0; b < n_blocks; b++)
        qr_kv_link_before(p, qr_kv_free_head(p), b);
    p->n_free = n_blocks;
    uint32_t n_slots = slots_for(n_blocks, prefix_cache);
    p->slot_mask = n_slots - 1;
    p->slot = qr_alloc_aligned(n_slots * sizeof *p->slot, 64);
    for (uint32_t i = 0; i < n_slots; i++)
        p->slot[i].block = -1;
    if (prefix_cache) { /* written here and there in a step, and small beside the cache itself */
        p->origin = qr_alloc_aligned((size_t)n_blocks * sizeof *p->origin, 64);
        qr_mem_populate(p->origin, (size_t)n_blocks * sizeof *p->origin);
    }
    return p;
}

void qr_kv_pool_free(struct qr_kv_pool *p)
{
    if (p == NULL)
        return;
    if (p->prefix_cache)
        qr_free_aligned(p->origin);
    qr_free_aligned(p->slot);
    qr_free_aligned(p->record);
    qr_free(p);
}

int32_t qr_kv_pool_available(const struct qr_kv_pool *p)
{
    QR_ASSERT(p != NULL);
    return p->n_free + p->n_cached;
}

int32_t qr_kv_pool_block_tokens(const struct qr_kv_pool *p)
{
    QR_ASSERT(p != NULL);
    return p->block_tokens;
}

int32_t qr_kv_pool_ever_used(const struct qr_kv_pool *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->n_ever_used <= p->n_blocks);
    return p->n_ever_used;
}

void qr_kv_pool_stats(const struct qr_kv_pool *p, struct qr_kv_stats *out)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(out != NULL);
    *out = (struct qr_kv_stats){
        .n_blocks = p->n_blocks,
        .n_free = p->n_free,
        .n_cached = p->n_cached,
        .n_owned = p->n_blocks - p->n_free - p->n_cached,
        .n_evicted = p->n_evicted,
        .query_tokens = p->query_tokens,
        .hit_tokens = p->hit_tokens,
    };
}

int32_t qr_kv_alloc(struct qr_kv_pool *p)
{
    QR_ASSERT(p != NULL);
    int32_t b;
    if (p->n_free > 0) {
        b = qr_kv_at(p, qr_kv_free_head(p))->next;
        p->n_free--;
    } else if (p->n_cached > 0) {
        b = qr_kv_at(p, qr_kv_cached_head(p))->next;
        qr_kv_index_drop(p, b);
        p->n_cached--;
        p->n_evicted++;
    } else {
        return -1;
    }
    qr_kv_unlink(p, b);
    QR_ASSERT(qr_kv_at(p, b)->refs == 0 && qr_kv_at(p, b)->uid == 0);
    qr_kv_at(p, b)->refs = 1;
    if (b >= p->n_ever_used)
        p->n_ever_used = b + 1;
    return b;
}

void qr_kv_ref(struct qr_kv_pool *p, int32_t block)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(block >= 0 && block < p->n_blocks);
    struct qr_kv_block *x = qr_kv_at(p, block);
    if (x->refs++ > 0)
        return;
    QR_ASSERT(x->indexed); /* a free block is not anybody's to share */
    qr_kv_unlink(p, block);
    p->n_cached--;
}

void qr_kv_unref(struct qr_kv_pool *p, int32_t block)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(block >= 0 && block < p->n_blocks);
    struct qr_kv_block *x = qr_kv_at(p, block);
    QR_ASSERT(x->refs > 0);
    if (--x->refs > 0)
        return;
    if (x->indexed) {
        qr_kv_link_before(p, qr_kv_cached_head(p), block); /* the end is the most recent */
        p->n_cached++;
    } else {
        x->uid = 0;
        qr_kv_link_before(p, qr_kv_at(p, qr_kv_free_head(p))->next, block); /* the front: its memory is warm */
        p->n_free++;
    }
}

int32_t qr_kv_refs(const struct qr_kv_pool *p, int32_t block)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(block >= 0 && block < p->n_blocks);
    return qr_kv_at(p, block)->refs;
}

/* Walks one list: every member unowned, indexed or not as its list demands, links mutual, length as counted. */
static const char *check_list(const struct qr_kv_pool *p, int32_t head, int32_t n_expected, bool indexed)
{
    int32_t n = 0;
    for (int32_t b = qr_kv_at(p, head)->next; b != head; b = qr_kv_at(p, b)->next) {
        if (b < 0 || b >= p->n_blocks || n++ >= n_expected)
            return "a list of blocks leads elsewhere or is longer than its count";
        const struct qr_kv_block *x = qr_kv_at(p, b);
        if (x->refs != 0)
            return "a block is on a list and referenced";
        if (qr_kv_at(p, x->prev)->next != b || qr_kv_at(p, x->next)->prev != b)
            return "a list of blocks is torn";
        if (x->indexed != indexed)
            return indexed ? "a cached block has no index entry" : "a free block has an index entry";
        if (!indexed && x->uid != 0)
            return "a free block remembers a content";
    }
    return n == n_expected ? NULL : "a list of blocks is shorter than its count";
}

const char *qr_kv_pool_check(const struct qr_kv_pool *p)
{
    QR_ASSERT(p != NULL);
    const char *broken = check_list(p, qr_kv_free_head(p), p->n_free, false);
    if (broken == NULL)
        broken = check_list(p, qr_kv_cached_head(p), p->n_cached, true);
    if (broken != NULL)
        return broken;
    int32_t n_owned = 0;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        if (qr_kv_at(p, b)->refs < 0)
            return "a block has a negative reference count";
        n_owned += qr_kv_at(p, b)->refs > 0;
    }
    if (p->n_free + p->n_cached + n_owned != p->n_blocks)
        return "free + cached + owned blocks are not all blocks";
    return qr_kv_index_check(p);
}
