/* keyword.c - what each keyword of JSON Schema puts into a shape. Keywords that are not in the table are annotations and names of others.
 * Owned by one build. */
#include <string.h>

#include "answers/schema/expand.h"
#include "base/assert.h"

#define COUNT_MAX (1 << 30)

bool qr_sc_read_count(struct qr_sc *sc, const struct qr_json *member, int32_t *out)
{
    const double value = member && qr_json_type(member) == QR_JSON_T_NUMBER ? qr_json_f64(member) : -1;
    int64_t whole;
    if (value < 0 || (value < COUNT_MAX && !qr_json_i64(member, &whole)))
        return qr_sc_fail(sc, QR_E_INVALID, member, "%s must be an integer that is not negative", qr_json_key(member));
    *out = value < COUNT_MAX ? (int32_t)value : COUNT_MAX;
    return true;
}

bool qr_sc_read_decimal(struct qr_sc *sc, const struct qr_json *member, const struct qr_decimal **out)
{
    struct qr_decimal *d = qr_sc_alloc(sc, 1, sizeof *d);
    *out = d;
    if (!d)
        return false;
    if (qr_json_type(member) != QR_JSON_T_NUMBER)
        return qr_sc_fail(sc, QR_E_INVALID, member, "%s must be a number", qr_json_key(member));
    return qr_sc_decimal_of(sc, member, d);
}

static uint32_t type_of_name(const struct qr_json *v)
{
    static const struct { const char *name; uint32_t types; } known[] = {
        {"null", QR_SC_NULL}, {"boolean", QR_SC_FALSE | QR_SC_TRUE}, {"integer", QR_SC_INTEGER}, {"number", QR_SC_NUMBER},
        {"string", QR_SC_STRING}, {"array", QR_SC_ARRAY}, {"object", QR_SC_OBJECT}, {"any", QR_SC_ALL},
    };
    for (int i = 0; i < QR_COUNT(known); i++) {
        if (qr_json_says(v, known[i].name))
            return known[i].types;
    }
    return 0;
}

uint32_t qr_sc_read_types(struct qr_sc *sc, const struct qr_json *member)
{
    uint32_t types = 0;
    const bool is_list = qr_json_type(member) == QR_JSON_T_ARRAY;
    for (const struct qr_json *v = is_list ? qr_json_first(member) : member; v; v = is_list ? qr_json_after(v) : NULL) {
        const uint32_t one = type_of_name(v);
        if (one == 0)
            qr_sc_fail(sc, QR_E_INVALID, v, "type must be one of null, boolean, integer, number, string, array and object, or a list of these");
        types |= one;
    }
    return types;
}

void qr_sc_add_layer(struct qr_sc *sc, struct qr_sc_work *w, const struct qr_sc_layer *layer)
{
    struct qr_sc_layer *l = qr_sc_alloc(sc, 1, sizeof *l);
    if (!l)
        return;
    *l = *layer;
    l->next = w->shape.layer;
    w->shape.layer = l;
}

void qr_sc_add_items(struct qr_sc *sc, struct qr_sc_work *w, const struct qr_sc_items *items)
{
    struct qr_sc_items *t = qr_sc_alloc(sc, 1, sizeof *t);
    if (!t)
        return;
    *t = *items;
    t->next = w->shape.items;
    w->shape.items = t;
}

void qr_sc_add_required(struct qr_sc *sc, struct qr_sc_work *w, const char *name)
{
    struct qr_sc_name *r = qr_sc_alloc(sc, 1, sizeof *r);
    if (!r)
        return;
    *r = (struct qr_sc_name){.next = w->shape.required, .text = name};
    w->shape.required = r;
}

static bool must_be(struct qr_sc *sc, const struct qr_json *member, enum qr_json_type type)
{
    return qr_json_type(member) == type ||
           qr_sc_fail(sc, QR_E_INVALID, member, "%s must be of type %s, found %s", qr_json_key(member), qr_json_type_name(type),
                      qr_json_type_name(qr_json_type(member)));
}

static bool is_true(const struct qr_json *v) { return v && qr_json_type(v) == QR_JSON_T_BOOL && qr_json_bool(v); }

#define KEYWORD(name) \
    static void name(struct qr_sc *sc, struct qr_sc_work *w, const struct qr_json *schema, const struct qr_json *member, int32_t scope)

KEYWORD(apply_type) { w->shape.types &= qr_sc_read_types(sc, member); }

KEYWORD(apply_enum)
{
    if (must_be(sc, member, QR_JSON_T_ARRAY))
        qr_sc_keep_values(sc, &w->shape, member, true);
}

