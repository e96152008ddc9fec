/* rounds.c - an answer with tools in it: what the model calls is run, and what that gives is sent back, until the model answers with text.
 *
 * Nothing runs that the user has not allowed, call by call, tool by tool or for all by --yes-run-tools. A call that cannot run gets an error
 * as its result, so that the model may do better. The number of rounds is bounded; the last one is asked without tools. One thread. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "client/chat_state.h"

#define ROUNDS_MAX 16
#define SCHEMA_BYTES_MAX ((size_t)4 << 20)
#define SHOWN_BYTES_MAX ((size_t)4000) /* of a call's arguments */

bool qr_talk_runs_tools(const struct qr_talk *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->tools.n >= 0);
    return c->tools.n > 0 && (c->approve != NULL || c->opt.yes_run_tools);
}

/* ---- the schema ---- */

/* A name as response_format wants it, from a file's: letters, digits, '_' and '-', 64 at most. */
static void put_name(struct qr_buf *out, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    const size_t n = strcspn(name, ".");
    for (size_t i = 0; i < n && i < 64; i++) {
        const char ch = name[i];
        const bool fine = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') || ch == '-';
        qr_buf_put_byte(out, fine ? ch : '_');
    }
    qr_buf_put_str(out, n == 0 ? "answer" : "");
}

int qr_talk_set_schema(struct qr_talk *c, const char *path, struct qr_err *err)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(err != NULL);
    static const struct qr_json_limits limits = {.bytes_max = SCHEMA_BYTES_MAX, .values_max = 1 << 20, .depth_max = QR_JSON_DEPTH_MAX};
    struct qr_buf text = {0};
    struct qr_json *doc = NULL;
    int rc = path != NULL ? qr_file_read(&text, path, QR_FILE_ANY, SCHEMA_BYTES_MAX, err) : 0;
    if (rc == 0 && path != NULL) {
        rc = qr_json_parse(&doc, text.data, text.len, &limits, err);
        if (rc == 0 && qr_json_type(doc) != QR_JSON_T_OBJECT)
            rc = qr_err_set(err, QR_E_INVALID, "expected a JSON schema, an object; found a %s", qr_json_type_name(qr_json_type(doc)));
        if (rc != 0)
            qr_err_prefix(err, "%s: ", path);
    }
    if (rc == 0) {
        qr_buf_clear(&c->schema);
        qr_buf_clear(&c->schema_path);
    }
    if (rc == 0 && path != NULL) {
        qr_buf_put_str(&c->schema, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"");
        put_name(&c->schema, path);
        qr_buf_put_str(&c->schema, "\",\"schema\":");
        qr_json_print(&c->schema, doc);
        qr_buf_put_str(&c->schema, "}}");
        qr_buf_put_str(&c->schema_path, path);
    }
    qr_json_free(doc);
    qr_buf_release(&text);
    return rc;
}

/* ---- calls ---- */

/* Whether arguments are a JSON object. What is none is made an empty one: servers refuse a conversation with anything else. */
static bool arguments_fit(struct qr_buf *arguments)
{
    struct qr_json *doc = NULL;
    struct qr_err why;
    const bool none = strspn(qr_buf_text(arguments), " \t\r\n") == arguments->len;
    const bool fit = none || (qr_json_parse(&doc, arguments->data, arguments->len, &qr_json_limits_file, &why) == 0 &&
                              qr_json_type(doc) == QR_JSON_T_OBJECT);
    qr_json_free(doc);
    if (none || !fit) {
        qr_buf_clear(arguments);
        qr_buf_put_str(arguments, "{}");
    }
    return fit;
}

