/* derive.c - derivatives: what is left of an expression behind one byte (Brzozowski 1964), as one expression where intersections and
 * complements need that, and as parts otherwise (Antimirov 1996), which keeps rules and long lists of alternatives cheap. Also what is
 * known of an expression beforehand: whether it may be empty, and how short a text of it can be; an expression without any text is
 * dead, and no derivative that is told is. Nothing here allocates; work is counted. One owning thread. */
#include "answers/grammar/exprs.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define SEARCH_MAX 16384 /* nodes of one search for a text of an intersection */
#define FINISH_WORK_MAX 2000000 /* steps of derivation: some tenths of a second */
#define LEVEL_MAX 2000   /* rules that begin with rules */

static bool in_set(const struct qr_exprs *x, const struct qr_expr_node *d, int32_t cls)
{
    return qr_set_has(&x->set[d->a], x->rep[cls]);
}

/* ---- one expression ---- */

static int32_t derive(struct qr_exprs *x, int32_t e, int32_t cls);

/* The members' derivatives, joined as the list is. */
static int32_t derive_list(struct qr_exprs *x, int32_t e, int32_t cls)
{
    const bool any = x->node[e].kind == QR_EXPR_K_OR;
    const int32_t kind = x->node[e].kind;
    int32_t all = any ? QR_EXPR_NONE : x->anything;
    for (bool last = false; !last && !(all == QR_EXPR_NONE && !any); e = x->node[e].b) {
        last = x->node[e].kind != kind;
        const int32_t one = derive(x, last ? e : x->node[e].a, cls);
        all = any ? qr_expr_or(x, all, one) : qr_expr_and(x, all, one);
    }
    return all;
}

static int32_t derive_now(struct qr_exprs *x, int32_t e, int32_t cls)
{
    const struct qr_expr_node d = x->node[e]; /* a copy: nodes may move */
    switch ((enum qr_expr_kind)d.kind) {
    case QR_EXPR_K_SET: return in_set(x, &d, cls) ? QR_EXPR_EMPTY : QR_EXPR_NONE;
    case QR_EXPR_K_NOT: return qr_expr_not(x, derive(x, d.a, cls));
    case QR_EXPR_K_OR:
    case QR_EXPR_K_AND: return derive_list(x, e, cls);
    case QR_EXPR_K_REPEAT:
        return qr_expr_cat(x, derive(x, d.a, cls), qr_expr_repeat(x, d.a, d.b > 0 ? d.b - 1 : 0, d.c == QR_REPEAT_FOREVER ? d.c : d.c - 1));
    case QR_EXPR_K_CAT: {
        const int32_t first = qr_expr_cat(x, derive(x, d.a, cls), d.b);
        return qr_expr_nullable(x, d.a) ? qr_expr_or(x, first, derive(x, d.b, cls)) : first;
    }
    default: return QR_EXPR_NONE;
    }
}

static int32_t derive(struct qr_exprs *x, int32_t e, int32_t cls)
{
    if (!qr_first_has(&x->node[e].first, cls))
        return QR_EXPR_NONE;
    if (x->node[e].kind <= QR_EXPR_K_SET)
        return derive_now(x, e, cls);
    struct qr_derived *slot = &x->derived[((uint32_t)e * 2654435761u + (uint32_t)cls * 40503u) >> 7 & (QR_DERIVED_SLOTS - 1)];
    if (slot->e == e && slot->cls == cls)
        return slot->result;
    x->work++;
    const int32_t result = derive_now(x, e, cls);
    if (!x->failed)
        *slot = (struct qr_derived){e, cls, result};
    return result;
}

int32_t qr_expr_derive(struct qr_exprs *x, int32_t e, int32_t cls)
{
    QR_ASSERT(x != NULL && x->n_classes > 0);
    QR_ASSERT(e >= 0 && e < x->n && (x->node[e].flags & QR_EXPR_REGULAR));
    return derive(x, e, cls);
}

/* ---- parts ---- */

struct parts { struct qr_exprs *x; int32_t cls; qr_expr_part_fn *said; void *user; };

static void say(const struct parts *p, int32_t e)
{
    if (qr_expr_alive(p->x, e))
        p->said(p->user, e);
}

