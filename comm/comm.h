/* comm.h - ranks that work on one thing: sums and copies of arrays between them.
 *
 * A rank is a thread (tests), a process on this machine, or a process that a launcher started; one `struct qr_comm` per rank says which one it is and reaches
 * the others. All ranks start the same calls in the same order; a call is started and waited for apart, so that it runs while the rank computes: a thread of
 * the comm carries calls out, one after the other, and sleeps between them. What is waited for at once (qr_comm_run) the caller may carry out itself.
 *
 * Sums are the same bits whatever carries them: element i is added along one binary tree over ranks, ((0 + 1) + (2 + 3)) + ..., in its own type. So a sum over
 * 2^k ranks of sums over their own leaves in the same order is the sum over all leaves, however many ranks there are.
 *
 * One owning thread per comm, which stays where it was opened. Buffers of a started call belong to it until it was waited for.
 */
#ifndef QR_COMM_COMM_H
#define QR_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/dtype.h"

#define QR_COMM_RANKS_MAX 64

enum qr_comm_kind {
    QR_COMM_ALL_REDUCE,     /* data becomes the sum, on every rank */
    QR_COMM_REDUCE_SCATTER, /* rank r's part of data becomes the sum of that part; other parts may hold anything afterwards */
    QR_COMM_ALL_GATHER,     /* rank r's part of data becomes that part on every rank */
    QR_COMM_BROADCAST,      /* data of `root` becomes everybody's */
    QR_COMM_GATHER,         /* of each of n_rows rows rank r's part becomes that part on `root`; other ranks' parts may hold anything elsewhere */
    QR_COMM_BARRIER,        /* no data: everybody is here */
};

/* One call, the same on every rank but for `data`. Sums take f32 and f64; copies take any type of whole bytes. */
struct qr_comm_call {
    enum qr_comm_kind kind;
    enum qr_dtype dtype;
    void *data;             /* [n]; of a gather [n_rows][n] */
    int64_t n;
    const int64_t *part;    /* [size + 1], rising from 0 to n: rank r has [part[r], part[r + 1]), which may be empty. Only for scatter and gathers; copied */
    int32_t root, n_rows;   /* n_rows: only of a gather */
};

struct qr_comm_stats {
    int64_t n_calls, n_bytes; /* of calls that were started; bytes: of `data` */
    double waited;            /* seconds inside qr_comm_wait: what communication costs beyond computing */
};

struct qr_comm_ops;           /* comm_ops.h: what a transport fills */
struct qr_comm_line;          /* comm.c: calls in flight, and the thread that carries them out */

struct qr_comm {
    int32_t rank, size;
    int32_t local_rank, local_size; /* among the ranks on this machine; 0 of 0: all are on it */
    size_t window_bytes;       /* memory of this rank for what travels, all in use once large calls were made */
    const struct qr_comm_ops *ops;
    bool hurried;              /* the owner carries out a call itself: the caller waits and has nothing else to do */
    void *impl;                /* owned by the transport */
    struct qr_comm_line *line; /* owned */
    struct qr_comm_stats stats;
};

/* One rank: sums and copies are what is there. */
void qr_comm_open_single(struct qr_comm *c);

/* What processes of one machine share, made before they are forked (launch.h does that); each then opens its rank. It has no name in any file system, so
 * nothing is left of it however they end. Errors: QR_E_NO_ROOM, QR_E_USAGE. */
struct qr_comm_shared;
int qr_comm_shared_new(struct qr_comm_shared **out, int32_t n_ranks, struct qr_err *err);
void qr_comm_shared_free(struct qr_comm_shared *s);
void qr_comm_shared_set_pid(struct qr_comm_shared *s, int32_t rank, int32_t pid); /* so that a rank that dies before it opens is missed */
void qr_comm_open_shm(struct qr_comm *c, struct qr_comm_shared *s, int32_t rank); /* takes s over */

/* Rank `rank` of `size` that a launcher which MPI knows has started. MPI is in a library of its own, which is opened here. Errors: QR_E_UNSUPPORTED (no such
 * library, or another version of it), QR_E_USAGE, QR_E_IO. */
bool qr_comm_has_mpi(void); /* the library is where it is looked for */
int qr_comm_open_mpi(struct qr_comm *c, int32_t rank, int32_t size, struct qr_err *err);

/* A connection to another rank: a stream socket, and its address for messages, "" where that says nothing. */
struct qr_comm_link {
    int fd;
    char where[64];
};

/* Rank `rank` of `size` that has a connection to each of the others (rendezvous.h makes them): takes link[size] over, but for its own. */
void qr_comm_open_tcp(struct qr_comm *c, int32_t rank, int32_t size, const struct qr_comm_link *link);

/* Closes what was opened, and a zeroed comm. A rank that closes with calls not waited for gives up. */
void qr_comm_close(struct qr_comm *c);

/* "single", "shm", "mpi", "tcp". */
const char *qr_comm_name(const struct qr_comm *c);

/* Starts a call; *ticket names it. Waits only when 256 calls are in flight. Errors: those of qr_comm_wait, of earlier
 * calls. */
int qr_comm_start(struct qr_comm *c, const struct qr_comm_call *call, int64_t *ticket, struct qr_err *err);

/* Until that call (and all before it) is done. Errors: QR_E_INVALID when ranks started different calls (names ranks, and what differs), QR_E_CLOSED when a
 * rank died, left or gave up: within two seconds, naming it. A comm that failed once fails always. */
int qr_comm_wait(struct qr_comm *c, int64_t ticket, struct qr_err *err);

/* Start and wait. Where nothing is in flight, a transport that has no thread of its own to mind is run by the caller: a
 * sum of a few numbers then costs no switch between threads. */
int qr_comm_run(struct qr_comm *c, const struct qr_comm_call *call, struct qr_err *err);

/* Everybody is here. */
int qr_comm_barrier(struct qr_comm *c, struct qr_err *err);

/* Without waiting: whether this comm has failed, or a rank is known to have given up or died; then *err says which. For who waits for something else that
 * other ranks must do. */
bool qr_comm_lost(struct qr_comm *c, struct qr_err *err);

/* This rank gives up: waits of all ranks, this one's included, end with `why`. */
void qr_comm_abort(struct qr_comm *c, const char *why);

/* Which of the ranks on this machine this one is, and how many these are. c NULL: 0 of 1. */
void qr_comm_place(const struct qr_comm *c, int32_t *local_rank, int32_t *local_size);

/* Zeroed memory, 64-byte aligned, that a transport carries best: between processes the other ranks add and copy in it directly, where other memory is
 * copied through windows. A page costs nothing until it is touched. Calls may use any stretch of it. Free before the comm is closed. Errors: QR_E_NO_ROOM. */
int qr_comm_alloc(struct qr_comm *c, void **p, size_t n_bytes, struct qr_err *err);
void qr_comm_free(struct qr_comm *c, void *p); /* NULL: does nothing */

#endif
