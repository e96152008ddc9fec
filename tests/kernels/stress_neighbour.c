/* The pool beside another process that takes a core, and with more threads than processors: it must lose what is taken, not a multiple of it.
 * Launches are those of a decode step: 100 to 200 us of work in a dozen items, one barrier each.
 *
 * Fair shares: of c processors a spinning neighbour takes half of one, so c - 1/2 are left; where the pool has two threads for each processor
 * there is nothing to lose. A pool that splits its work evenly and spins while it waits falls to a fifth and less. What is demanded is
 * wide, because other processes run beside the tests: half of the fair share, the median of three rounds in turn, in one of five tries. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/thread.h"
#include "kernels/cpu/pool.h"

enum { ROUNDS = 3, N_WAYS = 4, TRIES = 5 };
#define ITEMS 12
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif
#define ROUND_US 200000 /* dozens of a scheduler's turns */

struct work {
    int32_t loops;
    float *sink; /* borrowed [ITEMS][16] */
};

static void churn(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct work *w = arg;
    float v = (float)item + 1;
    for (int32_t i = 0; i < w->loops; i++)
        v = v * 1.0001f + 0.0001f;
    w->sink[item * 16] = v;
}

/* Items of about 20 us on this machine. */
static int32_t calibrate(struct work *w)
{
    w->loops = 100000;
    int64_t best = INT64_MAX;
    for (int i = 0; i < 20; i++) {
        int64_t t = qr_clock_ns();
        churn(w, 0, 0);
        t = qr_clock_ns() - t;
        best = t < best ? t : best;
    }
    return (int32_t)(100000.0 * 20000.0 / (double)best) + 1;
}

static double launches_per_s(struct qr_queue *q, const struct work *w)
{
    int64_t begin = qr_clock_us(), n = 0;
    while (qr_clock_us() - begin < ROUND_US) {
        qr_queue_run(q, churn, w, ITEMS);
        n++;
    }
    return (double)n * 1e6 / (double)(qr_clock_us() - begin);
}

static pid_t start_neighbour(int32_t cpu)
{
    pid_t pid = fork();
    QR_ASSERT(pid >= 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    qr_thread_pin(cpu);
    for (volatile uint64_t n = 0;;)
        n = n + 1;
}

static void stop_neighbour(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Launches per second of every way, the median of its rounds. */
static void measure(double median[N_WAYS], const struct qr_cpus *cpus, const struct work *w)
{
    double rate[N_WAYS][ROUNDS];
    for (int32_t r = 0; r < ROUNDS; r++)
        for (int32_t way = 0; way < N_WAYS; way++) {
            struct qr_queue *q = qr_queue_new(way == 3 ? 2 * cpus->n : cpus->n, cpus, way < 2, 64, 64);
            pid_t pid = way == 1 || way == 2 ? start_neighbour(cpus->cpu[cpus->n - 1]) : 0;
            usleep(20000);
            rate[way][r] = launches_per_s(q, w);
            if (pid)
                stop_neighbour(pid);
            qr_queue_free(q);
        }
    for (int32_t way = 0; way < N_WAYS; way++) {
        qsort(rate[way], ROUNDS, sizeof rate[way][0], compare);
        median[way] = rate[way][ROUNDS / 2];
    }
}

int main(void)
{
    static const char *const name[N_WAYS] = {"alone", "beside a neighbour", "beside a neighbour, unpinned", "twice the threads"};
    struct qr_cpus cpus;
    qr_cpus_allowed(&cpus);
    if (cpus.n < 2 || SANITIZED) {
        printf("SKIP stress_neighbour: %s\n0 passed, 0 failed, 1 skipped\n", SANITIZED ? "a sanitizer's times say nothing" : "one processor");
        return 0;
    }
    cpus.n = cpus.n < 4 ? cpus.n : 4;
    float *sink = calloc(ITEMS * 16, sizeof *sink);
    struct work w = {.sink = sink};
    w.loops = calibrate(&w);
    bool good[N_WAYS] = {false};
    int n_failed = N_WAYS;
    for (int32_t tries = 0; tries < TRIES && n_failed > 0; tries++) { /* each way has to do well once: a pool that loses a multiple never does */
        double rate[N_WAYS];
        measure(rate, &cpus, &w);
        n_failed = 0;
        for (int32_t way = 0; way < N_WAYS; way++) {
            double share = rate[way] / rate[0];
            double fair = way == 1 || way == 2 ? (cpus.n - 0.5) / cpus.n : 1;
            good[way] = good[way] || share >= fair / 2;
            printf("%-30s %7.0f launches/s, %.2f of alone, fair %.2f%s\n", name[way], rate[way], share, fair, share >= fair / 2 ? "" : "   TOO SLOW");
            n_failed += !good[way];
        }
    }
    free(sink);
    printf("%d passed, %d failed\n", N_WAYS - n_failed, n_failed);
    return n_failed > 0;
}
