/* The choice of a device, the library behind it, and its memory. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/mem.h"
#include "kernels/backend.h"
#include "kernels/cuda/plugin.h"
#include "tests/device/device.h"
#include "tests/temp.h"

static struct qr_backend *open_device(const char *device, const char *isa, int *rc, struct qr_err *err)
{
    struct qr_backend *be = NULL;
    const struct qr_backend_options o = {.device = device, .isa = isa, .n_threads = 2};
    *rc = qr_backend_open(&be, &o, err);
    return be;
}

static struct qr_backend *must_open(const char *device)
{
    struct qr_err err = {0};
    int rc;
    struct qr_backend *be = open_device(device, NULL, &rc, &err);
    cr_assert_eq(rc, 0, "%s", err.msg);
    return be;
}

/* "cuda" fails with this code and these words, and "auto" takes the processor instead. */
static void refuses(int code, const char *words)
{
    struct qr_err err = {0};
    int rc;
    cr_assert_null(open_device("cuda", NULL, &rc, &err));
    cr_assert_eq(rc, code, "%s", err.msg);
    cr_assert(strstr(err.msg, words), "%s", err.msg);
    struct qr_backend *be = must_open("auto");
    cr_assert_str_eq(be->name, "cpu");
    qr_backend_close(be);
}

Test(device, a_name_that_is_none_is_refused_with_what_is_expected)
{
    static const char *const bad[] = {"gpu", "cuda:", "cuda:x", "cuda:1x", "cuda:1000", "cuda0", "CUDA", ""};
    for (int i = 0; i < QR_COUNT(bad); i++) {
        struct qr_err err = {0};
        int rc;
        cr_assert_null(open_device(bad[i], NULL, &rc, &err));
        cr_assert_eq(rc, QR_E_USAGE, "%s", bad[i]);
        cr_assert(strstr(err.msg, "expected auto, cpu, cuda, cuda:N or, for several ranks, cuda:N,M") && strstr(err.msg, bad[i]), "%s", err.msg);
    }
}

Test(device, a_library_that_is_not_there_or_is_none_is_an_error_for_cuda_and_the_processor_for_auto)
{
    char dir[64], path[128];
    struct qr_err err = {0};
    temp_dir_make(dir, "device");
    snprintf(path, sizeof path, "%s/lib.so", dir);
    setenv("QUIRE_CUDA_LIB", path, 1);
    refuses(QR_E_UNSUPPORTED, "cannot be opened");
    cr_assert_eq(qr_file_write(path, "text", 4, false, &err), 0);
    refuses(QR_E_UNSUPPORTED, "cannot be opened");
    setenv("QUIRE_CUDA_LIB", "libm.so.6", 1);
    refuses(QR_E_UNSUPPORTED, "no symbol qr_cuda_plugin");
    unlink(path);
    rmdir(dir);
}

Test(device, a_library_of_another_version_of_the_interface_is_refused)
{
    use_discrete("ref", "abi");
    char says[80];
    snprintf(says, sizeof says, "version %u of the interface, this program version %u", QR_CUDA_ABI + 1, QR_CUDA_ABI);
    refuses(QR_E_UNSUPPORTED, says);
}

Test(device, a_library_built_from_other_structs_is_refused)
{
    use_discrete("ref", "layout");
    refuses(QR_E_UNSUPPORTED, "built from other sources");
}

Test(device, a_device_that_cannot_be_opened_is_refused_with_its_own_words)
{
    use_discrete("ref", "open");
    refuses(QR_E_UNSUPPORTED, "GPU 0 was asked for, there is none");
}

Test(device, a_number_beyond_the_devices_is_refused)
{
    use_discrete("ref", NULL);
    struct qr_err err = {0};
    int rc;
    cr_assert_null(open_device("cuda:1", NULL, &rc, &err));
    cr_assert_eq(rc, QR_E_UNSUPPORTED);
    cr_assert(strstr(err.msg, "GPU 1"), "%s", err.msg);
    qr_backend_close(must_open("cuda:0"));
}

Test(device, auto_takes_the_device_unless_an_instruction_set_is_named)
{
    use_discrete("ref", NULL);
    unsetenv("QUIRE_ISA");
    struct qr_backend *be = must_open("auto");
    cr_assert_str_eq(be->name, "cuda");
    cr_assert_eq(be->n_threads, 2);
    cr_assert(strstr(be->title, "discrete"), "%s", be->title);
    qr_backend_close(be);
    struct qr_err err = {0};
    int rc;
    be = open_device("auto", "ref", &rc, &err);
    cr_assert_eq(rc, 0, "%s", err.msg);
    cr_assert_str_eq(be->name, "cpu");
    qr_backend_close(be);
}

Test(device, a_library_without_a_kernel_is_refused_when_a_model_needs_it)
{
    use_discrete("ref", "attention");
    struct qr_backend *be = must_open("cuda");
    struct qr_err err = {0};
    cr_assert_eq(qr_backend_supports(be, QR_BF16, 4096, QR_BF16, 64, 16, &err), QR_E_UNSUPPORTED);
    cr_assert(strstr(err.msg, "no CUDA kernel for attention"), "%s", err.msg);
    qr_backend_close(be);
    be = must_open("auto");
    cr_assert_str_eq(be->name, "cpu");
    qr_backend_close(be);
}

static void add_item(const void *arg, int32_t item, int32_t worker)
{
    int32_t *const *sum = arg;
    __atomic_fetch_add(&(*sum)[worker], item, __ATOMIC_RELAXED);
}

