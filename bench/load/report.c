/* report.c - from records to figures, the table and the JSON (see parts.h). Every figure's formula is printed with it.
 * Percentiles are exact: nothing is binned. Failed and cut answers are counted apart and enter no latency. Pure
 * functions of the records; main thread, at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "bench/load/parts.h"

#define BURST_SHARE 0.1 /* from this share of tokens on, what is odd about their times is said */

/* ---- figures ---- */

/* "200", "200ms", "0.2s", "1m": milliseconds; false when it is none of these up to `n` characters. */
static bool parse_ms(const char *text, size_t n, double *ms)
{
    static const struct {
        const char *unit;
        double ms;
    } units[] = {{"", 1}, {"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"us", 1e-3}};
    char *end;
    double v = strtod(text, &end);
    size_t left = end != text && end <= text + n ? n - (size_t)(end - text) : SIZE_MAX;
    for (int i = 0; i < QR_COUNT(units); i++)
        if (strlen(units[i].unit) == left && memcmp(end, units[i].unit, left) == 0) {
            *ms = v * units[i].ms;
            return v >= 0 && *ms < 1e12;
        }
    return false;
}

static int parse_limit(struct qr_load_slo *slo, const char *text, size_t n, struct qr_err *err)
{
    const struct {
        const char *name;
        double *ms;
    } limits[] = {{"ttft:", &slo->ttft_ms}, {"tpot:", &slo->tpot_ms}, {"e2el:", &slo->e2el_ms}};
    for (int i = 0; i < QR_COUNT(limits); i++)
        if (n > 5 && memcmp(text, limits[i].name, 5) == 0 && parse_ms(text + 5, n - 5, limits[i].ms))
            return 0;
    return qr_err_set(err, QR_E_USAGE, "--slo (--goodput): '%.*s' is not of the form ttft:TIME, tpot:TIME or e2el:TIME, as ttft:200ms",
                      n < 60 ? (int)n : 60, text);
}

int qr_load_slo_parse(struct qr_load_slo *slo, const struct qr_str_list *list, struct qr_err *err)
{
    QR_ASSERT(slo != NULL);
    QR_ASSERT(list != NULL);
    *slo = (struct qr_load_slo){-1, -1, -1};
    for (int32_t i = 0; i < list->n; i++)
        for (const char *at = list->item[i];; at++) {
            size_t n = strcspn(at, ",");
            int rc = parse_limit(slo, at, n, err);
            if (rc != 0)
                return rc;
            at += n;
            if (*at == '\0')
                break;
        }
    return 0;
}

static double ms_between(int64_t from_ns, int64_t to_ns)
{
    return (double)(to_ns - from_ns) / 1e6;
}

void qr_load_figures_init(struct qr_load_figures *f, const struct qr_load_result *r, const struct qr_load_slo *slo)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(r != NULL && slo != NULL);
    *f = (struct qr_load_figures){.slo = *slo, .duration_s = (double)(r->end_ns - r->begin_ns) / 1e9};
    for (int64_t i = 0; i < r->n_records; i++) {
        const struct qr_load_record *q = &r->record[i];
        double ttft = ms_between(q->intended_ns, q->first_ns), e2el = ms_between(q->intended_ns, q->last_ns), tpot = 0;
        if (q->n_out > 1) {
            tpot = ms_between(q->first_ns, q->last_ns) / (q->n_out - 1);
            qr_samples_add(&f->tpot, tpot);
        }
        qr_samples_add(&f->ttft, ttft);
        qr_samples_add(&f->e2el, e2el);
        qr_samples_add(&f->ttft_sent, ms_between(q->sent_ns, q->first_ns));
        qr_samples_add(&f->e2el_sent, ms_between(q->sent_ns, q->last_ns));
        f->n_input += q->n_prompt;
        f->n_cached += q->n_cached;
        f->n_output += q->n_out;
        f->n_good += (slo->ttft_ms < 0 || ttft <= slo->ttft_ms) && (slo->tpot_ms < 0 || tpot <= slo->tpot_ms) &&
                     (slo->e2el_ms < 0 || e2el <= slo->e2el_ms);
    }
    int64_t n_all = r->n_records + r->n_failed + r->n_unfinished;
    f->slo_share = n_all > 0 ? (double)f->n_good / (double)n_all : 1;
    for (int64_t i = 0; i < r->n_seconds; i++)
        f->peak_tokens_per_s = r->second[i] > f->peak_tokens_per_s ? r->second[i] : f->peak_tokens_per_s;
}

void qr_load_figures_release(struct qr_load_figures *f)
{
    qr_samples_release(&f->ttft);
    qr_samples_release(&f->e2el);
    qr_samples_release(&f->ttft_sent);
    qr_samples_release(&f->e2el_sent);
    qr_samples_release(&f->tpot);
}

/* ---- the table ---- */

int32_t qr_load_decimals(double ms)
{
    return ms < 1 ? 3 : 2;
}

double qr_load_per_second(int64_t n, double s)
{
    return s > 0 ? (double)n / s : 0;
}

void qr_load_put_load(struct qr_buf *out, const struct qr_load_plan *plan)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(plan != NULL);
    const struct qr_load_options *opt = plan->opt;
    if (plan->timed)
        qr_buf_printf(out, "trace %s, times x %g", opt->trace, opt->trace_scale);
    else if (plan->open)
        qr_buf_printf(out, "open loop, %g requests/s, burstiness %g", opt->rate, opt->burstiness);
    else
        qr_buf_printf(out, "closed loop");
    if (plan->n_max_users < INT32_MAX)
        qr_buf_printf(out, ", %s%d users", plan->open ? "at most " : "", plan->n_max_users);
    if (plan->trace.n > 0 && !plan->timed)
        qr_buf_printf(out, ", lengths from %s", opt->trace);
    else if (plan->trace.n == 0)
        qr_buf_printf(out, ", input %s, output %s tokens", opt->input_len, opt->output_len);
    qr_buf_printf(out, ", seed %lld", (long long)opt->seed);
}

