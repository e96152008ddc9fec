/* Gemma 2: norms before and behind each half of a layer, caps of scores and logits, a window in every other layer. */
#include "loader/families/gemma2.h"

#include <math.h>

#include "base/json.h"
#include "loader/families/rows.h"

#define ATTN_CAP 50
#define LOGITS_CAP 30
#define WINDOW 4096
#define WINDOW_EVERY 2
#define LARGEST_LAYERS 46

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
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {NULL, NULL},
};

/* A number above 0, or null for none. */
static int read_cap(const struct qr_hf_obj *o, const char *key, double usual, float *out)
{
    const struct qr_json *v = qr_json_find(o->v, key);
    double cap = v && qr_json_is_null(v) ? 0 : usual;
    int rc = qr_hf_f64(o, key, 1e-3, 1e6, &cap);
    *out = (float)cap;
    return rc;
}

int qr_gemma2_read_hf(const struct qr_hf_obj *o, struct qr_model_config *c, double attn_cap, double logits_cap)
{
    double scalar = 256;
    int rc = qr_hf_f64(o, "query_pre_attn_scalar", 1e-3, 1e9, &scalar);
    rc = rc ? rc : read_cap(o, "attn_logit_softcapping", attn_cap, &c->attn_softcap);
    rc = rc ? rc : read_cap(o, "final_logit_softcapping", logits_cap, &c->logits_softcap);
    c->attn_scale = (float)(1 / sqrt(scalar));
    return rc;
}

static int read_hf(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    return qr_gemma2_read_hf(o, c, ATTN_CAP, LOGITS_CAP);
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

void qr_gemma2_scale_gguf(struct qr_model_config *c, int32_t n_layers_largest)
{
    c->attn_scale = c->n_layers == n_layers_largest ? (float)(1 / sqrt((double)c->n_embd / c->n_heads)) : 0;
}

static int read_gguf(const struct qr_gguf_reader *r)
{
    struct qr_model_config *c = r->c;
    double attn_cap = ATTN_CAP, logits_cap = LOGITS_CAP;
    int rc = qr_gguf_read_real(r, "attn_logit_softcapping", 0, 1e6, &attn_cap);
    rc = rc ? rc : qr_gguf_read_real(r, "final_logit_softcapping", 0, 1e6, &logits_cap);
    c->attn_softcap = (float)attn_cap;
    c->logits_softcap = (float)logits_cap;
    c->window = c->window == 0 ? WINDOW : c->window;
    qr_gemma2_scale_gguf(c, LARGEST_LAYERS);
    return rc ? rc : qr_gguf_read_windows(r, WINDOW_EVERY);
}

void qr_gemma2_make_small(struct qr_model_config *c)
{
    c->embed_scale = 8;
    c->attn_scale = 0.25f;
    c->window = 37;
    c->unwindowed[0] = 2;
}

static void make_small(struct qr_model_config *c)
{
    qr_gemma2_make_small(c);
    c->attn_softcap = 3;
    c->logits_softcap = 2;
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
    .qkv_bias_field = "attention_bias",
    .out_bias_field = "attention_bias",
    .window = WINDOW,
    .window_every = WINDOW_EVERY,
    .window_layers = QR_WINDOW_LISTED,
    .weights = qr_gemma2_rows,
    .gguf = "gemma2",
    .gguf_names = qr_gemma2_gguf_names,
    .read_hf = read_hf,
    .write_hf = qr_gemma2_write_hf,
    .read_gguf = read_gguf,
    .make_small = make_small,
};
