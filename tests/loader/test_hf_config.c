#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "loader/config/hf_config.h"
#include "loader/write/make_model.h"

/* A config.json of the required fields, with `more` appended; an architecture's class name or NULL for Llama. */
static int parse(struct qr_model_config *c, const char *arch, const char *more, const char *generation, struct qr_err *err)
{
    struct qr_buf b = {0};
    qr_buf_printf(&b, "{\"architectures\":[\"%s\"]", arch ? arch : "LlamaForCausalLM");
    static const char *const required[] = {"num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"};
    static const int value[] = {4, 64, 8, 128, 1000};
    for (int i = 0; i < QR_COUNT(required); i++)
        if (!strstr(more, required[i]))
            qr_buf_printf(&b, ",\"%s\":%d", required[i], value[i]);
    qr_buf_printf(&b, "%s%s}", *more ? "," : "", more);
    int rc = qr_hf_config_parse(c, b.data, b.len, generation, generation ? strlen(generation) : 0, err);
    qr_buf_release(&b);
    return rc;
}

static void refuses(const char *arch, const char *more, const char *says, const char *says_too)
{
    struct qr_model_config c;
    struct qr_err err = {0};
    int rc = parse(&c, arch, more, NULL, &err);
    cr_expect_lt(rc, 0, "%s is accepted", more);
    cr_expect(rc == 0 || (strstr(err.msg, says) && strstr(err.msg, says_too) && strstr(err.msg, "config.json")),
              "%s: \"%s\" does not say \"%s\" and \"%s\"", more, err.msg, says, says_too);
}

static struct qr_model_config accepts(const char *arch, const char *more)
{
    struct qr_model_config c = {0};
    struct qr_err err = {0};
    cr_assert_eq(parse(&c, arch, more, NULL, &err), 0, "%s: %s", more, err.msg);
    return c;
}

