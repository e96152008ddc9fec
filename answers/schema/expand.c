/* expand.c - the shapes of a goal: literals are put into a shape one after the other; what leaves a choice waits until all others are in it, and
 * then the shape is copied for each option. A copy that no value can have any more ends there, which keeps discriminated unions from
 * multiplying. Owned by one build. */
#include "answers/schema/expand.h"

#include <string.h>

#include "base/assert.h"

#define SHAPES_MAX 1024       /* of one goal */
#define SHAPES_ALL_MAX 32768
#define DEPTH_MAX 400         /* of schemas within schemas, references followed */
#define OPTIONS_MAX 4096

void qr_sc_hard(struct qr_sc_work *w, const struct qr_json *at)
{
    QR_ASSERT(at != NULL);
    if (!w->shape.hard)
        w->shape.hard = at;
}

struct qr_sc_choice *qr_sc_choice_new(struct qr_sc *sc, int32_t n_max)
{
    QR_ASSERT(n_max >= 0);
    struct qr_sc_choice *c = qr_sc_alloc(sc, 1, sizeof *c);
    if (n_max > OPTIONS_MAX) {
        qr_sc_fail(sc, QR_E_TOO_LARGE, NULL, "more than %d alternatives for one value", OPTIONS_MAX);
        return NULL;
    }
    if (c)
        c->option = qr_sc_alloc(sc, (size_t)n_max + 1, sizeof *c->option);
    return c && c->option ? c : NULL;
}

static const struct qr_sc_literals *put(struct qr_sc *sc, const struct qr_sc_literals *next, int32_t id)
{
    struct qr_sc_literals *l = qr_sc_alloc(sc, 1, sizeof *l);
    if (l)
        *l = (struct qr_sc_literals){.next = next, .id = id};
    return l;
}

void qr_sc_option(struct qr_sc *sc, struct qr_sc_choice *c, int32_t a, int32_t b)
{
    if (!c || a == QR_SC_LIT_FALSE || b == QR_SC_LIT_FALSE)
        return;
    const struct qr_sc_literals *list = put(sc, NULL, b);
    if (a != QR_SC_LIT_TRUE)
        list = put(sc, list, a);
    if (list)
        c->option[c->n++] = list;
}

void qr_sc_choose(struct qr_sc *sc, struct qr_sc_work *w, struct qr_sc_choice *c)
{
    QR_ASSERT(w->n_choices <= w->choices_cap);
    if (!c)
        return;
    if (c->n == 0) {
        qr_sc_never(w);
        return;
    }
    if (c->n == 1) {
        for (const struct qr_sc_literals *l = c->option[0]; l; l = l->next)
            qr_sc_apply(sc, w, l->id);
        return;
    }
    if (w->n_choices == w->choices_cap) {
        const int32_t cap = w->choices_cap ? 2 * w->choices_cap : 8;
        const struct qr_sc_choice **wider = qr_sc_alloc(sc, (size_t)cap, sizeof *wider);
        if (!wider)
            return;
        if (w->n_choices > 0)
            memcpy(wider, w->choice, (size_t)w->n_choices * sizeof *wider);
        w->choice = wider;
        w->choices_cap = cap;
    }
    w->choice[w->n_choices++] = c;
}

static void apply_schema(struct qr_sc *sc, struct qr_sc_work *w, int32_t id, const struct qr_json *schema, int32_t scope)
{
    if (!qr_sc_check_endless(sc, schema))
        return;
    const struct qr_json *ref = qr_json_find(schema, "$ref");
    if (sc->ref_alone && ref) {
        qr_sc_keyword_find("$ref")->apply(sc, w, schema, ref, scope);
        return;
    }
    if (qr_json_find(schema, "unevaluatedProperties") || qr_json_find(schema, "unevaluatedItems"))
        scope = id;
    for (const struct qr_json *m = qr_json_first(schema); m && sc->code == 0; m = qr_json_after(m)) {
        const struct qr_sc_keyword *k = qr_sc_keyword_find(qr_json_key(m));
        if (k)
            k->apply(sc, w, schema, m, scope);
    }
}

static void deny_schema(struct qr_sc *sc, struct qr_sc_work *w, const struct qr_json *schema)
{
    if (!qr_sc_check_endless(sc, schema))
        return;
    const bool ref_only = sc->ref_alone && qr_json_find(schema, "$ref");
    struct qr_sc_choice *c = qr_sc_choice_new(sc, qr_json_count(schema));
    for (const struct qr_json *m = qr_json_first(schema); m && sc->code == 0; m = qr_json_after(m)) {
        if (!qr_sc_keyword_find(qr_json_key(m)) || (ref_only && strcmp(qr_json_key(m), "$ref") != 0))
            continue;
        const struct qr_sc_literal l = {.op = QR_SC_OP_NOT_KEYWORD, .json = m, .owner = schema};
        qr_sc_option(sc, c, qr_sc_literal(sc, &l), QR_SC_LIT_TRUE);
    }
    qr_sc_choose(sc, w, c);
}

