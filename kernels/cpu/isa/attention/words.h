/* words.h - a query tile over an int8 cache at level avx2: integers of 16 bits. Included by blocks.h only.
 *
 * What meets keys and values is rounded to integers of 16 bits: a query's head by its largest number to -32767 .. 32767, and a piece's probabilities, each
 * times its value's scale, by the largest of them that the query sees to 0 .. 32767. vpmaddwd multiplies 16 of them with keys or values that are widened
 * to 16 bits; a sum over 256 positions or numbers of a head is exact in 32 bits (256 * 32767 * 128 < 2^31), and one conversion and two products with scales
 * make a float of it. So the order of sums is free, a result depends on nothing but the query's own positions, and what it does not see meets a 0. The
 * same as tiles do (amx/attn_bytes.h), where probabilities have a bit more.
 *
 * Rounding moves a number of a query, or a probability, by at most 2^-16 of the largest: less than bf16 would. An addition and a product, which most
 * processors have three and two places for, stand for 16 products; by floats it would be two fused ones, for which there are two places.
 *
 * Where a tile has few queries (decode) keys are turned in registers, 8 positions at a time, and values are read as they lie, two positions side by side;
 * memory is read as it is with other caches (ahead.h). Where it has many, 16 positions' keys and 64 positions' values are staged. Positions
 * outside of what is seen may be read with the others of their block: they are integers too.
 */
#ifndef QR_KERNELS_CPU_ISA_ATTENTION_WORDS_H
#define QR_KERNELS_CPU_ISA_ATTENTION_WORDS_H

#include "kernels/cpu/isa/attention/parts.h"

/* Sixteenths of a piece's lines as in ahead.h. */
#define WORDS_SHARE_SCORES 7
#define WORDS_SHARE_SOFTMAX 2
#define WORDS_SHARE_VALUES 7
#define WORDS_SHIFT 3 /* runs of 8 positions at least */

_Static_assert(STEP * K_MAX * sizeof(int16_t) + 2 * PIECE * K_MAX <= sizeof(((struct scratch *)0)->values), "staged values, and rows that are gathered");

/* Query i: pairs of words, the numbers (0, 2), (1, 3) of each four. */
static int32_t *query_pairs(const struct tile *t, int32_t i)
{
    return (int32_t *)(void *)(t->s->q + i * QR_X_ROW);
}

/* Its probabilities for positions (0, 1), (2, 3) .. of the piece. */
static const int32_t *weight_pairs(const struct tile *t, int32_t i)
{
    return (const int32_t *)(const void *)(t->s->p + i * QR_X_ROW);
}

static int32_t *piece_sums(const struct tile *t, int32_t i)
{
    return (int32_t *)(void *)(t->s->piece_out + i * t->k_pad);
}

static void begin_words(const struct tile *t)
{
    for (int32_t i = t->q0; i < query_end(t); i++) {
        const float *q = query(t, place_of(t, i));
        __m256i most = _mm256_setzero_si256();
        float inverse;
        for (int32_t k = 0; k < t->k; k += VF_LEN)
            most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(vf_load(q + k)), _mm256_set1_epi32(0x7fffffff)));
        t->s->q_scale[i] = qr_quant_scale(&inverse, largest_bits(most), WORD_LARGEST);
        for (int32_t k = 0; k < t->k; k += VF_LEN) {
            const __m256i x = _mm256_shuffle_epi32(_mm256_cvtps_epi32(vf_mul(vf_load(q + k), vf_set1(inverse))), 0xd8);
            const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x, x), 0x08);
            _mm_storeu_si128((__m128i *)(void *)(query_pairs(t, i) + k / 2), _mm256_castsi256_si128(words));
        }
    }
}

