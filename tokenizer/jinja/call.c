/* call.c - calling macros, filters, methods and the global functions; the global functions themselves. Arguments are
 * bound as in Python, by place and by name; depth of calls is bounded. Errors of a rendering are values (value.c), so a
 * template can never end the process. The arena is the rendering's own; one thread at a time. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "tokenizer/jinja/eval.h"

const struct qr_jbuiltin *qr_jbuiltin_find(const struct qr_jbuiltin *table, int32_t n, const char *name, size_t len)
{
    QR_ASSERT(table != NULL);
    for (int32_t i = 0; i < n; i++) {
        if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0)
            return &table[i];
    }
    return NULL;
}

/* Puts the given arguments in the order of the parameters. */
static int bind(struct qr_jctx *c, const struct qr_jbuiltin *b, const struct qr_jargs *a, struct qr_jval arg[QR_JPARAMS])
{
    int32_t n = 0;
    while (n < QR_JPARAMS && b->param[n])
        n++;
    memset(arg, 0, QR_JPARAMS * sizeof *arg);
    if (a->n_pos > n)
        return qr_jfail(c, "%s() takes at most %d arguments, %d were given", b->name, n, a->n_pos);
    if (a->n_pos > 0)
        memcpy(arg, a->pos, (size_t)a->n_pos * sizeof *arg);
    for (int32_t i = 0; i < a->n_kw; i++) {
        int32_t k = 0;
        while (k < n && strcmp(b->param[k], a->kw[i].name) != 0)
            k++;
        if (k == n)
            return qr_jfail(c, "%s() got an unexpected keyword argument '%.60s'", b->name, a->kw[i].name);
        if (arg[k].type != QR_J_ABSENT)
            return qr_jfail(c, "%s() got multiple values for argument '%.60s'", b->name, a->kw[i].name);
        arg[k] = a->kw[i].val;
    }
    for (int32_t k = 0; k < b->n_required; k++) {
        if (arg[k].type == QR_J_ABSENT)
            return qr_jfail(c, "%s() is missing the argument '%s'", b->name, b->param[k]);
    }
    return 0;
}

int qr_jcall_builtin(struct qr_jctx *c, const struct qr_jbuiltin *b, const struct qr_jval *self, const struct qr_jargs *a,
                     struct qr_jval *out)
{
    QR_ASSERT(b != NULL && b->fn != NULL);
    struct qr_jval arg[QR_JPARAMS];
    if (b->variadic)
        return b->fn(c, self, NULL, a, out);
    int rc = bind(c, b, a, arg);
    return rc ? rc : b->fn(c, self, arg, a, out);
}

/* ---- macros ---- */

