/* extent.c - extents: one pwrite of a content and one of its record, two reads of them, and no state but the number of records. Whatever the bytes of a file
 * are, what is handed out as a block has the parcel's name and the sum that was made when the block was written. One owning thread. */
#include "exchange/extent.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/mem.h"

enum { PAGE = 4096, HEAD_BYTES = 64, PIECE = 256, VERSION = 1 };

#define FILE_MAGIC "QRBLOCKS"
#define RECORD_MAGIC UINT32_C(0x4b4c4271) /* "qBLK" */

struct head {
    char magic[8];
    uint32_t version, n_max;
    uint64_t block_bytes;
    struct qr_kv_name domain;
    uint64_t check;
};

struct record {
    uint32_t magic, n_bytes;
    struct qr_kv_name name;
    struct qr_hash128 sum;
    uint64_t check;
};

_Static_assert(sizeof(struct head) == HEAD_BYTES && sizeof(struct record) == HEAD_BYTES, "as extent.h says");

static uint64_t check_of(const void *head)
{
    return qr_hash64(head, HEAD_BYTES - sizeof(uint64_t), 0);
}

static int64_t content_at(size_t block_bytes, int32_t n_max, int32_t record)
{
    const int64_t first = (int64_t)qr_align_up(HEAD_BYTES * (1 + (size_t)n_max), PAGE);
    return first + (int64_t)block_bytes * record;
}

static bool is_record(const struct qr_extent *e, const struct record *r)
{
    return r->magic == RECORD_MAGIC && r->n_bytes == e->form->block_bytes && r->check == check_of(r);
}

static int64_t record_at(int32_t record)
{
    return HEAD_BYTES * (1 + (int64_t)record);
}

int64_t qr_extent_bytes(size_t block_bytes, int32_t n_max)
{
    QR_ASSERT(block_bytes >= 1 && block_bytes <= UINT32_MAX);
    QR_ASSERT(n_max >= 1 && n_max <= QR_EXTENT_RECORDS_MAX);
    return (int64_t)qr_align_up((size_t)content_at(block_bytes, n_max, n_max), PAGE) + PAGE;
}

/* ---- files ---- */

static void name_of(char out[QR_EXTENT_NAME_MAX], uint64_t number)
{
    snprintf(out, QR_EXTENT_NAME_MAX, "extent-%016" PRIx64 ".kv", number);
}

bool qr_extent_number(const char *file_name, uint64_t *number)
{
    QR_ASSERT(file_name != NULL);
    QR_ASSERT(number != NULL);
    char again[QR_EXTENT_NAME_MAX];
    uint64_t n;
    if (sscanf(file_name, "extent-%16" SCNx64, &n) != 1 || n >= UINT64_MAX / 2)
        return false;
    name_of(again, n);
    *number = n;
    return strcmp(again, file_name) == 0;
}

static int fail(uint64_t number, const char *doing, struct qr_err *err)
{
    const int why = errno;
    char name[QR_EXTENT_NAME_MAX], text[128];
    name_of(name, number);
    const bool full = why == ENOSPC || why == EDQUOT || why == EFBIG;
    const enum qr_code code = full ? QR_E_NO_ROOM : why == ENODATA ? QR_E_DAMAGED : QR_E_IO;
    return qr_err_set(err, code, "%s: cannot %s: %s", name, doing, qr_errno_text(text, why));
}

/* All n bytes, or false with errno; the end of the file is ENODATA. */
static bool read_at(int fd, void *bytes, size_t n, int64_t at)
{
    for (size_t done = 0; done < n;) {
        const ssize_t r = pread(fd, (uint8_t *)bytes + done, n - done, (off_t)(at + (int64_t)done));
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0) {
            errno = r < 0 ? errno : ENODATA;
            return false;
        }
        done += (size_t)r;
    }
    return true;
}

