/* Attention over the paged cache of bf16, for compute capability 9.0a: what attention.cu computes, in the same order of additions, by the copy engine and
 * products of warpgroups.
 *
 * A block stays: it takes tile after tile from the list of attend.h, forwards and backwards in turn, so that long and short ones meet. One or two
 * warpgroups compute: with heads up to 128 numbers each has 64 query rows, with 256 both have the same rows and half of the columns each. Keys and values
 * come by the copy engine, a box for each block of the cache and 64 columns, into a ring of stages that full and empty barriers guard. Scores of all of a
 * piece of 256 positions stay in registers until its maximum is known, probabilities become the next product's operand where they are. Scores of one
 * warpgroup are multiplied while the other takes exponentials: they begin a piece in turns.
 *
 * No warp only loads: eight warps may have 255 registers each, of which scores and results take 192, and a ninth would
 * leave them 168 (ptxas 13.0 spills the results even where setmaxnreg would make room). The first warp of the last
 * warpgroup asks for a stage as soon as all have let go of it: for what comes STAGES tiles later, be it of another
 * item.
 *
 * Numerics: attention.cu's. A score is one chain over K, a piece's weighted values one chain over its positions, in
 * steps of 16; its denominator is a sum per 16 positions modulo 64, then those four. Masks are applied where a tile of
 * positions has some that a row does not see. What a step of 16 adds up in which order is the hardware's, as it is
 * there: where both add alike, the two give the same bits.
 *
 * Sources: Shah et al. 2024 (arXiv:2407.08608); Milakov & Gimelshein 2018 (arXiv:1805.02867). */
#include "kernels/cuda/attend.h"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/ptx_hopper.h"

#define STAGES_MAX 8
#define ITEMS 8       /* that are known at a time: no fewer than the stages hold */
#define ROWS 64       /* of a warpgroup */
#define BAR_QUERIES 1 /* and the next: numbers of named barriers */
#define BAR_TURN 3    /* and the next */
#define BAR_CLEAN 5

/* Sizes for heads of D numbers (a smaller head is padded with zeros) and so many warpgroups that compute. */
template <int D, int GROUPS> struct shape {
    enum {
        SHARE = D == 256 ? 2 : 1,          /* warpgroups of the same rows */
        HEIGHT = ROWS * GROUPS / SHARE,
        COLS = D / SHARE,                  /* of a warpgroup */
        TILE = QR_HOPPER_TILE(D),         /* positions of a stage */
        TILES = PIECE / TILE,
        PANELS = D / 64,                   /* of 64 columns: 128 bytes a row */
        PANEL_BYTES = TILE * 128,
        STAGE_BYTES = TILE * D * 2,
        STAGES = D == 64 ? (GROUPS == 1 ? 6 : 8) : GROUPS == 1 ? 3 : 6,
        Q_PANEL_BYTES = HEIGHT * 128,
        Q_BYTES = HEIGHT * D * 2,
        THREADS = 128 * GROUPS,
        BLOCKS = GROUPS == 1 ? 2 : 1,      /* of a multiprocessor */
        EARLY = STAGES < PIECE / TILE * 2, /* stages of keys are filled again before values are multiplied, not after: registers are scarce until then */
        FEEDER = THREADS / QR_WARP - 4,    /* a warp */
    };
};

/* What the feeder has found and has copies in flight for: items up to n_found, and of item number `item` the tiles
 * before this one, n of all. */
struct feed {
    int32_t turn, n_found, item, piece, to, tile, t1, which, n;
    bool over;
};

struct control {
    uint64_t full[STAGES_MAX], empty[STAGES_MAX], found[ITEMS], done[ITEMS];
    uint32_t dirty[8]; /* of each warp: it took something out of values */
    struct feed feed;
    struct item item[ITEMS];
    uint64_t wait_ns; /* the longest that anybody waits for the others */
};

struct work {
    CUtensorMap map;      /* of the whole cache: rows of all planes, one below the other */
    struct attention a;
    int32_t n_items;      /* times kv heads */
    int32_t planes;       /* of a block of the cache */
    int32_t first_plane;  /* of the layer */
    int32_t block_shift;  /* positions of a block of the cache, as a power of two */
    int32_t box_shift;    /* of a box: no more than a stage has */
    uint64_t wait_ns;
};

template <int D, int GROUPS> struct block {
    unsigned char *queries, *ring;
    struct control *c;

    typedef struct shape<D, GROUPS> of;
    enum { BYTES = of::Q_BYTES + of::STAGES * of::STAGE_BYTES + sizeof(struct control) };
};

/* The tiles [*from, *to) of a piece, counted from the first position on, that go through the ring: those that some row
 * sees where there are two in a piece, else all. */
