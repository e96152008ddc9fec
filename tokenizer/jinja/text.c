/* text.c - str() and repr() of values, as Python prints them. Numbers, escapes and nested containers have Python's
 * spelling, which templates print. A text in which anything untrusted took part is untrusted as a whole. An error
 * leaves the rendering (value.h). One thread per rendering. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/unicode.h"
#include "tokenizer/jinja/value.h"

/* The fewest digits that read back as f, placed as Python places them: an exponent below 1e-4 and from 1e16 on. */
void qr_jfloat_text(char buf[40], double f)
{
    char digits[24];
    uint64_t value = 0;
    int exp10 = 0;
    if (isnan(f) || isinf(f)) {
        strcpy(buf, isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    if (f != 0)
        qr_shortest_f64(fabs(f), &value, &exp10);
    const int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)value), exp = exp10 + n - 1;
    const char *sign = signbit(f) ? "-" : "";
    if (exp < -4 || exp >= 16)
        snprintf(buf, 40, "%s%c%s%.16se%c%02d", sign, digits[0], n > 1 ? "." : "", digits + 1, exp < 0 ? '-' : '+',
                 abs(exp));
    else if (exp < 0)
        snprintf(buf, 40, "%s0.%.*s%.17s", sign, -exp - 1, "000", digits);
    else if (n > exp + 1)
        snprintf(buf, 40, "%s%.*s.%.16s", sign, exp + 1, digits, digits + exp + 1);
    else
        snprintf(buf, 40, "%s%.17s%.*s.0", sign, digits, exp + 1 - n, "000000000000000");
}

