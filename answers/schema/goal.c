/* goal.c - literals and goals: each is one number however often it is met, which is what ends recursion. Owned by one build. */
#include <string.h>

#include "answers/schema/normal.h"
#include "base/assert.h"
#include "base/mem.h"

#define LITERALS_MAX (1 << 16)
#define GOALS_MAX (1 << 15)
#define INDEX_FROM 16 /* members of an object that gets an index */

struct qr_sc_index { struct qr_map map; const struct qr_json **member; };

bool qr_sc_is_schema(const struct qr_json *v)
{
    return v && (qr_json_type(v) == QR_JSON_T_OBJECT || qr_json_type(v) == QR_JSON_T_BOOL);
}

int32_t qr_sc_literal(struct qr_sc *sc, const struct qr_sc_literal *l)
{
    QR_ASSERT(sc != NULL && l != NULL);
    QR_ASSERT(l->inner < sc->n_literals);
    struct qr_sc_literal key;
    memset(&key, 0, sizeof key); /* padding, too: the bytes are compared */
    key.op = l->op;
    key.scope = l->scope;
    key.number = l->number;
    key.inner = l->inner;
    key.json = l->json;
    key.owner = l->owner;
    key.name = l->name;
    const int32_t found = qr_map_find(&sc->literal_map, (const char *)&key, sizeof key, -1);
    if (found >= 0)
        return found;
    if (sc->n_literals == LITERALS_MAX) {
        qr_sc_fail(sc, QR_E_TOO_LARGE, l->json, "the schema has more than %d parts when its references are followed", LITERALS_MAX);
        return QR_SC_LIT_FALSE;
    }
    struct qr_sc_literal *kept = qr_sc_alloc(sc, 1, sizeof *kept);
    if (!kept)
        return QR_SC_LIT_FALSE;
    memcpy(kept, &key, sizeof key);
    qr_map_add(&sc->literal_map, (const char *)kept, sizeof *kept, sc->n_literals);
    sc->literal = QR_GROW(sc->literal, sc->n_literals, sc->literals_cap);
    sc->literal[sc->n_literals] = key;
    return sc->n_literals++;
}

/* Whether the object holds nothing that could refuse a value. */
static bool is_open(const struct qr_json *schema)
{
    for (const struct qr_json *m = qr_json_first(schema); m; m = qr_json_after(m)) {
        if (qr_sc_keyword_matters(qr_json_key(m)))
            return false;
    }
    return true;
}

int32_t qr_sc_schema_literal(struct qr_sc *sc, const struct qr_json *schema, int32_t scope, bool negated)
{
    QR_ASSERT(sc != NULL);
    if (!qr_sc_is_schema(schema)) {
        qr_sc_fail(sc, QR_E_INVALID, schema, "a schema must be an object, true or false");
        return QR_SC_LIT_FALSE;
    }
    if (qr_json_type(schema) == QR_JSON_T_BOOL)
        return qr_json_bool(schema) != negated ? QR_SC_LIT_TRUE : QR_SC_LIT_FALSE;
    if (is_open(schema))
        return negated ? QR_SC_LIT_FALSE : QR_SC_LIT_TRUE;
    return qr_sc_literal(sc, &(struct qr_sc_literal){.op = negated ? QR_SC_OP_NOT : QR_SC_OP_SCHEMA, .scope = negated ? 0 : scope, .json = schema});
}

void qr_sc_set_add(struct qr_sc *sc, struct qr_sc_set *set, int32_t literal)
{
    QR_ASSERT(set->n <= QR_SC_SET_MAX);
    QR_ASSERT(literal >= 0);
    if (literal == QR_SC_LIT_TRUE)
        return;
    int32_t at = set->n;
    while (at > 0 && set->id[at - 1] > literal)
        at--;
    if (at > 0 && set->id[at - 1] == literal)
        return;
    if (set->n == QR_SC_SET_MAX) {
        qr_sc_fail(sc, QR_E_TOO_LARGE, sc->literal[literal].json, "more than %d schemas hold for one value", QR_SC_SET_MAX);
        return;
    }
    memmove(set->id + at + 1, set->id + at, (size_t)(set->n - at) * sizeof set->id[0]);
    set->id[at] = literal;
    set->n++;
}

