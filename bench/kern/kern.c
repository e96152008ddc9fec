/* kern.c - `quire bench kern`: settings, probes, and the cases of tests/ops_cases.h for products, attention and rows.
 * Other cases are in rest.c, a GPU's in device.c. Operands come from memory, not from caches, unless a case
 * says otherwise. Medians and best values, with the share of the nearer limit; --json writes them, --baseline compares.
 * The caller's thread is worker 0. */
#include "bench/bench.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "bench/kern/case.h"
#include "bench/kern/scene.h"
#include "bench/samples.h"
#include "kernels/backend.h"
#include "tests/ops_cases.h"

#define CALLS_MIN 5
#define MIXES 7919 /* a prime: the blocks of a cache lie somewhere */
#define X_FLOATS ((size_t)512 * 16384) /* the largest activation in the table */

#define EXIT_SLOWER 6

struct options {
    const char *device, *isa, *only, *baseline, *json, *threshold;
    int64_t threads, time_us, memory_bytes;
    bool small;
};

static const struct qr_option table[] = {
    {"device", 0, QR_OPT_STR, offsetof(struct options, device), "cpu", 0, 0, NULL, "NAME",
     "cpu: every level and both numbers of threads; cuda, cuda:N: the kernels of a GPU at its own shapes, forward and backward.", "Kernels", true},
    {"isa", 0, QR_OPT_STR, offsetof(struct options, isa), NULL, 0, 0, NULL, "LEVEL", "Only this instruction-set level (ref, avx2, avx512, amx).",
     "Kernels", false},
    {"threads", 't', QR_OPT_INT, offsetof(struct options, threads), "0", 0, 1024, NULL, "N", "Only this many threads; 0: one, and all processors.",
     "Kernels", true},
    {"only", 0, QR_OPT_STR, offsetof(struct options, only), NULL, 0, 0, NULL, "NAME",
     "Only some: read (the probes), linear, attention, rows (all others), head (a vocabulary's product, and packing), or back (gradients of rows; of a device "
     "also of products, and the optimizer).",
     "Kernels", true},
    {"time", 0, QR_OPT_TIME, offsetof(struct options, time_us), "300ms", 1000, 60e6, NULL, "TIME", "How long to repeat each case.", "Kernels", true},
    {"memory", 0, QR_OPT_BYTES, offsetof(struct options, memory_bytes), "512MiB", 128 << 20, 64e9, NULL, "BYTES",
     "Operands of successive calls are spread over this much memory, so that they come from there and not from a cache.", "Kernels", false},
    {"small", 0, QR_OPT_FLAG, offsetof(struct options, small), "false", 0, 0, NULL, NULL,
     "With --device cuda: shapes cut down to almost nothing, for a device that is emulated. Shows that every row runs, not how fast.", "Kernels", false},
    {"json", 0, QR_OPT_STR, offsetof(struct options, json), NULL, 0, 0, NULL, "FILE",
     "Also write the rows as JSON, to be a later run's baseline; its keys: docs/operations.md.",
     "Comparison", true},
    {"baseline", 0, QR_OPT_STR, offsetof(struct options, baseline), NULL, 0, 0, NULL, "FILE",
     "Compare with the rows of this file (written by --json). Exit status 6 when a kernel is slower by more than the threshold.", "Comparison", true},
    {"threshold", 0, QR_OPT_STR, offsetof(struct options, threshold), "10%", 0, 0, NULL, "PERCENT",
     "How much longer a kernel's best time may be than the baseline's.", "Comparison", false},
};

/* Median seconds of a call, and the least: what the kernel takes when nothing else wants the machine. */
static double measure(struct qr_kern_case *b, double *best)
{
    struct qr_samples s = {0};
    int32_t copy = 0;
    b->call(b, 0);
    int64_t end = qr_clock_us() + b->time_us;
    for (int32_t n = 0; n < CALLS_MIN || qr_clock_us() < end; n++) {
        copy = (copy + 1) % b->n_copies;
        int64_t start = qr_clock_ns();
        b->call(b, copy);
        qr_samples_add(&s, (double)(qr_clock_ns() - start) * 1e-9);
    }
    double median = qr_samples_percentile(&s, 50);
    *best = qr_samples_percentile(&s, 0);
    qr_samples_release(&s);
    return median;
}

