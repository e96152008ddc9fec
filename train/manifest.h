/* manifest.h - inside train/ only: trainer.json, the file that makes a directory a checkpoint: what the run has reached, and every other file with its
 * size and hash. It is written last. Numbers that may need all of 64 bits are strings.
 */
#ifndef QR_TRAIN_MANIFEST_H
#define QR_TRAIN_MANIFEST_H

#include "base/buf.h"
#include "train/checkpoint.h"

#define QR_MANIFEST_NAME "trainer.json"
#define QR_MANIFEST_FILES_MAX 24
#define QR_MANIFEST_NAME_MAX 64

struct qr_manifest_file {
    char name[QR_MANIFEST_NAME_MAX];
    uint64_t n_bytes, hash; /* qr_file_hash */
};

struct qr_manifest {
    struct qr_checkpoint_state state;
    char optimizer[16];      /* which moments there are: "adamw" */
    struct qr_manifest_file file[QR_MANIFEST_FILES_MAX];
    int32_t n_files;
};

void qr_manifest_add(struct qr_manifest *m, const char *name, uint64_t n_bytes, uint64_t hash);
const struct qr_manifest_file *qr_manifest_find(const struct qr_manifest *m, const char *name); /* NULL: not there */
void qr_manifest_format(struct qr_buf *out, const struct qr_manifest *m);

/* Reads DIR/trainer.json. Errors name the file, the key, what was found and what was expected. */
int qr_manifest_read(struct qr_manifest *m, const char *dir, struct qr_err *err);

/* Every file is there with its size. */
int qr_manifest_check_sizes(const struct qr_manifest *m, const char *dir, struct qr_err *err);

#endif
