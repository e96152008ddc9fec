/* http_conn.h - one client connection: reads requests one at a time, writes replies or streams, watches the clock. libuv stays in
 * http_conn.c and http_server.c. Everything here runs on the loop thread.
 *
 * A request is handed up once (`request`) and answered once: by qr_conn_reply, or by stream_begin, any number of stream_put, and
 * stream_end. If the client goes away before the answer is complete, `gone` is called once and the connection must not be
 * touched afterwards. Bytes put during one turn of the loop leave in one write at its end; a steady stream allocates nothing.
 *
 * What a connection reads and writes is held in its account. Where memory is missing the client hears 503 from here, or is cut off in the middle of an
 * answer, at the end of the turn; until then the connection takes bytes as ever.
 */
#ifndef QR_SERVER_HTTP_CONN_H
#define QR_SERVER_HTTP_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/account.h"
#include "base/buf.h"
#include "base/list.h"
#include "server/address.h"
#include "server/http_head.h"
#include "server/http_parser.h"

struct qr_conn; /* opaque */

#define QR_SSE_TYPE "text/event-stream; charset=utf-8" /* the type of stream that takes comment lines */

/* What became of one request, or of bytes that were none. */
struct qr_answered {
    const struct qr_http_head *head; /* borrowed; NULL: there is none that could be read */
    struct qr_address client;
    int32_t status;                  /* 0: the client left before there was one */
    const char *code;                /* borrowed, static: of the error that the answer is; NULL: it is none */
    int64_t bytes, begun_us;         /* put for its answer; when its first byte came */
    bool whole;                      /* false: the client left, or was given up, before the answer's end */
};

struct qr_conn_handler {
    void (*head)(void *user, struct qr_conn *c);    /* head complete, body not read: may reply at once */
    void (*request)(void *user, struct qr_conn *c); /* request complete */
    void (*bad)(void *user, struct qr_conn *c, int32_t status, const char *why); /* no valid request: must reply */
    void (*gone)(void *user, struct qr_conn *c);    /* the client left an unanswered request */
    /* The last that is heard of a request, once: its answer is complete, or before `gone`. qr_conn_call is what it was. */
    void (*answered)(void *user, struct qr_conn *c, const struct qr_answered *a);
};

struct qr_conn_limits {
    struct qr_http_limits http;
    int64_t header_us, idle_us;           /* from the first byte of a head to its end; without any byte */
    int64_t body_grace_us, body_rate;     /* bytes per second that a body must keep after the grace time */
    int64_t stall_us;                     /* a reader that takes nothing for so long has gone */
    int64_t ping_us;                      /* a silent stream gets a comment line after so long */
    size_t backlog_soft, backlog_hard;    /* bytes waiting for a slow reader: soft may last stall_us, hard ends it */
};

#define QR_CONN_ROUTES_MAX 128

struct qr_conn_stats {
    int64_t n_accepted, n_refused, n_slow, n_timeouts, bytes_in, bytes_out;
    int64_t n_replies[6];                 /* by hundreds of the status; streams count when they begin */
    struct {
        int64_t n_replies[6], us;         /* us: from the head to the last byte that was put */
    } route[QR_CONN_ROUTES_MAX];          /* by number (qr_conn_set_route); 0: what has no route */
};

/* What all connections of one server share. */
struct qr_conn_env {
    struct qr_conn_limits limits;
    const struct qr_conn_handler *handler; /* borrowed */
    void *user;                            /* borrowed: passed to the handler */
    struct qr_node conns, dirty;           /* every connection; those with bytes to write */
    int32_t n_conns, n_refused_open;       /* all; those of them that were refused as there were too many */
    const struct qr_networks *trusted;     /* borrowed: of proxies whose word about a client is taken */
    struct qr_budget *budget;              /* borrowed: of requests, bodies that arrive and replies that leave among them */
    struct qr_tls *tls;                    /* borrowed; NULL: connections are plain */
    bool closing;                          /* draining: every reply ends its connection */
    struct qr_conn_stats stats;
    struct qr_http_date date;
    char last_words[384];                  /* the answer to a request for which there is no memory: a whole one */
    char read_buf[65536];                  /* one read at a time: libuv fills it and hands it over at once */
};
void qr_conn_env_init(struct qr_conn_env *env, const struct qr_conn_limits *limits, struct qr_budget *budget, const struct qr_conn_handler *handler,
                      void *user);

