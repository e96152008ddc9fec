/* file.h - files and directories written so that they are either there as a whole or not at all.
 *
 * A new file is written from front to back through a buffer, hashed on its way, and closed only when the disk has it. Directories are filled under
 * another name and moved into place. Every error names the path and the system's reason by its symbol ("No space left on device (ENOSPC)").
 * One owning thread per object; no state of its own.
 */
#ifndef QR_BASE_FILE_H
#define QR_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define QR_PATH_MAX 4096
#define QR_FILE_BLOCK_BYTES ((size_t)1 << 20) /* of a file being written: its buffer, and the steps of its hash */

/* "DIR/NAME" in out. Errors: QR_E_TOO_LARGE when it does not fit. */
int qr_path_join(char out[QR_PATH_MAX], const char *dir, const char *name, struct qr_err *err);

/* ---- reading ---- */

/* ANY: also a pipe or a device; "-" is stdin. REGULAR: a pipe is refused, not waited for. OPTIONAL: the same, or no file at all. */
enum qr_file_kind { QR_FILE_ANY, QR_FILE_REGULAR, QR_FILE_OPTIONAL };

/* Appends all of a file to out, with a zero behind it: out->data is NULL only when there is no optional file.
 * Errors: QR_E_NOT_FOUND, QR_E_IO; QR_E_TOO_LARGE beyond bytes_max. */
int qr_file_read(struct qr_buf *out, const char *path, enum qr_file_kind kind, size_t bytes_max, struct qr_err *err);

/* ---- a file being written ---- */

struct qr_file_out {
    char path[QR_PATH_MAX];
    uint8_t *buffer;  /* owned */
    size_t used;
    uint64_t n_bytes; /* put so far */
    uint64_t hash;    /* of the whole file, once closed: qr_file_hash */
    int fd;
};

/* A file that is not there yet; QR_E_IO otherwise. */
int qr_file_out_open(struct qr_file_out *f, const char *path, struct qr_err *err);
int qr_file_out_put(struct qr_file_out *f, const void *bytes, size_t n, struct qr_err *err);

/* Writes what is left, waits for the disk when `sync`, closes. The file is closed and f's memory freed also when that fails. */
int qr_file_out_close(struct qr_file_out *f, bool sync, struct qr_err *err);

/* Closes without writing the rest of the buffer: for a caller that has an error already. */
void qr_file_out_abandon(struct qr_file_out *f);

/* All at once; of the file dir/name. */
int qr_file_write(const char *path, const void *bytes, size_t n, bool sync, struct qr_err *err);
int qr_dir_write(const char *dir, const char *name, const void *bytes, size_t n, bool sync, struct qr_err *err);

/* Overwrites what is there, for results: a file, a pipe, a device. "-": stdout. Not synced. */
int qr_file_put(const char *path, const void *bytes, size_t n, struct qr_err *err);

/* The file `path` as a whole or, after an error or a crash, as it was: written beside it under a name that no other thread or
 * process uses, moved over it. Not waited for. */
int qr_file_replace(const char *path, const void *bytes, size_t n, struct qr_err *err);
/* The same for its owner's eyes (mode 0600), and waited for. */
int qr_file_replace_private(const char *path, const void *bytes, size_t n, struct qr_err *err);

/* The hash that a file of these bytes gets: XXH3 of each block, seeded by the one before. more: blocks come one by one, `before` is 0 for the first. */
uint64_t qr_file_hash(const void *bytes, size_t n);
uint64_t qr_file_hash_more(uint64_t before, const void *bytes, size_t n);

/* ---- directories ---- */

/* Waits until the disk has the directory's names. */
int qr_dir_sync(const char *path, struct qr_err *err);

/* The directory and those above it, where they are not there yet. */
int qr_dir_make_all(const char *path, unsigned mode, struct qr_err *err);

/* Makes an empty directory; one that is there already is emptied, as it is a leftover of ours. */
int qr_dir_make_fresh(const char *path, struct qr_err *err);

/* Removes a directory and the files in it. A directory inside it is an error (nothing here makes one). */
int qr_dir_remove(const char *path, struct qr_err *err);

/* Gives the directory `from` the name `to`, and waits until the disk has both names; they must be neighbours. With `replace` a directory `to` that is
 * there already gets the name `from` in the same instant. When this fails, `to` is what it was before. Errors: QR_E_IO. */
int qr_dir_publish(const char *from, const char *to, bool replace, struct qr_err *err);

/* Has the symbolic link `path` point at `target` from one instant to the next. `spare` is a name beside it for the moment between. */
int qr_link_replace(const char *path, const char *spare, const char *target, struct qr_err *err);

/* errno as "No space left on device (ENOSPC)"; the system's call for it is named by the caller. */
const char *qr_errno_text(char text[128], int number);

#endif
