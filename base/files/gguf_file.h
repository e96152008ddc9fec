/* gguf_file.h - a GGUF file of the disk: found, mapped, opened. */
#ifndef QR_BASE_FILES_GGUF_FILE_H
#define QR_BASE_FILES_GGUF_FILE_H

#include <stdbool.h>

#include "base/files/gguf.h"
#include "base/files/map_file.h"

#define QR_GGUF_PATH_MAX 4096

struct qr_gguf_file {
    struct qr_map_file map; /* owned */
    struct qr_gguf *g;      /* owned; borrows from map */
};

/* Whether a file's name is that of a second or later part of one that was split. */
bool qr_gguf_is_later_part(const char *name);

/* Whether it is that of what a model that sees has beside its own file: the part that turns images into embeddings. */
bool qr_gguf_is_projector(const char *name);

/* Whether `model` is GGUF: a file that begins so, or a directory without the other form's *.json that holds one *.gguf (mmproj* beside it does not count), or
 * the parts of one. path becomes the (first) file's; it is cut where it is too long, and then opening it fails. */
bool qr_gguf_find_file(char path[QR_GGUF_PATH_MAX], const char *model);

/* The path of part `no` (0 the first) of n where path names one part ("x-00001-of-00003.gguf"); false where it does not. */
bool qr_gguf_part_path(char out[QR_GGUF_PATH_MAX], const char *path, int32_t no, int32_t n);

/* Whether it is no model but a LoRA adapter of one (key general.type), and what to do then. */
bool qr_gguf_is_adapter(const struct qr_gguf *g);
#define QR_GGUF_ADAPTER "is an adapter (key general.type), not a model: name its base model, and this file as --lora NAME=FILE"

int qr_gguf_file_open(struct qr_gguf_file *f, const char *path, struct qr_err *err);
void qr_gguf_file_close(struct qr_gguf_file *f);

#endif
