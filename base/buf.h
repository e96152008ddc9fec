/* buf.h - a growable run of bytes. Not thread-safe; one owner. Always NUL-terminated behind `len` once data is not NULL.
 *
 * Where memory is missing for a request (base/account.h) what was to be added is left out, and the request's account says so; elsewhere that ends the process.
 */
#ifndef QR_BASE_BUF_H
#define QR_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qr_buf { /* empty when zeroed */
    char *data; /* owned; NULL while empty */
    size_t len, cap;
};

void qr_buf_release(struct qr_buf *b);
void qr_buf_clear(struct qr_buf *b); /* len = 0, memory kept */
bool qr_buf_reserve(struct qr_buf *b, size_t n_more); /* false: the memory is missing, and data may be NULL */
void qr_buf_put(struct qr_buf *b, const void *bytes, size_t n);
void qr_buf_put_str(struct qr_buf *b, const char *s);
void qr_buf_put_byte(struct qr_buf *b, char c);
void qr_buf_printf(struct qr_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void qr_buf_put_i64(struct qr_buf *b, int64_t v); /* decimal, without printf: the streaming path uses it */

/* A comma, but where nothing, or an opening bracket, stands before: for JSON's lists. */
void qr_buf_put_comma(struct qr_buf *b);

void qr_buf_put_ids(struct qr_buf *b, const int32_t *id, int32_t n); /* [1,2,3] */

/* Text that a model, a server or a file made, for a terminal: every control character that could steer it (all but line feed and tab) becomes visible as ^X,
 * C1 controls (U+0080 to U+009F) become U+FFFD. */
void qr_buf_put_visible(struct qr_buf *b, const char *text, size_t n);

void qr_buf_drop_front(struct qr_buf *b, size_t n);

#endif
