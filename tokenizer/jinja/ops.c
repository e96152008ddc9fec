/* ops.c - arithmetic and joining operators with Python's types, rounding and messages. Integers have 64 bits, and a
 * result that does not fit is an error. Errors of a rendering are values (value.c), so a template can never end the
 * process. The arena is the rendering's own; one thread at a time. */
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "tokenizer/jinja/eval.h"

static const char *op_text(enum qr_jtok op)
{
    static const char *const text[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
    QR_ASSERT(op >= QR_JT_ADD && op <= QR_JT_POW);
    return text[op - QR_JT_ADD];
}

static int unsupported(struct qr_jctx *c, enum qr_jtok op, const struct qr_jval *a, const struct qr_jval *b)
{
    return qr_jfail(c, "unsupported operand type(s) for %s: '%s' and '%s'", op_text(op), qr_jtype_name(a), qr_jtype_name(b));
}

static int too_big(struct qr_jctx *c)
{
    return qr_jlimit(c, "the result is an integer of more than 64 bits");
}

/* Python's // and %: the quotient rounds down, the remainder has the divisor's sign. */
static int divide_ints(struct qr_jctx *c, enum qr_jtok op, int64_t a, int64_t b, struct qr_jval *out)
{
    if (b == 0)
        return qr_jfail(c, op == QR_JT_MOD ? "integer modulo by zero" : "integer division or modulo by zero");
    if (b == -1) {
        if (op == QR_JT_FLOORDIV && a == INT64_MIN)
            return too_big(c);
        *out = qr_jint(op == QR_JT_MOD ? 0 : -a);
        return 0;
    }
    int64_t q = a / b, r = a % b;
    if (r != 0 && (r < 0) != (b < 0)) {
        q--;
        r += b;
    }
    *out = qr_jint(op == QR_JT_MOD ? r : q);
    return 0;
}

static int power_ints(struct qr_jctx *c, int64_t a, int64_t n, struct qr_jval *out)
{
    int64_t r = 1;
    if (n < 0) {
        if (a == 0)
            return qr_jfail(c, "0.0 cannot be raised to a negative power");
        *out = qr_jfloat(pow((double)a, (double)n));
        return 0;
    }
    for (; n > 0; n >>= 1) {
        if ((n & 1) && __builtin_mul_overflow(r, a, &r))
            return too_big(c);
        if (n > 1 && __builtin_mul_overflow(a, a, &a))
            return too_big(c);
    }
    *out = qr_jint(r);
    return 0;
}

static int binary_ints(struct qr_jctx *c, enum qr_jtok op, int64_t a, int64_t b, struct qr_jval *out)
{
    int64_t r;
    bool over;
    switch (op) {
    case QR_JT_ADD: over = __builtin_add_overflow(a, b, &r); break;
    case QR_JT_SUB: over = __builtin_sub_overflow(a, b, &r); break;
    case QR_JT_MUL: over = __builtin_mul_overflow(a, b, &r); break;
    case QR_JT_DIV:
        if (b == 0)
            return qr_jfail(c, "division by zero");
        *out = qr_jfloat((double)a / (double)b);
        return 0;
    case QR_JT_POW: return power_ints(c, a, b, out);
    default: return divide_ints(c, op, a, b, out);
    }
    if (over)
        return too_big(c);
    *out = qr_jint(r);
    return 0;
}

static int binary_floats(struct qr_jctx *c, enum qr_jtok op, double a, double b, struct qr_jval *out)
{
    double r = 0;
    if (b == 0 && (op == QR_JT_DIV || op == QR_JT_FLOORDIV || op == QR_JT_MOD))
        return qr_jfail(c, op == QR_JT_DIV ? "float division by zero" : op == QR_JT_MOD ? "float modulo" : "float floor division by zero");
    switch (op) {
    case QR_JT_ADD: r = a + b; break;
    case QR_JT_SUB: r = a - b; break;
    case QR_JT_MUL: r = a * b; break;
    case QR_JT_DIV: r = a / b; break;
    case QR_JT_POW:
        if (a == 0 && b < 0)
            return qr_jfail(c, "0.0 cannot be raised to a negative power");
        if (a < 0 && b != floor(b))
            return qr_jfail(c, "a negative number has no fractional power here");
        r = pow(a, b);
        if (isinf(r) && !isinf(a) && !isinf(b))
            return qr_jfail(c, "(34, 'Numerical result out of range')");
        break;
    default:
        r = fmod(a, b);
        if (op == QR_JT_FLOORDIV)
            r = floor((a - r) / b + (r != 0 && (r < 0) != (b < 0) ? -0.5 : 0.5));
        else if (r != 0 && (r < 0) != (b < 0))
            r += b;
        else if (r == 0)
            r = copysign(0.0, b);
    }
    *out = qr_jfloat(r);
    return 0;
}

static int binary_numbers(struct qr_jctx *c, enum qr_jtok op, const struct qr_jval *a, const struct qr_jval *b, struct qr_jval *out)
{
    int64_t i, j;
    double x, y;
    int rc;
    if (qr_jinteger(a, &i) && qr_jinteger(b, &j)) {
        rc = binary_ints(c, op, i, j, out);
    } else if ((a->type == QR_J_BIG || b->type == QR_J_BIG) && a->type != QR_J_FLOAT && b->type != QR_J_FLOAT && op != QR_JT_DIV) {
        return too_big(c);
    } else {
        qr_jnumber(a, &x);
        qr_jnumber(b, &y);
        rc = binary_floats(c, op, x, y, out);
    }
    out->untrusted = a->untrusted || b->untrusted;
    return rc;
}

int qr_jescape(struct qr_jctx *c, struct qr_jstr *s, struct qr_jstr **out)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    *out = s;
    if (s->markup)
        return 0;
    int rc = qr_jstr_flat(c, s);
    if (rc)
        return rc;
    struct qr_jsb b;
    qr_jsb_init(&b, c);
    size_t done = 0;
    for (size_t i = 0; i < s->len; i++) {
        const char *p = s->u.flat.data[i] ? strchr(from, s->u.flat.data[i]) : NULL;
        if (!p)
            continue;
        const char *esc = to[p - from];
        qr_jsb_put_range(&b, s, done, i);
        qr_jsb_put(&b, esc, strlen(esc), s->trust == QR_JTRUST_ALL);
        done = i + 1;
    }
    qr_jsb_put_range(&b, s, done, s->len);
    rc = qr_jsb_done(&b, out);
    return rc ? rc : qr_jstr_marked(c, *out, true, out);
}

