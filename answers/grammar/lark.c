/* lark.c - llguidance's variant of Lark grammars: its statements, and the expression of the rule `start`.
 *
 * Terminals are matched where the rules ask for them, not by a lexer that takes the longest of all: what the grammar allows is every way
 * to read the text (Lark's dynamic lexer). What %ignore names may stand behind each lexeme, and in front of the first. Attributes that
 * are no matter of the language (capture) are ignored, those that cannot be held (max_tokens, temperature) are refused. One thread. */
#include "answers/grammar/lark.h"

#include <string.h>

#include "base/assert.h"

/* ---- the library ---- */

#define EXPONENT "[eE][+-]?[0-9]+"
#define DECIMAL "([0-9]+\\.[0-9]*|\\.[0-9]+)"
#define FLOAT "([0-9]+" EXPONENT "|" DECIMAL "(" EXPONENT ")?)"

static const struct { const char *name, *pattern; } common[] = {
    {"DIGIT", "[0-9]"}, {"HEXDIGIT", "[0-9A-Fa-f]"}, {"INT", "[0-9]+"}, {"SIGNED_INT", "[+-]?[0-9]+"}, {"DECIMAL", DECIMAL}, {"_EXP", EXPONENT},
    {"FLOAT", FLOAT}, {"SIGNED_FLOAT", "[+-]?" FLOAT}, {"NUMBER", FLOAT "|[0-9]+"}, {"SIGNED_NUMBER", "[+-]?(" FLOAT "|[0-9]+)"},
    {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\.)*\""}, {"_STRING_INNER", ".*"}, {"_STRING_ESC_INNER", "([^\\\\\\n]|\\\\.)*"},
    {"LCASE_LETTER", "[a-z]"}, {"UCASE_LETTER", "[A-Z]"}, {"LETTER", "[A-Za-z]"}, {"WORD", "[A-Za-z]+"}, {"CNAME", "[_A-Za-z][_A-Za-z0-9]*"},
    {"WS_INLINE", "[ \\t]+"}, {"WS", "[ \\t\\f\\r\\n]+"}, {"CR", "\\r"}, {"LF", "\\n"}, {"NEWLINE", "(\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"}, {"CPP_COMMENT", "//[^\\n]*"}, {"C_COMMENT", "/\\*([^*]|\\*+[^*/])*\\*+/"}, {"SQL_COMMENT", "--[^\\n]*"},
};

const char *qr_lark_common(const char *name, size_t len)
{
    QR_ASSERT(name != NULL);
    for (int i = 0; i < QR_COUNT(common); i++)
        if (strlen(common[i].name) == len && memcmp(common[i].name, name, len) == 0)
            return common[i].pattern;
    return NULL;
}

/* ---- statements with % ---- */

/* common.NAME under the name `alias`. */
static int import(struct qr_lark *l, size_t at, const char *name, size_t len, const char *alias, size_t alias_len)
{
    const char *pattern = qr_lark_common(name, len);
    int32_t e;
    if (!pattern)
        return qr_reader_fail(&l->r, QR_E_UNSUPPORTED, at, "the library has no terminal common.%.*s", len < 60 ? (int)len : 60, name);
    const int rc = qr_regex_parse(&e, l->x, pattern, strlen(pattern), QR_REGEX_TEXT, 0, l->r.err);
    QR_ASSERT(rc == 0);
    const int32_t rule = qr_rules_named(&l->rules, alias, alias_len, at);
    l->rules.rule[rule].terminal = true;
    return qr_rules_define(&l->rules, rule, qr_rules_add(&l->rules, QR_RULES_LEAF, e, at), at);
}

static int read_name(struct qr_lark *l, const char **name, size_t *len)
{
    qr_lark_skip(l);
    *name = l->r.text + l->r.at;
    *len = qr_lark_name(&l->r);
    l->r.at += *len;
    return *len > 0 ? 0 : qr_reader_expected(&l->r, "a name");
}

/* (A, B) */
static int import_list(struct qr_lark *l)
{
    do {
        const char *name;
        size_t len;
        int rc = read_name(l, &name, &len);
        if (rc == 0)
            rc = import(l, (size_t)(name - l->r.text), name, len, name, len);
        if (rc != 0)
            return rc;
        qr_lark_skip(l);
    } while (qr_reader_take(&l->r, ","));
    return qr_reader_take(&l->r, ")") ? 0 : qr_reader_expected(&l->r, "')'");
}