void qr_load_put_target(struct qr_buf *out, const struct qr_load_target *target, const struct qr_load_options *opt)
{
    QR_ASSERT(out != NULL && target != NULL);
    QR_ASSERT(opt != NULL);
    qr_buf_printf(out, "%s, model ", qr_http_client_name(target->http));
    qr_buf_put_visible(out, target->model, strlen(target->model)); /* a server may call it anything */
    qr_buf_put_str(out, opt->endpoint % 2 == 0 ? ", completions\n" : ", chat completions\n");
}

static void put_what(struct qr_buf *out, const struct qr_load_plan *plan, const struct qr_load_target *target)
{
    qr_buf_put_str(out, "quire bench load: ");
    qr_load_put_target(out, target, plan->opt);
    qr_buf_put_str(out, "load        ");
    qr_load_put_load(out, plan);
    qr_buf_put_byte(out, '\n');
}

void qr_load_put_slo(struct qr_buf *out, const struct qr_load_slo *slo)
{
    static const char *const names[] = {"TTFT", "TPOT", "E2E"};
    QR_ASSERT(out != NULL);
    QR_ASSERT(slo != NULL);
    const double limits[] = {slo->ttft_ms, slo->tpot_ms, slo->e2el_ms};
    for (int i = 0, n = 0; i < QR_COUNT(limits); i++)
        if (limits[i] >= 0)
            qr_buf_printf(out, "%s%s <= %g ms", n++ > 0 ? ", " : "", names[i], limits[i]);
}

static void put_row(struct qr_buf *out, const char *name, struct qr_samples *s)
{
    if (s->n == 0) {
        qr_buf_printf(out, "%-12s         -  (no samples)\n", name);
        return;
    }
    const double v[] = {qr_samples_mean(s), qr_samples_std(s), qr_samples_percentile(s, 50), qr_samples_percentile(s, 90),
                        qr_samples_percentile(s, 99), qr_samples_percentile(s, 100)};
    qr_buf_printf(out, "%-12s", name);
    for (int i = 0; i < QR_COUNT(v); i++)
        qr_buf_printf(out, " %9.*f", qr_load_decimals(v[0]), v[i]);
    qr_buf_printf(out, " %9zu\n", s->n);
}

static void put_errors(struct qr_buf *out, const struct qr_load_result *r)
{
    for (int32_t i = 0; i < r->n_errors; i++) {
        qr_buf_printf(out, "  %lld x %s: ", (long long)r->error[i].n, r->error[i].name);
        qr_buf_put_visible(out, r->error[i].example, strcspn(r->error[i].example, "\n"));
        qr_buf_put_byte(out, '\n');
    }
}

