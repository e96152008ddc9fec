/* peers.c - the devices of several ranks over NCCL, which is opened when the first group is named or joined (QUIRE_NCCL_LIB, or libnccl.so.2 where the loader
 * finds it). Host code only.
 *
 * NCCL adds in an order of its own choosing, which depends on how many elements there are and where one lies; with two ranks there is only one order. With
 * more, ranks therefore send each other their terms and add them here (peer_sum.cu), in the order that peers.h promises: small arrays whole, large ones
 * cut into a part for each rank, which then hands its sums on. That is as many bytes as a ring would send.
 *
 * Joining a group and leaving it wait for the others inside of NCCL, which does not see a rank that never comes: a
 * thread does that, and this one looks after it. */
#include "kernels/cuda/peers.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "kernels/cuda/nccl.h"
#include "kernels/cuda/queue.h"

#if defined(__has_include) && !defined(QR_CUDA_EMU)
#if __has_include(<nccl.h>)
#include <nccl.h>
_Static_assert((int)ncclInProgress == QR_NCCL_IN_PROGRESS && (int)ncclFloat32 == QR_NCCL_FLOAT32 && (int)ncclInt8 == QR_NCCL_INT8, "as NVIDIA numbers them");
_Static_assert((int)ncclSum == QR_NCCL_SUM && (int)ncclSuccess == QR_NCCL_SUCCESS && sizeof(ncclUniqueId) == sizeof(struct qr_nccl_id), "likewise");
#endif
#endif

#define RANKS_MAX 64
#define SCRATCH_FLOATS ((int64_t)4 << 20) /* terms of others: 16 MiB */
#define WHOLE_FLOATS ((int64_t)1 << 14)   /* sums of so few travel whole: one exchange instead of two */
#define LOOK_NS 2000000                   /* how often a waiting thread asks whether all ranks are well */
#define END_TURNS 2000                    /* looks at a group that ends */
#define END_TURN_US 100

struct qr_peers {
    struct qr_queue *q;          /* borrowed */
    struct qr_nccl n;
    void *library;               /* owned */
    struct qr_nccl_group *group; /* owned; NULL once it was given up */
    int32_t rank, size;
    float *scratch;              /* owned [SCRATCH_FLOATS], the device's */
    cudaStream_t stream;         /* where calls go now: the queue's or `aside` */
    cudaStream_t aside;          /* owned */
    cudaEvent_t begun, ended;    /* owned: of what goes aside */
    bool (*lost)(void *user, char message[QR_PEERS_MESSAGE]);
    void *user;
    bool failed;
    char why[QR_PEERS_MESSAGE];
};

/* ---- the library ---- */

static bool open_library(void **library, struct qr_nccl *n, char message[QR_PEERS_MESSAGE])
{
    const char *named = getenv("QUIRE_NCCL_LIB"), *file = named && *named ? named : "libnccl.so.2";
    int version = 0;
    *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!*library) {
        snprintf(message, QR_PEERS_MESSAGE, "NCCL, through which several GPUs compute together, cannot be opened (%.200s); install it (libnccl2), name it in "
                 "QUIRE_NCCL_LIB, or use one GPU", dlerror());
        return false;
    }
    const char *missing = NULL;
