/* rules.c - from named rules to one expression. A rule is looked into where it is named first; one that is named inside itself, or too
 * deep, becomes a rule of the pool. So what is regular stays regular, and recursion of this program is bounded. One thread. */
#include "answers/grammar/rules.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define DEPTH_MAX 400 /* of nodes in nodes and rules in rules */

void qr_rules_init(struct qr_rules *rs, struct qr_exprs *x, struct qr_reader *r)
{
    QR_ASSERT(rs != NULL && x != NULL);
    QR_ASSERT(r != NULL);
    *rs = (struct qr_rules){.x = x, .r = r, .ignored = QR_EXPR_EMPTY};
    qr_map_init(&rs->map, 64);
    qr_rules_add(rs, QR_RULES_LEAF, QR_EXPR_NONE, 0);
}

void qr_rules_release(struct qr_rules *rs)
{
    qr_map_release(&rs->map);
    qr_free(rs->rule);
    qr_free(rs->node);
    qr_free(rs->later);
    *rs = (struct qr_rules){0};
}

int32_t qr_rules_named(struct qr_rules *rs, const char *name, size_t len, size_t at)
{
    QR_ASSERT(name != NULL && len > 0);
    const int32_t known = qr_map_find(&rs->map, name, len, -1);
    if (known >= 0)
        return known;
    rs->rule = QR_GROW(rs->rule, rs->n, rs->cap);
    rs->rule[rs->n] = (struct qr_rule){.name = name, .len = len, .at = at};
    qr_map_add(&rs->map, name, len, rs->n);
    return rs->n++;
}

int32_t qr_rules_find(const struct qr_rules *rs, const char *name)
{
    return qr_map_find(&rs->map, name, strlen(name), -1);
}

static int shown(const struct qr_rule *rule)
{
    return rule->len < 100 ? (int)rule->len : 100;
}

int qr_rules_define(struct qr_rules *rs, int32_t rule, int32_t body, size_t at)
{
    QR_ASSERT(rule >= 0 && rule < rs->n);
    QR_ASSERT(body > 0 && body < rs->n_nodes);
    struct qr_rule *d = &rs->rule[rule];
    if (d->body)
        return qr_reader_fail(rs->r, QR_E_INVALID, at, "the rule %.*s is defined twice", shown(d), d->name);
    d->body = body;
    return 0;
}

int32_t qr_rules_add(struct qr_rules *rs, enum qr_rules_kind kind, int32_t value, size_t at)
{
    rs->node = QR_GROW(rs->node, rs->n_nodes, rs->cap_nodes);
    rs->node[rs->n_nodes] = (struct qr_rules_node){.kind = kind, .value = value, .at = at};
    return rs->n_nodes++;
}

int32_t qr_rules_repeat(struct qr_rules *rs, int32_t child, int32_t min, int32_t max, size_t at)
{
    const int32_t node = qr_rules_add(rs, QR_RULES_REPEAT, 0, at);
    rs->node[node].min = min;
    rs->node[node].max = max;
    qr_rules_append(rs, node, child);
    return node;
}

void qr_rules_append(struct qr_rules *rs, int32_t parent, int32_t child)
{
    QR_ASSERT(parent > 0 && parent < rs->n_nodes);
    QR_ASSERT(child > 0 && child < rs->n_nodes && rs->node[child].next == 0);
    if (rs->node[parent].child == 0)
        rs->node[parent].child = child;
    else
        rs->node[rs->node[parent].last].next = child;
    rs->node[parent].last = child;
}

/* ---- lowering ---- */

static int lower_node(struct qr_rules *rs, int32_t node, bool terminal, int depth, int32_t *out);

/* The pool's rule of this rule. */
static int32_t pool_rule(struct qr_rules *rs, int32_t rule)
{
    struct qr_rule *d = &rs->rule[rule];
    if (!d->rule) {
        char *name = qr_strndup(d->name, d->len);
        d->rule = qr_expr_rule(rs->x, name);
        qr_free(name);
    }
    return d->rule;
}

static int look_into(struct qr_rules *rs, int32_t rule, int depth)
{
    int32_t e;
    rs->rule[rule].open = true;
    const int rc = lower_node(rs, rs->rule[rule].body, rs->rule[rule].terminal, depth + 1, &e);
    struct qr_rule *d = &rs->rule[rule];
    d->open = false;
    if (rc != 0)
        return rc;
    d->done = true;
    d->expr = d->rule ? d->rule : e;
    if (d->rule)
        qr_expr_define(rs->x, d->rule, e);
    return 0;
}

