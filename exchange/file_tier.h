/* file_tier.h - blocks in files of one directory: what a process has computed, the next one need not.
 *
 * Every full block is written behind, by a thread of the tier's, into append-only extents (extent.h): its content, and a record of its name and sum. The index
 * of names is in memory and is made of the records when the directory is opened. A block that was not written to its end has no record or fails its sum, and is
 * not there. When the bound is reached the oldest extent goes; those of another domain, which are not read, go before it. Files are for their owner only
 * (0600), and one process has the directory (a second is refused by name). A disk that is full, or fails, is a counter: the tier goes on with what it has.
 *
 * Reads are asked by name and come as parcels, like a peer's. The engine thread calls all but open and close; it never waits for the disk. */
#ifndef QR_EXCHANGE_FILE_TIER_H
#define QR_EXCHANGE_FILE_TIER_H

#include "base/err.h"
#include "exchange/exchange.h"

struct qr_file_tier; /* opaque */

struct qr_file_tier_config {
    const char *dir;             /* borrowed while opening; made when it is absent */
    int64_t bytes_max;           /* of all files; at least four extents */
    struct qr_kv_name domain;
    size_t block_bytes;
    int32_t n_parcels;           /* on their way to the disk, and as many from it */
    void (*wake)(void *);        /* something was read, or there is a parcel again after there was none */
    void *wake_arg;
};

/* Locks the directory, reads the headers, starts the thread. QR_E_USAGE (dir is of another process: its id is named; too small a bound), QR_E_IO. */
int qr_file_tier_open(struct qr_file_tier **out, const struct qr_file_tier_config *config, struct qr_err *err);

/* What was given to be written is written first; fetches and parcels that arrived are the engine's and the tier's again. Before it, parcels that the engine has
 * are given back. NULL is fine. */
void qr_file_tier_close(struct qr_file_tier *t);

/* Of names[first .. n) how many, in order, are there. A block may be gone when it is read. */
int32_t qr_file_tier_find(const struct qr_file_tier *t, const struct qr_kv_name *names, int32_t first, int32_t n);
bool qr_file_tier_has(const struct qr_file_tier *t, const struct qr_kv_name *name);

struct qr_parcel *qr_file_tier_parcel(struct qr_file_tier *t);           /* for a block to be written; NULL: the disk is behind */
void qr_file_tier_write(struct qr_file_tier *t, struct qr_parcel *parcel); /* with its name */

/* As qr_exchange_fetch, of blocks that find has found: they come in order, then it is over. f->stopped ends it within 10 ms and a block. */
void qr_file_tier_fetch(struct qr_file_tier *t, struct qr_fetch *f);
void qr_file_tier_take(struct qr_file_tier *t, struct qr_node *arrived, struct qr_node *over);

struct qr_file_tier_stats {
    int64_t blocks_written, blocks_read, bytes_written, bytes_read;
    int64_t n_bad_sum, n_full, n_failed;  /* blocks that were not what their header says; writes that the disk had no room for; other failures */
    int64_t bytes, n_blocks, n_extents_dropped;
};
void qr_file_tier_stats(const struct qr_file_tier *t, struct qr_file_tier_stats *out); /* any thread */

#endif
