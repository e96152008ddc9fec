/* fused.c - a layer's kernels that do several things at once, beside the same things in launches of their own. Three
 * forms are timed in turn: as the model calls them, member by member, and each operation apart. Every case begins with
 * the same numbers. The forms give the same bits (tests/kernels/test_fused.c); here only time counts. The caller's
 * thread is worker 0. */
#include "bench/kern/fused.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "bench/samples.h"

#define ROUNDS_MIN 3
#define BLOCK_TOKENS 16
#define EPS 1e-5f

struct shape {
    const char *name;
    int32_t d, f, n_heads, n_kv, dim;
    bool qk_norm;
};

static const struct shape shapes[] = {
    {"smollm2-135m", 576, 1536, 9, 3, 64, false},
    {"qwen3-0.6b", 1024, 3072, 16, 8, 128, true},
    {"llama-3.2-1b", 2048, 8192, 32, 8, 64, false},
};

/* The parts of a layer, in order; attention lies between the second and the third. Then its two chains, which are the first two parts and the other
 * three, and all of it. */
enum part { PART_QKV, PART_HEADS, PART_OUT, PART_GATED, PART_DOWN, PART_COUNT, CHAIN_ATTEND = PART_COUNT, CHAIN_FEED, LAYER, TIMED };
static const char *const part_names[] = {"norm + q, k, v", "heads to cache", "out + residual", "norm + gated unit", "down + residual",
                                         "chain of the first 2", "chain of the last 3", "layer"};

/* Parts in chains as a model has them, one after the other, or each op in launches of its own. */
enum way { CHAINED, FUSED, APART, WAYS };
static const char *const way_names[] = {"chained", "fused", "apart"};

/* One layer: its shape, its weights, and room for what is computed. */
struct layer {
    const struct qr_kernels *k;
    struct qr_queue *q;
    const struct shape *s;
    enum qr_dtype type;
    int32_t n_rows, n_qkv, n_q, n_kv;
    char *w;                        /* of the copy at hand */
    size_t at[PART_COUNT], bytes;   /* where each matrix begins, and all of them */
    float *h, *norm_w, *normed, *qkv, *mixed, *gate_up, *gated, *delta, *cos_sin, *fresh;
    struct qr_kv_view kv;
    int32_t *slot; /* owned */
};

static size_t matrix_bytes(const struct layer *l, int64_t n_out, int64_t n_in)
{
    return qr_align_up(l->k->linear_packed_bytes(l->type, n_out, n_in), 64);
}

/* Numbers of a row in all that plan() lays out. */
static int32_t floats_of_row(const struct shape *s)
{
    return 4 * s->d + 3 * s->f + 2 * s->n_heads * s->dim + 2 * s->n_kv * s->dim + s->dim;
}

/* Where everything lies, h first. */
static void plan(struct layer *l)
{
    const struct shape *s = l->s;
    const int64_t n = l->n_rows;
    l->n_q = s->n_heads * s->dim;
    l->n_kv = s->n_kv * s->dim;
    l->n_qkv = l->n_q + 2 * l->n_kv;
    l->at[PART_OUT] = matrix_bytes(l, l->n_qkv, s->d);
    l->at[PART_GATED] = l->at[PART_OUT] + matrix_bytes(l, s->d, l->n_q);
    l->at[PART_DOWN] = l->at[PART_GATED] + matrix_bytes(l, 2 * s->f, s->d);
    l->bytes = l->at[PART_DOWN] + matrix_bytes(l, s->d, s->f);
    l->norm_w = l->h + n * s->d;
    l->cos_sin = l->norm_w + s->f;
    l->normed = l->cos_sin + n * s->dim;
    l->qkv = l->normed + n * s->d;
    l->mixed = l->qkv + n * l->n_qkv;
    l->gate_up = l->mixed + n * l->n_q;
    l->gated = l->gate_up + n * 2 * s->f;
    l->delta = l->gated + n * s->f;
    l->fresh = l->delta + n * s->d;
    l->kv = (struct qr_kv_view){.dtype = QR_BF16, .n_blocks = l->n_rows, .n_layers = 1, .n_kv_heads = s->n_kv, .block_tokens = BLOCK_TOKENS,
                                .head_dim = s->dim};
    l->kv.base = qr_alloc_aligned((size_t)n * qr_kv_block_bytes(&l->kv), 64);
    l->slot = qr_alloc((size_t)n, sizeof *l->slot);
    for (int32_t i = 0; i < l->n_rows; i++)
        l->slot[i] = i * BLOCK_TOKENS;
}

