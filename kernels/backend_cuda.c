/* The program's side of libquire_cuda.so: finds it, checks that it fits, and puts its tables into a backend. No CUDA header is read here, so this file is
 * part of every build.
 *
 * Where the library is looked for: QUIRE_CUDA_LIB names the file; else beside the program, then in ../lib/quire and ../lib of where the program is
 * (base/library.h). It is not opened on machines without NVIDIA's driver (libcuda.so.1). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/library.h"
#include "base/log.h"
#include "base/mem.h"
#include "kernels/cpu/pool.h"
#include "kernels/cuda/plugin.h"
#include "kernels/device.h"

#define LIBRARY "libquire_cuda.so"

struct impl {
    void *library; /* owned */
    const struct qr_cuda_plugin *plugin;
};

static const struct qr_cuda_plugin *plugin_of(const struct qr_backend *be)
{
    return ((const struct impl *)be->impl)->plugin;
}

/* ---- finding ---- */

static bool driver_is_there(struct qr_err *err)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver)
        qr_err_set(err, QR_E_UNSUPPORTED, "NVIDIA's driver is not installed here (libcuda.so.1: %.200s)", qr_library_why_not("libcuda.so.1"));
    else
        dlclose(driver);
    return driver != NULL;
}

static int open_library(struct impl *im, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    const char *named = getenv("QUIRE_CUDA_LIB");
    if (named && *named) {
        if (snprintf(path, sizeof path, "%s", named) >= (int)sizeof path)
            return qr_err_set(err, QR_E_USAGE, "QUIRE_CUDA_LIB: a path of %zu bytes; at most %d", strlen(named), QR_PATH_MAX - 1);
    } else if (!qr_library_find(path, LIBRARY)) {
        return qr_err_set(err, QR_E_NOT_FOUND, "%s is neither beside the program nor in its lib directory (it is built where CMake finds CUDA); "
                          "QUIRE_CUDA_LIB names another place", LIBRARY);
    } else if (!driver_is_there(err)) {
        return QR_E_UNSUPPORTED;
    }
    im->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!im->library)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%.200s cannot be opened: %.220s", path, qr_library_why_not(path));
    im->plugin = dlsym(im->library, QR_CUDA_SYMBOL);
    if (!im->plugin)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%.300s is no library of quire's: it has no symbol " QR_CUDA_SYMBOL, path);
    if (im->plugin->abi != QR_CUDA_ABI)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%.300s speaks version %u of the interface, this program version %u; build both from the same sources",
                          path, (unsigned)im->plugin->abi, QR_CUDA_ABI);
    if (im->plugin->layout() != qr_cuda_layout())
        return qr_err_set(err, QR_E_UNSUPPORTED, "%.300s was built from other sources (quire %.40s, this is " QUIRE_VERSION " with other structs); build both "
                          "from the same", path, im->plugin->version);
    if (im->plugin->needs_driver && named && *named && !driver_is_there(err))
        return QR_E_UNSUPPORTED;
    return 0;
}

/* ---- the device ---- */

/* A library that has spoken with the driver stays: threads of CUDA's, or one that ends a group of ranks, may be in it still. */
static void cuda_close(struct qr_backend *be)
{
    struct impl *im = be->impl;
    if (be->queue)
        im->plugin->close(be->queue);
    be->queue = NULL;
    if (im && im->library && !(im->plugin && im->plugin->needs_driver))
        dlclose(im->library);
    qr_free(im);
    be->impl = NULL;
}

static size_t cuda_scratch_bytes(const struct qr_backend *be)
{
    struct qr_cuda_facts f;
    plugin_of(be)->facts(be->queue, &f);
    return (size_t)f.scratch_bytes;
}

/* The name of the first entry of a table of n pointers that is not there, or NULL. */
static const char *missing(const void *const *entry, const char *const *name, int n)
{
    for (int i = 0; i < n; i++)
        if (!entry[i])
            return name[i];
    return NULL;
}

static int cuda_supports(const struct qr_backend *be, enum qr_dtype weights, int64_t inputs_max, enum qr_dtype kv, int32_t head_dim, int32_t block_tokens,
                         struct qr_err *err)
{
    const struct qr_kernels *k = be->k;
    static const char *const name[] = {"linear", "rms_norm", "embed", "rope_table", "qkv", "chain", "kv_copy", "attention", "gather_rows", "linear_pack"};
    const void *const entry[] = {(void *)k->linear, (void *)k->rms_norm, (void *)k->embed, (void *)k->rope_table, (void *)k->qkv, (void *)k->chain,
                                 (void *)k->kv_copy, (void *)k->attention, (void *)k->gather_rows, (void *)k->linear_pack};
    char message[QR_CUDA_MESSAGE] = "";
    const char *none = missing(entry, name, QR_COUNT(entry));
    if (none)
        return qr_err_set(err, QR_E_UNSUPPORTED, "this library has no CUDA kernel for %s; use --device cpu", none);
    if (!plugin_of(be)->supports(be->queue, weights, inputs_max, kv, head_dim, block_tokens, message))
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s; use --device cpu", message);
    return 0;
}

