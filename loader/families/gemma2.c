/* Gemma 2: norms before and behind each half of a layer, caps of scores and logits, a window in every other layer. */
#include <math.h>

#include "base/json.h"
#include "loader/families/family.h"
#include "loader/families/rows.h"

const struct qr_weight_row qr_gemma2_rows[] = {
    EMBED_ROW,
    WHOLE(P "input_layernorm.weight", VECTOR, true, EMBD, ZERO, ALWAYS, NONE, LAYER(norm_attn)),
    QKV_ROWS,
    HEAD_NORM_ROWS,
    OUT_ROWS,
    OUT_NORM_ROW,
    WHOLE(P "pre_feedforward_layernorm.weight", VECTOR, true, EMBD, ZERO, ALWAYS, NONE, LAYER(norm_mlp)),
    MLP_ROWS(ALWAYS),
    DOWN_NORM_ROW,
    HEAD_ROWS,
};

const struct qr_family_rename qr_gemma2_gguf_names[] = {
    {"ffn_norm", "pre_feedforward_layernorm"},
    {NULL, NULL},
};

/* A number above 0, or null for none. */
static int read_cap(const struct qr_hf_obj *o, const char *key, float usual, float *out)
{
    const struct qr_json *v = qr_json_find(o->v, key);
    *out = v && qr_json_is_null(v) ? 0 : usual;
    return qr_hf_f32(o, key, 1e-3, 1e6, out);
}

int qr_gemma2_read_hf(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    const struct qr_family *f = qr_family_of(c->arch);
    double scalar = 256;
    int rc = qr_hf_f64(o, "query_pre_attn_scalar", 1e-3, 1e9, &scalar);
    rc = rc ? rc : read_cap(o, "attn_logit_softcapping", f->attn_softcap, &c->attn_softcap);
    rc = rc ? rc : read_cap(o, "final_logit_softcapping", f->logits_softcap, &c->logits_softcap);
    c->attn_scale = (float)(1 / sqrt(scalar));
    return rc;
}

static void write_cap(struct qr_buf *out, const char *key, float cap)
{
    if (cap > 0)
        qr_hf_write_f64(out, key, (double)cap);
    else
        qr_buf_printf(out, "  \"%s\": null,\n", key);
}

void qr_gemma2_write_hf(struct qr_buf *out, const struct qr_model_config *c)
{
    const double scale = (double)c->attn_scale;
    qr_hf_write_f64(out, "query_pre_attn_scalar", scale > 0 ? 1 / (scale * scale) : c->head_dim);
    write_cap(out, "attn_logit_softcapping", c->attn_softcap);
    write_cap(out, "final_logit_softcapping", c->logits_softcap);
}

/* Files do not say what scores are divided by: the largest model of each family, by its layers, differs from others. */
int qr_gemma2_read_gguf(const struct qr_gguf_reader *r)
{
    struct qr_model_config *c = r->c;
    const struct qr_family *f = qr_family_of(c->arch);
    const bool largest = c->n_layers == 46 || c->n_layers == 62;
    double attn_cap = (double)f->attn_softcap, logits_cap = (double)f->logits_softcap;
    int rc = attn_cap > 0 ? qr_gguf_read_real(r, "attn_logit_softcapping", 0, 1e6, &attn_cap) : 0;
    rc = rc ? rc : qr_gguf_read_real(r, "final_logit_softcapping", 0, 1e6, &logits_cap);
    c->attn_softcap = (float)attn_cap;
    c->logits_softcap = (float)logits_cap;
    c->attn_scale = largest ? (float)(1 / sqrt((double)c->n_embd / c->n_heads)) : 0;
    rc = rc ? rc : qr_gguf_read_windows(r, f->window_every);
    return rc || f->local_theta == 0 ? rc : qr_gguf_read_real(r, "rope.freq_base_swa", 2, 1e15, &c->local_theta);
}

static int read_gguf(const struct qr_gguf_reader *r)
{
    r->c->window = r->c->window > 0 ? r->c->window : qr_family_gemma2.window;
    return qr_gemma2_read_gguf(r);
}

void qr_gemma2_make_small(struct qr_model_config *c)
{
    const struct qr_family *f = qr_family_of(c->arch);
    c->embed_scale = 8;
    c->attn_scale = 0.25f;
    c->window = 37;
    c->unwindowed[0] = 2;
    c->attn_softcap = f->attn_softcap > 0 ? 3 : 0;
    c->logits_softcap = f->logits_softcap > 0 ? 2 : 0;
    c->local_theta = f->local_theta > 0 ? 100 : 0;
}

const struct qr_family qr_family_gemma2 = {
    .name = {{"Gemma2ForCausalLM", "gemma2"}},
    .field = {.act = "hidden_activation"},
    .usual = {.n_kv_heads = 4, .head_dim = 256, .ctx_max = 8192, .tied = true},
    .activation = {"gelu_pytorch_tanh"},
    .act = QR_ACT_GELU_TANH,
    .post_norms = true,
    .norm_plus_one = true,
    .scaled_embedding = true,
    .attn_softcap = 50,
    .logits_softcap = 30,
    ATTENTION_BIAS,
    .window = 4096,
    .window_every = 2,
    .window_layers = QR_WINDOW_LISTED,
    .weights = qr_gemma2_rows,
    .gguf = "gemma2",
    .gguf_names = qr_gemma2_gguf_names,
    .read_hf = qr_gemma2_read_hf,
    .write_hf = qr_gemma2_write_hf,
    .read_gguf = read_gguf,
    .make_small = qr_gemma2_make_small,
};
