/* Products with up to 16 rows: weights pass by once, at the speed of memory, and what stands beside a product in a decode step happens meanwhile, in one
 * launch.
 *
 * A block has two warps and 16 columns at a time, in two halves of eight, a warp's each: the next 16 of a matrix; or eight gates and their ups; or eight
 * pairs that the rotation turns. It goes from tile to tile (as many blocks as fit the device). Each warp has a ring of stages of its own, which goes on
 * through the border of two tiles; codes go through it as they are and become bf16 behind it. Up to eight rows stay in shared memory, and a block makes
 * bf16 of floats by itself: the sum of squares of a norm in the order of widths.h, so that rms_norm, narrow_rows and this give the same bits. Then nothing
 * but a tile's result makes one warp wait for the other. More rows come through the ring as well, in pieces for both: all blocks would read all rows twice.
 *
 * The launch begins early (launch.h): the first stages of weights are in flight, and more of them are prefetched to L2,
 * before it waits for what makes the rows. A product in a step is a chain of K / 16 steps of the matrix unit, about 33
 * cycles each: the operands of the next step and the next stage's copies are issued between them.
 *
 * A sum is the chain of product.h: steps of 16 inputs upwards from 0. */
#include "kernels/cuda/cache.h"
#include "kernels/cuda/few.h"
#include "kernels/cuda/widths.h"

#define WARPS 2
#define THREADS (WARPS * QR_WARP)
#define COLS 16
#define HALF 8
#define DEPTH 256                 /* inputs of a stage */
#define STEPS (DEPTH / 32)        /* of 32 inputs, two of the matrix unit; as many as a warp has columns */
#define STAGES 4
#define WHOLE_ROWS 8              /* that a block keeps */
#define WHOLE_BYTES (64 * 1024)   /* which take so much shared memory at most: with the stages, what every device has */
#define BLOCKS_MAX 6              /* of a multiprocessor */
#define STATIC_BYTES 4096         /* at most, of shared memory besides */
#define AHEAD_BYTES ((size_t)12 << 20) /* of all blocks, prefetched to L2, which has other things to keep */
#define AHEAD_LINES 32            /* of 128 bytes, of a column, at most */
#define AT_ONCE 4                 /* of what a thread sums */

/* How weights come: as product.h has it, or codes in pieces of 16 bytes. */
enum { CODED = QR_PRODUCT_KINDS, KINDS };

enum form { PLAIN, GATED, HEADS };

struct few {
    struct qr_product product;
    const float *floats, *norm_w;
    int64_t floats_stride;
    float eps;
    struct qr_row_shape shape;    /* in which rows are summed */
    int32_t width;                /* of a row in shared memory: a multiple of DEPTH */
    int32_t n_tiles;
    int32_t lines;                /* of 128 bytes of each column that are prefetched: a power of two, or 0 */
    enum form form;
    enum qr_act act;
    struct qr_clamp clamp;
    uint16_t *halves;
    int64_t halves_stride;
    struct qr_cache cache;        /* of heads */
    const float *cos_sin;
    const int32_t *slot;
    int32_t n_heads, n_rot;
    bool half_cache;              /* bf16, else f32 */
};

/* ---- rows become bf16 ---- */

/* What each of a row's warps sums in widths.h: these two warps stand for all of them. Numbers that are not there add 0. */
QR_DEVICE void sum_squares(const struct few &a, float *partial)
{
    const int32_t lane = (int32_t)threadIdx.x % QR_WARP, n = a.product.n_rows * a.shape.warps, step = QR_ROW_STEP(a.shape.warps);
#pragma unroll 1
    for (int32_t i0 = (int32_t)threadIdx.x / QR_WARP; i0 < n; i0 += AT_ONCE * WARPS) {
        float sum[AT_ONCE] = {};
#pragma unroll 1
        for (int32_t j0 = 0; j0 < a.shape.fours; j0 += 4) {
            float4 v[AT_ONCE][4];
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                const int32_t i = i0 + u * WARPS, first = 4 * (i % a.shape.warps * QR_WARP + lane);
                const float *row = a.floats + (i < n ? i / a.shape.warps : 0) * a.floats_stride;
#pragma unroll
                for (int j = 0; j < 4; j++)
                    v[u][j] = qr_load4<true>(row, first + (j0 + j) * step, i < n && j0 + j < a.shape.fours ? a.product.n_in : 0);
            }
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[u] = qr_dot4(sum[u], v[u][j], v[u][j]);
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const float all = qr_warp_sum(sum[u]);
            if (lane == 0 && i0 + u * WARPS < n)
                partial[i0 + u * WARPS] = all;
        }
    }
}

