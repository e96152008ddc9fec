/* attend.h - what the kernels of attention over the paged cache share (attention.cu and attention_codes.cu for every
 * architecture, attention_hopper.cu): which warp does what, and how pieces of a context are joined. Names without a
 * prefix: for those files alone.
 *
 * Query rows of a sequence times the heads of one kv head are packed into tiles; a block has one tile against a run of pieces of 256 positions. What a piece
 * gives a row does not depend on tile or run, and pieces are joined in order by one function. So a row gets the same bits whatever it is packed with and
 * however its context is cut; how long a run is, is the host's decision. Blocks find their work from row_start and ctx_len alone. */
#ifndef QR_KERNELS_CUDA_ATTEND_H
#define QR_KERNELS_CUDA_ATTEND_H

#include "kernels/cuda/paged.h"
#include "kernels/cuda/queue.h"

#define PIECE 256
#define LN_2 0.69314718055994530942f
#define TURNS 4 /* of all blocks that there are at a time: enough to be even */
#define SHORT_RUN 2 /* pieces of few rows that are not worth a launch more */
#define SHORT_ROWS 16

struct attention {
    float *out, *lse, *partial;
    const float *q, *sinks;
    const int32_t *pos, *row_start, *ctx_len;
    struct qr_paged kv;
    int64_t out_stride, q_stride;
    int32_t n_seqs, n_heads, group, window;
    int32_t run;          /* pieces of a block at most */
    int32_t kept;         /* rows of a partial result: no tile of the launch has more */
    int32_t small;        /* sequences of so many packed rows have tiles of that height, longer ones another */
    bool e4m3;            /* of a cache of 8 bits: else int8 */
    float before, after;  /* a score is after * tanh(before * q.k) or, with before 0, after * q.k: in units of log2 */
};

/* ---- which warp does what ---- */

/* A sequence as tiles of `height` packed rows against pieces; no tiles: not of this kind. */
struct extent {
    int32_t packed, tiles, first_piece, pieces, runs;
};

QR_HOST_DEVICE struct extent extent_of(const struct attention &a, int32_t n_rows, int32_t ctx, int32_t window, int32_t height, int32_t run)
{
    struct extent e = {n_rows * a.group, 0, 0, 0, 0};
    if (e.packed == 0 || (e.packed <= a.small) != (height == a.small))
        return e;
    const int32_t first = window > 0 && ctx - n_rows >= window ? ctx - n_rows - window + 1 : 0;
    e.tiles = (e.packed + height - 1) / height;
    e.first_piece = first / PIECE;
    e.pieces = (ctx - 1) / PIECE - e.first_piece + 1;
    e.runs = (e.pieces + run - 1) / run;
    return e;
}

/* Of a sequence with at most so much context, whatever its window's place among the pieces: no more than these. The host's view of launches: they fit every
 * shorter context as well, and blocks without work leave. */
static inline struct extent extent_most(const struct attention &a, int32_t n_rows, int32_t ctx, int32_t height, int32_t run)
{
    struct extent e = extent_of(a, n_rows, ctx, 0, height, run);
    const int32_t seen = a.window > 0 ? (a.window + n_rows - 2 + PIECE - 1) / PIECE + 1 : e.pieces;
    if (e.tiles > 0 && seen < e.pieces) {
        e.pieces = seen;
        e.runs = (seen + run - 1) / run;
    }
    return e;
}

struct item {
    struct extent e;
    int32_t seq, row, tile, run, n_rows, head; /* row: the sequence's first; head: of keys and values */
    int64_t unit;                        /* of the sequence's first partial result */
    int32_t first_pos, last_pos;         /* of the tile's rows */
    int32_t begin, end;                  /* positions that a row of the tile sees */
};

