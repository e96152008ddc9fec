/* stmt.c - statements: what stands between {% and %}, and the text around it. It builds the tree of a template once;
 * nothing is executed here. Nesting is bounded. An error names line and tag and leaves the parser (ast.h). One thread,
 * when a template is compiled.
 */
#include <string.h>

#include "base/assert.h"
#include "tokenizer/jinja/ast.h"

typedef struct qr_jnode *statement_fn(struct qr_jparser *p);

/* What a body may end with, and the tag that opened it, for messages. */
struct tag {
    const char *name, *end[4]; /* end: NULL behind the last */
    int32_t line;
};

static struct qr_jnodes nodes(struct qr_jparser *p, const struct tag *tag);

/* Parses a body behind the tag just read, up to an end tag, whose word is the next token then. Functions, loops and
 * scopes are strict again about unknown filters: the reference compiles them even when a condition stands around. */
static struct qr_jnodes body(struct qr_jparser *p, bool soft, const struct tag *tag)
{
    bool was = p->soft;
    qr_jskip(p, QR_JT_COLON);
    qr_jexpect(p, QR_JT_BLOCK_END, "the end of the tag (%})");
    qr_jenter(p);
    p->soft = soft;
    struct qr_jnodes list = nodes(p, tag);
    p->soft = was;
    qr_jleave(p);
    return list;
}

/* The same where one end tag closes the statement: it is read, too. */
static struct qr_jnodes last_body(struct qr_jparser *p, bool soft, const struct tag *tag)
{
    struct qr_jnodes list = body(p, soft, tag);
    qr_jnext(p);
    return list;
}

/* Whether a loop over this goes through the parts of a message's content: over x.content, x['content'], or a variable whose name
 * says content. */
static bool is_content(const struct qr_jparser *p, const struct qr_jnode *n)
{
    while (n->kind == QR_JN_FILTER && n->a)
        n = n->a;
    if (n->kind == QR_JN_NAME)
        return strstr(p->t->name[n->sym], "content") != NULL;
    const struct qr_jval *name = n->kind == QR_JN_ATTR ? &n->value : n->kind == QR_JN_ITEM ? &n->b->value : NULL;
    return name && name->type == QR_J_STR && qr_jstr_is(name->u.s, "content");
}

static struct qr_jnode *for_loop(struct qr_jparser *p)
{
    int32_t line = qr_jnext(p)->line;
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_FOR, line);
    n->a = qr_jparse_target(p, false, "in");
    if (!qr_jskip_name(p, "in"))
        qr_junexpected(p, "'in'");
    n->b = qr_jparse_tuple(p, QR_JTUPLE_NO_COND, "recursive");
    if (qr_jskip_name(p, "if"))
        n->c = qr_jparse_expr(p, true);
    n->op = qr_jskip_name(p, "recursive");
    p->t->loops_content = p->t->loops_content || is_content(p, n->b);
    p->loops++;
    n->body = body(p, false, &(struct tag){"for", {"endfor", "else"}, line});
    p->loops--;
    if (qr_jtoken_is(qr_jnext(p), "else"))
        n->other = last_body(p, false, &(struct tag){"for", {"endfor"}, line});
    return n;
}

static struct qr_jnode *if_chain(struct qr_jparser *p)
{
    const struct tag tag = {"if", {"elif", "else", "endif"}, qr_jnext(p)->line};
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_IF, tag.line);
    do {
        n->u.branch = qr_jparse_grow(p, n->u.branch, n->list.n, sizeof *n->u.branch);
        qr_jnodes_push(p, &n->list, qr_jparse_tuple(p, QR_JTUPLE_NO_COND, NULL));
        n->u.branch[n->list.n - 1] = body(p, true, &tag);
    } while (qr_jskip_name(p, "elif"));
    if (qr_jtoken_is(qr_jnext(p), "else"))
        n->other = last_body(p, true, &(struct tag){"if", {"endif"}, tag.line});
    return n;
}

static struct qr_jnode *set(struct qr_jparser *p)
{
    int32_t line = qr_jnext(p)->line;
    struct qr_jnode *target = qr_jparse_target(p, true, NULL);
    bool block = !qr_jskip(p, QR_JT_ASSIGN);
    struct qr_jnode *n = qr_jnode_new(p, block ? QR_JN_SETBLOCK : QR_JN_SET, line);
    n->a = target;
    if (!block) {
        n->b = qr_jparse_tuple(p, 0, NULL);
        return n;
    }
    if (qr_jpeek(p)->type == QR_JT_PIPE)
        n->b = qr_jparse_filters(p, NULL, false);
    n->body = last_body(p, false, &(struct tag){"set", {"endset"}, line});
    return n;
}

