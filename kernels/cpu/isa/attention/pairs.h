/* pairs.h - decode over a cache of bf16 or int8 at level avx2: register blocks that read keys and values as they lie. Included by vectors.h only.
 *
 * Eight positions' keys, 16 bytes of each, become four registers of pairs (32 bits of all positions in each: two numbers of bf16, four of int8), and
 * these meet the queries at once: nothing is stored in between. A lane adds one position's products in the order of K, as where keys are staged, so
 * the bits are the same. A product takes its number of the query from memory, eight times side by side, which is an operation less
 * than a broadcast for each. 16 or 32 positions at a time keep sums enough in flight for two multipliers.
 *
 * Prefetches go with the rows that are read, a line for a line (find_later).
 */
#ifndef QR_KERNELS_CPU_ISA_ATTENTION_PAIRS_H
#define QR_KERNELS_CPU_ISA_ATTENTION_PAIRS_H

#include "kernels/cpu/isa/attention/int8.h"
#include "kernels/cpu/isa/attention/tile.h"

#define FEW 12         /* queries of a tile, at most: two blocks widen its values twice */
#define ROWS_MAX 6     /* queries of a block of values */
#define AHEAD 64         /* positions that are prefetched ahead */
#define PAIR_ROWS 4   /* queries of a block of scores */
#define PAIR_GROUPS 4 /* times 8 positions at once, at most */

#define WIDE_BYTES (FEW * K_MAX * VF_LEN * sizeof(float)) /* of a tile's queries in the scratch for values */

_Static_assert(WIDE_BYTES <= sizeof(((struct scratch *)0)->values), "wide queries");

/* sum += x w where the sum lies, and in this order: left to itself the compiler moves sums between registers and loads to earlier places, which sends some
 * of the sums to memory and back. */
VF_FN void add_product(vf *sum, vf x, vf w)
{
    __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(*sum) : "x"(x), "x"(w));
}

/* The same with x from memory. */
VF_FN void add_product_of(vf *sum, const float *x, vf w)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(*sum) : "x"(w), "m"(*(const float (*)[VF_LEN])(const void *)x));
}

/* The tile's queries: blocks [K][queries of the block][8 times the number], the block's first query `i` of the tile's. */
static float *wide_queries(const struct tile *t, int32_t i)
{
    return (float *)(void *)t->s->values + (int64_t)i * t->k * VF_LEN;
}

/* Blocks of scores have nearly equal heights: how many, and the first query of block b. */
static int32_t pair_blocks(const struct tile *t)
{
    return (t->n_queries + PAIR_ROWS - 1) / PAIR_ROWS;
}

static int32_t pair_block(const struct tile *t, int32_t b)
{
    return t->n_queries * b / pair_blocks(t);
}

/* Whether a tile goes this way: one row, so that all its queries see the same. */
static bool takes_pairs(const struct tile *t)
{
    const bool fits = t->a->kv->dtype == QR_BF16 || (is_int8(t) && t->k % 16 == 0);
    return fits && t->a->kv->block_tokens >= VF_LEN && t->n_rows == 1 && t->n_queries <= FEW;
}

static void begin_pairs(const struct tile *t)
{
    for (int32_t b = 0; b < pair_blocks(t); b++) {
        const int32_t first = pair_block(t, b), mr = pair_block(t, b + 1) - first;
        for (int32_t i = 0; i < mr; i++) {
            const float *q = query(t, place_of(t, first + i));
            float *wide = wide_queries(t, first) + i * VF_LEN, number[VF_LEN] QR_UNINITIALIZED;
            for (int32_t k = 0; k < t->k; k += VF_LEN) {
                vf_store(number, is_int8(t) ? vf_load(q + k) : vf_round_bf16(vf_load(q + k)));
                for (int32_t j = 0; j < VF_LEN; j++, wide += mr * VF_LEN)
                    vf_store(wide, vf_set1(number[j]));
            }
        }
    }
}

/* ---- scores ---- */

/* c[r][8 g .. 8 g + 8) = q[r] . rows of group g. */
struct pair_scores {
    float *c;                     /* rows QR_X_ROW apart */
    const float *q;               /* of wide_queries */
    const char *row[PAIR_GROUPS]; /* each group's first of 8 */
    const char *later[PAIR_GROUPS / 2]; /* what is prefetched with each two groups: as many bytes as they have */
    size_t row_bytes;
    int32_t n;                    /* 16 bytes of a row at a time */
};
typedef void pair_scores_fn(const struct pair_scores *a);

