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
#include "base/utf8.h"
#include "tokenizer/jinja/eval.h"

#define STEP_BYTES 256 /* string bytes that cost as much as one step */
#define DICT_LINEAR 8  /* entries up to which a dict is searched without an index */

/* ---- memory, work, errors ---- */

void *qr_jalloc(struct qr_jctx *c, size_t n, size_t size)
{
    size_t bytes;
    void *p = qr_mul_size(n, size, &bytes) ? qr_arena_try(&c->arena, bytes ? bytes : 1, size == 1 ? 1 : 8) : NULL;
    if (!p)
        qr_jlimit(c, "rendering needs more than %zu bytes of memory", c->lim->memory_max);
    return p;
}

int qr_jcharge(struct qr_jctx *c, int64_t steps)
{
    QR_ASSERT(steps >= 0);
    if (steps > c->lim->steps_max - c->steps)
        return qr_jlimit(c, "rendering needs more than %lld steps", (long long)c->lim->steps_max);
    c->steps += steps;
    return 0;
}

int qr_jcharge_bytes(struct qr_jctx *c, size_t n_bytes)
{
    c->bytes_left += (int64_t)(n_bytes % STEP_BYTES);
    int64_t steps = (int64_t)(n_bytes / STEP_BYTES) + c->bytes_left / STEP_BYTES;
    c->bytes_left %= STEP_BYTES;
    return qr_jcharge(c, steps);
}

int qr_jdown(struct qr_jctx *c)
{
    if (c->nest >= QR_JNEST_MAX)
        return qr_jlimit(c, "values or expressions are nested deeper than %d", QR_JNEST_MAX);
    c->nest++;
    return 0;
}

void qr_jup(struct qr_jctx *c)
{
    QR_ASSERT(c->nest > 0);
    c->nest--;
}

static int __attribute__((format(printf, 4, 0))) fail(struct qr_jctx *c, enum qr_template_kind kind, enum qr_code code, const char *fmt, va_list ap)
{
    char what[420];
    vsnprintf(what, sizeof what, fmt, ap);
    c->kind = kind;
    return qr_err_set(c->err, code, "template line %d: %s", c->line, what);
}

int qr_jfail(struct qr_jctx *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = fail(c, QR_TEMPLATE_RUNTIME, QR_E_INVALID, fmt, ap);
    va_end(ap);
    return rc;
}

int qr_jlimit(struct qr_jctx *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = fail(c, QR_TEMPLATE_LIMIT, QR_E_TOO_LARGE, fmt, ap);
    va_end(ap);
    return rc;
}

/* ---- making values ---- */

int qr_jundef(struct qr_jctx *c, enum qr_jundef_why why, enum qr_jtype of, struct qr_jval name, const char *hint,
              struct qr_jval *out)
{
    struct qr_jundef *u = qr_jalloc(c, 1, sizeof *u);
    if (!u)
        return QR_E_TOO_LARGE;
    *u = (struct qr_jundef){why, of, name, hint};
    *out = (struct qr_jval){.type = QR_J_UNDEF, .u.undef = u};
    return 0;
}

int qr_jseq_new(struct qr_jctx *c, enum qr_jtype type, int64_t n, struct qr_jval *out)
{
    QR_ASSERT(n >= 0);
    QR_ASSERT(type == QR_J_LIST || type == QR_J_TUPLE);
    struct qr_jseq *seq = qr_jalloc(c, 1, sizeof *seq);
    struct qr_jval *at = seq ? qr_jalloc(c, (size_t)n, sizeof *at) : NULL;
    if (!at)
        return QR_E_TOO_LARGE;
    memset(at, 0, (size_t)n * sizeof *at);
    *seq = (struct qr_jseq){at, n, false};
    *out = (struct qr_jval){.type = (uint8_t)type, .u.seq = seq};
    return 0;
}

int qr_jgen_new(struct qr_jctx *c, const char *name, struct qr_jval *at, int64_t n, struct qr_jval *out)
{
    struct qr_jgen *gen = qr_jalloc(c, 1, sizeof *gen);
    if (!gen)
        return QR_E_TOO_LARGE;
    *gen = (struct qr_jgen){{at, n, false}, 0, name};
    *out = (struct qr_jval){.type = QR_J_GEN, .u.gen = gen};
    return 0;
}

