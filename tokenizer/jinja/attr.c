/* attr.c - x.name, x[key], x[a:b:c]. No attribute of anything but the values here can be reached: methods come from tables,
 * names that would lead out of the language (__class__ and the like) or change a value give an undefined value that fails on use.
 */
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
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

static int undef_attr(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval *name, bool unsafe, struct qr_jval *out)
{
    return qr_jundef(c, unsafe ? QR_JUNDEF_UNSAFE : QR_JUNDEF_ATTR, (enum qr_jtype)obj->type, *name, NULL, out);
}

static int hint(struct qr_jctx *c, const char *text, struct qr_jval *out)
{
    return qr_jundef(c, QR_JUNDEF_HINT, QR_J_UNDEF, qr_jnone(), text, out);
}

/* loop.index and its kin. *found is false for other names. */
static int loop_attr(struct qr_jctx *c, struct qr_jloop *l, const struct qr_jstr *name, bool *found, struct qr_jval *out)
{
    static const char *const names[] = {"index", "index0", "first", "last", "length", "revindex", "revindex0",
                                        "depth", "depth0", "previtem", "nextitem"};
    int k = 0;
    while (k < QR_COUNT(names) && !qr_jstr_is(name, names[k]))
        k++;
    *found = k < QR_COUNT(names);
    const int64_t value[] = {l->i + 1, l->i, 0, 0, l->items.n, l->items.n - l->i, l->items.n - l->i - 1,
                             l->depth0 + 1, l->depth0};
    if (!*found)
        return 0;
    if (k == 2 || k == 3) {
        *out = qr_jbool(k == 2 ? l->i == 0 : l->i + 1 >= l->items.n);
        return 0;
    }
    if (k < QR_COUNT(value)) {
        *out = qr_jint(value[k]);
        return 0;
    }
    int64_t other = k == 9 ? l->i - 1 : l->i + 1;
    if (other < 0)
        return hint(c, "there is no previous item", out);
    if (other >= l->items.n)
        return hint(c, "there is no next item", out);
    *out = l->items.at[other];
    return 0;
}

static int macro_attr(struct qr_jctx *c, const struct qr_jmacro *m, const struct qr_jstr *name, bool *found, struct qr_jval *out)
{
    const struct qr_jsig *sig = m->sig;
    *found = true;
    if (qr_jstr_is(name, "name")) {
        *out = qr_jnone();
        return sig->name ? qr_jlit(c, sig->name, out) : 0;
    }
    if (qr_jstr_is(name, "caller") || qr_jstr_is(name, "catch_kwargs") || qr_jstr_is(name, "catch_varargs")) {
        *out = qr_jbool(qr_jstr_is(name, "caller") ? sig->caller : qr_jstr_is(name, "catch_kwargs") ? sig->kwargs : sig->varargs);
        return 0;
    }
    *found = qr_jstr_is(name, "arguments");
    if (!*found)
        return 0;
    struct qr_jval seq;
    int rc = qr_jseq_new(c, QR_J_TUPLE, sig->n, &seq);
    for (int32_t i = 0; i < sig->n && rc == 0; i++)
        rc = qr_jlit(c, c->t->name[sig->sym[i]], &seq.u.seq->at[i]);
    *out = seq;
    return rc;
}

/* Attributes that are values, not methods. */
static int value_attr(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval *name, bool *found, struct qr_jval *out)
{
    const struct qr_jstr *s = name->u.s;
    *found = false;
    switch (obj->type) {
    case QR_J_LOOP: return loop_attr(c, obj->u.loop, s, found, out);
    case QR_J_MACRO: return macro_attr(c, obj->u.macro, s, found, out);
    case QR_J_NS: {
        int rc = qr_jdict_get(c, obj->u.d, *name, out);
        *found = rc == 0 && out->type != QR_J_ABSENT;
        return rc;
    }
    case QR_J_CYCLER:
        *found = qr_jstr_is(s, "current");
        if (*found)
            *out = obj->u.cycler->items.at[obj->u.cycler->pos];
        return 0;
    case QR_J_TUPLE:
        *found = obj->u.seq->group && (qr_jstr_is(s, "grouper") || qr_jstr_is(s, "list"));
        if (*found)
            *out = obj->u.seq->at[qr_jstr_is(s, "list")];
        return 0;
    default: return 0;
    }
}