/* out = x w^T for outputs [first, first + n_out) of a matrix; a panel's outputs lie together, so a run of them is a matrix of its own. */
static struct qr_linear_args product(const struct layer *l, struct qr_weight *w, enum part part, float *out, int32_t out_stride, const float *x,
                                     int32_t n_in, int32_t first, int32_t n_out)
{
    *w = (struct qr_weight){.packed_dtype = l->type, .packed = l->w + l->at[part] + l->k->linear_packed_bytes(l->type, first, n_in)};
    return (struct qr_linear_args){.out = out + first, .x = x, .w = w, .out_stride = out_stride, .x_stride = n_in, .n_rows = l->n_rows, .n_in = n_in,
                                   .n_out = n_out, .eps = EPS};
}

static struct qr_qkv_args heads_of(const struct layer *l)
{
    const struct shape *s = l->s;
    return (struct qr_qkv_args){.x = l->qkv, .q_norm = s->qk_norm ? l->norm_w : NULL, .k_norm = s->qk_norm ? l->norm_w : NULL, .cos_sin = l->cos_sin,
                                .kv = &l->kv, .slot = l->slot, .stride = l->n_qkv, .n_rows = l->n_rows, .n_heads = s->n_heads, .n_rot = s->dim, .eps = EPS};
}

/* The product of a part, with what comes before and after it. */
static struct qr_linear_args fused_product(const struct layer *l, struct qr_weight *w, enum part part)
{
    const struct shape *s = l->s;
    struct qr_linear_args a;
    if (part == PART_QKV)
        a = product(l, w, part, l->qkv, l->n_qkv, l->h, s->d, 0, l->n_qkv);
    else if (part == PART_GATED)
        a = product(l, w, part, l->gated, s->f, l->h, s->d, 0, 2 * s->f);
    else if (part == PART_OUT)
        a = product(l, w, part, l->h, s->d, l->mixed, l->n_q, 0, s->d);
    else
        a = product(l, w, part, l->h, s->d, l->gated, s->f, 0, s->d);
    a.norm_w = part == PART_QKV || part == PART_GATED ? l->norm_w : NULL;
    a.glu = part == PART_GATED;
    a.add = !a.norm_w;
    return a;
}

static void run_fused(struct layer *l, enum part part)
{
    struct qr_weight w;
    if (part == PART_HEADS) {
        const struct qr_qkv_args heads = heads_of(l);
        l->k->qkv(l->q, &heads);
        return;
    }
    const struct qr_linear_args a = fused_product(l, &w, part);
    l->k->linear(l->q, &a);
}

/* Everything begins as numbers of moderate size, and norms leave such that products of theirs are around 1: what a case leaves behind, or weights of any
 * size, would make exponentials of units denormal, which vectors are a hundred times slower with. Uses l->w. */
static void set_numbers(struct layer *l)
{
    const struct shape *s = l->s;
    double squares = 0;
    for (int64_t i = 0; i < (l->n_rows + 1) * (int64_t)floats_of_row(s); i++)
        l->h[i] = (float)((uint32_t)i * 2654435761u >> 8) * 0x1p-24f - 0.5f;
    for (int64_t i = 0; i < (int64_t)l->n_rows * s->dim; i++)
        l->cos_sin[i] = 0.70710678f;
    for (int way = 0; way < 2; way++) {
        for (int32_t i = 0; i < s->f; i++)
            l->norm_w[i] = way == 0 ? 1 : (float)(1 / sqrt(squares / l->n_qkv));
        run_fused(l, PART_QKV);
        for (int32_t i = 0; way == 0 && i < l->n_qkv; i++)
            squares += (double)l->qkv[i] * (double)l->qkv[i];
    }
}

static void run_chain(struct layer *l, enum part chain)
{
    const bool attend = chain == CHAIN_ATTEND;
    const struct qr_qkv_args heads = heads_of(l);
    struct qr_weight w[3];
    struct qr_linear_args a[3] = {fused_product(l, &w[0], attend ? PART_QKV : PART_OUT)};
    for (int i = 1; i < 3 && !attend; i++)
        a[i] = fused_product(l, &w[i], (enum part)(PART_OUT + i));
    a[1].passing = !attend;
    const struct qr_chain_args c = {.linear = a, .heads = attend ? &heads : NULL, .n = attend ? 1 : 3};
    l->k->chain(l->q, &c);
}

