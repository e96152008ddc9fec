/* odds.h - how likely a guess is right: by where it comes from and how many ids matched before it, learnt from all sequences; and how much better or worse
 * the guesses for one sequence fare. Pure; engine thread.
 */
#ifndef QR_ENGINE_DRAFT_ODDS_H
#define QR_ENGINE_DRAFT_ODDS_H

#include <stdbool.h>
#include <stdint.h>

enum qr_guess {
    QR_GUESS_PREDICTION, /* the client's text */
    QR_GUESS_OWN,        /* prompt and output */
    QR_GUESS_NEAR,       /* near where a long match broke off, with fewer ids than a match has */
    QR_GUESS_STORE,      /* another answer */
    QR_GUESSES
};
#define QR_ODDS_LENGTHS 7 /* matches of 1, 2, 3, 4-5, 6-8, 9-15 and more ids */

struct qr_odds {
    struct {
        float p, n;       /* share of guesses that were right, of n lately */
    } of[QR_GUESSES][QR_ODDS_LENGTHS];
};
void qr_odds_init(struct qr_odds *o);
float qr_odds_get(const struct qr_odds *o, enum qr_guess guess, int32_t n_equal);
void qr_odds_learn(struct qr_odds *o, enum qr_guess guess, int32_t n_equal, bool right);

/* One sequence's guesses, lately: how many were right, and how many were expected to be. All zero: none yet. */
struct qr_luck {
    float right, hoped;
};
float qr_luck_factor(const struct qr_luck *l); /* of the odds, for this sequence */
void qr_luck_learn(struct qr_luck *l, float p, bool right);

#endif
