/* Qwen 3: norms of the heads of q and k in place of Qwen 2's biases. */
#include "loader/families/family.h"
#include "loader/families/rows.h"

const struct qr_family qr_family_qwen3 = {
    .name = {{"Qwen3ForCausalLM", "qwen3"}},
    .usual = {.n_kv_heads = 32, .head_dim = 128, .ctx_max = 32768},
    .qk_norm = true,
    ATTENTION_BIAS,
    .window = 4096,
    .window_switched = true,
    .window_layers = QR_WINDOW_FROM,
    .weights = qr_llama_rows,
    .gguf = "qwen3",
};
