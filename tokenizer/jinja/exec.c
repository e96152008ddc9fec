/* exec.c - statements and variables. A scope is a list of bindings; what no scope binds is looked for at the top level
 * of the template, then in the context, then among the global functions. A statement says how the flow goes on: to the
 * next one, or out of a loop's round. An error leaves the rendering (value.h). One thread per rendering. */
#include <string.h>

#include "base/assert.h"
#include "tokenizer/jinja/eval.h"

/* ---- variables ---- */

struct qr_jscope *qr_jscope_new(struct qr_jctx *c, struct qr_jscope *up)
{
    struct qr_jscope *s = qr_jalloc(c, 1, sizeof *s);
    *s = (struct qr_jscope){.up = up};
    return s;
}

static struct qr_jval *binding(struct qr_jscope *s, int32_t sym)
{
    for (int32_t i = 0; i < s->n; i++) {
        if (s->bind[i].sym == sym)
            return &s->bind[i].val;
    }
    return NULL;
}

void qr_jvar_set(struct qr_jctx *c, int32_t sym, struct qr_jval v)
{
    QR_ASSERT(sym >= 0 && sym < c->t->n_syms);
    struct qr_jscope *s = c->scope;
    if (!s) {
        c->root[sym] = v;
        return;
    }
    struct qr_jval *at = binding(s, sym);
    qr_jcharge(c, s->n / 32);
    if (at) {
        *at = v;
        return;
    }
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 4;
        s->bind = qr_jgrow(c, s->bind, s->n, s->cap, sizeof *s->bind);
    }
    s->bind[s->n++] = (struct qr_jbind){sym, v};
}

struct qr_jval qr_jvar_get(struct qr_jctx *c, int32_t sym)
{
    QR_ASSERT(sym >= 0 && sym < c->t->n_syms);
    int64_t seen = 0;
    struct qr_jval *at = NULL;
    for (struct qr_jscope *s = c->scope; s && !at; s = s->up) {
        at = binding(s, sym);
        seen += s->n;
    }
    qr_jcharge(c, seen / 32);
    if (!at)
        at = c->root[sym].type != QR_J_ABSENT ? &c->root[sym] : &c->global[sym];
    if (at->type != QR_J_ABSENT)
        return *at;
    if (c->t->builtin[sym])
        return (struct qr_jval){.type = QR_J_FUNC, .u.func = c->t->builtin[sym]};
    return qr_jundef(c, QR_JUNDEF_NAME, QR_J_UNDEF, qr_jlit(c, c->t->name[sym]));
}

static void assign(struct qr_jctx *c, const struct qr_jnode *target, struct qr_jval v)
{
    if (target->kind == QR_JN_NAME) {
        qr_jvar_set(c, target->sym, v);
        return;
    }
    if (target->kind == QR_JN_NSREF) { /* ns.attr = v */
        struct qr_jval ns = qr_jvar_get(c, target->sym);
        if (ns.type != QR_J_NS)
            qr_jfail(c, "cannot assign attribute on non-namespace object '%s'", c->t->name[target->sym]);
        qr_jdict_set(c, ns.u.d, target->value, v);
        return;
    }
    QR_ASSERT(target->kind == QR_JN_TUPLE);
    if (!qr_jiterable(&v))
        qr_jfail(c, "cannot unpack non-iterable %s object", qr_jtype_name(&v));
    struct qr_jseq items = qr_jitems(c, &v);
    if (items.n < target->list.n)
        qr_jfail(c, "not enough values to unpack (expected %d, got %lld)", target->list.n, (long long)items.n);
    if (items.n > target->list.n)
        qr_jfail(c, "too many values to unpack (expected %d)", target->list.n);
    for (int32_t i = 0; i < target->list.n; i++)
        assign(c, target->list.at[i], items.at[i]);
}

/* ---- loops ---- */

void qr_jenter_block(struct qr_jctx *c)
{
    if (c->depth >= c->lim->depth_max)
        qr_jlimit(c, "loops and macros are nested deeper than %d", c->lim->depth_max);
    c->depth++;
}

