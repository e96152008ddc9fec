/* regex_parse.c - reads a regular expression into a tree, and notes of each node what the lowering has to know: whether it can be empty,
 * how long it is, whether the text around it matters. Length, nesting and counts are bounded. One thread. */
#include "answers/grammar/regex.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"

static int read_alternatives(struct qr_rx_reader *r, int32_t *out);

int32_t qr_rx_place(const char *text, size_t at)
{
    int32_t place = 1;
    for (size_t i = 0; i < at; i++)
        place += ((unsigned char)text[i] & 0xC0) != 0x80;
    return place;
}

int qr_rx_fail(struct qr_rx_reader *r, enum qr_code code, size_t at, const char *fmt, ...)
{
    char what[300];
    va_list args;
    QR_ASSERT(at <= r->n);
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return qr_err_set(r->err, code, "regular expression, character %d: %s", (int)qr_rx_place(r->s, at), what);
}

bool qr_rx_is(const struct qr_rx_reader *r, const char *what)
{
    const size_t n = strlen(what);
    return r->n - r->at >= n && memcmp(r->s + r->at, what, n) == 0;
}

bool qr_rx_take(struct qr_rx_reader *r, const char *what)
{
    const bool is = qr_rx_is(r, what);
    if (is)
        r->at += strlen(what);
    return is;
}

int32_t qr_rx_next(struct qr_rx_reader *r)
{
    uint32_t rune = 0;
    const int32_t n = qr_utf8_decode(r->s + r->at, r->n - r->at, &rune);
    QR_ASSERT(n > 0);
    r->at += (size_t)n;
    return (int32_t)rune;
}

/* ---- nodes ---- */

int32_t qr_rx_intern(struct qr_rx *rx, struct qr_runes *runes)
{
    uint32_t hash = 1;
    for (int32_t i = 0; i < runes->n; i++)
        hash = (hash ^ (uint32_t)runes->range[i].first * 31u ^ (uint32_t)runes->range[i].last) * 0x9E3779B1u;
    int32_t *bucket = &rx->bucket[(hash >> 16) % QR_RX_BUCKETS];
    for (int32_t i = *bucket; i > 0; i = rx->set[i - 1].next) {
        const struct qr_rx_set *s = &rx->set[i - 1];
        if (s->hash == hash && s->runes.n == runes->n &&
            (runes->n == 0 || memcmp(s->runes.range, runes->range, (size_t)runes->n * sizeof *runes->range) == 0)) {
            qr_runes_release(runes);
            return i - 1;
        }
    }
    rx->set = QR_GROW(rx->set, rx->n_sets, rx->cap_sets);
    rx->set[rx->n_sets] = (struct qr_rx_set){.runes = *runes, .hash = hash, .next = *bucket, .expr = -1};
    *runes = (struct qr_runes){0};
    *bucket = ++rx->n_sets;
    return rx->n_sets - 1;
}

static int32_t add(struct qr_rx_reader *r, size_t at, struct qr_rx_node node)
{
    struct qr_rx *rx = r->rx;
    node.at = (int32_t)at;
    node.expr = -1;
    rx->node = QR_GROW(rx->node, rx->n, rx->cap);
    rx->node[rx->n] = node;
    return rx->n++;
}

static int32_t add_char(struct qr_rx_reader *r, size_t at, int32_t rune)
{
    if (r->flags & QR_REGEX_CASELESS) {
        struct qr_runes runes = {0};
        qr_runes_add(&runes, rune, rune);
        qr_runes_fold(&runes, &r->folds);
        const bool cased = runes.n > 1 || runes.range[0].first < runes.range[0].last;
        const int32_t set = cased ? qr_rx_intern(r->rx, &runes) : -1;
        qr_runes_release(&runes);
        if (cased)
            return add(r, at, (struct qr_rx_node){.kind = QR_RX_SET, .value = set, .len_min = 1, .len_max = 1});
    }
    return add(r, at, (struct qr_rx_node){.kind = QR_RX_CHAR, .value = rune, .len_min = 1, .len_max = 1});
}

static int32_t add_set(struct qr_rx_reader *r, size_t at, int32_t set)
{
    return add(r, at, (struct qr_rx_node){.kind = QR_RX_SET, .value = set, .len_min = 1, .len_max = 1});
}

static int32_t len_sum(int32_t a, int32_t b)
{
    return a > QR_REPEAT_FOREVER - b ? QR_REPEAT_FOREVER : a + b;
}

