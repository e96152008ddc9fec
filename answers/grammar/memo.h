/* memo.h - the inside of a grammar (matcher.h): states, found by the expressions that they are a set of, with what is known of them.
 * All arrays were made with the grammar; what is in them can be dropped and made again at any time.
 */
#ifndef QR_ANSWERS_GRAMMAR_MEMO_H
#define QR_ANSWERS_GRAMMAR_MEMO_H

#include <stdatomic.h>

#include "answers/grammar/exprs.h"
#include "answers/grammar/matcher.h"
#include "answers/grammar/tree.h"

#define QR_STATE_DEAD 0
#define QR_PLAIN_ALL INT32_MAX
#define QR_PARTS_MAX 4096        /* expressions of one state */

struct qr_state {
    int32_t at, n;      /* its expressions: id[at..at + n), ascending */
    int32_t row;        /* of transitions, -1: none yet */
    int32_t mask;       /* where its mask is kept, -1: nowhere */
    int32_t walk;       /* the state with clamped counts from which tokens are walked, -1: not known yet */
    int32_t plain;      /* any plain token is allowed (QR_PLAIN_ALL); of plain tokens those of at most so many characters and no other; 0: walk */
    bool accepts, done, free; /* the text may end; and only end; any text may follow */
    bool loops;         /* a plain character leads back to this state */
    bool kept;          /* by a collection */
};

struct qr_grammar {
    _Atomic int32_t refs;
    struct qr_exprs *x;            /* owned */
    const struct qr_vocab *v;      /* borrowed */
    struct qr_matcher *matchers;
    int32_t start;
    void *block;                   /* owned: all of the following */
    size_t n_block;
    struct qr_state *state;        /* [cap_states] */
    int32_t *slot;                 /* [2 cap_states]: hash table of states */
    int32_t *id;                   /* [cap_ids] */
    int32_t *row;                  /* [cap_rows] */
    uint32_t *word;                /* [cap_words]: masks; a mask begins with its number of ids, or with all ones where words follow */
    int32_t *part;                 /* [QR_PARTS_MAX]: the state that is being made */
    uint8_t *keep;                 /* [cap_nodes] */
    int32_t *renumber;             /* [cap_nodes] */
    int32_t n_states, cap_states, n_ids, cap_ids, n_row, cap_rows, n_words, cap_words, n_part, cap_nodes;
    bool failed;                   /* the operation at work has passed a bound */
    struct qr_grammar_stats stats;
};

/* memo.c */
bool qr_memo_new(struct qr_grammar *g, size_t bytes);
int32_t qr_memo_next(struct qr_grammar *g, int32_t state, int32_t cls); /* QR_STATE_DEAD also where g->failed becomes true */
int32_t qr_memo_start(struct qr_grammar *g, int32_t root);
int32_t qr_memo_walk_from(struct qr_grammar *g, int32_t state);
/* At the beginning of an operation: room, and a bound of work. */
void qr_memo_begin(struct qr_grammar *g);

/* mask.c: the tokens allowed in a state of qr_memo_walk_from; false where a bound was passed. */
bool qr_mask_fill(struct qr_grammar *g, int32_t state, uint32_t *mask);

#endif
