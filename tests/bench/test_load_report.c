/* The report's page: well-formed, self-contained, escaped; and the charts it is made of. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/svg.h"
#include "tests/bench/load_runner.h"
#include "tests/client/fake_server.h"

TestSuite(report, .timeout = 120);

/* Every tag is closed in order, attributes are quoted, no bare '<' or '&' stands in text. A style element's content is text too. */
static void check_well_formed(const char *s)
{
    char open[32][16];
    int depth = 0;
    for (const char *at = s; *at != '\0'; at++) {
        if (*at == '&') {
            size_t n = strcspn(at, ";");
            cr_assert(n <= 6 && at[n] == ';', "a bare & at %.40s", at);
        }
        if (*at != '<' || strncmp(at, "<!DOCTYPE html>", 15) == 0)
            continue;
        const char *end = at + 1 + (at[1] == '/');
        char name[16] = "";
        for (size_t n = 0; isalnum((unsigned char)*end) && n < sizeof name - 1; n++)
            name[n] = *end++;
        cr_assert(name[0] != '\0', "no tag: %.40s", at);
        for (bool quoted = false; quoted || *end != '>'; end++) {
            cr_assert(*end != '\0' && *end != '<', "an open tag: %.60s", at);
            quoted ^= *end == '"';
        }
        if (at[1] == '/') {
            cr_assert(depth > 0 && strcmp(open[depth - 1], name) == 0, "</%s> closes <%s>", name, depth > 0 ? open[depth - 1] : "");
            depth--;
        } else if (end[-1] != '/') {
            cr_assert(depth < 32);
            strcpy(open[depth++], name);
        }
        at = end;
    }
    cr_assert_eq(depth, 0);
}

static bool loads_something(const char *html)
{
    static const char *const signs[] = {"<script", "<link", "<img", "<iframe", "src=", "href=", "url(", "@import", "nan", "inf "};
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (strstr(html, signs[i]) != NULL) {
            fprintf(stderr, "the page has %s\n", signs[i]);
            return true;
        }
    return false;
}

static struct qr_buf read_page(const char *path)
{
    struct qr_buf page = {0};
    int fd = open(path, O_RDONLY);
    cr_assert(fd >= 0, "no page");
    slurp(fd, &page);
    return page;
}

static struct qr_buf page_of(int32_t port, const char *flags, int status)
{
    char path[] = "/tmp/quire-page-XXXXXX", all[400];
    close(mkstemp(path));
    snprintf(all, sizeof all, "%s --report %s", flags, path);
    struct outcome o = run_load(port, all);
    cr_expect_eq(o.status, status, "%s%s", o.out.data, o.err.data);
    struct qr_buf page = read_page(path);
    drop(&o);
    unlink(path);
    cr_assert(page.len > 1000);
    check_well_formed(page.data);
    cr_expect(!loads_something(page.data));
    return page;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)) != NULL; text += strlen(what))
        n++;
    return n;
}

Test(report, a_run_becomes_a_page_that_stands_alone)
{
    struct fake_script script = fake_tokens(0);
    script.first_us = 5000;
    script.gap_us = 2000;
    struct fake_server *s = fake_start(script);
    struct qr_buf page = page_of(s->port, "--users 3 --num-requests 30 --output-len 8 --slo ttft:30s,e2el:5ms --fail-if completed<=30", 6);
    cr_expect_eq(count(page.data, "<svg "), 5, "three distributions, two timelines");
    cr_expect_eq(count(page.data, "<path class=\"mark\""), 1, "E2E's limit; TTFT's is too far to be drawn");
    cr_expect(strstr(page.data, "TTFT (all within 30000 ms)") != NULL);
    cr_expect(strstr(page.data, "first token&#39;s arrival - intended send") != NULL, "definitions stand in it");
    cr_expect(strstr(page.data, "failed: completed&lt;=30 (completed is 30)") != NULL);
    cr_expect(strstr(page.data, "prefers-color-scheme:dark") != NULL);
    cr_expect(strstr(page.data, "fake-model") != NULL);
    qr_buf_release(&page);
    fake_stop(s);
}

Test(report, a_sweep_shows_its_curves_and_its_knee)
{
    struct fake_script script = fake_tokens(0);
    script.first_us = 20000;
    struct fake_server *s = fake_start(script);
    const char *flags = "--sweep --users 1,2,4 --num-requests 12 --output-len 4 --slo ttft:30s";
    struct qr_buf page = page_of(s->port, flags, 0);
    for (int tries = 1; tries < 5 && !strstr(page.data, "At the knee: 4 users"); tries++) { /* a stall of the machine may look like one */
        qr_buf_release(&page);
        page = page_of(s->port, flags, 0);
    }
    cr_expect_eq(count(page.data, "<svg "), 7);
    cr_expect(strstr(page.data, "Throughput over users") != NULL);
    cr_expect(strstr(page.data, "At the knee: 4 users") != NULL, "%s", page.data);
    cr_expect_eq(count(page.data, "<circle"), 9, "3 steps in 3 lines");
    cr_expect(strstr(page.data, ">knee</text>") != NULL && strstr(page.data, ">SLO</text>") != NULL);
    qr_buf_release(&page);
    fake_stop(s);
}

