/* The HTTP client: URLs, keep-alive, every way an answer can end, and answers that are no HTTP. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "client/http_client.h"
#include "fake_server.h"

TestSuite(http, .timeout = 240);

/* ---- URLs ---- */

Test(http, reads_urls_as_people_write_them)
{
    static const struct {
        const char *text, *host, *prefix;
        int32_t port;
    } good[] = {
        {"http://127.0.0.1:8000", "127.0.0.1", "/v1", 8000}, {"http://localhost", "localhost", "/v1", 80},
        {"localhost:9", "localhost", "/v1", 9},              {"http://a.b:65535/", "a.b", "/v1", 65535},
        {"http://a:1/v1", "a", "/v1", 1},                    {"http://a:1/v1///", "a", "/v1", 1},
        {"http://a/api/openai", "a", "/api/openai", 80},     {"HTTP://[::1]:8000/x", "::1", "/x", 8000},
        {"[::1]", "::1", "/v1", 80},
    };
    static const char *const bad[] = {"", "http://", "https://a", "HTTPS://a", "ftp://a", "http://a:0", "http://a:65536", "http://a:",
                                      "http://a:1x", "http://a:-1", "http://a b", "http://a\nX: y", "http://a/x y", "http://a/x\r\n",
                                      "http://[::1", "http://[::1]x", "http://u@h", "http://a/?q", "http://a:000001", "http:///x"};
    struct qr_http_url u;
    struct qr_err err;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        cr_assert_eq(qr_http_url_parse(&u, good[i].text, &err), 0, "%s", good[i].text);
        cr_expect_str_eq(u.host, good[i].host);
        cr_expect_str_eq(u.prefix, good[i].prefix);
        cr_expect_eq(u.port, good[i].port);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_expect_eq(qr_http_url_parse(&u, bad[i], &err), QR_E_USAGE, "%s", bad[i]);
    qr_http_url_parse(&u, "https://a", &err);
    cr_expect(strstr(err.msg, "https is not spoken here") != NULL);
}

Test(http, a_key_with_a_line_end_is_refused)
{
    struct qr_err err;
    cr_expect_eq(qr_http_key_check("sk-123", &err), 0);
    cr_expect_eq(qr_http_key_check("sk-123\n", &err), QR_E_USAGE);
    cr_expect_eq(qr_http_key_check("sk 123", &err), QR_E_USAGE);
}

/* ---- requests ---- */

struct got {
    struct qr_loop *loop;
    struct qr_http_client *client;
    struct qr_http_request *request;
    struct qr_http_head head;
    struct qr_buf body;
    enum qr_http_outcome outcome;
    char detail[200];
    int32_t n_heads, n_ends, n_left;
    size_t cancel_at;
    struct qr_http_call call;
};

static void on_head(void *arg, const struct qr_http_head *head)
{
    struct got *g = arg;
    g->head = *head;
    g->n_heads++;
}

static void on_body(void *arg, const char *bytes, size_t n)
{
    struct got *g = arg;
    qr_buf_put(&g->body, bytes, n);
    if (g->cancel_at != 0 && g->body.len >= g->cancel_at) {
        qr_http_cancel(g->request);
        g->request = NULL;
        qr_loop_stop(g->loop);
    }
}

static void on_end(void *arg, const struct qr_http_end *end)
{
    struct got *g = arg;
    g->outcome = end->outcome;
    snprintf(g->detail, sizeof g->detail, "%s", end->detail);
    g->n_ends++;
    if (--g->n_left > 0)
        g->request = qr_http_begin(g->client, &g->call);
    else
        qr_loop_stop(g->loop);
}

static struct got *client_of(const char *host, int32_t port, int64_t idle_us)
{
    struct got *g = calloc(1, sizeof *g);
    struct qr_http_url url;
    struct qr_err err;
    struct qr_http_limits limits = {.connect_timeout_us = 20000000, .idle_timeout_us = idle_us};
    char text[64];
    signal(SIGPIPE, SIG_IGN);
    snprintf(text, sizeof text, "http://%s:%d", host, port);
    g->loop = qr_loop_new();
    cr_assert_eq(qr_http_url_parse(&url, text, &err), 0);
    cr_assert_eq(qr_http_client_new(&g->client, g->loop, &url, &limits, &err), 0);
    return g;
}

static struct got *client_at(int32_t port)
{
    return client_of("127.0.0.1", port, 20000000); /* silence on a busy machine is not the end */
}

