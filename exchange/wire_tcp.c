/* wire_tcp.c - peers over TCP: HOST:PORT.
 *
 * Looking a name up can take seconds, so that a thread of its own does that for each attempt. It shares what it found with the place, and the last one to let
 * go frees it. Nothing waits for that thread, not even the end of the exchange. Socket buffers are the system's: it makes them as large as the link needs,
 * and a size of our own would only take that from it. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/reach.h"
#include "base/thread.h"
#include "exchange/wire.h"

enum { BACKLOG = 64 };

struct qr_wire_names {
    _Atomic int32_t n_owners;     /* the place, and the thread while it looks up */
    _Atomic bool done;
    char host[QR_PEER_ADDRESS_MAX], port[8];
    struct addrinfo *all, *next;  /* owned by all; next: to be tried */
};

/* ---- addresses ---- */

static bool is_loopback(const struct sockaddr *a)
{
    return (a->sa_family == AF_INET && ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127) ||
           (a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr));
}

static struct addrinfo *numeric(const char *host, const char *port)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    return getaddrinfo(host, port, &hints, &list) == 0 ? list : NULL;
}

static bool is_port(const char *text)
{
    const size_t n = strlen(text);
    return n >= 1 && n <= 5 && strspn(text, "0123456789") == n && strtol(text, NULL, 10) <= 65535;
}

int qr_wire_parse_host(struct qr_wire_place *place, const char *text, struct qr_err *err)
{
    const char *colon = strrchr(text, ':');
    const bool bracket = text[0] == '[';
    QR_ASSERT(place != NULL && err != NULL);
    const char *host = text + bracket, *end = bracket ? strchr(text, ']') : colon;
    if (!colon || !end || end == host || (bracket && end + 1 != colon) || (!bracket && memchr(text, ':', (size_t)(colon - text))) || !is_port(colon + 1))
        return qr_err_set(err, QR_E_USAGE, "'%s' is no address of a peer; write HOST:PORT, [IPv6]:PORT or unix:PATH", text);
    for (ptrdiff_t i = 0; i < end - host; i++)
        place->host[i] = (char)tolower((unsigned char)host[i]);
    snprintf(place->port, sizeof place->port, "%ld", strtol(colon + 1, NULL, 10));
    struct addrinfo *is = numeric(place->host, place->port);
    place->local = is ? is_loopback(is->ai_addr) : strcmp(place->host, "localhost") == 0;
    if (is)
        freeaddrinfo(is);
    return 0;
}

/* ---- listening ---- */

int qr_wire_own_address(struct qr_wire_address *out, const struct qr_wire_place *place, struct qr_err *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    QR_ASSERT(out != NULL && place != NULL && err != NULL);
    const int rc = getaddrinfo(place->host, place->port, &hints, &list);
    if (rc != 0)
        return qr_err_set(err, QR_E_USAGE, "cannot listen to peers on '%s': %s", place->text, gai_strerror(rc));
    memcpy(&out->sa, list->ai_addr, list->ai_addrlen);
    out->len = list->ai_addrlen;
    freeaddrinfo(list);
    return 0;
}

void qr_wire_bound(struct qr_wire_place *place, const struct sockaddr *sa)
{
    char at[QR_REACH_TEXT], bound[QR_REACH_TEXT];
    QR_ASSERT(place != NULL && sa != NULL);
    QR_ASSERT(strrchr(place->text, ':') != NULL);
    qr_reach(at, sa);
    if (!qr_reach_text(bound, sa))
        return;
    snprintf(place->port, sizeof place->port, "%s", strrchr(at, ':') + 1);
    const size_t n = (size_t)(strrchr(place->text, ':') + 1 - place->text);
    if (strcmp(at, bound) == 0) /* as it was given, with the port that it got */
        snprintf(place->text + n, sizeof place->text - n, "%s", place->port);
    else
        snprintf(place->text, sizeof place->text, "%s%s", place->wire->prefix, at);
}

