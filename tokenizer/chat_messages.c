#include "tokenizer/chat_messages.h"

#include <string.h>

#include "base/assert.h"
#include "base/buf.h"

static bool is_text(const struct qr_json *v, const char *text)
{
    return v && qr_json_type(v) == QR_JSON_T_STRING && strcmp(qr_json_str(v, NULL), text) == 0;
}

/* An assistant's turn that may lack content: it calls tools or refuses. */
static bool may_be_silent(const struct qr_json *message)
{
    const struct qr_json *refusal = qr_json_find(message, "refusal");
    return is_text(qr_json_find(message, "role"), "assistant") &&
           (!qr_json_is_null(qr_json_find(message, "tool_calls")) || (refusal && qr_json_type(refusal) == QR_JSON_T_STRING));
}

/* Whether content is a list of nothing but text parts. */
static bool text_parts_only(const struct qr_json *content)
{
    if (!content || qr_json_type(content) != QR_JSON_T_ARRAY || qr_json_count(content) == 0)
        return false;
    for (const struct qr_json *p = qr_json_first(content); p; p = qr_json_after(p)) {
        const struct qr_json *text = qr_json_find(p, "text");
        if (!text || qr_json_type(text) != QR_JSON_T_STRING)
            return false;
    }
    return true;
}

/* The parts' texts, one per line. */
static void join_parts(struct qr_buf *out, const struct qr_json *content)
{
    for (const struct qr_json *p = qr_json_first(content); p; p = qr_json_after(p)) {
        size_t n;
        const char *text = qr_json_str(qr_json_find(p, "text"), &n);
        if (p != qr_json_first(content))
            qr_buf_put_byte(out, '\n');
        qr_buf_put(out, text, n);
    }
}

/* Appends the members of an object, each value through `put` when it is named `key`. */
static void print_members(struct qr_buf *b, const struct qr_json *object, const char *key,
                          void (*put)(struct qr_buf *b, const struct qr_json *v))
{
    if (qr_json_type(object) != QR_JSON_T_OBJECT) {
        qr_json_print(b, object);
        return;
    }
    qr_buf_put_byte(b, '{');
    for (const struct qr_json *m = qr_json_first(object); m; m = qr_json_after(m)) {
        if (m != qr_json_first(object))
            qr_buf_put_byte(b, ',');
        qr_json_put_str(b, qr_json_key(m), strlen(qr_json_key(m)));
        qr_buf_put_byte(b, ':');
        if (strcmp(qr_json_key(m), key) == 0)
            put(b, m);
        else
            qr_json_print(b, m);
    }
    qr_buf_put_byte(b, '}');
}

static void put_arguments(struct qr_buf *b, const struct qr_json *v)
{
    struct qr_buf text = {0};
    if (qr_json_type(v) == QR_JSON_T_STRING) {
        qr_json_print(b, v);
        return;
    }
    qr_json_print(&text, v);
    qr_json_put_str(b, text.data, text.len);
    qr_buf_release(&text);
}

static void put_function(struct qr_buf *b, const struct qr_json *v)
{
    print_members(b, v, "arguments", put_arguments);
}

static void put_calls(struct qr_buf *b, const struct qr_json *v)
{
    if (qr_json_type(v) != QR_JSON_T_ARRAY) {
        qr_json_print(b, v);
        return;
    }
    qr_buf_put_byte(b, '[');
    for (const struct qr_json *e = qr_json_first(v); e; e = qr_json_after(e)) {
        if (e != qr_json_first(v))
            qr_buf_put_byte(b, ',');
        print_members(b, e, "function", put_function);
    }
    qr_buf_put_byte(b, ']');
}

static void put_joined(struct qr_buf *b, const struct qr_json *content)
{
    struct qr_buf text = {0};
    join_parts(&text, content);
    qr_json_put_str(b, text.data ? text.data : "", text.len);
    qr_buf_release(&text);
}

static bool joins(const struct qr_json *message, const struct qr_chat_form *form)
{
    const struct qr_json *role = qr_json_find(message, "role");
    if (!form->join && !(form->join_system && (is_text(role, "system") || is_text(role, "developer"))) &&
        !(form->join_assistant && is_text(role, "assistant")) && !(form->join_tool && is_text(role, "tool")))
        return false;
    return text_parts_only(qr_json_find(message, "content"));
}

static void put_member(struct qr_buf *b, const struct qr_json *message, const struct qr_json *m, const struct qr_chat_form *form)
{
    const char *key = qr_json_key(m);
    if (form->system_for_developer && strcmp(key, "role") == 0 && is_text(m, "developer"))
        qr_buf_put_str(b, "\"system\"");
    else if (strcmp(key, "content") == 0 && joins(message, form))
        put_joined(b, m);
    else if (form->empty_for_null && strcmp(key, "content") == 0 && qr_json_is_null(m) && may_be_silent(message))
        qr_buf_put_str(b, "\"\"");
    else if (form->arguments_as_text && strcmp(key, "tool_calls") == 0)
        put_calls(b, m);
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
        if (m != qr_json_first(message))
            qr_buf_put_byte(b, ',');
        qr_json_put_str(b, qr_json_key(m), strlen(qr_json_key(m)));
        qr_buf_put_byte(b, ':');
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
           (form->system_for_developer && is_text(qr_json_find(message, "role"), "developer")) ||
           ((!content || (form->empty_for_null && qr_json_is_null(content))) && may_be_silent(message));
}

int qr_chat_messages(struct qr_json **out, const struct qr_json *messages, const struct qr_chat_form *form, struct qr_err *err)
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
