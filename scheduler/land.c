/* land.c - sequences that are held while blocks of theirs come from elsewhere. What came is cached, as what was computed is, and no sequence's: one that is let
 * go finds it, or what is left of it, when it is admitted. So nothing is reserved, and nothing is to be undone. */
#include "kvcache/kv_prefix.h"
#include "scheduler/sched_internal.h"

void qr_sched_let_go(struct qr_sched *s, int32_t seq)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(qr_slot(s, seq)->seq.state == QR_SEQ_HELD);
    qr_seq_move(s, seq, QR_SEQ_WAITING);
}

int32_t qr_sched_spare(const struct qr_sched *s)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->reserved >= 0);
    return qr_kv_pool_available(s->pool) - s->reserved - qr_blocks_promised(s) - s->config.watermark_blocks;
}

static const int32_t *next_ids(const struct qr_sched *s, const struct qr_seq *q)
{
    QR_ASSERT(q->n_found >= 0 && q->n_found + s->block_tokens < q->n_prompt);
    return q->ids + q->n_found;
}

/* `block` is the entry of the ids behind those that were found. */
static void found_next(struct qr_sched *s, struct qr_sched_slot *x, int32_t block)
{
    x->tail = qr_kv_tail_of(s->pool, block);
    x->seq.n_found += s->block_tokens;
}

int32_t qr_sched_place(struct qr_sched *s, int32_t seq, int32_t index)
{
    struct qr_sched_slot *x = qr_slot(s, seq);
    struct qr_seq *q = &x->seq;
    QR_ASSERT(q->state == QR_SEQ_HELD && !q->prompt_logits && s->twins.n == 0);
    QR_ASSERT(index >= 0 && index < (q->n_prompt - 1) / s->block_tokens);
    if (q->n_found < 0 || !qr_kv_tail_holds(s->pool, x->tail))
        qr_sched_find(s, seq);
    if (index != q->n_found / s->block_tokens)
        return index < q->n_found / s->block_tokens ? QR_PLACE_HAS : QR_PLACE_NONE;
    const int32_t there = qr_kv_behind(s->pool, x->tail, q->salt, next_ids(s, q));
    if (there >= 0) {
        found_next(s, x, there);
        return QR_PLACE_HAS;
    }
    if (qr_sched_spare(s) <= 0)
        return QR_PLACE_NONE;
    const int32_t block = qr_kv_alloc_behind(s->pool, x->tail);
    if (block < 0)
        return QR_PLACE_NONE; /* the cache is too small for what comes: the very block before would go */
    qr_kv_set_owner(s->pool, block, q->owner);
    return block;
}

void qr_sched_land(struct qr_sched *s, int32_t seq, int32_t block)
{
    struct qr_sched_slot *x = qr_slot(s, seq);
    QR_ASSERT(x->seq.state == QR_SEQ_HELD);
    QR_ASSERT(qr_kv_refs(s->pool, block) == 1);
    qr_kv_land(s->pool, block, x->tail, x->seq.salt, &x->seq.root, next_ids(s, &x->seq), x->seq.about);
    found_next(s, x, block);
}
