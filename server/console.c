/* console.c - onlookers: who is told what, and when (console.h). A state waits for a look of the engine, an event stream gets one every second, a profile
 * streams what the engine has recorded since the last tick and ends with the requests that still run. A stream whose reader is behind misses states. A drain
 * ends all of them. Memory is bounded by the number of onlookers; without memory one misses what it would have been told. Loop thread. */
#include "server/console.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "server/route.h"

#define PERIOD_US 1000000
#define LOOK_WAIT_US 500000
#define PROFILE_S_MIN 0.1
#define PROFILE_S_MAX 60.0
#define PROFILE_S 5.0

struct qr_console *qr_console_new(void)
{
    struct qr_console *o = qr_alloc(1, sizeof *o);
    o->started_us = qr_clock_us();
    return o;
}

void qr_console_free(struct qr_console *o)
{
    if (!o)
        return;
    qr_buf_release(&o->state);
    qr_buf_release(&o->text);
    qr_free(o);
}

/* Between begin and end `account` is the thread's; whether there was memory. Where a buffer keeps what it has grown to, it is in no account. */
struct writing {
    struct qr_account account, *before;
};

static void begin_writing(struct writing *w, struct qr_buf *to)
{
    qr_account_init(&w->account, NULL);
    w->before = qr_account_enter(&w->account);
    qr_buf_clear(to);
}

static bool end_writing(struct writing *w)
{
    qr_account_leave(w->before);
    return w->account.failure == QR_ACCOUNT_OK;
}

/* ---- the engine ---- */

static void sample(struct qr_server *s, int64_t now_us)
{
    struct qr_console *o = s->console;
    struct qr_stats t;
    if (o->n_samples > 0 && now_us - o->sample[(o->n_samples - 1) % QR_CONSOLE_SAMPLES].taken_us < PERIOD_US)
        return;
    qr_engine_stats(s->model.engine, &t);
    struct qr_console_sample *to = &o->sample[o->n_samples++ % QR_CONSOLE_SAMPLES];
    *to = (struct qr_console_sample){.taken_us = now_us, .query_tokens = t.kv.query_tokens, .hit_tokens = t.kv.hit_tokens, .n_preempted = t.sched.n_preempted,
                                 .prompt_tokens = t.prompt_tokens, .output_tokens = t.output_tokens,
                                 .n_ended = t.n_done_stop + t.n_done_length + t.n_cancelled + t.n_failed};
    memcpy(to->ttft, t.ttft_fine.count, sizeof to->ttft);
    memcpy(to->itl, t.itl_fine.count, sizeof to->itl);
}

/* The look is there: it, and what it says of requests, is copied. */
static bool take_look(struct qr_server *s)
{
    struct qr_view *view = qr_engine_view(s->model.engine);
    const struct qr_look *look = qr_view_take(view);
    if (!look)
        return false;
    s->console->look = *look;
    for (struct qr_node *at = s->calls.next; at != &s->calls; at = at->next) {
        struct qr_call *call = QR_CONTAINER(at, struct qr_call, link);
        for (int32_t i = 0; i < call->n_submitted && !call->preparing; i++)
            if (call->piece[i].submitted)
                call->piece[i].look = call->piece[i].req->look;
    }
    qr_view_done(view);
    s->console->asked_us = 0;
    return true;
}

/* ---- telling ---- */

static void forget(struct qr_console *o, struct qr_onlooker *x)
{
    o->n_profiles -= x->kind == QR_ONLOOKER_PROFILE;
    o->n_onlookers--;
    *x = (struct qr_onlooker){0};
}

static bool is_due(const struct qr_server *s, const struct qr_onlooker *x, int64_t now_us)
{
    return x->kind != QR_ONLOOKER_NONE && (now_us >= x->due_us || s->draining);
}

static void tell_trace(struct qr_onlooker *x, const struct qr_buf *text, bool good)
{
    if (!good)
        qr_conn_out_of_memory(x->conn); /* a trace with a hole is none */
    else if (text->len > 0)
        qr_conn_stream_put(x->conn, text->data, text->len);
}

