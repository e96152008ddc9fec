/* shape_args.c - the grammar of a call's arguments: JSON by the schema; between tags text that has the parameter's
 * type; or keywords with literals. Members come in the schema's order, and those that are not required may be left
 * out. A keyword of a schema that cannot be enforced is refused with its path. Pure. */
#include <stdio.h>

#include "answers/dialect/shaping.h"
#include "answers/grammar/syntax.h"
#include "answers/schema/format.h"
#include "answers/schema/schema.h"

/* ---- errors ---- */

/* The schema's error, its path beginning at the tools: "$.a" of `below` becomes tools[i].function.parameters.below.a. */
static int32_t fail(struct qr_shaping *b, int rc, const char *below)
{
    struct qr_buf path = {0};
    if (b->rc)
        return QR_EXPR_NONE;
    qr_buf_printf(&path, "tools[%d].function.parameters%s%s", (int)b->tool_number, below, b->err->param[0] == '$' ? b->err->param + 1 : "");
    const size_t room = sizeof b->err->param - 1, n = path.len < room ? path.len : room;
    if (path.data)
        memcpy(b->err->param, path.data, n);
    b->err->param[path.data ? n : 0] = 0;
    qr_buf_release(&path);
    b->rc = rc;
    return QR_EXPR_NONE;
}

static int32_t build(struct qr_shaping *b, const struct qr_json *schema, bool strict, const char *below)
{
    int32_t e = QR_EXPR_NONE;
    if (b->rc)
        return e;
    const int rc = qr_schema_build(&e, b->x, schema, &(struct qr_schema_options){.strict = strict, .plain_integers = true}, b->err);
    return rc ? fail(b, rc, below) : e;
}

static bool is_strict(const struct qr_json *f)
{
    const struct qr_json *strict = qr_json_find(f, "strict");
    return strict && qr_json_type(strict) == QR_JSON_T_BOOL && qr_json_bool(strict);
}

int32_t qr_shape_json_arguments(struct qr_shaping *b, const struct qr_json *f)
{
    const struct qr_json *parameters = qr_json_find(f, "parameters");
    struct qr_json *any = NULL;
    static const char text[] = "{\"type\":\"object\"}";
    if (qr_json_is_null(parameters) || (qr_json_type(parameters) == QR_JSON_T_OBJECT && qr_json_count(parameters) == 0)) {
        const int rc = qr_json_parse(&any, text, sizeof text - 1, &qr_json_limits_request, b->err);
        if (rc)
            return fail(b, rc, "");
        parameters = any;
    }
    const int32_t e = build(b, parameters, is_strict(f), "");
    qr_json_free(any);
    return e;
}

/* ---- one value ---- */

/* Any text without special tokens in which `stop` does not occur. */
static int32_t plain_text(struct qr_shaping *b, const char *stop)
{
    return qr_expr_and(b->x, qr_expr_utf8(b->x), qr_expr_without(b->x, qr_expr_text(b->x, stop)));
}

/* A text that a pattern is found in. */
static int32_t pattern_text(struct qr_shaping *b, const struct qr_json *pattern, bool whole, const char *below)
{
    size_t n;
    const char *p = qr_json_text(pattern, &n);
    struct qr_buf t = {0};
    int32_t e = QR_EXPR_NONE;
    const bool starts = n > 0 && *p == '^', ends = n > 1 && p[n - 1] == '$' && p[n - 2] != '\\';
    int rc = 0;
    if ((starts || ends) && memchr(p, '|', n) && !whole)
        rc = qr_err_at(b->err, QR_E_UNSUPPORTED, "$.pattern", "a pattern with anchors and alternatives cannot be enforced in this model's format of calls");
    if (!starts && !whole)
        qr_buf_put_str(&t, "[\\s\\S]*");
    qr_buf_put_str(&t, "(?:");
    qr_buf_put(&t, p + starts, n - starts - ends);
    qr_buf_put_str(&t, ")");
    if (!ends && !whole)
        qr_buf_put_str(&t, "[\\s\\S]*");
    rc = rc ? rc : qr_regex_parse(&e, b->x, t.data, t.len, QR_REGEX_TEXT, 0, b->err);
    qr_buf_release(&t);
    return rc ? fail(b, rc, below) : e;
}

