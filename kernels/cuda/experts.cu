/* Mixtures of experts. Pairs of a row and one of its experts are sorted by expert, on the device; then one launch
 * multiplies all of them with their gates and ups and one with their downs, tiles of rows of one expert each, in
 * product.h's chains: what a row gets is linear's, to the bit, whichever rows want the same expert. At last each row
 * adds what its experts gave, in order of their numbers. No row is dropped: there are as many tiles as it takes. */
#include "kernels/cuda/codes.h"
#include "kernels/cuda/tiles.h"

#define WARPS 8
#define THREADS (WARPS * QR_WARP)
#define F32_TILE 16
#define CODES_COLS 64 /* of a block: experts are narrow, and blocks for all multiprocessors are wanted */

/* ---- route ---- */

/* Whether (a, i) comes before (b, j): larger first, NaN last, then the lower number. */
QR_DEVICE bool comes_before(float a, int32_t i, float b, int32_t j)
{
    const bool a_none = a != a, b_none = b != b;
    if (a_none != b_none)
        return b_none;
    return a > b || ((a == b || a_none) && i < j);
}

/* A warp a row. Experts lane, lane + 32, .. are a lane's. */
QR_KERNEL(THREADS) route(struct qr_route_args a)
{
    const int lane = threadIdx.x % QR_WARP;
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / QR_WARP;
    if (row >= a.n_rows) /* whole warps, and there is no barrier */
        return;
    const float *logits = a.logits + row * a.logits_stride;
    uint32_t taken = 0; /* of up to 32 experts of this lane */
    float most = 0, sum = 0;
    for (int32_t u = 0; u < a.n_used; u++) {
        float best = 0;
        int32_t id = INT32_MAX;
        for (int32_t e = lane; e < a.n_experts; e += QR_WARP)
            if (!(taken >> e / QR_WARP & 1u) && (id == INT32_MAX || comes_before(logits[e], e, best, id)))
                best = logits[e], id = e;
        for (int step = QR_WARP / 2; step > 0; step /= 2) {
            const float other = __shfl_xor_sync(QR_ALL_LANES, best, step);
            const int32_t its = __shfl_xor_sync(QR_ALL_LANES, id, step);
            if (its != INT32_MAX && (id == INT32_MAX || comes_before(other, its, best, id)))
                best = other, id = its;
        }
        if (id % QR_WARP == lane)
            taken |= 1u << id / QR_WARP;
        most = u == 0 && !a.sigmoid ? best : most;
        const float p = a.sigmoid ? 1.0f / (1.0f + expf(-best)) : expf(best - most);
        sum += a.normalize ? p : 0;
        if (lane == 0) {
            a.ids[row * a.n_used + u] = id;
            a.weights[row * a.n_used + u] = p;
        }
    }
    if (a.sigmoid && !a.normalize)
        return;
    for (int32_t e0 = 0; !a.sigmoid && !a.normalize && e0 < a.n_experts; e0 += QR_WARP) { /* in order of e: every lane adds all */
        const float p = e0 + lane < a.n_experts ? expf(logits[e0 + lane] - most) : 0;
        for (int32_t k = 0; k < QR_WARP && e0 + k < a.n_experts; k++)
            sum += __shfl_sync(QR_ALL_LANES, p, k);
    }
    if (lane == 0)
        for (int32_t u = 0; u < a.n_used; u++)
            a.weights[row * a.n_used + u] /= sum;
}

extern "C" void qr_cuda_route(struct qr_queue *q, const struct qr_route_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->ids != NULL && a->weights != NULL && a->logits != NULL);
    QR_ASSERT(a->n_used >= 1 && a->n_used <= a->n_experts && a->n_experts <= QR_EXPERTS_MAX);
    if (a->n_rows > 0)
        QR_LAUNCH(route, qr_blocks(a->n_rows, WARPS), THREADS, 0, q, *a);
}

/* ---- which row goes where ---- */

