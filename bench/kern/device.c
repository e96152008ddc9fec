/* device.c - `quire bench kern --device cuda`: a device's kernels at the shapes of Llama-3.1-8B and of training, each launched many times in a row and
 * waited for together, beside what copying its memory and its own largest product reach in the same run. One thread, which opens the device. */
#include "bench/kern/case.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/kern/scene.h"
#include "bench/kern/probe.h"
#include "bench/samples.h"
#include "bench/ways.h"

#define BLOCK_TOKENS 16
#define ZEROS 4096
#define ROWS_MAX 8192          /* of a launch */
#define BATCHES 7              /* of calls, waited for together; the median counts */
#define MEMORY_BYTES ((size_t)4 << 30)
#define SMALL_BYTES ((size_t)64 << 20)
#define COLD_BYTES ((size_t)256 << 20) /* operands of successive calls are spread over so much, where they are read once: more than a cache of the device */

/* The device, and memory handed out from its beginning for every case anew. */
struct bench {
    struct qr_backend *be;
    struct qr_kern_rows *rows;
    int64_t time_us;
    double bytes_s, ops_s; /* the probes */
    char *memory;
    int32_t *zeros, *order; /* [ZEROS], [ROWS_MAX]: the device's. order: 0, 1, 2, .. */
    size_t n_bytes, used;
    bool small;            /* everything is cut down, for a device of tests: whether it runs, not how fast */
    char what[96];         /* of the row at hand */
};

/* A size, or of a small run what is left of it. */
static int32_t size_of(const struct bench *b, int32_t n, int32_t part)
{
    return b->small ? (n / part > 0 ? n / part : 1) : n;
}

__attribute__((format(printf, 2, 3))) static const char *name(struct bench *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(b->what, sizeof b->what, format, args);
    va_end(args);
    return b->what;
}

static void *take(struct bench *b, size_t n_bytes)
{
    void *p = b->memory + b->used;
    b->used += qr_align_up(n_bytes, 256);
    QR_ASSERT(b->used <= b->n_bytes);
    return p;
}

static float *floats(struct bench *b, int64_t n)
{
    return take(b, (size_t)n * sizeof(float));
}

static void add_row(struct bench *b, const char *what, struct qr_kern_row row)
{
    row.n_threads = 1;
    snprintf(row.isa, sizeof row.isa, "%s", b->be->k->name);
    snprintf(row.what, sizeof row.what, "%s", what);
    qr_kern_rows_add(b->rows, &row);
}

/* One row: `call` does `arg`, reading and writing so many bytes. */
static void measure(struct bench *b, const char *what, void (*call)(void *arg), void *arg, double bytes, double flop)
{
    struct qr_samples s = {0};
    qr_probe_device_s(b->be, call, arg, 1); /* plans are made, code is loaded */
    const double once = qr_probe_device_s(b->be, call, arg, 2), wanted = (double)b->time_us * 1e-6 / BATCHES / once;
    const int32_t n = wanted < 2 ? size_of(b, 2, 2) : wanted > 2000 ? 2000 : (int32_t)wanted;
    for (int i = 0; i < size_of(b, BATCHES, BATCHES); i++)
        qr_samples_add(&s, qr_probe_device_s(b->be, call, arg, n));
    const double t = qr_samples_percentile(&s, 50), best = qr_samples_percentile(&s, 0), gb_s = bytes / t * 1e-9, gflop_s = flop / t * 1e-9;
    const double of_memory = gb_s * 1e9 / b->bytes_s, of_unit = b->ops_s > 0 ? gflop_s * 1e9 / b->ops_s : 0;
    const double share = of_memory > of_unit ? of_memory : of_unit;
    printf("%-58s %10.1f us (best %10.1f) %7.0f GB/s %5.0f %% of %-8s %8.1f TFLOP/s\n", what, t * 1e6, best * 1e6, gb_s,
           100 * share, of_memory > of_unit ? "memory" : "multiply", gflop_s * 1e-3);
    fflush(stdout);
    add_row(b, what, (struct qr_kern_row){.median_us = t * 1e6, .best_us = best * 1e6, .gb_s = gb_s, .gflop_s = gflop_s, .share = share});
    qr_samples_release(&s);
}

