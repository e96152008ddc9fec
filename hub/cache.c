/* cache.c - the cache on disk (cache.h): places, locks, links, and what is complete. A model is complete when every file that its readers open is a link to
 * bytes: of an index every shard that it names, of a GGUF every part. Links are made when their bytes are whole, and a revision is written down last, so an
 * interrupted fetch leaves a cache that says so. One thread; other processes are kept out of a blob by its lock. */
#include "hub/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/mem.h"

#define INDEX_BYTES_MAX ((size_t)256 << 20)
#define SHORT_COMMIT 7
#define DEEP_MAX 8 /* folders in a snapshot */

const char *qr_hub_variable(const char *name)
{
    QR_ASSERT(name != NULL);
    const char *s = getenv(name);
    return s && *s ? s : NULL;
}

int qr_hub_cache_locate(struct qr_hub_cache *c, struct qr_err *err)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(err != NULL);
    const char *hub = qr_hub_variable("HF_HUB_CACHE"), *home = qr_hub_variable("HF_HOME");
    const char *xdg = qr_hub_variable("XDG_CACHE_HOME"), *user = qr_hub_variable("HOME");
    *c = (struct qr_hub_cache){.home = ""};
    if (home)
        snprintf(c->home, sizeof c->home, "%s", home);
    else if (xdg)
        snprintf(c->home, sizeof c->home, "%s/huggingface", xdg);
    else if (user)
        snprintf(c->home, sizeof c->home, "%s/.cache/huggingface", user);
    else if (!hub)
        return qr_err_set(err, QR_E_USAGE, "there is no home directory to keep models in (HOME): set HF_HOME to a directory");
    if (hub)
        snprintf(c->dir, sizeof c->dir, "%s", hub);
    else
        return qr_path_join(c->dir, c->home, "hub", err);
    return 0;
}

void qr_hub_cache_path(char path[QR_PATH_MAX], const struct qr_hub_cache *c, const struct qr_hub_name *name, const char *where, const char *file)
{
    QR_ASSERT(path != NULL && c != NULL);
    QR_ASSERT(name != NULL && where != NULL);
    if (snprintf(path, QR_PATH_MAX, "%s/%s%s%s%s%s", c->dir, name->folder, *where ? "/" : "", where, file ? "/" : "", file ? file : "") >= QR_PATH_MAX)
        path[0] = 0;
}

int qr_hub_path_append(char path[QR_PATH_MAX], const char *name, struct qr_err *err)
{
    QR_ASSERT(path != NULL);
    QR_ASSERT(name != NULL);
    const size_t n = strlen(path);
    if (n + 1 + strlen(name) >= QR_PATH_MAX)
        return qr_err_set(err, QR_E_TOO_LARGE, "the path of %.200s in the cache is too long", name);
    snprintf(path + n, QR_PATH_MAX - n, "/%s", name);
    return 0;
}

int qr_hub_cache_lock(const struct qr_hub_cache *c, const struct qr_hub_name *name, const char *hash)
{
    char path[QR_PATH_MAX];
    struct qr_err err;
    struct stat now, held;
    QR_ASSERT(c != NULL && name != NULL);
    QR_ASSERT(qr_hub_hash_ok(hash));
    const int n = snprintf(path, sizeof path, "%s/.locks/%s", c->dir, name->folder);
    if (n + QR_HUB_HASH_MAX + 8 >= QR_PATH_MAX || qr_dir_make_all(path, 0777, &err) != 0)
        return -1;
    snprintf(path + n, sizeof path - (size_t)n, "/%s.lock", hash);
    for (;;) {
        const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0)
            return -1;
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            const int number = errno;
            close(fd);
            errno = number;
            return -1;
        }
        if (fstat(fd, &held) == 0 && stat(path, &now) == 0 && held.st_ino == now.st_ino && held.st_dev == now.st_dev)
            return fd;
        close(fd); /* another process has removed the file that this one had opened */
    }
}

/* The one snapshot whose commit begins so. */
static bool commit_of_begin(char commit[QR_HUB_HASH_MAX], const struct qr_hub_cache *c, const struct qr_hub_name *name, const char *begin)
{
    char path[QR_PATH_MAX];
    int32_t n = 0;
    qr_hub_cache_path(path, c, name, "snapshots", NULL);
    DIR *d = strlen(begin) < SHORT_COMMIT ? NULL : opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!qr_hub_sha1_ok(e->d_name) || strncmp(e->d_name, begin, strlen(begin)) != 0)
            continue;
        memcpy(commit, e->d_name, 41);
        n++;
    }
    if (d)
        closedir(d);
    return n == 1;
}

