/* Thinking, tools and schemas in a conversation at a terminal, and the running of a tool's command. */
#include "desk.h"

#include "client/tools.h"

TestSuite(rounds, .timeout = 280);
TestSuite(tools, .timeout = 60);

#define EVENT(delta) "data: {\"choices\":[{\"index\":0,\"delta\":" delta "}]}\n\n"
#define END(reason) "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"" reason "\"}]}\n\ndata: [DONE]\n\n"
#define THOUGHT EVENT("{\"role\":\"assistant\",\"reasoning_content\":\"one two\"}") EVENT("{\"reasoning_content\":\" three\"}")
#define TEXT(text) EVENT("{\"content\":\"" text "\"}")
#define CALL(arguments)                                                                                                          \
    EVENT("{\"tool_calls\":[{\"index\":0,\"id\":\"c7\",\"type\":\"function\",\"function\":{\"name\":\"echo\",\"arguments\":\"\"}}]}") \
    EVENT("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"a\\\":\"}}]}")                                          \
    EVENT("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"" arguments "}\"}}]}")

static struct fake_script prepared(const char *first, const char *then)
{
    struct fake_script script = fake_tokens(1);
    script.bodies[0] = first;
    script.bodies[1] = then;
    script.n_bodies = then != NULL ? 2 : 1;
    script.stream_piece = 13;
    return script;
}

