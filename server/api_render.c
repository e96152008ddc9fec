/* POST /v1/chat/completions/render and /v1/completions/render, in vLLM's shapes: the ids that a call with the same body would compute, and how many it may
 * answer with. Nothing is computed, and no schema is compiled. */
#include <string.h>

#include "base/assert.h"
#include "server/call.h"

static void put_rendered(struct qr_buf *out, const struct qr_call *call, const struct qr_piece *piece)
{
    const struct qr_request *r = piece->req;
    qr_buf_put_comma(out);
    qr_buf_printf(out, "{\"request_id\":\"%s\",\"model\":", call->id);
    qr_json_put_str(out, call->model, strlen(call->model));
    qr_buf_put_str(out, ",\"token_ids\":");
    qr_buf_put_ids(out, r->ids[0], r->n_prompt);
    qr_buf_printf(out, ",\"features\":null,\"sampling_params\":{\"max_tokens\":%d}}", r->sampling.max_tokens);
}

static void prepare_chat(struct qr_call *call)
{
    QR_ASSERT(call != NULL && call->kind->renders);
    QR_ASSERT(call->reply.len == 0);
    qr_call_prepare_chat(call);
    if (call->error.status == 0)
        put_rendered(&call->reply, call, &call->piece[0]);
}

/* An array, one for each prompt. */
static void prepare_completions(struct qr_call *call)
{
    QR_ASSERT(call != NULL && call->kind->renders);
    QR_ASSERT(call->reply.len == 0);
    qr_call_prepare_completions(call);
    if (call->error.status != 0)
        return;
    qr_buf_put_byte(&call->reply, '[');
    for (int32_t i = 0; i < call->n_pieces; i++)
        put_rendered(&call->reply, call, &call->piece[i]);
    qr_buf_put_byte(&call->reply, ']');
}

const struct qr_call_kind qr_call_render_chat = {.api = QR_API_CHAT, .counted = QR_COUNTED_TOKENIZE, .id_prefix = "chatcmpl-", .renders = true,
                                                 .prepare = prepare_chat},
                          qr_call_render_completions = {.api = QR_API_COMPLETIONS, .counted = QR_COUNTED_TOKENIZE, .id_prefix = "cmpl-", .renders = true,
                                                        .prepare = prepare_completions};
