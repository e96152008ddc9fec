/* sweep.c - the same requests at a growing load (see sweep.h). Each step has its own uncounted requests and ends with
 * its last answer. It stops by the rules that sweep.h lists, and finds the knee among what was measured. Main thread.
 */
#include "bench/load/sweep.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "client/chunk.h"

#define STEP_US ((int64_t)30000000) /* a step's length when --duration does not say */
#define HARD_STOP 3                 /* times that, and what still runs is cut off */
#define WAVES 4                     /* requests of each user in a step */
#define REQUESTS_MIN 16
#define STEP_MIN_S 2.0 /* a step takes so long at least, going by the rate of its warm-up */
#define WARM_USERS_MAX 64
#define SEED_STRIDE 2 /* a step and its warm-up have seeds of their own: no step finds its prompts in the prefix cache */

/* ---- the rules ---- */

double qr_load_gain(const struct qr_load_point *p, int32_t i)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(i >= 0);
    if (i == 0 || p[i - 1].output_per_s <= 0)
        return NAN;
    QR_ASSERT(p[i].load > p[i - 1].load);
    return (p[i].output_per_s / p[i - 1].output_per_s - 1) / (p[i].load / p[i - 1].load - 1);
}

enum qr_load_verdict qr_load_judge(const struct qr_load_point *p, int32_t n, const struct qr_load_rule *rule)
{
    QR_ASSERT(p != NULL && rule != NULL);
    QR_ASSERT(n > 0);
    const struct qr_load_point *now = &p[n - 1], *last = n > 1 ? &p[n - 2] : now;
    bool slower = now->ttft_p50_ms > QR_LOAD_GROWTH * last->ttft_p50_ms || now->e2el_p50_ms > QR_LOAD_GROWTH * last->e2el_p50_ms;
    return now->lost_share > QR_LOAD_LOST_MAX                     ? QR_LOAD_FAILING
           : now->slo_share < rule->slo_share                     ? QR_LOAD_SLO_BROKEN
           : n > 1 && slower && qr_load_gain(p, n - 1) < rule->gain ? QR_LOAD_SATURATED
                                                                  : QR_LOAD_GO_ON;
}

/* Of the steps that lost nothing to speak of. */
static double best_output(const struct qr_load_point *p, int32_t n)
{
    double best = 0;
    for (int32_t i = 0; i < n; i++)
        if (p[i].lost_share <= QR_LOAD_LOST_MAX && p[i].output_per_s > best)
            best = p[i].output_per_s;
    return best;
}

int32_t qr_load_knee(const struct qr_load_point *p, int32_t n)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(n >= 0);
    const double best = best_output(p, n);
    for (int32_t i = 0; i < n && best > 0; i++)
        if (p[i].lost_share <= QR_LOAD_LOST_MAX && p[i].output_per_s >= QR_LOAD_KNEE_SHARE * best)
            return i;
    return -1;
}

int32_t qr_load_slo_step(const struct qr_load_point *p, int32_t n, const struct qr_load_rule *rule)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(rule != NULL);
    while (n > 0 && (p[n - 1].lost_share > QR_LOAD_LOST_MAX || p[n - 1].slo_share < rule->slo_share))
        n--;
    return n - 1;
}

/* ---- steps ---- */

static void init(struct qr_load_sweep *s, const struct qr_load_options *opt, const struct qr_load_points *loads, const struct qr_load_slo *slo,
                 const struct qr_load_target *target)
{
    QR_ASSERT(s != NULL && opt != NULL && slo != NULL && target != NULL);
    QR_ASSERT(loads->n > 0 && loads->n <= QR_LOAD_POINTS_MAX);
    *s = (struct qr_load_sweep){.opt = opt, .target = target, .loads = loads, .slo = *slo, .knee = -1, .slo_step = -1,
                                .rule = {opt->sweep_gain, opt->slo.n > 0 ? opt->slo_share : 0}};
    s->step = qr_alloc(QR_LOAD_POINTS_MAX, sizeof *s->step);
}

static void init_step(struct qr_load_step *step, const struct qr_load_sweep *s, int32_t i)
{
    struct qr_err err;
    double load = s->loads->v[i];
    step->opt = *s->opt;
    step->opt.seed += i * SEED_STRIDE;
    if (s->loads->rates)
        step->opt.rate = load;
    else
        step->opt.users = (int64_t)load;
    if (step->opt.duration_us == 0)
        step->opt.duration_us = STEP_US;
    int rc = qr_load_plan_init(&step->plan, &step->opt, &err);
    QR_ASSERT(rc == 0); /* the same texts were read before the first step */
    step->plan.hard_stop_us = HARD_STOP * step->opt.duration_us;
}

