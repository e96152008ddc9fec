/* vocab.h - a vocabulary as a matcher sees it: all tokens' bytes as one tree, and masks that are ready.
 *
 * The tree is an array of nodes in depth-first order, so that a walk is one pass, and a subtree is left out by one addition. Special
 * tokens stand in it as expr.h spells them; tokens without bytes, with the byte 0xFF, and end tokens, do not. Immutable once made: any thread.
 */
#ifndef QR_ANSWERS_GRAMMAR_VOCAB_H
#define QR_ANSWERS_GRAMMAR_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tokenizer/tokenizer.h"

struct qr_vocab; /* opaque */

#define QR_MASK_WORDS(n_vocab) (((size_t)(n_vocab) + 31) / 32)

/* n_vocab: of the model's logits, at least the tokenizer's. end: ids that may end an answer [n_end]. t is borrowed and outlives
 * it. NULL without memory. */
struct qr_vocab *qr_vocab_new(const struct qr_tokenizer *t, int32_t n_vocab, const int32_t *end, int32_t n_end);
/* The same of tokens given as bytes, for tests: token i is bytes[i][0..len[i]), special where special[i]. */
struct qr_vocab *qr_vocab_of(const char *const *bytes, const size_t *len, const bool *special, int32_t n_vocab, const int32_t *end, int32_t n_end);
void qr_vocab_free(struct qr_vocab *v); /* NULL is fine */

int32_t qr_vocab_size(const struct qr_vocab *v);
size_t qr_vocab_bytes(const struct qr_vocab *v); /* of memory */

/* A token's bytes as the tree has them; len 0: none (an end token, or one without bytes). */
const char *qr_vocab_token(const struct qr_vocab *v, int32_t id, size_t *len);
bool qr_vocab_is_end(const struct qr_vocab *v, int32_t id);

/* The special token with this text, e.g. "<tool_call>"; -1: there is none. */
int32_t qr_vocab_special(const struct qr_vocab *v, const char *text, size_t len);

#endif
