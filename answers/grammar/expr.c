/* expr.c - the pool: equal expressions are one node, found through a hash table, and constructors bring expressions into a form in which
 * equal languages mostly are equal expressions. A constructor never fails: the first error stays in the pool, and what it could not
 * make is the empty language. Unions and intersections of regular expressions are lists sorted by number, as derivatives would else
 * not end; a concatenation keeps its nesting, so that putting something in front is one node. One owning thread. */
#include "answers/grammar/exprs.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define LIST_MAX 1024 /* members of a union that is kept sorted */

struct qr_exprs *qr_exprs_new(size_t bytes_max)
{
    QR_ASSERT(bytes_max >= 1 << 16);
    struct qr_exprs *x = qr_alloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->bytes_max = bytes_max;
    x->cap = 256;
    x->n_slots = 1024;
    x->n_set_slots = 512;
    x->cap_sets = 128;
    x->node = qr_alloc((size_t)x->cap, sizeof *x->node);
    x->slot = qr_alloc((size_t)x->n_slots, sizeof *x->slot);
    x->set = qr_alloc((size_t)x->cap_sets, sizeof *x->set);
    x->set_slot = qr_alloc((size_t)x->n_set_slots, sizeof *x->set_slot);
    if (!x->node || !x->slot || !x->set || !x->set_slot) {
        qr_exprs_free(x);
        return NULL;
    }
    x->node[QR_EXPR_NONE] = (struct qr_expr_node){.kind = QR_EXPR_K_NONE, .flags = QR_EXPR_REGULAR, .shortest = QR_EXPR_DEAD};
    x->node[QR_EXPR_EMPTY] = (struct qr_expr_node){.kind = QR_EXPR_K_EMPTY, .flags = QR_EXPR_REGULAR | QR_EXPR_NULLABLE};
    x->n = 2;
    return x;
}

void qr_exprs_free(struct qr_exprs *x)
{
    if (!x)
        return;
    for (int32_t i = 0; i < x->n_rules; i++)
        qr_free(x->rule[i].name);
    qr_free(x->node);
    qr_free(x->slot);
    qr_free(x->set);
    qr_free(x->set_slot);
    qr_free(x->rule);
    qr_free(x->derived);
    qr_free(x->queue);
    qr_free(x);
}

int32_t qr_expr_fail(struct qr_exprs *x, const struct qr_err *err)
{
    QR_ASSERT(x != NULL && err != NULL);
    if (!x->failed)
        x->err = *err;
    x->failed = true;
    return QR_EXPR_NONE;
}

bool qr_exprs_failed(const struct qr_exprs *x)
{
    QR_ASSERT(x != NULL);
    return x->failed;
}

static int32_t too_large(struct qr_exprs *x)
{
    struct qr_err err = {0};
    qr_err_set(&err, QR_E_TOO_LARGE, "the grammar is too large: more than %zu KiB", x->bytes_max >> 10);
    return qr_expr_fail(x, &err);
}

/* ---- nodes ---- */

static uint32_t hash_of(enum qr_expr_kind kind, int32_t a, int32_t b, int32_t c)
{
    uint64_t h = (uint64_t)(uint32_t)a * 0x9E3779B97F4A7C15u + (uint64_t)(uint32_t)b * 0xC2B2AE3D27D4EB4Fu;
    h ^= ((uint64_t)(uint32_t)c << 8 | kind) * 0x165667B19E3779F9u;
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9u;
    return (uint32_t)(h >> 32);
}

static void enter(struct qr_exprs *x, int32_t e)
{
    const struct qr_expr_node *d = &x->node[e];
    uint32_t at = hash_of(d->kind, d->a, d->b, d->c) & (uint32_t)(x->n_slots - 1);
    while (x->slot[at])
        at = (at + 1) & (uint32_t)(x->n_slots - 1);
    x->slot[at] = e;
}

static void enter_all(struct qr_exprs *x)
{
    memset(x->slot, 0, (size_t)x->n_slots * sizeof *x->slot);
    for (int32_t e = 2; e < x->n; e++)
        enter(x, e);
}

static size_t bytes_of(int32_t n_nodes, int32_t n_sets)
{
    return (size_t)n_nodes * (sizeof(struct qr_expr_node) + 4 * sizeof(int32_t)) + (size_t)n_sets * sizeof(struct qr_byte_set);
}

