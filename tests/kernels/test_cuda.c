/* CUDA's kernels on the emulated device as the program uses them: memory that the host cannot see, a stream that works when somebody waits. What the kernels
 * compute is checked beside the other levels (device_levels). */
#include "tests/kernels/util.h"

#include <fcntl.h>
#include <glob.h>

#include "kernels/cuda/stop.h"
#include "tests/cuda_emu/emu.h"
#include "tests/last_words.h"
#include "tests/run_main.h"

#define SEED 20261

enum { ROWS = 37, HEADS = 3, KV_HEADS = 1, DIM = 64, COLS = (HEADS + 2 * KV_HEADS) * DIM, VOCAB = 50, BLOCKS = 4, BLOCK_TOKENS = 16 };

struct emulation {
    void *lib;
    struct qr_emu_counts (*counts)(void);
    void (*set_order)(enum qr_emu_order order, uint64_t seed);
};

static bool emulation_open(struct emulation *e)
{
    const char *name = getenv("QUIRE_CUDA_EMU_LIB");
    if (!name || access(name, R_OK) != 0) {
        cr_skip_test("no emulated device: no C++ compiler, or not run through ctest");
        return false;
    }
    setenv("QUIRE_CUDA_LIB", name, 1);
    e->lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(e->lib, "%s", dlerror());
    *(void **)&e->counts = dlsym(e->lib, "qr_emu_counts");
    *(void **)&e->set_order = dlsym(e->lib, "qr_emu_set_order");
    cr_assert(e->counts && e->set_order);
    return true;
}

static struct qr_backend *open_cuda(void)
{
    struct qr_err err = {0};
    struct qr_backend *be = NULL;
    const struct qr_backend_options o = {.device = "cuda", .step_rows_max = 64};
    cr_assert_eq(qr_backend_open(&be, &o, &err), 0, "%s", err.msg);
    return be;
}

/* What lies between two products, without them: everything by one backend, in memory of its own. */
struct step {
    float *x, *w, *cos_sin, *dx, *dw;
    uint16_t *table;
    int32_t *ids, *pos, *slot;
    double *freq;
    struct qr_kv_view kv;
};

static void *placed(struct qr_backend *be, const void *from, size_t n)
{
    void *p = be->mem->alloc(n);
    if (from)
        be->mem->put(be->queue, p, from, n);
    return p;
}

static struct step step_new(struct qr_backend *be)
{
    struct qr_rng r = {.seed = SEED};
    uint16_t table[VOCAB * COLS];
    int32_t ids[ROWS], pos[ROWS];
    double freq[DIM / 2];
    float *w = random_floats(&r, COLS), *dx = random_floats(&r, ROWS * COLS);
    for (int i = 0; i < VOCAB * COLS; i++)
        table[i] = qr_f32_to_bf16(random_float(&r));
    for (int i = 0; i < ROWS; i++) {
        ids[i] = (int32_t)qr_rng_below(&r, VOCAB);
        pos[i] = i;
    }
    for (int i = 0; i < DIM / 2; i++)
        freq[i] = pow(10000.0, -2.0 * i / DIM);
    struct step s = {.x = placed(be, NULL, ROWS * COLS * 4), .w = placed(be, w, COLS * 4), .cos_sin = placed(be, NULL, ROWS * DIM * 4),
                     .dx = placed(be, dx, ROWS * COLS * 4), .dw = placed(be, w, COLS * 4), .table = placed(be, table, sizeof table),
                     .ids = placed(be, ids, sizeof ids), .pos = placed(be, pos, sizeof pos), .slot = placed(be, pos, sizeof pos),
                     .freq = placed(be, freq, sizeof freq),
                     .kv = {.dtype = QR_BF16, .n_blocks = BLOCKS, .n_layers = 1, .n_kv_heads = KV_HEADS, .block_tokens = BLOCK_TOKENS, .head_dim = DIM}};
    s.kv.base = placed(be, NULL, BLOCKS * qr_kv_block_bytes(&s.kv));
    qr_free(w), qr_free(dx);
    return s;
}