static int32_t len_product(int32_t a, int32_t b)
{
    const int64_t product = (int64_t)a * b;
    return a && b && (a == QR_REPEAT_FOREVER || b == QR_REPEAT_FOREVER || product > QR_REPEAT_FOREVER) ? QR_REPEAT_FOREVER : (int32_t)product;
}

/* A CAT or an ALT of the children that begin with `first`. */
static int32_t add_list(struct qr_rx_reader *r, size_t at, enum qr_rx_kind kind, int32_t first)
{
    const bool cat = kind == QR_RX_CAT;
    struct qr_rx_node node = {.kind = kind, .child = first, .null = cat, .null_at_begin = cat, .len_min = cat ? 0 : QR_REPEAT_FOREVER};
    for (int32_t i = first; i; i = r->rx->node[i].next) {
        const struct qr_rx_node *c = &r->rx->node[i];
        node.left |= c->left;
        node.right |= c->right;
        node.looks |= c->looks;
        node.not_begin |= c->not_begin;
        node.null = cat ? node.null && c->null : node.null || c->null;
        node.null_at_begin = cat ? node.null_at_begin && c->null_at_begin : node.null_at_begin || c->null_at_begin;
        if (cat) {
            node.len_min = len_sum(node.len_min, c->len_min);
            node.len_max = len_sum(node.len_max, c->len_max);
        } else {
            node.len_min = c->len_min < node.len_min ? c->len_min : node.len_min;
            node.len_max = c->len_max > node.len_max ? c->len_max : node.len_max;
        }
    }
    return add(r, at, node);
}

static int32_t add_assertion(struct qr_rx_reader *r, size_t at, enum qr_rx_kind kind, bool negated, int32_t child)
{
    struct qr_rx_node node = {.kind = kind, .negated = negated, .child = child};
    node.left = kind == QR_RX_BEGIN || kind == QR_RX_WORD || kind == QR_RX_BEHIND || (kind == QR_RX_AHEAD && r->rx->node[child].left);
    node.right = kind == QR_RX_END || kind == QR_RX_WORD || kind == QR_RX_AHEAD;
    node.looks = kind == QR_RX_WORD || kind == QR_RX_AHEAD || kind == QR_RX_BEHIND;
    node.not_begin = kind == QR_RX_AHEAD && (r->rx->node[child].not_begin || (negated && r->rx->node[child].left));
    node.null_at_begin = kind == QR_RX_BEGIN;
    return add(r, at, node);
}

static int32_t add_repeat(struct qr_rx_reader *r, size_t at, int32_t child, int32_t min, int32_t max)
{
    const struct qr_rx_node c = r->rx->node[child];
    struct qr_rx_node node = {.kind = QR_RX_REPEAT, .child = child, .min = min, .max = max, .left = c.left, .right = c.right, .looks = c.looks,
                              .not_begin = c.not_begin};
    node.null = min == 0 || c.null;
    node.null_at_begin = min == 0 || c.null_at_begin;
    node.len_min = len_product(c.len_min, min);
    node.len_max = len_product(c.len_max, max);
    return add(r, at, node);
}

/* ---- atoms ---- */

static int read_escape(struct qr_rx_reader *r, int32_t *out)
{
    struct qr_rx_escaped e;
    const size_t at = r->at;
    const int rc = qr_rx_read_escape(r, false, &e);
    if (rc == 0 && e.kind == QR_RX_CLASS) {
        if (e.cased && (r->flags & QR_REGEX_CASELESS))
            qr_runes_fold(&e.runes, &r->folds);
        *out = add_set(r, at, qr_rx_intern(r->rx, &e.runes));
    } else if (rc == 0) {
        *out = e.kind == QR_RX_ONE ? add_char(r, at, e.rune) : add_assertion(r, at, e.assertion, e.negated, 0);
    }
    qr_runes_release(&e.runes);
    return rc;
}

static int32_t add_dot(struct qr_rx_reader *r, size_t at)
{
    struct qr_runes runes = {0};
    if (!(r->flags & QR_REGEX_DOT_ALL)) {
        qr_runes_add(&runes, '\n', '\n');
        if (r->form != QR_REGEX_TEXT) { /* ECMAScript's line ends; Python and Rust know the first one */
            qr_runes_add(&runes, '\r', '\r');
            qr_runes_add(&runes, 0x2028, 0x2029);
        }
    }
    qr_runes_invert(&runes);
    return add_set(r, at, qr_rx_intern(r->rx, &runes));
}