static bool resize(struct qr_exprs *x, int32_t cap)
{
    int32_t n_slots = x->n_slots;
    while (n_slots < 2 * cap)
        n_slots *= 2;
    struct qr_expr_node *node = qr_realloc(x->node, (size_t)cap, sizeof *node);
    if (node)
        x->node = node;
    int32_t *slot = node && n_slots > x->n_slots ? qr_realloc(x->slot, (size_t)n_slots, sizeof *slot) : x->slot;
    if (!node || !slot)
        return false;
    x->cap = cap;
    x->slot = slot;
    x->n_slots = n_slots;
    enter_all(x);
    return true;
}

static bool make_room(struct qr_exprs *x)
{
    if (x->n < x->cap)
        return true;
    if (x->n_base > 0 || bytes_of(2 * x->cap, x->n_sets) > x->bytes_max || !resize(x, 2 * x->cap)) {
        too_large(x);
        return false;
    }
    return true;
}

static int32_t depth_of(const struct qr_exprs *x, const struct qr_expr_node *d)
{
    if (d->kind < QR_EXPR_K_CAT || d->kind == QR_EXPR_K_RULE)
        return 0;
    const int32_t a = x->node[d->a].depth + 1;
    if (d->kind == QR_EXPR_K_NOT || d->kind == QR_EXPR_K_REPEAT)
        return a;
    const uint8_t needs = QR_EXPR_NULLABLE | QR_EXPR_REGULAR;
    const bool both = d->kind == QR_EXPR_K_CAT && (x->node[d->a].flags & needs) == needs;
    const int32_t b = x->node[d->b].depth + both;
    return a > b ? a : b;
}

int32_t qr_expr_make(struct qr_exprs *x, enum qr_expr_kind kind, int32_t a, int32_t b, int32_t c)
{
    uint32_t at = hash_of(kind, a, b, c) & (uint32_t)(x->n_slots - 1);
    for (; x->slot[at]; at = (at + 1) & (uint32_t)(x->n_slots - 1)) {
        const struct qr_expr_node *d = &x->node[x->slot[at]];
        if (d->kind == kind && d->a == a && d->b == b && d->c == c)
            return x->slot[at];
    }
    if (!make_room(x))
        return QR_EXPR_NONE;
    struct qr_expr_node *d = &x->node[x->n];
    *d = (struct qr_expr_node){.kind = (uint8_t)kind, .a = a, .b = b, .c = c};
    const int32_t depth = depth_of(x, d);
    if (depth > QR_EXPR_DEPTH_MAX) {
        struct qr_err err = {0};
        qr_err_set(&err, QR_E_TOO_LARGE, "the grammar is nested more than %d deep", QR_EXPR_DEPTH_MAX);
        return qr_expr_fail(x, &err);
    }
    d->depth = (uint16_t)depth;
    enter(x, x->n);
    qr_expr_know(x, x->n);
    return x->n++;
}

/* ---- sets of bytes ---- */

static uint32_t hash_set(const struct qr_byte_set *s)
{
    uint64_t h = 0;
    for (int i = 0; i < 4; i++)
        h = (h ^ s->bits[i]) * 0x9E3779B97F4A7C15u, h ^= h >> 31;
    return (uint32_t)(h >> 32);
}

static bool grow_sets(struct qr_exprs *x)
{
    const int32_t cap = 2 * x->cap_sets;
    struct qr_byte_set *set = qr_realloc(x->set, (size_t)cap, sizeof *set);
    if (set)
        x->set = set;
    int32_t *slot = set ? qr_alloc((size_t)cap * 4, sizeof *slot) : NULL;
    if (!slot)
        return false;
    qr_free(x->set_slot);
    x->set_slot = slot;
    x->cap_sets = cap;
    x->n_set_slots = 4 * cap;
    for (int32_t i = 0; i < x->n_sets; i++) {
        uint32_t at = hash_set(&x->set[i]) & (uint32_t)(x->n_set_slots - 1);
        while (slot[at])
            at = (at + 1) & (uint32_t)(x->n_set_slots - 1);
        slot[at] = i + 1;
    }
    return true;
}

