/* parse.c - expressions, by recursive descent with the reference's precedence. Depth is bounded, so a hostile template
 * cannot exhaust the stack. Errors name the line. One thread, when a template is compiled; the tree is immutable behind
 * that. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/eval.h"

/* Notes that `child` stands below `n`; NULL (and an error) when the tree has become too high to walk. */
static struct qr_jnode *above(struct qr_jparser *p, struct qr_jnode *n, const struct qr_jnode *child)
{
    if (n && child && child->height >= n->height) {
        if (child->height >= QR_JINJA_HEIGHT_MAX)
            return qr_jparse_error(p, n->line, 0, "an expression is longer than %d operators", QR_JINJA_HEIGHT_MAX);
        n->height = (uint16_t)(child->height + 1);
    }
    return n;
}

static struct qr_jnode *make(struct qr_jparser *p, enum qr_jkind kind, int op, int32_t line, struct qr_jnode *a,
                             struct qr_jnode *b)
{
    struct qr_jnode *n = a ? qr_jnode_new(p, kind, line) : NULL;
    if (!n)
        return NULL;
    n->op = (uint8_t)op;
    n->a = a;
    n->b = b;
    return above(p, above(p, n, a), b);
}

/* A constant string node's value. The string is complete (flat, ASCII known): threads share it. */
static bool const_str(struct qr_jparser *p, const char *text, size_t len, struct qr_jval *out)
{
    struct qr_jstr *s = qr_jparse_alloc(p, 1, sizeof *s);
    if (!s)
        return false;
    s->len = len;
    s->u.flat.data = text;
    s->trust = QR_JTRUST_ALL;
    qr_jstr_ascii(s);
    *out = qr_jstrv(s);
    return true;
}

static struct qr_jnode *string_node(struct qr_jparser *p, enum qr_jkind kind, const struct qr_jtoken *t)
{
    struct qr_jnode *n = qr_jnode_new(p, kind, t->line);
    return n && const_str(p, t->text, t->len, &n->value) ? n : NULL;
}

static struct qr_jnode *string_constant(struct qr_jparser *p)
{
    const struct qr_jtoken *first = qr_jnext(p);
    if (qr_jpeek(p)->type != QR_JT_STRING)
        return string_node(p, QR_JN_CONST, first);
    int32_t from = p->pos - 1;
    size_t len = first->len, at = 0;
    while (qr_jpeek(p)->type == QR_JT_STRING)
        len += qr_jnext(p)->len;
    char *text = qr_jparse_alloc(p, len + 1, 1);
    if (!text)
        return NULL;
    for (int32_t i = from; i < p->pos; i++) {
        memcpy(text + at, p->tok.at[i].text, p->tok.at[i].len);
        at += p->tok.at[i].len;
    }
    return string_node(p, QR_JN_CONST, &(struct qr_jtoken){QR_JT_STRING, first->line, 0, text, len});
}

static struct qr_jnode *number_constant(struct qr_jparser *p)
{
    const struct qr_jtoken *t = qr_jnext(p);
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_CONST, t->line);
    char *text = n ? qr_jparse_alloc(p, t->len + 1, 1) : NULL;
    if (!text)
        return NULL;
    size_t len = 0;
    for (size_t i = 0; i < t->len; i++) {
        if (t->text[i] != '_')
            text[len++] = t->text[i];
    }
    if (t->type == QR_JT_FLOAT) {
        n->value = qr_jfloat(strtod(text, NULL));
        return n;
    }
    char letter = len > 2 ? (char)(text[1] | 32) : ' ';
    int base = letter == 'b' ? 2 : letter == 'o' ? 8 : letter == 'x' ? 16 : 10;
    errno = 0;
    long long v = strtoll(base == 10 ? text : text + 2, NULL, base);
    n->value = qr_jint(v);
    if (errno == ERANGE) {
        if (base != 10)
            return qr_jparse_error(p, t->line, t->col, "this number has more than 63 bits");
        if (!const_str(p, text, len, &n->value))
            return NULL;
        n->value.type = QR_J_BIG;
    }
    return n;
}

/* The special parameters of the macros around that do not bind this name themselves. */
static void note_special(struct qr_jparser *p, int32_t sym)
{
    const struct qr_template *t = p->t;
    if (sym != t->sym_caller && sym != t->sym_varargs && sym != t->sym_kwargs)
        return;
    for (struct qr_jmacro_scope *m = p->macro; m; m = m->up) {
        m->sig->caller |= sym == t->sym_caller;
        m->sig->varargs |= sym == t->sym_varargs;
        m->sig->kwargs |= sym == t->sym_kwargs;
    }
}