/* The answer that called, as a message. Calls without an id get one. */
static void add_calls(struct qr_talk *c, int32_t round)
{
    struct qr_chunk *a = &c->ask.answer;
    struct qr_buf more = {0};
    qr_buf_put_str(&more, "\"tool_calls\":[");
    for (int32_t i = 0; i < a->tools.n; i++) {
        struct qr_tool_call *call = &a->tools.item[i];
        if (call->id.len == 0)
            qr_buf_printf(&call->id, "call_%d_%d", round, i);
        qr_buf_put_str(&more, i > 0 ? ",{\"id\":" : "{\"id\":");
        qr_json_put_str(&more, call->id.data, call->id.len);
        qr_buf_put_str(&more, ",\"type\":\"function\",\"function\":{\"name\":");
        qr_json_put_str(&more, qr_buf_text(&call->name), call->name.len);
        qr_buf_put_str(&more, ",\"arguments\":");
        qr_json_put_str(&more, call->arguments.data, call->arguments.len);
        qr_buf_put_str(&more, "}}");
    }
    qr_buf_put_byte(&more, ']');
    if (a->reasoning.len > 0) {
        qr_buf_put_str(&more, ",\"reasoning_content\":");
        qr_json_put_str(&more, a->reasoning.data, a->reasoning.len);
    }
    qr_session_add(&c->session, QR_ROLE_ASSISTANT, qr_buf_text(&a->text), a->text.len, false);
    qr_session_set_more(&c->session, more.data);
    qr_buf_release(&more);
}

static void add_result(struct qr_talk *c, const struct qr_tool_call *call, const struct qr_buf *result)
{
    struct qr_buf more = {0};
    qr_buf_put_str(&more, "\"tool_call_id\":");
    qr_json_put_str(&more, call->id.data, call->id.len);
    qr_session_add(&c->session, QR_ROLE_TOOL, qr_buf_text(result), result->len, false);
    qr_session_set_more(&c->session, more.data);
    qr_buf_release(&more);
}

/* A line on stderr about a call; dim in a conversation. */
static void say(struct qr_talk *c, const struct qr_tool_call *call, const char *what)
{
    struct qr_buf line = {0};
    qr_buf_put_str(&line, c->interactive ? qr_term_style(&c->term, "dim") : "quire chat: ");
    qr_buf_put_str(&line, c->interactive ? "[" : "");
    qr_buf_put_visible(&line, qr_buf_text(&call->name), call->name.len);
    qr_buf_put_str(&line, what);
    qr_buf_put_str(&line, c->interactive ? "]" : "");
    qr_buf_put_str(&line, c->interactive ? qr_term_style(&c->term, "off") : "");
    qr_buf_put_byte(&line, '\n');
    qr_talk_print(c, line.data, line.len);
    qr_buf_release(&line);
}

/* A call as the user is to see it before it runs: what came from the model, and what will be run. */
static void show_call(struct qr_talk *c, const struct qr_tool *tool, const struct qr_tool_call *call)
{
    struct qr_buf line = {0}, command = {0};
    const size_t n = call->arguments.len, n_shown = n < SHOWN_BYTES_MAX ? n : SHOWN_BYTES_MAX;
    qr_tool_put_command(&command, tool);
    qr_buf_put_str(&line, c->interactive ? qr_term_style(&c->term, "bold") : "quire chat: ");
    qr_buf_put_visible(&line, qr_buf_text(&call->name), call->name.len);
    qr_buf_put_str(&line, c->interactive ? qr_term_style(&c->term, "off") : "");
    qr_buf_put_byte(&line, ' ');
    qr_buf_put_visible(&line, call->arguments.data, n_shown);
    if (n_shown < n)
        qr_buf_printf(&line, "... (%zu bytes)", n);
    qr_buf_put_str(&line, c->interactive ? "\n  runs " : ": runs ");
    qr_buf_put_visible(&line, command.data, command.len);
    qr_buf_put_byte(&line, '\n');
    qr_talk_print(c, line.data, line.len);
    qr_buf_release(&command);
    qr_buf_release(&line);
}

static int run_tool(struct qr_talk *c, const struct qr_tool *tool, const struct qr_tool_call *call, struct qr_buf *result)
{
    char text[80];
    const int64_t began_us = qr_clock_us();
    const int stopped = qr_tool_run(result, tool, call->arguments.data, call->arguments.len, c->opt.tool_timeout_us, &c->term);
    snprintf(text, sizeof text, ": %zu bytes in %.1f s", result->len, (double)(qr_clock_us() - began_us) * 1e-6);
    if (stopped == 0 && c->interactive)
        say(c, call, text);
    return stopped;
}

