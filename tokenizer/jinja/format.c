/* format.c - '%s' % x and '{}'.format(x), as far as Python's numbers and strings go. Widths and precisions are bounded.
 * Errors of a rendering are values (value.c), so a template can never end the process. The arena is the rendering's
 * own; one thread at a time. */
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
    for (int64_t i = 0; i < n && b->rc == 0; i++)
        qr_jsb_put_cp(b, fill, true);
}

/* Appends s between its padding; a sign may stay in front of zeros. */
static int put_padded(struct qr_jctx *c, struct qr_jsb *b, const struct spec *sp, struct qr_jstr *s, bool number)
{
    int64_t n;
    int rc = qr_jstr_chars(c, s, &n);
    if (rc)
        return rc;
    char align = sp->align ? sp->align : number ? '>' : '<';
    int64_t space = sp->width > n ? sp->width - n : 0, left = align == '>' || align == '=' ? space : align == '^' ? space / 2 : 0;
    size_t lead = align == '=' && s->len > 0 && strchr("+- ", s->u.flat.data[0]) && s->u.flat.data[0] ? 1 : 0;
    qr_jsb_put_range(b, s, 0, lead);
    pad(b, sp->fill, left);
    qr_jsb_put_range(b, s, lead, s->len);
    pad(b, sp->fill, space - left);
    return b->rc;
}

