/* The verbs that are several others in one, in terms of these: for fillings whose kernels do not do them in one go. */
#include "base/assert.h"
#include "model/model.h"

/* LayerNorm where there is a bias, else RMSNorm; h itself where there are no weights. */
static struct qr_tensor any_norm(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight *w,
                                 const struct qr_weight *bias, float eps)
{
    QR_ASSERT(w != NULL || bias == NULL);
    if (!w)
        return *h;
    return bias ? x->ops->layer_norm(x, h, w, bias, eps) : x->ops->norm(x, h, w, eps);
}

struct qr_tensor qr_plain_attend(struct qr_exec *x, const struct qr_tensor *h, const struct qr_attend_weights *w, float eps,
                                 const struct qr_attn_spec *spec)
{
    QR_ASSERT(x != NULL && h != NULL && w != NULL && spec != NULL);
    const int64_t n_q = (int64_t)spec->n_heads * spec->head_dim, n_kv = (int64_t)spec->n_kv_heads * spec->head_dim;
    struct qr_tensor in = any_norm(x, h, w->norm, w->norm_bias, eps), qkv = x->ops->linear(x, &in, w->qkv, w->qkv_bias);
    QR_ASSERT(qkv.n_dims == 2 && qkv.shape[1] == n_q + 2 * n_kv);
    const struct qr_tensor parts[3] = {qr_tensor_columns(&qkv, 0, n_q), qr_tensor_columns(&qkv, n_q, n_kv), qr_tensor_columns(&qkv, n_q + n_kv, n_kv)};
    struct qr_tensor q = qr_tensor_heads(&parts[0], spec->n_heads, spec->head_dim), k = qr_tensor_heads(&parts[1], spec->n_kv_heads, spec->head_dim);
    struct qr_tensor v = qr_tensor_heads(&parts[2], spec->n_kv_heads, spec->head_dim);
    if (w->q_norm)
        x->ops->qk_norm(x, &q, w->q_norm, eps);
    if (w->k_norm)
        x->ops->qk_norm(x, &k, w->k_norm, eps);
    if (!spec->unrotated) {
        x->ops->rope(x, &q, spec->local);
        x->ops->rope(x, &k, spec->local);
    }
    return x->ops->attention(x, &q, &k, &v, spec);
}

static void linear_onto(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *in, const struct qr_weight *w, const struct qr_weight *bias,
                        const struct qr_weight *norm, float eps)
{
    struct qr_tensor delta = x->ops->linear(x, in, w, bias);
    if (norm)
        delta = x->ops->norm(x, &delta, norm, eps);
    x->ops->residual_add(x, h, &delta);
}

void qr_plain_feed(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *mixed, const struct qr_feed_weights *w, float eps, enum qr_act act)
{
    QR_ASSERT(x != NULL && h != NULL);
    QR_ASSERT(mixed != NULL && w != NULL);
    linear_onto(x, h, mixed, w->out, w->out_bias, w->out_norm, eps);
    struct qr_tensor in = any_norm(x, h, w->norm, w->norm_bias, eps), up = x->ops->linear(x, &in, w->gate_up, w->gate_up_bias);
    if (w->ungated)
        x->ops->unit(x, &up, act);
    else
        up = x->ops->glu(x, &up, act);
    linear_onto(x, h, &up, w->down, w->down_bias, w->down_norm, eps);
}

struct qr_tensor qr_hidden_rows_out(struct qr_exec *x, const struct qr_tensor *h, const struct qr_head_weights *w, float eps)
{
    QR_ASSERT(x != NULL && h != NULL);
    QR_ASSERT(h->n_dims == 2 && h->shape[0] >= x->batch->n_hidden);
    struct qr_tensor rest = *h;
    if (x->batch->n_hidden == 0)
        return rest;
    struct qr_tensor wanted = *h;
    wanted.shape[0] = x->batch->n_hidden;
    rest.shape[0] -= wanted.shape[0];
    wanted.data = (float *)h->data + rest.shape[0] * h->stride[0];
    x->hidden = any_norm(x, &wanted, w->norm, w->norm_bias, eps);
    return rest;
}

struct qr_tensor qr_plain_norm_logits(struct qr_exec *x, const struct qr_tensor *h, const struct qr_head_weights *w, float eps)
{
    QR_ASSERT(x != NULL && h != NULL);
    QR_ASSERT(w != NULL && w->norm != NULL && w->head != NULL);
    const struct qr_tensor rows = qr_hidden_rows_out(x, h, w, eps);
    struct qr_tensor in = any_norm(x, &rows, w->norm, w->norm_bias, eps), logits = x->ops->logits(x, &in, w->head);
    if (w->softcap > 0)
        x->ops->softcap(x, &logits, w->softcap);
    return logits;
}
