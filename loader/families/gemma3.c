/* Gemma 3, also the text part of one that sees: Gemma 2's norms and windows, norms of heads in place of caps of
 * scores, and two rotary embeddings. */
#include "base/json.h"
#include "loader/families/gemma2.h"
#include "loader/families/rows.h"

#define LOCAL_THETA 10000
#define WINDOW_EVERY 6
#define LARGEST_LAYERS 62

/* The text part of a model that also sees has one more name before those of its tensors. */
static const struct qr_family_rename prefixes[] = {
    {"model.", ""},
    {"model.", "model.language_model."},
    {"model.", "language_model."},
    {"", "language_model."},
    {NULL, NULL},
};

static int read_hf(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    int rc = qr_gemma2_read_hf(o, c, 0, 0);
    return rc ? rc : qr_hf_f64(o, "rope_local_base_freq", 2, 1e15, &c->local_theta);
}

static void write_hf(struct qr_buf *out, const struct qr_model_config *c)
{
    qr_gemma2_write_hf(out, c);
    qr_hf_write_f64(out, "rope_local_base_freq", c->local_theta);
}

static int read_gguf(const struct qr_gguf_reader *r)
{
    struct qr_model_config *c = r->c;
    double logits_cap = 0;
    int rc = qr_gguf_read_real(r, "final_logit_softcapping", 0, 1e6, &logits_cap);
    rc = rc ? rc : qr_gguf_read_windows(r, WINDOW_EVERY);
    c->logits_softcap = (float)logits_cap;
    qr_gemma2_scale_gguf(c, LARGEST_LAYERS);
    return rc ? rc : qr_gguf_read_real(r, "rope.freq_base_swa", 2, 1e15, &c->local_theta);
}

static void make_small(struct qr_model_config *c)
{
    qr_gemma2_make_small(c);
    c->local_theta = 100;
}

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
    .qkv_bias_field = "attention_bias",
    .out_bias_field = "attention_bias",
    .window = 4096,
    .window_every = WINDOW_EVERY,
    .window_layers = QR_WINDOW_LISTED,
    .local_theta = LOCAL_THETA,
    .weights = qr_gemma2_rows,
    .prefixes = prefixes,
    .gguf = "gemma3",
    .gguf_names = qr_gemma2_gguf_names,
    .read_hf = read_hf,
    .write_hf = write_hf,
    .read_gguf = read_gguf,
    .make_small = make_small,
};
