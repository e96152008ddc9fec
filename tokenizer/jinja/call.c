/* call.c - calling macros, filters, methods and the global functions; the global functions themselves. Arguments are
 * bound as in Python, by place and by name; depth of calls is bounded. An error leaves the rendering (value.h). One
 * thread per rendering. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "tokenizer/jinja/eval.h"

const struct qr_jbuiltin *qr_jtable_find(const struct qr_jtable *table, const char *name, size_t len)
{
    QR_ASSERT(table != NULL);
    QR_ASSERT(name != NULL || len == 0);
    for (int32_t i = 0; i < table->n; i++) {
        if (strlen(table->row[i].name) == len && memcmp(table->row[i].name, name, len) == 0)
            return &table->row[i];
    }
    return NULL;
}

/* Puts the given arguments in the order of the parameters. */
static void bind(struct qr_jctx *c, const struct qr_jbuiltin *b, const struct qr_jargs *a,
                 struct qr_jval arg[QR_JPARAMS])
{
    int32_t n = 0;
    while (n < QR_JPARAMS && b->param[n])
        n++;
    memset(arg, 0, QR_JPARAMS * sizeof *arg);
    if (a->n_pos > n)
        qr_jfail(c, "%s() takes at most %d arguments, %d were given", b->name, n, a->n_pos);
    if (a->n_pos > 0)
        memcpy(arg, a->pos, (size_t)a->n_pos * sizeof *arg);
    for (int32_t i = 0; i < a->n_kw; i++) {
        int32_t k = 0;
        while (k < n && strcmp(b->param[k], a->kw[i].name) != 0)
            k++;
        if (k == n)
            qr_jfail(c, "%s() got an unexpected keyword argument '%.60s'", b->name, a->kw[i].name);
        if (qr_jgiven(&arg[k]))
            qr_jfail(c, "%s() got multiple values for argument '%.60s'", b->name, a->kw[i].name);
        arg[k] = a->kw[i].val;
    }
    for (int32_t k = 0; k < b->n_required; k++) {
        if (!qr_jgiven(&arg[k]))
            qr_jfail(c, "%s() is missing the argument '%s'", b->name, b->param[k]);
    }
}

/* Apart from qr_jcall_builtin, so that a frame of variadic ones, which may nest (map of map of map), stays small. */
static __attribute__((noinline)) struct qr_jval call_bound(struct qr_jctx *c, const struct qr_jbuiltin *b,
                                                           const struct qr_jval *self, const struct qr_jargs *a)
{
    struct qr_jval arg[QR_JPARAMS];
    bind(c, b, a, arg);
    return b->fn(c, b->how, self, arg, a);
}

struct qr_jval qr_jcall_builtin(struct qr_jctx *c, const struct qr_jbuiltin *b, const struct qr_jval *self,
                                const struct qr_jargs *a)
{
    QR_ASSERT(b != NULL && b->fn != NULL);
    return b->variadic ? b->fn(c, b->how, self, NULL, a) : call_bound(c, b, self, a);
}

/* ---- macros ---- */

static const char *macro_name(const struct qr_jmacro *m)
{
    return m->sig->name ? m->sig->name : "caller";
}

/* Takes the keyword argument of that name out of the list; ABSENT when it was not given. */
static struct qr_jval take_kw(struct qr_jargs *a, const char *name)
{
    for (int32_t i = 0; i < a->n_kw; i++) {
        if (strcmp(a->kw[i].name, name) == 0) {
            struct qr_jval v = a->kw[i].val;
            memmove(&a->kw[i], &a->kw[i + 1], (size_t)(a->n_kw - i - 1) * sizeof *a->kw);
            a->n_kw--;
            return v;
        }
    }
    return (struct qr_jval){.type = QR_J_ABSENT};
}

/* The parameters, in the macro's own scope (c->scope): a default may name the parameters before it. */
static void bind_params(struct qr_jctx *c, const struct qr_jsig *sig, struct qr_jargs *a)
{
    for (int32_t i = 0; i < sig->n; i++) {
        const char *name = c->t->name[sig->sym[i]];
        struct qr_jval v = i < a->n_pos ? a->pos[i] : take_kw(a, name);
        if (!qr_jgiven(&v) && sig->fallback[i]) {
            v = qr_jeval(c, sig->fallback[i]);
        } else if (!qr_jgiven(&v)) {
            size_t n = strlen(name) + 40;
            char *hint = qr_jalloc(c, n, 1);
            snprintf(hint, n, "parameter '%s' was not provided", name);
            v = qr_jhint(c, hint);
        }
        qr_jvar_set(c, sig->sym[i], v);
    }
}

