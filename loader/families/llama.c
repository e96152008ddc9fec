/* Llama 2 and 3, SmolLM2: what the others differ from. */
#include "loader/families/family.h"
#include "loader/families/rows.h"

const struct qr_weight_row qr_llama_rows[] = {ATTENTION_ROWS, MLP_ROWS(ALWAYS), HEAD_ROWS};

const struct qr_family qr_family_llama = {
    .name = {{"LlamaForCausalLM", "llama"}},
    .usual = {.ctx_max = 2048},
    ATTENTION_BIAS,
    .mlp_bias_field = "mlp_bias",
    .weights = qr_llama_rows,
    .gguf = "llama",
    .gguf_pairs = true,
};
