/* tune.h - how many items a launch is cut into for each thread: a table of what was measured to be fastest, and its file.
 *
 * Every kernel computes each output in one fixed order (kernels.h), so the cut is a matter of speed alone: any number gives the same bits. A table belongs to
 * one instruction-set level and number of threads, and is kept in a text file for each processor model. Owned by the backend; written while no kernel runs,
 * by worker 0; kernels only look up. Nothing outside kernels/ depends on a value.
 */
#ifndef QR_KERNELS_TUNE_H
#define QR_KERNELS_TUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "kernels/dtype.h"

enum qr_tune_op { QR_TUNE_LINEAR, QR_TUNE_ATTENTION, QR_TUNE_OPS };
#define QR_TUNE_BUCKETS 6 /* of rows: up to 1, 4, 16, 32, 128, and more */
#define QR_TUNE_SIZES 4   /* of a matrix: up to 2^19, 2^21, 2^23 weights, and more; attention has the first */
#define QR_TUNE_ITEMS_MAX 64

/* Launches that are cut alike. type: of packed weights, or of the cache. */
struct qr_tune_kind {
    uint8_t op, type, bucket, size;
};
int32_t qr_tune_bucket(int32_t n_rows);
struct qr_tune_kind qr_tune_linear(enum qr_dtype type, int32_t n_rows, int32_t n_in, int32_t n_out);
struct qr_tune_kind qr_tune_attention(enum qr_dtype type, int32_t n_rows);

struct qr_tune; /* opaque: the table */

/* level: a name that lives as long as the process. */
struct qr_tune *qr_tune_new(const char *level, int32_t n_threads);
void qr_tune_free(struct qr_tune *t); /* NULL is fine */
int32_t qr_tune_count(const struct qr_tune *t); /* kinds in it; NULL has none */

/* Items for each thread; 0: the kernel's own rule, which NULL always has. */
int32_t qr_tune_find(const struct qr_tune *t, struct qr_tune_kind k);
void qr_tune_set(struct qr_tune *t, struct qr_tune_kind k, int32_t items); /* Requires 0 <= items <= QR_TUNE_ITEMS_MAX */

/* Text: the processor, level and threads, and a letter for each kind. */
void qr_tune_format(struct qr_buf *out, const struct qr_tune *t, const char *processor);
/* t becomes what the text says, or stays. Errors: QR_E_DAMAGED, QR_E_UNSUPPORTED (another version, processor, level or number of threads). */
int qr_tune_parse(struct qr_tune *t, const char *text, size_t n_bytes, const char *processor, struct qr_err *err);

/* Where tables are kept: ${XDG_CACHE_HOME:-$HOME/.cache}/quire. False when neither names an absolute directory. */
bool qr_tune_dir(char *out, size_t size);
void qr_tune_path(char *out, size_t size, const char *dir, const struct qr_tune *t); /* DIR/tune-PROCESSOR-LEVEL-THREADS.txt */

/* The file of this processor, t's level and threads. No such file is no error. Errors: those of qr_file_read, of
 * qr_tune_parse. */
int qr_tune_load(struct qr_tune *t, const char *dir, struct qr_err *err);
/* t in that file's place, as a whole; the directory is made. Errors leave the file as it was: QR_E_IO. */
int qr_tune_save(const struct qr_tune *t, const char *dir, struct qr_err *err);

#endif
