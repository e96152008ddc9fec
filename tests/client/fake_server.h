/* fake_server.h - an OpenAI-like server for tests, in a process of its own: answers what its script says, when it says, and writes
 * down when each byte really left. It parses requests by hand, so that it shares no code with the client it tests. Loopback only.
 * Script and ledger are shared memory; texts in a script must be literals (or older than fake_start).
 */
#ifndef QR_TESTS_FAKE_SERVER_H
#define QR_TESTS_FAKE_SERVER_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

struct fake_script {
    int32_t fail_first;      /* this many POSTs (-1: all) are answered with fail_status and fail_body */
    int32_t fail_status;
    const char *fail_body, *fail_headers; /* headers: whole lines with CRLF */
    int32_t n_tokens;        /* 0: the request's max_tokens */
    int64_t first_us, gap_us; /* request read to first token; token to token (millisecond timers) */
    int32_t cut_after;       /* close the connection after this many tokens; -1: do not */
    int32_t error_after;     /* an error event after this many tokens; -1: do not */
    int32_t n_texts;         /* tokens after this many have no text and no event; 0: all have one */
    const char *text;        /* every token's text; NULL: "tok " */
    const char *finish;      /* NULL: "length" when the tokens were asked for, else "stop" */
    const char *stream_body; /* these bytes instead of tokens */
    size_t n_stream_body, stream_piece;
    const char *bodies[4];   /* the same, the next one for each POST; the last for all that follow */
    int32_t n_bodies;
    bool close_each;         /* no keep-alive, no chunked coding: the body ends with the connection */
    bool drop_idle;          /* close each connection right after its answer, although keep-alive was promised */
    const char *models;      /* what GET /v1/models answers; NULL: a list of fake-model alone */
    int32_t models_status;   /* 0: 200 */
};

#define FAKE_LEDGER_MAX 8192

struct fake_entry {
    int64_t read_ns, first_ns, last_ns; /* request complete; first and last token written */
    int32_t n_tokens;
};

struct fake_server {
    int32_t port;
    struct fake_script script;
    pid_t pid;
    uv_loop_t loop;       /* these two: the server's process only */
    uv_tcp_t listener;
    pthread_mutex_t lock; /* of everything below */
    int32_t n_connections, n_posts, n_gone; /* n_gone: streams whose client left before their end */
    char body[1 << 16], head[1 << 13];      /* of the last request */
    struct fake_entry ledger[FAKE_LEDGER_MAX];
    int32_t n_ledger;
};

struct fake_conn {
    uv_tcp_t tcp;
    uv_timer_t timer;
    struct fake_server *server;
    char *in;
    size_t n_in, cap_in, n_used; /* n_used: bytes of the request being answered */
    struct fake_entry entry;
    int32_t n_sent, n_total, n_handles;
    bool chat, stream, busy, closing;
};

static inline int64_t fake_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void fake_on_handle_closed(uv_handle_t *h)
{
    struct fake_conn *c = h->data;
    if (--c->n_handles == 0) {
        free(c->in);
        free(c);
    }
}

static inline void fake_close(struct fake_conn *c)
{
    if (c->closing)
        return;
    c->closing = true;
    if (c->busy) {
        pthread_mutex_lock(&c->server->lock);
        c->server->n_gone++;
        pthread_mutex_unlock(&c->server->lock);
    }
    uv_close((uv_handle_t *)&c->tcp, fake_on_handle_closed);
    uv_close((uv_handle_t *)&c->timer, fake_on_handle_closed);
}

static inline void fake_on_written(uv_write_t *w, int status)
{
    free(w);
}

static inline void fake_send(struct fake_conn *c, const char *bytes, size_t n)
{
    uv_write_t *w = malloc(sizeof *w + n);
    if (w == NULL)
        abort();
    char *copy = (char *)(w + 1);
    memcpy(copy, bytes, n);
    uv_buf_t buf = uv_buf_init(copy, (unsigned)n);
    if (uv_write(w, (uv_stream_t *)&c->tcp, &buf, 1, fake_on_written) != 0)
        free(w);
}

static inline void fake_send_str(struct fake_conn *c, const char *s)
{
    fake_send(c, s, strlen(s));
}