/* Pair p is row p / n_used's. What is sorted: pair[i] is the pair in place i, place[p] where pair p is; tiles as struct qr_product_shares has them. */
struct sorting {
    const int32_t *ids;
    int32_t *count, *pair, *place;                /* [n_experts], [n_pairs] twice */
    int32_t *n_tiles, *matrix, *first, *end;      /* 1, [tiles_max] three times */
    int32_t n_pairs, n_experts, tile;
};

/* A warp an expert. */
QR_KERNEL(THREADS) count_pairs(struct sorting a)
{
    const int lane = threadIdx.x % QR_WARP;
    const int32_t e = (int32_t)(blockIdx.x * WARPS + threadIdx.x / QR_WARP);
    int32_t n = 0;
    if (e >= a.n_experts)
        return;
    for (int32_t p = lane; p < a.n_pairs; p += QR_WARP) {
        QR_DEVICE_ASSERT(a.ids[p] >= 0 && a.ids[p] < a.n_experts);
        n += a.ids[p] == e;
    }
    n = __reduce_add_sync(QR_ALL_LANES, n);
    if (lane == 0)
        a.count[e] = n;
}

QR_KERNEL(THREADS) place_pairs(struct sorting a)
{
    const int lane = threadIdx.x % QR_WARP;
    const int32_t e = (int32_t)(blockIdx.x * WARPS + threadIdx.x / QR_WARP);
    int32_t at = 0, tile = 0;
    if (e >= a.n_experts)
        return;
    for (int32_t k = lane; k < e; k += QR_WARP)
        at += a.count[k], tile += (a.count[k] + a.tile - 1) / a.tile;
    at = __reduce_add_sync(QR_ALL_LANES, at);
    tile = __reduce_add_sync(QR_ALL_LANES, tile);
    const int32_t n = a.count[e], end = at + n;
    for (int32_t t = lane; t * a.tile < n; t += QR_WARP) {
        a.matrix[tile + t] = e;
        a.first[tile + t] = at + t * a.tile;
        a.end[tile + t] = at + t * a.tile + a.tile < end ? at + t * a.tile + a.tile : end;
    }
    if (e == a.n_experts - 1 && lane == 0)
        *a.n_tiles = tile + (n + a.tile - 1) / a.tile;
    for (int32_t p0 = 0; at < end && p0 < a.n_pairs; p0 += QR_WARP) { /* in order of pairs */
        const int32_t p = p0 + lane;
        const bool mine = p < a.n_pairs && a.ids[p] == e;
        const uint32_t all = __ballot_sync(QR_ALL_LANES, mine);
        if (mine) {
            const int32_t i = at + __popc(all & ((1u << lane) - 1));
            a.pair[i] = p;
            a.place[p] = i;
        }
        at += __popc(all);
    }
}

/* ---- products ---- */

/* Of one of the stack's matrices, n outputs. */
QR_DEVICE const float *bias_of(const float *biases, int32_t matrix, int32_t n)
{
    return biases ? biases + (int64_t)matrix * n : NULL;
}

template <int BM, int BN, int BK, int WARPS_M, int WARPS_N, int STAGES, int KIND>
QR_KERNEL(WARPS_M * WARPS_N * QR_WARP) share_bf16(struct qr_product a, struct qr_product_shares s)
{
    QR_SHARED(uint16_t, shared);
    const int32_t t = (int32_t)blockIdx.y;
    if (t >= *s.n_tiles) /* the whole block */
        return;
    const int64_t by = s.matrix[t] * s.stack_bytes;
    const struct qr_product_place at = {s.first[t], s.end[t], (int32_t)blockIdx.x * BN, s.x_row, s.per_row};
    if (KIND == QR_PRODUCT_ANY && a.coded.form != QR_CODED_NONE)
        a.coded = qr_coded_moved(a.coded, by);
    else
        a.w = (const uint16_t *)((const char *)a.w + by);
    a.bias = bias_of(a.bias, s.matrix[t], a.n_out);
    qr_product_tile<BM, BN, BK, WARPS_M, WARPS_N, STAGES, KIND>(shared, a, at);
}

