/* deadline.h - by when requests have to have their first token, and which of those that wait cannot: they are ended before they cost anything. A sequence that
 * has begun is ended by its own time limit only, never for a prediction.
 *
 * Limits are --ttft-goal's, and those of a request that brings a timeout. A prompt that alone takes longer than the goal is late by itself, not by the queue:
 * it may take a fifth longer than alone. At arrival a request is refused whose prediction, and a sixth more for what will come meanwhile, is beyond the limit.
 * What was let in is ended only when it is predicted to miss the goal by a tenth. What could not meet its time limit alone is refused as too large, if it
 * misses that by a quarter. Engine thread.
 */
#ifndef QR_ENGINE_DEADLINE_H
#define QR_ENGINE_DEADLINE_H

#include "engine/backlog.h"

struct qr_engine;
struct qr_request;

/* From now on, us until the first token of q has to be there, which waits: goal_us after it arrived, waited_us ago. */
double qr_deadline_limit_us(const struct qr_backlog_steps *steps, const struct qr_seq *q, double goal_us, double waited_us, bool arrives);

/* ---- the engine's ---- */

struct qr_deadlines {
    double *limit_us;  /* owned [n_slots] */
    bool *late;        /* owned [n_slots] */
    int64_t looked_us;
    bool arrived;      /* a request with a limit came in since */
};

void qr_deadlines_init(struct qr_deadlines *d, int32_t n_slots);
void qr_deadlines_release(struct qr_deadlines *d); /* also of a zeroed one */

/* A request came in, its choices wait. It may be late at once. */
void qr_deadlines_enter(struct qr_engine *e, struct qr_request *r, int64_t now);

/* A request whose choices have not all ended: e->reap_us is no later than its next limit. */
void qr_deadlines_note(struct qr_engine *e, const struct qr_request *r);

/* Finds which of those that wait are late, when some have come, else ten times a second: their choices end with the next reaping. */
void qr_deadlines_look(struct qr_engine *e, int64_t now);

/* Notes which requests have begun, as a choice of them was admitted or has finished; whether r is late (qr_request), which is true of all its choices once
 * it was of one. */
void qr_deadlines_find_begun(struct qr_engine *e);
bool qr_deadlines_is_late(struct qr_request *r, int64_t now);

#endif
