/* Attention over the paged cache: one family for decode, append and prompts (kernels.h, attention).
 *
 * Query rows of a sequence times the heads of one kv head are packed into tiles of 16 (sequences with no more than that) or of 64 rows (32 with heads of 256
 * numbers). A block has four warps and one tile against a run of pieces of 256 positions. Scores of all of a piece stay in registers until its maximum is
 * known; probabilities go through shared memory, so warps share the piece's keys first and the values' columns afterwards. A score is one chain over K, a
 * piece's weighted values one chain over its positions, whichever warp has them; its denominator is a sum per 16 positions modulo 64, then those four. So
 * a row gets the same bits in a tile of any size. Positions that a row does not see add zeros.
 *
 * A long context is cut into runs of pieces, one block each; what they leave for each piece is merged in order by a second kernel, with the same function as
 * where one block has all. Blocks find their work from row_start and ctx_len alone; how long a run is, is the host's decision and shows in no bit. */
#include "kernels/cuda/attend.h"

#define THREADS 128
#define WARPS (THREADS / QR_WARP)
#define TILE 64 /* positions on their way at a time */
#define SMALL 16

/* ---- bf16: tiles ---- */

/* Sizes for heads of D numbers (a smaller head is padded with zeros) and tiles of 16 * MT rows. */
template <int D, int MT> struct shape {
    enum {
        HEIGHT = 16 * MT,
        DOWN = MT == 1 ? 1 : 2,       /* warps that share the rows */
        BESIDE = WARPS / DOWN,        /* warps that share positions, then columns */
        MINE = MT / DOWN,             /* tiles of 16 rows of a warp */
        KEYS = TILE / BESIDE,         /* positions of a warp in a tile */
        EIGHTS = KEYS / 8,
        COLS = D / BESIDE,
        OUT_EIGHTS = COLS / 8,
        STAGES = D == 256 ? 2 : 3,
        Q_BYTES = HEIGHT * D * 2,
        P_BYTES = HEIGHT * PIECE * 2,
        STAGE_BYTES = TILE * D * 2,
        STAT_BYTES = 2 * 4 * HEIGHT * 4,
        BYTES = Q_BYTES + P_BYTES + STAGES * STAGE_BYTES + STAT_BYTES,
    };
};

/* What is loaded next: keys of all of a piece's tiles, then their values, then the next piece. */
struct feed {
    int32_t piece, to, which, tile, issued, used;
};

QR_DEVICE int32_t first_tile(const struct item &it, int32_t piece)
{
    return max(it.begin, piece * PIECE) / TILE;
}

QR_DEVICE int32_t end_tile(const struct item &it, int32_t piece)
{
    return (min(it.end, piece * PIECE + PIECE) - 1) / TILE + 1;
}

/* Asks for the next tile, if there is one. Positions that nobody sees, and columns behind the head, become zeros. */
template <int D, int MT> QR_DEVICE void ask(struct feed *f, const struct attention &a, const struct item &it, uint16_t *ring)
{
    typedef struct shape<D, MT> of;
    if (f->piece < f->to) {
        uint16_t *stage = ring + f->issued % of::STAGES * (TILE * D);
        for (int32_t i = (int32_t)threadIdx.x; i < TILE * D / 8; i += THREADS) {
            const int32_t row = i / (D / 8), chunk = i % (D / 8), t = f->tile * TILE + row;
            const bool read = t >= it.begin && t < it.end && 8 * chunk < a.kv.head_dim;
            const uint8_t *from = read ? qr_paged_at(a.kv, it.seq, f->which, (int32_t)blockIdx.y, t, 2) + 16 * chunk : a.kv.base;
            qr_cp_async_16(qr_chunk_at<D>(stage, row, chunk), from, read ? 16 : 0);
        }
        f->issued++;
        if (++f->tile == end_tile(it, f->piece)) {
            f->piece += f->which;
            f->which ^= 1;
            f->tile = f->piece < f->to ? first_tile(it, f->piece) : 0;
        }
    }
    qr_cp_async_commit();
}

/* The oldest tile that was asked for; the stage of the one before it is free from here on. All of the block call it. */
template <int D, int MT> QR_DEVICE uint16_t *next_tile(struct feed *f, const struct attention &a, const struct item &it, uint16_t *ring)
{
    typedef struct shape<D, MT> of;
    qr_cp_async_wait<of::STAGES - 2>();
    __syncthreads();
    ask<D, MT>(f, a, it, ring);
    return ring + f->used++ % of::STAGES * (TILE * D);
}

