/* backlog.h - when the work that requests have brought would be done: the queue played forward with predicted steps (predict.h), prompts in their order, each
 * beside what decodes then. A pure function of scheduler and predictor. For dashboards and autoscalers, and for which requests may wait (deadline.c).
 *
 * Of prompts that wait, what the prefix cache was seen to have is left out; where it was not looked up, the share that it had of others. An answer is taken to
 * be as long as others were, within its bounds. Such a mean forgets: a sum is halved whenever it is full. Prompts are played one after the other, though
 * steps carry several: sums are the same. Engine thread; a look allocates nothing and takes O(n log n) of all sequences.
 */
#ifndef QR_ENGINE_BACKLOG_H
#define QR_ENGINE_BACKLOG_H

#include "engine/pace.h"
#include "engine/predict.h"

/* `of` things came in `n`: tokens in answers, tokens that were found among those looked up, tokens in steps of a sequence (more than one with guesses). */
struct qr_mean {
    double n, of;
};

/* A sequence that decodes in the play: the step with its last token, and the rows that it reads. */
struct qr_backlog_end {
    double step, context;
};

struct qr_backlog {
    struct qr_mean answer_tokens, found, said;
    int64_t query_tokens, hit_tokens; /* of the cache, when it was last told */
    struct qr_backlog_end *end;       /* owned [n_slots], a heap while a look is made: the next end first */
    double *first_us;                 /* owned [n_slots]: of the last look, from then on, of each sequence without a token. 0: not known */
    int32_t n_slots;
};

void qr_backlog_init(struct qr_backlog *b, int32_t n_slots);
void qr_backlog_release(struct qr_backlog *b); /* also of a zeroed one */

void qr_backlog_answer(struct qr_backlog *b, int32_t n_output);              /* one has ended by itself */
void qr_backlog_said(struct qr_backlog *b, int32_t n_seqs, int32_t n_tokens); /* of so many sequences that decode, in a step */
void qr_backlog_cache(struct qr_backlog *b, const struct qr_kv_stats *kv);   /* what was found so far */

/* What steps are like. */
struct qr_backlog_steps {
    const struct qr_predict *predict;
    const struct qr_pace *pace;
    struct qr_step_size lately;      /* rows have such contexts where nothing is known of them */
    int32_t running_max, tokens_max; /* sequences, and rows of a step */
    int64_t kv_tokens;               /* rows of the cache */
};

/* Fills in first_us; returns after how many us all would be done, 0 while nothing was measured. without: sequences that are left out, as they are about to
 * end ([n_slots]; NULL: none). */
double qr_backlog_look(struct qr_backlog *b, struct qr_sched *s, const struct qr_backlog_steps *steps, const bool *without);

/* Which of those that wait cannot have their first token within limit_us, from now, of theirs ([n_slots]; INFINITY: no matter). Of several the first in rank is
 * left out, then the rest is played again: so as few as can be are late, and none that could be in time. Sets late[] of them, which starts as `without`;
 * their first_us stays what it was. Returns how many, of very many only some. */
int32_t qr_backlog_late(struct qr_backlog *b, struct qr_sched *s, const struct qr_backlog_steps *steps, const double *limit_us, bool *late);

/* The time of n_tokens of a prompt that is computed alone, of which the cache has none. */
double qr_backlog_alone_us(const struct qr_backlog_steps *steps, int32_t n_tokens);

/* The same in steps of few rows, as any engine has taken some: where long steps never were, they look cheaper than they are. */
double qr_backlog_alone_most_us(const struct qr_backlog_steps *steps, int32_t n_tokens);

/* The time that a prompt token takes beside what decodes now. */
double qr_backlog_prompt_token_us(const struct qr_backlog_steps *steps, const struct qr_sched *s);

#endif
