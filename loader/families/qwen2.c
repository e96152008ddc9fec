/* Qwen 2 and 2.5: biases on q, k and v. */
#include "loader/families/family.h"
#include "loader/families/rows.h"

const struct qr_family qr_family_qwen2 = {
    .name = {{"Qwen2ForCausalLM", "qwen2"}},
    .usual = {.n_kv_heads = 32, .ctx_max = 32768},
    .qkv_bias = true,
    .window = 4096,
    .window_switched = true,
    .window_layers = QR_WINDOW_FROM,
    .weights = qr_llama_rows,
    .gguf = "qwen2",
};
