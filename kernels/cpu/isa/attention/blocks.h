/* blocks.h - the two products of a query tile at level avx2, with its 16 registers and small first-level cache. Included by vectors.h only.
 *
 * Queries go in register blocks of up to 6. Where a tile has many, 16 positions' keys are staged and meet all blocks while they lie in the first-level
 * cache, and so are the values of up to 64 positions, 16 columns one behind the other; sums of values wait in piece_out between such steps. A block
 * skips positions that none of its queries sees. Where a tile has few queries (decode), values are read as they lie in the cache, and so are keys of bf16
 * (pairs.h), and neighbouring kv heads are tiles of one item, which take turns every FEW_STEP keys and VALUES_STEP values: so memory is read in its
 * order. See also ahead.h. An int8 cache has a way of its own (words.h).
 */
#ifndef QR_KERNELS_CPU_ISA_ATTENTION_BLOCKS_H
#define QR_KERNELS_CPU_ISA_ATTENTION_BLOCKS_H

#include "kernels/cpu/isa/attention/pairs.h"
#include "kernels/cpu/isa/attention/parts.h"
#include "kernels/cpu/isa/attention/words.h"

/* A product of some rows of x with rows of floats w: c[r][j] (+)= x[r][at] w[at][j], at = from .. end - 1 in this order. */
struct product {
    float *c;               /* [rows][c_stride] */
    const float *x;         /* rows QR_X_ROW apart */
    const char *const *run; /* row `at` of w is row at % 2^shift of run[at >> shift] */
    const char *const *line; /* n_lines that are asked for meanwhile, row by row */
    int32_t n_lines;
    int64_t c_stride;
    size_t w_row, w_panel;  /* bytes from row to row, and from 16 columns to the next */
    size_t column;          /* bytes, where the columns begin in a row */
    int32_t shift, from, end;
    bool onto;              /* c is added to */
};
typedef void product_fn(const struct product *p);

/* One row of w onto mr rows of nv vectors: what there is more of comes from memory one by one, the other stays in registers. */
VF_FN void product_step(vf *acc, const float *x, const char *w, size_t w_panel, const int mr, const int nv)
{
    vf kept[4];
    if (mr < nv) {
#pragma GCC unroll 8
        for (int r = 0; r < mr; r++)
            kept[r] = vf_set1(x[r * QR_X_ROW]);
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++) {
            const vf wv = vf_load((const float *)(const void *)(w + (size_t)(j / 2) * w_panel) + j % 2 * VF_LEN);
#pragma GCC unroll 8
            for (int r = 0; r < mr; r++)
                acc[r * nv + j] = vf_fma(kept[r], wv, acc[r * nv + j]);
        }
        return;
    }
#pragma GCC unroll 8
    for (int j = 0; j < nv; j++)
        kept[j] = vf_load((const float *)(const void *)(w + (size_t)(j / 2) * w_panel) + j % 2 * VF_LEN);
#pragma GCC unroll 8
    for (int r = 0; r < mr; r++) {
        const vf xv = vf_set1(x[r * QR_X_ROW]);
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++)
            acc[r * nv + j] = vf_fma(xv, kept[j], acc[r * nv + j]);
    }
}

VF_FN void product_of(const struct product *p, const int mr, const int nv)
{
    const size_t w_row = p->w_row, w_panel = p->w_panel;
    const int32_t mask = (int32_t)((1u << p->shift) - 1), end = p->end;
    const int64_t c_stride = p->c_stride;
    const char *const *line = p->line, *const *const line_end = line + p->n_lines;
    float *c = p->c;
    vf acc[12] QR_UNINITIALIZED;
#pragma GCC unroll 12
    for (int i = 0; i < mr * nv; i++)
        acc[i] = p->onto ? vf_load(c + (i / nv) * c_stride + (i % nv) * VF_LEN) : vf_zero();
    for (; line_end - line > end - p->from; line++)
        _mm_prefetch(*line, _MM_HINT_T1);
    for (int32_t at = p->from; at < end;) {
        const int32_t rest = (at | mask) + 1 - at;
        const char *w = p->run[at >> p->shift] + (size_t)(at & mask) * w_row + p->column;
        const float *x = p->x + at;
        int32_t n = rest < end - at ? rest : end - at;
        at += n;
        for (; n > 0 && line < line_end; n--, w += w_row, x++) {
            _mm_prefetch(*line++, _MM_HINT_T1);
            product_step(acc, x, w, w_panel, mr, nv);
        }
        for (; n > 0; n--, w += w_row, x++)
            product_step(acc, x, w, w_panel, mr, nv);
    }
    for (; line < line_end; line++)
        _mm_prefetch(*line, _MM_HINT_T1);
#pragma GCC unroll 12
    for (int i = 0; i < mr * nv; i++)
        vf_store(c + (i / nv) * c_stride + (i % nv) * VF_LEN, acc[i]);
}

