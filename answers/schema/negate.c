/* negate.c - the opposite of each keyword: what a value is that fails it. Every opposite but those of combinations holds for the keyword's type of value
 * alone, as other values never fail it. Owned by one build. */
#include <string.h>

#include "answers/schema/expand.h"
#include "base/assert.h"

#define COUNT_MAX (1 << 30)
#define ONE_OF_MAX 8

#define KEYWORD(name) \
    void name(struct qr_sc *sc, struct qr_sc_work *w, const struct qr_json *schema, const struct qr_json *member, int32_t scope)

static int32_t has(struct qr_sc *sc, const char *name, int32_t inner)
{
    if (inner == QR_SC_LIT_FALSE)
        return inner;
    return qr_sc_literal(sc, &(struct qr_sc_literal){.op = QR_SC_OP_MEMBER, .name = name, .inner = inner});
}

static int32_t lacks(struct qr_sc *sc, const char *name)
{
    return qr_sc_literal(sc, &(struct qr_sc_literal){.op = QR_SC_OP_LACKS, .name = name});
}

static int32_t is_of(struct qr_sc *sc, uint32_t types)
{
    return qr_sc_literal(sc, &(struct qr_sc_literal){.op = QR_SC_OP_TYPES, .number = (int32_t)types});
}

static int32_t item(struct qr_sc *sc, int32_t index, int32_t inner)
{
    if (inner == QR_SC_LIT_FALSE)
        return inner;
    return qr_sc_literal(sc, &(struct qr_sc_literal){.op = QR_SC_OP_ITEM, .number = index, .inner = inner});
}

static bool is_true(const struct qr_json *v) { return v && qr_json_type(v) == QR_JSON_T_BOOL && qr_json_bool(v); }

KEYWORD(qr_sc_deny_type) { w->shape.types &= ~qr_sc_read_types(sc, member); }

static void exclude(struct qr_sc *sc, struct qr_sc_work *w, const struct qr_json *json, bool is_list)
{
    struct qr_sc_values *v = qr_sc_alloc(sc, 1, sizeof *v);
    if (!v)
        return;
    *v = (struct qr_sc_values){.next = w->shape.excluded, .json = json, .is_list = is_list};
    w->shape.excluded = v;
}

KEYWORD(qr_sc_deny_enum) { exclude(sc, w, member, qr_json_type(member) == QR_JSON_T_ARRAY); }
KEYWORD(qr_sc_deny_const) { exclude(sc, w, member, false); }

/* ---- numbers and strings ---- */

KEYWORD(qr_sc_deny_low)
{
    const struct qr_decimal *d;
    w->shape.types &= QR_SC_NUMBER;
    if (qr_sc_read_decimal(sc, member, &d))
        qr_sc_limit_high(&w->shape, d, !is_true(qr_json_find(schema, "exclusiveMinimum")));
}

KEYWORD(qr_sc_deny_high)
{
    const struct qr_decimal *d;
    w->shape.types &= QR_SC_NUMBER;
    if (qr_sc_read_decimal(sc, member, &d))
        qr_sc_limit_low(&w->shape, d, !is_true(qr_json_find(schema, "exclusiveMaximum")));
}

KEYWORD(qr_sc_deny_exclusive_low)
{
    const struct qr_decimal *d;
    w->shape.types &= QR_SC_NUMBER;
    if (qr_json_type(member) == QR_JSON_T_BOOL) /* minimum says it */
        qr_sc_never(w);
    else if (qr_sc_read_decimal(sc, member, &d))
        qr_sc_limit_high(&w->shape, d, false);
}

KEYWORD(qr_sc_deny_exclusive_high)
{
    const struct qr_decimal *d;
    w->shape.types &= QR_SC_NUMBER;
    if (qr_json_type(member) == QR_JSON_T_BOOL)
        qr_sc_never(w);
    else if (qr_sc_read_decimal(sc, member, &d))
        qr_sc_limit_low(&w->shape, d, false);
}

KEYWORD(qr_sc_deny_multiple)
{
    w->shape.types &= QR_SC_NUMBER;
    qr_sc_keyword_find("multipleOf")->apply(sc, w, schema, member, 0);
    if (w->shape.divisor && w->shape.divisor->at == member) {
        struct qr_sc_divisor *m = qr_sc_alloc(sc, 1, sizeof *m);
        if (!m)
            return;
        *m = *w->shape.divisor;
        m->negated = true;
        w->shape.divisor = m;
    }
}

