/* ollama_in.c - bodies of ollama's /api/chat and /api/generate as chat bodies: options under chat's names, messages with thinking and calls, format and
 * think. What would change the answer and cannot be done (images, raw, template, suffix) is refused by name; other fields are ignored. Pure; on libuv's
 * pool. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "server/ollama.h"
#include "server/openai.h"

static bool is_empty(const struct qr_json *v)
{
    const enum qr_json_type type = v ? qr_json_type(v) : QR_JSON_T_NULL;
    size_t n = 0;
    if (type == QR_JSON_T_STRING)
        qr_json_str(v, &n);
    return type == QR_JSON_T_NULL || (type == QR_JSON_T_STRING && n == 0) || (type == QR_JSON_T_ARRAY && qr_json_count(v) == 0) ||
           (type == QR_JSON_T_BOOL && !qr_json_bool(v));
}

/* ---- both ---- */

static const struct {
    const char *option, *chat;
} options[] = {
    {"temperature", "temperature"}, {"top_k", "top_k"}, {"top_p", "top_p"}, {"min_p", "min_p"}, {"seed", "seed"}, {"stop", "stop"},
    {"repeat_penalty", "repetition_penalty"}, {"presence_penalty", "presence_penalty"}, {"frequency_penalty", "frequency_penalty"},
};

static int put_options(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    int64_t n;
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, "options", "an object", v);
    for (int i = 0; i < QR_COUNT(options); i++)
        qr_door_put_value(in, options[i].chat, qr_json_find(v, options[i].option));
    const struct qr_json *most = qr_json_find(v, "num_predict");
    const int rc = qr_json_is_null(most) ? 0 : qr_read_whole(&n, most, "options.num_predict", INT32_MIN, INT32_MAX, err);
    if (rc == 0 && !qr_json_is_null(most) && n > 0) { /* 0 and less set no limit */
        qr_door_put_name(in, "max_tokens");
        qr_buf_put_i64(&in->chat, n < in->ctx_max || in->ctx_max == 0 ? n : in->ctx_max);
    }
    return rc;
}

static int put_format(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    char excerpt[72];
    if (is_empty(v))
        return 0;
    if (qr_json_says(v, "json")) {
        qr_door_put_text(in, "response_format", "{\"type\":\"json_object\"}");
        return 0;
    }
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_err_at(err, QR_E_INVALID, "format", "format must be \"json\" or a JSON Schema, found %s", qr_json_excerpt(excerpt, v));
    qr_door_put_name(in, "response_format");
    qr_buf_put_str(&in->chat, "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"format\",\"schema\":");
    qr_json_print(&in->chat, v);
    qr_buf_put_str(&in->chat, "}}");
    return 0;
}

static int put_think(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    if (qr_json_type(v) != QR_JSON_T_BOOL && qr_json_type(v) != QR_JSON_T_STRING)
        return qr_wrong_type(err, "think", "true, false or an effort such as \"high\"", v);
    const bool effort = qr_json_type(v) == QR_JSON_T_STRING;
    qr_door_put_text(in, "enable_thinking", effort || qr_json_bool(v) ? "true" : "false");
    if (effort)
        qr_door_put_value(in, "reasoning_effort", v);
    return 0;
}

int qr_ollama_settle(struct qr_door_in *in, struct qr_err *err)
{
    QR_ASSERT(in != NULL && in->body != NULL);
    QR_ASSERT(err != NULL);
    if (qr_json_is_null(qr_json_find(in->body, "stream")))
        qr_door_put_text(in, "stream", "true");
    return 0;
}

/* ---- chat ---- */

static int put_message(struct qr_door_in *in, const struct qr_json *message, const char *at, struct qr_err *err)
{
    static const char *const same[] = {"content", "tool_calls", "tool_call_id", "name"};
    char path[64];
    if (qr_json_type(message) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, at, "an object with role and content", message);
    snprintf(path, sizeof path, "%.48s.images", at);
    if (!is_empty(qr_json_find(message, "images")))
        return qr_err_at(err, QR_E_UNSUPPORTED, path, "%s: images are not supported; this model reads text only", path);
    const struct qr_json *role = qr_json_find(message, "role"), *content = qr_json_find(message, "content");
    snprintf(path, sizeof path, "%.48s.role", at);
    if (qr_json_is_null(role))
        return qr_err_at(err, QR_E_INVALID, path, "%s is required: system, user, assistant or tool", path);
    qr_door_put_source(in, at);
    qr_buf_put_comma(&in->chat);
    qr_buf_put_str(&in->chat, "{\"role\":");
    qr_json_print(&in->chat, role);
    qr_buf_put_str(&in->chat, qr_json_is_null(content) ? ",\"content\":\"\"" : "");
    for (int i = 0; i < QR_COUNT(same); i++)
        qr_door_put_member(&in->chat, same[i], qr_json_find(message, same[i]));
    qr_door_put_member(&in->chat, "reasoning_content", qr_json_find(message, "thinking"));
    qr_buf_put_byte(&in->chat, '}');
    return 0;
}

