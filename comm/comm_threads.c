/* comm_threads.c - ranks as threads of this process: every array is in reach. */
#include "base/assert.h"
#include "base/mem.h"
#include "comm/comm_board.h"

/* Of all ranks; the last one to close frees it. */
struct house {
    struct qr_board board;
    _Atomic int32_t n_open;
};

struct member {
    struct qr_board_seat seat;
    struct house *house; /* owned together */
};

static void *reach(void *user, int32_t rank, uint64_t place)
{
    (void)user, (void)rank;
    return (void *)(uintptr_t)place;
}

static uint64_t place(void *user, const void *p, size_t n_bytes)
{
    (void)user, (void)n_bytes;
    return (uint64_t)(uintptr_t)p;
}

static int run(struct qr_comm *c, const struct qr_comm_call *call, struct qr_err *err)
{
    struct member *m = c->impl;
    return qr_board_run(&m->seat, call, err);
}

static void tell(struct qr_comm *c, const char *why, bool own)
{
    struct member *m = c->impl;
    qr_board_abort(&m->seat, why, own);
}

static void leave(struct qr_comm *c)
{
    struct member *m = c->impl;
    qr_board_leave(&m->seat);
    qr_board_seat_release(&m->seat);
    if (atomic_fetch_sub(&m->house->n_open, 1) == 1)
        qr_free_aligned(m->house);
    qr_free(m);
}

int qr_comm_open_threads(struct qr_comm *c, int32_t n, struct qr_err *err)
{
    static const struct qr_comm_ops ops = {.name = "threads", .anywhere = true, .run = run, .abort = tell, .alloc = qr_comm_plain_alloc,
                                          .free = qr_comm_plain_free, .close = leave};
    QR_ASSERT(c != NULL && err != NULL);
    if (n < 1 || n > QR_COMM_RANKS_MAX)
        return qr_err_set(err, QR_E_USAGE, "%d ranks, expected 1 to %d", n, QR_COMM_RANKS_MAX);
    struct house *h = qr_alloc_aligned(sizeof *h, 64);
    qr_board_init(&h->board, n);
    atomic_store(&h->n_open, n);
    for (int32_t r = 0; r < n; r++) {
        struct member *m = qr_alloc(1, sizeof *m);
        m->house = h;
        qr_board_seat_init(&m->seat, &h->board, r);
        m->seat.reach = reach;
        m->seat.place = place;
        c[r] = (struct qr_comm){.rank = r, .size = n, .ops = &ops, .impl = m};
        int rc = qr_comm_line_open(&c[r], true, err);
        QR_ASSERT(rc == 0); /* there is no `begin` that could fail */
    }
    return 0;
}
