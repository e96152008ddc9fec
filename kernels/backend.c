/* The choice of a device, and what is the same for all of them. `auto` tries a device and takes the processor
 * otherwise, with the reason in one line. A device that lacks a kernel or a type is refused before anything is loaded.
 * Runs at start, on the thread that will own the backend. */
#include "kernels/backend.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"
#include "kernels/cpu/pool.h"
#include "kernels/device.h"

#define THREADS_MAX 1024

enum kind { KIND_CPU, KIND_CUDA, KIND_AUTO };

/* "cuda:3" is number 3, "cuda" as many as ranks. A list has a number for each rank. */
static int parse_device(enum kind *kind, int32_t *index, const struct qr_backend_options *o, struct qr_err *err)
{
    const char *name = o->device;
    const int32_t n_ranks = o->n_ranks > 1 ? o->n_ranks : 1, mine = o->n_ranks > 1 ? o->rank : 0;
    *index = mine;
    if (!name || strcmp(name, "cpu") == 0) {
        *kind = KIND_CPU;
        return 0;
    }
    *kind = strcmp(name, "auto") == 0 ? KIND_AUTO : KIND_CUDA;
    if (*kind == KIND_AUTO || strcmp(name, "cuda") == 0)
        return 0;
    const char *digits = strncmp(name, "cuda:", 5) == 0 ? name + 5 : "";
    for (int32_t i = 0;; i++) {
        const size_t n = strspn(digits, "0123456789");
        if (n == 0 || n > 3 || (digits[n] && digits[n] != ','))
            return qr_err_set(err, QR_E_USAGE, "unknown device \"%.40s\"; expected auto, cpu, cuda, cuda:N or, for several ranks, cuda:N,M", name);
        if (i == mine)
            *index = atoi(digits);
        if (!digits[n] && i + 1 != n_ranks)
            return qr_err_set(err, QR_E_USAGE, "\"%.40s\" names %d GPU%s for %d rank%s; expected one for each", name, (int)i + 1, i ? "s" : "", (int)n_ranks,
                              n_ranks > 1 ? "s" : "");
        if (!digits[n])
            return 0;
        digits += n + 1;
    }
}

/* A level that is named is the processor's. */
static bool names_isa(const struct qr_backend_options *o)
{
    const char *isa = o->isa ? o->isa : getenv("QUIRE_ISA");
    return isa && *isa && strcmp(isa, "auto") != 0;
}

/* As before it was opened. */
static void drop_device(struct qr_backend *be)
{
    be->device->close(be);
    qr_queue_free(be->pool);
    *be = (struct qr_backend){0};
}

static int open_kind(struct qr_backend *be, enum kind kind, int32_t index, const struct qr_backend_options *o, struct qr_err *err)
{
    struct qr_err why;
    if (kind == KIND_CUDA)
        return qr_device_open_cuda(be, o, index, err);
    if (kind == KIND_AUTO && !names_isa(o)) {
        if (qr_device_open_cuda(be, o, index, &why) == 0) {
            if (be->device->supports(be, QR_BF16, 4096, QR_BF16, 128, 16, &why) == 0) /* what every model in bf16 needs */
                return 0;
            drop_device(be);
        }
        /* Where no library was installed nobody expects a device, and nothing is to be said; of several ranks one says it. */
        qr_log(why.code == QR_E_NOT_FOUND || o->rank > 0 ? QR_LOG_DEBUG : QR_LOG_INFO, "kernels", "device=cpu, no cuda: %s", why.msg);
        QR_ASSERT(be->device == NULL && be->queue == NULL && be->pool == NULL);
    }
    return qr_device_open_cpu(be, o, err);
}

int qr_backend_open(struct qr_backend **out, const struct qr_backend_options *options, struct qr_err *err)
{
    QR_ASSERT(out != NULL && options != NULL);
    QR_ASSERT(err != NULL);
    enum kind kind;
    int32_t index;
    int rc = parse_device(&kind, &index, options, err);
    if (rc)
        return rc;
    if (options->n_threads < 0 || options->n_threads > THREADS_MAX)
        return qr_err_set(err, QR_E_USAGE, "%d threads; expected 0 (all processors) to %d", (int)options->n_threads, THREADS_MAX);
    if (options->step_rows_max < 0)
        return qr_err_set(err, QR_E_USAGE, "steps of %d rows; expected 0 (default) or more", (int)options->step_rows_max);
    struct qr_backend *be = qr_alloc(1, sizeof *be);
    rc = open_kind(be, kind, index, options, err);
    if (rc) {
        qr_backend_close(be);
        return rc;
    }
    *out = be;
    return 0;
}

