/* tests.c - what may stand behind `is`. One table of names, arguments and functions; an unknown test is an error when
 * the template is compiled. Errors of a rendering are values (value.c), so a template can never end the process. The
 * arena is the rendering's own; one thread at a time. */
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "tokenizer/jinja/eval.h"

#define TEST(fn) \
    static int fn(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, const struct qr_jargs *raw, \
                  struct qr_jval *out)

static int answer(bool yes, struct qr_jval *out)
{
    *out = qr_jbool(yes);
    return 0;
}

TEST(t_defined)
{
    return answer(self->type != QR_J_UNDEF, out);
}

TEST(t_undefined)
{
    return answer(self->type == QR_J_UNDEF, out);
}

TEST(t_none)
{
    return answer(self->type == QR_J_NONE, out);
}

TEST(t_boolean)
{
    return answer(self->type == QR_J_BOOL, out);
}

TEST(t_true)
{
    return answer(self->type == QR_J_BOOL && self->u.b, out);
}

TEST(t_false)
{
    return answer(self->type == QR_J_BOOL && !self->u.b, out);
}

TEST(t_integer)
{
    return answer(self->type == QR_J_INT || self->type == QR_J_BIG, out);
}

TEST(t_float)
{
    return answer(self->type == QR_J_FLOAT, out);
}

TEST(t_number)
{
    double f;
    return answer(qr_jnumber(self, &f), out);
}

TEST(t_string)
{
    return answer(self->type == QR_J_STR, out);
}

TEST(t_mapping)
{
    return answer(self->type == QR_J_DICT, out);
}

TEST(t_iterable)
{
    return answer(qr_jiterable(self) || self->type == QR_J_LOOP, out);
}

TEST(t_sequence)
{
    bool yes = self->type == QR_J_UNDEF || self->type == QR_J_STR || self->type == QR_J_LIST || self->type == QR_J_TUPLE ||
               self->type == QR_J_DICT || self->type == QR_J_RANGE;
    return answer(yes, out);
}

TEST(t_callable)
{
    return answer(qr_jcallable(self), out);
}

TEST(t_escaped)
{
    return answer(self->type == QR_J_STR && self->u.s->markup, out);
}

TEST(t_upper)
{
    bool is = false;
    int rc = qr_jcase_test(c, self, true, &is);
    return rc ? rc : answer(is, out);
}

TEST(t_lower)
{
    bool is = false;
    int rc = qr_jcase_test(c, self, false, &is);
    return rc ? rc : answer(is, out);
}

TEST(t_sameas)
{
    bool same = self->type == arg[0].type;
    if (same && (self->type == QR_J_INT || self->type == QR_J_BOOL || self->type == QR_J_FLOAT || self->type == QR_J_STR)) {
        int rc = qr_jequal(c, self, &arg[0], &same);
        return rc ? rc : answer(same, out);
    }
    return answer(same && (self->type == QR_J_NONE || self->u.s == arg[0].u.s), out);
}

TEST(t_in)
{
    bool is = false;
    int rc = qr_jcontains(c, &arg[0], self, &is);
    return rc ? rc : answer(is, out);
}

/* x % n == rest */
static int remainder_is(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *n, int64_t rest, struct qr_jval *out)
{
    struct qr_jval r, want = qr_jint(rest);
    bool same;
    int rc = qr_jbinary(c, QR_JT_MOD, self, n, &r);
    if (rc == 0)
        rc = qr_jequal(c, &r, &want, &same);
    return rc ? rc : answer(same, out);
}

TEST(t_odd)
{
    struct qr_jval two = qr_jint(2);
    return remainder_is(c, self, &two, 1, out);
}

TEST(t_even)
{
    struct qr_jval two = qr_jint(2);
    return remainder_is(c, self, &two, 0, out);
}

TEST(t_divisibleby)
{
    return remainder_is(c, self, &arg[0], 0, out);
}

TEST(t_eq)
{
    bool same;
    int rc = qr_jequal(c, self, &arg[0], &same);
    return rc ? rc : answer(same, out);
}

