/* Llama and its family: RMSNorm before attention and before a gated feed-forward, rotary positions, grouped heads. Mistral adds a
 * window, Qwen2 biases on q, k, v, Qwen3 a norm on each head of q and k, Phi-3 stores fused matrices, SmolLM3 has layers without positions; each is a weight or
 * a number that is there or not. */
#include "base/assert.h"
#include "model/arch.h"
#include "model/blocks.h"
#include "model/model.h"

static void layer(struct qr_exec *x, struct qr_tensor *h, const struct qr_model_config *c, const struct qr_layer_weights *w, int32_t i)
{
    const struct qr_attn_spec spec = qr_attn_spec_of(c, i);
    const struct qr_attend_weights attend = {.norm = &w->norm_attn, .qkv = &w->qkv, .qkv_bias = qr_weight_or_null(&w->qkv_bias),
                                             .q_norm = c->qk_norm ? &w->q_norm : NULL, .k_norm = c->qk_norm ? &w->k_norm : NULL};
    const struct qr_feed_weights feed = {.out = &w->out, .out_bias = qr_weight_or_null(&w->out_bias), .norm = &w->norm_mlp, .gate_up = &w->gate_up,
                                         .gate_up_bias = qr_weight_or_null(&w->gate_up_bias), .down = &w->down,
                                         .down_bias = qr_weight_or_null(&w->down_bias)};
    struct qr_tensor mixed = x->ops->attend(x, h, &attend, c->norm_eps, &spec);
    x->ops->feed(x, h, &mixed, &feed, c->norm_eps, QR_ACT_SILU);
}

struct qr_tensor qr_llama_forward(struct qr_exec *x, const struct qr_model_config *c, const struct qr_weights *w)
{
    QR_ASSERT(x != NULL && c != NULL);
    QR_ASSERT(w != NULL && w->n_layers == c->n_layers);
    const struct qr_ops *o = x->ops;
    struct qr_tensor h = o->embed(x, &w->embed, 1.0f);
    for (int32_t i = 0; i < c->n_layers; i++) {
        size_t mark = o->scope_begin(x);
        layer(x, &h, c, &w->layer[i], i);
        o->scope_end(x, &h, mark);
    }
    struct qr_tensor rows = o->select_rows(x, &h);
    return o->norm_logits(x, &rows, &w->norm, c->norm_eps, &w->head);
}
