/* sim.h - a trace through the real scheduler and the real pool in virtual time: no model, no threads, no clock.
 *
 * A step takes base_us + token_us per token planned + context_us per thousand rows of context read by its decode rows. Arrivals become
 * visible when the virtual time passes them; what the full queue refuses comes again at the next step, in order. Every sequence
 * generates exactly the trace's number of tokens.
 */
#ifndef QR_BENCH_SIM_H
#define QR_BENCH_SIM_H

#include "bench/trace.h"
#include "scheduler/sched.h"

struct qr_sim_cost {
    double base_us, token_us, context_us; /* per step, per planned token, per 1,000 context rows of decode */
};

struct qr_sim_config {
    struct qr_sched_config sched; /* ctx_max: longer entries of the trace are skipped and counted */
    int32_t n_blocks, block_tokens;
    bool prefix_cache;
    struct qr_sim_cost cost;
    int32_t check_every;          /* qr_sched_check after every n-th step; 0: never */
};

struct qr_sim_quantiles {
    double p50, p90, p99, max;
};

struct qr_sim_result {
    int32_t n_finished, n_skipped;          /* skipped: longer than ctx_max or than the pool */
    int64_t n_steps, n_rows, n_prompt_rows; /* rows computed; of them in prompt chunks */
    int64_t n_preempted, n_recomputed, n_evicted;
    int32_t preempted_most;                 /* times, of one sequence */
    int32_t running_most, waiting_most, blocks_most;
    double virtual_s, busy_s;               /* until the last token; in steps */
    double waste;                           /* slots of owned blocks that hold no row / slots of owned blocks, over steps, weighted by time */
    double waste_plain;                     /* the mean of each step's ratio, unweighted */
    double hit_rate, hit_rate_most;         /* prompt tokens found in the cache / all; the same for an endless cache of block_tokens */
    struct qr_sim_quantiles wait_ms, ttft_ms, tpot_ms; /* queue; first token from arrival; per further token */
    double plan_us_mean;                    /* real microseconds of one qr_sched_plan + qr_sched_commit; 0 without a clock */
    const char *broken;                     /* a failed check, or NULL */
};

/* Runs the whole trace. clock_ns: NULL, or a clock to measure the scheduler itself with. Errors: QR_E_USAGE from qr_sched_new. */
int qr_sim_run(struct qr_sim_result *out, const struct qr_trace *trace, const struct qr_sim_config *config,
               int64_t (*clock_ns)(void), struct qr_err *err);

/* The largest hit rate any prefix cache of whole blocks could reach: a prompt's blocks that an earlier prompt of the trace had, its last
 * token always left over. Needs hash_ids; 0 otherwise. */
double qr_sim_hit_rate_most(const struct qr_trace *trace, int32_t block_tokens, int32_t ctx_max);

#endif
