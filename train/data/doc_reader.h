/* doc_reader.h - documents out of text files, one after another: a whole file, the parts between lines that say `separator`, or the lines of JSON
 * Lines. Memory is that of one document. Regular files, pipes and devices alike. One owning thread.
 */
#ifndef QR_TRAIN_DATA_DOC_READER_H
#define QR_TRAIN_DATA_DOC_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define QR_DOC_BYTES_MAX ((size_t)64 << 20)

enum qr_data_kind { QR_DATA_AUTO, QR_DATA_TEXT, QR_DATA_JSONL }; /* auto: JSON Lines where the name ends in .jsonl or .ndjson */

/* Whether a file is read as JSON Lines. */
bool qr_data_is_lines(enum qr_data_kind kind, const char *path);

/* Bytes of all files together; 0 where one of them does not say its size. */
int64_t qr_data_files_bytes(const char *const *files, int32_t n);

struct qr_doc_reader {
    int fd;
    const char *path;      /* borrowed */
    const char *separator; /* borrowed; NULL: none */
    bool lines;            /* every line is a document */
    struct qr_buf doc;     /* owned */
    char *block;           /* owned: read, up to n_block; used up to `at` */
    size_t at, n_block;
    int64_t line;          /* lines begun so far */
    int64_t n_bytes;       /* read so far */
    bool ended;
};

struct qr_doc_text {
    const char *text; /* borrowed until the next call; not empty */
    size_t len;
    int64_t line;     /* where it begins, from 1 */
};

/* lines: JSON Lines; then separator is NULL. Errors: QR_E_NOT_FOUND, QR_E_IO with the path. */
int qr_doc_reader_open(struct qr_doc_reader *r, const char *path, bool lines, const char *separator, struct qr_err *err);
void qr_doc_reader_close(struct qr_doc_reader *r);

/* *out is the next document that is not empty (len 0: there are no more). A document ends without the line break before its separator. Errors: QR_E_IO;
 * QR_E_TOO_LARGE for a document of more than QR_DOC_BYTES_MAX. */
int qr_doc_reader_next(struct qr_doc_reader *r, struct qr_doc_text *out, struct qr_err *err);

#endif