/* "(a, b=1)": the names and defaults of a macro or call block. */
static void signature(struct qr_jparser *p, struct qr_jsig *sig)
{
    qr_jexpect(p, QR_JT_LPAREN, "'('");
    for (bool defaults = false; !qr_jskip(p, QR_JT_RPAREN); sig->n++) {
        if (sig->n > 0)
            qr_jexpect(p, QR_JT_COMMA, "',' or ')'");
        const struct qr_jtoken *t = qr_jexpect(p, QR_JT_NAME, "a parameter's name");
        sig->sym = qr_jparse_grow(p, sig->sym, sig->n, sizeof *sig->sym);
        sig->sym[sig->n] = qr_jsymbol(p, t->text, t->len);
        sig->fallback = qr_jparse_grow(p, sig->fallback, sig->n, sizeof *sig->fallback);
        if (qr_jskip(p, QR_JT_ASSIGN)) {
            defaults = true;
            sig->fallback[sig->n] = qr_jparse_expr(p, true);
        } else if (defaults) {
            qr_jparse_error(p, t->line, t->col, "a parameter without default follows one with a default");
        }
    }
}

/* The body of a macro or call block, in which caller, varargs and kwargs may be mentioned. */
static void macro_body(struct qr_jparser *p, struct qr_jnode *n, const struct tag *tag)
{
    struct qr_jmacro_scope scope = {p->macro, n->u.sig};
    int32_t loops = p->loops;
    p->macro = &scope;
    p->loops = 0;
    n->body = last_body(p, false, tag);
    p->macro = scope.up;
    p->loops = loops;
}

static struct qr_jnode *macro_node(struct qr_jparser *p, enum qr_jkind kind, int32_t line)
{
    struct qr_jnode *n = qr_jnode_new(p, kind, line);
    n->u.sig = qr_jparse_alloc(p, 1, sizeof *n->u.sig);
    return n;
}

static struct qr_jnode *macro(struct qr_jparser *p)
{
    struct qr_jnode *n = macro_node(p, QR_JN_MACRO, qr_jnext(p)->line);
    const struct qr_jtoken *name = qr_jexpect(p, QR_JT_NAME, "a macro's name");
    n->sym = qr_jsymbol(p, name->text, name->len);
    signature(p, n->u.sig);
    n->u.sig->name = p->t->name[n->sym];
    macro_body(p, n, &(struct tag){"macro", {"endmacro"}, n->line});
    return n;
}

static struct qr_jnode *call_block(struct qr_jparser *p)
{
    const struct qr_jtoken *t = qr_jnext(p);
    struct qr_jnode *n = macro_node(p, QR_JN_CALLBLOCK, t->line);
    if (qr_jpeek(p)->type == QR_JT_LPAREN)
        signature(p, n->u.sig);
    n->a = qr_jparse_expr(p, true);
    if (n->a->kind != QR_JN_CALL)
        qr_jparse_error(p, t->line, t->col, "a call block needs a call");
    macro_body(p, n, &(struct tag){"call", {"endcall"}, n->line});
    return n;
}

static struct qr_jnode *filter_block(struct qr_jparser *p)
{
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_FILTERBLOCK, qr_jnext(p)->line);
    n->b = qr_jparse_filters(p, NULL, true);
    n->body = last_body(p, false, &(struct tag){"filter", {"endfilter"}, n->line});
    return n;
}

static struct qr_jnode *with(struct qr_jparser *p)
{
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_WITH, qr_jnext(p)->line);
    while (qr_jpeek(p)->type != QR_JT_BLOCK_END) {
        if (n->list.n > 0)
            qr_jexpect(p, QR_JT_COMMA, "','");
        const struct qr_jtoken *t = qr_jexpect(p, QR_JT_NAME, "a name");
        struct qr_jnode *target = qr_jnode_new(p, QR_JN_NAME, t->line);
        target->sym = qr_jsymbol(p, t->text, t->len);
        qr_jexpect(p, QR_JT_ASSIGN, "'='");
        qr_jnodes_push(p, &n->list, target);
        qr_jnodes_push(p, &n->list, qr_jparse_expr(p, true));
    }
    n->body = last_body(p, false, &(struct tag){"with", {"endwith"}, n->line});
    return n;
}

static struct qr_jnode *scope(struct qr_jparser *p, const struct tag *tag)
{
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_SCOPE, tag->line);
    n->body = last_body(p, false, tag);
    return n;
}

/* The assistant's part of a conversation, marked for training masks: it renders as its body. */
static struct qr_jnode *generation(struct qr_jparser *p)
{
    return scope(p, &(struct tag){"generation", {"endgeneration"}, qr_jnext(p)->line});
}

static struct qr_jnode *block(struct qr_jparser *p)
{
    int32_t line = qr_jnext(p)->line;
    const struct qr_jtoken *name = qr_jexpect(p, QR_JT_NAME, "a block's name");
    qr_jskip_name(p, "scoped");
    qr_jskip_name(p, "required");
    struct qr_jnode *n = scope(p, &(struct tag){"block", {"endblock"}, line});
    const struct qr_jtoken *again = qr_jpeek(p);
    if (again->type == QR_JT_NAME && again->len == name->len && memcmp(again->text, name->text, name->len) == 0)
        qr_jnext(p);
    return n;
}

