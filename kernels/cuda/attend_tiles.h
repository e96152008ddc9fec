/* attend_tiles.h - attention by tiles of mma.sync, for every architecture, whatever the cache holds (attention.cu: bf16; attention_codes.cu: 8 bits).
 *
 * Query rows of a sequence times the heads of one kv head are packed into tiles of 16 (sequences with no more than that) or of 64 rows (32 with heads of 256
 * numbers). A block has four warps and one tile against a run of pieces of 256 positions. Scores of all of a piece stay in registers until its maximum is
 * known; probabilities go through shared memory, so warps share the piece's keys first and the values' columns afterwards. A score is one chain over K, a
 * piece's weighted values one chain over its positions, whichever warp has them; its denominator is a sum per 16 positions modulo 64, then those four. So
 * a row gets the same bits in a tile of any size. Positions that a row does not see add zeros.
 *
 * A long context is cut into runs of pieces, one block each; what they leave for each piece is merged in order by a second kernel, with the same function as
 * where one block has all. Blocks find their work from row_start and ctx_len alone; how long a run is, is the host's decision and shows in no bit.
 *
 * `of` is a struct shape everywhere. A file that includes this defines add_scores and add_values for its caches. */
#ifndef QR_KERNELS_CUDA_ATTEND_TILES_H
#define QR_KERNELS_CUDA_ATTEND_TILES_H

#include "kernels/cuda/attend.h"

#define THREADS 128
#define WARPS (THREADS / QR_WARP)
#define TILE 64 /* positions of a copy */
#define SMALL 16

/* Blocks of a multiprocessor at a time, as shared memory and registers allow. */
#define BLOCKS_SMALL 3
#define BLOCKS_LARGE 2

/* Sizes for heads of so many numbers (smaller ones are padded with zeros), tiles of 16 * MT rows and caches of bf16 or (OF_CODES 1) of 8 bits.
 *
 * With codes of 8 bits a lane gets four neighbours of a key, or two of two values, in a register that makes two of bf16: one of what stood at even places,
 * one of the odd ones. So of 16 numbers of a head, query and key have 4 t and 4 t + 2 at places 2 t and 2 t + 1 of a product, and 4 t + 1 and 4 t + 3 at
 * 2 t + 8 and 2 t + 9; of 16 columns, the first eight results of a product are the even ones, the others the odd ones. */
template <int HEAD, int MT, int OF_CODES> struct shape {
    enum {
        D = HEAD,
        CODED = OF_CODES,
        HEIGHT = 16 * MT,
        DOWN = MT == 1 ? 1 : 2,       /* warps that share the rows */
        BESIDE = WARPS / DOWN,        /* warps that share positions, then columns */
        MINE = MT / DOWN,             /* tiles of 16 rows of a warp */
        KEYS = TILE / BESIDE,         /* positions of a warp in a tile */
        EIGHTS = KEYS / 8,
        COLS = D / BESIDE,
        OUT_EIGHTS = COLS / 8,
        STAGES = CODED ? (MT == 1 && D < 256 ? 4 : 3) : D == 256 ? 2 : 3, /* 4 at most: see struct feed */
        BLOCKS = MT > 1 ? BLOCKS_LARGE : CODED && D < 256 ? BLOCKS_SMALL + 1 : BLOCKS_SMALL,
        ROW_BYTES = CODED ? D : 2 * D, /* of a position */
        CHUNKS = ROW_BYTES / 16,
        COPIES_AT_ONCE = MT > 1 ? 1 : CHUNKS > 8 ? 4 : CHUNKS / 2, /* registers are scarce in large tiles */
        SCALE_BYTES = CODED ? TILE * 4 : 0,
        STAGE_BYTES = TILE * ROW_BYTES + SCALE_BYTES, /* keys' scales behind the keys */
        Q_BYTES = HEIGHT * D * 2,
        P_BYTES = HEIGHT * PIECE * 2,
        STAT_BYTES = 2 * 4 * HEIGHT * 4,
        VALUE_SCALES = CODED ? 2 * PIECE : 0, /* of two pieces, in turns */
        BYTES = Q_BYTES + P_BYTES + STAGES * STAGE_BYTES + STAT_BYTES + VALUE_SCALES * 4,
    };
};

