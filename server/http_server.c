/* http_server.c - the event loop around libuv: the listening socket, connections in a table, signals, timers, jobs on
 * the pool. Bytes written in one turn of the loop leave in one write. At the limit of connections the longest idle one
 * is closed; where none is idle the new one is refused. libuv's memory is counted and may be missing: then requests get
 * 503 and the loop goes on. Loop thread, but for qr_http_wake and the `run` half of a job. */
#include "server/http_server.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/reach.h"
#include "server/port_owner.h"

#define TICK_MS 100
#define LATE_US 1000000 /* a tick that comes so late: the process stood still */
#define DESCRIPTORS_BESIDE 256 /* beside connections: the model's files (of which 128 stay open), devices, libuv's, the log; a quarter: clients being refused */
#define BACKLOG 1024
#define POOL_THREADS 4 /* of libuv, where UV_THREADPOOL_SIZE says nothing else */
#define POOL_MAX 1024

struct qr_http {
    uv_loop_t loop;
    union { /* by unix_path of the configuration */
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } listener;
    uv_async_t async;
    uv_prepare_t turn;
    uv_timer_t tick;
    uv_signal_t sigterm, sigint, sighup;
    uv_work_t first;
    struct qr_conn_env env;
    const struct qr_http_handler *handler; /* borrowed */
    void *user;                            /* borrowed */
    int32_t connections_max, refused_max, per_address_max, port, n_jobs;
    bool loopback, refuse_warned, accept_warned, late;
    bool waiting; /* libuv has accepted a connection that was not taken; it accepts no other before */
    int64_t ticked_us;
    char address[128], reachable[128];
};

struct qr_http_job {
    uv_work_t work;
    struct qr_http *http; /* borrowed */
    void (*run)(void *arg);
    void (*done)(void *arg);
    void *arg; /* borrowed */
};

static bool is_full(const struct qr_http *h)
{
    return h->env.n_conns - h->env.n_refused_open >= h->connections_max;
}

/* At the limit an idle connection makes room, or the new one is refused. Where too many have not read their refusal yet, it waits, and all that come after it
 * do so in the socket's queue. */
static void take_connection(struct qr_http *h)
{
    uv_stream_t *listener = &h->listener.stream;
    const bool full = is_full(h) && !qr_conn_evict_idle(&h->env);
    h->waiting = full && h->env.n_refused_open >= h->refused_max;
    if (full && !h->refuse_warned)
        qr_log(QR_LOG_WARN, "server", "connection limit reached connections_max=%d", h->connections_max);
    h->refuse_warned = full;
    if (!h->waiting)
        h->waiting = !qr_conn_accept(&h->env, listener, h->per_address_max, full);
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct qr_http *h = listener->data;
    if (status != 0) {
        if (!h->accept_warned) /* out of descriptors: one line, not one per client */
            qr_log_text(QR_LOG_WARN, "server", "accept failed", "reason", uv_strerror(status));
        h->accept_warned = true;
        return;
    }
    h->accept_warned = false;
    take_connection(h);
}

static void on_async(uv_async_t *async)
{
    struct qr_http *h = async->data;
    h->handler->wake(h->user);
}

static void on_turn(uv_prepare_t *turn)
{
    struct qr_http *h = turn->data;
    qr_conn_flush_all(&h->env);
    if (h->waiting && (!is_full(h) || h->env.n_refused_open < h->refused_max))
        take_connection(h);
}

static void on_tick(uv_timer_t *timer)
{
    struct qr_http *h = timer->data;
    const int64_t now_us = qr_clock_us();
    h->late = !h->late && now_us - h->ticked_us > LATE_US;
    h->ticked_us = now_us;
    if (!h->late) /* after a pause (SIGSTOP, a machine that was moved) what has come meanwhile is read before anybody is found too slow */
        qr_conn_tick_all(&h->env, now_us);
    if (h->waiting) /* one that was fresh may be idle */
        take_connection(h);
    h->handler->tick(h->user, now_us);
}

static void on_signal(uv_signal_t *handle, int signum)
{
    struct qr_http *h = handle->data;
    h->handler->signal(h->user, signum);
}

/* ---- addresses ---- */

