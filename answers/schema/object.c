/* object.c - the texts of objects: members in their order, each once, then members of other names.
 *
 * From the last member to the first one, what may still come after each of them is one expression, whether more members came
 * before or not; so n optional members take n expressions, not 2^n. Where members are counted, or some member must be of a kind, there
 * is one for each count and each set of kinds that have been seen. Owned by one build. */
#include "answers/schema/normal.h"

#include <string.h>

#include "base/assert.h"

#define STATES_MAX 40000
#define COUNTED_MAX 256     /* members of other names that are counted one by one */
#define MEMBERS_PER_RULE 16 /* of long chains: unions of regular expressions are sorted lists, which a rule ends */

struct writing {
    struct qr_sc *sc;
    const struct qr_sc_object *o;
    int32_t any, some[QR_SC_SOME_MAX]; /* a member of another name: name, colon, value; the same of a kind */
    uint32_t all;                      /* kinds */
    int32_t min, max, cap;             /* cap: counts from here on are one */
};

static int32_t key(struct qr_sc *sc, const char *name)
{
    const int32_t inside = qr_expr_json_text(sc->x, name, strlen(name));
    return qr_sc_cat3(sc, sc->words->quote, inside, qr_expr_cat(sc->x, sc->words->quote, sc->words->colon));
}

/* Names that the shape's propertyNames allow, without quotes. */
static int32_t allowed_names(struct qr_sc *sc, const struct qr_sc_shape *s)
{
    struct qr_sc_set set;
    set.n = 0;
    for (const struct qr_sc_literals *l = s->names; l; l = l->next)
        qr_sc_set_add(sc, &set, l->id);
    qr_sc_set_add(sc, &set, qr_sc_literal(sc, &(struct qr_sc_literal){.op = QR_SC_OP_TYPES, .number = QR_SC_STRING}));
    int32_t e = QR_EXPR_NONE;
    for (const struct qr_sc_shape *n = qr_sc_shapes(sc, qr_sc_goal_of(sc, &set)); n && sc->code == 0; n = n->next) {
        if (n->hard)
            qr_sc_fail(sc, QR_E_UNSUPPORTED, n->hard, "the opposite of %s cannot be enforced", qr_json_key(n->hard));
        for (int32_t i = 0; i < n->n_values; i++) {
            size_t len;
            const char *text = qr_json_text(n->value[i], &len);
            if (text)
                e = qr_expr_or(sc->x, e, qr_expr_json_text(sc->x, text, len));
        }
        if (n->n_values < 0)
            e = qr_expr_or(sc->x, e, qr_sc_write_inside(sc, n));
    }
    return e;
}

/* Names of a class, without quotes. */
static int32_t class_names(struct qr_sc *sc, const struct qr_sc_shape *s, const struct qr_sc_object *o, const struct qr_sc_class *c)
{
    int32_t e = s->names ? allowed_names(sc, s) : qr_expr_repeat(sc->x, qr_expr_json_char(sc->x), 0, QR_REPEAT_FOREVER);
    for (int32_t i = 0; i < o->n_patterns && sc->code == 0; i++) {
        const char *pattern = qr_json_key(o->pattern[i]);
        const int32_t p = qr_sc_pattern_expr(sc, o->pattern[i], pattern, strlen(pattern), false);
        e = c->patterns >> i & 1 ? qr_expr_and(sc->x, e, p) : qr_expr_minus(sc->x, e, p);
    }
    int32_t *name = qr_sc_alloc(sc, (size_t)o->n_members + 1, sizeof *name);
    for (int32_t i = 0; i < o->n_members && name; i++)
        name[i] = qr_expr_json_text(sc->x, o->member[i].name, strlen(o->member[i].name));
    return name && o->n_members > 0 ? qr_expr_minus(sc->x, e, qr_expr_any(sc->x, name, o->n_members)) : e;
}

