/* comm_tcp.c - ranks that reach each other by TCP: what carries a mesh's messages (comm_mesh.h), on one connection
 * between every two ranks.
 *
 * A message is its length, its tag and its bytes. Messages that were begun stand in a short line for each rank; they
 * are sent and received while a batch is waited for. A message must be the one that is expected, so that no length from
 * outside is believed. A rank that dies is missed at once, as its system ends its connections; a machine that vanishes
 * is missed within the time that rendezvous.c sets.
 *
 * One thread at a time carries calls out. The owner asks between calls (`lost`); a mutex keeps the two apart. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "comm/comm_mesh.h"
#include "comm/rendezvous.h"

#define LINE 8 /* of one call at most half as many are begun and not done */
#define LETTER (-1)

struct head {
    uint32_t n_bytes, tag;
};

struct message {
    struct head head;
    char *bytes;   /* borrowed from who began it */
    int32_t batch; /* or LETTER */
};

struct line {
    struct message at[LINE];
    uint32_t first, end; /* only grow */
};

struct peer {
    struct qr_comm_link link; /* fd -1: it has gone */
    struct line out, in;
    size_t sent, got;         /* of the message that goes out, and of the one that comes in, with their heads */
    struct head head;         /* of the one that comes in */
    char letter[QR_MESH_LETTER_BYTES];
    bool broken, told;        /* takes nothing any more; has written its letter */
};

struct tcp {
    struct qr_mesh mesh;      /* first */
    struct peer peer[QR_COMM_RANKS_MAX];
    int32_t n_left[QR_MESH_BATCHES];
    bool withdrawn;           /* what comes in is dropped, but for letters */
    int bell;                 /* rung when this rank gives up */
    pthread_mutex_t busy;
};

static bool is_empty(const struct line *l)
{
    return l->first == l->end;
}

static struct message *head_of(struct line *l)
{
    return &l->at[l->first % LINE];
}

static void done(struct tcp *t, struct line *l)
{
    const int32_t batch = head_of(l)->batch;
    if (batch != LETTER)
        t->n_left[batch]--;
    l->first++;
}

/* ---- a connection ---- */

static const char *where(char text[80], const struct peer *p)
{
    snprintf(text, 80, p->link.where[0] ? " (%s)" : "%s", p->link.where);
    return text;
}

static int died(struct qr_comm *c, int32_t r, struct qr_err *err)
{
    struct tcp *t = c->impl;
    char place[80], what[96];
    return qr_err_set(err, QR_E_CLOSED, "rank %d%s died; the others waited for it in %s", r, where(place, &t->peer[r]),
                      t->mesh.what.kind < 0 ? "closing" : qr_comm_describe(what, &t->mesh.what));
}

/* It matters only when something is expected of this rank, or to be sent to it: ranks also go when they are done. */
static int gone(struct qr_comm *c, int32_t r, struct qr_err *err)
{
    struct tcp *t = c->impl;
    struct peer *p = &t->peer[r];
    close(p->link.fd);
    p->link.fd = -1;
    if (!p->told)
        t->mesh.n_gone++;
    return p->got > 0 || !is_empty(&p->in) || !is_empty(&p->out) ? died(c, r, err) : 0;
}

