/* parse.c - expressions, by recursive descent with the reference's precedence. Depth is bounded, so a hostile template
 * cannot exhaust the stack. An error names its line and leaves the parser (ast.h). One thread, when a template is
 * compiled; the tree is immutable behind that. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/eval.h"

/* Notes that `child`, which may be NULL, stands below `n`; an error when the tree has become too high to walk. */
static struct qr_jnode *above(struct qr_jparser *p, struct qr_jnode *n, const struct qr_jnode *child)
{
    if (child && child->height >= n->height) {
        if (child->height >= QR_JINJA_HEIGHT_MAX)
            qr_jparse_error(p, n->line, 0, "an expression is longer than %d operators", QR_JINJA_HEIGHT_MAX);
        n->height = (uint16_t)(child->height + 1);
    }
    return n;
}

static struct qr_jnode *make(struct qr_jparser *p, enum qr_jkind kind, int op, int32_t line, struct qr_jnode *a,
                             struct qr_jnode *b)
{
    struct qr_jnode *n = qr_jnode_new(p, kind, line);
    n->op = (uint8_t)op;
    n->a = a;
    n->b = b;
    return above(p, above(p, n, a), b);
}

static struct qr_jnode *string_node(struct qr_jparser *p, enum qr_jkind kind, const struct qr_jtoken *t)
{
    struct qr_jnode *n = qr_jnode_new(p, kind, t->line);
    n->value = qr_jconst_str(p, t->text, t->len);
    return n;
}

/* One string, or several that stand side by side. */
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
    char *text = qr_jparse_alloc(p, t->len + 1, 1);
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
    n->value = qr_jint(strtoll(base == 10 ? text : text + 2, NULL, base));
    if (errno == ERANGE) {
        if (base != 10)
            qr_jparse_error(p, t->line, t->col, "this number has more than 63 bits");
        n->value = qr_jconst_str(p, text, len);
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
    struct qr_jnode *n;
    for (int i = 0; i < QR_COUNT(keyword); i++) {
        if (qr_jtoken_is(t, keyword[i].word)) {
            n = qr_jnode_new(p, QR_JN_CONST, t->line);
            n->value = keyword[i].value;
            return n;
        }
    }
    int32_t sym = qr_jsymbol(p, t->text, t->len);
    note_special(p, sym);
    if (with_namespace && qr_jskip(p, QR_JT_DOT))
        n = string_node(p, QR_JN_NSREF, qr_jexpect(p, QR_JT_NAME, "an attribute name"));
    else
        n = qr_jnode_new(p, QR_JN_NAME, t->line);
    n->sym = sym;
    return n;
}

/* Appends a node below n. */
static void push(struct qr_jparser *p, struct qr_jnode *n, struct qr_jnode *item)
{
    above(p, n, item);
    qr_jnodes_push(p, &n->list, item);
}

static struct qr_jnode *list_display(struct qr_jparser *p)
{
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_LIST, qr_jnext(p)->line);
    while (!qr_jskip(p, QR_JT_RBRACKET)) {
        if (n->list.n > 0)
            qr_jexpect(p, QR_JT_COMMA, "',' or ']' in a list");
        if (qr_jskip(p, QR_JT_RBRACKET))
            break;
        push(p, n, qr_jparse_expr(p, true));
    }
    return n;
}

static struct qr_jnode *dict_display(struct qr_jparser *p)
{
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_DICT, qr_jnext(p)->line);
    while (!qr_jskip(p, QR_JT_RBRACE)) {
        if (n->list.n > 0)
            qr_jexpect(p, QR_JT_COMMA, "',' or '}' in a dict");
        if (qr_jskip(p, QR_JT_RBRACE))
            break;
        push(p, n, qr_jparse_expr(p, true));
        qr_jexpect(p, QR_JT_COLON, "':' behind a dict's key");
        push(p, n, qr_jparse_expr(p, true));
    }
    return n;
}

static struct qr_jnode *primary(struct qr_jparser *p, bool with_namespace)
{
    struct qr_jnode *n;
    switch (qr_jpeek(p)->type) {
    case QR_JT_NAME: return name_or_keyword(p, with_namespace);
    case QR_JT_STRING: return string_constant(p);
    case QR_JT_INT:
    case QR_JT_FLOAT: return number_constant(p);
    case QR_JT_LBRACKET: return list_display(p);
    case QR_JT_LBRACE: return dict_display(p);
    case QR_JT_LPAREN:
        qr_jnext(p);
        n = qr_jparse_tuple(p, QR_JTUPLE_PARENS, NULL);
        qr_jexpect(p, QR_JT_RPAREN, "')'");
        return n;
    default: qr_junexpected(p, "an expression");
    }
}

