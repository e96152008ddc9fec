/* messages_in.c - bodies of Anthropic's Messages API as chat bodies: which field means what, and blocks of content as messages, calls and their results.
 * Types of blocks and of tools that are not known are left out, images and documents are refused by name, bounds are chat's where they are the same.
 * Pure; on libuv's pool. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "server/messages.h"
#include "server/openai.h"

/* Claude Code begins blocks of the system prompt with this that differ in each request: they would keep the prefix cache from what follows. */
#define PRIVATE_PREFIX "x-anthropic-"

/* ---- blocks ---- */

/* The type of a block, or NULL: *rc says why, 0 where it is to be left out. */
static const char *block_type(const struct qr_json *block, const char *at, int *rc, struct qr_err *err)
{
    static const char *const other[] = {"image", "document"};
    char path[128];
    *rc = 0;
    if (qr_json_type(block) != QR_JSON_T_OBJECT) {
        *rc = qr_wrong_type(err, at, "an object", block);
        return NULL;
    }
    const char *type = qr_json_text(qr_json_find(block, "type"), NULL);
    snprintf(path, sizeof path, "%.110s.type", at);
    if (!type)
        *rc = qr_err_at(err, QR_E_INVALID, path, "%s must be a string such as \"text\"", path);
    for (int i = 0; type && i < QR_COUNT(other); i++)
        if (strcmp(type, other[i]) == 0) {
            *rc = qr_err_at(err, QR_E_UNSUPPORTED, path, "%s: \"%s\" is not supported; this model reads text only", path, type);
            return NULL;
        }
    return type;
}

/* A member of a block that must be a string. NULL: *rc says why not. */
static const struct qr_json *text_member(const struct qr_json *block, const char *name, const char *at, int *rc, struct qr_err *err)
{
    char path[128];
    const struct qr_json *v = qr_json_find(block, name);
    snprintf(path, sizeof path, "%.100s.%s", at, name);
    if (v && qr_json_type(v) == QR_JSON_T_STRING)
        return v;
    *rc = v ? qr_wrong_type(err, path, "a string", v) : qr_err_at(err, QR_E_INVALID, path, "%s is required: a string", path);
    return NULL;
}

static void put_part(struct qr_buf *out, const struct qr_json *text)
{
    qr_buf_put_comma(out);
    qr_buf_put_str(out, "{\"type\":\"text\",\"text\":");
    qr_json_print(out, text);
    qr_buf_put_byte(out, '}');
}

static bool is_private(const struct qr_json *text)
{
    return strncmp(qr_json_str(text, NULL), PRIVATE_PREFIX, sizeof PRIVATE_PREFIX - 1) == 0;
}

/* The text blocks of content as parts; a string is one. *n counts them. system: without those that are private. */
static int put_parts(struct qr_buf *out, int32_t *n, const struct qr_json *content, const char *path, bool system, struct qr_err *err)
{
    char at[112];
    int rc = 0;
    int32_t i = 0;
    *n = 0;
    if (qr_json_is_null(content))
        return 0;
    if (qr_json_type(content) == QR_JSON_T_STRING) {
        put_part(out, content);
        *n = 1;
        return 0;
    }
    if (qr_json_type(content) != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, path, "a string or an array of content blocks", content);
    for (const struct qr_json *block = qr_json_first(content); block && rc == 0; block = qr_json_after(block), i++) {
        snprintf(at, sizeof at, "%.90s[%d]", path, i);
        const char *type = block_type(block, at, &rc, err);
        const struct qr_json *text = type && strcmp(type, "text") == 0 ? text_member(block, "text", at, &rc, err) : NULL;
        if (!text || (system && is_private(text)))
            continue;
        put_part(out, text);
        ++*n;
    }
    return rc;
}

/* ---- messages ---- */

static void begin_message(struct qr_door_in *in, const char *role, const char *path)
{
    qr_door_put_source(in, path);
    qr_buf_put_comma(&in->chat);
    qr_buf_printf(&in->chat, "{\"role\":\"%s\"", role);
}

