/* optim.c - the optimizer's step and the norm: plain loops of single IEEE operations that the compiler turns into the level's
 * vectors, so each element has ref's bits. Only the generator is written in vectors by hand, as compilers make slow code of its
 * 64-bit products. Items are runs of parameters; a worker writes those of its item alone. Sums are of leaves of a fixed size, joined
 * in a fixed tree, so their bits do not depend on threads. */
#include <math.h>

#include "base/assert.h"
#include "base/half.h"
#include "kernels/cpu/isa/backward/back.h"
#include "kernels/cpu/isa/quant/vectors.h"
#include "kernels/cpu/pool.h"

#define ITEM 16384  /* parameters of an item of work */
#define BLOCK 128   /* parameters whose random bits are drawn at once: eight from each of 16 counters */
#define SUM_LEAVES 8 /* leaves of an item of work */
#define AHEAD 1024   /* numbers by which reading is ahead of computing: the processor's own guess leaves a third of it */
#define N_COUNTERS (BLOCK / 8)

struct adam {
    const struct qr_adamw_args *a;
    float keep, take1, beta2, take2, rate, root2, eps, gscale;
    int64_t skip; /* parameters before the first multiple of BLOCK */
};

#define LANES (VI_BYTES / 8) /* of 64 bits, of which products take the lower halves */

/* Philox4x32-10 (base/rng.h) at LANES positions from pos on, a counter's four words one behind the other, so that number i of the block finds its 16
 * bits at i. Even lanes hold the first half of the positions: then the two halves of the words interleave without a permutation. Upper halves of
 * lanes hold what earlier products left; only the last step looks away from them. */
static inline void draw(uint16_t *out, uint64_t seed, uint64_t stream, uint64_t pos)
{
    static const uint64_t lane[8] = {0, LANES / 2, 1, LANES / 2 + 1, 2, LANES / 2 + 2, 3, LANES / 2 + 3};
    const vi m0 = VI_SET1_64(0xD2511F53), m1 = VI_SET1_64(0xCD9E8D57), low = VI_SET1_64(0xffffffff);
    vi c0 = VI(add_epi64)(VI_SET1_64((long long)pos), VI_LOAD(lane)), c1 = VI(srli_epi64)(c0, 32);
    vi c2 = VI_SET1_64((long long)stream), c3 = VI_SET1_64((long long)(stream >> 32));
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        const vi p0 = VI(mul_epu32)(c0, m0), p1 = VI(mul_epu32)(c2, m1);
        c0 = VI_XOR(VI_XOR(VI(srli_epi64)(p1, 32), c1), VI_SET1_64((long long)k0));
        c2 = VI_XOR(VI_XOR(VI(srli_epi64)(p0, 32), c3), VI_SET1_64((long long)k1));
        c1 = p1;
        c3 = p0;
    }
    const vi first = VI_OR(VI_AND(c0, low), VI(slli_epi64)(c1, 32)), second = VI_OR(VI_AND(c2, low), VI(slli_epi64)(c3, 32));
    VI_STORE(out, VI(unpacklo_epi64)(first, second));
    VI_STORE(out + 4 * LANES, VI(unpackhi_epi64)(first, second));
}

/* Up with the probability of what is cut; infinities stay, NaN stays one. */
static inline uint16_t round_by_chance(float x, uint32_t r)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    const uint32_t special = (u >> 16) | ((u & 0x7fffffffu) > 0x7f800000u ? 0x40u : 0u), usual = (u + r) >> 16;
    return (uint16_t)((u & 0x7f800000u) == 0x7f800000u ? special : usual);
}

VF_FN void move(const struct adam *s, int64_t begin, int64_t n, const bool leave_g)
{
    float *restrict w = s->a->w + begin, *restrict m = s->a->m + begin, *restrict v = s->a->v + begin;
    float *restrict grad = s->a->g + begin;
    const float keep = s->keep, take1 = s->take1, beta2 = s->beta2, take2 = s->take2, rate = s->rate, root2 = s->root2, eps = s->eps, gscale = s->gscale;
    for (int64_t i = 0; i < n; i++) {
        const float g = grad[i] * gscale, kept = w[i] * keep;
        const float moment = m[i] + take1 * (g - m[i]), square = beta2 * v[i] + take2 * (g * g);
        m[i] = moment;
        v[i] = square;
        w[i] = kept - rate * moment / (sqrtf(square) / root2 + eps);
        if (!leave_g)
            grad[i] = 0;
    }
}

/* What becomes bf16 by chance: w[0] is number `first` of all parameters. */
struct chance {
    const float *w;
    uint16_t *half;
    int64_t first, step;
    uint64_t seed;
};

