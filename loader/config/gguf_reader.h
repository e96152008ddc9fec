/* gguf_reader.h - inside loader/ only: a GGUF model's metadata while its configuration is read, for gguf_config.c
 * and the families' hooks. A key that is absent leaves *out as it was; errors name the key.
 */
#ifndef QR_LOADER_CONFIG_GGUF_READER_H
#define QR_LOADER_CONFIG_GGUF_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/files/gguf.h"
#include "loader/model_config.h"

struct qr_gguf_file;

struct qr_gguf_reader {
    const struct qr_gguf *g;      /* borrowed: the first part, whose keys are the model's */
    struct qr_gguf_file *later;   /* owned [n_later]: tensors of the others */
    int32_t n_later;
    const char *arch;             /* general.architecture, which keys begin with */
    struct qr_model_config *c;
    struct qr_err *err;
};

/* A number of the architecture's: "context_length" is llama.context_length. */
int qr_gguf_read_int(const struct qr_gguf_reader *r, const char *name, int64_t least, int64_t most, bool needed,
                     int32_t *out);
int qr_gguf_read_real(const struct qr_gguf_reader *r, const char *name, double least, double most, double *out);

/* Which layers have no window: each so manieth, or what an array with a truth value for each layer says. */
int qr_gguf_read_windows(const struct qr_gguf_reader *r, int32_t every);

/* A tensor of any part; *of, where not NULL, is that part. NULL where there is none. */
const struct qr_gguf_tensor *qr_gguf_find_tensor(const struct qr_gguf_reader *r, const char *name,
                                                 const struct qr_gguf **of);

#endif
