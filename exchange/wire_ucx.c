/* wire_ucx.c - peers over UCX: ucx:HOST:PORT, which is RDMA where there is any, and shared memory or TCP elsewhere, as UCX finds best.
 *
 * libucp is opened where an address wants it. This file is the door to it; where its headers were absent (Debian: libucx-dev) the row has no verbs. A
 * connection of UCX has no descriptor that poll() understands. So each address has a thread that speaks UCX and nothing else, and the exchange has the other
 * end of a pair of sockets for each connection. When the exchange closes its end, the connection ends; nothing waits longer than CLOSE_US for a peer. */
#include "exchange/wire.h"

#ifndef QUIRE_UCX

static int parse(struct qr_wire_place *place, const char *text, struct qr_err *err)
{
    (void)place;
    return qr_err_set(err, QR_E_UNSUPPORTED, "'ucx:%s': this program was built without UCX (libucx-dev); write HOST:PORT, or unix:PATH on one machine", text);
}

const struct qr_wire qr_wire_ucx = {.prefix = "ucx:", .parse = parse};

#else

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/library.h"
#include "base/mem.h"
#include "base/thread.h"

enum { LINKS_MAX = 80, REQUESTS_MAX = 16, SEND_BYTES = 256 << 10, CLOSE_US = 100 * 1000 };

/* The functions of libucp that are used. */
struct library {
    ucs_status_t (*init)(unsigned, unsigned, const ucp_params_t *, const ucp_config_t *, ucp_context_h *);
    void (*cleanup)(ucp_context_h);
    ucs_status_t (*worker_create)(ucp_context_h, const ucp_worker_params_t *, ucp_worker_h *);
    void (*worker_destroy)(ucp_worker_h);
    unsigned (*progress)(ucp_worker_h);
    ucs_status_t (*get_efd)(ucp_worker_h, int *);
    ucs_status_t (*arm)(ucp_worker_h);
    ucs_status_t (*listener_create)(ucp_worker_h, const ucp_listener_params_t *, ucp_listener_h *);
    ucs_status_t (*listener_query)(ucp_listener_h, ucp_listener_attr_t *);
    ucs_status_t (*reject)(ucp_listener_h, ucp_conn_request_h);
    void (*listener_destroy)(ucp_listener_h);
    ucs_status_t (*ep_create)(ucp_worker_h, const ucp_ep_params_t *, ucp_ep_h *);
    ucs_status_ptr_t (*ep_close)(ucp_ep_h, const ucp_request_param_t *);
    ucs_status_ptr_t (*send)(ucp_ep_h, const void *, size_t, const ucp_request_param_t *);
    ucs_status_ptr_t (*receive)(ucp_ep_h, size_t *);
    void (*release)(ucp_ep_h, void *);
    ucs_status_t (*check)(void *);
    void (*free)(void *);
    const char *(*status_string)(ucs_status_t);
};

static const struct qr_library_symbol symbols[] = {
    {offsetof(struct library, init), "ucp_init_version"},
    {offsetof(struct library, cleanup), "ucp_cleanup"},
    {offsetof(struct library, worker_create), "ucp_worker_create"},
    {offsetof(struct library, worker_destroy), "ucp_worker_destroy"},
    {offsetof(struct library, progress), "ucp_worker_progress"},
    {offsetof(struct library, get_efd), "ucp_worker_get_efd"},
    {offsetof(struct library, arm), "ucp_worker_arm"},
    {offsetof(struct library, listener_create), "ucp_listener_create"},
    {offsetof(struct library, listener_query), "ucp_listener_query"},
    {offsetof(struct library, reject), "ucp_listener_reject"},
    {offsetof(struct library, listener_destroy), "ucp_listener_destroy"},
    {offsetof(struct library, ep_create), "ucp_ep_create"},
    {offsetof(struct library, ep_close), "ucp_ep_close_nbx"},
    {offsetof(struct library, send), "ucp_stream_send_nbx"},
    {offsetof(struct library, receive), "ucp_stream_recv_data_nb"},
    {offsetof(struct library, release), "ucp_stream_data_release"},
    {offsetof(struct library, check), "ucp_request_check_status"},
    {offsetof(struct library, free), "ucp_request_free"},
    {offsetof(struct library, status_string), "ucs_status_string"},
};

