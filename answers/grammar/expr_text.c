/* expr_text.c - expressions of texts: bytes in a row, characters in UTF-8 and inside JSON strings, any of many texts, texts up to a
 * marker. Ranges of characters become ranges of digits (bytes of UTF-8, hexadecimal digits, pairs of surrogates), as in Thompson's
 * construction for UTF-8; many texts become one tree, so that their number does not show in a step. One owning thread. */
#include "answers/grammar/exprs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"

/* ---- bytes ---- */

int32_t qr_expr_bytes(struct qr_exprs *x, const char *bytes, size_t len)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(bytes != NULL || len == 0);
    int32_t e = QR_EXPR_EMPTY;
    for (size_t i = len; i > 0; i--)
        e = qr_expr_cat(x, qr_expr_range(x, (uint8_t)bytes[i - 1], (uint8_t)bytes[i - 1]), e);
    return e;
}

int32_t qr_expr_text(struct qr_exprs *x, const char *text)
{
    QR_ASSERT(text != NULL);
    return qr_expr_bytes(x, text, strlen(text));
}

int32_t qr_expr_token(struct qr_exprs *x, int32_t id)
{
    char text[16];
    QR_ASSERT(id >= 0);
    const int n = snprintf(text, sizeof text, "\xff%d;", (int)id);
    return qr_expr_bytes(x, text, (size_t)n);
}

/* ---- numbers as digits ---- */

/* How a digit is written: digits from `low` to `high` at place `left` (0: the last one). */
struct digits {
    int bits, n;
    int32_t (*write)(struct qr_exprs *x, int32_t low, int32_t high, int left, int n);
};

/* Numbers low .. high of `left` digits, most significant first. */
static int32_t between(struct qr_exprs *x, const struct digits *d, int32_t low, int32_t high, int left)
{
    if (left == 0)
        return QR_EXPR_EMPTY;
    const int shift = d->bits * (left - 1);
    const int32_t rest = (1 << shift) - 1, a = low >> shift, b = high >> shift;
    const bool from_start = (low & rest) == 0, to_end = (high & rest) == rest;
    if (a == b || (from_start && to_end))
        return qr_expr_cat(x, d->write(x, a, b, left - 1, d->n), a == b ? between(x, d, low & rest, high & rest, left - 1)
                                                                       : between(x, d, 0, rest, left - 1));
    int32_t e = QR_EXPR_NONE;
    const int32_t first = from_start ? a : a + 1, last = to_end ? b : b - 1;
    if (!from_start)
        e = qr_expr_cat(x, d->write(x, a, a, left - 1, d->n), between(x, d, low & rest, rest, left - 1));
    if (first <= last)
        e = qr_expr_or(x, e, qr_expr_cat(x, d->write(x, first, last, left - 1, d->n), between(x, d, 0, rest, left - 1)));
    if (!to_end)
        e = qr_expr_or(x, e, qr_expr_cat(x, d->write(x, b, b, left - 1, d->n), between(x, d, 0, high & rest, left - 1)));
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

static int32_t escape(struct qr_exprs *x, int32_t low, int32_t high)
{
    const struct digits hex = {4, 4, write_hex};
    return qr_expr_cat(x, qr_expr_text(x, "\\u"), between(x, &hex, low, high, 4));
}

static int32_t write_pair(struct qr_exprs *x, int32_t low, int32_t high, int left, int n)
{
    const int32_t base = left == 1 ? 0xD800 : 0xDC00;
    return escape(x, base + low, base + high);
}

/* ---- characters ---- */

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

/* Characters first .. last in UTF-8. */
static int32_t utf8_range(struct qr_exprs *x, int32_t first, int32_t last)
{
    static const int32_t end[] = {0x7F, 0x7FF, 0xFFFF, QR_RUNE_MAX};
    int32_t e = QR_EXPR_NONE;
    for (int n = 1; n <= 4 && first <= last; n++) {
        if (first > end[n - 1])
            continue;
        const int32_t high = last < end[n - 1] ? last : end[n - 1];
        const struct digits d = {n == 1 ? 8 : 6, n, write_utf8};
        e = qr_expr_or(x, e, between(x, &d, first, high, n));
        first = high + 1;
    }
    return e;
}

typedef int32_t range_fn(struct qr_exprs *x, int32_t first, int32_t last);

static int32_t all_ranges(struct qr_exprs *x, const struct qr_rune_range *range, int32_t n, range_fn *make)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(range != NULL || n == 0);
    struct qr_rune_range *r = n > RANGES_MAX ? NULL : qr_alloc(2 * (size_t)n + 1, sizeof *r);
    if (!r) {
        struct qr_err err = {0};
        qr_err_set(&err, QR_E_TOO_LARGE, "a class of characters has more than %d ranges", RANGES_MAX);
        return qr_expr_fail(x, &err);
    }
    int32_t e = QR_EXPR_NONE;
    const int32_t m = normalise(r, range, n);
    for (int32_t i = 0; i < m; i++)
        e = qr_expr_or(x, e, make(x, r[i].first, r[i].last));
    qr_free(r);
    return e;
}