double qr_kern_report(struct qr_kern_case *b, const char *name, ...)
{
    QR_ASSERT(b != NULL && b->call != NULL);
    QR_ASSERT(name != NULL && b->n_copies > 0);
    double best, t = measure(b, &best), gb_s = b->bytes / t * 1e-9, gflop_s = b->flop / t * 1e-9;
    double of_read = b->read_gb_s > 0 ? gb_s / b->read_gb_s : 0;
    double of_unit = b->gflop_s[b->unit] > 0 ? gflop_s / b->gflop_s[b->unit] : 0;
    struct qr_kern_row row = {.n_threads = b->be->n_threads, .probe = b->probe, .median_us = t * 1e6,
                              .best_us = best * 1e6, .gb_s = gb_s, .gflop_s = gflop_s,
                              .share = b->probe ? 0 : fmax(of_read, of_unit)};
    snprintf(row.isa, sizeof row.isa, "%s", b->be->k->name);
    va_list args;
    va_start(args, name);
    vsnprintf(row.what, sizeof row.what, name, args);
    va_end(args);
    printf("%-6s %2d  %-58s %9.1f us (best %9.1f) %6.1f GB/s", row.isa, row.n_threads, row.what, row.median_us,
           row.best_us, gb_s);
    if (row.share > 0)
        printf(" %5.0f %% of %-8s", 100 * row.share, of_read > of_unit ? "read" : "multiply");
    else
        printf("%20s", "");
    if (b->flop > 0)
        printf(" %7.1f GFLOP/s (best %.1f)", gflop_s, b->flop / best * 1e-9);
    printf("\n");
    fflush(stdout);
    qr_kern_rows_add(b->rows, &row);
    return b->probe && b->flop > 0 ? gflop_s : gb_s;
}

struct reading {
    const void *memory;
    size_t n_bytes;
};

static void call_read(struct qr_kern_case *b, int32_t copy)
{
    (void)copy;
    const struct reading *r = b->args;
    qr_probe_read(b->be->queue, r->memory, r->n_bytes);
}

static void call_multiply(struct qr_kern_case *b, int32_t copy)
{
    (void)copy;
    qr_probe_multiply(b->be->queue, b->be->n_threads, b->be->k->name, b->unit);
}

/* What adding up all of the memory reaches, and what loops of nothing but products: the limits that the kernels stand against. */
static void run_probes(struct qr_kern_case *b, const void *memory)
{
    static const char *const units[] = {"f32", "bf16", "int8"};
    struct reading r = {memory, (size_t)b->memory_bytes};
    b->probe = true;
    b->n_copies = 1;
    b->call = call_read;
    b->args = &r;
    b->bytes = (double)b->memory_bytes;
    b->read_gb_s = qr_kern_report(b, "read of memory (probe)");
    b->call = call_multiply;
    b->bytes = 0;
    for (int u = 0; u < QR_PROBE_UNITS; u++) {
        b->unit = (enum qr_probe_unit)u;
        b->flop = qr_probe_multiply(b->be->queue, b->be->n_threads, b->be->k->name, b->unit);
        const char *name = qr_probe_name(b->be->k->name, b->unit);
        b->gflop_s[u] = b->flop > 0 ? qr_kern_report(b, "products for %s: %s (probe)", units[u], name) : 0;
    }
    b->probe = false;
    b->flop = 0;
}

struct linear_run {
    struct qr_linear_args a;
    struct qr_weight w;
    char *packed;
    size_t w_bytes;
};

static void call_linear(struct qr_kern_case *b, int32_t copy)
{
    struct linear_run r = *(const struct linear_run *)b->args;
    r.w.packed = r.packed + (size_t)copy * r.w_bytes;
    r.a.w = &r.w;
    b->be->k->linear(b->be->queue, &r.a);
}

static void bench_linear(struct qr_kern_case *b, const struct qr_linear_case *c, char *memory, float *x, float *out)
{
    struct linear_run r = {.packed = memory, .w = {.packed_dtype = c->w}};
    r.w_bytes = qr_align_up(b->be->k->linear_packed_bytes(c->w, c->n_out, c->n_in), 64);
    if (r.w_bytes == 0)
        return; /* a type that only devices have */
    r.a = (struct qr_linear_args){.out = out, .x = x, .out_stride = c->n_out, .x_stride = c->n_in, .n_rows = c->n_rows, .n_in = c->n_in, .n_out = c->n_out};
    b->call = call_linear;
    b->args = &r;
    b->n_copies = (int32_t)((size_t)b->memory_bytes / r.w_bytes);
    b->n_copies = b->n_copies > 0 ? b->n_copies : 1;
    b->bytes = (double)r.w_bytes;
    b->flop = 2.0 * c->n_rows * c->n_in * c->n_out;
    b->unit = qr_probe_unit_of(c->w);
    qr_kern_report(b, "linear %d x %d -> %d, %s", c->n_rows, c->n_in, c->n_out, qr_dtype_name(c->w));
}