/* arg: the quote around. */
static bool escape(uint32_t cp, const void *arg, char esc[16])
{
    const uint32_t quote = (uint32_t)*(const char *)arg;
    if (cp != quote && cp != '\\' && qr_jprintable(cp))
        return false;
    if (cp == '\n' || cp == '\r' || cp == '\t')
        snprintf(esc, 16, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
    else if (cp == quote || cp == '\\')
        snprintf(esc, 16, "\\%c", (char)cp);
    else
        snprintf(esc, 16, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
    return true;
}

/* Python's repr of a string; the provenance of its characters is kept. */
static void repr_str(struct qr_jsb *b, struct qr_jstr *s)
{
    const char *p = qr_jstr_flat(b->c, s)->u.flat.data;
    char quote = s->len && memchr(p, '\'', s->len) && !memchr(p, '"', s->len) ? '"' : '\'';
    if (s->markup)
        qr_jsb_puts(b, "Markup(");
    qr_jsb_put(b, &quote, 1, true);
    qr_jsb_put_escaped(b, s, escape, &quote);
    qr_jsb_put(b, &quote, 1, true);
    if (s->markup)
        qr_jsb_puts(b, ")");
}

static void repr(struct qr_jsb *b, const struct qr_jval *v);

static void repr_seq(struct qr_jsb *b, const struct qr_jval *at, int64_t n, const char *open, const char *close)
{
    qr_jsb_puts(b, open);
    for (int64_t i = 0; i < n; i++) {
        if (i > 0)
            qr_jsb_puts(b, ", ");
        repr(b, &at[i]);
    }
    qr_jsb_puts(b, close);
}

static void repr_dict(struct qr_jsb *b, const struct qr_jdict *d)
{
    qr_jsb_puts(b, "{");
    for (int32_t i = 0; i < d->n; i++) {
        if (i > 0)
            qr_jsb_puts(b, ", ");
        repr(b, &d->at[i].key);
        qr_jsb_puts(b, ": ");
        repr(b, &d->at[i].val);
    }
    qr_jsb_puts(b, "}");
}

static void repr_view(struct qr_jsb *b, const struct qr_jval *v)
{
    struct qr_jseq items = qr_jitems(b->c, v);
    qr_jsb_puts(b, qr_jtype_name(v));
    repr_seq(b, items.at, items.n, "([", "])");
}

static void repr_number(struct qr_jsb *b, const struct qr_jval *v)
{
    char buf[40];
    if (v->type == QR_J_FLOAT)
        qr_jfloat_text(buf, v->u.f);
    else if (v->type == QR_J_INT)
        snprintf(buf, sizeof buf, "%lld", (long long)v->u.i);
    else
        strcpy(buf, v->u.b ? "True" : "False");
    qr_jsb_put(b, buf, strlen(buf), !v->untrusted);
}

static void repr_object(struct qr_jsb *b, const struct qr_jval *v)
{
    char buf[100];
    switch (v->type) {
    case QR_J_RANGE: {
        const struct qr_jrange *r = v->u.range;
        int n = snprintf(buf, sizeof buf, "range(%lld, %lld", (long long)r->start, (long long)r->stop);
        if (r->step != 1)
            n += snprintf(buf + n, sizeof buf - (size_t)n, ", %lld", (long long)r->step);
        snprintf(buf + n, sizeof buf - (size_t)n, ")");
        break;
    }
    case QR_J_LOOP:
        snprintf(buf, sizeof buf, "<LoopContext %lld/%lld>", (long long)v->u.loop->i + 1,
                 (long long)v->u.loop->items.n);
        break;
    case QR_J_MACRO:
        if (v->u.macro->sig->name)
            snprintf(buf, sizeof buf, "<Macro '%.60s'>", v->u.macro->sig->name);
        else
            strcpy(buf, "<Macro anonymous>");
        break;
    case QR_J_GEN: snprintf(buf, sizeof buf, "<generator object %s>", v->u.gen->name); break;
    case QR_J_FUNC: snprintf(buf, sizeof buf, "<function %s>", v->u.func->name); break;
    case QR_J_METHOD:
        snprintf(buf, sizeof buf, "<built-in method %s of %s object>", v->u.bound->method->name,
                 qr_jtype_name(&v->u.bound->self));
        break;
    default: snprintf(buf, sizeof buf, "<%s object>", qr_jtype_name(v));
    }
    qr_jsb_puts(b, buf);
}

static void repr(struct qr_jsb *b, const struct qr_jval *v)
{
    qr_jcharge(b->c, 1);
    qr_jdown(b->c);
    switch (v->type) {
    case QR_J_UNDEF: qr_jsb_puts(b, "Undefined"); break;
    case QR_J_NONE: qr_jsb_puts(b, "None"); break;
    case QR_J_BOOL:
    case QR_J_INT:
    case QR_J_FLOAT: repr_number(b, v); break;
    case QR_J_BIG: qr_jsb_put_str(b, v->u.s); break;
    case QR_J_STR: repr_str(b, v->u.s); break;
    case QR_J_LIST: repr_seq(b, v->u.seq->at, v->u.seq->n, "[", "]"); break;
    case QR_J_TUPLE: repr_seq(b, v->u.seq->at, v->u.seq->n, "(", v->u.seq->n == 1 ? ",)" : ")"); break;
    case QR_J_DICT: repr_dict(b, v->u.d); break;
    case QR_J_VIEW: repr_view(b, v); break;
    case QR_J_NS:
        qr_jsb_puts(b, "<Namespace ");
        repr_dict(b, v->u.d);
        qr_jsb_puts(b, ">");
        break;
    default: repr_object(b, v);
    }
    qr_jup(b->c);
}

struct qr_jstr *qr_jrepr(struct qr_jctx *c, const struct qr_jval *v)
{
    QR_ASSERT(v != NULL);
    struct qr_jsb b;
    qr_jsb_init(&b, c);
    repr(&b, v);
    return qr_jsb_done_whole(&b); /* its quotes and brackets say nothing by themselves */
}

struct qr_jstr *qr_jtext(struct qr_jctx *c, const struct qr_jval *v)
{
    QR_ASSERT(v != NULL);
    if (v->type == QR_J_STR)
        return v->u.s;
    return v->type == QR_J_UNDEF ? qr_jstr_new(c, "", 0, true) : qr_jrepr(c, v);
}

struct qr_jstr *qr_jtext_flat(struct qr_jctx *c, const struct qr_jval *v)
{
    return qr_jstr_flat(c, qr_jtext(c, v));
}

/* The name of an undefined value for its message, cut when long. */
struct shown {
    const struct qr_jval *name;
    char text[100];
};

static void show(struct qr_jctx *c, void *arg)
{
    struct shown *shown = arg;
    const struct qr_jstr *s = qr_jrepr(c, shown->name);
    snprintf(shown->text, sizeof shown->text, "%.*s", s->len > 90 ? 90 : (int)s->len, s->u.flat.data);
}

void qr_jfail_undef(struct qr_jctx *c, const struct qr_jval *v)
{
    QR_ASSERT(v->type == QR_J_UNDEF);
    const struct qr_jundef *u = v->u.undef;
    struct shown name = {.name = &u->name};
    if (u->why == QR_JUNDEF_HINT)
        qr_jfail(c, "%s", u->hint);
    qr_jcatch(c, show, &name);
    if (u->why == QR_JUNDEF_NAME)
        qr_jfail(c, "%s is undefined", name.text);
    if (u->why == QR_JUNDEF_UNSAFE)
        qr_jfail(c, "access to attribute %s of '%s' object is unsafe.", name.text,
                 qr_jtype_name(&(struct qr_jval){.type = (uint8_t)u->of, .u.s = &(struct qr_jstr){0}}));
    if (u->name.type != QR_J_STR)
        qr_jfail(c, "%s has no element %s", qr_jtype_repr(u->of), name.text);
    qr_jfail(c, "'%s' has no attribute %s", qr_jtype_repr(u->of), name.text);
}
