/* fake.h - the other side of the peers' protocol by hand, to say what no exchange would: a socket, frames, and a lender or a guest that has done its part of
 * the hello. */
#ifndef QR_TESTS_EXCHANGE_FAKE_H
#define QR_TESTS_EXCHANGE_FAKE_H

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "exchange/frame.h"
#include "exchange/wire.h"
#include "tests/exchange/rig.h"

struct fake {
    struct qr_wire_place place;
    int listener, fd;
    struct qr_buf in;
    size_t n_heard; /* of in: the last frame */
    struct qr_frame_hello asks, lends;
};

static inline void fake_listen(struct fake *f, const char *address)
{
    struct qr_err err = {0};
    *f = (struct fake){.fd = -1};
    QR_ASSERT(qr_wire_parse(&f->place, address, &err) == 0);
    f->listener = f->place.wire->listen(&f->place, &err);
    QR_ASSERT(f->listener >= 0);
}

static inline void fake_accept(struct fake *f)
{
    struct pollfd at = {.fd = f->listener, .events = POLLIN};
    QR_ASSERT(poll(&at, 1, 5000) == 1);
    f->fd = f->place.wire->accept(f->listener);
    QR_ASSERT(f->fd >= 0);
    qr_buf_clear(&f->in);
    f->n_heard = 0;
}

static inline void fake_hang_up(struct fake *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

static inline void fake_close(struct fake *f)
{
    fake_hang_up(f);
    if (f->listener >= 0)
        f->place.wire->unlisten(&f->place, f->listener);
    qr_buf_release(&f->in);
}

static inline void fake_write(struct fake *f, const void *bytes, size_t n, int memory)
{
    for (size_t at = 0; at < n;) {
        const struct iovec part = {.iov_base = (char *)bytes + at, .iov_len = n - at};
        const ssize_t wrote = f->place.wire->write(f->fd, &part, 1, at == 0 ? memory : -1);
        if (wrote < 0) { /* the other side may have hung up */
            struct pollfd ready = {.fd = f->fd, .events = POLLOUT};
            if (poll(&ready, 1, 1000) != 1 || (ready.revents & (POLLERR | POLLHUP)))
                return;
            continue;
        }
        at += (size_t)wrote;
    }
}

static inline void fake_say(struct fake *f, const struct qr_frame *frame, int memory)
{
    struct qr_buf out = {0};
    qr_frame_encode(&out, frame);
    fake_write(f, out.data, out.len, memory);
    qr_buf_release(&out);
}

/* The next frame but pings; false: the other side has hung up, or is silent for timeout_ms. What the frame borrows is borrowed until the next call. */
static inline bool fake_hear(struct fake *f, struct qr_frame *out, int timeout_ms)
{
    for (;;) {
        qr_buf_drop_front(&f->in, f->n_heard);
        const int64_t n = qr_frame_decode(out, (const uint8_t *)f->in.data, f->in.len, (1u << QR_FRAME_KINDS) - 1);
        QR_ASSERT(n >= 0);
        f->n_heard = (size_t)n;
        if (n > 0 && out->kind != QR_FRAME_PING)
            return true;
        if (n > 0)
            continue;
        struct pollfd at = {.fd = f->fd, .events = POLLIN};
        if (poll(&at, 1, timeout_ms) != 1)
            return false;
        qr_buf_reserve(&f->in, 65536);
        const ssize_t n_read = f->place.wire->read(f->fd, f->in.data + f->in.len, 65536, NULL);
        if (n_read <= 0)
            return false;
        f->in.len += (size_t)n_read;
    }
}

/* Reads the asker's hello and says its own. */
static inline bool fake_hello(struct fake *f, int32_t n_shared, uint64_t stride)
{
    struct qr_frame frame;
    if (!fake_hear(f, &frame, 5000) || frame.kind != QR_FRAME_HELLO)
        return false;
    f->asks = f->lends = frame.hello;
    f->lends.lends = true;
    f->lends.n_shared = n_shared;
    f->lends.stride = stride;
    memset(f->lends.nonce, 9, sizeof f->lends.nonce);
    fake_say(f, &(struct qr_frame){.kind = QR_FRAME_HELLO, .hello = f->lends}, -1);
    return true;
}

/* A lender without a secret, up to the first question. memory: of its parcels, -1. */
static inline bool fake_lender(struct fake *f, int32_t n_shared, uint64_t stride, int memory)
{
    struct qr_frame frame;
    fake_accept(f);
    if (!fake_hello(f, n_shared, stride) || !fake_hear(f, &frame, 5000) || frame.kind != QR_FRAME_PROOF)
        return false;
    qr_frame_prove(frame.proof, NULL, 0, true, &f->asks, &f->lends);
    fake_say(f, &frame, memory);
    return true;
}

/* A guest at that address, up to its first question. asks: its hello, but for the nonce. What came with the lender's proof goes to *memory, unless NULL. */
static inline bool fake_guest(struct fake *f, const char *address, const struct qr_frame_hello *asks, int *memory)
{
    struct qr_frame frame;
    struct qr_err err = {0};
    const char *why;
    uint8_t bytes[QR_FRAME_HEAD_BYTES + QR_SHA256_BYTES];
    *f = (struct fake){.listener = -1, .asks = *asks};
    QR_ASSERT(qr_wire_parse(&f->place, address, &err) == 0);
    f->fd = f->place.wire->connect(&f->place, &why);
    QR_ASSERT(f->fd >= 0);
    fake_say(f, &(struct qr_frame){.kind = QR_FRAME_HELLO, .hello = f->asks}, -1);
    if (!fake_hear(f, &frame, 5000) || frame.kind != QR_FRAME_HELLO)
        return false;
    f->lends = frame.hello;
    frame = (struct qr_frame){.kind = QR_FRAME_PROOF};
    qr_frame_prove(frame.proof, NULL, 0, false, &f->asks, &f->lends);
    fake_say(f, &frame, -1);
    struct pollfd at = {.fd = f->fd, .events = POLLIN};
    return poll(&at, 1, 5000) == 1 && f->place.wire->read(f->fd, bytes, sizeof bytes, memory) == (ssize_t)sizeof bytes;
}

static inline int fake_memory(size_t n_bytes, bool sealed)
{
    const int fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    QR_ASSERT(fd >= 0 && ftruncate(fd, (off_t)n_bytes) == 0);
    QR_ASSERT(!sealed || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    return fd;
}

#endif
