/* http_conn.c - one connection: connect, write a request, parse its answer, go idle or close.
 *
 * Callbacks of the user run inside llhttp_execute (head, body) or after it (end), and may cancel their own request, which closes the
 * connection: `closing` is checked after every such call. Memory goes when both handles are closed.
 */
#include "client/http_conn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf);

/* ---- life ---- */

static const llhttp_settings_t settings;

struct qr_client_conn *qr_client_conn_new(struct qr_http_client *client, struct qr_http_request *r)
{
    QR_ASSERT(client != NULL);
    QR_ASSERT(r != NULL);
    struct qr_client_conn *c = qr_alloc(1, sizeof *c);
    c->client = client;
    c->request = r;
    client->n_conns++;
    c->n_handles = 2;
    int rc = uv_tcp_init(client->uv, &c->tcp);
    QR_ASSERT(rc == 0); /* makes no socket yet */
    rc = uv_timer_init(client->uv, &c->timer);
    QR_ASSERT(rc == 0);
    c->tcp.data = c->timer.data = c->connect.data = c->write.data = c;
    qr_list_push_back(&client->conns, &c->node);
    return c;
}

static void handle_closed(uv_handle_t *h)
{
    struct qr_client_conn *c = h->data;
    if (--c->n_handles > 0)
        return;
    struct qr_http_client *client = c->client;
    qr_buf_release(&c->out);
    qr_buf_release(&c->field);
    qr_buf_release(&c->value);
    qr_free(c);
    if (--client->n_conns == 0 && client->freed)
        qr_free(client);
}

void qr_client_conn_close(struct qr_client_conn *c)
{
    QR_ASSERT(c != NULL && !c->closing);
    QR_ASSERT(c->request == NULL);
    c->closing = true;
    qr_list_remove(&c->node);
    uv_close((uv_handle_t *)&c->tcp, handle_closed);
    uv_close((uv_handle_t *)&c->timer, handle_closed);
}

/* The request's end. The connection goes back to the idle ones when `keep`, otherwise it closes; then the user is told. */
static void finish(struct qr_client_conn *c, enum qr_http_outcome outcome, const char *detail, bool keep)
{
    struct qr_http_request *r = c->request;
    QR_ASSERT(r != NULL && !c->closing);
    c->request = NULL;
    if (keep) {
        uv_timer_stop(&c->timer);
        qr_list_remove(&c->node);
        qr_list_push_front(&c->client->idle, &c->node);
    } else
        qr_client_conn_close(c);
    struct qr_http_end end = {.outcome = outcome, .sent_ns = r->sent_ns, .detail = detail};
    void (*on_end)(void *, const struct qr_http_end *) = r->on_end;
    void *arg = r->arg;
    qr_free(r);
    on_end(arg, &end);
}

/* ---- connecting ---- */

static void on_connected(uv_connect_t *req, int status);

/* The request goes on with a fresh connection, and the same bytes: the kept one was dead, or its address does not
 * answer (libuv's handle is spent after a failed attempt). */
static void start_afresh(struct qr_client_conn *c)
{
    struct qr_http_request *r = c->request;
    struct qr_client_conn *fresh = qr_client_conn_new(c->client, r);
    fresh->addr_tried = c->connected ? 0 : c->addr_tried;
    r->sent_again |= c->connected;
    r->conn = fresh;
    qr_buf_put(&fresh->out, c->out.data, c->out.len);
    c->request = NULL;
    qr_client_conn_close(c);
    qr_client_conn_connect(fresh);
}

static void lost(struct qr_client_conn *c, enum qr_http_outcome outcome, const char *detail)
{
    if (c->request == NULL)
        qr_client_conn_close(c);
    else if (c->reused && !c->got_byte && !c->request->sent_again && outcome == QR_HTTP_CUT)
        start_afresh(c);
    else
        finish(c, outcome, detail, false);
}