/* 1 / rms of each row, as qr_inverse_rms has it from its warps' sums. */
QR_DEVICE void find_scales(const struct few &a, float *scale, const float *partial)
{
    const int32_t lane = (int32_t)threadIdx.x % QR_WARP, n = a.shape.warps;
    for (int32_t row = (int32_t)threadIdx.x / QR_WARP; row < a.product.n_rows; row += WARPS) {
        const float sum = n == 1 ? partial[row] : qr_warp_sum(lane < n ? partial[row * n + lane] : 0.0f);
        if (lane == 0)
            scale[row] = 1.0f / sqrtf(sum / (float)a.product.n_in + a.eps);
    }
}

QR_DEVICE uint32_t two_halves(float low, float high)
{
    return qr_to_bf16(low) | qr_to_bf16(high) << 16;
}

/* All rows of floats, in chunks as the product reads them. */
QR_DEVICE void narrow(uint16_t *x, const struct few &a, const float *scale)
{
    const int32_t per_row = a.width / QR_CHUNK, n = a.product.n_rows * per_row;
#pragma unroll 4
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += THREADS) {
        const int32_t r = i / per_row, c = i % per_row, k = c * QR_CHUNK;
        const float *row = a.floats + r * a.floats_stride;
        float4 u = qr_load4<true>(row, k, a.product.n_in), v = qr_load4<true>(row, k + 4, a.product.n_in);
        if (a.norm_w) {
            u = qr_mul4(qr_scale4(u, scale[r]), qr_load4<true>(a.norm_w, k, a.product.n_in));
            v = qr_mul4(qr_scale4(v, scale[r]), qr_load4<true>(a.norm_w, k + 4, a.product.n_in));
        }
        *(uint4 *)qr_chunk_in(x, a.width, r, c) = make_uint4(two_halves(u.x, u.y), two_halves(u.z, u.w), two_halves(v.x, v.y), two_halves(v.z, v.w));
    }
}

/* All rows that are bf16 or E4M3 already. */
QR_DEVICE void take_rows(uint16_t *x, const struct few &a)
{
    const int32_t per_row = a.width / QR_CHUNK, n = a.product.n_rows * per_row;
#pragma unroll 4
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += THREADS) {
        const int32_t r = i / per_row, c = i % per_row, k = c * QR_CHUNK;
        uint16_t *to = qr_chunk_in(x, a.width, r, c);
        const bool there = k < a.product.n_in;
        if (a.product.x_scale)
            *(uint4 *)to = there ? qr_decode_eights(*(const uint2 *)((const uint8_t *)a.product.x + r * a.product.x_stride + k)) : make_uint4(0, 0, 0, 0);
        else
            qr_cp_async_16(to, there ? a.product.x + r * a.product.x_stride + k : a.product.x, there ? 16 : 0);
    }
    qr_cp_async_commit();
    qr_cp_async_wait<0>();
}

/* ---- tiles ---- */

/* The two halves of a tile's columns: where they begin, and how many of the matrix' there are from there on. */
struct columns {
    int32_t low, high, n_low, n_high;
};

/* Of heads: which one, and the tile's number in it. */
QR_DEVICE int32_t head_of(const struct few &a, int32_t tile, int32_t *in_head)
{
    const int32_t per_head = a.cache.head_dim / COLS;
    *in_head = tile % per_head;
    return tile / per_head;
}

QR_DEVICE bool is_turned(const struct few &a, int32_t head, int32_t in_head)
{
    return head < a.n_heads + a.cache.n_kv_heads && COLS * in_head < a.n_rot;
}

QR_DEVICE struct columns columns_of(const struct few &a, int32_t tile)
{
    struct columns c = {COLS * tile, COLS * tile + HALF, a.product.n_out - COLS * tile, a.product.n_out - COLS * tile - HALF};
    int32_t in_head;
    if (a.form == GATED) {
        const int32_t n_gates = a.product.n_out / 2;
        c.low = HALF * tile, c.high = n_gates + c.low;
        c.n_low = c.n_high = n_gates - c.low;
    } else if (a.form == HEADS) {
        const int32_t head = head_of(a, tile, &in_head);
        if (is_turned(a, head, in_head))
            c.low = head * a.cache.head_dim + HALF * in_head, c.high = c.low + a.n_rot / 2;
        c.n_low = c.n_high = HALF;
    }
    return c;
}

