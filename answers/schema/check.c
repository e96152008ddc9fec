/* check.c - whether a JSON value is one that a shape or a goal describes: for const and enum beside other keywords. A shape that is marked hard
 * takes anything here, so that it stays and the schema is refused. Owned by one build. */
#include <string.h>

#include "answers/schema/normal.h"
#include "base/assert.h"


bool qr_sc_decimal_of(struct qr_sc *sc, const struct qr_json *v, struct qr_decimal *out)
{
    struct qr_buf text = {0};
    qr_json_print(&text, v);
    const bool ok = text.data && qr_decimal_parse(out, text.data, text.len);
    qr_buf_release(&text);
    return ok || qr_sc_fail(sc, QR_E_TOO_LARGE, v, "a number has more than %d digits, or an exponent beyond 9999", QR_DECIMAL_DIGITS);
}

uint32_t qr_sc_type_of(struct qr_sc *sc, const struct qr_json *v)
{
    QR_ASSERT(v != NULL);
    struct qr_decimal d;
    switch (qr_json_type(v)) {
    case QR_JSON_T_NULL:
        return QR_SC_NULL;
    case QR_JSON_T_BOOL:
        return qr_json_bool(v) ? QR_SC_TRUE : QR_SC_FALSE;
    case QR_JSON_T_NUMBER:
        return qr_sc_decimal_of(sc, v, &d) && qr_decimal_is_integer(&d) ? QR_SC_INTEGER : QR_SC_FRACTION;
    case QR_JSON_T_STRING:
        return QR_SC_STRING;
    case QR_JSON_T_ARRAY:
        return QR_SC_ARRAY;
    default:
        return QR_SC_OBJECT;
    }
}

static bool same_objects(struct qr_sc *sc, const struct qr_json *a, const struct qr_json *b)
{
    if (qr_json_count(a) != qr_json_count(b))
        return false;
    for (const struct qr_json *m = qr_json_first(a); m; m = qr_json_after(m)) {
        const struct qr_json *other = qr_sc_member_find(sc, b, qr_json_key(m));
        if (!other || !qr_sc_same(sc, m, other))
            return false;
    }
    return true;
}

bool qr_sc_same(struct qr_sc *sc, const struct qr_json *a, const struct qr_json *b)
{
    QR_ASSERT(a != NULL && b != NULL);
    size_t len_a, len_b;
    struct qr_decimal x, y;
    if (qr_json_type(a) != qr_json_type(b))
        return false;
    switch (qr_json_type(a)) {
    case QR_JSON_T_NULL:
        return true;
    case QR_JSON_T_BOOL:
        return qr_json_bool(a) == qr_json_bool(b);
    case QR_JSON_T_NUMBER:
        return qr_sc_decimal_of(sc, a, &x) && qr_sc_decimal_of(sc, b, &y) && qr_decimal_compare(&x, &y) == 0;
    case QR_JSON_T_STRING: {
        const char *text_a = qr_json_str(a, &len_a), *text_b = qr_json_str(b, &len_b);
        return len_a == len_b && memcmp(text_a, text_b, len_a) == 0;
    }
    case QR_JSON_T_OBJECT:
        return same_objects(sc, a, b);
    default:
        break;
    }
    a = qr_json_first(a);
    b = qr_json_first(b);
    for (; a && b; a = qr_json_after(a), b = qr_json_after(b)) {
        if (!qr_sc_same(sc, a, b))
            return false;
    }
    return !a && !b;
}

static bool number_takes(struct qr_sc *sc, const struct qr_sc_shape *s, const struct qr_json *v)
{
    struct qr_decimal d;
    if (!qr_sc_decimal_of(sc, v, &d))
        return true;
    if (s->low.value) {
        const int order = qr_decimal_compare(&d, s->low.value);
        if (order < 0 || (order == 0 && s->low.open))
            return false;
    }
    if (s->high.value) {
        const int order = qr_decimal_compare(&d, s->high.value);
        if (order > 0 || (order == 0 && s->high.open))
            return false;
    }
    for (const struct qr_sc_divisor *m = s->divisor; m; m = m->next) {
        if (qr_decimal_is_multiple(&d, m->value) == m->negated)
            return false;
    }
    return true;
}

bool qr_sc_string_takes(struct qr_sc *sc, const struct qr_sc_shape *s, const char *text, size_t len)
{
    QR_ASSERT(text != NULL);
    int32_t n_chars = 0;
    for (size_t i = 0; i < len; i++)
        n_chars += ((unsigned char)text[i] & 0xC0) != 0x80;
    if (n_chars < s->length_min || n_chars > s->length_max)
        return false;
    for (const struct qr_sc_test *t = s->test; t; t = t->next) {
        if (qr_sc_matches(sc, t->at, t->text, t->len, t->is_format, text, len) == t->negated)
            return false;
    }
    return true;
}

