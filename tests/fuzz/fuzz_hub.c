/* fuzz_hub.c - what a hub may answer: lists of files, a commit, a search, a Link header. What is taken from them is a path that leads nowhere else, a
 * hash, a size that can be; what is chosen from a list is in it. The first byte chooses the answer, the second the name that is wanted.
 */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "hub/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_inside(const char *path)
{
    if (path[0] == '/' || path[0] == 0 || path[strlen(path) - 1] == '/')
        return false;
    for (const char *s = path; s; s = strchr(s, '/'), s = s ? s + 1 : NULL)
        if (*s == '/' || strncmp(s, "./", 2) == 0 || strncmp(s, "../", 3) == 0 || strcmp(s, ".") == 0 || strcmp(s, "..") == 0)
            return false;
    return true;
}

static void tree(const char *text, size_t n, uint8_t which)
{
    static const char *const names[] = {"a/b", "a/b:Q4", "a/b:model.gguf", "a/b:x-00001-of-00002.gguf"};
    struct qr_hub_files f = {0};
    struct qr_hub_name name;
    const struct qr_hub_file *opens = NULL;
    struct qr_err err = {0};
    int64_t sum = 0;
    const bool ok = qr_hub_name_parse(&name, names[which % QR_COUNT(names)]);
    QR_ASSERT(ok);
    int rc = qr_hub_tree_parse(&f, text, n, &err);
    QR_ASSERT(rc == 0 || err.msg[0]);
    for (int32_t i = 0; i < f.n; i++) {
        QR_ASSERT(is_inside(f.file[i].path) && qr_hub_hash_ok(f.file[i].hash));
        QR_ASSERT(f.file[i].n_bytes >= 0);
        sum += f.file[i].n_bytes;
    }
    QR_ASSERT(sum == f.n_bytes && sum <= QR_HUB_BYTES_MAX);
    rc = rc ? rc : qr_hub_select(&f, &name, &opens, &err);
    QR_ASSERT(rc != 0 || !opens || (opens >= f.file && opens < f.file + f.n && opens->wanted));
    for (int32_t i = 0; i < f.n && rc == 0; i++)
        QR_ASSERT(!f.file[i].wanted || (!qr_ends_with(f.file[i].path, ".bin") && !qr_ends_with(f.file[i].path, ".py")));
    qr_hub_files_release(&f);
}

static void other(const char *text, size_t n)
{
    char commit[QR_HUB_HASH_MAX] = "", next[256], repo[QR_HUB_NAME_MAX];
    struct qr_hub_name name;
    struct qr_buf out = {0};
    struct qr_err err;
    if (qr_hub_commit_parse(commit, text, n, &err) == 0)
        QR_ASSERT(qr_hub_sha1_ok(commit));
    qr_hub_search_parse(&out, text, n);
    QR_ASSERT(out.len < 3 * QR_HUB_NAME_MAX);
    qr_buf_release(&out);
    char *s = qr_strndup(text, n);
    if (qr_hub_link_next(next, sizeof next, s))
        QR_ASSERT(strstr(s, next) && next[0]);
    if (qr_hub_name_parse(&name, s))
        QR_ASSERT(is_inside(name.repo) && is_inside(name.folder) && !strchr(name.folder, '/'));
    if (qr_hub_name_of_folder(&name, s))
        QR_ASSERT(strcmp(name.folder, s) == 0);
    if (qr_hub_path_ok(s))
        QR_ASSERT(is_inside(s));
    if (qr_hub_name_of_path(repo, s))
        QR_ASSERT(qr_hub_name_parse(&name, repo));
    qr_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    if (data[0] & 1)
        tree((const char *)data + 2, size - 2, data[1]);
    else
        other((const char *)data + 2, size - 2);
    return 0;
}