#define QR_NCCL_FIND(result, name, symbol, arguments)                                                                                \
    if (!(*(void **)(void *)&n->name = dlsym(*library, #symbol)))                                                                     \
        missing = missing ? missing : #symbol;
    QR_NCCL_FUNCTIONS(QR_NCCL_FIND)
    if (n->get_version && n->get_version(&version) == QR_NCCL_SUCCESS && version < QR_NCCL_VERSION_MIN)
        snprintf(message, QR_PEERS_MESSAGE, "NCCL %d.%d (%.200s) is too old; 2.14 and newer are used", version / (version < 10000 ? 1000 : 10000),
                 version / 100 % (version < 10000 ? 10 : 100), file);
    else if (missing)
        snprintf(message, QR_PEERS_MESSAGE, "%.200s is no NCCL of 2.14 or newer: it has no %s", file, missing);
    else
        return true;
    dlclose(*library);
    *library = NULL;
    return false;
}

bool qr_cuda_peers_there(char message[QR_PEERS_MESSAGE])
{
    struct qr_nccl n;
    void *library;
    QR_ASSERT(message != NULL);
    const bool there = open_library(&library, &n, message);
    QR_ASSERT(there == (library != NULL));
    if (library)
        dlclose(library);
    return there;
}

static bool peers_id(uint8_t id[QR_PEERS_ID_BYTES], char message[QR_PEERS_MESSAGE])
{
    struct qr_nccl n;
    struct qr_nccl_id name;
    void *library;
    QR_ASSERT(id != NULL && message != NULL);
    _Static_assert(sizeof name == QR_PEERS_ID_BYTES, "an id is NCCL's");
    if (!open_library(&library, &n, message))
        return false;
    const int rc = n.get_id(&name);
    if (rc != QR_NCCL_SUCCESS)
        snprintf(message, QR_PEERS_MESSAGE, "NCCL gives a group no name: %.100s", n.error_text(rc));
    memcpy(id, &name, sizeof name);
    return rc == QR_NCCL_SUCCESS; /* the library stays open: it waits for the others under that name */
}

/* ---- what goes wrong ---- */

/* The end of a group that was given up. Two own it: the thread that ends the group, and the one that waits a little for
 * that. */
struct ending {
    int (*abort)(struct qr_nccl_group *g);
    struct qr_nccl_group *group;
    int32_t device;
    _Atomic int32_t owners;
};

static void ending_drop(struct ending *e)
{
    if (atomic_fetch_sub(&e->owners, 1) == 1)
        free(e);
}

static void *end(void *arg)
{
    struct ending *e = arg;
    if (cudaSetDevice(e->device) == cudaSuccess)
        (void)e->abort(e->group);
    ending_drop(e);
    return NULL;
}

/* NCCL ends what its kernels do at once, but returns only when every recorded graph that has calls of the group is gone (ncclCommAbort, of 2.18 and 2.28
 * alike): these are released later, by the thread that is here. */
static void end_soon(struct qr_peers *p)
{
    struct ending *e = malloc(sizeof *e);
    pthread_t thread;
    if (!e)
        return;
    *e = (struct ending){.abort = p->n.abort, .group = p->group, .device = p->q->index, .owners = 2};
    if (pthread_create(&thread, NULL, end, e) != 0) {
        free(e);
        return;
    }
    pthread_detach(thread);
    for (int i = 0; i < END_TURNS && atomic_load(&e->owners) == 2; i++)
        usleep(END_TURN_US);
    ending_drop(e);
}

/* The first reason stays. What is queued between ranks ends, and with it every wait for the queue. */
static void give_up(struct qr_peers *p, const char *what, const char *why)
{
    if (p->failed)
        return;
    p->failed = true;
    snprintf(p->why, sizeof p->why, "%.80s: %.300s", what, why);
    if (p->group)
        end_soon(p);
    p->group = NULL;
}

static bool look(struct qr_peers *p)
{
    char message[QR_PEERS_MESSAGE];
    int error = QR_NCCL_SUCCESS;
    if (p->failed || !p->group)
        return p->failed;
    const int rc = p->n.get_error(p->group, &error);
    if (rc != QR_NCCL_SUCCESS || (error != QR_NCCL_SUCCESS && error != QR_NCCL_IN_PROGRESS)) {
        snprintf(message, sizeof message, "%.60s: %.300s", p->n.error_text(rc != QR_NCCL_SUCCESS ? rc : error), p->n.last_error(p->group));
        give_up(p, "NCCL", message);
    } else if (p->lost && p->lost(p->user, message)) {
        give_up(p, "devices of several ranks", message);
    }
    return p->failed;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void settle(struct qr_peers *p, int rc, const char *what)
{
    if (p->q)
        p->q->follows = false; /* whatever comes next waits for it */
    if (!p->failed && rc != QR_NCCL_SUCCESS)
        give_up(p, what, p->n.error_text(rc));
}

/* A call that waits for the other ranks, and how far it is. */
struct meeting {
    struct qr_nccl n;
    struct qr_nccl_group *group;
    struct qr_nccl_id id;
    int32_t device, rank, size;
    bool leaves;
    int rc;
    _Atomic bool over;
};

static void *meet(void *arg)
{
    struct meeting *m = arg;
    m->rc = cudaSetDevice(m->device) == cudaSuccess ? QR_NCCL_SUCCESS : 1; /* ncclUnhandledCudaError */
    if (m->rc == QR_NCCL_SUCCESS && m->leaves)
        m->rc = m->n.finalize(m->group);
    else if (m->rc == QR_NCCL_SUCCESS)
        m->rc = m->n.init(&m->group, m->size, m->id, m->rank);
    if (m->rc == QR_NCCL_SUCCESS && m->leaves)
        m->rc = m->n.destroy(m->group);
    atomic_store(&m->over, true);
    return NULL;
}

/* In a thread, which is left to itself when a rank is lost meanwhile: the process ends soon, then. */
static void meet_watched(struct qr_peers *p, struct meeting *m, const char *what)
{
    pthread_t thread;
    char why[QR_PEERS_MESSAGE];
    if (pthread_create(&thread, NULL, meet, m) != 0) {
        give_up(p, what, "no thread");
        free(m);
        return;
    }
    for (int64_t next = now_ns() + LOOK_NS; !p->failed && !atomic_load(&m->over);) {
        usleep(100);
        if (now_ns() < next)
            continue;
        next = now_ns() + LOOK_NS;
        if (p->lost && p->lost(p->user, why) && !atomic_load(&m->over))
            give_up(p, "devices of several ranks", why);
    }
    if (p->failed) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    p->group = m->leaves ? NULL : m->group;
    settle(p, m->rc, what);
    free(m);
}

static struct meeting *meeting_new(const struct qr_peers *p, bool leaves)
{
    struct meeting *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->n = p->n;
    m->group = p->group;
    m->device = p->q->index;
    m->rank = p->rank;
    m->size = p->size;
    m->leaves = leaves;
    return m;
}

static void await(struct qr_peers *p, cudaError_t (*query)(struct qr_queue *q, cudaEvent_t event), cudaEvent_t event)
{
    int64_t next = now_ns() + LOOK_NS;
    while (!p->failed && query(p->q, event) == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* "not ready" is no error */
        if (now_ns() >= next) {
            (void)look(p);
            next = now_ns() + LOOK_NS;
        }
    }
}

static cudaError_t query_event(struct qr_queue *q, cudaEvent_t event)
{
    (void)q;
    return cudaEventQuery(event);
}

static cudaError_t query_stream(struct qr_queue *q, cudaEvent_t event)
{
    (void)event;
    return cudaStreamQuery(q->stream);
}

void qr_cuda_peers_await(struct qr_peers *p, cudaEvent_t event)
{
    QR_ASSERT(p == NULL || p->q != NULL);
    if (p)
        await(p, event ? query_event : query_stream, event);
}

/* ---- sums and copies ---- */

/* A group is ended whatever went wrong in it: inside one that is open giving up would only be noted, for its end. */
static void end_group(struct qr_peers *p, int rc, const char *what)
{
    const int end = p->n.group_end();
    settle(p, rc, what);
    settle(p, end, "ncclGroupEnd");
}

/* Every rank's stretch of `to` behind the others': rank r has [part[r], part[r + 1]) units of `width` bytes. */
static void exchange_parts(struct qr_peers *p, char *to, const int64_t *part, size_t width)
{
    int rc = p->n.group_begin();
    for (int32_t r = 0; r < p->size && rc == QR_NCCL_SUCCESS; r++) {
        const size_t mine = (size_t)(part[p->rank + 1] - part[p->rank]) * width, theirs = (size_t)(part[r + 1] - part[r]) * width;
        if (r != p->rank && mine > 0)
            rc = p->n.send(to + (size_t)part[p->rank] * width, mine, QR_NCCL_INT8, r, p->group, p->stream);
        if (r != p->rank && theirs > 0 && rc == QR_NCCL_SUCCESS)
            rc = p->n.receive(to + (size_t)part[r] * width, theirs, QR_NCCL_INT8, r, p->group, p->stream);
    }
    end_group(p, rc, "ncclSend or ncclRecv");
}

static void share(struct qr_peers *p, void *data, const int64_t *part, size_t width)
{
    const int64_t n = part[1] - part[0];
    bool alike = true;
    for (int32_t r = 0; r < p->size; r++)
        alike = alike && part[r + 1] - part[r] == n;
    if (p->failed || part[p->size] == part[0])
        return;
    if (!alike)
        exchange_parts(p, data, part, width);
    else
        settle(p, p->n.all_gather((char *)data + (size_t)part[p->rank] * width, data, (size_t)n * width, QR_NCCL_INT8, p->group, p->stream), "ncclAllGather");
}

/* Elements [at, at + n) of every part; each rank sends others theirs and gets its own from all. */
static void exchange_terms(struct qr_peers *p, const float *data, const int64_t *part, int64_t at, int64_t most)
{
    int rc = p->n.group_begin();
    for (int32_t r = 0; r < p->size && rc == QR_NCCL_SUCCESS; r++) {
        const int64_t left = part[r + 1] - part[r] - at, theirs = left < most ? left : most;
        const int64_t own = part[p->rank + 1] - part[p->rank] - at, mine = own < most ? own : most;
        if (r != p->rank && theirs > 0)
            rc = p->n.send(data + part[r] + at, (size_t)theirs, QR_NCCL_FLOAT32, r, p->group, p->stream);
        if (r != p->rank && mine > 0 && rc == QR_NCCL_SUCCESS)
            rc = p->n.receive(p->scratch + r * most, (size_t)mine, QR_NCCL_FLOAT32, r, p->group, p->stream);
    }
    end_group(p, rc, "ncclSend or ncclRecv");
}

static void peers_sum_parts(struct qr_peers *p, float *data, const int64_t *part)
{
    QR_ASSERT(p != NULL && part != NULL);
    QR_ASSERT(data != NULL || part[p->size] == 0);
    const int64_t most = SCRATCH_FLOATS / p->size, own = part[p->rank + 1] - part[p->rank];
    int64_t longest = 0;
    for (int32_t r = 0; r < p->size; r++)
        longest = part[r + 1] - part[r] > longest ? part[r + 1] - part[r] : longest;
    for (int64_t at = 0; at < longest && p->size > 1 && !p->failed; at += most) {
        float *mine = data + part[p->rank] + at;
        const int64_t n = own - at < most ? own - at : most;
        exchange_terms(p, data, part, at, most);
        if (n > 0)
            qr_cuda_peer_sum(p->stream, mine, mine, p->scratch, most, n, p->rank, p->size);
    }
}

static void peers_sum(struct qr_peers *p, float *data, int64_t n)
{
    int64_t part[RANKS_MAX + 1];
    QR_ASSERT(p != NULL && n >= 0);
    QR_ASSERT(data != NULL || n == 0);
    if (n == 0 || p->size == 1 || p->failed)
        return;
    if (p->size == 2) {
        settle(p, p->n.all_reduce(data, data, (size_t)n, QR_NCCL_FLOAT32, QR_NCCL_SUM, p->group, p->stream), "ncclAllReduce");
        return;
    }
    if (n <= WHOLE_FLOATS) {
        _Static_assert(WHOLE_FLOATS * RANKS_MAX <= SCRATCH_FLOATS, "of all ranks");
        settle(p, p->n.all_gather(data, p->scratch, (size_t)n, QR_NCCL_FLOAT32, p->group, p->stream), "ncclAllGather");
        qr_cuda_peer_sum(p->stream, data, data, p->scratch, n, n, p->rank, p->size);
        return;
    }
    for (int32_t r = 0; r <= p->size; r++)
        part[r] = n * r / p->size;
    peers_sum_parts(p, data, part);
    share(p, data, part, sizeof *data);
}

static void peers_share_parts(struct qr_peers *p, void *data, const int64_t *part)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(part != NULL && (data != NULL || part[p->size] == 0));
    if (p->size > 1)
        share(p, data, part, 1);
}

static void peers_broadcast(struct qr_peers *p, void *data, size_t n_bytes)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(data != NULL || n_bytes == 0);
    if (p->size > 1 && n_bytes > 0 && !p->failed)
        settle(p, p->n.broadcast(data, data, n_bytes, QR_NCCL_INT8, 0, p->group, p->stream), "ncclBroadcast");
}

static void peers_gather(struct qr_peers *p, void *to, const void *from, const int64_t *part)
{
    QR_ASSERT(p != NULL && part != NULL);
    QR_ASSERT(p->rank == 0 ? to != NULL : from != NULL);
    if (p->size == 1 || p->failed)
        return;
    int rc = p->n.group_begin();
    const size_t mine = (size_t)(part[p->rank + 1] - part[p->rank]);
    if (p->rank > 0 && mine > 0 && rc == QR_NCCL_SUCCESS)
        rc = p->n.send(from, mine, QR_NCCL_INT8, 0, p->group, p->stream);
    for (int32_t r = 1; p->rank == 0 && r < p->size && rc == QR_NCCL_SUCCESS; r++)
        if (part[r + 1] > part[r])
            rc = p->n.receive((char *)to + part[r], (size_t)(part[r + 1] - part[r]), QR_NCCL_INT8, r, p->group, p->stream);
    end_group(p, rc, "ncclSend or ncclRecv");
}

/* ---- beside the queue ---- */

static void peers_aside(struct qr_peers *p, bool begins)
{
    QR_ASSERT(p != NULL && p->q != NULL);
    QR_ASSERT(begins == (p->stream == p->q->stream));
    if (begins) {
        QR_CUDA_CHECK(cudaEventRecord(p->begun, p->q->stream));
        QR_CUDA_CHECK(cudaStreamWaitEvent(p->aside, p->begun, 0));
    }
    p->stream = begins ? p->aside : p->q->stream;
}

static void peers_join(struct qr_peers *p)
{
    QR_ASSERT(p != NULL && p->q != NULL);
    QR_ASSERT(p->stream == p->q->stream);
    QR_CUDA_CHECK(cudaEventRecord(p->ended, p->aside));
    QR_CUDA_CHECK(cudaStreamWaitEvent(p->q->stream, p->ended, 0));
    p->q->follows = false;
}

/* ---- opening and closing ---- */

static bool peers_failed(struct qr_peers *p, char message[QR_PEERS_MESSAGE])
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(message != NULL);
    if (look(p))
        memcpy(message, p->why, sizeof p->why);
    return p->failed;
}

