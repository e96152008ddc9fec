/* Products with up to 16 rows: weights pass by once, at the speed of memory, and what stands beside a product in a decode step happens meanwhile, in one
 * launch.
 *
 * A block has two warps and 16 columns at a time, in two halves of eight: the next 16 of a matrix; or eight gates and their ups; or eight pairs that the
 * rotation turns. It goes from tile to tile (as many blocks as fit the device), and the ring of stages goes on through the border of two tiles. Of up to eight
 * rows a block makes bf16 itself, while its first weights are under way: the sum of squares of a norm in the order of widths.h, so that rms_norm, narrow_rows
 * and this give the same bits. With more rows that would cost more than it saves: all blocks would read all rows twice.
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
#define STAGES 4
#define WHOLE_ROWS 8              /* that a block may make bf16 */
#define WHOLE_BYTES (64 * 1024)   /* which take so much shared memory at most: with the stages, what every device has */
#define BLOCKS_MAX 6              /* of a multiprocessor */
#define STATIC_BYTES 3072         /* at most, of shared memory besides */

enum form { PLAIN, GATED, HEADS };

struct few {
    struct qr_product product;
    const float *floats, *norm_w;
    int64_t floats_stride;
    float eps;
    struct qr_row_shape shape;    /* in which rows are summed */
    int32_t width;                /* of a row in shared memory: a multiple of DEPTH */
    bool fours;                   /* rows and norm_w can be read as float4 */
    int32_t n_tiles;
    enum form form;
    enum qr_act act;
    uint16_t *halves;
    int64_t halves_stride;
    struct qr_cache cache;        /* of heads */
    const float *cos_sin;
    const int32_t *slot;
    int32_t n_heads, n_rot;
    bool half_cache;              /* bf16, else f32 */
};

/* ---- rows become bf16 ---- */

QR_DEVICE float4 four_of(const struct few &a, const float *row, int32_t i)
{
    return a.fours ? qr_load4<true>(row, i, a.product.n_in) : qr_load4<false>(row, i, a.product.n_in);
}