VF_FN __m128i load_16(const char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

VF_FN __m128i load_8(const char *p)
{
    return _mm_loadl_epi64((const __m128i *)(const void *)p);
}

/* n numbers, 16 or 8, of 8 rows: unit[i] has numbers 4 i .. 4 i + 3 of all of them, row by row; two units if there are 8. */
VF_FN void turn_bytes(__m256i unit[4], const char *row, size_t row_bytes, const int n)
{
    __m256i r[4] QR_UNINITIALIZED;
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        const char *a = row + i * row_bytes, *b = row + (i + 4) * row_bytes;
        r[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(n == 16 ? load_16(a) : load_8(a)), n == 16 ? load_16(b) : load_8(b), 1);
    }
    const __m256i low0 = _mm256_unpacklo_epi32(r[0], r[1]), low1 = _mm256_unpacklo_epi32(r[2], r[3]);
    unit[0] = _mm256_unpacklo_epi64(low0, low1);
    unit[1] = _mm256_unpackhi_epi64(low0, low1);
    if (n == 16) {
        const __m256i high0 = _mm256_unpackhi_epi32(r[0], r[1]), high1 = _mm256_unpackhi_epi32(r[2], r[3]);
        unit[2] = _mm256_unpacklo_epi64(high0, high1);
        unit[3] = _mm256_unpackhi_epi64(high0, high1);
    }
}

/* Numbers 0 and 2 of each four, as pairs of words; 1 and 3. */
VF_FN __m256i even_words(__m256i unit)
{
    return _mm256_maddubs_epi16(_mm256_set1_epi16(1), unit); /* once the first of two bytes, and not the second */
}

VF_FN __m256i odd_words(__m256i unit)
{
    return _mm256_srai_epi16(unit, 8);
}

VF_FN __m256i add_pairs(__m256i sum, __m256i w, int32_t x)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(w, _mm256_set1_epi32(x)));
}

/* ---- few queries ---- */

/* Scores of a block's queries for n times 8 positions: p[r][.] = scale[r] q[r] . row[.]. */
struct word_scores {
    float *p;
    const int32_t *q; /* rows of both QR_X_ROW apart */
    const float *scale;
    const char *row;
    size_t row_bytes;
    int32_t k, n;
};
typedef void word_scores_fn(const struct word_scores *a);

VF_FN void add_units(__m256i *sum, const __m256i *unit, const int n, const int32_t *q, const int mr)
{
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        const __m256i even = even_words(unit[i]), odd = odd_words(unit[i]);
#pragma GCC unroll 6
        for (int r = 0; r < mr; r++) {
            sum[r] = add_pairs(add_pairs(sum[r], even, q[r * QR_X_ROW + 2 * i]), odd, q[r * QR_X_ROW + 2 * i + 1]);
            __asm__("" : "+x"(sum[r])); /* gcc would put all additions behind all products, and those in memory */
        }
    }
}

VF_FN void word_scores_of(const struct word_scores *a, const int mr)
{
    const size_t row_bytes = a->row_bytes;
    const char *rows = a->row;
    float *p = a->p;
    for (int32_t n = a->n; n > 0; n--, rows += VF_LEN * row_bytes, p += VF_LEN) {
        __m256i sum[ROWS_MAX] QR_UNINITIALIZED, unit[4] QR_UNINITIALIZED;
        const int32_t *q = a->q;
        const char *row = rows;
        int32_t k = a->k;
#pragma GCC unroll 6
        for (int r = 0; r < mr; r++)
            sum[r] = _mm256_setzero_si256();
        for (; k >= 16; k -= 16, row += 16, q += 8) {
            turn_bytes(unit, row, row_bytes, 16);
            add_units(sum, unit, 4, q, mr);
        }
        if (k > 0) {
            turn_bytes(unit, row, row_bytes, 8);
            add_units(sum, unit, 2, q, mr);
        }
#pragma GCC unroll 6
        for (int r = 0; r < mr; r++)
            vf_store(p + r * QR_X_ROW, vf_mul(_mm256_cvtepi32_ps(sum[r]), vf_set1(a->scale[r])));
    }
}

