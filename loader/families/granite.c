/* Granite 3: a Llama with four multipliers, each 1 where the file is silent. */
#include "base/json.h"
#include "loader/families/family.h"
#include "loader/families/rows.h"

static int read_hf(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    int rc;
    c->embed_scale = c->residual_scale = c->attn_scale = c->logits_divisor = 1;
    if ((rc = qr_hf_f32(o, "embedding_multiplier", 1e-4, 1e4, &c->embed_scale)) ||
        (rc = qr_hf_f32(o, "residual_multiplier", 1e-4, 1e4, &c->residual_scale)) ||
        (rc = qr_hf_f32(o, "attention_multiplier", 1e-6, 1e4, &c->attn_scale)))
        return rc;
    return qr_hf_f32(o, "logits_scaling", 1e-4, 1e4, &c->logits_divisor);
}

static void write_hf(struct qr_buf *out, const struct qr_model_config *c)
{
    qr_hf_write_f32(out, "embedding_multiplier", c->embed_scale);
    qr_hf_write_f32(out, "residual_multiplier", c->residual_scale);
    qr_hf_write_f32(out, "attention_multiplier", c->attn_scale);
    qr_hf_write_f32(out, "logits_scaling", c->logits_divisor);
}

static int read_gguf(const struct qr_gguf_reader *r)
{
    struct qr_model_config *c = r->c;
    double embed = 1, residual = 1, attn = 0, logits = 1;
    int rc = qr_gguf_read_real(r, "embedding_scale", 1e-4, 1e4, &embed);
    rc = rc ? rc : qr_gguf_read_real(r, "residual_scale", 1e-4, 1e4, &residual);
    rc = rc ? rc : qr_gguf_read_real(r, "attention.scale", 0, 1e4, &attn);
    rc = rc ? rc : qr_gguf_read_real(r, "logit_scale", 1e-4, 1e4, &logits);
    c->embed_scale = (float)embed;
    c->residual_scale = (float)residual;
    c->attn_scale = (float)attn;
    c->logits_divisor = (float)logits;
    return rc;
}

static void make_small(struct qr_model_config *c)
{
    c->embed_scale = 12;
    c->residual_scale = 0.22f;
    c->attn_scale = 0.1f;
    c->logits_divisor = 1;
}

const struct qr_family qr_family_granite = {
    .name = {{"GraniteForCausalLM", "granite"}},
    .usual = {.ctx_max = 2048},
    ATTENTION_BIAS,
    .mlp_bias_field = "mlp_bias",
    .weights = qr_llama_rows,
    .gguf = "granite",
    .gguf_pairs = true,
    .read_hf = read_hf,
    .write_hf = write_hf,
    .read_gguf = read_gguf,
    .make_small = make_small,
};
