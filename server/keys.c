/* keys.c - the set of API keys: read from lists and files, found by digest, replaced as a whole when a reload has read a new
 * one. A key that calls hold outlives its place in the set. What a set says of a presented key takes the same time for all
 * of them. The owner's thread. */
#include "server/keys.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/sha256.h"

#define KEYS_MAX 10000
#define FILE_BYTES_MAX (8 << 20)
#define OTHERS "other" /* in /metrics: those that have no label of their own */

struct entry {
    struct qr_key_digest digest; /* its key's, side by side with the others */
    struct qr_key *key;          /* owned */
};

struct qr_keys {
    struct entry *entry;      /* owned [n] */
    int32_t n, cap;
    struct qr_key *anyone;    /* owned: where there is no key; else NULL */
    struct qr_key_use others;
};

const char *qr_key_digest_text(char out[QR_KEY_DIGEST_TEXT], const struct qr_key_digest *d)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(d != NULL);
    snprintf(out, QR_KEY_DIGEST_TEXT, "%02x%02x%02x%02x", d->bytes[0], d->bytes[1], d->bytes[2], d->bytes[3]);
    return out;
}

/* ---- reading ---- */

struct reading {
    struct qr_keys *k;
    struct qr_map digests, names; /* of the keys so far: to their places */
    enum qr_file_kind kind;
};

static bool same_terms(const struct qr_key_terms *a, const struct qr_key_terms *b)
{
    return a->rpm == b->rpm && a->tpm == b->tpm && a->concurrent == b->concurrent && a->weight == b->weight;
}

static void set_name(struct qr_key *key, const struct qr_key_line *line)
{
    if (line->name_len == 0)
        qr_key_digest_text(key->name, &key->digest);
    else
        memcpy(key->name, line->name, line->name_len);
}

/* The same key again. */
static int merge(struct qr_key *key, const struct qr_key_line *line, enum qr_role role, const char *where, struct qr_err *err)
{
    const bool same_name = line->name_len == 0 || (strlen(key->name) == line->name_len && memcmp(key->name, line->name, line->name_len) == 0);
    if (!same_name || !same_terms(&key->terms, &line->terms))
        return qr_err_set(err, QR_E_USAGE, "%s: the key was given before, with another name or other limits", where);
    key->role = role > key->role ? role : key->role;
    return 0;
}

static int add_key(struct reading *r, const struct qr_key_line *line, enum qr_role role, const char *where, struct qr_err *err)
{
    struct qr_keys *k = r->k;
    struct qr_key_digest digest;
    qr_sha256(digest.bytes, line->key, line->len, NULL, 0);
    const int32_t before = qr_map_find(&r->digests, (const char *)digest.bytes, sizeof digest.bytes, -1);
    if (before >= 0)
        return merge(k->entry[before].key, line, role, where, err);
    if (k->n == KEYS_MAX)
        return qr_err_set(err, QR_E_USAGE, "%s: more than %d keys", where, KEYS_MAX);
    if (k->n == k->cap) {
        k->cap = k->cap ? 2 * k->cap : 16;
        k->entry = qr_realloc(k->entry, (size_t)k->cap, sizeof *k->entry);
    }
    struct qr_key *key = qr_alloc(1, sizeof *key);
    *key = (struct qr_key){.digest = digest, .role = role, .terms = line->terms};
    set_name(key, line);
    k->entry[k->n] = (struct entry){digest, key};
    qr_map_add(&r->digests, (const char *)key->digest.bytes, sizeof key->digest.bytes, k->n++);
    if (strcmp(key->name, OTHERS) == 0)
        return qr_err_set(err, QR_E_USAGE, "%s: name=%s is taken: /metrics calls keys so that it does not tell apart", where, OTHERS);
    if (!qr_map_add(&r->names, key->name, strlen(key->name), k->n))
        return qr_err_set(err, QR_E_USAGE, "%s: another key has the name %s, too; give this one a name= of its own", where, key->name);
    return 0;
}