template <int TILE> QR_DEVICE void tiles_of(const struct item &it, int32_t piece, int32_t *from, int32_t *to)
{
    *from = PIECE / TILE == 2 ? max(it.begin, piece * PIECE) / TILE : piece * (PIECE / TILE);
    *to = PIECE / TILE == 2 ? (min(it.end, piece * PIECE + PIECE) - 1) / TILE + 1 : (piece + 1) * (PIECE / TILE);
}

/* Whether every row of the tile sees all positions of a tile of positions. */
template <int TILE> QR_DEVICE bool all_seen(const struct attention &a, const struct item &it, int32_t tile)
{
    return tile * TILE + TILE - 1 <= it.first_pos && (a.window == 0 || tile * TILE >= it.last_pos - a.window + 1);
}

#if QR_HOPPER

/* ---- the warp that also finds work and asks for tiles: the feeder ---- */

/* Issues copies of one tile of keys (which 0) or values into a stage that is free. Parts of the cache that no row sees
 * are not read. */
template <int D, int GROUPS>
QR_DEVICE void ask(const struct work &w, const struct item &it, const struct block<D, GROUPS> &b, int32_t n, int32_t tile, int32_t which)
{
    typedef struct shape<D, GROUPS> of;
    const struct qr_paged &kv = w.a.kv;
    const int32_t lane = qr_lane(), stage = n % of::STAGES, shift = w.box_shift, height = 1 << shift;
    const int32_t first = max(it.begin, tile * of::TILE) >> shift, last = (min(it.end, tile * of::TILE + of::TILE) - 1) >> shift;
    const int32_t n_boxes = max(last - first + 1, 0) * of::PANELS; /* none of a tile that no row sees */
    qr_mbar_wait(&b.c->empty[stage], (uint32_t)(n / of::STAGES + 1) & 1, &b.c->wait_ns);
    if (lane == 0)
        qr_mbar_expect(&b.c->full[stage], n_boxes * height * 128);
    __syncwarp();
    for (int32_t i = lane; i < n_boxes; i += QR_WARP) {
        const int32_t t = (first + i / of::PANELS) * height, panel = i % of::PANELS;
        const int32_t block = kv.table[(int64_t)it.seq * kv.table_stride + (t >> w.block_shift)];
        QR_DEVICE_ASSERT(block >= 0 && block < kv.n_blocks);
        const int32_t plane = block * w.planes + w.first_plane + which * kv.n_kv_heads + it.head;
        qr_bulk_2d(b.ring + stage * of::STAGE_BYTES + panel * of::PANEL_BYTES + (t - tile * of::TILE) * 128, &w.map, panel * 64,
                   (plane << w.block_shift) + (t & (kv.block_tokens - 1)), &b.c->full[stage]);
    }
}

/* Finds items until `until` of them were given to the others; one without a sequence says that there are no more. When few registers are in use. */
template <int D, int GROUPS> QR_DEVICE void find_ahead(const struct work &w, const struct block<D, GROUPS> &b, int32_t until)
{
    typedef struct shape<D, GROUPS> of;
    struct feed f = b.c->feed;
    __syncwarp();
    while (f.n_found < until && !f.over) {
        struct item it;
        const int32_t n_heads = w.a.kv.n_kv_heads;
        int32_t from = 0, to = 0;
        it.seq = -1;
        while (from >= to && f.turn * (int32_t)gridDim.x < w.n_items) {
            const int32_t beside = f.turn % 2 == 0 ? (int32_t)blockIdx.x : (int32_t)(gridDim.x - 1 - blockIdx.x);
            const int32_t at = f.turn++ * (int32_t)gridDim.x + beside;
            if (at < w.n_items && find_item(&it, w.a, of::HEIGHT, at / n_heads, at % n_heads, false))
                pieces_of(it, &from, &to); /* none: the tile sees nothing of this run */
        }
        f.over = from >= to;
        it.seq = f.over ? -1 : it.seq;
        const int32_t slot = f.n_found % ITEMS;
        qr_mbar_wait(&b.c->done[slot], (uint32_t)(f.n_found++ / ITEMS + 1) & 1, &b.c->wait_ns);
        if (threadIdx.x % QR_WARP == 0) {
            b.c->item[slot] = it;
            qr_mbar_arrive(&b.c->found[slot]);
        }
    }
    if (threadIdx.x % QR_WARP == 0)
        b.c->feed = f;
    __syncwarp();
}

