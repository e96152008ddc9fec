#include "loader/config/hf_config.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/half.h"
#include "base/json.h"
#include "base/mem.h"
#include "loader/config/hf_families.h"
#include "loader/config/hf_field.h"
#include "loader/config/hf_moe.h"
#include "loader/stores/quantized_tensors.h"
#include "base/files/map_file.h"
#include "base/option.h"

#define FILE_BYTES_MAX ((size_t)4 << 20)
#define WINDOW_IF_NAMED (-1) /* no window where the file names none */
#define PHI3_ORIGINAL_CTX 4096

/* What an architecture says where its file is silent, as transformers' configuration class of that name does. */
static const struct arch_row {
    enum qr_arch arch;
    const char *name, *model_type;
    int32_t n_kv_heads; /* 0: as many as query heads */
    int32_t head_dim;   /* 0: hidden_size / num_attention_heads */
    int32_t ctx_max, window;
    bool windows_switched; /* a window counts only with use_sliding_window, from layer max_window_layers on */
    bool qkv_bias, attention_bias_key, mlp_bias_key, qk_norm;
    bool tied;          /* unless the file says otherwise */
    double theta;
} arch_rows[] = {
    {QR_ARCH_LLAMA, "LlamaForCausalLM", "llama", 0, 0, 2048, 0, false, false, true, true, false, false, 10000},
    {QR_ARCH_MISTRAL, "MistralForCausalLM", "mistral", 8, 0, 131072, 4096, false, false, false, false, false, false, 10000},
    {QR_ARCH_MISTRAL, "MinistralForCausalLM", "ministral", 8, 0, 131072, 4096, false, false, false, false, false, false, 10000},
    {QR_ARCH_QWEN2, "Qwen2ForCausalLM", "qwen2", 32, 0, 32768, 4096, true, true, false, false, false, false, 10000},
    {QR_ARCH_QWEN3, "Qwen3ForCausalLM", "qwen3", 32, 128, 32768, 4096, true, false, true, false, true, false, 10000},
    {QR_ARCH_PHI3, "Phi3ForCausalLM", "phi3", 0, 0, 4096, WINDOW_IF_NAMED, false, false, false, false, false, false, 10000},
    {QR_ARCH_SMOLLM3, "SmolLM3ForCausalLM", "smollm3", 4, 0, 32768, WINDOW_IF_NAMED, true, false, true, true, false, true, 2000000},
    {QR_ARCH_GRANITE, "GraniteForCausalLM", "granite", 0, 0, 2048, 0, false, false, true, true, false, false, 10000},
    {QR_ARCH_GEMMA, "GemmaForCausalLM", "gemma", 16, 256, 8192, 0, false, false, true, false, false, true, 10000},
    {QR_ARCH_MIXTRAL, "MixtralForCausalLM", "mixtral", 8, 0, 131072, WINDOW_IF_NAMED, false, false, false, false, false, false, 1000000},
    {QR_ARCH_QWEN2_MOE, "Qwen2MoeForCausalLM", "qwen2_moe", 16, 0, 32768, 4096, true, true, false, false, false, false, 10000},
    {QR_ARCH_QWEN3_MOE, "Qwen3MoeForCausalLM", "qwen3_moe", 4, 0, 32768, 4096, true, false, true, false, true, false, 10000},
    {QR_ARCH_GEMMA2, "Gemma2ForCausalLM", "gemma2", 4, 256, 8192, 4096, false, false, true, false, false, true, 10000},
    {QR_ARCH_GEMMA3, "Gemma3ForCausalLM", "gemma3_text", 4, 256, 131072, 4096, false, false, true, false, true, true, 1000000},
    {QR_ARCH_GEMMA3, "Gemma3ForConditionalGeneration", "gemma3", 4, 256, 131072, 4096, false, false, true, false, true, true, 1000000}, /* text only */
    {QR_ARCH_STABLELM, "StableLmForCausalLM", "stablelm", 32, 0, 4096, 0, false, false, false, false, false, false, 10000},
    {QR_ARCH_GPT2, "GPT2LMHeadModel", "gpt2", 0, 0, 1024, 0, false, false, false, false, false, true, 10000},
};

/* Windows in all layers but every so manieth, unless the file lists them. */
static int32_t window_pattern(enum qr_arch arch)
{
    return arch == QR_ARCH_GEMMA2 ? 2 : arch == QR_ARCH_GEMMA3 ? 6 : 0;
}

static double usual_partial(enum qr_arch arch)
{
    return arch == QR_ARCH_STABLELM ? 0.25 : 1;
}

static const struct rope_row {
    enum qr_rope_type type;
    const char *name;
} rope_rows[] = {
    {QR_ROPE_DEFAULT, "default"}, {QR_ROPE_LINEAR, "linear"}, {QR_ROPE_DYNAMIC, "dynamic"},
    {QR_ROPE_LLAMA3, "llama3"},   {QR_ROPE_YARN, "yarn"},     {QR_ROPE_LONG, "longrope"},
    {QR_ROPE_LONG, "su"}, /* its older name */
};

static const struct dtype_row {
    enum qr_dtype dtype;
    const char *name;
} dtype_rows[] = {{QR_F32, "float32"}, {QR_F16, "float16"}, {QR_BF16, "bfloat16"}};

void qr_arch_list(struct qr_buf *out)
{
    QR_ASSERT(out != NULL);
    for (int i = 0; i < QR_COUNT(arch_rows); i++)
        qr_buf_printf(out, "%s%s", i ? ", " : "", arch_rows[i].name);
}

