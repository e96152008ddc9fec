/* format.c - '%s' % x and '{}'.format(x), as far as Python's numbers and strings go. Widths and precisions are bounded.
 * An error leaves the rendering (value.h). One thread per rendering. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "tokenizer/jinja/eval.h"

#define WIDTH_MAX 100000  /* of one field; a wider one is refused */
#define DIGITS_MAX 100    /* behind the point */

/* How one value is laid out: [[fill]align][sign][#][0][width][,][.precision][type] */
struct spec {
    uint32_t fill;
    char align; /* '<' '>' '^' '=', or 0: numbers right, others left */
    char sign;  /* '+' ' ' '-' */
    bool alt, comma;
    int64_t width, precision; /* precision -1: none */
    char type;                /* 0: none */
};

/* ---- laying out ---- */

static void pad(struct qr_jsb *b, uint32_t fill, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        qr_jsb_put_cp(b, fill, true);
}

/* Appends s between its padding; a sign may stay in front of zeros. */
static void put_padded(struct qr_jsb *b, const struct spec *sp, struct qr_jstr *s, bool number)
{
    int64_t n = qr_jstr_chars(b->c, s);
    char align = sp->align ? sp->align : number ? '>' : '<';
    int64_t space = sp->width > n ? sp->width - n : 0;
    int64_t left = align == '>' || align == '=' ? space : align == '^' ? space / 2 : 0;
    size_t lead = align == '=' && s->len > 0 && s->u.flat.data[0] && strchr("+- ", s->u.flat.data[0]) ? 1 : 0;
    qr_jsb_put_range(b, s, 0, lead);
    pad(b, sp->fill, left);
    qr_jsb_put_range(b, s, lead, s->len);
    pad(b, sp->fill, space - left);
}

static void put_text(struct qr_jsb *b, const struct spec *sp, struct qr_jstr *s)
{
    qr_jstr_flat(b->c, s);
    if (sp->precision >= 0)
        s = qr_jstr_sub(b->c, s, 0, qr_jstr_offset(s, sp->precision));
    put_padded(b, sp, s, false);
}

/* Puts a comma between every three digits of the whole part in buf. */
static void commas(char *buf, size_t size)
{
    size_t start = strspn(buf, "+- "), digits = strspn(buf + start, "0123456789"), len = strlen(buf);
    for (size_t at = start + digits; at > start + 3;) {
        at -= 3;
        if (len + 2 > size)
            return;
        memmove(buf + at + 1, buf + at, len - at + 1);
        buf[at] = ',';
        len++;
    }
}

static void put_digits(struct qr_jsb *b, const struct spec *sp, const char *digits, bool trusted)
{
    char text[800];
    bool plus = digits[0] != '-' && (sp->sign == '+' || sp->sign == ' ');
    snprintf(text, sizeof text, "%s%s", plus ? (sp->sign == '+' ? "+" : " ") : "", digits);
    if (sp->comma)
        commas(text, sizeof text);
    size_t n = strlen(text);
    put_padded(b, sp, qr_jstr_new(b->c, qr_jgrow(b->c, text, (int64_t)n, (int64_t)n, 1), n, trusted), true);
}

static void put_float(struct qr_jsb *b, const struct spec *sp, double v, bool trusted)
{
    char buf[600];
    int digits = sp->precision < 0 ? 6 : (int)sp->precision;
    if (isnan(v) || isinf(v)) {
        put_digits(b, sp, isnan(v) ? "nan" : v < 0 ? "-inf" : "inf", trusted);
        return;
    }
    switch (sp->type) {
    case 'e': snprintf(buf, sizeof buf, "%.*e", digits, v); break;
    case 'E': snprintf(buf, sizeof buf, "%.*E", digits, v); break;
    case 'f':
    case 'F': snprintf(buf, sizeof buf, "%.*f", digits, v); break;
    case '%': snprintf(buf, sizeof buf, "%.*f%%", digits, v * 100); break;
    case 'G': snprintf(buf, sizeof buf, "%.*G", digits, v); break;
    default:
        if (sp->type || sp->precision >= 0)
            snprintf(buf, sizeof buf, "%.*g", digits, v);
        else
            qr_jfloat_text(buf, v);
    }
    put_digits(b, sp, buf, trusted);
}

