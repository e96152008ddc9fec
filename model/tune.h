/* tune.h - measures a model's shapes and keeps what is faster than the kernels' own choices (kernels/tune.h).
 *
 * Steps of the model itself run on random ids, and each product and each attention is timed where it stands: real packed weights, in the order of the
 * layers, with the caches as the rest of the step leaves them. Within a step neighbouring layers take turns with the values in force and those on
 * trial, the next step swaps them. On the thread that owns the backend, while nothing else runs there.
 */
#ifndef QR_MODEL_TUNE_H
#define QR_MODEL_TUNE_H

#include <stdbool.h>
#include <stdint.h>

#include "model/model.h"

/* One shape's outcome. */
struct qr_model_tuned {
    struct qr_tune_key key;
    int32_t n_rows;          /* with which it was measured */
    struct qr_tunables best; /* all 0: nothing was faster by QR_TUNE_GAIN */
    double own_s, best_s;    /* medians of a call; equal where nothing was faster */
};

/* A candidate counts when the median of each half of the samples says that it is faster by this factor. */
#define QR_TUNE_GAIN 1.03

struct qr_model_tune_options {
    int32_t rows_max;  /* of a step; buckets beyond are left out */
    uint32_t buckets;  /* bit b: measure bucket b (qr_tune_bucket_rows); 0: all */
    void (*each)(void *user, const struct qr_model_tuned *result); /* or NULL */
    void *user;
};

/* Fills be->tune with this model's shapes. Takes up to 8,192 tokens of cache and a step's memory meanwhile. Does nothing at levels that have no choice. */
void qr_model_tune(const struct qr_model *m, struct qr_backend *be, const struct qr_model_tune_options *options);

/* The same with a line in the log before and after, then adds the result to this processor's file; what prevents that is logged, too. For servers
 * that tune when they start. */
void qr_model_tune_and_save(const struct qr_model *m, struct qr_backend *be, int32_t rows_max);

#endif
