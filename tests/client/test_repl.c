/* The conversation at a real terminal (a pty): keys, Ctrl-C in every state, pastes, commands, and the terminal as it was afterwards. */
#include "desk.h"

#include "base/file.h"
#include "client/session.h"

TestSuite(repl, .timeout = 280);

Test(repl, a_question_is_answered_and_ctrl_d_leaves)
{
    struct desk *d = sit_down(fake_tokens(3), "--stats");
    wait_for(d, "fake-model at http://127.0.0.1:");
    wait_prompt(d);
    type(d, "hello\r");
    wait_for(d, "tok tok tok ");
    wait_for(d, "7 prompt + 3 output tokens, first token ");
    wait_prompt(d);
    cr_expect(sent(d, "[{\"role\":\"user\",\"content\":\"hello\"}]"), "%s", d->server->body);
    say(d, "again\r");
    cr_expect(sent(d, "{\"role\":\"assistant\",\"content\":\"tok tok tok \"},{\"role\":\"user\",\"content\":\"again\"}"), "%s", d->server->body);
    say_goodbye(d);
}

Test(repl, exit_leaves_and_the_history_is_kept_for_the_owner_only)
{
    struct desk *d = sit_down(fake_tokens(1), "");
    char path[200];
    struct stat st;
    struct qr_buf text = {0};
    struct qr_err err;
    wait_prompt(d);
    say(d, "one\\two\r");
    type(d, "/exit\r");
    cr_expect_eq(leave(d), 0);
    snprintf(path, sizeof path, "%s/quire/history", d->state);
    cr_assert_eq(stat(path, &st), 0);
    cr_expect_eq(st.st_mode & 0777, 0600);
    cr_assert_eq(qr_file_read(&text, path, QR_FILE_ANY, 1000, &err), 0);
    cr_expect_str_eq(text.data, "one\\\\two\n/exit\n");
    qr_buf_release(&text);
    stand_up(d);
}

Test(repl, the_arrow_brings_back_what_was_typed_in_an_earlier_session)
{
    struct desk *d = sit_down(fake_tokens(1), "");
    wait_prompt(d);
    say(d, "from before\r");
    type(d, "\004");
    cr_expect_eq(leave(d), 0);
    char slave[100];
    cr_assert_eq(ptsname_r(d->fd, slave, sizeof slave), 0);
    d->pid = fork();
    if (d->pid == 0)
        child(d, slave, "");
    wait_prompt(d);
    say(d, "\033[A\r");
    cr_expect(sent(d, "\"content\":\"from before\""), "%s", d->server->body);
    say_goodbye(d);
}

Test(repl, ctrl_c_stops_an_answer_and_keeps_what_came)
{
    struct fake_script script = fake_tokens(100000);
    script.gap_us = 5000;
    struct desk *d = sit_down(script, "--stats");
    wait_prompt(d);
    type(d, "talk\r");
    wait_for(d, "tok tok ");
    type(d, "\003");
    wait_for(d, "about ");
    wait_for(d, " output tokens, first token ");
    cr_expect_lt(atof(d->screen.data + d->seen), 60000, "not the time since the machine started: %.40s", d->screen.data + d->seen);
    wait_for(d, " ms, about ");
    wait_for(d, " tok/s");
    wait_for(d, "[stopped]");
    wait_prompt(d);
    wait_gone(d, 1);
    usleep(1100000);
    d->server->script.n_tokens = 1;
    say(d, "go on\r");
    cr_expect(sent(d, "{\"role\":\"assistant\",\"content\":\"tok tok "), "%.300s", d->server->body);
    type(d, "/show history\r");
    wait_for(d, "[stopped] tok tok ");
    wait_prompt(d);
    say_goodbye(d);
}

Test(repl, ctrl_c_before_the_first_token_takes_the_question_out)
{
    struct fake_script script = fake_tokens(1);
    script.first_us = 60000000;
    struct desk *d = sit_down(script, "");
    wait_prompt(d);
    type(d, "slow\r");
    for (int i = 0; i < 12000 && d->server->n_posts == 0; i++)
        usleep(5000);
    type(d, "\003");
    wait_for(d, "Nothing was answered");
    wait_prompt(d);
    wait_gone(d, 1);
    d->server->script.first_us = 0;
    say(d, "fast\r");
    cr_expect(!sent(d, "slow") && sent(d, "fast"), "%s", d->server->body);
    say_goodbye(d);
}