static bool write_at(int fd, const void *bytes, size_t n, int64_t at)
{
    for (size_t done = 0; done < n;) {
        const ssize_t w = pwrite(fd, (const uint8_t *)bytes + done, n - done, (off_t)(at + (int64_t)done));
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0) {
            errno = w < 0 ? errno : ENOSPC;
            return false;
        }
        done += (size_t)w;
    }
    return true;
}

int qr_extent_make(struct qr_extent *e, int dir, uint64_t number, const struct qr_extent_form *form, int32_t n_max, struct qr_err *err)
{
    QR_ASSERT(e != NULL && form != NULL && err != NULL);
    QR_ASSERT(dir >= 0);
    char name[QR_EXTENT_NAME_MAX];
    name_of(name, number);
    *e = (struct qr_extent){.form = form, .number = number, .fd = -1, .n_max = n_max, .bytes = qr_extent_bytes(form->block_bytes, n_max)};
    e->fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (e->fd < 0)
        return fail(number, "be made", err);
    struct head h = {.magic = FILE_MAGIC, .version = VERSION, .n_max = (uint32_t)n_max, .block_bytes = form->block_bytes, .domain = form->domain};
    h.check = check_of(&h);
    if (write_at(e->fd, &h, sizeof h, 0))
        return 0;
    fail(number, "be written", err);
    unlinkat(dir, name, 0);
    qr_extent_close(e);
    return (int)err->code;
}

/* How many contents there are, by the file's size; the last one only if it has a record: a process may have been killed before it wrote that. */
static int32_t count_records(const struct qr_extent *e, int64_t file_bytes)
{
    const int64_t room = file_bytes - content_at(e->form->block_bytes, e->n_max, 0), whole = room > 0 ? room / (int64_t)e->form->block_bytes : 0;
    const int32_t n = whole < e->n_max ? (int32_t)whole : e->n_max;
    struct record last;
    return n > 0 && !(read_at(e->fd, &last, sizeof last, record_at(n - 1)) && is_record(e, &last)) ? n - 1 : n;
}

int qr_extent_open_fd(struct qr_extent *e, int fd, uint64_t number, const struct qr_extent_form *form, struct qr_err *err)
{
    QR_ASSERT(e != NULL && form != NULL && err != NULL);
    QR_ASSERT(fd >= 0);
    *e = (struct qr_extent){.form = form, .number = number, .fd = fd, .foreign = true};
    struct stat st;
    struct head h;
    if (fstat(fd, &st) != 0)
        return fail(number, "be read", err);
    e->bytes = (int64_t)st.st_blocks * 512 + PAGE;
    if (!read_at(fd, &h, sizeof h, 0))
        return errno == ENODATA ? 0 : fail(number, "be read", err);
    if (memcmp(h.magic, FILE_MAGIC, sizeof h.magic) != 0 || h.version != VERSION || h.check != check_of(&h) || h.n_max < 1 || h.n_max > QR_EXTENT_RECORDS_MAX ||
        h.block_bytes != form->block_bytes || memcmp(&h.domain, &form->domain, sizeof h.domain) != 0)
        return 0;
    e->foreign = false;
    e->n_max = (int32_t)h.n_max;
    e->bytes = qr_extent_bytes(form->block_bytes, e->n_max);
    e->n = count_records(e, (int64_t)st.st_size);
    const int64_t end = content_at(form->block_bytes, e->n_max, e->n);
    return st.st_size <= end || ftruncate(fd, (off_t)end) == 0 ? 0 : fail(number, "be cut", err);
}

int qr_extent_open(struct qr_extent *e, int dir, uint64_t number, const struct qr_extent_form *form, struct qr_err *err)
{
    QR_ASSERT(e != NULL && err != NULL);
    QR_ASSERT(dir >= 0);
    char name[QR_EXTENT_NAME_MAX];
    name_of(name, number);
    struct stat st;
    const int fd = openat(dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int rc = 0;
    if (fd < 0 || fstat(fd, &st) != 0)
        rc = fail(number, "be opened", err);
    else if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0 || st.st_nlink != 1)
        rc = qr_err_set(err, QR_E_DENIED, "%s is not a plain file of this user, mode 0600: it is left alone", name);
    else
        rc = qr_extent_open_fd(e, fd, number, form, err);
    if (rc != 0 && fd >= 0)
        close(fd);
    if (rc != 0)
        e->fd = -1;
    return rc;
}