Test(hf_config, silent_fields_get_the_defaults_of_the_architecture)
{
    struct qr_model_config c = accepts(NULL, "");
    cr_expect_eq(c.n_kv_heads, 8);
    cr_expect_eq(c.head_dim, 8);
    cr_expect_eq(c.ctx_max, 2048);
    cr_expect_eq(c.window, 0);
    cr_expect_float_eq(c.norm_eps, 1e-6f, 1e-12f);
    cr_expect(!c.tied_head && !c.qkv_bias && !c.out_bias && !c.mlp_bias && !c.qk_norm);
    cr_expect_eq(c.rope.type, QR_ROPE_DEFAULT);
    cr_expect_eq(c.rope.theta, 10000);
    cr_expect_eq(c.stored, QR_F32);
    cr_expect_eq(c.bos_id, -1);
    cr_expect_eq(c.n_eos, 0);
    for (enum qr_sampling_param i = 0; i < QR_P_N; i++)
        cr_expect_not(c.gen[i].given, "%s", qr_sampling_row[i].key);
    c = accepts("MistralForCausalLM", "\"num_key_value_heads\":2");
    cr_expect_eq(c.window, 4096);
    cr_expect_eq(c.window_first_layer, 0);
    cr_expect_eq(c.ctx_max, 131072);
    c = accepts("MistralForCausalLM", "\"num_key_value_heads\":null,\"sliding_window\":null");
    cr_expect_eq(c.window, 0);
    cr_expect_eq(c.n_kv_heads, 8);
    c = accepts("Qwen2ForCausalLM", "\"num_key_value_heads\":2");
    cr_expect(c.qkv_bias && !c.out_bias && !c.qk_norm && c.window == 0 && c.ctx_max == 32768);
    c = accepts("Qwen3ForCausalLM", "\"num_key_value_heads\":2");
    cr_expect(!c.qkv_bias && c.qk_norm && c.head_dim == 128);
    c = accepts("Qwen3ForCausalLM", "\"num_key_value_heads\":2,\"attention_bias\":true");
    cr_expect(c.qkv_bias && c.out_bias);
    c = accepts("GraniteForCausalLM", "");
    cr_expect(c.embed_scale == 1 && c.residual_scale == 1 && c.attn_scale == 1 && c.logits_divisor == 1);
    refuses("GraniteForCausalLM", "\"residual_multiplier\":0", "residual_multiplier is 0", "0.0001");
    refuses("GraniteForCausalLM", "\"logits_scaling\":-8", "logits_scaling is -8", "0.0001");
    c = accepts("MixtralForCausalLM", "");
    cr_expect(c.moe.n_experts == 8 && c.moe.n_used == 2 && c.moe.n_ffn == 128 && c.moe.n_ffn_shared == 0 && c.moe.normalize && c.window == 0);
    cr_expect(qr_layer_has_experts(&c, 0) && qr_layer_has_experts(&c, 3) && c.rope.theta == 1e6 && c.ctx_max == 131072);
    c = accepts("Qwen2MoeForCausalLM", "\"num_key_value_heads\":2,\"decoder_sparse_step\":2,\"mlp_only_layers\":[1]");
    cr_expect(c.moe.n_experts == 60 && c.moe.n_used == 4 && c.moe.n_ffn == 1408 && c.moe.n_ffn_shared == 5632 && !c.moe.normalize && c.qkv_bias);
    cr_expect(!qr_layer_has_experts(&c, 0) && !qr_layer_has_experts(&c, 1) && !qr_layer_has_experts(&c, 2) && qr_layer_has_experts(&c, 3));
    c = accepts("Qwen3MoeForCausalLM", "\"num_local_experts\":16,\"norm_topk_prob\":true,\"use_sliding_window\":true");
    cr_expect(c.moe.n_experts == 16 && c.moe.n_used == 8 && c.moe.n_ffn == 768 && c.moe.normalize && c.qk_norm && !c.qkv_bias);
    cr_expect(c.window == 4096 && c.window_first_layer == 0);
    refuses("MixtralForCausalLM", "\"num_experts_per_tok\":9", "num_experts_per_tok is 9", "1 to 8");
    refuses("MixtralForCausalLM", "\"num_local_experts\":1", "num_experts_per_tok", "2 is more than num_local_experts 1");
    refuses("Qwen3MoeForCausalLM", "\"mlp_only_layers\":[4]", "mlp_only_layers is 4", "layers from 0 to 3");
    refuses("Qwen2MoeForCausalLM", "\"num_key_value_heads\":2,\"use_sliding_window\":true", "use_sliding_window is true", "layer_types");
    c = accepts("GemmaForCausalLM", "\"num_key_value_heads\":2,\"hidden_act\":\"gelu\",\"hidden_size\":3072,\"torch_dtype\":\"bfloat16\"");
    cr_expect(c.act == QR_ACT_GELU_TANH && c.norm_plus_one && c.tied_head && c.head_dim == 256 && c.embed_scale == 55.5f);
    refuses("GemmaForCausalLM", "\"num_key_value_heads\":2,\"hidden_act\":\"silu\"", "hidden_act is \"silu\"", "gelu_pytorch_tanh");
    refuses("GemmaForCausalLM", "\"num_key_value_heads\":2,\"use_bidirectional_attention\":true", "use_bidirectional_attention is true", "false");
    c = accepts(NULL, "\"attention_bias\":true,\"mlp_bias\":true,\"tie_word_embeddings\":true");
    cr_expect(c.qkv_bias && c.out_bias && c.mlp_bias && c.tied_head);
}

static void round_trip(const struct qr_model_config *c)
{
    struct qr_model_config back;
    struct qr_err err = {0};
    struct qr_buf a = {0}, b = {0};
    qr_hf_config_write(&a, c);
    cr_assert_eq(qr_hf_config_parse(&back, a.data, a.len, NULL, 0, &err), 0, "%s: %s", err.msg, a.data);
    qr_hf_config_write(&b, &back);
    cr_expect_str_eq(a.data, b.data);
    cr_expect_eq(back.norm_eps, c->norm_eps);
    cr_expect_eq(back.qkv_bias, c->qkv_bias);
    cr_expect_eq(back.qk_norm, c->qk_norm);
    cr_expect_eq(back.qk_norm_rows, c->qk_norm_rows);
    cr_expect_eq(back.unwindowed[0], c->unwindowed[0]);
    cr_expect_eq(memcmp(&back.moe, &c->moe, sizeof c->moe), 0, "%s", a.data);
    cr_expect_eq(back.window, c->window);
    cr_expect(c->embed_scale == 0 || (back.embed_scale == c->embed_scale && back.residual_scale == c->residual_scale));
    cr_expect(back.attn_softcap == c->attn_softcap && back.logits_softcap == c->logits_softcap && back.local_theta == c->local_theta);
    cr_expect(back.layer_norm == c->layer_norm && back.post_norms == c->post_norms && back.ungated == c->ungated && back.transposed == c->transposed);
    cr_expect_eq(back.n_positions, c->n_positions);
    cr_expect(c->embed_scale == 0 || (back.attn_scale == c->attn_scale && back.logits_divisor == c->logits_divisor));
    qr_buf_release(&a);
    qr_buf_release(&b);
}