/* Of e behind the byte, each with `rest` behind it. */
static void parts(const struct parts *p, int32_t e, int32_t rest)
{
    struct qr_exprs *x = p->x;
    for (x->work++; rest != QR_EXPR_NONE && qr_first_has(&x->node[e].first, p->cls);) {
        const struct qr_expr_node d = x->node[e];
        switch ((enum qr_expr_kind)d.kind) {
        case QR_EXPR_K_SET:
            if (in_set(x, &d, p->cls))
                say(p, rest);
            return;
        case QR_EXPR_K_OR:
            parts(p, d.a, rest);
            e = d.b;
            continue;
        case QR_EXPR_K_CAT:
            parts(p, d.a, qr_expr_cat(x, d.b, rest));
            if (!qr_expr_nullable(x, d.a))
                return;
            e = d.b;
            continue;
        case QR_EXPR_K_REPEAT: {
            const int32_t min = d.b > 0 && !qr_expr_nullable(x, d.a) ? d.b - 1 : 0;
            rest = qr_expr_cat(x, qr_expr_repeat(x, d.a, min, d.c == QR_REPEAT_FOREVER ? d.c : d.c - 1), rest);
            e = d.a;
            continue;
        }
        case QR_EXPR_K_AND:
        case QR_EXPR_K_NOT: say(p, qr_expr_cat(x, derive(x, e, p->cls), rest)); return;
        case QR_EXPR_K_RULE:
            if (x->level == LEVEL_MAX) {
                struct qr_err err = {0};
                qr_err_set(&err, QR_E_TOO_LARGE, "rules begin with rules, %d deep", LEVEL_MAX);
                qr_expr_fail(x, &err);
                return;
            }
            x->level++;
            parts(p, x->rule[d.a].body, rest);
            x->level--;
            return;
        default: return;
        }
    }
}

void qr_expr_parts(struct qr_exprs *x, int32_t e, int32_t cls, qr_expr_part_fn *said, void *user)
{
    QR_ASSERT(x != NULL && said != NULL);
    QR_ASSERT(cls >= 0 && cls < x->n_classes && e >= 0 && e < x->n);
    const struct parts p = {x, cls, said, user};
    parts(&p, e, QR_EXPR_EMPTY);
}

/* ---- what is known of an expression ---- */

static int32_t add(int32_t a, int32_t b)
{
    return a > QR_EXPR_DEAD - b ? QR_EXPR_DEAD : a + b; /* DEAD stays dead; what is as long as that is, too */
}

static int32_t times(int32_t a, int32_t n)
{
    return n == 0 ? 0 : a > (QR_EXPR_DEAD - 1) / n ? (a == QR_EXPR_DEAD ? a : QR_EXPR_DEAD - 1) : a * n;
}

static bool nullable_of(const struct qr_exprs *x, const struct qr_expr_node *d)
{
    switch ((enum qr_expr_kind)d->kind) {
    case QR_EXPR_K_EMPTY: return true;
    case QR_EXPR_K_CAT:
    case QR_EXPR_K_AND: return qr_expr_nullable(x, d->a) && qr_expr_nullable(x, d->b);
    case QR_EXPR_K_OR: return qr_expr_nullable(x, d->a) || qr_expr_nullable(x, d->b);
    case QR_EXPR_K_NOT: return !qr_expr_nullable(x, d->a);
    case QR_EXPR_K_REPEAT: return d->b == 0 || qr_expr_nullable(x, d->a);
    case QR_EXPR_K_RULE: return x->rule[d->a].nullable;
    default: return false;
    }
}

/* -1: it has to be searched for. */
static int32_t shortest_of(const struct qr_exprs *x, const struct qr_expr_node *d)
{
    switch ((enum qr_expr_kind)d->kind) {
    case QR_EXPR_K_NONE: return QR_EXPR_DEAD;
    case QR_EXPR_K_EMPTY: return 0;
    case QR_EXPR_K_SET: return 1;
    case QR_EXPR_K_CAT: return x->node[d->a].shortest < 0 || x->node[d->b].shortest < 0 ? -1 : add(x->node[d->a].shortest, x->node[d->b].shortest);
    case QR_EXPR_K_OR: {
        const int32_t a = x->node[d->a].shortest, b = x->node[d->b].shortest;
        return a < 0 || b < 0 ? -1 : a < b ? a : b;
    }
    case QR_EXPR_K_REPEAT: return d->b == 0 ? 0 : x->node[d->a].shortest < 0 ? -1 : times(x->node[d->a].shortest, d->b);
    case QR_EXPR_K_RULE: return x->rule[d->a].shortest;
    default: return d->flags & QR_EXPR_NULLABLE ? 0 : -1;
    }
}

static struct qr_first first_of_set(const struct qr_exprs *x, const struct qr_byte_set *set)
{
    struct qr_first f = {{0}};
    for (int32_t c = 0; c < x->n_classes; c++) {
        const int32_t bit = c < QR_FIRST_BITS ? c : QR_FIRST_BITS - 1;
        f.bits[bit >> 6] |= (uint64_t)qr_set_has(set, x->rep[c]) << (bit & 63);
    }
    return f;
}