static bool contains_takes(struct qr_sc *sc, const struct qr_sc_contains *c, const struct qr_json *v)
{
    int32_t n = 0;
    const int32_t goal = qr_sc_goal_one(sc, c->literal);
    for (const struct qr_json *item = qr_json_first(v); item; item = qr_json_after(item))
        n += qr_sc_goal_takes(sc, goal, item);
    return n >= c->min && n <= c->max;
}

static bool array_takes(struct qr_sc *sc, const struct qr_sc_shape *s, const struct qr_json *v)
{
    const int32_t n = qr_json_count(v);
    if (n < s->n_items_min || n > s->n_items_max)
        return false;
    int32_t i = 0;
    for (const struct qr_json *item = qr_json_first(v); item && s->items; item = qr_json_after(item)) {
        if (!qr_sc_goal_takes(sc, qr_sc_item_goal(sc, s, i++), item))
            return false;
    }
    for (const struct qr_sc_contains *c = s->contains; c; c = c->next) {
        if (!contains_takes(sc, c, v))
            return false;
    }
    for (const struct qr_json *a = s->unique ? qr_json_first(v) : NULL; a; a = qr_json_after(a)) {
        for (const struct qr_json *b = qr_json_after(a); b && qr_sc_step(sc, v, 1); b = qr_json_after(b)) {
            if (qr_sc_same(sc, a, b))
                return false;
        }
    }
    return true;
}

static bool some_takes(struct qr_sc *sc, const struct qr_sc_some *some, const struct qr_json *v)
{
    const int32_t goal = qr_sc_goal_one(sc, some->literal);
    for (const struct qr_json *m = qr_json_first(v); m; m = qr_json_after(m)) {
        if (qr_sc_is_some(sc, some, qr_json_key(m)) && qr_sc_goal_takes(sc, goal, m))
            return true;
    }
    return false;
}

static bool object_takes(struct qr_sc *sc, const struct qr_sc_shape *s, const struct qr_json *v)
{
    const int32_t n = qr_json_count(v);
    if (n < s->n_members_min || n > s->n_members_max)
        return false;
    for (const struct qr_sc_name *r = s->required; r; r = r->next) {
        if (!qr_sc_member_find(sc, v, r->text))
            return false;
    }
    for (const struct qr_json *m = qr_json_first(v); m && (s->layer || s->names); m = qr_json_after(m)) {
        if (!qr_sc_goal_takes(sc, qr_sc_name_goal(sc, s, qr_json_key(m)), m))
            return false;
    }
    for (const struct qr_sc_some *some = s->some; some; some = some->next) {
        if (!some_takes(sc, some, v))
            return false;
    }
    return true;
}

bool qr_sc_string_excluded(const struct qr_sc_shape *s, const char *text)
{
    QR_ASSERT(s != NULL && text != NULL);
    for (const struct qr_sc_values *e = s->excluded; e; e = e->next) {
        for (const struct qr_json *x = e->is_list ? qr_json_first(e->json) : e->json; x; x = e->is_list ? qr_json_after(x) : NULL) {
            if (qr_json_says(x, text))
                return true;
        }
    }
    return false;
}

static bool is_excluded(struct qr_sc *sc, const struct qr_sc_shape *s, const struct qr_json *v)
{
    for (const struct qr_sc_values *e = s->excluded; e; e = e->next) {
        for (const struct qr_json *x = e->is_list ? qr_json_first(e->json) : e->json; x; x = e->is_list ? qr_json_after(x) : NULL) {
            if (qr_sc_same(sc, v, x))
                return true;
        }
    }
    return false;
}

bool qr_sc_shape_takes(struct qr_sc *sc, const struct qr_sc_shape *s, const struct qr_json *v)
{
    QR_ASSERT(s != NULL && v != NULL);
    const uint32_t type = qr_sc_type_of(sc, v);
    if (sc->code != 0)
        return true;
    if (!(s->types & type) || is_excluded(sc, s, v))
        return false;
    if (s->hard)
        return true;
    if (type & QR_SC_NUMBER)
        return number_takes(sc, s, v);
    if (type == QR_SC_STRING) {
        size_t len;
        const char *text = qr_json_str(v, &len);
        return qr_sc_string_takes(sc, s, text, len);
    }
    if (type == QR_SC_ARRAY)
        return array_takes(sc, s, v);
    return type != QR_SC_OBJECT || object_takes(sc, s, v);
}

bool qr_sc_goal_takes(struct qr_sc *sc, int32_t goal, const struct qr_json *v)
{
    QR_ASSERT(goal >= 0 && goal < sc->n_goals);
    if (goal <= QR_SC_GOAL_FALSE)
        return goal == QR_SC_GOAL_TRUE;
    if (!qr_sc_step(sc, v, 1))
        return true;
    const struct qr_sc_shape *s = qr_sc_shapes(sc, goal);
    if (sc->goal[goal]->state == QR_SC_BUSY)
        return true;
    for (; s; s = s->next) {
        bool listed = s->n_values < 0;
        for (int32_t i = 0; i < s->n_values && !listed; i++)
            listed = qr_sc_same(sc, s->value[i], v);
        if (listed && qr_sc_shape_takes(sc, s, v))
            return true;
    }
    return false;
}
