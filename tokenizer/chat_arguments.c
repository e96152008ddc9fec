/* chat_arguments.c - tool calls of earlier turns: OpenAI carries `arguments` as JSON text, templates expect the value. */
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "tokenizer/chat.h"

static void put_key(struct qr_buf *out, const struct qr_json *member, bool first)
{
    const char *key = qr_json_key(member);
    if (!first)
        qr_buf_put_byte(out, ',');
    qr_json_put_str(out, key, strlen(key));
    qr_buf_put_byte(out, ':');
}

static void put_function(struct qr_buf *out, const struct qr_json *function)
{
    if (qr_json_type(function) != QR_JSON_T_OBJECT) {
        qr_json_print(out, function);
        return;
    }
    qr_buf_put_byte(out, '{');
    for (const struct qr_json *m = qr_json_first(function); m; m = qr_json_after(m)) {
        struct qr_json *parsed = NULL;
        struct qr_err ignored;
        put_key(out, m, m == qr_json_first(function));
        if (strcmp(qr_json_key(m), "arguments") == 0 && qr_json_type(m) == QR_JSON_T_STRING) {
            size_t n;
            const char *text = qr_json_str(m, &n);
            if (qr_json_parse(&parsed, text, n, &qr_json_limits_request, &ignored) != 0)
                parsed = NULL; /* a model's broken call stays the text it was */
        }
        qr_json_print(out, parsed && qr_json_type(parsed) == QR_JSON_T_OBJECT ? parsed : m);
        qr_json_free(parsed);
    }
    qr_buf_put_byte(out, '}');
}

static void put_calls(struct qr_buf *out, const struct qr_json *calls)
{
    qr_buf_put_byte(out, '[');
    for (const struct qr_json *call = qr_json_first(calls); call; call = qr_json_after(call)) {
        qr_buf_put_str(out, call == qr_json_first(calls) ? "" : ",");
        if (qr_json_type(call) != QR_JSON_T_OBJECT) {
            qr_json_print(out, call);
            continue;
        }
        qr_buf_put_byte(out, '{');
        for (const struct qr_json *m = qr_json_first(call); m; m = qr_json_after(m)) {
            put_key(out, m, m == qr_json_first(call));
            if (strcmp(qr_json_key(m), "function") == 0)
                put_function(out, m);
            else
                qr_json_print(out, m);
        }
        qr_buf_put_byte(out, '}');
    }
    qr_buf_put_byte(out, ']');
}

static bool has_tool_calls(const struct qr_json *messages)
{
    for (const struct qr_json *m = qr_json_first(messages); m; m = qr_json_after(m)) {
        const struct qr_json *calls = qr_json_find(m, "tool_calls");
        if (calls && qr_json_count(calls) > 0)
            return true;
    }
    return false;
}

int qr_chat_open_arguments(struct qr_json **owned, const struct qr_json *messages, const struct qr_json_limits *limits, struct qr_err *err)
{
    QR_ASSERT(owned != NULL && messages != NULL);
    QR_ASSERT(qr_json_type(messages) == QR_JSON_T_ARRAY);
    struct qr_buf b = {0};
    *owned = NULL;
    if (!has_tool_calls(messages))
        return 0;
    qr_buf_put_byte(&b, '[');
    for (const struct qr_json *message = qr_json_first(messages); message; message = qr_json_after(message)) {
        qr_buf_put_str(&b, message == qr_json_first(messages) ? "{" : ",{");
        for (const struct qr_json *m = qr_json_first(message); m; m = qr_json_after(m)) {
            put_key(&b, m, m == qr_json_first(message));
            if (strcmp(qr_json_key(m), "tool_calls") == 0 && qr_json_type(m) == QR_JSON_T_ARRAY)
                put_calls(&b, m);
            else
                qr_json_print(&b, m);
        }
        qr_buf_put_byte(&b, '}');
    }
    qr_buf_put_byte(&b, ']');
    int rc = qr_json_parse(owned, b.data, b.len, limits, err);
    qr_buf_release(&b);
    return rc == 0 ? 0 : qr_err_prefix(err, "messages with the arguments of their tool calls: ");
}
