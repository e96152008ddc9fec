/* reader.c - the parts that the languages of grammars have in common, read with their places. Whatever the text holds, the answer is an
 * error that names line and column. One thread. */
#include "answers/grammar/reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"

#define TOKENS_MAX 4096 /* that a range of ids may name */

int qr_reader_open(struct qr_reader *r, const char *text, size_t len, struct qr_err *err)
{
    QR_ASSERT(r != NULL && err != NULL);
    QR_ASSERT(text != NULL || len == 0);
    *r = (struct qr_reader){.text = text ? text : "", .len = len, .err = err};
    if (len > QR_GRAMMAR_TEXT_MAX)
        return qr_err_set(err, QR_E_TOO_LARGE, "a grammar of %zu bytes; at most %zu are taken", len, QR_GRAMMAR_TEXT_MAX);
    const size_t valid = qr_utf8_valid_prefix(r->text, len);
    return valid == len ? 0 : qr_reader_fail(r, QR_E_INVALID, valid, "the text is not valid UTF-8");
}

void qr_reader_place(const struct qr_reader *r, size_t at, struct qr_err *err)
{
    int32_t line = 1, column = 1;
    QR_ASSERT(at <= r->len);
    for (size_t i = 0; i < at; i++) {
        const bool ends = r->text[i] == '\n';
        line += ends;
        column = ends ? 1 : column + (((unsigned char)r->text[i] & 0xC0) != 0x80);
    }
    qr_err_prefix(err, "line %d, column %d: ", (int)line, (int)column);
}

int qr_reader_fail(struct qr_reader *r, enum qr_code code, size_t at, const char *fmt, ...)
{
    char what[300];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    qr_err_set(r->err, code, "%s", what);
    qr_reader_place(r, at, r->err);
    return code;
}

int qr_reader_expected(struct qr_reader *r, const char *what)
{
    if (r->at >= r->len)
        return qr_reader_fail(r, QR_E_INVALID, r->len, "%s was expected, found the end", what);
    uint32_t rune = 0;
    const int32_t n = qr_utf8_decode(r->text + r->at, r->len - r->at, &rune);
    if (rune < 0x20)
        return qr_reader_fail(r, QR_E_INVALID, r->at, "%s was expected, found %s", what, rune == '\n' ? "the end of the line" : "a control character");
    return qr_reader_fail(r, QR_E_INVALID, r->at, "%s was expected, found '%.*s'", what, (int)n, r->text + r->at);
}

bool qr_reader_is(const struct qr_reader *r, const char *what)
{
    const size_t n = strlen(what);
    return r->len - r->at >= n && memcmp(r->text + r->at, what, n) == 0;
}

bool qr_reader_take(struct qr_reader *r, const char *what)
{
    const bool is = qr_reader_is(r, what);
    if (is)
        r->at += strlen(what);
    return is;
}

int32_t qr_reader_rune(struct qr_reader *r)
{
    uint32_t rune = 0;
    const int32_t n = qr_utf8_decode(r->text + r->at, r->len - r->at, &rune);
    QR_ASSERT(n > 0);
    r->at += (size_t)n;
    return (int32_t)rune;
}

bool qr_reader_count(struct qr_reader *r, int32_t *out)
{
    const size_t begin = r->at;
    int32_t value = 0;
    for (; r->at < r->len && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++) {
        value = value * 10 + (r->text[r->at] - '0');
        value = value > QR_GRAMMAR_REPEAT_MAX ? QR_GRAMMAR_REPEAT_MAX + 1 : value;
    }
    *out = value;
    return r->at > begin;
}

/* ---- escapes and quotes ---- */

static bool take_hex(struct qr_reader *r, int n, int32_t *out)
{
    int32_t value = 0;
    if (r->len - r->at < (size_t)n)
        return false;
    for (int i = 0; i < n; i++) {
        const int32_t digit = qr_hex_digit(r->text[r->at + (size_t)i]);
        if (digit < 0 || value > QR_RUNE_MAX)
            return false;
        value = value * 16 + digit;
    }
    r->at += (size_t)n;
    *out = value;
    return value <= QR_RUNE_MAX;
}

