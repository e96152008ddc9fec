/* filters_value.c - filters on one value: numbers, defaults, lengths, ends, conversions. Finding filters by name. Each
 * filter is a row: name, arguments, function. Errors of a rendering are values (value.c), so a template can never end
 * the process. The arena is the rendering's own; one thread at a time. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/option.h"
#include "tokenizer/jinja/eval.h"

#define FILTER(fn) \
    static int fn(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, const struct qr_jargs *raw, \
                  struct qr_jval *out)

FILTER(f_default)
{
    bool boolean = false, truth = true;
    int rc = arg[1].type == QR_J_ABSENT ? 0 : qr_jtruth(c, &arg[1], &boolean);
    if (rc == 0 && boolean)
        rc = qr_jtruth(c, self, &truth);
    *out = *self;
    if (rc || (self->type != QR_J_UNDEF && truth))
        return rc;
    *out = arg[0];
    return arg[0].type == QR_J_ABSENT ? qr_jlit(c, "", out) : 0;
}

FILTER(f_length)
{
    int64_t n;
    int rc = qr_jlen(c, self, &n);
    if (rc == 0)
        *out = qr_jint(n);
    return rc;
}

FILTER(f_list)
{
    struct qr_jseq items;
    int rc = qr_jitems(c, self, &items);
    struct qr_jbag b = {items.at, items.n, items.n};
    return rc ? rc : qr_jbag_list(c, &b, QR_J_LIST, out);
}

FILTER(f_items)
{
    struct qr_jseq items = {0};
    if (self->type != QR_J_UNDEF && self->type != QR_J_DICT)
        return qr_jfail(c, "Can only get item pairs from a mapping.");
    struct qr_jval view = {.type = QR_J_VIEW, .view = QR_JVIEW_ITEMS, .u.d = self->u.d};
    int rc = self->type == QR_J_DICT ? qr_jitems(c, &view, &items) : 0;
    return rc ? rc : qr_jgen_new(c, "do_items", items.at, items.n, out);
}

static int nothing(struct qr_jctx *c, const char *what, struct qr_jval *out)
{
    return qr_jundef(c, QR_JUNDEF_HINT, QR_J_UNDEF, qr_jnone(), what, out);
}

FILTER(f_first)
{
    struct qr_jseq items;
    if (self->type == QR_J_GEN && self->u.gen->pos < self->u.gen->seq.n) {
        *out = self->u.gen->seq.at[self->u.gen->pos++];
        return 0;
    }
    int rc = qr_jitems(c, self, &items);
    if (rc == 0 && items.n == 0)
        return nothing(c, "No first item, sequence was empty.", out);
    if (rc == 0)
        *out = items.at[0];
    return rc;
}

FILTER(f_last)
{
    struct qr_jseq items;
    if (self->type == QR_J_GEN)
        return qr_jfail(c, "'%s' object is not reversible", qr_jtype_name(self));
    int rc = qr_jitems(c, self, &items);
    if (rc == 0 && items.n == 0)
        return nothing(c, "No last item, sequence was empty.", out);
    if (rc == 0)
        *out = items.at[items.n - 1];
    return rc;
}

FILTER(f_reverse)
{
    struct qr_jseq items;
    struct qr_jval minus[3] = {{0}, {0}, qr_jint(-1)};
    if (self->type == QR_J_STR)
        return qr_jslice(c, self, minus, out);
    int rc = qr_jitems(c, self, &items);
    if (rc == 0)
        rc = qr_jcharge(c, items.n / 16);
    struct qr_jval *at = rc ? NULL : qr_jalloc(c, (size_t)items.n, sizeof *at);
    if (!at)
        return rc ? rc : QR_E_TOO_LARGE;
    for (int64_t i = 0; i < items.n; i++)
        at[i] = items.at[items.n - 1 - i];
    return qr_jgen_new(c, "reversed", at, items.n, out);
}

FILTER(f_attr)
{
    struct qr_jstr *name;
    int rc = qr_jarg_str(c, &arg[0], "an attribute's name", &name);
    if (rc)
        return rc;
    if (self->type == QR_J_DICT && !qr_jmethod_find(QR_J_DICT, name->u.flat.data, name->len))
        return qr_jundef(c, QR_JUNDEF_ATTR, QR_J_DICT, arg[0], NULL, out);
    return qr_jgetattr(c, self, &arg[0], out);
}

FILTER(f_abs)
{
    int64_t i;
    if (qr_jinteger(self, &i))
        return i < 0 ? qr_jnegate(c, self, true, out) : (*out = qr_jint(i), 0);
    if (self->type == QR_J_FLOAT) {
        *out = qr_jfloat(fabs(self->u.f));
        return 0;
    }
    if (self->type == QR_J_UNDEF)
        return qr_jfail(c, "bad operand type for abs(): 'Undefined'");
    return qr_jfail(c, "bad operand type for abs(): '%s'", qr_jtype_name(self));
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

/* Python's round of an integer to tens, hundreds and so on (digits < 0): ties to even. */
static int round_integer(struct qr_jctx *c, int64_t v, int64_t digits, struct qr_jval *out)
{
    int64_t unit = 1, result;
    *out = qr_jint(0);
    if (digits < -19)
        return 0;
    if (digits == -19) /* a unit of its own has no place here; half of it, 5e18, has */
        return v >= -5000000000000000000 && v <= 5000000000000000000 ? 0 : qr_jlimit(c, "the result is an integer of more than 64 bits");
    for (; digits < 0; digits++)
        unit *= 10;
    const int64_t rest = (v % unit + unit) % unit, half = unit / 2, times = v / unit - (v % unit < 0);
    const bool up = rest > half || (rest == half && times % 2 != 0);
    if (__builtin_mul_overflow(times + up, unit, &result))
        return qr_jlimit(c, "the result is an integer of more than 64 bits");
    *out = qr_jint(result);
    return 0;
}