#define FOR_PRODUCTS(DO)                                                                                                               \
    DO(1, 1) DO(1, 2) DO(1, 4) DO(1, 8) DO(2, 1) DO(2, 2) DO(2, 4) DO(3, 1) DO(3, 2) DO(3, 4) DO(4, 1) DO(4, 2) DO(5, 1) DO(5, 2)         \
    DO(6, 1) DO(6, 2)
#define PRODUCT(mr, nv)                                                                                                                \
    static void product_##mr##_##nv(const struct product *p)                                                                           \
    {                                                                                                                                  \
        product_of(p, mr, nv);                                                                                                         \
    }
#define PRODUCT_ROW(mr, nv) [mr][nv] = product_##mr##_##nv,
FOR_PRODUCTS(PRODUCT)
static product_fn *const products[ROWS_MAX + 1][9] = {FOR_PRODUCTS(PRODUCT_ROW)};

/* Vectors of the largest block of so many rows. */
static const uint8_t vectors_of[ROWS_MAX + 1] = {0, 8, 4, 4, 2, 2, 2};

/* The product of mr rows for n vectors of columns from p->column on, w_panel apart by sixteens. */
static void multiply(struct product *p, int32_t mr, int32_t n)
{
    const int32_t n_calls = (n + vectors_of[mr] - 1) / vectors_of[mr], share = (p->n_lines + n_calls - 1) / n_calls;
    int32_t lines = p->n_lines;
    for (int32_t nv = vectors_of[mr]; n > 0; n -= nv) {
        while (nv > n)
            nv /= 2;
        p->n_lines = lower(share, lines);
        products[mr][nv](p);
        p->column += nv > 1 ? (size_t)(nv / 2) * p->w_panel : VF_LEN * sizeof(float);
        p->c += nv * VF_LEN;
        p->line += p->n_lines;
        lines -= p->n_lines;
    }
}

/* c[r][0 .. 16) (+)= sum over i < n of x[r][i] w[i], for what is staged: rows of w one panel behind the other. The call of many queries, so it has its
 * arguments in registers. */
typedef void dense_fn(float *c, int64_t c_stride, const float *x, const float *w, int32_t n, bool onto);

VF_FN void dense_step(vf *acc, const float *x, const float *w, const int mr)
{
    vf w0, w1;
    __asm__ volatile("vmovups %1, %0" : "=x"(w0) : "m"(*(const float (*)[VF_LEN])(const void *)w));
    __asm__ volatile("vmovups %1, %0" : "=x"(w1) : "m"(*(const float (*)[VF_LEN])(const void *)(w + VF_LEN)));
#pragma GCC unroll 6
    for (int r = 0; r < mr; r++) {
        const vf xv = weight_of(x + r * QR_X_ROW);
        add_product(&acc[2 * r], xv, w0);
        add_product(&acc[2 * r + 1], xv, w1);
    }
}

VF_FN void dense_of(float *c, int64_t c_stride, const float *x, const float *w, int32_t n, bool onto, const int mr)
{
    vf acc[12] QR_UNINITIALIZED;
#pragma GCC unroll 12
    for (int i = 0; i < 2 * mr; i++)
        acc[i] = onto ? vf_load(c + i / 2 * c_stride + i % 2 * VF_LEN) : vf_zero();
    for (; n >= 4; n -= 4, w += 4 * QR_PANEL, x += 4) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            dense_step(acc, x + i, w + i * QR_PANEL, mr);
    }
    for (; n > 0; n--, w += QR_PANEL, x++)
        dense_step(acc, x, w, mr);