/* Asks for tiles before number `limit` of all, as far as items were found. */
template <int D, int GROUPS> QR_DEVICE void feed_ring(const struct work &w, const struct block<D, GROUPS> &b, int32_t limit)
{
    typedef struct shape<D, GROUPS> of;
    struct feed f = b.c->feed;
    __syncwarp();
#pragma unroll 1
    while (f.n < limit) {
        if (f.piece >= f.to) {
            const struct item &next = b.c->item[(f.item + 1) % ITEMS];
            if (f.item + 1 >= f.n_found || next.seq < 0)
                break;
            f.item++;
            pieces_of(next, &f.piece, &f.to);
            tiles_of<of::TILE>(next, f.piece, &f.tile, &f.t1);
        }
        const struct item &it = b.c->item[f.item % ITEMS];
        ask<D, GROUPS>(w, it, b, f.n++, f.tile, f.which);
        if (++f.tile < f.t1)
            continue;
        f.piece += f.which;
        f.which ^= 1;
        tiles_of<of::TILE>(it, f.piece, &f.tile, &f.t1);
    }
    if (threadIdx.x % QR_WARP == 0)
        b.c->feed = f;
    __syncwarp();
}

/* ---- all ---- */

/* What a thread knows of its two rows, row lane / 4 of its warp's 16 and the one 8 below. */
struct rows {
    int32_t group, share, lane, row; /* of warpgroups; its columns' share; row: the first of the two in the tile */
    int32_t first[2], last[2];       /* positions that a row sees */
    float top[2], sum[2];
};

template <int D, int GROUPS> QR_DEVICE void rows_begin(struct rows *r, const struct attention &a, const struct item &it)
{
    typedef struct shape<D, GROUPS> of;
    const int32_t me = (int32_t)threadIdx.x;
    r->lane = me % QR_WARP;
    r->group = me / 128;
    r->share = r->group % of::SHARE;
    r->row = r->group / of::SHARE * ROWS + me % 128 / QR_WARP * 16 + r->lane / 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int32_t packed = it.tile * of::HEIGHT + r->row + 8 * i;
        r->last[i] = packed < it.e.packed ? a.pos[it.row + packed / a.group] : -1;
        r->first[i] = a.window > 0 ? r->last[i] - a.window + 1 : 0;
        r->top[i] = -INFINITY;
        r->sum[i] = 0;
    }
}

/* The tile's queries as bf16, zeros where there are none; warpgroups that share rows do it together. */
template <int D, int GROUPS> QR_DEVICE void stage_queries(const struct attention &a, const struct item &it, const struct block<D, GROUPS> &b)
{
    typedef struct shape<D, GROUPS> of;
    const int32_t me = (int32_t)threadIdx.x, threads = 128 * of::SHARE, group = me / threads, n_packed = a.group;
    qr_bar_sync(BAR_QUERIES + group, threads); /* the last item's are used up */
    for (int32_t i = me % threads; i < ROWS * D / 2; i += threads) {
        const int32_t row = group * ROWS + i / (D / 2), col = 2 * (i % (D / 2)), packed = it.tile * of::HEIGHT + row;
        uint32_t pair = 0;
        if (packed < it.e.packed && col < a.kv.head_dim) {
            const float *x = a.q + (it.row + packed / n_packed) * a.q_stride + (it.head * n_packed + packed % n_packed) * a.kv.head_dim + col;
            pair = qr_bf16x2(x[0], x[1]);
        }
        *(uint32_t *)(b.queries + col / 64 * of::Q_PANEL_BYTES + row * 128 + ((col % 64 / 8) ^ (row & 7)) * 16 + col % 8 * 2) = pair;
    }
    qr_fence_async();
    qr_bar_sync(BAR_QUERIES + group, threads);
}

/* s = queries x keys of the tile in a stage; in flight on return. */
template <int D, int GROUPS>
QR_DEVICE void multiply_keys(float (&s)[shape<D, GROUPS>::TILE / 2], const struct block<D, GROUPS> &b, const struct rows &r, int32_t n)
{
    typedef struct shape<D, GROUPS> of;
    const uint32_t queries = qr_shared_address(b.queries) + (uint32_t)(r.group / of::SHARE * ROWS * 128);
    const uint32_t keys = qr_shared_address(b.ring) + (uint32_t)(n % of::STAGES * of::STAGE_BYTES);
#pragma unroll
    for (int k = 0; k < D / 16; k++)
        qr_wgmma_shared(s, qr_tile_desc(queries + k / 4 * of::Q_PANEL_BYTES + k % 4 * 32, 16), qr_tile_desc(keys + k / 4 * of::PANEL_BYTES + k % 4 * 32, 16),
                        k > 0);
}

/* Until the tile in stage number n is there. */
template <int D, int GROUPS> QR_DEVICE void wait_full(const struct block<D, GROUPS> &b, int32_t n)
{
    typedef struct shape<D, GROUPS> of;
    qr_mbar_wait(&b.c->full[n % of::STAGES], (uint32_t)(n / of::STAGES) & 1, &b.c->wait_ns);
}

