/* attr.c - x.name, x[key], x[a:b:c]. No attribute of anything but the values here can be reached: methods come from
 * tables, names that would lead out of the language (__class__ and the like) or change a value give an undefined value
 * that fails on use. An error leaves the rendering (value.h). One thread per rendering. */
#include <string.h>

#include "base/assert.h"
#include "tokenizer/jinja/eval.h"

/* Methods that the reference's immutable sandbox refuses. */
static bool is_mutator(enum qr_jtype type, const struct qr_jstr *name)
{
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update"};
    static const char *const of_list[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
    const char *const *names = type == QR_J_DICT ? of_dict : type == QR_J_LIST ? of_list : NULL;
    int n = type == QR_J_DICT ? QR_COUNT(of_dict) : type == QR_J_LIST ? QR_COUNT(of_list) : 0;
    for (int i = 0; i < n; i++) {
        if (qr_jstr_is(name, names[i]))
            return true;
    }
    return false;
}

/* Names that every Python object has and no template may touch. */
static bool is_internal(const struct qr_jstr *name)
{
    static const char *const names[] = {
        "__class__", "__init__", "__doc__", "__dir__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__",
        "__repr__", "__str__", "__new__", "__reduce__", "__reduce_ex__", "__getattribute__", "__setattr__", "__delattr__",
        "__format__", "__sizeof__", "__init_subclass__", "__subclasshook__", "__getstate__",
    };
    if (name->len < 4 || memcmp(name->u.flat.data, "__", 2) != 0)
        return false;
    for (int i = 0; i < QR_COUNT(names); i++) {
        if (qr_jstr_is(name, names[i]))
            return true;
    }
    return false;
}

/* ---- finding: ABSENT where there is nothing ---- */

static const struct qr_jval absent = {.type = QR_J_ABSENT};

/* loop.index and its kin. */
static struct qr_jval loop_attr(struct qr_jctx *c, struct qr_jloop *l, const struct qr_jstr *name)
{
    static const char *const names[] = {"index", "index0", "first", "last", "length", "revindex", "revindex0",
                                        "depth", "depth0", "previtem", "nextitem"};
    int k = 0;
    while (k < QR_COUNT(names) && !qr_jstr_is(name, names[k]))
        k++;
    switch (k) {
    case 0: return qr_jint(l->i + 1);
    case 1: return qr_jint(l->i);
    case 2: return qr_jbool(l->i == 0);
    case 3: return qr_jbool(l->i + 1 >= l->items.n);
    case 4: return qr_jint(l->items.n);
    case 5: return qr_jint(l->items.n - l->i);
    case 6: return qr_jint(l->items.n - l->i - 1);
    case 7: return qr_jint(l->depth0 + 1);
    case 8: return qr_jint(l->depth0);
    case 9: return l->i > 0 ? l->items.at[l->i - 1] : qr_jhint(c, "there is no previous item");
    case 10: return l->i + 1 < l->items.n ? l->items.at[l->i + 1] : qr_jhint(c, "there is no next item");
    default: return absent;
    }
}

static struct qr_jval macro_attr(struct qr_jctx *c, const struct qr_jmacro *m, const struct qr_jstr *name)
{
    const struct qr_jsig *sig = m->sig;
    if (qr_jstr_is(name, "name"))
        return sig->name ? qr_jlit(c, sig->name) : qr_jnone();
    if (qr_jstr_is(name, "caller"))
        return qr_jbool(sig->caller);
    if (qr_jstr_is(name, "catch_kwargs"))
        return qr_jbool(sig->kwargs);
    if (qr_jstr_is(name, "catch_varargs"))
        return qr_jbool(sig->varargs);
    if (!qr_jstr_is(name, "arguments"))
        return absent;
    struct qr_jval seq = qr_jseq_new(c, QR_J_TUPLE, sig->n);
    for (int32_t i = 0; i < sig->n; i++)
        seq.u.seq->at[i] = qr_jlit(c, c->t->name[sig->sym[i]]);
    return seq;
}

/* Attributes that are values, not methods. */
static struct qr_jval value_attr(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval *name)
{
    const struct qr_jstr *s = name->u.s;
    switch (obj->type) {
    case QR_J_LOOP: return loop_attr(c, obj->u.loop, s);
    case QR_J_MACRO: return macro_attr(c, obj->u.macro, s);
    case QR_J_NS: return qr_jdict_get(c, obj->u.d, *name);
    case QR_J_CYCLER: return qr_jstr_is(s, "current") ? obj->u.cycler->items.at[obj->u.cycler->pos] : absent;
    case QR_J_TUPLE:
        if (obj->u.seq->group && (qr_jstr_is(s, "grouper") || qr_jstr_is(s, "list")))
            return obj->u.seq->at[qr_jstr_is(s, "list")];
        return absent;
    default: return absent;
    }
}

/* What Python's getattr finds. */
static struct qr_jval python_attr(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval *name)
{
    const struct qr_jstr *s = name->u.s;
    const enum qr_jtype type = (enum qr_jtype)obj->type;
    struct qr_jval v = value_attr(c, obj, name);
    if (v.type != QR_J_ABSENT)
        return v;
    if (type != QR_J_NS && (is_mutator(type, s) || is_internal(s)))
        return qr_jundef(c, QR_JUNDEF_UNSAFE, type, *name);
    const struct qr_jbuiltin *m = qr_jmethod_find(type, s->u.flat.data, s->len);
    if (!m)
        return absent;
    struct qr_jbound *bound = qr_jalloc(c, 1, sizeof *bound);
    *bound = (struct qr_jbound){m, *obj};
    return (struct qr_jval){.type = QR_J_METHOD, .u.bound = bound};
}

static bool has_positions(const struct qr_jval *v)
{
    return v->type == QR_J_STR || v->type == QR_J_LIST || v->type == QR_J_TUPLE || v->type == QR_J_RANGE;
}

/* x[i] of something with positions. */
static struct qr_jval at_index(struct qr_jctx *c, const struct qr_jval *obj, int64_t i)
{
    int64_t n = has_positions(obj) ? qr_jlen(c, obj) : 0;
    if (i < 0)
        i += n;
    if (i < 0 || i >= n)
        return absent;
    if (obj->type == QR_J_STR) {
        size_t from = qr_jstr_offset(obj->u.s, i);
        return qr_jstrv(qr_jstr_sub(c, obj->u.s, from, qr_jstr_next(obj->u.s, from)));
    }
    return obj->type == QR_J_RANGE ? qr_jint(obj->u.range->start + i * obj->u.range->step) : obj->u.seq->at[i];
}

/* What Python's obj[key] finds; a missing key or a wrong type gives nothing. */
static struct qr_jval python_item(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval *key)
{
    int64_t i;
    if (obj->type == QR_J_DICT)
        return key->type == QR_J_LIST || key->type == QR_J_DICT ? absent : qr_jdict_get(c, obj->u.d, *key);
    return qr_jinteger(key, &i) ? at_index(c, obj, i) : absent;
}

struct qr_jval qr_jgetattr(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval *name)
{
    QR_ASSERT(obj != NULL);
    QR_ASSERT(name->type == QR_J_STR);
    if (obj->type == QR_J_UNDEF && !is_internal(name->u.s))
        qr_jfail_undef(c, obj);
    struct qr_jval v = python_attr(c, obj, name);
    if (v.type == QR_J_ABSENT)
        v = python_item(c, obj, name);
    return v.type != QR_J_ABSENT ? v : qr_jundef(c, QR_JUNDEF_ATTR, (enum qr_jtype)obj->type, *name);
}

struct qr_jval qr_jgetitem(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval *key)
{
    QR_ASSERT(obj != NULL);
    QR_ASSERT(key != NULL);
    if (obj->type == QR_J_UNDEF)
        qr_jfail_undef(c, obj);
    if (key->type == QR_J_STR)
        qr_jstr_flat(c, key->u.s);
    struct qr_jval v = python_item(c, obj, key);
    if (v.type == QR_J_ABSENT && key->type == QR_J_STR)
        v = python_attr(c, obj, key);
    return v.type != QR_J_ABSENT ? v : qr_jundef(c, QR_JUNDEF_ATTR, (enum qr_jtype)obj->type, *key);
}

/* ---- slices ---- */

bool qr_jindices(const struct qr_jval part[3], int64_t len, int64_t *from, int64_t *step, int64_t *n)
{
    int64_t v[3] = {0, 0, 1};
    bool given[3];
    for (int i = 0; i < 3; i++) {
        given[i] = qr_jset(&part[i]);
        if (given[i] && !qr_jinteger(&part[i], &v[i]))
            return false;
    }
    if (v[2] == 0)
        return false;
    if (v[2] == INT64_MIN)
        v[2]++;
    int64_t lo = v[2] < 0 ? -1 : 0, hi = v[2] < 0 ? len - 1 : len;
    for (int i = 0; i < 2; i++) {
        if (!given[i])
            v[i] = (i == 0) == (v[2] > 0) ? lo : hi;
        else if (v[i] < 0)
            v[i] = v[i] + len < lo ? lo : v[i] + len;
        else
            v[i] = v[i] > hi ? hi : v[i];
    }
    *from = v[0];
    *step = v[2];
    *n = v[2] > 0 ? (v[1] > v[0] ? (v[1] - v[0] - 1) / v[2] + 1 : 0) : (v[0] > v[1] ? (v[0] - v[1] - 1) / -v[2] + 1 : 0);
    return true;
}

static struct qr_jstr *slice_str(struct qr_jctx *c, struct qr_jstr *s, int64_t from, int64_t step, int64_t n)
{
    if (n == 0)
        return qr_jstr_new(c, "", 0, true);
    if (step == 1) {
        size_t a = qr_jstr_offset(s, from);
        size_t b = qr_jstr_ascii(s) ? a + (size_t)n : qr_jstr_offset(s, from + n);
        return qr_jstr_sub(c, s, a, b);
    }
    struct qr_jval v = qr_jstrv(s);
    struct qr_jseq chars = qr_jitems(c, &v);
    struct qr_jsb b;
    qr_jsb_init(&b, c);
    for (int64_t i = 0; i < n; i++)
        qr_jsb_put_str(&b, chars.at[from + i * step].u.s);
    return qr_jsb_done(&b);
}

static struct qr_jval slice_range(struct qr_jctx *c, const struct qr_jrange *o, int64_t from, int64_t step, int64_t n)
{
    struct qr_jrange *r = qr_jalloc(c, 1, sizeof *r);
    *r = (struct qr_jrange){o->start + from * o->step, o->start + (from + n * step) * o->step, o->step * step, n};
    return (struct qr_jval){.type = QR_J_RANGE, .u.range = r};
}

static struct qr_jval slice_seq(struct qr_jctx *c, const struct qr_jval *obj, int64_t from, int64_t step, int64_t n)
{
    const enum qr_jtype type = (enum qr_jtype)obj->type;
    if (step == 1) /* nothing changes a list, so a part of one can share its items */
        return qr_jseq_of(c, type, obj->u.seq->at + from, n);
    struct qr_jval seq = qr_jseq_new(c, type, n);
    for (int64_t i = 0; i < n; i++)
        seq.u.seq->at[i] = obj->u.seq->at[from + i * step];
    return seq;
}

struct qr_jval qr_jslice(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval part[3])
{
    QR_ASSERT(obj != NULL);
    int64_t from, step, n;
    if (obj->type == QR_J_UNDEF)
        qr_jfail_undef(c, obj);
    if (obj->type == QR_J_DICT)
        qr_jfail(c, "unhashable type: 'slice'");
    if (!has_positions(obj))
        qr_jfail(c, "'%s' object is not subscriptable", qr_jtype_name(obj));
    if (!qr_jindices(part, qr_jlen(c, obj), &from, &step, &n)) {
        int64_t v = 1;
        bool zero = qr_jinteger(&part[2], &v) && v == 0;
        qr_jfail(c, zero ? "slice step cannot be zero"
                         : "slice indices must be integers or None or have an __index__ method");
    }
    qr_jcharge(c, n / 16);
    switch (obj->type) {
    case QR_J_STR: return qr_jstrv(qr_jstr_marked(c, slice_str(c, obj->u.s, from, step, n), obj->u.s->markup));
    case QR_J_RANGE: return slice_range(c, obj->u.range, from, step, n);
    default: return slice_seq(c, obj, from, step, n);
    }
}

/* ---- paths ---- */

/* One part of a dotted path: digits are an index. */
static struct qr_jval path_part(struct qr_jctx *c, struct qr_jstr *s, size_t from, size_t to)
{
    int64_t v = 0;
    bool digits = to > from && to - from < 18;
    for (size_t i = from; i < to && digits; i++) {
        digits = s->u.flat.data[i] >= '0' && s->u.flat.data[i] <= '9';
        v = v * 10 + (s->u.flat.data[i] - '0');
    }
    return digits ? qr_jint(v) : qr_jstrv(qr_jstr_sub(c, s, from, to));
}

struct qr_jval qr_jattr_path(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval *path,
                             const struct qr_jval *fallback)
{
    struct qr_jval v = *obj;
    if (!qr_jset(path))
        return v;
    if (path->type != QR_J_STR)
        return qr_jgetitem(c, obj, path);
    struct qr_jstr *s = qr_jstr_flat(c, path->u.s);
    for (size_t from = 0, to; from <= s->len; from = to + 1) {
        const char *dot = from < s->len ? memchr(s->u.flat.data + from, '.', s->len - from) : NULL;
        to = dot ? (size_t)(dot - s->u.flat.data) : s->len;
        struct qr_jval part = path_part(c, s, from, to);
        qr_jcharge(c, 1);
        v = qr_jgetitem(c, &v, &part);
        if (v.type == QR_J_UNDEF && fallback && qr_jset(fallback))
            v = *fallback;
    }
    return v;
}
