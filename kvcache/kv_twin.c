#include "kvcache/kv_twin.h"

#include "kvcache/kv_internal.h"
#include "kvcache/kv_prefix.h"

void qr_kv_twins_open(struct qr_kv_pool *p, const struct qr_kv_twins *twins)
{
    QR_ASSERT(p != NULL && p->n_host == 0 && p->names == NULL && p->n_free == p->n_blocks);
    QR_ASSERT(twins != NULL && twins->n >= 1 && twins->stride >= 1 && twins->n_kept >= 1);
    p->twins = *twins;
}

const struct qr_kv_twins *qr_kv_twins(const struct qr_kv_pool *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->twins.n >= 0);
    return &p->twins;
}

const int32_t *qr_kv_twin_ids(int32_t ids[QR_KV_BLOCK_TOKENS_MAX], int32_t k)
{
    QR_ASSERT(ids != NULL);
    QR_ASSERT(k >= 0);
    for (int32_t i = 0; i < QR_KV_BLOCK_TOKENS_MAX; i++)
        ids[i] = -1 - k;
    return ids;
}

void qr_kv_twins_enter(struct qr_kv_pool *p, const int32_t *blocks, int32_t i)
{
    int32_t ids[QR_KV_BLOCK_TOKENS_MAX];
    QR_ASSERT(p != NULL && blocks != NULL);
    QR_ASSERT(i >= 0 && (p->twins.n == 0 || i < p->twins.stride));
    for (int32_t k = 0; k < p->twins.n; k++)
        qr_kv_prefix_enter(p, blocks[(1 + k) * p->twins.stride + i], blocks[i], (struct qr_hash128){0}, qr_kv_twin_ids(ids, k));
}

/* The twins of block[0] to their places behind it. False: one is missing. */
static bool find_twins(const struct qr_kv_pool *p, int32_t *block)
{
    int32_t ids[QR_KV_BLOCK_TOKENS_MAX];
    const struct qr_kv_block *x = qr_kv_at(p, block[0]);
    bool all = true;
    for (int32_t k = 0; k < p->twins.n && all; k++) {
        const struct qr_hash128 hash = qr_kv_chain(p, x->hash, qr_kv_twin_ids(ids, k));
        int32_t *twin = block + (1 + k) * p->twins.stride;
        *twin = qr_kv_index_find(p, hash, x->uid, (struct qr_hash128){0}, ids);
        all = *twin >= 0;
    }
    return all;
}

int32_t qr_kv_twins_find(struct qr_kv_pool *p, int32_t *blocks, int32_t n)
{
    QR_ASSERT(p != NULL && blocks != NULL);
    QR_ASSERT(n >= 0 && n <= p->twins.stride);
    const struct qr_kv_twins *t = &p->twins;
    int32_t first = n, end = n; /* those from first on have twins */
    while (first > 0 && end - first < t->n_kept)
        if (!find_twins(p, blocks + --first))
            end = first;
    while (n > end)
        qr_kv_unref(p, blocks[--n]);
    for (int32_t k = 1; k <= t->n; k++) {
        for (int32_t i = 0; i < first; i++)
            blocks[k * t->stride + i] = blocks[k * t->stride + first];
        for (int32_t i = first; i < end; i++)
            qr_kv_hold(p, blocks[k * t->stride + i]);
    }
    return end;
}
