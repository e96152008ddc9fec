/* extents.c - a table of open extents. Each counts with what it may become, so that only making an extent compares with the bound, and appending keeps to it.
 * After opening, one owning thread; the index has a lock of its own. */
#include "exchange/extents.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"

enum { EXTENTS_WANTED = 32, EXTENTS_MIN = 4 };

#define EXTENT_BYTES_MIN (INT64_C(16) << 20) /* where the bound allows */
#define DIR_BYTES (INT64_C(16) << 10)        /* of the bound, for the directory and its lock */

/* ---- room ---- */

static int64_t bytes_reserved(const struct qr_extents *x)
{
    int64_t n = DIR_BYTES;
    for (int32_t i = 0; i < QR_FILE_EXTENTS_MAX; i++)
        n += x->extent[i].fd >= 0 ? x->extent[i].bytes : 0;
    return n;
}

/* A place in the table, or -1. */
static int32_t free_place(const struct qr_extents *x)
{
    int32_t i = 0;
    while (i < QR_FILE_EXTENTS_MAX && x->extent[i].fd >= 0)
        i++;
    return i < QR_FILE_EXTENTS_MAX ? i : -1;
}

/* The extent that goes next: a foreign one, or the oldest; -1: there is none. */
static int32_t next_to_go(const struct qr_extents *x)
{
    int32_t best = -1;
    for (int32_t i = 0; i < QR_FILE_EXTENTS_MAX; i++) {
        const struct qr_extent *e = &x->extent[i], *b = best >= 0 ? &x->extent[best] : NULL;
        if (e->fd >= 0 && (!b || (e->foreign != b->foreign ? e->foreign : e->number < b->number)))
            best = i;
    }
    return best;
}

static int drop_one(struct qr_extents *x, struct qr_err *err)
{
    const int32_t i = next_to_go(x);
    QR_ASSERT(i >= 0);
    qr_file_index_drop(x->index, i);
    const int rc = qr_extent_remove(&x->extent[i], x->dir, err);
    x->n_dropped += rc == 0;
    return rc;
}

/* Until n_bytes more keep to the bound and there is a place in the table. */
static int make_room(struct qr_extents *x, int64_t n_bytes, struct qr_err *err)
{
    int rc = 0;
    while (rc == 0 && next_to_go(x) >= 0 && (bytes_reserved(x) + n_bytes > x->bytes_max || free_place(x) < 0))
        rc = drop_one(x, err);
    return rc;
}

/* There is room for a record in the last extent. */
static int make_last(struct qr_extents *x, struct qr_err *err)
{
    if (x->last >= 0 && x->extent[x->last].n < x->extent[x->last].n_max)
        return 0;
    x->last = -1;
    int rc = make_room(x, qr_extent_bytes(x->form.block_bytes, x->records_each), err);
    const int32_t i = free_place(x);
    if (rc == 0)
        rc = qr_extent_make(&x->extent[i], x->dir, x->number_next++, &x->form, x->records_each, err);
    if (rc == 0)
        x->last = i;
    return rc;
}

/* ---- opening ---- */

/* How many records an extent has, so that there are some dozens of extents, or four where the bound is small. */
static int size_extents(struct qr_extents *x, int64_t bytes_max, struct qr_err *err)
{
    const size_t block_bytes = x->form.block_bytes;
    const int64_t record_bytes = (int64_t)block_bytes + 64, all_max = record_bytes * QR_EXTENT_RECORDS_MAX;
    const int64_t least = DIR_BYTES + EXTENTS_MIN * qr_extent_bytes(block_bytes, 1);
    x->bytes_max = bytes_max < all_max ? bytes_max : all_max; /* names are in memory */
    if (x->bytes_max < least)
        return qr_err_set(err, QR_E_USAGE, "%s: %" PRId64 " bytes are too few for blocks of %zu, expected at least %" PRId64, x->path, bytes_max, block_bytes,
                          least);
    const int64_t fit = x->bytes_max / EXTENT_BYTES_MIN, n = fit < EXTENTS_MIN ? EXTENTS_MIN : fit < EXTENTS_WANTED ? fit : EXTENTS_WANTED;
    const int64_t each = (x->bytes_max - DIR_BYTES) / n;
    x->records_each = (int32_t)(each / record_bytes);
    while (x->records_each > 1 && qr_extent_bytes(block_bytes, x->records_each) > each)
        x->records_each--; /* whole pages */
    return 0;
}

