/* events_pack.h - notes of the cache as batches of vLLM's KV events, in msgpack. A pure function over the ring; the events thread calls it. */
#ifndef QR_EXCHANGE_EVENTS_PACK_H
#define QR_EXCHANGE_EVENTS_PACK_H

#include "base/buf.h"
#include "kvcache/kv_name.h"

#define QR_EVENT_ADAPTER_MAX 128 /* bytes of an adapter's name, with its end */

/* One note as the ring holds it; its ids behind it. A block that changed the tier is two: stored there, removed here. */
struct qr_event_slot {
    enum qr_kv_note_kind kind;     /* STORED, REMOVED or CLEARED */
    int32_t n_ids;                 /* of STORED: a block's, or 0 where the subscriber knows them (it changed the tier) */
    bool host, first, ends;        /* ends: the last of its batch */
    struct qr_kv_name name, parent;
    char adapter[QR_EVENT_ADAPTER_MAX]; /* "": none */
    int32_t ids[];
};

struct qr_event_ring {
    char *memory;                  /* owned [n][stride] */
    size_t stride;
    uint32_t n;                    /* a power of two */
    int32_t block_tokens;
    bool maps;
};

static inline struct qr_event_slot *qr_event_at(const struct qr_event_ring *r, uint64_t at)
{
    return (struct qr_event_slot *)(void *)(r->memory + (size_t)(at & (r->n - 1)) * r->stride);
}

/* Appends one batch of the slots [from, to), from < to: up to the end of its step, to another kind, or to a bound on its size. The slots that it took;
 * *n_events: what they became. */
int32_t qr_events_pack(struct qr_buf *out, int32_t *n_events, const struct qr_event_ring *r, uint64_t from, uint64_t to, double time_s);

#endif
