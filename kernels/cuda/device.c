/* A device opened, its memory, and the one symbol that the program reads (plugin.h). Host code only. Sizes of scratch
 * and workspace are fixed at opening, so that launches allocate nothing. A call that fails later means a lost device or
 * a mistake, and ends the process with the call named (check.h). Graphs are recorded from this queue and repeated. One
 * thread per device; the pool of the host's threads is the program's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/entries.h"
#include "kernels/cuda/peers.h"
#include "kernels/cuda/plans.h"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/plugin.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"

#define WORKSPACE_BYTES ((size_t)32 << 20)     /* what cuBLASLt is recommended to have on Hopper */
#define SCRATCH_BYTES_PER_ROW ((size_t)64 << 10) /* 32,768 inputs in bf16 */
#define SCRATCH_BYTES_MIN ((size_t)16 << 20)
#define LT_ELEMENTS_MIN ((int64_t)1 << 18) /* of weights: smaller products are not worth a choice */
#define WAIT_S 4.0                             /* thousands of times what a launch takes; a sanitizer's take longer (tools/gpu.sh) */
#define WAIT_S_MAX 1e6
#define SCRATCH_BYTES_MAX ((size_t)256 << 20)

/* ---- memory ---- */

static void *device_alloc(size_t n_bytes)
{
    void *p = NULL;
    const size_t n = n_bytes ? n_bytes : 1;
    const cudaError_t rc = cudaMalloc(&p, n);
    if (rc != cudaSuccess) {
        fprintf(stderr, "quire: %s: %zu bytes on the device: %s\n", rc == cudaErrorMemoryAllocation ? "out of memory" : "cudaMalloc", n,
                cudaGetErrorString(rc));
        qr_cuda_stop_tell(); /* what failed may be a launch before it */
        abort();
    }
    QR_CUDA_CHECK(cudaMemset(p, 0, n));
    QR_CUDA_CHECK(cudaDeviceSynchronize()); /* the queue's stream does not wait for this one */
    return p;
}

static void device_free(void *p)
{
    if (p)
        QR_CUDA_CHECK(cudaFree(p));
}

static void device_zero(struct qr_queue *q, void *p, size_t n_bytes)
{
    if (n_bytes > 0)
        QR_CUDA_CHECK(cudaMemsetAsync(p, 0, n_bytes, qr_queue_apart(q)));
}

/* Waits come behind qr_cuda_peers_await, which returns sooner where a rank is lost. */
static void wait_slot(struct qr_queue *q, struct qr_cuda_slot *s)
{
    if (s->busy && cudaEventQuery(s->done) != cudaSuccess) { /* nearly always it is done: others were sent since */
        (void)cudaGetLastError();                             /* "not ready" is no error */
        qr_cuda_peers_await(q->peers, s->done);
        QR_CUDA_CHECK(cudaEventSynchronize(s->done));
    }
    s->busy = false;
}

static void make_slot(struct qr_cuda_slot *s, size_t n_bytes)
{
    QR_CUDA_CHECK(cudaHostAlloc((void **)&s->data, n_bytes, cudaHostAllocDefault));
    s->n_bytes = n_bytes;
    if (!s->done)
        QR_CUDA_CHECK(cudaEventCreateWithFlags(&s->done, cudaEventDisableTiming));
}

static void free_slot(struct qr_cuda_slot *s)
{
    if (s->data)
        QR_CUDA_CHECK(cudaFreeHost(s->data));
    if (s->done)
        QR_CUDA_CHECK(cudaEventDestroy(s->done));
    s->data = NULL;
    s->done = NULL;
}

static void *device_stage(struct qr_queue *q, size_t n_bytes)
{
    struct qr_cuda_slot *s = &q->large;
    if (n_bytes <= QR_CUDA_SLOT_BYTES) {
        s = &q->slot[q->next_slot];
        q->next_slot = (q->next_slot + 1) % QR_CUDA_SLOTS;
    }
    wait_slot(q, s);
    if (s->n_bytes < n_bytes) {
        if (s->data)
            QR_CUDA_CHECK(cudaFreeHost(s->data));
        make_slot(s, n_bytes);
    }
    q->staged = s;
    return s->data;
}

