/* http_conn_parts.h - a connection as http_conn.c and http_time.c see it; libuv's types are in here, and no other file includes it. Loop thread. */
#ifndef QR_SERVER_HTTP_CONN_PARTS_H
#define QR_SERVER_HTTP_CONN_PARTS_H

#include <uv.h>

#include "server/http_conn.h"
#include "server/http_peer.h"
#include "server/tls.h"

#define QR_CONN_KEEP_BYTES 16384 /* buffers larger than this are not kept for the next request */

enum phase {
    PHASE_READ,   /* between requests, or reading one */
    PHASE_WORK,   /* a request is with the handler */
    PHASE_STREAM, /* the handler writes a stream */
    PHASE_FLUSH,  /* the answer is complete, bytes are being written */
    PHASE_LINGER, /* answered and shut down; what still comes is dropped */
    PHASE_CLOSED, /* waiting for libuv's close callback */
};

struct qr_conn {
    union { /* which of them, the listener says */
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    };
    uv_write_t write;
    uv_shutdown_t shutdown;
    struct qr_node link, dirty;        /* env->conns, env->dirty */
    struct qr_conn_env *env;           /* borrowed */
    struct qr_account account;         /* of all that is owned here */
    struct qr_http_parser *parser;     /* owned */
    struct qr_buf in, out, writing;    /* owned; `writing` belongs to libuv while write_busy */
    struct qr_buf tail;                /* owned: goes out behind `out` */
    struct qr_tls_conn *tls;           /* owned; NULL: there is none, */
    struct qr_buf wire;                /* owned: otherwise this goes out, with `out` in it */
    size_t write_left;                 /* libuv's queue at the last tick */
    size_t put_max;                    /* the largest piece of the stream: an echoed prompt may be larger than what is left to slow readers */
    enum phase phase;
    bool write_busy, close_after, linger_after, chunked, no_body, trimmed, read_stopped, overflow, pings;
    bool heard;                        /* TLS has begun */
    bool asked;                        /* it has had an answer */
    bool refused;                      /* of env->n_refused_open */
    bool sent;                         /* of this answer */
    bool answered_early;               /* in `head`: the parser's DONE is not a request any more */
    struct qr_address peer, client;    /* the other end's; whose request it is, while there is one */
    int32_t status;                    /* of this answer; 0: it has not begun */
    const char *code;                  /* borrowed, static: of the error that the answer is, or NULL */
    int64_t answer_bytes;              /* put for it */
    int32_t route;                     /* of this request; 0: none */
    void *call;                        /* borrowed: the handler's */
    int64_t since_us;                  /* phase READ: of the last byte or reply; LINGER: its start */
    int64_t head_us, body_us;          /* first byte of the head; start of the body; 0: not yet */
    int64_t written_us, progress_us;   /* the last put; the last time the peer took bytes (or nothing waited) */
    char request_id[QR_REQUEST_ID_MAX + 1];
    char cors[256];
};

/* Closes at once; calls `gone` where an answer is owed. */
void qr_conn_close_now(struct qr_conn *c);

/* Refuses what has arrived, of which there may be no head: then nothing of the request before it is said. */
void qr_conn_answer_bad(struct qr_conn *c, int32_t status, const char *why);

/* Between requests, and no byte of the next one has come. */
bool qr_conn_is_idle(const struct qr_conn *c);

#endif
