/* comm.c - calls of a comm: checked, queued, carried out in order by the comm's own thread, waited for. A call that is
 * waited for at once is carried out by the caller where the transport allows it and nothing else is in flight. The
 * first error stays: every later call fails with the same words. One owning thread starts and waits; buffers belong to
 * the comm in between. */
#include "comm/comm.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/thread.h"
#include "comm/comm_ops.h"

#define CALLS_MAX 256

struct slot {
    struct qr_comm_call call;
    int64_t part[QR_COMM_RANKS_MAX + 1];
};

/* Calls between the owner, which starts them and waits, and the thread that carries them out. Numbers of calls only
 * grow. */
struct qr_comm_line {
    struct slot slot[CALLS_MAX];
    _Atomic int64_t n_started; /* written by the owner */
    _Atomic int64_t n_done;    /* written by the thread */
    _Atomic uint32_t to_thread, to_owner; /* change with every piece of news; slept on */
    _Atomic bool over;
    _Atomic bool failing;      /* the first to set it fills err */
    _Atomic bool failed;       /* err is there */
    _Atomic bool left;         /* nothing is carried out any more, no buffer is in use */
    struct qr_err err;
    bool threaded;
    pthread_t thread;
};

static const char *const kind_name[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "gather", "barrier"};

const char *qr_comm_describe(char text[96], const struct qr_comm_what *w)
{
    QR_ASSERT(text != NULL && w != NULL);
    QR_ASSERT(w->kind >= 0 && w->kind < QR_COUNT(kind_name));
    if (w->kind == QR_COMM_BARRIER)
        snprintf(text, 96, "barrier");
    else if (w->kind == QR_COMM_GATHER)
        snprintf(text, 96, "gather of %d x %lld %s", w->n_rows, (long long)w->n, qr_dtype_name((enum qr_dtype)w->dtype));
    else
        snprintf(text, 96, "%s of %lld %s", kind_name[w->kind], (long long)w->n, qr_dtype_name((enum qr_dtype)w->dtype));
    return text;
}

struct qr_comm_what qr_comm_what(const struct qr_comm_call *call, int32_t n_ranks)
{
    QR_ASSERT(call != NULL);
    QR_ASSERT(n_ranks >= 1 && n_ranks <= QR_COMM_RANKS_MAX);
    return (struct qr_comm_what){.kind = (int32_t)call->kind, .dtype = (int32_t)call->dtype, .n = call->n, .root = call->root, .n_rows = call->n_rows,
                                 .part_hash = call->part ? qr_hash64(call->part, (size_t)(n_ranks + 1) * sizeof *call->part, 0) : 0};
}

int qr_comm_compare(const struct qr_comm_what *a, const struct qr_comm_what *b, int32_t rank_b, struct qr_err *err)
{
    QR_ASSERT(a != NULL && b != NULL);
    QR_ASSERT(err != NULL);
    char one[96], other[96];
    qr_comm_describe(one, a);
    qr_comm_describe(other, b);
    if (a->kind != b->kind || a->dtype != b->dtype || a->n != b->n || a->n_rows != b->n_rows)
        return qr_err_set(err, QR_E_INVALID, "ranks started different calls: rank 0 %s, rank %d %s", one, rank_b, other);
    if (a->root != b->root)
        return qr_err_set(err, QR_E_INVALID, "ranks started different calls: %s from rank %d on rank 0, from rank %d on rank %d", one, a->root, b->root,
                          rank_b);
    if (a->part_hash != b->part_hash)
        return qr_err_set(err, QR_E_INVALID, "ranks started different calls: %s is parted differently on ranks 0 and %d", one, rank_b);
    return 0;
}

static void ring(_Atomic uint32_t *bell)
{
    atomic_fetch_add(bell, 1);
    qr_futex_wake(bell, 1);
}

/* The first error stays. */
static void fail(struct qr_comm_line *l, const struct qr_err *why)
{
    if (atomic_exchange(&l->failing, true))
        return;
    l->err = *why;
    atomic_store(&l->failed, true);
    ring(&l->to_owner);
    ring(&l->to_thread);
}

/* The oldest call that was started and not done, to its end. */
static void carry_out(struct qr_comm *c)
{
    struct qr_comm_line *l = c->line;
    struct qr_err err;
    const int64_t number = atomic_load(&l->n_done);
    if (c->ops->run(c, &l->slot[number % CALLS_MAX].call, &err)) {
        c->ops->abort(c, err.msg, false);
        fail(l, &err);
        return;
    }
    atomic_store(&l->n_done, number + 1);
    ring(&l->to_owner);
}

static void *carry_out_all(void *arg)
{
    struct qr_comm *c = arg;
    struct qr_comm_line *l = c->line;
    struct qr_err err;
    qr_thread_set_name("comm");
    if (c->ops->begin && c->ops->begin(c, &err))
        fail(l, &err);
    else
        ring(&l->to_owner);
    for (;;) {
        const uint32_t news = atomic_load(&l->to_thread);
        if (atomic_load(&l->failed) || atomic_load(&l->over))
            break;
        const int64_t started = atomic_load(&l->n_started); /* first: calls that the owner carries out are done before they are started */
        if (started > atomic_load(&l->n_done))
            carry_out(c);
        else
            qr_futex_wait(&l->to_thread, news, -1);
    }
    atomic_store(&l->left, true);
    ring(&l->to_owner);
    if (c->ops->end)
        c->ops->end(c);
    return NULL;
}