/* What is copied next to the ring of this warp: tiles of this block one after the other, each over all inputs. */
struct next {
    int32_t first, n, tile, k0; /* columns, of which there are n */
};

QR_DEVICE void place(struct next *n, const struct few &a)
{
    const struct columns at = columns_of(a, n->tile);
    const bool high = threadIdx.x >= QR_WARP;
    n->first = high ? at.high : at.low;
    n->n = high ? at.n_high : at.n_low;
    n->k0 = 0;
}

QR_DEVICE void advance(struct next *n, const struct few &a)
{
    n->k0 += DEPTH;
    if (n->k0 < a.product.n_in)
        return;
    n->tile += (int32_t)gridDim.x;
    place(n, a);
}

/* Bytes of a stage: of a warp's weights, and with rows that come along. */
template <int KIND> struct stage_of {
    enum { SHARE = HALF * DEPTH * (KIND == CODED ? 1 : 2), WEIGHTS = WARPS * SHARE, ROWS = QR_FEW_ROWS * DEPTH * 2, PARTS = KIND == CODED ? 4 : HALF };
};

/* One of the PARTS of what a warp fetches of a stage. */
template <int KIND> QR_DEVICE void fetch_part(uint8_t *share, const struct few &a, const struct next &n, int part)
{
    const int32_t lane = (int32_t)threadIdx.x % QR_WARP;
    if (KIND != CODED) {
        const int32_t k = n.k0 + lane * QR_CHUNK;
        qr_product_fetch_weights<KIND>(qr_chunk_of<DEPTH>((uint16_t *)share, part, lane), a.product, n.first + part, k, part < n.n && k < a.product.n_in);
    } else { /* 16 pieces of 16 bytes of a column, or 8 */
        const struct qr_coded &c = a.product.coded;
        const int32_t half = qr_coded_halves(c), shift = 4 - half, i = lane + part * QR_WARP, r = i >> shift;
        const int32_t at = (n.k0 >> half) + (i & ((1 << shift) - 1)) * 16;
        const bool there = r < n.n && at < c.code_bytes;
        if (r < HALF)
            qr_cp_async_16(share + i * 16, there ? c.codes + (n.first + r) * c.code_bytes + at : c.codes, there ? 16 : 0);
    }
}

template <int KIND> QR_DEVICE void fetch_share(uint8_t *share, const struct few &a, const struct next &n)
{
    if (n.tile >= a.n_tiles)
        return;
    if (KIND == QR_PRODUCT_ANY) {
#pragma unroll 1 /* what decodes is long */
        for (int part = 0; part < stage_of<KIND>::PARTS; part++)
            fetch_part<KIND>(share, a, n, part);
    } else {
#pragma unroll
        for (int part = 0; part < stage_of<KIND>::PARTS; part++)
            fetch_part<KIND>(share, a, n, part);
    }
}

/* Of rows that come with each stage. */
template <int KIND> QR_DEVICE void fetch_rows(uint8_t *rows, const struct few &a, const struct next &n)
{
    const struct qr_product_place all = {0, a.product.n_rows, 0, NULL, 1};
    if (n.tile < a.n_tiles)
        qr_product_fetch_rows<QR_FEW_ROWS, DEPTH, THREADS, KIND == CODED ? (int)QR_PRODUCT_ANY : KIND>((uint16_t *)rows, a.product, all, n.k0);
}

/* Prefetches what comes behind the first stages to L2: while a launch waits for those before it memory is idle. */
template <int KIND> QR_DEVICE void ask_ahead(const struct few &a, const struct next &n)
{
    const struct qr_coded &c = a.product.coded;
    const int32_t half = KIND == CODED && qr_coded_halves(c), lane = (int32_t)threadIdx.x % QR_WARP;
    const int64_t row_bytes = KIND == CODED ? c.code_bytes : 2 * (int64_t)a.product.n_in;
    const uint8_t *base = KIND == CODED ? c.codes : (const uint8_t *)a.product.w;
    for (int32_t i = lane; i < HALF * a.lines; i += QR_WARP) {
        const int32_t r = i / a.lines, at = ((STAGES - 1) * DEPTH * (KIND == CODED ? 1 : 2) >> half) + i % a.lines * 128;
        if (r < n.n && at < row_bytes)
            qr_prefetch(base + (n.first + r) * row_bytes + at);
    }
    for (int32_t i = (int32_t)threadIdx.x * 32; a.norm_w && i < a.product.n_in; i += THREADS * 32)
        qr_prefetch(a.norm_w + i);
}