/* Neither the answer that /regen was to replace, nor a file that was to go with a question. */
Test(repl, what_gets_no_answer_costs_nothing_that_was_there)
{
    struct desk *d = sit_down(fake_tokens(1), "");
    wait_prompt(d);
    type(d, "first\r");
    wait_for(d, "tok ");
    wait_prompt(d);
    d->server->script.error_after = 0;
    type(d, "/regen\r");
    wait_for(d, "the answer before stays");
    wait_prompt(d);
    type(d, "/read /proc/version\r");
    wait_for(d, "goes with your next message");
    wait_prompt(d);
    type(d, "which\r");
    wait_for(d, "attached goes with the next message");
    wait_prompt(d);
    d->server->script.error_after = -1;
    type(d, "which then\r");
    wait_for(d, "tok ");
    wait_prompt(d);
    cr_expect(sent(d, "first\"},{\"role\":\"assistant\",\"content\":\"tok \"},") && sent(d, "which then\\n\\nFile /proc/version:"), "%s", d->server->body);
    type(d, "/regen\r");
    wait_for(d, "tok ");
    wait_prompt(d);
    type(d, "plain\r");
    wait_for(d, "tok ");
    wait_prompt(d);
    cr_expect(sent(d, "\"content\":\"plain\"}"), "%s", d->server->body);
    say_goodbye(d);
}

Test(repl, ctrl_c_twice_while_an_answer_comes_leaves_with_130)
{
    struct fake_script script = fake_tokens(100000);
    script.gap_us = 5000;
    struct desk *d = sit_down(script, "");
    wait_prompt(d);
    type(d, "talk\r");
    wait_for(d, "tok tok ");
    type(d, "\003");
    wait_prompt(d);
    cr_expect_eq(leave_by_ctrl_c(d), 130);
    stand_up(d);
}

Test(repl, ctrl_c_drops_a_line_hints_on_an_empty_one_and_leaves_when_pressed_twice)
{
    struct desk *d = sit_down(fake_tokens(1), "");
    wait_prompt(d);
    type(d, "unwanted\003");
    wait_prompt(d);
    usleep(1100000);
    type(d, "\003");
    wait_for(d, "Ctrl-D or /exit leaves");
    wait_prompt(d);
    usleep(1100000);
    say(d, "wanted\r");
    cr_expect(sent(d, "\"content\":\"wanted\"") && !sent(d, "unwanted"), "%s", d->server->body);
    type(d, "\003");
    wait_for(d, "Ctrl-D or /exit leaves");
    cr_expect_eq(leave_by_ctrl_c(d), 130);
    stand_up(d);
}

Test(repl, signals_restore_the_terminal_in_every_state)
{
    static const int signals[] = {SIGTERM, SIGHUP, SIGQUIT};
    for (int busy = 0; busy <= 1; busy++)
        for (int i = 0; i < 3; i++) {
            struct fake_script script = fake_tokens(100000);
            script.gap_us = 5000;
            struct desk *d = sit_down(script, "");
            wait_prompt(d);
            type(d, busy ? "talk\r" : "half a li");
            wait_for(d, busy ? "tok tok " : "half a li");
            kill(d->pid, signals[i]);
            cr_expect_eq(leave(d), 128 + signals[i], "busy %d", busy);
            stand_up(d);
        }
}

/* A shell's part: runs the chat as foreground job, sees it stop, looks at the terminal, and continues it. Exits with the chat's status,
 * 98 when the terminal was not given back, 99 when it never stopped. */
static void shell(struct desk *d, const char *slave)
{
    setsid();
    int tty = open(slave, O_RDWR), status = 0;
    ioctl(tty, TIOCSCTTY, 0);
    signal(SIGTTOU, SIG_IGN);
    pid_t job = fork();
    if (job == 0) {
        setpgid(0, 0);
        tcsetpgrp(tty, getpid());
        signal(SIGTTOU, SIG_DFL);
        child(d, slave, "");
    }
    setpgid(job, job);
    if (waitpid(job, &status, WUNTRACED) != job || !WIFSTOPPED(status))
        _exit(99);
    tcsetpgrp(tty, getpid());
    struct termios now;
    tcgetattr(tty, &now);
    if (now.c_lflag != d->before.c_lflag)
        _exit(98);
    if (write(tty, "job stopped\n", 12) != 12)
        _exit(97);
    tcsetpgrp(tty, job);
    kill(job, SIGCONT);
    waitpid(job, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 96);
}

