#include "tokenizer/chat_messages.h"

#include <string.h>

#include "base/assert.h"
#include "base/buf.h"

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
    struct qr_buf text;
    if (qr_json_type(v) == QR_JSON_T_STRING) {
        qr_json_print(b, v);
        return;
    }
    qr_buf_init(&text);
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

static void put_content(struct qr_buf *b, const struct qr_json *v)
{
    struct qr_buf text;
    if (!text_parts_only(v)) {
        qr_json_print(b, v);
        return;
    }
    qr_buf_init(&text);
    join_parts(&text, v);
    qr_json_put_str(b, text.data ? text.data : "", text.len);
    qr_buf_release(&text);
}

/* Rewrites one member of every message. */
static int rewrite(struct qr_json **out, const struct qr_json *messages, const char *key,
                   void (*put)(struct qr_buf *b, const struct qr_json *v), struct qr_err *err)
{
    struct qr_buf b;
    qr_buf_init(&b);
    qr_buf_put_byte(&b, '[');
    for (const struct qr_json *m = qr_json_first(messages); m; m = qr_json_after(m)) {
        if (m != qr_json_first(messages))
            qr_buf_put_byte(&b, ',');
        print_members(&b, m, key, put);
    }
    qr_buf_put_byte(&b, ']');
    int rc = qr_json_parse(out, b.data, b.len, &qr_json_limits_file, err);
    qr_buf_release(&b);
    return rc;
}

int qr_chat_messages(struct qr_json **out, const struct qr_json *messages, bool join, bool as_text, struct qr_err *err)
{
    QR_ASSERT(out != NULL && messages != NULL);
    QR_ASSERT(qr_json_type(messages) == QR_JSON_T_ARRAY);
    bool parts = false, calls = false;
    int rc = 0;
    *out = NULL;
    for (const struct qr_json *m = qr_json_first(messages); m; m = qr_json_after(m)) {
        parts = parts || (join && text_parts_only(qr_json_find(m, "content")));
        calls = calls || (as_text && qr_json_find(m, "tool_calls"));
    }
    if (parts)
        rc = rewrite(out, messages, "content", put_content, err);
    if (rc == 0 && calls) {
        struct qr_json *joined = *out;
        rc = rewrite(out, joined ? joined : messages, "tool_calls", put_calls, err);
        qr_json_free(joined);
        if (rc)
            *out = NULL;
    }
    return rc;
}