KEYWORD(apply_const) { qr_sc_keep_values(sc, &w->shape, member, false); }

/* ---- numbers and strings ---- */

KEYWORD(apply_low)
{
    const struct qr_decimal *d;
    if (qr_sc_read_decimal(sc, member, &d))
        qr_sc_limit_low(&w->shape, d, is_true(qr_json_find(schema, "exclusiveMinimum")));
}

KEYWORD(apply_high)
{
    const struct qr_decimal *d;
    if (qr_sc_read_decimal(sc, member, &d))
        qr_sc_limit_high(&w->shape, d, is_true(qr_json_find(schema, "exclusiveMaximum")));
}

KEYWORD(apply_exclusive_low)
{
    const struct qr_decimal *d;
    if (qr_json_type(member) != QR_JSON_T_BOOL && qr_sc_read_decimal(sc, member, &d))
        qr_sc_limit_low(&w->shape, d, true);
}

KEYWORD(apply_exclusive_high)
{
    const struct qr_decimal *d;
    if (qr_json_type(member) != QR_JSON_T_BOOL && qr_sc_read_decimal(sc, member, &d))
        qr_sc_limit_high(&w->shape, d, true);
}

KEYWORD(apply_multiple)
{
    const struct qr_decimal *d;
    struct qr_sc_divisor *m = qr_sc_alloc(sc, 1, sizeof *m);
    if (!m || !qr_sc_read_decimal(sc, member, &d))
        return;
    if (d->n == 0 || d->negative) {
        qr_sc_fail(sc, QR_E_INVALID, member, "multipleOf must be greater than 0");
        return;
    }
    *m = (struct qr_sc_divisor){.next = w->shape.divisor, .value = d, .at = member};
    w->shape.divisor = m;
}

#define AT_LEAST(field) \
    int32_t n; \
    if (qr_sc_read_count(sc, member, &n) && w->shape.field < n) \
        w->shape.field = n
#define AT_MOST(field) \
    int32_t n; \
    if (qr_sc_read_count(sc, member, &n) && n < COUNT_MAX && w->shape.field > n) \
        w->shape.field = n

KEYWORD(apply_length_min) { AT_LEAST(length_min); }
KEYWORD(apply_length_max) { AT_MOST(length_max); }
KEYWORD(apply_items_min) { AT_LEAST(n_items_min); }
KEYWORD(apply_items_max) { AT_MOST(n_items_max); }
KEYWORD(apply_members_min) { AT_LEAST(n_members_min); }
KEYWORD(apply_members_max) { AT_MOST(n_members_max); }

KEYWORD(apply_string_test)
{
    size_t len;
    if (!must_be(sc, member, QR_JSON_T_STRING))
        return;
    const char *text = qr_json_str(member, &len);
    const bool is_format = strcmp(qr_json_key(member), "format") == 0;
    struct qr_sc_test *t = qr_sc_alloc(sc, 1, sizeof *t);
    if (!t || (is_format && !qr_sc_format_known(text, len)))
        return;
    *t = (struct qr_sc_test){.next = w->shape.test, .text = text, .len = len, .is_format = is_format, .at = member};
    w->shape.test = t;
}

/* ---- objects ---- */

static bool all_schemas(struct qr_sc *sc, const struct qr_json *container)
{
    for (const struct qr_json *m = qr_json_first(container); m; m = qr_json_after(m)) {
        if (!qr_sc_is_schema(m))
            return qr_sc_fail(sc, QR_E_INVALID, m, "a schema must be an object, true or false, found %s", qr_json_type_name(qr_json_type(m)));
    }
    return true;
}

/* The three keywords of a schema that say of one member what it must be, as one layer; at the first of them that stands there. */
static void add_members(struct qr_sc *sc, struct qr_sc_work *w, const struct qr_json *schema, int32_t scope)
{
    struct qr_sc_layer l = {.scope = scope, .rest = QR_SC_LIT_TRUE};
    l.props = qr_json_find(schema, "properties");
    l.patterns = qr_json_find(schema, "patternProperties");
    const struct qr_json *rest = qr_json_find(schema, "additionalProperties");
    if ((l.props && (!must_be(sc, l.props, QR_JSON_T_OBJECT) || !all_schemas(sc, l.props))) ||
        (l.patterns && (!must_be(sc, l.patterns, QR_JSON_T_OBJECT) || !all_schemas(sc, l.patterns))))
        return;
    l.has_rest = rest != NULL;
    if (rest)
        l.rest = qr_sc_schema_literal(sc, rest, 0, false);
    qr_sc_add_layer(sc, w, &l);
}

