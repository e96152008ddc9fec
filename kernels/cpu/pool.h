/* pool.h - the CPU's queue: a pool of worker threads and the scratch memory of the kernels. Inside kernels/ only.
 *
 * A launch is a number of items and a function. Its items are cut into one run of neighbours per worker; a worker draws from its own run's atomic
 * counter and then helps the others, until nothing is left. So what a worker does next is most often the item behind the one it holds, whose
 * weights can be prefetched, and a worker whose processor is taken away costs at most the item it holds. A worker that finds nothing spins
 * briefly, then sleeps on a futex; so does the caller while others finish. Nothing is allocated per launch. Which worker runs an item is never
 * visible in a result. The thread that opened the queue is worker 0 and the only one that may launch.
 *
 * Runs lie in the order of memory nodes; with more than QR_LOTS_MAX workers there is one run for each node. Weights are packed and multiplied by
 * panels in the same order, so most of them lie where they are read.
 */
#ifndef QR_KERNELS_CPU_POOL_H
#define QR_KERNELS_CPU_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpus.h"

#define QR_LOTS_MAX QR_NODES_MAX /* of a launch: a worker that is done looks at all of them */

struct qr_tune;
typedef void qr_job(const void *arg, int32_t item, int32_t worker);
typedef void qr_rows_job(const void *arg, int64_t first, int64_t end); /* rows [first, end) */

/* A run of items. first and n are written like the job's fields. */
struct qr_lot {
    _Alignas(64) _Atomic int64_t left; /* items not yet drawn; goes below 0 when workers look in vain */
    int64_t first, n;
};

struct qr_queue {
    int32_t n_threads;
    bool pin;
    struct qr_cpus cpus;      /* worker i belongs on entry i % n */
    void *caller_cpus;        /* owned: what the caller could run on before it was pinned, or NULL */
    int32_t n_lots;           /* of workers or, where these are many, of memory nodes with workers */
    int32_t lot_end[QR_LOTS_MAX]; /* workers of this lot and of those before it */
    struct qr_worker *worker; /* owned [n_threads]; entry 0 is the caller and has no thread */

    /* The job. Written by the caller while every lot is drawn and no worker holds an item; read only by a worker that holds one. */
    qr_job *fn;
    const void *arg; /* borrowed for the launch */
    int64_t n_items;

    struct qr_lot lot[QR_LOTS_MAX];
    _Alignas(64) _Atomic int64_t done; /* items finished */
    _Alignas(64) _Atomic uint32_t posted;  /* futex: counts launches, workers sleep on it */
    _Atomic uint32_t finished;             /* futex: the caller sleeps on it */
    _Atomic int32_t n_asleep;              /* workers in or near the futex */
    _Atomic bool caller_waits, stop;

    const struct qr_tune *tune;     /* borrowed from the backend, or NULL: what was measured to be best (tuned.h) */
    uint8_t *shared;                /* owned: scratch of a whole launch */
    uint8_t *own;                   /* owned: own_bytes for each worker */
    size_t shared_bytes, own_bytes;
    struct qr_queue *alone;         /* owned [n_threads]: each worker as a queue of its own, without scratch of a launch */

    /* The errand. Written by the caller while there is none; read by the thread that has claimed it. */
    void (*errand)(void *);
    void *errand_arg; /* borrowed */
    _Atomic int32_t errand_state; /* an enum of pool.c */
};

/* n_threads >= 1 counts the caller. shared_bytes and own_bytes of zeroed scratch, 64-byte aligned. cpus: where workers belong, in order; NULL: no
 * matter where, one node. With `pin` each worker, the caller too, runs on its processor only until qr_queue_free. */
struct qr_queue *qr_queue_new(int32_t n_threads, const struct qr_cpus *cpus, bool pin, size_t shared_bytes, size_t own_bytes);
void qr_queue_free(struct qr_queue *q); /* NULL is fine; joins the workers, unpins the caller */

/* Calls fn(arg, i, worker) once for every 0 <= i < n_items, returns when all have returned. */
void qr_queue_run(struct qr_queue *q, qr_job *fn, const void *arg, int64_t n_items);

/* The same on the calling thread alone: for work that is done sooner than others would have noticed it. */
static inline void qr_queue_run_here(qr_job *fn, const void *arg, int64_t n_items)
{
    for (int64_t i = 0; i < n_items; i++)
        fn(arg, (int32_t)i, 0);
}

static inline void qr_queue_run_if(struct qr_queue *q, bool together, qr_job *fn, const void *arg, int64_t n_items)
{
    if (together)
        qr_queue_run(q, fn, arg, n_items);
    else
        qr_queue_run_here(fn, arg, n_items);
}

/* Has fn(arg) called once, by a worker that is looking for work at this moment, else by the caller, here. For what costs the caller more than it costs to
 * say so, like waking a thread. Worker 0's thread only; fn may be called until qr_queue_free returns, beside launches. Until qr_queue_errand_end or the
 * next launch it may not have begun. */
void qr_queue_errand(struct qr_queue *q, void (*fn)(void *), void *arg);
/* The caller runs an errand that has not begun: before it waits for anything. */
void qr_queue_errand_end(struct qr_queue *q);

/* Scratch of one worker. */
static inline void *qr_queue_own(const struct qr_queue *q, int32_t worker)
{
    return q->own + (size_t)worker * q->own_bytes;
}

/* For an item that launches: on this queue, which runs what it is given on the calling thread, with the scratch of the worker that has the item. */
static inline struct qr_queue *qr_queue_alone(const struct qr_queue *q, int32_t worker)
{
    return &q->alone[worker];
}

/* Calls fn(arg, first, end) for runs of [0, n_rows). A row costs as much as `cost` elements; a run has about 8,192 elements, so
 * that a launch of fewer is one item and stays on the caller. */
void qr_queue_run_rows(struct qr_queue *q, qr_rows_job *fn, const void *arg, int64_t n_rows, int64_t cost);

#endif
