#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "loader/config/hf_config.h"
#include "tests/gguf_make.h"

#define LAYERS 6
#define HALF 4 /* pairs of a head */

/* A file under construction: keys and tensors are counted as they come. */
struct made {
    const char *arch;
    struct qr_buf keys, tensors, data;
    uint64_t n_keys, n_tensors;
};

static const char *name_of(const struct made *m, const char *key)
{
    static char name[96];
    snprintf(name, sizeof name, "%s.%s", m->arch, key);
    return name;
}

static void put_u32(struct made *m, const char *key, uint32_t v)
{
    gguf_key_u32(&m->keys, name_of(m, key), v);
    m->n_keys++;
}

static void put_f32(struct made *m, const char *key, float v)
{
    gguf_key_f32(&m->keys, name_of(m, key), v);
    m->n_keys++;
}

static void put_text(struct made *m, const char *key, const char *v)
{
    gguf_key_text(&m->keys, name_of(m, key), v);
    m->n_keys++;
}

static void put_bool(struct made *m, const char *key, bool v)
{
    gguf_key_bool(&m->keys, name_of(m, key), v);
    m->n_keys++;
}

/* One for each layer. */
static void put_array(struct made *m, const char *key, enum qr_gguf_kind of, const uint32_t v[LAYERS])
{
    gguf_key_array(&m->keys, name_of(m, key), of, LAYERS);
    for (int i = 0; i < LAYERS; i++)
        if (of == QR_GGUF_BOOL)
            qr_buf_put_byte(&m->keys, (char)v[i]);
        else
            gguf_u32(&m->keys, v[i]);
    m->n_keys++;
}

static void put_tensor(struct made *m, const char *name, const float *v, uint64_t n_rows, uint64_t n_cols)
{
    gguf_tensor(&m->tensors, name, n_rows ? 2 : 1, (const uint64_t[]){n_cols, n_rows}, QR_GGUF_T_F32, m->data.len);
    for (uint64_t i = 0; i < (n_rows ? n_rows : 1) * n_cols; i++) {
        const float x = v ? v[i] : 0;
        qr_buf_put(&m->data, &x, sizeof x);
    }
    gguf_align(&m->data, 32);
    m->n_tensors++;
}

static struct made begin_without_epsilon(const char *arch)
{
    struct made m = {.arch = arch};
    gguf_key_text(&m.keys, "general.architecture", arch);
    m.n_keys = 1;
    put_u32(&m, "block_count", LAYERS);
    put_u32(&m, "embedding_length", 16);
    put_u32(&m, "feed_forward_length", 32);
    put_u32(&m, "context_length", 64);
    put_tensor(&m, "token_embd.weight", NULL, 8, 16);
    return m;
}

static struct made begin(const char *arch)
{
    struct made m = begin_without_epsilon(arch);
    put_f32(&m, "attention.layer_norm_rms_epsilon", 1e-6f);
    put_f32(&m, "attention.layer_norm_epsilon", 1e-5f);
    return m;
}

/* Reads it, and takes it apart. */
static int end(struct made *m, struct qr_model_config *c, struct qr_err *err)
{
    struct qr_buf b = {0};
    struct qr_gguf *g;
    gguf_begin(&b, 3, m->n_tensors, m->n_keys);
    qr_buf_put(&b, m->keys.data, m->keys.len);
    qr_buf_put(&b, m->tensors.data, m->tensors.len);
    gguf_align(&b, 32);
    qr_buf_put(&b, m->data.data, m->data.len);
    *err = (struct qr_err){0};
    cr_assert_eq(qr_gguf_open(&g, b.data, b.len, "file", err), 0, "%s", err->msg);
    int rc = qr_gguf_config_read(c, g, "file", err);
    qr_gguf_close(g);
    qr_buf_release(&b);
    qr_buf_release(&m->keys);
    qr_buf_release(&m->tensors);
    qr_buf_release(&m->data);
    return rc;
}