static int cuda_trains(const struct qr_backend *be, struct qr_err *err)
{
    const struct qr_backward *b = be->b;
    static const char *const name[] = {"head_norm", "residual_add", "rope", "kv_write", "glu", "linear_dx", "linear_dw", "rms_norm", "attention", "glu",
                                       "embed", "scatter_rows", "cross_entropy", "adamw", "sum_squares"};
    const void *const entry[] = {(void *)be->k->head_norm, (void *)be->k->residual_add, (void *)be->k->rope, (void *)be->k->kv_write, (void *)be->k->glu,
                                 (void *)b->linear_dx, (void *)b->linear_dw, (void *)b->rms_norm, (void *)b->attention, (void *)b->glu, (void *)b->embed,
                                 (void *)b->scatter_rows, (void *)b->cross_entropy, (void *)b->adamw, (void *)b->sum_squares};
    const char *none = missing(entry, name, QR_COUNT(entry));
    if (none)
        return qr_err_set(err, QR_E_UNSUPPORTED, "this library has no CUDA kernel for training's %s; use --device cpu", none);
    return 0;
}

static void cuda_prepare(struct qr_backend *be, const struct qr_linear_args *a, int32_t rows_max)
{
    if (plugin_of(be)->prepare)
        plugin_of(be)->prepare(be->queue, a, rows_max);
}

static size_t cuda_export_choices(struct qr_backend *be, char *out, size_t size)
{
    if (plugin_of(be)->export_choices)
        return plugin_of(be)->export_choices(be->queue, out, size);
    if (size > 0)
        out[0] = '\0';
    return 1;
}

static void cuda_adopt_choices(struct qr_backend *be, const char *text)
{
    if (plugin_of(be)->adopt_choices)
        plugin_of(be)->adopt_choices(be->queue, text);
}

static void cuda_plans(const struct qr_backend *be, char *out, size_t size)
{
    if (plugin_of(be)->plans)
        plugin_of(be)->plans(be->queue, out, size);
}

static struct qr_backend_ways cuda_ways(const struct qr_backend *be)
{
    const struct qr_backend_ways none = {0};
    return plugin_of(be)->ways ? plugin_of(be)->ways(be->queue) : none;
}

static const struct qr_device cuda_device = {.close = cuda_close, .scratch_bytes = cuda_scratch_bytes, .supports = cuda_supports, .trains = cuda_trains,
                                             .prepare = cuda_prepare, .plans = cuda_plans, .export_choices = cuda_export_choices,
                                             .adopt_choices = cuda_adopt_choices, .ways = cuda_ways};

static int open_queue(struct qr_backend *be, const struct qr_backend_options *o, int32_t index, struct qr_err *err)
{
    const struct qr_cuda_plugin *p = plugin_of(be);
    const struct qr_cuda_options co = {.index = index, .n_devices = o->n_ranks, .step_rows_max = o->step_rows_max ? o->step_rows_max : QR_STEP_ROWS_DEFAULT,
                                       .deterministic = o->deterministic, .keep_plans = o->tune != QR_TUNE_OFF, .plain = o->plain};
    char message[QR_CUDA_MESSAGE] = "";
    if (!p->open(&be->queue, &co, message))
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s", message);
    struct qr_cuda_facts f;
    p->facts(be->queue, &f);
    const int n = snprintf(be->title, sizeof be->title, "cuda: %.60s (sm_%d%d, %d multiprocessors, %.1f GiB)", f.name, f.major, f.minor, f.n_sms,
                           (double)f.memory_bytes / 0x1p30);
    QR_ASSERT(n > 0); /* one line; a name that is too long loses its end */
    be->name = "cuda";
    be->k = p->kernels;
    be->b = p->backward;
    be->mem = p->mem;
    be->peers = p->peers;
    QR_ASSERT(be->k && be->b && be->mem && !be->mem->host);
    return 0;
}

int qr_device_open_cuda(struct qr_backend *be, const struct qr_backend_options *o, int32_t index, struct qr_err *err)
{
    QR_ASSERT(be != NULL && be->device == NULL);
    QR_ASSERT(o != NULL && err != NULL);
    struct impl *im = qr_alloc(1, sizeof *im);
    be->impl = im;
    int rc = open_library(im, err);
    rc = rc ? rc : open_queue(be, o, index, err);
    rc = rc ? rc : qr_device_open_pool(be, o, 64, 64, err); /* its workers compute no kernel: no scratch memory */
    if (rc) {
        cuda_close(be);
        return rc;
    }
    be->device = &cuda_device;
    return 0;
}