static void end_profile(struct qr_server *s, struct qr_onlooker *x, int64_t now_us)
{
    struct qr_buf *out = &s->console->text;
    struct writing w;
    begin_writing(&w, out);
    if (s->phase == QR_PHASE_READY)
        qr_trace_put_steps(out, x, qr_engine_view(s->model.engine));
    for (struct qr_node *at = s->calls.next; at != &s->calls; at = at->next) {
        const struct qr_call *call = QR_CONTAINER(at, struct qr_call, link);
        for (int32_t i = 0; i < call->n_submitted && !call->preparing; i++)
            if (call->piece[i].submitted)
                qr_trace_put_request(out, x, &call->piece[i], &call->piece[i].look, now_us, qr_request_state_name(call->piece[i].look.state));
    }
    qr_trace_put_end(out, x, s, now_us);
    tell_trace(x, out, end_writing(&w));
    qr_conn_stream_end(x->conn, false);
    forget(s->console, x);
}

static void tell_state(struct qr_server *s, struct qr_onlooker *x)
{
    struct qr_buf *out = &s->console->text;
    struct qr_conn *c = x->conn;
    const bool stream = x->kind == QR_ONLOOKER_EVENTS;
    struct writing w;
    begin_writing(&w, out);
    qr_buf_put_str(out, stream ? "event: state\ndata: " : "");
    qr_buf_put(out, s->console->state.data, s->console->state.len);
    qr_console_put_steps(out, s->phase == QR_PHASE_READY ? qr_engine_view(s->model.engine) : NULL, &x->steps);
    qr_buf_put_str(out, stream ? "\n\n" : "");
    const bool good = end_writing(&w);
    if (!good && !stream)
        qr_conn_out_of_memory(c);
    else if (!stream)
        qr_conn_reply(c, &(struct qr_reply){.status = 200, .content_type = "application/json", .extra = "Cache-Control: no-store\r\n",
                                            .body = out->data, .len = out->len});
    else if (good)
        qr_conn_stream_put(c, out->data, out->len);
    if (stream && s->draining)
        qr_conn_stream_end(c, true);
    if (!stream || s->draining)
        forget(s->console, x);
}

/* What all states that are told now have in common. */
static bool write_state(struct qr_server *s, int64_t now_us)
{
    struct writing w;
    begin_writing(&w, &s->console->state);
    qr_console_put_state(&s->console->state, s, now_us);
    return end_writing(&w);
}

static void tell(struct qr_server *s, int64_t now_us)
{
    struct qr_console *o = s->console;
    const bool written = write_state(s, now_us);
    for (int32_t i = 0; i < QR_ONLOOKERS_MAX; i++) {
        struct qr_onlooker *x = &o->onlooker[i];
        if (!is_due(s, x, now_us))
            continue;
        if (x->kind == QR_ONLOOKER_PROFILE) {
            end_profile(s, x, now_us);
            continue;
        }
        x->due_us = x->due_us + PERIOD_US > now_us ? x->due_us + PERIOD_US : now_us + PERIOD_US;
        if (x->kind == QR_ONLOOKER_STATE && !written)
            qr_conn_out_of_memory(x->conn);
        else if (written && (s->draining || x->kind == QR_ONLOOKER_STATE || !qr_conn_behind(x->conn)))
            tell_state(s, x);
    }
}

static void ask(struct qr_server *s, int64_t now_us)
{
    if (s->phase != QR_PHASE_READY || s->console->asked_us != 0)
        return;
    s->console->asked_us = now_us;
    qr_engine_look(s->model.engine);
}

void qr_console_tick(struct qr_server *s, int64_t now_us)
{
    struct qr_console *o = s->console;
    bool due = false;
    QR_ASSERT(o != NULL && now_us > 0);
    if (s->phase == QR_PHASE_READY)
        sample(s, now_us);
    if (o->n_onlookers == 0) { /* not where the last one goes: that may be in its own account */
        qr_buf_release(&o->state);
        qr_buf_release(&o->text);
        return;
    }
    for (int32_t i = 0; i < QR_ONLOOKERS_MAX; i++) {
        struct qr_onlooker *x = &o->onlooker[i];
        due |= is_due(s, x, now_us);
        if (x->kind != QR_ONLOOKER_PROFILE || s->phase != QR_PHASE_READY)
            continue;
        struct writing w;
        begin_writing(&w, &o->text);
        qr_trace_put_steps(&o->text, x, qr_engine_view(s->model.engine));
        tell_trace(x, &o->text, end_writing(&w));
    }
    if (due && s->phase == QR_PHASE_READY && (o->asked_us == 0 || now_us - o->asked_us < LOOK_WAIT_US))
        ask(s, now_us);
    else if (due)
        tell(s, now_us);
}

