#include "server/chunks.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "server/gate.h"

#define SIZE_DIGITS_MAX 15 /* in hexadecimal: what 63 bits hold, with room for the CR LF */
#define LINE_MAX (SIZE_DIGITS_MAX + QR_CHUNK_EXTENSIONS_MAX + 2)

static const char not_framed[] = "The request's body is not framed as HTTP asks.";

static enum qr_chunks_step bad(struct qr_chunks *c, int32_t status, const char *why)
{
    c->status = status;
    c->why = why;
    return QR_CHUNKS_BAD;
}

static const char *skip_blanks(const char *s, const char *end)
{
    while (s < end && (*s == ' ' || *s == '\t'))
        s++;
    return s;
}

static const char *skip_token(const char *s, const char *end)
{
    while (s < end && qr_is_token_byte((unsigned char)*s))
        s++;
    return s;
}

/* Behind the closing quote; s itself where there is no quoted string. */
static const char *skip_quoted(const char *s, const char *end)
{
    const char *at = s;
    if (at == end || *at++ != '"')
        return s;
    for (; at < end && *at != '"'; at++) {
        at += *at == '\\';
        if (at == end || ((unsigned char)*at < 0x20 && *at != '\t') || *at == 0x7f)
            return s;
    }
    return at < end ? at + 1 : s;
}

/* chunk-ext = *( BWS ";" BWS token [ BWS "=" BWS ( token / quoted-string ) ] ) */
static bool extensions_ok(const char *s, const char *end)
{
    while (s < end) {
        s = skip_blanks(s, end);
        if (s == end || *s++ != ';')
            return false;
        const char *name = skip_blanks(s, end);
        s = skip_token(name, end);
        if (s == name)
            return false;
        const char *equals = skip_blanks(s, end);
        if (equals == end || *equals != '=')
            continue;
        const char *value = skip_blanks(equals + 1, end);
        s = skip_token(value, end);
        s = s == value ? skip_quoted(value, end) : s;
        if (s == value)
            return false;
    }
    return true;
}

/* The line s[0..n), its CR LF left out. */
static enum qr_chunks_step read_size(struct qr_chunks *c, const char *s, size_t n, size_t room)
{
    int64_t size = 0;
    size_t i = 0;
    for (; i < n && qr_hex_digit(s[i]) >= 0; i++) {
        if (i == SIZE_DIGITS_MAX)
            return bad(c, 400, not_framed);
        size = size * 16 + qr_hex_digit(s[i]);
    }
    c->n_extension += n - i;
    if (i == 0 || !extensions_ok(s + i, s + n))
        return bad(c, 400, not_framed);
    if (c->n_extension > QR_CHUNK_EXTENSIONS_MAX)
        return bad(c, 400, "Chunk extensions are too long.");
    if (size == 0)
        return QR_CHUNKS_LAST;
    if ((uint64_t)size > room)
        return bad(c, 413, "The request body is too large.");
    c->left = size + 2;
    return QR_CHUNKS_MORE;
}

enum qr_chunks_step qr_chunks_read(struct qr_chunks *c, struct qr_buf *body, size_t *used, const char *bytes, size_t n, size_t body_max)
{
    QR_ASSERT(c != NULL && body != NULL && used != NULL);
    QR_ASSERT(bytes != NULL || n == 0);
    QR_ASSERT(body->len <= body_max);
    for (*used = 0; *used < n;) {
        const char *s = bytes + *used;
        const size_t left = n - *used, data = c->left > 2 ? (size_t)c->left - 2 : 0, take = data < left ? data : left;
        if (data > 0) {
            qr_buf_put(body, s, take);
            c->left -= (int64_t)take;
            *used += take;
        } else if (c->left > 0) {
            if (*s != (c->left == 2 ? '\r' : '\n'))
                return bad(c, 400, not_framed);
            c->left--;
            ++*used;
        } else {
            const char *lf = memchr(s, '\n', left < LINE_MAX ? left : LINE_MAX);
            if (!lf && left < LINE_MAX && qr_hex_digit(*s) >= 0)
                return QR_CHUNKS_MORE;
            if (!lf || lf == s || lf[-1] != '\r')
                return bad(c, 400, not_framed);
            enum qr_chunks_step step = read_size(c, s, (size_t)(lf - s) - 1, body_max - body->len);
            *used += (size_t)(lf - s) + 1;
            if (step != QR_CHUNKS_MORE)
                return step;
        }
    }
    return QR_CHUNKS_MORE;
}
