/* loop.c - the event loop over libuv: clock, descriptors (loop.h). A handle's memory goes when libuv has closed it;
 * qr_loop_free waits for that. */
#include "client/loop.h"

#include <errno.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <uv.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"

struct qr_loop {
    uv_loop_t uv;
};

struct qr_timer {
    uv_poll_t poll;
    int fd;
    bool freed;
    void (*fn)(void *arg);
    void *arg; /* borrowed from the caller */
};

struct qr_watch {
    uv_poll_t poll;
    void (*fn)(void *arg);
    void *arg; /* borrowed from the caller */
};

struct qr_loop *qr_loop_new(void)
{
    struct qr_loop *l = qr_alloc(1, sizeof *l);
    int rc = uv_loop_init(&l->uv);
    if (rc != 0)
        qr_panic("cannot make an event loop: %s", uv_strerror(rc));
    return l;
}

void qr_loop_free(struct qr_loop *l)
{
    if (l == NULL)
        return;
    while (uv_loop_alive(&l->uv)) /* the close callbacks; more than once after a qr_loop_stop that no run consumed */
        uv_run(&l->uv, UV_RUN_DEFAULT);
    int rc = uv_loop_close(&l->uv);
    QR_ASSERT(rc == 0);
    qr_free(l);
}

void qr_loop_run(struct qr_loop *l)
{
    QR_ASSERT(l != NULL);
    uv_run(&l->uv, UV_RUN_DEFAULT);
}

void qr_loop_poll(struct qr_loop *l)
{
    QR_ASSERT(l != NULL);
    uv_run(&l->uv, UV_RUN_NOWAIT);
}

void qr_loop_stop(struct qr_loop *l)
{
    QR_ASSERT(l != NULL);
    uv_stop(&l->uv);
}

void *qr_loop_uv(struct qr_loop *l)
{
    QR_ASSERT(l != NULL);
    return &l->uv;
}

/* ---- timers ---- */

static void timer_fired(uv_poll_t *poll, int status, int events)
{
    struct qr_timer *t = poll->data;
    uint64_t n_expired;
    if (status < 0 || read(t->fd, &n_expired, sizeof n_expired) != sizeof n_expired)
        return; /* set again since it fired: nothing is due */
    t->fn(t->arg);
}

struct qr_timer *qr_timer_new(struct qr_loop *l, void (*fn)(void *arg), void *arg)
{
    QR_ASSERT(l != NULL);
    QR_ASSERT(fn != NULL);
    struct qr_timer *t = qr_alloc(1, sizeof *t);
    t->fn = fn;
    t->arg = arg;
    t->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (t->fd < 0)
        qr_panic("cannot make a timer: %s", strerror(errno));
    int rc = uv_poll_init(&l->uv, &t->poll, t->fd);
    QR_ASSERT(rc == 0);
    t->poll.data = t;
    return t;
}

static void timer_closed(uv_handle_t *h)
{
    struct qr_timer *t = h->data;
    close(t->fd);
    qr_free(t);
}

void qr_timer_free(struct qr_timer *t)
{
    if (t == NULL)
        return;
    QR_ASSERT(!t->freed);
    t->freed = true;
    uv_close((uv_handle_t *)&t->poll, timer_closed);
}

static void timer_set(struct qr_timer *t, int64_t first_ns, int64_t period_ns, int flags)
{
    struct itimerspec when = {
        .it_value = {.tv_sec = first_ns / 1000000000, .tv_nsec = first_ns % 1000000000},
        .it_interval = {.tv_sec = period_ns / 1000000000, .tv_nsec = period_ns % 1000000000},
    };
    int rc = timerfd_settime(t->fd, flags, &when, NULL);
    QR_ASSERT(rc == 0);
}

void qr_timer_at(struct qr_timer *t, int64_t at_ns)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(!t->freed);
    timer_set(t, at_ns > 0 ? at_ns : 1, 0, TFD_TIMER_ABSTIME); /* zero would switch it off */
    uv_poll_start(&t->poll, UV_READABLE, timer_fired);
}

void qr_timer_every(struct qr_timer *t, int64_t period_ns)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(period_ns > 0);
    timer_set(t, period_ns, period_ns, 0);
    uv_poll_start(&t->poll, UV_READABLE, timer_fired);
}

/* ---- descriptors ---- */

static void watch_fired(uv_poll_t *poll, int status, int events)
{
    struct qr_watch *w = poll->data;
    w->fn(w->arg);
}

struct qr_watch *qr_watch_new(struct qr_loop *l, int fd, void (*fn)(void *arg), void *arg)
{
    QR_ASSERT(l != NULL);
    QR_ASSERT(fd >= 0);
    struct qr_watch *w = qr_alloc(1, sizeof *w);
    w->fn = fn;
    w->arg = arg;
    int rc = uv_poll_init(&l->uv, &w->poll, fd);
    if (rc != 0)
        qr_panic("cannot watch a descriptor: %s", uv_strerror(rc));
    w->poll.data = w;
    uv_poll_start(&w->poll, UV_READABLE, watch_fired);
    return w;
}

static void watch_closed(uv_handle_t *h)
{
    qr_free(h->data);
}

void qr_watch_free(struct qr_watch *w)
{
    if (w == NULL)
        return;
    QR_ASSERT(!uv_is_closing((uv_handle_t *)&w->poll));
    uv_close((uv_handle_t *)&w->poll, watch_closed);
}
