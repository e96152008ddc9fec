/* pooling.h - how a model's rows become an embedding, as sentence-transformers writes it beside the model: modules.json names a Pooling module, whose
 * directory's config.json says which rows, perhaps Dense modules, which the vector goes through (dense.h), and perhaps a Normalize module; GGUF files have a
 * key. Any thread.
 */
#ifndef QR_LOADER_CONFIG_POOLING_H
#define QR_LOADER_CONFIG_POOLING_H

#include <stdbool.h>

#include "base/files/source.h"
#include "loader/config/dense.h"

/* What becomes of a prompt's rows as they leave the model's last norm. Names for an option table: QR_POOLING_CHOICES, in this order, auto for NONE. */
enum qr_pooling {
    QR_POOLING_NONE, /* no embedding: text is wanted */
    QR_POOLING_LAST, /* the last row */
    QR_POOLING_MEAN, /* the mean of all */
    QR_POOLING_CLS,  /* the first row */
};
#define QR_POOLING_CHOICES "auto|last|mean|cls"

#define QR_DENSE_MAX 8

struct qr_pooling_config {
    enum qr_pooling pooling; /* NONE: there are no embeddings, note says why */
    struct qr_dense dense[QR_DENSE_MAX]; /* owned; the first takes the model's rows, each later one what the one before it gives */
    int32_t n_dense;
    bool normalize;          /* to length 1, behind them */
    char note[500];          /* a sentence for log and clients: why there are none, or what of the files is left out; "": nothing to say */
};

/* Of DIR/modules.json, or a GGUF file's pooling_type; where neither is there: the last row, normalised. `wanted` that is not NONE stands, whatever the files
 * say. Modules and ways of pooling that are not computed here, and files that cannot be read, are named in the note: text can be served all the same. */
void qr_pooling_read(struct qr_pooling_config *out, const struct qr_source *source, enum qr_pooling wanted);
void qr_pooling_release(struct qr_pooling_config *p);

/* Numbers of an embedding of a model whose rows have n_embd, and bytes that the stages take. */
int32_t qr_pooling_width(const struct qr_pooling_config *p, int32_t n_embd);
int64_t qr_pooling_bytes(const struct qr_pooling_config *p);

/* out [n]: the first n numbers of the embedding, and where it is normalised of length 1 by themselves. rows [n_embd] is what was pooled: f32 for the stages.
 * 1 <= n <= qr_pooling_width. False: they are no numbers. */
bool qr_pooling_finish(const struct qr_pooling_config *p, float *out, int32_t n, const double *rows, int32_t n_embd);

/* A message without the directory's path that it begins with: clients see no paths. */
const char *qr_without_path(const char *msg, const char *dir);

/* *out becomes config.json of DIR/modules.json's first stage of this class ("LogitScore"), to be freed; NULL: there is none. */
int qr_pooling_stage_find(struct qr_json **out, const char *dir, const char *class_name, struct qr_err *err);

/* Calls each(user, path) with the directories of DIR/modules.json's stages, as "1_Pooling"; stops at an error. Nothing is there: nothing is called. Errors:
 * those of reading; QR_E_DAMAGED for a path that leaves the model's directory. */
int qr_pooling_stages(const char *dir, int (*each)(void *user, const char *path, struct qr_err *err), void *user, struct qr_err *err);

#endif