/* What lies at the beginning of a slot goes to the device. */
static void send(struct qr_queue *q, struct qr_cuda_slot *s, void *to, size_t n_bytes)
{
    QR_CUDA_CHECK(cudaMemcpyAsync(to, s->data, n_bytes, cudaMemcpyHostToDevice, qr_queue_apart(q)));
    QR_CUDA_CHECK(cudaEventRecord(s->done, qr_queue_apart(q)));
    s->busy = true;
}

static void device_put(struct qr_queue *q, void *to, const void *host, size_t n_bytes)
{
    if (n_bytes == 0)
        return;
    if (q->staged && host == q->staged->data) {
        send(q, q->staged, to, n_bytes);
        q->staged = NULL;
        return;
    }
    for (size_t at = 0; at < n_bytes; at += QR_CUDA_SLOT_BYTES) {
        const size_t n = n_bytes - at < QR_CUDA_SLOT_BYTES ? n_bytes - at : QR_CUDA_SLOT_BYTES;
        void *piece = device_stage(q, n);
        memcpy(piece, (const char *)host + at, n);
        send(q, q->staged, (char *)to + at, n);
        q->staged = NULL;
    }
}

static void device_get(struct qr_queue *q, void *host, const void *from, size_t n_bytes)
{
    if (n_bytes > 0)
        QR_CUDA_CHECK(cudaMemcpyAsync(host, from, n_bytes, cudaMemcpyDeviceToHost, qr_queue_apart(q)));
    qr_cuda_peers_await(q->peers, NULL);
    QR_CUDA_CHECK(cudaStreamSynchronize(q->stream));
}

static void device_fetch(struct qr_queue *q, void *host, const void *from, size_t n_bytes)
{
    if (n_bytes > 0)
        QR_CUDA_CHECK(cudaMemcpyAsync(host, from, n_bytes, cudaMemcpyDeviceToHost, qr_queue_apart(q)));
}

static void device_send(struct qr_queue *q, void *to, const void *host, size_t n_bytes)
{
    if (n_bytes > 0)
        QR_CUDA_CHECK(cudaMemcpyAsync(to, host, n_bytes, cudaMemcpyHostToDevice, qr_queue_apart(q)));
}

_Static_assert(QR_CUDA_MARKS == QR_MARKS, "an event for each");

static void device_mark(struct qr_queue *q, int32_t which)
{
    if (!q->mark[which])
        QR_CUDA_CHECK(cudaEventCreateWithFlags(&q->mark[which], cudaEventDisableTiming));
    QR_CUDA_CHECK(cudaEventRecord(q->mark[which], qr_queue_apart(q)));
}

static void device_wait(struct qr_queue *q, int32_t which)
{
    qr_cuda_peers_await(q->peers, q->mark[which]);
    QR_CUDA_CHECK(cudaEventSynchronize(q->mark[which]));
}

/* ---- graphs ---- */

static bool record_begin(struct qr_queue *q)
{
    if (!q->records)
        return false;
    const bool begun = cudaStreamBeginCapture(qr_queue_apart(q), cudaStreamCaptureModeThreadLocal) == cudaSuccess;
    if (!begun)
        (void)cudaGetLastError(); /* or the next launch would be blamed for it */
    return begun;
}

static void *record_end(struct qr_queue *q)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t record = NULL;
    const bool there = cudaStreamEndCapture(qr_queue_apart(q), &graph) == cudaSuccess && graph != NULL;
    if (!there || cudaGraphInstantiate(&record, graph, 0) != cudaSuccess) {
        (void)cudaGetLastError(); /* then steps are launched one kernel after the other */
        record = NULL;
    }
    if (there)
        QR_CUDA_CHECK(cudaGraphDestroy(graph));
    return record;
}

