/* The optimizer's passes over all parameters: single IEEE operations in the order that backward.h says, so the bits of every other level. Bound by bandwidth: a
 * thread takes the eight parameters that share a draw of random numbers, in accesses of 16 bytes where addresses allow it. */
#include "kernels/cuda/num.h"
#include "kernels/cuda/queue.h"

#define THREADS 256
#define EACH 8 /* parameters of a thread: those that one Philox draw rounds */

/* ---- random numbers, as base/rng.c draws them ---- */

QR_DEVICE void draw(uint32_t out[4], uint64_t seed, uint64_t stream, uint64_t pos)
{
    uint32_t c0 = (uint32_t)pos, c1 = (uint32_t)(pos >> 32), c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint32_t low0 = 0xD2511F53u * c0, high0 = __umulhi(0xD2511F53u, c0), low1 = 0xCD9E8D57u * c2, high1 = __umulhi(0xCD9E8D57u, c2);
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* 16 random bits added below bf16's last place, and cut; infinities and NaN stay. */
QR_DEVICE uint32_t round_by_chance(float x, uint32_t random)
{
    const uint32_t u = __float_as_uint(x);
    return (u & 0x7f800000u) == 0x7f800000u ? qr_to_bf16(x) : (u + random) >> 16;
}

/* ---- eight numbers of an array, of which [begin, end) exist ---- */

struct span {
    int64_t at;         /* of the first of the eight; may be below 0 */
    int32_t begin, end; /* within 0 .. 8 */
    bool whole;         /* all eight, and aligned */
};

/* n numbers, number 0 of which is number `first` of all: eights begin where the number of all is a multiple of eight. */
QR_DEVICE struct span span_of(int64_t n, int64_t first, bool aligned)
{
    struct span s;
    s.at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * EACH - first % EACH;
    s.begin = s.at < 0 ? (int32_t)-s.at : 0;
    s.end = s.at >= n ? 0 : n - s.at < EACH ? (int32_t)(n - s.at) : EACH;
    s.whole = aligned && s.begin == 0 && s.end == EACH;
    return s;
}

QR_DEVICE void load8(float out[EACH], const float *x, struct span s)
{
    if (s.whole) {
        const float4 a = *(const float4 *)(x + s.at), b = *(const float4 *)(x + s.at + 4);
        out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
        return;
    }
    for (int k = 0; k < EACH; k++)
        out[k] = k >= s.begin && k < s.end ? x[s.at + k] : 0;
}

QR_DEVICE void store8(float *x, const float v[EACH], struct span s)
{
    if (s.whole) {
        *(float4 *)(x + s.at) = make_float4(v[0], v[1], v[2], v[3]);
        *(float4 *)(x + s.at + 4) = make_float4(v[4], v[5], v[6], v[7]);
        return;
    }
    for (int k = 0; k < EACH; k++)
        if (k >= s.begin && k < s.end)
            x[s.at + k] = v[k];
}

QR_DEVICE void store8_half(uint16_t *half, const uint32_t h[EACH], struct span s)
{
    if (s.whole) {
        *(uint4 *)(half + s.at) = make_uint4(h[0] | h[1] << 16, h[2] | h[3] << 16, h[4] | h[5] << 16, h[6] | h[7] << 16);
        return;
    }
    for (int k = 0; k < EACH; k++)
        if (k >= s.begin && k < s.end)
            half[s.at + k] = (uint16_t)h[k];
}

/* The weights that the model computes with, rounded by chance. */
QR_DEVICE void store_rounded(uint16_t *half, const float w[EACH], struct span s, int64_t first, int64_t step, uint64_t seed)
{
    uint32_t word[4], h[EACH];
    draw(word, seed, (uint64_t)step, (uint64_t)(first + s.at) / EACH);
    for (int k = 0; k < EACH; k++)
        h[k] = round_by_chance(w[k], word[k / 2] >> (k % 2 * 16) & 0xffffu);
    store8_half(half, h, s);
}

static unsigned int blocks_for(int64_t n, int64_t first)
{
    return qr_blocks(n + first % EACH, (int64_t)THREADS * EACH);
}

/* Whether eights can be moved in sixteen bytes: numbers of the device's arrays, number 0 of which is number `first` of all. */
static bool in_sixteens(uintptr_t floats, const uint16_t *half, int64_t first)
{
    const int64_t skip = first % EACH;
    return floats % 16 == 0 && QR_ADDRESS(half) % 16 == 0 && skip == 0;
}

/* ---- adamw ---- */

struct adamw {
    float *w, *m, *v, *g;
    uint16_t *half;
    int64_t n, first, step;
    uint64_t seed;
    float keep, take1, beta2, take2, rate, root2, eps, gscale;
    bool aligned, leave_g;
};

QR_KERNEL(THREADS) adamw(struct adamw a)
{
    const struct span s = span_of(a.n, a.first, a.aligned);
    if (s.end <= s.begin)
        return;
    float w[EACH], m[EACH], v[EACH], g[EACH], zero[EACH];
    load8(w, a.w, s), load8(m, a.m, s), load8(v, a.v, s), load8(g, a.g, s);
    for (int k = 0; k < EACH; k++) {
        const float d = g[k] * a.gscale;
        zero[k] = 0;
        w[k] = w[k] * a.keep;
        m[k] = m[k] + a.take1 * (d - m[k]);
        v[k] = a.beta2 * v[k] + a.take2 * (d * d);
        w[k] = w[k] - a.rate * m[k] / (sqrtf(v[k]) / a.root2 + a.eps);
    }
    store8(a.w, w, s), store8(a.m, m, s), store8(a.v, v, s);
    if (!a.leave_g)
        store8(a.g, zero, s);
    if (a.half)
        store_rounded(a.half, w, s, a.first, a.step, a.seed);
}

extern "C" void qr_cuda_adamw(struct qr_queue *q, const struct qr_adamw_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->w != NULL && a->m != NULL && a->v != NULL && a->g != NULL);
    QR_ASSERT(a->n >= 0 && a->first >= 0 && a->step >= 1);
    if (a->n == 0)
        return;
    const struct adamw k = {a->w, a->m, a->v, a->g, a->half, a->n, a->first, a->step, a->seed, (float)(1 - a->lr * a->decay), (float)(1 - a->beta1),
                            (float)a->beta2, (float)(1 - a->beta2), (float)(a->lr / (1 - pow(a->beta1, (double)a->step))),
                            (float)sqrt(1 - pow(a->beta2, (double)a->step)), (float)a->eps, (float)a->gscale,
                            in_sixteens(QR_ADDRESS(a->w) | QR_ADDRESS(a->m) | QR_ADDRESS(a->v) | QR_ADDRESS(a->g), a->half, a->first), a->leave_g};
    QR_LAUNCH(adamw, blocks_for(a->n, a->first), THREADS, 0, q, k);
}

