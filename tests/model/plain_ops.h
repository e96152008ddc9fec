/* plain_ops.h - the oracle of whole models: a forward with one kernel for each verb, and one with q, k, v, gate and up in products of their own as well. What
 * serving fuses must have the same bits. Single verbs that serving has are serving's.
 */
#ifndef QR_TESTS_MODEL_PLAIN_OPS_H
#define QR_TESTS_MODEL_PLAIN_OPS_H

#include "base/assert.h"
#include "model/model.h"
#include "model/ops.h"

/* At most so many times as much step arena as serving: norm, gate_up, glu and delta are kept where the fused verbs keep glu. */
#define PLAIN_ROOM 4

static inline struct qr_tensor plain_make(struct qr_exec *x, int64_t n_rows, int64_t n_cols)
{
    return qr_tensor_2d(qr_arena_alloc(x->act, (size_t)n_rows * (size_t)n_cols * sizeof(float), 64), QR_F32, n_rows, n_cols);
}

static inline void plain_qk_norm(struct qr_exec *x, struct qr_tensor *q, const struct qr_weight *w, float eps)
{
    QR_ASSERT(x != NULL && q != NULL && w != NULL);
    QR_ASSERT(q->n_dims == 3 && w->t.data != NULL);
    if (w->t.shape[0] != q->shape[2]) { /* over all heads of a row at once */
        const struct qr_norm_args rows = {.out = q->data, .x = q->data, .w = w->t.data, .out_stride = q->stride[0],
                                          .x_stride = q->stride[0], .n_rows = (int32_t)q->shape[0],
                                          .n_cols = (int32_t)w->t.shape[0], .eps = eps};
        QR_ASSERT(q->stride[1] == q->shape[2]);
        if (rows.n_rows > 0)
            x->be->k->rms_norm(x->be->queue, &rows);
        return;
    }
    const struct qr_head_norm_args a = {.x = q->data, .w = w->t.data, .stride = q->stride[0], .n_rows = (int32_t)q->shape[0],
                                        .n_heads = (int32_t)q->shape[1], .head_dim = (int32_t)q->shape[2], .eps = eps};
    x->be->k->head_norm(x->be->queue, &a);
}

static inline void plain_rope(struct qr_exec *x, struct qr_tensor *q, bool local)
{
    QR_ASSERT(x != NULL && q != NULL);
    const struct qr_tensor *table = local ? &x->local_cos_sin : &x->cos_sin;
    QR_ASSERT(q->n_dims == 3 && table->n_dims == 3 && q->shape[0] == table->shape[0]);
    const struct qr_rope_args a = {.x = q->data, .cos_sin = table->data, .stride = q->stride[0], .n_rows = (int32_t)q->shape[0],
                                   .n_heads = (int32_t)q->shape[1], .head_dim = (int32_t)q->shape[2],
                                   .n_rot = (int32_t)table->shape[2] * 2};
    x->be->k->rope(x->be->queue, &a);
}

static inline struct qr_tensor plain_attention(struct qr_exec *x, const struct qr_tensor *q, const struct qr_tensor *k, const struct qr_tensor *v,
                                               const struct qr_attn_spec *spec)
{
    QR_ASSERT(q->shape[1] == spec->n_heads && q->shape[2] == spec->head_dim && k->shape[1] == spec->n_kv_heads);
    const struct qr_kv_write_args write = {.kv = x->kv, .k = k->data, .v = v->data, .slot = x->batch->slot,
                                           .k_stride = k->stride[0], .v_stride = v->stride[0], .layer = spec->layer,
                                           .n_rows = (int32_t)k->shape[0]};
    x->be->k->kv_write(x->be->queue, &write);
    const struct qr_tensor out = plain_make(x, q->shape[0], (int64_t)spec->n_heads * spec->head_dim);
    const struct qr_attention_args a = {.out = out.data, .q = q->data, .batch = x->batch, .kv = x->kv, .out_stride = out.stride[0],
                                        .q_stride = q->stride[0], .layer = spec->layer, .n_heads = spec->n_heads, .window = spec->window,
                                        .scale = spec->scale, .softcap = spec->softcap,
                                        .sinks = spec->sinks ? spec->sinks->t.data : NULL};
    x->be->k->attention(x->be->queue, &a);
    return out;
}