/* Codes that come in pieces of 16 bytes. */
template <int ROWS> QR_KERNEL(QR_CODES_THREADS) share_codes(struct qr_product a, struct qr_product_shares s)
{
    QR_SHARED(uint8_t, shared);
    const int32_t t = (int32_t)blockIdx.y;
    if (t >= *s.n_tiles) /* the whole block */
        return;
    const struct qr_product_place at = {s.first[t], s.end[t], (int32_t)blockIdx.x * CODES_COLS, s.x_row, s.per_row};
    a.coded = qr_coded_moved(a.coded, s.matrix[t] * s.stack_bytes);
    a.bias = bias_of(a.bias, s.matrix[t], a.n_out);
    qr_codes_tile<ROWS, CODES_COLS>(shared, a, at);
}

struct share_numbers {
    float *out;
    const float *x, *w, *bias;
    int64_t out_stride, x_stride;
    int32_t n_in, n_out;
};

/* linear.cu's f32 chain: fused additions from 0 upwards. Not for speed. */
QR_KERNEL(F32_TILE *F32_TILE) share_f32(struct share_numbers a, struct qr_product_shares s)
{
    const int32_t t = (int32_t)blockIdx.y, c = (int32_t)blockIdx.x * F32_TILE + (int32_t)threadIdx.x % F32_TILE;
    if (t >= *s.n_tiles || c >= a.n_out)
        return;
    const float *w = (const float *)((const char *)a.w + s.matrix[t] * s.stack_bytes) + (int64_t)c * a.n_in;
    for (int32_t r = s.first[t] + (int32_t)threadIdx.x / F32_TILE; r < s.end[t]; r += F32_TILE) {
        const float *x = a.x + (s.x_row ? s.x_row[r] / s.per_row : r) * a.x_stride;
        float sum = 0;
        for (int32_t k = 0; k < a.n_in; k++)
            sum = fmaf(x[k], w[k], sum);
        a.out[r * a.out_stride + c] = a.bias ? sum + bias_of(a.bias, s.matrix[t], a.n_out)[c] : sum;
    }
}

/* out[i,:] of all places i, from x's rows by pair or by place. `x` is bf16, or f32 with f32 weights. */
struct stack_product {
    float *out;
    const void *x;
    const struct qr_weight *w;
    const float *bias; /* [E, n_out] or NULL */
    int64_t x_stride;
    struct qr_product_shares shares;
    int32_t tiles_max;
    bool few; /* tiles of 16 rows, else 64 */
};

template <int BM, int BN, int BK, int WARPS_M, int WARPS_N, int STAGES, int KIND>
static void launch_shares(struct qr_queue *q, const struct qr_product *a, const struct stack_product *p)
{
    const size_t bytes = QR_PRODUCT_SHARED(BM, BN, BK, STAGES);
    QR_FITS_EVERYWHERE(QR_PRODUCT_SHARED(BM, BN, BK, STAGES));
    QR_FITS_PLAIN(BM == 16 ? 0 : QR_PRODUCT_SHARED(BM, BN, BK, STAGES)); /* the launch sets none */
    const dim3 grid(qr_blocks(a->n_out, BN), (unsigned int)p->tiles_max);
    if (BM == 16 && !q->experts_allowed[0])
        QR_SHARED_ALLOW((share_bf16<BM, BN, BK, WARPS_M, WARPS_N, STAGES, KIND>), bytes);
    q->experts_allowed[0] = q->experts_allowed[0] || BM == 16;
    QR_LAUNCH((share_bf16<BM, BN, BK, WARPS_M, WARPS_N, STAGES, KIND>), grid, WARPS_M * WARPS_N * QR_WARP, bytes, q, *a, p->shares);
}

template <int ROWS> static void launch_codes(struct qr_queue *q, const struct qr_product *a, const struct stack_product *p)
{
    typedef struct qr_codes<ROWS, CODES_COLS> of;
    bool *allowed = &q->experts_allowed[ROWS == 16 ? 1 : 2];
    QR_FITS_EVERYWHERE(of::ALL);
    if (!*allowed)
        QR_SHARED_ALLOW(share_codes<ROWS>, of::ALL);
    *allowed = true;
    QR_LAUNCH(share_codes<ROWS>, dim3(qr_blocks(a->n_out, CODES_COLS), (unsigned int)p->tiles_max), QR_CODES_THREADS, of::ALL, q, *a, p->shares);
}

