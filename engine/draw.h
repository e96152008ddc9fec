/* draw.h - the draw from a row of logits under temperature, top_k, top_p and min_p, without a full sort: only what lies above a bound that is found
 * first is ordered, and of a large nucleus only two buckets. Inside engine/ only.
 */
#ifndef QR_ENGINE_DRAW_H
#define QR_ENGINE_DRAW_H

#include "engine/sampler.h"

/* Whether the draw needs s->sum: it does unless top_k restricts it. */
bool qr_draw_needs_sums(const struct qr_sampling *p, int32_t n_vocab);

/* The id at share u, 0 <= u < 1, of the cumulative distribution: in the order of ids when nothing restricts it, best first otherwise. p->temperature > 0.
 * logits [s->n_row] are read only. Requires s->most and, where it is needed, s->sum: the sum of e^((logit - most) / temperature) of
 * each stretch. Overwrites s->sum. */
int32_t qr_draw(struct qr_sampler *s, const float *logits, const struct qr_sampling *p, double u);

#endif
