/* ask.c - one question and its answer (see ask.h). Sends, waits out a server that loads or is full as it says, streams,
 * and stops when told to. Text is handed on as it comes; an error keeps what came before it. One loop, one connection,
 * one owning thread. */
#include "client/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "client/sse_reader.h"

#define RAW_MAX ((size_t)64 << 20)
#define EVENT_MAX ((size_t)16 << 20)
#define RATE_MIN_NS ((int64_t)1000000) /* an answer that came in one piece has no rate */
#define WAIT_MAX_US (120 * (int64_t)1000000)

struct exchange {
    struct qr_ask *ask; /* borrowed */
    struct qr_http_call call;
    struct qr_http_request *request; /* borrowed; NULL between attempts */
    struct qr_timer *retry;          /* owned */
    struct qr_watch *signals;        /* owned; NULL without a terminal */
    struct qr_sse_reader sse;
    struct qr_chunk chunk;
    struct qr_http_head head;
    struct qr_err *err; /* borrowed */
    int64_t began_ns;
    int32_t n_tries;
    bool ended, bad_stream, unread;
    enum qr_ask_end end;
};

void qr_ask_init(struct qr_ask *a)
{
    QR_ASSERT(a != NULL);
    memset(a, 0, sizeof *a);
    qr_chunk_init(&a->answer);
}

void qr_ask_release(struct qr_ask *a)
{
    qr_chunk_release(&a->answer);
    qr_buf_release(&a->raw);
}

static void end_with(struct exchange *x, enum qr_ask_end end)
{
    if (x->ended)
        return;
    x->ended = true;
    x->end = end;
    x->ask->end_ns = qr_clock_ns();
    if (x->request != NULL) {
        x->ask->sent_ns = qr_http_sent_ns(x->request);
        qr_http_cancel(x->request);
    }
    x->request = NULL;
    qr_loop_stop(x->ask->loop);
}

/* ---- what the answer says ---- */

static void piece(struct exchange *x, const struct qr_buf *text, bool reasoning)
{
    if (text->len == 0 || x->ask->on_text == NULL || x->unread)
        return;
    x->unread = !x->ask->on_text(x->ask->arg, text->data, text->len, reasoning);
}

static void take_chunk(struct exchange *x)
{
    if (qr_chunk_generates(&x->chunk)) {
        x->ask->last_ns = qr_clock_ns();
        x->ask->first_ns = x->ask->n_pieces++ == 0 ? x->ask->last_ns : x->ask->first_ns;
    }
    qr_chunk_add(&x->ask->answer, &x->chunk);
    piece(x, &x->chunk.reasoning, true);
    piece(x, &x->chunk.text, false);
    piece(x, &x->chunk.refusal, false);
}

/* Servers agree on 404 but not on the code ("model_not_found", 404); all of them speak of the model. */
static bool is_model_error(const struct exchange *x)
{
    return x->head.status == 404 && (strstr(qr_buf_text(&x->chunk.error_code), "model") != NULL ||
                                     strstr(qr_buf_text(&x->chunk.error_message), "model") != NULL);
}

/* OpenAI and quire say so by the code, vLLM and llama.cpp in the message alone. */
static bool is_context_error(const struct exchange *x)
{
    static const char *const signs[] = {"maximum context length", "available context size"};
    bool found = strcmp(qr_buf_text(&x->chunk.error_code), "context_length_exceeded") == 0;
    for (int i = 0; i < QR_COUNT(signs) && !found; i++)
        found = strstr(qr_buf_text(&x->chunk.error_message), signs[i]) != NULL;
    return found && x->head.status >= 400;
}

/* The message's first two numbers are the context's length and the length of the request. */
static void context_error(struct exchange *x, const char *said)
{
    long long number[2] = {0};
    const char *at = said;
    for (int i = 0; i < QR_COUNT(number) && *at != '\0'; i++) {
        at += strcspn(at, "0123456789");
        number[i] = atoll(at);
        at += strspn(at, "0123456789");
    }
    char much[48] = "";
    if (number[0] > 0 && number[1] > number[0])
        snprintf(much, sizeof much, ", by %lld tokens or more", number[1] - number[0]);
    qr_err_set(x->err, QR_E_INVALID,
               "the input is too long for this server%s: %.240s Shorten the input (in a conversation, /clear empties it), or start the server with a "
               "larger --max-len or a model with a longer context", much, said);
}

