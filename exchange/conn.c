/* conn.c - a connection's bytes: frames in and out, blocks straight into and out of parcels, and the end of a side that is silent.
 *
 * Whatever comes, the worst that follows is a connection that is marked as broken. What is kept of it is bounded: a frame that has not come to its end, and a
 * parcel. A guest that asks and does not read is not read either. The exchange's thread. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"
#include "exchange/conn.h"

enum {
    READ_BYTES = 64 << 10,       /* at once */
    TURN_BYTES = 4 << 20,        /* of one connection before the others have theirs */
    UNREAD_BYTES = 64 << 10,     /* frames that a guest has not taken: so many, and no more is read of it */
    KEPT_BYTES = 256 << 10,      /* a larger buffer that is empty is given back */
    UNWRITTEN_BYTES = 64 << 20,  /* questions that a peer has not taken */
};

struct qr_conn *qr_conn_new(struct qr_exchange *x, struct qr_peer *peer, const struct qr_wire *wire, int fd)
{
    QR_ASSERT(x != NULL && wire != NULL);
    QR_ASSERT(fd >= 0);
    struct qr_conn *c = qr_alloc(1, sizeof *c);
    *c = (struct qr_conn){.x = x, .peer = peer, .wire = wire, .fd = fd, .memory = -1, .stage = peer ? QR_CONN_CONNECTING : QR_CONN_HELLO};
    c->since_us = c->heard_us = c->said_us = x->now_us;
    qr_list_init(&c->link);
    qr_list_init(&c->asks);
    qr_list_init(&c->loans);
    qr_list_init(&c->lent);
    return c;
}

void qr_conn_free(struct qr_conn *c)
{
    struct qr_node *node;
    QR_ASSERT(c != NULL);
    QR_ASSERT(qr_list_empty(&c->asks) && qr_list_empty(&c->loans));
    if (c->filling)
        qr_parcel_give_back(c->filling);
    if (c->body)
        qr_loan_sent(c->body);
    while ((node = qr_list_pop_front(&c->lent)))
        qr_loan_sent(QR_CONTAINER(node, struct qr_parcel, link));
    if (c->window)
        munmap((void *)c->window, (size_t)c->theirs.n_shared * c->theirs.stride);
    if (c->memory >= 0)
        close(c->memory);
    qr_list_remove(&c->link);
    c->wire->close(c->fd);
    qr_buf_release(&c->in);
    qr_buf_release(&c->out);
    qr_free(c);
}

void qr_conn_break(struct qr_conn *c, const char *why)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(why != NULL);
    if (!c->broken)
        c->broken = why;
}

size_t qr_conn_unwritten(const struct qr_conn *c)
{
    return c->out.len - c->out_at + (c->body ? c->x->config.block_bytes - c->body_at : 0);
}

void qr_conn_say(struct qr_conn *c, const struct qr_frame *f)
{
    QR_ASSERT(c != NULL && f != NULL);
    QR_ASSERT(c->stage != QR_CONN_CONNECTING);
    qr_frame_encode(&c->out, f);
    c->said_us = c->x->now_us;
    if (c->peer && c->out.len - c->out_at > UNWRITTEN_BYTES)
        qr_conn_break(c, "the peer does not read what it is asked");
}

/* ---- what comes ---- */

static void on_ping(struct qr_conn *c, const struct qr_frame *f)
{
    (void)f;
    qr_conn_say(c, &(struct qr_frame){.kind = QR_FRAME_PONG});
}

static void on_pong(struct qr_conn *c, const struct qr_frame *f)
{
    (void)c, (void)f;
}

/* Blocks are not here: they may have to wait. */
static void (*const on_frame[QR_FRAME_KINDS])(struct qr_conn *c, const struct qr_frame *f) = {
    [QR_FRAME_HELLO] = qr_hello_hello,
    [QR_FRAME_PROOF] = qr_hello_proof,
    [QR_FRAME_ASK] = qr_loan_ask,
    [QR_FRAME_STOP] = qr_loan_stop,
    [QR_FRAME_DONE] = qr_loan_done,
    [QR_FRAME_PING] = on_ping,
    [QR_FRAME_STATE] = qr_ask_state,
    [QR_FRAME_END] = qr_ask_end,
    [QR_FRAME_PONG] = on_pong,
};

