/* pins.h - prompts that stay in the prefix cache. A request with `pin` (engine.h) is computed like any other, draws nothing, and ends with its full blocks
 * pinned (kvcache/kv_pin.h) until its pin is taken away or its time is over. Pins hold limits.n_pinned_max blocks at most, so that a sequence of the whole
 * context fits beside them. The engine thread alone touches blocks; what is known of pins is under a lock. Any thread may call what stands here.
 */
#ifndef QR_ENGINE_PINS_H
#define QR_ENGINE_PINS_H

#include "engine/engine.h"
#include "kvcache/kv_pin.h"

#define QR_PINS_MAX QR_KV_PINS_MAX

struct qr_pin {
    uint64_t id;                  /* of the request that made it */
    uint32_t owner;               /* as of its blocks (kvcache/kv_pool.h) */
    int32_t n_tokens, n_blocks;
    int64_t made_s, expires_s;    /* wall clock; expires_s 0: never */
};

/* Those that are there, in the order in which they came; returns how many. */
int32_t qr_engine_pins(const struct qr_engine *e, struct qr_pin out[QR_PINS_MAX]);

/* False: there is no such pin. Its blocks are let go before the next step. */
bool qr_engine_unpin(struct qr_engine *e, uint64_t id);

#endif