Test(device, work_of_the_host_still_runs_on_its_threads)
{
    use_discrete("ref", NULL);
    struct qr_backend *be = must_open("cuda");
    int32_t sum[2] = {0}, *at = sum;
    qr_backend_run(be, add_item, &at, 1000);
    cr_assert_eq(sum[0] + sum[1], 999 * 500);
    qr_backend_close(be);
}

static void move_memory(void)
{
    struct qr_backend *be = must_open("cuda");
    const struct qr_mem_ops *mem = be->mem;
    uint8_t in[96], out[96];
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)(i * 7 + 1);
    uint8_t *a = mem->alloc(96), *b = mem->alloc(96);
    const int64_t before = mem->available();
    cr_assert_eq((uintptr_t)a % 64, 0);
    mem->get(be->queue, out, b, 96);
    for (size_t i = 0; i < 96; i++)
        cr_assert_eq(out[i], 0);
    mem->put(be->queue, a, in, 96);
    mem->copy(be->queue, b, 12, a, 24, 8, 4); /* rows of 8 bytes, 24 apart, become rows 12 apart */
    mem->zero(be->queue, a, 3);
    mem->get(be->queue, out, b, 96);
    for (size_t row = 0; row < 4; row++)
        for (size_t i = 0; i < 12; i++)
            cr_assert_eq(out[row * 12 + i], i < 8 ? in[row * 24 + i] : 0, "row %zu byte %zu", row, i);
    mem->get(be->queue, out, a, 96);
    for (size_t i = 0; i < 96; i++)
        cr_assert_eq(out[i], i < 3 ? 0 : in[i]);
    uint8_t *staged = mem->stage(be->queue, 32);
    memset(staged, 5, 32);
    mem->put(be->queue, a, staged, 32);
    cr_assert_eq(((const uint8_t *)qr_backend_read(be, out, a, 32))[31], 5);
    mem->free(a);
    mem->free(b);
    cr_assert_geq(mem->available() - before, 2 * 96); /* a device may count in pages */
    qr_backend_close(be);
}

Test(device, memory_moves_by_put_get_copy_and_zero_alone)
{
    use_discrete("ref", NULL);
    move_memory();
}

Test(device, memory_of_the_cuda_library_moves_likewise)
{
    use_emulated();
    move_memory();
}

/* Pieces go through a ring of pinned memory, whose slots are used again while copies are under way; larger than all of it, and staged ones too. */
Test(device, the_cuda_library_stages_more_than_its_ring_holds)
{
    enum { MIB = 1 << 20, N = 37 * MIB + 5 };
    use_emulated();
    struct qr_backend *be = must_open("cuda");
    const struct qr_mem_ops *mem = be->mem;
    uint8_t *in = qr_alloc(N, 1), *out = qr_alloc(N, 1), *p = mem->alloc(N);
    for (size_t i = 0; i < N; i++)
        in[i] = (uint8_t)((i * 2654435761u) >> 13);
    mem->put(be->queue, p, in, N);
    mem->get(be->queue, out, p, N);
    cr_assert(memcmp(in, out, N) == 0);
    mem->zero(be->queue, p, N);
    for (size_t at = 0; at < N; at += MIB) { /* each rewrites what the one before it but three has given */
        const size_t n = N - at < MIB ? N - at : MIB;
        uint8_t *staged = mem->stage(be->queue, n);
        memcpy(staged, in + at, n);
        mem->put(be->queue, p + at, staged, n);
    }
    mem->get(be->queue, out, p, N);
    cr_assert(memcmp(in, out, N) == 0);
    mem->zero(be->queue, p, N);
    uint8_t *all = mem->stage(be->queue, N);
    memcpy(all, in, N);
    mem->put(be->queue, p, all, N);
    uint8_t *again = mem->stage(be->queue, N); /* waits for the copy out of it */
    memset(again, 0, N);
    mem->put(be->queue, p, again, 1);
    mem->get(be->queue, out, p, N);
    cr_assert(out[0] == 0 && memcmp(in + 1, out + 1, N - 1) == 0);
    mem->free(p);
    qr_free(in), qr_free(out);
    qr_backend_close(be);
}

Test(device, the_cuda_library_says_what_it_is_and_counts_devices)
{
    use_emulated();
    struct qr_backend *be = must_open("cuda:0");
    cr_assert(strncmp(be->title, "cuda: ", 6) == 0 && strstr(be->title, "multiprocessors"), "%s", be->title);
    cr_assert_gt(qr_backend_scratch_bytes(be), 1 << 20);
    qr_backend_close(be);
    struct qr_err err = {0};
    int rc;
    cr_assert_null(open_device("cuda:9", NULL, &rc, &err));
    cr_assert_eq(rc, QR_E_UNSUPPORTED);
    cr_assert(strstr(err.msg, "GPU 9 was asked for, there is 1 (counted from 0)"), "%s", err.msg);
}

/* What the tests of models rest on. */
Test(device, the_host_faults_when_it_reads_the_devices_memory)
{
    use_discrete("ref", NULL);
    struct qr_backend *be = must_open("cuda");
    volatile uint8_t *p = be->mem->alloc(4096);
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would talk about it */
        _exit(p[100]);
    }
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "status %x", (unsigned)status);
    be->mem->free((void *)(uintptr_t)p);
    qr_backend_close(be);
}
