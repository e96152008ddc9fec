/* deadline.c - which requests cannot be in time: at arrival, when they are told so at once, and while they wait, when the one is ended whose going helps the
 * others first. What has begun goes on. From predicted times alone, never from the clock's luck. Engine thread; nothing is allocated in a step. */
#include "engine/deadline.h"

#include <math.h>

#include "base/assert.h"
#include "base/mem.h"
#include "engine/internal.h"

#define LOOK_US 100000
#define HOPE 1.18     /* what comes meanwhile makes a request wait longer than was predicted of the queue that it found */
#define LENIENT 1.2   /* what alone misses the goal may take so much longer than alone: while little else is there */
#define PATIENCE 1.1  /* what was let in may be late by so much: it has waited for it */
#define SURE 1.25     /* by so much a prediction has to miss a limit, where trying again is no use */

/* Tokens of its prompt that are to be computed. */
static int32_t tokens_of(const struct qr_seq *q)
{
    return q->n_ids - (q->n_found > 0 ? q->n_found : 0);
}

double qr_deadline_limit_us(const struct qr_backlog_steps *steps, const struct qr_seq *q, double goal_us, double waited_us, bool arrives)
{
    QR_ASSERT(steps != NULL && q != NULL);
    QR_ASSERT(goal_us > 0 && waited_us >= 0);
    const double alone = qr_backlog_alone_us(steps, tokens_of(q)), most = alone > goal_us ? alone * LENIENT : goal_us;
    return arrives ? (most - waited_us) / HOPE : most * PATIENCE - waited_us;
}

void qr_deadlines_init(struct qr_deadlines *d, int32_t n_slots)
{
    QR_ASSERT(d != NULL);
    QR_ASSERT(n_slots >= 1);
    *d = (struct qr_deadlines){0};
    d->limit_us = qr_alloc((size_t)n_slots, sizeof *d->limit_us);
    d->late = qr_alloc((size_t)n_slots, sizeof *d->late);
}

void qr_deadlines_release(struct qr_deadlines *d)
{
    QR_ASSERT(d != NULL);
    qr_free(d->limit_us);
    qr_free(d->late);
    *d = (struct qr_deadlines){0};
}

/* Of inputs that follow others of their call the first has spoken. */
static bool has_goal(const struct qr_engine *e, const struct qr_request *r)
{
    return e->config.ttft_goal_us > 0 && !r->continues && r->pooling == QR_POOLING_NONE && r->sampling.max_tokens > 0;
}

static bool has_timeout(const struct qr_request *r)
{
    return r->timed && !r->continues && r->deadline_us != 0;
}

/* The choice that computes the prompt; its siblings share it. */
static int32_t leader_of(const struct qr_engine *e, const struct qr_request *r)
{
    int32_t i = 0;
    while (i < e->n_slots && (e->slot[i].req != r || e->slot[i].choice != 0))
        i++;
    return i;
}

/* The least time of what it draws in any case behind its first token, which its own time limit holds of, too: all guesses may be right. */
static double draws_us(const struct qr_engine *e, const struct qr_backlog_steps *steps, const struct qr_request *r)
{
    const struct qr_step_size one = {.n_decode = 1};
    const int32_t n = qr_request_draws_min(r);
    const int32_t n_steps = n > 1 ? (n - 1 + e->config.draft_tokens) / (1 + e->config.draft_tokens) : 0;
    return has_timeout(r) ? n_steps * qr_predict_us(steps->predict, &one) : 0;
}

void qr_deadlines_enter(struct qr_engine *e, struct qr_request *r, int64_t now)
{
    QR_ASSERT(e != NULL && r != NULL);
    QR_ASSERT(r->n_open == r->n_choices);
    const struct qr_backlog_steps steps = qr_engine_steps(e);
    const double left_us = r->deadline_us != 0 ? (double)(r->deadline_us - now) : INFINITY, draws = draws_us(e, &steps, r);
    const bool limited = has_goal(e, r) || has_timeout(r), slow = qr_backlog_alone_us(&steps, r->n_prompt) + draws > left_us * SURE;
    r->fresh = limited;
    e->deadlines.arrived |= limited;
    if (!limited && !slow)
        return;
    const int32_t index = leader_of(e, r);
    const struct qr_seq *q = qr_sched_seq(e->sched, index);
    qr_sched_find(e->sched, index);
    const double alone = qr_backlog_alone_us(&steps, tokens_of(q)) + draws;
    if (alone <= left_us * SURE)
        return;
    r->late = QR_LATE_ALONE;
    qr_err_set(&r->err, QR_E_TOO_LARGE, "%d prompt tokens and %d to be drawn would take about %.2f s alone, and it may take %.2f s", tokens_of(q),
               draws > 0 ? q->new_min : 1, alone * 1e-6, (double)(r->deadline_us - r->arrived_us) * 1e-6);
    atomic_store(&e->to_reap, true);
}