Test(repl, ctrl_z_gives_the_terminal_back_and_fg_goes_on)
{
    for (int busy = 0; busy <= 1; busy++) {
        struct fake_script script = fake_tokens(busy ? 100000 : 2); /* ended below */
        script.gap_us = busy ? 10000 : 0;
        struct desk *d = lay_out(script);
        char slave[100];
        cr_assert_eq(ptsname_r(d->fd, slave, sizeof slave), 0);
        d->pid = fork();
        if (d->pid == 0)
            shell(d, slave);
        wait_prompt(d);
        type(d, busy ? "hello\r" : "hel");
        wait_for(d, busy ? "tok tok " : "hel");
        type(d, "\032");
        wait_for(d, "job stopped");
        type(d, busy ? "" : "lo\r");
        wait_for(d, "tok tok ");
        d->server->script.n_tokens = 1;
        wait_prompt(d);
        cr_expect(sent(d, "\"content\":\"hello\""), "%s", d->server->body);
        type(d, "\004");
        cr_expect_eq(leave(d), 0);
        stand_up(d);
    }
}

Test(repl, a_paste_is_one_message_however_many_lines_it_has)
{
    struct desk *d = sit_down(fake_tokens(1), "");
    wait_prompt(d);
    type(d, "\033[200~first\rsecond\r\tthird\033[201~");
    wait_for(d, "[pasted 1: 3 lines]");
    type(d, " - explain\r");
    wait_for(d, "tok ");
    wait_prompt(d);
    cr_expect(sent(d, "\"content\":\"first\\nsecond\\n\\tthird - explain\""), "%s", d->server->body);
    type(d, "see \033[200~one line\033[201~ ok\r");
    wait_for(d, "tok ");
    wait_prompt(d);
    cr_expect(sent(d, "\"content\":\"see one line ok\""), "%s", d->server->body);
    say_goodbye(d);
}

Test(repl, ten_thousand_pasted_lines_arrive)
{
    struct desk *d = sit_down(fake_tokens(1), "");
    struct qr_buf paste = {0};
    wait_prompt(d);
    qr_buf_put_str(&paste, "\033[200~");
    for (int i = 0; i < 10000; i++)
        qr_buf_printf(&paste, "%d\r", i);
    qr_buf_put_str(&paste, "\033[201~");
    type(d, paste.data);
    wait_for(d, "[pasted 1: 10000 lines]");
    type(d, "\r");
    wait_for(d, "tok ");
    wait_prompt(d);
    cr_expect(sent(d, "\"content\":\"0\\n1\\n2\\n3\\n"));
    cr_expect(sent(d, "\\n8999\\n9000\\n"));
    type(d, "\004");
    cr_expect_eq(leave(d), 0);
    qr_buf_release(&paste);
    stand_up(d);
}

Test(repl, three_quotes_and_backslashes_join_lines)
{
    struct desk *d = sit_down(fake_tokens(1), "");
    wait_prompt(d);
    type(d, "\"\"\"one\r");
    wait_for(d, "... ");
    type(d, "\r");
    wait_for(d, "... ");
    type(d, "two\"\"\"\r");
    wait_for(d, "tok ");
    wait_prompt(d);
    cr_expect(sent(d, "\"content\":\"one\\n\\ntwo\""), "%s", d->server->body);
    type(d, "three\\\r");
    wait_for(d, "... ");
    type(d, "four\r");
    wait_for(d, "tok ");
    wait_prompt(d);
    cr_expect(sent(d, "\"content\":\"three\\nfour\""), "%s", d->server->body);
    type(d, "\"\"\"dropped\r");
    wait_for(d, "... ");
    type(d, "\003");
    wait_prompt(d);
    type(d, "kept\r");
    wait_for(d, "tok ");
    wait_prompt(d);
    cr_expect(!sent(d, "dropped") && sent(d, "kept"), "%s", d->server->body);
    say_goodbye(d);
}

Test(repl, utf8_is_edited_by_character)
{
    struct desk *d = sit_down(fake_tokens(1), "");
    wait_prompt(d);
    type(d, "caf\xc3\xa9x\x7f \xe6\xbc\xa2\xe5\xad\x97\x7f!\r"); /* "caféx" less x, " 漢字" less 字, "!" */
    wait_for(d, "tok ");
    wait_prompt(d);
    cr_expect(sent(d, "\"content\":\"caf\xc3\xa9 \xe6\xbc\xa2!\""), "%s", d->server->body);
    say_goodbye(d);
}