static struct qr_load_point to_point(struct qr_load_step *step, double load, bool has_slo)
{
    struct qr_load_figures *f = &step->figures;
    const struct qr_load_result *r = &step->result;
    int64_t n_lost = r->n_failed + r->n_unfinished, n = r->n_records + n_lost;
    return (struct qr_load_point){.load = load, .output_per_s = qr_load_per_second(f->n_output, f->duration_s),
                                  .ttft_p50_ms = qr_samples_percentile(&f->ttft, 50), .e2el_p50_ms = qr_samples_percentile(&f->e2el, 50),
                                  .lost_share = n > 0 ? (double)n_lost / (double)n : 0, .slo_share = has_slo ? f->slo_share : 1};
}

/* How many requests a step of a closed loop sends by default. */
static int64_t requests_of(int32_t users, double warm_rate)
{
    int64_t n = (int64_t)users * WAVES, n_fast = (int64_t)(warm_rate * STEP_MIN_S);
    n = n > REQUESTS_MIN ? n : REQUESTS_MIN;
    return n > n_fast ? n : n_fast;
}

/* False when a signal came before the step was measured. */
static bool run_step(struct qr_load_sweep *s, int32_t i)
{
    struct qr_load_step *step = &s->step[i];
    init_step(step, s, i);
    int32_t users = s->loads->rates ? WAVES : step->plan.n_max_users < WARM_USERS_MAX ? step->plan.n_max_users : WARM_USERS_MAX;
    double rate;
    s->signal = qr_load_warm_up(&step->plan, s->target, s->opt->n_warmups > 0 ? s->opt->n_warmups : users, users, &rate);
    if (s->opt->n_requests == 0 && s->opt->duration_us == 0 && !s->loads->rates)
        step->plan.n_max = requests_of(step->plan.n_max_users, rate);
    if (s->signal != 0)
        return false;
    qr_load_run(&step->result, &step->plan, s->target);
    qr_load_figures_init(&step->figures, &step->result, &s->slo);
    s->point[i] = to_point(step, s->loads->v[i], s->opt->slo.n > 0);
    s->signal = step->result.signal;
    return true;
}

/* ---- words ---- */

void qr_load_sweep_put_load(struct qr_buf *out, const struct qr_load_sweep *s, double load)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(s != NULL);
    qr_buf_printf(out, s->loads->rates ? "%g requests/s" : load == 1 ? "%g user" : "%g users", load);
}

void qr_load_sweep_put_rule(struct qr_buf *out, const struct qr_load_sweep *s)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(s != NULL);
    qr_buf_printf(out,
                  "The sweep ends when the throughput grows by less than %g %% of what the load grows by while the median of TTFT or E2E grows\n"
                  "by more than %.0f %%; or when more than %g %% of a step's requests fail or are cut off",
                  100 * s->rule.gain, 100 * (QR_LOAD_GROWTH - 1), 100 * QR_LOAD_LOST_MAX);
    if (s->opt->slo.n > 0) {
        qr_buf_printf(out, "; or when less than %g %% of them meet\nthe SLO (", 100 * s->rule.slo_share);
        qr_load_put_slo(out, &s->slo);
        qr_buf_put_byte(out, ')');
    }
    qr_buf_printf(out, ".\nThe knee is the smallest load that reaches %g %% of the best throughput.\n", 100 * QR_LOAD_KNEE_SHARE);
}

static void put_head(struct qr_buf *out, const struct qr_load_sweep *s)
{
    const struct qr_load_options *opt = s->opt;
    qr_buf_put_str(out, "quire bench load --sweep: ");
    qr_load_put_target(out, s->target, opt);
    qr_buf_printf(out, "load        %s, input %s, output %s tokens, seed %lld\n", s->loads->rates ? "open loop" : "closed loop", opt->input_len,
                  opt->output_len, (long long)opt->seed);
    qr_load_sweep_put_rule(out, s);
    qr_buf_printf(out, "\n%8s %7s %5s %8s %10s %6s %9s %9s %9s %9s %9s %9s %7s\n", s->loads->rates ? "rate" : "users", "answers", "lost", "req/s",
                  "out tok/s", "gain", "TTFT p50", "TTFT p99", "TPOT p50", "ITL p99", "E2E p50", "goodput/s", "in SLO");
}

