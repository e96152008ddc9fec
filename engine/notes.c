/* What became of cache blocks, for those outside: the file tier writes new ones, routers hear of all (exchange/events.h). */
#include <string.h>

#include "base/assert.h"
#include "engine/exchange.h"
#include "engine/internal.h"

#define ABOUT_SALTED (1 << 30) /* beside the adapter's number, slot + 1 */

/* Routers are not told of blocks with a salt of the request's own: without the salt, which is the tenant's, they would take them for anybody's. */
int32_t qr_note_about(const struct qr_request *r)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(r->adapter_slot >= -1 && r->adapter_slot + 1 < ABOUT_SALTED);
    return (r->adapter_slot + 1) | (r->salted ? ABOUT_SALTED : 0);
}

static void tell(struct qr_engine *e, const struct qr_kv_note *note)
{
    struct qr_adapters *a = &e->adapters;
    char adapter[QR_ADAPTER_NAME_MAX];
    if (note->about == 0) {
        qr_events_note(e->config.outside.events, note, NULL);
        return;
    }
    if (note->about & ABOUT_SALTED)
        return;
    QR_ASSERT(note->about <= a->n_slots);
    pthread_mutex_lock(&a->lock);
    memcpy(adapter, a->slot[note->about - 1].name, sizeof adapter);
    pthread_mutex_unlock(&a->lock);
    qr_events_note(e->config.outside.events, note, adapter);
}

void qr_notes_drain(struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(e->outside != NULL);
    struct qr_kv_note note;
    while (qr_kv_note_take(e->pool, &note)) {
        qr_exchange_note(e, &note);
        if (e->config.outside.events)
            tell(e, &note);
    }
    if (e->config.outside.events)
        qr_events_flush(e->config.outside.events);
    e->stats.outside.n_notes_lost = (uint64_t)qr_kv_notes_lost(e->pool);
}

bool qr_engine_events_stats(const struct qr_engine *e, struct qr_events_stats *out)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(out != NULL);
    *out = (struct qr_events_stats){0};
    if (e->config.outside.events)
        qr_events_stats(e->config.outside.events, out);
    return e->config.outside.events != NULL;
}