/* Whatever does: what a row gets is the same. */
static void launch_best(struct qr_queue *q, const struct qr_product *a, const struct stack_product *p)
{
    const bool whole = p->w->stack_bytes % 16 == 0;
    if (whole && qr_product_has_pieces(a) && p->few)
        launch_codes<16>(q, a, p);
    else if (whole && qr_product_has_pieces(a))
        launch_codes<64>(q, a, p);
    else if (!whole || qr_product_kind(a) != QR_PRODUCT_ALIGNED) /* no width that models have */
        launch_shares<64, 64, 64, 2, 2, 3, QR_PRODUCT_ANY>(q, a, p);
    else if (p->few)
        launch_shares<16, 16, 256, 1, 2, 4, QR_PRODUCT_ALIGNED>(q, a, p);
    else
        launch_shares<64, 64, 64, 2, 2, 3, QR_PRODUCT_ALIGNED>(q, a, p);
}

static void multiply_stack(struct qr_queue *q, const struct stack_product *p)
{
    const int32_t n_out = (int32_t)p->w->t.shape[1], n_in = (int32_t)p->w->t.shape[2];
    if (p->w->packed_dtype == QR_F32) {
        const struct share_numbers a = {p->out, (const float *)p->x, (const float *)p->w->packed, p->bias, n_out,
                                        p->x_stride, n_in, n_out};
        QR_LAUNCH(share_f32, dim3(qr_blocks(n_out, F32_TILE), (unsigned int)p->tiles_max), F32_TILE * F32_TILE, 0, q, a, p->shares);
        return;
    }
    struct qr_product a = {p->out, (const uint16_t *)p->x, (const uint16_t *)p->w->packed, p->bias, n_out, p->x_stride, 0, n_in,
                           n_out, false, {}, NULL};
    if (p->w->packed_dtype != QR_BF16)
        a.coded = qr_coded_of(p->w->packed, p->w->packed_dtype, n_out, n_in);
    launch_best(q, &a, p);
}

/* ---- between and behind the products ---- */

struct gates {
    uint16_t *half; /* where it goes as bf16, rows `stride` apart, zeros behind the last number; or */
    float *out;
    const float *gate_up;
    int64_t stride;
    int32_t n_cols;
    struct qr_clamp clamp;
};

/* glu's unit, a block a row, rounded as a product rounds what it reads. */
template <enum qr_act ACT> QR_KERNEL(THREADS) gate_rows(struct gates a)
{
    const float *gate = a.gate_up + (int64_t)blockIdx.x * 2 * a.n_cols;
    for (int32_t i = (int32_t)threadIdx.x; i < a.stride; i += THREADS) {
        const float y = i < a.n_cols ? qr_gate<ACT>(gate[i], gate[a.n_cols + i], a.clamp) : 0;
        if (a.half)
            a.half[blockIdx.x * a.stride + i] = (uint16_t)qr_to_bf16(y);
        else
            a.out[blockIdx.x * a.stride + i] = y;
    }
}

struct sums {
    float *out;
    const float *y, *weights; /* y: by place */
    const int32_t *ids, *place;
    int64_t out_stride;
    int32_t n_cols, n_used;
};

/* A block a row and a stretch of columns. out = fma(weight, y, out), in order of experts: the u-th of them is the one that u others come before. */
QR_KERNEL(THREADS) add_experts(struct sums a)
{
    QR_SHARED(int32_t, order);
    const int64_t row = blockIdx.y;
    const int32_t *ids = a.ids + row * a.n_used;
    for (int32_t u = (int32_t)threadIdx.x; u < a.n_used; u += THREADS) {
        int32_t before = 0;
        for (int32_t k = 0; k < a.n_used; k++)
            before += ids[k] < ids[u];
        order[before] = u;
    }
    __syncthreads();
    const int32_t i = (int32_t)(blockIdx.x * THREADS + threadIdx.x);
    if (i >= a.n_cols)
        return;
    float sum = a.out[row * a.out_stride + i];
    for (int32_t k = 0; k < a.n_used; k++) {
        const int64_t p = row * a.n_used + order[k];
        sum = fmaf(a.weights[p], a.y[(int64_t)a.place[p] * a.n_cols + i], sum);
    }
    a.out[row * a.out_stride + i] = sum;
}

