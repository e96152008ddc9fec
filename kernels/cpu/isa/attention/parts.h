/* parts.h - what both ways of level avx2 to attend a piece share: register blocks of queries, where keys and values lie and what is asked for
 * meanwhile, softmax. Included by blocks.h and words.h only.
 */
#ifndef QR_KERNELS_CPU_ISA_ATTENTION_PARTS_H
#define QR_KERNELS_CPU_ISA_ATTENTION_PARTS_H

#include "kernels/cpu/isa/attention/ahead.h"
#include "kernels/cpu/isa/attention/int8.h"
#include "kernels/cpu/isa/attention/tile.h"
#include "kernels/quant.h"

#define ROWS_MAX 6
#define ASK 64 /* positions */
#define WORD_LARGEST 32767.0f /* of queries and probabilities as integers of 16 bits, see words.h */
#define VALUES_STEP 64 /* positions whose values the heads of an item take in turns */
#define FEW 12 /* queries for which values are not staged: two blocks widen them twice */

static int32_t lower(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t higher(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* A register block of queries and what it sees of the piece. */
struct rows_block {
    int32_t q0, mr;
    int32_t begin, end;       /* some query */
    int32_t all_from, all_end; /* every query */
};

/* Blocks of nearly equal height; returns how many. */
static int32_t blocks_of(struct rows_block *block, const struct tile *t)
{
    const struct scratch *s = t->s;
    const int32_t n = (t->n_queries + ROWS_MAX - 1) / ROWS_MAX;
    for (int32_t b = 0; b < n; b++) {
        const int32_t first = t->n_queries * b / n;
        struct rows_block r = {.q0 = t->q0 + first, .mr = t->n_queries * (b + 1) / n - first, .begin = PIECE, .all_end = PIECE};
        for (int32_t i = r.q0; i < r.q0 + r.mr; i++) {
            r.all_from = s->in[i] > r.all_from ? s->in[i] : r.all_from;
            r.all_end = s->in_end[i] < r.all_end ? s->in_end[i] : r.all_end;
            if (s->in[i] < s->in_end[i]) {
                r.begin = s->in[i] < r.begin ? s->in[i] : r.begin;
                r.end = s->in_end[i] > r.end ? s->in_end[i] : r.end;
            }
        }
        if (r.all_from >= r.all_end)
            r.all_from = r.all_end = PIECE;
        block[b] = r;
    }
    return n;
}

/* Where the cache's rows of the piece lie, [begin, end) of it; in runs of 2^shift. */
static void find_runs(const char **run, const struct tile *t, int32_t which, int32_t base, int32_t begin, int32_t end, int32_t shift)
{
    for (int32_t i = begin >> shift; i << shift < end; i++)
        run[i] = cache_row(t, which, base + (i << shift));
}

/* What to ask for while keys (which 0) or values (1) of positions [begin, end) of the piece are read: those ASK positions further, and at the end the
 * first values of the piece, or the first keys of what comes next. It is asked for shortly before it is read, because the rows of all blocks may meet
 * in the same few sets of the caches: where a block of all layers takes a power of two of bytes, they do. */
static void find_asked(const struct tile *t, int32_t which, const struct after *after, int32_t begin, int32_t end, int32_t shift)
{
    struct scratch *s = t->s;
    const struct tile *next = after->t && run_shift(after->t) == shift ? after->t : NULL;
    const int32_t first = begin >> shift, n = ((end - 1) >> shift) + 1, far = ASK >> shift > 0 ? ASK >> shift : 1;
    for (int32_t i = first; i < n; i++) {
        const int32_t then = i + far - n;
        s->ask[which][i] = NULL;
        if (then < 0)
            s->ask[which][i] = s->run[which][i + far];
        else if (which == 0 && first + then < n)
            s->ask[which][i] = s->run[1][first + then];
        else if (which == 1 && next && after->base + (then << shift) < next->see_max)
            s->ask[which][i] = cache_row(next, 0, after->base + (then << shift));
    }
}

/* Asks for the scales of the piece that comes next, which it reads before anything else. */
static void ask_for_scales(const struct after *after, int32_t shift)
{
    const struct tile *next = after->t;
    for (int32_t i = 0; next && i < PIECE && after->base + i < next->see_max; i += 1 << shift)
        for (int32_t which = 0; which < 2; which++) {
            const char *scales = (const char *)block_scales(next, which, after->base + i);
            for (size_t b = 0; b < sizeof(float) << shift; b += 64)
                _mm_prefetch(scales + b, _MM_HINT_T1);
        }
}

/* Asks for n rows of run `run` from row `at` of the piece on. */
static inline void ask_for(const struct tile *t, const char *const *ask, int32_t at, int32_t n, int32_t shift)
{
    const char *row = ask[at >> shift];
    if (!row)
        return;
    row += (size_t)(at & ((1 << shift) - 1)) * t->row_bytes;
    for (size_t b = 0; b < (size_t)n * t->row_bytes; b += 64)
        _mm_prefetch(row + b, _MM_HINT_T1);
}

/* A tile of few queries: one of those of its item. */
struct few {
    const struct tile *t;
    size_t offset; /* from the keys and values of the item's first tile to its own */
    struct rows_block block[FEW / ROWS_MAX];
    int32_t n;     /* blocks */
};

/* The largest of 8 unsigned integers. */
VF_FN uint32_t largest_bits(__m256i x)
{
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    m = _mm_max_epu32(m, _mm_unpackhi_epi64(m, m));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(m, _mm_srli_epi64(m, 32)));
}

/* What lanes a vector at `at` has of a query's range. */
struct lanes {
    int32_t first, end;
};

/* What softmax has of a query, and how its cache is kept. */
struct softmax {
    float *p;
    const float *key, *value_scale; /* of the positions, or NULL: factor; and NULL: 1 */
    vf factor, max, min, sum;
    __m256i most;                   /* the largest product of a probability and its value's scale, as bits: infinity and NaN above all */
};

VF_FN vf scale_at(const struct softmax *m, int32_t at)
{
    return m->key ? vf_load(m->key + at) : m->factor;
}

VF_FN void widest(struct softmax *m, int32_t at, const bool edge, struct lanes in)
{
    vf v = vf_mul(vf_load(m->p + at), scale_at(m, at));
    m->max = vf_max(edge ? vf_pick_range(in.first, in.end, v, vf_set1(-INFINITY)) : v, m->max);
    m->min = vf_min(edge ? vf_pick_range(in.first, in.end, v, vf_set1(INFINITY)) : v, m->min);
}

VF_FN void exponential(struct softmax *m, int32_t at, vf less, const bool rounded, const bool normal, const bool edge, struct lanes in)
{
    const vf t = vf_fma(vf_load(m->p + at), scale_at(m, at), less);
    vf e = normal ? vf_exp2_of_moderate(t) : vf_exp2_of_negative(t);
    if (edge)
        e = vf_pick_range(in.first, in.end, e, vf_zero());
    m->sum = vf_add(m->sum, e);
    if (m->value_scale) {
        e = vf_mul(e, vf_load(m->value_scale + at)); /* NaN for a value that was not finite */
        if (edge)
            e = vf_pick_range(in.first, in.end, e, vf_zero());
        m->most = _mm256_max_epu32(m->most, _mm256_castps_si256(e));
    }
    vf_store(m->p + at, rounded ? vf_round_bf16_number(e) : e); /* a NaN stays in the sum and comes out by the division */
}

VF_FN void exponentials(struct softmax *m, int32_t begin, int32_t last, vf less, const bool rounded, const bool normal, struct lanes head, struct lanes tail)
{
    exponential(m, begin, less, rounded, normal, true, head);
#pragma GCC unroll 2
    for (int32_t at = begin + VF_LEN; at < last; at += VF_LEN)
        exponential(m, at, less, rounded, normal, false, head);
    if (last > begin)
        exponential(m, last, less, rounded, normal, true, tail);
}

/* Scores of query i become 2^(factor score - maximum) in its range and 0 in the rest of the vectors it touches. Only the first and the last vector of
 * the range can hold lanes outside it. With an int8 cache positions have factors (key NULL: scores have met them) and probabilities meet the values'
 * scales. Returns the bits of the largest of such products. */
VF_FN uint32_t softmax_row(const struct tile *t, int32_t i, const bool rounded, const float *key, const float *value_scale)
{
    struct scratch *s = t->s;
    const int32_t first = s->in[i], end = s->in_end[i], begin = first / VF_LEN * VF_LEN, last = (end - 1) / VF_LEN * VF_LEN;
    const struct lanes head = {first - begin, end - begin < VF_LEN ? end - begin : VF_LEN}, tail = {0, end - last};
    struct softmax m = {.p = s->p + i * QR_X_ROW, .key = key, .value_scale = value_scale, .factor = vf_set1(t->factor), .max = vf_set1(-INFINITY),
                        .min = vf_set1(INFINITY), .sum = vf_zero(), .most = _mm256_setzero_si256()};
    widest(&m, begin, true, head);
#pragma GCC unroll 2
    for (int32_t at = begin + VF_LEN; at < last; at += VF_LEN)
        widest(&m, at, false, head);
    if (last > begin)
        widest(&m, last, true, tail);
    s->piece_max[i] = vf_max_all(m.max);
    const vf less = vf_set1(-s->piece_max[i]);
    if (-vf_max_all(vf_sub(vf_zero(), m.min)) - s->piece_max[i] > -120.0f) /* not if one of them is infinite */
        exponentials(&m, begin, last, less, rounded, true, head, tail);
    else
        exponentials(&m, begin, last, less, rounded, false, head, tail);
    s->piece_sum[i] = vf_sum(m.sum);
    return value_scale ? largest_bits(m.most) : 0;
}

/* Query i's probabilities (times their values' scales, the bits of the largest being `most`) become integers of 16 bits, in the first half of their
 * place: position `at` is word `at` of the row; zeros for what it does not see before `end`. */
static void to_words(const struct tile *t, int32_t i, uint32_t most, int32_t end)
{
    struct scratch *s = t->s;
    float *p = s->p + i * QR_X_ROW, inverse;
    int16_t *word = (int16_t *)(void *)p;
    const int32_t first = s->in[i], last = s->in_end[i];
    int32_t at = first / QR_PANEL * QR_PANEL;
    s->p_scale[i] = qr_quant_scale(&inverse, most, WORD_LARGEST);
    const vf v = vf_set1(inverse);
    memset(word, 0, (size_t)at * sizeof *word); /* ends before what is read next begins */
    for (; at < last; at += QR_PANEL) {
        const vf a = at + VF_LEN > first ? vf_load(p + at) : vf_zero(), b = at + VF_LEN < last ? vf_load(p + at + VF_LEN) : vf_zero();
        const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(vf_mul(a, v)), _mm256_cvtps_epi32(vf_mul(b, v)));
        _mm256_storeu_si256((__m256i *)(void *)(word + at), _mm256_permute4x64_epi64(words, 0xd8));
    }
    for (; at < end; at += QR_PANEL)
        _mm256_storeu_si256((__m256i *)(void *)(word + at), _mm256_setzero_si256());
}