/* The items for which the loop's condition holds. */
static struct qr_jseq filtered(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jseq items)
{
    struct qr_jbag keep = {0};
    for (int64_t i = 0; i < items.n; i++) {
        c->scope->n = 0;
        assign(c, n->a, items.at[i]);
        struct qr_jval test = qr_jeval(c, n->c);
        if (qr_jtruth(&test))
            qr_jbag_push(c, &keep, items.at[i]);
    }
    return (struct qr_jseq){keep.at, keep.n, false};
}

static void rounds(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jloop *loop)
{
    struct qr_jval self = {.type = QR_J_LOOP, .u.loop = loop};
    for (loop->i = 0; loop->i < loop->items.n; loop->i++) {
        c->line = n->line;
        c->scope->n = 0;
        qr_jcharge(c, 1);
        qr_jvar_set(c, c->t->sym_loop, self);
        assign(c, n->a, loop->items.at[loop->i]);
        if (qr_jexec(c, &n->body) == QR_JFLOW_BREAK)
            break;
    }
}

/* Runs the loop over `iter` in a scope below `up`. */
static enum qr_jflow run_loop(struct qr_jctx *c, const struct qr_jnode *n, const struct qr_jval *iter, int32_t depth0,
                              struct qr_jscope *up)
{
    struct qr_jscope *outer = c->scope;
    struct qr_jloop *loop = qr_jalloc(c, 1, sizeof *loop);
    enum qr_jflow flow = QR_JFLOW_NEXT;
    qr_jenter_block(c);
    *loop = (struct qr_jloop){.depth0 = depth0, .recurse = n->op ? n : NULL, .scope = up};
    c->scope = qr_jscope_new(c, up);
    loop->items = qr_jitems(c, iter);
    if (n->c)
        loop->items = filtered(c, n, loop->items);
    if (loop->items.n > 0)
        rounds(c, n, loop);
    else if (n->other.n > 0)
        flow = qr_jexec(c, &n->other);
    c->scope = outer;
    c->depth--;
    return flow;
}

static enum qr_jflow exec_for(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval iter = qr_jeval(c, n->b);
    c->line = n->line;
    return run_loop(c, n, &iter, 0, c->scope);
}

struct qr_jval qr_jloop_call(struct qr_jctx *c, struct qr_jloop *loop, const struct qr_jargs *a)
{
    QR_ASSERT(loop != NULL);
    if (!loop->recurse)
        qr_jfail(c, "The loop must have the 'recursive' marker to be called recursively.");
    if (a->n_pos != 1 || a->n_kw > 0)
        qr_jfail(c, "loop() takes one argument, the items of the inner loop");
    struct qr_jcapture cap;
    qr_jcapture_begin(c, &cap);
    run_loop(c, loop->recurse, &a->pos[0], loop->depth0 + 1, loop->scope);
    return qr_jcapture_end(c, &cap);
}

/* ---- the other statements ---- */

static enum qr_jflow exec_data(struct qr_jctx *c, const struct qr_jnode *n)
{
    qr_jemit(c, n->value.u.s);
    return QR_JFLOW_NEXT;
}

static enum qr_jflow exec_print(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval v = qr_jeval(c, n->a);
    qr_jemit(c, qr_jtext(c, &v));
    return QR_JFLOW_NEXT;
}

static enum qr_jflow exec_if(struct qr_jctx *c, const struct qr_jnode *n)
{
    for (int32_t i = 0; i < n->list.n; i++) {
        struct qr_jval test = qr_jeval(c, n->list.at[i]);
        if (qr_jtruth(&test))
            return qr_jexec(c, &n->u.branch[i]);
    }
    return qr_jexec(c, &n->other);
}

static enum qr_jflow exec_set(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval v = qr_jeval(c, n->b);
    c->line = n->line;
    assign(c, n->a, v);
    return QR_JFLOW_NEXT;
}

/* Runs a body in a scope of its own and catches what it prints. */
static enum qr_jflow caught(struct qr_jctx *c, const struct qr_jnodes *body, struct qr_jval *out)
{
    struct qr_jcapture cap;
    struct qr_jscope *outer = c->scope;
    c->scope = qr_jscope_new(c, outer);
    qr_jcapture_begin(c, &cap);
    enum qr_jflow flow = qr_jexec(c, body);
    *out = qr_jcapture_end(c, &cap);
    c->scope = outer;
    return flow;
}

