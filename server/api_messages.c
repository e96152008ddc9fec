/* api_messages.c - POST /v1/messages and /v1/messages/count_tokens: answers in the shapes of Anthropic's Messages API. Each item of an answer is a block
 * of content; a stream has message_start, the blocks one behind the other, message_delta and message_stop. The loop thread, in the call's account;
 * counting is the pool's. */
#include <string.h>

#include "base/assert.h"
#include "server/call.h"
#include "server/messages.h"

#define SIGNATURE "unsigned" /* of thinking: clients send it back, and it is ignored */

/* ---- parts of both ---- */

static void put_usage(struct qr_buf *out, const struct qr_call *call)
{
    const struct qr_piece *p = &call->piece[0];
    qr_buf_printf(out, "{\"input_tokens\":%d,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%d,\"output_tokens\":%d}", p->n_prompt - p->n_cached,
                  p->n_cached, call->choice[0].n_output);
}

static void put_str(struct qr_buf *out, const struct qr_buf *text)
{
    qr_json_put_str(out, text->data ? text->data : "", text->len);
}

/* Up to its content. */
static void put_head(struct qr_buf *out, const struct qr_call *call)
{
    qr_buf_printf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", call->id);
    qr_json_put_str(out, call->model, strlen(call->model));
    qr_buf_put_str(out, ",\"content\":[");
}

/* "stop_reason":...,"stop_sequence":... */
static void put_stop(struct qr_buf *out, const struct qr_call *call)
{
    const struct qr_choice *choice = &call->choice[0];
    const struct qr_sampling *s = &call->params.sampling;
    const bool sequence = choice->finish == QR_FINISH_STOP && choice->stop_index >= 0 && choice->stop_index < s->n_stops;
    const char *reason = choice->finish == QR_FINISH_LENGTH ? "max_tokens" : sequence ? "stop_sequence" : choice->n_calls > 0 ? "tool_use" : "end_turn";
    qr_buf_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
    if (sequence)
        qr_json_put_str(out, s->stop[choice->stop_index], strlen(s->stop[choice->stop_index]));
    else
        qr_buf_put_str(out, "null");
}

static void put_call_head(struct qr_buf *out, const struct qr_item *item)
{
    qr_buf_put_str(out, "{\"type\":\"tool_use\",\"id\":");
    put_str(out, &item->id);
    qr_buf_put_str(out, ",\"name\":");
    put_str(out, &item->name);
    qr_buf_put_str(out, ",\"input\":");
}

/* ---- stream ---- */