/* ---- postfix: attributes, subscripts, calls, filters, tests ---- */

/* A bound of a slice; NULL where none stands. */
static struct qr_jnode *slice_part(struct qr_jparser *p)
{
    enum qr_jtok type = qr_jpeek(p)->type;
    if (type == QR_JT_COLON || type == QR_JT_RBRACKET || type == QR_JT_COMMA)
        return NULL;
    return qr_jparse_expr(p, true);
}

static struct qr_jnode *subscript_arg(struct qr_jparser *p)
{
    int32_t line = qr_jpeek(p)->line;
    struct qr_jnode *from = slice_part(p);
    if (!qr_jskip(p, QR_JT_COLON)) {
        if (!from)
            qr_junexpected(p, "an expression");
        return from;
    }
    struct qr_jnode *to = slice_part(p), *n = make(p, QR_JN_SLICE, 0, line, from, to);
    if (qr_jskip(p, QR_JT_COLON))
        n->c = slice_part(p);
    return above(p, n, n->c);
}

static struct qr_jnode *subscript(struct qr_jparser *p, struct qr_jnode *base)
{
    const struct qr_jtoken *t = qr_jnext(p);
    if (t->type == QR_JT_DOT && qr_jpeek(p)->type == QR_JT_INT)
        return make(p, QR_JN_ITEM, 0, t->line, base, number_constant(p));
    if (t->type == QR_JT_DOT) {
        struct qr_jnode *n = string_node(p, QR_JN_ATTR, qr_jexpect(p, QR_JT_NAME, "a name or number behind '.'"));
        n->a = base;
        return above(p, n, base);
    }
    struct qr_jnode *arg = subscript_arg(p);
    if (qr_jpeek(p)->type == QR_JT_COMMA)
        qr_jparse_error(p, t->line, t->col, "a subscript takes one value or slice");
    qr_jexpect(p, QR_JT_RBRACKET, "']'");
    return make(p, QR_JN_ITEM, 0, t->line, base, arg);
}

static _Noreturn void bad_order(struct qr_jparser *p)
{
    qr_jparse_error(p, qr_jpeek(p)->line, qr_jpeek(p)->col, "the order of arguments in this call is wrong");
}

/* One argument of a call: *args, **kwargs, name=value, or a value. */
static void argument(struct qr_jparser *p, struct qr_jargspec *a, struct qr_jnode *owner)
{
    const struct qr_jtoken *t = qr_jpeek(p);
    const bool star = t->type == QR_JT_MUL, starstar = t->type == QR_JT_POW;
    const bool named = t->type == QR_JT_NAME && qr_jpeek2(p)->type == QR_JT_ASSIGN;
    if (a->starstar || (!starstar && !named && a->star) || (!star && !starstar && !named && a->n_kw > 0))
        bad_order(p);
    int32_t sym = named ? qr_jsymbol(p, t->text, t->len) : 0;
    if (star || starstar || named)
        qr_jnext(p);
    if (named)
        qr_jnext(p); /* = */
    struct qr_jnode *value = qr_jparse_expr(p, true);
    above(p, owner, value);
    if (star) {
        a->star = value;
    } else if (starstar) {
        a->starstar = value;
    } else if (named) {
        a->kw = qr_jparse_grow(p, a->kw, a->n_kw, sizeof *a->kw);
        a->kw[a->n_kw++] = (struct qr_jkwarg){p->t->name[sym], value};
    } else {
        qr_jnodes_push(p, &a->pos, value);
    }
}

/* "(...)" into owner->u.args. */
static struct qr_jnode *call_args(struct qr_jparser *p, struct qr_jnode *owner)
{
    struct qr_jargspec *a = qr_jparse_alloc(p, 1, sizeof *a);
    qr_jexpect(p, QR_JT_LPAREN, "'('");
    for (bool first = true; !qr_jskip(p, QR_JT_RPAREN); first = false) {
        if (!first)
            qr_jexpect(p, QR_JT_COMMA, "',' or ')' in a call");
        if (!first && qr_jskip(p, QR_JT_RPAREN))
            break;
        argument(p, a, owner);
    }
    owner->u.args = a;
    return owner;
}

