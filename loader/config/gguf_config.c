/* gguf_config.c - the metadata of a GGUF file as struct qr_model_config. What a key does not say, the tensors do:
 * biases, norms of heads, tied heads, which layers have experts. What differs between families is data of
 * loader/families/. Nothing of a configuration that returned an error is valid. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/files/gguf_file.h"
#include "base/mem.h"
#include "loader/pack/gguf_blocks.h"
#include "loader/config/gguf_reader.h"
#include "loader/config/hf_config.h"
#include "loader/families/family.h"

#define LLAMA3_CONTEXT 8192
#define SOFTMAX_GATES 1 /* expert_gating_func */
#define TOKEN_CONTROL 3 /* tokenizer.ggml.token_type */

#define PARTS_MAX 4096

/* "llama.context_length" */
static const char *key_of(char key[128], const struct qr_gguf_reader *r, const char *name)
{
    snprintf(key, 128, "%s.%s", r->arch, name);
    return key;
}

/* A whole number of the architecture's, also as one for each layer, all the same; *out keeps what is in it where the
 * key is absent and not needed. */
static int read_of_layers(const struct qr_gguf_reader *r, const char *name, int64_t least, int64_t most, bool needed,
                          int32_t *out)
{
    char key[128];
    bool found;
    int64_t v = *out;
    int rc = qr_gguf_same_int(r->g, key_of(key, r, name), r->c->n_layers, least, most, &v, &found, r->err);
    if (!rc && !found && needed)
        rc = qr_err_set(r->err, QR_E_DAMAGED, "key %s is missing", key);
    *out = (int32_t)v;
    return rc;
}

/* The same of one number. */
int qr_gguf_read_int(const struct qr_gguf_reader *r, const char *name, int64_t least, int64_t most, bool needed,
                     int32_t *out)
{
    QR_ASSERT(r != NULL && r->g != NULL);
    QR_ASSERT(name != NULL && out != NULL);
    char key[128];
    bool found;
    int64_t v = *out;
    int rc = qr_gguf_int(r->g, key_of(key, r, name), least, most, &v, &found, r->err);
    if (!rc && !found && needed)
        rc = qr_err_set(r->err, QR_E_DAMAGED, "key %s is missing", key);
    *out = (int32_t)v;
    return rc;
}

int qr_gguf_read_real(const struct qr_gguf_reader *r, const char *name, double least, double most, double *out)
{
    QR_ASSERT(r != NULL && r->g != NULL);
    QR_ASSERT(name != NULL && out != NULL);
    char key[128];
    double v = *out;
    int rc = qr_gguf_real(r->g, key_of(key, r, name), &v, NULL, r->err);
    if (!rc && !(v >= least && v <= most))
        rc = qr_err_set(r->err, QR_E_DAMAGED, "key %s is %g, expected %g to %g", key, v, least, most);
    *out = v;
    return rc;
}

/* llama.cpp has no number in the place of one that is missing, and a guess would be another model. */
static int read_epsilon(const struct qr_gguf_reader *r, bool layer_norm, float *out)
{
    char key[128];
    double v = 0;
    bool found;
    const char *name = layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
    int rc = qr_gguf_real(r->g, key_of(key, r, name), &v, &found, r->err);
    if (!rc && !found)
        rc = qr_err_set(r->err, QR_E_DAMAGED, "key %s is missing", key);
    rc = rc ? rc : qr_gguf_read_real(r, name, 1e-12, 1, &v);
    *out = (float)v;
    return rc;
}

/* A tensor of any part; *of, where not NULL, is that part. NULL where there is none. */
const struct qr_gguf_tensor *qr_gguf_find_tensor(const struct qr_gguf_reader *r, const char *name,
                                                 const struct qr_gguf **of)
{
    QR_ASSERT(r != NULL && r->g != NULL);
    QR_ASSERT(name != NULL);
    const struct qr_gguf_tensor *t = qr_gguf_tensor_find(r->g, name);
    const struct qr_gguf *g = r->g;
    for (int32_t i = 0; i < r->n_later && !t; i++) {
        g = r->later[i].g;
        t = qr_gguf_tensor_find(g, name);
    }
    if (of)
        *of = g;
    return t;
}