KEYWORD(apply_properties) { add_members(sc, w, schema, scope); }

KEYWORD(apply_patterns)
{
    if (!qr_json_find(schema, "properties"))
        add_members(sc, w, schema, scope);
}

KEYWORD(apply_additional)
{
    if (!qr_json_find(schema, "properties") && !qr_json_find(schema, "patternProperties"))
        add_members(sc, w, schema, scope);
}

KEYWORD(apply_unevaluated_members)
{
    qr_sc_add_layer(sc, w, &(struct qr_sc_layer){.scope = scope, .rest = qr_sc_schema_literal(sc, member, 0, false), .has_rest = true, .unevaluated = true});
}

KEYWORD(apply_required)
{
    if (!must_be(sc, member, QR_JSON_T_ARRAY))
        return;
    for (const struct qr_json *v = qr_json_first(member); v; v = qr_json_after(v)) {
        if (qr_json_type(v) != QR_JSON_T_STRING) {
            qr_sc_fail(sc, QR_E_INVALID, v, "required must be a list of strings");
            return;
        }
        qr_sc_add_required(sc, w, qr_json_str(v, NULL));
    }
}

KEYWORD(apply_names)
{
    const int32_t id = qr_sc_schema_literal(sc, member, 0, false);
    struct qr_sc_literals *l = qr_sc_alloc(sc, 1, sizeof *l);
    if (!l || id == QR_SC_LIT_TRUE)
        return;
    *l = (struct qr_sc_literals){.next = w->shape.names, .id = id};
    w->shape.names = l;
}

/* dependentRequired, dependentSchemas and dependencies, by the type of each member's value. */
KEYWORD(apply_dependent)
{
    if (!must_be(sc, member, QR_JSON_T_OBJECT))
        return;
    for (const struct qr_json *d = qr_json_first(member); d && sc->code == 0; d = qr_json_after(d)) {
        struct qr_sc_literals *list = NULL;
        const int32_t has = qr_sc_literal(sc, &(struct qr_sc_literal){.op = QR_SC_OP_MEMBER, .name = qr_json_key(d), .inner = QR_SC_LIT_TRUE});
        const bool names = qr_json_type(d) == QR_JSON_T_ARRAY || qr_json_type(d) == QR_JSON_T_STRING;
        const bool is_list = qr_json_type(d) == QR_JSON_T_ARRAY;
        struct qr_sc_choice *c = qr_sc_choice_new(sc, 2);
        if (!c)
            return;
        qr_sc_option(sc, c, qr_sc_literal(sc, &(struct qr_sc_literal){.op = QR_SC_OP_LACKS, .name = qr_json_key(d)}), QR_SC_LIT_TRUE);
        if (!names) {
            qr_sc_option(sc, c, has, qr_sc_schema_literal(sc, d, scope, false));
            qr_sc_choose(sc, w, c);
            continue;
        }
        for (const struct qr_json *v = is_list ? qr_json_first(d) : d; v; v = is_list ? qr_json_after(v) : NULL) {
            struct qr_sc_literals *l = qr_sc_alloc(sc, 1, sizeof *l);
            if (!l || !must_be(sc, v, QR_JSON_T_STRING))
                return;
            l->next = list;
            l->id = qr_sc_literal(sc, &(struct qr_sc_literal){.op = QR_SC_OP_MEMBER, .name = qr_json_str(v, NULL), .inner = QR_SC_LIT_TRUE});
            list = l;
        }
        if (!list)
            continue;
        qr_sc_option(sc, c, list->id, has);
        if (sc->code != 0)
            return;
        struct qr_sc_literals *last = (struct qr_sc_literals *)c->option[c->n - 1];
        while (last->next)
            last = (struct qr_sc_literals *)last->next;
        last->next = list->next;
        qr_sc_choose(sc, w, c);
    }
}

/* ---- arrays ---- */

KEYWORD(apply_items)
{
    const struct qr_json *prefix = qr_json_find(schema, "prefixItems");
    struct qr_sc_items t = {.index = -1, .scope = scope, .rest = QR_SC_LIT_TRUE};
    if (qr_json_type(member) == QR_JSON_T_ARRAY) { /* of drafts before 2020-12 */
        const struct qr_json *rest = qr_json_find(schema, "additionalItems");
        if (!all_schemas(sc, member))
            return;
        t.prefix = member;
        t.from = qr_json_count(member);
        t.has_rest = rest != NULL;
        t.rest = rest ? qr_sc_schema_literal(sc, rest, 0, false) : QR_SC_LIT_TRUE;
    } else {
        t.from = prefix && qr_json_type(prefix) == QR_JSON_T_ARRAY ? qr_json_count(prefix) : 0;
        t.has_rest = true;
        t.rest = qr_sc_schema_literal(sc, member, 0, false);
    }
    qr_sc_add_items(sc, w, &t);
}

