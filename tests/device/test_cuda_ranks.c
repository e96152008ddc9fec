/* A model shared out to the devices of several processes (emulated, with a NCCL of their own): logits of one device but for the order of two sums a layer,
 * answers that depend on nobody else, and a process that dies. */
#include <signal.h>

#include "base/clock.h"
#include "model/repeat.h"
#include "tests/device/device.h"
#include "tests/device/processes.h"
#include "tests/device/requests.h"
#include "tests/lora_make.h"
#include "tests/engine/cases.h"
#include "tests/soon.h"

enum { N_IDS = 4, N_BESIDE = 2, SEED = 12 };

#if defined(__SANITIZE_ADDRESS__)
#define SLOWER 5
#else
#define SLOWER 1
#endif

/* ---- logits ---- */

struct model {
    const char *dir, *adapter; /* adapter NULL: none */
    struct rig_options o;
};

static int follow_model(struct qr_comm *comm, void *arg)
{
    const struct model *m = arg;
    struct rig_options o = m->o;
    struct rig r;
    struct qr_err err;
    o.comm = comm;
    rig_open(&r, m->dir, o);
    const int rc = qr_exec_follow(&r.exec, &err);
    rig_close(&r);
    return rc;
}

/* What m names into the first slot of all ranks. */
static void adapt(const struct model *m, struct rig *r, int32_t n)
{
    struct qr_lora_file *f;
    struct qr_err err;
    cr_assert_eq(qr_lora_file_open(&f, m->adapter, NULL, qr_lora_file_max(r->lora), &err), 0, "%s", err.msg);
    cr_assert_eq(qr_lora_fill(r->lora, 0, f, &err), 0, "%s", err.msg);
    for (int32_t rank = 1; rank < n; rank++) {
        struct qr_lora_piece p = {.rank = rank, .total = qr_lora_pack(r->lora, rank, f)};
        p.n = p.total;
        qr_exec_send_piece(&r->exec, &p, qr_lora_packed(r->lora));
    }
    qr_lora_file_close(f);
}

/* Logits of all positions on n devices. One token at a time: from the second on, steps are what the device has recorded. */
static float *logits_of(const struct model *m, int32_t n, const int32_t *ids, int32_t chunk)
{
    struct processes p;
    struct rig_options o = m->o;
    struct rig r;
    if (n > 1) {
        processes_begin(&p, n, follow_model, (void *)(uintptr_t)m);
        o.comm = &p.comm;
    }
    rig_open(&r, m->dir, o);
    struct rig_seq s = rig_seq_new(&r, 3, NULL);
    s.adapter = m->adapter != NULL;
    if (m->adapter)
        adapt(m, &r, n);
    float *all = rig_prompt(&r, &s, ids, N_IDS, chunk);
    cr_expect(chunk > 1 || r.exec.repeat[0].record != NULL, "a step that adds over ranks is recorded");
    rig_seq_free(&s);
    rig_close(&r);
    if (n > 1)
        cr_expect_eq(processes_end(&p), 0);
    return all;
}

/* What differs is the order of two sums: `bound` of the largest logit, as between CUDA and the reference (test_cuda_model.c), which differ in every sum. */
static void check_logits(enum qr_arch arch, int32_t n_ranks, enum qr_compute compute, double bound, bool adapted)
{
    struct qr_model_config c = qr_model_config_small(arch);
    struct qr_rng rng = {.seed = SEED};
    c.n_embd = c.n_ffn = 64;
    c.n_layers = 1;
    c.n_heads = c.n_kv_heads = n_ranks;
    c.head_dim = 16;
    c.n_vocab = 95;
    struct temp_model t = temp_model_make(&c, QR_BF16);
    char dir[100];
    struct qr_err err;
    snprintf(dir, sizeof dir, "%s/adapter", t.dir);
    if (adapted)
        lora_make(dir, &c, &(struct lora_make){.rank = 5, .alpha = 8, .seed = 3});
    const struct model m = {t.dir, adapted ? dir : NULL, {.device = "cuda", .compute = compute, .n_blocks = 8, .rows_max = adapted ? 16 : 0, .slots = adapted}};
    const size_t n = (size_t)N_IDS * (size_t)c.n_vocab;
    int32_t *ids = random_ids(&rng, N_IDS, c.n_vocab);
    use_emulated();
    float *one = logits_of(&m, 1, ids, N_IDS), *some = logits_of(&m, n_ranks, ids, N_IDS), *steps = logits_of(&m, n_ranks, ids, 1);
    double most = 0, worst = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)one[i]));
        worst = fmax(worst, fabs((double)one[i] - (double)some[i]));
    }
    printf("%s, %d devices: largest logit %.3f, worst difference %.2e\n", c.arch_name, n_ranks, most, worst);
    cr_expect((worst > 0 || compute == QR_COMPUTE_BF16) && worst <= bound * most, "%.3e of %.3e", worst, most);
    cr_expect_eq(memcmp(some, steps, n * sizeof *some), 0, "chunks, or recorded steps, show");
    qr_free(one), qr_free(some), qr_free(steps), qr_free(ids);
    if (adapted)
        cr_expect_eq(qr_dir_remove(dir, &err), 0);
    temp_model_remove(&t);
}

