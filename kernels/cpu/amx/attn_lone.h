/* attn_lone.h - a single row (decode) over a bf16 cache on the tile registers. Included by amx/attn_bytes.h only.
 *
 * A row's queries with one kv head are few, so memory is what such a row should wait for. Keys are not staged: 16 positions are the rows of a tile where
 * they lie in the cache, and the queries are the columns, of which a tile has as many as are needed. An element's chain of products is the same
 * either way (tile.h). Values become pairs of positions, 64 at a time, by one exchange of halves: columns come out in an order of their
 * own, which is put right once a piece. The heads of an item take turns, so that memory is read in the order in which it lies, and all along what comes
 * next is prefetched (attn_ahead.h).
 */
#ifndef QR_KERNELS_CPU_AMX_ATTN_LONE_H
#define QR_KERNELS_CPU_AMX_ATTN_LONE_H

#include "kernels/cpu/amx/attn_tiles.h"
#include "kernels/cpu/amx/attn_ahead.h"

#define LONE_POSITIONS 64 /* whose values are staged at once */

/* Sixteenths of a piece's lines that are prefetched meanwhile. */
#define LONE_SCORES 7
#define LONE_SOFTMAX 2
#define LONE_VALUES 7

_Static_assert(LONE_POSITIONS * K_MAX * 2 <= sizeof(((struct scratch *)0)->values), "values of some positions");
_Static_assert(QR_TILE_ROWS * K_MAX <= (int)(sizeof(((struct scratch *)0)->piece_out) / sizeof(float)), "results of an item's tiles");

/* Whether a tile goes this way. Groups of 16 positions lie in one block. */
static bool is_lone(const struct tile *t)
{
    return t->n_rows == 1 && t->n_queries <= QR_TILE_ROWS && t->k % QR_TILE_K == 0 && t->a->kv->block_tokens >= QR_PANEL;
}

/* Columns of a tile of queries. */
static int32_t lone_columns(const struct tile *t)
{
    return t->n_queries <= 4 ? 4 : QR_TILE_ROWS;
}

/* For scores tiles 0 and 1 are sums [positions][queries], 4 and 5 queries, 6 and 7 keys; for values 0 to 3 are sums [queries][columns], 4 and 5
 * probabilities, 6 and 7 values. */
static void configure_lone(const struct tile *t, bool values)
{
    int32_t *now = t->s->tile_rows;
    if (now[0] == t->n_queries && now[1] == (values ? -2 : -1))
        return;
    struct qr_tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = (uint16_t)(values || i >= 6 ? QR_TILE_ROW_BYTES : lone_columns(t) * 4);
        c.rows[i] = (uint8_t)(values && i < 6 ? t->n_queries : QR_TILE_ROWS);
    }
    qr_tile_configure(&c);
    now[0] = t->n_queries;
    now[1] = values ? -2 : -1;
}

/* The tile's queries as columns, [K / 32][pairs of K][columns], to where others stage keys. */
static void transpose_queries(const struct tile *t)
{
    const int32_t n_k = k_units(t), n = t->n_queries, columns = lone_columns(t);
    const uint16_t *q = t->s->q_tiles + (int64_t)t->q0 * n_k * QR_TILE_K;
    vf r[VF_LEN] QR_UNINITIALIZED;
    float *dst = (float *)(void *)t->keys;
    for (int32_t u = 0; u < n_k; u++, q += n * QR_TILE_K) {
        for (int32_t i = 0; i < VF_LEN; i++)
            r[i] = i < n ? _mm512_castsi512_ps(_mm512_loadu_si512(q + i * QR_TILE_K)) : vf_zero();
        vf_transpose(r);
        for (int32_t i = 0; i < VF_LEN; i++, dst += columns)
            vf_store_n(dst, r[i], columns);
    }
}

/* Scores of 16 positions, [positions][columns] at c, as rows of s->p from `p` on. */
VF_FN void transpose_scores(const struct tile *t, const float *c, float *p)
{
    if (t->n_queries > 4) {
        vf r[VF_LEN] QR_UNINITIALIZED;
        for (int32_t i = 0; i < VF_LEN; i++)
            r[i] = vf_load(c + i * VF_LEN);
        vf_transpose(r);
        for (int32_t i = 0; i < t->n_queries; i++)
            vf_store(p + i * QR_X_ROW, r[i]);
        return;
    }
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const vf a = vf_load(c), b = vf_load(c + 16), d = vf_load(c + 32), e = vf_load(c + 48);
    const vf ab = _mm512_unpacklo_ps(a, b), de = _mm512_unpacklo_ps(d, e), ab2 = _mm512_unpackhi_ps(a, b), de2 = _mm512_unpackhi_ps(d, e);
    vf_store(p, _mm512_permutexvar_ps(order, _mm512_shuffle_ps(ab, de, 0x44)));
    if (t->n_queries > 1)
        vf_store(p + QR_X_ROW, _mm512_permutexvar_ps(order, _mm512_shuffle_ps(ab, de, 0xee)));
    if (t->n_queries > 2)
        vf_store(p + 2 * QR_X_ROW, _mm512_permutexvar_ps(order, _mm512_shuffle_ps(ab2, de2, 0x44)));
    if (t->n_queries > 3)
        vf_store(p + 3 * QR_X_ROW, _mm512_permutexvar_ps(order, _mm512_shuffle_ps(ab2, de2, 0xee)));
}

