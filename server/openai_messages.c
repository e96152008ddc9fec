/* Messages of a chat request, as OpenAI defines them, text only. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "server/openai.h"

static bool is_string(const struct qr_json *v)
{
    return v && qr_json_type(v) == QR_JSON_T_STRING;
}

static bool is_one_of(const struct qr_json *v, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (is_string(v) && strcmp(qr_json_str(v, NULL), names[i]) == 0)
            return true;
    return false;
}

static int check_part(const struct qr_json *part, const char *path, struct qr_err *err)
{
    static const char *const other[] = {"image_url", "input_image", "image", "input_audio", "audio_url", "video_url", "file"};
    static const char *const text[] = {"text"};
    char at[112], excerpt[72];
    if (qr_json_type(part) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, path, "an object", part);
    const struct qr_json *type = qr_json_find(part, "type");
    snprintf(at, sizeof at, "%.96s.type", path);
    if (!is_string(type))
        return qr_err_at(err, QR_E_INVALID, at, "%s must be a string such as \"text\"", at);
    if (is_one_of(type, other, QR_COUNT(other)))
        return qr_err_at(err, QR_E_UNSUPPORTED, at, "%s: %s is not supported; this model reads text only", at, qr_json_excerpt(excerpt, type));
    if (!is_one_of(type, text, QR_COUNT(text)))
        return qr_err_at(err, QR_E_INVALID, at, "%s must be \"text\", found %s", at, qr_json_excerpt(excerpt, type));
    snprintf(at, sizeof at, "%.96s.text", path);
    const struct qr_json *value = qr_json_find(part, "text");
    if (!is_string(value))
        return value ? qr_wrong_type(err, at, "a string", value) : qr_err_at(err, QR_E_INVALID, at, "%s is required: a string", at);
    return 0;
}

static int check_content(const struct qr_json *content, const char *path, bool optional, struct qr_err *err)
{
    if (!content || qr_json_is_null(content)) {
        if (optional)
            return 0;
        return qr_err_at(err, QR_E_INVALID, path, "%s is required: a string or an array of text parts", path);
    }
    if (is_string(content))
        return 0;
    if (qr_json_type(content) != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, path, "a string or an array of text parts", content);
    int32_t i = 0;
    for (const struct qr_json *part = qr_json_first(content); part; part = qr_json_after(part), i++) {
        char at[96];
        snprintf(at, sizeof at, "%.80s[%d]", path, i);
        int rc = check_part(part, at, err);
        if (rc != 0)
            return rc;
    }
    if (i == 0 && !optional)
        return qr_err_at(err, QR_E_INVALID, path, "%s must not be an empty array", path);
    return 0;
}

static int check_tool_calls(const struct qr_json *calls, const char *path, struct qr_err *err)
{
    if (!calls || qr_json_is_null(calls))
        return 0;
    if (qr_json_type(calls) != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, path, "an array", calls);
    int32_t i = 0;
    for (const struct qr_json *call = qr_json_first(calls); call; call = qr_json_after(call), i++) {
        char at[112];
        snprintf(at, sizeof at, "%.80s[%d].function", path, i);
        const struct qr_json *function = qr_json_find(call, "function");
        if (!function || qr_json_type(function) != QR_JSON_T_OBJECT)
            return qr_err_at(err, QR_E_INVALID, at, "%s is required: an object with name and arguments", at);
        if (!is_string(qr_json_find(function, "name")))
            return qr_err_at(err, QR_E_INVALID, at, "%s.name is required: a string", at);
        const struct qr_json *arguments = qr_json_find(function, "arguments");
        if (arguments && !is_string(arguments) && qr_json_type(arguments) != QR_JSON_T_OBJECT)
            return qr_wrong_type(err, at, "an object whose arguments are a JSON text or an object", arguments);
    }
    return 0;
}

static int check_optional_string(const struct qr_json *message, const char *name, const char *path, struct qr_err *err)
{
    const struct qr_json *v = qr_json_find(message, name);
    char at[96];
    if (!v || qr_json_is_null(v) || is_string(v))
        return 0;
    snprintf(at, sizeof at, "%s.%s", path, name);
    return qr_wrong_type(err, at, "a string", v);
}

static int check_message(const struct qr_json *message, const char *path, struct qr_err *err)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    static const char *const texts[] = {"name", "tool_call_id", "refusal", "reasoning", "reasoning_content"};
    char at[96], excerpt[72];
    if (qr_json_type(message) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, path, "an object with role and content", message);
    const struct qr_json *role = qr_json_find(message, "role");
    snprintf(at, sizeof at, "%s.role", path);
    if (!role)
        return qr_err_at(err, QR_E_INVALID, at, "%s is required: system, developer, user, assistant or tool", at);
    if (!is_one_of(role, roles, QR_COUNT(roles)))
        return qr_err_at(err, QR_E_INVALID, at, "%s must be system, developer, user, assistant, tool or function, found %s", at,
                         qr_json_excerpt(excerpt, role));
    const struct qr_json *calls = qr_json_find(message, "tool_calls"), *refusal = qr_json_find(message, "refusal");
    bool assistant = strcmp(qr_json_str(role, NULL), "assistant") == 0;
    bool optional = assistant && ((calls && !qr_json_is_null(calls)) || is_string(refusal));
    snprintf(at, sizeof at, "%s.content", path);
    int rc = check_content(qr_json_find(message, "content"), at, optional, err);
    snprintf(at, sizeof at, "%s.tool_calls", path);
    if (rc == 0)
        rc = check_tool_calls(calls, at, err);
    for (int i = 0; i < QR_COUNT(texts) && rc == 0; i++)
        rc = check_optional_string(message, texts[i], path, err);
    return rc;
}

int qr_messages_check(const struct qr_json *messages, struct qr_err *err)
{
    QR_ASSERT(messages != NULL && err != NULL);
    if (qr_json_type(messages) != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, "messages", "an array of messages", messages);
    if (qr_json_count(messages) == 0)
        return qr_err_at(err, QR_E_INVALID, "messages", "messages must have at least one message");
    QR_ASSERT(qr_json_first(messages) != NULL);
    int rc = 0;
    int32_t i = 0;
    for (const struct qr_json *m = qr_json_first(messages); m && rc == 0; m = qr_json_after(m), i++) {
        char path[48];
        snprintf(path, sizeof path, "messages[%d]", i);
        rc = check_message(m, path, err);
    }
    return rc;
}
