/* strict.c - OpenAI's rules for schemas with strict: true, as far as they are not about what can be enforced: an object at the root, every object
 * closed and all of its properties required, and limits of size (structured.md 1.4). Owned by one build. */
#include <string.h>

#include "answers/schema/normal.h"
#include "base/assert.h"

#define PROPERTIES_MAX 5000
#define LEVELS_MAX 10
#define CHARS_MAX 120000
#define VALUES_MAX 1000
#define LONG_ENUM 250
#define LONG_ENUM_CHARS_MAX 15000

struct tally { int32_t n_properties, n_values; size_t n_chars; };

static bool check(struct qr_sc *sc, const struct qr_json *schema, int32_t level, struct tally *t);

static bool is_object_type(const struct qr_json *schema)
{
    const struct qr_json *type = qr_json_find(schema, "type");
    if (!type)
        return qr_json_find(schema, "properties") != NULL;
    if (qr_json_says(type, "object"))
        return true;
    for (const struct qr_json *v = qr_json_type(type) == QR_JSON_T_ARRAY ? qr_json_first(type) : NULL; v; v = qr_json_after(v)) {
        if (qr_json_says(v, "object"))
            return true;
    }
    return false;
}

static bool is_required(const struct qr_json *required, const char *name)
{
    for (const struct qr_json *v = required ? qr_json_first(required) : NULL; v; v = qr_json_after(v)) {
        if (qr_json_says(v, name))
            return true;
    }
    return false;
}

/* required as a set, as there may be thousands of properties. */
static bool all_required(struct qr_sc *sc, const struct qr_json *props, const struct qr_json *required)
{
    const struct qr_json *v = required && qr_json_type(required) == QR_JSON_T_ARRAY ? qr_json_first(required) : NULL;
    for (const struct qr_json *m = props ? qr_json_first(props) : NULL; m; m = qr_json_after(m)) {
        const bool next = v && qr_json_says(v, qr_json_key(m)); /* mostly in the same order */
        v = v ? qr_json_after(v) : NULL;
        if (!next && !is_required(required, qr_json_key(m)))
            return qr_sc_fail(sc, QR_E_INVALID, m, "strict: every property must be in required; make it optional by a union with null");
        if (!qr_sc_step(sc, m, 1))
            return false;
    }
    return true;
}

static bool check_object(struct qr_sc *sc, const struct qr_json *schema, int32_t level, struct tally *t)
{
    const struct qr_json *props = qr_json_find(schema, "properties"), *rest = qr_json_find(schema, "additionalProperties");
    if (!rest || qr_json_type(rest) != QR_JSON_T_BOOL || qr_json_bool(rest))
        return qr_sc_fail(sc, QR_E_INVALID, rest ? rest : schema, "strict: additionalProperties must be there and false in every object");
    if (level > LEVELS_MAX)
        return qr_sc_fail(sc, QR_E_INVALID, schema, "strict: objects are nested more than %d deep", LEVELS_MAX);
    if (!all_required(sc, props, qr_json_find(schema, "required")))
        return false;
    for (const struct qr_json *m = props ? qr_json_first(props) : NULL; m; m = qr_json_after(m)) {
        t->n_chars += strlen(qr_json_key(m));
        if (++t->n_properties > PROPERTIES_MAX)
            return qr_sc_fail(sc, QR_E_INVALID, m, "strict: more than %d properties", PROPERTIES_MAX);
        if (!check(sc, m, level + 1, t))
            return false;
    }
    return true;
}

static bool check_enum(struct qr_sc *sc, const struct qr_json *values, struct tally *t)
{
    size_t n_chars = 0, len;
    const int32_t n = qr_json_count(values);
    for (const struct qr_json *v = qr_json_first(values); v; v = qr_json_after(v)) {
        if (qr_json_text(v, &len))
            n_chars += len;
    }
    t->n_chars += n_chars;
    t->n_values += n;
    if (t->n_values > VALUES_MAX)
        return qr_sc_fail(sc, QR_E_INVALID, values, "strict: more than %d enum values", VALUES_MAX);
    if (n > LONG_ENUM && n_chars > LONG_ENUM_CHARS_MAX)
        return qr_sc_fail(sc, QR_E_INVALID, values, "strict: an enum of more than %d values has more than %d characters", LONG_ENUM, LONG_ENUM_CHARS_MAX);
    return true;
}

static bool check_map(struct qr_sc *sc, const struct qr_json *map, int32_t level, struct tally *t)
{
    for (const struct qr_json *m = map ? qr_json_first(map) : NULL; m; m = qr_json_after(m)) {
        t->n_chars += qr_json_key(m) ? strlen(qr_json_key(m)) : 0;
        if (!check(sc, m, level, t))
            return false;
    }
    return true;
}

static bool check(struct qr_sc *sc, const struct qr_json *schema, int32_t level, struct tally *t)
{
    static const char *const lists[] = {"anyOf", "oneOf", "allOf", "prefixItems", "$defs", "definitions"};
    static const char *const singles[] = {"items", "not", "if", "then", "else", "contains"};
    size_t len;
    if (qr_json_type(schema) != QR_JSON_T_OBJECT)
        return true;
    const struct qr_json *values = qr_json_find(schema, "enum"), *given = qr_json_find(schema, "const");
    if (is_object_type(schema) && !check_object(sc, schema, level, t))
        return false;
    if (values && qr_json_type(values) == QR_JSON_T_ARRAY && !check_enum(sc, values, t))
        return false;
    if (given && qr_json_text(given, &len))
        t->n_chars += len;
    if (t->n_chars > CHARS_MAX)
        return qr_sc_fail(sc, QR_E_INVALID, schema, "strict: names, enum and const have more than %d characters", CHARS_MAX);
    for (int i = 0; i < QR_COUNT(lists); i++) {
        if (!check_map(sc, qr_json_find(schema, lists[i]), lists[i][0] == '$' || lists[i][0] == 'd' ? 1 : level, t))
            return false;
    }
    for (int i = 0; i < QR_COUNT(singles); i++) {
        const struct qr_json *one = qr_json_find(schema, singles[i]);
        if (one && !check(sc, one, level, t))
            return false;
    }
    return true;
}

int qr_sc_check_strict(struct qr_sc *sc)
{
    QR_ASSERT(sc != NULL);
    QR_ASSERT(sc->root != NULL);
    struct tally t = {0};
    const struct qr_json *type = qr_json_find(sc->root, "type"), *any = qr_json_find(sc->root, "anyOf");
    if (any)
        qr_sc_fail(sc, QR_E_INVALID, any, "strict: the root must be an object, and no anyOf");
    else if (!type || !qr_json_says(type, "object"))
        qr_sc_fail(sc, QR_E_INVALID, type ? type : sc->root, "strict: the root's type must be object");
    else
        check(sc, sc->root, 1, &t);
    return sc->code;
}
