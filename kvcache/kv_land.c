#include "kvcache/kv_land.h"

#include "kvcache/kv_internal.h"
#include "kvcache/kv_prefix.h"

struct qr_kv_tail qr_kv_tail_of(const struct qr_kv_pool *p, int32_t block)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(block >= -1 && block < qr_kv_n_all(p));
    return block < 0 ? (struct qr_kv_tail){0} : (struct qr_kv_tail){.uid = qr_kv_at(p, block)->uid, .block = block};
}

bool qr_kv_tail_holds(const struct qr_kv_pool *p, struct qr_kv_tail tail)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(tail.block >= 0 && tail.block < qr_kv_n_all(p));
    return tail.uid == 0 || (qr_kv_at(p, tail.block)->indexed && qr_kv_at(p, tail.block)->uid == tail.uid);
}

int32_t qr_kv_behind(const struct qr_kv_pool *p, struct qr_kv_tail tail, struct qr_hash128 salt, const int32_t *ids)
{
    QR_ASSERT(p != NULL && ids != NULL);
    QR_ASSERT(qr_kv_tail_holds(p, tail));
    const struct qr_hash128 hash = qr_kv_chain(p, tail.uid != 0 ? qr_kv_at(p, tail.block)->hash : salt, ids);
    return qr_kv_index_find(p, hash, tail.uid, salt, ids);
}

int32_t qr_kv_alloc_behind(struct qr_kv_pool *p, struct qr_kv_tail tail)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(qr_kv_tail_holds(p, tail));
    const bool next_to_go = tail.uid != 0 && qr_kv_at(p, qr_kv_cached_head(p, tail.block))->next == tail.block;
    const int32_t block = next_to_go && p->n_free == 0 ? -1 : qr_kv_alloc(p);
    QR_ASSERT(qr_kv_tail_holds(p, tail));
    return block;
}

void qr_kv_land(struct qr_kv_pool *p, int32_t block, struct qr_kv_tail tail, struct qr_hash128 salt, const struct qr_kv_name *root, const int32_t *ids,
                int32_t about)
{
    QR_ASSERT(p != NULL && qr_kv_refs(p, block) == 1);
    QR_ASSERT(qr_kv_tail_holds(p, tail));
    const int32_t parent = tail.uid != 0 ? tail.block : -1;
    const bool entered = qr_kv_prefix_enter(p, block, parent, salt, ids);
    QR_ASSERT(entered);
    qr_kv_name_enter(p, block, parent, root, ids, about);
    qr_kv_unref(p, block);
    if (parent >= 0 && parent < p->n_blocks && qr_kv_at(p, parent)->refs == 0) { /* not behind it, as what was let go later */
        qr_kv_unlink(p, block);
        qr_kv_link_before(p, parent, block);
    }
}
