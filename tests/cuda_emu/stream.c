/* stream.c - streams, events and graphs of the emulated device.
 *
 * What is asked of a stream is queued and done when somebody waits for it, as late as the rules allow; so a wait that is missing, or a pinned buffer that is
 * filled again too early, shows in the results. Memory of the host that is not pinned is read at once, as the runtime does. Graphs keep
 * what a captured stream was asked for, in that order. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"
#include "tests/cuda_emu/core.h"
#include "tests/cuda_emu/emu.h"
#include "tests/cuda_emu/include/cuda_runtime.h"
#include "tests/cuda_emu/runtime.h"

enum kind { KERNEL, HOST, PEERS, COPY, FILL, RECORD, WAIT, GRAPH };

struct op {
    struct op *next;
    enum kind kind;
    const char *kernel;
    struct qr_emu_dim3 grid, block;
    size_t shared_bytes, shared_room;
    void (*body)(const void *closure);
    bool (*try)(const void *closure);
    void *to;
    const void *from;
    size_t n;
    int value;
    bool early; /* a kernel that may begin while those before it run */
    struct qr_emu_event *event;
    int64_t count; /* of the event: reached by this record, waited for by this wait */
    struct qr_emu_graph *graph;
    const struct op *at;       /* of the graph: what comes next; NULL: it has not begun */
    size_t closure_bytes;
    uint8_t closure[] __attribute__((aligned(16)));
};

struct list {
    struct op *first, **last;
};

struct qr_emu_graph {
    struct list ops;
};

struct qr_emu_stream {
    struct list ops;
    struct qr_emu_stream *next;
    struct qr_emu_graph *capture; /* what it is asked for goes there; borrowed from the stream that began it */
    bool began;
    bool running;
};

struct qr_emu_event {
    struct qr_emu_stream *stream;
    struct qr_emu_graph *capture;
    int64_t recorded, reached;
    double at_us; /* of the device's clock, when it was reached last */
};

struct function {
    const void *fn;
    int32_t limit; /* of dynamic shared memory */
    bool allowed;  /* that limit was asked for */
    bool met;      /* launched outside of a capture */
};

#define FUNCTIONS_MAX 1024

struct runtime {
    struct qr_emu_stream *streams;
    struct qr_emu_stream plain; /* the stream 0 */
    bool eager, no_code, early; /* early: the next launch */
    int32_t n_sms, shared_most;
    cudaError_t last;
    double clock_us; /* for how long the device has worked */
    struct function function[FUNCTIONS_MAX];
    int32_t n_functions;
};

static struct runtime r = {.n_sms = 132, .shared_most = QR_EMU_SHARED_MAX};
struct qr_emu_counts qr_emu_counted;

struct qr_emu_counts qr_emu_counts(void)
{
    return qr_emu_counted;
}

void qr_emu_set_eager(bool eager)
{
    qr_emu_run_all();
    r.eager = eager;
}

bool qr_emu_is_eager(void)
{
    return r.eager;
}

void qr_emu_set_device(int32_t n_sms, size_t memory_bytes)
{
    QR_ASSERT(n_sms > 0 && memory_bytes > 0);
    r.n_sms = n_sms;
    qr_emu_memory_limit(memory_bytes);
}

cudaError_t qr_emu_error(cudaError_t e)
{
    if (e != cudaSuccess)
        r.last = e;
    return e;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = r.last;
    r.last = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    return r.last;
}

void qr_emu_set_shared(int32_t n_bytes)
{
    QR_ASSERT(n_bytes >= QR_EMU_SHARED_PLAIN && n_bytes <= QR_EMU_SHARED_MAX);
    r.shared_most = n_bytes;
}

int32_t qr_emu_shared_most(void)
{
    return r.shared_most;
}

int32_t qr_emu_n_sms(void)
{
    return r.n_sms;
}

/* ---- doing ---- */

/* QUIRE_EMU_IDLE=1: kernels, products and copies within the device do nothing, so that what a step costs the host can be measured. */
static bool is_idle(void)
{
    static int idle = -1;
    if (idle < 0) {
        const char *wanted = getenv("QUIRE_EMU_IDLE");
        idle = wanted && strcmp(wanted, "1") == 0;
    }
    return idle == 1;
}

static bool is_within(const void *to, const void *from)
{
    return qr_emu_memory_is_device(to) && qr_emu_memory_is_device(from);
}

