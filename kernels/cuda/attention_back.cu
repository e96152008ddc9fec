/* Gradients of attention (backward.h), without atomics: one kernel owns rows of dq and walks over positions, another owns positions of dk and dv and walks over
 * heads and rows. Both make probabilities again from the saved log-sum-exp, in tiles of 64 rows of one head against 64 positions (of 32 against 32 with heads
 * of more than 128 numbers). */
#include "kernels/cuda/paged.h"
#include "kernels/cuda/queue.h"

#define PLAIN_TILE 64
#define PLAIN_THREADS 128

struct attention_back {
    float *dq, *dk, *dv, *delta; /* delta [N, H]: dout . out */
    const float *dout, *out, *q, *lse;
    const int32_t *row_start;
    struct qr_paged kv;
    int64_t dq_stride, dk_stride, dv_stride, dout_stride, out_stride, q_stride;
    int32_t n_rows, n_seqs, n_heads, group, window;
    float before, after, scale; /* before, after: as in attention.cu */
    bool fresh;
};

/* ---- what both kinds of kernel share ---- */

/* Tile number `at` of all sequences; *tile counts within its sequence. */
QR_DEVICE int32_t find_tile(const struct attention_back &a, int32_t at, int32_t height, int32_t *tile)
{
    int32_t s = 0;
    for (; s < a.n_seqs - 1; s++) {
        const int32_t n = (a.row_start[s + 1] - a.row_start[s] + height - 1) / height;
        if (at < n)
            break;
        at -= n;
    }
    *tile = at;
    return s;
}

QR_DEVICE bool sees(const struct attention_back &a, int32_t row, int32_t t)
{
    return t <= row && (a.window == 0 || t > row - a.window);
}

/* The probability of a score and the gradient of the unscaled one; the cap as forwards, in tiles (TILES) and plain. */
template <bool TILES>
QR_DEVICE void weigh(float *p, float *ds, float score, float dp, float lse, float delta, const struct attention_back &a)
{
    float slope = 1;
    if (a.before != 0) {
        score = TILES ? qr_bend(score * a.before) : tanhf(score * a.before);
        slope = fmaf(-score, score, 1.0f);
    }
    *p = qr_exp2(fmaf(score, a.after, -lse * QR_LOG2_E));
    *ds = *p * (dp - delta) * slope;
}

QR_DEVICE void add_to(float *to, float x, bool fresh)
{
    *to = (fresh ? 0.0f : *to) + x;
}

/* delta: a warp a row and head. */
QR_KERNEL(256) find_deltas(struct attention_back a)
{
    const int64_t at = (int64_t)blockIdx.x * 8 + threadIdx.x / QR_WARP, row = at / a.n_heads;
    const int32_t head = (int32_t)(at % a.n_heads), lane = (int32_t)threadIdx.x % QR_WARP;
    float sum = 0;
    for (int32_t i = lane; row < a.n_rows && i < a.kv.head_dim; i += QR_WARP)
        sum = fmaf(a.dout[row * a.dout_stride + head * a.kv.head_dim + i], a.out[row * a.out_stride + head * a.kv.head_dim + i], sum);
    sum = qr_warp_sum(sum);
    if (row < a.n_rows && lane == 0)
        a.delta[at] = sum;
}

/* ---- bf16 ---- */

/* Heads of up to D numbers, padded with zeros: four warps share 64 rows (or, of dk and dv, 64 positions). With 256 numbers tiles have 32 rows and positions,
 * so that they fit into the shared memory of all devices; two warps share the rows and two the columns. */
template <int D> struct shape {
    enum {
        TILE = D == 256 ? 32 : 64,
        DOWN = TILE / 16,
        BESIDE = 4 / DOWN,
        THREADS = 4 * QR_WARP,
        KEYS = TILE / BESIDE,
        EIGHTS = KEYS / 8,
        COLS = D / BESIDE,
        OUT_EIGHTS = COLS / 8,
        WEIGHTS = 64, /* numbers between rows of p and ds: eight chunks of 16 bytes */
        BYTES = (4 * TILE * D + 2 * TILE * WEIGHTS) * 2,
    };
};

