/* regex.c - from a regular expression's tree to an expression.
 *
 * A node is lowered in the sight of what stands around it: on its left, whether the text's begin is there (`enum left`), and on its
 * right all that follows it in the pattern, up to the text's end, as an expression (`struct rest`). So '^' and '$' hold per alternative
 * (^a|b$), a look-ahead is an intersection with what follows, and a look-behind one with what precedes; \b is both. Parts that do not
 * care are lowered once, on their own. Where what stands around cannot be known - a look in the middle of a repetition - the pattern
 * is refused; what is taken means exactly what it says. Pure.
 */
#include "answers/grammar/regex.h"

#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"

/* What stands before a node: nothing; something, or what a look would need is not known; any text, which the result begins with. */
enum left { AT_BEGIN, INSIDE, ANYWHERE };

/* A language. As what follows: up to the text's end where it is `known`, else the node's own end is all that is said. */
struct rest { int32_t expr; bool null, known; };

#define STEPS_MAX 200000 /* nodes lowered: those that look around are lowered several times */
#define COPIES_MAX 64    /* of a repetition that looks around */

struct lower {
    struct qr_exprs *x;
    const struct qr_rx *rx;
    const char *text;
    enum qr_regex_form form;
    int32_t any;             /* any text, in this form */
    int32_t steps;
    struct qr_buf run;       /* scratch */
    int rc;                  /* the first error, in err */
    struct qr_err *err;
};

static const struct rest none = {QR_EXPR_NONE, false, true}, here = {QR_EXPR_EMPTY, true, false};

static struct rest lower(struct lower *l, int32_t node, enum left left, struct rest rest);

static struct rest refuse(struct lower *l, int32_t node, enum qr_code code, const char *what)
{
    if (l->rc == 0)
        l->rc = qr_err_set(l->err, code, "regular expression, character %d: %s", (int)qr_rx_place(l->text, (size_t)l->rx->node[node].at), what);
    return none;
}

static const struct qr_rx_node *at(const struct lower *l, int32_t node)
{
    return &l->rx->node[node];
}

/* ---- languages ---- */

static struct rest join(struct lower *l, struct rest a, struct rest b)
{
    return (struct rest){qr_expr_or(l->x, a.expr, b.expr), a.null || b.null, a.known && b.known};
}

/* What a's texts followed by b's are, of which b decides how far it is known. */
static struct rest follow(struct lower *l, struct rest a, struct rest b)
{
    if (a.expr == l->any && b.expr == l->any)
        return b;
    return (struct rest){qr_expr_cat(l->x, a.expr, b.expr), a.null && b.null, b.known};
}

static int32_t one_char(struct lower *l)
{
    const struct qr_rune_range all = {0, QR_RUNE_MAX};
    return l->form == QR_REGEX_TEXT ? qr_expr_runes(l->x, &all, 1) : qr_expr_json_char(l->x);
}

static struct rest any_before(struct lower *l, struct rest a)
{
    return follow(l, (struct rest){l->any, true, true}, a);
}

/* Seen from anywhere: at the begin, or inside behind some text. Where nothing is denied at the begin, what matches inside does so there, too. */
static struct rest anywhere(struct lower *l, struct rest begin, struct rest inside, bool not_begin)
{
    inside = any_before(l, inside);
    if (not_begin)
        inside = (struct rest){qr_expr_cat(l->x, one_char(l), inside.expr), false, inside.known};
    return join(l, begin, inside);
}

/* Those of a's texts that are b's, too, or that are not. */
static struct rest both(struct lower *l, struct rest a, struct rest b, bool negated)
{
    struct rest r = {QR_EXPR_NONE, a.null && b.null != negated, a.known};
    if (negated)
        r.expr = b.expr == l->any ? QR_EXPR_NONE : qr_expr_minus(l->x, a.expr, b.expr);
    else
        r.expr = a.expr == l->any ? b.expr : b.expr == l->any ? a.expr : qr_expr_and(l->x, a.expr, b.expr);
    return r;
}