#define PHI3 "{\"model_type\":\"phi3\",\"hidden_size\":64,\"intermediate_size\":128,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":512"

/* What of a Phi-3's config.json with `more` becomes of it when the model is written in bf16. */
static void keeps(const char *more, const char *with)
{
    struct qr_model_config c, back;
    struct qr_err err = {0};
    struct qr_buf source = {0}, kept = {0};
    qr_buf_printf(&source, PHI3 "%s}", more);
    cr_assert_eq(qr_hf_config_parse(&c, source.data, source.len, "{\"eos_token_id\":[2,7]}", 22, &err), 0, "%s: %s", more, err.msg);
    c.stored = QR_BF16;
    cr_assert_eq(qr_hf_config_write_kept(&kept, &c, source.data, &err), 0, "%s", err.msg);
    cr_expect_not_null(strstr(kept.data, with), "%s becomes %s", more, kept.data);
    cr_assert_eq(qr_hf_config_parse(&back, kept.data, kept.len, NULL, 0, &err), 0, "%s: %s", err.msg, kept.data);
    cr_expect(back.stored == QR_BF16 && back.n_eos == 2 && back.eos_ids[1] == 7 && back.bos_id == c.bos_id && strstr(kept.data, "quantiz") == NULL);
    qr_buf_release(&source);
    qr_buf_release(&kept);
}

Test(hf_config, a_written_one_keeps_the_words_of_the_file_that_the_model_came_from)
{
    keeps(",\"attention_dropout\":0.10,\"mine\":{\"a\":[1,null]}", "\"attention_dropout\": 0.10,\n  \"mine\": {\"a\":[1,null]}");
    keeps(",\"rope_parameters\":{\"rope_theta\":500000.0,\"rope_type\":\"default\"}", "\"rope_parameters\": {\"rope_theta\":500000.0,");
    keeps(",\"torch_dtype\":\"float32\",\"quantization_config\":{\"quant_method\":\"fp8\"}", "\"torch_dtype\": \"bfloat16\"");
    keeps(",\"dtype\":\"float32\",\"auto_map\":{}", "\"dtype\": \"bfloat16\",\n  \"tie_word_embeddings\"");
    keeps(",\"eos_token_id\":2", "\"eos_token_id\": [2,7]");
    keeps(",\"eos_token_id\":[2, 7]", "\"eos_token_id\": [2,7]");
    keeps(",\"bos_token_id\":3", "\"bos_token_id\": 3");
    keeps(",\"pad_token_id\":511", "\"pad_token_id\": 511");
    keeps(",\"pad_token_id\":32000", "\"pad_token_id\": null");
    keeps("", "\"pad_token_id\": null"); /* transformers' class would say 32000 */
}

