/* back_optim.c - the optimizer's step and the norm: plain loops of single IEEE operations that the compiler turns into the level's vectors; each
 * element's bits are those of ref. */
#include <math.h>

#include "base/assert.h"
#include "base/half.h"
#include "kernels/cpu/isa/back.h"
#include "kernels/cpu/pool.h"

#define ITEM 16384  /* parameters of an item of work */
#define LANES 16    /* counters of the generator at once */
#define BLOCK 128   /* parameters that they serve: eight each */

struct adam {
    const struct qr_adamw_args *a;
    float keep, take1, beta2, take2, rate, root2, eps, gscale;
    int64_t skip; /* parameters before the first multiple of BLOCK */
};

/* Philox4x32-10 (base/rng.h) at LANES positions from pos on; words[w][lane]. */
static void draw(uint32_t words[4][LANES], uint64_t seed, uint64_t stream, uint64_t pos)
{
    uint32_t c0[LANES], c1[LANES], c2[LANES], c3[LANES], k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < LANES; i++) {
        c0[i] = (uint32_t)(pos + (uint64_t)i);
        c1[i] = (uint32_t)((pos + (uint64_t)i) >> 32);
        c2[i] = (uint32_t)stream;
        c3[i] = (uint32_t)(stream >> 32);
    }
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (int i = 0; i < LANES; i++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * c0[i], p1 = (uint64_t)0xCD9E8D57u * c2[i];
            c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            c1[i] = (uint32_t)p1;
            c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c3[i] = (uint32_t)p0;
        }
    for (int i = 0; i < LANES; i++) {
        words[0][i] = c0[i];
        words[1][i] = c1[i];
        words[2][i] = c2[i];
        words[3][i] = c3[i];
    }
}

static uint16_t round_by_chance(float x, uint32_t r)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (u & 0x7f800000u) == 0x7f800000u ? qr_f32_to_bf16(x) : (uint16_t)((u + r) >> 16);
}

static void move(const struct adam *s, int64_t begin, int64_t n)
{
    float *restrict w = s->a->w + begin, *restrict m = s->a->m + begin, *restrict v = s->a->v + begin;
    const float *restrict grad = s->a->g + begin;
    const float keep = s->keep, take1 = s->take1, beta2 = s->beta2, take2 = s->take2, rate = s->rate, root2 = s->root2, eps = s->eps, gscale = s->gscale;
    for (int64_t i = 0; i < n; i++) {
        const float g = grad[i] * gscale, kept = w[i] * keep;
        const float mi = m[i] + take1 * (g - m[i]), vi = beta2 * v[i] + take2 * (g * g);
        m[i] = mi;
        v[i] = vi;
        w[i] = kept - rate * mi / (sqrtf(vi) / root2 + eps);
    }
}

/* Parameters [begin, end) that share a block of random bits. */
static void round_block(const struct adam *s, int64_t begin, int64_t end)
{
    const struct qr_adamw_args *a = s->a;
    const int64_t block = (a->first + begin) / BLOCK * BLOCK;
    uint32_t words[4][LANES];
    draw(words, a->seed, (uint64_t)a->step, (uint64_t)block / 8);
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = a->first + i - block;
        a->half[i] = round_by_chance(a->w[i], words[at % 8 / 2][at / 8] >> (at % 2 * 16) & 0xffffu);
    }
}

/* Items begin at multiples of BLOCK among all parameters, so that no block is drawn twice. */
static void adam_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct adam *s = arg;
    const int64_t from = (int64_t)item * ITEM - s->skip, begin = from > 0 ? from : 0, end = from + ITEM < s->a->n ? from + ITEM : s->a->n;
    move(s, begin, end - begin);
    for (int64_t i = begin; s->a->half && i < end;) {
        const int64_t next = i + BLOCK - (s->a->first + i) % BLOCK, stop = next < end ? next : end;
        round_block(s, i, stop);
        i = stop;
    }
}

void QR_ISA_NAME(adamw)(struct qr_queue *q, const struct qr_adamw_args *a)
{
    QR_ASSERT(a != NULL && a->w != NULL && a->m != NULL && a->v != NULL && a->g != NULL);
    QR_ASSERT(a->n >= 0 && a->first >= 0 && a->step >= 1);
    const struct adam s = {.a = a, .keep = (float)(1 - a->lr * a->decay), .take1 = (float)(1 - a->beta1), .beta2 = (float)a->beta2,
                           .take2 = (float)(1 - a->beta2), .rate = (float)(a->lr / (1 - pow(a->beta1, (double)a->step))),
                           .root2 = (float)sqrt(1 - pow(a->beta2, (double)a->step)), .eps = (float)a->eps, .gscale = (float)a->gscale,
                           .skip = a->first % BLOCK};
    qr_queue_run(q, adam_item, &s, (a->n + s.skip + ITEM - 1) / ITEM);
}

static void sum_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct qr_sum_squares_args *a = arg;
    const float *x = a->x + (int64_t)item * QR_SUM_LEAF;
    const int64_t left = a->n - (int64_t)item * QR_SUM_LEAF, n = left < QR_SUM_LEAF ? left : QR_SUM_LEAF;
    double chain[16] = {0};
    for (int64_t i = 0; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++)
            chain[j] += (double)x[i + j] * (double)x[i + j];
    for (int64_t i = n / 16 * 16; i < n; i++)
        chain[i % 16] += (double)x[i] * (double)x[i];
    for (int step = 8; step > 0; step /= 2)
        for (int j = 0; j < step; j++)
            chain[j] += chain[j + step];
    a->leaf[item] = chain[0];
}

void QR_ISA_NAME(sum_squares)(struct qr_queue *q, const struct qr_sum_squares_args *a)
{
    QR_ASSERT(a != NULL && a->sum != NULL);
    QR_ASSERT(a->n >= 0 && (a->n == 0 || (a->x != NULL && a->leaf != NULL)));
    const int64_t n_leaves = qr_sum_leaves(a->n);
    qr_queue_run(q, sum_item, a, n_leaves);
    *a->sum = qr_sum_tree(a->leaf, n_leaves);
}
