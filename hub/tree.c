/* tree.c - answers of the hub's API as lists of files. The text is whatever the network sends: it passes the strict JSON gate with limits of its own, and what
 * becomes part of a path later is checked here. Pure functions over bytes. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/mem.h"
#include "hub/files.h"

static const struct qr_json_limits limits = {.bytes_max = (size_t)32 << 20, .values_max = (int64_t)1 << 20, .depth_max = 32};

void qr_hub_files_release(struct qr_hub_files *f)
{
    QR_ASSERT(f != NULL);
    for (int32_t i = 0; i < f->n; i++)
        qr_free(f->file[i].path);
    qr_free(f->file);
    *f = (struct qr_hub_files){0};
}

int qr_hub_files_add(struct qr_hub_files *f, const char *path, int64_t n_bytes, const char *hash, struct qr_err *err)
{
    QR_ASSERT(f != NULL && path != NULL && hash != NULL);
    QR_ASSERT(err != NULL);
    struct qr_buf seen = {0};
    int rc = 0;
    qr_buf_put_visible(&seen, path, strnlen(path, 200));
    if (!qr_hub_path_ok(path))
        rc = qr_err_set(err, QR_E_DAMAGED, "the hub lists a file '%s', expected a path inside the model's directory; nothing is fetched",
                        seen.data ? seen.data : "");
    else if (!qr_hub_hash_ok(hash))
        rc = qr_err_set(err, QR_E_DAMAGED, "the hub lists '%s' without a hash of 40 or 64 hex digits", seen.data);
    else if (n_bytes < 0 || n_bytes > QR_HUB_BYTES_MAX - f->n_bytes || f->n == QR_HUB_FILES_MAX)
        rc = qr_err_set(err, QR_E_TOO_LARGE, "the hub lists '%s' with %lld bytes as file %d, expected %lld bytes and %d files together at most", seen.data,
                        (long long)n_bytes, f->n + 1, (long long)QR_HUB_BYTES_MAX, QR_HUB_FILES_MAX);
    qr_buf_release(&seen);
    if (rc)
        return rc;
    f->file = QR_GROW(f->file, f->n, f->cap);
    struct qr_hub_file *e = &f->file[f->n++];
    *e = (struct qr_hub_file){.path = qr_strdup(path), .n_bytes = n_bytes};
    snprintf(e->hash, sizeof e->hash, "%s", hash);
    f->n_bytes += n_bytes;
    return 0;
}

struct qr_hub_file *qr_hub_files_find(const struct qr_hub_files *f, const char *path)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(path != NULL);
    for (int32_t i = 0; i < f->n; i++)
        if (strcmp(f->file[i].path, path) == 0)
            return &f->file[i];
    return NULL;
}

/* A large file's own size and hash are in "lfs"; "oid" and "size" beside it are those of its pointer or, in other hubs, its own. */
static int add_entry(struct qr_hub_files *f, const struct qr_json *v, struct qr_err *err)
{
    const struct qr_json *lfs = qr_json_find(v, "lfs"), *of = lfs && qr_json_type(lfs) == QR_JSON_T_OBJECT ? lfs : v, *size = qr_json_find(of, "size");
    const char *path = qr_json_text(qr_json_find(v, "path"), NULL), *hash = qr_json_text(qr_json_find(of, "oid"), NULL);
    int64_t n_bytes;
    if (qr_json_says(qr_json_find(v, "type"), "directory"))
        return 0;
    if (!qr_json_says(qr_json_find(v, "type"), "file") || !path || !hash || !size || !qr_json_i64(size, &n_bytes))
        return qr_err_set(err, QR_E_DAMAGED, "an entry of the hub's list of files has not type, path, oid and size");
    return qr_hub_files_add(f, path, n_bytes, strncmp(hash, "sha256:", 7) == 0 ? hash + 7 : hash, err);
}

int qr_hub_tree_parse(struct qr_hub_files *f, const char *text, size_t len, struct qr_err *err)
{
    struct qr_json *root;
    QR_ASSERT(f != NULL && text != NULL);
    QR_ASSERT(err != NULL);
    int rc = qr_json_parse_file(&root, text, len, &limits, "the hub's list of files", err);
    if (rc)
        return rc;
    if (qr_json_type(root) != QR_JSON_T_ARRAY)
        rc = qr_err_set(err, QR_E_DAMAGED, "the hub's list of files is %s, expected an array", qr_json_type_name(qr_json_type(root)));
    else
        for (const struct qr_json *v = qr_json_first(root); v && rc == 0; v = qr_json_after(v))
            rc = add_entry(f, v, err);
    qr_json_free(root);
    return rc;
}

int qr_hub_commit_parse(char commit[QR_HUB_HASH_MAX], const char *text, size_t len, struct qr_err *err)
{
    static const char *const wanted[] = {"sha", NULL};
    struct qr_json *root;
    QR_ASSERT(commit != NULL && text != NULL);
    QR_ASSERT(err != NULL);
    int rc = qr_json_parse_members(&root, text, len, &limits, wanted, err);
    if (rc)
        return qr_err_prefix(err, "the hub's answer about the model: ");
    const char *sha = qr_json_text(qr_json_find(root, "sha"), NULL);
    if (sha && qr_hub_sha1_ok(sha))
        snprintf(commit, QR_HUB_HASH_MAX, "%s", sha);
    else
        rc = qr_err_set(err, QR_E_DAMAGED, "the hub's answer about the model names no commit of 40 hex digits (\"sha\"): is HF_ENDPOINT a hub?");
    qr_json_free(root);
    return rc;
}

void qr_hub_search_parse(struct qr_buf *out, const char *text, size_t len)
{
    struct qr_json *root;
    struct qr_err ignored;
    struct qr_hub_name name;
    QR_ASSERT(out != NULL);
    QR_ASSERT(text != NULL);
    if (qr_json_parse(&root, text, len, &limits, &ignored) != 0)
        return;
    int32_t n = 0;
    for (const struct qr_json *v = qr_json_first(root); v && n < 3; v = qr_json_after(v)) {
        const char *id = qr_json_text(qr_json_find(v, "id"), NULL);
        if (id && qr_hub_name_parse(&name, id) && !name.file)
            qr_buf_printf(out, "%s'%s'", n++ ? ", " : "", id);
    }
    qr_json_free(root);
}

/* Link: <https://hub/api/models/..?cursor=..>; rel="next", <..>; rel="last" */
bool qr_hub_link_next(char *out, size_t n_out, const char *header)
{
    QR_ASSERT(out != NULL && n_out > 0);
    QR_ASSERT(header != NULL);
    for (const char *s = strchr(header, '<'); s; s = strchr(s, '<')) {
        const size_t n = strcspn(++s, ">");
        if (s[n] == 0)
            return false;
        const char *to = s + n + 1;
        const size_t n_more = strcspn(to, "<"); /* its parameters, up to the next link */
        char more[128];
        snprintf(more, sizeof more, "%.*s", (int)(n_more < sizeof more ? n_more : sizeof more - 1), to);
        if (strstr(more, "rel=\"next\"") || strstr(more, "rel=next")) {
            if (n == 0 || n >= n_out)
                return false;
            memcpy(out, s, n);
            out[n] = 0;
            return true;
        }
        s = to + n_more;
    }
    return false;
}
