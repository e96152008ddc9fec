#include "client/profile.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "client/http_client.h"

#define TRACE_MAX ((size_t)512 << 20)
#define TICK_NS 200000000

struct profile_options {
    const char *url, *api_key, *out; /* borrowed from the option set */
    double seconds;
};

/* One request and its answer, which is kept whole: a file is written only when all of it has come. */
struct download {
    struct qr_loop *loop; /* borrowed */
    struct qr_buf body;   /* owned */
    int32_t status;
    enum qr_http_outcome outcome;
    char detail[200];
    bool too_large;
    struct qr_progress progress;
    uint64_t whole_us;
};

static void on_head(void *arg, const struct qr_http_head *head)
{
    struct download *d = arg;
    d->status = head->status;
}

static void on_body(void *arg, const char *bytes, size_t n)
{
    struct download *d = arg;
    d->too_large |= d->body.len + n > TRACE_MAX;
    if (!d->too_large)
        qr_buf_put(&d->body, bytes, n);
}

/* The server records for as long as it was asked to: how long that takes is known. */
static void on_tick(void *arg)
{
    struct download *d = arg;
    const uint64_t done_us = (uint64_t)(qr_clock_us() - d->progress.began_us);
    qr_progress_show(&d->progress, done_us < d->whole_us ? done_us : d->whole_us, d->whole_us);
}

static void on_end(void *arg, const struct qr_http_end *end)
{
    struct download *d = arg;
    d->outcome = end->outcome;
    snprintf(d->detail, sizeof d->detail, "%s", end->detail);
    qr_loop_stop(d->loop);
}

/* What the server said instead of a trace. */
static int refused(const struct download *d, struct qr_err *err)
{
    struct qr_json *doc = NULL;
    struct qr_err why;
    const char *text = d->body.data ? d->body.data : "";
    int rc = 0;
    if (qr_json_parse(&doc, text, d->body.len, &qr_json_limits_request, &why) == 0) {
        const char *message = qr_json_text(qr_json_find(qr_json_find(doc, "error"), "message"), NULL);
        text = message ? message : text;
    }
    if (d->status == 401 || d->status == 403)
        rc = qr_err_set(err, QR_E_DENIED, "%.300s (HTTP %d). Give an admin key with --api-key or OPENAI_API_KEY", text, d->status);
    else
        rc = qr_err_set(err, QR_E_INVALID, "the server answered HTTP %d: %.350s", d->status, text);
    qr_json_free(doc);
    return rc;
}

static int judge(const struct download *d, const char *name, struct qr_err *err)
{
    if (d->outcome == QR_HTTP_NO_CONNECT)
        return qr_err_set(err, QR_E_BIND, "cannot connect to %s: %s. Start a server with 'quire serve DIR', or name one with --url", name, d->detail);
    if (d->outcome != QR_HTTP_DONE)
        return qr_err_set(err, QR_E_CLOSED, "the connection to %s ended before the trace did: %s", name, d->detail);
    if (d->status != 200)
        return refused(d, err);
    if (d->too_large)
        return qr_err_set(err, QR_E_TOO_LARGE, "the trace has more than %d MiB; ask for fewer --seconds", (int)(TRACE_MAX >> 20));
    return 0;
}

static int fetch(struct download *d, const struct profile_options *o, const struct qr_http_url *url, struct qr_err *err)
{
    struct qr_http_client *http = NULL;
    char body[64];
    const int n = snprintf(body, sizeof body, "{\"seconds\":%.3f}", o->seconds);
    int rc = qr_http_client_new(&http, d->loop, url, &qr_http_limits_default, err);
    if (rc != 0)
        return rc;
    const struct qr_http_call call = {.method = "POST", .path = "/ops/profile", .api_key = o->api_key, .body = body, .n_body = (size_t)n,
                                      .on_head = on_head, .on_body = on_body, .on_end = on_end, .arg = d};
    qr_http_begin(http, &call);
    struct qr_timer *tick = qr_timer_new(d->loop, on_tick, d);
    d->whole_us = (uint64_t)(o->seconds * 1e6);
    qr_progress_open(&d->progress, "recording");
    qr_timer_every(tick, TICK_NS);
    qr_loop_run(d->loop);
    qr_progress_end(&d->progress);
    qr_timer_free(tick);
    rc = judge(d, qr_http_client_name(http), err);
    qr_http_client_free(http);
    return rc;
}

