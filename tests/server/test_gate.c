#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "server/chunks.h"
#include "server/gate.h"
#include "server/http_parser.h"
#include "tests/seed.h"

static const struct qr_gate_limits limits = {.head_bytes_max = 16384, .fields_max = 100};

static enum qr_gate_verdict scan(struct qr_gate *g, const char *text)
{
    *g = (struct qr_gate){0};
    return qr_gate_scan(g, text, strlen(text), &limits);
}

Test(gate, passes_a_plain_head_and_says_where_it_ends)
{
    struct qr_gate g;
    const char *text = "GET /a?b HTTP/1.1\r\nHost: a.example:80\r\nX-Y: \xc3\xa4 b\r\n\r\nrest";
    cr_assert_eq(scan(&g, text), QR_GATE_PASS);
    cr_assert_eq(g.head_len, strlen(text) - 4);
    cr_assert(!g.http10);
    cr_assert_eq(scan(&g, "GET / HTTP/1.0\r\n\r\n"), QR_GATE_PASS);
    cr_assert(g.http10);
    cr_assert_eq(scan(&g, "OPTIONS * HTTP/1.1\r\nHost: [::1]\r\n\r\n"), QR_GATE_PASS);
    cr_assert_eq(scan(&g, "GET http://[::1]:80?q HTTP/1.1\r\nHost: a\r\n\r\n"), QR_GATE_PASS);
}

Test(gate, asks_for_more_until_the_empty_line)
{
    const char *text = "POST /v1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
    struct qr_gate g = {0};
    for (size_t n = 0; n < strlen(text); n++)
        cr_assert_eq(qr_gate_scan(&g, text, n, &limits), QR_GATE_MORE, "after %zu bytes", n);
    cr_assert_eq(qr_gate_scan(&g, text, strlen(text), &limits), QR_GATE_PASS);
}

/* Every single byte value at every place of a good head: PASS only where the byte is allowed, and never a lone CR, LF or NUL. */
Test(gate, never_passes_a_control_byte_wherever_it_stands)
{
    const char *good = "GET /x HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n";
    char text[64];
    size_t n = strlen(good);
    int passed = 0;
    for (size_t at = 0; at < n; at++) {
        for (int byte = 0; byte < 256; byte++) {
            memcpy(text, good, n + 1);
            text[at] = (char)byte;
            struct qr_gate g = {0};
            if (qr_gate_scan(&g, text, n, &limits) != QR_GATE_PASS)
                continue;
            passed++;
            bool control = (byte < 0x20 && byte != '\t') || byte == 0x7f;
            cr_assert(!control || byte == (unsigned char)good[at], "byte %02x at %zu passed", byte, at);
        }
    }
    cr_assert_gt(passed, 100);
}

Test(gate, gives_the_status_of_what_is_too_long)
{
    struct qr_gate g;
    static char text[40000];
    size_t n = (size_t)snprintf(text, sizeof text, "GET /");
    memset(text + n, 'a', 9000);
    text[n + 9000] = 0;
    cr_assert_eq(scan(&g, text), QR_GATE_REFUSE);
    cr_assert_eq(g.status, 414);
    n = (size_t)snprintf(text, sizeof text, "GET / HTTP/1.1\r\nX: ");
    memset(text + n, 'a', 9000);
    text[n + 9000] = 0;
    cr_assert_eq(scan(&g, text), QR_GATE_REFUSE);
    cr_assert_eq(g.status, 431);
}

