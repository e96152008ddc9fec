/* limits.h - what a key may use: requests a minute, tokens a minute, calls at once. A bucket lets a minute's worth pass at once and then as much as leaks out
 * of it. Tokens are those of prompts and generated ones. What a running call may still take counts as reserved to it, so that many calls at once pass the
 * limit by no more than one of them. Pure: `now` is an argument. One owner, the loop thread.
 */
#ifndef QR_SERVER_LIMITS_H
#define QR_SERVER_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qr_api_error;

/* What a key's line grants; 0: without limit. */
struct qr_key_terms {
    int64_t rpm, tpm, concurrent;
    int64_t weight; /* 1 where the line has none; its share of the engine, beside those of keys that wait as well (scheduler/fair.h) */
};

struct qr_bucket {
    double used; /* at at_us */
    int64_t at_us;
};

struct qr_key_state {
    struct qr_bucket requests, tokens;
    int64_t reserved_tokens; /* that running calls may still take */
    int32_t n_running;
};

/* A call arrives: it is counted, and runs until it leaves. uses_tokens: it is refused as well where tokens are used up. False: it is refused, *e says why and
 * when to come back, and nothing has changed. */
bool qr_limits_enter(struct qr_key_state *s, const struct qr_key_terms *t, const char *name, bool uses_tokens, int64_t now_us, struct qr_api_error *e);
void qr_limits_leave(struct qr_key_state *s, int64_t reserved_left);

/* The tokens of its prompts and the most of its answers are reserved to it. False as above, where tokens are used up; the call leaves later all the same. */
bool qr_limits_reserve(struct qr_key_state *s, const struct qr_key_terms *t, const char *name, int64_t n_tokens, int64_t now_us, struct qr_api_error *e);

/* So many of the reserved tokens are used: a prompt that is accepted, tokens that were generated. */
void qr_limits_spend(struct qr_key_state *s, const struct qr_key_terms *t, int64_t n_tokens, int64_t now_us);

/* Lines of an answer's head, each with CR LF, as OpenAI sends them: limit, remaining and reset of those that there are. "" without limits. */
#define QR_LIMITS_FIELDS_MAX 360
const char *qr_limits_fields(char out[QR_LIMITS_FIELDS_MAX], struct qr_key_state *s, const struct qr_key_terms *t, int64_t now_us);

#endif