static void norm_apart(const struct layer *l)
{
    const struct qr_norm_args a = {.out = l->normed, .x = l->h, .w = l->norm_w, .out_stride = l->s->d, .x_stride = l->s->d, .n_rows = l->n_rows,
                                   .n_cols = l->s->d, .eps = EPS};
    l->k->rms_norm(l->q, &a);
}

/* Outputs [first, first + n) of a matrix, in a product of their own. */
static void part_apart(const struct layer *l, enum part part, float *out, int32_t out_stride, const float *x, int32_t n_in, int32_t first, int32_t n)
{
    struct qr_weight w;
    const struct qr_linear_args a = product(l, &w, part, out, out_stride, x, n_in, first, n);
    l->k->linear(l->q, &a);
}

static void heads_apart(const struct layer *l)
{
    const struct shape *s = l->s;
    float *k = l->qkv + l->n_q, *v = k + l->n_kv;
    struct qr_head_norm_args norm = {.x = l->qkv, .w = l->norm_w, .stride = l->n_qkv, .n_rows = l->n_rows, .n_heads = s->n_heads, .head_dim = s->dim,
                                     .eps = EPS};
    struct qr_rope_args rope = {.x = l->qkv, .cos_sin = l->cos_sin, .stride = l->n_qkv, .n_rows = l->n_rows, .n_heads = s->n_heads,
                                .head_dim = s->dim, .n_rot = s->dim};
    const struct qr_kv_write_args write = {.kv = &l->kv, .k = k, .v = v, .slot = l->slot, .k_stride = l->n_qkv, .v_stride = l->n_qkv,
                                           .n_rows = l->n_rows};
    if (s->qk_norm)
        l->k->head_norm(l->q, &norm);
    l->k->rope(l->q, &rope);
    norm.x = rope.x = k;
    norm.n_heads = rope.n_heads = s->n_kv;
    if (s->qk_norm)
        l->k->head_norm(l->q, &norm);
    l->k->rope(l->q, &rope);
    l->k->kv_write(l->q, &write);
}

static void add_apart(const struct layer *l, enum part part, const float *x, int32_t n_in)
{
    const struct qr_add_args a = {.x = l->h, .delta = l->delta, .x_stride = l->s->d, .delta_stride = l->s->d, .n_rows = l->n_rows, .n_cols = l->s->d};
    part_apart(l, part, l->delta, l->s->d, x, n_in, 0, l->s->d);
    l->k->residual_add(l->q, &a);
}

/* The same with one launch for each thing, and q, k, v, gate and up in products of their own. */
static void run_apart(struct layer *l, enum part part)
{
    const struct shape *s = l->s;
    const struct qr_glu_args glu = {.out = l->gated, .gate_up = l->gate_up, .out_stride = s->f, .gate_up_stride = 2 * s->f, .n_rows = l->n_rows,
                                    .n_cols = s->f};
    if (part == PART_QKV || part == PART_GATED)
        norm_apart(l);
    if (part == PART_QKV) {
        part_apart(l, part, l->qkv, l->n_qkv, l->normed, s->d, 0, l->n_q);
        part_apart(l, part, l->qkv, l->n_qkv, l->normed, s->d, l->n_q, l->n_kv);
        part_apart(l, part, l->qkv, l->n_qkv, l->normed, s->d, l->n_q + l->n_kv, l->n_kv);
    } else if (part == PART_HEADS) {
        heads_apart(l);
    } else if (part == PART_OUT) {
        add_apart(l, part, l->mixed, l->n_q);
    } else if (part == PART_GATED) {
        part_apart(l, part, l->gate_up, 2 * s->f, l->normed, s->d, 0, s->f);
        part_apart(l, part, l->gate_up, 2 * s->f, l->normed, s->d, s->f, s->f);
        l->k->glu(l->q, &glu);
    } else {
        add_apart(l, part, l->gated, s->f);
    }
}

/* One pass over a layer; adds the microseconds of each part, and of all. Its numbers begin anew, or they would grow without bound. */
static void pass(struct layer *l, enum way way, struct qr_samples s[TIMED])
{
    static void (*const run[WAYS])(struct layer *l, enum part part) = {run_chain, run_fused, run_apart};
    const int first = way == CHAINED ? CHAIN_ATTEND : 0, end = way == CHAINED ? LAYER : PART_COUNT;
    double us[TIMED] = {0};
    memcpy(l->h, l->fresh, (size_t)(l->n_rows * l->s->d) * sizeof *l->h);
    for (int p = first; p < end; p++) {
        const int64_t start = qr_clock_ns();
        run[way](l, (enum part)p);
        us[p] = (double)(qr_clock_ns() - start) * 1e-3;
        us[p < PART_OUT ? CHAIN_ATTEND : CHAIN_FEED] += p < PART_COUNT ? us[p] : 0;
    }
    us[LAYER] = us[CHAIN_ATTEND] + us[CHAIN_FEED];
    for (int p = first; p < TIMED; p++)
        qr_samples_add(&s[p], us[p]);
}

