/* attn_bytes.h - a query tile over an int8 cache on the tile registers; which way a tile goes. Included by isa/attention.c only.
 *
 * The integers of keys and values are operands of tiles as they lie in the cache; nothing is widened. What meets them is rounded to integers of
 * 16 bits and split in two bytes: a query's head by its largest number to -32767 .. 32767, with a signed high byte, and a piece's
 * probabilities, each times its value's scale, by the largest of them that the query sees to 0 .. 65535. A product is then
 * 256 times a sum of high bytes and a sum of low ones, exact in 32 bits (65535 * 127 * 256 < 2^31), and one conversion and two products
 * with scales make a float of it. So a result depends on nothing but the query's own positions, whatever the tile holds beside them.
 *
 * Rounding a query moves each of its numbers by at most 2^-16 of its head's largest, rounding probabilities by 2^-17 of the piece's largest:
 * less than bf16 would. Keys are staged as tiles [16 positions' group][K / 64] of quads of K, values as tiles [K / 64][4][piece / 64] of quads of
 * positions: tile m of four has the columns 16 l + 4 m + c of its 64 as column 4 l + c, which is the order that interleaving bytes and
 * words within the quarters of a vector gives; results are put in order instead.
 */
#ifndef QR_KERNELS_CPU_AMX_ATTN_BYTES_H
#define QR_KERNELS_CPU_AMX_ATTN_BYTES_H

#include "kernels/cpu/amx/attn_tiles.h"
#include "kernels/cpu/amx/tile.h"
#include "kernels/cpu/isa/attn_int8.h"
#include "kernels/quant.h"

#define BYTES_K (2 * QR_TILE_K) /* bytes of a tile's row */
#define PIECE_BYTE_TILES (PIECE / BYTES_K)
#define K_BYTE_TILES (K_MAX / BYTES_K)
#define QUERY_LARGEST 32767.0f
#define WEIGHT_LARGEST 65535.0f

_Static_assert(STEP / QR_PANEL * K_BYTE_TILES * QR_TILE_BYTES <= sizeof(((struct scratch *)0)->keys), "tiles of keys");
_Static_assert(2 * QUERY_NUMBERS <= sizeof(((struct scratch *)0)->q_tiles), "bytes of queries");

/* Lies where a bf16 cache has its staged values. */
struct byte_scratch {
    char values[K_BYTE_TILES * 4 * PIECE_BYTE_TILES * QR_TILE_BYTES];
    char p[2][QR_TILE_ROWS * PIECE];         /* high and low bytes of a block's probabilities, [piece / 64][rows][64] */
    int32_t sums[2][QR_TILE_ROWS * BYTES_K]; /* of high and low bytes */
    float q_scale[QUERIES], p_scale[QR_TILE_ROWS];
};
_Static_assert(sizeof(struct byte_scratch) <= sizeof(((struct scratch *)0)->values), "scratch of a tile of bytes");

static struct byte_scratch *bytes_of(const struct tile *t)
{
    return (struct byte_scratch *)(void *)t->s->values;
}

/* High (0) or low (1) bytes of queries from q0 on, a multiple of 16: 16 queries after the other, [K / 64][rows][64]. */
static char *query_bytes(const struct tile *t, int32_t low, int32_t q0)
{
    return (char *)t->s->q_tiles + low * QUERY_NUMBERS + q0 * ((t->k + BYTES_K - 1) / BYTES_K * BYTES_K);
}

/* The larger of magnitudes as bits, infinity and NaN above all (quant.h). */
VF_FN __m512i max_bits(__m512i most, vf x)
{
    return _mm512_max_epu32(most, _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)));
}

/* 16 integers of 16 bits as bytes. */
VF_FN void store_bytes(char *high, char *low, __m512i x)
{
    _mm_storeu_si128((__m128i *)(void *)high, _mm512_cvtepi32_epi8(_mm512_srai_epi32(x, 8)));
    _mm_storeu_si128((__m128i *)(void *)low, _mm512_cvtepi32_epi8(x));
}

