#include "model/calibrate.h"

#include "base/assert.h"
#include "base/mem.h"
#include "loader/weights.h"

#define PLACES (sizeof(struct qr_layer_weights) / sizeof(struct qr_weight))

struct seen {
    double *sum;  /* owned [n_in]: of squares; NULL: nothing was seen */
    float *mean;  /* owned [n_in]: made by qr_calibration_inputs */
    int64_t n_in, n;
};

struct qr_calibration {
    const struct qr_weights *weights; /* borrowed */
    int32_t n_layers;
    struct seen *seen;                /* owned [n_layers][PLACES] */
};

static void see(void *user, const struct qr_tensor *in, const struct qr_weight *w)
{
    struct qr_calibration *c = user;
    const struct qr_weight *all = (const struct qr_weight *)(const void *)c->weights->layer;
    QR_ASSERT(w >= all && w < all + (size_t)c->n_layers * PLACES && in->dtype == QR_F32);
    struct seen *s = &c->seen[w - all];
    const int64_t n_in = in->shape[in->n_dims - 1];
    if (!s->sum) {
        s->n_in = n_in;
        s->sum = qr_alloc((size_t)n_in, sizeof *s->sum);
        s->mean = qr_alloc((size_t)n_in, sizeof *s->mean);
    }
    QR_ASSERT(in->n_dims == 2 && n_in == s->n_in);
    for (int64_t r = 0; r < in->shape[0]; r++) {
        const float *row = (const float *)in->data + r * in->stride[0];
        for (int64_t i = 0; i < n_in; i++)
            s->sum[i] += (double)row[i] * (double)row[i];
    }
    s->n += in->shape[0];
}

struct qr_calibration *qr_calibration_new(const struct qr_model *m)
{
    QR_ASSERT(m != NULL);
    QR_ASSERT(sizeof(struct qr_layer_weights) == PLACES * sizeof(struct qr_weight));
    struct qr_calibration *c = qr_alloc(1, sizeof *c);
    *c = (struct qr_calibration){.weights = qr_model_weights(m), .n_layers = qr_model_config(m)->n_layers};
    c->seen = qr_alloc((size_t)c->n_layers * PLACES, sizeof *c->seen);
    return c;
}

void qr_calibration_free(struct qr_calibration *c)
{
    for (size_t i = 0; c && i < (size_t)c->n_layers * PLACES; i++) {
        qr_free(c->seen[i].sum);
        qr_free(c->seen[i].mean);
    }
    if (c)
        qr_free(c->seen);
    qr_free(c);
}

void qr_calibration_watch(struct qr_calibration *c, struct qr_exec *x)
{
    QR_ASSERT(c != NULL && x != NULL);
    QR_ASSERT(x->be->mem->host && !x->lora);
    x->watch = see;
    x->watch_user = c;
}

const float *qr_calibration_inputs(void *user, int32_t layer, size_t at)
{
    const struct qr_calibration *c = user;
    QR_ASSERT(c != NULL && layer >= 0 && layer < c->n_layers);
    QR_ASSERT(at % sizeof(struct qr_weight) == 0 && at < sizeof(struct qr_layer_weights));
    const bool experts = at == offsetof(struct qr_layer_weights, experts_gate_up) || at == offsetof(struct qr_layer_weights, shared_gate_up);
    const size_t place = (experts ? offsetof(struct qr_layer_weights, router) : at) / sizeof(struct qr_weight); /* experts read what their router reads */
    struct seen *s = &c->seen[(size_t)layer * PLACES + place];
    for (int64_t i = 0; s->sum && i < s->n_in; i++)
        s->mean[i] = (float)(s->sum[i] / (double)s->n);
    return s->sum ? s->mean : NULL;
}
