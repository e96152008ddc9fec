/* chat_messages.c - messages written in the form that a template reads: content as text or parts, roles it knows, tool
 * calls' arguments as JSON text or as the value. What needs no change is not copied. Pure; any thread. */
#include "tokenizer/chat_messages.h"

#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "tokenizer/chat.h"

/* An assistant's turn that may lack content: it calls tools or refuses. */
static bool may_be_silent(const struct qr_json *message)
{
    return qr_json_says(qr_json_find(message, "role"), "assistant") &&
           (!qr_json_is_null(qr_json_find(message, "tool_calls")) ||
            qr_json_text(qr_json_find(message, "refusal"), NULL));
}

/* Whether content is a list of nothing but text parts. */
static bool text_parts_only(const struct qr_json *content)
{
    if (!content || qr_json_type(content) != QR_JSON_T_ARRAY || qr_json_count(content) == 0)
        return false;
    for (const struct qr_json *p = qr_json_first(content); p; p = qr_json_after(p)) {
        if (!qr_json_text(qr_json_find(p, "text"), NULL))
            return false;
    }
    return true;
}

/* The texts of parts, one per line. */
static void put_joined(struct qr_buf *b, const struct qr_json *content)
{
    struct qr_buf joined = {0};
    for (const struct qr_json *p = qr_json_first(content); p; p = qr_json_after(p)) {
        size_t n;
        const char *text = qr_json_text(qr_json_find(p, "text"), &n);
        qr_buf_put_str(&joined, p == qr_json_first(content) ? "" : "\n");
        qr_buf_put(&joined, text, n);
    }
    qr_json_put_str(b, joined.data ? joined.data : "", joined.len);
    qr_buf_release(&joined);
}

static void put_key(struct qr_buf *b, const struct qr_json *member, bool first)
{
    qr_buf_put_str(b, first ? "" : ",");
    qr_json_put_str(b, qr_json_key(member), strlen(qr_json_key(member)));
    qr_buf_put_byte(b, ':');
}

/* ---- arguments of tool calls: as their JSON text, or `open`, as the value that the text says ---- */

typedef void put_fn(struct qr_buf *b, const struct qr_json *v, bool open);

/* An object whose member `key` goes through `put`; what is no object stays as it is. */
static void put_object(struct qr_buf *b, const struct qr_json *v, const char *key, put_fn *put, bool open)
{
    if (qr_json_type(v) != QR_JSON_T_OBJECT) {
        qr_json_print(b, v);
        return;
    }
    qr_buf_put_byte(b, '{');
    for (const struct qr_json *m = qr_json_first(v); m; m = qr_json_after(m)) {
        put_key(b, m, m == qr_json_first(v));
        if (strcmp(qr_json_key(m), key) == 0)
            put(b, m, open);
        else
            qr_json_print(b, m);
    }
    qr_buf_put_byte(b, '}');
}

/* A list whose elements go through `put`; what is no list stays as it is. */
static void put_list(struct qr_buf *b, const struct qr_json *v, put_fn *put, bool open)
{
    if (qr_json_type(v) != QR_JSON_T_ARRAY) {
        qr_json_print(b, v);
        return;
    }
    qr_buf_put_byte(b, '[');
    for (const struct qr_json *e = qr_json_first(v); e; e = qr_json_after(e)) {
        qr_buf_put_str(b, e == qr_json_first(v) ? "" : ",");
        put(b, e, open);
    }
    qr_buf_put_byte(b, ']');
}

/* A model's broken call stays the text it was. */
static void put_arguments(struct qr_buf *b, const struct qr_json *v, bool open)
{
    size_t n = 0;
    const char *text = qr_json_text(v, &n);
    struct qr_json *parsed = NULL;
    struct qr_err ignored;
    struct qr_buf printed = {0};
    if (open && text && qr_json_parse(&parsed, text, n, &qr_json_limits_request, &ignored) == 0) {
        qr_json_print(b, qr_json_type(parsed) == QR_JSON_T_OBJECT ? parsed : v);
        qr_json_free(parsed);
    } else if (open || text) {
        qr_json_print(b, v);
    } else {
        qr_json_print(&printed, v);
        qr_json_put_str(b, printed.data, printed.len);
        qr_buf_release(&printed);
    }
}

static void put_function(struct qr_buf *b, const struct qr_json *v, bool open)
{
    put_object(b, v, "arguments", put_arguments, open);
}

static void put_call(struct qr_buf *b, const struct qr_json *v, bool open)
{
    put_object(b, v, "function", put_function, open);
}

static void put_calls(struct qr_buf *b, const struct qr_json *v, bool open)
{
    put_list(b, v, put_call, open);
}