/* Queries to tiles. */
static void begin_bytes(const struct tile *t)
{
    QR_ASSERT(t->n_queries >= 1 && t->n_queries <= QUERIES);
    QR_ASSERT(t->k <= K_MAX);
    for (int32_t i = 0; i < t->n_queries; i++) {
        const int32_t first = i / QR_TILE_ROWS * QR_TILE_ROWS, rows = t->n_queries - first < QR_TILE_ROWS ? t->n_queries - first : QR_TILE_ROWS;
        const float *q = query(t, i);
        __m512i most = _mm512_setzero_si512();
        float inverse;
        for (int32_t k = 0; k < t->k; k += VF_LEN)
            most = max_bits(most, vf_load_n(q + k, vf_min_len(t->k - k)));
        bytes_of(t)->q_scale[i] = qr_quant_scale(&inverse, _mm512_reduce_max_epu32(most), QUERY_LARGEST);
        char *high = query_bytes(t, 0, first) + (i - first) * BYTES_K, *low = query_bytes(t, 1, first) + (i - first) * BYTES_K;
        for (int32_t k = 0; k < (t->k + BYTES_K - 1) / BYTES_K * BYTES_K; k += VF_LEN) {
            const int32_t to = k / BYTES_K * rows * BYTES_K + k % BYTES_K;
            vf x = t->k > k ? vf_load_n(q + k, vf_min_len(t->k - k)) : vf_zero();
            store_bytes(high + to, low + to, _mm512_cvtps_epi32(vf_mul(x, vf_set1(inverse))));
        }
    }
    t->s->tile_rows[0] = 0;
}

/* sums[0], sums[1] [rows][stride]: high and low bytes of x times one panel of w, or two that lie w_panel bytes apart, over n_steps tiles. */
VF_FN void byte_products(const bool signed_high, int32_t *high, int32_t *low, int64_t stride, const char *x_high, const char *x_low, int64_t x_step,
                         const char *w, int64_t w_panel, int32_t n_panels, int32_t n_steps)
{
    qr_tile_zero(0);
    qr_tile_zero(1);
    qr_tile_zero(2);
    qr_tile_zero(3);
    for (; n_steps > 0; n_steps--, x_high += x_step, x_low += x_step, w += QR_TILE_BYTES) {
        qr_tile_load(4, x_high, QR_TILE_ROW_BYTES);
        qr_tile_load(5, x_low, QR_TILE_ROW_BYTES);
        qr_tile_load_past(6, w, QR_TILE_ROW_BYTES);
        if (signed_high)
            qr_tile_dp_signed(0, 4, 6);
        else
            qr_tile_dp_unsigned(0, 4, 6);
        qr_tile_dp_unsigned(1, 5, 6);
        if (n_panels > 1) {
            qr_tile_load_past(7, w + w_panel, QR_TILE_ROW_BYTES);
            if (signed_high)
                qr_tile_dp_signed(2, 4, 7);
            else
                qr_tile_dp_unsigned(2, 4, 7);
            qr_tile_dp_unsigned(3, 5, 7);
        }
    }
    const int64_t bytes = stride * (int64_t)sizeof(int32_t);
    qr_tile_store(0, high, bytes);
    qr_tile_store(1, low, bytes);
    if (n_panels > 1) {
        qr_tile_store(2, high + QR_PANEL, bytes);
        qr_tile_store(3, low + QR_PANEL, bytes);
    }
}

/* 256 high + low as floats. */
VF_FN vf joined(const int32_t *high, const int32_t *low)
{
    return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(_mm512_loadu_si512(high), 8), _mm512_loadu_si512(low)));
}

/* Asks for keys or values of up to 16 positions, and for their scales. */
static void prefetch_int8(const struct tile *t, int32_t which, int32_t pos)
{
    prefetch(t, which, pos);
    if (pos < t->see_max)
        _mm_prefetch((const char *)(block_scales(t, which, pos) + (pos & (t->a->kv->block_tokens - 1))), _MM_HINT_T1);
}

/* 64 numbers of a row (NULL: zeros) from k on, zeros behind its end. */
VF_FN __m512i load_bytes(const struct tile *t, const char *row, int32_t k)
{
    if (!row)
        return _mm512_setzero_si512();
    const int32_t n = t->k - k;
    return n >= BYTES_K ? _mm512_loadu_si512(row + k) : _mm512_maskz_loadu_epi8(((__mmask64)1 << n) - 1, row + k);
}

