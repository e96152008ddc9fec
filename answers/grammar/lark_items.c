/* lark_items.c - what rules and terminals of a Lark grammar are made of: texts, patterns, ranges, names, groups, tokens, schemas, and
 * what repeats and joins them. At the level of rules each text or pattern is a lexeme, behind which ignored text may stand; within a
 * terminal nothing is ignored. One thread. */
#include "answers/grammar/lark.h"

#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/utf8.h"

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_';
}

size_t qr_lark_name(const struct qr_reader *r)
{
    const char *s = r->text + r->at;
    const size_t left = r->len - r->at;
    size_t n = 0;
    if (left == 0 || (*s >= '0' && *s <= '9'))
        return 0;
    while (n < left && (is_word(s[n]) || (n > 0 && s[n] == '-' && n + 1 < left && is_word(s[n + 1]))))
        n++;
    return n;
}

void qr_lark_skip(struct qr_lark *l)
{
    struct qr_reader *r = &l->r;
    while (r->at < r->len) {
        const char c = r->text[r->at];
        if (c == '#' || qr_reader_is(r, "//")) {
            const char *end = memchr(r->text + r->at, '\n', r->len - r->at);
            r->at = end ? (size_t)(end - r->text) : r->len;
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
            r->at++;
        } else {
            break;
        }
    }
}

/* Whether nothing but blanks stands before the place on its line. */
static bool at_line_begin(const struct qr_reader *r)
{
    size_t i = r->at;
    while (i > 0 && (r->text[i - 1] == ' ' || r->text[i - 1] == '\t' || r->text[i - 1] == '\r'))
        i--;
    return i == 0 || r->text[i - 1] == '\n';
}

size_t qr_lark_object(const struct qr_reader *r)
{
    int64_t depth = 0;
    bool quoted = false;
    for (size_t i = r->at; i < r->len; i++) {
        const char c = r->text[i];
        if (quoted) {
            if (c == '\\')
                i++;
            quoted = c != '"';
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && --depth == 0) {
            return i + 1 - r->at;
        }
    }
    return 0;
}

/* ---- single items ---- */

static int lexeme(struct qr_lark *l, size_t at, int32_t expr, int32_t *out)
{
    *out = qr_rules_add(&l->rules, QR_RULES_LEAF, expr, at);
    if (!l->terminal) {
        const int32_t leaf = *out;
        *out = qr_rules_add(&l->rules, QR_RULES_LEXEME, 0, at);
        qr_rules_append(&l->rules, *out, leaf);
    }
    return 0;
}

static int32_t caseless_text(struct qr_lark *l, const char *text, size_t len)
{
    int32_t e = QR_EXPR_EMPTY;
    while (len > 0) {
        const size_t n = qr_utf8_last(text, len);
        uint32_t rune = 0;
        struct qr_runes runes = {0};
        len -= n;
        qr_utf8_decode(text + len, n, &rune);
        qr_runes_add(&runes, (int32_t)rune, (int32_t)rune);
        qr_runes_fold(&runes, &l->folds);
        e = qr_expr_cat(l->x, qr_expr_runes(l->x, runes.range, runes.n), e);
        qr_runes_release(&runes);
    }
    return e;
}

/* The only character of a text; -1: there are none, or several. */
static int32_t only_rune(const struct qr_buf *text)
{
    uint32_t rune = 0;
    const int32_t n = text->len > 0 ? qr_utf8_decode(text->data, text->len, &rune) : 0;
    return n > 0 && (size_t)n == text->len ? (int32_t)rune : -1;
}

/* ".." and the text behind it: a range of characters. */
static int read_range(struct qr_lark *l, size_t start, const struct qr_buf *first, int32_t *out)
{
    struct qr_buf second = {0};
    qr_lark_skip(l);
    if (!qr_reader_is(&l->r, "\""))
        return qr_reader_expected(&l->r, "a character in quotes");
    int rc = qr_reader_quoted(&l->r, &second);
    const struct qr_rune_range range = {only_rune(first), only_rune(&second)};
    if (rc == 0 && (range.first < 0 || range.last < 0 || range.first > range.last))
        rc = qr_reader_fail(&l->r, QR_E_INVALID, start, "a range goes from one character to one that is not before it");
    qr_buf_release(&second);
    return rc != 0 ? rc : lexeme(l, start, qr_expr_runes(l->x, &range, 1), out);
}

