/* device_check on devices of tests: what is right is found right, what is wrong is found wrong, and what was not compared
 * is said. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <string.h>

#include "base/json.h"
#include "tests/cuda_emu/emu.h"
#include "tests/device/check/check.h"
#include "tests/device/device.h"
#include "tests/run_main.h"

TestSuite(check, .timeout = 120);

/* The emulated device with so many multiprocessors and so much memory, which uses all that it has; products of the sizes of tests are for its library, too. */
static void pretend(int32_t n_sms, size_t memory_bytes, enum qr_emu_wrong wrong)
{
    use_emulated();
    setenv("QUIRE_CUDA_HOPPER", "1", 1);
    setenv("QUIRE_CUDA_LT_MIN", "1", 1);
    void *lib = dlopen(getenv("QUIRE_CUDA_LIB"), RTLD_NOW | RTLD_LOCAL); /* stays, and with it what is set */
    cr_assert_not_null(lib, "%s", dlerror());
    void (*set_device)(int32_t n_sms, size_t memory_bytes), (*set_wrong)(enum qr_emu_wrong what);
    *(void **)&set_device = dlsym(lib, "qr_emu_set_device");
    *(void **)&set_wrong = dlsym(lib, "qr_emu_set_wrong");
    set_device(n_sms, memory_bytes);
    set_wrong(wrong);
}

static int large(struct qr_buf *text, const char *more)
{
    char words[300];
    snprintf(words, sizeof words, "device_check --large %s", more);
    return run_main(&device_check_command, words, text);
}

#if defined(__SANITIZE_ADDRESS__) /* what is looked for there, a small part has as well */
#define SANITIZED true
#define SCALE "--scale 4000"
#else
#define SANITIZED false
#define SCALE "--scale 1000"
#endif

Test(check, a_gpus_own_ways_give_what_the_plain_ones_give)
{
    struct qr_buf text = {0};
    pretend(1, (size_t)4 << 30, QR_EMU_RIGHT);
    cr_assert_eq(large(&text, SCALE " --only attention"), 0, "%s", text.data);
    cr_assert(strstr(text.data, "48 cases, 0 wrong, 0 with nothing to compare, 0 skipped"), "%s", text.data);
    cr_assert(strstr(text.data, "layer 2") && strstr(text.data, "x 256") && strstr(text.data, "window 1"), "%s", text.data);
    qr_buf_release(&text);
    cr_assert_eq(large(&text, SCALE " --only linear"), 0, "%s", text.data);
    cr_assert(strstr(text.data, "27 cases, 0 wrong, 0 with nothing to compare, 0 skipped"), "%s", text.data);
    qr_buf_release(&text);
}

Test(check, a_wrong_result_of_a_gpus_own_ways_is_found_and_placed)
{
    struct qr_buf text = {0};
    if (!SANITIZED) {
        pretend(1, (size_t)4 << 30, QR_EMU_WRONG_BOXES);
        cr_assert_eq(large(&text, "--scale 4000 --only attention"), 7, "%s", text.data);
        cr_assert(strstr(text.data, "WRONG    attention") && strstr(text.data, "wgmma: ") && strstr(text.data, ", row 0 head "), "%s", text.data);
        qr_buf_release(&text);
    }
    pretend(1, (size_t)4 << 30, QR_EMU_WRONG_PRODUCTS);
    cr_assert_eq(large(&text, "--scale 4000 --only linear --json -"), 7, "%s", text.data);
    int n = 0;
    for (const char *line = text.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1, n++) {
        struct qr_json *object;
        struct qr_err err;
        cr_assert_eq(qr_json_parse_line(&object, line, (size_t)(end - line), &qr_json_limits_file, &err), 0, "%s: %s", err.msg, line);
        qr_json_free(object);
        cr_assert(strstr(line, "\"word\":\"WRONG\",\"by\":\"cuBLASLt\",\"worst\":1") != NULL, "%s", line);
    }
    cr_assert_eq(n, 27);
    qr_buf_release(&text);
}

Test(check, what_does_not_fit_or_has_one_way_is_said_so)
{
    struct qr_buf text = {0};
    pretend(1, (size_t)1 << 30, QR_EMU_RIGHT);
    cr_assert_eq(large(&text, ""), 77, "%s", text.data);
    cr_assert(strstr(text.data, "skipped  attention 64 seqs") && strstr(text.data, "MiB are needed, "), "%s", text.data);
    cr_assert(strstr(text.data, "0 cases, 0 wrong"), "%s", text.data);
    qr_buf_release(&text);
    pretend(1, (size_t)4 << 30, QR_EMU_RIGHT);
    setenv("QUIRE_CUDA_LT_MIN", "0", 1);
    cr_assert_eq(large(&text, "--scale 4000 --only linear"), 77, "%s", text.data);
    cr_assert(strstr(text.data, "alone    linear") && strstr(text.data, "27 cases, 0 wrong, 27 with nothing to compare"), "%s", text.data);
    qr_buf_release(&text);
}

Test(check, a_gpu_that_computes_nothing_is_not_right)
{
    struct qr_buf text = {0};
    setenv("QUIRE_EMU_IDLE", "1", 1);
    pretend(1, (size_t)4 << 30, QR_EMU_RIGHT);
    cr_assert_eq(large(&text, "--scale 4000"), 7, "%s", text.data);
    cr_assert(!strstr(text.data, "\nok ") && !strstr(text.data, "\nalone "), "%s", text.data);
    qr_buf_release(&text);
}

Test(check, every_kernel_of_a_device_is_compared_with_the_reference)
{
    use_discrete("ref", NULL);
    cr_expect_eq(run_main(&device_check_command, "device_check --only rows", NULL), 0);
    if (!SANITIZED) /* contexts of thousands, by the plainest kernels */
        cr_expect_eq(run_main(&device_check_command, "device_check --only attention", NULL), 0);
}

Test(check, wrong_usage_ends_before_anything_is_compared)
{
    cr_expect_eq(run_main(&device_check_command, "device_check --device cpu --only linaer", NULL), 2);
    cr_expect_eq(run_main(&device_check_command, "device_check --device cpu --only head", NULL), 2, "it is measured, not compared");
    cr_expect_eq(run_main(&device_check_command, "device_check --device cpu --large --only rows", NULL), 2);
    cr_expect_eq(run_main(&device_check_command, "device_check --device cpu --large", NULL), 2, "the processor has one way");
}