static int read_import(struct qr_lark *l)
{
    struct qr_reader *r = &l->r;
    const char *name, *alias;
    size_t len, alias_len;
    qr_lark_skip(l);
    const size_t start = r->at;
    int rc = qr_reader_is(r, ".") ? 0 : read_name(l, &name, &len);
    if (rc != 0)
        return rc;
    if (start == r->at || len != 6 || memcmp(name, "common", 6) != 0)
        return qr_reader_fail(r, QR_E_UNSUPPORTED, start, "only the library `common` can be imported");
    if (!qr_reader_take(r, ".")) {
        qr_lark_skip(l);
        return qr_reader_take(r, "(") ? import_list(l) : qr_reader_expected(r, "'.' and a name, or names in parentheses");
    }
    rc = read_name(l, &name, &len);
    if (rc != 0)
        return rc;
    const size_t end = r->at;
    alias = name;
    alias_len = len;
    qr_lark_skip(l);
    if (qr_reader_take(r, "->"))
        rc = read_name(l, &alias, &alias_len);
    else
        r->at = end;
    return rc != 0 ? rc : import(l, start, name, len, alias, alias_len);
}

static int read_ignore(struct qr_lark *l)
{
    int32_t body;
    l->terminal = true;
    const int rc = qr_lark_alternatives(l, &body);
    l->terminal = false;
    if (rc != 0)
        return rc;
    if (!l->ignored)
        l->ignored = qr_rules_add(&l->rules, QR_RULES_OR, 0, l->r.at);
    qr_rules_append(&l->rules, l->ignored, body);
    return 0;
}

/* %llguidance {...}: how that library is to run. Nothing in it is a part of the language. */
static int skip_options(struct qr_lark *l)
{
    qr_lark_skip(l);
    const size_t len = qr_reader_is(&l->r, "{") ? qr_lark_object(&l->r) : 0;
    l->r.at += len;
    return len > 0 ? 0 : qr_reader_expected(&l->r, "options in braces");
}

static int read_percent(struct qr_lark *l)
{
    static const struct { const char *name; int (*read)(struct qr_lark *l); } statements[] = {
        {"%ignore", read_ignore}, {"%import", read_import}, {"%llguidance", skip_options}};
    struct qr_reader *r = &l->r;
    const size_t start = r->at;
    for (int i = 0; i < QR_COUNT(statements); i++)
        if (qr_reader_take(r, statements[i].name))
            return statements[i].read(l);
    r->at++;
    const size_t n = qr_lark_name(r);
    return qr_reader_fail(r, QR_E_UNSUPPORTED, start, "%%%.*s is not supported", n < 40 ? (int)n : 40, r->text + r->at);
}

/* ---- definitions ---- */

struct attributes { bool lazy, stopped; int32_t stop; /* node; 0: none */ };

static int read_value(struct qr_lark *l, int32_t *node)
{
    qr_lark_skip(l);
    const bool before = l->terminal;
    l->terminal = true;
    const int rc = qr_lark_item(l, node);
    l->terminal = before;
    return rc;
}

/* One attribute with its value, if it has one. */
static int read_attribute(struct qr_lark *l, struct attributes *a)
{
    static const char *const kinds[] = {"lazy", "stop", "suffix", "capture", "stop_capture"};
    struct qr_reader *r = &l->r;
    const char *name;
    size_t len;
    int32_t value = 0;
    int kind = 0, rc = read_name(l, &name, &len);
    if (rc != 0)
        return rc;
    while (kind < QR_COUNT(kinds) && (strlen(kinds[kind]) != len || memcmp(kinds[kind], name, len) != 0))
        kind++;
    if (kind == QR_COUNT(kinds))
        return qr_reader_fail(r, QR_E_UNSUPPORTED, (size_t)(name - r->text), "the attribute %.*s cannot be enforced here", len < 60 ? (int)len : 60, name);
    qr_lark_skip(l);
    const bool has_value = qr_reader_take(r, "=");
    if (has_value)
        rc = read_value(l, &value);
    if (rc != 0)
        return rc;
    if (kind == 0 && has_value)
        return qr_reader_fail(r, QR_E_INVALID, (size_t)(name - r->text), "lazy takes no value");
    if (kind == 0)
        a->lazy = true;
    if (kind == 1 || kind == 2) {
        if (!has_value || a->stopped)
            return qr_reader_fail(r, QR_E_INVALID, (size_t)(name - r->text), "stop and suffix take a text or a pattern, and one of them is enough");
        const struct qr_rules_node *n = &l->rules.node[value];
        const bool empty = n->kind == QR_RULES_LEAF && n->value == QR_EXPR_EMPTY; /* up to the answer's end */
        a->stop = empty ? 0 : value;
        a->stopped = true;
    }
    return 0;
}

static int read_attributes(struct qr_lark *l, struct attributes *a)
{
    do {
        const int rc = read_attribute(l, a);
        if (rc != 0)
            return rc;
        qr_lark_skip(l);
    } while (qr_reader_take(&l->r, ","));
    return qr_reader_take(&l->r, "]") ? 0 : qr_reader_expected(&l->r, "']'");
}

/* .2 behind a name: it decides between readings, which all are allowed here. */
static int skip_priority(struct qr_lark *l)
{
    int32_t value;
    if (!qr_reader_take(&l->r, "."))
        return 0;
    qr_reader_take(&l->r, "-");
    return qr_reader_count(&l->r, &value) ? 0 : qr_reader_expected(&l->r, "a number");
}