Test(hf_config, windows_follow_switch_first_layer_and_layer_types)
{
    struct qr_model_config c = accepts("Qwen2ForCausalLM", "\"num_key_value_heads\":2,\"sliding_window\":99,\"max_window_layers\":2");
    cr_expect_eq(c.window, 0);
    c = accepts("Qwen2MoeForCausalLM", "\"num_key_value_heads\":2,\"use_sliding_window\":false,\"sliding_window\":0");
    cr_expect_eq(c.window, 0);
    refuses("Qwen2ForCausalLM", "\"num_key_value_heads\":2,\"use_sliding_window\":true,\"sliding_window\":0", "sliding_window is 0", "from 1");
    c = accepts("Qwen2ForCausalLM", "\"num_key_value_heads\":2,\"use_sliding_window\":true,\"sliding_window\":99,\"max_window_layers\":2");
    cr_expect(c.window == 99 && c.window_first_layer == 2);
    c = accepts("Qwen2ForCausalLM", "\"num_key_value_heads\":2,\"use_sliding_window\":true,\"sliding_window\":99,\"max_window_layers\":4");
    cr_expect_eq(c.window, 0);
    c = accepts("SmolLM3ForCausalLM", "\"num_key_value_heads\":2,\"use_sliding_window\":true,\"sliding_window\":6,\"no_rope_layers\":[1,0,1,0]");
    cr_expect(c.window == 6 && c.unwindowed[0] == 5 && c.unrotated[0] == 10);
    c = accepts("SmolLM3ForCausalLM", "\"num_key_value_heads\":2,\"use_sliding_window\":true,\"sliding_window\":6,\"layer_types\":"
                "[\"sliding_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]");
    cr_expect(c.window == 6 && c.unwindowed[0] == 14);
    c = accepts("SmolLM3ForCausalLM", "\"num_key_value_heads\":2,\"use_sliding_window\":false,\"sliding_window\":6");
    cr_expect_eq(c.window, 0);
    c = accepts("Qwen3ForCausalLM", "\"num_key_value_heads\":2,\"use_sliding_window\":true,\"sliding_window\":99,\"max_window_layers\":0,"
                "\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\",\"sliding_attention\"]");
    cr_expect(c.window == 99 && c.window_first_layer == 3);
    refuses("Qwen2ForCausalLM", "\"num_key_value_heads\":2,\"layer_types\":[\"full_attention\"]", "layer_types has 1", "4");
    refuses("Qwen2ForCausalLM", "\"num_key_value_heads\":2,\"layer_types\":[\"linear_attention\"]", "layer_types[0]", "linear_attention");
    refuses("Qwen2ForCausalLM", "\"num_key_value_heads\":2,\"layer_types\":[\"sliding_attention\"]", "layer_types[0]", "sliding_window");
    c = accepts("Qwen2ForCausalLM", "\"num_key_value_heads\":2,\"use_sliding_window\":true,\"max_window_layers\":0,\"layer_types\":"
                "[\"full_attention\",\"sliding_attention\",\"full_attention\",\"sliding_attention\"]");
    cr_expect(c.window == 4096 && c.window_first_layer == 1 && c.unwindowed[0] == 4);
    refuses("MistralForCausalLM", "\"num_key_value_heads\":2,\"sliding_window\":0", "sliding_window is 0", "1 to");
    static const char *const mistrals[] = {"MistralForCausalLM", "MinistralForCausalLM"}; /* which transformers takes for one another by this list */
    for (int i = 0; i < 2; i++) {
        c = accepts(mistrals[i], "\"num_key_value_heads\":2,\"sliding_window\":9,\"layer_types\":"
                    "[\"full_attention\",\"sliding_attention\",\"sliding_attention\",\"full_attention\"]");
        cr_expect(c.arch == QR_ARCH_MISTRAL && c.window == 9 && qr_layer_window(&c, 0) == 0 && qr_layer_window(&c, 1) == 9 && qr_layer_window(&c, 3) == 0);
        round_trip(&c);
        c = accepts(mistrals[i], "\"num_key_value_heads\":2,\"sliding_window\":9,\"layer_types\":"
                    "[\"full_attention\",\"sliding_attention\",\"sliding_attention\",\"sliding_attention\"]");
        cr_expect(c.window_first_layer == 1 && c.unwindowed[0] == 0);
        round_trip(&c);
    }
    refuses("MistralForCausalLM", "\"num_key_value_heads\":2,\"layer_types\":[\"chunked_attention\"]", "layer_types[0]", "chunked_attention");
}

