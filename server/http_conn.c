/* http_conn.c - one client connection: read, hand a request up, write its answer, go idle or linger and close. Requests
 * are answered in order, one at a time. While an answer is in progress only a bounded run of further bytes is kept;
 * beyond it reading stops. Timeouts, errors and a client that leaves end in the same close path; `gone` is called at
 * most once. Memory is the connection's account. Loop thread. */
#include "server/http_conn.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "server/http_conn_parts.h"
#include "server/tls.h"

#define PIPELINE_BYTES_MAX (256 << 10) /* read ahead while a request is being answered */
#define FRESH_US 1000000               /* a client that has just connected is about to ask */

/* What a web page's script may read of an answer's head. */
#define EXPOSED                                                                                                      \
    "x-request-id, request-id, retry-after, x-error-id, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, " \
    "x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"

void qr_conn_env_init(struct qr_conn_env *env, const struct qr_conn_limits *limits, struct qr_budget *budget, const struct qr_conn_handler *handler,
                      void *user)
{
    QR_ASSERT(env != NULL && limits != NULL && budget != NULL);
    QR_ASSERT(handler != NULL && handler->request != NULL);
    memset(env, 0, sizeof *env);
    env->limits = *limits;
    env->budget = budget;
    env->handler = handler;
    env->user = user;
    qr_list_init(&env->conns);
    qr_list_init(&env->dirty);
    qr_http_last_words(env->last_words, sizeof env->last_words);
}

static void advance(struct qr_conn *c);
static void start_reading(struct qr_conn *c);

/* ---- the end ---- */

static void on_closed(uv_handle_t *handle)
{
    struct qr_conn *c = handle->data;
    qr_http_parser_free(c->parser);
    qr_buf_release(&c->in);
    qr_buf_release(&c->out);
    qr_buf_release(&c->writing);
    qr_buf_release(&c->tail);
    qr_buf_release(&c->wire);
    qr_tls_end(c->tls);
    qr_account_close(&c->account);
    qr_free(c);
}

static void tell_answered(struct qr_conn *c, bool whole)
{
    const struct qr_answered a = {.head = c->body_us ? qr_http_parser_head(c->parser) : NULL, .client = c->client, .whole = whole,
                                  .status = c->account.failure != QR_ACCOUNT_OK && !c->sent ? 503 : c->status, /* give_up */
                                  .code = c->code, .bytes = c->answer_bytes, .begun_us = c->head_us ? c->head_us : c->since_us};
    c->env->handler->answered(c->env->user, c, &a);
}

/* A peer of TLS hears that this is the end, where its socket takes more bytes. */
static void say_end(struct qr_conn *c)
{
    if (!c->tls || c->write_busy)
        return;
    qr_tls_shut(c->tls, &c->wire);
    uv_buf_t words = uv_buf_init(c->wire.data, (unsigned)c->wire.len);
    if (words.len > 0)
        uv_try_write(&c->stream, &words, 1);
    c->wire.len = 0;
}

void qr_conn_close_now(struct qr_conn *c)
{
    if (c->phase == PHASE_CLOSED)
        return;
    say_end(c);
    bool owed = c->phase == PHASE_WORK || c->phase == PHASE_STREAM;
    c->phase = PHASE_CLOSED;
    qr_list_remove(&c->link);
    qr_list_remove(&c->dirty);
    c->env->n_conns--;
    c->env->n_refused_open -= c->refused;
    if (owed) {
        tell_answered(c, false);
        c->env->handler->gone(c->env->user, c);
    }
    uv_close(&c->handle, on_closed);
}

/* The linger time ends the connection either way. */
static void on_shutdown(uv_shutdown_t *req, int status)
{
}

static void begin_linger(struct qr_conn *c)
{
    c->phase = PHASE_LINGER;
    c->since_us = qr_clock_us();
    qr_buf_release(&c->in);
    if (c->read_stopped) /* a client that sends to the end before it reads would wait, and then be reset */
        start_reading(c);
    say_end(c);
    if (uv_shutdown(&c->shutdown, &c->stream, on_shutdown) != 0)
        qr_conn_close_now(c);
}

/* ---- writing ---- */

