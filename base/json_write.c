/* Writing JSON: strings and the shortest decimals. Both are on the streaming path. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/utf8.h"

static void put_escape(struct qr_buf *out, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    static const char special[0x20] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    if (c == '"' || c == '\\') {
        qr_buf_put(out, (char[2]){'\\', (char)c}, 2);
    } else if (special[c]) {
        qr_buf_put(out, (char[2]){'\\', special[c]}, 2);
    } else {
        qr_buf_put(out, (char[6]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6);
    }
}

/* Bytes that need no escape. A sequence cut by one that does is malformed either way, so spans can be judged alone. */
static void put_span(struct qr_buf *out, const char *s, size_t n)
{
    if (qr_utf8_valid_prefix(s, n) == n) {
        qr_buf_put(out, s, n);
        return;
    }
    if (!qr_buf_reserve(out, 3 * n))
        return;
    out->len += qr_utf8_lossy(out->data + out->len, s, n);
    out->data[out->len] = 0;
}

void qr_json_put_str(struct qr_buf *out, const char *s, size_t n)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(s != NULL || n == 0);
    qr_buf_reserve(out, n + 2);
    qr_buf_put_byte(out, '"');
    size_t start = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        if (i > start)
            put_span(out, s + start, i - start);
        put_escape(out, c);
        start = i + 1;
    }
    if (n > start)
        put_span(out, s + start, n - start);
    qr_buf_put_byte(out, '"');
}

void qr_json_put_name(struct qr_buf *out, const char *name)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(name != NULL);
    qr_buf_put_comma(out);
    qr_buf_put_byte(out, '"');
    qr_buf_put_str(out, name);
    qr_buf_put_str(out, "\":");
}

void qr_json_put_member_i64(struct qr_buf *out, const char *name, int64_t value)
{
    qr_json_put_name(out, name);
    qr_buf_put_i64(out, value);
}

void qr_json_put_member_text(struct qr_buf *out, const char *name, const char *text)
{
    qr_json_put_name(out, name);
    if (text)
        qr_json_put_str(out, text, strlen(text));
    else
        qr_buf_put_str(out, "null");
}

/* ---- numbers ---- */

static const double ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                             1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* digits * 10^exp10 without rounding more than once; both factors are exact doubles. */
static double scaled(uint64_t digits, int exp10)
{
    return exp10 < 0 ? (double)digits / ten[-exp10] : (double)digits * ten[exp10];
}

/* The float nearest to digits * 10^exp10, by way of the nearest double. False where that detour rounds twice: when the
 * double lies exactly between two floats and is itself rounded. */
static bool scaled_f32(uint64_t digits, int exp10, float *out)
{
    double v = scaled(digits, exp10), d = (double)digits;
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    *out = (float)v;
    if ((bits & 0x1fffffffu) != 0x10000000u)
        return true;
    return exp10 < 0 ? fma(v, ten[-exp10], -d) == 0 : fma(d, ten[exp10], -v) == 0;
}

#define FAST_MIN 1e-5 /* within these bounds powers of ten up to 10^22 suffice */
#define FAST_MAX 1e15
#define FAST_F64_DIGITS 15 /* they fit 2^53 */

/* Tries 1, 2, ... digits with exact arithmetic: up to 9 for a float, 15 for a double. v is positive.
 * False when none reads back, which for a double within the bounds means that it needs more than 15. */
static bool short_digits(double v, bool is_f32, uint64_t *digits, int *exp10)
{
    if (v < FAST_MIN || v >= FAST_MAX)
        return false;
    int magnitude = 0; /* 10^magnitude <= v < 10^(magnitude+1), or one off where v is next to a power */
    while (magnitude < 15 && v >= ten[magnitude + 1])
        magnitude++;
    for (double low = 1; v < low; low /= 10)
        magnitude--;
    for (int n = 1; n <= (is_f32 ? 9 : FAST_F64_DIGITS); n++) {
        int e = magnitude + 1 - n;
        double m = nearbyint(e < 0 ? v * ten[-e] : v / ten[e]);
        if (m < 1 || m > 0x1p53)
            continue;
        uint64_t d = (uint64_t)m;
        float f = 0;
        bool reads_back = is_f32 ? scaled_f32(d, e, &f) && f == (float)v : scaled(d, e) == v;
        if (!reads_back)
            continue;
        *digits = d;
        *exp10 = e;
        return true;
    }
    return false;
}

