/* tile.h - what an item of attention works on: the query tile, its scratch, and where its keys and values lie. Included by
 * attention.c and by the two ways to form its products (vectors.h, amx/attn_tiles.h) only.
 */
#ifndef QR_KERNELS_CPU_ISA_ATTENTION_TILE_H
#define QR_KERNELS_CPU_ISA_ATTENTION_TILE_H

#include "base/assert.h"
#include "kernels/cpu/attn_plan.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/linear/micro.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/pool.h"

#define PIECE QR_ATTN_PIECE
#define K_MAX 256
#ifdef QR_ISA_amx
#define QUERIES 512 /* rows times heads of a tile, at most: products are cheap there against staging keys and values */
#define QUERY_NUMBERS (QUERIES * K_MAX / 2) /* of all queries: fewer fit when K is large */
#define STEP PIECE  /* positions whose keys are staged at once */
#define BLOCK 32    /* queries that meet keys or values at once */
#define KV_BYTES 2
#define TILES_MAX (K_MAX / 32) /* of an item: their keys, of 32 numbers at least, share the room of one */
#else
#ifdef QR_ISA_avx2
#define QUERIES 96
#else
#define QUERIES 48
#endif
#define QUERY_NUMBERS (QUERIES * K_MAX)
#define STEP 64 /* with K = 64 they stay in L1 */
#define BLOCK QUERIES
#define KV_BYTES 4
#define TILES_MAX 1
#endif
#define LOG2_E 1.4426950408889634

/* Scratch of one worker. Maxima are those of scores in units of ln 2, so that a probability is a power of two. */
struct scratch {
    _Alignas(64) char keys[STEP * K_MAX * KV_BYTES]; /* [STEP / 16][K][16] f32, or tiles [STEP / 16][K / 32] of bf16 pairs */
    char values[PIECE * K_MAX * KV_BYTES];           /* [PIECE][K rounded up to 16] f32 when staged, or tiles [K / 16][PIECE / 32] */
    float p[QUERIES * QR_X_ROW];         /* scores, then probabilities */
    float piece_out[BLOCK * K_MAX];
    float out[QUERY_NUMBERS];
#ifdef QR_ISA_amx
    uint16_t q_tiles[QUERY_NUMBERS];   /* 16 queries after the other, [K / 32][rows][32] */
    float lone_out[BLOCK * K_MAX];       /* of a query that is weighed on its own */
    int32_t tile_rows[2];                /* what the tiles are configured for */
#else
    float q[QUERIES * QR_X_ROW];         /* rounded to bf16 where the cache is */
#endif
#ifdef QR_ISA_avx2
    const char *run[2][PIECE], *later[2][PIECE]; /* where runs of a piece's keys and values lie, and what is prefetched meanwhile (pairs.h) */
#endif
    float key_scale[PIECE], value_scale[PIECE]; /* int8 cache: of the piece's positions; a key's times what scores are multiplied with */
    float max[QUERIES], sum[QUERIES];              /* of the pieces so far; sum 0: none yet */
    float piece_max[QUERIES], piece_sum[QUERIES];  /* sum 0: the query sees nothing of this piece */
    float keep[QUERIES], take[QUERIES];            /* factors of the results so far (-1: none) and of the piece's */
    int32_t see[QUERIES], see_end[QUERIES];        /* range of positions each query sees */
    int32_t in[QUERIES], in_end[QUERIES];          /* the same within the piece, relative to its begin */
};
_Static_assert(sizeof(struct scratch) <= QR_WORKER_SCRATCH_BYTES, "scratch of a worker");

/* A tile and some of its pieces. An item is one of them, or several of few queries. */
struct tile {
    const struct qr_attention_args *a;
    const struct qr_attn_plan *plan;
    const struct qr_attn_seq *seq;
    const int32_t *blocks;        /* the sequence's row of the block table */
    struct scratch *s;
    int32_t q0;                   /* its first query's place in scratch, a multiple of 16 */
    char *keys, *values;          /* its place in scratch for staged ones */
    bool by_head;                 /* queries are 16 rows of a head, 16 of the next one .. instead of all heads of a row, all of the next */
    bool staged_queries;          /* tiles: they are in scratch */
    bool odd_values;              /* a staged value is infinite or NaN */
    int32_t index, chunk;         /* which tile of the sequence, which part of its pieces */
    int32_t kv_head, first_head, n_heads; /* query heads of the tile */
    int32_t first_row, n_rows, n_queries;
    int32_t k, k_pad;
    float factor;                 /* times a score (capped, if scores are): its size in units of ln 2 */
    const char *plane[2];         /* keys and values of this layer and head in block 0 */
    size_t block_bytes, plane_bytes, row_bytes; /* plane_bytes: from a head's keys to those of the next */
    int32_t block_shift;          /* log2 of block_tokens */
    int32_t see_max;              /* end of the positions that some query sees */
};

/* The tile whose keys are staged after a piece's values, from position base on; t NULL: none is known. */
struct after {
    const struct tile *t;
    int32_t base;
};

/* Queries of a tile are numbered by their places in scratch: [q0, query_end). */
static int32_t query_end(const struct tile *t)
{
    return t->q0 + t->n_queries;
}

