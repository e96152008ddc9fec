/* door_responses.c - POST /v1/responses: answers in the shapes of OpenAI's Responses API. Each item of an answer is an item of its output; a stream has
 * response.created and in_progress, the events of the items one behind the other, and completed, incomplete or failed with the whole response. A whole
 * answer is made of the same items. The loop thread, in the call's account. */
#include <string.h>

#include "base/assert.h"
#include "server/call.h"
#include "server/responses.h"

/* ---- what the call keeps ---- */

static struct qr_responses_kept *kept_of(struct qr_call *call)
{
    QR_ASSERT(call->door_kept.len >= sizeof(struct qr_responses_kept));
    return (struct qr_responses_kept *)(void *)call->door_kept.data;
}

static void put_buf(struct qr_buf *out, const struct qr_buf *b)
{
    qr_buf_put(out, b->data ? b->data : "", b->len);
}

static void put_str(struct qr_buf *out, const struct qr_buf *text)
{
    qr_json_put_str(out, text->data ? text->data : "", text->len);
}

/* ---- the response ---- */

static void put_usage(struct qr_buf *out, const struct qr_call *call)
{
    const struct qr_piece *p = &call->piece[0];
    const struct qr_choice *choice = &call->choice[0];
    qr_buf_printf(out, "{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d,\"cache_write_tokens\":0},\"output_tokens\":%d,"
                       "\"output_tokens_details\":{\"reasoning_tokens\":%d},\"total_tokens\":%d}",
                  p->n_prompt, p->n_cached, choice->n_output, choice->n_reasoning, p->n_prompt + choice->n_output);
}

static void put_failure(struct qr_buf *out, const struct qr_api_error *e)
{
    qr_buf_put_str(out, e->status >= 500 ? "{\"code\":\"server_error\",\"message\":" : "{\"code\":\"invalid_prompt\",\"message\":");
    qr_json_put_str(out, e->message, strlen(e->message));
    qr_buf_put_byte(out, '}');
}

/* The response as it is now; what has been said so far is in choice->text. */
static void put_response(struct qr_buf *out, struct qr_call *call, const char *status)
{
    const struct qr_choice *choice = &call->choice[0];
    const struct qr_responses_kept *kept = kept_of(call);
    const bool begins = strcmp(status, "in_progress") == 0;
    qr_buf_printf(out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"error\":", call->id, (long long)call->created_s, status);
    if (strcmp(status, "failed") == 0)
        put_failure(out, &call->error);
    else
        qr_buf_put_str(out, "null");
    qr_buf_put_str(out, ",\"incomplete_details\":");
    qr_buf_put_str(out, strcmp(status, "incomplete") == 0 ? "{\"reason\":\"max_output_tokens\"}" : "null");
    qr_buf_put_str(out, ",\"model\":");
    qr_json_put_str(out, call->model, strlen(call->model));
    qr_buf_put_byte(out, ',');
    qr_buf_put(out, call->door_kept.data + sizeof *kept, kept->n_members);
    qr_buf_put_str(out, ",\"temperature\":");
    qr_json_put_f32(out, call->params.sampling.temperature);
    qr_buf_put_str(out, ",\"top_p\":");
    qr_json_put_f32(out, call->params.sampling.top_p);
    qr_buf_put_str(out, ",\"output\":[");
    put_buf(out, &choice->text);
    qr_buf_put_str(out, "],\"usage\":");
    if (begins)
        qr_buf_put_str(out, "null");
    else
        put_usage(out, call);
    qr_buf_put_byte(out, '}');
}

static const char *status_of(const struct qr_call *call)
{
    return call->choice[0].finish == QR_FINISH_LENGTH ? "incomplete" : "completed";
}

/* ---- items ---- */

static const char *prefix_of(const struct qr_item *item)
{
    return item->part == QR_PART_REASONING ? "rs" : item->part == QR_PART_CONTENT ? "msg" : "fc";
}

static void put_id(struct qr_buf *out, const struct qr_call *call, const struct qr_item *item)
{
    qr_buf_printf(out, "\"%s_%s_%d\"", prefix_of(item), strchr(call->id, '_') + 1, item->index);
}

/* An item's only part. logprobs may be NULL. */
static void put_part(struct qr_buf *out, const struct qr_item *item, const struct qr_buf *text, const struct qr_buf *logprobs)
{
    const struct qr_buf none = {0};
    qr_buf_put_str(out, item->part == QR_PART_REASONING ? "{\"type\":\"reasoning_text\",\"text\":" : "{\"type\":\"output_text\",\"text\":");
    put_str(out, text ? text : &none);
    if (item->part == QR_PART_CONTENT) {
        qr_buf_put_str(out, ",\"annotations\":[],\"logprobs\":[");
        put_buf(out, logprobs ? logprobs : &none);
        qr_buf_put_byte(out, ']');
    }
    qr_buf_put_byte(out, '}');
}

