/* http_client.c - HTTP requests to one server (http_client.h). Requests meet connections here; what a connection does
 * is in http_conn.c. */
#include "client/http_client.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "client/http_conn.h"

const struct qr_http_limits qr_http_limits_default = {
    .connect_timeout_us = 10 * 1000000,
    .idle_timeout_us = 600 * (int64_t)1000000,
};

static int look_up(struct qr_http_client *c, struct qr_err *err)
{
    char port[8];
    snprintf(port, sizeof port, "%d", c->url.port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found = NULL;
    int rc = getaddrinfo(c->url.host, port, &hints, &found);
    if (rc != 0)
        return qr_err_set(err, QR_E_BIND, "cannot find host '%s': %s. Check the name in --url", c->url.host, gai_strerror(rc));
    for (struct addrinfo *a = found; a != NULL && c->n_addr < QR_HTTP_ADDR_MAX; a = a->ai_next) {
        if (a->ai_family != AF_INET && a->ai_family != AF_INET6)
            continue;
        QR_ASSERT(a->ai_addrlen <= sizeof c->addr[0]);
        memcpy(&c->addr[c->n_addr++], a->ai_addr, a->ai_addrlen);
    }
    freeaddrinfo(found);
    if (c->n_addr == 0)
        return qr_err_set(err, QR_E_BIND, "host '%s' has no IPv4 or IPv6 address. Check the name in --url", c->url.host);
    return 0;
}

int qr_http_client_new(struct qr_http_client **out, struct qr_loop *loop, const struct qr_http_url *url,
                       const struct qr_http_limits *limits, struct qr_err *err)
{
    QR_ASSERT(loop != NULL);
    QR_ASSERT(url != NULL && limits != NULL);
    struct qr_http_client *c = qr_alloc(1, sizeof *c);
    c->loop = loop;
    c->uv = qr_loop_uv(loop);
    c->url = *url;
    c->limits = *limits;
    qr_list_init(&c->conns);
    qr_list_init(&c->idle);
    bool v6 = strchr(url->host, ':') != NULL;
    snprintf(c->name, sizeof c->name, v6 ? "http://[%s]:%d" : "http://%s:%d", url->host, url->port);
    int rc = look_up(c, err);
    if (rc != 0) {
        qr_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

const char *qr_http_client_name(const struct qr_http_client *c)
{
    QR_ASSERT(c != NULL);
    return c->name;
}

static void close_all(struct qr_node *list)
{
    while (!qr_list_empty(list)) {
        struct qr_client_conn *conn = QR_CONTAINER(list->next, struct qr_client_conn, node);
        qr_free(conn->request);
        conn->request = NULL;
        qr_client_conn_close(conn);
    }
}

void qr_http_client_free(struct qr_http_client *c)
{
    if (c == NULL)
        return;
    QR_ASSERT(!c->freed);
    close_all(&c->conns);
    close_all(&c->idle);
    c->freed = true;
    if (c->n_conns == 0)
        qr_free(c); /* else the last connection's close callback frees it */
}

static void put_head(struct qr_buf *out, const struct qr_http_client *c, const struct qr_http_call *call)
{
    bool v6 = strchr(c->url.host, ':') != NULL;
    qr_buf_printf(out, "%s %s%s HTTP/1.1\r\n", call->method, call->no_prefix ? "" : c->url.prefix, call->path);
    qr_buf_printf(out, v6 ? "Host: [%s]:%d\r\n" : "Host: %s:%d\r\n", c->url.host, c->url.port);
    qr_buf_put_str(out, "User-Agent: quire/" QUIRE_VERSION "\r\nAccept: application/json, text/event-stream\r\n");
    if (call->api_key != NULL && call->api_key[0] != '\0')
        qr_buf_printf(out, "Authorization: Bearer %s\r\n", call->api_key);
    if (call->request_id != NULL)
        qr_buf_printf(out, "x-request-id: %s\r\n", call->request_id);
    if (call->body != NULL)
        qr_buf_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", call->n_body);
    qr_buf_put_str(out, "\r\n");
}

struct qr_http_request *qr_http_begin(struct qr_http_client *c, const struct qr_http_call *call)
{
    QR_ASSERT(c != NULL && !c->freed);
    QR_ASSERT(call->on_end != NULL);
    QR_ASSERT(call->method != NULL && call->path[0] == '/');
    struct qr_http_request *r = qr_alloc(1, sizeof *r);
    *r = (struct qr_http_request){.client = c, .on_head = call->on_head, .on_body = call->on_body,
                                  .on_end = call->on_end, .arg = call->arg};
    struct qr_node *node = qr_list_pop_front(&c->idle);
    struct qr_client_conn *conn = node != NULL ? QR_CONTAINER(node, struct qr_client_conn, node) : qr_client_conn_new(c, r);
    conn->reused = node != NULL;
    conn->request = r;
    r->conn = conn;
    qr_buf_clear(&conn->out);
    put_head(&conn->out, c, call);
    qr_buf_put(&conn->out, call->body, call->n_body);
    if (conn->reused) {
        qr_list_push_back(&c->conns, &conn->node);
        qr_client_conn_send(conn);
    } else
        qr_client_conn_connect(conn);
    return r;
}

int64_t qr_http_sent_ns(const struct qr_http_request *r)
{
    QR_ASSERT(r != NULL);
    return r->sent_ns;
}

int64_t qr_http_read_ns(const struct qr_http_client *c)
{
    QR_ASSERT(c != NULL);
    return c->read_ns;
}

void qr_http_cancel(struct qr_http_request *r)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(r->conn != NULL && r->conn->request == r);
    struct qr_client_conn *conn = r->conn;
    conn->request = NULL;
    qr_free(r);
    qr_client_conn_close(conn);
}