static void device_repeat(struct qr_queue *q, void *record)
{
    QR_CUDA_CHECK(cudaGraphLaunch((cudaGraphExec_t)record, qr_queue_apart(q)));
}

static void record_free(void *record)
{
    if (record)
        QR_CUDA_CHECK(cudaGraphExecDestroy((cudaGraphExec_t)record));
}

static void device_copy(struct qr_queue *q, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t row_bytes, int64_t n_rows)
{
    if (row_bytes == 0 || n_rows == 0)
        return;
    if (n_rows == 1 || (to_pitch == row_bytes && from_pitch == row_bytes))
        QR_CUDA_CHECK(cudaMemcpyAsync(to, from, row_bytes * (size_t)n_rows, cudaMemcpyDeviceToDevice, qr_queue_apart(q)));
    else
        QR_CUDA_CHECK(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, row_bytes, (size_t)n_rows, cudaMemcpyDeviceToDevice, qr_queue_apart(q)));
}

static void device_sync(struct qr_queue *q)
{
    qr_cuda_peers_await(q->peers, NULL);
    QR_CUDA_CHECK(cudaStreamSynchronize(q->stream));
}

/* Asking is enough for a runtime that sends work to its device in batches, and for the emulated device. */
static void device_start(struct qr_queue *q)
{
    (void)cudaStreamQuery(q->stream);
    (void)cudaGetLastError();
}

static void *pinned_alloc(size_t n_bytes)
{
    void *p = NULL;
    const size_t n = n_bytes ? n_bytes : 1;
    QR_CUDA_CHECK(cudaHostAlloc(&p, n, cudaHostAllocDefault));
    return memset(p, 0, n);
}

static void pinned_free(void *p)
{
    if (p)
        QR_CUDA_CHECK(cudaFreeHost(p));
}

static int64_t device_available(void)
{
    size_t free_bytes = 0, total = 0;
    QR_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total));
    return (int64_t)free_bytes;
}

static const struct qr_mem_ops device_mem = {
    .host = false, .alloc = device_alloc, .free = device_free, .zero = device_zero, .put = device_put, .get = device_get, .copy = device_copy,
    .stage = device_stage, .sync = device_sync, .start = device_start, .fetch = device_fetch, .send = device_send, .mark = device_mark, .wait = device_wait,
    .record_begin = record_begin, .record_end = record_end, .repeat = device_repeat, .record_free = record_free, .host_alloc = pinned_alloc,
    .host_free = pinned_free, .available = device_available};

/* ---- opening ---- */

/* False, and the message says which call, when the runtime refuses. */
static bool said(cudaError_t rc, const char *what, char message[QR_CUDA_MESSAGE])
{
    if (rc != cudaSuccess)
        snprintf(message, QR_CUDA_MESSAGE, "%s: %s", what, cudaGetErrorString(rc));
    return rc == cudaSuccess;
}

/* For several ranks: the devices that they need, and what lets these compute together. */
static bool enough(int32_t n_devices, char message[QR_CUDA_MESSAGE])
{
    int n = 0;
    _Static_assert(QR_PEERS_MESSAGE <= QR_CUDA_MESSAGE, "one message for both");
    if (n_devices < 2)
        return true;
    if (!said(cudaGetDeviceCount(&n), "no GPU can be used", message))
        return false;
    if (n < n_devices)
        snprintf(message, QR_CUDA_MESSAGE, "%d ranks need a GPU each, and there %s %d", (int)n_devices, n == 1 ? "is" : "are", n);
    return n >= n_devices && qr_cuda_peers_there(message);
}