/* What is loaded next: keys of all of a piece's tiles, then their values, then the next piece. The scales of a piece's
 * values come with its keys, since probabilities are multiplied by them before the values are waited for. With at most
 * four stages no copy of a piece's keys is issued before the probabilities of the last but one are there. */
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

/* Chunk of 16 bytes of a row: chunks change places with the row, so that eight rows lie in different banks. */
template <class of> QR_DEVICE uint8_t *stage_at(uint8_t *stage, int32_t row, int32_t chunk)
{
    return stage + row * of::ROW_BYTES + (chunk ^ (of::CHUNKS == 4 ? row / 2 & 3 : row & 7)) * 16;
}

/* Copy number i of a lane, of a chunk of one of its warp's 16 positions, whose rows its lanes know (`from`). What comes from rows that are not aligned waits
 * for its numbers. */
template <class of, bool ALIGNED>
QR_DEVICE void bring_chunk(uint8_t *stage, const uint8_t *from, int32_t i, int32_t lane, int32_t mine, const struct attention &a)
{
    const int32_t at_once = QR_WARP / of::CHUNKS;
    const uint64_t start = __shfl_sync(QR_ALL_LANES, (uint64_t)(uintptr_t)from, i * at_once + lane / of::CHUNKS);
    const int32_t row = i * WARPS * at_once + mine + lane / of::CHUNKS, chunk = lane % of::CHUNKS;
    const int32_t left = a.kv.head_dim * (of::CODED ? 1 : 2) - 16 * chunk, n_read = start ? max(0, min(16, left)) : 0;
    const uint8_t *at = n_read > 0 ? (const uint8_t *)(uintptr_t)(start + 16 * (uint64_t)chunk) : a.kv.base;
    if (ALIGNED) {
        qr_cp_async_16(stage_at<of>(stage, row, chunk), at, n_read);
    } else {
        uint32_t x[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            x[k] = 4 * k < n_read ? ((const uint32_t *)at)[k] : 0;
        *(uint4 *)stage_at<of>(stage, row, chunk) = make_uint4(x[0], x[1], x[2], x[3]);
    }
}

/* Issues copies of the next tile, if there is one. Positions that no row sees, and columns behind the head, become
 * zeros. A warp's copies are of 16 positions, whose places in the cache its lanes find at once. */
template <class of> QR_DEVICE void ask(struct feed *f, const struct attention &a, const struct item &it, uint8_t *ring, float *value_scales)
{
    const int32_t at_once = QR_WARP / of::CHUNKS; /* positions of a warp in one turn */
    if (f->piece < f->to) {
        uint8_t *stage = ring + f->issued % of::STAGES * of::STAGE_BYTES;
        const int32_t me = qr_opaque((int32_t)threadIdx.x), lane = me % QR_WARP, mine = me / QR_WARP * at_once; /* registers are scarce */
        const int32_t found = lane % 16 / at_once * (WARPS * at_once) + mine + lane % at_once, t = f->tile * TILE + found;
        const uint8_t *plane = NULL, *from = NULL;
        if (t >= it.begin && t < it.end) {
            plane = qr_paged_plane(a.kv, it.seq, f->which, (int32_t)blockIdx.y, t);
            from = plane + t % a.kv.block_tokens * a.kv.head_dim * (of::CODED ? 1 : 2);
        }
        bool aligned = true;
        if (of::CODED)
            aligned = a.kv.head_dim % 16 == 0 && a.kv.plane_bytes % 16 == 0;
        if (!aligned) {
#pragma unroll 1
            for (int i = 0; i < of::CHUNKS / 2; i++)
                bring_chunk<of, false>(stage, from, i, lane, mine, a);
        } else {
#pragma unroll (of::COPIES_AT_ONCE)
            for (int i = 0; i < of::CHUNKS / 2; i++)
                bring_chunk<of, true>(stage, from, i, lane, mine, a);
        }
        if (of::CODED && f->which == 0) { /* half of the lanes have the key's scale, half the value's */
            float *to = lane < 16 ? (float *)(stage + TILE * of::ROW_BYTES) + found : value_scales + f->piece % 2 * PIECE + t % PIECE;
            const int64_t behind = (lane < 16 ? 0 : a.kv.n_kv_heads * a.kv.plane_bytes) + (int64_t)a.kv.block_tokens * a.kv.head_dim;
            qr_cp_async_4(to, plane ? plane + behind + t % a.kv.block_tokens * 4 : a.kv.base, plane ? 4 : 0);
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

/* Waits for the oldest tile in flight; the stage of the one before it is free from here on. All threads of the block
 * call it. */
template <class of> QR_DEVICE uint8_t *next_tile(struct feed *f, const struct attention &a, const struct item &it, uint8_t *ring, float *value_scales)
{
    qr_cp_async_wait<of::STAGES - 2>();
    __syncthreads();
    ask<of>(f, a, it, ring, value_scales);
    return ring + f->used++ % of::STAGES * of::STAGE_BYTES;
}

/* The tile's queries as bf16, zeros where there are none. */
template <class of> QR_DEVICE void stage_queries(uint16_t *queries, const struct attention &a, const struct item &it)
{
    const int32_t D = of::D;
    for (int32_t i = (int32_t)threadIdx.x; i < of::HEIGHT * D / 2; i += THREADS) {
        const int32_t row = i / (D / 2), col = 2 * (i % (D / 2)), packed = it.tile * of::HEIGHT + row;
        const int32_t from = of::CODED ? col / 16 * 16 + col % 8 * 2 + col % 16 / 8 : col;
        uint32_t pair = 0;
        if (packed < it.e.packed && from < a.kv.head_dim) {
            const float *x = a.q + (it.row + packed / a.group) * a.q_stride + ((int32_t)blockIdx.y * a.group + packed % a.group) * a.kv.head_dim + from;
            pair = qr_bf16x2(x[0], x[of::CODED ? 2 : 1]);
        }
        *(uint32_t *)(qr_chunk_at<of::D>(queries, row, col / 8) + col % 8) = pair;
    }
}

/* What a thread has of its rows: two for each of the warp's tiles of 16 rows, row lane / 4 of it and the one 8 below. */
template <class of> struct rows {
    int32_t down, beside, lane;
    int32_t last[2 * of::MINE]; /* position that a row sees */
    float top[2 * of::MINE], sum[2 * of::MINE];

    __device__ __forceinline__ int32_t at(int32_t r) const
    {
        return (down * of::MINE + r / 2) * 16 + lane / 4 + r % 2 * 8;
    }

    /* The head's number that result i (0 or 1) of a row is in eight columns number n; with codes, numbers n and n + 1 (n even) interleave. */
    __device__ __forceinline__ int32_t col(int32_t n, int32_t i) const
    {
        return beside * of::COLS + (of::CODED ? n / 2 * 16 + lane % 4 * 4 + 2 * i + n % 2 : n * 8 + lane % 4 * 2 + i);
    }
};

template <class of> QR_DEVICE void rows_begin(struct rows<of> *w, const struct attention &a, const struct item &it)
{
    const int32_t warp = (int32_t)threadIdx.x / QR_WARP;
    w->lane = (int32_t)threadIdx.x % QR_WARP;
    w->down = warp / of::BESIDE;
    w->beside = warp % of::BESIDE;
#pragma unroll
    for (int r = 0; r < 2 * of::MINE; r++) {
        const int32_t packed = it.tile * of::HEIGHT + w->at(r);
        w->last[r] = packed < it.e.packed ? a.pos[it.row + packed / a.group] : -1;
        w->top[r] = -INFINITY;
        w->sum[r] = 0;
    }
}

/* s += queries x keys of one tile of positions. */
template <class of>
QR_DEVICE void add_scores(float s[of::MINE][of::EIGHTS][4], const struct rows<of> &w, const struct attention &a, uint16_t *queries, uint8_t *keys);

/* out += probabilities x values of one tile of positions, a quarter of its piece. All of the block call it. */
template <class of>
QR_DEVICE void add_values(float out[of::MINE][of::OUT_EIGHTS][4], const struct rows<of> &w, const struct attention &a, const struct item &it, uint16_t *weights,
                          uint8_t *values, int32_t tile);

/* Masks the scores of a piece and finds each row's maximum: that of all warps comes back in units of log2 in top[], the scores as what `after` multiplies. */
template <class of>
QR_DEVICE void find_tops(float top[2 * of::MINE], float s[4][of::MINE][of::EIGHTS][4], const struct rows<of> &w,
                         const struct attention &a, int32_t piece, float *tops)
{
    if (a.before != 0) {
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int m = 0; m < of::MINE; m++)
#pragma unroll
                for (int n = 0; n < of::EIGHTS; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        s[j][m][n][i] = qr_bend(s[j][m][n][i] * a.before);
    }
#pragma unroll
    for (int r = 0; r < 2 * of::MINE; r++) {
        /* the first of the row's positions is number `before` in front of `last`: what is seen are numbers of the warp's in (hidden, before] */
        const int32_t before = w.last[r] - (piece * PIECE + w.beside * of::KEYS + w.lane % 4 * 2);
        const int32_t hidden = a.window > 0 ? before - a.window : INT32_MIN;
        top[r] = -INFINITY;
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int n = 0; n < of::EIGHTS; n++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    const int at = j * TILE + n * 8 + c;
                    float *x = &s[j][r / 2][n][r % 2 * 2 + c];
                    *x = at <= before && at > hidden ? *x : -INFINITY;
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

/* Probabilities of a piece's positions in the tiles [from, to) of it, with codes times their value's scale, as bf16 in shared memory; the sums of them for
 * positions 16 c to 16 c + 15 of all tiles go to sums[c][row]. */
template <class of>
QR_DEVICE void weigh(float s[4][of::MINE][of::EIGHTS][4], const float top[2 * of::MINE], const struct rows<of> &w, const struct attention &a, int32_t from,
                     int32_t to, const float *value_scales, uint16_t *weights, float *sums)
{
    float base[2 * of::MINE]; /* of a row that sees nothing of the piece: not what would make its weights something else than 0 */
#pragma unroll
    for (int r = 0; r < 2 * of::MINE; r++)
        base[r] = top[r] == -INFINITY ? 0.0f : top[r];
#pragma unroll
    for (int c = 0; c < of::EIGHTS / 2; c++) {
        float sum[2 * of::MINE] = {};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int32_t at = j * TILE + w.beside * of::KEYS + c * 16;
            const bool there = j >= from && j < to;
            float2 scale[2];
            if (of::CODED && there)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    scale[i] = *(const float2 *)(value_scales + at + i * 8 + w.lane % 4 * 2);
#pragma unroll
            for (int r = 0; r < 2 * of::MINE; r++) {
                float p[4];
#pragma unroll
                for (int i = 0; i < 4; i++)
                    p[i] = qr_exp2(fmaf(s[j][r / 2][2 * c + i / 2][r % 2 * 2 + i % 2], a.after, -base[r]));
                sum[r] += (p[0] + p[1]) + (p[2] + p[3]);
                if (!there)
                    continue;
                if (of::CODED)
#pragma unroll
                    for (int i = 0; i < 4; i++) /* what is not seen may have a NaN for a scale */
                        p[i] = s[j][r / 2][2 * c + i / 2][r % 2 * 2 + i % 2] == -INFINITY ? 0.0f : p[i] * (i % 2 ? scale[i / 2].y : scale[i / 2].x);
                *(uint32_t *)(qr_chunk_at<PIECE>(weights, w.at(r), at / 8) + w.lane % 4 * 2) = qr_bf16x2(p[0], p[1]);
                *(uint32_t *)(qr_chunk_at<PIECE>(weights, w.at(r), at / 8 + 1) + w.lane % 4 * 2) = qr_bf16x2(p[2], p[3]);
            }
        }
#pragma unroll
        for (int r = 0; r < 2 * of::MINE; r++) {
            sum[r] += __shfl_xor_sync(QR_ALL_LANES, sum[r], 1);
            sum[r] += __shfl_xor_sync(QR_ALL_LANES, sum[r], 2);
            if (w.lane % 4 == 0)
                sums[(w.beside * (of::EIGHTS / 2) + c) * of::HEIGHT + w.at(r)] = sum[r];
        }
    }
}

/* ---- the kernel ---- */

/* The weights of this warp's rows at 16 positions, step k of the tile, as the left side of a product. */
template <class of> QR_DEVICE void load_weights(uint32_t p[of::MINE][4], const struct rows<of> &w, uint16_t *weights, int32_t tile, int k)
{
#pragma unroll
    for (int m = 0; m < of::MINE; m++)
        qr_ldmatrix<4>(p[m], qr_chunk_at<PIECE>(weights, (w.down * of::MINE + m) * 16 + w.lane % 16, tile % 4 * (TILE / 8) + 2 * k + w.lane / 16));
}

/* A piece's results, not joined to any other. */
template <class of>
QR_DEVICE void keep_piece(float *to, int32_t kept, const float out[of::MINE][of::OUT_EIGHTS][4], const float top[2 * of::MINE],
                          const float sum[2 * of::MINE], const struct rows<of> &w)
{
#pragma unroll
    for (int r = 0; r < 2 * of::MINE; r++) {
        if (w.at(r) >= kept)
            continue;
#pragma unroll
        for (int i = 0; i < of::OUT_EIGHTS; i++) { /* columns side by side: of one product, or of two with codes */
            const int n = of::CODED ? i / 2 * 2 : i, c = of::CODED ? i % 2 : 0;
            *(float2 *)(to + w.at(r) * of::D + w.col(n, c)) =
                make_float2(out[r / 2][n][r % 2 * 2 + c], of::CODED ? out[r / 2][n + of::CODED][r % 2 * 2 + c] : out[r / 2][n][r % 2 * 2 + 1]);
        }
        if (w.beside == 0 && w.lane % 4 == 0) {
            to[kept * of::D + w.at(r)] = top[r];
            to[kept * (of::D + 1) + w.at(r)] = sum[r];
        }
    }
}

template <class of>
QR_DEVICE void put_rows(const struct attention &a, const struct item &it, const float out[of::MINE][of::OUT_EIGHTS][4], const struct rows<of> &w)
{
#pragma unroll
    for (int r = 0; r < 2 * of::MINE; r++) {
        const int32_t packed = it.tile * of::HEIGHT + w.at(r);
        if (packed >= it.e.packed)
            continue;
        float *to = out_of(a, it, packed);
        float top = w.top[r], sum = w.sum[r];
        const float old = join_sink(a, head_of(a, it, packed), &top, &sum), inverse = old / sum;
#pragma unroll
        for (int i = 0; i < of::OUT_EIGHTS * 2; i++) {
            const int32_t col = w.col(i / 2, i % 2);
            if (col < a.kv.head_dim)
                to[col] = out[r / 2][i / 2][r % 2 * 2 + i % 2] * inverse;
        }
        if (w.beside == 0 && w.lane % 4 == 0)
            put_lse(a, it, packed, top, sum);
    }
}

template <class of> QR_KERNEL(THREADS) attend(struct attention a)
{
    QR_SHARED(unsigned char, shared);
    uint16_t *queries = (uint16_t *)shared, *weights = queries + of::Q_BYTES / 2;
    uint8_t *ring = shared + of::Q_BYTES + of::P_BYTES;
    float *tops = (float *)(ring + of::STAGES * of::STAGE_BYTES), *sums = tops + 4 * of::HEIGHT, *value_scales = sums + 4 * of::HEIGHT;
    QR_SHARED_ARRAY(struct item, items, 1); /* registers are scarce */
    struct item found;
    struct feed f = {0, 0, 0, 0, 0, 0};
    struct rows<of> w;
    int32_t from;
    if (of::CODED) { /* begins early: what it reads has been written by kernels before it */
        qr_grid_next();
        qr_grid_wait();
    }
    if (!find_item(&found, a, of::HEIGHT, (int32_t)blockIdx.x, (int32_t)blockIdx.y, false))
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
#pragma unroll 1
    for (int i = 0; i < of::STAGES - 1; i++)
        ask<of>(&f, a, it, ring, value_scales);
    stage_queries<of>(queries, a, it);
    rows_begin<of>(&w, a, it);
    float out[of::MINE][of::OUT_EIGHTS][4] = {};
    for (int32_t piece = from; piece < to; piece++) {
        const int32_t t0 = first_tile(it, piece), t1 = end_tile(it, piece);
        float top[2 * of::MINE], sum[2 * of::MINE];
        {
            float s[4][of::MINE][of::EIGHTS][4] = {};
#pragma unroll 1
            for (int32_t tile = t0; tile < t1; tile++) { /* what asks for tiles stands here once, not four times */
                uint8_t *keys = next_tile<of>(&f, a, it, ring, value_scales);
                switch (tile % (PIECE / TILE)) { /* no index: scores would lie in memory */
                case 0: add_scores<of>(s[0], w, a, queries, keys); break;
                case 1: add_scores<of>(s[1], w, a, queries, keys); break;
                case 2: add_scores<of>(s[2], w, a, queries, keys); break;
                default: add_scores<of>(s[3], w, a, queries, keys); break;
                }
            }
            w.lane = qr_opaque(w.lane); /* or addresses of all of a piece's chunks would wait in registers */
            find_tops<of>(top, s, w, a, piece, tops);
            w.lane = qr_opaque(w.lane);
            weigh<of>(s, top, w, a, t0 - piece * 4, t1 - piece * 4, value_scales + piece % 2 * PIECE, weights, sums);
        }
        float fresh[of::MINE][of::OUT_EIGHTS][4] = {};
#pragma unroll 1
        for (int32_t tile = t0; tile < t1; tile++) {
            uint8_t *values = next_tile<of>(&f, a, it, ring, value_scales); /* its barrier is also that of weights and sums */
            add_values<of>(fresh, w, a, it, weights, values, tile);
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
            keep_piece<of>(partial_of(a, it, piece, of::D), a.kept, fresh, top, sum, w);
    }
    if (it.e.runs == 1)
        put_rows<of>(a, it, out, w);
}

/* ---- the host's side ---- */

template <class of> static void launch_tiles(struct qr_queue *q, struct attention a, const struct qr_batch *host)
{
    int64_t several;
    QR_FITS_EVERYWHERE(of::BYTES + sizeof(struct item));
    a.run = choose_run(q, &a, host, of::HEIGHT, of::D, of::BLOCKS);
    const int64_t items = count_items(&a, host, of::HEIGHT, &several);
    if (items == 0)
        return;
    QR_ASSERT(of::BYTES + (int32_t)sizeof(struct item) <= q->shared_max);
    if (qr_queue_meets(q, (const void *)attend<of>))
        QR_SHARED_ALLOW((attend<of>), of::BYTES);
    const dim3 grid((unsigned int)items, (unsigned int)a.kv.n_kv_heads);
    if (of::CODED)
        QR_LAUNCH_NEXT((attend<of>), grid, THREADS, of::BYTES, q, a);
    else
        QR_LAUNCH((attend<of>), grid, THREADS, of::BYTES, q, a);
    attention_join(q, &a, of::D, of::HEIGHT, several);
}

#endif
