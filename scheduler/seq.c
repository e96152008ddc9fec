/* seq.c - a sequence's place in the queues and its hold on blocks. */
#include <string.h>

#include "scheduler/sched_internal.h"

/* The first position whose sequence is not before x. */
static int32_t position(const struct qr_sched *s, const struct qr_sched_queue *q, const struct qr_sched_slot *x)
{
    int32_t lo = 0, hi = q->n;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        const struct qr_sched_slot *at = &s->slot[q->seq[mid]];
        if (qr_is_ranked(s, q) ? qr_ranks_before(at, x) : qr_waits_before(at, x))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void qr_queue_insert(struct qr_sched *s, struct qr_sched_queue *q, int32_t seq)
{
    QR_ASSERT(q->n < s->n_slots);
    int32_t at = position(s, q, qr_slot(s, seq));
    QR_ASSERT(at == q->n || q->seq[at] != seq);
    memmove(q->seq + at + 1, q->seq + at, (size_t)(q->n - at) * sizeof *q->seq);
    q->seq[at] = seq;
    q->n++;
    if (q != &s->waiting)
        return;
    s->waiting_tokens += s->slot[seq].seq.n_ids;
    qr_fair_wait(&s->fair, s->slot[seq].user);
}

void qr_queue_remove(struct qr_sched *s, struct qr_sched_queue *q, int32_t seq)
{
    int32_t at = position(s, q, qr_slot(s, seq));
    QR_ASSERT(at < q->n);
    QR_ASSERT(q->seq[at] == seq);
    q->n--;
    memmove(q->seq + at, q->seq + at + 1, (size_t)(q->n - at) * sizeof *q->seq);
    if (q != &s->waiting)
        return;
    s->waiting_tokens -= s->slot[seq].seq.n_ids;
    qr_fair_unwait(&s->fair, s->slot[seq].user);
}

int32_t qr_waiting_of(const struct qr_sched *s, int32_t user)
{
    const struct qr_sched_slot first = {.user = user, .seq.priority = INT32_MIN};
    QR_ASSERT(user >= 0);
    return position(s, &s->waiting, &first);
}

struct qr_sched_queue *qr_queue_of(struct qr_sched *s, enum qr_seq_state state)
{
    struct qr_sched_queue *const of[] = {[QR_SEQ_HELD] = &s->held, [QR_SEQ_WAITING] = &s->waiting, [QR_SEQ_PREFILL] = &s->prefill,
                                         [QR_SEQ_DECODE] = &s->decode};
    QR_ASSERT(state > QR_SEQ_FREE && state < QR_COUNT(of));
    return of[state];
}

void qr_seq_move(struct qr_sched *s, int32_t seq, enum qr_seq_state to)
{
    struct qr_sched_slot *x = qr_slot(s, seq);
    QR_ASSERT(x->seq.state != to);
    qr_queue_remove(s, qr_queue_of(s, x->seq.state), seq);
    x->seq.state = to;
    qr_queue_insert(s, qr_queue_of(s, to), seq);
}

/* Of those that run, of x's key: the one whose rank is the nearest ahead of x's, or behind it; NULL: none. */
static struct qr_sched_slot *neighbour(const struct qr_sched *s, const struct qr_sched_slot *x, bool ahead)
{
    const struct qr_sched_queue *queues[2] = {&s->prefill, &s->decode};
    struct qr_sched_slot *found = NULL;
    for (int i = 0; i < 2; i++) {
        for (int32_t k = 0; k < queues[i]->n; k++) {
            struct qr_sched_slot *y = &s->slot[queues[i]->seq[k]];
            const bool nearer = qr_ranks_before(y, x) == ahead && (found == NULL || qr_ranks_before(found, y) == ahead);
            if (nearer && qr_same_key(s, x, y))
                found = y;
        }
    }
    return found;
}

/* After ranks have changed hands: few are out of place. */
static void sort(const struct qr_sched *s, struct qr_sched_queue *q)
{
    for (int32_t i = 1; i < q->n; i++) {
        for (int32_t k = i; k > 0 && qr_ranks_before(&s->slot[q->seq[k]], &s->slot[q->seq[k - 1]]); k--) {
            const int32_t seq = q->seq[k];
            q->seq[k] = q->seq[k - 1];
            q->seq[k - 1] = seq;
        }
    }
}

/* x is admitted. */
void qr_seq_rank(struct qr_sched *s, struct qr_sched_slot *x)
{
    bool changed = false;
    QR_ASSERT(x->seq.state == QR_SEQ_WAITING);
    if (x->rank == 0)
        x->rank = ++s->rank_last;
    for (int side = 0; side < 2; side++) {
        const bool ahead = side == 0;
        struct qr_sched_slot *y;
        while ((y = neighbour(s, x, ahead)) != NULL && qr_goes_before(x, y) == ahead) {
            const uint64_t rank = x->rank;
            x->rank = y->rank;
            y->rank = rank;
            changed = true;
        }
    }
    if (changed) {
        sort(s, &s->prefill);
        sort(s, &s->decode);
    }
}

void qr_seq_take_table(struct qr_sched *s, struct qr_sched_slot *x)
{
    QR_ASSERT(x->table < 0);
    QR_ASSERT(s->n_free_tables > 0);
    x->table = s->free_tables[--s->n_free_tables];
    x->seq.blocks = s->tables + (size_t)x->table * (size_t)qr_blocks_each(s) * (size_t)s->blocks_max;
    x->seq.n_blocks = 0;
    x->seq.tenure = ++s->tenure_last;
}

void qr_seq_drop_blocks(struct qr_sched *s, struct qr_seq *q)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(q->n_behind <= q->n_blocks);
    for (int32_t i = q->n_blocks - 1; i >= 0; i--)
        for (int32_t part = s->twins.n; part >= 0; part--)
            if (i >= qr_part_first(s, q, part))
                qr_kv_unref(s->pool, *qr_block_at(s, q, part, i));
    q->n_blocks = q->n_behind = 0;
}

