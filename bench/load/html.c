/* html.c - the report as one HTML file (see html.h): cards, curves, tables in light and dark. All text from outside is
 * escaped. A function of the report's figures. Main thread, at the end. */
#include "bench/load/html.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/svg.h"
#include "client/chunk.h"

#define WIDE 852
#define CDF_POINTS 201
#define TIME_POINTS_MAX 120
#define TIME_WIDTH_MIN_NS ((int64_t)100000000)

/* ---- pieces ---- */

static void put_setting(struct qr_buf *out, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static void put_setting(struct qr_buf *out, const char *name, const char *fmt, ...)
{
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    qr_buf_printf(out, "<tr><td>%s</td><td>", name);
    qr_html_put(out, text);
    qr_buf_put_str(out, "</td></tr>\n");
}

static void put_card(struct qr_buf *out, const char *name, double v, int32_t n_decimals, const char *unit)
{
    qr_buf_printf(out, "<div class=\"card\"><b>%.*f%s</b><span>%s</span></div>\n", n_decimals, v, unit, name);
}

/* Each line of `text` as a paragraph. */
static void put_lines(struct qr_buf *out, const char *text, const char *class)
{
    while (*text != '\0') {
        size_t n = strcspn(text, "\n");
        char line[400];
        snprintf(line, sizeof line, "%.*s", (int)(n < sizeof line ? n : sizeof line - 1), text);
        qr_buf_printf(out, "<p class=\"%s\">", class);
        qr_html_put(out, line);
        qr_buf_put_str(out, "</p>\n");
        text += n + (text[n] == '\n');
    }
}

/* "name        text" lines as a table. */
static void put_named_lines(struct qr_buf *out, const char *text)
{
    qr_buf_put_str(out, "<table class=\"set\">\n");
    while (*text != '\0') {
        size_t n = strcspn(text, "\n"), name = strcspn(text, " "), gap = strspn(text + name, " ");
        QR_ASSERT(name + gap <= n);
        char line[400], head[16];
        snprintf(head, sizeof head, "%.*s", (int)name, text);
        snprintf(line, sizeof line, "%.*s", (int)(n - name - gap), text + name + gap);
        put_setting(out, head, "%s", line);
        text += n + (text[n] == '\n');
    }
    qr_buf_put_str(out, "</table>\n");
}

/* qr_load_definitions as a list: "  NAME  what it is", and sentences behind it. */
static void put_definitions(struct qr_buf *out)
{
    struct qr_buf notes = {0};
    qr_buf_put_str(out, "<dl>\n");
    for (const char *at = qr_load_definitions; *at != '\0';) {
        size_t n = strcspn(at, "\n"), name = strcspn(at + 2, " ");
        char line[400];
        bool entry = at[2 + name + 1] == ' ';
        snprintf(line, sizeof line, "%.*s", (int)(n - 2), at + 2);
        if (entry) {
            qr_buf_printf(out, "<dt>%.*s</dt><dd>", (int)name, line);
            qr_html_put(out, line + name + strspn(line + name, " "));
            qr_buf_put_str(out, "</dd>\n");
        } else {
            qr_html_put(&notes, line);
            qr_buf_put_byte(&notes, ' ');
        }
        at += n + 1;
    }
    qr_buf_printf(out, "</dl>\n<p class=\"note\">%s</p>\n", qr_buf_text(&notes));
    qr_buf_release(&notes);
}

static void put_settings(struct qr_buf *out, const struct qr_load_page *p)
{
    const struct qr_load_options *opt = p->opt;
    struct qr_buf text = {0};
    qr_buf_put_str(out, "<h2>Settings</h2>\n<table class=\"set\">\n");
    put_setting(out, "Server", "%s, %s", qr_http_client_name(p->target->http), opt->endpoint % 2 == 0 ? "completions" : "chat completions");
    put_setting(out, "Model", "%s", p->target->model);
    if (p->sweep != NULL)
        qr_buf_printf(&text, "sweep over %s, input %s, output %s tokens, seed %lld", p->sweep->loads->rates ? "rates" : "users", opt->input_len,
                      opt->output_len, (long long)opt->seed);
    else
        qr_load_put_load(&text, p->plan);
    put_setting(out, "Load", "%s", qr_buf_text(&text));
    qr_buf_clear(&text);
    if (opt->n_requests > 0)
        put_setting(out, "Requests", "%lld%s", (long long)opt->n_requests, p->sweep != NULL ? " a step" : "");
    if (opt->duration_us > 0)
        put_setting(out, "Duration", "%g s%s", (double)opt->duration_us / 1e6, p->sweep != NULL ? " a step" : "");
    if (opt->n_warmups > 0)
        put_setting(out, "Warm-up", "%lld requests%s", (long long)opt->n_warmups, p->sweep != NULL ? " before each step" : "");
    if (opt->prefix_len > 0)
        put_setting(out, "Shared prefix", "%lld tokens", (long long)opt->prefix_len);
    if (opt->abort_fraction > 0)
        put_setting(out, "Abandoned", "%g %% of the requests, on purpose", 100 * opt->abort_fraction);
    put_setting(out, "Temperature", "%g", opt->temperature);
    if (opt->slo.n > 0) {
        qr_load_put_slo(&text, p->slo);
        put_setting(out, "SLO", "%s", qr_buf_text(&text));
    }
    put_setting(out, "Client", "quire %s", QUIRE_VERSION);
    qr_buf_put_str(out, "</table>\n");
    qr_buf_release(&text);
}

static void put_cards(struct qr_buf *out, const struct qr_load_page *p)
{
    static const char *const names[] = {"TTFT p50", "TTFT p99", "ITL p99"};
    struct qr_load_figures *f = p->figures;
    const double ms[] = {qr_samples_percentile(&f->ttft, 50), qr_samples_percentile(&f->ttft, 99), qr_samples_percentile(&p->result->itl, 99)};
    const double least = fmin(fmin(ms[0], ms[1]), ms[2]); /* all times get the decimals that the least one needs */
    qr_buf_put_str(out, "<div class=\"cards\">\n");
    put_card(out, "output tokens/s", qr_load_per_second(f->n_output, f->duration_s), 1, "");
    put_card(out, "requests/s", qr_load_per_second(p->result->n_records, f->duration_s), 2, "");
    for (int i = 0; i < QR_COUNT(ms); i++)
        put_card(out, names[i], ms[i], least < 10 ? 2 : 1, " ms");
    if (p->opt->slo.n > 0) {
        put_card(out, "goodput, requests/s", qr_load_per_second(f->n_good, f->duration_s), 2, "");
        put_card(out, "within the SLO", 100 * f->slo_share, 1, " %");
    }
    qr_buf_put_str(out, "</div>\n");
}

static void put_latency_row(struct qr_buf *out, const char *name, struct qr_samples *s)
{
    static const double p[] = {50, 90, 95, 99, 100};
    const int32_t n = qr_load_decimals(qr_samples_mean(s));
    qr_buf_printf(out, "<tr><td>%s</td><td>%.*f</td><td>%.*f</td>", name, n, qr_samples_mean(s), n, qr_samples_std(s));
    for (int i = 0; i < QR_COUNT(p); i++)
        qr_buf_printf(out, "<td>%.*f</td>", n, qr_samples_percentile(s, p[i]));
    qr_buf_printf(out, "<td>%zu</td></tr>\n", s->n);
}

static void put_figures(struct qr_buf *out, const struct qr_load_page *p)
{
    struct qr_load_figures *f = p->figures;
    struct qr_load_result *r = p->result;
    struct qr_buf text = {0};
    qr_buf_put_str(out, "<div class=\"scroll\"><table><tr><th>ms</th><th>mean</th><th>std</th><th>p50</th><th>p90</th><th>p95</th><th>p99</th>"
                        "<th>max</th><th>n</th></tr>\n");
    put_latency_row(out, "TTFT", &f->ttft);
    put_latency_row(out, "TPOT", &f->tpot);
    put_latency_row(out, "ITL", &r->itl);
    put_latency_row(out, "E2E", &f->e2el);
    put_latency_row(out, "TTFT sent", &f->ttft_sent);
    put_latency_row(out, "E2E sent", &f->e2el_sent);
    qr_buf_put_str(out, "</table></div>\n");
    qr_buf_printf(out,
                  "<p>%lld requests completed, %lld failed, %lld abandoned, %lld cut off in %.2f s; %d at once at most. %lld tokens in (%.1f/s, %lld "
                  "of them cached), %lld out (in the best second %lld token events).</p>\n",
                  (long long)r->n_records, (long long)r->n_failed, (long long)r->n_aborted, (long long)r->n_unfinished, f->duration_s,
                  r->peak_running, (long long)f->n_input, qr_load_per_second(f->n_input, f->duration_s), (long long)f->n_cached,
                  (long long)f->n_output, (long long)f->peak_tokens_per_s);
    for (int32_t i = 0; i < r->n_errors; i++)
        qr_buf_printf(&text, "%lld x %s: %.*s\n", (long long)r->error[i].n, r->error[i].name, (int)strcspn(r->error[i].example, "\n"),
                      r->error[i].example);
    qr_load_put_remarks(&text, r, p->plan, f->duration_s);
    put_lines(out, qr_buf_text(&text), "note");
    put_definitions(out);
    qr_buf_release(&text);
}

/* ---- distributions and time ---- */

static void put_cdf(struct qr_buf *out, const char *title, struct qr_samples *s, double limit_ms)
{
    double x[CDF_POINTS], y[CDF_POINTS];
    int32_t n = s->n > 0 ? CDF_POINTS : 0;
    for (int32_t i = 0; i < n; i++) {
        y[i] = 100.0 * i / (CDF_POINTS - 1);
        x[i] = qr_samples_percentile(s, y[i]);
    }
    struct qr_svg_series series = {.x = x, .y = y, .n = n, .colour = 0};
    struct qr_svg_mark mark = {.at = limit_ms, .vertical = true, .label = "SLO"};
    /* A limit far beyond the slowest would push the curve against the axis: it is said instead of drawn. */
    bool far = n > 0 && limit_ms > 1.5 * x[CDF_POINTS - 1];
    char caption[80];
    if (far)
        snprintf(caption, sizeof caption, "%s (all within %g ms)", title, limit_ms);
    else
        snprintf(caption, sizeof caption, "%s", title);
    /* A linear axis unless the tail would push everything else against its left end. */
    bool tail = n > 0 && x[0] > 0 && x[CDF_POINTS - 1] > 8 * x[CDF_POINTS / 2];
    struct qr_svg_chart c = {.title = caption, .x_label = tail ? "ms (logarithmic)" : "ms", .y_label = "% of them at most", .width = 274, .height = 210,
                             .x_log = tail, .y_from_zero = true, .series = &series, .n_series = 1, .mark = &mark, .n_marks = limit_ms >= 0 && !far};
    qr_svg_put(out, &c);
}

static void put_distributions(struct qr_buf *out, const struct qr_load_page *p)
{
    qr_buf_put_str(out, "<h2>Latency distributions</h2>\n<div class=\"three\">\n");
    put_cdf(out, "TTFT", &p->figures->ttft, p->slo->ttft_ms);
    put_cdf(out, "ITL", &p->result->itl, -1);
    put_cdf(out, "E2E", &p->figures->e2el, p->slo->e2el_ms);
    qr_buf_put_str(out, "</div>\n");
}

/* Buckets of the timeline, joined so that a point has 0.1 s at least and the line some 120 points at most. */
static int32_t join_buckets(const struct qr_load_timeline *t, int64_t end_ns, double *x, double *tokens, double *running)
{
    int64_t k = (t->n + TIME_POINTS_MAX - 1) / TIME_POINTS_MAX, k_min = (TIME_WIDTH_MIN_NS + t->width_ns - 1) / t->width_ns;
    int32_t step = (int32_t)(k > k_min ? k : k_min), n = 0;
    for (int32_t i = 0; i < t->n && n < TIME_POINTS_MAX; i += step) {
        int64_t from = i * t->width_ns, until = (i + step) * t->width_ns;
        double sum = 0, area = 0;
        until = until < end_ns - t->begin_ns ? until : end_ns - t->begin_ns;
        for (int32_t j = i; j < i + step && j < t->n; j++) {
            sum += (double)t->n_tokens[j];
            area += t->running_ns[j];
        }
        if (until <= from || (n > 0 && until - from < TIME_WIDTH_MIN_NS / 2))
            break;
        x[n] = (double)(from + until) / 2e9;
        tokens[n] = sum / ((double)(until - from) / 1e9);
        running[n++] = area / (double)(until - from);
    }
    return n;
}

static void put_timeline(struct qr_buf *out, const struct qr_load_page *p)
{
    double x[TIME_POINTS_MAX], tokens[TIME_POINTS_MAX], running[TIME_POINTS_MAX];
    int32_t n = join_buckets(&p->result->timeline, p->result->end_ns, x, tokens, running);
    struct qr_svg_series a = {.x = x, .y = tokens, .n = n, .colour = 0, .area = true}, b = {.x = x, .y = running, .n = n, .colour = 2, .area = true};
    struct qr_svg_chart c = {.title = "Token events per second", .x_label = "seconds since the start", .y_label = "1/s", .width = WIDE, .height = 200,
                             .y_from_zero = true, .series = &a, .n_series = 1};
    qr_buf_put_str(out, "<h2>Over time</h2>\n<div class=\"scroll\">\n");
    qr_svg_put(out, &c);
    c.title = "Running requests";
    c.y_label = "mean";
    c.series = &b;
    c.height = 160;
    qr_svg_put(out, &c);
    qr_buf_put_str(out, "</div>\n");
}

/* ---- the sweep ---- */

static void put_sweep_table(struct qr_buf *out, const struct qr_load_sweep *s)
{
    bool slo = s->opt->slo.n > 0;
    qr_buf_printf(out,
                  "<div class=\"scroll\"><table class=\"tight\"><tr><th>%s</th><th>answers</th><th>lost</th><th>req/s</th><th>out tok/s</th><th>gain</th>"
                  "<th>TTFT p50</th><th>p99</th><th>TPOT p50</th><th>ITL p99</th><th>E2E p50</th>%s</tr>\n",
                  s->loads->rates ? "req/s sent" : "users", slo ? "<th>goodput/s</th><th>in SLO</th>" : "");
    for (int32_t i = 0; i < s->n; i++) {
        struct qr_load_step *step = &s->step[i];
        struct qr_load_figures *f = &step->figures;
        double gain = qr_load_gain(s->point, i), tpot = qr_samples_percentile(&f->tpot, 50);
        qr_buf_printf(out, "<tr%s><td>%g</td><td>%lld</td><td>%lld</td><td>%.2f</td><td>%.1f</td><td>",
                      i == s->knee ? " class=\"knee\"" : "", s->point[i].load, (long long)step->result.n_records,
                      (long long)(step->result.n_failed + step->result.n_unfinished),
                      qr_load_per_second(step->result.n_records, f->duration_s), s->point[i].output_per_s);
        if (isfinite(gain))
            qr_buf_printf(out, "%.0f %%", 100 * gain);
        else
            qr_buf_put_byte(out, '-');
        qr_buf_printf(out, "</td><td>%.1f</td><td>%.1f</td><td>%.*f</td><td>%.2f</td><td>%.1f</td>", s->point[i].ttft_p50_ms,
                      qr_samples_percentile(&f->ttft, 99), qr_load_decimals(tpot), tpot, qr_samples_percentile(&step->result.itl, 99),
                      s->point[i].e2el_p50_ms);
        if (slo)
            qr_buf_printf(out, "<td>%.2f</td><td>%.1f %%</td>", qr_load_per_second(f->n_good, f->duration_s), 100 * f->slo_share);
        qr_buf_put_str(out, "</tr>\n");
    }
    qr_buf_put_str(out, "</table></div>\n<p class=\"note\">Times in ms. Gain: growth of the throughput as a share of the growth of the load. "
                        "Lost: failed or cut off.</p>\n");
}

static void put_sweep_curves(struct qr_buf *out, const struct qr_load_sweep *s)
{
    double x[QR_LOAD_POINTS_MAX], rate[QR_LOAD_POINTS_MAX], p50[QR_LOAD_POINTS_MAX], p99[QR_LOAD_POINTS_MAX];
    for (int32_t i = 0; i < s->n; i++) {
        x[i] = s->point[i].load;
        rate[i] = s->point[i].output_per_s;
        p50[i] = s->point[i].ttft_p50_ms;
        p99[i] = qr_samples_percentile(&s->step[i].figures.ttft, 99);
    }
    const char *what = s->loads->rates ? "requests/s sent" : "users";
    struct qr_svg_mark knee = {.at = s->knee >= 0 ? x[s->knee] : 0, .vertical = true, .label = "knee"};
    struct qr_svg_mark limit = {.at = s->slo.ttft_ms, .label = "SLO"};
    struct qr_svg_series throughput = {.x = x, .y = rate, .n = s->n, .colour = 0, .points = true};
    struct qr_svg_series ttft[] = {{.name = "p50", .x = x, .y = p50, .n = s->n, .colour = 0, .points = true},
                                   {.name = "p99", .x = x, .y = p99, .n = s->n, .colour = 1, .points = true}};
    struct qr_svg_chart c = {.title = s->loads->rates ? "Throughput over rate" : "Throughput over users", .x_label = what,
                             .y_label = "output tokens/s", .width = 416, .height = 250, .x_log = true, .y_from_zero = true, .x_ticks = x,
                             .n_x_ticks = s->n, .series = &throughput, .n_series = 1, .mark = &knee, .n_marks = s->knee >= 0};
    qr_buf_put_str(out, "<div class=\"two\">\n");
    qr_svg_put(out, &c);
    c.title = s->loads->rates ? "TTFT over rate" : "TTFT over users";
    c.y_label = "ms (logarithmic)";
    c.y_log = true;
    c.series = ttft;
    c.n_series = 2;
    c.mark = &limit;
    c.n_marks = s->slo.ttft_ms > 0;
    qr_svg_put(out, &c);
    qr_buf_put_str(out, "</div>\n");
}

static void put_sweep(struct qr_buf *out, const struct qr_load_sweep *s)
{
    struct qr_buf text = {0};
    qr_buf_put_str(out, "<h2>Sweep</h2>\n");
    qr_load_sweep_put_end(&text, s);
    put_named_lines(out, qr_buf_text(&text));
    put_sweep_curves(out, s);
    put_sweep_table(out, s);
    qr_buf_clear(&text);
    qr_load_sweep_put_rule(&text, s);
    qr_buf_put_str(out, "<p class=\"note\">");
    qr_html_put(out, qr_buf_text(&text));
    qr_buf_put_str(out, "</p>\n");
    qr_buf_release(&text);
}

void qr_load_put_html(struct qr_buf *out, const struct qr_load_page *p)
{
    QR_ASSERT(out != NULL && p != NULL);
    QR_ASSERT((p->result != NULL) == (p->figures != NULL) && (p->sweep != NULL || p->plan != NULL));
    char when[64] = "";
    struct tm tm;
    time_t t = (time_t)p->wall_s;
    if (gmtime_r(&t, &tm) != NULL)
        strftime(when, sizeof when, "%Y-%m-%d %H:%M UTC", &tm);
    qr_buf_put_str(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" "
                        "content=\"width=device-width, initial-scale=1\"/>\n<title>Load test: ");
    qr_html_put(out, p->target->model);
    qr_buf_printf(out, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<h1>Load test of ", qr_html_style);
    qr_html_put(out, p->target->model);
    qr_buf_printf(out, "</h1>\n<p class=\"dim\">quire bench load, %s</p>\n", when);
    put_lines(out, p->held, "warn");
    if (p->sweep != NULL)
        put_sweep(out, p->sweep);
    if (p->result != NULL) {
        if (p->sweep != NULL) {
            qr_buf_put_str(out, "<h2>At the knee: ");
            qr_load_sweep_put_load(out, p->sweep, p->sweep->point[p->sweep->knee].load);
            qr_buf_put_str(out, "</h2>\n");
        }
        put_cards(out, p);
        put_figures(out, p);
        put_distributions(out, p);
        put_timeline(out, p);
    }
    put_settings(out, p);
    qr_buf_put_str(out, "</body>\n</html>\n");
}
