/* Llama and its family: RMSNorm before attention and before a gated feed-forward, rotary positions, grouped heads. Mistral adds a
 * window, Qwen2 biases on q, k, v, Qwen3 a norm on each head of q and k, Phi-3 stores fused matrices, SmolLM3 has layers without positions; each is a weight or
 * a number that is there or not. Mixtral, Qwen2-MoE and Qwen3-MoE have experts in place of the feed-forward, in all layers or in some. Gemma's gates are GELU,
 * its norms multiply by 1 + w (as loaded) and its embeddings are scaled; Gemma 2 and 3 have norms behind each half as well, and cap scores and logits or rotate
 * layers with a window by a table of their own. gpt-oss' heads have sinks, its experts clamped gates and biases. StableLM's
 * norms are LayerNorm, and so are GPT-2's, whose positions are a table and whose feed-forward has no gates. OLMo 2 and 3 have
 * norms behind the halves only, and norms of q and k over all heads at once.
 *
 * Granite multiplies what each half of a layer adds by r. Here h / r is carried instead: to it halves are added as they are, and a norm of it with eps / r^2 is
 * the norm of h with eps, as (h/r) / sqrt(mean (h/r)^2 + eps/r^2) = h / sqrt(mean h^2 + eps). So r costs nothing but a first factor of 1 / r. */
#include <math.h>

#include "base/assert.h"
#include "model/arch.h"
#include "model/model.h"

/* NULL for a weight that the model does not have. */
static const struct qr_weight *or_null(const struct qr_weight *w)
{
    return w->t.data || w->packed ? w : NULL;
}

/* Scores are divided by sqrt(K) unless the model has a scale of its own. */
static struct qr_attn_spec attn_spec_of(const struct qr_model_config *c, const struct qr_layer_weights *w, int32_t layer)
{
    return (struct qr_attn_spec){
        .layer = layer,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .window = qr_layer_window(c, layer),
        .scale = c->attn_scale > 0 ? c->attn_scale : (float)(1 / sqrt((double)c->head_dim)),
        .softcap = c->attn_softcap,
        .sinks = or_null(&w->sinks),
        .local = c->local_theta > 0 && qr_layer_window(c, layer) > 0,
        .row_norms = c->qk_norm_rows,
        .unrotated = (c->unrotated[layer / 64] >> (layer % 64) & 1) != 0,
    };
}

static void feed_experts(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *mixed, const struct qr_model_config *c,
                         const struct qr_layer_weights *w, float eps)
{
    const struct qr_experts_spec spec = {.n_used = c->moe.n_used, .normalize = c->moe.normalize, .act = c->act, .clamp = c->clamp,
                                         .gate_up_bias = or_null(&w->experts_gate_up_bias),
                                         .down_bias = or_null(&w->experts_down_bias)};
    const bool shared = c->moe.n_ffn_shared > 0;
    const struct qr_experts_weights experts = {.out = &w->out, .out_bias = or_null(&w->out_bias), .norm = &w->norm_mlp,
                                               .router = &w->router, .router_bias = or_null(&w->router_bias),
                                               .gate_up = &w->experts_gate_up, .down = &w->experts_down,
                                               .shared_gate = shared ? &w->shared_gate : NULL,
                                               .shared_gate_up = shared ? &w->shared_gate_up : NULL, .shared_down = shared ? &w->shared_down : NULL};
    x->ops->feed_experts(x, h, mixed, &experts, eps, &spec);
}

static void layer(struct qr_exec *x, struct qr_tensor *h, const struct qr_model_config *c, const struct qr_layer_weights *w, float eps, int32_t i)
{
    const struct qr_attn_spec spec = attn_spec_of(c, w, i);
    const struct qr_attend_weights attend = {.norm = or_null(&w->norm_attn), .norm_bias = or_null(&w->norm_attn_bias), .qkv = &w->qkv,
                                             .qkv_bias = or_null(&w->qkv_bias), .q_norm = c->qk_norm ? &w->q_norm : NULL,
                                             .k_norm = c->qk_norm ? &w->k_norm : NULL, .out = &w->out};
    struct qr_tensor mixed = x->ops->attend(x, h, &attend, eps, &spec);
    if (qr_layer_has_experts(c, i)) {
        feed_experts(x, h, &mixed, c, w, eps);
        return;
    }
    const struct qr_feed_weights feed = {.out = &w->out, .out_bias = or_null(&w->out_bias), .norm = or_null(&w->norm_mlp),
                                         .norm_bias = or_null(&w->norm_mlp_bias), .gate_up = &w->gate_up,
                                         .gate_up_bias = or_null(&w->gate_up_bias), .down = &w->down, .down_bias = or_null(&w->down_bias),
                                         .out_norm = or_null(&w->out_norm), .down_norm = or_null(&w->down_norm),
                                         .ungated = c->ungated};
    x->ops->feed(x, h, &mixed, &feed, eps, c->act);
}

struct qr_tensor qr_llama_forward(struct qr_exec *x, const struct qr_model_config *c, const struct qr_weights *w)
{
    QR_ASSERT(x != NULL && c != NULL);
    QR_ASSERT(w != NULL && w->n_layers == c->n_layers);
    const struct qr_ops *o = x->ops;
    const double r = c->residual_scale > 0 ? (double)c->residual_scale : 1, first = c->embed_scale > 0 ? (double)c->embed_scale : 1;
    const float eps = (float)((double)c->norm_eps / (r * r));
    QR_ASSERT(r == 1 || !c->qk_norm); /* their eps is that of numbers which nothing divided */
    struct qr_tensor h = o->embed(x, &w->embed, (float)(first / r));
    if (c->n_positions > 0)
        o->add_positions(x, &h, &w->positions);
    for (int32_t i = 0; i < c->n_layers; i++) {
        size_t mark = o->scope_begin(x);
        layer(x, &h, c, &w->layer[i], eps, i);
        o->scope_end(x, &h, mark);
    }
    struct qr_tensor rows = o->select_rows(x, &h);
    const struct qr_head_weights head = {.norm = &w->norm, .norm_bias = or_null(&w->norm_bias), .head = &w->head, .softcap = c->logits_softcap};
    return o->norm_logits(x, &rows, &head, eps);
}
