/* stats.h - what the engine counts. Written by the engine thread only, copied out under a lock once per step. */
#ifndef QR_ENGINE_STATS_H
#define QR_ENGINE_STATS_H

#include <stdint.h>

#include "kvcache/kv_pool.h"
#include "scheduler/sched.h"

#define QR_HIST_BUCKETS 32
#define QR_DRAFT_MAX 32 /* guesses for one sequence in a step */

/* A histogram with fixed upper bounds; count[n_bounds] is +Inf. Units are the bounds'. */
struct qr_hist {
    const double *bound;         /* borrowed, static */
    int32_t n_bounds;
    uint64_t count[QR_HIST_BUCKETS];
    uint64_t n;
    double sum;
};
void qr_hist_add(struct qr_hist *h, double v);

/* ROW(field of struct qr_stats, bounds, name in /metrics, help). vLLM's bounds, so that dashboards fit, and finer ones
 * of our own (see docs/operations.md). Times in seconds. */
#define QR_HISTOGRAMS(ROW)                                                                                             \
    ROW(ttft, ttft, "vllm:time_to_first_token_seconds", "From arrival to the first token.")                            \
    ROW(itl, itl, "vllm:inter_token_latency_seconds", "Between tokens of one sequence.")                               \
    ROW(tpot, itl, "vllm:request_time_per_output_token_seconds", "Mean time per token after the first, per request.")  \
    ROW(e2e, latency, "vllm:e2e_request_latency_seconds", "From arrival to the end.")                                  \
    ROW(queue, latency, "vllm:request_queue_time_seconds", "From arrival to the first admission.")                     \
    ROW(prefill_time, latency, "vllm:request_prefill_time_seconds", "From admission to the first token.")              \
    ROW(decode_time, latency, "vllm:request_decode_time_seconds", "From the first token to the end.")                  \
    ROW(prompt_len, tokens, "vllm:request_prompt_tokens", "Prompt length.")                                            \
    ROW(output_len, tokens, "vllm:request_generation_tokens", "Output length.")                                        \
    ROW(output_most, tokens, "vllm:request_max_num_generation_tokens", "Output length of a request's longest choice.")  \
    ROW(asked_len, tokens, "vllm:request_params_max_tokens", "max_tokens of a request.")                               \
    ROW(choices, choices, "vllm:request_params_n", "Choices of a request.")                                            \
    ROW(computed_len, tokens, "vllm:request_prefill_kv_computed_tokens", "Prompt tokens that the cache did not have.") \
    ROW(inference_time, latency, "vllm:request_inference_time_seconds", "From admission to the end.")                  \
    ROW(step_tokens, step_tokens, "vllm:iteration_tokens_total", "Tokens computed in one step.")                       \
    ROW(ttft_fine, fine, "quire_time_to_first_token_seconds", "From arrival to the first token, finer.")               \
    ROW(itl_fine, fine, "quire_inter_token_latency_seconds", "Between tokens of one sequence, finer.")                 \
    ROW(step_fine, fine, "quire_step_duration_seconds", "One engine step.")                                            \
    ROW(step_missed, ratio, "quire_step_prediction_error_ratio", "Predicted less taken over taken, without its sign, per step.")

/* Where the engine thread's time goes. All but MODEL, WAIT and IDLE is the engine's own work. */
enum qr_step_part {
    QR_PART_PLAN,   /* which sequences run, with how many tokens */
    QR_PART_LOWER,  /* the plan as arrays */
    QR_PART_MODEL,  /* the forward: of a device, launching it */
    QR_PART_WAIT,   /* a device's results are waited for */
    QR_PART_MASK,   /* what grammars allow: of a device, while it computes */
    QR_PART_SAMPLE, /* logits to tokens and log-probabilities */
    QR_PART_OUTPUT, /* commit, tokens to text, events */
    QR_PART_REST,   /* new requests, cancels, deadlines, counters */
    QR_PART_IDLE,   /* nothing to run, or waiting for events to come back */
    QR_PARTS,
};
const char *qr_step_part_name(enum qr_step_part part); /* "plan", ... */

/* Blocks from and for elsewhere (exchange.h). */
struct qr_outside_stats {
    uint64_t n_held, held_us;    /* requests that waited for blocks, and how long together */
    uint64_t n_given_up;         /* those of them that had waited long enough before all had come */
    uint64_t n_for_peers;        /* prompts that were computed for peers: requests like any other in the ledger */
    uint64_t n_unwritten;        /* blocks that the file tier could not take in time */
    uint64_t n_notes_lost;       /* what became of blocks, and was not noted for want of room */
};

struct qr_stats {
    struct qr_sched_stats sched;
    struct qr_kv_stats kv;
    /* The ledger: accepted = done_stop + done_length + cancelled + failed + inside, at every step. Requests, not choices. */
    uint64_t n_accepted, n_done_stop, n_done_length, n_cancelled, n_failed, n_inside;
    uint64_t prompt_tokens, cached_tokens, output_tokens, n_steps, step_us_total;
    /* Of prompts, in tokens: what was looked for outside of the cache; of cached_tokens, what came from the file tier and from peers. */
    uint64_t n_sought, n_from_file, n_from_peer;
    struct qr_outside_stats outside;
    uint64_t n_late[5];          /* requests that were not begun, by enum qr_late; they count as failed */
    /* Sequences with guesses, counted in each step; their guesses; those that were right, and at which place. */
    uint64_t n_drafts, n_draft_tokens, n_accepted_tokens, accepted_at[QR_DRAFT_MAX];
    double backlog_s;            /* how long what is inside would take (backlog.h) */
    double prompt_token_s;       /* how long a prompt token took lately; 0: none was measured */
    int64_t part_ns[QR_PARTS];
    /* Of a device that draws: time from the end of a wait to the end of the next one, where that found the device done (QR_WAITED_NS) though the next step was
     * launched before it. The device had nothing to do for some part of that time: an upper bound, and 0 where the device always had work. */
    int64_t unfed_ns;
#define QR_HIST_FIELD(field, ...) struct qr_hist field;
    QR_HISTOGRAMS(QR_HIST_FIELD)
#undef QR_HIST_FIELD
};

void qr_stats_init(struct qr_stats *s); /* everything zero, histograms with their bounds */

#endif
