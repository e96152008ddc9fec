/* load.c - `quire bench load`: settings, set-up, run, report (see load.h). Nothing is sent before all settings, files
 * and the server's name have been checked. The loop, its connections and all records belong to the main thread. */
#include "bench/load/load.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "bench/load/html.h"
#include "bench/load/parts.h"
#include "bench/load/sweep.h"
#include "client/ask.h"

#define EXIT_CONDITION 6

struct bench {
    struct qr_load_options opt;
    struct qr_load_points points;
    struct qr_load_conditions conditions;
    struct qr_load_plan plan;
    struct qr_load_slo slo;
    struct qr_load_target target;
    struct qr_loop *loop;        /* owned */
    struct qr_http_client *http; /* owned */
    struct qr_term term;
    struct qr_buf model;         /* owned */
};

/* The model's name, which also shows that a server is there before thousands of requests fail to find it. */
static int find_model(struct bench *b, struct qr_err *err)
{
    struct qr_ask ask;
    qr_ask_init(&ask);
    ask.loop = b->loop;
    ask.http = b->http;
    ask.term = &b->term;
    ask.api_key = b->opt.api_key;
    ask.load_wait_us = 600 * (int64_t)1000000;
    ask.retries_max = 4;
    enum qr_ask_end end = QR_ASK_DONE;
    if (b->opt.model != NULL)
        qr_buf_put_str(&b->model, b->opt.model);
    else
        end = qr_ask_model(&ask, &b->model, NULL, err);
    int status = end == QR_ASK_DONE                                    ? 0
                 : end == QR_ASK_NO_CONNECT                            ? 3
                 : end == QR_ASK_NO_MODEL                              ? 4
                 : end == QR_ASK_INTERRUPTED || end == QR_ASK_KILLED   ? 128 + ask.signal
                                                                       : 1;
    if (status == 1 || status == 3 || status == 4)
        fprintf(stderr, "quire bench load: %s\n", err->msg);
    qr_ask_release(&ask);
    return status;
}

static int write_file(const char *path, const struct qr_buf *text, struct qr_err *err)
{
    const int rc = qr_file_put(path, text->data, text->len, err);
    return rc ? qr_err_prefix(err, "the figures above are complete, but ") : 0;
}

/* The table goes there: stdout, unless the JSON does. */
static int table_fd(const struct bench *b)
{
    return b->opt.json != NULL && strcmp(b->opt.json, "-") == 0 ? 2 : 1;
}

static int write_page(struct bench *b, struct qr_load_page *page, const char *held, struct qr_err *err)
{
    struct qr_buf html = {0};
    page->opt = &b->opt;
    page->target = &b->target;
    page->slo = &b->slo;
    page->held = held;
    page->wall_s = qr_clock_wall_s();
    qr_load_put_html(&html, page);
    int rc = write_file(b->opt.report, &html, err);
    qr_buf_release(&html);
    return rc;
}

/* Files and conditions. The page comes with what it shows. Returns an exit status. */
static int conclude(struct bench *b, const struct qr_buf *json, struct qr_load_page *page, int status)
{
    struct qr_buf held = {0};
    struct qr_err err;
    int rc = b->opt.json != NULL ? write_file(b->opt.json, json, &err) : 0;
    if (qr_load_conditions_held(&b->conditions, json, &held) > 0) {
        qr_term_write(2, held.data, held.len);
        status = status == 0 ? EXIT_CONDITION : status;
    }
    if (rc == 0 && b->opt.report != NULL)
        rc = write_page(b, page, qr_buf_text(&held), &err);
    if (rc != 0) {
        status = qr_command_fail(qr_bench_load_command.name, &err);
    }
    qr_buf_release(&held);
    return status;
}

/* A misspelt key is found before the run, in the report of an empty one. */
static int check_conditions(struct bench *b, struct qr_err *err)
{
    struct qr_buf json = {0};
    if (b->opt.sweep) {
        struct qr_load_sweep sweep;
        qr_load_sweep_empty(&sweep, &b->opt, &b->points, &b->slo, &b->target);
        qr_load_sweep_put_json(&json, &sweep);
        qr_load_sweep_release(&sweep);
    } else {
        struct qr_load_result *none = qr_alloc(1, sizeof *none);
        struct qr_load_figures f;
        qr_load_figures_init(&f, none, &b->slo);
        qr_load_put_json(&json, &f, none, &b->plan, &b->target);
        qr_load_figures_release(&f);
        qr_free(none);
    }
    int rc = qr_load_conditions_check(&b->conditions, &json, err);
    qr_buf_release(&json);
    return rc;
}

