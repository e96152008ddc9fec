/* map_file.h - a file as read-only memory. Only regular files: a pipe, a device or a directory is an error, and opening
 * never waits for one. Any thread may read the bytes; the opener closes it.
 *
 * A file that another program shortens while it is mapped takes its pages away under us (SIGBUS; base/files/cut_file.h says which file). Replacing a file by
 * renaming a new one over it is safe: the old bytes stay as long as they are mapped.
 */
#ifndef QR_BASE_FILES_MAP_FILE_H
#define QR_BASE_FILES_MAP_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct qr_map_file {
    const uint8_t *data; /* owned mapping; NULL when the file is empty */
    size_t n_bytes;
    int64_t changed_ns;  /* when it was written last, by the system's clock */
    int32_t reader;      /* owned: 1 + the file's descriptor, where it is kept (qr_map_file_open_to_read); 0: it is not */
};

/* Maps the whole of `path`. Errors: QR_E_NOT_FOUND, QR_E_IO, QR_E_TOO_LARGE when it has more than max_bytes, QR_E_DAMAGED for a pointer of git LFS that stands
 * in its place. */
int qr_map_file_open(struct qr_map_file *out, const char *path, size_t max_bytes, struct qr_err *err);
void qr_map_file_close(struct qr_map_file *f);

/* The same, and the file stays open for qr_map_file_read. */
int qr_map_file_open_to_read(struct qr_map_file *out, const char *path, size_t max_bytes, struct qr_err *err);
void qr_map_file_stop_reading(struct qr_map_file *f); /* only the mapping stays */

/* Copies [offset, offset + n_bytes) of the file, of whose mapping no page is entered: into memory that stays in a cache, this costs less than looking at
 * the mapping does. Any thread. False: the file has become shorter since it was opened or cannot be read; `to` is undefined. Requires `reader`. */
bool qr_map_file_read(const struct qr_map_file *f, void *to, size_t offset, size_t n_bytes);

/* Whether the file is still as long as it was when it was mapped. Any thread. Requires `reader`. */
bool qr_map_file_whole(const struct qr_map_file *f);

/* What a clone has in place of a large file until that is fetched. */
bool qr_is_lfs_pointer(const void *bytes, size_t n);
#define QR_LFS_POINTER "is a pointer of git LFS, not the file itself: download that (git lfs pull)"

/* Maps the pages that hold [offset, offset + n_bytes) now, reading the file where it is not in memory, so that no later read faults. False: later reads do, as
 * before Linux 5.14, and may be a signal (SIGBUS): a file that has become shorter, or a disk that fails. */
bool qr_map_file_populate(const struct qr_map_file *f, size_t offset, size_t n_bytes);

/* Gives the pages that lie wholly inside [offset, offset + n_bytes) back to the system; reading them again reads the file. */
void qr_map_file_drop(const struct qr_map_file *f, size_t offset, size_t n_bytes);

#endif
