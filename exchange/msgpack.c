#include "exchange/msgpack.h"

#include <string.h>

#include "base/assert.h"

/* A type's byte and the low n bytes of v, the highest first. */
static void put(struct qr_buf *b, uint8_t type, uint64_t v, int n)
{
    char at[9] = {(char)type};
    for (int i = 0; i < n; i++)
        at[1 + i] = (char)(v >> 8 * (n - 1 - i));
    qr_buf_put(b, at, 1 + (size_t)n);
}

void qr_mp_nil(struct qr_buf *b)
{
    put(b, 0xc0, 0, 0);
}

void qr_mp_uint(struct qr_buf *b, uint32_t v)
{
    if (v < 128)
        put(b, (uint8_t)v, 0, 0);
    else if (v < 1u << 8)
        put(b, 0xcc, v, 1);
    else if (v < 1u << 16)
        put(b, 0xcd, v, 2);
    else
        put(b, 0xce, v, 4);
}

void qr_mp_f64(struct qr_buf *b, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put(b, 0xcb, bits, 8);
}

void qr_mp_str(struct qr_buf *b, const char *s)
{
    if (!s) {
        qr_mp_nil(b);
        return;
    }
    const size_t n = strlen(s);
    QR_ASSERT(n < 1u << 16);
    if (n < 32)
        put(b, (uint8_t)(0xa0 | n), 0, 0);
    else
        put(b, 0xda, n, 2);
    qr_buf_put(b, s, n);
}

void qr_mp_bin(struct qr_buf *b, const void *bytes, uint8_t n)
{
    put(b, 0xc4, n, 1);
    qr_buf_put(b, bytes, n);
}

void qr_mp_array(struct qr_buf *b, uint32_t n)
{
    if (n < 16)
        put(b, (uint8_t)(0x90 | n), 0, 0);
    else
        put(b, 0xdd, n, 4);
}

void qr_mp_map(struct qr_buf *b, uint8_t n)
{
    QR_ASSERT(n < 16);
    put(b, (uint8_t)(0x80 | n), 0, 0);
}

size_t qr_mp_array_begin(struct qr_buf *b)
{
    put(b, 0xdd, 0, 4);
    return b->len - 5;
}

void qr_mp_array_end(struct qr_buf *b, size_t at, uint32_t n)
{
    QR_ASSERT(at + 5 <= b->len);
    for (int i = 0; i < 4; i++)
        b->data[at + 1 + (size_t)i] = (char)(n >> 8 * (3 - i));
}