/* Takes the next waiting connection from `listener` (a uv_stream_t *). full: it is refused with 503, and open until its
 * client has read that, or two seconds. False: there is no memory for it, and it still waits. */
bool qr_conn_accept(struct qr_conn_env *env, void *listener, int32_t per_address_max, bool full);

/* Closes the connection that has been idle between requests for longest: no byte has come, and its first request has had a second. False: there is none. */
bool qr_conn_evict_idle(struct qr_conn_env *env);

void qr_conn_flush_all(struct qr_conn_env *env);              /* at the end of a loop turn */
void qr_conn_tick_all(struct qr_conn_env *env, int64_t now_us); /* time limits and pings; every 100 ms or so */

/* Draining: closes those without a request. One that has never had any stays for fresh_us after it came, as its first
 * request may be in flight. */
void qr_conn_close_idle(struct qr_conn_env *env, int64_t fresh_us);

void qr_conn_close_all(struct qr_conn_env *env);              /* at the very end: `gone` is called for unanswered requests */

const struct qr_http_head *qr_conn_head(const struct qr_conn *c);

/* Where the request comes from: the other end, or what a trusted proxy there says. */
const struct qr_address *qr_conn_client(const struct qr_conn *c);

/* During `head`: of all connections, those whose requests come from the same client. 0: they are not counted, it is of this machine, or a trusted proxy. */
int32_t qr_conn_count_client(const struct qr_conn *c);
/* During `head`: for env->stats, 1 and up. */
void qr_conn_set_route(struct qr_conn *c, int32_t route);

/* During `head`: room for a body of n_bytes is kept in the budget. False: beside others there is none. */
bool qr_conn_keep_room(struct qr_conn *c, int64_t n_bytes);

/* During `request`: its body becomes the caller's, charged to that account. */
void qr_conn_take_body(struct qr_conn *c, struct qr_buf *out, struct qr_account *to);
struct qr_span qr_conn_body(const struct qr_conn *c); /* during `request`: its body, of which nothing was taken */
void qr_conn_set_call(struct qr_conn *c, void *call); /* the handler's own pointer; NULL again for every request */
void *qr_conn_call(const struct qr_conn *c); /* until `answered` has returned */
const char *qr_conn_request_id(struct qr_conn *c); /* the client's when it is a plain name, else made here; for this request */
void qr_conn_set_cors(struct qr_conn *c, const char *origin); /* allowed origin of this request; copied; NULL: none */

struct qr_reply {
    int32_t status;
    const char *content_type; /* NULL: no body */
    const char *code;         /* borrowed, static: of the error that it is, for `answered`; or NULL */
    const char *extra;        /* whole header lines, each with CR LF; or NULL */
    const char *body;
    size_t len;
    struct qr_buf *taken;     /* instead of body, or NULL: its memory, of the thread's account, is taken over; it is empty afterwards */
};
void qr_conn_reply(struct qr_conn *c, const struct qr_reply *reply);

/* Memory for what the request asks was missing: as if it had been the connection's. */
void qr_conn_out_of_memory(struct qr_conn *c);

void qr_conn_stream_begin(struct qr_conn *c, const char *content_type, const char *extra); /* extra: as a reply's */
void qr_conn_stream_put(struct qr_conn *c, const char *bytes, size_t n); /* n > 0 */
void qr_conn_stream_end(struct qr_conn *c, bool close);
bool qr_conn_streaming(const struct qr_conn *c);
bool qr_conn_behind(const struct qr_conn *c); /* bytes that were put in an earlier turn wait for its reader */

#endif
