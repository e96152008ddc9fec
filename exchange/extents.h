/* extents.h - the extents of one directory, which is this process's while it has them: locked, bounded, with an index of what is in them.
 *
 * All files together keep to the bound at whatever moment the process ends. Where a new extent has no room the oldest goes; extents of another domain, which
 * are never read, go before it. Files that are not extents, or not of this user's eyes only, are left alone. One owning thread, but for the index. */
#ifndef QR_EXCHANGE_EXTENTS_H
#define QR_EXCHANGE_EXTENTS_H

#include "base/file.h"
#include "exchange/extent.h"
#include "exchange/file_index.h"

struct qr_extents {
    struct qr_extent_form form;
    char path[QR_PATH_MAX];
    int dir, lock;               /* owned; -1: not open */
    int64_t bytes_max;
    int32_t records_each;        /* room of a new extent */
    int32_t last;                /* that is appended to; -1: none */
    uint64_t number_next;
    struct qr_extent extent[QR_FILE_EXTENTS_MAX];
    struct qr_file_index *index; /* owned; any thread */
    int64_t n_damaged, n_dropped; /* records that were none when they were scanned; extents that had to go */
};

/* Makes the directory (0700) where it is absent, locks it, reads the records. Closed by the caller also when this fails. QR_E_USAGE: it is another process's,
 * whose id is named; or bytes_max holds no four extents. QR_E_IO. */
int qr_extents_open(struct qr_extents *x, const char *dir, int64_t bytes_max, const struct qr_extent_form *form, struct qr_err *err);
void qr_extents_close(struct qr_extents *x);

int64_t qr_extents_bytes(const struct qr_extents *x); /* of contents, and of foreign files */

/* The parcel's content is found under its name from now on. QR_E_NO_ROOM: the disk has none; QR_E_IO. */
int qr_extents_put(struct qr_extents *x, struct qr_parcel *parcel, struct qr_err *err);

/* The content with the parcel's name. QR_E_NOT_FOUND; QR_E_DAMAGED, QR_E_IO: it is not found any more. */
int qr_extents_get(struct qr_extents *x, struct qr_parcel *parcel, struct qr_err *err);

#endif