/* Codes of a warp's share as bf16. */
QR_DEVICE void decode_share(uint16_t *to, const uint8_t *share, const struct few &a, int32_t first, int32_t n, int32_t k0)
{
    const struct qr_coded &c = a.product.coded;
    const int32_t lane = (int32_t)threadIdx.x % QR_WARP, k = k0 + lane * QR_CHUNK;
    const int32_t unit = c.form == QR_CODED_STORED ? k / c.unit : 0, group = c.form == QR_CODED_STORED ? k / c.group : 0;
    const bool half = qr_coded_halves(c);
#pragma unroll 2
    for (int r = 0; r < HALF; r++) {
        uint4 v = make_uint4(0, 0, 0, 0);
        if (r < n && k < a.product.n_in) {
            const uint8_t *at = share + (r * QR_WARP + lane) * (half ? 4 : 8);
            const uint2 codes = half ? make_uint2(*(const uint32_t *)at, 0) : *(const uint2 *)at;
            v = qr_decode(c, first + r, unit, group, codes);
        }
        *(uint4 *)qr_chunk_of<DEPTH>(to, r, lane) = v;
    }
}

/* ---- products ---- */

/* Of a step of 32 inputs: this warp's eight columns, and eight rows. */
struct operands {
    uint32_t w[4], x[4];
};

/* Where a lane finds its part of them, in even steps and in odd ones. Instead of rows that are not there it reads the
 * last one: their sums are not used. */
struct lanes {
    int32_t w[2], x[2];
};

QR_DEVICE struct lanes lanes_of(const struct few &a)
{
    const int32_t lane = (int32_t)threadIdx.x % QR_WARP, r = lane % 8, c = lane / 8, row = min(r, a.product.n_rows - 1);
    struct lanes l;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        l.w[i] = r * DEPTH + ((4 * i + c) ^ r) * QR_CHUNK;
        l.x[i] = row * a.width + ((4 * i + c) ^ row) * QR_CHUNK;
    }
    return l;
}

/* x: rows from the stage's first input on. */
QR_DEVICE void load_step(struct operands *o, const uint16_t *weights, const uint16_t *x, const struct lanes &l, int step)
{
    qr_ldmatrix<4>(o->w, weights + l.w[step % 2] + step / 2 * 64);
    qr_ldmatrix<4>(o->x, x + l.x[step % 2] + step / 2 * 64);
}

QR_DEVICE void multiply_step(float sum[4], const struct operands &o)
{
    const uint32_t low[4] = {o.x[0], 0, o.x[1], 0}, high[4] = {o.x[2], 0, o.x[3], 0}; /* rows 8 to 15 are none */
    qr_mma_bf16(sum, low, o.w);
    qr_mma_bf16(sum, high, o.w + 2);
}

/* Sums of this warp's columns over the inputs of a stage with its rows. */
QR_DEVICE void multiply_stage(float sum[4], uint16_t *weights, uint16_t *rows)
{
    const int32_t lane = (int32_t)threadIdx.x % QR_WARP;
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k += 2) {
        uint32_t xa[2][4], wb[4];
        qr_ldmatrix<4>(wb, qr_chunk_of<DEPTH>(weights, lane % 8, 2 * k + lane / 8));
#pragma unroll
        for (int i = 0; i < 2; i++)
            qr_ldmatrix<4>(xa[i], qr_chunk_of<DEPTH>(rows, lane % 16, 2 * (k + i) + lane / 16));
        qr_mma_bf16(sum, xa[0], wb);
        qr_mma_bf16(sum, xa[1], wb + 2);
    }
}

/* ---- what becomes of a tile ---- */

