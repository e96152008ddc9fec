#include "loader/config/hf_families.h"

#include <math.h>

#include "base/assert.h"
#include "base/half.h"

static const struct qr_hf_names usual_names = {"num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings",
                                               "rms_norm_eps", "hidden_act", 1e-6, {"silu", "swish", NULL}, QR_ACT_SILU, 0, 0};

/* Those that differ. What Gemma's first files call gelu is the one by tanh. */
static const struct {
    enum qr_arch arch;
    struct qr_hf_names names;
} own_names[] = {
    {QR_ARCH_GEMMA, {"num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings", "rms_norm_eps", "hidden_act",
                     1e-6, {"gelu_pytorch_tanh", "gelu", NULL}, QR_ACT_GELU_TANH, 0, 0}},
    {QR_ARCH_GEMMA2, {"num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings", "rms_norm_eps",
                      "hidden_activation", 1e-6, {"gelu_pytorch_tanh", NULL, NULL}, QR_ACT_GELU_TANH, 0, 0}},
    {QR_ARCH_GEMMA3, {"num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings", "rms_norm_eps",
                      "hidden_activation", 1e-6, {"gelu_pytorch_tanh", NULL, NULL}, QR_ACT_GELU_TANH, 8, 262208}}, /* the published files leave them out */
    {QR_ARCH_STABLELM, {"num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings", "layer_norm_eps",
                        "hidden_act", 1e-5, {"silu", "swish", NULL}, QR_ACT_SILU, 0, 0}},
    {QR_ARCH_GPT2, {"n_layer", "n_embd", "n_head", "n_inner", "n_positions", "layer_norm_epsilon", "activation_function", 1e-5,
                    {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}, QR_ACT_GELU_TANH, 0, 0}},
};

const struct qr_hf_names *qr_hf_names(enum qr_arch arch)
{
    for (int i = 0; i < QR_COUNT(own_names); i++)
        if (own_names[i].arch == arch)
            return &own_names[i].names;
    return &usual_names;
}

/* SmolLM3: a list of 1 and 0 (no positions), or every so manieth layer has none. */
static int read_unrotated(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    const struct qr_json *list = qr_json_find(o->v, "no_rope_layers");
    int32_t every = 4, i = 0;
    int rc = qr_hf_i32(o, "no_rope_layer_interval", 1, QR_LAYERS_MAX, &every);
    for (int32_t l = 0; l < c->n_layers && qr_json_is_null(list); l++)
        c->unrotated[l / 64] |= (uint64_t)((l + 1) % every == 0) << (l % 64);
    if (rc || qr_json_is_null(list))
        return rc;
    for (const struct qr_json *v = qr_json_first(list); v; v = qr_json_after(v), i++) {
        int64_t on;
        if (i == c->n_layers || !qr_json_i64(v, &on) || on < 0 || on > 1)
            break;
        c->unrotated[i / 64] |= (uint64_t)(on == 0) << (i % 64);
    }
    if (i != c->n_layers || i != qr_json_count(list))
        return qr_err_set(o->err, QR_E_DAMAGED, "%s: no_rope_layers: entry %d, expected a 0 or 1 for each of %d layers", o->file, i, c->n_layers);
    return 0;
}

/* A window, if it is switched on, is for those layers, unless the file lists others. */
static int read_smollm3(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    const int rc = read_unrotated(o, c);
    const bool listed = !qr_json_is_null(qr_json_find(o->v, "layer_types"));
    for (int32_t l = 0; c->window > 0 && !listed && l < c->n_layers; l++)
        c->unwindowed[l / 64] |= (~c->unrotated[l / 64] >> (l % 64) & 1) << (l % 64);
    return rc;
}

static void write_smollm3(struct qr_buf *out, const struct qr_model_config *c)
{
    qr_buf_put_str(out, "  \"no_rope_layers\": [");
    for (int32_t l = 0; l < c->n_layers; l++)
        qr_buf_printf(out, "%s%d", l ? ", " : "", (c->unrotated[l / 64] >> (l % 64) & 1) == 0);
    qr_buf_put_str(out, "],\n");
}

/* Granite: numbers that a Llama does not have, each 1 where the file is silent. */
static int read_granite(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    int rc;
    c->embed_scale = c->residual_scale = c->attn_scale = c->logits_divisor = 1;
    if ((rc = qr_hf_f32(o, "embedding_multiplier", 1e-4, 1e4, &c->embed_scale)) ||
        (rc = qr_hf_f32(o, "residual_multiplier", 1e-4, 1e4, &c->residual_scale)) ||
        (rc = qr_hf_f32(o, "attention_multiplier", 1e-6, 1e4, &c->attn_scale)))
        return rc;
    return qr_hf_f32(o, "logits_scaling", 1e-4, 1e4, &c->logits_divisor);
}

/* A number, where it is not 0. */
static void write_number(struct qr_buf *out, const char *key, double value)
{
    if (value == 0)
        return;
    qr_buf_printf(out, "  \"%s\": ", key);
    qr_json_put_f64(out, value);
    qr_buf_put_str(out, ",\n");
}

static void write_granite(struct qr_buf *out, const struct qr_model_config *c)
{
    const struct {
        const char *key;
        float value;
    } fields[] = {{"embedding_multiplier", c->embed_scale}, {"residual_multiplier", c->residual_scale}, {"attention_multiplier", c->attn_scale},
                  {"logits_scaling", c->logits_divisor}};
    for (int i = 0; i < QR_COUNT(fields); i++) {
        if (fields[i].value == 0)
            continue;
        qr_buf_printf(out, "  \"%s\": ", fields[i].key);
        qr_json_put_f32(out, fields[i].value);
        qr_buf_put_str(out, ",\n");
    }
}

