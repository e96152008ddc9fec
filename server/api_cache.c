/* POST /v1/cache/pin, GET /v1/cache/pins, DELETE /v1/cache/pin/{id}: prompts that stay in the prefix cache (engine/pins.h). A body is one of chat or of
 * completions; fields that only shape an answer say nothing here, as none is drawn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/option.h"
#include "engine/pins.h"
#include "server/call.h"
#include "server/route.h"

#define PREFIX "pin-"
#define TTL_S_MAX 31536000 /* a year */

static int read_ttl(int64_t *ttl_us, const struct qr_json *v, struct qr_err *err)
{
    static const struct qr_option ttl = {.name = "ttl", .type = QR_OPT_TIME, .min = 1e6, .max = TTL_S_MAX * 1e6};
    struct qr_buf text = {0};
    if (v && qr_json_type(v) != QR_JSON_T_NUMBER && qr_json_type(v) != QR_JSON_T_STRING)
        return qr_wrong_type(err, "ttl", "a number of seconds, or a string as \"10m\"", v);
    if (v && qr_json_type(v) == QR_JSON_T_NUMBER)
        qr_json_print(&text, v);
    else if (v)
        qr_buf_put_str(&text, qr_json_str(v, NULL));
    const int rc = v ? qr_option_parse(&ttl, text.data ? text.data : "", "ttl", ttl_us, err) : 0;
    qr_buf_release(&text);
    if (rc != 0) {
        err->code = QR_E_INVALID;
        snprintf(err->param, sizeof err->param, "ttl");
    }
    return rc ? err->code : 0;
}

/* What is said of the pin itself, and which API's prompt the body has. */
static int read_pin(struct qr_call *call, enum qr_api *api, struct qr_err *err)
{
    const struct qr_json *key = NULL, *ttl = NULL, *pin = NULL, *messages = NULL, *prompt = NULL;
    const struct qr_member members[] = {
        {"key", QR_JSON_T_STRING, "a string", .value = &key}, {"ttl", QR_JSON_T_NULL, NULL, .value = &ttl},
        {"pin", QR_JSON_T_BOOL, "true or false", .value = &pin}, {"messages", QR_JSON_T_NULL, NULL, .value = &messages},
        {"prompt", QR_JSON_T_NULL, NULL, .value = &prompt},
    };
    struct qr_json *doc = NULL;
    struct qr_pin_of *of = &call->pin;
    int rc = qr_call_read(&doc, call, members, QR_COUNT(members), err);
    if (rc == 0 && !messages == !prompt)
        rc = qr_err_at(err, QR_E_INVALID, "prompt", "messages or prompt is required, and one of them only");
    rc = rc ? rc : read_ttl(&of->ttl_us, ttl, err);
    if (rc == 0 && key && strlen(qr_json_str(key, NULL)) >= sizeof of->key)
        rc = qr_err_at(err, QR_E_INVALID, "key", "key must be the name of a key, of at most %zu bytes", sizeof of->key - 1);
    if (rc == 0) {
        snprintf(of->key, sizeof of->key, "%s", key ? qr_json_str(key, NULL) : "");
        of->wanted = pin ? qr_json_bool(pin) : call->kind == &qr_call_pin;
        *api = messages ? QR_API_CHAT : QR_API_COMPLETIONS;
    }
    qr_json_free(doc);
    return rc;
}

/* One prompt, which nothing is drawn for. */
static void draw_nothing(struct qr_params *p)
{
    p->n = 1;
    p->max_tokens = p->sampling.min_tokens = 0;
    p->stream = p->echo = p->return_token_ids = false;
    p->sampling.n_prompt_logprobs = -1;
}

static int prompt_ids(struct qr_call *call, struct qr_ids *ids, enum qr_api api, struct qr_err *err)
{
    const struct qr_json *prompt = call->params.prompt;
    if (api == QR_API_CHAT && !call->server->model.chat)
        return qr_err_at(err, QR_E_UNSUPPORTED, "messages", "this model has no chat template; give prompt");
    if (api == QR_API_CHAT)
        return qr_call_chat_ids(call, ids, NULL, err);
    if (qr_json_type(prompt) == QR_JSON_T_ARRAY && qr_json_type(qr_json_first(prompt)) != QR_JSON_T_NUMBER)
        return qr_err_at(err, QR_E_INVALID, "prompt", "prompt must be one text or one array of token ids");
    return qr_call_text_ids(call, ids, NULL, prompt, err);
}

void qr_call_prepare_pin(struct qr_call *call)
{
    enum qr_api api = QR_API_CHAT;
    struct qr_err err = {0};
    struct qr_ids ids = {0};
    QR_ASSERT(call != NULL);
    QR_ASSERT(call->piece == NULL);
    int rc = read_pin(call, &api, &err);
    if (rc != 0) {
        qr_call_fail(call, &err);
        return;
    }
    if (!qr_call_parse_as(call, api))
        return;
    draw_nothing(&call->params);
    if (!qr_call_make_pieces(call, 1))
        return;
    rc = prompt_ids(call, &ids, api, &err);
    if (rc == 0 && ids.n == 0)
        rc = qr_err_at(&err, QR_E_INVALID, "prompt", "the prompt has no token");
    if (rc != 0)
        qr_call_fail(call, &err);
    else if (qr_call_set_prompt(call, 0, ids.id, ids.n, api == QR_API_CHAT ? "messages" : "prompt") && call->piece[0].req) {
        call->piece[0].req->pin.wanted = call->pin.wanted;
        call->piece[0].req->pin.ttl_us = call->pin.ttl_us;
    }
    qr_ids_release(&ids);
}

