/* check.h - explains a model file or directory without loading its weights: what it is, every tensor with its place, what is wrong
 * with it, and whether and how quire would run it. */
#ifndef QR_LOADER_CHECK_H
#define QR_LOADER_CHECK_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

/* `path`: a model directory, or one .safetensors file. Appends the report as text or as one JSON object. 0 when nothing is wrong; otherwise the
 * code of the first problem, which err holds too (the report names all). */
int qr_model_check(struct qr_buf *out, const char *path, bool json, struct qr_err *err);

#endif
