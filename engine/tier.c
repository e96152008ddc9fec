/* tier.c - the cache's second tier: blocks in the host's memory (kvcache/kv_pool.h says which are where). */
#include <stdio.h>

#include "base/assert.h"
#include "base/mem.h"
#include "engine/internal.h"

int64_t qr_engine_available(const struct qr_engine_config *config, const struct qr_backend *be, int32_t n_sharing)
{
    QR_ASSERT(config != NULL && config->kv_host_bytes >= 0);
    QR_ASSERT(be != NULL && n_sharing >= 1);
    return be->mem->available() / n_sharing - (be->mem->host ? config->kv_host_bytes : 0);
}

int qr_engine_host_room(const struct qr_engine_config *config, int32_t n_ranks, struct qr_err *err)
{
    QR_ASSERT(config != NULL && n_ranks >= 1);
    QR_ASSERT(err != NULL);
    const int64_t left = qr_memory_available();
    char each[48] = "";
    if (config->kv_host_bytes <= left / n_ranks)
        return 0;
    if (n_ranks > 1)
        snprintf(each, sizeof each, " for each of %d processes", n_ranks);
    return qr_err_set(err, QR_E_NO_ROOM, "does not fit: --kv-host-gib asks for %.2f GiB of the host's memory%s, %.2f GiB are free",
                      (double)config->kv_host_bytes / 0x1p30, each, (double)left / 0x1p30);
}

void qr_tier_open(struct qr_engine *e)
{
    QR_ASSERT(e != NULL && e->be != NULL);
    QR_ASSERT(e->kv_host == NULL);
    if (e->limits.kv_host_bytes > 0)
        e->kv_host = e->be->mem->host_alloc((size_t)e->limits.kv_host_bytes);
    e->exec.kv_host = e->kv_host;
}

void qr_tier_close(struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    if (!e->kv_host)
        return;
    QR_ASSERT(e->be != NULL);
    e->be->mem->sync(e->be->queue); /* a copy may be in flight */
    e->be->mem->host_free(e->kv_host);
    e->kv_host = NULL;
}

void qr_tier_move(struct qr_engine *e)
{
    QR_ASSERT(e != NULL && e->pool != NULL);
    int32_t n = 0;
    const struct qr_kv_move *move = qr_kv_moves(e->pool, &n);
    for (int32_t i = 0; i < n; i++)
        qr_model_kv_move(&e->exec, move[i].from, move[i].to);
    qr_kv_moved(e->pool);
}
