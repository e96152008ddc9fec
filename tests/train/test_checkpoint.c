/* Checkpoints: a resumed run goes on with the same bits, what is saved is what is served, and a checkpoint that does not fit says why. */
#include "tests/train/run.h"

#define SEED 60723

static const enum qr_dtype types[] = {QR_F32, QR_BF16};

/* Six steps at once; or three, a save, a load into parameters of another seed, three more. */
static void check_resume(enum qr_arch arch, enum qr_dtype compute)
{
    const struct qr_model_config c = tiny_config(arch);
    struct temp_dir d = temp_dir_new();
    struct run a = run_new(&c, compute, 1), b = run_new(&c, compute, 2);
    char path[QR_PATH_MAX];
    struct qr_err err = {0};
    struct qr_checkpoint_state state;
    for (int i = 0; i < 3; i++)
        run_step(&a), run_step(&b);
    cr_assert_neq(run_digest(&a), run_digest(&b));
    run_save(&a, d.path, 0);
    cr_assert_eq(qr_checkpoint_latest(d.path, path, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_checkpoint_load(path, b.p, &b.o, &state, &err), 0, "%s", err.msg);
    cr_assert_eq(run_digest(&a), run_digest(&b));
    for (int i = 0; i < 3; i++) {
        const double x = run_step(&a), y = run_step(&b);
        cr_assert_eq(x, y, "%s, %s: step %d loses %.17g at once and %.17g resumed", c.arch_name, qr_dtype_name(compute), 4 + i, x, y);
        cr_assert_eq(run_digest(&a), run_digest(&b));
    }
    run_drop(&a), run_drop(&b);
    temp_dir_remove(&d);
}

Test(checkpoint, a_resumed_run_continues_bit_for_bit)
{
    for (int t = 0; t < 2; t++) {
        check_resume(QR_ARCH_LLAMA, types[t]);
        check_resume(QR_ARCH_QWEN2, types[t]);
        check_resume(QR_ARCH_QWEN3, types[t]);
    }
}