/* Random heads made of fragments, cut at random: the verdict and the length are those of the whole. */
Test(gate, gives_the_same_verdict_however_the_bytes_are_cut)
{
    static const char *const piece[] = {"GET", " ", "/", "/x", " HTTP/1.1", " HTTP/1.0", "\r\n", "\r", "\n", "Host: a", "Host:", "X: y", ":",
                                        "Content-Length: 3", "Transfer-Encoding: chunked", "\t", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\r\n\r\n"};
    static const struct qr_gate_limits tight = {.head_bytes_max = 120, .fields_max = 3};
    struct qr_rng rng = {.seed = test_seed()};
    int n_passed = 0;
    printf("seed %llu\n", (unsigned long long)rng.seed);
    for (int round = 0; round < 200000; round++) {
        char text[1024] = "";
        size_t n = 0;
        if (qr_rng_below(&rng, 2))
            n = (size_t)snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: a\r\n");
        for (uint32_t k = qr_rng_below(&rng, 12); k > 0; k--)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", piece[qr_rng_below(&rng, sizeof piece / sizeof piece[0])]);
        struct qr_gate whole = {0}, cut = {0};
        enum qr_gate_verdict v = qr_gate_scan(&whole, text, n, &tight), w = QR_GATE_MORE;
        for (size_t at = 0; at < n && w == QR_GATE_MORE;) {
            at += 1 + qr_rng_below(&rng, 9);
            w = qr_gate_scan(&cut, text, at > n ? n : at, &tight);
        }
        cr_assert_eq(v, w, "%s", text);
        cr_assert_eq(whole.status, cut.status, "%s", text);
        cr_assert_eq(whole.head_len, cut.head_len, "%s", text);
        n_passed += v == QR_GATE_PASS;
    }
    cr_assert_gt(n_passed, 1000);
}

Test(gate, refuses_a_byte_that_no_line_may_have_before_the_line_ends)
{
    static const char *const text[] = {"\x16\x03\x01\x02", "GET / HTTP/1.1\r\nHost: a\rX", "GET / HTTP/1.1\rH", "GET /\x01",
                                      "GET / HTTP/1.1\r\nX: \x7f", "\n"};
    for (size_t i = 0; i < sizeof text / sizeof text[0]; i++) {
        struct qr_gate g;
        cr_assert_eq(scan(&g, text[i]), QR_GATE_REFUSE, "case %zu", i);
        cr_assert_eq(g.status, 400);
        g = (struct qr_gate){0};
        cr_assert_eq(qr_gate_scan(&g, text[i], strlen(text[i]) - (i == 0 ? 3 : 1), &limits), i == 0 ? QR_GATE_REFUSE : QR_GATE_MORE, "case %zu", i);
    }
}

Test(gate, lets_trailers_pass_with_any_name_and_within_the_same_limits)
{
    struct qr_gate g = {.trailers = true};
    const char *good = "Content-Length: x\r\nHost:\r\nTransfer-Encoding: y\r\n\r\nGET";
    static const char *const bad[] = {"X y\r\n\r\n", " X: y\r\n\r\n", "X: y\n\n", "X: \x01"};
    cr_assert_eq(qr_gate_scan(&g, good, strlen(good), &limits), QR_GATE_PASS);
    cr_assert_eq(g.head_len, strlen(good) - 3);
    g = (struct qr_gate){.trailers = true};
    cr_assert_eq(qr_gate_scan(&g, "\r\nGET", 5, &limits), QR_GATE_PASS);
    cr_assert_eq(g.head_len, 2);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        g = (struct qr_gate){.trailers = true};
        cr_assert_eq(qr_gate_scan(&g, bad[i], strlen(bad[i]), &limits), QR_GATE_REFUSE, "%s", bad[i]);
    }
    g = (struct qr_gate){.trailers = true};
    cr_assert_eq(qr_gate_scan(&g, "A: b\r\nC: d\r\n\r\n", 14, &(struct qr_gate_limits){.head_bytes_max = 100, .fields_max = 1}), QR_GATE_REFUSE);
    cr_assert_eq(g.status, 431);
}

/* What is found in a chunked body, whole and byte by byte: LAST with the data, BAD, or MORE. */
static enum qr_chunks_step read_chunks(const char *text, size_t n, const char *data)
{
    enum qr_chunks_step step[2] = {QR_CHUNKS_MORE, QR_CHUNKS_MORE};
    for (int cut = 0; cut < 2; cut++) {
        struct qr_chunks c = {0};
        struct qr_buf body = {0};
        size_t used, from = 0;
        for (size_t to = cut ? 1 : n; to <= n && step[cut] == QR_CHUNKS_MORE; to++, from += used)
            step[cut] = qr_chunks_read(&c, &body, &used, text + from, to - from, 16);
        cr_assert(step[cut] != QR_CHUNKS_LAST || (body.len == strlen(data) && strncmp(body.data ? body.data : "", data, body.len) == 0), "%s", text);
        cr_assert((step[cut] == QR_CHUNKS_BAD) == (c.status != 0 && c.why != NULL));
        qr_buf_release(&body);
    }
    cr_assert_eq(step[0], step[1], "%s", text);
    return step[0];
}