/* A line for each part: parts in one go against the same apart; chains, and the layer, against their parts one after the other as well. */
static void report(const struct layer *l, int32_t n_threads, struct qr_samples s[WAYS][TIMED], struct qr_kern_rows *rows)
{
    for (int p = 0; p < TIMED; p++) {
        const enum way first = p < PART_COUNT ? FUSED : CHAINED;
        double us[WAYS] = {0};
        printf("%-6s %2d  %-12s %3d rows %-5s %-20s", l->k->name, (int)n_threads, l->s->name, (int)l->n_rows, qr_dtype_name(l->type), part_names[p]);
        for (int way = first; way < WAYS; way++) {
            us[way] = qr_samples_percentile(&s[way][p], 50);
            struct qr_kern_row row = {.n_threads = n_threads, .median_us = us[way], .best_us = qr_samples_percentile(&s[way][p], 0)};
            row.gb_s = p == LAYER ? (double)l->bytes / us[way] * 1e-3 : 0;
            snprintf(row.isa, sizeof row.isa, "%s", l->k->name);
            snprintf(row.what, sizeof row.what, "%s %s, %d rows, %s, %s", way_names[way], l->s->name, (int)l->n_rows, qr_dtype_name(l->type), part_names[p]);
            qr_kern_rows_add(rows, &row);
            printf("  %s %9.1f us", way_names[way], us[way]);
            if (way > (int)first)
                printf(" %5.2fx", us[way] / us[first]);
        }
        printf("\n");
    }
    fflush(stdout);
    for (int i = 0; i < WAYS * TIMED; i++)
        qr_samples_release(&s[i / TIMED][i % TIMED]);
}

static void bench_layer(struct layer *l, int32_t n_threads, int64_t time_us, char *memory, size_t memory_bytes, struct qr_kern_rows *rows)
{
    struct qr_samples s[WAYS][TIMED] = {0};
    plan(l);
    QR_ASSERT(l->bytes <= memory_bytes);
    l->w = memory;
    set_numbers(l);
    const int64_t n_copies = (int64_t)(memory_bytes / l->bytes), end = qr_clock_us() + WAYS * time_us;
    for (int64_t n = 0; n < ROUNDS_MIN || qr_clock_us() < end; n++)
        for (int i = 0; i < WAYS; i++) {
            const int way = (int)(n + i) % WAYS;
            l->w = memory + (size_t)((n + way * n_copies / WAYS) % n_copies) * l->bytes;
            pass(l, (enum way)way, s[way]);
        }
    report(l, n_threads, s, rows);
    qr_free_aligned(l->kv.base);
    qr_free(l->slot);
}

void qr_bench_fused(struct qr_backend *be, int64_t time_us, char *memory, size_t memory_bytes, float *x, size_t n_x, struct qr_kern_rows *rows)
{
    static const enum qr_dtype types[] = {QR_BF16, QR_Q8, QR_Q4};
    static const int32_t n_rows[] = {1, 8, 32, 64, 512};
    QR_ASSERT(be != NULL && memory != NULL && x != NULL);
    QR_ASSERT(time_us > 0 && rows != NULL);
    for (int i = 0; i < QR_COUNT(shapes) * QR_COUNT(types) * QR_COUNT(n_rows); i++) {
        struct layer l = {.k = be->k, .q = be->queue, .s = &shapes[i / (QR_COUNT(types) * QR_COUNT(n_rows))],
                          .type = types[i / QR_COUNT(n_rows) % QR_COUNT(types)], .n_rows = n_rows[i % QR_COUNT(n_rows)], .h = x};
        const int32_t fit = (int32_t)(n_x / (size_t)floats_of_row(l.s)) - 1; /* the weights of norms take less than a row */
        l.n_rows = l.n_rows < fit ? l.n_rows : fit / 32 * 32;
        bench_layer(&l, be->n_threads, time_us, memory, memory_bytes, rows);
    }
}
