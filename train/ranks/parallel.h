/* parallel.h - one rank's side of a step that several ranks take together: which micro-batches are its own, gradients and losses summed, values moved and
 * handed on.
 *
 * A step's bits depend on its leaves (train/ranks/reduce.h), never on the number of ranks or on what is cut into parts. With one rank and one leaf nothing
 * here costs anything. Errors of a comm end the step; the caller then gives up (qr_comm_abort), so that all ranks end.
 * One owning thread per rank.
 */
#ifndef QR_TRAIN_RANKS_PARALLEL_H
#define QR_TRAIN_RANKS_PARALLEL_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"
#include "train/checkpoint.h"
#include "train/ranks/gather.h"
#include "train/optim.h"
#include "train/plan.h"
#include "train/ranks/reduce.h"
#include "train/tape.h"

/* What ranks know of a step together; numbers of the whole step behind qr_parallel_sum. */
struct qr_parallel_sums {
    double loss;
    int64_t n_tokens;
    double flops;
    bool stop;               /* rank 0 was asked to stop */
};

struct qr_parallel {
    struct qr_comm *comm;    /* borrowed, or alone */
    struct qr_comm alone;
    enum qr_shard shard;
    int32_t n_leaves, n_micro; /* of a step; micro-batches of a leaf */
    struct qr_link link;
    struct qr_shares shares;
    struct qr_reduce reduce;
    struct qr_gather gather;
    struct qr_params *params; /* borrowed */
    struct qr_optim *optim;  /* borrowed */
    double *sums;            /* owned [3, n_leaves], and whether to stop */
    double *losses;          /* owned [ranks, n_tokens_max + 2]: of an evaluation's round */
    int32_t losses_max;
    double waited;           /* of the comm, when the step began */
};

/* comm NULL: alone. Requires n_leaves a multiple of the ranks, both powers of two, and batch of n_leaves * n_micro micro-batches. params may be planned: the
 * layout counts. */
void qr_parallel_init(struct qr_parallel *par, struct qr_comm *comm, enum qr_shard shard, int32_t n_leaves, int32_t n_micro, const struct qr_params *params);

/* When parameters, tape and optimizer are there; hooks itself to the tape. n_tokens_max: rows of a micro-batch. */
void qr_parallel_open(struct qr_parallel *par, struct qr_params *params, struct qr_tape *tape, struct qr_optim *optim, int32_t n_tokens_max);
void qr_parallel_close(struct qr_parallel *par); /* of zeros is fine */

/* Rows of the plan for parameters and optimizer, as this rank holds them. params may be planned. */
void qr_parallel_plan(struct qr_train_plan *plan, const struct qr_parallel *par, enum qr_optimizer kind, const struct qr_params *params);

/* A step begins: nothing is summed yet. */
void qr_parallel_step(struct qr_parallel *par);

/* This rank's leaf i of a step among all leaves; i < par->reduce.n_leaves. */
int32_t qr_parallel_leaf(const struct qr_parallel *par, int32_t i);

/* Micro-batch j of this rank's leaf i is recorded and walked back between the two. Errors: of the comm. */
void qr_parallel_micro(struct qr_parallel *par, int32_t i, int32_t j);
int qr_parallel_micro_ends(struct qr_parallel *par, int32_t i, double loss, int64_t n_tokens, double flops, struct qr_err *err);

/* The loss of leaf i so far. */
double qr_parallel_loss(const struct qr_parallel *par, int32_t i);

/* Behind the last micro-batch: the step's numbers. stop counts on rank 0. */
int qr_parallel_sum(struct qr_parallel *par, bool stop, struct qr_parallel_sums *out, struct qr_err *err);

/* Gradients become values, on every rank; matrices are packed. */
int qr_parallel_move(struct qr_parallel *par, double lr, double *norm, struct qr_err *err);

/* Every rank has evaluated one batch of a round: n targets' losses in order, 0: it had none. fn gets those of rank 0, then rank 1, .. on every rank. */
int qr_parallel_losses(struct qr_parallel *par, const double *losses, int32_t n, int64_t n_tokens,
                       void (*fn)(void *user, const double *losses, int32_t n, int64_t n_tokens), void *user, struct qr_err *err);

/* Seconds that this rank has waited for others since the step began. */
double qr_parallel_waited(const struct qr_parallel *par);

#endif