/* The queue is done first; what others still want of this rank they have got when the group says that it is over. */
static void peers_close(struct qr_peers *p)
{
    if (!p)
        return;
    if (p->aside)
        peers_join(p);
    qr_cuda_peers_await(p, NULL);
    struct meeting *m = !p->failed && p->group ? meeting_new(p, true) : NULL;
    if (m) {
        p->group = NULL; /* it is the thread's, which alone gives it up */
        meet_watched(p, m, "ncclCommDestroy");
    }
    p->q->peers = NULL;
    QR_CUDA_CHECK(cudaStreamSynchronize(p->q->stream));
    if (p->scratch)
        QR_CUDA_CHECK(cudaFree(p->scratch));
    if (p->begun)
        QR_CUDA_CHECK(cudaEventDestroy(p->begun));
    if (p->ended)
        QR_CUDA_CHECK(cudaEventDestroy(p->ended));
    if (p->aside)
        QR_CUDA_CHECK(cudaStreamDestroy(p->aside));
    free(p); /* the library stays: threads of its own may be in it */
}

static bool peers_open(struct qr_peers **out, struct qr_queue *q, const struct qr_peers_options *o, char message[QR_PEERS_MESSAGE])
{
    QR_ASSERT(out != NULL && q != NULL && q->peers == NULL);
    QR_ASSERT(o != NULL && o->id != NULL && o->size >= 1 && o->size <= RANKS_MAX && o->rank >= 0 && o->rank < o->size);
    struct qr_peers *p = calloc(1, sizeof *p);
    if (!p || !open_library(&p->library, &p->n, message)) {
        if (!p)
            snprintf(message, QR_PEERS_MESSAGE, "out of memory");
        free(p);
        return false;
    }
    p->q = q;
    p->stream = q->stream;
    p->rank = o->rank;
    p->size = o->size;
    p->lost = o->lost;
    p->user = o->user;
    q->peers = p;
    struct meeting *m = meeting_new(p, false);
    if (m) {
        memcpy(&m->id, o->id, sizeof m->id);
        meet_watched(p, m, "ncclCommInitRank");
    } else {
        give_up(p, "ncclCommInitRank", "out of memory");
    }
    if (p->failed) {
        memcpy(message, p->why, sizeof p->why);
        peers_close(p);
        return false;
    }
    QR_CUDA_CHECK(cudaStreamCreateWithFlags(&p->aside, cudaStreamNonBlocking));
    QR_CUDA_CHECK(cudaEventCreateWithFlags(&p->begun, cudaEventDisableTiming));
    QR_CUDA_CHECK(cudaEventCreateWithFlags(&p->ended, cudaEventDisableTiming));
    if (o->size > 1)
        QR_CUDA_CHECK(cudaMalloc((void **)&p->scratch, (size_t)SCRATCH_FLOATS * sizeof *p->scratch));
    *out = p;
    return true;
}

const struct qr_peer_ops qr_cuda_peer_ops = {
    .id = peers_id, .open = peers_open, .sum = peers_sum, .sum_parts = peers_sum_parts, .share_parts = peers_share_parts, .broadcast = peers_broadcast,
    .gather = peers_gather, .aside = peers_aside, .join = peers_join, .failed = peers_failed, .close = peers_close};
