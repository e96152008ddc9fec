/* http_conn.h - what http_client.c and http_conn.c share; for these two files only (it names libuv and llhttp). */
#ifndef QR_CLIENT_HTTP_CONN_H
#define QR_CLIENT_HTTP_CONN_H

#include <llhttp.h>
#include <uv.h>

#include "base/buf.h"
#include "base/list.h"
#include "client/http_client.h"

#define QR_HTTP_ADDR_MAX 8
#define QR_HTTP_HEAD_MAX (64 * 1024)

struct qr_http_client {
    struct qr_loop *loop; /* borrowed */
    uv_loop_t *uv;        /* borrowed from loop */
    struct qr_http_limits limits;
    struct qr_http_url url;
    char name[300];
    struct sockaddr_storage addr[QR_HTTP_ADDR_MAX];
    int32_t n_addr, addr_first; /* addr_first: the one that last took a connection */
    struct qr_node conns, idle; /* every open connection is on one of them */
    int32_t n_conns;            /* opened and not yet closed, closing ones included */
    int64_t read_ns;            /* of the bytes in `input` */
    bool freed;
    char input[64 * 1024];      /* every connection reads into this one: it is consumed before the callback returns */
};

struct qr_http_request {
    struct qr_http_client *client; /* borrowed */
    struct qr_client_conn *conn;          /* borrowed; never NULL while the request lives */
    void (*on_head)(void *arg, const struct qr_http_head *head);
    void (*on_body)(void *arg, const char *bytes, size_t n);
    void (*on_end)(void *arg, const struct qr_http_end *end);
    void *arg; /* borrowed from the caller */
    int64_t sent_ns;
    bool sent_again;
};

struct qr_client_conn {
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_connect_t connect;
    uv_write_t write;
    llhttp_t parser;
    struct qr_node node;
    struct qr_http_client *client;   /* borrowed */
    struct qr_http_request *request; /* owned; NULL while idle or closing */
    struct qr_buf out;               /* owned: the request's bytes, until the connection's next request */
    struct qr_buf field, value;      /* owned: the header line being parsed */
    struct qr_http_head head;
    size_t n_head;
    int32_t addr_tried;              /* addresses tried so far */
    int32_t n_handles;               /* of tcp and timer, still open */
    int32_t immediate_error;         /* libuv's code of a connect that failed on the spot */
    bool writing, reading, connected, closing, got_byte, in_head, complete, reused;
};

/* A new connection that will carry r; c->out must be filled by the caller before qr_client_conn_connect. */
struct qr_client_conn *qr_client_conn_new(struct qr_http_client *client, struct qr_http_request *r);
void qr_client_conn_connect(struct qr_client_conn *c);

/* Sends c->out for c->request on a connected connection. */
void qr_client_conn_send(struct qr_client_conn *c);

/* Takes the connection off its list and closes it; its request must be gone. */
void qr_client_conn_close(struct qr_client_conn *c);

#endif
