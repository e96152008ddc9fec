/* Llama and its family: RMSNorm before attention and before a gated feed-forward, rotary positions, grouped heads. Mistral adds a
 * window, Qwen2 biases on q, k, v, Qwen3 a norm on each head of q and k; each is a weight or a number that is there or not. */
#include "base/assert.h"
#include "model/arch.h"
#include "model/blocks.h"
#include "model/model.h"

static struct qr_tensor attention(struct qr_exec *x, const struct qr_tensor *in, const struct qr_model_config *c,
                                  const struct qr_layer_weights *w, int32_t layer)
{
    const struct qr_ops *o = x->ops;
    struct qr_tensor qkv = o->linear(x, in, &w->qkv, qr_weight_or_null(&w->qkv_bias)), q, k, v;
    qr_split_qkv(&qkv, c, &q, &k, &v);
    if (c->qk_norm) {
        o->qk_norm(x, &q, &w->q_norm, c->norm_eps);
        o->qk_norm(x, &k, &w->k_norm, c->norm_eps);
    }
    o->rope(x, &q);
    o->rope(x, &k);
    struct qr_attn_spec spec = qr_attn_spec_of(c, layer);
    struct qr_tensor mixed = o->attention(x, &q, &k, &v, &spec);
    return o->linear(x, &mixed, &w->out, qr_weight_or_null(&w->out_bias));
}

static struct qr_tensor feed_forward(struct qr_exec *x, const struct qr_tensor *in, const struct qr_layer_weights *w)
{
    const struct qr_ops *o = x->ops;
    struct qr_tensor gate_up = o->linear(x, in, &w->gate_up, qr_weight_or_null(&w->gate_up_bias));
    struct qr_tensor gated = o->glu(x, &gate_up, QR_ACT_SILU);
    return o->linear(x, &gated, &w->down, qr_weight_or_null(&w->down_bias));
}

struct qr_tensor qr_llama_forward(struct qr_exec *x, const struct qr_model_config *c, const struct qr_weights *w)
{
    QR_ASSERT(x != NULL && c != NULL);
    QR_ASSERT(w != NULL && w->n_layers == c->n_layers);
    const struct qr_ops *o = x->ops;
    struct qr_tensor h = o->embed(x, &w->embed, 1.0f);
    for (int32_t layer = 0; layer < c->n_layers; layer++) {
        const struct qr_layer_weights *l = &w->layer[layer];
        size_t mark = o->scope_begin(x);
        struct qr_tensor in = o->norm(x, &h, &l->norm_attn, c->norm_eps);
        struct qr_tensor delta = attention(x, &in, c, l, layer);
        in = o->residual_norm(x, &h, &delta, &l->norm_mlp, c->norm_eps);
        delta = feed_forward(x, &in, l);
        o->residual_add(x, &h, &delta);
        o->scope_end(x, &h, mark);
    }
    struct qr_tensor rows = o->select_rows(x, &h);
    rows = o->norm(x, &rows, &w->norm, c->norm_eps);
    return o->logits(x, &rows, &w->head);
}
