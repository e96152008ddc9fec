#include "kernels/backend.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/cpus.h"
#include "base/log.h"
#include "base/mem.h"
#include "kernels/cpu/detect.h"
#include "kernels/cpu/isa/back.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/pool.h"
#include "kernels/null.h"
#include "kernels/ref/ref.h"

/* Scratch of a launch: packed activations of a row chunk, or partial results of attention. 16 KiB a row hold 8,192 inputs in bf16; a
 * launch that needs more works in chunks, so the size decides about speed only. Small steps get by with less. */
#define SHARED_BYTES_MAX ((size_t)16 << 20)
#define SHARED_BYTES_MIN ((size_t)1 << 20)
#define SHARED_BYTES_PER_ROW ((size_t)16 << 10)
#define STEP_ROWS_DEFAULT 2048
#define THREADS_MAX 1024

struct level {
    const char *name;
    bool (*present)(void);
    const struct qr_kernels *k;
    const struct qr_backward *b;
};

static bool always(void)
{
    return true;
}

/* Best last. */
static const struct level level[] = {
    {"ref", always, &qr_ref_f32_kernels, &qr_ref_f32_backward},
    {"avx2", qr_detect_avx2, &qr_avx2_kernels, &qr_avx2_backward},
    {"avx512", qr_detect_avx512, &qr_avx512_kernels, &qr_avx512_backward},
    {"amx", qr_detect_amx, &qr_amx_kernels, &qr_amx_backward},
};

/* For measurements of what is not a kernel; no level of this machine. */
static const struct level null_level = {"null", always, &qr_null_kernels, &qr_ref_f32_backward};

static void *host_alloc(size_t n_bytes)
{
    return qr_alloc_aligned(n_bytes, 64);
}

static const struct qr_mem_ops host_mem = {host_alloc, qr_free_aligned};

static const struct level *best_level(void)
{
    const struct level *best = &level[0];
    for (int i = 1; i < QR_COUNT(level); i++)
        if (level[i].present())
            best = &level[i];
    return best;
}

/* `name` as asked for by `source`; NULL or "" or "auto": the best. */
static int find_level(const struct level **out, const char *name, const char *source, struct qr_err *err)
{
    *out = NULL;
    if (!name || !*name || strcmp(name, "auto") == 0) {
        *out = best_level();
        return 0;
    }
    if (strcmp(name, null_level.name) == 0) {
        *out = &null_level;
        return 0;
    }
    for (int i = 0; i < QR_COUNT(level); i++) {
        if (strcmp(level[i].name, name) != 0)
            continue;
        if (!level[i].present())
            return qr_err_set(err, QR_E_UNSUPPORTED, "%s asks for instruction set \"%s\", but this processor (or its supervisor) does not have it; "
                              "the best here is \"%s\"", source, name, best_level()->name);
        *out = &level[i];
        return 0;
    }
    return qr_err_set(err, QR_E_USAGE, "%s names the unknown instruction set \"%.40s\"; expected auto, ref, avx2, avx512 or amx", source, name);
}

static size_t shared_bytes(int32_t step_rows_max)
{
    size_t n = (size_t)step_rows_max * SHARED_BYTES_PER_ROW;
    if (n < SHARED_BYTES_MIN)
        n = SHARED_BYTES_MIN;
    return n < SHARED_BYTES_MAX ? n : SHARED_BYTES_MAX;
}

/* The workers' processors, their number and whether they are pinned. */
static int choose_cpus(struct qr_cpus *cpus, int32_t *n_threads, bool *pin, const struct qr_backend_options *o, struct qr_err *err)
{
    struct qr_cpus allowed;
    qr_cpus_allowed(&allowed);
    const bool listed = o->cpus && *o->cpus;
    int rc = listed ? qr_cpus_parse(cpus, o->cpus, err) : 0;
    if (rc)
        return qr_err_prefix(err, "cpus: ");
    if (!listed)
        *cpus = allowed;
    for (int32_t i = 0; listed && i < cpus->n; i++)
        if (!qr_cpus_has(&allowed, cpus->cpu[i]))
            return qr_err_set(err, QR_E_USAGE, "cpus: this process may not use processor %d; it may use %d of them, see taskset -p", (int)cpus->cpu[i],
                              (int)allowed.n);
    qr_cpus_examine(cpus, "", !listed);
    *n_threads = o->n_threads ? o->n_threads : listed ? cpus->n : qr_cpus_default_threads(cpus, qr_cpus_quota(""));
    *pin = o->pin && *n_threads <= cpus->n && (listed || *n_threads >= cpus->n_cores);
    return 0;
}

/* What cannot be used is not there: one line says so. */
static void load_tune(struct qr_tune *t)
{
    char dir[4096];
    struct qr_err err;
    if (!qr_tune_dir(dir, sizeof dir))
        return;
    if (qr_tune_load(t, dir, &err) != 0)
        qr_log(QR_LOG_WARN, "kernels", "tuning ignored: %s", err.msg);
    else if (qr_tune_count(t) > 0)
        qr_log(QR_LOG_DEBUG, "kernels", "tuning shapes=%d level=%s threads=%d", (int)qr_tune_count(t), qr_tune_level(t), (int)qr_tune_threads(t));
}

