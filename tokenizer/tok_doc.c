/* tok_doc.c - reading the small sections of tokenizer.json as documents: members, types, sequences, and refusals by
 * name. A section is a table of types, an object a table of members. What is not listed is refused by name, so that no
 * setting is passed over. Runs once, when a tokenizer is opened. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "tokenizer/tok.h"

#define DEPTH_MAX 8 /* of Sequence inside Sequence */

int qr_tok_unsupported(struct qr_err *err, const char *section, const char *fmt, ...)
{
    char what[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return qr_err_set(err, QR_E_UNSUPPORTED, "%s: %s is not supported", section, what);
}

static int wrong(struct qr_err *err, const char *section, const char *key, const char *expected,
                 const struct qr_json *found)
{
    return qr_err_set(err, QR_E_DAMAGED, "%s.%s: expected %s, found %s", section, key, expected,
                      found ? qr_json_type_name(qr_json_type(found)) : "nothing");
}

int qr_tok_document(struct qr_json **out, const struct qr_tok_span *text, const char *section, struct qr_err *err)
{
    QR_ASSERT(out != NULL && text != NULL);
    *out = NULL;
    if (text->n == 0)
        return 0;
    int rc = qr_json_parse(out, text->text, text->n, &qr_json_limits_file, err);
    if (rc == QR_E_INVALID) {
        err->code = QR_E_DAMAGED;
        rc = QR_E_DAMAGED;
    }
    return rc == 0 ? 0 : (qr_err_prefix(err, "%s: ", section), rc);
}

int qr_tok_type(const struct qr_json *v, const char *section, const char **type, struct qr_err *err)
{
    QR_ASSERT(v != NULL && type != NULL);
    const struct qr_json *t = qr_json_find(v, "type");
    *type = qr_json_text(t, NULL);
    return *type ? 0 : wrong(err, section, "type", "a string", t);
}

static int read_member(const struct qr_json *v, const char *section, const struct qr_tok_member *m, struct qr_err *err)
{
    const struct qr_json *found = qr_json_find(v, m->name);
    struct qr_tok_string *s = m->out;
    int64_t *number = m->out;
    uint32_t cp;
    switch (m->kind) {
    case QR_TOK_IGNORED: break;
    case QR_TOK_BOOL:
        if (qr_json_is_null(found))
            break;
        if (qr_json_type(found) != QR_JSON_T_BOOL)
            return wrong(err, section, m->name, "true or false", found);
        *(bool *)m->out = qr_json_bool(found);
        break;
    case QR_TOK_STRING:
        if (qr_json_is_null(found))
            break;
        s->s = qr_json_text(found, &s->n);
        if (!s->s)
            return wrong(err, section, m->name, "a string", found);
        break;
    case QR_TOK_ID:
    case QR_TOK_COUNT: {
        const long long max = m->kind == QR_TOK_ID ? QR_TOKEN_ID_MAX : QR_TOKEN_BYTES_MAX;
        if (!found || !qr_json_i64(found, number))
            return wrong(err, section, m->name, "an integer", found);
        if (*number < 0 || *number > max)
            return qr_err_set(err, QR_E_DAMAGED, "%s.%s: %lld is outside 0..%lld", section, m->name, (long long)*number,
                              max);
        break;
    }
    case QR_TOK_CHAR: {
        struct qr_tok_string one = {0};
        one.s = qr_json_text(found, &one.n);
        if (one.n == 0 || one.n > 4 || one.s[0] == 0 || (size_t)qr_utf8_decode(one.s, one.n, &cp) != one.n)
            return wrong(err, section, m->name, "one character", found);
        memcpy(m->out, one.s, one.n);
        ((char *)m->out)[one.n] = 0;
        break;
    }
    }
    return 0;
}

int qr_tok_members(const struct qr_json *v, const char *section, const struct qr_tok_member *m, int32_t n,
                   struct qr_err *err)
{
    QR_ASSERT(v != NULL);
    QR_ASSERT(n >= 0);
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_err_set(err, QR_E_DAMAGED, "%s: expected an object, found %s", section,
                          qr_json_type_name(qr_json_type(v)));
    for (const struct qr_json *found = qr_json_first(v); found; found = qr_json_after(found)) {
        bool known = strcmp(qr_json_key(found), "type") == 0;
        for (int32_t i = 0; i < n && !known; i++)
            known = strcmp(qr_json_key(found), m[i].name) == 0;
        if (!known)
            return qr_tok_unsupported(err, section, "the member \"%.64s\"", qr_json_key(found));
    }
    int rc = 0;
    for (int32_t i = 0; i < n && rc == 0; i++)
        rc = read_member(v, section, &m[i], err);
    return rc;
}

int qr_tok_byte_level(const struct qr_json *v, const char *section, struct qr_err *err)
{
    static const struct qr_tok_member members[] = {
        {"add_prefix_space", QR_TOK_IGNORED, NULL},
        {"trim_offsets", QR_TOK_IGNORED, NULL},
        {"use_regex", QR_TOK_IGNORED, NULL},
    };
    return qr_tok_members(v, section, members, QR_COUNT(members), err);
}

/* Finds v's type among the parts and reads it; a Sequence goes through its members. */
static int read_part(struct qr_tokenizer *t, const struct qr_json *v, const struct qr_tok_section *s, int32_t depth,
                     struct qr_err *err)
{
    const struct qr_tok_member list = {s->list, QR_TOK_IGNORED, NULL};
    const char *type;
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_err_set(err, QR_E_DAMAGED, "%s: expected an object, found %s", s->name,
                          qr_json_type_name(qr_json_type(v)));
    int rc = qr_tok_type(v, s->name, &type, err);
    if (rc != 0)
        return rc;
    for (int32_t i = 0; i < s->n_parts; i++)
        if (strcmp(type, s->part[i].type) == 0)
            return s->part[i].read(t, v, err);
    if (strcmp(type, "Sequence") != 0)
        return qr_tok_unsupported(err, s->name, "type \"%.64s\"", type);
    if (depth >= DEPTH_MAX)
        return qr_tok_unsupported(err, s->name, "a Sequence nested deeper than %d", DEPTH_MAX);
    rc = qr_tok_members(v, s->name, &list, 1, err);
    if (rc != 0)
        return rc;
    const struct qr_json *members = qr_json_find(v, s->list);
    if (!members || qr_json_type(members) != QR_JSON_T_ARRAY)
        return qr_err_set(err, QR_E_DAMAGED, "%s.%s: expected an array", s->name, s->list);
    for (const struct qr_json *m = qr_json_first(members); m && rc == 0; m = qr_json_after(m))
        rc = read_part(t, m, s, depth + 1, err);
    return rc;
}

int qr_tok_read_section(struct qr_tokenizer *t, const struct qr_tok_span *text, const struct qr_tok_section *s,
                        struct qr_err *err)
{
    QR_ASSERT(t != NULL && text != NULL && s != NULL);
    struct qr_json *doc;
    int rc = qr_tok_document(&doc, text, s->name, err);
    if (rc == 0 && doc)
        rc = read_part(t, doc, s, 0, err);
    qr_json_free(doc);
    return rc;
}

int qr_tok_pattern_text(const struct qr_json *v, const char *section, struct qr_tok_string *s, bool *literal,
                        struct qr_err *err)
{
    static const char *const kinds[] = {"Regex", "String"};
    const struct qr_json *m = qr_json_find(v, "pattern");
    for (int i = 0; m && qr_json_type(m) == QR_JSON_T_OBJECT && i < 2; i++) {
        s->s = qr_json_text(qr_json_find(m, kinds[i]), &s->n);
        *literal = i == 1;
        if (s->s && qr_json_count(m) == 1)
            return 0;
    }
    return wrong(err, section, "pattern", "{\"String\": ...} or {\"Regex\": ...}", m);
}

int qr_tok_pattern(struct qr_pattern **out, const struct qr_json *v, const char *section, struct qr_err *err)
{
    struct qr_tok_string text;
    bool literal;
    int rc = qr_tok_pattern_text(v, section, &text, &literal, err);
    if (rc != 0)
        return rc;
    if (text.n == 0 || text.n > QR_TOKEN_BYTES_MAX)
        return qr_err_set(err, QR_E_DAMAGED, "%s.pattern: a pattern of %zu bytes; expected 1..%d", section, text.n,
                          QR_TOKEN_BYTES_MAX);
    if (literal) {
        *out = qr_pattern_literal(text.s, text.n);
        return 0;
    }
    rc = qr_pattern_open(out, text.s, text.n, err);
    return rc == 0 ? 0 : (qr_err_prefix(err, "%s: ", section), rc);
}
