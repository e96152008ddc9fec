/* optim.h - from gradients to the next values: clipping by the norm of all gradients, AdamW with decay for matrices only or Muon for the matrices of
 * layers (muon.h), learning-rate schedules.
 *
 * A step is a function of (values, moments, gradients, step number, seed): the norm is summed by one fixed tree over leaves of elements at fixed places,
 * and bf16 weights are rounded by numbers that depend on (seed, step, index) alone. So the same run twice, or resumed, gives the same bytes; and so do
 * several ranks of which each moves its part (train/ranks/shares.h).
 * One owning thread, that of the parameters' backend.
 */
#ifndef QR_TRAIN_OPTIM_H
#define QR_TRAIN_OPTIM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "comm/comm.h"
#include "train/muon.h"
#include "train/params.h"
#include "train/ranks/shares.h"

enum qr_optimizer { QR_OPTIMIZER_ADAMW, QR_OPTIMIZER_MUON };

struct qr_optim_config {
    enum qr_optimizer kind;
    double momentum;         /* of Muon */
    double beta1, beta2, eps;
    double decay;            /* of matrices and embeddings; norm weights and biases have none */
    double clip;             /* largest norm of all gradients together; 0: no clipping */
    uint64_t seed;           /* of the rounding to bf16 */
};

struct qr_optim {
    struct qr_optim_config c;
    struct qr_params *params; /* borrowed */
    void *m, *v;              /* owned [params->n]: first and second moments, of the parameters' type */
    double *leaf, *sums;      /* owned: leaves of the norm, kernels' memory, and the host's copy */
    struct qr_shares shares;    /* owned: of one rank, unless ranks share the work */
    struct qr_comm *comm;     /* borrowed; NULL: the gradients are whole here */
    double lr, gscale;        /* of the step that has begun */
    struct qr_muon muon;      /* of zeros with AdamW */
    int64_t step;             /* steps taken */
};

/* Asserts betas and momentum in [0, 1), eps > 0, decay >= 0 and clip >= 0: a configuration is checked where it is read. */
void qr_optim_init(struct qr_optim *o, struct qr_params *p, const struct qr_optim_config *c);
void qr_optim_release(struct qr_optim *o);

/* Bytes that moments and scratch take; qr_muon_bytes come to it. Moments of frozen tensors, and second moments of Muon's
 * matrices, are never touched and do not count. shares NULL: of a rank that has everything. */
size_t qr_optim_bytes(const struct qr_params *p, enum qr_optimizer kind, const struct qr_shares *shares);

/* One step at learning rate lr: clips, moves the values, packs them for the next forward. *norm is the gradients' before clipping. Gradients count
 * as zero behind it (qr_param.stale), and are once qr_params_settle has run: the next batch's may be added at once. Errors: QR_E_INVALID when the norm
 * is not finite; it names the first tensor whose gradient is not, and nothing has been changed.
 * Clipping multiplies by clip / (norm + 1e-6) where that is less than 1. Source: Pascanu et al. 2012 (arXiv:1211.5063). */
int qr_optim_step(struct qr_optim *o, double lr, double *norm, struct qr_err *err);

/* From now on this rank has its own part of the gradients, the moments and the values alone; steps are begun by all ranks together. Before the first step. */
void qr_optim_share(struct qr_optim *o, struct qr_comm *comm);

/* A step in pieces, for ranks that hand values on as they are ready: begin computes the norm and counts the step
 * (errors as above, those of comm, too), then every unit of o->shares is moved once, in any order. Matrices are not
 * packed. Requires AdamW where ranks share. */
int qr_optim_begin(struct qr_optim *o, double lr, double *norm, struct qr_err *err);
void qr_optim_move(struct qr_optim *o, int32_t unit);

enum qr_schedule { QR_SCHEDULE_CONSTANT, QR_SCHEDULE_LINEAR, QR_SCHEDULE_COSINE };

struct qr_lr {
    enum qr_schedule schedule;
    double peak, last;            /* after warm-up, and at the end (linear, cosine) */
    int64_t warmup_steps, n_steps;
};

/* The rate of a step (0 the first): rises linearly to the peak in warmup_steps steps, then stays, falls linearly, or falls by half a cosine to `last` at
 * step n_steps - 1, where it stays. Source of the cosine: Loshchilov & Hutter 2016 (arXiv:1608.03983). */
double qr_lr_at(const struct qr_lr *lr, int64_t step);

#endif