#define BELOW(field, mask) \
    int32_t n; \
    w->shape.types &= (mask); \
    if (!qr_sc_read_count(sc, member, &n)) \
        return; \
    if (n == 0) \
        qr_sc_never(w); \
    else if (w->shape.field > n - 1) \
        w->shape.field = n - 1
#define ABOVE(field, mask) \
    int32_t n; \
    w->shape.types &= (mask); \
    if (!qr_sc_read_count(sc, member, &n)) \
        return; \
    if (n == COUNT_MAX) \
        qr_sc_never(w); \
    else if (w->shape.field < n + 1) \
        w->shape.field = n + 1

KEYWORD(qr_sc_deny_length_min) { BELOW(length_max, QR_SC_STRING); }
KEYWORD(qr_sc_deny_length_max) { ABOVE(length_min, QR_SC_STRING); }
KEYWORD(qr_sc_deny_items_min) { BELOW(n_items_max, QR_SC_ARRAY); }
KEYWORD(qr_sc_deny_items_max) { ABOVE(n_items_min, QR_SC_ARRAY); }
KEYWORD(qr_sc_deny_members_min) { BELOW(n_members_max, QR_SC_OBJECT); }
KEYWORD(qr_sc_deny_members_max) { ABOVE(n_members_min, QR_SC_OBJECT); }

KEYWORD(qr_sc_deny_string_test)
{
    const struct qr_sc_test *before = w->shape.test;
    w->shape.types &= QR_SC_STRING;
    qr_sc_keyword_find("pattern")->apply(sc, w, schema, member, 0);
    if (w->shape.test == before) { /* a format of others: everything has it */
        qr_sc_never(w);
        return;
    }
    struct qr_sc_test *t = qr_sc_alloc(sc, 1, sizeof *t);
    if (!t)
        return;
    *t = *w->shape.test;
    t->negated = true;
    w->shape.test = t;
}

/* ---- objects ---- */

KEYWORD(qr_sc_deny_required)
{
    const int32_t n = qr_json_type(member) == QR_JSON_T_ARRAY ? qr_json_count(member) : 0;
    struct qr_sc_choice *c = qr_sc_choice_new(sc, n);
    for (const struct qr_json *v = qr_json_first(member); v && c; v = qr_json_after(v)) {
        if (qr_json_type(v) == QR_JSON_T_STRING)
            qr_sc_option(sc, c, is_of(sc, QR_SC_OBJECT), lacks(sc, qr_json_str(v, NULL)));
    }
    qr_sc_choose(sc, w, c);
}

KEYWORD(qr_sc_deny_properties)
{
    struct qr_sc_choice *c = qr_sc_choice_new(sc, qr_json_count(member));
    for (const struct qr_json *v = qr_json_first(member); v && c; v = qr_json_after(v))
        qr_sc_option(sc, c, has(sc, qr_json_key(v), qr_sc_schema_literal(sc, v, 0, true)), QR_SC_LIT_TRUE);
    qr_sc_choose(sc, w, c);
}

KEYWORD(qr_sc_deny_patterns)
{
    struct qr_sc_choice *c = qr_sc_choice_new(sc, qr_json_count(member));
    for (const struct qr_json *v = qr_json_first(member); v && c; v = qr_json_after(v)) {
        const int32_t inner = qr_sc_schema_literal(sc, v, 0, true);
        if (inner != QR_SC_LIT_FALSE)
            qr_sc_option(sc, c, qr_sc_literal(sc, &(struct qr_sc_literal){.op = QR_SC_OP_SOME, .json = v, .inner = inner}), QR_SC_LIT_TRUE);
    }
    qr_sc_choose(sc, w, c);
}

KEYWORD(qr_sc_deny_additional)
{
    const int32_t inner = qr_sc_schema_literal(sc, member, 0, true);
    struct qr_sc_some *some = qr_sc_alloc(sc, 1, sizeof *some);
    if (!some || inner == QR_SC_LIT_FALSE) {
        qr_sc_never(w);
        return;
    }
    *some = (struct qr_sc_some){.next = w->shape.some, .props = qr_json_find(schema, "properties"), .patterns = qr_json_find(schema, "patternProperties"),
                                .literal = inner, .at = member};
    w->shape.types &= QR_SC_OBJECT;
    w->shape.some = some;
}

