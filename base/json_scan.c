/* The gate: a strict, iterative pull parser. One token per call, own stack, nothing built. It accepts exactly what
 * json.h promises, whatever reads the tokens behind it, so no other code checks grammar, depth or UTF-8. Errors carry
 * line and column. Time is linear in the text; the only memory is the table of keys against duplicates. One thread per
 * scan. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/json_keys.h"
#include "base/json_number.h"
#include "base/mem.h"
#include "base/utf8.h"

const struct qr_json_limits qr_json_limits_request = {
    .bytes_max = (size_t)4 << 20, .values_max = 262144, .depth_max = 32, .nul_ok = false};
const struct qr_json_limits qr_json_limits_file = {
    .bytes_max = (size_t)256 << 20, .values_max = (int64_t)64 << 20, .depth_max = 32, .nul_ok = true};

#define DIGITS_FINITE 300 /* a whole number of no more is no infinity, whatever they are */

enum state {
    WANT_VALUE,          /* at the start, after ':' and after ',' in an array */
    WANT_KEY,            /* after ',' in an object */
    WANT_FIRST,          /* just inside a container: its end may come instead */
    WANT_COMMA_OR_CLOSE, /* after a value; outside all containers the end */
    ENDED,               /* done, or an error that every further call repeats */
};

struct frame {
    bool is_object;
    struct qr_json_keys_mark keys;
};

struct qr_json_scan {
    const char *text, *at, *end; /* borrowed */
    struct qr_json_limits limits;
    enum state state;
    int32_t depth; /* open containers */
    int64_t n_values;
    struct qr_err failure; /* code 0 while nothing is wrong */
    struct qr_json_keys keys;
    struct frame frame[QR_JSON_DEPTH_MAX];
};

struct qr_json_scan *qr_json_scan_new(const char *text, size_t len, const struct qr_json_limits *limits)
{
    QR_ASSERT(text != NULL || len == 0);
    QR_ASSERT(limits != NULL && limits->depth_max >= 0 && limits->depth_max <= QR_JSON_DEPTH_MAX);
    struct qr_json_scan *s = qr_alloc(1, sizeof *s);
    s->text = s->at = text ? text : "";
    s->end = s->text + len;
    s->limits = *limits;
    return s;
}

void qr_json_scan_free(struct qr_json_scan *s)
{
    if (!s)
        return;
    qr_json_keys_release(&s->keys);
    qr_free(s);
}

/* ---- saying what is wrong ---- */

struct place {
    int64_t line, column; /* from 1; columns count characters */
};

static struct place place_of(const struct qr_json_scan *s, const char *at)
{
    struct place p = {1, 1};
    for (const char *c = s->text; c < at; c++) {
        if (*c == '\n')
            p = (struct place){p.line + 1, 1};
        else
            p.column += ((unsigned char)*c & 0xC0) != 0x80;
    }
    return p;
}

