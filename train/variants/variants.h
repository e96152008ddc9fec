/* variants.h - which kind of training the settings ask for: a small table of those that there are. One at a time; none is plain training. */
#ifndef QR_TRAIN_VARIANTS_VARIANTS_H
#define QR_TRAIN_VARIANTS_VARIANTS_H

#include "base/err.h"
#include "train/config.h"
#include "train/trainer.h"

/* Zeroes where the settings ask for plain training. The trainer ends what it is given; c is borrowed until then. Errors: QR_E_USAGE names two settings that
 * do not go together. */
int qr_train_variant_choose(struct qr_train_variant *out, const struct qr_train_config *c, struct qr_err *err);

#endif