static struct qr_jnode *call(struct qr_jparser *p, struct qr_jnode *callee)
{
    return call_args(p, make(p, QR_JN_CALL, 0, qr_jpeek(p)->line, callee, NULL));
}

static struct qr_jnode *postfix(struct qr_jparser *p, struct qr_jnode *n)
{
    for (;;) {
        enum qr_jtok type = qr_jpeek(p)->type;
        if (type == QR_JT_DOT || type == QR_JT_LBRACKET)
            n = subscript(p, n);
        else if (type == QR_JT_LPAREN)
            n = call(p, n);
        else
            return n;
    }
}

/* A filter's or test's name, dots allowed, as the node's value. */
static struct qr_jnode *dotted(struct qr_jparser *p, enum qr_jkind kind)
{
    const struct qr_jtoken *first =
        qr_jexpect(p, QR_JT_NAME, kind == QR_JN_FILTER ? "a filter's name" : "a test's name");
    const struct qr_jtoken *last = first;
    while (qr_jskip(p, QR_JT_DOT))
        last = qr_jexpect(p, QR_JT_NAME, "a name behind '.'");
    size_t len = (size_t)(last->text - first->text) + last->len;
    return string_node(p, kind, &(struct qr_jtoken){QR_JT_NAME, first->line, first->col, first->text, len});
}