struct attention_run {
    struct qr_attention_args a;
    struct qr_kern_scene scene;
    struct qr_kv_view kv;
};

static void call_attention(struct qr_kern_case *b, int32_t copy)
{
    struct attention_run r = *(const struct attention_run *)b->args;
    r.a.batch = &r.scene.device;
    r.a.kv = &r.kv;
    r.a.layer = copy;
    b->be->k->attention(b->be->queue, &r.a);
}

/* Scales as rows of numbers around 1 have them: scores stay moderate, and their exponentials out of the slow range of denormal numbers. */
static void fill_scales(const struct qr_kv_view *kv)
{
    for (int64_t i = 0; i < (int64_t)kv->n_blocks * kv->n_layers * 2 * kv->n_kv_heads; i++) {
        float *scale = qr_kv_scales(kv, 0, 0, 0, 0) + i * (int64_t)(qr_kv_plane_elements(kv) / sizeof *scale);
        for (int32_t t = 0; t < kv->block_tokens; t++)
            scale[t] = 1.0f / 127;
    }
}

/* Queries [n][hk] as a model hands them over at this level: as bf16 in the first half of each row's place, or as they are. */
static float *queries_of(const float *x, int64_t n, int64_t hk, bool bf16)
{
    float *q = qr_alloc_aligned((size_t)(n * hk) * sizeof *q, 64);
    for (int64_t i = 0; i < n * hk; i++)
        if (bf16)
            ((uint16_t *)(q + i / hk * hk))[i % hk] = qr_f32_to_bf16(x[i]);
        else
            q[i] = x[i];
    return q;
}

static void bench_attention(struct qr_kern_case *b, const struct qr_attention_case *c, char *memory, float *x, float *out)
{
    struct attention_run r = {.kv = {.base = memory, .dtype = c->kv, .n_layers = 1, .n_kv_heads = c->n_kv_heads, .block_tokens = c->block_tokens,
                                     .head_dim = c->head_dim}};
    const int32_t stride = (c->ctx + c->block_tokens - 1) / c->block_tokens, hk = c->n_heads * c->head_dim;
    int32_t *ints = qr_alloc(qr_kern_scene_bytes(c->n_seqs, c->n_rows, c->ctx, c->block_tokens), 1);
    r.kv.n_blocks = stride * c->n_seqs;
    qr_kern_scene_make(&r.scene, b->be, ints, c->n_seqs, c->n_rows, c->ctx, c->block_tokens,
                       r.kv.n_blocks % MIXES != 0 ? MIXES : 1);
    size_t layer_bytes = (size_t)r.kv.n_blocks * qr_kv_block_bytes(&r.kv);
    r.kv.n_layers = (int32_t)((size_t)b->memory_bytes / layer_bytes);
    r.kv.n_layers = r.kv.n_layers > 0 ? r.kv.n_layers : 1;
    if (c->kv == QR_I8)
        fill_scales(&r.kv);
    const bool bf16 = qr_takes_bf16_queries(b->be->k, &r.kv), tiles = qr_takes_row_tiles(b->be->k, QR_BF16, &r.kv);
    float *q = queries_of(x, (int64_t)c->n_seqs * c->n_rows, hk, bf16);
    r.a = (struct qr_attention_args){.out = out, .out_tiles = tiles ? (uint16_t *)out : NULL, .q = q, .out_stride = hk, .q_stride = hk, .n_heads = c->n_heads,
                                     .window = c->window, .scale = (float)(1 / sqrt((double)c->head_dim)), .softcap = c->softcap, .q_bf16 = bf16};
    b->call = call_attention;
    b->args = &r;
    b->n_copies = r.kv.n_layers;
    b->bytes = (double)layer_bytes;
    b->flop = 4.0 * hk * c->n_seqs * c->n_rows * (c->ctx - (c->n_rows - 1) / 2.0);
    b->unit = c->kv == QR_F32 ? QR_PROBE_F32 : QR_PROBE_BF16; /* an int8 cache is multiplied as bf16 */
    qr_kern_report(b, "attention %d seqs x %d rows, ctx %d, %d/%d heads of %d, %s", c->n_seqs, c->n_rows, c->ctx,
                   c->n_heads, c->n_kv_heads, c->head_dim, qr_dtype_name(c->kv));
    qr_free_aligned(q);
    qr_kern_scene_release(&r.scene);
    qr_free(ints);
}

