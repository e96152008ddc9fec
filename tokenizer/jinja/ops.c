/* ops.c - arithmetic and joining operators with Python's types, rounding and messages. Integers have 64 bits, and a
 * result that does not fit is an error. An error leaves the rendering (value.h). One thread per rendering. */
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

static _Noreturn void too_big(struct qr_jctx *c)
{
    qr_jlimit(c, "the result is an integer of more than 64 bits");
}

/* Python's // and %: the quotient rounds down, the remainder has the divisor's sign. */
static int64_t divide_ints(struct qr_jctx *c, enum qr_jtok op, int64_t a, int64_t b)
{
    if (b == 0)
        qr_jfail(c, op == QR_JT_MOD ? "integer modulo by zero" : "integer division or modulo by zero");
    if (b == -1) {
        if (op == QR_JT_FLOORDIV && a == INT64_MIN)
            too_big(c);
        return op == QR_JT_MOD ? 0 : -a;
    }
    int64_t q = a / b, r = a % b;
    if (r != 0 && (r < 0) != (b < 0)) {
        q--;
        r += b;
    }
    return op == QR_JT_MOD ? r : q;
}

static struct qr_jval power_ints(struct qr_jctx *c, int64_t a, int64_t n)
{
    int64_t r = 1;
    if (n < 0) {
        if (a == 0)
            qr_jfail(c, "0.0 cannot be raised to a negative power");
        return qr_jfloat(pow((double)a, (double)n));
    }
    for (; n > 0; n >>= 1) {
        if ((n & 1) && __builtin_mul_overflow(r, a, &r))
            too_big(c);
        if (n > 1 && __builtin_mul_overflow(a, a, &a))
            too_big(c);
    }
    return qr_jint(r);
}

static struct qr_jval binary_ints(struct qr_jctx *c, enum qr_jtok op, int64_t a, int64_t b)
{
    int64_t r;
    bool over = false;
    switch (op) {
    case QR_JT_ADD: over = __builtin_add_overflow(a, b, &r); break;
    case QR_JT_SUB: over = __builtin_sub_overflow(a, b, &r); break;
    case QR_JT_MUL: over = __builtin_mul_overflow(a, b, &r); break;
    case QR_JT_DIV:
        if (b == 0)
            qr_jfail(c, "division by zero");
        return qr_jfloat((double)a / (double)b);
    case QR_JT_POW: return power_ints(c, a, b);
    default: r = divide_ints(c, op, a, b);
    }
    if (over)
        too_big(c);
    return qr_jint(r);
}

static double power_floats(struct qr_jctx *c, double a, double b)
{
    if (a == 0 && b < 0)
        qr_jfail(c, "0.0 cannot be raised to a negative power");
    if (a < 0 && b != floor(b))
        qr_jfail(c, "a negative number has no fractional power here");
    double r = pow(a, b);
    if (isinf(r) && !isinf(a) && !isinf(b))
        qr_jfail(c, "(34, 'Numerical result out of range')");
    return r;
}

static double binary_floats(struct qr_jctx *c, enum qr_jtok op, double a, double b)
{
    if (b == 0 && (op == QR_JT_DIV || op == QR_JT_FLOORDIV || op == QR_JT_MOD))
        qr_jfail(c, op == QR_JT_DIV   ? "float division by zero"
                    : op == QR_JT_MOD ? "float modulo"
                                      : "float floor division by zero");
    switch (op) {
    case QR_JT_ADD: return a + b;
    case QR_JT_SUB: return a - b;
    case QR_JT_MUL: return a * b;
    case QR_JT_DIV: return a / b;
    case QR_JT_POW: return power_floats(c, a, b);
    default: break;
    }
    double r = fmod(a, b);
    bool other_sign = r != 0 && (r < 0) != (b < 0);
    if (op == QR_JT_FLOORDIV)
        return floor((a - r) / b + (other_sign ? -0.5 : 0.5));
    return r == 0 ? copysign(0.0, b) : other_sign ? r + b : r;
}

static struct qr_jval binary_numbers(struct qr_jctx *c, enum qr_jtok op, const struct qr_jval *a,
                                     const struct qr_jval *b)
{
    int64_t i, j;
    double x = 0, y = 0;
    struct qr_jval out;
    if (qr_jinteger(a, &i) && qr_jinteger(b, &j)) {
        out = binary_ints(c, op, i, j);
    } else {
        if ((a->type == QR_J_BIG || b->type == QR_J_BIG) && a->type != QR_J_FLOAT && b->type != QR_J_FLOAT &&
            op != QR_JT_DIV)
            too_big(c);
        qr_jnumber(a, &x);
        qr_jnumber(b, &y);
        out = qr_jfloat(binary_floats(c, op, x, y));
    }
    out.untrusted = a->untrusted || b->untrusted;
    return out;
}

static bool escape(uint32_t cp, const void *arg, char esc[16])
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const char *p = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
    if (p)
        strcpy(esc, to[p - from]);
    return p != NULL;
}

