/* Files: written over what is there, or refused with the system's reason. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/cut_file.h"
#include "base/file.h"
#include "base/files/map_file.h"
#include "tests/last_words.h"
#include "tests/temp.h"

Test(file, results_are_written_over_what_is_there_and_a_full_disk_is_an_error_that_names_it)
{
    struct qr_err err = {0};
    char dir[64], path[300], text[16];
    static char large[3 << 20];
    temp_dir_make(dir, "file");
    snprintf(path, sizeof path, "%s/out", dir);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(qr_file_put(path, i ? "short" : "a longer text", i ? 5 : 13, &err), 0, "%s", err.msg);
    FILE *f = fopen(path, "r");
    cr_assert(f && fread(text, 1, sizeof text, f) == 5 && memcmp(text, "short", 5) == 0);
    fclose(f);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(qr_file_put("/dev/full", large, i ? sizeof large : 1, &err), QR_E_IO);
        cr_assert_str_eq(err.msg, "/dev/full: cannot be written: No space left on device (ENOSPC); make room on the disk");
    }
    snprintf(path, sizeof path, "%s/none/out", dir);
    cr_assert_eq(qr_file_put(path, "x", 1, &err), QR_E_IO);
    cr_assert_not_null(strstr(err.msg, "/none/out: cannot be made: No such file or directory (ENOENT)"), "%s", err.msg);
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
}

Test(file, a_directory_is_made_with_those_above_it_and_a_file_in_its_way_is_named)
{
    struct qr_err err = {0};
    char dir[64], path[300], long_name[QR_PATH_MAX + 1];
    struct stat st;
    temp_dir_make(dir, "file");
    snprintf(path, sizeof path, "%s/a/b/c", dir);
    for (int i = 0; i < 2; i++) /* the second time it is there */
        cr_assert_eq(qr_dir_make_all(path, 0700, &err), 0, "%s", err.msg);
    cr_expect(stat(path, &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 0777) == 0700);
    cr_expect_eq(qr_dir_make_all("/dev/null/x", 0700, &err), QR_E_IO);
    cr_expect(strncmp(err.msg, "/dev/null/x: cannot be made: ", 29) == 0, "%s", err.msg);
    memset(long_name, 'x', QR_PATH_MAX);
    long_name[QR_PATH_MAX] = '\0';
    cr_expect_eq(qr_dir_make_all(long_name, 0700, &err), QR_E_TOO_LARGE);
    for (int n = 3; n > 0; n--) {
        cr_assert_eq(rmdir(path), 0);
        *strrchr(path, '/') = '\0';
    }
    cr_assert_eq(rmdir(dir), 0);
}

