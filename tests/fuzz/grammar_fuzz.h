/* grammar_fuzz.h - what is done with a grammar that was made of arbitrary bytes. */
#ifndef QR_TESTS_FUZZ_GRAMMAR_FUZZ_H
#define QR_TESTS_FUZZ_GRAMMAR_FUZZ_H

#include <string.h>

#include "answers/grammar/matcher.h"
#include "answers/grammar/syntax.h"
#include "base/assert.h"

/* Every byte, and an end token. */
static inline struct qr_vocab *grammar_vocab(void)
{
    static char byte[256];
    static const char *text[257];
    static size_t len[257];
    const int32_t end = 256;
    for (int i = 0; i < 256; i++) {
        byte[i] = (char)i;
        text[i] = &byte[i];
        len[i] = 1;
    }
    text[end] = "";
    return qr_vocab_of(text, len, NULL, 257, &end, 1);
}

/* The shortest text that the matcher says completes a text does so. */
static inline void grammar_walk(struct qr_grammar *g)
{
    static const char *const texts[] = {"", "a", "{\"a\": [1, -2.5e3, \"\\u00e4\\n\"]}", "((1+2)*3)",
        "\xC3\xA4\xF0\x9F\x98\x80", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\xFF\xFF\x80"};
    char rest[256];
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct qr_matcher m = {0};
        size_t n_ok = 0;
        qr_matcher_init(&m, g);
        if (!qr_matcher_bytes(&m, texts[i], strlen(texts[i]), &n_ok))
            QR_ASSERT(n_ok <= strlen(texts[i]));
        const int32_t n = qr_matcher_shortest(&m, rest, sizeof rest);
        if (n >= 0 && qr_matcher_bytes(&m, rest, (size_t)n, NULL))
            QR_ASSERT(qr_matcher_accepts(&m));
        qr_matcher_release(&m);
    }
}

/* Takes x over. */
static inline void grammar_use(struct qr_exprs *x, int rc, int32_t root, const struct qr_err *parsed)
{
    struct qr_err err = {0};
    struct qr_grammar *g;
    if (rc != 0) {
        QR_ASSERT(parsed->msg[0] != 0 && rc == (int)parsed->code);
        QR_ASSERT(rc == QR_E_INVALID || rc == QR_E_UNSUPPORTED || rc == QR_E_TOO_LARGE);
        qr_exprs_free(x);
        return;
    }
    struct qr_vocab *v = grammar_vocab();
    if (qr_grammar_new(&g, x, root, v, 1 << 20, &err) == 0) {
        grammar_walk(g);
        qr_grammar_unref(g);
    } else {
        QR_ASSERT(err.msg[0] != 0);
    }
    qr_vocab_free(v);
}

#endif