static int32_t set_expr(struct lower *l, const struct qr_runes *runes)
{
    return l->form == QR_REGEX_TEXT ? qr_expr_runes(l->x, runes->range, runes->n) : qr_expr_json_runes(l->x, runes->range, runes->n);
}

static bool is_scalar(int32_t rune)
{
    return rune < 0xD800 || rune > 0xDFFF;
}

/* item[0..n), single characters, as text in front of e. */
static int32_t chars_before(struct lower *l, const int32_t *item, int32_t n, int32_t e)
{
    l->run.len = 0;
    for (int32_t i = 0; i < n; i++) {
        char bytes[4];
        if (!is_scalar(at(l, item[i])->value))
            return QR_EXPR_NONE;
        qr_buf_put(&l->run, bytes, (size_t)qr_utf8_encode((uint32_t)at(l, item[i])->value, bytes));
    }
    const int32_t text = l->form == QR_REGEX_TEXT ? qr_expr_bytes(l->x, l->run.data, l->run.len) : qr_expr_json_text(l->x, l->run.data, l->run.len);
    return qr_expr_cat(l->x, text, e);
}

/* ---- nodes that do not care what stands around ---- */

static int32_t plain(struct lower *l, int32_t node);

static int32_t *items_of(const struct lower *l, int32_t node, int32_t *n)
{
    *n = 0;
    for (int32_t i = at(l, node)->child; i; i = at(l, i)->next)
        ++*n;
    int32_t *item = qr_alloc((size_t)*n + 1, sizeof *item);
    int32_t k = 0;
    for (int32_t i = at(l, node)->child; i; i = at(l, i)->next)
        item[k++] = i;
    return item;
}

/* How many of item[0..n) from the end are single characters. */
static int32_t chars_at_end(const struct lower *l, const int32_t *item, int32_t n)
{
    int32_t k = 0;
    while (k < n && at(l, item[n - 1 - k])->kind == QR_RX_CHAR)
        k++;
    return k;
}

static int32_t plain_row(struct lower *l, int32_t node)
{
    int32_t n, e = QR_EXPR_EMPTY;
    int32_t *item = items_of(l, node, &n);
    while (n > 0) {
        const int32_t k = chars_at_end(l, item, n);
        if (k > 0)
            e = chars_before(l, item + n - k, k, e);
        else
            e = qr_expr_cat(l->x, plain(l, item[n - 1]), e);
        n -= k > 0 ? k : 1;
    }
    qr_free(item);
    return e;
}

static int32_t plain_alternatives(struct lower *l, int32_t node)
{
    int32_t n;
    int32_t *item = items_of(l, node, &n);
    for (int32_t i = 0; i < n; i++)
        item[i] = plain(l, item[i]);
    const int32_t e = qr_expr_any(l->x, item, n);
    qr_free(item);
    return e;
}

static int32_t plain(struct lower *l, int32_t node)
{
    struct qr_rx_node *n = &l->rx->node[node];
    QR_ASSERT(!n->left && !n->right);
    if (n->expr >= 0)
        return n->expr;
    switch (n->kind) {
    case QR_RX_EMPTY: n->expr = QR_EXPR_EMPTY; break;
    case QR_RX_CHAR: n->expr = chars_before(l, &node, 1, QR_EXPR_EMPTY); break;
    case QR_RX_SET: {
        struct qr_rx_set *set = &l->rx->set[n->value];
        if (set->expr < 0)
            set->expr = set_expr(l, &set->runes);
        n->expr = set->expr;
        break;
    }
    case QR_RX_CAT: n->expr = plain_row(l, node); break;
    case QR_RX_ALT: n->expr = plain_alternatives(l, node); break;
    default:
        QR_ASSERT(n->kind == QR_RX_REPEAT);
        n->expr = qr_expr_repeat(l->x, plain(l, n->child), n->min, n->max);
    }
    return n->expr;
}

