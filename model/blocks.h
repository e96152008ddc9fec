/* blocks.h - what forward passes share: weights that may be missing and the numbers of an attention layer. */
#ifndef QR_MODEL_BLOCKS_H
#define QR_MODEL_BLOCKS_H

#include "loader/model_config.h"
#include "model/ops.h"

/* NULL for a weight that the model does not have. */
const struct qr_weight *qr_weight_or_null(const struct qr_weight *w);

/* Heads, scale (1/sqrt(K) unless the model has its own) and the window of one layer. */
struct qr_attn_spec qr_attn_spec_of(const struct qr_model_config *c, int32_t layer);

#endif
