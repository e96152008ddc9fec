/* predict.h - how long a step takes, from what steps took: a measured table by rows, and what the rows' contexts add. Pace, backlog and admission all ask it.
 * A pure function of the times it is told; the engine measures them. Nothing that is computed depends on it.
 *
 *     us = table(prompt rows + decode rows) + slope[0] * decode context + slope[1] * prompt context
 *
 * A bucket of the table holds the mean of steps with rows from one power of two to the next, each new step counting a 16th. Between the means of two buckets a
 * line is drawn. Below the first the line goes to 0, beyond the last it goes on; beyond one bucket alone it is level, so what was not measured is not feared.
 * Slopes follow the gradient of what the prediction missed (Widrow and Hoff 1960). A step that the machine interrupted counts as at most twice its prediction.
 */
#ifndef QR_ENGINE_PREDICT_H
#define QR_ENGINE_PREDICT_H

#include <stdint.h>

#include "scheduler/sched.h"

#define QR_PREDICT_BUCKETS 20

/* What a step computes: rows of prompts, rows of sequences that decode, these sequences. The contexts are rows of the cache that are read, in thousands: by
 * sequences that decode, and the sum over prompt rows. */
struct qr_step_size {
    int32_t n_prompt, n_decode, n_seqs;
    double context[2];
};
struct qr_step_size qr_step_size_of(const struct qr_plan *plan);

/* What rows of either kind were like lately: those of a step that had some. */
void qr_step_size_note(struct qr_step_size *lately, const struct qr_step_size *size);

struct qr_predict_bucket {
    double n;                     /* steps, as far as they count; 0: none was seen */
    double rows, us, context[2];  /* means */
};

struct qr_predict {
    struct qr_predict_bucket bucket[QR_PREDICT_BUCKETS];
    double slope[2];              /* us for a thousand rows of context */
};

void qr_predict_init(struct qr_predict *p);

/* A step took us. Returns what was predicted of it; 0: nothing could be. */
double qr_predict_note(struct qr_predict *p, const struct qr_step_size *size, double us);

/* 0 while nothing was measured, or for a step without rows. */
double qr_predict_us(const struct qr_predict *p, const struct qr_step_size *size);

#endif