/* A message of the texts of content; without any it is left out, or empty. */
static int put_text_message(struct qr_door_in *in, const char *role, const struct qr_json *content, const char *source, const char *path, bool may_be_empty,
                            struct qr_err *err)
{
    struct qr_buf parts = {0};
    int32_t n;
    const int rc = put_parts(&parts, &n, content, path, strcmp(role, "system") == 0, err);
    if (rc == 0 && (n > 0 || may_be_empty)) {
        begin_message(in, role, source);
        qr_buf_put_str(&in->chat, n > 0 ? ",\"content\":[" : ",\"content\":\"\"}");
        if (n > 0)
            qr_buf_put(&in->chat, parts.data, parts.len);
        qr_buf_put_str(&in->chat, n > 0 ? "]}" : "");
    }
    qr_buf_release(&parts);
    return rc;
}

static int put_result(struct qr_door_in *in, const struct qr_json *block, const char *at, struct qr_err *err)
{
    struct qr_buf parts = {0};
    char path[128];
    int rc = 0;
    int32_t n = 0;
    const struct qr_json *id = text_member(block, "tool_use_id", at, &rc, err), *is_error = qr_json_find(block, "is_error");
    snprintf(path, sizeof path, "%.100s.is_error", at);
    if (rc == 0 && !qr_json_is_null(is_error) && qr_json_type(is_error) != QR_JSON_T_BOOL)
        rc = qr_wrong_type(err, path, "true or false", is_error);
    snprintf(path, sizeof path, "%.100s.content", at);
    rc = rc ? rc : put_parts(&parts, &n, qr_json_find(block, "content"), path, false, err);
    if (rc == 0) {
        begin_message(in, "tool", at);
        qr_buf_put_str(&in->chat, ",\"tool_call_id\":");
        qr_json_print(&in->chat, id);
        qr_buf_put_str(&in->chat, n > 0 ? ",\"content\":[" : ",\"content\":\"\"}");
        if (n > 0)
            qr_buf_put(&in->chat, parts.data, parts.len);
        qr_buf_put_str(&in->chat, n > 0 ? "]}" : "");
    }
    qr_buf_release(&parts);
    return rc;
}

/* Results are messages of their own, in the order in which they stand among texts. */
static int put_user(struct qr_door_in *in, const struct qr_json *content, const char *source, const char *path, struct qr_err *err)
{
    char at[96];
    bool open = false, any = false;
    int rc = 0;
    int32_t i = 0;
    if (qr_json_is_null(content) || qr_json_type(content) != QR_JSON_T_ARRAY)
        return put_text_message(in, "user", content, source, path, true, err);
    for (const struct qr_json *block = qr_json_first(content); block && rc == 0; block = qr_json_after(block), i++) {
        snprintf(at, sizeof at, "%.72s[%d]", path, i);
        const char *type = block_type(block, at, &rc, err);
        const bool result = type && strcmp(type, "tool_result") == 0;
        const struct qr_json *text = type && strcmp(type, "text") == 0 ? text_member(block, "text", at, &rc, err) : NULL;
        if (open && result)
            qr_buf_put_str(&in->chat, "]}");
        if (text && !open) {
            begin_message(in, "user", source);
            qr_buf_put_str(&in->chat, ",\"content\":[");
        }
        open = (open && !result) || text;
        any |= text || result;
        if (text)
            put_part(&in->chat, text);
        else if (result)
            rc = put_result(in, block, at, err);
    }
    if (open)
        qr_buf_put_str(&in->chat, "]}");
    return rc || any ? rc : put_text_message(in, "user", NULL, source, path, true, err);
}

static int put_call(struct qr_buf *out, const struct qr_json *block, const char *at, struct qr_err *err)
{
    struct qr_buf arguments = {0};
    char path[128];
    int rc = 0;
    const struct qr_json *id = text_member(block, "id", at, &rc, err), *name = id ? text_member(block, "name", at, &rc, err) : NULL;
    const struct qr_json *input = qr_json_find(block, "input");
    snprintf(path, sizeof path, "%.100s.input", at);
    if (rc == 0 && !qr_json_is_null(input) && qr_json_type(input) != QR_JSON_T_OBJECT)
        rc = qr_wrong_type(err, path, "an object", input);
    if (rc != 0)
        return rc;
    if (qr_json_is_null(input))
        qr_buf_put_str(&arguments, "{}");
    else
        qr_json_print(&arguments, input);
    qr_buf_put_comma(out);
    qr_buf_put_str(out, "{\"type\":\"function\",\"id\":");
    qr_json_print(out, id);
    qr_buf_put_str(out, ",\"function\":{\"name\":");
    qr_json_print(out, name);
    qr_buf_put_str(out, ",\"arguments\":");
    qr_json_put_str(out, arguments.data ? arguments.data : "", arguments.len);
    qr_buf_put_str(out, "}}");
    qr_buf_release(&arguments);
    return 0;
}

