/* history.h - where a text of token ids has said the same before, and what followed there. The text lies elsewhere; this is an index of its n-grams: the hash
 * of QR_GRAM ids leads to the latest place behind them, and from each place a link leads to an earlier one. A look-up compares a bounded number of places,
 * so its cost has a bound that no text moves. A place counts when the text there was compared: a link that is out of date costs a try, no more.
 *
 * Suffix trees find the same matches. Their nodes come and go one by one, an old text has to be taken out again, and their bytes depend on the text. A ring
 * of n-grams has a size that is known at start, forgets by being written over, and takes a bounded number of ids per step. One owning thread.
 */
#ifndef QR_ENGINE_DRAFT_HISTORY_H
#define QR_ENGINE_DRAFT_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"

#define QR_GRAM 3          /* ids that are looked up: no match is shorter */
#define QR_MATCH_MAX 32    /* ids of a match that count; longer ones are equally long */
#define QR_PLACES_MAX 8    /* equally long matches that are asked what follows */
#define QR_OWNED_IDS 64    /* ids with one owner */

/* A text: the id of place p is id[p & mask]. Ids are >= 0; -1 ends a text that is one of several. */
struct qr_text {
    const int32_t *id;              /* borrowed */
    uint32_t mask;                  /* UINT32_MAX: places are indices */
    uint32_t end;                   /* places before it hold ids */
    uint32_t wall;                  /* what follows a place before it ends there, as with -1; 0: nowhere */
    const struct qr_hash128 *owner; /* borrowed [(mask + 1) / QR_OWNED_IDS]: whose the ids are; NULL: all are the asker's */
};

struct qr_history {
    uint32_t window;                /* a power of two: places that have links, the latest */
    uint32_t *newest, *earlier;     /* owned [window]; 0: none */
};

/* Where ids behind a place are likely to follow: at[0..n) places, latest first, before which n_equal ids are those that were looked up. */
struct qr_match {
    int32_t n_equal, n;
    uint32_t at[QR_PLACES_MAX];
};

int64_t qr_history_bytes(uint32_t window);
void qr_history_init(struct qr_history *h, uint32_t window);
void qr_history_release(struct qr_history *h);

/* The place enters the index by the QR_GRAM ids before it. seed: texts with different ones do not meet. */
void qr_history_note(struct qr_history *h, const struct qr_text *t, uint32_t place, uint64_t seed);

/* How many of the ids before `last` stand before the place, too: at most QR_MATCH_MAX, and n. */
int32_t qr_history_equal(const struct qr_text *t, uint32_t place, const int32_t *last, uint32_t n);

/* The longest matches of the n ids before `last`; m->n 0: there are none. owner: the asker, where the text has owners. */
void qr_history_find(const struct qr_history *h, const struct qr_text *t, const int32_t *last, uint32_t n, uint64_t seed, const struct qr_hash128 *owner,
                     struct qr_match *m);

/* What follows: each time the id that most places go on with which agreed so far, and the share that does; where there is no most, the latest place's.
 * Behind the text's end come the guesses again: a text that goes in circles goes on so. Returns how many ids, at most n_max. */
int32_t qr_history_follow(const struct qr_text *t, const struct qr_match *m, int32_t *ids, float *share, int32_t n_max);

#endif
