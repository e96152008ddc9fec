/* quantize.h - training for rounded weights: the forward pass computes as `quire serve --quantize TYPE` will, so the model learns to be right there.
 *
 * Before every step the rounded copy of the masters (bf16, what is saved) is packed by the serving backend's quantizer, and products are its quantized ones:
 * the loss is that of the served model, bit for bit. Gradients go back through the weights that these products see, rounded to bf16, and pass the rounding of
 * weights and activations unchanged (the straight-through estimator), to the f32 masters. Embeddings are looked up unrounded, as when serving.
 * One owning thread, the trainer's.
 * Sources: Bengio et al. 2013 (arXiv:1308.3432); Jacob et al. 2017 (arXiv:1712.05877).
 */
#ifndef QR_TRAIN_VARIANTS_QUANTIZE_H
#define QR_TRAIN_VARIANTS_QUANTIZE_H

#include <stdbool.h>

#include "base/err.h"
#include "train/config.h"
#include "train/trainer.h"

bool qr_quantize_wanted(const struct qr_train_config *c);

/* Errors: QR_E_USAGE with compute.dtype f32; when planning QR_E_UNSUPPORTED from the backend. */
int qr_quantize_variant(struct qr_train_variant *out, const struct qr_train_config *c, struct qr_err *err);

#endif
