/* matcher.h - a compiled grammar, and how far one answer has come in it.
 *
 * A grammar is a finished pool of expressions, a root, and a *memo*: states (sets of expressions), their transitions and masks, made
 * when they are first needed, in memory that was reserved when the grammar was made. A matcher is the number of a state: to copy it, or
 * to go back, copy the number. When the memo is full, what no matcher needs is dropped.
 *
 * The memo belongs to one thread at a time: all matchers of a grammar are used by the same thread, or one after the other.
 * No clock, no allocation: what is allowed depends on the grammar and the bytes alone.
 */
#ifndef QR_ANSWERS_GRAMMAR_MATCHER_H
#define QR_ANSWERS_GRAMMAR_MATCHER_H

#include "answers/grammar/expr.h"
#include "answers/grammar/vocab.h"

struct qr_grammar; /* opaque, counted */

/* Takes x over, also after an error. v is borrowed and outlives the grammar. memo_bytes: at most, for states and masks; 0: 8 MiB.
 * Errors: those of qr_exprs_finish; QR_E_INVALID where the root matches nothing, QR_E_TOO_LARGE where the first mask is past the
 * bounds of work. */
int qr_grammar_new(struct qr_grammar **out, struct qr_exprs *x, int32_t root, const struct qr_vocab *v, size_t memo_bytes, struct qr_err *err);
struct qr_grammar *qr_grammar_ref(struct qr_grammar *g);
void qr_grammar_unref(struct qr_grammar *g); /* NULL is fine */
bool qr_grammar_is_shared(const struct qr_grammar *g); /* there is more than one reference; any thread */
size_t qr_grammar_bytes(const struct qr_grammar *g); /* the most that it will take */

struct qr_matcher {
    struct qr_grammar *grammar;    /* owned, counted; NULL: released */
    struct qr_matcher *next, **at; /* the grammar's list */
    int32_t state;
};

/* At the beginning of the text. The matcher must not move in memory until released. */
void qr_matcher_init(struct qr_matcher *m, struct qr_grammar *g);
void qr_matcher_copy(struct qr_matcher *m, const struct qr_matcher *from);
void qr_matcher_release(struct qr_matcher *m); /* also of a zeroed one */

/* Bytes are read; false, and nothing has changed, where the text cannot go on so. *n_ok (may be NULL): how many of them could. A failed
 * memo (below) is false, too. */
bool qr_matcher_bytes(struct qr_matcher *m, const char *bytes, size_t len, size_t *n_ok);
bool qr_matcher_token(struct qr_matcher *m, int32_t id); /* an end token: whether the text may end here */

bool qr_matcher_accepts(const struct qr_matcher *m); /* the text may end here */
bool qr_matcher_done(const struct qr_matcher *m);    /* nothing is left of the grammar: the text can only end */

/* Bit i of mask (QR_MASK_WORDS words) says whether token i may come next. Where the text may end, end tokens may. Errors: QR_E_TOO_LARGE
 * where what the grammar needs here is past the memo or the bound of work. */
int qr_matcher_mask(struct qr_matcher *m, uint32_t *mask, struct qr_err *err);

/* Fewest bytes that complete the text: appended to out (room for `room`); -1 where they are more. For tests and for steering to an end. */
int32_t qr_matcher_shortest(struct qr_matcher *m, char *out, int32_t room);

struct qr_grammar_stats { int32_t n_states, n_masks, n_collected; int64_t n_nodes_walked; size_t memo_used; };
void qr_grammar_stats(const struct qr_grammar *g, struct qr_grammar_stats *out);

#endif
