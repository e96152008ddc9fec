/* tok_doc.c - reading the small sections of tokenizer.json as documents: members, types, and refusals by name. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "tokenizer/tok.h"

int qr_tok_unsupported(struct qr_err *err, const char *section, const char *fmt, ...)
{
    char what[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return qr_err_set(err, QR_E_UNSUPPORTED, "%s: %s is not supported", section, what);
}

static int wrong(struct qr_err *err, const char *section, const char *key, const char *expected, const struct qr_json *found)
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

int qr_tok_check_keys(const struct qr_json *v, const char *section, const char *const *name, int32_t n, struct qr_err *err)
{
    QR_ASSERT(v != NULL);
    QR_ASSERT(n >= 0);
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_err_set(err, QR_E_DAMAGED, "%s: expected an object, found %s", section, qr_json_type_name(qr_json_type(v)));
    for (const struct qr_json *m = qr_json_first(v); m; m = qr_json_after(m)) {
        bool known = strcmp(qr_json_key(m), "type") == 0;
        for (int32_t i = 0; i < n && !known; i++)
            known = strcmp(qr_json_key(m), name[i]) == 0;
        if (!known)
            return qr_tok_unsupported(err, section, "the member \"%.64s\"", qr_json_key(m));
    }
    return 0;
}

int qr_tok_type(const struct qr_json *v, const char *section, const char **type, struct qr_err *err)
{
    QR_ASSERT(v != NULL && type != NULL);
    const struct qr_json *t = qr_json_find(v, "type");
    if (!t || qr_json_type(t) != QR_JSON_T_STRING)
        return wrong(err, section, "type", "a string", t);
    *type = qr_json_str(t, NULL);
    return 0;
}

int qr_tok_bool(const struct qr_json *v, const char *section, const char *key, bool builtin, bool *out, struct qr_err *err)
{
    const struct qr_json *m = qr_json_find(v, key);
    *out = builtin;
    if (qr_json_is_null(m))
        return 0;
    if (qr_json_type(m) != QR_JSON_T_BOOL)
        return wrong(err, section, key, "true or false", m);
    *out = qr_json_bool(m);
    return 0;
}

int qr_tok_string(const struct qr_json *v, const char *section, const char *key, const char **s, size_t *n, struct qr_err *err)
{
    const struct qr_json *m = qr_json_find(v, key);
    *s = NULL;
    *n = 0;
    if (qr_json_is_null(m))
        return 0;
    if (qr_json_type(m) != QR_JSON_T_STRING)
        return wrong(err, section, key, "a string", m);
    *s = qr_json_str(m, n);
    return 0;
}

int qr_tok_int(const struct qr_json *v, const char *section, const char *key, int64_t min, int64_t max, int64_t *out,
               struct qr_err *err)
{
    const struct qr_json *m = qr_json_find(v, key);
    int64_t value;
    if (!m || !qr_json_i64(m, &value))
        return wrong(err, section, key, "an integer", m);
    if (value < min || value > max)
        return qr_err_set(err, QR_E_DAMAGED, "%s.%s: %lld is outside %lld..%lld", section, key, (long long)value,
                          (long long)min, (long long)max);
    *out = value;
    return 0;
}

int qr_tok_char(const struct qr_json *v, const char *section, const char *key, char out[5], struct qr_err *err)
{
    const char *s;
    size_t n;
    uint32_t cp;
    int rc = qr_tok_string(v, section, key, &s, &n, err);
    if (rc != 0)
        return rc;
    if (!s || n == 0 || n > 4 || s[0] == 0 || (size_t)qr_utf8_decode(s, n, &cp) != n)
        return wrong(err, section, key, "one character", qr_json_find(v, key));
    memcpy(out, s, n);
    out[n] = 0;
    return 0;
}

int qr_tok_pattern_text(const struct qr_json *v, const char *section, const char *key, const char **s, size_t *n,
                        bool *literal, struct qr_err *err)
{
    const struct qr_json *m = qr_json_find(v, key);
    static const char *const kinds[] = {"String", "Regex"};
    if (!m || qr_json_type(m) != QR_JSON_T_OBJECT)
        return wrong(err, section, key, "{\"String\": ...} or {\"Regex\": ...}", m);
    for (int i = 0; i < 2; i++) {
        const struct qr_json *text = qr_json_find(m, kinds[i]);
        if (!text || qr_json_type(text) != QR_JSON_T_STRING || qr_json_count(m) != 1)
            continue;
        *s = qr_json_str(text, n);
        *literal = i == 0;
        return 0;
    }
    return wrong(err, section, key, "{\"String\": ...} or {\"Regex\": ...}", m);
}

int qr_tok_pattern(struct qr_pattern **out, const struct qr_json *v, const char *section, const char *key, struct qr_err *err)
{
    const char *s;
    size_t n;
    bool literal;
    int rc = qr_tok_pattern_text(v, section, key, &s, &n, &literal, err);
    if (rc != 0)
        return rc;
    if (n == 0 || n > QR_TOKEN_BYTES_MAX)
        return qr_err_set(err, QR_E_DAMAGED, "%s.%s: a pattern of %zu bytes; expected 1..%d", section, key, n,
                          QR_TOKEN_BYTES_MAX);
    if (literal) {
        *out = qr_pattern_literal(s, n);
        return 0;
    }
    rc = qr_pattern_open(out, s, n, err);
    return rc == 0 ? 0 : (qr_err_prefix(err, "%s: ", section), rc);
}
