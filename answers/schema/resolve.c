/* resolve.c - objects and arrays of a shape worked out: which members it names, in which order, what each must be, and of which kinds names are
 * that it does not name. Owned by one build. */
#include <string.h>

#include "answers/schema/normal.h"
#include "base/assert.h"

#define CLASSES_MAX 48
#define OVERLAPS_MAX 12 /* classes of more than one pattern */
#define LAYERS_MAX 256
#define FIRST_ITEMS_MAX 4096

bool qr_sc_is_some(struct qr_sc *sc, const struct qr_sc_some *some, const char *name)
{
    QR_ASSERT(some != NULL && name != NULL);
    const size_t len = strlen(name);
    if (some->pattern)
        return qr_sc_matches(sc, some->pattern, qr_json_key(some->pattern), strlen(qr_json_key(some->pattern)), false, name, len);
    if (some->props && qr_sc_member_find(sc, some->props, name))
        return false;
    for (const struct qr_json *p = some->patterns ? qr_json_first(some->patterns) : NULL; p; p = qr_json_after(p)) {
        if (qr_sc_matches(sc, p, qr_json_key(p), strlen(qr_json_key(p)), false, name, len))
            return false;
    }
    return true;
}

bool qr_sc_name_may_be(struct qr_sc *sc, const struct qr_sc_shape *s, const char *name)
{
    for (const struct qr_sc_literals *l = s->names; l; l = l->next) {
        const struct qr_sc_shape *of = qr_sc_shapes(sc, qr_sc_goal_one(sc, l->id));
        bool ok = false;
        for (; of && !ok; of = of->next) {
            bool listed = of->n_values < 0;
            for (int32_t i = 0; i < of->n_values && !listed; i++)
                listed = qr_json_says(of->value[i], name);
            ok = listed && (of->types & QR_SC_STRING) && qr_sc_string_takes(sc, of, name, strlen(name)) && !qr_sc_string_excluded(of, name);
        }
        if (!ok)
            return false;
    }
    return true;
}

/* ---- the members that are named ---- */

struct naming { struct qr_sc *sc; const struct qr_sc_shape *shape; struct qr_sc_object *o; struct qr_map seen; int32_t cap; };

static void name_member(struct naming *n, const char *name, int32_t track)
{
    if (!qr_map_add(&n->seen, name, strlen(name), n->o->n_members))
        return;
    if (n->o->n_members == n->cap) {
        const int32_t cap = n->cap ? 2 * n->cap : 16;
        struct qr_sc_member *wider = qr_sc_alloc(n->sc, (size_t)cap, sizeof *wider);
        if (!wider)
            return;
        if (n->cap > 0)
            memcpy(wider, n->o->member, (size_t)n->cap * sizeof *wider);
        n->o->member = wider;
        n->cap = cap;
    }
    n->o->member[n->o->n_members++] = (struct qr_sc_member){.name = name, .track = track};
}

static void name_members(struct naming *n, const struct qr_json *props, int32_t track)
{
    for (const struct qr_json *m = props ? qr_json_first(props) : NULL; m; m = qr_json_after(m))
        name_member(n, qr_json_key(m), track);
}