static void step_drop(struct qr_backend *be, struct step *s)
{
    void *all[] = {s->x, s->w, s->cos_sin, s->dx, s->dw, s->table, s->ids, s->pos, s->slot, s->freq, s->kv.base};
    for (int i = 0; i < QR_COUNT(all); i++)
        be->mem->free(all[i]);
}

static void step_run(struct qr_backend *be, struct step *s)
{
    const struct qr_tensor table = qr_tensor_2d(s->table, QR_BF16, VOCAB, COLS);
    const struct qr_embed_args embed = {.out = s->x, .table = &table, .ids = s->ids, .out_stride = COLS, .n_rows = ROWS, .scale = 0.5f};
    const struct qr_norm_args norm = {.out = s->x, .x = s->x, .w = s->w, .out_stride = COLS, .x_stride = COLS, .n_rows = ROWS, .n_cols = COLS, .eps = 1e-5f};
    const struct qr_rope_table_args angles = {.cos_sin = s->cos_sin, .pos = s->pos, .inv_freq = s->freq, .n_rows = ROWS, .n_rot = DIM, .attn_factor = 1};
    const struct qr_qkv_args qkv = {.x = s->x, .q_norm = s->w, .k_norm = s->w, .cos_sin = s->cos_sin, .kv = &s->kv, .slot = s->slot, .stride = COLS,
                                    .n_rows = ROWS, .n_heads = HEADS, .n_rot = DIM, .eps = 1e-5f};
    const struct qr_kv_copy_args copy = {.kv = &s->kv, .src = 0, .dst = BLOCKS - 1};
    const struct qr_norm_back_args back = {.dx = s->dx, .dw = s->dw, .dy = s->x, .x = s->x, .w = s->w, .dx_stride = COLS, .dy_stride = COLS,
                                           .x_stride = COLS, .n_rows = ROWS, .n_cols = COLS, .eps = 1e-5f};
    be->k->embed(be->queue, &embed);
    be->k->rms_norm(be->queue, &norm);
    be->k->rope_table(be->queue, &angles);
    be->k->qkv(be->queue, &qkv);
    be->k->kv_copy(be->queue, &copy);
    be->b->rms_norm(be->queue, &back);
}

/* x, dx, dw and the cache, one after the other. */
static float *step_results(struct qr_backend *be, struct step *s, int64_t *n)
{
    const int64_t n_kv = (int64_t)(BLOCKS * qr_kv_block_bytes(&s->kv) / sizeof(float));
    *n = 2 * ROWS * COLS + COLS + n_kv;
    float *all = qr_alloc((size_t)*n, sizeof *all);
    be->mem->get(be->queue, all, s->x, ROWS * COLS * 4);
    be->mem->get(be->queue, all + ROWS * COLS, s->dx, ROWS * COLS * 4);
    be->mem->get(be->queue, all + 2 * ROWS * COLS, s->dw, COLS * 4);
    be->mem->get(be->queue, all + 2 * ROWS * COLS + COLS, s->kv.base, (size_t)n_kv * 4);
    return all;
}

Test(cuda, the_order_of_threads_shows_in_no_result)
{
    struct emulation e = {0};
    if (!emulation_open(&e))
        return;
    struct qr_backend *be = open_cuda();
    float *first = NULL;
    for (int k = 0; k < 4; k++) {
        printf("seed %d\n", SEED + k);
        e.set_order(k == 0 ? QR_EMU_FORWARD : k == 1 ? QR_EMU_BACKWARD : QR_EMU_SHUFFLED, (uint64_t)(SEED + k));
        struct step s = step_new(be);
        int64_t n;
        step_run(be, &s);
        float *got = step_results(be, &s, &n);
        cr_assert(!first || same_bits(first, got, n), "order %d", k);
        if (!first)
            first = copy_floats(got, n);
        qr_free(got);
        step_drop(be, &s);
    }
    qr_free(first);
    qr_backend_close(be);
    dlclose(e.lib);
}