static struct qr_jnode *name_or_keyword(struct qr_jparser *p, bool with_namespace)
{
    static const struct {
        const char *word;
        struct qr_jval value;
    } keyword[] = {
        {"true", {.type = QR_J_BOOL, .u.b = true}},   {"True", {.type = QR_J_BOOL, .u.b = true}},
        {"false", {.type = QR_J_BOOL, .u.b = false}}, {"False", {.type = QR_J_BOOL, .u.b = false}},
        {"none", {.type = QR_J_NONE}},                {"None", {.type = QR_J_NONE}},
    };
    const struct qr_jtoken *t = qr_jnext(p);
    for (int i = 0; i < QR_COUNT(keyword); i++) {
        if (!qr_jtoken_is(t, keyword[i].word))
            continue;
        struct qr_jnode *n = qr_jnode_new(p, QR_JN_CONST, t->line);
        if (n)
            n->value = keyword[i].value;
        return n;
    }
    int32_t sym = qr_jsymbol(p, t->text, t->len);
    if (sym < 0)
        return NULL;
    note_special(p, sym);
    struct qr_jnode *n;
    if (with_namespace && qr_jskip(p, QR_JT_DOT)) {
        const struct qr_jtoken *attr = qr_jpeek(p);
        if (!qr_jexpect(p, QR_JT_NAME, "an attribute name"))
            return NULL;
        n = string_node(p, QR_JN_NSREF, attr);
    } else {
        n = qr_jnode_new(p, QR_JN_NAME, t->line);
    }
    if (n)
        n->sym = sym;
    return n;
}

/* Moves the nodes read so far into n->list. */
static struct qr_jnode *finish_list(struct qr_jparser *p, struct qr_jnode *n, struct qr_jvec *v)
{
    for (int32_t i = 0; i < v->n; i++)
        n = above(p, n, v->at[i]);
    if (!n) {
        qr_free(v->at);
        return NULL;
    }
    return qr_jvec_done(p, v, &n->list) ? n : NULL;
}

static void *drop(struct qr_jvec *v)
{
    qr_free(v->at);
    return NULL;
}

static struct qr_jnode *list_display(struct qr_jparser *p)
{
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_LIST, qr_jnext(p)->line);
    struct qr_jvec v = {0};
    if (!n)
        return NULL;
    while (!qr_jskip(p, QR_JT_RBRACKET)) {
        if (v.n > 0 && !qr_jexpect(p, QR_JT_COMMA, "',' or ']' in a list"))
            return drop(&v);
        if (qr_jskip(p, QR_JT_RBRACKET))
            break;
        struct qr_jnode *item = qr_jparse_expr(p, true);
        if (!item)
            return drop(&v);
        qr_jvec_push(&v, item);
    }
    return finish_list(p, n, &v);
}

static struct qr_jnode *dict_display(struct qr_jparser *p)
{
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_DICT, qr_jnext(p)->line);
    struct qr_jvec v = {0};
    if (!n)
        return NULL;
    while (!qr_jskip(p, QR_JT_RBRACE)) {
        if (v.n > 0 && !qr_jexpect(p, QR_JT_COMMA, "',' or '}' in a dict"))
            return drop(&v);
        if (qr_jskip(p, QR_JT_RBRACE))
            break;
        struct qr_jnode *key = qr_jparse_expr(p, true);
        if (!key || !qr_jexpect(p, QR_JT_COLON, "':' behind a dict's key"))
            return drop(&v);
        qr_jvec_push(&v, key);
        struct qr_jnode *value = qr_jparse_expr(p, true);
        if (!value)
            return drop(&v);
        qr_jvec_push(&v, value);
    }
    return finish_list(p, n, &v);
}