int32_t qr_expr_runes(struct qr_exprs *x, const struct qr_rune_range *range, int32_t n)
{
    return all_ranges(x, range, n, utf8_range);
}

/* Those of first .. last that lie in low .. high. */
static int32_t within(struct qr_exprs *x, int32_t first, int32_t last, int32_t low, int32_t high, range_fn *make)
{
    const int32_t a = first > low ? first : low, b = last < high ? last : high;
    return a <= b ? make(x, a, b) : QR_EXPR_NONE;
}

static int32_t pairs(struct qr_exprs *x, int32_t first, int32_t last)
{
    const struct digits pair = {10, 2, write_pair};
    return between(x, &pair, first - 0x10000, last - 0x10000, 2);
}

static int32_t json_range(struct qr_exprs *x, int32_t first, int32_t last)
{
    static const struct { char rune, letter; } named[] = {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};
    static const struct { int32_t low, high; range_fn *make; } form[] = {
        {0x20, 0x21, utf8_range}, {0x23, 0x5B, utf8_range}, {0x5D, QR_RUNE_MAX, utf8_range},          /* as it stands */
        {0x00, 0x1F, escape}, {0x7F, 0xD7FF, escape}, {0xE000, 0xFFFF, escape}, {0x10000, QR_RUNE_MAX, pairs}};
    int32_t e = QR_EXPR_NONE;
    for (size_t i = 0; i < QR_COUNT(form); i++)
        e = qr_expr_or(x, e, within(x, first, last, form[i].low, form[i].high, form[i].make));
    for (size_t i = 0; i < QR_COUNT(named); i++)
        if (named[i].rune >= first && named[i].rune <= last) {
            const char text[] = {'\\', named[i].letter};
            e = qr_expr_or(x, e, qr_expr_bytes(x, text, 2));
        }
    return e;
}

int32_t qr_expr_json_runes(struct qr_exprs *x, const struct qr_rune_range *range, int32_t n)
{
    return all_ranges(x, range, n, json_range);
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
    for (size_t i = len; i > 0;) {
        size_t start = i - 1;
        while (start > 0 && i - start < 4 && ((uint8_t)text[start] & 0xC0) == 0x80)
            start--;
        int32_t rune = 0;
        for (size_t k = start; k < i; k++)
            rune = k == start ? (i - start == 1 ? (uint8_t)text[k] : (uint8_t)text[k] & (0x7F >> (i - start))) : rune << 6 | ((uint8_t)text[k] & 0x3F);
        e = qr_expr_cat(x, json_range(x, rune, rune), e);
        i = start;
    }
    return e;
}

/* ---- any of many ---- */

struct headed { int32_t head, rest; };

static struct headed headed_of(const struct qr_exprs *x, int32_t e)
{
    const struct qr_expr_node *d = &x->node[e];
    return d->kind == QR_EXPR_K_CAT ? (struct headed){d->a, d->b} : (struct headed){e, QR_EXPR_EMPTY};
}

static int by_number(const void *a, const void *b)
{
    const int32_t p = *(const int32_t *)a, q = *(const int32_t *)b;
    return (p > q) - (p < q);
}

