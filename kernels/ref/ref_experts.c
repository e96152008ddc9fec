/* ref_experts.c - the plain form of route and experts: which experts a row goes to, and their products (kernels.h, ref.h). */
#include "kernels/ref/ref.h"

#include <string.h>

#include "base/assert.h"

/* Whether logit a comes before logit b where it stands behind it. NaN comes before nothing. */
static bool QR_REF(route_before)(real a, real b)
{
    return a > b || (!isnan(a) && isnan(b));
}

static void QR_REF(route_choose)(int32_t *ids, const real *logits, int32_t n_experts, int32_t n_used)
{
    bool taken[QR_EXPERTS_MAX] = {false};
    for (int32_t u = 0; u < n_used; u++) {
        int32_t best = -1;
        for (int32_t e = 0; e < n_experts; e++)
            if (!taken[e] && (best < 0 || QR_REF(route_before)(logits[e], logits[best])))
                best = e;
        taken[best] = true;
        ids[u] = best;
    }
}

void QR_REF(route)(struct qr_queue *q, const struct qr_route_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->ids != NULL && a->weights != NULL);
    QR_ASSERT(a->n_used >= 1 && a->n_used <= a->n_experts && a->n_experts <= QR_EXPERTS_MAX);
    for (int32_t n = 0; n < a->n_rows; n++) {
        const real *logits = (const real *)a->logits + n * a->logits_stride;
        int32_t *ids = a->ids + (int64_t)n * a->n_used;
        real *weights = (real *)a->weights + (int64_t)n * a->n_used, sum = 0;
        QR_REF(route_choose)(ids, logits, a->n_experts, a->n_used);
        const real most = a->sigmoid ? 0 : logits[ids[0]];
        for (int32_t e = 0; e < a->n_experts && !a->sigmoid && !a->normalize; e++)
            sum += (real)exp((double)(logits[e] - most));
        for (int32_t u = 0; u < a->n_used; u++) {
            weights[u] = (real)exp((double)(logits[ids[u]] - most));
            if (a->sigmoid)
                weights[u] = 1 / (1 + (real)exp(-(double)logits[ids[u]]));
            sum += a->normalize ? weights[u] : 0;
        }
        for (int32_t u = 0; u < a->n_used && (!a->sigmoid || a->normalize); u++)
            weights[u] /= sum;
    }
}

/* Of one expert, n outputs. */
static const float *QR_REF(bias_of)(const float *biases, int32_t e, int64_t n)
{
    return biases ? (const float *)((const param *)biases + e * n) : NULL;
}

/* out += weight * y_e of one row. */
static void QR_REF(one_expert)(struct qr_queue *q, const struct qr_experts_args *a, int32_t n, int32_t u)
{
    const int32_t e = a->ids[(int64_t)n * a->n_used + u], n_embd = (int32_t)a->down->t.shape[1];
    const struct qr_weight gate_up = qr_weight_in_stack(a->gate_up, e), down = qr_weight_in_stack(a->down, e);
    const struct qr_linear_args first = {.out = a->gated, .x = (const float *)((const real *)a->x + n * a->x_stride), .w = &gate_up,
                                         .bias = QR_REF(bias_of)(a->gate_up_bias, e, gate_up.t.shape[0]), .n_rows = 1, .n_in = n_embd,
                                         .n_out = (int32_t)gate_up.t.shape[0], .glu = true, .act = a->act, .clamp = a->clamp};
    const struct qr_linear_args second = {.out = a->fresh, .x = a->gated, .w = &down, .bias = QR_REF(bias_of)(a->down_bias, e, n_embd),
                                          .n_rows = 1, .n_in = (int32_t)down.t.shape[1], .n_out = n_embd};
    QR_REF(linear)(q, &first);
    QR_REF(linear)(q, &second);
    real *out = (real *)a->out + n * a->out_stride;
    for (int32_t i = 0; i < n_embd; i++)
        out[i] += ((const real *)a->weights)[(int64_t)n * a->n_used + u] * ((const real *)a->fresh)[i];
}

void QR_REF(experts)(struct qr_queue *q, const struct qr_experts_args *a)
{
    QR_ASSERT(a != NULL && a->gate_up != NULL && a->down != NULL);
    QR_ASSERT(a->gate_up->t.n_dims == 3 && a->down->t.n_dims == 3 && a->gate_up->t.shape[0] == a->down->t.shape[0]);
    const int32_t n_experts = (int32_t)a->down->t.shape[0];
    for (int32_t n = 0; n < a->n_rows; n++)
        for (int32_t e = 0; e < n_experts; e++)
            for (int32_t u = 0; u < a->n_used; u++)
                if (a->ids[(int64_t)n * a->n_used + u] == e)
                    QR_REF(one_expert)(q, a, n, u);
}
