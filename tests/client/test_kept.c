/* Conversations that are kept: written, listed, read again, bounded, and for their owner only. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "client/kept.h"
#include "tests/temp.h"

TestSuite(kept, .timeout = 60);

static void say(struct qr_session *s, const char *question)
{
    qr_session_add(s, QR_ROLE_USER, question, strlen(question), false);
    qr_session_add(s, QR_ROLE_ASSISTANT, "yes", 3, false);
}

/* Keeps a new conversation, last used so many seconds after 2026 began. */
static void keep(struct qr_kept *k, const char *question, int64_t at_s)
{
    struct qr_session s = {0};
    struct qr_err err;
    say(&s, question);
    qr_kept_begin(k);
    cr_assert_eq(qr_kept_save(k, &s, &err), 0, "%s", err.msg);
    const struct timespec when[2] = {{.tv_sec = 1767225600 + at_s}, {.tv_sec = 1767225600 + at_s}};
    cr_assert_eq(utimensat(AT_FDCWD, k->path, when, 0), 0);
    qr_session_release(&s);
}

Test(kept, a_conversation_is_found_again_by_its_age_and_goes_on_in_its_file)
{
    char dir[64];
    struct qr_kept k;
    struct qr_session s = {0};
    struct qr_err err;
    struct qr_kept_list list;
    struct stat st;
    temp_dir_make(dir, "kept");
    qr_kept_open(&k, dir, true);
    keep(&k, "older", 1);
    keep(&k, "newer", 2);
    cr_assert_eq(stat(k.path, &st), 0);
    cr_expect_eq(st.st_mode & 0777, 0600);
    cr_assert_eq(qr_kept_load(&k, &s, 2, &err), 0, "%s", err.msg);
    cr_expect_str_eq(s.message[0].text, "older");
    say(&s, "and on");
    cr_assert_eq(qr_kept_save(&k, &s, &err), 0);
    qr_kept_list(&list, &k);
    cr_assert_eq(list.n, 2, "no third file");
    cr_expect_str_eq(list.file[0].path, k.path, "it is the newest now");
    qr_kept_list_release(&list);
    cr_assert_eq(qr_kept_load(&k, &s, 1, &err), 0);
    cr_expect_eq(s.n, 4);
    cr_expect_eq(qr_kept_load(&k, &s, 3, &err), QR_E_NOT_FOUND);
    cr_expect_str_eq(err.msg, "there is no conversation 3, expected 1 to 2");
    cr_expect_eq(qr_kept_load(&k, &s, 0, &err), QR_E_NOT_FOUND);
    cr_expect_eq(s.n, 4, "as it was");
    qr_session_undo(&s);
    qr_session_undo(&s);
    cr_assert_eq(qr_kept_save(&k, &s, &err), 0);
    qr_kept_list(&list, &k);
    cr_expect_eq(list.n, 1, "one in which nothing is said has no file");
    qr_kept_list_release(&list);
    qr_session_release(&s);
    qr_kept_close(&k);
    cr_expect_eq(qr_dir_remove(dir, &err), 0);
}

Test(kept, the_oldest_are_removed_and_files_of_others_stay)
{
    char dir[64], other[100];
    struct qr_kept k;
    struct qr_kept_list list;
    struct qr_session s = {0};
    struct qr_err err;
    temp_dir_make(dir, "kept");
    snprintf(other, sizeof other, "%s/mine.jsonl", dir);
    close(open(other, O_WRONLY | O_CREAT, 0600));
    qr_kept_open(&k, dir, true);
    for (int i = 0; i < QR_KEPT_MAX + 3; i++) {
        char question[32];
        snprintf(question, sizeof question, "number %d", i);
        keep(&k, question, i);
    }
    qr_kept_list(&list, &k);
    cr_expect_eq(list.n, QR_KEPT_MAX);
    qr_kept_list_release(&list);
    cr_assert_eq(qr_kept_load(&k, &s, QR_KEPT_MAX, &err), 0);
    cr_expect_str_eq(s.message[0].text, "number 3");
    cr_expect_eq(access(other, F_OK), 0);
    qr_session_release(&s);
    qr_kept_close(&k);
    cr_expect_eq(qr_dir_remove(dir, &err), 0);
}

Test(kept, what_may_not_be_written_is_not)
{
    char dir[64];
    struct qr_kept k;
    struct qr_kept_list list;
    struct qr_session s = {0};
    struct qr_err err;
    temp_dir_make(dir, "kept");
    qr_kept_open(&k, dir, false);
    say(&s, "secret");
    cr_expect_eq(qr_kept_save(&k, &s, &err), 0);
    qr_kept_close(&k);
    qr_kept_open(&k, dir, true);
    char *large = calloc(QR_KEPT_ONE_BYTES_MAX + 1, 1);
    qr_session_add(&s, QR_ROLE_ASSISTANT, memset(large, 'x', QR_KEPT_ONE_BYTES_MAX), QR_KEPT_ONE_BYTES_MAX, false);
    free(large);
    cr_expect_eq(qr_kept_save(&k, &s, &err), QR_E_TOO_LARGE);
    cr_expect(strstr(err.msg, "/save FILE writes it"), "%s", err.msg);
    qr_kept_list(&list, &k);
    cr_expect_eq(list.n, 0);
    cr_expect_eq(qr_kept_load(&k, &s, 1, &err), QR_E_NOT_FOUND);
    cr_expect_str_eq(err.msg, "no conversation has been kept yet");
    qr_session_release(&s);
    qr_kept_close(&k);
    cr_expect_eq(qr_dir_remove(dir, &err), 0);
}
