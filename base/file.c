/* file.c - files that are complete or not there. A new file goes through one buffer, is hashed on its way and synced
 * before it is closed. A directory is filled under another name, synced, and renamed; the parent is synced behind it. A
 * process killed at any moment leaves the old file or the new one. One thread per object. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"


const char *qr_errno_text(char text[128], int number)
{
    QR_ASSERT(text != NULL);
    QR_ASSERT(number >= 0);
    const char *what = strerrordesc_np(number), *symbol = strerrorname_np(number);
    snprintf(text, 128, "%s (%s)", what ? what : "unknown reason", symbol ? symbol : "no name");
    return text;
}

static int fail(const char *path, const char *doing, struct qr_err *err)
{
    const int number = errno;
    char text[128];
    return qr_err_set(err, QR_E_IO, "%s: cannot %s: %s%s", path, doing, qr_errno_text(text, number),
                      number == ENOSPC || number == EDQUOT ? "; make room on the disk" : "");
}

int qr_path_join(char out[QR_PATH_MAX], const char *dir, const char *name, struct qr_err *err)
{
    QR_ASSERT(out != NULL && dir != NULL);
    QR_ASSERT(name != NULL && err != NULL);
    if (snprintf(out, QR_PATH_MAX, "%s/%s", dir, name) < QR_PATH_MAX)
        return 0;
    return qr_err_set(err, QR_E_TOO_LARGE, "a path of %zu bytes is too long, expected less than %d", strlen(dir) + 1 + strlen(name), QR_PATH_MAX);
}

/* ---- a file being written ---- */

/* fd -1: it could not be opened. */
static int read_fd(struct qr_buf *out, int fd, const char *path, enum qr_file_kind kind, size_t bytes_max, struct qr_err *err)
{
    const size_t room = 64 << 10, before = out->len;
    struct stat st;
    if (fstat(fd, &st) != 0)
        return qr_err_set(err, QR_E_IO, "cannot read '%s': %s", path, strerror(errno));
    if (kind != QR_FILE_ANY && !S_ISREG(st.st_mode))
        return qr_err_set(err, QR_E_IO, "%s: is %s, expected a regular file", path, S_ISDIR(st.st_mode) ? "a directory" : "a pipe or a device");
    if (S_ISREG(st.st_mode) && (uint64_t)st.st_size <= bytes_max)
        qr_buf_reserve(out, (size_t)st.st_size + room);
    for (ssize_t n = 1; n > 0;) {
        qr_buf_reserve(out, room);
        n = read(fd, out->data + out->len, room);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n < 0)
            return qr_err_set(err, QR_E_IO, "cannot read '%s': %s", path, strerror(errno));
        else
            out->len += (size_t)n;
        if (out->len - before > bytes_max)
            return qr_err_set(err, QR_E_TOO_LARGE, "'%s' is larger than %zu bytes", path, bytes_max);
    }
    return 0;
}

int qr_file_read(struct qr_buf *out, const char *path, enum qr_file_kind kind, size_t bytes_max, struct qr_err *err)
{
    QR_ASSERT(out != NULL && path != NULL);
    QR_ASSERT(err != NULL);
    const bool is_stdin = kind == QR_FILE_ANY && strcmp(path, "-") == 0;
    const int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | (kind != QR_FILE_ANY ? O_NONBLOCK : 0));
    const bool missing = fd < 0 && (errno == ENOENT || errno == ENOTDIR);
    if (missing && kind == QR_FILE_OPTIONAL)
        return 0;
    if (fd < 0)
        return qr_err_set(err, missing ? QR_E_NOT_FOUND : QR_E_IO, "cannot read '%s': %s", path, strerror(errno));
    const int rc = read_fd(out, fd, path, kind, bytes_max, err);
    if (out->data)
        out->data[out->len] = 0;
    if (!is_stdin)
        close(fd);
    return rc;
}

static int begin(struct qr_file_out *f, const char *path, int fd, struct qr_err *err)
{
    QR_ASSERT(f != NULL && path != NULL);
    QR_ASSERT(err != NULL && strlen(path) < QR_PATH_MAX);
    *f = (struct qr_file_out){.fd = fd};
    if (fd < 0)
        return fail(path, "be made", err);
    snprintf(f->path, sizeof f->path, "%s", path);
    f->buffer = qr_alloc(QR_FILE_BLOCK_BYTES, 1);
    return 0;
}

int qr_file_out_open(struct qr_file_out *f, const char *path, struct qr_err *err)
{
    QR_ASSERT(path != NULL);
    return begin(f, path, open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666), err);
}

/* Writes and hashes the buffer. */
static int flush(struct qr_file_out *f, struct qr_err *err)
{
    for (size_t at = 0; at < f->used;) {
        const ssize_t n = write(f->fd, f->buffer + at, f->used - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n < 0 ? errno : ENOSPC;
            return fail(f->path, "be written", err);
        }
        at += (size_t)n;
    }
    f->hash = qr_hash64(f->buffer, f->used, f->hash);
    f->used = 0;
    return 0;
}