/* The lists of a shape have the newest first: members are numbered in the order in which the schema tells of them. */
static void name_in_order(struct naming *n)
{
    const struct qr_sc_layer *layer[LAYERS_MAX];
    int32_t n_layers = 0, n_required = 0;
    for (const struct qr_sc_layer *l = n->shape->layer; l && n_layers < LAYERS_MAX; l = l->next)
        layer[n_layers++] = l;
    if (n_layers == LAYERS_MAX)
        qr_sc_fail(n->sc, QR_E_TOO_LARGE, n->shape->layer->props, "more than %d lists of members hold for one object", LAYERS_MAX - 1);
    for (int32_t i = n_layers - 1; i >= 0; i--)
        name_members(n, layer[i]->props, n_layers - 1 - i);
    for (const struct qr_sc_name *r = n->shape->required; r; r = r->next)
        n_required++;
    const char **required = qr_sc_alloc(n->sc, (size_t)n_required + 1, sizeof *required);
    if (!required)
        return;
    n_required = 0;
    for (const struct qr_sc_name *r = n->shape->required; r; r = r->next)
        required[n_required++] = r->text;
    while (n_required-- > 0)
        name_member(n, required[n_required], -1);
    for (int32_t i = n_layers - 1; i >= 0; i--) {
        if (layer[i]->name)
            name_member(n, layer[i]->name, -1);
    }
    for (const struct qr_sc_some *some = n->shape->some; some; some = some->next)
        name_members(n, some->props, -1);
}

static void fill_members(struct naming *n)
{
    struct qr_sc *sc = n->sc;
    for (const struct qr_sc_name *r = n->shape->required; r; r = r->next) {
        const int32_t i = qr_map_find(&n->seen, r->text, strlen(r->text), -1);
        if (i >= 0)
            n->o->member[i].required = true;
    }
    for (int32_t i = 0; i < n->o->n_members && qr_sc_step(sc, NULL, 1); i++) {
        struct qr_sc_member *m = &n->o->member[i];
        int32_t j = 0;
        m->goal = qr_sc_name_goal(sc, n->shape, m->name);
        for (const struct qr_sc_some *some = n->shape->some; some && j < QR_SC_SOME_MAX; some = some->next, j++)
            m->some[j] = qr_sc_is_some(sc, some, m->name) ? qr_sc_goal_with(sc, m->goal, some->literal) : QR_SC_GOAL_FALSE;
    }
}

/* Members that must not be there are put behind the others. */
static void part_forbidden(struct qr_sc *sc, struct qr_sc_object *o)
{
    struct qr_sc_member *sorted = qr_sc_alloc(sc, (size_t)o->n_members + 1, sizeof *sorted);
    int32_t n = 0;
    for (int pass = 0; pass < 2 && sorted; pass++) {
        for (int32_t i = 0; i < o->n_members; i++) {
            if ((o->member[i].goal == QR_SC_GOAL_FALSE && !o->member[i].required) == pass)
                sorted[n++] = o->member[i];
        }
        o->n_written = pass == 0 ? n : o->n_written;
    }
    o->member = sorted;
}

/* ---- names that are not ---- */

static int32_t add_pattern(struct qr_sc *sc, struct qr_sc_object *o, const struct qr_json *pattern)
{
    for (int32_t i = 0; i < o->n_patterns; i++) {
        if (strcmp(qr_json_key(o->pattern[i]), qr_json_key(pattern)) == 0)
            return i;
    }
    if (o->n_patterns == QR_SC_PATTERNS_MAX) {
        qr_sc_fail(sc, QR_E_TOO_LARGE, pattern, "more than %d patterns hold for the names of one object", QR_SC_PATTERNS_MAX);
        return 0;
    }
    o->pattern[o->n_patterns] = pattern;
    return o->n_patterns++;
}

static uint32_t patterns_of(struct qr_sc *sc, struct qr_sc_object *o, const struct qr_json *patterns)
{
    uint32_t set = 0;
    for (const struct qr_json *p = patterns ? qr_json_first(patterns) : NULL; p; p = qr_json_after(p))
        set |= 1u << add_pattern(sc, o, p);
    return set;
}

static bool class_is_evaluated(struct qr_sc *sc, struct qr_sc_object *o, const struct qr_sc_shape *s, const struct qr_sc_layer *l, uint32_t set)
{
    for (const struct qr_sc_layer *other = s->layer; other; other = other->next) {
        if (other != l && other->scope != 0 && qr_sc_in_scope(sc, other->scope, l->scope) &&
            (other->has_rest || (patterns_of(sc, o, other->patterns) & set)))
            return true;
    }
    return false;
}