#pragma GCC unroll 12
    for (int i = 0; i < 2 * mr; i++)
        vf_store(c + i / 2 * c_stride + i % 2 * VF_LEN, acc[i]);
}

#define DENSE(mr)                                                                                                                      \
    static void dense_##mr(float *c, int64_t c_stride, const float *x, const float *w, int32_t n, bool onto)                           \
    {                                                                                                                                  \
        dense_of(c, c_stride, x, w, n, onto, mr);                                                                                      \
    }
DENSE(1) DENSE(2) DENSE(3) DENSE(4) DENSE(5) DENSE(6)
static dense_fn *const dense[ROWS_MAX + 1] = {NULL, dense_1, dense_2, dense_3, dense_4, dense_5, dense_6};

/* Four units of VF_LEN rows as columns from dst on: halves of rows meet in a register on their way from memory, so nothing has to cross its middle. */
VF_FN void turn_four(float *dst, const char *const row[VF_LEN], size_t at, const int in_unit)
{
    const int step = in_unit * QR_PANEL;
    vf r[4] QR_UNINITIALIZED;
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps((const float *)(const void *)(row[i] + at))),
                                    _mm_loadu_ps((const float *)(const void *)(row[i + 4] + at)), 1);
    const __m256d low0 = _mm256_castps_pd(_mm256_unpacklo_ps(r[0], r[1])), high0 = _mm256_castps_pd(_mm256_unpackhi_ps(r[0], r[1]));
    const __m256d low1 = _mm256_castps_pd(_mm256_unpacklo_ps(r[2], r[3])), high1 = _mm256_castps_pd(_mm256_unpackhi_ps(r[2], r[3]));
    store_unit(dst, _mm256_castpd_ps(_mm256_unpacklo_pd(low0, low1)), in_unit);
    store_unit(dst + step, _mm256_castpd_ps(_mm256_unpackhi_pd(low0, low1)), in_unit);
    store_unit(dst + 2 * step, _mm256_castpd_ps(_mm256_unpacklo_pd(high0, high1)), in_unit);
    store_unit(dst + 3 * step, _mm256_castpd_ps(_mm256_unpackhi_pd(high0, high1)), in_unit);
}

/* Keys that turn_keys takes, and what is asked for meanwhile. */
struct keys {
    const char *const *run; /* of the first tile of the item */
    size_t offset;          /* from its keys to this tile's */
    int32_t base, shift;    /* of the piece; of its runs */
    struct ahead *ahead;    /* or NULL: the lines that s->ask names */
    int32_t n_ahead;        /* lines with each 8 positions */
};

/* Keys of positions [begin, end) of the piece to scratch as panels [rows][16] from `to` on, the first that of the group of 16 in which they begin; zeros
 * for what else the groups hold. A unit of 32 bits of the keys is in_unit numbers: 1 or 2. */
VF_FN void turn_keys_of(float *to, const struct tile *t, const struct keys *keys, int32_t begin, int32_t end, const int in_unit)
{
    const int32_t units = (int32_t)(t->row_bytes / sizeof(float)), first = begin / QR_PANEL * QR_PANEL, mask = (1 << keys->shift) - 1;
    const char *row[VF_LEN] QR_UNINITIALIZED;
    for (int32_t at = first; at < (end + QR_PANEL - 1) / QR_PANEL * QR_PANEL; at += VF_LEN) {
        float *dst = to + (at - first) / QR_PANEL * QR_PANEL * units * in_unit + at % QR_PANEL;
        int32_t u = 0;
        if (keys->ahead)
            ask_lines(keys->ahead, keys->n_ahead);
        if (at >= begin && at + VF_LEN <= end && keys->shift >= 3) {
            const char *from = keys->run[at >> keys->shift] + keys->offset + (size_t)(at & mask) * t->row_bytes;
            if (!keys->ahead)
                ask_for(t, t->s->ask[0], at, VF_LEN, keys->shift);
            for (int i = 0; i < VF_LEN; i++)
                row[i] = from + (size_t)i * t->row_bytes;
            for (; u + 4 <= units; u += 4)
                turn_four(dst + u * in_unit * QR_PANEL, row, (size_t)u * sizeof(float), in_unit);
        } else {
            cache_rows(t, 0, row, VF_LEN, keys->base + at, keys->base + begin, keys->base + end);
        }
        for (; u < units; u += VF_LEN)
            columns_of(dst, row, u, vf_min_len(units - u), in_unit);
    }
}