static bool run_stream(struct qr_emu_stream *s, const struct qr_emu_event *until, int64_t count);

static bool run_graph(struct op *launch);

/* False: others must come first. */
static bool run_op(struct op *o)
{
    if (is_idle() && (o->kind == KERNEL || o->kind == HOST || (o->kind == COPY && is_within(o->to, o->from))))
        return true;
    if (o->kind != KERNEL && o->kind != RECORD)
        qr_emu_flight_settled(); /* each waits for all before it; so does a kernel behind it, but for those of a library */
    switch (o->kind) {
    case KERNEL: {
        const struct qr_emu_launch l = {.kernel = o->kernel, .grid = o->grid, .block = o->block, .shared_bytes = o->shared_bytes,
                                        .shared_room = o->shared_room, .body = o->body, .closure = o->closure, .closure_bytes = o->closure_bytes,
                                        .early = o->early};
        qr_emu_flight_begin(o->early);
        qr_emu_run(&l);
        qr_emu_clock_add(QR_EMU_KERNEL_US);
        break;
    }
    case HOST: o->body(o->closure); break;
    case PEERS: return o->try(o->closure);
    case COPY: memmove(o->to, o->closure_bytes ? o->closure : o->from, o->n); break;
    case FILL:
        if (o->value == 0)
            qr_emu_memory_zero(o->to, o->n);
        else
            memset(o->to, o->value, o->n);
        break;
    case RECORD:
        o->event->reached = o->count;
        o->event->at_us = r.clock_us;
        break;
    case WAIT:
        if (o->event->reached < o->count)
            run_stream(o->event->stream, o->event, o->count);
        return o->event->reached >= o->count;
    case GRAPH: return run_graph(o);
    }
    return true;
}

void qr_emu_clock_add(double us)
{
    r.clock_us += us;
}

static bool run_graph(struct op *launch)
{
    if (!launch->at)
        launch->at = launch->graph->ops.first;
    for (; launch->at; launch->at = launch->at->next) {
        struct op *o = (struct op *)(uintptr_t)launch->at;
        if (!run_op(o))
            return false;
    }
    qr_emu_flight_settled();
    return true;
}

/* Until the stream is empty, or the event was reached so many times. False: it waits for peers. */
static bool run_stream(struct qr_emu_stream *s, const struct qr_emu_event *until, int64_t count)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(!s->running); /* two streams that wait for each other */
    if (!s->ops.first)
        return true;
    bool going = true;
    s->running = true;
    qr_emu_memory_open();
    while (s->ops.first && going && !(until && until->reached >= count)) {
        struct op *o = s->ops.first;
        going = qr_emu_failed() || run_op(o);
        if (!going)
            break;
        s->ops.first = o->next;
        if (!s->ops.first)
            s->ops.last = &s->ops.first;
        free(o);
    }
    qr_emu_memory_close();
    s->running = false;
    return going;
}

/* As long as it takes. */
static void finish_stream(struct qr_emu_stream *s, const struct qr_emu_event *until, int64_t count)
{
    while (!run_stream(s, until, count))
        usleep(1000);
}

void qr_emu_run_all(void)
{
    finish_stream(&r.plain, NULL, 0);
    for (struct qr_emu_stream *s = r.streams; s; s = s->next)
        finish_stream(s, NULL, 0);
}

/* ---- asking ---- */

static struct op *new_op(enum kind kind, const void *closure, size_t closure_bytes)
{
    struct op *o = calloc(1, sizeof *o + closure_bytes);
    if (!o)
        qr_panic("emulator: out of memory");
    o->kind = kind;
    o->closure_bytes = closure_bytes;
    if (closure_bytes)
        memcpy(o->closure, closure, closure_bytes);
    return o;
}

static void append(struct list *l, struct op *o)
{
    if (!l->first)
        l->last = &l->first;
    *l->last = o;
    l->last = &o->next;
}

static struct qr_emu_stream *stream_of(void *stream)
{
    return stream ? stream : &r.plain;
}

void qr_emu_unsafe(const char *call)
{
    qr_emu_on_device(call);
    for (const struct qr_emu_stream *s = r.streams; s; s = s->next)
        if (s->capture)
            qr_emu_report("%s while this thread captures a stream", call);
}

