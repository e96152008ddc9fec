/* The table of tunables: looking up, and its file, which may be damaged, foreign or in the way. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/backend.h"
#include "tests/kernels/random_cuts.h"
#include "tests/run_main.h"
#include "tests/temp.h"

#define SEED 90125
#define PROCESSOR "GenuineTest 1 L1=48K Some (R) Processor"

static struct qr_tune *random_table(uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    struct qr_tune *t = qr_tune_new("amx", 2);
    random_cuts(t, &r);
    return t;
}

static bool same_tables(const struct qr_tune *x, const struct qr_tune *y)
{
    struct qr_buf a = {0}, b = {0};
    qr_tune_format(&a, x, PROCESSOR);
    qr_tune_format(&b, y, PROCESSOR);
    const bool same = qr_tune_count(x) == qr_tune_count(y) && a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
    qr_buf_release(&a);
    qr_buf_release(&b);
    return same;
}

Test(tune_file, a_table_finds_what_was_set_and_the_kernels_rule_for_everything_else)
{
    struct qr_tune *t = qr_tune_new("amx", 2);
    const struct qr_tune_kind k = qr_tune_linear(QR_BF16, 32, 576, 1536), other = qr_tune_linear(QR_BF16, 33, 576, 1536);
    cr_expect_eq(qr_tune_find(NULL, k), 0);
    cr_expect_eq(qr_tune_find(t, k), 0);
    qr_tune_set(t, k, 3);
    cr_expect_eq(qr_tune_find(t, k), 3);
    cr_expect_eq(qr_tune_find(t, other), 0);
    cr_expect_eq(qr_tune_find(t, qr_tune_attention(QR_BF16, 32)), 0);
    cr_expect_eq(qr_tune_find(t, qr_tune_linear(QR_BF16, 20, 1024, 1024)), 3, "launches of a kind are cut alike");
    cr_expect_eq(qr_tune_count(t), 1);
    qr_tune_set(t, k, 0);
    cr_expect_eq(qr_tune_count(t), 0);
    qr_tune_free(t);
}

Test(tune_file, rows_fall_into_the_bucket_that_ends_at_or_behind_them)
{
    static const int32_t rows[][2] = {{0, 0}, {1, 0}, {2, 1}, {4, 1}, {5, 2}, {16, 2}, {17, 3}, {32, 3}, {33, 4}, {128, 4}, {129, 5}, {INT32_MAX, 5}};
    for (int i = 0; i < QR_COUNT(rows); i++)
        cr_expect_eq(qr_tune_bucket(rows[i][0]), rows[i][1], "%d rows", rows[i][0]);
}

Test(tune_file, text_gives_the_table_back)
{
    for (int i = 0; i < 4; i++) {
        struct qr_buf text = {0};
        struct qr_err err = {0};
        struct qr_tune *t = i ? random_table(SEED + (uint64_t)i) : qr_tune_new("amx", 2), *back = qr_tune_new("amx", 2);
        qr_tune_format(&text, t, PROCESSOR);
        cr_assert_eq(qr_tune_parse(back, text.data, text.len, PROCESSOR, &err), 0, "%s", err.msg);
        cr_expect(same_tables(t, back));
        qr_buf_release(&text);
        qr_tune_free(t);
        qr_tune_free(back);
    }
}

/* Not taken, and nothing in the table. */
static void expect_refused(const char *text, size_t n, const char *what, size_t at)
{
    struct qr_tune *t = qr_tune_new("amx", 2);
    struct qr_err err = {0};
    cr_expect(qr_tune_parse(t, text, n, PROCESSOR, &err) != 0 && err.msg[0], "%s at byte %zu is taken", what, at);
    cr_expect_eq(qr_tune_count(t), 0);
    qr_tune_free(t);
}

/* A changed byte of the table that is a letter still says something else, which is taken as it stands. */
Test(tune_file, a_missing_or_added_byte_anywhere_is_noticed_and_a_changed_one_that_is_no_letter)
{
    struct qr_tune *t = random_table(SEED + 9);
    struct qr_buf text = {0};
    qr_tune_format(&text, t, PROCESSOR);
    char *copy = qr_alloc(text.len + 1, 1);
    const size_t table = (size_t)(strchr(text.data, '\n') + 1 - text.data);
    for (size_t at = 0; at < text.len; at++) {
        static const uint8_t change[] = {1, 2, 16, 32, 128, 255};
        for (int i = 0; i < QR_COUNT(change); i++) {
            memcpy(copy, text.data, text.len);
            copy[at] = (char)(copy[at] ^ change[i]);
            if (at < table || at + 1 == text.len || copy[at] < '0' || copy[at] > '0' + QR_TUNE_ITEMS_MAX)
                expect_refused(copy, text.len, "a changed bit", at);
        }
        expect_refused(text.data, at, "an end", at);
        memcpy(copy, text.data, at);
        memcpy(copy + at, text.data + at + 1, text.len - at - 1);
        expect_refused(copy, text.len - 1, "a missing byte", at);
        copy[at] = text.data[at] == ' ' ? '0' : ' ';
        memcpy(copy + at + 1, text.data + at, text.len - at);
        expect_refused(copy, text.len + 1, "a byte too much", at);
    }
    qr_free(copy);
    qr_buf_release(&text);
    qr_tune_free(t);
}