/* ---- Muon's passes ---- */

QR_KERNEL(THREADS) momentum(float *m, float *g, float *out, int64_t n, float mu, float gscale, bool aligned)
{
    const struct span s = span_of(n, 0, aligned);
    if (s.end <= s.begin)
        return;
    float was[EACH], grad[EACH], look[EACH], zero[EACH];
    load8(was, m, s), load8(grad, g, s);
    for (int k = 0; k < EACH; k++) {
        const float d = grad[k] * gscale;
        was[k] = mu * was[k] + d;
        look[k] = d + mu * was[k];
        zero[k] = 0;
    }
    store8(m, was, s), store8(out, look, s), store8(g, zero, s);
}

extern "C" void qr_cuda_momentum(struct qr_queue *q, const struct qr_momentum_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->n >= 0);
    QR_ASSERT(a->m != NULL && a->g != NULL && a->out != NULL);
    if (a->n > 0)
        QR_LAUNCH(momentum, blocks_for(a->n, 0), THREADS, 0, q, a->m, a->g, a->out, a->n, (float)a->mu, (float)a->gscale,
                  in_sixteens(QR_ADDRESS(a->m) | QR_ADDRESS(a->g) | QR_ADDRESS(a->out), NULL, 0));
}

QR_KERNEL(THREADS) scale(float *out, uint16_t *half, const float *x, int64_t n, float by, float half_by, bool aligned)
{
    const struct span s = span_of(n, 0, aligned);
    if (s.end <= s.begin)
        return;
    float v[EACH];
    uint32_t h[EACH];
    load8(v, x, s);
    for (int k = 0; k < EACH; k++) {
        h[k] = qr_to_bf16(v[k] * half_by);
        v[k] = v[k] * by;
    }
    if (half)
        store8_half(half, h, s);
    if (out)
        store8(out, v, s);
}

