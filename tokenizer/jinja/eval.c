/* eval.c - expressions. One function per kind of node, found in a table. Steps and depth are bounded (value.c). Errors
 * of a rendering are values (value.c), so a template can never end the process. The arena is the rendering's own; one
 * thread at a time. */
#include <string.h>

#include "base/assert.h"
#include "tokenizer/jinja/eval.h"

typedef int eval_fn(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out);

static int eval_const(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out)
{
    *out = n->value;
    return 0;
}

static int eval_name(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out)
{
    return qr_jvar_get(c, n->sym, out);
}

static int eval_sequence(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out)
{
    struct qr_jval seq;
    int rc = qr_jseq_new(c, n->kind == QR_JN_LIST ? QR_J_LIST : QR_J_TUPLE, n->list.n, &seq);
    for (int32_t i = 0; i < n->list.n && rc == 0; i++)
        rc = qr_jeval(c, n->list.at[i], &seq.u.seq->at[i]);
    *out = seq;
    return rc;
}

static int eval_dict(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out)
{
    struct qr_jdict *d;
    int rc = qr_jdict_new(c, &d);
    for (int32_t i = 0; i + 1 < n->list.n && rc == 0; i += 2) {
        struct qr_jval key, val;
        rc = qr_jeval(c, n->list.at[i], &key);
        if (rc == 0)
            rc = qr_jeval(c, n->list.at[i + 1], &val);
        if (rc == 0)
            rc = qr_jdict_set(c, d, key, val);
    }
    if (rc == 0)
        *out = (struct qr_jval){.type = QR_J_DICT, .u.d = d};
    return rc;
}

static int eval_attr(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out)
{
    struct qr_jval obj;
    int rc = qr_jeval(c, n->a, &obj);
    c->line = n->line;
    return rc ? rc : qr_jgetattr(c, &obj, &n->value, out);
}

static int eval_item(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out)
{
    struct qr_jval obj, key, part[3] = {{0}};
    int rc = qr_jeval(c, n->a, &obj);
    if (rc)
        return rc;
    if (n->b->kind != QR_JN_SLICE) {
        rc = qr_jeval(c, n->b, &key);
        c->line = n->line;
        return rc ? rc : qr_jgetitem(c, &obj, &key, out);
    }
    const struct qr_jnode *bound[3] = {n->b->a, n->b->b, n->b->c};
    for (int i = 0; i < 3 && rc == 0; i++) {
        if (bound[i])
            rc = qr_jeval(c, bound[i], &part[i]);
    }
    c->line = n->line;
    return rc ? rc : qr_jslice(c, &obj, part, out);
}

/* Appends what *args names. */
static int star_args(struct qr_jctx *c, const struct qr_jnode *star, struct qr_jargs *out)
{
    struct qr_jval v;
    struct qr_jseq items;
    int rc = qr_jeval(c, star, &v);
    if (rc == 0)
        rc = qr_jitems(c, &v, &items);
    if (rc)
        return rc;
    struct qr_jval *pos = qr_jalloc(c, (size_t)(out->n_pos + items.n), sizeof *pos);
    if (!pos)
        return QR_E_TOO_LARGE;
    if (out->n_pos > 0)
        memcpy(pos, out->pos, (size_t)out->n_pos * sizeof *pos);
    if (items.n > 0)
        memcpy(pos + out->n_pos, items.at, (size_t)items.n * sizeof *pos);
    out->pos = pos;
    out->n_pos += (int32_t)items.n;
    return 0;
}

/* Appends what **kwargs names; room for n_extra more is left. */
static int starstar_args(struct qr_jctx *c, const struct qr_jnode *star, int32_t n_extra, struct qr_jargs *out)
{
    struct qr_jval v;
    int rc = qr_jeval(c, star, &v);
    if (rc == 0 && v.type != QR_J_DICT)
        rc = qr_jfail(c, "the argument after ** must be a mapping, not %s", qr_jtype_name(&v));
    if (rc)
        return rc;
    const struct qr_jdict *d = v.u.d;
    struct qr_jkw *kw = qr_jalloc(c, (size_t)(out->n_kw + d->n + n_extra), sizeof *kw);
    if (!kw)
        return QR_E_TOO_LARGE;
    if (out->n_kw > 0)
        memcpy(kw, out->kw, (size_t)out->n_kw * sizeof *kw);
    out->kw = kw;
    for (int32_t i = 0; i < d->n; i++) {
        struct qr_jstr *key;
        rc = qr_jarg_str(c, &d->at[i].key, "a keyword", &key);
        char *name = rc == 0 ? qr_jalloc(c, key->len + 1, 1) : NULL;
        if (!name)
            return rc ? rc : QR_E_TOO_LARGE;
        memcpy(name, key->u.flat.data, key->len);
        name[key->len] = 0;
        out->kw[out->n_kw++] = (struct qr_jkw){name, d->at[i].val, key->trust != QR_JTRUST_ALL};
    }
    return 0;
}

