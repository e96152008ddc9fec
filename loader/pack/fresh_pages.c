#include "loader/pack/fresh_pages.h"

#include <sched.h>

#include "base/assert.h"
#include "base/mem.h"

#define PAGE_BYTES QR_FRESH_PAGE_BYTES

enum { PAGE_FRESH, PAGE_BEING_ENTERED, PAGE_THERE };

void qr_fresh_pages_init(struct qr_fresh_pages *e, void *begin, size_t n_bytes, size_t n_ahead)
{
    QR_ASSERT(e != NULL && begin != NULL);
    QR_ASSERT(n_ahead >= 1);
    *e = (struct qr_fresh_pages){begin, n_bytes, qr_alloc((n_bytes + PAGE_BYTES - 1) / PAGE_BYTES, sizeof *e->state), n_ahead};
}

void qr_fresh_pages_release(struct qr_fresh_pages *e)
{
    QR_ASSERT(e != NULL);
    qr_free((void *)e->state);
    *e = (struct qr_fresh_pages){0};
}

/* Page i, if nobody else has begun to. */
static bool take_page(const struct qr_fresh_pages *e, size_t i)
{
    uint8_t before = PAGE_FRESH, *at = e->begin + i * PAGE_BYTES;
    const size_t left = e->n_bytes - i * PAGE_BYTES;
    if (!atomic_compare_exchange_strong(&e->state[i], &before, PAGE_BEING_ENTERED))
        return false;
    qr_mem_populate(at, left < PAGE_BYTES ? left : PAGE_BYTES);
    atomic_store(&e->state[i], PAGE_THERE);
    return true;
}

/* Page i, unless it is there. */
static void enter_page(const struct qr_fresh_pages *e, size_t i)
{
    const size_t n = (e->n_bytes + PAGE_BYTES - 1) / PAGE_BYTES;
    if (atomic_load_explicit(&e->state[i], memory_order_acquire) == PAGE_THERE || take_page(e, i))
        return;
    for (size_t next = i + 1; next < n && next - i <= e->n_ahead && atomic_load(&e->state[i]) != PAGE_THERE; next++)
        if (atomic_load_explicit(&e->state[next], memory_order_relaxed) == PAGE_FRESH && take_page(e, next))
            break;
    while (atomic_load(&e->state[i]) != PAGE_THERE)
        sched_yield();
}

void qr_fresh_pages_enter(const struct qr_fresh_pages *e, const void *p, size_t n_bytes)
{
    const uint8_t *from = p;
    QR_ASSERT(e != NULL);
    if (!e->begin || n_bytes == 0)
        return;
    QR_ASSERT(from >= e->begin && n_bytes <= e->n_bytes - (size_t)(from - e->begin));
    for (size_t i = (size_t)(from - e->begin) / PAGE_BYTES; i <= (size_t)(from - e->begin + n_bytes - 1) / PAGE_BYTES; i++)
        enter_page(e, i);
}

static void enter_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    enter_page(arg, (size_t)item);
}

void qr_fresh_pages_enter_by_all(const struct qr_fresh_pages *e, struct qr_backend *be, const void *p, size_t n_bytes)
{
    struct qr_fresh_pages part = *e;
    QR_ASSERT(be != NULL && p != NULL);
    if (!part.begin)
        return;
    const size_t at = (size_t)((const uint8_t *)p - part.begin), first = at / PAGE_BYTES;
    part.begin += first * PAGE_BYTES;
    part.n_bytes -= first * PAGE_BYTES;
    part.state += first;
    qr_backend_run(be, enter_item, &part, (int32_t)((at + n_bytes + PAGE_BYTES - 1) / PAGE_BYTES - first));
}