static const struct arch_row *row_of(enum qr_arch arch)
{
    for (int i = 0; i < QR_COUNT(arch_rows); i++)
        if (arch_rows[i].arch == arch)
            return &arch_rows[i];
    qr_panic("architecture %d has no row", (int)arch);
}

void qr_arch_names(enum qr_arch arch, char arch_name[64], char model_type[32])
{
    QR_ASSERT(arch_name != NULL);
    QR_ASSERT(model_type != NULL);
    const struct arch_row *row = row_of(arch);
    snprintf(arch_name, 64, "%s", row->name);
    snprintf(model_type, 32, "%s", row->model_type);
}

/* ---- architecture ---- */

/* The family in a name: "Qwen3" of "Qwen3ForCausalLM". */
static const char *family_of(char text[64], const char *name)
{
    static const char *const tails[] = {"ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "Model"};
    size_t n = strlen(name);
    for (int i = 0; i < QR_COUNT(tails); i++) {
        const char *tail = strstr(name, tails[i]);
        n = tail && (size_t)(tail - name) < n ? (size_t)(tail - name) : n;
    }
    snprintf(text, 64, "%.*s", (int)(n < 63 ? n : 63), name);
    return text;
}

/* What the family calls its model without a head: "Qwen3Model" of "Qwen3ForCausalLM". */
static const char *headless_name(char text[64], const struct arch_row *row)
{
    char family[64];
    snprintf(text, 64, "%.50s%sModel", family_of(family, row->name), strcmp(row->model_type, "gemma3_text") == 0 ? "Text" : "");
    return text;
}

const char *qr_arch_closest(const char *name, const char *const *known, int32_t n)
{
    QR_ASSERT(name != NULL);
    QR_ASSERT(known != NULL && n > 0);
    const char *near = qr_nearest(name, known, n);
    for (int32_t i = 0; i < n && !near; i++)
        if (strncmp(name, known[i], strlen(known[i])) == 0)
            near = known[i];
    return near;
}

/* The architecture that is called most like `found`, or NULL. */
static const char *closest_arch(const char *found)
{
    char family[QR_COUNT(arch_rows)][64], own[64];
    const char *known[QR_COUNT(arch_rows)];
    for (int i = 0; i < QR_COUNT(arch_rows); i++)
        known[i] = family_of(family[i], arch_rows[i].name);
    const char *near = qr_arch_closest(family_of(own, found), known, QR_COUNT(known));
    return near ? arch_rows[(near - family[0]) / QR_COUNT(own)].name : NULL;
}

static int read_arch(const struct qr_hf_obj *o, const struct arch_row **out, bool *headless)
{
    char without[64];
    const struct qr_json *list = qr_json_find(o->v, "architectures");
    bool by_type = qr_json_is_null(list);
    const struct qr_json *name = by_type ? qr_json_find(o->v, "model_type") : qr_json_first(list);
    const char *key = by_type ? "model_type" : "architectures[0]";
    if (!name || qr_json_type(name) != QR_JSON_T_STRING)
        return qr_err_set(o->err, QR_E_DAMAGED, "%s: %s is missing, expected the name of an architecture", o->file, key);
    const char *found = qr_json_str(name, NULL);
    for (int i = 0; i < QR_COUNT(arch_rows); i++) {
        *headless = !by_type && strcmp(found, headless_name(without, &arch_rows[i])) == 0;
        if (*headless || strcmp(found, by_type ? arch_rows[i].model_type : arch_rows[i].name) == 0) {
            *out = &arch_rows[i];
            return 0;
        }
    }
    struct qr_buf known = {0};
    const char *near = closest_arch(found);
    qr_arch_list(&known);
    int rc = qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: %s is \"%.80s\"%s%s%s, expected one of %s", o->file, key, found,
                        strcasestr(found, "bert") ? " (an encoder)" : "", near ? "; the closest that is supported is " : "", near ? near : "", known.data);
    qr_buf_release(&known);
    return rc;
}

/* ---- sizes ---- */

/* A field that must be there unless *out has the family's own value. */
static int need_or(const struct qr_hf_obj *o, const char *key, int32_t max, int32_t *out)
{
    return *out > 0 ? qr_hf_i32(o, key, 1, max, out) : qr_hf_need_i32(o, key, 1, max, out);
}

