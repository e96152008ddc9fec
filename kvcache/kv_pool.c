/* kv_pool.c - the blocks of the paged cache: a free list, a list of cached blocks in order of release, reference
 * counts. free + cached + owned = total holds after every call, and qr_kv_pool_check proves it. Taking a block evicts
 * the cached one that was released longest ago. With a second tier an eviction becomes a move, which the owner of the
 * memory works off in order. Bookkeeping only. The engine thread owns it; nothing is allocated after opening. */
#include "kvcache/kv_pool.h"

#include "base/assert.h"
#include "base/mem.h"
#include "kvcache/kv_internal.h"

static uint32_t slots_for(int32_t n_all, bool prefix_cache)
{
    return prefix_cache ? qr_kv_slots_for(n_all) : 1;
}

static size_t record_bytes_of(int32_t block_tokens, bool prefix_cache)
{
    return sizeof(struct qr_kv_block) + (prefix_cache ? ((size_t)block_tokens * sizeof(int32_t) + 63) / 64 * 64 : 0);
}

size_t qr_kv_pool_bytes(int32_t n_blocks, int32_t n_host, int32_t block_tokens, bool prefix_cache)
{
    QR_ASSERT(n_blocks >= 1 && n_host >= 0 && n_host <= INT32_MAX / 8 - n_blocks);
    QR_ASSERT(block_tokens >= 1 && block_tokens <= QR_KV_BLOCK_TOKENS_MAX);
    const int32_t n_all = n_blocks + n_host;
    return ((size_t)n_all + 4) * record_bytes_of(block_tokens, prefix_cache) + slots_for(n_all, prefix_cache) * sizeof(struct qr_kv_slot) +
           (size_t)n_blocks * sizeof(uint8_t) + (size_t)n_all * sizeof(uint32_t) +
           (n_host > 0 ? 2 * (size_t)n_blocks * sizeof(struct qr_kv_move) : 0);
}

/* The lists of the tier that block `first` begins, of n blocks, all of them free. */
static void make_lists(struct qr_kv_pool *p, int32_t first, int32_t n)
{
    const int32_t head[2] = {qr_kv_free_head(p, first), qr_kv_cached_head(p, first)};
    for (int i = 0; i < 2; i++)
        qr_kv_at(p, head[i])->prev = qr_kv_at(p, head[i])->next = head[i];
    for (int32_t b = first; b < first + n; b++)
        qr_kv_link_before(p, head[0], b);
    *qr_kv_n_free(p, first) = n;
}

struct qr_kv_pool *qr_kv_pool_new(int32_t n_blocks, int32_t block_tokens, bool prefix_cache, const struct qr_hash_secret *secret)
{
    return qr_kv_pool_new_tiers(n_blocks, 0, block_tokens, prefix_cache, secret);
}

struct qr_kv_pool *qr_kv_pool_new_tiers(int32_t n_blocks, int32_t n_host, int32_t block_tokens, bool prefix_cache, const struct qr_hash_secret *secret)
{
    QR_ASSERT(n_blocks >= 1 && n_host >= 0 && n_host <= INT32_MAX / 8 - n_blocks && (n_host == 0 || prefix_cache));
    QR_ASSERT(block_tokens >= 1 && block_tokens <= QR_KV_BLOCK_TOKENS_MAX && (block_tokens & (block_tokens - 1)) == 0);
    QR_ASSERT(secret != NULL);
    struct qr_kv_pool *p = qr_alloc(1, sizeof *p);
    const int32_t n_all = n_blocks + n_host;
    p->n_blocks = n_blocks;
    p->n_host = n_host;
    p->block_tokens = block_tokens;
    p->prefix_cache = prefix_cache;
    p->hash_keep = UINT64_MAX;
    p->secret = *secret;
    p->record_bytes = record_bytes_of(block_tokens, prefix_cache);
    p->record = qr_alloc_aligned(((size_t)n_all + 4) * p->record_bytes, 128);
    p->use = qr_alloc((size_t)n_blocks, sizeof *p->use);
    p->owner = qr_alloc((size_t)n_all, sizeof *p->owner);
    make_lists(p, 0, n_blocks);
    make_lists(p, n_blocks, n_host);
    uint32_t n_slots = slots_for(n_all, prefix_cache);
    p->slot_mask = n_slots - 1;
    p->slot = qr_alloc_aligned(n_slots * sizeof *p->slot, 64);
    for (uint32_t i = 0; i < n_slots; i++)
        p->slot[i].block = -1;
    if (n_host > 0)
        p->move = qr_alloc(2 * (size_t)n_blocks, sizeof *p->move);
    return p;
}