static int read_atom(struct qr_rx_reader *r, int32_t *out);

/* Behind "(?": letters and '-', then ':' or ')'. */
static int read_flags(struct qr_rx_reader *r, size_t start, bool *group)
{
    int on = 0, off = 0;
    bool minus = false;
    for (;; r->at++) {
        const char c = r->at < r->n ? r->s[r->at] : 0;
        if (c == ':' || c == ')')
            break;
        if (c == '-' && !minus)
            minus = true;
        else if (c == 'i' || c == 's')
            *(minus ? &off : &on) |= c == 'i' ? QR_REGEX_CASELESS : QR_REGEX_DOT_ALL;
        else if (c == 'u' && !minus)
            continue; /* characters are those of Unicode anyway */
        else if (c == 'm' || c == 'x' || c == 'a' || c == 'L' || c == 'U' || c == 'u' || c == 'R' || c == 'n' || c == 'J')
            return qr_rx_fail(r, QR_E_UNSUPPORTED, start, "the flag %c is not supported: i and s are", c);
        else
            return qr_rx_fail(r, QR_E_INVALID, start, "behind '(?' a kind of group was expected");
    }
    *group = r->s[r->at++] == ':';
    r->flags = (r->flags | on) & ~off;
    return 0;
}

struct group { enum qr_rx_kind look; bool negated, empty; };

static int read_group_name(struct qr_rx_reader *r, size_t start)
{
    const size_t begin = r->at;
    while (r->at < r->n && r->s[r->at] != '>' && r->s[r->at] != ')')
        r->at++;
    if (r->at == begin || !qr_rx_take(r, ">"))
        return qr_rx_fail(r, QR_E_INVALID, start, "a group's name and '>' were expected");
    return 0;
}

/* What stands behind '('. */
static int read_group_kind(struct qr_rx_reader *r, size_t start, struct group *g)
{
    static const struct { const char *text; enum qr_rx_kind look; bool negated; } looks[] = {
        {"=", QR_RX_AHEAD, false}, {"!", QR_RX_AHEAD, true}, {"<=", QR_RX_BEHIND, false}, {"<!", QR_RX_BEHIND, true}};
    static const struct { const char *text, *what; } refused[] = {
        {">", "atomic groups are not supported"}, {"|", "branch reset groups are not supported"}, {"(", "conditions are not regular"},
        {"P=", "back references are not regular"}, {"P>", "recursion is not regular"}, {"R", "recursion is not regular"},
        {"&", "recursion is not regular"}, {"+", "recursion is not regular"}};
    *g = (struct group){.look = QR_RX_EMPTY};
    if (!qr_rx_take(r, "?"))
        return 0;
    for (int i = 0; i < QR_COUNT(looks); i++) {
        if (qr_rx_take(r, looks[i].text)) {
            *g = (struct group){.look = looks[i].look, .negated = looks[i].negated};
            return 0;
        }
    }
    for (int i = 0; i < QR_COUNT(refused); i++)
        if (qr_rx_is(r, refused[i].text))
            return qr_rx_fail(r, QR_E_UNSUPPORTED, start, "%s", refused[i].what);
    if (qr_rx_take(r, "P<") || qr_rx_take(r, "<"))
        return read_group_name(r, start);
    if (qr_rx_take(r, "#")) {
        const char *close = memchr(r->s + r->at, ')', r->n - r->at);
        if (!close)
            return qr_rx_fail(r, QR_E_INVALID, start, "the comment '(?#' is never closed");
        r->at = (size_t)(close - r->s) + 1;
        g->empty = true;
        return 0;
    }
    bool group = false;
    const int rc = read_flags(r, start, &group);
    g->empty = !group;
    return rc;
}