/* The scan ends here: every further call says the same. */
static int fail(struct qr_json_scan *s, struct qr_err *err, enum qr_code code, const char *at, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
static int fail(struct qr_json_scan *s, struct qr_err *err, enum qr_code code, const char *at, const char *fmt, ...)
{
    char what[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    struct place p = place_of(s, at);
    s->state = ENDED;
    qr_err_set(&s->failure, code, "line %lld, column %lld: %s", (long long)p.line, (long long)p.column, what);
    *err = s->failure;
    return code;
}

static int fail_found(struct qr_json_scan *s, struct qr_err *err, const char *at, const char *expected)
{
    if (at >= s->end)
        return fail(s, err, QR_E_INVALID, s->end, "expected %s, found the end of the text", expected);
    unsigned char c = (unsigned char)*at;
    if (c == 0xEF && s->end - at >= 3 && memcmp(at, "\xEF\xBB\xBF", 3) == 0)
        return fail(s, err, QR_E_INVALID, at, "expected %s, found a byte order mark", expected);
    if (c >= 0x20 && c < 0x7F)
        return fail(s, err, QR_E_INVALID, at, "expected %s, found '%c'", expected, c);
    return fail(s, err, QR_E_INVALID, at, "expected %s, found byte 0x%02X", expected, c);
}

/* A key's text holds no control character and no bare quote, so it can be shown as it stands. */
static int fail_duplicate(struct qr_json_scan *s, struct qr_err *err, const struct qr_json_token *key, size_t first)
{
    struct place p = place_of(s, s->text + first);
    size_t n = key->len < 80 ? key->len : 80;
    n -= (size_t)qr_utf8_incomplete_tail(key->text, n);
    return fail(s, err, QR_E_INVALID, s->text + key->offset,
                "the key \"%.*s%s\" stands twice in one object, first at line %lld, column %lld", (int)n, key->text,
                n < key->len ? "..." : "", (long long)p.line, (long long)p.column);
}

/* ---- strings ---- */

static int hex4(const char *p, const char *end)
{
    if (end - p < 4)
        return -1;
    int v = 0;
    for (int i = 0; i < 4; i++) {
        int digit = qr_hex_digit(p[i]);
        if (digit < 0)
            return -1;
        v = v << 4 | digit;
    }
    return v;
}

/* The \u escape at *p (on the 'u'); moves *p behind it and, for a pair of surrogates, behind the second. */
static int check_unicode(struct qr_json_scan *s, const char **p, struct qr_err *err)
{
    const char *start = *p - 1;
    int v = hex4(*p + 1, s->end);
    if (v < 0)
        return fail(s, err, QR_E_INVALID, start, "expected four hexadecimal digits after \\u");
    if (v == 0 && !s->limits.nul_ok)
        return fail(s, err, QR_E_INVALID, start, "the character U+0000 is not allowed in a string");
    *p += 5;
    if (v < 0xD800 || v > 0xDFFF)
        return 0;
    int low = s->end - *p >= 2 && (*p)[0] == '\\' && (*p)[1] == 'u' ? hex4(*p + 2, s->end) : -1;
    if (v > 0xDBFF || low < 0xDC00 || low > 0xDFFF)
        return fail(s, err, QR_E_INVALID, start, "\\u%04X is one half of a surrogate pair without the other", v);
    *p += 6;
    return 0;
}

static int check_escape(struct qr_json_scan *s, const char **p, struct qr_err *err)
{
    const char *c = *p + 1;
    if (c < s->end && *c == 'u') {
        *p = c;
        return check_unicode(s, p, err);
    }
    if (c >= s->end || *c == 0 || !strchr("\"\\/bfnrt", *c))
        return fail_found(s, err, c, "one of \" \\ / b f n r t u after a backslash");
    *p += 2;
    return 0;
}

/* Plain bytes: neither a quote, a backslash, a control character nor part of a longer UTF-8 sequence. */
static const char *skip_plain(const char *p, const char *end)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    for (; end - p >= 8; p += 8) {
        uint64_t w, quote, slash;
        memcpy(&w, p, 8);
        quote = w ^ (ones * '"');
        slash = w ^ (ones * '\\');
        /* A byte's top bit is set where it is >= 0x80, or where subtracting borrowed: below 0x20, or equal after the xor. */
        if ((w | (w - ones * 0x20) | (quote - ones) | (slash - ones)) & tops)
            break;
    }
    while (p < end && (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x80 && *p != '"' && *p != '\\')
        p++;
    return p;
}

/* s->at is on the opening quote; afterwards behind the closing one. */
static int read_string(struct qr_json_scan *s, enum qr_json_event event, struct qr_json_token *t, struct qr_err *err)
{
    const char *start = s->at + 1, *p = start;
    bool escaped = false;
    for (;;) {
        p = skip_plain(p, s->end);
        if (p >= s->end)
            return fail(s, err, QR_E_INVALID, s->at, "the string that begins here is never closed");
        unsigned char c = (unsigned char)*p;
        if (c == '"')
            break;
        if (c == '\\') {
            escaped = true;
            int rc = check_escape(s, &p, err);
            if (rc)
                return rc;
        } else if (c < 0x20) {
            return fail(s, err, QR_E_INVALID, p, "control character 0x%02X in a string: write it as an escape", c);
        } else {
            uint32_t cp;
            int32_t n = qr_utf8_decode(p, (size_t)(s->end - p), &cp);
            if (n == 0)
                return fail(s, err, QR_E_INVALID, p, "byte 0x%02X is not valid UTF-8 here", c);
            p += n;
        }
    }
    *t = (struct qr_json_token){.event = event, .text = start, .len = (size_t)(p - start),
                                .offset = (size_t)(s->at - s->text), .escaped = escaped};
    s->at = p + 1;
    return 0;
}

/* ---- numbers and literals ---- */

static const char *skip_digits(const char *p, const char *end)
{
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

static int read_number(struct qr_json_scan *s, struct qr_json_token *t, struct qr_err *err)
{
    const char *start = s->at, *p = start + (*start == '-'), *digits = p;
    p = skip_digits(p, s->end);
    if (p == digits)
        return fail_found(s, err, p, "a digit after '-'");
    if (*digits == '0' && p - digits > 1)
        return fail(s, err, QR_E_INVALID, digits, "a number may not begin with a needless 0");
    const bool is_short = p - digits <= DIGITS_FINITE;
    const char *whole = p;
    if (p < s->end && *p == '.') {
        const char *fraction = ++p;
        p = skip_digits(p, s->end);
        if (p == fraction)
            return fail_found(s, err, p, "a digit after '.'");
    }
    if (p < s->end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < s->end && (*p == '+' || *p == '-'))
            p++;
        const char *exponent = p;
        p = skip_digits(p, s->end);
        if (p == exponent)
            return fail_found(s, err, p, "a digit in the exponent");
    }
    size_t len = (size_t)(p - start);
    if (!(is_short && p == whole) && !qr_json_number_is_finite(start, len))
        return fail(s, err, QR_E_INVALID, start, "the number %.*s%s is too large for a double", (int)(len < 40 ? len : 40),
                    start, len > 40 ? "..." : "");
    *t = (struct qr_json_token){.event = QR_JSON_NUMBER, .text = start, .len = len, .offset = (size_t)(start - s->text)};
    s->at = p;
    return 0;
}

static int read_literal(struct qr_json_scan *s, struct qr_json_token *t, struct qr_err *err)
{
    static const struct {
        const char *text;
        size_t len;
        enum qr_json_event event;
    } literal[] = {{"true", 4, QR_JSON_TRUE}, {"false", 5, QR_JSON_FALSE}, {"null", 4, QR_JSON_NULL}};
    size_t left = (size_t)(s->end - s->at);
    for (int i = 0; i < QR_COUNT(literal); i++) {
        if (left < literal[i].len || memcmp(s->at, literal[i].text, literal[i].len) != 0)
            continue;
        *t = (struct qr_json_token){.event = literal[i].event, .text = s->at, .len = literal[i].len,
                                    .offset = (size_t)(s->at - s->text)};
        s->at += literal[i].len;
        return 0;
    }
    return fail_found(s, err, s->at, "a value (object, array, string, number, true, false or null)");
}

/* ---- the grammar ---- */

static int open_container(struct qr_json_scan *s, bool is_object, struct qr_json_token *t, struct qr_err *err)
{
    if (s->depth >= s->limits.depth_max)
        return fail(s, err, QR_E_TOO_LARGE, s->at, "arrays and objects are nested deeper than %d", s->limits.depth_max);
    s->frame[s->depth++] = (struct frame){.is_object = is_object, .keys = qr_json_keys_open(&s->keys)};
    *t = (struct qr_json_token){.event = is_object ? QR_JSON_OBJECT_BEGIN : QR_JSON_ARRAY_BEGIN, .text = s->at, .len = 1,
                                .offset = (size_t)(s->at - s->text)};
    s->at++;
    s->state = WANT_FIRST;
    return 0;
}

static int close_container(struct qr_json_scan *s, struct qr_json_token *t)
{
    QR_ASSERT(s->depth > 0);
    const struct frame *f = &s->frame[--s->depth];
    qr_json_keys_close(&s->keys, f->keys);
    *t = (struct qr_json_token){.event = f->is_object ? QR_JSON_OBJECT_END : QR_JSON_ARRAY_END, .text = s->at, .len = 1,
                                .offset = (size_t)(s->at - s->text)};
    s->at++;
    s->state = WANT_COMMA_OR_CLOSE;
    return 0;
}

static void skip_space(struct qr_json_scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\t' || *s->at == '\r'))
        s->at++;
}

static int read_value(struct qr_json_scan *s, struct qr_json_token *t, struct qr_err *err)
{
    if (s->at >= s->end)
        return fail_found(s, err, s->at, s->depth || s->at > s->text ? "a value" : "a JSON value in an empty text");
    if (s->n_values >= s->limits.values_max)
        return fail(s, err, QR_E_TOO_LARGE, s->at, "the text holds more than %lld values", (long long)s->limits.values_max);
    s->n_values++;
    char c = *s->at;
    if (c == '{' || c == '[')
        return open_container(s, c == '{', t, err);
    s->state = WANT_COMMA_OR_CLOSE;
    if (c == '"')
        return read_string(s, QR_JSON_STRING, t, err);
    if (c == '-' || (c >= '0' && c <= '9'))
        return read_number(s, t, err);
    return read_literal(s, t, err);
}

static int read_key(struct qr_json_scan *s, struct qr_json_token *t, struct qr_err *err)
{
    if (s->at >= s->end || *s->at != '"')
        return fail_found(s, err, s->at, s->state == WANT_FIRST ? "a key in double quotes or '}'" : "a key in double quotes");
    int rc = read_string(s, QR_JSON_KEY, t, err);
    if (rc)
        return rc;
    size_t first;
    if (!qr_json_keys_add(&s->keys, s->frame[s->depth - 1].keys, s->depth - 1, t, &first))
        return fail_duplicate(s, err, t, first);
    skip_space(s);
    if (s->at >= s->end || *s->at != ':')
        return fail_found(s, err, s->at, "':' after the key");
    s->at++;
    s->state = WANT_VALUE;
    return 0;
}

static int after_value(struct qr_json_scan *s, struct qr_json_token *t, struct qr_err *err)
{
    if (s->depth == 0) {
        if (s->at < s->end)
            return fail_found(s, err, s->at, "the end of the text");
        s->state = ENDED;
        *t = (struct qr_json_token){.event = QR_JSON_DONE, .text = s->end, .offset = (size_t)(s->end - s->text)};
        return 0;
    }
    bool is_object = s->frame[s->depth - 1].is_object;
    char c = s->at < s->end ? *s->at : 0;
    if (c == (is_object ? '}' : ']'))
        return close_container(s, t);
    if (c != ',')
        return fail_found(s, err, s->at, is_object ? "',' or '}'" : "',' or ']'");
    s->at++;
    skip_space(s);
    s->state = is_object ? WANT_KEY : WANT_VALUE;
    return is_object ? read_key(s, t, err) : read_value(s, t, err);
}

int qr_json_next(struct qr_json_scan *s, struct qr_json_token *t, struct qr_err *err)
{
    QR_ASSERT(s != NULL && t != NULL);
    QR_ASSERT(err != NULL);
    if (s->state == ENDED) {
        *t = (struct qr_json_token){.event = QR_JSON_DONE, .text = s->end, .offset = (size_t)(s->end - s->text)};
        if (s->failure.code)
            *err = s->failure;
        return s->failure.code;
    }
    if ((size_t)(s->end - s->text) > s->limits.bytes_max)
        return fail(s, err, QR_E_TOO_LARGE, s->text, "the text has %zu bytes, more than the limit of %zu",
                    (size_t)(s->end - s->text), s->limits.bytes_max);
    skip_space(s);
    switch (s->state) {
    case WANT_VALUE: return read_value(s, t, err);
    case WANT_KEY: return read_key(s, t, err);
    case WANT_COMMA_OR_CLOSE: return after_value(s, t, err);
    default: break;
    }
    bool is_object = s->frame[s->depth - 1].is_object;
    if (s->at < s->end && *s->at == (is_object ? '}' : ']'))
        return close_container(s, t);
    return is_object ? read_key(s, t, err) : read_value(s, t, err);
}

int qr_json_skip(struct qr_json_scan *s, const struct qr_json_token *t, struct qr_err *err)
{
    QR_ASSERT(s != NULL && t != NULL);
    struct qr_json_token inner = *t;
    int rc = t->event == QR_JSON_KEY ? qr_json_next(s, &inner, err) : 0;
    int32_t open = 0;
    for (; !rc; rc = qr_json_next(s, &inner, err)) {
        open += inner.event == QR_JSON_OBJECT_BEGIN || inner.event == QR_JSON_ARRAY_BEGIN;
        open -= inner.event == QR_JSON_OBJECT_END || inner.event == QR_JSON_ARRAY_END;
        if (open <= 0)
            return 0;
    }
    return rc;
}

/* ---- reading tokens ---- */

/* One character or escape at p (within a checked string): its UTF-8 in out[4], its length there in *n; returns the bytes read. */
static size_t one_char(const char *p, char out[4], int32_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    *n = 1;
    out[0] = *p;
    if (*p != '\\')
        return 1;
    if (p[1] != 'u') {
        const char *which = strchr(from, p[1]);
        QR_ASSERT(which != NULL && p[1] != 0);
        out[0] = to[which - from];
        return 2;
    }
    int v = hex4(p + 2, p + 6), low = 0;
    QR_ASSERT(v >= 0);
    if (v < 0xD800 || v > 0xDFFF) {
        *n = qr_utf8_encode((uint32_t)v, out);
        return 6;
    }
    low = hex4(p + 8, p + 12);
    QR_ASSERT(low >= 0xDC00);
    *n = qr_utf8_encode(0x10000u + ((uint32_t)(v - 0xD800) << 10 | (uint32_t)(low - 0xDC00)), out);
    return 12;
}

void qr_json_unescape(struct qr_buf *out, const struct qr_json_token *t)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(t != NULL && (t->event == QR_JSON_KEY || t->event == QR_JSON_STRING));
    const char *p = t->text, *end = t->text + t->len;
    qr_buf_reserve(out, t->len);
    while (p < end) {
        const char *slash = t->escaped ? memchr(p, '\\', (size_t)(end - p)) : NULL;
        qr_buf_put(out, p, (size_t)((slash ? slash : end) - p));
        if (!slash)
            return;
        char c[4];
        int32_t n;
        p = slash + one_char(slash, c, &n);
        qr_buf_put(out, c, (size_t)n);
    }
}

bool qr_json_token_is(const struct qr_json_token *t, const char *text)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(text != NULL);
    if (t->event != QR_JSON_KEY && t->event != QR_JSON_STRING)
        return false;
    size_t n_text = strlen(text);
    if (!t->escaped)
        return t->len == n_text && memcmp(t->text, text, n_text) == 0;
    const char *rest = text, *end = text + n_text;
    for (size_t i = 0; i < t->len;) {
        char c[4];
        int32_t n;
        i += one_char(t->text + i, c, &n);
        if (end - rest < n || memcmp(rest, c, (size_t)n) != 0)
            return false;
        rest += n;
    }
    return rest == end;
}

bool qr_json_token_i64(const struct qr_json_token *t, int64_t *out)
{
    QR_ASSERT(t != NULL && out != NULL);
    if (t->event == QR_JSON_NUMBER && t->len <= 18) { /* nearly all: digits and nothing else, of which so many fit */
        int64_t v = 0;
        size_t i = 0;
        for (; i < t->len && t->text[i] >= '0' && t->text[i] <= '9'; i++)
            v = 10 * v + (t->text[i] - '0');
        if (i == t->len) {
            *out = v;
            return true;
        }
    }
    return t->event == QR_JSON_NUMBER && qr_json_number_is_integer(t->text, t->len) && qr_json_number_i64(t->text, t->len, out);
}

double qr_json_token_f64(const struct qr_json_token *t)
{
    QR_ASSERT(t != NULL && t->event == QR_JSON_NUMBER);
    return qr_json_number_f64(t->text, t->len);
}
