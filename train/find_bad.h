/* find_bad.h - where what is not finite comes from: the first tensor of a forward pass that holds a NaN or an infinity. */
#ifndef QR_TRAIN_FIND_BAD_H
#define QR_TRAIN_FIND_BAD_H

#include <stdbool.h>

#include "train/batch.h"
#include "train/params.h"
#include "train/tape.h"

#define QR_FIND_BAD_TEXT 240

/* Looks at the parameters, then computes the batch again and looks at every result on its way. Says what it found ("the output of linear with
 * model.layers.3.mlp.down_proj.weight, row 5"), or that the loss alone is not finite. The tape's watch is taken
 * away. */
void qr_train_find_bad(struct qr_tape *t, const struct qr_params *p, const struct qr_train_batch *b, char text[QR_FIND_BAD_TEXT]);

#endif
