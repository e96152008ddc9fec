#include "bench/shapes.h"

#include <string.h>

#include "base/assert.h"
#include "base/option.h"
#include "loader/write/make_model.h"

/* The models' config.json files; 124m is a Llama of GPT-2's size. */
static const struct shape {
    const char *name;
    const char *family; /* its model_type */
    int32_t n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ffn, n_vocab, ctx_max;
    double theta;
    bool tied;
    struct qr_moe_config moe;
} shapes[] = {
    {"110m", "llama", 12, 768, 12, 12, 64, 2048, 32000, 1024, 10000, true, {0}}, /* karpathy/tinyllamas stories110M */
    {"124m", "llama", 12, 768, 12, 12, 64, 2048, 50257, 1024, 10000, true, {0}},
    {"smollm2-135m", "llama", 30, 576, 9, 3, 64, 1536, 49152, 8192, 100000, true, {0}},
    {"qwen2.5-0.5b", "qwen2", 24, 896, 14, 2, 64, 4864, 151936, 32768, 1000000, true, {0}},
    {"qwen2.5-1.5b", "qwen2", 28, 1536, 12, 2, 128, 8960, 151936, 131072, 1000000, true, {0}},
    {"qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, 1000000, true, {0}},
    {"llama-3.2-1b", "llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 500000, true, {0}},
    {"llama-3.1-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 131072, 500000, false, {0}},
    {"qwen3-8b", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936, 40960, 1000000, false, {0}},
    {"qwen1.5-moe-a2.7b", "qwen2_moe", 24, 2048, 16, 16, 128, 5632, 151936, 8192, 1000000, false,
     {60, 4, 1408, 5632, false, {0}}},
    {"qwen3-30b-a3b", "qwen3_moe", 48, 2048, 32, 4, 128, 6144, 151936, 40960, 1000000, false,
     {128, 8, 768, 0, true, {0}}},
    {"mixtral-8x7b", "mixtral", 32, 4096, 32, 8, 128, 14336, 32000, 32768, 1000000, false, {8, 2, 14336, 0, true, {0}}},
};

static const struct shape *find(const char *name, struct qr_err *err)
{
    const char *names[QR_COUNT(shapes)];
    for (int i = 0; i < QR_COUNT(shapes); i++) {
        names[i] = shapes[i].name;
        if (strcmp(name, shapes[i].name) == 0)
            return &shapes[i];
    }
    const char *near = qr_nearest(name, names, QR_COUNT(shapes));
    qr_err_set(err, QR_E_USAGE, "no shape '%s'%s%s; see --help", name, near ? "; did you mean " : "", near ? near : "");
    return NULL;
}

int qr_shape_config(struct qr_model_config *out, const char *name, struct qr_err *err)
{
    QR_ASSERT(out != NULL && name != NULL);
    QR_ASSERT(err != NULL);
    const struct shape *s = find(name, err);
    if (!s)
        return err->code;
    *out = qr_model_config_small(qr_arch_of_type(s->family));
    out->n_layers = s->n_layers;
    out->n_embd = s->n_embd;
    out->n_heads = s->n_heads;
    out->n_kv_heads = s->n_kv_heads;
    out->head_dim = s->head_dim;
    out->n_ffn = s->n_ffn;
    out->n_vocab = s->n_vocab;
    out->ctx_max = out->rope.original_ctx = s->ctx_max;
    out->rope.theta = s->theta;
    out->tied_head = s->tied;
    out->moe = s->moe;
    out->bos_id = -1;
    out->eos_ids[0] = s->n_vocab - 1;
    return 0;
}