template <int D> struct tiles { /* in shared memory */
    uint16_t *keys, *values, *queries, *douts; /* [TILE][D] */
    uint16_t *p, *ds;                          /* [TILE rows][WEIGHTS], a column a position */
    int32_t down, beside, lane;
};

template <int D> QR_DEVICE void tiles_begin(struct tiles<D> *s, unsigned char *shared)
{
    typedef struct shape<D> of;
    const int32_t warp = (int32_t)threadIdx.x / QR_WARP;
    uint16_t *at = (uint16_t *)shared, *weights = at + 4 * of::TILE * D;
    *s = {at, at + of::TILE * D, at + 2 * of::TILE * D, at + 3 * of::TILE * D, weights, weights + of::TILE * of::WEIGHTS, warp % of::DOWN, warp / of::DOWN,
          (int32_t)threadIdx.x % QR_WARP};
}

/* Keys or values of a tile of positions of a sequence of n; zeros behind it. */
template <int D> QR_DEVICE void load_cached(uint16_t *to, const struct attention_back &a, int32_t seq, int32_t which, int32_t g, int32_t tile, int32_t n)
{
    for (int32_t i = (int32_t)threadIdx.x; i < shape<D>::TILE * D / 8; i += shape<D>::THREADS) {
        const int32_t row = i / (D / 8), chunk = i % (D / 8), t = tile * shape<D>::TILE + row;
        const bool read = t < n && 8 * chunk < a.kv.head_dim;
        const uint8_t *from = read ? qr_paged_at(a.kv, seq, which, g, t, 2) + 16 * chunk : a.kv.base;
        qr_cp_async_16(qr_chunk_at<D>(to, row, chunk), from, read ? 16 : 0);
    }
}

/* A tile of the n rows that begin at x, as bf16; zeros behind them. */
template <int D> QR_DEVICE void load_rows(uint16_t *to, const struct attention_back &a, const float *x, int64_t stride, int32_t tile, int32_t n)
{
    for (int32_t i = (int32_t)threadIdx.x; i < shape<D>::TILE * D / 2; i += shape<D>::THREADS) {
        const int32_t row = i / (D / 2), col = 2 * (i % (D / 2)), t = tile * shape<D>::TILE + row;
        const float *from = x + t * stride + col;
        *(uint32_t *)(qr_chunk_at<D>(to, row, col / 8) + col % 8) = t < n && col < a.kv.head_dim ? qr_bf16x2(from[0], from[1]) : 0;
    }
}

/* sum += rows x positions of one tile each, over the head's numbers. */
template <int D> QR_DEVICE void add_dots(float sum[shape<D>::EIGHTS][4], uint16_t *rows, uint16_t *positions, const struct tiles<D> &s)
{
#pragma unroll 2
    for (int k = 0; k < D / 16; k++) { /* registers are scarce */
        uint32_t r[4];
        qr_ldmatrix<4>(r, qr_chunk_at<D>(rows, s.down * 16 + s.lane % 16, 2 * k + s.lane / 16));
#pragma unroll
        for (int n = 0; n < shape<D>::EIGHTS; n += 2) {
            uint32_t t[4];
            qr_ldmatrix<4>(t, qr_chunk_at<D>(positions, s.beside * shape<D>::KEYS + n * 8 + s.lane / 16 * 8 + s.lane % 8, 2 * k + s.lane / 8 % 2));
            qr_mma_bf16(sum[n], r, t);
            qr_mma_bf16(sum[n + 1], r, t + 2);
        }
    }
}

