#define OPENSSL_SUPPRESS_DEPRECATED /* of SHA256_Init: in its place EVP_DigestInit allocates */
#include "server/keys.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define KEYS_MAX 10000
#define KEY_BYTES_MAX 512

struct key {
    struct qr_key_digest digest;
    enum qr_role role;
};

struct qr_keys {
    struct key *key; /* owned [n] */
    int32_t n, cap;
};

/* By the functions that need no memory, which a request may lack. */
static void sha256(struct qr_key_digest *out, const void *a, size_t n_a, const void *b, size_t n_b)
{
    SHA256_CTX ctx;
    QR_ASSERT(out != NULL);
    if (SHA256_Init(&ctx) != 1 || SHA256_Update(&ctx, a, n_a) != 1 || SHA256_Update(&ctx, b, n_b) != 1 || SHA256_Final(out->bytes, &ctx) != 1)
        qr_panic("SHA-256 is not available from libcrypto");
}

static int add_key(struct qr_keys *k, const char *text, size_t len, enum qr_role role, const char *where, struct qr_err *err)
{
    if (len == 0 || len > KEY_BYTES_MAX)
        return qr_err_set(err, QR_E_USAGE, "%s: a key has %zu bytes; expected 1 to %d", where, len, KEY_BYTES_MAX);
    for (size_t i = 0; i < len; i++)
        if (text[i] <= 0x20 || text[i] == 0x7f)
            return qr_err_set(err, QR_E_USAGE, "%s: a key has a space or a control byte; expected visible characters", where);
    if (k->n == KEYS_MAX)
        return qr_err_set(err, QR_E_USAGE, "%s: more than %d keys", where, KEYS_MAX);
    if (k->n == k->cap) {
        k->cap = k->cap ? 2 * k->cap : 16;
        k->key = qr_realloc(k->key, (size_t)k->cap, sizeof *k->key);
    }
    sha256(&k->key[k->n].digest, text, len, "", 0);
    k->key[k->n++].role = role;
    return 0;
}

static int add_file(struct qr_keys *k, const char *path, enum qr_role role, struct qr_err *err)
{
    char line[KEY_BYTES_MAX + 64], where[400];
    FILE *f = fopen(path, "r");
    if (!f)
        return qr_err_set(err, QR_E_NOT_FOUND, "cannot open the key file '%s': %s", path, strerror(errno));
    int rc = 0, number = 0;
    while (rc == 0 && fgets(line, sizeof line, f)) {
        size_t n = strcspn(line, "\r\n");
        snprintf(where, sizeof where, "key file %.300s:%d", path, ++number);
        if (n > 0 && line[0] != '#')
            rc = add_key(k, line, n, role, where, err);
    }
    if (rc == 0 && ferror(f))
        rc = qr_err_set(err, QR_E_IO, "cannot read the key file '%s': %s", path, strerror(errno));
    OPENSSL_cleanse(line, sizeof line);
    fclose(f);
    return rc;
}

static int add_list(struct qr_keys *k, const struct qr_str_list *list, enum qr_role role, const char *where, struct qr_err *err)
{
    int rc = 0;
    for (int32_t i = 0; i < list->n && rc == 0; i++)
        rc = add_key(k, list->item[i], strlen(list->item[i]), role, where, err);
    return rc;
}

int qr_keys_new(struct qr_keys **out, const struct qr_str_list *user, const char *user_file, const struct qr_str_list *admin,
                const char *admin_file, struct qr_err *err)
{
    QR_ASSERT(out != NULL && err != NULL);
    QR_ASSERT(user != NULL && admin != NULL);
    struct qr_keys *k = qr_alloc(1, sizeof *k);
    int rc = add_list(k, user, QR_ROLE_USER, "--api-key", err);
    if (rc == 0)
        rc = add_list(k, admin, QR_ROLE_ADMIN, "--admin-key", err);
    if (rc == 0 && user_file)
        rc = add_file(k, user_file, QR_ROLE_USER, err);
    if (rc == 0 && admin_file)
        rc = add_file(k, admin_file, QR_ROLE_ADMIN, err);
    if (rc == 0 && k->n == 0 && (user_file || admin_file))
        rc = qr_err_set(err, QR_E_USAGE, "key file %s has no key; a server that asks for keys needs one",
                        user_file ? user_file : admin_file);
    if (rc != 0) {
        qr_keys_free(k);
        return rc;
    }
    *out = k;
    return 0;
}

void qr_keys_free(struct qr_keys *k)
{
    if (!k)
        return;
    if (k->key)
        OPENSSL_cleanse(k->key, (size_t)k->cap * sizeof *k->key);
    qr_free(k->key);
    qr_free(k);
}

int32_t qr_keys_count(const struct qr_keys *k, enum qr_role role)
{
    QR_ASSERT(k != NULL);
    QR_ASSERT(role != QR_ROLE_NONE);
    int32_t n = 0;
    for (int32_t i = 0; i < k->n; i++)
        n += k->key[i].role == role;
    return n;
}

enum qr_role qr_keys_check(const struct qr_keys *k, const char *key, size_t len, struct qr_key_digest *digest)
{
    QR_ASSERT(k != NULL && digest != NULL);
    QR_ASSERT(key != NULL || len == 0);
    bool open = k->n == 0;
    sha256(digest, open || !key ? "" : key, open || !key ? 0 : len, "", 0);
    if (open)
        return QR_ROLE_ADMIN;
    int role = QR_ROLE_NONE;
    for (int32_t i = 0; i < k->n; i++) { /* all of them, always: the time says nothing about which one matched */
        int same = CRYPTO_memcmp(k->key[i].digest.bytes, digest->bytes, sizeof digest->bytes) == 0;
        int candidate = same * (int)k->key[i].role;
        role = candidate > role ? candidate : role;
    }
    return key ? (enum qr_role)role : QR_ROLE_NONE;
}

struct qr_hash128 qr_keys_salt(const struct qr_key_digest *digest, const char *cache_salt, size_t len)
{
    QR_ASSERT(digest != NULL);
    QR_ASSERT(cache_salt != NULL || len == 0);
    struct qr_key_digest d;
    struct qr_hash128 out;
    sha256(&d, digest->bytes, sizeof digest->bytes, cache_salt ? cache_salt : "", len);
    memcpy(&out.lo, d.bytes, 8);
    memcpy(&out.hi, d.bytes + 8, 8);
    return out;
}