/* What changes the rotation is not passed over because it stands in another place. */
Test(hf_config, rotary_fields_count_where_transformers_looks_for_them)
{
    static const char yarn[] = "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0%s},\"rope_parameters\":{\"rope_type\":\"%s\"%s}";
    char text[400];
    snprintf(text, sizeof text, yarn, "", "default", ",\"rope_theta\":1e6"); /* a saved file, to which the line from a model card was added */
    refuses(NULL, text, "rope_parameters and rope_scaling", "differ");
    snprintf(text, sizeof text, yarn, "", "yarn", ",\"factor\":4");
    cr_expect(accepts(NULL, text).rope.type == QR_ROPE_YARN);
    struct qr_model_config c = accepts(NULL, "\"rope_scaling\":{},\"rope_parameters\":{\"rope_theta\":5e5}");
    cr_expect_eq(c.rope.theta, 5e5);
    c = accepts(NULL, "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2,\"original_max_position_embeddings\":1024},\"max_position_embeddings\":4096");
    cr_expect_eq(c.rope.original_ctx, 4096);
    c = accepts(NULL, "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4},\"original_max_position_embeddings\":512");
    cr_expect_eq(c.rope.original_ctx, 512);
    c = accepts(NULL, "\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4},"
                "\"original_max_position_embeddings\":512");
    cr_expect_eq(c.rope.original_ctx, 512);
    static const char phi[] = "\"num_key_value_heads\":8,\"max_position_embeddings\":131072,\"rope_scaling\":{\"type\":\"longrope\","
                              "\"short_factor\":[1,1,1,1],\"long_factor\":[2,2,2,2]}";
    c = accepts("Phi3ForCausalLM", phi);
    cr_expect(c.rope.original_ctx == 4096 && c.rope.factor == 32);
}

Test(hf_config, a_type_that_the_whole_file_names_is_that_of_its_text_part)
{
    static const char gemma[] = "\"text_config\":{\"num_hidden_layers\":4,\"hidden_size\":2560,\"intermediate_size\":128,\"head_dim\":16%s},"
                                "\"torch_dtype\":\"bfloat16\"";
    char text[300];
    snprintf(text, sizeof text, gemma, "");
    struct qr_model_config c = accepts("Gemma3ForConditionalGeneration", text);
    cr_expect(c.stored == QR_BF16 && c.embed_scale == 50.5f, "%g", (double)c.embed_scale);
    snprintf(text, sizeof text, gemma, ",\"dtype\":\"float32\"");
    cr_expect_eq(accepts("Gemma3ForConditionalGeneration", text).stored, QR_F32);
}

Test(hf_config, rotary_scaling_is_read_in_its_old_and_new_forms)
{
    struct qr_model_config c = accepts(NULL, "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0},\"max_position_embeddings\":100");
    cr_expect(c.rope.type == QR_ROPE_LINEAR && c.rope.factor == 4);
    cr_expect_eq(qr_model_ctx_limit(&c), 400);
    c = accepts(NULL, "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":500000.0}");
    cr_expect(c.rope.type == QR_ROPE_DEFAULT && c.rope.theta == 500000);
    c = accepts(NULL, "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
                "\"original_max_position_embeddings\":256},\"rope_theta\":5e5,\"max_position_embeddings\":2048");
    cr_expect(c.rope.type == QR_ROPE_LLAMA3 && c.rope.original_ctx == 256 && c.rope.high_freq_factor == 4);
    cr_expect_eq(qr_model_ctx_limit(&c), 2048);
    c = accepts(NULL, "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":32768,\"mscale\":1,"
                "\"mscale_all_dim\":0.5,\"truncate\":false,\"attention_factor\":1.5},\"max_position_embeddings\":32768");
    cr_expect(c.rope.type == QR_ROPE_YARN && !c.rope.truncate && c.rope.attn_factor == 1.5 && c.rope.mscale_all_dim == 0.5);
    cr_expect_eq(qr_model_ctx_limit(&c), 131072);
    c = accepts(NULL, "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2},\"max_position_embeddings\":4096");
    cr_expect(c.rope.type == QR_ROPE_DYNAMIC && c.rope.original_ctx == 4096);
    refuses(NULL, "\"rope_scaling\":{\"type\":\"longrope\",\"factor\":4}", "rope_scaling.short_factor is missing", "a list of numbers");
    refuses(NULL, "\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1],\"long_factor\":[0]}", "rope_scaling.long_factor[0]", "above 0");
    refuses(NULL, "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1,2]}", "short_factor has 1", "long_factor 2");
    refuses(NULL, "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1]}", "long_factor has 1 numbers", "one for each of");
    refuses(NULL, "\"rope_scaling\":{\"type\":\"polar\",\"factor\":4}", "rope_scaling.rope_type", "polar");
    refuses(NULL, "\"rope_scaling\":{\"type\":\"linear\"}", "rope_scaling.factor", "missing");
    refuses(NULL, "\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}", "rope_scaling.factor is 0", "0.001");
    refuses(NULL, "\"rope_scaling\":{\"type\":\"linear\",\"factor\":-2}", "rope_scaling.factor is -2", "from");
    refuses(NULL, "\"rope_scaling\":[]", "rope_scaling is []", "an object");
    refuses(NULL, "\"rope_scaling\":{\"rope_type\":7}", "rope_type is 7", "a string");
    refuses(NULL, "\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":4,"
            "\"original_max_position_embeddings\":256}", "high_freq_factor is 4", "more than");
    refuses(NULL, "\"rope_parameters\":{\"full_attention\":{}}", "rope_parameters", "layer types");
    refuses(NULL, "\"rope_parameters\":{\"partial_rotary_factor\":0.5}", "partial_rotary_factor is 0.5", "expected 1");
    refuses(NULL, "\"rope_theta\":0", "rope_theta is 0", "from 2");
}

