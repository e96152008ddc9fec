/* device_comm.h - ranks whose arrays lie on devices: what kernels/peers.h does on their queues, opened and looked after through a comm of the same ranks.
 *
 * The comm carries the group's name there once, and says which rank has died: devices do not notice that. One owning
 * thread, that of the comm and of the backend; closed before both, and behind whatever a device has recorded
 * (backend.h) with calls in it. */
#ifndef QR_COMM_DEVICE_COMM_H
#define QR_COMM_DEVICE_COMM_H

#include "comm/comm.h"
#include "kernels/backend.h"

struct qr_device_comm {
    const struct qr_peer_ops *ops;
    struct qr_peers *peers; /* owned */
    struct qr_comm *comm;   /* borrowed */
};

/* All ranks of the comm call it. Errors: QR_E_UNSUPPORTED, naming what is missing (a device without peers, NCCL); QR_E_CLOSED when a rank is lost. A rank that
 * fails has to give up (qr_comm_abort), or the others wait for it. */
int qr_device_comm_open(struct qr_device_comm **out, struct qr_comm *comm, struct qr_backend *be, struct qr_err *err);
void qr_device_comm_close(struct qr_device_comm *d); /* NULL is fine */

/* All ranks' devices take over what rank 0's has chosen (qr_backend_export_choices), so that equal products are computed alike everywhere. All ranks call it,
 * when rank 0 has chosen. Errors: the comm's. */
int qr_device_comm_share_choices(struct qr_device_comm *d, struct qr_backend *be, struct qr_err *err);

/* Whether a rank is lost; then all ranks hear it through the comm, too. */
bool qr_device_comm_lost(struct qr_device_comm *d, struct qr_err *err);

#endif