/* Tile and run number `at` of all sequences, or tile number `at` of those that have several runs; false: there are not so many. All of a warp call it. */
QR_DEVICE bool find_item(struct item *it, const struct attention &a, int32_t height, int32_t at, int32_t head, bool tiles_only)
{
    const int32_t lane = qr_lane(), group = a.group;
    uint64_t before = 0; /* units, then items */
    it->seq = -1;
    it->head = head;
    for (int32_t s0 = 0; s0 < a.n_seqs; s0 += QR_WARP) {
        struct extent e = {0, 0, 0, 0, 0};
        const int32_t s = s0 + lane;
        if (s < a.n_seqs)
            e = extent_of(a, a.row_start[s + 1] - a.row_start[s], a.ctx_len[s], a.window, height, a.run);
        const uint32_t units = e.runs > 1 ? (uint32_t)(e.tiles * e.pieces) : 0;
        const uint32_t items = tiles_only ? (e.runs > 1 ? (uint32_t)e.tiles : 0) : (uint32_t)(e.tiles * e.runs);
        const uint64_t mine = (uint64_t)units << 32 | items;
        uint64_t sum = mine;
        for (int32_t step = 1; step < QR_WARP; step *= 2) {
            const uint64_t other = __shfl_up_sync(QR_ALL_LANES, sum, step);
            sum += lane >= step ? other : 0;
        }
        const uint32_t found = __ballot_sync(QR_ALL_LANES, (uint32_t)(before + sum) > (uint32_t)at);
        if (found != 0) {
            const int32_t of = __ffs((int)found) - 1;
            const uint64_t start = before + __shfl_sync(QR_ALL_LANES, sum - mine, of);
            it->seq = s0 + of;
            it->unit = (int64_t)(start >> 32);
            at -= (int32_t)(uint32_t)start;
            break;
        }
        before += __shfl_sync(QR_ALL_LANES, sum, QR_WARP - 1);
    }
    if (it->seq < 0)
        return false;
    it->row = a.row_start[it->seq];
    it->n_rows = a.row_start[it->seq + 1] - it->row;
    it->e = extent_of(a, it->n_rows, a.ctx_len[it->seq], a.window, height, a.run);
    const int32_t runs = tiles_only ? 1 : it->e.runs;
    it->run = at % runs;
    it->tile = it->e.tiles - 1 - at / runs; /* the last rows have most to do */
    const int32_t last = min(it->tile * height + height, it->e.packed) - 1;
    it->first_pos = a.pos[it->row + it->tile * height / group];
    it->last_pos = a.pos[it->row + last / group];
    it->begin = a.window > 0 ? max(0, it->first_pos - a.window + 1) : 0;
    it->end = it->last_pos + 1;
    return true;
}

/* The pieces [*from, *to) of the item's run that its tile sees. */
QR_DEVICE void pieces_of(const struct item &it, int32_t *from, int32_t *to)
{
    const int32_t each = (it.e.pieces + it.e.runs - 1) / it.e.runs, begin = it.e.first_piece + it.run * each;
    *from = max(begin, it.begin / PIECE);
    *to = min(begin + each, (it.end - 1) / PIECE + 1);
}

/* Where a piece's partial result lies: weighted values [kept][d], maxima [kept], denominators [kept]. */
QR_DEVICE float *partial_of(const struct attention &a, const struct item &it, int32_t piece, int32_t d)
{
    const int64_t unit = it.unit + (int64_t)it.tile * it.e.pieces + (piece - it.e.first_piece);
    return a.partial + (unit * a.kv.n_kv_heads + it.head) * a.kept * (d + 2);
}

/* Joins a piece's maximum and denominator to those of the pieces before it: weighted values become *old times them plus *fresh times the piece's. A piece of
 * which the row sees nothing changes no bit. */
QR_DEVICE void join_piece(float *top, float *sum, float piece_top, float piece_sum, float *old, float *fresh)
{
    *old = 1;
    *fresh = 0;
    if (piece_sum == 0)
        return;
    const float most = fmaxf(*top, piece_top);
    *old = qr_exp2(*top - most);
    *fresh = qr_exp2(piece_top - most);
    *sum = fmaf(piece_sum, *fresh, *sum * *old);
    *top = most;
}

/* ---- results ---- */

/* Joins a head's sink, where there are some, to its row's pieces, as a piece without values. Returns the factor of the row's
 * weighted values. */