/* A plain node in front of what follows. Where any text may stand next to it, it need not be longer than it must. */
static struct rest plain_before(struct lower *l, int32_t node, enum left left, struct rest rest)
{
    const struct qr_rx_node *n = at(l, node);
    const bool loose = rest.expr == l->any || left == ANYWHERE;
    struct rest r = rest;
    if (!(loose && n->null)) {
        const bool cut = loose && n->kind == QR_RX_REPEAT && n->min < n->max;
        const int32_t e = cut ? qr_expr_repeat(l->x, plain(l, n->child), n->min, n->min) : plain(l, node);
        r = follow(l, (struct rest){e, n->null, true}, rest);
    }
    return left == ANYWHERE ? any_before(l, r) : r;
}

/* ---- word boundaries ---- */

enum { WORD = 1, OTHER = 2, NOTHING = 4 }; /* what the first (the last) character of a node may be */

static int edge_of_set(const struct qr_runes *runes)
{
    struct qr_runes word = {0};
    int64_t all = 0, words = 0;
    qr_runes_add_all(&word, qr_rx_word, QR_COUNT(qr_rx_word));
    for (int32_t i = 0; i < runes->n; i++)
        all += runes->range[i].last - runes->range[i].first + 1;
    for (int32_t c = '0'; c <= 'z'; c++)
        words += qr_runes_hold(&word, c) && qr_runes_hold(runes, c);
    qr_runes_release(&word);
    return (words > 0 ? WORD : 0) | (all > words ? OTHER : 0);
}

static bool is_word(int32_t rune)
{
    return rune == '_' || (rune >= '0' && rune <= '9') || (rune < 0x80 && (rune | 32) >= 'a' && (rune | 32) <= 'z');
}

static int edge(const struct lower *l, int32_t node, bool first);

static int edge_of_row(const struct lower *l, const int32_t *item, int32_t n, bool first)
{
    int all = 0;
    for (int32_t i = 0; i < n; i++) {
        const int e = edge(l, item[first ? i : n - 1 - i], first);
        all |= e & ~NOTHING;
        if (!(e & NOTHING))
            return all;
    }
    return all | NOTHING;
}

static int edge(const struct lower *l, int32_t node, bool first)
{
    const struct qr_rx_node *n = at(l, node);
    int32_t n_items;
    int all = 0;
    switch (n->kind) {
    case QR_RX_CHAR: return is_word(n->value) ? WORD : OTHER;
    case QR_RX_SET: return edge_of_set(&l->rx->set[n->value].runes);
    case QR_RX_REPEAT: return n->max == 0 ? NOTHING : edge(l, n->child, first) | (n->min == 0 ? NOTHING : 0);
    case QR_RX_CAT: {
        int32_t *item = items_of(l, node, &n_items);
        all = edge_of_row(l, item, n_items, first);
        qr_free(item);
        return all;
    }
    case QR_RX_ALT:
        for (int32_t i = n->child; i; i = at(l, i)->next)
            all |= edge(l, i, first);
        return all;
    default: return NOTHING;
    }
}

/* Those of a's texts whose last (first) character is one of a word, or is none. edge: what it may be at all. */
static struct rest at_edge(struct lower *l, struct rest a, int edge_, bool word, bool last)
{
    struct qr_runes runes = {0};
    if (edge_ == (word ? WORD : OTHER) || a.expr == QR_EXPR_NONE || (!word && a.expr == QR_EXPR_EMPTY))
        return a;
    if (edge_ == (word ? OTHER : WORD) || (word && a.expr == QR_EXPR_EMPTY))
        return (struct rest){QR_EXPR_NONE, false, a.known};
    qr_runes_add_all(&runes, qr_rx_word, QR_COUNT(qr_rx_word));
    if (!word)
        qr_runes_invert(&runes);
    const int32_t one = set_expr(l, &runes);
    qr_runes_release(&runes);
    struct rest filter = {last ? qr_expr_cat(l->x, l->any, one) : qr_expr_cat(l->x, one, l->any), false, a.known};
    if (!word)
        filter = (struct rest){qr_expr_maybe(l->x, filter.expr), true, a.known};
    return both(l, a, filter, false);
}

