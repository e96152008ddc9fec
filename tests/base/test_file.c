/* Files: written over what is there, or refused with the system's reason. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
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