/* What Python's getattr finds: *found says whether anything. */
static int python_attr(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval *name, bool *found, struct qr_jval *out)
{
    const struct qr_jstr *s = name->u.s;
    int rc = value_attr(c, obj, name, found, out);
    if (rc || *found)
        return rc;
    *found = true;
    if (obj->type != QR_J_NS && (is_mutator((enum qr_jtype)obj->type, s) || is_internal(s)))
        return undef_attr(c, obj, name, true, out);
    const struct qr_jbuiltin *m = qr_jmethod_find((enum qr_jtype)obj->type, s->u.flat.data, s->len);
    *found = m != NULL;
    if (!m)
        return 0;
    struct qr_jbound *bound = qr_jalloc(c, 1, sizeof *bound);
    if (!bound)
        return QR_E_TOO_LARGE;
    *bound = (struct qr_jbound){m, *obj};
    *out = (struct qr_jval){.type = QR_J_METHOD, .u.bound = bound};
    return 0;
}

/* x[i] of something with positions. *found is false when there is no such element. */
static int at_index(struct qr_jctx *c, const struct qr_jval *obj, int64_t i, bool *found, struct qr_jval *out)
{
    int64_t n = 0;
    int rc = obj->type == QR_J_STR || obj->type == QR_J_LIST || obj->type == QR_J_TUPLE || obj->type == QR_J_RANGE
                 ? qr_jlen(c, obj, &n)
                 : 0;
    if (rc)
        return rc;
    if (i < 0)
        i += n;
    *found = i >= 0 && i < n;
    if (!*found)
        return 0;
    if (obj->type == QR_J_STR) {
        struct qr_jstr *s = obj->u.s, *one;
        size_t from = qr_jstr_offset(s, i), to = from + 1;
        while (to < s->len && ((unsigned char)s->u.flat.data[to] & 0xC0) == 0x80)
            to++;
        rc = qr_jstr_sub(c, s, from, to, &one);
        if (rc == 0)
            *out = qr_jstrv(one);
        return rc;
    }
    *out = obj->type == QR_J_RANGE ? qr_jint(obj->u.range->start + i * obj->u.range->step) : obj->u.seq->at[i];
    return 0;
}

/* What Python's obj[key] finds; a missing key or a wrong type is not found. */
static int python_item(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval *key, bool *found, struct qr_jval *out)
{
    int64_t i;
    *found = false;
    if (obj->type == QR_J_DICT) {
        if (key->type == QR_J_LIST || key->type == QR_J_DICT)
            return 0;
        int rc = qr_jdict_get(c, obj->u.d, *key, out);
        *found = rc == 0 && out->type != QR_J_ABSENT;
        return rc;
    }
    return qr_jinteger(key, &i) ? at_index(c, obj, i, found, out) : 0;
}

int qr_jgetattr(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval *name, struct qr_jval *out)
{
    QR_ASSERT(obj != NULL);
    QR_ASSERT(name->type == QR_J_STR);
    bool found;
    struct qr_jval v;
    if (obj->type == QR_J_UNDEF && !is_internal(name->u.s))
        return qr_jfail_undef(c, obj);
    int rc = python_attr(c, obj, name, &found, &v);
    if (rc == 0 && !found)
        rc = python_item(c, obj, name, &found, &v);
    if (rc)
        return rc;
    if (!found)
        return undef_attr(c, obj, name, false, out);
    *out = v;
    return 0;
}

int qr_jgetitem(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval *key, struct qr_jval *out)
{
    QR_ASSERT(obj != NULL);
    QR_ASSERT(key != NULL);
    bool found;
    struct qr_jval v;
    if (obj->type == QR_J_UNDEF)
        return qr_jfail_undef(c, obj);
    int rc = key->type == QR_J_STR ? qr_jstr_flat(c, key->u.s) : 0;
    if (rc == 0)
        rc = python_item(c, obj, key, &found, &v);
    if (rc == 0 && !found && key->type == QR_J_STR)
        rc = python_attr(c, obj, key, &found, &v);
    if (rc)
        return rc;
    if (!found)
        return undef_attr(c, obj, key, false, out);
    *out = v;
    return 0;
}