/* As much as the system takes. One that takes nothing any more may have said why: that is read first. */
static void send_line(struct tcp *t, struct peer *p)
{
    while (!is_empty(&p->out) && !p->broken) {
        struct message *m = head_of(&p->out);
        const size_t skipped = p->sent > sizeof m->head ? p->sent - sizeof m->head : 0;
        struct iovec part[2] = {{.iov_base = (char *)&m->head + (p->sent - skipped), .iov_len = sizeof m->head - (p->sent - skipped)},
                                {.iov_base = m->bytes + skipped, .iov_len = m->head.n_bytes - skipped}};
        const struct msghdr h = {.msg_iov = part, .msg_iovlen = 2};
        const ssize_t n = sendmsg(p->link.fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        p->broken = n < 0;
        p->sent += n < 0 ? 0 : (size_t)n;
        if (p->sent == sizeof m->head + m->head.n_bytes) {
            done(t, &p->out);
            p->sent = 0;
        }
    }
}

/* Whether the message whose head is there may come in now. */
static bool wanted(const struct tcp *t, const struct peer *p)
{
    return p->got < sizeof p->head || p->head.tag == QR_MESH_WHY || t->withdrawn || !is_empty(&p->in);
}

static bool expected(struct tcp *t, struct peer *p)
{
    if (p->head.tag == QR_MESH_WHY)
        return p->head.n_bytes == sizeof p->letter;
    if (t->withdrawn)
        return p->head.n_bytes > 0 && p->head.n_bytes <= QR_MESH_PIECES_BYTES;
    const struct head *h = &head_of(&p->in)->head;
    return p->head.n_bytes == h->n_bytes && p->head.tag == h->tag;
}

/* Some bytes of what comes in: the system's answer. */
static ssize_t receive_some(struct tcp *t, struct peer *p)
{
    char dropped[4096] QR_UNINITIALIZED;
    char *to = dropped;
    if (p->got < sizeof p->head)
        return recv(p->link.fd, (char *)&p->head + p->got, sizeof p->head - p->got, MSG_DONTWAIT);
    const size_t at = p->got - sizeof p->head;
    size_t n = p->head.n_bytes - at;
    if (p->head.tag == QR_MESH_WHY)
        to = p->letter + at;
    else if (!t->withdrawn)
        to = head_of(&p->in)->bytes + at;
    else if (n > sizeof dropped)
        n = sizeof dropped;
    return recv(p->link.fd, to, n, MSG_DONTWAIT);
}

static void arrived(struct tcp *t, struct peer *p)
{
    p->got = 0;
    if (p->head.tag == QR_MESH_WHY) {
        p->letter[sizeof p->letter - 1] = 0;
        p->told = true;
        qr_mesh_note(&t->mesh, p->letter);
    } else if (!t->withdrawn) {
        done(t, &p->in);
    }
}

static int receive(struct qr_comm *c, int32_t r, struct qr_err *err)
{
    struct tcp *t = c->impl;
    struct peer *p = &t->peer[r];
    while (wanted(t, p) && !p->told) {
        if (p->got >= sizeof p->head && !expected(t, p)) {
            const struct head h = p->head;
            char place[80];
            gone(c, r, err);
            return qr_err_set(err, QR_E_CLOSED, "rank %d%s sent a message of kind %u and %u bytes that nobody expects", r, where(place, p), h.tag, h.n_bytes);
        }
        const ssize_t n = receive_some(t, p);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n <= 0)
            return gone(c, r, err);
        p->got += (size_t)n;
        if (p->got > sizeof p->head && p->got == sizeof p->head + p->head.n_bytes)
            arrived(t, p);
    }
    return 0;
}

/* ---- waiting ---- */

/* Sends and receives what is possible, once it is. */
static int turn(struct qr_comm *c, int timeout_ms, struct qr_err *err)
{
    struct tcp *t = c->impl;
    struct pollfd f[QR_COMM_RANKS_MAX];
    int rc = 0;
    for (int32_t r = 0; r < c->size; r++) {
        const struct peer *p = &t->peer[r];
        const short in = wanted(t, p) && !p->told ? POLLIN : 0, out = !is_empty(&p->out) && !p->broken ? POLLOUT : 0;
        if (p->broken && !in && p->link.fd >= 0)
            return gone(c, r, err); /* nothing more can be heard of it before this batch ends */
        f[r] = (struct pollfd){.fd = r == c->rank ? t->bell : in || out ? p->link.fd : -1, .events = r == c->rank ? POLLIN : (short)(in | out)};
    }
    if (poll(f, (nfds_t)c->size, timeout_ms) < 0)
        return 0; /* interrupted: the caller comes again */
    for (int32_t r = 0; r < c->size; r++) {
        struct qr_err other;
        if (r == c->rank || f[r].revents == 0)
            continue;
        if (f[r].revents & POLLOUT)
            send_line(t, &t->peer[r]);
        if (f[r].revents & ~POLLOUT && receive(c, r, rc ? &other : err))
            rc = QR_E_CLOSED; /* letters of the ranks behind it are read all the same */
    }
    return rc;
}