static int put_text(struct qr_jctx *c, struct qr_jsb *b, const struct spec *sp, struct qr_jstr *s)
{
    int rc = qr_jstr_flat(c, s);
    if (rc == 0 && sp->precision >= 0)
        rc = qr_jstr_sub(c, s, 0, qr_jstr_offset(s, sp->precision), &s);
    return rc ? rc : put_padded(c, b, sp, s, false);
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

static int put_digits(struct qr_jctx *c, struct qr_jsb *b, const struct spec *sp, char *buf, size_t size, bool trusted)
{
    char signed_buf[800];
    struct qr_jstr *s;
    bool plus = buf[0] != '-' && (sp->sign == '+' || sp->sign == ' ');
    snprintf(signed_buf, sizeof signed_buf, "%s%s", plus ? (sp->sign == '+' ? "+" : " ") : "", buf);
    if (sp->comma)
        commas(signed_buf, sizeof signed_buf);
    size_t n = strlen(signed_buf);
    char *copy = qr_jalloc(c, n + 1, 1);
    if (!copy)
        return QR_E_TOO_LARGE;
    memcpy(copy, signed_buf, n + 1);
    int rc = qr_jstr_new(c, copy, n, trusted, &s);
    return rc ? rc : put_padded(c, b, sp, s, true);
}

static int put_float(struct qr_jctx *c, struct qr_jsb *b, const struct spec *sp, double v, bool trusted)
{
    char buf[600];
    int digits = sp->precision < 0 ? 6 : (int)sp->precision;
    char type = sp->type == '%' ? 'f' : sp->type ? sp->type : 'g';
    if (isnan(v) || isinf(v)) {
        strcpy(buf, isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
        return put_digits(c, b, sp, buf, sizeof buf, trusted);
    }
    if (sp->type == '%')
        v *= 100;
    switch (type) {
    case 'e': snprintf(buf, sizeof buf, "%.*e", digits, v); break;
    case 'E': snprintf(buf, sizeof buf, "%.*E", digits, v); break;
    case 'f':
    case 'F': snprintf(buf, sizeof buf, "%.*f", digits, v); break;
    case 'G': snprintf(buf, sizeof buf, "%.*G", digits, v); break;
    default:
        if (sp->type || sp->precision >= 0)
            snprintf(buf, sizeof buf, "%.*g", digits, v);
        else
            qr_jfloat_text(buf, v);
    }
    if (sp->type == '%')
        strncat(buf, "%", sizeof buf - strlen(buf) - 1);
    return put_digits(c, b, sp, buf, sizeof buf, trusted);
}

static int put_int(struct qr_jctx *c, struct qr_jsb *b, const struct spec *sp, int64_t v, bool trusted)
{
    char buf[100];
    const char *prefix = "";
    unsigned long long u = v < 0 ? 0ULL - (unsigned long long)v : (unsigned long long)v;
    if (sp->type == 'x' || sp->type == 'X' || sp->type == 'o' || sp->type == 'b') {
        char digits[65];
        int base = sp->type == 'o' ? 8 : sp->type == 'b' ? 2 : 16, n = 64;
        digits[64] = 0;
        do {
            digits[--n] = (sp->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[u % (unsigned)base];
            u /= (unsigned)base;
        } while (u > 0);
        if (sp->alt)
            prefix = sp->type == 'o' ? "0o" : sp->type == 'b' ? "0b" : sp->type == 'X' ? "0X" : "0x";
        snprintf(buf, sizeof buf, "%s%s%s", v < 0 ? "-" : "", prefix, digits + n);
    } else {
        snprintf(buf, sizeof buf, "%s%llu", v < 0 ? "-" : "", u);
    }
    return put_digits(c, b, sp, buf, sizeof buf, trusted);
}

static int check_spec(struct qr_jctx *c, const struct spec *sp)
{
    if (sp->width > WIDTH_MAX)
        return qr_jlimit(c, "a field of more than %d characters is refused", WIDTH_MAX);
    if (sp->precision > DIGITS_MAX && sp->type && strchr("eEfFgG%", sp->type))
        return qr_jlimit(c, "more than %d digits are refused", DIGITS_MAX);
    return 0;
}

/* A number by its type letter. */
static int put_number(struct qr_jctx *c, struct qr_jsb *b, const struct spec *sp, const struct qr_jval *v)
{
    int64_t i;
    double f;
    if (sp->type && strchr("eEfFgG%", sp->type) && qr_jnumber(v, &f))
        return put_float(c, b, sp, f, !v->untrusted);
    if (qr_jinteger(v, &i))
        return put_int(c, b, sp, i, !v->untrusted);
    if (v->type == QR_J_FLOAT && (sp->type == 'd' || sp->type == 'i' || sp->type == 'u') && fabs(v->u.f) < 9e18)
        return put_int(c, b, sp, (int64_t)v->u.f, !v->untrusted);
    if (v->type == QR_J_FLOAT && !sp->type)
        return put_float(c, b, sp, v->u.f, !v->untrusted);
    if (v->type == QR_J_BIG)
        return put_padded(c, b, sp, v->u.s, true);
    if (v->type == QR_J_UNDEF)
        return qr_jfail_undef(c, v);
    return qr_jfail(c, "%%%c format: a real number is required, not %s", sp->type ? sp->type : 'd', qr_jtype_name(v));
}

/* ---- fmt % args ---- */

struct percent {
    struct qr_jctx *c;
    struct qr_jstr *fmt;
    const struct qr_jval *args; /* a tuple gives its items, another value itself */
    int64_t next;
    size_t at;
    bool markup;
};

static int next_arg(struct percent *p, struct qr_jval *out)
{
    bool tuple = p->args->type == QR_J_TUPLE;
    if (p->next >= (tuple ? p->args->u.seq->n : 1))
        return qr_jfail(p->c, "not enough arguments for format string");
    *out = tuple ? p->args->u.seq->at[p->next] : *p->args;
    p->next++;
    return 0;
}

static bool at_end(const struct percent *p)
{
    return p->at >= p->fmt->len;
}

static char look(const struct percent *p)
{
    return at_end(p) ? 0 : p->fmt->u.flat.data[p->at];
}

static int count(struct percent *p, int64_t *out, bool *negative)
{
    struct qr_jval v;
    *out = 0;
    if (look(p) == '*') {
        p->at++;
        int rc = next_arg(p, &v);
        if (rc == 0 && !qr_jinteger(&v, out))
            rc = qr_jfail(p->c, "* wants int");
        *negative = rc == 0 && *out < 0;
        if (*negative)
            *out = *out == INT64_MIN ? INT64_MAX : -*out;
        return rc;
    }
    for (; look(p) >= '0' && look(p) <= '9'; p->at++)
        *out = *out > WIDTH_MAX ? *out : *out * 10 + (look(p) - '0');
    return 0;
}

/* %(name): the value of that key. */
static int named_arg(struct percent *p, struct qr_jval *out)
{
    size_t from = ++p->at;
    struct qr_jstr *key;
    for (int depth = 1; depth > 0; p->at++) {
        if (at_end(p))
            return qr_jfail(p->c, "incomplete format key");
        depth += (look(p) == '(') - (look(p) == ')');
    }
    if (p->args->type != QR_J_DICT)
        return qr_jfail(p->c, "format requires a mapping");
    int rc = qr_jstr_sub(p->c, p->fmt, from, p->at - 1, &key);
    if (rc == 0)
        rc = qr_jdict_get(p->c, p->args->u.d, qr_jstrv(key), out);
    if (rc == 0 && out->type == QR_J_ABSENT)
        rc = qr_jfail(p->c, "'%.*s'", key->len > 60 ? 60 : (int)key->len, key->u.flat.data);
    return rc;
}

static int put_converted(struct percent *p, struct qr_jsb *b, const struct spec *sp, const struct qr_jval *v)
{
    struct qr_jstr *s;
    int rc;
    switch (sp->type) {
    case 's':
    case 'r':
    case 'a':
        rc = sp->type == 's' ? qr_jtext(p->c, v, &s) : qr_jrepr(p->c, v, &s);
        if (rc == 0 && p->markup)
            rc = qr_jescape(p->c, s, &s);
        return rc ? rc : put_text(p->c, b, &(struct spec){sp->fill, sp->align ? sp->align : '>', 0, 0, 0, sp->width, sp->precision, 0}, s);
    case 'c':
        if (v->type == QR_J_STR)
            return put_text(p->c, b, sp, v->u.s);
        if (v->type == QR_J_INT && v->u.i >= 0 && v->u.i < 0xD800) {
            qr_jsb_put_cp(b, (uint32_t)v->u.i, !v->untrusted);
            return b->rc;
        }
        return qr_jfail(p->c, "%%c requires int or char");
    default: break;
    }
    if (!sp->type || !strchr("diuxXoeEfFgG", sp->type))
        return qr_jfail(p->c, "unsupported format character '%c'", sp->type ? sp->type : '?');
    return put_number(p->c, b, sp, v);
}

static int conversion(struct percent *p, struct qr_jsb *b)
{
    struct spec sp = {.fill = ' ', .precision = -1};
    struct qr_jval v = {0};
    bool negative = false, named = false;
    int rc = 0;
    p->at++; /* % */
    if (look(p) == '(') {
        rc = named_arg(p, &v);
        named = true;
    }
    for (; rc == 0 && look(p) && strchr("-+ #0", look(p)); p->at++) {
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
    if (rc == 0)
        rc = count(p, &sp.width, &negative);
    if (negative || sp.align == '<') {
        sp.align = '<';
        sp.fill = ' ';
    }
    if (rc == 0 && look(p) == '.') {
        p->at++;
        rc = count(p, &sp.precision, &negative);
    }
    while (rc == 0 && look(p) && strchr("hlL", look(p)))
        p->at++;
    if (rc)
        return rc;
    if (at_end(p))
        return qr_jfail(p->c, "incomplete format");
    sp.type = look(p);
    p->at++;
    if (sp.type == '%') {
        qr_jsb_puts(b, "%");
        return b->rc;
    }
    if (sp.fill == '0' && (sp.type == 's' || sp.type == 'r' || sp.type == 'a' || sp.type == 'c')) {
        sp.fill = ' ';
        sp.align = '>';
    }
    rc = check_spec(p->c, &sp);
    if (rc == 0 && !named)
        rc = next_arg(p, &v);
    return rc ? rc : put_converted(p, b, &sp, &v);
}

int qr_jpercent(struct qr_jctx *c, struct qr_jstr *fmt, const struct qr_jval *args, struct qr_jval *out)
{
    QR_ASSERT(fmt != NULL && args != NULL);
    struct percent p = {.c = c, .fmt = fmt, .args = args, .markup = fmt->markup};
    struct qr_jsb b;
    struct qr_jstr *s;
    int rc = qr_jstr_flat(c, fmt);
    qr_jsb_init(&b, c);
    while (rc == 0 && !at_end(&p)) {
        const char *from = fmt->u.flat.data + p.at, *pct = memchr(from, '%', fmt->len - p.at);
        size_t to = pct ? (size_t)(pct - fmt->u.flat.data) : fmt->len;
        qr_jsb_put_range(&b, fmt, p.at, to);
        p.at = to;
        if (pct)
            rc = conversion(&p, &b);
        if (rc == 0)
            rc = qr_jcharge(c, 1);
    }
    if (rc == 0 && args->type == QR_J_TUPLE && p.next < args->u.seq->n)
        rc = qr_jfail(c, "not all arguments converted during string formatting");
    bool mapping = args->type == QR_J_DICT || args->type == QR_J_LIST || args->type == QR_J_RANGE || args->type == QR_J_UNDEF;
    if (rc == 0 && p.next == 0 && args->type != QR_J_TUPLE && !mapping) /* what can be subscripted may stay unused */
        rc = qr_jfail(c, "not all arguments converted during string formatting");
    if (rc == 0)
        rc = qr_jsb_done(&b, &s);
    if (rc == 0)
        rc = qr_jstr_marked(c, s, p.markup, &s);
    if (rc == 0)
        *out = qr_jstrv(s);
    return rc;
}

/* ---- fmt.format(...) ---- */

struct braces {
    struct qr_jctx *c;
    struct qr_jstr *fmt;
    const struct qr_jargs *a;
    int64_t next; /* for {}; -1 once a number was given */
    int32_t depth;
};

static int bad_format(struct qr_jctx *c)
{
    return qr_jfail(c, "the format string is malformed");
}

/* [[fill]align][sign][#][0][width][,][.precision][type] in text[0..n). */
static int parse_spec(struct qr_jctx *c, const char *text, size_t n, struct spec *sp)
{
    size_t i = 0;
    uint32_t cp = 0;
    *sp = (struct spec){.fill = ' ', .precision = -1};
    int32_t len = n > 0 ? qr_utf8_decode(text, n, &cp) : 0;
    if (len > 0 && (size_t)len < n && strchr("<>^=", text[len]) && text[len]) {
        sp->fill = cp;
        sp->align = text[len];
        i = (size_t)len + 1;
    } else if (n > 0 && text[0] && strchr("<>^=", text[0])) {
        sp->align = text[i++];
    }
    if (i < n && text[i] && strchr("+- ", text[i]))
        sp->sign = text[i++];
    if (i < n && text[i] == '#')
        sp->alt = text[i++] == '#';
    if (i < n && text[i] == '0') {
        i++;
        if (!sp->align) {
            sp->fill = '0';
            sp->align = '=';
        }
    }
    for (; i < n && text[i] >= '0' && text[i] <= '9'; i++)
        sp->width = sp->width > WIDTH_MAX ? sp->width : sp->width * 10 + (text[i] - '0');
    if (i < n && (text[i] == ',' || text[i] == '_'))
        sp->comma = text[i++] == ',';
    if (i < n && text[i] == '.') {
        sp->precision = 0;
        for (i++; i < n && text[i] >= '0' && text[i] <= '9'; i++)
            sp->precision = sp->precision > WIDTH_MAX ? sp->precision : sp->precision * 10 + (text[i] - '0');
    }
    if (i < n)
        sp->type = text[i++];
    if (i < n || (sp->type && !strchr("sdxXobeEfFgG%", sp->type)))
        return qr_jfail(c, "Invalid format specifier");
    return check_spec(c, sp);
}

/* The value that a field names: "", "0", "name", then .attr and [key]. */
static int field_value(struct braces *b, size_t from, size_t to, struct qr_jval *out)
{
    const char *s = b->fmt->u.flat.data;
    size_t end = from;
    while (end < to && s[end] != '.' && s[end] != '[')
        end++;
    int64_t index = 0;
    bool digits = true;
    for (size_t i = from; i < end; i++) {
        digits = digits && s[i] >= '0' && s[i] <= '9' && index < 100000;
        index = digits ? index * 10 + (s[i] - '0') : index;
    }
    if (end == from)
        index = b->next++;
    *out = (struct qr_jval){0};
    if (digits) {
        if (index >= b->a->n_pos)
            return qr_jfail(b->c, "Replacement index %lld out of range for positional args tuple", (long long)index);
        *out = b->a->pos[index];
    }
    for (int32_t i = 0; !digits && i < b->a->n_kw; i++) {
        if (strlen(b->a->kw[i].name) == end - from && memcmp(b->a->kw[i].name, s + from, end - from) == 0)
            *out = b->a->kw[i].val;
    }
    if (out->type == QR_J_ABSENT)
        return qr_jfail(b->c, "'%.*s'", (int)(end - from > 60 ? 60 : end - from), s + from);
    int rc = 0;
    while (end < to && rc == 0) {
        bool attr = s[end] == '.';
        size_t start = ++end;
        while (end < to && (attr ? s[end] != '.' && s[end] != '[' : s[end] != ']'))
            end++;
        struct qr_jstr *part;
        struct qr_jval key, obj = *out;
        if (end == start || (!attr && end == to))
            return bad_format(b->c);
        rc = qr_jstr_sub(b->c, b->fmt, start, end, &part);
        key = qr_jstrv(part);
        char *stop, number[20];
        if (rc == 0 && !attr && part->len < sizeof number && strspn(part->u.flat.data, "0123456789") >= part->len) {
            memcpy(number, part->u.flat.data, part->len);
            number[part->len] = 0;
            key = qr_jint(strtoll(number, &stop, 10));
        }
        if (rc == 0)
            rc = attr ? qr_jgetattr(b->c, &obj, &key, out) : qr_jgetitem(b->c, &obj, &key, out);
        end += !attr;
    }
    return rc;
}

static int put_field(struct braces *b, struct qr_jsb *sb, struct qr_jval v, char conv, const char *spec, size_t n)
{
    struct spec sp;
    struct qr_jstr *s;
    int rc = parse_spec(b->c, spec, n, &sp);
    if (rc)
        return rc;
    if (conv == 's' || conv == 'r' || conv == 'a') {
        rc = conv == 's' ? qr_jtext(b->c, &v, &s) : qr_jrepr(b->c, &v, &s);
        if (rc)
            return rc;
        v = qr_jstrv(s);
    }
    double f;
    bool number = qr_jnumber(&v, &f);
    if (n > 0 && number && sp.type != 's')
        return put_number(b->c, sb, &sp, &v);
    if (n > 0 && !number && v.type != QR_J_STR)
        return qr_jfail(b->c, "unsupported format string passed to %s.__format__", qr_jtype_name(&v));
    if (sp.type && (number || sp.type != 's'))
        return qr_jfail(b->c, "Unknown format code '%c' for object of type '%s'", sp.type, qr_jtype_name(&v));
    rc = qr_jtext(b->c, &v, &s);
    if (rc == 0 && b->fmt->markup)
        rc = qr_jescape(b->c, s, &s);
    return rc ? rc : put_text(b->c, sb, &sp, s);
}

/* One {field!conversion:spec}; *at is behind the brace. A spec may hold fields itself, one level deep. */
static int field(struct braces *b, struct qr_jsb *sb, size_t *at)
{
    const char *s = b->fmt->u.flat.data;
    size_t i = *at, from = i, n = b->fmt->len;
    char conv = 0;
    struct qr_jval v;
    struct qr_jsb spec;
    qr_jsb_init(&spec, b->c);
    for (int depth = 0; i < n && (depth > 0 || (s[i] != '}' && s[i] != '!' && s[i] != ':')); i++)
        depth += (s[i] == '[') - (s[i] == ']');
    int rc = field_value(b, from, i, &v);
    if (rc == 0 && i + 1 < n && s[i] == '!') {
        conv = s[i + 1];
        i += 2;
    }
    if (rc == 0 && i < n && s[i] == ':') {
        for (i++; rc == 0 && i < n && s[i] != '}'; i++) {
            if (s[i] != '{') {
                qr_jsb_put_range(&spec, b->fmt, i, i + 1);
                continue;
            }
            if (b->depth > 0)
                return qr_jfail(b->c, "Max string recursion exceeded");
            i++;
            b->depth++;
            rc = field(b, &spec, &i);
            b->depth--;
            i--;
        }
    }
    if (rc == 0 && (i >= n || s[i] != '}'))
        rc = bad_format(b->c);
    *at = i + 1;
    if (rc == 0)
        rc = spec.rc;
    return rc ? rc : put_field(b, sb, v, conv, spec.data, spec.len);
}

int qr_jbraces(struct qr_jctx *c, struct qr_jstr *fmt, const struct qr_jargs *a, struct qr_jval *out)
{
    QR_ASSERT(fmt != NULL && a != NULL);
    struct braces b = {.c = c, .fmt = fmt, .a = a};
    struct qr_jsb sb;
    struct qr_jstr *s;
    int rc = qr_jstr_flat(c, fmt);
    qr_jsb_init(&sb, c);
    for (size_t i = 0; rc == 0 && i < fmt->len;) {
        const char *p = fmt->u.flat.data;
        size_t from = i;
        while (i < fmt->len && p[i] != '{' && p[i] != '}')
            i++;
        qr_jsb_put_range(&sb, fmt, from, i);
        if (i == fmt->len)
            break;
        if (i + 1 < fmt->len && p[i + 1] == p[i]) {
            qr_jsb_put_range(&sb, fmt, i, i + 1);
            i += 2;
        } else if (p[i] == '}') {
            rc = qr_jfail(c, "Single '}' encountered in format string");
        } else {
            i++;
            rc = qr_jcharge(c, 1);
            if (rc == 0)
                rc = field(&b, &sb, &i);
        }
    }
    if (rc == 0)
        rc = qr_jsb_done(&sb, &s);
    if (rc == 0)
        rc = qr_jstr_marked(c, s, fmt->markup, &s);
    if (rc == 0)
        *out = qr_jstrv(s);
    return rc;
}
