/* stmt.c - statements: what stands between {% and %}, and the text around it. It builds the tree of a template once;
 * nothing is executed here. Nesting is bounded, and errors name line and tag. One thread, when a template is compiled.
 */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "tokenizer/jinja/ast.h"

typedef struct qr_jnode *statement_fn(struct qr_jparser *p);

/* Parses a body behind the tag just read. Functions, loops and scopes are strict again about unknown filters: the reference
 * compiles them even when a condition stands around. */
static bool body_of(struct qr_jparser *p, struct qr_jnodes *out, bool soft, const char *const *ends, const char *tag,
                    int32_t line)
{
    bool was = p->soft;
    p->soft = soft;
    bool ok = qr_jparse_body(p, out, ends, tag, line);
    p->soft = was;
    return ok;
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
    static const char *const ends[] = {"endfor", "else", NULL}, *const end[] = {"endfor", NULL};
    int32_t line = qr_jnext(p)->line;
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_FOR, line);
    if (!n || !(n->a = qr_jparse_target(p, false, "in")))
        return NULL;
    if (!qr_jskip_name(p, "in"))
        return qr_junexpected(p, "'in'");
    if (!(n->b = qr_jparse_tuple(p, QR_JTUPLE_NO_COND, "recursive")))
        return NULL;
    if (qr_jskip_name(p, "if") && !(n->c = qr_jparse_expr(p, true)))
        return NULL;
    n->op = qr_jskip_name(p, "recursive");
    p->t->loops_content = p->t->loops_content || is_content(p, n->b);
    p->loops++;
    bool ok = body_of(p, &n->body, false, ends, "for", line);
    p->loops--;
    if (!ok)
        return NULL;
    bool has_else = qr_jtoken_is(qr_jnext(p), "else");
    if (!has_else)
        return n;
    ok = body_of(p, &n->other, false, end, "for", line);
    if (ok)
        qr_jnext(p);
    return ok ? n : NULL;
}

static struct qr_jnode *if_chain(struct qr_jparser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const end[] = {"endif", NULL};
    int32_t line = qr_jnext(p)->line, cap = 0;
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_IF, line);
    struct qr_jvec tests = {0};
    struct qr_jnodes *branch = NULL;
    bool ok = n != NULL, more = true;
    while (ok && more) {
        struct qr_jnode *test = qr_jparse_tuple(p, QR_JTUPLE_NO_COND, NULL);
        if (!test)
            break;
        qr_jvec_push(&tests, test);
        if (tests.n > cap) {
            cap = cap ? cap * 2 : 4;
            branch = qr_realloc(branch, (size_t)cap, sizeof *branch);
        }
        ok = body_of(p, &branch[tests.n - 1], true, ends, "if", line);
        more = ok && qr_jskip_name(p, "elif");
    }
    ok = ok && !more;
    if (ok && !qr_jskip_name(p, "endif")) {
        qr_jnext(p); /* else */
        ok = body_of(p, &n->other, true, end, "if", line);
        if (ok)
            qr_jnext(p);
    }
    if (ok && (n->u.branch = qr_jparse_alloc(p, (size_t)tests.n, sizeof *branch)))
        memcpy(n->u.branch, branch, (size_t)tests.n * sizeof *branch);
    qr_free(branch);
    ok = ok && n->u.branch;
    if (ok)
        return qr_jvec_done(p, &tests, &n->list) ? n : NULL;
    qr_free(tests.at);
    return NULL;
}

static struct qr_jnode *set(struct qr_jparser *p)
{
    static const char *const end[] = {"endset", NULL};
    int32_t line = qr_jnext(p)->line;
    struct qr_jnode *target = qr_jparse_target(p, true, NULL);
    if (!target)
        return NULL;
    if (qr_jskip(p, QR_JT_ASSIGN)) {
        struct qr_jnode *n = qr_jnode_new(p, QR_JN_SET, line);
        if (!n)
            return NULL;
        n->a = target;
        n->b = qr_jparse_tuple(p, 0, NULL);
        return n->b ? n : NULL;
    }
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_SETBLOCK, line);
    if (!n)
        return NULL;
    n->a = target;
    if (qr_jpeek(p)->type == QR_JT_PIPE && !(n->b = qr_jparse_filters(p, NULL, false)))
        return NULL;
    if (!body_of(p, &n->body, false, end, "set", line))
        return NULL;
    qr_jnext(p);
    return n;
}