int qr_jeval_args(struct qr_jctx *c, const struct qr_jargspec *spec, int32_t n_extra, struct qr_jargs *out)
{
    QR_ASSERT(spec != NULL);
    QR_ASSERT(n_extra >= 0);
    *out = (struct qr_jargs){.n_pos = spec->pos.n, .n_kw = spec->n_kw};
    int rc = 0;
    if (spec->pos.n > 0 && !(out->pos = qr_jalloc(c, (size_t)spec->pos.n, sizeof *out->pos)))
        return QR_E_TOO_LARGE;
    if (spec->n_kw + n_extra > 0 && !(out->kw = qr_jalloc(c, (size_t)(spec->n_kw + n_extra), sizeof *out->kw)))
        return QR_E_TOO_LARGE;
    for (int32_t i = 0; i < spec->pos.n && rc == 0; i++)
        rc = qr_jeval(c, spec->pos.at[i], &out->pos[i]);
    for (int32_t i = 0; i < spec->n_kw && rc == 0; i++) {
        out->kw[i] = (struct qr_jkw){.name = spec->kw[i].name};
        rc = qr_jeval(c, spec->kw[i].value, &out->kw[i].val);
    }
    if (rc == 0 && spec->star)
        rc = star_args(c, spec->star, out);
    if (rc == 0 && spec->starstar)
        rc = starstar_args(c, spec->starstar, n_extra, out);
    return rc;
}

/* x.name(...): a method is called without making a value of it first. */
static int call_method(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out)
{
    const struct qr_jnode *attr = n->a;
    struct qr_jval obj, callee;
    struct qr_jargs args;
    int rc = qr_jeval(c, attr->a, &obj);
    if (rc)
        return rc;
    const struct qr_jstr *name = attr->value.u.s;
    const struct qr_jbuiltin *m = qr_jmethod_find(obj.type, name->u.flat.data, name->len);
    c->line = attr->line;
    if (!m)
        rc = qr_jgetattr(c, &obj, &attr->value, &callee);
    if (rc == 0)
        rc = qr_jeval_args(c, n->u.args, 0, &args);
    c->line = n->line;
    if (rc == 0)
        rc = m ? qr_jcall_builtin(c, m, &obj, &args, out) : qr_jcall(c, &callee, &args, out);
    return rc;
}

static int eval_call(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out)
{
    struct qr_jval callee;
    struct qr_jargs args;
    if (n->a->kind == QR_JN_ATTR)
        return call_method(c, n, out);
    int rc = qr_jeval(c, n->a, &callee);
    if (rc == 0)
        rc = qr_jeval_args(c, n->u.args, 0, &args);
    c->line = n->line;
    return rc ? rc : qr_jcall(c, &callee, &args, out);
}

static int unknown(struct qr_jctx *c, const struct qr_jnode *n, const char *what)
{
    const struct qr_jstr *name = n->value.u.s;
    return qr_jfail(c, "No %s named '%.*s'.", what, name->len > 60 ? 60 : (int)name->len, name->u.flat.data);
}

static int filter_value(struct qr_jctx *c, const struct qr_jnode *n, const struct qr_jval *in, struct qr_jval *out)
{
    struct qr_jargs args;
    c->line = n->line;
    if (!n->fn)
        return unknown(c, n, "filter");
    int rc = qr_jeval_args(c, n->u.args, 0, &args);
    c->line = n->line;
    return rc ? rc : qr_jcall_builtin(c, n->fn, in, &args, out);
}

static int eval_filter(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out)
{
    struct qr_jval in;
    QR_ASSERT(n->a != NULL);
    int rc = qr_jeval(c, n->a, &in);
    return rc ? rc : filter_value(c, n, &in, out);
}

int qr_japply_filter(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval in, struct qr_jval *out)
{
    QR_ASSERT(n->kind == QR_JN_FILTER);
    int rc = qr_jdown(c);
    if (rc)
        return rc;
    if (n->a)
        rc = qr_japply_filter(c, n->a, in, &in);
    if (rc == 0)
        rc = filter_value(c, n, &in, out);
    qr_jup(c);
    return rc;
}

static int eval_test(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out)
{
    struct qr_jval in;
    struct qr_jargs args;
    int rc = qr_jeval(c, n->a, &in);
    c->line = n->line;
    if (rc == 0 && !n->fn)
        rc = unknown(c, n, "test");
    if (rc == 0)
        rc = qr_jeval_args(c, n->u.args, 0, &args);
    return rc ? rc : qr_jcall_builtin(c, n->fn, &in, &args, out);
}

static int eval_sign(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out)
{
    struct qr_jval v;
    int rc = qr_jeval(c, n->a, &v);
    c->line = n->line;
    return rc ? rc : qr_jnegate(c, &v, n->kind == QR_JN_NEG, out);
}

static int eval_not(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out)
{
    struct qr_jval v;
    bool truth = false;
    int rc = qr_jeval(c, n->a, &v);
    if (rc == 0)
        rc = qr_jtruth(c, &v, &truth);
    *out = qr_jbool(!truth);
    return rc;
}

