/* backlog.h - how long the work would take that requests have brought and the engine has not done yet, from what steps took and answers were like lately. A
 * pure function of what it is told. It is an estimate, for dashboards and autoscalers: nothing in the engine depends on it.
 *
 *     seconds = prompt tokens left * time of a prompt token + tokens to be drawn * time of a drawn one
 *
 * Of prompts that wait, the share that the prefix cache held of others is left out. A step with both kinds of rows counts as a step that only decodes for its
 * decode rows, and the rest for its prompt tokens. An answer is taken to be as long as others were, within its max_tokens. Everything is a mean that forgets:
 * a sum is halved whenever it is full.
 */
#ifndef QR_ENGINE_BACKLOG_H
#define QR_ENGINE_BACKLOG_H

#include "scheduler/sched.h"

/* `of` things came in `n`: us in tokens, tokens in answers, tokens that were found among those looked up. */
struct qr_mean {
    double n, of;
};

struct qr_backlog {
    struct qr_mean prompt_us, decode_us, answer_tokens, found;
    int64_t query_tokens, hit_tokens; /* of the cache, when it was last told */
};

/* A step took us. alone_us: what a step takes that only decodes, 0: not known. */
void qr_backlog_step(struct qr_backlog *b, int32_t n_prompt, int32_t n_decode, double us, double alone_us);

void qr_backlog_answer(struct qr_backlog *b, int32_t n_output);              /* one has ended by itself */
void qr_backlog_cache(struct qr_backlog *b, const struct qr_kv_stats *kv);   /* what was found so far */

/* 0 while nothing was measured. */
double qr_backlog_seconds(const struct qr_backlog *b, const struct qr_sched *s);
double qr_backlog_prompt_token_s(const struct qr_backlog *b); /* the time of a prompt token */

#endif
