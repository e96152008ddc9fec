/* Mixtral: Mistral with experts in all layers. GGUF files call it a llama with experts. */
#include "loader/families/family.h"
#include "loader/families/rows.h"

static const struct qr_weight_row rows[] = {
    ATTENTION_ROWS,
    WHOLE(P "block_sparse_moe.gate.weight", MATRIX, true, EXPERTS, EMBD, EXPERTS, NONE, LAYER(router)),
    EXPERT(P "block_sparse_moe.experts.%d.w1.weight", EXPERT_FFN, EMBD, 2EXPERT_FFN, ZERO, OUT, LAYER(experts_gate_up)),
    EXPERT(P "block_sparse_moe.experts.%d.w3.weight", EXPERT_FFN, EMBD, 2EXPERT_FFN, EXPERT_FFN, OUT,
           LAYER(experts_gate_up)),
    EXPERT(P "block_sparse_moe.experts.%d.w2.weight", EMBD, EXPERT_FFN, EMBD, ZERO, IN, LAYER(experts_down)),
    HEAD_ROWS,
};

static const struct qr_family_experts experts = {
    .count_field = "num_local_experts",
    .n_experts = 8,
    .n_used = 2,
    .normalized_in_gguf = true,
    .stem = "block_sparse_moe.experts",
    .gate = "w1",
    .up = "w3",
    .down = "w2",
};

static const struct qr_family_rename gguf_names[] = {{"ffn_gate_inp", "block_sparse_moe.gate"}, {NULL, NULL}};

static void make_small(struct qr_model_config *c)
{
    c->moe.n_ffn = c->n_ffn;
}

const struct qr_family qr_family_mixtral = {
    .name = {{"MixtralForCausalLM", "mixtral"}},
    .usual = {.n_kv_heads = 8, .ctx_max = 131072, .theta = 1000000},
    .window = QR_WINDOW_IF_NAMED,
    .experts = &experts,
    .weights = rows,
    .gguf = "llama",
    .gguf_names = gguf_names,
    .gguf_pairs = true,
    .make_small = make_small,
};