static void begin_event(struct qr_buf *out, const char *type)
{
    qr_buf_printf(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void begin_block_event(struct qr_buf *out, const char *type, const struct qr_item *item)
{
    begin_event(out, type);
    qr_buf_put_str(out, ",\"index\":");
    qr_buf_put_i64(out, item->index);
}

static void begin(struct qr_call *call, struct qr_buf *out)
{
    begin_event(out, "message_start");
    qr_buf_put_str(out, ",\"message\":");
    put_head(out, call);
    qr_buf_put_str(out, "],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
    put_usage(out, call);
    qr_buf_put_str(out, "}}\n\n");
}

static void item_begin(struct qr_call *call, const struct qr_item *item, struct qr_buf *out)
{
    begin_block_event(out, "content_block_start", item);
    qr_buf_put_str(out, ",\"content_block\":");
    if (item->part == QR_PART_CALL) {
        put_call_head(out, item);
        qr_buf_put_str(out, "{}}");
    } else {
        qr_buf_put_str(out, item->part == QR_PART_CONTENT ? "{\"type\":\"text\",\"text\":\"\"}"
                                                          : "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    }
    qr_buf_put_str(out, "}\n\n");
}

static void item_text(struct qr_call *call, const struct qr_item *item, const char *text, size_t n, struct qr_buf *out)
{
    begin_block_event(out, "content_block_delta", item);
    qr_buf_put_str(out, item->part == QR_PART_CALL      ? ",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":"
                        : item->part == QR_PART_CONTENT ? ",\"delta\":{\"type\":\"text_delta\",\"text\":"
                                                        : ",\"delta\":{\"type\":\"thinking_delta\",\"thinking\":");
    qr_json_put_str(out, text, n);
    qr_buf_put_str(out, "}}\n\n");
}

static void item_end(struct qr_call *call, const struct qr_item *item, struct qr_buf *out)
{
    if (item->part == QR_PART_REASONING) {
        begin_block_event(out, "content_block_delta", item);
        qr_buf_put_str(out, ",\"delta\":{\"type\":\"signature_delta\",\"signature\":\"" SIGNATURE "\"}}\n\n");
    }
    begin_block_event(out, "content_block_stop", item);
    qr_buf_put_str(out, "}\n\n");
}

static void end(struct qr_call *call, struct qr_buf *out)
{
    begin_event(out, "message_delta");
    qr_buf_put_str(out, ",\"delta\":{");
    put_stop(out, call);
    qr_buf_put_str(out, "},\"usage\":");
    put_usage(out, call);
    qr_buf_put_str(out, "}\n\n");
    begin_event(out, "message_stop");
    qr_buf_put_str(out, "}\n\n");
}

/* ---- whole ---- */

static void put_block(struct qr_buf *out, const struct qr_item *item)
{
    qr_buf_put_comma(out);
    if (item->part == QR_PART_CALL) {
        put_call_head(out, item);
        qr_item_put_object(out, item);
    } else if (item->part == QR_PART_CONTENT) {
        qr_buf_put_str(out, "{\"type\":\"text\",\"text\":");
        put_str(out, &item->text);
    } else {
        qr_buf_put_str(out, "{\"type\":\"thinking\",\"thinking\":");
        put_str(out, &item->text);
        qr_buf_put_str(out, ",\"signature\":\"" SIGNATURE "\"");
    }
    qr_buf_put_byte(out, '}');
}

static void whole(struct qr_call *call, struct qr_buf *out)
{
    const struct qr_items *items = &call->choice[0].items;
    QR_ASSERT(call->n_choices == 1);
    QR_ASSERT(!call->params.stream);
    put_head(out, call);
    for (int32_t i = 0; i < items->n; i++)
        put_block(out, &items->item[i]);
    qr_buf_put_str(out, "],");
    put_stop(out, call);
    qr_buf_put_str(out, ",\"usage\":");
    put_usage(out, call);
    qr_buf_put_byte(out, '}');
}

/* ---- errors ---- */

static const struct {
    int32_t from, to; /* statuses: inside, and of this API */
    const char *type;
} error_row[] = {
    {401, 401, "authentication_error"}, {403, 403, "permission_error"}, {404, 404, "not_found_error"}, {413, 413, "request_too_large"},
    {429, 429, "rate_limit_error"},     {503, 529, "overloaded_error"}, {504, 504, "timeout_error"},
};

static int32_t status(const struct qr_api_error *e)
{
    for (int i = 0; i < QR_COUNT(error_row); i++)
        if (error_row[i].from == e->status)
            return error_row[i].to;
    return e->status;
}

static void put_error(struct qr_buf *out, const struct qr_api_error *e, bool stream)
{
    const char *type = e->status >= 500 ? "api_error" : "invalid_request_error";
    struct qr_buf message = {0};
    for (int i = 0; i < QR_COUNT(error_row); i++)
        if (error_row[i].from == e->status)
            type = error_row[i].type;
    if (e->code && strcmp(e->code, "context_length_exceeded") == 0)
        qr_buf_put_str(&message, "prompt is too long: "); /* by these words clients know it */
    qr_buf_put_str(&message, e->message);
    qr_buf_printf(out, "%s{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", stream ? "event: error\ndata: " : "", type);
    put_str(out, &message);
    if (strcmp(e->param, QR_MESSAGES_THREAD) == 0) /* by this the client knows that it may go on without */
        qr_buf_put_str(out, ",\"details\":{\"error_code\":\"thread_unsupported_request\",\"unsupported\":[\"thread\"]}");
    qr_buf_put_str(out, stream ? "}}\n\n" : "}}");
    qr_buf_release(&message);
}

/* ---- the doors ---- */

#define MESSAGES                                                                                                                                              \
    .id_prefix = "msg_", .call_prefix = "toolu_", .stream_type = QR_SSE_TYPE, .ping = ": waiting\n\n", .bounds_length = true, .field = qr_messages_field,      \
    .n_fields = QR_MESSAGES_FIELDS, .path = qr_messages_path, .n_paths = QR_MESSAGES_PATHS, .status = status, .error = put_error

const struct qr_door qr_door_messages = {MESSAGES, .settle = qr_messages_need_max_tokens, .begin = begin, .item_begin = item_begin, .item_text = item_text,
                                         .item_end = item_end, .end = end, .whole = whole};
static const struct qr_door door_count = {MESSAGES};

static void prepare_count(struct qr_call *call)
{
    int32_t n;
    if (qr_call_count_prompt(call, &n))
        qr_buf_printf(&call->reply, "{\"input_tokens\":%d}", n);
}

const struct qr_call_kind qr_call_messages = {.api = QR_API_CHAT, .counted = QR_COUNTED_MESSAGES, .door = &qr_door_messages, .prepare = qr_call_prepare_chat},
                          qr_call_count_tokens = {.api = QR_API_CHAT, .counted = QR_COUNTED_TOKENIZE, .door = &door_count, .prepare = prepare_count};