static const char *const settings[][2] = {
    {"UCX_LOG_FILE", "stderr"},      /* its default is stdout, which is for results */
    {"UCX_HANDLE_ERRORS", "none"},   /* signals are the program's */
    {"UCX_TCP_CM_REUSEADDR", "y"},   /* so that a server that ends can be started again at once */
};

/* A connection: bytes from `fd` go to the endpoint, and the other way round. */
struct link {
    struct link *next_dead;
    ucp_ep_h ep;
    int fd;
    bool failed, hung_up;       /* failed: UCX says so */
    void *sending;              /* UCX's request; NULL: none */
    char *came;                 /* UCX's; NULL: nothing waits to be written to fd */
    size_t n_came, at;
    char bytes[SEND_BYTES];     /* that are being sent */
};

/* What the exchange's thread wants of the address's. */
struct order {
    int fd;                     /* of a connection; -1: it is to end */
    struct qr_wire_address to;
};

struct qr_ucx {
    struct library lib;
    pthread_t thread;
    bool started;
    int orders[2], guests[2];   /* pipes: to the thread; descriptors of connections that came */
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_listener_h listener;
    int efd;
    struct link *link[LINKS_MAX]; /* owned */
    int n_links;
    struct link *dead;          /* owned: what UCX may still send from */
    ucp_conn_request_h request[REQUESTS_MAX];
    int n_requests;
};

/* ---- links: the thread ---- */

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct link *l = arg;
    (void)ep, (void)status;
    l->failed = true;
}

/* With fd, which is closed where nothing comes of it. */
static void begin_link(struct qr_ucx *u, int fd, ucp_ep_params_t *params)
{
    struct link *l = u->n_links < LINKS_MAX ? qr_alloc(1, sizeof *l) : NULL;
    if (l) {
        l->fd = fd;
        params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
        params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params->err_handler.cb = on_failure;
        params->err_handler.arg = l;
        if (u->lib.ep_create(u->worker, params, &l->ep) == UCS_OK) {
            u->link[u->n_links++] = l;
            return;
        }
    }
    qr_free(l);
    close(fd);
}

static bool is_open(const struct qr_ucx *u, void *request)
{
    return request && u->lib.check(request) == UCS_INPROGRESS;
}

/* An end that was not the peer's is said to it, in the time that there is. */
static void end_link(struct qr_ucx *u, struct link *l)
{
    const int64_t until_us = qr_clock_us() + CLOSE_US;
    const ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = l->failed ? UCP_EP_CLOSE_FLAG_FORCE : 0};
    close(l->fd);
    if (l->came)
        u->lib.release(l->ep, l->came);
    void *closing = u->lib.ep_close(l->ep, &how);
    closing = UCS_PTR_IS_PTR(closing) ? closing : NULL;
    while ((is_open(u, closing) || is_open(u, l->sending)) && qr_clock_us() < until_us)
        u->lib.progress(u->worker);
    const bool dead = is_open(u, closing) || is_open(u, l->sending);
    if (closing)
        u->lib.free(closing);
    if (l->sending)
        u->lib.free(l->sending);
    if (!dead) {
        qr_free(l);
        return;
    }
    l->next_dead = u->dead;
    u->dead = l;
}

/* True: something was done. */
static bool send_some(struct qr_ucx *u, struct link *l)
{
    static const ucp_request_param_t plain = {0};
    bool did = false;
    if (l->sending && !is_open(u, l->sending)) {
        l->failed |= u->lib.check(l->sending) != UCS_OK;
        u->lib.free(l->sending);
        l->sending = NULL;
        did = true;
    }
    if (l->sending || l->failed)
        return did;
    const ssize_t n = recv(l->fd, l->bytes, sizeof l->bytes, MSG_DONTWAIT);
    if (n > 0) {
        void *request = u->lib.send(l->ep, l->bytes, (size_t)n, &plain);
        l->failed |= UCS_PTR_IS_ERR(request);
        l->sending = UCS_PTR_IS_PTR(request) ? request : NULL;
    }
    l->hung_up = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    return n > 0 || did;
}

static bool receive_some(struct qr_ucx *u, struct link *l)
{
    if (!l->came && !l->failed) {
        void *came = u->lib.receive(l->ep, &l->n_came);
        l->failed |= UCS_PTR_IS_ERR(came);
        l->came = UCS_PTR_IS_PTR(came) ? came : NULL;
        l->at = 0;
    }
    if (!l->came)
        return false;
    const ssize_t n = send(l->fd, l->came + l->at, l->n_came - l->at, MSG_DONTWAIT | MSG_NOSIGNAL);
    l->hung_up |= n < 0 && errno != EAGAIN && errno != EINTR;
    l->at += n > 0 ? (size_t)n : 0;
    if (l->at == l->n_came) {
        u->lib.release(l->ep, l->came);
        l->came = NULL;
    }
    return n > 0;
}