/* A format's texts; EMPTY's complement, anything, where it is an annotation. */
static int32_t format_text(struct qr_shaping *b, const struct qr_json *format)
{
    size_t n;
    int32_t e = QR_EXPR_NONE;
    const char *name = qr_json_text(format, &n);
    const struct qr_format *f = name ? qr_format_find(name, n) : NULL;
    if (!f)
        return qr_expr_anything(b->x);
    const int rc = qr_regex_parse(&e, b->x, f->pattern, strlen(f->pattern), QR_REGEX_TEXT, 0, b->err);
    return rc ? fail(b, rc, "") : e;
}

static int32_t length_of(const struct qr_json *schema, const char *key, int32_t missing)
{
    const struct qr_json *v = qr_json_find(schema, key);
    int64_t n;
    return v && qr_json_i64(v, &n) && n >= 0 && n < INT32_MAX ? (int32_t)n : missing;
}

/* A string as plain text, by its own schema. */
static int32_t string_text(struct qr_shaping *b, const struct qr_json *schema, const char *stop, const char *below)
{
    const struct qr_json *values = qr_json_find(schema, "enum"), *one = qr_json_find(schema, "const"), *pattern = qr_json_find(schema, "pattern");
    const int32_t least = length_of(schema, "minLength", 0), most = length_of(schema, "maxLength", QR_REPEAT_FOREVER);
    int32_t e = plain_text(b, stop), any = QR_EXPR_NONE;
    size_t n;
    for (const struct qr_json *v = values ? qr_json_first(values) : one; v; v = values ? qr_json_after(v) : NULL) {
        const char *s = qr_json_text(v, &n);
        if (s)
            any = qr_expr_or(b->x, any, qr_expr_bytes(b->x, s, n));
    }
    if (values || one)
        e = qr_expr_and(b->x, e, any);
    if (pattern && qr_json_text(pattern, NULL))
        e = qr_expr_and(b->x, e, pattern_text(b, pattern, false, below));
    if (qr_json_text(qr_json_find(schema, "format"), NULL))
        e = qr_expr_and(b->x, e, format_text(b, qr_json_find(schema, "format")));
    if (least > 0 || most != QR_REPEAT_FOREVER)
        e = qr_expr_and(b->x, e, qr_expr_repeat(b->x, qr_expr_runes(b->x, &(struct qr_rune_range){0, QR_RUNE_MAX}, 1), least, most));
    return e;
}

/* A parameter's schema by itself: with the definitions that its references need. */
static int32_t json_value(struct qr_shaping *b, const struct qr_json *root, const struct qr_json *schema, bool strict, const char *below)
{
    static const char *const names[] = {"$defs", "definitions"};
    struct qr_buf t = {0};
    qr_json_print(&t, schema);
    int32_t e = QR_EXPR_NONE;
    if (qr_json_type(schema) != QR_JSON_T_OBJECT || !memmem(t.data, t.len, "\"$ref\"", 6)) {
        qr_buf_release(&t);
        return build(b, schema, strict, below);
    }
    t.len--; /* its brace */
    for (int i = 0; i < QR_COUNT(names); i++) {
        const struct qr_json *defs = qr_json_find(root, names[i]);
        if (!defs || qr_json_find(schema, names[i]))
            continue;
        qr_buf_printf(&t, ",\"%s\":", names[i]);
        qr_json_print(&t, defs);
    }
    qr_buf_put_byte(&t, '}');
    struct qr_json *whole = NULL;
    const int rc = qr_json_parse(&whole, t.data, t.len, &qr_json_limits_request, b->err);
    e = rc ? fail(b, rc, below) : build(b, whole, strict, below);
    qr_json_free(whole);
    qr_buf_release(&t);
    return e;
}

/* ---- members ---- */

struct members {
    const struct qr_json *f, *root, *properties, *required;
    const char *name;
};