/* Lets go of `count` stages from number n on. */
template <int D, int GROUPS> QR_DEVICE void release(const struct block<D, GROUPS> &b, int32_t n, int32_t count)
{
    __syncwarp();
    if (threadIdx.x % QR_WARP == 0)
        for (int32_t i = 0; i < count; i++)
            qr_mbar_arrive(&b.c->empty[(n + i) % shape<D, GROUPS>::STAGES]);
}

/* Stages before number n are filled again. */
template <int D, int GROUPS> QR_DEVICE void refill(const struct work &w, const struct block<D, GROUPS> &b, int32_t n)
{
    if ((int32_t)threadIdx.x / QR_WARP == shape<D, GROUPS>::FEEDER)
        feed_ring<D, GROUPS>(w, b, n + shape<D, GROUPS>::STAGES);
}

/* Scores of positions that a row does not see become -infinity. */
template <int N> QR_DEVICE void mask(float (&s)[N], const struct rows &r, int32_t pos)
{
    const int32_t from = pos + r.lane % 4 * 2; /* of the thread's; numbers beside it are known here, and need no register */
    const int32_t first[2] = {r.first[0] - from, r.first[1] - from}, last[2] = {r.last[0] - from, r.last[1] - from};
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int at = i / 4 * 8 + i % 2;
        if (at < first[i / 2 % 2] || at > last[i / 2 % 2])
            s[i] = -INFINITY;
    }
}

/* Each row's maximum of a piece in units of log2, probabilities as the operand of the next product, and their sums. */
template <int TILES, int N>
QR_DEVICE void weigh(uint32_t (&p)[TILES * N / 8][4], float (&top)[2], float (&sum)[2], float (&s)[TILES][N], float after)
{
    float base[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        top[i] = -INFINITY;
#pragma unroll
        for (int x = 0; x < TILES * N / 2; x++)
            top[i] = fmaxf(top[i], s[x / (N / 2)][x % (N / 2) / 2 * 4 + 2 * i + x % 2]);
        top[i] = fmaxf(top[i], __shfl_xor_sync(QR_ALL_LANES, top[i], 1));
        top[i] = fmaxf(top[i], __shfl_xor_sync(QR_ALL_LANES, top[i], 2));
        top[i] *= after;
        base[i] = top[i] == -INFINITY ? 0.0f : top[i];
    }
#pragma unroll
    for (int c = 0; c < 4; c++) { /* 16 positions of every 64 */
        float part[2] = {0, 0};
#pragma unroll
        for (int g = c; g < TILES * N / 8; g += 4) {
            const float *x = &s[g / (N / 8)][g % (N / 8) * 8];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float e[4];
#pragma unroll
                for (int j = 0; j < 4; j++)
                    e[j] = qr_exp2(fmaf(x[j / 2 * 4 + 2 * i + j % 2], after, -base[i]));
                part[i] += (e[0] + e[1]) + (e[2] + e[3]);
                p[g][i] = qr_bf16x2(e[0], e[1]);
                p[g][2 + i] = qr_bf16x2(e[2], e[3]);
            }
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            part[i] += __shfl_xor_sync(QR_ALL_LANES, part[i], 1);
            part[i] += __shfl_xor_sync(QR_ALL_LANES, part[i], 2);
            sum[i] = c == 0 ? part[i] : sum[i] + part[i];
        }
    }
}

/* fresh (+)= probabilities x values of the tile in a stage; in flight on return. p: of the tile's steps of 16
 * positions. */
template <int D, int GROUPS>
QR_DEVICE void multiply_values(float (&fresh)[shape<D, GROUPS>::COLS / 2], const uint32_t (*p)[4], const struct block<D, GROUPS> &b, const struct rows &r,
                               int32_t n, bool add)
{
    typedef struct shape<D, GROUPS> of;
    const uint32_t values = qr_shared_address(b.ring) + (uint32_t)(n % of::STAGES * of::STAGE_BYTES + r.share * (of::COLS / 64) * of::PANEL_BYTES);
#pragma unroll
    for (int k = 0; k < of::TILE / 16; k++)
        qr_wgmma_turned(fresh, p[k], qr_tile_desc(values + k * 2048, of::PANEL_BYTES), k > 0 || add);
}

/* ---- NaNs, and values never written, among those that some rows do not see: a weight of 0 would not keep them out
 * ---- */

QR_DEVICE bool beyond_numbers(uint32_t h)
{
    return (h & 0x7f80u) == 0x7f80u;
}