/* done: with what it says, which is all of it. */
static void put_item(struct qr_buf *out, struct qr_call *call, const struct qr_item *item, bool done)
{
    struct qr_choice *choice = &call->choice[0];
    const bool cut = item->part == QR_PART_CALL ? item->cut : choice->finish == QR_FINISH_LENGTH;
    const struct qr_buf none = {0};
    qr_buf_put_str(out, "{\"id\":");
    put_id(out, call, item);
    if (item->part == QR_PART_REASONING)
        qr_buf_put_str(out, ",\"type\":\"reasoning\",\"summary\":[]");
    else
        qr_buf_printf(out, ",\"type\":\"%s\",\"status\":\"%s\"", item->part == QR_PART_CALL ? "function_call" : "message",
                      !done ? "in_progress" : cut ? "incomplete" : "completed");
    if (item->part == QR_PART_CALL) {
        qr_buf_put_str(out, ",\"call_id\":");
        put_str(out, &item->id);
        qr_buf_put_str(out, ",\"name\":");
        put_str(out, &item->name);
        qr_buf_put_str(out, ",\"arguments\":");
        put_str(out, done ? &item->text : &none);
    } else {
        qr_buf_put_str(out, item->part == QR_PART_CONTENT ? ",\"role\":\"assistant\",\"content\":[" : ",\"content\":[");
        if (done)
            put_part(out, item, &item->text, &choice->logprob[1]);
        qr_buf_put_byte(out, ']');
    }
    if (item->part == QR_PART_REASONING && done && kept_of(call)->encrypted) {
        struct qr_buf sealed = {0};
        qr_buf_put_str(&sealed, QR_RESPONSES_SEAL);
        put_buf(&sealed, &item->text);
        qr_buf_put_str(out, ",\"encrypted_content\":");
        put_str(out, &sealed);
        qr_buf_release(&sealed);
    }
    qr_buf_put_byte(out, '}');
}

/* ---- events ---- */