Test(cuda_ranks, two_devices_give_the_logits_of_one_and_the_same_bits_in_recorded_steps, .timeout = 240)
{
    check_logits(QR_ARCH_GEMMA2, 2, QR_COMPUTE_BF16, 1e-2, false);
}

Test(cuda_ranks, three_devices_give_the_logits_of_one_and_the_same_bits_in_recorded_steps, .timeout = 240)
{
    check_logits(QR_ARCH_LLAMA, 3, QR_COMPUTE_F32, 1e-5, false);
}

Test(cuda_ranks, two_devices_with_an_adapter_give_the_logits_of_one_and_the_same_bits_in_recorded_steps, .timeout = 240)
{
    check_logits(QR_ARCH_LLAMA, 2, QR_COMPUTE_F32, 1e-5, true);
}

/* ---- the engine ---- */

static int follow_engine(struct qr_comm *comm, void *arg)
{
    const struct setup *s = arg;
    const struct qr_backend_options bo = {.device = "cuda", .n_threads = 1};
    const struct qr_model_options mo = {.compute = s->compute, .comm = comm};
    struct qr_err err;
    return qr_engine_follow(s->dir, &s->config, &bo, &mo, &err);
}

static void setup_small(struct setup *s, const struct temp_model *t)
{
    setup_init(s, NULL);
    s->dir = t->dir;
    s->device = "cuda";
    s->n_threads = 1;
    s->compute = QR_COMPUTE_BF16;
    s->config.kv_tokens = 512;
    s->config.step_tokens_max = s->config.running_max = 16;
}

/* Requests 1 and 2 of requests.h, side by side or each by itself. */
static void answers_of(struct setup *s, struct flight out[N_BESIDE], bool together)
{
    struct processes p;
    struct world w;
    struct qr_err err;
    int32_t prompt[N_PROMPT];
    processes_begin(&p, 2, follow_engine, s);
    s->comm = &p.comm;
    world_open(&w, s);
    for (int i = 0; i < N_BESIDE; i++) {
        const struct qr_sampling sampling = sampling_of(i + 1);
        const struct guided guided = guided_of(i + 1);
        prompt_of(i, prompt);
        cr_assert_eq(flight_start_guided(&w, &out[i], &sampling, prompt, N_PROMPT, 1, 0, &guided, &err), 0, "%s", err.msg);
        if (!together)
            flight_finish(&w, &out[i]);
    }
    for (int i = 0; i < N_BESIDE; i++)
        flight_finish(&w, &out[i]);
    world_close(&w);
    s->comm = NULL;
    cr_expect_eq(processes_end(&p), 0);
}

Test(cuda_ranks, what_two_devices_draw_depends_on_nobody_who_runs_beside_and_on_no_guesses, .timeout = 240)
{
    static struct flight together[N_BESIDE], alone[N_BESIDE];
    struct guesser guesser = {0};
    int32_t prompt[N_BESIDE][N_PROMPT];
    struct setup s;
    if (!data_path("models/stories260K"))
        cr_skip_test("no conformance data (QUIRE_DATA)");
    use_emulated();
    const struct temp_model t = small_model(2);
    setup_small(&s, &t);
    answers_of(&s, alone, false);
    for (int i = 0; i < N_BESIDE; i++) {
        prompt_of(i, prompt[i]);
        guesser_learn(&guesser, prompt[i], N_PROMPT, &alone[i].answer[0]);
    }
    guesser_set(&guesser, GUESS_RIGHT, &s.config);
    answers_of(&s, together, true);
    for (int i = 0; i < N_BESIDE; i++) {
        cr_expect_eq(together[i].answer[0].n, 3 + i);
        cr_expect(answers_equal(&together[i].answer[0], &alone[i].answer[0]), "request %d", i);
    }
    small_model_remove(&t);
}

