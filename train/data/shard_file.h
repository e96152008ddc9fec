/* shard_file.h - the two kinds of file in a directory of prepared data: shard-%05d.bin and data.json. Inside train/ only; see shards.h.
 *
 * A shard, little-endian:
 *     0   "quiredat"                magic
 *     8   u32 version               1
 *     12  u32 id_bytes              2 where vocab_size <= 65536, else 4
 *     16  u64 n_tokens              1 .. 2^40
 *     24  u64 n_docs                1 .. n_tokens
 *     32  u32 vocab_size            every id is below it
 *     36  u32 flags                 bit 0: there is a mask
 *     40  u64 tokenizer             hash of the tokenizer.json that made the ids
 *     48  u64 0, u64 0
 *     64  ids [n_tokens], filled up with zeros to a multiple of 8 bytes
 *         u64 offsets [n_docs + 1]  document d is ids[offsets[d] .. offsets[d+1]); the first is 0, they rise, the last is n_tokens
 *         u64 mask [(n_tokens + 63) / 64], when flags say so: bit t of it says that id t counts as a target; bits past the end are 0
 * and nothing behind it. A reader of an open shard may trust all of this.
 */
#ifndef QR_TRAIN_DATA_SHARD_FILE_H
#define QR_TRAIN_DATA_SHARD_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"
#include "train/data/shards.h"

#define QR_SHARD_NAME_MAX 32
#define QR_SHARD_COUNT_MAX 100000
#define QR_SHARD_HEADER_BYTES 64

struct qr_shard {
    const uint8_t *ids, *offsets, *mask; /* borrowed from the bytes; mask NULL: every id counts */
    int64_t n_tokens, n_docs;
    int64_t n_targets;                   /* ids that count and are not the first of their document */
    int32_t id_bytes;
    int32_t vocab_size;
    uint64_t tokenizer;
};

/* Checks all of bytes[0..n) as one shard. Reads every id once. `name` is what messages call it. Errors: QR_E_DAMAGED with offset, what was found and
 * what was expected; QR_E_UNSUPPORTED for another version. The bytes need no alignment. */
int qr_shard_parse(struct qr_shard *out, const uint8_t *bytes, size_t n, const char *name, struct qr_err *err);

int32_t qr_shard_id(const struct qr_shard *s, int64_t t);
int64_t qr_shard_offset(const struct qr_shard *s, int64_t doc); /* 0 <= doc <= n_docs */
bool qr_shard_counts(const struct qr_shard *s, int64_t t);

/* Appends documents to one file; what it keeps in memory is 8 bytes per document and at most a bit per id. */
struct qr_shard_writer {
    FILE *f;                 /* owned */
    char *path;              /* owned */
    struct qr_buf offsets, mask; /* owned */
    int64_t n_tokens, n_docs;
    int32_t vocab_size;
    uint64_t tokenizer;
};

/* Makes the file (QR_E_IO when it exists). It gets a mask with the first document that brings one. */
int qr_shard_begin(struct qr_shard_writer *w, const char *path, int32_t vocab_size, uint64_t tokenizer, struct qr_err *err);

/* A document of n >= 1 ids, all in 0..vocab_size-1. counts NULL: all count. */
int qr_shard_add(struct qr_shard_writer *w, const int32_t *ids, const bool *counts, int64_t n, struct qr_err *err);

/* Writes what stands behind the ids and the header, and has the system put it on the disk. Requires a document. The writer is released in any case. */
int qr_shard_end(struct qr_shard_writer *w, struct qr_err *err);
void qr_shard_abandon(struct qr_shard_writer *w); /* closes; the file stays as it is */

void qr_shard_name(char name[QR_SHARD_NAME_MAX], int32_t shard);
int qr_data_index_parse(struct qr_data_index *out, const char *text, size_t n, const char *name, struct qr_err *err);
void qr_data_index_print(struct qr_buf *out, const struct qr_data_index *m);
void qr_data_index_release(struct qr_data_index *m);

#endif