/* Why times between tokens are not what they seem. */
static void put_token_remarks(struct qr_buf *out, const struct qr_load_result *r)
{
    int64_t n_output = 0;
    for (int64_t i = 0; i < r->n_records; i++)
        n_output += r->record[i].n_out;
    if ((double)r->n_joined > BURST_SHARE * (double)r->itl.n)
        qr_buf_printf(out,
                      "note: %.0f %% of the token events came in one read with the one before (0 ms in ITL): tokens are made faster than they are "
                      "sent and read\n",
                      100 * (double)r->n_joined / (double)r->itl.n);
    if ((double)(n_output - r->n_events) > BURST_SHARE * (double)n_output)
        qr_buf_printf(out,
                      "note: %lld output tokens, %lld token events: special tokens and parts of characters have no event; TPOT counts tokens, ITL "
                      "events\n",
                      (long long)n_output, (long long)r->n_events);
}

void qr_load_put_remarks(struct qr_buf *out, const struct qr_load_result *r, const struct qr_load_plan *plan, double duration_s)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(r != NULL && plan != NULL);
    if (r->n_timed > 0)
        qr_buf_printf(out, "sends       %lld of %lld more than 5 ms late, the worst %.2f ms; client used %.0f %% of one core\n",
                      (long long)r->n_late, (long long)r->n_timed, (double)r->worst_late_ns / 1e6,
                      duration_s > 0 ? 100 * r->cpu_s / duration_s : 0);
    else
        qr_buf_printf(out, "client      used %.0f %% of one core\n", duration_s > 0 ? 100 * r->cpu_s / duration_s : 0);
    if (r->n_late * 100 > r->n_timed)
        qr_buf_put_str(out, "warning: more than 1 % of the sends were late: this client is the bottleneck, not the server\n");
    put_token_remarks(out, r);
    if (r->n_short > 0)
        qr_buf_printf(out, "warning: %lld answers were shorter than asked (does the server honour ignore_eos?)\n", (long long)r->n_short);
    if (r->usage_missing)
        qr_buf_put_str(out, "warning: the server sent no usage; output tokens are counted as stream events\n");
    if (plan->n_clipped > 0)
        qr_buf_printf(out, "warning: %lld lengths were cut to --max-input-len or --max-output-len\n", (long long)plan->n_clipped);
    if (r->signal != 0)
        qr_buf_put_str(out, "warning: stopped by a signal; requests that were running are left out\n");
    else if (r->n_unfinished > 0)
        qr_buf_printf(out, "warning: %lld requests were cut off at the step's end\n", (long long)r->n_unfinished);
}

const char qr_load_definitions[] =
    "  TTFT  first token's arrival - intended send; of an answer without any text, its first event's\n"
    "  TPOT  (last token's arrival - first token's) / (output tokens - 1), per request with 2 tokens or more\n"
    "  ITL   gap between two neighbouring token events of one answer; all gaps of all requests pooled\n"
    "  E2E   last token's arrival - intended send\n"
    "  The last token arrives with the event that has the finish reason: tokens without text before it have no event of their own.\n"
    "  Intended send: the schedule's moment in an open loop; in a closed loop, when its user became free. \"sent\": from the moment the\n"
    "  request's bytes went to the kernel. Percentiles interpolate between neighbours. Failed and abandoned requests are left out.\n"
    "  Goodput: requests per second that met every limit of the SLO; its share is of all requests that were completed, failed or cut off.\n";

