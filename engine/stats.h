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

struct qr_stats {
    struct qr_sched_stats sched;
    struct qr_kv_stats kv;
    /* The ledger: accepted = done_stop + done_length + cancelled + failed + inside, at every step. Requests, not choices. */
    uint64_t n_accepted, n_done_stop, n_done_length, n_cancelled, n_failed, n_inside;
    uint64_t prompt_tokens, cached_tokens, output_tokens, n_steps, step_us_total;
    struct qr_hist ttft, itl, e2e, queue, prefill_time, decode_time, tpot;      /* seconds, vLLM's bounds */
    struct qr_hist ttft_fine, itl_fine, step_fine;                              /* seconds, our bounds */
    struct qr_hist prompt_len, output_len, step_tokens;                         /* tokens */
};

void qr_stats_init(struct qr_stats *s); /* everything zero, histograms with their bounds */

#endif
