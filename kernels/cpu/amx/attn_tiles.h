/* attn_tiles.h - the two products of a query tile on the tile registers, for a bf16 cache. Included by amx/attn_bytes.h only.
 *
 * Keys are staged as tiles [16 positions' group][K / 32] of pairs of K, values as tiles [K / 16][piece / 32] of pairs of positions; missing
 * K and positions that the query tile does not see are zeros. Scores of one query are one chain of tiles over K, weighted values one over the
 * piece's positions from the block's first tile of 32 to its last.
 *
 * A piece's scores of all queries come first, then all softmaxes, then all weighted values, in blocks of 32 queries (two row tiles against two
 * panels). A core that multiplies tiles runs 512-bit vectors at half their rate, and the multiplier falls asleep within a softmax of some
 * queries and takes longer to wake up than a block's product takes (docs/kernels.md): so both are switched between as seldom as scratch allows.
 * Scores then lie in L2; keys and values pass by L1. Probabilities take the place of their scores: 32 of
 * bf16 in the first half of what 32 floats took, so rows of a tile of them are as far apart as rows of scores.
 *
 * A query's result must not depend on positions that it does not see and its neighbours do. Their probabilities are 0 here, so they add
 * 0 times a number: nothing, but for the sign of a sum that is 0 itself, which merging removes. Where a value is infinite or NaN, 0
 * times it is not 0: then each query of the tile is weighed on its own, with the values of its own range alone.
 */
#ifndef QR_KERNELS_CPU_AMX_ATTN_TILES_H
#define QR_KERNELS_CPU_AMX_ATTN_TILES_H

#include "kernels/cpu/amx/tile.h"
#include "kernels/cpu/isa/attention/tile.h"

#define PIECE_TILES (PIECE / QR_TILE_K)
#define PANELS_MAX 4 /* tiles of w that meet a single one of x */
#define LINE_BYTES ((int64_t)QR_TILE_K * (int64_t)sizeof(float)) /* from 32 positions of a row of s->p to the next 32 */

_Static_assert(STEP / QR_PANEL * (K_MAX / QR_TILE_K) * QR_TILE_BYTES <= sizeof(((struct scratch *)0)->keys), "tiles of keys");
_Static_assert(K_MAX / QR_PANEL * PIECE_TILES * QR_TILE_BYTES <= sizeof(((struct scratch *)0)->values), "tiles of values");

/* Tiles 0 and 1 are sums of the first 16 queries of a block, 2 and 3 of the other ones, 4 and 5 these queries or their probabilities; 6 and
 * 7 are keys or values. A lone row tile (rows1 0) has all four for its sums. */
static void configure(const struct tile *t, int32_t rows0, int32_t rows1)
{
    int32_t *now = t->s->tile_rows;
    if (now[0] == rows0 && now[1] == rows1)
        return;
    struct qr_tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        bool second = rows1 > 0 && (i == 2 || i == 3 || i == 5);
        c.row_bytes[i] = QR_TILE_ROW_BYTES;
        c.rows[i] = (uint8_t)(i >= 6 ? QR_TILE_ROWS : second ? rows1 : rows0);
    }
    qr_tile_configure(&c);
    now[0] = rows0;
    now[1] = rows1;
}

