/* call_prepare.c - what a request's body becomes before the engine has it: members, ids, parameters, and a request for each
 * prompt. Lengths that do not fit are told with the numbers that would. On libuv's pool, in the call's account. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "engine/adapters.h"
#include "server/call.h"
#include "server/disagg.h"

int qr_call_read(struct qr_json **doc, const struct qr_call *call, const struct qr_member *member, int32_t n,
                 struct qr_err *err)
{
    QR_ASSERT(doc != NULL && call != NULL);
    QR_ASSERT(member != NULL && n >= 1);
    return qr_members_read(doc, call->body.data, call->body.len, member, n, err);
}

int qr_call_encode(const struct qr_call *call, struct qr_ids *ids, const struct qr_json *text, bool add_special,
                   struct qr_err *err)
{
    const struct qr_server *s = call->server;
    size_t n;
    const char *bytes = qr_json_str(text, &n);
    QR_ASSERT(ids != NULL && err != NULL);
    const unsigned flags =
        (add_special ? QR_ENCODE_ADD_SPECIAL : 0u) | (s->config.trust_special ? QR_ENCODE_PARSE_SPECIAL : 0u);
    return qr_tokenizer_encode(s->model.tokenizer, ids, bytes, n, flags, err);
}

bool qr_call_check_model(struct qr_call *call, const struct qr_json *given)
{
    const struct qr_server *s = call->server;
    const char *name = given ? qr_json_str(given, NULL) : NULL, *tail = call->kind->door ? call->kind->door->name_tail : NULL;
    const size_t n = name ? strlen(name) : 0, n_tail = tail ? strlen(tail) : 0;
    const size_t n_short = n > n_tail && tail && strcmp(name + n - n_tail, tail) == 0 ? n - n_tail : n;
    QR_ASSERT(s->n_names > 0);
    call->model = s->names[0];
    for (int32_t i = 0; i < s->n_names && name; i++)
        if (strcmp(s->names[i], name) == 0 || (strlen(s->names[i]) == n_short && memcmp(s->names[i], name, n_short) == 0)) {
            call->model = s->names[i];
            return true;
        }
    if (!name)
        return true;
    call->adapter = qr_engine_find_adapter(s->model.engine, name);
    if (call->adapter != 0) {
        call->model = name;
        return true;
    }
    qr_api_error_set(&call->error, 404, "model_not_found", "The model '%.200s' does not exist; this server has '%.200s'.", name, s->names[0]);
    snprintf(call->error.param, sizeof call->error.param, "model");
    return false;
}

void qr_call_fail(struct qr_call *call, const struct qr_err *err)
{
    QR_ASSERT(call != NULL && err != NULL);
    QR_ASSERT(call->error.status == 0);
    qr_api_error_from(&call->error, err);
}

bool qr_call_parse(struct qr_call *call)
{
    QR_ASSERT(call != NULL);
    QR_ASSERT(call->kind->api != 0);
    if (qr_engine_model(call->server->model.engine)->headless) { /* before a template is missed */
        qr_api_error_set(&call->error, 400, "unsupported", "This model has no head: %s, no text.",
                         qr_headless_does(qr_engine_model(call->server->model.engine)));
        snprintf(call->error.param, sizeof call->error.param, "model");
        return false;
    }
    return qr_call_parse_as(call, call->kind->api) && qr_disagg_find(call);
}

/* The chat body that the door makes of the call's. */
static int translate(struct qr_call *call, struct qr_door_in *in, struct qr_err *err)
{
    const int rc = qr_door_translate(call->kind->door, in, call->body.data ? call->body.data : "", call->body.len, err);
    if (rc != 0)
        return rc;
    call->door_sources = in->sources;
    call->door_kept = in->kept;
    in->sources = in->kept = (struct qr_buf){0};
    call->translated = true;
    return 0;
}

bool qr_call_parse_as(struct qr_call *call, enum qr_api api)
{
    struct qr_err err = {0};
    struct qr_door_in in = {.call = call, .ctx_max = qr_engine_limits(call->server->model.engine)->ctx_max};
    const struct qr_buf *body = call->kind->door ? &in.chat : &call->body;
    const struct qr_engine_limits *limits = qr_engine_limits(call->server->model.engine);
    struct qr_params_context context = {.ctx_max = limits->ctx_max, .vocab = limits->vocab, .timeout_max_us = call->server->config.request_us,
                                        .tokenizer = call->server->model.tokenizer, .model = qr_engine_model(call->server->model.engine)};
    QR_ASSERT(limits->vocab > 0 && api != 0);
    int rc = call->kind->door ? translate(call, &in, &err) : 0;
    rc = rc ? rc : qr_params_parse(&call->params, api, body->data ? body->data : "", body->len, &context, &err);
    qr_door_in_release(&in);
    if (rc != 0) {
        qr_call_fail(call, &err);
        return false;
    }
    return qr_call_check_model(call, call->params.model);
}