/* Keys of positions [begin, end) of the piece at `base` to tiles, from the group of 16 on in which they begin. */
static void stage_key_bytes(const struct tile *t, int32_t base, int32_t begin, int32_t end)
{
    const char *row[QR_PANEL] QR_UNINITIALIZED;
    vf r[VF_LEN] QR_UNINITIALIZED;
    char *dst = t->s->keys;
    for (int32_t at = begin / QR_PANEL * QR_PANEL; at < end; at += QR_PANEL) {
        cache_rows(t, 0, row, QR_PANEL, base + at, base + begin, base + end);
        prefetch_int8(t, 1, base + at);
        for (int32_t k = 0; k < t->k; k += BYTES_K, dst += QR_TILE_BYTES) {
            for (int i = 0; i < VF_LEN; i++)
                r[i] = _mm512_castsi512_ps(load_bytes(t, row[i], k));
            vf_transpose(r);
            for (int i = 0; i < VF_LEN; i++)
                vf_store((float *)(void *)dst + i * VF_LEN, r[i]);
        }
    }
}

/* At most 16 queries of the tile, and the whole tiles of positions of a piece that some of them sees. */
struct byte_block {
    int32_t q0, rows, begin, end;
};

static struct byte_block byte_block_at(const struct tile *t, int32_t q0)
{
    const struct scratch *s = t->s;
    struct byte_block b = {.q0 = q0, .rows = t->n_queries - q0 < QR_TILE_ROWS ? t->n_queries - q0 : QR_TILE_ROWS, .begin = PIECE};
    for (int32_t i = q0; i < q0 + b.rows; i++) {
        if (s->in[i] == s->in_end[i])
            continue;
        b.begin = s->in[i] < b.begin ? s->in[i] : b.begin;
        b.end = s->in_end[i] > b.end ? s->in_end[i] : b.end;
    }
    b.begin = b.begin / BYTES_K * BYTES_K;
    b.end = (b.end + BYTES_K - 1) / BYTES_K * BYTES_K;
    return b;
}

/* Sums of products of the block's queries and keys, as floats to p. Keys are staged from position `staged` on, whole groups of 16 up to `end`. */
static void score_bytes(const struct tile *t, const struct byte_block *b, int32_t staged, int32_t end)
{
    struct byte_scratch *s = bytes_of(t);
    const int32_t from = b->begin > staged ? b->begin : staged, to = b->end < end ? b->end : end, n_k = (t->k + BYTES_K - 1) / BYTES_K;
    const int64_t panel = (int64_t)n_k * QR_TILE_BYTES;
    for (int32_t at = from, n; at < to; at += n * QR_PANEL) {
        n = to - at > QR_PANEL ? 2 : 1;
        byte_products(true, s->sums[0], s->sums[1], 2 * QR_PANEL, query_bytes(t, 0, b->q0), query_bytes(t, 1, b->q0), b->rows * BYTES_K,
                      t->s->keys + (at - staged) / QR_PANEL * panel, panel, n, n_k);
        for (int32_t r = 0; r < b->rows; r++)
            for (int32_t j = 0; j < n; j++) {
                const int32_t i = (2 * r + j) * QR_PANEL;
                vf_store(t->s->p + r * QR_X_ROW + at + j * QR_PANEL, joined(s->sums[0] + i, s->sums[1] + i));
            }
    }
}

/* Values of positions [begin, end) of the piece at `base` to tiles; zeros for the others of the whole tiles that they touch. */
static void stage_value_bytes(const struct tile *t, int32_t base, int32_t begin, int32_t end, const struct after *after)
{
    const char *row[QR_PANEL] QR_UNINITIALIZED;
    for (int32_t at = begin / BYTES_K * BYTES_K; at < (end + BYTES_K - 1) / BYTES_K * BYTES_K; at += QR_PANEL) {
        cache_rows(t, 1, row, QR_PANEL, base + at, base + begin, base + end);
        if (after->t)
            prefetch_int8(after->t, 0, after->base + at);
        for (int32_t i = 0; i < QR_PANEL; i += 4) {
            char *dst = bytes_of(t)->values + at / BYTES_K * QR_TILE_BYTES + (at % BYTES_K + i) / 4 * QR_TILE_ROW_BYTES;
            for (int32_t k = 0; k < t->k; k += BYTES_K, dst += 4 * PIECE_BYTE_TILES * QR_TILE_BYTES) {
                __m512i a = load_bytes(t, row[i], k), b = load_bytes(t, row[i + 1], k);
                __m512i c = load_bytes(t, row[i + 2], k), d = load_bytes(t, row[i + 3], k);
                __m512i ab = _mm512_unpacklo_epi8(a, b), cd = _mm512_unpacklo_epi8(c, d);
                _mm512_storeu_si512(dst, _mm512_unpacklo_epi16(ab, cd));
                _mm512_storeu_si512(dst + PIECE_BYTE_TILES * QR_TILE_BYTES, _mm512_unpackhi_epi16(ab, cd));
                ab = _mm512_unpackhi_epi8(a, b);
                cd = _mm512_unpackhi_epi8(c, d);
                _mm512_storeu_si512(dst + 2 * PIECE_BYTE_TILES * QR_TILE_BYTES, _mm512_unpacklo_epi16(ab, cd));
                _mm512_storeu_si512(dst + 3 * PIECE_BYTE_TILES * QR_TILE_BYTES, _mm512_unpackhi_epi16(ab, cd));
            }
        }
    }
}