/* Until when, from now on, its first token has to be there; timeout: because of its own time limit. */
static double limit_of(const struct qr_engine *e, const struct qr_backlog_steps *steps, const struct qr_request *r, const struct qr_seq *q, int64_t now,
                       bool *timeout)
{
    double limit = INFINITY;
    if (has_goal(e, r))
        limit = qr_deadline_limit_us(steps, q, (double)e->config.ttft_goal_us, (double)(now > r->arrived_us ? now - r->arrived_us : 0), r->fresh);
    if (!has_timeout(r))
        return limit;
    const double left = (double)(r->deadline_us - now) - draws_us(e, steps, r), alone = qr_backlog_alone_us(steps, tokens_of(q)) * SURE;
    const double own = left > alone ? left : alone; /* nor does the queue make late what is so by itself */
    *timeout = own < limit;
    return own < limit ? own : limit;
}

/* Limits of all that wait and have not begun; false: there are none. */
static bool fill_limits(struct qr_engine *e, const struct qr_backlog_steps *steps, int64_t now)
{
    bool any = false, timeout;
    struct qr_deadlines *d = &e->deadlines;
    for (int32_t i = 0; i < e->n_slots; i++) {
        const struct qr_request *r = e->slot[i].req;
        const struct qr_seq *q = r ? qr_sched_seq(e->sched, i) : NULL;
        d->late[i] = r && r->late;
        d->limit_us[i] = INFINITY;
        if (!q || r->late || e->slot[i].choice != 0 || q->state != QR_SEQ_WAITING || q->admitted_us >= 0)
            continue;
        d->limit_us[i] = limit_of(e, steps, r, q, now, &timeout);
        any |= d->limit_us[i] < INFINITY;
    }
    return any;
}

/* The request is late: nothing of it has begun. */
static void be_late(struct qr_engine *e, const struct qr_backlog_steps *steps, int32_t index, int64_t now)
{
    bool timeout = false;
    struct qr_request *r = e->slot[index].req;
    const double first_us = e->backlog.first_us[index], limit_us = limit_of(e, steps, r, qr_sched_seq(e->sched, index), now, &timeout);
    const double draws = timeout ? draws_us(e, steps, r) : 0, waited_us = (double)(now - r->arrived_us);
    r->late = r->fresh ? QR_LATE_REFUSED : QR_LATE_SHED;
    r->retry_us = (int64_t)(first_us - limit_us);
    if (r->err.code == QR_OK)
        qr_err_set(&r->err, QR_E_BUSY, "%s would come after about %.2f s, and %s is %.2f s", draws > 0 ? "the last token" : "the first token",
                   (waited_us + first_us * (r->fresh && !timeout ? HOPE : 1) + draws) * 1e-6, timeout ? "its timeout" : "--ttft-goal",
                   (double)(timeout ? r->deadline_us - r->arrived_us : e->config.ttft_goal_us) * 1e-6);
}

void qr_deadlines_look(struct qr_engine *e, int64_t now)
{
    QR_ASSERT(e != NULL && now > 0);
    struct qr_deadlines *d = &e->deadlines;
    QR_ASSERT(d->late != NULL && d->limit_us != NULL);
    if (!d->arrived && now - d->looked_us < LOOK_US)
        return;
    d->arrived = false;
    d->looked_us = now;
    const struct qr_backlog_steps steps = qr_engine_steps(e);
    if (!fill_limits(e, &steps, now))
        return;
    const bool any = qr_backlog_late(&e->backlog, e->sched, &steps, d->limit_us, d->late) > 0;
    for (int32_t i = 0; i < e->n_slots; i++) {
        struct qr_request *r = e->slot[i].req;
        if (r && d->late[i] && !r->late)
            be_late(e, &steps, i, now);
        if (r && e->slot[i].choice == 0)
            r->fresh = false;
    }
    if (any)
        atomic_store(&e->to_reap, true);
}

void qr_deadlines_note(struct qr_engine *e, const struct qr_request *r)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(r != NULL);
    if (r->deadline_us != 0 && r->deadline_us < e->reap_us)
        e->reap_us = r->deadline_us;
    if (r->start_by_us != 0 && !r->begun && r->start_by_us < e->reap_us)
        e->reap_us = r->start_by_us;
}

void qr_deadlines_find_begun(struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(e->slot != NULL);
    for (int32_t i = 0; i < e->n_slots; i++) {
        struct qr_request *r = e->slot[i].req;
        if (r && r->start_by_us != 0 && !r->late)
            r->begun |= r->n_open < r->n_choices || qr_sched_seq(e->sched, i)->admitted_us >= 0;
    }
}

bool qr_deadlines_is_late(struct qr_request *r, int64_t now)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(now > 0);
    if (r->late || r->start_by_us == 0 || r->begun || now <= r->start_by_us)
        return r->late != QR_LATE_NOT;
    r->late = QR_LATE_QUEUE;
    if (r->err.code == QR_OK)
        qr_err_set(&r->err, QR_E_BUSY, "the request waited for %.1f s and was not begun", (double)(now - r->arrived_us) * 1e-6);
    return true;
}
