/* shares.h - which rank has which part of the parameters.
 *
 * Parameters lie in units, in the order of their arrays: the embedding; what else is outside layers; each layer; tensors added behind the model. A
 * unit is what is reduced or gathered at once. Each is cut into as many parts as there are ranks, at multiples of QR_SUM_LEAF elements from its beginning, so
 * that a leaf of the gradients' norm is one rank's. Indices stay those of the whole arrays: what a rank does not have of them costs it no memory
 * (qr_mem_drop), and no code that names an element has to know. Pure data, immutable.
 */
#ifndef QR_TRAIN_RANKS_SHARES_H
#define QR_TRAIN_RANKS_SHARES_H

#include <stdbool.h>
#include <stdint.h>

#include "train/params.h"

/* What is cut into parts instead of being on every rank, each with what the one before cuts. */
enum qr_shard {
    QR_SHARD_NONE,      /* nothing: ranks share the work alone */
    QR_SHARD_OPTIMIZER, /* moments, and masters where they are not what is computed with (ZeRO-1) */
    QR_SHARD_GRADIENTS, /* gradients, once they are summed (ZeRO-2) */
    QR_SHARD_FULL,      /* what is computed with: a layer is gathered before its use and dropped behind it */
};

enum { QR_UNIT_EMBED, QR_UNIT_OUTSIDE, QR_UNIT_LAYER /* the first */ };

struct qr_shares {
    int32_t rank, size;
    int32_t n_units, n_layers;
    int64_t *first; /* owned [n_units + 1]: unit u is [first[u], first[u + 1]) */
    int64_t *leaf;  /* owned [n_units + 1]: leaves of the norm before unit u */
};

/* params may be planned. */
void qr_shares_init(struct qr_shares *s, const struct qr_params *p, int32_t rank, int32_t size);
void qr_shares_release(struct qr_shares *s); /* of zeros is fine */

/* Where the part of a rank in unit u begins; rank `size`: where the unit ends. Parts may be empty. */
int64_t qr_shares_begin(const struct qr_shares *s, int32_t u, int32_t rank);

/* What a rank has of elements [*a, *b), which lie in one unit; false, and an empty range, when that is nothing. */
bool qr_shares_clip(const struct qr_shares *s, int32_t rank, int64_t *a, int64_t *b);

/* Elements that all parts of this rank have. */
int64_t qr_shares_n_own(const struct qr_shares *s);

/* Elements of unit u that are other ranks'. */
int64_t qr_shares_n_foreign(const struct qr_shares *s, int32_t u);

/* Before an array of [n] elements of `size` bytes is touched: huge pages end where this rank's parts do. */
void qr_shares_cut(const struct qr_shares *s, void *array, size_t size);

/* Others' elements of [a, b), which lie in one unit, become zeros and cost nothing. */
void qr_shares_drop_foreign(const struct qr_shares *s, void *array, size_t size, int64_t a, int64_t b);

#endif