void qr_load_print(struct qr_buf *out, struct qr_load_figures *f, struct qr_load_result *r, const struct qr_load_plan *plan,
                   const struct qr_load_target *target)
{
    QR_ASSERT(out != NULL && f != NULL);
    QR_ASSERT(r != NULL && plan != NULL && target != NULL);
    put_what(out, plan, target);
    qr_buf_printf(out, "requests    %lld completed, %lld failed, %lld abandoned in %.2f s; %.2f requests/s; %d at once at most\n",
                  (long long)r->n_records, (long long)r->n_failed, (long long)r->n_aborted, f->duration_s,
                  qr_load_per_second(r->n_records, f->duration_s), r->peak_running);
    put_errors(out, r);
    qr_buf_printf(out, "tokens      %lld in (%.1f/s; %lld of them cached), %lld out (%.1f/s, in the best second %lld token events)\n",
                  (long long)f->n_input, qr_load_per_second(f->n_input, f->duration_s), (long long)f->n_cached,
                  (long long)f->n_output, qr_load_per_second(f->n_output, f->duration_s), (long long)f->peak_tokens_per_s);
    if (plan->opt->slo.n > 0) {
        qr_buf_printf(out, "goodput     %.2f requests/s met the SLO (", qr_load_per_second(f->n_good, f->duration_s));
        qr_load_put_slo(out, &f->slo);
        qr_buf_printf(out, "): %lld of %lld, %.1f %%\n", (long long)f->n_good, (long long)(r->n_records + r->n_failed + r->n_unfinished),
                      100 * f->slo_share);
    }
    qr_buf_put_str(out, "\nms                mean       std       p50       p90       p99       max         n\n");
    put_row(out, "TTFT", &f->ttft);
    put_row(out, "TPOT", &f->tpot);
    put_row(out, "ITL", &r->itl);
    put_row(out, "E2E", &f->e2el);
    put_row(out, "TTFT sent", &f->ttft_sent);
    put_row(out, "E2E sent", &f->e2el_sent);
    qr_buf_put_str(out, qr_load_definitions);
    qr_load_put_remarks(out, r, plan, f->duration_s);
}

/* ---- JSON ---- */

void qr_load_put_num(struct qr_buf *out, const char *key, double v)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(key != NULL);
    qr_buf_printf(out, ",\"%s\":", key);
    qr_json_put_f64(out, v);
}

void qr_load_put_text(struct qr_buf *out, const char *key, const char *v)
{
    QR_ASSERT(out != NULL && key != NULL);
    QR_ASSERT(v != NULL);
    qr_buf_printf(out, ",\"%s\":", key);
    qr_json_put_str(out, v, strlen(v));
}

static void put_stats(struct qr_buf *out, const char *name, struct qr_samples *s)
{
    static const double p[] = {50, 90, 95, 99};
    char key[64];
    snprintf(key, sizeof key, "mean_%s_ms", name);
    qr_load_put_num(out, key, qr_samples_mean(s));
    snprintf(key, sizeof key, "median_%s_ms", name);
    qr_load_put_num(out, key, qr_samples_percentile(s, 50));
    snprintf(key, sizeof key, "std_%s_ms", name);
    qr_load_put_num(out, key, qr_samples_std(s));
    for (int i = 0; i < QR_COUNT(p); i++) {
        snprintf(key, sizeof key, "p%.0f_%s_ms", p[i], name);
        qr_load_put_num(out, key, qr_samples_percentile(s, p[i]));
    }
    snprintf(key, sizeof key, "max_%s_ms", name);
    qr_load_put_num(out, key, qr_samples_percentile(s, 100));
}

/* Per-request arrays, in the order of completion; times in seconds, as vLLM writes them. */
static void put_details(struct qr_buf *out, const struct qr_load_result *r)
{
    static const char *const keys[] = {"input_lens", "output_lens", "ttfts", "e2els", "start_times"};
    for (int k = 0; k < QR_COUNT(keys); k++) {
        qr_buf_printf(out, ",\"%s\":[", keys[k]);
        for (int64_t i = 0; i < r->n_records; i++) {
            const struct qr_load_record *q = &r->record[i];
            const double v[] = {q->n_prompt, q->n_out, ms_between(q->intended_ns, q->first_ns) / 1e3,
                                ms_between(q->intended_ns, q->last_ns) / 1e3, ms_between(r->begin_ns, q->intended_ns) / 1e3};
            qr_buf_put_str(out, i > 0 ? "," : "");
            qr_json_put_f64(out, v[k]);
        }
        qr_buf_put_byte(out, ']');
    }
}

static void put_json_errors(struct qr_buf *out, const struct qr_load_result *r)
{
    qr_buf_put_str(out, ",\"errors_by_class\":{");
    for (int32_t i = 0; i < r->n_errors; i++) {
        qr_buf_put_str(out, i > 0 ? "," : "");
        qr_json_put_str(out, r->error[i].name, strlen(r->error[i].name));
        qr_buf_printf(out, ":%lld", (long long)r->error[i].n);
    }
    qr_buf_put_byte(out, '}');
}

