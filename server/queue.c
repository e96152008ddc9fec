#include "server/queue.h"

#include <math.h>

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
    return t.sched.waiting_tokens + (unseen > 0 ? unseen : 0);
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