/* Scores of positions at .. at + 15 of the piece at `base`, and of 16 more where `two`. */
VF_FN void score_lone(const struct tile *t, int32_t base, int32_t at, bool two)
{
    _Alignas(64) float c[2][QR_TILE_ROWS * VF_LEN] QR_UNINITIALIZED;
    const int64_t columns = lone_columns(t) * (int64_t)sizeof(float), row = (int64_t)t->row_bytes;
    const char *q = t->keys, *a = cache_row(t, 0, base + at), *b = two ? cache_row(t, 0, base + at + QR_PANEL) : NULL;
    float *p = t->s->p + t->q0 * QR_X_ROW + at;
    qr_tile_zero(0);
    qr_tile_zero(1);
    for (int32_t u = 0; u < k_units(t); u++, q += QR_TILE_ROWS * columns) {
        qr_tile_load(4, q, columns);
        qr_tile_load(6, a + u * QR_TILE_ROW_BYTES, row);
        qr_tile_dp(0, 6, 4);
        if (two) {
            qr_tile_load(7, b + u * QR_TILE_ROW_BYTES, row);
            qr_tile_dp(1, 7, 4);
        }
    }
    qr_tile_store(0, c[0], columns);
    if (two)
        qr_tile_store(1, c[1], columns);
    transpose_scores(t, c[0], p);
    if (two)
        transpose_scores(t, c[1], p + QR_PANEL);
}

/* Values of 16 positions from `row` on, of which [first, end) are seen, as pairs: [K / 32][halves of fours][pairs of 32 positions][16]. */
VF_FN void stage_lone(const bool all, char *dst, const char *row, int64_t row_bytes, int32_t k, int32_t first, int32_t end)
{
    for (int32_t i = 0; i < QR_PANEL; i += 2, row += 2 * row_bytes, dst += QR_TILE_ROW_BYTES) {
        const bool has_a = all || (i >= first && i < end), has_b = all || (i + 1 >= first && i + 1 < end);
        for (int32_t u = 0; u < k / QR_TILE_K; u++) {
            const __m512i a = has_a ? _mm512_loadu_si512(row + u * QR_TILE_ROW_BYTES) : _mm512_setzero_si512();
            const __m512i b = has_b ? _mm512_loadu_si512(row + row_bytes + u * QR_TILE_ROW_BYTES) : _mm512_setzero_si512();
            _mm512_storeu_si512(dst + 2 * u * QR_TILE_BYTES, _mm512_unpacklo_epi16(a, b));
            _mm512_storeu_si512(dst + (2 * u + 1) * QR_TILE_BYTES, _mm512_unpackhi_epi16(a, b));
        }
    }
}

/* Values of the n positions from `at` on, 32 or 64, of the piece at `base`, of which [begin, end) are seen. */
static void stage_lone_values(const struct tile *t, char *dst, int32_t base, int32_t at, int32_t n, int32_t begin, int32_t end)
{
    const int64_t tiles = (int64_t)k_units(t) * 2 * QR_TILE_BYTES;
    for (int32_t i = 0; i < n; i += QR_PANEL) {
        char *to = dst + i / QR_TILE_K * tiles + i % QR_TILE_K / 2 * QR_TILE_ROW_BYTES;
        const int32_t first = begin - at - i, last = end - at - i;
        if (first <= 0 && last >= QR_PANEL)
            stage_lone(true, to, cache_row(t, 1, base + at + i), (int64_t)t->row_bytes, t->k, 0, QR_PANEL);
        else if (first >= QR_PANEL || last <= 0)
            stage_lone(false, to, NULL, 0, t->k, 0, 0);
        else
            stage_lone(false, to, cache_row(t, 1, base + at + i), (int64_t)t->row_bytes, t->k, first, last);
    }
}