/* Zeros in place of infinities and NaNs; whether there was any. */
QR_DEVICE bool take_out(uint32_t *pair)
{
    const bool low = beyond_numbers(*pair), high = beyond_numbers(*pair >> 16);
    *pair &= (low ? 0xffff0000u : 0xffffffffu) & (high ? 0xffffu : 0xffffffffu);
    return low || high;
}

/* This thread's share of a tile of values that has arrived. */
template <int D, int GROUPS> QR_DEVICE bool clean_tile(const struct item &it, const struct block<D, GROUPS> &b, int32_t n, int32_t tile)
{
    typedef struct shape<D, GROUPS> of;
    unsigned char *values = b.ring + n % of::STAGES * of::STAGE_BYTES;
    bool any = false;
#pragma unroll 1
    for (int32_t i = (int32_t)threadIdx.x; i < of::TILE * D / 8; i += of::THREADS) {
        const int32_t t = tile * of::TILE + i / 8 % of::TILE;
        uint4 *p = (uint4 *)(values + i * 16); /* whichever columns these are */
        if (t < it.begin || t >= it.end) {
            *p = make_uint4(0, 0, 0, 0);
            continue;
        }
        uint4 v = *p;
        if ((int)take_out(&v.x) | (int)take_out(&v.y) | (int)take_out(&v.z) | (int)take_out(&v.w)) {
            *p = v;
            any = true;
        }
    }
    return any;
}

/* Cleans `count` tiles of values whose stages begin with number n, those that not every row sees; all of the block do. Whether anything was taken out. */
template <int D, int GROUPS>
QR_DEVICE bool clean(const struct attention &a, const struct item &it, const struct block<D, GROUPS> &b, int32_t n, int32_t tile, int32_t count)
{
    typedef struct shape<D, GROUPS> of;
    bool any = false;
    qr_bar_sync(BAR_CLEAN, of::THREADS); /* the flags of the last time were read */
    for (int32_t j = 0; j < count; j++)
        if (!all_seen<of::TILE>(a, it, tile + j))
            any = (int)any | (int)clean_tile<D, GROUPS>(it, b, n + j, tile + j);
    any = __any_sync(QR_ALL_LANES, any);
    if (threadIdx.x % QR_WARP == 0)
        b.c->dirty[threadIdx.x / QR_WARP] = any;
    qr_fence_async();
    qr_bar_sync(BAR_CLEAN, of::THREADS);
    uint32_t dirty = 0;
    for (int32_t i = 0; i < 4 * GROUPS; i++)
        dirty |= b.c->dirty[i];
    return dirty != 0;
}

/* A bit for each position that weighs something, of row x in kept[word][x]. Kept before the product and in memory, where this is needed at all: so the
 * operand's registers are free afterwards. */
template <int STEPS> QR_DEVICE void keep_weights(uint32_t (*kept)[2], const uint32_t (&p)[STEPS][4], const struct rows &r)
{
#pragma unroll
    for (int word = 0; word < STEPS / 2; word++) {
        uint32_t bits[2] = {0, 0};
#pragma unroll
        for (int x = 0; x < 8; x++) { /* registers of the operand: steps of 16; low or high 8 positions; row */
            const uint32_t pair = p[word * 2 + x / 4][x % 4];
            bits[x % 2] |= ((pair & 0xffffu ? 1u : 0u) | (pair >> 16 ? 2u : 0u)) << (x / 2 * 8 + r.lane % 4 * 2);
        }
#pragma unroll
        for (int x = 0; x < 2; x++) {
            bits[x] |= __shfl_xor_sync(QR_ALL_LANES, bits[x], 1);
            kept[word][x] = bits[x] | __shfl_xor_sync(QR_ALL_LANES, bits[x], 2);
        }
    }
}

/* Adds what was taken out of values of `count` positions from `from` on to the rows that see them: once it is in a sum, neither the order nor the other
 * terms matter, but for whether the weight is 0. */