int qr_jbag_push(struct qr_jctx *c, struct qr_jbag *b, struct qr_jval v)
{
    if (b->n == b->cap) {
        int64_t cap = b->cap ? b->cap * 2 : 8;
        struct qr_jval *at = qr_jalloc(c, (size_t)cap, sizeof *at);
        if (!at)
            return QR_E_TOO_LARGE;
        if (b->n > 0)
            memcpy(at, b->at, (size_t)b->n * sizeof *at);
        b->at = at;
        b->cap = cap;
    }
    b->at[b->n++] = v;
    return 0;
}

int qr_jbag_list(struct qr_jctx *c, const struct qr_jbag *b, enum qr_jtype type, struct qr_jval *out)
{
    struct qr_jseq *seq = qr_jalloc(c, 1, sizeof *seq);
    if (!seq)
        return QR_E_TOO_LARGE;
    *seq = (struct qr_jseq){b->at, b->n, false};
    *out = (struct qr_jval){.type = (uint8_t)type, .u.seq = seq};
    return 0;
}

static int number_from_json(struct qr_jctx *c, const struct qr_json *v, bool trusted, struct qr_jval *out)
{
    int64_t i;
    if (!qr_json_is_integer_text(v)) {
        *out = qr_jfloat(qr_json_f64(v));
    } else if (qr_json_i64(v, &i)) {
        *out = qr_jint(i);
    } else {
        struct qr_buf text = {0};
        qr_json_print(&text, v);
        char *copy = qr_jalloc(c, text.len, 1);
        if (copy)
            memcpy(copy, text.data, text.len);
        struct qr_jstr *s = NULL;
        int rc = copy ? qr_jstr_new(c, copy, text.len, trusted, &s) : QR_E_TOO_LARGE;
        qr_buf_release(&text);
        if (rc)
            return rc;
        *out = (struct qr_jval){.type = QR_J_BIG, .u.s = s};
    }
    out->untrusted = !trusted;
    return 0;
}

static int list_from_json(struct qr_jctx *c, const struct qr_json *v, bool trusted, struct qr_jval *out)
{
    int rc = qr_jseq_new(c, QR_J_LIST, qr_json_count(v), out);
    int64_t i = 0;
    for (const struct qr_json *e = qr_json_first(v); e && rc == 0; e = qr_json_after(e))
        rc = qr_jfrom_json(c, e, trusted, &out->u.seq->at[i++]);
    return rc;
}

/* A role is one of few words, and templates build special tokens of it: '<|' + message.role + '|>'. Alone such a word forges nothing: what stands around it
 * must be the template's own, too. */
static bool is_role(const char *key, const struct qr_json *v)
{
    static const char *const role[] = {"system", "developer", "user", "assistant", "tool", "function"};
    size_t n;
    if (strcmp(key, "role") != 0 || qr_json_type(v) != QR_JSON_T_STRING)
        return false;
    const char *text = qr_json_str(v, &n);
    for (int32_t i = 0; i < QR_COUNT(role); i++)
        if (strlen(role[i]) == n && memcmp(text, role[i], n) == 0)
            return true;
    return false;
}

static int dict_from_json(struct qr_jctx *c, const struct qr_json *v, bool trusted, struct qr_jval *out)
{
    struct qr_jdict *d;
    int rc = qr_jdict_new(c, &d);
    for (const struct qr_json *e = qr_json_first(v); e && rc == 0; e = qr_json_after(e)) {
        struct qr_jstr *key;
        struct qr_jval val;
        rc = qr_jstr_new(c, qr_json_key(e), strlen(qr_json_key(e)), trusted, &key);
        if (rc == 0)
            rc = qr_jfrom_json(c, e, trusted || is_role(qr_json_key(e), e), &val);
        if (rc == 0)
            rc = qr_jdict_set(c, d, qr_jstrv(key), val);
    }
    if (rc == 0)
        *out = (struct qr_jval){.type = QR_J_DICT, .u.d = d};
    return rc;
}

