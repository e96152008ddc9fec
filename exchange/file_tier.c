#include "exchange/file_tier.h"

#include <string.h>

#include "base/assert.h"

int qr_file_tier_open(struct qr_file_tier **out, const struct qr_file_tier_config *config, struct qr_err *err)
{
    QR_ASSERT(out != NULL && config != NULL);
    return qr_err_set(err, QR_E_UNSUPPORTED, "%s: the file tier is not there yet", config->dir);
}

void qr_file_tier_close(struct qr_file_tier *t)
{
    QR_ASSERT(t == NULL);
}

int32_t qr_file_tier_find(const struct qr_file_tier *t, const struct qr_kv_name *names, int32_t first, int32_t n)
{
    QR_ASSERT(t != NULL && names != NULL && first <= n);
    return 0;
}

bool qr_file_tier_has(const struct qr_file_tier *t, const struct qr_kv_name *name)
{
    QR_ASSERT(t != NULL && name != NULL);
    return false;
}

struct qr_parcel *qr_file_tier_parcel(struct qr_file_tier *t)
{
    QR_ASSERT(t != NULL);
    return NULL;
}

void qr_file_tier_write(struct qr_file_tier *t, struct qr_parcel *parcel)
{
    QR_ASSERT(t != NULL && parcel != NULL);
}

void qr_file_tier_fetch(struct qr_file_tier *t, struct qr_fetch *f)
{
    QR_ASSERT(t != NULL && f != NULL);
}

void qr_file_tier_take(struct qr_file_tier *t, struct qr_node *arrived, struct qr_node *over)
{
    QR_ASSERT(t != NULL && arrived != NULL && over != NULL);
}

void qr_file_tier_stats(const struct qr_file_tier *t, struct qr_file_tier_stats *out)
{
    QR_ASSERT(t != NULL && out != NULL);
    memset(out, 0, sizeof *out);
}
