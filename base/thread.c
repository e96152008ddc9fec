#include "base/thread.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"

void qr_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_us)
{
    QR_ASSERT(word != NULL);
    struct timespec ts = {.tv_sec = (time_t)(timeout_us / 1000000), .tv_nsec = (long)(timeout_us % 1000000) * 1000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, timeout_us < 0 ? NULL : &ts, NULL, 0);
}

void qr_futex_wake(_Atomic uint32_t *word, int32_t n_threads)
{
    QR_ASSERT(word != NULL);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n_threads, NULL, NULL, 0);
}

int32_t qr_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (int32_t)CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN); /* the set was too small for this machine */
    return n > 0 ? (int32_t)n : 1;
}

void qr_thread_set_name(const char *name)
{
    QR_ASSERT(name != NULL);
    char cut[16];
    snprintf(cut, sizeof cut, "%s", name);
    pthread_setname_np(pthread_self(), cut);
}

void qr_thread_pin(int32_t i)
{
    QR_ASSERT(i >= 0);
    cpu_set_t may, one;
    if (sched_getaffinity(0, sizeof may, &may) != 0)
        return;
    CPU_ZERO(&one);
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &may) && seen++ == i) {
            CPU_SET(cpu, &one);
            pthread_setaffinity_np(pthread_self(), sizeof one, &one);
            return;
        }
}
