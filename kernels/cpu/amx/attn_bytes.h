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
 * words within the quarters of a vector gives; results are put in order instead. The positions 16 m + 4 l + c of its 64 are its quad 4 l + m, which is
 * what packing gives for probabilities; sums are exact in any order.
 *
 * As with pairs (attn_tiles.h) all scores of a tile's queries come first, then all softmaxes, then all weighted values. Blocks are of 16 queries: high and
 * low bytes have a sum each, which leaves no registers for more. What a score is made of would be twice as much to write as a score, so vectors join,
 * scale and compare a panel's sums while tiles form those of the panel after the next one.
 */
#ifndef QR_KERNELS_CPU_AMX_ATTN_BYTES_H
#define QR_KERNELS_CPU_AMX_ATTN_BYTES_H

#include "kernels/cpu/amx/attn_lone.h"
#include "kernels/cpu/amx/attn_tiles.h"
#include "kernels/cpu/amx/tile.h"
#include "kernels/cpu/isa/attention/int8.h"
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
    int32_t sums[2][2][QR_TILE_ROWS * BYTES_K]; /* of high and low bytes: those being formed and those before them */
    float q_scale[QUERIES], p_scale[QUERIES];
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
        const float *q = query(t, place_of(t, i));
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

/* 256 high + low as floats. */
VF_FN vf joined(const int32_t *high, const int32_t *low)
{
    return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(_mm512_loadu_si512(high), 8), _mm512_loadu_si512(low)));
}

/* Prefetches keys or values of up to 16 positions, and their scales. */
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

/* At most 16 queries of the tile, and the whole tiles of positions of a piece that some of them sees; [common, common_end): whole groups
 * of 16 that all of them see. */
struct byte_block {
    int32_t q0, rows, begin, end, common, common_end;
};

static struct byte_block byte_block_at(const struct tile *t, int32_t q0)
{
    const struct scratch *s = t->s;
    struct byte_block b = {.q0 = q0, .rows = t->n_queries - q0 < QR_TILE_ROWS ? t->n_queries - q0 : QR_TILE_ROWS, .begin = PIECE, .common_end = PIECE};
    for (int32_t i = q0; i < q0 + b.rows; i++) {
        b.common = s->in[i] > b.common ? s->in[i] : b.common;
        b.common_end = s->in_end[i] < b.common_end ? s->in_end[i] : b.common_end;
        if (s->in[i] == s->in_end[i])
            continue;
        b.begin = s->in[i] < b.begin ? s->in[i] : b.begin;
        b.end = s->in_end[i] > b.end ? s->in_end[i] : b.end;
    }
    b.begin = b.begin / BYTES_K * BYTES_K;
    b.end = (b.end + BYTES_K - 1) / BYTES_K * BYTES_K;
    b.common = (b.common + QR_PANEL - 1) / QR_PANEL * QR_PANEL;
    b.common_end = b.common_end / QR_PANEL * QR_PANEL;
    return b;
}

/* What a block's scores are formed from. */
struct byte_scores {
    const char *high, *low, *keys; /* queries' bytes and the first panel's keys */
    int64_t q_step;                /* bytes to queries' next k */
    const float *q_scale, *key_scale;
    float *p;                      /* scores of the first query and panel */
    int32_t n_k, n_panels, first, end; /* panels [first, end) are seen by all */
};

/* Sums 0 and 1, or 2 and 3: high and low bytes of the queries times panel j. With n_k 1 the queries' tiles are there. */
VF_FN void panel_bytes(const bool odd, const struct byte_scores *b, int32_t j)
{
    const char *high = b->high, *low = b->low, *w = b->keys + (int64_t)j * b->n_k * QR_TILE_BYTES;
    if (odd) {
        qr_tile_zero(2);
        qr_tile_zero(3);
    } else {
        qr_tile_zero(0);
        qr_tile_zero(1);
    }
    for (int32_t n = b->n_k; n > 0; n--, high += b->q_step, low += b->q_step, w += QR_TILE_BYTES) {
        if (b->n_k > 1) {
            qr_tile_load(4, high, QR_TILE_ROW_BYTES);
            qr_tile_load(5, low, QR_TILE_ROW_BYTES);
        }
        if (odd) {
            qr_tile_load_past(7, w, QR_TILE_ROW_BYTES);
            qr_tile_dp_signed(2, 4, 7);
            qr_tile_dp_unsigned(3, 5, 7);
        } else {
            qr_tile_load_past(6, w, QR_TILE_ROW_BYTES);
            qr_tile_dp_signed(0, 4, 6);
            qr_tile_dp_unsigned(1, 5, 6);
        }
    }
}