int32_t qr_sc_goal_of(struct qr_sc *sc, struct qr_sc_set *set)
{
    QR_ASSERT(sc != NULL && set != NULL);
    if (set->n > 0 && set->id[0] == QR_SC_LIT_FALSE)
        set->n = 1;
    const size_t len = (size_t)set->n * sizeof set->id[0];
    const int32_t found = qr_map_find(&sc->goal_map, (const char *)set->id, len, -1);
    if (found >= 0)
        return found;
    struct qr_sc_goal *goal = qr_sc_alloc(sc, 1, sizeof *goal);
    int32_t *ids = qr_sc_alloc(sc, (size_t)set->n + 1, sizeof *ids);
    if (sc->n_goals == GOALS_MAX)
        qr_sc_fail(sc, QR_E_TOO_LARGE, set->n > 0 ? sc->literal[set->id[0]].json : NULL, "the schema has more than %d different parts", GOALS_MAX);
    if (!goal || !ids || sc->n_goals == GOALS_MAX)
        return QR_SC_GOAL_FALSE;
    memcpy(ids, set->id, len);
    *goal = (struct qr_sc_goal){.literal = ids, .n = set->n, .id = sc->n_goals, .expr = -1, .rule = -1};
    qr_map_add(&sc->goal_map, (const char *)ids, len, sc->n_goals);
    sc->goal = QR_GROW(sc->goal, sc->n_goals, sc->goals_cap);
    sc->goal[sc->n_goals] = goal;
    return sc->n_goals++;
}

int32_t qr_sc_goal_one(struct qr_sc *sc, int32_t literal)
{
    struct qr_sc_set set;
    set.n = 0;
    qr_sc_set_add(sc, &set, literal);
    return qr_sc_goal_of(sc, &set);
}

int32_t qr_sc_goal_with(struct qr_sc *sc, int32_t goal, int32_t literal)
{
    QR_ASSERT(goal >= 0 && goal < sc->n_goals);
    struct qr_sc_set set;
    const struct qr_sc_goal *g = sc->goal[goal];
    set.n = g->n;
    memcpy(set.id, g->literal, (size_t)g->n * sizeof set.id[0]);
    qr_sc_set_add(sc, &set, literal);
    return qr_sc_goal_of(sc, &set);
}

static bool is_large(const struct qr_json *object)
{
    int32_t n = 0;
    for (const struct qr_json *m = qr_json_first(object); m && n < INDEX_FROM; m = qr_json_after(m))
        n++;
    return n == INDEX_FROM;
}

/* A large object's members by their names; NULL without memory. */
static struct qr_sc_index *index_members(struct qr_sc *sc, const struct qr_json *object)
{
    const int32_t n = qr_json_count(object);
    struct qr_sc_index *index = qr_sc_alloc(sc, 1, sizeof *index);
    const struct qr_json **member = qr_sc_alloc(sc, (size_t)n, sizeof *member);
    if (!index || !member)
        return NULL;
    index->member = member;
    qr_map_init(&index->map, (size_t)n);
    int32_t i = 0;
    for (const struct qr_json *m = qr_json_first(object); m; m = qr_json_after(m), i++) {
        member[i] = m;
        qr_map_add(&index->map, qr_json_key(m), strlen(qr_json_key(m)), i);
    }
    return index;
}

const struct qr_json *qr_sc_member_find(struct qr_sc *sc, const struct qr_json *object, const char *name)
{
    QR_ASSERT(sc != NULL);
    QR_ASSERT(name != NULL);
    if (!is_large(object))
        return qr_json_find(object, name);
    int32_t at = qr_map_find(&sc->index_map, (const char *)&object, sizeof object, -1);
    struct qr_sc_index *index = NULL;
    if (at < 0) {
        index = index_members(sc, object);
        if (!index)
            return NULL;
        const struct qr_json **key = qr_sc_alloc(sc, 1, sizeof *key);
        if (!key)
            return NULL;
        *key = object;
        at = sc->n_indices;
        sc->indices = QR_GROW(sc->indices, sc->n_indices, sc->indices_cap);
        sc->indices[sc->n_indices++] = index;
        qr_map_add(&sc->index_map, (const char *)key, sizeof *key, at);
    }
    index = sc->indices[at];
    const int32_t i = qr_map_find(&index->map, name, strlen(name), -1);
    return i < 0 ? NULL : index->member[i];
}

void qr_sc_goals_release(struct qr_sc *sc)
{
    for (int32_t i = 0; i < sc->n_indices; i++)
        qr_map_release(&sc->indices[i]->map);
    qr_free(sc->indices);
    qr_map_release(&sc->index_map);
    qr_map_release(&sc->goal_map);
    qr_map_release(&sc->literal_map);
    qr_free(sc->goal);
    qr_free(sc->literal);
}

bool qr_sc_in_scope(const struct qr_sc *sc, int32_t scope, int32_t outer)
{
    QR_ASSERT(scope >= 0 && scope < sc->n_literals);
    QR_ASSERT(outer >= 0);
    while (scope != 0 && scope != outer)
        scope = sc->literal[scope].scope;
    return scope == outer;
}
