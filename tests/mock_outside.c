/* The scripted engine has no peers and no files. */
#include "base/assert.h"
#include "engine/exchange.h"

enum qr_side qr_engine_role(const struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    return QR_ROLE_BOTH;
}

void qr_engine_set_role(struct qr_engine *e, enum qr_side role)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(role <= QR_ROLE_DECODE);
}

int32_t qr_engine_peer(const struct qr_engine *e, const char *address)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(address != NULL);
    return -1;
}

const char *qr_engine_peer_address(const struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    return NULL;
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