/* What each of a row's warps sums in widths.h: these two warps stand for all of them. */
QR_DEVICE void sum_squares(const struct few &a, float *partial)
{
    const int32_t lane = (int32_t)threadIdx.x % QR_WARP, n = a.product.n_rows * a.shape.warps, step = QR_ROW_STEP(a.shape.warps);
#pragma unroll 2
    for (int32_t i = (int32_t)threadIdx.x / QR_WARP; i < n; i += WARPS) {
        const float *row = a.floats + i / a.shape.warps * a.floats_stride;
        const int32_t first = 4 * (i % a.shape.warps * QR_WARP + lane);
        float sum = 0;
#pragma unroll 4
        for (int32_t j = 0; j < a.shape.fours; j++) {
            const float4 v = four_of(a, row, first + j * step);
            sum = qr_dot4(sum, v, v);
        }
        sum = qr_warp_sum(sum);
        if (lane == 0)
            partial[i] = sum;
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

/* All rows, in chunks as the product reads them. */
QR_DEVICE void narrow(uint16_t *x, const struct few &a, const float *scale)
{
    const int32_t per_row = a.width / QR_CHUNK, n = a.product.n_rows * per_row;
#pragma unroll 4
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += THREADS) {
        const int32_t r = i / per_row, c = i % per_row, k = c * QR_CHUNK;
        const float *row = a.floats + r * a.floats_stride;
        float4 u = four_of(a, row, k), v = four_of(a, row, k + 4);
        if (a.norm_w) {
            u = qr_mul4(qr_scale4(u, scale[r]), four_of(a, a.norm_w, k));
            v = qr_mul4(qr_scale4(v, scale[r]), four_of(a, a.norm_w, k + 4));
        }
        *(uint4 *)qr_chunk_in(x, a.width, r, c) = make_uint4(two_halves(u.x, u.y), two_halves(u.z, u.w), two_halves(v.x, v.y), two_halves(v.z, v.w));
    }
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

/* Of a tile's weights those that thread number i fetches. */
template <int KIND> QR_DEVICE void fetch_chunk(uint16_t *to, const struct few &a, const struct columns &at, int32_t k0, int i)
{
    const int r = i / (DEPTH / QR_CHUNK), c = i % (DEPTH / QR_CHUNK);
    const int32_t first = r < HALF ? at.low : at.high, n = r < HALF ? at.n_low : at.n_high, k = k0 + c * QR_CHUNK;
    qr_product_fetch_weights<KIND>(qr_chunk_of<DEPTH>(to, r, c), a.product, first + r % HALF, k, r % HALF < n && k < a.product.n_in);
}

template <int KIND> QR_DEVICE void fetch_columns(uint16_t *to, const struct few &a, const struct columns &at, int32_t k0)
{
    const int n = COLS * DEPTH / QR_CHUNK;
    if (KIND == QR_PRODUCT_ALIGNED) {
#pragma unroll
        for (int i = 0; i < n; i += THREADS)
            fetch_chunk<KIND>(to, a, at, k0, i + (int)threadIdx.x);
    } else {
#pragma unroll 1 /* what decodes is long */
        for (int i = 0; i < n; i += THREADS)
            fetch_chunk<KIND>(to, a, at, k0, i + (int)threadIdx.x);
    }
}

/* What comes next on its way to the ring: tiles of this block one after the other, each over all inputs. */
struct next {
    struct columns at;
    int32_t tile, k0;
};

template <int KIND, bool WHOLE> QR_DEVICE void fetch_next(uint16_t *stage, const struct few &a, struct next *n)
{
    if (n->tile < a.n_tiles) {
        const struct qr_product_place rows = {0, a.product.n_rows, 0, NULL, 1};
        if (!WHOLE)
            qr_product_fetch_rows<QR_FEW_ROWS, DEPTH, THREADS, KIND>(stage + COLS * DEPTH, a.product, rows, n->k0);
        fetch_columns<KIND>(stage, a, n->at, n->k0);
        n->k0 += DEPTH;
        if (n->k0 >= a.product.n_in) {
            n->tile += (int32_t)gridDim.x;
            n->k0 = 0;
            n->at = columns_of(a, n->tile);
        }
    }
    qr_cp_async_commit();
}

/* Sums of this warp's eight columns over the inputs of a stage, in pairs of steps. */
template <bool WHOLE> QR_DEVICE void multiply(float sum[4], uint16_t *stage, uint16_t *x, const uint16_t *zeros, const struct few &a, int32_t k0)
{
    const int32_t lane = (int32_t)threadIdx.x % QR_WARP, warp = (int32_t)threadIdx.x / QR_WARP, r = lane % 8, j = lane / 8;
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k += 2) {
        uint32_t xa[2][4] = {}, wb[4];
        qr_ldmatrix<4>(wb, qr_chunk_of<DEPTH>(stage, warp * HALF + r, 2 * k + j));
        if (WHOLE) { /* rows 8 to 15 are none */
            uint32_t both[4];
            qr_ldmatrix<4>(both, r < a.product.n_rows ? qr_chunk_in(x, a.width, r, k0 / QR_CHUNK + 2 * k + j) : zeros);
            xa[0][0] = both[0], xa[0][2] = both[1], xa[1][0] = both[2], xa[1][2] = both[3];
        } else {
#pragma unroll
            for (int i = 0; i < 2; i++)
                qr_ldmatrix<4>(xa[i], qr_chunk_of<DEPTH>(stage + COLS * DEPTH, lane % 16, 2 * (k + i) + lane / 16));
        }
        qr_mma_bf16(sum, xa[0], wb);
        qr_mma_bf16(sum, xa[1], wb + 2);
    }
}

/* ---- what becomes of a tile ---- */

QR_DEVICE void put_gated(const struct few &a, const struct columns &at, int32_t row, int32_t i, float gate, float up)
{
    const bool there = i < at.n_low;
    const float unit = a.act == QR_ACT_SILU ? qr_activate<QR_ACT_SILU>(gate) : qr_activate<QR_ACT_GELU_TANH>(gate), y = there ? unit * up : 0;
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

/* The sums of a finished tile. Halves of which each needs the other meet in `staged` [QR_FEW_ROWS][COLS]. All of the block call it. */
template <int KIND> QR_DEVICE void put_tile(const struct few &a, const float sum[4], float *staged, int32_t tile)
{
    const int32_t lane = (int32_t)threadIdx.x % QR_WARP, warp = (int32_t)threadIdx.x / QR_WARP;
    const struct columns at = columns_of(a, tile);
    const int32_t first = warp ? at.high : at.low, n = warp ? at.n_high : at.n_low;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int32_t row = lane / 4 + k / 2 * 8, i = 2 * (lane % 4) + k % 2;
        if (row >= a.product.n_rows || i >= n)
            continue;
        const float y = qr_product_result<KIND>(a.product, row, first + i, sum[k]);
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

template <int KIND, bool WHOLE> QR_KERNEL(THREADS) few_rows(struct few a)
{
    const int STAGE = (WHOLE ? COLS : COLS + QR_FEW_ROWS) * DEPTH;
    QR_SHARED(uint16_t, shared); /* stages, then rows */
    QR_SHARED_ARRAY(float, staged, QR_FEW_ROWS * COLS);
    QR_SHARED_ARRAY(float, partial, WHOLE_ROWS * QR_WARP);
    QR_SHARED_ARRAY(float, scale, WHOLE_ROWS);
    QR_SHARED_ARRAY(uint4, zeros, 1);
    struct next next = {columns_of(a, (int32_t)blockIdx.x), (int32_t)blockIdx.x, 0};
    uint16_t *x = shared + STAGES * STAGE;
#pragma unroll 1
    for (int s = 0; s < STAGES - 1; s++)
        fetch_next<KIND, WHOLE>(shared + s * STAGE, a, &next);
    if (WHOLE) {
        if (threadIdx.x == 0)
            zeros[0] = make_uint4(0, 0, 0, 0);
        if (a.norm_w) {
            sum_squares(a, partial);
            __syncthreads();
            find_scales(a, scale, partial);
            __syncthreads();
        }
        narrow(x, a, scale);
    }
    int32_t stage = 0;
    for (int32_t tile = (int32_t)blockIdx.x; tile < a.n_tiles; tile += (int32_t)gridDim.x) {
        float sum[4] = {0, 0, 0, 0};
        for (int32_t k0 = 0; k0 < a.product.n_in; k0 += DEPTH) {
            qr_cp_async_wait<STAGES - 2>();
            __syncthreads(); /* this stage and the rows are there; what was read of the last stage, and of `staged`, is used up */
            fetch_next<KIND, WHOLE>(shared + (stage + STAGES - 1) % STAGES * STAGE, a, &next);
            multiply<WHOLE>(sum, shared + stage * STAGE, x, (const uint16_t *)zeros, a, k0);
            stage = (stage + 1) % STAGES;
        }
        put_tile<KIND>(a, sum, staged, tile);
    }
}

/* ---- the host's side ---- */

static int32_t width_of(int32_t n_in)
{
    return (n_in + DEPTH - 1) / DEPTH * DEPTH;
}

static size_t stage_bytes(bool whole)
{
    return (size_t)(whole ? COLS : COLS + QR_FEW_ROWS) * DEPTH * sizeof(uint16_t);
}

bool qr_few_narrows(const struct qr_queue *q, int32_t n_rows, int32_t n_in)
{
    QR_ASSERT(q != NULL);
    QR_ASSERT(n_rows > 0 && n_in > 0);
    const size_t rows = (size_t)n_rows * (size_t)width_of(n_in) * sizeof(uint16_t);
    return n_rows <= WHOLE_ROWS && rows <= WHOLE_BYTES && STAGES * stage_bytes(true) + rows + STATIC_BYTES <= (size_t)q->shared_max;
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

template <int KIND, bool WHOLE> static void launch(struct qr_queue *q, const struct few *a)
{
    const size_t bytes = STAGES * stage_bytes(WHOLE) + (WHOLE ? (size_t)a->product.n_rows * (size_t)a->width * sizeof(uint16_t) : 0);
    size_t *allowed = &q->few_allowed[2 * KIND + WHOLE];
    if (bytes > *allowed) {
        QR_SHARED_ALLOW((few_rows<KIND, WHOLE>), bytes);
        *allowed = bytes;
    }
    QR_LAUNCH((few_rows<KIND, WHOLE>), blocks_for(q, a->n_tiles, bytes), THREADS, bytes, q->stream, *a);
}

void qr_cuda_few(struct qr_queue *q, const struct qr_few *f)
{
    QR_ASSERT(q != NULL && f != NULL && f->product.n_rows >= 1 && f->product.n_rows <= QR_FEW_ROWS && f->product.n_in > 0 && f->product.n_out > 0);
    QR_ASSERT((f->product.x == NULL) == (f->floats != NULL) && !(f->gated && f->product.add) && (f->product.x != NULL || f->product.x_scale == NULL));
    struct few a = {};
    a.product = f->product;
    a.floats = f->floats, a.norm_w = f->norm_w, a.floats_stride = f->floats_stride, a.eps = f->eps;
    a.act = f->act, a.halves = f->halves, a.halves_stride = f->halves_stride;
    a.width = width_of(f->product.n_in);
    a.fours = qr_in_fours(QR_ADDRESS(f->floats) | QR_ADDRESS(f->norm_w), f->product.n_in | f->floats_stride);
    if (f->norm_w)
        a.shape = qr_row_shape_of(f->product.n_in);
    set_form(&a, f);
    const bool aligned = qr_product_kind(&a.product) == QR_PRODUCT_ALIGNED, whole = f->floats != NULL;
    QR_ASSERT(!whole || qr_few_narrows(q, f->product.n_rows, f->product.n_in));
    if (aligned && whole)
        launch<QR_PRODUCT_ALIGNED, true>(q, &a);
    else if (aligned)
        launch<QR_PRODUCT_ALIGNED, false>(q, &a);
    else if (whole)
        launch<QR_PRODUCT_ANY, true>(q, &a);
    else
        launch<QR_PRODUCT_ANY, false>(q, &a);
}
