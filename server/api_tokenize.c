/* POST /tokenize and /detokenize, in vLLM's shapes. */
#include <string.h>

#include "base/assert.h"
#include "server/call.h"

/* What a body may say; NULL: it does not. */
struct fields {
    const struct qr_json *model, *prompt, *messages, *add_special, *strings, *tokens, *skip_special;
};

/* ---- tokenize ---- */

/* The ids of a conversation are those that a chat call with the same body computes. False: call->error is set. */
static bool encode_messages(struct qr_call *call, struct qr_ids *ids)
{
    struct qr_err err = {0};
    if (!qr_call_parse_as(call, QR_API_CHAT))
        return false;
    const int rc = call->server->model.chat ? qr_call_chat_ids(call, ids, NULL, &err)
                                            : qr_err_at(&err, QR_E_UNSUPPORTED, "messages", "this model has no chat template; send prompt");
    if (rc != 0)
        qr_call_fail(call, &err);
    return rc == 0;
}

static bool encode_prompt(struct qr_call *call, struct qr_ids *ids, const struct fields *f)
{
    struct qr_err err = {0};
    if (!qr_call_check_model(call, f->model))
        return false;
    const int rc = f->prompt
                       ? qr_call_encode(call, ids, f->prompt, !f->add_special || qr_json_bool(f->add_special), &err)
                       : qr_err_at(&err, QR_E_INVALID, "prompt", "prompt (a string) or messages is required");
    if (rc != 0)
        qr_call_fail(call, &err);
    return rc == 0;
}

static void put_tokens(struct qr_call *call, const struct qr_ids *ids, bool strings)
{
    struct qr_buf *b = &call->reply;
    qr_buf_printf(b, "{\"count\":%d,\"max_model_len\":%d,\"tokens\":", ids->n,
                  qr_engine_limits(call->server->model.engine)->ctx_max);
    qr_buf_put_ids(b, ids->id, ids->n);
    qr_buf_put_str(b, strings ? ",\"token_strs\":[" : ",\"token_strs\":null}");
    for (int32_t i = 0; strings && i < ids->n; i++) {
        size_t n;
        const char *s = qr_tokenizer_token_bytes(call->server->model.tokenizer, ids->id[i], &n);
        qr_buf_put_comma(b);
        qr_json_put_str(b, s, n);
    }
    qr_buf_put_str(b, strings ? "]}" : "");
}

static void prepare_tokenize(struct qr_call *call)
{
    struct fields f = {0};
    const struct qr_member members[] = {
        {"model", QR_JSON_T_STRING, "a string", .value = &f.model},
        {"prompt", QR_JSON_T_STRING, "a string", .value = &f.prompt},
        {"messages", QR_JSON_T_NULL, NULL, .value = &f.messages},
        {"add_special_tokens", QR_JSON_T_BOOL, "true or false", .value = &f.add_special},
        {"return_token_strs", QR_JSON_T_BOOL, "true or false", .value = &f.strings},
    };
    struct qr_err err = {0};
    struct qr_json *doc = NULL;
    struct qr_ids ids = {0};
    if (qr_call_read(&doc, call, members, QR_COUNT(members), &err) != 0)
        qr_call_fail(call, &err);
    else if (f.messages ? encode_messages(call, &ids) : encode_prompt(call, &ids, &f))
        put_tokens(call, &ids, f.strings && qr_json_bool(f.strings));
    qr_ids_release(&ids);
    qr_json_free(doc);
}

/* ---- detokenize ---- */

static void put_text(struct qr_call *call, const struct qr_ids *ids, bool skip_special)
{
    struct qr_buf text = {0};
    if (ids->n > 0)
        qr_tokenizer_decode(call->server->model.tokenizer, &text, ids->id, ids->n, skip_special);
    qr_buf_put_str(&call->reply, "{\"prompt\":");
    qr_json_put_str(&call->reply, text.data ? text.data : "", text.len);
    qr_buf_put_byte(&call->reply, '}');
    qr_buf_release(&text);
}

static void prepare_detokenize(struct qr_call *call)
{
    struct fields f = {0};
    const struct qr_member members[] = {
        {"model", QR_JSON_T_STRING, "a string", .value = &f.model},
        {"tokens", QR_JSON_T_ARRAY, "an array of token ids", .value = &f.tokens, .required = true},
        {"skip_special_tokens", QR_JSON_T_BOOL, "true or false", .value = &f.skip_special},
    };
    struct qr_err err = {0};
    struct qr_json *doc = NULL;
    struct qr_ids ids = {0};
    int rc = qr_call_read(&doc, call, members, QR_COUNT(members), &err);
    const bool model_ok = rc == 0 && qr_call_check_model(call, f.model);
    if (model_ok)
        rc = qr_read_token_ids(&ids, f.tokens, "tokens", qr_engine_limits(call->server->model.engine)->vocab, &err);
    if (rc != 0)
        qr_call_fail(call, &err);
    else if (model_ok)
        put_text(call, &ids, f.skip_special && qr_json_bool(f.skip_special));
    qr_ids_release(&ids);
    qr_json_free(doc);
}

const struct qr_call_kind qr_call_tokenize = {.counted = QR_COUNTED_TOKENIZE, .prepare = prepare_tokenize},
                          qr_call_detokenize = {.counted = QR_COUNTED_TOKENIZE, .prepare = prepare_detokenize};
