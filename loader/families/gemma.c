/* Gemma 1: gates are GELU, norms multiply by 1 + w, embeddings are scaled. What its first files call gelu is the one
 * by tanh. */
#include "loader/families/family.h"
#include "loader/families/rows.h"

static void make_small(struct qr_model_config *c)
{
    c->embed_scale = 8;
}

const struct qr_family qr_family_gemma = {
    .name = {{"GemmaForCausalLM", "gemma"}},
    .usual = {.n_kv_heads = 16, .head_dim = 256, .ctx_max = 8192, .tied = true},
    .activation = {"gelu_pytorch_tanh", "gelu"},
    .act = QR_ACT_GELU_TANH,
    .norm_plus_one = true,
    .scaled_embedding = true,
    ATTENTION_BIAS,
    .weights = qr_llama_rows,
    .gguf = "gemma",
    .make_small = make_small,
};
