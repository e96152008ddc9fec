/* nccl.c - NCCL between emulated devices, one in each process, over shared memory: the functions that kernels/cuda/peers.c looks up in the library which
 * QUIRE_NCCL_LIB names, and that is the emulated plugin itself.
 *
 * From every rank to every other one leads a pipe. Calls are operations of streams; each is a number of messages sent and received side by side, and perhaps
 * a sum of what came, in the order of ranks. A message says what it is part of, so that ranks that call different things find out; a rank that has
 * died is seen, and both are errors that ncclCommGetAsyncError tells of, of every rank. QUIRE_EMU_NCCL=silent: deaths are not seen, as by NCCL on one machine;
 * then a stream that needs the dead waits until the group is given up. QUIRE_EMU_NCCL=old: a version that is refused.
 *
 * The memory has no name: others open it through /proc by what an id says. */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"
#include "kernels/cuda/nccl.h"
#include "tests/cuda_emu/core.h"

#define RANKS_MAX 8
#define PIPE_BYTES 65536
#define TRANSFERS_MAX (2 * RANKS_MAX)
#define INVALID_USAGE 5
#define REMOTE_ERROR 6

#define QR_NCCL_DECLARE(result, name, symbol, arguments) result symbol arguments;
QR_NCCL_FUNCTIONS(QR_NCCL_DECLARE)

struct name { /* what an id holds */
    int32_t pid, fd;
};

struct pipe {
    _Atomic uint64_t written, read;
    uint8_t data[PIPE_BYTES];
};

struct board {
    _Atomic int32_t n_joined, n_done;
    _Atomic int32_t pid[RANKS_MAX];
    _Atomic int32_t error; /* of whoever found one first */
    char why[200];
    struct pipe pipe[RANKS_MAX][RANKS_MAX]; /* from, to */
};

struct qr_nccl_group {
    struct board *board;
    int32_t rank, size;
    bool given_up, silent;
    int pidfd[RANKS_MAX];
    struct qr_nccl_group *next; /* given up before */
};

/* ---- groups ---- */

int ncclGetVersion(int *version)
{
    const char *fault = getenv("QUIRE_EMU_NCCL");
    *version = fault && strcmp(fault, "old") == 0 ? 21212 : 22803;
    return QR_NCCL_SUCCESS;
}

const char *ncclGetErrorString(int error)
{
    return error == REMOTE_ERROR ? "remote process exited" : error == INVALID_USAGE ? "invalid usage" : "no error";
}

const char *ncclGetLastError(struct qr_nccl_group *g)
{
    return g ? g->board->why : "";
}

int ncclGetUniqueId(struct qr_nccl_id *id)
{
    const int fd = memfd_create("quire-emulated-nccl", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(struct board)) != 0)
        qr_panic("emulator: no memory for a group");
    const struct name n = {(int32_t)getpid(), fd};
    memset(id, 0, sizeof *id);
    memcpy(id, &n, sizeof n);
    return QR_NCCL_SUCCESS;
}

int ncclCommInitRank(struct qr_nccl_group **out, int size, struct qr_nccl_id id, int rank)
{
    struct name n;
    char path[64];
    const char *fault = getenv("QUIRE_EMU_NCCL");
    memcpy(&n, &id, sizeof n);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)n.pid, (int)n.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || size > RANKS_MAX)
        return INVALID_USAGE;
    struct qr_nccl_group *g = qr_alloc(1, sizeof *g);
    g->board = mmap(NULL, sizeof *g->board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    QR_ASSERT(g->board != MAP_FAILED);
    g->rank = rank;
    g->size = size;
    g->silent = fault && strcmp(fault, "silent") == 0;
    for (int32_t r = 0; r < size; r++)
        g->pidfd[r] = -1;
    atomic_store(&g->board->pid[rank], (int32_t)getpid());
    atomic_fetch_add(&g->board->n_joined, 1);
    while (atomic_load(&g->board->n_joined) < size)
        usleep(1000);
    *out = g;
    return QR_NCCL_SUCCESS;
}

