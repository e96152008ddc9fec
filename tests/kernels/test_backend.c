/* Opening devices and levels, what is supported, tensors and types. */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include "base/cpus.h"
#include "base/thread.h"
#include "tests/kernels/util.h"

static int open_named(const char *device, const char *isa, int32_t n_threads, struct qr_err *err)
{
    struct qr_backend *be = NULL;
    struct qr_backend_options o = {.device = device, .isa = isa, .n_threads = n_threads};
    int rc = qr_backend_open(&be, &o, err);
    cr_assert((rc == 0) == (be != NULL));
    qr_backend_close(be);
    return rc;
}

Test(backend, opens_the_best_level_by_itself)
{
    const char *names[8];
    int32_t n = qr_cpu_levels(names);
    struct qr_err err = {0};
    struct qr_backend *be;
    struct qr_backend_options o = {.device = "cpu", .n_threads = 2};
    unsetenv("QUIRE_ISA");
    cr_assert_eq(qr_backend_open(&be, &o, &err), 0, "%s", err.msg);
    cr_assert_str_eq(be->k->name, names[n - 1]);
    cr_assert_str_eq(be->name, "cpu");
    cr_assert_eq(be->n_threads, 2);
    qr_backend_close(be);
    printf("%s\n", qr_cpu_describe());
}

Test(backend, obeys_QUIRE_ISA_and_prefers_the_option)
{
    const char *names[8];
    int32_t n = qr_cpu_levels(names);
    struct qr_err err = {0};
    for (int32_t i = 0; i < n; i++) {
        struct qr_backend *be;
        struct qr_backend_options o = {.n_threads = 1};
        setenv("QUIRE_ISA", names[i], 1);
        cr_assert_eq(qr_backend_open(&be, &o, &err), 0, "%s", err.msg);
        cr_assert_str_eq(be->k->name, names[i]);
        qr_backend_close(be);
        o.isa = "ref";
        cr_assert_eq(qr_backend_open(&be, &o, &err), 0, "%s", err.msg);
        cr_assert_str_eq(be->k->name, "ref");
        qr_backend_close(be);
    }
    setenv("QUIRE_ISA", "mmx", 1);
    cr_assert_eq(open_named("cpu", NULL, 1, &err), QR_E_USAGE);
    cr_assert(strstr(err.msg, "QUIRE_ISA") && strstr(err.msg, "mmx"), "%s", err.msg);
    setenv("QUIRE_ISA", "", 1);
    cr_assert_eq(open_named("cpu", NULL, 1, &err), 0);
}

static void count_item(const void *arg, int32_t item, int32_t worker)
{
    cr_assert(worker >= 0 && worker < 3);
    __atomic_fetch_add((int *)(uintptr_t)arg + item, 1, __ATOMIC_RELAXED);
}

Test(backend, run_calls_every_item_once)
{
    enum { N = 1000 };
    struct qr_err err = {0};
    struct qr_backend *be;
    struct qr_backend_options o = {.n_threads = 3};
    int count[N] = {0};
    cr_assert_eq(qr_backend_open(&be, &o, &err), 0, "%s", err.msg);
    for (int32_t n = 0; n <= N; n += n < 4 ? 1 : 249)
        qr_backend_run(be, count_item, count, n);
    int total = 0;
    for (int i = 0; i < N; i++)
        total += count[i];
    cr_assert_eq(total, 0 + 1 + 2 + 3 + 4 + 253 + 502 + 751 + 1000);
    cr_assert(count[0] == 8 && count[N - 1] == 1);
    qr_backend_close(be);
}

Test(backend, refuses_unknown_devices_levels_and_thread_counts)
{
    struct qr_err err = {0};
    cr_assert_eq(open_named("tpu", "ref", 1, &err), QR_E_USAGE);
    cr_assert(strstr(err.msg, "tpu"), "%s", err.msg);
    cr_assert_eq(open_named("cpu", "avx1024", 1, &err), QR_E_USAGE);
    cr_assert(strstr(err.msg, "avx1024") && strstr(err.msg, "avx512"), "%s", err.msg);
    cr_assert_eq(open_named("cpu", "ref", -1, &err), QR_E_USAGE);
    cr_assert_eq(open_named("cpu", "ref", 1025, &err), QR_E_USAGE);
    cr_assert_eq(open_named(NULL, "auto", 0, &err), 0);
}

