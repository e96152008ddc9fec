/* gbnf.c - llama.cpp's grammars. A rule may go on over lines until the next `name ::=`, which is more than llama.cpp takes and less than
 * no text of it means. Characters are code points. One thread. */
#include "answers/grammar/syntax.h"

#include <string.h>

#include "answers/grammar/rules.h"
#include "answers/grammar/runes.h"
#include "base/assert.h"

struct gbnf {
    struct qr_reader r;
    struct qr_rules rules;
    const struct qr_vocab *v; /* borrowed */
    struct qr_exprs *x;       /* borrowed */
    int depth;
};

static int read_alternatives(struct gbnf *g, int32_t *out);

static bool is_name(char c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '-' || c == '_';
}

/* Blanks, ends of lines, comments. */
static void skip(struct gbnf *g)
{
    struct qr_reader *r = &g->r;
    while (r->at < r->len) {
        const char c = r->text[r->at];
        if (c == '#') {
            const char *end = memchr(r->text + r->at, '\n', r->len - r->at);
            r->at = end ? (size_t)(end - r->text) : r->len;
        } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
            r->at++;
        } else {
            break;
        }
    }
}

static size_t name_len(const struct qr_reader *r)
{
    size_t n = 0;
    while (r->at + n < r->len && is_name(r->text[r->at + n]))
        n++;
    return n;
}

/* Whether the name here is one that is defined. */
static bool begins_rule(const struct qr_reader *r)
{
    size_t i = r->at + name_len(r);
    while (i < r->len && (r->text[i] == ' ' || r->text[i] == '\t' || r->text[i] == '\n' || r->text[i] == '\r'))
        i++;
    return i > r->at && r->len - i >= 3 && memcmp(r->text + i, "::=", 3) == 0;
}

/* ---- elements ---- */

static int leaf(struct gbnf *g, size_t at, int32_t expr, int32_t *out)
{
    *out = qr_rules_add(&g->rules, QR_RULES_LEAF, expr, at);
    return 0;
}

static int read_text(struct gbnf *g, int32_t *out)
{
    struct qr_buf text = {0};
    const size_t at = g->r.at;
    const int rc = qr_reader_quoted(&g->r, &text);
    if (rc == 0)
        leaf(g, at, qr_expr_bytes(g->x, text.data, text.len), out);
    qr_buf_release(&text);
    return rc;
}

static int read_class_rune(struct gbnf *g, size_t start, int32_t *rune)
{
    if (g->r.at == g->r.len || g->r.text[g->r.at] == '\n')
        return qr_reader_fail(&g->r, QR_E_INVALID, start, "the class '[' is never closed on its line");
    if (qr_reader_is(&g->r, "\\"))
        return qr_reader_escape(&g->r, rune);
    *rune = qr_reader_rune(&g->r);
    return 0;
}

static int read_members(struct gbnf *g, size_t start, struct qr_runes *runes)
{
    struct qr_reader *r = &g->r;
    while (!qr_reader_take(r, "]")) {
        const size_t at = r->at;
        int32_t low, high;
        int rc = read_class_rune(g, start, &low);
        high = low;
        if (rc == 0 && qr_reader_is(r, "-") && r->at + 1 < r->len && r->text[r->at + 1] != ']') {
            r->at++;
            rc = read_class_rune(g, start, &high);
        }
        if (rc == 0 && low > high)
            rc = qr_reader_fail(r, QR_E_INVALID, at, "a range of characters ends before its begin");
        if (rc != 0)
            return rc;
        qr_runes_add(runes, low, high);
    }
    return runes->n > 0 ? 0 : qr_reader_fail(r, QR_E_INVALID, start, "a class without characters");
}

static int read_class(struct gbnf *g, int32_t *out)
{
    struct qr_runes runes = {0};
    const size_t start = g->r.at++;
    const bool negated = qr_reader_take(&g->r, "^");
    const int rc = read_members(g, start, &runes);
    if (rc == 0) {
        qr_runes_settle(&runes);
        if (negated)
            qr_runes_invert(&runes);
        leaf(g, start, qr_expr_runes(g->x, runes.range, runes.n), out);
    }
    qr_runes_release(&runes);
    return rc;
}

static int read_group(struct gbnf *g, int32_t *out)
{
    const size_t start = g->r.at++;
    if (g->depth == QR_GRAMMAR_NESTING_MAX)
        return qr_reader_fail(&g->r, QR_E_TOO_LARGE, start, "groups are nested more than %d deep", QR_GRAMMAR_NESTING_MAX);
    g->depth++;
    const int rc = read_alternatives(g, out);
    g->depth--;
    if (rc != 0)
        return rc;
    return qr_reader_take(&g->r, ")") ? 0 : qr_reader_expected(&g->r, "')'");
}

/* <token>, or !<token>: any other. Texts are matched by bytes, so "any other token" has a meaning where it is repeated: text of any length
 * and tokens, without this one. */