static int32_t class_goal(struct qr_sc *sc, struct qr_sc_object *o, const struct qr_sc_shape *s, uint32_t set)
{
    struct qr_sc_set goal;
    goal.n = 0;
    for (const struct qr_sc_layer *l = s->layer; l; l = l->next) {
        bool said = false;
        if (l->unevaluated) {
            if (!class_is_evaluated(sc, o, s, l, set))
                qr_sc_set_add(sc, &goal, l->rest);
            continue;
        }
        for (const struct qr_json *p = l->patterns ? qr_json_first(l->patterns) : NULL; p; p = qr_json_after(p)) {
            if (!(set >> add_pattern(sc, o, p) & 1))
                continue;
            said = true;
            qr_sc_set_add(sc, &goal, qr_sc_schema_literal(sc, p, 0, false));
        }
        if (!said)
            qr_sc_set_add(sc, &goal, l->rest);
    }
    return qr_sc_goal_of(sc, &goal);
}

/* Every set of patterns that some name can match, as far as pairs of them tell. */
static int32_t find_sets(struct qr_sc *sc, const struct qr_sc_object *o, uint32_t set[CLASSES_MAX])
{
    int32_t n = 1;
    uint32_t meets[QR_SC_PATTERNS_MAX] = {0};
    for (int32_t i = 0; i < o->n_patterns; i++) {
        for (int32_t j = 0; j < i; j++) {
            if (qr_sc_patterns_meet(sc, o->pattern[j], o->pattern[i]))
                meets[i] |= 1u << j;
        }
    }
    set[0] = 0;
    for (int32_t i = 0; i < o->n_patterns; i++) {
        for (int32_t k = 0, n_before = n; k < n_before; k++) {
            if (set[k] & ~meets[i])
                continue;
            if (n == CLASSES_MAX || n > o->n_patterns + OVERLAPS_MAX) {
                qr_sc_fail(sc, QR_E_TOO_LARGE, o->pattern[i], "the patterns of the names of one object overlap in more than %d ways", OVERLAPS_MAX);
                return 0;
            }
            set[n++] = set[k] | 1u << i;
        }
    }
    return n;
}

static void fill_classes(struct qr_sc *sc, const struct qr_sc_shape *s, struct qr_sc_object *o)
{
    uint32_t set[CLASSES_MAX];
    for (const struct qr_sc_layer *l = s->layer; l; l = l->next)
        patterns_of(sc, o, l->patterns);
    for (const struct qr_sc_some *some = s->some; some; some = some->next) {
        patterns_of(sc, o, some->patterns);
        if (some->pattern)
            add_pattern(sc, o, some->pattern);
    }
    o->n_classes = sc->code == 0 ? find_sets(sc, o, set) : 0;
    o->class = qr_sc_alloc(sc, (size_t)o->n_classes + 1, sizeof *o->class);
    for (int32_t i = 0; i < o->n_classes && o->class && sc->code == 0; i++) {
        struct qr_sc_class *c = &o->class[i];
        int32_t j = 0;
        *c = (struct qr_sc_class){.patterns = set[i], .goal = class_goal(sc, o, s, set[i])};
        for (const struct qr_sc_some *some = s->some; some && j < QR_SC_SOME_MAX; some = some->next, j++) {
            const bool is = some->pattern ? set[i] >> add_pattern(sc, o, some->pattern) & 1 : !(patterns_of(sc, o, some->patterns) & set[i]);
            c->some[j] = is ? qr_sc_goal_with(sc, c->goal, some->literal) : QR_SC_GOAL_FALSE;
        }
    }
}

/* Where all classes ask for the same, names need not be told apart. */
static void join_classes(struct qr_sc_object *o)
{
    for (int32_t i = 1; i < o->n_classes; i++) {
        if (o->class[i].goal != o->class[0].goal || memcmp(o->class[i].some, o->class[0].some, sizeof o->class[0].some) != 0)
            return;
    }
    o->n_classes = o->n_classes > 0;
    o->n_patterns = 0;
}