Test(file, a_file_is_read_whole_up_to_a_limit_and_only_an_optional_one_may_be_missing)
{
    static char large[300000];
    struct qr_buf text = {0};
    struct qr_err err = {0};
    char dir[64], path[300];
    temp_dir_make(dir, "file");
    snprintf(path, sizeof path, "%s/in", dir);
    memset(large, 'x', sizeof large);
    cr_assert_eq(qr_file_put(path, large, sizeof large, &err), 0, "%s", err.msg);
    qr_buf_put_str(&text, "before");
    cr_assert_eq(qr_file_read(&text, path, QR_FILE_ANY, sizeof large, &err), 0, "%s", err.msg);
    cr_assert(text.len == 6 + sizeof large && memcmp(text.data + 6, large, sizeof large) == 0 && text.data[text.len] == 0);
    cr_expect_eq(qr_file_read(&text, path, QR_FILE_REGULAR, sizeof large - 1, &err), QR_E_TOO_LARGE);
    cr_expect_eq(qr_file_read(&text, dir, QR_FILE_ANY, 1, &err), QR_E_IO, "a directory has no text");
    qr_buf_release(&text);
    snprintf(path, sizeof path, "%s/none", dir);
    cr_expect_eq(qr_file_read(&text, path, QR_FILE_REGULAR, 1, &err), QR_E_NOT_FOUND);
    cr_expect(qr_file_read(&text, path, QR_FILE_OPTIONAL, 1, &err) == 0 && text.data == NULL);
    cr_assert_eq(qr_file_put(path, "", 0, &err), 0, "%s", err.msg);
    cr_expect(qr_file_read(&text, path, QR_FILE_OPTIONAL, 0, &err) == 0 && text.data != NULL && text.len == 0, "empty, but there");
    qr_buf_release(&text);
    cr_assert(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    cr_expect_eq(qr_file_read(&text, path, QR_FILE_OPTIONAL, 1, &err), QR_E_IO, "nothing writes into this pipe");
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
}

/* As two processes do that keep what they measured in one directory. */
Test(file, what_is_replaced_is_whole_and_the_file_that_another_is_writing_for_the_same_place_is_left_alone)
{
    static const char *const want[][2] = {{"out", "ours"}, {"out.new", "theirs"}};
    struct qr_err err = {0};
    char dir[64], path[300], text[16];
    temp_dir_make(dir, "file");
    snprintf(path, sizeof path, "%s/out.new", dir);
    cr_assert_eq(qr_file_put(path, "theirs", 6, &err), 0, "%s", err.msg);
    snprintf(path, sizeof path, "%s/out", dir);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(qr_file_replace(path, i ? "ours" : "longer", i ? 4 : 6, &err), 0, "%s", err.msg);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, want[i][0]);
        FILE *f = fopen(path, "r");
        cr_assert(f != NULL, "%s", path);
        const size_t n = fread(text, 1, sizeof text, f);
        cr_expect(n == strlen(want[i][1]) && memcmp(text, want[i][1], n) == 0, "%s", path);
        fclose(f);
    }
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
}

/* Looks at the last byte of a mapped file that was cut; without a file it has a signal that no file caused. */
static void look_behind_the_end(const void *arg)
{
    const char *path = arg;
    struct qr_map_file f;
    struct qr_err err;
    signal(SIGBUS, SIG_DFL); /* the test library's own */
    qr_cut_file_explain();
    if (!path)
        raise(SIGBUS);
    if (qr_map_file_open(&f, path, SIZE_MAX, &err) != 0 || truncate(path, 0) != 0)
        _exit(99);
    const volatile uint8_t *last = f.data + f.n_bytes - 1;
    _exit(*last == 7 ? 98 : 97);
}

Test(file, a_file_that_is_cut_while_it_is_mapped_ends_the_process_with_its_name_and_status_4_and_any_other_bus_error_as_ever)
{
    struct qr_err err = {0};
    char dir[64], path[300], said[512], want[400];
    static const char bytes[5000];
    temp_dir_make(dir, "file");
    snprintf(path, sizeof path, "%s/weights", dir);
    cr_assert_eq(qr_file_put(path, bytes, sizeof bytes, &err), 0, "%s", err.msg);
    int status = last_words(said, look_behind_the_end, path);
    snprintf(want, sizeof want, "quire: %s: became shorter while it was in use", path);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 4 && strncmp(said, want, strlen(want)) == 0, "%x %s", (unsigned)status, said);
    status = last_words(said, look_behind_the_end, NULL);
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS && said[0] == 0, "%x %s", (unsigned)status, said);
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
}

Test(file, pages_of_a_mapped_file_that_was_cut_are_not_said_to_be_there)
{
    struct qr_map_file f;
    struct qr_err err = {0};
    char dir[64], path[300];
    static const char bytes[5000];
    temp_dir_make(dir, "file");
    snprintf(path, sizeof path, "%s/weights", dir);
    cr_assert_eq(qr_file_put(path, bytes, sizeof bytes, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_map_file_open(&f, path, SIZE_MAX, &err), 0, "%s", err.msg);
    const bool known = qr_map_file_populate(&f, 0, sizeof bytes); /* Linux 5.14 and later */
    cr_assert_eq(truncate(path, 100), 0);
    cr_expect_not(qr_map_file_populate(&f, 0, sizeof bytes));
    cr_expect_eq(qr_map_file_populate(&f, 0, 100), known);
    cr_expect(qr_map_file_populate(&f, 0, 0));
    qr_map_file_close(&f);
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
}
