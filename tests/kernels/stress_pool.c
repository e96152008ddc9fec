/* The worker pool under launches of every size, with busy and with idle gaps between them: every item runs exactly once, all writes are
 * visible to the caller afterwards, items may launch on their thread, errands run once, and a pool with more threads than processors comes to an end. Plain
 * main(): the thread sanitizer runs it. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/rng.h"
#include "kernels/cpu/pool.h"

#define ITEMS_MAX 300

struct tally {
    int32_t *runs; /* borrowed [ITEMS_MAX]; not atomic: an item belongs to one worker */
    int32_t work;
    struct qr_queue *q;
};

static void count(const void *arg, int32_t item, int32_t worker)
{
    const struct tally *t = arg;
    QR_ASSERT(worker >= 0 && worker < t->q->n_threads);
    int32_t *own = qr_queue_own(t->q, worker);
    for (int32_t i = 0; i < t->work; i++)
        own[i % 16] += i;
    t->runs[item]++;
}

static void launches(int32_t n_threads, const struct qr_cpus *cpus, bool pin, int32_t n_launches, uint64_t seed)
{
    struct qr_queue *q = qr_queue_new(n_threads, cpus, pin, 4096, 64);
    struct qr_rng rng = {.seed = seed};
    int32_t runs[ITEMS_MAX];
    for (int32_t l = 0; l < n_launches; l++) {
        struct tally t = {runs, (int32_t)qr_rng_below(&rng, 400), q};
        int32_t n = (int32_t)qr_rng_below(&rng, qr_rng_below(&rng, 4) == 0 ? ITEMS_MAX : 8);
        memset(runs, 0, sizeof runs);
        qr_queue_run(q, count, &t, n);
        for (int32_t i = 0; i < ITEMS_MAX; i++)
            QR_ASSERT(runs[i] == (i < n));
        if (qr_rng_below(&rng, 500) == 0)
            usleep(200); /* long enough that the workers fall asleep */
    }
    qr_queue_free(q);
}

struct inside {
    const struct tally *t;
    int32_t item, worker;
};

static void count_inside(const void *arg, int32_t item, int32_t worker)
{
    const struct inside *in = arg;
    QR_ASSERT(worker == 0 && qr_queue_own(qr_queue_alone(in->t->q, in->worker), 0) == qr_queue_own(in->t->q, in->worker));
    in->t->runs[in->item * 3 + item]++;
}

static void launch_inside(const void *arg, int32_t item, int32_t worker)
{
    const struct inside in = {arg, item, worker};
    qr_queue_run(qr_queue_alone(in.t->q, worker), count_inside, &in, 3);
}

/* Items that launch, on the thread that has them. */
static void nested_launches(int32_t n_threads, int32_t n_launches)
{
    struct qr_queue *q = qr_queue_new(n_threads, NULL, false, 64, 64);
    int32_t runs[ITEMS_MAX];
    for (int32_t l = 0; l < n_launches; l++) {
        const int32_t n = l % (ITEMS_MAX / 3);
        struct tally t = {runs, 0, q};
        memset(runs, 0, sizeof runs);
        qr_queue_run(q, launch_inside, &t, n);
        for (int32_t i = 0; i < ITEMS_MAX; i++)
            QR_ASSERT(runs[i] == (i < 3 * n));
    }
    qr_queue_free(q);
}

/* The processors there are, again and again, on nodes in turn. */
static void pretend_nodes(struct qr_cpus *c, int32_t n_nodes)
{
    int32_t n = c->n;
    c->n = 16;
    c->n_nodes = n_nodes;
    for (int32_t i = 0; i < c->n; i++) {
        c->cpu[i] = c->cpu[i % n];
        c->node[i] = (int8_t)(i % n_nodes);
    }
}

struct origin {
    _Atomic int32_t *by;  /* borrowed [n]: which worker ran the item */
    _Atomic int32_t n_in; /* workers that hold their first item */
};

static void note_origin(const void *arg, int32_t item, int32_t worker)
{
    struct origin *o = (struct origin *)(uintptr_t)arg;
    atomic_store(&o->by[item], worker);
    atomic_fetch_add(&o->n_in, 1);
    while (atomic_load(&o->n_in) < 2)
        usleep(50);
}

/* Two workers, two items that wait for each other: each worker begins with its own half, whatever the (pretended) nodes. Not always: who still looks for
 * work of the launch before may meet the next one there, and then both begin with the other's half; more often where somebody else takes the processors: one
 * of ten rounds has to do well, which chance alone gives once in three million. */