static void ask(struct got *g, const char *path, const char *body, int32_t n_times)
{
    g->call = (struct qr_http_call){.method = body != NULL ? "POST" : "GET", .path = path, .body = body,
                                    .n_body = body != NULL ? strlen(body) : 0, .on_head = on_head, .on_body = on_body,
                                    .on_end = on_end, .arg = g};
    g->n_left = n_times;
    qr_buf_clear(&g->body);
    g->request = qr_http_begin(g->client, &g->call);
    qr_loop_run(g->loop);
}

static void drop(struct got *g)
{
    qr_http_client_free(g->client);
    qr_loop_free(g->loop);
    qr_buf_release(&g->body);
    free(g);
}

Test(http, one_connection_carries_many_requests)
{
    struct fake_server *s = fake_start(fake_tokens(5));
    struct got *g = client_at(s->port);
    ask(g, "/completions", "{\"stream\":true}", 50);
    ask(g, "/models", NULL, 50);
    cr_expect_eq(g->n_ends, 100);
    cr_expect_eq(g->outcome, QR_HTTP_DONE);
    cr_expect_eq(g->head.status, 200);
    cr_expect_eq(s->n_posts, 50);
    cr_expect_eq(s->n_connections, 1);
    drop(g);
    fake_stop(s);
}

Test(http, a_connection_that_the_server_closed_meanwhile_is_replaced_unnoticed)
{
    struct fake_script script = fake_tokens(2);
    script.drop_idle = true;
    struct fake_server *s = fake_start(script);
    struct got *g = client_at(s->port);
    for (int i = 0; i < 5; i++) {
        ask(g, "/completions", "{\"stream\":true}", 1);
        cr_expect_eq(g->outcome, QR_HTTP_DONE, "%s", g->detail);
        usleep(20000);
    }
    ask(g, "/completions", "{\"stream\":true}", 20); /* at once: the close and the next request cross each other */
    cr_expect_eq(g->outcome, QR_HTTP_DONE, "%s", g->detail);
    cr_expect_eq(g->n_ends, 25);
    drop(g);
    fake_stop(s);
}

Test(http, every_address_of_a_name_is_tried)
{
    struct addrinfo *found = NULL;
    int rc = getaddrinfo("localhost", NULL, NULL, &found); /* a bare chroot has no /etc/hosts */
    if (rc != 0)
        cr_skip_test("this machine does not resolve localhost: %s", gai_strerror(rc));
    freeaddrinfo(found);
    struct fake_server *s = fake_start(fake_tokens(1)); /* listens on 127.0.0.1 only; localhost may be ::1 first */
    struct got *g = client_of("localhost", s->port, 20000000);
    ask(g, "/models", NULL, 3);
    cr_expect_eq(g->outcome, QR_HTTP_DONE, "%s", g->detail);
    cr_expect_eq(g->n_ends, 3);
    drop(g);
    fake_stop(s);
}

Test(http, a_body_may_end_with_the_connection)
{
    struct fake_script script = fake_tokens(3);
    script.close_each = true;
    struct fake_server *s = fake_start(script);
    struct got *g = client_at(s->port);
    ask(g, "/completions", "{\"stream\":true}", 3);
    cr_expect_eq(g->outcome, QR_HTTP_DONE);
    cr_expect(g->head.event_stream);
    cr_expect(strstr(g->body.data, "[DONE]") != NULL);
    cr_expect_eq(s->n_connections, 3);
    drop(g);
    fake_stop(s);
}

Test(http, a_stream_cut_in_the_middle_is_not_done)
{
    struct fake_script script = fake_tokens(9);
    script.cut_after = 4;
    struct fake_server *s = fake_start(script);
    struct got *g = client_at(s->port);
    ask(g, "/completions", "{\"stream\":true}", 1);
    cr_expect_eq(g->outcome, QR_HTTP_CUT);
    cr_expect_eq(s->n_posts, 1, "never sent twice once a byte came");
    drop(g);
    fake_stop(s);
}

Test(http, silence_ends_in_a_timeout)
{
    struct fake_script script = fake_tokens(9);
    script.first_us = 5000000;
    struct fake_server *s = fake_start(script);
    struct got *g = client_of("127.0.0.1", s->port, 300000);
    int64_t t = qr_clock_us();
    ask(g, "/completions", "{\"stream\":true}", 1);
    cr_expect_eq(g->outcome, QR_HTTP_TIMEOUT);
    cr_expect_geq(qr_clock_us() - t, 300000);
    drop(g);
    fake_stop(s);
}

