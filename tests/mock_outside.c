/* Of what is outside of the scripted engine: it has no files, lends nothing, and knows three peers by name. */
#include <stdatomic.h>
#include <string.h>

#include "base/assert.h"
#include "engine/exchange.h"
#include "tests/mock_engine.h"

enum qr_side qr_engine_role(const struct qr_engine *e)
{
    return (enum qr_side)atomic_load(mock_engine_role((struct qr_engine *)(uintptr_t)e));
}

void qr_engine_set_role(struct qr_engine *e, enum qr_side role)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(role <= QR_ROLE_DECODE);
    atomic_store(mock_engine_role(e), (int)role);
}

int32_t qr_engine_peer(const struct qr_engine *e, const char *address)
{
    static const char *const peer[] = {"127.0.0.1:7001", "[::1]:7001", "unix:/run/peer"};
    int32_t i = 0;
    QR_ASSERT(e != NULL && address != NULL);
    while (i < (int32_t)QR_COUNT(peer) && strcmp(peer[i], address) != 0)
        i++;
    return i < (int32_t)QR_COUNT(peer) ? i : -1;
}

const char *qr_engine_peer_address(const struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    return mock_engine_is_deaf(e) ? NULL : "127.0.0.1:7000";
}

bool qr_engine_exchange_stats(const struct qr_engine *e, struct qr_exchange_stats *out)
{
    QR_ASSERT(e != NULL);
    *out = (struct qr_exchange_stats){0};
    return false;
}

bool qr_engine_file_stats(const struct qr_engine *e, struct qr_file_tier_stats *out)
{
    QR_ASSERT(e != NULL);
    *out = (struct qr_file_tier_stats){0};
    return false;
}

bool qr_engine_events_stats(const struct qr_engine *e, struct qr_events_stats *out)
{
    QR_ASSERT(e != NULL);
    *out = (struct qr_events_stats){0};
    return false;
}
