/* kv_twin.h - where some layers of a model see a window only, a run of block_tokens tokens has several blocks: the first for layers that see everything, and
 * twins for those that have the window. All are blocks of one pool, of one size: whatever is free serves either.
 *
 * The first block stands in tables and in the index as ever. In the index a twin is an entry behind the first block's, by ids that no text has. So it is found
 * by way of that entry alone, equality stays exact, and each is cached and evicted by itself. A prefix is a hit (qr_kv_prefix_find) so far as all its first
 * blocks are there, and twins of the last of them. The engine thread's; nothing is allocated. */
#ifndef QR_KVCACHE_KV_TWIN_H
#define QR_KVCACHE_KV_TWIN_H

#include "kvcache/kv_pool.h"

struct qr_kv_twins {
    int32_t n;      /* of each block; 0: there are none */
    int32_t stride; /* twin k < n of blocks[i] is blocks[(1 + k) * stride + i] */
    int32_t n_kept; /* a row that begins a block reads the window in so many blocks before it */
};

/* Once, before any block is owned, and without a second tier. From now on the pool's callers have such tables. */
void qr_kv_twins_open(struct qr_kv_pool *p, const struct qr_kv_twins *twins);
const struct qr_kv_twins *qr_kv_twins(const struct qr_kv_pool *p);

/* Behind qr_kv_prefix_enter of blocks[i], whatever that returned: its twins, owned and computed, are entered, too. */
void qr_kv_twins_enter(struct qr_kv_pool *p, const int32_t *blocks, int32_t i);

#endif