void qr_extent_close(struct qr_extent *e)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(e->fd >= 0);
    close(e->fd);
    e->fd = -1;
}

int qr_extent_remove(struct qr_extent *e, int dir, struct qr_err *err)
{
    QR_ASSERT(e != NULL && err != NULL);
    QR_ASSERT(e->fd >= 0 && dir >= 0);
    char name[QR_EXTENT_NAME_MAX];
    name_of(name, e->number);
    if (unlinkat(dir, name, 0) != 0 && errno != ENOENT)
        return fail(e->number, "be removed", err);
    qr_extent_close(e);
    return 0;
}

/* ---- records ---- */

int qr_extent_scan(const struct qr_extent *e, void (*found)(void *user, const struct qr_kv_name *name, int32_t record), void *user, int32_t *n_damaged,
                   struct qr_err *err)
{
    QR_ASSERT(e != NULL && e->fd >= 0 && !e->foreign);
    QR_ASSERT(found != NULL && n_damaged != NULL && err != NULL);
    struct record piece[PIECE];
    *n_damaged = 0;
    for (int32_t first = 0; first < e->n; first += PIECE) {
        const int32_t n = e->n - first < PIECE ? e->n - first : PIECE;
        if (!read_at(e->fd, piece, (size_t)n * sizeof *piece, record_at(first)))
            return fail(e->number, "be read", err);
        for (int32_t i = 0; i < n; i++) {
            if (is_record(e, &piece[i]))
                found(user, &piece[i].name, first + i);
            else
                ++*n_damaged;
        }
    }
    return 0;
}

int qr_extent_put(struct qr_extent *e, struct qr_parcel *parcel, struct qr_err *err)
{
    QR_ASSERT(e != NULL && e->fd >= 0 && !e->foreign);
    QR_ASSERT(parcel != NULL && err != NULL);
    QR_ASSERT(e->n < e->n_max);
    const size_t n_bytes = e->form->block_bytes;
    const int64_t at = content_at(n_bytes, e->n_max, e->n);
    parcel->sum = qr_hash128_plain(parcel->bytes, n_bytes);
    struct record r = {.magic = RECORD_MAGIC, .n_bytes = (uint32_t)n_bytes, .name = parcel->name, .sum = parcel->sum};
    r.check = check_of(&r);
    if (write_at(e->fd, parcel->bytes, n_bytes, at) && write_at(e->fd, &r, sizeof r, record_at(e->n))) {
        e->n++;
        return 0;
    }
    fail(e->number, "be written", err);
    if (ftruncate(e->fd, (off_t)at) != 0) { /* gives its room back; the next content takes its place in any case */
    }
    return (int)err->code;
}

int qr_extent_get(const struct qr_extent *e, int32_t record, struct qr_parcel *parcel, struct qr_err *err)
{
    QR_ASSERT(e != NULL && e->fd >= 0 && !e->foreign);
    QR_ASSERT(record >= 0 && record < e->n);
    QR_ASSERT(parcel != NULL && err != NULL);
    const size_t n_bytes = e->form->block_bytes;
    struct record r;
    if (!read_at(e->fd, &r, sizeof r, record_at(record)) || !read_at(e->fd, parcel->bytes, n_bytes, content_at(n_bytes, e->n_max, record)))
        return fail(e->number, "be read", err);
    parcel->sum = qr_hash128_plain(parcel->bytes, n_bytes);
    const bool same = is_record(e, &r) && memcmp(&r.name, &parcel->name, sizeof r.name) == 0 && r.sum.lo == parcel->sum.lo && r.sum.hi == parcel->sum.hi;
    return same ? 0 : qr_err_set(err, QR_E_DAMAGED, "a block of extent %" PRIx64 " is not what its record says", e->number);
}