/* 32 columns of sums over one or two tiles of 32 positions; more tells that there were some before. */
#define WEIGH_LONE(c0, c1, x, more, two, c, c_row, p, p_row, w, w_step)     \
    do {                                                                      \
        if (more) {                                                           \
            qr_tile_load(c0, c, c_row);                                       \
            qr_tile_load(c1, (c) + QR_TILE_ROW_BYTES, c_row);                 \
        } else {                                                              \
            qr_tile_zero(c0);                                                 \
            qr_tile_zero(c1);                                                 \
        }                                                                     \
        qr_tile_load(x, p, p_row);                                            \
        qr_tile_load(6, w, QR_TILE_ROW_BYTES);                                \
        qr_tile_dp(c0, x, 6);                                                 \
        qr_tile_load(7, (w) + QR_TILE_BYTES, QR_TILE_ROW_BYTES);              \
        qr_tile_dp(c1, x, 7);                                                 \
        if (two) {                                                            \
            qr_tile_load(x, (p) + LINE_BYTES, p_row);                         \
            qr_tile_load(6, (w) + (w_step), QR_TILE_ROW_BYTES);               \
            qr_tile_dp(c0, x, 6);                                             \
            qr_tile_load(7, (w) + (w_step) + QR_TILE_BYTES, QR_TILE_ROW_BYTES); \
            qr_tile_dp(c1, x, 7);                                             \
        }                                                                     \
        qr_tile_store(c0, c, c_row);                                          \
        qr_tile_store(c1, (c) + QR_TILE_ROW_BYTES, c_row);                    \
    } while (0)

/* Adds probabilities times staged values w of 32 or (two) 64 positions from `at` on. */
static void weigh_lone(const struct tile *t, float *out, const char *w, int32_t at, bool more, bool two)
{
    const int64_t w_step = (int64_t)k_units(t) * 2 * QR_TILE_BYTES, p_row = QR_X_ROW * (int64_t)sizeof(float), c_row = t->k * (int64_t)sizeof(float);
    const char *p = (const char *)(t->s->p + t->q0 * QR_X_ROW + at);
    char *c = (char *)out;
    for (int32_t u = 0; u < k_units(t); u++, w += 2 * QR_TILE_BYTES, c += 2 * QR_TILE_ROW_BYTES) {
        if (u % 2 == 0)
            WEIGH_LONE(0, 1, 4, more, two, c, c_row, p, p_row, w, w_step);
        else
            WEIGH_LONE(2, 3, 5, more, two, c, c_row, p, p_row, w, w_step);
    }
}

/* Columns of n rows of results in their order. */
static void order_columns(float *out, int32_t n, int32_t k)
{
    const __m512i first_half = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0), second_half = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    for (int32_t i = 0; i < n * k; i += QR_TILE_K) {
        const __m512i a = _mm512_loadu_si512(out + i), b = _mm512_loadu_si512(out + i + VF_LEN);
        _mm512_storeu_si512(out + i, _mm512_permutex2var_epi64(a, first_half, b));
        _mm512_storeu_si512(out + i + VF_LEN, _mm512_permutex2var_epi64(a, second_half, b));
    }
}

/* The n tiles' results for the piece, of which their row sees [begin, end). */
static void attend_lone(struct tile *tiles, int32_t n, int32_t piece, int32_t begin, int32_t end, const struct after *after)
{
    const int32_t base = piece * PIECE, stop = (end + QR_TILE_K - 1) / QR_TILE_K * QR_TILE_K;
    struct scratch *s = tiles->s;
    struct ahead h;
    QR_ASSERT(begin >= 0 && begin < end && end <= PIECE);
    begin_ahead(&h, tiles, after, base, begin, end);
    for (struct tile *t = tiles; t < tiles + n; t++) {
        if (!t->staged_queries)
            stage_queries(t, t->q0, t->n_queries);
        t->staged_queries = true;
        transpose_queries(t);
    }
    configure_lone(tiles, false);
    for (int32_t at = begin / QR_PANEL * QR_PANEL; at < end; at += FEW_STEP)
        for (const struct tile *t = tiles; t < tiles + n; t++) {
            score_lone(t, base, at, at + QR_PANEL < end);
            prefetch_lines(&h, share_of_lines(t, FEW_STEP, LONE_SCORES));
        }
    for (const struct tile *t = tiles; t < tiles + n; t++) {
        const struct query_block b = block_at(t, t->q0, base);
        softmax(t, &b, t->q0, t->n_queries);
        prefetch_lines(&h, share_of_lines(t, end - begin, LONE_SOFTMAX));
    }
    configure_lone(tiles, true);
    for (int32_t from = begin / QR_TILE_K * QR_TILE_K, at = from, step; at < stop; at += step) {
        step = stop - at < LONE_POSITIONS ? stop - at : LONE_POSITIONS;
        for (const struct tile *t = tiles; t < tiles + n; t++) {
            stage_lone_values(t, tiles->values, base, at, step, begin, end);
            weigh_lone(t, s->piece_out + t->q0 * t->k, tiles->values, at, at > from, step == LONE_POSITIONS);
            prefetch_lines(&h, share_of_lines(t, step, LONE_VALUES));
        }
    }
    for (const struct tile *t = tiles; t < tiles + n; t++) {
        order_columns(s->piece_out + t->q0 * t->k, t->n_queries, t->k);
        take_piece(t, piece, t->q0, t->n_queries, s->piece_out + t->q0 * t->k);
    }
}

#endif