extern "C" void qr_cuda_scale(struct qr_queue *q, const struct qr_scale_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->n >= 0);
    QR_ASSERT(a->x != NULL && (a->out != NULL || a->half != NULL));
    if (a->n > 0)
        QR_LAUNCH(scale, blocks_for(a->n, 0), THREADS, 0, q, a->out, a->half, a->x, a->n, (float)a->scale, (float)a->half_scale,
                  in_sixteens(QR_ADDRESS(a->out) | QR_ADDRESS(a->x), a->half, 0));
}

struct move {
    float *w;
    uint16_t *half;
    const float *u;
    int64_t n, first, step;
    uint64_t seed;
    float keep, rate;
    bool aligned;
};

QR_KERNEL(THREADS) move_by(struct move a)
{
    const struct span s = span_of(a.n, a.first, a.aligned);
    if (s.end <= s.begin)
        return;
    float w[EACH], u[EACH];
    load8(w, a.w, s), load8(u, a.u, s);
    for (int k = 0; k < EACH; k++)
        w[k] = w[k] * a.keep - a.rate * u[k];
    store8(a.w, w, s);
    if (a.half)
        store_rounded(a.half, w, s, a.first, a.step, a.seed);
}

extern "C" void qr_cuda_move_by(struct qr_queue *q, const struct qr_move_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->w != NULL && a->u != NULL);
    QR_ASSERT(a->n >= 0 && a->first >= 0 && a->step >= 1);
    if (a->n == 0)
        return;
    const struct move k = {a->w, a->half, a->u, a->n, a->first, a->step, a->seed, (float)a->keep, (float)a->rate,
                           in_sixteens(QR_ADDRESS(a->w) | QR_ADDRESS(a->u), a->half, a->first)};
    QR_LAUNCH(move_by, blocks_for(a->n, a->first), THREADS, 0, q, k);
}

/* A tile of 32 x 32 numbers goes through shared memory, so that both sides are read and written along their rows. */
#define TURN 32

QR_KERNEL(THREADS) turn(struct qr_turn_args a)
{
    QR_SHARED_ARRAY(float, tile, TURN * (TURN + 1));
    const int32_t lane = threadIdx.x % TURN, line = threadIdx.x / TURN, tiles = (a.n_cols + TURN - 1) / TURN;
    const int32_t row0 = (int32_t)blockIdx.x / tiles * TURN, col0 = (int32_t)blockIdx.x % tiles * TURN;
    for (int32_t k = line; k < TURN; k += THREADS / TURN)
        if (row0 + k < a.n_rows && col0 + lane < a.n_cols)
            tile[k * (TURN + 1) + lane] = a.x[(int64_t)(row0 + k) * a.n_cols + col0 + lane];
    __syncthreads();
    for (int32_t k = line; k < TURN; k += THREADS / TURN)
        if (row0 + lane < a.n_rows && col0 + k < a.n_cols) {
            const float x = tile[lane * (TURN + 1) + k];
            const int64_t at = (int64_t)(col0 + k) * a.n_rows + row0 + lane;
            if (a.half)
                a.half[at] = (uint16_t)qr_to_bf16(x);
            if (a.out)
                a.out[at] = x;
        }
}

extern "C" void qr_cuda_turn(struct qr_queue *q, const struct qr_turn_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->x != NULL && (a->out != NULL || a->half != NULL));
    QR_ASSERT(a->n_rows >= 0 && a->n_cols >= 0);
    const int64_t n = (int64_t)qr_blocks(a->n_rows, TURN) * qr_blocks(a->n_cols, TURN);
    if (n > 0)
        QR_LAUNCH(turn, (unsigned int)n, THREADS, 0, q, *a);
}