Test(repl, an_answer_cannot_steer_the_terminal)
{
    struct fake_script script = fake_tokens(1);
    script.text = "a\\u001b]0;owned\\u0007\\u009b31m\\u007fb";
    struct desk *d = sit_down(script, "");
    wait_prompt(d);
    type(d, "x\r");
    wait_for(d, "a^[]0;owned^G\xef\xbf\xbd" "31m^?b");
    wait_prompt(d);
    say_goodbye(d);
}

Test(repl, colour_is_off_where_it_is_not_wanted)
{
    setenv("NO_COLOR", "1", 1);
    struct desk *d = sit_down(fake_tokens(1), "");
    wait_prompt(d);
    say(d, "x\r");
    type(d, "\004");
    cr_expect_eq(leave(d), 0);
    cr_expect(strstr(d->screen.data, "\033[2m") == NULL && strstr(d->screen.data, "\033[36m") == NULL);
    stand_up(d);
    unsetenv("NO_COLOR");
    d = sit_down(fake_tokens(1), "--color always");
    wait_prompt(d);
    type(d, "\004");
    cr_expect_eq(leave(d), 0);
    cr_expect(strstr(d->screen.data, "\033[36m") != NULL);
    stand_up(d);
}

Test(repl, commands_do_what_they_say)
{
    struct desk *d = sit_down(fake_tokens(1), "");
    char path[100], line[300];
    snprintf(path, sizeof path, "%s/talk.jsonl", d->state);
    wait_prompt(d);
    type(d, "/hepl\r");
    wait_for(d, "Did you mean /help?");
    wait_prompt(d);
    type(d, "/help\r");
    wait_for(d, "/regen");
    wait_prompt(d);
    say(d, "/system be brief\r");
    say(d, "/set temperature 0.5\r");
    type(d, "/set temprature 1\r");
    wait_for(d, "Did you mean 'temperature'?");
    wait_prompt(d);
    type(d, "/set top_p 3\r");
    wait_for(d, "from 0 to 1");
    wait_prompt(d);
    type(d, "/model\r");
    wait_for(d, "* fake-model");
    wait_prompt(d);
    type(d, "/model other\r");
    wait_for(d, "The server has no model 'other'; the conversation goes on with 'fake-model'.");
    wait_for(d, "* fake-model");
    wait_prompt(d);
    d->server->script.models = "{\"data\":[{\"id\":\"fake-model\"},{\"id\":\"other\"}]}";
    say(d, "/model other\r");
    type(d, "/model\r");
    wait_for(d, "* other");
    wait_prompt(d);
    type(d, "question\r");
    wait_for(d, "tok ");
    wait_prompt(d);
    cr_expect(sent(d, "\"model\":\"other\"") && sent(d, "{\"role\":\"system\",\"content\":\"be brief\"}") && sent(d, "\"temperature\":0.5"), "%s",
              d->server->body);
    type(d, "/stats\r");
    wait_for(d, "7 prompt + 1 output tokens");
    wait_prompt(d);
    snprintf(line, sizeof line, "/save %s\r", path);
    type(d, line);
    wait_for(d, "3 messages written");
    wait_prompt(d);
    type(d, "/undo\r");
    wait_for(d, "are gone");
    wait_prompt(d);
    type(d, "/regen\r");
    wait_for(d, "no question");
    wait_prompt(d);
    snprintf(line, sizeof line, "/load %s\r", path);
    type(d, line);
    wait_for(d, "3 messages read");
    wait_prompt(d);
    int n_posts = d->server->n_posts;
    type(d, "/regen\r");
    wait_for(d, "tok ");
    wait_prompt(d);
    cr_expect_eq(d->server->n_posts, n_posts + 1);
    cr_expect(sent(d, "\"content\":\"question\"}]"), "the answer before is not sent: %s", d->server->body);
    snprintf(line, sizeof line, "/read %s\r", path);
    type(d, line);
    wait_for(d, "goes with your next message");
    wait_prompt(d);
    type(d, "what is this\r");
    wait_for(d, "tok ");
    wait_prompt(d);
    cr_expect(sent(d, "what is this\\n\\nFile /tmp/"), "%s", d->server->body);
    type(d, "/clear\r");
    wait_for(d, "empty but for the system message");
    wait_prompt(d);
    type(d, "/read /no/such/file\r");
    wait_for(d, "cannot read '/no/such/file'");
    wait_prompt(d);
    type(d, "/quit\r");
    cr_expect_eq(leave(d), 0);
    stand_up(d);
}

