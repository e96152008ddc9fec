/* calibrate.h - what the inputs of a model's matrices are like: recorded while text goes through it, for rounding its weights (loader/write/quantize.h).
 *
 * Every product's inputs are recorded before it runs; what is computed is the same. On the processor only. One owning thread.
 */
#ifndef QR_MODEL_CALIBRATE_H
#define QR_MODEL_CALIBRATE_H

#include "model/model.h"

struct qr_calibration; /* opaque */

struct qr_calibration *qr_calibration_new(const struct qr_model *m); /* borrowed until the last step */
void qr_calibration_free(struct qr_calibration *c); /* NULL is fine */

/* From now on steps of x are recorded. x is not used behind qr_calibration_free. */
void qr_calibration_watch(struct qr_calibration *c, struct qr_exec *x);

/* Mean squares [n_in] of the inputs of the matrix at `at` in struct qr_layer_weights, or NULL: none was seen (down of experts). Borrowed. `user` is the
 * calibration; it may be asked when the model is closed. */
const float *qr_calibration_inputs(void *user, int32_t layer, size_t at);

#endif
