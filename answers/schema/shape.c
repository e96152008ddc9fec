/* shape.c - what is asked of a value, as one list of demands: how two of them meet, and when no value is left. Owned by one build. */
#include <string.h>

#include "answers/schema/normal.h"
#include "base/assert.h"

void qr_sc_shape_init(struct qr_sc_shape *s)
{
    QR_ASSERT(s != NULL);
    *s = (struct qr_sc_shape){.types = QR_SC_ALL, .n_values = -1, .length_max = QR_REPEAT_FOREVER, .n_items_max = QR_REPEAT_FOREVER,
                              .n_members_max = QR_REPEAT_FOREVER};
}

void qr_sc_limit_low(struct qr_sc_shape *s, const struct qr_decimal *value, bool open)
{
    QR_ASSERT(value != NULL);
    const int order = s->low.value ? qr_decimal_compare(value, s->low.value) : 1;
    if (order > 0 || (order == 0 && open))
        s->low = (struct qr_sc_bound){value, open};
}

void qr_sc_limit_high(struct qr_sc_shape *s, const struct qr_decimal *value, bool open)
{
    QR_ASSERT(value != NULL);
    const int order = s->high.value ? qr_decimal_compare(value, s->high.value) : -1;
    if (order < 0 || (order == 0 && open))
        s->high = (struct qr_sc_bound){value, open};
}

/* ---- meeting ---- */

/* A copy of list `from` in front of list `to`. */
#define PREPEND(sc, to, from, type)                                   \
    do {                                                              \
        const struct type *behind_ = (to), **at_ = &(to);             \
        for (const struct type *p_ = (from); p_; p_ = p_->next) {     \
            struct type *copy_ = qr_sc_alloc((sc), 1, sizeof *copy_); \
            if (!copy_ || !qr_sc_step((sc), NULL, 1))                 \
                return false;                                         \
            *copy_ = *p_;                                             \
            *at_ = copy_;                                             \
            at_ = (const struct type **)&copy_->next;                 \
        }                                                             \
        *at_ = behind_;                                               \
    } while (0)

static bool meet_values(struct qr_sc *sc, struct qr_sc_shape *s, const struct qr_sc_shape *with)
{
    if (with->n_values < 0)
        return true;
    if (s->n_values < 0) {
        s->value = with->value;
        s->n_values = with->n_values;
        return true;
    }
    const struct qr_json **kept = qr_sc_alloc(sc, (size_t)s->n_values + 1, sizeof *kept);
    int32_t n = 0;
    for (int32_t i = 0; kept && i < s->n_values; i++) {
        bool found = false;
        for (int32_t j = 0; j < with->n_values && !found; j++)
            found = qr_sc_same(sc, s->value[i], with->value[j]);
        if (!qr_sc_step(sc, s->value[i], 1 + with->n_values / 16))
            return false;
        if (found)
            kept[n++] = s->value[i];
    }
    s->value = kept;
    s->n_values = n;
    return kept != NULL;
}

bool qr_sc_meet(struct qr_sc *sc, struct qr_sc_shape *s, const struct qr_sc_shape *with)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(with != NULL);
    s->types &= with->types;
    if (s->types == 0 || !meet_values(sc, s, with))
        return false;
    PREPEND(sc, s->excluded, with->excluded, qr_sc_values);
    if (with->low.value)
        qr_sc_limit_low(s, with->low.value, with->low.open);
    if (with->high.value)
        qr_sc_limit_high(s, with->high.value, with->high.open);
    PREPEND(sc, s->divisor, with->divisor, qr_sc_divisor);
    s->length_min = s->length_min > with->length_min ? s->length_min : with->length_min;
    s->length_max = s->length_max < with->length_max ? s->length_max : with->length_max;
    PREPEND(sc, s->test, with->test, qr_sc_test);
    s->n_items_min = s->n_items_min > with->n_items_min ? s->n_items_min : with->n_items_min;
    s->n_items_max = s->n_items_max < with->n_items_max ? s->n_items_max : with->n_items_max;
    PREPEND(sc, s->items, with->items, qr_sc_items);
    PREPEND(sc, s->contains, with->contains, qr_sc_contains);
    s->unique = s->unique ? s->unique : with->unique;
    s->n_members_min = s->n_members_min > with->n_members_min ? s->n_members_min : with->n_members_min;
    s->n_members_max = s->n_members_max < with->n_members_max ? s->n_members_max : with->n_members_max;
    PREPEND(sc, s->layer, with->layer, qr_sc_layer);
    PREPEND(sc, s->required, with->required, qr_sc_name);
    PREPEND(sc, s->some, with->some, qr_sc_some);
    PREPEND(sc, s->names, with->names, qr_sc_literals);
    s->hard = s->hard ? s->hard : with->hard;
    return true;
}

