/* tape.h - a forward pass that is remembered and walked back.
 *
 * A tape is an exec (model/model.h) whose table of verbs records: every verb appends a node, computes with the serving kernels, and keeps what its gradient
 * needs. The order of execution is a topological order, so the way back is the list read backwards.
 *
 * Memory. One region, planned when the tape is opened by recording the largest batch without computing; no step
 * allocates. Values lie in two areas: `keep` for the whole step, `work` for one layer at a time. The gradient of the
 * value at keep + o lies at keep_grad + o, and so for work: views and fused matrices need no code, and zeroing is one
 * memset.
 *
 * Recomputation. A verb's result goes to `work`, and is overwritten by the next layer, where the policy says so; on the way back a layer's nodes
 * are run again first, at the same addresses with the same kernels. So loss and gradients are the same bits under every policy.
 *
 * Versions. Every allocation has a version that a verb working in place increases. A node remembers the versions of what it saved; finding another one
 * on the way back is an error that names verb, tensor and culprit.
 *
 * One owning thread, that of the backend's queue. The model's parameters are borrowed; gradients are added to theirs.
 */
#ifndef QR_TRAIN_TAPE_H
#define QR_TRAIN_TAPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/tensor.h"
#include "model/model.h"
#include "train/batch.h"
#include "train/params.h"

enum qr_recompute {
    QR_RECOMPUTE_NONE,      /* everything is kept */
    QR_RECOMPUTE_SELECTIVE, /* results of norms and gated units are made again: they are cheap */
    QR_RECOMPUTE_FULL,      /* a layer keeps its input only and is made again as a whole: one more forward pass */
};

struct qr_tape_options {
    enum qr_recompute recompute;
    int32_t n_tokens_max, n_seqs_max; /* of a batch */
    int32_t chunk_rows;               /* rows of logits at a time in the loss (0: 256, or all); see kernels/backward.h, linear_cross_entropy */
    int32_t n_micro;                  /* micro-batches whose gradients become one sum (0: 1); see qr_tape_micro */
    bool logits;                      /* keep logits as a recorded tensor instead of computing the loss: for a caller with a loss of its own */
};

/* Bytes of each part of the region. */
struct qr_tape_memory {
    size_t keep, work, grad, logits, later, kv, total;
};

/* Most bytes of `later` where the embedding's own gradient is smaller. */
#define QR_TAPE_LATER_BYTES ((size_t)64 << 20)

struct qr_tape; /* opaque; begins with its struct qr_exec */

/* What opening would take. Parameters may be a plan (qr_params_plan). Errors: as of opening. */
int qr_tape_plan(struct qr_tape_memory *out, struct qr_params *p, const struct qr_tape_options *options, struct qr_err *err);

/* Errors: QR_E_UNSUPPORTED from the backend. Batches must fit b->n_tokens_max and n_seqs_max of the options. */
int qr_tape_open(struct qr_tape **out, struct qr_params *p, const struct qr_tape_options *options, struct qr_err *err);
void qr_tape_close(struct qr_tape *t); /* NULL is fine */

const struct qr_tape_memory *qr_tape_memory(const struct qr_tape *t);

/* The most of each part that any step has used; at most what was planned. */
struct qr_tape_memory qr_tape_peak(const struct qr_tape *t);

/* Records a forward pass with the loss: the sum over targets of -log p, in f64. The gradient that follows is that of scale times it: 1 / (number of
 * targets of all micro-batches) makes the mean. losses, when not NULL, receives each target's. */
double qr_tape_loss(struct qr_tape *t, const struct qr_train_batch *b, float scale, double *losses);

/* The caller's own loss in place of cross-entropy, from now on, where gradients follow: a chunk's logits become their
 * gradient times scale, and its losses are filled in; `first` is the first of these rows among the batch's targets. See
 * kernels/backward.h, linear_cross_entropy. */
typedef void qr_tape_loss_rows(void *user, const struct qr_cross_entropy_args *a, int32_t first);
void qr_tape_set_loss(struct qr_tape *t, qr_tape_loss_rows *rows, void *user);

/* Rows of such a chunk at most, for a tape of these options. */
int32_t qr_tape_chunk_rows(const struct qr_tape_options *options);

/* The loss alone: nothing is recorded, no gradient follows. With options.logits, too. */
double qr_tape_evaluate(struct qr_tape *t, const struct qr_train_batch *b, double *losses);

/* With options.logits: records a forward pass, returns logits [n_logits, V] and in *grad, of the same shape and zeroed, the place for their gradient. */
struct qr_tensor qr_tape_logits(struct qr_tape *t, const struct qr_batch *b, struct qr_tensor *grad);

/* The next recording is number i of options.n_micro, in order, before gradients are used. A head that is the embedding as well gets gradients of two kinds:
 * as head on the way there, row after row, and as embedding at the end of the way back. Those of the latter kind wait for the last micro-batch, so that the
 * sum is that of one batch of all rows, bit for bit: first all rows as head, then all rows as embedding. What waits (`later`) takes a row of n_embd numbers
 * for each token; where that is more than QR_TAPE_LATER_BYTES and more than the embedding's gradient itself, the two kinds come by turns instead. */
void qr_tape_micro(struct qr_tape *t, int32_t i);

/* Walks back what was recorded last, adding to the parameters' gradients. Once per recording. Errors: QR_E_INTERNAL names the verb whose saved tensor
 * was changed in place, and by which. */
int qr_tape_backward(struct qr_tape *t, struct qr_err *err);

/* A verb being computed, for a watcher: traces, the search for what is not finite. Tensors that it does not have have
 * data NULL. */
enum qr_tape_pass { QR_PASS_FORWARD, QR_PASS_AGAIN, QR_PASS_BACKWARD }; /* AGAIN: on the way back, before the layer's gradients */
struct qr_tape_op {
    const char *verb;
    enum qr_tape_pass pass;
    int32_t layer;                 /* -1: outside layers */
    const struct qr_weight *w;     /* NULL: it has none */
    const struct qr_tensor *in, *out; /* [3], [2] */
};
struct qr_tape_watch {
    void (*begin)(void *user, const struct qr_tape_op *op); /* may be NULL */
    void (*end)(void *user, const struct qr_tape_op *op);
    void *user;
};

/* From now on; NULL: no watcher any more. Copied. */
void qr_tape_set_watch(struct qr_tape *t, const struct qr_tape_watch *watch);

/* Called around each layer, forward and on the way back: for the code that brings its weights and takes its gradients
 * away. Planning does not call it. */
struct qr_tape_layers {
    void (*enter)(void *user, int32_t layer, bool back);
    void (*leave)(void *user, int32_t layer, bool back);
    void *user;
};
void qr_tape_set_layers(struct qr_tape *t, const struct qr_tape_layers *layers); /* copied; NULL: none any more */

/* For callers that record verbs directly (tests): the exec, a fresh recording over a batch, a tensor of the kept area,
 * and the gradient of a tensor. */
struct qr_exec *qr_tape_exec(struct qr_tape *t);
void qr_tape_begin(struct qr_tape *t, const struct qr_batch *b);
struct qr_tensor qr_tape_tensor(struct qr_tape *t, int64_t n_rows, int64_t n_cols);
struct qr_tensor qr_tape_grad(struct qr_tape *t, const struct qr_tensor *value);

#endif