static void server_error(struct exchange *x)
{
    const char *said = qr_buf_text(&x->chunk.error_message), *name = qr_http_client_name(x->ask->http);
    int32_t status = x->head.status;
    if (is_model_error(x)) {
        qr_err_set(x->err, QR_E_NOT_FOUND, "%.300s List the models: curl %s/v1/models", said, name);
        end_with(x, QR_ASK_NO_MODEL);
        return;
    }
    if (status == 404)
        qr_err_set(x->err, QR_E_NOT_FOUND, "%s has no such address (HTTP 404: %.200s). Does --url end in /v1?", name, said);
    else if (status == 401 || status == 403)
        qr_err_set(x->err, QR_E_DENIED, "%.300s (HTTP %d). Give a key with --api-key or OPENAI_API_KEY", said, status);
    else if (is_context_error(x))
        context_error(x, said);
    else if (status >= 400)
        qr_err_set(x->err, QR_E_INVALID, "the server answered HTTP %d: %.350s", status, said);
    else
        qr_err_set(x->err, QR_E_INVALID, "the server broke the answer off: %.350s", said);
    end_with(x, QR_ASK_SERVER_ERROR);
}

static void on_event(void *arg, const char *data, size_t n)
{
    struct exchange *x = arg;
    struct qr_err why;
    if (qr_chunk_parse(&x->chunk, data, n, &why) != 0) {
        x->bad_stream = true;
        qr_err_set(x->err, QR_E_INVALID, "the server's stream is damaged: %.400s", why.msg);
    } else if (x->chunk.is_error) {
        x->bad_stream = true;
        qr_err_set(x->err, QR_E_INVALID, "the server broke the answer off: %.400s", qr_buf_text(&x->chunk.error_message));
    } else
        take_chunk(x);
    if (x->bad_stream || x->unread || x->chunk.done)
        qr_sse_stop(&x->sse);
}

/* ---- waiting and trying again ---- */

static bool is_loading(const struct exchange *x)
{
    return x->head.status == 503 && strcmp(qr_buf_text(&x->chunk.error_code), "loading") == 0;
}

static bool try_later(struct exchange *x)
{
    int32_t s = x->head.status;
    if (x->head.retry_refused || x->ask->answer.n_chunks > 0)
        return false;
    int64_t wait_us = x->head.retry_after_us;
    if (is_loading(x)) {
        wait_us = wait_us < 0 || wait_us > 1000000 ? 1000000 : wait_us;
        if (qr_clock_ns() - x->began_ns + wait_us * 1000 > x->ask->load_wait_us * 1000)
            return false;
    } else {
        if ((s != 429 && s != 502 && s != 503 && s != 504) || x->n_tries > x->ask->retries_max || wait_us > WAIT_MAX_US)
            return false;
        if (wait_us < 0)
            wait_us = (int64_t)500000 << (x->n_tries < 5 ? x->n_tries - 1 : 4); /* 0.5 s doubling to 8 s */
    }
    if (x->ask->on_wait != NULL)
        x->ask->on_wait(x->ask->arg, is_loading(x) ? "the server is loading its model" : s == 429 ? "the server is full"
                                                                                                    : "the server is not ready",
                        wait_us);
    qr_timer_at(x->retry, qr_clock_ns() + wait_us * 1000);
    return true;
}

static void on_head(void *arg, const struct qr_http_head *head)
{
    struct exchange *x = arg;
    x->head = *head;
    x->ask->status = head->status;
}

static void end_unread(struct exchange *x)
{
    x->ask->signal = SIGPIPE;
    end_with(x, QR_ASK_KILLED);
}

static void on_body(void *arg, const char *bytes, size_t n)
{
    struct exchange *x = arg;
    if (!x->head.event_stream) {
        if (x->ask->raw.len + n <= RAW_MAX)
            qr_buf_put(&x->ask->raw, bytes, n);
        return;
    }
    if (!x->bad_stream && qr_sse_feed(&x->sse, bytes, n, x->err) != 0)
        x->bad_stream = true;
    if (x->bad_stream)
        end_with(x, QR_ASK_SERVER_ERROR);
    else if (x->unread)
        end_unread(x);
}

