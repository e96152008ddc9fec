/* comm_board.h - ranks that reach each other's memory: threads of one process, or processes over one mapping. Stays inside comm/.
 *
 * Nothing is sent: every rank posts where its array lies, all meet, each computes its share of the result from all arrays and writes it to where it belongs,
 * all meet again. An array that others cannot reach is taken piece by piece through windows that they can. Meeting is a counter per rank and a futex that the
 * last to arrive wakes; a waiting rank checks every 100 ms whether another died, left or gave up.
 *
 * The board itself may lie in memory of several processes: it holds no pointer.
 */
#ifndef QR_COMM_COMM_BOARD_H
#define QR_COMM_COMM_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/comm_ops.h"

#define QR_BOARD_PRIVATE UINT64_MAX /* a place that other ranks do not reach */

/* What a rank starts. */
struct qr_board_post {
    uint64_t place; /* of data: what `reach` makes an address of */
    struct qr_comm_what what;
};

struct qr_board_rank {
    _Alignas(64) _Atomic uint64_t at; /* meetings it came to */
    _Atomic bool busy;                /* reads or writes arrays of others */
    _Atomic bool left;                /* will not come again */
    _Atomic int32_t pid;              /* processes only */
    struct qr_board_post post[2];     /* of even and odd calls: one that no rank reads any more and one that some may still read */
};

struct qr_board {
    int32_t size;
    _Atomic uint32_t bell;            /* changes when all ranks are there, and when one leaves or gives up */
    _Atomic uint32_t word;            /* 0: all is well. 1: the reason is being written. 2: it is there */
    char why[480];
    struct qr_board_rank rank[QR_COMM_RANKS_MAX];
};

/* One rank's view of a board. */
struct qr_board_seat {
    struct qr_board *board;           /* borrowed */
    int32_t rank;
    bool shared;                      /* processes: futexes are the system's, the others may die */
    int64_t spin_ns;                  /* how long a meeting looks for the others before it sleeps; 0: not at all */
    uint64_t n_met, n_calls;
    void *scratch;                    /* owned: for sums */
    size_t window_bytes;              /* 0: every array is reachable */
    void *user;
    void *(*reach)(void *user, int32_t rank, uint64_t place); /* where a rank's place is in this process */
    uint64_t (*place)(void *user, const void *p, size_t n_bytes); /* of this rank's own memory, or QR_BOARD_PRIVATE */
    uint64_t (*window)(void *user, int32_t rank);             /* the place of a rank's window */
    bool (*dead)(void *user, int32_t rank);                   /* NULL: ranks do not die alone */
};

void qr_board_init(struct qr_board *b, int32_t size);
void qr_board_seat_init(struct qr_board_seat *s, struct qr_board *b, int32_t rank); /* rank, board, scratch; zeroes the rest */
void qr_board_seat_release(struct qr_board_seat *s);

/* ops->run and ops->abort of both transports. */
int qr_board_run(struct qr_board_seat *s, const struct qr_comm_call *call, struct qr_err *err);
void qr_board_abort(struct qr_board_seat *s, const char *why, bool own);

/* A call some of whose arrays are out of reach; all ranks take part, as in meetings. */
int qr_board_staged(struct qr_board_seat *s, const struct qr_comm_call *call, struct qr_err *err);

/* All ranks are here, or an error says which is not and why. */
int qr_board_meet(struct qr_board_seat *s, struct qr_err *err);

/* Without waiting: whether a rank has given up, or `dead` says that it died. */
bool qr_board_lost(struct qr_board_seat *s, bool (*dead)(void *user, int32_t rank), struct qr_err *err);

/* This rank will not come again; ranks that wait for it are told. */
void qr_board_leave(struct qr_board_seat *s);

#endif
