/* prune.h - training with fixed masks: the smallest weights of every layer's matrices are 0 and stay so.
 *
 * Masks are made once, of the magnitudes of the starting weights (a function of the settings: a resumed run makes the same), by either of two rules:
 *     unstructured  of each matrix the given fraction of its weights
 *     2:4           of every four weights of a row, side by side, two: the pattern that hardware can skip
 * Of equal magnitudes the first go. Pruned weights are 0 as values, in what is computed with, and in what is saved; their gradients are zeroed before the norm
 * is taken, so their moments are 0, too. Embeddings, head, vectors and frozen tensors are left alone.
 * One owning thread, the trainer's.
 * Sources: Han et al. 2015 (arXiv:1506.02626); Mishra et al. 2021 (arXiv:2104.08378).
 */
#ifndef QR_TRAIN_VARIANTS_PRUNE_H
#define QR_TRAIN_VARIANTS_PRUNE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "train/config.h"
#include "train/trainer.h"

enum qr_prune_kind { QR_PRUNE_NONE, QR_PRUNE_UNSTRUCTURED, QR_PRUNE_2_4 };

bool qr_prune_wanted(const struct qr_train_config *c);

/* Errors: QR_E_USAGE when prune.fraction is set where the rule fixes it; when planning, a matrix whose rows are not made of fours (2:4); when beginning,
 * QR_E_INVALID for a checkpoint whose weights are not 0 where this run's masks say so. */
int qr_prune_variant(struct qr_train_variant *out, const struct qr_train_config *c, struct qr_err *err);

/* Sets bit k % 8 of mask[k / 8], k = first + i, for what is pruned of w [n]: the n_pruned smallest magnitudes, the first of equal ones. Requires no NaN. */
void qr_prune_smallest(uint8_t *mask, int64_t first, const float *w, int64_t n, int64_t n_pruned);

#endif