static int read_sizes(const struct qr_hf_obj *o, struct qr_model_config *c, const struct arch_row *row)
{
    const struct qr_json *kv = qr_json_find(o->v, "num_key_value_heads");
    const struct qr_hf_names *names = qr_hf_names(row->arch);
    double eps = names->eps_default;
    int rc = 0;
    c->ctx_max = row->ctx_max;
    c->n_heads = names->heads_default;
    c->n_vocab = names->vocab_default;
    c->head_dim = row->head_dim;
    c->n_kv_heads = row->n_kv_heads;
    if ((rc = qr_hf_need_i32(o, names->layers, 1, QR_LAYERS_MAX, &c->n_layers)) || (rc = qr_hf_need_i32(o, names->width, 1, 1 << 18, &c->n_embd)))
        return rc;
    c->n_ffn = row->arch == QR_ARCH_GPT2 ? 4 * c->n_embd : 0;
    if ((rc = need_or(o, names->heads, 1024, &c->n_heads)) || (rc = need_or(o, names->ffn, 1 << 22, &c->n_ffn)) ||
        (rc = need_or(o, "vocab_size", 1 << 22, &c->n_vocab)) || (rc = qr_hf_i32(o, names->ctx, 1, 1 << 27, &c->ctx_max)) ||
        (rc = qr_hf_i32(o, "head_dim", 2, 1024, &c->head_dim)) || (rc = qr_hf_f64(o, names->eps, 1e-12, 1, &eps)))
        return rc;
    c->norm_eps = (float)eps;
    if (c->n_kv_heads == 0 || (kv && qr_json_is_null(kv)))
        c->n_kv_heads = c->n_heads;
    if ((rc = qr_hf_i32(o, "num_key_value_heads", 1, c->n_heads, &c->n_kv_heads)))
        return rc;
    if (c->n_kv_heads > c->n_heads || c->n_heads % c->n_kv_heads != 0)
        return qr_err_set(o->err, QR_E_DAMAGED, "%s: num_key_value_heads is %d, expected a divisor of %s %d",
                          o->file, c->n_kv_heads, names->heads, c->n_heads);
    if (c->head_dim == 0 && c->n_embd % c->n_heads != 0)
        return qr_err_set(o->err, QR_E_DAMAGED, "%s: head_dim is missing and %s %d is no multiple of %s %d", o->file, names->width, c->n_embd,
                          names->heads, c->n_heads);
    if (c->head_dim == 0)
        c->head_dim = c->n_embd / c->n_heads;
    if (c->head_dim < 2 || c->head_dim > 1024 || c->head_dim % 2 != 0)
        return qr_err_set(o->err, QR_E_DAMAGED, "%s: head_dim is %d, expected an even number from 2 to 1024", o->file,
                          c->head_dim);
    return 0;
}

/* ---- what the layers do ---- */

static int read_layer_types(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    const struct qr_json *list = qr_json_find(o->v, "layer_types");
    if (qr_json_is_null(list))
        return 0;
    int32_t i = 0, first = -1;
    memset(c->unwindowed, 0, sizeof c->unwindowed);
    for (const struct qr_json *v = qr_json_first(list); v; v = qr_json_after(v), i++) {
        const char *name = qr_json_type(v) == QR_JSON_T_STRING ? qr_json_str(v, NULL) : "";
        bool full = strcmp(name, "full_attention") == 0, sliding = strcmp(name, "sliding_attention") == 0;
        if (!full && !sliding)
            return qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: layer_types[%d] is \"%.40s\", expected full_attention or "
                              "sliding_attention", o->file, i, name);
        if (full && first >= 0 && i < c->n_layers)
            c->unwindowed[i / 64] |= (uint64_t)1 << (i % 64);
        if (sliding && c->window == 0)
            return qr_err_set(o->err, QR_E_DAMAGED, "%s: layer_types[%d] is sliding_attention, but no sliding_window is in "
                              "use", o->file, i);
        if (sliding && first < 0)
            first = i;
    }
    if (i != c->n_layers)
        return qr_err_set(o->err, QR_E_DAMAGED, "%s: layer_types has %d entries, expected num_hidden_layers %d", o->file, i,
                          c->n_layers);
    c->window_first_layer = first < 0 ? 0 : first;
    c->window = first < 0 ? 0 : c->window;
    return 0;
}

static int read_window(const struct qr_hf_obj *o, struct qr_model_config *c, const struct arch_row *row)
{
    const struct qr_json *v = qr_json_find(o->v, "sliding_window");
    if (row->window == 0)
        return 0;
    bool on = !row->windows_switched;
    int rc = 0;
    c->window = (v && qr_json_is_null(v)) || row->window == WINDOW_IF_NAMED ? 0 : row->window;
    if (row->windows_switched && (rc = qr_hf_bool(o, "use_sliding_window", &on)))
        return rc;
    if ((rc = qr_hf_i32(o, "sliding_window", on ? 1 : 0, 1 << 30, &c->window))) /* transformers 5 writes 0 beside use_sliding_window false */
        return rc;
    if (!on)
        c->window = 0;
    int32_t pattern = window_pattern(row->arch);
    if (pattern && (rc = qr_hf_i32(o, "sliding_window_pattern", 1, QR_LAYERS_MAX, &pattern)))
        return rc;
    for (int32_t l = 0; pattern && l < c->n_layers; l++)
        c->unwindowed[l / 64] |= (uint64_t)((l + 1) % pattern == 0) << (l % 64);
    if (pattern || c->arch == QR_ARCH_MISTRAL) /* transformers takes a Mistral that lists its layers for a Ministral */
        return read_layer_types(o, c);
    if (!row->windows_switched || c->arch == QR_ARCH_QWEN3_MOE) /* in all layers */
        return 0;
    if (c->arch == QR_ARCH_SMOLLM3) /* where the file lists no layers read_smollm3 does */
        return c->window ? read_layer_types(o, c) : 0;
    if (c->arch == QR_ARCH_QWEN2_MOE && c->window && qr_json_is_null(qr_json_find(o->v, "layer_types")))
        return qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: use_sliding_window is true, but layer_types does not say in which layers", o->file);
    c->window_first_layer = 28;
    if ((rc = qr_hf_i32(o, "max_window_layers", 0, 1 << 16, &c->window_first_layer)))
        return rc;
    if (c->window == 0 || c->window_first_layer >= c->n_layers)
        c->window = c->window_first_layer = 0;
    return read_layer_types(o, c);
}

/* A window that no layer has is none. */
static void forget_unused_window(struct qr_model_config *c)
{
    for (int32_t l = 0; l < c->n_layers; l++)
        if (qr_layer_window(c, l) > 0)
            return;
    c->window = c->window_first_layer = 0;
    memset(c->unwindowed, 0, sizeof c->unwindowed);
}