static enum qr_jflow exec_setblock(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval text;
    enum qr_jflow flow = caught(c, &n->body, &text);
    if (flow != QR_JFLOW_NEXT)
        return flow;
    assign(c, n->a, n->b ? qr_japply_filter(c, n->b, text) : text);
    return QR_JFLOW_NEXT;
}

static enum qr_jflow exec_filterblock(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval text;
    enum qr_jflow flow = caught(c, &n->body, &text);
    if (flow != QR_JFLOW_NEXT)
        return flow;
    text = qr_japply_filter(c, n->b, text);
    if (text.type != QR_J_STR)
        qr_jfail(c, "sequence item 0: expected str instance, %s found", qr_jtype_name(&text));
    qr_jemit(c, text.u.s);
    return QR_JFLOW_NEXT;
}

static struct qr_jval new_macro(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jmacro *m = qr_jalloc(c, 1, sizeof *m);
    *m = (struct qr_jmacro){n->u.sig, n->body, c->scope};
    return (struct qr_jval){.type = QR_J_MACRO, .u.macro = m};
}

static enum qr_jflow exec_macro(struct qr_jctx *c, const struct qr_jnode *n)
{
    qr_jvar_set(c, n->sym, new_macro(c, n));
    return QR_JFLOW_NEXT;
}

/* {% call(x) f(y) %}...: f(y, caller=<the block as a macro>) */
static enum qr_jflow exec_callblock(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval callee = qr_jeval(c, n->a->a);
    struct qr_jargs args = qr_jeval_args(c, n->a->u.args, 1);
    args.kw[args.n_kw++] = (struct qr_jkw){"caller", new_macro(c, n), false};
    c->line = n->line;
    struct qr_jval result = qr_jcall(c, &callee, &args);
    qr_jemit(c, qr_jtext(c, &result));
    return QR_JFLOW_NEXT;
}

static enum qr_jflow exec_scope(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jscope *outer = c->scope, *inner = qr_jscope_new(c, outer);
    for (int32_t i = 0; i + 1 < n->list.n; i += 2) {
        struct qr_jval v = qr_jeval(c, n->list.at[i + 1]); /* in the outer scope */
        c->scope = inner;
        qr_jvar_set(c, n->list.at[i]->sym, v);
        c->scope = outer;
    }
    c->scope = inner;
    enum qr_jflow flow = qr_jexec(c, &n->body);
    c->scope = outer;
    return flow;
}

static enum qr_jflow exec_break(struct qr_jctx *c, const struct qr_jnode *n)
{
    return QR_JFLOW_BREAK;
}

static enum qr_jflow exec_continue(struct qr_jctx *c, const struct qr_jnode *n)
{
    return QR_JFLOW_CONTINUE;
}

typedef enum qr_jflow exec_fn(struct qr_jctx *c, const struct qr_jnode *n);

static exec_fn *const execs[QR_JN_KINDS] = {
    [QR_JN_DATA] = exec_data,           [QR_JN_PRINT] = exec_print,         [QR_JN_FOR] = exec_for,
    [QR_JN_IF] = exec_if,               [QR_JN_SET] = exec_set,             [QR_JN_SETBLOCK] = exec_setblock,
    [QR_JN_MACRO] = exec_macro,         [QR_JN_CALLBLOCK] = exec_callblock, [QR_JN_FILTERBLOCK] = exec_filterblock,
    [QR_JN_WITH] = exec_scope,          [QR_JN_SCOPE] = exec_scope,         [QR_JN_BREAK] = exec_break,
    [QR_JN_CONTINUE] = exec_continue,
};

enum qr_jflow qr_jexec(struct qr_jctx *c, const struct qr_jnodes *body)
{
    QR_ASSERT(body != NULL);
    enum qr_jflow flow = QR_JFLOW_NEXT;
    qr_jdown(c);
    for (int32_t i = 0; i < body->n && flow == QR_JFLOW_NEXT; i++) {
        const struct qr_jnode *n = body->at[i];
        QR_ASSERT(execs[n->kind] != NULL);
        c->line = n->line;
        qr_jcharge(c, 1);
        flow = execs[n->kind](c, n);
    }
    qr_jup(c);
    return flow;
}
