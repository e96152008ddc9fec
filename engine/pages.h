/* pages.h - a thread that has the system provide the cache's memory before it is written, so that no step waits for it.
 *
 * The cache is a large reservation, used from its beginning. Providing all of it at start would take seconds and memory that may never be
 * used, so a little more than what is in use is provided: 32 MiB ahead. When the thread comes too late, the step's own page fault does the same.
 * The engine thread calls everything here; the thread itself touches nothing but the memory it was given, and that only by asking the system.
 */
#ifndef QR_ENGINE_PAGES_H
#define QR_ENGINE_PAGES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qr_pages {
    uint8_t *mem;              /* borrowed */
    size_t n_bytes, asked;     /* asked: what the thread was last told to provide */
    _Atomic size_t goal, done; /* bytes from the beginning: to be provided, and provided */
    _Atomic uint32_t changed;  /* futex */
    _Atomic bool stop;
    bool running;
    pthread_t thread;
};

/* Starts the thread on the processors of the calling one: before it is pinned. */
void qr_pages_start(struct qr_pages *p);

/* The first bytes are provided before this returns, 32 MiB of them. */
void qr_pages_watch(struct qr_pages *p, void *mem, size_t n_bytes);

/* The first `used` bytes are in use or about to be: what lies ahead of them will be provided. Costs nothing when it is. */
void qr_pages_used(struct qr_pages *p, size_t used);

/* Joins the thread. The memory may be freed afterwards, not before. Never started is fine. */
void qr_pages_stop(struct qr_pages *p);

#endif