static void whole_answer(struct exchange *x)
{
    struct qr_buf *raw = &x->ask->raw;
    struct qr_err why;
    bool good = x->head.status == 200, json = raw->len > 0;
    json = json && qr_chunk_parse(&x->chunk, raw->data, raw->len, &why) == 0;
    if (good && json && !x->chunk.is_error) {
        take_chunk(x);
        if (x->unread)
            end_unread(x);
        end_with(x, QR_ASK_DONE);
        return;
    }
    if (!json || !x->chunk.is_error) { /* no error object: show what there is */
        qr_buf_clear(&x->chunk.error_message);
        qr_buf_clear(&x->chunk.error_code);
        const char *text = good ? "something that is no JSON answer. Is this an OpenAI-compatible server, and does --url end in /v1?"
                                : qr_buf_text(raw);
        qr_buf_put(&x->chunk.error_message, text, strnlen(text, 200));
        x->chunk.is_error = true;
    }
    if (good || !try_later(x))
        server_error(x);
}

static void on_end(void *arg, const struct qr_http_end *end)
{
    struct exchange *x = arg;
    const char *name = qr_http_client_name(x->ask->http);
    x->request = NULL;
    x->ask->sent_ns = end->sent_ns;
    if (end->outcome == QR_HTTP_NO_CONNECT) {
        qr_err_set(x->err, QR_E_BIND, "cannot connect to %s: %s. Start a server with 'quire serve --model DIR', or name one with --url",
                   name, end->detail);
        end_with(x, QR_ASK_NO_CONNECT);
    } else if (end->outcome != QR_HTTP_DONE) {
        const char *when = x->ask->first_ns != 0 ? "in the middle of the answer" : "before the answer";
        qr_err_set(x->err, QR_E_CLOSED, "the connection to %s ended %s: %s", name, when, end->detail);
        end_with(x, QR_ASK_SERVER_ERROR);
    } else if (!x->head.event_stream)
        whole_answer(x);
    else if (x->ask->answer.done || x->ask->answer.finish.len > 0)
        end_with(x, QR_ASK_DONE);
    else {
        qr_err_set(x->err, QR_E_CLOSED, "the stream from %s ended without a finish reason: the answer is cut", name);
        end_with(x, QR_ASK_SERVER_ERROR);
    }
}

static void attempt(void *arg)
{
    struct exchange *x = arg;
    x->n_tries++;
    qr_buf_clear(&x->ask->raw);
    qr_sse_reset(&x->sse);
    x->head = (struct qr_http_head){0};
    x->request = qr_http_begin(x->ask->http, &x->call);
}

static void on_signal(void *arg)
{
    struct exchange *x = arg;
    for (int s; (s = qr_term_signal(x->ask->term)) != 0;) {
        x->ask->signal = s;
        if (s == SIGINT)
            end_with(x, QR_ASK_INTERRUPTED);
        else if (s == SIGTSTP)
            qr_term_suspend(x->ask->term);
        else if (s != SIGWINCH)
            end_with(x, QR_ASK_KILLED);
    }
}

enum qr_ask_end qr_ask_run(struct qr_ask *a, const char *method, const char *path, const char *body, size_t n_body,
                           struct qr_err *err)
{
    QR_ASSERT(a != NULL && a->loop != NULL);
    QR_ASSERT(a->http != NULL && err != NULL);
    struct exchange *x = qr_alloc(1, sizeof *x);
    x->ask = a;
    x->err = err;
    x->began_ns = qr_clock_ns();
    x->call = (struct qr_http_call){.method = method, .path = path, .api_key = a->api_key, .body = body, .n_body = n_body,
                                    .on_head = on_head, .on_body = on_body, .on_end = on_end, .arg = x};
    qr_chunk_release(&a->answer);
    qr_chunk_init(&a->answer);
    a->status = a->signal = 0;
    a->sent_ns = a->first_ns = a->last_ns = a->end_ns = 0;
    a->n_pieces = 0;
    qr_chunk_init(&x->chunk);
    qr_sse_init(&x->sse, EVENT_MAX, on_event, x);
    x->retry = qr_timer_new(a->loop, attempt, x);
    if (a->term != NULL)
        x->signals = qr_watch_new(a->loop, a->term->signal_fd, on_signal, x);
    qr_loop_poll(a->loop); /* connections that the server closed meanwhile */
    if (!x->ended)
        attempt(x);
    while (!x->ended)
        qr_loop_run(a->loop);
    enum qr_ask_end end = x->end;
    qr_timer_free(x->retry);
    qr_watch_free(x->signals);
    qr_loop_poll(a->loop);
    qr_sse_release(&x->sse);
    qr_chunk_release(&x->chunk);
    qr_free(x);
    return end;
}