static int lock_dir(struct qr_extents *x, struct qr_err *err)
{
    char text[128], pid[24] = "";
    struct stat st;
    x->lock = openat(x->dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (x->lock < 0)
        return qr_err_set(err, QR_E_IO, "%s/lock: cannot be opened: %s", x->path, qr_errno_text(text, errno));
    if (fstat(x->lock, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1) /* it is written to */
        return qr_err_set(err, QR_E_USAGE, "%s/lock is not a plain file of this user; remove it, or give another directory", x->path);
    if (flock(x->lock, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK)
            return qr_err_set(err, QR_E_IO, "%s/lock: cannot be locked: %s", x->path, qr_errno_text(text, errno));
        const ssize_t n = pread(x->lock, pid, sizeof pid - 1, 0);
        return qr_err_set(err, QR_E_USAGE, "%s: process %ld keeps its blocks there, and a directory is for one process; give another one", x->path,
                          n > 0 ? strtol(pid, NULL, 10) : 0);
    }
    const int n = snprintf(pid, sizeof pid, "%-20ld\n", (long)getpid()); /* as long as any other: the disk is not waited for, as by a cut it would be */
    if (pwrite(x->lock, pid, (size_t)n, 0) != n)
        return qr_err_set(err, QR_E_IO, "%s/lock: cannot be written: %s", x->path, qr_errno_text(text, errno));
    return 0;
}

static int open_extent(struct qr_extents *x, uint64_t number, struct qr_err *err)
{
    if (number >= x->number_next)
        x->number_next = number + 1;
    const int rc = free_place(x) < 0 ? drop_one(x, err) : 0;
    struct qr_err why;
    if (rc == 0 && qr_extent_open(&x->extent[free_place(x)], x->dir, number, &x->form, &why) != 0)
        qr_log(QR_LOG_WARN, "exchange", "file tier: %s dir=%s", why.msg, x->path);
    return rc;
}

static int open_all(struct qr_extents *x, struct qr_err *err)
{
    char text[128];
    const int fd = openat(x->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d)
        return qr_err_set(err, QR_E_IO, "%s: cannot be read: %s", x->path, qr_errno_text(text, errno));
    int rc = 0;
    uint64_t number;
    for (const struct dirent *e; rc == 0 && (e = readdir(d)) != NULL;)
        rc = qr_extent_number(e->d_name, &number) ? open_extent(x, number, err) : 0;
    closedir(d);
    return rc != 0 ? rc : make_room(x, 0, err);
}

struct scan {
    struct qr_file_index *index;
    int32_t extent;
};

static void enter(void *user, const struct qr_kv_name *name, int32_t record)
{
    const struct scan *s = user;
    qr_file_index_add(s->index, name, (struct qr_file_place){s->extent, record});
}

static void scan_extent(struct qr_extents *x, int32_t i)
{
    struct qr_extent *e = &x->extent[i];
    struct qr_err err;
    int32_t n_damaged;
    if (qr_extent_scan(e, enter, &(struct scan){x->index, i}, &n_damaged, &err) != 0) {
        qr_log(QR_LOG_WARN, "exchange", "file tier: %s dir=%s", err.msg, x->path);
        qr_file_index_drop(x->index, i);
        e->foreign = true;
        return;
    }
    x->n_damaged += n_damaged;
    if (e->n < e->n_max && (x->last < 0 || e->number > x->extent[x->last].number))
        x->last = i;
}

int qr_extents_open(struct qr_extents *x, const char *dir, int64_t bytes_max, const struct qr_extent_form *form, struct qr_err *err)
{
    QR_ASSERT(x != NULL && dir != NULL);
    QR_ASSERT(form != NULL && err != NULL);
    *x = (struct qr_extents){.form = *form, .dir = -1, .lock = -1, .last = -1};
    for (int32_t i = 0; i < QR_FILE_EXTENTS_MAX; i++)
        x->extent[i].fd = -1;
    snprintf(x->path, sizeof x->path, "%s", dir);
    char text[128];
    int rc = size_extents(x, bytes_max, err);
    if (rc == 0)
        rc = qr_dir_make_all(dir, 0700, err);
    if (rc == 0 && (x->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        rc = qr_err_set(err, QR_E_IO, "%s: cannot be opened: %s", dir, qr_errno_text(text, errno));
    if (rc == 0)
        rc = lock_dir(x, err);
    if (rc != 0)
        return rc;
    x->index = qr_file_index_new((int32_t)(x->bytes_max / ((int64_t)form->block_bytes + 64)) + 1);
    rc = open_all(x, err);
    for (int32_t i = 0; rc == 0 && i < QR_FILE_EXTENTS_MAX; i++)
        if (x->extent[i].fd >= 0 && !x->extent[i].foreign)
            scan_extent(x, i);
    return rc;
}

void qr_extents_close(struct qr_extents *x)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(x->dir >= 0 || x->lock < 0);
    for (int32_t i = 0; i < QR_FILE_EXTENTS_MAX; i++)
        if (x->extent[i].fd >= 0)
            qr_extent_close(&x->extent[i]);
    qr_file_index_free(x->index);
    if (x->lock >= 0)
        close(x->lock);
    if (x->dir >= 0)
        close(x->dir);
}

/* ---- blocks ---- */

int64_t qr_extents_bytes(const struct qr_extents *x)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(x->index != NULL);
    int64_t n = 0;
    for (int32_t i = 0; i < QR_FILE_EXTENTS_MAX; i++) {
        const struct qr_extent *e = &x->extent[i];
        if (e->fd >= 0)
            n += e->foreign ? e->bytes : e->n * (int64_t)x->form.block_bytes;
    }
    return n;
}

int qr_extents_put(struct qr_extents *x, struct qr_parcel *parcel, struct qr_err *err)
{
    QR_ASSERT(x != NULL && x->index != NULL);
    QR_ASSERT(parcel != NULL && err != NULL);
    int rc = make_last(x, err);
    if (rc == 0)
        rc = qr_extent_put(&x->extent[x->last], parcel, err);
    if (rc == 0)
        qr_file_index_add(x->index, &parcel->name, (struct qr_file_place){x->last, x->extent[x->last].n - 1});
    return rc;
}

int qr_extents_get(struct qr_extents *x, struct qr_parcel *parcel, struct qr_err *err)
{
    QR_ASSERT(x != NULL && x->index != NULL);
    QR_ASSERT(parcel != NULL && err != NULL);
    struct qr_file_place at;
    if (!qr_file_index_find(x->index, &at, &parcel->name))
        return qr_err_set(err, QR_E_NOT_FOUND, "the block is not in the files any more");
    const int rc = qr_extent_get(&x->extent[at.extent], at.record, parcel, err);
    if (rc != 0)
        qr_file_index_forget(x->index, &parcel->name, at);
    return rc;
}