static int add_line(struct reading *r, const char *text, size_t n, enum qr_role role, const char *where, struct qr_err *err)
{
    struct qr_key_line line;
    if (qr_key_line_parse(&line, text, n, err) != 0)
        return qr_err_prefix(err, "%s: ", where);
    return line.len == 0 ? 0 : add_key(r, &line, role, where, err);
}

static int add_file(struct reading *r, const char *path, enum qr_role role, struct qr_err *err)
{
    char where[400];
    struct qr_buf text = {0};
    if (!path)
        return 0;
    int rc = qr_file_read(&text, path, r->kind, FILE_BYTES_MAX, err), number = 0;
    if (rc != 0)
        rc = qr_err_prefix(err, "key file: ");
    for (size_t at = 0; at < text.len && rc == 0;) {
        const char *line = text.data + at, *end = memchr(line, '\n', text.len - at);
        size_t n = end ? (size_t)(end - line) : text.len - at;
        at += n + 1;
        n -= n > 0 && line[n - 1] == '\r';
        snprintf(where, sizeof where, "key file %.300s:%d", path, ++number);
        rc = add_line(r, line, n, role, where, err);
    }
    if (text.data)
        explicit_bzero(text.data, text.len);
    qr_buf_release(&text);
    return rc;
}

/* Keys of flags have no limits: what looks like a field is not one. */
static int add_list(struct reading *r, const struct qr_str_list *list, enum qr_role role, const char *where, struct qr_err *err)
{
    int rc = 0;
    for (int32_t i = 0; i < list->n && rc == 0; i++) {
        struct qr_key_line line;
        const char *text = list->item[i];
        const size_t n = strlen(text);
        rc = qr_key_line_parse(&line, text, n, err);
        if (rc == 0 && (line.len != n || n == 0))
            rc = qr_err_set(err, QR_E_USAGE, "a key has to be visible characters and not to begin with '#'; limits are for key files");
        rc = rc ? qr_err_prefix(err, "%s: ", where) : add_key(r, &line, role, where, err);
    }
    return rc;
}

static int read_all(struct reading *r, const struct qr_keys_from *from, struct qr_err *err)
{
    static const char *const flag[QR_ROLES] = {[QR_ROLE_METRICS] = "--metrics-key", [QR_ROLE_USER] = "--api-key", [QR_ROLE_ADMIN] = "--admin-key"};
    const char *file = NULL;
    int rc = 0;
    for (enum qr_role role = QR_ROLE_ADMIN; role > QR_ROLE_NONE && rc == 0; role--) {
        rc = from->list[role] ? add_list(r, from->list[role], role, flag[role], err) : 0;
        rc = rc ? rc : add_file(r, from->file[role], role, err);
        file = file ? file : from->file[role];
        if (rc == 0 && role == QR_ROLE_USER && r->k->n == 0 && file)
            rc = qr_err_set(err, QR_E_USAGE, "key file %s has no key; a server that asks for keys needs one", file);
        if (rc == 0 && role == QR_ROLE_METRICS && r->k->n > 0 && qr_keys_count(r->k, QR_ROLE_USER) + qr_keys_count(r->k, QR_ROLE_ADMIN) == 0)
            rc = qr_err_set(err, QR_E_USAGE, "--metrics-key says who may look; a server that asks for keys needs --api-key or --admin-key, too");
    }
    return rc;
}

/* The first ones of the new. One that was among the others stays there: its counters would jump. */
static void label(struct qr_keys *k)
{
    int32_t n = 0;
    for (int32_t i = 0; i < k->n; i++)
        n += k->entry[i].key->label == QR_LABEL_OWN;
    for (int32_t i = 0; i < k->n; i++) {
        struct qr_key *key = k->entry[i].key;
        if (key->label == QR_LABEL_NEW)
            key->label = n++ < QR_KEY_LABELS_MAX ? QR_LABEL_OWN : QR_LABEL_OTHERS;
    }
}

