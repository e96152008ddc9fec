/* fuzz_extent.c - any bytes as an extent of the file tier: it is foreign, or each block that it hands out has the name and the sum of its record, and what is
 * appended is there afterwards. The first byte says which sums are made right, as no random change would hit one. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "exchange/extent.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BLOCK = 24, HEAD = 64, CONTENT = 4096, RIGHT_HEAD = 1, RIGHT_RECORDS = 2, RIGHT_CONTENTS = 4, SIZE_MAX_ = 1 << 16 };

static void put_check(uint8_t *head)
{
    const uint64_t check = qr_hash64(head, HEAD - 8, 0);
    memcpy(head + HEAD - 8, &check, sizeof check);
}

static void make_right(uint8_t *file, size_t size, uint8_t which)
{
    if ((which & RIGHT_HEAD) && size >= HEAD)
        put_check(file);
    for (size_t i = 0; HEAD * (i + 2) <= size && CONTENT + BLOCK * (i + 1) <= size; i++) {
        uint8_t *record = file + HEAD * (i + 1);
        const struct qr_hash128 sum = qr_hash128_plain(file + CONTENT + BLOCK * i, BLOCK);
        if (which & RIGHT_CONTENTS)
            memcpy(record + 40, &sum, sizeof sum);
        if (which & RIGHT_RECORDS)
            put_check(record);
    }
}

struct reader {
    const struct qr_extent *extent;
    int32_t n, last;
};

static void read_record(void *user, const struct qr_kv_name *name, int32_t record)
{
    struct reader *r = user;
    uint8_t bytes[BLOCK];
    struct qr_parcel parcel = {.bytes = bytes, .name = *name};
    struct qr_err err = {0};
    QR_ASSERT(record > r->last && record < r->extent->n);
    r->last = record;
    r->n++;
    const int rc = qr_extent_get(r->extent, record, &parcel, &err);
    QR_ASSERT(rc == 0 || (rc == QR_E_DAMAGED && err.msg[0]));
    const struct qr_hash128 sum = qr_hash128_plain(bytes, BLOCK);
    QR_ASSERT(rc != 0 || (sum.lo == parcel.sum.lo && sum.hi == parcel.sum.hi));
    parcel.name.byte[0] ^= 1;
    QR_ASSERT(qr_extent_get(r->extent, record, &parcel, &err) == QR_E_DAMAGED);
}

static struct reader scan(const struct qr_extent *e)
{
    struct reader r = {.extent = e, .last = -1};
    struct qr_err err;
    int32_t n_damaged = -1;
    QR_ASSERT(qr_extent_scan(e, read_record, &r, &n_damaged, &err) == 0);
    QR_ASSERT(n_damaged >= 0 && r.n + n_damaged == e->n);
    return r;
}

static void append(struct qr_extent *e, int fd)
{
    uint8_t bytes[BLOCK] = "appended";
    struct qr_parcel parcel = {.bytes = bytes, .name.byte = {7}};
    struct qr_err err;
    struct qr_extent again;
    const int32_t n = e->n;
    QR_ASSERT(qr_extent_put(e, &parcel, &err) == 0 && e->n == n + 1);
    memset(bytes, 0, sizeof bytes);
    QR_ASSERT(qr_extent_get(e, n, &parcel, &err) == 0 && memcmp(bytes, "appended", 8) == 0);
    QR_ASSERT(qr_extent_open_fd(&again, fd, e->number, e->form, &err) == 0 && !again.foreign && again.n == n + 1 && again.n_max == e->n_max);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t file[SIZE_MAX_];
    const struct qr_extent_form form = {.domain.byte = "fuzz", .block_bytes = BLOCK};
    if (size < 1 || size > SIZE_MAX_)
        return 0;
    memcpy(file, data + 1, size - 1);
    make_right(file, size - 1, data[0]);
    const int fd = memfd_create("extent", MFD_CLOEXEC);
    QR_ASSERT(fd >= 0 && write(fd, file, size - 1) == (ssize_t)(size - 1));
    struct qr_extent e;
    struct qr_err err;
    QR_ASSERT(qr_extent_open_fd(&e, fd, 1, &form, &err) == 0);
    if (!e.foreign) {
        QR_ASSERT(e.n >= 0 && e.n <= e.n_max && e.n_max <= QR_EXTENT_RECORDS_MAX);
        scan(&e);
        if (e.n < e.n_max)
            append(&e, fd);
    }
    qr_extent_close(&e);
    uint64_t number;
    char name[QR_EXTENT_NAME_MAX + 1] = "";
    memcpy(name, data, size < QR_EXTENT_NAME_MAX ? size : QR_EXTENT_NAME_MAX);
    QR_ASSERT(!qr_extent_number(name, &number) || strlen(name) == 26);
    return 0;
}
