/* tune.c - `quire bench tune`: measures a model's shapes with the kernels' own choices and with others, prints what is
 * faster, and keeps it for later starts on this kind of processor (model/tune.h, kernels/tune.h). Main thread. */
#include "bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/files/source.h"
#include "model/tune.h"

struct tune_options {
    const char *model, *isa, *cpus, *rows;
    int32_t dtype, quantize, kv_cache;
    int64_t threads, chunk;
    bool save, json;
};

static const struct qr_option table[] = {
    {.name = "model", .brief = true, .letter = 'm', .type = QR_OPT_STR, .offset = offsetof(struct tune_options, model), .arg = "DIR",
     .help = "Model directory."},
    {.name = "dtype", .type = QR_OPT_ENUM, .offset = offsetof(struct tune_options, dtype), .builtin = "auto", .choices = "auto|f32|bf16",
     .arg = "TYPE", .help = "Compute type of unquantized weights."},
    {.name = "quantize", .brief = true, .type = QR_OPT_ENUM,
     .offset = offsetof(struct tune_options, quantize), .builtin = "none", .choices = QR_QUANTIZE_CHOICES,
     .arg = "TYPE", .help = "Round the matrices to integers while loading."},
    {.name = "kv-cache-dtype", .type = QR_OPT_ENUM, .offset = offsetof(struct tune_options, kv_cache), .builtin = "auto",
     .choices = "auto|f32|bf16|int8", .arg = "TYPE", .help = "Type of cached keys and values."},
    {.name = "isa", .type = QR_OPT_STR, .offset = offsetof(struct tune_options, isa), .arg = "LEVEL",
     .help = "Instruction-set level; the best one otherwise."},
    {.name = "threads", .brief = true, .letter = 't', .type = QR_OPT_INT, .offset = offsetof(struct tune_options, threads), .builtin = "0",
     .min = 0, .max = 1024,
     .arg = "N", .help = "Worker threads; 0 means one per usable core. Tables belong to a number of threads."},
    {.name = "cpus", .type = QR_OPT_STR, .offset = offsetof(struct tune_options, cpus), .arg = "LIST", .help = "Processors for them."},
    {.name = "rows", .brief = true, .type = QR_OPT_STR, .offset = offsetof(struct tune_options, rows), .arg = "LIST",
     .help = "Rows of a step, such as 1,32,512, to measure what stands for them; all kinds of steps otherwise."},
    {.name = "chunk", .type = QR_OPT_INT, .offset = offsetof(struct tune_options, chunk), .builtin = "512", .min = 1, .max = 65536, .arg = "N",
     .help = "Rows of the largest step."},
    {.name = "save", .type = QR_OPT_FLAG, .offset = offsetof(struct tune_options, save), .builtin = "true",
     .help = "Keep what was found in ${XDG_CACHE_HOME:-~/.cache}/quire."},
    {.name = "json", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct tune_options, json), .builtin = "false",
     .help = "One JSON object per shape."}};

struct report {
    bool json;
    int32_t n, n_faster;
};

static void print_one(void *user, const struct qr_model_tuned *r)
{
    struct report *all = user;
    static const char *const sizes[QR_TUNE_SIZES] = {"2^19", "2^21", "2^23", "more"};
    char shape[64], words[32] = "";
    const char *type = qr_dtype_name((enum qr_dtype)r->kind.type);
    if (r->kind.op == QR_TUNE_ATTENTION)
        snprintf(shape, sizeof shape, "attention %s", type);
    else
        snprintf(shape, sizeof shape, "linear %s to %s weights", type, sizes[r->kind.size]);
    if (r->items)
        snprintf(words, sizeof words, "items_per_thread=%d", (int)r->items);
    all->n++;
    all->n_faster += r->items > 0;
    if (all->json)
        printf("{\"shape\":\"%s\",\"rows\":%d,\"own_us\":%.2f,\"best_us\":%.2f,\"ratio\":%.3f,\"tunables\":\"%s\"}\n", shape, (int)r->n_rows, r->own_s * 1e6,
               r->best_s * 1e6, r->own_s / r->best_s, words);
    else
        printf("%-30s %5d %10.1f %10.1f %6.2fx  %s\n", shape, (int)r->n_rows, r->own_s * 1e6, r->best_s * 1e6, r->own_s / r->best_s,
               words[0] ? words : "-");
    fflush(stdout);
}

