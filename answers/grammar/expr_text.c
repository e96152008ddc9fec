/* expr_text.c - expressions of texts: bytes in a row, any of many texts, texts up to a marker. Many texts become one tree, so that their
 * number does not show in a step. One owning thread. */
#include "answers/grammar/exprs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"

/* ---- bytes ---- */

int32_t qr_expr_bytes(struct qr_exprs *x, const char *bytes, size_t len)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(bytes != NULL || len == 0);
    int32_t e = QR_EXPR_EMPTY;
    for (size_t i = len; i > 0; i--)
        e = qr_expr_cat(x, qr_expr_range(x, (uint8_t)bytes[i - 1], (uint8_t)bytes[i - 1]), e);
    return e;
}

int32_t qr_expr_text(struct qr_exprs *x, const char *text)
{
    QR_ASSERT(text != NULL);
    return qr_expr_bytes(x, text, strlen(text));
}

int32_t qr_expr_token(struct qr_exprs *x, int32_t id)
{
    char text[16];
    QR_ASSERT(id >= 0);
    const int n = snprintf(text, sizeof text, "\xff%d;", (int)id);
    return qr_expr_bytes(x, text, (size_t)n);
}

/* ---- any of many ---- */

struct headed { int32_t head, rest; };

static struct headed headed_of(struct qr_exprs *x, int32_t e)
{
    int32_t rest = QR_EXPR_EMPTY;
    while (x->node[e].kind == QR_EXPR_K_CAT) { /* what comes first may be a row itself */
        const struct qr_expr_node d = x->node[e];
        rest = qr_expr_cat(x, d.b, rest);
        e = d.a;
    }
    return (struct headed){e, rest};
}

static int by_number(const void *a, const void *b)
{
    const int32_t p = *(const int32_t *)a, q = *(const int32_t *)b;
    return (p > q) - (p < q);
}

static int by_head(const void *a, const void *b)
{
    const struct headed *p = a, *q = b;
    return p->head != q->head ? by_number(&p->head, &q->head) : by_number(&p->rest, &q->rest);
}

/* Any of part[0..n) as a tree by what they begin with; part is scratch. */
static int32_t tree(struct qr_exprs *x, struct headed *part, int32_t n, int level)
{
    int32_t e = QR_EXPR_NONE, m = 0;
    qsort(part, (size_t)n, sizeof *part, by_head);
    for (int32_t i = 0; i < n; i++)
        if (m == 0 || by_head(&part[m - 1], &part[i]) != 0)
            part[m++] = part[i];
    for (int32_t end = m, at = m; end > 0; end = at) {
        int32_t rest = QR_EXPR_NONE;
        const int32_t head = part[end - 1].head;
        while (at > 0 && part[at - 1].head == head)
            at--;
        if (end - at > 1 && level > 0) {
            for (int32_t i = at; i < end; i++)
                part[i] = headed_of(x, part[i].rest);
            rest = tree(x, part + at, end - at, level - 1);
        } else
            for (int32_t i = at; i < end; i++)
                rest = qr_expr_or(x, rest, part[i].rest);
        e = qr_expr_or(x, qr_expr_cat(x, head, rest), e);
    }
    return e;
}

int32_t qr_expr_any(struct qr_exprs *x, const int32_t *part, int32_t n)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(part != NULL || n == 0);
    struct headed *h = qr_alloc((size_t)n + 1, sizeof *h);
    if (!h) {
        struct qr_err err = {0};
        qr_err_set(&err, QR_E_TOO_LARGE, "there is no memory for %d alternatives", (int)n);
        return qr_expr_fail(x, &err);
    }
    int32_t k = 0;
    for (int32_t i = 0; i < n; i++)
        if (part[i] != QR_EXPR_NONE)
            h[k++] = headed_of(x, part[i]);
    const int32_t e = tree(x, h, k, QR_EXPR_DEPTH_MAX / 4);
    qr_free(h);
    return e;
}

int32_t qr_expr_any_text(struct qr_exprs *x, const char *const *text, const size_t *len, int32_t n)
{
    QR_ASSERT(x != NULL && text != NULL);
    QR_ASSERT(len != NULL || n == 0);
    int32_t *part = qr_alloc((size_t)n + 1, sizeof *part);
    int32_t e = QR_EXPR_NONE;
    for (int32_t i = 0; part && i < n; i++)
        part[i] = qr_expr_bytes(x, text[i], len[i]);
    if (part)
        e = qr_expr_any(x, part, n);
    qr_free(part);
    return e;
}

/* ---- texts without an end of their own ---- */

int32_t qr_expr_anything(struct qr_exprs *x)
{
    QR_ASSERT(x != NULL);
    if (!x->anything) {
        QR_ASSERT(x->n_classes == 0);
        x->anything = qr_expr_repeat(x, qr_expr_range(x, 0, 255), 0, QR_REPEAT_FOREVER);
    }
    return x->anything;
}

int32_t qr_expr_utf8(struct qr_exprs *x)
{
    QR_ASSERT(x != NULL);
    if (!x->utf8)
        x->utf8 = qr_expr_repeat(x, qr_expr_runes(x, &(struct qr_rune_range){0, QR_RUNE_MAX}, 1), 0, QR_REPEAT_FOREVER);
    return x->utf8;
}

int32_t qr_expr_without(struct qr_exprs *x, int32_t stop)
{
    const int32_t all = qr_expr_anything(x);
    return qr_expr_not(x, qr_expr_cat(x, all, qr_expr_cat(x, stop, all)));
}

int32_t qr_expr_until(struct qr_exprs *x, int32_t stop)
{
    const int32_t all = qr_expr_anything(x), more = qr_expr_cat(x, qr_expr_range(x, 0, 255), all);
    return qr_expr_minus(x, qr_expr_cat(x, all, stop), qr_expr_cat(x, all, qr_expr_cat(x, stop, more)));
}