void qr_sc_keep_values(struct qr_sc *sc, struct qr_sc_shape *s, const struct qr_json *json, bool is_list)
{
    QR_ASSERT(json != NULL);
    const int32_t n = is_list ? qr_json_count(json) : 1;
    struct qr_sc_shape list = {.n_values = n, .value = qr_sc_alloc(sc, (size_t)n + 1, sizeof *list.value)};
    if (!list.value)
        return;
    int32_t i = 0;
    for (const struct qr_json *v = is_list ? qr_json_first(json) : json; v && i < n; v = qr_json_after(v))
        list.value[i++] = v;
    meet_values(sc, s, &list);
}

/* ---- names and indices ---- */

/* The demands of one layer on the member `name`, into set. Returns whether one of its keywords says something of it. */
static bool layer_says(struct qr_sc *sc, const struct qr_sc_layer *l, const char *name, struct qr_sc_set *set)
{
    bool said = l->name && strcmp(l->name, name) == 0;
    if (said && set)
        qr_sc_set_add(sc, set, l->name_literal);
    const struct qr_json *v = l->props ? qr_sc_member_find(sc, l->props, name) : NULL;
    if (v) {
        said = true;
        if (set)
            qr_sc_set_add(sc, set, qr_sc_schema_literal(sc, v, 0, false));
    }
    for (const struct qr_json *p = l->patterns ? qr_json_first(l->patterns) : NULL; p; p = qr_json_after(p)) {
        if (!qr_sc_matches(sc, p, qr_json_key(p), strlen(qr_json_key(p)), false, name, strlen(name)))
            continue;
        said = true;
        if (set)
            qr_sc_set_add(sc, set, qr_sc_schema_literal(sc, p, 0, false));
    }
    return said;
}

/* Whether a keyword inside the scope of l, an unevaluatedProperties, has seen the member. */
static bool is_evaluated(struct qr_sc *sc, const struct qr_sc_shape *s, const struct qr_sc_layer *l, const char *name)
{
    for (const struct qr_sc_layer *other = s->layer; other; other = other->next) {
        if (other != l && other->scope != 0 && qr_sc_in_scope(sc, other->scope, l->scope) && (other->has_rest || layer_says(sc, other, name, NULL)))
            return true;
    }
    return false;
}

int32_t qr_sc_name_goal(struct qr_sc *sc, const struct qr_sc_shape *s, const char *name)
{
    struct qr_sc_set set;
    set.n = 0;
    for (const struct qr_sc_layer *l = s->layer; l; l = l->next) {
        if (l->unevaluated) {
            if (!is_evaluated(sc, s, l, name))
                qr_sc_set_add(sc, &set, l->rest);
        } else if (!layer_says(sc, l, name, &set)) {
            qr_sc_set_add(sc, &set, l->rest);
        }
    }
    return qr_sc_name_may_be(sc, s, name) ? qr_sc_goal_of(sc, &set) : QR_SC_GOAL_FALSE;
}

static bool items_see(const struct qr_sc_items *t, int32_t index)
{
    return t->has_rest || (t->prefix && index < qr_json_count(t->prefix)) || t->index == index;
}

static bool item_is_evaluated(struct qr_sc *sc, const struct qr_sc_shape *s, const struct qr_sc_items *t, int32_t index)
{
    for (const struct qr_sc_items *other = s->items; other; other = other->next) {
        if (other != t && other->scope != 0 && qr_sc_in_scope(sc, other->scope, t->scope) && items_see(other, index))
            return true;
    }
    return false;
}

int32_t qr_sc_item_goal(struct qr_sc *sc, const struct qr_sc_shape *s, int32_t index)
{
    struct qr_sc_set set;
    set.n = 0;
    for (const struct qr_sc_items *t = s->items; t; t = t->next) {
        if (t->unevaluated) {
            if (!item_is_evaluated(sc, s, t, index))
                qr_sc_set_add(sc, &set, t->rest);
            continue;
        }
        if (t->index == index)
            qr_sc_set_add(sc, &set, t->index_literal);
        const struct qr_json *v = t->prefix ? qr_json_first(t->prefix) : NULL;
        for (int32_t i = 0; v && i < index; i++)
            v = qr_json_after(v);
        if (v)
            qr_sc_set_add(sc, &set, qr_sc_schema_literal(sc, v, 0, false));
        if (index >= t->from)
            qr_sc_set_add(sc, &set, t->rest);
    }
    return qr_sc_goal_of(sc, &set);
}

/* ---- whether anything is left ---- */

/* The least integer that is not below the bound is at most the greatest one that is not above. */
static bool holds_integer(const struct qr_sc_shape *s)
{
    struct qr_decimal low, high;
    if (!s->low.value || !s->high.value)
        return true;
    if (qr_decimal_is_integer(s->low.value) || qr_decimal_is_integer(s->high.value)) {
        const bool low_in = qr_decimal_is_integer(s->low.value) && !s->low.open, high_in = qr_decimal_is_integer(s->high.value) && !s->high.open;
        if (low_in || high_in)
            return true;
    }
    low = *s->low.value;
    high = *s->high.value;
    if (low.negative && !high.negative && (high.n > 0 || !s->high.open))
        return true; /* zero lies between */
    const struct qr_decimal *small = low.negative ? &high : &low, *large = low.negative ? &low : &high;
    const int32_t top = qr_decimal_top(large);
    return top > 15 || qr_decimal_integers_between(small, large) > 0;
}

