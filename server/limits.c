/* limits.c - leaky buckets of requests and tokens, and the number of calls at once. A refusal changes nothing and says when
 * the next one may come. What is reserved does not leak: it becomes used, or is given back. */
#include "server/limits.h"

#include <math.h>
#include <stdio.h>

#include "base/assert.h"
#include "server/api_error.h"

#define MINUTE_US 60e6
#define CODE "rate_limit_exceeded"

/* What is left of it now. */
static void leak(struct qr_bucket *b, int64_t per_minute, int64_t now_us)
{
    const double leaked = (double)(now_us - b->at_us) * (double)per_minute / MINUTE_US;
    b->used = b->used > leaked ? b->used - leaked : 0;
    b->at_us = now_us;
}

/* Until `over` has leaked out. */
static double seconds(double over, int64_t per_minute)
{
    return over > 0 ? over * 60 / (double)per_minute : 0;
}

static void say_when(struct qr_api_error *e, double wait_s)
{
    e->retry_after_s = wait_s > 1 ? (int32_t)ceil(wait_s) : 1;
}

static bool refuse_requests(const struct qr_key_state *s, const struct qr_key_terms *t, const char *name, struct qr_api_error *e)
{
    const double wait_s = seconds(s->requests.used + 1 - (double)t->rpm, t->rpm);
    qr_api_error_set(e, 429, CODE, "Rate limit reached for key %s on requests per min (RPM): Limit %lld, Used %lld. Please try again in %.3gs.", name,
                     (long long)t->rpm, (long long)ceil(s->requests.used), wait_s);
    say_when(e, wait_s);
    return false;
}

static bool refuse_tokens(const struct qr_key_state *s, const struct qr_key_terms *t, const char *name, struct qr_api_error *e)
{
    const double wait_s = seconds(s->tokens.used + (double)s->reserved_tokens + 1 - (double)t->tpm, t->tpm);
    qr_api_error_set(e, 429, CODE, "Rate limit reached for key %s on tokens per min (TPM): Limit %lld, Used %lld, of running requests %lld. "
                     "Please try again in %.3gs.", name, (long long)t->tpm, (long long)ceil(s->tokens.used), (long long)s->reserved_tokens, wait_s);
    say_when(e, wait_s);
    return false;
}

static bool tokens_left(struct qr_key_state *s, const struct qr_key_terms *t, int64_t now_us)
{
    leak(&s->tokens, t->tpm, now_us);
    return t->tpm == 0 || s->tokens.used + (double)s->reserved_tokens < (double)t->tpm;
}

bool qr_limits_enter(struct qr_key_state *s, const struct qr_key_terms *t, const char *name, bool uses_tokens, int64_t now_us, struct qr_api_error *e)
{
    QR_ASSERT(s != NULL && t != NULL);
    QR_ASSERT(name != NULL && e != NULL);
    leak(&s->requests, t->rpm, now_us);
    if (t->concurrent > 0 && s->n_running >= t->concurrent) {
        qr_api_error_set(e, 429, CODE, "Rate limit reached for key %s on concurrent requests: Limit %lld. Please try again when one of them has ended.", name,
                         (long long)t->concurrent);
        return false;
    }
    if (t->rpm > 0 && s->requests.used + 1 > (double)t->rpm)
        return refuse_requests(s, t, name, e);
    if (uses_tokens && !tokens_left(s, t, now_us))
        return refuse_tokens(s, t, name, e);
    s->requests.used += t->rpm > 0;
    s->n_running++;
    return true;
}

void qr_limits_leave(struct qr_key_state *s, int64_t reserved_left)
{
    QR_ASSERT(s != NULL && s->n_running > 0);
    QR_ASSERT(reserved_left >= 0 && reserved_left <= s->reserved_tokens);
    s->n_running--;
    s->reserved_tokens -= reserved_left;
}

bool qr_limits_reserve(struct qr_key_state *s, const struct qr_key_terms *t, const char *name, int64_t n_tokens, int64_t now_us, struct qr_api_error *e)
{
    QR_ASSERT(s != NULL && t != NULL);
    QR_ASSERT(n_tokens >= 0 && e != NULL);
    if (!tokens_left(s, t, now_us))
        return refuse_tokens(s, t, name, e);
    s->reserved_tokens += n_tokens;
    return true;
}

void qr_limits_spend(struct qr_key_state *s, const struct qr_key_terms *t, int64_t n_tokens, int64_t now_us)
{
    QR_ASSERT(s != NULL && t != NULL);
    QR_ASSERT(n_tokens >= 0 && n_tokens <= s->reserved_tokens);
    leak(&s->tokens, t->tpm, now_us);
    s->tokens.used += t->tpm > 0 ? (double)n_tokens : 0;
    s->reserved_tokens -= n_tokens;
}

/* "120ms", "7.5s", "6m0s": as OpenAI writes a time. */
static void put_time(char out[32], double s)
{
    const long long whole = (long long)ceil(s);
    if (s < 1)
        snprintf(out, 32, s > 0 ? "%.0fms" : "0s", ceil(s * 1000));
    else if (whole < 60)
        snprintf(out, 32, "%.3gs", s);
    else
        snprintf(out, 32, "%lldm%llds", whole / 60, whole % 60);
}

static size_t put_fields(char *out, size_t size, const char *what, int64_t limit, double used)
{
    char reset[32];
    const double left = (double)limit - used;
    put_time(reset, seconds(used, limit));
    const int n = snprintf(out, size, "x-ratelimit-limit-%s: %lld\r\nx-ratelimit-remaining-%s: %lld\r\nx-ratelimit-reset-%s: %s\r\n", what,
                           (long long)limit, what, left > 0 ? (long long)left : 0LL, what, reset);
    QR_ASSERT(n > 0 && (size_t)n < size);
    return (size_t)n;
}

const char *qr_limits_fields(char out[QR_LIMITS_FIELDS_MAX], struct qr_key_state *s, const struct qr_key_terms *t, int64_t now_us)
{
    size_t n = 0;
    QR_ASSERT(out != NULL && s != NULL);
    QR_ASSERT(t != NULL);
    out[0] = 0;
    leak(&s->requests, t->rpm, now_us);
    leak(&s->tokens, t->tpm, now_us);
    if (t->rpm > 0)
        n = put_fields(out, QR_LIMITS_FIELDS_MAX, "requests", t->rpm, s->requests.used);
    if (t->tpm > 0)
        put_fields(out + n, QR_LIMITS_FIELDS_MAX - n, "tokens", t->tpm, s->tokens.used + (double)s->reserved_tokens);
    return out;
}
