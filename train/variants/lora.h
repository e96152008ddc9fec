/* lora.h - low-rank adapters: W + (alpha / r) B A in place of W, where only A [r, n_in] and B [n_out, r] learn (Hu et al. 2021, arXiv:2106.09685).
 *
 * The sum is made anew behind every step, in f32, and rounded and packed as any matrix: forward and backward pass know of nothing, and a merged model is what
 * was trained, bit for bit. The tape gives dW of the sum; dB = (alpha / r) dW A^T and dA = (alpha / r) B^T dW are exact. A and B are `extra` parameters.
 * On disk adapters are PEFT's (loader/adapters/lora.h).
 * One owning thread, the trainer's.
 */
#ifndef QR_TRAIN_VARIANTS_LORA_H
#define QR_TRAIN_VARIANTS_LORA_H

#include "base/err.h"
#include "base/progress.h"
#include "loader/adapters/lora.h"
#include "train/config.h"
#include "train/trainer.h"

#define QR_LORA_DIR "adapter" /* in the run's directory: the adapters, when the run has ended */

bool qr_lora_wanted(const struct qr_train_config *c);

/* The variant of variants.c; c is borrowed for the trainer's life. A begins uniform in +-1/sqrt(n_in) (PEFT's Kaiming initialization with a = sqrt 5), a
 * function of the seed; B with zeros, so the first loss is the model's. Errors: QR_E_USAGE for settings that adapters do not go with, here or when the model
 * is known (a target that no layer has); QR_E_INVALID for a resumed run whose values are not those of model.from and its adapters. */
int qr_lora_variant(struct qr_train_variant *out, const struct qr_train_config *c, struct qr_err *err);

/* out[row] = base[row] + scale * sum over k of b[row, k] a[k, :], k rising, f32.  Shapes: base, out [n_out, n_in], may be the same; a [r, n_in]; b [n_out, r];
 * sum [n_in] scratch. The one place where it is computed: training and merging agree in every bit. */
struct qr_lora_product {
    float *out, *sum;
    const float *base, *a, *b;
    float scale;
    int64_t n_out, n_in, rank;
};
void qr_lora_add(const struct qr_lora_product *x);

/* Writes RUN_DIR/adapter, complete or not there, of the parameters of a run of settings c. A directory that is there is replaced. */
int qr_lora_save(const char *run_dir, const struct qr_params *p, const struct qr_train_config *c, struct qr_err *err);

/* The model directory `base` with the adapters of `adapter` added, as the model directory `out`, which must not be there; matrices stored as the base's,
 * f16 as f32. progress: the line that is kept up to date, which the caller ends, or NULL. Errors: QR_E_UNSUPPORTED for kinds of adapters that are no
 * such sum; QR_E_DAMAGED for adapters of another model, with file, tensor, found, expected. */
int qr_lora_merge(const char *base, const char *adapter, const char *out, struct qr_progress *progress, struct qr_err *err);

#endif
