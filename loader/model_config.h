/* model_config.h - what a model is, whatever file said so. Plain data, checked once by its reader. */
#ifndef QR_LOADER_MODEL_CONFIG_H
#define QR_LOADER_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sampling.h"
#include "kernels/dtype.h"
#include "kernels/kernels.h"
#include "loader/families/registry.h"

#define QR_LAYERS_MAX 1024

enum qr_rope_type { QR_ROPE_DEFAULT, QR_ROPE_LINEAR, QR_ROPE_DYNAMIC, QR_ROPE_LLAMA3, QR_ROPE_YARN, QR_ROPE_LONG };
#define QR_ROPE_PAIRS_MAX 512 /* of a head */

struct qr_rope_config {
    enum qr_rope_type type;
    double theta;
    double factor;                   /* > 0; 1 when absent */
    double low_freq_factor, high_freq_factor;
    double beta_fast, beta_slow;     /* yarn */
    double attn_factor;              /* yarn: < 0 when the file gives none */
    double mscale, mscale_all_dim;   /* yarn: 0 when absent */
    bool truncate;                   /* yarn */
    int32_t original_ctx;            /* original_max_position_embeddings */
    double partial;                  /* the share of a head that rotates, its first numbers; 1: all */
    float short_factor[QR_ROPE_PAIRS_MAX], long_factor[QR_ROPE_PAIRS_MAX]; /* longrope: what each frequency is divided by, up to original_ctx and beyond */
    int32_t n_factors;
};

/* Numbers of a head that rotate. partial 0 is a configuration filled in by hand: all. */
static inline int32_t qr_rope_numbers(const struct qr_rope_config *r, int32_t head_dim)
{
    return r->partial > 0 ? (int32_t)(head_dim * r->partial) : head_dim;
}

/* A feed-forward of experts, of which each token goes through a few. */
struct qr_moe_config {
    int32_t n_experts, n_used;       /* E, 0: there are none; and how many of them a token goes through */
    int32_t n_ffn;                   /* F of one expert */
    int32_t n_ffn_shared;            /* of the expert that every token goes through beside these, times sigmoid of a gate of its own; 0: none */
    bool normalize;                  /* the weights of a token's experts are made to add up to 1 */
    uint64_t dense[QR_LAYERS_MAX / 64]; /* a bit for each layer that has one plain feed-forward instead */
};

#define QR_EOS_MAX 8

/* How a Hugging Face checkpoint stores its matrices (quantized_tensors.h). */
enum qr_quant_method { QR_QUANT_NONE, QR_QUANT_GPTQ, QR_QUANT_AWQ, QR_QUANT_COMPRESSED, QR_QUANT_FP8, QR_QUANT_MXFP4 };
struct qr_quant_scheme {
    enum qr_quant_method method;
    int32_t bits, group;             /* group 0: as the scales' shape says */
    int32_t block_out, block_in;     /* of scales for blocks, 0: none */
    bool zeros_less_one;             /* GPTQ: what is stored is one less than the zero */
};

struct qr_model_config {
    enum qr_arch arch;
    char arch_name[64];              /* "LlamaForCausalLM" */
    int32_t n_layers, n_embd;        /* L, D */
    int32_t n_heads, n_kv_heads, head_dim; /* H, G, K */
    int32_t n_ffn, n_vocab;          /* F, V */
    int32_t ctx_max;                 /* max_position_embeddings */
    int32_t window;                  /* sliding window, 0: none */
    int32_t window_first_layer;      /* layers below it use full attention (max_window_layers) */
    uint64_t unwindowed[QR_LAYERS_MAX / 64]; /* a bit for each later layer that uses full attention as well (layer_types) */
    float norm_eps;
    bool tied_head;
    bool headless;                   /* published without a head: its rows are embeddings, no token is drawn. Then tied_head, so that a head is found */
    bool classifier;                 /* headless, with a row of weights that makes a score of its last row (config/scorer.h) */
    bool qkv_bias, out_bias, mlp_bias;
    bool qk_norm;
    bool qk_norm_rows;               /* it is over all heads of a row at once */
    enum qr_act act;
    struct qr_clamp clamp;           /* of QR_ACT_CLAMPED, which only experts have */
    bool sinks;                      /* each query head has a logit beside its scores (kernels.h, attention) */
    bool layer_norm;                 /* norms are LayerNorm, with biases */
    bool post_norms;                 /* what each half of a layer adds has a norm of its own */
    bool ungated;                    /* the feed-forward has no gates: act(x up^T + bias) down^T + bias */
    bool transposed;                     /* matrices of layers are stored [in, out] (GPT-2's files) */
    int32_t n_positions;             /* rows of the table of learned positions, 0: there is none */
    float attn_softcap, logits_softcap; /* scores and logits become cap tanh(x / cap); 0: as they are */
    bool norm_plus_one;              /* Gemma: 1 + w is what a norm multiplies by; the loader adds the 1 */
    /* Granite's multipliers, the first one Gemma's as well; 0 is a configuration filled in by hand: 1, and 1 / sqrt(K) for attention */
    float embed_scale, residual_scale, attn_scale; /* of the embedding, of what each half of a layer adds, of scores */
    float logits_divisor;            /* logits are divided by it: the last norm's weights are, when they are loaded (and in train/params.h) */
    uint64_t unrotated[QR_LAYERS_MAX / 64]; /* a bit for each layer whose q and k have no positions */
    struct qr_moe_config moe;
    enum qr_dtype stored;            /* torch_dtype of the file */
    struct qr_quant_scheme quant;    /* of the file */
    struct qr_rope_config rope;
    double local_theta;              /* > 0: layers with a window rotate by it, unscaled, instead */
    int32_t bos_id;                  /* -1: none */
    int32_t eos_ids[QR_EOS_MAX], n_eos; /* union of config.json and generation_config.json (the latter wins when present) */
    struct qr_sampling_default gen[QR_P_N]; /* generation_config.json: defaults for requests that leave a parameter out */
};

/* What a headless model does instead, for messages. */
static inline const char *qr_headless_does(const struct qr_model_config *c)
{
    return c->classifier ? "it scores pairs of texts (/v1/rerank, /v1/score)" : "it makes embeddings (/v1/embeddings)";
}

/* Sets the bit of each so manieth layer. */
static inline void qr_layers_every(uint64_t bits[QR_LAYERS_MAX / 64], int32_t n_layers, int32_t every)
{
    for (int32_t l = 0; l < n_layers; l++)
        bits[l / 64] |= (uint64_t)((l + 1) % every == 0) << (l % 64);
}

/* The window of a layer, 0: none. */
static inline int32_t qr_layer_window(const struct qr_model_config *c, int32_t layer)
{
    return layer >= c->window_first_layer && (c->unwindowed[layer / 64] >> (layer % 64) & 1) == 0 ? c->window : 0;
}

/* The window of all layers, 0: some layer sees everything. */
static inline int32_t qr_model_window(const struct qr_model_config *c)
{
    for (int32_t l = 0; l < c->n_layers; l++)
        if (qr_layer_window(c, l) == 0)
            return 0;
    return c->window;
}

/* Whether a layer's feed-forward is experts. */
static inline bool qr_layer_has_experts(const struct qr_model_config *c, int32_t layer)
{
    return c->moe.n_experts > 0 && (c->moe.dense[layer / 64] >> (layer % 64) & 1) == 0;
}

#endif
