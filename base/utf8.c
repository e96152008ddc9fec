#include "base/utf8.h"

#include <string.h>

#include "base/assert.h"

/* What a lead byte promises: the length, and the range its second byte must be in (Unicode 15, table 3-7). */
struct lead {
    uint8_t len, lo, hi;
};

static struct lead lead_of(unsigned char c)
{
    if (c < 0x80) return (struct lead){1, 0, 0};
    if (c < 0xC2) return (struct lead){0, 0, 0};
    if (c < 0xE0) return (struct lead){2, 0x80, 0xBF};
    if (c == 0xE0) return (struct lead){3, 0xA0, 0xBF};
    if (c == 0xED) return (struct lead){3, 0x80, 0x9F};
    if (c < 0xF0) return (struct lead){3, 0x80, 0xBF};
    if (c == 0xF0) return (struct lead){4, 0x90, 0xBF};
    if (c < 0xF4) return (struct lead){4, 0x80, 0xBF};
    if (c == 0xF4) return (struct lead){4, 0x80, 0x8F};
    return (struct lead){0, 0, 0};
}

/* How many bytes at s are a well-formed beginning of a code point (its whole length when complete). *len: promised length. */
static int32_t subpart(const unsigned char *s, size_t n, int32_t *len)
{
    struct lead l = lead_of(s[0]);
    *len = l.len;
    if (l.len == 0)
        return 0;
    int32_t i = 1;
    for (; i < l.len && (size_t)i < n; i++) {
        unsigned lo = i == 1 ? l.lo : 0x80u, hi = i == 1 ? l.hi : 0xBFu;
        if (s[i] < lo || s[i] > hi)
            break;
    }
    return i;
}

int32_t qr_utf8_decode(const char *s, size_t n, uint32_t *cp)
{
    QR_ASSERT(s != NULL && n > 0);
    QR_ASSERT(cp != NULL);
    static const unsigned char mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    const unsigned char *u = (const unsigned char *)s;
    int32_t len, got = subpart(u, n, &len);
    if (len == 0 || got != len)
        return 0;
    uint32_t c = u[0] & mask[len];
    for (int32_t i = 1; i < len; i++)
        c = c << 6 | (u[i] & 0x3Fu);
    *cp = c;
    return len;
}

size_t qr_utf8_valid_prefix(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t w;
        if (n - i >= sizeof w && (memcpy(&w, s + i, sizeof w), (w & 0x8080808080808080u) == 0)) {
            i += sizeof w; /* eight ASCII characters at once */
            continue;
        }
        if ((unsigned char)s[i] < 0x80) {
            i++;
            continue;
        }
        int32_t len, got = subpart((const unsigned char *)s + i, n - i, &len);
        if (len == 0 || got != len)
            break;
        i += (size_t)len;
    }
    return i;
}

int32_t qr_utf8_encode(uint32_t cp, char out[4])
{
    QR_ASSERT(cp <= 0x10FFFF);
    QR_ASSERT(cp < 0xD800 || cp > 0xDFFF);
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

int32_t qr_utf8_incomplete_tail(const char *s, size_t n)
{
    for (int32_t back = 1; back <= 3 && (size_t)back <= n; back++) {
        const unsigned char *u = (const unsigned char *)s + n - (size_t)back;
        if ((*u & 0xC0) == 0x80)
            continue;
        int32_t len, got = subpart(u, (size_t)back, &len);
        return len > back && got == back ? back : 0;
    }
    return 0;
}

size_t qr_utf8_lossy(char *out, const char *s, size_t n)
{
    size_t o = 0;
    for (size_t i = 0; i < n;) {
        int32_t len, got = subpart((const unsigned char *)s + i, n - i, &len);
        if (len > 0 && got == len) {
            for (int32_t j = 0; j < len; j++)
                out[o++] = s[i + (size_t)j];
            i += (size_t)len;
            continue;
        }
        o += (size_t)qr_utf8_encode(0xFFFD, out + o);
        i += got > 0 ? (size_t)got : 1;
    }
    return o;
}

int32_t qr_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}
