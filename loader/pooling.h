/* pooling.h - how a model's rows become an embedding, as sentence-transformers writes it beside the model: modules.json names a Pooling module, whose
 * directory's config.json says which rows, and perhaps a Normalize module; GGUF files have a key. Any thread.
 */
#ifndef QR_LOADER_POOLING_H
#define QR_LOADER_POOLING_H

#include <stdbool.h>

#include "base/source.h"

/* What becomes of a prompt's rows as they leave the model's last norm. Names for an option table: QR_POOLING_CHOICES, in this order, auto for NONE. */
enum qr_pooling {
    QR_POOLING_NONE, /* no embedding: text is wanted */
    QR_POOLING_LAST, /* the last row */
    QR_POOLING_MEAN, /* the mean of all */
    QR_POOLING_CLS,  /* the first row */
};
#define QR_POOLING_CHOICES "auto|last|mean|cls"

struct qr_pooling_config {
    enum qr_pooling pooling; /* NONE: there are no embeddings, note says why */
    bool normalize;          /* to length 1 */
    char note[500];          /* a sentence for log and clients: why there are none, or what of the files is left out; "": nothing to say */
};

/* Of DIR/modules.json, or a GGUF file's pooling_type; where neither is there: the last row, normalised. `wanted` that is not NONE stands, whatever the files
 * say. Modules and ways of pooling that are not computed here, and files that cannot be read, are named in the note: text can be served all the same. */
void qr_pooling_read(struct qr_pooling_config *out, const struct qr_source *source, enum qr_pooling wanted);

/* Calls each(user, path) with the directories of DIR/modules.json's stages, as "1_Pooling"; stops at an error. Nothing is there: nothing is called. Errors:
 * those of reading; QR_E_INVALID for a path that leaves the model's directory. */
int qr_pooling_stages(const char *dir, int (*each)(void *user, const char *path, struct qr_err *err), void *user, struct qr_err *err);

#endif
