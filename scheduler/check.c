/* check.c - every invariant of scheduler and pool in one function, for tests and debug builds. */
#include <string.h>

#include "kvcache/kv_pin.h"
#include "kvcache/kv_prefix.h"
#include "scheduler/sched_internal.h"

/* A queue holds sequences of its state in strict order. Queues of different states cannot share a member then. */
static const char *check_queue(const struct qr_sched *s, const struct qr_sched_queue *q, enum qr_seq_state state)
{
    bool (*const before)(const struct qr_sched_slot *, const struct qr_sched_slot *) = qr_is_ranked(s, q) ? qr_ranks_before : qr_waits_before;
    for (int32_t i = 0; i < q->n; i++) {
        if (q->seq[i] < 0 || q->seq[i] >= s->n_slots || s->slot[q->seq[i]].seq.state != state)
            return "a queue holds a sequence of another state";
        if (i > 0 && !before(&s->slot[q->seq[i - 1]], &s->slot[q->seq[i]]))
            return "a queue is out of order or holds a sequence twice";
    }
    return NULL;
}

static const char *check_counts(const struct qr_seq *q)
{
    if (q->n_prompt < 1 || q->n_ids < q->n_prompt || q->n_ids > q->n_prompt + q->new_max)
        return "a sequence has more tokens than it may, or fewer than its prompt";
    if (q->n_computed < 0 || q->n_computed > q->n_ids || q->n_computed > qr_rows_max(q))
        return "a sequence has more rows computed than known";
    if (q->state == QR_SEQ_DECODE && q->n_computed < q->n_prompt)
        return "a sequence in decode has part of its prompt to compute";
    if (q->n_draft < 0 || (q->n_draft > 0 && (q->state != QR_SEQ_DECODE || q->n_ids + q->n_draft > qr_rows_max(q))))
        return "a sequence has guesses that it may not have";
    if (q->state == QR_SEQ_PREFILL && q->n_computed >= qr_rows_known(q))
        return "a sequence in prefill has nothing to compute";
    return NULL;
}

static const char *check_waiting(const struct qr_sched_slot *x)
{
    const struct qr_seq *q = &x->seq;
    if (x->table >= 0 || q->blocks != NULL || q->n_blocks != 0 || q->n_computed != 0 || x->reserve != 0 || x->seq.planned)
        return "a sequence that waits, or is held, has blocks or rows";
    return NULL;
}

/* Counts the references of a part of q's table. Blocks that will still be written are its own and not in the index. */
static const char *check_blocks(const struct qr_sched *s, const struct qr_seq *q, int32_t part)
{
    for (int32_t i = qr_part_first(s, q, part); i < q->n_blocks; i++) {
        const int32_t b = *qr_block_at(s, q, part, i);
        s->count[b]++;
        if (i >= q->n_computed / s->block_tokens && qr_kv_refs(s->pool, b) != 1)
            return "a block that will be written is shared";
        const int32_t *ids = q->ids + (size_t)i * (size_t)s->block_tokens, *held = qr_kv_prefix_tokens(s->pool, b);
        if (held != NULL && i >= q->n_computed / s->block_tokens)
            return "a block that will be written is in the index";
        if (held != NULL && (part == 0 ? memcmp(held, ids, (size_t)s->block_tokens * sizeof *ids) != 0 : held[0] != -part))
            return "a sequence holds a block of other tokens, or another twin";
    }
    return NULL;
}

static const char *check_running(const struct qr_sched *s, const struct qr_sched_slot *x)
{
    const struct qr_seq *q = &x->seq;
    if (x->table < 0 || q->blocks != s->tables + (size_t)x->table * (size_t)qr_blocks_each(s) * (size_t)s->blocks_max)
        return "a running sequence has no block table";
    if (q->n_blocks < qr_blocks_for(s, q->n_computed) || q->n_blocks > s->blocks_max ||
        q->n_blocks > qr_blocks_for(s, qr_rows_max(q)) || q->n_blocks - q->n_behind > s->hold_max)
        return "a running sequence has too few or too many blocks";
    if (q->planned && q->n_blocks < qr_blocks_for(s, q->n_ids * (q->n_draft > 0) + q->n_draft))
        return "a planned guess has no block";
    if (q->n_behind != qr_blocks_behind(s, q->n_computed))
        return "a sequence holds blocks behind its window, or has given back what it reads";
    if (x->reserve < 0 || (x->reserve > 0 && !qr_protected(s, q)))
        return "a reservation is negative or belongs to a sequence that may be preempted";
    if (qr_protected(s, q) && x->reserve != qr_blocks_more(s, q, qr_rows_max(q)))
        return "a protected sequence has not its whole need reserved";
    const char *broken = NULL;
    for (int32_t part = 0; part < qr_blocks_each(s) && broken == NULL; part++)
        broken = check_blocks(s, q, part);
    return broken;
}

