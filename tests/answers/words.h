/* words.h - small vocabularies for the tests of grammars. */
#ifndef QR_TESTS_ANSWERS_WORDS_H
#define QR_TESTS_ANSWERS_WORDS_H

#include <string.h>

#include "answers/grammar/matcher.h"
#include "base/assert.h"

/* Every byte, then the words given (ended by NULL), then two special tokens, and the end token, which is last. */
#define WORDS_MAX 128
struct words {
    char byte[256];
    const char *text[256 + WORDS_MAX];
    size_t len[256 + WORDS_MAX];
    bool special[256 + WORDS_MAX];
    int32_t n, first_special, end;
    struct qr_vocab *vocab; /* owned */
};

static inline void words_make(struct words *w, const char *const *word)
{
    *w = (struct words){0};
    for (int i = 0; i < 256; i++, w->n++) {
        w->byte[i] = (char)i;
        w->text[i] = &w->byte[i];
        w->len[i] = 1;
    }
    for (; word && *word; word++, w->n++) {
        QR_ASSERT(w->n < 256 + WORDS_MAX - 3);
        w->text[w->n] = *word;
        w->len[w->n] = strlen(*word);
    }
    w->first_special = w->n;
    for (int i = 0; i < 2; i++, w->n++) {
        w->text[w->n] = "<special>";
        w->len[w->n] = 9;
        w->special[w->n] = true;
    }
    w->end = w->n++;
    w->text[w->end] = "";
    w->vocab = qr_vocab_of(w->text, w->len, w->special, w->n, &w->end, 1);
}

static inline void words_free(struct words *w)
{
    qr_vocab_free(w->vocab);
}

/* Whether the whole text is in the grammar. */
static inline bool words_match(struct qr_grammar *g, const char *text, size_t len)
{
    struct qr_matcher m = {0};
    qr_matcher_init(&m, g);
    const bool whole = qr_matcher_bytes(&m, text, len, NULL) && qr_matcher_accepts(&m);
    qr_matcher_release(&m);
    return whole;
}

#endif
