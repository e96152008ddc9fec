/* pace.h - how many prompt tokens a step may carry beside running sequences, so that the step, and with it the gap between their tokens, stays near
 * a goal; and how many sequences may run for that. A pure function of what steps are predicted to take (predict.h). It decides how prompts are cut and when
 * they begin, never what they give.
 *
 * What cannot meet the goal (decoding alone takes as long) gives prompts a third of the step's time: they go on, and tokens come at two thirds of their pace.
 *
 * While many prompt tokens wait the goal stretches, up to fourfold: steps that read the weights for few prompt tokens would make the whole queue wait for
 * the sake of gaps too small to notice. A storm of long prompts is over sooner, and so are its wide gaps. A firm goal does not stretch, and as many sequences
 * run as leave that third to prompts: what waits too long then is not begun (deadline.c).
 */
#ifndef QR_ENGINE_PACE_H
#define QR_ENGINE_PACE_H

#include "engine/predict.h"

#define QR_PACE_TOKENS_MIN 16 /* prompt tokens that a step may always carry, where the goal is not firm */
#define QR_PACE_BACKLOG 2048  /* prompt tokens: the goal stretches when more than two times as many wait */
#define QR_PACE_STRETCH_MAX 4

struct qr_pace {
    double goal_us; /* 0: no goal */
    bool firm;
};

/* Prompt tokens that the next step may carry beside n_decode rows, while `waiting` of them are still to be computed: at least QR_PACE_TOKENS_MIN, or one;
 * INT32_MAX without a goal or before anything is known. With the decode rows they make whole tiles of 16 rows. Contexts of rows are as they were `lately`. */
int32_t qr_pace_tokens(const struct qr_pace *pace, const struct qr_predict *p, const struct qr_step_size *lately, int32_t n_decode, int64_t waiting);

/* Sequences that may run: INT32_MAX but for a firm goal that one of them alone can meet. */
int32_t qr_pace_running(const struct qr_pace *pace, const struct qr_predict *p, const struct qr_step_size *lately, int32_t most);

#endif