/* ---- the thread ---- */

static void on_request(ucp_conn_request_h request, void *arg)
{
    struct qr_ucx *u = arg;
    if (u->n_requests < REQUESTS_MAX)
        u->request[u->n_requests++] = request;
    else
        u->lib.reject(u->listener, request);
}

static void take_requests(struct qr_ucx *u)
{
    while (u->n_requests > 0) {
        int pair[2];
        ucp_conn_request_h request = u->request[--u->n_requests];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
            u->lib.reject(u->listener, request);
            continue;
        }
        if (write(u->guests[1], &pair[1], sizeof pair[1]) != (ssize_t)sizeof pair[1])
            close(pair[1]); /* which ends the link, too */
        begin_link(u, pair[0], &(ucp_ep_params_t){.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST, .conn_request = request});
    }
}

/* False: the thread is to end. */
static bool take_orders(struct qr_ucx *u)
{
    struct order o;
    while (read(u->orders[0], &o, sizeof o) == (ssize_t)sizeof o) {
        if (o.fd < 0)
            return false;
        ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR, .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER};
        params.sockaddr.addr = (const struct sockaddr *)&o.to.sa;
        params.sockaddr.addrlen = o.to.len;
        begin_link(u, o.fd, &params);
    }
    return true;
}

static bool pump(struct qr_ucx *u)
{
    bool did = false;
    for (int i = u->n_links - 1; i >= 0; i--) {
        struct link *l = u->link[i];
        did |= send_some(u, l);
        did |= receive_some(u, l);
        if (!l->came && l->failed)
            l->hung_up = true;
        if (l->hung_up) {
            u->link[i] = u->link[--u->n_links];
            end_link(u, l);
            did = true;
        }
    }
    return did;
}

static void wait_for_more(struct qr_ucx *u)
{
    struct pollfd at[2 + LINKS_MAX] = {{.fd = u->efd, .events = POLLIN}, {.fd = u->orders[0], .events = POLLIN}};
    for (int i = 0; i < u->n_links; i++)
        at[2 + i] = (struct pollfd){.fd = u->link[i]->fd, .events = (short)((u->link[i]->sending ? 0 : POLLIN) | (u->link[i]->came ? POLLOUT : 0))};
    if (u->lib.arm(u->worker) == UCS_OK)
        poll(at, (nfds_t)(2 + u->n_links), 1000);
}

static void *run(void *arg)
{
    struct qr_ucx *u = arg;
    qr_thread_set_name("quire-ucx");
    while (take_orders(u)) {
        bool did = u->lib.progress(u->worker) != 0;
        take_requests(u);
        did |= pump(u);
        if (!did)
            wait_for_more(u);
    }
    while (u->n_links > 0)
        end_link(u, u->link[--u->n_links]);
    return NULL;
}

/* ---- verbs ---- */

static void end(struct qr_ucx *u)
{
    const struct order o = {.fd = -1};
    int fd;
    if (u->started) {
        const ssize_t n = write(u->orders[1], &o, sizeof o);
        QR_ASSERT(n == (ssize_t)sizeof o);
        pthread_join(u->thread, NULL);
    }
    while (u->guests[0] >= 0 && read(u->guests[0], &fd, sizeof fd) == (ssize_t)sizeof fd)
        close(fd);
    if (u->listener)
        u->lib.listener_destroy(u->listener);
    if (u->worker)
        u->lib.worker_destroy(u->worker);
    if (u->context)
        u->lib.cleanup(u->context);
    for (int i = 0; i < 2; i++) {
        if (u->orders[i] >= 0)
            close(u->orders[i]);
        if (u->guests[i] >= 0)
            close(u->guests[i]);
    }
    for (struct link *l = u->dead, *next; l; l = next) {
        next = l->next_dead;
        qr_free(l);
    }
    qr_free(u);
}

static void forget(struct qr_wire_place *place)
{
    qr_wire_forget_names(place);
    if (place->ucx)
        end(place->ucx);
    place->ucx = NULL;
}