/* Within what one rounding to bf16 of the cache, and sums of 320 terms, can differ by; test_rows has the bounds of each kernel. */
Test(cuda, a_chain_of_kernels_without_a_wait_in_between_agrees_with_ref)
{
    struct emulation e = {0};
    if (!emulation_open(&e))
        return;
    struct qr_backend *be = open_cuda(), *ref = open_level("ref", 1, 0);
    struct step s = step_new(be), o = step_new(ref);
    int64_t n, m;
    step_run(be, &s);
    step_run(ref, &o);
    float *got = step_results(be, &s, &n), *want = step_results(ref, &o, &m);
    cr_assert_eq(n, m);
    const int64_t n_f32 = 2 * ROWS * COLS + COLS;
    double off = 0, size = 0;
    for (int64_t i = 0; i < n_f32; i++) {
        off += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        size += (double)want[i] * (double)want[i];
    }
    cr_assert(sqrt(off / size) <= gamma_n(4 * COLS), "off by %.3g of the norm", sqrt(off / size));
    for (int64_t i = 0; i < 2 * (n - n_f32); i++) {
        const double g = (double)qr_bf16_to_f32(((uint16_t *)(got + n_f32))[i]), w = (double)qr_bf16_to_f32(((uint16_t *)(want + n_f32))[i]);
        cr_assert(fabs(g - w) <= 0x1p-7 * fmax(fabs(g), fabs(w)) + 1e-5, "number %ld of the cache: %.9g, not %.9g", (long)i, g, w);
    }
    qr_free(got), qr_free(want);
    step_drop(be, &s), step_drop(ref, &o);
    qr_backend_close(be);
    qr_backend_close(ref);
    dlclose(e.lib);
}

Test(cuda, launches_neither_allocate_nor_wait)
{
    struct emulation e = {0};
    if (!emulation_open(&e))
        return;
    struct qr_backend *be = open_cuda();
    struct step s = step_new(be);
    step_run(be, &s);
    const struct qr_emu_counts before = e.counts();
    for (int k = 0; k < 3; k++)
        step_run(be, &s);
    const struct qr_emu_counts after = e.counts();
    cr_assert_eq(after.mallocs, before.mallocs);
    cr_assert_eq(after.syncs, before.syncs);
    cr_assert_eq(after.launches, before.launches + 3 * 6); /* kv_copy is a copy, rms_norm backwards two kernels */
    step_drop(be, &s);
    qr_backend_close(be);
    dlclose(e.lib);
}

Test(cuda, a_gpu_that_the_library_has_no_code_for_is_refused_by_name)
{
    struct emulation e = {0};
    struct qr_err err = {0};
    struct qr_backend *be = NULL;
    void (*set_code)(bool there);
    if (!emulation_open(&e))
        return;
    const struct qr_backend_options o = {.device = "cuda"};
    *(void **)&set_code = dlsym(e.lib, "qr_emu_set_code");
    set_code(false);
    cr_assert_eq(qr_backend_open(&be, &o, &err), QR_E_UNSUPPORTED);
    cr_assert(strstr(err.msg, "9.0") && strstr(err.msg, "has code for emulation (CMake: QUIRE_CUDA_ARCHS): no kernel image"), "%s", err.msg);
    set_code(true);
    qr_backend_close(open_cuda());
    dlclose(e.lib);
}

/* The device traps on a row's id that no table has, in the launch; the wait behind it is what fails. */
static void embed_beyond_the_table(const void *arg)
{
    const struct emulation *e = arg;
    void (*set_traps)(bool lose_the_device);
    const int32_t ids[2] = {3, VOCAB};
    *(void **)&set_traps = dlsym(e->lib, "qr_emu_set_traps");
    struct qr_backend *be = open_cuda();
    float *out = be->mem->alloc(2 * COLS * sizeof *out);
    const struct qr_tensor table = qr_tensor_2d(be->mem->alloc(VOCAB * COLS * 2), QR_BF16, VOCAB, COLS);
    int32_t *placed_ids = placed(be, ids, sizeof ids);
    const struct qr_embed_args embed = {.out = out, .table = &table, .ids = placed_ids, .out_stride = COLS, .n_rows = 2, .scale = 1};
    set_traps(true);
    be->k->embed(be->queue, &embed);
    be->mem->sync(be->queue);
}

