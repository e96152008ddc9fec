/* threads.h - ranks as threads of this process, for tests that look at all of them: every array is in reach. */
#ifndef QR_TESTS_COMM_THREADS_H
#define QR_TESTS_COMM_THREADS_H

#include "base/assert.h"
#include "base/mem.h"
#include "comm/comm_board.h"

/* Of all ranks; the last one to close frees it. */
struct threads_house {
    struct qr_board board;
    _Atomic int32_t n_open;
};

struct threads_member {
    struct qr_board_seat seat;
    struct threads_house *house; /* owned together */
};

static inline void *threads_reach(void *user, int32_t rank, uint64_t place)
{
    return (void *)(uintptr_t)place;
}

static inline uint64_t threads_place(void *user, const void *p, size_t n_bytes)
{
    return (uint64_t)(uintptr_t)p;
}

static inline int threads_run(struct qr_comm *c, const struct qr_comm_call *call, struct qr_err *err)
{
    struct threads_member *m = c->impl;
    return qr_board_run(&m->seat, call, err);
}

static inline void threads_tell(struct qr_comm *c, const char *why, bool own)
{
    struct threads_member *m = c->impl;
    qr_board_abort(&m->seat, why, own);
}

static inline void threads_leave(struct qr_comm *c)
{
    struct threads_member *m = c->impl;
    qr_board_leave(&m->seat);
    qr_board_seat_release(&m->seat);
    if (atomic_fetch_sub(&m->house->n_open, 1) == 1)
        qr_free_aligned(m->house);
    qr_free(m);
}

/* n ranks: c[n], each to be used and closed by one thread. */
static inline void open_threads(struct qr_comm *c, int32_t n)
{
    static const struct qr_comm_ops ops = {.name = "threads", .anywhere = true, .run = threads_run, .abort = threads_tell, .alloc = qr_comm_plain_alloc,
                                          .free = qr_comm_plain_free, .close = threads_leave};
    struct qr_err err;
    QR_ASSERT(n >= 1 && n <= QR_COMM_RANKS_MAX);
    struct threads_house *h = qr_alloc_aligned(sizeof *h, 64);
    qr_board_init(&h->board, n);
    atomic_store(&h->n_open, n);
    for (int32_t r = 0; r < n; r++) {
        struct threads_member *m = qr_alloc(1, sizeof *m);
        m->house = h;
        qr_board_seat_init(&m->seat, &h->board, r);
        m->seat.reach = threads_reach;
        m->seat.place = threads_place;
        c[r] = (struct qr_comm){.rank = r, .size = n, .ops = &ops, .impl = m};
        int rc = qr_comm_line_open(&c[r], true, &err);
        QR_ASSERT(rc == 0); /* there is no `begin` that could fail */
    }
}

#endif