static void mark_dirty(struct qr_conn *c)
{
    if (c->dirty.next == &c->dirty)
        qr_list_push_back(&c->env->dirty, &c->dirty);
}

/* Everything put so far has left: the next request, or the end. */
static void after_flush(struct qr_conn *c)
{
    c->progress_us = qr_clock_us();
    if (c->phase != PHASE_FLUSH)
        return;
    qr_account_keep(&c->account, 0, c->env->budget->max_bytes);
    if (c->linger_after) {
        begin_linger(c);
        return;
    }
    if (c->close_after) {
        qr_conn_close_now(c);
        return;
    }
    c->phase = PHASE_READ;
    c->asked = true;
    c->since_us = c->progress_us;
    c->head_us = c->body_us = 0;
    c->client = c->peer;
    c->trimmed = false;
    if (c->out.cap > QR_CONN_KEEP_BYTES)
        qr_buf_release(&c->out);
    if (c->wire.cap > QR_CONN_KEEP_BYTES)
        qr_buf_release(&c->wire);
    advance(c);
}

static void flush(struct qr_conn *c);

static void written(struct qr_conn *c, int status)
{
    c->write_busy = false;
    if (c->phase == PHASE_CLOSED)
        return;
    if (status != 0) {
        qr_conn_close_now(c);
        return;
    }
    c->writing.len = 0;
    if (c->writing.cap > QR_CONN_KEEP_BYTES)
        qr_buf_release(&c->writing);
    if (c->out.len > 0 || c->tail.len > 0 || c->wire.len > 0)
        flush(c);
    else
        after_flush(c);
}

static void on_written(uv_write_t *req, int status)
{
    struct qr_conn *c = req->data;
    struct qr_account *before = qr_account_enter(&c->account);
    written(c, status);
    qr_account_leave(before);
}

/* Memory for what it reads or writes is missing. An answer of which nothing has left becomes another one. */
static void give_up(struct qr_conn *c)
{
    const bool owed = c->phase == PHASE_WORK || c->phase == PHASE_STREAM;
    uv_buf_t words = uv_buf_init(c->env->last_words, (unsigned)strlen(c->env->last_words));
    if (c->sent || c->tls || c->phase == PHASE_LINGER || uv_try_write(&c->stream, &words, 1) != (int)words.len) {
        qr_conn_close_now(c);
        return;
    }
    c->env->stats.n_replies[5]++;
    c->phase = PHASE_FLUSH;
    if (owed) {
        tell_answered(c, true);
        c->env->handler->gone(c->env->user, c);
    }
    qr_buf_clear(&c->out);
    qr_buf_release(&c->tail);
    begin_linger(c);
}

/* Before the handshake is over there is only what that says. */
static bool seal(struct qr_conn *c)
{
    if (c->out.len == 0 || !qr_tls_ready(c->tls))
        return true;
    if (!qr_tls_write(c->tls, &c->wire, c->out.data, c->out.len))
        return false;
    c->out.len = 0;
    return true;
}

static void flush(struct qr_conn *c)
{
    struct qr_buf *from = c->tls ? &c->wire : &c->out;
    if (c->account.failure != QR_ACCOUNT_OK) {
        give_up(c);
        return;
    }
    if (c->overflow) {
        c->env->stats.n_slow++;
        qr_conn_close_now(c);
        return;
    }
    if (c->write_busy)
        return;
    if (c->out.len == 0 && c->tail.len > 0) {
        qr_buf_release(&c->out);
        c->out = c->tail;
        c->tail = (struct qr_buf){0};
    }
    if (c->tls && !seal(c)) {
        qr_conn_close_now(c);
        return;
    }
    if (from->len == 0)
        return;
    uv_buf_t buf = uv_buf_init(from->data, (unsigned)from->len);
    int n = uv_try_write(&c->stream, &buf, 1);
    if (n < 0 && n != UV_EAGAIN) {
        qr_conn_close_now(c);
        return;
    }
    size_t done = n > 0 ? (size_t)n : 0;
    c->sent = c->phase == PHASE_FLUSH || c->phase == PHASE_STREAM;
    c->env->stats.bytes_out += (int64_t)from->len;
    if (done == from->len) {
        from->len = 0;
        if (c->tail.len > 0)
            flush(c);
        else if (c->out.len == 0)
            after_flush(c);
        return;
    }
    struct qr_buf full = *from;
    *from = c->writing;
    from->len = 0;
    c->writing = full;
    buf = uv_buf_init(c->writing.data + done, (unsigned)(c->writing.len - done));
    c->write.data = c;
    c->write_busy = true;
    c->write_left = buf.len;
    c->progress_us = qr_clock_us();
    if (uv_write(&c->write, &c->stream, &buf, 1, on_written) != 0) {
        c->write_busy = false;
        qr_conn_close_now(c);
    }
}