/* Sums of a block's queries over positions [from, end), pairs of them, for nv vectors of columns: c[r][j] (+)= sum of x[r][at] w[at][j]. */
struct word_values {
    int32_t *c;
    const int32_t *x;        /* pairs, rows QR_X_ROW apart */
    const char *const *run;  /* row `at` of w is row at % 2^shift of run[at >> shift] */
    const char *const *line; /* n_lines that are asked for meanwhile, by_run with each run */
    int32_t n_lines, by_run;
    int64_t c_stride;
    size_t row_bytes, column;
    int32_t shift, from, end;
    bool onto;
};
typedef void word_values_fn(const struct word_values *a);

/* Two rows of w onto mr rows of nv vectors. */
VF_FN void add_values(__m256i *sum, const int32_t *x, const char *w, size_t row_bytes, const int mr, const int nv)
{
#pragma GCC unroll 2
    for (int j = 0; j < nv; j += 2) {
        __asm__("" : "+r"(x)); /* x is loaded again: kept, it would push sums out of registers */
        const char *row = w + j * VF_LEN;
        const __m128i a = nv > 1 ? load_16(row) : load_8(row), b = nv > 1 ? load_16(row + row_bytes) : load_8(row + row_bytes);
        const __m256i low = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(a, b)), high = nv > 1 ? _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(a, b)) : low;
#pragma GCC unroll 6
        for (int r = 0; r < mr; r++) {
            sum[r * nv + j] = add_pairs(sum[r * nv + j], low, x[r * QR_X_ROW]);
            if (nv > 1)
                sum[r * nv + j + 1] = add_pairs(sum[r * nv + j + 1], high, x[r * QR_X_ROW]);
        }
    }
}

VF_FN void word_values_of(const struct word_values *a, const int mr, const int nv)
{
    const size_t row_bytes = a->row_bytes;
    const int32_t mask = (int32_t)((1u << a->shift) - 1), end = a->end;
    const char *const *line = a->line, *const *const line_end = line + a->n_lines;
    __m256i sum[12] QR_UNINITIALIZED;
#pragma GCC unroll 12
    for (int i = 0; i < mr * nv; i++)
        sum[i] = a->onto ? _mm256_loadu_si256((const __m256i *)(const void *)(a->c + i / nv * a->c_stride + i % nv * VF_LEN)) : _mm256_setzero_si256();
    for (int32_t at = a->from; at < end;) {
        const int32_t rest = (at | mask) + 1 - at;
        const char *w = a->run[at >> a->shift] + (size_t)(at & mask) * row_bytes + a->column;
        const int32_t *x = a->x + at / 2;
        int32_t n = rest < end - at ? rest : end - at;
        at += n;
        for (int32_t i = 0; i < a->by_run && line < line_end; i++)
            _mm_prefetch(*line++, _MM_HINT_T1);
        for (; n > 0; n -= 2, w += 2 * row_bytes, x++)
            add_values(sum, x, w, row_bytes, mr, nv);
    }
    for (; line < line_end; line++)
        _mm_prefetch(*line, _MM_HINT_T1);
#pragma GCC unroll 12
    for (int i = 0; i < mr * nv; i++)
        _mm256_storeu_si256((__m256i *)(void *)(a->c + i / nv * a->c_stride + i % nv * VF_LEN), sum[i]);
}

#define WORD_SCORES(mr)                                                                                                                \
    static void word_scores_##mr(const struct word_scores *a)                                                                          \
    {                                                                                                                                  \
        word_scores_of(a, mr);                                                                                                         \
    }
WORD_SCORES(1) WORD_SCORES(2) WORD_SCORES(3) WORD_SCORES(4) WORD_SCORES(5) WORD_SCORES(6)
static word_scores_fn *const word_scores[ROWS_MAX + 1] = {NULL, word_scores_1, word_scores_2, word_scores_3, word_scores_4, word_scores_5, word_scores_6};

#define FOR_VALUES(DO)                                                                                                                 \
    DO(1, 1) DO(1, 2) DO(1, 4) DO(2, 1) DO(2, 2) DO(2, 4) DO(3, 1) DO(3, 2) DO(3, 4) DO(4, 1) DO(4, 2) DO(5, 1) DO(5, 2)    \
    DO(6, 1) DO(6, 2)
