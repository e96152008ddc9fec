/* eval.c - expressions. One function per kind of node, found in a table. Steps and depth are bounded (value.c). An
 * error leaves the rendering (value.h), so a template can never end the process. The arena is the rendering's own; one
 * thread per rendering. */
#include <string.h>

#include "base/assert.h"
#include "tokenizer/jinja/eval.h"

typedef struct qr_jval eval_fn(struct qr_jctx *c, const struct qr_jnode *n);

static struct qr_jval eval_const(struct qr_jctx *c, const struct qr_jnode *n)
{
    return n->value;
}

static struct qr_jval eval_name(struct qr_jctx *c, const struct qr_jnode *n)
{
    return qr_jvar_get(c, n->sym);
}

static struct qr_jval eval_sequence(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval seq = qr_jseq_new(c, n->kind == QR_JN_LIST ? QR_J_LIST : QR_J_TUPLE, n->list.n);
    for (int32_t i = 0; i < n->list.n; i++)
        seq.u.seq->at[i] = qr_jeval(c, n->list.at[i]);
    return seq;
}

static struct qr_jval eval_dict(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jdict *d = qr_jdict_new(c);
    for (int32_t i = 0; i + 1 < n->list.n; i += 2) {
        struct qr_jval key = qr_jeval(c, n->list.at[i]);
        qr_jdict_set(c, d, key, qr_jeval(c, n->list.at[i + 1]));
    }
    return qr_jdictv(d);
}

static struct qr_jval eval_attr(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval obj = qr_jeval(c, n->a);
    c->line = n->line;
    return qr_jgetattr(c, &obj, &n->value);
}

static struct qr_jval eval_item(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval obj = qr_jeval(c, n->a), key, part[3] = {{0}};
    if (n->b->kind != QR_JN_SLICE) {
        key = qr_jeval(c, n->b);
        c->line = n->line;
        return qr_jgetitem(c, &obj, &key);
    }
    const struct qr_jnode *bound[3] = {n->b->a, n->b->b, n->b->c};
    for (int i = 0; i < 3; i++) {
        if (bound[i])
            part[i] = qr_jeval(c, bound[i]);
    }
    c->line = n->line;
    return qr_jslice(c, &obj, part);
}

/* Appends what *args names. */
static void star_args(struct qr_jctx *c, const struct qr_jnode *star, struct qr_jargs *out)
{
    struct qr_jval v = qr_jeval(c, star);
    struct qr_jseq items = qr_jitems(c, &v);
    out->pos = qr_jgrow(c, out->pos, out->n_pos, out->n_pos + items.n, sizeof *out->pos);
    if (items.n > 0)
        memcpy(out->pos + out->n_pos, items.at, (size_t)items.n * sizeof *items.at);
    out->n_pos += (int32_t)items.n;
}

struct qr_jkw *qr_jkw_of(struct qr_jctx *c, const struct qr_jdict *d, struct qr_jkw *kw, const char *what)
{
    QR_ASSERT(d != NULL && kw != NULL);
    for (int32_t i = 0; i < d->n; i++) {
        const struct qr_jstr *key = qr_jarg_str(c, &d->at[i].key, what);
        kw[i] = (struct qr_jkw){qr_jstr_name(c, key), d->at[i].val, key->trust != QR_JTRUST_ALL};
    }
    return kw;
}

/* Appends what **kwargs names; room for n_extra more is left. */
static void starstar_args(struct qr_jctx *c, const struct qr_jnode *star, int32_t n_extra, struct qr_jargs *out)
{
    struct qr_jval v = qr_jeval(c, star);
    if (v.type != QR_J_DICT)
        qr_jfail(c, "the argument after ** must be a mapping, not %s", qr_jtype_name(&v));
    out->kw = qr_jgrow(c, out->kw, out->n_kw, out->n_kw + v.u.d->n + n_extra, sizeof *out->kw);
    qr_jkw_of(c, v.u.d, out->kw + out->n_kw, "a keyword");
    out->n_kw += v.u.d->n;
}

struct qr_jargs qr_jeval_args(struct qr_jctx *c, const struct qr_jargspec *spec, int32_t n_extra)
{
    QR_ASSERT(spec != NULL);
    QR_ASSERT(n_extra >= 0);
    struct qr_jargs out = {.n_pos = spec->pos.n, .n_kw = spec->n_kw};
    if (spec->pos.n > 0)
        out.pos = qr_jalloc(c, (size_t)spec->pos.n, sizeof *out.pos);
    if (spec->n_kw + n_extra > 0)
        out.kw = qr_jalloc(c, (size_t)(spec->n_kw + n_extra), sizeof *out.kw);
    for (int32_t i = 0; i < spec->pos.n; i++)
        out.pos[i] = qr_jeval(c, spec->pos.at[i]);
    for (int32_t i = 0; i < spec->n_kw; i++)
        out.kw[i] = (struct qr_jkw){spec->kw[i].name, qr_jeval(c, spec->kw[i].value), false};
    if (spec->star)
        star_args(c, spec->star, &out);
    if (spec->starstar)
        starstar_args(c, spec->starstar, n_extra, &out);
    return out;
}

