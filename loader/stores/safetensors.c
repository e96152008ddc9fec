/* safetensors.c - opening one safetensors file, or those that an index lists. */
#include "loader/stores/tensor_files.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/mem.h"
#include "loader/stores/safetensors_header.h"

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"
#define SHARDS_MAX 4096
#define FILE_NAME_MAX 255

/* Parses the bytes of one shard and enters its tensors by name. */
static int take_shard(struct qr_tensor_files *st, int32_t shard, const char *shown, struct qr_err *err)
{
    const struct qr_map_file *map = &st->shard[shard].map;
    int32_t first = st->list.n;
    int rc = qr_safetensors_header_parse(&st->list, map->data, map->n_bytes, shard, shown, err);
    if (rc)
        return rc;
    for (int32_t i = first; i < st->list.n; i++) {
        const char *name = st->list.item[i].name;
        if (qr_map_add(&st->by_name, name, strlen(name), i))
            continue;
        const struct qr_stored_tensor *other = qr_tensor_files_find(st, name);
        return qr_err_set(err, QR_E_DAMAGED, "%s: byte %" PRIu64 ": tensor %s is here and in %s, expected it in one file only",
                          shown, st->list.item[i].offset, name, st->shard[other->shard].name);
    }
    return 0;
}

static int open_shard(struct qr_tensor_files *st, int32_t shard, const char *path, struct qr_err *err)
{
    int rc = qr_map_file_open_to_read(&st->shard[shard].map, path, SIZE_MAX, err);
    if (shard >= QR_TENSOR_FILES_READERS)
        qr_map_file_stop_reading(&st->shard[shard].map);
    return rc ? rc : take_shard(st, shard, path, err);
}

/* ---- the index ---- */

struct index {
    struct qr_tensor_files *st;
    struct qr_json_scan *scan;
    const char *path;
    struct qr_map shard_of; /* file name -> shard; keys borrowed from the shards */
    struct qr_buf text;
    struct {
        char *name; /* borrowed from names */
        size_t offset;
        int32_t shard;
    } *entry; /* owned */
    int32_t n, cap;
    struct qr_arena names;
    struct qr_err *err;
};

static int index_next(struct index *x, struct qr_json_token *t)
{
    int rc = qr_json_next(x->scan, t, x->err);
    if (rc) {
        x->err->code = QR_E_DAMAGED;
        qr_err_prefix(x->err, "%s: ", x->path);
        return QR_E_DAMAGED;
    }
    return 0;
}

static bool is_plain_file_name(const char *s, size_t n)
{
    if (n == 0 || n > FILE_NAME_MAX || s[0] == '.')
        return false;
    for (size_t i = 0; i < n; i++)
        if (s[i] == '/' || s[i] == '\\' || (unsigned char)s[i] < 0x20)
            return false;
    return true;
}

/* One `"tensor": "file"` of weight_map. */
static int index_entry(struct index *x, const struct qr_json_token *key)
{
    struct qr_json_token t;
    int rc = index_next(x, &t);
    if (rc)
        return rc;
    qr_buf_clear(&x->text);
    if (t.event == QR_JSON_STRING)
        qr_json_unescape(&x->text, &t); /* Python writes what is not ASCII so */
    if (!is_plain_file_name(x->text.data, x->text.len))
        return qr_err_set(x->err, QR_E_DAMAGED, "%s: byte %zu: found %.*s, expected the plain name of a file in the same "
                          "directory (no '/', no leading '.')", x->path, t.offset, (int)(t.len < 80 ? t.len : 80), t.text);
    int32_t shard = qr_map_find(&x->shard_of, x->text.data, x->text.len, -1);
    if (shard < 0) {
        if (x->st->n_shards == SHARDS_MAX)
            return qr_err_set(x->err, QR_E_TOO_LARGE, "%s: byte %zu: names more than %d files", x->path, t.offset, SHARDS_MAX);
        shard = qr_tensor_files_add(x->st, x->text.data, x->text.len);
        qr_map_add(&x->shard_of, x->st->shard[shard].name, x->text.len, shard);
    }
    qr_buf_clear(&x->text);
    qr_json_unescape(&x->text, key);
    if (x->n == QR_STORED_TENSORS_MAX || x->text.len > QR_STORED_NAME_MAX)
        return qr_err_set(x->err, QR_E_TOO_LARGE, "%s: byte %zu: more than %d tensors or a name of more than %d bytes", x->path,
                          key->offset, QR_STORED_TENSORS_MAX, QR_STORED_NAME_MAX);
    if (x->n == x->cap) {
        x->cap = x->cap ? x->cap * 2 : 256;
        x->entry = qr_realloc(x->entry, (size_t)x->cap, sizeof *x->entry);
    }
    char *name = qr_arena_alloc(&x->names, x->text.len + 1, 1);
    memcpy(name, x->text.len ? x->text.data : "", x->text.len + 1);
    x->entry[x->n].name = name;
    x->entry[x->n].offset = key->offset;
    x->entry[x->n++].shard = shard;
    return 0;
}