/* The tile's queries as bf16, zeros where there are none. */
template <int D, int MT> QR_DEVICE void stage_queries(uint16_t *queries, const struct attention &a, const struct item &it)
{
    const int32_t height = shape<D, MT>::HEIGHT;
    for (int32_t i = (int32_t)threadIdx.x; i < height * D / 2; i += THREADS) {
        const int32_t row = i / (D / 2), col = 2 * (i % (D / 2)), packed = it.tile * height + row;
        uint32_t pair = 0;
        if (packed < it.e.packed && col < a.kv.head_dim) {
            const float *x = a.q + (it.row + packed / a.group) * a.q_stride + ((int32_t)blockIdx.y * a.group + packed % a.group) * a.kv.head_dim + col;
            pair = qr_bf16x2(x[0], x[1]);
        }
        *(uint32_t *)(qr_chunk_at<D>(queries, row, col / 8) + col % 8) = pair;
    }
}

/* What a thread has of its rows: two for each of the warp's tiles of 16 rows, row lane / 4 of it and the one 8 below. */
template <int D, int MT> struct rows {
    int32_t down, beside, lane;
    int32_t last[2 * shape<D, MT>::MINE]; /* position that a row sees */
    float top[2 * shape<D, MT>::MINE], sum[2 * shape<D, MT>::MINE];

    __device__ __forceinline__ int32_t at(int32_t r) const
    {
        return (down * shape<D, MT>::MINE + r / 2) * 16 + lane / 4 + r % 2 * 8;
    }
};

template <int D, int MT> QR_DEVICE void rows_begin(struct rows<D, MT> *w, const struct attention &a, const struct item &it)
{
    const int32_t warp = (int32_t)threadIdx.x / QR_WARP, height = shape<D, MT>::HEIGHT;
    w->lane = (int32_t)threadIdx.x % QR_WARP;
    w->down = warp / shape<D, MT>::BESIDE;
    w->beside = warp % shape<D, MT>::BESIDE;
#pragma unroll
    for (int r = 0; r < 2 * shape<D, MT>::MINE; r++) {
        const int32_t packed = it.tile * height + w->at(r);
        w->last[r] = packed < it.e.packed ? a.pos[it.row + packed / a.group] : -1;
        w->top[r] = -INFINITY;
        w->sum[r] = 0;
    }
}

/* s += queries x keys of one tile of positions. */
template <int D, int MT>
QR_DEVICE void add_scores(float s[shape<D, MT>::MINE][shape<D, MT>::EIGHTS][4], const struct rows<D, MT> &w, uint16_t *queries, uint16_t *keys)
{
    typedef struct shape<D, MT> of;
#pragma unroll 1
    for (int k = 0; k < D / 16; k++) { /* registers are scarce here and below */
        uint32_t q[of::MINE][4];
#pragma unroll
        for (int m = 0; m < of::MINE; m++)
            qr_ldmatrix<4>(q[m], qr_chunk_at<D>(queries, (w.down * of::MINE + m) * 16 + w.lane % 16, 2 * k + w.lane / 16));
#pragma unroll
        for (int n = 0; n < of::EIGHTS; n += 2) {
            uint32_t key[4];
            qr_ldmatrix<4>(key, qr_chunk_at<D>(keys, w.beside * of::KEYS + n * 8 + w.lane / 16 * 8 + w.lane % 8, 2 * k + w.lane / 8 % 2));
#pragma unroll
            for (int m = 0; m < of::MINE; m++) {
                qr_mma_bf16(s[m][n], q[m], key);
                qr_mma_bf16(s[m][n + 1], q[m], key + 2);
            }
        }
    }
}

