/* StableLM: norms are LayerNorm, a quarter of each head rotates. Those with norms of heads or with parallel halves
 * are refused. */
#include "loader/families/family.h"
#include "loader/families/rows.h"

static int read_hf(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    (void)c;
    int rc = qr_hf_refuse_if(o, "qk_layernorm", true);
    return rc ? rc : qr_hf_refuse_if(o, "use_parallel_residual", true);
}

/* The key use_parallel_residual says nothing: converters write true where a configuration is silent. Layers whose
 * halves are parallel have one norm. */
static int read_gguf(const struct qr_gguf_reader *r)
{
    if (!r->c->qk_norm && qr_gguf_find_tensor(r, "blk.0.ffn_norm.weight", NULL))
        return 0;
    return qr_err_set(r->err, QR_E_UNSUPPORTED, "stablelm with %s is not computed here",
                      r->c->qk_norm ? "norms of heads" : "parallel residuals");
}

static void make_small(struct qr_model_config *c)
{
    c->rope.partial = 0.5;
}

const struct qr_family qr_family_stablelm = {
    .name = {{"StableLmForCausalLM", "stablelm"}},
    .field = {.eps = "layer_norm_eps"},
    .usual = {.n_kv_heads = 32, .ctx_max = 4096, .eps = 1e-5, .partial = 0.25},
    .layer_norm = true,
    .qkv_bias_field = "use_qkv_bias",
    .weights = qr_llama_rows,
    .gguf = "stablelm",
    .read_hf = read_hf,
    .read_gguf = read_gguf,
    .make_small = make_small,
};