void qr_conn_flush_all(struct qr_conn_env *env)
{
    QR_ASSERT(env != NULL);
    QR_ASSERT(env->dirty.next != NULL);
    struct qr_node *node;
    while ((node = qr_list_pop_front(&env->dirty)) != NULL) {
        struct qr_conn *c = QR_CONTAINER(node, struct qr_conn, dirty);
        struct qr_account *before = qr_account_enter(&c->account);
        flush(c);
        qr_account_leave(before);
    }
}

/* ---- reading ---- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct qr_conn *c = handle->data;
    *buf = uv_buf_init(c->env->read_buf, sizeof c->env->read_buf);
}

static void take_bytes(struct qr_conn *c, ssize_t n, const char *bytes)
{
    if (n < 0) { /* the end, or an error: a half-closed client counts as gone, as it does for nginx */
        if (c->phase != PHASE_FLUSH)
            qr_conn_close_now(c);
        else
            c->close_after = true;
        return;
    }
    c->env->stats.bytes_in += n;
    if (c->phase == PHASE_LINGER)
        return;
    qr_buf_put(&c->in, bytes, (size_t)n);
    if (c->phase == PHASE_READ) {
        c->since_us = qr_clock_us();
        advance(c);
    } else if (c->in.len > PIPELINE_BYTES_MAX) {
        uv_read_stop(&c->stream);
        c->read_stopped = true;
    }
}

/* Bytes of TLS. A client that speaks plain HTTP is answered in kind. */
static void take_wire(struct qr_conn *c, size_t n, const char *bytes)
{
    struct qr_buf plain = {0};
    mark_dirty(c);
    if (!c->heard && !qr_tls_begins(bytes[0])) {
        qr_tls_end(c->tls);
        c->tls = NULL;
        if (c->phase == PHASE_READ)
            qr_conn_answer_bad(c, 400, "This port speaks TLS: use https://.");
        return;
    }
    c->heard = true;
    const bool open = qr_tls_read(c->tls, &plain, &c->wire, bytes, n);
    if (plain.len > 0)
        take_bytes(c, (ssize_t)plain.len, plain.data);
    qr_buf_release(&plain);
    if (!open && c->phase != PHASE_CLOSED)
        take_bytes(c, UV_EOF, NULL);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct qr_conn *c = stream->data;
    if (c->phase == PHASE_CLOSED || n == 0)
        return;
    struct qr_account *before = qr_account_enter(&c->account);
    if (c->tls && n > 0)
        take_wire(c, (size_t)n, buf->base);
    else
        take_bytes(c, n, buf->base);
    qr_account_leave(before);
    if (c->account.failure != QR_ACCOUNT_OK && c->phase != PHASE_CLOSED)
        mark_dirty(c);
}

static void start_reading(struct qr_conn *c)
{
    c->read_stopped = false;
    uv_read_start(&c->stream, on_alloc, on_read);
}

static void begin_request(struct qr_conn *c)
{
    const struct qr_http_head *h = qr_http_parser_head(c->parser);
    c->close_after = !h->keep_alive || c->env->closing;
    c->linger_after = c->sent = false;
    c->no_body = qr_span_is(h->method, "HEAD");
    c->request_id[0] = 0;
    c->cors[0] = 0;
    c->call = NULL;
    c->status = 0;
    c->answer_bytes = 0;
    c->client = qr_client_address(&c->peer, &h->said, c->env->trusted);
    c->route = 0;
    c->body_us = qr_clock_us();
}

