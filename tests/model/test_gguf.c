/* A model as a GGUF file of every type, and the numbers its blocks stand for as safetensors: the same logits, bit for bit. An embedding of blocks is read as
 * bf16, so there it is stored as such. */
#include "base/file.h"
#include "base/half.h"
#include "loader/check/check.h"
#include "loader/pack/gguf_blocks.h"
#include "loader/config/hf_config.h"
#include "loader/write/quantize.h"
#include "loader/write/safetensors_write.h"
#include "loader/stores/tensor_files.h"
#include "loader/weight_table.h"
#include "loader/weights.h"
#include "crew.h"
#include "tests/gguf_make.h"
#include "tests/loader/quantized_dir.h"

#define TENSORS_MAX 128
#define N_IDS 24

/* A tensor with its name in both kinds of file; heads: mixed rotary halves, as converters write q and k of llama. */
struct made {
    char gguf[64], name[QR_WEIGHT_NAME_MAX];
    int64_t n_rows, n_cols;
    int32_t n_dims, heads, n_stacked;
    bool transposed;    /* the safetensors file has it as [in, out] */
    float offset;   /* what the GGUF file's number is more */
    enum qr_gguf_type type;
    uint8_t *blocks;
    float *value; /* in the order of safetensors files */
    size_t n_bytes, at;
};

struct pair {
    struct qr_model_config c;
    struct made t[TENSORS_MAX];
    int n, n_extra; /* the extra ones, behind them, are in the GGUF file only; those without a name there in the other only */
    char dir[64], gguf[128];
};