/* ---- experts ---- */

/* Scratch of a piece of rows. Gates and ups are gone when downs come, so these share their place. */
struct room {
    uint16_t *x;          /* [rows][x_stride] bf16 */
    void *gated;          /* [pairs][f_stride] bf16, or f32 */
    float *wide;          /* [pairs][max(2 F, D)] */
    int32_t *lists;
    int64_t x_stride, f_stride;
    int32_t rows, tiles_max, tile;
};

static size_t whole(size_t n_bytes)
{
    return (n_bytes + 255) / 256 * 256;
}

/* Bytes that `rows` rows take, and where things are with them. */
static size_t lay_out(struct room *r, uint8_t *scratch, const struct qr_experts_args *a, int32_t rows)
{
    const int64_t n_experts = a->down->t.shape[0], n_embd = a->down->t.shape[1], n_ffn = a->down->t.shape[2], pairs = (int64_t)rows * a->n_used;
    const bool narrow = a->down->packed_dtype != QR_F32;
    const int64_t mean = pairs / n_experts;
    r->rows = rows;
    r->tile = mean <= 16 ? 16 : 64;
    r->tiles_max = (int32_t)(pairs < pairs / r->tile + n_experts ? pairs : pairs / r->tile + n_experts);
    r->x_stride = narrow ? qr_whole_chunks(n_embd) : 0;
    r->f_stride = narrow ? qr_whole_chunks(n_ffn) : n_ffn;
    uint8_t *at = scratch;
    r->x = (uint16_t *)at, at += whole((size_t)(rows * r->x_stride) * sizeof *r->x);
    r->gated = at, at += whole((size_t)(pairs * r->f_stride) * (narrow ? sizeof(uint16_t) : sizeof(float)));
    r->wide = (float *)at, at += whole((size_t)(pairs * (2 * n_ffn > n_embd ? 2 * n_ffn : n_embd)) * sizeof(float));
    r->lists = (int32_t *)at, at += whole((size_t)(n_experts + 2 * pairs + 1 + 3 * (int64_t)r->tiles_max) * sizeof(int32_t));
    return (size_t)(at - scratch);
}

static struct sorting sort_pairs(struct qr_queue *q, const struct room *r, const int32_t *ids, int32_t n_pairs, int32_t n_experts)
{
    struct sorting s = {};
    s.ids = ids, s.n_pairs = n_pairs, s.n_experts = n_experts, s.tile = r->tile;
    s.count = r->lists, s.pair = s.count + n_experts, s.place = s.pair + n_pairs, s.n_tiles = s.place + n_pairs;
    s.matrix = s.n_tiles + 1, s.first = s.matrix + r->tiles_max, s.end = s.first + r->tiles_max;
    QR_LAUNCH(count_pairs, qr_blocks(n_experts, WARPS), THREADS, 0, q, s);
    QR_LAUNCH(place_pairs, qr_blocks(n_experts, WARPS), THREADS, 0, q, s);
    return s;
}

static void gate(struct qr_queue *q, const struct qr_experts_args *a, const struct room *r, int64_t n_pairs)
{
    struct gates g = {};
    if (a->down->packed_dtype != QR_F32)
        g.half = (uint16_t *)r->gated;
    else
        g.out = (float *)r->gated;
    g.gate_up = r->wide, g.stride = r->f_stride, g.n_cols = (int32_t)a->down->t.shape[2], g.clamp = a->clamp;
    if (a->act == QR_ACT_SILU)
        QR_LAUNCH(gate_rows<QR_ACT_SILU>, (unsigned int)n_pairs, THREADS, 0, q, g);
    else if (a->act == QR_ACT_GELU_TANH)
        QR_LAUNCH(gate_rows<QR_ACT_GELU_TANH>, (unsigned int)n_pairs, THREADS, 0, q, g);
    else
        QR_LAUNCH(gate_rows<QR_ACT_CLAMPED>, (unsigned int)n_pairs, THREADS, 0, q, g);
}