template <int D, int GROUPS>
QR_DEVICE void put_back(float (&fresh)[shape<D, GROUPS>::COLS / 2], const uint32_t (*kept)[2], const struct attention &a, const struct item &it,
                        const struct rows &r, int32_t from, int32_t count)
{
    typedef struct shape<D, GROUPS> of;
#pragma unroll 1
    for (int32_t word = 0; word < count / 32; word++) {
        const uint32_t weighs[2] = {kept[word][0], kept[word][1]};
#pragma unroll 1
        for (int32_t bit = 0; bit < 32; bit++) {
            const int32_t t = from + word * 32 + bit;
            if (t < it.begin || t >= it.end)
                continue;
            const uint32_t *pairs = (const uint32_t *)qr_paged_at(a.kv, it.seq, 1, it.head, t, 2) + r.share * of::COLS / 2 + r.lane % 4;
            uint32_t bad = 0, nan = 0, minus = 0; /* a bit for each of the thread's columns; no loads beside sums: registers are scarce */
#pragma unroll 1
            for (int32_t i = 0; i < of::COLS / 8 && r.share * of::COLS + i * 8 < a.kv.head_dim; i++) {
                const uint32_t pair = pairs[i * 4];
                bad |= (beyond_numbers(pair) ? 1u : 0u) << 2 * i | (beyond_numbers(pair >> 16) ? 2u : 0u) << 2 * i;
                nan |= (pair & 0x7fu ? 1u : 0u) << 2 * i | (pair >> 16 & 0x7fu ? 2u : 0u) << 2 * i;
                minus |= (pair >> 15 & 1u) << 2 * i | (pair >> 31) << (2 * i + 1);
            }
            if (bad == 0)
                continue;
            const bool sees[2] = {t >= r.first[0] && t <= r.last[0], t >= r.first[1] && t <= r.last[1]};
#pragma unroll
            for (int i = 0; i < of::COLS / 2; i++) {
                const int column = i / 4 * 2 + i % 2, x = i / 2 % 2;
                const bool is_nan = (nan >> column & 1u) || !(weighs[x] >> bit & 1u);
                if ((bad >> column & 1u) && sees[x])
                    fresh[i] += is_nan ? NAN : minus >> column & 1u ? -INFINITY : INFINITY;
            }
        }
    }
}

/* A piece's results, not joined to any other. */
template <int D, int GROUPS>
QR_DEVICE void keep_piece(float *to, int32_t kept, const float (&fresh)[shape<D, GROUPS>::COLS / 2], const float (&top)[2], const float (&sum)[2],
                          const struct rows &r)
{
    typedef struct shape<D, GROUPS> of;
#pragma unroll
    for (int x = 0; x < 2; x++) {
        const int32_t row = r.row + 8 * x;
        if (row >= kept)
            continue;
#pragma unroll
        for (int i = 2 * x; i < of::COLS / 2; i += 4)
            *(float2 *)(to + row * D + r.share * of::COLS + i / 4 * 8 + r.lane % 4 * 2) = make_float2(fresh[i], fresh[i + 1]);
        if (r.share == 0 && r.lane % 4 == 0) {
            to[kept * D + row] = top[x];
            to[kept * (D + 1) + row] = sum[x];
        }
    }
}

template <int D, int GROUPS>
QR_DEVICE void put_rows(const float (&out)[shape<D, GROUPS>::COLS / 2], const struct attention &a, const struct item &it, const struct rows &r)
{
    typedef struct shape<D, GROUPS> of;
#pragma unroll
    for (int x = 0; x < 2; x++) {
        const int32_t packed = it.tile * of::HEIGHT + r.row + 8 * x;
        if (packed >= it.e.packed)
            continue;
        float *to = out_of(a, it, packed);
        float top = r.top[x], sum = r.sum[x];
        const float old = join_sink(a, head_of(a, it, packed), &top, &sum), inverse = old / sum;
#pragma unroll
        for (int i = 0; i < of::COLS / 4; i++) {
            const int32_t col = r.share * of::COLS + i / 2 * 8 + r.lane % 4 * 2 + i % 2;
            if (col < a.kv.head_dim)
                to[col] = out[i / 2 * 4 + 2 * x + i % 2] * inverse;
        }
        if (r.share == 0 && r.lane % 4 == 0)
            put_lse(a, it, packed, top, sum);
    }
}

/* COUNT tiles of a piece from number `tile` on: keys, weights, values. n: of the first stage; on return of the next piece's. */
template <int D, int GROUPS, int COUNT>
QR_DEVICE void do_piece(float (&fresh)[shape<D, GROUPS>::COLS / 2], float (&top)[2], float (&sum)[2], const struct work &w, const struct item &it,
                        const struct block<D, GROUPS> &b, const struct rows &r, int32_t tile, int32_t *n)
{
    typedef struct shape<D, GROUPS> of;
    const struct attention &a = w.a;
    uint32_t p[COUNT * of::TILE / 16][4], kept[COUNT * of::TILE / 32][2];
    {
        float s[COUNT][of::TILE / 2];
        if (GROUPS == 2)
            qr_bar_sync(BAR_TURN + r.group, 256);
#pragma unroll
        for (int j = 0; j < COUNT; j++)
            wait_full<D, GROUPS>(b, *n + j);
        qr_wgmma_fence();
#pragma unroll
        for (int j = 0; j < COUNT; j++)
            multiply_keys<D, GROUPS>(s[j], b, r, *n + j);
        qr_wgmma_commit();
        qr_wgmma_wait(0);
#pragma unroll
        for (int j = 0; j < COUNT; j++)
            qr_wgmma_settle(s[j]);
        if (GROUPS == 2)
            qr_bar_arrive(BAR_TURN + 1 - r.group, 256);
        release<D, GROUPS>(b, *n, COUNT);
#pragma unroll
        for (int j = 0; j < COUNT; j++)
            if (!all_seen<of::TILE>(a, it, tile + j))
                mask(s[j], r, (tile + j) * of::TILE);
        weigh(p, top, sum, s, a.after);
    }
    *n += COUNT;
    if (of::EARLY)
        refill<D, GROUPS>(w, b, *n);
    bool edge = false;
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
        wait_full<D, GROUPS>(b, *n + j);
        edge = edge || !all_seen<of::TILE>(a, it, tile + j);
    }
    const bool dirty = edge && clean<D, GROUPS>(a, it, b, *n, tile, COUNT);
    if (dirty)
        keep_weights(kept, p, r);
    qr_wgmma_fence();