/* Embeddings are multiplied by sqrt(D), rounded to bf16 where the model is stored so: 55.5 for 3072. */
static int read_gemma(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    const float root = (float)sqrt((double)c->n_embd);
    (void)o;
    c->norm_plus_one = true;
    c->embed_scale = c->stored == QR_BF16 ? qr_bf16_to_f32(qr_f32_to_bf16(root)) : root;
    return 0;
}

/* A cap: a number above 0, or null for none. What the file does not name has the family's own. */
static int read_cap(const struct qr_hf_obj *o, const char *key, double usual, float *out)
{
    const struct qr_json *v = qr_json_find(o->v, key);
    double cap = v && qr_json_is_null(v) ? 0 : usual;
    int rc = qr_hf_f64(o, key, 1e-3, 1e6, &cap);
    *out = (float)cap;
    return rc;
}

static int read_gemma2(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    const bool second = c->arch == QR_ARCH_GEMMA2;
    double scalar = 256;
    int rc = qr_hf_f64(o, "query_pre_attn_scalar", 1e-3, 1e9, &scalar);
    rc = rc ? rc : read_cap(o, "attn_logit_softcapping", second ? 50 : 0, &c->attn_softcap);
    rc = rc ? rc : read_cap(o, "final_logit_softcapping", second ? 30 : 0, &c->logits_softcap);
    if (!second) {
        c->local_theta = c->local_theta > 0 ? c->local_theta : 10000; /* rope_parameters may have said it */
        rc = rc ? rc : qr_hf_f64(o, "rope_local_base_freq", 2, 1e15, &c->local_theta);
    }
    c->attn_scale = (float)(1 / sqrt(scalar));
    c->post_norms = true;
    return rc ? rc : read_gemma(o, c);
}

static void write_gemma2(struct qr_buf *out, const struct qr_model_config *c)
{
    const float caps[] = {c->attn_softcap, c->logits_softcap};
    static const char *const names[] = {"attn_logit_softcapping", "final_logit_softcapping"};
    write_number(out, "query_pre_attn_scalar", c->attn_scale > 0 ? 1 / ((double)c->attn_scale * (double)c->attn_scale) : c->head_dim);
    write_number(out, "rope_local_base_freq", c->local_theta);
    for (int i = 0; i < 2; i++) {
        if (caps[i] > 0)
            write_number(out, names[i], (double)caps[i]);
        else
            qr_buf_printf(out, "  \"%s\": null,\n", names[i]);
    }
}

/* A switch that must be off. */
static int refuse_if(const struct qr_hf_obj *o, const char *key, bool refused)
{
    bool on = !refused;
    int rc = qr_hf_bool(o, key, &on);
    if (!rc && on == refused)
        rc = qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: %s is %s, expected %s", o->file, key, on ? "true" : "false", on ? "false" : "true");
    return rc;
}

static int read_stablelm(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    int rc = qr_hf_bool(o, "use_qkv_bias", &c->qkv_bias);
    rc = rc ? rc : refuse_if(o, "qk_layernorm", true);
    rc = rc ? rc : refuse_if(o, "use_parallel_residual", true);
    c->layer_norm = true;
    return rc;
}

static void write_stablelm(struct qr_buf *out, const struct qr_model_config *c)
{
    qr_buf_printf(out, "  \"use_qkv_bias\": %s,\n", c->qkv_bias ? "true" : "false");
}

static int read_gpt2(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    int rc = refuse_if(o, "scale_attn_by_inverse_layer_idx", true);
    rc = rc ? rc : refuse_if(o, "scale_attn_weights", false);
    rc = rc ? rc : refuse_if(o, "add_cross_attention", true);
    c->layer_norm = c->ungated = c->turned = true;
    c->qkv_bias = c->out_bias = c->mlp_bias = true;
    c->n_positions = c->ctx_max;
    for (int32_t l = 0; l < c->n_layers; l++)
        c->unrotated[l / 64] |= (uint64_t)1 << (l % 64);
    return rc;
}

static const struct {
    enum qr_arch arch;
    int (*read)(const struct qr_hf_obj *o, struct qr_model_config *c);
    void (*write)(struct qr_buf *out, const struct qr_model_config *c); /* NULL: nothing of its own */
} families[] = {
    {QR_ARCH_SMOLLM3, read_smollm3, write_smollm3},
    {QR_ARCH_GRANITE, read_granite, write_granite},
    {QR_ARCH_GEMMA, read_gemma, NULL},
    {QR_ARCH_GEMMA2, read_gemma2, write_gemma2},
    {QR_ARCH_GEMMA3, read_gemma2, write_gemma2},
    {QR_ARCH_STABLELM, read_stablelm, write_stablelm},
    {QR_ARCH_GPT2, read_gpt2, NULL},
};

int qr_hf_read_family(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    QR_ASSERT(o != NULL && o->v != NULL);
    QR_ASSERT(c != NULL);
    for (int i = 0; i < QR_COUNT(families); i++)
        if (families[i].arch == c->arch)
            return families[i].read(o, c);
    return 0;
}

void qr_hf_write_family(struct qr_buf *out, const struct qr_model_config *c)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(c != NULL);
    for (int i = 0; i < QR_COUNT(families); i++)
        if (families[i].arch == c->arch && families[i].write)
            families[i].write(out, c);
}