static void put_calling(struct qr_buf *b, const struct qr_json *v, bool open)
{
    put_object(b, v, "tool_calls", put_calls, open);
}

int qr_chat_open_arguments(struct qr_json **owned, const struct qr_json *messages, const struct qr_json_limits *limits,
                           struct qr_err *err)
{
    QR_ASSERT(owned != NULL && messages != NULL);
    QR_ASSERT(qr_json_type(messages) == QR_JSON_T_ARRAY);
    struct qr_buf b = {0};
    bool calls = false;
    *owned = NULL;
    for (const struct qr_json *m = qr_json_first(messages); m && !calls; m = qr_json_after(m)) {
        const struct qr_json *list = qr_json_find(m, "tool_calls");
        calls = list && qr_json_count(list) > 0;
    }
    if (!calls)
        return 0;
    put_list(&b, messages, put_calling, true);
    int rc = qr_json_parse(owned, b.data, b.len, limits, err);
    qr_buf_release(&b);
    return rc == 0 ? 0 : qr_err_prefix(err, "messages with the arguments of their tool calls: ");
}

/* ---- the form that a template reads ---- */

static bool joins(const struct qr_json *message, const struct qr_chat_form *form)
{
    const struct qr_json *role = qr_json_find(message, "role");
    const bool system = qr_json_says(role, "system") || qr_json_says(role, "developer");
    if (!form->join && !(form->join_system && system) &&
        !(form->join_assistant && qr_json_says(role, "assistant")) && !(form->join_tool && qr_json_says(role, "tool")))
        return false;
    return text_parts_only(qr_json_find(message, "content"));
}

static void put_member(struct qr_buf *b, const struct qr_json *message, const struct qr_json *m,
                       const struct qr_chat_form *form)
{
    const char *key = qr_json_key(m);
    if (form->system_for_developer && strcmp(key, "role") == 0 && qr_json_says(m, "developer"))
        qr_buf_put_str(b, "\"system\"");
    else if (strcmp(key, "content") == 0 && joins(message, form))
        put_joined(b, m);
    else if (form->empty_for_null && strcmp(key, "content") == 0 && qr_json_is_null(m) && may_be_silent(message))
        qr_buf_put_str(b, "\"\"");
    else if (form->arguments_as_text && strcmp(key, "tool_calls") == 0)
        put_calls(b, m, false);
    else
        qr_json_print(b, m);
}

static void put_message(struct qr_buf *b, const struct qr_json *message, const struct qr_chat_form *form)
{
    if (qr_json_type(message) != QR_JSON_T_OBJECT) {
        qr_json_print(b, message);
        return;
    }
    qr_buf_put_byte(b, '{');
    for (const struct qr_json *m = qr_json_first(message); m; m = qr_json_after(m)) {
        put_key(b, m, m == qr_json_first(message));
        put_member(b, message, m, form);
    }
    if (!qr_json_find(message, "content") && may_be_silent(message))
        qr_buf_put_str(b, form->empty_for_null ? ",\"content\":\"\"" : ",\"content\":null");
    qr_buf_put_byte(b, '}');
}

static bool must_change(const struct qr_json *message, const struct qr_chat_form *form)
{
    const struct qr_json *content = qr_json_find(message, "content");
    return joins(message, form) || (form->arguments_as_text && qr_json_find(message, "tool_calls")) ||
           (form->system_for_developer && qr_json_says(qr_json_find(message, "role"), "developer")) ||
           ((!content || (form->empty_for_null && qr_json_is_null(content))) && may_be_silent(message));
}

int qr_chat_messages(struct qr_json **out, const struct qr_json *messages, const struct qr_chat_form *form,
                     struct qr_err *err)
{
    struct qr_buf b = {0};
    bool change = false;
    QR_ASSERT(out != NULL && messages != NULL && form != NULL);
    QR_ASSERT(qr_json_type(messages) == QR_JSON_T_ARRAY);
    *out = NULL;
    for (const struct qr_json *m = qr_json_first(messages); m && !change; m = qr_json_after(m))
        change = must_change(m, form);
    if (!change)
        return 0;
    qr_buf_put_byte(&b, '[');
    for (const struct qr_json *m = qr_json_first(messages); m; m = qr_json_after(m)) {
        if (m != qr_json_first(messages))
            qr_buf_put_byte(&b, ',');
        put_message(&b, m, form);
    }
    qr_buf_put_byte(&b, ']');
    int rc = qr_json_parse(out, b.data, b.len, &qr_json_limits_file, err);
    qr_buf_release(&b);
    return rc;
}