/* What of an assistant's turn is no content. */
struct turn {
    struct qr_buf thinking, calls; /* owned */
};

static int read_turn(struct turn *turn, const struct qr_json *content, const char *path, struct qr_err *err)
{
    char at[96];
    int rc = 0;
    int32_t i = 0;
    for (const struct qr_json *block = content ? qr_json_first(content) : NULL; block && rc == 0; block = qr_json_after(block), i++) {
        snprintf(at, sizeof at, "%.72s[%d]", path, i);
        const char *type = block_type(block, at, &rc, err);
        if (type && strcmp(type, "tool_use") == 0)
            rc = put_call(&turn->calls, block, at, err);
        const struct qr_json *thinking = type && strcmp(type, "thinking") == 0 ? text_member(block, "thinking", at, &rc, err) : NULL;
        size_t n;
        const char *text = qr_json_text(thinking, &n);
        if (text)
            qr_buf_put(&turn->thinking, text, n);
    }
    return rc;
}

/* *open: it is a text that may be continued. */
static int put_assistant(struct qr_door_in *in, const struct qr_json *content, const char *source, const char *path, bool *open, struct qr_err *err)
{
    struct turn turn = {{0}, {0}};
    struct qr_buf parts = {0};
    int32_t n = 0;
    const bool blocks = !qr_json_is_null(content) && qr_json_type(content) == QR_JSON_T_ARRAY;
    int rc = put_parts(&parts, &n, content, path, false, err);
    rc = rc ? rc : read_turn(&turn, blocks ? content : NULL, path, err);
    if (rc == 0) {
        begin_message(in, "assistant", source);
        qr_buf_put_str(&in->chat, n > 0 ? ",\"content\":[" : turn.calls.len > 0 ? ",\"content\":null" : ",\"content\":\"\"");
        qr_buf_put(&in->chat, parts.data, parts.len);
        qr_buf_put_str(&in->chat, n > 0 ? "]" : "");
        if (turn.thinking.len > 0) {
            qr_buf_put_str(&in->chat, ",\"reasoning_content\":");
            qr_json_put_str(&in->chat, turn.thinking.data, turn.thinking.len);
        }
        qr_buf_put_str(&in->chat, turn.calls.len > 0 ? ",\"tool_calls\":[" : "");
        qr_buf_put(&in->chat, turn.calls.data, turn.calls.len);
        qr_buf_put_str(&in->chat, turn.calls.len > 0 ? "]" : "");
        qr_buf_put_byte(&in->chat, '}');
    }
    *open = n > 0 && turn.calls.len == 0;
    qr_buf_release(&turn.thinking);
    qr_buf_release(&turn.calls);
    qr_buf_release(&parts);
    return rc;
}

static int put_message(struct qr_door_in *in, const struct qr_json *message, const char *source, bool *open, struct qr_err *err)
{
    char path[64], role_path[64], excerpt[72];
    if (qr_json_type(message) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, source, "an object with role and content", message);
    const struct qr_json *role = qr_json_find(message, "role"), *content = qr_json_find(message, "content");
    snprintf(path, sizeof path, "%.48s.content", source);
    snprintf(role_path, sizeof role_path, "%.48s.role", source);
    *open = false;
    if (!qr_json_says(role, "user") && !qr_json_says(role, "assistant") && !qr_json_says(role, "system"))
        return qr_err_at(err, QR_E_INVALID, role_path, "%s must be \"user\" or \"assistant\", found %s", role_path,
                         role ? qr_json_excerpt(excerpt, role) : "none");
    if (qr_json_is_null(content))
        return qr_err_at(err, QR_E_INVALID, path, "%s is required: a string or an array of content blocks", path);
    if (qr_json_says(role, "assistant"))
        return put_assistant(in, content, source, path, open, err);
    return qr_json_says(role, "user") ? put_user(in, content, source, path, err) : put_text_message(in, "system", content, source, path, false, err);
}

