/* Qwen2-MoE: Qwen 2 with many small experts and a shared one; some layers are plain. */
#include "loader/families/family.h"
#include "loader/families/rows.h"

/* Also Qwen3-MoE's, which has no shared expert. */
const struct qr_weight_row qr_qwen_moe_rows[] = {
    ATTENTION_ROWS,
    MLP_ROWS(DENSE),
    WHOLE(P "mlp.gate.weight", MATRIX, true, EXPERTS, EMBD, EXPERTS, NONE, LAYER(router)),
    EXPERT(P "mlp.experts.%d.gate_proj.weight", EXPERT_FFN, EMBD, 2EXPERT_FFN, ZERO, OUT, LAYER(experts_gate_up)),
    EXPERT(P "mlp.experts.%d.up_proj.weight", EXPERT_FFN, EMBD, 2EXPERT_FFN, EXPERT_FFN, OUT, LAYER(experts_gate_up)),
    EXPERT(P "mlp.experts.%d.down_proj.weight", EMBD, EXPERT_FFN, EMBD, ZERO, IN, LAYER(experts_down)),
    WHOLE(P "mlp.shared_expert_gate.weight", MATRIX, true, ONE, EMBD, SHARED, NONE, LAYER(shared_gate)),
    SHARED(P "mlp.shared_expert.gate_proj.weight", SHARED_FFN, EMBD, 2SHARED_FFN, ZERO, OUT, LAYER(shared_gate_up)),
    SHARED(P "mlp.shared_expert.up_proj.weight", SHARED_FFN, EMBD, 2SHARED_FFN, SHARED_FFN, OUT, LAYER(shared_gate_up)),
    SHARED(P "mlp.shared_expert.down_proj.weight", EMBD, SHARED_FFN, EMBD, ZERO, IN, LAYER(shared_down)),
    HEAD_ROWS,
};

static const struct qr_family_experts experts = {
    .count_field = "num_experts",
    .n_experts = 60,
    .n_used = 4,
    .n_ffn = 1408,
    .n_ffn_shared = 5632,
    .normalize_field = true,
    .layers_differ = true,
};

static const struct qr_family_rename gguf_names[] = {
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
    {NULL, NULL},
};

static void make_small(struct qr_model_config *c)
{
    c->moe.n_ffn_shared = 48;
}

const struct qr_family qr_family_qwen2_moe = {
    .name = {{"Qwen2MoeForCausalLM", "qwen2_moe"}},
    .usual = {.n_kv_heads = 16, .ctx_max = 32768},
    .qkv_bias = true,
    .qkv_bias_field = "qkv_bias",
    .window = 4096,
    .window_switched = true,
    .window_layers = QR_WINDOW_FROM,
    .window_list_written = true,
    .experts = &experts,
    .weights = qr_qwen_moe_rows,
    .gguf = "qwen2moe",
    .gguf_names = gguf_names,
    .make_small = make_small,
};
