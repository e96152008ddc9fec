/* fetch.c - a file of a model as the sink of a GET (fetch.h). Guarantee: a blob's name stands for bytes whose hash it is; what is cut is kept as .incomplete
 * and gone on with; what has the wrong hash is removed. Links are made when the blob is there. One thread. */
#include "hub/fetch.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"

#define PIECE ((size_t)1 << 20)
#define HASHED_AT_ONCE ((int64_t)64 << 20) /* of what is there already, so that Ctrl-C is heard */

static void blob_path(char path[QR_PATH_MAX], const struct qr_hub_fetch *f, bool incomplete)
{
    char file[QR_HUB_HASH_MAX + 16];
    snprintf(file, sizeof file, "%s%s", f->file->hash, incomplete ? QR_HUB_INCOMPLETE : "");
    qr_hub_cache_path(path, f->cache, f->name, "blobs", file);
}

static int fail(const struct qr_hub_fetch *f, const char *doing, struct qr_err *err)
{
    const int number = errno;
    char text[128], path[QR_PATH_MAX];
    const bool full = number == ENOSPC || number == EDQUOT;
    blob_path(path, f, true);
    return qr_err_set(err, full ? QR_E_NO_ROOM : QR_E_IO, "%.100s: %.200s cannot %s: %s%s", f->file->path, path, doing, qr_errno_text(text, number),
                      full ? "; make room on the disk, and the same command goes on from there" : "");
}

int64_t qr_hub_fetch_cached(const struct qr_hub_cache *c, const struct qr_hub_name *name, const struct qr_hub_file *file)
{
    char path[QR_PATH_MAX];
    struct stat st;
    QR_ASSERT(c != NULL && name != NULL);
    QR_ASSERT(file != NULL);
    if (qr_hub_cache_has(c, name, file))
        return file->n_bytes;
    const struct qr_hub_fetch f = {.cache = c, .name = name, .file = file};
    blob_path(path, &f, true);
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= file->n_bytes ? st.st_size : 0;
}

/* ---- the sink ---- */

static void begin_digest(struct qr_hub_fetch *f)
{
    qr_hub_digest_begin(&f->digest, strlen(f->file->hash) == 64, f->file->n_bytes);
}

static int open_blob(struct qr_hub_fetch *f, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    struct stat st;
    qr_hub_cache_path(path, f->cache, f->name, "blobs", NULL);
    int rc = qr_dir_make_all(path, 0777, err);
    if (rc)
        return rc;
    blob_path(path, f, true);
    f->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (f->fd < 0 || fstat(f->fd, &st) != 0)
        return fail(f, "be opened", err);
    f->kept = S_ISREG(st.st_mode) && st.st_size <= f->file->n_bytes ? st.st_size : 0;
    if (ftruncate(f->fd, f->kept) != 0)
        return fail(f, "be cut", err);
    begin_digest(f);
    return 0;
}

/* Hashes on of what was there. */
static int hash_kept(struct qr_hub_fetch *f, struct qr_err *err)
{
    char *piece = qr_alloc(PIECE, 1);
    const int64_t end = f->got + HASHED_AT_ONCE < f->kept ? f->got + HASHED_AT_ONCE : f->kept;
    int rc = 0;
    while (rc == 0 && f->got < end) {
        errno = 0;
        const ssize_t n = pread(f->fd, piece, (int64_t)PIECE < end - f->got ? PIECE : (size_t)(end - f->got), f->got);
        if (n <= 0 && errno != EINTR)
            rc = fail(f, "be read", err);
        if (n > 0) {
            qr_hub_digest_put(&f->digest, piece, (size_t)n);
            f->got += n;
        }
    }
    qr_free(piece);
    return rc;
}

static int sink_open(void *user, int64_t *from, struct qr_err *err)
{
    struct qr_hub_fetch *f = user;
    int rc = 0;
    if (f->lock < 0) {
        f->lock = qr_hub_cache_lock(f->cache, f->name, f->file->hash);
        f->waits = f->lock < 0 && errno == EWOULDBLOCK;
        *from = -1;
        if (f->lock < 0)
            return f->waits ? QR_E_BUSY : fail(f, "be locked (.locks)", err);
    }
    if (qr_hub_cache_has(f->cache, f->name, f->file)) { /* by now */
        *from = f->got = f->file->n_bytes;
        return 0;
    }
    rc = f->fd < 0 ? open_blob(f, err) : 0;
    rc = rc ? rc : hash_kept(f, err);
    *from = f->got;
    return rc ? rc : f->got < f->kept ? QR_E_BUSY : 0;
}