static int read_flags(const struct qr_hf_obj *o, struct qr_model_config *c, const struct arch_row *row)
{
    bool attention_bias = false;
    int rc;
    c->qk_norm = row->qk_norm;
    c->tied_head = row->tied;
    if ((rc = qr_hf_bool(o, "tie_word_embeddings", &c->tied_head)) ||
        (row->attention_bias_key && (rc = qr_hf_bool(o, "attention_bias", &attention_bias))) ||
        (row->mlp_bias_key && (rc = qr_hf_bool(o, "mlp_bias", &c->mlp_bias))))
        return rc;
    c->qkv_bias = row->qkv_bias || attention_bias;
    if (c->arch == QR_ARCH_QWEN2_MOE && (rc = qr_hf_bool(o, "qkv_bias", &c->qkv_bias)))
        return rc;
    c->out_bias = attention_bias;
    return 0;
}

/* Fields that change what has to be computed, and that nothing here computes. */
static int refuse_unknown_computation(const struct qr_hf_obj *o, const struct qr_model_config *c)
{
    const struct qr_hf_names *names = qr_hf_names(c->arch);
    const char *act = names->activation[0];
    bool both_ways = false, causal = true;
    int rc;
    if ((rc = qr_hf_str(o, names->act, &act)) || (rc = qr_hf_bool(o, "use_bidirectional_attention", &both_ways)) || (rc = qr_hf_bool(o, "is_causal", &causal)))
        return rc;
    if (both_ways || !causal)
        return qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: %s, expected %s: every token sees those before it only", o->file,
                          both_ways ? "use_bidirectional_attention is true" : "is_causal is false", both_ways ? "false" : "true");
    for (int i = 0; i < QR_COUNT(names->activation) && names->activation[i]; i++)
        if (strcmp(act, names->activation[i]) == 0)
            return 0;
    return qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: %s is \"%.40s\", expected %s", o->file, names->act, act, names->activation[0]);
}

/* The text's part of a file says it where the whole does not mean it (read_config). */
static int read_dtype(const struct qr_hf_obj *o, const struct qr_hf_obj *top, struct qr_model_config *c)
{
    const struct qr_hf_obj *const part[] = {top, o};
    const char *name = "float32";
    int rc = 0;
    for (int i = 0; i < QR_COUNT(part) && !rc; i++) {
        rc = qr_hf_str(part[i], "torch_dtype", &name);
        rc = rc ? rc : qr_hf_str(part[i], "dtype", &name); /* the newer name of the field */
    }
    if (rc)
        return rc;
    for (int i = 0; i < QR_COUNT(dtype_rows); i++) {
        if (strcmp(name, dtype_rows[i].name) == 0) {
            c->stored = dtype_rows[i].dtype;
            return 0;
        }
    }
    return qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: torch_dtype is \"%.40s\", expected float32, float16 or bfloat16", o->file,
                      name);
}

/* ---- rotary embedding ---- */

static int read_rope_type(const struct qr_hf_obj *o, struct qr_rope_config *r)
{
    const char *name = "default";
    int rc = qr_hf_str(o, "type", &name); /* the older name of the field */
    if (!rc)
        rc = qr_hf_str(o, "rope_type", &name);
    if (rc)
        return rc;
    for (int i = 0; i < QR_COUNT(rope_rows); i++) {
        if (strcmp(name, rope_rows[i].name) == 0) {
            r->type = rope_rows[i].type;
            return 0;
        }
    }
    return qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: %srope_type is \"%.40s\", expected default, linear, dynamic, llama3, yarn or longrope",
                      o->file, o->prefix, name);
}

/* A divisor for each frequency. */
static int read_factors(const struct qr_hf_obj *o, const char *key, float *out, int32_t *n)
{
    const struct qr_json *v = qr_json_find(o->v, key);
    *n = 0;
    if (!v || qr_json_type(v) != QR_JSON_T_ARRAY)
        return qr_err_set(o->err, QR_E_DAMAGED, "%s: %s%s is missing, expected a list of numbers", o->file, o->prefix, key);
    for (const struct qr_json *e = qr_json_first(v); e; e = qr_json_after(e)) {
        const double f = qr_json_type(e) == QR_JSON_T_NUMBER ? qr_json_f64(e) : 0;
        if (!(f >= 1e-6 && f <= 1e6) || *n == QR_ROPE_PAIRS_MAX)
            return qr_err_set(o->err, QR_E_DAMAGED, "%s: %s%s[%d]: expected at most %d numbers above 0", o->file, o->prefix, key, *n, QR_ROPE_PAIRS_MAX);
        out[(*n)++] = (float)f;
    }
    return 0;
}

/* The context before it was stretched: what stands beside the object (as Phi-3's does) counts before what stands in it. */
static int read_original_ctx(const struct qr_hf_obj *o, struct qr_rope_config *r, int32_t beside)
{
    const int rc = qr_hf_i32(o, "original_max_position_embeddings", 1, 1 << 27, &r->original_ctx);
    r->original_ctx = beside > 0 ? beside : r->original_ctx;
    return rc;
}

/* factor, where the file does not give it, is how much longer the context became. */
static int read_long_rope(const struct qr_hf_obj *o, struct qr_rope_config *r, int32_t ctx_max, int32_t beside)
{
    int32_t n_short;
    int rc = read_original_ctx(o, r, beside);
    r->factor = (double)ctx_max / r->original_ctx;
    if (rc || (rc = qr_hf_f64(o, "factor", 1e-3, 1e6, &r->factor)) || (rc = qr_hf_f64(o, "attention_factor", 1e-3, 1e6, &r->attn_factor)) ||
        (rc = read_factors(o, "short_factor", r->short_factor, &n_short)) || (rc = read_factors(o, "long_factor", r->long_factor, &r->n_factors)))
        return rc;
    if (n_short != r->n_factors)
        return qr_err_set(o->err, QR_E_DAMAGED, "%s: %sshort_factor has %d numbers, long_factor %d", o->file, o->prefix, n_short, r->n_factors);
    return 0;
}

