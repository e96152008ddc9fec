#include "bench/kern_fused.h"

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

/* The parts of a layer, in order; attention lies between the second and the third. */
enum part { PART_QKV, PART_HEADS, PART_OUT, PART_GATED, PART_DOWN, PART_COUNT };
static const char *const part_names[] = {"norm + q, k, v", "heads to cache", "out + residual", "norm + gated unit", "down + residual", "layer"};

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

static void plan(struct layer *l, float *x)
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
    l->h = x;
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

static void fused(struct layer *l, enum part part)
{
    const struct shape *s = l->s;
    struct qr_weight w;
    struct qr_linear_args a;
    const struct qr_qkv_args heads = {.x = l->qkv, .q_norm = s->qk_norm ? l->norm_w : NULL, .k_norm = s->qk_norm ? l->norm_w : NULL,
                                      .cos_sin = l->cos_sin, .kv = &l->kv, .slot = l->slot, .stride = l->n_qkv, .n_rows = l->n_rows,
                                      .n_heads = s->n_heads, .n_rot = s->dim, .eps = EPS};
    if (part == PART_HEADS) {
        l->k->qkv(l->q, &heads);
        return;
    }
    if (part == PART_QKV)
        a = product(l, &w, part, l->qkv, l->n_qkv, l->h, s->d, 0, l->n_qkv);
    else if (part == PART_GATED)
        a = product(l, &w, part, l->gated, s->f, l->h, s->d, 0, 2 * s->f);
    else if (part == PART_OUT)
        a = product(l, &w, part, l->h, s->d, l->mixed, l->n_q, 0, s->d);
    else
        a = product(l, &w, part, l->h, s->d, l->gated, s->f, 0, s->d);
    a.norm_w = part == PART_QKV || part == PART_GATED ? l->norm_w : NULL;
    a.glu = part == PART_GATED;
    a.add = !a.norm_w;
    l->k->linear(l->q, &a);
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
static void apart(struct layer *l, enum part part)
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
static void pass(struct layer *l, void (*run)(struct layer *l, enum part part), struct qr_samples s[PART_COUNT + 1])
{
    double all = 0;
    memcpy(l->h, l->fresh, (size_t)(l->n_rows * l->s->d) * sizeof *l->h);
    for (int p = 0; p < PART_COUNT; p++) {
        int64_t start = qr_clock_ns();
        run(l, (enum part)p);
        double us = (double)(qr_clock_ns() - start) * 1e-3;
        qr_samples_add(&s[p], us);
        all += us;
    }
    qr_samples_add(&s[PART_COUNT], all);
}

static void report(const struct layer *l, int32_t n_threads, struct qr_samples s[2][PART_COUNT + 1], struct qr_kern_rows *rows)
{
    for (int p = 0; p <= PART_COUNT; p++) {
        double us[2] = {qr_samples_percentile(&s[0][p], 50), qr_samples_percentile(&s[1][p], 50)};
        for (int way = 0; way < 2; way++) {
            struct qr_kern_row row = {.n_threads = n_threads, .median_us = us[way], .best_us = qr_samples_percentile(&s[way][p], 0)};
            row.gb_s = p == PART_COUNT ? (double)l->bytes / us[way] * 1e-3 : 0;
            snprintf(row.isa, sizeof row.isa, "%s", l->k->name);
            snprintf(row.what, sizeof row.what, "%s %s, %d rows, %s, %s", way ? "apart" : "fused", l->s->name, (int)l->n_rows, qr_dtype_name(l->type),
                     part_names[p]);
            qr_kern_rows_add(rows, &row);
        }
        printf("%-6s %2d  fused %-12s %2d rows %-5s %-18s %9.1f us  apart %9.1f us  %5.2fx\n", l->k->name, (int)n_threads, l->s->name,
               (int)l->n_rows, qr_dtype_name(l->type), part_names[p], us[0], us[1], us[1] / us[0]);
        qr_samples_release(&s[0][p]);
        qr_samples_release(&s[1][p]);
    }
    fflush(stdout);
}

void qr_bench_fused(struct qr_backend *be, int64_t time_us, char *memory, size_t memory_bytes, float *x, struct qr_kern_rows *rows)
{
    static const enum qr_dtype types[] = {QR_BF16, QR_Q8, QR_Q4};
    static const int32_t n_rows[] = {1, 8, 32};
    QR_ASSERT(be != NULL && memory != NULL && x != NULL);
    QR_ASSERT(time_us > 0 && rows != NULL);
    for (int i = 0; i < QR_COUNT(shapes) * QR_COUNT(types) * QR_COUNT(n_rows); i++) {
        struct layer l = {.k = be->k, .q = be->queue, .s = &shapes[i / 9], .type = types[i / 3 % 3], .n_rows = n_rows[i % 3]};
        struct qr_samples s[2][PART_COUNT + 1] = {0};
        plan(&l, x);
        QR_ASSERT(l.bytes <= memory_bytes);
        const int64_t n_copies = (int64_t)(memory_bytes / l.bytes);
        const int64_t end = qr_clock_us() + 2 * time_us;
        for (int64_t n = 0; n < ROUNDS_MIN || qr_clock_us() < end; n++) {
            l.w = memory + (size_t)(n % n_copies) * l.bytes;
            pass(&l, n % 2 ? apart : fused, s[n % 2]);
            l.w = memory + (size_t)((n + n_copies / 2) % n_copies) * l.bytes;
            pass(&l, n % 2 ? fused : apart, s[1 - n % 2]);
        }
        report(&l, be->n_threads, s, rows);
        qr_free_aligned(l.kv.base);
        qr_free(l.slot);
    }
}
