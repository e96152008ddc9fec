/* family.h - one model family as data: its names in Hugging Face's and in GGUF files, what it means where a file is
 * silent, its weights, what its layers do otherwise than Llama's, and a small model of it for tests.
 *
 * A family is one file of this folder, which defines qr_family_NAME, and one line in registry.h. Rows are constants
 * with designated initializers; what is left out is 0 and means Llama's way. Hooks are for what is no constant: they
 * run last, on a configuration that is otherwise complete, and report errors as their readers do (hf_field.h,
 * gguf_reader.h). All other code reads struct qr_model_config and never asks for a family: what a row says of the
 * computation is copied there when a file is read.
 */
#ifndef QR_LOADER_FAMILIES_FAMILY_H
#define QR_LOADER_FAMILIES_FAMILY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "loader/config/gguf_reader.h"
#include "loader/config/hf_field.h"
#include "loader/model_config.h"
#include "loader/weight_table.h"

#define QR_WINDOW_IF_NAMED (-1) /* no window where the file names none */
#define QR_LOCAL_UNSCALED (-1)  /* of local_theta: that of the others, whose scaling is not theirs */

/* What says which layers have the window. */
enum qr_window_layers {
    QR_WINDOW_ALL,    /* all of them */
    QR_WINDOW_LISTED, /* layer_types, where it is there */
    QR_WINDOW_FROM,   /* the same, else all from number max_window_layers on */
};

/* Fields of config.json by the family's own names. */
struct qr_family_fields {
    const char *layers, *width, *heads, *ffn, *ctx, *eps, *act;
};

/* Experts in place of the MLP. */
struct qr_family_experts {
    const char *count_field;         /* of config.json */
    int32_t n_experts, n_used;
    int32_t n_ffn;                   /* of an expert; 0: the MLP's own number */
    int32_t n_ffn_shared;            /* 0: there is no shared one */
    /* norm_topk_prob says it, false where absent; else a token's weights add up to 1 */
    bool normalize_field;
    bool normalized_in_gguf;         /* they do in GGUF files that do not say it, and in a small model */
    bool layers_differ;              /* decoder_sparse_step and mlp_only_layers */
    /* The names of an expert's matrices, of which GGUF files have stacks: "block_sparse_moe.experts", "w1", ...; NULL:
     * "mlp.experts", "gate_proj", "up_proj", "down_proj". */
    const char *stem, *gate, *up, *down;
};

struct qr_family_rename {
    const char *from, *to;
};

struct qr_family {
    /* Hugging Face: architectures[0] and model_type. The first is written. `headless` is the name without a head where
     * it is not "FamilyModel". */
    struct {
        const char *architecture, *model_type, *headless;
    } name[2];
    struct qr_family_fields field;   /* NULL: the usual name */
    bool text_part;                  /* published within models that also see: fields may stand in text_config */

    /* What transformers' configuration class means where config.json is silent. */
    struct {
        int32_t n_heads, n_vocab;    /* 0: the file must say it */
        int32_t n_kv_heads;          /* 0: as many as query heads */
        int32_t head_dim;            /* 0: width / heads */
        int32_t n_ffn_widths;        /* the MLP is so many times as wide as the model; 0: the file must say it */
        int32_t ctx_max, original_ctx; /* the second 0: as ctx_max */
        double eps, theta;           /* 0: 1e-6, 10000 */
        double partial;              /* the share of a head that rotates; 0: all of it, another one is refused */
        bool tied;
    } usual;

    /* The computation. A GGUF file's tensors say qk_norm and biases themselves. */
    const char *activation[3];       /* names of the one that is computed, the one that is written first. NULL: silu */
    enum qr_act act;
    struct qr_clamp clamp;           /* of QR_ACT_CLAMPED */
    bool sinks;                      /* as in struct qr_model_config */
    bool layer_norm, post_norms, qk_norm_rows, ungated; /* as in struct qr_model_config */
    bool transposed;                 /* Hugging Face's files have the layers' matrices as [in, out] */
    bool norm_plus_one;              /* Hugging Face's norms multiply by 1 + w; GGUF files have added the 1 */
    bool scaled_embedding;           /* embeddings times sqrt(width), rounded to bf16 where the model is stored so */
    float attn_softcap, logits_softcap; /* where a file does not say it; 0: none */
    bool qk_norm, qkv_bias;
    const char *qkv_bias_field, *out_bias_field, *mlp_bias_field; /* NULL: none but what qkv_bias says */

    int32_t window;                  /* 0: none; QR_WINDOW_IF_NAMED */
    bool window_switched;            /* a window counts only with use_sliding_window */
    int32_t window_every;            /* each so manieth layer has none, where no list says otherwise; 0: no such rule */
    enum qr_window_layers window_layers;
    bool window_list_written;        /* a file with a window lists its layers; with QR_WINDOW_FROM, it must */
    double local_theta;              /* layers with a window rotate by it; 0: as all others; QR_LOCAL_UNSCALED */

    const struct qr_family_experts *experts; /* NULL: none */

    /* Tensors. Lists of names end with NULL. */
    const struct qr_weight_row *weights;      /* ends with a row without a name */
    const struct qr_family_rename *prefixes;  /* other beginnings of names; NULL: "model." may be left out, no more */
    const char *gguf;                         /* general.architecture; NULL: there are no such files */
    const struct qr_family_rename *gguf_names; /* that are not the usual ones, without "blk.N." and tail */
    const char *gguf_layers;                  /* safetensors' names of layers begin so; NULL: "model.layers." */
    bool gguf_pairs;                          /* in rows of q and k the two numbers of a rotary pair stand together */

    int (*read_hf)(const struct qr_hf_obj *o, struct qr_model_config *c);
    void (*write_hf)(struct qr_buf *out, const struct qr_model_config *c); /* fields that read back so */
    int (*read_gguf)(const struct qr_gguf_reader *r);
    void (*make_small)(struct qr_model_config *c); /* changes what the flags above have made of a plain small Llama */
};

#define QR_FAMILY_ROW(NUMBER, file) extern const struct qr_family qr_family_##file;
QR_FAMILIES(QR_FAMILY_ROW)

/* Its name number i as it is published: "LlamaForCausalLM", "LlamaModel", "LlamaForSequenceClassification". */
const char *qr_family_published_name(char text[64], const struct qr_family *f, int i, enum qr_published as);

/* The family's names of fields, the usual ones filled in; and the experts' names that one tensor of a GGUF file
 * stands for: "ffn_gate_exps" -> gate, NULL: it is no stack of experts. */
struct qr_family_fields qr_family_fields(const struct qr_family *f);
const char *qr_family_expert_name(const struct qr_family *f, const char *gguf_stem, const char **stem);

/* Copies what the row says of the computation, in whatever files a model is. */
void qr_family_flags(struct qr_model_config *c, const struct qr_family *f);

/* sqrt(width) for scaled_embedding. */
float qr_family_embed_scale(int32_t width, bool as_bf16);

#endif