static void read_letters(struct qr_comm *c)
{
    struct qr_err err;
    turn(c, 0, &err);
}

/* A letter says why its writer goes, so it counts before that it went. */
static int finish(struct qr_comm *c, int32_t batch, struct qr_err *err)
{
    struct tcp *t = c->impl;
    int rc = 0;
    while (t->n_left[batch] > 0 && rc == 0) {
        rc = turn(c, -1, err);
        if (t->mesh.n_read > 0 || atomic_load(&t->mesh.giving_up) == 2)
            rc = qr_mesh_given_up(c, err);
    }
    return rc;
}

static void nap(int32_t n_tries)
{
    usleep(1000);
}

/* ---- messages ---- */

static int begin(struct qr_comm *c, struct line *l, int32_t r, struct message m, struct qr_err *err)
{
    struct tcp *t = c->impl;
    QR_ASSERT(r >= 0 && r < c->size && r != c->rank);
    QR_ASSERT(l->end - l->first < LINE);
    if (t->peer[r].link.fd < 0)
        return died(c, r, err);
    l->at[l->end++ % LINE] = m;
    if (m.batch != LETTER)
        t->n_left[m.batch]++;
    return 0;
}

static int put(struct qr_comm *c, int32_t batch, const void *bytes, size_t n_bytes, int32_t to, enum qr_mesh_tag tag, struct qr_err *err)
{
    struct tcp *t = c->impl;
    struct peer *p = &t->peer[to];
    const int rc = begin(c, &p->out, to, (struct message){.head = {(uint32_t)n_bytes, tag}, .bytes = (char *)bytes, .batch = batch}, err);
    if (rc == 0)
        send_line(t, p);
    return rc;
}

static int get(struct qr_comm *c, int32_t batch, void *bytes, size_t n_bytes, int32_t from, enum qr_mesh_tag tag, struct qr_err *err)
{
    struct tcp *t = c->impl;
    return begin(c, &t->peer[from].in, from, (struct message){.head = {(uint32_t)n_bytes, tag}, .bytes = bytes, .batch = batch}, err);
}

/* A message of which a part is out has to end before a letter can begin. */
static void withdraw(struct qr_comm *c)
{
    struct tcp *t = c->impl;
    t->withdrawn = true;
    for (int32_t r = 0; r < c->size; r++) {
        struct peer *p = &t->peer[r];
        p->in.first = p->in.end;
        p->out.end = p->out.first + (p->sent > 0);
    }
    memset(t->n_left, 0, sizeof t->n_left);
}

/* A rank that does not take what is on its way loses its connection, as those bytes are the caller's again. */
static void write_letters(struct qr_comm *c, const char letter[QR_MESH_LETTER_BYTES], int64_t until_us)
{
    struct tcp *t = c->impl;
    const struct head head = {QR_MESH_LETTER_BYTES, QR_MESH_WHY};
    struct qr_err err;
    for (int32_t r = 0; r < c->size; r++)
        if (r != c->rank && t->peer[r].link.fd >= 0)
            begin(c, &t->peer[r].out, r, (struct message){.head = head, .bytes = (char *)letter, .batch = LETTER}, &err);
    for (bool more = true; more && qr_clock_us() < until_us;) {
        more = false;
        for (int32_t r = 0; r < c->size; r++) {
            struct peer *p = &t->peer[r];
            if (r != c->rank && p->link.fd >= 0)
                send_line(t, p);
            more |= p->link.fd >= 0 && !is_empty(&p->out) && !p->broken;
        }
        if (more) {
            turn(c, 0, &err);
            nap(0); /* the bell may be ringing: no reason to look without a pause */
        }
    }
    for (int32_t r = 0; r < c->size; r++)
        if (r != c->rank && t->peer[r].link.fd >= 0 && !is_empty(&t->peer[r].out))
            gone(c, r, &err);
}

