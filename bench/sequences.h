/* sequences.h - `quire bench throughput --sequences N`: so many requests of random ids at once through the engine, until the last one has ended. Prompts and
 * decode steps are batched as the engine does it for a server, without HTTP; prompts are not cut for the sake of gaps between tokens. */
#ifndef QR_BENCH_SEQUENCES_H
#define QR_BENCH_SEQUENCES_H

#include "engine/stats.h"
#include "kernels/backend.h"
#include "model/model.h"

struct qr_sequences_case {
    const char *model;
    struct qr_backend_options backend;
    struct qr_model_options options;
    int32_t n, running;                /* requests; computed at once (0: all), the others wait */
    int32_t n_prompt, n_generate;      /* tokens of each */
    int32_t chunk;                     /* rows of the largest step */
};

struct qr_sequences_figures {
    int32_t running;
    double open_s, seconds, first_s; /* until the model is open; from the first request to the last token; to the first token of the last one to get it */
    int64_t n_output, n_steps;
    double step_us, part_us[QR_PARTS]; /* of a step, on average */
    bool device;                     /* the two that follow are known */
    double host_us;                  /* of a step: all parts but WAIT and IDLE */
    double idle_share;               /* qr_stats.unfed_ns of all the time: more than what a device lacked between steps; 0 where it never finished first */
};

/* Errors: those of opening and of requests; QR_E_USAGE where the context is too short. */
int qr_bench_sequences(struct qr_sequences_figures *out, const struct qr_sequences_case *c, struct qr_err *err);

/* A line of text with its heading, or a JSON object. */
void qr_sequences_print(const struct qr_sequences_figures *f, const struct qr_sequences_case *c, bool json);

#endif
