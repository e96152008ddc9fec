/* compare.c - equality, order, membership and sorting as Python has them. Sorting is stable, and values that Python
 * does not order are an error. Errors of a rendering are values (value.c), so a template can never end the process. The
 * arena is the rendering's own; one thread at a time. */
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

static int equal_seq(struct qr_jctx *c, const struct qr_jseq *a, const struct qr_jseq *b, bool *out)
{
    *out = a->n == b->n;
    int rc = 0;
    for (int64_t i = 0; i < a->n && *out && rc == 0; i++) {
        rc = qr_jcharge(c, 1);
        if (rc == 0)
            rc = qr_jequal(c, &a->at[i], &b->at[i], out);
    }
    return rc;
}

static int equal_dict(struct qr_jctx *c, const struct qr_jdict *a, struct qr_jdict *b, bool *out)
{
    *out = a->n == b->n;
    int rc = 0;
    for (int32_t i = 0; i < a->n && *out && rc == 0; i++) {
        struct qr_jval other;
        rc = qr_jcharge(c, 1);
        if (rc == 0)
            rc = qr_jdict_get(c, b, a->at[i].key, &other);
        if (rc == 0 && other.type == QR_J_ABSENT)
            *out = false;
        else if (rc == 0)
            rc = qr_jequal(c, &a->at[i].val, &other, out);
    }
    return rc;
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

int qr_jequal(struct qr_jctx *c, const struct qr_jval *a, const struct qr_jval *b, bool *out)
{
    if (is_number(a) && is_number(b)) {
        *out = order_numbers(a, b) == 0;
        return 0;
    }
    *out = false;
    if (a->type != b->type)
        return 0;
    if (a->type == QR_J_STR)
        return qr_jstr_eq(c, a->u.s, b->u.s, out);
    if (a->type == QR_J_UNDEF || a->type == QR_J_NONE) {
        *out = true;
        return 0;
    }
    if (a->type == QR_J_RANGE) {
        const struct qr_jrange *r = a->u.range, *s = b->u.range;
        *out = r->n == s->n && (r->n == 0 || (r->start == s->start && (r->n == 1 || r->step == s->step)));
        return 0;
    }
    *out = a->u.s == b->u.s; /* the same object */
    if (a->type != QR_J_LIST && a->type != QR_J_TUPLE && a->type != QR_J_DICT)
        return 0;
    int rc = qr_jdown(c);
    if (rc)
        return rc;
    rc = a->type == QR_J_DICT ? equal_dict(c, a->u.d, b->u.d, out) : equal_seq(c, a->u.seq, b->u.seq, out);
    qr_jup(c);
    return rc;
}

static int order_seq(struct qr_jctx *c, const struct qr_jseq *a, const struct qr_jseq *b, const char *op, int *out)
{
    int64_t n = a->n < b->n ? a->n : b->n;
    int rc = qr_jdown(c);
    if (rc)
        return rc;
    *out = (a->n > b->n) - (a->n < b->n);
    for (int64_t i = 0; i < n && rc == 0; i++) {
        bool same;
        rc = qr_jcharge(c, 1);
        if (rc == 0)
            rc = qr_jequal(c, &a->at[i], &b->at[i], &same);
        if (rc == 0 && !same) {
            rc = qr_jorder(c, &a->at[i], &b->at[i], op, out);
            break;
        }
    }
    qr_jup(c);
    return rc;
}

int qr_jorder(struct qr_jctx *c, const struct qr_jval *a, const struct qr_jval *b, const char *op, int *out)
{
    QR_ASSERT(op != NULL && out != NULL);
    if (is_number(a) && is_number(b)) {
        *out = order_numbers(a, b);
        return 0;
    }
    if (a->type == QR_J_STR && b->type == QR_J_STR)
        return qr_jstr_cmp(c, a->u.s, b->u.s, out);
    if ((a->type == QR_J_LIST || a->type == QR_J_TUPLE) && a->type == b->type)
        return order_seq(c, a->u.seq, b->u.seq, op, out);
    if (a->type == QR_J_UNDEF || b->type == QR_J_UNDEF)
        return qr_jfail_undef(c, a->type == QR_J_UNDEF ? a : b);
    return qr_jfail(c, "'%s' not supported between instances of '%s' and '%s'", op, qr_jtype_name(a), qr_jtype_name(b));
}

int qr_jcontains(struct qr_jctx *c, const struct qr_jval *in, const struct qr_jval *what, bool *out)
{
    *out = false;
    if (in->type == QR_J_STR) {
        if (what->type == QR_J_UNDEF)
            return qr_jfail(c, "'in <string>' requires string as left operand, not Undefined");
        if (what->type != QR_J_STR)
            return qr_jfail(c, "'in <string>' requires string as left operand, not %s", qr_jtype_name(what));
        int rc = qr_jstr_flat(c, in->u.s);
        if (rc == 0)
            rc = qr_jstr_flat(c, what->u.s);
        if (rc == 0)
            rc = qr_jcharge_bytes(c, in->u.s->len);
        if (rc == 0)
            *out = qr_jstr_find(in->u.s, what->u.s, 0, in->u.s->len) >= 0;
        return rc;
    }
    if (in->type == QR_J_DICT || (in->type == QR_J_VIEW && in->view == QR_JVIEW_KEYS)) {
        struct qr_jval v;
        int rc = qr_jdict_get(c, in->u.d, *what, &v);
        *out = rc == 0 && v.type != QR_J_ABSENT;
        return rc;
    }
    int64_t i;
    if (in->type == QR_J_RANGE && qr_jinteger(what, &i)) {
        const struct qr_jrange *r = in->u.range;
        int64_t first = r->start, last = r->start + (r->n - 1) * r->step, lo = first < last ? first : last;
        *out = r->n > 0 && i >= lo && i <= (first < last ? last : first) && ((__int128)i - first) % r->step == 0;
        return 0;
    }
    if (!qr_jiterable(in))
        return qr_jfail(c, "argument of type '%s' is not iterable", qr_jtype_name(in));
    struct qr_jseq items;
    int rc = qr_jitems(c, in, &items);
    for (i = 0; i < items.n && !*out && rc == 0; i++) {
        rc = qr_jcharge(c, 1);
        if (rc == 0)
            rc = qr_jequal(c, &items.at[i], what, out);
    }
    return rc;
}

/* ---- sorting: a stable merge sort over positions ---- */

struct sorter {
    struct qr_jctx *c;
    const struct qr_jval *key;
    bool reverse;
    int rc;
};

/* Whether position b must come before a, which stands to its left. */
static bool before(struct sorter *s, int32_t b, int32_t a)
{
    int order = 0;
    if (s->rc)
        return false;
    s->rc = qr_jcharge(s->c, 1);
    if (s->rc == 0)
        s->rc = s->reverse ? qr_jorder(s->c, &s->key[a], &s->key[b], "<", &order)
                           : qr_jorder(s->c, &s->key[b], &s->key[a], "<", &order);
    return s->rc == 0 && order < 0;
}

static void merge(struct sorter *s, const int32_t *from, int32_t *to, int64_t lo, int64_t mid, int64_t hi)
{
    int64_t i = lo, j = mid;
    for (int64_t k = lo; k < hi; k++) {
        bool right = i >= mid || (j < hi && before(s, from[j], from[i]));
        to[k] = right ? from[j++] : from[i++];
    }
}

int qr_jsort(struct qr_jctx *c, struct qr_jval *key, struct qr_jval *val, int64_t n, bool reverse)
{
    QR_ASSERT(n >= 0 && n < INT32_MAX);
    struct sorter s = {c, key, reverse, 0};
    int32_t *a = qr_jalloc(c, (size_t)n * 2, sizeof *a), *b = a + n;
    struct qr_jval *copy = a ? qr_jalloc(c, (size_t)n, sizeof *copy) : NULL;
    if (!copy)
        return QR_E_TOO_LARGE;
    for (int64_t i = 0; i < n; i++)
        a[i] = (int32_t)i;
    for (int64_t width = 1; width < n && s.rc == 0; width *= 2) {
        for (int64_t lo = 0; lo < n; lo += 2 * width) {
            int64_t mid = lo + width < n ? lo + width : n, hi = lo + 2 * width < n ? lo + 2 * width : n;
            merge(&s, a, b, lo, mid, hi);
        }
        int32_t *t = a;
        a = b;
        b = t;
    }
    memcpy(copy, val, (size_t)n * sizeof *copy);
    for (int64_t i = 0; i < n; i++)
        val[i] = copy[a[i]];
    return s.rc;
}