/* The device is there and one that this library has code for. */
static bool find_device(struct qr_queue *q, int32_t index, char message[QR_CUDA_MESSAGE])
{
    int n = 0, major = 0, minor = 0, sms = 0, shared = 0;
    struct cudaDeviceProp prop;
    if (!said(cudaGetDeviceCount(&n), "no GPU can be used", message))
        return false;
    if (index >= n) {
        snprintf(message, QR_CUDA_MESSAGE, "GPU %d was asked for, there %s %d (counted from 0)", (int)index, n == 1 ? "is" : "are", n);
        return false;
    }
    if (!said(cudaSetDevice(index), "the GPU cannot be used", message) || !said(cudaGetDeviceProperties(&prop, index), "the GPU says nothing", message) ||
        !said(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index), "compute capability", message) ||
        !said(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index), "compute capability", message) ||
        !said(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, index), "multiprocessors", message) ||
        !said(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, index), "shared memory", message))
        return false;
    q->sm = 10 * major + minor;
    if (q->sm < 80) {
        snprintf(message, QR_CUDA_MESSAGE, "%.100s has compute capability %d.%d; 8.0 and newer are computed with (bf16 matrix units)", prop.name, major, minor);
        return false;
    }
    if (qr_cuda_code_missing() != 0) {
        snprintf(message, QR_CUDA_MESSAGE, "%.100s has compute capability %d.%d, and this library has code for %.60s (CMake: QUIRE_CUDA_ARCHS): %.100s",
                 prop.name, major, minor, QR_CUDA_TARGETS, cudaGetErrorString((cudaError_t)qr_cuda_code_missing()));
        return false;
    }
    q->index = index;
    q->n_sms = sms;
    q->shared_max = shared;
    q->memory_bytes = (int64_t)prop.totalGlobalMem;
    snprintf(q->name, sizeof q->name, "%.127s", prop.name);
    return true;
}

/* Whether its driver lets kernels begin early, in graphs too (CUDA 12.3). */
static bool can_overlap(const struct qr_queue *q)
{
    const char *wanted = getenv("QUIRE_CUDA_OVERLAP");
    int driver = 0;
    return q->sm >= 90 && (!wanted || strcmp(wanted, "0") != 0) && cudaDriverGetVersion(&driver) == cudaSuccess && driver >= 12030;
}

/* Bytes per second that its memory has by clock and width; 0 where the driver no longer says. */
static double memory_speed(int32_t index)
{
    int khz = 0, bits = 0;
    if (cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, index) != cudaSuccess ||
        cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, index) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return 2.0 * khz * 1e3 * bits / 8; /* two transfers a clock */
}

static size_t scratch_for(int32_t step_rows_max)
{
    size_t n = (size_t)step_rows_max * SCRATCH_BYTES_PER_ROW;
    n = n > SCRATCH_BYTES_MIN ? n : SCRATCH_BYTES_MIN;
    return n < SCRATCH_BYTES_MAX ? n : SCRATCH_BYTES_MAX;
}

static void queue_close(struct qr_queue *q)
{
    if (!q)
        return;
    if (q->stream)
        QR_CUDA_CHECK(cudaStreamSynchronize(q->stream));
    qr_plan_release(q);
    qr_cuda_products_free(q);
    qr_cuda_hopper_free(q);
    for (int i = 0; i < QR_CUDA_SLOTS; i++)
        free_slot(&q->slot[i]);
    free_slot(&q->large);
    for (int i = 0; i < QR_CUDA_MARKS; i++)
        if (q->mark[i])
            QR_CUDA_CHECK(cudaEventDestroy(q->mark[i]));
    device_free(q->workspace);
    device_free(q->scratch);
    if (q->lt)
        cublasLtDestroy(q->lt);
    if (q->stops)
        qr_cuda_stops_close();
    if (q->stream)
        QR_CUDA_CHECK(cudaStreamDestroy(q->stream));
    free(q);
}

