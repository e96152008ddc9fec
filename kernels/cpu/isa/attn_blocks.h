/* attn_blocks.h - the two products of a query tile at level avx2, with its 16 registers and small first-level cache. Included by attn_vectors.h only.
 *
 * Queries go in register blocks of up to 6. Where a tile has many, 16 positions' keys are staged and meet all blocks while they lie in the first-level
 * cache, and so are the values of up to 64 positions, 16 columns one behind the other; sums of values wait in piece_out between such steps. A block
 * skips positions that none of its queries sees. Where a tile has few queries (decode), values are widened in registers as they lie in the cache,
 * and with each row one that is read soon is asked for.
 */
#ifndef QR_KERNELS_CPU_ATTN_BLOCKS_H
#define QR_KERNELS_CPU_ATTN_BLOCKS_H

#include "kernels/cpu/isa/attn_int8.h"
#include "kernels/cpu/isa/attn_tile.h"

#define ROWS_MAX 6
#define ASK 64 /* positions */
#define FEW 12 /* queries for which values are not staged: two blocks widen them twice */

static int32_t lower(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t higher(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* A product of some rows of x with rows of w: c[r][j] (+)= x[r][at] w[at][j], at = from .. end - 1 in this order. */
struct product {
    float *c;               /* [rows][c_stride] */
    const float *x;         /* rows QR_X_ROW apart */
    const char *const *run; /* row `at` of w is row at % 2^shift of run[at >> shift] */
    const char *const *ask; /* as many addresses or NULLs: with each row of a run the same one there is asked for; or NULL */
    const char *const *line; /* of one run: a line that is asked for with each of the first n_lines rows of w */
    int32_t n_lines;
    int64_t c_stride;
    size_t w_row, w_panel;  /* bytes from row to row, and from 16 columns to the next */
    size_t column;          /* bytes, where the columns begin in a row */
    int32_t shift, from, end;
    bool onto;              /* c is added to */
};
typedef void product_fn(const struct product *p);

VF_FN vf load_widened(const char *w, const enum qr_dtype type)
{
    return type == QR_BF16 ? vf_load_bf16((const uint16_t *)(const void *)w)
           : type == QR_I8 ? vf_load_i8_n((const int8_t *)w, VF_LEN)
                           : vf_load((const float *)(const void *)w);
}

/* One row of w onto mr rows of nv vectors: what there is more of comes from memory one by one, the other stays in registers. */
VF_FN void product_step(vf *acc, const float *x, const char *w, size_t w_panel, const enum qr_dtype type, const int mr, const int nv)
{
    const size_t bytes = type == QR_BF16 ? 2 : type == QR_I8 ? 1 : 4;
    vf kept[4];
    if (mr < nv) {
#pragma GCC unroll 8
        for (int r = 0; r < mr; r++)
            kept[r] = vf_set1(x[r * QR_X_ROW]);
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++) {
            const vf wv = load_widened(w + (size_t)(j / 2) * w_panel + (size_t)(j % 2) * VF_LEN * bytes, type);
#pragma GCC unroll 8
            for (int r = 0; r < mr; r++)
                acc[r * nv + j] = vf_fma(kept[r], wv, acc[r * nv + j]);
        }
        return;
    }
#pragma GCC unroll 8
    for (int j = 0; j < nv; j++)
        kept[j] = load_widened(w + (size_t)(j / 2) * w_panel + (size_t)(j % 2) * VF_LEN * bytes, type);
#pragma GCC unroll 8
    for (int r = 0; r < mr; r++) {
        const vf xv = vf_set1(x[r * QR_X_ROW]);
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++)
            acc[r * nv + j] = vf_fma(xv, kept[j], acc[r * nv + j]);
    }
}

