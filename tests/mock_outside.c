/* The scripted engine exchanges no block (its roles and peers are in mock_engine.c). */
#include "base/assert.h"
#include "engine/exchange.h"

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