static void set_error(struct qr_nccl_group *g, int32_t error, const char *why)
{
    int32_t none = 0;
    if (atomic_compare_exchange_strong(&g->board->error, &none, error))
        snprintf(g->board->why, sizeof g->board->why, "%s", why);
}

static bool is_dead(struct qr_nccl_group *g, int32_t r)
{
    if (g->pidfd[r] < 0 && atomic_load(&g->board->pid[r]) > 0)
        g->pidfd[r] = (int)syscall(SYS_pidfd_open, atomic_load(&g->board->pid[r]), 0);
    if (g->pidfd[r] < 0)
        return atomic_load(&g->board->pid[r]) > 0;
    struct pollfd f = {.fd = g->pidfd[r], .events = POLLIN};
    return poll(&f, 1, 0) > 0;
}

int ncclCommGetAsyncError(struct qr_nccl_group *g, int *error)
{
    *error = atomic_load(&g->board->error);
    return QR_NCCL_SUCCESS;
}

static void leave(struct qr_nccl_group *g)
{
    for (int32_t r = 0; r < g->size; r++)
        if (g->pidfd[r] >= 0)
            close(g->pidfd[r]);
    munmap(g->board, sizeof *g->board);
    qr_free(g);
}

int ncclCommFinalize(struct qr_nccl_group *g)
{
    atomic_fetch_add(&g->board->n_done, 1);
    while (atomic_load(&g->board->n_done) < g->size)
        usleep(1000);
    return QR_NCCL_SUCCESS;
}

int ncclCommDestroy(struct qr_nccl_group *g)
{
    leave(g);
    return QR_NCCL_SUCCESS;
}

static struct qr_nccl_group *given_up;

/* Operations may still name it. */
int ncclCommAbort(struct qr_nccl_group *g)
{
    g->given_up = true;
    g->next = given_up;
    given_up = g;
    return QR_NCCL_SUCCESS;
}

/* ---- operations ---- */

struct head { /* before every message */
    int64_t n_bytes;
    int32_t kind, type;
};

enum { SEND, ALL_REDUCE, ALL_GATHER, BROADCAST };
static const char *const kind_name[] = {"Send and Recv", "AllReduce", "AllGather", "Broadcast"};

struct transfer {
    bool sends;
    int32_t peer;
    size_t n_bytes;
    const uint8_t *from;
    uint8_t *to; /* NULL: room of the operation's own */
    size_t at;   /* bytes that went, the head's first */
    struct head head;
    uint8_t *room;
};

struct operation {
    struct qr_nccl_group *g;
    int32_t kind, type, n;
    const float *own; /* of a sum: this rank's terms */
    float *sum;
    size_t n_sum;
    struct transfer t[TRANSFERS_MAX];
};

/* As much as goes now; whether anything did. */
static bool push(struct pipe *p, struct transfer *t)
{
    const size_t total = sizeof t->head + t->n_bytes;
    const uint64_t written = atomic_load(&p->written), room = PIPE_BYTES - (written - atomic_load(&p->read));
    size_t n = total - t->at < room ? total - t->at : (size_t)room, done = 0;
    for (; done < n; done++, t->at++)
        p->data[(written + done) % PIPE_BYTES] = t->at < sizeof t->head ? ((const uint8_t *)&t->head)[t->at] : t->from[t->at - sizeof t->head];
    atomic_store(&p->written, written + done);
    return n > 0;
}