/* A call of an entry: arguments that stay, and copies of what is read once, taken in turns. */
struct linear {
    struct qr_backend *be;
    struct qr_linear_args a;
    struct qr_weight w;
    char *packed;
    size_t w_bytes;
    int32_t n_copies, copy;
};

static void call_linear(void *arg)
{
    struct linear *l = arg;
    l->w.packed = l->packed + (size_t)l->copy * l->w_bytes;
    l->copy = (l->copy + 1) % l->n_copies;
    l->be->k->linear(l->be->queue, &l->a);
}

/* Types of weights: rounded here, and those that two kinds of GGUF blocks become. */
static const struct {
    enum qr_dtype type;
    const char *note;
} weights[] = {{QR_BF16, ""}, {QR_F8, ""}, {QR_C8_G32, " (w8a16)"}, {QR_C4_G32, " (w4a16)"}, {QR_C4_G128, " (w4a16-g128)"}, {QR_C4_G32_SO, " (Q4_K)"},
               {QR_C6_G16_S, " (Q6_K)"}};

static void one_linear(struct bench *b, int w, int32_t n, int32_t n_in, int32_t n_out)
{
    const enum qr_dtype type = weights[w].type;
    struct linear l = {.be = b->be, .w = {.packed_dtype = type, .t = qr_tensor_2d(NULL, type, n_out, n_in)}};
    b->used = 0;
    l.w_bytes = qr_align_up(b->be->k->linear_packed_bytes(type, n_out, n_in), 256);
    l.n_copies = b->small ? 1 : (int32_t)(COLD_BYTES / l.w_bytes + 1);
    l.packed = take(b, (size_t)l.n_copies * l.w_bytes);
    l.a = (struct qr_linear_args){.out = floats(b, (int64_t)n * n_out), .x = floats(b, (int64_t)n * n_in), .w = &l.w, .out_stride = n_out, .x_stride = n_in,
                                  .n_rows = n, .n_in = n_in, .n_out = n_out};
    measure(b, name(b, "linear %d x %d -> %d, %s%s", n, n_in, n_out, qr_dtype_name(type), weights[w].note), call_linear, &l,
            (double)l.w_bytes + 4.0 * n * (n_in + n_out), 2.0 * n * n_in * n_out);
}

static void bench_linear(struct bench *b, int w)
{
    static const struct {
        int32_t n_in, n_out;
    } shapes[] = {{4096, 6144}, {4096, 4096}, {4096, 28672}, {14336, 4096}, {4096, 128256}, {2048, 16384}}; /* Llama-3.1-8B; gate and up of Llama-3.2-1B */
    static const int32_t rows[] = {1, 16, 64, 256, 4096};
    struct qr_err err;
    if (qr_backend_supports(b->be, weights[w].type, 14336, QR_BF16, 128, BLOCK_TOKENS, &err) != 0) {
        printf("linear, %s: not there: %s\n", qr_dtype_name(weights[w].type), err.msg);
        return;
    }
    for (int i = 0; i < size_of(b, QR_COUNT(shapes), QR_COUNT(shapes)); i++)
        for (int r = 0; r < size_of(b, QR_COUNT(rows), 2); r++)
            if (rows[r] <= 256 || shapes[i].n_out <= 100000)
                one_linear(b, w, rows[r], size_of(b, shapes[i].n_in, 64), size_of(b, shapes[i].n_out, 128));
}

struct scene {
    struct qr_backend *be;
    struct qr_kern_scene batch;
    struct qr_kv_view kv;
    struct qr_attention_args a;
    struct qr_attention_back_args back;
};

static void call_attention(void *arg)
{
    struct scene *s = arg;
    s->be->k->attention(s->be->queue, &s->a);
}

static void call_attention_back(void *arg)
{
    struct scene *s = arg;
    s->be->b->attention(s->be->queue, &s->back);
}

