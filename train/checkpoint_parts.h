/* checkpoint_parts.h - inside train/ only: the tensors of a checkpoint's two files and where they lie in memory. Saving and loading walk the same list.
 *
 *     model.safetensors       NAME          matrices as they are computed with, vectors f32
 *     optimizer.safetensors   master.NAME   f32 values of the matrices, where the model's file has them rounded, and of adapters
 *                             m.NAME        first moments, of what is not frozen
 *                             v.NAME        second moments; those of Muon's matrices do not exist, either
 */
#ifndef QR_TRAIN_CHECKPOINT_PARTS_H
#define QR_TRAIN_CHECKPOINT_PARTS_H

#include "loader/write/safetensors_write.h"
#include "train/checkpoint.h"
#include "train/optim.h"
#include "train/params.h"

#define QR_MODEL_FILE "model.safetensors"
#define QR_OPTIMIZER_FILE "optimizer.safetensors"
#define QR_PART_NAME_MAX (QR_WEIGHT_NAME_MAX + 8)

struct qr_part {
    char name[QR_PART_NAME_MAX];
    struct qr_st_entry entry; /* entry.name is name */
    void *array;              /* borrowed from the parameters or the optimizer: the whole array, */
    int64_t first;            /* where the tensor begins in it, */
    void *data;               /* which is here */
    const struct qr_param *param;
};

/* The list, to be freed with qr_free, and its length. Requires f32 masters. */
int32_t qr_parts_of_model(struct qr_part **out, const struct qr_params *p);
int32_t qr_parts_of_optim(struct qr_part **out, const struct qr_params *p, const struct qr_optim *o); /* o NULL: masters alone */

/* Gives put the bytes of all parts in order, in pieces where they are brought from other ranks (src->bring). */
int qr_parts_walk(const struct qr_checkpoint_source *src, const struct qr_part *part, int32_t n,
                  int (*put)(void *user, const void *bytes, size_t n, struct qr_err *err), void *user, struct qr_err *err);

/* What trainer.json calls the set of moments. */
const char *qr_optim_kind(const struct qr_optim *o);

#endif