/* out += probabilities x values of one tile of positions, number `quarter` of its piece. */
template <int D, int MT>
QR_DEVICE void add_values(float out[shape<D, MT>::MINE][shape<D, MT>::OUT_EIGHTS][4], const struct rows<D, MT> &w, uint16_t *weights, uint16_t *values,
                          int32_t quarter)
{
    typedef struct shape<D, MT> of;
#pragma unroll 2
    for (int k = 0; k < TILE / 16; k++) {
        uint32_t p[of::MINE][4];
#pragma unroll
        for (int m = 0; m < of::MINE; m++)
            qr_ldmatrix<4>(p[m], qr_chunk_at<PIECE>(weights, (w.down * of::MINE + m) * 16 + w.lane % 16, quarter * (TILE / 8) + 2 * k + w.lane / 16));
#pragma unroll
        for (int n = 0; n < of::OUT_EIGHTS; n += 2) {
            uint32_t v[4];
            qr_ldmatrix_trans<4>(v, qr_chunk_at<D>(values, k * 16 + w.lane % 16, w.beside * of::COLS / 8 + n + w.lane / 16));
#pragma unroll
            for (int m = 0; m < of::MINE; m++) {
                qr_mma_bf16(out[m][n], p[m], v);
                qr_mma_bf16(out[m][n + 1], p[m], v + 2);
            }
        }
    }
}

/* Masks the scores of a piece and finds each row's maximum: that of all warps comes back in units of log2 in top[], the scores as what `after` multiplies. */
template <int D, int MT>
QR_DEVICE void find_tops(float top[2 * shape<D, MT>::MINE], float s[4][shape<D, MT>::MINE][shape<D, MT>::EIGHTS][4], const struct rows<D, MT> &w,
                         const struct attention &a, int32_t piece, float *tops)
{
    typedef struct shape<D, MT> of;
    if (a.before != 0) {
#pragma unroll
        for (int i = 0; i < 16 * of::MINE * of::EIGHTS; i++) {
            float *x = &s[i / 4 / of::EIGHTS / of::MINE][i / 4 / of::EIGHTS % of::MINE][i / 4 % of::EIGHTS][i % 4];
            *x = tanhf(*x * a.before);
        }
    }
#pragma unroll
    for (int r = 0; r < 2 * of::MINE; r++) {
        top[r] = -INFINITY;
#pragma unroll
        for (int i = 0; i < 4 * of::EIGHTS * 2; i++) {
            const int j = i / (2 * of::EIGHTS), n = i / 2 % of::EIGHTS, c = i % 2;
            const int32_t t = piece * PIECE + j * TILE + w.beside * of::KEYS + n * 8 + w.lane % 4 * 2 + c;
            float *x = &s[j][r / 2][n][r % 2 * 2 + c];
            *x = t <= w.last[r] && (a.window == 0 || t > w.last[r] - a.window) ? *x : -INFINITY;
            top[r] = fmaxf(top[r], *x);
        }
        top[r] = fmaxf(top[r], __shfl_xor_sync(QR_ALL_LANES, top[r], 1));
        top[r] = fmaxf(top[r], __shfl_xor_sync(QR_ALL_LANES, top[r], 2));
        if (w.lane % 4 == 0)
            tops[w.beside * of::HEIGHT + w.at(r)] = top[r];
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 2 * of::MINE; r++) {
        top[r] = tops[w.at(r)];
#pragma unroll
        for (int i = 1; i < of::BESIDE; i++)
            top[r] = fmaxf(top[r], tops[i * of::HEIGHT + w.at(r)]);
        top[r] *= a.after;
    }
}

/* Probabilities of a piece's positions in the tiles [from, to) of it, as bf16 in shared memory; the sums of them for positions 16 c to 16 c + 15 of all
 * tiles go to sums[c][row]. */
template <int D, int MT>
QR_DEVICE void weigh(float s[4][shape<D, MT>::MINE][shape<D, MT>::EIGHTS][4], const float top[2 * shape<D, MT>::MINE], const struct rows<D, MT> &w,
                     const struct attention &a, int32_t from, int32_t to, uint16_t *weights, float *sums)
{
    typedef struct shape<D, MT> of;
#pragma unroll
    for (int r = 0; r < 2 * of::MINE; r++) {
#pragma unroll
        for (int c = 0; c < of::EIGHTS / 2; c++) {
            float sum = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float p[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float x = s[j][r / 2][2 * c + i / 2][r % 2 * 2 + i % 2];
                    p[i] = x == -INFINITY ? 0.0f : qr_exp2(fmaf(x, a.after, -top[r]));
                }
                sum += (p[0] + p[1]) + (p[2] + p[3]);
                if (j < from || j >= to)
                    continue;
                const int32_t chunk = (j * TILE + w.beside * of::KEYS + c * 16) / 8;
                *(uint32_t *)(qr_chunk_at<PIECE>(weights, w.at(r), chunk) + w.lane % 4 * 2) = qr_bf16x2(p[0], p[1]);
                *(uint32_t *)(qr_chunk_at<PIECE>(weights, w.at(r), chunk + 1) + w.lane % 4 * 2) = qr_bf16x2(p[2], p[3]);
            }
            sum += __shfl_xor_sync(QR_ALL_LANES, sum, 1);
            sum += __shfl_xor_sync(QR_ALL_LANES, sum, 2);
            if (w.lane % 4 == 0)
                sums[(w.beside * (of::EIGHTS / 2) + c) * of::HEIGHT + w.at(r)] = sum;
        }
    }
}