/* A streamed body in pieces of n_piece bytes, in one write: in chunked coding unless the connection's end is the body's end. */
static inline void fake_send_pieces(struct fake_conn *c, const char *bytes, size_t n, size_t n_piece)
{
    const bool chunked = !c->server->script.close_each;
    size_t n_out = 0;
    char *out = malloc(n + 32 * (n / n_piece + 1));
    if (out == NULL)
        abort();
    for (size_t at = 0, k; at < n; at += k) {
        k = n - at < n_piece ? n - at : n_piece;
        n_out += chunked ? (size_t)snprintf(out + n_out, 32, "%zx\r\n", k) : 0;
        memcpy(out + n_out, bytes + at, k);
        n_out += k;
        if (chunked)
            memcpy(out + n_out, "\r\n", 2);
        n_out += chunked ? 2 : 0;
    }
    fake_send(c, out, n_out);
    free(out);
}

static inline void fake_send_piece(struct fake_conn *c, const char *bytes, size_t n)
{
    fake_send_pieces(c, bytes, n, n);
}

static inline void fake_next_request(struct fake_conn *c);

static inline void fake_answered(struct fake_conn *c)
{
    struct fake_server *s = c->server;
    pthread_mutex_lock(&s->lock);
    if (s->n_ledger < FAKE_LEDGER_MAX)
        s->ledger[s->n_ledger++] = c->entry;
    pthread_mutex_unlock(&s->lock);
    c->busy = false;
    memmove(c->in, c->in + c->n_used, c->n_in - c->n_used);
    c->n_in -= c->n_used;
    if (s->script.close_each || s->script.drop_idle)
        fake_close(c);
    else
        fake_next_request(c);
}

static inline void fake_simple(struct fake_conn *c, int32_t status, const char *headers, const char *body)
{
    char head[1024];
    snprintf(head, sizeof head, "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s%s\r\n", status,
             strlen(body), headers != NULL ? headers : "", c->server->script.close_each ? "Connection: close\r\n" : "");
    fake_send_str(c, head);
    fake_send_str(c, body);
    fake_answered(c);
}

static inline const char *fake_finish(const struct fake_conn *c)
{
    const struct fake_script *s = &c->server->script;
    return s->finish != NULL ? s->finish : s->n_tokens == 0 ? "length" : "stop";
}

static inline void fake_stream_end(struct fake_conn *c)
{
    char text[512];
    snprintf(text, sizeof text, c->chat ? "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"%s\"}]}\n\n"
                                        : "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"%s\"}]}\n\n",
             fake_finish(c));
    fake_send_piece(c, text, strlen(text));
    snprintf(text, sizeof text,
             "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":%d,\"total_tokens\":%d,"
             "\"prompt_tokens_details\":{\"cached_tokens\":3}}}\n\ndata: [DONE]\n\n",
             c->n_sent, c->n_sent + 7);
    fake_send_piece(c, text, strlen(text));
    if (!c->server->script.close_each)
        fake_send_str(c, "0\r\n\r\n");
    fake_answered(c);
}

static inline void fake_send_token(struct fake_conn *c)
{
    char text[1024];
    const char *token = c->server->script.text != NULL ? c->server->script.text : "tok ";
    snprintf(text, sizeof text, c->chat ? "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"},\"finish_reason\":null}]}\n\n"
                                        : "data: {\"choices\":[{\"index\":0,\"text\":\"%s\",\"finish_reason\":null}]}\n\n",
             token);
    c->entry.last_ns = fake_now_ns();
    if (c->n_sent == 0)
        c->entry.first_ns = c->entry.last_ns;
    if (c->server->script.n_texts == 0 || c->n_sent < c->server->script.n_texts)
        fake_send_piece(c, text, strlen(text));
    c->n_sent++;
    c->entry.n_tokens++;
}

static inline void fake_on_timer(uv_timer_t *t);

/* A prepared stream, cut into pieces of the script's size. */
static inline void fake_send_prepared(struct fake_conn *c)
{
    const struct fake_script *s = &c->server->script;
    const int32_t at = c->server->n_posts < s->n_bodies ? c->server->n_posts - 1 : s->n_bodies - 1;
    const char *body = s->n_bodies > 0 ? s->bodies[at] : s->stream_body;
    fake_send_pieces(c, body, s->n_bodies > 0 ? strlen(body) : s->n_stream_body, s->stream_piece);
    if (!s->close_each)
        fake_send_str(c, "0\r\n\r\n");
    fake_answered(c);
}

