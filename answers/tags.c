/* tags.c - structural tags: free text with pieces in it that have a form, as xgrammar defines them, to an expression. One function for each type of
 * format, in a table. What is between tags is any text in which no trigger, no excluded text and no end of the tag around it occurs. A marker that
 * is a special token of the vocabulary may come as this token or as its text. What cannot be enforced is refused with its path. Pure. */
#include <stdio.h>
#include <string.h>

#include "answers/constraint.h"
#include "answers/grammar/syntax.h"
#include "answers/schema/schema.h"
#include "base/assert.h"

#define PATH_MAX_BYTES 100   /* longer paths are cut */
#define MARKER_MAX 1024      /* bytes of a marker */
#define SPECIAL_MAX 64       /* bytes of a special token that is looked for in one */
#define ELEMENTS_MAX 1024    /* of a list of formats, tags, triggers */
#define REPEAT_MAX 65536

struct reader {
    struct qr_exprs *x;
    const struct qr_vocab *v;
    bool compact;
};

/* Where a format stands. */
struct place {
    char path[PATH_MAX_BYTES];
    int32_t stop;                   /* what free text must not contain; NONE: anything may be there */
};

typedef int read_format(int32_t *out, struct reader *r, const struct qr_json *f, const struct place *at, struct qr_err *err);
static int read_any(int32_t *out, struct reader *r, const struct qr_json *f, const struct place *at, struct qr_err *err);

static struct place inside(const struct place *around, const char *name)
{
    struct place p = {.stop = around->stop};
    snprintf(p.path, sizeof p.path, "%.60s.%s", around->path, name);
    return p;
}

static struct place element(const struct place *around, const char *name, int32_t i)
{
    struct place p = {.stop = around->stop};
    snprintf(p.path, sizeof p.path, "%.60s.%s[%d]", around->path, name, i);
    return p;
}

static int wrong(struct qr_err *err, const struct place *at, const char *name, const char *expected)
{
    const struct place p = inside(at, name);
    return qr_err_at(err, QR_E_INVALID, p.path, "%s must be %s", name, expected);
}

/* A member that must be text. */
static int text_of(const char **text, size_t *len, const struct qr_json *f, const struct place *at, const char *name, struct qr_err *err)
{
    *text = qr_json_text(qr_json_find(f, name), len);
    return *text ? 0 : wrong(err, at, name, "a string");
}

static int flag_of(bool *out, const struct qr_json *f, const struct place *at, const char *name, struct qr_err *err)
{
    const struct qr_json *v = qr_json_find(f, name);
    *out = false;
    if (qr_json_is_null(v))
        return 0;
    if (qr_json_type(v) != QR_JSON_T_BOOL)
        return wrong(err, at, name, "true or false");
    *out = qr_json_bool(v);
    return 0;
}

/* An array of 1 .. ELEMENTS_MAX elements. */
static int list_of(const struct qr_json **out, const struct qr_json *f, const struct place *at, const char *name, struct qr_err *err)
{
    const struct qr_json *v = qr_json_find(f, name);
    *out = v;
    if (qr_json_is_null(v) || qr_json_type(v) != QR_JSON_T_ARRAY || qr_json_count(v) < 1 || qr_json_count(v) > ELEMENTS_MAX)
        return wrong(err, at, name, "an array that is not empty, of at most 1024 elements");
    return 0;
}

/* ---- markers ---- */

/* The special token that begins at s, or -1; the longest one. */
static int32_t special_at(const struct reader *r, const char *s, size_t len, size_t *n)
{
    for (*n = len < SPECIAL_MAX ? len : SPECIAL_MAX; r->v && *n > 1; --*n) {
        const int32_t id = qr_vocab_special(r->v, s, *n);
        if (id >= 0)
            return id;
    }
    return -1;
}

static int32_t marker(const struct reader *r, const char *s, size_t len)
{
    int32_t out = QR_EXPR_EMPTY;
    size_t from = 0, n;
    for (size_t i = 0; i < len; i++) {
        const int32_t id = special_at(r, s + i, len - i, &n);
        if (id < 0)
            continue;
        out = qr_expr_cat(r->x, out, qr_expr_bytes(r->x, s + from, i - from));
        out = qr_expr_cat(r->x, out, qr_expr_or(r->x, qr_expr_token(r->x, id), qr_expr_bytes(r->x, s + i, n)));
        i += n - 1;
        from = i + 1;
    }
    return qr_expr_cat(r->x, out, qr_expr_bytes(r->x, s + from, len - from));
}