static void connect_failed(struct qr_client_conn *c, const char *why)
{
    if (c->addr_tried < c->client->n_addr)
        start_afresh(c);
    else
        finish(c, QR_HTTP_NO_CONNECT, why, false);
}

static void on_connect_timeout(uv_timer_t *t)
{
    struct qr_client_conn *c = t->data;
    connect_failed(c, c->immediate_error != 0 ? uv_strerror(c->immediate_error) : "no answer to the connection attempt in time");
}

void qr_client_conn_connect(struct qr_client_conn *c)
{
    QR_ASSERT(c != NULL && !c->closing);
    QR_ASSERT(c->addr_tried < c->client->n_addr);
    const struct qr_http_client *client = c->client;
    int32_t i = (client->addr_first + c->addr_tried++) % client->n_addr;
    uv_timer_start(&c->timer, on_connect_timeout, (uint64_t)(client->limits.connect_timeout_us / 1000 + 1), 0);
    int rc = uv_tcp_connect(&c->connect, &c->tcp, (const struct sockaddr *)&client->addr[i], on_connected);
    if (rc == 0)
        return;
    c->immediate_error = rc; /* told from the loop, never from inside qr_http_begin */
    uv_timer_start(&c->timer, on_connect_timeout, 0, 0);
}

static void on_connected(uv_connect_t *req, int status)
{
    struct qr_client_conn *c = req->data;
    if (c->closing)
        return;
    if (status != 0) {
        connect_failed(c, uv_strerror(status));
        return;
    }
    c->client->addr_first = (c->client->addr_first + c->addr_tried - 1) % c->client->n_addr;
    c->connected = true;
    uv_tcp_nodelay(&c->tcp, 1);
    llhttp_init(&c->parser, HTTP_RESPONSE, &settings);
    c->parser.data = c;
    qr_client_conn_send(c);
}

/* ---- sending ---- */

static void on_idle_timeout(uv_timer_t *t)
{
    struct qr_client_conn *c = t->data;
    lost(c, QR_HTTP_TIMEOUT, "the server sent nothing for too long");
}

static void watch_idle(struct qr_client_conn *c)
{
    int64_t us = c->client->limits.idle_timeout_us;
    if (us > 0)
        uv_timer_start(&c->timer, on_idle_timeout, (uint64_t)(us / 1000 + 1), 0);
    else
        uv_timer_stop(&c->timer);
}

static void on_written(uv_write_t *req, int status)
{
    struct qr_client_conn *c = req->data;
    c->writing = false; /* a failed write is followed by a failed read, which tells */
}

static void give_input(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct qr_client_conn *c = h->data;
    *buf = uv_buf_init(c->client->input, sizeof c->client->input);
}

void qr_client_conn_send(struct qr_client_conn *c)
{
    QR_ASSERT(c != NULL && c->connected);
    QR_ASSERT(c->request != NULL && !c->writing);
    c->got_byte = c->complete = false;
    c->head = (struct qr_http_head){.retry_after_us = -1};
    c->n_head = 0;
    c->in_head = true;
    uv_buf_t out = uv_buf_init(c->out.data, (unsigned)c->out.len);
    c->request->sent_ns = qr_clock_ns();
    watch_idle(c);
    if (uv_write(&c->write, (uv_stream_t *)&c->tcp, &out, 1, on_written) == 0)
        c->writing = true;
    if (!c->reading)
        uv_read_start((uv_stream_t *)&c->tcp, give_input, on_read);
    c->reading = true;
}

/* ---- the answer ---- */

static int head_too_large(struct qr_client_conn *c, size_t n)
{
    c->n_head += n;
    return c->n_head > QR_HTTP_HEAD_MAX ? -1 : 0;
}

static int on_header_field(llhttp_t *p, const char *s, size_t n)
{
    struct qr_client_conn *c = p->data;
    qr_buf_put(&c->field, s, n);
    return head_too_large(c, n);
}

static int on_header_value(llhttp_t *p, const char *s, size_t n)
{
    struct qr_client_conn *c = p->data;
    qr_buf_put(&c->value, s, n);
    return head_too_large(c, n);
}

