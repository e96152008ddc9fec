/* Adapters as one GGUF file: what is read of a good one, and what each bad one is refused for. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "loader/check/check.h"
#include "loader/adapters/lora.h"
#include "loader/write/make_model.h"
#include "tests/gguf_make.h"
#include "tests/lora_read.h"
#include "tests/temp.h"

#define LORA_A ".lora_a"
#define LORA_B ".lora_b"
#define RANK 2

/* A file's values; those of small_llama() below are good. */
struct made {
    const char *type, *adapter, *arch; /* NULL: no such key */
    float alpha;
    int n_invocation;                  /* -1: no such key */
    uint32_t n_parts;
    struct made_tensor {
        const char *name;
        uint64_t dim[3];               /* up to the first 0 */
        uint32_t of;
    } tensor[6];
};

static struct qr_model_config small_llama(void)
{
    return qr_model_config_small(QR_ARCH_LLAMA); /* D 64, 4 heads of 16, 2 kv heads, F 96 */
}

static struct made good(void)
{
    return (struct made){.type = "adapter", .adapter = "lora", .arch = "llama", .alpha = 8, .n_invocation = -1, .n_parts = 0,
                         .tensor = {{"blk.0.attn_k.weight" LORA_A, {64, RANK}, QR_GGUF_T_F32}, {"blk.0.attn_k.weight" LORA_B, {RANK, 32}, QR_GGUF_T_F32},
                                    {"blk.1.ffn_down.weight" LORA_A, {96, 1}, QR_GGUF_T_F16}, {"blk.1.ffn_down.weight" LORA_B, {1, 64}, QR_GGUF_T_BF16}}};
}

static float value(int tensor, uint64_t i)
{
    return (float)(tensor + 1) + (float)i / 1024; /* of less than 1024 numbers all differ */
}

static void put_data(struct qr_buf *b, const struct made_tensor *t, int at)
{
    uint64_t n = 1;
    for (int k = 0; k < 3 && t->dim[k]; k++)
        n *= t->dim[k];
    gguf_align(b, 32);
    for (uint64_t i = 0; i < n; i++) {
        const float x = value(at, i);
        if (t->of == QR_GGUF_T_F32)
            qr_buf_put(b, &x, sizeof x);
        else if (i % (uint64_t)qr_gguf_layout(t->of)->elements == 0)
            for (int k = 0; k < qr_gguf_layout(t->of)->bytes; k++)
                qr_buf_put_byte(b, 0);
    }
}

static struct qr_buf make(const struct made *m)
{
    struct qr_buf b = {0};
    uint64_t n = 0, at = 0;
    while (n < QR_COUNT(m->tensor) && m->tensor[n].name)
        n++;
    gguf_begin(&b, 3, n, 2 + (m->type != NULL) + (m->adapter != NULL) + (m->arch != NULL) + (m->n_invocation >= 0));
    if (m->type)
        gguf_key_text(&b, "general.type", m->type);
    if (m->adapter)
        gguf_key_text(&b, "adapter.type", m->adapter);
    if (m->arch)
        gguf_key_text(&b, "general.architecture", m->arch);
    gguf_key_f32(&b, "adapter.lora.alpha", m->alpha);
    gguf_key_u32(&b, "split.count", m->n_parts);
    if (m->n_invocation >= 0)
        gguf_key_array(&b, "adapter.alora.invocation_tokens", QR_GGUF_U32, (uint64_t)m->n_invocation);
    for (int i = 0; i < m->n_invocation; i++)
        gguf_u32(&b, 7);
    for (uint64_t i = 0; i < n; i++) {
        const struct made_tensor *t = &m->tensor[i];
        const struct qr_gguf_layout *l = qr_gguf_layout(t->of);
        const int n_dims = t->dim[2] ? 3 : t->dim[1] > 1 || !strstr(t->name, LORA_A) ? 2 : 1; /* as writers in C leave a last 1 out */
        uint64_t count = 1;
        for (int k = 0; k < 3 && t->dim[k]; k++)
            count *= t->dim[k];
        gguf_tensor(&b, t->name, t->dim[1] ? n_dims : 1, t->dim, t->of, at);
        at = qr_align_up((size_t)(at + count / (uint64_t)l->elements * (uint64_t)l->bytes), 32);
    }
    for (uint64_t i = 0; i < n; i++)
        put_data(&b, &m->tensor[i], (int)i);
    gguf_align(&b, 32);
    return b;
}

