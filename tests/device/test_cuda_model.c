/* A whole model on CUDA's kernels and the emulated device: the logits of the reference kernels, and the same bits however a prompt is cut. */
#include "tests/device/device.h"
#include "tests/loader/quantized_dir.h"
#include "model/lora.h"
#include "tests/lora_make.h"
#include "tests/model/rig.h"

enum { N_IDS = 18, SEED = 11 };

static struct qr_model_config small(enum qr_arch arch)
{
    struct qr_model_config c = qr_model_config_small(arch);
    c.n_embd = c.n_ffn = 128;
    c.n_layers = 1;
    c.n_heads = 2;
    c.n_kv_heads = arch == QR_ARCH_GPT2 ? 2 : 1;
    c.head_dim = 64; /* what CUDA's attention has */
    c.n_vocab = 96;
    return c;
}

/* Logits of every position of a prompt in chunks, then of one token more beside another sequence. */
static float *play(struct rig *r, const int32_t *ids, int32_t chunk, size_t *n)
{ /* where there is an adapter, the first sequence has it */
    const size_t v = (size_t)rig_vocab(r);
    struct rig_seq a = rig_seq_new(r, 3, NULL), b = rig_seq_new(r, 9, NULL);
    *n = (N_IDS + 1) * v;
    a.adapter = r->exec.lora != NULL;
    float *all = qr_alloc(*n, sizeof *all), *part = rig_prompt(r, &a, ids, N_IDS, chunk);
    memcpy(all, part, N_IDS * v * sizeof *all);
    qr_free(part);
    const struct rig_item both[2] = {{&a, ids + 4, 1, RIG_LAST}, {&b, ids, 3, RIG_LAST}};
    part = rig_step(r, both, 2);
    memcpy(all + N_IDS * v, part, v * sizeof *all);
    qr_free(part);
    rig_seq_free(&a);
    rig_seq_free(&b);
    return all;
}

/* The directory's adapter in the only slot; none: NULL. */
static struct qr_lora *adapted(struct rig *r, const char *dir)
{
    struct qr_lora *l;
    struct qr_err err = {0};
    if (!dir)
        return NULL;
    cr_assert_eq(qr_lora_open(&l, r->model, r->be, &dir, 1, 64, &err), 0, "%s", err.msg);
    r->exec.lora = l;
    return l;
}

/* What differs is the order of sums, and with bf16 a number here and there that is rounded to its other neighbour: `bound` of the largest logit. */
static void check_dir(const struct temp_model *t, const struct qr_model_config *c, enum qr_compute compute, enum qr_quantize quantize, enum qr_kv_cache kv,
                      double bound, const char *adapter)
{
    struct rig ref, cuda;
    struct qr_rng rng = {.seed = SEED};
    size_t n;
    rig_open(&ref, t->dir, (struct rig_options){.isa = "ref", .compute = compute, .quantize = quantize, .kv_cache = kv, .n_blocks = 16});
    rig_open(&cuda, t->dir, (struct rig_options){.device = "cuda", .compute = compute, .quantize = quantize, .kv_cache = kv, .n_blocks = 16});
    cr_assert_str_eq(cuda.be->name, "cuda");
    struct qr_lora *lora[2] = {adapted(&ref, adapter), adapted(&cuda, adapter)};
    int32_t *ids = random_ids(&rng, N_IDS, c->n_vocab);
    float *want = play(&ref, ids, N_IDS, &n), *got = play(&cuda, ids, N_IDS, &n), *cut = play(&cuda, ids, 5, &n);
    double most = 0, worst = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)want[i]));
        worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
    }
    printf("%s, %s: largest logit %.3f, worst difference %.2e\n", c->arch_name, qr_dtype_name(qr_model_weight_dtype(cuda.model)), most, worst);
    cr_assert(worst <= bound * most, "%.3e of %.3e", worst, most);
    cr_assert_eq(memcmp(got, cut, n * sizeof *got), 0, "chunks show");
    qr_free(want), qr_free(got), qr_free(cut), qr_free(ids);
    qr_lora_free(lora[1]);
    rig_close(&cuda);
    qr_lora_free(lora[0]);
    rig_close(&ref);
}

static void check_model(const struct qr_model_config *config, enum qr_compute compute, enum qr_quantize quantize, enum qr_kv_cache kv, double bound)
{
    struct temp_model t = temp_model_make(config, QR_BF16);
    check_dir(&t, config, compute, quantize, kv, bound, NULL);
    temp_model_remove(&t);
}

static void check(enum qr_arch arch, enum qr_compute compute, enum qr_quantize quantize, enum qr_kv_cache kv, double bound)
{
    const struct qr_model_config c = small(arch);
    check_model(&c, compute, quantize, kv, bound);
}

Test(cuda_model, bf16_weights_give_the_logits_of_the_reference)
{
    use_emulated();
    check(QR_ARCH_QWEN2, QR_COMPUTE_BF16, QR_QUANTIZE_NONE, QR_KV_CACHE_AUTO, 1e-2);
}