/* False: it is neither IPv4 nor IPv6. */
static bool ip_text(char out[INET6_ADDRSTRLEN], const struct sockaddr *sa)
{
    const int family = sa ? sa->sa_family : AF_UNSPEC;
    if (family == AF_INET)
        return uv_ip4_name((const struct sockaddr_in *)sa, out, INET6_ADDRSTRLEN) == 0;
    return family == AF_INET6 && uv_ip6_name((const struct sockaddr_in6 *)sa, out, INET6_ADDRSTRLEN) == 0;
}

static void format_address(struct qr_http *h, const struct sockaddr *sa)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)sa;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;
    const bool six = sa->sa_family == AF_INET6;
    char ip[INET6_ADDRSTRLEN] = "?";
    ip_text(ip, sa);
    h->loopback = six ? IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) : (ntohl(in->sin_addr.s_addr) >> 24) == 127;
    h->port = ntohs(six ? in6->sin6_port : in->sin_port);
    snprintf(h->address, sizeof h->address, six ? "[%s]:%d" : "%s:%d", ip, h->port);
}

static int resolve(struct sockaddr_storage *out, const char *host, int32_t port, struct qr_err *err)
{
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    char bare[INET6_ADDRSTRLEN + IF_NAMESIZE + 1];
    const size_t n = strlen(host);
    const bool brackets = n > 2 && n - 2 < sizeof bare && host[0] == '[' && host[n - 1] == ']'; /* as in an address of the web: [::1] */
    if (brackets) {
        snprintf(bare, sizeof bare, "%.*s", (int)n - 2, host + 1);
        hints.ai_family = AF_INET6;
        hints.ai_flags |= AI_NUMERICHOST;
    }
    int rc = getaddrinfo(brackets ? bare : host, service, &hints, &found);
    if (rc != 0 || !found)
        return qr_err_set(err, QR_E_BIND, "cannot listen on host '%s': %s; give a numeric address such as 127.0.0.1", host,
                          gai_strerror(rc));
    QR_ASSERT(found->ai_addrlen <= sizeof *out);
    memcpy(out, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return 0;
}

static void list_local_addresses(char *out, size_t size)
{
    struct ifaddrs *list = NULL;
    size_t n = 0;
    out[0] = 0;
    if (getifaddrs(&list) != 0)
        return;
    for (struct ifaddrs *at = list; at && n + INET6_ADDRSTRLEN + 3 < size; at = at->ifa_next) {
        char ip[INET6_ADDRSTRLEN];
        if (ip_text(ip, at->ifa_addr))
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? ", " : "", ip);
    }
    freeifaddrs(list);
}

static int bind_error(const struct qr_http *h, int rc, struct qr_err *err)
{
    if (rc == UV_EADDRINUSE) {
        char owner[128];
        qr_port_owner(owner, sizeof owner, h->port);
        return qr_err_set(err, QR_E_BIND, "cannot listen on %s: the port is in use%s%s; try --port %d, or --port 0 for any free one",
                          h->address, owner[0] ? " by " : "", owner, h->port < 65535 ? h->port + 1 : 0);
    }
    if (rc == UV_EADDRNOTAVAIL) {
        char local[300];
        list_local_addresses(local, sizeof local);
        return qr_err_set(err, QR_E_BIND, "cannot listen on %s: this machine has no such address; it has %s", h->address, local);
    }
    return qr_err_set(err, QR_E_BIND, "cannot listen on %s: %s; try another --host or --port", h->address, uv_strerror(rc));
}

static int listen_on(struct qr_http *h, const struct qr_http_config *config, struct qr_err *err)
{
    struct sockaddr_storage ss;
    int rc = resolve(&ss, config->host, config->port, err);
    if (rc != 0)
        return rc;
    format_address(h, (struct sockaddr *)&ss);
    uv_tcp_init(&h->loop, &h->listener.tcp);
    h->listener.handle.data = h;
    if ((rc = uv_tcp_bind(&h->listener.tcp, (struct sockaddr *)&ss, 0)) != 0 ||
        (rc = uv_listen(&h->listener.stream, BACKLOG, on_connection)) != 0)
        return bind_error(h, rc, err);
    int len = sizeof ss;
    if ((rc = uv_tcp_getsockname(&h->listener.tcp, (struct sockaddr *)&ss, &len)) != 0)
        return bind_error(h, rc, err);
    format_address(h, (struct sockaddr *)&ss);
    qr_reach(h->reachable, (struct sockaddr *)&ss);
    return 0;
}