static bool has_param(const struct qr_jsig *sig, int32_t sym)
{
    for (int32_t i = 0; i < sig->n; i++) {
        if (sig->sym[i] == sym)
            return true;
    }
    return false;
}

/* caller, varargs and kwargs, each only when the body mentions it. */
static void bind_special(struct qr_jctx *c, const struct qr_jmacro *m, struct qr_jargs *a)
{
    const struct qr_jsig *sig = m->sig;
    const struct qr_template *t = c->t;
    if (sig->caller && !has_param(sig, t->sym_caller)) {
        struct qr_jval v = take_kw(a, "caller");
        qr_jvar_set(c, t->sym_caller, qr_jgiven(&v) ? v : qr_jhint(c, "No caller defined"));
    }
    if (sig->kwargs && !has_param(sig, t->sym_kwargs)) {
        struct qr_jdict *d = qr_jdict_new(c);
        qr_jdict_set_kw(c, d, a);
        qr_jvar_set(c, t->sym_kwargs, qr_jdictv(d));
    } else if (a->n_kw > 0 && strcmp(a->kw[0].name, "caller") == 0) {
        qr_jfail(c, "macro '%.60s' was invoked with two values for the special caller argument. "
                 "This is most likely a bug.", macro_name(m));
    } else if (a->n_kw > 0) {
        qr_jfail(c, "macro '%.60s' takes no keyword argument '%.60s'", macro_name(m), a->kw[0].name);
    }
    int32_t more = a->n_pos > sig->n ? a->n_pos - sig->n : 0;
    if (sig->varargs && !has_param(sig, t->sym_varargs))
        qr_jvar_set(c, t->sym_varargs, qr_jseq_of(c, QR_J_TUPLE, more > 0 ? a->pos + sig->n : NULL, more));
    else if (more > 0)
        qr_jfail(c, "macro '%.60s' takes not more than %d argument(s)", macro_name(m), sig->n);
}

static struct qr_jval call_macro(struct qr_jctx *c, const struct qr_jmacro *m, const struct qr_jargs *args)
{
    struct qr_jargs a = *args;
    struct qr_jscope *outer = c->scope, *inner = qr_jscope_new(c, m->scope);
    struct qr_jcapture cap;
    qr_jenter_block(c);
    c->scope = inner;
    qr_jcharge(c, ((int64_t)m->sig->n + 1) * a.n_kw / 32); /* each parameter looks through the keywords */
    bind_params(c, m->sig, &a);
    bind_special(c, m, &a);
    qr_jcapture_begin(c, &cap);
    qr_jexec(c, &m->body);
    struct qr_jval out = qr_jcapture_end(c, &cap);
    c->scope = outer;
    c->depth--;
    return out;
}

static struct qr_jval call_joiner(struct qr_jctx *c, struct qr_jjoiner *j)
{
    if (j->used)
        return j->sep;
    j->used = true;
    return qr_jlit(c, "");
}

struct qr_jval qr_jcall(struct qr_jctx *c, const struct qr_jval *callee, const struct qr_jargs *a)
{
    QR_ASSERT(callee != NULL);
    QR_ASSERT(a != NULL);
    switch (callee->type) {
    case QR_J_UNDEF: qr_jfail_undef(c, callee);
    case QR_J_MACRO: return call_macro(c, callee->u.macro, a);
    case QR_J_FUNC: return qr_jcall_builtin(c, callee->u.func, NULL, a);
    case QR_J_METHOD: return qr_jcall_builtin(c, callee->u.bound->method, &callee->u.bound->self, a);
    case QR_J_LOOP: return qr_jloop_call(c, callee->u.loop, a);
    case QR_J_JOINER: return call_joiner(c, callee->u.joiner);
    default: qr_jfail(c, "'%s' object is not callable", qr_jtype_name(callee));
    }
}

/* ---- global functions ---- */

static QR_JBUILTIN(fn_range)
{
    int64_t v[3] = {0, 0, 1};
    if (raw->n_pos < 1 || raw->n_pos > 3 || raw->n_kw > 0)
        qr_jfail(c, "range expected 1 to 3 arguments, got %d", raw->n_pos);
    for (int32_t i = 0; i < raw->n_pos; i++)
        v[raw->n_pos == 1 ? 1 : i] = qr_jarg_int(c, &raw->pos[i], 0);
    if (v[2] == 0)
        qr_jfail(c, "range() arg 3 must not be zero");
    __int128 span = (__int128)v[1] - v[0], step = v[2];
    __int128 n = step > 0 ? (span + step - 1) / step : (-span - step - 1) / -step;
    if (step > 0 ? span <= 0 : span >= 0)
        n = 0;
    if (n > c->lim->range_max)
        qr_jlimit(c, "Range too big: more than %lld elements", (long long)c->lim->range_max);
    struct qr_jrange *r = qr_jalloc(c, 1, sizeof *r);
    *r = (struct qr_jrange){v[0], v[1], v[2], (int64_t)n};
    return (struct qr_jval){.type = QR_J_RANGE, .u.range = r};
}