#pragma unroll
    for (int j = 0; j < COUNT; j++)
        multiply_values<D, GROUPS>(fresh, &p[j * of::TILE / 16], b, r, *n + j, j > 0);
    qr_wgmma_commit();
    qr_wgmma_wait(0);
    qr_wgmma_settle(fresh);
    if (dirty)
        put_back<D, GROUPS>(fresh, kept, a, it, r, tile * of::TILE, COUNT * of::TILE);
    release<D, GROUPS>(b, *n, COUNT);
    *n += COUNT;
}

template <int D, int GROUPS> QR_DEVICE void compute(const struct work &w, const struct block<D, GROUPS> &b)
{
    typedef struct shape<D, GROUPS> of;
    const struct attention &a = w.a;
    int32_t n = 0, from, to, t0, t1;
    struct rows r;
    const bool feeds = (int32_t)threadIdx.x / QR_WARP == of::FEEDER;
    if (feeds) {
        qr_fence_async_kernels(); /* this step's keys and values were stored one by one; qr_grid_wait does not promise them to the copy engine */
        find_ahead<D, GROUPS>(w, b, 2);
    }
    if (GROUPS == 2 && threadIdx.x >= 128)
        qr_bar_arrive(BAR_TURN, 256); /* the first turn is that of the first */
    for (int32_t n_told = 0;; n_told++) {
        const struct item &it = b.c->item[n_told % ITEMS];
        qr_mbar_wait(&b.c->found[n_told % ITEMS], (uint32_t)(n_told / ITEMS) & 1, &b.c->wait_ns);
        if (it.seq < 0)
            break;
        pieces_of(it, &from, &to);
        stage_queries<D, GROUPS>(a, it, b);
        rows_begin<D, GROUPS>(&r, a, it);
        float out[of::COLS / 2] = {};
#pragma unroll 1
        for (int32_t piece = from; piece < to; piece++) {
            float fresh[of::COLS / 2], top[2], sum[2];
            refill<D, GROUPS>(w, b, n);
            tiles_of<of::TILE>(it, piece, &t0, &t1);
            if (t1 - t0 == of::TILES)
                do_piece<D, GROUPS, of::TILES>(fresh, top, sum, w, it, b, r, t0, &n);
            else
                do_piece<D, GROUPS, 1>(fresh, top, sum, w, it, b, r, t0, &n);
            if (it.e.runs > 1)
                keep_piece<D, GROUPS>(partial_of(a, it, piece, D), a.kept, fresh, top, sum, r);
            float scale_old[2], scale_fresh[2];
#pragma unroll
            for (int x = 0; x < 2; x++)
                join_piece(&r.top[x], &r.sum[x], top[x], sum[x], &scale_old[x], &scale_fresh[x]);
#pragma unroll
            for (int i = 0; i < of::COLS / 2; i++)
                out[i] = fmaf(fresh[i], scale_fresh[i / 2 % 2], out[i] * scale_old[i / 2 % 2]);
        }
        if (it.e.runs == 1)
            put_rows<D, GROUPS>(out, a, it, r);
        __syncwarp();
        if (threadIdx.x % QR_WARP == 0)
            qr_mbar_arrive(&b.c->done[n_told % ITEMS]);
        if (feeds)
            find_ahead<D, GROUPS>(w, b, n_told + 4);
    }
    if (GROUPS == 2 && threadIdx.x < 128)
        qr_bar_sync(BAR_TURN, 256); /* the turn that was not taken */
}

