/* source.h - where a model comes from, opened once for all of its readers: tokenizer, chat template, configuration and
 * tensors.
 *
 * A GGUF file (or the first part of one) is mapped and its container parsed; a directory of the other form is only named, and readers open its files.
 * Immutable once open; any thread may read. Counted: each owner takes a reference.
 */
#ifndef QR_BASE_FILES_SOURCE_H
#define QR_BASE_FILES_SOURCE_H

#include "base/err.h"
#include "base/files/gguf_file.h"
#include "base/files/map_file.h"

struct qr_source; /* opaque */

/* `model`: a directory or a file. What is not there is no error yet: its readers say what they miss. Errors: those of qr_gguf_file_open. */
int qr_source_open(struct qr_source **out, const char *model, struct qr_err *err);

/* A path that exists and is spelt nearly so, in near; false: there is none. */
bool qr_source_near(char near[QR_GGUF_PATH_MAX], const char *model);

/* 0 when `model` exists; else QR_E_NOT_FOUND, with a path that is nearly so, or the command that fetches it. */
int qr_source_find(const char *model, struct qr_err *err);

/* Before a whole model is wanted of `model`: a directory that cannot be one is an error that says what it is instead (an adapter, several GGUF files, a part of
 * one, ...) and what to do; so is a *.gguf that cannot be read, is none, or is a later part of one. 0 otherwise, also where there is nothing of that name, or
 * a tokenizer.json. */
int qr_source_explain(const char *model, struct qr_err *err);
struct qr_source *qr_source_ref(struct qr_source *s);
void qr_source_unref(struct qr_source *s); /* NULL is fine */

const char *qr_source_model(const struct qr_source *s);              /* as it was named */
const struct qr_gguf *qr_source_gguf(const struct qr_source *s);     /* NULL: the other form */
const char *qr_source_gguf_path(const struct qr_source *s);          /* of that file. Requires qr_source_gguf. */
struct qr_map_file qr_source_gguf_map(const struct qr_source *s);    /* its bytes, the source's own. Requires qr_source_gguf. */

/* Puts "path: " in front of the message, unless it begins so: what is wrong in a GGUF file has the file's name already. Returns the code. */
int qr_source_blame(struct qr_err *err, const char *path);

#endif