/* p and ds of a tile of rows against a tile of positions, as bf16 to shared memory; the first row's number in the batch, and n rows of the sequence. */
template <int D>
QR_DEVICE void grade(struct tiles<D> &s, const struct attention_back &a, int32_t row0, int32_t n, int32_t head, int32_t row_tile, int32_t tile)
{
    float score[shape<D>::EIGHTS][4] = {}, dp[shape<D>::EIGHTS][4] = {};
    add_dots<D>(score, s.queries, s.keys, s);
    add_dots<D>(dp, s.douts, s.values, s);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int32_t in_tile = s.down * 16 + s.lane / 4 + 8 * h, row = row_tile * shape<D>::TILE + in_tile;
        const int64_t at = (int64_t)(row0 + (row < n ? row : 0)) * a.n_heads + head;
        const float lse = a.lse[at], delta = a.delta[at];
#pragma unroll
        for (int j = 0; j < shape<D>::EIGHTS; j++) {
            const int32_t col = s.beside * shape<D>::KEYS + j * 8 + s.lane % 4 * 2;
            float p[2] = {0, 0}, ds[2] = {0, 0};
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (row < n && sees(a, row, tile * shape<D>::TILE + col + i))
                    weigh<true>(&p[i], &ds[i], score[j][2 * h + i], dp[j][2 * h + i], lse, delta, a);
            *(uint32_t *)(qr_chunk_at<shape<D>::WEIGHTS>(s.p, in_tile, col / 8) + col % 8) = qr_bf16x2(p[0], p[1]);
            *(uint32_t *)(qr_chunk_at<shape<D>::WEIGHTS>(s.ds, in_tile, col / 8) + col % 8) = qr_bf16x2(ds[0], ds[1]);
        }
    }
}

/* out += weights (TURNED: their transpose) x rows, over those of a tile. */
template <int D, bool TURNED> QR_DEVICE void add_weighted(float out[shape<D>::OUT_EIGHTS][4], uint16_t *weights, uint16_t *rows, const struct tiles<D> &s)
{
#pragma unroll
    for (int k = 0; k < shape<D>::TILE / 16; k++) {
        uint32_t w[4];
        if (TURNED)
            qr_ldmatrix_trans<4>(w, qr_chunk_at<shape<D>::WEIGHTS>(weights, k * 16 + s.lane / 16 * 8 + s.lane % 8, 2 * s.down + s.lane / 8 % 2));
        else
            qr_ldmatrix<4>(w, qr_chunk_at<shape<D>::WEIGHTS>(weights, s.down * 16 + s.lane % 16, 2 * k + s.lane / 16));
#pragma unroll
        for (int n = 0; n < shape<D>::OUT_EIGHTS; n += 2) {
            uint32_t x[4];
            qr_ldmatrix_trans<4>(x, qr_chunk_at<D>(rows, k * 16 + s.lane % 16, s.beside * shape<D>::COLS / 8 + n + s.lane / 16));
            qr_mma_bf16(out[n], w, x);
            qr_mma_bf16(out[n + 1], w, x + 2);
        }
    }
}

/* Adds scale * sum to rows of a gradient that begin at `to`, of which the sequence has n. */
template <int D>
QR_DEVICE void put_sums(float *to, int64_t stride, const float sum[shape<D>::OUT_EIGHTS][4], float scale, int32_t tile, int32_t n,
                        const struct attention_back &a, const struct tiles<D> &s, bool fresh)
{
#pragma unroll
    for (int i = 0; i < shape<D>::OUT_EIGHTS * 4; i++) {
        const int32_t row = tile * shape<D>::TILE + s.down * 16 + s.lane / 4 + i % 4 / 2 * 8;
        const int32_t col = s.beside * shape<D>::COLS + i / 4 * 8 + s.lane % 4 * 2 + i % 2;
        if (row < n && col < a.kv.head_dim)
            add_to(to + row * stride + col, scale * sum[i / 4][i % 4], fresh);
    }
}

