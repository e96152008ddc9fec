/* Mistral: a Llama with a window. Ministral, by whose name transformers calls one whose layers are listed, has it in
 * some layers. */
#include "loader/families/family.h"
#include "loader/families/rows.h"

const struct qr_family qr_family_mistral = {
    .name = {{"MistralForCausalLM", "mistral"}, {"MinistralForCausalLM", "ministral"}},
    .usual = {.n_kv_heads = 8, .ctx_max = 131072},
    .window = 4096,
    .window_layers = QR_WINDOW_LISTED,
    .weights = qr_llama_rows,
    .gguf = "llama",
    .gguf_pairs = true,
};
