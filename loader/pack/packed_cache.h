/* packed_cache.h - inside loader/ only: packed weights kept in a file, so that the next start maps them where it would pack.
 *
 * A copy is known by its key: the program that packed it (its build id), the level of the kernels, the type, the share of ranks, the configuration, and of
 * each source file the name, size, time of change, first bytes and samples of the rest. The file is a page with key and hash, then the region as it lies in
 * memory; it is written beside its name and moved there, belongs to the user, and is used only when key, size and the hash of all of it agree. Whatever else
 * lies there is said in one line of the log and left out, and a new copy takes its place.
 *
 * A copy is out of date when it is of the same model by another program or of files that have been written since, or when another model was opened from where
 * its own was; what a writer that is gone has begun is so at once. Such files are removed (qr_packed_tidy).
 */
#ifndef QR_LOADER_PACK_PACKED_CACHE_H
#define QR_LOADER_PACK_PACKED_CACHE_H

#include <stdbool.h>

#include "base/files/map_file.h"
#include "kernels/backend.h"
#include "loader/pack/share.h"
#include "loader/stores/tensor_files.h"

#define QR_PACKED_HEADER_BYTES ((size_t)4096)

struct qr_packed_key {
    char text[1024]; /* what must agree */
    char path[4096]; /* the file's; "" where no copy can be kept */
    char place[3000]; /* where the model lies, links resolved; "": unknown */
};

/* `dir` is made when it is not there. Where the program has no build id there is no key. */
void qr_packed_key_make(struct qr_packed_key *key, const char *dir, const struct qr_tensor_files *st, const struct qr_share *share, const char *kernels,
                        enum qr_dtype to, size_t n_bytes);

/* Removes what is out of date from the directory, and says so in one line of the log: regular files of this user's that have a copy's name and begin like
 * one (or are empty), and of those that are being written only what no living process has locked. Who has such a file mapped keeps it. */
void qr_packed_tidy(const struct qr_packed_key *key);

/* The region begins QR_PACKED_HEADER_BYTES behind out->data; the caller unmaps it. False: there is none, or none that can be
 * used. Read by all threads. */
bool qr_packed_map(struct qr_map_file *out, const struct qr_packed_key *key, size_t n_bytes, struct qr_backend *be);

/* Keeps a copy; what prevents it is said in the log, and a start goes on without. */
void qr_packed_keep(const struct qr_packed_key *key, const void *region, size_t n_bytes, struct qr_backend *be);

#endif
