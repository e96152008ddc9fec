/* hf_config.c - config.json and generation_config.json of a Hugging Face directory as struct qr_model_config: names,
 * sizes, windows, flags, types and tokens. What differs between families is data of loader/families/. A file is
 * refused as a whole: nothing of a configuration that returned an error is valid. */
#include "loader/config/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "loader/config/hf_parts.h"
#include "loader/families/family.h"
#include "loader/stores/quantized_tensors.h"
#include "base/files/map_file.h"

#define FILE_BYTES_MAX ((size_t)4 << 20)

static const struct dtype_row {
    enum qr_dtype dtype;
    const char *name;
} dtype_rows[] = {{QR_F32, "float32"}, {QR_F16, "float16"}, {QR_BF16, "bfloat16"}};

const char *qr_hf_dtype_name(enum qr_dtype t)
{
    for (int i = 0; i < QR_COUNT(dtype_rows); i++)
        if (dtype_rows[i].dtype == t)
            return dtype_rows[i].name;
    qr_panic("type %d has no name in config.json", (int)t);
}

static int read_arch(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    const struct qr_json *list = qr_json_find(o->v, "architectures");
    bool by_type = qr_json_is_null(list);
    const struct qr_json *name = by_type ? qr_json_find(o->v, "model_type") : qr_json_first(list);
    const char *key = by_type ? "model_type" : "architectures[0]";
    char type_name[64];
    if (!name || qr_json_type(name) != QR_JSON_T_STRING)
        return qr_err_set(o->err, QR_E_DAMAGED, "%s: %s is missing, expected the name of an architecture", o->file, key);
    const char *found = qr_json_str(name, NULL);
    enum qr_published as;
    if (qr_arch_find(&c->arch, found, by_type, &as, type_name)) {
        if (as == QR_WITH_CLASSIFIER && !qr_json_is_null(qr_json_find(o->v, "classifier_from_token"))) { /* vLLM's name for a model whose head is there */
            as = QR_WITH_HEAD;
            qr_arch_name(c->arch, type_name);
        }
        memcpy(c->arch_name, type_name, sizeof type_name);
        c->classifier = as == QR_WITH_CLASSIFIER;
        c->headless = as != QR_WITH_HEAD;
        return 0;
    }
    char where[64];
    snprintf(where, sizeof where, "%s: %s", o->file, key);
    return qr_arch_refuse(o->err, where, found, strcasestr(found, "bert") ? " (an encoder)" : "", false);
}

/* ---- sizes ---- */

/* A field that must be there unless *out has the family's own value. */
static int need_or(const struct qr_hf_obj *o, const char *key, int32_t max, int32_t *out)
{
    return *out > 0 ? qr_hf_i32(o, key, 1, max, out) : qr_hf_need_i32(o, key, 1, max, out);
}

