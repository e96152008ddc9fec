/* rows.h - inside loader/families/ only: rows of weights (weight_table.h) as families write them, the groups that
 * most of them share, and what one family has of another. The order of rows is that in which random models are
 * drawn. */
#ifndef QR_LOADER_FAMILIES_ROWS_H
#define QR_LOADER_FAMILIES_ROWS_H

#include <stddef.h>

#include "loader/families/family.h"
#include "loader/weight_table.h"
#include "loader/weights.h"

/* One field says whether q, k, v and the output have biases. */
#define ATTENTION_BIAS .qkv_bias_field = "attention_bias", .out_bias_field = "attention_bias"

#define LAYER(field) offsetof(struct qr_layer_weights, field)
#define TOP(field) offsetof(struct qr_weights, field)
#define P "model.layers.%d."

#define ROW(title, kind_, layer, out, in, whole, from, when_, split_, place, ...) \
    {.name = title, .kind = QR_KIND_##kind_, .per_layer = layer, .n_out = QR_DIM_##out, .n_in = QR_DIM_##in, \
     .total = QR_DIM_##whole, .first = QR_DIM_##from, .when = QR_WHEN_##when_, .split = QR_SPLIT_##split_, \
     .at = place, __VA_ARGS__}
/* A whole matrix or vector, and a piece of a fused one; a matrix of each expert, and one of the shared expert. */
#define WHOLE(title, kind, layer, out, in, when, split, place) \
    ROW(title, kind, layer, out, in, out, ZERO, when, split, place, .stacked = false)
#define PIECE(title, kind, out, in, whole, from, when, split, place) \
    ROW(title, kind, true, out, in, whole, from, when, split, place, .stacked = false)
#define EXPERT(title, out, in, whole, from, split, place) \
    ROW(title, MATRIX, true, out, in, whole, from, EXPERTS, split, place, .per_expert = true, .stacked = true)
#define SHARED(title, out, in, whole, from, split, place) \
    ROW(title, MATRIX, true, out, in, whole, from, SHARED, split, place, .stacked = true)

#define EMBED_ROW WHOLE("model.embed_tokens.weight", TABLE, false, VOCAB, EMBD, ALWAYS, NONE, TOP(embed))
#define QKV_ROWS \
    PIECE(P "self_attn.q_proj.weight", MATRIX, Q, EMBD, QKV, ZERO, ALWAYS, OUT, LAYER(qkv)), \
    PIECE(P "self_attn.k_proj.weight", MATRIX, KV, EMBD, QKV, Q, ALWAYS, OUT, LAYER(qkv)), \
    PIECE(P "self_attn.v_proj.weight", MATRIX, KV, EMBD, QKV, Q_KV, ALWAYS, OUT, LAYER(qkv)), \
    PIECE(P "self_attn.q_proj.bias", VECTOR, Q, ZERO, QKV, ZERO, QKV_BIAS, OUT, LAYER(qkv_bias)), \
    PIECE(P "self_attn.k_proj.bias", VECTOR, KV, ZERO, QKV, Q, QKV_BIAS, OUT, LAYER(qkv_bias)), \
    PIECE(P "self_attn.v_proj.bias", VECTOR, KV, ZERO, QKV, Q_KV, QKV_BIAS, OUT, LAYER(qkv_bias))
#define HEAD_NORM_ROWS \
    WHOLE(P "self_attn.q_norm.weight", VECTOR, true, HEAD, ZERO, QK_NORM, NONE, LAYER(q_norm)), \
    WHOLE(P "self_attn.k_norm.weight", VECTOR, true, HEAD, ZERO, QK_NORM, NONE, LAYER(k_norm))
#define OUT_ROWS \
    WHOLE(P "self_attn.o_proj.weight", MATRIX, true, EMBD, Q, ALWAYS, IN, LAYER(out)), \
    WHOLE(P "self_attn.o_proj.bias", VECTOR, true, EMBD, ZERO, OUT_BIAS, NONE, LAYER(out_bias))
#define INPUT_NORM_ROWS \
    WHOLE(P "input_layernorm.weight", VECTOR, true, EMBD, ZERO, ALWAYS, NONE, LAYER(norm_attn)), \
    WHOLE(P "input_layernorm.bias", VECTOR, true, EMBD, ZERO, LAYER_NORM, NONE, LAYER(norm_attn_bias))
