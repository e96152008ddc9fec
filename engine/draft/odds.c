#include "engine/draft/odds.h"

#include "base/assert.h"

#define TRUST 8      /* what was assumed counts as so many guesses, */
#define MEMORY 128   /* and what was learnt as no more than these */
#define LUCK_TRUST 0.5f
#define LUCK_DECAY 0.95f

void qr_odds_init(struct qr_odds *o)
{
    static const float assumed[QR_GUESSES][QR_ODDS_LENGTHS] = {
        [QR_GUESS_PREDICTION] = {0.4f, 0.5f, 0.6f, 0.7f, 0.8f, 0.85f, 0.9f},
        [QR_GUESS_OWN] = {0.2f, 0.3f, 0.4f, 0.5f, 0.65f, 0.8f, 0.9f},
        [QR_GUESS_NEAR] = {0.4f, 0.5f, 0.6f, 0.7f, 0.8f, 0.85f, 0.9f},
        [QR_GUESS_STORE] = {0.2f, 0.25f, 0.3f, 0.4f, 0.55f, 0.7f, 0.85f},
    };
    QR_ASSERT(o != NULL);
    for (int g = 0; g < QR_GUESSES; g++)
        for (int i = 0; i < QR_ODDS_LENGTHS; i++) {
            o->of[g][i].p = assumed[g][i];
            o->of[g][i].n = TRUST;
        }
}

static int32_t length_class(int32_t n_equal)
{
    static const int32_t most[QR_ODDS_LENGTHS - 1] = {1, 2, 3, 5, 8, 15};
    int32_t i = 0;
    while (i < QR_ODDS_LENGTHS - 1 && n_equal > most[i])
        i++;
    return i;
}

float qr_odds_get(const struct qr_odds *o, enum qr_guess guess, int32_t n_equal)
{
    QR_ASSERT(o != NULL);
    QR_ASSERT(guess < QR_GUESSES && n_equal >= 0);
    return o->of[guess][length_class(n_equal)].p;
}

void qr_odds_learn(struct qr_odds *o, enum qr_guess guess, int32_t n_equal, bool right)
{
    QR_ASSERT(o != NULL);
    QR_ASSERT(guess < QR_GUESSES && n_equal >= 0);
    float *p = &o->of[guess][length_class(n_equal)].p, *n = &o->of[guess][length_class(n_equal)].n;
    *n = *n < MEMORY ? *n + 1 : MEMORY;
    *p += ((right ? 1.0f : 0.0f) - *p) / *n;
}

float qr_luck_factor(const struct qr_luck *l)
{
    QR_ASSERT(l != NULL);
    QR_ASSERT(l->right >= 0 && l->hoped >= 0);
    return (l->right + LUCK_TRUST) / (l->hoped + LUCK_TRUST);
}

void qr_luck_learn(struct qr_luck *l, float p, bool right)
{
    QR_ASSERT(l != NULL);
    QR_ASSERT(p >= 0 && p <= 1);
    l->right = l->right * LUCK_DECAY + (right ? 1.0f : 0.0f);
    l->hoped = l->hoped * LUCK_DECAY + p;
}