/* "(a, b=1)": the names and defaults of a macro or call block. */
static bool signature(struct qr_jparser *p, struct qr_jsig *sig)
{
    struct qr_jvec defaults = {0};
    int32_t *sym = NULL, n = 0, cap = 0;
    bool ok = qr_jexpect(p, QR_JT_LPAREN, "'('");
    while (ok && !qr_jskip(p, QR_JT_RPAREN)) {
        if (n > 0 && !qr_jexpect(p, QR_JT_COMMA, "',' or ')'")) {
            ok = false;
            break;
        }
        const struct qr_jtoken *t = qr_jpeek(p);
        ok = qr_jexpect(p, QR_JT_NAME, "a parameter's name");
        int32_t s = ok ? qr_jsymbol(p, t->text, t->len) : -1;
        struct qr_jnode *value = NULL;
        bool has_default = ok && qr_jskip(p, QR_JT_ASSIGN);
        if (has_default)
            value = qr_jparse_expr(p, true);
        else if (ok && defaults.n > 0)
            qr_jparse_error(p, t->line, t->col, "a parameter without default follows one with a default");
        ok = ok && s >= 0 && (has_default ? value != NULL : defaults.n == 0);
        if (!ok)
            break;
        if (n == cap) {
            cap = cap ? cap * 2 : 8;
            sym = qr_realloc(sym, (size_t)cap, sizeof *sym);
        }
        sym[n++] = s;
        if (value)
            qr_jvec_push(&defaults, value);
    }
    sig->n = n;
    sig->sym = ok ? qr_jparse_alloc(p, (size_t)n, sizeof *sym) : NULL;
    sig->fallback = sig->sym ? qr_jparse_alloc(p, (size_t)n, sizeof *sig->fallback) : NULL;
    ok = ok && sig->fallback;
    if (ok && n > 0)
        memcpy(sig->sym, sym, (size_t)n * sizeof *sym);
    if (ok && defaults.n > 0)
        memcpy(sig->fallback + (n - defaults.n), defaults.at, (size_t)defaults.n * sizeof *defaults.at);
    qr_free(sym);
    qr_free(defaults.at);
    return ok;
}

/* The body of a macro or call block, in which caller, varargs and kwargs may be mentioned. */
static bool macro_body(struct qr_jparser *p, struct qr_jnode *n, const char *const *end, const char *tag)
{
    struct qr_jmacro_scope scope = {p->macro, n->u.sig};
    int32_t loops = p->loops;
    p->macro = &scope;
    p->loops = 0;
    bool ok = body_of(p, &n->body, false, end, tag, n->line);
    p->macro = scope.up;
    p->loops = loops;
    if (ok)
        qr_jnext(p);
    return ok;
}

static struct qr_jnode *macro_node(struct qr_jparser *p, enum qr_jkind kind, int32_t line)
{
    struct qr_jnode *n = qr_jnode_new(p, kind, line);
    return n && (n->u.sig = qr_jparse_alloc(p, 1, sizeof *n->u.sig)) ? n : NULL;
}

static struct qr_jnode *macro(struct qr_jparser *p)
{
    static const char *const end[] = {"endmacro", NULL};
    struct qr_jnode *n = macro_node(p, QR_JN_MACRO, qr_jnext(p)->line);
    const struct qr_jtoken *name = qr_jpeek(p);
    if (!n || !qr_jexpect(p, QR_JT_NAME, "a macro's name"))
        return NULL;
    n->sym = qr_jsymbol(p, name->text, name->len);
    if (n->sym < 0 || !signature(p, n->u.sig))
        return NULL;
    n->u.sig->name = p->t->name[n->sym];
    return macro_body(p, n, end, "macro") ? n : NULL;
}

static struct qr_jnode *call_block(struct qr_jparser *p)
{
    static const char *const end[] = {"endcall", NULL};
    const struct qr_jtoken *t = qr_jnext(p);
    struct qr_jnode *n = macro_node(p, QR_JN_CALLBLOCK, t->line);
    if (!n)
        return NULL;
    bool ok = qr_jpeek(p)->type == QR_JT_LPAREN ? signature(p, n->u.sig) : true;
    if (!ok || !(n->a = qr_jparse_expr(p, true)))
        return NULL;
    if (n->a->kind != QR_JN_CALL)
        return qr_jparse_error(p, t->line, t->col, "a call block needs a call");
    return macro_body(p, n, end, "call") ? n : NULL;
}

static struct qr_jnode *filter_block(struct qr_jparser *p)
{
    static const char *const end[] = {"endfilter", NULL};
    int32_t line = qr_jnext(p)->line;
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_FILTERBLOCK, line);
    if (!n || !(n->b = qr_jparse_filters(p, NULL, true)) || !body_of(p, &n->body, false, end, "filter", line))
        return NULL;
    qr_jnext(p);
    return n;
}