static void line_close(struct qr_comm_line *l)
{
    atomic_store(&l->over, true);
    ring(&l->to_thread);
    if (l->threaded)
        pthread_join(l->thread, NULL);
    qr_free(l);
}

/* Signals are not for this thread, nor for those that a transport's library starts from it: it may be there before the
 * receiver of signals is chosen. */
static void start_thread(struct qr_comm *c)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    qr_thread_start(&c->line->thread, carry_out_all, c, "what ranks tell each other");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

int qr_comm_line_open(struct qr_comm *c, bool threaded, struct qr_err *err)
{
    QR_ASSERT(c != NULL && c->line == NULL && c->ops != NULL);
    QR_ASSERT(c->rank >= 0 && c->rank < c->size && c->size <= QR_COMM_RANKS_MAX);
    struct qr_comm_line *l = c->line = qr_alloc(1, sizeof *l);
    l->threaded = threaded;
    if (!threaded)
        return 0;
    const uint32_t news = atomic_load(&l->to_owner);
    start_thread(c);
    while (atomic_load(&l->to_owner) == news)
        qr_futex_wait(&l->to_owner, news, -1);
    if (!atomic_load(&l->failed))
        return 0;
    *err = l->err;
    line_close(l);
    c->line = NULL;
    return err->code;
}

void qr_comm_close(struct qr_comm *c)
{
    QR_ASSERT(c != NULL);
    struct qr_comm_line *l = c->line;
    QR_ASSERT(l != NULL || c->ops == NULL);
    if (!l)
        return;
    if (atomic_load(&l->n_done) < atomic_load(&l->n_started) && !atomic_load(&l->failed))
        qr_comm_abort(c, "it closed with calls under way");
    line_close(l);
    c->ops->close(c);
    *c = (struct qr_comm){0};
}

const char *qr_comm_name(const struct qr_comm *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->ops != NULL);
    return c->ops->name;
}

/* ---- the owner's side ---- */

static void check(const struct qr_comm *c, const struct qr_comm_call *call)
{
    const bool sums = call->kind == QR_COMM_ALL_REDUCE || call->kind == QR_COMM_REDUCE_SCATTER;
    const bool parts = call->kind == QR_COMM_REDUCE_SCATTER || call->kind == QR_COMM_ALL_GATHER || call->kind == QR_COMM_GATHER;
    const bool rooted = call->kind == QR_COMM_BROADCAST || call->kind == QR_COMM_GATHER;
    QR_ASSERT((int)call->kind >= 0 && (int)call->kind < QR_COUNT(kind_name));
    QR_ASSERT(call->n >= 0 && (call->n == 0 || call->data != NULL));
    QR_ASSERT(call->kind != QR_COMM_BARRIER || call->n == 0);
    QR_ASSERT(!qr_dtype_is_quantized(call->dtype));
    QR_ASSERT(!sums || call->dtype == QR_F32 || call->dtype == QR_F64);
    QR_ASSERT(!rooted || (call->root >= 0 && call->root < c->size));
    QR_ASSERT(call->kind == QR_COMM_GATHER ? call->n_rows > 0 : call->n_rows == 0);
    if (!parts)
        return;
    QR_ASSERT(call->part != NULL && call->part[0] == 0 && call->part[c->size] == call->n);
    for (int32_t r = 0; r < c->size; r++)
        QR_ASSERT(call->part[r] <= call->part[r + 1]);
}

/* Until n calls are done, or one has failed and none is being carried out. */
static int wait_for(struct qr_comm *c, int64_t n, struct qr_err *err)
{
    struct qr_comm_line *l = c->line;
    if (atomic_load(&l->n_done) >= n)
        return 0;
    const int64_t began = qr_clock_ns();
    for (;;) {
        const uint32_t news = atomic_load(&l->to_owner);
        const bool ended = atomic_load(&l->failed) && (atomic_load(&l->left) || !l->threaded);
        if (ended || atomic_load(&l->n_done) >= n)
            break;
        qr_futex_wait(&l->to_owner, news, -1);
    }
    c->stats.waited += (double)(qr_clock_ns() - began) * 1e-9;
    if (atomic_load(&l->n_done) >= n)
        return 0;
    *err = l->err;
    return err->code;
}

static void count(struct qr_comm *c, const struct qr_comm_call *call)
{
    c->stats.n_calls++;
    c->stats.n_bytes += (call->n_rows > 0 ? call->n_rows : 1) * call->n * (int64_t)qr_dtype_bytes(call->dtype);
}