/* heads of queries, of keys and values, their size; with backward: both ways. */
static void one_attention(struct bench *b, int32_t n_seqs, int32_t n_rows, int32_t ctx, int32_t h, int32_t g, int32_t k, enum qr_dtype kv,
                          bool backward)
{
    struct scene s = {.be = b->be};
    n_seqs = size_of(b, n_seqs, 32), n_rows = size_of(b, n_rows, 512), ctx = size_of(b, ctx, 512), h = size_of(b, h, 8), g = size_of(b, g, 8);
    const int32_t n = n_seqs * n_rows;
    const double pairs = (double)n * (ctx - (n_rows - 1) / 2.0);
    b->used = 0;
    int32_t *room = take(b, qr_kern_scene_bytes(n_seqs, n_rows, ctx, BLOCK_TOKENS));
    qr_kern_scene_make(&s.batch, b->be, room, n_seqs, n_rows, ctx, BLOCK_TOKENS, 1);
    s.kv = (struct qr_kv_view){.dtype = kv, .n_blocks = n_seqs * s.batch.host.table_stride, .n_layers = 1, .n_kv_heads = g, .block_tokens = BLOCK_TOKENS,
                               .head_dim = k};
    const size_t kv_bytes = (size_t)s.kv.n_blocks * qr_kv_block_bytes(&s.kv);
    s.kv.base = take(b, kv_bytes);
    float *q = floats(b, (int64_t)n * h * k), *out = floats(b, (int64_t)n * h * k), *lse = floats(b, (int64_t)n * h);
    s.a = (struct qr_attention_args){.out = out, .q = q, .lse = lse, .batch = &s.batch.device, .kv = &s.kv, .out_stride = h * k, .q_stride = h * k,
                                     .n_heads = h, .scale = (float)(1 / sqrt((double)k))};
    const char *what = name(b, "attention%s %d seqs x %d rows, ctx %d, %d/%d x %d%s%s", backward ? " back" : "", n_seqs, n_rows, ctx, h, g, k,
                            kv == QR_BF16 ? "" : ", ", kv == QR_BF16 ? "" : qr_dtype_name(kv));
    if (!backward) {
        measure(b, what, call_attention, &s, (double)kv_bytes + 8.0 * n * h * k, 4.0 * h * k * pairs);
        qr_kern_scene_release(&s.batch);
        return;
    }
    call_attention(&s);
    s.back = (struct qr_attention_back_args){.dq = floats(b, (int64_t)n * h * k), .dk = floats(b, (int64_t)n * g * k), .dv = floats(b, (int64_t)n * g * k),
                                             .dout = floats(b, (int64_t)n * h * k), .out = out, .q = q, .lse = lse, .batch = &s.batch.device, .kv = &s.kv,
                                             .dq_stride = h * k, .dk_stride = g * k, .dv_stride = g * k, .dout_stride = h * k, .out_stride = h * k,
                                             .q_stride = h * k, .n_heads = h, .scale = s.a.scale};
    measure(b, what, call_attention_back, &s, (double)kv_bytes + 4.0 * n * (5.0 * h + 2.0 * g) * k, 10.0 * h * k * pairs);
    qr_kern_scene_release(&s.batch);
}

static void bench_attention(struct bench *b)
{
    one_attention(b, 1, 1, 4096, 32, 8, 128, QR_BF16, false);
    one_attention(b, 64, 1, 4096, 32, 8, 128, QR_BF16, false);
    one_attention(b, 256, 1, 1024, 32, 8, 128, QR_BF16, false);
    one_attention(b, 64, 1, 4096, 32, 8, 64, QR_BF16, false);
    one_attention(b, 64, 1, 4096, 32, 8, 128, QR_I8, false);
    one_attention(b, 64, 1, 4096, 32, 8, 128, QR_E4M3, false);
    one_attention(b, 1, 4096, 4096, 32, 8, 128, QR_I8, false);
    one_attention(b, 1, 4096, 4096, 32, 8, 128, QR_BF16, false);
    one_attention(b, 1, 16384, 16384, 32, 8, 128, QR_BF16, false);
    one_attention(b, 4, 512, 8192, 32, 8, 128, QR_BF16, false);
}

/* ---- rows ---- */

#define CALL(table, entry, type)                                                    \
    struct table##_##entry {                                                        \
        struct qr_backend *be;                                                      \
        struct type a;                                                              \
    };                                                                              \
    static void call_##table##_##entry(void *arg)                                   \
    {                                                                               \
        struct table##_##entry *c = arg;                                            \
        c->be->table->entry(c->be->queue, &c->a);                                   \
    }
