/* openai_demand.c - fields that say what an answer must be: response_format as OpenAI and llama.cpp have it, vLLM's structured_outputs and its
 * older guided_*, llama.cpp's grammar and json_schema, SGLang's regex and ebnf. A request has one demand at most, under one name or several.
 * What is wrong inside of one is found when it is compiled. Pure; on libuv's pool. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "server/openai.h"

/* What a member may be: one row for each name, and where it stands. */
struct form {
    const char *field;              /* its path */
    enum qr_constraint_kind kind;   /* GBNF: or Lark, by its text */
    bool may_be_text;               /* also as JSON in a string */
};

/* Fields of the body itself. */
static const struct form flat[] = {
    {"guided_json", QR_CONSTRAINT_SCHEMA, true}, {"guided_regex", QR_CONSTRAINT_REGEX, true}, {"guided_choice", QR_CONSTRAINT_CHOICE, false},
    {"guided_grammar", QR_CONSTRAINT_GBNF, true}, {"grammar", QR_CONSTRAINT_GBNF, true}, {"json_schema", QR_CONSTRAINT_SCHEMA, true},
    {"regex", QR_CONSTRAINT_REGEX, true}, {"ebnf", QR_CONSTRAINT_GBNF, true},
};

#define STRUCTURED "structured_outputs."
static const struct form structured[] = {
    {STRUCTURED "json", QR_CONSTRAINT_SCHEMA, true}, {STRUCTURED "regex", QR_CONSTRAINT_REGEX, true}, {STRUCTURED "choice", QR_CONSTRAINT_CHOICE, false},
    {STRUCTURED "grammar", QR_CONSTRAINT_GBNF, true}, {STRUCTURED "json_object", QR_CONSTRAINT_OBJECT, false},
    {STRUCTURED "structural_tag", QR_CONSTRAINT_TAGS, true},
};

static bool asks_for_nothing(const struct qr_json *v)
{
    const enum qr_json_type type = qr_json_type(v);
    return (type == QR_JSON_T_BOOL && !qr_json_bool(v)) || (type == QR_JSON_T_STRING && !*qr_json_str(v, NULL)) ||
           (type == QR_JSON_T_ARRAY && qr_json_count(v) == 0);
}

/* Whether a value can be what `kind` is made of; else what it should be. */
static const char *expected_of(const struct form *f, const struct qr_json *v)
{
    const enum qr_json_type type = qr_json_type(v);
    if (f->may_be_text && type == QR_JSON_T_STRING)
        return NULL;
    switch (f->kind) {
    case QR_CONSTRAINT_SCHEMA: return type == QR_JSON_T_OBJECT || type == QR_JSON_T_BOOL ? NULL : "a JSON Schema";
    case QR_CONSTRAINT_TAGS: return type == QR_JSON_T_OBJECT ? NULL : "an object, or one as JSON in a string";
    case QR_CONSTRAINT_CHOICE: return type == QR_JSON_T_ARRAY ? NULL : "an array of strings";
    case QR_CONSTRAINT_OBJECT: return type == QR_JSON_T_BOOL ? NULL : "true or false";
    default: return "a string";
    }
}

/* Some clients send one demand under the names of several programs. */
static bool says_the_same(const struct qr_demand *d, enum qr_constraint_kind kind, const struct qr_json *value)
{
    struct qr_buf a = {0}, b = {0};
    if (d->kind != kind || !d->value != !value)
        return false;
    if (value) {
        qr_json_print(&a, d->value);
        qr_json_print(&b, value);
    }
    const bool same = a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
    qr_buf_release(&a);
    qr_buf_release(&b);
    return same;
}

static int set_demand(struct qr_params *p, enum qr_constraint_kind kind, const struct qr_json *value, const char *field, struct qr_err *err)
{
    struct qr_demand *d = &p->demand;
    QR_ASSERT(kind != QR_CONSTRAINT_NONE);
    if (kind == QR_CONSTRAINT_GBNF) {
        size_t len;
        const char *text = qr_json_str(value, &len);
        kind = qr_constraint_guess(text, len);
    }
    if (d->kind != QR_CONSTRAINT_NONE && says_the_same(d, kind, value))
        return 0;
    if (d->kind != QR_CONSTRAINT_NONE)
        return qr_err_at(err, QR_E_INVALID, field, "%s and %s both say what the answer must be; send one of them", d->field, field);
    d->kind = kind;
    d->value = value;
    d->field = field;
    return 0;
}

static int read_form(struct qr_params *p, const struct form *f, const struct qr_json *v, struct qr_err *err)
{
    if (qr_json_is_null(v) || asks_for_nothing(v))
        return 0;
    const char *expected = expected_of(f, v);
    if (expected)
        return qr_wrong_type(err, f->field, expected, v);
    return set_demand(p, f->kind, v, f->field, err);
}

int qr_read_demand(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    int i = 0;
    QR_ASSERT(qr_json_key(v) != NULL);
    while (i < QR_COUNT(flat) && strcmp(flat[i].field, qr_json_key(v)) != 0)
        i++;
    QR_ASSERT(i < QR_COUNT(flat));
    return read_form(p, &flat[i], v, err);
}

