/* A whole model on CUDA's kernels and the emulated device: the logits of the reference kernels, and the same bits however a prompt is cut. */
#include <dlfcn.h>

#include "tests/cuda_emu/emu.h"
#include "tests/device/device.h"
#include "tests/loader/quantized_dir.h"
#include "model/lora.h"
#include "tests/lora_make.h"
#include "tests/model/rig.h"

enum { N_IDS = 18, SEED = 11 };

#if defined(__SANITIZE_ADDRESS__) /* ten times slower, and the emulated device looks at every access in release, too: here each kernel runs, and not twice */
#define SANITIZED true
#else
#define SANITIZED false
#endif

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
    float *want = play(&ref, ids, N_IDS, &n), *got = play(&cuda, ids, N_IDS, &n), *cut = SANITIZED ? NULL : play(&cuda, ids, 5, &n);
    double most = 0, worst = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)want[i]));
        worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
    }
    printf("%s, %s: largest logit %.3f, worst difference %.2e\n", c->arch_name, qr_dtype_name(qr_model_weight_dtype(cuda.model)), most, worst);
    cr_assert(worst <= bound * most, "%.3e of %.3e", worst, most);
    cr_assert(SANITIZED || memcmp(got, cut, n * sizeof *got) == 0, "chunks show");
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