template <int D> QR_KERNEL(shape<D>::THREADS) back_dq(struct attention_back a)
{
    QR_SHARED(unsigned char, shared);
    struct tiles<D> s;
    int32_t tile;
    const int32_t seq = find_tile(a, (int32_t)blockIdx.x, shape<D>::TILE, &tile), row0 = a.row_start[seq], n = a.row_start[seq + 1] - row0;
    const int32_t head = (int32_t)blockIdx.y, g = head / a.group, first = tile * shape<D>::TILE, last = min(first + shape<D>::TILE, n) - 1;
    const int32_t from = a.window > 0 ? max(0, first - a.window + 1) / shape<D>::TILE : 0;
    tiles_begin<D>(&s, shared);
    load_rows<D>(s.queries, a, a.q + row0 * a.q_stride + head * a.kv.head_dim, a.q_stride, tile, n);
    load_rows<D>(s.douts, a, a.dout + row0 * a.dout_stride + head * a.kv.head_dim, a.dout_stride, tile, n);
    for (int32_t t = from; t <= last / shape<D>::TILE; t++) {
        float sum[shape<D>::OUT_EIGHTS][4] = {};
        __syncthreads(); /* the last tile is used up */
        load_cached<D>(s.keys, a, seq, 0, g, t, n);
        load_cached<D>(s.values, a, seq, 1, g, t, n);
        qr_cp_async_commit();
        qr_cp_async_wait<0>();
        __syncthreads();
        grade<D>(s, a, row0, n, head, tile, t);
        __syncthreads();
        add_weighted<D, false>(sum, s.ds, s.keys, s);
        put_sums<D>(a.dq + row0 * a.dq_stride + head * a.kv.head_dim, a.dq_stride, sum, a.scale, tile, n, a, s, a.fresh && t == from);
    }
}

template <int D> QR_KERNEL(shape<D>::THREADS) back_dkv(struct attention_back a)
{
    QR_SHARED(unsigned char, shared);
    struct tiles<D> s;
    int32_t tile;
    const int32_t seq = find_tile(a, (int32_t)blockIdx.x, shape<D>::TILE, &tile), row0 = a.row_start[seq], n = a.row_start[seq + 1] - row0;
    const int32_t g = (int32_t)blockIdx.y, dim = a.kv.head_dim;
    const int32_t end = a.window > 0 ? min(n, tile * shape<D>::TILE + shape<D>::TILE - 1 + a.window) : n; /* rows behind see nothing of the tile */
    float dk[shape<D>::OUT_EIGHTS][4] = {}, dv[shape<D>::OUT_EIGHTS][4] = {};
    tiles_begin<D>(&s, shared);
    load_cached<D>(s.keys, a, seq, 0, g, tile, n);
    load_cached<D>(s.values, a, seq, 1, g, tile, n);
    qr_cp_async_commit();
    qr_cp_async_wait<0>();
    for (int32_t head = g * a.group; head < (g + 1) * a.group; head++)
        for (int32_t r = tile; r <= (end - 1) / shape<D>::TILE; r++) {
            __syncthreads();
            load_rows<D>(s.queries, a, a.q + row0 * a.q_stride + head * dim, a.q_stride, r, n);
            load_rows<D>(s.douts, a, a.dout + row0 * a.dout_stride + head * dim, a.dout_stride, r, n);
            __syncthreads();
            grade<D>(s, a, row0, n, head, r, tile);
            __syncthreads();
            s.lane = qr_opaque(s.lane); /* registers are scarce */
            add_weighted<D, true>(dv, s.p, s.douts, s);
            s.lane = qr_opaque(s.lane);
            add_weighted<D, true>(dk, s.ds, s.queries, s);
        }
    put_sums<D>(a.dk + row0 * a.dk_stride + g * dim, a.dk_stride, dk, a.scale, tile, n, a, s, a.fresh);
    put_sums<D>(a.dv + row0 * a.dv_stride + g * dim, a.dv_stride, dv, 1.0f, tile, n, a, s, a.fresh);
}

/* ---- f32: plain ---- */

