/* open.c - `quire bench open`: in turn, files read to fresh memory, and the model opened. The first is the yardstick:
 * packing reads every byte and writes it to fresh memory. Medians and best values of each, as text or JSON. Files are
 * expected in the page cache; nothing here evicts them. Reading uses the kernel pool's workers; the caller is worker
 * 0. */
#include "bench/bench.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/files/map_file.h"
#include "base/files/source.h"
#include "bench/samples.h"
#include "hub/hub.h"
#include "kernels/cpu/pool.h"
#include "loader/stores/tensor_files.h"
#include "model/model.h"

#define PIECE_BYTES ((size_t)512 << 10)

struct open_options {
    const char *model, *isa;
    struct qr_hub_options hub;
    int32_t dtype, quantize;
    int64_t threads, repeats;
    bool json;
};

static const struct qr_option table[] = {
    {.name = "model", .brief = true, .letter = 'm', .type = QR_OPT_STR, .offset = offsetof(struct open_options, model), .arg = "DIR",
     .help = "Model directory, GGUF file, or ORG/NAME[:FILE] of the hub."},
    QR_HUB_ROWS(struct open_options, hub, NULL),
    {.name = "dtype", .type = QR_OPT_ENUM, .offset = offsetof(struct open_options, dtype), .builtin = "auto", .choices = "auto|f32|bf16",
     .arg = "TYPE", .help = "Compute type of unquantized weights."},
    {.name = "quantize", .brief = true, .type = QR_OPT_ENUM,
     .offset = offsetof(struct open_options, quantize), .builtin = "none", .choices = QR_QUANTIZE_CHOICES,
     .arg = "TYPE", .help = "Round the matrices to integers while loading."},
    {.name = "isa", .type = QR_OPT_STR, .offset = offsetof(struct open_options, isa), .arg = "LEVEL", .help = "Instruction-set level."},
    {.name = "threads", .brief = true, .letter = 't', .type = QR_OPT_INT, .offset = offsetof(struct open_options, threads), .builtin = "0",
     .min = 0, .max = 1024,
     .arg = "N", .help = "Worker threads; 0 means one per usable core."},
    {.name = "repeats", .brief = true, .type = QR_OPT_INT, .offset = offsetof(struct open_options, repeats), .builtin = "5", .min = 1, .max = 1000, .arg = "N",
     .help = "Rounds; medians are shown. The first one is left out when there are more."},
    {.name = "json", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct open_options, json), .builtin = "false", .help = "One JSON object."}};

struct files {
    struct qr_map_file *map; /* owned [n] */
    size_t total;
    int32_t n;
};

/* One piece of one file per item. */
struct reading {
    const struct files *f;
    uint8_t *to; /* borrowed: room for all of them */
    atomic_bool lost;
};

static void read_piece(const void *arg, int32_t item, int32_t worker)
{
    struct reading *r = (struct reading *)(uintptr_t)arg;
    size_t at = (size_t)item * PIECE_BYTES, skip = at;
    int32_t i = 0;
    for (; skip >= r->f->map[i].n_bytes; i++)
        skip -= r->f->map[i].n_bytes;
    const size_t left = r->f->map[i].n_bytes - skip; /* a piece ends with its file */
    if (!qr_map_file_read(&r->f->map[i], r->to + at, skip, left < PIECE_BYTES ? left : PIECE_BYTES))
        atomic_store(&r->lost, true);
}

/* 0: a file could not be read whole. */
static double read_s(const struct files *f, struct qr_queue *q)
{
    struct reading r = {.f = f};
    int64_t t = qr_clock_ns();
    r.to = qr_alloc_aligned(f->total, 64);
    qr_queue_run(q, read_piece, &r, (int64_t)(f->total / PIECE_BYTES));
    double s = (double)(qr_clock_ns() - t) * 1e-9;
    qr_free_aligned(r.to);
    return r.lost ? 0 : s;
}

static void close_files(struct files *f)
{
    for (int32_t i = 0; i < f->n; i++)
        qr_map_file_close(&f->map[i]);
    qr_free(f->map);
}

/* Those that opening the model maps: what its index names, all parts of a GGUF file. */
static int open_files(struct files *f, const char *model, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    struct qr_source *source = NULL;
    struct qr_tensor_files *st = NULL;
    int rc = qr_source_open(&source, model, err);
    rc = rc ? rc : qr_tensor_files_open_from(&st, source, NULL, err);
    const int32_t n = rc ? 0 : qr_tensor_files_n_shards(st);
    const char *gguf = rc == 0 && qr_source_gguf(source) ? qr_source_gguf_path(source) : NULL, *slash = gguf ? strrchr(gguf, '/') : NULL;
    f->map = qr_alloc((size_t)n, sizeof *f->map);
    for (int32_t i = 0; rc == 0 && i < n; i++) {
        const char *name = qr_tensor_files_shard_name(st, i);
        if (gguf)
            snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash + 1 - gguf) : 0, gguf, name);
        else
            rc = qr_path_join(path, model, name, err);
        rc = rc ? rc : qr_map_file_open_to_read(&f->map[i], path, SIZE_MAX, err);
        f->n += rc == 0;
        f->total += rc == 0 ? f->map[i].n_bytes : 0;
    }
    qr_tensor_files_close(st);
    qr_source_unref(source);
    if (rc == 0 && f->total < PIECE_BYTES)
        rc = qr_err_set(err, QR_E_NOT_FOUND, "%s: %zu bytes of weights (.safetensors, or a GGUF file), expected at least %zu to measure", model, f->total,
                        PIECE_BYTES);
    return rc;
}

