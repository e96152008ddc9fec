/* backend_cpu.c - the processor as a device: a kernel table for each instruction-set level, host memory, the pool as its queue.
 *
 * The level is the best that the processor has, or the one that is named; a level that it lacks is refused with the best one's
 * name. Memory is the host's, so copies are plain ones and nothing is in flight. The thread that opens the device is worker 0 of
 * its queue; tables are constant and any thread may read them.
 */
#include "kernels/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/cpus.h"
#include "base/log.h"
#include "base/mem.h"
#include "kernels/cpu/detect.h"
#include "kernels/cpu/isa/backward/back.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/pool.h"
#include "kernels/device.h"
#include "kernels/null.h"
#include "kernels/ref/ref.h"

/* Scratch of a launch: packed activations of a row chunk, or partial results of attention. 16 KiB a row hold 8,192 inputs in bf16; a
 * launch that needs more works in chunks, so the size decides about speed only. Small steps get by with less. */
#define SHARED_BYTES_MAX ((size_t)16 << 20)
#define SHARED_BYTES_MIN ((size_t)1 << 20)
#define SHARED_BYTES_PER_ROW ((size_t)16 << 10)

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

/* ---- memory ---- */

static void *host_alloc(size_t n_bytes)
{
    return qr_alloc_aligned(n_bytes, 64);
}

static void host_zero(struct qr_queue *q, void *p, size_t n_bytes)
{
    (void)q;
    memset(p, 0, n_bytes);
}

static void host_put(struct qr_queue *q, void *to, const void *host, size_t n_bytes)
{
    (void)q;
    qr_copy(to, host, n_bytes);
}

static void host_copy(struct qr_queue *q, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t row_bytes, int64_t n_rows)
{
    (void)q;
    for (int64_t i = 0; i < n_rows; i++)
        qr_copy((char *)to + (size_t)i * to_pitch, (const char *)from + (size_t)i * from_pitch, row_bytes);
}

/* Not called: the processor reads the host's memory where it is. */
static void *host_stage(struct qr_queue *q, size_t n_bytes)
{
    (void)q;
    qr_panic("%zu bytes were staged for the processor, which reads them where they are", n_bytes);
}

static void host_sync(struct qr_queue *q)
{
    (void)q;
}

/* A call returns when its work is done. */
static void host_mark(struct qr_queue *q, int32_t which)
{
    (void)q;
    (void)which;
}

const struct qr_mem_ops qr_host_mem = {.host = true, .alloc = host_alloc, .free = qr_free_aligned, .zero = host_zero, .put = host_put, .get = host_put,
                                       .copy = host_copy, .stage = host_stage, .sync = host_sync, .fetch = host_put, .send = host_put, .mark = host_mark,
                                       .wait = host_mark, .host_alloc = host_alloc,
                                       .host_free = qr_free_aligned, .available = qr_memory_available};

/* ---- levels ---- */

static const struct level *best_level(void)
{
    const struct level *best = &level[0];
    for (int i = 1; i < QR_COUNT(level); i++)
        if (level[i].present())
            best = &level[i];
    return best;
}

/* The level that `source` names; NULL or "" or "auto": the best. */
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
    const bool listed = o->cpus && *o->cpus;
    int rc = listed ? qr_cpus_parse_allowed(cpus, o->cpus, err) : 0;
    if (rc)
        return rc;
    if (!listed)
        qr_cpus_allowed(cpus);
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
        qr_log(QR_LOG_DEBUG, "kernels", "tuning shapes=%d", (int)qr_tune_count(t));
}

int qr_device_open_pool(struct qr_backend *be, const struct qr_backend_options *o, size_t shared_bytes, size_t own_bytes, struct qr_err *err)
{
    QR_ASSERT(be != NULL && o != NULL);
    QR_ASSERT(be->pool == NULL && err != NULL);
    struct qr_cpus cpus;
    bool pin = false;
    int rc = choose_cpus(&cpus, &be->n_threads, &pin, o, err);
    if (rc == 0)
        be->pool = qr_queue_new(be->n_threads, &cpus, pin, shared_bytes, own_bytes);
    return rc;
}