static int64_t number_of(const struct qr_json *v, const char *name)
{
    int64_t n = 0;
    const struct qr_json *member = qr_json_find(v, name);
    return member && qr_json_i64(member, &n) ? n : 0;
}

/* The last member of a trace says what is in it. */
static void report(const struct download *d, const char *out)
{
    static const char last[] = "\"otherData\":";
    const char *text = d->body.data, *at = NULL;
    struct qr_json *doc = NULL;
    struct qr_err why;
    for (const char *next = text; (next = strstr(next, last)) != NULL; next += sizeof last - 1)
        at = next + sizeof last - 1;
    if (!at || qr_json_parse(&doc, at, d->body.len - (size_t)(at - text) - 1, &qr_json_limits_request, &why) != 0)
        return;
    const long long missed = (long long)number_of(doc, "steps_missed");
    fprintf(stderr, "%.1f s, %lld steps, %lld requests in %s", (double)number_of(doc, "us") * 1e-6, (long long)number_of(doc, "steps"),
            (long long)number_of(doc, "requests"), strcmp(out, "-") == 0 ? "the trace" : out);
    if (missed > 0)
        fprintf(stderr, " (%lld steps are missing)", missed);
    fputs("; open it in https://ui.perfetto.dev or chrome://tracing\n", stderr);
    qr_json_free(doc);
}

static int profile(struct qr_command_run *r, struct qr_err *err)
{
    struct profile_options o = *(const struct profile_options *)r->options;
    struct qr_http_url url;
    o.url = qr_http_from_env(o.url, qr_options_source(r->set, "url") != QR_FROM_BUILTIN, "OPENAI_BASE_URL");
    o.api_key = qr_http_from_env(o.api_key, o.api_key != NULL, "OPENAI_API_KEY");
    if (r->n_args > 0)
        return qr_err_set(err, QR_E_USAGE, "'%.100s' is no flag; seconds are given as --seconds N", r->args[0]);
    int rc = qr_http_url_parse(&url, o.url, err);
    rc = rc || !o.api_key ? rc : qr_http_key_check(o.api_key, err);
    if (rc != 0)
        return rc;
    struct download d = {.loop = qr_loop_new()};
    rc = fetch(&d, &o, &url, err);
    rc = rc ? rc : qr_file_put(o.out, d.body.data, d.body.len, err);
    if (rc == 0)
        report(&d, o.out);
    qr_loop_free(d.loop);
    qr_buf_release(&d.body);
    return rc;
}

#define AT(field) offsetof(struct profile_options, field)

static const struct qr_option table[] = {
    {.name = "seconds", .brief = true, .letter = 's', .type = QR_OPT_FLOAT, .offset = AT(seconds), .builtin = "5", .min = 0.1, .max = 60, .arg = "N",
     .help = "How long to record."},
    {.name = "out", .brief = true, .letter = 'o', .type = QR_OPT_STR, .offset = AT(out), .builtin = "quire-profile.json", .arg = "FILE",
     .help = "Where the trace goes; - is stdout."},
    {.name = "url", .brief = true, .type = QR_OPT_STR, .offset = AT(url), .builtin = "http://127.0.0.1:8000", .arg = "URL",
     .help = "Base URL of the server; /v1 is added when it has no path. OPENAI_BASE_URL is used when this is not given."},
    {.name = "api-key", .brief = true, .type = QR_OPT_STR, .offset = AT(api_key), .arg = "KEY",
     .help = "An admin key of the server. OPENAI_API_KEY is used when this is not given (and is not seen in a process list)."},
};

const struct qr_command qr_profile_command = {
    .name = "profile", .purpose = "record what a server does as a Chrome trace",
    .usage = "quire profile [--seconds N] [--out FILE] [--url URL] [--api-key KEY]",
    .examples = "quire profile --seconds 5\n"
                "quire profile --url http://10.0.0.5:8000 --out - | gzip > trace.json.gz",
    .text = "Asks a running server for every step of the next seconds with its phases, and for every request, and writes a trace that\n"
            "https://ui.perfetto.dev and chrome://tracing show. The file is written when all of it has come. No text of a request is in it.",
    .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct profile_options), .run = profile,
};