int qr_file_out_put(struct qr_file_out *f, const void *bytes, size_t n, struct qr_err *err)
{
    QR_ASSERT(f != NULL && (bytes != NULL || n == 0));
    QR_ASSERT(f->buffer != NULL);
    const uint8_t *from = bytes;
    int rc = 0;
    f->n_bytes += n;
    while (n > 0 && rc == 0) {
        const size_t room = QR_FILE_BLOCK_BYTES - f->used, take = n < room ? n : room;
        memcpy(f->buffer + f->used, from, take);
        f->used += take;
        from += take;
        n -= take;
        if (f->used == QR_FILE_BLOCK_BYTES)
            rc = flush(f, err);
    }
    return rc;
}

void qr_file_out_abandon(struct qr_file_out *f)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(f->fd >= -1);
    if (f->fd >= 0)
        close(f->fd);
    qr_free(f->buffer);
    f->fd = -1;
    f->buffer = NULL;
}

int qr_file_out_close(struct qr_file_out *f, bool sync, struct qr_err *err)
{
    QR_ASSERT(f != NULL && err != NULL);
    QR_ASSERT(f->fd >= 0 && f->buffer != NULL);
    int rc = f->used > 0 ? flush(f, err) : 0;
    if (rc == 0 && sync && fsync(f->fd) != 0)
        rc = fail(f->path, "reach the disk", err);
    const int closed = close(f->fd);
    if (rc == 0 && closed != 0) /* a file system may say only now that it could not write */
        rc = fail(f->path, "be closed", err);
    f->fd = -1;
    qr_file_out_abandon(f);
    return rc;
}

static int put_all(struct qr_file_out *f, const void *bytes, size_t n, bool sync, struct qr_err *err)
{
    const int rc = qr_file_out_put(f, bytes, n, err);
    if (rc == 0)
        return qr_file_out_close(f, sync, err);
    qr_file_out_abandon(f);
    return rc;
}

int qr_file_write(const char *path, const void *bytes, size_t n, bool sync, struct qr_err *err)
{
    QR_ASSERT(path != NULL && err != NULL);
    QR_ASSERT(bytes != NULL || n == 0);
    struct qr_file_out f;
    const int rc = qr_file_out_open(&f, path, err);
    return rc ? rc : put_all(&f, bytes, n, sync, err);
}

int qr_dir_write(const char *dir, const char *name, const void *bytes, size_t n, bool sync, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    const int rc = qr_path_join(path, dir, name, err);
    return rc ? rc : qr_file_write(path, bytes, n, sync, err);
}

int qr_file_put(const char *path, const void *bytes, size_t n, struct qr_err *err)
{
    QR_ASSERT(path != NULL && err != NULL);
    QR_ASSERT(bytes != NULL || n == 0);
    const bool out = strcmp(path, "-") == 0;
    struct qr_file_out f;
    fflush(stdout); /* what was printed comes first */
    const int rc = begin(&f, out ? "stdout" : path, out ? fcntl(1, F_DUPFD_CLOEXEC, 3) : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), err);
    return rc ? rc : put_all(&f, bytes, n, false, err);
}

static int replace(const char *path, const void *bytes, size_t n, bool is_private, struct qr_err *err)
{
    QR_ASSERT(path != NULL && err != NULL);
    QR_ASSERT(bytes != NULL || n == 0);
    char fresh[QR_PATH_MAX], text[128];
    struct qr_file_out f;
    const int n_name = snprintf(fresh, sizeof fresh, "%s.%d.new", path, (int)gettid()); /* others may replace it at the same time */
    if (n_name >= (int)sizeof fresh)
        return qr_err_set(err, QR_E_TOO_LARGE, "%.200s...: the path is longer than %d bytes", path, QR_PATH_MAX - 1 - (n_name - (int)strlen(path)));
    unlink(fresh);
    int rc = begin(&f, fresh, open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, is_private ? 0600 : 0666), err);
    rc = rc ? rc : put_all(&f, bytes, n, is_private, err);
    if (rc == 0 && rename(fresh, path) != 0)
        rc = qr_err_set(err, QR_E_IO, "%s: rename: %s", path, qr_errno_text(text, errno));
    if (rc)
        unlink(fresh);
    return rc;
}

int qr_file_replace(const char *path, const void *bytes, size_t n, struct qr_err *err)
{
    return replace(path, bytes, n, false, err);
}

int qr_file_replace_private(const char *path, const void *bytes, size_t n, struct qr_err *err)
{
    return replace(path, bytes, n, true, err);
}

uint64_t qr_file_hash_more(uint64_t before, const void *bytes, size_t n)
{
    QR_ASSERT(bytes != NULL || n == 0);
    const uint8_t *p = bytes;
    uint64_t hash = before;
    for (size_t at = 0; at < n; at += QR_FILE_BLOCK_BYTES)
        hash = qr_hash64(p + at, n - at < QR_FILE_BLOCK_BYTES ? n - at : QR_FILE_BLOCK_BYTES, hash);
    return hash;
}

