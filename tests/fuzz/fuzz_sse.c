/* fuzz_sse.c - a stream gives the same events whole, byte by byte and in pieces of the fuzzer's choosing; and a second, naive reader
 * (split the whole text into lines, then follow the standard's list) agrees with the streaming one. The first byte chooses the pieces.
 */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "client/sse_reader.c" /* the fuzz build links no client module */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void note(void *arg, const char *data, size_t n)
{
    struct qr_buf *out = arg;
    QR_ASSERT(qr_utf8_valid_prefix(data, n) == n);
    QR_ASSERT(data[n] == '\0');
    qr_buf_printf(out, "<%zu>", n);
    qr_buf_put(out, data, n);
}

static void stream(struct qr_buf *out, const char *s, size_t n, uint32_t pieces)
{
    struct qr_sse_reader r;
    struct qr_err err;
    qr_sse_init(&r, (size_t)1 << 24, note, out);
    for (size_t at = 0; at < n;) {
        size_t k = pieces == 0 ? n : 1 + pieces % 13;
        k = k < n - at ? k : n - at;
        int rc = qr_sse_feed(&r, s + at, k, &err);
        QR_ASSERT(rc == 0);
        at += k;
        pieces = pieces <= 1 ? pieces : pieces * 1664525u + 1013904223u;
    }
    qr_sse_release(&r);
}

struct naive {
    struct qr_buf data, *out;
};

static void naive_line(struct naive *r, const char *line, size_t n)
{
    if (n == 0) {
        if (r->data.len > 0) {
            r->data.data[--r->data.len] = '\0'; /* the last line end is none of the data's */
            note(r->out, r->data.data, r->data.len);
        }
        qr_buf_clear(&r->data);
        return;
    }
    size_t name = 0;
    while (name < n && line[name] != ':')
        name++;
    size_t value = name < n ? name + 1 : n;
    if (name < n && value < n && line[value] == ' ')
        value++;
    if (name != 4 || memcmp(line, "data", 4) != 0)
        return;
    qr_buf_put(&r->data, line + value, n - value);
    qr_buf_put_byte(&r->data, '\n');
}

/* The standard, literally: decode, drop one byte order mark, split into lines, interpret. */
static void naive_read(struct qr_buf *out, const char *bytes, size_t size)
{
    struct naive r = {.out = out};
    struct qr_buf text = {0};
    qr_buf_reserve(&text, 3 * size + 1);
    text.len = qr_utf8_lossy(text.data, bytes, size);
    const char *s = text.data, *end = s + text.len;
    if (text.len >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0)
        s += 3;
    for (;;) {
        const char *eol = s;
        while (eol < end && *eol != '\n' && *eol != '\r')
            eol++;
        if (eol == end)
            break;
        naive_line(&r, s, (size_t)(eol - s));
        s = eol + (*eol == '\r' && eol + 1 < end && eol[1] == '\n' ? 2 : 1);
    }
    qr_buf_release(&r.data);
    qr_buf_release(&text);
}

static void same(const struct qr_buf *a, const struct qr_buf *b)
{
    QR_ASSERT(a->len == b->len);
    QR_ASSERT(a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const char *s = (const char *)data + 1;
    struct qr_buf expected = {0}, got = {0};
    naive_read(&expected, s, size - 1);
    const uint32_t pieces[] = {0, 1, 2u + data[0], 0x10000u + data[0]};
    for (int i = 0; i < QR_COUNT(pieces); i++) {
        qr_buf_clear(&got);
        stream(&got, s, size - 1, pieces[i]);
        same(&expected, &got);
    }
    qr_buf_release(&expected);
    qr_buf_release(&got);
    return 0;
}
