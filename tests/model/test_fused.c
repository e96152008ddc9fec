/* The forward in fused verbs and in plain ones: every logit the same, bit for bit, on every level, for every family, in every format. */
#include "tests/model/rig.h"

#define N_TEXT 98 /* so many that a thread alone keeps its rows for several products */
#define SEED 20261122

struct format {
    const char *name;
    enum qr_compute compute;
    enum qr_quantize quantize;
};

enum way { FUSED, PLAIN, APART };

static float *logits_of(const char *dir, const char *isa, const struct format *f, enum way way, const int32_t *ids, int32_t chunk, int32_t n_threads)
{
    struct rig r;
    rig_open(&r, dir, (struct rig_options){.isa = isa, .n_threads = n_threads, .compute = f->compute, .quantize = f->quantize, .plain = way == PLAIN,
                                           .apart = way == APART});
    struct rig_seq s = rig_seq_new(&r, 0, NULL);
    float *out = rig_prompt(&r, &s, ids, N_TEXT, chunk);
    rig_seq_free(&s);
    rig_close(&r);
    return out;
}

/* Later families differ from the others in few places: two formats each, and of levels the sanitizers see one, in one format; of all others a quarter. */
static bool is_skipped(const struct qr_model_config *c, int32_t level, int format)
{
    const bool later = c->arch >= QR_ARCH_GEMMA2;
#if defined(__SANITIZE_ADDRESS__)
    if ((later && level != 1) || (format + (int)c->arch + level) % 4 != 0)
        return true;
#endif
    return later && (format + (int)c->arch + level) % 2 != 0;
}

static void check(const struct qr_model_config *c, const char *what, struct qr_rng *rng)
{
    static const struct format formats[] = {{"f32", QR_COMPUTE_F32, QR_QUANTIZE_NONE},
                                            {"bf16", QR_COMPUTE_BF16, QR_QUANTIZE_NONE},
                                            {"int8", QR_COMPUTE_AUTO, QR_QUANTIZE_INT8},
                                            {"int4", QR_COMPUTE_AUTO, QR_QUANTIZE_INT4}};
    const char *names[8];
    int32_t n_levels = qr_cpu_levels(names), *ids = random_ids(rng, N_TEXT, c->n_vocab);
    const size_t n = (size_t)N_TEXT * (size_t)c->n_vocab;
    struct temp_model t = temp_model_make(c, QR_F32);
    for (int32_t l = 0; l < n_levels; l++)
        for (int i = 0; i < QR_COUNT(formats); i++) {
            if (is_skipped(c, l, i))
                continue;
            float *plain = logits_of(t.dir, names[l], &formats[i], PLAIN, ids, N_TEXT, 2);
            float *fused = logits_of(t.dir, names[l], &formats[i], FUSED, ids, N_TEXT, 1);
            float *single = logits_of(t.dir, names[l], &formats[i], FUSED, ids, 1, 2);
            cr_assert_eq(memcmp(plain, fused, n * sizeof *plain), 0, "%s, %s, %s: the fused forward differs", what, names[l], formats[i].name);
            cr_assert_eq(memcmp(plain, single, n * sizeof *plain), 0, "%s, %s, %s: token by token it differs", what, names[l], formats[i].name);
            if (l > 0) { /* the plainest kernels pack quantized matrices as a whole */
                float *apart = logits_of(t.dir, names[l], &formats[i], APART, ids, N_TEXT, 2);
                cr_assert_eq(memcmp(plain, apart, n * sizeof *plain), 0, "%s, %s, %s: products apart differ", what, names[l], formats[i].name);
                qr_free(apart);
            }
            qr_free(plain);
            qr_free(fused);
            qr_free(single);
        }
    qr_free(ids);
    temp_model_remove(&t);
}

Test(fused, a_model_gives_the_same_bits_as_with_one_kernel_for_each_verb)
{
    struct qr_rng rng = {.seed = SEED};
    struct qr_model_config llama = qr_model_config_small(QR_ARCH_LLAMA), odd = llama, qwen2 = qr_model_config_small(QR_ARCH_QWEN2);
    struct qr_model_config qwen3 = qr_model_config_small(QR_ARCH_QWEN3), granite = qr_model_config_small(QR_ARCH_GRANITE);
    struct qr_model_config gemma = qr_model_config_small(QR_ARCH_GEMMA), mixtral = qr_model_config_small(QR_ARCH_MIXTRAL);
    struct qr_model_config qwen2_moe = qr_model_config_small(QR_ARCH_QWEN2_MOE), qwen3_moe = qr_model_config_small(QR_ARCH_QWEN3_MOE);
    printf("seed %d\n", SEED);
    llama.qkv_bias = llama.out_bias = llama.mlp_bias = true;
    odd.n_layers = 1; /* widths that are no multiple of a vector or a tile */
    odd.n_embd = 203;
    odd.n_heads = 3;
    odd.n_kv_heads = 1;
    odd.head_dim = 72;
    odd.n_ffn = 519;
    odd.n_vocab = 301;
    check(&llama, "llama with biases", &rng);
    check(&odd, "odd llama", &rng);
    check(&qwen2, "qwen2", &rng);
    check(&qwen3, "qwen3", &rng);
    check(&granite, "granite", &rng);
    check(&gemma, "gemma", &rng);
    check(&mixtral, "mixtral", &rng);
    qwen2_moe.n_embd = 203; /* as odd */
    qwen2_moe.moe.n_ffn = 27;
    qwen2_moe.moe.n_ffn_shared = 51;
    qwen2_moe.moe.dense[0] = 1;
    check(&qwen2_moe, "qwen2-moe", &rng);
    check(&qwen3_moe, "qwen3-moe", &rng);
    for (enum qr_arch arch = QR_ARCH_GEMMA2; arch < QR_ARCH_COUNT; arch++) {
        const struct qr_model_config c = qr_model_config_small(arch);
        check(&c, c.arch_name, &rng);
    }
}
