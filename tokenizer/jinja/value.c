/* value.c - memory and errors of a rendering; lists, dicts, and what every value can do. All memory of a rendering
 * comes from one arena with a limit and goes at once. The first error stays; what follows returns early. One thread per
 * rendering. */
#include "tokenizer/jinja/value.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"
#include "tokenizer/jinja/eval.h"

#define STEP_BYTES 256 /* string bytes that cost as much as one step */
#define DICT_LINEAR 8  /* entries up to which a dict is searched without an index */

/* ---- memory, work, errors ---- */

static _Noreturn void no_memory(struct qr_jctx *c)
{
    qr_jlimit(c, "rendering needs more than %zu bytes of memory", c->lim->memory_max);
}

void *qr_jalloc(struct qr_jctx *c, size_t n, size_t size)
{
    size_t bytes;
    void *p = qr_mul_size(n, size, &bytes) ? qr_arena_try(&c->arena, bytes ? bytes : 1, size == 1 ? 1 : 8) : NULL;
    if (!p)
        no_memory(c);
    return p;
}

void *qr_jgrow(struct qr_jctx *c, const void *at, int64_t n, int64_t cap, size_t size)
{
    QR_ASSERT(n >= 0 && n <= cap);
    void *grown = qr_jalloc(c, (size_t)cap, size);
    if (n > 0)
        memcpy(grown, at, (size_t)n * size);
    return grown;
}

void qr_jcharge(struct qr_jctx *c, int64_t steps)
{
    QR_ASSERT(steps >= 0);
    if (steps > c->lim->steps_max - c->steps)
        qr_jlimit(c, "rendering needs more than %lld steps", (long long)c->lim->steps_max);
    c->steps += steps;
}

void qr_jcharge_bytes(struct qr_jctx *c, size_t n_bytes)
{
    c->bytes_left += (int64_t)(n_bytes % STEP_BYTES);
    int64_t steps = (int64_t)(n_bytes / STEP_BYTES) + c->bytes_left / STEP_BYTES;
    c->bytes_left %= STEP_BYTES;
    qr_jcharge(c, steps);
}

void qr_jdown(struct qr_jctx *c)
{
    if (c->nest >= QR_JNEST_MAX)
        qr_jlimit(c, "values or expressions are nested deeper than %d", QR_JNEST_MAX);
    c->nest++;
}

void qr_jup(struct qr_jctx *c)
{
    QR_ASSERT(c->nest > 0);
    c->nest--;
}

bool qr_jcatch(struct qr_jctx *c, void (*fn)(struct qr_jctx *c, void *arg), void *arg)
{
    jmp_buf here, *outer = c->failed;
    volatile bool done = false;
    c->failed = &here;
    if (setjmp(here) == 0) {
        fn(c, arg);
        done = true;
    }
    c->failed = outer;
    return done;
}

static void fill(struct qr_jctx *c, enum qr_template_kind kind, enum qr_code code, const char *fmt, va_list ap)
    __attribute__((format(printf, 4, 0)));
static void fill(struct qr_jctx *c, enum qr_template_kind kind, enum qr_code code, const char *fmt, va_list ap)
{
    char what[420];
    vsnprintf(what, sizeof what, fmt, ap);
    c->kind = kind;
    qr_err_set(c->err, code, "template line %d: %s", c->line, what);
}

void qr_jfail(struct qr_jctx *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(c, QR_TEMPLATE_RUNTIME, QR_E_INVALID, fmt, ap);
    va_end(ap);
    longjmp(*c->failed, 1);
}

void qr_jlimit(struct qr_jctx *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(c, QR_TEMPLATE_LIMIT, QR_E_TOO_LARGE, fmt, ap);
    va_end(ap);
    longjmp(*c->failed, 1);
}

/* ---- making values ---- */

static struct qr_jval undefined(struct qr_jctx *c, struct qr_jundef what)
{
    struct qr_jundef *u = qr_jalloc(c, 1, sizeof *u);
    *u = what;
    return (struct qr_jval){.type = QR_J_UNDEF, .u.undef = u};
}