/* A text, or any of several; NONE where the member is absent. May be empty only where `empty` says so. */
static int markers_of(int32_t *out, struct reader *r, const struct qr_json *f, const struct place *at, const char *name, bool empty, struct qr_err *err)
{
    const struct qr_json *v = qr_json_find(f, name);
    const bool many = v && qr_json_type(v) == QR_JSON_T_ARRAY;
    int32_t n = 0;
    *out = QR_EXPR_NONE;
    if (qr_json_is_null(v))
        return 0;
    for (const struct qr_json *e = many ? qr_json_first(v) : v; e; e = many ? qr_json_after(e) : NULL) {
        size_t len;
        const char *text = qr_json_text(e, &len);
        if (!text || len > MARKER_MAX || (len == 0 && !empty) || ++n > ELEMENTS_MAX)
            return wrong(err, at, name, "a string, or an array of strings, none empty, each of at most 1024 bytes");
        *out = qr_expr_or(r->x, *out, marker(r, text, len));
    }
    return 0;
}

/* Text in which neither the place's end nor `more` occurs. */
static int32_t free_text(struct reader *r, const struct place *at, int32_t more)
{
    const int32_t stop = qr_expr_or(r->x, at->stop, more);
    const int32_t text = qr_expr_utf8(r->x);
    return stop == QR_EXPR_NONE ? text : qr_expr_and(r->x, text, qr_expr_without(r->x, stop));
}

/* ---- what holds no other format ---- */

static int read_const(int32_t *out, struct reader *r, const struct qr_json *f, const struct place *at, struct qr_err *err)
{
    const char *text;
    size_t len;
    int rc = text_of(&text, &len, f, at, "value", err);
    if (rc == 0)
        *out = marker(r, text, len);
    return rc;
}

/* Puts a path in front of that which a language's own reader says, "$.a" for the JSON below `name`. */
static int relocate(int rc, const struct place *at, const char *name, struct qr_err *err)
{
    char below[sizeof err->param];
    if (rc == 0)
        return 0;
    memcpy(below, err->param, sizeof below);
    snprintf(err->param, sizeof err->param, "%.60s.%s%.50s", at->path, name, below[0] == '$' ? below + 1 : "");
    return rc;
}

static int read_schema_of(int32_t *out, struct reader *r, const struct qr_json *f, const struct place *at, const char *name, struct qr_err *err)
{
    const struct qr_json *schema = qr_json_find(f, name);
    const struct qr_schema_options o = {.compact = r->compact, .plain_integers = true};
    struct qr_json *own = NULL;
    size_t len;
    const char *text = qr_json_text(schema, &len);
    if (qr_json_is_null(schema))
        return wrong(err, at, name, "a JSON Schema");
    int rc = text ? qr_json_parse(&own, text, len, &qr_json_limits_request, err) : 0;
    if (rc == 0)
        rc = qr_schema_build(out, r->x, own ? own : schema, &o, err);
    qr_json_free(own);
    return relocate(rc, at, name, err);
}

static int read_schema(int32_t *out, struct reader *r, const struct qr_json *f, const struct place *at, struct qr_err *err)
{
    const struct qr_json *style = qr_json_find(f, "style");
    if (!qr_json_is_null(style) && !qr_json_says(style, "json")) {
        const struct place p = inside(at, "style");
        return qr_err_at(err, QR_E_UNSUPPORTED, p.path, "style must be \"json\"; other styles are not supported, use tools for them");
    }
    return read_schema_of(out, r, f, at, "json_schema", err);
}

static int read_grammar(int32_t *out, struct reader *r, const struct qr_json *f, const struct place *at, struct qr_err *err)
{
    const char *text;
    size_t len;
    int rc = text_of(&text, &len, f, at, "grammar", err);
    if (rc != 0)
        return rc;
    const struct qr_constraint c = {.kind = qr_constraint_guess(text, len), .text = text, .len = len, .compact = r->compact};
    return relocate(qr_constraint_build(out, r->x, &c, r->v, err), at, "grammar", err);
}