static void put_row(struct qr_buf *out, const struct qr_load_sweep *s, int32_t i)
{
    struct qr_load_step *step = &s->step[i];
    struct qr_load_figures *f = &step->figures;
    double gain = qr_load_gain(s->point, i);
    char gain_text[16] = "-", goodput[16] = "-", share[16] = "-";
    if (isfinite(gain))
        snprintf(gain_text, sizeof gain_text, "%.0f %%", 100 * gain);
    if (s->opt->slo.n > 0) {
        snprintf(goodput, sizeof goodput, "%.2f", qr_load_per_second(f->n_good, f->duration_s));
        snprintf(share, sizeof share, "%.1f %%", 100 * f->slo_share);
    }
    qr_buf_printf(out, "%8g %7lld %5lld %8.2f %10.1f %6s %9.1f %9.1f %9.*f %9.2f %9.1f %9s %7s\n", s->point[i].load,
                  (long long)step->result.n_records, (long long)(step->result.n_failed + step->result.n_unfinished),
                  qr_load_per_second(step->result.n_records, f->duration_s), s->point[i].output_per_s, gain_text, s->point[i].ttft_p50_ms,
                  qr_samples_percentile(&f->ttft, 99), qr_load_decimals(qr_samples_percentile(&f->tpot, 50)), qr_samples_percentile(&f->tpot, 50),
                  qr_samples_percentile(&step->result.itl, 99), s->point[i].e2el_p50_ms, goodput, share);
}

void qr_load_sweep_put_end(struct qr_buf *out, const struct qr_load_sweep *s)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(s != NULL);
    qr_buf_printf(out, "ended       %s\n", s->why);
    if (s->knee >= 0) {
        const struct qr_load_point *k = &s->point[s->knee];
        const double best = best_output(s->point, s->n);
        qr_buf_put_str(out, "knee        ");
        qr_load_sweep_put_load(out, s, k->load);
        qr_buf_printf(out, ": %.1f output tokens/s (%.0f %% of the best step), TTFT p50 %.1f ms, E2E p50 %.1f ms%s\n", k->output_per_s,
                      best > 0 ? 100 * k->output_per_s / best : 0, k->ttft_p50_ms, k->e2el_p50_ms,
                      s->verdict == QR_LOAD_SATURATED ? "" : " (of the steps that were run: the server was not seen saturated)");
    }
    if (s->opt->slo.n == 0)
        return;
    qr_buf_put_str(out, "SLO         ");
    if (s->slo_step >= 0) {
        qr_buf_put_str(out, "kept up to ");
        qr_load_sweep_put_load(out, s, s->point[s->slo_step].load);
    } else
        qr_buf_put_str(out, "kept by no step");
    qr_buf_put_str(out, " (");
    qr_load_put_slo(out, &s->slo);
    qr_buf_put_str(out, ")\n");
}

/* ---- the sweep ---- */

static void flush(struct qr_buf *out, int fd)
{
    qr_term_write(fd, out->data, out->len);
    qr_buf_clear(out);
}

static void say_why(struct qr_load_sweep *s, bool timed_out)
{
    const struct qr_load_point *now = s->n > 0 ? &s->point[s->n - 1] : NULL, *last = s->n > 1 ? now - 1 : now;
    struct qr_buf b = {0};
    if (s->signal != 0)
        qr_buf_put_str(&b, "a signal stopped it");
    else if (s->verdict == QR_LOAD_GO_ON)
        qr_buf_put_str(&b, timed_out ? "--sweep-time is over" : "all loads were run");
    else {
        qr_buf_put_str(&b, "at ");
        qr_load_sweep_put_load(&b, s, now->load);
        if (s->verdict == QR_LOAD_SATURATED)
            qr_buf_printf(&b,
                          " the server is saturated: %.0f %% more load, %+.1f %% throughput, TTFT p50 %.1f -> %.1f ms, E2E p50 %.1f -> %.1f ms",
                          100 * (now->load / last->load - 1), 100 * (now->output_per_s / last->output_per_s - 1), last->ttft_p50_ms,
                          now->ttft_p50_ms, last->e2el_p50_ms, now->e2el_p50_ms);
        else if (s->verdict == QR_LOAD_SLO_BROKEN)
            qr_buf_printf(&b, ": %.1f %% of the requests met the SLO", 100 * now->slo_share);
        else
            qr_buf_printf(&b, ": %.1f %% of the requests failed or were cut off", 100 * now->lost_share);
        if (s->n < s->loads->n)
            qr_buf_printf(&b, "; %d larger load%s left out", s->loads->n - s->n, s->loads->n - s->n == 1 ? " was" : "s were");
    }
    snprintf(s->why, sizeof s->why, "%s", qr_buf_text(&b));
    qr_buf_release(&b);
}