void qr_console_wake(struct qr_server *s)
{
    QR_ASSERT(s != NULL && s->console != NULL);
    if (s->console->asked_us != 0 && take_look(s))
        tell(s, qr_clock_us());
}

void qr_console_recheck(struct qr_server *s)
{
    QR_ASSERT(s != NULL && s->console != NULL);
    for (int32_t i = 0; i < QR_ONLOOKERS_MAX; i++) {
        struct qr_onlooker *x = &s->console->onlooker[i];
        const bool stream = x->kind == QR_ONLOOKER_EVENTS || x->kind == QR_ONLOOKER_PROFILE; /* a state is told at once */
        if (!stream || qr_route_still_allows(s, x->conn))
            continue;
        if (x->kind == QR_ONLOOKER_PROFILE) {
            end_profile(s, x, qr_clock_us());
            continue;
        }
        qr_conn_stream_end(x->conn, true);
        forget(s->console, x);
    }
}

void qr_console_gone(struct qr_server *s, struct qr_conn *c)
{
    QR_ASSERT(s != NULL && c != NULL);
    for (int32_t i = 0; i < QR_ONLOOKERS_MAX; i++)
        if (s->console->onlooker[i].conn == c)
            forget(s->console, &s->console->onlooker[i]);
}

void qr_console_ended(struct qr_server *s, const struct qr_piece *piece, enum qr_finish finish)
{
    const struct qr_request *r = piece->req;
    const struct qr_request_look at = {.admitted_us = r->admitted_us, .first_token_us = r->first_token_us, .n_cached = r->n_cached,
                                       .n_output = (int32_t)r->n_output_all};
    for (int32_t i = 0; i < QR_ONLOOKERS_MAX && s->console->n_profiles > 0; i++) {
        struct qr_onlooker *x = &s->console->onlooker[i];
        if (x->kind != QR_ONLOOKER_PROFILE)
            continue;
        struct writing w;
        begin_writing(&w, &s->console->text);
        qr_trace_put_request(&s->console->text, x, piece, &at, qr_clock_us(), qr_finish_name(finish));
        tell_trace(x, &s->console->text, end_writing(&w));
    }
}

/* ---- the routes ---- */

/* False: there are too many, and the connection has been told. */
static bool has_room(struct qr_server *s, struct qr_conn *c)
{
    struct qr_api_error e;
    if (s->console->n_onlookers < QR_ONLOOKERS_MAX)
        return true;
    qr_api_error_set(&e, 429, "queue_full", "%d connections look at this server already.", QR_ONLOOKERS_MAX);
    qr_api_error_reply(c, &e);
    return false;
}

static struct qr_onlooker *add(struct qr_server *s, struct qr_conn *c, enum qr_onlooker_kind kind, int64_t due_us)
{
    struct qr_onlooker *x = s->console->onlooker;
    while (x->kind != QR_ONLOOKER_NONE)
        x++;
    *x = (struct qr_onlooker){.kind = kind, .conn = c, .due_us = due_us, .from_us = qr_clock_us()};
    s->console->n_onlookers++;
    s->console->n_profiles += kind == QR_ONLOOKER_PROFILE;
    return x;
}

void qr_api_ops_state(struct qr_server *s, struct qr_conn *c)
{
    QR_ASSERT(s != NULL && c != NULL);
    if (!has_room(s, c))
        return;
    add(s, c, QR_ONLOOKER_STATE, qr_clock_us());
    ask(s, qr_clock_us());
}

