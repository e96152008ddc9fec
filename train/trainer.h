/* trainer.h - a training run as one object: data, parameters, tape, optimizer and checkpoints, moved on step by step.
 *
 * A run is a function of (settings, data, starting point): the same one twice, or interrupted and resumed from a checkpoint, gives the same bytes. A step reads
 * `batch.micro` micro-batches, adds up their gradients in the order of the rows (several leaves: as a tree, reduce.h), and moves the parameters once. Screen
 * and files are the caller's.
 * Ranks that share the work (parallel.h) get the same bytes as one, for the same number of leaves.
 * One owning thread, that of the backend's queue. The configuration is borrowed for the trainer's life.
 */
#ifndef QR_TRAIN_TRAINER_H
#define QR_TRAIN_TRAINER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "comm/comm.h"
#include "train/checkpoint.h"
#include "train/config.h"
#include "train/data/feed.h"
#include "train/optim.h"
#include "train/ranks/parallel.h"
#include "train/plan.h"
#include "train/data/shards.h"
#include "train/tape.h"
#include "train/trace.h"

/* What a kind of training does differently: adapters, distillation, rounding, pruning. Every entry may be NULL. `user` is the variant's. */
struct qr_train_variant {
    const char *name;
    bool parts;      /* no entry reads or writes values or gradients: they may be in parts (parallel.shard) */
    void *user;
    /* Before planning: what else it will take (qr_train_plan_add), which tensors stay as they are (params'
     * `frozen`). params are planned only. */
    int (*plan)(void *user, struct qr_params *params, struct qr_tape_options *tape, struct qr_train_plan *plan, struct qr_err *err);
    /* When the starting weights are there, drawn or read; a resumed run's are not yet in their place. */
    void (*fresh)(void *user, struct qr_params *params);
    /* When parameters are there, new or resumed. */
    int (*begin)(void *user, struct qr_params *params, struct qr_tape *tape, struct qr_err *err);
    /* In place of cross-entropy: records and walks back one micro-batch, with gradients of scale times the sum; losses [b->b.n_logits], one for each target. */
    int (*loss)(void *user, struct qr_tape *tape, const struct qr_train_batch *b, float scale, double *losses, struct qr_err *err);
    /* After the gradients of all micro-batches are there, those of frozen tensors included; before the latter are dropped and the rest is clipped. */
    void (*before_step)(void *user, struct qr_params *params);
    /* After the values moved: may change values or what is computed with (and then packs them anew). */
    void (*after_step)(void *user, struct qr_params *params);
    /* Behind a model's export: files of its own in the run's directory. */
    int (*finish)(void *user, const struct qr_params *params, const char *run_dir, struct qr_err *err);
    void (*end)(void *user);
};

struct qr_trainer {
    const struct qr_train_config *c;   /* borrowed */
    struct qr_train_variant variant;
    struct qr_backend *be;             /* owned, as everything below */
    struct qr_device_comm *devices;    /* of several ranks' devices, or NULL */
    struct qr_model_config model;
    struct qr_buf model_text;          /* the config.json that it is of; empty: none */
    struct qr_shards *shards, *eval_shards; /* eval: NULL when there is none */
    struct qr_feed *feed, *eval_feed;
    int64_t n_steps;                   /* of the whole run */
    double epoch_steps;                /* steps of an epoch; 0: the run ends before the data does */
    const char *tokenizer_dir;         /* borrowed from c */
    char eval_dir[4096];
    struct qr_train_plan plan;
    struct qr_train_flops flops;
    struct qr_tape_options tape_options;
    struct qr_params *params;          /* planned until qr_trainer_begin */
    struct qr_tape *tape;              /* NULL until then */
    struct qr_optim optim;
    struct qr_train_batch batch;
    double *losses;
    int64_t *positions;                /* owned [batch.micro + 1]: of the step's micro-batches and the next step */
    struct qr_parallel par;            /* of this rank */
    const atomic_int *stop;            /* borrowed; NULL: none. Not 0: rank 0 is to stop, which the next step tells all ranks */
    struct qr_checkpoint_state state;
    struct qr_progress *progress;      /* borrowed; NULL: none. Of qr_trainer_begin's drawing or reading of weights */
    struct qr_train_trace *trace;      /* borrowed; NULL: none. Steps tell it what they do; it watches the tape itself */
};

struct qr_train_step {
    int64_t step;                      /* 1: the first */
    int64_t n_tokens, n_targets;
    double loss, norm, lr;             /* loss: the mean over targets before the step; norm: of the gradients before clipping */
    double flops, seconds;
    double waited;                     /* seconds of them in which this rank waited for others */
    bool stop;                         /* agreed by all ranks: rank 0 was asked to stop */
};

/* Reads what there is to read, checks it against each other, plans memory. Allocates little. variant NULL: plain training. On error *out is NULL. Errors
 * name file, setting, what was found and expected.
 * comm NULL: alone. With several ranks each opens a trainer over its own comm, borrowed for the trainer's life, and all make the same calls in the same order:
 * begin, step, evaluate, save, export. An error of one ends those of all. Files are written by rank 0. */
int qr_trainer_open(struct qr_trainer **out, const struct qr_train_config *c, const struct qr_train_variant *variant, struct qr_comm *comm,
                    struct qr_err *err);

/* QR_E_NO_ROOM when the plan does not fit into `available` bytes; names settings that would. */
int qr_trainer_check_room(struct qr_trainer *t, int64_t available, struct qr_err *err);

/* Allocates; weights are drawn, read, or those of the run's latest checkpoint (resume). */
int qr_trainer_begin(struct qr_trainer *t, bool resume, struct qr_err *err);

/* One step. Errors: QR_E_INVALID when a loss or a gradient is not finite, naming the first tensor that is not; nothing has been changed then. */
int qr_trainer_step(struct qr_trainer *t, struct qr_train_step *out, struct qr_err *err);

/* Mean loss over held-out data, *n_targets of them. Requires t->eval_feed. */
int qr_trainer_evaluate(struct qr_trainer *t, double *loss, int64_t *n_targets, struct qr_err *err);

/* A checkpoint in save.out; path gets its directory. */
int qr_trainer_save(struct qr_trainer *t, char path[QR_PATH_MAX], struct qr_err *err);

/* The model alone, to be served. The second ends a run: the variant writes its own files, too. */
int qr_trainer_export(struct qr_trainer *t, const char *dir, struct qr_err *err);
int qr_trainer_finish(struct qr_trainer *t, const char *dir, struct qr_err *err);

void qr_trainer_close(struct qr_trainer *t); /* NULL is fine */

#endif