Test(repl, the_editor_writes_the_next_message)
{
    setenv("VISUAL", "sh -c 'echo from the editor > \"$0\"'", 1);
    struct desk *d = sit_down(fake_tokens(1), "");
    wait_prompt(d);
    type(d, "/edit\r");
    wait_for(d, "tok ");
    wait_prompt(d);
    cr_expect(sent(d, "\"content\":\"from the editor\""), "%s", d->server->body);
    say_goodbye(d);
    setenv("VISUAL", "false", 1);
    d = sit_down(fake_tokens(1), "");
    wait_prompt(d);
    type(d, "/edit\r");
    wait_for(d, "the editor failed");
    wait_prompt(d);
    type(d, "\004");
    cr_expect_eq(leave(d), 0);
    cr_expect_eq(d->server->n_posts, 0);
    stand_up(d);
}

Test(repl, tab_completes_commands_parameters_and_files)
{
    struct desk *d = sit_down(fake_tokens(1), "");
    wait_prompt(d);
    type(d, "/reg\t\r");
    wait_for(d, "no question to answer again");
    wait_prompt(d);
    say(d, "/set temp\t0.25\r");
    type(d, "/re\t");
    wait_for(d, "/regen  /read");
    type(d, "\003");
    wait_prompt(d);
    type(d, "/read /etc/host\tname\t\r");
    wait_for(d, "goes with your next message");
    wait_prompt(d);
    type(d, "x\r");
    wait_for(d, "tok ");
    wait_prompt(d);
    cr_expect(sent(d, "\"temperature\":0.25"), "%s", d->server->body);
    say_goodbye(d);
}

Test(repl, an_error_in_the_middle_is_told_and_the_conversation_goes_on)
{
    struct fake_script script = fake_tokens(5);
    script.error_after = 2;
    struct desk *d = sit_down(script, "");
    wait_prompt(d);
    type(d, "x\r");
    wait_for(d, "the engine fell over");
    wait_for(d, "[stopped]");
    wait_prompt(d);
    d->server->script.error_after = -1;
    type(d, "/regen\r");
    wait_for(d, "tok tok tok tok tok ");
    wait_prompt(d);
    say_goodbye(d);
}

Test(repl, typing_during_an_answer_waits_for_the_prompt)
{
    struct fake_script script = fake_tokens(40);
    script.gap_us = 10000;
    struct desk *d = sit_down(script, "");
    wait_prompt(d);
    type(d, "one\r");
    wait_for(d, "tok tok ");
    say(d, "two\r");
    wait_for(d, "two");
    wait_prompt(d);
    cr_expect(sent(d, "\"content\":\"two\""), "%s", d->server->body);
    say_goodbye(d);
}

Test(repl, a_resized_window_disturbs_neither_typing_nor_answers)
{
    struct fake_script script = fake_tokens(60);
    script.gap_us = 5000;
    struct desk *d = sit_down(script, "");
    struct winsize size = {.ws_row = 10, .ws_col = 40};
    wait_prompt(d);
    type(d, "one ");
    wait_for(d, "one ");
    ioctl(d->fd, TIOCSWINSZ, &size);
    type(d, "two\r");
    wait_for(d, "tok tok ");
    size.ws_col = 120;
    ioctl(d->fd, TIOCSWINSZ, &size);
    wait_prompt(d);
    cr_expect(sent(d, "\"content\":\"one two\""), "%s", d->server->body);
    say_goodbye(d);
}

Test(repl, a_terminal_that_says_65535_by_65535_is_talked_in)
{
    struct desk *d = sit_down(fake_tokens(1), "");
    struct winsize size = {.ws_row = 65535, .ws_col = 65535};
    wait_prompt(d);
    ioctl(d->fd, TIOCSWINSZ, &size);
    type(d, "one\r");
    wait_for(d, "tok ");
    wait_prompt(d);
    cr_expect(sent(d, "\"content\":\"one\""), "%s", d->server->body);
    cr_assert_eq(ioctl(d->fd, TIOCGWINSZ, &size), 0);
    cr_expect(size.ws_row <= 1000 && size.ws_col <= 4000, "%d x %d", size.ws_row, size.ws_col);
    say_goodbye(d);
}

Test(repl, without_a_server_it_ends_at_once_with_3)
{
    struct desk *d = sit_down(fake_tokens(1), "--url http://127.0.0.1:1");
    wait_for(d, "cannot connect to http://127.0.0.1:1");
    cr_expect_eq(leave(d), 3);
    stand_up(d);
}