/* A socket file that no process answers is what a killed server has left: it goes. */
static int make_way(const char *path, struct qr_err *err)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    struct stat st;
    if (strlen(path) >= sizeof sa.sun_path)
        return qr_err_set(err, QR_E_USAGE, "--unix-socket: a path of %zu bytes; at most %zu", strlen(path), sizeof sa.sun_path - 1);
    memcpy(sa.sun_path, path, strlen(path) + 1);
    if (lstat(path, &st) != 0)
        return 0;
    if (!S_ISSOCK(st.st_mode))
        return qr_err_set(err, QR_E_BIND, "cannot listen on '%s': it exists and is not a socket; name another path", path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool dead = fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof sa) != 0 && errno == ECONNREFUSED;
    close(fd);
    if (!dead || unlink(path) != 0)
        return qr_err_set(err, QR_E_BIND, "cannot listen on '%s': another process does; stop it, or name another path", path);
    return 0;
}

static int listen_in_files(struct qr_http *h, const char *path, struct qr_err *err)
{
    int rc = make_way(path, err);
    if (rc != 0)
        return rc;
    snprintf(h->address, sizeof h->address, "%s", path);
    snprintf(h->reachable, sizeof h->reachable, "%s", path);
    h->loopback = true;
    uv_pipe_init(&h->loop, &h->listener.pipe, 0);
    h->listener.handle.data = h;
    rc = uv_pipe_bind(&h->listener.pipe, path);
    if (rc == 0 && chmod(path, 0660) != 0) /* before it listens, so no client has connected with other rights */
        rc = uv_translate_sys_error(errno);
    rc = rc ? rc : uv_listen(&h->listener.stream, BACKLOG, on_connection);
    return rc ? qr_err_set(err, QR_E_BIND, "cannot listen on '%s': %s; name another path", path, uv_strerror(rc)) : 0;
}

/* ---- life ---- */

static void start_handles(struct qr_http *h, bool signals)
{
    struct sigaction hangup;
    uv_async_init(&h->loop, &h->async, on_async);
    uv_prepare_init(&h->loop, &h->turn);
    uv_timer_init(&h->loop, &h->tick);
    uv_signal_init(&h->loop, &h->sigterm);
    uv_signal_init(&h->loop, &h->sigint);
    uv_signal_init(&h->loop, &h->sighup);
    h->async.data = h->turn.data = h->tick.data = h->sigterm.data = h->sigint.data = h->sighup.data = h;
    uv_prepare_start(&h->turn, on_turn);
    uv_timer_start(&h->tick, on_tick, TICK_MS, TICK_MS);
    h->ticked_us = qr_clock_us();
    if (signals) {
        uv_signal_start(&h->sigterm, on_signal, SIGTERM);
        uv_signal_start(&h->sigint, on_signal, SIGINT);
        if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) /* nohup's wish is kept */
            uv_signal_start(&h->sighup, on_signal, SIGHUP);
    }
}

/* A connection needs a descriptor: the process's soft limit, often 1024, is raised as far as it may be, and there are no more connections than that allows.
 * libuv would close one more without a word; at our own limit an idle one makes room, or the client hears why not. */
static void fit_connections(struct qr_http *h, int32_t wanted)
{
    struct rlimit l;
    const rlim_t need = (rlim_t)wanted + DESCRIPTORS_BESIDE;
    h->connections_max = wanted;
    h->refused_max = DESCRIPTORS_BESIDE / 4;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0 || l.rlim_cur >= need)
        return;
    const struct rlimit more = {.rlim_cur = need < l.rlim_max ? need : l.rlim_max, .rlim_max = l.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &more) == 0)
        l = more;
    if (l.rlim_cur >= need)
        return;
    const rlim_t beside = l.rlim_cur / 2 < DESCRIPTORS_BESIDE ? l.rlim_cur / 2 : DESCRIPTORS_BESIDE;
    h->connections_max = l.rlim_cur > beside ? (int32_t)(l.rlim_cur - beside) : 1;
    h->refused_max = (int32_t)beside / 4;
    qr_log(QR_LOG_WARN, "server", "the limit of open files (ulimit -n %llu) allows fewer connections connections_max=%d asked_for=%d",
           (unsigned long long)l.rlim_cur, h->connections_max, wanted);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void wait_for(void *sem)
{
    uv_sem_wait(sem);
}

