/* `quire chat` in a pipe: what is on stdout, what is on stderr, and every exit code. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "client/chat.h"
#include "client/chunk.h"
#include "fake_server.h"
#include "tests/run_main.h"

TestSuite(chat, .timeout = 60);

struct outcome {
    int status;
    struct qr_buf out, err;
};

/* Starts `quire chat` with words separated by '|', stdin from `input` (NULL: /dev/null). The child closes not_inherited. */
static pid_t start(int32_t port, const char *words, const char *input, int out, int err, int not_inherited)
{
    char name[] = "chat", url[80], copy[1000], *argv[64] = {name};
    int argc = 1, in = input != NULL ? memfd_create("in", 0) : open("/dev/null", O_RDONLY);
    if (input != NULL) {
        cr_assert_eq(write(in, input, strlen(input)), (ssize_t)strlen(input));
        lseek(in, 0, SEEK_SET);
    }
    snprintf(url, sizeof url, "--url=http://127.0.0.1:%d", port);
    snprintf(copy, sizeof copy, "%s", words);
    argv[argc++] = url;
    for (char *word = strtok(copy, "|"); word != NULL; word = strtok(NULL, "|"))
        argv[argc++] = word;
    pid_t pid = fork();
    if (pid == 0) {
        close(not_inherited);
        dup2(in, 0);
        dup2(out, 1);
        dup2(err, 2);
        fake_child_exit(qr_command_main(&qr_chat_command, argc, argv));
    }
    close(in);
    return pid;
}