static struct qr_jnode *primary(struct qr_jparser *p, bool with_namespace)
{
    const struct qr_jtoken *t = qr_jpeek(p);
    switch (t->type) {
    case QR_JT_NAME: return name_or_keyword(p, with_namespace);
    case QR_JT_STRING: return string_constant(p);
    case QR_JT_INT:
    case QR_JT_FLOAT: return number_constant(p);
    case QR_JT_LBRACKET: return list_display(p);
    case QR_JT_LBRACE: return dict_display(p);
    case QR_JT_LPAREN: {
        qr_jnext(p);
        struct qr_jnode *n = qr_jparse_tuple(p, QR_JTUPLE_PARENS, NULL);
        return n && qr_jexpect(p, QR_JT_RPAREN, "')'") ? n : NULL;
    }
    default: return qr_junexpected(p, "an expression");
    }
}

/* ---- postfix: attributes, subscripts, calls, filters, tests ---- */

static struct qr_jnode *slice_part(struct qr_jparser *p, bool *ok)
{
    enum qr_jtok type = qr_jpeek(p)->type;
    if (type == QR_JT_COLON || type == QR_JT_RBRACKET || type == QR_JT_COMMA)
        return NULL;
    struct qr_jnode *n = qr_jparse_expr(p, true);
    *ok = n != NULL;
    return n;
}

static struct qr_jnode *subscript_arg(struct qr_jparser *p)
{
    int32_t line = qr_jpeek(p)->line;
    bool ok = true;
    struct qr_jnode *from = slice_part(p, &ok);
    if (!ok)
        return NULL;
    if (!qr_jskip(p, QR_JT_COLON))
        return from ? from : qr_junexpected(p, "an expression");
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_SLICE, line);
    if (!n)
        return NULL;
    n->a = from;
    n->b = slice_part(p, &ok);
    if (ok && qr_jskip(p, QR_JT_COLON))
        n->c = slice_part(p, &ok);
    return ok ? above(p, above(p, above(p, n, n->a), n->b), n->c) : NULL;
}

static struct qr_jnode *subscript(struct qr_jparser *p, struct qr_jnode *base)
{
    const struct qr_jtoken *t = qr_jnext(p);
    if (t->type == QR_JT_DOT) {
        const struct qr_jtoken *name = qr_jpeek(p);
        if (name->type == QR_JT_INT) {
            struct qr_jnode *index = number_constant(p);
            return index ? make(p, QR_JN_ITEM, 0, t->line, base, index) : NULL;
        }
        if (!qr_jexpect(p, QR_JT_NAME, "a name or number behind '.'"))
            return NULL;
        struct qr_jnode *n = string_node(p, QR_JN_ATTR, name);
        if (n)
            n->a = base;
        return above(p, n, base);
    }
    struct qr_jnode *arg = subscript_arg(p);
    if (arg && qr_jpeek(p)->type == QR_JT_COMMA)
        return qr_jparse_error(p, t->line, t->col, "a subscript takes one value or slice");
    if (!arg || !qr_jexpect(p, QR_JT_RBRACKET, "']'"))
        return NULL;
    return make(p, QR_JN_ITEM, 0, t->line, base, arg);
}

static void *bad_args(struct qr_jparser *p, struct qr_jvec *v, struct qr_jkwarg *kw, bool say)
{
    if (say)
        qr_jparse_error(p, qr_jpeek(p)->line, qr_jpeek(p)->col, "the order of arguments in this call is wrong");
    qr_free(v->at);
    qr_free(kw);
    return NULL;
}

/* One argument. Returns 1 when it was read, 0 on an error that is set, -1 when its place is wrong. */
static int argument(struct qr_jparser *p, struct qr_jargspec *a, struct qr_jvec *v, struct qr_jkwarg **kw, struct qr_jnode *owner)
{
    const struct qr_jtoken *t = qr_jpeek(p);
    if (t->type == QR_JT_MUL || t->type == QR_JT_POW) {
        struct qr_jnode **slot = t->type == QR_JT_MUL ? &a->star : &a->starstar;
        if (*slot || a->starstar)
            return -1;
        qr_jnext(p);
        *slot = qr_jparse_expr(p, true);
        return above(p, owner, *slot) && *slot ? 1 : 0;
    }
    if (t->type == QR_JT_NAME && qr_jpeek2(p)->type == QR_JT_ASSIGN) {
        if (a->starstar)
            return -1;
        int32_t sym = qr_jsymbol(p, t->text, t->len);
        qr_jnext(p);
        qr_jnext(p);
        struct qr_jnode *value = sym < 0 ? NULL : qr_jparse_expr(p, true);
        if (!value || !above(p, owner, value))
            return 0;
        if ((a->n_kw & (a->n_kw - 1)) == 0)
            *kw = qr_realloc(*kw, (size_t)(a->n_kw ? a->n_kw * 2 : 1), sizeof **kw);
        (*kw)[a->n_kw++] = (struct qr_jkwarg){p->t->name[sym], value};
        return 1;
    }
    if (a->star || a->starstar || a->n_kw > 0)
        return -1;
    struct qr_jnode *value = qr_jparse_expr(p, true);
    if (!value || !above(p, owner, value))
        return 0;
    qr_jvec_push(v, value);
    return 1;
}