/* Parameters [begin, begin + n) that share a block of random bits. */
static inline void round_block(const struct chance *c, int64_t begin, int64_t n)
{
    const int64_t at = (c->first + begin) % BLOCK, block = c->first + begin - at;
    uint16_t bits[BLOCK] QR_UNINITIALIZED;
    for (int i = 0; i < N_COUNTERS; i += LANES)
        draw(bits + 8 * i, c->seed, (uint64_t)c->step, (uint64_t)(block / 8 + i));
    const float *restrict w = c->w + begin;
    uint16_t *restrict half = c->half + begin;
    if (n == BLOCK && (uintptr_t)half % sizeof(vi) == 0) { /* whole lines, past the caches: they would be read first otherwise */
        _Alignas(64) uint16_t done[BLOCK] QR_UNINITIALIZED;
        for (int64_t i = 0; i < BLOCK; i++)
            done[i] = round_by_chance(w[i], bits[i]);
        for (int64_t i = 0; i < BLOCK; i += (int64_t)(sizeof(vi) / 2))
            VI_STREAM(half + i, VI_LOAD(done + i));
        return;
    }
    for (int64_t i = 0; i < n; i++)
        half[i] = round_by_chance(w[i], bits[at + i]);
}

/* A block of all that is read. */
VF_FN void prefetch_block(const struct qr_adamw_args *a, int64_t i)
{
    for (int64_t end = i + BLOCK; i < end; i += 16) {
        __builtin_prefetch(a->w + i);
        __builtin_prefetch(a->m + i);
        __builtin_prefetch(a->v + i);
        __builtin_prefetch(a->g + i);
    }
}

/* Items begin at multiples of BLOCK among all parameters, so that no block is drawn twice. A block goes through everything while the core's nearest cache
 * has it. */
static void adam_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct adam *s = arg;
    const struct chance c = {s->a->w, s->a->half, s->a->first, s->a->step, s->a->seed};
    const int64_t from = (int64_t)item * ITEM - s->skip, begin = from > 0 ? from : 0, end = from + ITEM < s->a->n ? from + ITEM : s->a->n;
    for (int64_t i = begin, n; i < end; i += n) {
        const int64_t left = BLOCK - (s->a->first + i) % BLOCK;
        n = left < end - i ? left : end - i;
        if (n == BLOCK) { /* constants: the loops unroll to whole vectors */
            prefetch_block(s->a, i + AHEAD);
            if (s->a->leave_g)
                move(s, i, BLOCK, true);
            else
                move(s, i, BLOCK, false);
            if (s->a->half)
                round_block(&c, i, BLOCK);
            continue;
        }
        move(s, i, n, s->a->leave_g);
        if (s->a->half)
            round_block(&c, i, n);
    }
    _mm_sfence(); /* once: behind every block it took 30 ms of a step's 70 */
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

typedef double eight __attribute__((vector_size(64)));
typedef float eight_floats __attribute__((vector_size(32)));

#define widen(p) ({ eight_floats f_; memcpy(&f_, (p), sizeof f_); __builtin_convertvector(f_, eight); })

static double leaf_sum(const float *x, int64_t n)
{
    eight low = {0}, high = {0}; /* chains 0 to 7 and 8 to 15 */
    for (int64_t i = 0; i + 16 <= n; i += 16) {
        __builtin_prefetch(x + i + AHEAD);
        const eight a0 = widen(x + i), a1 = widen(x + i + 8);
        low += a0 * a0;
        high += a1 * a1;
    }
    double chain[16] QR_UNINITIALIZED;
    memcpy(chain, &low, sizeof low);
    memcpy(chain + 8, &high, sizeof high);
    for (int64_t i = n / 16 * 16; i < n; i++)
        chain[i % 16] += (double)x[i] * (double)x[i];
    for (int step = 8; step > 0; step /= 2)
        for (int j = 0; j < step; j++)
            chain[j] += chain[j + step];
    return chain[0];
}

static void sum_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct qr_sum_squares_args *a = arg;
    const int64_t n_leaves = qr_sum_leaves(a->n), first = (int64_t)item * SUM_LEAVES, end = first + SUM_LEAVES < n_leaves ? first + SUM_LEAVES : n_leaves;
    for (int64_t l = first; l < end; l++) {
        const int64_t left = a->n - l * QR_SUM_LEAF;
        a->leaf[l] = leaf_sum(a->x + l * QR_SUM_LEAF, left < QR_SUM_LEAF ? left : QR_SUM_LEAF);
    }
}

void QR_ISA_NAME(sum_squares)(struct qr_queue *q, const struct qr_sum_squares_args *a)
{
    QR_ASSERT(a != NULL);
    QR_ASSERT(a->n >= 0 && (a->n == 0 || (a->x != NULL && a->leaf != NULL)));
    const int64_t n_leaves = qr_sum_leaves(a->n);
    qr_queue_run(q, sum_item, a, (n_leaves + SUM_LEAVES - 1) / SUM_LEAVES);
    if (a->sum)
        *a->sum = qr_sum_tree(a->leaf, n_leaves);
}

/* ---- Muon's passes over memory ---- */

