#include "engine/pace.h"

#include "base/assert.h"

#define TILE_ROWS 16
#define TOKENS_MAX (1 << 20) /* more are no limit */

/* 1 up to two backlogs, one more for each backlog beyond. */
static double stretch(int64_t waiting)
{
    const double n = (double)waiting / QR_PACE_BACKLOG - 1;
    return n < 1 ? 1 : n > QR_PACE_STRETCH_MAX ? QR_PACE_STRETCH_MAX : n;
}

/* A step of so many rows whose contexts are those of `lately`. */
static double step_us(const struct qr_predict *p, const struct qr_step_size *lately, int32_t n_prompt, int32_t n_decode)
{
    const double decode = lately->n_seqs > 0 ? (double)n_decode / lately->n_seqs : 0;
    const double prompt = lately->n_prompt > 0 ? (double)n_prompt / lately->n_prompt : 0;
    const struct qr_step_size size = {n_prompt, n_decode, n_decode, {lately->context[0] * decode, lately->context[1] * prompt}};
    return qr_predict_us(p, &size);
}

/* The most prompt tokens beside n_decode rows, or decode rows where n_decode is -1, of [low, high), for which a step stays within limit_us; low: none. */
static int32_t most_within(const struct qr_predict *p, const struct qr_step_size *lately, int32_t low, int32_t high, int32_t n_decode, double limit_us)
{
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        const double us = n_decode < 0 ? step_us(p, lately, 0, middle) : step_us(p, lately, middle, n_decode);
        *(us <= limit_us ? &low : &high) = middle;
    }
    return low;
}

int32_t qr_pace_tokens(const struct qr_pace *pace, const struct qr_predict *p, const struct qr_step_size *lately, int32_t n_decode, int64_t waiting)
{
    QR_ASSERT(pace != NULL && p != NULL && lately != NULL);
    QR_ASSERT(n_decode >= 0 && waiting >= 0);
    const double alone = step_us(p, lately, 0, n_decode), goal = pace->goal_us * (pace->firm ? 1 : stretch(waiting));
    if (goal <= 0 || step_us(p, lately, 1, n_decode) <= 0)
        return INT32_MAX;
    const int32_t n = most_within(p, lately, 0, TOKENS_MAX, n_decode, goal > alone * 1.5 ? goal : alone * 1.5);
    if (n == TOKENS_MAX - 1)
        return INT32_MAX;
    const int32_t tiled = (n + n_decode) / TILE_ROWS * TILE_ROWS - n_decode, tokens = tiled > 0 ? tiled : n;
    const int32_t least = pace->firm ? 1 : QR_PACE_TOKENS_MIN;
    return tokens > least ? tokens : least;
}

int32_t qr_pace_running(const struct qr_pace *pace, const struct qr_predict *p, const struct qr_step_size *lately, int32_t most)
{
    QR_ASSERT(pace != NULL && p != NULL && lately != NULL);
    QR_ASSERT(most >= 1);
    const double limit = pace->goal_us / 1.5, one = step_us(p, lately, 0, 1);
    if (!pace->firm || pace->goal_us <= 0 || one <= 0 || one > limit)
        return INT32_MAX;
    const int32_t n = most_within(p, lately, 1, most + 1, -1, limit);
    return n < most ? n : INT32_MAX;
}
