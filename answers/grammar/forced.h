/* forced.h - what a grammar leaves no choice about: the bytes that must come next, and how a model is likely to cut them into tokens.
 *
 * Bytes are certain: where they are said, every text of the grammar goes on with them. Tokens are guesses, but for qr_forced_only: a vocabulary
 * has many tokens that begin with the same byte. Guesses merge bytes as encoders do. Behind a separator that blanks may follow they
 * repeat what the answer did there last.
 * No clock, no allocation, bounded work; the matcher stays where it is. As matchers: one thread at a time for all of a grammar.
 */
#ifndef QR_ANSWERS_GRAMMAR_FORCED_H
#define QR_ANSWERS_GRAMMAR_FORCED_H

#include "answers/grammar/matcher.h"

#define QR_FORCED_BYTES 256 /* of the longest run */

/* Bytes that must come next, into out [room]; returns their number: 0 where there is a choice, or the text may end. */
int32_t qr_forced_bytes(struct qr_matcher *m, char *out, int32_t room);

/* The only token that qr_matcher_mask would allow; -1: there are more, or it is not seen at once. */
int32_t qr_forced_only(struct qr_matcher *m);

/* Guesses of the next tokens: id [n_max], sure [n_max]; returns their number. output [n_output]: what the answer has said so far. sure: no longer token
 * that the grammar allows begins inside. */
int32_t qr_forced_tokens(struct qr_matcher *m, const int32_t *output, int32_t n_output, int32_t *id, bool *sure, int32_t n_max);

#endif
