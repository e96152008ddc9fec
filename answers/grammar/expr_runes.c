/* expr_runes.c - expressions of characters, in UTF-8 and inside JSON strings. A set of characters becomes one tree of digits (bytes of
 * UTF-8, hexadecimal digits, halves of pairs), as in Thompson's construction for UTF-8: digits with the same rest are one set, so that a
 * class of hundreds of ranges has one way to go on at each byte. One owning thread. */
#include "answers/grammar/exprs.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"

/* ---- numbers as digits ---- */

/* How a digit is written: digits from `low` to `high` at place `left` (0: the last one). */
struct digits {
    int bits, n;
    int32_t (*write)(struct qr_exprs *x, int32_t low, int32_t high, int left, int n);
};

struct headed { int32_t head, rest; };

static int by_rest(const void *a, const void *b)
{
    const struct headed *p = a, *q = b;
    return (p->rest > q->rest) - (p->rest < q->rest);
}

static int by_number(const void *a, const void *b)
{
    const int32_t p = *(const int32_t *)a, q = *(const int32_t *)b;
    return (p > q) - (p < q);
}

/* Any of the parts, heads with the same rest together. The list is made from its end, so that it is made once. */
static int32_t any_headed(struct qr_exprs *x, struct headed *part, int32_t n)
{
    int32_t m = 0, e = QR_EXPR_NONE;
    int32_t *whole = qr_alloc((size_t)n + 1, sizeof *whole);
    qsort(part, (size_t)n, sizeof *part, by_rest);
    for (int32_t i = 0, end; whole && i < n; i = end) {
        int32_t head = QR_EXPR_NONE;
        for (end = i; end < n && part[end].rest == part[i].rest; end++)
            head = qr_expr_or(x, head, part[end].head);
        whole[m++] = qr_expr_cat(x, head, part[i].rest);
    }
    if (whole)
        qsort(whole, (size_t)m, sizeof *whole, by_number);
    while (m > 0)
        e = qr_expr_or(x, whole[--m], e);
    qr_free(whole);
    return e;
}

static int32_t in_ranges(struct qr_exprs *x, const struct digits *d, const struct qr_rune_range *range, int32_t n, int left);

/* All numbers of `left` digits. */
static int32_t any_digits(struct qr_exprs *x, const struct digits *d, int left)
{
    int32_t e = QR_EXPR_EMPTY;
    for (int i = 0; i < left; i++)
        e = qr_expr_cat(x, d->write(x, 0, (1 << d->bits) - 1, i, d->n), e);
    return e;
}

/* What may follow the first digit `digit` of numbers in ranges, of which `range` is the first that reaches so far; scratch has room for n. */
static int32_t rest_of(struct qr_exprs *x, const struct digits *d, int32_t digit, const struct qr_rune_range *range, int32_t n, int left,
                       struct qr_rune_range *scratch)
{
    const int shift = d->bits * (left - 1);
    const int32_t low = digit << shift, high = low + ((1 << shift) - 1);
    int32_t k = 0;
    for (; k < n && range[k].first <= high; k++) {
        const int32_t first = range[k].first < low ? low : range[k].first, last = range[k].last > high ? high : range[k].last;
        scratch[k] = (struct qr_rune_range){first - low, last - low};
    }
    return in_ranges(x, d, scratch, k, left - 1);
}

/* Numbers of `left` digits in the ranges, which are sorted and apart. */
static int32_t in_ranges(struct qr_exprs *x, const struct digits *d, const struct qr_rune_range *range, int32_t n, int left)
{
    if (left == 0 || n == 0)
        return n == 0 ? QR_EXPR_NONE : QR_EXPR_EMPTY;
    const int shift = d->bits * (left - 1);
    struct headed *part = qr_alloc(3 * (size_t)n, sizeof *part);
    struct qr_rune_range *scratch = qr_alloc((size_t)n, sizeof *scratch);
    int32_t k = 0, next = 0; /* next: the first digit that is not written yet */
    for (int32_t i = 0; part && scratch && i < n; i++) {
        const int32_t last = range[i].last >> shift, full = (range[i].last + 1) >> shift; /* digits below `full` are covered to their end */
        int32_t at = range[i].first >> shift;
        if (at < next)
            at = next;
        if (at <= last && (range[i].first > at << shift || at >= full)) { /* partly covered */
            part[k++] = (struct headed){d->write(x, at, at, left - 1, d->n), rest_of(x, d, at, range + i, n - i, left, scratch)};
            at++;
        }
        if (at < full) {
            part[k++] = (struct headed){d->write(x, at, full - 1, left - 1, d->n), any_digits(x, d, left - 1)};
            at = full;
        }
        if (at <= last) {
            part[k++] = (struct headed){d->write(x, at, at, left - 1, d->n), rest_of(x, d, at, range + i, n - i, left, scratch)};
            at++;
        }
        next = at > next ? at : next;
    }
    const int32_t e = part && scratch ? any_headed(x, part, k) : QR_EXPR_NONE;
    qr_free(part);
    qr_free(scratch);
    return e;
}

