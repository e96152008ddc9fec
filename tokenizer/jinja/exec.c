/* exec.c - statements and variables. A scope is a list of bindings; what no scope binds is looked for at the top level of the
 * template, then in the context, then among the global functions.
 */
#include <string.h>

#include "base/assert.h"
#include "tokenizer/jinja/eval.h"

/* ---- variables ---- */

struct qr_jscope *qr_jscope_new(struct qr_jctx *c, struct qr_jscope *up)
{
    struct qr_jscope *s = qr_jalloc(c, 1, sizeof *s);
    if (s)
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

int qr_jvar_set(struct qr_jctx *c, int32_t sym, struct qr_jval v)
{
    QR_ASSERT(sym >= 0 && sym < c->t->n_syms);
    struct qr_jscope *s = c->scope;
    if (!s) {
        c->root[sym] = v;
        return 0;
    }
    struct qr_jval *at = binding(s, sym);
    int rc = qr_jcharge(c, s->n / 32);
    if (at)
        *at = v;
    if (at || rc)
        return rc;
    if (s->n == s->cap) {
        int32_t cap = s->cap ? s->cap * 2 : 4;
        struct qr_jbind *bind = qr_jalloc(c, (size_t)cap, sizeof *bind);
        if (!bind)
            return QR_E_TOO_LARGE;
        if (s->n > 0)
            memcpy(bind, s->bind, (size_t)s->n * sizeof *bind);
        s->bind = bind;
        s->cap = cap;
    }
    s->bind[s->n++] = (struct qr_jbind){sym, v};
    return 0;
}

int qr_jvar_get(struct qr_jctx *c, int32_t sym, struct qr_jval *out)
{
    QR_ASSERT(sym >= 0 && sym < c->t->n_syms);
    int64_t seen = 0;
    for (struct qr_jscope *s = c->scope; s; s = s->up) {
        struct qr_jval *at = binding(s, sym);
        seen += s->n;
        if (at) {
            *out = *at;
            return qr_jcharge(c, seen / 32);
        }
    }
    int rc = qr_jcharge(c, seen / 32);
    if (rc)
        return rc;
    *out = c->root[sym].type != QR_J_ABSENT ? c->root[sym] : c->global[sym];
    if (out->type != QR_J_ABSENT)
        return 0;
    if (c->t->builtin[sym]) {
        *out = (struct qr_jval){.type = QR_J_FUNC, .u.func = c->t->builtin[sym]};
        return 0;
    }
    struct qr_jval name;
    rc = qr_jlit(c, c->t->name[sym], &name);
    return rc ? rc : qr_jundef(c, QR_JUNDEF_NAME, QR_J_UNDEF, name, NULL, out);
}

/* ns.attr = v */
static int assign_attr(struct qr_jctx *c, const struct qr_jnode *target, struct qr_jval v)
{
    struct qr_jval ns;
    int rc = qr_jvar_get(c, target->sym, &ns);
    if (rc == 0 && ns.type != QR_J_NS)
        rc = qr_jfail(c, "cannot assign attribute on non-namespace object '%s'", c->t->name[target->sym]);
    return rc ? rc : qr_jdict_set(c, ns.u.d, target->value, v);
}

static int assign(struct qr_jctx *c, const struct qr_jnode *target, struct qr_jval v)
{
    if (target->kind == QR_JN_NAME)
        return qr_jvar_set(c, target->sym, v);
    if (target->kind == QR_JN_NSREF)
        return assign_attr(c, target, v);
    QR_ASSERT(target->kind == QR_JN_TUPLE);
    struct qr_jseq items;
    if (!qr_jiterable(&v))
        return qr_jfail(c, "cannot unpack non-iterable %s object", qr_jtype_name(&v));
    int rc = qr_jitems(c, &v, &items);
    if (rc == 0 && items.n < target->list.n)
        rc = qr_jfail(c, "not enough values to unpack (expected %d, got %lld)", target->list.n, (long long)items.n);
    if (rc == 0 && items.n > target->list.n)
        rc = qr_jfail(c, "too many values to unpack (expected %d)", target->list.n);
    for (int32_t i = 0; i < target->list.n && rc == 0; i++)
        rc = assign(c, target->list.at[i], items.at[i]);
    return rc;
}

/* ---- loops ---- */

static int enter(struct qr_jctx *c)
{
    if (c->depth >= c->lim->depth_max)
        return qr_jlimit(c, "loops and macros are nested deeper than %d", c->lim->depth_max);
    c->depth++;
    return 0;
}

/* The items for which the loop's condition holds. */
static int filtered(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jseq *items)
{
    struct qr_jbag keep = {0};
    int rc = 0;
    for (int64_t i = 0; i < items->n && rc == 0; i++) {
        struct qr_jval test;
        bool truth = false;
        c->scope->n = 0;
        rc = assign(c, n->a, items->at[i]);
        if (rc == 0)
            rc = qr_jeval(c, n->c, &test);
        if (rc == 0)
            rc = qr_jtruth(c, &test, &truth);
        if (rc == 0 && truth)
            rc = qr_jbag_push(c, &keep, items->at[i]);
    }
    *items = (struct qr_jseq){keep.at, keep.n, false};
    return rc;
}

static int rounds(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jloop *loop)
{
    struct qr_jval self = {.type = QR_J_LOOP, .u.loop = loop};
    for (loop->i = 0; loop->i < loop->items.n; loop->i++) {
        c->line = n->line;
        c->scope->n = 0;
        int rc = qr_jcharge(c, 1);
        if (rc == 0)
            rc = qr_jvar_set(c, c->t->sym_loop, self);
        if (rc == 0)
            rc = assign(c, n->a, loop->items.at[loop->i]);
        if (rc == 0)
            rc = qr_jexec(c, &n->body);
        if (rc < 0)
            return rc;
        if (rc == QR_JFLOW_BREAK)
            break;
    }
    return 0;
}

/* Runs the loop over `iter` in a scope below `up`. */
static int run_loop(struct qr_jctx *c, const struct qr_jnode *n, const struct qr_jval *iter, int32_t depth0,
                    struct qr_jscope *up)
{
    struct qr_jscope *outer = c->scope;
    struct qr_jloop *loop = qr_jalloc(c, 1, sizeof *loop);
    int rc = loop ? enter(c) : QR_E_TOO_LARGE;
    if (rc)
        return rc;
    *loop = (struct qr_jloop){.depth0 = depth0, .recurse = n->op ? n : NULL, .scope = up};
    c->scope = qr_jscope_new(c, up);
    rc = c->scope ? qr_jitems(c, iter, &loop->items) : QR_E_TOO_LARGE;
    if (rc == 0 && n->c)
        rc = filtered(c, n, &loop->items);
    if (rc == 0 && loop->items.n > 0)
        rc = rounds(c, n, loop);
    else if (rc == 0 && n->other.n > 0)
        rc = qr_jexec(c, &n->other);
    c->scope = outer;
    c->depth--;
    return rc;
}

static int exec_for(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval iter;
    int rc = qr_jeval(c, n->b, &iter);
    c->line = n->line;
    return rc ? rc : run_loop(c, n, &iter, 0, c->scope);
}

int qr_jloop_call(struct qr_jctx *c, struct qr_jloop *loop, const struct qr_jargs *a, struct qr_jval *out)
{
    QR_ASSERT(loop != NULL);
    if (!loop->recurse)
        return qr_jfail(c, "The loop must have the 'recursive' marker to be called recursively.");
    if (a->n_pos != 1 || a->n_kw > 0)
        return qr_jfail(c, "loop() takes one argument, the items of the inner loop");
    struct qr_jcapture cap;
    qr_jcapture_begin(c, &cap);
    int rc = run_loop(c, loop->recurse, &a->pos[0], loop->depth0 + 1, loop->scope);
    int end = qr_jcapture_end(c, &cap, out);
    return rc < 0 ? rc : end;
}

/* ---- the other statements ---- */

static int exec_data(struct qr_jctx *c, const struct qr_jnode *n)
{
    return qr_jemit(c, n->value.u.s);
}

static int exec_print(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval v;
    struct qr_jstr *s;
    int rc = qr_jeval(c, n->a, &v);
    if (rc == 0)
        rc = qr_jtext(c, &v, &s);
    return rc ? rc : qr_jemit(c, s);
}

static int exec_if(struct qr_jctx *c, const struct qr_jnode *n)
{
    for (int32_t i = 0; i < n->list.n; i++) {
        struct qr_jval v;
        bool truth = false;
        int rc = qr_jeval(c, n->list.at[i], &v);
        if (rc == 0)
            rc = qr_jtruth(c, &v, &truth);
        if (rc)
            return rc;
        if (truth)
            return qr_jexec(c, &n->u.branch[i]);
    }
    return qr_jexec(c, &n->other);
}

static int exec_set(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval v;
    int rc = qr_jeval(c, n->b, &v);
    c->line = n->line;
    return rc ? rc : assign(c, n->a, v);
}

/* Runs a body in a scope of its own and catches what it prints. Returns the body's flow. */
static int caught(struct qr_jctx *c, const struct qr_jnodes *body, struct qr_jval *out)
{
    struct qr_jcapture cap;
    struct qr_jscope *outer = c->scope;
    c->scope = qr_jscope_new(c, outer);
    if (!c->scope) {
        c->scope = outer;
        return QR_E_TOO_LARGE;
    }
    qr_jcapture_begin(c, &cap);
    int rc = qr_jexec(c, body), end = qr_jcapture_end(c, &cap, out);
    c->scope = outer;
    return rc ? rc : end;
}

static int exec_setblock(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval text;
    int rc = caught(c, &n->body, &text);
    if (rc == 0 && n->b)
        rc = qr_japply_filter(c, n->b, text, &text);
    return rc ? rc : assign(c, n->a, text);
}

static int exec_filterblock(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval text;
    struct qr_jstr *s;
    int rc = caught(c, &n->body, &text);
    if (rc == 0)
        rc = qr_japply_filter(c, n->b, text, &text);
    if (rc == 0 && text.type != QR_J_STR)
        rc = qr_jfail(c, "sequence item 0: expected str instance, %s found", qr_jtype_name(&text));
    if (rc == 0)
        rc = qr_jtext(c, &text, &s);
    return rc ? rc : qr_jemit(c, s);
}

static int new_macro(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out)
{
    struct qr_jmacro *m = qr_jalloc(c, 1, sizeof *m);
    if (!m)
        return QR_E_TOO_LARGE;
    *m = (struct qr_jmacro){n->u.sig, n->body, c->scope};
    *out = (struct qr_jval){.type = QR_J_MACRO, .u.macro = m};
    return 0;
}

static int exec_macro(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval m;
    int rc = new_macro(c, n, &m);
    return rc ? rc : qr_jvar_set(c, n->sym, m);
}

/* {% call(x) f(y) %}...: f(y, caller=<the block as a macro>) */
static int exec_callblock(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval callee, caller, result;
    struct qr_jargs args;
    struct qr_jstr *s;
    int rc = qr_jeval(c, n->a->a, &callee);
    if (rc == 0)
        rc = qr_jeval_args(c, n->a->u.args, 1, &args);
    if (rc == 0)
        rc = new_macro(c, n, &caller);
    if (rc)
        return rc;
    args.kw[args.n_kw++] = (struct qr_jkw){"caller", caller, false};
    c->line = n->line;
    rc = qr_jcall(c, &callee, &args, &result);
    if (rc == 0)
        rc = qr_jtext(c, &result, &s);
    return rc ? rc : qr_jemit(c, s);
}

static int exec_scope(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jscope *outer = c->scope, *inner = qr_jscope_new(c, outer);
    int rc = inner ? 0 : QR_E_TOO_LARGE;
    for (int32_t i = 0; i + 1 < n->list.n && rc == 0; i += 2) {
        struct qr_jval v;
        rc = qr_jeval(c, n->list.at[i + 1], &v); /* in the outer scope */
        c->scope = inner;
        if (rc == 0)
            rc = qr_jvar_set(c, n->list.at[i]->sym, v);
        c->scope = outer;
    }
    if (rc)
        return rc;
    c->scope = inner;
    rc = qr_jexec(c, &n->body);
    c->scope = outer;
    return rc;
}

static int exec_break(struct qr_jctx *c, const struct qr_jnode *n)
{
    return QR_JFLOW_BREAK;
}

static int exec_continue(struct qr_jctx *c, const struct qr_jnode *n)
{
    return QR_JFLOW_CONTINUE;
}

typedef int exec_fn(struct qr_jctx *c, const struct qr_jnode *n);

static exec_fn *const execs[QR_JN_KINDS] = {
    [QR_JN_DATA] = exec_data,           [QR_JN_PRINT] = exec_print,         [QR_JN_FOR] = exec_for,
    [QR_JN_IF] = exec_if,               [QR_JN_SET] = exec_set,             [QR_JN_SETBLOCK] = exec_setblock,
    [QR_JN_MACRO] = exec_macro,         [QR_JN_CALLBLOCK] = exec_callblock, [QR_JN_FILTERBLOCK] = exec_filterblock,
    [QR_JN_WITH] = exec_scope,          [QR_JN_SCOPE] = exec_scope,         [QR_JN_BREAK] = exec_break,
    [QR_JN_CONTINUE] = exec_continue,
};

int qr_jexec(struct qr_jctx *c, const struct qr_jnodes *body)
{
    QR_ASSERT(body != NULL);
    int rc = qr_jdown(c);
    if (rc)
        return rc;
    for (int32_t i = 0; i < body->n && rc == 0; i++) {
        const struct qr_jnode *n = body->at[i];
        QR_ASSERT(execs[n->kind] != NULL);
        c->line = n->line;
        rc = qr_jcharge(c, 1);
        if (rc == 0)
            rc = execs[n->kind](c, n);
    }
    qr_jup(c);
    return rc;
}