int qr_jfrom_json(struct qr_jctx *c, const struct qr_json *v, bool trusted, struct qr_jval *out)
{
    QR_ASSERT(v != NULL);
    int rc = qr_jdown(c);
    if (rc)
        return rc;
    switch (qr_json_type(v)) {
    case QR_JSON_T_NULL: *out = qr_jnone(); break;
    case QR_JSON_T_BOOL:
        *out = qr_jbool(qr_json_bool(v));
        out->untrusted = !trusted;
        break;
    case QR_JSON_T_NUMBER: rc = number_from_json(c, v, trusted, out); break;
    case QR_JSON_T_STRING: {
        size_t n;
        struct qr_jstr *s;
        const char *text = qr_json_str(v, &n);
        rc = qr_jstr_new(c, text, n, trusted, &s);
        if (rc == 0)
            *out = qr_jstrv(s);
        break;
    }
    case QR_JSON_T_ARRAY: rc = list_from_json(c, v, trusted, out); break;
    case QR_JSON_T_OBJECT: rc = dict_from_json(c, v, trusted, out); break;
    }
    qr_jup(c);
    return rc;
}

/* ---- dicts ---- */

int qr_jdict_new(struct qr_jctx *c, struct qr_jdict **out)
{
    struct qr_jdict *d = qr_jalloc(c, 1, sizeof *d);
    if (!d)
        return QR_E_TOO_LARGE;
    *d = (struct qr_jdict){0};
    *out = d;
    return 0;
}

/* Finds the key's entry, or -1. *slot: where the index would name it (when there is an index). */
static int find(struct qr_jctx *c, const struct qr_jdict *d, const struct qr_jval *key, uint64_t hash, int32_t *entry,
                int32_t *slot)
{
    *entry = -1;
    int64_t probes = 0;
    uint32_t mask = d->index ? (uint32_t)d->index_cap - 1 : 0;
    uint32_t at = d->index ? (uint32_t)hash & mask : 0;
    for (int rc = 0;; at = d->index ? (at + 1) & mask : at + 1) {
        if (!d->index && at >= (uint32_t)d->n)
            return 0;
        int32_t e = d->index ? d->index[at] - 1 : (int32_t)at;
        *slot = (int32_t)at;
        if (e < 0)
            return 0;
        bool same = false;
        if (d->at[e].hash == hash)
            rc = qr_jequal(c, &d->at[e].key, key, &same);
        if (rc == 0 && ++probes > DICT_LINEAR)
            rc = qr_jcharge(c, 1); /* keys made to collide cost their author steps, not us time */
        if (rc)
            return rc;
        if (same) {
            *entry = e;
            return 0;
        }
    }
}

static int reindex(struct qr_jctx *c, struct qr_jdict *d)
{
    int32_t cap = 32;
    while (cap < d->cap * 2)
        cap *= 2;
    int32_t *index = qr_jalloc(c, (size_t)cap, sizeof *index);
    if (!index)
        return QR_E_TOO_LARGE;
    memset(index, 0, (size_t)cap * sizeof *index);
    for (int32_t i = 0; i < d->n; i++) {
        uint32_t at = (uint32_t)d->at[i].hash & (uint32_t)(cap - 1);
        while (index[at])
            at = (at + 1) & (uint32_t)(cap - 1);
        index[at] = i + 1;
    }
    d->index = index;
    d->index_cap = cap;
    return 0;
}

static int grow(struct qr_jctx *c, struct qr_jdict *d)
{
    int32_t cap = d->cap ? d->cap * 2 : 4;
    struct qr_jentry *at = qr_jalloc(c, (size_t)cap, sizeof *at);
    if (!at)
        return QR_E_TOO_LARGE;
    if (d->n > 0)
        memcpy(at, d->at, (size_t)d->n * sizeof *at);
    d->at = at;
    d->cap = cap;
    return cap > DICT_LINEAR ? reindex(c, d) : 0;
}

int qr_jdict_set(struct qr_jctx *c, struct qr_jdict *d, struct qr_jval key, struct qr_jval val)
{
    QR_ASSERT(d != NULL);
    uint64_t hash;
    int32_t entry, slot = 0;
    int rc = qr_jhash(c, &key, &hash);
    if (rc == 0)
        rc = find(c, d, &key, hash, &entry, &slot);
    if (rc)
        return rc;
    if (entry >= 0) {
        d->at[entry].val = val;
        return 0;
    }
    if (d->n == d->cap) {
        rc = grow(c, d);
        if (rc == 0)
            rc = find(c, d, &key, hash, &entry, &slot);
        if (rc)
            return rc;
    }
    if (d->index)
        d->index[slot] = d->n + 1;
    d->at[d->n++] = (struct qr_jentry){key, val, hash};
    return 0;
}