/* 32 floats to the nearest bf16 (ties to even; denormal numbers to 0, as which tiles take them anyway). */
VF_FN void store_line(void *dst, vf low, vf high)
{
    _mm512_storeu_si512(dst, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

/* Queries [q0, q0 + n) to tiles; q0 is a multiple of 16. */
static void stage_queries(const struct tile *t, int32_t q0, int32_t n)
{
    const int32_t n_k = k_units(t);
    struct place at = place_of(t, q0);
    QR_ASSERT(q0 % QR_TILE_ROWS == 0 && n >= 1 && q0 + n <= query_end(t));
    for (int32_t i = q0; i < q0 + n; i++, next_place(t, &at)) {
        const int32_t first = i / QR_TILE_ROWS * QR_TILE_ROWS, rows = query_end(t) - first < QR_TILE_ROWS ? query_end(t) - first : QR_TILE_ROWS;
        uint16_t *dst = t->s->q_tiles + ((int64_t)first * n_k + (i - first)) * QR_TILE_K;
        const float *q = query(t, at);
        const uint16_t *rounded = rounded_query(t, at);
        for (int32_t k = 0; k < t->k; k += QR_TILE_K, dst += rows * QR_TILE_K) {
            const int64_t n_low = t->k - k, n_high = n_low > VF_LEN ? vf_min_len(n_low - VF_LEN) : 0;
            if (t->a->q_bf16)
                _mm512_storeu_si512(dst, _mm512_loadu_si512(rounded + k));
            else
                store_line(dst, vf_load_n(q + k, vf_min_len(n_low)), n_high > 0 ? vf_load_n(q + k + VF_LEN, n_high) : vf_zero());
        }
    }
}

/* Prefetches n queries from q0 on, as many of them as there are, where they are bf16. */
static void prefetch_queries(const struct tile *t, int32_t q0, int32_t n)
{
    const int32_t end = !t->a->q_bf16 ? q0 : q0 + n < query_end(t) ? q0 + n : query_end(t);
    struct place at = place_of(t, q0);
    for (int32_t i = q0; i < end; i++, next_place(t, &at))
        for (int32_t k = 0; k < t->k; k += QR_TILE_K)
            _mm_prefetch((const char *)(rounded_query(t, at) + k), _MM_HINT_T1);
}

static void begin_pairs(struct tile *t)
{
    QR_ASSERT(t->n_queries >= 1 && query_end(t) <= QUERIES);
    QR_ASSERT(!t->a->q_bf16 || t->k % QR_TILE_K == 0);
    t->s->tile_rows[0] = 0;
    t->staged_queries = t->by_head;
}

/* Where a query's result begins in row tiles; *step: from 32 of its numbers to the next ones. */
static uint16_t *tiles_out(const struct tile *t, struct place at, int64_t *step)
{
    const int32_t n_rows = t->a->batch->n_tokens, first = at.row / QR_TILE_ROWS * QR_TILE_ROWS;
    *step = (n_rows - first < QR_TILE_ROWS ? n_rows - first : QR_TILE_ROWS) * (int64_t)QR_TILE_K;
    return t->a->out_tiles + qr_row_tile_at(n_rows, (int64_t)t->a->n_heads * t->k, at.row, (int64_t)at.head * t->k);
}

/* A query's result times inv to row tiles. */
static void finish_to_tiles(const struct tile *t, struct place at, const struct joined *j, vf inv)
{
    int64_t step;
    uint16_t *dst = tiles_out(t, at, &step);
    for (int32_t k = 0; k < t->k; k += QR_TILE_K, dst += step)
        store_line(dst, vf_mul(joined_at(j, k), inv), vf_mul(joined_at(j, k + VF_LEN), inv));
}

static void end_products(const struct tile *t)
{
    if (t->s->tile_rows[0] > 0)
        qr_tile_release();
}

/* One or two row tiles of x. */
struct rows {
    const char *x[2];   /* their first tiles */
    int64_t x_step[2];  /* bytes to the next k */
    int64_t x_row;      /* bytes to the next row */
    int32_t n[2];       /* rows; the second may have none */
};

/* c[rows][16 n] = x w over n_steps tiles for one row tile; panels of w lie w_panel bytes apart. */
VF_FN void products_1(const int n, char *c, int64_t c_bytes, const struct rows *r, const char *w, int64_t w_panel, int32_t n_steps)
{
    const char *x = r->x[0];
    qr_tile_zero(0);
    qr_tile_zero(1);
    qr_tile_zero(2);
    qr_tile_zero(3);
    for (; n_steps > 0; n_steps--, x += r->x_step[0], w += QR_TILE_BYTES) {
        qr_tile_load_past(4, x, r->x_row);
        qr_tile_load_past(6, w, QR_TILE_ROW_BYTES);
        qr_tile_dp(0, 4, 6);
        if (n > 1) {
            qr_tile_load_past(7, w + w_panel, QR_TILE_ROW_BYTES);
            qr_tile_dp(1, 4, 7);
        }
        if (n > 2) {
            qr_tile_load_past(6, w + 2 * w_panel, QR_TILE_ROW_BYTES);
            qr_tile_dp(2, 4, 6);
            qr_tile_load_past(7, w + 3 * w_panel, QR_TILE_ROW_BYTES);
            qr_tile_dp(3, 4, 7);
        }
    }
    qr_tile_store(0, c, c_bytes);
    if (n > 1)
        qr_tile_store(1, c + 64, c_bytes);
    if (n > 2) {
        qr_tile_store(2, c + 128, c_bytes);
        qr_tile_store(3, c + 192, c_bytes);
    }
}

/* The same for two row tiles and n <= 2. */
VF_FN void products_2(const int n, char *c, int64_t c_bytes, const struct rows *r, const char *w, int64_t w_panel, int32_t n_steps)
{
    const char *x0 = r->x[0], *x1 = r->x[1];
    char *below = c + QR_TILE_ROWS * c_bytes;
    qr_tile_zero(0);
    qr_tile_zero(1);
    qr_tile_zero(2);
    qr_tile_zero(3);
    for (; n_steps > 0; n_steps--, x0 += r->x_step[0], x1 += r->x_step[1], w += QR_TILE_BYTES) {
        qr_tile_load_past(6, w, QR_TILE_ROW_BYTES);
        qr_tile_load_past(4, x0, r->x_row);
        qr_tile_dp(0, 4, 6);
        qr_tile_load_past(5, x1, r->x_row);
        qr_tile_dp(2, 5, 6);
        if (n > 1) {
            qr_tile_load_past(7, w + w_panel, QR_TILE_ROW_BYTES);
            qr_tile_dp(1, 4, 7);
            qr_tile_dp(3, 5, 7);
        }
    }
    qr_tile_store(0, c, c_bytes);
    qr_tile_store(2, below, c_bytes);
    if (n > 1) {
        qr_tile_store(1, c + 64, c_bytes);
        qr_tile_store(3, below + 64, c_bytes);
    }
}

/* The same for any number of panels. */
static void products(float *to, int64_t c_stride, const struct rows *r, const char *w, int64_t w_panel, int32_t n_panels, int32_t n_steps)
{
    char *c = (char *)to;
    const int64_t c_bytes = c_stride * (int64_t)sizeof(float);
    const int32_t most = r->n[1] > 0 ? 2 : PANELS_MAX;
    for (int32_t n; n_panels > 0; n_panels -= n, c += n * QR_PANEL * (int64_t)sizeof(float), w += n * w_panel) {
        n = n_panels >= most ? most : n_panels >= 2 ? 2 : 1;
        if (r->n[1] > 0 && n == 2)
            products_2(2, c, c_bytes, r, w, w_panel, n_steps);
        else if (r->n[1] > 0)
            products_2(1, c, c_bytes, r, w, w_panel, n_steps);
        else if (n == PANELS_MAX)
            products_1(PANELS_MAX, c, c_bytes, r, w, w_panel, n_steps);
        else if (n == 2)
            products_1(2, c, c_bytes, r, w, w_panel, n_steps);
        else
            products_1(1, c, c_bytes, r, w, w_panel, n_steps);
    }
}

/* One panel of scores of two row tiles, to the sums 0 and 2 or 1 and 3. */
VF_FN void panel_scores(const bool odd, const struct rows *r, const char *w, int32_t n_k)
{
    const char *x0 = r->x[0], *x1 = r->x[1];
    if (odd) {
        qr_tile_zero(1);
        qr_tile_zero(3);
    } else {
        qr_tile_zero(0);
        qr_tile_zero(2);
    }
    for (; n_k > 0; n_k--, x0 += r->x_step[0], x1 += r->x_step[1], w += QR_TILE_BYTES) {
        qr_tile_load_past(6, w, QR_TILE_ROW_BYTES);
        qr_tile_load(4, x0, r->x_row);
        qr_tile_load(5, x1, r->x_row);
        if (odd) {
            qr_tile_dp(1, 4, 6);
            qr_tile_dp(3, 5, 6);
        } else {
            qr_tile_dp(0, 4, 6);
            qr_tile_dp(2, 5, 6);
        }
    }
}

/* Scores of two whole row tiles with K of 33 to 64: the queries' tiles, 0 to 3, stay while all panels pass by. */
static void scores_of_small_k(float *to, const struct rows *r, const char *w, int32_t n_panels)
{
    const int64_t c_row = QR_X_ROW * (int64_t)sizeof(float);
    char *c = (char *)to, *below = c + QR_TILE_ROWS * c_row;
    QR_ASSERT(r->n[0] == QR_TILE_ROWS && r->n[1] == QR_TILE_ROWS); /* tiles 2 and 4 may be configured for either */
    qr_tile_load(0, r->x[0], r->x_row);
    qr_tile_load(1, r->x[0] + r->x_step[0], r->x_row);
    qr_tile_load(2, r->x[1], r->x_row);
    qr_tile_load(3, r->x[1] + r->x_step[1], r->x_row);
    for (; n_panels > 0; n_panels--, w += 2 * QR_TILE_BYTES, c += QR_TILE_ROW_BYTES, below += QR_TILE_ROW_BYTES) {
        qr_tile_load_past(6, w, QR_TILE_ROW_BYTES);
        qr_tile_load_past(7, w + QR_TILE_BYTES, QR_TILE_ROW_BYTES);
        qr_tile_zero(4);
        qr_tile_zero(5);
        qr_tile_dp(4, 0, 6);
        qr_tile_dp(5, 2, 6);
        qr_tile_dp(4, 1, 7);
        qr_tile_dp(5, 3, 7);
        qr_tile_store(4, c, c_row);
        qr_tile_store(5, below, c_row);
    }
}

/* Scores of two row tiles. A product of few steps has its results stored while the next panel's is formed. */
static void scores_of_two(float *to, const struct rows *r, const char *w, int64_t w_panel, int32_t n_panels, int32_t n_k)
{
    const int64_t c_row = QR_X_ROW * (int64_t)sizeof(float);
    char *c = (char *)to, *below = c + QR_TILE_ROWS * c_row;
    QR_ASSERT(n_panels >= 1 && n_k >= 1);
    for (int32_t j = 0; j < n_panels; j++, w += w_panel, c += QR_TILE_ROW_BYTES, below += QR_TILE_ROW_BYTES) {
        if (j % 2 == 0) {
            panel_scores(false, r, w, n_k);
            if (j > 0) {
                qr_tile_store(1, c - QR_TILE_ROW_BYTES, c_row);
                qr_tile_store(3, below - QR_TILE_ROW_BYTES, c_row);
            }
        } else {
            panel_scores(true, r, w, n_k);
            qr_tile_store(0, c - QR_TILE_ROW_BYTES, c_row);
            qr_tile_store(2, below - QR_TILE_ROW_BYTES, c_row);
        }
    }
    if (n_panels % 2 == 1) {
        qr_tile_store(0, c - QR_TILE_ROW_BYTES, c_row);
        qr_tile_store(2, below - QR_TILE_ROW_BYTES, c_row);
    } else {
        qr_tile_store(1, c - QR_TILE_ROW_BYTES, c_row);
        qr_tile_store(3, below - QR_TILE_ROW_BYTES, c_row);
    }
}

/* 32 numbers of a row (NULL: zeros) of n_k from k on, zeros behind them. */
VF_FN __m512i load_line(const char *row, int32_t k, int32_t n_k)
{
    if (!row)
        return _mm512_setzero_si512();
    const __mmask32 there = (__mmask32)(0xffffffffu >> (n_k - k < QR_TILE_K ? QR_TILE_K - (n_k - k) : 0));
    return _mm512_maskz_loadu_epi16(there, row + k * 2);
}

/* Keys of positions [begin, end) of the piece at `base` to tiles, from the group of 16 on in which they begin. */
static void stage_keys(const struct tile *t, int32_t base, int32_t begin, int32_t end)
{
    const char *row[QR_PANEL] QR_UNINITIALIZED;
    vf r[VF_LEN] QR_UNINITIALIZED;
    char *dst = t->keys;
    for (int32_t at = begin / QR_PANEL * QR_PANEL; at < end; at += QR_PANEL) {
        cache_rows(t, 0, row, QR_PANEL, base + at, base + begin, base + end);
        prefetch(t, 1, base + at);
        for (int32_t u = 0; u < k_units(t) * QR_PANEL; u += VF_LEN, dst += QR_TILE_BYTES) {
            for (int i = 0; i < VF_LEN; i++)
                r[i] = _mm512_castsi512_ps(load_line(row[i], 2 * u, t->k));
            vf_transpose(r);
            for (int i = 0; i < VF_LEN; i++)
                vf_store((float *)(void *)dst + i * VF_LEN, r[i]);
        }
    }
}

VF_FN bool any_odd(__m512i x)
{
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    return _mm512_cmpeq_epi16_mask(_mm512_and_si512(x, exponent), exponent) != 0;
}

/* Rows a and b of 32 columns as pairs to two panels' tiles. */
VF_FN void store_pairs(char *dst, __m512i a, __m512i b, bool second)
{
    __m512i low = _mm512_unpacklo_epi16(a, b), high = _mm512_unpackhi_epi16(a, b); /* quarters 0 2 4 6 and 1 3 5 7 of the pairs */
    const __m512i first_half = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0), second_half = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    _mm512_storeu_si512(dst, _mm512_permutex2var_epi64(low, first_half, high));
    if (second)
        _mm512_storeu_si512(dst + PIECE_TILES * QR_TILE_BYTES, _mm512_permutex2var_epi64(low, second_half, high));
}

/* Values of positions [begin, end) of the piece at `base` to tiles; zeros for the others in [from, to), whole tiles. Prefetches the keys that come
 * after them. True when a value is infinite or NaN. */
static bool stage_values(const struct tile *t, int32_t base, int32_t from, int32_t to, int32_t begin, int32_t end, const struct after *after)
{
    const char *row[QR_PANEL] QR_UNINITIALIZED;
    bool odd = false;
    for (int32_t at = from; at < to; at += QR_PANEL) {
        cache_rows(t, 1, row, QR_PANEL, base + at, base + begin, base + end);
        if (after->t)
            prefetch(after->t, 0, after->base + at);
        for (int32_t i = 0; i < QR_PANEL; i += 2) {
            char *dst = t->values + at / QR_TILE_K * QR_TILE_BYTES + (at % QR_TILE_K + i) / 2 * QR_TILE_ROW_BYTES;
            for (int32_t k = 0; k < t->k; k += QR_TILE_K, dst += 2 * PIECE_TILES * QR_TILE_BYTES) {
                __m512i a = load_line(row[i], k, t->k), b = load_line(row[i + 1], k, t->k);
                odd |= any_odd(a) || any_odd(b);
                store_pairs(dst, a, b, t->k_pad - k > QR_PANEL);
            }
        }
    }
    return odd;
}

/* Some queries of a tile, at most BLOCK, and the positions of the piece at `base` that matter to them. */
struct query_block {
    const struct tile *t;
    int32_t q0, n, rows[2];
    int32_t base, begin, end;  /* whole tiles of positions: what some query sees, relative to base */
    int32_t scores_end;        /* whole panels of them */
};

static struct query_block block_at(const struct tile *t, int32_t q0, int32_t base)
{
    const struct scratch *s = t->s;
    struct query_block b = {.t = t, .q0 = q0, .n = query_end(t) - q0 < BLOCK ? query_end(t) - q0 : BLOCK, .base = base, .begin = PIECE};
    b.rows[0] = b.n < QR_TILE_ROWS ? b.n : QR_TILE_ROWS;
    b.rows[1] = b.n - b.rows[0];
    for (int32_t i = q0; i < q0 + b.n; i++) {
        if (s->in[i] == s->in_end[i])
            continue;
        b.begin = s->in[i] < b.begin ? s->in[i] : b.begin;
        b.end = s->in_end[i] > b.end ? s->in_end[i] : b.end;
    }
    b.begin = b.begin / QR_TILE_K * QR_TILE_K;
    b.scores_end = (b.end + QR_PANEL - 1) / QR_PANEL * QR_PANEL;
    b.end = (b.end + QR_TILE_K - 1) / QR_TILE_K * QR_TILE_K;
    return b;
}

/* The block's queries as tiles: where they are staged, or where they lie, which 16 rows of a head have in common. */
static struct rows query_rows(const struct query_block *b)
{
    const struct tile *t = b->t;
    if (t->by_head) {
        const char *second = b->rows[1] > 0 ? (const char *)rounded_query(t, place_of(t, b->q0 + QR_TILE_ROWS)) : NULL;
        return (struct rows){.x = {(const char *)rounded_query(t, place_of(t, b->q0)), second}, .x_step = {QR_TILE_ROW_BYTES, QR_TILE_ROW_BYTES},
                             .x_row = t->a->q_stride * (int64_t)sizeof(float), .n = {b->rows[0], b->rows[1]}};
    }
    const char *q = (const char *)(t->s->q_tiles + (int64_t)b->q0 * k_units(t) * QR_TILE_K);
    return (struct rows){.x = {q, q + (int64_t)k_units(t) * QR_TILE_BYTES}, .x_step = {b->rows[0] * QR_TILE_ROW_BYTES, b->rows[1] * QR_TILE_ROW_BYTES},
                         .x_row = QR_TILE_ROW_BYTES, .n = {b->rows[0], b->rows[1]}};
}

/* All scores of the block. Keys are staged from position `staged` on, whole groups of 16 up to `end`. */
static void score_block(const struct tile *t, const struct query_block *b, int32_t staged, int32_t end)
{
    const int32_t n_k = k_units(t), from = b->begin > staged ? b->begin : staged, to = b->scores_end < end ? b->scores_end : end;
    const int64_t panel = (int64_t)n_k * QR_TILE_BYTES;
    const int32_t n_panels = (to - from + QR_PANEL - 1) / QR_PANEL;
    const char *w = t->keys + (from - staged) / QR_PANEL * panel;
    const struct rows r = query_rows(b);
    float *p = t->s->p + b->q0 * QR_X_ROW + from;
    if (b->n == BLOCK && n_k == 2)
        scores_of_small_k(p, &r, w, n_panels);
    else if (b->rows[1] > 0)
        scores_of_two(p, &r, w, panel, n_panels, n_k);
    else
        products(p, QR_X_ROW, &r, w, panel, n_panels, n_k);
}

/* What query i sees of the piece in whole lines of 32 positions. */
VF_FN int32_t first_line(const struct tile *t, int32_t i)
{
    return t->s->in[i] / QR_TILE_K * QR_TILE_K;
}

/* 16 scores from `at` on, those outside of [first, end) as minus infinity. */
VF_FN vf load_seen(const float *p, int32_t at, int32_t first, int32_t end)
{
    const int32_t from = first > at ? first - at : 0, to = end - at < VF_LEN ? end - at : VF_LEN;
    const __mmask16 seen = (__mmask16)(from < to ? (1u << to) - (1u << from) : 0);
    return _mm512_mask_loadu_ps(vf_set1(-INFINITY), seen, p + at);
}

/* Largest scores of query i, lane by lane. */
VF_FN vf row_max(const struct tile *t, int32_t i)
{
    float *p = t->s->p + i * QR_X_ROW;
    const int32_t first = t->s->in[i], end = t->s->in_end[i];
    int32_t at = first_line(t, i);
    vf max0 = vf_set1(-INFINITY), max1 = max0;
    if (t->a->softcap > 0 && first < end)
        cap_scores(t, p, first, end, NULL);
    if (at < first) {
        max0 = load_seen(p, at, first, end);
        max1 = load_seen(p, at + VF_LEN, first, end);
        at += QR_TILE_K;
    }
    for (; at + QR_TILE_K <= end; at += QR_TILE_K) {
        max0 = vf_max(vf_load(p + at), max0);
        max1 = vf_max(vf_load(p + at + VF_LEN), max1);
    }
    if (at < end) {
        max0 = vf_max(load_seen(p, at, first, end), max0);
        max1 = vf_max(load_seen(p, at + VF_LEN, first, end), max1);
    }
    return vf_max(max0, max1);
}

/* What the powers of a query have in common, and their sums so far. */
struct powers {
    vf factor, shift, sum0, sum1;
};

/* 2^(factor score - maximum) of a line of scores in place of them, in bf16. Prefetches the scores 16 queries further meanwhile. */
VF_FN void line_powers(struct powers *w, float *p, vf low, vf high)
{
    const vf e0 = vf_exp2_of_negative(vf_fma(low, w->factor, w->shift)), e1 = vf_exp2_of_negative(vf_fma(high, w->factor, w->shift));
    w->sum0 = vf_add(w->sum0, e0);
    w->sum1 = vf_add(w->sum1, e1);
    store_line(p, e0, e1);
    _mm_prefetch((const char *)(p + QR_TILE_ROWS * QR_X_ROW), _MM_HINT_T0);
    _mm_prefetch((const char *)(p + QR_TILE_ROWS * QR_X_ROW + VF_LEN), _MM_HINT_T0);
}

/* Scores of query i become powers in bf16, each line of 32 in the first half of its place, zeros where it does not see what some query of the block sees.
 * Returns sums before rounding, lane by lane. */
VF_FN vf row_powers(const struct tile *t, const struct query_block *b, int32_t i)
{
    float *p = t->s->p + i * QR_X_ROW;
    const int32_t first = t->s->in[i], end = t->s->in_end[i], line = first_line(t, i);
    struct powers w = {vf_set1(t->factor), vf_set1(-t->s->piece_max[i]), vf_zero(), vf_zero()};
    int32_t at = b->begin;
    for (; at < line; at += QR_TILE_K)
        store_line(p + at, vf_zero(), vf_zero());
    if (at < first) {
        line_powers(&w, p + at, load_seen(p, at, first, end), load_seen(p, at + VF_LEN, first, end));
        at += QR_TILE_K;
    }
    for (; at + QR_TILE_K <= end; at += QR_TILE_K)
        line_powers(&w, p + at, vf_load(p + at), vf_load(p + at + VF_LEN));
    if (at < end) {
        line_powers(&w, p + at, load_seen(p, at, first, end), load_seen(p, at + VF_LEN, first, end));
        at += QR_TILE_K;
    }
    for (; at < b->end; at += QR_TILE_K)
        store_line(p + at, vf_zero(), vf_zero());
    return vf_add(w.sum0, w.sum1);
}

enum meeting { MEET_MAX, MEET_MAX_BITS, MEET_SUM };

VF_FN vf meet(const enum meeting how, vf a, vf b)
{
    if (how == MEET_MAX_BITS)
        return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
    return how == MEET_SUM ? vf_add(a, b) : vf_max(a, b);
}

/* Lane i: what the lanes of x[i] make together, in vf_sum's order: halves onto each other until one lane is left. */
VF_FN vf across(const enum meeting how, vf x[VF_LEN])
{
    for (int i = 0; i < 12; i += i == 3 ? 5 : 1)
        x[i] = meet(how, _mm512_shuffle_f32x4(x[i], x[i + 4], 0x44), _mm512_shuffle_f32x4(x[i], x[i + 4], 0xee));
    for (int i = 0; i < 4; i++)
        x[i] = meet(how, _mm512_shuffle_f32x4(x[i], x[i + 8], 0x88), _mm512_shuffle_f32x4(x[i], x[i + 8], 0xdd));
    for (int i = 0; i < 4; i += 2)
        x[i] = meet(how, _mm512_shuffle_ps(x[i], x[i + 1], 0x44), _mm512_shuffle_ps(x[i], x[i + 1], 0xee));
    return meet(how, _mm512_shuffle_ps(x[0], x[2], 0x88), _mm512_shuffle_ps(x[0], x[2], 0xdd));
}

/* Probabilities of n <= 16 queries of a block from i on, a multiple of 16, in the place of their scores; piece_max and piece_sum. */
static void softmax(const struct tile *t, const struct query_block *b, int32_t i, int32_t n)
{
    vf x[VF_LEN] QR_UNINITIALIZED;
    QR_ASSERT(i % QR_TILE_ROWS == 0 && n >= 1 && n <= QR_TILE_ROWS);
    for (int32_t r = 0; r < QR_TILE_ROWS; r++)
        x[r] = r < n ? row_max(t, i + r) : vf_set1(-INFINITY);
    vf_store(t->s->piece_max + i, vf_mul(across(MEET_MAX, x), vf_set1(t->factor)));
    for (int32_t r = 0; r < QR_TILE_ROWS; r++)
        x[r] = r < n ? row_powers(t, b, i + r) : vf_zero();
    vf_store(t->s->piece_sum + i, across(MEET_SUM, x));
}

/* c[queries of the block][k_pad] = p v over the staged values. */
static void weigh(const struct tile *t, const struct query_block *b, float *c)
{
    const char *p = (const char *)(t->s->p + b->q0 * QR_X_ROW + b->begin);
    const struct rows r = {
        .x = {p, p + QR_TILE_ROWS * QR_X_ROW * (int64_t)sizeof(float)},
        .x_step = {LINE_BYTES, LINE_BYTES},
        .x_row = QR_X_ROW * (int64_t)sizeof(float),
        .n = {b->rows[0], b->rows[1]},
    };
    products(c, t->k_pad, &r, t->values + b->begin / QR_TILE_K * QR_TILE_BYTES, PIECE_TILES * QR_TILE_BYTES, t->k_pad / QR_PANEL,
             (b->end - b->begin) / QR_TILE_K);
}

/* piece_out = p v for the block. */
static void weigh_block(const struct tile *t, const struct query_block *b)
{
    struct scratch *s = t->s;
    if (!t->odd_values) {
        weigh(t, b, s->piece_out);
        return;
    }
    for (int32_t r = 0; r < b->n; r++) {
        stage_values(t, b->base, b->begin, b->end, s->in[b->q0 + r], s->in_end[b->q0 + r], &(struct after){0});
        weigh(t, b, s->lone_out);
        memcpy(s->piece_out + r * t->k_pad, s->lone_out + r * t->k_pad, (size_t)t->k_pad * sizeof(float));
    }
}

/* All queries' results for the piece, of which some query sees [begin, end), the same of each of the n tiles. */
static void attend_pairs(struct tile *tiles, int32_t n, int32_t piece, int32_t begin, int32_t end, const struct after *after)
{
    const int32_t base = piece * PIECE, staged = begin / QR_PANEL * QR_PANEL;
    struct query_block blocks[QUERIES / QR_TILE_ROWS] QR_UNINITIALIZED, *last = blocks;
    QR_ASSERT(n >= 1 && n <= TILES_MAX && query_end(&tiles[n - 1]) <= QUERIES);
    for (struct tile *t = tiles; t < tiles + n; t++) {
        stage_keys(t, base, begin, end);
        const struct after next = t + 1 < tiles + n ? (struct after){t + 1, base} : *after;
        t->odd_values = stage_values(t, base, begin / QR_TILE_K * QR_TILE_K, (end + QR_TILE_K - 1) / QR_TILE_K * QR_TILE_K, begin, end, &next);
        for (int32_t q0 = t->q0; q0 < query_end(t); q0 += BLOCK)
            *last++ = block_at(t, q0, base);
    }
    for (const struct query_block *b = blocks; b < last; b++) {
        if (!b->t->staged_queries)
            stage_queries(b->t, b->q0, b->n);
        if (b->begin < b->end) {
            configure(b->t, b->rows[0], b->rows[1]);
            score_block(b->t, b, staged, end);
        }
    }
    for (struct tile *t = tiles; t < tiles + n; t++)
        t->staged_queries = true;
    for (const struct query_block *b = blocks; b < last; b++) {
        if (after->t && after->t != tiles) /* the next item's */
            prefetch_queries(after->t, b->q0, b->n);
        for (int32_t i = 0; i < b->n; i += QR_TILE_ROWS)
            softmax(b->t, b, b->q0 + i, b->n - i < QR_TILE_ROWS ? b->n - i : QR_TILE_ROWS);
    }
    for (const struct query_block *b = blocks; b < last; b++) {
        if (b->begin < b->end) {
            configure(b->t, b->rows[0], b->rows[1]);
            weigh_block(b->t, b);
        }
        take_piece(b->t, piece, b->q0, b->n, b->t->s->piece_out);
    }
}

#endif