static inline void fake_step(struct fake_conn *c)
{
    const struct fake_script *s = &c->server->script;
    if (!c->stream) {
        char body[2048], text[1024];
        snprintf(text, sizeof text, "%s%d", s->text != NULL ? s->text : "tok ", c->n_total);
        snprintf(body, sizeof body,
                 c->chat ? "{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"%s\"},\"finish_reason\":\"%s\"}],"
                           "\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":%d}}"
                         : "{\"choices\":[{\"index\":0,\"text\":\"%s\",\"finish_reason\":\"%s\"}],"
                           "\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":%d}}",
                 text, fake_finish(c), c->n_total);
        fake_simple(c, 200, NULL, body);
        return;
    }
    if (s->stream_body != NULL || s->n_bodies > 0) {
        fake_send_prepared(c);
        return;
    }
    for (;;) {
        if (s->cut_after >= 0 && c->n_sent == s->cut_after) {
            c->busy = false;
            fake_close(c);
            return;
        }
        if (s->error_after >= 0 && c->n_sent == s->error_after) {
            const char *e = "data: {\"error\":{\"message\":\"the engine fell over\",\"type\":\"server_error\",\"param\":null,"
                            "\"code\":\"internal\"}}\n\ndata: [DONE]\n\n";
            fake_send_piece(c, e, strlen(e));
            if (!s->close_each)
                fake_send_str(c, "0\r\n\r\n");
            fake_answered(c);
            return;
        }
        if (c->n_sent >= c->n_total || (s->n_tokens > 0 && c->n_sent >= s->n_tokens)) {
            fake_stream_end(c);
            return;
        }
        fake_send_token(c);
        if (s->gap_us > 0 && c->n_sent < c->n_total) {
            uv_timer_start(&c->timer, fake_on_timer, (uint64_t)(s->gap_us / 1000), 0);
            return;
        }
    }
}

static inline void fake_on_timer(uv_timer_t *t)
{
    struct fake_conn *c = t->data;
    if (!c->closing)
        fake_step(c);
}

static inline void fake_answer(struct fake_conn *c, const char *head, const char *body)
{
    struct fake_server *s = c->server;
    c->entry = (struct fake_entry){.read_ns = fake_now_ns()};
    c->n_sent = 0;
    if (strncmp(head, "GET /v1/models ", 15) == 0) {
        fake_simple(c, s->script.models_status > 0 ? s->script.models_status : 200, NULL,
                    s->script.models != NULL ? s->script.models
                                             : "{\"object\":\"list\",\"data\":[{\"id\":\"fake-model\",\"object\":\"model\"}]}");
        return;
    }
    c->chat = strncmp(head, "POST /v1/chat/completions ", 26) == 0;
    if (!c->chat && strncmp(head, "POST /v1/completions ", 21) != 0) {
        fake_simple(c, 404, NULL, "{\"error\":{\"message\":\"no such route\",\"type\":\"not_found\",\"param\":null,\"code\":null}}");
        return;
    }
    pthread_mutex_lock(&s->lock);
    int32_t i = s->n_posts++;
    snprintf(s->body, sizeof s->body, "%s", body);
    snprintf(s->head, sizeof s->head, "%s", head);
    pthread_mutex_unlock(&s->lock);
    if (s->script.fail_first < 0 || i < s->script.fail_first) {
        fake_simple(c, s->script.fail_status, s->script.fail_headers, s->script.fail_body);
        return;
    }
    const char *asked = strstr(body, "\"max_tokens\":");
    c->n_total = s->script.n_tokens > 0 ? s->script.n_tokens : asked != NULL ? atoi(asked + 13) : 3;
    c->stream = strstr(body, "\"stream\":true") != NULL;
    c->busy = true;
    if (c->stream)
        fake_send_str(c, s->script.close_each ? "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
                                              : "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                                                "Transfer-Encoding: chunked\r\n\r\n");
    if (s->script.first_us > 0)
        uv_timer_start(&c->timer, fake_on_timer, (uint64_t)(s->script.first_us / 1000), 0);
    else
        fake_step(c);
}

static inline void fake_next_request(struct fake_conn *c)
{
    c->in[c->n_in] = '\0';
    char *end = strstr(c->in, "\r\n\r\n");
    if (end == NULL || c->busy)
        return;
    char *length = strcasestr(c->in, "\r\ncontent-length:");
    size_t n_body = length != NULL && length < end ? (size_t)atol(length + 17) : 0, n_head = (size_t)(end - c->in) + 4;
    if (c->n_in < n_head + n_body)
        return;
    c->n_used = n_head + n_body;
    char *head = strndup(c->in, n_head), *body = strndup(c->in + n_head, n_body);
    fake_answer(c, head, body);
    free(head);
    free(body);
}

static inline void fake_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct fake_conn *c = h->data;
    if (c->cap_in - c->n_in < 65536) {
        c->cap_in = 2 * c->cap_in + 65536 + 1;
        c->in = realloc(c->in, c->cap_in + 1);
        if (c->in == NULL)
            abort();
    }
    *buf = uv_buf_init(c->in + c->n_in, (unsigned)(c->cap_in - c->n_in));
}

