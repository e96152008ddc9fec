/* responses_in.c - bodies of OpenAI's Responses API as chat bodies: which field means what, and what the answer repeats of them. Tools that are no functions
 * are left out; bounds are chat's where they are the same. Of the conversation see responses_items.c. Pure; on libuv's pool. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "server/call.h"
#include "server/responses.h"

#define LOGPROBS "message.output_text.logprobs" /* of include: without it there are none */

/* ---- values ---- */

static int check_type(const struct qr_json *v, enum qr_json_type type, const char *path, const char *expected, struct qr_err *err)
{
    return qr_json_is_null(v) || qr_json_type(v) == type ? 0 : qr_wrong_type(err, path, expected, v);
}

static int check_one_of(const struct qr_json *v, const char *const *known, const char *path, const char *expected, struct qr_err *err)
{
    char excerpt[72];
    if (qr_json_is_null(v))
        return 0;
    for (; *known; known++)
        if (qr_json_says(v, *known))
            return 0;
    return qr_err_at(err, QR_E_INVALID, path, "%s must be %s, found %s", path, expected, qr_json_excerpt(excerpt, v));
}

/* ---- other fields ---- */

static int check_instructions(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return check_type(v, QR_JSON_T_STRING, "instructions", "a string", err);
}

static int check_metadata(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return check_type(v, QR_JSON_T_OBJECT, "metadata", "an object", err);
}

static int check_store(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return check_type(v, QR_JSON_T_BOOL, "store", "true or false", err);
}

static int check_include(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    int32_t i = 0;
    if (qr_json_type(v) != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, "include", "an array of strings", v);
    for (const struct qr_json *e = qr_json_first(v); e; e = qr_json_after(e), i++) {
        char at[32];
        snprintf(at, sizeof at, "include[%d]", i);
        if (!qr_json_text(e, NULL))
            return qr_wrong_type(err, at, "a string", e);
    }
    return 0;
}

static bool includes(const struct qr_json *body, const char *what)
{
    const struct qr_json *v = qr_json_find(body, "include");
    for (const struct qr_json *e = v ? qr_json_first(v) : NULL; e; e = qr_json_after(e))
        if (qr_json_says(e, what))
            return true;
    return false;
}

static int check_truncation(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    static const char *const known[] = {"auto", "disabled", NULL};
    return check_one_of(v, known, "truncation", "\"auto\" or \"disabled\"", err);
}

/* More than there is room for is a bound like another. */
static int put_max_tokens(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    int64_t n;
    const int rc = qr_read_whole(&n, v, "max_output_tokens", 1, INT32_MAX, err);
    const int32_t most = in->call ? qr_engine_limits(in->call->server->model.engine)->ctx_max : INT32_MAX;
    if (rc != 0)
        return rc;
    qr_door_put_name(in, "max_tokens");
    qr_buf_put_i64(&in->chat, n < most ? n : most);
    return 0;
}

static int put_top_logprobs(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    int64_t n;
    const int rc = qr_read_whole(&n, v, "top_logprobs", 0, QR_TOP_LOGPROBS_MAX, err);
    if (rc == 0 && includes(in->body, LOGPROBS))
        qr_door_put_value(in, "top_logprobs", v);
    return rc;
}

static int put_tool(struct qr_buf *out, const struct qr_json *tool, int32_t i, struct qr_err *err)
{
    char at[64];
    int rc = 0;
    snprintf(at, sizeof at, "tools[%d]", i);
    if (qr_json_type(tool) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, at, "an object", tool);
    const struct qr_json *type = qr_responses_text(tool, "type", at, &rc, err);
    if (!type)
        return rc;
    qr_door_put_function(out, qr_json_says(type, "function") ? tool : NULL, qr_json_find(tool, "parameters"));
    return 0;
}

static int put_tools(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return qr_door_put_tools(in, v, put_tool, err);
}

static void put_named(struct qr_buf *out, const struct qr_json *tool)
{
    qr_buf_put_str(out, "{\"type\":\"function\",\"function\":{");
    qr_door_put_member(out, "name", qr_json_find(tool, "name"));
    qr_buf_put_str(out, "}}");
}

