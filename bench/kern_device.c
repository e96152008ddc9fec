#include "bench/kern_device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/kern_scene.h"
#include "bench/probe.h"
#include "bench/samples.h"
#include "bench/ways.h"

#define BLOCK_TOKENS 16
#define ZEROS 4096
#define ROWS 8192              /* of kernels without a product */
#define BATCHES 7              /* of calls, waited for together; the median counts */
#define MEMORY_BYTES ((size_t)4 << 30)
#define COLD_BYTES ((size_t)256 << 20) /* operands of successive calls are spread over so much, where they are read once: more than a cache of the device */

/* The device, and memory handed out from its beginning for every case anew. */
struct bench {
    struct qr_backend *be;
    struct qr_kern_rows *rows;
    int64_t time_us;
    double bytes_s, ops_s; /* the probes */
    char *memory;
    int32_t *zeros;        /* [ZEROS], the device's */
    size_t n_bytes, used;
};

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

/* One row: `call` does `arg`, reading and writing so many bytes. */
static void measure(struct bench *b, const char *what, void (*call)(void *arg), void *arg, double bytes, double flop)
{
    struct qr_samples s = {0};
    qr_probe_device_s(b->be, call, arg, 1); /* plans are made, code is loaded */
    const double once = qr_probe_device_s(b->be, call, arg, 2), wanted = (double)b->time_us * 1e-6 / BATCHES / once;
    const int32_t n = wanted < 2 ? 2 : wanted > 2000 ? 2000 : (int32_t)wanted;
    for (int i = 0; i < BATCHES; i++)
        qr_samples_add(&s, qr_probe_device_s(b->be, call, arg, n));
    const double t = qr_samples_percentile(&s, 50), best = qr_samples_percentile(&s, 0), gb_s = bytes / t * 1e-9, gflop_s = flop / t * 1e-9;
    const double of_memory = gb_s * 1e9 / b->bytes_s, of_unit = b->ops_s > 0 ? gflop_s * 1e9 / b->ops_s : 0;
    printf("%-58s %10.1f us (best %10.1f) %7.0f GB/s %5.0f %% of %-8s %8.1f TFLOP/s\n", what, t * 1e6, best * 1e6, gb_s,
           100 * (of_memory > of_unit ? of_memory : of_unit), of_memory > of_unit ? "memory" : "multiply", gflop_s * 1e-3);
    fflush(stdout);
    struct qr_kern_row row = {.n_threads = 1, .median_us = t * 1e6, .best_us = best * 1e6, .gb_s = gb_s, .gflop_s = gflop_s};
    snprintf(row.isa, sizeof row.isa, "%s", b->be->k->name);
    snprintf(row.what, sizeof row.what, "%s", what);
    qr_kern_rows_add(b->rows, &row);
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

static void bench_linear(struct bench *b, enum qr_dtype type)
{
    static const struct {
        int32_t n_in, n_out;
    } shapes[] = {{4096, 6144}, {4096, 4096}, {4096, 28672}, {14336, 4096}, {4096, 128256}, {2048, 16384}}; /* Llama-3.1-8B; gate and up of Llama-3.2-1B */
    static const int32_t rows[] = {1, 16, 64, 256, 4096};
    for (int i = 0; i < QR_COUNT(shapes); i++)
        for (int r = 0; r < QR_COUNT(rows); r++) {
            const int32_t n = rows[r], n_in = shapes[i].n_in, n_out = shapes[i].n_out;
            struct linear l = {.be = b->be, .w = {.packed_dtype = type, .t = qr_tensor_2d(NULL, type, n_out, n_in)}};
            char what[80];
            if (n > 256 && n_out > 100000)
                continue;
            b->used = 0;
            l.w_bytes = qr_align_up(b->be->k->linear_packed_bytes(type, n_out, n_in), 256);
            l.n_copies = (int32_t)(COLD_BYTES / l.w_bytes + 1);
            l.packed = take(b, (size_t)l.n_copies * l.w_bytes);
            l.a = (struct qr_linear_args){.out = floats(b, (int64_t)n * n_out), .x = floats(b, (int64_t)n * n_in), .w = &l.w, .out_stride = n_out,
                                          .x_stride = n_in, .n_rows = n, .n_in = n_in, .n_out = n_out};
            snprintf(what, sizeof what, "linear %d x %d -> %d, %s", n, n_in, n_out, qr_dtype_name(type));
            measure(b, what, call_linear, &l, (double)l.w_bytes + 4.0 * n * (n_in + n_out), 2.0 * n * n_in * n_out);
        }
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
    const int32_t n = n_seqs * n_rows;
    const double pairs = (double)n * (ctx - (n_rows - 1) / 2.0);
    char what[96];
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
    snprintf(what, sizeof what, "attention%s %d seqs x %d rows, ctx %d, %d/%d x %d%s%s", backward ? " back" : "", n_seqs, n_rows, ctx, h, g, k,
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
CALL(b, glu, qr_glu_back_args)
CALL(b, linear_dx, qr_linear_dx_args)
CALL(b, linear_dw, qr_linear_dw_args)
CALL(b, adamw, qr_adamw_args)
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
    enum { D = 4096, F = 14336, H = 32, K = 128 };
    const double row = 4.0 * ROWS;
    RUN(k, rms_norm, "residual add and rms_norm 8192 x 4096", 4 * row * D, 0, .out = floats(b, ROWS * D), .x = floats(b, ROWS * D),
        .delta = floats(b, ROWS * D), .w = floats(b, D), .out_stride = D, .x_stride = D, .delta_stride = D, .n_rows = ROWS, .n_cols = D, .eps = 1e-5f);
    RUN(k, residual_add, "residual_add 8192 x 4096", 3 * row * D, 0, .x = floats(b, ROWS * D), .delta = floats(b, ROWS * D), .x_stride = D, .delta_stride = D,
        .n_rows = ROWS, .n_cols = D);
    RUN(k, glu, "glu 8192 x 14336", 3 * row * F, 0, .out = floats(b, (int64_t)ROWS * F), .gate_up = floats(b, 2 * (int64_t)ROWS * F), .out_stride = F,
        .gate_up_stride = 2 * F, .n_rows = ROWS, .n_cols = F);
    RUN(k, rope, "rope 8192 x 32 heads of 128", 2 * row * H * K + row * K, 0, .x = floats(b, ROWS * H * K), .cos_sin = floats(b, ROWS * K), .stride = H * K,
        .n_rows = ROWS, .n_heads = H, .head_dim = K, .n_rot = K);
}

static void bench_backward(struct bench *b)
{
    enum { D = 2048, F = 8192, N = 4096, V = 32768 };
    const double row = 4.0 * ROWS;
    const struct qr_weight w = {.t = qr_tensor_2d(b->memory + ((size_t)2 << 30), QR_BF16, F, D), .packed_dtype = QR_BF16};
    RUN(b, rms_norm, "rms_norm back 8192 x 2048", 5 * row * D, 0, .dx = floats(b, ROWS * D), .dw = floats(b, D), .dy = floats(b, ROWS * D),
        .x = floats(b, ROWS * D), .w = floats(b, D), .dx_stride = D, .dy_stride = D, .x_stride = D, .n_rows = ROWS, .n_cols = D, .eps = 1e-5f);
    RUN(b, glu, "glu back 8192 x 8192", 7 * row * F, 0, .dgate_up = floats(b, 2 * (int64_t)ROWS * F), .dout = floats(b, (int64_t)ROWS * F),
        .gate_up = floats(b, 2 * (int64_t)ROWS * F), .dgate_up_stride = 2 * F, .dout_stride = F, .gate_up_stride = 2 * F, .n_rows = ROWS, .n_cols = F);
    RUN(b, linear_dx, "linear_dx 4096 x 8192 -> 2048, bf16", 2.0 * D * F + 4.0 * N * (2.0 * D + F), 2.0 * N * D * F, .dx = floats(b, (int64_t)N * D),
        .dy = floats(b, (int64_t)N * F), .w = &w, .dx_stride = D, .dy_stride = F, .n_rows = N, .n_in = D, .n_out = F);
    RUN(b, linear_dw, "linear_dw 4096 x 8192, 2048, bf16", 8.0 * D * F + 4.0 * N * (D + F), 2.0 * N * D * F, .dw = floats(b, (int64_t)D * F),
        .dy = floats(b, (int64_t)N * F), .x = floats(b, (int64_t)N * D), .dy_stride = F, .x_stride = D, .n_rows = N, .n_in = D, .n_out = F, .product = QR_BF16);
    RUN(b, cross_entropy, "cross_entropy 4096 x 32768", 12.0 * N * V, 0, .logits = floats(b, (int64_t)N * V), .loss = take(b, N * sizeof(double)),
        .target = b->zeros, .stride = V, .n_rows = N, .n_cols = V, .scale = 1);
    RUN(b, adamw, "adamw 64 Mi parameters", 34.0 * (1 << 26), 0, .w = floats(b, 1 << 26), .m = floats(b, 1 << 26), .v = floats(b, 1 << 26),
        .g = floats(b, 1 << 26), .half = take(b, (size_t)2 << 26), .n = 1 << 26, .step = 1, .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1,
        .gscale = 1, .seed = 1);
    one_attention(b, 1, 4096, 4096, 32, 8, 128, QR_BF16, b->be->b->attention != NULL);
}

static bool wanted(const char *only, const char *what)
{
    return !only || strcmp(only, what) == 0;
}

static void run(struct bench *b, const char *only)
{
    const struct qr_kernels *k = b->be->k;
    qr_probe_device_fill(b->be, b->memory, b->n_bytes);
    b->bytes_s = qr_probe_device_bytes_s(b->be, b->memory, (size_t)1 << 30);
    b->ops_s = k->linear ? qr_probe_device_ops_s(b->be, b->memory, b->n_bytes) : 0;
    printf("%s; medians over %lld ms; probes: %.0f GB/s copying, %.1f TFLOP/s in its largest product\n", b->be->title, (long long)(b->time_us / 1000),
           b->bytes_s * 1e-9, b->ops_s * 1e-12);
    if (wanted(only, "linear") && k->linear)
        bench_linear(b, QR_BF16), bench_linear(b, QR_F8);
    if (wanted(only, "attention") && k->attention)
        bench_attention(b);
    if (wanted(only, "rows"))
        bench_rows(b);
    if (wanted(only, "backward"))
        bench_backward(b);
}

/* Who multiplies, and what the same bits in any batch cost. */
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

int qr_bench_kern_device(struct qr_kern_rows *rows, const char *device, const char *only, int64_t time_us, struct qr_err *err)
{
    QR_ASSERT(rows != NULL && device != NULL);
    QR_ASSERT(time_us > 0 && err != NULL);
    struct bench b = {.rows = rows, .time_us = time_us, .n_bytes = MEMORY_BYTES};
    const struct qr_backend_options bo = {.device = device, .n_threads = 1, .step_rows_max = ROWS};
    int rc = qr_backend_open(&b.be, &bo, err);
    if (rc)
        return rc;
    if (b.be->mem->host)
        rc = qr_err_set(err, QR_E_USAGE, "--device %.40s is the processor here; leave it out", device);
    else if (b.be->mem->available() < (int64_t)MEMORY_BYTES + (1 << 20))
        rc = qr_err_set(err, QR_E_NO_ROOM, "%zu MiB of the device's memory are needed, %lld are free", MEMORY_BYTES >> 20,
                        (long long)(b.be->mem->available() >> 20));
    if (rc == 0) {
        snprintf(rows->cpu, sizeof rows->cpu, "%s", b.be->title);
        rows->n_cpus = 1;
        b.memory = b.be->mem->alloc(MEMORY_BYTES);
        b.zeros = b.be->mem->alloc(ZEROS * sizeof *b.zeros);
        run(&b, only);
        print_plans(b.be);
        b.be->mem->free(b.zeros);
        b.be->mem->free(b.memory);
    }
    qr_backend_close(b.be);
    return rc;
}