/* Members that say how, not what. */
static int read_structured_option(struct qr_params *p, const struct qr_json *v, struct qr_err *err)
{
    static const char *const refused[] = {"whitespace_pattern", "disable_additional_properties"};
    const char *name = qr_json_key(v);
    char at[96];
    snprintf(at, sizeof at, STRUCTURED "%.60s", name);
    if (strcmp(name, "disable_fallback") == 0 || qr_json_is_null(v))
        return 0; /* there is none */
    if (strcmp(name, "disable_any_whitespace") == 0) {
        if (qr_json_type(v) != QR_JSON_T_BOOL)
            return qr_wrong_type(err, at, "true or false", v);
        p->demand.compact = qr_json_bool(v);
        return 0;
    }
    for (int i = 0; i < QR_COUNT(refused); i++)
        if (strcmp(name, refused[i]) == 0)
            return asks_for_nothing(v) ? 0 : qr_err_at(err, QR_E_UNSUPPORTED, at, "%s is not supported; leave it out", at);
    return qr_err_at(err, QR_E_UNSUPPORTED, at, "%s is not known: structured_outputs has json, regex, choice, grammar, json_object or structural_tag", at);
}

int qr_read_structured_outputs(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    int rc = 0;
    for (const struct qr_json *e = qr_json_first(v); e && rc == 0; e = qr_json_after(e)) {
        int i = 0;
        while (i < QR_COUNT(structured) && strcmp(structured[i].field + sizeof STRUCTURED - 1, qr_json_key(e)) != 0)
            i++;
        rc = i < QR_COUNT(structured) ? read_form(p, &structured[i], e, err) : read_structured_option(p, e, err);
    }
    return rc;
}

/* ---- response_format ---- */

static int read_strict(struct qr_params *p, const struct qr_json *of, const char *path, struct qr_err *err)
{
    const struct qr_json *strict = qr_json_find(of, "strict");
    if (qr_json_is_null(strict))
        return 0;
    if (qr_json_type(strict) != QR_JSON_T_BOOL)
        return qr_wrong_type(err, path, "true or false", strict);
    p->demand.strict = qr_json_bool(strict);
    return 0;
}

#define RESPONSE "response_format."
static const struct form nested_schema = {RESPONSE "json_schema.schema", QR_CONSTRAINT_SCHEMA, false},
                         bare_schema = {RESPONSE "schema", QR_CONSTRAINT_SCHEMA, false};

static int need_schema(struct qr_params *p, const struct form *f, const struct qr_json *schema, struct qr_err *err)
{
    const char *expected = qr_json_is_null(schema) ? "" : expected_of(f, schema);
    if (qr_json_is_null(schema))
        return qr_err_at(err, QR_E_INVALID, f->field, "%s is required: a JSON Schema", f->field);
    if (expected)
        return qr_wrong_type(err, f->field, expected, schema);
    return set_demand(p, QR_CONSTRAINT_SCHEMA, schema, f->field, err);
}

/* OpenAI's {"json_schema": {name, schema, strict}}; some clients send {"schema": ...} alone. */
static int read_json_schema(struct qr_params *p, const struct qr_json *v, struct qr_err *err)
{
    const struct qr_json *nested = qr_json_find(v, "json_schema"), *name = nested ? qr_json_find(nested, "name") : NULL;
    if (qr_json_is_null(nested) && qr_json_find(v, "schema"))
        return need_schema(p, &bare_schema, qr_json_find(v, "schema"), err);
    if (qr_json_is_null(nested))
        return qr_err_at(err, QR_E_INVALID, RESPONSE "json_schema", RESPONSE "json_schema is required: an object with name and schema");
    if (qr_json_type(nested) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, RESPONSE "json_schema", "an object with name and schema", nested);
    if (!qr_json_is_null(name) && qr_json_type(name) != QR_JSON_T_STRING)
        return qr_wrong_type(err, RESPONSE "json_schema.name", "a string", name);
    int rc = need_schema(p, &nested_schema, qr_json_find(nested, "schema"), err);
    return rc ? rc : read_strict(p, nested, RESPONSE "json_schema.strict", err);
}

/* llama.cpp's has a schema. */
static int read_json_object(struct qr_params *p, const struct qr_json *v, struct qr_err *err)
{
    const struct qr_json *schema = qr_json_find(v, "schema");
    if (!qr_json_is_null(schema))
        return need_schema(p, &bare_schema, schema, err);
    return set_demand(p, QR_CONSTRAINT_OBJECT, NULL, "response_format", err);
}

static int read_tags(struct qr_params *p, const struct qr_json *v, struct qr_err *err)
{
    return set_demand(p, QR_CONSTRAINT_TAGS, v, "response_format", err);
}

static int read_plain_text(struct qr_params *p, const struct qr_json *v, struct qr_err *err)
{
    return 0;
}

int qr_read_response_format(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    static const struct {
        const char *type;
        int (*read)(struct qr_params *p, const struct qr_json *v, struct qr_err *err);
    } known[] = {{"text", read_plain_text}, {"json_object", read_json_object}, {"json_schema", read_json_schema}, {"structural_tag", read_tags}};
    const struct qr_json *type = qr_json_find(v, "type");
    char excerpt[72];
    if (!type || qr_json_type(type) != QR_JSON_T_STRING)
        return qr_err_at(err, QR_E_INVALID, RESPONSE "type", RESPONSE "type must be a string such as \"json_schema\"");
    for (int i = 0; i < QR_COUNT(known); i++)
        if (qr_json_says(type, known[i].type))
            return known[i].read(p, v, err);
    return qr_err_at(err, QR_E_UNSUPPORTED, RESPONSE "type", RESPONSE "type must be \"text\", \"json_object\", \"json_schema\" or \"structural_tag\", found %s",
                     qr_json_excerpt(excerpt, type));
}
