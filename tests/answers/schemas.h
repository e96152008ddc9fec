/* schemas.h - what tests of JSON Schema share: a grammar of a schema, and tables of texts that it takes or refuses. In tables ' stands for ". */
#ifndef QR_TESTS_ANSWERS_SCHEMAS_H
#define QR_TESTS_ANSWERS_SCHEMAS_H

#include <criterion/criterion.h>

#include "answers/schema/schema.h"
#include "base/buf.h"
#include "words.h"

struct schema_row { /* each list ends with NULL */
    const char *schema;
    const char *yes[12], *no[12];
};

struct schema_refusal {
    const char *schema, *path, *says; /* says: a part of the message */
    enum qr_code code;
};

static inline char *quoted(const char *text)
{
    static char out[8][4096];
    static int next;
    char *to = out[next++ % 8];
    cr_assert_lt(strlen(text), sizeof out[0]);
    strcpy(to, text);
    for (char *c = to; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    return to;
}

static inline int build_schema(struct qr_grammar **out, const struct qr_vocab *v, const struct qr_json *schema, const struct qr_schema_options *options,
                               struct qr_err *err)
{
    struct qr_exprs *x = qr_exprs_new((size_t)32 << 20);
    int32_t root = 0;
    const int rc = qr_schema_build(&root, x, schema, options, err);
    if (rc == 0)
        return qr_grammar_new(out, x, root, v, 0, err);
    qr_exprs_free(x);
    return rc;
}

static inline int compile_schema(struct qr_grammar **out, const struct words *w, const char *text, const struct qr_schema_options *options,
                                 struct qr_err *err)
{
    struct qr_json *schema;
    cr_assert_eq(qr_json_parse(&schema, text, strlen(text), &qr_json_limits_request, err), 0, "%s\n%s", text, err->msg);
    const int rc = build_schema(out, w->vocab, schema, options, err);
    qr_json_free(schema);
    return rc;
}

static inline void expect_schemas_with(const struct qr_schema_options *options, const struct schema_row *row, int n)
{
    struct words w;
    words_make(&w, NULL);
    for (int k = 0; k < n; k++) {
        struct qr_grammar *g = NULL;
        struct qr_err err = {0};
        const int rc = compile_schema(&g, &w, quoted(row[k].schema), options, &err);
        cr_expect_eq(rc, 0, "%s\n%s: %s", row[k].schema, err.param, err.msg);
        for (int i = 0; rc == 0 && row[k].yes[i]; i++)
            cr_expect(words_match(g, quoted(row[k].yes[i]), strlen(row[k].yes[i])), "%s\nshould take: %s", row[k].schema, row[k].yes[i]);
        for (int i = 0; rc == 0 && row[k].no[i]; i++)
            cr_expect(!words_match(g, quoted(row[k].no[i]), strlen(row[k].no[i])), "%s\nshould refuse: %s", row[k].schema, row[k].no[i]);
        qr_grammar_unref(g);
    }
    words_free(&w);
}

static inline void expect_refusals(const struct qr_schema_options *options, const struct schema_refusal *row, int n)
{
    struct words w;
    words_make(&w, NULL);
    for (int k = 0; k < n; k++) {
        struct qr_grammar *g = NULL;
        struct qr_err err = {0};
        const int rc = compile_schema(&g, &w, quoted(row[k].schema), options, &err);
        cr_expect_eq(rc, row[k].code, "%s\ncode %d, %s: %s", row[k].schema, rc, err.param, err.msg);
        cr_expect_str_eq(err.param, quoted(row[k].path), "%s\n%s: %s", row[k].schema, err.param, err.msg);
        cr_expect(strstr(err.msg, row[k].says) != NULL, "%s\n%s", row[k].schema, err.msg);
        qr_grammar_unref(g);
    }
    words_free(&w);
}

#define EXPECT_SCHEMAS(...)                                                   \
    do {                                                                      \
        static const struct schema_row rows[] = {__VA_ARGS__};                \
        expect_schemas_with(&(struct qr_schema_options){0}, rows, QR_COUNT(rows)); \
    } while (0)

#define EXPECT_REFUSED(...)                                                   \
    do {                                                                      \
        static const struct schema_refusal rows[] = {__VA_ARGS__};            \
        expect_refusals(&(struct qr_schema_options){0}, rows, QR_COUNT(rows)); \
    } while (0)

#endif