static void add_anyone(struct qr_keys *k)
{
    k->anyone = qr_alloc(1, sizeof *k->anyone);
    *k->anyone = (struct qr_key){.role = QR_ROLE_ADMIN, .name = "anyone", .terms = {.weight = 1}, .label = QR_LABEL_OWN};
    qr_sha256(k->anyone->digest.bytes, NULL, 0, NULL, 0);
}

int qr_keys_new(struct qr_keys **out, const struct qr_keys_from *from, struct qr_err *err)
{
    QR_ASSERT(out != NULL && err != NULL);
    QR_ASSERT(from != NULL);
    struct reading r = {.k = qr_alloc(1, sizeof *r.k), .kind = from->kind};
    qr_map_init(&r.digests, 16);
    qr_map_init(&r.names, 16);
    const int rc = read_all(&r, from, err);
    qr_map_release(&r.digests);
    qr_map_release(&r.names);
    if (rc != 0) {
        qr_keys_free(r.k);
        return rc;
    }
    if (r.k->n == 0)
        add_anyone(r.k);
    label(r.k);
    *out = r.k;
    return 0;
}

static void key_free(struct qr_key *key)
{
    if (key)
        explicit_bzero(&key->digest, sizeof key->digest);
    qr_free(key);
}

static void drop_entries(struct qr_keys *k)
{
    if (k->entry)
        explicit_bzero(k->entry, (size_t)k->cap * sizeof *k->entry);
    qr_free(k->entry);
}

void qr_keys_free(struct qr_keys *k)
{
    if (!k)
        return;
    for (int32_t i = 0; i < k->n; i++)
        key_free(k->entry[i].key);
    key_free(k->anyone);
    drop_entries(k);
    qr_free(k);
}

/* ---- another set ---- */

/* `old` stays, under what `fresh`, which has the same digest, says of it. */
static void stay(struct qr_key *old, struct entry *fresh)
{
    struct qr_key *now = fresh->key;
    memcpy(old->name, now->name, sizeof old->name);
    old->role = now->role;
    old->terms = now->terms;
    key_free(now);
    fresh->key = old;
}

static void go(struct qr_key *old)
{
    old->gone = true;
    if (old->n_calls == 0)
        key_free(old);
}

int32_t qr_keys_replace(struct qr_keys *k, struct qr_keys *fresh, int32_t *n_gone)
{
    struct qr_map places;
    int32_t n_stay = 0;
    QR_ASSERT(k != NULL && fresh != NULL && n_gone != NULL);
    QR_ASSERT(k->anyone == NULL && fresh->anyone == NULL);
    qr_map_init(&places, (size_t)fresh->n);
    for (int32_t i = 0; i < fresh->n; i++) {
        fresh->entry[i].key->label = QR_LABEL_NEW;
        qr_map_add(&places, (const char *)fresh->entry[i].digest.bytes, sizeof fresh->entry[i].digest.bytes, i);
    }
    for (int32_t i = 0; i < k->n; i++) {
        const struct entry *old = &k->entry[i];
        const int32_t at = qr_map_find(&places, (const char *)old->digest.bytes, sizeof old->digest.bytes, -1);
        if (at < 0) {
            go(old->key);
            continue;
        }
        stay(old->key, &fresh->entry[at]);
        n_stay++;
    }
    qr_map_release(&places);
    *n_gone = k->n - n_stay;
    drop_entries(k);
    const struct qr_key_use others = k->others;
    *k = *fresh;
    k->others = others;
    qr_free(fresh);
    label(k);
    return k->n - n_stay;
}

/* ---- one key ---- */

