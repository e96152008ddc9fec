/* muon.h - Muon: a matrix moves along its momentum made orthogonal, so that every direction in it counts alike.
 *
 *     m = mu m + g      u = g + mu m      u = u / |u|      5 times: u = 3.4445 u - 4.7750 (u u') u + 2.0315 (u u')^2 u
 *     w = w (1 - lr decay) - lr 0.2 sqrt(max(rows, columns)) u
 *
 * The iteration drives every singular value to about 1 (0.7 to 1.2; that is near enough) by products of matrices alone:
 * those of serving, in what the model computes in, three to a round. A tall matrix is transposed first. u itself is
 * never rounded, only what products read, and is kept divided by 3.4445 for every round behind it, so that a round adds
 * to it where it lies. The factor 0.2 sqrt(..) gives a step the size that AdamW's would have: both take the same
 * learning rates and decay. Momenta are the optimizer's first moments; there are no second ones. Only matrices of
 * layers: embeddings, head and vectors are AdamW's. One owning thread, that of the parameters' backend. Sources: Jordan
 * et al. 2024, "Muon: an optimizer for hidden layers in neural networks"; the factor: Liu et al. 2025
 * (arXiv:2502.16982). */
#ifndef QR_TRAIN_MUON_H
#define QR_TRAIN_MUON_H

#include "train/params.h"

struct qr_muon {
    struct qr_backend *be;     /* borrowed */
    enum qr_dtype product;     /* f32 or bf16 */
    void *region;              /* owned: all of the following */
    float *x, *y;              /* [largest matrix] */
    float *a, *b;              /* [largest smaller side]^2 */
    uint16_t *half;            /* what is packed next, rounded; NULL: products are f32 */
    void *packed, *packed_square; /* as `linear` reads them: x or x turned, and a */
    double *leaf;
};

size_t qr_muon_bytes(const struct qr_params *p); /* of the region */
void qr_muon_init(struct qr_muon *mu, const struct qr_params *p);
void qr_muon_release(struct qr_muon *mu);        /* of zeros is fine */

/* The matrix u [rows, columns] made orthogonal is *factor times the result, which is the object's until the next call. u may be mu->x. Requires room: no more
 * rows times columns than the largest matrix of the parameters, nor a longer shorter side. Numerics: does not depend on threads. */
const float *qr_muon_orthogonal(struct qr_muon *mu, double *factor, const float *u, int32_t n_rows, int32_t n_cols);

/* One step of tensor t, momentum at m; gradients are multiplied by gscale and zeroed. step and seed as in adamw. */
struct qr_muon_step {
    double lr, momentum, decay, gscale;
    int64_t step;
    uint64_t seed;
};
void qr_muon_move(struct qr_muon *mu, struct qr_params *p, const struct qr_param *t, float *m, const struct qr_muon_step *s);

#endif