/* p and ds of one row and head against one position. */
QR_DEVICE void grade_one(float *p, float *ds, const struct attention_back &a, int32_t seq, int64_t row, int32_t head, int32_t t)
{
    const float *key = (const float *)qr_paged_at(a.kv, seq, 0, head / a.group, t, 4), *value = (const float *)qr_paged_at(a.kv, seq, 1, head / a.group, t, 4);
    const float *query = a.q + row * a.q_stride + head * a.kv.head_dim, *dout = a.dout + row * a.dout_stride + head * a.kv.head_dim;
    float score = 0, dp = 0;
    for (int32_t i = 0; i < a.kv.head_dim; i++) {
        score = fmaf(query[i], key[i], score);
        dp = fmaf(dout[i], value[i], dp);
    }
    weigh<false>(p, ds, score, dp, a.lse[row * a.n_heads + head], a.delta[row * a.n_heads + head], a);
}

/* A block a row and head. */
QR_KERNEL(PLAIN_THREADS) back_dq_f32(struct attention_back a)
{
    QR_SHARED_ARRAY(float, weight, PLAIN_TILE);
    int32_t pos;
    const int32_t seq = find_tile(a, (int32_t)blockIdx.x, 1, &pos), head = (int32_t)blockIdx.y, me = (int32_t)threadIdx.x;
    const int32_t from = a.window > 0 ? max(0, pos - a.window + 1) / PLAIN_TILE : 0;
    const int64_t row = blockIdx.x;
    for (int32_t tile = from; tile <= pos / PLAIN_TILE; tile++) {
        float p = 0, ds = 0;
        if (me < PLAIN_TILE && sees(a, pos, tile * PLAIN_TILE + me))
            grade_one(&p, &ds, a, seq, row, head, tile * PLAIN_TILE + me);
        __syncthreads();
        if (me < PLAIN_TILE)
            weight[me] = ds;
        __syncthreads();
        for (int32_t i = me; i < a.kv.head_dim; i += PLAIN_THREADS) {
            float sum = 0;
            for (int32_t t = tile * PLAIN_TILE; t < tile * PLAIN_TILE + PLAIN_TILE; t++)
                if (sees(a, pos, t))
                    sum = fmaf(weight[t % PLAIN_TILE], ((const float *)qr_paged_at(a.kv, seq, 0, head / a.group, t, 4))[i], sum);
            add_to(a.dq + row * a.dq_stride + head * a.kv.head_dim + i, a.scale * sum, a.fresh && tile == from);
        }
    }
}

/* A block a position and kv head. */
QR_KERNEL(PLAIN_THREADS) back_dkv_f32(struct attention_back a)
{
    QR_SHARED_ARRAY(float, weight, 2 * PLAIN_TILE);
    int32_t t;
    const int32_t seq = find_tile(a, (int32_t)blockIdx.x, 1, &t), g = (int32_t)blockIdx.y, me = (int32_t)threadIdx.x, dim = a.kv.head_dim;
    const int32_t row0 = a.row_start[seq], n = a.row_start[seq + 1] - row0;
    const int32_t end = a.window > 0 ? min(n, t + a.window) : n;
    float dk[2] = {0, 0}, dv[2] = {0, 0};
    for (int32_t head = g * a.group; head < (g + 1) * a.group; head++)
        for (int32_t first = t; first < end; first += PLAIN_TILE) {
            float p = 0, ds = 0;
            const int32_t to = min(first + PLAIN_TILE, end);
            if (first + me < to && me < PLAIN_TILE)
                grade_one(&p, &ds, a, seq, row0 + first + me, head, t);
            __syncthreads();
            if (me < PLAIN_TILE) {
                weight[me] = p;
                weight[PLAIN_TILE + me] = ds;
            }
            __syncthreads();
            for (int32_t r = first; r < to; r++)
                for (int j = 0; j < 2; j++) {
                    const int32_t i = j * PLAIN_THREADS + me;
                    if (i < dim) {
                        dv[j] = fmaf(weight[r - first], a.dout[(row0 + r) * a.dout_stride + head * dim + i], dv[j]);
                        dk[j] = fmaf(weight[PLAIN_TILE + r - first], a.q[(row0 + r) * a.q_stride + head * dim + i], dk[j]);
                    }
                }
        }
    for (int j = 0; j < 2; j++)
        if (j * PLAIN_THREADS + me < dim) {
            add_to(a.dk + (int64_t)blockIdx.x * a.dk_stride + g * dim + j * PLAIN_THREADS + me, a.scale * dk[j], a.fresh);
            add_to(a.dv + (int64_t)blockIdx.x * a.dv_stride + g * dim + j * PLAIN_THREADS + me, dv[j], a.fresh);
        }
}