QR_DEVICE void put_gated(const struct few &a, const struct columns &at, int32_t row, int32_t i, float gate, float up)
{
    const bool there = i < at.n_low;
    const float unit = a.act == QR_ACT_SILU        ? qr_gate<QR_ACT_SILU>(gate, up, a.clamp)
                       : a.act == QR_ACT_GELU_TANH ? qr_gate<QR_ACT_GELU_TANH>(gate, up, a.clamp)
                                                   : qr_gate<QR_ACT_CLAMPED>(gate, up, a.clamp);
    const float y = there ? unit : 0;
    if (a.halves && at.low + i < a.halves_stride)
        a.halves[row * a.halves_stride + at.low + i] = (uint16_t)qr_to_bf16(y);
    else if (!a.halves && there)
        a.product.out[row * a.product.out_stride + at.low + i] = y;
}

QR_DEVICE void put_number(const struct few &a, uint8_t *plane, int64_t at, float y)
{
    if (a.half_cache)
        ((uint16_t *)plane)[at] = (uint16_t)qr_to_bf16(y);
    else
        ((float *)plane)[at] = y;
}

/* As qkv in heads.cu. */
QR_DEVICE void put_pair(const struct few &a, const struct columns &at, int32_t tile, int32_t row, int32_t i, float low, float high)
{
    int32_t in_head, token = 0;
    const int32_t head = head_of(a, tile, &in_head), g = head - a.n_heads, n = a.cache.head_dim;
    if (is_turned(a, head, in_head)) {
        const float *table = a.cos_sin + row * a.n_rot + HALF * in_head + i;
        const float c = table[0], s = table[a.n_rot / 2], was = low;
        low = qr_turn_low(was, high, c, s);
        high = qr_turn_high(was, high, c, s);
    }
    float *x = a.product.out + row * a.product.out_stride;
    x[at.low + i] = low;
    x[at.high + i] = high;
    if (g < 0 || a.slot[row] < 0)
        return;
    uint8_t *plane = qr_cache_plane(a.cache, a.slot[row], g / a.cache.n_kv_heads, g % a.cache.n_kv_heads, &token);
    put_number(a, plane, (int64_t)token * n + at.low + i - head * n, low);
    put_number(a, plane, (int64_t)token * n + at.high + i - head * n, high);
}

/* The sums of a finished tile. Halves of which each needs the other meet in `staged` [2][QR_FEW_ROWS][COLS], for every second tile. All of the block call it:
 * a thread that writes to one half of `staged` knows by the tile between that all have read it. */
template <int KIND> QR_DEVICE void put_tile(const struct few &a, const float sum[4], float *staged, int32_t tile)
{
    const int32_t lane = (int32_t)threadIdx.x % QR_WARP, warp = (int32_t)threadIdx.x / QR_WARP;
    const struct columns at = columns_of(a, tile);
    const int32_t first = warp ? at.high : at.low, n = warp ? at.n_high : at.n_low;
    staged += tile / (int32_t)gridDim.x % 2 * (QR_FEW_ROWS * COLS);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int32_t row = lane / 4 + k / 2 * 8, i = 2 * (lane % 4) + k % 2;
        if (row >= a.product.n_rows || i >= n)
            continue;
        const float y = qr_product_result<KIND == CODED ? (int)QR_PRODUCT_ANY : KIND>(a.product, row, first + i, sum[k]);
        float *out = a.product.out + row * a.product.out_stride + first + i;
        if (a.form != PLAIN)
            staged[row * COLS + warp * HALF + i] = y;
        else
            *out = a.product.add ? y + *out : y;
    }
    if (a.form == PLAIN)
        return;
    __syncthreads();
    for (int32_t k = (int32_t)threadIdx.x; k < a.product.n_rows * HALF; k += THREADS) {
        const int32_t row = k / HALF, i = k % HALF;
        const float low = staged[row * COLS + i], high = staged[row * COLS + HALF + i];
        if (a.form == GATED)
            put_gated(a, at, row, i, low, high);
        else
            put_pair(a, at, tile, row, i, low, high);
    }
}

/* ---- the block ---- */

/* Where things lie in shared memory. */
struct room {
    uint8_t *ring;           /* of this warp's shares: stages are `stage` bytes apart */
    uint16_t *decoded, *x;   /* this warp's share of a stage; rows */
    float *staged;
    int32_t stage;
};

