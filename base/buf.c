#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

void qr_buf_release(struct qr_buf *b)
{
    qr_free(b->data);
    *b = (struct qr_buf){0};
}

void qr_buf_clear(struct qr_buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = 0;
}

bool qr_buf_reserve(struct qr_buf *b, size_t n_more)
{
    size_t need;
    if (!qr_add_size(b->len, n_more, &need) || !qr_add_size(need, 1, &need))
        qr_panic("buffer of %zu + %zu bytes overflows", b->len, n_more);
    if (need <= b->cap)
        return true;
    size_t cap = b->cap < 64 ? 64 : b->cap;
    while (cap < need)
        cap += cap / 2 + 64;
    char *data = qr_realloc(b->data, cap, 1);
    if (!data)
        return false;
    b->data = data;
    b->cap = cap;
    b->data[b->len] = 0;
    return true;
}

void qr_buf_put(struct qr_buf *b, const void *bytes, size_t n)
{
    QR_ASSERT(bytes != NULL || n == 0);
    if (!qr_buf_reserve(b, n))
        return;
    if (n)
        memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = 0;
}

void qr_buf_put_str(struct qr_buf *b, const char *s)
{
    qr_buf_put(b, s, strlen(s));
}

void qr_buf_put_byte(struct qr_buf *b, char c)
{
    qr_buf_put(b, &c, 1);
}

void qr_buf_printf(struct qr_buf *b, const char *fmt, ...)
{
    va_list ap, again;
    if (!qr_buf_reserve(b, 128))
        return;
    va_start(ap, fmt);
    va_copy(again, ap);
    size_t room = b->cap - b->len;
    int n = vsnprintf(b->data + b->len, room, fmt, ap);
    QR_ASSERT(n >= 0);
    if ((size_t)n < room)
        b->len += (size_t)n;
    else if (qr_buf_reserve(b, (size_t)n))
        b->len += (size_t)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
    else
        b->data[b->len] = 0; /* the part that would have fitted is not left there */
    va_end(again);
    va_end(ap);
}

void qr_buf_put_i64(struct qr_buf *b, int64_t v)
{
    char digits[24];
    int i = (int)sizeof digits;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do {
        digits[--i] = (char)('0' + u % 10);
        u /= 10;
    } while (u);
    if (v < 0)
        digits[--i] = '-';
    qr_buf_put(b, digits + i, sizeof digits - (size_t)i);
}

void qr_buf_put_comma(struct qr_buf *b)
{
    QR_ASSERT(b != NULL);
    if (b->len > 0 && b->data[b->len - 1] != '[' && b->data[b->len - 1] != '{')
        qr_buf_put_byte(b, ',');
}

void qr_buf_put_ids(struct qr_buf *b, const int32_t *id, int32_t n)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(id != NULL || n == 0);
    qr_buf_put_byte(b, '[');
    for (int32_t i = 0; i < n; i++) {
        qr_buf_put_comma(b);
        qr_buf_put_i64(b, id[i]);
    }
    qr_buf_put_byte(b, ']');
}

void qr_buf_put_visible(struct qr_buf *b, const char *text, size_t n)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(text != NULL || n == 0);
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        if ((c < ' ' && c != '\n' && c != '\t') || c == 127) {
            qr_buf_put_byte(b, '^');
            qr_buf_put_byte(b, (char)(c ^ 64));
        } else if (c == 0xc2 && i + 1 < n && (unsigned char)text[i + 1] < 0xa0) {
            qr_buf_put_str(b, "\xef\xbf\xbd");
            i++;
        } else {
            qr_buf_put_byte(b, text[i]);
        }
    }
}

void qr_buf_drop_front(struct qr_buf *b, size_t n)
{
    QR_ASSERT(n <= b->len);
    if (n == 0)
        return;
    memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
    b->data[b->len] = 0;
}