static void on_head(struct qr_conn *c)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    begin_request(c);
    c->env->handler->head(c->env->user, c);
    const struct qr_http_head *h = qr_http_parser_head(c->parser);
    if (c->phase == PHASE_READ && h->expect_continue && h->content_length != 0 && c->in.len == 0) {
        qr_buf_put(&c->out, go_on, sizeof go_on - 1);
        mark_dirty(c);
    }
}

/* Refuses what has arrived, of which there may be no head: then nothing of the request before it is said. */
void qr_conn_answer_bad(struct qr_conn *c, int32_t status, const char *why)
{
    if (c->body_us == 0) {
        c->route = 0;
        c->request_id[0] = 0;
        c->cors[0] = 0;
        c->no_body = false;
    }
    c->phase = PHASE_WORK;
    c->linger_after = true;
    c->env->handler->bad(c->env->user, c, status, why);
}

static void on_bad(struct qr_conn *c)
{
    qr_conn_answer_bad(c, qr_http_parser_status(c->parser), qr_http_parser_why(c->parser));
}

/* Takes requests out of `in` until one is with the handler, bytes run out, or memory does. */
static void advance(struct qr_conn *c)
{
    while (c->phase == PHASE_READ && c->account.failure == QR_ACCOUNT_OK) {
        if (c->in.len > 0 && c->head_us == 0)
            c->head_us = qr_clock_us();
        const enum qr_http_step step = qr_http_parser_feed(c->parser, &c->in);
        if (c->account.failure != QR_ACCOUNT_OK)
            return;
        if (c->in.len == 0 && c->in.cap > QR_CONN_KEEP_BYTES)
            qr_buf_release(&c->in);
        switch (step) {
        case QR_HTTP_MORE:
            if (c->read_stopped)
                start_reading(c);
            return;
        case QR_HTTP_HEAD: on_head(c); break;
        case QR_HTTP_DONE:
            if (c->answered_early) {
                c->answered_early = false;
                c->head_us = c->body_us = 0;
                break;
            }
            c->phase = PHASE_WORK;
            c->env->handler->request(c->env->user, c);
            break;
        case QR_HTTP_BAD: on_bad(c); break;
        }
    }
}

/* ---- accepting ---- */

int32_t qr_conn_count_client(const struct qr_conn *c)
{
    const struct qr_node *conns = &c->env->conns;
    int32_t n = 0;
    if (c->client.n_bytes == 0 || qr_address_is_loopback(&c->client) || qr_networks_have(c->env->trusted, &c->client))
        return 0;
    for (struct qr_node *at = conns->next; at != conns; at = at->next)
        n += qr_address_equal(&QR_CONTAINER(at, struct qr_conn, link)->client, &c->client);
    return n;
}

/* A connection and what it reads with; NULL: there is no memory for one. */
static struct qr_conn *conn_new(struct qr_conn_env *env)
{
    struct qr_account account;
    qr_account_init(&account, env->budget);
    struct qr_account *before = qr_account_enter(&account);
    struct qr_conn *c = qr_alloc(1, sizeof *c);
    struct qr_http_parser *parser = c ? qr_http_parser_new(&env->limits.http) : NULL;
    if (!parser)
        qr_free(c);
    qr_account_leave(before);
    if (!parser) {
        qr_account_close(&account);
        return NULL;
    }
    c->account = account;
    c->parser = parser;
    return c;
}

static bool begin_tls(struct qr_conn *c)
{
    struct qr_account *before = qr_account_enter(&c->account);
    c->tls = qr_tls_begin(c->env->tls);
    qr_account_leave(before);
    return c->tls != NULL;
}

