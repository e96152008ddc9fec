/* The kernel benchmark's baselines: rows out and in again, comparisons at the threshold and one beyond, exit codes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/json.h"
#include "bench/bench.h"
#include "bench/kern/rows.h"
#include "tests/ops_cases.h"
#include "tests/levels.h"
#include "tests/run_main.h"

TestSuite(kern, .timeout = 120);

static struct qr_kern_row row(const char *isa, int32_t n_threads, const char *what, double best_us)
{
    struct qr_kern_row r = {.n_threads = n_threads, .median_us = best_us * 1.25, .best_us = best_us, .gb_s = 3.5};
    snprintf(r.isa, sizeof r.isa, "%s", isa);
    snprintf(r.what, sizeof r.what, "%s", what);
    return r;
}

static void add(struct qr_kern_rows *rows, struct qr_kern_row r)
{
    qr_kern_rows_add(rows, &r);
}

Test(kern, rows_survive_being_written_and_read)
{
    struct qr_kern_rows rows = {.cpu = "a \"cpu\", 3 GHz", .n_cpus = 2}, back;
    struct qr_buf text = {0}, again = {0};
    struct qr_err err;
    for (int i = 0; i < 100; i++) { /* more than the first allocation */
        char what[40];
        snprintf(what, sizeof what, "linear %d x 3", i);
        add(&rows, row("avx2", 1 + i % 3, what, 0.1 + i / 7.0));
    }
    rows.row[4].probe = true;
    rows.row[5].gflop_s = 12.5;
    qr_kern_rows_put_json(&text, &rows);
    cr_assert_eq(qr_kern_rows_parse(&back, text.data, text.len, &err), 0, "%s", err.msg);
    cr_expect_eq(back.n, 100);
    cr_expect_str_eq(back.cpu, rows.cpu);
    cr_expect(back.row[4].probe && !back.row[5].probe);
    cr_expect_eq(back.row[99].best_us, rows.row[99].best_us, "doubles are exact");
    back.n_cpus = rows.n_cpus;
    qr_kern_rows_put_json(&again, &back);
    cr_expect_str_eq(again.data, text.data);
    qr_kern_rows_release(&rows);
    qr_kern_rows_release(&back);
    qr_buf_release(&text);
    qr_buf_release(&again);
}

Test(kern, damaged_baselines_are_refused)
{
    static const char *const bad[] = {
        "", "{", "[]", "3", "{}", "{\"cpu\":\"x\"}", "{\"cpu\":\"x\",\"rows\":3}", "{\"cpu\":3,\"rows\":[]}", "{\"cpu\":\"x\",\"rows\":[3]}",
        "{\"cpu\":\"x\",\"rows\":[{}]}",
        "{\"cpu\":\"x\",\"rows\":[{\"isa\":\"a\",\"threads\":0,\"case\":\"c\",\"median_us\":1,\"best_us\":1,\"gb_s\":1,\"gflop_s\":0}]}",
        "{\"cpu\":\"x\",\"rows\":[{\"isa\":\"a\",\"threads\":1,\"case\":\"c\",\"median_us\":1,\"best_us\":0,\"gb_s\":1,\"gflop_s\":0}]}",
        "{\"cpu\":\"x\",\"rows\":[{\"isa\":\"a\",\"threads\":1,\"case\":\"c\",\"median_us\":1,\"best_us\":-1,\"gb_s\":1,\"gflop_s\":0}]}",
        "{\"cpu\":\"x\",\"rows\":[{\"isa\":\"a\",\"threads\":1,\"case\":\"c\",\"median_us\":\"1\",\"best_us\":1,\"gb_s\":1,\"gflop_s\":0}]}",
        "{\"cpu\":\"x\",\"rows\":[{\"isa\":\"a_level_named_so\",\"threads\":1,\"case\":\"c\",\"median_us\":1,\"best_us\":1,\"gb_s\":1,\"gflop_s\":0}]}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct qr_kern_rows rows;
        struct qr_err err;
        cr_expect_eq(qr_kern_rows_parse(&rows, bad[i], strlen(bad[i]), &err), QR_E_DAMAGED, "%s", bad[i]);
        cr_expect_eq(err.code, QR_E_DAMAGED);
        qr_kern_rows_release(&rows);
    }
}

