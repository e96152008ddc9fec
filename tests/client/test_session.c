/* Conversations and their files, the history of typed lines, sampling parameters, and text made safe for a terminal. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "client/chunk.h"
#include "client/line_history.h"
#include "client/params.h"
#include "client/session.h"

static char path[64];

static void make_path(void)
{
    snprintf(path, sizeof path, "/tmp/quire-session-XXXXXX");
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    close(fd);
}

static void drop_path(void)
{
    unlink(path);
}

TestSuite(session, .init = make_path, .fini = drop_path);
TestSuite(history, .init = make_path, .fini = drop_path);

static void put_file(const char *text, size_t n)
{
    int fd = open(path, O_WRONLY | O_TRUNC);
    cr_assert_eq(write(fd, text, n), (ssize_t)n);
    close(fd);
}

static void add(struct qr_session *s, enum qr_role role, const char *text)
{
    qr_session_add(s, role, text, strlen(text), false);
}

static void body_is(const struct qr_session *s, const char *messages)
{
    struct qr_buf body = {0};
    struct qr_chat_params p = {0};
    struct qr_json *doc;
    struct qr_err err;
    qr_session_body(&body, s, "m", &p, "", false);
    cr_assert_eq(qr_json_parse(&doc, body.data, body.len, &qr_json_limits_request, &err), 0);
    qr_json_free(doc);
    const char *start = strstr(body.data, "\"messages\":") + 11;
    cr_expect_eq(strncmp(start, messages, strlen(messages)), 0, "%s", start);
    qr_buf_release(&body);
}

Test(session, the_system_message_is_always_first_and_only_one)
{
    struct qr_session s = {0};
    add(&s, QR_ROLE_USER, "a");
    qr_session_set_system(&s, "one");
    qr_session_set_system(&s, "two");
    body_is(&s, "[{\"role\":\"system\",\"content\":\"two\"},{\"role\":\"user\",\"content\":\"a\"}]");
    qr_session_clear(&s);
    body_is(&s, "[{\"role\":\"system\",\"content\":\"two\"}]");
    qr_session_set_system(&s, NULL);
    body_is(&s, "[]");
    qr_session_release(&s);
}

Test(session, undo_takes_the_question_and_all_behind_it_and_rewind_leaves_the_question)
{
    struct qr_session s = {0}, taken = {0};
    cr_expect(!qr_session_undo(&s));
    cr_expect(!qr_session_rewind_to_user(&s, &taken));
    qr_session_set_system(&s, "s");
    cr_expect(!qr_session_undo(&s));
    add(&s, QR_ROLE_USER, "q1");
    add(&s, QR_ROLE_ASSISTANT, "a1");
    add(&s, QR_ROLE_USER, "q2");
    add(&s, QR_ROLE_ASSISTANT, "a2");
    cr_expect(qr_session_rewind_to_user(&s, &taken));
    cr_expect_eq(s.n, 4);
    cr_expect(taken.n == 1 && strcmp(taken.message[0].text, "a2") == 0);
    qr_session_release(&taken);
    cr_expect(qr_session_undo(&s));
    cr_expect_str_eq(qr_session_last(&s, QR_ROLE_ASSISTANT)->text, "a1");
    cr_expect(qr_session_undo(&s));
    cr_expect_eq(s.n, 1);
    qr_session_release(&s);
}

Test(session, calls_and_their_results_are_sent_saved_and_loaded)
{
    static const char calls[] = "\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}],"
                                "\"reasoning_content\":\"hm\"";
    static const char sent[] = "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c1\","
                               "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}],\"reasoning_content\":\"hm\"},"
                               "{\"role\":\"tool\",\"content\":\"42\",\"tool_call_id\":\"c1\"}]";
    struct qr_session s = {0}, t = {0};
    struct qr_err err;
    add(&s, QR_ROLE_USER, "q");
    add(&s, QR_ROLE_ASSISTANT, "");
    qr_session_set_more(&s, calls);
    add(&s, QR_ROLE_TOOL, "42");
    qr_session_set_more(&s, "\"tool_call_id\":\"c1\"");
    body_is(&s, sent);
    cr_assert_eq(qr_session_save(&s, path, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_session_load(&t, path, &err), 0, "%s", err.msg);
    body_is(&t, sent);
    static const char no_id[] = "{\"role\":\"tool\",\"content\":\"42\"}\n";
    put_file(no_id, sizeof no_id - 1);
    cr_expect_eq(qr_session_load(&t, path, &err), QR_E_DAMAGED);
    cr_expect(strstr(err.msg, "tool_call_id") != NULL, "%s", err.msg);
    qr_session_release(&s);
    qr_session_release(&t);
}

Test(session, what_is_saved_is_loaded)
{
    struct qr_session s = {0}, t = {0};
    struct qr_err err;
    struct stat st;
    qr_session_set_system(&s, "be \"brief\"\n");
    add(&s, QR_ROLE_USER, "h\xc3\xa9llo\n\tw\xe2\x80\xa8orld");
    qr_session_add(&s, QR_ROLE_ASSISTANT, "par", 3, true);
    cr_assert_eq(qr_session_save(&s, path, &err), 0, "%s", err.msg);
    cr_expect(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    add(&t, QR_ROLE_USER, "replaced");
    cr_assert_eq(qr_session_load(&t, path, &err), 0, "%s", err.msg);
    cr_assert_eq(t.n, s.n);
    for (int i = 0; i < s.n; i++) {
        cr_expect_eq(t.message[i].role, s.message[i].role);
        cr_expect_eq(t.message[i].stopped, s.message[i].stopped);
        cr_expect_str_eq(t.message[i].text, s.message[i].text);
    }
    qr_session_release(&s);
    qr_session_release(&t);
}

Test(session, a_neighbour_of_what_is_saved_is_left_alone)
{
    struct qr_session s = {0};
    struct qr_err err;
    char neighbour[80], text[8] = "";
    add(&s, QR_ROLE_USER, "hello");
    snprintf(neighbour, sizeof neighbour, "%s.part", path);
    int fd = open(neighbour, O_RDWR | O_CREAT | O_EXCL, 0600);
    cr_assert(fd >= 0 && write(fd, "mine", 4) == 4);
    cr_assert_eq(qr_session_save(&s, path, &err), 0, "%s", err.msg);
    cr_expect(access(neighbour, F_OK) == 0 && pread(fd, text, 4, 0) == 4 && strcmp(text, "mine") == 0);
    close(fd);
    unlink(neighbour);
    qr_session_release(&s);
}

Test(session, a_damaged_file_is_refused_with_its_line_and_changes_nothing)
{
    static const char *const bad[] = {
        "x", "{}", "[]", "{\"role\":\"user\"}", "{\"role\":\"tool\",\"content\":\"x\"}", "{\"role\":\"user\",\"content\":5}",
        "{\"role\":\"user\",\"content\":\"a\"}\n{\"role\":\"system\",\"content\":\"late\"}", "{\"role\":\"user\",\"content\":\"a\"} x",
        "{\"role\":\"user\",\"content\":\"\xff\"}",
    };
    struct qr_session s = {0};
    struct qr_err err;
    add(&s, QR_ROLE_USER, "kept");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put_file(bad[i], strlen(bad[i]));
        cr_expect_lt(qr_session_load(&s, path, &err), 0, "%s", bad[i]);
        cr_expect(strstr(err.msg, "line ") != NULL, "%s", err.msg);
        cr_expect(s.n == 1 && strcmp(s.message[0].text, "kept") == 0);
    }
    cr_expect_eq(qr_session_load(&s, "/no/such/file", &err), QR_E_NOT_FOUND);
    cr_expect_eq(qr_session_load(&s, "/tmp", &err), QR_E_IO);
    cr_expect_eq(qr_session_save(&s, "/no/such/dir/file", &err), QR_E_IO);
    qr_session_release(&s);
}

Test(history, lines_come_back_and_repeats_do_not)
{
    struct qr_line_history h;
    qr_history_open(&h, path);
    cr_expect(qr_history_add(&h, "one"));
    cr_expect(!qr_history_add(&h, "one"));
    cr_expect(!qr_history_add(&h, ""));
    cr_expect(qr_history_add(&h, "two\nlines \\n and a backslash \\"));
    qr_history_close(&h);
    qr_history_open(&h, path);
    cr_assert_eq(h.n, 2);
    cr_expect_str_eq(h.line[1], "two\nlines \\n and a backslash \\");
    qr_history_close(&h);
}

Test(history, two_sessions_lose_nothing_of_each_other)
{
    struct qr_line_history a, b, c;
    qr_history_open(&a, path);
    qr_history_open(&b, path);
    qr_history_add(&a, "from a");
    qr_history_add(&b, "from b");
    qr_history_add(&a, "again a");
    qr_history_close(&a);
    qr_history_close(&b);
    qr_history_open(&c, path);
    cr_expect_eq(c.n, 3);
    qr_history_close(&c);
}

Test(history, a_line_cut_off_by_a_crash_is_dropped)
{
    struct qr_line_history h;
    put_file("whole\ncut o", 11);
    qr_history_open(&h, path);
    cr_expect_eq(h.n, 1);
    cr_expect(qr_history_add(&h, "next"));
    qr_history_close(&h);
    qr_history_open(&h, path);
    cr_assert_eq(h.n, 2);
    cr_expect_str_eq(h.line[1], "next"); /* and does not go on in front of the next one */
    qr_history_close(&h);
}