/* What is before the MLP of nearly every family. */
#define ATTENTION_ROWS \
    EMBED_ROW, INPUT_NORM_ROWS, QKV_ROWS, HEAD_NORM_ROWS, OUT_ROWS, \
    WHOLE(P "post_attention_layernorm.weight", VECTOR, true, EMBD, ZERO, ALWAYS, NONE, LAYER(norm_mlp)), \
    WHOLE(P "post_attention_layernorm.bias", VECTOR, true, EMBD, ZERO, LAYER_NORM, NONE, LAYER(norm_mlp_bias))
/* The MLP, in all layers or in those that have no experts. */
#define MLP_ROWS(when) \
    PIECE(P "mlp.gate_proj.weight", MATRIX, FFN, EMBD, 2FFN, ZERO, when, OUT, LAYER(gate_up)), \
    PIECE(P "mlp.up_proj.weight", MATRIX, FFN, EMBD, 2FFN, FFN, when, OUT, LAYER(gate_up)), \
    PIECE(P "mlp.gate_proj.bias", VECTOR, FFN, ZERO, 2FFN, ZERO, MLP_BIAS, OUT, LAYER(gate_up_bias)), \
    PIECE(P "mlp.up_proj.bias", VECTOR, FFN, ZERO, 2FFN, FFN, MLP_BIAS, OUT, LAYER(gate_up_bias)), \
    WHOLE(P "mlp.down_proj.weight", MATRIX, true, EMBD, FFN, when, IN, LAYER(down)), \
    WHOLE(P "mlp.down_proj.bias", VECTOR, true, EMBD, ZERO, MLP_BIAS, NONE, LAYER(down_bias))
/* Norms behind both halves, with which the MLP's own one is called pre_feedforward_layernorm. */
#define OUT_NORM_ROW \
    WHOLE(P "post_attention_layernorm.weight", VECTOR, true, EMBD, ZERO, POST_NORMS, NONE, LAYER(out_norm))
#define DOWN_NORM_ROW \
    WHOLE(P "post_feedforward_layernorm.weight", VECTOR, true, EMBD, ZERO, POST_NORMS, NONE, LAYER(down_norm))
/* A classifier of one label, in place of a head. */
#define SCORE_ROW WHOLE("score.weight", ROWS, false, ONE, EMBD, CLASSIFIER, NONE, TOP(score))
/* What is behind the layers, and the end of the rows. */
#define HEAD_ROWS \
    WHOLE("model.norm.weight", VECTOR, false, EMBD, ZERO, ALWAYS, NONE, TOP(norm)), \
    WHOLE("model.norm.bias", VECTOR, false, EMBD, ZERO, LAYER_NORM, NONE, TOP(norm_bias)), \
    WHOLE("lm_head.weight", MATRIX, false, VOCAB, EMBD, UNTIED, OUT, TOP(head)), \
    WHOLE("model.embed_tokens.weight", MATRIX, false, VOCAB, EMBD, TIED, OUT, TOP(head)), \
    SCORE_ROW, {.name = NULL}

/* Of families that differ from Llama in numbers and flags only, from Qwen2-MoE in how many experts there are, from
 * Gemma 2 and OLMo 2 in windows. */
extern const struct qr_weight_row qr_llama_rows[], qr_qwen_moe_rows[], qr_gemma2_rows[], qr_olmo2_rows[];
extern const struct qr_family_rename qr_gemma2_gguf_names[];

/* Gemma 2's hooks, which are Gemma 3's, too: what differs is in their rows. */
int qr_gemma2_read_hf(const struct qr_hf_obj *o, struct qr_model_config *c);
void qr_gemma2_write_hf(struct qr_buf *out, const struct qr_model_config *c);
int qr_gemma2_read_gguf(const struct qr_gguf_reader *r);
void qr_gemma2_make_small(struct qr_model_config *c);

/* Makes an OLMo 3 of the configuration of an OLMo 2, whose name it has in GGUF files. */
int qr_olmo3_read_gguf(const struct qr_gguf_reader *r);

#endif