/* *missing: there is no memory for it, it waits. NULL without: it has gone. */
static struct qr_conn *take(struct qr_conn_env *env, uv_stream_t *listener, bool *missing)
{
    struct qr_conn *c = conn_new(env);
    *missing = !c;
    if (!c)
        return NULL;
    c->env = env;
    c->handle.data = c;
    if (listener->type == UV_TCP)
        uv_tcp_init(listener->loop, &c->tcp);
    else
        uv_pipe_init(listener->loop, &c->pipe, 0);
    qr_list_init(&c->dirty);
    qr_list_push_back(&env->conns, &c->link);
    env->n_conns++;
    c->since_us = c->progress_us = qr_clock_us();
    if (uv_accept(listener, &c->stream) != 0) {
        qr_conn_close_now(c);
        return NULL;
    }
    c->peer = c->client = qr_peer_open(&c->stream);
    if (env->tls && !begin_tls(c)) {
        qr_conn_close_now(c);
        return NULL;
    }
    return c;
}

static void refuse(struct qr_conn *c)
{
    c->env->stats.n_refused++;
    c->phase = PHASE_WORK;
    c->linger_after = true;
    c->env->handler->bad(c->env->user, c, 503, "Too many connections; try again later.");
}

bool qr_conn_accept(struct qr_conn_env *env, void *listener, int32_t per_address_max, bool full)
{
    QR_ASSERT(env != NULL && listener != NULL);
    QR_ASSERT(per_address_max > 0);
    bool missing;
    struct qr_conn *c = take(env, listener, &missing);
    if (!c)
        return !missing;
    c->refused = full;
    env->n_refused_open += full;
    env->stats.n_accepted += !full;
    if (uv_read_start(&c->stream, on_alloc, on_read) != 0)
        qr_conn_close_now(c);
    else if (full || qr_conn_count_client(c) > per_address_max)
        refuse(c);
    return true;
}

bool qr_conn_is_idle(const struct qr_conn *c)
{
    return c->phase == PHASE_READ && c->in.len == 0 && qr_http_parser_idle(c->parser);
}

bool qr_conn_evict_idle(struct qr_conn_env *env)
{
    const int64_t fresh_since_us = qr_clock_us() - FRESH_US;
    QR_ASSERT(env != NULL);
    QR_ASSERT(env->n_conns >= 0);
    struct qr_conn *oldest = NULL;
    for (struct qr_node *at = env->conns.next; at != &env->conns; at = at->next) {
        struct qr_conn *c = QR_CONTAINER(at, struct qr_conn, link);
        if (qr_conn_is_idle(c) && (c->asked || c->since_us < fresh_since_us) && (!oldest || c->since_us < oldest->since_us) && !qr_peer_has_sent(&c->stream))
            oldest = c;
    }
    if (oldest)
        qr_conn_close_now(oldest);
    return oldest != NULL;
}

/* ---- the end of a server ---- */

void qr_conn_close_idle(struct qr_conn_env *env, int64_t fresh_us)
{
    const int64_t now_us = qr_clock_us();
    QR_ASSERT(env != NULL);
    QR_ASSERT(fresh_us >= 0);
    for (struct qr_node *at = env->conns.next, *next; at != &env->conns; at = next) {
        struct qr_conn *c = QR_CONTAINER(at, struct qr_conn, link);
        next = at->next; /* closing takes only this one off the list */
        if (qr_conn_is_idle(c) && (c->asked || now_us - c->since_us >= fresh_us))
            qr_conn_close_now(c);
    }
}

void qr_conn_close_all(struct qr_conn_env *env)
{
    QR_ASSERT(env != NULL);
    while (!qr_list_empty(&env->conns))
        qr_conn_close_now(QR_CONTAINER(env->conns.next, struct qr_conn, link));
    QR_ASSERT(env->n_conns == 0);
}

/* ---- the handler's side ---- */

const struct qr_http_head *qr_conn_head(const struct qr_conn *c)
{
    QR_ASSERT(c != NULL);
    return qr_http_parser_head(c->parser);
}

const struct qr_address *qr_conn_client(const struct qr_conn *c)
{
    QR_ASSERT(c != NULL);
    return &c->client;
}

void qr_conn_set_route(struct qr_conn *c, int32_t route)
{
    QR_ASSERT(c != NULL && route > 0 && route < QR_CONN_ROUTES_MAX);
    c->route = route;
}

bool qr_conn_keep_room(struct qr_conn *c, int64_t n_bytes)
{
    QR_ASSERT(c != NULL && n_bytes >= 0);
    /* Half of the budget is for bodies: what they are read to, and the answers, find room in the other. */
    return qr_account_keep(&c->account, n_bytes, c->env->budget->max_bytes / 2);
}

