/* repeat.h - inside model/ only: steps that decode, kept by a device as one piece (CUDA: a graph) and repeated with other numbers in the same places.
 *
 * A step of one row a sequence is known by its number of rows, by a bound of its contexts, a power of two, and by whether rows have adapters: whatever
 * the host decides about launches follows from these, its arrays lie at the same addresses, and so do its activations. Which rows have which adapters is
 * in the arrays. The first time such a step is launched kernel by kernel, as it will be kept (code may have to be loaded), the second time it is kept, from
 * then on repeated. More than QR_REPEATS_MAX kinds: the others are launched as ever. */
#ifndef QR_MODEL_REPEAT_H
#define QR_MODEL_REPEAT_H

#include "model/model.h"

#define QR_REPEATS_MAX 128

struct qr_repeat {
    int32_t n_rows, ctx;
    const struct qr_lora *lora; /* borrowed: where its rows' adapters are; NULL: no row has one */
    bool refused;            /* the device would not */
    void *record;            /* owned, the device's; NULL: not yet */
    struct qr_tensor logits; /* where they are afterwards */
};

/* Whether this batch is of that kind, on a device that repeats. */
bool qr_repeats(const struct qr_exec *x, const struct qr_batch *b);

/* Entries of a row of the block table for all contexts under its bound. */
int32_t qr_repeat_width(const struct qr_batch *b);

/* The step whose arrays have just been placed; `run` launches it. */
struct qr_tensor qr_repeat_step(struct qr_exec *x, const struct qr_batch *b, struct qr_tensor (*run)(struct qr_exec *x, const struct qr_model *m));

void qr_repeats_release(struct qr_exec *x); /* none is known any more */

#endif
