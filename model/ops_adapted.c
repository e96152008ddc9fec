/* The verbs of steps in which rows have adapters: serving's, with each product's additions behind it. What serving does in one kernel is cut where an
 * addition has to come in between, which changes no bit of a row without one (kernels.h: linear's norm, unit and addition). */
#include "base/assert.h"
#include "model/lora.h"
#include "model/ops_adapted.h"

struct qr_tensor qr_adapted_linear(struct qr_exec *x, const struct qr_tensor *in, const struct qr_weight *w, const struct qr_weight *bias)
{
    QR_ASSERT(x != NULL && in != NULL);
    QR_ASSERT(w != NULL);
    struct qr_tensor out = qr_ops_serve.linear(x, in, w, bias);
    qr_lora_apply(x, &out, in, w);
    return out;
}

static void adapted_onto(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *in, const struct qr_weight *w, const struct qr_weight *bias)
{
    qr_serve_linear_onto(x, h, in, w, bias);
    qr_lora_apply(x, h, in, w);
}

struct qr_tensor qr_adapted_attend(struct qr_exec *x, const struct qr_tensor *h, const struct qr_attend_weights *w, float eps,
                                   const struct qr_attn_spec *spec)
{
    QR_ASSERT(x != NULL && h != NULL);
    QR_ASSERT(w != NULL && spec != NULL);
    const struct qr_tensor in = qr_plain_norm(x, h, w->norm, w->norm_bias, eps);
    struct qr_tensor qkv = qr_adapted_linear(x, &in, w->qkv, w->qkv_bias);
    return qr_serve_attend_from(x, &qkv, w, eps, spec);
}

void qr_adapted_feed(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *mixed, const struct qr_feed_weights *w, float eps, enum qr_act act)
{
    QR_ASSERT(x != NULL && h != NULL);
    QR_ASSERT(mixed != NULL && w != NULL);
    if (!qr_feed_is_chain(w)) { /* it goes through x->ops, which are these verbs */
        QR_ASSERT(x->ops == &qr_ops_adapted);
        qr_plain_feed(x, h, mixed, w, eps, act);
        return;
    }
    adapted_onto(x, h, mixed, w->out, w->out_bias);
    const struct qr_tensor in = qr_ops_serve.norm(x, h, w->norm, eps);
    const struct qr_tensor gate_up = qr_adapted_linear(x, &in, w->gate_up, w->gate_up_bias), gated = qr_ops_serve.glu(x, &gate_up, act);
    adapted_onto(x, h, &gated, w->down, w->down_bias);
}