template <int D, int GROUPS> QR_DEVICE void begin(const struct work &w, const struct block<D, GROUPS> &b)
{
    typedef struct shape<D, GROUPS> of;
    if (threadIdx.x == 0) {
        for (int32_t s = 0; s < of::STAGES; s++) {
            qr_mbar_init(&b.c->full[s], 1);
            qr_mbar_init(&b.c->empty[s], 4 * GROUPS);
        }
        for (int32_t i = 0; i < ITEMS; i++) {
            qr_mbar_init(&b.c->found[i], 1);
            qr_mbar_init(&b.c->done[i], 4 * GROUPS);
        }
        const struct feed none = {0, 0, -1, 0, 0, 0, 0, 0, 0, false};
        b.c->feed = none;
        b.c->wait_ns = w.wait_ns;
        qr_fence_async();
    }
    __syncthreads();
}

#endif

template <int D, int GROUPS>
QR_KERNEL_CAPPED((shape<D, GROUPS>::THREADS), (shape<D, GROUPS>::BLOCKS)) attend_hopper(const QR_GRID_CONSTANT struct work w)
{
#if QR_HOPPER
    typedef struct shape<D, GROUPS> of;
    QR_SHARED_1024(unsigned char, shared);
    QR_DEVICE_ASSERT(qr_shared_address(shared) % 1024 == 0);
    const struct block<D, GROUPS> b = {shared, shared + of::Q_BYTES, (struct control *)(shared + of::Q_BYTES + of::STAGES * of::STAGE_BYTES)};
    begin<D, GROUPS>(w, b);
    qr_grid_next();
    qr_grid_wait();
    compute<D, GROUPS>(w, b);
#endif
}

/* ---- the host's side ---- */

template <int D, int GROUPS> static void launch(struct qr_queue *q, struct work *w, const struct qr_batch *host)
{
    typedef struct shape<D, GROUPS> of;
    const int32_t bytes = block<D, GROUPS>::BYTES;
    int64_t several;
    static_assert((int)of::BLOCKS * (((int)block<D, GROUPS>::BYTES + 127) / 128 * 128 + 1024) <= 228 * 1024,
                  "a multiprocessor has 228 KiB, gives them in units of 128 bytes and keeps 1 KiB of each block");
    w->a.run = choose_run(q, &w->a, host, of::HEIGHT, D, of::BLOCKS);
    w->n_items = (int32_t)count_items(&w->a, host, of::HEIGHT, &several) * w->a.kv.n_kv_heads;
    if (w->n_items == 0)
        return;
    QR_ASSERT(bytes <= q->shared_max);
    const int32_t at_a_time = q->n_sms * of::BLOCKS;
    if (qr_queue_meets(q, (const void *)attend_hopper<D, GROUPS>))
        QR_SHARED_ALLOW((attend_hopper<D, GROUPS>), bytes);
    QR_LAUNCH_NEXT((attend_hopper<D, GROUPS>), (unsigned int)(w->n_items < at_a_time ? w->n_items : at_a_time), of::THREADS, bytes, q, *w);
    attention_join(q, &w->a, D, of::HEIGHT, several);
}

static void launch_all(struct qr_queue *q, const struct attention *a, const struct qr_kv_view *kv, int32_t layer, const struct qr_batch *host)
{
    struct work w;
    memset(&w, 0, sizeof w);
    w.map = q->hopper->map;
    w.wait_ns = q->wait_ns;
    w.a = *a;
    w.a.small = kv->head_dim > 128 ? 0 : ROWS;
    w.planes = kv->n_layers * 2 * kv->n_kv_heads;
    w.first_plane = layer * 2 * kv->n_kv_heads;
    w.block_shift = __builtin_ctz((unsigned int)kv->block_tokens);
    w.box_shift = kv->block_tokens < QR_HOPPER_TILE(kv->head_dim) ? w.block_shift : __builtin_ctz(QR_HOPPER_TILE(kv->head_dim));
    if (kv->head_dim <= 64) {
        launch<64, 1>(q, &w, host);
        launch<64, 2>(q, &w, host);
    } else if (kv->head_dim <= 128) {
        launch<128, 1>(q, &w, host);
        launch<128, 2>(q, &w, host);
    } else {
        launch<256, 2>(q, &w, host);
    }
}

bool attention_hopper(struct qr_queue *q, const struct attention *a, const struct qr_kv_view *kv, int32_t layer, const struct qr_batch *host)
{
    QR_ASSERT(q != NULL && a != NULL && kv != NULL && host != NULL);
    QR_ASSERT(layer >= 0 && layer < kv->n_layers);
    if (a->before != 0 || kv->dtype != QR_BF16 || !qr_cuda_hopper_ready(q, kv->head_dim) || !qr_cuda_hopper_map(q, kv))
        return false;
    q->hopper->n_calls++;
    launch_all(q, a, kv, layer, host);
    return true;
}

QR_STOPS(attention_hopper)