static void call_norm(struct qr_kern_case *b, int32_t copy)
{
    (void)copy;
    b->be->k->rms_norm(b->be->queue, b->args);
}

static void call_glu(struct qr_kern_case *b, int32_t copy)
{
    (void)copy;
    b->be->k->glu(b->be->queue, b->args);
}

static void bench_rows(struct qr_kern_case *b, const struct qr_rows_case *c, float *x, float *out)
{
    const struct qr_norm_args norm = {.out = out, .x = x, .w = x, .out_stride = c->n_cols, .x_stride = c->n_cols,
                                      .n_rows = c->n_rows, .n_cols = c->n_cols, .eps = 1e-5f};
    b->call = call_norm;
    b->args = &norm;
    b->n_copies = 1;
    b->bytes = 8.0 * c->n_rows * c->n_cols;
    b->flop = 4.0 * c->n_rows * c->n_cols;
    b->unit = QR_PROBE_F32;
    qr_kern_report(b, "rms_norm %d x %d", c->n_rows, c->n_cols);
    const struct qr_glu_args glu = {.out = out, .gate_up = x, .out_stride = c->n_cols, .gate_up_stride = 2 * c->n_cols,
                                    .n_rows = c->n_rows, .n_cols = c->n_cols};
    b->call = call_glu;
    b->args = &glu;
    b->bytes = 12.0 * c->n_rows * c->n_cols;
    b->flop = 0;
    qr_kern_report(b, "glu %d x %d", c->n_rows, c->n_cols);
}

/* All cases at one level with one number of threads. */
static void bench_level(const struct options *o, const char *isa, int32_t n_threads, char *memory, float *x, float *out,
                        struct qr_kern_rows *rows)
{
    struct qr_err err = {0};
    struct qr_backend_options bo = {.isa = isa, .n_threads = n_threads};
    struct qr_kern_case b = {.rows = rows, .time_us = o->time_us, .memory_bytes = o->memory_bytes};
    if (qr_backend_open(&b.be, &bo, &err) != 0) {
        fprintf(stderr, "quire bench kern: %s\n", err.msg);
        return;
    }
    qr_probe_fill(b.be, memory, (size_t)o->memory_bytes); /* gradients have left other numbers there */
    run_probes(&b, memory);
    for (int i = 0; i < QR_COUNT(qr_linear_cases) && qr_kern_wanted(o->only, "linear"); i++)
        if (qr_linear_cases[i].use & QR_CASE_SPEED)
            bench_linear(&b, &qr_linear_cases[i], memory, x, out);
    for (int i = 0; i < QR_COUNT(qr_attention_cases) && qr_kern_wanted(o->only, "attention"); i++)
        if (qr_attention_cases[i].use & QR_CASE_SPEED)
            bench_attention(&b, &qr_attention_cases[i], memory, x, out);
    for (int i = 0; i < QR_COUNT(qr_rows_cases) && qr_kern_wanted(o->only, "rows"); i++)
        if (qr_rows_cases[i].use & QR_CASE_SPEED)
            bench_rows(&b, &qr_rows_cases[i], x, out);
    if (qr_kern_wanted(o->only, "rows"))
        qr_kern_rest(&b, memory, x, out);
    if (qr_kern_wanted(o->only, "head"))
        qr_kern_head(&b, memory, x, out);
    if (qr_kern_wanted(o->only, "back"))
        qr_kern_back(&b, memory);
    qr_backend_close(b.be);
}

/* The level that is named, or NULL for every one above ref. */
static const char *named_level(const struct options *o)
{
    return o->isa && strcmp(o->isa, "auto") != 0 ? o->isa : NULL;
}

/* Whether this processor has a level to time. */
static int check_levels(const struct options *o, struct qr_err *err)
{
    const char *names[8];
    const struct qr_backend_options named = {.isa = named_level(o), .n_threads = 1};
    struct qr_backend *be;
    if (!named.isa && qr_cpu_levels(names) == 1)
        return qr_err_set(err, QR_E_UNSUPPORTED, "this processor (or its supervisor) has no instruction set but \"ref\", which is timed only when it is named; "
                          "use --isa ref, which takes some minutes, and --only for a part of it");
    const int rc = qr_backend_open(&be, &named, err);
    if (rc == 0)
        qr_backend_close(be);
    return rc;
}