const char *qr_ask_next_model(const struct qr_json *list, const struct qr_json **m)
{
    QR_ASSERT(list != NULL);
    QR_ASSERT(m != NULL);
    for (*m = *m == NULL ? qr_json_first(list) : qr_json_after(*m); *m != NULL; *m = qr_json_after(*m)) {
        const struct qr_json *id = qr_json_find(*m, "id");
        if (id != NULL && qr_json_type(id) == QR_JSON_T_STRING)
            return qr_json_str(id, NULL);
    }
    return NULL;
}

int64_t qr_ask_model_context(const struct qr_json *model)
{
    int64_t n = 0;
    QR_ASSERT(model != NULL);
    const struct qr_json *v = qr_json_find(model, "max_model_len");
    return v != NULL && qr_json_i64(v, &n) && n > 0 ? n : 0;
}

enum qr_ask_end qr_ask_model(struct qr_ask *a, struct qr_buf *name, int64_t *context, struct qr_err *err)
{
    QR_ASSERT(a != NULL);
    QR_ASSERT(name != NULL);
    enum qr_ask_end end = qr_ask_run(a, "GET", "/models", NULL, 0, err);
    if (end != QR_ASK_DONE)
        return end;
    struct qr_json *doc = NULL;
    struct qr_err why;
    if (qr_json_parse(&doc, qr_buf_text(&a->raw), a->raw.len, &qr_json_limits_file, &why) == 0) {
        const struct qr_json *data = qr_json_find(doc, "data"), *m = NULL;
        const char *id = NULL;
        while (data != NULL && (id = qr_ask_next_model(data, &m)) != NULL && name->len > 0 && strcmp(id, name->data) != 0)
            ;
        if (id != NULL && name->len == 0)
            qr_buf_put_str(name, id);
        if (id != NULL && context != NULL)
            *context = qr_ask_model_context(m);
    }
    qr_json_free(doc);
    if (name->len > 0)
        return QR_ASK_DONE;
    qr_err_set(err, QR_E_NOT_FOUND, "%s lists no model. Name one with --model", qr_http_client_name(a->http));
    return QR_ASK_NO_MODEL;
}

void qr_ask_stats(struct qr_buf *out, const struct qr_ask *a)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(a != NULL);
    const struct qr_usage *u = &a->answer.usage;
    const bool counted = u->n_prompt >= 0 && u->n_output >= 0; /* by the server; a stopped answer has its pieces only */
    const int64_t n = counted ? u->n_output : a->n_pieces, took_ns = (counted ? a->end_ns : a->last_ns) - a->first_ns;
    if (counted)
        qr_buf_printf(out, "%lld prompt + %lld output tokens", (long long)u->n_prompt, (long long)n);
    else if (n > 1)
        qr_buf_printf(out, "about %lld output tokens", (long long)n);
    else
        qr_buf_put_str(out, "output tokens not counted");
    if (a->first_ns > 0)
        qr_buf_printf(out, ", first token %.0f ms", (double)(a->first_ns - a->sent_ns) / 1e6);
    if (n > 1 && a->first_ns > 0 && took_ns >= RATE_MIN_NS)
        qr_buf_printf(out, ", %s%.1f tok/s", counted ? "" : "about ", (double)(n - 1) * 1e9 / (double)took_ns);
    if (u->n_cached >= 0)
        qr_buf_printf(out, ", cached %lld", (long long)u->n_cached);
}