size_t qr_backend_scratch_bytes(const struct qr_backend *be)
{
    QR_ASSERT(be != NULL);
    QR_ASSERT(be->device != NULL);
    return be->device->scratch_bytes(be);
}

size_t qr_backend_populate(const struct qr_backend *be)
{
    QR_ASSERT(be != NULL && be->pool != NULL);
    QR_ASSERT(be->pool->n_threads >= 1);
    qr_mem_populate(be->pool->shared, be->pool->shared_bytes);
    return be->pool->shared_bytes + (size_t)be->pool->n_threads * be->pool->own_bytes; /* workers' own are in use from the start */
}

void qr_backend_errand(struct qr_backend *be, void (*fn)(void *), void *arg)
{
    QR_ASSERT(be != NULL && be->pool != NULL);
    qr_queue_errand(be->pool, fn, arg);
}

void qr_backend_errand_end(struct qr_backend *be)
{
    QR_ASSERT(be != NULL && be->pool != NULL);
    qr_queue_errand_end(be->pool);
}

int32_t qr_backend_n_nodes(const struct qr_backend *be)
{
    QR_ASSERT(be != NULL && be->pool != NULL);
    QR_ASSERT(be->pool->cpus.n_nodes >= 1);
    return be->pool->cpus.n_nodes;
}

void qr_backend_spread(const struct qr_backend *be, void *p, size_t n_bytes)
{
    QR_ASSERT(be != NULL && be->pool != NULL);
    QR_ASSERT(p != NULL || n_bytes == 0);
    const struct qr_cpus *c = &be->pool->cpus;
    if (be->mem->host && c->n_nodes > 1 && n_bytes > 0)
        qr_mem_interleave(p, n_bytes, c->node_id, c->n_nodes);
}

void qr_backend_close(struct qr_backend *be)
{
    if (!be)
        return;
    if (be->device)
        be->device->close(be);
    qr_queue_free(be->pool);
    qr_tune_free(be->tune);
    qr_free(be);
}

void qr_backend_run(struct qr_backend *be, void (*fn)(const void *arg, int32_t item, int32_t worker), const void *arg, int32_t n_items)
{
    QR_ASSERT(be != NULL && fn != NULL);
    QR_ASSERT(n_items >= 0);
    qr_queue_run(be->pool, fn, arg, n_items);
}

struct qr_queue *qr_backend_alone(const struct qr_backend *be, int32_t worker)
{
    QR_ASSERT(be != NULL && be->mem->host);
    QR_ASSERT(worker >= 0 && worker < be->pool->n_threads);
    return qr_queue_alone(be->pool, worker);
}

int qr_backend_supports(const struct qr_backend *be, enum qr_dtype weights, int64_t inputs_max, enum qr_dtype kv, int32_t head_dim,
                        int32_t block_tokens, struct qr_err *err)
{
    QR_ASSERT(be != NULL && be->device != NULL);
    QR_ASSERT(err != NULL);
    return be->device->supports(be, weights, inputs_max, kv, head_dim, block_tokens, err);
}

void qr_backend_prepare(struct qr_backend *be, const struct qr_linear_args *a, int32_t rows_max)
{
    QR_ASSERT(be != NULL);
    QR_ASSERT(a != NULL && a->w != NULL && rows_max >= 0);
    if (be->device && be->device->prepare)
        be->device->prepare(be, a, rows_max);
}

void qr_backend_plans(const struct qr_backend *be, char *out, size_t size)
{
    QR_ASSERT(be != NULL);
    QR_ASSERT(out != NULL && size > 0);
    out[0] = '\0';
    if (be->device && be->device->plans)
        be->device->plans(be, out, size);
}

struct qr_backend_ways qr_backend_ways(const struct qr_backend *be)
{
    QR_ASSERT(be != NULL);
    const struct qr_backend_ways none = {0};
    return be->device && be->device->ways ? be->device->ways(be) : none;
}

size_t qr_backend_export_choices(struct qr_backend *be, char *out, size_t size)
{
    QR_ASSERT(be != NULL);
    QR_ASSERT(out != NULL || size == 0);
    if (be->device && be->device->export_choices)
        return be->device->export_choices(be, out, size);
    if (size > 0)
        out[0] = '\0';
    return 1;
}

void qr_backend_adopt_choices(struct qr_backend *be, const char *text)
{
    QR_ASSERT(be != NULL);
    QR_ASSERT(text != NULL);
    if (be->device && be->device->adopt_choices)
        be->device->adopt_choices(be, text);
}

int qr_backend_trains(const struct qr_backend *be, struct qr_err *err)
{
    QR_ASSERT(be != NULL && be->device != NULL);
    QR_ASSERT(err != NULL);
    return be->device->trains(be, err);
}
