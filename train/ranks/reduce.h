/* reduce.h - gradients of a step's leaves added up along one tree, whatever the number of ranks.
 *
 * A step's micro-batches are cut into `leaves` of consecutive ones. Within a leaf a gradient is one chain over rows, as on one rank; leaves are added as a
 * binary tree, ((0 + 1) + (2 + 3)) + ...; so a sum is the same bits however the leaves are dealt out:
 *
 *   together   rank r has consecutive leaves, a subtree, which a binary counter adds with log2(its leaves) more arrays; then ranks add along the rest
 *   in turn    rank r has leaves r, r + ranks, ...: behind each leaf the ranks reduce, the tree's lowest levels, and keep their parts alone; the
 *              counter adds those. What is not kept costs no memory, and nothing of a unit is there for longer than its own way back where leaves are
 *              single micro-batches
 *
 * On devices gradients are added by their own peers (kernels/peers.h) on a stream beside the queue's, in the same order; parts are not for them.
 *
 * A unit (train/ranks/shares.h) is started as soon as the way back of the leaf's last micro-batch is behind it, and travels while the rest is computed.
 * One owning thread, that of the parameters' backend.
 */
#ifndef QR_TRAIN_RANKS_REDUCE_H
#define QR_TRAIN_RANKS_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

#include "train/ranks/link.h"
#include "train/ranks/shares.h"

#define QR_REDUCE_LEVELS_MAX 16
#define QR_REDUCE_FLIGHT 2 /* units in flight before the oldest is waited for, where they cost memory */

struct qr_reduce {
    struct qr_link *link;            /* borrowed, as what follows */
    struct qr_params *p;
    const struct qr_shares *shares;
    bool parts, in_turn;             /* every rank gets the sum of its parts alone; leaves are dealt out in turn */
    int32_t n_units;                 /* of the model: tensors behind it get no gradients from a tape */
    int32_t n_leaves, n_levels;      /* of this rank */
    float *level[QR_REDUCE_LEVELS_MAX]; /* owned [p->n]: sums that wait for their neighbours */
    int32_t *flight;                 /* owned [n_units]: units in flight, the oldest first */
    int64_t *ticket;                 /* owned [n_units] */
    int32_t n_flight;
    int32_t leaf;                    /* of this rank's, being computed */
    bool closes;                     /* by the micro-batch that is being computed */
};

/* n_leaves: of this rank, a power of two. in_turn implies parts. */
void qr_reduce_open(struct qr_reduce *r, struct qr_link *link, struct qr_params *p, const struct qr_shares *shares, bool parts, bool in_turn,
                    int32_t n_leaves);
void qr_reduce_close(struct qr_reduce *r); /* of zeros is fine */

/* A micro-batch of this rank's leaf begins; `closes`: it is the leaf's last. */
void qr_reduce_micro(struct qr_reduce *r, int32_t leaf, bool closes);

/* This micro-batch's gradients of a unit are complete. */
void qr_reduce_unit(struct qr_reduce *r, int32_t unit);

/* The micro-batch has ended. Behind the last of the step the sums are there, and others' elements are zeros where ranks have parts. Errors stay in the
 * link. */
void qr_reduce_micro_ends(struct qr_reduce *r);

#endif
