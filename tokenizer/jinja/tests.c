/* tests.c - what may stand behind `is`. One table of names, arguments and functions; an unknown test is an error when
 * the template is compiled. An error leaves the rendering (value.h). One thread per rendering. */
#include <string.h>

#include "base/assert.h"
#include "tokenizer/jinja/eval.h"

#define OF(type) (1 << QR_J_##type)
#define ANY_INT (OF(INT) | OF(BIG))
#define INDEXABLE (OF(UNDEF) | OF(STR) | OF(LIST) | OF(TUPLE) | OF(DICT) | OF(RANGE))

/* Whether the value's type is one of a set. how: the set. */
static QR_JBUILTIN(t_type)
{
    return qr_jbool(how >> self->type & 1);
}

/* true, false. how: which. */
static QR_JBUILTIN(t_bool)
{
    return qr_jbool(self->type == QR_J_BOOL && self->u.b == how);
}

static QR_JBUILTIN(t_escaped)
{
    return qr_jbool(self->type == QR_J_STR && self->u.s->markup);
}

static QR_JBUILTIN(t_sameas)
{
    if (self->type != arg[0].type)
        return qr_jbool(false);
    switch (self->type) {
    case QR_J_NONE: return qr_jbool(true);
    case QR_J_INT:
    case QR_J_BOOL:
    case QR_J_FLOAT:
    case QR_J_STR: return qr_jbool(qr_jequal(c, self, &arg[0]));
    default: return qr_jbool(self->u.s == arg[0].u.s);
    }
}

static struct qr_jval remainder_is(struct qr_jctx *c, const struct qr_jval *self, struct qr_jval n, int64_t rest)
{
    struct qr_jval r = qr_jbinary(c, QR_JT_MOD, self, &n), want = qr_jint(rest);
    return qr_jbool(qr_jequal(c, &r, &want));
}

/* odd, even. how: x % 2 */
static QR_JBUILTIN(t_parity)
{
    return remainder_is(c, self, qr_jint(2), how);
}

static QR_JBUILTIN(t_divisibleby)
{
    return remainder_is(c, self, arg[0], 0);
}

/* how: the operator. */
static QR_JBUILTIN(t_compare)
{
    return qr_jbool(qr_jcompare(c, how, self, &arg[0]));
}

/* filter, test: whether there is one of that name. how: a test. */
static QR_JBUILTIN(t_known)
{
    if (self->type == QR_J_LIST || self->type == QR_J_DICT)
        qr_jfail(c, "unhashable type: '%s'", qr_jtype_name(self));
    if (self->type != QR_J_STR)
        return qr_jbool(false);
    const struct qr_jstr *s = qr_jstr_flat(c, self->u.s);
    return qr_jbool((how ? qr_jtest_find(s->u.flat.data, s->len) : qr_jfilter_find(s->u.flat.data, s->len)) != NULL);
}

#define ONE .n_required = 1, .param = {"other"}

static const struct qr_jbuiltin rows[] = {
    {.name = "defined", .fn = t_type, .how = ~OF(UNDEF)},
    {.name = "undefined", .fn = t_type, .how = OF(UNDEF)},
    {.name = "none", .fn = t_type, .how = OF(NONE)},
    {.name = "string", .fn = t_type, .how = OF(STR)},
    {.name = "mapping", .fn = t_type, .how = OF(DICT)},
    {.name = "iterable", .fn = t_type, .how = INDEXABLE | OF(VIEW) | OF(GEN) | OF(LOOP)},
    {.name = "sequence", .fn = t_type, .how = INDEXABLE},
    {.name = "boolean", .fn = t_type, .how = OF(BOOL)},
    {.name = "true", .fn = t_bool, .how = true},
    {.name = "false", .fn = t_bool, .how = false},
    {.name = "integer", .fn = t_type, .how = ANY_INT},
    {.name = "float", .fn = t_type, .how = OF(FLOAT)},
    {.name = "number", .fn = t_type, .how = OF(BOOL) | ANY_INT | OF(FLOAT)},
    {.name = "callable",
     .fn = t_type,
     .how = OF(UNDEF) | OF(LOOP) | OF(MACRO) | OF(FUNC) | OF(METHOD) | OF(JOINER)},
    {.name = "escaped", .fn = t_escaped},
    {.name = "upper", .fn = qr_jb_is_case, .how = QR_JCASE_UPPER},
    {.name = "lower", .fn = qr_jb_is_case, .how = QR_JCASE_LOWER},
    {.name = "odd", .fn = t_parity, .how = 1},
    {.name = "even", .fn = t_parity, .how = 0},
    {.name = "filter", .fn = t_known, .how = false},
    {.name = "test", .fn = t_known, .how = true},
    {.name = "divisibleby", .fn = t_divisibleby, ONE},
    {.name = "sameas", .fn = t_sameas, ONE},
    {.name = "in", .fn = t_compare, .how = QR_JOP_IN, ONE},
    {.name = "eq", .fn = t_compare, .how = QR_JT_EQ, ONE},
    {.name = "equalto", .fn = t_compare, .how = QR_JT_EQ, ONE},
    {.name = "==", .fn = t_compare, .how = QR_JT_EQ, ONE},
    {.name = "ne", .fn = t_compare, .how = QR_JT_NE, ONE},
    {.name = "!=", .fn = t_compare, .how = QR_JT_NE, ONE},
    {.name = "lt", .fn = t_compare, .how = QR_JT_LT, ONE},
    {.name = "lessthan", .fn = t_compare, .how = QR_JT_LT, ONE},
    {.name = "<", .fn = t_compare, .how = QR_JT_LT, ONE},
    {.name = "le", .fn = t_compare, .how = QR_JT_LE, ONE},
    {.name = "<=", .fn = t_compare, .how = QR_JT_LE, ONE},
    {.name = "gt", .fn = t_compare, .how = QR_JT_GT, ONE},
    {.name = "greaterthan", .fn = t_compare, .how = QR_JT_GT, ONE},
    {.name = ">", .fn = t_compare, .how = QR_JT_GT, ONE},
    {.name = "ge", .fn = t_compare, .how = QR_JT_GE, ONE},
    {.name = ">=", .fn = t_compare, .how = QR_JT_GE, ONE},
};
static const struct qr_jtable tests = {rows, QR_COUNT(rows)};

const struct qr_jbuiltin *qr_jtest_find(const char *name, size_t len)
{
    return qr_jtable_find(&tests, name, len);
}