struct qr_jval qr_jundef(struct qr_jctx *c, enum qr_jundef_why why, enum qr_jtype of, struct qr_jval name)
{
    return undefined(c, (struct qr_jundef){why, of, name, NULL});
}

struct qr_jval qr_jhint(struct qr_jctx *c, const char *hint)
{
    QR_ASSERT(hint != NULL);
    return undefined(c, (struct qr_jundef){QR_JUNDEF_HINT, QR_J_UNDEF, qr_jnone(), hint});
}

struct qr_jval qr_jseq_of(struct qr_jctx *c, enum qr_jtype type, struct qr_jval *at, int64_t n)
{
    QR_ASSERT(n >= 0);
    QR_ASSERT(type == QR_J_LIST || type == QR_J_TUPLE);
    struct qr_jseq *seq = qr_jalloc(c, 1, sizeof *seq);
    *seq = (struct qr_jseq){at, n, false};
    return (struct qr_jval){.type = (uint8_t)type, .u.seq = seq};
}

struct qr_jval qr_jseq_new(struct qr_jctx *c, enum qr_jtype type, int64_t n)
{
    struct qr_jval *at = qr_jalloc(c, (size_t)n, sizeof *at);
    memset(at, 0, (size_t)n * sizeof *at);
    return qr_jseq_of(c, type, at, n);
}

struct qr_jval qr_jgen_new(struct qr_jctx *c, const char *name, struct qr_jval *at, int64_t n)
{
    struct qr_jgen *gen = qr_jalloc(c, 1, sizeof *gen);
    *gen = (struct qr_jgen){{at, n, false}, 0, name};
    return (struct qr_jval){.type = QR_J_GEN, .u.gen = gen};
}

void qr_jbag_push(struct qr_jctx *c, struct qr_jbag *b, struct qr_jval v)
{
    if (b->n == b->cap) {
        b->cap = b->cap ? b->cap * 2 : 8;
        b->at = qr_jgrow(c, b->at, b->n, b->cap, sizeof *b->at);
    }
    b->at[b->n++] = v;
}

/* An integer beyond 64 bits: its digits. */
static struct qr_jval big_from_json(struct qr_jctx *c, const struct qr_json *v, bool trusted)
{
    struct qr_buf text = {0};
    qr_json_print(&text, v);
    size_t n = text.len;
    char *copy = qr_arena_try(&c->arena, n, 1);
    if (copy)
        memcpy(copy, text.data, n);
    qr_buf_release(&text);
    if (!copy)
        no_memory(c);
    return (struct qr_jval){.type = QR_J_BIG, .u.s = qr_jstr_new(c, copy, n, trusted)};
}

static struct qr_jval number_from_json(struct qr_jctx *c, const struct qr_json *v, bool trusted)
{
    int64_t i;
    struct qr_jval number = !qr_json_is_integer_text(v) ? qr_jfloat(qr_json_f64(v))
                            : qr_json_i64(v, &i)        ? qr_jint(i)
                                                        : big_from_json(c, v, trusted);
    number.untrusted = !trusted;
    return number;
}

static struct qr_jval list_from_json(struct qr_jctx *c, const struct qr_json *v, bool trusted)
{
    struct qr_jval list = qr_jseq_new(c, QR_J_LIST, qr_json_count(v));
    int64_t i = 0;
    for (const struct qr_json *e = qr_json_first(v); e; e = qr_json_after(e))
        list.u.seq->at[i++] = qr_jfrom_json(c, e, trusted);
    return list;
}

/* A role is one of few words, and templates build special tokens of it: '<|' + message.role + '|>'. Alone such a word
 * forges nothing: what stands around it must be the template's own, too. */
static bool is_role(const char *key, const struct qr_json *v)
{
    static const char *const role[] = {"system", "developer", "user", "assistant", "tool", "function"};
    bool known = false;
    for (int32_t i = 0; i < QR_COUNT(role) && strcmp(key, "role") == 0; i++)
        known = known || qr_json_says(v, role[i]);
    return known;
}

