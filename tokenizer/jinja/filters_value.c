/* filters_value.c - filters on one value: numbers, defaults, lengths, ends, conversions. Finding filters by name. Each
 * filter is a row: name, function, arguments. An error leaves the rendering (value.h). One thread per rendering. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/option.h"
#include "tokenizer/jinja/eval.h"

static QR_JBUILTIN(f_default)
{
    bool boolean = qr_jarg_flag(&arg[1]);
    if (self->type != QR_J_UNDEF && (!boolean || qr_jtruth(self)))
        return *self;
    return qr_jgiven(&arg[0]) ? arg[0] : qr_jlit(c, "");
}

static QR_JBUILTIN(f_length)
{
    return qr_jint(qr_jlen(c, self));
}

static QR_JBUILTIN(f_list)
{
    struct qr_jseq items = qr_jitems(c, self);
    return qr_jseq_of(c, QR_J_LIST, items.at, items.n);
}

static QR_JBUILTIN(f_items)
{
    struct qr_jseq items = {0};
    struct qr_jval view = {.type = QR_J_VIEW, .view = QR_JVIEW_ITEMS, .u.d = self->u.d};
    if (self->type == QR_J_DICT)
        items = qr_jitems(c, &view);
    else if (self->type != QR_J_UNDEF)
        qr_jfail(c, "Can only get item pairs from a mapping.");
    return qr_jgen_new(c, "do_items", items.at, items.n);
}

static QR_JBUILTIN(f_first)
{
    if (self->type == QR_J_GEN && self->u.gen->pos < self->u.gen->seq.n)
        return self->u.gen->seq.at[self->u.gen->pos++];
    struct qr_jseq items = qr_jitems(c, self);
    return items.n > 0 ? items.at[0] : qr_jhint(c, "No first item, sequence was empty.");
}

static QR_JBUILTIN(f_last)
{
    if (self->type == QR_J_GEN)
        qr_jfail(c, "'%s' object is not reversible", qr_jtype_name(self));
    struct qr_jseq items = qr_jitems(c, self);
    return items.n > 0 ? items.at[items.n - 1] : qr_jhint(c, "No last item, sequence was empty.");
}

static QR_JBUILTIN(f_reverse)
{
    struct qr_jval minus[3] = {{0}, {0}, qr_jint(-1)};
    if (self->type == QR_J_STR)
        return qr_jslice(c, self, minus);
    struct qr_jseq items = qr_jitems(c, self);
    qr_jcharge(c, items.n / 16);
    struct qr_jval *at = qr_jalloc(c, (size_t)items.n, sizeof *at);
    for (int64_t i = 0; i < items.n; i++)
        at[i] = items.at[items.n - 1 - i];
    return qr_jgen_new(c, "reversed", at, items.n);
}

static QR_JBUILTIN(f_attr)
{
    const struct qr_jstr *name = qr_jarg_str(c, &arg[0], "an attribute's name");
    if (self->type == QR_J_DICT && !qr_jmethod_find(QR_J_DICT, name->u.flat.data, name->len))
        return qr_jundef(c, QR_JUNDEF_ATTR, QR_J_DICT, arg[0]);
    return qr_jgetattr(c, self, &arg[0]);
}

static QR_JBUILTIN(f_abs)
{
    int64_t i;
    if (qr_jinteger(self, &i))
        return i < 0 ? qr_jnegate(c, self, true) : qr_jint(i);
    if (self->type != QR_J_FLOAT)
        qr_jfail(c, "bad operand type for abs(): '%s'", qr_jtype_name(self));
    return qr_jfloat(fabs(self->u.f));
}

/* Python's round: ties to even, judged on the exact value. */
static double round_to(double v, int64_t digits)
{
    char buf[700];
    if (!isfinite(v) || digits > 300)
        return v;
    if (digits < 0)
        return digits < -308 ? 0.0 * v : nearbyint(v / pow(10, (double)-digits)) * pow(10, (double)-digits);
    snprintf(buf, sizeof buf, "%.*f", (int)digits, v);
    return strtod(buf, NULL);
}

