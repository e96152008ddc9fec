/* compare.c - equality, order, membership and sorting as Python has them. Sorting is stable, and values that Python
 * does not order are an error. An error leaves the rendering (value.h). One thread per rendering. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/value.h"

double qr_jbig_f64(const struct qr_jstr *s)
{
    char buf[400];
    QR_ASSERT(s->rope_depth == 0);
    size_t n = s->len < sizeof buf - 1 ? s->len : sizeof buf - 1; /* beyond 309 digits it is infinite anyway */
    memcpy(buf, s->u.flat.data, n);
    buf[n] = 0;
    return strtod(buf, NULL);
}

static bool is_number(const struct qr_jval *v)
{
    return v->type >= QR_J_BOOL && v->type <= QR_J_FLOAT;
}

/* <0, 0, >0; 2 when one is no number (NaN). */
static int order_numbers(const struct qr_jval *a, const struct qr_jval *b)
{
    int64_t i, j;
    double x = 0, y = 0;
    if (qr_jinteger(a, &i) && qr_jinteger(b, &j))
        return (i > j) - (i < j);
    if (a->type == QR_J_BIG && b->type == QR_J_BIG) {
        const struct qr_jstr *s = a->u.s, *t = b->u.s;
        bool s_neg = s->u.flat.data[0] == '-', t_neg = t->u.flat.data[0] == '-';
        if (s_neg != t_neg)
            return s_neg ? -1 : 1;
        int r = s->len != t->len ? (s->len > t->len ? 1 : -1) : memcmp(s->u.flat.data, t->u.flat.data, s->len);
        r = (r > 0) - (r < 0);
        return s_neg ? -r : r;
    }
    if ((a->type == QR_J_BIG && qr_jinteger(b, &j)) || (b->type == QR_J_BIG && qr_jinteger(a, &i))) {
        const struct qr_jval *big = a->type == QR_J_BIG ? a : b; /* beyond 64 bits: only its sign matters */
        int r = big->u.s->u.flat.data[0] == '-' ? -1 : 1;
        return big == a ? r : -r;
    }
    qr_jnumber(a, &x);
    qr_jnumber(b, &y);
    if (isnan(x) || isnan(y))
        return 2;
    return (x > y) - (x < y);
}

static bool equal_seq(struct qr_jctx *c, const struct qr_jseq *a, const struct qr_jseq *b)
{
    bool same = a->n == b->n;
    for (int64_t i = 0; same && i < a->n; i++) {
        qr_jcharge(c, 1);
        same = qr_jequal(c, &a->at[i], &b->at[i]);
    }
    return same;
}

static bool equal_dict(struct qr_jctx *c, const struct qr_jdict *a, struct qr_jdict *b)
{
    bool same = a->n == b->n;
    for (int32_t i = 0; same && i < a->n; i++) {
        qr_jcharge(c, 1);
        struct qr_jval other = qr_jdict_get(c, b, a->at[i].key);
        same = other.type != QR_J_ABSENT && qr_jequal(c, &a->at[i].val, &other);
    }
    return same;
}

bool qr_jequal(struct qr_jctx *c, const struct qr_jval *a, const struct qr_jval *b)
{
    if (is_number(a) && is_number(b))
        return order_numbers(a, b) == 0;
    if (a->type != b->type)
        return false;
    if (a->type == QR_J_STR)
        return qr_jstr_eq(c, a->u.s, b->u.s);
    if (a->type == QR_J_UNDEF || a->type == QR_J_NONE)
        return true;
    if (a->type == QR_J_RANGE) {
        const struct qr_jrange *r = a->u.range, *s = b->u.range;
        return r->n == s->n && (r->n == 0 || (r->start == s->start && (r->n == 1 || r->step == s->step)));
    }
    if (a->type != QR_J_LIST && a->type != QR_J_TUPLE && a->type != QR_J_DICT)
        return a->u.s == b->u.s; /* the same object */
    qr_jdown(c);
    bool same = a->type == QR_J_DICT ? equal_dict(c, a->u.d, b->u.d) : equal_seq(c, a->u.seq, b->u.seq);
    qr_jup(c);
    return same;
}

static int order_seq(struct qr_jctx *c, const struct qr_jseq *a, const struct qr_jseq *b, const char *op)
{
    int64_t i = 0, n = a->n < b->n ? a->n : b->n;
    qr_jdown(c);
    for (; i < n; i++) {
        qr_jcharge(c, 1);
        if (!qr_jequal(c, &a->at[i], &b->at[i]))
            break;
    }
    int order = i < n ? qr_jorder(c, &a->at[i], &b->at[i], op) : (a->n > b->n) - (a->n < b->n);
    qr_jup(c);
    return order;
}