static struct qr_jnode *with(struct qr_jparser *p)
{
    static const char *const end[] = {"endwith", NULL};
    int32_t line = qr_jnext(p)->line;
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_WITH, line);
    struct qr_jvec v = {0};
    bool ok = n != NULL;
    while (ok && qr_jpeek(p)->type != QR_JT_BLOCK_END) {
        ok = v.n == 0 || qr_jexpect(p, QR_JT_COMMA, "','");
        const struct qr_jtoken *t = qr_jpeek(p);
        struct qr_jnode *target = ok && qr_jexpect(p, QR_JT_NAME, "a name") ? qr_jnode_new(p, QR_JN_NAME, t->line) : NULL;
        if (target)
            target->sym = qr_jsymbol(p, t->text, t->len);
        ok = target && target->sym >= 0 && qr_jexpect(p, QR_JT_ASSIGN, "'='");
        struct qr_jnode *value = ok ? qr_jparse_expr(p, true) : NULL;
        ok = value != NULL;
        if (ok) {
            qr_jvec_push(&v, target);
            qr_jvec_push(&v, value);
        }
    }
    if (!ok) {
        qr_free(v.at);
        return NULL;
    }
    if (!qr_jvec_done(p, &v, &n->list) || !body_of(p, &n->body, false, end, "with", line))
        return NULL;
    qr_jnext(p);
    return n;
}

static struct qr_jnode *scope(struct qr_jparser *p, int32_t line, const char *tag, const char *const *end)
{
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_SCOPE, line);
    if (!n || !body_of(p, &n->body, false, end, tag, line))
        return NULL;
    qr_jnext(p);
    return n;
}

/* The assistant's part of a conversation, marked for training masks: it renders as its body. */
static struct qr_jnode *generation(struct qr_jparser *p)
{
    static const char *const end[] = {"endgeneration", NULL};
    return scope(p, qr_jnext(p)->line, "generation", end);
}

static struct qr_jnode *block(struct qr_jparser *p)
{
    static const char *const end[] = {"endblock", NULL};
    int32_t line = qr_jnext(p)->line;
    const struct qr_jtoken *name = qr_jpeek(p);
    if (!qr_jexpect(p, QR_JT_NAME, "a block's name"))
        return NULL;
    qr_jskip_name(p, "scoped");
    qr_jskip_name(p, "required");
    struct qr_jnode *n = scope(p, line, "block", end);
    if (n && qr_jpeek(p)->type == QR_JT_NAME && qr_jpeek(p)->len == name->len &&
        memcmp(qr_jpeek(p)->text, name->text, name->len) == 0)
        qr_jnext(p);
    return n;
}

static struct qr_jnode *autoescape(struct qr_jparser *p)
{
    static const char *const end[] = {"endautoescape", NULL};
    const struct qr_jtoken *t = qr_jnext(p);
    struct qr_jnode *value = qr_jparse_expr(p, true);
    if (!value)
        return NULL;
    if (value->kind != QR_JN_CONST || value->value.type != QR_J_BOOL || value->value.u.b)
        return qr_jparse_error(p, t->line, t->col, "a chat template is no HTML: only 'autoescape false' is allowed");
    return scope(p, t->line, "autoescape", end);
}

static struct qr_jnode *print(struct qr_jparser *p)
{
    int32_t line = qr_jnext(p)->line;
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_PRINT, line);
    if (n)
        n->a = qr_jparse_expr(p, true);
    return n && n->a ? n : NULL;
}

static struct qr_jnode *jump(struct qr_jparser *p, enum qr_jkind kind, const char *word)
{
    const struct qr_jtoken *t = qr_jnext(p);
    if (p->loops == 0)
        return qr_jparse_error(p, t->line, t->col, "'%s' outside of a loop", word);
    return qr_jnode_new(p, kind, t->line);
}

static struct qr_jnode *break_loop(struct qr_jparser *p)
{
    return jump(p, QR_JN_BREAK, "break");
}

static struct qr_jnode *continue_loop(struct qr_jparser *p)
{
    return jump(p, QR_JN_CONTINUE, "continue");
}

static struct qr_jnode *refused(struct qr_jparser *p)
{
    const struct qr_jtoken *t = qr_jpeek(p);
    return qr_jparse_error(p, t->line, t->col, "'%.*s' is not allowed: a chat template is one file", (int)t->len, t->text);
}