static const char *check_slots(const struct qr_sched *s)
{
    int32_t n_used = 0, reserved = 0, n_planned = 0;
    int64_t waiting_tokens = 0;
    for (int32_t i = 0; i < s->n_slots; i++) {
        const struct qr_sched_slot *x = &s->slot[i];
        if (x->seq.state == QR_SEQ_FREE)
            continue;
        n_used++;
        waiting_tokens += x->seq.state == QR_SEQ_WAITING ? x->seq.n_ids : 0;
        reserved += x->reserve;
        n_planned += x->seq.planned;
        const char *broken = check_counts(&x->seq);
        if (broken == NULL)
            broken = x->seq.state <= QR_SEQ_WAITING ? check_waiting(x) : check_running(s, x);
        if (broken == NULL && x->seq.n_preempted > s->config.preempt_max)
            broken = "a sequence was preempted too often";
        if (broken != NULL)
            return broken;
    }
    if (n_used != s->held.n + s->waiting.n + qr_n_running(s))
        return "a sequence is in no queue";
    if (reserved != s->reserved || s->reserved > qr_kv_pool_available(s->pool))
        return "the reserved blocks are not there or do not add up";
    if (waiting_tokens != s->waiting_tokens)
        return "the ids of waiting sequences do not add up";
    return n_planned == s->n_planned ? NULL : "the planned sequences do not add up";
}

/* Those of a key that run stand by priority and arrival, and have ranks of their own. */
static const char *check_ranks(const struct qr_sched *s)
{
    for (int32_t i = 0; i < qr_n_running(s); i++) {
        const struct qr_sched_slot *a = &s->slot[i < s->prefill.n ? s->prefill.seq[i] : s->decode.seq[i - s->prefill.n]];
        if (a->rank == 0)
            return "a sequence runs that was never admitted";
        for (int32_t k = 0; k < s->decode.n; k++) {
            const struct qr_sched_slot *b = &s->slot[s->decode.seq[k]];
            if (a != b && (a->rank == b->rank || (qr_same_key(s, a, b) && qr_ranks_before(a, b) != qr_goes_before(a, b))))
                return "a key's sequences run out of order";
        }
    }
    return NULL;
}

/* Whose turn it is rests on counters that add up and keep the bound. */
static const char *check_turns(const struct qr_sched *s)
{
    const struct qr_fair_node *node = s->fair.node;
    for (int32_t i = 0, first = 0; i < s->waiting.n; i++) {
        const int32_t user = s->slot[s->waiting.seq[i]].user;
        first = user != s->slot[s->waiting.seq[first]].user ? i : first;
        const bool last = i + 1 == s->waiting.n || s->slot[s->waiting.seq[i + 1]].user != user;
        if (last && (node[user].n_waiting != i + 1 - first || qr_waiting_of(s, user) != first))
            return "a user has other sequences waiting than the queue has of it";
    }
    if (node[0].n_waiting != s->waiting.n || node[0].n_inside != s->held.n + s->waiting.n + qr_n_running(s))
        return "the sequences of all keys are not those that are there";
    return qr_fair_check(&s->fair, QR_FAIR_OUT * (double)s->config.running_max * s->config.ctx_max);
}

const char *qr_sched_check(const struct qr_sched *s)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->count != NULL);
    struct qr_kv_stats stats;
    qr_kv_pool_stats(s->pool, &stats);
    memset(s->count, 0, (size_t)stats.n_blocks * sizeof *s->count);
    const char *broken = qr_kv_pool_check(s->pool);
    if (broken == NULL)
        broken = check_queue(s, &s->held, QR_SEQ_HELD);
    if (broken == NULL)
        broken = check_queue(s, &s->waiting, QR_SEQ_WAITING);
    if (broken == NULL)
        broken = check_queue(s, &s->prefill, QR_SEQ_PREFILL);
    if (broken == NULL)
        broken = check_queue(s, &s->decode, QR_SEQ_DECODE);
    if (broken == NULL)
        broken = check_slots(s);
    if (broken == NULL)
        broken = check_ranks(s);
    if (broken == NULL)
        broken = check_turns(s);
    if (broken != NULL)
        return broken;
    if (qr_n_running(s) + s->n_free_tables != s->config.running_max)
        return "the block tables do not add up";
    for (int32_t b = 0; b < stats.n_blocks; b++) {
        if (s->count[b] + qr_kv_pins_of(s->pool, b) != qr_kv_refs(s->pool, b))
            return "a block's reference count is not the number of tables and pins that hold it";
    }
    return NULL;
}