int32_t qr_expr_set(struct qr_exprs *x, const struct qr_byte_set *set)
{
    QR_ASSERT(x != NULL && set != NULL);
    if (!(set->bits[0] | set->bits[1] | set->bits[2] | set->bits[3]))
        return QR_EXPR_NONE;
    uint32_t at = hash_set(set) & (uint32_t)(x->n_set_slots - 1);
    for (; x->set_slot[at]; at = (at + 1) & (uint32_t)(x->n_set_slots - 1))
        if (memcmp(&x->set[x->set_slot[at] - 1], set, sizeof *set) == 0)
            return qr_expr_make(x, QR_EXPR_K_SET, x->set_slot[at] - 1, 0, 0);
    QR_ASSERT(x->n_classes == 0);
    if (x->n_sets == x->cap_sets) {
        if (!grow_sets(x))
            return too_large(x);
        return qr_expr_set(x, set);
    }
    x->set[x->n_sets] = *set;
    x->set_slot[at] = ++x->n_sets;
    return qr_expr_make(x, QR_EXPR_K_SET, x->n_sets - 1, 0, 0);
}

int32_t qr_expr_range(struct qr_exprs *x, uint8_t first, uint8_t last)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(first <= last);
    if (first == last && x->single[first])
        return x->single[first];
    struct qr_byte_set set = {{0}};
    for (int b = first; b <= last; b++)
        qr_set_put(&set, (uint8_t)b);
    const int32_t e = qr_expr_set(x, &set);
    if (first == last)
        x->single[first] = e;
    return e;
}

/* ---- combinations ---- */

int32_t qr_expr_cat(struct qr_exprs *x, int32_t a, int32_t b)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(a >= 0 && a < x->n && b >= 0 && b < x->n);
    if (a == QR_EXPR_NONE || b == QR_EXPR_NONE)
        return QR_EXPR_NONE;
    if (a == QR_EXPR_EMPTY || b == QR_EXPR_EMPTY)
        return a == QR_EXPR_EMPTY ? b : a;
    return qr_expr_make(x, QR_EXPR_K_CAT, a, b, 0);
}

/* The members of a list of this kind from e on, ascending; returns their number, -1 for too many. */
static int32_t members(const struct qr_exprs *x, enum qr_expr_kind kind, int32_t e, int32_t *out)
{
    int32_t n = 0;
    for (; x->node[e].kind == kind; e = x->node[e].b) {
        if (n == LIST_MAX - 1)
            return -1;
        out[n++] = x->node[e].a;
    }
    out[n++] = e;
    return n;
}

/* Both lists merged, equal members once. */
static int32_t join(struct qr_exprs *x, enum qr_expr_kind kind, int32_t a, int32_t b)
{
    int32_t p[LIST_MAX] QR_UNINITIALIZED, q[LIST_MAX] QR_UNINITIALIZED, all[2 * LIST_MAX] QR_UNINITIALIZED;
    const int32_t n_p = members(x, kind, a, p), n_q = members(x, kind, b, q);
    if (n_p < 0 || n_q < 0)
        return qr_expr_make(x, kind, a < b ? a : b, a < b ? b : a, 0);
    int32_t n = 0;
    for (int32_t i = 0, j = 0; i < n_p || j < n_q;) {
        const int32_t next = j == n_q || (i < n_p && p[i] <= q[j]) ? p[i++] : q[j++];
        if (n == 0 || all[n - 1] != next)
            all[n++] = next;
    }
    int32_t e = all[n - 1];
    for (int32_t i = n - 2; i >= 0; i--)
        e = qr_expr_make(x, kind, all[i], e, 0);
    return e;
}

/* Two sets are one, as long as sets can be made. */
static int32_t or_sets(struct qr_exprs *x, int32_t a, int32_t b)
{
    struct qr_byte_set set = x->set[x->node[a].a];
    for (int i = 0; i < 4; i++)
        set.bits[i] |= x->set[x->node[b].a].bits[i];
    return qr_expr_set(x, &set);
}

int32_t qr_expr_or(struct qr_exprs *x, int32_t a, int32_t b)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(a >= 0 && a < x->n && b >= 0 && b < x->n);
    if (a == b || b == QR_EXPR_NONE)
        return a;
    if (a == QR_EXPR_NONE)
        return b;
    if (x->anything && (a == x->anything || b == x->anything))
        return x->anything;
    if (x->n_classes == 0 && x->node[a].kind == QR_EXPR_K_SET && x->node[b].kind == QR_EXPR_K_SET)
        return or_sets(x, a, b);
    if ((a == QR_EXPR_EMPTY || b == QR_EXPR_EMPTY) && (qr_expr_nullable(x, a) && qr_expr_nullable(x, b)))
        return a == QR_EXPR_EMPTY ? b : a;
    if (x->node[a].flags & x->node[b].flags & QR_EXPR_REGULAR)
        return join(x, QR_EXPR_K_OR, a, b);
    return qr_expr_make(x, QR_EXPR_K_OR, a, b, 0);
}

