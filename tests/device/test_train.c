/* Training on a device whose memory the host cannot reach: losses, values and moments are those of the same kernels on the processor, and so are the files. */
#include "base/file.h"
#include "base/files/map_file.h"
#include "tests/device/device.h"
#include "tests/train/run.h"
#include "train/find_bad.h"

enum { SEED = 9 };

#if defined(__SANITIZE_ADDRESS__) /* a second step reads and writes what the first does */
#define N_STEPS 1
#else
#define N_STEPS 2
#endif

static struct run device_run(const struct qr_model_config *c, enum qr_dtype compute, enum qr_recompute recompute, enum qr_optimizer kind, uint64_t init)
{
    struct qr_backend *be = NULL;
    struct qr_err err = {0};
    const struct qr_backend_options o = {.device = "cuda", .n_threads = 1};
    cr_assert_eq(qr_backend_open(&be, &o, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_backend_trains(be, &err), 0, "%s", err.msg);
    return run_new_on(be, c, compute, recompute, kind, init);
}

static void same_steps(struct run *cpu, struct run *device)
{
    cr_assert_eq(run_digest(cpu), run_digest(device), "as opened");
    for (int i = 0; i < N_STEPS; i++) {
        const double x = run_step(cpu), y = run_step(device);
        cr_assert_eq(x, y, "step %d loses %.17g on the processor and %.17g on the device", i, x, y);
        cr_assert_eq(run_digest(cpu), run_digest(device), "behind step %d", i);
    }
}

static void same(enum qr_arch arch, enum qr_dtype compute, enum qr_recompute recompute, enum qr_optimizer kind)
{
    struct qr_model_config c = tiny_config(arch);
    c.logits_divisor = arch == QR_ARCH_GRANITE ? 8 : 0;
    struct run cpu = run_new_on(open_backend("ref", 1), &c, compute, recompute, kind, SEED);
    struct run device = device_run(&c, compute, recompute, kind, SEED);
    same_steps(&cpu, &device);
    run_drop(&cpu), run_drop(&device);
}

Test(train, is_the_same_on_a_device_that_the_host_cannot_look_into)
{
    use_discrete("ref", NULL);
    same(QR_ARCH_LLAMA, QR_BF16, QR_RECOMPUTE_NONE, QR_OPTIMIZER_ADAMW);
    same(QR_ARCH_QWEN2, QR_F32, QR_RECOMPUTE_SELECTIVE, QR_OPTIMIZER_ADAMW);
    same(QR_ARCH_QWEN3, QR_BF16, QR_RECOMPUTE_FULL, QR_OPTIMIZER_MUON);
    same(QR_ARCH_GRANITE, QR_F32, QR_RECOMPUTE_NONE, QR_OPTIMIZER_ADAMW);
}

/* Steps on CUDA's kernels and the emulated device beside the reference's. The first loss differs by the order of its sums (and with bf16 by numbers rounded to
 * their other neighbour), later ones by what that makes of gradients too: AdamW's first steps are of the size of the rate whatever a gradient's last bits. */
static void near(enum qr_arch arch, enum qr_dtype compute, int n_steps, double bound)
{
    struct qr_model_config c = tiny_config(arch);
    c.n_layers = 1;
    c.n_heads = 2;
    c.n_kv_heads = 1;
    c.head_dim = 64; /* what CUDA's attention has */
    struct run cpu = run_new_on(open_backend("ref", 1), &c, compute, QR_RECOMPUTE_NONE, QR_OPTIMIZER_ADAMW, SEED);
    struct run cuda = device_run(&c, compute, QR_RECOMPUTE_NONE, QR_OPTIMIZER_ADAMW, SEED);
    for (int i = 0; i < n_steps; i++) {
        const double x = run_step(&cpu), y = run_step(&cuda);
        printf("%s, %s, step %d: loss %.9g, on the emulated device %.9g\n", c.arch_name, qr_dtype_name(compute), i, x, y);
        cr_assert(fabs(x - y) <= bound * x, "step %d: %.9g and %.9g", i, x, y);
    }
    run_drop(&cpu), run_drop(&cuda);
}

Test(train, steps_on_the_emulated_device_are_those_of_the_reference)
{
    use_emulated();
    near(QR_ARCH_QWEN3, QR_F32, 1, 1e-7);
    near(QR_ARCH_QWEN2, QR_BF16, N_STEPS, 1e-5);
}

/* Both files of a checkpoint, compared as bytes. */
static void same_file(const char *a, const char *b, const char *name)
{
    struct qr_map_file x, y;
    struct qr_err err = {0};
    char path[2][QR_PATH_MAX];
    cr_assert(qr_path_join(path[0], a, name, &err) == 0 && qr_path_join(path[1], b, name, &err) == 0);
    cr_assert(qr_map_file_open(&x, path[0], SIZE_MAX, &err) == 0 && qr_map_file_open(&y, path[1], SIZE_MAX, &err) == 0, "%s", err.msg);
    cr_assert(x.n_bytes == y.n_bytes && memcmp(x.data, y.data, x.n_bytes) == 0, "%s", name);
    qr_map_file_close(&x), qr_map_file_close(&y);
}

Test(train, a_checkpoint_of_a_device_is_that_of_the_processor_and_goes_on_there)
{
    const struct qr_model_config c = tiny_config(QR_ARCH_QWEN2);
    const struct temp_dir a = temp_dir_new(), b = temp_dir_new();
    char path[2][QR_PATH_MAX];
    struct qr_err err = {0};
    use_discrete("ref", NULL);
    struct run cpu = run_new_on(open_backend("ref", 1), &c, QR_BF16, QR_RECOMPUTE_NONE, QR_OPTIMIZER_ADAMW, SEED);
    struct run device = device_run(&c, QR_BF16, QR_RECOMPUTE_NONE, QR_OPTIMIZER_ADAMW, SEED);
    same_steps(&cpu, &device);
    cr_assert(run_try_save(&cpu, a.path, 0, path[0], &err) == 0 && run_try_save(&device, b.path, 0, path[1], &err) == 0, "%s", err.msg);
    same_file(path[0], path[1], "model.safetensors");
    same_file(path[0], path[1], "optimizer.safetensors");
    run_drop(&device);
    device = device_run(&c, QR_BF16, QR_RECOMPUTE_NONE, QR_OPTIMIZER_ADAMW, SEED + 1);
    cr_assert_eq(qr_checkpoint_load(path[0], device.p, &device.o, NULL, &err), 0, "%s", err.msg);
    same_steps(&cpu, &device);
    run_drop(&cpu), run_drop(&device);

    /* What is served from it comes from the file in another way. */
    struct rig r;
    rig_open(&r, path[1], (struct rig_options){.device = "cuda"});
    cr_assert_eq(qr_model_weight_dtype(r.model), QR_BF16);
    rig_close(&r);
    temp_dir_remove(&a), temp_dir_remove(&b);
}

Test(train, what_is_not_finite_on_a_device_is_found_there)
{
    const struct qr_model_config c = tiny_config(QR_ARCH_LLAMA);
    char text[QR_FIND_BAD_TEXT];
    use_discrete("ref", NULL);
    struct run r = device_run(&c, QR_F32, QR_RECOMPUTE_NONE, QR_OPTIMIZER_ADAMW, SEED);
    struct qr_train_batch b = random_batch(c.n_vocab, 2, SEED);
    const float huge = 3e38f, bad = NAN;
    const struct qr_param *t = qr_params_find(r.p, "model.layers.1.mlp.down_proj.weight");
    cr_assert_not_null(t);
    qr_train_find_bad(r.t, r.p, &b, text);
    cr_assert_str_eq(text, "the loss; every tensor before it is finite");
    for (int64_t i = 0; i < t->n; i++)
        r.be->mem->put(r.be->queue, (float *)r.p->value + t->first + i, &huge, sizeof huge);
    qr_params_pack(r.p);
    qr_train_find_bad(r.t, r.p, &b, text);
    cr_assert(strstr(text, "the output of linear with model.layers.1.mlp.down_proj.weight in layer 1, row "), "%s", text);
    r.be->mem->put(r.be->queue, (float *)r.p->value + t->first + 7, &bad, sizeof bad);
    qr_train_find_bad(r.t, r.p, &b, text);
    cr_assert_str_eq(text, "model.layers.1.mlp.down_proj.weight, number 7");
    qr_train_batch_release(&b);
    run_drop(&r);
}