KEYWORD(apply_prefix)
{
    if (!must_be(sc, member, QR_JSON_T_ARRAY) || !all_schemas(sc, member))
        return;
    const int32_t n = qr_json_count(member);
    qr_sc_add_items(sc, w, &(struct qr_sc_items){.index = -1, .scope = scope, .rest = QR_SC_LIT_TRUE, .prefix = member, .from = n});
}

KEYWORD(apply_unevaluated_items)
{
    qr_sc_add_items(sc, w, &(struct qr_sc_items){.index = -1, .scope = scope, .rest = qr_sc_schema_literal(sc, member, 0, false), .has_rest = true,
                                                 .unevaluated = true});
}

KEYWORD(apply_contains)
{
    const struct qr_json *min = qr_json_find(schema, "minContains"), *max = qr_json_find(schema, "maxContains");
    struct qr_sc_contains *c = qr_sc_alloc(sc, 1, sizeof *c);
    if (!c)
        return;
    *c = (struct qr_sc_contains){.next = w->shape.contains, .literal = qr_sc_schema_literal(sc, member, 0, false), .min = 1, .max = QR_REPEAT_FOREVER,
                                 .scope = scope, .at = member};
    if ((min && !qr_sc_read_count(sc, min, &c->min)) || (max && !qr_sc_read_count(sc, max, &c->max)))
        return;
    w->shape.contains = c;
}

KEYWORD(apply_unique)
{
    if (must_be(sc, member, QR_JSON_T_BOOL) && qr_json_bool(member))
        w->shape.unique = member;
}

/* ---- combinations ---- */

static bool is_list_of_schemas(struct qr_sc *sc, const struct qr_json *member)
{
    return must_be(sc, member, QR_JSON_T_ARRAY) && all_schemas(sc, member);
}

KEYWORD(apply_all_of)
{
    if (!is_list_of_schemas(sc, member))
        return;
    for (const struct qr_json *v = qr_json_first(member); v; v = qr_json_after(v))
        qr_sc_apply(sc, w, qr_sc_schema_literal(sc, v, scope, false));
}

/* Where members or items that no keyword has seen matter, it matters also which options hold besides the one that is taken: small sets
 * of them are options of their own. */
static void choose_sets(struct qr_sc *sc, struct qr_sc_work *w, const int32_t *literal, int32_t n)
{
    struct qr_sc_choice *c = qr_sc_choice_new(sc, 1 << n);
    for (uint32_t set = (1u << n) - 1; c && set > 0; set--) {
        struct qr_sc_literals *list = NULL;
        for (int32_t i = n - 1; i >= 0; i--) {
            struct qr_sc_literals *l = set >> i & 1 ? qr_sc_alloc(sc, 1, sizeof *l) : NULL;
            if (l) {
                *l = (struct qr_sc_literals){.next = list, .id = literal[i]};
                list = l;
            }
        }
        if (list)
            c->option[c->n++] = list;
    }
    qr_sc_choose(sc, w, c);
}

KEYWORD(apply_any_of)
{
    enum { SETS_OF = 5 };
    int32_t literal[SETS_OF], n = 0;
    if (!is_list_of_schemas(sc, member))
        return;
    const int32_t n_all = qr_json_count(member);
    struct qr_sc_choice *c = qr_sc_choice_new(sc, n_all);
    for (const struct qr_json *v = qr_json_first(member); v && c; v = qr_json_after(v)) {
        const int32_t id = qr_sc_schema_literal(sc, v, scope, false);
        if (id == QR_SC_LIT_TRUE && scope == 0)
            return;
        if (n < SETS_OF && id != QR_SC_LIT_FALSE)
            literal[n++] = id;
        qr_sc_option(sc, c, id, QR_SC_LIT_TRUE);
    }
    if (scope != 0 && c && c->n == n && n > 1)
        choose_sets(sc, w, literal, n);
    else
        qr_sc_choose(sc, w, c);
}

KEYWORD(apply_one_of)
{
    if (!is_list_of_schemas(sc, member))
        return;
    struct qr_sc_choice *c = qr_sc_choice_new(sc, qr_json_count(member));
    for (const struct qr_json *v = qr_json_first(member); v && c; v = qr_json_after(v))
        qr_sc_option(sc, c, qr_sc_schema_literal(sc, v, scope, false), QR_SC_LIT_TRUE);
    if (c)
        c->exactly_one = true;
    qr_sc_choose(sc, w, c);
}