/* Scores of panel j from its sums, not capped yet; the largest ones, lane by lane, where all queries see the panel. */
VF_FN void panel_scores_of_bytes(const int32_t rows, const struct byte_scores *b, const int32_t *high, const int32_t *low, int32_t j, vf *max)
{
    const __mmask16 counts = j >= b->first && j < b->end ? 0xffff : 0;
    const vf key_scale = vf_load(b->key_scale + j * QR_PANEL);
    float *p = b->p + j * QR_PANEL;
#pragma GCC unroll 16
    for (int32_t r = 0; r < rows; r++) {
        const vf v = vf_mul(vf_mul(joined(high + r * QR_PANEL, low + r * QR_PANEL), vf_set1(b->q_scale[r])), key_scale);
        max[r] = _mm512_mask_max_ps(max[r], counts, v, max[r]);
        vf_store(p + r * QR_X_ROW, v);
    }
}

/* Of three panels at once: products of panel j, sums of the one before to memory, scores of the one before that. */
VF_FN void score_step(const bool odd, const int32_t rows, const struct byte_scores *b, struct byte_scratch *s, int32_t j, vf *max)
{
    if (j < b->n_panels)
        panel_bytes(odd, b, j);
    if (j >= 1 && j <= b->n_panels) {
        if (odd) {
            qr_tile_store(0, s->sums[0][0], QR_TILE_ROW_BYTES);
            qr_tile_store(1, s->sums[0][1], QR_TILE_ROW_BYTES);
        } else {
            qr_tile_store(2, s->sums[1][0], QR_TILE_ROW_BYTES);
            qr_tile_store(3, s->sums[1][1], QR_TILE_ROW_BYTES);
        }
    }
    if (j >= 2)
        panel_scores_of_bytes(rows, b, s->sums[odd ? 1 : 0][0], s->sums[odd ? 1 : 0][1], j - 2, max);
}

VF_FN void score_panels(const int32_t rows, const struct byte_scores *b, struct byte_scratch *s, float *row)
{
    vf max[QR_TILE_ROWS];
#pragma GCC unroll 16
    for (int32_t r = 0; r < QR_TILE_ROWS; r++)
        max[r] = vf_set1(-INFINITY);
    for (int32_t j = 0; j < b->n_panels + 2; j += 2) {
        score_step(false, rows, b, s, j, max);
        if (j + 1 < b->n_panels + 2)
            score_step(true, rows, b, s, j + 1, max);
    }
#pragma GCC unroll 16
    for (int32_t r = 0; r < rows; r++)
        vf_store(row + r * QR_X_ROW + PIECE, max[r]);
}

/* Scores of the block's queries, to p, and behind each row the largest of those that all of them see. Keys are staged from position `staged` on, whole
 * groups of 16 up to `end`. */
