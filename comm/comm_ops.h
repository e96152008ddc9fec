/* comm_ops.h - what a transport fills, and what transports have in common. Stays inside comm/.
 *
 * The thread of a comm (comm.c), or its owner meanwhile, calls run, one call at a time and in the order of the starts, and the thread begin and end; abort may
 * come from any thread at any time.
 */
#ifndef QR_COMM_COMM_OPS_H
#define QR_COMM_COMM_OPS_H

#include "comm/comm.h"

struct qr_comm_ops {
    const char *name;
    bool anywhere; /* run may be called by the owner as well, while the comm's thread has nothing to do */
    /* First of all, in the comm's thread; NULL: nothing to do. */
    int (*begin)(struct qr_comm *c, struct qr_err *err);
    /* Carries one call out, to its end on this rank: its buffers are the caller's again, also after an error. Notices
     * when a rank gives up. */
    int (*run)(struct qr_comm *c, const struct qr_comm_call *call, struct qr_err *err);
    /* Has the others know; the first to give up is heard, later ones change nothing. `own`: why is the rank's own word, and it is named with it. */
    void (*abort)(struct qr_comm *c, const char *why, bool own);
    /* By the owner, between calls: whether a rank has given up or died. NULL: the launcher of the ranks ends them all.
     */
    bool (*lost)(struct qr_comm *c, struct qr_err *err);
    /* Last of all, in the comm's thread; NULL: nothing to do. */
    void (*end)(struct qr_comm *c);
    void *(*alloc)(struct qr_comm *c, size_t n_bytes); /* NULL: no room */
    void (*free)(struct qr_comm *c, void *p);
    void (*close)(struct qr_comm *c); /* frees impl */
};

/* rank, size, ops and impl are set: makes the line, starts the thread when `threaded` and waits for `begin`. After an error nothing is left but impl. */
int qr_comm_line_open(struct qr_comm *c, bool threaded, struct qr_err *err);

/* What ranks must agree on. */
struct qr_comm_what {
    int64_t n;
    uint64_t part_hash;
    int32_t kind, dtype, root, n_rows;
};
struct qr_comm_what qr_comm_what(const struct qr_comm_call *call, int32_t n_ranks);

/* QR_E_INVALID when a, of rank 0, and b differ, saying in what. */
int qr_comm_compare(const struct qr_comm_what *a, const struct qr_comm_what *b, int32_t rank_b, struct qr_err *err);

/* "all_reduce of 10 f32", for messages. */
const char *qr_comm_describe(char text[96], const struct qr_comm_what *w);

/* Plain memory as a transport's alloc and free. */
void *qr_comm_plain_alloc(struct qr_comm *c, size_t n_bytes);
void qr_comm_plain_free(struct qr_comm *c, void *p);

#endif