Test(tune_file, a_table_of_another_processor_level_or_number_of_threads_is_not_taken)
{
    struct qr_tune *t = random_table(SEED + 11), *avx2 = qr_tune_new("avx2", 2), *three = qr_tune_new("amx", 3);
    struct qr_buf text = {0};
    struct qr_err err;
    qr_tune_format(&text, t, PROCESSOR);
    cr_expect_eq(qr_tune_parse(t, text.data, text.len, "GenuineTest 2", &err), QR_E_UNSUPPORTED);
    cr_expect(strstr(err.msg, "GenuineTest 2") && strstr(err.msg, "Some (R)"), "%s", err.msg);
    cr_expect_eq(qr_tune_parse(avx2, text.data, text.len, PROCESSOR, &err), QR_E_UNSUPPORTED);
    cr_expect_eq(qr_tune_parse(three, text.data, text.len, PROCESSOR, &err), QR_E_UNSUPPORTED);
    cr_expect_eq(qr_tune_count(avx2) + qr_tune_count(three), 0);
    text.data[strlen("quire-tune ")] = '2';
    cr_expect_eq(qr_tune_parse(t, text.data, text.len, PROCESSOR, &err), QR_E_UNSUPPORTED, "another version of the format");
    qr_buf_release(&text);
    qr_tune_free(t);
    qr_tune_free(avx2);
    qr_tune_free(three);
}

/* ---- files ---- */

static void new_dir(char dir[64])
{
    temp_dir_make(dir, "tune");
}

static void remove_dir(const char *dir)
{
    char command[200];
    cr_assert(strncmp(dir, "/tmp/quire-tune-", 16) == 0);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    cr_assert_eq(system(command), 0);
}

static void put_file(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wbe");
    cr_assert(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0, "%s", path);
}

