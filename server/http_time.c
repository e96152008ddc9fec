/* http_time.c - the clock of connections: heads, bodies and handshakes that take too long, readers that take nothing, streams that are silent, idle
 * buffers. Called about every 100 ms. Loop thread. */
#include "base/assert.h"
#include "server/http_conn_parts.h"

#define LINGER_US 2000000 /* reading on after a final reply, so that a reset does not overtake it */
#define TRIM_US 1000000   /* idle connections give their buffers back after this */

static void time_out(struct qr_conn *c, const char *why)
{
    c->env->stats.n_timeouts++;
    qr_conn_answer_bad(c, 408, why);
}

static void tick_read(struct qr_conn *c, int64_t now_us)
{
    const struct qr_conn_limits *l = &c->env->limits;
    if (qr_conn_is_idle(c)) {
        if (now_us - c->since_us > l->idle_us) {
            qr_conn_close_now(c);
        } else if (!c->trimmed && now_us - c->since_us > TRIM_US) {
            c->trimmed = true;
            qr_http_parser_trim(c->parser);
            qr_buf_release(&c->in);
            if (c->out.len == 0)
                qr_buf_release(&c->out);
            if (c->wire.len == 0)
                qr_buf_release(&c->wire);
        }
        return;
    }
    if (qr_http_parser_idle(c->parser)) {
        if (now_us - c->head_us > l->header_us)
            time_out(c, "The request's head took too long to arrive.");
        return;
    }
    int64_t waited = now_us - c->body_us - l->body_grace_us;
    if (waited > 0 && (double)qr_http_parser_body_len(c->parser) < (double)l->body_rate * (double)waited * 1e-6)
        time_out(c, "The request's body arrives too slowly.");
}

static void tick_write(struct qr_conn *c, int64_t now_us)
{
    const struct qr_conn_limits *l = &c->env->limits;
    if (c->write_busy) {
        size_t left = uv_stream_get_write_queue_size(&c->stream);
        if (left != c->write_left)
            c->progress_us = now_us;
        c->write_left = left;
        bool deep = left + c->out.len > l->backlog_soft || c->phase == PHASE_FLUSH;
        if (deep && now_us - c->progress_us > l->stall_us) {
            c->env->stats.n_slow++;
            qr_conn_close_now(c);
        }
    } else if (c->phase == PHASE_STREAM && c->pings && now_us - c->written_us > l->ping_us) {
        qr_conn_stream_put(c, ": ping\n\n", 8);
    }
}

void qr_conn_tick_all(struct qr_conn_env *env, int64_t now_us)
{
    QR_ASSERT(env != NULL);
    QR_ASSERT(now_us > 0);
    for (struct qr_node *at = env->conns.next, *next; at != &env->conns; at = next) {
        struct qr_conn *c = QR_CONTAINER(at, struct qr_conn, link);
        struct qr_account *before = qr_account_enter(&c->account);
        next = at->next; /* closing takes only this one off the list */
        if (c->tls && !qr_tls_ready(c->tls) && now_us - c->since_us > env->limits.header_us) {
            env->stats.n_timeouts++;
            qr_conn_close_now(c);
        } else if (c->phase == PHASE_READ)
            tick_read(c, now_us);
        else if (c->phase == PHASE_STREAM || c->phase == PHASE_FLUSH)
            tick_write(c, now_us);
        else if (c->phase == PHASE_LINGER && now_us - c->since_us > LINGER_US)
            qr_conn_close_now(c);
        qr_account_leave(before);
    }
}