static int read_token(struct gbnf *g, int32_t *out)
{
    const size_t start = g->r.at;
    const bool negated = qr_reader_take(&g->r, "!");
    int32_t e;
    if (!qr_reader_is(&g->r, "<"))
        return qr_reader_expected(&g->r, "a token as <name> or <[id]>");
    const int rc = qr_reader_token(&g->r, g->x, g->v, negated, &e);
    if (rc != 0)
        return rc;
    if (negated) {
        skip(g);
        if (!qr_reader_is(&g->r, "*") && !qr_reader_is(&g->r, "+"))
            return qr_reader_fail(&g->r, QR_E_UNSUPPORTED, start, "'!' before a token is supported with '*' or '+' behind it");
        e = qr_expr_or(g->x, e, qr_expr_range(g->x, 0, 0xFE));
    }
    return leaf(g, start, e, out);
}

static int read_element(struct gbnf *g, int32_t *out)
{
    struct qr_reader *r = &g->r;
    const size_t start = r->at;
    const char c = r->at < r->len ? r->text[r->at] : 0;
    const struct qr_rune_range all = {0, QR_RUNE_MAX};
    switch (c) {
    case '"': return read_text(g, out);
    case '[': return read_class(g, out);
    case '(': return read_group(g, out);
    case '<': case '!': return read_token(g, out);
    case '.':
        r->at++;
        return leaf(g, start, qr_expr_runes(g->x, &all, 1), out);
    default: break;
    }
    const size_t n = name_len(r);
    if (n == 0)
        return qr_reader_expected(r, "a rule's name, a text in quotes, a class, '.' or '('");
    *out = qr_rules_add(&g->rules, QR_RULES_REF, qr_rules_named(&g->rules, r->text + start, n, start), start);
    r->at += n;
    return 0;
}

static int read_repeated(struct gbnf *g, int32_t *out)
{
    struct qr_reader *r = &g->r;
    int rc = read_element(g, out);
    for (int n = 0; rc == 0; n++) {
        int32_t min = 0, max = QR_REPEAT_FOREVER;
        skip(g);
        const size_t at = r->at;
        if (qr_reader_take(r, "+"))
            min = 1;
        else if (qr_reader_take(r, "?"))
            max = 1;
        else if (qr_reader_take(r, "{"))
            rc = qr_reader_braces(r, &min, &max);
        else if (!qr_reader_take(r, "*"))
            break;
        if (rc == 0 && n == QR_GRAMMAR_NESTING_MAX)
            return qr_reader_fail(r, QR_E_TOO_LARGE, at, "more than %d repetitions of one element", QR_GRAMMAR_NESTING_MAX);
        if (rc == 0)
            *out = qr_rules_repeat(&g->rules, *out, min, max, at);
    }
    return rc;
}

/* ---- rules ---- */

static int read_sequence(struct gbnf *g, int32_t *out)
{
    struct qr_reader *r = &g->r;
    *out = qr_rules_add(&g->rules, QR_RULES_CAT, 0, r->at);
    for (;;) {
        int32_t item;
        skip(g);
        if (r->at == r->len || qr_reader_is(r, "|") || qr_reader_is(r, ")") || begins_rule(r))
            return 0;
        const int rc = read_repeated(g, &item);
        if (rc != 0)
            return rc;
        qr_rules_append(&g->rules, *out, item);
    }
}

static int read_alternatives(struct gbnf *g, int32_t *out)
{
    const int32_t all = qr_rules_add(&g->rules, QR_RULES_OR, 0, g->r.at);
    int32_t n = 0;
    do {
        int32_t row;
        const int rc = read_sequence(g, &row);
        if (rc != 0)
            return rc;
        qr_rules_append(&g->rules, all, row);
        *out = n++ == 0 ? row : all;
    } while (qr_reader_take(&g->r, "|"));
    return 0;
}

static int read_rule(struct gbnf *g)
{
    struct qr_reader *r = &g->r;
    const size_t start = r->at, n = name_len(r);
    int32_t body;
    if (n == 0)
        return qr_reader_expected(r, "a rule's name");
    r->at += n;
    skip(g);
    if (!qr_reader_take(r, "::="))
        return qr_reader_expected(r, "'::='");
    int rc = read_alternatives(g, &body);
    if (rc == 0 && qr_reader_is(r, ")"))
        rc = qr_reader_fail(r, QR_E_INVALID, r->at, "')' closes no group");
    if (rc != 0)
        return rc;
    const int32_t rule = qr_rules_named(&g->rules, r->text + start, n, start);
    return qr_rules_define(&g->rules, rule, body, start);
}

int qr_gbnf_parse(int32_t *out, struct qr_exprs *x, const char *text, size_t len, const struct qr_vocab *v, struct qr_err *err)
{
    struct gbnf g = {.v = v, .x = x};
    QR_ASSERT(out != NULL && x != NULL);
    QR_ASSERT(err != NULL);
    int rc = qr_reader_open(&g.r, text, len, err);
    if (rc != 0)
        return rc;
    qr_rules_init(&g.rules, x, &g.r);
    for (skip(&g); rc == 0 && g.r.at < g.r.len; skip(&g))
        rc = read_rule(&g);
    const int32_t root = qr_rules_find(&g.rules, "root");
    if (rc == 0 && (root < 0 || !g.rules.rule[root].body))
        rc = qr_err_set(err, QR_E_INVALID, "the grammar has no rule named root");
    if (rc == 0)
        rc = qr_rules_lower(&g.rules, root, out);
    qr_rules_release(&g.rules);
    return rc;
}