/* ---- rows ---- */

struct row { const int32_t *item; int32_t n; };

static bool row_is_left(const struct lower *l, struct row row)
{
    bool is = false;
    for (int32_t i = 0; i < row.n; i++)
        is |= at(l, row.item[i])->left;
    return is;
}

static bool row_denies_begin(const struct lower *l, struct row row)
{
    bool denies = false;
    for (int32_t i = 0; i < row.n; i++)
        denies |= at(l, row.item[i])->not_begin;
    return denies;
}

static int32_t row_len_min(const struct lower *l, struct row row)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < row.n; i++)
        sum += at(l, row.item[i])->len_min;
    return sum > QR_REPEAT_FOREVER ? QR_REPEAT_FOREVER : (int32_t)sum;
}

/* Whether no item sees beyond the row's end. */
static bool row_sees_itself(const struct lower *l, struct row row)
{
    int64_t len = 0;
    for (int32_t i = row.n - 1; i >= 0; i--) {
        const struct qr_rx_node *n = at(l, row.item[i]);
        const bool ahead = n->kind == QR_RX_AHEAD && !at(l, n->child)->right && at(l, n->child)->len_max <= len;
        if (n->right && !ahead && !(n->kind == QR_RX_WORD && len > 0))
            return false;
        len += n->len_min;
    }
    return true;
}

/* A look-ahead in front of `rest`, of which `known_len` characters at least are known. */
static struct rest look_ahead(struct lower *l, int32_t node, enum left left, struct rest rest, int32_t known_len)
{
    const struct qr_rx_node *n = at(l, node), *c = at(l, n->child);
    if (!rest.known && (c->right || c->len_max > known_len))
        return refuse(l, node, QR_E_UNSUPPORTED, "a look-ahead within a repetition or a look-behind is not supported");
    const struct rest seen = lower(l, n->child, left, (struct rest){l->any, true, true});
    return both(l, rest, seen, n->negated);
}

static struct rest end_before(struct rest rest)
{
    return rest.known && rest.null ? (struct rest){QR_EXPR_EMPTY, true, true} : (struct rest){QR_EXPR_NONE, false, rest.known};
}

/* What a row from some item on is, seen from the text's begin and from inside. */
struct tails { struct rest begin, inside; };

/* What an item is to know: whether the row is seen from the text's begin; of the items behind it, whether one cares what stands before
 * it, or denies the begin; and how many characters they have at least. */
struct sight { bool from_begin, left_behind, denied_behind; int32_t len_behind; };

static struct tails look_before(struct lower *l, int32_t node, struct tails t, const struct sight *s)
{
    struct tails r = {none, look_ahead(l, node, INSIDE, t.inside, s->len_behind)};
    r.begin = r.inside;
    if (s->from_begin && (at(l, node)->left || s->left_behind))
        r.begin = look_ahead(l, node, AT_BEGIN, t.begin, s->len_behind);
    return r;
}