static struct qr_jval dict_from_json(struct qr_jctx *c, const struct qr_json *v, bool trusted)
{
    struct qr_jdict *d = qr_jdict_new(c);
    for (const struct qr_json *e = qr_json_first(v); e; e = qr_json_after(e)) {
        const char *name = qr_json_key(e);
        struct qr_jval key = qr_jstrv(qr_jstr_new(c, name, strlen(name), trusted));
        qr_jdict_set(c, d, key, qr_jfrom_json(c, e, trusted || is_role(name, e)));
    }
    return qr_jdictv(d);
}

struct qr_jval qr_jfrom_json(struct qr_jctx *c, const struct qr_json *v, bool trusted)
{
    QR_ASSERT(v != NULL);
    struct qr_jval out = qr_jnone();
    size_t n;
    const char *text;
    qr_jdown(c);
    switch (qr_json_type(v)) {
    case QR_JSON_T_NULL: break;
    case QR_JSON_T_BOOL:
        out = qr_jbool(qr_json_bool(v));
        out.untrusted = !trusted;
        break;
    case QR_JSON_T_NUMBER: out = number_from_json(c, v, trusted); break;
    case QR_JSON_T_STRING:
        text = qr_json_str(v, &n);
        out = qr_jstrv(qr_jstr_new(c, text, n, trusted));
        break;
    case QR_JSON_T_ARRAY: out = list_from_json(c, v, trusted); break;
    case QR_JSON_T_OBJECT: out = dict_from_json(c, v, trusted); break;
    }
    qr_jup(c);
    return out;
}

/* ---- dicts ---- */

struct qr_jdict *qr_jdict_new(struct qr_jctx *c)
{
    struct qr_jdict *d = qr_jalloc(c, 1, sizeof *d);
    *d = (struct qr_jdict){0};
    return d;
}

/* The key's entry, or -1. *slot: where the index would name it (when there is an index). */
static int32_t find(struct qr_jctx *c, const struct qr_jdict *d, const struct qr_jval *key, uint64_t hash,
                    int32_t *slot)
{
    int64_t probes = 0;
    uint32_t mask = d->index ? (uint32_t)d->index_cap - 1 : 0;
    uint32_t at = d->index ? (uint32_t)hash & mask : 0;
    for (;; at = d->index ? (at + 1) & mask : at + 1) {
        if (!d->index && at >= (uint32_t)d->n)
            return -1;
        int32_t e = d->index ? d->index[at] - 1 : (int32_t)at;
        *slot = (int32_t)at;
        if (e < 0)
            return -1;
        bool same = d->at[e].hash == hash && qr_jequal(c, &d->at[e].key, key);
        if (++probes > DICT_LINEAR)
            qr_jcharge(c, 1); /* keys made to collide cost their author steps, not us time */
        if (same)
            return e;
    }
}

static void reindex(struct qr_jctx *c, struct qr_jdict *d)
{
    int32_t cap = 32;
    while (cap < d->cap * 2)
        cap *= 2;
    int32_t *index = qr_jalloc(c, (size_t)cap, sizeof *index);
    memset(index, 0, (size_t)cap * sizeof *index);
    for (int32_t i = 0; i < d->n; i++) {
        uint32_t at = (uint32_t)d->at[i].hash & (uint32_t)(cap - 1);
        while (index[at])
            at = (at + 1) & (uint32_t)(cap - 1);
        index[at] = i + 1;
    }
    d->index = index;
    d->index_cap = cap;
}

void qr_jdict_set(struct qr_jctx *c, struct qr_jdict *d, struct qr_jval key, struct qr_jval val)
{
    QR_ASSERT(d != NULL);
    int32_t slot = 0;
    uint64_t hash = qr_jhash(c, &key);
    int32_t entry = find(c, d, &key, hash, &slot);
    if (entry >= 0) {
        d->at[entry].val = val;
        return;
    }
    if (d->n == d->cap) {
        d->cap = d->cap ? d->cap * 2 : 4;
        d->at = qr_jgrow(c, d->at, d->n, d->cap, sizeof *d->at);
        if (d->cap > DICT_LINEAR)
            reindex(c, d);
        find(c, d, &key, hash, &slot);
    }
    if (d->index)
        d->index[slot] = d->n + 1;
    d->at[d->n++] = (struct qr_jentry){key, val, hash};
}