static int read_rope_scaling(const struct qr_hf_obj *o, struct qr_rope_config *r, int32_t ctx_max, int32_t beside)
{
    int rc;
    if ((rc = read_rope_type(o, r)) || (rc = qr_hf_f64(o, "rope_theta", 2, 1e15, &r->theta)) ||
        (rc = qr_hf_f64(o, "partial_rotary_factor", 0, 1, &r->partial)))
        return rc;
    if (r->type == QR_ROPE_DEFAULT)
        return 0;
    if (r->type == QR_ROPE_LONG)
        return read_long_rope(o, r, ctx_max, beside);
    if ((rc = qr_hf_need_f64(o, "factor", 1e-3, 1e6, &r->factor)))
        return rc;
    if (r->type == QR_ROPE_LLAMA3) {
        if ((rc = beside > 0 ? 0 : qr_hf_need_i32(o, "original_max_position_embeddings", 1, 1 << 27, &r->original_ctx)) ||
            (rc = read_original_ctx(o, r, beside)) || (rc = qr_hf_need_f64(o, "low_freq_factor", 1e-6, 1e6, &r->low_freq_factor)) ||
            (rc = qr_hf_need_f64(o, "high_freq_factor", 1e-6, 1e6, &r->high_freq_factor)))
            return rc;
        if (r->high_freq_factor <= r->low_freq_factor)
            return qr_err_set(o->err, QR_E_DAMAGED, "%s: %shigh_freq_factor is %g, expected more than low_freq_factor %g",
                              o->file, o->prefix, r->high_freq_factor, r->low_freq_factor);
        return 0;
    }
    if (r->type == QR_ROPE_LINEAR || r->type == QR_ROPE_DYNAMIC) /* the latter stretches max_position_embeddings, whatever else it names */
        return 0;
    if ((rc = read_original_ctx(o, r, beside)) || (rc = qr_hf_f64(o, "attention_factor", 1e-3, 1e6, &r->attn_factor)) ||
        (rc = qr_hf_f64(o, "beta_fast", 1e-6, 1e6, &r->beta_fast)) ||
        (rc = qr_hf_f64(o, "beta_slow", 1e-6, 1e6, &r->beta_slow)) ||
        (rc = qr_hf_f64(o, "mscale", 0, 1e6, &r->mscale)) ||
        (rc = qr_hf_f64(o, "mscale_all_dim", 0, 1e6, &r->mscale_all_dim)))
        return rc;
    return qr_hf_bool(o, "truncate", &r->truncate);
}

/* An even number of a head's numbers rotates, and each pair has its factors. */
static int check_rope(const struct qr_hf_obj *o, const struct qr_model_config *c)
{
    const struct qr_rope_config *r = &c->rope;
    const int32_t n_rot = qr_rope_numbers(r, c->head_dim);
    if (r->partial != 1 && c->arch != QR_ARCH_PHI3 && c->arch != QR_ARCH_STABLELM)
        return qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: partial_rotary_factor is %g, expected 1", o->file, r->partial);
    if (n_rot < 2 || n_rot % 2 != 0)
        return qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: partial_rotary_factor is %g: of heads of %d that is %d numbers, expected an even number", o->file,
                          r->partial, c->head_dim, n_rot);
    if (r->type == QR_ROPE_LONG && r->n_factors != n_rot / 2)
        return qr_err_set(o->err, QR_E_DAMAGED, "%s: long_factor has %d numbers, expected one for each of %d pairs", o->file, r->n_factors, n_rot / 2);
    return 0;
}

/* Gemma 3: one embedding for layers with a window, which nothing scales, and one for the others. */
static int read_two_ropes(const struct qr_hf_obj *o, const struct qr_json *full, const struct qr_json *sliding, struct qr_model_config *c)
{
    struct qr_rope_config local = c->rope;
    struct qr_hf_obj sub = {.v = full, .file = o->file, .prefix = "rope_parameters.full_attention.", .err = o->err};
    if (!full || !sliding || qr_json_type(full) != QR_JSON_T_OBJECT || qr_json_type(sliding) != QR_JSON_T_OBJECT || c->arch != QR_ARCH_GEMMA3)
        return qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: %s differs between layer types, expected one rotary embedding for all layers", o->file, o->prefix);
    int rc = read_rope_scaling(&sub, &c->rope, c->ctx_max, 0);
    sub.v = sliding;
    sub.prefix = "rope_parameters.sliding_attention.";
    local.theta = 10000;
    rc = rc ? rc : read_rope_scaling(&sub, &local, c->ctx_max, 0);
    if (!rc && local.type != QR_ROPE_DEFAULT)
        rc = qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: %srope_type is \"%s\", expected default", o->file, sub.prefix, rope_rows[local.type].name);
    c->local_theta = local.theta;
    return rc;
}