/* One item in front of the row's tails. */
static struct tails item_before(struct lower *l, int32_t node, struct tails t, const struct sight *s)
{
    const struct qr_rx_node *n = at(l, node);
    if (n->kind == QR_RX_BEGIN)
        return (struct tails){t.begin, {QR_EXPR_NONE, false, t.inside.known}};
    if (n->kind == QR_RX_END)
        return (struct tails){end_before(t.begin), end_before(t.inside)};
    if (n->kind == QR_RX_AHEAD)
        return look_before(l, node, t, s);
    struct tails r = {none, lower(l, node, INSIDE, t.inside)};
    r.begin = r.inside;
    if (s->from_begin && (n->left || n->len_max == 0))
        r.begin = lower(l, node, AT_BEGIN, n->len_max == 0 ? t.begin : t.inside);
    if (!s->from_begin || !s->left_behind || n->len_min > 0 || n->len_max == 0)
        return r;
    if (n->right || n->looks || s->denied_behind)
        return (struct tails){refuse(l, node, QR_E_UNSUPPORTED, "a look or '$' that may be empty in front of '^' is not supported"), none};
    if (n->null || n->null_at_begin)
        r.begin = join(l, r.begin, t.begin);
    return r;
}

/* A row without a look-behind or a word boundary of its own, not seen from ANYWHERE. */
static struct rest row_before(struct lower *l, struct row row, enum left left, struct rest rest)
{
    struct tails t = {rest, rest};
    struct sight s = {.from_begin = left == AT_BEGIN};
    for (int32_t end = row.n; end > 0;) {
        const int32_t k = chars_at_end(l, row.item, end);
        if (k > 0) {
            t.inside.expr = chars_before(l, row.item + end - k, k, t.inside.expr);
            t.inside.null = false;
            t.begin = t.inside;
            s.len_behind = k > QR_REPEAT_FOREVER - s.len_behind ? QR_REPEAT_FOREVER : s.len_behind + k;
            end -= k;
            continue;
        }
        const struct qr_rx_node *n = at(l, row.item[--end]);
        t = item_before(l, row.item[end], t, &s);
        s.left_behind |= n->left;
        s.denied_behind |= n->not_begin;
        s.len_behind = n->len_min > QR_REPEAT_FOREVER - s.len_behind ? QR_REPEAT_FOREVER : s.len_behind + n->len_min;
    }
    return left == AT_BEGIN ? t.begin : t.inside;
}

/* A row that looks behind at item i: what stands before it there is a language of its own, as is what follows. */
static struct rest split_row(struct lower *l, struct row row, int32_t i, enum left left, struct rest rest);

static struct rest lower_row(struct lower *l, struct row row, enum left left, struct rest rest);

/* A row of which the first n_looks items are '^' and look-aheads, all at the same place: each filters what the others leave. */
static struct rest looks_before(struct lower *l, struct row row, int32_t n_looks, enum left left, struct rest rest)
{
    const struct row tail = {row.item + n_looks, row.n - n_looks};
    bool begins = false;
    for (int32_t i = 0; i < n_looks; i++)
        begins |= at(l, row.item[i])->kind == QR_RX_BEGIN;
    if (begins && left == INSIDE)
        return (struct rest){QR_EXPR_NONE, false, rest.known};
    if (left == ANYWHERE && !row_is_left(l, row))
        return any_before(l, looks_before(l, row, n_looks, INSIDE, rest));
    if (left == ANYWHERE && !begins) {
        const struct rest begin = looks_before(l, row, n_looks, AT_BEGIN, rest);
        return anywhere(l, begin, looks_before(l, row, n_looks, INSIDE, rest), true);
    }
    struct rest r = lower_row(l, tail, begins ? AT_BEGIN : left, rest);
    for (int32_t i = 0; i < n_looks; i++)
        if (at(l, row.item[i])->kind == QR_RX_AHEAD)
            r = look_ahead(l, row.item[i], begins ? AT_BEGIN : left, r, row_len_min(l, tail));
    return r;
}