static struct qr_first first_of(const struct qr_exprs *x, const struct qr_expr_node *d)
{
    const struct qr_first all = {{UINT64_MAX, UINT64_MAX}};
    struct qr_first f = {{0}};
    switch ((enum qr_expr_kind)d->kind) {
    case QR_EXPR_K_SET: return first_of_set(x, &x->set[d->a]);
    case QR_EXPR_K_NOT: return all;
    case QR_EXPR_K_REPEAT: return x->node[d->a].first;
    case QR_EXPR_K_RULE: return x->rule[d->a].first;
    case QR_EXPR_K_CAT:
        if (!qr_expr_nullable(x, d->a))
            return x->node[d->a].first;
        /* fall through */
    case QR_EXPR_K_OR:
    case QR_EXPR_K_AND:
        for (int i = 0; i < QR_FIRST_BITS / 64; i++) {
            const uint64_t a = x->node[d->a].first.bits[i], b = x->node[d->b].first.bits[i];
            f.bits[i] = d->kind == QR_EXPR_K_AND ? a & b : a | b;
        }
        return f;
    default: return f;
    }
}

void qr_expr_know(struct qr_exprs *x, int32_t e)
{
    struct qr_expr_node *d = &x->node[e];
    if (x->n_classes > 0)
        d->first = first_of(x, d);
    const bool leaf = d->kind <= QR_EXPR_K_SET, rule = d->kind == QR_EXPR_K_RULE;
    const bool two = d->kind == QR_EXPR_K_CAT || d->kind == QR_EXPR_K_OR || d->kind == QR_EXPR_K_AND;
    const uint8_t operands = leaf ? 0xff : rule ? 0 : two ? x->node[d->a].flags & x->node[d->b].flags : x->node[d->a].flags;
    d->flags = (operands & QR_EXPR_REGULAR) | (nullable_of(x, d) ? QR_EXPR_NULLABLE : 0);
    d->shortest = shortest_of(x, d);
    if (x->long_from > 0)
        qr_expr_know_long(x, e);
}

void qr_expr_know_long(struct qr_exprs *x, int32_t e)
{
    struct qr_expr_node *d = &x->node[e];
    const bool leaf = d->kind <= QR_EXPR_K_SET || d->kind == QR_EXPR_K_RULE;
    const bool two = d->kind == QR_EXPR_K_CAT || d->kind == QR_EXPR_K_OR || d->kind == QR_EXPR_K_AND;
    const bool counts = d->kind == QR_EXPR_K_REPEAT && (d->b > x->long_from + 1 || (d->c > x->long_from && d->c != QR_REPEAT_FOREVER));
    if (counts || (!leaf && (x->node[d->a].flags & QR_EXPR_LONG)) || (two && (x->node[d->b].flags & QR_EXPR_LONG)))
        d->flags |= QR_EXPR_LONG;
}

/* ---- texts of intersections ---- */

static void found(struct qr_exprs *x, const int32_t *queue, const int32_t *from, int32_t at, int32_t shortest)
{
    for (; at >= 0; at = from[at], shortest++)
        if (x->node[queue[at]].shortest < 0 || x->node[queue[at]].shortest > shortest)
            x->node[queue[at]].shortest = shortest;
}

static void too_costly(struct qr_exprs *x)
{
    struct qr_err err = {0};
    qr_err_set(&err, QR_E_TOO_LARGE, "the grammar is too costly: whether a text can satisfy all of its demands at once takes too long to find out");
    qr_expr_fail(x, &err);
}

/* Breadth first over derivatives of e until one is empty or known. */
static void search(struct qr_exprs *x, int32_t e)
{
    int32_t *queue = x->queue, *from = queue + SEARCH_MAX, n = 0;
    x->node[e].seen = ++x->n_searches;
    queue[n] = e;
    from[n++] = -1;
    for (int32_t at = 0; at < n; at++) {
        for (int32_t cls = 0; cls < x->n_classes; cls++) {
            const int32_t next = derive(x, queue[at], cls);
            if (x->work > x->work_end)
                too_costly(x);
            if (x->failed)
                return;
            const int32_t s = next == QR_EXPR_NONE ? QR_EXPR_DEAD : x->node[next].shortest;
            if (s >= 0 && s < QR_EXPR_DEAD) {
                found(x, queue, from, at, s + 1);
                return;
            }
            if (s == QR_EXPR_DEAD || x->node[next].seen == x->n_searches)
                continue;
            x->node[next].seen = x->n_searches;
            if (n == SEARCH_MAX) { /* it may be alive */
                x->node[e].shortest = QR_EXPR_DEAD - 1;
                return;
            }
            queue[n] = next;
            from[n++] = at;
        }
    }
    for (int32_t i = 0; i < n; i++)
        x->node[queue[i]].shortest = QR_EXPR_DEAD;
}