static void apply_piece(struct qr_sc *sc, struct qr_sc_work *w, const struct qr_sc_literal *l)
{
    switch (l->op) {
    case QR_SC_OP_TYPES:
        w->shape.types &= (uint32_t)l->number;
        break;
    case QR_SC_OP_LACKS:
        qr_sc_add_layer(sc, w, &(struct qr_sc_layer){.name = l->name, .name_literal = QR_SC_LIT_FALSE});
        break;
    case QR_SC_OP_MEMBER:
        w->shape.types &= QR_SC_OBJECT;
        qr_sc_add_required(sc, w, l->name);
        if (l->inner != QR_SC_LIT_TRUE)
            qr_sc_add_layer(sc, w, &(struct qr_sc_layer){.name = l->name, .name_literal = l->inner});
        break;
    case QR_SC_OP_ITEM:
        w->shape.types &= QR_SC_ARRAY;
        if (w->shape.n_items_min < l->number + 1)
            w->shape.n_items_min = l->number + 1;
        qr_sc_add_items(sc, w, &(struct qr_sc_items){.index = l->number, .index_literal = l->inner});
        break;
    default: { /* QR_SC_OP_SOME */
        struct qr_sc_some *some = qr_sc_alloc(sc, 1, sizeof *some);
        if (!some)
            return;
        *some = (struct qr_sc_some){.next = w->shape.some, .pattern = l->json, .literal = l->inner, .at = l->json};
        w->shape.types &= QR_SC_OBJECT;
        w->shape.some = some;
    }
    }
}

void qr_sc_apply(struct qr_sc *sc, struct qr_sc_work *w, int32_t literal)
{
    QR_ASSERT(literal >= 0 && literal < sc->n_literals);
    if (literal == QR_SC_LIT_TRUE || sc->code != 0)
        return;
    if (literal == QR_SC_LIT_FALSE) {
        qr_sc_never(w);
        return;
    }
    int32_t n_seen = 1;
    for (const struct qr_sc_literals *l = w->seen; l; l = l->next, n_seen++) {
        if (l->id == literal)
            return;
    }
    const struct qr_sc_literal l = sc->literal[literal]; /* a copy: the array may move */
    if (!qr_sc_step(sc, l.json, 1 + n_seen / 16))
        return;
    w->seen = put(sc, w->seen, literal);
    if (++sc->depth > DEPTH_MAX)
        qr_sc_fail(sc, QR_E_TOO_LARGE, l.json, "the schema is nested more than %d deep when its references are followed", DEPTH_MAX);
    else if (l.op == QR_SC_OP_SCHEMA)
        apply_schema(sc, w, literal, l.json, l.scope);
    else if (l.op == QR_SC_OP_NOT)
        deny_schema(sc, w, l.json);
    else if (l.op == QR_SC_OP_NOT_KEYWORD)
        qr_sc_keyword_find(qr_json_key(l.json))->deny(sc, w, l.owner, l.json, 0);
    else
        apply_piece(sc, w, &l);
    sc->depth--;
}

/* ---- choices ---- */

/* Whether no value beside what `base` says is both. */
static bool are_apart(struct qr_sc *sc, const struct qr_sc_shape *base, int32_t a, int32_t b)
{
    const int32_t goal_a = qr_sc_goal_one(sc, a), goal_b = qr_sc_goal_one(sc, b);
    const struct qr_sc_shape *of_a = qr_sc_shapes(sc, goal_a), *of_b = qr_sc_shapes(sc, goal_b);
    if (sc->goal[goal_a]->state == QR_SC_BUSY || sc->goal[goal_b]->state == QR_SC_BUSY)
        return false;
    for (const struct qr_sc_shape *p = of_a; p; p = p->next) {
        struct qr_sc_shape with_a = *base;
        if (!qr_sc_meet(sc, &with_a, p) || qr_sc_shape_dead(sc, &with_a))
            continue;
        for (const struct qr_sc_shape *q = of_b; q; q = q->next) {
            struct qr_sc_shape both = with_a;
            if (!qr_sc_step(sc, sc->literal[a].json, 2))
                return false;
            if (qr_sc_meet(sc, &both, q) && !qr_sc_shape_dead(sc, &both) && (both.types != QR_SC_STRING || !qr_sc_strings_dead(sc, &both)))
                return false;
        }
    }
    return true;
}

/* The opposite of a schema's literal. */
static int32_t opposite(struct qr_sc *sc, int32_t literal)
{
    if (literal <= QR_SC_LIT_FALSE)
        return literal == QR_SC_LIT_TRUE ? QR_SC_LIT_FALSE : QR_SC_LIT_TRUE;
    return qr_sc_schema_literal(sc, sc->literal[literal].json, 0, true);
}