static int read_group(struct qr_rx_reader *r, int32_t *out)
{
    const size_t start = r->at++;
    const int before = r->flags;
    struct group g;
    int rc = read_group_kind(r, start, &g);
    if (rc != 0)
        return rc;
    if (g.empty) { /* a comment, or flags for the rest of the group around */
        *out = add(r, start, (struct qr_rx_node){.kind = QR_RX_EMPTY, .null = true, .null_at_begin = true});
        return 0;
    }
    if (r->depth == QR_RX_NESTING_MAX)
        return qr_rx_fail(r, QR_E_TOO_LARGE, start, "groups are nested more than %d deep", QR_RX_NESTING_MAX);
    r->depth++;
    rc = read_alternatives(r, out);
    r->depth--;
    r->flags = before;
    if (rc == 0 && !qr_rx_take(r, ")"))
        rc = qr_rx_fail(r, QR_E_INVALID, start, "the group '(' is never closed");
    if (rc != 0 || g.look == QR_RX_EMPTY)
        return rc;
    if (g.look == QR_RX_BEHIND && r->rx->node[*out].right)
        return qr_rx_fail(r, QR_E_UNSUPPORTED, start, "a look-behind that looks ahead is not supported");
    *out = add_assertion(r, start, g.look, g.negated, *out);
    return 0;
}

/* ---- repetition ---- */

static bool take_count(struct qr_rx_reader *r, int32_t *out)
{
    const size_t begin = r->at;
    int64_t value = 0;
    for (; r->at < r->n && r->s[r->at] >= '0' && r->s[r->at] <= '9'; r->at++)
        value = value > QR_RX_REPEAT_MAX ? value : value * 10 + (r->s[r->at] - '0');
    *out = (int32_t)value;
    return r->at > begin;
}

/* {m}, {m,}, {m,n}, and {,n} where it is no text (it is in ECMAScript). Else r stays where it is. */
static bool take_braces(struct qr_rx_reader *r, int32_t *min, int32_t *max)
{
    const size_t start = r->at;
    if (!qr_rx_take(r, "{"))
        return false;
    const bool has_min = take_count(r, min);
    bool has_max = false, ok = has_min;
    *max = *min;
    if (qr_rx_take(r, ",")) {
        has_max = take_count(r, max);
        if (!has_max)
            *max = QR_REPEAT_FOREVER;
        ok = has_min || (has_max && r->form == QR_REGEX_TEXT);
    }
    if (ok && qr_rx_take(r, "}"))
        return true;
    r->at = start;
    return false;
}

static bool take_quantifier(struct qr_rx_reader *r, int32_t *min, int32_t *max)
{
    static const struct { char sign; int32_t min, max; } signs[] = {{'*', 0, QR_REPEAT_FOREVER}, {'+', 1, QR_REPEAT_FOREVER}, {'?', 0, 1}};
    for (int i = 0; r->at < r->n && i < QR_COUNT(signs); i++) {
        if (r->s[r->at] == signs[i].sign) {
            *min = signs[i].min;
            *max = signs[i].max;
            r->at++;
            return true;
        }
    }
    return take_braces(r, min, max);
}

static int read_repeated(struct qr_rx_reader *r, int32_t *out)
{
    const size_t start = r->at;
    int32_t min, max, again[2];
    const int rc = read_atom(r, out);
    const size_t at = r->at;
    if (rc != 0 || !take_quantifier(r, &min, &max))
        return rc;
    const struct qr_rx_node *n = &r->rx->node[*out];
    if (n->kind == QR_RX_AHEAD || n->kind == QR_RX_BEHIND)
        return qr_rx_fail(r, QR_E_UNSUPPORTED, at, "a repeated look-ahead or look-behind is not supported");
    if (n->kind == QR_RX_BEGIN || n->kind == QR_RX_END || n->kind == QR_RX_WORD || n->kind == QR_RX_EMPTY)
        if (r->s[at - 1] != ')') /* a group's content may be repeated, whatever it is */
            return qr_rx_fail(r, QR_E_INVALID, at, "there is nothing to repeat");
    if (min > max)
        return qr_rx_fail(r, QR_E_INVALID, at, "a repetition has a maximum below its minimum");
    if (min > QR_RX_REPEAT_MAX || (max > QR_RX_REPEAT_MAX && max != QR_REPEAT_FOREVER))
        return qr_rx_fail(r, QR_E_TOO_LARGE, at, "a repetition has a count above %d", QR_RX_REPEAT_MAX);
    if (qr_rx_is(r, "+"))
        return qr_rx_fail(r, QR_E_UNSUPPORTED, at, "possessive repetition is not supported");
    qr_rx_take(r, "?");
    const size_t second = r->at;
    if (take_quantifier(r, &again[0], &again[1]))
        return qr_rx_fail(r, QR_E_INVALID, second, "a repetition of a repetition needs a group");
    *out = add_repeat(r, start, *out, min, max);
    return 0;
}