static void write_others(struct writing *w, const struct qr_sc_shape *s)
{
    struct qr_sc *sc = w->sc;
    w->any = QR_EXPR_NONE;
    for (int32_t j = 0; j < QR_SC_SOME_MAX; j++)
        w->some[j] = QR_EXPR_NONE;
    for (int32_t i = 0; i < w->o->n_classes && sc->code == 0; i++) {
        const struct qr_sc_class *c = &w->o->class[i];
        const int32_t value = qr_sc_write(sc, c->goal);
        if (value == QR_EXPR_NONE)
            continue;
        const int32_t names = class_names(sc, s, w->o, c);
        if (names == QR_EXPR_NONE)
            continue;
        const int32_t name = qr_sc_cat3(sc, sc->words->quote, names, qr_expr_cat(sc->x, sc->words->quote, sc->words->colon));
        w->any = qr_expr_or(sc->x, w->any, qr_expr_cat(sc->x, name, value));
        for (int32_t j = 0; j < w->o->n_some; j++)
            w->some[j] = qr_expr_or(sc->x, w->some[j], qr_expr_cat(sc->x, name, qr_sc_write(sc, c->some[j])));
    }
}

static int32_t before(const struct writing *w, int32_t n) { return n == 0 ? w->sc->words->open : w->sc->words->comma; }

static int32_t end(const struct writing *w, int32_t n)
{
    const int32_t bracket = qr_expr_text(w->sc->x, "}");
    return n == 0 ? bracket : qr_expr_cat(w->sc->x, w->sc->words->close, bracket);
}

/* Members of other names behind n members, when all kinds have been seen. */
static int32_t others(struct writing *w, int32_t n)
{
    struct qr_sc *sc = w->sc;
    const int32_t least = w->min > n ? w->min - n : 0, most = w->max == QR_REPEAT_FOREVER ? w->max : w->max - n;
    if (most <= 0 || w->any == QR_EXPR_NONE)
        return least > 0 || most < 0 ? QR_EXPR_NONE : end(w, n);
    const int32_t more = qr_expr_cat(sc->x, sc->words->comma, w->any), close = end(w, 1);
    if (n > 0)
        return qr_expr_cat(sc->x, qr_expr_repeat(sc->x, more, least, most), close);
    const int32_t behind_first = qr_expr_repeat(sc->x, more, least > 0 ? least - 1 : 0, most == QR_REPEAT_FOREVER ? most : most - 1);
    const int32_t some = qr_sc_cat3(sc, qr_expr_cat(sc->x, sc->words->open, w->any), behind_first, close);
    return least > 0 ? some : qr_expr_or(sc->x, some, end(w, 0));
}

/* The same while kinds are missing. depth: how many have been counted one by one. */
static int32_t others_of_kinds(struct writing *w, int32_t n, uint32_t seen, int32_t depth)
{
    struct qr_sc *sc = w->sc;
    int32_t e = QR_EXPR_NONE;
    if (seen == w->all)
        return others(w, n);
    if (n >= w->max || sc->code != 0 || !qr_sc_step(sc, NULL, 4))
        return QR_EXPR_NONE;
    if (depth > COUNTED_MAX) {
        qr_sc_fail(sc, QR_E_TOO_LARGE, NULL, "more than %d members are counted in an object of which some member must be of a kind", COUNTED_MAX);
        return QR_EXPR_NONE;
    }
    for (int32_t j = 0; j < w->o->n_some; j++) {
        if (!(seen >> j & 1) && w->some[j] != QR_EXPR_NONE)
            e = qr_expr_or(sc->x, e, qr_sc_cat3(sc, before(w, n), w->some[j], others_of_kinds(w, n + 1, seen | 1u << j, depth + 1)));
    }
    if (e == QR_EXPR_NONE || w->any == QR_EXPR_NONE)
        return e;
    if (n > 0 && n >= w->min && w->max == QR_REPEAT_FOREVER)
        return qr_expr_cat(sc->x, qr_expr_repeat(sc->x, qr_expr_cat(sc->x, sc->words->comma, w->any), 0, QR_REPEAT_FOREVER), e);
    return qr_expr_or(sc->x, e, qr_sc_cat3(sc, before(w, n), w->any, others_of_kinds(w, n + 1, seen, depth + 1)));
}