/* Multiples of the bytes of a row that an address cannot form by itself. */
struct strides {
    size_t one, three, five, seven;
};

/* Four units of 8 rows as columns. */
VF_FN void turn_units(vf unit[4], const char *row, const struct strides *s)
{
    const float *lower_row[4] = {(const float *)(const void *)row, (const float *)(const void *)(row + s->one),
                                 (const float *)(const void *)(row + 2 * s->one), (const float *)(const void *)(row + s->three)};
    const float *upper_row[4] = {(const float *)(const void *)(row + 4 * s->one), (const float *)(const void *)(row + s->five),
                                 (const float *)(const void *)(row + 2 * s->three), (const float *)(const void *)(row + s->seven)};
    vf r[4] QR_UNINITIALIZED;
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(lower_row[i])), _mm_loadu_ps(upper_row[i]), 1);
    const __m256d low0 = _mm256_castps_pd(_mm256_unpacklo_ps(r[0], r[1])), high0 = _mm256_castps_pd(_mm256_unpackhi_ps(r[0], r[1]));
    const __m256d low1 = _mm256_castps_pd(_mm256_unpacklo_ps(r[2], r[3])), high1 = _mm256_castps_pd(_mm256_unpackhi_ps(r[2], r[3]));
    unit[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(low0, low1));
    unit[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low0, low1));
    unit[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(high0, high1));
    unit[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(high0, high1));
}

/* Number i of the in_unit numbers that a unit of 32 bits has. */
VF_FN vf number_of(vpairs unit, const int i, const int in_unit)
{
    return in_unit == 4 ? vf_quads_at(unit, i) : i == 0 ? vf_pairs_first(unit) : vf_pairs_second(unit);
}

VF_FN void pair_scores_of(const struct pair_scores *a, const int mr, const int groups, const int in_unit)
{
    struct strides s = {a->row_bytes, 3 * a->row_bytes, 5 * a->row_bytes, 7 * a->row_bytes};
    const float *q = a->q;
    const char *row[PAIR_GROUPS] QR_UNINITIALIZED, *later[PAIR_GROUPS / 2] QR_UNINITIALIZED;
    vf acc[8] QR_UNINITIALIZED;
#pragma GCC unroll 8
    for (int i = 0; i < mr * groups; i++)
        acc[i] = vf_zero();
#pragma GCC unroll 4
    for (int g = 0; g < groups; g++) {
        row[g] = a->row[g];
        later[g / 2] = a->later[g / 2];
    }
    for (int32_t n = a->n; n > 0; n--, q += 4 * in_unit * mr * VF_LEN) {
#pragma GCC unroll 4
        for (int g = 0; g < groups; g++) {
            vf unit[4] QR_UNINITIALIZED;
            __asm__("" : "+r"(s.three), "+r"(s.five), "+r"(s.seven)); /* as they are: the compiler would keep pointers instead, more than there is room for */
            _mm_prefetch(later[g / 2] + g % 2 * 128, _MM_HINT_T1);
            _mm_prefetch(later[g / 2] + g % 2 * 128 + 64, _MM_HINT_T1);
            turn_units(unit, row[g], &s);
            row[g] += 16;
#pragma GCC unroll 4
            for (int u = 0; u < 4; u++) {
#pragma GCC unroll 4
                for (int i = 0; i < in_unit; i++) {
                    const vf number = number_of(vf_as_pairs(unit[u]), i, in_unit);
#pragma GCC unroll 4
                    for (int r = 0; r < mr; r++)
                        add_product_of(&acc[r * groups + g], q + ((in_unit * u + i) * mr + r) * VF_LEN, number);
                }
            }
        }
#pragma GCC unroll 4
        for (int g = 0; g < groups; g += 2)
            later[g / 2] += groups > 1 ? 256 : 128;
    }
#pragma GCC unroll 8
    for (int i = 0; i < mr * groups; i++)
        vf_store(a->c + i / groups * QR_X_ROW + i % groups * VF_LEN, acc[i]);
}