Test(cuda_model, rounded_weights_and_an_int8_cache_give_the_logits_of_the_reference)
{
    use_emulated();
    check(QR_ARCH_LLAMA, QR_COMPUTE_AUTO, QR_QUANTIZE_W4A16, QR_KV_CACHE_INT8, 1e-2);
}

Test(cuda_model, fp8_weights_and_an_fp8_cache_give_the_logits_of_the_reference)
{
    use_emulated();
    struct qr_model_config c = small(QR_ARCH_LLAMA);
    for (int tied = 0; tied < 2; tied++) {
        c.tied_head = tied;
        check_model(&c, QR_COMPUTE_AUTO, QR_QUANTIZE_FP8, QR_KV_CACHE_FP8, 1e-2);
    }
}

/* Norms of heads; norms behind halves and two rotations; caps; a table of positions, LayerNorms and units without gates; LayerNorms without. */
Test(cuda_model, families_with_f32_weights_give_the_logits_of_the_reference)
{
    static const enum qr_arch arch[] = {QR_ARCH_QWEN3, QR_ARCH_GEMMA3, QR_ARCH_GEMMA2, QR_ARCH_GPT2, QR_ARCH_STABLELM};
    use_emulated();
    for (int i = 0; i < QR_COUNT(arch); i++) {
        struct qr_model_config c = small(arch[i]);
        c.n_embd = 40;
        c.n_ffn = 24;
        c.n_vocab = 33;
        check_model(&c, QR_COMPUTE_F32, QR_QUANTIZE_NONE, QR_KV_CACHE_AUTO, 1e-5);
    }
}

/* A checkpoint of 4 bits, which stays as it is in memory. */
Test(cuda_model, a_quantized_checkpoint_gives_the_logits_of_the_reference)
{
    const struct qr_quantize_options o = {.type = QR_ROUNDING_INT4, .group = 32};
    struct qr_model_config c = small(QR_ARCH_QWEN3);
    struct qr_tensor_files *st;
    struct qr_quantize_report report;
    struct qr_err err;
    use_emulated();
    c.n_embd = c.n_ffn = 64;
    struct temp_model plain = temp_model_make(&c, QR_BF16), coded;
    temp_dir_make(coded.dir, "coded");
    cr_assert_eq(qr_tensor_files_open(&st, plain.dir, NULL, &err), 0, "%s", err.msg);
    quantized_dir_write(coded.dir, st, &c, &o, &report);
    qr_tensor_files_close(st);
    check_dir(&coded, &c, QR_COMPUTE_AUTO, QR_QUANTIZE_NONE, QR_KV_CACHE_AUTO, 1e-2, NULL);
    temp_model_remove(&coded);
    temp_model_remove(&plain);
}

Test(cuda_model, an_adapter_gives_the_logits_of_the_reference_to_rows_that_have_it)
{
    struct qr_model_config c = small(QR_ARCH_LLAMA);
    const struct lora_make m = {.rank = 5, .alpha = 8, .seed = 3, .dtype = QR_F32};
    struct qr_err err = {0};
    char dir[64];
    use_emulated();
    c.n_embd = 40;
    c.n_ffn = 24;
    struct temp_model t = temp_model_make(&c, QR_BF16);
    temp_dir_make(dir, "adapter");
    lora_make(dir, &c, &m);
    check_dir(&t, &c, QR_COMPUTE_BF16, QR_QUANTIZE_NONE, QR_KV_CACHE_AUTO, 1e-2, dir);
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
    temp_model_remove(&t);
}

Test(cuda_model, experts_give_the_logits_of_the_reference)
{
    use_emulated();
    struct qr_model_config c = small(QR_ARCH_QWEN2_MOE);
    c.n_embd = 64;
    c.n_vocab = 33;
    check_model(&c, QR_COMPUTE_BF16, QR_QUANTIZE_NONE, QR_KV_CACHE_AUTO, 1e-2);
}

Test(cuda_model, what_cuda_has_no_kernels_for_is_refused_by_name)
{
    use_emulated();
    const struct qr_backend_options bo = {.device = "cuda"};
    struct qr_model_config c = small(QR_ARCH_LLAMA);
    struct temp_model t = temp_model_make(&c, QR_BF16);
    struct qr_backend *be;
    struct qr_model *m;
    struct qr_err err = {0};
    cr_assert_eq(qr_backend_open(&be, &bo, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_model_open(&m, t.dir, be, &(struct qr_model_options){.quantize = QR_QUANTIZE_INT8}, &err), QR_E_UNSUPPORTED);
    cr_assert(strstr(err.msg, "CUDA kernels compute with ") && strstr(err.msg, "not int8"), "%s", err.msg);
    temp_model_remove(&t);
    qr_backend_close(be);
}