/* Those of them that are functions. */
static int put_allowed(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    const struct qr_json *tools = qr_json_find(v, "tools");
    if (qr_json_is_null(tools) || qr_json_type(tools) != QR_JSON_T_ARRAY)
        return qr_responses_wrong(err, "tool_choice", "tools", "an array of tools", tools);
    qr_door_put_name(in, "tool_choice");
    qr_buf_put_str(&in->chat, "{\"type\":\"allowed_tools\",\"allowed_tools\":{");
    qr_door_put_member(&in->chat, "mode", qr_json_find(v, "mode"));
    qr_buf_put_comma(&in->chat);
    qr_buf_put_str(&in->chat, "\"tools\":[");
    for (const struct qr_json *t = qr_json_first(tools); t; t = qr_json_after(t))
        if (qr_json_says(qr_json_find(t, "type"), "function")) {
            qr_buf_put_comma(&in->chat);
            put_named(&in->chat, t);
        }
    qr_buf_put_str(&in->chat, "]}}");
    return 0;
}

static int put_tool_choice(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    const struct qr_json *type = qr_json_find(v, "type");
    int rc = 0;
    if (qr_json_says(type, "allowed_tools"))
        return put_allowed(in, v, err);
    if (!qr_json_says(type, "function")) {
        qr_door_put_value(in, "tool_choice", v);
        return 0;
    }
    if (!qr_responses_text(v, "name", "tool_choice", &rc, err))
        return rc;
    qr_door_put_name(in, "tool_choice");
    put_named(&in->chat, v);
    return 0;
}

static int put_format(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    if (qr_json_is_null(v))
        return 0;
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, "text.format", "an object with a type", v);
    qr_door_put_name(in, "response_format");
    if (!qr_json_says(qr_json_find(v, "type"), "json_schema")) {
        qr_json_print(&in->chat, v);
        return 0;
    }
    qr_buf_put_str(&in->chat, "{\"type\":\"json_schema\",\"json_schema\":{");
    qr_door_put_member(&in->chat, "name", qr_json_find(v, "name"));
    qr_door_put_member(&in->chat, "schema", qr_json_find(v, "schema"));
    qr_door_put_member(&in->chat, "strict", qr_json_find(v, "strict"));
    qr_buf_put_str(&in->chat, "}}");
    return 0;
}

static int put_text(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    static const char *const known[] = {"low", "medium", "high", NULL};
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, "text", "an object", v);
    const int rc = check_one_of(qr_json_find(v, "verbosity"), known, "text.verbosity", "\"low\", \"medium\" or \"high\"", err);
    return rc ? rc : put_format(in, qr_json_find(v, "format"), err);
}

static int put_reasoning(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    static const char *const known[] = {"auto", "concise", "detailed", "none", NULL};
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, "reasoning", "an object", v);
    qr_door_put_value(in, "reasoning_effort", qr_json_find(v, "effort"));
    return check_one_of(qr_json_find(v, "summary"), known, "reasoning.summary", "\"auto\", \"concise\" or \"detailed\"", err);
}

static int refuse_background(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    if (qr_json_type(v) != QR_JSON_T_BOOL)
        return qr_wrong_type(err, "background", "true or false", v);
    return !qr_json_bool(v) ? 0 : qr_err_at(err, QR_E_UNSUPPORTED, "background", "background: answers are not made behind the client's back; use stream");
}

static int refuse_conversation(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return qr_err_at(err, QR_E_UNSUPPORTED, "conversation", "conversation: this server keeps responses, no conversations; use previous_response_id");
}

static int refuse_prompt(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return qr_err_at(err, QR_E_UNSUPPORTED, "prompt", "prompt: this server keeps no templates of prompts; use instructions and input");
}

static int check_previous(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return check_type(v, QR_JSON_T_STRING, "previous_response_id", "a string", err);
}

static int ignore(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return 0;
}

/* ---- what the answer repeats ---- */

static void repeat(struct qr_buf *out, const struct qr_json *body, const char *name, const char *usual)
{
    const struct qr_json *v = qr_json_find(body, name);
    qr_json_put_name(out, name);
    if (qr_json_is_null(v))
        qr_buf_put_str(out, usual);
    else
        qr_json_print(out, v);
}