void qr_api_ops_events(struct qr_server *s, struct qr_conn *c)
{
    QR_ASSERT(s != NULL && c != NULL);
    if (qr_span_is(qr_conn_head(c)->method, "HEAD")) {
        qr_conn_reply(c, &(struct qr_reply){.status = 200, .content_type = QR_SSE_TYPE, .body = "", .len = 0});
        return;
    }
    if (!has_room(s, c))
        return;
    qr_conn_stream_begin(c, QR_SSE_TYPE, NULL);
    add(s, c, QR_ONLOOKER_EVENTS, qr_clock_us());
    ask(s, qr_clock_us());
}

static int read_seconds(double *out, struct qr_span body, struct qr_err *err)
{
    static const char *const wanted[] = {"seconds", NULL};
    struct qr_json *doc = NULL;
    *out = PROFILE_S;
    if (body.len == 0)
        return 0;
    int rc = qr_body_parse(&doc, body.data, body.len, wanted, err);
    const struct qr_json *v = rc == 0 ? qr_json_find(doc, "seconds") : NULL;
    if (!qr_json_is_null(v)) {
        *out = qr_json_type(v) == QR_JSON_T_NUMBER ? qr_json_f64(v) : NAN;
        if (!(*out >= PROFILE_S_MIN && *out <= PROFILE_S_MAX))
            rc = qr_err_at(err, QR_E_INVALID, "seconds", "seconds must be a number from %.1f to %.0f", PROFILE_S_MIN, PROFILE_S_MAX);
    }
    qr_json_free(doc);
    return rc;
}

void qr_api_ops_profile(struct qr_server *s, struct qr_conn *c)
{
    struct qr_err err = {0};
    struct qr_buf begin = {0};
    double seconds;
    QR_ASSERT(s != NULL && c != NULL);
    if (!has_room(s, c))
        return;
    if (read_seconds(&seconds, qr_conn_body(c), &err) != 0) {
        struct qr_api_error e;
        qr_api_error_from(&e, &err);
        qr_api_error_reply(c, &e);
        return;
    }
    qr_trace_put_begin(&begin);
    qr_conn_stream_begin(c, "application/json", NULL);
    qr_conn_stream_put(c, begin.data, begin.len);
    qr_buf_release(&begin);
    struct qr_onlooker *x = add(s, c, QR_ONLOOKER_PROFILE, qr_clock_us() + (int64_t)(seconds * 1e6));
    x->steps = s->phase == QR_PHASE_READY ? qr_view_n_steps(qr_engine_view(s->model.engine)) : 0;
}

/* POST /v1/ops/requests/{id}/cancel */
void qr_api_ops_request(struct qr_server *s, struct qr_conn *c)
{
    static const char prefix[] = "/v1/ops/requests/", cancel[] = "/cancel";
    const struct qr_span path = qr_conn_head(c)->path;
    const size_t n_tail = sizeof cancel - 1, n = path.len - (sizeof prefix - 1);
    const char *given = path.data + sizeof prefix - 1;
    struct qr_api_error e;
    char id[sizeof ((struct qr_call *)0)->id] = "";
    QR_ASSERT(s != NULL && path.len > sizeof prefix - 1);
    if (n < n_tail || memcmp(given + n - n_tail, cancel, n_tail) != 0) {
        qr_api_error_set(&e, 404, "unknown_route", "There is no route POST %.*s; there is %s{id}%s.", path.len < 200 ? (int)path.len : 200, path.data, prefix,
                         cancel);
        qr_api_error_reply(c, &e);
        return;
    }
    if (n - n_tail < sizeof id)
        memcpy(id, given, n - n_tail);
    struct qr_call *call = qr_calls_find(s, id, NULL);
    if (!call) {
        qr_api_error_set(&e, 404, "not_found", "No request '%.100s' runs or waits here.", id);
        qr_api_error_reply(c, &e);
        return;
    }
    struct qr_buf body = {0};
    qr_buf_printf(&body, "{\"id\":\"%s\",\"cancelled\":true}", call->id);
    qr_call_cancel(call, "The request was cancelled by the server's operator.");
    qr_conn_reply(c, &(struct qr_reply){.status = 200, .content_type = "application/json", .taken = &body});
}