static void turn_keys(float *to, const struct tile *t, const struct keys *keys, int32_t begin, int32_t end)
{
    if (t->a->kv->dtype == QR_BF16)
        turn_keys_of(to, t, keys, begin, end, 2);
    else
        turn_keys_of(to, t, keys, begin, end, 1);
}

/* Scores of many queries for positions [begin, end) of the piece, 16 at a time. */
static void score_staging(const struct tile *t, const struct rows_block *block, int32_t n, int32_t base, int32_t begin, int32_t end, int32_t shift)
{
    struct scratch *s = t->s;
    float *panel = (float *)(void *)s->keys;
    const struct keys keys = {.run = s->run[0], .base = base, .shift = shift};
    for (int32_t from = begin, to; from < end; from = to) {
        const int32_t first = from / QR_PANEL * QR_PANEL;
        to = lower(first + QR_PANEL, end);
        turn_keys(panel, t, &keys, from, to);
        for (const struct rows_block *b = block; b < block + n; b++)
            if (b->end > from && b->begin < to)
                dense[b->mr](s->p + b->q0 * QR_X_ROW + first, QR_X_ROW, s->q + b->q0 * QR_X_ROW, panel, t->k, false);
    }
}

/* How the numbers of values lie. */
enum numbers { FLOATS, BF16S };

VF_FN vf load_widened(const char *w, const enum numbers as)
{
    return as == BF16S ? vf_load_bf16((const uint16_t *)(const void *)w) : vf_load((const float *)(const void *)w);
}

/* Values of positions [begin, end) of the piece as f32 to scratch, [K / 16][STEP][16]; a half panel behind K holds anything. */
VF_FN void widen_values_of(const struct tile *t, int32_t begin, int32_t end, int32_t shift, const enum numbers as)
{
    const size_t bytes = as == BF16S ? 2 : 4;
    const int32_t mask = (1 << shift) - 1;
    float *dst = (float *)(void *)t->s->values;
    for (int32_t at = begin; at < end; at++, dst += QR_PANEL) {
        ask_for(t, t->s->ask[1], at, 1, shift);
        const char *row = t->s->run[1][at >> shift] + (size_t)(at & mask) * t->row_bytes;
        for (int32_t i = 0; i < t->k; i += VF_LEN)
            vf_store(dst + i / QR_PANEL * STEP * QR_PANEL + i % QR_PANEL, load_widened(row + (size_t)i * bytes, as));
    }
}

/* piece_out of queries [q0, q0 + mr) += p v over positions [from, end), whose values are staged from position `staged` on. */
static void weigh_staged(const struct tile *t, int32_t q0, int32_t mr, int32_t staged, int32_t from, int32_t end, int32_t panel)
{
    struct scratch *s = t->s;
    const float *values = (const float *)(void *)s->values + (panel * STEP + from - staged) * QR_PANEL;
    if (from < end)
        dense[mr](s->piece_out + q0 * t->k_pad + panel * QR_PANEL, t->k_pad, s->p + q0 * QR_X_ROW + from, values, end - from, true);
}

/* What each query of a block sees of [from, end), values staged from position `staged` on: those with the same range together. */
static void weigh_own(const struct tile *t, const struct rows_block *b, int32_t staged, int32_t from, int32_t end, int32_t panel)
{
    const struct scratch *s = t->s;
    for (int32_t i = b->q0, next; i < b->q0 + b->mr; i = next) {
        for (next = i + 1; next < b->q0 + b->mr && s->in[next] == s->in[i] && s->in_end[next] == s->in_end[i];)
            next++;
        weigh_staged(t, i, next - i, staged, higher(s->in[i], from), lower(s->in_end[i], end), panel);
    }
}