static cudaError_t enqueue(void *stream, struct op *o)
{
    struct qr_emu_stream *s = stream_of(stream);
    qr_emu_on_device(o->kind == KERNEL ? "a launch" : "what is asked of a stream");
    if (s == &r.plain)
        qr_emu_unsafe("work for the stream 0");
    if (s->capture) {
        append(&s->capture->ops, o);
        return cudaSuccess;
    }
    if (s == &r.plain) /* after everything before it */
        qr_emu_run_all();
    append(&s->ops, o);
    if (r.eager || s == &r.plain)
        finish_stream(s, NULL, 0);
    return cudaSuccess;
}

/* NULL: there are too many. */
static struct function *function_of(const void *fn)
{
    for (int32_t i = 0; i < r.n_functions; i++)
        if (r.function[i].fn == fn)
            return &r.function[i];
    if (r.n_functions == FUNCTIONS_MAX)
        return NULL;
    r.function[r.n_functions] = (struct function){.fn = fn, .limit = QR_EMU_SHARED_PLAIN};
    return &r.function[r.n_functions++];
}

/* The runtime loads a kernel when it is met first, and loading is not among what a captured stream is promised to bear. */
static void meet(struct function *f, const char *kernel, bool captured)
{
    if (captured && !f->met)
        qr_emu_report("kernel %s is met first while its stream is captured: the runtime would load it there", kernel);
    f->met = true;
}

static bool too_large(struct qr_emu_dim3 g, struct qr_emu_dim3 b)
{
    const uint64_t n = (uint64_t)b.x * b.y * b.z;
    return n == 0 || n > QR_EMU_THREADS_MAX || b.z > 64 || g.x == 0 || g.y == 0 || g.z == 0 || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535;
}

void qr_emu_next_is_early(bool early)
{
    r.early = early;
}

void qr_emu_enqueue(const char *kernel, const void *fn, struct qr_emu_dim3 grid, struct qr_emu_dim3 block, size_t shared_bytes, void *stream,
                    const void *closure, size_t closure_bytes, void (*body)(const void *closure))
{
    const bool early = r.early && !r.eager; /* a launch that is waited for has none beside it */
    qr_emu_counted.launches++;
    r.early = false;
    if (too_large(grid, block)) {
        qr_emu_error(cudaErrorInvalidConfiguration);
        return;
    }
    if (shared_bytes > (size_t)qr_emu_shared_limit(fn)) {
        qr_emu_error(cudaErrorInvalidValue);
        return;
    }
    if (block.x * block.y * block.z % QR_EMU_WARP != 0)
        qr_emu_report("kernel %s: blocks of %u threads; here they are whole warps", kernel, block.x * block.y * block.z);
    struct function *f = function_of(fn);
    QR_ASSERT(f != NULL);
    meet(f, kernel, stream_of(stream)->capture != NULL);
    struct op *o = new_op(KERNEL, closure, closure_bytes);
    o->kernel = kernel;
    o->grid = grid;
    o->block = block;
    o->shared_bytes = shared_bytes;
    o->shared_room = (size_t)(f->allowed ? r.shared_most : QR_EMU_SHARED_PLAIN);
    o->body = body;
    o->early = early;
    enqueue(stream, o);
}

void qr_emu_enqueue_host(void *stream, const void *closure, size_t closure_bytes, void (*body)(const void *closure))
{
    struct op *o = new_op(HOST, closure, closure_bytes);
    o->body = body;
    enqueue(stream, o);
}

void qr_emu_enqueue_peers(void *stream, const void *closure, size_t closure_bytes, bool (*body)(const void *closure))
{
    struct op *o = new_op(PEERS, closure, closure_bytes);
    o->try = body;
    enqueue(stream, o);
}