CALL(k, rms_norm, qr_norm_args)
CALL(k, glu, qr_glu_args)
CALL(k, residual_add, qr_add_args)
CALL(k, rope, qr_rope_args)
CALL(b, rms_norm, qr_norm_back_args)
CALL(b, head_norm, qr_head_norm_back_args)
CALL(b, rope, qr_rope_args)
CALL(b, glu, qr_glu_back_args)
CALL(b, embed, qr_embed_back_args)
CALL(b, scatter_rows, qr_scatter_args)
CALL(b, linear_dx, qr_linear_dx_args)
CALL(b, linear_dw, qr_linear_dw_args)
CALL(b, adamw, qr_adamw_args)
CALL(b, sum_squares, qr_sum_squares_args)
CALL(b, cross_entropy, qr_cross_entropy_args)
#define RUN(table, entry, what, bytes, flop, ...)                                   \
    do {                                                                            \
        b->used = 0;                                                                \
        struct table##_##entry c = {b->be, {__VA_ARGS__}};                          \
        if (b->be->table->entry)                                                    \
            measure(b, what, call_##table##_##entry, &c, bytes, flop);              \
        else                                                                        \
            printf("%s: not there\n", what);                                        \
    } while (0)

/* Those that work in place do so on their own results, thousands of times: no device here is slower with infinities. */
static void bench_rows(struct bench *b)
{
    const int32_t n = size_of(b, ROWS_MAX, 512), d = size_of(b, 4096, 64), f = size_of(b, 14336, 64), h = size_of(b, 32, 16), k = 128;
    const int64_t nd = (int64_t)n * d, nf = (int64_t)n * f, nhk = (int64_t)n * h * k;
    RUN(k, rms_norm, name(b, "rms_norm %d x %d", n, d), 8.0 * (double)nd, 0, .out = floats(b, nd), .x = floats(b, nd),
        .w = floats(b, d), .out_stride = d, .x_stride = d, .n_rows = n, .n_cols = d, .eps = 1e-5f);
    RUN(k, residual_add, name(b, "residual_add %d x %d", n, d), 12.0 * (double)nd, 0, .x = floats(b, nd), .delta = floats(b, nd), .x_stride = d,
        .delta_stride = d, .n_rows = n, .n_cols = d);
    RUN(k, glu, name(b, "glu %d x %d", n, f), 12.0 * (double)nf, 0, .out = floats(b, nf), .gate_up = floats(b, 2 * nf), .out_stride = f,
        .gate_up_stride = 2 * f, .n_rows = n, .n_cols = f);
    RUN(k, rope, name(b, "rope %d x %d heads of %d", n, h, k), 8.0 * (double)nhk + 4.0 * n * k, 0, .x = floats(b, nhk), .cos_sin = floats(b, (int64_t)n * k),
        .stride = h * k, .n_rows = n, .n_heads = h, .head_dim = k, .n_rot = k);
}

/* Gradients of what treats rows one by one; `fresh` as most of them are computed, where nothing was added before. */
static void bench_back(struct bench *b)
{
    const int32_t n = size_of(b, ROWS_MAX, 512), d = size_of(b, 2048, 32), f = size_of(b, 8192, 64), h = size_of(b, 32, 16), k = 128;
    const int64_t nd = (int64_t)n * d, nf = (int64_t)n * f, nhk = (int64_t)n * h * k;
    const int32_t n_vocab = size_of(b, 32768, 64);
    RUN(b, rms_norm, name(b, "rms_norm back %d x %d", n, d), 16.0 * (double)nd, 0, .dx = floats(b, nd), .dw = floats(b, d), .dy = floats(b, nd),
        .x = floats(b, nd), .w = floats(b, d), .dx_stride = d, .dy_stride = d, .x_stride = d, .n_rows = n, .n_cols = d, .eps = 1e-5f);
    RUN(b, head_norm, name(b, "head_norm back %d x %d heads of %d", n, h, k), 16.0 * (double)nhk, 0, .dx = floats(b, nhk), .dw = floats(b, k),
        .dy = floats(b, nhk), .x = floats(b, nhk), .w = floats(b, k), .dx_stride = h * k, .dy_stride = h * k, .x_stride = h * k, .n_rows = n, .n_heads = h,
        .head_dim = k, .eps = 1e-6f);
    RUN(b, rope, name(b, "rope back %d x %d heads of %d", n, h, k), 8.0 * (double)nhk + 4.0 * n * k, 0, .x = floats(b, nhk),
        .cos_sin = floats(b, (int64_t)n * k), .stride = h * k, .n_rows = n, .n_heads = h, .head_dim = k, .n_rot = k);
    RUN(b, glu, name(b, "glu back %d x %d", n, f), 28.0 * (double)nf, 0, .dgate_up = floats(b, 2 * nf), .dout = floats(b, nf), .gate_up = floats(b, 2 * nf),
        .dgate_up_stride = 2 * f, .dout_stride = f, .gate_up_stride = 2 * f, .n_rows = n, .n_cols = f);
    RUN(b, glu, name(b, "glu back, fresh %d x %d", n, f), 20.0 * (double)nf, 0, .dgate_up = floats(b, 2 * nf), .dout = floats(b, nf),
        .gate_up = floats(b, 2 * nf), .dgate_up_stride = 2 * f, .dout_stride = f, .gate_up_stride = 2 * f, .n_rows = n, .n_cols = f, .fresh = true);
    RUN(b, embed, name(b, "embed back %d x %d", n, d), 12.0 * (double)nd, 0, .dtable = floats(b, (int64_t)n_vocab * d), .dout = floats(b, nd),
        .ids = b->order, .dout_stride = d, .n_rows = n, .n_cols = d, .n_vocab = n_vocab, .scale = 1);
    RUN(b, scatter_rows, name(b, "scatter_rows %d x %d", n, d), 12.0 * (double)nd, 0, .dx = floats(b, nd), .dout = floats(b, nd), .row = b->order,
        .dx_stride = d, .dout_stride = d, .n_rows = n, .n_cols = d);
}

/* Gradients of products and of attention, the loss, the optimizer. */
static void bench_train(struct bench *b)
{
    const int32_t n = size_of(b, 4096, 128), d = size_of(b, 2048, 32), f = size_of(b, 8192, 64), v = size_of(b, 32768, 64), p = size_of(b, 1 << 26, 1 << 14);
    const double df = (double)d * f, nf = (double)n * f, nd = (double)n * d;
    const struct qr_weight w = {.t = qr_tensor_2d(b->memory + b->n_bytes / 2, QR_BF16, f, d), .packed_dtype = QR_BF16};
    RUN(b, linear_dx, name(b, "linear_dx %d x %d -> %d, bf16", n, f, d), 2 * df + 4 * (2 * nd + nf), 2 * n * df, .dx = floats(b, (int64_t)n * d),
        .dy = floats(b, (int64_t)n * f), .w = &w, .dx_stride = d, .dy_stride = f, .n_rows = n, .n_in = d, .n_out = f);
    RUN(b, linear_dw, name(b, "linear_dw %d x %d, %d, bf16", n, f, d), 8 * df + 4 * (nd + nf), 2 * n * df, .dw = floats(b, (int64_t)d * f),
        .dy = floats(b, (int64_t)n * f), .x = floats(b, (int64_t)n * d), .dy_stride = f, .x_stride = d, .n_rows = n, .n_in = d, .n_out = f, .product = QR_BF16);
    RUN(b, linear_dw, name(b, "linear_dw and bias %d x %d, %d, bf16", n, f, d), 8 * df + 4 * (nd + nf), 2 * n * df, .dw = floats(b, (int64_t)d * f),
        .dbias = floats(b, f), .dy = floats(b, (int64_t)n * f), .x = floats(b, (int64_t)n * d), .dy_stride = f, .x_stride = d, .n_rows = n, .n_in = d,
        .n_out = f, .product = QR_BF16);
    RUN(b, cross_entropy, name(b, "cross_entropy %d x %d", n, v), 12.0 * n * v, 0, .logits = floats(b, (int64_t)n * v),
        .loss = take(b, (size_t)n * sizeof(double)), .target = b->zeros, .stride = v, .n_rows = n, .n_cols = v, .scale = 1);
    RUN(b, adamw, name(b, "adamw %d parameters", p), 34.0 * p, 0, .w = floats(b, p), .m = floats(b, p), .v = floats(b, p), .g = floats(b, p),
        .half = take(b, (size_t)p * sizeof(uint16_t)), .n = p, .step = 1, .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .gscale = 1,
        .seed = 1);
    RUN(b, sum_squares, name(b, "sum_squares of %d", p), 4.0 * p, 0, .leaf = take(b, (size_t)qr_sum_leaves(p) * sizeof(double)), .x = floats(b, p), .n = p);
    if (b->be->b->attention)
        one_attention(b, 1, 4096, 4096, 32, 8, 128, QR_BF16, true);
}

static void probe(struct bench *b)
{
    const size_t n = b->small ? SMALL_BYTES / 4 : (size_t)1 << 30;
    qr_probe_fill(b->be, b->memory, b->n_bytes);
    b->bytes_s = qr_probe_device_bytes_s(b->be, b->memory, n);
    b->ops_s = b->be->k->linear && !b->small ? qr_probe_device_ops_s(b->be, b->memory, b->n_bytes) : 0;
    printf("%s; medians over %lld ms; probes: %.0f GB/s copying, %.1f TFLOP/s in its largest product\n", b->be->title, (long long)(b->time_us / 1000),
           b->bytes_s * 1e-9, b->ops_s * 1e-12);
    const double us = (double)n / b->bytes_s * 1e6;
    add_row(b, "copying memory (probe)", (struct qr_kern_row){.probe = true, .median_us = us, .best_us = us, .gb_s = b->bytes_s * 1e-9});
    if (b->ops_s > 0)
        add_row(b, "largest product (probe)", (struct qr_kern_row){.probe = true, .median_us = 1e6, .best_us = 1e6, .gflop_s = b->ops_s * 1e-9});
}

static void run(struct bench *b, const char *only)
{
    const struct qr_kernels *k = b->be->k;
    probe(b);
    for (int w = 0; w < QR_COUNT(weights) && qr_kern_wanted(only, "linear") && k->linear; w++)
        bench_linear(b, w);
    if (qr_kern_wanted(only, "attention") && k->attention)
        bench_attention(b);
    if (qr_kern_wanted(only, "rows"))
        bench_rows(b);
    if (qr_kern_wanted(only, "back")) {
        bench_back(b);
        bench_train(b);
    }
}

/* Which kernels multiply, and what the same bits in any batch cost. */
static void print_plans(const struct qr_backend *be)
{
    const size_t size = (size_t)1 << 17;
    char *text = qr_alloc(size, 1);
    qr_backend_plans(be, text, size);
    if (text[0])
        printf("who multiplies:\n%s", text);
    qr_bench_ways_print(be, false);
    qr_free(text);
}

int qr_kern_device(struct qr_kern_rows *rows, const char *device, const char *only, int64_t time_us, bool small,
                   struct qr_err *err)
{
    QR_ASSERT(rows != NULL && device != NULL);
    QR_ASSERT(time_us > 0 && err != NULL);
    struct bench b = {.rows = rows, .time_us = time_us, .n_bytes = small ? SMALL_BYTES : MEMORY_BYTES, .small = small};
    const struct qr_backend_options bo = {.device = device, .n_threads = 1, .step_rows_max = ROWS_MAX};
    int32_t order[ROWS_MAX];
    int rc = qr_backend_open(&b.be, &bo, err);
    if (rc)
        return rc;
    if (b.be->mem->host)
        rc = qr_err_set(err, QR_E_USAGE, "--device %.40s is the processor here; leave it out", device);
    else if (b.be->mem->available() < (int64_t)b.n_bytes + (1 << 20))
        rc = qr_err_set(err, QR_E_NO_ROOM, "%zu MiB of the device's memory are needed, %lld are free", b.n_bytes >> 20,
                        (long long)(b.be->mem->available() >> 20));
    if (rc == 0) {
        snprintf(rows->cpu, sizeof rows->cpu, "%s", b.be->title);
        rows->n_cpus = 1;
        b.memory = b.be->mem->alloc(b.n_bytes);
        b.zeros = b.be->mem->alloc(ZEROS * sizeof *b.zeros);
        b.order = b.be->mem->alloc(sizeof order);
        for (int32_t i = 0; i < ROWS_MAX; i++)
            order[i] = i;
        b.be->mem->put(b.be->queue, b.order, order, sizeof order);
        run(&b, only);
        print_plans(b.be);
        b.be->mem->free(b.order);
        b.be->mem->free(b.zeros);
        b.be->mem->free(b.memory);
    }
    qr_backend_close(b.be);
    return rc;
}