Test(history, a_line_cut_off_costs_no_other)
{
    enum { N = QR_HISTORY_MAX - 1 };
    static char text[8 * N];
    struct qr_line_history h;
    size_t n = 0;
    for (int i = 0; i < N; i++)
        n += (size_t)sprintf(text + n, "%d\n", i);
    put_file(text, n + (size_t)sprintf(text + n, "cut o"));
    for (int again = 0; again < 2; again++) {
        qr_history_open(&h, path);
        cr_expect_eq(h.n, N);
        cr_expect_str_eq(h.line[0], "0");
        qr_history_close(&h);
    }
}

/* Long pastes are kept, too: twenty of them are more than is read. */
Test(history, a_file_that_became_too_long_keeps_its_newest_lines)
{
    struct qr_line_history h;
    struct stat st;
    const size_t n = (size_t)1 << 20;
    char *paste = calloc(n, 1);
    memset(paste, 'x', n - 1);
    qr_history_open(&h, path);
    for (int i = 0; i < 20; i++) {
        paste[0] = (char)('a' + i);
        qr_history_add(&h, paste);
        qr_history_add(&h, i < 19 ? "short" : "newest");
    }
    qr_history_close(&h);
    cr_assert(stat(path, &st) == 0 && st.st_size > 20 * (off_t)(n - 1));
    qr_history_open(&h, path);
    cr_assert_gt(h.n, 10);
    cr_expect(strcmp(h.line[h.n - 1], "newest") == 0 && h.line[h.n - 2][0] == 't');
    cr_expect(stat(path, &st) == 0 && st.st_size < 10 * (off_t)n);
    qr_history_close(&h);
    free(paste);
}