void qr_seq_release_blocks(struct qr_sched *s, struct qr_sched_slot *x)
{
    if (x->table < 0)
        return;
    QR_ASSERT(s->n_free_tables < s->config.running_max);
    QR_ASSERT(s->reserved >= x->reserve);
    qr_seq_drop_blocks(s, &x->seq); /* tails leave the cache before heads */
    s->reserved -= x->reserve;
    x->reserve = 0;
    s->free_tables[s->n_free_tables++] = x->table;
    x->table = -1;
    x->seq.blocks = NULL;
    x->seq.tenure = 0;
}

void qr_seq_leave_behind(struct qr_sched *s, struct qr_sched_slot *x)
{
    struct qr_seq *q = &x->seq;
    const int32_t n = qr_blocks_behind(s, q->n_computed);
    QR_ASSERT(x->table >= 0 && n <= q->n_blocks);
    for (int32_t i = n - 1; i >= q->n_behind; i--)
        for (int32_t part = s->twins.n; part >= (s->twins.n > 0); part--)
            qr_kv_unref(s->pool, *qr_block_at(s, q, part, i));
    q->n_behind = n > q->n_behind ? n : q->n_behind;
    if (qr_is_apart(s, q)) {
        s->reserved -= x->reserve;
        x->reserve = qr_blocks_more(s, q, qr_rows_max(q));
        s->reserved += x->reserve;
    }
}

bool qr_seq_take_block(struct qr_sched *s, struct qr_sched_slot *x)
{
    const int32_t n = qr_blocks_each(s);
    QR_ASSERT(x->table >= 0);
    QR_ASSERT(x->seq.n_blocks < s->blocks_max);
    QR_ASSERT(x->reserve == 0 || x->reserve >= n);
    if (x->reserve > 0) {
        x->reserve -= n;
        s->reserved -= n;
    } else if (qr_kv_pool_available(s->pool) - s->reserved < n) {
        return false;
    }
    for (int32_t part = 0; part < n; part++) {
        const int32_t b = qr_kv_alloc(s->pool);
        QR_ASSERT(b >= 0);
        qr_kv_set_owner(s->pool, b, x->seq.owner);
        *qr_block_at(s, &x->seq, part, x->seq.n_blocks) = b;
    }
    x->seq.n_blocks++;
    return true;
}

/* The last in rank behind x that may be preempted, or -1. One that waits for its sampled token is spared for now. */
static int32_t choose_victim(const struct qr_sched *s, const struct qr_sched_slot *x)
{
    const struct qr_sched_queue *queues[2] = {&s->prefill, &s->decode};
    int32_t victim = -1;
    for (int i = 0; i < 2; i++) {
        for (int32_t k = queues[i]->n - 1; k >= 0; k--) {
            const struct qr_sched_slot *v = &s->slot[queues[i]->seq[k]];
            if (!qr_ranks_before(x, v) || (victim >= 0 && !qr_ranks_before(&s->slot[victim], v)))
                break; /* sorted: everything further ahead ranks better still */
            if (!qr_protected(s, &v->seq) && !qr_seq_idle(&v->seq))
                victim = queues[i]->seq[k];
        }
    }
    return victim;
}

static bool preempt_behind(struct qr_sched *s, const struct qr_sched_slot *x, struct qr_plan *plan)
{
    int32_t victim = choose_victim(s, x);
    if (victim < 0)
        return false;
    struct qr_sched_slot *v = qr_slot(s, victim);
    QR_ASSERT(!v->seq.planned);
    QR_ASSERT(v->reserve == 0);
    qr_seq_release_blocks(s, v);
    v->computed_peak = v->computed_peak > v->seq.n_computed ? v->computed_peak : v->seq.n_computed;
    v->seq.n_computed = v->seq.n_draft = 0;
    v->seq.n_preempted++;
    qr_seq_move(s, victim, QR_SEQ_WAITING);
    s->n_preempted++;
    plan->n_preempted++;
    return true;
}

int32_t qr_seq_grow(struct qr_sched *s, int32_t seq, int32_t n_rows, struct qr_plan *plan)
{
    struct qr_sched_slot *x = qr_slot(s, seq);
    QR_ASSERT(n_rows > x->seq.n_computed);
    QR_ASSERT(n_rows <= qr_rows_max(&x->seq));
    int32_t n_placed;
    while ((n_placed = x->seq.n_blocks * s->block_tokens) < n_rows) {
        if (qr_seq_take_block(s, x))
            continue;
        if (n_placed > x->seq.n_computed || !preempt_behind(s, x, plan))
            break;
    }
    return n_placed < n_rows ? n_placed : n_rows;
}