static ucs_status_t open_worker(struct qr_ucx *u)
{
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_STREAM | UCP_FEATURE_WAKEUP};
    const ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucs_status_t rc = u->lib.init(UCP_API_MAJOR, UCP_API_MINOR, &params, NULL, &u->context);
    rc = rc == UCS_OK ? u->lib.worker_create(u->context, &worker, &u->worker) : rc;
    return rc == UCS_OK ? u->lib.get_efd(u->worker, &u->efd) : rc;
}

static int prepare(struct qr_wire_place *place, struct qr_err *err)
{
    struct qr_ucx *u = place->ucx = qr_alloc(1, sizeof *u);
    u->orders[0] = u->orders[1] = u->guests[0] = u->guests[1] = -1;
    for (int i = 0; i < QR_COUNT(settings); i++)
        setenv(settings[i][0], settings[i][1], 0);
    const char *missing = qr_library_load(&u->lib, "libucp.so.0", symbols, QR_COUNT(symbols));
    if (missing)
        return qr_err_set(err, QR_E_UNSUPPORTED, "'%s': UCX cannot be opened: %s; install it (apt-get install libucx0), or write HOST:PORT", place->text,
                          missing);
    const ucs_status_t rc = open_worker(u);
    if (rc != UCS_OK)
        return qr_err_set(err, QR_E_UNSUPPORTED, "'%s': UCX finds no way on this machine: %s; write HOST:PORT", place->text, u->lib.status_string(rc));
    if (pipe2(u->orders, O_CLOEXEC | O_NONBLOCK) != 0 || pipe2(u->guests, O_CLOEXEC | O_NONBLOCK) != 0)
        return qr_err_set(err, QR_E_IO, "'%s': no descriptor is left: %s; raise ulimit -n", place->text, strerror(errno));
    return 0;
}

static void start(struct qr_ucx *u)
{
    qr_thread_start(&u->thread, run, u, "peers over UCX");
    u->started = true;
}

static int listen_ucx(struct qr_wire_place *place, struct qr_err *err)
{
    struct qr_ucx *u = place->ucx;
    struct qr_wire_address at;
    const int rc = qr_wire_own_address(&at, place, err);
    if (rc != 0)
        return rc;
    ucp_listener_params_t params = {.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER};
    params.sockaddr.addr = (const struct sockaddr *)&at.sa;
    params.sockaddr.addrlen = at.len;
    params.conn_handler.cb = on_request;
    params.conn_handler.arg = u;
    const ucs_status_t status = u->lib.listener_create(u->worker, &params, &u->listener);
    if (status != UCS_OK)
        return qr_err_set(err, QR_E_BIND, "cannot listen to peers on '%s': UCX says: %s; name another address or port", place->text,
                          u->lib.status_string(status));
    ucp_listener_attr_t got = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    if (u->lib.listener_query(u->listener, &got) == UCS_OK)
        qr_wire_bound(place, (const struct sockaddr *)&got.sockaddr);
    start(u);
    return u->guests[0];
}

static void unlisten(struct qr_wire_place *place, int fd)
{
    QR_ASSERT(place->ucx == NULL || fd == place->ucx->guests[0]);
    forget(place);
}

static int accept_ucx(int listener)
{
    int fd;
    return read(listener, &fd, sizeof fd) == (ssize_t)sizeof fd ? fd : -1;
}

static int connect_ucx(struct qr_wire_place *place, const char **why)
{
    struct order o;
    int pair[2];
    const int rc = qr_wire_next_address(&o.to, place, why);
    if (rc != 0)
        return rc;
    if (!place->ucx->started)
        start(place->ucx);
    *why = "no connection can be made";
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
        return -1;
    o.fd = pair[0];
    if (write(place->ucx->orders[1], &o, sizeof o) == (ssize_t)sizeof o)
        return pair[1];
    close(pair[0]);
    close(pair[1]);
    return -1;
}

const struct qr_wire qr_wire_ucx = {
    .prefix = "ucx:",
    .parse = qr_wire_parse_host,
    .prepare = prepare,
    .listen = listen_ucx,
    .unlisten = unlisten,
    .accept = accept_ucx,
    .connect = connect_ucx,
    .connected = qr_wire_socket_connected,
    .forget = forget,
    .read = qr_wire_socket_read,
    .write = qr_wire_socket_write,
    .close = qr_wire_socket_close,
};

#endif