/* Device memory outside of an allocation, or the wrong side of the bus. */
static void check_side(const void *p, size_t n, bool device, const char *what)
{
    const char *wrong = qr_emu_memory_check(p, n);
    if (wrong)
        qr_emu_report("%s: %zu bytes at %p are %s", what, n, p, wrong);
    if (qr_emu_memory_is_device(p) != device && !r.eager)
        qr_emu_report("%s: %p is memory of the %s", what, p, device ? "host" : "device");
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    if (n == 0)
        return cudaSuccess;
    qr_emu_counted.copies++;
    if (kind == cudaMemcpyDefault)
        kind = qr_emu_memory_is_device(to) ? (qr_emu_memory_is_device(from) ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                                           : (qr_emu_memory_is_device(from) ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
    check_side(to, n, kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice, "copy to");
    check_side(from, n, kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice, "copy from");
    const bool captured = stream_of(stream)->capture != NULL;
    const void *here = kind == cudaMemcpyHostToDevice ? from : kind == cudaMemcpyDeviceToHost ? to : NULL;
    if (captured && here && !r.eager && !qr_emu_memory_is_pinned(here, n))
        qr_emu_report("a copy is captured whose host memory is not pinned: the graph would read or write it each time");
    const bool staged = kind == cudaMemcpyHostToDevice && !captured && !qr_emu_memory_is_pinned(from, n);
    struct op *o = new_op(COPY, from, staged ? n : 0);
    o->to = to;
    o->from = from;
    o->n = n;
    enqueue(stream, o);
    if (kind == cudaMemcpyDeviceToHost && !captured && !qr_emu_memory_is_pinned(to, n))
        return cudaStreamSynchronize(stream);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind)
{
    qr_emu_counted.syncs++;
    qr_emu_run_all();
    return cudaMemcpyAsync(to, from, n, kind, NULL);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    if (width > to_pitch || width > from_pitch)
        return qr_emu_error(cudaErrorInvalidValue);
    cudaError_t e = cudaSuccess;
    for (size_t row = 0; row < height && e == cudaSuccess; row++)
        e = cudaMemcpyAsync((uint8_t *)to + row * to_pitch, (const uint8_t *)from + row * from_pitch, width, kind, stream);
    return e;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t n, cudaStream_t stream)
{
    if (n == 0)
        return cudaSuccess;
    check_side(to, n, true, "fill");
    struct op *o = new_op(FILL, NULL, 0);
    o->to = to;
    o->value = value;
    o->n = n;
    return enqueue(stream, o);
}

cudaError_t cudaMemset(void *to, int value, size_t n)
{
    return cudaMemsetAsync(to, value, n, NULL);
}

struct call {
    void (*fn)(void *user);
    void *user;
};

/* The host's own memory is what it works on: the device's stays open, as nobody else runs meanwhile. */
static void run_call(const void *closure)
{
    const struct call *c = closure;
    c->fn(c->user);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*fn)(void *user), void *user)
{
    const struct call c = {fn, user};
    qr_emu_enqueue_host(stream, &c, sizeof c, run_call);
    return cudaSuccess;
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
    QR_ASSERT(out != NULL);
    (void)flags;
    struct qr_emu_stream *s = qr_alloc(1, sizeof *s);
    s->next = r.streams;
    r.streams = s;
    *out = s;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithFlags(out, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned int flags, int priority)
{
    (void)priority;
    return cudaStreamCreateWithFlags(out, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    QR_ASSERT(stream != NULL);
    finish_stream(stream, NULL, 0);
    struct qr_emu_stream **at = &r.streams;
    while (*at && *at != stream)
        at = &(*at)->next;
    if (!*at)
        return qr_emu_error(cudaErrorInvalidValue);
    *at = stream->next;
    qr_free(stream);
    return cudaSuccess;
}

/* What a wait returns: a device that is lost does nothing any more. */
static cudaError_t waited(void)
{
    return qr_emu_trapped() ? qr_emu_error(cudaErrorLaunchFailure) : cudaSuccess;
}

/* What a stream that is captured cannot do. */
static bool refused(struct qr_emu_stream *s)
{
    if (s->capture)
        qr_emu_error(cudaErrorStreamCaptureUnsupported);
    return s->capture != NULL;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    struct qr_emu_stream *s = stream_of(stream);
    if (refused(s))
        return cudaErrorStreamCaptureUnsupported;
    qr_emu_counted.syncs++;
    finish_stream(s, NULL, 0);
    qr_emu_flight_settled();
    return waited();
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    struct qr_emu_stream *s = stream_of(stream);
    if (s->capture)
        qr_emu_report("cudaStreamQuery of a stream that is captured");
    return run_stream(s, NULL, 0) ? cudaSuccess : qr_emu_error(cudaErrorNotReady); /* time passes while one asks */
}

cudaError_t cudaDeviceSynchronize(void)
{
    qr_emu_unsafe("cudaDeviceSynchronize");
    qr_emu_counted.syncs++;
    qr_emu_run_all();
    return waited();
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags)
{
    QR_ASSERT(out != NULL);
    (void)flags;
    *out = qr_alloc(1, sizeof **out);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    QR_ASSERT(event != NULL);
    qr_emu_run_all();
    qr_free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    QR_ASSERT(event != NULL);
    struct qr_emu_stream *s = stream_of(stream);
    event->capture = s->capture;
    if (s->capture) /* a graph keeps one order anyway */
        return cudaSuccess;
    struct op *o = new_op(RECORD, NULL, 0);
    o->event = event;
    o->count = ++event->recorded;
    event->stream = s;
    return enqueue(stream, o);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    QR_ASSERT(event != NULL);
    (void)flags;
    struct qr_emu_stream *s = stream_of(stream);
    if (event->capture) { /* a captured stream draws the other one in */
        s->capture = event->capture;
        return cudaSuccess;
    }
    if (event->recorded == 0 || event->stream == s)
        return cudaSuccess;
    struct op *o = new_op(WAIT, NULL, 0);
    o->event = event;
    o->count = event->recorded;
    return enqueue(stream, o);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    QR_ASSERT(event != NULL);
    qr_emu_counted.syncs++;
    if (event->reached < event->recorded)
        finish_stream(event->stream, event, event->recorded);
    return waited();
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    QR_ASSERT(event != NULL);
    qr_emu_unsafe("cudaEventQuery");
    if (event->reached < event->recorded)
        run_stream(event->stream, event, event->recorded); /* time passes while one asks */
    return event->reached < event->recorded ? qr_emu_error(cudaErrorNotReady) : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    QR_ASSERT(ms != NULL && begin != NULL && end != NULL);
    const double us = end->at_us - begin->at_us;
    *ms = us > 1 ? (float)(us * 1e-3) : 1e-3f;
    return cudaSuccess;
}

/* ---- graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    if (!stream || stream->capture)
        return qr_emu_error(cudaErrorStreamCaptureUnsupported);
    stream->capture = qr_alloc(1, sizeof *stream->capture);
    stream->began = true;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    QR_ASSERT(out != NULL);
    if (!stream || !stream->capture || !stream->began)
        return qr_emu_error(cudaErrorInvalidValue);
    *out = stream->capture;
    for (struct qr_emu_stream *s = r.streams; s; s = s->next)
        if (s->capture == *out)
            s->capture = NULL;
    stream->began = false;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out)
{
    QR_ASSERT(out != NULL);
    *out = stream_of(stream)->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

static struct op *copy_op(const struct op *from)
{
    struct op *o = new_op(from->kind, from->closure, from->closure_bytes);
    const size_t head = offsetof(struct op, closure);
    memcpy(o, from, head);
    o->next = NULL;
    return o;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    QR_ASSERT(out != NULL && graph != NULL);
    (void)flags;
    *out = qr_alloc(1, sizeof **out);
    for (const struct op *o = graph->ops.first; o; o = o->next)
        append(&(*out)->ops, copy_op(o));
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t stream)
{
    QR_ASSERT(graph != NULL);
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    QR_ASSERT(graph != NULL);
    qr_emu_counted.graph_launches++;
    struct op *o = new_op(GRAPH, NULL, 0);
    o->graph = graph;
    return enqueue(stream, o);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    if (!graph)
        return qr_emu_error(cudaErrorInvalidValue);
    while (graph->ops.first) {
        struct op *o = graph->ops.first;
        graph->ops.first = o->next;
        free(o);
    }
    qr_free(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    qr_emu_run_all();
    return cudaGraphDestroy(graph);
}

/* ---- functions ---- */

void qr_emu_set_code(bool there)
{
    r.no_code = !there;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *kernel)
{
    QR_ASSERT(out != NULL && kernel != NULL);
    *out = (struct cudaFuncAttributes){.maxDynamicSharedSizeBytes = qr_emu_shared_limit(kernel)};
    return r.no_code ? qr_emu_error(cudaErrorNoKernelImageForDevice) : cudaSuccess;
}

int32_t qr_emu_shared_limit(const void *fn)
{
    const struct function *f = function_of(fn);
    return f ? f->limit : QR_EMU_SHARED_PLAIN;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    QR_ASSERT(kernel != NULL);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaSuccess;
    struct function *f = function_of(kernel);
    if (value < 0 || value > r.shared_most || !f)
        return qr_emu_error(cudaErrorInvalidValue);
    f->limit = value;
    f->allowed = true;
    return cudaSuccess;
}