/* One block's sums over staged positions [from, end): together where all its queries see, by their own ranges before and behind. */
static void weigh_block_staged(const struct tile *t, const struct rows_block *b, int32_t from, int32_t end, int32_t panel)
{
    if (b->all_from > from && b->begin < end)
        weigh_own(t, b, from, from, lower(b->all_from, end), panel);
    weigh_staged(t, b->q0, b->mr, from, higher(b->all_from, from), lower(b->all_end, end), panel);
    if (b->all_end < end && b->end > from)
        weigh_own(t, b, from, higher(b->all_end, from), end, panel);
}

/* piece_out = p v for many queries. */
static void weigh_staging(const struct tile *t, const struct rows_block *block, int32_t n, int32_t begin, int32_t end, int32_t shift)
{
    memset(t->s->piece_out, 0, (size_t)t->n_queries * (size_t)t->k_pad * sizeof(float));
    for (int32_t from = begin, to; from < end; from = to) {
        to = lower(from / STEP * STEP + STEP, end);
        if (t->a->kv->dtype == QR_BF16)
            widen_values_of(t, from, to, shift, BF16S);
        else
            widen_values_of(t, from, to, shift, FLOATS);
        for (int32_t panel = 0; panel < t->k_pad / QR_PANEL; panel++)
            for (const struct rows_block *b = block; b < block + n; b++)
                weigh_block_staged(t, b, from, to, panel);
    }
}

/* Scores of an item's tiles over an f32 cache for positions [begin, end) of the piece, the tiles in turns. */
static void score_few(const struct few *few, int32_t n_tiles, int32_t base, int32_t begin, int32_t end, int32_t shift, struct ahead *ahead)
{
    struct scratch *s = few->t->s;
    const char *panels = s->keys;
    const int32_t step = higher(vectors_of[few->block->mr] * VF_LEN, FEW_STEP); /* as many as a lone query has registers for */
    for (int32_t from = begin, to; from < end; from = to) {
        to = lower(from / step * step + step, end);
        const int32_t first = from / QR_PANEL * QR_PANEL, n_panels = (to - first + QR_PANEL - 1) / QR_PANEL;
        for (const struct few *f = few; f < few + n_tiles; f++) {
            const struct tile *t = f->t;
            const int32_t n_lines = share_of_lines(t, to - from, SHARE_SCORES), turning = share_of_lines(t, VF_LEN, SHARE_SCORES) / 4;
            const struct keys keys = {.run = s->run[0], .offset = f->offset, .base = base, .shift = shift, .ahead = ahead, .n_ahead = turning};
            turn_keys((float *)(void *)s->keys, t, &keys, from, to);
            int32_t n_left = take_lines(ahead, s->line, lower(higher(n_lines - (to - from) / VF_LEN * turning, 0), K_MAX));
            for (const struct rows_block *b = f->block; b < f->block + f->n; b++, n_left = 0) {
                struct product p = {.c = s->p + b->q0 * QR_X_ROW + first, .x = s->q + b->q0 * QR_X_ROW, .run = &panels, .line = s->line, .n_lines = n_left,
                                    .c_stride = QR_X_ROW, .w_row = QR_PANEL * sizeof(float), .w_panel = (size_t)t->k * QR_PANEL * sizeof(float),
                                    .shift = 30, .end = t->k};
                multiply(&p, b->mr, n_panels * 2);
            }
        }
    }
}

/* Positions whose values the heads of an item take in turns: of floats as many as the first-level cache holds. */
static int32_t values_step(enum qr_dtype type)
{
    return type == QR_F32 ? VALUES_STEP / 2 : VALUES_STEP;
}

/* piece_out of queries [q0, q0 + mr) (+)= p v over positions [from, end), values from where they lie. What is asked for meanwhile: bf16: what s->ask
 * names, if `asks`; f32: lines of `ahead`, if that is not NULL. */