Test(http, nothing_listening_says_so)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    const int held = socket(AF_INET, SOCK_STREAM, 0); /* has the port, so that nobody else gets it, and does not listen */
    cr_assert(held >= 0 && bind(held, (struct sockaddr *)&addr, len) == 0 && getsockname(held, (struct sockaddr *)&addr, &len) == 0);
    struct got *g = client_at(ntohs(addr.sin_port));
    ask(g, "/models", NULL, 3);
    cr_expect_eq(g->n_ends, 3);
    cr_expect_eq(g->outcome, QR_HTTP_NO_CONNECT);
    cr_expect(strstr(g->detail, "refused") != NULL);
    drop(g);
    close(held);
}

Test(http, cancelling_closes_the_connection_and_calls_nothing)
{
    struct fake_script script = fake_tokens(1000);
    script.gap_us = 2000;
    struct fake_server *s = fake_start(script);
    struct got *g = client_at(s->port);
    g->cancel_at = 300;
    ask(g, "/completions", "{\"stream\":true}", 1);
    cr_expect_eq(g->n_ends, 0);
    qr_loop_poll(g->loop);
    for (int i = 0; i < 4000 && s->n_gone == 0; i++)
        usleep(5000);
    cr_expect_eq(s->n_gone, 1, "the server must see it");
    g->cancel_at = 0;
    s->script.gap_us = 0;
    ask(g, "/completions", "{\"stream\":true}", 1);
    cr_expect_eq(g->outcome, QR_HTTP_DONE);
    drop(g);
    fake_stop(s);
}

Test(http, freeing_the_client_in_the_middle_leaves_nothing)
{
    struct fake_script script = fake_tokens(1000);
    script.gap_us = 1000;
    struct fake_server *s = fake_start(script);
    struct got *g = client_at(s->port);
    g->call = (struct qr_http_call){.method = "POST", .path = "/completions", .body = "{\"stream\":true}", .n_body = 15,
                                    .on_body = on_body, .on_end = on_end, .arg = g};
    for (int i = 0; i < 20; i++)
        qr_http_begin(g->client, &g->call);
    for (int i = 0; i < 50 || (i < 20000 && g->body.len == 0); i++) {
        qr_loop_poll(g->loop);
        usleep(1000);
    }
    cr_expect_gt(g->body.len, 0);
    drop(g);
    fake_stop(s);
}

Test(http, headers_that_steer_retries_are_read)
{
    struct fake_script script = fake_tokens(1);
    script.fail_first = -1;
    script.fail_status = 429;
    script.fail_body = "{}";
    script.fail_headers = "retry-AFTER:  2 \r\nX-Should-Retry: false\r\n";
    struct fake_server *s = fake_start(script);
    struct got *g = client_at(s->port);
    ask(g, "/completions", "{}", 1);
    cr_expect_eq(g->head.status, 429);
    cr_expect_eq(g->head.retry_after_us, 2000000);
    cr_expect(g->head.retry_refused);
    s->script.fail_headers = "retry-after-ms: 250\r\nretry-after: 9\r\n";
    ask(g, "/completions", "{}", 1);
    cr_expect_eq(g->head.retry_after_us, 250000);
    s->script.fail_headers = "retry-after: Wed, 21 Oct 2015 07:28:00 GMT\r\n";
    ask(g, "/completions", "{}", 1);
    cr_expect_eq(g->head.retry_after_us, -1);
    drop(g);
    fake_stop(s);
}

/* ---- answers that are no HTTP ---- */

struct rogue {
    int listener;
    int32_t port;
    const char *answer, *later;
    size_t n;
    pthread_t thread;
};

static void *rogue_main(void *arg)
{
    struct rogue *r = arg;
    int fd = accept(r->listener, NULL, NULL);
    char head[4096];
    if (fd >= 0 && read(fd, head, sizeof head) > 0 && r->n > 0)
        for (size_t at = 0; at < r->n;) {
            ssize_t k = write(fd, r->answer + at, r->n - at);
            if (k <= 0)
                break;
            at += (size_t)k;
        }
    if (fd >= 0 && r->later != NULL) {
        usleep(50000);
        if (write(fd, r->later, strlen(r->later)) > 0)
            usleep(50000);
    }
    if (fd >= 0)
        close(fd);
    return NULL;
}