/* Files of one name may be of several families: which of them, that the model has experts says. */
static void set_family(struct qr_gguf_reader *r, enum qr_arch arch)
{
    r->arch = qr_family_of(arch)->gguf;
    r->c->arch = arch;
    qr_arch_name(arch, r->c->arch_name);
}

static int read_arch(struct qr_gguf_reader *r)
{
    struct qr_gguf_text name;
    bool found;
    char own[64];
    if (qr_gguf_is_adapter(r->g))
        return qr_err_set(r->err, QR_E_USAGE, QR_GGUF_ADAPTER);
    int rc = qr_gguf_string(r->g, "general.architecture", &name, &found, r->err);
    if (rc)
        return rc;
    if (!found)
        return qr_err_set(r->err, QR_E_DAMAGED, "key general.architecture is missing");
    snprintf(own, sizeof own, "%.*s", (int)(name.n < 40 ? name.n : 40), name.at);
    enum qr_arch arch;
    if (qr_arch_find_gguf(&arch, own, false) && qr_gguf_text_is(name, own)) {
        set_family(r, arch);
        return 0;
    }
    return qr_arch_refuse(r->err, "key general.architecture", own,
                          qr_gguf_text_is(name, "clip") ? " (what a model that sees has beside its own file)" : "", true);
}

static int read_sizes(const struct qr_gguf_reader *r)
{
    struct qr_model_config *c = r->c;
    int rc = qr_gguf_read_int(r, "block_count", 1, QR_LAYERS_MAX, true, &c->n_layers);
    rc = rc ? rc : qr_gguf_read_int(r, "embedding_length", 1, 1 << 20, true, &c->n_embd);
    rc = rc ? rc : read_of_layers(r, "feed_forward_length", 1, 1 << 24, true, &c->n_ffn);
    rc = rc ? rc : qr_gguf_read_int(r, "context_length", 1, 1 << 27, true, &c->ctx_max);
    rc = rc ? rc : read_of_layers(r, "attention.head_count", 1, 1 << 16, true, &c->n_heads);
    c->n_kv_heads = c->n_heads;
    rc = rc ? rc : read_of_layers(r, "attention.head_count_kv", 1, 1 << 16, false, &c->n_kv_heads);
    if (rc)
        return rc;
    if (c->n_heads % c->n_kv_heads != 0)
        return qr_err_set(r->err, QR_E_DAMAGED, "key %s.attention.head_count is %d, expected a multiple of head_count_kv %d", r->arch, c->n_heads,
                          c->n_kv_heads);
    c->head_dim = c->n_embd / c->n_heads;
    rc = qr_gguf_read_int(r, "attention.key_length", 1, 1 << 12, false, &c->head_dim);
    int32_t value_length = c->head_dim, n_rot = c->head_dim;
    rc = rc ? rc : qr_gguf_read_int(r, "attention.value_length", 1, 1 << 12, false, &value_length);
    rc = rc ? rc : qr_gguf_read_int(r, "rope.dimension_count", 1, 1 << 12, false, &n_rot);
    const bool partly = qr_family_of(c->arch)->usual.partial > 0;
    if (!rc && (value_length != c->head_dim || (n_rot != c->head_dim && !partly) || n_rot > c->head_dim || n_rot % 2 != 0 || n_rot == 0 ||
                c->head_dim % 2 != 0))
        rc = qr_err_set(r->err, QR_E_UNSUPPORTED, "%s: keys of %d, values of %d, of which %d numbers rotate; expected one even number for all three%s", r->arch,
                        c->head_dim, value_length, n_rot, partly ? ", or fewer that rotate" : "");
    c->rope.partial = n_rot == c->head_dim ? 1 : (n_rot + 0.5) / c->head_dim; /* rounded down to n_rot again */
    return rc;
}