static int by_head(const void *a, const void *b)
{
    const struct headed *p = a, *q = b;
    return p->head != q->head ? by_number(&p->head, &q->head) : by_number(&p->rest, &q->rest);
}

/* Any of part[0..n) as a tree by what they begin with; part is scratch. */
static int32_t tree(struct qr_exprs *x, struct headed *part, int32_t n, int level)
{
    int32_t e = QR_EXPR_NONE, m = 0;
    qsort(part, (size_t)n, sizeof *part, by_head);
    for (int32_t i = 0; i < n; i++)
        if (m == 0 || by_head(&part[m - 1], &part[i]) != 0)
            part[m++] = part[i];
    for (int32_t end = m, at = m; end > 0; end = at) {
        int32_t rest = QR_EXPR_NONE;
        const int32_t head = part[end - 1].head;
        while (at > 0 && part[at - 1].head == head)
            at--;
        if (end - at > 1 && level > 0) {
            for (int32_t i = at; i < end; i++)
                part[i] = headed_of(x, part[i].rest);
            rest = tree(x, part + at, end - at, level - 1);
        } else
            for (int32_t i = at; i < end; i++)
                rest = qr_expr_or(x, rest, part[i].rest);
        e = qr_expr_or(x, qr_expr_cat(x, head, rest), e);
    }
    return e;
}

int32_t qr_expr_any(struct qr_exprs *x, const int32_t *part, int32_t n)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(part != NULL || n == 0);
    struct headed *h = qr_alloc((size_t)n + 1, sizeof *h);
    if (!h) {
        struct qr_err err = {0};
        qr_err_set(&err, QR_E_TOO_LARGE, "there is no memory for %d alternatives", (int)n);
        return qr_expr_fail(x, &err);
    }
    int32_t k = 0;
    for (int32_t i = 0; i < n; i++)
        if (part[i] != QR_EXPR_NONE)
            h[k++] = headed_of(x, part[i]);
    const int32_t e = tree(x, h, k, QR_EXPR_DEPTH_MAX / 4);
    qr_free(h);
    return e;
}

int32_t qr_expr_any_text(struct qr_exprs *x, const char *const *text, const size_t *len, int32_t n)
{
    QR_ASSERT(x != NULL && text != NULL);
    QR_ASSERT(len != NULL || n == 0);
    int32_t *part = qr_alloc((size_t)n + 1, sizeof *part);
    int32_t e = QR_EXPR_NONE;
    for (int32_t i = 0; part && i < n; i++)
        part[i] = qr_expr_bytes(x, text[i], len[i]);
    if (part)
        e = qr_expr_any(x, part, n);
    qr_free(part);
    return e;
}

/* ---- texts without an end of their own ---- */

int32_t qr_expr_anything(struct qr_exprs *x)
{
    QR_ASSERT(x != NULL);
    if (!x->anything) {
        QR_ASSERT(x->n_classes == 0);
        x->anything = qr_expr_repeat(x, qr_expr_range(x, 0, 255), 0, QR_REPEAT_FOREVER);
    }
    return x->anything;
}

int32_t qr_expr_utf8(struct qr_exprs *x)
{
    QR_ASSERT(x != NULL);
    if (!x->utf8)
        x->utf8 = qr_expr_repeat(x, utf8_range(x, 0, QR_RUNE_MAX), 0, QR_REPEAT_FOREVER);
    return x->utf8;
}

int32_t qr_expr_without(struct qr_exprs *x, int32_t stop)
{
    const int32_t all = qr_expr_anything(x);
    return qr_expr_not(x, qr_expr_cat(x, all, qr_expr_cat(x, stop, all)));
}

int32_t qr_expr_until(struct qr_exprs *x, int32_t stop)
{
    const int32_t all = qr_expr_anything(x), more = qr_expr_cat(x, qr_expr_range(x, 0, 255), all);
    return qr_expr_minus(x, qr_expr_cat(x, all, stop), qr_expr_cat(x, all, qr_expr_cat(x, stop, more)));
}