/* The same by asking the C library, for what is left. */
static void any_digits(double v, bool is_f32, uint64_t *digits, int *exp10)
{
    char text[40];
    bool tried = !is_f32 && v >= FAST_MIN && v < FAST_MAX;
    for (int n = tried ? FAST_F64_DIGITS + 1 : 1; n <= 17; n++) {
        snprintf(text, sizeof text, "%.*e", n - 1, v);
        if (is_f32 ? strtof(text, NULL) == (float)v : strtod(text, NULL) == v)
            break;
    }
    char *e = strchr(text, 'e');
    QR_ASSERT(e != NULL);
    *digits = 0;
    *exp10 = atoi(e + 1);
    for (const char *c = text; c < e; c++)
        if (*c >= '0' && *c <= '9') {
            *digits = 10 * *digits + (uint64_t)(*c - '0');
            *exp10 -= c != text;
        }
}

/* The fewest digits that read back; the last one is no 0. */
static void shortest(double v, bool is_f32, uint64_t *digits, int *exp10)
{
    if (!short_digits(v, is_f32, digits, exp10))
        any_digits(v, is_f32, digits, exp10);
    while (*digits % 10 == 0) {
        *digits /= 10;
        ++*exp10;
    }
}

void qr_shortest_f64(double v, uint64_t *digits, int *exp10)
{
    QR_ASSERT(v > 0 && isfinite(v));
    QR_ASSERT(digits != NULL && exp10 != NULL);
    shortest(v, false, digits, exp10);
}

/* digits * 10^exp10 as JSON: plain between 1e-5 and 1e16, with an exponent outside. */
static void put_decimal(struct qr_buf *out, uint64_t digits, int exp10)
{
    char d[24], *end = d + sizeof d, *p = end;
    for (uint64_t rest = digits; rest; rest /= 10)
        *--p = (char)('0' + rest % 10);
    int n = (int)(end - p), point = n + exp10; /* the decimal point stands behind `point` digits */
    if (point > 16 || point < -4) {
        qr_buf_put(out, p, 1);
        if (n > 1) {
            qr_buf_put_byte(out, '.');
            qr_buf_put(out, p + 1, (size_t)n - 1);
        }
        qr_buf_put_byte(out, 'e');
        qr_buf_put_i64(out, point - 1);
    } else if (point <= 0) {
        qr_buf_put(out, "0.0000", (size_t)(2 - point));
        qr_buf_put(out, p, (size_t)n);
    } else if (n <= point) {
        qr_buf_put(out, p, (size_t)n);
        qr_buf_put(out, "0000000000000000", (size_t)(point - n));
    } else {
        qr_buf_put(out, p, (size_t)point);
        qr_buf_put_byte(out, '.');
        qr_buf_put(out, p + point, (size_t)(n - point));
    }
}

static void put_number(struct qr_buf *out, double v, bool is_f32)
{
    QR_ASSERT(out != NULL);
    if (!isfinite(v)) {
        qr_buf_put(out, "null", 4);
        return;
    }
    if (signbit(v))
        qr_buf_put_byte(out, '-');
    v = fabs(v);
    if (v == 0) {
        qr_buf_put_byte(out, '0');
        return;
    }
    uint64_t digits;
    int exp10;
    shortest(v, is_f32, &digits, &exp10);
    put_decimal(out, digits, exp10);
}

void qr_json_put_f32(struct qr_buf *out, float v)
{
    put_number(out, (double)v, true);
}

void qr_json_put_f64(struct qr_buf *out, double v)
{
    put_number(out, v, false);
}