/* ---- infinities and NaN among values that some rows of the tile do not see: a weight of 0 would not keep them out ---- */

/* Whether the rows of a tile see different parts of what was loaded of a tile of positions. */
QR_DEVICE bool rows_differ(const struct attention &a, const struct item &it, int32_t tile)
{
    const int32_t begin = max(tile * TILE, it.begin), end = min(tile * TILE + TILE, it.end);
    return end - 1 > it.first_pos || (a.window > 0 && begin < it.last_pos - a.window + 1);
}

QR_DEVICE bool beyond_numbers(uint32_t h)
{
    return (h & 0x7f80u) == 0x7f80u;
}

/* Makes them zeros; whether there were any. All of the block call it. */
template <int D> QR_DEVICE bool take_out(uint16_t *values)
{
    bool any = false;
    for (int32_t i = (int32_t)threadIdx.x; i < TILE * D; i += THREADS)
        if (beyond_numbers(values[i])) {
            values[i] = 0;
            any = true;
        }
    return __syncthreads_or(any);
}

/* And adds them to the rows that see them: once one is in a sum, neither the order nor the other terms matter. */
template <int D, int MT>
QR_DEVICE void put_back(float out[shape<D, MT>::MINE][shape<D, MT>::OUT_EIGHTS][4], const struct rows<D, MT> &w, const struct attention &a,
                        const struct item &it, uint16_t *weights, int32_t tile)
{
    typedef struct shape<D, MT> of;
#pragma unroll 1
    for (int32_t t = max(tile * TILE, it.begin); t < min(tile * TILE + TILE, it.end); t++) {
        const uint16_t *value = (const uint16_t *)qr_paged_at(a.kv, it.seq, 1, (int32_t)blockIdx.y, t, 2);
#pragma unroll
        for (int i = 0; i < of::OUT_EIGHTS * 2; i++) {
            const int32_t col = w.beside * of::COLS + i / 2 * 8 + w.lane % 4 * 2 + i % 2;
            const uint32_t v = col < a.kv.head_dim ? value[col] : 0;
            if (!beyond_numbers(v))
                continue;
#pragma unroll
            for (int r = 0; r < 2 * of::MINE; r++)
                if (t <= w.last[r] && (a.window == 0 || t > w.last[r] - a.window))
                    out[r / 2][i / 2][r % 2 * 2 + i % 2] += qr_from_bf16(qr_chunk_at<PIECE>(weights, w.at(r), t % PIECE / 8)[t % 8]) * qr_from_bf16(v);
        }
    }
}

/* ---- the kernel ---- */

/* A piece's results, not joined to any other. */
template <int D, int MT>
QR_DEVICE void keep_piece(float *to, int32_t kept, const float out[shape<D, MT>::MINE][shape<D, MT>::OUT_EIGHTS][4], const float top[2 * shape<D, MT>::MINE],
                          const float sum[2 * shape<D, MT>::MINE], const struct rows<D, MT> &w)
{
    typedef struct shape<D, MT> of;
#pragma unroll
    for (int r = 0; r < 2 * of::MINE; r++) {
        if (w.at(r) >= kept)
            continue;
#pragma unroll
        for (int n = 0; n < of::OUT_EIGHTS; n++)
            *(float2 *)(to + w.at(r) * D + w.beside * of::COLS + n * 8 + w.lane % 4 * 2) =
                make_float2(out[r / 2][n][r % 2 * 2], out[r / 2][n][r % 2 * 2 + 1]);
        if (w.beside == 0 && w.lane % 4 == 0) {
            to[kept * D + w.at(r)] = top[r];
            to[kept * (D + 1) + w.at(r)] = sum[r];
        }
    }
}