static void weigh_direct(const struct few *f, int32_t q0, int32_t mr, int32_t from, int32_t end, int32_t shift, bool asks, struct ahead *ahead, bool onto)
{
    const struct tile *t = f->t;
    struct scratch *s = t->s;
    const enum qr_dtype type = t->a->kv->dtype;
    const int32_t step = values_step(type);
    float *c = s->piece_out + q0 * t->k_pad;
    const float *x = s->p + q0 * QR_X_ROW;
    int32_t at = from;
    do { /* lines that are read in parts are read again soon */
        const int32_t next = higher(lower(at / step * step + step, end), at);
        if (type == QR_BF16) {
            struct pair_values a = {.c = c, .x = x, .run = s->run[1], .ask = asks ? s->ask[1] : NULL, .c_stride = t->k_pad, .row_bytes = t->row_bytes,
                                    .column = f->offset, .shift = shift, .from = at, .end = next, .onto = onto || at > from};
            weigh_pairs(&a, mr, t->k / VF_LEN);
        } else {
            const int32_t n_lines = ahead ? take_lines(ahead, s->line, lower(share_of_lines(t, next - at, SHARE_VALUES), K_MAX)) : 0;
            struct product p = {.c = c, .x = x, .run = s->run[1], .line = s->line, .n_lines = n_lines, .c_stride = t->k_pad, .w_row = t->row_bytes,
                                .w_panel = QR_PANEL * sizeof(float), .column = f->offset, .shift = shift, .from = at, .end = next, .onto = onto || at > from};
            multiply(&p, mr, t->k / VF_LEN);
        }
        at = next;
    } while (at < end);
}

/* piece_out = p v for one tile of few queries, whose ranges differ. */
static void weigh_ranges(const struct few *f, int32_t shift, struct ahead *ahead)
{
    const struct scratch *s = f->t->s;
    bool asks = true;
    for (const struct rows_block *b = f->block; b < f->block + f->n; b++, ahead = NULL, asks = false) {
        for (int32_t i = b->q0; i < b->q0 + b->mr; i++)
            weigh_direct(f, i, 1, s->in[i], lower(b->all_from, s->in_end[i]), shift, false, NULL, false);
        weigh_direct(f, b->q0, b->mr, b->all_from, b->all_end, shift, asks, ahead, true);
        for (int32_t i = b->q0; i < b->q0 + b->mr; i++)
            weigh_direct(f, i, 1, b->all_end, s->in_end[i], shift, false, NULL, true);
    }
}

/* piece_out = p v for an item's tiles of few queries: in turns where all queries see the same, as they do in decode. */
static void weigh_few(const struct few *few, int32_t n_tiles, int32_t begin, int32_t end, int32_t shift, struct ahead *ahead)
{
    bool same = true;
    for (const struct few *f = few; f < few + n_tiles; f++) {
        const struct tile *t = f->t;
        if (t->k_pad != t->k)
            memset(t->s->piece_out + t->q0 * t->k_pad, 0, (size_t)t->n_queries * (size_t)t->k_pad * sizeof(float));
        for (const struct rows_block *b = f->block; b < f->block + f->n; b++)
            same = same && b->all_from == begin && b->all_end == end;
    }
    for (const struct few *f = few; !same && f < few + n_tiles; f++)
        weigh_ranges(f, shift, ahead);
    const int32_t step = values_step(few->t->a->kv->dtype);
    for (int32_t from = begin, to; same && from < end; from = to) {
        to = lower(from / step * step + step, end);
        for (const struct few *f = few; f < few + n_tiles; f++)
            for (const struct rows_block *b = f->block; b < f->block + f->n; b++)
                weigh_direct(f, b->q0, b->mr, from, to, shift, b == f->block, b == f->block ? ahead : NULL, from > begin);
    }
}

/* attend_piece of a tile of many queries. */
static void attend_many(const struct tile *t, int32_t base, int32_t begin, int32_t end, const struct after *after, const struct tile *next)
{
    const int32_t shift = run_shift(t);
    struct rows_block block[QUERIES / ROWS_MAX] QR_UNINITIALIZED;
    const int32_t n = blocks_of(block, t);
    find_asked(t, 0, after, begin, end, shift);
    find_asked(t, 1, after, begin, end, shift);
    score_staging(t, block, n, base, begin, end, shift);
    softmaxes(t, end, next, NULL, 0);
    weigh_staging(t, block, n, begin, end, shift);
}

