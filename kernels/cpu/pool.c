/* pool.c - the processor's queue: launches over worker threads (pool.h).
 *
 * Every item of a launch runs once; which worker runs it shows in speed only. The items are cut into lots, a run of neighbours for
 * each worker, which workers draw from by an atomic counter: their own lot first, then the others. The job's fields are written
 * while every lot is drawn and no item runs, and `done` tells the caller that all have ended. Workers and caller spin briefly,
 * then sleep on a futex; a worker counts itself as asleep before it looks a last time, so no launch is missed. Only the thread
 * that opened the queue launches, runs errands and frees.
 */
#include "kernels/cpu/pool.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

/* How long to look for work (or for the end of it) before sleeping. Between two kernels of one step lie a few microseconds; a futex wake
 * costs about as much as 5. The caller waits shorter: its worker may need this very processor. */
#define WORKER_SPIN_NS 50000
#define CALLER_SPIN_NS 20000
#define PAUSES_PER_LOOK 16
#define ROWS_ITEM_COST 8192 /* elements of an item of rows */

struct qr_worker {
    struct qr_queue *q; /* borrowed */
    int32_t index, lot;
    pthread_t thread;
};

/* FREE -> READY -> (CLAIMED -> FREE): READY is set by the caller alone, CLAIMED by the thread that does it, while it reads the fields. */
enum errand_state { ERRAND_FREE, ERRAND_READY, ERRAND_CLAIMED };

static void pause_a_little(void)
{
    for (int i = 0; i < PAUSES_PER_LOOK; i++)
        __builtin_ia32_pause();
}

/* Draws and runs items until there are none: first those of the worker's own lot. */
static void work(struct qr_queue *q, int32_t worker)
{
    int64_t n_mine = 0, n_items = 0, left;
    for (int32_t i = 0, at = q->worker[worker].lot; i < q->n_lots; i++, at = at + 1 < q->n_lots ? at + 1 : 0) {
        struct qr_lot *lot = &q->lot[at];
        if (atomic_load_explicit(&lot->left, memory_order_relaxed) <= 0)
            continue;
        while ((left = atomic_fetch_sub_explicit(&lot->left, 1, memory_order_acq_rel)) > 0) {
            n_items = q->n_items;
            q->fn(q->arg, (int32_t)(lot->first + lot->n - left), worker);
            n_mine++;
        }
    }
    if (n_mine == 0)
        return;
    /* From here on the caller may begin the next launch: the job's fields must not be read any more. */
    if (atomic_fetch_add(&q->done, n_mine) + n_mine == n_items && atomic_load(&q->caller_waits)) {
        atomic_fetch_add(&q->finished, 1);
        qr_futex_wake(&q->finished, 1);
    }
}

static void do_errand(struct qr_queue *q)
{
    int32_t state = ERRAND_READY;
    if (atomic_load_explicit(&q->errand_state, memory_order_relaxed) != ERRAND_READY ||
        !atomic_compare_exchange_strong(&q->errand_state, &state, ERRAND_CLAIMED))
        return;
    void (*fn)(void *) = q->errand;
    void *arg = q->errand_arg;
    atomic_store(&q->errand_state, ERRAND_FREE);
    fn(arg);
}

static bool work_to_do(struct qr_queue *q)
{
    do_errand(q);
    for (int32_t i = 0; i < q->n_lots; i++)
        if (atomic_load(&q->lot[i].left) > 0)
            return true;
    return atomic_load(&q->stop);
}

static void wait_for_work(struct qr_queue *q)
{
    int64_t end = qr_clock_ns() + WORKER_SPIN_NS;
    do {
        if (work_to_do(q))
            return;
        pause_a_little();
    } while (qr_clock_ns() < end);
    atomic_fetch_add(&q->n_asleep, 1);
    uint32_t seen = atomic_load(&q->posted);
    if (!work_to_do(q))
        qr_futex_wait(&q->posted, seen, -1);
    atomic_fetch_sub(&q->n_asleep, 1);
}

static void *worker_main(void *arg)
{
    struct qr_worker *w = arg;
    char name[16];
    snprintf(name, sizeof name, "qr-worker-%d", (int)w->index);
    qr_thread_set_name(name);
    if (w->q->pin)
        qr_thread_pin(w->q->cpus.cpu[w->index % w->q->cpus.n]);
    while (!atomic_load(&w->q->stop)) {
        work(w->q, w->index);
        wait_for_work(w->q);
    }
    return NULL;
}

static void wake_workers(struct qr_queue *q)
{
    atomic_fetch_add(&q->posted, 1);
    if (atomic_load(&q->n_asleep) > 0)
        qr_futex_wake(&q->posted, q->n_threads);
}

static void wait_for_end(struct qr_queue *q, int64_t n_items)
{
    int64_t end = qr_clock_ns() + CALLER_SPIN_NS;
    while (atomic_load(&q->done) < n_items) {
        pause_a_little();
        if (qr_clock_ns() < end)
            continue;
        uint32_t seen = atomic_load(&q->finished);
        atomic_store(&q->caller_waits, true);
        if (atomic_load(&q->done) < n_items)
            qr_futex_wait(&q->finished, seen, -1);
        atomic_store(&q->caller_waits, false);
    }
}

/* Every lot gets its workers' share. */
static void share_out(struct qr_queue *q, int64_t n_items)
{
    for (int32_t i = 0, begin = 0; i < q->n_lots; begin = q->lot_end[i++]) {
        q->lot[i].first = n_items * begin / q->n_threads;
        q->lot[i].n = n_items * q->lot_end[i] / q->n_threads - q->lot[i].first;
    }
    for (int32_t i = 0; i < q->n_lots; i++)
        atomic_store(&q->lot[i].left, q->lot[i].n);
}

