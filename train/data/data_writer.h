/* data_writer.h - writes the shards and data.json of one directory of prepared data, document by document. What it keeps in memory is bounded by the
 * limits of a shard, whatever the number of documents. One owning thread.
 */
#ifndef QR_TRAIN_DATA_DATA_WRITER_H
#define QR_TRAIN_DATA_DATA_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "train/data/shards.h"

#define QR_SHARD_TOKENS_MAX (INT64_C(1) << 26) /* the next document begins a new shard */
#define QR_SHARD_DOCS_MAX (INT64_C(1) << 20)

struct qr_data_writer_options {
    const char *dir;                           /* exists; borrowed for the call */
    int32_t vocab_size;
    uint64_t tokenizer;                        /* hash of tokenizer.json */
    int64_t shard_tokens_max, shard_docs_max;  /* 0: as above; a document is never cut, so a shard may be longer by one */
};

struct qr_data_writer; /* opaque */

struct qr_data_writer *qr_data_writer_new(const struct qr_data_writer_options *o);
void qr_data_writer_free(struct qr_data_writer *w); /* NULL is fine; files stay as they are */

/* A document of n >= 1 ids below vocab_size. counts NULL: all count. Errors: QR_E_IO, QR_E_TOO_LARGE. */
int qr_data_writer_add(struct qr_data_writer *w, const int32_t *ids, const bool *counts, int64_t n, struct qr_err *err);
const struct qr_data_index *qr_data_writer_index(const struct qr_data_writer *w); /* so far */

/* Ends the last shard and writes data.json; all files are on the disk then. Requires a document. */
int qr_data_writer_finish(struct qr_data_writer *w, struct qr_err *err);

#endif