int qr_comm_start(struct qr_comm *c, const struct qr_comm_call *call, int64_t *ticket, struct qr_err *err)
{
    QR_ASSERT(c != NULL && c->line != NULL);
    QR_ASSERT(call != NULL && ticket != NULL);
    check(c, call);
    struct qr_comm_line *l = c->line;
    const int64_t number = atomic_load(&l->n_started);
    int rc = wait_for(c, number - CALLS_MAX + 1, err);
    if (rc == 0 && atomic_load(&l->failed)) {
        *err = l->err;
        rc = err->code;
    }
    if (rc)
        return rc;
    struct slot *s = &l->slot[number % CALLS_MAX];
    s->call = *call;
    if (call->part) {
        memcpy(s->part, call->part, (size_t)(c->size + 1) * sizeof *s->part);
        s->call.part = s->part;
    }
    *ticket = number;
    count(c, call);
    atomic_store(&l->n_started, number + 1);
    if (l->threaded)
        ring(&l->to_thread);
    else
        carry_out(c);
    return 0;
}

int qr_comm_wait(struct qr_comm *c, int64_t ticket, struct qr_err *err)
{
    QR_ASSERT(c != NULL && c->line != NULL);
    struct qr_comm_line *l = c->line;
    QR_ASSERT(ticket >= 0 && ticket < atomic_load(&l->n_started));
    return wait_for(c, ticket + 1, err);
}

/* By the owner, in the place of the thread, which sleeps: it has nothing to do, and is told of nothing. Finished calls are counted first, or the thread would
 * find one that was started. */
static int carry_out_here(struct qr_comm *c, const struct qr_comm_call *call, struct qr_err *err)
{
    struct qr_comm_line *l = c->line;
    check(c, call);
    count(c, call);
    const int64_t began = qr_clock_ns(), number = atomic_load(&l->n_started);
    c->hurried = true;
    int rc = c->ops->run(c, call, err);
    c->hurried = false;
    c->stats.waited += (double)(qr_clock_ns() - began) * 1e-9;
    if (rc == 0) {
        atomic_store(&l->n_done, number + 1);
        atomic_store(&l->n_started, number + 1);
        return 0;
    }
    c->ops->abort(c, err->msg, false);
    fail(l, err);
    return rc;
}

int qr_comm_run(struct qr_comm *c, const struct qr_comm_call *call, struct qr_err *err)
{
    int64_t ticket;
    QR_ASSERT(c != NULL && c->line != NULL);
    QR_ASSERT(call != NULL && err != NULL);
    if (c->ops->anywhere && c->line->threaded && !atomic_load(&c->line->failed) && atomic_load(&c->line->n_done) == atomic_load(&c->line->n_started))
        return carry_out_here(c, call, err);
    int rc = qr_comm_start(c, call, &ticket, err);
    return rc ? rc : qr_comm_wait(c, ticket, err);
}

int qr_comm_barrier(struct qr_comm *c, struct qr_err *err)
{
    const struct qr_comm_call call = {.kind = QR_COMM_BARRIER};
    return qr_comm_run(c, &call, err);
}

void qr_comm_abort(struct qr_comm *c, const char *why)
{
    QR_ASSERT(c != NULL && c->line != NULL);
    QR_ASSERT(why != NULL);
    struct qr_err err;
    qr_err_set(&err, QR_E_CLOSED, "rank %d gave up: %s", c->rank, why);
    c->ops->abort(c, why, true);
    fail(c->line, &err);
}

bool qr_comm_lost(struct qr_comm *c, struct qr_err *err)
{
    QR_ASSERT(c != NULL && c->line != NULL);
    QR_ASSERT(err != NULL);
    if (atomic_load(&c->line->failed)) {
        *err = c->line->err;
        return true;
    }
    return c->ops->lost && c->ops->lost(c, err);
}

void qr_comm_place(const struct qr_comm *c, int32_t *local_rank, int32_t *local_size)
{
    QR_ASSERT(local_rank != NULL && local_size != NULL);
    QR_ASSERT(c == NULL || (c->size > 0 && c->rank < c->size));
    *local_rank = !c ? 0 : c->local_size > 0 ? c->local_rank : c->rank;
    *local_size = !c ? 1 : c->local_size > 0 ? c->local_size : c->size;
}

/* ---- memory ---- */

void *qr_comm_plain_alloc(struct qr_comm *c, size_t n_bytes)
{
    return qr_alloc_aligned(n_bytes, 64);
}

void qr_comm_plain_free(struct qr_comm *c, void *p)
{
    qr_free_aligned(p);
}

int qr_comm_alloc(struct qr_comm *c, void **p, size_t n_bytes, struct qr_err *err)
{
    QR_ASSERT(c != NULL && c->ops != NULL);
    QR_ASSERT(p != NULL);
    *p = c->ops->alloc(c, n_bytes);
    if (*p)
        return 0;
    return qr_err_set(err, QR_E_NO_ROOM, "rank %d: no room for %zu bytes that other ranks can reach", c->rank, n_bytes);
}

void qr_comm_free(struct qr_comm *c, void *p)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(p == NULL || c->ops != NULL);
    if (p)
        c->ops->free(c, p);
}
