/* node.c - the tools of both parser files: looking at tokens, errors with their place, nodes, symbols, lists of nodes. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "tokenizer/jinja/ast.h"

const struct qr_jtoken *qr_jpeek(const struct qr_jparser *p)
{
    QR_ASSERT(p->pos < p->tok.n);
    return &p->tok.at[p->pos];
}

const struct qr_jtoken *qr_jpeek2(const struct qr_jparser *p)
{
    QR_ASSERT(p->pos < p->tok.n);
    return &p->tok.at[p->pos + 1 < p->tok.n ? p->pos + 1 : p->pos];
}

const struct qr_jtoken *qr_jnext(struct qr_jparser *p)
{
    const struct qr_jtoken *t = qr_jpeek(p);
    if (t->type != QR_JT_EOF)
        p->pos++;
    return t;
}

bool qr_jskip(struct qr_jparser *p, enum qr_jtok type)
{
    if (qr_jpeek(p)->type != type)
        return false;
    qr_jnext(p);
    return true;
}

bool qr_jtoken_is(const struct qr_jtoken *t, const char *name)
{
    return t->type == QR_JT_NAME && strlen(name) == t->len && memcmp(t->text, name, t->len) == 0;
}

bool qr_jis_name(const struct qr_jparser *p, const char *name)
{
    QR_ASSERT(name != NULL);
    return qr_jtoken_is(qr_jpeek(p), name);
}

bool qr_jskip_name(struct qr_jparser *p, const char *name)
{
    if (!qr_jis_name(p, name))
        return false;
    qr_jnext(p);
    return true;
}

const char *qr_jtoken_name(const struct qr_jtoken *t, char buf[64])
{
    switch (t->type) {
    case QR_JT_EOF: return "the end of the template";
    case QR_JT_DATA: return "text";
    case QR_JT_STRING: return "a string";
    default: snprintf(buf, 64, "'%.*s'", t->len > 40 ? 40 : (int)t->len, t->text); return buf;
    }
}

void *qr_jparse_error(struct qr_jparser *p, int32_t line, int32_t col, const char *fmt, ...)
{
    char what[360], at[32] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (col > 0)
        snprintf(at, sizeof at, ", column %d", col);
    qr_err_set(p->err, QR_E_INVALID, "template line %d%s: %s", line, at, what);
    return NULL;
}

void *qr_junexpected(struct qr_jparser *p, const char *wanted)
{
    char buf[64];
    const struct qr_jtoken *t = qr_jpeek(p);
    return qr_jparse_error(p, t->line, t->col, "expected %s, found %s", wanted, qr_jtoken_name(t, buf));
}

bool qr_jexpect(struct qr_jparser *p, enum qr_jtok type, const char *what)
{
    if (qr_jskip(p, type))
        return true;
    qr_junexpected(p, what);
    return false;
}

bool qr_jenter(struct qr_jparser *p)
{
    if (p->depth >= QR_JINJA_PARSE_DEPTH_MAX) {
        qr_jparse_error(p, qr_jpeek(p)->line, qr_jpeek(p)->col, "nested deeper than %d", QR_JINJA_PARSE_DEPTH_MAX);
        return false;
    }
    p->depth++;
    return true;
}

void qr_jleave(struct qr_jparser *p)
{
    QR_ASSERT(p->depth > 0);
    p->depth--;
}

void *qr_jparse_alloc(struct qr_jparser *p, size_t n, size_t size)
{
    size_t bytes;
    void *mem = qr_mul_size(n ? n : 1, size, &bytes) ? qr_arena_try(&p->t->arena, bytes, 8) : NULL;
    if (!mem)
        return qr_jparse_error(p, qr_jpeek(p)->line, 0, "the template needs too much memory");
    return memset(mem, 0, bytes);
}

struct qr_jnode *qr_jnode_new(struct qr_jparser *p, enum qr_jkind kind, int32_t line)
{
    QR_ASSERT(kind < QR_JN_KINDS);
    struct qr_jnode *n = qr_jparse_alloc(p, 1, sizeof *n);
    if (n) {
        n->kind = (uint8_t)kind;
        n->line = line;
        n->height = 1;
    }
    return n;
}

int32_t qr_jsymbol(struct qr_jparser *p, const char *name, size_t len)
{
    struct qr_template *t = p->t;
    QR_ASSERT(name != NULL && len > 0);
    int32_t sym = qr_map_find(&t->map, name, len, -1);
    if (sym >= 0)
        return sym;
    char *copy = qr_jparse_alloc(p, len + 1, 1);
    if (!copy)
        return -1;
    memcpy(copy, name, len);
    if (t->n_syms == t->cap_syms) {
        t->cap_syms = t->cap_syms ? t->cap_syms * 2 : 64;
        t->name = qr_realloc(t->name, (size_t)t->cap_syms, sizeof *t->name);
    }
    t->name[t->n_syms] = copy;
    qr_map_add(&t->map, copy, len, t->n_syms);
    return t->n_syms++;
}

void qr_jvec_push(struct qr_jvec *v, struct qr_jnode *n)
{
    QR_ASSERT(n != NULL);
    if (v->n == v->cap) {
        v->cap = v->cap ? v->cap * 2 : 8;
        v->at = qr_realloc(v->at, (size_t)v->cap, sizeof *v->at);
    }
    v->at[v->n++] = n;
}

bool qr_jvec_done(struct qr_jparser *p, struct qr_jvec *v, struct qr_jnodes *out)
{
    struct qr_jnode **at = qr_jparse_alloc(p, (size_t)v->n, sizeof *at);
    if (at && v->n > 0)
        memcpy(at, v->at, (size_t)v->n * sizeof *at);
    *out = (struct qr_jnodes){at, v->n};
    qr_free(v->at);
    *v = (struct qr_jvec){0};
    return at != NULL;
}
