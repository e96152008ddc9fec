/* POST /v1/chat/completions. */
#include <stdio.h>

#include "base/assert.h"
#include "base/clock.h"
#include "server/call.h"

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

int qr_call_chat_ids(struct qr_call *call, struct qr_ids *ids, struct qr_err *err)
{
    struct qr_json *opened = NULL;
    struct qr_rendered text = {0};
    QR_ASSERT(call != NULL && call->params.messages != NULL);
    QR_ASSERT(call->server->model.chat != NULL && ids != NULL);
    int rc = qr_chat_open_arguments(&opened, call->params.messages, &qr_json_limits_request, err);
    if (rc == 0)
        rc = render(call, &text, opened ? opened : call->params.messages, err);
    if (rc == 0)
        rc = encode(call, ids, &text, err);
    qr_rendered_release(&text);
    qr_json_free(opened);
    return rc;
}

static void prepare(struct qr_call *call)
{
    struct qr_err err = {0};
    struct qr_ids ids = {0};
    if (!call->server->model.chat) {
        qr_api_error_set(&call->error, 400, "no_chat_template", "This model has no chat template; use /v1/completions.");
        return;
    }
    if (!qr_call_parse(call) || !qr_call_make_pieces(call, 1))
        return;
    int rc = qr_call_chat_ids(call, &ids, &err);
    if (rc == 0 && ids.n == 0)
        rc = qr_err_at(&err, QR_E_INVALID, "messages", "the conversation renders to no token at all");
    if (rc != 0)
        qr_call_fail(call, &err);
    else
        qr_call_set_prompt(call, 0, ids.id, ids.n, "messages");
    qr_ids_release(&ids);
}

const struct qr_call_kind qr_call_chat = {.api = QR_API_CHAT, .counted = QR_COUNTED_CHAT, .prepare = prepare};