static void put_settings(struct qr_buf *out, const struct qr_json *body)
{
    static const char *const row[][2] = {{"background", "false"}, {"instructions", "null"}, {"max_output_tokens", "null"}, {"max_tool_calls", "null"},
                                         {"metadata", "{}"}, {"parallel_tool_calls", "true"}, {"previous_response_id", "null"},
                                         {"prompt_cache_key", "null"}, {"reasoning", "{\"effort\":null,\"summary\":null}"}, {"store", "true"},
                                         {"tool_choice", "\"auto\""}, {"tools", "[]"}, {"top_logprobs", "0"}, {"truncation", "\"disabled\""}};
    const struct qr_json *text = qr_json_find(body, "text"), *format = text ? qr_json_find(text, "format") : NULL;
    for (int i = 0; i < QR_COUNT(row); i++)
        repeat(out, body, row[i][0], row[i][1]);
    qr_buf_put_str(out, ",\"text\":{");
    if (qr_json_is_null(format))
        qr_buf_put_str(out, "\"format\":{\"type\":\"text\"}");
    qr_door_put_member(out, "format", format);
    qr_door_put_member(out, "verbosity", text ? qr_json_find(text, "verbosity") : NULL);
    qr_buf_put_byte(out, '}');
}

static void put_kept(struct qr_door_in *in, const struct qr_buf *items)
{
    const struct qr_json *store = qr_json_find(in->body, "store");
    struct qr_responses_kept kept = {.n_items = items->len, .store = qr_json_is_null(store) || qr_json_bool(store),
                                     .encrypted = includes(in->body, "reasoning.encrypted_content")};
    struct qr_buf members = {0};
    put_settings(&members, in->body);
    kept.n_members = members.len;
    qr_buf_put(&in->kept, &kept, sizeof kept);
    qr_buf_put(&in->kept, members.data, members.len);
    qr_buf_put(&in->kept, items->data ? items->data : "", items->len);
    qr_buf_release(&members);
}

int qr_responses_settle(struct qr_door_in *in, struct qr_err *err)
{
    struct qr_buf items = {0};
    QR_ASSERT(in != NULL && in->body != NULL);
    QR_ASSERT(err != NULL && in->kept.len == 0);
    if (includes(in->body, LOGPROBS))
        qr_door_put_text(in, "logprobs", "true");
    const int rc = qr_responses_read(in, &items, err);
    if (rc == 0)
        put_kept(in, &items);
    qr_buf_release(&items);
    return rc;
}

const struct qr_door_field qr_responses_field[QR_RESPONSES_FIELDS] = {
    {"model", "model", NULL}, {"input", NULL, ignore /* of settle */}, {"instructions", NULL, check_instructions},
    {"previous_response_id", NULL, check_previous}, {"max_output_tokens", "max_tokens", put_max_tokens}, {"max_tool_calls", NULL, ignore},
    {"tools", "tools", put_tools}, {"tool_choice", "tool_choice", put_tool_choice}, {"parallel_tool_calls", "parallel_tool_calls", NULL},
    {"text", NULL, put_text}, {"reasoning", NULL, put_reasoning}, {"include", NULL, check_include}, {"store", NULL, check_store},
    {"metadata", NULL, check_metadata}, {"truncation", NULL, check_truncation}, {"stream", "stream", NULL}, {"temperature", "temperature", NULL},
    {"top_p", "top_p", NULL}, {"top_logprobs", "top_logprobs", put_top_logprobs}, {"background", NULL, refuse_background},
    {"conversation", NULL, refuse_conversation}, {"prompt", NULL, refuse_prompt}, {"prompt_cache_key", NULL, ignore}, {"user", "user", NULL},
    /* Not of this API: what chat has beside. */
    {"seed", "seed", NULL}, {"top_k", "top_k", NULL}, {"min_p", "min_p", NULL}, {"cache_salt", "cache_salt", NULL}, {"priority", "priority", NULL},
    {"chat_template_kwargs", "chat_template_kwargs", NULL}, {"timeout", "timeout", NULL},
};

const struct qr_door_path qr_responses_path[QR_RESPONSES_PATHS] = {
    {"tools[#].function", "tools[#]"}, {"tool_choice.function", "tool_choice"}, {"tool_choice.allowed_tools", "tool_choice"},
    {"reasoning_effort", "reasoning.effort"}, {"response_format", "text.format"}, {"response_format.json_schema", "text.format"},
    {"response_format.json_schema.schema", "text.format.schema"}, {"logprobs", "include"}, {"max_tokens", "max_output_tokens"},
};