static int64_t item_end(int64_t begin, int64_t n)
{
    return begin + ITEM < n ? begin + ITEM : n;
}

static void momentum_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct qr_momentum_args *a = arg;
    float *restrict m = a->m, *restrict grad = a->g, *restrict out = a->out;
    const float mu = (float)a->mu, gscale = (float)a->gscale;
    const int64_t begin = (int64_t)item * ITEM, end = item_end(begin, a->n);
    for (int64_t i = begin; i < end; i++) {
        const float g = grad[i] * gscale, mi = mu * m[i] + g;
        m[i] = mi;
        out[i] = g + mu * mi;
        grad[i] = 0;
    }
}

void QR_ISA_NAME(momentum)(struct qr_queue *q, const struct qr_momentum_args *a)
{
    QR_ASSERT(a != NULL && a->n >= 0);
    QR_ASSERT(a->m != NULL && a->g != NULL && a->out != NULL);
    qr_queue_run(q, momentum_item, a, (a->n + ITEM - 1) / ITEM);
}

static void scale_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct qr_scale_args *a = arg;
    const vf scale = vf_set1((float)a->scale), half_scale = vf_set1((float)a->half_scale);
    const int64_t begin = (int64_t)item * ITEM, end = item_end(begin, a->n);
    for (int64_t i = begin; i < end; i += VF_LEN) {
        const int64_t n = vf_min_len(end - i);
        const vf x = vf_load_n(a->x + i, n);
        if (a->half)
            vf_store_bf16_n(a->half + i, vf_mul(x, half_scale), n);
        if (a->out)
            vf_store_n(a->out + i, vf_mul(x, scale), n);
    }
}

void QR_ISA_NAME(scale)(struct qr_queue *q, const struct qr_scale_args *a)
{
    QR_ASSERT(a != NULL && a->n >= 0);
    QR_ASSERT(a->x != NULL && (a->out != NULL || a->half != NULL));
    qr_queue_run(q, scale_item, a, (a->n + ITEM - 1) / ITEM);
}

#define TURN_COLS (4 * VF_LEN) /* of x, in an item of work: a page of x is in use for four squares one after the other */

/* The square of x at (r, c), turned. */
static void turn_square(const struct qr_turn_args *a, int64_t r, int64_t c)
{
    const int64_t n_rows = a->n_rows, n_cols = a->n_cols, down = vf_min_len(n_rows - r), across = vf_min_len(n_cols - c);
    QR_UNINITIALIZED vf v[VF_LEN];
    for (int64_t i = 0; i < VF_LEN; i++)
        v[i] = i < down ? vf_load_n(a->x + (r + i) * n_cols + c, across) : vf_zero();
    vf_transpose(v);
    for (int64_t i = 0; a->out && i < across; i++)
        vf_store_n(a->out + (c + i) * n_rows + r, v[i], down);
    for (int64_t i = 0; a->half && i < across; i++)
        vf_store_bf16_n(a->half + (c + i) * n_rows + r, v[i], down);
}

static void turn_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct qr_turn_args *a = arg;
    const int64_t begin = (int64_t)item * TURN_COLS, end = begin + TURN_COLS < a->n_cols ? begin + TURN_COLS : a->n_cols;
    for (int64_t r = 0; r < a->n_rows; r += VF_LEN)
        for (int64_t c = begin; c < end; c += VF_LEN)
            turn_square(a, r, c);
}

void QR_ISA_NAME(turn)(struct qr_queue *q, const struct qr_turn_args *a)
{
    QR_ASSERT(a != NULL && a->x != NULL && (a->out != NULL || a->half != NULL));
    QR_ASSERT(a->n_rows >= 0 && a->n_cols >= 0);
    qr_queue_run(q, turn_item, a, (a->n_cols + TURN_COLS - 1) / TURN_COLS);
}

static void move_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct qr_move_args *a = arg;
    const struct chance c = {a->w, a->half, a->first, a->step, a->seed};
    float *restrict w = a->w;
    const float *restrict u = a->u, keep = (float)a->keep, rate = (float)a->rate;
    const int64_t from = (int64_t)item * ITEM - a->first % BLOCK, begin = from > 0 ? from : 0, end = item_end(from, a->n);
    for (int64_t i = begin; i < end; i++)
        w[i] = w[i] * keep - rate * u[i];
    for (int64_t i = begin, n; a->half && i < end; i += n) {
        const int64_t left = BLOCK - (a->first + i) % BLOCK;
        n = left < end - i ? left : end - i;
        round_block(&c, i, n);
    }
    _mm_sfence();
}

void QR_ISA_NAME(move_by)(struct qr_queue *q, const struct qr_move_args *a)
{
    QR_ASSERT(a != NULL && a->w != NULL && a->u != NULL);
    QR_ASSERT(a->n >= 0 && a->first >= 0 && a->step >= 1);
    qr_queue_run(q, move_item, a, (a->n + a->first % BLOCK + ITEM - 1) / ITEM);
}