/* bf16 weights and rows that stay: nothing but the chain of the matrix unit is waited for. */
QR_DEVICE void multiply_ahead(const struct few &a, const struct room &at, struct next next)
{
    const int32_t lane = (int32_t)threadIdx.x % QR_WARP;
    const struct lanes l = lanes_of(a);
    int32_t stage = 0;
    struct operands now, then;
    load_step(&now, (const uint16_t *)at.ring, at.x, l, 0);
    for (int32_t tile = (int32_t)blockIdx.x; tile < a.n_tiles; tile += (int32_t)gridDim.x) {
        float sum[4] = {0, 0, 0, 0};
#pragma unroll 1
        for (int32_t k0 = 0; k0 < a.product.n_in; k0 += DEPTH) {
            const int32_t after = (stage + 1) % STAGES, k = next.k0 + lane * QR_CHUNK;
            const uint16_t *weights = (const uint16_t *)(at.ring + stage * at.stage), *row = a.product.w + (int64_t)next.first * a.product.n_in + k;
            uint16_t *to = (uint16_t *)(at.ring + (stage + STAGES - 1) % STAGES * at.stage);
            const int32_t n = next.tile < a.n_tiles && k < a.product.n_in ? next.n : 0; /* rows of zeros behind the last tile */
#pragma unroll
            for (int s = 0; s < STEPS; s++, row += a.product.n_in) {
                qr_cp_async_16(qr_chunk_of<DEPTH>(to, s, lane), row, s < n ? 16 : 0);
                if (s + 1 < STEPS) {
                    load_step(&then, weights, at.x + k0, l, s + 1);
                } else { /* the next stage, of this tile or another */
                    qr_cp_async_commit();
                    qr_cp_async_wait<STAGES - 2>();
                    __syncwarp();
                    load_step(&then, (const uint16_t *)(at.ring + after * at.stage), at.x + (k0 + DEPTH < a.product.n_in ? k0 + DEPTH : 0), l, 0);
                }
                multiply_step(sum, now);
                now = then;
            }
            advance(&next, a);
            stage = after;
        }
        put_tile<QR_PRODUCT_ALIGNED>(a, sum, at.staged, tile);
    }
}

/* Codes, or rows that come with each stage. */
template <int KIND, bool WHOLE> QR_DEVICE void multiply_stages(const struct few &a, const struct room &at, struct next next)
{
    typedef struct stage_of<KIND> of;
    const int32_t warp = (int32_t)threadIdx.x / QR_WARP;
    const struct lanes l = lanes_of(a);
    int32_t stage = 0;
    struct next now = {0, 0, (int32_t)blockIdx.x, 0};
    for (; now.tile < a.n_tiles; now.tile += (int32_t)gridDim.x) {
        float sum[4] = {0, 0, 0, 0};
        place(&now, a);
#pragma unroll 1
        for (int32_t k0 = 0; k0 < a.product.n_in; k0 += DEPTH) {
            uint8_t *share = at.ring + stage * at.stage, *free_share = at.ring + (stage + STAGES - 1) % STAGES * at.stage;
            qr_cp_async_wait<STAGES - 2>();
            if (WHOLE)
                __syncwarp(); /* this stage is there; what was read of the last one is used up */
            else
                __syncthreads();
            fetch_share<KIND>(free_share, a, next);
            if (!WHOLE)
                fetch_rows<KIND>(free_share - warp * of::SHARE + of::WEIGHTS, a, next);
            qr_cp_async_commit();
            advance(&next, a);
            if (KIND == CODED) {
                decode_share(at.decoded, share, a, now.first, now.n, k0);
                __syncwarp();
            }
            uint16_t *weights = KIND == CODED ? at.decoded : (uint16_t *)share;
            if (!WHOLE) {
                multiply_stage(sum, weights, (uint16_t *)(share - warp * of::SHARE + of::WEIGHTS));
            } else {
#pragma unroll
                for (int s = 0; s < STEPS; s++) {
                    struct operands o;
                    load_step(&o, weights, at.x + k0, l, s);
                    multiply_step(sum, o);
                }
            }
            stage = (stage + 1) % STAGES;
        }
        put_tile<KIND>(a, sum, at.staged, now.tile);
    }
}

