/* attn_tiles.h - the two products of a query tile on the tile registers, for caches of bf16 and int8. Included by isa/attention.c only.
 *
 * Keys are staged as tiles [16 positions' group][K / 32] of pairs of K, values as tiles [K / 16][piece / 32] of pairs of positions; missing
 * K and positions that the query tile does not see are zeros. Scores of one query are one chain of tiles over K, weighted values one over the
 * piece's positions from its first tile of 32 to its last.
 *
 * A query's result must not depend on positions that it does not see and its neighbours do. Their probabilities are 0 here, so they add
 * 0 times a number: nothing, but for the sign of a sum that is 0 itself, which merging removes. Where a value is infinite or NaN, 0
 * times it is not 0: then each query of the tile is weighed on its own, with the values of its own range alone.
 */
#ifndef QR_KERNELS_CPU_AMX_ATTN_TILES_H
#define QR_KERNELS_CPU_AMX_ATTN_TILES_H

#include "kernels/cpu/amx/tile.h"
#include "kernels/cpu/isa/attn_int8.h"
#include "kernels/cpu/isa/attn_tile.h"

#define BLOCK_ROWS QR_TILE_ROWS
#define PRODUCTS_ROUND true /* probabilities are rounded on their way to tiles */
#define PIECE_TILES (PIECE / QR_TILE_K)
#define PANELS_MAX 4 /* tiles of w that meet one of x */

_Static_assert(STEP / QR_PANEL * (K_MAX / QR_TILE_K) * QR_TILE_BYTES <= sizeof(((struct scratch *)0)->keys), "tiles of keys");
_Static_assert(K_MAX / QR_PANEL * PIECE_TILES * QR_TILE_BYTES <= sizeof(((struct scratch *)0)->values), "tiles of values");

/* Tiles of a row of K numbers. */
static int32_t k_tiles(const struct tile *t)
{
    return (t->k + QR_TILE_K - 1) / QR_TILE_K;
}

static bool stages_values(const struct tile *t)
{
    QR_ASSERT(t->a->kv->dtype == QR_BF16 || t->a->kv->dtype == QR_I8);
    return true;
}

/* Tiles 0-3 are sums and 4 the queries, of so many rows; 6 and 7 are keys or values. */
static void configure(const struct tile *t, int32_t rows)
{
    if (t->s->tile_rows == rows)
        return;
    struct qr_tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = QR_TILE_ROW_BYTES;
        c.rows[i] = (uint8_t)(i >= 6 ? QR_TILE_ROWS : rows);
    }
    qr_tile_configure(&c);
    t->s->tile_rows = rows;
}