/* Its kernels begin early, and the copy engine reads keys and values that kernels in front of them store: the emulated device reports a read too early. */
Test(cuda_model, attention_by_wgmma_gives_the_logits_of_the_reference)
{
    use_emulated();
    setenv("QUIRE_CUDA_HOPPER", "1", 1);
    check(QR_ARCH_LLAMA, QR_COMPUTE_BF16, QR_QUANTIZE_NONE, QR_KV_CACHE_AUTO, 1e-2);
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

/* Norms of heads; norms behind halves and two rotations; caps; a table of positions, LayerNorms and units without gates; LayerNorms without;
 * sinks, clamped gates and biases of experts. */
Test(cuda_model, families_with_f32_weights_give_the_logits_of_the_reference)
{
    static const enum qr_arch arch[] = {QR_ARCH_QWEN3, QR_ARCH_GEMMA3,   QR_ARCH_GEMMA2,
                                        QR_ARCH_GPT2,  QR_ARCH_STABLELM, QR_ARCH_GPT_OSS};
    use_emulated();
    for (int i = 0; i < QR_COUNT(arch); i++) {
        struct qr_model_config c = small(arch[i]);
        c.n_embd = 40;
        c.n_ffn = c.moe.n_ffn = 24;
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

static struct qr_emu_counts counts(void)
{
    void *lib = dlopen(getenv("QUIRE_CUDA_LIB"), RTLD_NOW | RTLD_NOLOAD);
    struct qr_emu_counts (*f)(void);
    cr_assert_not_null(lib);
    *(void **)&f = dlsym(lib, "qr_emu_counts");
    cr_assert_not_null(f);
    const struct qr_emu_counts c = f();
    dlclose(lib);
    return c;
}

/* Launches of a step of one new token for each of n_rows sequences. */
static int64_t step_launches(enum qr_arch arch, int32_t n_layers, int32_t n_rows, enum qr_kv_cache kv)
{
    struct qr_model_config c = small(arch);
    const int32_t id = 5;
    struct rig_seq seq[RIG_SEQS_MAX] = {0};
    struct rig_item item[RIG_SEQS_MAX] = {0};
    struct rig r;
    c.n_layers = n_layers;
    struct temp_model t = temp_model_make(&c, QR_BF16);
    rig_open(&r, t.dir, (struct rig_options){.device = "cuda", .compute = QR_COMPUTE_BF16, .kv_cache = kv, .n_blocks = RIG_SEQS_MAX});
    for (int32_t i = 0; i < n_rows; i++) {
        seq[i] = rig_seq_new(&r, i, NULL);
        item[i] = (struct rig_item){&seq[i], &id, 1, RIG_LAST};
    }
    const int64_t before = counts().launches;
    qr_free(rig_step(&r, item, n_rows));
    const int64_t n = counts().launches - before;
    for (int32_t i = 0; i < n_rows; i++)
        rig_seq_free(&seq[i]);
    rig_close(&r);
    temp_model_remove(&t);
    return n;
}

/* Of a layer: q, k, v with the norm before them and the way to the cache behind them; attention; the product onto the residual stream; norm, gates and ups and
 * their unit; the product onto the stream. Beside them embedding, angles, and the head with its norm. */
Test(cuda_model, a_decode_step_has_five_launches_a_layer_and_three_beside_them)
{
    static const struct {
        enum qr_arch arch;
        int32_t n_layers, n_rows;
        enum qr_kv_cache kv;
        int32_t launches;
    } cases[] = {{QR_ARCH_LLAMA, 1, 1, QR_KV_CACHE_AUTO, 5 + 3},
                 {QR_ARCH_LLAMA, 3, 8, QR_KV_CACHE_AUTO, 3 * 5 + 3},
                 {QR_ARCH_QWEN2, 2, 1, QR_KV_CACHE_AUTO, 2 * 5 + 3},      /* with biases */
                 {QR_ARCH_QWEN3, 2, 1, QR_KV_CACHE_AUTO, 2 * 6 + 3},      /* norms of heads want whole heads: a launch of their own */
                 {QR_ARCH_LLAMA, 2, 1, QR_KV_CACHE_INT8, 2 * 6 + 3},      /* so do scales of the cache */
                 {QR_ARCH_LLAMA, 2, 9, QR_KV_CACHE_AUTO, 2 * 8 + 3 + 1}}; /* more rows become bf16 in launches of their own: three, and one for the head */
    use_emulated();
    for (int i = SANITIZED; i < QR_COUNT(cases); i += SANITIZED ? 2 : 1) {
        const int64_t n = step_launches(cases[i].arch, cases[i].n_layers, cases[i].n_rows, cases[i].kv);
        cr_assert_eq(n, cases[i].launches, "case %d: %d launches, expected %d", i, (int)n, cases[i].launches);
    }
}

enum { SLOTS = 2, SEQS = 3, STEPS = 6 };

static void fill_slot(struct qr_lora *l, int32_t slot, const struct qr_model_config *c, const char *dir, uint64_t seed)
{
    struct qr_lora_file *f;
    struct qr_err err = {0};
    lora_make(dir, c, &(struct lora_make){.rank = 3 + (int32_t)seed % 4, .alpha = 8, .seed = seed, .dtype = QR_F32});
    cr_assert_eq(qr_lora_file_open(&f, dir, NULL, qr_lora_file_max(l), &err), 0, "%s", err.msg);
    cr_assert_eq(qr_lora_fill(l, slot, f, &err), 0, "%s", err.msg);
    qr_lora_file_close(f);
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
}

/* Sequences that go from adapter to adapter, one of which another takes the place of meanwhile. Logits of all steps; *repeated: steps that were graphs. */
static float *play_adapters(const struct temp_model *t, const struct qr_model_config *c, bool records, size_t *n, int64_t *repeated)
{
    static const int32_t adapter[STEPS][SEQS] = {{1, 0, 2}, {1, 0, 2}, {1, 0, 2}, {2, 1, 0}, {0, 2, 2}, {1, 1, 1}};
    struct rig r;
    struct qr_lora *l;
    struct qr_err err = {0};
    char dir[64];
    setenv("QUIRE_CUDA_GRAPHS", records ? "1" : "0", 1);
    rig_open(&r, t->dir, (struct rig_options){.device = "cuda", .compute = QR_COMPUTE_BF16, .n_blocks = 16});
    cr_assert_eq(qr_lora_new(&l, r.model, r.be, SLOTS, 8, 16, &err), 0, "%s", err.msg);
    r.exec.lora = l;
    temp_dir_make(dir, "adapter");
    fill_slot(l, 0, c, dir, 1);
    fill_slot(l, 1, c, dir, 2);
    const size_t each = (size_t)SEQS * (size_t)rig_vocab(&r);
    float *all = qr_alloc(STEPS * each, sizeof *all);
    struct rig_seq seq[SEQS];
    for (int32_t i = 0; i < SEQS; i++)
        seq[i] = rig_seq_new(&r, 3 * i, NULL);
    const int64_t before = counts().graph_launches;
    for (int32_t s = 0; s < STEPS; s++) {
        struct rig_item item[SEQS] = {0};
        const int32_t ids[SEQS] = {s, s + 1, s + 2};
        if (s == 4)
            fill_slot(l, 1, c, dir, 3);
        for (int32_t i = 0; i < SEQS; i++) {
            seq[i].adapter = adapter[s][i];
            item[i] = (struct rig_item){&seq[i], &ids[i], 1, RIG_LAST};
        }
        float *part = rig_step(&r, item, SEQS);
        memcpy(all + (size_t)s * each, part, each * sizeof *part);
        qr_free(part);
    }
    *repeated = counts().graph_launches - before;
    *n = STEPS * each;
    for (int32_t i = 0; i < SEQS; i++)
        rig_seq_free(&seq[i]);
    qr_lora_free(l);
    rig_close(&r);
    return all;
}

Test(cuda_model, steps_of_rows_with_adapters_are_repeated_whatever_adapters_those_are)
{
    struct qr_model_config c = small(QR_ARCH_LLAMA);
    size_t n, m;
    int64_t none, repeated;
    use_emulated();
    c.n_embd = 40;
    c.n_ffn = 24;
    struct temp_model t = temp_model_make(&c, QR_BF16);
    float *want = play_adapters(&t, &c, false, &n, &none), *got = play_adapters(&t, &c, true, &m, &repeated);
    cr_assert_eq(none, 0);
    cr_assert_eq(repeated, STEPS - 1, "the first is launched kernel by kernel, and %d of %d were repeated", (int)repeated, STEPS - 1);
    cr_assert_eq(n, m);
    cr_assert_eq(memcmp(want, got, n * sizeof *got), 0, "a repeated step has other bits");
    cr_assert_neq(memcmp(got, got + n / STEPS, n / STEPS * sizeof *got), 0);
    qr_free(want), qr_free(got);
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