static _Noreturn void too_big(struct qr_jctx *c)
{
    qr_jlimit(c, "the result is an integer of more than 64 bits");
}

/* Python's round of an integer to tens, hundreds and so on (digits < 0): ties to even. */
static int64_t round_integer(struct qr_jctx *c, int64_t v, int64_t digits)
{
    int64_t unit = 1, result;
    if (digits < -19)
        return 0;
    if (digits == -19) { /* a unit of its own has no place here; half of it, 5e18, has */
        if (v < -5000000000000000000 || v > 5000000000000000000)
            too_big(c);
        return 0;
    }
    for (; digits < 0; digits++)
        unit *= 10;
    const int64_t rest = (v % unit + unit) % unit, half = unit / 2, times = v / unit - (v % unit < 0);
    const bool up = rest > half || (rest == half && times % 2 != 0);
    if (__builtin_mul_overflow(times + up, unit, &result))
        too_big(c);
    return result;
}

static QR_JBUILTIN(f_round)
{
    int64_t digits = qr_jarg_int(c, &arg[0], 0), i;
    double v;
    const struct qr_jstr *method = qr_jgiven(&arg[1]) ? qr_jarg_str(c, &arg[1], "round's method") : NULL;
    bool ceiling = method && qr_jstr_is(method, "ceil"), common = !method || qr_jstr_is(method, "common");
    if (!ceiling && !common && !qr_jstr_is(method, "floor"))
        qr_jfail(c, "method must be common, ceil or floor");
    if (self->type == QR_J_UNDEF || !qr_jnumber(self, &v))
        qr_jfail(c, "type %s doesn't define __round__ method", qr_jtype_name(self));
    if (common && qr_jinteger(self, &i))
        return qr_jint(digits >= 0 ? i : round_integer(c, i, digits));
    double scale = pow(10, (double)digits);
    return qr_jfloat(common ? round_to(v, digits) : (ceiling ? ceil(v * scale) : floor(v * scale)) / scale);
}

/* The digits of a number in s without white space around and underscores between them; false when s is too long or ill
 * formed. */
static bool number_text(const struct qr_jstr *s, char *buf, size_t size)
{
    size_t from = 0, to = s->len, n = 0;
    const char *p = s->u.flat.data;
    while (from < to && strchr(" \t\n\r\f\v", p[from]) && p[from])
        from++;
    while (to > from && strchr(" \t\n\r\f\v", p[to - 1]) && p[to - 1])
        to--;
    if (from == to || to - from >= size)
        return false;
    for (size_t i = from; i < to; i++) {
        bool inner = i > from && i + 1 < to && p[i - 1] != '_' && p[i + 1] != '_';
        if (p[i] == '_' && !inner)
            return false;
        if (p[i] != '_')
            buf[n++] = p[i];
    }
    buf[n] = 0;
    return n > 0 && strlen(buf) == n; /* no NUL inside */
}

static bool parse_int(const struct qr_jstr *s, int64_t base, int64_t *out)
{
    char buf[128], *end;
    if (base != 0 && (base < 2 || base > 36))
        return false;
    if (!number_text(s, buf, sizeof buf))
        return false;
    char *digits = buf + (buf[0] == '-' || buf[0] == '+');
    int want = digits[0] == '0' && digits[1] ? (digits[1] | 32) : 0;
    int prefix = want == 'x' ? 16 : want == 'o' ? 8 : want == 'b' ? 2 : 0;
    bool negative = buf[0] == '-';
    if (prefix && (base == prefix || base == 0)) {
        digits += 2;
        base = prefix;
    } else if (base == 0) {
        base = 10;
    }
    unsigned char first = (unsigned char)digits[0];
    if (!((first >= '0' && first <= '9') || ((first | 32) >= 'a' && (first | 32) <= 'z')))
        return false;
    if (base == 16 && digits[0] == '0' && (digits[1] | 32) == 'x')
        return false;
    errno = 0;
    long long v = strtoll(digits, &end, (int)base);
    if (*end || errno == ERANGE)
        return false;
    *out = negative ? -v : v;
    return true;
}

