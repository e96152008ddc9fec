/* attn_world.h - sequences with random keys and values in a paged cache whose unused slots are NaN, and steps over them. */
#ifndef QR_TESTS_KERNELS_ATTN_WORLD_H
#define QR_TESTS_KERNELS_ATTN_WORLD_H

#include "kernels/f8.h"
#include "tests/kernels/util.h"
#include "tests/ops_cases.h"

#define WORLD_SEQS_MAX 16
#define WORLD_LAYERS 2
#define WORLD_LAYER 1

struct world {
    struct qr_attention_case c;
    int32_t n_seqs, ctx[WORLD_SEQS_MAX], n_rows[WORLD_SEQS_MAX]; /* context after the step; rows of the step */
    float *sinks; /* owned [H], or NULL */
    float *k[WORLD_SEQS_MAX], *v[WORLD_SEQS_MAX], *q[WORLD_SEQS_MAX]; /* owned [ctx][G or H][K] */
};

/* A batch over a world and the cache it reads. */
struct step {
    struct qr_batch batch;
    struct qr_kv_view kv;
    int32_t *ints;      /* owned: all arrays of the batch */
    float *q;           /* owned [n_tokens][q_stride] */
    int64_t q_stride;
};

/* Beside scores of a few units: one that is none, one far above them, and one whose exponential is infinite in f32. */
static inline float *random_sinks(int32_t n_heads, uint64_t seed)
{
    struct qr_rng r = {.seed = seed + 2};
    float *sinks = random_floats(&r, n_heads);
    const float odd[] = {-INFINITY, 40, 300};
    for (int32_t h = 1; h < n_heads && h <= QR_COUNT(odd); h++)
        sinks[h] = odd[h - 1];
    return sinks;
}

static inline struct world world_new(struct qr_attention_case c, int32_t n_seqs, const int32_t *ctx, const int32_t *n_rows, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    struct world w = {.c = c, .n_seqs = n_seqs, .sinks = c.use & QR_CASE_SINKS ? random_sinks(c.n_heads, seed) : NULL};
    for (int32_t s = 0; s < n_seqs; s++) {
        w.ctx[s] = ctx[s];
        w.n_rows[s] = n_rows[s];
        w.k[s] = random_floats(&r, (int64_t)ctx[s] * c.n_kv_heads * c.head_dim);
        w.v[s] = random_floats(&r, (int64_t)ctx[s] * c.n_kv_heads * c.head_dim);
        w.q[s] = random_floats(&r, (int64_t)ctx[s] * c.n_heads * c.head_dim);
    }
    return w;
}

/* Lengths around the borders of blocks, of groups of 16 and of pieces of 256. */
static inline struct world world_mixed(struct qr_attention_case c, uint64_t seed)
{
    static const int32_t border[] = {1, 2, 15, 16, 17, 31, 100, 255, 256, 257, 300, 511, 513, 530};
    struct qr_rng r = {.seed = seed};
    int32_t ctx[WORLD_SEQS_MAX], n_rows[WORLD_SEQS_MAX], n = 2 + (int32_t)qr_rng_below(&r, 5);
    for (int32_t s = 0; s < n; s++) {
        ctx[s] = border[qr_rng_below(&r, QR_COUNT(border))];
        n_rows[s] = qr_rng_below(&r, 2) ? 1 : 1 + (int32_t)qr_rng_below(&r, (uint32_t)(ctx[s] < 70 ? ctx[s] : 70));
    }
    return world_new(c, n, ctx, n_rows, seed + 1);
}

/* A lone row of a short context, one of two pieces, and last, where memory ends, more rows than kernels for lone ones take, with a few positions in a second
 * tile; behind a window, where there is one, so that it hides some. */
static inline struct world world_few(struct qr_attention_case c, int32_t n_many, uint64_t seed)
{
    const int32_t ctx[] = {17, 257 + (c.window > 200 ? c.window - 200 : 0), 70 + c.window}, n_rows[] = {1, 1, n_many};
    return world_new(c, QR_COUNT(ctx), ctx, n_rows, seed);
}

static inline void world_drop(struct world *w)
{
    for (int32_t s = 0; s < w->n_seqs; s++) {
        qr_free(w->k[s]);
        qr_free(w->v[s]);
        qr_free(w->q[s]);
    }
    qr_free(w->sinks);
}