template <int KIND, bool WHOLE> QR_KERNEL(THREADS) few_rows(struct few a)
{
    typedef struct stage_of<KIND> of;
    const int STAGE = of::WEIGHTS + (WHOLE ? 0 : of::ROWS), DECODED = KIND == CODED ? HALF * DEPTH : 0;
    QR_SHARED(uint8_t, shared); /* stages, what was decoded, then rows */
    QR_SHARED_ARRAY(float, staged, 2 * QR_FEW_ROWS * COLS);
    QR_SHARED_ARRAY(float, partial, WHOLE_ROWS * QR_WARP);
    QR_SHARED_ARRAY(float, scale, WHOLE_ROWS);
    const int32_t warp = (int32_t)threadIdx.x / QR_WARP;
    uint16_t *behind = (uint16_t *)(shared + STAGES * STAGE);
    const struct room at = {shared + warp * of::SHARE, behind + warp * DECODED, behind + WARPS * DECODED, staged, STAGE};
    struct next next = {0, 0, (int32_t)blockIdx.x, 0};
    place(&next, a);
    struct next first = next;
    qr_grid_next();
#pragma unroll 1
    for (int s = 0; s < STAGES - 1; s++, advance(&next, a)) {
        fetch_share<KIND>(at.ring + s * STAGE, a, next);
        if (WHOLE)
            qr_cp_async_commit();
    }
    if (KIND != QR_PRODUCT_ANY)
        ask_ahead<KIND>(a, first);
    qr_grid_wait();
    for (int s = 0; s < STAGES - 1 && !WHOLE; s++, advance(&first, a)) {
        fetch_rows<KIND>(shared + s * STAGE + of::WEIGHTS, a, first);
        qr_cp_async_commit();
    }
    if (WHOLE && a.norm_w) {
        sum_squares(a, partial);
        __syncthreads();
        find_scales(a, scale, partial);
        __syncthreads();
    }
    if (WHOLE && a.floats)
        narrow(at.x, a, scale);
    else if (WHOLE)
        take_rows(at.x, a);
    if (WHOLE) {
        qr_cp_async_wait<STAGES - 2>();
        __syncthreads();
    }
    if (KIND == QR_PRODUCT_ALIGNED && WHOLE)
        multiply_ahead(a, at, next);
    else
        multiply_stages<KIND, WHOLE>(a, at, next);
}

/* ---- the host's side ---- */

static int32_t width_of(int32_t n_in)
{
    return (n_in + DEPTH - 1) / DEPTH * DEPTH;
}

static int kind_of(const struct qr_product *p)
{
    return qr_product_has_pieces(p) ? (int)CODED : qr_product_kind(p);
}

static size_t rows_bytes(const struct qr_product *p)
{
    return (size_t)p->n_rows * (size_t)width_of(p->n_in) * sizeof(uint16_t);
}

template <int KIND, bool WHOLE> static size_t shared_bytes(const struct qr_product *p)
{
    typedef struct stage_of<KIND> of;
    const size_t stage = of::WEIGHTS + (WHOLE ? 0 : of::ROWS), decoded = KIND == CODED ? COLS * DEPTH * 2 : 0;
    return STAGES * stage + decoded + (WHOLE ? rows_bytes(p) : 0);
}

/* Whether a block keeps all rows: it has room for them, and they can be moved in 16 bytes. */
static bool keeps_rows(const struct qr_queue *q, const struct qr_few *f)
{
    const struct qr_product *p = &f->product;
    const bool fours = !f->floats || qr_in_fours(QR_ADDRESS(f->floats) | QR_ADDRESS(f->norm_w), p->n_in | f->floats_stride);
    return kind_of(p) != QR_PRODUCT_ANY && fours && p->n_rows <= WHOLE_ROWS && rows_bytes(p) <= WHOLE_BYTES &&
           shared_bytes<QR_PRODUCT_ALIGNED, true>(p) + STATIC_BYTES <= (size_t)q->shared_max;
}

bool qr_few_narrows(const struct qr_queue *q, const struct qr_few *f)
{
    QR_ASSERT(q != NULL && f != NULL && f->floats != NULL);
    QR_ASSERT(f->product.n_rows > 0 && f->product.n_in > 0);
    return keeps_rows(q, f);
}

bool qr_few_heads(const struct qr_qkv_args *a)
{
    QR_ASSERT(a != NULL);
    QR_ASSERT(a->kv != NULL);
    return !a->q_norm && !a->k_norm && (a->kv->dtype == QR_BF16 || a->kv->dtype == QR_F32) && a->kv->head_dim % COLS == 0 && a->n_rot % COLS == 0;
}

