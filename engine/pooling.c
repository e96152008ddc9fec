#include "engine/pooling.h"

#include <math.h>

#include "base/assert.h"

const char *qr_pool_why_not(const struct qr_model *m)
{
    QR_ASSERT(m != NULL);
    const struct qr_model_config *c = qr_model_config(m);
    QR_ASSERT(c->n_vocab > 0 && c->n_embd > 0);
    return c->n_vocab < c->n_embd + QR_HIDDEN_SPARE ? "the model's vocabulary is smaller than its vectors" : NULL;
}

void qr_pool_row(struct qr_request *r, const float *hidden, int32_t pos)
{
    QR_ASSERT(r != NULL && r->pooled != NULL && hidden != NULL);
    QR_ASSERT(pos >= 0 && pos < r->n_prompt);
    const bool wanted = r->pooling == QR_POOLING_MEAN || pos == (r->pooling == QR_POOLING_CLS ? 0 : r->n_prompt - 1);
    for (int32_t i = 0; wanted && i < r->n_pooled; i++)
        r->pooled[i] += (double)hidden[i];
}

bool qr_pool_end(struct qr_request *r)
{
    QR_ASSERT(r != NULL && r->pooled != NULL);
    QR_ASSERT(r->n_prompt > 0);
    bool finite = true;
    const double n = r->pooling == QR_POOLING_MEAN ? r->n_prompt : 1;
    for (int32_t i = 0; i < r->n_pooled; i++) {
        r->pooled[i] /= n;
        finite &= isfinite(r->pooled[i]) != 0;
    }
    return finite;
}