const struct qr_sc_object *qr_sc_resolve_object(struct qr_sc *sc, const struct qr_sc_shape *s)
{
    QR_ASSERT(sc != NULL);
    QR_ASSERT(s->types & QR_SC_OBJECT);
    struct qr_sc_object *o = qr_sc_alloc(sc, 1, sizeof *o);
    if (!o)
        return NULL;
    for (const struct qr_sc_some *some = s->some; some; some = some->next) {
        if (o->n_some++ == QR_SC_SOME_MAX) {
            qr_sc_fail(sc, QR_E_TOO_LARGE, some->at, "more than %d demands for some member of one object", QR_SC_SOME_MAX);
            return NULL;
        }
    }
    struct naming n = {.sc = sc, .shape = s, .o = o};
    qr_map_init(&n.seen, 16);
    name_in_order(&n);
    fill_members(&n);
    qr_map_release(&n.seen);
    part_forbidden(sc, o);
    fill_classes(sc, s, o);
    if (sc->code == 0)
        join_classes(o);
    o->min = s->n_members_min;
    o->max = s->n_members_max;
    return sc->code == 0 ? o : NULL;
}

/* ---- arrays ---- */

static void add_contains(struct qr_sc *sc, struct qr_sc_array *a, const struct qr_sc_contains *c)
{
    if (c->min == 0 && c->max == QR_REPEAT_FOREVER)
        return;
    if (c->literal == QR_SC_LIT_TRUE) {
        a->min = a->min > c->min ? a->min : c->min;
        a->max = a->max < c->max ? a->max : c->max;
        return;
    }
    if (a->contains != QR_SC_LIT_TRUE && (a->contains != c->literal || a->contains_max != QR_REPEAT_FOREVER || c->max != QR_REPEAT_FOREVER))
        qr_sc_fail(sc, QR_E_UNSUPPORTED, c->at, "several contains for one array cannot be enforced");
    a->contains_min = a->contains == QR_SC_LIT_TRUE || c->min > a->contains_min ? c->min : a->contains_min;
    a->contains_max = c->max;
    a->contains = c->literal;
}

const struct qr_sc_array *qr_sc_resolve_array(struct qr_sc *sc, const struct qr_sc_shape *s)
{
    QR_ASSERT(sc != NULL);
    QR_ASSERT(s->types & QR_SC_ARRAY);
    struct qr_sc_array *a = qr_sc_alloc(sc, 1, sizeof *a);
    if (!a)
        return NULL;
    a->min = s->n_items_min;
    a->max = s->n_items_max;
    for (const struct qr_sc_items *t = s->items; t; t = t->next) {
        const int32_t n_prefix = t->prefix ? qr_json_count(t->prefix) : 0;
        a->n_goals = a->n_goals > n_prefix ? a->n_goals : n_prefix;
        a->n_goals = a->n_goals > t->from ? a->n_goals : t->from;
        a->n_goals = a->n_goals > t->index + 1 ? a->n_goals : t->index + 1;
    }
    if (a->n_goals > FIRST_ITEMS_MAX) {
        qr_sc_fail(sc, QR_E_TOO_LARGE, NULL, "more than %d items are described one by one", FIRST_ITEMS_MAX);
        return NULL;
    }
    a->goal = qr_sc_alloc(sc, (size_t)a->n_goals + 1, sizeof *a->goal);
    for (int32_t i = 0; i < a->n_goals && a->goal; i++)
        a->goal[i] = qr_sc_item_goal(sc, s, i);
    a->rest = qr_sc_item_goal(sc, s, a->n_goals);
    for (const struct qr_sc_contains *c = s->contains; c; c = c->next)
        add_contains(sc, a, c);
    return sc->code == 0 ? a : NULL;
}