/* What stands between a name and its ':'. */
static int read_head(struct qr_lark *l, struct attributes *a)
{
    struct qr_reader *r = &l->r;
    int rc = skip_priority(l);
    qr_lark_skip(l);
    if (rc == 0 && qr_reader_is(r, "{"))
        return qr_reader_fail(r, QR_E_UNSUPPORTED, r->at, "templates of rules are not supported");
    if (rc == 0 && qr_reader_take(r, "[")) {
        rc = read_attributes(l, a);
        qr_lark_skip(l);
        if (rc == 0)
            rc = skip_priority(l);
        qr_lark_skip(l);
    }
    if (rc != 0)
        return rc;
    if (qr_reader_is(r, "::"))
        return qr_reader_fail(r, QR_E_UNSUPPORTED, r->at, "rules with parameters ('::') are not supported");
    return qr_reader_take(r, ":") ? 0 : qr_reader_expected(r, "':'");
}

static bool is_terminal(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (name[i] != '_' && !(name[i] >= '0' && name[i] <= '9'))
            return name[i] >= 'A' && name[i] <= 'Z';
    return false;
}

/* The texts up to the first end: lazy, or where `stop` comes. */
static int32_t cut(struct qr_lark *l, int32_t body, const struct attributes *a, size_t at)
{
    if (!a->lazy && !a->stop)
        return body;
    const int32_t row = qr_rules_add(&l->rules, QR_RULES_CAT, 0, at);
    qr_rules_append(&l->rules, row, body);
    if (a->stop)
        qr_rules_append(&l->rules, row, a->stop);
    const int32_t first = qr_rules_add(&l->rules, QR_RULES_FIRST, 0, at);
    qr_rules_append(&l->rules, first, row);
    return first;
}

static int read_definition(struct qr_lark *l)
{
    struct qr_reader *r = &l->r;
    struct attributes a = {0};
    const char *name;
    size_t len;
    int32_t body;
    while (qr_reader_take(r, "?") || qr_reader_take(r, "!"))
        ;
    int rc = read_name(l, &name, &len);
    const size_t at = (size_t)(name - r->text);
    if (rc == 0)
        rc = read_head(l, &a);
    if (rc != 0)
        return rc;
    l->terminal = is_terminal(name, len) || a.lazy || a.stopped;
    const int32_t rule = qr_rules_named(&l->rules, name, len, at);
    l->rules.rule[rule].terminal = l->terminal;
    rc = qr_lark_alternatives(l, &body);
    l->terminal = false;
    if (rc == 0 && r->at < r->len && (qr_reader_is(r, ")") || qr_reader_is(r, "]")))
        rc = qr_reader_fail(r, QR_E_INVALID, r->at, "'%c' closes no group", r->text[r->at]);
    return rc != 0 ? rc : qr_rules_define(&l->rules, rule, cut(l, body, &a, at), at);
}

/* ---- the grammar ---- */

static int lower_start(struct qr_lark *l, int32_t *out)
{
    int32_t e;
    const int32_t start = qr_rules_find(&l->rules, "start");
    if (start < 0 || !l->rules.rule[start].body)
        return qr_err_set(l->r.err, QR_E_INVALID, "the grammar has no rule named start");
    if (l->ignored) {
        const int rc = qr_rules_lower_node(&l->rules, l->ignored, &e);
        if (rc != 0)
            return rc;
        l->rules.ignored = qr_expr_repeat(l->x, e, 0, QR_REPEAT_FOREVER);
    }
    const int rc = qr_rules_lower(&l->rules, start, &e);
    if (rc == 0)
        *out = qr_expr_cat(l->x, l->rules.ignored, l->rules.rule[start].terminal ? qr_expr_cat(l->x, e, l->rules.ignored) : e);
    return rc;
}

int qr_lark_parse(int32_t *out, struct qr_exprs *x, const char *text, size_t len, const struct qr_vocab *v, qr_schema_reader *schema, void *user,
                  struct qr_err *err)
{
    struct qr_lark l = {.x = x, .v = v, .schema = schema, .user = user};
    QR_ASSERT(out != NULL && x != NULL);
    QR_ASSERT(err != NULL);
    int rc = qr_reader_open(&l.r, text, len, err);
    if (rc != 0)
        return rc;
    qr_rules_init(&l.rules, x, &l.r);
    for (qr_lark_skip(&l); rc == 0 && l.r.at < l.r.len; qr_lark_skip(&l))
        rc = qr_reader_is(&l.r, "%") ? read_percent(&l) : read_definition(&l);
    if (rc == 0)
        rc = lower_start(&l, out);
    qr_rules_release(&l.rules);
    qr_folds_release(&l.folds);
    return rc;
}
