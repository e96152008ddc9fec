/* Training on the devices of two processes (emulated, with a NCCL of their own): gradients of a layer are added beside the rest of the way back, and a run is
 * that of one device, byte for byte. */
#include <signal.h>

#include "tests/device/device.h"
#include "tests/device/processes.h"
#include "tests/train/ranks.h"

#define STEP "compute.device=cuda", "compute.dtype=bf16", "batch.leaves=4", "batch.micro=4", "batch.tokens=16", "data.sequence=16"

/* With a model that an emulated device trains soon. */
static struct world small_world(void)
{
    struct world w = world_new();
    struct qr_model_config c = tiny_config(QR_ARCH_LLAMA);
    struct qr_buf text = {0};
    c.n_layers = 1;
    c.n_embd = 32;
    c.n_ffn = 40;
    c.n_heads = 2;
    c.n_kv_heads = 1;
    c.n_vocab = 100;
    qr_hf_config_write(&text, &c);
    put_file(w.dir.path, "config.json", text.data);
    qr_buf_release(&text);
    return w;
}

/* The comm is closed by the rank, and is nobody's afterwards. */
static int train(struct qr_comm *comm, void *arg)
{
    struct rank *r = arg;
    r->comm = *comm;
    rank_main(r);
    *comm = (struct qr_comm){0};
    return r->rc;
}

static void die(struct rank *r)
{
    (void)r;
    kill(getpid(), SIGKILL);
}

/* A run on two devices; *r is as rank 0 leaves it. Returns how many others did not end well. */
static int32_t on_two(struct rank *r, const struct rank *other)
{
    struct processes p;
    processes_begin(&p, 2, train, (void *)(uintptr_t)other);
    train(&p.comm, r);
    return processes_end(&p);
}

Test(train_ranks, two_devices_give_the_bytes_of_one, .timeout = 240)
{
    use_emulated();
    struct world w = small_world();
    struct rank one = {.w = &w, .more = WITH(STEP), .n_steps = 1, .save = true}, two = one, second = one;
    struct qr_err err;
    qr_comm_open_single(&one.comm);
    rank_main(&one);
    cr_assert_eq(one.rc, 0, "%s", one.err.msg);
    const uint64_t written = files_of(&w, 1);
    char path[300];
    snprintf(path, sizeof path, "%s/step-%08d", w.out, 1);
    cr_assert_eq(qr_dir_remove(path, &err), 0);
    cr_expect_eq(on_two(&two, &second), 0);
    cr_assert_eq(two.rc, 0, "%s", two.err.msg);
    cr_expect_eq(two.digest, one.digest);
    cr_expect_eq(files_of(&w, 1), written);
    world_drop(&w);
}

Test(train_ranks, a_process_that_dies_ends_the_run_and_is_named, .timeout = 240)
{
    use_emulated();
    setenv("QUIRE_EMU_NCCL", "silent", 1);
    struct world w = small_world();
    struct rank two = {.w = &w, .more = WITH(STEP), .n_steps = 1}, second = two;
    second.before = die;
    cr_expect_eq(on_two(&two, &second), 1);
    cr_expect_eq(two.rc, QR_E_CLOSED);
    cr_expect(strstr(two.err.msg, "rank 1") && strstr(two.err.msg, "died"), "%s", two.err.msg);
    world_drop(&w);
}

Test(train_ranks, what_is_cut_into_parts_is_refused_on_devices, .timeout = 240)
{
    use_emulated();
    struct world w = world_new();
    struct session s;
    struct qr_err err = {0};
    cr_expect_eq(try_open(&s, &w, WITH(STEP, "parallel.shard=optimizer"), NULL, &err), QR_E_UNSUPPORTED);
    cr_expect(strstr(err.msg, "what parallel.shard cuts into parts is computed on the processor only; use compute.device: cpu"), "%s", err.msg);
    session_drop(&s);
    world_drop(&w);
}