static int read_regex(int32_t *out, struct reader *r, const struct qr_json *f, const struct place *at, struct qr_err *err)
{
    const char *text;
    size_t len;
    int32_t not;
    int rc = text_of(&text, &len, f, at, "pattern", err);
    if (rc == 0)
        rc = relocate(qr_regex_parse(out, r->x, text, len, QR_REGEX_TEXT, 0, err), at, "pattern", err);
    if (rc == 0)
        rc = markers_of(&not, r, f, at, "excludes", false, err);
    if (rc == 0 && not != QR_EXPR_NONE)
        *out = qr_expr_and(r->x, *out, qr_expr_without(r->x, not));
    return rc;
}

static int read_text(int32_t *out, struct reader *r, const struct qr_json *f, const struct place *at, struct qr_err *err)
{
    int32_t one, other;
    int rc = markers_of(&one, r, f, at, "excludes", false, err);
    if (rc == 0)
        rc = markers_of(&other, r, f, at, "excluded_str", false, err);
    if (rc == 0)
        *out = free_text(r, at, qr_expr_or(r->x, one, other));
    return rc;
}

/* ---- what holds others ---- */

typedef int32_t combine_fn(struct qr_exprs *x, int32_t a, int32_t b);

/* All elements, from `none` on. */
static int read_elements(int32_t *out, struct reader *r, const struct qr_json *f, const struct place *at, int32_t none, combine_fn *combine,
                         struct qr_err *err)
{
    const struct qr_json *list;
    int rc = list_of(&list, f, at, "elements", err);
    int32_t i = 0, e;
    *out = none;
    for (const struct qr_json *v = rc == 0 ? qr_json_first(list) : NULL; v && rc == 0; v = qr_json_after(v)) {
        const struct place p = element(at, "elements", i++);
        rc = read_any(&e, r, v, &p, err);
        if (rc == 0)
            *out = combine(r->x, *out, e);
    }
    return rc;
}

static int read_sequence(int32_t *out, struct reader *r, const struct qr_json *f, const struct place *at, struct qr_err *err)
{
    return read_elements(out, r, f, at, QR_EXPR_EMPTY, qr_expr_cat, err);
}

static int read_or(int32_t *out, struct reader *r, const struct qr_json *f, const struct place *at, struct qr_err *err)
{
    return read_elements(out, r, f, at, QR_EXPR_NONE, qr_expr_or, err);
}

static int read_repeat(int32_t *out, struct reader *r, const struct qr_json *f, const struct place *at, struct qr_err *err)
{
    static const struct { const char *type; int32_t min, max; } kind[] = {
        {"optional", 0, 1}, {"star", 0, QR_REPEAT_FOREVER}, {"plus", 1, QR_REPEAT_FOREVER}, {"repeat", 0, QR_REPEAT_FOREVER}};
    const struct place p = inside(at, "content");
    const struct qr_json *type = qr_json_find(f, "type"), *low = qr_json_find(f, "min"), *high = qr_json_find(f, "max");
    int64_t min = 0, max = -1;
    int32_t e, i = 0;
    while (!qr_json_says(type, kind[i].type))
        i++;
    const bool counted = i == 3;
    if (counted && !qr_json_is_null(low) && (!qr_json_i64(low, &min) || min < 0 || min > REPEAT_MAX))
        return wrong(err, at, "min", "an integer from 0 to 65536");
    if (counted && !qr_json_is_null(high) && (!qr_json_i64(high, &max) || max < -1 || max > REPEAT_MAX || (max >= 0 && max < min)))
        return wrong(err, at, "max", "-1, or an integer from min to 65536");
    int rc = read_any(&e, r, qr_json_find(f, "content"), &p, err);
    if (rc == 0)
        *out = qr_expr_repeat(r->x, e, counted ? (int32_t)min : kind[i].min, !counted ? kind[i].max : max < 0 ? QR_REPEAT_FOREVER : (int32_t)max);
    return rc;
}

/* content, then end: begin is the caller's. old: the older form, with a schema in place of a format. */
static int read_body(int32_t *out, struct reader *r, const struct qr_json *f, const struct place *at, bool old, struct qr_err *err)
{
    struct place p = inside(at, "content");
    int32_t end, content;
    int rc = markers_of(&end, r, f, at, "end", true, err);
    if (rc == 0 && end == QR_EXPR_NONE)
        rc = wrong(err, at, "end", "a string");
    if (rc != 0)
        return rc;
    p.stop = end == QR_EXPR_EMPTY ? QR_EXPR_NONE : end;
    rc = old ? read_schema_of(&content, r, f, at, "schema", err) : read_any(&content, r, qr_json_find(f, "content"), &p, err);
    if (rc == 0)
        *out = qr_expr_cat(r->x, content, end);
    return rc;
}