/* A worker counts itself as asleep first and looks for errands afterwards, so one that is not counted here will look. */
void qr_queue_errand(struct qr_queue *q, void (*fn)(void *), void *arg)
{
    QR_ASSERT(q != NULL && fn != NULL);
    do_errand(q);
    if (atomic_load(&q->errand_state) != ERRAND_FREE || atomic_load(&q->n_asleep) >= q->n_threads - 1) {
        fn(arg);
        return;
    }
    q->errand = fn;
    q->errand_arg = arg;
    atomic_store(&q->errand_state, ERRAND_READY);
    if (atomic_load(&q->n_asleep) >= q->n_threads - 1)
        do_errand(q);
}

void qr_queue_errand_end(struct qr_queue *q)
{
    QR_ASSERT(q != NULL);
    do_errand(q);
}

void qr_queue_run(struct qr_queue *q, qr_job *fn, const void *arg, int64_t n_items)
{
    QR_ASSERT(q != NULL && fn != NULL);
    do_errand(q);
    QR_ASSERT(n_items >= 0 && n_items <= INT32_MAX);
    if (q->n_threads == 1 || n_items <= 1) {
        qr_queue_run_here(fn, arg, n_items);
        return;
    }
    q->fn = fn;
    q->arg = arg;
    q->n_items = n_items;
    atomic_store(&q->done, 0);
    share_out(q, n_items);
    wake_workers(q);
    work(q, 0);
    wait_for_end(q, n_items);
}

struct rows {
    qr_rows_job *fn;
    const void *arg;
    int64_t n_rows, per_item;
};

static void rows_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct rows *r = arg;
    const int64_t first = item * r->per_item, left = r->n_rows - first;
    r->fn(r->arg, first, first + (left < r->per_item ? left : r->per_item));
}

void qr_queue_run_rows(struct qr_queue *q, qr_rows_job *fn, const void *arg, int64_t n_rows, int64_t cost)
{
    QR_ASSERT(q != NULL && fn != NULL);
    QR_ASSERT(n_rows >= 0 && cost > 0);
    const struct rows r = {fn, arg, n_rows, cost < ROWS_ITEM_COST ? ROWS_ITEM_COST / cost : 1};
    qr_queue_run(q, rows_item, &r, (n_rows + r.per_item - 1) / r.per_item);
}

/* One lot for each worker, node by node; one for each node that has workers where they are many. */
static void make_lots(struct qr_queue *q)
{
    const bool each = q->n_threads <= QR_LOTS_MAX;
    int32_t n_workers = 0;
    for (int32_t node = 0; node < q->cpus.n_nodes; node++) {
        int32_t before = n_workers;
        for (int32_t i = 0; i < q->n_threads; i++) {
            if (q->cpus.node[i % q->cpus.n] != node)
                continue;
            q->worker[i].lot = q->n_lots;
            n_workers++;
            if (each)
                q->lot_end[q->n_lots++] = n_workers;
        }
        if (!each && n_workers > before)
            q->lot_end[q->n_lots++] = n_workers;
    }
    QR_ASSERT(n_workers == q->n_threads && q->n_lots >= 1);
}

struct qr_queue *qr_queue_new(int32_t n_threads, const struct qr_cpus *cpus, bool pin, size_t shared_bytes, size_t own_bytes)
{
    QR_ASSERT(n_threads >= 1 && (cpus != NULL || !pin));
    QR_ASSERT(own_bytes % 64 == 0);
    struct qr_queue *q = qr_alloc_aligned(sizeof *q, 64);
    q->n_threads = n_threads;
    q->pin = pin;
    q->cpus = cpus ? *cpus : (struct qr_cpus){.n = 1, .n_nodes = 1};
    q->shared_bytes = shared_bytes;
    q->own_bytes = own_bytes;
    q->shared = qr_alloc_aligned(shared_bytes, 64);
    q->own = qr_alloc_aligned(own_bytes * (size_t)n_threads, 64);
    qr_mem_populate(q->own, own_bytes * (size_t)n_threads);
    q->worker = qr_alloc((size_t)n_threads, sizeof *q->worker);
    q->alone = qr_alloc_aligned((size_t)n_threads * sizeof *q->alone, 64);
    for (int32_t i = 0; i < n_threads; i++) {
        q->alone[i].n_threads = 1;
        q->alone[i].own = qr_queue_own(q, i);
        q->alone[i].own_bytes = own_bytes;
    }
    make_lots(q);
    for (int32_t i = 1; i < n_threads; i++) {
        q->worker[i].q = q;
        q->worker[i].index = i;
        char what[64];
        snprintf(what, sizeof what, "worker %d of %d", (int)i + 1, (int)n_threads);
        qr_thread_start(&q->worker[i].thread, worker_main, &q->worker[i], what);
    }
    if (pin) /* last: a new thread inherits its maker's processors */
        q->caller_cpus = qr_thread_pin_for_now(q->cpus.cpu[0]);
    return q;
}

void qr_queue_free(struct qr_queue *q)
{
    if (!q)
        return;
    do_errand(q);
    atomic_store(&q->stop, true);
    atomic_fetch_add(&q->posted, 1);
    qr_futex_wake(&q->posted, q->n_threads);
    for (int32_t i = 1; i < q->n_threads; i++)
        pthread_join(q->worker[i].thread, NULL);
    qr_thread_unpin(q->caller_cpus);
    qr_free(q->worker);
    qr_free_aligned(q->alone);
    qr_free_aligned(q->own);
    qr_free_aligned(q->shared);
    qr_free_aligned(q);
}
