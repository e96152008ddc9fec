/* sample.h - what a device is told to draw tokens from a step's logits, and what it tells (kernels.h, sample). Plain data on both sides: arrays that are part
 * of a batch, and results that the host fetches when it likes. Which numbers a request means is the engine's business (engine/draws.c). */
#ifndef QR_KERNELS_SAMPLE_H
#define QR_KERNELS_SAMPLE_H

#include <stdint.h>

#define QR_DRAW_TOP_MAX 20              /* most likely tokens that are told of */
#define QR_DRAW_GREEDY_BELOW 1e-5f      /* temperatures: 1/temperature stays far from overflow; vLLM draws the same line */
#define QR_DRAW_STRETCHES_MAX 2048      /* of 256 logits: the largest vocabulary is 524,288 */

/* One logit that is not taken as it is, in this order: repetition where it was SEEN in prompt or output, presence and frequency by its number of times in the
 * output, + bias, then -infinity where it is to FORBID. The ids of a row's changes are distinct. An entry with the flag
 * AFTER changes nothing: it is part of the chain that begins at another entry's `after`, which forbids that entry's id
 * where the newest id (row->newest) is the id of one of the chain. */
enum { QR_CHANGE_SEEN = 1, QR_CHANGE_FORBID = 2, QR_CHANGE_AFTER = 4 };
struct qr_logit_change {
    int32_t id, n_output;
    float bias;
    uint32_t flags;
    int32_t after; /* 1 + the chain's next entry, counted from the row's first change; 0: none */
    float was; /* the device's: the logit before */
};

/* One row of logits: a draw, or log-probabilities of a given id. */
struct qr_draw_row {
    uint64_t seed;                          /* the draw is at share qr_philox_unit(seed, choice, pos) */
    float temperature, top_p, min_p;        /* below QR_DRAW_GREEDY_BELOW: the largest, of equal ones the smallest id */
    float repetition, presence, frequency;  /* 1, 0, 0: off */
    int32_t at;                             /* row of the logits; -1: nothing is to be done */
    int32_t top_k;                          /* 0 or the whole vocabulary and more: off */
    int32_t choice, pos;                    /* pos: tokens of output so far */
    int32_t newest;                         /* row of what was drawn by the last call, whose id the output ends with and n_output does not count; or -1 */
    int32_t first_change, n_changes;        /* of draws.change */
    int32_t id;                             /* >= 0: nothing is drawn, log-probabilities of this id are told */
    int32_t n_top;                          /* most likely ids that are told of, <= QR_DRAW_TOP_MAX; -1: no log-probabilities */
    int32_t allowed;                        /* word of draws.allowed where this row's bits begin, one for each id (0: never drawn); -1: all are */
};

struct qr_draws {
    const struct qr_draw_row *row;   /* [n_rows] */
    struct qr_logit_change *change;  /* [n_changes] */
    const uint32_t *allowed;         /* words of the rows that have any; not part of a batch: when it is made they may not be known */
    int32_t n_rows, n_changes;
};

/* What came of a row: the id, and its logit after all changes (not finite: the row holds no numbers). An id that the next step may embed in any case. */
struct qr_drawn {
    int32_t id;
    float logit;
};

/* For log-probabilities, of the logits as the model gave them: log p(i) = x[i] - best - log(sum). */
struct qr_drawn_detail {
    double sum;                       /* of e^(x - best): each in f32 (qr_exp_below_one), stretches of 256 as engine/row_math.h adds, then in order */
    float best, logit;                /* the largest; that of the id */
    int32_t rank;                     /* 1 + how many are larger, or equal with a smaller id */
    int32_t n_top;                    /* the most likely, best first, of equal ones the smaller id; what is no number is passed over */
    int32_t top_id[QR_DRAW_TOP_MAX];
    float top[QR_DRAW_TOP_MAX];
};

#endif
