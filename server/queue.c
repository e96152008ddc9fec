#include "server/queue.h"

#include <math.h>

#include "base/assert.h"
#include "base/clock.h"
#include "server/state.h"

#define SAMPLE_US 1000000
#define WAIT_S_MAX 60 /* what is farther away nothing is known of */

/* The pace of a second or more of steps, and half of what it was before. */
static void measure(struct qr_queue_pace *p, const struct qr_stats *t, int64_t now_us)
{
    const double tokens = t->step_tokens.sum - (double)t->output_tokens, step_us = (double)t->step_us_total;
    if (now_us - p->at_us < SAMPLE_US)
        return;
    const double n = tokens - p->tokens, us = step_us - p->step_us;
    if (n > 0 && us > 0)
        p->tokens_per_s = p->tokens_per_s > 0 ? (p->tokens_per_s + n / us * 1e6) / 2 : n / us * 1e6;
    p->tokens = tokens;
    p->step_us = step_us;
    p->at_us = now_us;
}

/* Those of the queue as the engine saw it last, and those that it had not seen yet. */
int64_t qr_queue_tokens(struct qr_server *s)
{
    struct qr_stats t;
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->phase == QR_PHASE_READY);
    qr_engine_stats(s->model.engine, &t);
    measure(&s->pace, &t, qr_clock_us());
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
    QR_ASSERT(s != NULL);
    QR_ASSERT(n_tokens >= 0);
    return whole_seconds(s->pace.tokens_per_s > 0 ? (double)n_tokens / s->pace.tokens_per_s : 1);
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