/* What a schema of all arguments may say that is about single ones no more. */
static bool check_whole(struct qr_shaping *b, const struct members *m)
{
    static const char *const keywords[] = {"anyOf", "oneOf", "allOf", "not", "if", "$ref", "minProperties", "maxProperties", "propertyNames",
                                           "dependentRequired", "dependentSchemas", "dependencies", "const", "enum"};
    char path[64];
    for (int i = 0; m->root && i < QR_COUNT(keywords); i++)
        if (qr_json_find(m->root, keywords[i])) {
            snprintf(path, sizeof path, "$.%s", keywords[i]);
            fail(b, qr_err_at(b->err, QR_E_UNSUPPORTED, path, "'%s' of all arguments cannot be enforced in this model's format of calls", keywords[i]), "");
            return false;
        }
    for (const struct qr_json *r = m->required ? qr_json_first(m->required) : NULL; r; r = qr_json_after(r)) {
        const char *key = qr_json_text(r, NULL);
        if (key && (!m->properties || !qr_json_find(m->properties, key))) {
            fail(b, qr_err_at(b->err, QR_E_UNSUPPORTED, "$.required", "'%.60s' is required and has no schema in properties", key), "");
            return false;
        }
    }
    return true;
}

static struct members members_of(const struct qr_json *f)
{
    struct members m = {.f = f, .root = qr_json_find(f, "parameters"), .name = qr_json_text(qr_json_find(f, "name"), NULL)};
    m.properties = m.root ? qr_json_find(m.root, "properties") : NULL;
    m.required = m.root ? qr_json_find(m.root, "required") : NULL;
    return m;
}

static bool is_required(const struct members *m, const char *key)
{
    for (const struct qr_json *r = m->required ? qr_json_first(m->required) : NULL; r; r = qr_json_after(r))
        if (qr_json_says(r, key))
            return true;
    return false;
}

static void below_of(char out[80], const char *key)
{
    snprintf(out, 80, ".properties.%.40s", key);
}

/* All members in order, with `between` between two that are there. Written from the end, once where one was there before and once where none was. */
static int32_t chain(struct qr_shaping *b, const struct members *m, const char *between,
                     int32_t (*write)(struct qr_shaping *b, const struct members *m, const struct qr_json *schema))
{
    const int32_t n = m->properties ? qr_json_count(m->properties) : 0, sep = qr_shape_written(b, between);
    const struct qr_json **at = qr_alloc((size_t)n + 1, sizeof *at);
    int32_t first = QR_EXPR_EMPTY, later = QR_EXPR_EMPTY, k = 0;
    for (const struct qr_json *p = n ? qr_json_first(m->properties) : NULL; p && at; p = qr_json_after(p))
        at[k++] = p;
    for (; k > 0 && b->rc == 0; k--) {
        const int32_t one = write(b, m, at[k - 1]);
        const bool needed = is_required(m, qr_json_key(at[k - 1]));
        const int32_t begun = qr_expr_cat(b->x, one, later), more = qr_expr_cat(b->x, sep, begun);
        first = needed ? begun : qr_expr_or(b->x, begun, first);
        later = needed ? more : qr_expr_or(b->x, more, later);
    }
    qr_free(at);
    return first;
}

/* ---- between tags ---- */

static int32_t tagged_value(struct qr_shaping *b, const struct members *m, const struct qr_json *schema, bool text, const char *below)
{
    const char *stop = b->r.form->value_end, *key = qr_json_key(schema);
    const uint32_t types = qr_tool_types(b->s->tools, m->name, key, strlen(key)), nested = QR_TYPE_ARRAY | QR_TYPE_OBJECT;
    if (text || types == QR_TYPE_STRING)
        return string_text(b, schema, stop, below);
    if (types && !(types & QR_TYPE_STRING))
        return json_value(b, m->root, schema, is_strict(m->f), below);
    const int32_t white = qr_expr_repeat(b->x, qr_expr_or(b->x, qr_expr_text(b->x, " "), qr_expr_text(b->x, "\n")), 0, QR_REPEAT_FOREVER);
    const int32_t open = qr_expr_or(b->x, qr_expr_text(b->x, "{"), qr_expr_text(b->x, "["));
    const int32_t like_json = qr_expr_cat(b->x, white, qr_expr_cat(b->x, open, qr_expr_anything(b->x)));
    const int32_t plain = qr_expr_minus(b->x, plain_text(b, stop), like_json);
    return types == 0 || (types & nested) ? qr_expr_or(b->x, plain, json_value(b, m->root, schema, is_strict(m->f), below)) : plain;
}

