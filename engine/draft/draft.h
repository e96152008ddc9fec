/* draft.h - guesses of what decoding sequences will say next, and how many of them a step is worth. A guess is checked by the model (engine/speculate.c):
 * it can cost or save time, never change a token. Engine thread only; nothing is allocated between begin and end of a step.
 */
#ifndef QR_ENGINE_DRAFT_H
#define QR_ENGINE_DRAFT_H

#include "engine/engine.h"
#include "scheduler/sched.h"

/* One sequence that decodes in the next step, and what is guessed of it. */
struct qr_draft_ask {
    int32_t index;              /* its slot */
    const struct qr_seq *seq;   /* borrowed: ids[0..n_ids) are known */
    int32_t room;               /* guesses that it can use, <= QR_DRAFT_MAX; 0: none are wanted */
    int32_t n;                  /* filled in: guesses, first of all the one for position n_ids */
    int32_t ids[QR_DRAFT_MAX];
    float p[QR_DRAFT_MAX];      /* how likely guess i is right, given that those before it are */
};

struct qr_draft; /* opaque */

#define QR_DRAFT_STORE_BYTES (8 << 20)

/* n_slots: sequences that may be inside; running_max: in one step. ctx_max: ids of the longest. store_bytes: most memory for finished answers. */
struct qr_draft *qr_draft_new(int32_t n_slots, int32_t running_max, int32_t ctx_max, int64_t store_bytes);
void qr_draft_free(struct qr_draft *d); /* NULL is fine */
int64_t qr_draft_bytes(int32_t n_slots, int32_t running_max, int32_t ctx_max, int64_t store_bytes); /* what qr_draft_new takes */

/* A choice comes in, and leaves: what it said may be guessed for later ones of the same salt (learn), unless it failed. */
void qr_draft_begin(struct qr_draft *d, int32_t index, const struct qr_request *r, int32_t choice);
void qr_draft_end(struct qr_draft *d, int32_t index, const struct qr_seq *seq, bool learn);

/* Guesses for those of ask[0..n) that have room and none yet. Once a step, of all that decode in it. */
void qr_draft_fill(struct qr_draft *d, struct qr_draft_ask *ask, int32_t n);

/* Its guesses for this sequence have given way to others: they are not judged. */
void qr_draft_forgo(struct qr_draft *d, int32_t index);

/* Cuts ask[i].n to what the next step is worth: rows are added while the tokens expected of them pay for the time that they are measured to take. n_base: rows
 * of the step without guesses; n_spare: rows that it may have more. */
void qr_draft_cut(struct qr_draft *d, struct qr_draft_ask *ask, int32_t n, int32_t n_base, int32_t n_spare);

/* Of n_drafted guesses of a step the first n_accepted were right. */
void qr_draft_judge(struct qr_draft *d, int32_t index, int32_t n_drafted, int32_t n_accepted);

/* A step without prompt tokens, of n_rows rows, took us. */
void qr_draft_step(struct qr_draft *d, int32_t n_rows, double us);
double qr_draft_us(const struct qr_draft *d, int32_t n_rows); /* what such a step is expected to take; 0: none was measured */

#endif
