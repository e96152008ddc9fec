/* plan.h - what a training run will take, said before anything is allocated: memory by its use, operations of a step. Pure. */
#ifndef QR_TRAIN_PLAN_H
#define QR_TRAIN_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "train/params.h"
#include "train/tape.h"

#define QR_PLAN_ROWS_MAX 24

/* The rows of the tape, to be compared with what was used. */
#define QR_PLAN_KEEP "activations kept for the way back"
#define QR_PLAN_WORK "activations of one layer"
#define QR_PLAN_GRAD "gradients of activations"
#define QR_PLAN_LOGITS "logits, a chunk"
#define QR_PLAN_LATER "embedding's gradients, until a sum ends"
#define QR_PLAN_KV "keys and values"

struct qr_train_plan {
    struct {
        const char *what;  /* static */
        size_t n_bytes;
    } row[QR_PLAN_ROWS_MAX];
    int32_t n_rows;
    size_t total;
};

void qr_train_plan_add(struct qr_train_plan *plan, const char *what, size_t n_bytes);

/* Rows of the tape; those of parameters and optimizer are qr_parallel_plan's. params may be planned. Errors: those of qr_tape_plan. */
int qr_train_plan_tape(struct qr_train_plan *plan, struct qr_params *params, const struct qr_tape_options *tape, struct qr_err *err);

void qr_train_plan_print(struct qr_buf *out, const struct qr_train_plan *plan);

/* The parameter table: tensors of layers as one line each, with shapes, numbers and what trains. */
void qr_train_print_params(struct qr_buf *out, const struct qr_params *params);

/* Operations (a product and a sum are two) of a forward pass over rows at these positions; a training step counts three times as many, whatever is
 * recomputed. Norms, gates and the like are left out. */
struct qr_train_flops {
    double row, logits, attended; /* of a row, of a row with logits, of a row for each position it sees */
};
struct qr_train_flops qr_train_flops_of(const struct qr_model_config *c);

/* Positions that all rows of the batch see, themselves included. */
double qr_train_attended(const struct qr_batch *b);
double qr_train_flops_batch(const struct qr_train_flops *f, const struct qr_batch *b);

#endif
