/* fuzz_peer.c - what a peer says is taken for what it is, or ends the connection; no block reaches the engine but with the name that was wanted and bytes of
 * its sum; every parcel comes back.
 *
 * The first byte chooses the side (bit 0: the input asks, otherwise it answers three questions), shared memory (bit 1), whether the hello is part of the input
 * (bit 2), and how the rest is cut. Decoded frames are encoded again, and have to be the same bytes. Questions are answered by a mock engine. */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "exchange/conn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BLOCK = 64, N_ASKS = 3, N_NAMES = 4, N_SHARED = 4, STRIDE = 4096, INPUT_MAX = 64 << 10 };

static void no_wake(void *arg)
{
    (void)arg;
}

static void name_of(struct qr_kv_name *out, int number)
{
    memset(out, number, sizeof *out);
}

static void frames_again(const uint8_t *data, size_t size)
{
    struct qr_frame f;
    struct qr_buf again = {0};
    for (int64_t n; (n = qr_frame_decode(&f, data, size, (1u << QR_FRAME_KINDS) - 1)) > 0; data += n, size -= (size_t)n) {
        QR_ASSERT((size_t)n <= size);
        qr_buf_clear(&again);
        qr_frame_encode(&again, &f);
        QR_ASSERT(again.len == (size_t)n && memcmp(again.data, data, again.len) == 0);
    }
    qr_buf_release(&again);
}

static struct qr_exchange *new_exchange(void)
{
    struct qr_err err;
    struct qr_exchange *x;
    struct qr_exchange_config config = {.block_bytes = BLOCK, .n_parcels = 3, .lends_max = 2, .prompt_max = 16, .wake = no_wake, .n_peers = 1};
    config.peer[0] = "127.0.0.1:1"; /* never connected to: the thread does not run */
    qr_log_set_level(QR_LOG_ERROR);
    const int rc = qr_exchange_prepare(&x, &config, &err);
    QR_ASSERT(rc == 0);
    return x;
}

/* The engine: blocks that arrived are right and go back, questions get two blocks each. */
static void engine(struct qr_exchange *x)
{
    struct qr_node arrived, over, asked, *node;
    qr_list_init(&arrived);
    qr_list_init(&over);
    qr_list_init(&asked);
    qr_exchange_take(x, &arrived, &over, &asked);
    while ((node = qr_list_pop_front(&arrived))) {
        struct qr_parcel *p = QR_CONTAINER(node, struct qr_parcel, link);
        const struct qr_hash128 sum = qr_hash128_plain(p->bytes, BLOCK);
        QR_ASSERT(sum.lo == p->sum.lo && sum.hi == p->sum.hi && p->index >= 0 && p->index < N_NAMES);
        QR_ASSERT(memcmp(&p->name, &p->fetch->names[p->index], sizeof p->name) == 0);
        qr_parcel_give_back(p);
    }
    while (qr_list_pop_front(&over)) {
    }
    while ((node = qr_list_pop_front(&asked))) {
        struct qr_lend *l = QR_CONTAINER(node, struct qr_lend, link);
        QR_ASSERT(l->n >= 1 && l->n <= QR_EXCHANGE_NAMES_MAX && l->prompt.n_ids <= 16);
        qr_exchange_tell(x, l, 1, true);
        for (int32_t i = 0; i < l->n && i < 2; i++) {
            struct qr_parcel *p = qr_exchange_parcel(x, l);
            if (!p)
                break;
            p->lend = l;
            p->index = i;
            p->name = l->names[i];
            qr_exchange_send(x, p);
        }
        qr_exchange_answered(x, l);
    }
}

static void drain(int fd)
{
    char bytes[4096];
    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
}

static void feed(struct qr_exchange *x, struct qr_conn *c, int fd, const uint8_t *data, size_t size, size_t piece)
{
    for (size_t at = 0; at < size && !c->broken;) {
        const size_t n = piece < size - at ? piece : size - at;
        const ssize_t sent = send(fd, data + at, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent <= 0)
            break;
        at += (size_t)sent;
        qr_conn_read(c);
        engine(x);
        qr_loan_take(x);
        if (!c->broken)
            qr_conn_write(c);
        drain(fd);
        if (c->starved && !c->broken)
            qr_conn_read(c);
        engine(x);
    }
}

static void as_lender(struct qr_exchange *x, int fds[2], bool hello, const uint8_t *data, size_t size, size_t piece)
{
    struct qr_conn *c = qr_conn_new(x, NULL, &qr_wire_unix, fds[0]);
    qr_list_push_back(&x->guests, &c->link);
    x->n_guests++;
    c->stage = hello ? QR_CONN_HELLO : QR_CONN_OPEN;
    feed(x, c, fds[1], data, size, piece);
}

static const uint8_t *memory_of_lender(void)
{
    void *at = mmap(NULL, N_SHARED * STRIDE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    QR_ASSERT(at != MAP_FAILED);
    return at;
}

static void as_asker(struct qr_exchange *x, struct qr_fetch f[N_ASKS], int fds[2], bool shared, bool hello, const uint8_t *data, size_t size, size_t piece)
{
    static struct qr_kv_name names[N_NAMES];
    struct qr_peer *p = &x->peer[0];
    for (int i = 0; i < N_NAMES; i++)
        name_of(&names[i], i);
    struct qr_conn *c = p->conn = qr_conn_new(x, p, &qr_wire_unix, fds[0]);
    if (hello) {
        qr_hello_begin(c);
        qr_conn_write(c);
    } else {
        c->stage = QR_CONN_OPEN;
        c->window = shared ? memory_of_lender() : NULL;
        c->theirs.n_shared = shared ? N_SHARED : 0;
        c->theirs.stride = STRIDE;
        atomic_fetch_add(&x->n_connected, 1);
        for (int i = 0; i < N_ASKS; i++) {
            f[i] = (struct qr_fetch){.names = names, .first = i, .n = N_NAMES};
            qr_fetch_begin(x, &f[i]);
        }
    }
    feed(x, c, fds[1], data, size, piece);
    if (c->broken)
        qr_peer_lost(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qr_fetch f[N_ASKS];
    int fds[2];
    if (size < 1 || size > INPUT_MAX)
        return 0;
    const uint8_t how = data[0];
    frames_again(data + 1, size - 1);
    QR_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    struct qr_exchange *x = new_exchange();
    const size_t piece = how >> 3 ? how >> 3 : INPUT_MAX;
    if (how & 1)
        as_lender(x, fds, how & 4, data + 1, size - 1, piece);
    else
        as_asker(x, f, fds, how & 2, how & 4, data + 1, size - 1, piece);
    engine(x);
    qr_exchange_close(x); /* finds every parcel back */
    close(fds[1]);
    return 0;
}