/* Whose query that is: a row of the batch and a head. */
struct place {
    int32_t row, head;
};

static struct place place_of(const struct tile *t, int32_t i)
{
    const int32_t group = t->by_head ? QR_PANEL : 1, at = i - t->q0, in = at % (group * t->n_heads);
    return (struct place){t->first_row + at / (group * t->n_heads) * group + in % group, t->first_head + in / group};
}

/* Of the query behind it. */
static void next_place(const struct tile *t, struct place *at)
{
    const int32_t group = t->by_head ? QR_PANEL : 1;
    if ((++at->row - t->first_row) % group > 0)
        return;
    const bool more = at->head + 1 < t->first_head + t->n_heads;
    at->row -= more ? group : 0;
    at->head = more ? at->head + 1 : t->first_head;
}

/* What a position's key or value takes of scratch, in units of 32 numbers. */
static int32_t k_units(const struct tile *t)
{
    return (t->k + 31) / 32;
}

static const float *query(const struct tile *t, struct place at)
{
    return t->a->q + at.row * t->a->q_stride + (int64_t)at.head * t->k;
}

/* The same where q is bf16. */
static inline const uint16_t *rounded_query(const struct tile *t, struct place at)
{
    return (const uint16_t *)(const void *)(t->a->q + at.row * t->a->q_stride) + (int64_t)at.head * t->k;
}

/* Address of the key (which 0) or value (1) at position pos. */
static const char *cache_row(const struct tile *t, int32_t which, int32_t pos)
{
    int32_t block = t->blocks[pos >> t->block_shift];
    QR_ASSERT(block >= 0 && block < t->a->kv->n_blocks);
    return t->plane[which] + (size_t)block * t->block_bytes + (size_t)(pos & (t->a->kv->block_tokens - 1)) * t->row_bytes;
}

/* Runs of 2^this positions lie behind one another in memory, within a piece. */
static inline int32_t run_shift(const struct tile *t)
{
    const int32_t whole = __builtin_ctz(PIECE);
    return t->block_shift < whole ? t->block_shift : whole;
}

/* Positions from pos on that lie behind one another in memory, at most n. */
static int32_t run_length(const struct tile *t, int32_t pos, int32_t n)
{
    int32_t rest = t->a->kv->block_tokens - (pos & (t->a->kv->block_tokens - 1));
    return rest < n ? rest : n;
}

/* Prefetches the keys or values of up to 16 positions from pos on, but none that the tile does not see. Blocks lie scattered, so
 * the processor's own prefetching begins anew with each. */
static void prefetch(const struct tile *t, int32_t which, int32_t pos)
{
    int32_t n = t->see_max - pos < QR_PANEL ? t->see_max - pos : QR_PANEL;
    if (n <= 0)
        return;
    const char *p = cache_row(t, which, pos), *end = p + (size_t)run_length(t, pos, n) * t->row_bytes;
    for (; p < end; p += 64)
        _mm_prefetch(p, _MM_HINT_T1);
}

/* row[i] = the key (which 0) or value (1) at position first + i where begin <= first + i < end, else NULL; for n positions. */
static void cache_rows(const struct tile *t, int32_t which, const char **row, int32_t n, int32_t first, int32_t begin, int32_t end)
{
    for (int32_t i = 0, run; i < n; i += run) {
        run = first + i < begin ? begin - first - i : first + i < end ? run_length(t, first + i, end - first - i) : n - i;
        run = run < n - i ? run : n - i;
        const char *p = first + i >= begin && first + i < end ? cache_row(t, which, first + i) : NULL;
        for (int32_t j = 0; j < run; j++)
            row[i + j] = p ? p + (size_t)j * t->row_bytes : NULL;
    }
}

/* Takes in the results of queries [q0, q0 + n) for a piece: piece_max, piece_sum and `out`, rows of k_pad. q0 is a multiple of 16. In attention.c. */
static void take_piece(const struct tile *t, int32_t piece, int32_t q0, int32_t n, const float *out);

/* A query's weighted values: those so far (NULL: none, what lies there may be no number) times keep, and a piece's (NULL: it sees nothing of it) times take. */
struct joined {
    const float *out, *piece;
    vf keep, take;
};

VF_FN vf joined_at(const struct joined *j, int32_t k)
{
    if (!j->piece)
        return vf_load(j->out + k);
    const vf v = vf_mul(vf_add(vf_load(j->piece + k), vf_zero()), j->take); /* + 0: no -0, see attn_tiles.h */
    return j->out ? vf_fma(vf_load(j->out + k), j->keep, v) : v;
}

/* Scores at [begin, end) of p become cap(scale * score), or cap(key_scale * score) where positions have scales. */
static void cap_scores(const struct tile *t, float *p, int32_t begin, int32_t end, const float *key_scale)
{
    const vf cap = vf_set1(t->a->softcap), scale = vf_set1(t->a->scale);
    for (int32_t at = begin / VF_LEN * VF_LEN; at < end; at += VF_LEN) {
        vf v = vf_mul(vf_load(p + at), key_scale ? vf_load(key_scale + at) : scale);
        vf_store(p + at, vf_mul(cap, vf_tanh(vf_div(v, cap))));
    }
}

#endif