/* "(...)" into owner->u.args. */
static struct qr_jnode *call_args(struct qr_jparser *p, struct qr_jnode *owner)
{
    struct qr_jargspec *a = owner ? qr_jparse_alloc(p, 1, sizeof *a) : NULL;
    struct qr_jvec v = {0};
    struct qr_jkwarg *kw = NULL;
    if (!a || !qr_jexpect(p, QR_JT_LPAREN, "'('"))
        return NULL;
    for (bool first = true; !qr_jskip(p, QR_JT_RPAREN); first = false) {
        if (!first && !qr_jexpect(p, QR_JT_COMMA, "',' or ')' in a call"))
            return bad_args(p, &v, kw, false);
        if (!first && qr_jskip(p, QR_JT_RPAREN))
            break;
        int rc = argument(p, a, &v, &kw, owner);
        if (rc <= 0)
            return bad_args(p, &v, kw, rc < 0);
    }
    a->kw = qr_jparse_alloc(p, (size_t)a->n_kw, sizeof *a->kw);
    if (a->kw && a->n_kw > 0)
        memcpy(a->kw, kw, (size_t)a->n_kw * sizeof *a->kw);
    qr_free(kw);
    owner->u.args = a;
    return qr_jvec_done(p, &v, &a->pos) && a->kw ? owner : NULL;
}

static struct qr_jnode *no_args(struct qr_jparser *p, struct qr_jnode *owner)
{
    owner->u.args = qr_jparse_alloc(p, 1, sizeof *owner->u.args);
    return owner->u.args ? owner : NULL;
}

static struct qr_jnode *postfix(struct qr_jparser *p, struct qr_jnode *n)
{
    while (n) {
        enum qr_jtok type = qr_jpeek(p)->type;
        if (type == QR_JT_DOT || type == QR_JT_LBRACKET)
            n = subscript(p, n);
        else if (type == QR_JT_LPAREN)
            n = call_args(p, make(p, QR_JN_CALL, 0, qr_jpeek(p)->line, n, NULL));
        else
            break;
    }
    return n;
}

/* A filter's or test's name, dots allowed, as the node's value. */
static struct qr_jnode *dotted(struct qr_jparser *p, enum qr_jkind kind)
{
    const struct qr_jtoken *first = qr_jpeek(p), *last = first;
    if (!qr_jexpect(p, QR_JT_NAME, kind == QR_JN_FILTER ? "a filter's name" : "a test's name"))
        return NULL;
    while (qr_jskip(p, QR_JT_DOT)) {
        last = qr_jpeek(p);
        if (!qr_jexpect(p, QR_JT_NAME, "a name behind '.'"))
            return NULL;
    }
    size_t len = (size_t)(last->text - first->text) + last->len;
    return string_node(p, kind, &(struct qr_jtoken){QR_JT_NAME, first->line, first->col, first->text, len});
}