Test(report, what_the_server_says_is_escaped)
{
    struct fake_script script = fake_tokens(3);
    script.fail_first = -1;
    script.fail_status = 500;
    script.fail_body = "{\"error\":{\"message\":\"<script>alert(1)</script> & \\\"more\\\"\",\"type\":\"t\",\"param\":null,\"code\":null}}";
    struct fake_server *s = fake_start(script);
    struct qr_buf page = page_of(s->port, "--model <b>x\xff --users 1 --num-requests 2", 1);
    cr_expect(strstr(page.data, "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;more&quot;") != NULL, "%s", page.data);
    cr_expect(strstr(page.data, "<h1>Load test of &lt;b&gt;x\xef\xbf\xbd</h1>") != NULL);
    cr_expect_eq(count(page.data, "no samples"), 3, "empty charts say so");
    qr_buf_release(&page);
    page = page_of(s->port, "--sweep --users 4 --num-requests 2", 1);
    cr_expect(strstr(page.data, "At the knee") == NULL, "no step succeeded");
    qr_buf_release(&page);
    fake_stop(s);
}

Test(report, a_page_that_cannot_be_written_is_an_error)
{
    struct fake_server *s = fake_start(fake_tokens(2));
    struct outcome o = run_load(s->port, "--users 1 --num-requests 2 --report /nonexistent/x.html");
    cr_expect_eq(o.status, 4);
    cr_expect(strstr(o.err.data, "/nonexistent/x.html") != NULL, "%s", o.err.data);
    drop(&o);
    fake_stop(s);
}

Test(report, text_for_html_is_escaped_and_valid)
{
    struct qr_buf out = {0};
    qr_html_put(&out, "a<b>&\"'\x01\x1b[0m\xc3\xa9\xff\xed\xa0\x80\n");
    cr_expect_str_eq(out.data, "a&lt;b&gt;&amp;&quot;&#39;[0m\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\n");
    qr_buf_release(&out);
}

/* Every coordinate of a chart stands within its frame, whatever the data. */
static void check_inside(const char *svg, double width, double height)
{
    for (const char *d = svg; (d = strstr(d, "class=\"line")) != NULL; d++) {
        const char *p = strstr(d, " d=\"M");
        cr_assert(p != NULL);
        p += 5;
        while (*p != '"') {
            char *end;
            double x = strtod(p, &end);
            cr_assert(end != p && isfinite(x), "%.40s", p);
            if (*end == 'h')
                break; /* the legend's dash */
            double y = strtod(end, &end);
            if (*end == 'h')
                break;
            cr_expect(x >= 0 && x <= width && y >= 0 && y <= height, "(%g, %g) outside %g x %g", x, y, width, height);
            p = *end == 'L' ? end + 1 : end;
        }
    }
}

Test(report, charts_of_hard_data_stay_in_their_frames)
{
    static const double sets[][4] = {{0, 0, 0, 0}, {1, 1, 1, 1}, {1e-9, 1e9, 5, 3}, {1e12, 2e12, 3e12, 4e12}, {-5, 5, -1, 2}, {0, 1e-12, 0, 1}};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        for (int log = 0; log < 4; log++)
            for (int32_t n = 0; n <= 4; n++) {
                struct qr_buf out = {0};
                struct qr_svg_series series[] = {{.name = "a<b", .x = sets[i], .y = sets[5 - i], .n = n, .colour = 1, .area = true, .points = true},
                                                 {.name = "c", .x = sets[0], .y = sets[i], .n = n, .colour = 2}};
                struct qr_svg_mark mark[] = {{.at = 3, .vertical = true, .label = "m"}, {.at = 0, .label = "zero"}};
                struct qr_svg_chart c = {.title = "t&", .x_label = "x", .y_label = "y", .width = 300, .height = 200, .x_log = log & 1,
                                         .y_log = log & 2, .y_from_zero = true, .series = series, .n_series = 2, .mark = mark, .n_marks = 2};
                qr_svg_put(&out, &c);
                check_well_formed(out.data);
                check_inside(out.data, 300, 200);
                cr_expect(strstr(out.data, "nan") == NULL && strstr(out.data, "inf") == NULL, "set %zu, log %d, n %d: %s", i, log, n, out.data);
                cr_expect_eq(strstr(out.data, "no samples") != NULL, n == 0);
                qr_buf_release(&out);
            }
}