static struct qr_model_config accepts(struct made *m)
{
    struct qr_model_config c;
    struct qr_err err;
    cr_assert_eq(end(m, &c, &err), 0, "%s: %s", m->arch, err.msg);
    return c;
}

static void refuses(struct made *m, int code, const char *says, const char *says_too)
{
    struct qr_model_config c;
    struct qr_err err;
    cr_assert_eq(end(m, &c, &err), code, "%s: %s", m->arch, err.msg);
    cr_expect(strstr(err.msg, says) && strstr(err.msg, says_too), "\"%s\" does not say \"%s\" and \"%s\"", err.msg, says, says_too);
    cr_expect(strncmp(err.msg, "file: ", 6) == 0 && strncmp(err.msg + 6, "file: ", 6) != 0, "the file once: \"%s\"", err.msg);
}

static struct made heads(const char *arch)
{
    struct made m = begin(arch);
    put_u32(&m, "attention.head_count", 2);
    return m;
}

Test(gguf_config, layers_with_a_window_are_counted_out_or_listed)
{
    struct made m = heads("gemma3");
    put_u32(&m, "attention.sliding_window", 9);
    cr_expect_eq(accepts(&m).unwindowed[0], 1 << 5, "every sixth has none");
    m = heads("gemma2");
    struct qr_model_config c = accepts(&m);
    cr_expect(c.window == 4096 && c.unwindowed[0] == (1 << 1 | 1 << 3 | 1 << 5));
    m = heads("gemma3");
    put_u32(&m, "attention.sliding_window", 9);
    put_u32(&m, "attention.sliding_window_pattern", 2);
    cr_expect_eq(accepts(&m).unwindowed[0], 1 << 1 | 1 << 3 | 1 << 5);
    m = heads("gemma3");
    put_u32(&m, "attention.sliding_window", 9);
    put_array(&m, "attention.sliding_window_pattern", QR_GGUF_BOOL, (const uint32_t[]){1, 0, 0, 1, 1, 0});
    cr_expect_eq(accepts(&m).unwindowed[0], 1 << 1 | 1 << 2 | 1 << 5);
    m = heads("gemma3");
    put_u32(&m, "attention.sliding_window", 9);
    put_array(&m, "attention.sliding_window_pattern", QR_GGUF_U32, (const uint32_t[]){1, 0, 0, 1, 1, 0});
    refuses(&m, QR_E_DAMAGED, "gemma3.attention.sliding_window_pattern", "truth value");
}

Test(gguf_config, a_number_may_be_written_for_each_layer_when_all_are_the_same)
{
    struct made m = begin("llama");
    put_array(&m, "attention.head_count", QR_GGUF_U32, (const uint32_t[]){4, 4, 4, 4, 4, 4});
    put_array(&m, "attention.head_count_kv", QR_GGUF_I32, (const uint32_t[]){2, 2, 2, 2, 2, 2});
    struct qr_model_config c = accepts(&m);
    cr_expect(c.n_heads == 4 && c.n_kv_heads == 2 && c.head_dim == 4);
    m = heads("llama");
    put_array(&m, "attention.head_count_kv", QR_GGUF_U32, (const uint32_t[]){2, 2, 2, 1, 2, 2});
    refuses(&m, QR_E_UNSUPPORTED, "llama.attention.head_count_kv differs from layer to layer", "layer 3");
    m = heads("llama");
    put_array(&m, "attention.head_count_kv", QR_GGUF_U32, (const uint32_t[]){2, 2, 0, 2, 2, 2});
    refuses(&m, QR_E_DAMAGED, "llama.attention.head_count_kv", "entry 2 is 0");
    m = heads("llama");
    put_array(&m, "rope.dimension_count", QR_GGUF_U32, (const uint32_t[]){8, 8, 8, 8, 8, 8});
    refuses(&m, QR_E_DAMAGED, "llama.rope.dimension_count", "whole number");
    m = (struct made){.arch = "llama"};
    gguf_key_text(&m.keys, "general.architecture", "llama");
    m.n_keys = 1;
    put_u32(&m, "block_count", LAYERS - 1);
    put_u32(&m, "embedding_length", 16);
    put_array(&m, "feed_forward_length", QR_GGUF_U32, (const uint32_t[]){32, 32, 32, 32, 32, 32});
    refuses(&m, QR_E_DAMAGED, "llama.feed_forward_length has 6 entries", "5 layers");
}