static inline void fake_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct fake_conn *c = stream->data;
    if (n < 0) {
        fake_close(c);
        return;
    }
    c->n_in += (size_t)n;
    if (n > 0)
        fake_next_request(c);
}

static inline void fake_on_connection(uv_stream_t *listener, int status)
{
    struct fake_server *s = listener->data;
    struct fake_conn *c = calloc(1, sizeof *c);
    if (c == NULL)
        abort();
    c->server = s;
    c->n_handles = 2;
    uv_tcp_init(&s->loop, &c->tcp);
    uv_timer_init(&s->loop, &c->timer);
    c->tcp.data = c->timer.data = c;
    if (uv_accept(listener, (uv_stream_t *)&c->tcp) != 0) {
        fake_close(c);
        return;
    }
    uv_tcp_nodelay(&c->tcp, 1);
    pthread_mutex_lock(&s->lock);
    s->n_connections++;
    pthread_mutex_unlock(&s->lock);
    uv_read_start((uv_stream_t *)&c->tcp, fake_alloc, fake_on_read);
}

static inline void fake_main(struct fake_server *s, int ready)
{
    struct sockaddr_in addr;
    int len = sizeof addr;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that times out takes its server along */
    signal(SIGPIPE, SIG_IGN);
    uv_loop_init(&s->loop);
    uv_tcp_init(&s->loop, &s->listener);
    s->listener.data = s;
    uv_ip4_addr("127.0.0.1", 0, &addr);
    if (uv_tcp_bind(&s->listener, (const struct sockaddr *)&addr, 0) != 0 ||
        uv_listen((uv_stream_t *)&s->listener, 4096, fake_on_connection) != 0)
        _exit(1);
    uv_tcp_getsockname(&s->listener, (struct sockaddr *)&addr, &len);
    s->port = ntohs(addr.sin_port);
    if (write(ready, "r", 1) == 1)
        uv_run(&s->loop, UV_RUN_DEFAULT);
    _exit(0);
}

/* Listens and answers until fake_stop. The script may be changed between requests, and n_tokens lowered to end an answer that is under way. */
static inline struct fake_server *fake_start(struct fake_script script)
{
    struct fake_server *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t shared;
    char byte;
    int ready[2];
    if (s == MAP_FAILED || pipe(ready) != 0)
        abort();
    s->script = script;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&s->lock, &shared);
    pid_t pid = fork();
    if (pid == 0)
        fake_main(s, ready[1]);
    if (pid < 0)
        abort();
    s->pid = pid;
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1)
        abort();
    close(ready[0]);
    return s;
}

static inline void fake_stop(struct fake_server *s)
{
    if (s->pid <= 0)
        abort();
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    munmap(s, sizeof *s);
}

/* How a forked child of a test ends: a leak check there would miss the stack of the thread that forked and find leaks that are none.
 * Leaks are looked for where a test calls the program inside its own process. */
static inline void fake_child_exit(int status)
{
    fflush(NULL);
    _exit(status);
}

#define FAKE_NO_MODELS "{\"object\":\"list\",\"data\":[]}"

/* A script that streams n tokens at once. */
static inline struct fake_script fake_tokens(int32_t n)
{
    return (struct fake_script){.n_tokens = n, .cut_after = -1, .error_after = -1};
}

#endif