/* Whose prompt it is. */
static void settle(struct qr_call *call)
{
    const struct qr_key *key = call->pin.key[0] ? qr_keys_named(call->server->keys, call->pin.key) : call->key;
    QR_ASSERT(call->error.status == 0);
    if (key) {
        call->digest = key->digest;
        return;
    }
    qr_api_error_set(&call->error, 404, "not_found", "No key has the name '%.64s'; GET /v1/usage lists them.", call->pin.key);
    snprintf(call->error.param, sizeof call->error.param, "key");
}

static void collect(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev)
{
    QR_ASSERT(call != NULL && ev != NULL);
    QR_ASSERT(ev->last);
    call->pin.id = ev->req->id;
    call->pin.expires_s = ev->req->pin.expires_s;
    call->pin.n_blocks = ev->req->pin.n_blocks;
}

static void put_expiry(struct qr_buf *out, int64_t expires_s)
{
    if (expires_s > 0)
        qr_buf_printf(out, "%lld", (long long)expires_s);
    else
        qr_buf_put_str(out, "null");
}

static void write_answer(struct qr_call *call)
{
    const struct qr_engine_limits *l = qr_engine_limits(call->server->model.engine);
    const int32_t n_tokens = call->piece[0].n_prompt / l->block_tokens * l->block_tokens;
    struct qr_buf *b = &call->reply;
    qr_buf_printf(b, "{\"id\":\"" PREFIX "%016llx\",\"object\":\"cache.pin\",\"model\":", (unsigned long long)call->pin.id);
    qr_json_put_str(b, call->model, strlen(call->model));
    qr_buf_printf(b, ",\"prompt_tokens\":%d,\"cached_tokens\":%d,\"tokens\":%d,\"blocks\":%d,\"bytes\":%lld,\"expires_at\":", call->piece[0].n_prompt,
                  call->piece[0].n_cached, n_tokens, call->pin.n_blocks, (long long)(call->pin.n_blocks * qr_engine_block_bytes(l)));
    put_expiry(b, call->pin.expires_s);
    qr_buf_put_byte(b, '}');
}

void qr_api_pins(struct qr_server *s, struct qr_conn *c)
{
    QR_ASSERT(s != NULL && c != NULL);
    QR_ASSERT(s->model.engine != NULL);
    struct qr_pin pin[QR_PINS_MAX];
    struct qr_buf b = {0};
    struct qr_stats stats;
    const struct qr_engine_limits *l = qr_engine_limits(s->model.engine);
    const int32_t n = qr_engine_pins(s->model.engine, pin);
    qr_engine_stats(s->model.engine, &stats);
    qr_buf_printf(&b, "{\"object\":\"list\",\"blocks\":%d,\"blocks_max\":%d,\"pins_max\":%d,\"data\":[", stats.kv.n_pinned, l->n_pinned_max, QR_PINS_MAX);
    for (int32_t i = 0; i < n; i++) {
        qr_buf_put_comma(&b);
        qr_buf_printf(&b, "{\"id\":\"" PREFIX "%016llx\",\"object\":\"cache.pin\",\"tokens\":%d,\"blocks\":%d,\"bytes\":%lld,\"owner\":\"%08x\"",
                      (unsigned long long)pin[i].id, pin[i].n_tokens, pin[i].n_blocks, (long long)(pin[i].n_blocks * qr_engine_block_bytes(l)), pin[i].owner);
        qr_buf_printf(&b, ",\"created_at\":%lld,\"expires_at\":", (long long)pin[i].made_s);
        put_expiry(&b, pin[i].expires_s);
        qr_buf_put_byte(&b, '}');
    }
    qr_buf_put_str(&b, "]}");
    qr_conn_reply(c, &(struct qr_reply){.status = 200, .content_type = "application/json", .taken = &b});
}

/* DELETE /v1/cache/pin/{id} */
void qr_api_unpin(struct qr_server *s, struct qr_conn *c)
{
    static const char route[] = "/v1/cache/pin/";
    QR_ASSERT(s != NULL && c != NULL);
    const struct qr_span path = qr_conn_head(c)->path;
    const size_t n = path.len - (sizeof route - 1);
    char id[32] = "", *end = id;
    QR_ASSERT(path.len > sizeof route - 1);
    if (n < sizeof id)
        memcpy(id, path.data + sizeof route - 1, n);
    const bool ours = strncmp(id, PREFIX, sizeof PREFIX - 1) == 0 && n == sizeof PREFIX - 1 + 16;
    const uint64_t number = ours ? strtoull(id + sizeof PREFIX - 1, &end, 16) : 0;
    if (!ours || *end != 0 || !qr_engine_unpin(s->model.engine, number)) {
        struct qr_api_error e;
        qr_api_error_set(&e, 404, "not_found", "There is no pin '%.31s'; GET /v1/cache/pins lists them.", id);
        qr_api_error_reply(c, &e);
        return;
    }
    struct qr_buf b = {0};
    qr_buf_printf(&b, "{\"id\":\"%s\",\"object\":\"cache.pin\",\"deleted\":true}", id);
    qr_conn_reply(c, &(struct qr_reply){.status = 200, .content_type = "application/json", .taken = &b});
}

const struct qr_call_kind qr_call_pin = {.counted = QR_COUNTED_PINS, .prepare = qr_call_prepare_pin, .settle = settle, .collect = collect,
                                         .write = write_answer};