static void run_nothing(uv_work_t *work)
{
}

static void ran_nothing(uv_work_t *work, int status)
{
}

/* libuv makes its pool's threads with the first job, and aborts without a word where it gets none. So the first job is now, and before it as many threads are
 * made and ended. */
static int begin_jobs(struct qr_http *h, struct qr_err *err)
{
    uv_thread_t thread[POOL_MAX];
    uv_sem_t end;
    const char *asked = getenv("UV_THREADPOOL_SIZE");
    const int wanted = asked ? atoi(asked) : POOL_THREADS, n = wanted < 1 ? 1 : wanted < POOL_MAX ? wanted : POOL_MAX;
    int n_made = 0, rc = uv_sem_init(&end, 0);
    QR_ASSERT(rc == 0);
    while (n_made < n && (rc = uv_thread_create(&thread[n_made], wait_for, &end)) == 0)
        n_made++;
    for (int i = 0; i < n_made; i++)
        uv_sem_post(&end);
    for (int i = 0; i < n_made; i++)
        uv_thread_join(&thread[i]);
    uv_sem_destroy(&end);
    if (rc != 0)
        return qr_err_set(err, QR_E_NO_ROOM, "thread %d of %d for the text of requests cannot be started: %s; limits are ulimit -u, -v, and pids.max of the "
                          "control group", n_made + 1, n, uv_strerror(rc));
    rc = uv_queue_work(&h->loop, &h->first, run_nothing, ran_nothing);
    QR_ASSERT(rc == 0);
    return 0;
}

static void *take_memory(size_t n_bytes)
{
    return qr_realloc(NULL, n_bytes, 1);
}

static void *grow_memory(void *p, size_t n_bytes)
{
    return qr_realloc(p, n_bytes, 1);
}

static void on_nothing(uv_poll_t *poll, int status, int events)
{
}

/* libuv's table of descriptors grows when a higher one is watched, and without memory that ends the process: the highest that there will be is watched now. */
static void grow_table(struct qr_http *h)
{
    uv_poll_t poll;
    int pipe_end[2];
    const int highest = h->connections_max + DESCRIPTORS_BESIDE;
    if (uv_pipe(pipe_end, 0, 0) != 0)
        return;
    const int fd = fcntl(pipe_end[0], F_DUPFD_CLOEXEC, highest);
    if (fd >= 0 && uv_poll_init(&h->loop, &poll, fd) == 0) {
        uv_poll_start(&poll, UV_READABLE, on_nothing);
        uv_close((uv_handle_t *)&poll, NULL);
        uv_run(&h->loop, UV_RUN_NOWAIT);
    }
    close(fd);
    close(pipe_end[0]);
    close(pipe_end[1]);
}

int qr_http_open(struct qr_http **out, const struct qr_http_config *config, const struct qr_http_handler *handler, void *user,
                 struct qr_err *err)
{
    QR_ASSERT(out != NULL && config != NULL && config->host != NULL);
    QR_ASSERT(handler != NULL && err != NULL);
    QR_ASSERT(config->connections_max > 0 && config->per_address_max > 0);
    signal(SIGPIPE, SIG_IGN); /* libuv does not do it; a client that dies in mid-stream would end the process */
    struct qr_http *h = qr_alloc(1, sizeof *h);
    h->handler = handler;
    h->user = user;
    fit_connections(h, config->connections_max);
    h->per_address_max = config->per_address_max;
    qr_conn_env_init(&h->env, &config->conn, config->budget, &handler->conn, user);
    h->env.trusted = config->trusted;
    h->env.tls = config->tls;
    uv_replace_allocator(take_memory, grow_memory, qr_alloc, qr_free); /* refused where it was used before: it is ours then */
    int rc = uv_loop_init(&h->loop);
    if (rc != 0) {
        qr_free(h);
        return qr_err_set(err, QR_E_IO, "cannot make an event loop: %s", uv_strerror(rc));
    }
    grow_table(h);
    start_handles(h, config->signals); /* first: a client that finds the port open may end the process at once */
    rc = config->unix_path ? listen_in_files(h, config->unix_path, err) : listen_on(h, config, err);
    rc = rc ? rc : begin_jobs(h, err);
    if (rc != 0) {
        uv_walk(&h->loop, close_handle, NULL);
        uv_run(&h->loop, UV_RUN_DEFAULT);
        uv_loop_close(&h->loop);
        qr_free(h);
        return rc;
    }
    *out = h;
    return 0;
}