/* attend_piece of tiles of few queries. */
static void attend_few(const struct tile *t, int32_t n_tiles, int32_t base, int32_t begin, int32_t end, const struct after *after, const struct tile *next)
{
    const int32_t shift = run_shift(t);
    const bool pairs = t->a->kv->dtype == QR_BF16;
    struct few few[TILES_MAX] QR_UNINITIALIZED;
    struct ahead ahead;
    for (int32_t i = 0; i < n_tiles; i++) {
        few[i].t = t + i;
        few[i].offset = (size_t)(t[i].plane[0] - t->plane[0]);
        few[i].n = blocks_of(few[i].block, t + i);
    }
    if (pairs) {
        find_asked(t, 0, after, begin, end, shift);
        find_asked(t, 1, after, begin, end, shift);
        score_few_pairs(few, n_tiles, base, begin, end, shift);
    } else {
        begin_ahead(&ahead, t, after, base, begin, end);
        if (is_int8(t)) {
            attend_few_words(few, n_tiles, base, begin, end, &ahead, next);
            return;
        }
        score_few(few, n_tiles, base, begin, end, shift, &ahead);
    }
    for (int32_t i = 0; i < n_tiles; i++)
        softmaxes(t + i, end, i == 0 ? next : NULL, pairs ? NULL : &ahead, share_of_lines(t, end - begin, SHARE_SOFTMAX) / t[i].n_queries);
    weigh_few(few, n_tiles, begin, end, shift, pairs ? NULL : &ahead);
}

/* All queries' results for the piece, of which some query sees [begin, end). An item is one tile, or several of few queries. */
static void attend_piece(struct tile *t, int32_t n_tiles, int32_t piece, int32_t begin, int32_t end, const struct after *after)
{
    struct scratch *s = t->s;
    QR_ASSERT(n_tiles >= 1 && n_tiles <= TILES_MAX && t->q0 == 0);
    QR_ASSERT(n_tiles == 1 || t->n_queries <= FEW);
    const int32_t base = piece * PIECE, shift = run_shift(t);
    const struct tile *next = after->t != t ? after->t : NULL;
    find_runs(s->run[0], t, 0, base, begin, end, shift);
    find_runs(s->run[1], t, 1, base, begin, end, shift);
    if (t->n_queries > FEW && is_int8(t))
        attend_many_words(t, base, begin, end, after, next);
    else if (t->n_queries > FEW)
        attend_many(t, base, begin, end, after, next);
    else
        attend_few(t, n_tiles, base, begin, end, after, next);
    for (const struct tile *one = t; one < t + n_tiles; one++)
        take_piece(one, piece, one->q0, one->n_queries, s->piece_out + one->q0 * one->k_pad);
}

/* Tiles of few queries share an item where their keys and values lie side by side: 8 KiB of bf16 together. */
static struct qr_attn_room room_of(const struct qr_kv_view *kv)
{
    const int32_t together = K_MAX / ((kv->head_dim + 31) / 32 * 32);
    return (struct qr_attn_room){.queries = QUERIES, .few_queries = FEW, .few_tiles = lower(together, TILES_MAX)};
}

static void begin_products(const struct tile *t)
{
    const struct qr_attention_args *a = t->a;
    QR_ASSERT(query_end(t) <= QUERIES);
    if (is_int8(t)) {
        begin_words(t);
        return;
    }
    if (a->kv->dtype == QR_BF16 && t->n_queries <= FEW) {
        begin_pairs(t);
        return;
    }
    for (int32_t i = t->q0; i < query_end(t); i++) {
        const float *q = query(t, place_of(t, i));
        for (int32_t k = 0; k < t->k; k += VF_LEN) {
            vf v = vf_load_n(q + k, vf_min_len(t->k - k));
            vf_store(t->s->q + i * QR_X_ROW + k, a->kv->dtype == QR_BF16 ? vf_round_bf16(v) : v);
        }
    }
}

#endif
