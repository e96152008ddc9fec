/* loop.h - one event loop behind our own names: a clock that can be slept on, readable descriptors, and (in http_client.h)
 * connections. It exists so that bench/ can drive thousands of streams without naming libuv. Nothing of libuv may leak
 * through it. A loop and everything made from it belong to one thread; callbacks run inside qr_loop_run.
 */
#ifndef QR_CLIENT_LOOP_H
#define QR_CLIENT_LOOP_H

#include <stdint.h>

struct qr_loop;
struct qr_timer;
struct qr_watch;

struct qr_loop *qr_loop_new(void);

/* Everything made from the loop must have been freed before. */
void qr_loop_free(struct qr_loop *l);

/* Runs callbacks until qr_loop_stop is called, or until nothing is left that could happen. */
void qr_loop_run(struct qr_loop *l);

/* Handles what has already happened and returns at once. */
void qr_loop_poll(struct qr_loop *l);

void qr_loop_stop(struct qr_loop *l);

/* libuv's loop, for the .c files of this folder only. */
void *qr_loop_uv(struct qr_loop *l);

/* A timer on qr_clock_ns time with the kernel's resolution (timerfd): libuv's own timers round to milliseconds, which a load
 * generator's send times must not. It starts switched off. fn may free it. */
struct qr_timer *qr_timer_new(struct qr_loop *l, void (*fn)(void *arg), void *arg);
void qr_timer_free(struct qr_timer *t); /* NULL is fine */

/* One call at at_ns (in the past: at once). Replaces what was set before. */
void qr_timer_at(struct qr_timer *t, int64_t at_ns);

/* A call every period_ns, the first after one period. */
void qr_timer_every(struct qr_timer *t, int64_t period_ns);

/* fn is called whenever fd can be read (level-triggered). fd stays the caller's. */
struct qr_watch *qr_watch_new(struct qr_loop *l, int fd, void (*fn)(void *arg), void *arg);
void qr_watch_free(struct qr_watch *w); /* NULL is fine; before fd is closed */

#endif