static int lower_ref(struct qr_rules *rs, const struct qr_rules_node *node, bool terminal, int depth, int32_t *out)
{
    const int32_t rule = node->value;
    const struct qr_rule *d = &rs->rule[rule];
    const size_t at = node->at;
    if (!d->body)
        return qr_reader_fail(rs->r, QR_E_INVALID, d->at, "the rule %.*s is named, but not defined", shown(d), d->name);
    if (terminal && !d->terminal)
        return qr_reader_fail(rs->r, QR_E_INVALID, at, "the terminal holds the rule %.*s; terminals hold terminals only", shown(d), d->name);
    if (d->terminal && d->open)
        return qr_reader_fail(rs->r, QR_E_INVALID, at, "the terminal %.*s holds itself; only rules are recursive", shown(d), d->name);
    if (!d->done && !d->open && depth < DEPTH_MAX) {
        const int rc = look_into(rs, rule, depth);
        if (rc != 0)
            return rc;
    }
    d = &rs->rule[rule];
    if (d->done) {
        *out = d->terminal && !terminal ? qr_expr_cat(rs->x, d->expr, rs->ignored) : d->expr;
        return 0;
    }
    if (d->terminal)
        return qr_reader_fail(rs->r, QR_E_TOO_LARGE, at, "terminals are nested too deep");
    if (!d->open && !d->rule) {
        rs->later = QR_GROW(rs->later, rs->n_later, rs->cap_later);
        rs->later[rs->n_later++] = rule;
    }
    *out = pool_rule(rs, rule);
    return 0;
}

/* Texts without a beginning that is one, too: none is another and something more. */
static int32_t first_end(struct qr_exprs *x, int32_t e)
{
    const int32_t more = qr_expr_cat(x, qr_expr_range(x, 0, 255), qr_expr_anything(x));
    return qr_expr_minus(x, e, qr_expr_cat(x, e, more));
}

static int32_t combine(struct qr_rules *rs, enum qr_rules_kind kind, const int32_t *part, int32_t n)
{
    struct qr_exprs *x = rs->x;
    int32_t e = kind == QR_RULES_CAT ? QR_EXPR_EMPTY : part[0];
    switch (kind) {
    case QR_RULES_CAT:
        for (int32_t i = n - 1; i >= 0; i--)
            e = qr_expr_cat(x, part[i], e);
        return e;
    case QR_RULES_OR: return qr_expr_any(x, part, n);
    case QR_RULES_AND:
        for (int32_t i = 1; i < n; i++)
            e = qr_expr_and(x, e, part[i]);
        return e;
    case QR_RULES_NOT: return qr_expr_minus(x, qr_expr_utf8(x), e);
    case QR_RULES_FIRST: return first_end(x, e);
    default:
        QR_ASSERT(kind == QR_RULES_LEXEME);
        return qr_expr_cat(x, e, rs->ignored);
    }
}

static int lower_children(struct qr_rules *rs, int32_t node, bool terminal, int depth, int32_t *out)
{
    int32_t n = 0, k = 0;
    int rc = 0;
    for (int32_t i = rs->node[node].child; i; i = rs->node[i].next)
        n++;
    int32_t *part = qr_alloc((size_t)n + 1, sizeof *part);
    for (int32_t i = rs->node[node].child; i && rc == 0; i = rs->node[i].next)
        rc = lower_node(rs, i, terminal, depth + 1, &part[k++]);
    const enum qr_rules_kind kind = rs->node[node].kind;
    if (rc == 0 && (kind == QR_RULES_FIRST || kind == QR_RULES_AND || kind == QR_RULES_NOT))
        for (int32_t i = 0; i < n && rc == 0; i++)
            if (!qr_expr_is_regular(rs->x, part[i]))
                rc = qr_reader_fail(rs->r, QR_E_UNSUPPORTED, rs->node[node].at, "lazy, stop, suffix, '&' and '~' take what is not recursive");
    if (rc == 0 && kind == QR_RULES_REPEAT)
        *out = qr_expr_repeat(rs->x, part[0], rs->node[node].min, rs->node[node].max);
    else if (rc == 0)
        *out = combine(rs, kind, part, n);
    qr_free(part);
    return rc;
}

static int lower_node(struct qr_rules *rs, int32_t node, bool terminal, int depth, int32_t *out)
{
    const struct qr_rules_node n = rs->node[node];
    QR_ASSERT(node > 0 && node < rs->n_nodes);
    if (n.kind == QR_RULES_LEAF) {
        *out = n.value;
        return 0;
    }
    return n.kind == QR_RULES_REF ? lower_ref(rs, &n, terminal, depth, out) : lower_children(rs, node, terminal, depth, out);
}

int qr_rules_lower_node(struct qr_rules *rs, int32_t node, int32_t *out)
{
    return lower_node(rs, node, true, 0, out);
}

int qr_rules_lower(struct qr_rules *rs, int32_t rule, int32_t *out)
{
    QR_ASSERT(rule >= 0 && rule < rs->n);
    QR_ASSERT(out != NULL);
    for (int32_t i = 0; i < rs->n; i++)
        if (!rs->rule[i].body)
            return qr_reader_fail(rs->r, QR_E_INVALID, rs->rule[i].at, "the rule %.*s is named, but not defined", shown(&rs->rule[i]), rs->rule[i].name);
    int rc = look_into(rs, rule, 0);
    while (rc == 0 && rs->n_later > 0) {
        const int32_t next = rs->later[--rs->n_later];
        if (!rs->rule[next].done)
            rc = look_into(rs, next, 0);
    }
    *out = rs->rule[rule].expr;
    return rc;
}
