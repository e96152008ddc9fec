#include "engine/pace.h"

#include "base/assert.h"

#define TILE_ROWS 16
#define HALF_TRUST_TOKENS 64 /* a step of so many prompt tokens counts half as much as a large one */

void qr_pace_init(struct qr_pace *p, int64_t goal_us)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(goal_us >= 0);
    *p = (struct qr_pace){.goal_us = (double)goal_us};
}

/* Moves *mean towards v. One step that the machine interrupted must not spoil the estimate, so v counts as at most twice and at least half of it. */
static void blend(double *mean, double v, double weight)
{
    if (*mean <= 0) {
        *mean = v;
        return;
    }
    double least = *mean * 0.5, most = *mean * 2;
    v = v < least ? least : v > most ? most : v;
    *mean += (v - *mean) * weight;
}

void qr_pace_note(struct qr_pace *p, int32_t n_prompt, int32_t n_decode, double us)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(n_prompt >= 0 && n_decode >= 0);
    if (us <= 0)
        return;
    if (n_prompt == 0) {
        blend(&p->decode_us, us, 0.25);
        return;
    }
    double beside = n_decode > 0 ? us - p->decode_us : us, least = us * 0.125;
    double n = n_prompt;
    blend(&p->token_us, (beside > least ? beside : least) / n, 0.5 * n / (n + HALF_TRUST_TOKENS));
}

/* 1 up to two backlogs, one more for each backlog beyond. */
static double stretch(int64_t waiting)
{
    const double n = (double)waiting / QR_PACE_BACKLOG - 1;
    return n < 1 ? 1 : n > QR_PACE_STRETCH_MAX ? QR_PACE_STRETCH_MAX : n;
}

int32_t qr_pace_tokens(const struct qr_pace *p, int32_t n_decode, int64_t waiting)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(n_decode >= 0 && waiting >= 0);
    if (p->goal_us <= 0 || p->token_us <= 0)
        return INT32_MAX;
    double spare = p->goal_us * stretch(waiting) - p->decode_us, least = p->decode_us * 0.5;
    double n = (spare > least ? spare : least) / p->token_us;
    if (n >= 1 << 20)
        return INT32_MAX;
    int32_t tokens = ((int32_t)n + n_decode) / TILE_ROWS * TILE_ROWS - n_decode;
    return tokens > QR_PACE_TOKENS_MIN ? tokens : QR_PACE_TOKENS_MIN;
}