bool qr_jindices(const struct qr_jval part[3], int64_t len, int64_t *from, int64_t *step, int64_t *n)
{
    int64_t v[3] = {0, 0, 1};
    bool given[3];
    for (int i = 0; i < 3; i++) {
        given[i] = part[i].type != QR_J_ABSENT && part[i].type != QR_J_NONE;
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

static int slice_str(struct qr_jctx *c, struct qr_jstr *s, int64_t from, int64_t step, int64_t n, struct qr_jval *out)
{
    struct qr_jstr *r;
    int rc;
    if (n == 0) {
        rc = qr_jstr_new(c, "", 0, true, &r);
    } else if (step == 1) {
        size_t a = qr_jstr_offset(s, from);
        size_t b = qr_jstr_ascii(s) ? a + (size_t)n : qr_jstr_offset(s, from + n);
        rc = qr_jstr_sub(c, s, a, b, &r);
    } else {
        struct qr_jseq chars;
        struct qr_jval v = qr_jstrv(s);
        struct qr_jsb b;
        rc = qr_jitems(c, &v, &chars);
        qr_jsb_init(&b, c);
        for (int64_t i = 0; i < n && rc == 0; i++)
            qr_jsb_put_str(&b, chars.at[from + i * step].u.s);
        rc = rc ? rc : qr_jsb_done(&b, &r);
    }
    if (rc == 0)
        rc = qr_jstr_marked(c, r, s->markup, &r);
    *out = qr_jstrv(r);
    return rc;
}

static int slice_seq(struct qr_jctx *c, const struct qr_jval *obj, int64_t from, int64_t step, int64_t n, struct qr_jval *out)
{
    if (obj->type == QR_J_RANGE) {
        struct qr_jrange *r = qr_jalloc(c, 1, sizeof *r), *o = obj->u.range;
        if (!r)
            return QR_E_TOO_LARGE;
        *r = (struct qr_jrange){o->start + from * o->step, o->start + (from + n * step) * o->step, o->step * step, n};
        *out = (struct qr_jval){.type = QR_J_RANGE, .u.range = r};
        return 0;
    }
    struct qr_jval seq;
    if (step == 1) { /* nothing changes a list, so a part of one can share its items */
        struct qr_jbag part = {obj->u.seq->at + from, n, n};
        return qr_jbag_list(c, &part, (enum qr_jtype)obj->type, out);
    }
    int rc = qr_jseq_new(c, (enum qr_jtype)obj->type, n, &seq);
    for (int64_t i = 0; i < n && rc == 0; i++)
        seq.u.seq->at[i] = obj->u.seq->at[from + i * step];
    *out = seq;
    return rc;
}

int qr_jslice(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval part[3], struct qr_jval *out)
{
    QR_ASSERT(obj != NULL);
    int64_t len, from, step, n;
    if (obj->type == QR_J_UNDEF)
        return qr_jfail_undef(c, obj);
    if (obj->type == QR_J_DICT)
        return qr_jfail(c, "unhashable type: 'slice'");
    if (obj->type != QR_J_STR && obj->type != QR_J_LIST && obj->type != QR_J_TUPLE && obj->type != QR_J_RANGE)
        return qr_jfail(c, "'%s' object is not subscriptable", qr_jtype_name(obj));
    int rc = qr_jlen(c, obj, &len);
    if (rc)
        return rc;
    if (!qr_jindices(part, len, &from, &step, &n)) {
        int64_t v = 1;
        bool zero = part[2].type != QR_J_ABSENT && qr_jinteger(&part[2], &v) && v == 0;
        return qr_jfail(c, zero ? "slice step cannot be zero" : "slice indices must be integers or None or have an __index__ method");
    }
    rc = qr_jcharge(c, n / 16);
    if (rc)
        return rc;
    return obj->type == QR_J_STR ? slice_str(c, obj->u.s, from, step, n, out) : slice_seq(c, obj, from, step, n, out);
}

/* One part of a dotted path: digits are an index. */
static int path_part(struct qr_jctx *c, struct qr_jstr *s, size_t from, size_t to, struct qr_jval *out)
{
    struct qr_jstr *part;
    int64_t v = 0;
    bool digits = to > from && to - from < 18;
    for (size_t i = from; i < to && digits; i++) {
        digits = s->u.flat.data[i] >= '0' && s->u.flat.data[i] <= '9';
        v = v * 10 + (s->u.flat.data[i] - '0');
    }
    if (digits) {
        *out = qr_jint(v);
        return 0;
    }
    int rc = qr_jstr_sub(c, s, from, to, &part);
    if (rc == 0)
        *out = qr_jstrv(part);
    return rc;
}

int qr_jattr_path(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval *path, const struct qr_jval *fallback,
                  struct qr_jval *out)
{
    *out = *obj;
    if (path->type == QR_J_ABSENT || path->type == QR_J_NONE)
        return 0;
    if (path->type != QR_J_STR)
        return qr_jgetitem(c, obj, path, out);
    struct qr_jstr *s = path->u.s;
    int rc = qr_jstr_flat(c, s);
    for (size_t from = 0; rc == 0 && from <= s->len;) {
        const char *dot = from < s->len ? memchr(s->u.flat.data + from, '.', s->len - from) : NULL;
        size_t to = dot ? (size_t)(dot - s->u.flat.data) : s->len;
        struct qr_jval part, here = *out;
        rc = path_part(c, s, from, to, &part);
        if (rc == 0)
            rc = qr_jcharge(c, 1);
        if (rc == 0)
            rc = qr_jgetitem(c, &here, &part, out);
        if (rc == 0 && out->type == QR_J_UNDEF && fallback && fallback->type != QR_J_ABSENT && fallback->type != QR_J_NONE)
            *out = *fallback;
        from = to + 1;
    }
    return rc;
}