static bool queue_open(struct qr_queue **out, const struct qr_cuda_options *o, char message[QR_CUDA_MESSAGE])
{
    const char *graphs = getenv("QUIRE_CUDA_GRAPHS"), *lt_min = getenv("QUIRE_CUDA_LT_MIN"), *wait = getenv("QUIRE_CUDA_WAIT_S");
    struct qr_queue *q = calloc(1, sizeof *q);
    if (!q) {
        snprintf(message, QR_CUDA_MESSAGE, "out of memory");
        return false;
    }
    if (!enough(o->n_devices, message) || !find_device(q, o->index, message) ||
        !said(cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking), "a stream cannot be made", message)) {
        free(q);
        return false;
    }
    if (cublasLtCreate(&q->lt) != CUBLAS_STATUS_SUCCESS) {
        snprintf(message, QR_CUDA_MESSAGE, "cuBLASLt cannot be opened on %.100s", q->name);
        q->lt = NULL;
        queue_close(q);
        return false;
    }
    q->step_rows_max = o->step_rows_max;
    q->deterministic = o->deterministic;
    q->keeps_plans = o->keep_plans;
    q->plain = o->plain;
    q->lt_elements_min = q->plain ? 0 : lt_min && *lt_min ? strtoll(lt_min, NULL, 10) : LT_ELEMENTS_MIN;
    const double wait_s = wait && *wait ? strtod(wait, NULL) : WAIT_S;
    q->wait_ns = (uint64_t)((wait_s > 0 && wait_s < WAIT_S_MAX ? wait_s : WAIT_S) * 1e9);
    q->records = !graphs || strcmp(graphs, "0") != 0;
    q->overlaps = can_overlap(q);
    q->bytes_s = memory_speed(q->index);
    q->workspace_bytes = WORKSPACE_BYTES;
    q->scratch_bytes = scratch_for(o->step_rows_max);
    if ((size_t)device_available() < q->workspace_bytes + q->scratch_bytes) {
        snprintf(message, QR_CUDA_MESSAGE, "%.100s has %lld MiB of its memory free, %zu are needed to begin with", q->name,
                 (long long)(device_available() >> 20), (q->workspace_bytes + q->scratch_bytes) >> 20);
        queue_close(q);
        return false;
    }
    q->workspace = device_alloc(q->workspace_bytes);
    q->scratch = device_alloc(q->scratch_bytes);
    for (int i = 0; i < QR_CUDA_SLOTS; i++)
        make_slot(&q->slot[i], QR_CUDA_SLOT_BYTES);
    q->stops = qr_cuda_stops_open();
    *out = q;
    return true;
}

static void queue_facts(const struct qr_queue *q, struct qr_cuda_facts *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", q->name);
    out->major = q->sm / 10;
    out->minor = q->sm % 10;
    out->n_sms = q->n_sms;
    out->memory_bytes = q->memory_bytes;
    out->scratch_bytes = (int64_t)(q->workspace_bytes + q->scratch_bytes);
    out->bytes_s = q->bytes_s;
}

static struct qr_backend_ways queue_ways(const struct qr_queue *q)
{
    struct qr_backend_ways ways = {.by_wgmma = q->hopper ? q->hopper->n_calls : 0};
    qr_plan_ways(q, &ways);
    return ways;
}

static uint64_t layout(void)
{
    return qr_cuda_layout();
}

__attribute__((visibility("default"))) extern const struct qr_cuda_plugin qr_cuda_plugin;
const struct qr_cuda_plugin qr_cuda_plugin = {
    .abi = QR_CUDA_ABI,
    .layout = layout,
    .version = QUIRE_VERSION,
    .built_for = QR_CUDA_TARGETS,
    .kernels = &qr_cuda_kernels,
    .backward = &qr_cuda_backward,
    .mem = &device_mem,
    .peers = &qr_cuda_peer_ops,
#ifdef QR_CUDA_EMU
    .needs_driver = false,
#else
    .needs_driver = true,
#endif
    .open = queue_open,
    .close = queue_close,
    .facts = queue_facts,
    .supports = qr_cuda_supports,
    .prepare = qr_cuda_linear_prepare,
    .plans = qr_plan_describe,
    .export_choices = qr_plan_export,
    .adopt_choices = qr_plan_adopt,
    .ways = queue_ways,
};
