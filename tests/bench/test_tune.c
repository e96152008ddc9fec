/* `quire bench tune`: its table, its file, and what it refuses. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "bench/bench.h"
#include "loader/write/make_model.h"
#include "tests/levels.h"
#include "tests/run_main.h"
#include "tests/temp.h"

TestSuite(bench_tune, .timeout = 120);

static int32_t count(const char *text, const char *what)
{
    int32_t n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

static void make_model(char dir[64])
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    const struct qr_make_options o = {.store = QR_BF16, .seed = 7, .std = 0.02};
    struct qr_err err = {0};
    c.ctx_max = 48; /* so that attention has little to do */
    temp_dir_make(dir, "bench-tune");
    cr_assert_eq(qr_model_make(dir, &c, &o, &err), 0, "%s", err.msg);
}

static void remove_model(const char *dir)
{
    char words[100];
    snprintf(words, sizeof words, "rm -r '%s'", dir);
    cr_assert_eq(system(words), 0);
}

Test(bench_tune, shapes_are_listed_and_kept_and_used_by_the_next_command)
{
    char dir[64], words[400];
    struct qr_buf text = {0};
    if (!has_level("avx2"))
        cr_skip_test("this processor has no avx2");
    make_model(dir);
    setenv("XDG_CACHE_HOME", dir, 1);
    snprintf(words, sizeof words, "tune --model %s --isa avx2 --threads 2 --rows 1 --no-save", dir);
    cr_assert_eq(run_main(&qr_bench_tune_command, words, &text), 0);
    cr_expect_eq(count(text.data, "\nlinear bf16 to 2^19 weights "), 1, "%s", text.data);
    cr_expect_eq(count(text.data, "\nattention bf16 "), 1, "%s", text.data);
    cr_expect(strstr(text.data, "of 2 shapes") && !strstr(text.data, "kept in"), "%s", text.data);
    qr_buf_release(&text);
    snprintf(words, sizeof words, "throughput --model %s --isa avx2 --threads 2 --no-probe --prefill 4 --batch 1 --steps 2 --repeats 1", dir);
    cr_assert_eq(run_main(&qr_bench_throughput_command, words, &text), 0);
    cr_expect(strstr(text.data, " 0 shapes tuned"), "%s", text.data);
    qr_buf_release(&text);
    snprintf(words, sizeof words, "tune --model %s --isa avx2 --threads 2 --rows 1 --json", dir);
    cr_assert_eq(run_main(&qr_bench_tune_command, words, &text), 0);
    const int32_t n_faster = count(text.data, "\"tunables\":\"items_per_thread=");
    for (char *line = strtok(text.data, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        struct qr_json *row;
        struct qr_err err;
        cr_assert_eq(qr_json_parse(&row, line, strlen(line), &qr_json_limits_file, &err), 0, "%s: %s", line, err.msg);
        const struct qr_json *own = qr_json_find(row, "own_us"), *best = qr_json_find(row, "best_us");
        cr_expect(own && best && qr_json_f64(own) > 0 && qr_json_f64(best) <= qr_json_f64(own), "%s", line);
        qr_json_free(row);
    }
    qr_buf_release(&text);
    snprintf(words, sizeof words, "throughput --model %s --isa avx2 --threads 2 --no-probe --untuned --prefill 4 --batch 1 --steps 2 --repeats 1", dir);
    cr_assert_eq(run_main(&qr_bench_throughput_command, words, &text), 0);
    snprintf(words, sizeof words, " %d shapes tuned", (int)n_faster);
    cr_expect(strstr(text.data, words) && strstr(text.data, "prefill-untuned") && strstr(text.data, "decode-untuned"), "%s", text.data);
    qr_buf_release(&text);
    remove_model(dir);
}

Test(bench_tune, level_ref_has_no_shapes_to_tune)
{
    char dir[64], words[400];
    struct qr_buf text = {0};
    make_model(dir);
    setenv("XDG_CACHE_HOME", dir, 1);
    snprintf(words, sizeof words, "tune --model %s --isa ref --threads 1 --rows 1", dir);
    cr_expect_eq(run_main(&qr_bench_tune_command, words, &text), 0);
    cr_expect(strstr(text.data, "0 of 0 shapes") && !strstr(text.data, "kept in"), "%s", text.data);
    qr_buf_release(&text);
    remove_model(dir);
}

Test(bench_tune, wrong_usage_is_refused)
{
    struct qr_buf text = {0};
    cr_expect_eq(run_main(&qr_bench_tune_command, "tune", &text), 2);
    cr_expect_eq(run_main(&qr_bench_tune_command, "tune --model x --rows 1,a", &text), 2);
    cr_expect_eq(run_main(&qr_bench_tune_command, "tune --model x --rows 0", &text), 2);
    cr_expect_eq(run_main(&qr_bench_tune_command, "tune --model /nonexistent", &text), 4);
    cr_expect_eq(run_main(&qr_bench_tune_command, "tune --help", &text), 0);
    cr_expect(strstr(text.data, "--no-save") || strstr(text.data, "save"), "%s", text.data);
    qr_buf_release(&text);
}

Test(bench_tune, a_directory_that_cannot_be_written_is_refused)
{
    char dir[64], words[400];
    struct qr_buf text = {0};
    if (!has_level("avx2"))
        cr_skip_test("this processor has no avx2");
    make_model(dir);
    setenv("XDG_CACHE_HOME", "/dev/null", 1);
    snprintf(words, sizeof words, "tune --model %s --isa avx2 --threads 1 --rows 1", dir);
    cr_expect_eq(run_main(&qr_bench_tune_command, words, &text), 4);
    qr_buf_release(&text);
    remove_model(dir);
}