static inline void plain_feed_experts(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *mixed, const struct qr_experts_weights *w, float eps,
                                      const struct qr_experts_spec *spec)
{
    const struct qr_tensor delta = x->ops->linear(x, mixed, w->out, w->out_bias);
    x->ops->residual_add(x, h, &delta);
    const struct qr_tensor in = x->ops->norm(x, h, w->norm, eps);
    struct qr_tensor logits = x->ops->linear(x, &in, w->router, w->router_bias);
    x->ops->experts(x, h, &in, &logits, w->gate_up, w->down, spec);
    if (!w->shared_gate)
        return;
    const struct qr_experts_spec shared = {.n_used = 1, .sigmoid = true, .act = spec->act};
    logits = x->ops->linear(x, &in, w->shared_gate, NULL);
    x->ops->experts(x, h, &in, &logits, w->shared_gate_up, w->shared_down, &shared);
}

static inline struct qr_tensor plain_logits(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight *w)
{
    return qr_ops_serve.linear(x, h, w, NULL);
}

static inline void plain_softcap(struct qr_exec *x, struct qr_tensor *logits, float cap)
{
    const struct qr_softcap_args a = {.x = logits->data, .stride = logits->stride[0], .n_rows = (int32_t)logits->shape[0],
                                      .n_cols = (int32_t)logits->shape[1], .cap = cap};
    if (a.n_rows > 0)
        x->be->k->softcap(x->be->queue, &a);
}

static inline struct qr_ops plain_ops(void)
{
    struct qr_ops o = qr_ops_serve;
    o.qk_norm = plain_qk_norm;
    o.rope = plain_rope;
    o.attention = plain_attention;
    o.logits = plain_logits;
    o.softcap = plain_softcap;
    o.attend = qr_plain_attend;
    o.feed = qr_plain_feed;
    o.feed_experts = plain_feed_experts;
    o.norm_logits = qr_plain_norm_logits;
    return o;
}

/* Outputs of the matrices that were packed into one: q, k, v, or gates and ups, told by their number; returns how many matrices that are. */
static inline int32_t apart_parts(int32_t part[3], const struct qr_model_config *c, int32_t n_out)
{
    const int32_t n_q = c->n_heads * c->head_dim, n_kv = c->n_kv_heads * c->head_dim;
    const bool qkv = n_out == n_q + 2 * n_kv, gated = n_out == 2 * c->n_ffn;
    part[0] = qkv ? n_q : gated ? c->n_ffn : n_out;
    part[1] = qkv ? n_kv : c->n_ffn;
    part[2] = n_kv;
    const int32_t n = qkv ? 3 : gated ? 2 : 1;
    for (int32_t i = 0, first = 0; i < n; i++, first += part[i - 1])
        if (first % QR_LINEAR_PACKED_TOGETHER != 0)
            return 1;
    return n;
}

/* What lies at a multiple of QR_LINEAR_PACKED_TOGETHER outputs is packed like a matrix of its own. */
static inline struct qr_tensor apart_linear(struct qr_exec *x, const struct qr_tensor *in, const struct qr_weight *w, const struct qr_weight *bias)
{
    const int32_t n_in = (int32_t)in->shape[1];
    int32_t part[3], n = apart_parts(part, qr_model_config(x->model), (int32_t)w->t.shape[0]), first = 0;
    if (n == 1 || w->n_parts > 0)
        return qr_ops_serve.linear(x, in, w, bias);
    struct qr_tensor out = plain_make(x, in->shape[0], w->t.shape[0]);
    for (int32_t i = 0; i < n; first += part[i++]) {
        const struct qr_weight own = {.packed_dtype = w->packed_dtype,
                                      .packed = (char *)w->packed + x->be->k->linear_packed_bytes(w->packed_dtype, first, n_in)};
        const struct qr_linear_args a = {.x = in->data, .w = &own, .bias = bias ? (const float *)bias->t.data + first : NULL,
                                         .out = (float *)out.data + first, .x_stride = in->stride[0], .out_stride = out.stride[0],
                                         .n_rows = (int32_t)in->shape[0], .n_in = n_in, .n_out = part[i]};
        x->be->k->linear(x->be->queue, &a);
    }
    return out;
}

/* Not with quantized weights of the plainest kernels, which pack them as a whole. */
static inline struct qr_ops apart_ops(void)
{
    struct qr_ops o = plain_ops();
    o.linear = apart_linear;
    return o;
}

#endif