static void cpu_close(struct qr_backend *be)
{
    be->queue = NULL; /* the pool, which the caller frees */
}

static size_t cpu_scratch_bytes(const struct qr_backend *be)
{
    return be->queue->shared_bytes + (size_t)be->n_threads * be->queue->own_bytes;
}

static int cpu_supports(const struct qr_backend *be, enum qr_dtype weights, int64_t inputs_max, enum qr_dtype kv, int32_t head_dim, int32_t block_tokens,
                        struct qr_err *err)
{
    const bool eights = strcmp(be->k->name, "ref") == 0; /* which is what others are compared with */
    if ((weights == QR_F8 || kv == QR_E4M3) && !eights)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s in fp8 are computed with on GPUs only (--device cuda); the processor has int8 (%s)",
                          weights == QR_F8 ? "weights" : "keys and values", weights == QR_F8 ? "--quantize int8" : "--kv-cache-dtype int8");
    if (!qr_dtype_multiplies(weights) && weights != QR_CODED)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s kernels on the %s compute with f32, bf16 and quantized weights, not %s", be->k->name, be->name,
                          qr_dtype_name(weights));
    if (inputs_max > qr_linear_inputs_max(weights))
        return qr_err_set(err, QR_E_UNSUPPORTED, "a matrix has %lld inputs, %s ones have %d at most%s", (long long)inputs_max, qr_dtype_name(weights),
                          (int)qr_linear_inputs_max(weights), inputs_max <= QR_LINEAR_INPUTS_MAX ? "; load it without --quantize" : "");
    if (kv != QR_F32 && kv != QR_BF16 && !qr_kv_has_scales(kv))
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s kernels on the %s keep keys and values as f32, bf16 or int8, not %s", be->k->name, be->name,
                          qr_dtype_name(kv));
    if (head_dim < 8 || head_dim > QR_HEAD_DIM_MAX || head_dim % 8 != 0)
        return qr_err_set(err, QR_E_UNSUPPORTED, "attention heads of %d numbers: expected a multiple of 8 from 8 to %d", (int)head_dim, QR_HEAD_DIM_MAX);
    if (block_tokens < 1 || block_tokens > QR_BLOCK_TOKENS_MAX || (block_tokens & (block_tokens - 1)) != 0)
        return qr_err_set(err, QR_E_UNSUPPORTED, "cache blocks of %d tokens: expected a power of two from 1 to %d", (int)block_tokens, QR_BLOCK_TOKENS_MAX);
    return 0;
}

static int cpu_trains(const struct qr_backend *be, struct qr_err *err)
{
    (void)be;
    (void)err;
    return 0;
}

static const struct qr_device cpu_device = {.close = cpu_close, .scratch_bytes = cpu_scratch_bytes, .supports = cpu_supports, .trains = cpu_trains};

int qr_device_open_cpu(struct qr_backend *be, const struct qr_backend_options *o, struct qr_err *err)
{
    QR_ASSERT(be != NULL && be->device == NULL);
    QR_ASSERT(o != NULL && err != NULL);
    const struct level *l;
    int rc = o->isa ? find_level(&l, o->isa, "the option isa", err) : find_level(&l, getenv("QUIRE_ISA"), "QUIRE_ISA", err);
    rc = rc ? rc : qr_device_open_pool(be, o, shared_bytes(o->step_rows_max ? o->step_rows_max : QR_STEP_ROWS_DEFAULT), QR_WORKER_SCRATCH_BYTES, err);
    if (rc != 0)
        return rc;
    be->name = "cpu";
    be->k = l->k;
    be->b = l->b;
    be->mem = &qr_host_mem;
    be->device = &cpu_device;
    be->queue = be->pool;
    be->tune = qr_tune_new(l->name, be->n_threads);
    be->queue->tune = be->tune;
    if (o->tune != QR_TUNE_OFF)
        load_tune(be->tune);
    snprintf(be->title, sizeof be->title, "cpu: %s", l->name);
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

const char *qr_cpu_level(void)
{
    return best_level()->name;
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