Test(gguf_config, more_heads_than_numbers_are_refused)
{
    struct made m = begin("llama");
    put_u32(&m, "attention.head_count", 17);
    refuses(&m, QR_E_UNSUPPORTED, "llama: keys of 0", "even number");
}

Test(gguf_config, a_file_without_the_norms_epsilon_is_refused_by_its_key)
{
    static const char *const arch[] = {"llama", "gpt2"}, *const key[] = {"attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"};
    for (int i = 0; i < QR_COUNT(arch); i++) {
        struct made m = begin_without_epsilon(arch[i]);
        put_u32(&m, "attention.head_count", 2);
        put_f32(&m, key[1 - i], 1e-6f);
        refuses(&m, QR_E_DAMAGED, key[i], "is missing");
        m = begin_without_epsilon(arch[i]);
        put_u32(&m, "attention.head_count", 2);
        put_text(&m, key[i], "small");
        refuses(&m, QR_E_DAMAGED, "file: byte ", "is of kind string, expected a number");
        m = begin_without_epsilon(arch[i]);
        put_u32(&m, "attention.head_count", 2);
        put_f32(&m, key[i], 1e-3f);
        if (i == 1)
            put_tensor(&m, "position_embd.weight", NULL, 64, 16);
        const struct qr_model_config c = accepts(&m);
        cr_expect_eq(c.norm_eps, 1e-3f);
    }
}

Test(gguf_config, scaling_without_a_type_is_linear_and_with_the_type_none_is_none)
{
    struct made m = heads("llama");
    put_f32(&m, "rope.scaling.factor", 4);
    struct qr_model_config c = accepts(&m);
    cr_expect(c.rope.type == QR_ROPE_LINEAR && c.rope.factor == 4);
    m = heads("llama");
    put_f32(&m, "rope.scale_linear", 2);
    c = accepts(&m);
    cr_expect(c.rope.type == QR_ROPE_LINEAR && c.rope.factor == 2, "the older name");
    m = heads("llama");
    put_f32(&m, "rope.scaling.factor", 4);
    put_text(&m, "rope.scaling.type", "none");
    cr_expect_eq(accepts(&m).rope.type, QR_ROPE_DEFAULT);
    m = heads("llama");
    put_text(&m, "rope.scaling.type", "linear");
    cr_expect_eq(accepts(&m).rope.type, QR_ROPE_DEFAULT, "by 1");
    m = heads("llama");
    put_text(&m, "rope.scaling.type", "stretched");
    put_f32(&m, "rope.scaling.factor", 4);
    refuses(&m, QR_E_UNSUPPORTED, "llama.rope.scaling.type", "stretched");
}