/* Rows [first, first + r->rows). */
static void run_piece(struct qr_queue *q, const struct qr_experts_args *a, const struct room *r, int32_t first)
{
    const int32_t n_experts = (int32_t)a->down->t.shape[0], n_embd = (int32_t)a->down->t.shape[1], n_pairs = r->rows * a->n_used;
    const bool narrow = a->down->packed_dtype != QR_F32;
    const int32_t *ids = a->ids + (int64_t)first * a->n_used;
    const float *x = a->x + first * a->x_stride;
    const struct sorting s = sort_pairs(q, r, ids, n_pairs, n_experts);
    const struct qr_narrow half = {r->x, x, NULL, r->x_stride, a->x_stride, r->rows, n_embd, 0};
    if (narrow)
        qr_cuda_narrow(q, &half);
    struct stack_product p = {};
    p.out = r->wide, p.x = narrow ? (const void *)r->x : (const void *)x, p.x_stride = narrow ? r->x_stride : a->x_stride;
    p.w = a->gate_up, p.bias = a->gate_up_bias;
    p.shares.n_tiles = s.n_tiles, p.shares.matrix = s.matrix, p.shares.first = s.first, p.shares.end = s.end;
    p.shares.x_row = s.pair, p.shares.per_row = a->n_used, p.shares.stack_bytes = (int64_t)a->gate_up->stack_bytes;
    p.tiles_max = r->tiles_max, p.few = r->tile == 16;
    multiply_stack(q, &p);
    gate(q, a, r, n_pairs);
    p.x = r->gated, p.w = a->down, p.bias = a->down_bias, p.x_stride = r->f_stride;
    p.shares.x_row = NULL, p.shares.stack_bytes = (int64_t)a->down->stack_bytes;
    multiply_stack(q, &p);
    const struct sums add = {a->out + first * a->out_stride, r->wide, a->weights + (int64_t)first * a->n_used, ids, s.place, a->out_stride, n_embd, a->n_used};
    QR_LAUNCH(add_experts, dim3(qr_blocks(n_embd, THREADS), (unsigned int)r->rows), THREADS, (size_t)a->n_used * sizeof(int32_t), q, add);
}

/* What the arguments have room for is the processor's: here it is scratch, so that it does not grow with the rows. */
extern "C" void qr_cuda_experts(struct qr_queue *q, const struct qr_experts_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->gate_up != NULL && a->down != NULL && a->ids != NULL && a->weights != NULL);
    QR_ASSERT(a->gate_up->t.n_dims == 3 && a->down->t.n_dims == 3 && a->gate_up->t.shape[0] == a->down->t.shape[0]);
    QR_ASSERT(a->gate_up->t.shape[1] == 2 * a->down->t.shape[2] && a->gate_up->t.shape[2] == a->down->t.shape[1]);
    QR_ASSERT((a->gate_up->packed_dtype == QR_F32) == (a->down->packed_dtype == QR_F32));
    struct room r;
    int32_t rows = a->n_rows < 65535 ? a->n_rows : 65535; /* a grid's second side */
    while (rows > 1 && lay_out(&r, (uint8_t *)q->scratch, a, rows) > q->scratch_bytes)
        rows = (rows + 1) / 2;
    for (int32_t first = 0; first < a->n_rows; first += rows) {
        const int32_t n = a->n_rows - first < rows ? a->n_rows - first : rows;
        QR_ASSERT(lay_out(&r, (uint8_t *)q->scratch, a, n) <= q->scratch_bytes && r.tiles_max <= 65535);
        run_piece(q, a, &r, first);
    }
}

QR_STOPS(experts)