void qr_load_sweep_run(struct qr_load_sweep *s, const struct qr_load_options *opt, const struct qr_load_points *loads,
                       const struct qr_load_slo *slo, const struct qr_load_target *target, int fd)
{
    struct qr_buf out = {0};
    int64_t begin_us = qr_clock_us();
    bool timed_out = false;
    init(s, opt, loads, slo, target);
    put_head(&out, s);
    flush(&out, fd);
    while (s->n < loads->n && s->verdict == QR_LOAD_GO_ON && s->signal == 0 && !timed_out) {
        if (!run_step(s, s->n))
            break;
        put_row(&out, s, s->n++);
        flush(&out, fd);
        s->verdict = qr_load_judge(s->point, s->n, &s->rule);
        timed_out = qr_clock_us() - begin_us > opt->sweep_time_us && s->n < loads->n;
    }
    s->knee = qr_load_knee(s->point, s->n);
    s->slo_step = qr_load_slo_step(s->point, s->n, &s->rule);
    say_why(s, timed_out);
    qr_buf_put_byte(&out, '\n');
    qr_load_sweep_put_end(&out, s);
    flush(&out, fd);
    qr_buf_release(&out);
}

void qr_load_sweep_empty(struct qr_load_sweep *s, const struct qr_load_options *opt, const struct qr_load_points *loads,
                         const struct qr_load_slo *slo, const struct qr_load_target *target)
{
    init(s, opt, loads, slo, target);
    init_step(&s->step[0], s, 0);
    qr_load_figures_init(&s->step[0].figures, &s->step[0].result, slo);
    s->n = 1;
    s->knee = s->slo_step = 0;
}

void qr_load_sweep_release(struct qr_load_sweep *s)
{
    for (int32_t i = 0; i < QR_LOAD_POINTS_MAX; i++) {
        qr_load_figures_release(&s->step[i].figures);
        qr_load_result_release(&s->step[i].result);
        qr_load_plan_release(&s->step[i].plan);
    }
    qr_free(s->step);
}

/* ---- JSON ---- */

static void put_number_or_null(struct qr_buf *out, const char *key, bool has, double v)
{
    if (has)
        qr_load_put_num(out, key, v);
    else
        qr_buf_printf(out, ",\"%s\":null", key);
}

void qr_load_sweep_put_json(struct qr_buf *out, const struct qr_load_sweep *s)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(s != NULL);
    const struct qr_load_point none = {0}, *knee = s->knee >= 0 ? &s->point[s->knee] : &none;
    struct qr_buf rule = {0};
    bool has_slo = s->opt->slo.n > 0, kept = has_slo && s->slo_step >= 0, has_knee = s->knee >= 0;
    qr_load_sweep_put_rule(&rule, s);
    qr_load_put_identity(out, s->opt, &s->slo, s->target);
    qr_load_put_text(out, "sweep_variable", s->loads->rates ? "request_rate" : "max_concurrency");
    qr_load_put_text(out, "rule", qr_buf_text(&rule));
    qr_load_put_text(out, "ended", s->why);
    qr_load_put_num(out, "saturated", s->verdict == QR_LOAD_SATURATED);
    qr_load_put_num(out, "n_steps", s->n);
    put_number_or_null(out, "knee_load", has_knee, knee->load);
    put_number_or_null(out, "knee_output_throughput", has_knee, knee->output_per_s);
    put_number_or_null(out, "knee_median_ttft_ms", has_knee, knee->ttft_p50_ms);
    put_number_or_null(out, "knee_median_e2el_ms", has_knee, knee->e2el_p50_ms);
    put_number_or_null(out, "slo_load", has_slo, kept ? s->point[s->slo_step].load : 0);
    put_number_or_null(out, "slo_output_throughput", has_slo, kept ? s->point[s->slo_step].output_per_s : 0);
    qr_buf_put_str(out, ",\"steps\":[");
    for (int32_t i = 0; i < s->n; i++) {
        struct qr_load_step *step = &s->step[i];
        qr_buf_put_str(out, i > 0 ? ",{\"load\":" : "{\"load\":");
        qr_json_put_f64(out, s->point[i].load);
        qr_load_put_num(out, "gain", qr_load_gain(s->point, i));
        qr_buf_put_str(out, ",\"report\":");
        qr_load_put_json(out, &step->figures, &step->result, &step->plan, s->target);
        qr_buf_put_byte(out, '}');
    }
    qr_buf_put_str(out, "]}\n");
    qr_buf_release(&rule);
}