int32_t qr_keys_count(const struct qr_keys *k, enum qr_role role)
{
    QR_ASSERT(k != NULL);
    QR_ASSERT(role != QR_ROLE_NONE);
    int32_t n = 0;
    for (int32_t i = 0; i < k->n; i++)
        n += k->entry[i].key->role == role;
    return n;
}

/* 0: they are the same. By words, as CRYPTO_memcmp goes by bytes, and 10000 keys would keep the loop for a millisecond. */
static uint64_t difference(const struct qr_key_digest *a, const struct qr_key_digest *b)
{
    uint64_t x[4], y[4];
    memcpy(x, a->bytes, sizeof x);
    memcpy(y, b->bytes, sizeof y);
    return (x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]);
}

struct qr_key *qr_keys_find(const struct qr_keys *k, const char *key, size_t len)
{
    QR_ASSERT(k != NULL);
    QR_ASSERT(key != NULL || len == 0);
    struct qr_key_digest digest;
    if (k->anyone)
        return k->anyone;
    qr_sha256(digest.bytes, key, key ? len : 0, NULL, 0);
    int32_t found = 0;
    for (int32_t i = 0; i < k->n; i++) /* all of them, always: the time says nothing about which one matched, which is one at most */
        found |= (i + 1) & -(int32_t)(difference(&k->entry[i].digest, &digest) == 0);
    return key && found > 0 ? k->entry[found - 1].key : NULL;
}

const struct qr_key *qr_keys_at(const struct qr_keys *k, int32_t i)
{
    QR_ASSERT(k != NULL);
    QR_ASSERT(i >= 0);
    if (k->anyone)
        return i == 0 ? k->anyone : NULL;
    return i < k->n ? k->entry[i].key : NULL;
}

const struct qr_key *qr_keys_named(const struct qr_keys *k, const char *name)
{
    QR_ASSERT(k != NULL && name != NULL);
    const struct qr_key *key = NULL;
    for (int32_t i = 0; (key = qr_keys_at(k, i)) != NULL && strcmp(key->name, name) != 0; i++)
        ;
    return key;
}

void qr_key_enter(struct qr_key *key)
{
    QR_ASSERT(key != NULL);
    QR_ASSERT(!key->gone && key->n_calls >= 0);
    key->n_calls++;
}

void qr_key_leave(struct qr_key *key)
{
    QR_ASSERT(key != NULL);
    QR_ASSERT(key->n_calls > 0);
    if (--key->n_calls == 0 && key->gone)
        key_free(key);
}

void qr_key_use_add(struct qr_key_use *to, const struct qr_key_use *more)
{
    QR_ASSERT(to != NULL);
    QR_ASSERT(more != NULL);
    to->n_requests += more->n_requests;
    to->n_errors += more->n_errors;
    to->prompt_tokens += more->prompt_tokens;
    to->cached_tokens += more->cached_tokens;
    to->output_tokens += more->output_tokens;
}

void qr_keys_use(struct qr_keys *k, struct qr_key *key, const struct qr_key_use *more)
{
    QR_ASSERT(k != NULL && key != NULL);
    QR_ASSERT(more != NULL);
    qr_key_use_add(&key->use, more);
    if (key->label != QR_LABEL_OWN)
        qr_key_use_add(&k->others, more);
}

const struct qr_key_use *qr_keys_others(const struct qr_keys *k)
{
    QR_ASSERT(k != NULL);
    QR_ASSERT(k->n >= 0);
    return &k->others;
}

struct qr_hash128 qr_keys_salt(const struct qr_key_digest *digest, const char *cache_salt, size_t len)
{
    QR_ASSERT(digest != NULL);
    QR_ASSERT(cache_salt != NULL || len == 0);
    struct qr_key_digest d;
    struct qr_hash128 out;
    qr_sha256(d.bytes, digest->bytes, sizeof digest->bytes, cache_salt, len);
    memcpy(&out.lo, d.bytes, 8);
    memcpy(&out.hi, d.bytes + 8, 8);
    return out;
}