bool qr_hub_cache_commit(char commit[QR_HUB_HASH_MAX], const struct qr_hub_cache *c, const struct qr_hub_name *name, const char *revision)
{
    char path[QR_PATH_MAX];
    struct qr_buf text = {0};
    struct qr_err err;
    QR_ASSERT(commit != NULL && c != NULL && name != NULL);
    QR_ASSERT(qr_hub_path_ok(revision));
    if (qr_hub_sha1_ok(revision)) {
        memcpy(commit, revision, 41);
        return true;
    }
    qr_hub_cache_path(path, c, name, "refs", revision);
    const bool read = qr_file_read(&text, path, QR_FILE_REGULAR, 4096, &err) == 0;
    snprintf(commit, QR_HUB_HASH_MAX, "%.*s", read ? (int)strcspn(text.data, "\r\n ") : 0, read ? text.data : "");
    qr_buf_release(&text);
    return qr_hub_sha1_ok(commit) || commit_of_begin(commit, c, name, revision);
}

/* ---- what is there ---- */

/* The blob's name that a link of a snapshot points at: the last part of its target. */
static bool blob_of(char hash[QR_HUB_HASH_MAX], const char *path)
{
    char target[QR_PATH_MAX];
    const ssize_t n = readlink(path, target, sizeof target - 1);
    if (n <= 0)
        return false;
    target[n] = 0;
    const char *slash = strrchr(target, '/');
    if (!slash || slash - target < 6 || strncmp(slash - 6, "/blobs", 6) != 0 || !qr_hub_hash_ok(slash + 1))
        return false;
    snprintf(hash, QR_HUB_HASH_MAX, "%s", slash + 1);
    return true;
}

/* Of the directory dir; `below` is its own path in the snapshot, with a slash, or "". */
static void walk(struct qr_hub_files *f, const char *dir, const char *below, int32_t deep)
{
    struct dirent **entry;
    char path[QR_PATH_MAX], inside[QR_PATH_MAX], hash[QR_HUB_HASH_MAX];
    struct stat st;
    struct qr_err err;
    const int n = deep < DEEP_MAX ? scandir(dir, &entry, NULL, alphasort) : -1;
    for (int i = 0; i < n; i++) {
        const char *name = entry[i]->d_name;
        const bool fits = strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && snprintf(path, sizeof path, "%s/%s", dir, name) < QR_PATH_MAX &&
                          snprintf(inside, sizeof inside, "%s%s", below, name) < QR_PATH_MAX - 1 && lstat(path, &st) == 0;
        if (fits && S_ISDIR(st.st_mode)) {
            strcat(inside, "/");
            walk(f, path, inside, deep + 1);
        } else if (fits && stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
            if (!blob_of(hash, path)) /* a copy, where the file system has no links: of use, and removed with the model alone */
                snprintf(hash, sizeof hash, "%040d", 0);
            qr_hub_files_add(f, inside, st.st_size, hash, &err);
        }
        free(entry[i]);
    }
    if (n >= 0)
        free(entry);
}

bool qr_hub_cache_list(struct qr_hub_files *f, const struct qr_hub_cache *c, const struct qr_hub_name *name, const char *commit)
{
    char path[QR_PATH_MAX];
    struct stat st;
    QR_ASSERT(f != NULL && c != NULL && name != NULL);
    QR_ASSERT(qr_hub_sha1_ok(commit));
    qr_hub_cache_path(path, c, name, "snapshots", commit);
    if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return false;
    walk(f, path, "", 0);
    return true;
}

bool qr_hub_cache_has(const struct qr_hub_cache *c, const struct qr_hub_name *name, const struct qr_hub_file *file)
{
    char path[QR_PATH_MAX];
    struct stat st;
    QR_ASSERT(c != NULL && name != NULL);
    QR_ASSERT(file != NULL);
    qr_hub_cache_path(path, c, name, "blobs", file->hash);
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == file->n_bytes;
}

/* Whether every shard that the index names is listed. An index that cannot be read is its reader's to complain of. */
static bool has_shards(const struct qr_hub_files *f, const char *dir)
{
    static const char *const wanted[] = {"weight_map", NULL};
    char path[QR_PATH_MAX];
    struct qr_buf text = {0};
    struct qr_json *root = NULL;
    struct qr_err err;
    const char *last = "";
    bool all = true;
    snprintf(path, sizeof path, "%.*s/" QR_HUB_INDEX, QR_PATH_MAX - 64, dir);
    if (qr_file_read(&text, path, QR_FILE_REGULAR, INDEX_BYTES_MAX, &err) == 0 &&
        qr_json_parse_members(&root, text.data, text.len, &qr_json_limits_file, wanted, &err) == 0) {
        for (const struct qr_json *v = qr_json_first(qr_json_find(root, "weight_map")); v && all; v = qr_json_after(v)) {
            const char *shard = qr_json_text(v, NULL);
            if (!shard || strcmp(shard, last) == 0)
                continue;
            all = qr_hub_files_find(f, shard) != NULL;
            last = shard;
        }
    }
    qr_json_free(root);
    qr_buf_release(&text);
    return all;
}