void qr_kv_pool_free(struct qr_kv_pool *p)
{
    if (p == NULL)
        return;
    qr_kv_pins_close(p->pins);
    qr_kv_names_close(p->names);
    qr_free(p->move);
    qr_free(p->owner);
    qr_free(p->use);
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
        .n_shared = p->n_shared,
        .n_pinned = p->pins ? p->pins->n_blocks : 0,
        .n_pinned_max = p->pins ? p->pins->n_blocks_max : 0,
        .n_host = p->n_host,
        .n_host_cached = p->n_host_cached,
        .n_evicted = p->n_evicted,
        .n_out = p->n_out,
        .n_in = p->n_in,
        .query_tokens = p->query_tokens,
        .hit_tokens = p->hit_tokens,
    };
}

static void drop(struct qr_kv_pool *p, int32_t b)
{
    qr_kv_index_drop(p, b);
    p->n_evicted++;
}

/* A block of the second tier for one more content, on no list; -1: there is none. The list of moves keeps room for what comes back. */
static int32_t take_host(struct qr_kv_pool *p)
{
    const bool fresh = p->n_host_free > 0;
    if ((!fresh && p->n_host_cached == 0) || p->n_moves >= p->n_blocks)
        return -1;
    const int32_t h = qr_kv_at(p, fresh ? qr_kv_free_head(p, p->n_blocks) : qr_kv_cached_head(p, p->n_blocks))->next;
    if (!fresh)
        drop(p, h);
    qr_kv_unlink(p, h);
    --*(fresh ? &p->n_host_free : &p->n_host_cached);
    return h;
}

static void note_move(struct qr_kv_pool *p, int32_t from, int32_t to)
{
    QR_ASSERT(p->n_moves < 2 * p->n_blocks);
    p->move[p->n_moves++] = (struct qr_kv_move){.from = from, .to = to};
}

/* The content of cached block b makes room: it goes to the second tier, as the most recent there, or is given up. */
static void evict(struct qr_kv_pool *p, int32_t b)
{
    const int32_t h = p->n_host > 0 ? take_host(p) : -1;
    if (h < 0) {
        drop(p, b);
        return;
    }
    qr_kv_index_move(p, b, h);
    qr_kv_link_before(p, qr_kv_cached_head(p, h), h);
    p->n_host_cached++;
    p->n_out++;
    note_move(p, b, h);
}

int32_t qr_kv_alloc(struct qr_kv_pool *p)
{
    QR_ASSERT(p != NULL);
    int32_t b;
    if (p->n_free > 0) {
        b = qr_kv_at(p, qr_kv_free_head(p, 0))->next;
        p->n_free--;
    } else if (p->n_cached > 0) {
        b = qr_kv_at(p, qr_kv_cached_head(p, 0))->next;
        evict(p, b);
        p->n_cached--;
    } else {
        return -1;
    }
    qr_kv_unlink(p, b);
    QR_ASSERT(qr_kv_at(p, b)->refs == 0 && qr_kv_at(p, b)->uid == 0);
    qr_kv_at(p, b)->refs = 1;
    qr_kv_note_use(p, b);
    if (b >= p->n_ever_used)
        p->n_ever_used = b + 1;
    return b;
}

void qr_kv_ref(struct qr_kv_pool *p, int32_t block)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(block >= 0 && block < p->n_blocks);
    qr_kv_hold(p, block);
}

void qr_kv_unref(struct qr_kv_pool *p, int32_t block)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(block >= 0 && block < qr_kv_n_all(p));
    struct qr_kv_block *x = qr_kv_at(p, block);
    QR_ASSERT(x->refs > 0);
    x->refs--;
    qr_kv_note_use(p, block);
    if (x->refs > 0)
        return;
    if (x->indexed) {
        qr_kv_link_before(p, qr_kv_cached_head(p, block), block); /* the end is the most recent */
        ++*qr_kv_n_cached(p, block);
    } else {
        x->uid = 0;
        qr_kv_link_before(p, qr_kv_at(p, qr_kv_free_head(p, block))->next, block); /* the front: its memory is warm */
        ++*qr_kv_n_free(p, block);
    }
}