void qr_jdict_set_kw(struct qr_jctx *c, struct qr_jdict *d, const struct qr_jargs *a)
{
    QR_ASSERT(a != NULL);
    for (int32_t i = 0; i < a->n_kw; i++) {
        const struct qr_jkw *kw = &a->kw[i];
        qr_jdict_set(c, d, qr_jstrv(qr_jstr_new(c, kw->name, strlen(kw->name), !kw->untrusted)), kw->val);
    }
}

struct qr_jval qr_jdict_get(struct qr_jctx *c, struct qr_jdict *d, struct qr_jval key)
{
    QR_ASSERT(d != NULL);
    int32_t slot, entry = find(c, d, &key, qr_jhash(c, &key), &slot);
    return entry >= 0 ? d->at[entry].val : (struct qr_jval){.type = QR_J_ABSENT};
}

struct qr_jval qr_jdict_view(struct qr_jctx *c, struct qr_jdict *d, enum qr_jview view, int32_t i)
{
    QR_ASSERT(i >= 0 && i < d->n);
    if (view != QR_JVIEW_ITEMS)
        return view == QR_JVIEW_KEYS ? d->at[i].key : d->at[i].val;
    struct qr_jval pair = qr_jseq_new(c, QR_J_TUPLE, 2);
    pair.u.seq->at[0] = d->at[i].key;
    pair.u.seq->at[1] = d->at[i].val;
    return pair;
}

/* ---- what every value can do ---- */

const char *qr_jtype_name(const struct qr_jval *v)
{
    static const char *const name[QR_J_TYPES] = {
        "absent", "Undefined", "NoneType", "bool", "int", "int", "float", "str", "list", "tuple", "dict", "dict_items",
        "range", "generator", "Namespace", "LoopContext", "Macro", "function", "builtin_function_or_method", "Cycler", "Joiner",
    };
    static const char *const view[] = {"dict_keys", "dict_values", "dict_items"};
    if (v->type == QR_J_VIEW)
        return view[v->view];
    return v->type == QR_J_STR && v->u.s->markup ? "Markup" : name[v->type];
}

const char *qr_jtype_repr(enum qr_jtype type)
{
    static const char *const name[QR_J_TYPES] = {
        "absent", "Undefined", "None", "bool object", "int object", "int object", "float object", "str object", "list object",
        "tuple object", "dict object", "dict view object", "range object", "generator object",
        "jinja2.utils.Namespace object", "jinja2.runtime.LoopContext object", "jinja2.runtime.Macro object",
        "function object", "builtin_function_or_method object", "jinja2.utils.Cycler object", "jinja2.utils.Joiner object",
    };
    QR_ASSERT(type < QR_J_TYPES);
    return name[type];
}

/* How many items a value of a known length has, -1 for others; a string has them only as characters. */
static int64_t items_known(const struct qr_jval *v)
{
    switch (v->type) {
    case QR_J_UNDEF: return 0;
    case QR_J_LIST:
    case QR_J_TUPLE: return v->u.seq->n;
    case QR_J_DICT:
    case QR_J_VIEW: return v->u.d->n;
    case QR_J_RANGE: return v->u.range->n;
    case QR_J_LOOP: return v->u.loop->items.n;
    default: return -1;
    }
}

bool qr_jtruth(const struct qr_jval *v)
{
    switch (v->type) {
    case QR_J_NONE: return false;
    case QR_J_BOOL: return v->u.b;
    case QR_J_INT: return v->u.i != 0;
    case QR_J_FLOAT: return v->u.f != 0;
    case QR_J_STR: return v->u.s->len > 0;
    default: return items_known(v) != 0;
    }
}

int64_t qr_jlen(struct qr_jctx *c, const struct qr_jval *v)
{
    if (v->type == QR_J_STR)
        return qr_jstr_chars(c, v->u.s);
    int64_t n = items_known(v);
    if (n < 0)
        qr_jfail(c, "object of type '%s' has no len()", qr_jtype_name(v));
    return n;
}

bool qr_jiterable(const struct qr_jval *v)
{
    return v->type == QR_J_STR || v->type == QR_J_GEN || (v->type != QR_J_LOOP && items_known(v) >= 0);
}

