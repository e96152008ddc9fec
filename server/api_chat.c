/* POST /v1/chat/completions. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "server/call.h"
#include "server/route.h"

/* ---- tool calls of earlier turns: OpenAI carries `arguments` as JSON text, templates expect the value ---- */

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
        qr_buf_put_str(out, call == qr_json_first(calls) ? "{" : ",{");
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

/* *owned becomes a copy of messages with the arguments of tool calls as values. */
static int open_arguments(struct qr_json **owned, const struct qr_json *messages, struct qr_err *err)
{
    struct qr_buf b;
    qr_buf_init(&b);
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
    int rc = qr_json_parse(owned, b.data, b.len, &qr_json_limits_request, err);
    qr_buf_release(&b);
    return rc == 0 ? 0 : qr_err_prefix(err, "messages with the arguments of their tool calls: ");
}

/* ---- prepare ---- */

static int encode(struct qr_call *call, struct qr_ids *ids, const struct qr_rendered *text, struct qr_err *err)
{
    const struct qr_server *s = call->server;
    unsigned flags = call->params.add_special ? QR_ENCODE_ADD_SPECIAL : 0;
    const char *data = text->text.data ? text->text.data : "";
    if (s->config.trust_special)
        return qr_tokenizer_encode(s->model.tokenizer, ids, data, text->text.len, flags | QR_ENCODE_PARSE_SPECIAL, err);
    return qr_tokenizer_encode_segments(s->model.tokenizer, ids, data, text->text.len, text->segment, text->n_segments, flags, err);
}

static int render(struct qr_call *call, struct qr_rendered *out, const struct qr_json *messages, struct qr_err *err)
{
    const struct qr_params *p = &call->params;
    enum qr_template_kind kind = QR_TEMPLATE_RUNTIME;
    struct qr_chat_request request = {.messages = messages, .tools = p->tools, .documents = p->documents, .kwargs = p->template_kwargs,
                                      .add_generation_prompt = p->add_generation_prompt, .continue_final_message = p->continue_final,
                                      .now_s = call->created_s};
    int rc = qr_chat_render(call->server->model.chat, out, &request, &kind, err);
    if (rc == 0)
        return 0;
    err->code = QR_E_INVALID;
    if (!err->param[0])
        snprintf(err->param, sizeof err->param, "messages");
    return qr_err_prefix(err, kind == QR_TEMPLATE_RAISED ? "the model's chat template refuses the conversation: "
                                                         : "the model's chat template cannot render the conversation: ");
}

static void prepare(struct qr_call *call)
{
    struct qr_err err = {0};
    struct qr_json *opened = NULL;
    struct qr_rendered text;
    struct qr_ids ids;
    if (!call->server->model.chat) {
        qr_api_error_set(&call->error, 400, "no_chat_template", "This model has no chat template; use /v1/completions.");
        return;
    }
    if (!qr_call_parse(call) || !qr_call_make_pieces(call, 1))
        return;
    qr_rendered_init(&text);
    qr_ids_init(&ids);
    int rc = has_tool_calls(call->params.messages) ? open_arguments(&opened, call->params.messages, &err) : 0;
    if (rc == 0)
        rc = render(call, &text, opened ? opened : call->params.messages, &err);
    if (rc == 0)
        rc = encode(call, &ids, &text, &err);
    if (rc == 0 && ids.n == 0)
        rc = qr_err_at(&err, QR_E_INVALID, "messages", "the conversation renders to no token at all");
    if (rc != 0)
        qr_call_fail(call, &err);
    else
        qr_call_set_prompt(call, 0, ids.id, ids.n, "messages");
    qr_ids_release(&ids);
    qr_rendered_release(&text);
    qr_json_free(opened);
}

void qr_api_chat(struct qr_server *s, struct qr_conn *c)
{
    static const struct qr_call_kind kind = {.api = QR_API_CHAT, .prepare = prepare};
    QR_ASSERT(s != NULL);
    QR_ASSERT(c != NULL);
    s->n_chat++;
    qr_call_start(s, c, &kind);
}