static bool has_parts(const struct qr_hub_files *f, const struct qr_hub_file *first)
{
    for (int32_t i = 0; i < qr_hub_gguf_n_parts(first); i++)
        if (!qr_hub_gguf_part(f, first, i))
            return false;
    return true;
}

int qr_hub_cache_find(char path[QR_PATH_MAX], const struct qr_hub_cache *c, const struct qr_hub_name *name, const char *revision, struct qr_err *err)
{
    char commit[QR_HUB_HASH_MAX], dir[QR_PATH_MAX];
    struct qr_hub_files f = {0};
    const struct qr_hub_file *opens = NULL;
    QR_ASSERT(path != NULL && c != NULL);
    QR_ASSERT(name != NULL && err != NULL);
    if (!qr_hub_cache_commit(commit, c, name, revision) || !qr_hub_cache_list(&f, c, name, commit))
        return qr_err_set(err, QR_E_NOT_FOUND, "%s (revision %.100s) is not in %.200s", name->repo, revision, c->dir);
    int rc = f.n ? qr_hub_select(&f, name, &opens, err) : QR_E_NOT_FOUND;
    if (rc == QR_E_USAGE)
        qr_hub_select_print(&f, name);
    qr_hub_cache_path(dir, c, name, "snapshots", commit);
    const bool lacks = rc == QR_E_NOT_FOUND || (rc == 0 && (opens ? !has_parts(&f, opens) : !qr_hub_files_find(&f, "tokenizer.json") || !has_shards(&f, dir)));
    if (lacks)
        rc = qr_err_set(err, QR_E_NOT_FOUND, "%s (revision %.100s) is in %.200s in part only", name->repo, revision, c->dir);
    else if (rc == 0 && opens)
        rc = qr_hub_path_append(dir, opens->path, err);
    if (rc == 0)
        memcpy(path, dir, sizeof dir);
    qr_hub_files_release(&f);
    return rc;
}

/* ---- writing ---- */

int qr_hub_cache_link(const struct qr_hub_cache *c, const struct qr_hub_name *name, const char *commit, const struct qr_hub_file *file, struct qr_err *err)
{
    char path[QR_PATH_MAX], spare[QR_PATH_MAX + 32], target[QR_PATH_MAX] = "../../", now[QR_PATH_MAX];
    struct stat st;
    QR_ASSERT(c != NULL && name != NULL && file != NULL);
    QR_ASSERT(qr_hub_sha1_ok(commit) && qr_hub_path_ok(file->path));
    qr_hub_cache_path(path, c, name, "snapshots", commit);
    if (strlen(path) + strlen(file->path) + 64 >= QR_PATH_MAX)
        return qr_err_set(err, QR_E_TOO_LARGE, "%s: the path of %.200s in the cache is too long", name->repo, file->path);
    int rc = qr_dir_make_all(path, 0777, err);
    for (const char *s = file->path, *slash; rc == 0 && (slash = strchr(s, '/')); s = slash + 1) { /* one by one: none may be a link that leads elsewhere */
        snprintf(path + strlen(path), QR_PATH_MAX - strlen(path), "/%.*s", (int)(slash - s), s);
        if ((mkdir(path, 0777) != 0 && errno != EEXIST) || lstat(path, &st) != 0 || !S_ISDIR(st.st_mode))
            rc = qr_err_set(err, QR_E_IO, "%s: expected a directory of the cache; remove what is there: quire rm %s", path, name->repo);
        strcat(target, "../");
    }
    const char *own = strrchr(file->path, '/');
    snprintf(path + strlen(path), QR_PATH_MAX - strlen(path), "/%s", own ? own + 1 : file->path);
    snprintf(spare, sizeof spare, "%s.%d.link", path, (int)getpid());
    snprintf(target + strlen(target), sizeof target - strlen(target), "blobs/%s", file->hash);
    const ssize_t n = readlink(path, now, sizeof now);
    if (rc || (n == (ssize_t)strlen(target) && memcmp(now, target, (size_t)n) == 0))
        return rc;
    return qr_link_replace(path, spare, target, err);
}

int qr_hub_cache_refer(const struct qr_hub_cache *c, const struct qr_hub_name *name, const char *revision, const char *commit, struct qr_err *err)
{
    char path[QR_PATH_MAX], dir[QR_PATH_MAX];
    QR_ASSERT(c != NULL && name != NULL);
    QR_ASSERT(qr_hub_path_ok(revision) && qr_hub_sha1_ok(commit));
    if (qr_hub_sha1_ok(revision))
        return 0;
    qr_hub_cache_path(path, c, name, "refs", revision);
    snprintf(dir, sizeof dir, "%s", path);
    if (!*path)
        return qr_err_set(err, QR_E_TOO_LARGE, "%s: the path of revision %.200s in the cache is too long", name->repo, revision);
    *strrchr(dir, '/') = 0;
    const int rc = qr_dir_make_all(dir, 0777, err);
    return rc ? rc : qr_file_replace(path, commit, strlen(commit), err);
}