static void own_lot_first(int32_t n_nodes)
{
    int n_own = 0;
    struct qr_cpus cpus;
    qr_cpus_allowed(&cpus);
    pretend_nodes(&cpus, n_nodes);
    struct qr_queue *q = qr_queue_new(2, &cpus, false, 64, 64);
    QR_ASSERT(q->n_lots == 2);
    for (int round = 0; round < 10 && n_own < 75; round++) {
        n_own = 0;
        for (int i = 0; i < 100; i++) {
            _Atomic int32_t by[2] = {-1, -1};
            struct origin o = {.by = by};
            qr_queue_run(q, note_origin, &o, 2);
            QR_ASSERT(atomic_load(&by[0]) + atomic_load(&by[1]) == 1);
            n_own += atomic_load(&by[0]) == 0;
            usleep(500);
        }
    }
    QR_ASSERT(n_own >= 75);
    qr_queue_free(q);
}

struct errands {
    pthread_t caller;
    _Atomic int64_t n_run, n_here; /* in all, by the caller */
};

static void run_errand(void *arg)
{
    struct errands *e = arg;
    if (pthread_equal(pthread_self(), e->caller))
        atomic_fetch_add(&e->n_here, 1);
    atomic_fetch_add(&e->n_run, 1);
}

/* Errands beside launches, with workers awake, falling asleep and asleep: each runs once. When another is asked for, the one before has at least begun. */
static void errands(int32_t n_threads, int32_t n_times, uint64_t seed)
{
    struct qr_queue *q = qr_queue_new(n_threads, NULL, false, 64, 64);
    struct qr_rng rng = {.seed = seed};
    struct errands e = {.caller = pthread_self()};
    int32_t runs[ITEMS_MAX] = {0};
    struct tally t = {runs, 50, q};
    int64_t n_asked = 0;
    for (int32_t i = 0; i < n_times; i++) {
        const uint32_t what = qr_rng_below(&rng, 100);
        if (what < 60)
            qr_queue_run(q, count, &t, 4);
        else if (what == 99)
            usleep(100); /* workers fall asleep at about that time */
        for (uint32_t k = 0; k <= what % 3; k++, n_asked++)
            qr_queue_errand(q, run_errand, &e);
        const bool ends = what % 2 == 0;
        if (ends)
            qr_queue_errand_end(q);
        const int64_t n_open = n_asked - atomic_load(&e.n_run);
        QR_ASSERT(n_open >= 0 && n_open <= n_threads - 1 + (ends ? 0 : 1)); /* a worker may hold one that has begun */
    }
    qr_queue_free(q);
    QR_ASSERT(atomic_load(&e.n_run) == n_asked);
    QR_ASSERT(n_threads > 1 || atomic_load(&e.n_here) == n_asked);
    printf("errands, %d threads: %lld, %lld of them by the caller\n", (int)n_threads, (long long)n_asked, (long long)atomic_load(&e.n_here));
}

/* One that the caller leaves alone is done by a worker that has just had an item, and so looks for more: unless the caller is put aside meanwhile, which on a
 * busy machine it was 2,000 times in a row. */
static void errand_of_a_worker(void)
{
    struct qr_queue *q = qr_queue_new(2, NULL, false, 64, 64);
    struct errands e = {.caller = pthread_self()};
    int64_t n = 0;
    const int64_t until = qr_clock_us() + 60000000;
    for (; (n < 2000 || qr_clock_us() < until) && atomic_load(&e.n_here) == n; n++) {
        _Atomic int32_t by[2] = {-1, -1};
        struct origin o = {.by = by};
        qr_queue_run(q, note_origin, &o, 2);
        qr_queue_errand(q, run_errand, &e);
        while (atomic_load(&e.n_run) == n)
            usleep(20);
    }
    QR_ASSERT(atomic_load(&e.n_here) < n);
    qr_queue_free(q);
}

int main(void)
{
    const uint64_t seed = 20261121;
    int64_t start = qr_clock_us();
    printf("seed %llu\n", (unsigned long long)seed);
    static const int32_t threads[] = {1, 2, 3, 7};
    for (int i = 0; i < QR_COUNT(threads); i++)
        launches(threads[i], NULL, false, threads[i] > 2 ? 2000 : 20000, seed + (uint64_t)i);
    struct qr_cpus cpus;
    qr_cpus_allowed(&cpus);
    launches(cpus.n, &cpus, true, 2000, seed + 10);
    pretend_nodes(&cpus, 3);
    launches(7, &cpus, false, 2000, seed + 11); /* lots of different sizes, more lots than items */
    launches(QR_LOTS_MAX + 3, &cpus, false, 500, seed + 12); /* several workers draw from one lot */
    for (int i = 0; i < QR_COUNT(threads); i++)
        nested_launches(threads[i], 1000);
    for (int i = 0; i < QR_COUNT(threads); i++)
        errands(threads[i], threads[i] > 2 ? 500 : 5000, seed + 20 + (uint64_t)i);
    errand_of_a_worker();
    own_lot_first(1);
    own_lot_first(2);
    for (int i = 0; i < 50; i++)
        qr_queue_free(qr_queue_new(3, NULL, false, 64, 64)); /* opened and closed without work */
    printf("stress_pool: passed in %lld ms\n", (long long)((qr_clock_us() - start) / 1000));
    return 0;
}
