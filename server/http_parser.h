/* http_parser.h - bytes of one connection to HTTP requests: the header gate, then llhttp for the head; bodies by length or in chunks
 * (chunks.h). No sockets and no clock, so that tests and the fuzzer drive it directly. llhttp stays in http_parser.c. One owning thread.
 */
#ifndef QR_SERVER_HTTP_PARSER_H
#define QR_SERVER_HTTP_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "server/gate.h"

struct qr_http_limits {
    struct qr_gate_limits head;
    size_t body_bytes_max;
};

struct qr_span {
    const char *data; /* borrowed; not terminated */
    size_t len;
};
bool qr_span_is(struct qr_span s, const char *text);      /* exact */
bool qr_span_is_nocase(struct qr_span s, const char *text);

/* The last fields in which proxies say whose request it is, in the order in which they came (address.h). */
#define QR_HTTP_FORWARDED_MAX 4
struct qr_http_forwarded {
    struct qr_span x_forwarded_for[QR_HTTP_FORWARDED_MAX], forwarded[QR_HTTP_FORWARDED_MAX];
    int32_t n_for, n_forwarded;
};

/* A request's head. The spans point into the parser and live until the next request's head is read. */
struct qr_http_head {
    struct qr_span method, path, query; /* path: before '?', query: behind it, as sent; its data is NULL where there is none */
    bool http10, keep_alive, expect_continue, expect_other, chunked;
    int64_t content_length;             /* 0 when there is no body, -1 when chunked */
    /* the fields that the server reads; data NULL when absent */
    struct qr_span host, authorization, api_key, content_type, content_encoding, request_id, origin, accept, if_none_match, kv_source;
    struct qr_http_forwarded said;
};

enum qr_http_step {
    QR_HTTP_MORE, /* everything given was used (or kept); more bytes are needed */
    QR_HTTP_HEAD, /* the head is complete: look at `head`, then feed again */
    QR_HTTP_DONE, /* the body is complete in `body`; the next feed begins a new request */
    QR_HTTP_BAD,  /* answer `status` with `why` and close; never feed again */
};

struct qr_http_parser; /* opaque */

struct qr_http_parser *qr_http_parser_new(const struct qr_http_limits *limits); /* limits: copied */
void qr_http_parser_free(struct qr_http_parser *p);

/* Uses bytes from the front of `in` (and removes them). */
enum qr_http_step qr_http_parser_feed(struct qr_http_parser *p, struct qr_buf *in);

const struct qr_http_head *qr_http_parser_head(const struct qr_http_parser *p);
struct qr_buf *qr_http_parser_body(struct qr_http_parser *p); /* valid from DONE to the next feed; may be taken */
int32_t qr_http_parser_status(const struct qr_http_parser *p);
const char *qr_http_parser_why(const struct qr_http_parser *p);
bool qr_http_parser_idle(const struct qr_http_parser *p);     /* between requests, no byte of the next one read */
size_t qr_http_parser_body_len(const struct qr_http_parser *p);

/* Gives memory back while the connection is idle. */
void qr_http_parser_trim(struct qr_http_parser *p);

#endif