/* Kinds that may come now. */
static uint32_t expected(const struct qr_conn *c)
{
    static const uint32_t to_asker = 1u << QR_FRAME_STATE | 1u << QR_FRAME_BLOCK | 1u << QR_FRAME_END | 1u << QR_FRAME_PONG;
    static const uint32_t to_lender = 1u << QR_FRAME_ASK | 1u << QR_FRAME_STOP | 1u << QR_FRAME_DONE | 1u << QR_FRAME_PING;
    if (c->stage == QR_CONN_HELLO)
        return 1u << QR_FRAME_HELLO;
    if (c->stage == QR_CONN_PROOF)
        return 1u << QR_FRAME_PROOF;
    return c->peer ? to_asker : to_lender;
}

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Of the bytes that came, those which belong to a block. False: it needs more of them. */
static bool take_content(struct qr_conn *c)
{
    size_t n = lesser(c->skip, c->in.len - c->in_at);
    c->skip -= n;
    c->in_at += n;
    if (c->skip > 0)
        return false;
    if (!c->filling)
        return true;
    n = lesser(c->x->config.block_bytes - c->filled, c->in.len - c->in_at);
    if (n > 0)
        memcpy(c->filling->bytes + c->filled, c->in.data + c->in_at, n);
    c->in_at += n;
    c->filled += n;
    if (c->filled < c->x->config.block_bytes)
        return false;
    qr_ask_filled(c);
    return true;
}

/* One frame. False: none has come to its end, or it has to wait. */
static bool take_frame(struct qr_conn *c)
{
    struct qr_frame f;
    const int64_t n = qr_frame_decode(&f, (const uint8_t *)c->in.data + c->in_at, c->in.len - c->in_at, expected(c));
    if (n < 0) {
        atomic_fetch_add(&c->x->n_bad_frame, 1);
        qr_conn_break(c, "the other side sent what is no frame");
    }
    if (n <= 0)
        return false;
    if (f.kind == QR_FRAME_BLOCK) {
        c->starved = !qr_ask_block(c, &f);
        if (c->starved)
            return false;
    } else {
        on_frame[f.kind](c, &f);
    }
    c->in_at += (size_t)n;
    return true;
}

static void understand(struct qr_conn *c)
{
    c->starved = false;
    while (!c->broken && take_content(c) && !c->broken && c->in.len > c->in_at && take_frame(c)) {
    }
    if (c->in_at > 0)
        qr_buf_drop_front(&c->in, c->in_at);
    c->in_at = 0;
    if (c->in.len == 0 && c->in.cap > KEPT_BYTES)
        qr_buf_release(&c->in);
}

static ssize_t read_some(struct qr_conn *c)
{
    if (c->filling && c->in.len == 0)
        return c->wire->read(c->fd, c->filling->bytes + c->filled, c->x->config.block_bytes - c->filled, NULL);
    qr_buf_reserve(&c->in, READ_BYTES);
    const bool memory = c->peer && c->stage == QR_CONN_PROOF && c->wire->passes_memory;
    return c->wire->read(c->fd, c->in.data + c->in.len, READ_BYTES, memory ? &c->memory : NULL);
}

static const char *why_closed(const struct qr_conn *c)
{
    if (c->peer && c->stage == QR_CONN_PROOF)
        return "the peer does not take this process's proof: is the secret the same?";
    return "the other side closed the connection";
}

