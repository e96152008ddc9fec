/* speculate.h - guesses are collected before a step, and judged after it: the engine's side of draft/draft.h.
 *
 * A guess is right where it equals the draw that decoding without guesses makes at its position, so no answer depends on guesses. A guess of a choice with a
 * grammar, or with a thinking, needs a state of its own for the mask behind it: a copy of the choice's guide that has followed the guesses. Inside engine/
 * only. Engine thread; memory is allocated at opening.
 */
#ifndef QR_ENGINE_SPECULATE_H
#define QR_ENGINE_SPECULATE_H

#include "engine/draft/draft.h"
#include "engine/guide.h"

struct qr_engine;
struct qr_row;

struct qr_speculation {
    int32_t tokens_max;          /* guesses for one sequence in a step; 0: there are none, and nothing else is used */
    struct qr_draft *draft;      /* owned; NULL: guesses come from config.draft_source */
    struct qr_draft_ask *ask;    /* owned [running_max] of the sequences that decode next */
    struct qr_seq *shadow;       /* owned [running_max] those whose last id has only its name (ahead.h), without that id */
    struct qr_guide *guide;      /* owned [n_guides_max] states behind guesses */
    int32_t n, n_guides, n_guides_max;
    int32_t n_more;              /* tokens of this step beside one of each sequence: guesses that were right, and forced ones */
    int64_t model_us;            /* of this step, what the draft model took */
};

void qr_speculate_open(struct qr_engine *e);
void qr_speculate_close(struct qr_engine *e);
int64_t qr_speculate_bytes(const struct qr_engine_config *c, int32_t ctx_max);

/* A choice comes in, and leaves; `learn` as in draft.h. */
void qr_speculate_begin(struct qr_engine *e, int32_t index);
void qr_speculate_end(struct qr_engine *e, int32_t index, bool learn);

/* Asks for guesses. True: the next step may have some. Those for a sequence whose last id is in flight begin with that id: it has to land first. */
bool qr_speculate_ask(struct qr_engine *e);

/* All ids are known: the scheduler is told what is worth checking. Before a plan. */
void qr_speculate_plan(struct qr_engine *e);

/* What the choice at this index may say behind the first n of its guesses. */
struct qr_guide *qr_speculate_guide(struct qr_engine *e, int32_t index, int32_t n);

/* A row that is drawn from is about to be told, behind the commit. True: its draw is the next guess, so the next row counts. */
bool qr_speculate_push(struct qr_engine *e, const struct qr_row *row);

/* The planned step's rows have been told. */
void qr_speculate_done(struct qr_engine *e);

#endif
