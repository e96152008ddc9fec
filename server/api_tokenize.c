/* POST /tokenize and /detokenize, in vLLM's shapes. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "server/call.h"
#include "server/route.h"

static bool model_ok(struct qr_call *call, const struct qr_json *doc, struct qr_err *err)
{
    const struct qr_json *model = qr_json_find(doc, "model");
    if (qr_json_is_null(model))
        return qr_call_check_model(call, NULL);
    if (qr_json_type(model) == QR_JSON_T_STRING)
        return qr_call_check_model(call, qr_json_str(model, NULL));
    qr_wrong_type(err, "model", "a string", model);
    qr_call_fail(call, err);
    return false;
}

/* ---- tokenize ---- */

/* The ids of a conversation are those that a chat call with the same body computes. False: call->error is set. */
static bool encode_messages(struct qr_call *call, struct qr_ids *ids)
{
    struct qr_err err = {0};
    if (!qr_call_parse_as(call, QR_API_CHAT))
        return false;
    const int rc = call->server->model.chat ? qr_call_chat_ids(call, ids, &err)
                                            : qr_err_at(&err, QR_E_UNSUPPORTED, "messages", "this model has no chat template; send prompt");
    if (rc != 0)
        qr_call_fail(call, &err);
    return rc == 0;
}

static bool encode_prompt(struct qr_call *call, struct qr_ids *ids, const struct qr_json *doc)
{
    struct qr_err err = {0};
    bool add_special = true;
    const struct qr_json *prompt = qr_json_find(doc, "prompt");
    int rc = qr_read_flag(&add_special, doc, "add_special_tokens", &err);
    if (rc == 0 && !model_ok(call, doc, &err))
        return false;
    if (rc == 0 && qr_json_is_null(prompt))
        rc = qr_err_at(&err, QR_E_INVALID, "prompt", "prompt (a string) or messages is required");
    if (rc == 0 && qr_json_type(prompt) != QR_JSON_T_STRING)
        rc = qr_wrong_type(&err, "prompt", "a string", prompt);
    if (rc == 0) {
        size_t n;
        const char *text = qr_json_str(prompt, &n);
        unsigned flags = (add_special ? QR_ENCODE_ADD_SPECIAL : 0u) | (call->server->config.trust_special ? QR_ENCODE_PARSE_SPECIAL : 0u);
        rc = qr_tokenizer_encode(call->server->model.tokenizer, ids, text, n, flags, &err);
    }
    if (rc != 0)
        qr_call_fail(call, &err);
    return rc == 0;
}

static void put_tokens(struct qr_call *call, const struct qr_ids *ids, bool strings)
{
    struct qr_buf *b = &call->reply;
    qr_buf_printf(b, "{\"count\":%d,\"max_model_len\":%d,\"tokens\":[", ids->n, qr_engine_limits(call->server->model.engine)->ctx_max);
    for (int32_t i = 0; i < ids->n; i++) {
        if (i > 0)
            qr_buf_put_byte(b, ',');
        qr_buf_put_i64(b, ids->id[i]);
    }
    qr_buf_put_str(b, strings ? "],\"token_strs\":[" : "],\"token_strs\":null}");
    for (int32_t i = 0; strings && i < ids->n; i++) {
        size_t n;
        const char *s = qr_tokenizer_token_bytes(call->server->model.tokenizer, ids->id[i], &n);
        if (i > 0)
            qr_buf_put_byte(b, ',');
        qr_json_put_str(b, s, n);
    }
    if (strings)
        qr_buf_put_str(b, "]}");
}

static void prepare_tokenize(struct qr_call *call)
{
    static const char *const fields[] = {"model", "prompt", "messages", "add_special_tokens", "return_token_strs", NULL};
    struct qr_err err = {0};
    struct qr_json *doc = NULL;
    struct qr_ids ids;
    bool strings = false;
    qr_ids_init(&ids);
    int rc = qr_call_read_object(&doc, call, fields, &err);
    if (rc == 0)
        rc = qr_read_flag(&strings, doc, "return_token_strs", &err);
    if (rc != 0)
        qr_call_fail(call, &err);
    else if (qr_json_is_null(qr_json_find(doc, "messages")) ? encode_prompt(call, &ids, doc) : encode_messages(call, &ids))
        put_tokens(call, &ids, strings);
    qr_ids_release(&ids);
    qr_json_free(doc);
}

/* ---- detokenize ---- */

static int read_tokens(struct qr_ids *ids, const struct qr_json *tokens, int32_t vocab, struct qr_err *err)
{
    if (qr_json_is_null(tokens))
        return qr_err_at(err, QR_E_INVALID, "tokens", "tokens is required: an array of token ids");
    if (qr_json_type(tokens) != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, "tokens", "an array of token ids", tokens);
    return qr_read_token_ids(ids, tokens, "tokens", vocab, err);
}

static void prepare_detokenize(struct qr_call *call)
{
    static const char *const fields[] = {"model", "tokens", "skip_special_tokens", NULL};
    struct qr_err err = {0};
    struct qr_json *doc = NULL;
    struct qr_ids ids;
    bool skip_special = false;
    qr_ids_init(&ids);
    int rc = qr_call_read_object(&doc, call, fields, &err);
    if (rc == 0)
        rc = qr_read_flag(&skip_special, doc, "skip_special_tokens", &err);
    if (rc == 0 && !model_ok(call, doc, &err))
        goto out;
    if (rc == 0)
        rc = read_tokens(&ids, qr_json_find(doc, "tokens"), qr_engine_limits(call->server->model.engine)->vocab, &err);
    if (rc != 0) {
        qr_call_fail(call, &err);
    } else {
        struct qr_buf text;
        qr_buf_init(&text);
        if (ids.n > 0)
            qr_tokenizer_decode(call->server->model.tokenizer, &text, ids.id, ids.n, skip_special);
        qr_buf_put_str(&call->reply, "{\"prompt\":");
        qr_json_put_str(&call->reply, text.data ? text.data : "", text.len);
        qr_buf_put_byte(&call->reply, '}');
        qr_buf_release(&text);
    }
out:
    qr_ids_release(&ids);
    qr_json_free(doc);
}

void qr_api_tokenize(struct qr_server *s, struct qr_conn *c)
{
    static const struct qr_call_kind kind = {.prepare = prepare_tokenize};
    QR_ASSERT(s != NULL);
    QR_ASSERT(c != NULL);
    s->n_tokenize++;
    qr_call_start(s, c, &kind);
}

void qr_api_detokenize(struct qr_server *s, struct qr_conn *c)
{
    static const struct qr_call_kind kind = {.prepare = prepare_detokenize};
    QR_ASSERT(s != NULL);
    QR_ASSERT(c != NULL);
    s->n_tokenize++;
    qr_call_start(s, c, &kind);
}