static int open_s(double *s, size_t *memory, const struct open_options *o, struct qr_backend *be, struct qr_err *err)
{
    const struct qr_model_options mo = {.compute = (enum qr_compute)o->dtype, .quantize = (enum qr_quantize)o->quantize};
    struct qr_model *m;
    int64_t t = qr_clock_ns();
    int rc = qr_model_open(&m, o->model, be, &mo, err);
    *s = (double)(qr_clock_ns() - t) * 1e-9;
    if (rc == 0) {
        *memory = (size_t)qr_model_weight_bytes(m);
        qr_model_close(m);
    }
    return rc;
}

static void report(const struct open_options *o, const struct qr_backend *be, const struct files *f, size_t memory,
                   struct qr_samples s[2])
{
    static const char *const name[] = {"read into fresh memory", "model opened"};
    double t[2], best[2]; /* memory that was free for seconds comes slowly from a virtual machine's host: to either of them */
    for (int i = 0; i < 2; i++) {
        t[i] = qr_samples_percentile(&s[i], 50);
        best[i] = qr_samples_percentile(&s[i], 0);
    }
    const double gb = (double)f->total * 1e-9;
    if (o->json) {
        printf("{\"bytes\":%zu,\"memory_bytes\":%zu,\"isa\":\"%s\",\"threads\":%d,\"fresh_s\":%.4f,\"open_s\":%.4f,"
               "\"fresh_best_s\":%.4f,\"open_best_s\":%.4f}\n", f->total, memory, be->k->name, be->n_threads, t[0], t[1],
               best[0], best[1]);
        return;
    }
    printf("%s, %s, %d threads, %.1f MB in %d file%s, %.1f MB in memory\n", o->model, be->k->name, be->n_threads, gb * 1e3,
           f->n, f->n == 1 ? "" : "s", (double)memory * 1e-6);
    for (int i = 0; i < 2; i++)
        printf("%-26s %8.1f ms %8.2f GB/s %6.0f %% of reading, at best %.1f ms\n", name[i], t[i] * 1e3, gb / t[i],
               100 * t[0] / t[i], best[i] * 1e3);
}

static int measure(const struct open_options *o, struct qr_backend *be, const struct files *f, struct qr_err *err)
{
    struct qr_samples s[2] = {0};
    size_t memory = 0;
    int rc = 0;
    for (int64_t i = 0; rc == 0 && i < o->repeats + (o->repeats > 1); i++) {
        double t[2] = {read_s(f, be->queue)};
        rc = open_s(&t[1], &memory, o, be, err);
        if (rc == 0 && t[0] == 0)
            rc = qr_err_set(err, QR_E_IO, "%s: its files could not be read whole", o->model);
        for (int k = 0; rc == 0 && k < 2 && (i > 0 || o->repeats == 1); k++)
            qr_samples_add(&s[k], t[k]);
    }
    if (rc == 0)
        report(o, be, f, memory, s);
    qr_samples_release(&s[0]);
    qr_samples_release(&s[1]);
    return rc;
}

static int run(struct qr_command_run *r, struct qr_err *err)
{
    const struct open_options *o = r->options;
    const struct qr_backend_options bo = {.device = "cpu", .isa = o->isa, .n_threads = (int32_t)o->threads,
                                          .pin = true};
    struct qr_backend *be = NULL;
    struct files f = {0};
    if (!o->model)
        return qr_err_set(err, QR_E_USAGE, "no model named: add --model DIR (quire bench make-model makes one)");
    int rc = qr_source_find(o->model, err);
    rc = rc ? rc : open_files(&f, o->model, err);
    if (rc == 0)
        rc = qr_backend_open(&be, &bo, err);
    if (rc == 0)
        rc = measure(o, be, &f, err);
    qr_backend_close(be);
    close_files(&f);
    return rc;
}

const struct qr_command qr_bench_open_command = {
    .name = "bench open", .purpose = "open a model, against the speed of reading its files",
    .usage = "quire bench open MODEL [flags]",
    .examples = "quire bench open models/quire-tiny\n"
                "quire bench open model.gguf --repeats 3",
    .args = "model", .settle = qr_hub_settle, .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct open_options), .run = run,
};