/* ---- the host's side ---- */

template <int D> static void launch_tiles(struct qr_queue *q, const struct attention_back &a, const struct qr_batch *host)
{
    unsigned int n = 0;
    QR_FITS_EVERYWHERE(shape<D>::BYTES);
    for (int32_t s = 0; s < host->n_seqs; s++)
        n += qr_blocks(host->row_start[s + 1] - host->row_start[s], shape<D>::TILE);
    QR_ASSERT((int32_t)shape<D>::BYTES <= q->shared_max);
    if (qr_queue_meets(q, (const void *)back_dq<D>)) {
        QR_SHARED_ALLOW(back_dq<D>, shape<D>::BYTES);
        QR_SHARED_ALLOW(back_dkv<D>, shape<D>::BYTES);
    }
    QR_LAUNCH(back_dq<D>, dim3(n, (unsigned int)a.n_heads), shape<D>::THREADS, shape<D>::BYTES, q, a);
    QR_LAUNCH(back_dkv<D>, dim3(n, (unsigned int)a.kv.n_kv_heads), shape<D>::THREADS, shape<D>::BYTES, q, a);
}

extern "C" void qr_cuda_attention_back(struct qr_queue *q, const struct qr_attention_back_args *args)
{
    QR_ASSERT(q != NULL && args != NULL && args->batch != NULL && args->kv != NULL);
    QR_ASSERT(args->n_heads % args->kv->n_kv_heads == 0 && args->scale > 0 && args->softcap >= 0 && args->window >= 0);
    const struct qr_batch *b = args->batch;
    if (b->n_tokens == 0)
        return;
    QR_ASSERT((size_t)b->n_tokens * (size_t)args->n_heads * sizeof(float) <= q->scratch_bytes);
    const bool cap = args->softcap > 0;
    const struct attention_back a = {
        args->dq, args->dk, args->dv, (float *)q->scratch, args->dout, args->out, args->q, args->lse, b->row_start, qr_paged_of(args->kv, b, args->layer),
        args->dq_stride, args->dk_stride, args->dv_stride, args->dout_stride, args->out_stride, args->q_stride, b->n_tokens, b->n_seqs, args->n_heads,
        args->n_heads / args->kv->n_kv_heads, args->window, cap ? args->scale / args->softcap : 0.0f,
        (cap ? args->softcap : args->scale) * QR_LOG2_E, args->scale, args->fresh};
    QR_LAUNCH(find_deltas, qr_blocks((int64_t)b->n_tokens * args->n_heads, 8), 256, 0, q, a);
    if (args->kv->dtype == QR_F32) {
        QR_LAUNCH(back_dq_f32, dim3((unsigned int)b->n_tokens, (unsigned int)args->n_heads), PLAIN_THREADS, 0, q, a);
        QR_LAUNCH(back_dkv_f32, dim3((unsigned int)b->n_tokens, (unsigned int)args->kv->n_kv_heads), PLAIN_THREADS, 0, q, a);
    } else if (args->kv->head_dim <= 64) {
        launch_tiles<64>(q, a, qr_batch_host(b));
    } else if (args->kv->head_dim <= 128) {
        launch_tiles<128>(q, a, qr_batch_host(b));
    } else {
        launch_tiles<256>(q, a, qr_batch_host(b));
    }
}

QR_STOPS(attention_back)