const uint8_t *qr_kv_uses(const struct qr_kv_pool *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->use != NULL);
    return p->use;
}

uint32_t qr_kv_owner(const struct qr_kv_pool *p, struct qr_hash128 salt)
{
    QR_ASSERT(p != NULL);
    return (uint32_t)qr_hash128_keyed(&salt, sizeof salt, &p->secret).lo;
}

void qr_kv_set_owner(struct qr_kv_pool *p, int32_t block, uint32_t owner)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(block >= 0 && block < p->n_blocks);
    p->owner[block] = owner;
}

const uint32_t *qr_kv_owners(const struct qr_kv_pool *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->owner != NULL);
    return p->owner;
}

bool qr_kv_is_host(const struct qr_kv_pool *p, int32_t block)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(block >= 0 && block < qr_kv_n_all(p));
    return block >= p->n_blocks;
}

int32_t qr_kv_bring(struct qr_kv_pool *p, int32_t host)
{
    QR_ASSERT(p != NULL && qr_kv_is_host(p, host));
    QR_ASSERT(qr_kv_at(p, host)->refs == 1 && qr_kv_at(p, host)->indexed);
    const int32_t b = qr_kv_alloc(p);
    QR_ASSERT(b >= 0);
    qr_kv_index_move(p, host, b);
    note_move(p, host, b);
    p->n_in++;
    qr_kv_unref(p, host); /* free: whatever goes there next goes after the copy */
    return b;
}

void qr_kv_uncache(struct qr_kv_pool *p, int32_t block)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(qr_kv_at(p, block)->refs == 0 && !qr_kv_at(p, block)->indexed);
    qr_kv_unlink(p, block);
    --*qr_kv_n_cached(p, block);
    qr_kv_note_use(p, block);
    qr_kv_link_before(p, qr_kv_free_head(p, block), block);
    ++*qr_kv_n_free(p, block);
}

const struct qr_kv_move *qr_kv_moves(const struct qr_kv_pool *p, int32_t *n)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(n != NULL);
    *n = p->n_moves;
    return p->move;
}

void qr_kv_moved(struct qr_kv_pool *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->n_moves >= 0);
    p->n_moves = 0;
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
        if (b < 0 || b >= qr_kv_n_all(p) || qr_kv_free_head(p, b) + indexed != head || n++ >= n_expected)
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
    const char *broken = check_list(p, qr_kv_free_head(p, 0), p->n_free, false);
    if (broken == NULL)
        broken = check_list(p, qr_kv_cached_head(p, 0), p->n_cached, true);
    if (broken == NULL)
        broken = check_list(p, qr_kv_free_head(p, p->n_blocks), p->n_host_free, false);
    if (broken == NULL)
        broken = check_list(p, qr_kv_cached_head(p, p->n_blocks), p->n_host_cached, true);
    if (broken != NULL)
        return broken;
    int32_t n_owned = 0, n_held = 0, n_shared = 0;
    for (int32_t b = 0; b < qr_kv_n_all(p); b++) {
        if (qr_kv_at(p, b)->refs < 0)
            return "a block has a negative reference count";
        *(b < p->n_blocks ? &n_owned : &n_held) += qr_kv_at(p, b)->refs > 0;
        n_shared += b < p->n_blocks && qr_kv_at(p, b)->refs > 1;
        if (b < p->n_blocks && p->use[b] != qr_kv_use_of(qr_kv_at(p, b)))
            return "a block's use is noted wrong";
    }
    if (n_shared != p->n_shared)
        return "shared blocks are counted wrong";
    if (p->n_free + p->n_cached + n_owned != p->n_blocks)
        return "free + cached + owned blocks are not all blocks";
    if (p->n_host_free + p->n_host_cached + n_held != p->n_host)
        return "blocks of the second tier do not add up";
    const char *pins = qr_kv_pins_check(p), *names = qr_kv_names_check(p);
    return pins ? pins : names ? names : qr_kv_index_check(p);
}