#define WORD_VALUES(mr, nv)                                                                                                            \
    static void word_values_##mr##_##nv(const struct word_values *a)                                                                   \
    {                                                                                                                                  \
        word_values_of(a, mr, nv);                                                                                                     \
    }
#define WORD_VALUES_ROW(mr, nv) [mr][nv] = word_values_##mr##_##nv,
FOR_VALUES(WORD_VALUES)
static word_values_fn *const word_values[ROWS_MAX + 1][5] = {FOR_VALUES(WORD_VALUES_ROW)};

/* Scores of an item's tiles for positions [begin, end) of the piece, the tiles in turns. */
static void score_few_words(const struct few *few, int32_t n_tiles, int32_t begin, int32_t end, int32_t shift, struct ahead *ahead)
{
    struct scratch *s = few->t->s;
    const int32_t mask = (1 << shift) - 1;
    for (int32_t from = begin / VF_LEN * VF_LEN, to; from < end; from = to) {
        to = lower(from / FEW_STEP * FEW_STEP + FEW_STEP, end);
        for (const struct few *f = few; f < few + n_tiles; f++) {
            const struct tile *t = f->t;
            const int32_t share = share_of_lines(t, VF_LEN, WORDS_SHARE_SCORES);
            for (int32_t at = from, n; at < to; at += n * VF_LEN) {
                n = (lower((at | mask) + 1, to) - at + VF_LEN - 1) / VF_LEN;
                ask_lines(ahead, n * share);
                for (const struct rows_block *b = f->block; b < f->block + f->n; b++) {
                    const struct word_scores a = {.p = s->p + b->q0 * QR_X_ROW + at, .q = query_pairs(t, b->q0), .scale = s->q_scale + b->q0,
                                                  .row = s->run[0][at >> shift] + f->offset + (size_t)(at & mask) * t->row_bytes,
                                                  .row_bytes = t->row_bytes, .k = t->k, .n = n};
                    word_scores[b->mr](&a);
                }
            }
        }
    }
}

/* Sums of one block over positions [from, end), of all columns; n_lines of s->line are asked for meanwhile. */
static void weigh_block_words(const struct few *f, const struct rows_block *b, int32_t from, int32_t end, int32_t shift, int32_t n_lines, bool onto)
{
    const struct tile *t = f->t;
    struct scratch *s = t->s;
    const int32_t widest = b->mr <= 3 ? 4 : 2, n_runs = ((end - 1) >> shift) - (from >> shift) + 1;
    int32_t n = t->k / VF_LEN;
    const int32_t n_calls = (n + widest - 1) / widest, share = (n_lines + n_calls - 1) / n_calls;
    struct word_values a = {.c = piece_sums(t, b->q0), .x = weight_pairs(t, b->q0), .run = s->run[1], .line = s->line, .by_run = (share + n_runs - 1) / n_runs,
                            .c_stride = t->k_pad, .row_bytes = t->row_bytes, .column = f->offset, .shift = shift, .from = from, .end = end, .onto = onto};
    for (int32_t nv = widest; n > 0; n -= nv) {
        while (nv > n)
            nv /= 2;
        a.n_lines = lower(share, n_lines);
        word_values[b->mr][nv](&a);
        a.c += nv * VF_LEN;
        a.column += (size_t)nv * VF_LEN;
        a.line += a.n_lines;
        n_lines -= a.n_lines;
    }
}

/* Sums of 32 bits of a tile's queries become its weighted values. */
static void finish_words(const struct tile *t)
{
    for (int32_t i = t->q0; i < query_end(t); i++) {
        const int32_t *sum = piece_sums(t, i);
        const vf scale = vf_set1(t->s->p_scale[i]);
        for (int32_t k = 0; k < t->k_pad; k += VF_LEN)
            vf_store(t->s->piece_out + i * t->k_pad + k, vf_mul(_mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)(const void *)(sum + k))), scale));
    }
}