/* Every numeric field just inside and just outside of its bounds, and of every wrong type. */
Test(hf_config, every_number_is_bounded_and_the_message_names_value_and_bound)
{
    static const struct {
        const char *key;
        long long min, max;
        const char *with; /* what must change for the maximum to be consistent */
    } field[] = {
        {"num_hidden_layers", 1, 1024, ""},
        {"hidden_size", 1, 262144, ",\"head_dim\":16"},
        {"num_attention_heads", 1, 1024, ",\"head_dim\":16"},
        {"intermediate_size", 1, 4194304, ""},
        {"vocab_size", 1, 4194304, ""},
        {"max_position_embeddings", 1, 134217728, ""},
        {"head_dim", 2, 1024, ""},
        {"num_key_value_heads", 1, 8, ""},
        {"bos_token_id", 0, 999, ""},
        {"eos_token_id", 0, 999, ""},
    };
    static const char *const wrong[] = {"\"4\"", "true", "[[]]", "{}", "1.5", "1e300", "-1", "9223372036854775808", "4294967297"};
    for (int i = 0; i < QR_COUNT(field); i++) {
        char more[200], value[40];
        snprintf(more, sizeof more, "\"%s\":%lld%s", field[i].key, field[i].min, field[i].with);
        accepts(NULL, more);
        snprintf(more, sizeof more, "\"%s\":%lld%s", field[i].key, field[i].max, field[i].with);
        accepts(NULL, more);
        snprintf(value, sizeof value, "%s is %lld,", field[i].key, field[i].min - 1);
        snprintf(more, sizeof more, "\"%s\":%lld%s", field[i].key, field[i].min - 1, field[i].with);
        refuses(NULL, more, value, "expected");
        snprintf(value, sizeof value, "%s is %lld,", field[i].key, field[i].max + 1);
        snprintf(more, sizeof more, "\"%s\":%lld%s", field[i].key, field[i].max + 1, field[i].with);
        refuses(NULL, more, value, "expected");
        for (int j = 0; j < QR_COUNT(wrong); j++) {
            snprintf(more, sizeof more, "\"%s\":%s%s", field[i].key, wrong[j], field[i].with);
            refuses(NULL, more, field[i].key, "expected");
        }
    }
    refuses(NULL, "\"rms_norm_eps\":0", "rms_norm_eps is 0", "1e-12");
    refuses(NULL, "\"rms_norm_eps\":-1e-5", "rms_norm_eps is -1e-5", "1e-12");
    refuses(NULL, "\"rms_norm_eps\":\"1e-5\"", "rms_norm_eps", "a number");
    refuses(NULL, "\"tie_word_embeddings\":1", "tie_word_embeddings is 1", "true or false");
}

Test(hf_config, required_fields_are_named_when_they_are_missing)
{
    static const char *const required[] = {"num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"};
    for (int i = 0; i < QR_COUNT(required); i++) {
        char more[100], says[100];
        snprintf(more, sizeof more, "\"%s\":null", required[i]);
        snprintf(says, sizeof says, "%s is missing", required[i]);
        refuses(NULL, more, says, "config.json");
    }
}

