/* tune_file.c - tables on disk: which file, reading and replacing it. */
#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"
#include "kernels/tune.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)
#define PATH_BYTES 4096
#define LOCK_TRIES 100
#define LOCK_PAUSE_NS 10000000

/* ---- the processor ---- */

/* Sizes of data caches by level, as cpuid's leaf has them (Intel SDM volume 2, leaf 4; AMD's 0x8000001d is the same). */
static size_t put_caches(char *out, size_t size, unsigned leaf)
{
    unsigned a, b, c, d;
    size_t n = 0;
    for (unsigned i = 0; i < 8 && n < size && __get_cpuid_count(leaf, i, &a, &b, &c, &d) && (a & 31); i++) {
        const uint64_t bytes = (uint64_t)((b >> 22) + 1) * (((b >> 12) & 1023) + 1) * ((b & 4095) + 1) * ((uint64_t)c + 1);
        if ((a & 31) != 2) /* 2: instructions */
            n += (size_t)snprintf(out + n, size - n, " L%u=%" PRIu64 "K", (a >> 5) & 7, bytes >> 10);
    }
    return n;
}

void qr_processor_describe(char out[QR_PROCESSOR_MAX])
{
    QR_ASSERT(out != NULL);
    unsigned a = 0, b, c, d, name[12] = {0};
    char vendor[13] = "", brand[49] = "";
    if (__get_cpuid(0, &a, &b, &c, &d)) {
        const unsigned order[3] = {b, d, c};
        memcpy(vendor, order, 12);
    }
    for (unsigned i = 0; i < 3; i++)
        if (!__get_cpuid(0x80000002u + i, &name[4 * i], &name[4 * i + 1], &name[4 * i + 2], &name[4 * i + 3]))
            memset(name, 0, sizeof name);
    memcpy(brand, name, 48);
    if (!__get_cpuid(1, &a, &b, &c, &d))
        a = 0;
    size_t n = (size_t)snprintf(out, QR_PROCESSOR_MAX, "%s %x", vendor, a & 0x0fff3fffu);
    n += put_caches(out + n, QR_PROCESSOR_MAX - n, strcmp(vendor, "AuthenticAMD") == 0 ? 0x8000001du : 4);
    if (n < QR_PROCESSOR_MAX)
        snprintf(out + n, QR_PROCESSOR_MAX - n, " %s", brand);
    for (char *p = out; *p; p++) /* a supervisor may say anything */
        if (*p < ' ' || *p > '~')
            *p = '?';
}

/* ---- the place ---- */

bool qr_tune_dir(char *out, size_t size)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(size > 0);
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (cache && cache[0] == '/') /* others are to be ignored: XDG Base Directory Specification */
        n = snprintf(out, size, "%s/quire", cache);
    else if (home && home[0] == '/')
        n = snprintf(out, size, "%s/.cache/quire", home);
    return n > 0 && (size_t)n < size;
}

void qr_tune_path(char *out, size_t size, const char *dir, const struct qr_tune *t)
{
    QR_ASSERT(out != NULL && size > 0);
    QR_ASSERT(dir != NULL && t != NULL);
    char processor[QR_PROCESSOR_MAX];
    qr_processor_describe(processor);
    snprintf(out, size, "%s/tune-%016" PRIx64 "-%s-%d.txt", dir, qr_hash64(processor, strlen(processor), 0), qr_tune_level(t), (int)qr_tune_threads(t));
}

/* ---- reading ---- */

/* A regular file of at most FILE_BYTES_MAX; *exists false when there is none. */
static int read_all(struct qr_buf *out, bool *exists, const char *path, struct qr_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = 0;
    struct stat st;
    *exists = fd >= 0;
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : qr_err_set(err, QR_E_IO, "%s", strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size > FILE_BYTES_MAX)
        rc = qr_err_set(err, QR_E_DAMAGED, "it is no file of at most %zu bytes", FILE_BYTES_MAX);
    while (rc == 0 && out->len <= FILE_BYTES_MAX) {
        qr_buf_reserve(out, 65536);
        ssize_t n = read(fd, out->data + out->len, 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = qr_err_set(err, QR_E_IO, "%s", strerror(errno));
        if (n <= 0)
            break;
        out->len += (size_t)n;
    }
    close(fd);
    return rc;
}

static int load_path(struct qr_tune *t, const char *path, struct qr_err *err)
{
    char processor[QR_PROCESSOR_MAX];
    struct qr_buf text = {0};
    bool exists;
    int rc = read_all(&text, &exists, path, err);
    qr_processor_describe(processor);
    if (rc == 0 && exists)
        rc = qr_tune_parse(t, text.data, text.len, processor, err);
    qr_buf_release(&text);
    return rc == 0 ? 0 : qr_err_prefix(err, "%s: ", path);
}

int qr_tune_load(struct qr_tune *t, const char *dir, struct qr_err *err)
{
    QR_ASSERT(t != NULL && dir != NULL);
    QR_ASSERT(err != NULL);
    char path[PATH_BYTES];
    qr_tune_path(path, sizeof path, dir, t);
    return load_path(t, path, err);
}

/* ---- writing ---- */

/* The directory and those above it, for this user alone where they are new. */
static int make_dirs(const char *dir)
{
    char path[PATH_BYTES];
    struct stat st;
    if ((size_t)snprintf(path, sizeof path, "%s", dir) >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (char *p = path + 1; *p; p++)
        if (*p == '/') {
            *p = '\0';
            mkdir(path, 0700);
            *p = '/';
        }
    mkdir(path, 0700);
    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
        errno = ENOTDIR;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? 0 : -1;
}

bool qr_tune_make_dir(const char *dir)
{
    QR_ASSERT(dir != NULL);
    QR_ASSERT(dir[0] == '/');
    return make_dirs(dir) == 0;
}

/* The directory, locked so that those who save take turns. -1: errno says why; EWOULDBLOCK when somebody holds the lock for a second. */
static int lock_dir(const char *dir)
{
    int fd = make_dirs(dir) == 0 ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
    for (int i = 0; fd >= 0; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return fd;
        if (errno != EWOULDBLOCK || i == LOCK_TRIES) {
            const int why = errno;
            close(fd);
            errno = why;
            return -1;
        }
        nanosleep(&pause, NULL);
    }
    return -1;
}

int qr_tune_save(const struct qr_tune *t, const char *dir, struct qr_err *err)
{
    QR_ASSERT(t != NULL && dir != NULL);
    QR_ASSERT(err != NULL);
    char path[PATH_BYTES], processor[QR_PROCESSOR_MAX];
    qr_tune_path(path, sizeof path, dir, t);
    int lock = lock_dir(dir);
    if (lock < 0 && errno == EWOULDBLOCK)
        return qr_err_set(err, QR_E_BUSY, "%s: another process holds its lock; try again when it has ended", dir);
    if (lock < 0)
        return qr_err_set(err, QR_E_IO, "%s: %s", dir, strerror(errno));
    struct qr_tune *all = qr_tune_new(qr_tune_level(t), qr_tune_threads(t));
    struct qr_err ignored;
    load_path(all, path, &ignored); /* what cannot be read is replaced */
    qr_tune_merge(all, t);
    struct qr_buf text = {0};
    qr_processor_describe(processor);
    qr_tune_format(&text, all, processor);
    int rc = qr_file_replace(path, text.data, text.len, err);
    close(lock);
    qr_buf_release(&text);
    qr_tune_free(all);
    return rc;
}
