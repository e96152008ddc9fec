/* thread.h - the few things pthreads lack: futex sleep and wake, names, pinning, the number of usable processors. */
#ifndef QR_BASE_THREAD_H
#define QR_BASE_THREAD_H

#include <stdatomic.h>
#include <stdint.h>

/* Sleeps while *word == expected (spurious returns happen; callers re-check). timeout_us < 0: no limit. */
void qr_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_us);
void qr_futex_wake(_Atomic uint32_t *word, int32_t n_threads);

/* Processors this process may run on (sched_getaffinity), at least 1. */
int32_t qr_cpu_count(void);

/* Names the calling thread (15 bytes are kept) for ps, top and debuggers. */
void qr_thread_set_name(const char *name);

/* Pins the calling thread to the i-th usable processor; silently stays unpinned where the system refuses. */
void qr_thread_pin(int32_t i);

#endif