/* One of the two keys, which is not null. */
static int read_rope_key(const struct qr_hf_obj *o, const char *key, const struct qr_json *v, struct qr_model_config *c, int32_t beside)
{
    char prefix[32];
    snprintf(prefix, sizeof prefix, "%s.", key);
    struct qr_hf_obj sub = {.v = v, .file = o->file, .prefix = key, .err = o->err};
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_hf_wrong_type(o, key, v, "an object");
    const struct qr_json *full = qr_json_find(v, "full_attention"), *sliding = qr_json_find(v, "sliding_attention");
    if (full || sliding)
        return read_two_ropes(&sub, full, sliding, c);
    sub.prefix = prefix;
    return read_rope_scaling(&sub, &c->rope, c->ctx_max, beside);
}

static int read_rope(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    static const char *const keys[] = {"rope_parameters", "rope_scaling"}; /* the newer name and the older one */
    struct qr_rope_config silent = {.type = QR_ROPE_DEFAULT, .theta = row_of(c->arch)->theta, .factor = 1, .beta_fast = 32, .beta_slow = 1,
                                    .attn_factor = -1, .truncate = true, .partial = usual_partial(c->arch)}, first;
    int32_t beside = 0, n = 0;
    int rc = qr_hf_f64(o, "rope_theta", 2, 1e15, &silent.theta);
    rc = rc ? rc : qr_hf_f64(o, "partial_rotary_factor", 0, 1, &silent.partial);
    rc = rc ? rc : qr_hf_i32(o, "original_max_position_embeddings", 1, 1 << 27, &beside);
    silent.original_ctx = beside > 0 ? beside : c->arch == QR_ARCH_PHI3 ? PHI3_ORIGINAL_CTX : c->ctx_max;
    memcpy(&c->rope, &silent, sizeof silent);
    for (int i = 0; i < QR_COUNT(keys) && !rc; i++) {
        const struct qr_json *v = qr_json_find(o->v, keys[i]);
        if (qr_json_is_null(v) || (qr_json_type(v) == QR_JSON_T_OBJECT && qr_json_count(v) == 0))
            continue;
        memcpy(&first, &c->rope, sizeof first);
        memcpy(&c->rope, &silent, sizeof silent);
        rc = read_rope_key(o, keys[i], v, c, beside);
        if (!rc && n++ > 0 && memcmp(&first, &c->rope, sizeof first) != 0)
            rc = qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: %s and %s are both there and differ, expected one of them", o->file, keys[0], keys[1]);
    }
    return rc;
}

/* ---- generation ---- */

/* Nothing, one id or a list of ids. Returns whether the field was there through *seen. */
static int read_eos(const struct qr_hf_obj *o, struct qr_model_config *c, bool *seen)
{
    const struct qr_json *v = qr_json_find(o->v, "eos_token_id"), *list = v;
    *seen = !qr_json_is_null(v);
    if (!*seen)
        return 0;
    bool many = qr_json_type(v) == QR_JSON_T_ARRAY;
    c->n_eos = 0;
    for (v = many ? qr_json_first(list) : list; v; v = many ? qr_json_after(v) : NULL) {
        int64_t id;
        if (!qr_json_i64(v, &id) || id < 0 || id >= c->n_vocab)
            return qr_hf_bad_value(o, "eos_token_id", v, "token ids from 0 to", c->n_vocab - 1);
        if (c->n_eos == QR_EOS_MAX)
            return qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: eos_token_id has %d entries, expected at most %d", o->file,
                              qr_json_count(list), QR_EOS_MAX);
        c->eos_ids[c->n_eos++] = (int32_t)id;
    }
    return 0;
}

static int read_tokens(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    bool seen;
    int rc = qr_hf_i32(o, "bos_token_id", 0, c->n_vocab - 1, &c->bos_id);
    return rc ? rc : read_eos(o, c, &seen);
}

/* generation_config.json: its end-of-sequence ids replace those of config.json. */
static int read_generation(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    const int rc = read_tokens(o, c);
    return rc ? rc : qr_hf_sampling(o, c->gen);
}

/* ---- files ---- */

static int parse_object(struct qr_json **root, const char *file, const char *text, size_t len, struct qr_err *err)
{
    int rc = qr_json_parse_file(root, text, len, &qr_json_limits_request, file, err);
    if (rc || qr_json_type(*root) == QR_JSON_T_OBJECT)
        return rc;
    rc = qr_err_set(err, QR_E_DAMAGED, "%s: is %s, expected an object", file, qr_json_type_name(qr_json_type(*root)));
    qr_json_free(*root);
    return rc;
}

/* The text part of a model that also sees says its own things in an object of its own; ids of tokens stay outside. */
static struct qr_hf_obj text_part(const struct qr_hf_obj *o)
{
    const struct qr_json *v = qr_json_find(o->v, "text_config");
    struct qr_hf_obj text = *o;
    if (v && qr_json_type(v) == QR_JSON_T_OBJECT) {
        text.v = v;
        text.prefix = "text_config.";
    }
    return text;
}

static int read_config(struct qr_model_config *c, const struct qr_hf_obj *top)
{
    const struct arch_row *row;
    int rc;
    *c = (struct qr_model_config){.bos_id = -1};
    if ((rc = read_arch(top, &row, &c->headless)))
        return rc;
    const struct qr_hf_obj text = row->arch == QR_ARCH_GEMMA3 ? text_part(top) : *top, *o = &text;
    c->arch = row->arch;
    qr_arch_names(row->arch, c->arch_name, c->model_type);
    if (c->headless)
        headless_name(c->arch_name, row);
    if ((rc = refuse_unknown_computation(o, c)) || (rc = read_sizes(o, c, row)) || (rc = read_window(o, c, row)))
        return rc;
    forget_unused_window(c);
    if ((rc = read_flags(o, c, row)) ||
        (rc = read_rope(o, c)) || (rc = check_rope(o, c)) || (rc = read_dtype(o, top, c)) || (rc = qr_hf_read_family(o, c)) ||
        (rc = qr_hf_quant_read(&c->quant, top)) || (rc = qr_hf_moe_read(o, c)))
        return rc;
    c->tied_head |= c->headless;
    c->act = qr_hf_names(c->arch)->means;
    rc = read_tokens(o, c);
    return rc || o->v == top->v ? rc : read_tokens(top, c);
}