/* 32 floats to the nearest bf16 (ties to even; denormal numbers to 0, as which tiles take them anyway). */
VF_FN void store_line(void *dst, vf low, vf high)
{
    _mm512_storeu_si512(dst, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

/* Queries to tiles. */
static void begin_products(const struct tile *t)
{
    QR_ASSERT(t->n_queries <= QUERIES);
    int32_t n_k = k_tiles(t);
    for (int32_t b = 0; b < t->n_blocks; b++) {
        int32_t q0 = block_first(t, b), rows = block_first(t, b + 1) - q0;
        QR_ASSERT(rows >= 1 && rows <= BLOCK_ROWS);
        uint16_t *dst = t->s->q_tiles + (int64_t)q0 * n_k * QR_TILE_K;
        for (int32_t r = 0; r < rows; r++) {
            const float *q = t->s->q + (q0 + r) * QR_X_ROW;
            for (int32_t i = 0; i < n_k; i++) {
                int64_t n = t->k - i * QR_TILE_K, n_high = n > VF_LEN ? vf_min_len(n - VF_LEN) : 0;
                store_line(dst + (i * rows + r) * QR_TILE_K, vf_load_n(q + i * QR_TILE_K, vf_min_len(n)),
                           vf_load_n(q + i * QR_TILE_K + VF_LEN, n_high));
            }
        }
    }
    t->s->tile_rows = 0;
}

static void end_products(void)
{
    qr_tile_release();
}

/* c[rows][16 n] = x w over n_steps tiles; x is followed by its next step, panels of w lie w_panel bytes apart. */
VF_FN void products_of(const int n, char *c, int64_t c_bytes, const char *x, int64_t x_step, const char *w, int64_t w_panel, int32_t n_steps)
{
    qr_tile_zero(0);
    qr_tile_zero(1);
    qr_tile_zero(2);
    qr_tile_zero(3);
    for (; n_steps > 0; n_steps--, x += x_step, w += QR_TILE_BYTES) {
        qr_tile_load(4, x, QR_TILE_ROW_BYTES);
        qr_tile_load(6, w, QR_TILE_ROW_BYTES);
        qr_tile_dp(0, 4, 6);
        if (n > 1) {
            qr_tile_load(7, w + w_panel, QR_TILE_ROW_BYTES);
            qr_tile_dp(1, 4, 7);
        }
        if (n > 2) {
            qr_tile_load(6, w + 2 * w_panel, QR_TILE_ROW_BYTES);
            qr_tile_dp(2, 4, 6);
            qr_tile_load(7, w + 3 * w_panel, QR_TILE_ROW_BYTES);
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

/* The same for any number of panels. */
static void products(float *c, int64_t c_stride, const void *x, int32_t rows, const char *w, int64_t w_panel, int32_t n_panels, int32_t n_steps)
{
    int64_t c_bytes = c_stride * (int64_t)sizeof(float), x_step = rows * QR_TILE_ROW_BYTES;
    for (int32_t n; n_panels > 0; n_panels -= n, c += n * QR_PANEL, w += n * w_panel) {
        n = n_panels >= PANELS_MAX ? PANELS_MAX : n_panels >= 2 ? 2 : 1;
        if (n == PANELS_MAX)
            products_of(PANELS_MAX, (char *)c, c_bytes, x, x_step, w, w_panel, n_steps);
        else if (n == 2)
            products_of(2, (char *)c, c_bytes, x, x_step, w, w_panel, n_steps);
        else
            products_of(1, (char *)c, c_bytes, x, x_step, w, w_panel, n_steps);
    }
}

/* 32 numbers of a row (NULL: zeros) of n_k as bf16 from k on, zeros behind them. */
VF_FN __m512i load_line(const char *row, int32_t k, int32_t n_k, const bool int8)
{
    if (!row)
        return _mm512_setzero_si512();
    const __mmask32 there = (__mmask32)(0xffffffffu >> (n_k - k < QR_TILE_K ? QR_TILE_K - (n_k - k) : 0));
    if (!int8)
        return _mm512_maskz_loadu_epi16(there, row + k * 2);
    __m256i x = _mm256_maskz_loadu_epi8(there, row + k);
    __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(x)));
    __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(x, 1)));
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* Keys of positions [begin, end) of the piece at `base` to tiles, from the group of 16 on in which they begin. */
VF_FN void stage_keys_of(const struct tile *t, int32_t base, int32_t begin, int32_t end, const bool int8)
{
    const char *row[QR_PANEL] QR_UNINITIALIZED;
    vf r[VF_LEN] QR_UNINITIALIZED;
    char *dst = (char *)t->s->keys;
    for (int32_t at = begin / QR_PANEL * QR_PANEL; at < end; at += QR_PANEL) {
        cache_rows(t, 0, row, QR_PANEL, base + at, base + begin, base + end);
        prefetch(t, 1, base + at);
        for (int32_t u = 0; u < k_tiles(t) * QR_PANEL; u += VF_LEN, dst += QR_TILE_BYTES) {
            for (int i = 0; i < VF_LEN; i++)
                r[i] = _mm512_castsi512_ps(load_line(row[i], 2 * u, t->k, int8));
            vf_transpose(r);
            for (int i = 0; i < VF_LEN; i++)
                vf_store((float *)(void *)dst + i * VF_LEN, r[i]);
        }
    }
}

static void stage_keys(const struct tile *t, int32_t base, int32_t begin, int32_t end)
{
    if (is_int8(t))
        stage_keys_of(t, base, begin, end, true);
    else
        stage_keys_of(t, base, begin, end, false);
}

/* Scores of queries [q0, q0 + mr) for positions [begin, end), whose keys are staged. */
static void score_block(const struct tile *t, int32_t q0, int32_t mr, int32_t begin, int32_t end)
{
    int32_t group = begin / QR_PANEL, n_groups = (end + QR_PANEL - 1) / QR_PANEL - group, n_k = k_tiles(t);
    configure(t, mr);
    products(t->s->p + q0 * QR_X_ROW + group * QR_PANEL, QR_X_ROW, t->s->q_tiles + (int64_t)q0 * n_k * QR_TILE_K, mr,
             (const char *)t->s->keys, (int64_t)n_k * QR_TILE_BYTES, n_groups, n_k);
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

/* Values of positions [begin, end) of the piece at `base` to tiles; zeros for the others in [from, to), whole tiles. True when one is infinite
 * or NaN. */
VF_FN bool stage_value_tiles_of(const struct tile *t, int32_t base, int32_t from, int32_t to, int32_t begin, int32_t end, const bool int8)
{
    const char *row[QR_PANEL] QR_UNINITIALIZED;
    bool odd = false;
    for (int32_t at = from; at < to; at += QR_PANEL) {
        cache_rows(t, 1, row, QR_PANEL, base + at, base + begin, base + end);
        prefetch(t, 0, base + at + PIECE);
        for (int32_t i = 0; i < QR_PANEL; i += 2) {
            char *dst = (char *)t->s->values + at / QR_TILE_K * QR_TILE_BYTES + (at % QR_TILE_K + i) / 2 * QR_TILE_ROW_BYTES;
            for (int32_t k = 0; k < t->k; k += QR_TILE_K, dst += 2 * PIECE_TILES * QR_TILE_BYTES) {
                __m512i a = load_line(row[i], k, t->k, int8), b = load_line(row[i + 1], k, t->k, int8);
                odd |= !int8 && (any_odd(a) || any_odd(b));
                store_pairs(dst, a, b, t->k_pad - k > QR_PANEL);
            }
        }
    }
    return odd;
}

static bool stage_value_tiles(const struct tile *t, int32_t base, int32_t from, int32_t to, int32_t begin, int32_t end)
{
    if (is_int8(t)) /* a value that was not finite has the scale NaN, which its probability meets */
        return stage_value_tiles_of(t, base, from, to, begin, end, true);
    return stage_value_tiles_of(t, base, from, to, begin, end, false);
}

static void stage_values(const struct tile *t, int32_t base, int32_t begin, int32_t end)
{
    struct scratch *s = t->s;
    s->value_begin = begin / QR_TILE_K * QR_TILE_K;
    s->value_end = (end + QR_TILE_K - 1) / QR_TILE_K * QR_TILE_K;
    s->odd_values = stage_value_tiles(t, base, s->value_begin, s->value_end, begin, end);
}

/* Probabilities of queries [q0, q0 + mr) to tiles, 0 outside each one's range. */
static void pack_probabilities(const struct tile *t, int32_t q0, int32_t mr)
{
    const struct scratch *s = t->s;
    for (int32_t r = 0; r < mr; r++) {
        const float *p = s->p + (q0 + r) * QR_X_ROW;
        uint16_t *dst = t->s->p_tiles + r * QR_TILE_K;
        for (int32_t at = s->value_begin; at < s->value_end; at += QR_TILE_K, dst += mr * QR_TILE_K) {
            int32_t first = s->in[q0 + r] - at, end = s->in_end[q0 + r] - at;
            first = first < 0 ? 0 : first < QR_TILE_K ? first : QR_TILE_K;
            end = end < 0 ? 0 : end < QR_TILE_K ? end : QR_TILE_K;
            uint32_t seen = (uint32_t)((1ull << end) - 1) & ~(uint32_t)((1ull << first) - 1);
            store_line(dst, _mm512_maskz_loadu_ps((__mmask16)seen, p + at), _mm512_maskz_loadu_ps((__mmask16)(seen >> VF_LEN), p + at + VF_LEN));
        }
    }
}

/* c[mr][k_pad] = p v over the staged values. */
static void weigh(const struct tile *t, float *c, int32_t mr)
{
    const struct scratch *s = t->s;
    products(c, t->k_pad, s->p_tiles, mr, (const char *)s->values + s->value_begin / QR_TILE_K * QR_TILE_BYTES, PIECE_TILES * QR_TILE_BYTES,
             t->k_pad / QR_PANEL, (s->value_end - s->value_begin) / QR_TILE_K);
}

/* piece_out = p v for queries [q0, q0 + mr) of the piece at `base`. */
static void weigh_block(const struct tile *t, int32_t q0, int32_t mr, int32_t base)
{
    struct scratch *s = t->s;
    float *out = s->piece_out + q0 * t->k_pad;
    configure(t, mr);
    pack_probabilities(t, q0, mr);
    if (!s->odd_values) {
        weigh(t, out, mr);
        return;
    }
    for (int32_t r = 0; r < mr; r++) {
        stage_value_tiles(t, base, s->value_begin, s->value_end, s->in[q0 + r], s->in_end[q0 + r]);
        weigh(t, s->lone_out, mr);
        memcpy(out + r * t->k_pad, s->lone_out + r * t->k_pad, (size_t)t->k_pad * sizeof(float));
    }
}

#endif
