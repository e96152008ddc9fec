/* loop.c - the exchange's thread: what the engine wants, what is due, what can be read and written, in turns. It waits in one place, poll(), where the bell and
 * every connection end the wait. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "exchange/conn.h"

enum { BELL, LISTENER, CONNS, POLL_MAX = CONNS + QR_PEERS_MAX + QR_CONN_GUESTS_MAX };

struct polled {
    struct pollfd at[POLL_MAX];
    struct qr_conn *conn[POLL_MAX]; /* borrowed */
    int n;
};

void qr_exchange_ring(void *arg)
{
    struct qr_exchange *x = arg;
    const uint64_t one = 1;
    QR_ASSERT(x != NULL && x->bell >= 0);
    if (atomic_exchange(&x->rung, true))
        return;
    const ssize_t n = write(x->bell, &one, sizeof one);
    QR_ASSERT(n == (ssize_t)sizeof one || errno == EAGAIN);
}

static void still(const struct qr_exchange *x)
{
    uint64_t n;
    const ssize_t n_read = read(x->bell, &n, sizeof n);
    QR_ASSERT(n_read == (ssize_t)sizeof n || errno == EAGAIN || errno == EINTR);
}

static void take(struct qr_exchange *x)
{
    struct qr_node fetches, *node;
    qr_list_init(&fetches);
    atomic_store(&x->rung, false); /* first: what is put into a box behind this is rung for */
    const int64_t n_stops = atomic_load(&x->n_stops); /* before the fetches are taken: those that were stopped are among them */
    qr_mailbox_take(&x->fetches, &fetches);
    while ((node = qr_list_pop_front(&fetches)))
        qr_fetch_begin(x, QR_CONTAINER(node, struct qr_fetch, link));
    if (n_stops != x->stops_seen)
        qr_fetch_stop_all(x);
    x->stops_seen = n_stops;
    qr_loan_take(x);
}

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void add(struct polled *p, struct qr_conn *c)
{
    if (c->starved)
        qr_conn_read(c);
    qr_conn_write(c);
    const short events = c->broken ? 0 : qr_conn_events(c);
    if (events == 0) /* poll would report an end again and again that nothing can be done about now */
        return;
    p->conn[p->n] = c;
    p->at[p->n++] = (struct pollfd){.fd = c->fd, .events = events};
}

/* All that was there to do is done; what is waited for, and until when. */
static int64_t prepare(struct qr_exchange *x, struct polled *p)
{
    int64_t until_us = qr_find_tick(x);
    const bool accepts = x->listener >= 0 && x->now_us >= x->accept_us;
    p->n = CONNS;
    p->at[BELL] = (struct pollfd){.fd = x->bell, .events = POLLIN};
    p->at[LISTENER] = (struct pollfd){.fd = accepts ? x->listener : -1, .events = POLLIN};
    if (x->listener >= 0 && !accepts)
        until_us = sooner(until_us, x->accept_us);
    for (int32_t i = 0; i < x->config.n_peers; i++) {
        until_us = sooner(until_us, qr_peer_tick(x, &x->peer[i]));
        if (x->peer[i].conn)
            add(p, x->peer[i].conn);
    }
    for (struct qr_node *at = x->guests.next; at != &x->guests; at = at->next) {
        struct qr_conn *c = QR_CONTAINER(at, struct qr_conn, link);
        until_us = sooner(until_us, qr_conn_tick(c));
        if (c->stage == QR_CONN_OPEN && !c->broken)
            until_us = sooner(until_us, qr_loans_tick(c));
        add(p, c);
    }
    return until_us;
}

/* Connections that are broken go. True: there was one, and others may have something to do because of it. */
static bool sweep(struct qr_exchange *x)
{
    bool any = false;
    for (int32_t i = 0; i < x->config.n_peers; i++) {
        struct qr_peer *p = &x->peer[i];
        if (p->conn && p->conn->broken) {
            qr_peer_lost(p);
            any = true;
        }
    }
    for (struct qr_node *at = x->guests.next, *next; at != &x->guests; at = next) {
        struct qr_conn *c = QR_CONTAINER(at, struct qr_conn, link);
        next = at->next;
        if (c->broken) {
            qr_guest_lost(c);
            any = true;
        }
    }
    return any;
}

static void serve(struct qr_conn *c, short events)
{
    if (c->stage == QR_CONN_CONNECTING) {
        const int why = c->wire->connected(c->fd);
        if (why != 0)
            qr_conn_break(c, why == ECONNREFUSED ? "nothing listens there" : "it cannot be reached");
        else
            qr_hello_begin(c);
        return; /* the next turn writes */
    }
    if ((events & POLLOUT) && !c->broken)
        qr_conn_write(c);
    if ((events & ~POLLOUT) && !c->starved && !c->broken)
        qr_conn_read(c);
}

static int timeout_ms(const struct qr_exchange *x, int64_t until_us)
{
    const int64_t us = until_us - x->now_us;
    return until_us == INT64_MAX ? -1 : us <= 0 ? 0 : us > 1000 * 1000 ? 1000 : (int)(us / 1000 + 1);
}

static void *run(void *arg)
{
    struct qr_exchange *x = arg;
    struct polled p;
    qr_thread_set_name("quire-peers");
    while (!atomic_load(&x->ending)) {
        x->now_us = qr_clock_us();
        take(x);
        const int64_t until_us = prepare(x, &p);
        const bool again = sweep(x);
        const int n = again ? 0 : poll(p.at, (nfds_t)p.n, timeout_ms(x, until_us));
        x->now_us = qr_clock_us();
        if (n > 0 && p.at[BELL].revents)
            still(x);
        for (int i = CONNS; i < p.n && n > 0; i++)
            if (p.at[i].revents)
                serve(p.conn[i], p.at[i].revents);
        if (n > 0 && p.at[LISTENER].revents)
            qr_guests_accept(x);
        sweep(x);
    }
    return NULL;
}

void qr_exchange_start(struct qr_exchange *x)
{
    QR_ASSERT(x != NULL && !x->started);
    QR_ASSERT(x->bell >= 0);
    qr_thread_start(&x->thread, run, x, "the exchange of blocks");
    x->started = true;
}