int qr_hf_config_parse(struct qr_model_config *out, const char *config, size_t config_len, const char *generation,
                       size_t generation_len, struct qr_err *err)
{
    QR_ASSERT(out != NULL && (config != NULL || config_len == 0));
    QR_ASSERT(err != NULL);
    struct qr_json *root;
    struct qr_hf_obj o = {.file = "config.json", .prefix = "", .err = err};
    int rc = parse_object(&root, o.file, config, config_len, err);
    if (rc)
        return rc;
    o.v = root;
    rc = read_config(out, &o);
    qr_json_free(root);
    if (rc || !generation)
        return rc;
    o.file = "generation_config.json";
    if ((rc = parse_object(&root, o.file, generation, generation_len, err)))
        return rc;
    o.v = root;
    rc = read_generation(&o, out);
    qr_json_free(root);
    return rc;
}

int qr_hf_config_read(struct qr_model_config *out, const char *dir, struct qr_err *err)
{
    QR_ASSERT(out != NULL && dir != NULL);
    QR_ASSERT(err != NULL);
    char path[4096];
    struct qr_map_file config, generation = {0};
    snprintf(path, sizeof path, "%s/config.json", dir);
    int rc = qr_map_file_open(&config, path, FILE_BYTES_MAX, err);
    if (rc == QR_E_NOT_FOUND)
        return qr_err_set(err, rc, "%s does not exist; it says what the model is, and belongs beside the weights", path);
    if (rc)
        return rc;
    snprintf(path, sizeof path, "%s/generation_config.json", dir);
    struct qr_err absent;
    rc = qr_map_file_open(&generation, path, FILE_BYTES_MAX, &absent);
    if (rc && rc != QR_E_NOT_FOUND) {
        *err = absent;
    } else {
        const char *text = rc ? NULL : generation.data ? (const char *)generation.data : "";
        rc = qr_hf_config_parse(out, (const char *)config.data, config.n_bytes, text, generation.n_bytes, err);
        if (rc)
            qr_err_prefix(err, "%s/", dir);
        else if (out->quant.method == QR_QUANT_NONE)
            rc = qr_hf_quant_read_beside(&out->quant, dir, err);
    }
    qr_map_file_close(&generation);
    qr_map_file_close(&config);
    return rc;
}

int32_t qr_model_ctx_limit(const struct qr_model_config *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->ctx_max > 0);
    if (c->rope.type == QR_ROPE_DEFAULT || c->rope.type == QR_ROPE_LLAMA3 || c->rope.type == QR_ROPE_LONG)
        return c->ctx_max;
    double stretched = fmin((double)c->rope.original_ctx * c->rope.factor, 1 << 27);
    return stretched > c->ctx_max ? (int32_t)stretched : c->ctx_max;
}

/* ---- writing ---- */

static void write_factors(struct qr_buf *out, const char *key, const float *factor, int32_t n)
{
    qr_buf_printf(out, ", \"%s\": [", key);
    for (int32_t i = 0; i < n; i++) {
        qr_buf_put_str(out, i ? ", " : "");
        qr_json_put_f32(out, factor[i]);
    }
    qr_buf_put_byte(out, ']');
}

static void write_rope(struct qr_buf *out, const struct qr_rope_config *r, double usual)
{
    const double partial = r->partial > 0 ? r->partial : 1;
    if (partial != usual) {
        qr_buf_put_str(out, "  \"partial_rotary_factor\": ");
        qr_json_put_f64(out, partial);
        qr_buf_put_str(out, ",\n");
    }
    qr_buf_put_str(out, "  \"rope_theta\": ");
    qr_json_put_f64(out, r->theta);
    if (r->type == QR_ROPE_DEFAULT) {
        qr_buf_put_str(out, ",\n  \"rope_scaling\": null");
        return;
    }
    const struct {
        const char *key;
        double value;
        bool on;
    } fields[] = {
        {"factor", r->factor, true},
        {"low_freq_factor", r->low_freq_factor, r->type == QR_ROPE_LLAMA3},
        {"high_freq_factor", r->high_freq_factor, r->type == QR_ROPE_LLAMA3},
        {"beta_fast", r->beta_fast, r->type == QR_ROPE_YARN},
        {"beta_slow", r->beta_slow, r->type == QR_ROPE_YARN},
        {"attention_factor", r->attn_factor, (r->type == QR_ROPE_YARN || r->type == QR_ROPE_LONG) && r->attn_factor >= 0},
        {"mscale", r->mscale, r->type == QR_ROPE_YARN && r->mscale != 0},
        {"mscale_all_dim", r->mscale_all_dim, r->type == QR_ROPE_YARN && r->mscale_all_dim != 0},
        {"original_max_position_embeddings", r->original_ctx, r->type != QR_ROPE_LINEAR && r->type != QR_ROPE_DYNAMIC},
    };
    qr_buf_printf(out, ",\n  \"rope_scaling\": {\"rope_type\": \"%s\"", rope_rows[r->type].name);
    if (r->type == QR_ROPE_LONG) {
        write_factors(out, "short_factor", r->short_factor, r->n_factors);
        write_factors(out, "long_factor", r->long_factor, r->n_factors);
    }
    for (int i = 0; i < QR_COUNT(fields); i++) {
        if (fields[i].on) {
            qr_buf_printf(out, ", \"%s\": ", fields[i].key);
            qr_json_put_f64(out, fields[i].value);
        }
    }
    if (r->type == QR_ROPE_YARN)
        qr_buf_printf(out, ", \"truncate\": %s", r->truncate ? "true" : "false");
    qr_buf_put_str(out, "}");
}