static struct rest lower_row(struct lower *l, struct row row, enum left left, struct rest rest)
{
    int32_t n_looks = 0;
    while (n_looks < row.n && (at(l, row.item[n_looks])->kind == QR_RX_BEGIN || at(l, row.item[n_looks])->kind == QR_RX_AHEAD))
        n_looks++;
    if (n_looks > 0)
        return looks_before(l, row, n_looks, left, rest);
    for (int32_t i = row.n - 1; i >= 0; i--)
        if (at(l, row.item[i])->kind == QR_RX_WORD || at(l, row.item[i])->kind == QR_RX_BEHIND)
            return split_row(l, row, i, left, rest);
    if (left != ANYWHERE)
        return row_before(l, row, left, rest);
    if (!row_is_left(l, row))
        return any_before(l, row_before(l, row, INSIDE, rest));
    const struct row tail = {row.item + 1, row.n - 1};
    if (!row_is_left(l, tail)) /* (^|x)abc */
        return lower(l, row.item[0], ANYWHERE, row_before(l, tail, INSIDE, rest));
    return anywhere(l, row_before(l, row, AT_BEGIN, rest), row_before(l, row, INSIDE, rest), row_denies_begin(l, row));
}

/* Before: the texts before the place. Filters them by what node says of them, and puts `after`, filtered as well, behind. */
static struct rest meet(struct lower *l, int32_t node, struct rest before, int before_edge, struct rest after, int after_edge)
{
    const struct qr_rx_node *n = at(l, node);
    if (n->kind == QR_RX_BEHIND) {
        const struct rest seen = lower(l, n->child, ANYWHERE, here);
        return follow(l, both(l, before, seen, n->negated), after);
    }
    struct rest all = {QR_EXPR_NONE, false, after.known};
    for (int word = 0; word < 2; word++) {
        const struct rest a = at_edge(l, before, before_edge, word, true), b = at_edge(l, after, after_edge, n->negated ? word : !word, false);
        all = join(l, all, follow(l, a, b));
    }
    return all;
}

static struct rest split_row(struct lower *l, struct row row, int32_t i, enum left left, struct rest rest)
{
    const int32_t node = row.item[i];
    const struct row head = {row.item, i}, tail = {row.item + i + 1, row.n - i - 1};
    const bool word = at(l, node)->kind == QR_RX_WORD, head_looks = !row_sees_itself(l, head);
    const int32_t head_len = row_len_min(l, head), need = word ? 1 : at(l, at(l, node)->child)->len_max;
    enum left tail_left = INSIDE;
    if (left == INSIDE && (head_len < need || (!word && at(l, at(l, node)->child)->left)))
        return refuse(l, node, QR_E_UNSUPPORTED, word ? "a word boundary behind what is not known is not supported"
                                                      : "a look-behind behind what is not known is not supported");
    if (row_is_left(l, tail) && left != INSIDE && head_len == 0) { /* '^' behind the look */
        if (head.n > 0 || left == ANYWHERE)
            return refuse(l, node, QR_E_UNSUPPORTED, "a '^' or look in a group behind a look-behind or a word boundary is not supported");
        tail_left = AT_BEGIN;
    }
    const struct rest after = lower_row(l, tail, tail_left, rest);
    if (word && !after.known && row_len_min(l, tail) == 0)
        return refuse(l, node, QR_E_UNSUPPORTED, "a word boundary within a repetition is not supported");
    if (head_looks && !(after.known && after.expr == QR_EXPR_EMPTY))
        return refuse(l, node, QR_E_UNSUPPORTED, "a look-ahead before a look-behind or a word boundary is supported only at the pattern's end");
    const struct rest before = lower_row(l, head, left, head_looks ? after : here);
    int before_edge = edge_of_row(l, head.item, head.n, false), after_edge = edge_of_row(l, tail.item, tail.n, true);
    if (before_edge & NOTHING) /* what stands before the row decides, too */
        before_edge = WORD | OTHER | NOTHING;
    if (after_edge & NOTHING)
        after_edge = WORD | OTHER | NOTHING;
    return meet(l, node, before, before_edge, after, after_edge);
}

/* ---- repetition ---- */

static struct rest repeat_before(struct lower *l, int32_t child, int32_t min, int32_t max, enum left left, struct rest rest);