/* What a call gives, into result. Not 0: the signal that ended the answer. */
static int answer_call(struct qr_talk *c, struct qr_tool_call *call, bool fits, struct qr_buf *result)
{
    struct qr_tool *tool = qr_tools_find(&c->tools, qr_buf_text(&call->name));
    if (tool == NULL || !fits) {
        qr_buf_put_str(result, tool == NULL ? "[error: there is no such tool]" : "[error: the arguments are no JSON object]");
        say(c, call, tool == NULL ? ": there is no such tool; the model is told" : ": the arguments are no JSON object; the model is told");
        return 0;
    }
    show_call(c, tool, call);
    const bool allowed = c->opt.yes_run_tools || tool->always;
    const enum qr_approval word = allowed ? QR_APPROVAL_RUN : c->approve(c->approve_arg, tool);
    if (word == QR_APPROVAL_STOP)
        return c->ask.signal != 0 ? c->ask.signal : SIGINT;
    if (word == QR_APPROVAL_RUN)
        return run_tool(c, tool, call, result);
    qr_buf_put_str(result, "[error: the user did not allow this call]");
    return 0;
}

/* Drops what a round had added. */
static void drop_from(struct qr_session *s, int32_t first)
{
    struct qr_session dropped = {0};
    qr_session_move(&dropped, s, first);
    qr_session_release(&dropped);
}

static enum qr_ask_end run_calls(struct qr_talk *c, int32_t round)
{
    struct qr_tool_calls *calls = &c->ask.answer.tools;
    bool fits[QR_TOOL_CALLS_MAX];
    struct qr_buf result = {0};
    const int32_t n_before = c->session.n;
    int stopped = 0;
    for (int32_t i = 0; i < calls->n; i++)
        fits[i] = arguments_fit(&calls->item[i].arguments);
    add_calls(c, round);
    for (int32_t i = 0; i < calls->n && stopped == 0; i++) {
        qr_buf_clear(&result);
        stopped = answer_call(c, &calls->item[i], fits[i], &result);
        if (stopped == 0)
            add_result(c, &calls->item[i], &result);
    }
    qr_buf_release(&result);
    if (stopped == 0)
        return QR_ASK_DONE;
    drop_from(&c->session, n_before);
    c->ask.signal = stopped;
    return stopped == SIGINT ? QR_ASK_INTERRUPTED : QR_ASK_KILLED;
}

/* Members of the request beside the conversation. The last round may not call: its answer is text. */
static void put_more(struct qr_buf *out, const struct qr_talk *c, bool last)
{
    qr_buf_clear(out);
    qr_buf_put(out, qr_buf_text(&c->schema), c->schema.len);
    qr_buf_put(out, qr_buf_text(&c->tools.request), c->tools.request.len);
    qr_buf_put_str(out, last ? ",\"tool_choice\":\"none\"" : "");
}

enum qr_ask_end qr_talk_answer(struct qr_talk *c, struct qr_err *err)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(err != NULL);
    static const char too_many[] = "quire chat: the model goes on to call tools; no more of its calls are run for this question\n";
    struct qr_buf more = {0};
    enum qr_ask_end end = QR_ASK_DONE;
    bool called = true;
    qr_buf_clear(&c->thinking);
    for (int32_t round = 0; end == QR_ASK_DONE && called; round++) {
        const bool last = round == ROUNDS_MAX;
        put_more(&more, c, last);
        end = qr_talk_ask(c, qr_buf_text(&more), err);
        qr_buf_put_str(&c->thinking, c->thinking.len > 0 && c->ask.answer.reasoning.len > 0 ? "\n\n" : "");
        qr_buf_put(&c->thinking, qr_buf_text(&c->ask.answer.reasoning), c->ask.answer.reasoning.len);
        called = end == QR_ASK_DONE && !last && c->ask.answer.tools.n > 0 && qr_talk_runs_tools(c);
        if (called)
            end = run_calls(c, round);
        else if (end == QR_ASK_DONE && last && c->ask.answer.tools.n > 0)
            qr_talk_print(c, too_many, sizeof too_many - 1);
    }
    qr_buf_release(&more);
    return end;
}