Test(cuda, a_kernel_that_stops_is_told_by_file_line_block_and_thread)
{
    struct emulation e = {0};
    char said[512];
    if (!emulation_open(&e))
        return;
    const int status = last_words(said, embed_beyond_the_table, &e);
    cr_assert(WIFSIGNALED(status) && strstr(said, "cudaStreamSynchronize(q->stream): unspecified launch failure"), "%s", said);
    const char *stopped = strstr(said, "the device stopped at rows.cu:");
    int line = 0, block = -1, thread = -1;
    cr_assert(stopped && sscanf(stopped, "the device stopped at rows.cu:%d, block %d, thread %d\n", &line, &block, &thread) == 3, "%s", said);
    cr_assert(line > 100 && block == 0 && thread >= 0, "%s", said);
    dlclose(e.lib);
}

/* stop.h lists the files whose kernels stop, and those that they may stop in. */
Test(cuda, every_file_whose_kernels_may_stop_is_listed)
{
#define NAME(name) name,
#define MODULE(name) #name ".cu",
    static const char *const files[] = {QR_STOP_FILES(NAME)}, *const modules[] = {QR_STOP_MODULES(MODULE)};
    static const char *const stopping[] = {"QR_DEVICE_ASSERT(", "qr_mbar_wait(", "/paged.h\"", "/cache.h\"", "/attend_tiles.h\""};
    glob_t found;
    cr_assert_eq(glob("kernels/cuda/*.[ch]*", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *path = found.gl_pathv[i], *name = path + strlen("kernels/cuda/"), *end = path + strlen(path);
        struct qr_buf text = {0};
        bool stops = false, listed = false, module = false;
        slurp(open(path, O_RDONLY), &text);
        for (int k = 0; k < QR_COUNT(stopping); k++)
            stops = stops || strstr(text.data, stopping[k]);
        for (int k = 0; k < QR_COUNT(files); k++)
            listed = listed || strcmp(files[k], name) == 0;
        for (int k = 0; k < QR_COUNT(modules); k++)
            module = module || strcmp(modules[k], name) == 0;
        if (strstr(text.data, "    QR_DEVICE_ASSERT(") || strstr(text.data, "    qr_mbar_wait("))
            cr_assert(listed, "%s is not among QR_STOP_FILES", path);
        if (strcmp(end - 3, ".cu") == 0)
            cr_assert_eq(stops, module && strstr(text.data, "QR_STOPS("), "%s: QR_STOPS and QR_STOP_MODULES go with what stops", path);
        qr_buf_release(&text);
    }
    globfree(&found);
    for (int i = 0; i < QR_COUNT(files); i++)
        for (int k = 0; k < i; k++)
            cr_assert_neq(qr_stop_file(files[i]), qr_stop_file(files[k]), "%s and %s have one number", files[i], files[k]);
}

/* For a size of heads it is tried once, when a model is opened (or before the first launch), beside the kernel that every device has. */
Test(cuda, attention_by_wgmma_is_tried_before_it_is_used_and_agrees)
{
    struct emulation e = {0};
    struct qr_err err = {0};
    if (!emulation_open(&e))
        return;
    unsetenv("QUIRE_CUDA_HOPPER");
    struct qr_backend *be = open_cuda();
    const struct qr_emu_counts before = e.counts();
    cr_assert_eq(qr_backend_supports(be, QR_BF16, 64, QR_BF16, 64, 16, &err), 0, "%s", err.msg);
    const struct qr_emu_counts tried = e.counts();
    cr_assert_eq(tried.launches, before.launches + 8, "%d launches: short and long sequences and their joins, twice", (int)(tried.launches - before.launches));
    cr_assert_eq(qr_backend_supports(be, QR_BF16, 64, QR_BF16, 64, 16, &err), 0, "%s", err.msg);
    cr_assert_eq(e.counts().launches, tried.launches);
    qr_backend_close(be);
    dlclose(e.lib);
}