/* (?:(?!X)C)* at the text's end: no X begins in it. False: node is of another kind. */
static bool tempered(struct lower *l, int32_t child, int32_t min, int32_t max, enum left left, struct rest rest, struct rest *out)
{
    const struct qr_rx_node *c = at(l, child);
    if (c->kind != QR_RX_CAT || !rest.known || rest.expr != QR_EXPR_EMPTY || left == ANYWHERE)
        return false;
    const int32_t look = c->child, one = at(l, look)->next, third = at(l, one)->next;
    const struct qr_rx_node *a = at(l, look);
    if (a->kind != QR_RX_AHEAD || !a->negated || third || at(l, one)->kind > QR_RX_SET || at(l, one)->kind == QR_RX_EMPTY || a->left)
        return false;
    const int32_t text = qr_expr_repeat(l->x, plain(l, one), min, max), some = qr_expr_minus(l->x, l->any, QR_EXPR_EMPTY);
    const struct rest seen = lower(l, a->child, INSIDE, (struct rest){l->any, true, true});
    const int32_t hit = qr_expr_and(l->x, seen.expr, some);
    *out = (struct rest){qr_expr_minus(l->x, text, qr_expr_cat(l->x, l->any, hit)), min == 0, true};
    return true;
}

/* Repetitions one by one, in the sight of each other: at least one, at most max. */
static struct rest copies_before(struct lower *l, int32_t child, int32_t min, int32_t max, enum left left, struct rest rest)
{
    struct rest r = rest;
    for (int32_t i = max - 1; i >= 0; i--) {
        const struct rest one = lower(l, child, i == 0 ? left : INSIDE, r);
        r = i >= min ? join(l, rest, one) : one;
    }
    return r;
}

static struct rest one_or_more(struct lower *l, int32_t child, int32_t max, enum left left, struct rest rest)
{
    if (max == 1)
        return lower(l, child, left, rest);
    const struct rest middle = lower(l, child, INSIDE, here);
    const int32_t more = qr_expr_repeat(l->x, middle.expr, 0, max == QR_REPEAT_FOREVER ? max : max - 1);
    const int32_t many = qr_expr_repeat(l->x, middle.expr, 0, max == QR_REPEAT_FOREVER ? max : max - 2);
    if (!at(l, child)->right)
        return lower(l, child, left, follow(l, (struct rest){more, true, true}, rest));
    const struct rest last = lower(l, child, INSIDE, rest);
    return join(l, lower(l, child, left, rest), lower(l, child, left, follow(l, (struct rest){many, true, true}, last)));
}

/* Of a repetition that cares: the first sees what stands before, the last what follows, those between see neither. */
static struct rest repeat_before(struct lower *l, int32_t child, int32_t min, int32_t max, enum left left, struct rest rest)
{
    const struct qr_rx_node *c = at(l, child);
    struct rest r = {QR_EXPR_NONE, false, rest.known};
    if (max == 0 || tempered(l, child, min, max, left, rest, &r))
        return max == 0 ? rest : r;
    if (c->null)
        min = 0;
    if (rest.expr == l->any) /* further ones would only be a part of it */
        max = min > 1 ? min : min == 1;
    if (max == 0)
        return rest;
    if (c->not_begin && max > 1)
        return refuse(l, child, QR_E_UNSUPPORTED, "a repetition of a look-ahead that holds '^' is not supported");
    if (c->looks && max <= COPIES_MAX && c->len_min > 0)
        return copies_before(l, child, min, max, left, rest);
    if (min > COPIES_MAX)
        return refuse(l, child, QR_E_UNSUPPORTED, "a repetition of '^', '$' or a look has too high a count");
    if (min >= 2) {
        const struct rest tail = repeat_before(l, child, min - 1, max == QR_REPEAT_FOREVER ? max : max - 1, INSIDE, rest);
        r = lower(l, child, left, tail);
        if (left == AT_BEGIN && c->left && c->len_min == 0) {
            if (c->looks || c->right)
                return refuse(l, child, QR_E_UNSUPPORTED, "a repetition of what may be '^' and '$' is not supported");
            if (c->null_at_begin)
                r = join(l, r, repeat_before(l, child, min - 1, max == QR_REPEAT_FOREVER ? max : max - 1, left, rest));
        }
        return r;
    }
    r = one_or_more(l, child, max, left, rest);
    return min == 0 ? join(l, rest, r) : r;
}

