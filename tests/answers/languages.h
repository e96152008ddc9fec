/* languages.h - what tests of patterns and grammars share: a grammar from its text, and tables of texts that it takes or refuses. */
#ifndef QR_TESTS_ANSWERS_LANGUAGES_H
#define QR_TESTS_ANSWERS_LANGUAGES_H

#include <criterion/criterion.h>

#include "answers/grammar/syntax.h"
#include "words.h"

enum language { TEXT = QR_REGEX_TEXT, JSON = QR_REGEX_JSON, JSON_WHOLE = QR_REGEX_JSON_WHOLE, GBNF, LARK };

struct row { /* each list ends with NULL */
    const char *grammar;
    const char *yes[9], *no[9];
};

struct refused {
    const char *grammar;
    enum qr_code code;
    const char *says; /* a part of the message */
};

static inline int parse(int32_t *root, struct qr_exprs *x, enum language kind, int flags, const char *text,
    size_t len, const struct qr_vocab *v,
                        struct qr_err *err)
{
    if (kind == GBNF)
        return qr_gbnf_parse(root, x, text, len, v, err);
    if (kind == LARK)
        return qr_lark_parse(root, x, text, len, v, NULL, NULL, err);
    return qr_regex_parse(root, x, text, len, (enum qr_regex_form)kind, flags, err);
}

/* NULL: the language is empty. */
static inline struct qr_grammar *compile(const struct words *w, enum language kind, int flags, const char *text)
{
    struct qr_exprs *x = qr_exprs_new(1 << 24);
    struct qr_grammar *g = NULL;
    struct qr_err err = {0};
    int32_t root = 0;
    int rc = parse(&root, x, kind, flags, text, strlen(text), w->vocab, &err);
    cr_assert_eq(rc, 0, "%s\n%s", text, err.msg);
    rc = qr_grammar_new(&g, x, root, w->vocab, 0, &err);
    cr_assert(rc == 0 || rc == QR_E_INVALID, "%s\n%s", text, err.msg);
    return rc == 0 ? g : NULL;
}

static inline bool takes(struct qr_grammar *g, const char *text)
{
    return g && words_match(g, text, strlen(text));
}

static inline void expect_row(const struct words *w, enum language kind, int flags, const struct row *row)
{
    struct qr_grammar *g = compile(w, kind, flags, row->grammar);
    for (int i = 0; row->yes[i]; i++)
        cr_expect(takes(g, row->yes[i]), "%s\nshould take: %s", row->grammar, row->yes[i]);
    for (int i = 0; row->no[i]; i++)
        cr_expect(!takes(g, row->no[i]), "%s\nshould refuse: %s", row->grammar, row->no[i]);
    qr_grammar_unref(g);
}

static inline void expect_rows(enum language kind, int flags, const struct row *row, int n)
{
    struct words w;
    words_make(&w, NULL);
    for (int i = 0; i < n; i++)
        expect_row(&w, kind, flags, &row[i]);
    words_free(&w);
}

static inline void expect_refused_of(const struct words *w, enum language kind, const struct refused *row, int n)
{
    for (int i = 0; i < n; i++) {
        struct qr_exprs *x = qr_exprs_new(1 << 24);
        struct qr_err err = {0};
        int32_t root = 0;
        const int rc = parse(&root, x, kind, 0, row[i].grammar, strlen(row[i].grammar), w->vocab, &err);
        cr_expect(rc == (int)row[i].code && err.code == row[i].code && strstr(err.msg, row[i].says),
            "%s\ngives %d, \"%s\"; expected %d, \"%s\"",
                  row[i].grammar, rc, err.msg, row[i].code, row[i].says);
        qr_exprs_free(x);
    }
}

static inline void expect_refused(enum language kind, const struct refused *row, int n)
{
    struct words w;
    words_make(&w, NULL);
    expect_refused_of(&w, kind, row, n);
    words_free(&w);
}

/* A vocabulary with special tokens that have names: a b c <x> <y> and the end </s>, numbered in this order. */
static inline struct qr_tokenizer *names_make(struct words *w)
{
    static const char json[] = "{\"added_tokens\":[{\"id\":3,\"content\":\"<x>\",\"special\":true},{\"id\":4,\"content\":\"<y>\",\"special\":true},"
                               "{\"id\":5,\"content\":\"</s>\",\"special\":true}],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                               "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2},\"merges\":[]}}";
    struct qr_tokenizer *t = NULL;
    struct qr_err err = {0};
    const int32_t end = 5;
    const int rc = qr_tokenizer_parse(&t, json, sizeof json - 1, NULL, 0, &err);
    cr_assert_eq(rc, 0, "%s", err.msg);
    *w = (struct words){.vocab = qr_vocab_new(t, 6, &end, 1)};
    return t;
}

#endif