static int measure_one(struct bench *b)
{
    struct qr_load_result result;
    struct qr_load_figures f;
    struct qr_buf table = {0}, json = {0};
    int signal = b->opt.n_warmups > 0 ? qr_load_warm_up(&b->plan, &b->target, b->opt.n_warmups, 1, NULL) : 0;
    if (signal != 0)
        return 128 + signal;
    qr_load_run(&result, &b->plan, &b->target);
    qr_load_figures_init(&f, &result, &b->slo);
    qr_load_print(&table, &f, &result, &b->plan, &b->target);
    qr_term_write(table_fd(b), table.data, table.len);
    qr_load_put_json(&json, &f, &result, &b->plan, &b->target);
    struct qr_load_page page = {.plan = &b->plan, .result = &result, .figures = &f};
    int status = conclude(b, &json, &page, result.signal != 0 ? 128 + result.signal : result.n_records == 0 ? 1 : 0);
    qr_load_figures_release(&f);
    qr_load_result_release(&result);
    qr_buf_release(&table);
    qr_buf_release(&json);
    return status;
}

static int measure_sweep(struct bench *b)
{
    struct qr_load_sweep sweep;
    struct qr_buf json = {0};
    int64_t n = 0;
    qr_load_sweep_run(&sweep, &b->opt, &b->points, &b->slo, &b->target, table_fd(b));
    for (int32_t i = 0; i < sweep.n; i++)
        n += sweep.step[i].result.n_records;
    qr_load_sweep_put_json(&json, &sweep);
    struct qr_load_page page = {.sweep = &sweep};
    if (sweep.knee >= 0) {
        struct qr_load_step *step = &sweep.step[sweep.knee];
        page.plan = &step->plan;
        page.result = &step->result;
        page.figures = &step->figures;
    }
    int status = conclude(b, &json, &page, sweep.signal != 0 ? 128 + sweep.signal : n == 0 ? 1 : 0);
    qr_load_sweep_release(&sweep);
    qr_buf_release(&json);
    return status;
}

static int measure(struct bench *b, struct qr_err *err)
{
    int status = find_model(b, err);
    if (status != 0)
        return status;
    b->target = (struct qr_load_target){.loop = b->loop, .http = b->http, .term = &b->term, .model = qr_buf_text(&b->model),
                                        .api_key = b->opt.api_key};
    if (check_conditions(b, err) != 0) {
        fprintf(stderr, "quire bench load: %s\n", err->msg);
        return qr_err_exit_status(err->code);
    }
    return b->opt.sweep ? measure_sweep(b) : measure_one(b);
}

static int set_up(struct bench *b, struct qr_err *err)
{
    struct qr_http_url url;
    struct qr_http_limits limits = qr_http_limits_default;
    limits.idle_timeout_us = b->opt.timeout_us;
    if (b->opt.api_key == NULL)
        b->opt.api_key = getenv("OPENAI_API_KEY");
    int rc = qr_load_points_read(&b->points, &b->opt, err);
    if (rc == 0)
        rc = qr_load_slo_parse(&b->slo, &b->opt.slo, err);
    if (rc == 0)
        rc = qr_load_conditions_parse(&b->conditions, &b->opt.fail_if, err);
    if (rc == 0)
        rc = qr_load_plan_init(&b->plan, &b->opt, err);
    if (rc == 0 && b->opt.api_key != NULL)
        rc = qr_http_key_check(b->opt.api_key, err);
    if (rc == 0)
        rc = qr_http_url_parse(&url, b->opt.url, err);
    if (rc == 0)
        rc = qr_http_client_new(&b->http, b->loop, &url, &limits, err);
    return rc;
}

int qr_load_run_command(struct qr_command_run *r, struct qr_err *err)
{
    QR_ASSERT(r != NULL && err != NULL);
    QR_ASSERT(r->options != NULL);
    signal(SIGPIPE, SIG_IGN);
    struct bench b = {.opt = *(const struct qr_load_options *)r->options, .loop = qr_loop_new()};
    const int rc = set_up(&b, err);
    if (rc == 0) {
        qr_term_open(&b.term, QR_COLOUR_NEVER);
        r->status = measure(&b, err);
        qr_term_close(&b.term);
    }
    qr_http_client_free(b.http);
    qr_loop_free(b.loop);
    qr_load_plan_release(&b.plan);
    qr_buf_release(&b.model);
    return rc;
}