template <int D, int MT>
QR_DEVICE void put_rows(const struct attention &a, const struct item &it, const float out[shape<D, MT>::MINE][shape<D, MT>::OUT_EIGHTS][4],
                        const struct rows<D, MT> &w)
{
    typedef struct shape<D, MT> of;
#pragma unroll
    for (int r = 0; r < 2 * of::MINE; r++) {
        const int32_t packed = it.tile * of::HEIGHT + w.at(r);
        if (packed >= it.e.packed)
            continue;
        float *to = out_of(a, it, packed);
#pragma unroll
        for (int i = 0; i < of::OUT_EIGHTS * 2; i++) {
            const int32_t col = w.beside * of::COLS + i / 2 * 8 + w.lane % 4 * 2 + i % 2;
            if (col < a.kv.head_dim)
                to[col] = out[r / 2][i / 2][r % 2 * 2 + i % 2] / w.sum[r];
        }
        if (w.beside == 0 && w.lane % 4 == 0)
            put_lse(a, it, packed, w.top[r], w.sum[r]);
    }
}

template <int D, int MT> QR_KERNEL(THREADS) attend(struct attention a)
{
    typedef struct shape<D, MT> of;
    QR_SHARED(unsigned char, shared);
    uint16_t *queries = (uint16_t *)shared, *weights = queries + of::Q_BYTES / 2, *ring = weights + of::P_BYTES / 2;
    float *tops = (float *)(shared + of::Q_BYTES + of::P_BYTES + of::STAGES * of::STAGE_BYTES), *sums = tops + 4 * of::HEIGHT;
    QR_SHARED_ARRAY(struct item, items, 1); /* registers are scarce */
    struct item found;
    struct feed f = {0, 0, 0, 0, 0, 0};
    struct rows<D, MT> w;
    int32_t from;
    if (!find_item<of::HEIGHT>(&found, a, (int32_t)blockIdx.x, (int32_t)blockIdx.y, false))
        return;
    pieces_of(found, &from, &f.to);
    if (from >= f.to)
        return; /* the tile sees nothing of this run */
    if (threadIdx.x == 0)
        items[0] = found;
    __syncthreads();
    const struct item &it = items[0];
    f.piece = from;
    f.tile = first_tile(it, from);
    const int32_t to = f.to;
    for (int i = 0; i < of::STAGES - 1; i++)
        ask<D, MT>(&f, a, it, ring);
    stage_queries<D, MT>(queries, a, it);
    rows_begin<D, MT>(&w, a, it);
    float out[of::MINE][of::OUT_EIGHTS][4] = {};
    for (int32_t piece = from; piece < to; piece++) {
        const int32_t t0 = first_tile(it, piece), t1 = end_tile(it, piece);
        float top[2 * of::MINE], sum[2 * of::MINE];
        {
            float s[4][of::MINE][of::EIGHTS][4] = {};
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (piece * 4 + j >= t0 && piece * 4 + j < t1)
                    add_scores<D, MT>(s[j], w, queries, next_tile<D, MT>(&f, a, it, ring));
            w.lane = qr_opaque(w.lane); /* or addresses of all of a piece's chunks would wait in registers */
            find_tops<D, MT>(top, s, w, a, piece, tops);
            w.lane = qr_opaque(w.lane);
            weigh<D, MT>(s, top, w, a, t0 - piece * 4, t1 - piece * 4, weights, sums);
        }
        float fresh[of::MINE][of::OUT_EIGHTS][4] = {};
        for (int32_t tile = t0; tile < t1; tile++) {
            uint16_t *values = next_tile<D, MT>(&f, a, it, ring); /* its barrier is also that of weights and sums */
            const bool taken = rows_differ(a, it, tile) && take_out<D>(values);
            add_values<D, MT>(fresh, w, weights, values, tile % 4);
            if (taken)
                put_back<D, MT>(fresh, w, a, it, weights, tile);
        }
#pragma unroll
        for (int r = 0; r < 2 * of::MINE; r++) {
            const float *of_row = sums + w.at(r);
            sum[r] = ((of_row[0] + of_row[of::HEIGHT]) + of_row[2 * of::HEIGHT]) + of_row[3 * of::HEIGHT];
            float scale_old, scale_fresh;
            join_piece(&w.top[r], &w.sum[r], top[r], sum[r], &scale_old, &scale_fresh);
#pragma unroll
            for (int i = 0; i < of::OUT_EIGHTS * 2; i++) {
                float *x = &out[r / 2][i / 2][r % 2 * 2 + i % 2];
                *x = fmaf(fresh[r / 2][i / 2][r % 2 * 2 + i % 2], scale_fresh, *x * scale_old);
            }
        }
        if (it.e.runs > 1)
            keep_piece<D, MT>(partial_of(a, it, piece, D), a.kept, fresh, top, sum, w);
    }
    if (it.e.runs == 1)
        put_rows<D, MT>(a, it, out, w);
}