/* What may stand from member i on behind n members, by what may stand from the next one on. */
static int32_t from_member(struct writing *w, int32_t i, int32_t n, uint32_t seen, const int32_t *next)
{
    struct qr_sc *sc = w->sc;
    const struct qr_sc_member *m = &w->o->member[i];
    const int32_t n_sets = (int32_t)w->all + 1, n_then = n < w->cap ? n + 1 : n;
    int32_t e = m->required ? QR_EXPR_NONE : next[n * n_sets + (int32_t)seen];
    if (n >= w->max)
        return e;
    int32_t value = qr_expr_cat(sc->x, qr_sc_write(sc, m->goal), next[n_then * n_sets + (int32_t)seen]);
    for (int32_t j = 0; j < w->o->n_some; j++) {
        if (!(seen >> j & 1))
            value = qr_expr_or(sc->x, value, qr_expr_cat(sc->x, qr_sc_write(sc, m->some[j]), next[n_then * n_sets + (int32_t)(seen | 1u << j)]));
    }
    return qr_expr_or(sc->x, qr_sc_cat3(sc, before(w, n), key(sc, m->name), value), e);
}

static int32_t as_rule(struct qr_sc *sc, int32_t e)
{
    if (e == QR_EXPR_NONE || sc->code != 0)
        return e;
    const int32_t rule = qr_expr_rule(sc->x, "members");
    qr_expr_define(sc->x, rule, e);
    return rule;
}

static void count(struct writing *w, const struct qr_sc_shape *s)
{
    int32_t n_required = 0;
    for (int32_t i = 0; i < w->o->n_members; i++)
        n_required += w->o->member[i].required;
    w->min = w->o->min > n_required ? w->o->min : 0;
    w->max = w->any == QR_EXPR_NONE && w->o->n_members <= w->o->max ? QR_REPEAT_FOREVER : w->o->max;
    w->cap = w->max != QR_REPEAT_FOREVER ? w->max : w->min;
    w->cap = w->cap > w->o->n_members ? w->o->n_members : w->cap;
    w->cap = w->cap < 1 ? 1 : w->cap;
    if (w->min > COUNTED_MAX * 4096)
        qr_sc_fail(w->sc, QR_E_TOO_LARGE, s->hard, "minProperties is more than %d", COUNTED_MAX * 4096);
}

int32_t qr_sc_write_object(struct qr_sc *sc, const struct qr_sc_shape *s)
{
    QR_ASSERT(sc != NULL && s != NULL);
    struct writing w = {.sc = sc, .o = qr_sc_resolve_object(sc, s)};
    if (!w.o)
        return QR_EXPR_NONE;
    w.all = (1u << w.o->n_some) - 1;
    write_others(&w, s);
    count(&w, s);
    const int32_t n_states = (w.cap + 1) * ((int32_t)w.all + 1);
    if ((int64_t)n_states * (w.o->n_members + 1) > STATES_MAX)
        qr_sc_fail(sc, QR_E_TOO_LARGE, NULL, "counting the members of an object takes more than %d states", STATES_MAX);
    int32_t *now = qr_sc_alloc(sc, (size_t)n_states, sizeof *now), *next = qr_sc_alloc(sc, (size_t)n_states, sizeof *next);
    if (!now || !next || sc->code != 0)
        return QR_EXPR_NONE;
    for (int32_t k = 0; k < n_states; k++)
        next[k] = others_of_kinds(&w, k / ((int32_t)w.all + 1), (uint32_t)k & w.all, 0);
    for (int32_t i = w.o->n_members - 1; i >= 0 && qr_sc_step(sc, NULL, n_states); i--) {
        for (int32_t k = 0; k < n_states; k++) {
            now[k] = from_member(&w, i, k / ((int32_t)w.all + 1), (uint32_t)k & w.all, next);
            if (i % MEMBERS_PER_RULE == 0 && i > 0 && w.o->n_members > 2 * MEMBERS_PER_RULE)
                now[k] = as_rule(sc, now[k]);
        }
        memcpy(next, now, (size_t)n_states * sizeof *now);
    }
    return qr_expr_cat(sc->x, qr_expr_text(sc->x, "{"), next[0]);
}