bool qr_call_make_pieces(struct qr_call *call, int32_t n_prompts)
{
    int32_t n = call->params.n;
    const struct qr_engine_limits *limits = qr_engine_limits(call->server->model.engine);
    int32_t capacity = limits->running_max + limits->waiting_max, most = capacity < QR_PROMPTS_MAX ? capacity : QR_PROMPTS_MAX;
    QR_ASSERT(call->piece == NULL);
    QR_ASSERT(n >= 1 && n_prompts >= 1);
    if (n_prompts > most / n && call->kind->submitted_max == 0) { /* more than the queue holds would be answered 429 for ever */
        qr_api_error_set(&call->error, 400, "too_large", "%d prompts with n %d make more than %d answers in one request.", n_prompts, n, most);
        snprintf(call->error.param, sizeof call->error.param, "prompt");
        return false;
    }
    call->n_pieces = n_prompts;
    call->n_choices = n_prompts * n;
    call->piece = qr_alloc((size_t)n_prompts, sizeof *call->piece);
    call->choice = qr_alloc((size_t)call->n_choices, sizeof *call->choice);
    for (int32_t i = 0; i < n_prompts; i++) {
        call->piece[i].call = call;
        call->piece[i].first_choice = i * n;
    }
    for (int32_t i = 0; i < call->n_choices; i++)
        call->choice[i] = (struct qr_choice){.piece = &call->piece[i / n], .stop_index = -1, .stop_id = -1};
    return true;
}

/* The words by which clients know this error, to cut the conversation or say so. */
#define CONTEXT "This model's maximum context length is %d tokens; "

static bool context_error(struct qr_call *call, const char *field, const char *detail)
{
    qr_api_error_set(&call->error, 400, "context_length_exceeded", "%s", detail);
    snprintf(call->error.param, sizeof call->error.param, "%s", field);
    return false;
}

/* Leaves a piece's prompt as many of its last tokens as the request says, for echo, too. False: that is more than there is room for. */
static bool truncate_prompt(struct qr_call *call, struct qr_piece *piece, const int32_t **ids, int32_t *n, int32_t ctx)
{
    char text[300];
    struct qr_sampling s = call->params.sampling;
    s.max_tokens = call->params.max_tokens < 0 ? 1 : call->params.max_tokens;
    if (s.truncate_prompt > ctx - s.max_tokens) {
        snprintf(text, sizeof text, CONTEXT "truncate_prompt_tokens keeps %d and %d more are asked for. Keep at most %d.", ctx, s.truncate_prompt,
                 s.max_tokens, ctx - s.max_tokens);
        return context_error(call, "truncate_prompt_tokens", text);
    }
    const int32_t kept = qr_sampling_kept(&s, *n, ctx);
    *ids += *n - kept;
    if (kept < *n && call->params.echo) {
        qr_buf_clear(&piece->prompt_text);
        qr_tokenizer_decode(call->server->model.tokenizer, &piece->prompt_text, *ids, kept, s.skip_special);
    }
    *n = kept;
    return true;
}

bool qr_call_set_prompt(struct qr_call *call, int32_t i, const int32_t *ids, int32_t n, const char *field)
{
    char text[300];
    int32_t ctx = qr_engine_limits(call->server->model.engine)->ctx_max;
    struct qr_piece *piece = &call->piece[i];
    struct qr_sampling sampling = call->params.sampling;
    QR_ASSERT(i >= 0 && i < call->n_pieces && piece->req == NULL);
    QR_ASSERT(n >= 1);
    if (!truncate_prompt(call, piece, &ids, &n, ctx))
        return false;
    int32_t room = ctx - n, wanted = call->params.max_tokens;
    if (wanted < 0) {
        int32_t usual = call->kind->api == QR_API_CHAT ? QR_CHAT_DEFAULT_TOKENS : 16;
        wanted = usual < room ? usual : room;
        if (room < 1) {
            snprintf(text, sizeof text, CONTEXT "the prompt has %d, and one is needed for the answer.", ctx, n);
            return context_error(call, field, text);
        }
        if (sampling.min_tokens > wanted && sampling.min_tokens <= room)
            wanted = sampling.min_tokens;
    }
    if (wanted > room && room > 0 && call->kind->door && call->kind->door->bounds_length)
        wanted = room;
    if (wanted > room || sampling.min_tokens > room) {
        if (n > ctx)
            snprintf(text, sizeof text, CONTEXT "the prompt has %d.", ctx, n);
        else
            snprintf(text, sizeof text, CONTEXT "the prompt has %d and %d more are asked for. Ask for at most %d.", ctx, n,
                     wanted > sampling.min_tokens ? wanted : sampling.min_tokens, room);
        return context_error(call, n > ctx ? field : wanted > room ? "max_tokens" : "min_tokens", text);
    }
    sampling.max_tokens = wanted;
    sampling.skip_special &= !call->parses; /* markers may be special tokens: the parser has to see them */
    piece->req = qr_request_new_predicted(&sampling, ids, n, call->params.n, call->params.prediction.id, call->params.prediction.n);
    piece->n_prompt = n;
    if (call->params.return_token_ids)
        qr_buf_put_ids(&piece->prompt_ids, ids, n);
    return true;
}