Test(history, it_stays_bounded)
{
    struct qr_line_history h;
    char line[32];
    qr_history_open(&h, path);
    for (int i = 0; i <= QR_HISTORY_MAX; i++) {
        snprintf(line, sizeof line, "line %d", i);
        qr_history_add(&h, line);
    }
    qr_history_close(&h);
    for (int again = 0; again < 2; again++) {
        struct stat st;
        qr_history_open(&h, path);
        cr_assert_eq(h.n, QR_HISTORY_MAX / 2);
        snprintf(line, sizeof line, "line %d", QR_HISTORY_MAX);
        cr_expect_str_eq(h.line[h.n - 1], line);
        cr_expect(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
        qr_history_close(&h);
    }
}

Test(history, without_a_place_it_lives_in_memory)
{
    struct qr_line_history h;
    qr_history_open(&h, NULL);
    cr_expect(qr_history_add(&h, "x"));
    qr_history_close(&h);
    qr_history_open(&h, "/no/such/dir/history");
    cr_expect(qr_history_add(&h, "x"));
    qr_history_close(&h);
}

Test(params, edges_are_taken_and_one_beyond_is_refused)
{
    static const struct {
        const char *name, *text;
        bool ok;
    } cases[] = {
        {"temperature", "0", true},   {"temperature", "2", true},       {"temperature", "2.0001", false}, {"temperature", "-1e-9", false},
        {"temperature", "", false},   {"temperature", "1x", false},     {"temperature", "inf", false},    {"temperature", "nan", false},
        {"top_p", "1", true},         {"top-p", "0.5", true},           {"top_p", "1.01", false},         {"max_tokens", "1", true},
        {"max_tokens", "0", false},   {"max-tokens", "2147483647", true}, {"max_tokens", "2147483648", false}, {"max_tokens", "1.5", false},
        {"seed", "-1", true},         {"seed", "9007199254740991", true}, {"seed", "9007199254740993", false}, {"seed", "1e3", false},
        {"seed", "99999999999999999999", false}, {"stop", "", false},   {"stop", "x", true},              {"presence_penalty", "-2", true},
    };
    struct qr_chat_params p = {0};
    struct qr_err err;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_expect_eq(qr_chat_params_set(&p, cases[i].name, cases[i].text, "shown", &err) == 0, cases[i].ok, "%s %s", cases[i].name, cases[i].text);
    cr_expect_eq(qr_chat_params_set(&p, "temprature", "1", "x", &err), QR_E_USAGE);
    cr_expect(strstr(err.msg, "'temperature'") != NULL, "%s", err.msg);
    qr_chat_params_release(&p);
}

Test(params, default_unsets)
{
    struct qr_chat_params p = {0};
    struct qr_err err;
    struct qr_buf out = {0};
    qr_chat_params_set(&p, "temperature", "0.7", "x", &err);
    qr_chat_params_set(&p, "stop", "a", "x", &err);
    qr_chat_params_put(&out, &p);
    cr_expect_str_eq(out.data, ",\"temperature\":0.7,\"stop\":[\"a\"]");
    qr_buf_clear(&out);
    qr_chat_params_set(&p, "temperature", "default", "x", &err);
    qr_chat_params_set(&p, "stop", "default", "x", &err);
    qr_chat_params_put(&out, &p);
    cr_expect_eq(out.len, 0);
    qr_buf_release(&out);
    qr_chat_params_release(&p);
}
