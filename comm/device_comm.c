#include "comm/device_comm.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/mem.h"

#define N_TRIED QR_COMM_RANKS_MAX

static bool lost(void *user, char message[QR_PEERS_MESSAGE])
{
    struct qr_err err;
    const bool yes = qr_comm_lost(user, &err);
    if (yes)
        snprintf(message, QR_PEERS_MESSAGE, "%.*s", QR_PEERS_MESSAGE - 1, err.msg);
    return yes;
}

/* Each kind of call once: a library takes its part of the device's memory before free memory is measured, and a failure
 * is known now. */
static int try_out(struct qr_device_comm *d, struct qr_backend *be, struct qr_err *err)
{
    const int32_t rank = d->comm->rank, size = d->comm->size;
    const struct qr_mem_ops *mem = be->mem;
    float x[N_TRIED], *data = mem->alloc(2 * sizeof x);
    int64_t part[QR_COMM_RANKS_MAX + 1] = {0};
    for (int32_t r = 0; r < size; r++)
        part[r + 1] = r == 0 ? 0 : r * (int64_t)sizeof *x;
    for (int32_t i = 0; i < N_TRIED; i++)
        x[i] = (float)(rank + 1);
    mem->put(be->queue, data, x, sizeof x);
    d->ops->gather(d->peers, data + N_TRIED, data, part);
    d->ops->broadcast(d->peers, data + N_TRIED, sizeof x);
    d->ops->sum(d->peers, data, N_TRIED);
    mem->get(be->queue, x, data, sizeof x);
    bool right = true;
    for (int32_t i = 0; i < N_TRIED; i++)
        right = right && x[i] == (float)(size * (size + 1) / 2);
    mem->get(be->queue, x, data + N_TRIED, sizeof x);
    for (int32_t r = 1; r < size; r++)
        right = right && x[r - 1] == (float)(r + 1);
    mem->free(data);
    if (qr_device_comm_lost(d, err))
        return err->code;
    return right ? 0 : qr_err_set(err, QR_E_UNSUPPORTED, "the devices of %d ranks do not add: what came of a sum is wrong; use one rank", size);
}

int qr_device_comm_open(struct qr_device_comm **out, struct qr_comm *comm, struct qr_backend *be, struct qr_err *err)
{
    QR_ASSERT(out != NULL && comm != NULL && be != NULL);
    QR_ASSERT(!be->mem->host && err != NULL);
    uint8_t id[QR_PEERS_ID_BYTES] = {0};
    char message[QR_PEERS_MESSAGE] = "";
    struct qr_err heard;
    if (!be->peers)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%d ranks on the device %s, whose kernels do not reach other devices; use one rank, or --device cpu",
                          comm->size, be->name);
    if (comm->rank == 0 && !be->peers->id(id, message))
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s", message);
    int rc = qr_comm_run(comm, &(struct qr_comm_call){.kind = QR_COMM_BROADCAST, .dtype = QR_I8, .data = id, .n = sizeof id}, err);
    if (rc)
        return rc;
    const struct qr_peers_options o = {.id = id, .rank = comm->rank, .size = comm->size, .lost = lost, .user = comm};
    struct qr_peers *peers;
    if (!be->peers->open(&peers, be->queue, &o, message))
        return qr_err_set(err, qr_comm_lost(comm, &heard) ? QR_E_CLOSED : QR_E_UNSUPPORTED, "%s", message);
    struct qr_device_comm *d = *out = qr_alloc(1, sizeof *d);
    *d = (struct qr_device_comm){.ops = be->peers, .peers = peers, .comm = comm};
    rc = try_out(d, be, err);
    if (rc) {
        qr_device_comm_close(d);
        *out = NULL;
    }
    return rc;
}

void qr_device_comm_close(struct qr_device_comm *d)
{
    if (!d)
        return;
    QR_ASSERT(d->ops != NULL);
    QR_ASSERT(d->peers != NULL);
    d->ops->close(d->peers);
    qr_free(d);
}

bool qr_device_comm_lost(struct qr_device_comm *d, struct qr_err *err)
{
    char message[QR_PEERS_MESSAGE];
    QR_ASSERT(d != NULL);
    QR_ASSERT(err != NULL);
    if (!d->ops->failed(d->peers, message))
        return false;
    if (!qr_comm_lost(d->comm, err)) { /* otherwise that is the reason, and has all that is known of it */
        qr_err_set(err, QR_E_CLOSED, "%s", message);
        qr_comm_abort(d->comm, message);
    }
    return true;
}

int qr_device_comm_share_choices(struct qr_device_comm *d, struct qr_backend *be, struct qr_err *err)
{
    QR_ASSERT(d != NULL && be != NULL);
    QR_ASSERT(err != NULL);
    int64_t n = d->comm->rank == 0 ? (int64_t)qr_backend_export_choices(be, NULL, 0) : 0;
    int rc = qr_comm_run(d->comm, &(struct qr_comm_call){.kind = QR_COMM_BROADCAST, .dtype = QR_I8, .data = &n, .n = sizeof n}, err);
    if (rc)
        return rc;
    char *text = qr_alloc((size_t)n, 1);
    if (d->comm->rank == 0)
        (void)qr_backend_export_choices(be, text, (size_t)n);
    rc = qr_comm_run(d->comm, &(struct qr_comm_call){.kind = QR_COMM_BROADCAST, .dtype = QR_I8, .data = text, .n = n}, err);
    if (rc == 0 && d->comm->rank > 0)
        qr_backend_adopt_choices(be, text);
    qr_free(text);
    return rc;
}