static void bench_all(const struct options *o, struct qr_kern_rows *rows)
{
    const char *names[8];
    int32_t n_levels = qr_cpu_levels(names), all = qr_cpu_count();
    const size_t n_floats = X_FLOATS;
    char *memory = qr_alloc_aligned((size_t)o->memory_bytes, 64);
    float *x = qr_alloc_aligned(n_floats * sizeof *x, 64), *out = qr_alloc_aligned(n_floats * sizeof *out, 64);
    struct qr_rng rng = {.seed = 8};
    for (size_t i = 0; i < n_floats; i++)
        x[i] = (float)(qr_rng_next_unit(&rng) - 0.5);
    snprintf(rows->cpu, sizeof rows->cpu, "%s", qr_cpu_describe());
    rows->n_cpus = all;
    printf("%s, %d processors; medians over %lld ms; %% of the nearer limit\n", qr_cpu_describe(), (int)all, (long long)(o->time_us / 1000));
    for (int32_t l = 0; l < n_levels; l++) {
        if (named_level(o) ? strcmp(named_level(o), names[l]) != 0 : strcmp(names[l], "ref") == 0)
            continue;
        if (o->threads == 0 && all > 1)
            bench_level(o, names[l], 1, memory, x, out, rows);
        bench_level(o, names[l], o->threads ? (int32_t)o->threads : all, memory, x, out, rows);
    }
    qr_free_aligned(memory);
    qr_free_aligned(x);
    qr_free_aligned(out);
}

static int write_json(const char *path, const struct qr_kern_rows *rows, struct qr_err *err)
{
    struct qr_buf text = {0};
    qr_kern_rows_put_json(&text, rows);
    const int rc = qr_file_put(path, text.data, text.len, err);
    qr_buf_release(&text);
    return rc ? qr_err_prefix(err, "--json: ") : 0;
}

/* --only names a part of what will run. */
static int check_only(const struct options *o, struct qr_err *err)
{
    static const char *const parts[] = {"linear", "attention", "rows", "read", "back", "head"};
    const bool cpu = strcmp(o->device, "cpu") == 0;
    const int n = cpu ? QR_COUNT(parts) : 5;
    char list[80] = "";
    for (int i = 0; i < n; i++) {
        if (qr_kern_wanted(o->only, parts[i]))
            return 0;
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i == 0 ? "" : i + 1 < n ? ", " : " or ", parts[i]);
    }
    return qr_err_set(err, QR_E_USAGE, "--only: '%.60s' is no part of what is measured%s; use %s", o->only,
                      cpu ? "" : " of a device", list);
}

/* Measures, writes, compares. The baseline is read before anything is measured: it may be the file that --json writes. */
static int run(struct qr_command_run *r, struct qr_err *err)
{
    const struct options *o = r->options;
    struct qr_kern_rows rows = {0}, before = {0};
    struct qr_buf text = {0};
    double threshold = 0;
    if (check_only(o, err) != 0)
        return QR_E_USAGE;
    int rc = qr_kern_threshold_parse(&threshold, o->threshold != NULL ? o->threshold : "10%", err);
    if (rc == 0 && o->baseline != NULL)
        rc = qr_kern_rows_read(&before, o->baseline, err);
    if (rc == 0 && strcmp(o->device, "cpu") != 0)
        rc = qr_kern_device(&rows, o->device, o->only, o->time_us, o->small, err);
    else if (rc == 0 && (rc = check_levels(o, err)) == 0)
        bench_all(o, &rows);
    if (rc == 0 && o->json != NULL)
        rc = write_json(o->json, &rows, err);
    if (rc == 0 && o->baseline != NULL) {
        struct qr_kern_verdict v = qr_kern_compare(&text, &rows, &before, threshold);
        fwrite(text.data, 1, text.len, stdout);
        r->status = v.n_slower > 0 ? EXIT_SLOWER : 0;
        if (v.n_common == 0)
            rc = qr_err_set(err, QR_E_NOT_FOUND, "%.200s has none of the kernels that were measured: other levels, threads or shapes", o->baseline);
    }
    qr_buf_release(&text);
    qr_kern_rows_release(&rows);
    qr_kern_rows_release(&before);
    return rc;
}

const struct qr_command qr_bench_kern_command = {
    .name = "bench kern", .purpose = "time the kernels against the machine's limits",
    .usage = "quire bench kern [flags]",
    .examples = "quire bench kern --only linear\n"
                "quire bench kern --json today.json --baseline before.json",
    .args = "", .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct options), .run = run,
};
