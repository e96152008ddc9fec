/* Seed-OSS: a Llama whose biases of q, k and v, of the output and of the MLP are switched apart. */
#include "loader/families/family.h"
#include "loader/families/rows.h"

const struct qr_family qr_family_seed_oss = {
    .name = {{"SeedOssForCausalLM", "seed_oss"}},
    .usual = {.n_kv_heads = 8, .head_dim = 128, .ctx_max = 524288},
    .qkv_bias = true,
    .qkv_bias_field = "attention_bias",
    .out_bias_field = "attention_out_bias",
    .mlp_bias_field = "mlp_bias",
    .weights = qr_llama_rows,
    .gguf = "seed_oss",
};
