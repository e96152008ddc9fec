/* dense.h - a Dense stage of sentence-transformers: act(W x + b) of the vector that a text was pooled into. Immutable once open; any thread may compute.
 */
#ifndef QR_LOADER_CONFIG_DENSE_H
#define QR_LOADER_CONFIG_DENSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

struct qr_dense {
    float *weight;       /* owned [n_out][n_in] */
    float *bias;         /* owned [n_out], or NULL */
    int32_t n_in, n_out;
    bool tanh;           /* act; else there is none */
};

/* config: what DIR/config.json says (in_features, out_features, bias, activation_function: Identity or Tanh, which is meant where it is silent).
 * DIR/model.safetensors has linear.weight [out_features, in_features] and linear.bias [out_features]. Errors name file and field or tensor: QR_E_DAMAGED,
 * QR_E_UNSUPPORTED, QR_E_NOT_FOUND. */
int qr_dense_open(struct qr_dense *d, const char *dir, const struct qr_json *config, struct qr_err *err);
void qr_dense_release(struct qr_dense *d); /* also of a zeroed one */

/* y [n_out] of x [n_in], in f32: sixteen sums of every sixteenth product each, in order, then added in pairs; the same on every processor. */
void qr_dense_apply(const struct qr_dense *d, float *y, const float *x);

#endif