static int read_code(struct qr_reader *r, char letter, size_t start, int32_t *rune)
{
    const int n = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
    int32_t low = 0;
    if (!take_hex(r, n, rune))
        return qr_reader_fail(r, QR_E_INVALID, start, "behind \\%c %d hexadecimal digits of a character were expected", letter, n);
    if (letter == 'u' && *rune >= 0xD800 && *rune <= 0xDBFF && qr_reader_take(r, "\\u") && take_hex(r, 4, &low) && low >= 0xDC00 && low <= 0xDFFF)
        *rune = 0x10000 + ((*rune - 0xD800) << 10) + (low - 0xDC00);
    if (*rune >= 0xD800 && *rune <= 0xDFFF)
        return qr_reader_fail(r, QR_E_INVALID, start, "half of a pair of surrogates is no character");
    return 0;
}

int qr_reader_escape(struct qr_reader *r, int32_t *rune)
{
    static const struct { char letter, rune; } named[] = {{'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'b', '\b'}, {'f', '\f'}, {'v', '\v'}};
    const size_t start = r->at;
    QR_ASSERT(qr_reader_is(r, "\\") && rune != NULL);
    if (++r->at == r->len)
        return qr_reader_fail(r, QR_E_INVALID, start, "the text ends behind a backslash");
    const char c = r->text[r->at];
    for (int i = 0; i < QR_COUNT(named); i++) {
        if (named[i].letter == c) {
            r->at++;
            *rune = named[i].rune;
            return 0;
        }
    }
    if (c == 'x' || c == 'u' || c == 'U') {
        r->at++;
        return read_code(r, c, start, rune);
    }
    if (c <= 0x20 || c == 0x7f || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'))
        return qr_reader_fail(r, QR_E_INVALID, start, "the escape \\%c has no meaning that is known here", c > 0x20 && c < 0x7f ? c : '?');
    *rune = qr_reader_rune(r);
    return 0;
}

int qr_reader_quoted(struct qr_reader *r, struct qr_buf *out)
{
    const size_t start = r->at;
    QR_ASSERT(qr_reader_is(r, "\""));
    r->at++;
    while (!qr_reader_take(r, "\"")) {
        int32_t rune;
        char bytes[4];
        if (r->at == r->len || r->text[r->at] == '\n')
            return qr_reader_fail(r, QR_E_INVALID, start, "the quote '\"' is never closed on its line");
        if (r->text[r->at] != '\\') {
            rune = qr_reader_rune(r);
        } else {
            const int rc = qr_reader_escape(r, &rune);
            if (rc != 0)
                return rc;
        }
        qr_buf_put(out, bytes, (size_t)qr_utf8_encode((uint32_t)rune, bytes));
    }
    return 0;
}

/* ---- special tokens ---- */

/* Any special token as expr.h spells them. */
static int32_t any_token(struct qr_exprs *x)
{
    const int32_t digits = qr_expr_repeat(x, qr_expr_range(x, '0', '9'), 1, 10);
    return qr_expr_cat(x, qr_expr_range(x, 0xFF, 0xFF), qr_expr_cat(x, digits, qr_expr_text(x, ";")));
}

static bool take_id(struct qr_reader *r, int32_t *id)
{
    int64_t value = 0;
    const size_t begin = r->at;
    for (; r->at < r->len && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++)
        value = value > INT32_MAX ? value : value * 10 + (r->text[r->at] - '0');
    *id = (int32_t)(value > INT32_MAX ? INT32_MAX : value);
    return r->at > begin;
}

/* A token by its number: a special one is spelled, of another the bytes are what it says. */
static int token_expr(struct qr_reader *r, struct qr_exprs *x, const struct qr_vocab *v, size_t start, int32_t id, int32_t *out)
{
    size_t len = 0;
    if (!v || id >= qr_vocab_size(v))
        return qr_reader_fail(r, QR_E_INVALID, start, "the vocabulary has no token %d", (int)id);
    const char *bytes = qr_vocab_token(v, id, &len);
    if (len == 0)
        return qr_reader_fail(r, QR_E_UNSUPPORTED, start, "token %d ends the answer, or has no bytes: a grammar cannot ask for it", (int)id);
    *out = qr_expr_bytes(x, bytes, len);
    return 0;
}

/* <[...]>; r->at is behind "<[". */
static int read_ids(struct qr_reader *r, struct qr_exprs *x, const struct qr_vocab *v, size_t start, int32_t *out)
{
    int32_t e = QR_EXPR_NONE, n = 0;
    if (qr_reader_is(r, "*") || qr_reader_is(r, "^"))
        return qr_reader_fail(r, QR_E_UNSUPPORTED, start, "tokens are named by their numbers; any token, and any but some, are not supported");
    do {
        int32_t low, high, one = QR_EXPR_NONE;
        if (!take_id(r, &low))
            return qr_reader_expected(r, "the number of a token");
        high = low;
        if (qr_reader_take(r, "-") && !take_id(r, &high))
            return qr_reader_expected(r, "the number of a token");
        if (high < low || high - low >= TOKENS_MAX - n)
            return qr_reader_fail(r, QR_E_TOO_LARGE, start, "more than %d tokens, or a range that ends before its begin", TOKENS_MAX);
        n += high - low + 1;
        for (int32_t id = low; id <= high; id++) {
            const int rc = token_expr(r, x, v, start, id, &one);
            if (rc != 0)
                return rc;
            e = qr_expr_or(x, e, one);
        }
    } while (qr_reader_take(r, ","));
    *out = e;
    return qr_reader_take(r, "]>") ? 0 : qr_reader_expected(r, "']>'");
}

int qr_reader_token(struct qr_reader *r, struct qr_exprs *x, const struct qr_vocab *v, bool negated, int32_t *out)
{
    const size_t start = r->at;
    int rc;
    QR_ASSERT(qr_reader_is(r, "<") && x != NULL);
    if (qr_reader_take(r, "<[")) {
        rc = read_ids(r, x, v, start, out);
    } else {
        while (r->at < r->len && r->text[r->at] != '>' && r->text[r->at] != '\n')
            r->at++;
        if (!qr_reader_take(r, ">"))
            return qr_reader_fail(r, QR_E_INVALID, start, "the token '<' is never closed on its line");
        const size_t n = r->at - start;
        const int32_t id = v ? qr_vocab_special(v, r->text + start, n) : -1;
        if (id < 0)
            return qr_reader_fail(r, QR_E_INVALID, start, "the vocabulary has no special token %.*s", n < 80 ? (int)n : 80, r->text + start);
        rc = token_expr(r, x, v, start, id, out);
    }
    if (rc == 0 && negated)
        *out = qr_expr_minus(x, any_token(x), *out);
    return rc;
}

/* ---- counts ---- */

static void skip_blanks(struct qr_reader *r)
{
    while (qr_reader_is(r, " ") || qr_reader_is(r, "\t"))
        r->at++;
}

int qr_reader_check_counts(struct qr_reader *r, size_t at, int32_t min, int32_t max)
{
    if (min > QR_GRAMMAR_REPEAT_MAX || (max > QR_GRAMMAR_REPEAT_MAX && max != QR_REPEAT_FOREVER))
        return qr_reader_fail(r, QR_E_TOO_LARGE, at, "a repetition has a count above %d", QR_GRAMMAR_REPEAT_MAX);
    if (min > max)
        return qr_reader_fail(r, QR_E_INVALID, at, "a repetition has a maximum below its minimum");
    return 0;
}

int qr_reader_braces(struct qr_reader *r, int32_t *min, int32_t *max)
{
    const size_t start = r->at;
    *min = 0;
    skip_blanks(r);
    if (!qr_reader_count(r, min) && !qr_reader_is(r, ","))
        return qr_reader_expected(r, "a count");
    *max = *min;
    skip_blanks(r);
    if (qr_reader_take(r, ",")) {
        skip_blanks(r);
        if (!qr_reader_count(r, max))
            *max = QR_REPEAT_FOREVER;
        skip_blanks(r);
    }
    return qr_reader_take(r, "}") ? qr_reader_check_counts(r, start, *min, *max) : qr_reader_expected(r, "'}'");
}
