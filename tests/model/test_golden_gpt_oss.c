/* Tiny random gpt-oss models, as transformers, as their makers (MXFP4) and as llama.cpp's converter write them, against the
 * greedy ids and logits that transformers computed in double (tools/golden/gpt_oss.py): sinks, clamped gates, biases of experts
 * and router, YaRN, a window in every other layer, experts in stacks.
 *
 * Tolerance: f32 sums of up to 256 products and four layers of them: the worst seen is 2.9e-6 for logits of size 1 to 3. The golden's
 * norms and rotary angles are f32. */
#include "tests/model/rig.h"

#include "base/file.h"
#include "base/half.h"
#include "tests/gguf_make.h"
#include "tests/model/golden_gpt_oss.h"
#include "tests/model/golden_values.h"

#define TOLERANCE 1e-5
#define LAYERS 4
#define EXPERTS 6
#define WIDTH 64
#define FFN 48

/* The numbers of a tensor of that name, rounded to bf16. */
static uint16_t *numbers_of(const char *name, int64_t n)
{
    const bool norm = strstr(name, "norm") != NULL;
    const double width = norm ? 0.5 : strstr(name, "sinks") ? 6 : strstr(name, "gate_up") ? 2 : 0.4;
    uint16_t *v = qr_alloc((size_t)n, sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = qr_f32_to_bf16((float)(norm + (golden_unit(golden_hash(name) + (uint64_t)i) - 0.5) * width));
    return v;
}

/* The bytes of an MXFP4 model's codes or scales, or false: it is none of these. */
static bool put_bytes(struct qr_buf *b, const char *name, int64_t n)
{
    const char *tail = strrchr(name, '_');
    const bool scales = tail && strcmp(tail, "_scales") == 0;
    if (!scales && !(tail && strcmp(tail, "_blocks") == 0))
        return false;
    for (int64_t i = 0; b && i < n; i++) {
        const uint64_t top = (uint64_t)((golden_unit(golden_hash(name) + (uint64_t)i)) * 256); /* of 24 bits */
        const uint8_t byte = (uint8_t)(scales ? (strstr(name, "down") ? 120 : 123) + (top >> 6) : top);
        qr_buf_put(b, &byte, 1);
    }
    return true;
}

static void make_safetensors(const char *dir, const struct golden_model *g)
{
    struct qr_buf header = {0}, data = {0};
    struct qr_err err = {0};
    char path[128];
    for (int32_t i = 0; i < g->n; i++) {
        const struct golden_tensor *t = &g->tensor[i];
        const size_t at = data.len;
        const bool bytes = put_bytes(NULL, t->name, 0);
        int64_t n = 1;
        qr_buf_printf(&header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "{", t->name, bytes ? "U8" : "BF16");
        for (int k = 0; k < 4 && t->shape[k]; n *= t->shape[k++])
            qr_buf_printf(&header, "%s%lld", k ? "," : "", (long long)t->shape[k]);
        if (!put_bytes(&data, t->name, n)) {
            uint16_t *v = numbers_of(t->name, n);
            qr_buf_put(&data, v, (size_t)n * sizeof *v);
            qr_free(v);
        }
        qr_buf_printf(&header, "],\"data_offsets\":[%zu,%zu]}", at, data.len);
    }
    qr_buf_put_str(&header, "}");
    snprintf(path, sizeof path, "%s/config.json", dir);
    cr_assert_eq(qr_file_put(path, g->config, strlen(g->config), &err), 0, "%s", err.msg);
    struct qr_buf file = {0};
    const uint64_t len = header.len;
    qr_buf_put(&file, &len, sizeof len);
    qr_buf_put(&file, header.data, header.len);
    qr_buf_put(&file, data.data, data.len);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    cr_assert_eq(qr_file_put(path, file.data, file.len, &err), 0, "%s", err.msg);
    qr_buf_release(&file);
    qr_buf_release(&header);
    qr_buf_release(&data);
}

/* ---- the same as a GGUF file ---- */

/* What a tensor of the file is made of, the first ones once, the others in every layer: number (e, o, i) is that of e experts + o out + i in from `from` on. */
struct gguf_row {
    const char *gguf, *name;
    int64_t n_experts, n_out, n_in, expert_step, out_step, in_step, from;
};
#define MATRIX(gguf, name, out, in) {gguf, name, 1, out, in, 0, in, 1, 0}
#define VECTOR(gguf, name, n) {gguf, name, 1, 1, n, 0, 0, 1, 0}
static const struct gguf_row gguf_rows[] = {
    MATRIX("token_embd.weight", "model.embed_tokens.weight", 128, WIDTH),
    MATRIX("output.weight", "lm_head.weight", 128, WIDTH),
    VECTOR("output_norm.weight", "model.norm.weight", WIDTH),
    VECTOR("attn_norm.weight", "input_layernorm.weight", WIDTH),
    MATRIX("attn_q.weight", "self_attn.q_proj.weight", 256, WIDTH),
    VECTOR("attn_q.bias", "self_attn.q_proj.bias", 256),
    MATRIX("attn_k.weight", "self_attn.k_proj.weight", 128, WIDTH),
    VECTOR("attn_k.bias", "self_attn.k_proj.bias", 128),
    MATRIX("attn_v.weight", "self_attn.v_proj.weight", 128, WIDTH),
    VECTOR("attn_v.bias", "self_attn.v_proj.bias", 128),
    VECTOR("attn_sinks.weight", "self_attn.sinks", 4),
    MATRIX("attn_output.weight", "self_attn.o_proj.weight", WIDTH, 256),
    VECTOR("attn_output.bias", "self_attn.o_proj.bias", WIDTH),
    VECTOR("post_attention_norm.weight", "post_attention_layernorm.weight", WIDTH),
    MATRIX("ffn_gate_inp.weight", "mlp.router.weight", EXPERTS, WIDTH),
    VECTOR("ffn_gate_inp.bias", "mlp.router.bias", EXPERTS),
    {"ffn_gate_exps.weight", "mlp.experts.gate_up_proj", EXPERTS, FFN, WIDTH, 2 * FFN * WIDTH, 2, 2 * FFN, 0},
    {"ffn_up_exps.weight", "mlp.experts.gate_up_proj", EXPERTS, FFN, WIDTH, 2 * FFN * WIDTH, 2, 2 * FFN, 1},
    {"ffn_down_exps.weight", "mlp.experts.down_proj", EXPERTS, WIDTH, FFN, FFN * WIDTH, 1, WIDTH, 0},
    {"ffn_gate_exps.bias", "mlp.experts.gate_up_proj_bias", 1, EXPERTS, FFN, 0, 2 * FFN, 2, 0},
    {"ffn_up_exps.bias", "mlp.experts.gate_up_proj_bias", 1, EXPERTS, FFN, 0, 2 * FFN, 2, 1},
    MATRIX("ffn_down_exps.bias", "mlp.experts.down_proj_bias", EXPERTS, WIDTH),
};
#define TOP_ROWS 3

static void put_gguf_keys(struct qr_buf *b)
{
    static const struct {
        const char *name;
        uint32_t value;
    } numbers[] = {{"block_count", LAYERS}, {"context_length", 256}, {"embedding_length", WIDTH}, {"feed_forward_length", FFN},
                   {"attention.head_count", 4}, {"attention.head_count_kv", 2}, {"attention.key_length", 64},
                   {"attention.value_length", 64}, {"attention.sliding_window", 8}, {"expert_count", EXPERTS},
                   {"expert_used_count", 3}, {"expert_feed_forward_length", FFN}, {"rope.scaling.original_context_length", 32}};
    char key[64];
    gguf_begin(b, 3, TOP_ROWS + LAYERS * (QR_COUNT(gguf_rows) - TOP_ROWS), 5 + QR_COUNT(numbers));
    gguf_key_text(b, "general.architecture", "gpt-oss");
    gguf_key_text(b, "gpt-oss.rope.scaling.type", "yarn");
    gguf_key_f32(b, "gpt-oss.rope.scaling.factor", 8);
    gguf_key_f32(b, "gpt-oss.rope.freq_base", 150000);
    gguf_key_f32(b, "gpt-oss.attention.layer_norm_rms_epsilon", 1e-5f);
    for (int i = 0; i < QR_COUNT(numbers); i++) {
        snprintf(key, sizeof key, "gpt-oss.%s", numbers[i].name);
        gguf_key_u32(b, key, numbers[i].value);
    }
}

/* Vectors are f32, as the converter has them; returns the bytes of the row's tensor, which go to *b where there is one. */
static uint64_t put_gguf_numbers(struct qr_buf *b, const struct gguf_row *r, int layer)
{
    const bool vector = r->n_out == 1;
    const int64_t n = r->n_experts * r->n_out * r->n_in, n_read = strstr(r->name, "gate_up") ? 2 * n : n;
    char name[128] = "";
    if (!b)
        return qr_align_up((uint64_t)n * (vector ? 4 : 2), 32);
    if (layer >= 0)
        snprintf(name, sizeof name, "model.layers.%d.", layer);
    strcat(name, r->name);
    uint16_t *v = numbers_of(name, n_read);
    for (int64_t k = 0; k < n; k++) {
        const int64_t e = k / (r->n_out * r->n_in), o = k / r->n_in % r->n_out, i = k % r->n_in;
        const uint16_t h = v[r->from + e * r->expert_step + o * r->out_step + i * r->in_step];
        const float f = qr_bf16_to_f32(h);
        qr_buf_put(b, vector ? (const void *)&f : &h, vector ? sizeof f : sizeof h);
    }
    qr_free(v);
    gguf_align(b, 32);
    return 0;
}

static void make_gguf(const char *path)
{
    struct qr_buf b = {0};
    struct qr_err err = {0};
    uint64_t at = 0;
    put_gguf_keys(&b);
    for (int numbers = 0; numbers < 2; numbers++, gguf_align(&b, 32))
        for (int layer = -1; layer < LAYERS; layer++)
            for (int i = layer < 0 ? 0 : TOP_ROWS; i < (layer < 0 ? TOP_ROWS : QR_COUNT(gguf_rows)); i++) {
                const struct gguf_row *r = &gguf_rows[i];
                const uint64_t dim[3] = {(uint64_t)r->n_in, (uint64_t)r->n_out, (uint64_t)r->n_experts};
                char name[64] = "";
                if (layer >= 0)
                    snprintf(name, sizeof name, "blk.%d.", layer);
                strcat(name, r->gguf);
                if (numbers)
                    put_gguf_numbers(&b, r, layer);
                else
                    gguf_tensor(&b, name, r->n_experts > 1 ? 3 : r->n_out > 1 ? 2 : 1, dim,
                                r->n_out > 1 ? QR_GGUF_T_BF16 : QR_GGUF_T_F32, at);
                at += numbers ? 0 : put_gguf_numbers(NULL, r, layer);
            }
    cr_assert_eq(qr_file_put(path, b.data, b.len, &err), 0, "%s", err.msg);
    qr_buf_release(&b);
}

/* ---- what a model says ---- */

static void check_model(const struct golden_model *g, const char *path, const char *isa, bool plain)
{
    struct rig r;
    rig_open(&r, path, (struct rig_options){.isa = isa, .compute = QR_COMPUTE_F32, .plain = plain});
    const int32_t v = rig_vocab(&r);
    struct rig_seq s = rig_seq_new(&r, 0, NULL);
    float *rows = rig_prompt(&r, &s, g->ids, GOLDEN_PROMPT, 13), *last = rows + (GOLDEN_PROMPT - 1) * v;
    double worst = fabs(log_sum_exp(last, v) - g->lse);
    for (int32_t i = 0; i < GOLDEN_SHOWN; i++)
        worst = fmax(worst, fabs((double)last[16 * i] - g->logit[i]));
    printf("%-7s %s: worst difference %.2e\n", isa, path, worst);
    cr_expect_leq(worst, TOLERANCE, "%s, %s: %.3e", isa, path, worst);
    for (int32_t i = 0; i < GOLDEN_MADE; i++) {
        const int32_t id = argmax(last, v);
        cr_assert_eq(id, g->ids[GOLDEN_PROMPT + i], "%s, %s: id %d is %d, not %d", isa, path, i, id,
                     g->ids[GOLDEN_PROMPT + i]);
        qr_free(rows);
        rows = last = rig_step(&r, &(struct rig_item){.seq = &s, .ids = &id, .n = 1, .want = RIG_LAST}, 1);
    }
    qr_free(rows);
    rig_seq_free(&s);
    rig_close(&r);
}

/* A directory of g, and with_gguf the file of the same. */
static void check_on_all_levels(const struct golden_model *g, bool with_gguf)
{
    const char *names[8];
    const int32_t n_levels = levels(names);
    char dir[64], file[96];
    struct qr_err err = {0};
    temp_dir_make(dir, "gpt-oss");
    make_safetensors(dir, g);
    snprintf(file, sizeof file, "%s/model.gguf", dir);
    if (with_gguf)
        make_gguf(file);
    for (int32_t l = 0; l < n_levels; l++)
        for (int plain = 0; plain < 2; plain++) {
            check_model(g, dir, names[l], plain);
            if (with_gguf)
                check_model(g, file, names[l], plain);
        }
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
}

Test(golden_gpt_oss, greedy_ids_of_a_directory_and_of_a_gguf_file_are_those_of_transformers_on_every_level)
{
    check_on_all_levels(&bf16_model, true);
}

Test(golden_gpt_oss, greedy_ids_with_experts_in_mxfp4_are_those_of_transformers_on_every_level)
{
    check_on_all_levels(&mxfp4_model, false);
}