static int put_messages(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    int rc = 0;
    int32_t i = 0;
    if (qr_json_type(v) != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, "messages", "an array of messages", v);
    qr_door_put_name(in, "messages");
    qr_buf_put_byte(&in->chat, '[');
    for (const struct qr_json *m = qr_json_first(v); m && rc == 0; m = qr_json_after(m), i++) {
        char at[48];
        snprintf(at, sizeof at, "messages[%d]", i);
        rc = put_message(in, m, at, err);
    }
    qr_buf_put_byte(&in->chat, ']');
    return rc;
}

/* ---- generate ---- */

static void put_text(struct qr_door_in *in, const char *role, const char *field, const struct qr_json *text)
{
    qr_door_put_source(in, field);
    qr_buf_put_comma(&in->chat);
    qr_buf_printf(&in->chat, "{\"role\":\"%s\",\"content\":", role);
    qr_json_print(&in->chat, text);
    qr_buf_put_byte(&in->chat, '}');
}

static int put_prompt(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    const struct qr_json *system = qr_json_find(in->body, "system");
    if (qr_json_type(v) != QR_JSON_T_STRING)
        return qr_wrong_type(err, "prompt", "a string", v);
    if (!qr_json_is_null(system) && qr_json_type(system) != QR_JSON_T_STRING)
        return qr_wrong_type(err, "system", "a string", system);
    qr_door_put_name(in, "messages");
    qr_buf_put_byte(&in->chat, '[');
    if (!is_empty(system))
        put_text(in, "system", "system", system);
    put_text(in, "user", "prompt", v);
    qr_buf_put_byte(&in->chat, ']');
    return 0;
}

static int ignore(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return 0;
}

static int refuse(const char *name, const char *why, const struct qr_json *v, struct qr_err *err)
{
    return is_empty(v) ? 0 : qr_err_at(err, QR_E_UNSUPPORTED, name, "%s: %s", name, why);
}

static int refuse_images(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return refuse("images", "images are not supported; this model reads text only", v, err);
}

static int refuse_raw(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return refuse("raw", "a prompt without a template is for /v1/completions", v, err);
}

static int refuse_template(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return refuse("template", "templates are not taken from requests; the model's own is used", v, err);
}

static int refuse_suffix(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return refuse("suffix", "text after the gap is not supported", v, err);
}

/* ---- tables ---- */

#define BOTH                                                                                                                                                  \
    {"model", "model", NULL}, {"stream", "stream", NULL}, {"options", NULL, put_options}, {"format", NULL, put_format}, {"think", NULL, put_think},       \
        {"logprobs", "logprobs", NULL}, {"top_logprobs", "top_logprobs", NULL}, /* and chat's: */                                                            \
        {"cache_salt", "cache_salt", NULL}, {"priority", "priority", NULL}, {"timeout", "timeout", NULL}

const struct qr_door_field qr_ollama_chat_field[QR_OLLAMA_CHAT_FIELDS] = {BOTH, {"messages", NULL, put_messages}, {"tools", "tools", NULL}};

const struct qr_door_field qr_ollama_generate_field[QR_OLLAMA_GENERATE_FIELDS] = {
    BOTH, {"prompt", NULL, put_prompt}, {"system", NULL, ignore /* of put_prompt */}, {"images", NULL, refuse_images}, {"raw", NULL, refuse_raw},
    {"template", NULL, refuse_template}, {"suffix", NULL, refuse_suffix},
};

const struct qr_door_path qr_ollama_path[QR_OLLAMA_PATHS] = {
    {"temperature", "options.temperature"}, {"top_k", "options.top_k"}, {"top_p", "options.top_p"}, {"min_p", "options.min_p"}, {"seed", "options.seed"},
    {"stop", "options.stop"}, {"repetition_penalty", "options.repeat_penalty"}, {"presence_penalty", "options.presence_penalty"},
    {"frequency_penalty", "options.frequency_penalty"}, {"max_tokens", "options.num_predict"}, {"reasoning_effort", "think"},
    {"response_format", "format"}, {"response_format.json_schema.schema", "format"},
};