/* ---- f32 and int8: one block a row and head, plain ---- */

QR_DEVICE float block_max(float x, float *partial)
{
    x = qr_warp_max(x);
    __syncthreads();
    if (threadIdx.x % QR_WARP == 0)
        partial[threadIdx.x / QR_WARP] = x;
    __syncthreads();
    return fmaxf(fmaxf(partial[0], partial[1]), fmaxf(partial[2], partial[3]));
}

/* An element of a key or value; of int8 an integer, whose scale is multiplied with the sum over a key, and with the probability that a value meets. */
template <enum qr_dtype TYPE> QR_DEVICE float element_of(const uint8_t *row, int32_t i)
{
    if (TYPE == QR_E4M3)
        return qr_from_e4m3(row[i]);
    return TYPE == QR_F32 ? ((const float *)row)[i] : (float)((const int8_t *)row)[i];
}

template <enum qr_dtype TYPE> QR_KERNEL(THREADS) attend_plain(struct attention a)
{
    const int32_t bytes = TYPE == QR_F32 ? 4 : 1;
    QR_SHARED_ARRAY(float, query, 256);
    QR_SHARED_ARRAY(float, weight, PIECE);
    QR_SHARED_ARRAY(float, partial, WARPS);
    const int32_t row = (int32_t)blockIdx.x, head = (int32_t)blockIdx.y, g = head / a.group, me = (int32_t)threadIdx.x, pos = a.pos[row];
    int32_t low = 0, high = a.n_seqs; /* row_start[low] <= row < row_start[high] */
    while (high - low > 1) {
        const int32_t middle = (low + high) / 2;
        if (a.row_start[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    const int32_t begin = a.window > 0 ? max(0, pos - a.window + 1) : 0;
    for (int32_t i = me; i < a.kv.head_dim; i += THREADS)
        query[i] = a.q[row * a.q_stride + head * a.kv.head_dim + i];
    float top = -INFINITY, sum = 0, out[2] = {0, 0};
    for (int32_t piece = begin / PIECE; piece <= pos / PIECE; piece++) {
        const int32_t from = max(begin, piece * PIECE), to = min(pos + 1, piece * PIECE + PIECE);
        float s[2] = {-INFINITY, -INFINITY}, scale_old, scale_fresh;
        __syncthreads(); /* the query; the last piece's weights are used up */
        for (int j = 0; j < 2; j++) {
            const int32_t t = piece * PIECE + j * THREADS + me;
            if (t < from || t >= to)
                continue;
            const uint8_t *key = qr_paged_at(a.kv, low, 0, g, t, bytes);
            float dot = 0;
            for (int32_t i = 0; i < a.kv.head_dim; i++)
                dot = fmaf(query[i], element_of<TYPE>(key, i), dot);
            if (TYPE != QR_F32)
                dot *= qr_paged_scale(a.kv, low, 0, g, t);
            s[j] = a.before != 0 ? tanhf(dot * a.before) : dot;
        }
        const float piece_top = block_max(fmaxf(s[0], s[1]), partial) * a.after;
        for (int j = 0; j < 2; j++)
            weight[j * THREADS + me] = s[j] == -INFINITY ? 0.0f : qr_exp2(fmaf(s[j], a.after, -piece_top));
        __syncthreads();
        float piece_sum = 0, fresh[2] = {0, 0};
        for (int32_t t = from; t < to; t++) {
            const uint8_t *value = qr_paged_at(a.kv, low, 1, g, t, bytes);
            const float p = weight[t % PIECE], scaled = TYPE != QR_F32 ? p * qr_paged_scale(a.kv, low, 1, g, t) : p;
            piece_sum += p;
            for (int j = 0; j < 2; j++)
                if (j * THREADS + me < a.kv.head_dim)
                    fresh[j] = fmaf(scaled, element_of<TYPE>(value, j * THREADS + me), fresh[j]);
        }
        join_piece(&top, &sum, piece_top, piece_sum, &scale_old, &scale_fresh);
        for (int j = 0; j < 2; j++)
            out[j] = fmaf(fresh[j], scale_fresh, out[j] * scale_old);
    }
    for (int j = 0; j < 2; j++)
        if (j * THREADS + me < a.kv.head_dim)
            a.out[row * a.out_stride + head * a.kv.head_dim + j * THREADS + me] = out[j] / sum;
    if (a.lse && me == 0)
        a.lse[(int64_t)row * a.n_heads + head] = fmaf(top, LN_2, logf(sum));
}

/* ---- the host's side ---- */

/* Blocks of a multiprocessor at a time, as shared memory and registers allow. */
#define BLOCKS_SMALL 3
#define BLOCKS_LARGE 2

template <int D, int MT> static void launch_tiles(struct qr_queue *q, struct attention a, const struct qr_batch *host)
{
    typedef struct shape<D, MT> of;
    int64_t several;
    a.run = choose_run(q, &a, host, of::HEIGHT, D, MT == 1 ? BLOCKS_SMALL : BLOCKS_LARGE);
    const int64_t items = count_items(&a, host, of::HEIGHT, &several);
    if (items == 0)
        return;
    QR_ASSERT(of::BYTES + (int32_t)sizeof(struct item) <= q->shared_max);
    QR_SHARED_ALLOW((attend<D, MT>), of::BYTES);
    QR_LAUNCH((attend<D, MT>), dim3((unsigned int)items, (unsigned int)a.kv.n_kv_heads), THREADS, of::BYTES, q->stream, a);
    if (several > 0)
        QR_LAUNCH((join<D, of::HEIGHT>), dim3((unsigned int)several, (unsigned int)a.kv.n_kv_heads), JOIN_THREADS, 0, q->stream, a);
}

extern "C" void qr_cuda_attention(struct qr_queue *q, const struct qr_attention_args *args)
{
    QR_ASSERT(q != NULL && args != NULL && args->batch != NULL && args->kv != NULL);
    const struct qr_kv_view *kv = args->kv;
    const struct qr_batch *b = args->batch, *host = qr_batch_host(b);
    QR_ASSERT(args->n_heads % kv->n_kv_heads == 0);
    QR_ASSERT(args->scale > 0 && args->softcap >= 0 && args->window >= 0);
    if (b->n_tokens == 0)
        return;
    const bool cap = args->softcap > 0;
    const struct attention a = {
        .out = args->out, .lse = args->lse, .partial = (float *)q->scratch, .q = args->q, .pos = b->pos, .row_start = b->row_start, .ctx_len = b->ctx_len,
        .kv = qr_paged_of(kv, b, args->layer), .out_stride = args->out_stride, .q_stride = args->q_stride, .n_seqs = b->n_seqs, .n_heads = args->n_heads,
        .group = args->n_heads / kv->n_kv_heads, .window = args->window, .run = 1, .kept = 0, .small = SMALL,
        .before = cap ? args->scale / args->softcap : 0.0f,
        .after = (cap ? args->softcap : args->scale) * QR_LOG2_E};
    if (kv->dtype == QR_F32) {
        QR_LAUNCH(attend_plain<QR_F32>, dim3((unsigned int)b->n_tokens, (unsigned int)args->n_heads), THREADS, 0, q->stream, a);
    } else if (kv->dtype == QR_E4M3) {
        QR_LAUNCH(attend_plain<QR_E4M3>, dim3((unsigned int)b->n_tokens, (unsigned int)args->n_heads), THREADS, 0, q->stream, a);
    } else if (kv->dtype == QR_I8) {
        QR_LAUNCH(attend_plain<QR_I8>, dim3((unsigned int)b->n_tokens, (unsigned int)args->n_heads), THREADS, 0, q->stream, a);
    } else if (attention_hopper(q, &a, kv, args->layer, host)) {
        return;
    } else if (kv->head_dim <= 64) {
        launch_tiles<64, 1>(q, a, host);
        launch_tiles<64, 4>(q, a, host);
    } else if (kv->head_dim <= 128) {
        launch_tiles<128, 1>(q, a, host);
        launch_tiles<128, 4>(q, a, host);
    } else {
        launch_tiles<256, 1>(q, a, host);
        launch_tiles<256, 2>(q, a, host);
    }
}
