/* sweep.h - `quire bench load --sweep`: the same requests at a growing load until more load gives no more.
 *
 * A step is a run of its own (run.c) behind uncounted requests at the step's load. Which step ends the sweep and which one is the
 * knee are pure functions of the steps' figures. For bench/load*.c.
 */
#ifndef QR_BENCH_LOAD_SWEEP_H
#define QR_BENCH_LOAD_SWEEP_H

#include "bench/load/parts.h"

/* What the rules look at. */
struct qr_load_point {
    double load; /* users, or requests per second */
    double output_per_s, ttft_p50_ms, e2el_p50_ms;
    double lost_share; /* of the requests: failed or cut off */
    double slo_share;  /* met the SLO; 1 when there is none */
};

struct qr_load_rule {
    double gain;      /* least growth of throughput per growth of load */
    double slo_share; /* least part of the requests that meets the SLO; 0 when there is none */
};

enum qr_load_verdict { QR_LOAD_GO_ON, QR_LOAD_SATURATED, QR_LOAD_SLO_BROKEN, QR_LOAD_FAILING };

#define QR_LOAD_LOST_MAX 0.01   /* more than this lost ends a sweep */
#define QR_LOAD_GROWTH 1.1      /* a latency "grew" when it is more than this times the last step's */
#define QR_LOAD_KNEE_SHARE 0.95 /* of the best throughput */

/* Relative growth of throughput over relative growth of load, from the step before: 1 is a server that scales perfectly. NAN for i = 0. */
double qr_load_gain(const struct qr_load_point *p, int32_t i);

/* What step n - 1 says, the first of these that is true: FAILING: more than QR_LOAD_LOST_MAX of its requests were lost; SLO_BROKEN: fewer
 * than the rule's share met the SLO; SATURATED: its gain is below the rule's while TTFT's or E2E's median grew. */
enum qr_load_verdict qr_load_judge(const struct qr_load_point *p, int32_t n, const struct qr_load_rule *rule);

/* The knee: the smallest load that reaches QR_LOAD_KNEE_SHARE of the best throughput, steps that lost requests left out. The index, or -1. */
int32_t qr_load_knee(const struct qr_load_point *p, int32_t n);

/* The last step that lost nothing to speak of and kept the SLO, or -1. */
int32_t qr_load_slo_step(const struct qr_load_point *p, int32_t n, const struct qr_load_rule *rule);

struct qr_load_step {
    struct qr_load_options opt; /* the sweep's, with this step's load and seed */
    struct qr_load_plan plan;   /* owned; its opt is the one above */
    struct qr_load_result result;
    struct qr_load_figures figures;
};

struct qr_load_sweep {
    const struct qr_load_options *opt;    /* borrowed */
    const struct qr_load_target *target;  /* borrowed */
    const struct qr_load_points *loads;   /* borrowed */
    struct qr_load_slo slo;
    struct qr_load_rule rule;
    struct qr_load_step *step;            /* owned [QR_LOAD_POINTS_MAX]: steps point into themselves and must not move */
    struct qr_load_point point[QR_LOAD_POINTS_MAX];
    int32_t n, knee, slo_step;            /* indices; -1: none */
    enum qr_load_verdict verdict;
    int signal;
    char why[320];                        /* why it ended */
};

/* Runs the steps; a row of the table goes to fd after each. To be released. */
void qr_load_sweep_run(struct qr_load_sweep *s, const struct qr_load_options *opt, const struct qr_load_points *loads,
                       const struct qr_load_slo *slo, const struct qr_load_target *target, int fd);

/* As if one empty step had been run: for the names of the figures. */
void qr_load_sweep_empty(struct qr_load_sweep *s, const struct qr_load_options *opt, const struct qr_load_points *loads,
                         const struct qr_load_slo *slo, const struct qr_load_target *target);
void qr_load_sweep_release(struct qr_load_sweep *s);

/* "4 users" or "2.5 requests/s". */
void qr_load_sweep_put_load(struct qr_buf *out, const struct qr_load_sweep *s, double load);

/* The rules in words, one a line. */
void qr_load_sweep_put_rule(struct qr_buf *out, const struct qr_load_sweep *s);

/* Why it ended, the knee, and what the SLO allows: one line each. */
void qr_load_sweep_put_end(struct qr_buf *out, const struct qr_load_sweep *s);

void qr_load_sweep_put_json(struct qr_buf *out, const struct qr_load_sweep *s);

#endif