/* One option for each member that asks for something: the member is there, and what it asks for is not. */
KEYWORD(qr_sc_deny_dependent)
{
    int32_t n = 0;
    for (const struct qr_json *d = qr_json_first(member); d; d = qr_json_after(d))
        n += 1 + qr_json_count(d);
    struct qr_sc_choice *c = qr_sc_choice_new(sc, n);
    for (const struct qr_json *d = qr_json_first(member); d && c; d = qr_json_after(d)) {
        const int32_t has_it = has(sc, qr_json_key(d), QR_SC_LIT_TRUE);
        if (qr_json_type(d) == QR_JSON_T_STRING)
            qr_sc_option(sc, c, has_it, lacks(sc, qr_json_str(d, NULL)));
        else if (qr_json_type(d) != QR_JSON_T_ARRAY)
            qr_sc_option(sc, c, has_it, qr_sc_schema_literal(sc, d, 0, true));
        for (const struct qr_json *v = qr_json_type(d) == QR_JSON_T_ARRAY ? qr_json_first(d) : NULL; v; v = qr_json_after(v)) {
            if (qr_json_type(v) == QR_JSON_T_STRING)
                qr_sc_option(sc, c, has_it, lacks(sc, qr_json_str(v, NULL)));
        }
    }
    qr_sc_choose(sc, w, c);
}

/* ---- arrays ---- */

static void add_contains(struct qr_sc *sc, struct qr_sc_work *w, int32_t literal, int32_t min, int32_t max, const struct qr_json *at)
{
    struct qr_sc_contains *c = qr_sc_alloc(sc, 1, sizeof *c);
    if (!c)
        return;
    *c = (struct qr_sc_contains){.next = w->shape.contains, .literal = literal, .min = min, .max = max, .at = at};
    w->shape.contains = c;
}

/* An item from index n on fails the rest: where all of them must be absent, it is enough that there is one. */
static void option_of_rest(struct qr_sc *sc, struct qr_sc_work *w, struct qr_sc_choice *c, int32_t n, const struct qr_json *rest)
{
    const int32_t inner = rest ? qr_sc_schema_literal(sc, rest, 0, true) : QR_SC_LIT_FALSE;
    if (inner == QR_SC_LIT_TRUE)
        qr_sc_option(sc, c, item(sc, n, inner), QR_SC_LIT_TRUE);
    else if (inner != QR_SC_LIT_FALSE)
        qr_sc_hard(w, rest);
}

static void deny_first(struct qr_sc *sc, struct qr_sc_work *w, const struct qr_json *list, const struct qr_json *rest)
{
    int32_t i = 0;
    struct qr_sc_choice *c = qr_sc_choice_new(sc, qr_json_count(list) + 1);
    for (const struct qr_json *v = qr_json_first(list); v && c; v = qr_json_after(v), i++)
        qr_sc_option(sc, c, item(sc, i, qr_sc_schema_literal(sc, v, 0, true)), QR_SC_LIT_TRUE);
    option_of_rest(sc, w, c, i, rest);
    qr_sc_choose(sc, w, c);
}

KEYWORD(qr_sc_deny_items)
{
    const struct qr_json *prefix = qr_json_find(schema, "prefixItems");
    w->shape.types &= QR_SC_ARRAY;
    if (qr_json_type(member) == QR_JSON_T_ARRAY) {
        deny_first(sc, w, member, qr_json_find(schema, "additionalItems"));
        return;
    }
    const int32_t from = prefix ? qr_json_count(prefix) : 0, inner = qr_sc_schema_literal(sc, member, 0, true);
    if (inner == QR_SC_LIT_FALSE)
        qr_sc_never(w);
    else if (inner == QR_SC_LIT_TRUE)
        qr_sc_apply(sc, w, item(sc, from, inner));
    else if (from > 0)
        qr_sc_hard(w, member);
    else
        add_contains(sc, w, inner, 1, QR_REPEAT_FOREVER, member);
}

KEYWORD(qr_sc_deny_prefix)
{
    w->shape.types &= QR_SC_ARRAY;
    deny_first(sc, w, member, NULL);
}

