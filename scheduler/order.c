/* Which of those that wait would be begun first, were the turns of their clients played on (fair.h). For estimates. */
#include "base/assert.h"
#include "scheduler/sched_internal.h"

#define TURNS_MAX 512 /* so many are played; behind them come the others, a client at a time */

/* Sequences of this user that were put into the order. */
static int32_t n_ordered(const struct qr_sched *s, int32_t user)
{
    return s->fair.node[user].n_waiting - s->ahead.node[user].n_waiting;
}

const int32_t *qr_sched_order(struct qr_sched *s, int32_t *n)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(n != NULL);
    const int32_t *waiting = s->waiting.seq;
    int32_t user, n_done = 0;
    *n = s->waiting.n;
    if (*n == 0 || s->slot[waiting[0]].user == s->slot[waiting[*n - 1]].user)
        return waiting;
    qr_fair_copy(&s->ahead, &s->fair);
    qr_fair_begin(&s->ahead);
    while (n_done < *n && n_done < TURNS_MAX && (user = qr_fair_next(&s->ahead)) >= 0) {
        const int32_t seq = waiting[qr_waiting_of(s, user) + n_ordered(s, user)];
        s->order[n_done++] = seq;
        qr_fair_charge(&s->ahead, user, QR_FAIR_IN * (double)s->slot[seq].seq.n_ids);
        qr_fair_unwait(&s->ahead, user);
    }
    for (int32_t i = 0, first = 0; i < *n; i++) {
        first = i > 0 && s->slot[waiting[i]].user == s->slot[waiting[i - 1]].user ? first : i;
        if (i - first >= n_ordered(s, s->slot[waiting[i]].user))
            s->order[n_done++] = waiting[i];
    }
    QR_ASSERT(n_done == *n);
    return s->order;
}