#define FOR_PAIR_SCORES(DO) DO(1, 1) DO(1, 2) DO(1, 4) DO(2, 1) DO(2, 2) DO(2, 4) DO(3, 1) DO(3, 2) DO(4, 1) DO(4, 2)
#define PAIR_SCORES(mr, groups)                                                                                                        \
    static void pair_scores_##mr##_##groups(const struct pair_scores *a)                                                               \
    {                                                                                                                                  \
        pair_scores_of(a, mr, groups, 2);                                                                                              \
    }                                                                                                                                  \
    static void quad_scores_##mr##_##groups(const struct pair_scores *a)                                                               \
    {                                                                                                                                  \
        pair_scores_of(a, mr, groups, 4);                                                                                              \
    }
#define PAIR_SCORES_ROW(mr, groups) [mr][groups] = {pair_scores_##mr##_##groups, quad_scores_##mr##_##groups},
FOR_PAIR_SCORES(PAIR_SCORES)
static pair_scores_fn *const pair_scores[PAIR_ROWS + 1][PAIR_GROUPS + 1][2] = {FOR_PAIR_SCORES(PAIR_SCORES_ROW)}; /* over bf16, over int8 */

/* Scores for the groups of 8 positions [from, end) of the piece. */
static void score_pairs(const struct tile *t, int32_t from, int32_t end, int32_t shift)
{
    struct scratch *s = t->s;
    const int32_t mask = (1 << shift) - 1;
    static const uint8_t widest[PAIR_ROWS + 1] = {0, 4, 4, 2, 2};
    for (int32_t b = 0; b < pair_blocks(t); b++) {
        const int32_t first = pair_block(t, b), mr = pair_block(t, b + 1) - first;
        struct pair_scores a = {.q = wide_queries(t, first), .row_bytes = t->row_bytes, .n = (int32_t)t->row_bytes / 16};
        for (int32_t at = from, n = widest[mr]; at < end; at += n * VF_LEN) {
            while (at + n * VF_LEN > end)
                n /= 2;
            a.c = s->p + first * QR_X_ROW + at;
            for (int32_t g = 0; g < n; g++) {
                const int32_t pos = at + g * VF_LEN;
                const size_t in = (size_t)(pos & mask) * t->row_bytes;
                const char *later = b == 0 ? s->later[0][pos >> shift] : NULL;
                a.row[g] = s->run[0][pos >> shift] + in;
                if (g % 2 == 0)
                    a.later[g / 2] = later ? later + in : a.row[g];
            }
            pair_scores[mr][n][is_int8(t)](&a);
        }
    }
}

/* ---- values ---- */

/* A block's sums over positions [from, end): c[r][j] = x[r][at] w[at][j], at in this order. */
struct pair_values {
    float *c;
    const float *x;         /* rows QR_X_ROW apart */
    const char *const *run; /* row `at` of w is row at % 2^shift of run[at >> shift] */
    const char *const *later; /* the same for what is prefetched meanwhile, where it is not NULL; or NULL */
    int64_t c_stride;
    size_t row_bytes, column; /* column: bytes, where the columns begin in a row */
    int32_t shift, from, end;
};
typedef void pair_values_fn(const struct pair_values *a);

VF_FN vf weight_of(const float *x)
{
    vf v;
    __asm__ volatile("vbroadcastss %1, %0" : "=x"(v) : "m"(*x));
    return v;
}

/* 16 columns of w: the even ones and the odd ones, in operations that stay within halves of a register. */
VF_FN void split_values(vf *even, vf *odd, const char *w)
{
    static const _Alignas(32) uint32_t seconds[VF_LEN] = {0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000};
    __asm__ volatile("vmovups %1, %0" : "=x"(*odd) : "m"(*(const char (*)[32])(const void *)w));
    __asm__ volatile("vpslld $16, %1, %0" : "=x"(*even) : "x"(*odd));
    __asm__ volatile("vandps %1, %0, %0" : "+x"(*odd) : "m"(seconds)); /* a mask in a register would push a sum out */
}

/* 8 integers as numbers, their columns in order. */
VF_FN vf wide_integers(const char *w)
{
    vf v;
    __asm__ volatile("vpmovsxbd %1, %0" : "=x"(v) : "m"(*(const char (*)[8])(const void *)w));
    __asm__ volatile("vcvtdq2ps %0, %0" : "+x"(v));
    return v;
}

/* One row of w onto mr rows of nv vectors. Of bf16 the even ones of 16 columns and the odd ones stand side by side; int8, and a lone vector, are columns in
 * their order. Weights of two rows stay in registers, of more there is no room for them. */