static void add_end(struct qr_model_config *c, int64_t id)
{
    for (int32_t k = 0; k < c->n_eos; k++)
        id = c->eos_ids[k] == id ? -1 : id;
    if (id >= 0 && id < c->n_vocab && c->n_eos < QR_EOS_MAX)
        c->eos_ids[c->n_eos++] = (int32_t)id;
}

/* Converters write one token that ends texts; those of their own that end a turn, which generation_config.json
 * lists, are found by their texts. */
static int find_ends(const struct qr_gguf_reader *r)
{
    static const char *const ends[] = {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "<EOT>",
                                       "<end_of_utterance>", "<\uff5cend\u2581of\u2581sentence\uff5c>"};
    r->err->code = QR_OK;
    const struct qr_gguf_key *tokens = qr_gguf_array(r->g, "tokenizer.ggml.tokens", QR_GGUF_STRING, r->err);
    const struct qr_gguf_key *types = r->err->code ? NULL : qr_gguf_array(r->g, "tokenizer.ggml.token_type", QR_GGUF_I32, r->err);
    if (!tokens || !types)
        return (int)r->err->code;
    const uint8_t *at = tokens->data;
    for (uint64_t i = 0; i < tokens->count && i < types->count; i++) { /* a hundred thousand, of which few are control tokens */
        int32_t type;
        uint64_t n;
        memcpy(&type, types->data + i * sizeof type, sizeof type);
        memcpy(&n, at, sizeof n);
        const struct qr_gguf_text t = {.at = (const char *)at + sizeof n, .n = n};
        at += sizeof n + n;
        for (int k = 0; type == TOKEN_CONTROL && k < QR_COUNT(ends); k++)
            if (qr_gguf_text_is(t, ends[k]))
                add_end(r->c, (int64_t)i);
    }
    return 0;
}

/* The vocabulary has as many entries as the embedding has rows. */
static int read_vocab(const struct qr_gguf_reader *r)
{
    struct qr_model_config *c = r->c;
    const struct qr_gguf_tensor *t = qr_gguf_find_tensor(r, "token_embd.weight", NULL);
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    struct qr_gguf_text model = {.at = "", .n = 0};
    if (!t || t->n_dims != 2 || t->dim[1] < 1 || t->dim[1] > 1 << 24)
        return qr_err_set(r->err, QR_E_DAMAGED, "there is no tensor token_embd.weight of two dimensions");
    c->n_vocab = (int32_t)t->dim[1];
    c->stored = t->type == QR_GGUF_T_F32 ? QR_F32 : t->type == QR_GGUF_T_F16 ? QR_F16 : QR_BF16;
    int rc = qr_gguf_string(r->g, "tokenizer.ggml.model", &model, NULL, r->err);
    const bool pieces = qr_gguf_text_is(model, "llama"); /* whose ids are Llama's where a file does not say */
    int64_t id = pieces ? 1 : -1;
    rc = rc ? rc : qr_gguf_int(r->g, "tokenizer.ggml.bos_token_id", INT64_MIN, INT64_MAX, &id, NULL, r->err);
    c->bos_id = id >= 0 && id < c->n_vocab ? (int32_t)id : -1;
    for (int i = 0; i < QR_COUNT(ends) && !rc; i++) {
        id = pieces && i == 0 ? 2 : -1;
        rc = qr_gguf_int(r->g, ends[i], INT64_MIN, INT64_MAX, &id, NULL, r->err);
        if (!rc)
            add_end(c, id);
    }
    return rc ? rc : find_ends(r);
}

static bool has(const struct qr_gguf_reader *r, const char *tensor)
{
    return qr_gguf_find_tensor(r, tensor, NULL) != NULL;
}

