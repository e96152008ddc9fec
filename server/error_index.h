/* error_index.h - every error that a client may be told: its `code`, a number that stays (`id`, Q...), what it means and what to do. One table; the answers,
 * the page /docs and docs made of it say the same. A code that is no row is a fault of the program's, which tools/tidy.py finds.
 */
#ifndef QR_SERVER_ERROR_INDEX_H
#define QR_SERVER_ERROR_INDEX_H

#include <stdint.h>

#include "base/buf.h"

struct qr_error_row { /* all static */
    const char *id;      /* "Q104": hundreds by kind: 1 the request, 2 who asks, 3 too much at once, 4 the server's state, 5 a fault */
    const char *code;    /* NULL in the last row */
    const char *status;  /* HTTP statuses that it comes with */
    const char *meaning, *remedy;
};
const struct qr_error_row *qr_error_rows(int32_t *n);

/* The row of a code; NULL, and a code that none has, are the last one, an error without a code. */
const struct qr_error_row *qr_error_row_of(const char *code);

/* Appends the index as a table in Markdown. */
void qr_error_rows_put_markdown(struct qr_buf *out);

#endif