struct place {
    char dir[64], path[128];
};

static struct place put(const struct made *m)
{
    struct place p;
    struct qr_err err = {0};
    struct qr_buf b = make(m);
    temp_dir_make(p.dir, "lora");
    snprintf(p.path, sizeof p.path, "%s/a.gguf", p.dir);
    cr_assert_eq(qr_file_put(p.path, b.data, b.len, &err), 0, "%s", err.msg);
    qr_buf_release(&b);
    return p;
}

static void done(const struct place *p)
{
    struct qr_err err = {0};
    cr_assert_eq(qr_dir_remove(p->dir, &err), 0, "%s", err.msg);
}

static int read_as(const struct qr_model_config *c, const char *path, struct qr_err *err)
{
    struct qr_lora_file *f;
    int rc = qr_lora_file_open(&f, path, NULL, (size_t)1 << 30, err);
    if (rc)
        return rc;
    rc = lora_read_all(f, c, err);
    qr_lora_file_close(f);
    return rc;
}

static int check_file(const char *path, const char *const says[3], bool json)
{
    struct qr_buf out = {0};
    struct qr_err err = {0};
    int rc = qr_model_check(&out, path, &(struct qr_check_options){.json = json}, &err);
    for (int i = 0; i < 3 && says[i]; i++)
        cr_expect(strstr(out.data, says[i]), "does not say \"%s\":\n%s", says[i], out.data);
    qr_buf_release(&out);
    return rc;
}