TEST(t_ne)
{
    bool same;
    int rc = qr_jequal(c, self, &arg[0], &same);
    return rc ? rc : answer(!same, out);
}

TEST(t_lt)
{
    int order;
    int rc = qr_jorder(c, self, &arg[0], "<", &order);
    return rc ? rc : answer(order < 0, out);
}

TEST(t_le)
{
    int order;
    int rc = qr_jorder(c, self, &arg[0], "<=", &order);
    return rc ? rc : answer(order <= 0, out);
}

TEST(t_gt)
{
    int order;
    int rc = qr_jorder(c, self, &arg[0], ">", &order);
    return rc ? rc : answer(order == 1, out);
}

TEST(t_ge)
{
    int order;
    int rc = qr_jorder(c, self, &arg[0], ">=", &order);
    return rc ? rc : answer(order == 0 || order == 1, out);
}

static int named(struct qr_jctx *c, const struct qr_jval *self, bool test, struct qr_jval *out)
{
    if (self->type == QR_J_LIST || self->type == QR_J_DICT)
        return qr_jfail(c, "unhashable type: '%s'", qr_jtype_name(self));
    if (self->type != QR_J_STR)
        return answer(false, out);
    int rc = qr_jstr_flat(c, self->u.s);
    const struct qr_jstr *s = self->u.s;
    return rc ? rc : answer((test ? qr_jtest_find(s->u.flat.data, s->len) : qr_jfilter_find(s->u.flat.data, s->len)) != NULL, out);
}

TEST(t_filter)
{
    return named(c, self, false, out);
}

TEST(t_test)
{
    return named(c, self, true, out);
}

#define ONE .n_required = 1, .param = {"other"}

static const struct qr_jbuiltin tests[] = {
    {.name = "defined", .fn = t_defined},
    {.name = "undefined", .fn = t_undefined},
    {.name = "none", .fn = t_none},
    {.name = "string", .fn = t_string},
    {.name = "mapping", .fn = t_mapping},
    {.name = "iterable", .fn = t_iterable},
    {.name = "sequence", .fn = t_sequence},
    {.name = "boolean", .fn = t_boolean},
    {.name = "true", .fn = t_true},
    {.name = "false", .fn = t_false},
    {.name = "integer", .fn = t_integer},
    {.name = "float", .fn = t_float},
    {.name = "number", .fn = t_number},
    {.name = "callable", .fn = t_callable},
    {.name = "escaped", .fn = t_escaped},
    {.name = "upper", .fn = t_upper},
    {.name = "lower", .fn = t_lower},
    {.name = "odd", .fn = t_odd},
    {.name = "even", .fn = t_even},
    {.name = "filter", .fn = t_filter},
    {.name = "test", .fn = t_test},
    {.name = "divisibleby", .fn = t_divisibleby, ONE},
    {.name = "sameas", .fn = t_sameas, ONE},
    {.name = "in", .fn = t_in, ONE},
    {.name = "eq", .fn = t_eq, ONE},
    {.name = "equalto", .fn = t_eq, ONE},
    {.name = "==", .fn = t_eq, ONE},
    {.name = "ne", .fn = t_ne, ONE},
    {.name = "!=", .fn = t_ne, ONE},
    {.name = "lt", .fn = t_lt, ONE},
    {.name = "lessthan", .fn = t_lt, ONE},
    {.name = "<", .fn = t_lt, ONE},
    {.name = "le", .fn = t_le, ONE},
    {.name = "<=", .fn = t_le, ONE},
    {.name = "gt", .fn = t_gt, ONE},
    {.name = "greaterthan", .fn = t_gt, ONE},
    {.name = ">", .fn = t_gt, ONE},
    {.name = "ge", .fn = t_ge, ONE},
    {.name = ">=", .fn = t_ge, ONE},
};

const struct qr_jbuiltin *qr_jtest_find(const char *name, size_t len)
{
    QR_ASSERT(name != NULL);
    return qr_jbuiltin_find(tests, QR_COUNT(tests), name, len);
}