/* What lanes of 16 positions from `at` on lie in query i's range. */
VF_FN __mmask16 seen_lanes(const struct tile *t, int32_t i, int32_t at)
{
    int32_t first = t->s->in[i] - at, end = t->s->in_end[i] - at;
    first = first < 0 ? 0 : first < VF_LEN ? first : VF_LEN;
    end = end < 0 ? 0 : end < VF_LEN ? end : VF_LEN;
    return (__mmask16)(((1u << end) - 1u) & ~((1u << first) - 1u));
}

/* Scores of query i, row r of its block, in units of ln 2 (attention.c). */
VF_FN vf score_of(const struct tile *t, const float *p, int32_t at, vf q_scale)
{
    const float cap = t->a->softcap;
    vf v = vf_mul(vf_mul(vf_load(p + at), q_scale), vf_load(t->s->key_scale + at));
    return cap > 0 ? vf_mul(vf_mul(vf_set1(cap), vf_tanh(vf_div(v, vf_set1(cap)))), vf_set1(t->factor)) : v;
}

/* Scores of query i, row r of its block, become probabilities times their values' scales as bytes; piece_max and piece_sum. */
static void softmax_bytes(const struct tile *t, const struct byte_block *b, int32_t i, int32_t r)
{
    struct byte_scratch *s = bytes_of(t);
    float *p = t->s->p + r * QR_X_ROW, inverse;
    const vf low = vf_set1(-INFINITY), q_scale = vf_set1(s->q_scale[i]);
    vf max = low, sum = vf_zero();
    __m512i most = _mm512_setzero_si512();
    for (int32_t at = b->begin; at < b->end; at += VF_LEN) {
        vf v = _mm512_mask_mov_ps(low, seen_lanes(t, i, at), score_of(t, p, at, q_scale));
        vf_store(p + at, v);
        max = vf_max(v, max);
    }
    t->s->piece_max[i] = vf_max_all(max);
    max = vf_set1(t->s->piece_max[i]);
    for (int32_t at = b->begin; at < b->end; at += VF_LEN) {
        const __mmask16 seen = seen_lanes(t, i, at);
        vf e = _mm512_maskz_mov_ps(seen, vf_exp2_of_negative(vf_sub(vf_load(p + at), max)));
        sum = vf_add(sum, e);
        e = _mm512_maskz_mul_ps(seen, e, vf_load(t->s->value_scale + at)); /* NaN for a value that was not finite */
        most = max_bits(most, e);
        vf_store(p + at, e);
    }
    t->s->piece_sum[i] = vf_sum(sum);
    s->p_scale[r] = qr_quant_scale(&inverse, _mm512_reduce_max_epu32(most), WEIGHT_LARGEST);
    for (int32_t at = b->begin; at < b->end; at += VF_LEN) {
        const int32_t to = (at - b->begin) / BYTES_K * b->rows * BYTES_K + r * BYTES_K + at % BYTES_K;
        store_bytes(s->p[0] + to, s->p[1] + to, _mm512_cvtps_epi32(vf_mul(vf_load(p + at), vf_set1(inverse))));
    }
}

/* Row r of a block, which sees nothing of the piece. */
static void nothing_seen(const struct tile *t, const struct byte_block *b, int32_t i, int32_t r)
{
    struct byte_scratch *s = bytes_of(t);
    t->s->piece_sum[i] = 0;
    s->p_scale[r] = 0;
    for (int32_t at = 0; at < b->end - b->begin; at += BYTES_K) {
        memset(s->p[0] + (at / BYTES_K * b->rows + r) * BYTES_K, 0, BYTES_K);
        memset(s->p[1] + (at / BYTES_K * b->rows + r) * BYTES_K, 0, BYTES_K);
    }
}

