/* kv_pin.h - prefixes that stay in the cache. A pin is a reference on each block of a prefix, held by the pool itself, so
 * such blocks are owned: they are neither given out nor moved to the second tier. The pool bounds how many pins there are
 * and how many blocks they hold; a block of several pins counts once. No allocation after qr_kv_pins_open. */
#ifndef QR_KVCACHE_KV_PIN_H
#define QR_KVCACHE_KV_PIN_H

#include "kvcache/kv_name.h"

#define QR_KV_PINS_MAX 64

/* Once, while no block is owned: pins may hold n_blocks_max blocks together, 0 <= n_blocks_max < blocks of the pool. */
void qr_kv_pins_open(struct qr_kv_pool *p, int32_t n_blocks_max);
size_t qr_kv_pins_bytes(int32_t n_blocks, int32_t n_blocks_max); /* what that takes */

/* Pins the content of blocks[n], n >= 1: the first blocks of one sequence in order, full, computed and owned by the caller, whose
 * tokens these are. The blocks that are held are those by which others find the content; the caller's are, where there were
 * none, under names from root (kv_name.h). With twins (kv_twin.h), those that a hit of all of it needs are pinned as well. Returns the pin's
 * number, 0 .. QR_KV_PINS_MAX - 1, or -1 when there are too many pins or they would hold too much. */
int32_t qr_kv_pin(struct qr_kv_pool *p, const int32_t *blocks, int32_t n, const int32_t *tokens, struct qr_hash128 salt, const struct qr_kv_name *root,
                  int32_t about);

int32_t qr_kv_pin_blocks(const struct qr_kv_pool *p, int32_t n); /* that a pin of n blocks holds, twins among them */

/* Lets go of the blocks, which stay cached, the last one to be evicted first. */
void qr_kv_unpin(struct qr_kv_pool *p, int32_t pin);

int32_t qr_kv_pins_of(const struct qr_kv_pool *p, int32_t block); /* how many pins hold it */

#endif