static int add_strings(struct qr_jctx *c, struct qr_jstr *a, struct qr_jstr *b, struct qr_jval *out)
{
    bool markup = a->markup || b->markup; /* Markup escapes what is added to it */
    struct qr_jstr *s = NULL;
    int rc = 0;
    if (markup) {
        rc = qr_jescape(c, a, &a);
        if (rc == 0)
            rc = qr_jescape(c, b, &b);
    }
    if (rc == 0)
        rc = qr_jstr_cat(c, a, b, &s);
    if (rc == 0)
        rc = qr_jstr_marked(c, s, markup, &s);
    *out = qr_jstrv(s);
    return rc;
}

static int add(struct qr_jctx *c, const struct qr_jval *a, const struct qr_jval *b, struct qr_jval *out)
{
    if (a->type == QR_J_STR && b->type == QR_J_STR)
        return add_strings(c, a->u.s, b->u.s, out);
    if (a->type == QR_J_STR)
        return qr_jfail(c, "can only concatenate str (not \"%s\") to str", qr_jtype_name(b));
    bool list = a->type == QR_J_LIST || a->type == QR_J_TUPLE;
    if (!list)
        return unsupported(c, QR_JT_ADD, a, b);
    if (a->type != b->type)
        return qr_jfail(c, "can only concatenate %s (not \"%s\") to %s", qr_jtype_name(a), qr_jtype_name(b), qr_jtype_name(a));
    struct qr_jval seq;
    int64_t n = a->u.seq->n, m = b->u.seq->n;
    int rc = qr_jcharge(c, (n + m) / 16);
    if (rc == 0)
        rc = qr_jseq_new(c, (enum qr_jtype)a->type, n + m, &seq);
    if (rc)
        return rc;
    if (n > 0)
        memcpy(seq.u.seq->at, a->u.seq->at, (size_t)n * sizeof seq);
    if (m > 0)
        memcpy(seq.u.seq->at + n, b->u.seq->at, (size_t)m * sizeof seq);
    *out = seq;
    return 0;
}

