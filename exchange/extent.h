/* extent.h - a file of cache blocks that is only appended to: its format, and the reading and writing of it.
 *
 *     byte 0             header, 64 bytes: magic, version, room (in records), bytes of a block, domain, XXH3-64 of these
 *     64 + 64 i          record i, 64 bytes: magic, bytes of its content, name, XXH3-128 of its content, XXH3-64 of these
 *     content + bytes i  content of record i; the first one begins at the first whole page behind the records
 *
 * Records lie together, so that the names of a directory are read in a few large pieces. A content is written before its record is: a process that is killed
 * in between leaves none, and what a loss of power leaves fails a sum. Numbers are as this machine has them. One owning thread. */
#ifndef QR_EXCHANGE_EXTENT_H
#define QR_EXCHANGE_EXTENT_H

#include "base/err.h"
#include "exchange/parcel.h"

#define QR_EXTENT_RECORDS_MAX (1 << 24)
#define QR_EXTENT_NAME_MAX 32 /* "extent-0123456789abcdef.kv", with its end */

/* What all extents of one process have in common. */
struct qr_extent_form {
    struct qr_kv_name domain;
    size_t block_bytes; /* < 4 GiB */
};

struct qr_extent {
    const struct qr_extent_form *form; /* borrowed */
    uint64_t number;                   /* the higher the newer */
    int fd;                            /* owned; -1: it is not open */
    bool foreign;                      /* of another domain, form or version, or damaged: nothing of it is read */
    int32_t n, n_max;                  /* records there, the last of which is the newest; room */
    int64_t bytes;                     /* of the whole file once it is full; of a foreign one now */
};

/* The name of an extent's file; false: this is none. */
bool qr_extent_number(const char *file_name, uint64_t *number);

/* Bytes of an extent with room for n_max blocks, with what the file system keeps for a file. */
int64_t qr_extent_bytes(size_t block_bytes, int32_t n_max);

/* A new file in the directory (0600). QR_E_NO_ROOM, QR_E_IO. */
int qr_extent_make(struct qr_extent *e, int dir, uint64_t number, const struct qr_extent_form *form, int32_t n_max, struct qr_err *err);

/* One that is there; a content that was not written to its end is cut off. QR_E_DENIED: not a plain file of this user's eyes only. QR_E_IO. */
int qr_extent_open(struct qr_extent *e, int dir, uint64_t number, const struct qr_extent_form *form, struct qr_err *err);
int qr_extent_open_fd(struct qr_extent *e, int fd, uint64_t number, const struct qr_extent_form *form, struct qr_err *err); /* takes fd over */
void qr_extent_close(struct qr_extent *e);
int qr_extent_remove(struct qr_extent *e, int dir, struct qr_err *err); /* and closes it */

/* Calls `found` for each record that says what it is; of others, *n_damaged is how many. */
int qr_extent_scan(const struct qr_extent *e, void (*found)(void *user, const struct qr_kv_name *name, int32_t record), void *user, int32_t *n_damaged,
                   struct qr_err *err);

/* The parcel's content becomes the next record, with its name; its sum is made here. QR_E_NO_ROOM: of the disk; QR_E_IO. Nothing of it is there then. */
int qr_extent_put(struct qr_extent *e, struct qr_parcel *parcel, struct qr_err *err);

/* The content of a record, if it has the parcel's name, and its sum. QR_E_DAMAGED: it is not what was written, or gone; QR_E_IO. */
int qr_extent_get(const struct qr_extent *e, int32_t record, struct qr_parcel *parcel, struct qr_err *err);

#endif
