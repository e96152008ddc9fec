/* http_server.h - the event loop: a listening socket, its connections, signals, a thread pool, a tick. libuv stays in http_server.c and
 * http_conn.c. Everything runs on the thread that calls qr_http_run, except qr_http_wake and the `run` half of a job.
 */
#ifndef QR_SERVER_HTTP_SERVER_H
#define QR_SERVER_HTTP_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "server/http_conn.h"

struct qr_http_config {
    const char *host; /* numeric address or name; borrowed during open */
    int32_t port;     /* 0: any free one */
    const char *unix_path; /* instead of an address, or NULL: a socket in the file system, for its owner and group; borrowed during open */
    struct qr_tls *tls;    /* borrowed; NULL: connections are plain */
    int32_t connections_max, per_address_max;
    bool signals;     /* take SIGTERM, SIGINT and, where it is not ignored, SIGHUP */
    const struct qr_networks *trusted; /* borrowed: proxies (address.h) */
    struct qr_budget *budget; /* borrowed: what connections hold is taken from it */
    struct qr_conn_limits conn;
};

struct qr_http_handler {
    struct qr_conn_handler conn;
    void (*wake)(void *user);                   /* after qr_http_wake; several wakes may become one */
    void (*tick)(void *user, int64_t now_us);   /* about every 100 ms */
    void (*signal)(void *user, int32_t signum); /* SIGTERM, SIGINT or SIGHUP */
};

struct qr_http; /* opaque */

/* Binds and listens; nothing is accepted before run. handler and user are borrowed. Errors: QR_E_BIND with the process
 * that holds the port, or which addresses there are. A socket file that a killed server has left is replaced. */
int qr_http_open(struct qr_http **out, const struct qr_http_config *config, const struct qr_http_handler *handler, void *user,
                 struct qr_err *err);
void qr_http_run(struct qr_http *h);   /* until qr_http_stop */
void qr_http_stop(struct qr_http *h);  /* loop thread */
void qr_http_close(struct qr_http *h); /* closes connections (`gone` for unanswered ones), waits for jobs, frees; NULL is fine */

int32_t qr_http_port(const struct qr_http *h); /* 0: a Unix socket */
const char *qr_http_address(const struct qr_http *h); /* "127.0.0.1:8000", "[::1]:8000"; the path of a Unix socket */
const char *qr_http_reachable(const struct qr_http *h); /* the same, or where that is all addresses one of them that others can use */
bool qr_http_is_loopback(const struct qr_http *h);
struct qr_conn_env *qr_http_env(struct qr_http *h);

void qr_http_wake(struct qr_http *h); /* any thread, until close */

/* After qr_http_stop: turns the loop until no job is on the pool. */
void qr_http_finish_jobs(struct qr_http *h);

/* Work for the pool. new: any thread; NULL only where memory is missing for a request (base/account.h). One turn at a time. */
struct qr_http_job;
struct qr_http_job *qr_http_job_new(struct qr_http *h);
void qr_http_job_free(struct qr_http_job *job); /* NULL is fine; not during a turn */

/* run(arg) on a pool thread, then done(arg), which may free the job, on the loop thread. */
void qr_http_work(struct qr_http_job *job, void (*run)(void *arg), void (*done)(void *arg), void *arg);

#endif