Test(tune_file, what_is_saved_is_loaded_by_the_next_process)
{
    char dir[64], deep[100];
    struct qr_err err = {0};
    struct qr_tune *a = random_table(SEED + 20), *b = random_table(SEED + 21), *got = qr_tune_new("amx", 2);
    new_dir(dir);
    snprintf(deep, sizeof deep, "%s/not/there/yet", dir);
    cr_assert_eq(qr_tune_load(got, deep, &err), 0, "no file is no error: %s", err.msg);
    cr_expect_eq(qr_tune_count(got), 0);
    cr_assert_eq(qr_tune_save(a, deep, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_tune_load(got, deep, &err), 0, "%s", err.msg);
    cr_expect(same_tables(a, got));
    cr_assert_eq(qr_tune_save(b, deep, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_tune_load(got, deep, &err), 0, "%s", err.msg);
    cr_expect(same_tables(b, got), "a file is replaced as a whole");
    remove_dir(dir);
    qr_tune_free(a);
    qr_tune_free(b);
    qr_tune_free(got);
}

/* A folder, a pipe that nobody writes to, or a gigabyte where the file should be: refused at once. A save replaces what a file can replace. */
Test(tune_file, whatever_lies_in_the_files_place_is_an_error_and_no_more, .timeout = 60)
{
    char dir[64], path[400];
    struct qr_err err;
    struct qr_tune *t = random_table(SEED + 22), *got = qr_tune_new("amx", 2);
    new_dir(dir);
    qr_tune_path(path, sizeof path, dir, t);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_expect_eq(qr_tune_load(got, dir, &err), QR_E_IO, "a folder");
    cr_expect_eq(qr_tune_save(t, dir, &err), QR_E_IO, "a folder cannot be replaced");
    cr_expect(strstr(err.msg, path), "%s", err.msg);
    cr_assert(rmdir(path) == 0 && mkfifo(path, 0600) == 0);
    cr_expect_eq(qr_tune_load(got, dir, &err), QR_E_IO, "a pipe");
    cr_expect_eq(qr_tune_save(t, dir, &err), 0);
    cr_expect_eq(qr_tune_load(got, dir, &err), 0);
    cr_expect(same_tables(t, got));
    cr_assert_eq(truncate(path, (off_t)1 << 30), 0);
    cr_expect_eq(qr_tune_load(got, dir, &err), QR_E_TOO_LARGE, "a gigabyte");
    put_file(path, "", 0);
    cr_expect_eq(qr_tune_load(got, dir, &err), QR_E_DAMAGED, "nothing");
    cr_expect_eq(qr_tune_save(t, dir, &err), 0);
    cr_expect_eq(qr_tune_load(got, dir, &err), 0);
    remove_dir(dir);
    qr_tune_free(t);
    qr_tune_free(got);
}

Test(tune_file, a_directory_that_cannot_be_written_is_an_error_that_names_it)
{
    static const char *const dirs[] = {"/dev/null/quire", "/proc/quire", "/dev/null"};
    struct qr_tune *t = random_table(SEED + 23);
    for (int i = 0; i < QR_COUNT(dirs); i++) {
        struct qr_err err = {0};
        cr_expect_eq(qr_tune_save(t, dirs[i], &err), QR_E_IO, "%s", dirs[i]);
        cr_expect(strstr(err.msg, dirs[i]), "%s", err.msg);
        cr_expect_eq(qr_tune_load(t, dirs[i], &err), 0, "%s: nothing there, nothing wrong", dirs[i]);
    }
    qr_tune_free(t);
}

/* A table of everything takes about 2 ms; the machine may be busy: the best of 5 or, if need be, 100. */
Test(tune_file, loading_takes_milliseconds)
{
    const double limit_ms = 20;
    char dir[64];
    struct qr_err err = {0};
    struct qr_tune *t = random_table(SEED + 30);
    double best = 1e9;
    new_dir(dir);
    cr_assert_eq(qr_tune_save(t, dir, &err), 0, "%s", err.msg);
    for (int k = 0; k < 5 || (k < 100 && best >= limit_ms); k++) {
        struct qr_tune *got = qr_tune_new("amx", 2);
        const int64_t began = qr_clock_ns();
        cr_assert_eq(qr_tune_load(got, dir, &err), 0, "%s", err.msg);
        const double ms = (double)(qr_clock_ns() - began) * 1e-6;
        cr_assert(same_tables(t, got));
        best = ms < best ? ms : best;
        qr_tune_free(got);
    }
    printf("%d kinds: %.3f ms\n", (int)qr_tune_count(t), best);
    cr_expect_lt(best, limit_ms);
    remove_dir(dir);
    qr_tune_free(t);
}

/* ---- the backend ---- */

/* Opens a backend with the cache in dir; what it says on standard error, and how many shapes it knows. */
static int32_t shapes_at_open(const char *dir, enum qr_tune_mode mode, struct qr_buf *said)
{
    struct qr_backend *be;
    struct qr_err err = {0};
    const struct qr_backend_options o = {.n_threads = 1, .tune = mode};
    int caught = memfd_create("said", MFD_CLOEXEC), stderr_fd = dup(2);
    setenv("XDG_CACHE_HOME", dir, 1);
    dup2(caught, 2);
    int rc = qr_backend_open(&be, &o, &err);
    dup2(stderr_fd, 2);
    close(stderr_fd);
    qr_buf_clear(said);
    slurp(caught, said);
    cr_assert_eq(rc, 0, "%s", err.msg);
    int32_t n = qr_tune_count(be->tune);
    qr_backend_close(be);
    return n;
}

Test(tune_file, a_backend_uses_its_file_ignores_a_damaged_one_with_one_line_and_looks_at_none_when_off)
{
    char dir[64], quire[100], path[400];
    struct qr_err err = {0};
    struct qr_buf said = {0};
    new_dir(dir);
    cr_expect_eq(shapes_at_open(dir, QR_TUNE_CACHED, &said), 0);
    cr_expect_eq(said.len, 0, "no file, no word: %s", said.data);
    struct qr_backend *be;
    const struct qr_backend_options o = {.n_threads = 1};
    cr_assert_eq(qr_backend_open(&be, &o, &err), 0, "%s", err.msg);
    qr_tune_set(be->tune, qr_tune_linear(QR_BF16, 1, 64, 64), 8);
    snprintf(quire, sizeof quire, "%s/quire", dir);
    cr_assert_eq(qr_tune_save(be->tune, quire, &err), 0, "%s", err.msg);
    qr_tune_path(path, sizeof path, quire, be->tune);
    qr_backend_close(be);
    cr_expect_eq(shapes_at_open(dir, QR_TUNE_CACHED, &said), 1);
    cr_expect_eq(shapes_at_open(dir, QR_TUNE_OFF, &said), 0);
    put_file(path, "quire-tune 3 0000000000000000\nrubbish\n", 38);
    cr_expect_eq(shapes_at_open(dir, QR_TUNE_CACHED, &said), 0);
    cr_assert_gt(said.len, 0);
    cr_expect(strstr(said.data, "tuning ignored") && strstr(said.data, path) && strchr(said.data, '\n') == said.data + said.len - 1, "%s", said.data);
    cr_expect_eq(shapes_at_open(dir, QR_TUNE_OFF, &said), 0);
    cr_expect_eq(said.len, 0);
    cr_expect_eq(shapes_at_open("relative", QR_TUNE_CACHED, &said), 0);
    qr_buf_release(&said);
    remove_dir(dir);
}
