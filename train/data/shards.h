/* shards.h - a directory of prepared data, open for reading: documents of token ids, memory-mapped.
 *
 * The directory (made by `quire data prepare`, prepare.h) holds data.json, shard-00000.bin ... and the tokenizer's files; DIR/eval is another such
 * directory when a part was held out. Opening reads every byte once: sizes, hashes, offsets and ids are checked then, never later.
 * Immutable once open; any thread may read.
 */
#ifndef QR_TRAIN_DATA_SHARDS_H
#define QR_TRAIN_DATA_SHARDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* data.json */
struct qr_data_shard {
    int64_t n_bytes, n_docs, n_tokens;
    uint64_t hash; /* qr_file_hash */
};

struct qr_data_index {
    struct qr_data_shard *shard; /* owned [n_shards] */
    int32_t n_shards;
    int32_t vocab_size;          /* every id is below it */
    int64_t n_docs, n_tokens;
    int64_t n_targets;           /* ids that count and are not the first of their document */
    uint64_t tokenizer;          /* compare with qr_data_tokenizer_hash */
};

struct qr_shards; /* opaque */

/* Errors name the file, what was found and what was expected: QR_E_NOT_FOUND, QR_E_DAMAGED, QR_E_UNSUPPORTED, QR_E_IO. */
int qr_shards_open(struct qr_shards **out, const char *dir, struct qr_err *err);
void qr_shards_close(struct qr_shards *s); /* NULL is fine */

const struct qr_data_index *qr_shards_index(const struct qr_shards *s);

/* Ids of a document. */
int64_t qr_shards_doc_n(const struct qr_shards *s, int64_t doc);

/* Copies ids[first .. first + n) of a document, and whether each counts as a target. Either may be NULL. */
void qr_shards_read(const struct qr_shards *s, int64_t doc, int64_t first, int64_t n, int32_t *ids, bool *counts);

/* The hash by which data and tokenizer are matched: qr_file_hash of DIR/tokenizer.json. Errors: QR_E_NOT_FOUND, QR_E_IO. */
int qr_data_tokenizer_hash(uint64_t *out, const char *dir, struct qr_err *err);

#endif
