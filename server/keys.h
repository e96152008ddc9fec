/* keys.h - API keys: who is asking, what each key may use and has used, and the salt that keeps one key's prefix cache from another's. Only digests are kept;
 * comparing them takes the same time whatever was presented. A set belongs to one thread, the loop's once it serves: a further one may be made by any thread,
 * and takes the place of what the loop has (qr_keys_replace).
 */
#ifndef QR_SERVER_KEYS_H
#define QR_SERVER_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/option.h"
#include "server/limits.h"
#include "base/sha256.h"

enum qr_role { QR_ROLE_NONE, QR_ROLE_METRICS, QR_ROLE_USER, QR_ROLE_ADMIN, QR_ROLES }; /* an admin may do what the others may */

struct qr_key_digest {
    uint8_t bytes[QR_SHA256_BYTES];
};

/* Its first eight hexadecimal digits, which tell keys apart for people. */
#define QR_KEY_DIGEST_TEXT 9
const char *qr_key_digest_text(char out[QR_KEY_DIGEST_TEXT], const struct qr_key_digest *d);

#define QR_KEY_NAME_MAX 64
#define QR_KEY_LABELS_MAX 100 /* keys that /metrics tells apart */

/* What a key has done since the server started. */
struct qr_key_use {
    int64_t n_requests, n_errors; /* calls, refused ones too; those of them that ended with an error */
    int64_t prompt_tokens, cached_tokens, output_tokens; /* cached ones are prompt tokens, too */
};

/* How /metrics tells of it: by its name, or as one of the others; NEW: that is not decided yet. */
enum qr_key_label { QR_LABEL_NEW, QR_LABEL_OWN, QR_LABEL_OTHERS };

struct qr_key {
    struct qr_key_digest digest;
    enum qr_role role;
    char name[QR_KEY_NAME_MAX + 1]; /* of its line, else of its digest; no other key's */
    struct qr_key_terms terms;
    struct qr_key_state state;
    struct qr_key_use use;
    int32_t n_calls;                /* that are not over: they hold a pointer to it */
    enum qr_key_label label;
    bool gone;                      /* a reload took it out: freed with its last call */
};

/* One line of a key file: KEY [name=] [rpm=] [tpm=] [concurrent=] [weight=], blanks between them. Empty lines and those that begin with '#', and what follows
 * a blank and '#', say nothing. */
struct qr_key_line {
    const char *key, *name; /* borrowed from the line */
    size_t len, name_len;   /* len 0: the line has no key; name_len 0: no name */
    struct qr_key_terms terms;
};
int qr_key_line_parse(struct qr_key_line *out, const char *line, size_t n, struct qr_err *err);

struct qr_keys; /* opaque */

/* Where keys come from: a list (NULL: none) and a file (NULL: none) for each role. */
struct qr_keys_from {
    const struct qr_str_list *list[QR_ROLES]; /* borrowed */
    const char *file[QR_ROLES];               /* borrowed */
    enum qr_file_kind kind;                   /* of the files */
};

/* A key that is given twice with the same terms is one, of the role that may do more. Errors: QR_E_NOT_FOUND, QR_E_IO, QR_E_USAGE naming the file and
 * the line, never a key. */
int qr_keys_new(struct qr_keys **out, const struct qr_keys_from *from, struct qr_err *err);
void qr_keys_free(struct qr_keys *k); /* NULL is fine; no call holds a key */

/* `fresh` takes the place of what is in k, and is freed. Keys that are in both keep what they have used, under the new terms. Returns how many keys are new;
 * *n_gone: how many are not there any more. */
int32_t qr_keys_replace(struct qr_keys *k, struct qr_keys *fresh, int32_t *n_gone);

int32_t qr_keys_count(const struct qr_keys *k, enum qr_role role);

/* The key that was presented (NULL: none was), or NULL. Without any configured key everybody has the same one, an admin's. */
struct qr_key *qr_keys_find(const struct qr_keys *k, const char *key, size_t len);

/* Key number i, 0 <= i < the number of keys; NULL behind the last. */
const struct qr_key *qr_keys_at(const struct qr_keys *k, int32_t i);

/* The key of that name, or NULL. */
const struct qr_key *qr_keys_named(const struct qr_keys *k, const char *name);

/* A call holds its key from enter to leave. */
void qr_key_enter(struct qr_key *key);
void qr_key_leave(struct qr_key *key);

void qr_key_use_add(struct qr_key_use *to, const struct qr_key_use *more);

/* What a call has used is the key's and, where /metrics does not tell that by its name, of the others together. */
void qr_keys_use(struct qr_keys *k, struct qr_key *key, const struct qr_key_use *more);
const struct qr_key_use *qr_keys_others(const struct qr_keys *k);

/* SHA-256(digest | cache_salt), cut to 128 bits. cache_salt may be NULL. Any thread. */
struct qr_hash128 qr_keys_salt(const struct qr_key_digest *digest, const char *cache_salt, size_t len);

#endif
