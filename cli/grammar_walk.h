/* grammar_walk.h - texts of a grammar at random, for checks by other programs: tokens that the masks allow, then the shortest end.
 *
 * A text depends on the grammar, the vocabulary, the seed alone. One thread.
 */
#ifndef QR_CLI_GRAMMAR_WALK_H
#define QR_CLI_GRAMMAR_WALK_H

#include "answers/grammar/matcher.h"
#include "base/buf.h"

#define QR_WALK_TOKENS_MAX 512

struct qr_walk {
    const struct qr_vocab *vocab; /* borrowed */
    uint32_t *mask;               /* borrowed [QR_MASK_WORDS] */
    int32_t byte_token[256];      /* the token that is this byte alone; -1: there is none */
};

/* vocab and mask are borrowed. */
void qr_walk_init(struct qr_walk *w, const struct qr_vocab *vocab, uint32_t *mask);

/* The text of a seed, appended to out. Errors: those of qr_matcher_mask; QR_E_TOO_LARGE where the shortest end is too long for a
 * walk; QR_E_INTERNAL where the matcher breaks a promise (an empty mask, a token of the mask that is refused, an end that is none). */
int qr_walk_text(struct qr_walk *w, struct qr_buf *out, struct qr_grammar *g, uint64_t seed, struct qr_err *err);

#endif