/* "1,32,512" as a set of buckets; 0 for NULL. */
static int read_rows(uint32_t *buckets, const char *text, struct qr_err *err)
{
    *buckets = 0;
    for (const char *at = text; at && *at;) {
        char *end;
        long v = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || v < 1 || v > 1 << 20)
            return qr_err_set(err, QR_E_USAGE, "--rows wants numbers of at least 1 like 1,32,512, given '%s'", text);
        *buckets |= 1u << qr_tune_bucket((int32_t)v);
        at = *end ? end + 1 : end;
    }
    return 0;
}

static int save(const struct qr_backend *be, bool quiet, struct qr_err *err)
{
    char dir[4096], path[4200];
    if (!qr_tune_dir(dir, sizeof dir))
        return qr_err_set(err, QR_E_IO, "neither XDG_CACHE_HOME nor HOME names a directory to keep the table in; see --no-save");
    int rc = qr_tune_save(be->tune, dir, err);
    qr_tune_path(path, sizeof path, dir, be->tune);
    if (rc == 0 && !quiet)
        printf("kept in %s\n", path);
    return rc;
}

static int measure(const struct tune_options *o, struct qr_backend *be, const struct qr_model *m, uint32_t buckets, struct qr_err *err)
{
    struct report all = {.json = o->json};
    const struct qr_model_tune_options mo = {.rows_max = (int32_t)o->chunk, .buckets = buckets, .each = print_one, .user = &all};
    const int64_t began = qr_clock_ns();
    if (!o->json)
        printf("%s, %s, %d threads, us of a step\n%-30s %5s %10s %10s %7s  %s\n", o->model, be->k->name, (int)be->n_threads, "shape", "rows", "own", "best",
               "ratio", "tunables");
    qr_model_tune(m, be, &mo);
    if (!o->json)
        printf("%d of %d shapes are faster by %.0f %% or more; %.1f s\n", (int)all.n_faster, (int)all.n, (QR_TUNE_GAIN - 1) * 100,
               (double)(qr_clock_ns() - began) * 1e-9);
    return o->save && all.n > 0 ? save(be, o->json, err) : 0;
}

static int run(struct qr_command_run *r, struct qr_err *err)
{
    const struct tune_options *o = r->options;
    const struct qr_backend_options bo = {.device = "cpu", .isa = o->isa, .cpus = o->cpus, .n_threads = (int32_t)o->threads, .pin = true,
                                          .tune = QR_TUNE_CACHED, .step_rows_max = (int32_t)o->chunk};
    const struct qr_model_options mo = {.compute = (enum qr_compute)o->dtype, .quantize = (enum qr_quantize)o->quantize,
                                        .kv_cache = (enum qr_kv_cache)o->kv_cache};
    struct qr_backend *be = NULL;
    struct qr_model *m = NULL;
    uint32_t buckets;
    if (!o->model)
        return qr_err_set(err, QR_E_USAGE, "no model named: add --model DIR (quire bench make-model makes one)");
    int rc = read_rows(&buckets, o->rows, err);
    rc = rc ? rc : qr_source_find(o->model, err);
    if (rc == 0)
        rc = qr_backend_open(&be, &bo, err);
    if (rc == 0)
        rc = qr_model_open(&m, o->model, be, &mo, err);
    if (rc == 0)
        rc = measure(o, be, m, buckets, err);
    qr_model_close(m);
    qr_backend_close(be);
    return rc;
}

const struct qr_command qr_bench_tune_command = {
    .name = "bench tune", .purpose = "measure how a model's work is cut best here, and keep it",
    .usage = "quire bench tune MODEL [flags]",
    .examples = "quire bench tune models/quire-tiny\n"
                "quire bench tune qwen --quantize int8 --rows 1,32,512",
    .args = "model", .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct tune_options), .run = run,
};