static void score_bytes(const struct tile *t, const struct byte_block *b, int32_t staged, int32_t end)
{
    struct byte_scratch *s = bytes_of(t);
    const int32_t from = b->begin > staged ? b->begin : staged, to = b->end < end ? b->end : end, n_k = (t->k + BYTES_K - 1) / BYTES_K;
    const struct byte_scores m = {
        .high = query_bytes(t, 0, b->q0),
        .low = query_bytes(t, 1, b->q0),
        .keys = t->s->keys + (from - staged) / QR_PANEL * (int64_t)n_k * QR_TILE_BYTES,
        .q_step = b->rows * BYTES_K,
        .q_scale = s->q_scale + b->q0,
        .key_scale = t->s->key_scale + from,
        .p = t->s->p + b->q0 * QR_X_ROW + from,
        .n_k = n_k,
        .n_panels = (to - from + QR_PANEL - 1) / QR_PANEL,
        .first = (b->common - from) / QR_PANEL,
        .end = (b->common_end - from) / QR_PANEL,
    };
    if (n_k == 1) {
        qr_tile_load(4, m.high, QR_TILE_ROW_BYTES);
        qr_tile_load(5, m.low, QR_TILE_ROW_BYTES);
    }
    if (b->rows == QR_TILE_ROWS)
        score_panels(QR_TILE_ROWS, &m, s, t->s->p + b->q0 * QR_X_ROW);
    else
        score_panels(b->rows, &m, s, t->s->p + b->q0 * QR_X_ROW);
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
            char *dst = bytes_of(t)->values + at / BYTES_K * QR_TILE_BYTES + (i + at % BYTES_K / QR_PANEL) * QR_TILE_ROW_BYTES;
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

/* Largest scores of query i, lane by lane. Where scores are capped, it is here that they are. */
VF_FN vf largest_score(const struct tile *t, const struct byte_block *b, int32_t i)
{
    float *p = t->s->p + i * QR_X_ROW;
    const vf low = vf_set1(-INFINITY), cap = vf_set1(t->a->softcap);
    const int32_t first = t->s->in[i], end = t->s->in_end[i];
    const bool capped = t->a->softcap > 0;
    vf max = first < end && !capped ? vf_load(p + PIECE) : low;
    for (int32_t at = first / VF_LEN * VF_LEN; at < end; at += VF_LEN) {
        if (!capped && at >= b->common && at < b->common_end) {
            at = b->common_end - VF_LEN;
            continue;
        }
        vf v = vf_load(p + at);
        if (capped) {
            v = vf_mul(vf_mul(cap, vf_tanh(vf_div(v, cap))), vf_set1(t->factor));
            vf_store(p + at, v);
        }
        max = vf_max(_mm512_mask_mov_ps(low, seen_lanes(t, i, at), v), max);
    }
    return max;
}

/* What a row of scores adds up to, lane by lane: probabilities, and the largest product of one and its value's scale, as bits. */
struct byte_row {
    vf max, sum;
    __m512i most;
};

/* 16 scores become probabilities times their values' scales. */
VF_FN void byte_powers(const bool some, struct byte_row *row, float *p, const float *value_scale, __mmask16 seen)
{
    vf e = vf_exp2_of_negative(vf_sub(vf_load(p), row->max));
    if (some)
        e = _mm512_maskz_mov_ps(seen, e);
    row->sum = vf_add(row->sum, e);
    e = some ? _mm512_maskz_mul_ps(seen, e, vf_load(value_scale)) : vf_mul(e, vf_load(value_scale)); /* NaN for a value that was not finite */
    row->most = max_bits(row->most, e);
    vf_store(p, e);
}

/* The same for all that query i sees, zeros for the block's other positions. Prefetches the scores 16 queries further meanwhile. */
VF_FN struct byte_row row_of_powers(const struct tile *t, const struct byte_block *b, int32_t i)
{
    float *p = t->s->p + i * QR_X_ROW;
    const float *scale = t->s->value_scale;
    struct byte_row row = {.max = vf_set1(t->s->piece_max[i]), .sum = vf_zero(), .most = _mm512_setzero_si512()};
    const int32_t first = t->s->in[i], end = t->s->in_end[i], last = end / VF_LEN * VF_LEN;
    int32_t at = b->begin;
    for (; at + VF_LEN <= first; at += VF_LEN)
        vf_store(p + at, vf_zero());
    if (first < end && at < first) {
        byte_powers(true, &row, p + at, scale + at, seen_lanes(t, i, at));
        at += VF_LEN;
    }
    for (; at < last; at += VF_LEN) {
        byte_powers(false, &row, p + at, scale + at, 0);
        _mm_prefetch((const char *)(p + at + QR_TILE_ROWS * QR_X_ROW), _MM_HINT_T0);
    }
    if (at < end) {
        byte_powers(true, &row, p + at, scale + at, seen_lanes(t, i, at));
        at += VF_LEN;
    }
    for (; at < b->end; at += VF_LEN)
        vf_store(p + at, vf_zero());
    return row;
}

/* 64 numbers times `inverse` as integers of 16 bits: 64 high bytes, then 64 low ones, in the place of the first 32 numbers. Packing takes fours of the
 * 16 vectors' in turn: the number 16 m + 4 l + c becomes byte 16 l + 4 m + c, which is the order of staged values. */
VF_FN void store_quads(float *p, vf inverse)
{
    const __m512i low = _mm512_set1_epi16(255);
    const __m512i a = _mm512_packus_epi32(_mm512_cvtps_epi32(vf_mul(vf_load(p), inverse)), _mm512_cvtps_epi32(vf_mul(vf_load(p + VF_LEN), inverse)));
    const __m512i b = _mm512_packus_epi32(_mm512_cvtps_epi32(vf_mul(vf_load(p + 2 * VF_LEN), inverse)),
                                          _mm512_cvtps_epi32(vf_mul(vf_load(p + 3 * VF_LEN), inverse)));
    _mm512_storeu_si512(p, _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8)));
    _mm512_storeu_si512(p + VF_LEN, _mm512_packus_epi16(_mm512_and_si512(a, low), _mm512_and_si512(b, low)));
}