/* Blocks 0 .. n-1 in their order, or shuffled when seed is not 0. */
static inline void permute_blocks(int32_t *block, int32_t n, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    for (int32_t i = 0; i < n; i++)
        block[i] = i;
    for (int32_t i = n - 1; seed && i > 0; i--) {
        int32_t j = (int32_t)qr_rng_below(&r, (uint32_t)i + 1), t = block[i];
        block[i] = block[j];
        block[j] = t;
    }
}

/* One token's key or value of one head to row t of a block. */
static inline void world_put(const struct qr_kv_view *kv, int32_t block, int32_t which, int32_t head, int32_t t, const float *x)
{
    size_t at = qr_kv_offset(kv, block, WORLD_LAYER, which, head) + (size_t)(t * kv->head_dim);
    float inverse;
    if (kv->dtype == QR_E4M3) {
        qr_kv_scales(kv, block, WORLD_LAYER, which, head)[t] = qr_quant_scale(&inverse, qr_quant_max_bits(0, x, kv->head_dim), QR_E4M3_MAX);
        qr_f8_codes((uint8_t *)kv->base + at, x, kv->head_dim, inverse);
        return;
    }
    if (kv->dtype == QR_I8) {
        qr_kv_scales(kv, block, WORLD_LAYER, which, head)[t] = qr_quant_scale(&inverse, qr_quant_max_bits(0, x, kv->head_dim), QR_Q8_LARGEST);
        qr_quant_int8((int8_t *)kv->base + at, x, kv->head_dim, inverse);
        return;
    }
    for (int32_t i = 0; i < kv->head_dim; i++)
        if (kv->dtype == QR_F32)
            ((float *)kv->base)[at + (size_t)i] = x[i];
        else
            ((uint16_t *)kv->base)[at + (size_t)i] = qr_f32_to_bf16(x[i]);
}

/* Rows [first[s], first[s] + count[s]) of positions of each sequence whose count is not 0, in the order of sequences, from a cache in which
 * everything up to ctx is written and the rest is NaN. block_seed 0: contiguous blocks. */
static inline struct step step_new(const struct world *w, int32_t block_tokens, const int32_t *first, const int32_t *count, uint64_t block_seed)
{
    const struct qr_attention_case *c = &w->c;
    int32_t n_tokens = 0, n_blocks = 0, stride = 1, n_seqs = 0;
    for (int32_t s = 0; s < w->n_seqs; s++) {
        int32_t need = (w->ctx[s] + block_tokens - 1) / block_tokens;
        n_tokens += count[s];
        n_blocks += need;
        stride = need > stride ? need : stride;
        n_seqs += count[s] > 0;
    }
    n_blocks += 3; /* some that nobody owns */
    struct step st = {.q_stride = (int64_t)c->n_heads * c->head_dim + 5};
    st.kv = (struct qr_kv_view){.dtype = c->kv, .n_blocks = n_blocks, .n_layers = WORLD_LAYERS, .n_kv_heads = c->n_kv_heads,
                                .block_tokens = block_tokens, .head_dim = c->head_dim};
    st.kv.base = qr_alloc_aligned((size_t)n_blocks * qr_kv_block_bytes(&st.kv), 64);
    memset(st.kv.base, 0xff, (size_t)n_blocks * qr_kv_block_bytes(&st.kv));
    st.ints = qr_alloc((size_t)(2 * n_tokens + n_seqs + 1 + n_seqs + n_seqs * stride + n_blocks), sizeof *st.ints);
    int32_t *pos = st.ints, *slot = pos + n_tokens, *row_start = slot + n_tokens, *ctx = row_start + n_seqs + 1, *table = ctx + n_seqs;
    int32_t *order = table + n_seqs * stride;
    permute_blocks(order, n_blocks, block_seed);
    memset(table, 0xff, (size_t)(n_seqs * stride) * sizeof *table); /* entries behind the context: -1, never to be used */
    st.q = poisoned(n_tokens * st.q_stride);
    int32_t row = 0, at_seq = 0, next_block = 0, hk = c->n_heads * c->head_dim;
    for (int32_t s = 0; s < w->n_seqs; s++) {
        int32_t need = (w->ctx[s] + block_tokens - 1) / block_tokens;
        for (int32_t t = 0; t < w->ctx[s]; t++)
            for (int32_t g = 0; g < c->n_kv_heads; g++)
                for (int32_t which = 0; which < 2; which++)
                    world_put(&st.kv, order[next_block + t / block_tokens], which, g, t % block_tokens,
                              (which ? w->v[s] : w->k[s]) + (t * c->n_kv_heads + g) * c->head_dim);
        if (count[s] > 0) {
            row_start[at_seq] = row;
            ctx[at_seq] = first[s] + count[s];
            for (int32_t b = 0; b < need; b++)
                table[at_seq * stride + b] = order[next_block + b];
            for (int32_t i = 0; i < count[s]; i++, row++) {
                pos[row] = first[s] + i;
                slot[row] = table[at_seq * stride + pos[row] / block_tokens] * block_tokens + pos[row] % block_tokens;
                memcpy(st.q + row * st.q_stride, w->q[s] + (int64_t)pos[row] * hk, (size_t)hk * sizeof(float));
            }
            at_seq++;
        }
        next_block += need;
    }
    row_start[n_seqs] = row;
    st.batch = (struct qr_batch){.n_tokens = n_tokens, .n_seqs = n_seqs, .block_tokens = block_tokens, .table_stride = stride, .pos = pos,
                                 .slot = slot, .row_start = row_start, .ctx_len = ctx, .block_table = table};
    return st;
}