/* Which layers have no window: every so many, or an array with a truth value for each of those that have one. */
int qr_gguf_read_windows(const struct qr_gguf_reader *r, int32_t every)
{
    QR_ASSERT(r != NULL && r->c != NULL);
    QR_ASSERT(every > 0);
    struct qr_model_config *c = r->c;
    char key[128];
    const struct qr_gguf_key *k = qr_gguf_find(r->g, key_of(key, r, "attention.sliding_window_pattern"));
    if (!k || k->kind != QR_GGUF_ARRAY) {
        int rc = qr_gguf_read_int(r, "attention.sliding_window_pattern", 1, QR_LAYERS_MAX, false, &every);
        if (!rc && c->window)
            qr_layers_every(c->unwindowed, c->n_layers, every);
        return rc;
    }
    if (k->of != QR_GGUF_BOOL || k->count < (uint64_t)c->n_layers)
        return qr_err_set(r->err, QR_E_DAMAGED, "byte %" PRIu64 ": key %s: expected a truth value for each of %d layers", k->offset, key, c->n_layers);
    for (int32_t l = 0; l < c->n_layers && c->window; l++)
        c->unwindowed[l / 64] |= (uint64_t)(k->data[l] == 0) << (l % 64);
    return 0;
}

/* The width of experts, where no key gives it: rows of a layer's stack [E, F, D]. */
static int32_t stack_rows(const struct qr_gguf_reader *r, const char *name)
{
    char tensor[64];
    for (int32_t l = 0; l < r->c->n_layers; l++) {
        snprintf(tensor, sizeof tensor, "blk.%d.%s.weight", l, name);
        const struct qr_gguf_tensor *t = qr_gguf_find_tensor(r, tensor, NULL);
        if (t && t->n_dims >= 2 && t->dim[1] >= 1 && t->dim[1] <= 1 << 22)
            return (int32_t)t->dim[1];
    }
    return 0;
}

/* How weights of experts are made, where a file says it. */
static int read_routing(const struct qr_gguf_reader *r)
{
    double scale = 1;
    int32_t function = SOFTMAX_GATES, groups = 1;
    char key[128];
    int rc = qr_gguf_bool(r->g, key_of(key, r, "expert_weights_norm"), &r->c->moe.normalize, NULL, r->err);
    rc = rc ? rc : qr_gguf_read_real(r, "expert_weights_scale", 0, 1e6, &scale);
    rc = rc ? rc : qr_gguf_read_int(r, "expert_gating_func", 0, INT32_MAX, false, &function);
    rc = rc ? rc : qr_gguf_read_int(r, "expert_group_count", 0, INT32_MAX, false, &groups);
    if (!rc && ((scale != 0 && scale != 1) || function > SOFTMAX_GATES || groups > 1))
        rc = qr_err_set(r->err, QR_E_UNSUPPORTED, "%s: experts in %d groups, whose weights are made by function %d and multiplied by %g; expected no groups, "
                        "softmax (%d) and 1", r->arch, groups, function, scale, SOFTMAX_GATES);
    return rc;
}

/* Experts; which layers have them, their tensors say. */
static int read_experts(struct qr_gguf_reader *r)
{
    struct qr_model_config *c = r->c;
    struct qr_moe_config *m = &c->moe;
    const bool needed = qr_family_of(c->arch)->experts != NULL;
    int rc = qr_gguf_read_int(r, "expert_count", needed, 1 << 16, needed, &m->n_experts);
    if (rc || m->n_experts == 0)
        return rc;
    enum qr_arch arch = c->arch;
    qr_arch_find_gguf(&arch, r->arch, true);
    const struct qr_family_experts *e = qr_family_of(arch)->experts;
    if (!e || m->n_experts > QR_EXPERTS_MAX)
        return qr_err_set(r->err, QR_E_UNSUPPORTED,
                          "key %s.expert_count is %d, expected at most %d experts, of an architecture that has them",
                          r->arch, m->n_experts, e ? QR_EXPERTS_MAX : 0);
    set_family(r, arch);
    m->n_ffn = e->n_ffn > 0 ? stack_rows(r, "ffn_gate_exps") : c->n_ffn;
    m->n_ffn_shared = stack_rows(r, "ffn_gate_shexp");
    m->normalize = e->normalized_in_gguf;
    rc = read_routing(r);
    rc = rc ? rc : read_of_layers(r, "expert_used_count", 1, m->n_experts, true, &m->n_used);
    rc = rc ? rc : read_of_layers(r, "expert_feed_forward_length", 1, 1 << 22, e->n_ffn > 0 && m->n_ffn == 0,
                                  &m->n_ffn);
    rc = rc ? rc : qr_gguf_read_int(r, "expert_shared_feed_forward_length", 0, 1 << 22, false, &m->n_ffn_shared);
    /* else all layers have them; one that is missing is to be named */
    for (int32_t l = 0; l < c->n_layers && !rc && e->layers_differ; l++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", l);
        m->dense[l / 64] |= (uint64_t)!has(r, name) << (l % 64);
    }
    return rc;
}

