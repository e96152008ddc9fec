#include "engine/backlog.h"

#include "base/assert.h"

#define FULL_US 10e6        /* time in steps of one kind */
#define FULL_ANSWERS 256
#define FULL_LOOK_UPS 65536 /* tokens */

static void add(struct qr_mean *m, double n, double of)
{
    m->n += n;
    m->of += of;
}

static void forget(struct qr_mean *m, bool full)
{
    m->n *= full ? 0.5 : 1;
    m->of *= full ? 0.5 : 1;
}

static double mean_of(const struct qr_mean *m, double otherwise)
{
    return m->n > 0 ? m->of / m->n : otherwise;
}

void qr_backlog_step(struct qr_backlog *b, int32_t n_prompt, int32_t n_decode, double us, double alone_us)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(n_prompt >= 0 && n_decode >= 0);
    if (us <= 0 || n_prompt + n_decode == 0)
        return;
    const double most = us * 0.875, even = us * n_decode / (n_prompt + n_decode);
    double decode_us = n_prompt == 0 ? us : n_decode == 0 ? 0 : alone_us > 0 ? alone_us : even;
    if (n_prompt > 0 && decode_us > most)
        decode_us = most;
    add(&b->decode_us, n_decode, decode_us);
    add(&b->prompt_us, n_prompt, us - decode_us);
    forget(&b->decode_us, b->decode_us.of > FULL_US);
    forget(&b->prompt_us, b->prompt_us.of > FULL_US);
}

void qr_backlog_answer(struct qr_backlog *b, int32_t n_output)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(n_output >= 0);
    add(&b->answer_tokens, 1, n_output);
    forget(&b->answer_tokens, b->answer_tokens.n > FULL_ANSWERS);
}

void qr_backlog_cache(struct qr_backlog *b, const struct qr_kv_stats *kv)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(kv->query_tokens >= b->query_tokens && kv->hit_tokens >= b->hit_tokens);
    add(&b->found, (double)(kv->query_tokens - b->query_tokens), (double)(kv->hit_tokens - b->hit_tokens));
    b->query_tokens = kv->query_tokens;
    b->hit_tokens = kv->hit_tokens;
    forget(&b->found, b->found.n > FULL_LOOK_UPS);
}

double qr_backlog_seconds(const struct qr_backlog *b, const struct qr_sched *s)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(s != NULL);
    struct qr_sched_left left;
    qr_sched_left(s, mean_of(&b->answer_tokens, INT32_MAX), &left);
    const double prompt = (double)left.begun_tokens + (double)left.waiting_tokens * (1 - mean_of(&b->found, 0));
    return (prompt * mean_of(&b->prompt_us, 0) + (double)left.output_tokens * mean_of(&b->decode_us, 0)) * 1e-6;
}

double qr_backlog_prompt_token_s(const struct qr_backlog *b)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(b->prompt_us.n >= 0);
    return mean_of(&b->prompt_us, 0) * 1e-6;
}