int qr_backend_open(struct qr_backend **out, const struct qr_backend_options *options, struct qr_err *err)
{
    QR_ASSERT(out != NULL && options != NULL);
    QR_ASSERT(err != NULL);
    if (options->device && strcmp(options->device, "auto") != 0 && strcmp(options->device, "cpu") != 0)
        return qr_err_set(err, QR_E_USAGE, "unknown device \"%.40s\"; expected auto or cpu", options->device);
    if (options->n_threads < 0 || options->n_threads > THREADS_MAX)
        return qr_err_set(err, QR_E_USAGE, "%d threads; expected 0 (all processors) to %d", (int)options->n_threads, THREADS_MAX);
    if (options->step_rows_max < 0)
        return qr_err_set(err, QR_E_USAGE, "steps of %d rows; expected 0 (default) or more", (int)options->step_rows_max);
    const struct level *l;
    int rc = options->isa ? find_level(&l, options->isa, "the option isa", err) : find_level(&l, getenv("QUIRE_ISA"), "QUIRE_ISA", err);
    if (rc != 0)
        return rc;
    struct qr_cpus cpus;
    int32_t n_threads = 1;
    bool pin = false;
    rc = choose_cpus(&cpus, &n_threads, &pin, options, err);
    if (rc != 0)
        return rc;
    struct qr_backend *be = qr_alloc(1, sizeof *be);
    be->name = "cpu";
    be->k = l->k;
    be->b = l->b;
    be->mem = &host_mem;
    be->n_threads = n_threads;
    be->queue = qr_queue_new(n_threads, &cpus, pin, shared_bytes(options->step_rows_max ? options->step_rows_max : STEP_ROWS_DEFAULT),
                             QR_WORKER_SCRATCH_BYTES);
    be->tune = qr_tune_new(l->name, n_threads);
    be->queue->tune = be->tune;
    if (options->tune != QR_TUNE_OFF)
        load_tune(be->tune);
    *out = be;
    return 0;
}

size_t qr_backend_scratch_bytes(const struct qr_backend *be)
{
    QR_ASSERT(be != NULL && be->queue != NULL);
    return be->queue->shared_bytes + (size_t)be->n_threads * be->queue->own_bytes;
}

void qr_backend_spread(const struct qr_backend *be, void *p, size_t n_bytes)
{
    QR_ASSERT(be != NULL && be->queue != NULL);
    QR_ASSERT(p != NULL || n_bytes == 0);
    const struct qr_cpus *c = &be->queue->cpus;
    if (c->n_nodes > 1 && n_bytes > 0)
        qr_mem_interleave(p, n_bytes, c->node_id, c->n_nodes);
}

void qr_backend_close(struct qr_backend *be)
{
    if (!be)
        return;
    qr_queue_free(be->queue);
    qr_tune_free(be->tune);
    qr_free(be);
}

void qr_backend_run(struct qr_backend *be, void (*fn)(const void *arg, int32_t item, int32_t worker), const void *arg, int32_t n_items)
{
    QR_ASSERT(be != NULL && fn != NULL);
    QR_ASSERT(n_items >= 0);
    qr_queue_run(be->queue, fn, arg, n_items);
}

int qr_backend_supports(const struct qr_backend *be, enum qr_dtype weights, int64_t inputs_max, enum qr_dtype kv, int32_t head_dim,
                        int32_t block_tokens, struct qr_err *err)
{
    QR_ASSERT(be != NULL && be->k != NULL);
    QR_ASSERT(err != NULL);
    if (!qr_dtype_packs(weights))
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s kernels on the %s compute with f32, bf16 and quantized weights, not %s", be->k->name, be->name,
                          qr_dtype_name(weights));
    if (inputs_max > qr_linear_inputs_max(weights))
        return qr_err_set(err, QR_E_UNSUPPORTED, "a matrix has %lld inputs, %s ones have %d at most%s", (long long)inputs_max, qr_dtype_name(weights),
                          (int)qr_linear_inputs_max(weights), inputs_max <= QR_LINEAR_INPUTS_MAX ? "; load it without --quantize" : "");
    if (kv != QR_F32 && kv != QR_BF16 && kv != QR_I8)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s kernels on the %s keep keys and values as f32, bf16 or int8, not %s", be->k->name, be->name,
                          qr_dtype_name(kv));
    if (head_dim < 8 || head_dim > QR_HEAD_DIM_MAX || head_dim % 8 != 0)
        return qr_err_set(err, QR_E_UNSUPPORTED, "attention heads of %d numbers: expected a multiple of 8 from 8 to %d", (int)head_dim, QR_HEAD_DIM_MAX);
    if (block_tokens < 1 || block_tokens > QR_BLOCK_TOKENS_MAX || (block_tokens & (block_tokens - 1)) != 0)
        return qr_err_set(err, QR_E_UNSUPPORTED, "cache blocks of %d tokens: expected a power of two from 1 to %d", (int)block_tokens, QR_BLOCK_TOKENS_MAX);
    return 0;
}

void qr_cpu_init(void)
{
    qr_detect_amx();
}

const char *qr_cpu_describe(void)
{
    static const char *const words[] = {"cpu: ref (no avx2: slow)", "cpu: avx2", "cpu: avx512", "cpu: amx"};
    QR_ASSERT(QR_COUNT(words) == QR_COUNT(level));
    return words[best_level() - level];
}

int32_t qr_cpu_levels(const char *names[8])
{
    QR_ASSERT(names != NULL);
    QR_ASSERT(QR_COUNT(level) <= 8);
    int32_t n = 0;
    for (int i = 0; i < QR_COUNT(level); i++)
        if (level[i].present())
            names[n++] = level[i].name;
    return n;
}
