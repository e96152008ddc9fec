/* draw.h - the draw from a row of logits under temperature, top_k, top_p and min_p, without a full sort: only what lies above a bound that is found
 * first is ordered, and of a large nucleus only two buckets. Inside engine/ only.
 */
#ifndef QR_ENGINE_DRAW_H
#define QR_ENGINE_DRAW_H

#include "engine/sampler.h"

/* Whether the draw needs s->sum: it does unless top_k restricts it. */
bool qr_draw_needs_sums(const struct qr_sampling *p, int32_t n_vocab);

#define QR_DRAW_ASKED_MAX 16 /* stretches that are prefetched before the first is read */

/* Looks at what is known of an unchanged row's stretches, sums with the draw's own scale: row->near and all, or within and share. Returns the logit that the
 * stretches reach which will be read first. best: the row's largest. Overwrites s->sum. */
float qr_draw_look(struct qr_sampler *s, struct qr_logits *row, const struct qr_sampling *p, float best, double u);

/* The id at share u, 0 <= u < 1, of the cumulative distribution: in the order of ids when nothing restricts it, best first otherwise. p->temperature > 0.
 * A row that qr_draw_look has seen, with the same p and u, and that has not changed since. */
int32_t qr_draw_looked(struct qr_sampler *s, const struct qr_logits *row, const struct qr_sampling *p, double u);

/* The same of any row. logits [s->n_vocab] are read only. Requires s->most and, where it is needed, s->sum: the sum of e^((logit - most) / temperature) of
 * each stretch. Overwrites s->sum. */
int32_t qr_draw(struct qr_sampler *s, const float *logits, const struct qr_sampling *p, double u);

#endif