static bool pull(struct operation *o, struct pipe *p, struct transfer *t)
{
    char why[200];
    const size_t total = sizeof t->head + t->n_bytes;
    const uint64_t read = atomic_load(&p->read), there = atomic_load(&p->written) - read;
    size_t n = total - t->at < there ? total - t->at : (size_t)there, done = 0;
    for (; done < n; done++, t->at++) {
        const uint8_t byte = p->data[(read + done) % PIPE_BYTES];
        if (t->at < sizeof t->head)
            ((uint8_t *)&t->head)[t->at] = byte;
        else
            t->to[t->at - sizeof t->head] = byte;
        if (t->at + 1 == sizeof t->head && (t->head.n_bytes != (int64_t)t->n_bytes || t->head.kind != o->kind || t->head.type != o->type)) {
            snprintf(why, sizeof why, "rank %d calls %s of %zu bytes, rank %d %s of %lld bytes%s", o->g->rank, kind_name[o->kind], t->n_bytes, t->peer,
                     kind_name[t->head.kind], (long long)t->head.n_bytes, t->head.type != o->type ? ", of another type" : "");
            set_error(o->g, INVALID_USAGE, why);
            return false;
        }
    }
    atomic_store(&p->read, read + done);
    return n > 0;
}

/* In the order of ranks. */
static void add_up(struct operation *o)
{
    for (size_t i = 0; i < o->n_sum; i++) {
        float sum = 0;
        for (int32_t r = 0; r < o->g->size; r++) {
            const float *term = o->own;
            for (int32_t k = 0; k < o->n; k++)
                if (!o->t[k].sends && o->t[k].peer == r)
                    term = (const float *)(const void *)o->t[k].room;
            sum = r == 0 ? term[i] : sum + term[i];
        }
        o->sum[i] = sum;
    }
}

/* Whether all is through. */
static bool progress(struct operation *o, bool *moved)
{
    bool over = true;
    *moved = false;
    for (int32_t i = 0; i < o->n; i++) {
        struct transfer *t = &o->t[i];
        if (t->at == sizeof t->head + t->n_bytes)
            continue;
        struct board *b = o->g->board;
        *moved = (t->sends ? push(&b->pipe[o->g->rank][t->peer], t) : pull(o, &b->pipe[t->peer][o->g->rank], t)) || *moved;
        over = over && t->at == sizeof t->head + t->n_bytes;
    }
    return over;
}

/* While the others live they will come, and are waited for: as a device would go on by itself, and nothing here does. */
static bool run(const void *closure)
{
    struct operation o = *(const struct operation *)closure;
    struct qr_nccl_group *g = o.g;
    bool over = false, waits = false;
    for (int32_t i = 0; i < o.n; i++) {
        o.t[i].head = (struct head){(int64_t)o.t[i].n_bytes, o.kind, o.type};
        if (!o.t[i].sends && !o.t[i].to)
            o.t[i].to = o.t[i].room = qr_alloc(o.t[i].n_bytes, 1);
    }
    for (int64_t idle = 0; !g->given_up && !atomic_load(&g->board->error) && !waits && !over;) {
        bool moved;
        over = progress(&o, &moved);
        idle = moved ? 0 : idle + 1;
        if (idle > 50)
            usleep(50);
        else if (idle > 0)
            sched_yield();
        for (int32_t r = 0; idle > 100 && idle % 100 == 0 && r < g->size; r++) {
            if (r == g->rank || !is_dead(g, r))
                continue;
            waits = g->silent;
            if (!waits)
                set_error(g, REMOTE_ERROR, "a rank's process has ended");
        }
    }
    if (over && o.sum)
        add_up(&o);
    for (int32_t i = 0; i < o.n; i++)
        qr_free(o.t[i].room);
    return !waits;
}

/* ---- calls ---- */

/* A group's sends and receives are one operation. One thread calls. */
static struct {
    int32_t depth;
    struct operation o;
    cudaStream_t stream;
} pending;

static size_t width(int type)
{
    return type == QR_NCCL_FLOAT32 ? sizeof(float) : 1;
}

static void check_memory(const void *p, size_t n, const char *what)
{
    const char *wrong = qr_emu_memory_check(p, n);
    if (wrong || (n > 0 && !qr_emu_memory_is_device(p)))
        qr_emu_report("nccl%s: %zu bytes at %p are %s", what, n, p, wrong ? wrong : "memory of the host");
}

static void add(struct operation *o, bool sends, int32_t peer, const void *from, void *to, size_t n_bytes)
{
    QR_ASSERT(o->n < TRANSFERS_MAX);
    o->t[o->n++] = (struct transfer){.sends = sends, .peer = peer, .from = from, .to = to, .n_bytes = n_bytes};
}