static int finish(pid_t pid)
{
    int status;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static struct outcome chat(int32_t port, const char *words, const char *input)
{
    struct outcome o = {0};
    int out = memfd_create("out", 0), err = memfd_create("err", 0);
    o.status = finish(start(port, words, input, out, err, -1));
    slurp(out, &o.out);
    slurp(err, &o.err);
    return o;
}

static void drop(struct outcome *o)
{
    qr_buf_release(&o->out);
    qr_buf_release(&o->err);
}

/* Runs and compares; `says` must be in stderr, which must be empty when it is NULL. */
static void expect(struct fake_server *s, const char *words, const char *input, int status, const char *out, const char *says)
{
    struct outcome o = chat(s->port, words, input);
    cr_expect_eq(o.status, status, "%s: status %d\n%s", words, o.status, o.err.data);
    cr_expect_str_eq(o.out.data, out, "%s: '%s'", words, o.out.data);
    if (says == NULL)
        cr_expect_str_eq(o.err.data, "", "%s: '%s'", words, o.err.data);
    else
        cr_expect(strstr(o.err.data, says) != NULL, "%s: '%s' is not in '%s'", words, says, o.err.data);
    drop(&o);
}

Test(chat, the_answer_alone_is_on_stdout_and_ends_its_line)
{
    struct fake_server *s = fake_start(fake_tokens(3));
    expect(s, "hello", NULL, 0, "tok tok tok \n", NULL);
    expect(s, "--no-stream|hello", NULL, 0, "tok 3\n", NULL);
    s->script.text = "line\\n";
    expect(s, "hello", NULL, 0, "line\nline\nline\n", NULL);
    s->script.n_tokens = 60;
    s->script.text = "\xe6\x97\xa5 word \\u001b[31m\\t  "; /* wraps nowhere, and is as it came */
    struct outcome o = chat(s->port, "hello", NULL);
    cr_expect_eq(o.out.len, 60 * strlen("\xe6\x97\xa5 word \x1b[31m\t  ") + 1, "%s", o.out.data);
    cr_expect(memchr(o.out.data, '\n', o.out.len - 1) == NULL);
    drop(&o);
    fake_stop(s);
}

Test(chat, the_prompt_is_the_arguments_then_an_empty_line_then_stdin)
{
    struct fake_server *s = fake_start(fake_tokens(1));
    expect(s, "write|a message", "diff\n", 0, "tok \n", NULL);
    cr_expect(strstr(s->body, "\"messages\":[{\"role\":\"user\",\"content\":\"write a message\\n\\ndiff\"}]") != NULL, "%s", s->body);
    expect(s, "-", "two \nlines \r\n\n", 0, "tok \n", NULL);
    cr_expect(strstr(s->body, "\"content\":\"two \\nlines \"") != NULL, "line ends inside stay, those behind do not: %s", s->body);
    expect(s, "-", "only this", 0, "tok \n", NULL);
    cr_expect(strstr(s->body, "\"content\":\"only this\"") != NULL, "%s", s->body);
    expect(s, "--system|be brief|--|-x", NULL, 0, "tok \n", NULL);
    cr_expect(strstr(s->body, "[{\"role\":\"system\",\"content\":\"be brief\"},{\"role\":\"user\",\"content\":\"-x\"}]") != NULL, "%s", s->body);
    fake_stop(s);
}

Test(chat, what_was_not_set_is_not_sent)
{
    struct fake_server *s = fake_start(fake_tokens(1));
    expect(s, "x", NULL, 0, "tok \n", NULL);
    cr_expect_str_eq(s->body, "{\"model\":\"fake-model\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stream\":true,"
                              "\"stream_options\":{\"include_usage\":true}}");
    expect(s, "--temperature|0|--top-p=0.5|--max-tokens|9|--seed|12345678901|--stop|a|--stop|b\"|--model|m/1|x", NULL, 0, "tok \n", NULL);
    cr_expect(strstr(s->body, "{\"model\":\"m/1\",") == s->body, "%s", s->body);
    cr_expect(strstr(s->body, "\"temperature\":0,\"top_p\":0.5,\"max_tokens\":9,\"seed\":12345678901,\"stop\":[\"a\",\"b\\\"\"]") != NULL, "%s",
              s->body);
    fake_stop(s);
}

Test(chat, statistics_go_to_stderr)
{
    struct fake_script script = fake_tokens(4);
    script.gap_us = 3000;
    struct fake_server *s = fake_start(script);
    expect(s, "--stats|x", NULL, 0, "tok tok tok tok \n", "7 prompt + 4 output tokens, first token ");
    expect(s, "--stats|x", NULL, 0, "tok tok tok tok \n", " tok/s, cached 3\n");
    fake_stop(s);
}

Test(chat, json_prints_the_whole_response)
{
    struct fake_server *s = fake_start(fake_tokens(2));
    struct outcome o = chat(s->port, "--json|x", NULL);
    struct qr_json *doc;
    struct qr_err err;
    cr_expect_eq(o.status, 0);
    cr_assert_eq(qr_json_parse(&doc, o.out.data, o.out.len, &qr_json_limits_request, &err), 0, "%s", o.out.data);
    cr_expect_eq(qr_json_count(qr_json_find(doc, "choices")), 1);
    qr_json_free(doc);
    drop(&o);
    fake_stop(s);
}

Test(chat, wrong_usage_exits_2_and_names_the_flag)
{
    struct fake_server *s = fake_start(fake_tokens(1));
    expect(s, "--temprature|1|x", NULL, 2, "", "--temperature");
    expect(s, "--temperature|2.1|x", NULL, 2, "", "--temperature must be from 0 to 2, found 2.1");
    expect(s, "--temperature|-0.1|x", NULL, 2, "", "from 0 to 2");
    expect(s, "--temperature|nan|x", NULL, 2, "", "expected a number, found 'nan'");
    expect(s, "--top-p|1.01|x", NULL, 2, "", "--top-p");
    expect(s, "--max-tokens|0|x", NULL, 2, "", "--max-tokens must be from 1 to 2147483647, found 0");
    expect(s, "--max-tokens|1.5|x", NULL, 2, "", "whole number");
    expect(s, "--seed|9999999999999999999|x", NULL, 2, "", "--seed");
    expect(s, "--color|sometimes|x", NULL, 2, "", "--color");
    expect(s, "--url|https://example.org|x", NULL, 2, "", "https is not spoken here");
    expect(s, "--api-key|a b|x", NULL, 2, "", "API key");
    expect(s, "", NULL, 2, "", "nothing to ask");
    expect(s, "-", "  \n ", 2, "", "nothing to ask");
    fake_stop(s);
}

Test(chat, an_error_of_the_server_exits_1_with_its_message)
{
    struct fake_script script = fake_tokens(1);
    script.fail_first = -1;
    script.fail_status = 400;
    script.fail_body = "{\"error\":{\"message\":\"temperature: 9 is above 2\",\"type\":\"t\",\"param\":\"temperature\",\"code\":null}}";
    struct fake_server *s = fake_start(script);
    expect(s, "x", NULL, 1, "", "quire chat: the server answered HTTP 400: temperature: 9 is above 2\n");
    s->script.fail_status = 401;
    expect(s, "x", NULL, 1, "", "--api-key or OPENAI_API_KEY");
    s->script.fail_status = 500;
    s->script.fail_body = "<html>boom</html>";
    expect(s, "x", NULL, 1, "", "HTTP 500: <html>boom</html>");
    s->script.fail_status = 200;
    expect(s, "x", NULL, 1, "", "no JSON answer");
    fake_stop(s);
}

Test(chat, an_input_too_long_for_the_context_is_told_what_to_do)
{
    static const struct {
        const char *body, *says;
    } servers[] = {
        {"{\"error\":{\"message\":\"This model's maximum context length is 1024 tokens; the prompt has 1081.\",\"code\":\"context_length_exceeded\"}}",
         "too long for this server, by 57 tokens or more: "},
        {"{\"error\":{\"message\":\"This model's maximum context length is 64 tokens; the prompt has 60 and 9 more are asked for. Ask for at most 4.\","
         "\"code\":\"context_length_exceeded\"}}", "too long for this server: This model's"},
        {"{\"error\":{\"message\":\"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.\",\"code\":400}}",
         "by 904 tokens or more"},
        {"{\"error\":{\"message\":\"the request exceeds the available context size\",\"code\":400}}", "too long for this server: the request"},
    };
    struct fake_script script = fake_tokens(1);
    script.fail_first = -1;
    script.fail_status = 400;
    for (size_t i = 0; i < sizeof servers / sizeof servers[0]; i++) {
        script.fail_body = servers[i].body;
        struct fake_server *s = fake_start(script);
        expect(s, "x", NULL, 1, "", servers[i].says);
        expect(s, "x", NULL, 1, "", "Shorten the input (in a conversation, /clear empties it), or start the server with a larger --max-len");
        fake_stop(s);
    }
}

Test(chat, an_unknown_model_exits_4)
{
    struct fake_script script = fake_tokens(1);
    script.fail_first = -1;
    script.fail_status = 404;
    script.fail_body = "{\"error\":{\"message\":\"The model 'x' does not exist.\",\"type\":\"t\",\"param\":\"model\",\"code\":\"model_not_found\"}}";
    struct fake_server *s = fake_start(script);
    expect(s, "--model|x|hi", NULL, 4, "", "The model 'x' does not exist.");
    s->script.models = FAKE_NO_MODELS;
    expect(s, "hi", NULL, 4, "", "lists no model");
    s->script.fail_body = "{\"error\":{\"message\":\"Not Found\",\"type\":\"t\",\"param\":null,\"code\":null}}";
    expect(s, "--model|x|hi", NULL, 1, "", "Does --url end in /v1?");
    fake_stop(s);
}

Test(chat, no_server_exits_3_and_says_how_to_start_one)
{
    struct fake_server *s = fake_start(fake_tokens(1));
    int32_t port = s->port;
    fake_stop(s);
    struct outcome o = chat(port, "x", NULL);
    cr_expect_eq(o.status, 3);
    cr_expect(strstr(o.err.data, "connection refused. Start a server with 'quire serve --model DIR'") != NULL, "%s", o.err.data);
    drop(&o);
    o = chat(port, "--url|http://no-such-host.invalid:1|x", NULL);
    cr_expect_eq(o.status, 3);
    cr_expect(strstr(o.err.data, "no-such-host.invalid") != NULL, "%s", o.err.data);
    drop(&o);
}

Test(chat, stopping_by_length_exits_5_only_when_asked)
{
    struct fake_script script = fake_tokens(2);
    script.finish = "length";
    struct fake_server *s = fake_start(script);
    expect(s, "x", NULL, 0, "tok tok \n", NULL);
    expect(s, "--fail-on-length|x", NULL, 5, "tok tok \n", NULL);
    expect(s, "--fail-on-length|--no-stream|x", NULL, 5, "tok 2\n", NULL);
    fake_stop(s);
}

Test(chat, a_full_server_is_asked_again_as_it_says_and_not_for_ever)
{
    struct fake_script script = fake_tokens(1);
    script.fail_first = 2;
    script.fail_status = 429;
    script.fail_headers = "retry-after-ms: 30\r\n";
    script.fail_body = "{\"error\":{\"message\":\"queue is full\",\"type\":\"t\",\"param\":null,\"code\":null}}";
    struct fake_server *s = fake_start(script);
    expect(s, "x", NULL, 0, "tok \n", "the server is full; trying again in 0.0 s");
    cr_expect_eq(s->n_posts, 3);
    s->script.fail_first = -1;
    s->n_posts = 0;
    expect(s, "--retries|2|x", NULL, 1, "", "HTTP 429: queue is full");
    cr_expect_eq(s->n_posts, 3);
    s->n_posts = 0;
    s->script.fail_headers = "retry-after-ms: 30\r\nx-should-retry: false\r\n";
    expect(s, "x", NULL, 1, "", "HTTP 429: queue is full");
    cr_expect_eq(s->n_posts, 1);
    s->n_posts = 0;
    s->script.fail_headers = "retry-after: 1000\r\n";
    expect(s, "x", NULL, 1, "", "HTTP 429: queue is full");
    cr_expect_eq(s->n_posts, 1, "a wait of a quarter of an hour is not waited out");
    fake_stop(s);
}

Test(chat, a_server_that_is_loading_is_waited_for)
{
    struct fake_script script = fake_tokens(1);
    script.fail_first = 8; /* more often than --retries */
    script.fail_status = 503;
    script.fail_headers = "retry-after-ms: 20\r\n";
    script.fail_body = "{\"error\":{\"message\":\"loading\",\"type\":\"t\",\"param\":null,\"code\":\"loading\"}}";
    struct fake_server *s = fake_start(script);
    expect(s, "x", NULL, 0, "tok \n", "the server is loading its model");
    s->script.fail_first = -1;
    expect(s, "--wait|100ms|x", NULL, 1, "", "HTTP 503: loading");
    fake_stop(s);
}

Test(chat, a_broken_stream_keeps_what_came_and_exits_1)
{
    struct fake_script script = fake_tokens(9);
    script.cut_after = 2;
    struct fake_server *s = fake_start(script);
    expect(s, "x", NULL, 1, "tok tok \n", "in the middle of the answer");
    s->script.cut_after = -1;
    s->script.error_after = 2;
    expect(s, "x", NULL, 1, "tok tok \n", "the server broke the answer off: the engine fell over");
    s->script.stream_body = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\ndata: {oops\n\n";
    s->script.n_stream_body = strlen(s->script.stream_body);
    s->script.stream_piece = 7;
    expect(s, "x", NULL, 1, "a\n", "the server's stream is damaged");
    s->script.stream_body = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
    s->script.n_stream_body = strlen(s->script.stream_body);
    expect(s, "x", NULL, 1, "a\n", "without a finish reason");
    fake_stop(s);
}

Test(chat, refusals_and_tool_calls_are_shown)
{
    struct fake_script script = fake_tokens(1);
    script.stream_piece = 11;
    script.stream_body = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null,\"refusal\":\"No.\"}}]}\n\n"
                         "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    script.n_stream_body = strlen(script.stream_body);
    struct fake_server *s = fake_start(script);
    expect(s, "x", NULL, 0, "No.\n", NULL);
    s->script.stream_body = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\","
                            "\"arguments\":\"{\\\"a\\\"\"}}]}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,"
                            "\"function\":{\"arguments\":\":1}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n";
    s->script.n_stream_body = strlen(s->script.stream_body);
    expect(s, "x", NULL, 0, "f({\"a\":1})\n", NULL);
    fake_stop(s);
}

Test(chat, a_filter_prints_calls_and_runs_them_only_when_it_is_told_to)
{
    static const char call[] = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\","
                               "\"arguments\":\"{\\\"a\\\":1}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n";
    static const char text[] = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"so it is\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    static const char file[] = "[{\"function\":{\"name\":\"f\"},\"command\":[\"cat\"]}]", schema[] = "{\"type\":\"string\"}";
    struct fake_script script = fake_tokens(1);
    script.stream_piece = 17;
    script.bodies[0] = call;
    script.bodies[1] = text;
    script.n_bodies = 2;
    struct fake_server *s = fake_start(script);
    char tools[] = "/tmp/quire-tools-XXXXXX", given[] = "/tmp/quire-schema-XXXXXX", words[200];
    int fd = mkstemp(tools), fd2 = mkstemp(given);
    cr_assert(write(fd, file, sizeof file - 1) > 0 && write(fd2, schema, sizeof schema - 1) > 0);
    snprintf(words, sizeof words, "--tools|%s|--schema|%s|x", tools, given);
    expect(s, words, NULL, 0, "f({\"a\":1})\n", NULL);
    cr_expect(strstr(s->body, "\"schema\":{\"type\":\"string\"}") != NULL && strstr(s->body, "\"tools\":[") != NULL, "%s", s->body);
    s->n_posts = 0;
    snprintf(words, sizeof words, "--tools|%s|--yes-run-tools|x", tools);
    expect(s, words, NULL, 0, "so it is\n", "quire chat: f {\"a\":1}: runs cat\n");
    cr_expect(strstr(s->body, "{\"role\":\"tool\",\"content\":\"{\\\"a\\\":1}\",\"tool_call_id\":\"c\"}]") != NULL, "%s", s->body);
    expect(s, "--tools|/no/such|x", NULL, 4, "", "/no/such");
    close(fd);
    close(fd2);
    unlink(tools);
    unlink(given);
    fake_stop(s);
}

Test(chat, interrupting_exits_130_and_leaves_the_server)
{
    struct fake_script script = fake_tokens(100000);
    script.gap_us = 5000;
    struct fake_server *s = fake_start(script);
    static const int sent[] = {SIGINT, SIGTERM, SIGHUP}, status[] = {130, 143, 129};
    for (int i = 0; i < 3; i++) {
        int out = memfd_create("out", 0), err = memfd_create("err", 0);
        pid_t pid = start(s->port, "x", NULL, out, err, -1);
        for (int k = 0; k < 12000 && lseek(out, 0, SEEK_END) < 12; k++)
            usleep(5000);
        kill(pid, sent[i]);
        cr_expect_eq(finish(pid), status[i]);
        for (int k = 0; k < 12000 && s->n_gone <= i; k++)
            usleep(5000);
        cr_expect_eq(s->n_gone, i + 1);
        struct qr_buf text = {0};
        slurp(out, &text);
        cr_expect_eq(text.data[text.len - 1], '\n', "the line is ended all the same");
        qr_buf_release(&text);
        close(err);
    }
    fake_stop(s);
}

Test(chat, a_reader_that_went_away_is_no_crash)
{
    struct fake_script script = fake_tokens(100000);
    script.gap_us = 2000;
    struct fake_server *s = fake_start(script);
    int fd[2], err = memfd_create("err", 0);
    cr_assert_eq(pipe(fd), 0);
    pid_t pid = start(s->port, "x", NULL, fd[1], err, fd[0]);
    close(fd[0]);
    close(fd[1]);
    cr_expect_eq(finish(pid), 128 + SIGPIPE, "as if it had died of SIGPIPE, but in good order");
    for (int k = 0; k < 12000 && s->n_gone == 0; k++)
        usleep(5000);
    cr_expect_eq(s->n_gone, 1, "the rest is not generated for nobody");
    close(err);
    fake_stop(s);
}

Test(chat, the_environment_names_server_and_key)
{
    struct fake_server *s = fake_start(fake_tokens(1));
    char url[80];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/v1", s->port);
    setenv("OPENAI_API_KEY", "sk-test", 1);
    expect(s, "x", NULL, 0, "tok \n", NULL);
    cr_expect(strstr(s->head, "Authorization: Bearer sk-test\r\n") != NULL, "%s", s->head);
    setenv("OPENAI_BASE_URL", url, 1);
    int out = memfd_create("out", 0);
    pid_t pid = fork();
    if (pid == 0) {
        char name[] = "chat", word[] = "hi", *argv[] = {name, word};
        dup2(out, 1);
        close(0);
        open("/dev/null", O_RDONLY);
        fake_child_exit(qr_command_main(&qr_chat_command, 2, argv));
    }
    cr_expect_eq(finish(pid), 0);
    close(out);
    fake_stop(s);
}

/* In this very process, so that the leak check at its end sees every path. */
static int chat_here(int32_t port, const char *flag, const char *prompt)
{
    char name[] = "chat", url[80], a[100], b[100], *argv[] = {name, url, a, b};
    snprintf(url, sizeof url, "--url=http://127.0.0.1:%d", port);
    snprintf(a, sizeof a, "%s", flag);
    snprintf(b, sizeof b, "%s", prompt);
    int null = open("/dev/null", O_RDWR), saved[3];
    for (int i = 0; i < 3; i++) {
        saved[i] = dup(i);
        dup2(null, i);
    }
    int status = qr_command_main(&qr_chat_command, 4, argv);
    for (int i = 0; i < 3; i++) {
        dup2(saved[i], i);
        close(saved[i]);
    }
    close(null);
    return status;
}

Test(chat, leaks_nothing_on_any_path)
{
    struct fake_server *s = fake_start(fake_tokens(3));
    cr_expect_eq(chat_here(s->port, "--stats", "x"), 0);
    cr_expect_eq(chat_here(s->port, "--json", "x"), 0);
    cr_expect_eq(chat_here(s->port, "--temperature=9", "x"), 2);
    cr_expect_eq(chat_here(s->port, "--nonsense", "x"), 2);
    s->script.cut_after = 1;
    cr_expect_eq(chat_here(s->port, "--stop=a", "x"), 1);
    cr_expect_eq(chat_here(1, "--stop=a", "x"), 3);
    cr_expect_eq(chat_here(1, "--help", "x"), 0);
    fake_stop(s);
}

Test(chat, help_documents_the_exit_codes)
{
    struct outcome o = chat(1, "--help", NULL);
    cr_expect_eq(o.status, 0);
    cr_expect(strstr(o.out.data, "130 interrupted") != NULL);
    cr_expect(strstr(o.out.data, "--fail-on-length") != NULL);
    drop(&o);
}