static int read_text(struct qr_lark *l, int32_t *out)
{
    struct qr_buf text = {0};
    struct qr_reader *r = &l->r;
    const size_t start = r->at;
    int rc = qr_reader_quoted(r, &text);
    if (rc != 0) {
        qr_buf_release(&text);
        return rc;
    }
    const bool caseless = qr_reader_is(r, "i") && !(r->at + 1 < r->len && is_word(r->text[r->at + 1]));
    r->at += caseless;
    const size_t end = r->at;
    qr_lark_skip(l);
    if (!caseless && qr_reader_take(r, "..")) {
        rc = read_range(l, start, &text, out);
    } else {
        r->at = end;
        rc = lexeme(l, start, caseless ? caseless_text(l, text.data, text.len) : qr_expr_bytes(l->x, text.data, text.len), out);
    }
    qr_buf_release(&text);
    return rc;
}

/* /pattern/flags */
static int read_pattern(struct qr_lark *l, int32_t *out)
{
    struct qr_reader *r = &l->r;
    const size_t start = r->at++;
    int flags = 0;
    int32_t e;
    while (r->at < r->len && r->text[r->at] != '/' && r->text[r->at] != '\n')
        r->at += r->text[r->at] == '\\' && r->at + 1 < r->len ? 2 : 1;
    if (r->at >= r->len || r->text[r->at] != '/')
        return qr_reader_fail(r, QR_E_INVALID, start, "the pattern '/' is never closed on its line");
    const size_t len = r->at - start - 1;
    for (r->at++; r->at < r->len && is_word(r->text[r->at]); r->at++) {
        const char c = r->text[r->at];
        if (c != 'i' && c != 's' && c != 'u')
            return qr_reader_fail(r, QR_E_UNSUPPORTED, r->at, "the flag %c of a pattern is not supported: i and s are", c);
        flags |= c == 'i' ? QR_REGEX_CASELESS : c == 's' ? QR_REGEX_DOT_ALL : 0;
    }
    const int rc = qr_regex_parse(&e, l->x, r->text + start + 1, len, QR_REGEX_TEXT, flags, r->err);
    if (rc != 0) {
        qr_reader_place(r, start, r->err);
        return rc;
    }
    return lexeme(l, start, e, out);
}

static int read_schema(struct qr_lark *l, int32_t *out)
{
    struct qr_reader *r = &l->r;
    struct qr_json *doc;
    const size_t start = r->at;
    int32_t e;
    r->at += strlen("%json");
    qr_lark_skip(l);
    const size_t len = qr_reader_is(r, "{") ? qr_lark_object(r) : 0;
    if (len == 0)
        return qr_reader_fail(r, QR_E_INVALID, start, "behind %%json a schema in braces was expected");
    if (!l->schema || l->terminal)
        return qr_reader_fail(r, QR_E_UNSUPPORTED, start, l->terminal ? "%%json stands in rules, not in terminals" : "%%json is not supported here");
    int rc = qr_json_parse(&doc, r->text + r->at, len, &qr_json_limits_request, r->err);
    if (rc == 0) {
        rc = l->schema(&e, l->x, doc, l->user, r->err);
        qr_json_free(doc);
    }
    if (rc != 0) {
        qr_reader_place(r, start, r->err);
        return rc;
    }
    r->at += len;
    return lexeme(l, start, e, out);
}

static int read_directive(struct qr_lark *l, int32_t *out)
{
    static const char *const refused[] = {"%regex", "%lark", "%grammar"};
    struct qr_reader *r = &l->r;
    if (qr_reader_is(r, "%json"))
        return read_schema(l, out);
    for (int i = 0; i < QR_COUNT(refused); i++)
        if (qr_reader_is(r, refused[i]))
            return qr_reader_fail(r, QR_E_UNSUPPORTED, r->at, "%s is not supported", refused[i]);
    return qr_reader_expected(r, "a part of a rule");
}

