/* rendezvous.c - how ranks find each other by TCP. Rank 0 listens; every other rank connects to it and listens on the
 * address that this connection has. When all are there, rank 0 tells where each listens, and a rank connects to those
 * in front of it and waits for those behind it. Who refuses says why and goes on waiting; a rank that leaves before all
 * are there may come again. Runs on the main thread, before there are others. */
#include "comm/rendezvous.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/log.h"

#define WIRE 1             /* raised when a message of this file or of comm_mesh.h changes */
#define MAGIC "quire-rk"
#define GREETING_US 1000000 /* for one that has connected to say what it is */
#define RETRY_US 100000
#define CONNECT_US 3000000 /* for one try: a name may lead elsewhere at the next */

/* What the one that was connected to says. */
struct reply {
    struct qr_rendezvous_hello hello;
    char refusal[192]; /* "": it is welcome */
    uint8_t proof[QR_SHA256_BYTES];
};

/* An address as the system has it. */
struct place {
    struct sockaddr_storage address;
    socklen_t n;
};

/* ---- addresses ---- */

static void where_is(char text[64], const struct sockaddr *a, socklen_t n)
{
    char host[46], port[8];
    if (getnameinfo(a, n, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(text, 64, "unknown");
    else
        snprintf(text, 64, a->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

static bool is_loopback(const struct place *p)
{
    const struct sockaddr_in *four = (const struct sockaddr_in *)&p->address;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&p->address;
    return p->address.ss_family == AF_INET ? ntohl(four->sin_addr.s_addr) >> 24 == 127 : IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

/* HOST, HOST:PORT, [IPv6] or [IPv6]:PORT, of which host is without brackets. */
static int split(char host[256], const char **port, const char *at, struct qr_err *err)
{
    const char *end = at[0] == '[' ? strchr(at, ']') : NULL, *colon = strchr(end ? end : at, ':');
    const char *first = at + (end != NULL), *behind = end ? end : colon ? colon : at + strlen(at);
    *port = colon ? colon + 1 : QR_RENDEZVOUS_PORT;
    const size_t n_port = strlen(*port);
    if (behind == first || behind - first > 255 || n_port == 0 || n_port > 5 || strspn(*port, "0123456789") != n_port || (end && end[1] && end[1] != ':'))
        return qr_err_set(err, QR_E_USAGE, "'%.200s' is no address of rank 0: HOST or HOST:PORT (an IPv6 address in brackets)", at);
    memcpy(host, first, (size_t)(behind - first));
    host[behind - first] = 0;
    return 0;
}

/* The first address of a name. */
static int resolve(struct place *p, const char *at, struct qr_err *err)
{
    char host[256];
    const char *port;
    struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    int rc = split(host, &port, at, err);
    if (rc)
        return rc;
    rc = getaddrinfo(host, port, &hints, &found);
    if (rc != 0)
        return qr_err_set(err, QR_E_BIND, "%.200s: %s", at, gai_strerror(rc));
    p->n = found->ai_addrlen;
    memcpy(&p->address, found->ai_addr, p->n);
    freeaddrinfo(found);
    return 0;
}

/* ---- sockets ---- */

static int ms_until(int64_t until_us)
{
    const int64_t left = (until_us - qr_clock_us() + 999) / 1000;
    return left < 0 ? 0 : left > 3600000 ? 3600000 : (int)left;
}

/* All n bytes, before `until_us`. */
static bool transfer(int fd, void *bytes, size_t n, bool in, int64_t until_us)
{
    for (size_t at = 0; at < n;) {
        struct pollfd f = {.fd = fd, .events = in ? POLLIN : POLLOUT};
        if (poll(&f, 1, ms_until(until_us)) == 0)
            return false;
        const ssize_t k = in ? recv(fd, (char *)bytes + at, n - at, MSG_DONTWAIT) : send(fd, (char *)bytes + at, n - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        at += k > 0 ? (size_t)k : 0;
    }
    return true;
}

static void set(int fd, int level, int name, int value)
{
    setsockopt(fd, level, name, &value, sizeof value);
}

/* Small messages go at once. A machine that vanished is missed after ten seconds. */
static void prepare(int fd)
{
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 2);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
    set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 10000);
}

/* Listens; *p becomes what it listens on. Errors: QR_E_BIND. */
static int listen_on(int *fd, struct place *p, struct qr_err *err)
{
    char text[64], reason[128];
    const int s = socket(p->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s >= 0)
        set(s, SOL_SOCKET, SO_REUSEADDR, 1);
    if (s >= 0 && bind(s, (struct sockaddr *)&p->address, p->n) == 0 && listen(s, QR_COMM_RANKS_MAX) == 0 &&
        getsockname(s, (struct sockaddr *)&p->address, &p->n) == 0) {
        *fd = s;
        return 0;
    }
    const int cause = errno;
    where_is(text, (struct sockaddr *)&p->address, p->n);
    if (s >= 0)
        close(s);
    return qr_err_set(err, QR_E_BIND, "cannot listen for ranks on %s: %s", text, qr_errno_text(reason, cause));
}

/* Connects; errors: QR_E_BIND. */
static int connect_to(struct qr_comm_link *link, const struct place *p, int64_t until_us, struct qr_err *err)
{
    char reason[128];
    const int64_t end = qr_clock_us() + CONNECT_US;
    where_is(link->where, (const struct sockaddr *)&p->address, p->n);
    const int s = socket(p->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int cause = s < 0 || (connect(s, (const struct sockaddr *)&p->address, p->n) != 0 && errno != EINPROGRESS) ? errno : 0;
    struct pollfd f = {.fd = s, .events = POLLOUT};
    socklen_t n = sizeof cause;
    if (cause == 0 && poll(&f, 1, ms_until(end < until_us ? end : until_us)) != 1)
        cause = ETIMEDOUT;
    else if (cause == 0)
        getsockopt(s, SOL_SOCKET, SO_ERROR, &cause, &n);
    if (cause == 0) {
        prepare(s);
        link->fd = s;
        return 0;
    }
    if (s >= 0)
        close(s);
    return qr_err_set(err, QR_E_BIND, "%s: %s", link->where, qr_errno_text(reason, cause));
}

/* ---- who is who ---- */

static struct qr_rendezvous_hello hello_of(const struct qr_rendezvous *z, uint32_t port)
{
    struct qr_rendezvous_hello h = {.magic = MAGIC, .wire = WIRE, .rank = z->rank, .size = z->size, .has_secret = z->n_secret > 0, .port = port,
                                    .version = QUIRE_VERSION};
    if (getrandom(h.nonce, sizeof h.nonce, 0) != (ssize_t)sizeof h.nonce)
        qr_panic("no random numbers: %s", strerror(errno));
    return h;
}

/* That `prover` of the two knows the secret; zeros without one, which a program without hashes can show, too. */
static void prove(uint8_t out[QR_SHA256_BYTES], const struct qr_rendezvous *z, const struct qr_rendezvous_hello *caller,
                  const struct qr_rendezvous_hello *called, const struct qr_rendezvous_hello *prover)
{
    struct {
        struct qr_rendezvous_hello caller, called;
        int64_t prover;
    } text = {*caller, *called, prover->rank};
    memset(out, 0, QR_SHA256_BYTES);
    if (z->n_secret > 0)
        qr_hmac_sha256(out, z->secret, z->n_secret, &text, sizeof text);
}

int qr_rendezvous_check(const struct qr_rendezvous *z, const struct qr_rendezvous_hello *h, struct qr_err *err)
{
    QR_ASSERT(z != NULL && h != NULL);
    QR_ASSERT(z->rank >= 0 && z->rank < z->size);
    if (memcmp(h->magic, MAGIC, sizeof h->magic) != 0)
        return qr_err_set(err, QR_E_INVALID, "it is no rank of quire's");
    if (h->wire != WIRE || memchr(h->version, 0, sizeof h->version) == NULL || strcmp(h->version, QUIRE_VERSION) != 0)
        return qr_err_set(err, QR_E_DENIED, "it is quire %.*s (wire %u), rank %d is " QUIRE_VERSION " (wire %d): all ranks must be of one version",
                          (int)sizeof h->version, h->version, h->wire, z->rank, WIRE);
    if (h->size != z->size)
        return qr_err_set(err, QR_E_DENIED, "it says %d ranks, rank %d says %d", h->size, z->rank, z->size);
    if (h->rank <= z->rank || h->rank >= z->size)
        return qr_err_set(err, QR_E_DENIED, "it says that it is rank %d, expected %d to %d", h->rank, z->rank + 1, z->size - 1);
    if (h->port > 65535 || (h->port == 0) != (h->rank == z->size - 1))
        return qr_err_set(err, QR_E_DENIED, "rank %d listens on port %u", h->rank, h->port);
    if ((h->has_secret != 0) != (z->n_secret > 0))
        return qr_err_set(err, QR_E_DENIED, "rank %d has %s secret, rank %d has %s (--ranks-secret-file)", h->rank, h->has_secret ? "a" : "no", z->rank,
                          z->n_secret ? "one" : "none");
    return 0;
}

/* Of one that has connected: its rank, or a negative code. *port: where it listens. */
static int greet(struct qr_comm_link *link, const struct qr_rendezvous *z, const struct qr_comm_link *known, uint32_t *port, struct qr_err *err)
{
    struct qr_rendezvous_hello h;
    struct reply r = {.hello = hello_of(z, 0)};
    uint8_t proof[QR_SHA256_BYTES], want[QR_SHA256_BYTES];
    const int64_t until = qr_clock_us() + GREETING_US;
    if (!transfer(link->fd, &h, sizeof h, true, until))
        return qr_err_set(err, QR_E_INVALID, "it did not say what it is");
    int rc = qr_rendezvous_check(z, &h, err);
    if (rc == 0 && known[h.rank].fd >= 0)
        rc = qr_err_set(err, QR_E_DENIED, "rank %d is here already, from %s", h.rank, known[h.rank].where);
    if (rc == QR_E_INVALID)
        return rc; /* a stranger is told nothing */
    if (rc)
        snprintf(r.refusal, sizeof r.refusal, "%.*s", (int)sizeof r.refusal - 1, err->msg);
    else
        prove(r.proof, z, &h, &r.hello, &r.hello);
    if (!transfer(link->fd, &r, sizeof r, false, until) && rc == 0)
        return qr_err_set(err, QR_E_CLOSED, "rank %d left", h.rank);
    if (rc)
        return rc;
    prove(want, z, &h, &r.hello, &h);
    if (!transfer(link->fd, proof, sizeof proof, true, until) || !qr_same_digest(proof, want))
        return qr_err_set(err, QR_E_DENIED, "rank %d does not know the secret", h.rank);
    *port = h.port;
    return h.rank;
}

/* To rank r, over a connection that was made. */
static int introduce(const struct qr_comm_link *link, const struct qr_rendezvous *z, int32_t r, uint32_t port, int64_t until_us, struct qr_err *err)
{
    struct qr_rendezvous_hello h = hello_of(z, port);
    struct reply answer;
    uint8_t proof[QR_SHA256_BYTES];
    if (!transfer(link->fd, &h, sizeof h, false, until_us) || !transfer(link->fd, &answer, sizeof answer, true, until_us))
        return qr_err_set(err, QR_E_CLOSED, "rank %d (%s) does not answer as a rank of quire's does", r, link->where);
    answer.refusal[sizeof answer.refusal - 1] = 0;
    if (memcmp(answer.hello.magic, MAGIC, sizeof h.magic) != 0)
        return qr_err_set(err, QR_E_DENIED, "what listens at %s is no rank of quire's", link->where);
    if (answer.refusal[0])
        return qr_err_set(err, QR_E_DENIED, "rank %d (%s) refuses this rank %d: %s", r, link->where, z->rank, answer.refusal);
    prove(proof, z, &h, &answer.hello, &answer.hello);
    if (answer.hello.rank != r || !qr_same_digest(proof, answer.proof))
        return qr_err_set(err, QR_E_DENIED, "rank %d (%s) has another secret than this rank %d (--ranks-secret-file)", r, link->where, z->rank);
    prove(proof, z, &h, &answer.hello, &h);
    if (!transfer(link->fd, proof, sizeof proof, false, until_us))
        return qr_err_set(err, QR_E_CLOSED, "rank %d (%s) left", r, link->where);
    return 0;
}

/* ---- all of them ---- */

static int missing(const struct qr_comm_link *link, const struct qr_rendezvous *z, const char *refused, struct qr_err *err)
{
    char text[160] = "";
    int n = 0;
    for (int32_t r = z->rank + 1; r < z->size; r++)
        if (link[r].fd < 0 && n < (int)sizeof text - 16)
            n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", n ? ", " : "", r);
    return qr_err_set(err, QR_E_CLOSED, "rank%s %s of %d did not come within %lld s%s%s", strchr(text, ',') ? "s" : "", text, z->size,
                      (long long)(z->wait_us / 1000000), refused[0] ? "; refused was " : "", refused);
}

/* Waits for something at the listener; who has come before and leaves meanwhile (only rank 0's say nothing until all are there) is missing again. */
static bool wait_for_one(int listener, struct qr_comm_link *link, const struct qr_rendezvous *z, int64_t until_us)
{
    struct pollfd f[QR_COMM_RANKS_MAX] = {{.fd = listener, .events = POLLIN}};
    for (int32_t r = 1; r < z->size; r++)
        f[r] = (struct pollfd){.fd = z->rank == 0 ? link[r].fd : -1, .events = POLLIN};
    poll(f, (nfds_t)z->size, ms_until(until_us));
    for (int32_t r = 1; r < z->size; r++)
        if (f[r].fd >= 0 && f[r].revents) {
            qr_log(QR_LOG_WARN, "ranks", "left before all were there rank=%d from=%s", r, link[r].where);
            close(link[r].fd);
            link[r].fd = -1;
        }
    return f[0].revents != 0;
}

/* All ranks behind this one; table[r] becomes where rank r listens. */
static int await(struct qr_comm_link *link, struct place *table, int listener, const struct qr_rendezvous *z, int64_t until_us, struct qr_err *err)
{
    char refused[256] = "";
    for (;;) {
        int32_t n = 0;
        for (int32_t r = z->rank + 1; r < z->size; r++)
            n += link[r].fd < 0;
        if (n == 0)
            return 0;
        if (qr_clock_us() > until_us)
            return missing(link, z, refused, err);
        if (!wait_for_one(listener, link, z, until_us))
            continue;
        struct place p = {.n = sizeof p.address};
        struct qr_comm_link one = {.fd = accept4(listener, (struct sockaddr *)&p.address, &p.n, SOCK_CLOEXEC | SOCK_NONBLOCK)};
        uint32_t port;
        if (one.fd < 0)
            continue;
        prepare(one.fd);
        where_is(one.where, (struct sockaddr *)&p.address, p.n);
        const int r = greet(&one, z, link, &port, err);
        if (r < 0) {
            snprintf(refused, sizeof refused, "%s: %.180s", one.where, err->msg);
            qr_log_text(QR_LOG_WARN, "ranks", "refused", "who", refused);
            close(one.fd);
            continue;
        }
        link[r] = one;
        ((struct sockaddr_in *)&p.address)->sin_port = htons((uint16_t)port); /* where IPv6 has it, too */
        table[r] = p;
    }
}

/* Rank 0. A name may become known, or this machine's, only after a while. */
static int meet_as_first(struct qr_comm_link *link, const struct qr_rendezvous *z, int64_t until_us, struct qr_err *err)
{
    struct place table[QR_COMM_RANKS_MAX] = {0};
    char text[64];
    int listener = -1, rc;
    for (bool said = false; (rc = resolve(&table[0], z->at, err)) != 0 || (rc = listen_on(&listener, &table[0], err)) != 0; said = true) {
        if (rc == QR_E_USAGE || qr_clock_us() > until_us)
            return rc;
        if (!said)
            qr_log_text(QR_LOG_WARN, "ranks", "trying again", "why", err->msg);
        usleep(RETRY_US);
    }
    where_is(text, (struct sockaddr *)&table[0].address, table[0].n);
    qr_log(QR_LOG_INFO, "ranks", "waiting for the others n=%d at=%s for_s=%lld", z->size - 1, text, (long long)(z->wait_us / 1000000));
    if (!is_loopback(&table[0]) && z->n_secret == 0)
        qr_log(QR_LOG_WARN, "ranks", "whoever reaches %s may become a rank: name a secret (--ranks-secret-file), or see that only ranks reach it", text);
    rc = await(link, table, listener, z, until_us, err);
    close(listener);
    for (int32_t r = 1; r < z->size && rc == 0; r++)
        if (!transfer(link[r].fd, table, sizeof table, false, qr_clock_us() + GREETING_US))
            rc = qr_err_set(err, QR_E_CLOSED, "rank %d (%s) left before all were there", r, link[r].where);
    return rc;
}

/* To rank 0, which may not be there yet. */
static int find_first(struct qr_comm_link *link, const struct qr_rendezvous *z, int64_t until_us, struct qr_err *err)
{
    struct place p;
    int rc;
    while ((rc = resolve(&p, z->at, err)) != 0 || (rc = connect_to(link, &p, until_us, err)) != 0) {
        if (rc == QR_E_USAGE)
            return rc;
        if (qr_clock_us() > until_us)
            return qr_err_prefix(err, "rank 0 was not found within %lld s: ", (long long)(z->wait_us / 1000000));
        usleep(RETRY_US);
    }
    return 0;
}

static int meet_as_other(struct qr_comm_link *link, const struct qr_rendezvous *z, int64_t until_us, struct qr_err *err)
{
    struct place table[QR_COMM_RANKS_MAX], mine = {.n = sizeof mine.address};
    int listener = -1;
    int rc = find_first(&link[0], z, until_us, err);
    if (rc == 0 && z->rank < z->size - 1) {
        getsockname(link[0].fd, (struct sockaddr *)&mine.address, &mine.n);
        ((struct sockaddr_in *)&mine.address)->sin_port = 0;
        rc = listen_on(&listener, &mine, err);
    }
    const uint32_t port = listener < 0 ? 0 : ntohs(((struct sockaddr_in *)&mine.address)->sin_port);
    rc = rc ? rc : introduce(&link[0], z, 0, port, until_us, err);
    if (rc == 0 && !transfer(link[0].fd, table, sizeof table, true, until_us))
        rc = qr_err_set(err, QR_E_CLOSED, "rank 0 (%s) left, or not all ranks came within %lld s", link[0].where, (long long)(z->wait_us / 1000000));
    for (int32_t r = 1; r < z->rank && rc == 0; r++) {
        if (table[r].n > sizeof table[r].address)
            rc = qr_err_set(err, QR_E_CLOSED, "rank 0 does not say where rank %d is", r);
        rc = rc ? rc : connect_to(&link[r], &table[r], until_us, err);
        rc = rc ? rc : introduce(&link[r], z, r, port, until_us, err);
    }
    rc = rc || listener < 0 ? rc : await(link, table, listener, z, until_us, err);
    if (listener >= 0)
        close(listener);
    return rc;
}

int qr_rendezvous(struct qr_comm_link link[QR_COMM_RANKS_MAX], const struct qr_rendezvous *z, struct qr_err *err)
{
    QR_ASSERT(link != NULL && z != NULL && z->at != NULL);
    QR_ASSERT(z->rank >= 0 && z->rank < z->size && z->size <= QR_COMM_RANKS_MAX);
    const int64_t until = qr_clock_us() + z->wait_us;
    for (int32_t r = 0; r < QR_COMM_RANKS_MAX; r++)
        link[r].fd = -1;
    const int rc = z->rank == 0 ? meet_as_first(link, z, until, err) : meet_as_other(link, z, until, err);
    for (int32_t r = 0; r < z->size && rc != 0; r++)
        if (link[r].fd >= 0)
            close(link[r].fd);
    return rc;
}