static inline void step_drop(struct step *st)
{
    qr_free_aligned(st->kv.base);
    qr_free(st->ints);
    qr_free(st->q);
}

static inline struct qr_attention_args step_args(const struct world *w, const struct step *st, void *out, void *lse, const void *q)
{
    return (struct qr_attention_args){.out = out, .q = q, .lse = lse, .batch = &st->batch, .kv = &st->kv, .sinks = w->sinks,
                                      .out_stride = st->q_stride, .q_stride = st->q_stride, .layer = WORLD_LAYER, .n_heads = w->c.n_heads,
                                      .window = w->c.window, .scale = (float)(1 / sqrt((double)w->c.head_dim)), .softcap = w->c.softcap};
}

/* Where a table hands rows over as bf16: queries and results like that are those of `out`, rounded. */
static inline void step_check_handed_over(struct qr_backend *be, const struct world *w, const struct step *st, const float *out)
{
    const int64_t n = st->batch.n_tokens, hk = (int64_t)w->c.n_heads * w->c.head_dim;
    struct qr_attention_args a = step_args(w, st, NULL, NULL, st->q);
    if (!qr_takes_row_tiles(be->k, QR_BF16, &st->kv))
        return;
    float *q = qr_alloc_aligned((size_t)(n * st->q_stride) * sizeof *q, 64);
    memcpy(q, st->q, (size_t)(n * st->q_stride) * sizeof *q);
    a.q_bf16 = qr_takes_bf16_queries(be->k, &st->kv);
    for (int64_t i = 0; a.q_bf16 && i < n * hk; i++)
        ((uint16_t *)(void *)(q + i / hk * st->q_stride))[i % hk] = tile_bf16(st->q[i / hk * st->q_stride + i % hk]);
    a.q = q;
    a.out = NULL;
    a.out_tiles = qr_alloc_aligned((size_t)(n * hk) * sizeof *a.out_tiles, 64);
    be->k->attention(be->queue, &a);
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < hk; i++) {
            const float want = out[r * st->q_stride + i];
            const uint16_t got = a.out_tiles[qr_row_tile_at(n, hk, r, i)];
            cr_assert(got == tile_bf16(want) || want != want, "%s: row %d, number %d differs where rows are handed over", be->k->name, (int)r, (int)i);
        }
    qr_free_aligned(a.out_tiles);
    qr_free_aligned(q);
}

/* out [n_tokens][q_stride] and, behind it, lse [n_tokens][H]; owned by the caller. */
static inline float *step_run(struct qr_backend *be, const struct world *w, const struct step *st)
{
    int64_t n_out = st->batch.n_tokens * st->q_stride, n_lse = (int64_t)st->batch.n_tokens * w->c.n_heads;
    float *out = poisoned(n_out + n_lse);
    struct qr_attention_args a = step_args(w, st, out, out + n_out, st->q);
    be->k->attention(be->queue, &a);
    step_check_handed_over(be, w, st, out);
    return out;
}

#endif
