/* link.h - inside train/ only: calls of a comm whose first error stays, for code that runs inside a pass and cannot return one. After it nothing is
 * started; the owner of the pass asks for the error behind it. One owning thread.
 */
#ifndef QR_TRAIN_RANKS_LINK_H
#define QR_TRAIN_RANKS_LINK_H

#include "comm/device_comm.h"

struct qr_link {
    struct qr_comm *comm; /* borrowed */
    struct qr_device_comm *devices; /* borrowed: of gradients on devices; NULL: the host's memory has everything */
    int rc;               /* the first error's */
    struct qr_err err;
};

/* -1: nothing was started. */
static inline int64_t qr_link_start(struct qr_link *l, const struct qr_comm_call *call)
{
    int64_t ticket = -1;
    if (l->rc == 0)
        l->rc = qr_comm_start(l->comm, call, &ticket, &l->err);
    return l->rc ? -1 : ticket;
}

/* The call's buffer is the caller's again, also after an error. */
static inline void qr_link_wait(struct qr_link *l, int64_t ticket)
{
    struct qr_err later;
    const int rc = ticket < 0 ? 0 : qr_comm_wait(l->comm, ticket, l->rc ? &later : &l->err);
    l->rc = l->rc ? l->rc : rc;
}

static inline void qr_link_run(struct qr_link *l, const struct qr_comm_call *call)
{
    qr_link_wait(l, qr_link_start(l, call));
}

/* Keeps what devices know of a rank that is lost. */
static inline void qr_link_look(struct qr_link *l)
{
    if (l->rc == 0 && l->devices && qr_device_comm_lost(l->devices, &l->err))
        l->rc = l->err.code;
}

static inline int qr_link_error(const struct qr_link *l, struct qr_err *err)
{
    if (l->rc)
        *err = l->err;
    return l->rc;
}

#endif