Test(lora_gguf, a_file_gives_pairs_with_their_scales_and_rows_in_the_models_order)
{
    const struct qr_model_config c = small_llama();
    struct made m = good();
    const struct place p = put(&m);
    struct qr_lora_file *f;
    struct qr_lora_pair pair;
    struct qr_err err = {0};
    float row[RANK];
    cr_assert_eq(qr_lora_file_open(&f, p.path, NULL, 1 << 20, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_lora_file_fit(f, &c, false, &err), 0, "%s", err.msg);
    cr_expect_eq(qr_lora_file_rank(f), RANK);
    cr_assert_eq(qr_lora_file_find(f, &pair, "model.layers.0.self_attn.k_proj.weight", 32, 64, "it", &err), 0, "%s", err.msg);
    cr_expect(pair.rank == RANK && pair.scale == 4.0f);
    for (int64_t i = 0; i < 32; i++) { /* heads of 16: rows r and r + 8 of a head lie side by side */
        const int64_t r = i % 16, at = i - r + (r < 8 ? 2 * r : 2 * (r - 8) + 1);
        qr_lora_file_decode(f, pair.b, row, i, 1);
        cr_expect(row[0] == value(1, (uint64_t)(RANK * at)) && row[1] == value(1, (uint64_t)(RANK * at + 1)), "row %lld", (long long)i);
    }
    cr_expect_lt(qr_lora_file_check_used(f, "it", &err), 0);
    cr_assert_eq(qr_lora_file_find(f, &pair, "model.layers.1.mlp.down_proj.weight", 64, 96, "it", &err), 0, "%s", err.msg);
    cr_expect(pair.rank == 1 && pair.scale == 8.0f);
    cr_expect_eq(qr_lora_file_check_used(f, "it", &err), 0, "%s", err.msg);
    cr_assert_eq(qr_lora_file_find(f, &pair, "model.layers.0.self_attn.q_proj.weight", 64, 64, "it", &err), 0, "%s", err.msg);
    cr_expect_null(pair.a);
    qr_lora_file_close(f);
    cr_expect_eq(check_file(p.path, (const char *const[]){"LoRA for a model of architecture \"llama\": 2 matrices", "the file is sound",
                                                          "NAME=/tmp/"}, false), 0);
    cr_expect_eq(check_file(p.path, (const char *const[]){
                     "\"adapter\":{\"architecture\":\"llama\",\"alpha\":8,\"matrices\":2,\"rank_min\":1,\"rank_max\":2}",
                                                          "\"runs\":null", "\"problems\":[]"}, true), 0);
    done(&p);
}

Test(lora_gguf, without_an_alpha_sums_are_as_they_are_as_in_llama_cpp)
{
    const struct qr_model_config c = small_llama();
    struct made m = good();
    struct qr_lora_file *f;
    struct qr_lora_pair pair;
    struct qr_err err = {0};
    m.alpha = 0;
    const struct place p = put(&m);
    cr_assert_eq(qr_lora_file_open(&f, p.path, NULL, 1 << 20, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_lora_file_fit(f, &c, false, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_lora_file_find(f, &pair, "model.layers.0.self_attn.k_proj.weight", 32, 64, "it", &err), 0, "%s", err.msg);
    cr_expect_eq(pair.scale, 1.0f);
    qr_lora_file_close(f);
    done(&p);
}

/* What is wrong, in place of what a good file has. */
static struct made bad(int row, const char **why)
{
    struct made m = good();
    struct made_tensor *t = m.tensor, *last = &m.tensor[4];
    switch (row) {
    case 0: m.type = NULL, *why = "key general.type is missing, expected \"adapter\""; break;
    case 1: m.type = "model", *why = "key general.type is \"model\", expected \"adapter\""; break;
    case 2: m.adapter = NULL, *why = "key adapter.type is missing, expected \"lora\""; break;
    case 3: m.adapter = "control_vector", *why = "key adapter.type is \"control_vector\", expected \"lora\""; break;
    case 4: m.arch = NULL, *why = "key general.architecture is missing"; break;
    case 5: m.arch = "qwen2", *why = "key general.architecture is \"qwen2\", expected \"llama\", which the model is"; break;
    case 6: m.alpha = INFINITY, *why = "key adapter.lora.alpha is inf, expected a finite number"; break;
    case 7: m.n_invocation = 2, *why = "only behind certain tokens (aLoRA)"; break;
    case 8: m.n_parts = 2, *why = "key split.count is 2, expected an adapter in one file"; break;
    case 9: t[3].name = NULL, *why = "tensor blk.1.ffn_down.weight.lora_b is missing, expected it beside blk.1.ffn_down.weight.lora_a"; break;
    case 10: t[0].name = "blk.0.attn_v.weight" LORA_A, *why = "is missing, expected it beside blk.0.attn_v.weight.lora_a"; break;
    case 11: t[1].dim[0] = 3, *why = "tensor blk.0.attn_k.weight.lora_a has rank 2 and blk.0.attn_k.weight.lora_b has 3, expected the same"; break;
    case 12: t[0].dim[0] = 32, *why = "tensor blk.0.attn_k.weight.lora_a is [2, 32], expected [r, 64] by a model"; break;
    case 13: t[1].dim[1] = 64, *why = "tensor blk.0.attn_k.weight.lora_b is [64, 2], expected [32, 2] by a model"; break;
    case 14: t[0].of = QR_GGUF_T_I32, *why = "tensor blk.0.attn_k.weight.lora_a is I32, expected F32, F16, BF16 or blocks of 2 to 8 bits"; break;
    case 15: *last = (struct made_tensor){"blk.0.attn_norm.weight", {64}, QR_GGUF_T_F32},
             *why = "tensor blk.0.attn_norm.weight is neither NAME.lora_a nor NAME.lora_b"; break;
    case 16: *last = (struct made_tensor){"blk.7.attn_k.weight" LORA_A, {64, 2}, QR_GGUF_T_F32},
             last[1] = (struct made_tensor){"blk.7.attn_k.weight" LORA_B, {2, 32}, QR_GGUF_T_F32},
             *why = "tensor blk.7.attn_k.weight.lora_a belongs to no matrix of a model"; break;
    case 17: *last = (struct made_tensor){"token_embd.weight" LORA_A, {2, 256}, QR_GGUF_T_F32},
             last[1] = (struct made_tensor){"token_embd.weight" LORA_B, {2, 64}, QR_GGUF_T_F32},
             *why = "tensor token_embd.weight.lora_a is of an adapter of the embedding, expected adapters of the layers' matrices"; break;
    case 18: *last = (struct made_tensor){"output.weight" LORA_A, {64, 2}, QR_GGUF_T_F32},
             last[1] = (struct made_tensor){"output.weight" LORA_B, {2, 256}, QR_GGUF_T_F32},
             *why = "tensor output.weight.lora_a is of an adapter of the head"; break;
    case 19: *last = (struct made_tensor){"blk.0.ffn_up_exps.weight" LORA_A, {64, 2, 3}, QR_GGUF_T_F32},
             last[1] = (struct made_tensor){"blk.0.ffn_up_exps.weight" LORA_B, {2, 96, 3}, QR_GGUF_T_F32},
             *why = "tensor blk.0.ffn_up_exps.weight.lora_a is of an adapter of experts"; break;
    case 20: t[0].name = "blk.01.ffn_down.weight" LORA_A, *why = "tensor blk.1.ffn_down.weight.lora_a is there twice"; break;
    case 21: t[0].name = NULL, *why = "holds no tensor, expected adapters"; break;
    case 22: t[0].name = "blk.0.attn_k.bias" LORA_A, t[1].name = "blk.0.attn_k.bias" LORA_B,
             *why = "tensor blk.0.attn_k.bias.lora_a belongs to no matrix"; break;
    default: *why = NULL;
    }
    return m;
}

Test(lora_gguf, what_does_not_fit_is_refused_by_name_with_found_and_expected)
{
    const struct qr_model_config c = small_llama();
    const char *why;
    for (int row = 0; bad(row, &why), why; row++) {
        const struct made m = bad(row, &why);
        const struct place p = put(&m);
        struct qr_err err = {0};
        cr_expect_lt(read_as(&c, p.path, &err), 0, "row %d: %s", row, why);
        cr_expect(strstr(err.msg, why) && strstr(err.msg, "a.gguf: "), "row %d: expected %s, got %s", row, why, err.msg);
        done(&p);
    }
}

Test(lora_gguf, blocks_are_read_as_numbers)
{
    const struct qr_model_config c = small_llama();
    struct made m = good();
    struct qr_err err = {0};
    m.tensor[0].of = QR_GGUF_T_Q8_0, m.tensor[0].dim[1] = 32;
    m.tensor[1].of = QR_GGUF_T_Q4_0, m.tensor[1].dim[0] = 32;
    const struct place p = put(&m);
    cr_expect_eq(read_as(&c, p.path, &err), 0, "%s", err.msg);
    done(&p);
}

Test(lora_gguf, what_is_no_gguf_and_what_is_a_whole_model_is_called_so)
{
    const struct qr_model_config c = small_llama();
    struct made m = good();
    struct qr_err err = {0};
    const struct place p = put(&m);
    cr_expect_eq(read_as(&c, p.dir, &err), QR_E_NOT_FOUND);
    cr_assert_eq(qr_file_put(p.path, "{}", 2, &err), 0);
    struct qr_err own = {0};
    cr_expect_eq(read_as(&c, p.path, &own), QR_E_DAMAGED);
    cr_expect(strstr(own.msg, "does not begin with \"GGUF\", expected an adapter's directory with adapter_config.json"), "%s", own.msg);
    done(&p);
}