static int read_group(struct qr_lark *l, int32_t *out)
{
    struct qr_reader *r = &l->r;
    const size_t start = r->at;
    const bool optional = r->text[r->at++] == '[';
    if (l->depth == QR_GRAMMAR_NESTING_MAX)
        return qr_reader_fail(r, QR_E_TOO_LARGE, start, "groups are nested more than %d deep", QR_GRAMMAR_NESTING_MAX);
    l->depth++;
    const int rc = qr_lark_alternatives(l, out);
    l->depth--;
    if (rc != 0)
        return rc;
    if (!qr_reader_take(r, optional ? "]" : ")"))
        return qr_reader_expected(r, optional ? "']'" : "')'");
    if (optional)
        *out = qr_rules_repeat(&l->rules, *out, 0, 1, start);
    return 0;
}

static int read_token(struct qr_lark *l, int32_t *out)
{
    const size_t start = l->r.at;
    int32_t e;
    if (l->terminal)
        return qr_reader_fail(&l->r, QR_E_UNSUPPORTED, start, "a special token stands in rules, not in terminals");
    const int rc = qr_reader_token(&l->r, l->x, l->v, false, &e);
    return rc != 0 ? rc : lexeme(l, start, e, out);
}

int qr_lark_item(struct qr_lark *l, int32_t *out)
{
    struct qr_reader *r = &l->r;
    const size_t start = r->at;
    switch (r->at < r->len ? r->text[r->at] : 0) {
    case '"': return read_text(l, out);
    case '/': return read_pattern(l, out);
    case '(': case '[': return read_group(l, out);
    case '<': return read_token(l, out);
    case '%': return read_directive(l, out);
    case '@': return qr_reader_fail(r, QR_E_UNSUPPORTED, start, "grammars that are named by '@' are not supported");
    default: break;
    }
    const size_t n = qr_lark_name(r);
    if (n == 0)
        return qr_reader_expected(r, "a name, a text in quotes, a pattern or a group");
    r->at += n;
    if (qr_reader_is(r, "::"))
        return qr_reader_fail(r, QR_E_UNSUPPORTED, start, "rules with parameters ('::') are not supported");
    *out = qr_rules_add(&l->rules, QR_RULES_REF, qr_rules_named(&l->rules, r->text + start, n, start), start);
    return 0;
}

/* ---- repetition ---- */

static bool digit_follows(const struct qr_reader *r)
{
    size_t i = r->at + 1;
    while (i < r->len && (r->text[i] == ' ' || r->text[i] == '\t'))
        i++;
    return i < r->len && r->text[i] >= '0' && r->text[i] <= '9';
}

/* ~ n, ~ n..m */
static int read_tilde(struct qr_lark *l, int32_t *min, int32_t *max)
{
    struct qr_reader *r = &l->r;
    const size_t start = r->at++;
    qr_lark_skip(l);
    qr_reader_count(r, min);
    *max = *min;
    if (qr_reader_take(r, "..") && !qr_reader_count(r, max))
        return qr_reader_expected(r, "a count");
    return qr_reader_check_counts(r, start, *min, *max);
}

/* What repeats the item, where something does: *any says so. */
static int read_counts(struct qr_lark *l, int32_t *min, int32_t *max, bool *any)
{
    struct qr_reader *r = &l->r;
    *any = true;
    *min = 0;
    *max = QR_REPEAT_FOREVER;
    if (qr_reader_take(r, "*"))
        return 0;
    if (qr_reader_take(r, "+")) {
        *min = 1;
        return 0;
    }
    if (qr_reader_is(r, "?") && !at_line_begin(r)) { /* at a line's begin it belongs to a rule's name */
        r->at++;
        *max = 1;
        return 0;
    }
    if (qr_reader_is(r, "~") && digit_follows(r))
        return read_tilde(l, min, max);
    if (qr_reader_is(r, "{")) {
        const char c = r->at + 1 < r->len ? r->text[r->at + 1] : 0;
        if (is_word(c) && !(c >= '0' && c <= '9'))
            return qr_reader_fail(r, QR_E_UNSUPPORTED, r->at, "templates of rules are not supported");
        r->at++;
        return qr_reader_braces(r, min, max);
    }
    *any = false;
    return 0;
}