static int listen_at(const struct qr_wire_address *at)
{
    const int one = 1, fd = socket(at->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (const struct sockaddr *)&at->sa, at->len) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static int listen_tcp(struct qr_wire_place *place, struct qr_err *err)
{
    struct qr_wire_address at;
    const int rc = qr_wire_own_address(&at, place, err);
    if (rc != 0)
        return rc;
    const int fd = listen_at(&at);
    if (fd < 0)
        return qr_err_set(err, QR_E_BIND, "cannot listen to peers on '%s': %s; name another address or port, or port 0 for any free one", place->text,
                          strerror(errno));
    at.len = sizeof at.sa;
    if (getsockname(fd, (struct sockaddr *)&at.sa, &at.len) == 0)
        qr_wire_bound(place, (const struct sockaddr *)&at.sa);
    return fd;
}

static void unlisten(struct qr_wire_place *place, int fd)
{
    (void)place;
    close(fd);
}

static int accept_tcp(int listener)
{
    const int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* ---- connecting ---- */

static void let_go(struct qr_wire_names *names)
{
    if (atomic_fetch_sub(&names->n_owners, 1) > 1)
        return;
    if (names->all)
        freeaddrinfo(names->all);
    qr_free(names);
}

static void *look_up(void *arg)
{
    struct qr_wire_names *names = arg;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    qr_thread_set_name("quire-names");
    if (getaddrinfo(names->host, names->port, &hints, &names->all) != 0)
        names->all = NULL;
    names->next = names->all;
    atomic_store(&names->done, true);
    let_go(names);
    return NULL;
}

static struct qr_wire_names *begin_look_up(const struct qr_wire_place *place)
{
    struct qr_wire_names *names = qr_alloc(1, sizeof *names);
    pthread_t thread;
    memcpy(names->host, place->host, sizeof names->host);
    memcpy(names->port, place->port, sizeof names->port);
    atomic_store(&names->n_owners, 1);
    names->next = names->all = numeric(place->host, place->port);
    if (!names->all) {
        atomic_store(&names->n_owners, 2);
        if (pthread_create(&thread, NULL, look_up, names) == 0) {
            pthread_detach(thread);
            return names;
        }
        atomic_store(&names->n_owners, 1);
    }
    atomic_store(&names->done, true);
    return names;
}

void qr_wire_forget_names(struct qr_wire_place *place)
{
    QR_ASSERT(place != NULL);
    QR_ASSERT(place->wire != NULL);
    if (place->names)
        let_go(place->names);
    place->names = NULL;
}

int qr_wire_next_address(struct qr_wire_address *out, struct qr_wire_place *place, const char **why)
{
    QR_ASSERT(out != NULL && place != NULL);
    QR_ASSERT(why != NULL);
    if (!place->names)
        place->names = begin_look_up(place);
    if (!atomic_load(&place->names->done))
        return QR_WIRE_LATER;
    const struct addrinfo *at = place->names->next;
    while (at && place->local && !is_loopback(at->ai_addr)) /* a name that is to be this machine's, and is not */
        at = at->ai_next;
    if (at) {
        memcpy(&out->sa, at->ai_addr, at->ai_addrlen);
        out->len = at->ai_addrlen;
        place->names->next = at->ai_next;
    }
    if (!at || !place->names->next) /* all were tried: the next attempt looks it up anew */
        qr_wire_forget_names(place);
    *why = "the name has no address";
    return at ? 0 : -1;
}

static int connect_tcp(struct qr_wire_place *place, const char **why)
{
    struct qr_wire_address at;
    const int rc = qr_wire_next_address(&at, place, why);
    if (rc != 0)
        return rc;
    const int one = 1, fd = socket(at.sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        *why = "no socket can be made";
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, (const struct sockaddr *)&at.sa, at.len) == 0 || errno == EINPROGRESS)
        return fd;
    *why = "no connection can be made";
    close(fd);
    return -1;
}

const struct qr_wire qr_wire_tcp = {
    .prefix = "",
    .parse = qr_wire_parse_host,
    .listen = listen_tcp,
    .unlisten = unlisten,
    .accept = accept_tcp,
    .connect = connect_tcp,
    .forget = qr_wire_forget_names,
    .connected = qr_wire_socket_connected,
    .read = qr_wire_socket_read,
    .write = qr_wire_socket_write,
    .close = qr_wire_socket_close,
};
