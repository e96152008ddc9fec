/* pooling.h - how a model's rows become an embedding, as sentence-transformers writes it beside the model: modules.json names a Pooling module, whose
 * directory's config.json says which rows, and perhaps a Normalize module. Any thread.
 */
#ifndef QR_LOADER_POOLING_H
#define QR_LOADER_POOLING_H

#include <stdbool.h>

#include "base/err.h"

/* What becomes of a prompt's rows as they leave the model's last norm. Names for an option table: QR_POOLING_CHOICES, in this order, auto for NONE. */
enum qr_pooling {
    QR_POOLING_NONE, /* no embedding: text is wanted */
    QR_POOLING_LAST, /* the last row */
    QR_POOLING_MEAN, /* the mean of all */
    QR_POOLING_CLS,  /* the first row */
};
#define QR_POOLING_CHOICES "auto|last|mean|cls"

struct qr_pooling_config {
    enum qr_pooling pooling; /* never NONE */
    bool normalize;          /* to length 1 */
};

/* Of DIR/modules.json; without it (dir may be a GGUF file): the last row, normalised. `wanted` that is not NONE stands, whatever the Pooling module says.
 * Errors: QR_E_UNSUPPORTED for modules and ways of pooling that are not computed here, by name; QR_E_INVALID and those of reading for broken files. */
int qr_pooling_read(struct qr_pooling_config *out, const char *dir, enum qr_pooling wanted, struct qr_err *err);

#endif
