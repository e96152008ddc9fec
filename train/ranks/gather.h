/* gather.h - parameters that are cut into parts, brought together where they are needed.
 *
 * What a rank keeps of them (enum qr_shard): masters, its own part, where the model computes with their rounded copies,
 * and whole where they are what is computed with; what is computed with, whole, or with QR_SHARD_FULL its own part of
 * each layer, which is gathered before the layer's use, packed, and dropped behind it. Embedding, head and vectors are
 * whole always: every pass needs embedding and head at both of its ends, and vectors are small. The next layer travels
 * while one is computed. One owning thread, that of the parameters' backend. */
#ifndef QR_TRAIN_RANKS_GATHER_H
#define QR_TRAIN_RANKS_GATHER_H

#include <stdbool.h>
#include <stdint.h>

#include "train/ranks/link.h"
#include "train/ranks/shares.h"

struct qr_gather {
    struct qr_link *link;            /* borrowed, as what follows */
    struct qr_params *p;             /* NULL until it is opened */
    const struct qr_shares *shares;
    enum qr_shard shard;
    bool packs_again;                /* products of a layer are computed again on the way back */
    int64_t *ticket;                 /* owned [n_units] */
    bool *held, *packed;             /* owned [n_layers]: a layer is whole here; and packed */
    int32_t coming;                  /* the layer that is in flight, or -1 */
    float *vectors;                  /* owned: all vectors, rank by rank */
    int64_t n_vectors, *vectors_part; /* owned [ranks + 1] */
};

/* What parameters that are opened for this gather keep; it is borrowed by them. Before qr_gather_open, of which only shares and shard count here. */
struct qr_params_hold qr_gather_hold(struct qr_gather *g);

/* g->link, shares, shard and packs_again are set; p was opened with qr_gather_hold. */
void qr_gather_open(struct qr_gather *g, struct qr_params *p);
void qr_gather_close(struct qr_gather *g); /* of zeros is fine */

/* A layer is entered and left, forward or on the way back. */
void qr_gather_enter(struct qr_gather *g, int32_t layer, bool back);
void qr_gather_leave(struct qr_gather *g, int32_t layer, bool back);

/* The optimizer has moved this rank's part of a unit; and all units. Behind the latter everything that is kept whole is, and packed. */
void qr_gather_moved(struct qr_gather *g, int32_t unit);
void qr_gather_all_moved(struct qr_gather *g);

/* Elements [a, b) of an array of the parameters' shape, of which every rank has its own part, in `out` of rank 0 and others alike; they lie in one unit. */
void qr_gather_range(struct qr_link *link, const struct qr_shares *s, const void *array, enum qr_dtype dtype, int64_t a, int64_t b, void *out);

#endif
