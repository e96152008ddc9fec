/* parts.h - what the files of `quire bench load` share: the plan of requests, the run, the report. For bench/load*.c. The sweep
 * is in sweep.h. */
#ifndef QR_BENCH_LOAD_PARTS_H
#define QR_BENCH_LOAD_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/command.h"
#include "base/err.h"
#include "base/option.h"
#include "bench/samples.h"
#include "bench/trace.h"
#include "client/http_client.h"
#include "client/term.h"

/* ---- settings ---- */

struct qr_load_options {
    const char *url, *model, *api_key, *input_len, *output_len, *trace, *json, *report; /* borrowed from the option set */
    const char *users_text, *rate_text; /* as typed; qr_load_points_read makes numbers of them */
    int64_t users, n_requests, seed, vocab, prefix_len, input_max, output_max, n_warmups;
    int64_t duration_us, timeout_us, sweep_time_us;
    double rate, burstiness, trace_scale, abort_fraction, temperature, sweep_gain, slo_share;
    int32_t endpoint; /* even: completions, odd: chat */
    bool ignore_eos, detailed, progress, sweep;
    struct qr_str_list slo, fail_if;
};

/* --rate at this value means "all at once", or, with --users, a closed loop: what vLLM calls inf. */
#define QR_LOAD_RATE_INF 1e6

/* The command's work (load.c). */
int qr_load_run_command(struct qr_command_run *r, struct qr_err *err);

/* The loads of a sweep, in growing order: users, or requests per second. */
#define QR_LOAD_POINTS_MAX 32
struct qr_load_points {
    double v[QR_LOAD_POINTS_MAX];
    int32_t n;
    bool rates;
};

/* Makes numbers of --users and --rate: one of each into *opt; with --sweep the points are what is listed, or 1, 2, 4, ... up to --users
 * (256 when that is not given). QR_E_USAGE for what is no list of growing numbers, and for a list without --sweep. */
int qr_load_points_read(struct qr_load_points *p, struct qr_load_options *opt, struct qr_err *err);

/* ---- the plan ---- */

struct qr_load_request {
    int64_t index;
    int64_t at_us; /* after the start; -1 in a closed loop: when a user is free */
    int32_t n_prompt, n_new;
    int32_t abort_after; /* tokens after which the client walks away; -1: never */
};

struct qr_load_plan {
    const struct qr_load_options *opt; /* borrowed */
    struct qr_trace trace;             /* owned; n 0 without one */
    int64_t n_max;                     /* requests in all; INT64_MAX when only the duration ends it */
    int64_t next, n_clipped;           /* n_clipped: requests cut to the greatest lengths allowed */
    int32_t in_min, in_max, out_min, out_max, n_max_users;
    int64_t hard_stop_us; /* after the start: what still runs then is cut off and counted; 0: never */
    double clock_us;
    bool timed; /* the trace says when */
    bool open;  /* requests have times of their own, from the trace or from a rate */
};

/* Reads lengths, trace and limits. To be released even after an error. QR_E_USAGE, QR_E_NOT_FOUND, QR_E_DAMAGED. */
int qr_load_plan_init(struct qr_load_plan *p, const struct qr_load_options *opt, struct qr_err *err);
void qr_load_plan_release(struct qr_load_plan *p);

/* The next request; false when the plan is at its end. A function of the seed and the requests before only. */
bool qr_load_plan_next(struct qr_load_plan *p, struct qr_load_request *r);

/* Appends the request's body. Prompts are token ids (completions) or words (chat), a function of seed and index; a trace's hash ids give
 * token prompts the prefixes they had in common. */
void qr_load_body(struct qr_buf *out, const struct qr_load_plan *p, const char *model, const struct qr_load_request *r);

/* One inter-arrival time in units of the mean: gamma with that shape (1: exponential, a Poisson process) and mean 1. */
double qr_load_gamma(double shape, uint64_t seed, uint64_t stream);

/* ---- the run ---- */

/* Tokens and running requests over time in at most QR_LOAD_BUCKETS buckets of equal width, which doubles when they are full. */
#define QR_LOAD_BUCKETS 512
struct qr_load_timeline {
    int64_t begin_ns, width_ns, last_ns; /* last_ns: up to where running requests are counted */
    int32_t n, n_running;
    int64_t n_tokens[QR_LOAD_BUCKETS];
    double running_ns[QR_LOAD_BUCKETS]; /* running requests summed over time: divided by the width, their mean */
};

void qr_load_timeline_init(struct qr_load_timeline *t, int64_t begin_ns);
void qr_load_timeline_token(struct qr_load_timeline *t, int64_t now_ns);
void qr_load_timeline_running(struct qr_load_timeline *t, int64_t now_ns, int32_t n_running); /* from now on */

#define QR_LOAD_ERRORS_MAX 24

struct qr_load_error {
    char name[40], example[160];
    int64_t n;
};

struct qr_load_record {       /* of one request that succeeded */
    int64_t intended_ns, sent_ns, first_ns, last_ns;
    int32_t n_prompt, n_cached, n_out; /* n_cached: of the prompt, as the server reports it; 0 when it does not */
};