KEYWORD(apply_not) { qr_sc_apply(sc, w, qr_sc_schema_literal(sc, member, 0, true)); }

KEYWORD(apply_if)
{
    const struct qr_json *then = qr_json_find(schema, "then"), *otherwise = qr_json_find(schema, "else");
    const int32_t then_id = then ? qr_sc_schema_literal(sc, then, scope, false) : QR_SC_LIT_TRUE;
    const int32_t else_id = otherwise ? qr_sc_schema_literal(sc, otherwise, scope, false) : QR_SC_LIT_TRUE;
    if (then_id == QR_SC_LIT_TRUE && else_id == QR_SC_LIT_TRUE && scope == 0)
        return;
    struct qr_sc_choice *c = qr_sc_choice_new(sc, 2);
    qr_sc_option(sc, c, qr_sc_schema_literal(sc, member, scope, false), then_id);
    qr_sc_option(sc, c, qr_sc_schema_literal(sc, member, 0, true), else_id);
    qr_sc_choose(sc, w, c);
}

KEYWORD(apply_ref)
{
    const struct qr_json *target = qr_sc_ref_target(sc, schema, member);
    if (target)
        qr_sc_apply(sc, w, qr_sc_schema_literal(sc, target, scope, false));
}

/* ---- the table ---- */

static const struct qr_sc_keyword keywords[] = { /* by name */
    {"$dynamicRef", apply_ref, qr_sc_deny_ref},
    {"$recursiveRef", apply_ref, qr_sc_deny_ref},
    {"$ref", apply_ref, qr_sc_deny_ref},
    {"additionalProperties", apply_additional, qr_sc_deny_additional},
    {"allOf", apply_all_of, qr_sc_deny_all_of},
    {"anyOf", apply_any_of, qr_sc_deny_any_of},
    {"const", apply_const, qr_sc_deny_const},
    {"contains", apply_contains, qr_sc_deny_contains},
    {"dependencies", apply_dependent, qr_sc_deny_dependent},
    {"dependentRequired", apply_dependent, qr_sc_deny_dependent},
    {"dependentSchemas", apply_dependent, qr_sc_deny_dependent},
    {"enum", apply_enum, qr_sc_deny_enum},
    {"exclusiveMaximum", apply_exclusive_high, qr_sc_deny_exclusive_high},
    {"exclusiveMinimum", apply_exclusive_low, qr_sc_deny_exclusive_low},
    {"format", apply_string_test, qr_sc_deny_string_test},
    {"if", apply_if, qr_sc_deny_if},
    {"items", apply_items, qr_sc_deny_items},
    {"maxItems", apply_items_max, qr_sc_deny_items_max},
    {"maxLength", apply_length_max, qr_sc_deny_length_max},
    {"maxProperties", apply_members_max, qr_sc_deny_members_max},
    {"maximum", apply_high, qr_sc_deny_high},
    {"minItems", apply_items_min, qr_sc_deny_items_min},
    {"minLength", apply_length_min, qr_sc_deny_length_min},
    {"minProperties", apply_members_min, qr_sc_deny_members_min},
    {"minimum", apply_low, qr_sc_deny_low},
    {"multipleOf", apply_multiple, qr_sc_deny_multiple},
    {"not", apply_not, qr_sc_deny_not},
    {"oneOf", apply_one_of, qr_sc_deny_one_of},
    {"pattern", apply_string_test, qr_sc_deny_string_test},
    {"patternProperties", apply_patterns, qr_sc_deny_patterns},
    {"prefixItems", apply_prefix, qr_sc_deny_prefix},
    {"properties", apply_properties, qr_sc_deny_properties},
    {"propertyNames", apply_names, qr_sc_deny_hard},
    {"required", apply_required, qr_sc_deny_required},
    {"type", apply_type, qr_sc_deny_type},
    {"unevaluatedItems", apply_unevaluated_items, qr_sc_deny_hard},
    {"unevaluatedProperties", apply_unevaluated_members, qr_sc_deny_hard},
    {"uniqueItems", apply_unique, qr_sc_deny_hard},
};

const struct qr_sc_keyword *qr_sc_keyword_find(const char *name)
{
    QR_ASSERT(name != NULL);
    int low = 0, high = QR_COUNT(keywords);
    while (low < high) {
        const int middle = (low + high) / 2, order = strcmp(keywords[middle].name, name);
        if (order == 0)
            return &keywords[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

bool qr_sc_keyword_matters(const char *name) { return qr_sc_keyword_find(name) != NULL; }
