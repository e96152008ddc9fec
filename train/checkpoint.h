/* checkpoint.h - what a run has reached, on disk: complete or not there.
 *
 * A checkpoint is a model directory that every other tool loads (config.json, model.safetensors, the tokenizer's files) and, beside the model,
 * what a resumed run needs to go on with the same bits: optimizer.safetensors (moments; f32 masters where the model's matrices are rounded), trainer.json
 * (position, seed, and every file's size and hash) and train.yaml. Matrices are stored as they are computed with, norm weights and biases as f32,
 * hence a served checkpoint gives the trainer's logits bit for bit.
 *
 * Order of a save: every file is written under a name of ours (".saving-...") and waited for, then the directory; the rename; the parent; the link
 * `latest`; the parent again; only then are older checkpoints removed. So a process killed, or a machine switched off, at any moment leaves the
 * checkpoint before in place. What killed saves leave behind is removed by qr_checkpoint_clean.
 * Checkpoints are the same whatever the number of ranks and what they have parts of: rank 0 writes, others bring their parts piece by piece.
 * One process at a time per run directory; one owning thread, that of the parameters.
 */
#ifndef QR_TRAIN_CHECKPOINT_H
#define QR_TRAIN_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"
#include "train/optim.h"
#include "train/params.h"

/* Small things that a resumed run needs. */
struct qr_checkpoint_state {
    int64_t step;       /* optimizer steps taken */
    int64_t position;   /* of the feed */
    uint64_t seed;      /* of the run */
    uint64_t data_hash; /* of the data that `position` counts in; 0: unknown */
    int64_t n_tokens;   /* trained on so far */
    int64_t leaves;     /* of the tree that adds a step's gradients; 0: unknown, an older checkpoint */
    int64_t best_step;  /* of best_loss; -1: none */
    double best_loss;   /* NaN: none */
    double seconds;     /* spent training */
};

struct qr_part;

struct qr_checkpoint_source {
    const struct qr_params *params;
    const struct qr_optim *optim;   /* NULL: an export, which holds the model alone */
    const char *tokenizer_dir;      /* its tokenizer files, chat template and generation_config.json are copied; NULL: none */
    const char *model_config;       /* the config.json that the model came from, whose other keys are kept; NULL: there is none */
    const char *config_text;        /* the run's resolved YAML, kept as train.yaml; NULL: none */
    /* Where ranks have parts: elements [first, first + n) of a tensor into `out`, called by all ranks together in the same order. NULL: all is here. */
    int (*bring)(void *user, const struct qr_part *part, int64_t first, int64_t n, void *out, struct qr_err *err);
    void *user;
};

/* Writes run_dir/step-%08d (run_dir must exist) and says where in `path`. One of that step which is there already is replaced. Of checkpoints up to
 * this step the newest `keep` are kept (0: all); later ones, of a run that was set back, stay. Errors: QR_E_IO names file and reason; nothing but the
 * checkpoint's temporary directory has been touched, and that is removed. Only where `latest` or an older checkpoint gives trouble is the new one in
 * place all the same; the message says so. Requires src->optim, and state->step == src->optim->step. */
int qr_checkpoint_save(const char *run_dir, const struct qr_checkpoint_source *src, const struct qr_checkpoint_state *state, int32_t keep,
                       char path[QR_PATH_MAX], struct qr_err *err);

#define QR_PARTS_PIECE_BYTES ((size_t)1 << 20) /* that ranks bring at once */

/* What other ranks do while one saves or exports (optim NULL) with src->bring: they bring the same. Without it, nothing. */
int qr_checkpoint_follow(const struct qr_checkpoint_source *src, struct qr_err *err);

/* The complete checkpoint with the most steps: trainer.json is readable and every file has the size that it says. QR_E_NOT_FOUND when there is none. */
int qr_checkpoint_latest(const char *run_dir, char path[QR_PATH_MAX], struct qr_err *err);

/* The same, and `passed` hears of every later one that is not complete, and why. */
int qr_checkpoint_find(const char *run_dir, char path[QR_PATH_MAX], void (*passed)(void *user, const char *why), void *user, struct qr_err *err);

/* Removes what killed saves left in run_dir; other files are left alone. For the start of a run. *n_removed may be
 * NULL. */
int qr_checkpoint_clean(const char *run_dir, int32_t *n_removed, struct qr_err *err);

/* The small things alone. */
int qr_checkpoint_read_state(const char *path, struct qr_checkpoint_state *state, struct qr_err *err);

/* Fills parameters and optimizer (moments and step), of the same model and kind as those saved, and packs. optim and state may be NULL. Everything
 * is checked first, hashes included: after an error nothing has been changed. Errors: QR_E_NOT_FOUND; QR_E_DAMAGED for files that contradict trainer.json
 * or their format; QR_E_INVALID for a checkpoint of another model, with file, tensor or key, found and expected. */
int qr_checkpoint_load(const char *path, struct qr_params *params, struct qr_optim *optim, struct qr_checkpoint_state *state, struct qr_err *err);

/* Where a model's directory `dir` goes, and the name beside it under which it is filled (then qr_dir_publish). Errors: QR_E_IO when it is there and not to be
 * replaced; QR_E_USAGE for a name that is empty or too long. */
int qr_export_paths(char path[QR_PATH_MAX], char spare[QR_PATH_MAX], const char *dir, bool replace, struct qr_err *err);

/* The model alone, with its tokenizer, as `dir`, complete or not there. With `replace` a directory that is there is replaced, else it is an error. */
int qr_model_export(const char *dir, const struct qr_checkpoint_source *src, bool replace, struct qr_err *err);

#endif