struct qr_load_result {
    struct qr_load_record *record; /* owned [cap] */
    int64_t n_records, cap;
    struct qr_samples itl;         /* ms, every gap between token events, all requests pooled */
    int64_t n_joined;              /* of these gaps: 0, both events came in one read */
    int64_t n_events;              /* token events of the recorded requests */
    struct qr_load_error error[QR_LOAD_ERRORS_MAX];
    int32_t n_errors, peak_running;
    struct qr_load_timeline timeline;
    int64_t n_started, n_failed, n_aborted, n_unfinished, n_short, n_late, n_timed; /* n_timed: sends that had a time of their own */
    int64_t worst_late_ns, begin_ns, end_ns;
    int64_t *second;               /* owned: output tokens in each second since begin */
    int64_t n_seconds;
    double cpu_s;
    int32_t signal;
    bool usage_missing;            /* some answer had no usage: its token events were counted instead */
};

struct qr_load_target {
    struct qr_loop *loop;        /* borrowed */
    struct qr_http_client *http; /* borrowed */
    struct qr_term *term;        /* borrowed */
    const char *model, *api_key; /* borrowed */
};

/* Sends the whole plan and waits for its answers, or until a signal. */
void qr_load_run(struct qr_load_result *out, struct qr_load_plan *plan, const struct qr_load_target *target);

/* Sends n requests at `users` at once, which no figure counts, as the plan would but with other prompts: the measured
 * ones must not find themselves in a prefix cache. Returns the signal that ended it, or 0. *rate: requests answered per
 * second; may be NULL. */
int qr_load_warm_up(const struct qr_load_plan *plan, const struct qr_load_target *target, int64_t n, int32_t users, double *rate);
void qr_load_result_release(struct qr_load_result *r);

/* ---- the report ---- */

struct qr_load_slo {
    double ttft_ms, tpot_ms, e2el_ms; /* negative: none */
};

/* "ttft:200ms", "tpot:50,e2el:5s": a bare number is milliseconds, as in vLLM's --goodput. */
int qr_load_slo_parse(struct qr_load_slo *slo, const struct qr_str_list *list, struct qr_err *err);

struct qr_load_figures {
    struct qr_samples ttft, e2el;           /* ms from the intended send */
    struct qr_samples ttft_sent, e2el_sent; /* ms from the actual send */
    struct qr_samples tpot;                 /* ms */
    struct qr_load_slo slo;
    double duration_s;
    double slo_share; /* good requests of all that were completed, failed or cut off; 1 without any request */
    int64_t n_input, n_cached, n_output, n_good, peak_tokens_per_s;
};

void qr_load_figures_init(struct qr_load_figures *f, const struct qr_load_result *r, const struct qr_load_slo *slo);
void qr_load_figures_release(struct qr_load_figures *f);

/* The table for people. */
void qr_load_print(struct qr_buf *out, struct qr_load_figures *f, struct qr_load_result *r, const struct qr_load_plan *plan,
                   const struct qr_load_target *target);

/* "TTFT <= 200 ms, E2E <= 5000 ms" */
void qr_load_put_slo(struct qr_buf *out, const struct qr_load_slo *slo);

/* What every figure means, one a line. */
extern const char qr_load_definitions[];

/* Decimals of a time in ms: below 1 ms two would say too little. */
int32_t qr_load_decimals(double ms);

/* 0 when no time passed. */
double qr_load_per_second(int64_t n, double s);

/* `,"key":value` */
void qr_load_put_num(struct qr_buf *out, const char *key, double v);
void qr_load_put_text(struct qr_buf *out, const char *key, const char *v);

/* What the client did and what to beware of, a line each. */
void qr_load_put_remarks(struct qr_buf *out, const struct qr_load_result *r, const struct qr_load_plan *plan, double duration_s);

/* Server, model and version: how every report's JSON begins (without its closing brace). */
void qr_load_put_identity(struct qr_buf *out, const struct qr_load_options *opt, const struct qr_load_slo *slo,
                          const struct qr_load_target *target);

/* "http://host:port, model NAME, completions" for a terminal, and a line end. */
void qr_load_put_target(struct qr_buf *out, const struct qr_load_target *target, const struct qr_load_options *opt);

/* "open loop, 5 requests/s, ..." and the lengths. */
void qr_load_put_load(struct qr_buf *out, const struct qr_load_plan *plan);

/* One JSON object with vLLM's key names, and ours beside them. */
void qr_load_put_json(struct qr_buf *out, struct qr_load_figures *f, struct qr_load_result *r, const struct qr_load_plan *plan,
                      const struct qr_load_target *target);

/* ---- conditions ---- */

#define QR_LOAD_CONDITIONS_MAX 32
struct qr_load_condition {
    const char *text; /* borrowed from the option set */
    char key[80];
    bool less, or_equal;
    double limit;
};

struct qr_load_conditions {
    struct qr_load_condition c[QR_LOAD_CONDITIONS_MAX];
    int32_t n;
};

/* "p99_ttft_ms>250"; operators < > <= >=. QR_E_USAGE. */
int qr_load_conditions_parse(struct qr_load_conditions *c, const struct qr_str_list *list, struct qr_err *err);

/* Every key must be a number of the report (null counts, unless it is the goodput without an SLO); called with an empty run's report, so
 * that a wrong name is found before an hour was measured. QR_E_USAGE names the nearest key. */
int qr_load_conditions_check(const struct qr_load_conditions *c, const struct qr_buf *report, struct qr_err *err);

/* Appends a line for each condition that holds, or whose figure has no value; returns their number. */
int32_t qr_load_conditions_held(const struct qr_load_conditions *c, const struct qr_buf *report, struct qr_buf *out);

#endif
