#include "exchange/zmq_door.h"

#include "base/assert.h"
#include "base/library.h"

enum { DONTWAIT = 1, SNDMORE = 2, RCVMORE = 13 };

static const struct qr_library_symbol symbols[] = {
    {offsetof(struct qr_zmq, ctx_new), "zmq_ctx_new"},
    {offsetof(struct qr_zmq, ctx_term), "zmq_ctx_term"},
    {offsetof(struct qr_zmq, socket), "zmq_socket"},
    {offsetof(struct qr_zmq, close), "zmq_close"},
    {offsetof(struct qr_zmq, setsockopt), "zmq_setsockopt"},
    {offsetof(struct qr_zmq, getsockopt), "zmq_getsockopt"},
    {offsetof(struct qr_zmq, bind), "zmq_bind"},
    {offsetof(struct qr_zmq, connect), "zmq_connect"},
    {offsetof(struct qr_zmq, send), "zmq_send"},
    {offsetof(struct qr_zmq, recv), "zmq_recv"},
    {offsetof(struct qr_zmq, poll), "zmq_poll"},
    {offsetof(struct qr_zmq, last_errno), "zmq_errno"},
    {offsetof(struct qr_zmq, strerror), "zmq_strerror"},
};

int qr_zmq_open(struct qr_zmq *z, struct qr_err *err)
{
    QR_ASSERT(z != NULL);
    QR_ASSERT(err != NULL);
    const char *missing = qr_library_load(z, "libzmq.so.5", symbols, QR_COUNT(symbols));
    return missing ? qr_err_set(err, QR_E_UNSUPPORTED, "--kv-events needs libzmq.so.5, which cannot be used (%.200s); install it (apt-get install libzmq5)",
                                missing) : 0;
}

int qr_zmq_send(const struct qr_zmq *z, void *socket, const struct qr_zmq_part *part, int32_t n)
{
    QR_ASSERT(z != NULL && socket != NULL);
    QR_ASSERT(part != NULL && n >= 1);
    for (int32_t i = 0; i < n; i++)
        if (z->send(socket, part[i].bytes, part[i].n, DONTWAIT | (i + 1 < n ? SNDMORE : 0)) < 0)
            return -1; /* at the first part: a message is taken whole or not at all */
    return 0;
}

int32_t qr_zmq_take(const struct qr_zmq *z, void *socket, char *to, int32_t *len, int32_t n_max, size_t part_max)
{
    QR_ASSERT(z != NULL && socket != NULL);
    QR_ASSERT(to != NULL && len != NULL && n_max >= 1 && part_max >= 1);
    int32_t n = 0;
    for (int more = 1; more; n++) {
        char rest[1];
        const bool kept = n < n_max;
        const int got = z->recv(socket, kept ? to + (size_t)n * part_max : rest, kept ? part_max : sizeof rest, DONTWAIT);
        size_t size = sizeof more;
        if (got < 0)
            break;
        if (kept)
            len[n] = got;
        if (z->getsockopt(socket, RCVMORE, &more, &size) != 0)
            more = 0;
    }
    return n;
}