int32_t qr_expr_maybe(struct qr_exprs *x, int32_t a)
{
    return qr_expr_or(x, QR_EXPR_EMPTY, a);
}

int32_t qr_expr_repeat(struct qr_exprs *x, int32_t a, int32_t min, int32_t max)
{
    QR_ASSERT(x != NULL && a >= 0 && a < x->n);
    QR_ASSERT(min >= 0 && min <= max);
    const struct qr_expr_node *d = &x->node[a];
    if (max == 0 || a == QR_EXPR_EMPTY)
        return QR_EXPR_EMPTY;
    if (a == QR_EXPR_NONE)
        return min == 0 ? QR_EXPR_EMPTY : QR_EXPR_NONE;
    if (min == 1 && max == 1)
        return a;
    if (d->kind == QR_EXPR_K_REPEAT && d->b == 0 && d->c == QR_REPEAT_FOREVER)
        return a;
    if ((d->flags & QR_EXPR_REGULAR) && (d->flags & QR_EXPR_NULLABLE))
        min = 0;
    return qr_expr_make(x, QR_EXPR_K_REPEAT, a, min, max);
}

static bool must_be_regular(struct qr_exprs *x, int32_t a, const char *what)
{
    if (x->node[a].flags & QR_EXPR_REGULAR)
        return true;
    struct qr_err err = {0};
    qr_err_set(&err, QR_E_UNSUPPORTED, "%s of what is recursive cannot be enforced", what);
    qr_expr_fail(x, &err);
    return false;
}

int32_t qr_expr_and(struct qr_exprs *x, int32_t a, int32_t b)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(a >= 0 && a < x->n && b >= 0 && b < x->n);
    if (a == b)
        return a;
    if (a == QR_EXPR_NONE || b == QR_EXPR_NONE)
        return QR_EXPR_NONE;
    if (a == qr_expr_anything(x) || b == x->anything)
        return a == x->anything ? b : a;
    if (a == QR_EXPR_EMPTY || b == QR_EXPR_EMPTY) {
        const int32_t other = a == QR_EXPR_EMPTY ? b : a;
        if (x->node[other].flags & QR_EXPR_REGULAR)
            return qr_expr_nullable(x, other) ? QR_EXPR_EMPTY : QR_EXPR_NONE;
    }
    if (!must_be_regular(x, a, "an intersection") || !must_be_regular(x, b, "an intersection"))
        return QR_EXPR_NONE;
    return join(x, QR_EXPR_K_AND, a, b);
}

int32_t qr_expr_not(struct qr_exprs *x, int32_t a)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(a >= 0 && a < x->n);
    if (a == QR_EXPR_NONE)
        return qr_expr_anything(x);
    if (a == qr_expr_anything(x))
        return QR_EXPR_NONE;
    if (x->node[a].kind == QR_EXPR_K_NOT)
        return x->node[a].a;
    return must_be_regular(x, a, "a complement") ? qr_expr_make(x, QR_EXPR_K_NOT, a, 0, 0) : QR_EXPR_NONE;
}

int32_t qr_expr_minus(struct qr_exprs *x, int32_t a, int32_t b)
{
    return b == QR_EXPR_NONE ? a : qr_expr_and(x, a, qr_expr_not(x, b));
}

bool qr_expr_is_regular(const struct qr_exprs *x, int32_t e)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(e >= 0 && e < x->n);
    return x->node[e].flags & QR_EXPR_REGULAR;
}

/* ---- rules ---- */

int32_t qr_expr_rule(struct qr_exprs *x, const char *name)
{
    QR_ASSERT(x != NULL && name != NULL);
    QR_ASSERT(x->n_classes == 0);
    if (x->n_rules == x->cap_rules) {
        const int32_t cap = x->cap_rules ? 2 * x->cap_rules : 16;
        struct qr_expr_rule *rule = (size_t)cap * sizeof *rule > x->bytes_max ? NULL : qr_realloc(x->rule, (size_t)cap, sizeof *rule);
        if (!rule)
            return too_large(x);
        x->rule = rule;
        x->cap_rules = cap;
    }
    x->rule[x->n_rules] = (struct qr_expr_rule){.name = qr_strdup(name), .shortest = QR_EXPR_DEAD};
    if (!x->rule[x->n_rules].name)
        return too_large(x);
    x->n_rules++;
    return qr_expr_make(x, QR_EXPR_K_RULE, x->n_rules - 1, 0, 0);
}