VF_FN void add_value(vf *acc, const float *x, const char *w, ptrdiff_t later, const int mr, const int nv, const bool int8)
{
    vf kept[2] QR_UNINITIALIZED, even, odd;
    _mm_prefetch(w + later, _MM_HINT_T1);
    if (nv == 8 && !int8)
        _mm_prefetch(w + later + 64, _MM_HINT_T1);
#pragma GCC unroll 2
    for (int r = 0; mr <= 2 && r < mr; r++)
        kept[r] = weight_of(x + r * QR_X_ROW);
    if (nv == 1) {
        even = int8 ? wide_integers(w) : vf_load_bf16((const uint16_t *)(const void *)w);
#pragma GCC unroll 6
        for (int r = 0; r < mr; r++)
            add_product(&acc[r], mr <= 2 ? kept[r] : weight_of(x + r * QR_X_ROW), even);
        return;
    }
#pragma GCC unroll 4
    for (int j = 0; j + 1 < nv; j += 2) {
        if (int8) {
            even = wide_integers(w + j * 8);
            odd = wide_integers(w + j * 8 + 8);
        } else {
            split_values(&even, &odd, w + j * 16);
        }
#pragma GCC unroll 6
        for (int r = 0; r < mr; r++) {
            const vf weight = mr <= 2 ? kept[r] : weight_of(x + r * QR_X_ROW);
            add_product(&acc[r * nv + j], weight, even);
            add_product(&acc[r * nv + j + 1], weight, odd);
        }
    }
}

/* nv vectors of sums in the order of add_value, as columns in their order. */
VF_FN void store_sums(float *c, const vf *acc, const int nv, const bool int8)
{
#pragma GCC unroll 8
    for (int j = 0; j < nv; j++) {
        const vf low = _mm256_unpacklo_ps(acc[j & ~1], acc[j | 1]), high = _mm256_unpackhi_ps(acc[j & ~1], acc[j | 1]);
        const vf ordered = j & 1 ? _mm256_permute2f128_ps(low, high, 0x31) : _mm256_permute2f128_ps(low, high, 0x20);
        vf_store(c + j * VF_LEN, int8 || nv == 1 ? acc[j] : ordered);
    }
}

VF_FN void pair_values_of(const struct pair_values *a, const int mr, const int nv, const bool int8)
{
    const size_t row_bytes = a->row_bytes;
    const int32_t mask = (int32_t)((1u << a->shift) - 1), end = a->end;
    const int64_t c_stride = a->c_stride;
    float *c = a->c;
    vf acc[12] QR_UNINITIALIZED;
#pragma GCC unroll 12
    for (int i = 0; i < mr * nv; i++)
        acc[i] = vf_zero();
    for (int32_t at = a->from; at < end;) {
        const int32_t rest = (at | mask) + 1 - at, run = at >> a->shift;
        const char *w = a->run[run] + (size_t)(at & mask) * row_bytes + a->column;
        const ptrdiff_t later = a->later && a->later[run] ? a->later[run] - a->run[run] : 0;
        const float *x = a->x + at;
        int32_t n = rest < end - at ? rest : end - at;
        at += n;
        for (; n >= 2; n -= 2, w += 2 * row_bytes, x += 2) {
            add_value(acc, x, w, later, mr, nv, int8);
            add_value(acc, x + 1, w + row_bytes, later, mr, nv, int8);
        }
        if (n > 0)
            add_value(acc, x, w, later, mr, nv, int8);
    }
#pragma GCC unroll 6
    for (int r = 0; r < mr; r++)
        store_sums(c + r * c_stride, acc + r * nv, nv, int8);
}

#define FOR_PAIR_VALUES(DO)                                                                                                            \
    DO(1, 1) DO(1, 2) DO(1, 4) DO(1, 8) DO(2, 1) DO(2, 2) DO(2, 4) DO(3, 1) DO(3, 2) DO(3, 4) DO(4, 1) DO(4, 2) DO(5, 1)         \
    DO(5, 2) DO(6, 1) DO(6, 2)
#define PAIR_VALUES(mr, nv)                                                                                                            \
    static void pair_values_##mr##_##nv(const struct pair_values *a)                                                                   \
    {                                                                                                                                  \
        pair_values_of(a, mr, nv, false);                                                                                              \
    }                                                                                                                                  \
    static void quad_values_##mr##_##nv(const struct pair_values *a)                                                                   \
    {                                                                                                                                  \
        pair_values_of(a, mr, nv, true);                                                                                               \
    }
