/* POST /v1/chat/completions. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "server/call.h"
#include "server/forms.h"

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

/* Whether the model may think first: the prompt has begun it, or has not ended it already, and the request wants it. */
static bool note_thinking(struct qr_call *call, const struct qr_rendered *text)
{
    const struct qr_dialect *d = qr_forms_dialect(call->server->forms);
    const char *data = text->text.data ? text->text.data : "", *end = qr_dialect_think_end(d);
    size_t n = text->text.len, n_end = strlen(end);
    call->thinking = *qr_forms_thinking(call->server->forms);
    call->thinking.budget = call->params.thinking.budget;
    call->thinking.begun = qr_dialect_starts_inside(d, data, n);
    while (n > 0 && strchr(" \t\r\n", data[n - 1]))
        n--;
    const bool over = n_end > 0 && n >= n_end && memcmp(data + n - n_end, end, n_end) == 0;
    return call->thinking.begun || (qr_dialect_has_reasoning(d) && !over && !call->params.thinking.off);
}

static int render(struct qr_call *call, struct qr_rendered *out, const struct qr_json *messages, struct qr_err *err)
{
    const struct qr_params *p = &call->params;
    enum qr_template_kind kind = QR_TEMPLATE_RUNTIME;
    struct qr_chat_request request = {.messages = messages, .tools = p->tools.shown, .documents = p->documents, .kwargs = p->template_kwargs,
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

/* With tools, calls and results as text where the template shows none. Some templates know no system message: then the first user's has them. */
static int render_dressed(struct qr_call *call, struct qr_rendered *out, const struct qr_json *messages, struct qr_err *err)
{
    static const char *const role[] = {"system", "user"};
    const bool plain = !qr_forms_shows_tools(call->server->forms);
    const struct qr_json *tools = plain ? call->params.tools.shown : NULL;
    int rc = QR_E_INVALID;
    for (int i = 0; i < (tools ? 2 : 1) && rc != 0; i++) {
        struct qr_json *dressed;
        rc = qr_messages_dress(&dressed, messages, plain, tools, role[i], err);
        rc = rc ? rc : render(call, out, dressed ? dressed : messages, err);
        qr_json_free(dressed);
    }
    return rc;
}

/* Clients send system messages in mid-conversation, too, which some templates refuse: there the user says them. */
static int render_somehow(struct qr_call *call, struct qr_rendered *out, const struct qr_json *messages, struct qr_err *err)
{
    struct qr_json *joined = NULL;
    struct qr_err again = {0};
    int rc = render_dressed(call, out, messages, err);
    if (rc != 0 && qr_messages_join_system(&joined, messages, &again) == 0 && joined && render_dressed(call, out, joined, &again) == 0)
        rc = 0;
    qr_json_free(joined);
    return rc;
}

int qr_call_chat_ids(struct qr_call *call, struct qr_ids *ids, bool *thinks, struct qr_err *err)
{
    struct qr_json *opened = NULL;
    struct qr_rendered text = {0};
    QR_ASSERT(call != NULL && call->params.messages != NULL);
    QR_ASSERT(call->server->model.chat != NULL && ids != NULL);
    int rc = qr_chat_open_arguments(&opened, call->params.messages, &qr_json_limits_request, err);
    if (rc == 0)
        rc = render_somehow(call, &text, opened ? opened : call->params.messages, err);
    if (rc == 0)
        rc = encode(call, ids, &text, err);
    if (rc == 0 && thinks)
        *thinks = note_thinking(call, &text);
    qr_rendered_release(&text);
    qr_json_free(opened);
    return rc;
}

bool qr_call_count_prompt(struct qr_call *call, int32_t *n)
{
    struct qr_err err = {0};
    struct qr_ids ids = {0};
    QR_ASSERT(call != NULL && n != NULL);
    QR_ASSERT(call->kind->api == QR_API_CHAT);
    if (!qr_call_parse(call))
        return false;
    const int rc = call->server->model.chat ? qr_call_chat_ids(call, &ids, NULL, &err)
                                            : qr_err_at(&err, QR_E_UNSUPPORTED, "messages", "this model has no chat template");
    *n = ids.n;
    qr_ids_release(&ids);
    if (rc != 0)
        qr_call_fail(call, &err);
    return rc == 0;
}

void qr_call_prepare_chat(struct qr_call *call)
{
    QR_ASSERT(call != NULL);
    struct qr_err err = {0};
    struct qr_ids ids = {0};
    if (!call->server->model.chat && !qr_engine_model(call->server->model.engine)->headless) { /* which is said of such a model */
        qr_api_error_set(&call->error, 400, "no_chat_template", "This model has no chat template; use /v1/completions.");
        return;
    }
    if (!qr_call_parse(call) || !qr_call_make_pieces(call, 1))
        return;
    bool thinks = false;
    int rc = qr_call_chat_ids(call, &ids, &thinks, &err);
    if (rc == 0 && ids.n == 0)
        rc = qr_err_at(&err, QR_E_INVALID, "messages", "the conversation renders to no token at all");
    if (rc != 0)
        qr_call_fail(call, &err);
    else if (qr_call_form(call, thinks))
        qr_call_set_prompt(call, 0, ids.id, ids.n, "messages");
    qr_ids_release(&ids);
}

const struct qr_call_kind qr_call_chat = {.api = QR_API_CHAT, .counted = QR_COUNTED_CHAT, .id_prefix = "chatcmpl-", .prepare = qr_call_prepare_chat};