static void begin_event(struct qr_call *call, struct qr_buf *out, const char *type)
{
    qr_buf_printf(out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%lld", type, type, (long long)kept_of(call)->n_events++);
}

static void end_event(struct qr_buf *out)
{
    qr_buf_put_str(out, "}\n\n");
}

static void response_event(struct qr_call *call, struct qr_buf *out, const char *type, const char *status)
{
    begin_event(call, out, type);
    qr_buf_put_str(out, ",\"response\":");
    put_response(out, call, status);
    end_event(out);
}

/* An event of the item itself. */
static void item_event(struct qr_call *call, const struct qr_item *item, struct qr_buf *out, const char *type, bool done)
{
    begin_event(call, out, type);
    qr_buf_printf(out, ",\"output_index\":%d,\"item\":", item->index);
    put_item(out, call, item, done);
    end_event(out);
}

/* Of something inside of it. */
static void begin_inner(struct qr_call *call, const struct qr_item *item, struct qr_buf *out, const char *type)
{
    begin_event(call, out, type);
    qr_buf_put_str(out, ",\"item_id\":");
    put_id(out, call, item);
    qr_buf_printf(out, ",\"output_index\":%d", item->index);
    if (item->part != QR_PART_CALL)
        qr_buf_put_str(out, ",\"content_index\":0");
}

static void part_event(struct qr_call *call, const struct qr_item *item, struct qr_buf *out, const char *type, bool done)
{
    if (item->part == QR_PART_CALL)
        return;
    begin_inner(call, item, out, type);
    qr_buf_put_str(out, ",\"part\":");
    put_part(out, item, done ? &item->text : NULL, done ? &call->choice[0].logprob[1] : NULL);
    end_event(out);
}

/* ---- hooks ---- */

static void begin(struct qr_call *call, struct qr_buf *out)
{
    response_event(call, out, "response.created", "in_progress");
    response_event(call, out, "response.in_progress", "in_progress");
}

static void item_begin(struct qr_call *call, const struct qr_item *item, struct qr_buf *out)
{
    item_event(call, item, out, "response.output_item.added", false);
    part_event(call, item, out, "response.content_part.added", false);
}

/* Log-probabilities that have come since the last text belong to this one; logprob[1] has all of the item. */
static void take_logprobs(struct qr_call *call, const struct qr_item *item, struct qr_buf *out)
{
    struct qr_buf *now = &call->choice[0].logprob[0], *all = &call->choice[0].logprob[1];
    if (item->part != QR_PART_CONTENT)
        return;
    if (out) {
        qr_buf_put_str(out, ",\"logprobs\":[");
        put_buf(out, now);
        qr_buf_put_byte(out, ']');
    }
    if (now->len > 0) {
        if (all->len > 0)
            qr_buf_put_byte(all, ',');
        put_buf(all, now);
    }
    qr_buf_clear(now);
}

static void item_text(struct qr_call *call, const struct qr_item *item, const char *text, size_t n, struct qr_buf *out)
{
    begin_inner(call, item, out, item->part == QR_PART_CALL        ? "response.function_call_arguments.delta"
                                 : item->part == QR_PART_REASONING ? "response.reasoning_text.delta"
                                                                   : "response.output_text.delta");
    qr_buf_put_str(out, ",\"delta\":");
    qr_json_put_str(out, text, n);
    take_logprobs(call, item, out);
    end_event(out);
}

static void item_end(struct qr_call *call, const struct qr_item *item, struct qr_buf *out)
{
    struct qr_choice *choice = &call->choice[0];
    const bool is_call = item->part == QR_PART_CALL;
    take_logprobs(call, item, NULL);
    begin_inner(call, item, out, is_call                            ? "response.function_call_arguments.done"
                                 : item->part == QR_PART_REASONING ? "response.reasoning_text.done"
                                                                   : "response.output_text.done");
    if (is_call) {
        qr_buf_put_str(out, ",\"name\":");
        put_str(out, &item->name);
    }
    qr_buf_put_str(out, is_call ? ",\"arguments\":" : ",\"text\":");
    put_str(out, &item->text);
    if (item->part == QR_PART_CONTENT) {
        qr_buf_put_str(out, ",\"logprobs\":[");
        put_buf(out, &choice->logprob[1]);
        qr_buf_put_byte(out, ']');
    }
    end_event(out);
    part_event(call, item, out, "response.content_part.done", true);
    item_event(call, item, out, "response.output_item.done", true);
    qr_buf_put_str(&choice->text, choice->text.len > 0 ? "," : "");
    put_item(&choice->text, call, item, true);
    qr_buf_clear(&choice->logprob[1]);
}

/* The response, which ends what `out` has, is stored with its conversation. Without memory for it that is cut off: then not. */
static void store(struct qr_call *call, const struct qr_buf *out, size_t begin, const struct qr_account *account)
{
    const struct qr_responses_kept *kept = kept_of(call);
    const struct qr_buf *said = &call->choice[0].text;
    if (!kept->store || account->failure != QR_ACCOUNT_OK || call->account.failure != QR_ACCOUNT_OK)
        return;
    const struct qr_response_text part[QR_RESPONSE_PARTS] = {
        [QR_RESPONSE_BODY] = {out->data + begin, out->len - begin}, [QR_RESPONSE_OUTPUT] = {said->data, said->len},
        [QR_RESPONSE_INPUT] = {call->door_kept.data + sizeof *kept + kept->n_members, kept->n_items}};
    qr_responses_put(call->server->responses, &call->digest, call->id, part);
}

/* The stream's last event; the response is stored. */
static void last_event(struct qr_call *call, struct qr_buf *out, const char *type, const char *status)
{
    begin_event(call, out, type);
    qr_buf_put_str(out, ",\"response\":");
    const size_t begin = out->len;
    put_response(out, call, status);
    store(call, out, begin, &call->server->scratch_account);
    end_event(out);
}

static void end(struct qr_call *call, struct qr_buf *out)
{
    const char *status = status_of(call);
    QR_ASSERT(call->n_choices == 1);
    last_event(call, out, strcmp(status, "incomplete") == 0 ? "response.incomplete" : "response.completed", status);
}

static void whole(struct qr_call *call, struct qr_buf *out)
{
    QR_ASSERT(call->n_choices == 1);
    QR_ASSERT(!call->params.stream);
    put_response(out, call, status_of(call));
    store(call, out, 0, &call->account);
}

static void fail(struct qr_call *call, struct qr_buf *out)
{
    QR_ASSERT(call->error.status != 0);
    QR_ASSERT(call->params.stream);
    last_event(call, out, "response.failed", call->error.code && strcmp(call->error.code, QR_CANCELLED) == 0 ? "cancelled" : "failed");
}

void qr_responses_cancelled(struct qr_call *call, struct qr_buf *out)
{
    QR_ASSERT(call != NULL && out != NULL);
    QR_ASSERT(call->kind->door == &qr_door_responses && call->error.status == 0);
    put_response(out, call, "cancelled");
    store(call, out, 0, &call->account);
}

const struct qr_door qr_door_responses = {
    .id_prefix = "resp_", .call_prefix = "call_", .stream_type = QR_SSE_TYPE, .ping = ": waiting\n\n", .bounds_length = true, .keeps_items = true,
    .tells_whole = true, .field = qr_responses_field, .n_fields = QR_RESPONSES_FIELDS, .settle = qr_responses_settle, .path = qr_responses_path,
    .n_paths = QR_RESPONSES_PATHS, .begin = begin, .item_begin = item_begin, .item_text = item_text, .item_end = item_end, .end = end, .fail = fail,
    .whole = whole};

/* POST /v1/responses/input_tokens. */
static void prepare_tokens(struct qr_call *call)
{
    int32_t n;
    if (qr_call_count_prompt(call, &n))
        qr_buf_printf(&call->reply, "{\"object\":\"response.input_tokens\",\"input_tokens\":%d}", n);
}

const struct qr_call_kind qr_call_responses = {.api = QR_API_CHAT, .counted = QR_COUNTED_RESPONSES, .door = &qr_door_responses,
                                               .prepare = qr_call_prepare_chat},
                          qr_call_response_tokens = {.api = QR_API_CHAT, .counted = QR_COUNTED_TOKENIZE, .door = &qr_door_responses,
                                                     .prepare = prepare_tokens};