static void read_flags(const struct qr_gguf_reader *r)
{
    struct qr_model_config *c = r->c;
    const struct qr_family *f = qr_family_of(c->arch);
    const struct qr_gguf_tensor *embed = qr_gguf_find_tensor(r, "token_embd.weight", NULL);
    qr_family_flags(c, f);
    c->local_theta = c->local_theta > 0 ? c->local_theta : 0;
    if (f->scaled_embedding)
        c->embed_scale = qr_family_embed_scale(c->n_embd, embed->type == QR_GGUF_T_BF16);
    c->tied_head = !has(r, "output.weight");
    c->qkv_bias = has(r, "blk.0.attn_q.bias") || has(r, "blk.0.attn_qkv.bias");
    c->out_bias = has(r, "blk.0.attn_output.bias");
    c->mlp_bias = has(r, "blk.0.ffn_down.bias");
    c->qk_norm = has(r, "blk.0.attn_q_norm.weight");
}

/* ---- rotary embedding ---- */

/* Llama 3's scaling, as it is defined by four numbers, divides frequency i by this. */
static double llama3_divisor(const struct qr_rope_config *rope, int32_t i, int32_t n_rot)
{
    const double length = 2 * M_PI * pow(rope->theta, 2.0 * i / n_rot);
    const double low = rope->original_ctx / rope->low_freq_factor, high = rope->original_ctx / rope->high_freq_factor;
    if (length < high)
        return 1;
    if (length > low)
        return rope->factor;
    const double smooth = (rope->original_ctx / length - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    return 1 / ((1 - smooth) / rope->factor + smooth);
}

/* Whether divisors are Llama 3's scaling with the numbers of the published models: the last divisor is the factor,
 * and the others do not differ. */
static bool is_llama3(struct qr_rope_config *rope, const float *divisor, int32_t half)
{
    struct qr_rope_config found = *rope;
    found.type = QR_ROPE_LLAMA3;
    found.factor = (double)divisor[half - 1];
    found.low_freq_factor = 1;
    found.high_freq_factor = 4;
    found.original_ctx = LLAMA3_CONTEXT;
    for (int32_t i = 0; i < half; i++)
        if (!(fabs(llama3_divisor(&found, i, 2 * half) - (double)divisor[i]) <= 1e-4 * found.factor))
            return false;
    *rope = found;
    return true;
}

static int read_factors(const struct qr_gguf_reader *r, const char *name, float *out)
{
    const struct qr_gguf *g;
    const struct qr_gguf_tensor *t = qr_gguf_find_tensor(r, name, &g);
    const int32_t n = qr_rope_numbers(&r->c->rope, r->c->head_dim) / 2;
    if (!t || t->n_dims != 1 || t->dim[0] != n || n > QR_ROPE_PAIRS_MAX || t->type != QR_GGUF_T_F32)
        return qr_err_set(r->err, QR_E_DAMAGED, "tensor %s: expected %d numbers of type F32", name, n);
    qr_gguf_decode(QR_GGUF_T_F32, out, qr_gguf_tensor_data(g, t), n);
    for (int32_t i = 0; i < n; i++)
        if (!(out[i] >= 1e-6f && out[i] <= 1e6f))
            return qr_err_set(r->err, QR_E_DAMAGED, "byte %" PRIu64 ": tensor %s: number %d is %g, expected more than 0", t->offset, name, i, (double)out[i]);
    return 0;
}

/* Converters write Llama 3's scaling as what each frequency is divided by. Where these are not the usual ones, they
 * are kept: longrope, of one length and without a factor for attention. */
static int read_divisors(const struct qr_gguf_reader *r)
{
    struct qr_rope_config *rope = &r->c->rope;
    if (!has(r, "rope_freqs.weight"))
        return 0;
    int rc = read_factors(r, "rope_freqs.weight", rope->long_factor);
    const int32_t half = qr_rope_numbers(rope, r->c->head_dim) / 2;
    if (rc || is_llama3(rope, rope->long_factor, half))
        return rc;
    memcpy(rope->short_factor, rope->long_factor, sizeof rope->short_factor);
    rope->type = QR_ROPE_LONG;
    rope->n_factors = half;
    rope->attn_factor = 1;
    return 0;
}

static int read_long_rope(const struct qr_gguf_reader *r)
{
    struct qr_rope_config *rope = &r->c->rope;
    rope->type = QR_ROPE_LONG;
    rope->n_factors = qr_rope_numbers(rope, r->c->head_dim) / 2;
    int rc = read_factors(r, "rope_factors_long.weight", rope->long_factor);
    rc = rc ? rc : read_factors(r, "rope_factors_short.weight", rope->short_factor);
    rope->factor = (double)r->c->ctx_max / rope->original_ctx;
    double attn_factor = 0;
    rc = rc ? rc : qr_gguf_read_real(r, "rope.scaling.attn_factor", 0, 1e6, &attn_factor);
    rope->attn_factor = attn_factor > 0 ? attn_factor : -1;
    return rc;
}

/* yarn_attn_factor is what transformers calls attention_factor, and stands for what would follow from the factor;
 * attn_factor multiplies that. */
static int read_yarn(const struct qr_gguf_reader *r)
{
    struct qr_rope_config *rope = &r->c->rope;
    double whole = 0, more = 1;
    int rc = qr_gguf_read_real(r, "rope.scaling.yarn_beta_fast", 1e-6, 1e6, &rope->beta_fast);
    rc = rc ? rc : qr_gguf_read_real(r, "rope.scaling.yarn_beta_slow", 1e-6, 1e6, &rope->beta_slow);
    rc = rc ? rc : qr_gguf_read_real(r, "rope.scaling.yarn_attn_factor", 0, 1e6, &whole);
    rc = rc ? rc : qr_gguf_read_real(r, "rope.scaling.attn_factor", 0, 1e6, &more);
    const double usual = rope->factor > 1 ? 0.1 * log(rope->factor) + 1 : 1;
    if (whole > 0 || (more > 0 && more != 1))
        rope->attn_factor = (whole > 0 ? whole : usual) * (more > 0 ? more : 1);
    return rc;
}

static int read_rope(const struct qr_gguf_reader *r)
{
    struct qr_rope_config *rope = &r->c->rope;
    struct qr_gguf_text type = {.at = "none", .n = 4};
    char key[128];
    *rope = (struct qr_rope_config){.type = QR_ROPE_DEFAULT, .theta = 10000, .factor = 1, .beta_fast = 32, .beta_slow = 1, .attn_factor = -1, .truncate = true,
                                    .original_ctx = r->c->ctx_max, .partial = rope->partial};
    bool said = false;
    int rc = qr_gguf_read_real(r, "rope.freq_base", 2, 1e15, &rope->theta);
    rc = rc ? rc : qr_gguf_string(r->g, key_of(key, r, "rope.scaling.type"), &type, &said, r->err);
    double factor = 1;
    rc = rc ? rc : qr_gguf_read_real(r, "rope.scale_linear", 0, 1e6, &factor); /* the older name */
    rc = rc ? rc : qr_gguf_read_real(r, "rope.scaling.factor", 0, 1e6, &factor);
    rc = rc ? rc : qr_gguf_read_int(r, "rope.scaling.original_context_length", 1, 1 << 27, false, &rope->original_ctx);
    if (rc)
        return rc;
    if (!said && factor > 0 && factor != 1)
        type = (struct qr_gguf_text){.at = "linear", .n = 6};
    if (has(r, "rope_factors_long.weight"))
        return read_long_rope(r);
    if (qr_gguf_text_is(type, "none") || (qr_gguf_text_is(type, "linear") && (factor == 0 || factor == 1)))
        return read_divisors(r);
    if (has(r, "rope_freqs.weight"))
        return qr_err_set(r->err, QR_E_UNSUPPORTED, "tensor rope_freqs.weight beside rope.scaling.type \"%.*s\"; expected one of the two",
                          (int)(type.n < 40 ? type.n : 40), type.at);
    if (!qr_gguf_text_is(type, "linear") && !qr_gguf_text_is(type, "yarn"))
        return qr_err_set(r->err, QR_E_UNSUPPORTED, "key %s is \"%.*s\", expected none, linear or yarn", key, (int)(type.n < 40 ? type.n : 40), type.at);
    rope->type = qr_gguf_text_is(type, "yarn") ? QR_ROPE_YARN : QR_ROPE_LINEAR;
    rope->factor = factor > 0 ? factor : 1;
    return qr_gguf_text_is(type, "yarn") ? read_yarn(r) : 0;
}

/* What a model is its tensors say, too, and those of one that was split may all be in later parts. */
static int open_later(struct qr_gguf_reader *r, const char *path)
{
    int64_t n = 1;
    char part[QR_GGUF_PATH_MAX];
    int rc = qr_gguf_int(r->g, "split.count", 0, PARTS_MAX, &n, NULL, r->err);
    if (rc || n < 2 || !qr_gguf_part_path(part, path, 0, (int32_t)n))
        return rc;
    r->later = qr_alloc((size_t)n, sizeof *r->later);
    for (int32_t i = 1; i < n && !rc; i++) {
        qr_gguf_part_path(part, path, i, (int32_t)n);
        rc = qr_gguf_file_open(&r->later[r->n_later], part, r->err);
        r->n_later += rc == 0;
        if (rc == QR_E_NOT_FOUND)
            rc = qr_err_set(r->err, rc, "is the first of %" PRId64 " parts, and %s is missing: download it into the same directory", n, part);
    }
    return rc;
}

static void close_later(struct qr_gguf_reader *r)
{
    for (int32_t i = 0; i < r->n_later; i++)
        qr_gguf_file_close(&r->later[i]);
    qr_free(r->later);
}

static int read_all(struct qr_gguf_reader *r)
{
    struct qr_model_config *c = r->c;
    int rc = read_arch(r);
    rc = rc ? rc : read_sizes(r);
    rc = rc ? rc : read_experts(r);
    rc = rc ? rc : read_vocab(r);
    rc = rc ? rc : qr_gguf_read_int(r, "attention.sliding_window", 0, 1 << 30, false, &c->window);
    if (rc)
        return rc;
    const struct qr_family *f = qr_family_of(c->arch);
    read_flags(r);
    rc = read_epsilon(r, c->layer_norm, &c->norm_eps);
    rc = rc ? rc : read_rope(r);
    return rc || !f->read_gguf ? rc : f->read_gguf(r);
}

int qr_gguf_config_read(struct qr_model_config *out, const struct qr_gguf *g, const char *path, struct qr_err *err)
{
    QR_ASSERT(out != NULL && g != NULL);
    QR_ASSERT(path != NULL && err != NULL);
    *out = (struct qr_model_config){.bos_id = -1};
    struct qr_gguf_reader r = {.g = g, .c = out, .err = err};
    int rc = open_later(&r, path);
    rc = rc ? rc : read_all(&r);
    close_later(&r);
    return rc ? qr_source_blame(err, path) : 0;
}

int qr_model_config_from(struct qr_model_config *out, const struct qr_source *source, struct qr_err *err)
{
    QR_ASSERT(out != NULL && source != NULL);
    const struct qr_gguf *g = qr_source_gguf(source);
    return g ? qr_gguf_config_read(out, g, qr_source_gguf_path(source), err) : qr_hf_config_read(out, qr_source_model(source), err);
}

int qr_model_config_read(struct qr_model_config *out, const char *model, struct qr_err *err)
{
    return qr_model_config_read_text(out, NULL, model, err);
}