/* Adds a mapping, or pairs, to a dict. */
static void dict_add(struct qr_jctx *c, struct qr_jdict *d, const struct qr_jval *from)
{
    if (from->type == QR_J_DICT) {
        for (int32_t i = 0; i < from->u.d->n; i++)
            qr_jdict_set(c, d, from->u.d->at[i].key, from->u.d->at[i].val);
        return;
    }
    struct qr_jseq items = qr_jitems(c, from);
    for (int64_t i = 0; i < items.n; i++) {
        struct qr_jseq pair = qr_jitems(c, &items.at[i]);
        if (pair.n != 2)
            qr_jfail(c, "dictionary update sequence element #%lld has length %lld; 2 is required", (long long)i,
                     (long long)pair.n);
        qr_jdict_set(c, d, pair.at[0], pair.at[1]);
    }
}

/* dict and namespace. how: the type. */
static QR_JBUILTIN(fn_dict)
{
    if (raw->n_pos > 1)
        qr_jfail(c, "%s expected at most 1 argument, got %d", how == QR_J_NS ? "namespace" : "dict", raw->n_pos);
    struct qr_jdict *d = qr_jdict_new(c);
    if (raw->n_pos == 1)
        dict_add(c, d, &raw->pos[0]);
    qr_jdict_set_kw(c, d, raw);
    return (struct qr_jval){.type = (uint8_t)how, .u.d = d};
}

static QR_JBUILTIN(fn_cycler)
{
    if (raw->n_pos == 0)
        qr_jfail(c, "at least one item has to be provided");
    struct qr_jcycler *cy = qr_jalloc(c, 1, sizeof *cy);
    *cy = (struct qr_jcycler){{raw->pos, raw->n_pos, false}, 0};
    return (struct qr_jval){.type = QR_J_CYCLER, .u.cycler = cy};
}

static QR_JBUILTIN(fn_joiner)
{
    struct qr_jjoiner *j = qr_jalloc(c, 1, sizeof *j);
    *j = (struct qr_jjoiner){.sep = qr_jgiven(&arg[0]) ? arg[0] : qr_jlit(c, ", ")};
    return (struct qr_jval){.type = QR_J_JOINER, .u.joiner = j};
}

static QR_JBUILTIN(fn_raise)
{
    const struct qr_jstr *s = qr_jtext_flat(c, &arg[0]);
    size_t n = s->len;
    if (n >= sizeof c->err->msg) { /* cut between characters */
        n = sizeof c->err->msg - 1;
        n -= (size_t)qr_utf8_incomplete_tail(s->u.flat.data, n);
    }
    c->kind = QR_TEMPLATE_RAISED;
    qr_err_set(c->err, QR_E_INVALID, "%.*s", (int)n, s->u.flat.data);
    longjmp(*c->failed, 1);
}

static QR_JBUILTIN(fn_strftime)
{
    return qr_jstrv(qr_jstrftime(c, qr_jarg_str(c, &arg[0], "strftime_now's format"), c->now_s));
}

static QR_JBUILTIN(fn_unavailable)
{
    qr_jfail(c, "this function is not available in a chat template");
}

static const struct qr_jbuiltin rows[] = {
    {.name = "range", .fn = fn_range, .variadic = true},
    {.name = "dict", .fn = fn_dict, .how = QR_J_DICT, .variadic = true},
    {.name = "namespace", .fn = fn_dict, .how = QR_J_NS, .variadic = true},
    {.name = "cycler", .fn = fn_cycler, .variadic = true},
    {.name = "joiner", .fn = fn_joiner, .param = {"sep"}},
    {.name = "raise_exception", .fn = fn_raise, .n_required = 1, .param = {"message"}},
    {.name = "strftime_now", .fn = fn_strftime, .n_required = 1, .param = {"format"}},
    {.name = "lipsum", .fn = fn_unavailable, .variadic = true},
    {.name = "self", .fn = fn_unavailable, .variadic = true},
};
static const struct qr_jtable globals = {rows, QR_COUNT(rows)};

const struct qr_jbuiltin *qr_jglobal_find(const char *name, size_t len)
{
    return qr_jtable_find(&globals, name, len);
}
