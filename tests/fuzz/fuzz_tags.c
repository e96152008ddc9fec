/* fuzz_tags - structural tags and choices: an error that names its cause, or a grammar whose first mask allows something. The first byte chooses. */
#include <stdint.h>
#include <string.h>

#include "answers/constraint.h"
#include "base/assert.h"
#include "tests/answers/words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct words w;
    static const char *const word[] = {"<tool", "{\"", "text", NULL};
    struct qr_err err = {0};
    struct qr_grammar *g = NULL;
    if (!w.vocab)
        words_make(&w, word);
    if (n < 1)
        return 0;
    const struct qr_constraint c = {.kind = data[0] & 1 ? QR_CONSTRAINT_TAGS : QR_CONSTRAINT_CHOICE, .text = (const char *)data + 1, .len = n - 1,
                                    .compact = data[0] & 2};
    if (qr_constraint_compile(&g, &c, w.vocab, &err) != 0) {
        QR_ASSERT(err.code == QR_E_INVALID || err.code == QR_E_TOO_LARGE || err.code == QR_E_UNSUPPORTED);
        QR_ASSERT(err.msg[0] != 0 && strlen(err.param) < sizeof err.param);
        return 0;
    }
    uint32_t mask[(256 + WORDS_MAX) / 32 + 1], any = 0;
    struct qr_matcher m = {0};
    qr_matcher_init(&m, g);
    QR_ASSERT(qr_matcher_mask(&m, mask, &err) == 0);
    for (size_t i = 0; i < QR_MASK_WORDS(w.n); i++)
        any |= mask[i];
    QR_ASSERT(any != 0);
    qr_matcher_release(&m);
    qr_grammar_unref(g);
    return 0;
}