/* The option i of a choice of exactly one: it holds, and those that could hold as well do not. */
static const struct qr_sc_literals *alone(struct qr_sc *sc, const struct qr_sc_choice *c, const uint8_t *apart, int32_t i)
{
    const struct qr_sc_literals *list = put(sc, NULL, c->option[i]->id);
    for (int32_t j = 0; j < c->n; j++) {
        if (j != i && !apart[i < j ? i * c->n + j : j * c->n + i])
            list = put(sc, list, opposite(sc, c->option[j]->id));
    }
    return list;
}

static void branch(struct qr_sc *sc, struct qr_sc_work *w, struct qr_sc_shape ***tail, int32_t *n);

static void take(struct qr_sc *sc, const struct qr_sc_work *w, const struct qr_sc_literals *option, struct qr_sc_shape ***tail, int32_t *n)
{
    struct qr_sc_work *copy = qr_sc_alloc(sc, 1, sizeof *copy);
    if (!copy)
        return;
    *copy = *w;
    copy->next++;
    copy->choices_cap = copy->n_choices; /* what is added goes elsewhere: this array is shared */
    for (const struct qr_sc_literals *l = option; l; l = l->next)
        qr_sc_apply(sc, copy, l->id);
    branch(sc, copy, tail, n);
}

static void choose_one(struct qr_sc *sc, const struct qr_sc_work *w, const struct qr_sc_choice *c, struct qr_sc_shape ***tail, int32_t *n)
{
    uint8_t *apart = qr_sc_alloc(sc, (size_t)c->n * (size_t)c->n, 1);
    if (!apart || !qr_sc_step(sc, NULL, c->n))
        return;
    for (int32_t i = 0; i < c->n; i++) {
        for (int32_t j = i + 1; j < c->n && sc->code == 0; j++)
            apart[i * c->n + j] = are_apart(sc, &w->shape, c->option[i]->id, c->option[j]->id);
    }
    for (int32_t i = 0; i < c->n && sc->code == 0; i++)
        take(sc, w, alone(sc, c, apart, i), tail, n);
}

static void branch(struct qr_sc *sc, struct qr_sc_work *w, struct qr_sc_shape ***tail, int32_t *n)
{
    if (sc->code != 0 || !qr_sc_step(sc, NULL, 2) || qr_sc_shape_dead(sc, &w->shape))
        return;
    if (w->next < w->n_choices) {
        const struct qr_sc_choice *c = w->choice[w->next];
        if (c->exactly_one) {
            choose_one(sc, w, c, tail, n);
            return;
        }
        for (int32_t i = 0; i < c->n && sc->code == 0; i++)
            take(sc, w, c->option[i], tail, n);
        return;
    }
    if (*n >= SHAPES_MAX || sc->n_shapes >= SHAPES_ALL_MAX) {
        qr_sc_fail(sc, QR_E_TOO_LARGE, w->seen ? sc->literal[w->seen->id].json : NULL, "more than %d alternatives for one value",
                   *n >= SHAPES_MAX ? SHAPES_MAX : SHAPES_ALL_MAX);
        return;
    }
    struct qr_sc_shape *kept = qr_sc_alloc(sc, 1, sizeof *kept);
    if (!kept)
        return;
    *kept = w->shape;
    kept->next = NULL;
    **tail = kept;
    *tail = &kept->next;
    ++*n;
    sc->n_shapes++;
}

struct qr_sc_shape *qr_sc_shapes(struct qr_sc *sc, int32_t goal)
{
    QR_ASSERT(goal >= 0 && goal < sc->n_goals);
    struct qr_sc_goal *g = sc->goal[goal];
    if (g->state != QR_SC_NEW || sc->code != 0)
        return g->shape;
    g->state = QR_SC_BUSY;
    struct qr_sc_work *w = qr_sc_alloc(sc, 1, sizeof *w);
    struct qr_sc_shape *first = NULL, **tail = &first;
    int32_t n = 0;
    if (w) {
        qr_sc_shape_init(&w->shape);
        for (int32_t i = 0; i < g->n; i++)
            qr_sc_apply(sc, w, g->literal[i]);
        branch(sc, w, &tail, &n);
    }
    g->shape = first;
    g->state = QR_SC_DONE;
    return first;
}

bool qr_sc_goal_empty(struct qr_sc *sc, int32_t goal)
{
    if (goal == QR_SC_GOAL_FALSE)
        return true;
    if (goal == QR_SC_GOAL_TRUE || sc->goal[goal]->state == QR_SC_BUSY)
        return false;
    return qr_sc_shapes(sc, goal) == NULL;
}
