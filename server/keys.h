/* keys.h - API keys: who is asking, and the salt that keeps one key's prefix cache from another's (the only door to libcrypto).
 * Only digests are kept; comparing them takes the same time whatever was presented. Immutable after qr_keys_new.
 */
#ifndef QR_SERVER_KEYS_H
#define QR_SERVER_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/option.h"

enum qr_role { QR_ROLE_NONE, QR_ROLE_USER, QR_ROLE_ADMIN }; /* an admin may do what a user may */

struct qr_key_digest {
    uint8_t bytes[32]; /* SHA-256 */
};

struct qr_keys; /* opaque */

/* Keys from lists and from files (one per line; empty lines and lines that start with '#' are skipped); files may be NULL.
 * Errors: QR_E_NOT_FOUND / QR_E_USAGE naming the file and the line. */
int qr_keys_new(struct qr_keys **out, const struct qr_str_list *user, const char *user_file, const struct qr_str_list *admin,
                const char *admin_file, struct qr_err *err);
void qr_keys_free(struct qr_keys *k); /* NULL is fine */

int32_t qr_keys_count(const struct qr_keys *k, enum qr_role role);

/* The role of a presented key (NULL: none was). Without any configured key everybody is admin, and all share one digest. */
enum qr_role qr_keys_check(const struct qr_keys *k, const char *key, size_t len, struct qr_key_digest *digest);

/* SHA-256(digest | cache_salt), cut to 128 bits. cache_salt may be NULL. */
struct qr_hash128 qr_keys_salt(const struct qr_key_digest *digest, const char *cache_salt, size_t len);

#endif