/* Where one number does not say which layers have a window. */
static void write_layer_types(struct qr_buf *out, const struct qr_model_config *c)
{
    uint64_t any = window_pattern(c->arch) > 0; /* which says more than a number, too */
    for (int i = 0; i < QR_COUNT(c->unwindowed); i++)
        any |= c->unwindowed[i];
    any |= (c->arch == QR_ARCH_QWEN2_MOE || c->arch == QR_ARCH_SMOLLM3) && c->window;
    any |= c->arch == QR_ARCH_MISTRAL && c->window_first_layer > 0;
    for (int32_t l = 0; any && l < c->n_layers; l++)
        qr_buf_printf(out, "%s\"%s\"", l ? ", " : "  \"layer_types\": [", qr_layer_window(c, l) ? "sliding_attention" : "full_attention");
    qr_buf_put_str(out, any ? "],\n" : "");
}

static void write_window(struct qr_buf *out, const struct qr_model_config *c, const struct arch_row *row)
{
    if (row->window == 0)
        return;
    if (c->window)
        qr_buf_printf(out, "  \"sliding_window\": %d,\n", c->window);
    else
        qr_buf_put_str(out, "  \"sliding_window\": null,\n");
    if (row->windows_switched || window_pattern(c->arch) || c->arch == QR_ARCH_MISTRAL)
        write_layer_types(out, c);
    if (row->windows_switched)
        qr_buf_printf(out, "  \"use_sliding_window\": %s,\n  \"max_window_layers\": %d,\n", c->window ? "true" : "false",
                      c->window_first_layer);
}

/* All three: where the file is silent, transformers' classes take ids that a small vocabulary does not have. */
static void write_tokens(struct qr_buf *out, const struct qr_model_config *c)
{
    qr_buf_put_str(out, "  \"pad_token_id\": null,\n  \"bos_token_id\": ");
    qr_buf_printf(out, c->bos_id >= 0 ? "%d" : "null", c->bos_id);
    qr_buf_put_str(out, ",\n  \"eos_token_id\": ");
    for (int32_t i = 0; i < c->n_eos; i++)
        qr_buf_printf(out, "%s%d", i ? ", " : "[", c->eos_ids[i]);
    qr_buf_put_str(out, c->n_eos ? "],\n" : "null,\n");
}

void qr_hf_config_write(struct qr_buf *out, const struct qr_model_config *c)
{
    QR_ASSERT(out != NULL && c != NULL);
    const struct arch_row *row = row_of(c->arch);
    char without[64];
    QR_ASSERT(c->stored == QR_F32 || c->stored == QR_F16 || c->stored == QR_BF16);
    qr_buf_printf(out, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n", c->headless ? headless_name(without, row) : row->name,
                  row->model_type);
    const struct qr_hf_names *names = qr_hf_names(c->arch);
    qr_buf_printf(out, "  \"%s\": \"%s\",\n  \"%s\": %d,\n  \"%s\": %d,\n", names->act, names->activation[0], names->width, c->n_embd, names->layers,
                  c->n_layers);
    qr_buf_printf(out, "  \"%s\": %d,\n  \"num_key_value_heads\": %d,\n  \"head_dim\": %d,\n", names->heads, c->n_heads, c->n_kv_heads, c->head_dim);
    qr_buf_printf(out, "  \"%s\": %d,\n  \"vocab_size\": %d,\n  \"%s\": %d,\n", names->ffn, c->n_ffn, c->n_vocab, names->ctx,
                  c->n_positions > 0 ? c->n_positions : c->ctx_max);
    qr_buf_printf(out, "  \"%s\": ", names->eps);
    qr_json_put_f32(out, c->norm_eps);
    qr_buf_printf(out, ",\n  \"tie_word_embeddings\": %s,\n", c->tied_head ? "true" : "false");
    if (row->attention_bias_key)
        qr_buf_printf(out, "  \"attention_bias\": %s,\n", c->out_bias ? "true" : "false");
    if (row->mlp_bias_key)
        qr_buf_printf(out, "  \"mlp_bias\": %s,\n", c->mlp_bias ? "true" : "false");
    write_window(out, c, row);
    qr_hf_write_family(out, c);
    qr_hf_moe_write(out, c);
    if (c->arch == QR_ARCH_QWEN2_MOE)
        qr_buf_printf(out, "  \"qkv_bias\": %s,\n", c->qkv_bias ? "true" : "false");
    if (c->arch == QR_ARCH_PHI3)
        qr_buf_printf(out, "  \"original_max_position_embeddings\": %d,\n", c->rope.original_ctx);
    write_tokens(out, c);
    for (int i = 0; i < QR_COUNT(dtype_rows); i++)
        if (dtype_rows[i].dtype == c->stored)
            qr_buf_printf(out, "  \"torch_dtype\": \"%s\",\n", dtype_rows[i].name);
    write_rope(out, &c->rope, usual_partial(c->arch));
    qr_buf_put_str(out, "\n}\n");
}