static struct qr_jnode *autoescape(struct qr_jparser *p)
{
    const struct qr_jtoken *t = qr_jnext(p);
    const struct qr_jnode *value = qr_jparse_expr(p, true);
    if (value->kind != QR_JN_CONST || value->value.type != QR_J_BOOL || value->value.u.b)
        qr_jparse_error(p, t->line, t->col, "a chat template is no HTML: only 'autoescape false' is allowed");
    return scope(p, &(struct tag){"autoescape", {"endautoescape"}, t->line});
}

static struct qr_jnode *print(struct qr_jparser *p)
{
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_PRINT, qr_jnext(p)->line);
    n->a = qr_jparse_expr(p, true);
    return n;
}

/* break, continue */
static struct qr_jnode *jump(struct qr_jparser *p)
{
    const struct qr_jtoken *t = qr_jnext(p);
    if (p->loops == 0)
        qr_jparse_error(p, t->line, t->col, "'%.*s' outside of a loop", (int)t->len, t->text);
    return qr_jnode_new(p, qr_jtoken_is(t, "break") ? QR_JN_BREAK : QR_JN_CONTINUE, t->line);
}

static struct qr_jnode *refused(struct qr_jparser *p)
{
    const struct qr_jtoken *t = qr_jpeek(p);
    qr_jparse_error(p, t->line, t->col, "'%.*s' is not allowed: a chat template is one file", (int)t->len, t->text);
}

static const struct {
    const char *word;
    statement_fn *parse;
} statements[] = {
    {"if", if_chain}, {"set", set}, {"for", for_loop}, {"macro", macro}, {"break", jump}, {"continue", jump},
    {"generation", generation}, {"call", call_block}, {"filter", filter_block}, {"with", with}, {"print", print},
    {"block", block}, {"autoescape", autoescape}, {"include", refused}, {"import", refused}, {"from", refused},
    {"extends", refused},
};

/* What is missing when the template ends, or another end tag stands, inside a block. */
static _Noreturn void wrong_tag(struct qr_jparser *p, const struct tag *tag)
{
    char buf[64], wanted[64] = "";
    const struct qr_jtoken *t = qr_jpeek(p);
    const char *found = qr_jtoken_name(t, buf);
    if (!tag)
        qr_jparse_error(p, t->line, t->col, "unknown tag %s", found);
    for (int i = 0; tag->end[i]; i++) {
        if (i > 0)
            strcat(wanted, " or ");
        strcat(wanted, tag->end[i]);
    }
    qr_jparse_error(p, t->line, t->col, "unexpected %s: the '%s' opened on line %d needs %s", found, tag->name,
                    tag->line, wanted);
}

static struct qr_jnode *statement(struct qr_jparser *p, const struct tag *tag)
{
    for (int i = 0; i < QR_COUNT(statements); i++) {
        if (!qr_jis_name(p, statements[i].word))
            continue;
        struct qr_jnode *n = statements[i].parse(p);
        qr_jexpect(p, QR_JT_BLOCK_END, "the end of the tag (%})");
        return n;
    }
    wrong_tag(p, tag);
}

static bool at_end_tag(const struct qr_jparser *p, const struct tag *tag)
{
    for (int i = 0; tag && tag->end[i]; i++) {
        if (qr_jis_name(p, tag->end[i]))
            return true;
    }
    return false;
}

static struct qr_jnode *data(struct qr_jparser *p)
{
    const struct qr_jtoken *t = qr_jnext(p);
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_DATA, t->line);
    n->value = qr_jconst_str(p, t->text, t->len);
    return n;
}

static struct qr_jnode *variable(struct qr_jparser *p)
{
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_PRINT, qr_jnext(p)->line);
    n->a = qr_jparse_tuple(p, 0, NULL);
    qr_jexpect(p, QR_JT_VAR_END, "the end of the expression (}})");
    return n;
}

/* Everything up to an end tag of `tag`, or to the end of the text when it is NULL. */
static struct qr_jnodes nodes(struct qr_jparser *p, const struct tag *tag)
{
    struct qr_jnodes list = {0};
    for (;;) {
        enum qr_jtok type = qr_jpeek(p)->type;
        if (type == QR_JT_EOF && !tag)
            return list;
        if (type == QR_JT_BLOCK_BEGIN) {
            qr_jnext(p);
            if (at_end_tag(p, tag))
                return list;
            qr_jnodes_push(p, &list, statement(p, tag));
        } else if (type == QR_JT_DATA) {
            qr_jnodes_push(p, &list, data(p));
        } else if (type == QR_JT_VAR_BEGIN) {
            qr_jnodes_push(p, &list, variable(p));
        } else {
            wrong_tag(p, tag);
        }
    }
}

struct qr_jnodes qr_jparse_root(struct qr_jparser *p)
{
    QR_ASSERT(p != NULL);
    return nodes(p, NULL);
}
