/* tune.h - measures into how many items a model's products and attentions are cut best here (kernels/tune.h).
 *
 * Steps of the model itself run on random ids, in turn with the kernels' own rule and with the number on trial for one kind of launch: what counts is the time
 * of a whole step. On the thread that owns the backend, while nothing else runs there.
 */
#ifndef QR_MODEL_TUNE_H
#define QR_MODEL_TUNE_H

#include <stdint.h>

#include "model/model.h"

/* The outcome for one kind of launch. */
struct qr_model_tuned {
    struct qr_tune_kind kind;
    int32_t n_rows, items; /* of the step; for each thread, 0: nothing was faster by QR_TUNE_GAIN */
    double own_s, best_s;  /* the best steps; equal where nothing was faster */
};

/* A number counts when the best steps of both halves of the samples say that a step is faster by this factor. */
#define QR_TUNE_GAIN 1.01

typedef void qr_model_tuned_fn(void *user, const struct qr_model_tuned *r);

/* Fills be->tune for steps of up to rows_max rows, and calls `each` for each kind of launch. Takes up to 8,192 tokens of
 * cache and a step's memory meanwhile. Does nothing at the level ref, which has no choice. */
void qr_model_tune(const struct qr_model *m, struct qr_backend *be, int32_t rows_max, qr_model_tuned_fn *each, void *user);

/* The same with a line in the log for each, then adds the result to this processor's file; what prevents that is logged,
 * too. */
void qr_model_tune_and_save(const struct qr_model *m, struct qr_backend *be, int32_t rows_max);

#endif
