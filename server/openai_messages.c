/* openai_messages.c - messages of a chat request, as OpenAI defines them, text only: what they may be, and what a template is given of them. Pure. */
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

int qr_content_check(const struct qr_json *content, const char *path, struct qr_err *err)
{
    QR_ASSERT(path != NULL);
    QR_ASSERT(err != NULL);
    return check_content(content, path, false, err);
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

/* ---- for the template ---- */

/* What a model is told of tools where its template does not; its calls are read as the dialect "json" (docs/api.md). */
static void put_tools_text(struct qr_buf *out, const struct qr_json *tools)
{
    qr_buf_put_str(out, "You can call functions. To call one, answer with nothing but one line of JSON, "
                        "{\"name\": the function's name, \"arguments\": {...}}; for several calls one line each. These are the functions:\n");
    for (const struct qr_json *t = qr_json_first(tools); t; t = qr_json_after(t)) {
        qr_json_print(out, qr_json_find(t, "function"));
        qr_buf_put_byte(out, '\n');
    }
}

/* The content's own text, or that of its parts, a part a line. */
static void put_own_text(struct qr_buf *out, const struct qr_json *content)
{
    size_t n;
    const char *own = qr_json_text(content, &n);
    if (own)
        qr_buf_put(out, own, n);
    const struct qr_json *first = own || !content ? NULL : qr_json_first(content);
    for (const struct qr_json *part = first; part; part = qr_json_after(part)) {
        const char *text = qr_json_text(qr_json_find(part, "text"), &n);
        if (part != first)
            qr_buf_put_byte(out, '\n');
        qr_buf_put(out, text ? text : "", text ? n : 0);
    }
}

/* Calls as the dialect "json" writes them. */
static void put_calls_text(struct qr_buf *out, const struct qr_json *calls)
{
    for (const struct qr_json *c = qr_json_first(calls); c; c = qr_json_after(c)) {
        const struct qr_json *function = qr_json_find(c, "function"), *arguments = qr_json_find(function, "arguments");
        size_t n;
        const char *text = qr_json_text(arguments, &n);
        qr_buf_put_str(out, out->len > 0 ? "\n{\"name\": " : "{\"name\": ");
        qr_json_print(out, qr_json_find(function, "name"));
        qr_buf_put_str(out, ", \"arguments\": ");
        if (text && n > 0)
            qr_buf_put(out, text, n);
        else if (arguments && !text)
            qr_json_print(out, arguments);
        else
            qr_buf_put_str(out, "{}");
        qr_buf_put_byte(out, '}');
    }
}

/* The function whose call has that id. */
static const struct qr_json *called_by(const struct qr_json *messages, const struct qr_json *id)
{
    const char *text = qr_json_text(id, NULL);
    for (const struct qr_json *m = text ? qr_json_first(messages) : NULL; m; m = qr_json_after(m)) {
        const struct qr_json *calls = qr_json_find(m, "tool_calls");
        for (const struct qr_json *c = calls ? qr_json_first(calls) : NULL; c; c = qr_json_after(c))
            if (qr_json_says(qr_json_find(c, "id"), text))
                return qr_json_find(qr_json_find(c, "function"), "name");
    }
    return NULL;
}

static bool lacks_reasoning_content(const struct qr_json *message)
{
    return is_string(qr_json_find(message, "reasoning")) && qr_json_is_null(qr_json_find(message, "reasoning_content"));
}

static bool has_calls(const struct qr_json *message)
{
    const struct qr_json *calls = qr_json_find(message, "tool_calls");
    return calls && qr_json_count(calls) > 0;
}

static bool is_result(const struct qr_json *message)
{
    return qr_json_says(qr_json_find(message, "role"), "tool");
}

/* How messages are to be changed. */
struct dress {
    const struct qr_json *messages;
    const struct qr_json *told; /* the message that has `text` in front of its content; NULL: none */
    const char *text;
    bool plain;                 /* the template knows no calls: they and their results are written as text */
};

static bool rewrites_content(const struct dress *d, const struct qr_json *m)
{
    return m == d->told || (d->plain && (has_calls(m) || is_result(m)));
}

static void put_content(struct qr_buf *out, const struct dress *d, const struct qr_json *m)
{
    struct qr_buf b = {0};
    if (m == d->told)
        qr_buf_put_str(&b, d->text);
    if (d->plain && is_result(m)) {
        const struct qr_json *name = called_by(d->messages, qr_json_find(m, "tool_call_id"));
        qr_buf_printf(&b, "Result of %s: ", name ? qr_json_str(name, NULL) : "the function");
    }
    put_own_text(&b, qr_json_find(m, "content"));
    if (d->plain && has_calls(m))
        put_calls_text(&b, qr_json_find(m, "tool_calls"));
    qr_buf_put_str(out, "\"content\":");
    qr_json_put_str(out, b.data ? b.data : "", b.len);
    qr_buf_release(&b);
}

static void put_message(struct qr_buf *out, const struct dress *d, const struct qr_json *m)
{
    const bool lacks = lacks_reasoning_content(m), rewrites = rewrites_content(d, m), result = d->plain && is_result(m);
    qr_buf_put_byte(out, '{');
    if (rewrites)
        put_content(out, d, m);
    for (const struct qr_json *v = qr_json_first(m); v; v = qr_json_after(v)) {
        const char *key = qr_json_key(v);
        if ((lacks && strcmp(key, "reasoning_content") == 0) || (rewrites && strcmp(key, "content") == 0) || (d->plain && strcmp(key, "tool_calls") == 0))
            continue;
        qr_buf_put_comma(out);
        qr_json_put_str(out, key, strlen(key));
        qr_buf_put_byte(out, ':');
        if (result && strcmp(key, "role") == 0)
            qr_buf_put_str(out, "\"user\"");
        else
            qr_json_print(out, v);
    }
    if (lacks) {
        qr_buf_put_str(out, ",\"reasoning_content\":");
        qr_json_print(out, qr_json_find(m, "reasoning"));
    }
    qr_buf_put_byte(out, '}');
}

static const struct qr_json *first_of(const struct qr_json *messages, const char *role)
{
    for (const struct qr_json *m = qr_json_first(messages); m; m = qr_json_after(m))
        if (qr_json_says(qr_json_find(m, "role"), role))
            return m;
    return NULL;
}

static bool changes(const struct dress *d, const struct qr_json *tools)
{
    for (const struct qr_json *m = qr_json_first(d->messages); m; m = qr_json_after(m))
        if (lacks_reasoning_content(m) || rewrites_content(d, m))
            return true;
    return tools != NULL;
}

int qr_messages_dress(struct qr_json **owned, const struct qr_json *messages, bool plain, const struct qr_json *tools, const char *role, struct qr_err *err)
{
    QR_ASSERT(owned != NULL && messages != NULL);
    QR_ASSERT(role != NULL && err != NULL);
    struct dress d = {.messages = messages, .plain = plain};
    struct qr_buf text = {0}, out = {0};
    *owned = NULL;
    if (!changes(&d, tools))
        return 0;
    d.told = tools ? first_of(messages, role) : NULL;
    qr_buf_put_byte(&out, '[');
    if (tools)
        put_tools_text(&text, tools);
    d.text = text.data;
    if (tools && !d.told) {
        qr_buf_put_str(&out, "{\"role\":");
        qr_json_put_str(&out, role, strlen(role));
        qr_buf_put_str(&out, ",\"content\":");
        qr_json_put_str(&out, text.data, text.len);
        qr_buf_put_byte(&out, '}');
    }
    for (const struct qr_json *m = qr_json_first(messages); m; m = qr_json_after(m)) {
        qr_buf_put_comma(&out);
        put_message(&out, &d, m);
    }
    qr_buf_put_byte(&out, ']');
    const int rc = qr_json_parse(owned, out.data, out.len, &qr_json_limits_request, err);
    qr_buf_release(&text);
    qr_buf_release(&out);
    return rc ? qr_err_prefix(err, "messages as the template is given them: ") : 0;
}

static bool is_system(const struct qr_json *message)
{
    const struct qr_json *role = qr_json_find(message, "role");
    return qr_json_says(role, "system") || qr_json_says(role, "developer");
}

static void put_parts(struct qr_buf *out, const struct qr_json *content)
{
    const bool text = qr_json_text(content, NULL) != NULL;
    for (const struct qr_json *part = text || !content ? content : qr_json_first(content); part; part = text ? NULL : qr_json_after(part)) {
        qr_buf_put_comma(out);
        qr_buf_put_str(out, text ? "{\"type\":\"text\",\"text\":" : "");
        qr_json_print(out, part);
        qr_buf_put_str(out, text ? "}" : "");
    }
}

int qr_messages_join_system(struct qr_json **owned, const struct qr_json *messages, struct qr_err *err)
{
    QR_ASSERT(owned != NULL && messages != NULL);
    QR_ASSERT(err != NULL);
    const struct qr_json *first = qr_json_first(messages), *next;
    struct qr_buf out = {0};
    bool any = false;
    *owned = NULL;
    qr_buf_put_byte(&out, '[');
    for (const struct qr_json *m = first; m; m = next) {
        const bool later = m != first && is_system(m);
        next = qr_json_after(m);
        qr_buf_put_comma(&out);
        if (!later && !(qr_json_says(qr_json_find(m, "role"), "user") && next && is_system(next))) {
            qr_json_print(&out, m);
            continue;
        }
        any = true;
        qr_buf_put_str(&out, "{\"role\":\"user\",\"content\":[");
        put_parts(&out, qr_json_find(m, "content"));
        for (; next && is_system(next); next = qr_json_after(next))
            put_parts(&out, qr_json_find(next, "content"));
        qr_buf_put_str(&out, "]}");
    }
    qr_buf_put_byte(&out, ']');
    const int rc = any ? qr_json_parse(owned, out.data, out.len, &qr_json_limits_request, err) : 0;
    qr_buf_release(&out);
    return rc;
}
