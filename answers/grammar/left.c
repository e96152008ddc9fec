/* left.c - takes left recursion out of rules, so that a derivative never meets the rule that it is of: A = A t | b becomes A = b t*, and
 * of rules that begin with one another the later ones are first written out (Paull; Aho and Ullman 1972). What may be empty in
 * front of such a rule is refused by name. Only recognition matters here, so no tree has to be kept. One owning thread. */
#include "answers/grammar/exprs.h"

#include "base/assert.h"
#include "base/mem.h"

#define RULES_MAX 4096
#define SPLITS_MAX 100000

struct left {
    struct qr_exprs *x;
    uint64_t *reach;   /* owned [n][n_words]: bit j of row i: rule i begins, perhaps through others, with rule j */
    int32_t n, n_words;
    int32_t rule;      /* that is being rewritten */
    int32_t base, tail; /* what it is without itself in front, and what follows where it has itself in front */
    int32_t level;
    struct qr_err *err;
    int rc;
};

static bool nullable(const struct left *l, int32_t e)
{
    return qr_expr_nullable(l->x, e);
}

/* Marks the rules with which e may begin. */
static void begins(struct left *l, int32_t from, int32_t e)
{
    for (;;) {
        const struct qr_expr_node d = *qr_expr_at(l->x, e);
        if (d.flags & QR_EXPR_REGULAR)
            return;
        if (d.kind == QR_EXPR_K_RULE) {
            l->reach[from * l->n_words + d.a / 64] |= (uint64_t)1 << d.a % 64;
            return;
        }
        begins(l, from, d.a);
        if (d.kind == QR_EXPR_K_REPEAT || (d.kind == QR_EXPR_K_CAT && !nullable(l, d.a)))
            return;
        e = d.b;
    }
}

/* Rules that may be empty, before anything else is known of them. */
static void find_nullable(struct qr_exprs *x)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t e = 2; e < x->n; e++)
            if (!(x->node[e].flags & QR_EXPR_REGULAR))
                qr_expr_know(x, e);
        for (int32_t i = 0; i < x->n_rules; i++) {
            changed |= x->rule[i].nullable != qr_expr_nullable(x, x->rule[i].body);
            x->rule[i].nullable = qr_expr_nullable(x, x->rule[i].body);
        }
    }
}

static bool reaches(const struct left *l, int32_t i, int32_t j)
{
    return l->reach[i * l->n_words + j / 64] >> j % 64 & 1;
}

static bool recursive(const struct left *l, int32_t i, int32_t j)
{
    return reaches(l, i, j) && reaches(l, j, i);
}

/* Whether e may begin with a rule that begins with l->rule again. */
static bool comes_back(const struct left *l, int32_t e)
{
    for (;;) {
        const struct qr_expr_node d = *qr_expr_at(l->x, e);
        if (d.flags & QR_EXPR_REGULAR)
            return false;
        if (d.kind == QR_EXPR_K_RULE)
            return d.a == l->rule || recursive(l, d.a, l->rule);
        if (comes_back(l, d.a))
            return true;
        if (d.kind == QR_EXPR_K_REPEAT || (d.kind == QR_EXPR_K_CAT && !nullable(l, d.a)))
            return false;
        e = d.b;
    }
}

static void refuse(struct left *l, const char *why)
{
    if (l->rc == 0)
        l->rc = qr_err_set(l->err, QR_E_UNSUPPORTED, "the rule %s begins with itself %s", l->x->rule[l->rule].name, why);
}

/* Shares e, followed by rest, out to base and tail. */
static void split(struct left *l, int32_t e, int32_t rest)
{
    struct qr_exprs *x = l->x;
    for (;;) {
        const struct qr_expr_node d = *qr_expr_at(x, e);
        if (++l->level > SPLITS_MAX)
            refuse(l, "in too many ways");
        if (l->rc != 0)
            return;
        if (!comes_back(l, e)) {
            l->base = qr_expr_or(x, l->base, qr_expr_cat(x, e, rest));
            return;
        }
        switch ((enum qr_expr_kind)d.kind) {
        case QR_EXPR_K_RULE:
            if (d.a == l->rule)
                l->tail = rest == QR_EXPR_EMPTY ? l->tail : qr_expr_or(x, l->tail, rest);
            else if (d.a < l->rule) { /* written out; it begins with later rules only */
                e = x->rule[d.a].body;
                continue;
            } else
                l->base = qr_expr_or(x, l->base, qr_expr_cat(x, e, rest));
            return;
        case QR_EXPR_K_OR:
            split(l, d.a, rest);
            e = d.b;
            continue;
        case QR_EXPR_K_CAT:
            if (nullable(l, d.a) && comes_back(l, d.b)) {
                refuse(l, "behind what may be empty");
                return;
            }
            rest = qr_expr_cat(x, d.b, rest);
            e = d.a;
            continue;
        case QR_EXPR_K_REPEAT:
            if (d.b == 0)
                l->base = qr_expr_or(x, l->base, rest);
            rest = qr_expr_cat(x, qr_expr_repeat(x, d.a, d.b > 0 ? d.b - 1 : 0, d.c == QR_REPEAT_FOREVER ? d.c : d.c - 1), rest);
            e = d.a;
            continue;
        default: return;
        }
    }
}

static void close_reach(struct left *l)
{
    for (int32_t k = 0; k < l->n; k++)
        for (int32_t i = 0; i < l->n; i++)
            for (int32_t w = 0; reaches(l, i, k) && w < l->n_words; w++)
                l->reach[i * l->n_words + w] |= l->reach[k * l->n_words + w];
}

int qr_exprs_unrecurse(struct qr_exprs *x, struct qr_err *err)
{
    QR_ASSERT(x != NULL && err != NULL);
    const int32_t n = x->n_rules;
    if (n > RULES_MAX)
        return qr_err_set(err, QR_E_TOO_LARGE, "a grammar has at most %d rules, found %d", RULES_MAX, (int)n);
    find_nullable(x);
    struct left l = {.x = x, .n = n, .n_words = (n + 63) / 64, .err = err};
    l.reach = qr_alloc((size_t)n * (size_t)l.n_words + 1, sizeof *l.reach);
    if (!l.reach)
        return qr_err_set(err, QR_E_NO_ROOM, "there is no memory for a grammar's rules");
    for (int32_t i = 0; i < n; i++)
        begins(&l, i, x->rule[i].body);
    close_reach(&l);
    for (int32_t i = 0; i < n && l.rc == 0; i++) {
        if (!reaches(&l, i, i))
            continue;
        l.rule = i;
        l.base = l.tail = QR_EXPR_NONE;
        l.level = 0;
        split(&l, x->rule[i].body, QR_EXPR_EMPTY);
        x->rule[i].body = qr_expr_cat(x, l.base, qr_expr_repeat(x, l.tail, 0, QR_REPEAT_FOREVER));
    }
    qr_free(l.reach);
    return l.rc;
}