static void set_form(struct few *a, const struct qr_few *f)
{
    const struct qr_qkv_args *h = f->heads;
    a->form = f->gated ? GATED : h ? HEADS : PLAIN;
    a->n_tiles = (int32_t)qr_blocks(f->product.n_out, COLS);
    if (f->gated)
        a->n_tiles = (int32_t)qr_blocks(f->product.n_out / 2, HALF);
    if (!h)
        return;
    QR_ASSERT(!f->gated && !f->product.add && h->x == f->product.out && h->stride == f->product.out_stride && h->n_rows == f->product.n_rows);
    QR_ASSERT(f->product.n_out == (h->n_heads + 2 * h->kv->n_kv_heads) * h->kv->head_dim && qr_few_heads(h));
    a->cache = qr_cache_of(h->kv, h->layer);
    a->cos_sin = h->cos_sin, a->slot = h->slot, a->n_heads = h->n_heads, a->n_rot = h->n_rot, a->half_cache = h->kv->dtype == QR_BF16;
}

/* As many blocks as the device has at a time, by shared memory. A multiprocessor has 1 KiB more of it than a block may ask for, and keeps that much of each. */
static unsigned int blocks_for(const struct qr_queue *q, int32_t n_tiles, size_t bytes)
{
    const size_t fit = ((size_t)q->shared_max + 1024) / (bytes + STATIC_BYTES + 1024), each = fit < 1 ? 1 : fit > BLOCKS_MAX ? BLOCKS_MAX : fit;
    const int64_t most = (int64_t)each * q->n_sms;
    return (unsigned int)(n_tiles < most ? n_tiles : most);
}

/* A power of two, or 0: what the cache of the second level may get of each column. */
static int32_t lines_for(const struct qr_queue *q, unsigned int n_blocks)
{
    const size_t most = AHEAD_BYTES / ((size_t)n_blocks * COLS * 128);
    int32_t lines = 1;
    while (2 * lines <= AHEAD_LINES && 2 * (size_t)lines <= most)
        lines *= 2;
    return q->overlaps && most > 0 ? lines : 0;
}

template <int KIND, bool WHOLE> static void launch(struct qr_queue *q, struct few *a)
{
    const size_t bytes = shared_bytes<KIND, WHOLE>(&a->product);
    size_t *allowed = &q->few_allowed[2 * KIND + WHOLE];
    if (bytes > *allowed) {
        QR_SHARED_ALLOW((few_rows<KIND, WHOLE>), bytes);
        *allowed = bytes;
    }
    const unsigned int n_blocks = blocks_for(q, a->n_tiles, bytes);
    a->lines = lines_for(q, n_blocks);
    QR_LAUNCH_NEXT((few_rows<KIND, WHOLE>), n_blocks, THREADS, bytes, q, *a);
}

void qr_cuda_few(struct qr_queue *q, const struct qr_few *f)
{
    QR_ASSERT(q != NULL && f != NULL && f->product.n_rows >= 1 && f->product.n_rows <= QR_FEW_ROWS && f->product.n_in > 0 && f->product.n_out > 0);
    QR_ASSERT((f->product.x == NULL) == (f->floats != NULL) && !(f->gated && f->product.add) && (f->product.x != NULL || f->product.x_scale == NULL));
    struct few a = {};
    a.product = f->product;
    a.floats = f->floats, a.norm_w = f->norm_w, a.floats_stride = f->floats_stride, a.eps = f->eps;
    a.act = f->act, a.clamp = f->clamp, a.halves = f->halves, a.halves_stride = f->halves_stride;
    a.width = width_of(f->product.n_in);
    if (f->norm_w)
        a.shape = qr_row_shape_of(f->product.n_in);
    set_form(&a, f);
    const int kind = kind_of(&a.product);
    const bool whole = keeps_rows(q, f);
    QR_ASSERT(whole || !f->floats);
    if (kind == CODED && whole)
        launch<CODED, true>(q, &a);
    else if (kind == CODED)
        launch<CODED, false>(q, &a);
    else if (kind == QR_PRODUCT_ANY)
        launch<QR_PRODUCT_ANY, false>(q, &a);
    else if (whole)
        launch<QR_PRODUCT_ALIGNED, true>(q, &a);
    else
        launch<QR_PRODUCT_ALIGNED, false>(q, &a);
}

QR_STOPS(few)