VF_FN void product_of(const struct product *p, const enum qr_dtype type, const int mr, const int nv)
{
    const size_t w_row = p->w_row, w_panel = p->w_panel, step_bytes = (size_t)nv * VF_LEN * (type == QR_BF16 ? 2 : type == QR_I8 ? 1 : 4);
    const int32_t mask = (int32_t)((1u << p->shift) - 1), end = p->end;
    const int64_t c_stride = p->c_stride;
    float *c = p->c;
    vf acc[12];
#pragma GCC unroll 12
    for (int i = 0; i < mr * nv; i++)
        acc[i] = p->onto ? vf_load(c + (i / nv) * c_stride + (i % nv) * VF_LEN) : vf_zero();
    for (int32_t at = p->from; at < end;) {
        const int32_t rest = (at | mask) + 1 - at;
        const size_t in_run = (size_t)(at & mask) * w_row + p->column;
        const char *w = p->run[at >> p->shift] + in_run, *ask = p->ask ? p->ask[at >> p->shift] : NULL;
        const float *x = p->x + at;
        int32_t n = rest < end - at ? rest : end - at;
        at += n;
        if (ask) {
            for (ask += in_run; n > 0; n--, w += w_row, ask += w_row, x++) {
                for (size_t b = 0; b < step_bytes; b += 64)
                    _mm_prefetch(ask + b, _MM_HINT_T1);
                product_step(acc, x, w, w_panel, type, mr, nv);
            }
        } else {
            const char *const *line = p->line;
            for (int32_t i = p->n_lines < n ? p->n_lines : n; i > 0; i--, n--, w += w_row, x++, line++) {
                _mm_prefetch(*line, _MM_HINT_T1);
                product_step(acc, x, w, w_panel, type, mr, nv);
            }
            for (; n > 0; n--, w += w_row, x++)
                product_step(acc, x, w, w_panel, type, mr, nv);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < mr * nv; i++)
        vf_store(c + (i / nv) * c_stride + (i % nv) * VF_LEN, acc[i]);
}

#define FOR_PRODUCTS(DO, type)                                                                                                         \
    DO(type, 1, 1) DO(type, 1, 2) DO(type, 1, 4) DO(type, 1, 8) DO(type, 2, 1) DO(type, 2, 2) DO(type, 2, 4) DO(type, 3, 1)            \
    DO(type, 3, 2) DO(type, 3, 4) DO(type, 4, 1) DO(type, 4, 2) DO(type, 5, 1) DO(type, 5, 2) DO(type, 6, 1) DO(type, 6, 2)
#define PRODUCT(type, mr, nv)                                                                                                          \
    static void product_##type##_##mr##_##nv(const struct product *p)                                                                  \
    {                                                                                                                                  \
        product_of(p, QR_##type, mr, nv);                                                                                              \
    }
#define PRODUCT_ROW(type, mr, nv) [mr][nv] = product_##type##_##mr##_##nv,
FOR_PRODUCTS(PRODUCT, F32)
FOR_PRODUCTS(PRODUCT, BF16)
FOR_PRODUCTS(PRODUCT, I8)

static product_fn *const product_f32[ROWS_MAX + 1][9] = {FOR_PRODUCTS(PRODUCT_ROW, F32)};
static product_fn *const product_bf16[ROWS_MAX + 1][9] = {FOR_PRODUCTS(PRODUCT_ROW, BF16)};
static product_fn *const product_i8[ROWS_MAX + 1][9] = {FOR_PRODUCTS(PRODUCT_ROW, I8)};

/* Vectors of the largest block of so many rows. */
static const uint8_t vectors_of[ROWS_MAX + 1] = {0, 8, 4, 4, 2, 2, 2};

/* The product for n vectors of columns, whose numbers of w take `bytes` each: columns from p->column on, w_panel apart by sixteens. */
static void multiply(struct product *p, product_fn *const table[9], int32_t mr, int32_t n, size_t bytes)
{
    for (int32_t nv = vectors_of[mr]; n > 0; n -= nv) {
        while (nv > n)
            nv /= 2;
        table[nv](p);
        p->column += nv > 1 ? (size_t)(nv / 2) * p->w_panel : VF_LEN * bytes;
        p->c += nv * VF_LEN;
        p->n_lines = 0;
    }
}

/* c[r][0 .. 16) (+)= sum over i < n of x[r][i] w[i], for what is staged: rows of w one panel behind the other. The call of many queries, so it has its
 * arguments in registers. */
typedef void dense_fn(float *c, int64_t c_stride, const float *x, const float *w, int32_t n, bool onto);

VF_FN void dense_of(float *c, int64_t c_stride, const float *x, const float *w, int32_t n, bool onto, const int mr)
{
    vf acc[12];
#pragma GCC unroll 12
    for (int i = 0; i < 2 * mr; i++)
        acc[i] = onto ? vf_load(c + i / 2 * c_stride + i % 2 * VF_LEN) : vf_zero();
    for (; n > 0; n--, w += QR_PANEL, x++)
        product_step(acc, x, (const char *)w, 0, QR_F32, mr, 2);
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

/* A register block of queries and what it sees of the piece. */
struct rows_block {
    int32_t q0, mr;
    int32_t begin, end;       /* some query */
    int32_t all_from, all_end; /* every query */
};

/* Blocks of nearly equal height; returns how many. */
static int32_t blocks_of(struct rows_block block[QUERIES / ROWS_MAX], const struct tile *t)
{
    const struct scratch *s = t->s;
    const int32_t n = (t->n_queries + ROWS_MAX - 1) / ROWS_MAX;
    for (int32_t b = 0; b < n; b++) {
        struct rows_block r = {.q0 = t->n_queries * b / n, .begin = PIECE, .all_end = PIECE};
        r.mr = t->n_queries * (b + 1) / n - r.q0;
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

static int32_t run_shift(const struct tile *t)
{
    const int32_t whole = __builtin_ctz(PIECE);
    return t->block_shift < whole ? t->block_shift : whole;
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

/* Keys of positions [begin, end) of the piece to scratch as panels [K][16] from `to` on, the first that of the group of 16 in which they begin; zeros
 * for what else the groups hold. What is asked for meanwhile is asked for with each 8 positions, or with every other 8. */
VF_FN void turn_keys_of(float *to, const struct tile *t, int32_t base, int32_t begin, int32_t end, int32_t shift, bool ask_all, const int in_unit)
{
    const struct scratch *s = t->s;
    const int32_t units = t->k / in_unit, first = begin / QR_PANEL * QR_PANEL, mask = (1 << shift) - 1;
    const char *row[VF_LEN] QR_UNINITIALIZED;
    for (int32_t at = first; at < (end + QR_PANEL - 1) / QR_PANEL * QR_PANEL; at += VF_LEN) {
        float *dst = to + (at - first) / QR_PANEL * QR_PANEL * t->k + at % QR_PANEL;
        if (at >= begin && at + VF_LEN <= end && shift >= 3) {
            const size_t in_run = (size_t)(at & mask) * t->row_bytes;
            const char *from = s->run[0][at >> shift] + in_run;
            if (ask_all || at % QR_PANEL == 0)
                ask_for(t, s->ask[0], at, VF_LEN, shift);
            for (int i = 0; i < VF_LEN; i++)
                row[i] = from + (size_t)i * t->row_bytes;
        } else {
            cache_rows(t, 0, row, VF_LEN, base + at, base + begin, base + end);
        }
        for (int32_t u = 0; u < units; u += VF_LEN)
            columns_of(dst, row, u, vf_min_len(units - u), in_unit);
    }
}

static void turn_keys(float *to, const struct tile *t, int32_t base, int32_t begin, int32_t end, int32_t shift, bool ask_all)
{
    if (is_int8(t))
        turn_keys_of(to, t, base, begin, end, shift, ask_all, 4);
    else if (t->a->kv->dtype == QR_BF16)
        turn_keys_of(to, t, base, begin, end, shift, ask_all, 2);
    else
        turn_keys_of(to, t, base, begin, end, shift, ask_all, 1);
}

/* The lines that turn_keys left out for positions [begin, end), at most n, to scratch; returns how many. */
static int32_t lines_left(const struct tile *t, int32_t begin, int32_t end, int32_t shift, int32_t n)
{
    const char **line = t->s->line;
    int32_t n_lines = 0;
    for (int32_t at = begin / QR_PANEL * QR_PANEL + VF_LEN; at + VF_LEN <= end && shift >= 3; at += QR_PANEL) {
        const char *row = t->s->ask[0][at >> shift];
        if (!row)
            continue;
        row += (size_t)(at & ((1 << shift) - 1)) * t->row_bytes;
        for (size_t b = 0; b < VF_LEN * t->row_bytes && n_lines < n; b += 64)
            line[n_lines++] = row + b;
    }
    return n_lines;
}

/* Scores of positions [begin, end) of the piece: 16 at a time, or what few queries have registers for. */
static void score_positions(const struct tile *t, const struct rows_block *block, int32_t n, int32_t base, int32_t begin, int32_t end, int32_t shift)
{
    struct scratch *s = t->s;
    const bool few = n == 1;
    const int32_t step = few ? higher(vectors_of[block->mr] * VF_LEN, 2 * QR_PANEL) : QR_PANEL;
    const char *panels = s->keys;
    for (int32_t from = begin, to; from < end; from = to) {
        to = from / step * step + step;
        to = to < end ? to : end;
        turn_keys((float *)(void *)s->keys, t, base, from, to, shift, !few);
        const int32_t n_lines = few ? lines_left(t, from, to, shift, t->k) : 0;
        const int32_t first = from / QR_PANEL * QR_PANEL, n_panels = (to - first + QR_PANEL - 1) / QR_PANEL;
        for (const struct rows_block *b = block; b < block + n; b++) {
            if (b->end <= from || b->begin >= to)
                continue;
            if (!few) {
                dense[b->mr](s->p + b->q0 * QR_X_ROW + first, QR_X_ROW, s->q + b->q0 * QR_X_ROW, (const float *)(void *)s->keys, t->k, false);
                continue;
            }
            struct product p = {.c = s->p + b->q0 * QR_X_ROW + first, .x = s->q + b->q0 * QR_X_ROW, .run = &panels, .line = s->line, .n_lines = n_lines,
                                .c_stride = QR_X_ROW, .w_row = QR_PANEL * sizeof(float), .w_panel = (size_t)t->k * QR_PANEL * sizeof(float),
                                .shift = 30, .end = t->k};
            multiply(&p, product_f32[b->mr], b->mr, n_panels * 2, sizeof(float));
        }
    }
}

/* Values of positions [begin, end) of the piece as f32 to scratch, [K / 16][STEP][16]; a half panel behind K holds anything. */
VF_FN void widen_values_of(const struct tile *t, int32_t begin, int32_t end, int32_t shift, const enum qr_dtype type)
{
    const size_t bytes = type == QR_BF16 ? 2 : type == QR_I8 ? 1 : 4;
    const int32_t mask = (1 << shift) - 1;
    float *dst = (float *)(void *)t->s->values;
    for (int32_t at = begin; at < end; at++, dst += QR_PANEL) {
        ask_for(t, t->s->ask[1], at, 1, shift);
        const char *row = t->s->run[1][at >> shift] + (size_t)(at & mask) * t->row_bytes;
        for (int32_t i = 0; i < t->k; i += VF_LEN)
            vf_store(dst + i / QR_PANEL * STEP * QR_PANEL + i % QR_PANEL, load_widened(row + (size_t)i * bytes, type));
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
        if (is_int8(t))
            widen_values_of(t, from, to, shift, QR_I8);
        else if (t->a->kv->dtype == QR_BF16)
            widen_values_of(t, from, to, shift, QR_BF16);
        else
            widen_values_of(t, from, to, shift, QR_F32);
        for (int32_t panel = 0; panel < t->k_pad / QR_PANEL; panel++)
            for (const struct rows_block *b = block; b < block + n; b++)
                weigh_block_staged(t, b, from, to, panel);
    }
}

/* piece_out of queries [q0, q0 + mr) (+)= p v over positions [from, end), values from where they lie. */
static void weigh_direct(const struct tile *t, int32_t q0, int32_t mr, int32_t from, int32_t end, int32_t shift, const char *const *ask, bool onto)
{
    struct scratch *s = t->s;
    const enum qr_dtype type = t->a->kv->dtype;
    const size_t bytes = qr_dtype_bytes(type);
    product_fn *const *const table = type == QR_I8 ? product_i8[mr] : type == QR_BF16 ? product_bf16[mr] : product_f32[mr];
    const int32_t whole = vectors_of[mr] * VF_LEN * (int32_t)bytes < 64 ? ASK : PIECE; /* lines that are read in parts are read again soon */
    int32_t at = from;
    do {
        const int32_t next = higher(lower(at / whole * whole + whole, end), at);
        struct product p = {.c = s->piece_out + q0 * t->k_pad, .x = s->p + q0 * QR_X_ROW, .run = s->run[1], .ask = ask, .c_stride = t->k_pad,
                            .w_row = t->row_bytes, .w_panel = QR_PANEL * bytes, .shift = shift, .from = at, .end = next, .onto = onto || at > from};
        multiply(&p, table, mr, t->k / VF_LEN, bytes);
        at = next;
    } while (at < end);
}

/* piece_out = p v for few queries. */
static void weigh_lying(const struct tile *t, const struct rows_block *block, int32_t n, int32_t shift, const char *const *ask)
{
    const struct scratch *s = t->s;
    if (t->k_pad != t->k)
        memset(t->s->piece_out, 0, (size_t)t->n_queries * (size_t)t->k_pad * sizeof(float));
    for (const struct rows_block *b = block; b < block + n; b++, ask = NULL) {
        if (b->all_from == b->begin && b->all_end == b->end) {
            weigh_direct(t, b->q0, b->mr, b->begin, b->end, shift, ask, false);
            continue;
        }
        for (int32_t i = b->q0; i < b->q0 + b->mr; i++)
            weigh_direct(t, i, 1, s->in[i], lower(b->all_from, s->in_end[i]), shift, NULL, false);
        weigh_direct(t, b->q0, b->mr, b->all_from, b->all_end, shift, ask, true);
        for (int32_t i = b->q0; i < b->q0 + b->mr; i++)
            weigh_direct(t, i, 1, b->all_end, s->in_end[i], shift, NULL, true);
    }
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
    if (m->value_scale)
        e = vf_mul(e, vf_load(m->value_scale + at)); /* NaN for a value that was not finite */
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
 * scales; lanes outside the range become anything. */
VF_FN void softmax_row(const struct tile *t, int32_t i, const bool rounded, const float *key, const float *value_scale)
{
    struct scratch *s = t->s;
    const int32_t first = s->in[i], end = s->in_end[i], begin = first / VF_LEN * VF_LEN, last = (end - 1) / VF_LEN * VF_LEN;
    const struct lanes head = {first - begin, end - begin < VF_LEN ? end - begin : VF_LEN}, tail = {0, end - last};
    struct softmax m = {.p = s->p + i * QR_X_ROW, .key = key, .value_scale = value_scale, .factor = vf_set1(t->factor), .max = vf_set1(-INFINITY),
                        .min = vf_set1(INFINITY), .sum = vf_zero()};
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
}

static void softmax(const struct tile *t, int32_t i)
{
    const bool capped = t->a->softcap > 0;
    if (capped)
        cap_scores(t, t->s->p + i * QR_X_ROW, t->s->in[i], t->s->in_end[i], is_int8(t) ? t->s->key_scale : NULL);
    if (is_int8(t) && !capped)
        softmax_row(t, i, false, t->s->key_scale, t->s->value_scale);
    else if (is_int8(t))
        softmax_row(t, i, false, NULL, t->s->value_scale);
    else if (t->a->kv->dtype == QR_BF16)
        softmax_row(t, i, true, NULL, NULL);
    else
        softmax_row(t, i, false, NULL, NULL);
}

static void ask_for_query(const struct tile *t, int32_t i)
{
    const struct place at = {t->first_row + i / t->n_heads, t->first_head + i % t->n_heads};
    const char *q = (const char *)query(t, at);
    for (size_t b = 0; b < (size_t)t->k * sizeof(float); b += 64)
        _mm_prefetch(q + b, _MM_HINT_T1);
}

/* All queries' results for the piece, of which some query sees [begin, end). An item is one tile. */
static void attend_piece(struct tile *t, int32_t n_tiles, int32_t piece, int32_t begin, int32_t end, const struct after *after)
{
    struct scratch *s = t->s;
    QR_ASSERT(n_tiles == TILES_MAX && t->q0 == 0);
    const int32_t base = piece * PIECE, shift = run_shift(t);
    struct rows_block block[QUERIES / ROWS_MAX] QR_UNINITIALIZED;
    const int32_t n = blocks_of(block, t);
    find_runs(s->run[0], t, 0, base, begin, end, shift);
    find_runs(s->run[1], t, 1, base, begin, end, shift);
    find_asked(t, 0, after, begin, end, shift);
    find_asked(t, 1, after, begin, end, shift);
    if (is_int8(t)) {
        stage_scales(t, base, begin, end);
        ask_for_scales(after, shift);
    }
    score_positions(t, block, n, base, begin, end, shift);
    for (int32_t i = 0; i < t->n_queries; i++) {
        if (after->t && after->t != t && i < after->t->n_queries)
            ask_for_query(after->t, i);
        s->piece_sum[i] = 0;
        if (s->in[i] < s->in_end[i])
            softmax(t, i);
    }
    if (t->n_queries > FEW)
        weigh_staging(t, block, n, begin, end, shift);
    else
        weigh_lying(t, block, n, shift, s->ask[1]);
    take_piece(t, piece, 0, t->n_queries, s->piece_out);
}

#endif