static int given_twice(struct qr_jctx *c, const struct qr_jmacro *m, const char *kw)
{
    const char *name = m->sig->name ? m->sig->name : "caller";
    if (strcmp(kw, "caller") == 0)
        return qr_jfail(c, "macro '%.60s' was invoked with two values for the special caller argument. This is most likely a bug.",
                        name);
    return qr_jfail(c, "macro '%.60s' takes no keyword argument '%.60s'", name, kw);
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
static int bind_params(struct qr_jctx *c, const struct qr_jsig *sig, struct qr_jargs *a)
{
    int rc = 0;
    for (int32_t i = 0; i < sig->n && rc == 0; i++) {
        const char *name = c->t->name[sig->sym[i]];
        struct qr_jval v = i < a->n_pos ? a->pos[i] : take_kw(a, name);
        if (v.type == QR_J_ABSENT && sig->fallback[i]) {
            rc = qr_jeval(c, sig->fallback[i], &v);
        } else if (v.type == QR_J_ABSENT) {
            size_t n = strlen(name) + 40;
            char *hint = qr_jalloc(c, n, 1);
            if (!hint)
                return QR_E_TOO_LARGE;
            snprintf(hint, n, "parameter '%s' was not provided", name);
            rc = qr_jundef(c, QR_JUNDEF_HINT, QR_J_UNDEF, qr_jnone(), hint, &v);
        }
        if (rc == 0)
            rc = qr_jvar_set(c, sig->sym[i], v);
    }
    return rc;
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
static int bind_special(struct qr_jctx *c, const struct qr_jmacro *m, struct qr_jargs *a)
{
    const struct qr_jsig *sig = m->sig;
    const struct qr_template *t = c->t;
    struct qr_jval v;
    int rc = 0;
    if (sig->caller && !has_param(sig, t->sym_caller)) {
        v = take_kw(a, "caller");
        if (v.type == QR_J_ABSENT)
            rc = qr_jundef(c, QR_JUNDEF_HINT, QR_J_UNDEF, qr_jnone(), "No caller defined", &v);
        if (rc == 0)
            rc = qr_jvar_set(c, t->sym_caller, v);
    }
    if (rc == 0 && sig->kwargs && !has_param(sig, t->sym_kwargs)) {
        struct qr_jdict *d;
        rc = qr_jdict_new(c, &d);
        for (int32_t i = 0; i < a->n_kw && rc == 0; i++) {
            rc = qr_jkw_name(c, &a->kw[i], &v);
            if (rc == 0)
                rc = qr_jdict_set(c, d, v, a->kw[i].val);
        }
        if (rc == 0)
            rc = qr_jvar_set(c, t->sym_kwargs, (struct qr_jval){.type = QR_J_DICT, .u.d = d});
    } else if (rc == 0 && a->n_kw > 0) {
        rc = given_twice(c, m, a->kw[0].name);
    }
    int32_t more = a->n_pos > sig->n ? a->n_pos - sig->n : 0;
    if (rc == 0 && sig->varargs && !has_param(sig, t->sym_varargs)) {
        rc = qr_jseq_new(c, QR_J_TUPLE, more, &v);
        if (rc == 0 && more > 0)
            memcpy(v.u.seq->at, a->pos + sig->n, (size_t)more * sizeof v);
        return rc ? rc : qr_jvar_set(c, t->sym_varargs, v);
    }
    if (rc == 0 && more > 0)
        rc = qr_jfail(c, "macro '%.60s' takes not more than %d argument(s)", sig->name ? sig->name : "caller", sig->n);
    return rc;
}

static int call_macro(struct qr_jctx *c, const struct qr_jmacro *m, const struct qr_jargs *args, struct qr_jval *out)
{
    struct qr_jargs a = *args;
    struct qr_jscope *outer = c->scope, *inner = qr_jscope_new(c, m->scope);
    if (!inner)
        return QR_E_TOO_LARGE;
    if (c->depth >= c->lim->depth_max)
        return qr_jlimit(c, "loops and macros are nested deeper than %d", c->lim->depth_max);
    c->depth++;
    c->scope = inner;
    int rc = qr_jcharge(c, ((int64_t)m->sig->n + 1) * a.n_kw / 32); /* each parameter looks through the keywords */
    if (rc == 0)
        rc = bind_params(c, m->sig, &a);
    if (rc == 0)
        rc = bind_special(c, m, &a);
    struct qr_jcapture cap;
    qr_jcapture_begin(c, &cap);
    if (rc == 0)
        rc = qr_jexec(c, &m->body);
    int end = qr_jcapture_end(c, &cap, out);
    c->scope = outer;
    c->depth--;
    return rc < 0 ? rc : end;
}

static int call_joiner(struct qr_jctx *c, struct qr_jjoiner *j, struct qr_jval *out)
{
    if (j->used) {
        *out = j->sep;
        return 0;
    }
    j->used = true;
    return qr_jlit(c, "", out);
}

int qr_jcall(struct qr_jctx *c, const struct qr_jval *callee, const struct qr_jargs *a, struct qr_jval *out)
{
    QR_ASSERT(callee != NULL);
    QR_ASSERT(a != NULL);
    switch (callee->type) {
    case QR_J_UNDEF: return qr_jfail_undef(c, callee);
    case QR_J_MACRO: return call_macro(c, callee->u.macro, a, out);
    case QR_J_FUNC: return qr_jcall_builtin(c, callee->u.func, NULL, a, out);
    case QR_J_METHOD: return qr_jcall_builtin(c, callee->u.bound->method, &callee->u.bound->self, a, out);
    case QR_J_LOOP: return qr_jloop_call(c, callee->u.loop, a, out);
    case QR_J_JOINER: return call_joiner(c, callee->u.joiner, out);
    default: return qr_jfail(c, "'%s' object is not callable", qr_jtype_name(callee));
    }
}

/* ---- global functions ---- */

static int fn_range(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, const struct qr_jargs *raw,
                    struct qr_jval *out)
{
    int64_t v[3] = {0, 0, 1};
    if (raw->n_pos < 1 || raw->n_pos > 3 || raw->n_kw > 0)
        return qr_jfail(c, "range expected 1 to 3 arguments, got %d", raw->n_pos);
    for (int32_t i = 0; i < raw->n_pos; i++) {
        if (raw->pos[i].type == QR_J_UNDEF)
            return qr_jfail_undef(c, &raw->pos[i]);
        if (!qr_jinteger(&raw->pos[i], &v[raw->n_pos == 1 ? 1 : i]))
            return qr_jfail(c, "'%s' object cannot be interpreted as an integer", qr_jtype_name(&raw->pos[i]));
    }
    if (v[2] == 0)
        return qr_jfail(c, "range() arg 3 must not be zero");
    __int128 span = (__int128)v[1] - v[0], step = v[2];
    __int128 n = step > 0 ? (span + step - 1) / step : (-span - step - 1) / -step;
    if (step > 0 ? span <= 0 : span >= 0)
        n = 0;
    if (n > c->lim->range_max)
        return qr_jlimit(c, "Range too big: more than %lld elements", (long long)c->lim->range_max);
    struct qr_jrange *r = qr_jalloc(c, 1, sizeof *r);
    if (!r)
        return QR_E_TOO_LARGE;
    *r = (struct qr_jrange){v[0], v[1], v[2], (int64_t)n};
    *out = (struct qr_jval){.type = QR_J_RANGE, .u.range = r};
    return 0;
}

/* Adds a mapping, or pairs, to a dict. */
static int dict_add(struct qr_jctx *c, struct qr_jdict *d, const struct qr_jval *from)
{
    struct qr_jseq items, pair;
    if (from->type == QR_J_DICT) {
        int rc = 0;
        for (int32_t i = 0; i < from->u.d->n && rc == 0; i++)
            rc = qr_jdict_set(c, d, from->u.d->at[i].key, from->u.d->at[i].val);
        return rc;
    }
    int rc = qr_jitems(c, from, &items);
    for (int64_t i = 0; i < items.n && rc == 0; i++) {
        rc = qr_jitems(c, &items.at[i], &pair);
        if (rc == 0 && pair.n != 2)
            rc = qr_jfail(c, "dictionary update sequence element #%lld has length %lld; 2 is required", (long long)i,
                          (long long)pair.n);
        if (rc == 0)
            rc = qr_jdict_set(c, d, pair.at[0], pair.at[1]);
    }
    return rc;
}

static int make_dict(struct qr_jctx *c, const char *name, const struct qr_jargs *raw, struct qr_jdict **out)
{
    if (raw->n_pos > 1)
        return qr_jfail(c, "%s expected at most 1 argument, got %d", name, raw->n_pos);
    int rc = qr_jdict_new(c, out);
    if (rc == 0 && raw->n_pos == 1)
        rc = dict_add(c, *out, &raw->pos[0]);
    for (int32_t i = 0; i < raw->n_kw && rc == 0; i++) {
        struct qr_jval key;
        rc = qr_jkw_name(c, &raw->kw[i], &key);
        if (rc == 0)
            rc = qr_jdict_set(c, *out, key, raw->kw[i].val);
    }
    return rc;
}

static int fn_dict(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, const struct qr_jargs *raw,
                   struct qr_jval *out)
{
    struct qr_jdict *d;
    int rc = make_dict(c, "dict", raw, &d);
    if (rc == 0)
        *out = (struct qr_jval){.type = QR_J_DICT, .u.d = d};
    return rc;
}

static int fn_namespace(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, const struct qr_jargs *raw,
                        struct qr_jval *out)
{
    struct qr_jdict *d;
    int rc = make_dict(c, "namespace", raw, &d);
    if (rc == 0)
        *out = (struct qr_jval){.type = QR_J_NS, .u.d = d};
    return rc;
}

static int fn_cycler(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, const struct qr_jargs *raw,
                     struct qr_jval *out)
{
    if (raw->n_pos == 0)
        return qr_jfail(c, "at least one item has to be provided");
    struct qr_jcycler *cy = qr_jalloc(c, 1, sizeof *cy);
    if (!cy)
        return QR_E_TOO_LARGE;
    *cy = (struct qr_jcycler){{raw->pos, raw->n_pos, false}, 0};
    *out = (struct qr_jval){.type = QR_J_CYCLER, .u.cycler = cy};
    return 0;
}

static int fn_joiner(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, const struct qr_jargs *raw,
                     struct qr_jval *out)
{
    struct qr_jjoiner *j = qr_jalloc(c, 1, sizeof *j);
    if (!j)
        return QR_E_TOO_LARGE;
    *j = (struct qr_jjoiner){.sep = arg[0]};
    *out = (struct qr_jval){.type = QR_J_JOINER, .u.joiner = j};
    return arg[0].type == QR_J_ABSENT ? qr_jlit(c, ", ", &j->sep) : 0;
}

static int fn_raise(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, const struct qr_jargs *raw,
                    struct qr_jval *out)
{
    struct qr_jstr *s;
    int rc = qr_jtext(c, &arg[0], &s);
    if (rc == 0)
        rc = qr_jstr_flat(c, s);
    if (rc)
        return rc;
    size_t n = s->len;
    if (n >= sizeof c->err->msg) { /* cut between characters */
        n = sizeof c->err->msg - 1;
        n -= (size_t)qr_utf8_incomplete_tail(s->u.flat.data, n);
    }
    c->kind = QR_TEMPLATE_RAISED;
    return qr_err_set(c->err, QR_E_INVALID, "%.*s", (int)n, s->u.flat.data);
}

static int fn_strftime(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, const struct qr_jargs *raw,
                       struct qr_jval *out)
{
    struct qr_jstr *s, *text;
    int rc = qr_jarg_str(c, &arg[0], "strftime_now's format", &s);
    if (rc == 0)
        rc = qr_jstrftime(c, s, c->now_s, &text);
    if (rc == 0)
        *out = qr_jstrv(text);
    return rc;
}

static int fn_unavailable(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, const struct qr_jargs *raw,
                          struct qr_jval *out)
{
    return qr_jfail(c, "this function is not available in a chat template");
}

static const struct qr_jbuiltin globals[] = {
    {.name = "range", .fn = fn_range, .variadic = true},
    {.name = "dict", .fn = fn_dict, .variadic = true},
    {.name = "namespace", .fn = fn_namespace, .variadic = true},
    {.name = "cycler", .fn = fn_cycler, .variadic = true},
    {.name = "joiner", .fn = fn_joiner, .param = {"sep"}},
    {.name = "raise_exception", .fn = fn_raise, .n_required = 1, .param = {"message"}},
    {.name = "strftime_now", .fn = fn_strftime, .n_required = 1, .param = {"format"}},
    {.name = "lipsum", .fn = fn_unavailable, .variadic = true},
    {.name = "self", .fn = fn_unavailable, .variadic = true},
};

const struct qr_jbuiltin *qr_jglobal_find(const char *name, size_t len)
{
    QR_ASSERT(name != NULL);
    return qr_jbuiltin_find(globals, QR_COUNT(globals), name, len);
}
