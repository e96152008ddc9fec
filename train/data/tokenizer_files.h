/* tokenizer_files.h - the files of a model directory that are its tokenizer: what goes along with a checkpoint, prepared data, a quantized model. */
#ifndef QR_TRAIN_DATA_TOKENIZER_FILES_H
#define QR_TRAIN_DATA_TOKENIZER_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Calls each(user, name, bytes, n, err) for those of the files (tokenizer, chat template, defaults of generation) that `dir` has; stops at an error. */
int qr_tokenizer_files(const char *dir, int (*each)(void *user, const char *name, const void *bytes, size_t n, struct qr_err *err), void *user,
                       struct qr_err *err);

/* Whether a file of this name is one of those. */
bool qr_tokenizer_file_known(const char *name);

#endif