/* An assistant's text at the end is one that the answer goes on with. */
static int put_messages(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    const struct qr_json *system = qr_json_find(in->body, "system");
    bool open = false;
    int32_t i = 0;
    if (qr_json_type(v) != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, "messages", "an array of messages", v);
    if (qr_json_count(v) == 0)
        return qr_err_at(err, QR_E_INVALID, "messages", "messages must have at least one message");
    qr_door_put_name(in, "messages");
    qr_buf_put_byte(&in->chat, '[');
    int rc = qr_json_is_null(system) ? 0 : put_text_message(in, "system", system, "system", "system", false, err);
    for (const struct qr_json *m = qr_json_first(v); m && rc == 0; m = qr_json_after(m), i++) {
        char source[48];
        snprintf(source, sizeof source, "messages[%d]", i);
        rc = put_message(in, m, source, &open, err);
    }
    qr_buf_put_byte(&in->chat, ']');
    if (open) {
        qr_door_put_text(in, "continue_final_message", "true");
        qr_door_put_text(in, "add_generation_prompt", "false");
    }
    return rc;
}

/* ---- other fields ---- */

/* Models differ in how much they may write, and clients ask for the most of those that they know: more than there is room for is a bound like another. */
static int put_max_tokens(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    int64_t n;
    const int rc = qr_read_whole(&n, v, "max_tokens", 1, INT32_MAX, err);
    const int32_t most = in->ctx_max > 0 ? in->ctx_max : INT32_MAX;
    if (rc != 0)
        return rc;
    qr_door_put_name(in, "max_tokens");
    qr_buf_put_i64(&in->chat, n < most ? n : most);
    return 0;
}

static int put_stops(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    if (qr_json_type(v) != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, "stop_sequences", "an array of strings", v);
    qr_door_put_value(in, "stop", v);
    return 0;
}

static int put_temperature(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    char excerpt[72];
    if (qr_json_type(v) == QR_JSON_T_NUMBER && !(qr_json_f64(v) >= 0 && qr_json_f64(v) <= 1))
        return qr_err_at(err, QR_E_INVALID, "temperature", "temperature must be at least 0 and at most 1, found %s", qr_json_excerpt(excerpt, v));
    qr_door_put_value(in, "temperature", v);
    return 0;
}

static int put_tool(struct qr_buf *out, const struct qr_json *tool, int32_t i, struct qr_err *err)
{
    char at[64];
    snprintf(at, sizeof at, "tools[%d]", i);
    if (qr_json_type(tool) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, at, "an object", tool);
    const struct qr_json *type = qr_json_find(tool, "type"), *schema = qr_json_find(tool, "input_schema");
    const bool custom = qr_json_is_null(type) || qr_json_says(type, "custom");
    snprintf(at, sizeof at, "tools[%d].%s", i, custom ? "input_schema" : "type");
    if (!custom && qr_json_type(type) != QR_JSON_T_STRING)
        return qr_wrong_type(err, at, "a string", type);
    if (custom && qr_json_is_null(schema))
        return qr_err_at(err, QR_E_INVALID, at, "%s is required: a JSON Schema that is an object", at);
    qr_door_put_function(out, custom ? tool : NULL, schema);
    return 0;
}

static int put_tools(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return qr_door_put_tools(in, v, put_tool, err);
}

static int put_tool_choice(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    static const struct {
        const char *type, *chat;
    } known[] = {{"auto", "\"auto\""}, {"any", "\"required\""}, {"none", "\"none\""}, {"tool", NULL}};
    int rc = 0, k = 0;
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, "tool_choice", "an object with a type", v);
    const struct qr_json *type = qr_json_find(v, "type"), *single = qr_json_find(v, "disable_parallel_tool_use");
    while (k < QR_COUNT(known) && !(type && qr_json_says(type, known[k].type)))
        k++;
    if (k == QR_COUNT(known))
        return qr_err_at(err, QR_E_INVALID, "tool_choice.type", "tool_choice.type must be \"auto\", \"any\", \"tool\" or \"none\"");
    const struct qr_json *name = known[k].chat ? NULL : text_member(v, "name", "tool_choice", &rc, err);
    if (rc == 0 && !qr_json_is_null(single) && qr_json_type(single) != QR_JSON_T_BOOL)
        rc = qr_wrong_type(err, "tool_choice.disable_parallel_tool_use", "true or false", single);
    if (rc != 0)
        return rc;
    if (known[k].chat)
        qr_door_put_text(in, "tool_choice", known[k].chat);
    if (name) {
        qr_door_put_name(in, "tool_choice");
        qr_buf_put_str(&in->chat, "{\"type\":\"function\",\"function\":{\"name\":");
        qr_json_print(&in->chat, name);
        qr_buf_put_str(&in->chat, "}}");
    }
    if (!qr_json_is_null(single) && qr_json_bool(single))
        qr_door_put_text(in, "parallel_tool_calls", "false");
    return 0;
}