static int64_t decimal_us(const char *s, double unit_us)
{
    char *end;
    double v = strtod(s, &end);
    return end == s || !(v >= 0) || v > 86400 ? -1 : (int64_t)(v * unit_us);
}

static int on_header_done(llhttp_t *p)
{
    struct qr_client_conn *c = p->data;
    const char *name = c->field.len != 0 ? c->field.data : "", *value = c->value.len != 0 ? c->value.data : "";
    if (strcasecmp(name, "retry-after-ms") == 0)
        c->head.retry_after_us = decimal_us(value, 1e3);
    else if (strcasecmp(name, "retry-after") == 0 && c->head.retry_after_us < 0)
        c->head.retry_after_us = decimal_us(value, 1e6);
    else if (strcasecmp(name, "x-should-retry") == 0)
        c->head.retry_refused = strcasecmp(value, "false") == 0;
    else if (strcasecmp(name, "content-type") == 0)
        c->head.event_stream = strncasecmp(value, "text/event-stream", 17) == 0;
    qr_buf_clear(&c->field);
    qr_buf_clear(&c->value);
    return 0;
}

static int on_headers_complete(llhttp_t *p)
{
    struct qr_client_conn *c = p->data;
    QR_ASSERT(!c->complete && c->request != NULL); /* the parser pauses behind each answer */
    c->in_head = false;
    c->head.status = p->status_code;
    if (c->head.status < 200)
        return c->head.status == 101 ? -1 : 0;
    if (c->request->on_head != NULL)
        c->request->on_head(c->request->arg, &c->head);
    return c->closing ? -1 : 0;
}

static int on_body(llhttp_t *p, const char *s, size_t n)
{
    struct qr_client_conn *c = p->data;
    if (c->request->on_body != NULL)
        c->request->on_body(c->request->arg, s, n);
    return c->closing ? -1 : 0;
}

static int on_message_complete(llhttp_t *p)
{
    struct qr_client_conn *c = p->data;
    if (c->head.status < 200) { /* 100 Continue and the like: the answer proper follows */
        c->head = (struct qr_http_head){.retry_after_us = -1};
        c->in_head = true;
        return 0;
    }
    c->complete = true;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_header_value_complete = on_header_done,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

static void take_input(struct qr_client_conn *c, const char *bytes, size_t n)
{
    if (c->request == NULL) { /* some servers say 408 to an idle connection before they close it */
        qr_client_conn_close(c);
        return;
    }
    c->got_byte = true;
    c->client->read_ns = qr_clock_ns();
    watch_idle(c);
    llhttp_errno_t rc = llhttp_execute(&c->parser, bytes, n);
    if (c->closing)
        return;
    if (c->complete) {
        bool all_used = rc == HPE_PAUSED && llhttp_get_error_pos(&c->parser) == bytes + n;
        bool keep = all_used && llhttp_should_keep_alive(&c->parser) && !c->writing;
        if (keep) {
            llhttp_init(&c->parser, HTTP_RESPONSE, &settings);
            c->parser.data = c;
        }
        finish(c, QR_HTTP_DONE, "", keep);
    } else if (rc != HPE_OK)
        lost(c, QR_HTTP_MALFORMED, c->n_head > QR_HTTP_HEAD_MAX ? "the answer's head is larger than 64 KiB"
                                                                : llhttp_get_error_reason(&c->parser));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct qr_client_conn *c = stream->data;
    if (n == 0 || c->closing)
        return;
    if (n > 0) {
        take_input(c, buf->base, (size_t)n);
        return;
    }
    if (c->request != NULL && n == UV_EOF && c->got_byte)
        llhttp_finish(&c->parser);
    if (c->request != NULL && c->complete)
        finish(c, QR_HTTP_DONE, "", false); /* the body went on to the end of the connection */
    else
        lost(c, QR_HTTP_CUT, n == UV_EOF ? "the server closed the connection" : uv_strerror((int)n));
}