Test(gguf_config, yarn_takes_its_factor_for_attention_from_the_file)
{
    static const struct {
        float whole, more;
        double expected; /* less than 0: what follows from the factor */
    } rows[] = {{0, 0, -1}, {1.3f, 0, 1.3}, {0, 1, -1}, {0, 2, 2 * (1 + 0.1 * 1.3862943611198906)}, {1.3f, 2, 2.6}};
    for (int i = 0; i < QR_COUNT(rows); i++) {
        struct made m = heads("qwen2");
        put_text(&m, "rope.scaling.type", "yarn");
        put_f32(&m, "rope.scaling.factor", 4);
        put_u32(&m, "rope.scaling.original_context_length", 16);
        put_f32(&m, "rope.scaling.yarn_beta_fast", 8);
        if (rows[i].whole > 0)
            put_f32(&m, "rope.scaling.yarn_attn_factor", rows[i].whole);
        if (rows[i].more > 0)
            put_f32(&m, "rope.scaling.attn_factor", rows[i].more);
        const struct qr_model_config c = accepts(&m);
        cr_expect(c.rope.type == QR_ROPE_YARN && c.rope.original_ctx == 16 && c.rope.beta_fast == 8 && c.rope.beta_slow == 1);
        cr_expect_float_eq(c.rope.attn_factor, rows[i].expected, 1e-6, "row %d: %g", i, c.rope.attn_factor);
    }
}

/* For theta 10000 and heads of 8 the lengths of waves are 6.3, 63, 628 and 6283: by 8 at Llama 3's 8192, of the last alone 8192 / 6283 - 1 of 3 parts stay. */
Test(gguf_config, divisors_of_frequencies_are_llama_3s_scaling_or_kept)
{
    const double stays = (8192 / (2 * M_PI * 1000) - 1) / 3;
    const float usual[HALF] = {1, 1, 1, (float)(1 / ((1 - stays) / 8 + stays))}, all[HALF] = {8, 8, 8, 8};
    const float own[HALF] = {1, 1, 2.5f, 4}, bad[HALF] = {1, 1, 0, 4};
    struct made m = heads("llama");
    put_tensor(&m, "rope_freqs.weight", own, 0, HALF);
    struct qr_model_config c = accepts(&m);
    cr_expect(c.rope.type == QR_ROPE_LONG && c.rope.n_factors == HALF && c.rope.attn_factor == 1);
    for (int i = 0; i < HALF; i++)
        cr_expect(c.rope.long_factor[i] == own[i] && c.rope.short_factor[i] == own[i]);
    m = heads("llama");
    put_tensor(&m, "rope_freqs.weight", all, 0, HALF);
    cr_expect_eq(accepts(&m).rope.type, QR_ROPE_LONG);
    m = heads("llama");
    put_tensor(&m, "rope_freqs.weight", usual, 0, HALF);
    cr_expect_eq(accepts(&m).rope.type, QR_ROPE_LONG, "a divisor that is no whole factor gives no Llama 3's");
    m = heads("llama");
    put_f32(&m, "rope.freq_base", 500000);
    const double third = (8192 / (2 * M_PI * 707.1067811865476) - 1) / 3; /* 707 is the root of 500000 */
    put_tensor(&m, "rope_freqs.weight", (const float[HALF]){1, 1, (float)(1 / (third * (1 - 1 / 8.0) + 1 / 8.0)), 8}, 0, HALF);
    c = accepts(&m);
    cr_expect(c.rope.type == QR_ROPE_LLAMA3 && c.rope.factor == 8 && c.rope.original_ctx == 8192);
    m = heads("llama");
    put_tensor(&m, "rope_freqs.weight", bad, 0, HALF);
    refuses(&m, QR_E_DAMAGED, "rope_freqs.weight", "number 2 is 0");
    m = heads("llama");
    put_tensor(&m, "rope_freqs.weight", own, 0, HALF - 1);
    refuses(&m, QR_E_DAMAGED, "rope_freqs.weight", "expected 4 numbers");
    m = heads("llama");
    put_text(&m, "rope.scaling.type", "yarn");
    put_f32(&m, "rope.scaling.factor", 4);
    put_tensor(&m, "rope_freqs.weight", own, 0, HALF);
    refuses(&m, QR_E_UNSUPPORTED, "rope_freqs.weight", "yarn");
}

static struct made experts(const char *arch)
{
    struct made m = heads(arch);
    put_u32(&m, "expert_count", 4);
    put_u32(&m, "expert_used_count", 2);
    put_u32(&m, "expert_feed_forward_length", 8);
    return m;
}

