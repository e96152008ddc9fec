/* ops.h - the verbs a forward pass is written in. Two fillings: ops_serve.c computes at once and in place; the trainer's
 * records. Verbs that are several others in one are there so that a kernel can do them in one go; a filling that has nothing better takes the
 * qr_plain_* below, which call the others. Both ways give the same bits. An architecture (arch_*.c) knows nothing but these: no backend,
 * rank, quantization, cache page or gradient. layer_norm, add_positions, unit and softcap are serving's only: the trainer refuses who uses them
 * (qr_model_over).
 *
 * Tensors are f32 views in the step arena, but for what `attend` may hand to `feed`. An op that updates a tensor takes `struct qr_tensor *h`: serving
 * writes in place; recording allocates and re-points the handle. The model cannot tell.
 */
#ifndef QR_MODEL_OPS_H
#define QR_MODEL_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "kernels/tensor.h"

struct qr_exec;

struct qr_attn_spec {
    int32_t layer, n_heads, n_kv_heads, head_dim, window;
    float scale, softcap;
    bool unrotated; /* q and k stay as they are: no positions */
    bool local;     /* rotates by the second table (qr_model_config's local_theta) */
};

/* Weights of half a layer; biases and norms of heads may be NULL. With a norm_bias the norm is LayerNorm, else RMSNorm. */
struct qr_attend_weights {
    const struct qr_weight *norm, *norm_bias, *qkv, *qkv_bias, *q_norm, *k_norm;
    const struct qr_weight *out; /* or NULL: nothing but the product with it reads what attend returns, as bf16 row tiles (kernels.h) where kernels have them */
};
struct qr_feed_weights {
    const struct qr_weight *out, *out_bias, *norm, *norm_bias, *gate_up, *gate_up_bias, *down, *down_bias;
    const struct qr_weight *out_norm, *down_norm; /* or NULL: RMSNorms of what is added to h */
    bool ungated;                                 /* gate_up is [F, D], and `unit` takes the place of glu */
};
struct qr_head_weights {
    const struct qr_weight *norm, *norm_bias, *head;
    float softcap; /* 0: none */
};

/* And where experts take the feed-forward's place. gate_up and down are stacks; shared_gate, one number for each row, belongs to an expert that every row goes
 * through, with the weight 1 / (1 + e^-number). */
struct qr_experts_weights {
    const struct qr_weight *out, *out_bias, *norm, *router, *gate_up, *down;
    const struct qr_weight *shared_gate, *shared_gate_up, *shared_down; /* or NULL */
};
struct qr_experts_spec {
    int32_t n_used;
    bool normalize, sigmoid; /* of route (kernels.h) */
    enum qr_act act;
};

struct qr_ops {
    /* [N, D] = rows of the embedding for the batch's ids, times scale. */
    struct qr_tensor (*embed)(struct qr_exec *x, const struct qr_weight *w, float scale);
    /* RMSNorm of h as a new tensor. */
    struct qr_tensor (*norm)(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight *w, float eps);
    /* LayerNorm of h as a new tensor. */
    struct qr_tensor (*layer_norm)(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight *w, const struct qr_weight *bias, float eps);
    /* *h += rows of the table of positions, by the batch's positions. */
    void (*add_positions)(struct qr_exec *x, struct qr_tensor *h, const struct qr_weight *table);
    /* *h += delta; returns RMSNorm(*h). */
    struct qr_tensor (*residual_norm)(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *delta,
                                      const struct qr_weight *w, float eps);
    void (*residual_add)(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *delta);
    /* [N, n_out] = in w^T + bias; bias may be NULL. */
    struct qr_tensor (*linear)(struct qr_exec *x, const struct qr_tensor *in, const struct qr_weight *w, const struct qr_weight *bias);
    /* RMSNorm over each head of *q [N, H, K]. */
    void (*qk_norm)(struct qr_exec *x, struct qr_tensor *q, const struct qr_weight *w, float eps);
    /* Rotary position embedding of *q [N, H, K] by the model's table for this batch, or its local one. */
    void (*rope)(struct qr_exec *x, struct qr_tensor *q, bool local);
    /* Writes k and v [N, G, K] to the cache, then attends: [N, H*K]. */
    struct qr_tensor (*attention)(struct qr_exec *x, const struct qr_tensor *q, const struct qr_tensor *k,
                                  const struct qr_tensor *v, const struct qr_attn_spec *spec);
    /* [N, F] = act(gate) * up from gate_up [N, 2F]. */
    struct qr_tensor (*glu)(struct qr_exec *x, const struct qr_tensor *gate_up, enum qr_act act);
    /* *h += what the spec's experts make of `in` [N, D], chosen and weighted by logits [N, E]: route, then experts (kernels.h). */
    void (*experts)(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *in, const struct qr_tensor *logits, const struct qr_weight *gate_up,
                    const struct qr_weight *down, const struct qr_experts_spec *spec);
    /* *x = act(*x), [N, F]. */
    void (*unit)(struct qr_exec *x, struct qr_tensor *h, enum qr_act act);
    /* The rows whose logits are wanted, then those wanted as they leave the last norm: [n_logits + n_hidden, D]. */
    struct qr_tensor (*select_rows)(struct qr_exec *x, const struct qr_tensor *h);
    /* [n_logits, V] f32. */
    struct qr_tensor (*logits)(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight *w);
    /* *logits = cap tanh(*logits / cap). */
    void (*softcap)(struct qr_exec *x, struct qr_tensor *logits, float cap);
    /* Several in one. norm, linear (q, k, v in one matrix), qk_norm of q and of k where there are weights for it, rope of both unless unrotated,
     * attention. */
    struct qr_tensor (*attend)(struct qr_exec *x, const struct qr_tensor *h, const struct qr_attend_weights *w, float eps, const struct qr_attn_spec *spec);
    /* *h += mixed out^T + bias; then with norm, linear (gate and up in one matrix), glu and linear: *h += glu(norm(*h) gate_up^T + bias) down^T + bias.
     * What is added may have norms, and a feed-forward no gates (struct qr_feed_weights). */
    void (*feed)(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *mixed, const struct qr_feed_weights *w, float eps, enum qr_act act);
    /* The first half of feed, then with norm, linear (the router) and experts; and with linear (its gate) and experts once more for the shared one. */
    void (*feed_experts)(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *mixed, const struct qr_experts_weights *w, float eps,
                         const struct qr_experts_spec *spec);
    /* norm, which is all for hidden rows (x->hidden), logits, and softcap where there is one: [n_logits, V]. */
    struct qr_tensor (*norm_logits)(struct qr_exec *x, const struct qr_tensor *h, const struct qr_head_weights *w, float eps);
    /* scope_begin marks the arena, scope_end closes a layer: everything made since the mark is given back, except *h. */
    size_t (*scope_begin)(struct qr_exec *x);
    void (*scope_end)(struct qr_exec *x, struct qr_tensor *h, size_t mark);
};

