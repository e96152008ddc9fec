/* json.c - the tojson filter: Python's json.dumps as Hugging Face calls it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "tokenizer/jinja/value.h"

struct writer {
    struct qr_jsb b;
    const struct qr_jjson_opts *o;
    int32_t level;
};

static void newline(struct writer *w)
{
    if (!w->o->indent)
        return;
    qr_jsb_puts(&w->b, "\n");
    for (int32_t i = 0; i < w->level; i++)
        qr_jsb_put(&w->b, w->o->indent->u.flat.data, w->o->indent->len, true);
}

/* arg: whether all that is not ASCII is escaped. */
static bool escape(uint32_t cp, const void *arg, char esc[16])
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const bool ascii = *(const bool *)arg;
    const char *p = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
    if (p)
        snprintf(esc, 16, "\\%c", to[p - from]);
    else if (cp < 0x20 || (ascii && cp > 0x7f && cp < 0x10000))
        snprintf(esc, 16, "\\u%04x", cp);
    else if (ascii && cp >= 0x10000)
        snprintf(esc, 16, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10), 0xdc00 + ((cp - 0x10000) & 0x3ff));
    else
        return false;
    return true;
}

static void string(struct writer *w, struct qr_jstr *s)
{
    qr_jsb_puts(&w->b, "\"");
    qr_jsb_put_escaped(&w->b, s, escape, &w->o->ascii);
    qr_jsb_puts(&w->b, "\"");
}

static void scalar(struct writer *w, const struct qr_jval *v)
{
    char buf[40];
    if (v->type == QR_J_NONE)
        strcpy(buf, "null");
    else if (v->type == QR_J_BOOL)
        strcpy(buf, v->u.b ? "true" : "false");
    else if (v->type == QR_J_INT)
        snprintf(buf, sizeof buf, "%lld", (long long)v->u.i);
    else if (isnan(v->u.f))
        strcpy(buf, "NaN");
    else if (isinf(v->u.f))
        strcpy(buf, v->u.f > 0 ? "Infinity" : "-Infinity");
    else
        qr_jfloat_text(buf, v->u.f);
    qr_jsb_put(&w->b, buf, strlen(buf), !v->untrusted);
}

static void value(struct writer *w, const struct qr_jval *v);

static void array(struct writer *w, const struct qr_jseq *seq)
{
    if (seq->n == 0) {
        qr_jsb_puts(&w->b, "[]");
        return;
    }
    qr_jsb_puts(&w->b, "[");
    w->level++;
    for (int64_t i = 0; i < seq->n; i++) {
        if (i > 0)
            qr_jsb_put_str(&w->b, w->o->item);
        newline(w);
        value(w, &seq->at[i]);
    }
    w->level--;
    newline(w);
    qr_jsb_puts(&w->b, "]");
}

static void key(struct writer *w, const struct qr_jval *k)
{
    switch (k->type) {
    case QR_J_STR: string(w, k->u.s); break;
    case QR_J_NONE:
    case QR_J_BOOL:
    case QR_J_INT:
    case QR_J_BIG:
    case QR_J_FLOAT:
        qr_jsb_puts(&w->b, "\"");
        value(w, k);
        qr_jsb_puts(&w->b, "\"");
        break;
    default: qr_jfail(w->b.c, "keys must be str, int, float, bool or None, not %s", qr_jtype_name(k));
    }
    qr_jsb_put_str(&w->b, w->o->key);
}

/* The entries in the order of their keys, as sort_keys wants: all keys, then all values. */
static struct qr_jval *sorted(struct qr_jctx *c, const struct qr_jdict *d)
{
    const size_t n = (size_t)d->n;
    struct qr_jval *order = qr_jalloc(c, n * 3, sizeof *order), *keys = order + n, *vals = keys + n;
    for (size_t i = 0; i < n; i++) {
        order[i] = keys[i] = d->at[i].key;
        vals[i] = d->at[i].val;
    }
    qr_jsort(c, order, keys, d->n, false);
    qr_jsort(c, order, vals, d->n, false);
    return keys;
}

static void object(struct writer *w, const struct qr_jdict *d)
{
    if (d->n == 0) {
        qr_jsb_puts(&w->b, "{}");
        return;
    }
    const struct qr_jval *keys = w->o->sort ? sorted(w->b.c, d) : NULL;
    qr_jsb_puts(&w->b, "{");
    w->level++;
    for (int32_t i = 0; i < d->n; i++) {
        if (i > 0)
            qr_jsb_put_str(&w->b, w->o->item);
        newline(w);
        key(w, keys ? &keys[i] : &d->at[i].key);
        value(w, keys ? &keys[d->n + i] : &d->at[i].val);
    }
    w->level--;
    newline(w);
    qr_jsb_puts(&w->b, "}");
}

static void value(struct writer *w, const struct qr_jval *v)
{
    qr_jcharge(w->b.c, 1);
    qr_jdown(w->b.c);
    switch (v->type) {
    case QR_J_NONE:
    case QR_J_BOOL:
    case QR_J_INT:
    case QR_J_FLOAT: scalar(w, v); break;
    case QR_J_BIG: qr_jsb_put_str(&w->b, v->u.s); break;
    case QR_J_STR: string(w, v->u.s); break;
    case QR_J_LIST:
    case QR_J_TUPLE: array(w, v->u.seq); break;
    case QR_J_DICT: object(w, v->u.d); break;
    default: qr_jfail(w->b.c, "Object of type %s is not JSON serializable", qr_jtype_name(v));
    }
    qr_jup(w->b.c);
}

struct qr_jstr *qr_jjson(struct qr_jctx *c, const struct qr_jval *v, const struct qr_jjson_opts *o)
{
    QR_ASSERT(o->item != NULL && o->key != NULL);
    struct writer w = {.o = o};
    qr_jsb_init(&w.b, c);
    value(&w, v);
    return qr_jsb_done_whole(&w.b);
}
