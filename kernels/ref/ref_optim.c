/* ref_optim.c - the plain form of what turns gradients into steps: AdamW, Muon's passes, norms (backward.h, ref.h). */
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/rng.h"
#include "kernels/ref/ref.h"

/* Random bits r of 16 added below bf16's last place, and cut: up with probability (what is cut) / 2^16. Infinities and NaN stay. */
static uint16_t round_by_chance(float x, uint32_t r)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (u & 0x7f800000u) == 0x7f800000u ? qr_f32_to_bf16(x) : (uint16_t)((u + r) >> 16);
}

/* w [n], of which number 0 is number `first` of all parameters; half NULL: nothing to do. */
static void round_all(uint16_t *half, const param *w, int64_t n, int64_t first, int64_t step, uint64_t seed)
{
    uint32_t word[4] = {0};
    for (int64_t i = 0; half && i < n; i++) {
        const uint64_t at = (uint64_t)(first + i);
        if (i == 0 || at % 8 == 0)
            qr_rng_words(word, seed, (uint64_t)step, at / 8);
        half[i] = round_by_chance((float)w[i], word[at % 8 / 2] >> (at % 2 * 16) & 0xffffu);
    }
}

void QR_REF(adamw)(struct qr_queue *q, const struct qr_adamw_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->w != NULL && a->m != NULL && a->v != NULL && a->g != NULL);
    QR_ASSERT(a->n >= 0 && a->first >= 0 && a->step >= 1);
    param *w = (param *)a->w, *m = (param *)a->m, *v = (param *)a->v;
    const param keep = (param)(1 - a->lr * a->decay), take1 = (param)(1 - a->beta1), beta2 = (param)a->beta2, take2 = (param)(1 - a->beta2);
    const param rate = (param)(a->lr / (1 - pow(a->beta1, (double)a->step))), root2 = (param)sqrt(1 - pow(a->beta2, (double)a->step));
    const param eps = (param)a->eps, gscale = (param)a->gscale;
    for (int64_t i = 0; i < a->n; i++) {
        const param g = ((param *)a->g)[i] * gscale;
        ((param *)a->g)[i] = a->leave_g ? ((param *)a->g)[i] : 0;
        w[i] = w[i] * keep;
        m[i] = m[i] + take1 * (g - m[i]);
        v[i] = beta2 * v[i] + take2 * (g * g);
        w[i] = w[i] - rate * m[i] / ((param)sqrt((double)v[i]) / root2 + eps);
    }
    round_all(a->half, w, a->n, a->first, a->step, a->seed);
}

void QR_REF(momentum)(struct qr_queue *q, const struct qr_momentum_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->n >= 0);
    QR_ASSERT(a->m != NULL && a->g != NULL && a->out != NULL);
    param *m = (param *)a->m, *grad = (param *)a->g, *out = (param *)a->out;
    const param mu = (param)a->mu, gscale = (param)a->gscale;
    for (int64_t i = 0; i < a->n; i++) {
        const param g = grad[i] * gscale;
        m[i] = mu * m[i] + g;
        out[i] = g + mu * m[i];
        grad[i] = 0;
    }
}

void QR_REF(scale)(struct qr_queue *q, const struct qr_scale_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->n >= 0);
    QR_ASSERT(a->x != NULL && (a->out != NULL || a->half != NULL));
    const param scale = (param)a->scale, half_scale = (param)a->half_scale;
    for (int64_t i = 0; i < a->n; i++) {
        const param x = ((const param *)a->x)[i];
        if (a->half)
            a->half[i] = qr_f32_to_bf16((float)(x * half_scale));
        if (a->out)
            ((param *)a->out)[i] = x * scale;
    }
}

void QR_REF(turn)(struct qr_queue *q, const struct qr_turn_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->x != NULL && (a->out != NULL || a->half != NULL));
    QR_ASSERT(a->n_rows >= 0 && a->n_cols >= 0);
    for (int64_t r = 0; r < a->n_rows; r++)
        for (int64_t c = 0; c < a->n_cols; c++) {
            const param x = ((const param *)a->x)[r * a->n_cols + c];
            if (a->half)
                a->half[c * a->n_rows + r] = qr_f32_to_bf16((float)x);
            if (a->out)
                ((param *)a->out)[c * a->n_rows + r] = x;
        }
}

void QR_REF(move_by)(struct qr_queue *q, const struct qr_move_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->w != NULL && a->u != NULL);
    QR_ASSERT(a->n >= 0 && a->first >= 0 && a->step >= 1);
    param *w = (param *)a->w;
    const param keep = (param)a->keep, rate = (param)a->rate;
    for (int64_t i = 0; i < a->n; i++)
        w[i] = w[i] * keep - rate * ((const param *)a->u)[i];
    round_all(a->half, w, a->n, a->first, a->step, a->seed);
}

static double leaf_sum(const param *x, int64_t n)
{
    double chain[16] = {0};
    for (int64_t i = 0; i < n; i++)
        chain[i % 16] += (double)x[i] * (double)x[i];
    for (int step = 8; step > 0; step /= 2)
        for (int j = 0; j < step; j++)
            chain[j] += chain[j + step];
    return chain[0];
}

void QR_REF(sum_squares)(struct qr_queue *q, const struct qr_sum_squares_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL);
    QR_ASSERT(a->n >= 0 && (a->n == 0 || (a->x != NULL && a->leaf != NULL)));
    const int64_t n_leaves = qr_sum_leaves(a->n);
    for (int64_t l = 0; l < n_leaves; l++) {
        int64_t left = a->n - l * QR_SUM_LEAF;
        a->leaf[l] = leaf_sum((const param *)a->x + l * QR_SUM_LEAF, left < QR_SUM_LEAF ? left : QR_SUM_LEAF);
    }
    if (a->sum)
        *a->sum = qr_sum_tree(a->leaf, n_leaves);
}