Test(kern, thresholds_are_percentages)
{
    static const struct {
        const char *text;
        double share;
    } good[] = {{"10%", 0.1}, {"10", 0.1}, {"0", 0}, {"2.5 %", 0.025}, {"300%", 3}};
    static const char *const bad[] = {"", "%", "x", "-1", "10%%", "10 percent", "nan", "1e9"};
    struct qr_err err;
    double share;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        cr_expect_eq(qr_kern_threshold_parse(&share, good[i].text, &err), 0, "%s", good[i].text);
        cr_expect_float_eq(share, good[i].share, 1e-12, "%s", good[i].text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_expect_eq(qr_kern_threshold_parse(&share, bad[i], &err), QR_E_USAGE, "%s", bad[i]);
}

Test(kern, only_what_moved_by_more_than_the_threshold_counts)
{
    struct qr_kern_rows now = {.cpu = "x"}, before = {.cpu = "y"};
    struct qr_buf out = {0};
    struct qr_kern_row probe = row("avx2", 1, "read", 900);
    probe.probe = true;
    add(&now, row("avx2", 1, "a", 125)); /* exactly at the threshold of 25 %: exact in binary */
    add(&before, row("avx2", 1, "a", 100));
    add(&now, row("avx2", 1, "b", 125.001));
    add(&before, row("avx2", 1, "b", 100));
    add(&now, row("avx2", 2, "b", 79));
    add(&before, row("avx2", 2, "b", 100));
    add(&now, row("amx", 1, "a", 500)); /* another level: another row */
    add(&before, row("avx2", 1, "gone", 1));
    add(&now, probe);
    probe.best_us = 100;
    add(&before, probe);
    struct qr_kern_verdict v = qr_kern_compare(&out, &now, &before, 0.25);
    cr_expect_eq(v.n_common, 3);
    cr_expect_eq(v.n_slower, 1, "the probe is the machine, not a kernel");
    cr_expect_eq(v.n_faster, 1);
    cr_expect_eq(v.n_new, 1);
    cr_expect_eq(v.n_missing, 1);
    cr_expect(strstr(out.data, "slower  avx2    1  b ") != NULL, "%s", out.data);
    cr_expect(strstr(out.data, "faster  avx2    2  b ") != NULL, "%s", out.data);
    cr_expect(strstr(out.data, "machine avx2    1  read ") != NULL, "%s", out.data);
    cr_expect(strstr(out.data, "of another machine: y\n") != NULL, "%s", out.data);
    cr_expect(strstr(out.data, "  a ") == NULL, "%s", out.data);
    qr_kern_rows_release(&now);
    qr_kern_rows_release(&before);
    qr_buf_release(&out);
}

/* ---- the program ---- */

#if defined(__SANITIZE_ADDRESS__) /* runs take seconds, and read and write the same each time: one that writes and one that compares */
#define SANITIZED true
#else
#define SANITIZED false
#endif

/* The row kernels of the scalar level, as short as the limits allow; output is thrown away. */
static int run(const char *more)
{
    char words[400];
    snprintf(words, sizeof words, "kern --isa ref --threads 1 --only rows --time 1ms --memory 128MiB %s", more);
    return run_main(&qr_bench_kern_command, words, NULL);
}

static void put_file(const char *path, const struct qr_kern_rows *rows)
{
    struct qr_buf text = {0};
    qr_kern_rows_put_json(&text, rows);
    FILE *f = fopen(path, "w");
    cr_assert(f != NULL && fwrite(text.data, 1, text.len, f) == text.len);
    fclose(f);
    qr_buf_release(&text);
}

Test(kern, a_slower_kernel_sets_the_exit_code)
{
    char path[] = "/tmp/quire-kern-XXXXXX", flags[200];
    struct qr_kern_rows rows;
    struct qr_err err;
    close(mkstemp(path));
    snprintf(flags, sizeof flags, "--json %s", path);
    cr_assert_eq(run(flags), 0);
    cr_assert_eq(qr_kern_rows_read(&rows, path, &err), 0, "%s", err.msg);
    cr_assert_gt(rows.n, 2);
    cr_expect(rows.row[0].probe && !rows.row[1].probe);
    for (int32_t i = 0; i < rows.n; i++)
        for (int32_t j = 0; j < i; j++)
            cr_expect(strcmp(rows.row[i].what, rows.row[j].what) != 0, "two rows are named '%s'", rows.row[i].what);
    /* Factors of 1,000 stand far outside of what a busy machine does to the best of five calls. */
    snprintf(flags, sizeof flags, "--baseline %s --threshold 900%%", path);
    for (int32_t i = 0; i < rows.n; i++)
        rows.row[i].best_us *= 1000;
    put_file(path, &rows);
    if (!SANITIZED)
        cr_expect_eq(run(flags), 0);
    rows.row[1].best_us /= 1e6;
    put_file(path, &rows);
    cr_expect_eq(run(flags), 6);
    rows.row[1].best_us *= 1e6;
    rows.row[0].best_us /= 1e6;
    put_file(path, &rows);
    if (!SANITIZED)
        cr_expect_eq(run(flags), 0, "a slower probe is a slower machine");
    for (int32_t i = 0; i < rows.n; i++)
        rows.row[i].n_threads = 77;
    put_file(path, &rows);
    if (!SANITIZED)
        cr_expect_eq(run(flags), 4, "nothing in common");
    qr_kern_rows_release(&rows);
    unlink(path);
}

/* One row is what memory bounds, 32 are what computing does. */
Test(kern, codes_of_every_width_are_timed_at_one_row_and_at_32)
{
    for (int32_t n_rows = 1; n_rows <= 32; n_rows += 31) {
        uint32_t bits = 0;
        for (int i = 0; i < QR_COUNT(qr_linear_cases); i++) {
            const struct qr_linear_case *c = &qr_linear_cases[i];
            if (qr_dtype_is_coded(c->w) && (c->use & QR_CASE_SPEED) && c->n_rows == n_rows)
                bits |= 1u << qr_dtype_coded(c->w).bits;
        }
        for (int t = QR_C2_G16_SO; t < (int)QR_CODED; t++)
            cr_expect(bits >> qr_dtype_coded((enum qr_dtype)t).bits & 1, "%s, %d rows", qr_dtype_name((enum qr_dtype)t), (int)n_rows);
    }
}

Test(kern, wrong_usage_ends_before_anything_is_measured)
{
    cr_expect_eq(run("--baseline /nonexistent/x.json"), 4);
    cr_expect_eq(run("--threshold ten"), 2);
    cr_expect_eq(run("surplus"), 2);
    cr_expect_eq(run("--isa avx1024"), 2);
    if (!has_level("avx2")) /* ref is timed by name alone */
        cr_expect_eq(run("--isa auto"), 4);
    if (!SANITIZED) /* this one measures */
        cr_expect_eq(run("--json /nonexistent/x.json"), 4);
    cr_expect_eq(run("--help"), 0);
    cr_expect_eq(run("--only linaer"), 2);
}