static int read_sizes(const struct qr_hf_obj *o, struct qr_model_config *c, const struct qr_family *f)
{
    const struct qr_json *kv = qr_json_find(o->v, "num_key_value_heads");
    const struct qr_family_fields names = qr_family_fields(f);
    double eps = f->usual.eps > 0 ? f->usual.eps : 1e-6;
    int rc = 0;
    c->ctx_max = f->usual.ctx_max;
    c->n_heads = f->usual.n_heads;
    c->n_vocab = f->usual.n_vocab;
    c->head_dim = f->usual.head_dim;
    c->n_kv_heads = f->usual.n_kv_heads;
    if ((rc = qr_hf_need_i32(o, names.layers, 1, QR_LAYERS_MAX, &c->n_layers)) ||
        (rc = qr_hf_need_i32(o, names.width, 1, 1 << 18, &c->n_embd)))
        return rc;
    c->n_ffn = f->usual.n_ffn_widths * c->n_embd;
    if ((rc = need_or(o, names.heads, 1024, &c->n_heads)) || (rc = need_or(o, names.ffn, 1 << 22, &c->n_ffn)) ||
        (rc = need_or(o, "vocab_size", 1 << 22, &c->n_vocab)) ||
        (rc = qr_hf_i32(o, names.ctx, 1, 1 << 27, &c->ctx_max)) ||
        (rc = qr_hf_i32(o, "head_dim", 2, 1024, &c->head_dim)) || (rc = qr_hf_f64(o, names.eps, 1e-12, 1, &eps)))
        return rc;
    c->norm_eps = (float)eps;
    if (c->n_kv_heads == 0 || (kv && qr_json_is_null(kv)))
        c->n_kv_heads = c->n_heads;
    if ((rc = qr_hf_i32(o, "num_key_value_heads", 1, c->n_heads, &c->n_kv_heads)))
        return rc;
    if (c->n_kv_heads > c->n_heads || c->n_heads % c->n_kv_heads != 0)
        return qr_err_set(o->err, QR_E_DAMAGED, "%s: num_key_value_heads is %d, expected a divisor of %s %d",
                          o->file, c->n_kv_heads, names.heads, c->n_heads);
    if (c->head_dim == 0 && c->n_embd % c->n_heads != 0)
        return qr_err_set(o->err, QR_E_DAMAGED, "%s: head_dim is missing and %s %d is no multiple of %s %d", o->file,
                          names.width, c->n_embd,
                          names.heads, c->n_heads);
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

/* The first layer with a window, unless the file lists them. */
static int read_first_layer(const struct qr_hf_obj *o, struct qr_model_config *c, const struct qr_family *f)
{
    if (f->window_list_written && c->window && qr_json_is_null(qr_json_find(o->v, "layer_types")))
        return qr_err_set(o->err, QR_E_UNSUPPORTED,
                          "%s: use_sliding_window is true, but layer_types does not say in which layers", o->file);
    c->window_first_layer = 28;
    int rc = qr_hf_i32(o, "max_window_layers", 0, 1 << 16, &c->window_first_layer);
    if (!rc && (c->window == 0 || c->window_first_layer >= c->n_layers))
        c->window = c->window_first_layer = 0;
    return rc;
}

static int read_window(const struct qr_hf_obj *o, struct qr_model_config *c, const struct qr_family *f)
{
    const struct qr_json *v = qr_json_find(o->v, "sliding_window");
    if (f->window == 0)
        return 0;
    bool on = !f->window_switched;
    int32_t every = f->window_every;
    int rc = 0;
    c->window = (v && qr_json_is_null(v)) || f->window == QR_WINDOW_IF_NAMED ? 0 : f->window;
    if (f->window_switched && (rc = qr_hf_bool(o, "use_sliding_window", &on)))
        return rc;
    if ((rc = qr_hf_i32(o, "sliding_window", on ? 1 : 0, 1 << 30, &c->window))) /* transformers 5 writes 0 beside use_sliding_window false */
        return rc;
    if (!on)
        c->window = 0;
    if (every && (rc = qr_hf_i32(o, "sliding_window_pattern", 1, QR_LAYERS_MAX, &every)))
        return rc;
    if (every)
        qr_layers_every(c->unwindowed, c->n_layers, every);
    if (f->window_layers == QR_WINDOW_ALL || (f->window_layers == QR_WINDOW_LISTED && f->window_switched &&
                                              c->window == 0))
        return 0;
    if (f->window_layers == QR_WINDOW_FROM && (rc = read_first_layer(o, c, f)))
        return rc;
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

/* What the family's row says of the computation, and the fields that every family may have. */
static int read_flags(const struct qr_hf_obj *o, struct qr_model_config *c, const struct qr_family *f)
{
    const struct {
        const char *field;
        bool *on;
    } biases[] = {{f->qkv_bias_field, &c->qkv_bias}, {f->out_bias_field, &c->out_bias},
                  {f->mlp_bias_field, &c->mlp_bias}};
    qr_family_flags(c, f);
    c->norm_plus_one = f->norm_plus_one;
    c->transposed = f->transposed;
    c->qk_norm = f->qk_norm;
    c->qkv_bias = f->qkv_bias;
    c->tied_head = f->usual.tied;
    int rc = qr_hf_bool(o, "tie_word_embeddings", &c->tied_head);
    for (int i = 0; i < QR_COUNT(biases) && !rc; i++)
        rc = biases[i].field ? qr_hf_bool(o, biases[i].field, biases[i].on) : 0;
    return rc;
}

/* Fields that change what has to be computed, and that nothing here computes. */
static int refuse_unknown_computation(const struct qr_hf_obj *o, const struct qr_family *f)
{
    static const char *const silu[QR_COUNT(f->activation)] = {"silu", "swish"};
    const char *const *known = f->activation[0] ? f->activation : silu;
    const char *field = qr_family_fields(f).act, *act = known[0];
    bool both_ways = false, causal = true;
    int rc;
    if ((rc = qr_hf_str(o, field, &act)) || (rc = qr_hf_bool(o, "use_bidirectional_attention", &both_ways)) ||
        (rc = qr_hf_bool(o, "is_causal", &causal)))
        return rc;
    if (both_ways || !causal)
        return qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: %s, expected %s: every token sees those before it only", o->file,
                          both_ways ? "use_bidirectional_attention is true" : "is_causal is false", both_ways ? "false" : "true");
    for (int i = 0; i < QR_COUNT(silu) && known[i]; i++)
        if (strcmp(act, known[i]) == 0)
            return 0;
    return qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: %s is \"%.40s\", expected %s", o->file, field, act, known[0]);
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

/* ---- generation ---- */

/* Nothing, one id or a list of ids. */
static int read_eos(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    const struct qr_json *v = qr_json_find(o->v, "eos_token_id"), *list = v;
    if (qr_json_is_null(v))
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
    int rc = qr_hf_i32(o, "bos_token_id", 0, c->n_vocab - 1, &c->bos_id);
    return rc ? rc : read_eos(o, c);
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
    int rc;
    *c = (struct qr_model_config){.bos_id = -1};
    if ((rc = read_arch(top, c)))
        return rc;
    const struct qr_family *f = qr_family_of(c->arch);
    const struct qr_hf_obj text = f->text_part ? text_part(top) : *top, *o = &text;
    if ((rc = refuse_unknown_computation(o, f)) || (rc = read_sizes(o, c, f)) || (rc = read_window(o, c, f)))
        return rc;
    forget_unused_window(c);
    if ((rc = read_flags(o, c, f)) || (rc = qr_hf_rope_read(o, c)) || (rc = read_dtype(o, top, c)))
        return rc;
    if (f->scaled_embedding)
        c->embed_scale = qr_family_embed_scale(c->n_embd, c->stored == QR_BF16);
    if ((f->read_hf && (rc = f->read_hf(o, c))) || (rc = qr_hf_quant_read(&c->quant, top)) ||
        (rc = qr_hf_moe_read(o, c)))
        return rc;
    c->tied_head |= c->headless;
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

int32_t qr_model_ctx_usual(const struct qr_model_config *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->ctx_max > 0);
    return c->rope.type == QR_ROPE_YARN ? qr_model_ctx_limit(c) : c->ctx_max;
}