/* What the host's memory of each process keeps of its device's cache; and a vector, which rank 0 makes of what all have computed. */
Test(cuda_ranks, a_prompt_comes_back_from_the_pinned_memory_of_two_processes_and_so_do_vectors, .timeout = 240)
{
    static struct flight f[3];
    double got[3][64];
    struct setup s;
    struct processes p;
    struct world w;
    int32_t prompt[N_PROMPT];
    if (!data_path("models/stories260K"))
        cr_skip_test("no conformance data (QUIRE_DATA)");
    use_emulated();
    const struct temp_model t = small_model(2);
    setup_small(&s, &t);
    s.config.running_max = s.config.block_tokens = 4;
    s.config.step_tokens_max = 64;
    processes_begin(&p, 2, follow_engine, &s);
    s.comm = &p.comm;
    check_second_tier(&s);
    cr_expect_eq(processes_end(&p), 0);
    processes_begin(&p, 2, follow_engine, &s);
    s.comm = &p.comm;
    world_open(&w, &s);
    prompt_of(1, prompt);
    for (int i = 0; i < 3; i++) /* the last rows of one token and of two, and their mean */
        flight_embed(&w, &f[i], i == 2 ? QR_POOLING_MEAN : QR_POOLING_LAST, prompt, i == 0 ? 1 : 2, got[i]);
    for (int i = 0; i < 3; i++)
        flight_finish(&w, &f[i]);
    world_close(&w);
    s.comm = NULL;
    cr_expect_eq(processes_end(&p), 0);
    for (int k = 0; k < 64; k++) /* another number of rows may be another kernel: as far as CUDA is from the reference (test_cuda_model.c) */
        cr_expect(fabs(got[2][k] - (got[0][k] + got[1][k]) / 2) <= 1e-2 * fmax(1, fabs(got[2][k])), "%g of %g and %g", got[2][k], got[0][k], got[1][k]);
    cr_expect_neq(memcmp(got[0], got[1], sizeof got[0]), 0);
    small_model_remove(&t);
}

Test(cuda_ranks, a_process_that_is_killed_ends_every_request_with_an_error_soon, .timeout = 240)
{
    static struct flight f[2];
    if (!data_path("models/stories260K"))
        cr_skip_test("no conformance data (QUIRE_DATA)");
    enum { N_KILLED = 120 };
    int n_failed = 0;
    use_emulated();
    setenv("QUIRE_EMU_NCCL", "silent", 1); /* as NCCL, whose devices wait for ever */
    const struct temp_model t = small_model(2);
    struct setup s;
    struct processes p;
    struct world w;
    struct qr_err err = {0};
    int32_t prompt[N_PROMPT];
    setup_small(&s, &t);
    processes_begin(&p, 2, follow_engine, &s);
    s.comm = &p.comm;
    world_open(&w, &s);
    for (int i = 0; i < 2; i++) {
        struct qr_sampling sampling = sampling_of(i);
        sampling.max_tokens = N_KILLED;
        prompt_of(i, prompt);
        cr_assert_eq(flight_start(&w, &f[i], &sampling, prompt, N_PROMPT, 1, &err), 0, "%s", err.msg);
    }
    while (f[0].answer[0].n < 2)
        world_pump(&w, 1000);
    cr_expect(!qr_engine_lost(w.engine, &err));
    const int64_t began = qr_clock_us();
    kill(p.pid[1], SIGKILL);
    for (int i = 0; i < 2; i++) {
        flight_finish(&w, &f[i]);
        n_failed += f[i].answer[0].finish == QR_FINISH_ERROR; /* both, but that a test that was put aside may come when one has all its tokens */
        cr_expect(f[i].answer[0].finish == QR_FINISH_ERROR || f[i].answer[0].n == N_KILLED);
    }
    cr_expect_gt(n_failed, 0);
    const int64_t took = qr_clock_us() - began;
    printf("after %.0f ms\n", 1e-3 * (double)took);
    cr_expect_lt(took, TEST_SOON_US(2000000) * SLOWER);
    cr_expect(qr_engine_lost(w.engine, &err) && strstr(err.msg, "rank 1") && strstr(err.msg, "died"), "%s", err.msg);
    world_close(&w);
    cr_expect_eq(processes_end(&p), 1);
    small_model_remove(&t);
}
