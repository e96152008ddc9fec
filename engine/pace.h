/* pace.h - how many prompt tokens a step may carry beside running sequences, so that the step, and with it the gap between their tokens, stays near
 * a goal. From what steps cost: a pure function of the times it is told; the engine measures them. It decides how prompts are cut, never what
 * they give.
 *
 * A step is taken to cost decode_us and token_us for each prompt token. decode_us is learnt from steps without prompts, token_us from those
 * with them, so a wrong decode_us is made up for in token_us and steps of steady load meet the goal. What cannot meet it (decoding alone takes
 * as long) gives prompts a third of the step's time: they go on, and tokens come at two thirds of their pace.
 *
 * While many prompt tokens wait the goal stretches, up to fourfold: steps that read the weights for few prompt tokens would make the whole queue wait for
 * the sake of gaps too small to notice. A storm of long prompts is over sooner, and so are its wide gaps.
 */
#ifndef QR_ENGINE_PACE_H
#define QR_ENGINE_PACE_H

#include <stdint.h>

#define QR_PACE_TOKENS_MIN 16 /* prompt tokens that a step may always carry */
#define QR_PACE_BACKLOG 2048  /* prompt tokens: the goal stretches when more than two times as many wait */
#define QR_PACE_STRETCH_MAX 4

struct qr_pace {
    double goal_us;   /* 0: no goal */
    double decode_us; /* a step without prompt tokens; 0: none seen yet */
    double token_us;  /* a prompt token more; 0: none seen yet */
};

void qr_pace_init(struct qr_pace *p, int64_t goal_us);

/* A step of n_prompt prompt tokens and n_decode decode rows took us. */
void qr_pace_note(struct qr_pace *p, int32_t n_prompt, int32_t n_decode, double us);

/* Prompt tokens that the next step may carry beside n_decode rows, while `waiting` of them are still to be computed: at least QR_PACE_TOKENS_MIN, INT32_MAX
 * without a goal or before anything is known. With the decode rows they make whole tiles of 16 rows. */
int32_t qr_pace_tokens(const struct qr_pace *p, int32_t n_decode, int64_t waiting);

#endif