#define PAIR_VALUES_ROW(mr, nv) [mr][nv] = {pair_values_##mr##_##nv, quad_values_##mr##_##nv},
FOR_PAIR_VALUES(PAIR_VALUES)
static pair_values_fn *const pair_values[ROWS_MAX + 1][9][2] = {FOR_PAIR_VALUES(PAIR_VALUES_ROW)};

/* All of n vectors of columns from a->column on. */
static void weigh_columns(struct pair_values *a, int32_t mr, int32_t n, bool int8)
{
    static const uint8_t widest[ROWS_MAX + 1] = {0, 8, 4, 4, 2, 2, 2};
    for (int32_t nv = widest[mr]; n > 0; n -= nv) {
        while (nv > n)
            nv /= 2;
        pair_values[mr][nv][int8](a);
        a->c += nv * VF_LEN;
        a->column += (size_t)nv * VF_LEN * (int8 ? 1 : sizeof(uint16_t));
    }
}

/* piece_out = p v over positions [begin, end) of the piece. */
static void weigh_pairs(const struct tile *t, int32_t begin, int32_t end, int32_t shift)
{
    struct scratch *s = t->s;
    const int32_t n_blocks = (t->n_queries + ROWS_MAX - 1) / ROWS_MAX;
    if (t->k_pad != t->k)
        memset(s->piece_out, 0, (size_t)t->n_queries * (size_t)t->k_pad * sizeof(float));
    for (int32_t b = 0; b < n_blocks; b++) {
        const int32_t first = t->n_queries * b / n_blocks, mr = t->n_queries * (b + 1) / n_blocks - first;
        struct pair_values a = {.c = s->piece_out + first * t->k_pad, .x = s->p + first * QR_X_ROW, .run = s->run[1],
                                .later = b == 0 ? s->later[1] : NULL, .c_stride = t->k_pad, .row_bytes = t->row_bytes, .shift = shift,
                                .from = begin, .end = end};
        weigh_columns(&a, mr, t->k / VF_LEN, is_int8(t));
    }
}

/* ---- a piece ---- */

/* Where the cache's rows of the piece lie, [begin, end) of it; in runs of 2^shift. */
static void find_runs(const char **run, const struct tile *t, int32_t which, int32_t base, int32_t begin, int32_t end, int32_t shift)
{
    for (int32_t i = begin >> shift; i << shift < end; i++)
        run[i] = cache_row(t, which, base + (i << shift));
}

/* What to prefetch while keys (which 0) or values (1) of positions [begin, end) of the piece are read: those AHEAD positions further, and at the
 * end the first values of the piece, or the first keys of what comes next. It is prefetched shortly before it is read, because the rows of all
 * blocks may meet in the same few sets of the caches: where a block of all layers takes a power of two of bytes, they do. */
static void find_later(const struct tile *t, int32_t which, const struct after *after, int32_t begin, int32_t end, int32_t shift)
{
    struct scratch *s = t->s;
    const struct tile *next = after->t && run_shift(after->t) == shift ? after->t : NULL;
    const int32_t first = begin >> shift, n = ((end - 1) >> shift) + 1, far = AHEAD >> shift > 0 ? AHEAD >> shift : 1;
    for (int32_t i = first; i < n; i++) {
        const int32_t then = i + far - n;
        s->later[which][i] = NULL;
        if (then < 0)
            s->later[which][i] = s->run[which][i + far];
        else if (which == 0 && first + then < n)
            s->later[which][i] = s->run[1][first + then];
        else if (which == 1 && next && after->base + (then << shift) < next->see_max)
            s->later[which][i] = cache_row(next, 0, after->base + (then << shift));
    }
}

/* attend_piece of a tile: the results are left in piece_out. */
static void attend_pairs(const struct tile *t, int32_t base, int32_t begin, int32_t end, const struct after *after)
{
    const int32_t shift = run_shift(t);
    for (int32_t which = 0; which < 2; which++)
        find_runs(t->s->run[which], t, which, base, begin, end, shift);
    for (int32_t which = 0; which < 2; which++)
        find_later(t, which, after, begin, end, shift);
    if (is_int8(t))
        stage_scales(t, base, begin, end);
    score_pairs(t, begin / VF_LEN * VF_LEN, (end + VF_LEN - 1) / VF_LEN * VF_LEN, shift);
    for (int32_t i = 0; i < t->n_queries; i++)
        softmax(t, i);
    weigh_pairs(t, begin, end, shift);
}

#endif