int qr_jorder(struct qr_jctx *c, const struct qr_jval *a, const struct qr_jval *b, const char *op)
{
    QR_ASSERT(op != NULL);
    if (is_number(a) && is_number(b))
        return order_numbers(a, b);
    if (a->type == QR_J_STR && b->type == QR_J_STR)
        return qr_jstr_cmp(c, a->u.s, b->u.s);
    if ((a->type == QR_J_LIST || a->type == QR_J_TUPLE) && a->type == b->type)
        return order_seq(c, a->u.seq, b->u.seq, op);
    if (a->type == QR_J_UNDEF || b->type == QR_J_UNDEF)
        qr_jfail_undef(c, a->type == QR_J_UNDEF ? a : b);
    qr_jfail(c, "'%s' not supported between instances of '%s' and '%s'", op, qr_jtype_name(a), qr_jtype_name(b));
}

bool qr_jcompare(struct qr_jctx *c, int op, const struct qr_jval *a, const struct qr_jval *b)
{
    static const char *const text[] = {"<", "<=", ">", ">="};
    switch (op) {
    case QR_JT_EQ: return qr_jequal(c, a, b);
    case QR_JT_NE: return !qr_jequal(c, a, b);
    case QR_JOP_IN: return qr_jcontains(c, b, a);
    case QR_JOP_NOTIN: return !qr_jcontains(c, b, a);
    default: break;
    }
    QR_ASSERT(op >= QR_JT_LT && op <= QR_JT_GE);
    int order = qr_jorder(c, a, b, text[op - QR_JT_LT]);
    switch (op) {
    case QR_JT_LT: return order < 0;
    case QR_JT_LE: return order <= 0;
    case QR_JT_GT: return order == 1;
    default: return order == 0 || order == 1;
    }
}

static bool in_range(const struct qr_jrange *r, int64_t i)
{
    int64_t first = r->start, last = r->start + (r->n - 1) * r->step, lo = first < last ? first : last;
    return r->n > 0 && i >= lo && i <= (first < last ? last : first) && ((__int128)i - first) % r->step == 0;
}

bool qr_jcontains(struct qr_jctx *c, const struct qr_jval *in, const struct qr_jval *what)
{
    int64_t i;
    if (in->type == QR_J_STR) {
        if (what->type != QR_J_STR)
            qr_jfail(c, "'in <string>' requires string as left operand, not %s", qr_jtype_name(what));
        qr_jstr_flat(c, in->u.s);
        qr_jstr_flat(c, what->u.s);
        qr_jcharge_bytes(c, in->u.s->len);
        return qr_jstr_find(in->u.s, what->u.s, 0, in->u.s->len) >= 0;
    }
    if (in->type == QR_J_DICT || (in->type == QR_J_VIEW && in->view == QR_JVIEW_KEYS))
        return qr_jdict_get(c, in->u.d, *what).type != QR_J_ABSENT;
    if (in->type == QR_J_RANGE && qr_jinteger(what, &i))
        return in_range(in->u.range, i);
    if (!qr_jiterable(in))
        qr_jfail(c, "argument of type '%s' is not iterable", qr_jtype_name(in));
    struct qr_jseq items = qr_jitems(c, in);
    bool found = false;
    for (i = 0; i < items.n && !found; i++) {
        qr_jcharge(c, 1);
        found = qr_jequal(c, &items.at[i], what);
    }
    return found;
}

/* ---- sorting: a stable merge sort over positions ---- */

struct sorter {
    struct qr_jctx *c;
    const struct qr_jval *key;
    bool reverse;
};

/* Whether position b must come before a, which stands to its left. */
static bool before(const struct sorter *s, int32_t b, int32_t a)
{
    qr_jcharge(s->c, 1);
    return qr_jorder(s->c, &s->key[s->reverse ? a : b], &s->key[s->reverse ? b : a], "<") < 0;
}

static void merge(const struct sorter *s, const int32_t *from, int32_t *to, int64_t lo, int64_t mid, int64_t hi)
{
    int64_t i = lo, j = mid;
    for (int64_t k = lo; k < hi; k++) {
        bool right = i >= mid || (j < hi && before(s, from[j], from[i]));
        to[k] = right ? from[j++] : from[i++];
    }
}

void qr_jsort(struct qr_jctx *c, struct qr_jval *key, struct qr_jval *val, int64_t n, bool reverse)
{
    QR_ASSERT(n >= 0 && n < INT32_MAX);
    struct sorter s = {c, key, reverse};
    int32_t *a = qr_jalloc(c, (size_t)n * 2, sizeof *a), *b = a + n;
    struct qr_jval *copy = qr_jgrow(c, val, n, n, sizeof *copy);
    for (int64_t i = 0; i < n; i++)
        a[i] = (int32_t)i;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t lo = 0; lo < n; lo += 2 * width) {
            int64_t mid = lo + width < n ? lo + width : n, hi = lo + 2 * width < n ? lo + 2 * width : n;
            merge(&s, a, b, lo, mid, hi);
        }
        int32_t *t = a;
        a = b;
        b = t;
    }
    for (int64_t i = 0; i < n; i++)
        val[i] = copy[a[i]];
}
