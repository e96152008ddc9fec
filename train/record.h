/* record.h - inside train/ only: what a tape is made of. tape.c owns it and walks back; ops_record.c appends to it. */
#ifndef QR_TRAIN_RECORD_H
#define QR_TRAIN_RECORD_H

#include <stdbool.h>

#include "base/arena.h"
#include "model/model.h"
#include "train/tape.h"

struct qr_tape;
struct qr_node;

/* A verb as the tape knows it. run computes the node's outputs from its inputs (again, when a layer is made again); back adds to the gradients of its inputs.
 * Both only read the node. */
struct qr_verb {
    const char *name;
    void (*run)(struct qr_tape *t, const struct qr_node *n);
    void (*back)(struct qr_tape *t, const struct qr_node *n);
    bool cheap;     /* made again under QR_RECOMPUTE_SELECTIVE */
};

#define QR_NODE_SAVED_MAX 4

/* A tensor that the way back reads, as it was when the node was recorded. */
struct qr_saved {
    const char *name;
    int32_t storage;
    uint32_t version;
};

struct qr_node {
    const struct qr_verb *verb;
    struct qr_tensor in[3], out[2];
    const struct qr_weight *w, *bias;  /* borrowed from the parameters */
    struct qr_attn_spec spec;
    float number;                      /* eps, or the embedding's scale */
    enum qr_act act;
    struct qr_saved saved[QR_NODE_SAVED_MAX];
    int32_t n_saved, scope;            /* scope: -1 outside layers */
    bool redo;                         /* its results lie in `work`: made again on the way back */
};

/* One allocation: where it is, how often it was changed in place, and by which node last. */
struct qr_storage {
    const char *begin, *end;
    uint32_t version;
    int32_t culprit;
    bool graded;                       /* in `keep`: its gradient is there, be it zeros. Before that, what lies there is an earlier step's */
};

struct qr_scope {
    int32_t first, end;                /* its nodes */
    size_t work_used;
};

struct qr_tape {
    struct qr_exec exec;               /* first: a tape is an exec whose table records; exec.act is keep */
    struct qr_params *params;          /* borrowed */
    struct qr_model *model;            /* owned: over the parameters' weights */
    struct qr_tape_options o;
    struct qr_tape_memory memory;
    struct qr_arena keep, work;
    char *keep_grad, *work_grad;       /* in the region */
    void *region, *kv_mem;             /* owned */
    float *logits;                     /* in the region: a chunk */
    double *losses;                    /* owned [n_tokens_max], kernels' memory */
    double *losses_read;               /* owned: for the host to read, where it cannot read those; else NULL */
    int32_t *target_mem;               /* owned: the batch's targets, where kernels cannot read these; else NULL */
    struct qr_kv_view kv;
    enum qr_dtype real;

    struct qr_node *node;              /* owned; grows while planning, never later */
    struct qr_storage *storage;        /* owned; grows as node does */
    struct qr_scope *scope;            /* owned; grows as node does */
    int32_t n_nodes, nodes_max, n_storages, storages_max, n_scopes, scopes_max;
    int32_t rows_peak, blocks_peak;    /* of logits and of cache, in any step */
    int32_t in_scope;                  /* the open scope, or -1 */
    int32_t work_holds;                /* the scope whose values are in `work`, or -1 */
    bool planning;                     /* addresses are handed out, nothing is computed */
    bool recorded;                     /* a way back is there to be walked */
    bool gradients;                    /* the loss computes its gradient at once */
    qr_tape_loss_rows *loss_rows;      /* instead of cross-entropy; NULL: none */
    void *loss_user;

    struct qr_tape_watch watch;        /* end NULL: no watcher */
    struct qr_tape_layers layers;      /* of NULL: none */
    void *later;                       /* in the region: embedding's gradients that wait [later_max, n_embd], and their ids */
    int32_t *later_ids;
    int32_t later_max, n_later, n_later_peak;
    bool last_micro;                   /* nothing waits for a later micro-batch */
    const int32_t *target;             /* for a step, where kernels read them */
    float scale;
    int32_t n_targets;
};

extern const struct qr_ops qr_ops_record;

/* A new node of `verb`, not yet run. */
struct qr_node *qr_tape_node(struct qr_tape *t, const struct qr_verb *verb);

/* Memory for a result of the node, of type real: in `work` or `keep` as the policy says. */
struct qr_tensor qr_tape_result(struct qr_tape *t, struct qr_node *n, int64_t n_rows, int64_t n_cols);

/* The way back of node n reads this tensor, as it is now. */
void qr_tape_save(struct qr_tape *t, struct qr_node *n, const struct qr_tensor *tensor, const char *name);

/* Node n has changed this tensor in place. */
void qr_tape_touch(struct qr_tape *t, const struct qr_node *n, const struct qr_tensor *tensor);

/* Computes the node, unless planning. */
void qr_tape_run(struct qr_tape *t, const struct qr_node *n);

/* No gradient of what is kept is there any more: the way back begins. */
void qr_tape_open_gradients(struct qr_tape *t);

/* True: nothing has been added to the gradients of these tensors, and together they are all of what they lie in; the caller now writes every element
 * (`fresh` in kernels/backward.h). False: they are there, and are added to. */
bool qr_tape_grads_are_fresh(struct qr_tape *t, const struct qr_tensor *const *value, int32_t n);

/* A layer begins, with `work` empty, and ends. */
void qr_tape_scope_begin(struct qr_tape *t);
void qr_tape_scope_end(struct qr_tape *t);

static inline struct qr_tape *qr_tape_of(struct qr_exec *x)
{
    return (struct qr_tape *)(void *)x;
}

#endif