void qr_conn_take_body(struct qr_conn *c, struct qr_buf *out, struct qr_account *to)
{
    QR_ASSERT(c != NULL && c->phase == PHASE_WORK);
    QR_ASSERT(out != NULL && to != NULL);
    struct qr_buf *body = qr_http_parser_body(c->parser);
    struct qr_account *before = qr_account_enter(&c->account);
    qr_account_keep(&c->account, 0, c->env->budget->max_bytes);
    qr_account_give(to, body->data);
    qr_account_leave(before);
    *out = *body;
    *body = (struct qr_buf){0};
}

struct qr_span qr_conn_body(const struct qr_conn *c)
{
    QR_ASSERT(c != NULL && c->phase == PHASE_WORK);
    const struct qr_buf *body = qr_http_parser_body(c->parser);
    return (struct qr_span){body->data, body->len};
}

void qr_conn_set_call(struct qr_conn *c, void *call)
{
    QR_ASSERT(c != NULL);
    c->call = call;
}

void *qr_conn_call(const struct qr_conn *c)
{
    QR_ASSERT(c != NULL);
    return c->call;
}

void qr_conn_set_cors(struct qr_conn *c, const char *origin)
{
    QR_ASSERT(c != NULL);
    size_t n = origin ? strlen(origin) : 0;
    if (n >= sizeof c->cors)
        n = 0;
    memcpy(c->cors, origin ? origin : "", n);
    c->cors[n] = 0;
}

const char *qr_conn_request_id(struct qr_conn *c)
{
    QR_ASSERT(c != NULL);
    if (!c->request_id[0])
        qr_http_request_id(c->request_id, c->body_us ? qr_http_parser_head(c->parser)->request_id : (struct qr_span){0});
    return c->request_id;
}

static void put_head(struct qr_conn *c, int32_t status, const char *content_type, const char *extra)
{
    QR_ASSERT(status >= 100 && status < 600);
    c->env->stats.n_replies[status / 100]++;
    c->status = status;
    c->code = NULL;
    c->answer_bytes = -(int64_t)c->out.len;
    c->env->stats.route[c->route].n_replies[status / 100]++;
    qr_buf_printf(&c->out, "HTTP/1.1 %d %s\r\nDate: %s\r\nx-request-id: %s\r\nrequest-id: %s\r\n", status, qr_http_reason(status),
                  qr_http_date(&c->env->date), qr_conn_request_id(c), qr_conn_request_id(c)); /* OpenAI's name for it and Anthropic's */
    if (content_type)
        qr_buf_printf(&c->out, "Content-Type: %s\r\nX-Content-Type-Options: nosniff\r\n", content_type);
    if (extra)
        qr_buf_put_str(&c->out, extra);
    if (c->cors[0])
        qr_buf_printf(&c->out, "Access-Control-Allow-Origin: %s\r\nAccess-Control-Expose-Headers: " EXPOSED "\r\nVary: Origin\r\n", c->cors);
    if (c->close_after || c->linger_after)
        qr_buf_put_str(&c->out, "Connection: close\r\n");
    else if (c->body_us && qr_http_parser_head(c->parser)->http10)
        qr_buf_put_str(&c->out, "Connection: keep-alive\r\n");
}

static void finish_answer(struct qr_conn *c)
{
    c->phase = PHASE_FLUSH;
    tell_answered(c, true);
    c->call = NULL;
    c->progress_us = qr_clock_us();
    c->env->stats.route[c->route].us += c->body_us ? c->progress_us - c->body_us : 0;
    mark_dirty(c);
}