/* A file beside the history, named in words by its place. */
static char *put_file(struct desk *d, char path[200], const char *name, const char *text)
{
    snprintf(path, 200, "%s/%s", d->state, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return path;
}

/* Sits down with --tools: one tool, "echo", whose command is the JSON array. */
static struct desk *sit_with_tool(struct fake_script script, const char *command, const char *more)
{
    struct desk *d = lay_out(script);
    char slave[100], path[200], words[300], text[600];
    snprintf(text, sizeof text, "[{\"function\":{\"name\":\"echo\",\"parameters\":{\"type\":\"object\"}},\"command\":%s}]", command);
    put_file(d, path, "tools.json", text);
    snprintf(words, sizeof words, "--tools=%s %s", path, more);
    cr_assert_eq(ptsname_r(d->fd, slave, sizeof slave), 0);
    d->pid = fork();
    if (d->pid == 0)
        child(d, slave, words);
    wait_prompt(d);
    return d;
}

static bool shown(const struct desk *d, const char *text)
{
    return memmem(d->screen.data, d->screen.len, text, strlen(text)) != NULL;
}

Test(rounds, thinking_is_one_line_that_counts_words_and_can_be_unfolded)
{
    struct desk *d = sit_down(prepared(THOUGHT TEXT("\\n") TEXT("\\nyes") END("stop"), NULL), "");
    wait_prompt(d);
    type(d, "/think\r");
    wait_for(d, "came without thinking");
    wait_prompt(d);
    type(d, "q\r");
    wait_for(d, "[thought 3 words; /think shows them]\033[0m\r\nyes");
    wait_prompt(d);
    cr_expect(shown(d, "thinking ... 2 words") && !shown(d, "three"), "%s", d->screen.data);
    type(d, "/think\r");
    wait_for(d, "one two three");
    wait_prompt(d);
    say(d, "/think on\r");
    type(d, "q\r");
    wait_for(d, "one two three");
    wait_for(d, "yes");
    wait_prompt(d);
    cr_expect(sent(d, "{\"role\":\"assistant\",\"content\":\"\\n\\nyes\"},{\"role\":\"user\",\"content\":\"q\"}"),
              "thinking is not sent back: %s", d->server->body);
    say_goodbye(d);
}

Test(rounds, without_colours_the_line_of_thinking_is_written_once_and_blank_thinking_is_none)
{
    static const char words[] = EVENT("{\"reasoning\":\"\\u6f22\\u5b57 one\"}") TEXT("yes") END("stop");
    static const char blank[] = EVENT("{\"reasoning\":\"\\n\\n\"}") TEXT("no") END("stop");
    struct desk *d = sit_down(prepared(words, blank), "--color=never");
    wait_prompt(d);
    type(d, "q\r");
    wait_for(d, "[thought 3 words; /think shows them]\r\nyes");
    wait_prompt(d);
    cr_expect(!shown(d, "thinking ..."), "%s", d->screen.data);
    type(d, "q\r");
    wait_for(d, "no\r\n");
    wait_prompt(d);
    cr_expect(memmem(d->screen.data + d->seen - 60, 60, "thought", 7) == NULL, "%s", d->screen.data);
    say_goodbye(d);
}

Test(rounds, a_call_runs_when_the_user_says_so_and_its_output_goes_back)
{
    struct desk *d = sit_with_tool(prepared(THOUGHT CALL("1") END("tool_calls"), TEXT("it says so") END("stop")), "[\"cat\"]", "");
    type(d, "q\r");
    wait_for(d, "echo");
    wait_for(d, "{\"a\":1}");
    wait_for(d, "runs cat");
    wait_for(d, "run it? [y]es, [n]o, [a]lways: ");
    cr_expect_eq(d->server->n_posts, 1);
    type(d, "and then\r");
    wait_for(d, "run it? ");
    cr_expect_eq(d->server->n_posts, 1, "a message typed too early allows nothing");
    type(d, "Yes\r");
    wait_for(d, "[echo: 7 bytes in ");
    wait_for(d, "it says so");
    wait_prompt(d);
    cr_expect(sent(d, "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"echo\",\"parameters\":{\"type\":\"object\"}}}]"), "%s", d->server->body);
    cr_expect(sent(d, "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c7\",\"type\":\"function\",\"function\":{\"name\":\"echo\","
                      "\"arguments\":\"{\\\"a\\\":1}\"}}],\"reasoning_content\":\"one two three\"},"
                      "{\"role\":\"tool\",\"content\":\"{\\\"a\\\":1}\",\"tool_call_id\":\"c7\"}]"), "%s", d->server->body);
    d->server->n_posts = 0;
    type(d, "/regen\r");
    wait_for(d, "run it? ");
    type(d, "a\r");
    wait_for(d, "it says so");
    wait_prompt(d);
    d->server->n_posts = 0;
    type(d, "once more\r");
    wait_for(d, "runs cat");
    wait_for(d, "it says so");
    wait_prompt(d);
    type(d, "/tools\r");
    wait_for(d, "cat (runs without asking)");
    wait_prompt(d);
    say_goodbye(d);
}

Test(rounds, what_was_typed_before_the_question_allows_nothing)
{
    struct fake_script script = prepared(CALL("1") END("tool_calls"), TEXT("done") END("stop"));
    script.first_us = 2000000; /* it has to read "yes" before */
    struct desk *d = sit_with_tool(script, "[\"cat\"]", "");
    type(d, "q\r");
    for (int i = 0; i < 12000 && d->server->n_posts == 0; i++)
        usleep(5000);
    type(d, "yes\r");
    wait_for(d, "run it? ");
    for (int i = 0; i < 10; i++)
        pump(d, 30);
    cr_expect_eq(d->server->n_posts, 1);
    type(d, "y\r");
    wait_for(d, "done");
    wait_prompt(d);
    say_goodbye(d);
}

Test(rounds, a_call_that_is_refused_does_not_run_and_the_model_is_told)
{
    struct desk *d = sit_with_tool(prepared(CALL("1") END("tool_calls"), TEXT("pity") END("stop")), "[\"touch\",\"ran\"]", "");
    type(d, "q\r");
    wait_for(d, "run it? ");
    type(d, "n\r");
    wait_for(d, "pity");
    wait_prompt(d);
    cr_expect(sent(d, "\"content\":\"[error: the user did not allow this call]\""), "%s", d->server->body);
    cr_expect_neq(access("ran", F_OK), 0);
    d->server->n_posts = 0;
    type(d, "again\r");
    wait_for(d, "run it? ");
    type(d, "\003");
    wait_for(d, "Nothing was answered");
    wait_prompt(d);
    cr_expect_eq(d->server->n_posts, 1, "Ctrl-C at the question ends the answer");
    type(d, "third\r");
    wait_for(d, "pity");
    wait_prompt(d);
    cr_expect(sent(d, "third") && !sent(d, "again"), "%s", d->server->body);
    say_goodbye(d);
}

Test(rounds, ctrl_c_ends_a_command_and_the_answer)
{
    const struct fake_script script = prepared(TEXT("let me see") CALL("1") END("tool_calls"), TEXT("done") END("stop"));
    struct desk *d = sit_with_tool(script, "[\"sleep\",\"1000\"]", "--yes-run-tools");
    type(d, "q\r");
    wait_for(d, "runs sleep 1000");
    usleep(300000);
    type(d, "\003");
    wait_for(d, "[stopped]");
    wait_prompt(d);
    cr_expect_eq(d->server->n_posts, 1);
    usleep(1100000);
    type(d, "next\r");
    wait_for(d, "done");
    wait_prompt(d);
    cr_expect(sent(d, "{\"role\":\"assistant\",\"content\":\"let me see\"},{\"role\":\"user\",\"content\":\"next\"}"),
              "a call without its result is not sent: %s", d->server->body);
    say_goodbye(d);
}

Test(rounds, a_call_that_cannot_run_is_the_models_error_and_rounds_end)
{
    struct desk *d = sit_with_tool(prepared(CALL("oops") END("tool_calls"), NULL), "[\"cat\"]", "--yes-run-tools");
    type(d, "q\r");
    wait_for(d, "the arguments are no JSON object; the model is told");
    wait_for(d, "no more of its calls are run");
    wait_prompt(d);
    cr_expect_eq(d->server->n_posts, 17);
    cr_expect(sent(d, "\"arguments\":\"{}\"") && sent(d, "\"tool_choice\":\"none\""), "%s", d->server->body);
    say_goodbye(d);
}

Test(rounds, a_schema_holds_for_the_messages_that_follow_until_it_is_taken_away)
{
    struct desk *d = sit_down(fake_tokens(1), "");
    char path[200], line[300];
    put_file(d, path, "my point.json", "{\"type\": \"object\",\n \"required\": [\"x\"]}");
    wait_prompt(d);
    snprintf(line, sizeof line, "/schema %s\r", path);
    type(d, line);
    wait_for(d, "Answers are JSON that fits");
    wait_prompt(d);
    for (int i = 0; i < 2; i++) {
        say(d, "q\r");
        cr_expect(sent(d, "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"my_point\",\"schema\":{\"type\":\"object\","
                          "\"required\":[\"x\"]}}}"), "%s", d->server->body);
    }
    put_file(d, path, "wrong.json", "{\"type\": ");
    snprintf(line, sizeof line, "/schema %s\r", path);
    type(d, line);
    wait_for(d, "wrong.json: ");
    wait_prompt(d);
    say(d, "q\r");
    cr_expect(sent(d, "my_point"), "what was set stays: %s", d->server->body);
    type(d, "/schema\r");
    wait_for(d, "Answers are free.");
    wait_prompt(d);
    say(d, "q\r");
    cr_expect(!sent(d, "response_format"), "%s", d->server->body);
    say_goodbye(d);
}

/* ---- commands ---- */

static struct qr_tools made(const char *text)
{
    struct qr_tools t = {0};
    struct qr_err err;
    char path[] = "/tmp/quire-tools-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    cr_assert_eq(qr_tools_load(&t, path, &err), 0, "%s", err.msg);
    unlink(path);
    return t;
}

/* What a command gives for the arguments {} within a second. */
static void gives(const char *command, const char *result)
{
    struct qr_buf text = {0};
    struct qr_term term;
    qr_buf_printf(&text, "[{\"function\":{\"name\":\"f\"},\"command\":%s}]", command);
    struct qr_tools t = made(text.data);
    qr_buf_clear(&text);
    signal(SIGPIPE, SIG_IGN);
    qr_term_open(&term, QR_COLOUR_NEVER);
    cr_expect_eq(qr_tool_run(&text, qr_tools_find(&t, "f"), "{}", 2, 1000000, &term), 0);
    qr_term_close(&term);
    cr_expect_str_eq(qr_buf_text(&text), result);
    qr_buf_release(&text);
    qr_tools_release(&t);
}

Test(tools, a_result_is_the_output_and_what_went_wrong)
{
    gives("[\"cat\"]", "{}");
    gives("[\"true\"]", "");
    gives("[\"printf\",\"a b\\n\\n\"]", "a b");
    gives("[\"printf\",\"a\\\\000b\"]", "a?b");
    gives("[\"sh\",\"-c\",\"echo out; echo why >&2; exit 3\"]", "out\n[error: exit status 3] why");
    gives("[\"sh\",\"-c\",\"echo why >&2\"]", "");
    gives("[\"sh\",\"-c\",\"kill -9 $$\"]", "[error: ended by signal 9]");
    gives("[\"/no/such/program\"]", "[error: exit status 127] the command cannot be run: No such file or directory (ENOENT)");
    gives("[\"sh\",\"-c\",\"echo first; sleep 1000\"]", "first\n[error: the command was ended after 1 s]");
    gives("[\"sh\",\"-c\",\"sleep 1000 & echo left behind\"]", "left behind");
}

Test(tools, no_shell_reads_the_words_of_a_command)
{
    gives("[\"echo\",\"$HOME; `id` > x\",\"\",\"*\"]", "$HOME; `id` > x  *");
}

Test(tools, output_is_cut_and_a_command_that_reads_nothing_is_not_waited_for)
{
    struct qr_tools t = made("[{\"function\":{\"name\":\"f\"},\"command\":[\"head\",\"-c\",\"300000\",\"/dev/zero\"]}]");
    struct qr_buf text = {0}, big = {0};
    struct qr_term term;
    for (int i = 0; i < 1000; i++)
        qr_buf_printf(&big, "%1000d", i);
    signal(SIGPIPE, SIG_IGN);
    qr_term_open(&term, QR_COLOUR_NEVER);
    cr_expect_eq(qr_tool_run(&text, qr_tools_find(&t, "f"), big.data, big.len, 50000000, &term), 0);
    qr_term_close(&term);
    cr_expect_eq(strspn(text.data, "?"), QR_TOOL_OUTPUT_MAX);
    cr_expect_str_eq(text.data + QR_TOOL_OUTPUT_MAX, "\n[cut here: the command wrote more than 65536 bytes]");
    qr_buf_release(&big);
    qr_buf_release(&text);
    qr_tools_release(&t);
}

Test(tools, a_file_that_is_wrong_is_refused_by_its_path)
{
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"{}", "expected an array of 1 to 128 tools"},
        {"[]", "expected an array of 1 to 128 tools"},
        {"[{\"command\":[\"a\"]}]", "[0].function.name: expected a text"},
        {"[{\"function\":{\"name\":\"f\"},\"command\":\"ls -l\"}]", "[0].command: expected the program and its arguments"},
        {"[{\"function\":{\"name\":\"f\"},\"command\":[\"a\",5]}]", "[0].command"},
        {"[{\"function\":{\"name\":\"f\"},\"command\":[\"\"]}]", "[0].command"},
        {"[{\"function\":{\"name\":\"f\"},\"command\":[\"a\"]},{\"function\":{\"name\":\"f\"},\"command\":[\"b\"]}]", "[1].function.name: 'f' is there twice"},
        {"[", "line 1"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct qr_tools t = {0};
        struct qr_err err = {0};
        char path[] = "/tmp/quire-tools-XXXXXX";
        int fd = mkstemp(path);
        cr_assert_eq(write(fd, wrong[i].text, strlen(wrong[i].text)), (ssize_t)strlen(wrong[i].text));
        close(fd);
        cr_expect_eq(qr_tools_load(&t, path, &err), QR_E_INVALID, "%s", wrong[i].text);
        cr_expect(strstr(err.msg, wrong[i].says) != NULL && strstr(err.msg, path) == err.msg, "%s", err.msg);
        cr_expect_eq(t.n, 0);
        unlink(path);
    }
}