static int index_weight_map(struct index *x)
{
    struct qr_json_token t;
    int rc = index_next(x, &t);
    if (!rc && t.event != QR_JSON_OBJECT_BEGIN)
        return qr_err_set(x->err, QR_E_DAMAGED, "%s: byte %zu: expected weight_map to be an object", x->path, t.offset);
    while (!rc && !(rc = index_next(x, &t)) && t.event == QR_JSON_KEY)
        rc = index_entry(x, &t);
    return rc;
}

static int index_read(struct index *x)
{
    struct qr_json_token t;
    int rc = index_next(x, &t);
    if (!rc && t.event != QR_JSON_OBJECT_BEGIN)
        return qr_err_set(x->err, QR_E_DAMAGED, "%s: byte %zu: expected an object", x->path, t.offset);
    while (!rc && !(rc = index_next(x, &t)) && t.event == QR_JSON_KEY) {
        if (qr_json_token_is(&t, "weight_map"))
            rc = index_weight_map(x);
        else if (!(rc = index_next(x, &t)) && (rc = qr_json_skip(x->scan, &t, x->err)))
            qr_err_prefix(x->err, "%s: ", x->path);
    }
    if (!rc)
        rc = index_next(x, &t); /* the text must end here */
    if (!rc && x->n == 0)
        return qr_err_set(x->err, QR_E_DAMAGED, "%s: has no weight_map, expected an object of tensor and file names", x->path);
    return rc;
}

/* Every tensor of the index is in the file that the index names. */
static int index_check(struct index *x)
{
    struct qr_tensor_files *st = x->st;
    for (int32_t i = 0; i < x->n; i++) {
        const char *name = x->entry[i].name, *file = st->shard[x->entry[i].shard].name;
        const struct qr_stored_tensor *t = qr_tensor_files_find(st, name);
        if (!t)
            return qr_err_set(x->err, QR_E_DAMAGED, "%s: byte %zu: tensor %s is not in %s, where the index says it is", x->path,
                              x->entry[i].offset, name, file);
        if (t->shard != x->entry[i].shard)
            return qr_err_set(x->err, QR_E_DAMAGED, "%s: byte %zu: tensor %s is in %s, but the index says %s", x->path,
                              x->entry[i].offset, name, st->shard[t->shard].name, file);
    }
    return 0;
}

/* File `first` of those that the index names is not there; others may miss as well. */
static int fail_missing(const struct qr_tensor_files *st, const char *dir, int32_t first, struct qr_err *err)
{
    int32_t n = 0;
    for (int32_t i = first; i < st->n_shards; i++) {
        char path[4096];
        struct stat s;
        snprintf(path, sizeof path, "%s/%s", dir, st->shard[i].name);
        n += stat(path, &s) != 0;
    }
    return qr_err_set(err, QR_E_NOT_FOUND, "%s/" INDEX_NAME " names %d files, of which %d %s missing (the first: %s): download %s into this directory", dir,
                      st->n_shards, n, n == 1 ? "is" : "are", st->shard[first].name, n == 1 ? "it" : "them");
}

static int open_indexed(struct qr_tensor_files *st, const char *dir, const char *path, struct qr_err *err)
{
    struct qr_map_file file;
    int rc = qr_map_file_open(&file, path, qr_json_limits_file.bytes_max, err);
    if (rc)
        return rc;
    struct index x = {.st = st, .path = path, .err = err};
    x.scan = qr_json_scan_new((const char *)file.data, file.n_bytes, &qr_json_limits_file);
    qr_map_init(&x.shard_of, 64);
    qr_arena_init(&x.names, qr_json_limits_file.bytes_max * 2);
    rc = index_read(&x);
    for (int32_t i = 0; !rc && i < st->n_shards; i++) {
        char shard[4096];
        snprintf(shard, sizeof shard, "%s/%s", dir, st->shard[i].name);
        rc = open_shard(st, i, shard, err);
        if (rc == QR_E_NOT_FOUND)
            rc = fail_missing(st, dir, i, err);
    }
    if (!rc)
        rc = index_check(&x);
    qr_arena_release(&x.names);
    qr_buf_release(&x.text);
    qr_map_release(&x.shard_of);
    qr_json_scan_free(x.scan);
    qr_free(x.entry);
    qr_map_file_close(&file);
    return rc;
}