static struct qr_jseq chars_of(struct qr_jctx *c, struct qr_jstr *s)
{
    int64_t n = qr_jstr_chars(c, s);
    struct qr_jval *at = qr_jalloc(c, (size_t)n, sizeof *at);
    size_t from = 0;
    for (int64_t i = 0; i < n; i++) {
        size_t to = qr_jstr_next(s, from);
        at[i] = qr_jstrv(qr_jstr_marked(c, qr_jstr_sub(c, s, from, to), false));
        from = to;
    }
    return (struct qr_jseq){at, n, false};
}

static struct qr_jseq rest_of(struct qr_jgen *g)
{
    struct qr_jseq rest = {g->seq.n > g->pos ? g->seq.at + g->pos : g->seq.at, g->seq.n - g->pos, false};
    g->pos = g->seq.n;
    return rest;
}

struct qr_jseq qr_jitems(struct qr_jctx *c, const struct qr_jval *v)
{
    switch (v->type) {
    case QR_J_UNDEF: return (struct qr_jseq){0};
    case QR_J_STR: return chars_of(c, v->u.s);
    case QR_J_LIST:
    case QR_J_TUPLE: return *v->u.seq;
    case QR_J_GEN: return rest_of(v->u.gen);
    default: break;
    }
    if (!qr_jiterable(v))
        qr_jfail(c, "'%s' object is not iterable", qr_jtype_name(v));
    int64_t n = items_known(v);
    struct qr_jval *at = qr_jalloc(c, (size_t)n, sizeof *at);
    for (int64_t i = 0; i < n; i++) {
        if (v->type == QR_J_RANGE)
            at[i] = qr_jint(v->u.range->start + i * v->u.range->step);
        else
            at[i] = qr_jdict_view(c, v->u.d, v->type == QR_J_VIEW ? v->view : QR_JVIEW_KEYS, (int32_t)i);
    }
    return (struct qr_jseq){at, n, false};
}

bool qr_jinteger(const struct qr_jval *v, int64_t *out)
{
    if (v->type != QR_J_INT && v->type != QR_J_BOOL)
        return false;
    *out = v->type == QR_J_INT ? v->u.i : v->u.b;
    return true;
}

bool qr_jnumber(const struct qr_jval *v, double *out)
{
    switch (v->type) {
    case QR_J_BOOL: *out = v->u.b; return true;
    case QR_J_INT: *out = (double)v->u.i; return true;
    case QR_J_FLOAT: *out = v->u.f; return true;
    case QR_J_BIG: *out = qr_jbig_f64(v->u.s); return true;
    default: return false;
    }
}

static uint64_t hash_seq(struct qr_jctx *c, const struct qr_jseq *seq)
{
    uint64_t h = 0x9e3779b97f4a7c15u;
    qr_jdown(c);
    for (int64_t i = 0; i < seq->n; i++) {
        qr_jcharge(c, 1);
        h = (h ^ qr_jhash(c, &seq->at[i])) * 0x100000001b3u + (h >> 29);
    }
    qr_jup(c);
    return h;
}

uint64_t qr_jhash(struct qr_jctx *c, const struct qr_jval *v)
{
    double f = 0;
    switch (v->type) {
    case QR_J_STR:
    case QR_J_BIG:
        qr_jstr_flat(c, v->u.s);
        qr_jcharge_bytes(c, v->u.s->len);
        return qr_hash64(v->u.s->u.flat.data, v->u.s->len, 0);
    case QR_J_BOOL:
    case QR_J_INT:
    case QR_J_FLOAT:
        qr_jnumber(v, &f); /* equal numbers of different types have equal doubles */
        f = f == 0 ? 0.0 : f;
        return qr_hash64(&f, sizeof f, 1);
    case QR_J_TUPLE: return hash_seq(c, v->u.seq);
    case QR_J_LIST:
    case QR_J_DICT:
    case QR_J_VIEW: qr_jfail(c, "unhashable type: '%s'", qr_jtype_name(v));
    case QR_J_NONE:
    case QR_J_UNDEF: return v->type;
    default: return qr_hash64(&v->u, sizeof v->u.s, 2);
    }
}