static int32_t write_utf8(struct qr_exprs *x, int32_t low, int32_t high, int left, int n)
{
    static const uint8_t lead[] = {0, 0x00, 0xC0, 0xE0, 0xF0};
    const int32_t base = left == n - 1 ? lead[n] : 0x80;
    return qr_expr_range(x, (uint8_t)(base + low), (uint8_t)(base + high));
}

static int32_t write_hex(struct qr_exprs *x, int32_t low, int32_t high, int left, int n)
{
    struct qr_byte_set set = {{0}};
    for (int32_t i = low; i <= high; i++) {
        qr_set_put(&set, (uint8_t)"0123456789abcdef"[i]);
        qr_set_put(&set, (uint8_t)"0123456789ABCDEF"[i]);
    }
    return qr_expr_set(x, &set);
}

static int32_t escape(struct qr_exprs *x, const struct qr_rune_range *range, int32_t n)
{
    const struct digits hex = {4, 4, write_hex};
    return qr_expr_cat(x, qr_expr_text(x, "\\u"), in_ranges(x, &hex, range, n, 4));
}

/* Half of a pair of surrogates. */
static int32_t write_half(struct qr_exprs *x, int32_t low, int32_t high, int left, int n)
{
    const int32_t base = left == 1 ? 0xD800 : 0xDC00;
    return escape(x, &(struct qr_rune_range){base + low, base + high}, 1);
}

/* ---- sets of characters ---- */

#define RANGES_MAX 4096

static int by_first(const void *a, const void *b)
{
    const struct qr_rune_range *p = a, *q = b;
    return (p->first > q->first) - (p->first < q->first);
}

/* Sorted, joined, without surrogates. out: owned by the caller, [2 n]; returns their number. */
static int32_t normalise(struct qr_rune_range *out, const struct qr_rune_range *range, int32_t n)
{
    int32_t k = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t first = range[i].first < 0 ? 0 : range[i].first, last = range[i].last > QR_RUNE_MAX ? QR_RUNE_MAX : range[i].last;
        if (first <= 0xD7FF && first <= last)
            out[k++] = (struct qr_rune_range){first, last < 0xD7FF ? last : 0xD7FF};
        if (last >= 0xE000 && first <= last)
            out[k++] = (struct qr_rune_range){first > 0xE000 ? first : 0xE000, last};
    }
    int32_t m = 0;
    qsort(out, (size_t)k, sizeof *out, by_first);
    for (int32_t i = 0; i < k; i++) {
        if (m > 0 && out[i].first <= out[m - 1].last + 1)
            out[m - 1].last = out[i].last > out[m - 1].last ? out[i].last : out[m - 1].last;
        else
            out[m++] = out[i];
    }
    return m;
}

/* What lies in low .. high, less `base`; returns the number of ranges. */
static int32_t within(struct qr_rune_range *out, const struct qr_rune_range *range, int32_t n, int32_t low, int32_t high, int32_t base)
{
    int32_t k = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t a = range[i].first > low ? range[i].first : low, b = range[i].last < high ? range[i].last : high;
        if (a <= b)
            out[k++] = (struct qr_rune_range){a - base, b - base};
    }
    return k;
}

/* Characters in UTF-8. Ranges are as normalise leaves them, scratch is as long. */
static int32_t utf8(struct qr_exprs *x, const struct qr_rune_range *range, int32_t n, struct qr_rune_range *scratch)
{
    static const int32_t end[] = {-1, 0x7F, 0x7FF, 0xFFFF, QR_RUNE_MAX};
    int32_t e = QR_EXPR_NONE;
    for (int len = 1; len <= 4; len++) {
        const struct digits d = {len == 1 ? 8 : 6, len, write_utf8};
        const int32_t k = within(scratch, range, n, end[len - 1] + 1, end[len], 0);
        e = qr_expr_or(x, e, in_ranges(x, &d, scratch, k, len));
    }
    return e;
}