static int put_thinking(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    int64_t n;
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, "thinking", "an object with a type", v);
    const struct qr_json *type = qr_json_find(v, "type"), *budget = qr_json_find(v, "budget_tokens");
    const bool off = qr_json_says(type, "disabled");
    if (!off && !qr_json_says(type, "enabled") && !qr_json_says(type, "adaptive"))
        return qr_err_at(err, QR_E_INVALID, "thinking.type", "thinking.type must be \"enabled\", \"adaptive\" or \"disabled\"");
    qr_door_put_text(in, "enable_thinking", off ? "false" : "true");
    if (off || qr_json_is_null(budget))
        return 0;
    const int rc = qr_read_whole(&n, budget, "thinking.budget_tokens", 1, INT32_MAX, err);
    if (rc == 0)
        qr_door_put_value(in, "thinking_token_budget", budget);
    return rc;
}

/* path: where it stands. */
static int put_format(struct qr_door_in *in, const struct qr_json *v, const char *path, struct qr_err *err)
{
    char at[64];
    if (qr_json_is_null(v))
        return 0;
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, path, "an object with type and schema", v);
    snprintf(at, sizeof at, "%.48s.type", path);
    if (!qr_json_says(qr_json_find(v, "type"), "json_schema"))
        return qr_err_at(err, QR_E_INVALID, at, "%s must be \"json_schema\"", at);
    snprintf(at, sizeof at, "%.48s.schema", path);
    const struct qr_json *schema = qr_json_find(v, "schema");
    if (qr_json_is_null(schema))
        return qr_err_at(err, QR_E_INVALID, at, "%s is required: a JSON Schema", at);
    qr_door_put_name(in, "response_format");
    qr_buf_put_str(&in->chat, "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"output\",\"schema\":");
    qr_json_print(&in->chat, schema);
    qr_buf_put_str(&in->chat, "}}");
    return 0;
}

static int put_output_config(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, "output_config", "an object", v);
    qr_door_put_value(in, "reasoning_effort", qr_json_find(v, "effort"));
    return put_format(in, qr_json_find(v, "format"), "output_config.format", err);
}

static int ignore(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return 0;
}

/* Anthropic's client asks so that the server keeps the conversation; refused, it sends all of it. */
static int refuse_thread(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return qr_err_at(err, QR_E_UNSUPPORTED, QR_MESSAGES_THREAD, "thread: this server keeps no conversations; send all messages");
}

int qr_messages_need_max_tokens(struct qr_door_in *in, struct qr_err *err)
{
    QR_ASSERT(in != NULL && in->body != NULL);
    QR_ASSERT(err != NULL);
    return qr_json_is_null(qr_json_find(in->body, "max_tokens")) ? qr_err_at(err, QR_E_INVALID, "max_tokens", "max_tokens is required: an integer") : 0;
}

const struct qr_door_field qr_messages_field[QR_MESSAGES_FIELDS] = {
    {"model", "model", NULL}, {"max_tokens", "max_tokens", put_max_tokens}, {"messages", NULL, put_messages}, {"system", NULL, ignore /* of put_messages */},
    {"tools", "tools", put_tools}, {"tool_choice", "tool_choice", put_tool_choice}, {"stop_sequences", "stop", put_stops},
    {"temperature", "temperature", put_temperature}, {"top_p", "top_p", NULL}, {"top_k", "top_k", NULL}, {"thinking", NULL, put_thinking},
    {"output_config", NULL, put_output_config}, {"stream", "stream", NULL}, {QR_MESSAGES_THREAD, NULL, refuse_thread},
    /* Not Anthropic's: what chat has beside. */
    {"seed", "seed", NULL}, {"min_p", "min_p", NULL}, {"cache_salt", "cache_salt", NULL}, {"priority", "priority", NULL},
    {"chat_template_kwargs", "chat_template_kwargs", NULL}, {"timeout", "timeout", NULL},
};

const struct qr_door_path qr_messages_path[QR_MESSAGES_PATHS] = {
    {"tools[#].function", "tools[#]"}, {"tools[#].function.parameters", "tools[#].input_schema"}, {"thinking_token_budget", "thinking.budget_tokens"},
    {"reasoning_effort", "output_config.effort"}, {"response_format", "output_config.format"},
    {"response_format.json_schema.schema", "output_config.format.schema"},
};