static _Noreturn void unknown(struct qr_jparser *p, const struct qr_jnode *n, const char *what, const char *nearest)
{
    const struct qr_jstr *name = n->value.u.s;
    int len = name->len > 60 ? 60 : (int)name->len;
    qr_jparse_error(p, n->line, 0, "no %s named '%.*s'%s%s%s", what, len, name->u.flat.data,
                    nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

struct qr_jnode *qr_jparse_filters(struct qr_jparser *p, struct qr_jnode *node, bool start_inline)
{
    while (start_inline || qr_jpeek(p)->type == QR_JT_PIPE) {
        if (!start_inline)
            qr_jnext(p);
        start_inline = false;
        struct qr_jnode *n = dotted(p, QR_JN_FILTER);
        n->a = node;
        n->fn = qr_jfilter_find(n->value.u.s->u.flat.data, n->value.u.s->len);
        if (!n->fn && !p->soft)
            unknown(p, n, "filter", qr_jfilter_nearest(n->value.u.s));
        node = above(p, n, node);
        if (qr_jpeek(p)->type == QR_JT_LPAREN)
            call_args(p, node);
        else
            node->u.args = qr_jparse_alloc(p, 1, sizeof *node->u.args);
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

static struct qr_jnode *test(struct qr_jparser *p, struct qr_jnode *node)
{
    qr_jnext(p); /* is */
    bool negated = qr_jskip_name(p, "not");
    struct qr_jnode *n = dotted(p, QR_JN_TEST);
    n->a = node;
    n->fn = qr_jtest_find(n->value.u.s->u.flat.data, n->value.u.s->len);
    if (!n->fn && !p->soft)
        unknown(p, n, "test", NULL);
    above(p, n, node);
    if (qr_jpeek(p)->type == QR_JT_LPAREN) {
        call_args(p, n);
    } else {
        n->u.args = qr_jparse_alloc(p, 1, sizeof *n->u.args);
        if (qr_jis_name(p, "is"))
            qr_jparse_error(p, n->line, qr_jpeek(p)->col, "tests with 'is' cannot be chained");
        if (bare_argument(p)) {
            struct qr_jnode *arg = postfix(p, primary(p, false));
            above(p, n, arg);
            qr_jnodes_push(p, &n->u.args->pos, arg);
        }
    }
    return negated ? make(p, QR_JN_NOT, 0, n->line, n, NULL) : n;
}

static struct qr_jnode *filters_and_tests(struct qr_jparser *p, struct qr_jnode *n)
{
    for (;;) {
        if (qr_jpeek(p)->type == QR_JT_PIPE)
            n = qr_jparse_filters(p, n, false);
        else if (qr_jis_name(p, "is"))
            n = test(p, n);
        else if (qr_jpeek(p)->type == QR_JT_LPAREN)
            n = call(p, n);
        else
            return n;
    }
}

/* ---- operators, loosest last ---- */

static struct qr_jnode *unary(struct qr_jparser *p, bool with_filter)
{
    const struct qr_jtoken *t = qr_jpeek(p);
    struct qr_jnode *n;
    if (t->type == QR_JT_SUB || t->type == QR_JT_ADD) {
        qr_jenter(p);
        qr_jnext(p);
        n = make(p, t->type == QR_JT_SUB ? QR_JN_NEG : QR_JN_POS, 0, t->line, unary(p, false), NULL);
        qr_jleave(p);
    } else {
        n = primary(p, false);
    }
    n = postfix(p, n);
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
    if (qr_jpeek(p)->type != QR_JT_TILDE)
        return first;
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_CONCAT, qr_jpeek(p)->line);
    push(p, n, first);
    while (qr_jskip(p, QR_JT_TILDE))
        push(p, n, binary(p, 1));
    return n;
}

static struct qr_jnode *operand(struct qr_jparser *p, int level)
{
    return level == 0 ? concat(p) : level == 1 ? binary(p, 2) : unary(p, true);
}

static struct qr_jnode *binary(struct qr_jparser *p, int level)
{
    struct qr_jnode *left = operand(p, level);
    while (tightness(qr_jpeek(p)->type) == level) {
        const struct qr_jtoken *op = qr_jnext(p);
        left = make(p, QR_JN_BINARY, op->type, op->line, left, operand(p, level));
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
    int op = comparison(p);
    if (op == 0)
        return left;
    struct qr_jnode *n = make(p, QR_JN_COMPARE, 0, line, left, NULL);
    for (; op != 0; op = comparison(p)) {
        struct qr_jnode *right = binary(p, 0);
        if (n->list.n == QR_JINJA_PARSE_DEPTH_MAX)
            qr_jparse_error(p, line, 0, "a comparison chains more than %d operands", QR_JINJA_PARSE_DEPTH_MAX);
        n->u.ops = qr_jparse_grow(p, n->u.ops, n->list.n, 1);
        n->u.ops[n->list.n] = (uint8_t)op;
        push(p, n, right);
    }
    return n;
}

static struct qr_jnode *negation(struct qr_jparser *p)
{
    const struct qr_jtoken *t = qr_jpeek(p);
    if (!qr_jtoken_is(t, "not"))
        return compare(p);
    qr_jenter(p);
    qr_jnext(p);
    struct qr_jnode *n = make(p, QR_JN_NOT, 0, t->line, negation(p), NULL);
    qr_jleave(p);
    return n;
}

/* `or`, any, or `and`, which binds tighter. */
static struct qr_jnode *logic(struct qr_jparser *p, bool any)
{
    struct qr_jnode *left = any ? logic(p, false) : negation(p);
    while (qr_jis_name(p, any ? "or" : "and")) {
        int32_t line = qr_jnext(p)->line;
        struct qr_jnode *right = any ? logic(p, false) : negation(p);
        left = make(p, any ? QR_JN_OR : QR_JN_AND, 0, line, left, right);
    }
    return left;
}

/* What stands behind "x" in "x if test else other". */
static struct qr_jnode *condition(struct qr_jparser *p, struct qr_jnode *value, int32_t line)
{
    struct qr_jnode *n = make(p, QR_JN_COND, 0, line, value, logic(p, true));
    if (qr_jskip_name(p, "else"))
        n->c = qr_jparse_expr(p, true);
    return above(p, n, n->c);
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
    qr_jenter(p);
    bool soft = p->soft;
    int32_t line = qr_jpeek(p)->line;
    if (with_cond && !soft)
        p->soft = condition_follows(p);
    struct qr_jnode *n = logic(p, true);
    while (with_cond && qr_jskip_name(p, "if")) {
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
    struct qr_jnode *tuple = NULL;
    while (!tuple_ends(p, end_name)) {
        struct qr_jnode *n = flags & QR_JTUPLE_SIMPLE ? primary(p, (flags & QR_JTUPLE_NAMESPACE) != 0)
                                                      : qr_jparse_expr(p, !(flags & QR_JTUPLE_NO_COND));
        bool comma = qr_jskip(p, QR_JT_COMMA);
        if (!comma && !tuple)
            return n;
        if (!tuple)
            tuple = qr_jnode_new(p, QR_JN_TUPLE, line);
        push(p, tuple, n);
        if (!comma)
            break;
    }
    if (!tuple && !(flags & QR_JTUPLE_PARENS))
        qr_junexpected(p, "an expression");
    return tuple ? tuple : qr_jnode_new(p, QR_JN_TUPLE, line);
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
    if (!assignable(n))
        qr_jparse_error(p, t->line, t->col, "this cannot be assigned to");
    return n;
}