static int read_repeated(struct qr_lark *l, int32_t *out)
{
    const size_t start = l->r.at;
    bool any = true, negated = false;
    for (; qr_reader_take(&l->r, "~"); qr_lark_skip(l))
        negated = !negated;
    if (l->r.at > start && !l->terminal)
        return qr_reader_fail(&l->r, QR_E_UNSUPPORTED, start, "'~' before an item is supported in terminals only");
    int rc = qr_lark_item(l, out);
    for (int n = 0; rc == 0 && any; n++) {
        int32_t min, max;
        const size_t end = l->r.at;
        qr_lark_skip(l);
        rc = read_counts(l, &min, &max, &any);
        if (rc == 0 && any && n == QR_GRAMMAR_NESTING_MAX)
            return qr_reader_fail(&l->r, QR_E_TOO_LARGE, end, "more than %d repetitions of one item", QR_GRAMMAR_NESTING_MAX);
        if (rc == 0 && any)
            *out = qr_rules_repeat(&l->rules, *out, min, max, end);
    }
    if (rc == 0 && negated) {
        const int32_t item = *out;
        *out = qr_rules_add(&l->rules, QR_RULES_NOT, 0, start);
        qr_rules_append(&l->rules, *out, item);
    }
    return rc;
}

/* ---- rows ---- */

/* Whether a definition begins here: a name, and ':' or what may stand before it. */
static bool begins_definition(const struct qr_reader *r)
{
    struct qr_reader at = *r;
    while (qr_reader_take(&at, "?") || qr_reader_take(&at, "!"))
        ;
    const size_t n = qr_lark_name(&at);
    at.at += n;
    while (qr_reader_take(&at, " ") || qr_reader_take(&at, "\t"))
        ;
    const char c = at.at < at.len ? at.text[at.at] : 0;
    return n > 0 && (c == ':' || c == '[' || c == '.' || c == '{');
}

static bool begins_statement(const struct qr_reader *r)
{
    static const char *const directives[] = {"%ignore", "%import", "%declare", "%override", "%extend", "%llguidance"};
    for (int i = 0; i < QR_COUNT(directives); i++)
        if (qr_reader_is(r, directives[i]))
            return true;
    return begins_definition(r);
}

static int read_row(struct qr_lark *l, int32_t *out)
{
    struct qr_reader *r = &l->r;
    *out = qr_rules_add(&l->rules, QR_RULES_CAT, 0, r->at);
    for (;;) {
        int32_t item;
        qr_lark_skip(l);
        const char c = r->at < r->len ? r->text[r->at] : 0;
        if (c == 0 || c == '|' || c == '&' || c == ')' || c == ']' || qr_reader_is(r, "->") || (l->depth == 0 && at_line_begin(r) && begins_statement(r)))
            return 0;
        const int rc = read_repeated(l, &item);
        if (rc != 0)
            return rc;
        qr_rules_append(&l->rules, *out, item);
    }
}

/* Rows that all hold: terminals only. */
static int read_conjunction(struct qr_lark *l, int32_t *out)
{
    struct qr_reader *r = &l->r;
    int rc = read_row(l, out);
    if (rc != 0 || !qr_reader_is(r, "&"))
        return rc;
    if (!l->terminal)
        return qr_reader_fail(r, QR_E_UNSUPPORTED, r->at, "'&' is supported in terminals only");
    const int32_t all = qr_rules_add(&l->rules, QR_RULES_AND, 0, r->at);
    qr_rules_append(&l->rules, all, *out);
    while (rc == 0 && qr_reader_take(r, "&")) {
        rc = read_row(l, out);
        if (rc == 0)
            qr_rules_append(&l->rules, all, *out);
    }
    *out = all;
    return rc;
}

static int skip_alias(struct qr_lark *l)
{
    if (!qr_reader_take(&l->r, "->"))
        return 0;
    qr_lark_skip(l);
    const size_t n = qr_lark_name(&l->r);
    if (n == 0)
        return qr_reader_expected(&l->r, "a name");
    l->r.at += n;
    qr_lark_skip(l);
    return 0;
}

int qr_lark_alternatives(struct qr_lark *l, int32_t *out)
{
    const int32_t all = qr_rules_add(&l->rules, QR_RULES_OR, 0, l->r.at);
    int32_t n = 0;
    do {
        int32_t row;
        int rc = read_conjunction(l, &row);
        if (rc == 0)
            rc = skip_alias(l);
        if (rc != 0)
            return rc;
        qr_rules_append(&l->rules, all, row);
        *out = n++ == 0 ? row : all;
    } while (qr_reader_take(&l->r, "|"));
    return 0;
}
