#include "base/thread.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/exhausted.h"
#include "base/mem.h"

static void futex_wait(_Atomic uint32_t *word, int op, uint32_t expected, int64_t timeout_us)
{
    QR_ASSERT(word != NULL);
    struct timespec ts = {.tv_sec = (time_t)(timeout_us / 1000000), .tv_nsec = (long)(timeout_us % 1000000) * 1000};
    syscall(SYS_futex, word, op, expected, timeout_us < 0 ? NULL : &ts, NULL, 0);
}

void qr_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_us)
{
    futex_wait(word, FUTEX_WAIT_PRIVATE, expected, timeout_us);
}

void qr_futex_wake(_Atomic uint32_t *word, int32_t n_threads)
{
    QR_ASSERT(word != NULL);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n_threads, NULL, NULL, 0);
}

void qr_futex_wait_shared(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_us)
{
    futex_wait(word, FUTEX_WAIT, expected, timeout_us);
}

void qr_futex_wake_shared(_Atomic uint32_t *word, int32_t n_threads)
{
    QR_ASSERT(word != NULL);
    syscall(SYS_futex, word, FUTEX_WAKE, n_threads, NULL, NULL, 0);
}

int32_t qr_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (int32_t)CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN); /* the set was too small for this machine */
    return n > 0 ? (int32_t)n : 1;
}

void qr_thread_start(pthread_t *thread, void *(*run)(void *), void *arg, const char *what)
{
    QR_ASSERT(thread != NULL && run != NULL);
    QR_ASSERT(what != NULL);
    const int rc = pthread_create(thread, NULL, run, arg);
    if (rc != 0)
        qr_exhausted("no thread can be started for %s: %s; limits are ulimit -u, -v, and pids.max of the control group; --threads N asks for fewer", what,
                     strerror(rc));
}

void qr_thread_set_name(const char *name)
{
    QR_ASSERT(name != NULL);
    char cut[16];
    snprintf(cut, sizeof cut, "%s", name);
    pthread_setname_np(pthread_self(), cut);
}

void qr_thread_pin(int32_t cpu)
{
    QR_ASSERT(cpu >= 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    if (cpu < CPU_SETSIZE) {
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    }
}

void *qr_thread_pin_for_now(int32_t cpu)
{
    QR_ASSERT(cpu >= 0);
    cpu_set_t *before = qr_alloc(1, sizeof *before);
    if (pthread_getaffinity_np(pthread_self(), sizeof *before, before) != 0) {
        qr_free(before);
        return NULL;
    }
    qr_thread_pin(cpu);
    return before;
}

void qr_thread_unpin(void *before)
{
    if (before)
        pthread_setaffinity_np(pthread_self(), sizeof(cpu_set_t), before);
    qr_free(before);
}
