/* Gemma 3, also the text part of one that sees: Gemma 2's norms and windows, norms of heads in place of caps, and two
 * rotary embeddings. */
#include "loader/families/family.h"
#include "loader/families/rows.h"

/* The text part of a model that also sees has one more name before those of its tensors. */
static const struct qr_family_rename prefixes[] = {
    {"model.", ""},
    {"model.", "model.language_model."},
    {"model.", "language_model."},
    {"", "language_model."},
    {NULL, NULL},
};

const struct qr_family qr_family_gemma3 = {
    .name = {{"Gemma3ForCausalLM", "gemma3_text", "Gemma3TextModel"}, {"Gemma3ForConditionalGeneration", "gemma3"}},
    .field = {.act = "hidden_activation"},
    .text_part = true,
    .usual = {.n_heads = 8, .n_vocab = 262208, .n_kv_heads = 4, .head_dim = 256, .ctx_max = 131072, .theta = 1000000,
              .tied = true},
    .activation = {"gelu_pytorch_tanh"},
    .act = QR_ACT_GELU_TANH,
    .post_norms = true,
    .norm_plus_one = true,
    .scaled_embedding = true,
    .qk_norm = true,
    ATTENTION_BIAS,
    .window = 4096,
    .window_every = 6,
    .window_layers = QR_WINDOW_LISTED,
    .local_theta = 10000,
    .weights = qr_gemma2_rows,
    .prefixes = prefixes,
    .gguf = "gemma3",
    .gguf_names = qr_gemma2_gguf_names,
    .read_hf = qr_gemma2_read_hf,
    .write_hf = qr_gemma2_write_hf,
    .read_gguf = qr_gemma2_read_gguf,
    .make_small = qr_gemma2_make_small,
};