void qr_expr_define(struct qr_exprs *x, int32_t rule, int32_t body)
{
    QR_ASSERT(x != NULL && rule >= 0 && rule < x->n);
    QR_ASSERT(body >= 0 && body < x->n);
    if (x->node[rule].kind != QR_EXPR_K_RULE) {
        QR_ASSERT(x->failed); /* the rule itself could not be made */
        return;
    }
    struct qr_expr_rule *r = &x->rule[x->node[rule].a];
    QR_ASSERT(!r->defined);
    r->defined = true;
    r->body = body;
}

/* ---- after the end of writing ---- */

bool qr_exprs_freeze(struct qr_exprs *x, int32_t n_derived, int32_t long_from)
{
    QR_ASSERT(x != NULL && n_derived > 0);
    QR_ASSERT(x->n_base == 0 && x->n_classes > 0);
    if (!resize(x, x->n + n_derived))
        return false;
    x->n_base = x->n;
    x->long_from = long_from;
    for (int32_t e = 2; e < x->n; e++)
        qr_expr_know_long(x, e);
    return true;
}

int32_t qr_expr_clamp(struct qr_exprs *x, int32_t e)
{
    QR_ASSERT(x != NULL && x->long_from > 0);
    QR_ASSERT(e >= 0 && e < x->n);
    if (!(x->node[e].flags & QR_EXPR_LONG) || x->node[e].kind == QR_EXPR_K_AND || x->node[e].kind == QR_EXPR_K_NOT)
        return e; /* what is longer than a token may still decide whether demands can be met together */
    struct qr_derived *slot = &x->derived[(uint32_t)e * 2654435761u >> 9 & (QR_DERIVED_SLOTS - 1)];
    if (slot->e == e && slot->cls == -1)
        return slot->result;
    const struct qr_expr_node d = x->node[e];
    const int32_t a = qr_expr_clamp(x, d.a);
    int32_t result = QR_EXPR_NONE;
    if (d.kind == QR_EXPR_K_REPEAT)
        result = qr_expr_repeat(x, a, d.b > x->long_from ? x->long_from + 1 : d.b, d.c > x->long_from ? QR_REPEAT_FOREVER : d.c);
    else {
        const int32_t b = qr_expr_clamp(x, d.b);
        result = d.kind == QR_EXPR_K_CAT ? qr_expr_cat(x, a, b) : qr_expr_or(x, a, b);
    }
    if (!x->failed)
        *slot = (struct qr_derived){e, -1, result};
    return result;
}

void qr_exprs_collect(struct qr_exprs *x, uint8_t *keep, int32_t *renumber)
{
    QR_ASSERT(x != NULL && keep != NULL && renumber != NULL);
    QR_ASSERT(x->n_base > 0);
    const int32_t base = x->n_base;
    for (int32_t e = x->n - 1; e >= base; e--) {
        const struct qr_expr_node *d = &x->node[e];
        if (!keep[e - base] || d->kind < QR_EXPR_K_CAT || d->kind == QR_EXPR_K_RULE)
            continue;
        if (d->a >= base)
            keep[d->a - base] = 1;
        if (d->kind != QR_EXPR_K_NOT && d->kind != QR_EXPR_K_REPEAT && d->b >= base)
            keep[d->b - base] = 1;
    }
    int32_t n = base;
    for (int32_t e = base; e < x->n; e++) {
        if (!keep[e - base])
            continue;
        struct qr_expr_node d = x->node[e];
        const bool two = d.kind == QR_EXPR_K_CAT || d.kind == QR_EXPR_K_OR || d.kind == QR_EXPR_K_AND;
        if (d.kind >= QR_EXPR_K_CAT && d.kind != QR_EXPR_K_RULE && d.a >= base)
            d.a = renumber[d.a - base];
        if (two && d.b >= base)
            d.b = renumber[d.b - base];
        renumber[e - base] = n;
        x->node[n++] = d;
    }
    x->n = n;
    enter_all(x);
    memset(x->derived, 0, QR_DERIVED_SLOTS * sizeof *x->derived);
}
