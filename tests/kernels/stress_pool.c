/* The worker pool under launches of every size, with busy and with idle gaps between them: every item runs exactly once, all writes are
 * visible to the caller afterwards, and a pool with more threads than processors comes to an end. Plain main(): the thread sanitizer runs it. */
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

static void launches(int32_t n_threads, int32_t n_launches, uint64_t seed)
{
    struct qr_queue *q = qr_queue_new(n_threads, false, 4096, 64);
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

int main(void)
{
    const uint64_t seed = 20261121;
    int64_t start = qr_clock_us();
    printf("seed %llu\n", (unsigned long long)seed);
    static const int32_t threads[] = {1, 2, 3, 7};
    for (int i = 0; i < QR_COUNT(threads); i++)
        launches(threads[i], threads[i] > 2 ? 2000 : 20000, seed + (uint64_t)i);
    for (int i = 0; i < 50; i++)
        qr_queue_free(qr_queue_new(3, false, 64, 64)); /* opened and closed without work */
    printf("stress_pool: passed in %lld ms\n", (long long)((qr_clock_us() - start) / 1000));
    return 0;
}
