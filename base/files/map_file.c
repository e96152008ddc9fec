#include "base/files/map_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; older headers lack it */
#endif

bool qr_is_lfs_pointer(const void *bytes, size_t n)
{
    static const char begin[] = "version https://git-lfs.github.com/spec/";
    QR_ASSERT(bytes != NULL || n == 0);
    return n > sizeof begin && n < 1024 && memcmp(bytes, begin, sizeof begin - 1) == 0;
}

static int map_fd(struct qr_map_file *out, int fd, const char *path, size_t max_bytes, struct qr_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return qr_err_set(err, QR_E_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return qr_err_set(err, QR_E_IO, "%s: is %s, expected a regular file", path,
                          S_ISDIR(st.st_mode) ? "a directory" : "a pipe or a device");
    if ((uint64_t)st.st_size > max_bytes)
        return qr_err_set(err, QR_E_TOO_LARGE, "%s: has %lld bytes, expected at most %zu", path, (long long)st.st_size,
                          max_bytes);
    *out = (struct qr_map_file){.n_bytes = (size_t)st.st_size, .changed_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec};
    if (out->n_bytes == 0)
        return 0;
    void *p = mmap(NULL, out->n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return qr_err_set(err, errno == ENOMEM ? QR_E_NO_ROOM : QR_E_IO, "%s: its %zu bytes cannot be mapped: %s%s", path, out->n_bytes, strerror(errno),
                          errno == ENOMEM ? " (a limit such as ulimit -v)" : "");
    out->data = p;
    if (!qr_is_lfs_pointer(out->data, out->n_bytes))
        return 0;
    qr_map_file_close(out);
    return qr_err_set(err, QR_E_DAMAGED, "%s: " QR_LFS_POINTER, path);
}

static int open_file(struct qr_map_file *out, const char *path, size_t max_bytes, bool keep, struct qr_err *err)
{
    *out = (struct qr_map_file){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return qr_err_set(err, errno == ENOENT || errno == ENOTDIR ? QR_E_NOT_FOUND : QR_E_IO, "%s: %s", path,
                          strerror(errno));
    int rc = map_fd(out, fd, path, max_bytes, err);
    if (keep && rc == 0 && out->data)
        out->reader = 1 + fd;
    else
        close(fd);
    return rc;
}

int qr_map_file_open(struct qr_map_file *out, const char *path, size_t max_bytes, struct qr_err *err)
{
    QR_ASSERT(out != NULL && path != NULL);
    QR_ASSERT(err != NULL);
    return open_file(out, path, max_bytes, false, err);
}

int qr_map_file_open_to_read(struct qr_map_file *out, const char *path, size_t max_bytes, struct qr_err *err)
{
    QR_ASSERT(out != NULL && path != NULL);
    QR_ASSERT(err != NULL);
    return open_file(out, path, max_bytes, true, err);
}

bool qr_map_file_read(const struct qr_map_file *f, void *to, size_t offset, size_t n_bytes)
{
    QR_ASSERT(f != NULL && f->reader > 0);
    QR_ASSERT(offset <= f->n_bytes && n_bytes <= f->n_bytes - offset);
    for (size_t done = 0; done < n_bytes;) {
        const ssize_t n = pread(f->reader - 1, (uint8_t *)to + done, n_bytes - done, (off_t)(offset + done));
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

bool qr_map_file_whole(const struct qr_map_file *f)
{
    struct stat st;
    QR_ASSERT(f != NULL && f->reader > 0);
    return fstat(f->reader - 1, &st) == 0 && (uint64_t)st.st_size >= f->n_bytes;
}

void qr_map_file_stop_reading(struct qr_map_file *f)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(f->reader >= 0);
    if (f->reader)
        close(f->reader - 1);
    f->reader = 0;
}

void qr_map_file_close(struct qr_map_file *f)
{
    QR_ASSERT(f != NULL);
    qr_map_file_stop_reading(f);
    if (f->data)
        munmap((void *)(uintptr_t)f->data, f->n_bytes);
    *f = (struct qr_map_file){0};
}

bool qr_map_file_populate(const struct qr_map_file *f, size_t offset, size_t n_bytes)
{
    QR_ASSERT(f != NULL && offset <= f->n_bytes);
    QR_ASSERT(n_bytes <= f->n_bytes - offset);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), first = offset / page * page;
    return n_bytes == 0 || madvise((void *)(uintptr_t)(f->data + first), offset + n_bytes - first, MADV_POPULATE_READ) == 0;
}

void qr_map_file_drop(const struct qr_map_file *f, size_t offset, size_t n_bytes)
{
    QR_ASSERT(f != NULL && offset <= f->n_bytes);
    QR_ASSERT(n_bytes <= f->n_bytes - offset);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t first = qr_align_up(offset, page), end = (offset + n_bytes) / page * page;
    if (first < end)
        madvise((void *)(uintptr_t)(f->data + first), end - first, MADV_DONTNEED);
}
