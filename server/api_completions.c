/* POST /v1/completions. */
#include <stdio.h>

#include "base/assert.h"
#include "server/call.h"

static void path_of(char out[32], bool many, int32_t i)
{
    if (many)
        snprintf(out, 32, "prompt[%d]", i);
    else
        snprintf(out, 32, "prompt");
}

static void take_ids(struct qr_ids *out, const struct qr_json *array)
{
    for (const struct qr_json *v = qr_json_first(array); v; v = qr_json_after(v)) {
        int64_t id = 0;
        qr_json_i64(v, &id); /* the parser has checked them */
        qr_ids_push(out, (int32_t)id);
    }
}

int qr_call_text_ids(struct qr_call *call, struct qr_ids *ids, struct qr_buf *echo, const struct qr_json *v, struct qr_err *err)
{
    QR_ASSERT(call != NULL && ids != NULL);
    QR_ASSERT(v != NULL && err != NULL);
    const struct qr_server *s = call->server;
    const struct qr_params *p = &call->params;
    if (qr_json_type(v) == QR_JSON_T_ARRAY) {
        take_ids(ids, v);
        if (p->echo)
            qr_tokenizer_decode(s->model.tokenizer, echo, ids->id, ids->n, p->sampling.skip_special);
        return 0;
    }
    if (p->echo) {
        size_t len;
        const char *text = qr_json_str(v, &len);
        qr_buf_put(echo, text, len);
    }
    int rc = qr_call_encode(call, ids, v, p->add_special, err);
    if (rc == 0 && ids->n == 0 && qr_tokenizer_bos(s->model.tokenizer) >= 0)
        qr_ids_push(ids, qr_tokenizer_bos(s->model.tokenizer)); /* an empty text is the beginning of any */
    return rc;
}

void qr_call_prepare_completions(struct qr_call *call)
{
    QR_ASSERT(call != NULL);
    QR_ASSERT(call->kind->api == QR_API_COMPLETIONS);
    if (!qr_call_parse(call))
        return;
    const struct qr_json *prompt = call->params.prompt, *first = qr_json_first(prompt);
    bool many = qr_json_type(prompt) == QR_JSON_T_ARRAY && qr_json_type(first) != QR_JSON_T_NUMBER;
    int32_t n = many ? qr_json_count(prompt) : 1, i = 0;
    bool ok = qr_call_make_pieces(call, n) && qr_call_form(call, false);
    struct qr_ids ids = {0};
    for (const struct qr_json *v = many ? first : prompt; ok && i < n; v = qr_json_after(v), i++) {
        struct qr_err err = {0};
        char path[32];
        path_of(path, many, i);
        ids.n = 0;
        int rc = qr_call_text_ids(call, &ids, &call->piece[i].prompt_text, v, &err);
        if (rc == 0 && ids.n == 0)
            rc = qr_err_at(&err, QR_E_INVALID, path, "%s is empty; at least one token is needed", path);
        ok = rc == 0 && qr_call_set_prompt(call, i, ids.id, ids.n, path);
        if (rc != 0)
            qr_call_fail(call, &err);
    }
    qr_ids_release(&ids);
}

const struct qr_call_kind qr_call_completions = {
    .api = QR_API_COMPLETIONS, .counted = QR_COUNTED_COMPLETIONS, .id_prefix = "cmpl-", .prepare = qr_call_prepare_completions};