static const struct {
    const char *word;
    statement_fn *parse;
} statements[] = {
    {"if", if_chain}, {"set", set}, {"for", for_loop}, {"macro", macro}, {"break", break_loop},
    {"continue", continue_loop}, {"generation", generation}, {"call", call_block}, {"filter", filter_block},
    {"with", with}, {"print", print}, {"block", block}, {"autoescape", autoescape}, {"include", refused},
    {"import", refused}, {"from", refused}, {"extends", refused},
};

/* What is missing when the template ends, or another end tag stands, inside a block. */
static struct qr_jnode *wrong_tag(struct qr_jparser *p, const char *const *ends, const char *tag, int32_t line)
{
    char buf[64], wanted[64] = "";
    const struct qr_jtoken *t = qr_jpeek(p);
    const char *found = qr_jtoken_name(t, buf);
    if (!tag)
        return qr_jparse_error(p, t->line, t->col, "unknown tag %s", found);
    for (int i = 0; ends[i]; i++) {
        if (i > 0)
            strcat(wanted, " or ");
        strcat(wanted, ends[i]);
    }
    return qr_jparse_error(p, t->line, t->col, "unexpected %s: the '%s' opened on line %d needs %s", found, tag, line, wanted);
}

static struct qr_jnode *statement(struct qr_jparser *p, const char *const *ends, const char *tag, int32_t line)
{
    for (int i = 0; i < QR_COUNT(statements); i++) {
        if (!qr_jis_name(p, statements[i].word))
            continue;
        struct qr_jnode *n = statements[i].parse(p);
        return n && qr_jexpect(p, QR_JT_BLOCK_END, "the end of the tag (%})") ? n : NULL;
    }
    return wrong_tag(p, ends, tag, line);
}

static bool at_end_tag(const struct qr_jparser *p, const char *const *ends)
{
    for (int i = 0; ends && ends[i]; i++) {
        if (qr_jis_name(p, ends[i]))
            return true;
    }
    return false;
}

static struct qr_jnode *data(struct qr_jparser *p)
{
    const struct qr_jtoken *t = qr_jnext(p);
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_DATA, t->line);
    struct qr_jstr *s = n ? qr_jparse_alloc(p, 1, sizeof *s) : NULL;
    if (!s)
        return NULL;
    s->len = t->len;
    s->u.flat.data = t->text;
    s->trust = QR_JTRUST_ALL;
    qr_jstr_ascii(s);
    n->value = qr_jstrv(s);
    return n;
}

static struct qr_jnode *variable(struct qr_jparser *p)
{
    int32_t line = qr_jnext(p)->line;
    struct qr_jnode *n = qr_jnode_new(p, QR_JN_PRINT, line);
    if (!n)
        return NULL;
    n->a = qr_jparse_tuple(p, 0, NULL);
    return n->a && qr_jexpect(p, QR_JT_VAR_END, "the end of the expression (}})") ? n : NULL;
}

/* Everything up to an end tag (its word is the next token then), or to the end of the text when ends is NULL. */
static bool parse_nodes(struct qr_jparser *p, struct qr_jvec *v, const char *const *ends, const char *tag, int32_t line)
{
    for (;;) {
        const struct qr_jtoken *t = qr_jpeek(p);
        struct qr_jnode *n = NULL;
        if (t->type == QR_JT_EOF && !ends)
            return true;
        if (t->type == QR_JT_DATA)
            n = data(p);
        else if (t->type == QR_JT_VAR_BEGIN)
            n = variable(p);
        else if (t->type == QR_JT_BLOCK_BEGIN) {
            qr_jnext(p);
            if (at_end_tag(p, ends))
                return true;
            n = statement(p, ends, tag, line);
        } else
            n = wrong_tag(p, ends, tag, line);
        if (!n)
            return false;
        qr_jvec_push(v, n);
    }
}

bool qr_jparse_body(struct qr_jparser *p, struct qr_jnodes *out, const char *const *ends, const char *tag, int32_t line)
{
    QR_ASSERT(ends != NULL && tag != NULL);
    qr_jskip(p, QR_JT_COLON);
    if (!qr_jexpect(p, QR_JT_BLOCK_END, "the end of the tag (%})") || !qr_jenter(p))
        return false;
    struct qr_jvec v = {0};
    bool ok = parse_nodes(p, &v, ends, tag, line);
    qr_jleave(p);
    if (ok)
        return qr_jvec_done(p, &v, out);
    qr_free(v.at);
    return false;
}

bool qr_jparse_root(struct qr_jparser *p, struct qr_jnodes *out)
{
    QR_ASSERT(out != NULL);
    struct qr_jvec v = {0};
    if (parse_nodes(p, &v, NULL, NULL, 0))
        return qr_jvec_done(p, &v, out);
    qr_free(v.at);
    return false;
}