static int32_t tagged_member(struct qr_shaping *b, const struct members *m, const struct qr_json *schema)
{
    const struct qr_call_form *c = b->r.form;
    const char *key = qr_json_key(schema);
    char below[80];
    below_of(below, key);
    const uint32_t types = qr_tool_types(b->s->tools, m->name, key, strlen(key));
    const bool two = *qr_text_of(c->key_end_text) != 0, text_only = types == QR_TYPE_STRING;
    const int32_t line = c->value_lines ? qr_expr_text(b->x, "\n") : QR_EXPR_EMPTY, key_text = qr_expr_text(b->x, key);
    const int32_t end = qr_expr_cat(b->x, line, qr_shape_written(b, c->value_end)), start = qr_expr_cat(b->x, qr_shape_written(b, c->param_start), key_text);
    int32_t value = QR_EXPR_NONE;
    if (two && (types == 0 || (types & QR_TYPE_STRING)))
        value = qr_expr_cat(b->x, qr_shape_written(b, c->key_end_text), qr_expr_cat(b->x, line, tagged_value(b, m, schema, true, below)));
    if (!two)
        value = qr_expr_cat(b->x, qr_shape_written(b, c->key_end), qr_expr_cat(b->x, line, tagged_value(b, m, schema, false, below)));
    else if (!text_only)
        value = qr_expr_or(b->x, value,
                           qr_expr_cat(b->x, qr_shape_written(b, c->key_end), qr_expr_cat(b->x, line, json_value(b, m->root, schema, is_strict(m->f), below))));
    return qr_expr_cat(b->x, start, qr_expr_cat(b->x, value, end));
}

int32_t qr_shape_tagged_arguments(struct qr_shaping *b, const struct qr_json *f)
{
    const struct members m = members_of(f);
    return check_whole(b, &m) ? chain(b, &m, b->r.form->param_separator, tagged_member) : QR_EXPR_NONE;
}

/* ---- keywords with literals ---- */

static int32_t loose_value(struct qr_shaping *b, const struct members *m, const struct qr_json *schema, const char *below)
{
    const struct qr_call_form *c = b->r.form;
    const char *key = qr_json_key(schema), *quote = qr_text_of(c->quote);
    const uint32_t types = qr_tool_types(b->s->tools, m->name, key, strlen(key));
    if (*quote && types == QR_TYPE_STRING) {
        const int32_t mark = qr_shape_written(b, quote);
        return qr_expr_cat(b->x, mark, qr_expr_cat(b->x, string_text(b, schema, quote, below), mark));
    }
    const int32_t json = json_value(b, m->root, schema, is_strict(m->f), below);
    if (types != QR_TYPE_BOOLEAN || c->assign != '=' || qr_json_find(schema, "enum") || qr_json_find(schema, "const"))
        return json;
    return qr_expr_or(b->x, json, qr_expr_or(b->x, qr_expr_text(b->x, "True"), qr_expr_text(b->x, "False")));
}

static int32_t loose_member(struct qr_shaping *b, const struct members *m, const struct qr_json *schema)
{
    const char *key = qr_json_key(schema), assign[2] = {b->r.form->assign, 0};
    char below[80];
    below_of(below, key);
    return qr_expr_cat(b->x, qr_expr_text(b->x, key), qr_expr_cat(b->x, qr_expr_text(b->x, assign), loose_value(b, m, schema, below)));
}

int32_t qr_shape_loose_arguments(struct qr_shaping *b, const struct qr_json *f)
{
    const struct members m = members_of(f);
    return !check_whole(b, &m) ? QR_EXPR_NONE : chain(b, &m, b->r.form->assign == '=' ? ", " : ",", loose_member);
}