static void *unknown(struct qr_jparser *p, const struct qr_jnode *n, const char *what, const char *nearest)
{
    const struct qr_jstr *name = n->value.u.s;
    int len = name->len > 60 ? 60 : (int)name->len;
    return qr_jparse_error(p, n->line, 0, "no %s named '%.*s'%s%s%s", what, len, name->u.flat.data,
                           nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

struct qr_jnode *qr_jparse_filters(struct qr_jparser *p, struct qr_jnode *node, bool start_inline)
{
    while (start_inline || qr_jpeek(p)->type == QR_JT_PIPE) {
        if (!start_inline)
            qr_jnext(p);
        start_inline = false;
        struct qr_jnode *n = dotted(p, QR_JN_FILTER);
        if (!n)
            return NULL;
        n->a = node;
        n->fn = qr_jfilter_find(n->value.u.s->u.flat.data, n->value.u.s->len);
        if (!n->fn && !p->soft)
            return unknown(p, n, "filter", qr_jfilter_nearest(n->value.u.s));
        n = above(p, n, node);
        node = !n ? NULL : qr_jpeek(p)->type == QR_JT_LPAREN ? call_args(p, n) : no_args(p, n);
        if (!node)
            return NULL;
    }
    return node;
}

/* Whether an argument without parentheses follows a test's name: x is divisibleby 3. */
static bool bare_argument(const struct qr_jparser *p)
{
    switch (qr_jpeek(p)->type) {
    case QR_JT_NAME: return !qr_jis_name(p, "else") && !qr_jis_name(p, "or") && !qr_jis_name(p, "and");
    case QR_JT_STRING:
    case QR_JT_INT:
    case QR_JT_FLOAT:
    case QR_JT_LBRACKET:
    case QR_JT_LBRACE: return true;
    default: return false;
    }
}

static struct qr_jnode *test_args(struct qr_jparser *p, struct qr_jnode *n)
{
    if (qr_jpeek(p)->type == QR_JT_LPAREN)
        return call_args(p, n);
    if (!no_args(p, n) || !bare_argument(p))
        return n->u.args ? n : NULL;
    if (qr_jis_name(p, "is"))
        return qr_jparse_error(p, n->line, qr_jpeek(p)->col, "tests with 'is' cannot be chained");
    struct qr_jnode *arg = postfix(p, primary(p, false));
    if (!arg || !above(p, n, arg))
        return NULL;
    struct qr_jvec v = {0};
    qr_jvec_push(&v, arg);
    return qr_jvec_done(p, &v, &n->u.args->pos) ? n : NULL;
}

static struct qr_jnode *test(struct qr_jparser *p, struct qr_jnode *node)
{
    qr_jnext(p); /* is */
    bool negated = qr_jskip_name(p, "not");
    struct qr_jnode *n = dotted(p, QR_JN_TEST);
    if (!n)
        return NULL;
    n->a = node;
    n->fn = qr_jtest_find(n->value.u.s->u.flat.data, n->value.u.s->len);
    if (!n->fn && !p->soft)
        return unknown(p, n, "test", NULL);
    if (!above(p, n, node) || !test_args(p, n))
        return NULL;
    return negated ? make(p, QR_JN_NOT, 0, n->line, n, NULL) : n;
}

static struct qr_jnode *filters_and_tests(struct qr_jparser *p, struct qr_jnode *n)
{
    while (n) {
        if (qr_jpeek(p)->type == QR_JT_PIPE)
            n = qr_jparse_filters(p, n, false);
        else if (qr_jis_name(p, "is"))
            n = test(p, n);
        else if (qr_jpeek(p)->type == QR_JT_LPAREN)
            n = call_args(p, make(p, QR_JN_CALL, 0, qr_jpeek(p)->line, n, NULL));
        else
            break;
    }
    return n;
}

/* ---- operators, loosest last ---- */

static struct qr_jnode *unary(struct qr_jparser *p, bool with_filter)
{
    const struct qr_jtoken *t = qr_jpeek(p);
    if (t->type == QR_JT_SUB || t->type == QR_JT_ADD) {
        if (!qr_jenter(p))
            return NULL;
        qr_jnext(p);
        struct qr_jnode *n = make(p, t->type == QR_JT_SUB ? QR_JN_NEG : QR_JN_POS, 0, t->line, unary(p, false), NULL);
        qr_jleave(p);
        n = postfix(p, n);
        return with_filter ? filters_and_tests(p, n) : n;
    }
    struct qr_jnode *n = postfix(p, primary(p, false));
    return with_filter ? filters_and_tests(p, n) : n;
}

/* Binary operators by how tightly they bind: 0 additive, 1 multiplicative, 2 power. All associate to the left. */
static int tightness(enum qr_jtok type)
{
    switch (type) {
    case QR_JT_ADD:
    case QR_JT_SUB: return 0;
    case QR_JT_MUL:
    case QR_JT_DIV:
    case QR_JT_FLOORDIV:
    case QR_JT_MOD: return 1;
    case QR_JT_POW: return 2;
    default: return -1;
    }
}

static struct qr_jnode *binary(struct qr_jparser *p, int level);

/* '~' binds tighter than '+' and looser than '*', and takes any number of operands. */
static struct qr_jnode *concat(struct qr_jparser *p)
{
    struct qr_jnode *first = binary(p, 1);
    if (!first || qr_jpeek(p)->type != QR_JT_TILDE)
        return first;
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_CONCAT, qr_jpeek(p)->line);
    struct qr_jvec v = {0};
    qr_jvec_push(&v, first);
    while (qr_jskip(p, QR_JT_TILDE)) {
        struct qr_jnode *more = binary(p, 1);
        if (!more)
            return drop(&v);
        qr_jvec_push(&v, more);
    }
    return n ? finish_list(p, n, &v) : drop(&v);
}

static struct qr_jnode *operand(struct qr_jparser *p, int level)
{
    return level == 0 ? concat(p) : level == 1 ? binary(p, 2) : unary(p, true);
}

static struct qr_jnode *binary(struct qr_jparser *p, int level)
{
    struct qr_jnode *left = operand(p, level);
    while (left && tightness(qr_jpeek(p)->type) == level) {
        const struct qr_jtoken *op = qr_jnext(p);
        struct qr_jnode *right = operand(p, level);
        left = right ? make(p, QR_JN_BINARY, op->type, op->line, left, right) : NULL;
    }
    return left;
}

/* The comparison operator that stands here, consumed; 0 when there is none. */
static int comparison(struct qr_jparser *p)
{
    const struct qr_jtoken *t = qr_jpeek(p);
    if (t->type >= QR_JT_EQ && t->type <= QR_JT_GE) {
        qr_jnext(p);
        return (int)t->type;
    }
    if (qr_jskip_name(p, "in"))
        return QR_JOP_IN;
    if (qr_jis_name(p, "not") && qr_jtoken_is(qr_jpeek2(p), "in")) {
        p->pos += 2;
        return QR_JOP_NOTIN;
    }
    return 0;
}

static struct qr_jnode *compare(struct qr_jparser *p)
{
    int32_t line = qr_jpeek(p)->line;
    struct qr_jnode *left = binary(p, 0);
    int op = left ? comparison(p) : 0;
    if (op == 0)
        return left;
    struct qr_jnode *n = make(p, QR_JN_COMPARE, 0, line, left, NULL);
    struct qr_jvec v = {0};
    uint8_t ops[QR_JINJA_PARSE_DEPTH_MAX];
    for (; op != 0; op = comparison(p)) {
        struct qr_jnode *right = binary(p, 0);
        if (!right)
            return drop(&v);
        if (v.n == QR_COUNT(ops)) {
            drop(&v);
            return qr_jparse_error(p, line, 0, "a comparison chains more than %d operands", QR_COUNT(ops));
        }
        ops[v.n] = (uint8_t)op;
        qr_jvec_push(&v, right);
    }
    if (n)
        n->u.ops = qr_jparse_alloc(p, (size_t)v.n, 1);
    if (!n || !n->u.ops)
        return drop(&v);
    memcpy(n->u.ops, ops, (size_t)v.n);
    return finish_list(p, n, &v);
}

static struct qr_jnode *negation(struct qr_jparser *p)
{
    const struct qr_jtoken *t = qr_jpeek(p);
    if (!qr_jtoken_is(t, "not"))
        return compare(p);
    if (!qr_jenter(p))
        return NULL;
    qr_jnext(p);
    struct qr_jnode *n = make(p, QR_JN_NOT, 0, t->line, negation(p), NULL);
    qr_jleave(p);
    return n;
}

static struct qr_jnode *conjunction(struct qr_jparser *p)
{
    struct qr_jnode *left = negation(p);
    while (left && qr_jis_name(p, "and")) {
        int32_t line = qr_jnext(p)->line;
        struct qr_jnode *right = negation(p);
        left = right ? make(p, QR_JN_AND, 0, line, left, right) : NULL;
    }
    return left;
}

static struct qr_jnode *disjunction(struct qr_jparser *p)
{
    struct qr_jnode *left = conjunction(p);
    while (left && qr_jis_name(p, "or")) {
        int32_t line = qr_jnext(p)->line;
        struct qr_jnode *right = conjunction(p);
        left = right ? make(p, QR_JN_OR, 0, line, left, right) : NULL;
    }
    return left;
}

/* What stands behind "x" in "x if test else other". */
static struct qr_jnode *condition(struct qr_jparser *p, struct qr_jnode *value, int32_t line)
{
    struct qr_jnode *test_node = disjunction(p), *other = NULL;
    if (!test_node)
        return NULL;
    if (qr_jskip_name(p, "else")) {
        other = qr_jparse_expr(p, true);
        if (!other)
            return NULL;
    }
    struct qr_jnode *n = make(p, QR_JN_COND, 0, line, value, test_node);
    if (n)
        n->c = other;
    return above(p, n, other);
}

/* Unknown filters are errors at once only where they would surely be reached: the first operand of a conditional is read
 * before its 'if' is seen, so the parser looks ahead for one on the same bracket level. */
static bool condition_follows(const struct qr_jparser *p)
{
    int32_t open = 0;
    for (int32_t i = p->pos; i < p->tok.n; i++) {
        const struct qr_jtoken *t = &p->tok.at[i];
        if (t->type == QR_JT_LPAREN || t->type == QR_JT_LBRACKET || t->type == QR_JT_LBRACE)
            open++;
        else if (t->type == QR_JT_RPAREN || t->type == QR_JT_RBRACKET || t->type == QR_JT_RBRACE)
            open--;
        else if (t->type == QR_JT_VAR_END || t->type == QR_JT_BLOCK_END)
            return false;
        if (open < 0 || (open == 0 && t->type == QR_JT_COMMA))
            return false;
        if (open == 0 && qr_jtoken_is(t, "if"))
            return true;
    }
    return false;
}

struct qr_jnode *qr_jparse_expr(struct qr_jparser *p, bool with_cond)
{
    if (!qr_jenter(p))
        return NULL;
    bool soft = p->soft;
    int32_t line = qr_jpeek(p)->line;
    if (with_cond && !soft)
        p->soft = condition_follows(p);
    struct qr_jnode *n = disjunction(p);
    while (n && with_cond && qr_jskip_name(p, "if")) {
        p->soft = true;
        n = condition(p, n, line);
    }
    p->soft = soft;
    qr_jleave(p);
    return n;
}

static bool tuple_ends(const struct qr_jparser *p, const char *end_name)
{
    enum qr_jtok type = qr_jpeek(p)->type;
    return type == QR_JT_VAR_END || type == QR_JT_BLOCK_END || type == QR_JT_RPAREN ||
           (end_name && qr_jis_name(p, end_name));
}

struct qr_jnode *qr_jparse_tuple(struct qr_jparser *p, unsigned flags, const char *end_name)
{
    int32_t line = qr_jpeek(p)->line;
    struct qr_jvec v = {0};
    bool is_tuple = false;
    while (!tuple_ends(p, end_name)) {
        struct qr_jnode *n = flags & QR_JTUPLE_SIMPLE ? primary(p, (flags & QR_JTUPLE_NAMESPACE) != 0)
                                                      : qr_jparse_expr(p, !(flags & QR_JTUPLE_NO_COND));
        if (!n)
            return drop(&v);
        qr_jvec_push(&v, n);
        if (!qr_jskip(p, QR_JT_COMMA))
            break;
        is_tuple = true;
    }
    if (!is_tuple && v.n == 1) {
        struct qr_jnode *only = v.at[0];
        drop(&v);
        return only;
    }
    if (v.n == 0 && !(flags & QR_JTUPLE_PARENS)) {
        drop(&v);
        return qr_junexpected(p, "an expression");
    }
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_TUPLE, line);
    return n ? finish_list(p, n, &v) : drop(&v);
}

/* What may stand on the left of '=': names, tuples of them, and ns.attribute where allowed. */
static bool assignable(const struct qr_jnode *n)
{
    if (n->kind == QR_JN_NAME || n->kind == QR_JN_NSREF)
        return true;
    if (n->kind != QR_JN_TUPLE)
        return false;
    for (int32_t i = 0; i < n->list.n; i++) {
        if (!assignable(n->list.at[i]))
            return false;
    }
    return n->list.n > 0;
}

struct qr_jnode *qr_jparse_target(struct qr_jparser *p, bool with_namespace, const char *end_name)
{
    const struct qr_jtoken *t = qr_jpeek(p);
    unsigned flags = QR_JTUPLE_SIMPLE | (with_namespace ? QR_JTUPLE_NAMESPACE : 0u);
    struct qr_jnode *n = qr_jparse_tuple(p, flags, end_name);
    if (n && !assignable(n))
        return qr_jparse_error(p, t->line, t->col, "this cannot be assigned to");
    return n;
}