/* ---- the transport ---- */

static int run(struct qr_comm *c, const struct qr_comm_call *call, struct qr_err *err)
{
    struct tcp *t = c->impl;
    pthread_mutex_lock(&t->busy);
    const int rc = qr_mesh_run(c, call, err);
    pthread_mutex_unlock(&t->busy);
    return rc;
}

static void tell(struct qr_comm *c, const char *why, bool own)
{
    struct tcp *t = c->impl;
    qr_mesh_tell(c, why, own);
    if (own)
        eventfd_write(t->bell, 1);
}

static bool lost(struct qr_comm *c, struct qr_err *err)
{
    struct tcp *t = c->impl;
    char place[80];
    if (pthread_mutex_trylock(&t->busy) != 0)
        return false; /* a call is carried out, which finds out itself */
    int rc = turn(c, 0, err);
    rc = rc ? rc : qr_mesh_given_up(c, err);
    for (int32_t r = 0; r < c->size && rc == 0; r++)
        if (r != c->rank && t->peer[r].link.fd < 0)
            rc = qr_err_set(err, QR_E_CLOSED, "rank %d%s died", r, where(place, &t->peer[r]));
    pthread_mutex_unlock(&t->busy);
    return rc != 0;
}

static void end(struct qr_comm *c)
{
    struct tcp *t = c->impl;
    pthread_mutex_lock(&t->busy);
    qr_mesh_leave(c);
    pthread_mutex_unlock(&t->busy);
}

static void release(struct qr_comm *c)
{
    struct tcp *t = c->impl;
    for (int32_t r = 0; r < c->size; r++)
        if (t->peer[r].link.fd >= 0)
            close(t->peer[r].link.fd);
    close(t->bell);
    pthread_mutex_destroy(&t->busy);
    qr_mesh_release(&t->mesh);
    qr_free(t);
}

void qr_comm_open_tcp(struct qr_comm *c, int32_t rank, int32_t size, const struct qr_comm_link *link)
{
    static const struct qr_mesh_ops carry = {.put = put, .get = get, .finish = finish, .withdraw = withdraw, .read_letters = read_letters,
                                             .write_letters = write_letters, .nap = nap};
    static const struct qr_comm_ops ops = {.name = "tcp", .anywhere = true, .run = run, .abort = tell, .lost = lost, .end = end,
                                           .alloc = qr_comm_plain_alloc, .free = qr_comm_plain_free, .close = release};
    QR_ASSERT(c != NULL && link != NULL);
    QR_ASSERT(rank >= 0 && rank < size && size <= QR_COMM_RANKS_MAX);
    struct tcp *t = qr_alloc(1, sizeof *t);
    struct qr_err err;
    qr_mesh_init(&t->mesh, &carry, size);
    t->mesh.well = true;
    pthread_mutex_init(&t->busy, NULL);
    t->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->bell < 0)
        qr_panic("no eventfd: %s", strerror(errno));
    for (int32_t r = 0; r < size; r++)
        t->peer[r].link = r == rank ? (struct qr_comm_link){.fd = -1} : link[r];
    *c = (struct qr_comm){.rank = rank, .size = size, .window_bytes = 2 * QR_MESH_PIECES_BYTES, .ops = &ops, .impl = t};
    const int rc = qr_comm_line_open(c, true, &err);
    QR_ASSERT(rc == 0); /* there is no `begin` that could fail */
}