/* ---- opening ---- */

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && strcmp(s + n - k, tail) == 0;
}

/* Neither file is there: says what is, because pickle, a GGUF file and a link into a cache that has been emptied are the usual reasons. */
static int fail_no_weights(const char *dir, struct qr_err *err)
{
    static const char *const pickled[] = {".bin", ".pt", ".pth", ".pkl", ".ckpt"};
    char found[128] = "", other[128] = "", gguf[128] = "", path[4096];
    static const char *const names[] = {SINGLE_NAME, INDEX_NAME};
    struct stat s;
    for (int i = 0; i < QR_COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        if (lstat(path, &s) == 0 && stat(path, &s) != 0)
            return qr_err_set(err, errno == ENOENT ? QR_E_NOT_FOUND : QR_E_IO, "%s: is a link to a file that cannot be read: %s; download it again", path,
                              strerror(errno));
    }
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        for (int i = 0; i < QR_COUNT(pickled); i++)
            if (ends_with(e->d_name, pickled[i]))
                snprintf(found, sizeof found, "%.100s", e->d_name);
        if (ends_with(e->d_name, ".safetensors"))
            snprintf(other, sizeof other, "%.100s", e->d_name);
        if (ends_with(e->d_name, ".gguf") && (!gguf[0] || strcmp(e->d_name, gguf) < 0))
            snprintf(gguf, sizeof gguf, "%.100s", e->d_name);
    }
    if (d)
        closedir(d);
    if (other[0])
        return qr_err_set(err, QR_E_NOT_FOUND, "%s: holds %s, but neither " SINGLE_NAME " nor " INDEX_NAME
                          ": rename a single file, or download the index of a sharded one", dir, other);
    if (found[0])
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s: the weights are in pickle files (%s), which can run code and are never "
                          "read: convert them to " SINGLE_NAME, dir, found);
    if (gguf[0])
        return qr_err_set(err, QR_E_NOT_FOUND, "%s: has no weights beside its config.json, expected " SINGLE_NAME " or " INDEX_NAME
                          "; to run a GGUF file, name the file (%s/%s)", dir, dir, gguf);
    return qr_err_set(err, QR_E_NOT_FOUND, "%s: has no weights, expected " SINGLE_NAME " or " INDEX_NAME, dir);
}

static int open_directory(struct qr_tensor_files *st, const char *dir, struct qr_err *err)
{
    char path[4096];
    struct stat s;
    snprintf(path, sizeof path, "%s/%s", dir, SINGLE_NAME);
    if (stat(path, &s) == 0)
        return open_shard(st, qr_tensor_files_add(st, SINGLE_NAME, strlen(SINGLE_NAME)), path, err);
    snprintf(path, sizeof path, "%s/%s", dir, INDEX_NAME);
    if (stat(path, &s) == 0)
        return open_indexed(st, dir, path, err);
    return fail_no_weights(dir, err);
}

int qr_safetensors_open(struct qr_tensor_files **out, const char *path, struct qr_err *err)
{
    QR_ASSERT(out != NULL && path != NULL);
    QR_ASSERT(err != NULL);
    struct stat s;
    if (strlen(path) > 3000)
        return qr_err_set(err, QR_E_USAGE, "a path of %zu bytes is too long, expected at most 3000", strlen(path));
    struct qr_tensor_files *st = qr_tensor_files_new();
    int rc;
    if (stat(path, &s) == 0 && S_ISDIR(s.st_mode)) {
        rc = open_directory(st, path, err);
    } else {
        const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
        rc = open_shard(st, qr_tensor_files_add(st, name, strlen(name)), path, err);
    }
    if (rc) {
        qr_tensor_files_close(st);
        return rc;
    }
    qr_tensor_files_place(st, path);
    *out = st;
    return 0;
}

int qr_safetensors_open_memory(struct qr_tensor_files **out, const void *bytes, size_t n_bytes, const char *name,
                               struct qr_err *err)
{
    QR_ASSERT(out != NULL && (bytes != NULL || n_bytes == 0));
    QR_ASSERT(name != NULL && err != NULL);
    struct qr_tensor_files *st = qr_tensor_files_new();
    int32_t shard = qr_tensor_files_add(st, name, strlen(name));
    st->borrowed = true;
    st->shard[shard].map = (struct qr_map_file){.data = bytes, .n_bytes = n_bytes};
    int rc = take_shard(st, shard, name, err);
    if (rc) {
        qr_tensor_files_close(st);
        return rc;
    }
    *out = st;
    return 0;
}