extern const struct qr_ops qr_ops_serve;
extern const struct qr_ops qr_ops_ranks; /* serves a rank's share of the model (ranks.h) */
extern const struct qr_ops qr_ops_plain; /* serves with one kernel for each verb: what the other is compared with */
extern const struct qr_ops qr_ops_apart; /* and with q, k, v, gate and up in products of their own. Not with quantized weights of the plainest kernels */

extern const struct qr_ops qr_ops_ranks_adapted;
extern const struct qr_ops qr_ops_adapted; /* steps in which rows have adapters (lora.h): the same for the other rows, bit for bit */

/* What serving's attend and feed consist of, for who times the parts (tune.c): the bits are the same. attend_from goes on from the product with the fused
 * q, k, v matrix, which is used up. */
struct qr_tensor qr_serve_norm_linear(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight *norm, float eps, const struct qr_weight *w,
                                      const struct qr_weight *bias);
struct qr_tensor qr_serve_norm_gated(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight *norm, float eps, const struct qr_weight *w,
                                     const struct qr_weight *bias, enum qr_act act);
void qr_serve_linear_onto(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *in, const struct qr_weight *w, const struct qr_weight *bias);
struct qr_tensor qr_serve_attend_from(struct qr_exec *x, struct qr_tensor *qkv, const struct qr_attend_weights *w, float eps, const struct qr_attn_spec *spec);

/* The verbs that are several in one, in terms of x->ops. */
struct qr_tensor qr_plain_attend(struct qr_exec *x, const struct qr_tensor *h, const struct qr_attend_weights *w, float eps,
                                 const struct qr_attn_spec *spec);
void qr_plain_feed(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *mixed, const struct qr_feed_weights *w, float eps, enum qr_act act);
void qr_plain_feed_experts(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *mixed, const struct qr_experts_weights *w, float eps,
                           const struct qr_experts_spec *spec);
void qr_plain_mix_experts(struct qr_exec *x, struct qr_tensor *h, const struct qr_experts_weights *w, float eps,
                          const struct qr_experts_spec *spec); /* its second half */
void qr_plain_add_experts(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *in, const struct qr_experts_weights *w,
                          const struct qr_experts_spec *spec); /* and that behind its norm */

/* First thing of a norm_logits: the rows of h that are wanted as they leave the last norm, which come last (qr_batch.hidden_row), go through it into x->hidden.
 * Returns the rows of h that are the head's. */
struct qr_tensor qr_hidden_rows_out(struct qr_exec *x, const struct qr_tensor *h, const struct qr_head_weights *w, float eps);
struct qr_tensor qr_plain_norm_logits(struct qr_exec *x, const struct qr_tensor *h, const struct qr_head_weights *w, float eps);

/* Whether feed is three products, of which the second has norm and gates, and each is one call of a kernel. */
static inline bool qr_feed_is_chain(const struct qr_feed_weights *w)
{
    return !w->norm_bias && !w->out_norm && !w->down_norm && !w->ungated && w->gate_up->n_parts == 0;
}

#endif
