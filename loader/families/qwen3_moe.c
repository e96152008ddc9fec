/* Qwen3-MoE: Qwen 3 with many small experts; some layers are plain. */
#include "loader/families/family.h"
#include "loader/families/rows.h"

static const struct qr_family_experts experts = {
    .count_field = "num_experts",
    .n_experts = 128,
    .n_used = 8,
    .n_ffn = 768,
    .normalize_field = true,
    .normalized_in_gguf = true,
    .layers_differ = true,
};

static const struct qr_family_rename gguf_names[] = {{"ffn_gate_inp", "mlp.gate"}, {NULL, NULL}};

const struct qr_family qr_family_qwen3_moe = {
    .name = {{"Qwen3MoeForCausalLM", "qwen3_moe"}},
    .usual = {.n_kv_heads = 4, .head_dim = 128, .ctx_max = 32768},
    .qk_norm = true,
    ATTENTION_BIAS,
    .window = 4096,
    .window_switched = true,
    .experts = &experts,
    .weights = qr_qwen_moe_rows,
    .gguf = "qwen3moe",
    .gguf_names = gguf_names,
};