int qr_jdict_get(struct qr_jctx *c, struct qr_jdict *d, struct qr_jval key, struct qr_jval *out)
{
    QR_ASSERT(d != NULL);
    uint64_t hash;
    int32_t entry, slot;
    int rc = qr_jhash(c, &key, &hash);
    if (rc == 0)
        rc = find(c, d, &key, hash, &entry, &slot);
    if (rc == 0)
        *out = entry >= 0 ? d->at[entry].val : (struct qr_jval){.type = QR_J_ABSENT};
    return rc;
}

int qr_jdict_view(struct qr_jctx *c, struct qr_jdict *d, enum qr_jview view, int32_t i, struct qr_jval *out)
{
    QR_ASSERT(i >= 0 && i < d->n);
    if (view != QR_JVIEW_ITEMS) {
        *out = view == QR_JVIEW_KEYS ? d->at[i].key : d->at[i].val;
        return 0;
    }
    int rc = qr_jseq_new(c, QR_J_TUPLE, 2, out);
    if (rc == 0) {
        out->u.seq->at[0] = d->at[i].key;
        out->u.seq->at[1] = d->at[i].val;
    }
    return rc;
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

int qr_jtruth(struct qr_jctx *c, const struct qr_jval *v, bool *out)
{
    switch (v->type) {
    case QR_J_UNDEF:
    case QR_J_NONE: *out = false; break;
    case QR_J_BOOL: *out = v->u.b; break;
    case QR_J_INT: *out = v->u.i != 0; break;
    case QR_J_FLOAT: *out = v->u.f != 0; break;
    case QR_J_STR: *out = v->u.s->len > 0; break;
    case QR_J_LIST:
    case QR_J_TUPLE: *out = v->u.seq->n > 0; break;
    case QR_J_DICT:
    case QR_J_VIEW: *out = v->u.d->n > 0; break;
    case QR_J_RANGE: *out = v->u.range->n > 0; break;
    case QR_J_LOOP: *out = v->u.loop->items.n > 0; break;
    default: *out = true;
    }
    return 0;
}

int qr_jlen(struct qr_jctx *c, const struct qr_jval *v, int64_t *out)
{
    switch (v->type) {
    case QR_J_UNDEF: *out = 0; return 0;
    case QR_J_STR: return qr_jstr_chars(c, v->u.s, out);
    case QR_J_LIST:
    case QR_J_TUPLE: *out = v->u.seq->n; return 0;
    case QR_J_DICT:
    case QR_J_VIEW: *out = v->u.d->n; return 0;
    case QR_J_RANGE: *out = v->u.range->n; return 0;
    case QR_J_LOOP: *out = v->u.loop->items.n; return 0;
    default: return qr_jfail(c, "object of type '%s' has no len()", qr_jtype_name(v));
    }
}

bool qr_jiterable(const struct qr_jval *v)
{
    switch (v->type) {
    case QR_J_UNDEF:
    case QR_J_STR:
    case QR_J_LIST:
    case QR_J_TUPLE:
    case QR_J_DICT:
    case QR_J_VIEW:
    case QR_J_RANGE:
    case QR_J_GEN: return true;
    default: return false;
    }
}

bool qr_jcallable(const struct qr_jval *v)
{
    return v->type == QR_J_UNDEF || v->type == QR_J_LOOP || v->type == QR_J_MACRO || v->type == QR_J_FUNC ||
           v->type == QR_J_METHOD || v->type == QR_J_JOINER;
}

static int chars_of(struct qr_jctx *c, struct qr_jstr *s, struct qr_jseq *out)
{
    int64_t n;
    int rc = qr_jstr_chars(c, s, &n);
    struct qr_jval *at = rc ? NULL : qr_jalloc(c, (size_t)n, sizeof *at);
    size_t from = 0;
    for (int64_t i = 0; at && rc == 0 && i < n; i++) {
        uint32_t cp;
        int32_t len = qr_utf8_decode(s->u.flat.data + from, s->len - from, &cp);
        QR_ASSERT(len > 0);
        struct qr_jstr *one;
        rc = qr_jstr_sub(c, s, from, from + (size_t)len, &one);
        if (rc == 0)
            rc = qr_jstr_marked(c, one, false, &one);
        if (rc == 0)
            at[i] = qr_jstrv(one);
        from += (size_t)len;
    }
    if (!at && rc == 0)
        rc = QR_E_TOO_LARGE;
    *out = (struct qr_jseq){at, n, false};
    return rc;
}

int qr_jitems(struct qr_jctx *c, const struct qr_jval *v, struct qr_jseq *out)
{
    *out = (struct qr_jseq){0};
    int64_t n = v->type == QR_J_RANGE ? v->u.range->n : v->type == QR_J_DICT || v->type == QR_J_VIEW ? v->u.d->n : 0;
    int rc = 0;
    switch (v->type) {
    case QR_J_UNDEF: return 0;
    case QR_J_STR: return chars_of(c, v->u.s, out);
    case QR_J_LIST:
    case QR_J_TUPLE: *out = *v->u.seq; return 0;
    case QR_J_GEN: {
        struct qr_jgen *g = v->u.gen;
        *out = (struct qr_jseq){g->seq.n > g->pos ? g->seq.at + g->pos : g->seq.at, g->seq.n - g->pos, false};
        g->pos = g->seq.n;
        return 0;
    }
    case QR_J_DICT:
    case QR_J_VIEW:
    case QR_J_RANGE: break;
    default: return qr_jfail(c, "'%s' object is not iterable", qr_jtype_name(v));
    }
    struct qr_jval *at = qr_jalloc(c, (size_t)n, sizeof *at);
    if (!at)
        return QR_E_TOO_LARGE;
    for (int64_t i = 0; i < n && rc == 0; i++) {
        if (v->type == QR_J_RANGE)
            at[i] = qr_jint(v->u.range->start + i * v->u.range->step);
        else
            rc = qr_jdict_view(c, v->u.d, v->type == QR_J_VIEW ? v->view : QR_JVIEW_KEYS, (int32_t)i, &at[i]);
    }
    *out = (struct qr_jseq){at, n, false};
    return rc;
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

static int hash_seq(struct qr_jctx *c, const struct qr_jseq *seq, uint64_t *out)
{
    int rc = qr_jdown(c);
    if (rc)
        return rc;
    uint64_t h = 0x9e3779b97f4a7c15u, one = 0;
    for (int64_t i = 0; i < seq->n && rc == 0; i++) {
        rc = qr_jcharge(c, 1);
        if (rc == 0)
            rc = qr_jhash(c, &seq->at[i], &one);
        h = (h ^ one) * 0x100000001b3u + (h >> 29);
    }
    *out = h;
    qr_jup(c);
    return rc;
}

int qr_jhash(struct qr_jctx *c, const struct qr_jval *v, uint64_t *out)
{
    double f = 0;
    int rc = 0;
    switch (v->type) {
    case QR_J_STR:
    case QR_J_BIG:
        rc = qr_jstr_flat(c, v->u.s);
        if (rc == 0)
            rc = qr_jcharge_bytes(c, v->u.s->len);
        *out = rc ? 0 : qr_hash64(v->u.s->u.flat.data, v->u.s->len, 0);
        return rc;
    case QR_J_BOOL:
    case QR_J_INT:
    case QR_J_FLOAT:
        qr_jnumber(v, &f); /* equal numbers of different types have equal doubles */
        f = f == 0 ? 0.0 : f;
        *out = qr_hash64(&f, sizeof f, 1);
        return 0;
    case QR_J_TUPLE: return hash_seq(c, v->u.seq, out);
    case QR_J_LIST:
    case QR_J_DICT:
    case QR_J_VIEW: return qr_jfail(c, "unhashable type: '%s'", qr_jtype_name(v));
    case QR_J_NONE:
    case QR_J_UNDEF: *out = v->type; return 0;
    default: *out = qr_hash64(&v->u, sizeof v->u.s, 2); return 0;
    }
}