/* A string, list or tuple n times. */
static int repeat(struct qr_jctx *c, const struct qr_jval *v, int64_t times, struct qr_jval *out)
{
    if (v->type == QR_J_STR) {
        struct qr_jstr *s;
        int rc = qr_jstr_repeat(c, v->u.s, times, &s);
        if (rc == 0)
            rc = qr_jstr_marked(c, s, v->u.s->markup, &s);
        *out = qr_jstrv(s);
        return rc;
    }
    const struct qr_jseq *from = v->u.seq;
    int64_t n;
    if (times < 0)
        times = 0;
    if (__builtin_mul_overflow(from->n, times, &n) || (size_t)n > c->lim->memory_max / sizeof *from->at)
        return qr_jlimit(c, "a list is longer than memory allows");
    struct qr_jval seq;
    int rc = qr_jcharge(c, n / 16);
    if (rc == 0)
        rc = qr_jseq_new(c, (enum qr_jtype)v->type, n, &seq);
    if (rc)
        return rc;
    for (int64_t i = 0; i < n; i++)
        seq.u.seq->at[i] = from->at[i % from->n];
    *out = seq;
    return 0;
}

static bool repeatable(const struct qr_jval *v)
{
    return v->type == QR_J_STR || v->type == QR_J_LIST || v->type == QR_J_TUPLE;
}

int qr_jbinary(struct qr_jctx *c, enum qr_jtok op, const struct qr_jval *a, const struct qr_jval *b, struct qr_jval *out)
{
    QR_ASSERT(a != NULL && b != NULL);
    double x;
    int64_t n;
    if (op == QR_JT_MOD && a->type == QR_J_STR)
        return qr_jpercent(c, a->u.s, b, out);
    if (a->type == QR_J_UNDEF || b->type == QR_J_UNDEF)
        return qr_jfail_undef(c, a->type == QR_J_UNDEF ? a : b);
    if (qr_jnumber(a, &x) && qr_jnumber(b, &x))
        return binary_numbers(c, op, a, b, out);
    if (op == QR_JT_ADD)
        return add(c, a, b, out);
    if (op == QR_JT_MUL && repeatable(a) && qr_jinteger(b, &n))
        return repeat(c, a, n, out);
    if (op == QR_JT_MUL && repeatable(b) && qr_jinteger(a, &n))
        return repeat(c, b, n, out);
    if (op == QR_JT_MUL && (repeatable(a) || repeatable(b)))
        return qr_jfail(c, "can't multiply sequence by non-int of type '%s'", qr_jtype_name(repeatable(a) ? b : a));
    return unsupported(c, op, a, b);
}

int qr_jnegate(struct qr_jctx *c, const struct qr_jval *v, bool minus, struct qr_jval *out)
{
    QR_ASSERT(v != NULL);
    int64_t i;
    if (v->type == QR_J_UNDEF)
        return qr_jfail_undef(c, v);
    if (qr_jinteger(v, &i)) {
        if (minus && i == INT64_MIN)
            return too_big(c);
        *out = qr_jint(minus ? -i : i);
    } else if (v->type == QR_J_FLOAT) {
        *out = qr_jfloat(minus ? -v->u.f : v->u.f);
    } else if (v->type == QR_J_BIG) {
        if (minus)
            return too_big(c);
        *out = *v;
    } else {
        return qr_jfail(c, "bad operand type for unary %c: '%s'", minus ? '-' : '+', qr_jtype_name(v));
    }
    out->untrusted = v->untrusted;
    return 0;
}