/* Characters in all forms that json.dumps writes. half: as long as range, too. */
static int32_t json(struct qr_exprs *x, const struct qr_rune_range *range, int32_t n, struct qr_rune_range *half, struct qr_rune_range *scratch)
{
    static const struct { char rune, letter; } named[] = {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};
    static const struct { int32_t low, high; } plain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, QR_RUNE_MAX}}, escaped[] = {{0x00, 0x1F}, {0x7F, 0xFFFF}};
    const struct digits pair = {10, 2, write_half};
    int32_t k = 0;
    for (size_t i = 0; i < QR_COUNT(plain); i++)
        k += within(half + k, range, n, plain[i].low, plain[i].high, 0);
    int32_t e = utf8(x, half, k, scratch);
    k = 0;
    for (size_t i = 0; i < QR_COUNT(escaped); i++)
        k += within(half + k, range, n, escaped[i].low, escaped[i].high, 0);
    if (k > 0)
        e = qr_expr_or(x, e, escape(x, half, k));
    k = within(half, range, n, 0x10000, QR_RUNE_MAX, 0x10000);
    e = qr_expr_or(x, e, in_ranges(x, &pair, half, k, 2));
    for (size_t i = 0; i < QR_COUNT(named); i++) {
        const char text[] = {'\\', named[i].letter};
        if (within(half, range, n, named[i].rune, named[i].rune, 0) > 0)
            e = qr_expr_or(x, e, qr_expr_bytes(x, text, 2));
    }
    return e;
}

static int32_t runes(struct qr_exprs *x, const struct qr_rune_range *range, int32_t n, bool in_json)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(range != NULL || n == 0);
    struct qr_rune_range *r = n > RANGES_MAX ? NULL : qr_alloc(2 * (size_t)n + 1, sizeof *r);
    struct qr_rune_range *half = r ? qr_alloc(2 * (size_t)n + 4, sizeof *half) : NULL, *scratch = half ? qr_alloc(2 * (size_t)n + 4, sizeof *scratch) : NULL;
    int32_t e = QR_EXPR_NONE;
    if (scratch) {
        const int32_t m = normalise(r, range, n);
        e = in_json ? json(x, r, m, half, scratch) : utf8(x, r, m, scratch);
    } else {
        struct qr_err err = {0};
        qr_err_set(&err, QR_E_TOO_LARGE, "a class of characters has more than %d ranges", RANGES_MAX);
        qr_expr_fail(x, &err);
    }
    qr_free(r);
    qr_free(half);
    qr_free(scratch);
    return e;
}

int32_t qr_expr_runes(struct qr_exprs *x, const struct qr_rune_range *range, int32_t n)
{
    return runes(x, range, n, false);
}

int32_t qr_expr_json_runes(struct qr_exprs *x, const struct qr_rune_range *range, int32_t n)
{
    return runes(x, range, n, true);
}

int32_t qr_expr_json_char(struct qr_exprs *x)
{
    QR_ASSERT(x != NULL);
    if (!x->json_char)
        x->json_char = qr_expr_json_runes(x, &(struct qr_rune_range){0, QR_RUNE_MAX}, 1);
    return x->json_char;
}

int32_t qr_expr_json_text(struct qr_exprs *x, const char *text, size_t len)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(text != NULL || len == 0);
    int32_t e = QR_EXPR_EMPTY;
    while (len > 0) {
        const uint8_t last = (uint8_t)text[len - 1];
        if (last >= 0x20 && last < 0x7F && last != '"' && last != '\\') { /* the only form of such a character */
            e = qr_expr_cat(x, qr_expr_range(x, last, last), e);
            len--;
            continue;
        }
        const size_t n = qr_utf8_last(text, len);
        uint32_t rune = 0;
        len -= n;
        const int32_t ok = qr_utf8_decode(text + len, n, &rune);
        QR_ASSERT(ok == (int32_t)n);
        e = qr_expr_cat(x, qr_expr_json_runes(x, &(struct qr_rune_range){(int32_t)rune, (int32_t)rune}, 1), e);
    }
    return e;
}