/* Of an expression whose parts were not known when it was made. */
static int32_t know_now(struct qr_exprs *x, int32_t e)
{
    const struct qr_expr_node d = x->node[e];
    if (d.shortest >= 0)
        return d.shortest;
    if (d.kind == QR_EXPR_K_AND || d.kind == QR_EXPR_K_NOT)
        search(x, e);
    else {
        know_now(x, d.a);
        for (int32_t b = d.b; d.kind != QR_EXPR_K_REPEAT && x->node[b].shortest < 0;) {
            int32_t last = b; /* of a long list the end comes first */
            while (x->node[last].kind == d.kind && x->node[x->node[last].b].shortest < 0)
                last = x->node[last].b;
            const struct qr_expr_node l = x->node[last];
            if (l.kind == d.kind) {
                know_now(x, l.a);
                x->node[last].shortest = shortest_of(x, &l);
            } else
                know_now(x, last);
            if (x->failed)
                return QR_EXPR_DEAD;
        }
        x->node[e].shortest = shortest_of(x, &d);
    }
    return x->node[e].shortest;
}

bool qr_expr_alive(struct qr_exprs *x, int32_t e)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(e >= 0 && e < x->n);
    const int32_t s = x->node[e].shortest >= 0 ? x->node[e].shortest : know_now(x, e);
    return s != QR_EXPR_DEAD && !x->failed;
}

/* ---- the end of writing ---- */

/* Bytes that no set tells apart are one class. */
static void make_classes(struct qr_exprs *x)
{
    int32_t n = 1;
    memset(x->cls, 0, sizeof x->cls);
    for (int32_t i = 0; i < x->n_sets && n < 256; i++) {
        int16_t split[256];
        memset(split, -1, sizeof split);
        bool in[256] = {false}, out[256] = {false};
        for (int b = 0; b < 256; b++)
            *(qr_set_has(&x->set[i], (uint8_t)b) ? &in[x->cls[b]] : &out[x->cls[b]]) = true;
        for (int b = 0; b < 256; b++) {
            const int c = x->cls[b];
            if (!in[c] || !out[c] || !qr_set_has(&x->set[i], (uint8_t)b))
                continue;
            if (split[c] < 0)
                split[c] = (int16_t)n++;
            x->cls[b] = (uint8_t)split[c];
        }
    }
    for (int b = 255; b >= 0; b--)
        x->rep[x->cls[b]] = (uint8_t)b;
    x->n_classes = n;
}

static bool learn_rules(struct qr_exprs *x)
{
    bool changed = false;
    for (int32_t i = 0; i < x->n_rules; i++) {
        struct qr_expr_rule *r = &x->rule[i];
        const bool nullable = qr_expr_nullable(x, r->body);
        const int32_t s = x->node[r->body].shortest;
        changed |= nullable != r->nullable || (s >= 0 && s < r->shortest) || memcmp(&r->first, &x->node[r->body].first, sizeof r->first) != 0;
        r->first = x->node[r->body].first;
        r->nullable = nullable;
        r->shortest = s >= 0 && s < r->shortest ? s : r->shortest;
    }
    return changed;
}

/* Least fixed points of "may be empty", of first bytes and of the shortest text over all rules. */
static void learn(struct qr_exprs *x)
{
    const int32_t n = x->n; /* searches add nodes behind it, which are known when they are needed */
    x->work_end = x->work + FINISH_WORK_MAX;
    for (int32_t e = 2; e < n; e++)
        x->node[e].first = first_of(x, &x->node[e]);
    for (int32_t e = 2; e < n && !x->failed; e++) /* AND and NOT have no rules inside */
        if ((x->node[e].flags & QR_EXPR_REGULAR) && x->node[e].shortest < 0)
            know_now(x, e);
    do {
        for (int32_t e = 2; e < n; e++)
            if (!(x->node[e].flags & QR_EXPR_REGULAR))
                qr_expr_know(x, e);
    } while (learn_rules(x) && !x->failed);
}

int qr_exprs_finish(struct qr_exprs *x, int32_t root, struct qr_err *err)
{
    QR_ASSERT(x != NULL && err != NULL);
    QR_ASSERT(root >= 0 && root < x->n && x->n_classes == 0);
    for (int32_t i = 0; i < x->n_rules && !x->failed; i++)
        if (!x->rule[i].defined)
            return qr_err_set(err, QR_E_INVALID, "the rule %s is named, but not defined", x->rule[i].name);
    qr_expr_anything(x);
    int rc = x->failed ? 0 : qr_exprs_unrecurse(x, err);
    if (rc != 0)
        return rc;
    make_classes(x);
    x->derived = qr_alloc(QR_DERIVED_SLOTS, sizeof *x->derived);
    x->queue = qr_alloc(2 * SEARCH_MAX, sizeof *x->queue);
    if (!x->derived || !x->queue)
        return qr_err_set(err, QR_E_NO_ROOM, "there is no memory for a grammar");
    learn(x);
    if (x->failed)
        *err = x->err;
    return x->failed ? x->err.code : 0;
}