/* Scales and what numbers are multiplied by, of 16 rows at once: qr_quant_scale for the bits of their largest numbers. */
VF_FN vf scales_of_most(vf *inverse, __m512i most)
{
    const __mmask16 odd = _mm512_cmpge_epu32_mask(most, _mm512_set1_epi32(QR_QUANT_INFINITY_BITS));
    const __mmask16 normal = _mm512_cmpge_epu32_mask(most, _mm512_set1_epi32(QR_QUANT_SMALLEST_BITS)) & (__mmask16)~odd;
    const vf max = _mm512_castsi512_ps(most), largest = vf_set1(WEIGHT_LARGEST);
    *inverse = _mm512_maskz_div_ps(normal, largest, max);
    return _mm512_mask_mov_ps(_mm512_maskz_div_ps(normal, max, largest), odd, vf_set1(__builtin_nanf("")));
}

/* Scores of the block become probabilities times their values' scales as bytes, in the same place; piece_max, piece_sum, p_scale. */
static void softmax_bytes(const struct tile *t, const struct byte_block *b)
{
    vf x[VF_LEN] QR_UNINITIALIZED, most[VF_LEN] QR_UNINITIALIZED, inverse;
    _Alignas(64) float by[VF_LEN] QR_UNINITIALIZED;
    QR_ASSERT(b->q0 % QR_TILE_ROWS == 0 && b->rows >= 1 && b->rows <= QR_TILE_ROWS);
    for (int32_t r = 0; r < QR_TILE_ROWS; r++)
        x[r] = r < b->rows ? largest_score(t, b, b->q0 + r) : vf_set1(-INFINITY);
    vf_store(t->s->piece_max + b->q0, across(MEET_MAX, x));
    for (int32_t r = 0; r < QR_TILE_ROWS; r++) {
        struct byte_row row = {.sum = vf_zero(), .most = _mm512_setzero_si512()};
        if (r < b->rows)
            row = row_of_powers(t, b, b->q0 + r);
        x[r] = row.sum;
        most[r] = _mm512_castsi512_ps(row.most);
    }
    vf_store(t->s->piece_sum + b->q0, across(MEET_SUM, x));
    vf_store(bytes_of(t)->p_scale + b->q0, scales_of_most(&inverse, _mm512_castps_si512(across(MEET_MAX_BITS, most))));
    vf_store(by, inverse);
    for (int32_t r = 0; r < b->rows; r++)
        for (int32_t at = b->begin; at < b->end; at += BYTES_K)
            store_quads(t->s->p + (b->q0 + r) * QR_X_ROW + at, vf_set1(by[r]));
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

/* High and low sums [rows][64] of two panels of weighted values, `panel` bytes apart, over n_steps tiles. */
VF_FN void byte_products(int32_t *high, int32_t *low, const float *p, const char *w, int64_t panel, int32_t n_steps)
{
    const int64_t p_row = QR_X_ROW * (int64_t)sizeof(float), row = BYTES_K * (int64_t)sizeof(int32_t);
    qr_tile_zero(0);
    qr_tile_zero(1);
    qr_tile_zero(2);
    qr_tile_zero(3);
    for (; n_steps > 0; n_steps--, p += BYTES_K, w += QR_TILE_BYTES) {
        qr_tile_load(4, p, p_row);
        qr_tile_load_past(6, w, QR_TILE_ROW_BYTES);
        qr_tile_dp_unsigned(0, 4, 6);
        qr_tile_load(5, p + VF_LEN, p_row);
        qr_tile_dp_unsigned(1, 5, 6);
        qr_tile_load_past(7, w + panel, QR_TILE_ROW_BYTES);
        qr_tile_dp_unsigned(2, 4, 7);
        qr_tile_dp_unsigned(3, 5, 7);
    }
    qr_tile_store(0, high, row);
    qr_tile_store(1, low, row);
    qr_tile_store(2, high + QR_PANEL, row);
    qr_tile_store(3, low + QR_PANEL, row);
}

/* piece_out of the block from its probabilities and the staged values. */
static void weigh_bytes(const struct tile *t, const struct byte_block *b)
{
    struct byte_scratch *s = bytes_of(t);
    const int64_t panel = PIECE_BYTE_TILES * QR_TILE_BYTES;
    const int32_t n_steps = (b->end - b->begin) / BYTES_K;
    for (int32_t k = 0, which = 0; k < t->k; k += BYTES_K, which ^= 1) {
        const char *w = s->values + k / BYTES_K * 4 * panel + b->begin / BYTES_K * QR_TILE_BYTES;
        int32_t *high = s->sums[which][0], *low = s->sums[which][1];
        for (int32_t m = 0; m < 4; m += 2)
            byte_products(high + m * QR_PANEL, low + m * QR_PANEL, t->s->p + b->q0 * QR_X_ROW + b->begin, w + m * panel, panel, n_steps);
        for (int32_t r = 0; r < b->rows; r++) {
            const vf scale = vf_set1(s->p_scale[b->q0 + r]);
            vf x[4];
            for (int32_t m = 0; m < 4; m++)
                x[m] = vf_mul(joined(high + r * BYTES_K + m * QR_PANEL, low + r * BYTES_K + m * QR_PANEL), scale);
            store_in_order(t->s->piece_out + r * t->k_pad + k, t->k_pad - k, x);
        }
    }
}

/* All queries' results for the piece, of which some query sees [begin, end). */
static void attend_bytes(const struct tile *t, int32_t piece, int32_t begin, int32_t end, const struct after *after)
{
    struct byte_block blocks[QUERIES / QR_TILE_ROWS] QR_UNINITIALIZED, *last = blocks;
    const int32_t base = piece * PIECE;
    QR_ASSERT(begin >= 0 && begin < end && end <= PIECE);
    QR_ASSERT(t->q0 == 0 && t->n_queries <= QUERIES);
    stage_scales(t, base, begin, end);
    stage_key_bytes(t, base, begin, end);
    stage_value_bytes(t, base, begin, end, after);
    for (int32_t q0 = 0; q0 < t->n_queries; q0 += QR_TILE_ROWS)
        *last++ = byte_block_at(t, q0);
    for (const struct byte_block *b = blocks; b < last; b++)
        if (b->begin < b->end) {
            configure(t, b->rows, 0);
            score_bytes(t, b, begin / QR_PANEL * QR_PANEL, end);
        }
    for (const struct byte_block *b = blocks; b < last; b++)
        softmax_bytes(t, b);
    for (const struct byte_block *b = blocks; b < last; b++) {
        if (b->begin < b->end) {
            configure(t, b->rows, 0);
            weigh_bytes(t, b);
        }
        take_piece(t, piece, b->q0, b->rows, t->s->piece_out);
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

static void begin_products(struct tile *t)
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
    else if (is_lone(tiles))
        attend_lone(tiles, n, piece, begin, end, after);
    else
        attend_pairs(tiles, n, piece, begin, end, after);
}

#endif
