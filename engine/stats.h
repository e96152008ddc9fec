/* stats.h - what the engine counts. Written by the engine thread only, copied out under a lock once per step. */
#ifndef QR_ENGINE_STATS_H
#define QR_ENGINE_STATS_H

#include <stdint.h>

#include "kvcache/kv_pool.h"
#include "scheduler/sched.h"

#define QR_HIST_BUCKETS 32

/* A histogram with fixed upper bounds; count[n_bounds] is +Inf. Units are the bounds'. */
struct qr_hist {
    const double *bound;         /* borrowed, static */
    int32_t n_bounds;
    uint64_t count[QR_HIST_BUCKETS];
    uint64_t n;
    double sum;
};
void qr_hist_init(struct qr_hist *h, const double *bound, int32_t n_bounds);
void qr_hist_add(struct qr_hist *h, double v);

/* vLLM's bounds, so that dashboards fit, and finer ones of our own (see docs/operations.md). */
extern const double qr_bounds_ttft_s[], qr_bounds_itl_s[], qr_bounds_latency_s[], qr_bounds_fine_s[], qr_bounds_tokens[], qr_bounds_step_tokens[];
extern const int32_t qr_n_bounds_ttft_s, qr_n_bounds_itl_s, qr_n_bounds_latency_s, qr_n_bounds_fine_s, qr_n_bounds_tokens, qr_n_bounds_step_tokens;

/* Where the engine thread's time goes. All but MODEL, WAIT and IDLE is the engine's own work. */
enum qr_step_part {
    QR_PART_PLAN,   /* which sequences run, with how many tokens */
    QR_PART_LOWER,  /* the plan as arrays */
    QR_PART_MODEL,  /* the forward: of a device, launching it */
    QR_PART_WAIT,   /* a device's results are waited for */
    QR_PART_SAMPLE, /* logits to tokens and log-probabilities */
    QR_PART_OUTPUT, /* commit, tokens to text, events */
    QR_PART_REST,   /* new requests, cancels, deadlines, counters */
    QR_PART_IDLE,   /* nothing to run, or waiting for events to come back */
    QR_PARTS,
};
const char *qr_step_part_name(enum qr_step_part part); /* "plan", ... */

struct qr_stats {
    struct qr_sched_stats sched;
    struct qr_kv_stats kv;
    /* The ledger: accepted = done_stop + done_length + cancelled + failed + inside, at every step. Requests, not choices. */
    uint64_t n_accepted, n_done_stop, n_done_length, n_cancelled, n_failed, n_inside;
    uint64_t prompt_tokens, cached_tokens, output_tokens, n_steps, step_us_total;
    int64_t part_ns[QR_PARTS];
    /* Of a device that draws: time from the end of a wait to the end of the next one, where that found the device done (QR_WAITED_NS) though the next step was
     * launched before it. The device had nothing to do for some part of that time: an upper bound, and 0 where the device always had work. */
    int64_t unfed_ns;
    struct qr_hist ttft, itl, e2e, queue, prefill_time, decode_time, tpot;      /* seconds, vLLM's bounds */
    struct qr_hist ttft_fine, itl_fine, step_fine;                              /* seconds, our bounds */
    struct qr_hist prompt_len, output_len, step_tokens;                         /* tokens */
};

void qr_stats_init(struct qr_stats *s); /* everything zero, histograms with their bounds */

#endif