/* Of query i, which sees some of the piece's positions before `end`. */
static void softmax(const struct tile *t, int32_t i, int32_t end)
{
    const bool capped = t->a->softcap > 0;
    if (capped)
        cap_scores(t, t->s->p + i * QR_X_ROW, t->s->in[i], t->s->in_end[i], is_int8(t) ? t->s->key_scale : NULL);
    if (is_int8(t) && !capped)
        to_words(t, i, softmax_row(t, i, false, t->s->key_scale, t->s->value_scale), end);
    else if (is_int8(t))
        to_words(t, i, softmax_row(t, i, false, NULL, t->s->value_scale), end);
    else if (t->a->kv->dtype == QR_BF16)
        softmax_row(t, i, true, NULL, NULL);
    else
        softmax_row(t, i, false, NULL, NULL);
}

/* Asks for query i of an item and those of its other heads, as far as they lie side by side. */
static void ask_for_query(const struct tile *t, int32_t i)
{
    const struct place at = {t->first_row + i / t->n_heads, t->first_head + i % t->n_heads};
    const char *q = (const char *)query(t, at);
    for (int32_t h = heads_of(t); h > 0; h--, q += (size_t)t->n_heads * (size_t)t->k * sizeof(float))
        for (size_t b = 0; b < (size_t)t->k * sizeof(float); b += 64)
            _mm_prefetch(q + b, _MM_HINT_T1);
}

/* Softmax of all of a tile's queries, over positions before `end` of the piece. Meanwhile those of the next item are asked for, and of each query's lines
 * as many as it says. */
static void softmaxes(const struct tile *t, int32_t end, const struct tile *next, struct ahead *ahead, int32_t n_ahead)
{
    struct scratch *s = t->s;
    for (int32_t i = t->q0; i < query_end(t); i++) {
        if (next && i - t->q0 < next->n_queries)
            ask_for_query(next, i - t->q0);
        if (ahead)
            ask_lines(ahead, n_ahead);
        s->piece_sum[i] = 0;
        if (s->in[i] < s->in_end[i])
            softmax(t, i, end);
        else if (is_int8(t))
            to_words(t, i, 0, end);
    }
}

#endif