static enum qr_http_outcome answered_with(const char *answer, size_t n, const char *later)
{
    struct rogue r = {.answer = answer, .n = n, .later = later};
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    r.listener = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(bind(r.listener, (struct sockaddr *)&addr, len), 0);
    cr_assert_eq(listen(r.listener, 1), 0);
    getsockname(r.listener, (struct sockaddr *)&addr, &len);
    pthread_create(&r.thread, NULL, rogue_main, &r);
    struct got *g = client_at(ntohs(addr.sin_port));
    ask(g, "/models", NULL, 1);
    enum qr_http_outcome outcome = g->outcome;
    cr_expect_eq(g->n_ends, 1);
    for (int i = 0; later != NULL && i < 40; i++) {
        usleep(5000);
        qr_loop_poll(g->loop);
    }
    drop(g);
    pthread_join(r.thread, NULL);
    close(r.listener);
    return outcome;
}

Test(http, what_is_no_http_is_called_malformed_or_cut_and_never_crashes)
{
    static const struct {
        const char *answer;
        enum qr_http_outcome outcome;
    } cases[] = {
        {"SSH-2.0-OpenSSH_9.2\r\n", QR_HTTP_MALFORMED},
        {"HTTP/1.1 abc\r\n\r\n", QR_HTTP_MALFORMED},
        {"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", QR_HTTP_MALFORMED},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", QR_HTTP_MALFORMED},
        {"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", QR_HTTP_MALFORMED},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", QR_HTTP_CUT},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", QR_HTTP_CUT},
        {"HTTP/1.1 200 OK\r\nContent-Le", QR_HTTP_CUT},
        {"", QR_HTTP_CUT},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", QR_HTTP_DONE},
        {"HTTP/1.1 204 No Content\r\n\r\n", QR_HTTP_DONE},
        {"HTTP/1.0 200 OK\r\n\r\nbody", QR_HTTP_DONE},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nho", QR_HTTP_DONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_expect_eq(answered_with(cases[i].answer, strlen(cases[i].answer), NULL), cases[i].outcome, "case %zu", i);
}

Test(http, what_an_idle_connection_hears_unasked_closes_it)
{
    const char *answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    static const char *const later[] = {"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 2", "rubbish", "\r\n"};
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++)
        cr_expect_eq(answered_with(answer, strlen(answer), later[i]), QR_HTTP_DONE);
}

Test(http, an_endless_head_is_refused)
{
    size_t n = 200000;
    char *text = malloc(n + 1);
    memset(text, 'a', n);
    memcpy(text, "HTTP/1.1 200 OK\r\nX: ", 20);
    cr_expect_eq(answered_with(text, n, NULL), QR_HTTP_MALFORMED);
    free(text);
}

/* ---- the loop's timers ---- */

struct ticks {
    struct qr_loop *loop;
    int64_t at_ns[50], late_ns;
    int32_t n;
    struct qr_timer *timer;
};

static void on_tick(void *arg)
{
    struct ticks *t = arg;
    int64_t late = qr_clock_ns() - t->at_ns[t->n];
    cr_assert_geq(late, 0, "a timer never fires early");
    t->late_ns += late;
    if (++t->n < 50)
        qr_timer_at(t->timer, t->at_ns[t->n]);
    else
        qr_loop_stop(t->loop);
}

/* Nanoseconds that 50 timers are late, on the mean. */
static int64_t lateness(void)
{
    struct ticks t = {.loop = qr_loop_new()};
    int64_t now = qr_clock_ns();
    for (int i = 0; i < 50; i++)
        t.at_ns[i] = now + 1000000 + i * 1300000;
    t.timer = qr_timer_new(t.loop, on_tick, &t);
    qr_timer_at(t.timer, t.at_ns[0]);
    qr_loop_run(t.loop);
    fprintf(stderr, "timer lateness, mean of 50: %.3f ms\n", (double)t.late_ns / 50e6);
    qr_timer_free(t.timer);
    qr_loop_free(t.loop);
    return t.late_ns / 50;
}

/* Only that it works: the machine may be busy, for a while even very much so. */
Test(loop, timers_keep_to_parts_of_a_millisecond)
{
    int64_t late_ns = lateness();
    for (int tries = 0; tries < 20 && late_ns >= 20000000; tries++)
        late_ns = lateness();
    cr_expect_lt(late_ns, 20000000);
}