KEYWORD(qr_sc_deny_contains)
{
    const struct qr_json *least = qr_json_find(schema, "minContains"), *most = qr_json_find(schema, "maxContains");
    int32_t min = 1, max = QR_REPEAT_FOREVER;
    w->shape.types &= QR_SC_ARRAY;
    if ((least && !qr_sc_read_count(sc, least, &min)) || (most && !qr_sc_read_count(sc, most, &max)))
        return;
    const int32_t literal = qr_sc_schema_literal(sc, member, 0, false);
    if (max >= COUNT_MAX && min == 0)
        qr_sc_never(w);
    else if (max >= COUNT_MAX && min == 1)
        qr_sc_add_items(sc, w, &(struct qr_sc_items){.index = -1, .has_rest = true, .rest = qr_sc_schema_literal(sc, member, 0, true)});
    else if (max >= COUNT_MAX)
        add_contains(sc, w, literal, 0, min - 1, member);
    else if (min == 0)
        add_contains(sc, w, literal, max + 1, QR_REPEAT_FOREVER, member);
    else
        qr_sc_hard(w, member);
}

/* ---- combinations ---- */

KEYWORD(qr_sc_deny_all_of)
{
    struct qr_sc_choice *c = qr_sc_choice_new(sc, qr_json_count(member));
    for (const struct qr_json *v = qr_json_first(member); v && c; v = qr_json_after(v))
        qr_sc_option(sc, c, qr_sc_schema_literal(sc, v, 0, true), QR_SC_LIT_TRUE);
    qr_sc_choose(sc, w, c);
}

KEYWORD(qr_sc_deny_any_of)
{
    for (const struct qr_json *v = qr_json_first(member); v && sc->code == 0; v = qr_json_after(v))
        qr_sc_apply(sc, w, qr_sc_schema_literal(sc, v, 0, true));
}

/* None of them, or two of them. */
KEYWORD(qr_sc_deny_one_of)
{
    int32_t yes[ONE_OF_MAX], n = 0;
    if (qr_json_count(member) > ONE_OF_MAX) {
        qr_sc_hard(w, member);
        return;
    }
    struct qr_sc_choice *c = qr_sc_choice_new(sc, 1 + ONE_OF_MAX * ONE_OF_MAX);
    struct qr_sc_literals *none = NULL;
    bool none_can = true;
    for (const struct qr_json *v = qr_json_first(member); v && c; v = qr_json_after(v)) {
        struct qr_sc_literals *l = qr_sc_alloc(sc, 1, sizeof *l);
        if (!l)
            return;
        *l = (struct qr_sc_literals){.next = none, .id = qr_sc_schema_literal(sc, v, 0, true)};
        none_can = none_can && l->id != QR_SC_LIT_FALSE;
        none = l;
        yes[n++] = qr_sc_schema_literal(sc, v, 0, false);
    }
    if (c && none && none_can)
        c->option[c->n++] = none;
    for (int32_t i = 0; i < n; i++) {
        for (int32_t j = i + 1; j < n; j++)
            qr_sc_option(sc, c, yes[i], yes[j]);
    }
    qr_sc_choose(sc, w, c);
}

KEYWORD(qr_sc_deny_not) { qr_sc_apply(sc, w, qr_sc_schema_literal(sc, member, 0, false)); }

KEYWORD(qr_sc_deny_if)
{
    const struct qr_json *then = qr_json_find(schema, "then"), *otherwise = qr_json_find(schema, "else");
    struct qr_sc_choice *c = qr_sc_choice_new(sc, 2);
    if (then)
        qr_sc_option(sc, c, qr_sc_schema_literal(sc, member, 0, false), qr_sc_schema_literal(sc, then, 0, true));
    if (otherwise)
        qr_sc_option(sc, c, qr_sc_schema_literal(sc, member, 0, true), qr_sc_schema_literal(sc, otherwise, 0, true));
    qr_sc_choose(sc, w, c);
}

KEYWORD(qr_sc_deny_ref)
{
    const struct qr_json *target = qr_sc_ref_target(sc, schema, member);
    if (target)
        qr_sc_apply(sc, w, qr_sc_schema_literal(sc, target, 0, true));
}

/* Of these nothing here can say the opposite. */
KEYWORD(qr_sc_deny_hard)
{
    const bool of_items = strstr(qr_json_key(member), "Items") != NULL;
    w->shape.types &= of_items ? QR_SC_ARRAY : QR_SC_OBJECT;
    if (strcmp(qr_json_key(member), "uniqueItems") == 0 && !is_true(member))
        qr_sc_never(w);
    qr_sc_hard(w, member);
}