Test(chunks, extensions_are_read_as_rfc_9112_writes_them)
{
    static const char *const good[] = {"", ";a", ";a=b", ";a=b;c=d", ";a;b", ";a=\"x\";b=c", ";c=\"d e\"",
                                      ";c=\"d;\\\"=\xc3\xa4\\\\\"", " ; a = b\t;\tc", ";a=\"\""};
    static const char *const bad[] = {" ", ";", ";;a", ";a=", ";a=;b", ";a;", ";=b", ";a=\"x", ";a=\"x\\\"", ";a=\"x\"y",
                                     ";a b", ";a ", ";a=b c", ";a=b=c", ";a=\x01", ";a\rb", "x", ";a=\"\x01\"", ";a=\"\r\"", ";\xc3"};
    char text[100];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        size_t n = (size_t)snprintf(text, sizeof text, "2%s\r\nde\r\n0%s\r\n", good[i], good[i]);
        cr_assert_eq(read_chunks(text, n, "de"), QR_CHUNKS_LAST, "%s", text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        size_t n = (size_t)snprintf(text, sizeof text, "2%s\r\nde\r\n0\r\n", bad[i]);
        cr_assert_eq(read_chunks(text, n, ""), QR_CHUNKS_BAD, "%s", text);
    }
}

Test(chunks, sizes_and_extensions_are_bounded)
{
    static char text[8192];
    cr_assert_eq(read_chunks("010\r\n0123456789abcdef\r\n000\r\n", 30, "0123456789abcdef"), QR_CHUNKS_LAST);
    cr_assert_eq(read_chunks("11\r\n", 4, ""), QR_CHUNKS_BAD, "17 bytes, of 16");
    cr_assert_eq(read_chunks("F\r\n0123456789abcde\r\n2\r\n", 25, ""), QR_CHUNKS_BAD, "2 bytes, where 1 is left");
    cr_assert_eq(read_chunks("1\r\nxy", 5, ""), QR_CHUNKS_BAD);
    cr_assert_eq(read_chunks("1\nx", 3, ""), QR_CHUNKS_BAD);
    cr_assert_eq(read_chunks("g", 1, ""), QR_CHUNKS_BAD, "before the line ends");
    for (size_t n = 4095; n <= 4096; n++) {
        memset(text, 'a', sizeof text);
        memcpy(text, "0;", 2);
        memcpy(text + n + 2, "\r\n", 2);
        cr_assert_eq(read_chunks(text, n + 4, ""), n + 1 <= QR_CHUNK_EXTENSIONS_MAX ? QR_CHUNKS_LAST : QR_CHUNKS_BAD, "%zu", n);
    }
    memset(text, 'a', sizeof text);
    memcpy(text, "0;", 2);
    cr_assert_eq(read_chunks(text, sizeof text, ""), QR_CHUNKS_BAD, "without an end");
}

Test(http_parser, reads_pipelined_requests_with_bodies_of_both_framings)
{
    static const struct qr_http_limits http = {.head = {.head_bytes_max = 16384, .fields_max = 100}, .body_bytes_max = 1000};
    static const char text[] = "POST HTTP://h:1/a HTTP/1.1\r\nHost: other\r\nContent-Length: 3\r\nX-Request-Id: r1\r\n\r\nabc"
                               "POST /b?q=1&r?s HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n1;x=y\r\nf\r\n"
                               "0\r\nHost: t\r\nContent-Length: 9\r\n\r\n"
                               "GET http://h:1?q HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer  k \r\n\r\n";
    static const char *const body[] = {"abc", "def", ""}, *const path[] = {"/a", "/b", "/"}, *const host[] = {"h:1", "h", "h:1"};
    static const char *const query[] = {NULL, "q=1&r?s", "q"};
    for (size_t step = 1; step < sizeof text; step++) {
        struct qr_http_parser *p = qr_http_parser_new(&http);
        struct qr_buf in = {0};
        int n = 0;
        for (size_t at = 0; at < sizeof text - 1; at += step) {
            qr_buf_put(&in, text + at, at + step < sizeof text - 1 ? step : sizeof text - 1 - at);
            enum qr_http_step s;
            while ((s = qr_http_parser_feed(p, &in)) != QR_HTTP_MORE) {
                cr_assert_neq(s, QR_HTTP_BAD);
                if (s == QR_HTTP_HEAD) {
                    cr_assert(qr_span_is(qr_http_parser_head(p)->path, path[n]));
                    cr_assert(query[n] ? qr_span_is(qr_http_parser_head(p)->query, query[n]) : qr_http_parser_head(p)->query.data == NULL);
                }
                if (s == QR_HTTP_DONE) {
                    cr_assert(qr_span_is(qr_http_parser_head(p)->host, host[n]));
                    cr_assert_eq(qr_http_parser_body(p)->len, strlen(body[n]));
                    cr_assert(strlen(body[n]) == 0 || memcmp(qr_http_parser_body(p)->data, body[n], strlen(body[n])) == 0);
                    n++;
                }
            }
        }
        cr_assert_eq(n, 3);
        cr_assert(qr_span_is(qr_http_parser_head(p)->authorization, "Bearer  k"));
        qr_buf_release(&in);
        qr_http_parser_free(p);
    }
}