static int read_atom(struct qr_rx_reader *r, int32_t *out)
{
    const size_t start = r->at;
    int32_t set, min, max;
    const char c = r->s[r->at];
    switch (c) {
    case '(': return read_group(r, out);
    case '\\': return read_escape(r, out);
    case '^': case '$':
        r->at++;
        *out = add_assertion(r, start, c == '^' ? QR_RX_BEGIN : QR_RX_END, false, 0);
        return 0;
    case '.':
        r->at++;
        *out = add_dot(r, start);
        return 0;
    case '[': {
        const int rc = qr_rx_read_class(r, &set);
        if (rc == 0)
            *out = add_set(r, start, set);
        return rc;
    }
    default: break;
    }
    if (take_quantifier(r, &min, &max))
        return qr_rx_fail(r, QR_E_INVALID, start, "there is nothing to repeat");
    *out = add_char(r, start, qr_rx_next(r));
    return 0;
}

/* ---- lists ---- */

struct list { int32_t first, last, n; };

static void append(struct qr_rx_reader *r, struct list *l, int32_t node)
{
    QR_ASSERT(r->rx->node[node].next == 0);
    if (l->n++ == 0)
        l->first = node;
    else
        r->rx->node[l->last].next = node;
    l->last = node;
}

/* A row in a row is a part of it: so the looks of a group see what stands beside the group. */
static void append_all(struct qr_rx_reader *r, struct list *l, int32_t node)
{
    if (r->rx->node[node].kind != QR_RX_CAT) {
        append(r, l, node);
        return;
    }
    for (int32_t i = r->rx->node[node].child, next; i; i = next) {
        next = r->rx->node[i].next;
        r->rx->node[i].next = 0;
        append(r, l, i);
    }
}

static int read_row(struct qr_rx_reader *r, int32_t *out)
{
    const size_t start = r->at;
    struct list l = {0};
    while (r->at < r->n && r->s[r->at] != '|' && r->s[r->at] != ')') {
        int32_t item;
        const int rc = read_repeated(r, &item);
        if (rc != 0)
            return rc;
        append_all(r, &l, item);
    }
    if (l.n == 0)
        *out = add(r, start, (struct qr_rx_node){.kind = QR_RX_EMPTY, .null = true, .null_at_begin = true});
    else
        *out = l.n == 1 ? l.first : add_list(r, start, QR_RX_CAT, l.first);
    return 0;
}

static int read_alternatives(struct qr_rx_reader *r, int32_t *out)
{
    const size_t start = r->at;
    struct list l = {0};
    do {
        int32_t row;
        const int rc = read_row(r, &row);
        if (rc != 0)
            return rc;
        append(r, &l, row);
    } while (qr_rx_take(r, "|"));
    *out = l.n == 1 ? l.first : add_list(r, start, QR_RX_ALT, l.first);
    return 0;
}

int qr_rx_read(struct qr_rx *rx, const char *text, size_t len, enum qr_regex_form form, int flags, struct qr_err *err)
{
    QR_ASSERT(rx != NULL && err != NULL);
    QR_ASSERT(text != NULL || len == 0);
    struct qr_rx_reader r = {.s = text ? text : "", .n = len, .rx = rx, .form = form, .flags = flags, .err = err};
    if (len > QR_RX_TEXT_MAX)
        return qr_err_set(err, QR_E_TOO_LARGE, "a regular expression of %zu bytes; at most %d are taken", len, QR_RX_TEXT_MAX);
    const size_t valid = qr_utf8_valid_prefix(r.s, len);
    if (valid < len)
        return qr_rx_fail(&r, QR_E_INVALID, valid, "the pattern is not valid UTF-8");
    add(&r, 0, (struct qr_rx_node){.kind = QR_RX_EMPTY});
    int rc = read_alternatives(&r, &rx->root);
    if (rc == 0 && r.at < len)
        rc = qr_rx_fail(&r, QR_E_INVALID, r.at, "')' closes no group");
    qr_folds_release(&r.folds);
    return rc;
}

void qr_rx_release(struct qr_rx *rx)
{
    for (int32_t i = 0; i < rx->n_sets; i++)
        qr_runes_release(&rx->set[i].runes);
    qr_free(rx->set);
    qr_free(rx->node);
    *rx = (struct qr_rx){0};
}