void qr_load_put_identity(struct qr_buf *out, const struct qr_load_options *opt, const struct qr_load_slo *slo,
                          const struct qr_load_target *target)
{
    static const char *const names[] = {"ttft_ms", "tpot_ms", "e2el_ms"};
    QR_ASSERT(out != NULL && opt != NULL);
    QR_ASSERT(slo != NULL && target != NULL);
    const double limits[] = {slo->ttft_ms, slo->tpot_ms, slo->e2el_ms};
    qr_buf_put_str(out, "{\"backend\":\"openai\"");
    qr_load_put_text(out, "model_id", target->model);
    qr_load_put_text(out, "base_url", qr_http_client_name(target->http));
    qr_load_put_text(out, "quire_version", QUIRE_VERSION);
    qr_load_put_num(out, "seed", (double)opt->seed);
    qr_buf_put_str(out, ",\"slo\":{");
    for (int i = 0, n = 0; i < QR_COUNT(names); i++)
        if (limits[i] >= 0)
            qr_buf_printf(out, "%s\"%s\":%.10g", n++ > 0 ? "," : "", names[i], limits[i]);
    qr_buf_put_byte(out, '}');
}

static void put_settings(struct qr_buf *out, const struct qr_load_plan *plan)
{
    const struct qr_load_options *opt = plan->opt;
    qr_load_put_num(out, "burstiness", opt->burstiness);
    if (plan->open && !plan->timed)
        qr_load_put_num(out, "request_rate", opt->rate);
    else
        qr_load_put_text(out, "request_rate", plan->open ? "trace" : "inf");
    qr_buf_put_str(out, ",\"max_concurrency\":");
    if (plan->n_max_users < INT32_MAX)
        qr_buf_put_i64(out, plan->n_max_users);
    else
        qr_buf_put_str(out, "null");
}

void qr_load_put_json(struct qr_buf *out, struct qr_load_figures *f, struct qr_load_result *r, const struct qr_load_plan *plan,
                      const struct qr_load_target *target)
{
    QR_ASSERT(out != NULL && f != NULL);
    QR_ASSERT(r != NULL && plan != NULL && target != NULL);
    qr_load_put_identity(out, plan->opt, &f->slo, target);
    put_settings(out, plan);
    qr_load_put_num(out, "num_prompts", (double)r->n_started);
    qr_load_put_num(out, "duration", f->duration_s);
    qr_load_put_num(out, "completed", (double)r->n_records);
    qr_load_put_num(out, "failed", (double)r->n_failed);
    qr_load_put_num(out, "abandoned", (double)r->n_aborted);
    qr_load_put_num(out, "unfinished", (double)r->n_unfinished);
    qr_load_put_num(out, "total_input_tokens", (double)f->n_input);
    qr_load_put_num(out, "cached_input_tokens", (double)f->n_cached);
    qr_load_put_num(out, "total_output_tokens", (double)f->n_output);
    qr_load_put_num(out, "request_throughput", qr_load_per_second(r->n_records, f->duration_s));
    if (plan->opt->slo.n > 0) {
        qr_load_put_num(out, "request_goodput", qr_load_per_second(f->n_good, f->duration_s));
        qr_load_put_num(out, "good_requests", (double)f->n_good);
        qr_load_put_num(out, "slo_share", f->slo_share);
    } else
        qr_buf_put_str(out, ",\"request_goodput\":null,\"good_requests\":null,\"slo_share\":null");
    qr_load_put_num(out, "output_throughput", qr_load_per_second(f->n_output, f->duration_s));
    qr_load_put_num(out, "total_token_throughput", qr_load_per_second(f->n_input + f->n_output, f->duration_s));
    qr_load_put_num(out, "max_output_tokens_per_s", (double)f->peak_tokens_per_s);
    qr_load_put_num(out, "max_concurrent_requests", r->peak_running);
    put_stats(out, "ttft", &f->ttft);
    put_stats(out, "tpot", &f->tpot);
    put_stats(out, "itl", &r->itl);
    put_stats(out, "e2el", &f->e2el);
    put_stats(out, "ttft_from_send", &f->ttft_sent);
    put_stats(out, "e2el_from_send", &f->e2el_sent);
    qr_load_put_num(out, "late_sends", (double)r->n_late);
    qr_load_put_num(out, "timed_sends", (double)r->n_timed);
    qr_load_put_num(out, "worst_late_ms", (double)r->worst_late_ns / 1e6);
    qr_load_put_num(out, "client_cpu_seconds", r->cpu_s);
    put_json_errors(out, r);
    if (plan->opt->detailed)
        put_details(out, r);
    qr_load_put_text(out, "definitions", qr_load_definitions);
    qr_buf_put_str(out, "}\n");
}
