/* tokenizer_files.h - the files of a model directory that are its tokenizer: what goes along with a checkpoint, prepared data, a quantized model. */
#ifndef QR_TRAIN_DATA_TOKENIZER_FILES_H
#define QR_TRAIN_DATA_TOKENIZER_FILES_H

#include <stdbool.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef int qr_file_taker(void *user, const char *name, const void *bytes, size_t n, struct qr_err *err);

/* Calls each(user, name, bytes, n, err) for those of n files that `dir` has; stops at an error. */
int qr_files_of(const char *dir, const char *const *name, int32_t n, qr_file_taker *each, void *user,
                struct qr_err *err);

/* The same of a tokenizer's files: with chat template and defaults of generation. */
int qr_tokenizer_files(const char *dir, qr_file_taker *each, void *user, struct qr_err *err);

/* Whether a file of this name is one of those. */
bool qr_tokenizer_file_known(const char *name);

#endif
