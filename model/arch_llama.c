/* Llama and its family: RMSNorm before attention and before a gated feed-forward, rotary positions, grouped heads. Mistral adds a
 * window, Qwen2 biases on q, k, v, Qwen3 a norm on each head of q and k; each is a weight or a number that is there or not. */
#include "base/assert.h"
#include "model/arch.h"
#include "model/blocks.h"
#include "model/model.h"

static void attention(struct qr_exec *x, struct qr_tensor *h, const struct qr_model_config *c, const struct qr_layer_weights *w, int32_t layer)
{
    const struct qr_ops *o = x->ops;
    const struct qr_attn_spec spec = qr_attn_spec_of(c, layer);
    struct qr_tensor qkv = o->norm_linear(x, h, &w->norm_attn, c->norm_eps, &w->qkv, qr_weight_or_null(&w->qkv_bias));
    struct qr_tensor mixed = o->attend(x, &qkv, c->qk_norm ? &w->q_norm : NULL, c->qk_norm ? &w->k_norm : NULL, c->norm_eps, &spec);
    o->linear_onto(x, h, &mixed, &w->out, qr_weight_or_null(&w->out_bias));
}

static void feed_forward(struct qr_exec *x, struct qr_tensor *h, const struct qr_model_config *c, const struct qr_layer_weights *w)
{
    const struct qr_ops *o = x->ops;
    struct qr_tensor gated = o->norm_gated(x, h, &w->norm_mlp, c->norm_eps, &w->gate_up, qr_weight_or_null(&w->gate_up_bias), QR_ACT_SILU);
    o->linear_onto(x, h, &gated, &w->down, qr_weight_or_null(&w->down_bias));
}

struct qr_tensor qr_llama_forward(struct qr_exec *x, const struct qr_model_config *c, const struct qr_weights *w)
{
    QR_ASSERT(x != NULL && c != NULL);
    QR_ASSERT(w != NULL && w->n_layers == c->n_layers);
    const struct qr_ops *o = x->ops;
    struct qr_tensor h = o->embed(x, &w->embed, 1.0f);
    for (int32_t layer = 0; layer < c->n_layers; layer++) {
        size_t mark = o->scope_begin(x);
        attention(x, &h, c, &w->layer[layer], layer);
        feed_forward(x, &h, c, &w->layer[layer]);
        o->scope_end(x, &h, mark);
    }
    struct qr_tensor rows = o->select_rows(x, &h);
    return o->norm_logits(x, &rows, &w->norm, c->norm_eps, &w->head);
}
