/* Phi-3 and 4: q, k and v are one matrix in the file, gate and up another; a part of each head rotates, and long
 * contexts have factors of their own. */
#include "loader/families/family.h"
#include "loader/families/rows.h"

static const struct qr_weight_row rows[] = {
    EMBED_ROW,
    WHOLE(P "input_layernorm.weight", VECTOR, true, EMBD, ZERO, ALWAYS, NONE, LAYER(norm_attn)),
    WHOLE(P "self_attn.qkv_proj.weight", MATRIX, true, QKV, EMBD, ALWAYS, OUT, LAYER(qkv)),
    WHOLE(P "self_attn.o_proj.weight", MATRIX, true, EMBD, Q, ALWAYS, IN, LAYER(out)),
    WHOLE(P "post_attention_layernorm.weight", VECTOR, true, EMBD, ZERO, ALWAYS, NONE, LAYER(norm_mlp)),
    WHOLE(P "mlp.gate_up_proj.weight", MATRIX, true, 2FFN, EMBD, ALWAYS, OUT, LAYER(gate_up)),
    WHOLE(P "mlp.down_proj.weight", MATRIX, true, EMBD, FFN, ALWAYS, IN, LAYER(down)),
    HEAD_ROWS,
};

static const struct qr_family_rename gguf_names[] = {
    {"attn_qkv", "self_attn.qkv_proj"},
    {"ffn_up", "mlp.gate_up_proj"},
    {NULL, NULL},
};

const struct qr_family qr_family_phi3 = {
    .name = {{"Phi3ForCausalLM", "phi3"}},
    .usual = {.ctx_max = 4096, .original_ctx = 4096, .partial = 1},
    .window = QR_WINDOW_IF_NAMED,
    .weights = rows,
    .gguf = "phi3",
    .gguf_names = gguf_names,
};