static struct rest lower_repeat(struct lower *l, int32_t node, enum left left, struct rest rest)
{
    const struct qr_rx_node *n = at(l, node);
    if (left == ANYWHERE) {
        if (n->max == 1) {
            const struct rest one = lower(l, n->child, ANYWHERE, rest);
            return n->min == 0 ? join(l, any_before(l, rest), one) : one;
        }
        return anywhere(l, repeat_before(l, n->child, n->min, n->max, AT_BEGIN, rest), repeat_before(l, n->child, n->min, n->max, INSIDE, rest),
                        n->not_begin);
    }
    return repeat_before(l, n->child, n->min, n->max, left, rest);
}

/* ---- any node ---- */

static struct rest lower_list(struct lower *l, int32_t node, enum left left, struct rest rest)
{
    int32_t n;
    struct rest r = {QR_EXPR_NONE, false, rest.known};
    if (at(l, node)->kind == QR_RX_ALT) {
        for (int32_t i = at(l, node)->child; i; i = at(l, i)->next)
            r = join(l, r, lower(l, i, left, rest));
        return r;
    }
    int32_t *item = items_of(l, node, &n);
    r = lower_row(l, (struct row){item, n}, left, rest);
    qr_free(item);
    return r;
}

static struct rest lower(struct lower *l, int32_t node, enum left left, struct rest rest)
{
    const struct qr_rx_node *n = at(l, node);
    if (l->rc != 0)
        return none;
    if (++l->steps > STEPS_MAX)
        return refuse(l, node, QR_E_TOO_LARGE, "looks and anchors are nested too deep");
    if (!n->left && !n->right)
        return plain_before(l, node, left, rest);
    if (left == ANYWHERE && !n->left)
        return any_before(l, lower(l, node, INSIDE, rest));
    switch (n->kind) {
    case QR_RX_ALT: case QR_RX_CAT: return lower_list(l, node, left, rest);
    case QR_RX_REPEAT: return lower_repeat(l, node, left, rest);
    case QR_RX_BEGIN: return left == INSIDE ? (struct rest){QR_EXPR_NONE, false, rest.known} : rest;
    default: return lower_row(l, (struct row){&node, 1}, left, rest); /* a look alone */
    }
}

int qr_regex_parse(int32_t *out, struct qr_exprs *x, const char *text, size_t len, enum qr_regex_form form, int flags, struct qr_err *err)
{
    QR_ASSERT(out != NULL && x != NULL);
    QR_ASSERT(err != NULL && (text != NULL || len == 0));
    struct qr_rx rx = {0};
    int rc = qr_rx_read(&rx, text, len, form, flags, err);
    if (rc == 0) {
        const bool json = form != QR_REGEX_TEXT, anywhere = form == QR_REGEX_JSON;
        struct lower l = {.x = x, .rx = &rx, .text = text ? text : "", .form = form, .err = err};
        l.any = json ? qr_expr_repeat(x, qr_expr_json_char(x), 0, QR_REPEAT_FOREVER) : qr_expr_utf8(x);
        *out = lower(&l, rx.root, anywhere ? ANYWHERE : AT_BEGIN, (struct rest){anywhere ? l.any : QR_EXPR_EMPTY, true, true}).expr;
        qr_buf_release(&l.run);
        rc = l.rc;
    }
    qr_rx_release(&rx);
    return rc;
}
