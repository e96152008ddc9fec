/* check.h - explains a file or directory of a model or an adapter without loading its weights: what it is, every tensor with its place, what is wrong
 * with it, what of it is never read or run, and whether and how quire would run it. */
#ifndef QR_LOADER_CHECK_CHECK_H
#define QR_LOADER_CHECK_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* What the readers of tokenizer and chat template found, which the loader does not know; zeros: they did not run. */
struct qr_check_tokenizer {
    bool chat;          /* there is a chat template */
    int32_t n_ids;      /* the largest id and one; 0: there is none that can be read */
    struct qr_err err;  /* code not 0: of the tokenizer when n_ids is 0, else of the chat template and its tokens, which a server alone needs */
};

struct qr_check_options {
    bool json, all, hash; /* all: each tensor with its place, and a GGUF file's keys; hash: XXH3 (64 bits) of tensors and files, which reads them */
    struct qr_check_tokenizer tokenizer;
};

/* `path`: a model's or an adapter's directory, or one .safetensors or GGUF file. Appends the report as text of at most 80 columns (but for long names and
 * messages) or one JSON object. 0 when nothing is wrong; otherwise the code of the first problem, which err holds too (the report names all). */
int qr_model_check(struct qr_buf *out, const char *path, const struct qr_check_options *options, struct qr_err *err);

#endif