Test(hf_config, what_nothing_here_computes_is_refused_by_name)
{
    refuses("GPTNeoXForCausalLM", "", "architectures[0] is \"GPTNeoXForCausalLM\"",
            "LlamaForCausalLM, MistralForCausalLM, MinistralForCausalLM, Qwen2ForCausalLM");
    refuses(NULL, "\"hidden_act\":\"gelu\"", "hidden_act is \"gelu\"", "silu");
    refuses(NULL, "\"quantization_config\":{\"quant_method\":\"bitsandbytes\"}", "quantization_config.quant_method is \"bitsandbytes\"", "expected GPTQ");
    refuses(NULL, "\"quantization_config\":{}", "quantization_config", "unnamed");
    refuses(NULL, "\"partial_rotary_factor\":0.25", "partial_rotary_factor is 0.25", "expected 1");
    refuses(NULL, "\"torch_dtype\":\"float8_e4m3fn\"", "torch_dtype is \"float8_e4m3fn\"", "bfloat16");
    refuses(NULL, "\"num_key_value_heads\":3", "num_key_value_heads is 3", "divisor of num_attention_heads 8");
    refuses(NULL, "\"hidden_size\":100", "hidden_size 100", "num_attention_heads 8");
    refuses(NULL, "\"head_dim\":9", "head_dim is 9", "even");
    refuses(NULL, "\"eos_token_id\":[1,2,3,4,5,6,7,8,9]", "9 entries", "at most 8");
    accepts(NULL, "\"auto_map\":{\"AutoModel\":\"evil.Model\"},\"partial_rotary_factor\":1.0,\"hidden_act\":\"swish\"");
}

Test(hf_config, model_type_stands_in_for_missing_architectures)
{
    struct qr_model_config c;
    struct qr_err err = {0};
    const char *rest = "\"num_hidden_layers\":1,\"hidden_size\":8,\"num_attention_heads\":1,\"intermediate_size\":8,\"vocab_size\":8}";
    char text[300];
    snprintf(text, sizeof text, "{\"model_type\":\"mistral\",\"num_key_value_heads\":1,%s", rest);
    cr_assert_eq(qr_hf_config_parse(&c, text, strlen(text), NULL, 0, &err), 0, "%s", err.msg);
    cr_expect_eq(c.arch, QR_ARCH_MISTRAL);
    snprintf(text, sizeof text, "{%s", rest);
    cr_expect_lt(qr_hf_config_parse(&c, text, strlen(text), NULL, 0, &err), 0);
    cr_expect(strstr(err.msg, "model_type is missing"), "%s", err.msg);
    snprintf(text, sizeof text, "{\"architectures\":[],%s", rest);
    cr_expect_lt(qr_hf_config_parse(&c, text, strlen(text), NULL, 0, &err), 0);
    snprintf(text, sizeof text, "{\"architectures\":\"LlamaForCausalLM\",%s", rest);
    cr_expect_lt(qr_hf_config_parse(&c, text, strlen(text), NULL, 0, &err), 0);
}

Test(hf_config, generation_config_overrides_end_ids_and_gives_defaults)
{
    struct qr_model_config c;
    struct qr_err err = {0};
    cr_assert_eq(parse(&c, NULL, "\"eos_token_id\":2,\"bos_token_id\":1",
                       "{\"eos_token_id\":[5,6],\"temperature\":0.6,\"top_p\":0.9,\"top_k\":20,\"min_p\":0.1,\"repetition_penalty\":1.05}", &err), 0);
    cr_expect(c.n_eos == 2 && c.eos_ids[0] == 5 && c.eos_ids[1] == 6 && c.bos_id == 1);
    static const struct { enum qr_sampling_param p; double value; } want[] = {{QR_P_temperature, 0.6}, {QR_P_top_p, 0.9}, {QR_P_min_p, 0.1},
                                                                              {QR_P_repetition, 1.05}, {QR_P_top_k, 20}};
    for (int i = 0; i < QR_COUNT(want); i++)
        cr_expect(c.gen[want[i].p].given && c.gen[want[i].p].value == want[i].value, "%s", qr_sampling_row[want[i].p].key);
    cr_expect_not(c.gen[QR_P_seed].given);
    cr_assert_eq(parse(&c, NULL, "\"eos_token_id\":2", "{\"bos_token_id\":3}", &err), 0);
    cr_expect(c.n_eos == 1 && c.eos_ids[0] == 2 && c.bos_id == 3);
    static const char *const bad[] = {"{\"temperature\":-1}", "{\"top_p\":1.5}", "{\"min_p\":\"x\"}", "{\"top_k\":-2}",
                                      "{\"repetition_penalty\":0}", "{\"eos_token_id\":1000}", "[]", "", "{"};
    for (int i = 0; i < QR_COUNT(bad); i++) {
        cr_expect_lt(parse(&c, NULL, "", bad[i], &err), 0, "%s is accepted", bad[i]);
        cr_expect(strstr(err.msg, "generation_config.json"), "%s: %s", bad[i], err.msg);
    }
}

