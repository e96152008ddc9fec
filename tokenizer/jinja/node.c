/* node.c - the tools of the parser's files: looking at tokens, errors with their place, nodes, symbols, lists of
 * nodes. */
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

void qr_jparse_fail(struct qr_jparser *p, enum qr_code code, const char *fmt, ...)
{
    char what[450];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    qr_err_set(p->err, code, "%s", what);
    longjmp(*p->failed, 1);
}

void qr_jparse_error(struct qr_jparser *p, int32_t line, int32_t col, const char *fmt, ...)
{
    char what[360], at[32] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (col > 0)
        snprintf(at, sizeof at, ", column %d", col);
    qr_jparse_fail(p, QR_E_INVALID, "template line %d%s: %s", line, at, what);
}

void qr_junexpected(struct qr_jparser *p, const char *wanted)
{
    char buf[64];
    const struct qr_jtoken *t = qr_jpeek(p);
    qr_jparse_error(p, t->line, t->col, "expected %s, found %s", wanted, qr_jtoken_name(t, buf));
}

const struct qr_jtoken *qr_jexpect(struct qr_jparser *p, enum qr_jtok type, const char *what)
{
    const struct qr_jtoken *t = qr_jpeek(p);
    if (!qr_jskip(p, type))
        qr_junexpected(p, what);
    return t;
}

void qr_jenter(struct qr_jparser *p)
{
    if (p->depth >= QR_JINJA_PARSE_DEPTH_MAX)
        qr_jparse_error(p, qr_jpeek(p)->line, qr_jpeek(p)->col, "nested deeper than %d", QR_JINJA_PARSE_DEPTH_MAX);
    p->depth++;
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
        qr_jparse_error(p, qr_jpeek(p)->line, 0, "the template needs too much memory");
    return memset(mem, 0, bytes);
}

void *qr_jparse_grow(struct qr_jparser *p, void *at, int32_t n, size_t size)
{
    if (n & (n - 1))
        return at;
    void *grown = qr_jparse_alloc(p, n ? (size_t)n * 2 : 1, size);
    if (n > 0)
        memcpy(grown, at, (size_t)n * size);
    return grown;
}

struct qr_jnode *qr_jnode_new(struct qr_jparser *p, enum qr_jkind kind, int32_t line)
{
    QR_ASSERT(kind < QR_JN_KINDS);
    struct qr_jnode *n = qr_jparse_alloc(p, 1, sizeof *n);
    n->kind = (uint8_t)kind;
    n->line = line;
    n->height = 1;
    return n;
}

void qr_jnodes_push(struct qr_jparser *p, struct qr_jnodes *list, struct qr_jnode *n)
{
    QR_ASSERT(n != NULL);
    list->at = qr_jparse_grow(p, list->at, list->n, sizeof *list->at);
    list->at[list->n++] = n;
}

int32_t qr_jsymbol(struct qr_jparser *p, const char *name, size_t len)
{
    struct qr_template *t = p->t;
    QR_ASSERT(name != NULL && len > 0);
    int32_t sym = qr_map_find(&t->map, name, len, -1);
    if (sym >= 0)
        return sym;
    char *copy = qr_jparse_alloc(p, len + 1, 1);
    memcpy(copy, name, len);
    t->name = qr_jparse_grow(p, t->name, t->n_syms, sizeof *t->name);
    t->name[t->n_syms] = copy;
    qr_map_add(&t->map, copy, len, t->n_syms);
    return t->n_syms++;
}

/* The string is complete (flat, ASCII known): threads share it. */
struct qr_jval qr_jconst_str(struct qr_jparser *p, const char *text, size_t len)
{
    struct qr_jstr *s = qr_jparse_alloc(p, 1, sizeof *s);
    s->len = len;
    s->u.flat.data = text;
    s->trust = QR_JTRUST_ALL;
    qr_jstr_ascii(s);
    return qr_jstrv(s);
}

int qr_jparse(struct qr_jparser *p, const char *text, size_t len)
{
    jmp_buf here;
    struct qr_template *t = p->t;
    p->failed = &here;
    if (setjmp(here) != 0)
        return (int)p->err->code;
    qr_jlex(p, text, len);
    t->sym_loop = qr_jsymbol(p, "loop", 4); /* the names that the evaluator asks for itself */
    t->sym_caller = qr_jsymbol(p, "caller", 6);
    t->sym_varargs = qr_jsymbol(p, "varargs", 7);
    t->sym_kwargs = qr_jsymbol(p, "kwargs", 6);
    t->body = qr_jparse_root(p);
    return 0;
}