static int sink_put(void *user, const void *bytes, size_t n, struct qr_err *err)
{
    struct qr_hub_fetch *f = user;
    QR_ASSERT(f->fd >= 0);
    QR_ASSERT((int64_t)n <= f->file->n_bytes - f->got);
    for (const char *from = bytes; n > 0;) {
        const ssize_t written = pwrite(f->fd, from, n, f->got);
        if (written < 0 && errno != EINTR)
            return fail(f, "be written", err);
        const size_t n_written = written > 0 ? (size_t)written : 0;
        qr_hub_digest_put(&f->digest, from, n_written);
        f->got += (int64_t)n_written;
        from += n_written;
        n -= n_written;
    }
    return 0;
}

static int sink_restart(void *user, struct qr_err *err)
{
    struct qr_hub_fetch *f = user;
    QR_ASSERT(f->fd >= 0);
    f->got = f->kept = 0;
    begin_digest(f);
    return ftruncate(f->fd, 0) == 0 ? 0 : fail(f, "be cut", err);
}

static void close_files(struct qr_hub_fetch *f)
{
    if (f->fd >= 0)
        close(f->fd);
    if (f->lock >= 0)
        close(f->lock); /* behind the blob, whose lock it is */
    f->fd = f->lock = -1;
    qr_hub_digest_release(&f->digest);
}

/* The bytes are all there: they get their name when they are the right ones. */
static int publish(struct qr_hub_fetch *f, struct qr_err *err)
{
    char path[QR_PATH_MAX], to[QR_PATH_MAX], hex[QR_HUB_HASH_MAX];
    blob_path(path, f, true);
    blob_path(to, f, false);
    qr_hub_digest_take(&f->digest, hex);
    if (strcmp(hex, f->file->hash) != 0 && f->kept > 0) { /* what was there may be of another program's making */
        qr_log(QR_LOG_WARN, "hub", "what was kept is not this file's, it is fetched from the begin: file=%s", f->file->path);
        const int rc = sink_restart(f, err);
        return rc ? rc : QR_E_BUSY;
    }
    if (strcmp(hex, f->file->hash) != 0) {
        unlink(path);
        return qr_err_set(err, QR_E_DAMAGED, "%.200s: what came has the hash %.16s.., the hub lists %.16s..: it was removed; try again", f->file->path, hex,
                          f->file->hash);
    }
    if (fsync(f->fd) != 0)
        return fail(f, "reach the disk", err);
    return rename(path, to) == 0 ? 0 : fail(f, "be renamed", err);
}

static int sink_close(void *user, bool whole, struct qr_err *err)
{
    struct qr_hub_fetch *f = user;
    int rc = whole && f->fd >= 0 ? publish(f, err) : 0;
    if (rc != QR_E_BUSY) {
        char path[QR_PATH_MAX];
        blob_path(path, f, true);
        if (f->fd >= 0 && f->got == 0) /* nothing to go on from */
            unlink(path);
        if (rc == 0 && whole)
            rc = qr_hub_cache_link(f->cache, f->name, f->commit, f->file, err);
        f->done = rc == 0 && whole;
        close_files(f);
    }
    return rc;
}

static const struct qr_hub_sink sink = {sink_open, sink_put, sink_restart, sink_close};

/* ---- its GET ---- */

void qr_hub_put_quoted(struct qr_buf *out, const char *text, const char *plain)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(text != NULL && plain != NULL);
    for (; *text; text++)
        qr_buf_printf(out, isalnum((unsigned char)*text) || strchr(plain, *text) ? "%c" : "%%%02X", (unsigned char)*text);
}

void qr_hub_fetch_init(struct qr_hub_fetch *f, const char *endpoint)
{
    QR_ASSERT(f != NULL && endpoint != NULL);
    QR_ASSERT(f->cache && f->name && f->commit && f->file);
    struct qr_buf url = {0};
    qr_buf_printf(&url, "%s/%s/resolve/%s/", endpoint, f->name->repo, f->commit);
    qr_hub_put_quoted(&url, f->file->path, "/-_.~");
    f->url = url.data;
    f->lock = f->fd = -1;
    f->get = (struct qr_hub_get){.url = f->url, .what = f->file->path, .n_bytes = f->file->n_bytes, .bytes_max = f->file->n_bytes, .sink = &sink, .user = f};
}

void qr_hub_fetch_release(struct qr_hub_fetch *f)
{
    QR_ASSERT(f != NULL);
    close_files(f);
    qr_free(f->url);
    f->url = NULL;
}