static void put_int(struct qr_jsb *b, const struct spec *sp, int64_t v, bool trusted)
{
    char buf[100], digits[65] = "";
    const char *prefix = "";
    unsigned long long u = v < 0 ? 0ULL - (unsigned long long)v : (unsigned long long)v;
    unsigned base = sp->type == 'o' ? 8 : sp->type == 'b' ? 2 : sp->type == 'x' || sp->type == 'X' ? 16 : 10;
    int n = 64;
    do {
        digits[--n] = (sp->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[u % base];
        u /= base;
    } while (u > 0);
    if (sp->alt && base != 10)
        prefix = sp->type == 'o' ? "0o" : sp->type == 'b' ? "0b" : sp->type == 'X' ? "0X" : "0x";
    snprintf(buf, sizeof buf, "%s%s%s", v < 0 ? "-" : "", prefix, digits + n);
    put_digits(b, sp, buf, trusted);
}

static void check_spec(struct qr_jctx *c, const struct spec *sp)
{
    if (sp->width > WIDTH_MAX)
        qr_jlimit(c, "a field of more than %d characters is refused", WIDTH_MAX);
    if (sp->precision > DIGITS_MAX && sp->type && strchr("eEfFgG%", sp->type))
        qr_jlimit(c, "more than %d digits are refused", DIGITS_MAX);
}

/* A number by its type letter. */
static void put_number(struct qr_jsb *b, const struct spec *sp, const struct qr_jval *v)
{
    int64_t i;
    double f;
    if (sp->type && strchr("eEfFgG%", sp->type) && qr_jnumber(v, &f))
        put_float(b, sp, f, !v->untrusted);
    else if (qr_jinteger(v, &i))
        put_int(b, sp, i, !v->untrusted);
    else if (v->type == QR_J_FLOAT && sp->type && strchr("diu", sp->type) && fabs(v->u.f) < 9e18)
        put_int(b, sp, (int64_t)v->u.f, !v->untrusted);
    else if (v->type == QR_J_FLOAT && !sp->type)
        put_float(b, sp, v->u.f, !v->untrusted);
    else if (v->type == QR_J_BIG)
        put_padded(b, sp, v->u.s, true);
    else if (v->type == QR_J_UNDEF)
        qr_jfail_undef(b->c, v);
    else
        qr_jfail(b->c, "%%%c format: a real number is required, not %s", sp->type ? sp->type : 'd', qr_jtype_name(v));
}

/* What 's', 'r' and 'a' make of a value. */
static struct qr_jstr *converted(struct qr_jctx *c, char conversion, const struct qr_jval *v)
{
    return conversion == 's' ? qr_jtext(c, v) : qr_jrepr(c, v);
}

/* ---- fmt % args ---- */

struct percent {
    struct qr_jctx *c;
    struct qr_jstr *fmt;
    const struct qr_jval *args; /* a tuple gives its items, another value itself */
    int64_t next;
    size_t at;
};

static struct qr_jval next_arg(struct percent *p)
{
    bool tuple = p->args->type == QR_J_TUPLE;
    if (p->next >= (tuple ? p->args->u.seq->n : 1))
        qr_jfail(p->c, "not enough arguments for format string");
    int64_t i = p->next++;
    return tuple ? p->args->u.seq->at[i] : *p->args;
}

static bool at_end(const struct percent *p)
{
    return p->at >= p->fmt->len;
}

static char look(const struct percent *p)
{
    return at_end(p) ? 0 : p->fmt->u.flat.data[p->at];
}

static int64_t count(struct percent *p, bool *negative)
{
    int64_t n = 0;
    if (look(p) == '*') {
        p->at++;
        struct qr_jval v = next_arg(p);
        if (!qr_jinteger(&v, &n))
            qr_jfail(p->c, "* wants int");
        *negative = n < 0;
        return n >= 0 ? n : n == INT64_MIN ? INT64_MAX : -n;
    }
    for (; look(p) >= '0' && look(p) <= '9'; p->at++)
        n = n > WIDTH_MAX ? n : n * 10 + (look(p) - '0');
    return n;
}

/* %(name): the value of that key. */
static struct qr_jval named_arg(struct percent *p)
{
    size_t from = ++p->at;
    for (int depth = 1; depth > 0; p->at++) {
        if (at_end(p))
            qr_jfail(p->c, "incomplete format key");
        depth += (look(p) == '(') - (look(p) == ')');
    }
    if (p->args->type != QR_J_DICT)
        qr_jfail(p->c, "format requires a mapping");
    struct qr_jstr *key = qr_jstr_sub(p->c, p->fmt, from, p->at - 1);
    struct qr_jval v = qr_jdict_get(p->c, p->args->u.d, qr_jstrv(key));
    if (!qr_jgiven(&v))
        qr_jfail(p->c, "'%.*s'", key->len > 60 ? 60 : (int)key->len, key->u.flat.data);
    return v;
}

static void put_converted(struct percent *p, struct qr_jsb *b, const struct spec *sp, const struct qr_jval *v)
{
    if (sp->type && strchr("sra", sp->type)) {
        struct qr_jstr *s = converted(p->c, sp->type, v);
        put_text(b, sp, p->fmt->markup ? qr_jescape(p->c, s) : s);
    } else if (sp->type == 'c' && v->type == QR_J_STR) {
        put_text(b, sp, v->u.s);
    } else if (sp->type == 'c') {
        if (v->type != QR_J_INT || v->u.i < 0 || v->u.i >= 0xD800)
            qr_jfail(p->c, "%%c requires int or char");
        qr_jsb_put_cp(b, (uint32_t)v->u.i, !v->untrusted);
    } else {
        if (!sp->type || !strchr("diuxXoeEfFgG", sp->type))
            qr_jfail(p->c, "unsupported format character '%c'", sp->type ? sp->type : '?');
        put_number(b, sp, v);
    }
}

/* [flags][width][.precision][length]type */
static struct spec percent_spec(struct percent *p)
{
    struct spec sp = {.fill = ' ', .precision = -1};
    bool negative = false;
    for (; look(p) && strchr("-+ #0", look(p)); p->at++) {
        char f = look(p);
        if (f == '-')
            sp.align = '<';
        else if (f == '+' || (f == ' ' && sp.sign != '+'))
            sp.sign = f;
        else if (f == '#')
            sp.alt = true;
        else if (f == '0' && sp.align != '<') {
            sp.fill = '0';
            sp.align = '=';
        }
    }
    sp.width = count(p, &negative);
    if (negative || sp.align == '<') {
        sp.align = '<';
        sp.fill = ' ';
    }
    if (look(p) == '.') {
        p->at++;
        sp.precision = count(p, &negative);
    }
    while (look(p) && strchr("hlL", look(p)))
        p->at++;
    if (at_end(p))
        qr_jfail(p->c, "incomplete format");
    sp.type = look(p);
    p->at++;
    if (sp.type && strchr("srac", sp.type)) {
        if (sp.fill == '0' || (!sp.align && sp.type != 'c'))
            sp.align = '>';
        sp.fill = ' ';
    }
    return sp;
}

static void conversion(struct percent *p, struct qr_jsb *b)
{
    struct qr_jval v = {0};
    p->at++; /* % */
    bool named = look(p) == '(';
    if (named)
        v = named_arg(p);
    struct spec sp = percent_spec(p);
    if (sp.type == '%') {
        qr_jsb_puts(b, "%");
        return;
    }
    check_spec(p->c, &sp);
    if (!named)
        v = next_arg(p);
    put_converted(p, b, &sp, &v);
}

struct qr_jval qr_jpercent(struct qr_jctx *c, struct qr_jstr *fmt, const struct qr_jval *args)
{
    QR_ASSERT(fmt != NULL && args != NULL);
    struct percent p = {.c = c, .fmt = qr_jstr_flat(c, fmt), .args = args};
    struct qr_jsb b;
    qr_jsb_init(&b, c);
    while (!at_end(&p)) {
        const char *from = fmt->u.flat.data + p.at, *pct = memchr(from, '%', fmt->len - p.at);
        size_t to = pct ? (size_t)(pct - fmt->u.flat.data) : fmt->len;
        qr_jsb_put_range(&b, fmt, p.at, to);
        p.at = to;
        if (pct)
            conversion(&p, &b);
        qr_jcharge(c, 1);
    }
    bool unused = false;
    switch (args->type) {
    case QR_J_TUPLE: unused = p.next < args->u.seq->n; break;
    case QR_J_DICT: /* what can be subscripted may stay unused */
    case QR_J_LIST:
    case QR_J_RANGE:
    case QR_J_UNDEF: break;
    default: unused = p.next == 0;
    }
    if (unused)
        qr_jfail(c, "not all arguments converted during string formatting");
    return qr_jstrv(qr_jstr_marked(c, qr_jsb_done(&b), fmt->markup));
}

/* ---- fmt.format(...) ---- */

struct braces {
    struct qr_jctx *c;
    struct qr_jstr *fmt;
    const struct qr_jargs *a;
    int64_t next; /* for {} */
    int32_t depth;
};

static _Noreturn void bad_format(struct qr_jctx *c)
{
    qr_jfail(c, "the format string is malformed");
}

/* The number in text[*i..n), bounded. */
static int64_t digits_at(const char *text, size_t n, size_t *i)
{
    int64_t v = 0;
    for (; *i < n && text[*i] >= '0' && text[*i] <= '9'; ++*i)
        v = v > WIDTH_MAX ? v : v * 10 + (text[*i] - '0');
    return v;
}

/* [[fill]align][sign][#][0][width][,][.precision][type] in text[0..n). */
static struct spec parse_spec(struct qr_jctx *c, const char *text, size_t n)
{
    size_t i = 0;
    uint32_t cp = 0;
    struct spec sp = {.fill = ' ', .precision = -1};
    int32_t len = n > 0 ? qr_utf8_decode(text, n, &cp) : 0;
    if (len > 0 && (size_t)len < n && text[len] && strchr("<>^=", text[len])) {
        sp.fill = cp;
        sp.align = text[len];
        i = (size_t)len + 1;
    } else if (n > 0 && text[0] && strchr("<>^=", text[0])) {
        sp.align = text[i++];
    }
    if (i < n && text[i] && strchr("+- ", text[i]))
        sp.sign = text[i++];
    if (i < n && text[i] == '#')
        sp.alt = text[i++] == '#';
    if (i < n && text[i] == '0') {
        i++;
        if (!sp.align) {
            sp.fill = '0';
            sp.align = '=';
        }
    }
    sp.width = digits_at(text, n, &i);
    if (i < n && (text[i] == ',' || text[i] == '_'))
        sp.comma = text[i++] == ',';
    if (i < n && text[i] == '.') {
        i++;
        sp.precision = digits_at(text, n, &i);
    }
    if (i < n)
        sp.type = text[i++];
    if (i < n || (sp.type && !strchr("sdxXobeEfFgG%", sp.type)))
        qr_jfail(c, "Invalid format specifier");
    check_spec(c, &sp);
    return sp;
}

/* The argument that "", "0" or "name", fmt[from..to), names. */
static struct qr_jval field_root(struct braces *b, size_t from, size_t to)
{
    const char *s = b->fmt->u.flat.data;
    int64_t index = 0;
    bool digits = true;
    for (size_t i = from; i < to; i++) {
        digits = digits && s[i] >= '0' && s[i] <= '9' && index < 100000;
        index = digits ? index * 10 + (s[i] - '0') : index;
    }
    if (to == from)
        index = b->next++;
    if (digits && index >= b->a->n_pos)
        qr_jfail(b->c, "Replacement index %lld out of range for positional args tuple", (long long)index);
    if (digits)
        return b->a->pos[index];
    for (int32_t i = b->a->n_kw - 1; i >= 0; i--) {
        if (strlen(b->a->kw[i].name) == to - from && memcmp(b->a->kw[i].name, s + from, to - from) == 0)
            return b->a->kw[i].val;
    }
    qr_jfail(b->c, "'%.*s'", (int)(to - from > 60 ? 60 : to - from), s + from);
}

/* The value that a field names: its argument, then .attr and [key]. */
static struct qr_jval field_value(struct braces *b, size_t from, size_t to)
{
    const char *s = b->fmt->u.flat.data;
    size_t end = from;
    while (end < to && s[end] != '.' && s[end] != '[')
        end++;
    struct qr_jval v = field_root(b, from, end);
    while (end < to) {
        bool attr = s[end] == '.';
        size_t start = ++end;
        while (end < to && (attr ? s[end] != '.' && s[end] != '[' : s[end] != ']'))
            end++;
        if (end == start || (!attr && end == to))
            bad_format(b->c);
        struct qr_jstr *part = qr_jstr_sub(b->c, b->fmt, start, end);
        struct qr_jval key = qr_jstrv(part);
        const char *name = qr_jstr_name(b->c, part);
        if (!attr && part->len < 20 && strspn(name, "0123456789") == part->len)
            key = qr_jint(strtoll(name, NULL, 10));
        v = attr ? qr_jgetattr(b->c, &v, &key) : qr_jgetitem(b->c, &v, &key);
        end += !attr;
    }
    return v;
}

static void put_field(struct braces *b, struct qr_jsb *sb, struct qr_jval v, char conv, const struct qr_jsb *spec)
{
    struct spec sp = parse_spec(b->c, spec->data, spec->len);
    double f;
    if (conv && strchr("sra", conv))
        v = qr_jstrv(converted(b->c, conv, &v));
    bool number = qr_jnumber(&v, &f);
    if (spec->len > 0 && number && sp.type != 's') {
        put_number(sb, &sp, &v);
        return;
    }
    if (spec->len > 0 && !number && v.type != QR_J_STR)
        qr_jfail(b->c, "unsupported format string passed to %s.__format__", qr_jtype_name(&v));
    if (sp.type && (number || sp.type != 's'))
        qr_jfail(b->c, "Unknown format code '%c' for object of type '%s'", sp.type, qr_jtype_name(&v));
    struct qr_jstr *s = qr_jtext(b->c, &v);
    put_text(sb, &sp, b->fmt->markup ? qr_jescape(b->c, s) : s);
}

/* One {field!conversion:spec} that begins at i, behind the brace. A spec may hold fields itself, one level deep.
 * Returns where it ends, behind its brace. */
static size_t field(struct braces *b, struct qr_jsb *sb, size_t i)
{
    const char *s = b->fmt->u.flat.data;
    size_t from = i, n = b->fmt->len;
    char conv = 0;
    struct qr_jsb spec;
    qr_jsb_init(&spec, b->c);
    for (int depth = 0; i < n && (depth > 0 || (s[i] != '}' && s[i] != '!' && s[i] != ':')); i++)
        depth += (s[i] == '[') - (s[i] == ']');
    struct qr_jval v = field_value(b, from, i);
    if (i + 1 < n && s[i] == '!') {
        conv = s[i + 1];
        i += 2;
    }
    if (i < n && s[i] == ':')
        i++;
    else if (i >= n || s[i] != '}')
        bad_format(b->c);
    while (i < n && s[i] != '}') {
        if (s[i] != '{') {
            qr_jsb_put_range(&spec, b->fmt, i, i + 1);
            i++;
            continue;
        }
        if (b->depth > 0)
            qr_jfail(b->c, "Max string recursion exceeded");
        b->depth++;
        i = field(b, &spec, i + 1);
        b->depth--;
    }
    if (i >= n)
        bad_format(b->c);
    put_field(b, sb, v, conv, &spec);
    return i + 1;
}

struct qr_jval qr_jbraces(struct qr_jctx *c, struct qr_jstr *fmt, const struct qr_jargs *a)
{
    QR_ASSERT(fmt != NULL && a != NULL);
    struct braces b = {.c = c, .fmt = qr_jstr_flat(c, fmt), .a = a};
    const char *p = fmt->u.flat.data;
    struct qr_jsb sb;
    qr_jsb_init(&sb, c);
    for (size_t i = 0, from; i < fmt->len;) {
        for (from = i; i < fmt->len && p[i] != '{' && p[i] != '}';)
            i++;
        qr_jsb_put_range(&sb, fmt, from, i);
        if (i == fmt->len)
            break;
        if (i + 1 < fmt->len && p[i + 1] == p[i]) {
            qr_jsb_put_range(&sb, fmt, i, i + 1);
            i += 2;
            continue;
        }
        if (p[i] == '}')
            qr_jfail(c, "Single '}' encountered in format string");
        qr_jcharge(c, 1);
        i = field(&b, &sb, i + 1);
    }
    return qr_jstrv(qr_jstr_marked(c, qr_jsb_done(&sb), fmt->markup));
}