Test(gguf_config, weights_of_experts_are_made_as_the_file_says_or_not_at_all)
{
    struct made m = experts("qwen2moe");
    cr_expect(!accepts(&m).moe.normalize);
    m = experts("qwen3moe");
    cr_expect(accepts(&m).moe.normalize);
    m = experts("qwen2moe");
    put_bool(&m, "expert_weights_norm", true);
    put_f32(&m, "expert_weights_scale", 1);
    put_u32(&m, "expert_gating_func", 1);
    cr_expect(accepts(&m).moe.normalize);
    m = experts("qwen3moe");
    put_u32(&m, "expert_gating_func", 2);
    refuses(&m, QR_E_UNSUPPORTED, "function 2", "softmax");
    m = experts("llama");
    put_f32(&m, "expert_weights_scale", 2.5f);
    refuses(&m, QR_E_UNSUPPORTED, "multiplied by 2.5", "expected");
    m = experts("qwen3moe");
    put_u32(&m, "expert_group_count", 4);
    refuses(&m, QR_E_UNSUPPORTED, "in 4 groups", "expected");
}

Test(gguf_config, texts_end_at_the_tokens_of_that_name_and_llamas_ids_are_known_where_a_file_is_silent)
{
    static const char *const tokens[8] = {"a", "b", "c", "<end_of_turn>", "<|im_end|>", "e", "<|eot_id|>", "f"};
    static const int32_t types[8] = {3, 3, 3, 3, 1, 1, 3, 1}; /* the name of an ordinary token says nothing */
    struct made m = heads("llama");
    gguf_key_text(&m.keys, "tokenizer.ggml.model", "llama");
    gguf_key_array(&m.keys, "tokenizer.ggml.tokens", QR_GGUF_STRING, 8);
    for (int i = 0; i < 8; i++)
        gguf_text(&m.keys, tokens[i]);
    gguf_key_array(&m.keys, "tokenizer.ggml.token_type", QR_GGUF_I32, 8);
    qr_buf_put(&m.keys, types, sizeof types);
    m.n_keys += 3;
    struct qr_model_config c = accepts(&m);
    cr_expect_eq(c.bos_id, 1);
    cr_expect(c.n_eos == 3 && c.eos_ids[0] == 2 && c.eos_ids[1] == 3 && c.eos_ids[2] == 6, "%d: %d %d %d", c.n_eos, c.eos_ids[0], c.eos_ids[1], c.eos_ids[2]);
    m = heads("llama");
    gguf_key_text(&m.keys, "tokenizer.ggml.model", "gpt2");
    m.n_keys++;
    c = accepts(&m);
    cr_expect(c.bos_id == -1 && c.n_eos == 0);
}

Test(gguf_config, stablelm_is_parallel_where_a_norm_is_missing_whatever_the_key_says)
{
    struct made m = heads("stablelm");
    put_bool(&m, "use_parallel_residual", true);
    put_tensor(&m, "blk.0.ffn_norm.weight", NULL, 0, 16);
    cr_expect(accepts(&m).layer_norm);
    m = heads("stablelm");
    put_bool(&m, "use_parallel_residual", false);
    refuses(&m, QR_E_UNSUPPORTED, "stablelm", "parallel residuals");
}

Test(gguf_config, an_architecture_that_is_not_computed_is_named)
{
    static const char *const others[] = {"llama4", "mistral3", "granitemoe", "gemma3n", "gemma4", "qwen3next",
                                         "deepseek2", "grok", "mamba", "t5", "clip", "bert"};
    for (int i = 0; i < QR_COUNT(others); i++) {
        char quoted[32];
        struct made m = heads(others[i]);
        snprintf(quoted, sizeof quoted, "\"%s\"", others[i]);
        refuses(&m, QR_E_UNSUPPORTED, quoted, "qwen3moe");
    }
}