QR_DEVICE float join_sink(const struct attention &a, int32_t head, float *top, float *sum)
{
    float old = 1, fresh;
    if (a.sinks)
        join_piece(top, sum, a.sinks[head] * QR_LOG2_E, 1, &old, &fresh);
    return old;
}

QR_DEVICE int32_t head_of(const struct attention &a, const struct item &it, int32_t packed)
{
    return it.head * a.group + packed % a.group;
}

QR_DEVICE float *out_of(const struct attention &a, const struct item &it, int32_t packed)
{
    return a.out + (it.row + packed / a.group) * a.out_stride + head_of(a, it, packed) * a.kv.head_dim;
}

QR_DEVICE void put_lse(const struct attention &a, const struct item &it, int32_t packed, float top, float sum)
{
    if (a.lse)
        a.lse[(int64_t)(it.row + packed / a.group) * a.n_heads + head_of(a, it, packed)] = fmaf(top, LN_2, logf(sum));
}

/* ---- the host's side ---- */

/* Pieces of a run, and a->kept: as many as still give every multiprocessor, which has so many blocks at a time, several turns, and no more partial results
 * than scratch holds. */
static inline int32_t choose_run(const struct qr_queue *q, struct attention *a, const struct qr_batch *host, int32_t height, int32_t d, int32_t blocks)
{
    int64_t work = 0, most = 1;
    a->kept = 0;
    for (int32_t s = 0; s < host->n_seqs; s++) {
        const struct extent e = extent_most(*a, host->row_start[s + 1] - host->row_start[s], host->ctx_len[s], height, 1);
        work += (int64_t)e.tiles * e.pieces * a->kv.n_kv_heads;
        most = e.pieces > most ? e.pieces : most;
        if (e.tiles > 0 && e.packed > a->kept)
            a->kept = e.packed < height ? e.packed : height;
    }
    if (most <= SHORT_RUN && a->kept <= SHORT_ROWS)
        return (int32_t)most;
    const int64_t unit = (int64_t)a->kept * (d + 2) * a->kv.n_kv_heads * 4;
    int64_t run = work / ((int64_t)q->n_sms * blocks * TURNS);
    for (run = run < 1 ? 1 : run; run < most; run *= 2) {
        int64_t bytes = 0;
        for (int32_t s = 0; s < host->n_seqs; s++) {
            const struct extent e = extent_most(*a, host->row_start[s + 1] - host->row_start[s], host->ctx_len[s], height, (int32_t)run);
            bytes += e.runs > 1 ? e.tiles * e.pieces * unit : 0;
        }
        if (bytes <= (int64_t)q->scratch_bytes)
            return (int32_t)run;
    }
    return (int32_t)most;
}

/* attend_join.cu: joins the pieces of tiles whose context several blocks had, as many of them as there can be; heads padded to d numbers. */
void attention_join(struct qr_queue *q, const struct attention *a, int32_t d, int32_t height, int64_t several);

/* attention_codes.cu: over a cache of 8 bits. */
void attention_codes(struct qr_queue *q, const struct attention *a, const struct qr_kv_view *kv, const struct qr_batch *host);

/* attention_hopper.cu: computes the same if the device, the cache and the arguments are of its kind; else false. */
bool attention_hopper(struct qr_queue *q, const struct attention *a, const struct qr_kv_view *kv, int32_t layer, const struct qr_batch *host);

/* Tiles times runs of all sequences, and the tiles that have several runs: as many as there can be. */
static inline int64_t count_items(const struct attention *a, const struct qr_batch *host, int32_t height, int64_t *several)
{
    int64_t items = *several = 0;
    for (int32_t s = 0; s < host->n_seqs; s++) {
        const struct extent e = extent_most(*a, host->row_start[s + 1] - host->row_start[s], host->ctx_len[s], height, a->run);
        items += (int64_t)e.tiles * e.runs;
        *several += e.runs > 1 ? e.tiles : 0;
    }
    QR_ASSERT(items <= INT32_MAX / a->kv.n_kv_heads);
    return items;
}

#endif