Test(hf_config, rotary_scaling_of_olmo3_is_for_layers_without_a_window)
{
    struct qr_model_config c = accepts("Olmo3ForCausalLM", "\"rope_theta\":5000,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8,"
                                       "\"original_max_position_embeddings\":128}");
    cr_expect(c.rope.type == QR_ROPE_YARN && c.rope.theta == 5000 && c.local_theta == 5000);
    cr_expect(c.window == 4096 && c.unwindowed[0] == 8 && c.qk_norm && c.qk_norm_rows && c.post_norms);
    c = accepts("Olmo3ForCausalLM", "");
    cr_expect(c.rope.theta == 500000 && c.local_theta == 500000);
    refuses("Olmo3ForCausalLM", "\"rope_parameters\":{\"sliding_attention\":{\"rope_theta\":100},\"full_attention\":{\"rope_theta\":200}}",
            "100 in layers with a window and 200 in others", "expected the same");
}

Test(hf_config, biases_of_seed_oss_are_switched_one_by_one)
{
    struct qr_model_config c = accepts("SeedOssForCausalLM", "\"num_key_value_heads\":2");
    cr_expect(c.qkv_bias && !c.out_bias && !c.mlp_bias && c.head_dim == 128);
    c = accepts("SeedOssForCausalLM", "\"num_key_value_heads\":2,\"attention_bias\":false,\"attention_out_bias\":true,\"mlp_bias\":true");
    cr_expect(!c.qkv_bias && c.out_bias && c.mlp_bias);
}

Test(hf_config, what_is_written_reads_back_the_same)
{
    for (enum qr_arch arch = QR_ARCH_LLAMA; arch < QR_ARCH_COUNT; arch++) {
        struct qr_model_config c = qr_model_config_small(arch);
        round_trip(&c);
        c.tied_head = true;
        c.window = arch == QR_ARCH_LLAMA || arch >= QR_ARCH_SMOLLM3 ? c.window : 77;
        c.logits_divisor = arch == QR_ARCH_GRANITE ? 8 : 0;
        c.window_first_layer = arch == QR_ARCH_QWEN2 ? 1 : 0;
        c.unwindowed[0] = arch == QR_ARCH_QWEN3 || arch == QR_ARCH_GEMMA2 || arch == QR_ARCH_GEMMA3 ? 2 : 0;
        c.window = arch >= QR_ARCH_MIXTRAL && arch <= QR_ARCH_QWEN3_MOE ? 77 : c.window;
        c.moe.dense[0] = arch == QR_ARCH_QWEN2_MOE || arch == QR_ARCH_QWEN3_MOE ? 2 : 0;
        c.n_eos = 3;
        c.stored = QR_BF16;
        c.unrotated[0] = arch == QR_ARCH_SMOLLM3 ? 2 : 0;
        for (enum qr_rope_type type = QR_ROPE_DEFAULT; type <= QR_ROPE_LONG; type++) {
            c.rope.type = type;
            c.rope.partial = arch == QR_ARCH_PHI3 || arch == QR_ARCH_STABLELM ? 0.5 : 1;
            c.rope.n_factors = qr_rope_numbers(&c.rope, c.head_dim) / 2;
            for (int32_t i = 0; i < c.rope.n_factors; i++) {
                c.rope.short_factor[i] = 1.0f + 0.1f * (float)i;
                c.rope.long_factor[i] = 2.0f + (float)i;
            }
            c.rope.factor = 2.5;
            c.rope.low_freq_factor = 1;
            c.rope.high_freq_factor = 4;
            c.rope.attn_factor = type == QR_ROPE_YARN ? 1.25 : -1;
            c.rope.original_ctx = 128;
            round_trip(&c);
        }
    }
}
