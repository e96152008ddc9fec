/* kv_land.h - a block whose content came from elsewhere becomes a cached entry behind others. Nothing is held meanwhile: the last entry of a chain is
 * remembered by its serial number, so that it is known when it was given up. Blocks that land one behind the other are evicted last to first, as those
 * of a sequence that ended. The engine thread's; nothing is allocated. */
#ifndef QR_KVCACHE_KV_LAND_H
#define QR_KVCACHE_KV_LAND_H

#include "kvcache/kv_name.h"

/* The last entry of a chain, of either tier. All zero: the beginning of one. */
struct qr_kv_tail {
    uint64_t uid;
    int32_t block;
};

struct qr_kv_tail qr_kv_tail_of(const struct qr_kv_pool *p, int32_t block); /* an entry or a copy of one; -1: the beginning */

/* Is that block this entry still? False as well when it went to the other tier. */
bool qr_kv_tail_holds(const struct qr_kv_pool *p, struct qr_kv_tail tail);

/* The entry of these ids behind the tail, which holds, or -1. No reference is taken. salt: of a first block. */
int32_t qr_kv_behind(const struct qr_kv_pool *p, struct qr_kv_tail tail, struct qr_hash128 salt, const int32_t *ids);

/* A block with refcount 1, as qr_kv_alloc's, or -1 when none is available but in place of the tail, which holds then as before. */
int32_t qr_kv_alloc_behind(struct qr_kv_pool *p, struct qr_kv_tail tail);

/* Enters a block with refcount 1 behind the tail, which holds and has none of these ids behind it, and lets go of it: it is cached, and evicted before the
 * tail is. root, about: as qr_kv_name_enter's. */
void qr_kv_land(struct qr_kv_pool *p, int32_t block, struct qr_kv_tail tail, struct qr_hash128 salt, const struct qr_kv_name *root, const int32_t *ids,
                int32_t about);

#endif
