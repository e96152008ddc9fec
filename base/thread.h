/* thread.h - the few things pthreads lack: futex sleep and wake, names, pinning, the number of usable processors (cpus.h knows which). */
#ifndef QR_BASE_THREAD_H
#define QR_BASE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* A thread that this process cannot do without. Where the system has none left, a line says so, names `what`, and the process ends (qr_exhausted). */
void qr_thread_start(pthread_t *thread, void *(*run)(void *), void *arg, const char *what);

/* Sleeps while *word == expected (spurious returns happen; callers re-check). timeout_us < 0: no limit. */
void qr_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_us);
void qr_futex_wake(_Atomic uint32_t *word, int32_t n_threads);

/* The same for a word in memory that processes share. */
void qr_futex_wait_shared(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_us);
void qr_futex_wake_shared(_Atomic uint32_t *word, int32_t n_threads);

/* Processors this process may run on (sched_getaffinity), at least 1. */
int32_t qr_cpu_count(void);

/* Names the calling thread (15 bytes are kept) for ps, top and debuggers. */
void qr_thread_set_name(const char *name);

/* Pins the calling thread to the processor with this number; silently stays as it is where the system refuses. */
void qr_thread_pin(int32_t cpu);

/* The same, and what to give qr_thread_unpin later (on the same thread) to have things as they were. NULL where the system refused. */
void *qr_thread_pin_for_now(int32_t cpu);
void qr_thread_unpin(void *before); /* NULL: does nothing */

#endif
