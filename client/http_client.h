/* http_client.h - HTTP/1.1 requests to one server over plain TCP: keep-alive connections, streamed bodies, exact time stamps.
 *
 * Guarantee: every request that was begun ends in exactly one on_end, unless it is cancelled, after which nothing is called.
 * A request that meets a kept connection which the server has meanwhile closed (no byte of an answer came) is sent once more on a
 * fresh one. Redirects are not followed. Nothing of libuv or llhttp may leak through this header. Owned by the loop's thread.
 */
#ifndef QR_CLIENT_HTTP_CLIENT_H
#define QR_CLIENT_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "client/loop.h"

struct qr_http_url {
    char host[256];   /* a name, an IPv4 address, or an IPv6 address without its brackets */
    int32_t port;
    char prefix[256]; /* path in front of every request's path, without a slash at its end; "/v1" when the URL had none */
};

/* Reads "http://host[:port][/prefix]"; "host:port" alone is taken as http. QR_E_USAGE for anything else; https is refused by
 * name, because this client speaks plain HTTP only. */
int qr_http_url_parse(struct qr_http_url *u, const char *text, struct qr_err *err);

/* value, or where it was not given the environment's, if that has a variable of this name that is not empty. */
const char *qr_http_from_env(const char *value, bool given, const char *variable);

/* A key goes into a request head. QR_E_USAGE when it has characters that no header may have (a line end above all). */
int qr_http_key_check(const char *key, struct qr_err *err);

struct qr_http_client; /* one server: its addresses and its idle connections */
struct qr_http_request;

struct qr_http_limits {
    int64_t connect_timeout_us; /* per address */
    int64_t idle_timeout_us;    /* longest time without a byte from the server while a request runs; 0: no limit */
};
extern const struct qr_http_limits qr_http_limits_default; /* 10 s, 10 min */

/* Looks the host's addresses up (blocking). QR_E_BIND when it has none. */
int qr_http_client_new(struct qr_http_client **out, struct qr_loop *loop, const struct qr_http_url *url,
                       const struct qr_http_limits *limits, struct qr_err *err);

/* Cancels what runs and closes all connections. Its memory goes in qr_loop_free at the latest. */
void qr_http_client_free(struct qr_http_client *c);

struct qr_http_head {
    int32_t status;
    int64_t retry_after_us; /* from Retry-After (seconds) or retry-after-ms; -1 when the server said nothing */
    bool retry_refused;     /* x-should-retry: false */
    bool event_stream;      /* Content-Type: text/event-stream */
};

enum qr_http_outcome {
    QR_HTTP_DONE,       /* a whole answer came; its status is in the head */
    QR_HTTP_NO_CONNECT, /* no connection could be made */
    QR_HTTP_CUT,        /* the connection ended before the answer did */
    QR_HTTP_TIMEOUT,    /* idle_timeout_us passed */
    QR_HTTP_MALFORMED,  /* what came is no HTTP/1.1 answer, or its head is too large */
};

struct qr_http_end {
    enum qr_http_outcome outcome;
    int64_t sent_ns;    /* when the request's bytes were handed to the kernel; 0 when they never were */
    const char *detail; /* borrowed for the call: "connection refused"; "" for QR_HTTP_DONE */
};

struct qr_http_call {
    const char *method;     /* "GET", "POST" */
    const char *path;       /* behind the client's prefix: "/models" */
    const char *api_key;    /* NULL or "": no Authorization header */
    const char *request_id; /* NULL: no x-request-id header */
    const char *body;       /* JSON; NULL with n_body 0: no body */
    size_t n_body;
    bool no_prefix;         /* path is absolute */
    void (*on_head)(void *arg, const struct qr_http_head *head);       /* may be NULL */
    void (*on_body)(void *arg, const char *bytes, size_t n);           /* may be NULL */
    void (*on_end)(void *arg, const struct qr_http_end *end);
    void *arg;              /* borrowed from the caller */
};

/* Starts a request; everything in `call` but arg is copied. Callbacks come later, from the loop; they may begin other requests and
 * cancel any. The request is gone when on_end is called. */
struct qr_http_request *qr_http_begin(struct qr_http_client *c, const struct qr_http_call *call);

/* Closes the request's connection. No callback follows and the pointer is dead. */
void qr_http_cancel(struct qr_http_request *r);

/* When the request's bytes were handed to the kernel; 0: not yet. */
int64_t qr_http_sent_ns(const struct qr_http_request *r);

/* For on_body: when the bytes came that it belongs to. All bytes of one read share it, however many calls they make. */
int64_t qr_http_read_ns(const struct qr_http_client *c);

/* "http://host:port", for messages. */
const char *qr_http_client_name(const struct qr_http_client *c);

#endif
