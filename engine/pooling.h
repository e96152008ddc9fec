/* pooling.h - the rows of a prompt become one vector, in the request's own memory. Engine thread. */
#ifndef QR_ENGINE_POOLING_H
#define QR_ENGINE_POOLING_H

#include "engine/engine.h"
#include "model/model.h"

/* Why this model's rows are not to be had here, in words for a client; NULL: they are. */
const char *qr_pool_why_not(const struct qr_model *m);

/* hidden [r->n_pooled] is what the model made of prompt position pos, 0 <= pos < n_prompt. Each position comes once at most, in rising order; with MEAN every
 * one does. */
void qr_pool_row(struct qr_request *r, const float *hidden, int32_t pos);

/* After the last one: r->pooled is complete. False: it holds an infinity or NaN. */
bool qr_pool_end(struct qr_request *r);

#endif
