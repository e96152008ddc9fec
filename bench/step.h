/* step.h - `quire bench step`: the engine's own work per step (plan, lower, sample, output and the rest of the round), with kernels that compute
 * nothing unless a level is named. One sequence of each kind of sampling in turn decodes; this process is also the receiver of the events.
 */
#ifndef QR_BENCH_STEP_H
#define QR_BENCH_STEP_H

#include <stdint.h>

#include "base/err.h"
#include "engine/stats.h"

enum qr_step_mix {
    QR_STEP_GREEDY, /* every sequence takes the likeliest token */
    QR_STEP_MIXED,  /* of eight: five greedy, two draw with top_p 0.95, one wants 5 log-probabilities and has a stop string */
};

struct qr_step_case {
    const char *model, *isa;           /* isa: "null" computes nothing */
    int32_t n_threads, n_seqs, n_prompt, n_steps;
    enum qr_step_mix mix;
};

struct qr_step_figures {
    double part_us[QR_PARTS];          /* medians over pieces of the run, per step */
    double own_us;                     /* all parts but MODEL, WAIT and IDLE; the median of their sums */
    int64_t n_steps;                   /* counted ones */
};

/* Opens the model and runs the case. Errors: the model's, the engine's; QR_E_USAGE when the context is too short for n_prompt + n_steps. */
int qr_bench_step(struct qr_step_figures *out, const struct qr_step_case *c, struct qr_err *err);

#endif