/* out[16] for l = 0 .. 3 from x: quarter l of each of the four. */
VF_FN void store_in_order(float *out, int32_t n, const vf x[4])
{
    const vf a = _mm512_shuffle_f32x4(x[0], x[1], 0x44), b = _mm512_shuffle_f32x4(x[2], x[3], 0x44);
    const vf c = _mm512_shuffle_f32x4(x[0], x[1], 0xee), d = _mm512_shuffle_f32x4(x[2], x[3], 0xee);
    vf_store(out, _mm512_shuffle_f32x4(a, b, 0x88));
    if (n > QR_PANEL)
        vf_store(out + QR_PANEL, _mm512_shuffle_f32x4(a, b, 0xdd));
    if (n > 2 * QR_PANEL)
        vf_store(out + 2 * QR_PANEL, _mm512_shuffle_f32x4(c, d, 0x88));
    if (n > 3 * QR_PANEL)
        vf_store(out + 3 * QR_PANEL, _mm512_shuffle_f32x4(c, d, 0xdd));
}

/* piece_out of the block from its probabilities and the staged values. */
static void weigh_bytes(const struct tile *t, const struct byte_block *b)
{
    struct byte_scratch *s = bytes_of(t);
    const int64_t panel = PIECE_BYTE_TILES * QR_TILE_BYTES;
    const int32_t n_steps = (b->end - b->begin) / BYTES_K, step = b->rows * BYTES_K;
    for (int32_t k = 0; k < t->k; k += BYTES_K) {
        const char *w = s->values + k / BYTES_K * 4 * panel + b->begin / BYTES_K * QR_TILE_BYTES;
        for (int32_t m = 0; m < 4; m += 2)
            byte_products(false, s->sums[0] + m * QR_PANEL, s->sums[1] + m * QR_PANEL, BYTES_K, s->p[0], s->p[1], step, w + m * panel, panel, 2,
                          n_steps);
        for (int32_t r = 0; r < b->rows; r++) {
            const vf scale = vf_set1(s->p_scale[r]);
            vf x[4];
            for (int32_t m = 0; m < 4; m++)
                x[m] = vf_mul(joined(s->sums[0] + r * BYTES_K + m * QR_PANEL, s->sums[1] + r * BYTES_K + m * QR_PANEL), scale);
            store_in_order(t->s->piece_out + r * t->k_pad + k, t->k_pad - k, x);
        }
    }
}

/* All queries' results for the piece, of which some query sees [begin, end). */
static void attend_bytes(const struct tile *t, int32_t piece, int32_t begin, int32_t end, const struct after *after)
{
    QR_ASSERT(begin >= 0 && begin < end && end <= PIECE);
    const int32_t base = piece * PIECE;
    stage_scales(t, base, begin, end);
    stage_key_bytes(t, base, begin, end);
    stage_value_bytes(t, base, begin, end, after);
    for (int32_t q0 = 0; q0 < t->n_queries; q0 += QR_TILE_ROWS) {
        const struct byte_block b = byte_block_at(t, q0);
        if (b.begin < b.end) {
            configure(t, b.rows, 0);
            score_bytes(t, &b, begin / QR_PANEL * QR_PANEL, end);
        }
        for (int32_t r = 0; r < b.rows; r++)
            if (t->s->in[q0 + r] < t->s->in_end[q0 + r])
                softmax_bytes(t, &b, q0 + r, r);
            else
                nothing_seen(t, &b, q0 + r, r);
        if (b.begin < b.end)
            weigh_bytes(t, &b);
        take_piece(t, piece, q0, b.rows, t->s->piece_out);
    }
}

/* ---- which way a tile goes ---- */

/* An item's room: tiles of few queries, a row tile at most, share it where values are pairs. */
static struct qr_attn_room room_of(const struct qr_kv_view *kv)
{
    const int32_t n_k = (kv->head_dim + QR_TILE_K - 1) / QR_TILE_K, fit = QUERY_NUMBERS / ((kv->head_dim + BYTES_K - 1) / BYTES_K * BYTES_K);
    return (struct qr_attn_room){.queries = fit < QUERIES ? fit : QUERIES, .few_queries = QR_TILE_ROWS,
                                 .few_tiles = kv->dtype == QR_I8 ? 1 : TILES_MAX / n_k};
}

static void begin_products(const struct tile *t)
{
    if (is_int8(t))
        begin_bytes(t);
    else
        begin_pairs(t);
}

static void attend_piece(struct tile *tiles, int32_t n, int32_t piece, int32_t begin, int32_t end, const struct after *after)
{
    if (is_int8(tiles))
        attend_bytes(tiles, piece, begin, end, after);
    else
        attend_pairs(tiles, n, piece, begin, end, after);
}

#endif