FILTER(f_round)
{
    int64_t digits, i;
    double v;
    struct qr_jstr *how = NULL;
    int rc = qr_jarg_int(c, &arg[0], 0, &digits);
    if (rc == 0 && arg[1].type != QR_J_ABSENT)
        rc = qr_jarg_str(c, &arg[1], "round's method", &how);
    if (rc)
        return rc;
    bool ceiling = how && qr_jstr_is(how, "ceil"), common = !how || qr_jstr_is(how, "common");
    if (!ceiling && !common && !qr_jstr_is(how, "floor"))
        return qr_jfail(c, "method must be common, ceil or floor");
    if (self->type == QR_J_UNDEF || !qr_jnumber(self, &v))
        return qr_jfail(c, "type %s doesn't define __round__ method", qr_jtype_name(self));
    if (common && qr_jinteger(self, &i) && digits >= 0) {
        *out = qr_jint(i);
        return 0;
    }
    if (common && qr_jinteger(self, &i))
        return round_integer(c, i, digits, out);
    double scale = pow(10, (double)digits);
    *out = qr_jfloat(common ? round_to(v, digits) : (ceiling ? ceil(v * scale) : floor(v * scale)) / scale);
    return 0;
}

/* The digits of a number in s without white space around and underscores between them; false when s is too long or ill formed. */
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

static int float_to_int(struct qr_jctx *c, double v, struct qr_jval *out)
{
    if (isnan(v))
        return qr_jfail(c, "cannot convert float NaN to integer");
    if (isinf(v))
        return qr_jfail(c, "cannot convert float infinity to integer");
    if (fabs(v) >= 9.2e18)
        return qr_jlimit(c, "the result is an integer of more than 64 bits");
    *out = qr_jint((int64_t)v);
    return 0;
}

FILTER(f_int)
{
    int64_t i, base;
    double v;
    *out = arg[0].type == QR_J_ABSENT ? qr_jint(0) : arg[0];
    int rc = qr_jarg_int(c, &arg[1], 10, &base);
    if (rc)
        return rc;
    switch (self->type) {
    case QR_J_UNDEF: return qr_jfail_undef(c, self);
    case QR_J_FLOAT: return isnan(self->u.f) ? 0 : float_to_int(c, self->u.f, out);
    case QR_J_BIG: *out = *self; return 0;
    case QR_J_STR: break;
    default:
        if (qr_jinteger(self, &i))
            *out = qr_jint(i);
        return 0;
    }
    rc = qr_jstr_flat(c, self->u.s);
    if (rc == 0 && parse_int(self->u.s, base, &i))
        *out = qr_jint(i);
    else if (rc == 0 && parse_float(self->u.s, &v) && isfinite(v))
        rc = float_to_int(c, v, out);
    return rc;
}

FILTER(f_float)
{
    double v;
    *out = arg[0].type == QR_J_ABSENT ? qr_jfloat(0) : arg[0];
    if (self->type == QR_J_UNDEF)
        return qr_jfail_undef(c, self);
    if (qr_jnumber(self, &v)) {
        *out = qr_jfloat(v);
        return 0;
    }
    int rc = self->type == QR_J_STR ? qr_jstr_flat(c, self->u.s) : 0;
    if (rc == 0 && self->type == QR_J_STR && parse_float(self->u.s, &v))
        *out = qr_jfloat(v);
    return rc;
}

const struct qr_jbuiltin qr_jfilters_value[] = {
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
const int32_t qr_jfilters_value_n = QR_COUNT(qr_jfilters_value);

/* ---- by name ---- */

const struct qr_jbuiltin *qr_jfilter_find(const char *name, size_t len)
{
    QR_ASSERT(name != NULL);
    const struct qr_jbuiltin *b = qr_jbuiltin_find(qr_jfilters_text, qr_jfilters_text_n, name, len);
    if (!b)
        b = qr_jbuiltin_find(qr_jfilters_value, qr_jfilters_value_n, name, len);
    return b ? b : qr_jbuiltin_find(qr_jfilters_seq, qr_jfilters_seq_n, name, len);
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
    const struct qr_jbuiltin *const table[] = {qr_jfilters_text, qr_jfilters_value, qr_jfilters_seq};
    const int32_t count[] = {qr_jfilters_text_n, qr_jfilters_value_n, qr_jfilters_seq_n};
    for (int t = 0; t < 3; t++) {
        for (int32_t i = 0; i < count[t] && n < QR_COUNT(known); i++)
            known[n++] = table[t][i].name;
    }
    return qr_nearest(buf, known, n);
}