void qr_http_run(struct qr_http *h)
{
    QR_ASSERT(h != NULL);
    QR_ASSERT(h->address[0] != 0);
    uv_run(&h->loop, UV_RUN_DEFAULT);
}

void qr_http_stop(struct qr_http *h)
{
    QR_ASSERT(h != NULL);
    uv_stop(&h->loop);
}

void qr_http_close(struct qr_http *h)
{
    if (!h)
        return;
    qr_conn_close_all(&h->env);
    uv_timer_stop(&h->tick);
    if (uv_is_active((const uv_handle_t *)&h->sighup)) { /* libuv leaves the default, and a log that is rotated now would change how the process ends */
        uv_signal_stop(&h->sighup);
        signal(SIGHUP, SIG_IGN);
    }
    uv_walk(&h->loop, close_handle, NULL);
    uv_run(&h->loop, UV_RUN_DEFAULT); /* close callbacks, and jobs that are still on the pool */
    int rc = uv_loop_close(&h->loop);
    QR_ASSERT(rc == 0);
    qr_free(h);
}

int32_t qr_http_port(const struct qr_http *h)
{
    QR_ASSERT(h != NULL);
    return h->port;
}

const char *qr_http_address(const struct qr_http *h)
{
    QR_ASSERT(h != NULL);
    return h->address;
}

const char *qr_http_reachable(const struct qr_http *h)
{
    QR_ASSERT(h != NULL);
    return h->reachable;
}

bool qr_http_is_loopback(const struct qr_http *h)
{
    QR_ASSERT(h != NULL);
    return h->loopback;
}

struct qr_conn_env *qr_http_env(struct qr_http *h)
{
    QR_ASSERT(h != NULL);
    return &h->env;
}

void qr_http_wake(struct qr_http *h)
{
    QR_ASSERT(h != NULL);
    uv_async_send(&h->async);
}

/* ---- jobs ---- */

static void job_run(uv_work_t *work)
{
    struct qr_http_job *job = work->data;
    job->run(job->arg);
}

static void job_done(uv_work_t *work, int status)
{
    struct qr_http_job *job = work->data;
    QR_ASSERT(status == 0); /* nothing cancels jobs */
    job->http->n_jobs--;
    job->done(job->arg);
}

void qr_http_finish_jobs(struct qr_http *h)
{
    QR_ASSERT(h != NULL);
    QR_ASSERT(h->n_jobs >= 0);
    while (h->n_jobs > 0)
        uv_run(&h->loop, UV_RUN_ONCE);
}

struct qr_http_job *qr_http_job_new(struct qr_http *h)
{
    QR_ASSERT(h != NULL);
    struct qr_http_job *job = qr_alloc(1, sizeof *job);
    if (job)
        *job = (struct qr_http_job){.http = h};
    return job;
}

void qr_http_job_free(struct qr_http_job *job)
{
    qr_free(job);
}

void qr_http_work(struct qr_http_job *job, void (*run)(void *arg), void (*done)(void *arg), void *arg)
{
    QR_ASSERT(job != NULL);
    QR_ASSERT(run != NULL && done != NULL);
    job->run = run;
    job->done = done;
    job->arg = arg;
    job->work.data = job;
    int rc = uv_queue_work(&job->http->loop, &job->work, job_run, job_done);
    QR_ASSERT(rc == 0);
    job->http->n_jobs++;
}
