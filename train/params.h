/* params.h - a model's parameters while they are trained: one array of values, one of gradients, the same index in both.
 *
 * The values are f32 masters. What the forward pass computes with is made from them: with f32 matrices the values themselves, with bf16 ones their
 * rounded copy `half`; and packed for `linear` after every change (qr_params_pack). Pieces that the model fuses (q, k, v; gate, up) lie one behind the
 * other, a tied head is the embedding's rows: views need no code. Norm weights and biases are always computed with as f32.
 * One owning thread; the tape and the optimizer borrow.
 */
#ifndef QR_TRAIN_PARAMS_H
#define QR_TRAIN_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/progress.h"
#include "kernels/backend.h"
#include "loader/model_config.h"
#include "loader/weight_table.h"
#include "loader/weights.h"

/* One tensor of the model's file. */
struct qr_param {
    char name[QR_WEIGHT_NAME_MAX];
    int64_t first, n;        /* its elements in the arrays */
    int64_t shape[2];
    int32_t n_dims;
    bool decays;             /* matrices and embeddings; norm weights and biases do not */
    bool extra;              /* no tensor of the model's file: added by qr_params_extend */
    bool stale;              /* what lies in its gradient counts as 0: the optimizer has used it up. False when opened */
    bool frozen;             /* the optimizer leaves it alone; false when opened. The setter keeps its gradient zero */
};

struct qr_params;

/* For a rank that has a part of the parameters only: told when their arrays are there, untouched, and when a tensor has got its values (from a generator or
 * a file), so that what others have is dropped before the next one comes. */
struct qr_params_hold {
    void (*opened)(void *user, struct qr_params *p); /* NULL: everything is kept, as of zeros */
    void (*filled)(void *user, struct qr_params *p, const struct qr_param *t);
    void *user;
    struct qr_progress *progress; /* borrowed until the parameters are filled; NULL: none */
    bool layers_apart;       /* layers are packed when they are needed (qr_params_pack_layer), not by qr_params_pack */
};

/* Values that the host makes one by one, to be copied where it cannot write. */
struct qr_params_fill {
    void *room;       /* owned, or NULL */
    int64_t first, n; /* elements of the array that are in it */
};

struct qr_params {
    struct qr_model_config config;
    enum qr_dtype real;      /* of values and gradients: f32, or f64 with kernels compiled in double */
    enum qr_dtype compute;   /* of matrices in the forward pass: `real` or bf16 */
    int64_t n;               /* elements, zeros between tensors included */
    void *value, *grad;      /* owned [n] */
    enum qr_dtype packs;     /* what matrices are packed as for products: `compute`, or a quantized type (qr_params_quantize) */
    uint16_t *half;          /* owned [n] bf16, or NULL */
    void *last_norm;         /* owned: the last norm's vector as it is computed with, where the model divides its logits; NULL: its values are */
    uint16_t *seen;          /* owned [n] bf16: matrices as quantized products see them, for the way back; NULL: those are exact */
    struct qr_param *param;  /* owned [n_params], in the order of the arrays */
    int32_t n_params;
    struct qr_weights weights; /* owned: what a forward reads; region holds the packed matrices */
    struct qr_backend *be;   /* borrowed */
    struct qr_params_hold hold;
    struct qr_params_fill fill;
    bool planned;            /* made by qr_params_plan: nothing lies behind the addresses */
};

/* As it would be after opening, without memory behind it: names, shapes, sizes (n, weights.region_bytes), and what qr_tape_plan needs. */
void qr_params_plan(struct qr_params **out, const struct qr_model_config *c, struct qr_backend *be, enum qr_dtype real, enum qr_dtype compute);

/* More f32 tensors behind the model's, which the optimizer moves and a checkpoint keeps, and no forward reads: adapters. Of `more` name, shape (two
 * dimensions) and decays count; values and gradients are zeros. Before a tape is opened: addresses change. */
void qr_params_extend(struct qr_params *p, const struct qr_param *more, int32_t n);

/* From now on matrices are packed as `to`, from `half`, and a forward computes what a served model of that type does; weights that gradients go back through
 * are the rounded ones. Of planned parameters the sizes change. Requires bf16 matrices; before a tape is opened: addresses change. */
void qr_params_quantize(struct qr_params *p, enum qr_dtype to);

/* Bytes that values, gradients, rounded copies and packed matrices take. */
size_t qr_params_bytes(const struct qr_params *p);

/* From a model directory; values become `real`, matrices are computed with as `compute`. Packed and ready. Errors name file and tensor. */
int qr_params_open(struct qr_params **out, const char *dir, struct qr_backend *be, enum qr_dtype real, enum qr_dtype compute, struct qr_err *err);
int qr_params_open_held(struct qr_params **out, const char *dir, struct qr_backend *be, enum qr_dtype real, enum qr_dtype compute,
                        const struct qr_params_hold *hold, struct qr_err *err);

/* From nothing: matrices normal with standard deviation `std` (those that write to the residual stream std / sqrt(2 L)), norm weights 1, biases 0; a
 * function of the seed. Source of the smaller one: Radford et al. 2019 (GPT-2). */
void qr_params_init(struct qr_params **out, const struct qr_model_config *c, struct qr_backend *be, enum qr_dtype compute, double std, uint64_t seed);
void qr_params_init_held(struct qr_params **out, const struct qr_model_config *c, struct qr_backend *be, enum qr_dtype compute, double std, uint64_t seed,
                         const struct qr_params_hold *hold);
void qr_params_close(struct qr_params *p); /* NULL is fine */

/* After values (and with bf16 `half`) have changed: matrices are packed anew, and the last norm is divided. */
void qr_params_pack(struct qr_params *p);

/* Those of one layer alone, -1: outside layers; and where its packed matrices lie. */
void qr_params_pack_layer(struct qr_params *p, int32_t layer);
void *qr_params_packed(const struct qr_params *p, int32_t layer, size_t *n_bytes);

/* half = values to nearest; for values that did not come from the optimizer, which rounds by chance. */
void qr_params_round(struct qr_params *p);

void qr_params_zero_grad(struct qr_params *p);

/* Where the gradient of a weight of p->weights lies, to be added to. What was stale of it is zero now. */
void *qr_params_grad(const struct qr_params *p, const struct qr_weight *w);

/* True: all of it was stale, and is not any more: the caller writes every element next. */
bool qr_params_grad_is_fresh(const struct qr_params *p, const struct qr_weight *w);

/* Zeroes what is still stale: from here on the array is what it says. A way back ends with it. */
void qr_params_settle(struct qr_params *p);

/* Values of a vector of p->weights, and what they are multiplied by to be the ones that are computed with: 1, but for the last norm of a model that divides
 * its logits. */
void *qr_params_vector(const struct qr_params *p, const struct qr_weight *w, double *factor);

/* The first tensor of the matrix or vector that a weight of p->weights is: q's name where q, k and v are one. */
const char *qr_params_name(const struct qr_params *p, const struct qr_weight *w);

/* A matrix of a layer: neither embedding, head nor vector. */
bool qr_param_is_layer_matrix(const struct qr_param *t);

const struct qr_param *qr_params_find(const struct qr_params *p, const char *name); /* NULL: not there */

#endif
