/* json.c - the tojson filter: Python's json.dumps as Hugging Face calls it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "tokenizer/jinja/value.h"

struct writer {
    struct qr_jsb b;
    const struct qr_jjson_opts *o;
    int32_t level;
};

static void newline(struct writer *w)
{
    if (!w->o->pretty)
        return;
    qr_jsb_puts(&w->b, "\n");
    for (int32_t i = 0; i < w->level && w->b.rc == 0; i++)
        qr_jsb_put(&w->b, w->o->indent, w->o->indent_len, true);
}

/* The escape of cp, or false when it stands for itself. */
static bool escape(uint32_t cp, bool ascii, char esc[16])
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const char *p = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
    if (p)
        snprintf(esc, 16, "\\%c", to[p - from]);
    else if (cp < 0x20 || (ascii && cp >= 0x7f && cp < 0x10000 && cp != 0x7f))
        snprintf(esc, 16, "\\u%04x", cp);
    else if (ascii && cp >= 0x10000)
        snprintf(esc, 16, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10), 0xdc00 + ((cp - 0x10000) & 0x3ff));
    else
        return false;
    return true;
}

static void string(struct writer *w, struct qr_jstr *s)
{
    struct qr_jsb *b = &w->b;
    b->rc = b->rc ? b->rc : qr_jstr_flat(b->c, s);
    if (b->rc)
        return;
    const char *p = s->u.flat.data;
    size_t from = 0;
    qr_jsb_puts(b, "\"");
    for (size_t i = 0; i < s->len && b->rc == 0;) {
        uint32_t cp;
        char esc[16];
        int32_t len = qr_utf8_decode(p + i, s->len - i, &cp);
        QR_ASSERT(len > 0);
        if (escape(cp, w->o->ascii, esc)) {
            qr_jsb_put_range(b, s, from, i);
            qr_jsb_put(b, esc, strlen(esc), s->trust == QR_JTRUST_ALL);
            from = i + (size_t)len;
        }
        i += (size_t)len;
    }
    if (b->rc == 0)
        qr_jsb_put_range(b, s, from, s->len);
    qr_jsb_puts(b, "\"");
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
    for (int64_t i = 0; i < seq->n && w->b.rc == 0; i++) {
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
    default:
        if (w->b.rc == 0)
            w->b.rc = qr_jfail(w->b.c, "keys must be str, int, float, bool or None, not %s", qr_jtype_name(k));
    }
    qr_jsb_put_str(&w->b, w->o->key);
}

/* The entries in the order of their keys, as sort_keys wants. */
static int sorted(struct qr_jctx *c, const struct qr_jdict *d, struct qr_jval **keys, struct qr_jval **vals)
{
    struct qr_jval *order = qr_jalloc(c, (size_t)d->n * 3, sizeof *order);
    if (!order)
        return QR_E_TOO_LARGE;
    *keys = order + d->n;
    *vals = order + 2 * d->n;
    for (int32_t i = 0; i < d->n; i++) {
        order[i] = (*keys)[i] = d->at[i].key;
        (*vals)[i] = d->at[i].val;
    }
    int rc = qr_jsort(c, order, *keys, d->n, false);
    return rc ? rc : qr_jsort(c, order, *vals, d->n, false);
}

static void object(struct writer *w, const struct qr_jdict *d)
{
    struct qr_jval *keys = NULL, *vals = NULL;
    if (d->n == 0) {
        qr_jsb_puts(&w->b, "{}");
        return;
    }
    if (w->o->sort && (w->b.rc = sorted(w->b.c, d, &keys, &vals)))
        return;
    qr_jsb_puts(&w->b, "{");
    w->level++;
    for (int32_t i = 0; i < d->n && w->b.rc == 0; i++) {
        if (i > 0)
            qr_jsb_put_str(&w->b, w->o->item);
        newline(w);
        key(w, keys ? &keys[i] : &d->at[i].key);
        value(w, vals ? &vals[i] : &d->at[i].val);
    }
    w->level--;
    newline(w);
    qr_jsb_puts(&w->b, "}");
}

static void value(struct writer *w, const struct qr_jval *v)
{
    if (w->b.rc == 0)
        w->b.rc = qr_jcharge(w->b.c, 1);
    if (w->b.rc || (w->b.rc = qr_jdown(w->b.c)))
        return;
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
    default: w->b.rc = qr_jfail(w->b.c, "Object of type %s is not JSON serializable", qr_jtype_name(v));
    }
    qr_jup(w->b.c);
}

int qr_jjson(struct qr_jctx *c, const struct qr_jval *v, const struct qr_jjson_opts *o, struct qr_jstr **out)
{
    QR_ASSERT(o->item != NULL && o->key != NULL);
    struct writer w = {.o = o};
    qr_jsb_init(&w.b, c);
    value(&w, v);
    bool trusted = w.b.n_runs == 0 || (w.b.n_runs == 1 && w.b.run[0].trusted);
    return qr_jsb_done_as(&w.b, trusted, out);
}
