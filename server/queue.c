#include "server/queue.h"

#include <math.h>
#include <stdio.h>

#include "base/assert.h"
#include "server/state.h"

#define WAIT_S_MAX 60 /* what is farther away nothing is known of */

/* Those of the queue as the engine saw it last, and those that it had not seen yet. */
int64_t qr_queue_tokens(struct qr_server *s)
{
    struct qr_stats t;
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->phase == QR_PHASE_READY);
    qr_engine_stats(s->model.engine, &t);
    const int64_t seen = (int64_t)t.prompt_len.sum, unseen = s->submitted_tokens - seen;
    return t.sched.waiting_tokens + t.sched.held_tokens + (unseen > 0 ? unseen : 0);
}

static int32_t whole_seconds(double s)
{
    const double whole = ceil(s);
    return whole < 1 ? 1 : whole < WAIT_S_MAX ? (int32_t)whole : WAIT_S_MAX;
}

int32_t qr_queue_wait_s(struct qr_server *s, int64_t n_tokens)
{
    struct qr_stats t;
    QR_ASSERT(s != NULL && s->phase == QR_PHASE_READY);
    QR_ASSERT(n_tokens >= 0);
    qr_engine_stats(s->model.engine, &t);
    return whole_seconds((double)n_tokens * t.prompt_token_s);
}

int32_t qr_queue_place_s(struct qr_server *s)
{
    struct qr_stats t;
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->phase == QR_PHASE_READY);
    qr_engine_stats(s->model.engine, &t);
    const int32_t n = t.sched.n_waiting + t.sched.n_prefill + t.sched.n_decode;
    return whole_seconds(n > 0 ? t.backlog_s / n : 0);
}

bool qr_queue_admits(struct qr_server *s, int64_t n_tokens, struct qr_api_error *e)
{
    QR_ASSERT(s != NULL && e != NULL);
    QR_ASSERT(n_tokens >= 0);
    const int64_t most = s->config.waiting_tokens_max, waiting = most > 0 ? qr_queue_tokens(s) : 0;
    if (waiting == 0 || waiting + n_tokens <= most)
        return true;
    const int32_t wait_s = qr_queue_wait_s(s, waiting + n_tokens - most);
    qr_api_error_set(e, 429, "queue_full", "%lld prompt tokens wait and this request has %lld; the limit is %lld (--max-waiting-tokens). "
                     "Please try again in %ds.", (long long)waiting, (long long)n_tokens, (long long)most, wait_s);
    e->retry_after_s = wait_s;
    return false;
}

void qr_queue_late(struct qr_server *s, const struct qr_request *r, struct qr_api_error *e)
{
    static const struct {
        int32_t status;
        const char *code, *text;
    } as[] = {
        [QR_LATE_QUEUE] = {503, "queue_timeout", "The server is busy"},
        [QR_LATE_REFUSED] = {429, "too_late", "The server is busy"},
        [QR_LATE_SHED] = {503, "too_late", "The server is busy"},
        [QR_LATE_ALONE] = {400, "too_large", "This cannot be finished in time"},
    };
    char tail[64];
    QR_ASSERT(s != NULL && r != NULL && e != NULL);
    QR_ASSERT(r->late > QR_LATE_NOT && r->late < QR_COUNT(as));
    const bool queue = r->late == QR_LATE_QUEUE, again = r->late != QR_LATE_ALONE;
    const int32_t wait_s = queue ? qr_queue_wait_s(s, qr_queue_tokens(s)) : whole_seconds((double)r->retry_us * 1e-6);
    snprintf(tail, sizeof tail, queue ? " (--queue-timeout)." : ". Please try again in %ds.", wait_s);
    qr_api_error_set(e, as[r->late].status, as[r->late].code, "%s: %s%s", as[r->late].text, r->err.msg,
                     again ? tail : r->timed ? " (timeout)." : " (--request-timeout).");
    e->retry_after_s = again ? wait_s : 0;
}