/* piece_out = p v for an item's tiles, in turns. */
static void weigh_few_words(const struct few *few, int32_t n_tiles, int32_t begin, int32_t end, int32_t shift, struct ahead *ahead)
{
    struct scratch *s = few->t->s;
    const int32_t first = begin / 2 * 2;
    for (const struct few *f = few; f < few + n_tiles; f++)
        if (f->t->k_pad != f->t->k)
            memset(piece_sums(f->t, f->t->q0), 0, (size_t)f->t->n_queries * (size_t)f->t->k_pad * sizeof(int32_t));
    for (int32_t from = first, to; from < end; from = to) {
        to = lower(from / VALUES_STEP * VALUES_STEP + VALUES_STEP, (end + 1) / 2 * 2);
        for (const struct few *f = few; f < few + n_tiles; f++) {
            int32_t n_lines = take_lines(ahead, s->line, lower(share_of_lines(f->t, to - from, WORDS_SHARE_VALUES), K_MAX));
            for (const struct rows_block *b = f->block; b < f->block + f->n; b++, n_lines = 0)
                weigh_block_words(f, b, from, to, shift, n_lines, from > first);
        }
    }
    for (const struct few *f = few; f < few + n_tiles; f++)
        finish_words(f->t);
}

/* ---- many queries ---- */

/* c[r][0 .. 16) = scale[r] times the sum over n pairs of x[r] w, as floats, or with scale NULL (+)= that sum: w is panels of 16 pairs. */
typedef void words_fn(int32_t *c, int64_t c_stride, const int32_t *x, const int32_t *w, int32_t n, const float *scale);

VF_FN void words_of(int32_t *c, int64_t c_stride, const int32_t *x, const int32_t *w, int32_t n, const float *scale, const int mr)
{
    __m256i sum[12] QR_UNINITIALIZED;
#pragma GCC unroll 12
    for (int i = 0; i < 2 * mr; i++)
        sum[i] = scale ? _mm256_setzero_si256() : _mm256_loadu_si256((const __m256i *)(const void *)(c + i / 2 * c_stride + i % 2 * VF_LEN));
    for (; n > 0; n--, w += QR_PANEL, x++) {
        const __m256i w0 = _mm256_loadu_si256((const __m256i *)(const void *)w), w1 = _mm256_loadu_si256((const __m256i *)(const void *)(w + VF_LEN));
#pragma GCC unroll 6
        for (int r = 0; r < mr; r++) {
            sum[2 * r] = add_pairs(sum[2 * r], w0, x[r * QR_X_ROW]);
            sum[2 * r + 1] = add_pairs(sum[2 * r + 1], w1, x[r * QR_X_ROW]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < 2 * mr; i++) {
        int32_t *to = c + i / 2 * c_stride + i % 2 * VF_LEN;
        if (scale)
            vf_store((float *)(void *)to, vf_mul(_mm256_cvtepi32_ps(sum[i]), vf_set1(scale[i / 2])));
        else
            _mm256_storeu_si256((__m256i *)(void *)to, sum[i]);
    }
}

#define WORDS(mr)                                                                                                                      \
    static void words_##mr(int32_t *c, int64_t c_stride, const int32_t *x, const int32_t *w, int32_t n, const float *scale)            \
    {                                                                                                                                  \
        words_of(c, c_stride, x, w, n, scale, mr);                                                                                     \
    }
WORDS(1) WORDS(2) WORDS(3) WORDS(4) WORDS(5) WORDS(6)
static words_fn *const words[ROWS_MAX + 1] = {NULL, words_1, words_2, words_3, words_4, words_5, words_6};

/* n units of 8 rows to a panel, 16 pairs of words apart. */
VF_FN void store_units(int32_t *dst, const __m256i *unit, const int n)
{
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        _mm256_storeu_si256((__m256i *)(void *)(dst + 2 * i * QR_PANEL), even_words(unit[i]));
        _mm256_storeu_si256((__m256i *)(void *)(dst + (2 * i + 1) * QR_PANEL), odd_words(unit[i]));
    }
}

/* 8 keys as half of a panel [K / 2][16] of pairs. */
static void stage_keys_words(int32_t *dst, const char *row, size_t row_bytes, int32_t k)
{
    __m256i unit[4] QR_UNINITIALIZED;
    for (; k >= 16; k -= 16, row += 16, dst += 8 * QR_PANEL) {
        turn_bytes(unit, row, row_bytes, 16);
        store_units(dst, unit, 4);
    }
    if (k > 0) {
        turn_bytes(unit, row, row_bytes, 8);
        store_units(dst, unit, 2);
    }
}

static void score_many_words(const struct tile *t, const struct rows_block *block, int32_t n, int32_t begin, int32_t end, int32_t shift)
{
    struct scratch *s = t->s;
    int32_t *panel = (int32_t *)(void *)s->keys;
    const int32_t mask = (1 << shift) - 1;
    for (int32_t first = begin / QR_PANEL * QR_PANEL; first < end; first += QR_PANEL) {
        for (int32_t at = first; at < first + QR_PANEL; at += VF_LEN) {
            if (at + VF_LEN <= begin || at >= end)
                continue; /* what lies there meets nothing that counts */
            ask_for(t, s->ask[0], at, VF_LEN, shift);
            stage_keys_words(panel + at - first, s->run[0][at >> shift] + (size_t)(at & mask) * t->row_bytes, t->row_bytes, t->k);
        }
        for (const struct rows_block *b = block; b < block + n; b++)
            if (b->end > first && b->begin < first + QR_PANEL)
                words[b->mr]((int32_t *)(void *)(s->p + b->q0 * QR_X_ROW + first), QR_X_ROW, query_pairs(t, b->q0), panel, t->k / 2, s->q_scale + b->q0);
    }
}

/* Values of pairs of positions from `from` to `end` to scratch, [K / 16][STEP / 2][16]; a half panel behind K holds anything. */
static void stage_values_words(const struct tile *t, int32_t from, int32_t end, int32_t shift)
{
    const int32_t mask = (1 << shift) - 1;
    int32_t *to = (int32_t *)(void *)t->s->values;
    for (int32_t at = from; at < end; at += 2, to += QR_PANEL) {
        const char *row = t->s->run[1][at >> shift] + (size_t)(at & mask) * t->row_bytes, *next = row + t->row_bytes;
        ask_for(t, t->s->ask[1], at, 2, shift);
        for (int32_t k = 0; k < t->k; k += VF_LEN) {
            const __m256i pairs = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(load_8(row + k), load_8(next + k)));
            _mm256_storeu_si256((__m256i *)(void *)(to + k / QR_PANEL * (STEP / 2) * QR_PANEL + k % QR_PANEL), pairs);
        }
    }
}