static const struct {
    const char *name, *gguf;
} names[] = {{"input_layernorm", "attn_norm"}, {"self_attn.q_proj", "attn_q"}, {"self_attn.k_proj", "attn_k"}, {"self_attn.v_proj", "attn_v"},
             {"self_attn.o_proj", "attn_output"}, {"post_attention_layernorm", "ffn_norm"}, {"mlp.gate_proj", "ffn_gate"}, {"mlp.up_proj", "ffn_up"},
             {"mlp.down_proj", "ffn_down"}, {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
             {"self_attn.qkv_proj", "attn_qkv"}, {"mlp.gate_up_proj", "ffn_up"},
             {"ln_1", "attn_norm"}, {"attn.c_attn", "attn_qkv"}, {"attn.c_proj", "attn_output"}, {"ln_2", "ffn_norm"}, {"mlp.c_fc", "ffn_up"},
             {"mlp.c_proj", "ffn_down"}, {"mlp.gate.", "ffn_gate_inp"}, {"block_sparse_moe.gate", "ffn_gate_inp"}, {"shared_expert_gate", "ffn_gate_inp_shexp"},
             {"shared_expert.gate_proj", "ffn_gate_shexp"}, {"shared_expert.up_proj", "ffn_up_shexp"}, {"shared_expert.down_proj", "ffn_down_shexp"}};

/* Stacks of all experts of a layer, by the last part of an expert's name. */
static const struct {
    const char *name, *gguf;
} stack_names[] = {{"w1.weight", "ffn_gate_exps"}, {"w3.weight", "ffn_up_exps"}, {"w2.weight", "ffn_down_exps"}, {"gate_proj.weight", "ffn_gate_exps"},
                   {"up_proj.weight", "ffn_up_exps"}, {"down_proj.weight", "ffn_down_exps"}};

/* Of families with norms behind their halves; Seed-OSS' converter calls one before them so. */
static const struct {
    const char *name, *gguf;
} post_names[] = {{"post_attention_layernorm", "post_attention_norm"}, {"pre_feedforward_layernorm", "ffn_norm"},
                  {"post_feedforward_layernorm", "post_ffw_norm"}};

static const char *top_name(const char *name)
{
    return strstr(name, "embed_tokens") || strstr(name, "wte") ? "token_embd" : strstr(name, "wpe") ? "position_embd" : strstr(name, "lm_head") ? "output"
                                                                                                                                                : "output_norm";
}

static void gguf_name(char out[64], const struct qr_weight_walk *k, const char *name)
{
    const char *tail = strrchr(name, '.');
    if (k->layer < 0)
        snprintf(out, 64, "%s%s", top_name(name), tail);
    for (int i = 0; k->layer >= 0 && i < QR_COUNT(names); i++)
        if (strstr(name, names[i].name))
            snprintf(out, 64, "blk.%d.%s%s", k->layer, names[i].gguf, tail);
    for (int i = 0; k->layer >= 0 && (k->c->post_norms || k->c->arch == QR_ARCH_SEED_OSS) && i < QR_COUNT(post_names); i++)
        if (strstr(name, post_names[i].name))
            snprintf(out, 64, "blk.%d.%s%s", k->layer, post_names[i].gguf, tail);
}

/* Random bytes, but for the scales, which are small. */
static void draw_blocks(struct made *t, struct qr_rng *rng)
{
    static const struct {
        enum qr_gguf_type type;
        int32_t at[2]; /* of halfs */
    } scales[] = {{QR_GGUF_T_Q2_K, {80, 82}}, {QR_GGUF_T_Q3_K, {108, -1}}, {QR_GGUF_T_Q4_K, {0, 2}}, {QR_GGUF_T_Q5_K, {0, 2}}, {QR_GGUF_T_Q6_K, {208, -1}},
                  {QR_GGUF_T_Q4_1, {0, 2}}, {QR_GGUF_T_Q5_1, {0, 2}}};
    const struct qr_gguf_layout *l = qr_gguf_layout((uint32_t)t->type);
    int32_t at[2] = {0, -1};
    for (int i = 0; i < QR_COUNT(scales); i++)
        if (scales[i].type == t->type)
            memcpy(at, scales[i].at, sizeof at);
    for (size_t i = 0; i < t->n_bytes; i++)
        t->blocks[i] = (uint8_t)qr_rng_next(rng);
    for (size_t b = 0; b < t->n_bytes; b += (size_t)l->bytes)
        for (int k = 0; k < 2 && at[k] >= 0; k++) {
            const uint16_t h = (uint16_t)(0x0c00 + qr_rng_below(rng, 0x400) + (qr_rng_below(rng, 2) << 15)); /* +-2^-12 to 2^-11 */
            memcpy(t->blocks + b + at[k], &h, sizeof h);
        }
    for (uint64_t i = 0; t->type == QR_GGUF_T_MXFP4 && i < t->n_bytes; i += 17)
        t->blocks[i] = (uint8_t)(118 + qr_rng_below(rng, 4)); /* 2^-9 to 2^-6 */
}

static void draw_plain(struct made *t, struct qr_rng *rng)
{
    for (int64_t i = 0; i < t->n_rows * t->n_cols; i++) {
        const float x = (float)((t->n_dims == 1 ? 1.0 : 0.0) + (qr_rng_next_unit(rng) - 0.5) * 0.1);
        uint16_t h = t->type == QR_GGUF_T_BF16 ? qr_f32_to_bf16(x) : (uint16_t)(0x2000 + qr_rng_below(rng, 0x800));
        if (t->type == QR_GGUF_T_F16)
            h |= (uint16_t)(qr_rng_below(rng, 2) << 15); /* bounds on roundings assume both signs */
        if (t->type == QR_GGUF_T_F32)
            memcpy(t->blocks + 4 * i, &x, sizeof x);
        else
            memcpy(t->blocks + 2 * i, &h, sizeof h);
    }
}

/* The rows of a safetensors file: of a head, first the even rows of this one, then the odd ones; or its columns. */
static void unmix(struct made *t, const float *stored)
{
    const int64_t per_head = t->heads ? t->n_rows / t->heads : 1;
    for (int64_t i = 0; t->transposed && i < t->n_rows * t->n_cols; i++)
        t->value[i % t->n_cols * t->n_rows + i / t->n_cols] = stored[i];
    if (t->transposed)
        return;
    for (int64_t i = 0; i < t->n_rows; i++) {
        const int64_t r = i % per_head, to = !t->heads ? i : i - r + (r % 2 == 0 ? r / 2 : per_head / 2 + r / 2);
        memcpy(t->value + to * t->n_cols, stored + i * t->n_cols, (size_t)t->n_cols * sizeof(float));
    }
}

static void draw(struct made *t, struct qr_rng *rng)
{
    const struct qr_gguf_layout *l = qr_gguf_layout((uint32_t)t->type);
    const int64_t n = t->n_rows * t->n_cols;
    t->n_bytes = (size_t)(n / l->elements * l->bytes);
    t->blocks = qr_alloc(t->n_bytes, 1);
    t->value = qr_alloc((size_t)n, sizeof(float));
    float *stored = qr_alloc((size_t)n, sizeof(float));
    if (l->elements > 1)
        draw_blocks(t, rng);
    else
        draw_plain(t, rng);
    cr_assert(qr_gguf_decode(t->type, stored, t->blocks, n));
    for (int64_t i = 0; i < n && t->offset != 0; i++)
        stored[i] -= t->offset; /* exact, and so is the sum, as all are near 1 */
    unmix(t, stored);
    qr_free(stored);
}

/* Matrices have the types of a list in turn. */
static void make_tensors(struct pair *p, const enum qr_gguf_type *types, int n_types, uint64_t seed)
{
    int n_matrices = 0;
    struct qr_rng rng = {.seed = seed};
    for (struct qr_weight_walk k = qr_weight_walk_begin(&p->c); qr_weight_walk_next(&k);) {
        int64_t shape[2] = {1, 1};
        if (k.row->when == QR_WHEN_TIED)
            continue;
        struct made *t = &p->t[p->n++];
        cr_assert(p->n <= TENSORS_MAX);
        t->n_dims = qr_weight_walk_shape(shape, &k);
        t->transposed = qr_weight_row_transposed(k.row, &p->c);
        t->n_rows = shape[t->transposed];
        t->n_cols = t->n_dims == 1 ? 1 : shape[!t->transposed];
        t->offset = qr_weight_row_offset(k.row, &p->c);
        qr_weight_walk_name(t->name, &k);
        gguf_name(t->gguf, &k, t->name);
        t->type = t->n_dims == 1 || k.row->kind == QR_KIND_ROWS ? QR_GGUF_T_F32 : types[n_matrices++ % n_types];
        if (p->c.arch == QR_ARCH_LLAMA || p->c.arch == QR_ARCH_GRANITE || p->c.arch == QR_ARCH_SMOLLM3 || p->c.arch == QR_ARCH_MIXTRAL)
            t->heads = strstr(t->name, "q_proj") ? p->c.n_heads : strstr(t->name, "k_proj") ? p->c.n_kv_heads : 0;
        draw(t, &rng);
    }
}

/* Experts of a layer that follow each other become one tensor, and have no name of their own any more. */
static void stack_experts(struct pair *p)
{
    for (int32_t l = 0; l < p->c.n_layers && p->c.moe.n_experts > 0; l++)
        for (int s = 0; s < QR_COUNT(stack_names); s++) {
            struct made *all = &p->t[p->n + p->n_extra];
            char layer[32];
            snprintf(layer, sizeof layer, "layers.%d.", l);
            for (int i = 0; i < p->n; i++) {
                struct made *t = &p->t[i];
                if (!strstr(t->name, ".experts.") || !strstr(t->name, layer) || !strstr(t->name, stack_names[s].name))
                    continue;
                t->gguf[0] = 0;
                if (all->n_stacked++ == 0) {
                    *all = (struct made){.n_rows = t->n_rows, .n_cols = t->n_cols, .n_dims = 3, .type = t->type, .n_stacked = 1};
                    all->blocks = qr_alloc(t->n_bytes * (size_t)p->c.moe.n_experts, 1);
                    snprintf(all->gguf, sizeof all->gguf, "blk.%d.%s.weight", l, stack_names[s].gguf);
                }
                memcpy(all->blocks + all->n_bytes, t->blocks, t->n_bytes);
                all->n_bytes += t->n_bytes;
            }
            p->n_extra += all->n_stacked > 0;
            cr_assert(p->n + p->n_extra < TENSORS_MAX);
        }
}

/* Longrope's divisors are tensors in GGUF files, and nothing in others. */
static void add_factors(struct pair *p, const char *name, const float *factor)
{
    struct made *t = &p->t[p->n + p->n_extra++];
    cr_assert(p->n + p->n_extra <= TENSORS_MAX);
    snprintf(t->gguf, sizeof t->gguf, "%s", name);
    t->n_dims = 1;
    t->n_rows = p->c.rope.n_factors;
    t->n_cols = 1;
    t->type = QR_GGUF_T_F32;
    t->n_bytes = (size_t)t->n_rows * sizeof *factor;
    t->blocks = qr_alloc(t->n_bytes, 1);
    memcpy(t->blocks, factor, t->n_bytes);
}

static bool is_block_table(const struct made *t)
{
    return (strstr(t->name, "embed_tokens") || strstr(t->name, "wte")) && qr_gguf_layout((uint32_t)t->type)->elements > 1;
}

static void put_values(struct qr_st_out *o, const struct made *t)
{
    const int64_t n = t->n_rows * t->n_cols;
    struct qr_err err = {0};
    for (int64_t i = 0; i < n; i++) {
        const uint16_t h = qr_f32_to_bf16(t->value[i]);
        const bool narrow = is_block_table(t);
        cr_assert_eq(qr_st_out_put(o, narrow ? (const void *)&h : &t->value[i], narrow ? sizeof h : sizeof t->value[i], &err), 0, "%s", err.msg);
    }
}

static void write_directory(const struct pair *p)
{
    struct qr_st_entry e[TENSORS_MAX];
    struct qr_st_out o;
    struct qr_buf config = {0};
    struct qr_err err = {0};
    char path[128];
    for (int i = 0; i < p->n; i++)
        e[i] = (struct qr_st_entry){.name = p->t[i].name, .dtype = is_block_table(&p->t[i]) ? QR_BF16 : QR_F32, .n_dims = p->t[i].n_dims,
                                    .shape = {p->t[i].transposed ? p->t[i].n_cols : p->t[i].n_rows, p->t[i].transposed ? p->t[i].n_rows : p->t[i].n_cols}};
    qr_hf_config_write(&config, &p->c);
    snprintf(path, sizeof path, "%s/config.json", p->dir);
    FILE *f = fopen(path, "w");
    cr_assert(f && fwrite(config.data, 1, config.len, f) == config.len && fclose(f) == 0);
    qr_buf_release(&config);
    snprintf(path, sizeof path, "%s/model.safetensors", p->dir);
    cr_assert_eq(qr_st_out_open(&o, path, e, p->n, NULL, 0, &err), 0, "%s", err.msg);
    for (int i = 0; i < p->n; i++)
        put_values(&o, &p->t[i]);
    cr_assert_eq(qr_st_out_close(&o, false, &err), 0, "%s", err.msg);
}

static const char *gguf_arch(enum qr_arch arch)
{
    static const char *const arch_names[QR_ARCH_COUNT] = {
        [QR_ARCH_LLAMA] = "llama", [QR_ARCH_QWEN3] = "qwen3", [QR_ARCH_PHI3] = "phi3", [QR_ARCH_SMOLLM3] = "smollm3", [QR_ARCH_GRANITE] = "granite",
        [QR_ARCH_GEMMA] = "gemma", [QR_ARCH_GEMMA2] = "gemma2", [QR_ARCH_GEMMA3] = "gemma3", [QR_ARCH_STABLELM] = "stablelm", [QR_ARCH_GPT2] = "gpt2",
        [QR_ARCH_MIXTRAL] = "llama", [QR_ARCH_QWEN2_MOE] = "qwen2moe", [QR_ARCH_QWEN3_MOE] = "qwen3moe",
        [QR_ARCH_OLMO2] = "olmo2", [QR_ARCH_OLMO3] = "olmo2", [QR_ARCH_SEED_OSS] = "seed_oss"};
    cr_assert_not_null(arch_names[arch]);
    return arch_names[arch];
}

/* Keys of the architecture; those whose value is 0 are left out. Returns how many there are; b may be NULL. */
static int32_t put_keys(struct qr_buf *b, const struct pair *p)
{
    const struct qr_model_config *c = &p->c;
    const struct qr_rope_config *r = &c->rope;
    const bool granite = c->arch == QR_ARCH_GRANITE, gpt2 = c->arch == QR_ARCH_GPT2;
    const struct {
        const char *name;
        int32_t value;
    } numbers[] = {{"block_count", c->n_layers}, {"embedding_length", c->n_embd}, {"feed_forward_length", c->n_ffn}, {"context_length", c->ctx_max},
                   {"attention.head_count", c->n_heads}, {"attention.head_count_kv", c->n_kv_heads}, {"attention.key_length", c->head_dim},
                   {"attention.value_length", c->head_dim}, {"rope.dimension_count", gpt2 ? 0 : qr_rope_numbers(r, c->head_dim)},
                   {"attention.sliding_window", c->window}, {"rope.scaling.original_context_length", r->type == QR_ROPE_LONG ? r->original_ctx : 0},
                   {"expert_count", c->moe.n_experts}, {"expert_used_count", c->moe.n_used},
                   {"expert_feed_forward_length", c->arch == QR_ARCH_MIXTRAL ? 0 : c->moe.n_ffn}};
    const struct {
        const char *name;
        float value;
    } reals[] = {{"rope.freq_base", gpt2 ? 0 : (float)r->theta},
                 {c->layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", c->norm_eps},
                 {"attn_logit_softcapping", c->attn_softcap}, {"final_logit_softcapping", c->logits_softcap},
                 {"embedding_scale", granite ? c->embed_scale : 0}, {"residual_scale", granite ? c->residual_scale : 0},
                 {"attention.scale", granite ? c->attn_scale : 0}, {"logit_scale", granite ? c->logits_divisor : 0},
                 {"rope.scaling.factor", r->type == QR_ROPE_LINEAR ? (float)r->factor : 0}, {"rope.freq_base_swa", (float)c->local_theta}};
    char key[96];
    int32_t n = 0;
    for (int i = 0; i < QR_COUNT(numbers); i++)
        if (numbers[i].value != 0 && ++n && b) {
            snprintf(key, sizeof key, "%s.%s", gguf_arch(c->arch), numbers[i].name);
            gguf_key_u32(b, key, (uint32_t)numbers[i].value);
        }
    for (int i = 0; i < QR_COUNT(reals); i++)
        if (reals[i].value != 0 && ++n && b) {
            snprintf(key, sizeof key, "%s.%s", gguf_arch(c->arch), reals[i].name);
            gguf_key_f32(b, key, reals[i].value);
        }
    return n;
}

static void put_metadata(struct qr_buf *b, const struct pair *p, int32_t part, int32_t n_parts, int64_t n_tensors)
{
    gguf_begin(b, 3, (uint64_t)n_tensors, (uint64_t)(1 + put_keys(NULL, p) + 2));
    gguf_key_text(b, "general.architecture", gguf_arch(p->c.arch));
    put_keys(b, p);
    gguf_key_u32(b, "split.count", (uint32_t)n_parts);
    gguf_key_u32(b, "split.no", (uint32_t)part);
}

/* Tensors part, part + n_parts, ... go to that file. */
static void write_gguf(struct pair *p, const char *path, int32_t part, int32_t n_parts)
{
    struct qr_buf b = {0};
    uint64_t at = 0;
    int64_t n = 0;
    const int n_all = p->n + p->n_extra;
    for (int i = part; i < n_all; i += n_parts)
        n += p->t[i].gguf[0] != 0;
    put_metadata(&b, p, part, n_parts, n);
    for (int i = part; i < n_all; i += n_parts) {
        const struct made *t = &p->t[i];
        const bool flat = strstr(t->gguf, "gate_inp_shexp") != NULL; /* one output, of one dimension there */
        const uint64_t dim[3] = {(uint64_t)(t->n_dims == 1 ? t->n_rows : t->n_cols), (uint64_t)t->n_rows, (uint64_t)t->n_stacked};
        if (!t->gguf[0])
            continue;
        gguf_tensor(&b, t->gguf, flat ? 1 : t->n_dims, dim, (uint32_t)t->type, at);
        at += qr_align_up(t->n_bytes, 32);
    }
    for (int i = part; i < n_all; i += n_parts) {
        if (!p->t[i].gguf[0])
            continue;
        gguf_align(&b, 32);
        qr_buf_put(&b, p->t[i].blocks, p->t[i].n_bytes);
    }
    FILE *f = fopen(path, "wb");
    cr_assert(f && fwrite(b.data, 1, b.len, f) == b.len && fclose(f) == 0);
    qr_buf_release(&b);
}

static void pair_finish(struct pair *p, const enum qr_gguf_type *types, int n_types)
{
    make_tensors(p, types, n_types, 1 + (uint64_t)types[0]);
    stack_experts(p);
    if (p->c.rope.type == QR_ROPE_LONG) {
        add_factors(p, "rope_factors_long.weight", p->c.rope.long_factor);
        add_factors(p, "rope_factors_short.weight", p->c.rope.short_factor);
    }
    temp_dir_make(p->dir, "gguf");
    snprintf(p->gguf, sizeof p->gguf, "%s/model.gguf", p->dir);
    write_directory(p);
    write_gguf(p, p->gguf, 0, 1);
}

static void pair_make_of(struct pair *p, enum qr_arch arch, const enum qr_gguf_type *types, int n_types, bool tied)
{
    memset(p, 0, sizeof *p);
    p->c = qr_model_config_small(arch);
    p->c.n_embd = p->c.n_ffn = 256;
    p->c.n_layers = 1;
    p->c.n_heads = 4;
    p->c.n_kv_heads = 2;
    p->c.head_dim = 64;
    p->c.n_vocab = 64;
    p->c.tied_head = tied;
    p->c.moe.n_ffn = p->c.moe.n_experts > 0 ? 256 : 0;
    pair_finish(p, types, n_types);
}

static void pair_make(struct pair *p, enum qr_arch arch, enum qr_gguf_type type, bool tied)
{
    pair_make_of(p, arch, &type, 1, tied);
}

static void pair_release(struct pair *p)
{
    char path[160];
    for (int i = 0; i < p->n + p->n_extra; i++) {
        qr_free(p->t[i].blocks);
        qr_free(p->t[i].value);
    }
    unlink(p->gguf);
    snprintf(path, sizeof path, "%s/config.json", p->dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", p->dir);
    unlink(path);
    cr_assert_eq(rmdir(p->dir), 0);
}

/* Logits of every position of one prompt. */
static float *logits_of(const char *model, enum qr_compute compute, enum qr_quantize quantize, size_t *n)
{
    struct rig r;
    int32_t ids[N_IDS];
    rig_open(&r, model, (struct rig_options){.compute = compute, .quantize = quantize, .n_threads = 2});
    for (int i = 0; i < N_IDS; i++)
        ids[i] = (7 * i + 3) % rig_vocab(&r);
    struct rig_seq s = rig_seq_new(&r, 0, NULL);
    *n = (size_t)N_IDS * (size_t)rig_vocab(&r);
    float *out = rig_prompt(&r, &s, ids, N_IDS, 16);
    rig_seq_free(&s);
    rig_close(&r);
    return out;
}

static void check_same(const char *one, const char *two, enum qr_compute compute, enum qr_quantize quantize, const char *what)
{
    size_t n, m;
    float *a = logits_of(one, compute, quantize, &n), *b = logits_of(two, compute, quantize, &m);
    double sum = 0;
    cr_assert_eq(n, m);
    for (size_t i = 0; i < n; i++)
        sum += fabs((double)a[i]);
    cr_assert(isfinite(sum) && sum > 0, "%s as %d: %g", what, (int)compute, sum);
    cr_assert_eq(memcmp(a, b, n * sizeof *a), 0, "%s", what);
    qr_free(a);
    qr_free(b);
}

Test(gguf_model, every_type_gives_the_logits_of_the_numbers_it_stands_for)
{
    static const enum qr_gguf_type types[] = {QR_GGUF_T_F32,  QR_GGUF_T_F16,  QR_GGUF_T_BF16, QR_GGUF_T_Q4_0, QR_GGUF_T_Q4_1, QR_GGUF_T_Q5_0, QR_GGUF_T_Q5_1,
                                              QR_GGUF_T_Q8_0, QR_GGUF_T_Q2_K, QR_GGUF_T_Q3_K, QR_GGUF_T_Q4_K, QR_GGUF_T_Q5_K, QR_GGUF_T_Q6_K, QR_GGUF_T_IQ4_NL,
                                              QR_GGUF_T_IQ4_XS, QR_GGUF_T_MXFP4};
    for (int i = 0; i < QR_COUNT(types); i++) {
        for (int tied = 0; tied < 2; tied++) {
            struct pair p;
            pair_make(&p, QR_ARCH_LLAMA, types[i], tied != 0);
            check_same(p.gguf, p.dir, tied ? QR_COMPUTE_BF16 : QR_COMPUTE_F32, QR_QUANTIZE_NONE, qr_gguf_layout((uint32_t)types[i])->name);
            pair_release(&p);
        }
    }
}

/* What a model's weights take by plan, which must be what it takes when it is open. */
static int64_t weight_bytes(const char *model, const char *isa, enum qr_compute compute, enum qr_dtype *type)
{
    struct rig r;
    struct qr_model_plan plan;
    struct qr_err err = {0};
    const struct qr_model_options o = {.compute = compute};
    rig_open(&r, model, (struct rig_options){.isa = isa, .compute = compute, .n_threads = 2});
    cr_assert_eq(qr_model_plan(&plan, model, r.be, &o, 8, 8, &err), 0, "%s", err.msg);
    cr_assert_eq((int64_t)(plan.weight_bytes + plan.table_bytes), qr_model_weight_bytes(r.model));
    *type = plan.weight_dtype;
    rig_close(&r);
    return (int64_t)(plan.weight_bytes + plan.table_bytes);
}

/* Logits with a cache of f32. */
static float *uncut_logits(const struct pair *p, enum qr_compute compute)
{
    int32_t ids[N_IDS];
    for (int i = 0; i < N_IDS; i++)
        ids[i] = (7 * i + 3) % p->c.n_vocab;
    return crew_logits(p->gguf, (struct rig_options){.compute = compute, .kv_cache = QR_KV_CACHE_F32, .n_threads = 2}, 1, ids, N_IDS, 16);
}

/* Products by integers, which round no weight and less of x, are nearer to those of f32 than those of bf16 are. */
static void check_nearer(const struct pair *p, const char *what)
{
    const size_t n = (size_t)N_IDS * (size_t)p->c.n_vocab;
    float *a = uncut_logits(p, QR_COMPUTE_AUTO), *b = uncut_logits(p, QR_COMPUTE_BF16), *exact = uncut_logits(p, QR_COMPUTE_F32);
    const double found = furthest(exact, a, n), rounded = furthest(exact, b, n);
    printf("%s: %g from f32, bf16 %g\n", what, found, rounded);
    cr_assert(found <= rounded, "%s: %g from f32, bf16 %g", what, found, rounded);
    qr_free(a);
    qr_free(b);
    qr_free(exact);
}

/* Logits of coded weights: bf16's but where products are by integers. */
static void check_logits(const struct pair *p, const char *what)
{
    struct rig r;
    rig_open(&r, p->gguf, (struct rig_options){0});
    const bool whole = strcmp(r.be->k->name, "avx2") == 0 || strcmp(r.be->k->name, "avx512") == 0;
    rig_close(&r);
    if (whole) {
        check_nearer(p, what);
        return;
    }
    float *a = logits_of(p->gguf, QR_COMPUTE_AUTO, QR_QUANTIZE_NONE, &(size_t){0}), *b = logits_of(p->gguf, QR_COMPUTE_BF16, QR_QUANTIZE_NONE, &(size_t){0});
    cr_assert_eq(memcmp(a, b, (size_t)N_IDS * (size_t)p->c.n_vocab * sizeof *a), 0, "%s: not the bits of bf16", what);
    qr_free(a);
    qr_free(b);
}

static void check_coded(struct pair *p, bool tied, double bits, const char *what)
{
    enum qr_dtype coded, plain;
    const int64_t n = weight_bytes(p->gguf, NULL, QR_COMPUTE_AUTO, &coded), bf16 = weight_bytes(p->gguf, NULL, QR_COMPUTE_BF16, &plain);
    int64_t vectors = 0, numbers = 0;
    for (int i = 0; i < p->n; i++)
        *(p->t[i].n_dims == 1 ? &vectors : &numbers) += p->t[i].n_rows * p->t[i].n_cols;
    cr_assert(coded == QR_CODED && plain == QR_BF16 && bf16 >= 2 * numbers, "%s", what);
    /* a panel's head of 128 bytes is a quarter of a bit of each of its 16 x 256 numbers */
    cr_assert((double)(n - 4 * vectors) * 8 <= (bits + 0.26) * (double)numbers, "%s, tied %d: %.3f bits a weight", what, tied,
              (double)(n - 4 * vectors) * 8 / (double)numbers);
    check_logits(p, what);
}

#if defined(__SANITIZE_ADDRESS__) /* ten times slower: every fourth type */
#define TYPE_STEP 4
#else
#define TYPE_STEP 1
#endif
static const struct {
    enum qr_gguf_type type;
    double bits;
} coded_types[] = {{QR_GGUF_T_Q4_0, 4.5}, {QR_GGUF_T_Q4_1, 5}, {QR_GGUF_T_Q5_0, 5.5}, {QR_GGUF_T_Q5_1, 6}, {QR_GGUF_T_Q8_0, 8.5}, {QR_GGUF_T_Q2_K, 5.125},
                   {QR_GGUF_T_Q3_K, 4.625}, {QR_GGUF_T_Q4_K, 4.625}, {QR_GGUF_T_Q5_K, 5.625}, {QR_GGUF_T_Q6_K, 6.625}, {QR_GGUF_T_IQ4_NL, 4.5},
                   {QR_GGUF_T_IQ4_XS, 4.375}, {QR_GGUF_T_MXFP4, 4.5}};

Test(gguf_model, blocks_stay_what_they_are_in_memory_and_give_the_bits_of_bf16_or_less_of_an_error)
{
    const char *levels[8];
    levels_above_ref(levels);
    for (int i = 0; i < QR_COUNT(coded_types); i += TYPE_STEP) {
        const bool tied = i % 3 == 0;
        struct pair p;
        pair_make(&p, QR_ARCH_LLAMA, coded_types[i].type, tied);
        check_coded(&p, tied, coded_types[i].bits, qr_gguf_layout((uint32_t)coded_types[i].type)->name);
        pair_release(&p);
    }
}

/* Level ref unpacks codes when a model is opened (docs/kernels.md, Coded weights). */
Test(gguf_model, blocks_take_the_memory_of_bf16_and_give_its_bits_at_level_ref)
{
    for (int i = 0; i < QR_COUNT(coded_types); i += TYPE_STEP) {
        const struct rig_options coded = {.isa = "ref"}, plain = {.isa = "ref", .compute = QR_COMPUTE_BF16};
        struct pair p;
        struct qr_rng rng = {.seed = 20261122 + (uint64_t)i};
        enum qr_dtype type;
        pair_make(&p, QR_ARCH_LLAMA, coded_types[i].type, i % 3 == 0);
        cr_expect_eq(weight_bytes(p.gguf, "ref", QR_COMPUTE_AUTO, &type), weight_bytes(p.gguf, "ref", QR_COMPUTE_BF16, &(enum qr_dtype){QR_F32}));
        cr_expect_eq(type, QR_CODED);
        int32_t *ids = random_ids(&rng, N_IDS, p.c.n_vocab);
        float *a = crew_logits(p.gguf, coded, 1, ids, N_IDS, N_IDS), *b = crew_logits(p.gguf, plain, 1, ids, N_IDS, N_IDS);
        cr_expect_eq(memcmp(a, b, (size_t)N_IDS * (size_t)p.c.n_vocab * sizeof *a), 0, "%s", qr_gguf_layout((uint32_t)coded_types[i].type)->name);
        qr_free(ids);
        qr_free(a);
        qr_free(b);
        pair_release(&p);
    }
}

/* Parts of a fused matrix take the types that the file has; where a part is stored as numbers, all take bf16. */
Test(gguf_model, pieces_of_different_types_are_multiplied_each_as_it_is)
{
    static const enum qr_gguf_type k_types[] = {QR_GGUF_T_Q4_K, QR_GGUF_T_Q6_K, QR_GGUF_T_Q5_K, QR_GGUF_T_Q4_K, QR_GGUF_T_IQ4_XS};
    static const enum qr_gguf_type old_types[] = {QR_GGUF_T_Q8_0, QR_GGUF_T_Q4_0, QR_GGUF_T_IQ4_NL, QR_GGUF_T_Q5_1, QR_GGUF_T_Q4_1};
    static const enum qr_gguf_type no_way[] = {QR_GGUF_T_Q4_K, QR_GGUF_T_Q8_0, QR_GGUF_T_BF16, QR_GGUF_T_Q4_0};
    const char *levels[8];
    levels_above_ref(levels);
    struct pair p;
    pair_make_of(&p, QR_ARCH_LLAMA, k_types, QR_COUNT(k_types), false);
    check_coded(&p, false, 6.75, "mixed K types");
    pair_release(&p);
    pair_make_of(&p, QR_ARCH_QWEN3, old_types, QR_COUNT(old_types), true);
    check_coded(&p, true, 8.75, "mixed types of 32");
    pair_release(&p);
    pair_make_of(&p, QR_ARCH_QWEN3_MOE, (const enum qr_gguf_type[]){QR_GGUF_T_Q4_K}, 1, false);
    check_coded(&p, false, 4.625, "experts");
    pair_release(&p);
    pair_make_of(&p, QR_ARCH_LLAMA, no_way, QR_COUNT(no_way), false);
    check_coded(&p, false, 16, "mixed with numbers");
    pair_release(&p);
}

/* Rows that are mixed, types whose units a rank's columns cut (as bf16 there) and such that they do not. Bound: as in test_ranks.c for bf16: against ref, or,
 * where there is but one level beside it or none, what bf16 is from the model with unrounded activations. The last file is computed in f32: with ref alone its
 * bound is that of test_ranks.c for f32. */
Test(gguf_model, a_file_shared_out_to_two_ranks_has_the_logits_of_one_but_for_the_order_of_two_sums)
{
    static const enum qr_gguf_type types[] = {QR_GGUF_T_Q4_0, QR_GGUF_T_Q4_K, QR_GGUF_T_Q8_0, QR_GGUF_T_F16};
    const char *levels[8];
    const int32_t n_levels = qr_cpu_levels(levels);
    for (int i = 0; i < QR_COUNT(types); i++) {
        struct pair p;
        struct qr_rng rng = {.seed = 20261121 + (uint64_t)i};
        pair_make(&p, QR_ARCH_LLAMA, types[i], i % 2 == 0);
        int32_t *ids = random_ids(&rng, N_IDS, p.c.n_vocab);
        const bool in_f32 = types[i] == QR_GGUF_T_F16, few = n_levels <= (in_f32 ? 1 : 2);
        const struct rig_options other = {.isa = few ? NULL : "ref", .compute = few ? QR_COMPUTE_F32 : QR_COMPUTE_AUTO};
        float *ref = crew_logits(p.gguf, other, 1, ids, N_IDS, N_IDS);
        float *one = crew_logits(p.gguf, (struct rig_options){0}, 1, ids, N_IDS, N_IDS), *two = crew_logits(p.gguf, (struct rig_options){0}, 2, ids, N_IDS, 5);
        const size_t n = (size_t)N_IDS * (size_t)p.c.n_vocab;
        float *rounded = few ? crew_logits(p.gguf, (struct rig_options){.compute = QR_COMPUTE_BF16}, 1, ids, N_IDS, N_IDS) : one;
        const double found = furthest(few ? ref : one, two, n), apart = furthest(ref, rounded, n);
        const double moved = few && in_f32 ? order_moves(apart, qr_weights_inputs_max(&p.c)) : apart;
        printf("%s: %g of %g, %g from one rank\n", qr_gguf_layout((uint32_t)types[i])->name, found, moved, furthest(one, two, n));
        cr_expect_leq(found, 2 * moved, "%s: %g of %g", qr_gguf_layout((uint32_t)types[i])->name, found, moved);
        qr_free(ids);
        qr_free(ref);
        if (few)
            qr_free(rounded);
        qr_free(one);
        qr_free(two);
        pair_release(&p);
    }
}

Test(gguf_model, rows_of_qwen_stand_in_their_order_and_quantizing_reads_blocks)
{
    struct pair p;
    pair_make(&p, QR_ARCH_QWEN3, QR_GGUF_T_Q8_0, false);
    check_same(p.gguf, p.dir, QR_COMPUTE_F32, QR_QUANTIZE_NONE, "qwen3");
    check_same(p.gguf, p.dir, QR_COMPUTE_AUTO, QR_QUANTIZE_INT8, "qwen3 as int8");
    pair_release(&p);
}

/* What a family's small configuration has beside what GGUF files of it can say, and layers enough for all kinds of them. */
static void family_make(struct pair *p, enum qr_arch arch, enum qr_gguf_type type)
{
    memset(p, 0, sizeof *p);
    p->c = qr_model_config_small(arch);
    const bool gemma = arch >= QR_ARCH_GEMMA && arch <= QR_ARCH_GEMMA3 && p->c.norm_plus_one, third = arch == QR_ARCH_GEMMA3;
    const bool olmo3 = arch == QR_ARCH_OLMO3;
    p->c.n_layers = third ? 6 : arch == QR_ARCH_SMOLLM3 || olmo3 ? 4 : 2;
    p->c.unwindowed[0] = third ? 1 << 5 : olmo3 ? 1 << 3 : p->c.unwindowed[0];
    p->c.unrotated[0] = arch == QR_ARCH_SMOLLM3 ? 1 << 3 : p->c.unrotated[0];
    p->c.embed_scale = gemma ? 8 : p->c.embed_scale; /* sqrt(64) */
    p->c.logits_divisor = arch == QR_ARCH_GRANITE ? 3 : 0;
    p->c.tied_head = arch != QR_ARCH_PHI3;
    p->c.window = p->c.window ? 6 : 0;
    p->c.moe.n_ffn_shared = arch == QR_ARCH_QWEN2_MOE ? 64 : 0; /* a whole number of blocks */
    p->c.moe.dense[0] = arch == QR_ARCH_QWEN3_MOE ? 1 : 0;
    if (third)
        p->c.rope.type = QR_ROPE_LINEAR, p->c.rope.factor = 8, p->c.rope.theta = 1000;
    if (arch == QR_ARCH_PHI3) {
        p->c.rope.type = QR_ROPE_LONG, p->c.rope.partial = 0.5, p->c.rope.original_ctx = 16, p->c.rope.factor = p->c.ctx_max / 16.0;
        p->c.rope.n_factors = 4;
        for (int i = 0; i < 4; i++)
            p->c.rope.long_factor[i] = 1.5f + 2 * (float)i, p->c.rope.short_factor[i] = 1 + 0.1f * (float)i;
    }
    if (type != QR_GGUF_T_F32)
        p->c.tied_head = false; /* a tied one is quantized from blocks here, from bf16 there */
    pair_finish(p, &type, 1);
}

Test(gguf_model, every_family_gives_the_logits_of_its_safetensors)
{
    static const enum qr_arch archs[] = {QR_ARCH_PHI3,   QR_ARCH_SMOLLM3, QR_ARCH_GRANITE,  QR_ARCH_GEMMA,
                                         QR_ARCH_GEMMA2, QR_ARCH_GEMMA3,  QR_ARCH_STABLELM, QR_ARCH_GPT2,
                                         QR_ARCH_MIXTRAL, QR_ARCH_QWEN2_MOE, QR_ARCH_QWEN3_MOE,
                                         QR_ARCH_OLMO2,  QR_ARCH_OLMO3,   QR_ARCH_SEED_OSS};
    for (int i = 0; i < QR_COUNT(archs); i++) {
        struct pair p;
        struct qr_model_config found;
        struct qr_err err = {0};
        family_make(&p, archs[i], QR_GGUF_T_F32);
        check_same(p.gguf, p.dir, QR_COMPUTE_F32, QR_QUANTIZE_NONE, p.c.arch_name);
        cr_assert_eq(qr_model_config_read(&found, p.gguf, &err), 0, "%s", err.msg);
        cr_expect(found.arch == archs[i], "%s is taken for %s", p.c.arch_name, found.arch_name);
        pair_release(&p);
        family_make(&p, archs[i], QR_GGUF_T_Q8_0);
        check_same(p.gguf, p.dir, QR_COMPUTE_BF16, QR_QUANTIZE_NONE, p.c.arch_name);
        check_same(p.gguf, p.dir, QR_COMPUTE_AUTO, QR_QUANTIZE_INT8, p.c.arch_name);
        pair_release(&p);
    }
}

Test(gguf_model, experts_of_early_files_have_a_tensor_each)
{
    static const char *const which[3] = {"gate", "down", "up"};
    struct pair p;
    family_make(&p, QR_ARCH_MIXTRAL, QR_GGUF_T_Q8_0);
    for (int i = 0; i < p.n; i++) {
        const char *at = strstr(p.t[i].name, ".experts.");
        int layer, expert, w;
        if (at && sscanf(p.t[i].name, "model.layers.%d.", &layer) == 1 && sscanf(at, ".experts.%d.w%d", &expert, &w) == 2)
            snprintf(p.t[i].gguf, sizeof p.t[i].gguf, "blk.%d.ffn_%s.%d.weight", layer, which[w - 1], expert);
    }
    while (p.n_extra > 0)
        qr_free(p.t[p.n + --p.n_extra].blocks);
    write_gguf(&p, p.gguf, 0, 1);
    check_same(p.gguf, p.dir, QR_COMPUTE_BF16, QR_QUANTIZE_NONE, "early experts");
    pair_release(&p);
}

/* How a file with one tensor more is found. */
static int check_with(struct pair *p, const char *name, struct qr_err *err)
{
    struct qr_tensor_files *st;
    struct qr_model_config c;
    struct made *t = &p->t[p->n + p->n_extra++];
    snprintf(t->gguf, sizeof t->gguf, "%s", name);
    t->n_dims = 1, t->n_rows = 4, t->n_cols = 1, t->type = QR_GGUF_T_F32, t->n_bytes = 16;
    t->blocks = qr_alloc(t->n_bytes, 1);
    write_gguf(p, p->gguf, 0, 1);
    *err = (struct qr_err){0};
    cr_assert_eq(qr_model_config_read(&c, p->gguf, err), 0, "%s", err->msg);
    cr_assert_eq(qr_tensor_files_open(&st, p->gguf, NULL, err), 0, "%s", err->msg);
    const int rc = qr_weights_check(st, &c, err);
    qr_tensor_files_close(st);
    qr_free(t->blocks);
    p->n_extra--;
    return rc;
}

Test(gguf_model, a_tensor_that_has_no_place_is_named_and_refused)
{
    static const char *const places[] = {"v.patch_embd.weight", "mm.0.weight", "blk.0.attn_rot_embd.weight"};
    static const char *const none[] = {"output.bias", "blk.0.attn_sinks.weight", "blk.0.attn_q.scale", "blk.0.ffn_gate_exps.scale", "cls.output.weight"};
    struct pair p;
    struct qr_err err;
    pair_make(&p, QR_ARCH_LLAMA, QR_GGUF_T_Q8_0, true);
    for (int i = 0; i < QR_COUNT(places); i++)
        cr_expect_eq(check_with(&p, places[i], &err), 0, "%s: %s", places[i], err.msg);
    for (int i = 0; i < QR_COUNT(none); i++) {
        cr_expect_eq(check_with(&p, none[i], &err), QR_E_UNSUPPORTED, "%s", none[i]);
        cr_expect(strstr(err.msg, none[i]), "\"%s\" does not name %s", err.msg, none[i]);
    }
    pair_release(&p);
}

/* As quire quantize does it, with one layer's matrices rounded as any other's. */
static void write_rounded(char dir[64], const char *model)
{
    struct qr_source *source;
    struct qr_model_config c;
    struct qr_tensor_files *st;
    struct qr_quantize_report report;
    struct qr_err err = {0};
    cr_assert_eq(qr_source_open(&source, model, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_model_config_from(&c, source, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_tensor_files_open_from(&st, source, NULL, &err), 0, "%s", err.msg);
    const bool gguf = qr_source_gguf(source) != NULL;
    if (gguf)
        qr_quantize_fit(&c);
    cr_assert_eq(qr_quantize_admits(&c, gguf ? st : NULL, &err), 0, "%s", err.msg);
    temp_dir_make(dir, "rounded");
    quantized_dir_write(dir, st, &c, &(struct qr_quantize_options){.type = QR_ROUNDING_INT8, .rename = gguf}, &report);
    qr_tensor_files_close(st);
    qr_source_unref(source);
}

Test(gguf_model, gemma_written_rounded_is_its_safetensors_written_rounded)
{
    static const enum qr_arch archs[] = {QR_ARCH_GEMMA, QR_ARCH_GEMMA3}; /* the third has all the norms that the second has, and those of heads */
    for (int i = 0; i < QR_COUNT(archs); i++) {
        struct pair p;
        struct temp_model a, b;
        family_make(&p, archs[i], QR_GGUF_T_F32);
        write_rounded(a.dir, p.dir);
        write_rounded(b.dir, p.gguf);
        check_same(a.dir, b.dir, QR_COMPUTE_AUTO, QR_QUANTIZE_NONE, p.c.arch_name);
        temp_model_remove(&a);
        temp_model_remove(&b);
        pair_release(&p);
    }
}

Test(gguf_model, a_file_in_parts_is_the_whole)
{
    struct pair p;
    char path[2][160];
    struct qr_err err = {0};
    pair_make(&p, QR_ARCH_LLAMA, QR_GGUF_T_Q4_K, true);
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/m-%05d-of-00002.gguf", p.dir, i + 1);
        write_gguf(&p, path[i], i, 2);
    }
    struct qr_tensor_files *st = NULL;
    cr_assert_eq(qr_tensor_files_open(&st, path[1], NULL, &err), QR_E_USAGE);
    cr_assert(st == NULL && strstr(err.msg, "name the first"), "%s", err.msg);
    check_same(path[0], p.gguf, QR_COMPUTE_BF16, QR_QUANTIZE_NONE, "two parts");
    cr_assert_eq(unlink(path[1]), 0);
    cr_assert_eq(qr_tensor_files_open(&st, path[0], NULL, &err), QR_E_NOT_FOUND, "%s", err.msg);
    unlink(path[0]);
    pair_release(&p);
}

Test(gguf_model, check_tells_what_a_file_is_and_what_it_takes)
{
    struct pair p;
    struct qr_buf text = {0};
    struct qr_err err = {0};
    pair_make(&p, QR_ARCH_LLAMA, QR_GGUF_T_Q6_K, true);
    cr_assert_eq(qr_model_check(&text, p.gguf, &(struct qr_check_options){.all = true}, &err), 0, "%s", err.msg);
    cr_assert(strstr(text.data, "LlamaForCausalLM") && strstr(text.data, "Q6_K") && strstr(text.data, "blk.0.attn_q.weight"), "%s", text.data);
    cr_assert(strstr(text.data, "quire runs it") && strstr(text.data, " as coded and "), "%s", text.data);
    qr_buf_release(&text);
    pair_release(&p);
}

Test(gguf_model, the_llama_of_the_conformance_data_has_the_logits_of_its_safetensors)
{
    char path[2][1024];
    snprintf(path[0], sizeof path[0], "%s/models/gguf/stories260K-f32.gguf", data_dir());
    snprintf(path[1], sizeof path[1], "%s/models/stories260K", data_dir());
    check_same(path[0], path[1], QR_COMPUTE_AUTO, QR_QUANTIZE_NONE, "stories260K");
}