void qr_conn_reply(struct qr_conn *c, const struct qr_reply *reply)
{
    QR_ASSERT(c != NULL && reply != NULL);
    QR_ASSERT(c->phase == PHASE_READ || c->phase == PHASE_WORK);
    QR_ASSERT(reply->body != NULL || reply->len == 0);
    QR_ASSERT(c->tail.len == 0 && (!reply->taken || reply->len == 0));
    const size_t len = reply->taken ? reply->taken->len : reply->len;
    const struct qr_http_head *h = qr_http_parser_head(c->parser);
    if (c->env->closing)
        c->close_after = true;
    c->answered_early = c->phase == PHASE_READ;
    if (c->answered_early && h->content_length != 0) /* the body was not read: no way to stay in step */
        c->linger_after = true;
    if (reply->taken && !c->no_body) {
        qr_account_give(&c->account, reply->taken->data);
        c->tail = *reply->taken;
        *reply->taken = (struct qr_buf){0};
    } else if (reply->taken) {
        qr_buf_release(reply->taken);
    }
    struct qr_account *before = qr_account_enter(&c->account);
    put_head(c, reply->status, reply->content_type, reply->extra);
    if (reply->status != 204 && reply->status != 304)
        qr_buf_printf(&c->out, "Content-Length: %zu\r\n", len);
    qr_buf_put(&c->out, "\r\n", 2);
    if (!reply->taken && !c->no_body)
        qr_buf_put(&c->out, reply->body, len);
    qr_account_leave(before);
    c->code = reply->code;
    c->answer_bytes += (int64_t)(c->out.len + c->tail.len);
    finish_answer(c);
}

void qr_conn_out_of_memory(struct qr_conn *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->phase != PHASE_CLOSED);
    if (c->account.failure == QR_ACCOUNT_OK)
        c->account.failure = QR_ACCOUNT_NO_MEMORY;
    mark_dirty(c);
}

void qr_conn_stream_begin(struct qr_conn *c, const char *content_type, const char *extra)
{
    QR_ASSERT(c != NULL && content_type != NULL);
    QR_ASSERT(c->phase == PHASE_WORK);
    c->chunked = !qr_http_parser_head(c->parser)->http10;
    if (!c->chunked || c->env->closing)
        c->close_after = true;
    struct qr_account *before = qr_account_enter(&c->account);
    put_head(c, 200, content_type, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"); /* nginx keeps a stream back otherwise */
    qr_buf_put_str(&c->out, extra ? extra : "");
    qr_buf_put_str(&c->out, c->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
    qr_account_leave(before);
    c->answer_bytes += (int64_t)c->out.len;
    c->phase = PHASE_STREAM;
    c->pings = strcmp(content_type, QR_SSE_TYPE) == 0;
    c->put_max = 0;
    c->written_us = qr_clock_us();
    mark_dirty(c);
}

void qr_conn_stream_put(struct qr_conn *c, const char *bytes, size_t n)
{
    QR_ASSERT(c != NULL && bytes != NULL);
    QR_ASSERT(c->phase == PHASE_STREAM && n > 0);
    const size_t len = c->out.len;
    struct qr_account *before = qr_account_enter(&c->account);
    if (c->chunked) {
        char size[QR_HTTP_CHUNK_HEAD];
        qr_buf_put_str(&c->out, qr_http_chunk_head(size, n));
    }
    qr_buf_put(&c->out, bytes, n);
    if (c->chunked)
        qr_buf_put(&c->out, "\r\n", 2);
    qr_account_leave(before);
    c->answer_bytes += (int64_t)(c->out.len - len);
    c->written_us = qr_clock_us();
    c->put_max = n > c->put_max ? n : c->put_max;
    if (c->write_busy && c->out.len + c->write_left > c->env->limits.backlog_hard + c->put_max) /* bytes not offered yet do not make a slow reader */
        c->overflow = true;
    mark_dirty(c);
}

void qr_conn_stream_end(struct qr_conn *c, bool close)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->phase == PHASE_STREAM);
    struct qr_account *before = qr_account_enter(&c->account);
    if (c->chunked)
        qr_buf_put_str(&c->out, "0\r\n\r\n");
    qr_account_leave(before);
    c->answer_bytes += c->chunked ? 5 : 0;
    if (close)
        c->close_after = true;
    finish_answer(c);
}

bool qr_conn_streaming(const struct qr_conn *c)
{
    QR_ASSERT(c != NULL);
    return c->phase == PHASE_STREAM;
}

bool qr_conn_behind(const struct qr_conn *c)
{
    QR_ASSERT(c != NULL);
    return c->write_busy;
}