static bool parse_float(const struct qr_jstr *s, double *out)
{
    char buf[400], *end;
    if (!number_text(s, buf, sizeof buf) || strpbrk(buf, "xXpP("))
        return false;
    unsigned char last = (unsigned char)buf[strlen(buf) - 1];
    if (buf[0] == ' ' || last == ' ')
        return false;
    *out = strtod(buf, &end);
    return *end == 0;
}

static struct qr_jval float_to_int(struct qr_jctx *c, double v)
{
    if (isnan(v))
        qr_jfail(c, "cannot convert float NaN to integer");
    if (isinf(v))
        qr_jfail(c, "cannot convert float infinity to integer");
    if (fabs(v) >= 9.2e18)
        too_big(c);
    return qr_jint((int64_t)v);
}

static QR_JBUILTIN(f_int)
{
    int64_t i, base = qr_jarg_int(c, &arg[1], 10);
    double v;
    const struct qr_jval otherwise = qr_jgiven(&arg[0]) ? arg[0] : qr_jint(0);
    switch (self->type) {
    case QR_J_UNDEF: qr_jfail_undef(c, self);
    case QR_J_FLOAT: return isnan(self->u.f) ? otherwise : float_to_int(c, self->u.f);
    case QR_J_BIG: return *self;
    case QR_J_STR: break;
    default: return qr_jinteger(self, &i) ? qr_jint(i) : otherwise;
    }
    const struct qr_jstr *s = qr_jstr_flat(c, self->u.s);
    if (parse_int(s, base, &i))
        return qr_jint(i);
    return parse_float(s, &v) && isfinite(v) ? float_to_int(c, v) : otherwise;
}

static QR_JBUILTIN(f_float)
{
    double v;
    if (self->type == QR_J_UNDEF)
        qr_jfail_undef(c, self);
    if (qr_jnumber(self, &v) || (self->type == QR_J_STR && parse_float(qr_jstr_flat(c, self->u.s), &v)))
        return qr_jfloat(v);
    return qr_jgiven(&arg[0]) ? arg[0] : qr_jfloat(0);
}

static const struct qr_jbuiltin rows[] = {
    {.name = "length", .fn = f_length},
    {.name = "count", .fn = f_length},
    {.name = "list", .fn = f_list},
    {.name = "default", .fn = f_default, .param = {"default_value", "boolean"}},
    {.name = "d", .fn = f_default, .param = {"default_value", "boolean"}},
    {.name = "items", .fn = f_items},
    {.name = "first", .fn = f_first},
    {.name = "last", .fn = f_last},
    {.name = "reverse", .fn = f_reverse},
    {.name = "attr", .fn = f_attr, .n_required = 1, .param = {"name"}},
    {.name = "abs", .fn = f_abs},
    {.name = "round", .fn = f_round, .param = {"precision", "method"}},
    {.name = "int", .fn = f_int, .param = {"default", "base"}},
    {.name = "float", .fn = f_float, .param = {"default"}},
};
static const struct qr_jtable of_value = {rows, QR_COUNT(rows)};

/* ---- by name ---- */

static const struct qr_jtable *const filters[] = {&qr_jfilters_text, &of_value, &qr_jfilters_seq};

const struct qr_jbuiltin *qr_jfilter_find(const char *name, size_t len)
{
    const struct qr_jbuiltin *b = NULL;
    for (int t = 0; t < QR_COUNT(filters) && !b; t++)
        b = qr_jtable_find(filters[t], name, len);
    return b;
}

const char *qr_jfilter_nearest(const struct qr_jstr *name)
{
    const char *known[80];
    char buf[64];
    int32_t n = 0;
    if (name->len >= sizeof buf)
        return NULL;
    memcpy(buf, name->u.flat.data, name->len);
    buf[name->len] = 0;
    for (int t = 0; t < QR_COUNT(filters); t++) {
        for (int32_t i = 0; i < filters[t]->n && n < QR_COUNT(known); i++)
            known[n++] = filters[t]->row[i].name;
    }
    return qr_nearest(buf, known, n);
}