/* x.name(...): a method is called without making a value of it first. */
static struct qr_jval call_method(struct qr_jctx *c, const struct qr_jnode *n)
{
    const struct qr_jnode *attr = n->a;
    struct qr_jval obj = qr_jeval(c, attr->a), callee = qr_jnone();
    const struct qr_jstr *name = attr->value.u.s;
    const struct qr_jbuiltin *m = qr_jmethod_find(obj.type, name->u.flat.data, name->len);
    c->line = attr->line;
    if (!m)
        callee = qr_jgetattr(c, &obj, &attr->value);
    struct qr_jargs args = qr_jeval_args(c, n->u.args, 0);
    c->line = n->line;
    return m ? qr_jcall_builtin(c, m, &obj, &args) : qr_jcall(c, &callee, &args);
}

static struct qr_jval eval_call(struct qr_jctx *c, const struct qr_jnode *n)
{
    if (n->a->kind == QR_JN_ATTR)
        return call_method(c, n);
    struct qr_jval callee = qr_jeval(c, n->a);
    struct qr_jargs args = qr_jeval_args(c, n->u.args, 0);
    c->line = n->line;
    return qr_jcall(c, &callee, &args);
}

/* A filter or test of `in`. */
static struct qr_jval call_named(struct qr_jctx *c, const struct qr_jnode *n, const struct qr_jval *in)
{
    const struct qr_jstr *name = n->value.u.s;
    const char *what = n->kind == QR_JN_FILTER ? "filter" : "test";
    c->line = n->line;
    if (!n->fn)
        qr_jfail(c, "No %s named '%.*s'.", what, name->len > 60 ? 60 : (int)name->len, name->u.flat.data);
    struct qr_jargs args = qr_jeval_args(c, n->u.args, 0);
    c->line = n->line;
    return qr_jcall_builtin(c, n->fn, in, &args);
}

static struct qr_jval eval_named(struct qr_jctx *c, const struct qr_jnode *n)
{
    QR_ASSERT(n->a != NULL);
    struct qr_jval in = qr_jeval(c, n->a);
    return call_named(c, n, &in);
}

struct qr_jval qr_japply_filter(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval in)
{
    QR_ASSERT(n->kind == QR_JN_FILTER);
    qr_jdown(c);
    if (n->a)
        in = qr_japply_filter(c, n->a, in);
    in = call_named(c, n, &in);
    qr_jup(c);
    return in;
}

static struct qr_jval eval_sign(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval v = qr_jeval(c, n->a);
    c->line = n->line;
    return qr_jnegate(c, &v, n->kind == QR_JN_NEG);
}

static struct qr_jval eval_not(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval v = qr_jeval(c, n->a);
    return qr_jbool(!qr_jtruth(&v));
}

static struct qr_jval eval_binary(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval a = qr_jeval(c, n->a), b = qr_jeval(c, n->b);
    c->line = n->line;
    return qr_jbinary(c, (enum qr_jtok)n->op, &a, &b);
}

static struct qr_jval eval_logic(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval v = qr_jeval(c, n->a);
    return qr_jtruth(&v) == (n->kind == QR_JN_OR) ? v : qr_jeval(c, n->b);
}

static struct qr_jval eval_concat(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jstr *all = NULL;
    for (int32_t i = 0; i < n->list.n; i++) {
        struct qr_jval v = qr_jeval(c, n->list.at[i]);
        struct qr_jstr *s = qr_jtext(c, &v);
        c->line = n->line;
        all = qr_jstr_join(c, all, s);
    }
    return qr_jstrv(qr_jstr_marked(c, all, false));
}

static struct qr_jval eval_compare(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval left = qr_jeval(c, n->a);
    bool truth = true;
    for (int32_t i = 0; i < n->list.n && truth; i++) {
        struct qr_jval right = qr_jeval(c, n->list.at[i]);
        c->line = n->line;
        truth = qr_jcompare(c, n->u.ops[i], &left, &right);
        left = right;
    }
    return qr_jbool(truth);
}

static struct qr_jval eval_cond(struct qr_jctx *c, const struct qr_jnode *n)
{
    struct qr_jval test = qr_jeval(c, n->b);
    if (qr_jtruth(&test))
        return qr_jeval(c, n->a);
    if (n->c)
        return qr_jeval(c, n->c);
    return qr_jhint(c, "the inline if-expression evaluated to false and no else section was defined.");
}

static eval_fn *const evals[QR_JN_KINDS] = {
    [QR_JN_CONST] = eval_const,   [QR_JN_NAME] = eval_name,     [QR_JN_LIST] = eval_sequence,
    [QR_JN_TUPLE] = eval_sequence, [QR_JN_DICT] = eval_dict,    [QR_JN_ATTR] = eval_attr,
    [QR_JN_ITEM] = eval_item,     [QR_JN_CALL] = eval_call,     [QR_JN_FILTER] = eval_named,
    [QR_JN_TEST] = eval_named,   [QR_JN_NEG] = eval_sign,      [QR_JN_POS] = eval_sign,
    [QR_JN_NOT] = eval_not,       [QR_JN_BINARY] = eval_binary, [QR_JN_AND] = eval_logic,
    [QR_JN_OR] = eval_logic,      [QR_JN_CONCAT] = eval_concat, [QR_JN_COMPARE] = eval_compare,
    [QR_JN_COND] = eval_cond,
};

struct qr_jval qr_jeval(struct qr_jctx *c, const struct qr_jnode *n)
{
    QR_ASSERT(n != NULL && n->kind < QR_JN_KINDS);
    QR_ASSERT(evals[n->kind] != NULL);
    c->line = n->line;
    qr_jcharge(c, 1);
    qr_jdown(c);
    struct qr_jval v = evals[n->kind](c, n);
    qr_jup(c);
    return v;
}