static int read_tag(int32_t *out, struct reader *r, const struct qr_json *f, const struct place *at, struct qr_err *err)
{
    const char *begin;
    size_t len;
    int32_t body;
    int rc = text_of(&begin, &len, f, at, "begin", err);
    if (rc == 0)
        rc = read_body(&body, r, f, at, false, err);
    if (rc == 0)
        *out = qr_expr_cat(r->x, marker(r, begin, len), body);
    return rc;
}

/* ---- triggered tags ---- */

struct triggers {
    const struct qr_json *list;
    int32_t any;     /* expression of any of them */
    int32_t n;
};

static int read_triggers(struct triggers *t, struct reader *r, const struct qr_json *f, const struct place *at, struct qr_err *err)
{
    int rc = list_of(&t->list, f, at, "triggers", err);
    if (rc != 0)
        return rc;
    t->n = qr_json_count(t->list);
    return markers_of(&t->any, r, f, at, "triggers", false, err);
}

/* The longest trigger that a tag begins with; its length, 0: none. */
static size_t trigger_of(const struct triggers *t, const char *begin, size_t len)
{
    size_t best = 0, n;
    for (const struct qr_json *v = qr_json_first(t->list); v; v = qr_json_after(v)) {
        const char *s = qr_json_text(v, &n);
        if (n > best && n <= len && memcmp(begin, s, n) == 0)
            best = n;
    }
    return best;
}

struct tags {
    int32_t first;   /* a tag alone */
    int32_t later;   /* text, then a tag */
};

static int add_tag(struct tags *out, struct reader *r, const struct triggers *t, const struct qr_json *tag, const struct place *at, int32_t text, bool old,
                   struct qr_err *err)
{
    const char *begin;
    size_t len;
    int32_t body;
    if (qr_json_type(tag) != QR_JSON_T_OBJECT)
        return qr_err_at(err, QR_E_INVALID, at->path, "a tag must be an object with begin, content and end");
    int rc = text_of(&begin, &len, tag, at, "begin", err);
    if (rc != 0)
        return rc;
    if (trigger_of(t, begin, len) == 0)
        return wrong(err, at, "begin", "a string that begins with one of the triggers");
    rc = read_body(&body, r, tag, at, old, err);
    if (rc != 0)
        return rc;
    const int32_t whole = qr_expr_cat(r->x, marker(r, begin, len), body);
    out->first = qr_expr_or(r->x, out->first, whole);
    out->later = qr_expr_or(r->x, out->later, qr_expr_cat(r->x, text, whole));
    return 0;
}

static int read_tag_list(struct tags *out, struct reader *r, const struct triggers *t, const struct qr_json *list, const char *name, const struct place *at,
                         int32_t text, struct qr_err *err)
{
    const bool old = strcmp(name, "structures") == 0;
    int rc = 0;
    int32_t i = 0;
    *out = (struct tags){QR_EXPR_NONE, QR_EXPR_NONE};
    for (const struct qr_json *v = qr_json_first(list); v && rc == 0; v = qr_json_after(v)) {
        const struct place p = element(at, name, i++);
        rc = add_tag(out, r, t, v, &p, text, old, err);
    }
    return rc;
}

static int read_triggered_as(int32_t *out, struct reader *r, const struct qr_json *f, const char *name, const struct place *at, struct qr_err *err)
{
    const struct qr_json *list;
    struct triggers t;
    struct tags tags;
    bool least, stop;
    int32_t not;
    int rc = list_of(&list, f, at, name, err);
    rc = rc ? rc : read_triggers(&t, r, f, at, err);
    rc = rc ? rc : markers_of(&not, r, f, at, "excludes", false, err);
    rc = rc ? rc : flag_of(&least, f, at, "at_least_one", err);
    rc = rc ? rc : flag_of(&stop, f, at, "stop_after_first", err);
    if (rc != 0)
        return rc;
    const int32_t text = free_text(r, at, qr_expr_or(r->x, t.any, not));
    rc = read_tag_list(&tags, r, &t, list, name, at, text, err);
    if (rc != 0)
        return rc;
    const int32_t first = least ? tags.first : tags.later;
    const int32_t rest = stop ? QR_EXPR_EMPTY : qr_expr_cat(r->x, qr_expr_repeat(r->x, tags.later, 0, QR_REPEAT_FOREVER), text);
    *out = qr_expr_cat(r->x, first, rest);
    if (!least)
        *out = qr_expr_or(r->x, *out, text);
    return 0;
}