/* A range without integers leaves the type integer alone where there are fractions: of numbers the range says enough. */
static void drop_numbers(struct qr_sc_shape *s)
{
    uint32_t left = s->types & QR_SC_NUMBER;
    if (!s->low.value || !s->high.value)
        return;
    const int order = qr_decimal_compare(s->low.value, s->high.value);
    if (order > 0 || (order == 0 && (s->low.open || s->high.open)))
        left = 0;
    else if (order == 0)
        left &= qr_decimal_is_integer(s->low.value) ? QR_SC_INTEGER : QR_SC_FRACTION;
    else if (!holds_integer(s))
        left &= QR_SC_FRACTION;
    if (left == 0)
        s->types &= ~(uint32_t)QR_SC_NUMBER;
}

/* What contains lets pass has been seen by unevaluatedItems around it: which items those are, nothing here can say. */
static bool contains_evaluates(struct qr_sc *sc, struct qr_sc_shape *s)
{
    for (const struct qr_sc_contains *c = s->contains; c; c = c->next) {
        for (const struct qr_sc_items *t = c->scope != 0 ? s->items : NULL; t; t = t->next) {
            if (!t->unevaluated || !qr_sc_in_scope(sc, c->scope, t->scope))
                continue;
            s->hard = s->hard ? s->hard : c->at;
            return true;
        }
    }
    return false;
}

static void drop_array(struct qr_sc *sc, struct qr_sc_shape *s)
{
    const int32_t max_looked = 64;
    if (contains_evaluates(sc, s))
        return;
    bool dead = s->n_items_min > s->n_items_max;
    for (int32_t i = 0; i < s->n_items_min && i < max_looked && s->items && !dead; i++)
        dead = qr_sc_goal_empty(sc, qr_sc_item_goal(sc, s, i));
    if (dead)
        s->types &= ~(uint32_t)QR_SC_ARRAY;
}

static void drop_object(struct qr_sc *sc, struct qr_sc_shape *s)
{
    bool dead = s->n_members_min > s->n_members_max;
    for (const struct qr_sc_name *r = s->required; r && !dead; r = r->next)
        dead = (s->layer || s->names) && qr_sc_goal_empty(sc, qr_sc_name_goal(sc, s, r->text));
    if (dead)
        s->types &= ~(uint32_t)QR_SC_OBJECT;
}

static void drop_values(struct qr_sc *sc, struct qr_sc_shape *s)
{
    uint32_t types = 0;
    int32_t n = 0;
    const struct qr_json **kept = qr_sc_alloc(sc, (size_t)s->n_values + 1, sizeof *kept);
    if (!kept)
        return;
    for (int32_t i = 0; i < s->n_values && qr_sc_step(sc, s->value[i], 1); i++) {
        if (!qr_sc_shape_takes(sc, s, s->value[i]))
            continue;
        types |= qr_sc_type_of(sc, s->value[i]);
        kept[n++] = s->value[i];
    }
    s->types &= types;
    s->value = kept;
    s->n_values = n;
}

/* Of null, false and true, and of the empty array and object: those that are excluded. */
static void drop_excluded(struct qr_sc *sc, struct qr_sc_shape *s)
{
    for (const struct qr_sc_values *e = s->excluded; e; e = e->next) {
        for (const struct qr_json *v = e->is_list ? qr_json_first(e->json) : e->json; v; v = e->is_list ? qr_json_after(v) : NULL) {
            s->types &= ~(qr_sc_type_of(sc, v) & (uint32_t)(QR_SC_NULL | QR_SC_FALSE | QR_SC_TRUE));
            if (qr_json_type(v) == QR_JSON_T_ARRAY && qr_json_count(v) == 0 && s->n_items_min == 0)
                s->n_items_min = 1;
            if (qr_json_type(v) == QR_JSON_T_OBJECT && qr_json_count(v) == 0 && s->n_members_min == 0)
                s->n_members_min = 1;
        }
    }
}

bool qr_sc_shape_dead(struct qr_sc *sc, struct qr_sc_shape *s)
{
    QR_ASSERT(sc != NULL && s != NULL);
    if (s->types != 0 && s->excluded)
        drop_excluded(sc, s);
    if (s->n_values >= 0 && s->types != 0)
        drop_values(sc, s);
    if (s->types == 0)
        return true;
    drop_numbers(s);
    if ((s->types & QR_SC_STRING) && s->length_min > s->length_max)
        s->types &= ~(uint32_t)QR_SC_STRING;
    if (s->types & QR_SC_ARRAY)
        drop_array(sc, s);
    if (s->types & QR_SC_OBJECT)
        drop_object(sc, s);
    return s->types == 0;
}
