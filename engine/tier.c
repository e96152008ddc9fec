/* tier.c - the cache's second tier: blocks in the host's memory (kvcache/kv_pool.h says which are where). */
#include "base/assert.h"
#include "base/mem.h"
#include "engine/internal.h"

int64_t qr_engine_available(const struct qr_engine_config *config, const struct qr_backend *be)
{
    QR_ASSERT(config != NULL && config->kv_host_bytes >= 0);
    QR_ASSERT(be != NULL);
    return be->mem->available() - (be->mem->host ? config->kv_host_bytes : 0);
}

int qr_engine_host_room(const struct qr_engine_config *config, int32_t n_ranks, struct qr_err *err)
{
    QR_ASSERT(config != NULL && n_ranks >= 1);
    QR_ASSERT(err != NULL);
    const int64_t left = qr_memory_available();
    if (config->kv_host_bytes > 0 && n_ranks > 1)
        return qr_err_set(err, QR_E_UNSUPPORTED,
                          "--kv-host-gib: blocks of several processes stay where they are; start without it, or without --tensor-parallel");
    if (config->kv_host_bytes <= left)
        return 0;
    return qr_err_set(err, QR_E_NO_ROOM, "does not fit: --kv-host-gib asks for %.2f GiB of the host's memory, %.2f GiB are free",
                      (double)config->kv_host_bytes / 0x1p30, (double)left / 0x1p30);
}

void qr_tier_open(struct qr_engine *e)
{
    QR_ASSERT(e != NULL && e->be != NULL);
    QR_ASSERT(e->kv_host == NULL);
    if (e->limits.kv_host_bytes > 0)
        e->kv_host = e->be->mem->host_alloc((size_t)e->limits.kv_host_bytes);
}

void qr_tier_close(struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    if (!e->kv_host)
        return;
    QR_ASSERT(e->be != NULL);
    e->be->mem->sync(e->be->queue); /* a copy may be under way */
    e->be->mem->host_free(e->kv_host);
    e->kv_host = NULL;
}

void qr_tier_move(struct qr_engine *e)
{
    QR_ASSERT(e != NULL && e->pool != NULL);
    int32_t n = 0;
    const struct qr_kv_move *move = qr_kv_moves(e->pool, &n);
    const struct qr_mem_ops *mem = e->be->mem;
    const size_t bytes = (size_t)(e->limits.kv_bytes / e->limits.n_blocks);
    const int32_t first = e->limits.n_blocks; /* of the second tier */
    QR_ASSERT(n == 0 || e->kv_host != NULL);
    for (int32_t i = 0; i < n; i++) {
        const int32_t from = move[i].from, to = move[i].to;
        if (qr_kv_is_host(e->pool, to))
            mem->fetch(e->be->queue, e->kv_host + (size_t)(to - first) * bytes, (const uint8_t *)e->kv_mem + (size_t)from * bytes, bytes);
        else
            mem->send(e->be->queue, (uint8_t *)e->kv_mem + (size_t)to * bytes, e->kv_host + (size_t)(from - first) * bytes, bytes);
    }
    qr_kv_moved(e->pool);
}