void qr_conn_read(struct qr_conn *c)
{
    QR_ASSERT(c != NULL && c->fd >= 0);
    QR_ASSERT(c->stage != QR_CONN_CONNECTING);
    understand(c);
    for (size_t turn = 0; !c->broken && !c->starved && turn < TURN_BYTES;) {
        const bool whole = c->filling && c->in.len == 0;
        const ssize_t n = read_some(c);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n <= 0) {
            qr_conn_break(c, why_closed(c));
            break;
        }
        *(whole ? &c->filled : &c->in.len) += (size_t)n;
        turn += (size_t)n;
        c->heard_us = c->x->now_us;
        understand(c);
    }
    if (c->filling)
        atomic_store(&c->filling->fetch->heard_us, c->heard_us);
}

/* ---- what goes ---- */

static void wrote(struct qr_conn *c, size_t n)
{
    const size_t frames = lesser(n, (c->body ? c->out_first : c->out.len) - c->out_at);
    c->out_at += frames;
    if (c->body) {
        c->body_at += n - frames;
        if (c->body_at == c->x->config.block_bytes) {
            qr_loan_sent(c->body);
            c->body = NULL;
        }
    }
    if (c->out_at < c->out.len)
        return;
    c->out_at = c->out_first = 0;
    qr_buf_clear(&c->out);
    if (c->out.cap > KEPT_BYTES)
        qr_buf_release(&c->out);
}

static ssize_t write_some(struct qr_conn *c)
{
    const size_t n_frames = (c->body ? c->out_first : c->out.len) - c->out_at;
    struct iovec part[2] = {{.iov_base = c->out.data + c->out_at, .iov_len = n_frames}};
    int n_parts = n_frames > 0;
    if (c->body)
        part[n_parts++] = (struct iovec){.iov_base = c->body->bytes + c->body_at, .iov_len = c->x->config.block_bytes - c->body_at};
    return c->wire->write(c->fd, part, n_parts, c->pass_memory ? c->x->shared : -1);
}

void qr_conn_write(struct qr_conn *c)
{
    QR_ASSERT(c != NULL && c->fd >= 0);
    for (size_t turn = 0; !c->broken && c->stage != QR_CONN_CONNECTING;) {
        if (!c->peer && c->stage == QR_CONN_OPEN && !c->body && c->out.len - c->out_at < UNREAD_BYTES)
            qr_loan_next(c);
        if (qr_conn_unwritten(c) == 0 || turn >= TURN_BYTES)
            break;
        const ssize_t n = write_some(c);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n < 0) {
            qr_conn_break(c, why_closed(c));
            break;
        }
        c->pass_memory = false;
        turn += (size_t)n;
        if (!c->peer) /* it reads: it lives */
            c->heard_us = c->x->now_us;
        wrote(c, (size_t)n);
    }
}

short qr_conn_events(const struct qr_conn *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(!c->broken);
    if (c->stage == QR_CONN_CONNECTING)
        return POLLOUT;
    const bool full = !c->peer && c->out.len - c->out_at >= UNREAD_BYTES;
    return (short)((c->starved || full ? 0 : POLLIN) | (qr_conn_unwritten(c) > 0 ? POLLOUT : 0));
}

int64_t qr_conn_tick(struct qr_conn *c)
{
    QR_ASSERT(c != NULL);
    const int64_t now_us = c->x->now_us;
    if (c->stage != QR_CONN_OPEN) {
        if (now_us - c->since_us >= QR_CONN_ANSWER_US)
            qr_conn_break(c, "the other side does not answer");
        return c->since_us + QR_CONN_ANSWER_US;
    }
    if (c->starved) /* it is not read, so its silence means nothing */
        c->heard_us = now_us;
    if (now_us - c->heard_us >= QR_CONN_SILENT_US)
        qr_conn_break(c, "the other side is silent");
    if (!c->peer)
        return c->heard_us + QR_CONN_SILENT_US;
    if (now_us - c->said_us >= QR_CONN_PING_US && !c->broken)
        qr_conn_say(c, &(struct qr_frame){.kind = QR_FRAME_PING});
    return c->said_us + QR_CONN_PING_US;
}