static void weigh_many_words(const struct tile *t, const struct rows_block *block, int32_t n, int32_t begin, int32_t end, int32_t shift)
{
    const struct scratch *s = t->s;
    memset(t->s->piece_out, 0, (size_t)t->n_queries * (size_t)t->k_pad * sizeof(int32_t));
    for (int32_t from = begin / 2 * 2, to; from < end; from = to) {
        to = lower(from / STEP * STEP + STEP, (end + 1) / 2 * 2);
        stage_values_words(t, from, to, shift);
        for (int32_t panel = 0; panel < t->k_pad / QR_PANEL; panel++) {
            const int32_t *w = (const int32_t *)(const void *)s->values + panel * (STEP / 2) * QR_PANEL;
            for (const struct rows_block *b = block; b < block + n; b++) {
                const int32_t first = higher(b->begin / 2 * 2, from), last = lower((b->end + 1) / 2 * 2, to);
                if (first < last)
                    words[b->mr](piece_sums(t, b->q0) + panel * QR_PANEL, t->k_pad, weight_pairs(t, b->q0) + first / 2,
                                 w + (first - from) / 2 * QR_PANEL, (last - first) / 2, NULL);
            }
        }
    }
    finish_words(t);
}

/* ---- a piece ---- */

/* stage_scales for the tile whose keys lie `offset` behind those that s->run names, whole runs of 8 positions or more: what is not seen is left out by
 * softmax. */