Test(backend, fills_every_entry_of_every_table)
{
    const char *names[8];
    int32_t n = qr_cpu_levels(names);
    cr_assert_geq(n, 1);
    cr_assert_str_eq(names[0], "ref");
    for (int32_t i = 0; i < n; i++) {
        struct qr_backend *be = open_level(names[i], 1, 0);
        void *const *entry = (void *const *)(const void *)be->k;
        for (size_t e = 0; e < offsetof(struct qr_kernels, row_tiles) / sizeof *entry; e++) {
            const bool host_draws = &be->k->sample == (void *)&entry[e], portable_reads = i == 0 && (const void *)&be->k->stored == &entry[e];
            cr_assert_eq(entry[e] == NULL, host_draws || portable_reads, "%s, entry %zu", names[i], e);
        }
        void *p = be->mem->alloc(1000);
        cr_assert_eq((uintptr_t)p % 64, 0);
        be->mem->free(p);
        qr_backend_close(be);
    }
}

Test(backend, supports_what_the_kernels_compute_and_says_what_not)
{
    struct qr_backend *be = open_level("auto", 1, 0);
    struct qr_err err = {0};
    static const int32_t good[] = {8, 24, 64, 80, 96, 128, 256};
    for (int i = 0; i < QR_COUNT(good); i++)
        cr_assert_eq(qr_backend_supports(be, QR_BF16, 4096, QR_BF16, good[i], 16, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_backend_supports(be, QR_F32, 4096, QR_F32, 64, 1, &err), 0);
    cr_assert_eq(qr_backend_supports(be, QR_I8, 4096, QR_F32, 64, 16, &err), QR_E_UNSUPPORTED);
    cr_assert_eq(qr_backend_supports(be, QR_F16, 4096, QR_F32, 64, 16, &err), QR_E_UNSUPPORTED);
    static const struct {
        enum qr_dtype weights;
        int32_t inputs_max;
    } widths[] = {{QR_F32, 262144}, {QR_BF16, 262144}, {QR_Q8, 65536}, {QR_Q4, 65536}, {QR_C8_G32, 32768}, {QR_C4_G64, 32768}};
    for (int i = 0; i < QR_COUNT(widths); i++) {
        cr_assert_eq(qr_backend_supports(be, widths[i].weights, widths[i].inputs_max, QR_BF16, 64, 16, &err), 0, "%s", err.msg);
        cr_assert_eq(qr_backend_supports(be, widths[i].weights, widths[i].inputs_max + 1, QR_BF16, 64, 16, &err), QR_E_UNSUPPORTED);
        cr_assert(strstr(err.msg, "at most") && !strstr(err.msg, "--quantize") == (widths[i].inputs_max == 262144), "%s", err.msg);
    }
    cr_assert_eq(qr_backend_supports(be, QR_F32, 4096, QR_F16, 64, 16, &err), QR_E_UNSUPPORTED);
    cr_assert(strstr(err.msg, "f16"), "%s", err.msg);
    static const int32_t bad[] = {0, 4, 7, 12, 264, 512};
    for (int i = 0; i < QR_COUNT(bad); i++)
        cr_assert_eq(qr_backend_supports(be, QR_F32, 4096, QR_F32, bad[i], 16, &err), QR_E_UNSUPPORTED, "head dim %d", bad[i]);
    cr_assert_eq(qr_backend_supports(be, QR_F32, 4096, QR_F32, 64, 24, &err), QR_E_UNSUPPORTED);
    cr_assert_eq(qr_backend_supports(be, QR_F32, 4096, QR_F32, 64, 0, &err), QR_E_UNSUPPORTED);
    cr_assert_eq(qr_backend_supports(be, QR_F32, 4096, QR_F32, 64, 8192, &err), QR_E_UNSUPPORTED);
    qr_backend_close(be);
}

Test(backend, asks_for_tiles_any_number_of_times)
{
    qr_cpu_init();
    qr_cpu_init();
    cr_assert_str_not_empty(qr_cpu_describe());
}

/* Linux refuses the tile registers to a process with a signal stack that cannot hold them. */
Test(backend, does_without_tiles_when_linux_refuses_them)
{
    static char stack[8192];
    stack_t small = {.ss_sp = stack, .ss_size = sizeof stack};
    if (sigaltstack(&small, NULL) != 0)
        cr_skip_test("this system takes no signal stack of %zu bytes", sizeof stack);
    const char *names[8];
    int32_t n = qr_cpu_levels(names);
    if (strcmp(names[n - 1], "amx") == 0)
        cr_skip_test("tiles were granted before, or this Linux does not mind the stack");
    struct qr_err err = {0};
    unsetenv("QUIRE_ISA");
    cr_assert_eq(open_named("cpu", NULL, 1, &err), 0, "%s", err.msg);
    cr_assert_eq(open_named("cpu", "amx", 1, &err), QR_E_UNSUPPORTED);
    cr_assert(strstr(err.msg, names[n - 1]), "%s", err.msg);
}

Test(dtype, knows_sizes_and_names)
{
    cr_assert_eq(qr_dtype_bytes(QR_F32), 4);
    cr_assert_eq(qr_dtype_bytes(QR_F16), 2);
    cr_assert_eq(qr_dtype_bytes(QR_BF16), 2);
    cr_assert_eq(qr_dtype_bytes(QR_I8), 1);
    cr_assert_eq(qr_dtype_bytes(QR_I32), 4);
    cr_assert_str_eq(qr_dtype_name(QR_BF16), "bf16");
    cr_assert_str_eq(qr_dtype_name(QR_I8), "int8");
}

Test(tensor, views_follow_shapes_and_strides)
{
    float data[24];
    struct qr_tensor v = qr_tensor_1d(data, QR_F32, 24), m = qr_tensor_2d(data, QR_F32, 4, 6), c = qr_tensor_3d(data, QR_F32, 2, 3, 4);
    cr_assert(v.n_dims == 1 && v.shape[0] == 24 && v.stride[0] == 1);
    cr_assert(m.n_dims == 2 && m.stride[0] == 6 && m.stride[1] == 1);
    cr_assert(c.n_dims == 3 && c.stride[0] == 12 && c.stride[1] == 4 && c.stride[2] == 1);
    cr_assert(qr_tensor_count(&v) == 24 && qr_tensor_count(&m) == 24 && qr_tensor_count(&c) == 24);
    struct qr_tensor cols = qr_tensor_columns(&m, 2, 4), heads = qr_tensor_heads(&cols, 2, 2);
    cr_assert(cols.data == data + 2 && cols.shape[0] == 4 && cols.shape[1] == 4 && cols.stride[0] == 6);
    cr_assert(heads.n_dims == 3 && heads.shape[1] == 2 && heads.shape[2] == 2 && heads.stride[0] == 6 && heads.stride[1] == 2 && heads.stride[2] == 1);
    cr_assert_eq(qr_tensor_count(&cols), 16);
    struct qr_tensor none = qr_tensor_columns(&m, 6, 0);
    cr_assert_eq(qr_tensor_count(&none), 0);
}

Test(backend, computes_on_the_processors_that_were_named)
{
    struct qr_err err = {0};
    struct qr_backend *be;
    struct qr_cpus may;
    char list[8192], one[16];
    int n = 0;
    qr_cpus_allowed(&may);
    for (int32_t i = may.n - 1; i >= 0; i--)
        n += snprintf(list + n, sizeof list - (size_t)n, i ? "%d," : "%d", may.cpu[i]);
    struct qr_backend_options o = {.isa = "ref", .cpus = list, .pin = true};
    cr_assert_eq(qr_backend_open(&be, &o, &err), 0, "%s", err.msg);
    cr_assert_eq(be->n_threads, may.n, "as many threads as are named");
    cr_assert(be->queue->pin);
    cr_assert_eq(qr_cpu_count(), 1, "the caller is worker 0");
    cr_assert_eq(sched_getcpu(), may.cpu[may.n - 1]);
    qr_backend_close(be);
    cr_assert_eq(qr_cpu_count(), may.n, "closing takes the pin away");
    snprintf(one, sizeof one, "%d", may.cpu[0]);
    o.cpus = one;
    o.n_threads = 3;
    cr_assert_eq(qr_backend_open(&be, &o, &err), 0, "%s", err.msg);
    cr_assert(!be->queue->pin, "three threads are not pinned to one processor");
    qr_backend_close(be);
}

Test(backend, pins_by_itself_only_when_every_core_gets_a_worker)
{
    struct qr_err err = {0};
    struct qr_backend *be;
    int32_t n = qr_cpu_count();
    struct qr_backend_options o = {.isa = "ref", .n_threads = n, .pin = true};
    cr_assert_eq(qr_backend_open(&be, &o, &err), 0, "%s", err.msg);
    cr_assert(be->queue->pin);
    qr_backend_close(be);
    o.n_threads = n + 1;
    cr_assert_eq(qr_backend_open(&be, &o, &err), 0, "%s", err.msg);
    cr_assert(!be->queue->pin);
    qr_backend_close(be);
    o = (struct qr_backend_options){.isa = "ref"};
    cr_assert_eq(qr_backend_open(&be, &o, &err), 0, "%s", err.msg);
    cr_assert(be->n_threads >= 1 && be->n_threads <= n && !be->queue->pin);
    qr_backend_close(be);
}

Test(backend, refuses_processors_that_are_not_there)
{
    struct qr_err err = {0};
    struct qr_backend *be;
    struct qr_backend_options o = {.isa = "ref", .cpus = "0-"};
    cr_assert_eq(qr_backend_open(&be, &o, &err), QR_E_USAGE);
    cr_assert(strstr(err.msg, "cpus: ") && strstr(err.msg, "0-3,8"), "%s", err.msg);
    o.cpus = "1023";
    cr_assert_eq(qr_backend_open(&be, &o, &err), QR_E_USAGE);
    cr_assert(strstr(err.msg, "1023"), "%s", err.msg);
}