uint64_t qr_file_hash(const void *bytes, size_t n)
{
    return qr_file_hash_more(0, bytes, n);
}

/* ---- directories ---- */

int qr_dir_sync(const char *path, struct qr_err *err)
{
    QR_ASSERT(path != NULL);
    QR_ASSERT(err != NULL);
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail(path, "be opened", err);
    const int rc = fsync(fd) == 0 ? 0 : fail(path, "reach the disk", err);
    close(fd);
    return rc;
}

/* Removes the files of a directory. */
static int empty(const char *path, struct qr_err *err)
{
    char file[QR_PATH_MAX];
    int rc = 0;
    DIR *d = opendir(path);
    if (!d)
        return fail(path, "be opened", err);
    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        rc = qr_path_join(file, path, e->d_name, err);
        if (rc == 0 && unlink(file) != 0)
            rc = fail(file, "be removed", err);
    }
    closedir(d);
    return rc;
}

int qr_dir_remove(const char *path, struct qr_err *err)
{
    QR_ASSERT(path != NULL);
    QR_ASSERT(err != NULL);
    const int rc = empty(path, err);
    if (rc)
        return rc;
    return rmdir(path) == 0 ? 0 : fail(path, "be removed", err);
}

int qr_dir_make_fresh(const char *path, struct qr_err *err)
{
    QR_ASSERT(path != NULL);
    QR_ASSERT(err != NULL);
    if (mkdir(path, 0777) == 0)
        return 0;
    return errno == EEXIST ? empty(path, err) : fail(path, "be made", err);
}

int qr_dir_make_all(const char *path, unsigned mode, struct qr_err *err)
{
    QR_ASSERT(path != NULL);
    QR_ASSERT(err != NULL);
    char part[QR_PATH_MAX];
    const size_t n = strlen(path);
    if (n >= sizeof part)
        return qr_err_set(err, QR_E_TOO_LARGE, "%.100s..: the name of a directory has %zu bytes, expected %zu at most", path,
                          n, sizeof part - 1);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, mode) != 0 && errno != EEXIST)
            return fail(part, "be made", err);
    }
    return 0;
}

/* The directory that holds `path`. */
static void parent_of(char out[QR_PATH_MAX], const char *path)
{
    const char *slash = strrchr(path, '/');
    QR_ASSERT(strlen(path) < QR_PATH_MAX);
    if (!slash)
        snprintf(out, QR_PATH_MAX, ".");
    else
        snprintf(out, QR_PATH_MAX, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

/* Where the file system cannot exchange two names, there is a moment in which `to` is missing: its old content is then still under `from`'s neighbour, and
 * other checkpoints are untouched. */
static int exchange(const char *from, const char *to)
{
    char aside[QR_PATH_MAX];
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (snprintf(aside, sizeof aside, "%s.0", from) >= (int)sizeof aside) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (rename(to, aside) != 0)
        return -1;
    if (rename(from, to) == 0) {
        rename(aside, from); /* when this fails, the old content keeps the name of a leftover */
        return 0;
    }
    const int number = errno;
    if (rename(aside, to) != 0)
        return -1;
    errno = number;
    return -1;
}

/* Renames where `to` is free; EEXIST otherwise. */
static int move(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (access(to, F_OK) != 0) /* a file system that knows no flags */
        return rename(from, to);
    errno = EEXIST;
    return -1;
}

int qr_dir_publish(const char *from, const char *to, bool replace, struct qr_err *err)
{
    QR_ASSERT(from != NULL && to != NULL);
    QR_ASSERT(err != NULL && strlen(to) < QR_PATH_MAX);
    char parent[QR_PATH_MAX];
    bool exchanged = false;
    parent_of(parent, to);
    int got = move(from, to);
    if (got != 0 && errno == EEXIST && replace) {
        got = exchange(from, to);
        exchanged = true;
    }
    if (got != 0)
        return fail(to, "be put in place", err);
    const int rc = qr_dir_sync(parent, err);
    if (rc == 0)
        return 0;
    if (exchanged ? exchange(from, to) : rename(to, from)) /* back to what was: whether the disk has the new names is not known */
        qr_err_prefix(err, "%s stays in place, but: ", to);
    return rc;
}

int qr_link_replace(const char *path, const char *spare, const char *target, struct qr_err *err)
{
    QR_ASSERT(path != NULL && spare != NULL && target != NULL);
    QR_ASSERT(err != NULL);
    char parent[QR_PATH_MAX];
    parent_of(parent, path);
    if (unlink(spare) != 0 && errno != ENOENT)
        return fail(spare, "be removed", err);
    if (symlink(target, spare) != 0)
        return fail(spare, "be made", err);
    if (rename(spare, path) != 0) {
        const int rc = fail(path, "be replaced", err);
        unlink(spare);
        return rc;
    }
    return qr_dir_sync(parent, err);
}