/* ---- sum_squares ----
 *
 * Four lanes have a leaf, each four of its 16 chains: so chains never meet, and 64 bytes of a leaf are read at once. Then the tree of pairs, 2,048 leaves a
 * block and launch. */

#define LEAF_LANES 4
#define TREE 2048
#define TREE_THREADS 256

template <bool VEC> QR_KERNEL(THREADS) leaf_sums(double *leaf, const float *x, int64_t n)
{
    const int64_t l = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / LEAF_LANES, begin = l * QR_SUM_LEAF;
    const int32_t lane = threadIdx.x % LEAF_LANES;
    const int32_t len = begin >= n ? 0 : n - begin < QR_SUM_LEAF ? (int32_t)(n - begin) : QR_SUM_LEAF;
    double c[4] = {0, 0, 0, 0};
#pragma unroll 4
    for (int32_t i = 4 * lane; i < len; i += 4 * LEAF_LANES) {
        const float4 v = VEC && i + 4 <= len ? *(const float4 *)(x + begin + i) : qr_load4<false>(x + begin, i, len);
        c[0] += (double)v.x * (double)v.x;
        c[1] += (double)v.y * (double)v.y;
        c[2] += (double)v.z * (double)v.z;
        c[3] += (double)v.w * (double)v.w;
    }
    for (int step = 2; step > 0; step /= 2) /* chains j and j + 8, then j + 4 */
        for (int k = 0; k < 4; k++)
            c[k] += __shfl_down_sync(QR_ALL_LANES, c[k], step, LEAF_LANES);
    if (lane == 0 && len > 0)
        leaf[l] = (c[0] + c[2]) + (c[1] + c[3]);
}

/* out[b] = the tree over leaves [TREE b, TREE (b + 1)): neighbours in pairs; a lone one passes up. */
QR_KERNEL(TREE_THREADS) tree(double *out, const double *leaf, int64_t n)
{
    QR_SHARED(double, level);
    double *below = level, *above = level + TREE;
    const int64_t begin = (int64_t)blockIdx.x * TREE;
    int32_t len = n - begin < TREE ? (int32_t)(n - begin) : TREE;
    for (int32_t i = threadIdx.x; i < len; i += TREE_THREADS)
        below[i] = leaf[begin + i];
    __syncthreads();
    for (; len > 1; len = (len + 1) / 2) {
        for (int32_t i = threadIdx.x; i < (len + 1) / 2; i += TREE_THREADS)
            above[i] = 2 * i + 1 < len ? below[2 * i] + below[2 * i + 1] : below[2 * i];
        double *was = below;
        below = above;
        above = was;
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = below[0];
}

extern "C" void qr_cuda_sum_squares(struct qr_queue *q, const struct qr_sum_squares_args *a)
{
    QR_ASSERT(q != NULL && a != NULL);
    QR_ASSERT(a->n >= 0 && (a->n == 0 || (a->x != NULL && a->leaf != NULL)));
    int64_t n = qr_sum_leaves(a->n);
    if (n == 0) {
        if (a->sum)
            QR_CUDA_CHECK(cudaMemsetAsync(a->sum, 0, sizeof *a->sum, qr_stream_of(q)));
        return;
    }
    if (qr_in_fours(QR_ADDRESS(a->x), 0))
        QR_LAUNCH(leaf_sums<true>, qr_blocks(n * LEAF_LANES, THREADS), THREADS, 0, q, a->leaf, a->x, a->n);
    else
        QR_LAUNCH(leaf_sums<false>, qr_blocks(n * LEAF_LANES, THREADS), THREADS, 0, q, a->leaf, a->x, a->n);
    if (!a->sum)
        return;
    QR_ASSERT(2 * (size_t)qr_blocks(n, TREE) * sizeof(double) <= q->scratch_bytes);
    double *level = (double *)q->scratch;
    const double *below = a->leaf;
    while (n > TREE) {
        QR_LAUNCH(tree, qr_blocks(n, TREE), TREE_THREADS, 2 * TREE * sizeof(double), q, level, below, n);
        n = qr_blocks(n, TREE);
        below = level;
        level += n;
    }
    QR_LAUNCH(tree, 1, TREE_THREADS, 2 * TREE * sizeof(double), q, a->sum, below, n);
}