static int read_triggered(int32_t *out, struct reader *r, const struct qr_json *f, const struct place *at, struct qr_err *err)
{
    return read_triggered_as(out, r, f, "tags", at, err);
}

static int read_separated(int32_t *out, struct reader *r, const struct qr_json *f, const struct place *at, struct qr_err *err)
{
    const struct qr_json *list;
    const char *separator;
    size_t len;
    bool least, stop;
    int32_t i = 0, e, any = QR_EXPR_NONE;
    int rc = list_of(&list, f, at, "tags", err);
    rc = rc ? rc : text_of(&separator, &len, f, at, "separator", err);
    rc = rc ? rc : flag_of(&least, f, at, "at_least_one", err);
    rc = rc ? rc : flag_of(&stop, f, at, "stop_after_first", err);
    for (const struct qr_json *v = rc == 0 ? qr_json_first(list) : NULL; v && rc == 0; v = qr_json_after(v)) {
        const struct place p = element(at, "tags", i++);
        rc = read_tag(&e, r, v, &p, err);
        if (rc == 0)
            any = qr_expr_or(r->x, any, e);
    }
    if (rc != 0)
        return rc;
    const int32_t more = stop ? QR_EXPR_EMPTY : qr_expr_repeat(r->x, qr_expr_cat(r->x, marker(r, separator, len), any), 0, QR_REPEAT_FOREVER);
    *out = qr_expr_cat(r->x, any, more);
    if (!least)
        *out = qr_expr_maybe(r->x, *out);
    return 0;
}

/* ---- any of them ---- */

static const struct {
    const char *type;
    read_format *read;
} formats[] = {
    {"const_string", read_const}, {"json_schema", read_schema}, {"grammar", read_grammar}, {"regex", read_regex}, {"any_text", read_text},
    {"sequence", read_sequence}, {"or", read_or}, {"optional", read_repeat}, {"star", read_repeat}, {"plus", read_repeat}, {"repeat", read_repeat},
    {"tag", read_tag}, {"triggered_tags", read_triggered}, {"tags_with_separator", read_separated},
};

static int read_any(int32_t *out, struct reader *r, const struct qr_json *f, const struct place *at, struct qr_err *err)
{
    const struct qr_json *type = f ? qr_json_find(f, "type") : NULL;
    const struct place p = inside(at, "type");
    size_t n;
    if (!f || qr_json_type(f) != QR_JSON_T_OBJECT)
        return qr_err_at(err, QR_E_INVALID, at->path, "a format must be an object with a type");
    if (!qr_json_text(type, &n))
        return qr_err_at(err, QR_E_INVALID, p.path, "type must be a string such as \"tag\"");
    for (int i = 0; i < QR_COUNT(formats); i++)
        if (qr_json_says(type, formats[i].type))
            return formats[i].read(out, r, f, at, err);
    return qr_err_at(err, QR_E_UNSUPPORTED, p.path, "a format of type \"%.40s\" is not supported", qr_json_str(type, NULL));
}

int qr_tags_build(int32_t *out, struct qr_exprs *x, const struct qr_json *tags, const struct qr_vocab *v, bool compact, struct qr_err *err)
{
    QR_ASSERT(out != NULL && x != NULL);
    QR_ASSERT(tags != NULL && err != NULL);
    struct reader r = {.x = x, .v = v, .compact = compact};
    const struct place root = {.path = "$", .stop = QR_EXPR_NONE}, at = inside(&root, "format");
    if (qr_json_type(tags) == QR_JSON_T_OBJECT && qr_json_find(tags, "structures"))
        return read_triggered_as(out, &r, tags, "structures", &root, err);
    return read_any(out, &r, qr_json_find(tags, "format"), &at, err);
}
