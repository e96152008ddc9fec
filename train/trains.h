/* trains.h - which models can be trained: those whose forward consists of verbs with a backward. */
#ifndef QR_TRAIN_TRAINS_H
#define QR_TRAIN_TRAINS_H

#include "base/err.h"
#include "loader/model_config.h"

/* QR_E_UNSUPPORTED names what has no backward, or weights in a file that are not the ones that are computed with. */
int qr_train_takes(const struct qr_model_config *c, struct qr_err *err);

#endif
