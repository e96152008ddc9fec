#include "engine/pages.h"

#include "base/assert.h"
#include "base/mem.h"
#include "base/thread.h"

#define AHEAD_BYTES ((size_t)32 << 20)
#define PIECE_BYTES ((size_t)2 << 20)

static void *provide(void *arg)
{
    struct qr_pages *p = arg;
    qr_thread_set_name("quire-pages");
    while (!atomic_load(&p->stop)) {
        uint32_t seen = atomic_load(&p->changed);
        size_t done = atomic_load(&p->done), goal = atomic_load(&p->goal);
        if (done >= goal) {
            qr_futex_wait(&p->changed, seen, -1);
            continue;
        }
        size_t n = goal - done < PIECE_BYTES ? goal - done : PIECE_BYTES;
        qr_mem_populate(p->mem + done, n);
        atomic_store(&p->done, done + n);
    }
    return NULL;
}

void qr_pages_start(struct qr_pages *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(!p->running);
    *p = (struct qr_pages){.running = true};
    qr_thread_start(&p->thread, provide, p, "the cache's pages");
}

void qr_pages_watch(struct qr_pages *p, void *mem, size_t n_bytes)
{
    QR_ASSERT(p != NULL && p->running && p->mem == NULL);
    QR_ASSERT(mem != NULL || n_bytes == 0);
    p->mem = mem;
    p->n_bytes = n_bytes;
    p->asked = n_bytes < AHEAD_BYTES ? n_bytes : AHEAD_BYTES;
    qr_mem_populate(mem, p->asked);
    atomic_store(&p->done, p->asked);
    atomic_store(&p->goal, p->asked); /* the thread reads mem only behind a goal that is not reached yet */
}

void qr_pages_used(struct qr_pages *p, size_t used)
{
    QR_ASSERT(p != NULL && p->running);
    QR_ASSERT(used <= p->n_bytes);
    if (used + AHEAD_BYTES / 2 <= p->asked || p->asked == p->n_bytes)
        return;
    size_t goal = used + AHEAD_BYTES;
    p->asked = goal < p->n_bytes ? goal : p->n_bytes;
    atomic_store(&p->goal, p->asked);
    atomic_fetch_add(&p->changed, 1);
    qr_futex_wake(&p->changed, 1);
}

void qr_pages_stop(struct qr_pages *p)
{
    QR_ASSERT(p != NULL);
    if (!p->running)
        return;
    QR_ASSERT(atomic_load(&p->done) <= atomic_load(&p->goal));
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->changed, 1);
    qr_futex_wake(&p->changed, 1);
    pthread_join(p->thread, NULL);
    p->running = false;
}