static int enqueue(const struct operation *o, cudaStream_t stream)
{
    if (o->g->given_up)
        return INVALID_USAGE;
    qr_emu_enqueue_peers(stream, o, sizeof *o, run);
    return QR_NCCL_SUCCESS;
}

int ncclAllReduce(const void *from, void *to, size_t n, int type, int op, struct qr_nccl_group *g, cudaStream_t stream)
{
    struct operation o = {.g = g, .kind = ALL_REDUCE, .type = type, .own = from, .sum = to, .n_sum = n};
    QR_ASSERT(type == QR_NCCL_FLOAT32 && op == QR_NCCL_SUM);
    check_memory(from, n * sizeof(float), "AllReduce");
    check_memory(to, n * sizeof(float), "AllReduce");
    for (int32_t r = 0; r < g->size; r++) {
        if (r == g->rank)
            continue;
        add(&o, true, r, from, NULL, n * sizeof(float));
        add(&o, false, r, NULL, NULL, n * sizeof(float));
    }
    return enqueue(&o, stream);
}

int ncclAllGather(const void *from, void *to, size_t n, int type, struct qr_nccl_group *g, cudaStream_t stream)
{
    struct operation o = {.g = g, .kind = ALL_GATHER, .type = type};
    const size_t n_bytes = n * width(type);
    check_memory(from, n_bytes, "AllGather");
    check_memory(to, n_bytes * (size_t)g->size, "AllGather");
    for (int32_t r = 0; r < g->size; r++) {
        if (r == g->rank)
            continue;
        add(&o, true, r, from, NULL, n_bytes);
        add(&o, false, r, NULL, (uint8_t *)to + (size_t)r * n_bytes, n_bytes);
    }
    if (from != (uint8_t *)to + (size_t)g->rank * n_bytes)
        cudaMemcpyAsync((uint8_t *)to + (size_t)g->rank * n_bytes, from, n_bytes, cudaMemcpyDeviceToDevice, stream);
    return enqueue(&o, stream);
}

int ncclBroadcast(const void *from, void *to, size_t n, int type, int root, struct qr_nccl_group *g, cudaStream_t stream)
{
    struct operation o = {.g = g, .kind = BROADCAST, .type = type};
    check_memory(to, n * width(type), "Broadcast");
    for (int32_t r = 0; g->rank == root && r < g->size; r++)
        if (r != root)
            add(&o, true, r, from, NULL, n * width(type));
    if (g->rank != root)
        add(&o, false, root, NULL, to, n * width(type));
    return enqueue(&o, stream);
}

int ncclGroupStart(void)
{
    if (pending.depth++ == 0)
        pending.o = (struct operation){.kind = SEND};
    return QR_NCCL_SUCCESS;
}

int ncclGroupEnd(void)
{
    QR_ASSERT(pending.depth > 0);
    return --pending.depth == 0 && pending.o.n > 0 ? enqueue(&pending.o, pending.stream) : QR_NCCL_SUCCESS;
}

static int add_to_group(bool sends, int peer, const void *from, void *to, size_t n, int type, struct qr_nccl_group *g, cudaStream_t stream)
{
    QR_ASSERT(peer >= 0 && peer < g->size && peer != g->rank);
    check_memory(sends ? from : to, n * width(type), sends ? "Send" : "Recv");
    ncclGroupStart();
    pending.o.g = g;
    pending.o.type = type;
    pending.stream = stream;
    add(&pending.o, sends, peer, from, to, n * width(type));
    return ncclGroupEnd();
}

int ncclSend(const void *from, size_t n, int type, int peer, struct qr_nccl_group *g, cudaStream_t stream)
{
    return add_to_group(true, peer, from, NULL, n, type, g, stream);
}

int ncclRecv(void *to, size_t n, int type, int peer, struct qr_nccl_group *g, cudaStream_t stream)
{
    return add_to_group(false, peer, NULL, to, n, type, g, stream);
}