struct qr_jstr *qr_jescape(struct qr_jctx *c, struct qr_jstr *s)
{
    struct qr_jsb b;
    if (s->markup)
        return s;
    qr_jsb_init(&b, c);
    qr_jsb_put_escaped(&b, s, escape, NULL);
    return qr_jstr_marked(c, qr_jsb_done(&b), true);
}

static struct qr_jval add_strings(struct qr_jctx *c, struct qr_jstr *a, struct qr_jstr *b)
{
    bool markup = a->markup || b->markup; /* Markup escapes what is added to it */
    if (markup) {
        a = qr_jescape(c, a);
        b = qr_jescape(c, b);
    }
    return qr_jstrv(qr_jstr_marked(c, qr_jstr_cat(c, a, b), markup));
}

static bool is_sequence(const struct qr_jval *v)
{
    return v->type == QR_J_LIST || v->type == QR_J_TUPLE;
}

static struct qr_jval add_sequences(struct qr_jctx *c, const struct qr_jval *a, const struct qr_jval *b)
{
    int64_t n = a->u.seq->n, m = b->u.seq->n;
    qr_jcharge(c, (n + m) / 16);
    struct qr_jval *at = qr_jgrow(c, a->u.seq->at, n, n + m, sizeof *at);
    if (m > 0)
        memcpy(at + n, b->u.seq->at, (size_t)m * sizeof *at);
    return qr_jseq_of(c, (enum qr_jtype)a->type, at, n + m);
}

/* A string, list or tuple n times. */
static struct qr_jval repeat(struct qr_jctx *c, const struct qr_jval *v, int64_t times)
{
    if (v->type == QR_J_STR)
        return qr_jstrv(qr_jstr_marked(c, qr_jstr_repeat(c, v->u.s, times), v->u.s->markup));
    const struct qr_jseq *from = v->u.seq;
    int64_t n;
    if (times < 0)
        times = 0;
    if (__builtin_mul_overflow(from->n, times, &n) || (size_t)n > c->lim->memory_max / sizeof *from->at)
        qr_jlimit(c, "a list is longer than memory allows");
    qr_jcharge(c, n / 16);
    struct qr_jval seq = qr_jseq_new(c, (enum qr_jtype)v->type, n);
    for (int64_t i = 0; i < n; i++)
        seq.u.seq->at[i] = from->at[i % from->n];
    return seq;
}

static bool repeatable(const struct qr_jval *v)
{
    return v->type == QR_J_STR || is_sequence(v);
}

struct qr_jval qr_jbinary(struct qr_jctx *c, enum qr_jtok op, const struct qr_jval *a, const struct qr_jval *b)
{
    QR_ASSERT(a != NULL && b != NULL);
    double x;
    int64_t n;
    if (op == QR_JT_MOD && a->type == QR_J_STR)
        return qr_jpercent(c, a->u.s, b);
    if (a->type == QR_J_UNDEF || b->type == QR_J_UNDEF)
        qr_jfail_undef(c, a->type == QR_J_UNDEF ? a : b);
    if (qr_jnumber(a, &x) && qr_jnumber(b, &x))
        return binary_numbers(c, op, a, b);
    if (op == QR_JT_ADD && a->type == QR_J_STR && b->type == QR_J_STR)
        return add_strings(c, a->u.s, b->u.s);
    if (op == QR_JT_ADD && is_sequence(a) && a->type == b->type)
        return add_sequences(c, a, b);
    if (op == QR_JT_ADD && repeatable(a)) {
        const char *type = a->type == QR_J_STR ? "str" : qr_jtype_name(a);
        qr_jfail(c, "can only concatenate %s (not \"%s\") to %s", type, qr_jtype_name(b), type);
    }
    if (op == QR_JT_MUL && repeatable(a) && qr_jinteger(b, &n))
        return repeat(c, a, n);
    if (op == QR_JT_MUL && repeatable(b) && qr_jinteger(a, &n))
        return repeat(c, b, n);
    if (op == QR_JT_MUL && (repeatable(a) || repeatable(b)))
        qr_jfail(c, "can't multiply sequence by non-int of type '%s'", qr_jtype_name(repeatable(a) ? b : a));
    qr_jfail(c, "unsupported operand type(s) for %s: '%s' and '%s'", op_text(op), qr_jtype_name(a), qr_jtype_name(b));
}

struct qr_jval qr_jnegate(struct qr_jctx *c, const struct qr_jval *v, bool minus)
{
    QR_ASSERT(v != NULL);
    struct qr_jval out = *v;
    int64_t i;
    if (v->type == QR_J_UNDEF)
        qr_jfail_undef(c, v);
    if (qr_jinteger(v, &i)) {
        if (minus && i == INT64_MIN)
            too_big(c);
        out = qr_jint(minus ? -i : i);
    } else if (v->type == QR_J_FLOAT) {
        out = qr_jfloat(minus ? -v->u.f : v->u.f);
    } else if (v->type != QR_J_BIG) {
        qr_jfail(c, "bad operand type for unary %c: '%s'", minus ? '-' : '+', qr_jtype_name(v));
    } else if (minus) {
        too_big(c);
    }
    out.untrusted = v->untrusted;
    return out;
}
