/* cache.h - the cache of models as huggingface_hub lays it out, so that either program finds what the other has fetched.
 *
 *     HUB/models--ORG--NAME/refs/main                  the commit that a branch or tag is known to mean
 *     HUB/models--ORG--NAME/blobs/HASH                 a file's bytes; HASH.incomplete while they are being fetched
 *     HUB/models--ORG--NAME/snapshots/COMMIT/PATH      a relative link to the blob
 *     HUB/.locks/models--ORG--NAME/HASH.lock           locked (flock) by whichever process fetches the blob
 *
 * HUB is $HF_HUB_CACHE, or hub in $HF_HOME, or in ~/.cache/huggingface. Links are followed for reading only; what is removed is removed by its own name.
 */
#ifndef QR_HUB_CACHE_H
#define QR_HUB_CACHE_H

#include "hub/files.h"

#define QR_HUB_INCOMPLETE ".incomplete"

struct qr_hub_cache {
    char home[QR_PATH_MAX]; /* where the token is */
    char dir[QR_PATH_MAX];  /* HUB */
};

/* A variable of the environment, or NULL where it is empty or not set. Borrowed. */
const char *qr_hub_variable(const char *name);

/* Errors: QR_E_USAGE without a home. Nothing is made. */
int qr_hub_cache_locate(struct qr_hub_cache *c, struct qr_err *err);

/* HUB/FOLDER/WHERE/NAME, of a model. A path that is too long for the system is cut, and then there is no such file. */
void qr_hub_cache_path(char path[QR_PATH_MAX], const struct qr_hub_cache *c, const struct qr_hub_name *name, const char *where, const char *file);

/* path + "/" + name. Errors: QR_E_TOO_LARGE. */
int qr_hub_path_append(char path[QR_PATH_MAX], const char *name, struct qr_err *err);

/* HUB/.locks/FOLDER/HASH.lock, locked; the descriptor. -1 with errno: EWOULDBLOCK when another process has it. */
int qr_hub_cache_lock(const struct qr_hub_cache *c, const struct qr_hub_name *name, const char *hash);

/* The commit of a branch, tag or commit (or the beginning of one), as far as the cache knows. */
bool qr_hub_cache_commit(char commit[QR_HUB_HASH_MAX], const struct qr_hub_cache *c, const struct qr_hub_name *name, const char *revision);

/* The files of a snapshot whose bytes are there, with their blobs' names as hashes. False: there is no such snapshot. Links that lead nowhere are left out. */
bool qr_hub_cache_list(struct qr_hub_files *f, const struct qr_hub_cache *c, const struct qr_hub_name *name, const char *commit);

/* path becomes where the model is, when all of it is in the cache. Errors: QR_E_NOT_FOUND: not all of it; QR_E_USAGE: several files fit. */
int qr_hub_cache_find(char path[QR_PATH_MAX], const struct qr_hub_cache *c, const struct qr_hub_name *name, const char *revision, struct qr_err *err);

/* Whether a blob of that size is there. */
bool qr_hub_cache_has(const struct qr_hub_cache *c, const struct qr_hub_name *name, const struct qr_hub_file *file);

/* The link of a file in a snapshot, and the directories above it. Errors: QR_E_IO. */
int qr_hub_cache_link(const struct qr_hub_cache *c, const struct qr_hub_name *name, const char *commit, const struct qr_hub_file *file, struct qr_err *err);

/* Writes down what commit a revision means; of a commit there is nothing to write. */
int qr_hub_cache_refer(const struct qr_hub_cache *c, const struct qr_hub_name *name, const char *revision, const char *commit, struct qr_err *err);

#endif
