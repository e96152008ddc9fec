/* flaky.h - a thread between an asker and a lender over TCP that flips bits, cuts and stalls, at places that its seed says. Both directions. */
#ifndef QR_TESTS_EXCHANGE_FLAKY_H
#define QR_TESTS_EXCHANGE_FLAKY_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/rng.h"
#include "exchange/wire.h"

struct flaky {
    struct qr_rng rng;
    struct qr_wire_place from, to;
    int listener;
    pthread_t thread;
    _Atomic bool end;
    _Atomic int n_connections, n_flips, n_cuts, n_stalls;
    uint32_t bytes_between; /* two faults, on average */
};

/* Passes what there is from one to the other, with a fault where one is due. False: this connection is over. */
static inline bool flaky_pass(struct flaky *f, int from, int to, int64_t *until_fault)
{
    uint8_t bytes[4096];
    const ssize_t n = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    *until_fault -= n;
    if (*until_fault < 0) {
        *until_fault = qr_rng_below(&f->rng, 2 * f->bytes_between);
        switch (qr_rng_below(&f->rng, 3)) {
        case 0:
            bytes[qr_rng_below(&f->rng, (uint32_t)n)] ^= (uint8_t)(1 << qr_rng_below(&f->rng, 8));
            atomic_fetch_add(&f->n_flips, 1);
            break;
        case 1:
            atomic_fetch_add(&f->n_cuts, 1);
            (void)!send(to, bytes, qr_rng_below(&f->rng, (uint32_t)n), MSG_NOSIGNAL);
            return false;
        default:
            atomic_fetch_add(&f->n_stalls, 1);
            usleep(20000);
        }
    }
    return send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

static inline void flaky_connection(struct flaky *f, int guest)
{
    const char *why;
    int64_t until_fault = qr_rng_below(&f->rng, 2 * f->bytes_between);
    const int host = f->to.wire->connect(&f->to, &why);
    atomic_fetch_add(&f->n_connections, 1);
    bool open = host >= 0;
    while (open && !atomic_load(&f->end)) {
        struct pollfd at[2] = {{.fd = guest, .events = POLLIN}, {.fd = host, .events = POLLIN}};
        poll(at, 2, 20);
        open = (!at[0].revents || flaky_pass(f, guest, host, &until_fault)) && (!at[1].revents || flaky_pass(f, host, guest, &until_fault));
    }
    close(guest);
    if (host >= 0)
        close(host);
}

static inline void *flaky_run(void *arg)
{
    struct flaky *f = arg;
    while (!atomic_load(&f->end)) {
        struct pollfd at = {.fd = f->listener, .events = POLLIN};
        const int guest = poll(&at, 1, 20) == 1 ? f->from.wire->accept(f->listener) : -1;
        if (guest >= 0)
            flaky_connection(f, guest);
    }
    return NULL;
}

/* In front of the lender at `address`; f->from.text is its own. */
static inline void flaky_open(struct flaky *f, const char *address, uint64_t seed, uint32_t bytes_between)
{
    struct qr_err err;
    *f = (struct flaky){.rng = {.seed = seed}, .bytes_between = bytes_between};
    QR_ASSERT(qr_wire_parse(&f->to, address, &err) == 0 && qr_wire_parse(&f->from, "127.0.0.1:0", &err) == 0);
    f->listener = f->from.wire->listen(&f->from, &err);
    QR_ASSERT(f->listener >= 0);
    QR_ASSERT(pthread_create(&f->thread, NULL, flaky_run, f) == 0);
}

static inline void flaky_close(struct flaky *f)
{
    atomic_store(&f->end, true);
    pthread_join(f->thread, NULL);
    f->from.wire->unlisten(&f->from, f->listener);
    f->to.wire->forget(&f->to);
}

#endif