static int eval_binary(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out)
{
    struct qr_jval a, b;
    int rc = qr_jeval(c, n->a, &a);
    if (rc == 0)
        rc = qr_jeval(c, n->b, &b);
    c->line = n->line;
    return rc ? rc : qr_jbinary(c, (enum qr_jtok)n->op, &a, &b, out);
}

static int eval_logic(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out)
{
    bool truth = false;
    int rc = qr_jeval(c, n->a, out);
    if (rc == 0)
        rc = qr_jtruth(c, out, &truth);
    if (rc || truth == (n->kind == QR_JN_OR))
        return rc;
    return qr_jeval(c, n->b, out);
}

static int eval_concat(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out)
{
    struct qr_jstr *all = NULL, *s;
    int rc = 0;
    for (int32_t i = 0; i < n->list.n && rc == 0; i++) {
        struct qr_jval v;
        rc = qr_jeval(c, n->list.at[i], &v);
        if (rc == 0)
            rc = qr_jtext(c, &v, &s);
        c->line = n->line;
        if (rc == 0)
            rc = all ? qr_jstr_cat(c, all, s, &all) : (all = s, 0);
    }
    if (rc == 0)
        rc = qr_jstr_marked(c, all, false, &all);
    *out = qr_jstrv(all);
    return rc;
}

static int compare(struct qr_jctx *c, int op, const struct qr_jval *a, const struct qr_jval *b, bool *out)
{
    static const char *const text[] = {"<", "<=", ">", ">="};
    int order, rc;
    switch (op) {
    case QR_JT_EQ: return qr_jequal(c, a, b, out);
    case QR_JT_NE:
        rc = qr_jequal(c, a, b, out);
        *out = !*out;
        return rc;
    case QR_JOP_IN: return qr_jcontains(c, b, a, out);
    case QR_JOP_NOTIN:
        rc = qr_jcontains(c, b, a, out);
        *out = !*out;
        return rc;
    default: break;
    }
    QR_ASSERT(op >= QR_JT_LT && op <= QR_JT_GE);
    rc = qr_jorder(c, a, b, text[op - QR_JT_LT], &order);
    if (rc)
        return rc;
    *out = order != 2 && (op == QR_JT_LT ? order < 0 : op == QR_JT_LE ? order <= 0 : op == QR_JT_GT ? order == 1 : order >= 0);
    return 0;
}

static int eval_compare(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out)
{
    struct qr_jval left, right;
    bool truth = true;
    int rc = qr_jeval(c, n->a, &left);
    for (int32_t i = 0; i < n->list.n && truth && rc == 0; i++) {
        rc = qr_jeval(c, n->list.at[i], &right);
        c->line = n->line;
        if (rc == 0)
            rc = compare(c, n->u.ops[i], &left, &right, &truth);
        left = right;
    }
    *out = qr_jbool(truth);
    return rc;
}

static int eval_cond(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out)
{
    bool truth = false;
    int rc = qr_jeval(c, n->b, out);
    if (rc == 0)
        rc = qr_jtruth(c, out, &truth);
    if (rc)
        return rc;
    if (truth)
        return qr_jeval(c, n->a, out);
    if (n->c)
        return qr_jeval(c, n->c, out);
    return qr_jundef(c, QR_JUNDEF_HINT, QR_J_UNDEF, qr_jnone(),
                     "the inline if-expression evaluated to false and no else section was defined.", out);
}

static eval_fn *const evals[QR_JN_KINDS] = {
    [QR_JN_CONST] = eval_const,   [QR_JN_NAME] = eval_name,     [QR_JN_LIST] = eval_sequence,
    [QR_JN_TUPLE] = eval_sequence, [QR_JN_DICT] = eval_dict,    [QR_JN_ATTR] = eval_attr,
    [QR_JN_ITEM] = eval_item,     [QR_JN_CALL] = eval_call,     [QR_JN_FILTER] = eval_filter,
    [QR_JN_TEST] = eval_test,     [QR_JN_NEG] = eval_sign,      [QR_JN_POS] = eval_sign,
    [QR_JN_NOT] = eval_not,       [QR_JN_BINARY] = eval_binary, [QR_JN_AND] = eval_logic,
    [QR_JN_OR] = eval_logic,      [QR_JN_CONCAT] = eval_concat, [QR_JN_COMPARE] = eval_compare,
    [QR_JN_COND] = eval_cond,
};

int qr_jeval(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out)
{
    QR_ASSERT(n != NULL && n->kind < QR_JN_KINDS);
    QR_ASSERT(evals[n->kind] != NULL);
    c->line = n->line;
    int rc = qr_jcharge(c, 1);
    if (rc == 0)
        rc = qr_jdown(c);
    if (rc)
        return rc;
    rc = evals[n->kind](c, n, out);
    qr_jup(c);
    return rc;
}