static void stage_run_scales(const struct tile *t, size_t offset, int32_t base, int32_t begin, int32_t end, int32_t shift)
{
    struct scratch *s = t->s;
    const vf scale = vf_set1(t->a->softcap > 0 ? t->a->scale : t->factor);
    const ptrdiff_t to_values = t->plane[1] - t->plane[0];
    const int32_t block = t->a->kv->block_tokens;
    for (int32_t run = begin >> shift; run << shift < end; run++) {
        const int32_t at = run << shift, in = (base + at) & (block - 1);
        const char *key = s->run[0][run] + offset + (size_t)(block - in) * t->row_bytes + (size_t)in * sizeof(float);
        for (int32_t i = 0; i < 1 << shift; i += VF_LEN) {
            vf_store(s->key_scale + at + i, vf_mul(vf_load((const float *)(const void *)key + i), scale));
            vf_store(s->value_scale + at + i, vf_load((const float *)(const void *)(key + to_values) + i));
        }
    }
}

/* Where blocks are shorter than runs must be: copies the rows of positions [begin, end) that the item's tiles see, one tile behind the other. Returns the
 * bytes from a tile's to the next one's; s->run points there, and nothing is asked for. */
static size_t gather_rows(const struct tile *t, int32_t n_tiles, int32_t base, int32_t begin, int32_t end)
{
    struct scratch *s = t->s;
    const size_t offset = PIECE * t->row_bytes;
    char *to = s->values + STEP * K_MAX * sizeof(int16_t);
    QR_ASSERT(n_tiles * t->row_bytes <= K_MAX);
    for (int32_t which = 0; which < 2; which++, to += PIECE * K_MAX) {
        for (const struct tile *one = t; one < t + n_tiles; one++)
            for (int32_t at = begin; at < end; at++)
                memcpy(to + (size_t)(one - t) * offset + (size_t)at * t->row_bytes, cache_row(one, which, base + at), t->row_bytes);
        s->run[which][0] = to;
        s->ask[which][0] = NULL;
    }
    return offset;
}

static void attend_many_words(const struct tile *t, int32_t base, int32_t begin, int32_t end, const struct after *after, const struct tile *next)
{
    int32_t shift = run_shift(t);
    struct rows_block block[QUERIES / ROWS_MAX] QR_UNINITIALIZED;
    const int32_t n = blocks_of(block, t);
    if (shift >= WORDS_SHIFT) {
        find_asked(t, 0, after, begin, end, shift);
        find_asked(t, 1, after, begin, end, shift);
        stage_run_scales(t, 0, base, begin, end, shift);
    } else {
        gather_rows(t, 1, base, begin, end);
        stage_scales(t, base, begin, end);
        shift = __builtin_ctz(PIECE);
    }
    ask_for_scales(after, run_shift(t));
    score_many_words(t, block, n, begin, end, shift);
    softmaxes(t, end, next, NULL, 0);
    weigh_many_words(t, block, n, begin, end, shift);
}

static void attend_few_words(struct few *few, int32_t n_tiles, int32_t base, int32_t begin, int32_t end, struct ahead *ahead, const struct tile *next)
{
    const struct tile *t = few->t;
    const bool gathers = run_shift(t) < WORDS_SHIFT;
    int32_t shift = run_shift(t);
    if (gathers) {
        const size_t offset = gather_rows(t, n_tiles, base, begin, end);
        shift = __builtin_ctz(PIECE);
        for (int32_t i = 0; i < n_tiles; i++)
            few[i].offset = (size_t)i * offset;
    }
    score_few_words(few, n_tiles, begin, end, shift, ahead);
    for (int32_t i = 0; i < n_tiles; i++) {
        if (gathers)
            stage_scales(t + i, base, begin, end);
        else
            stage_run_scales(t + i, few[i].offset, base, begin, end, shift);
        softmaxes(t + i, end, i == 0 ? next : NULL, ahead, share_of_lines(t, end - begin, WORDS_SHARE_SOFTMAX) / t[i].n_queries);
    }
    weigh_few_words(few, n_tiles, begin, end, shift, ahead);
}

#endif
