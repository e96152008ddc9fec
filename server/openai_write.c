/* openai_write.c - answers as JSON text: whole bodies, stream chunks, usage. Events are collected per choice until the
 * answer is whole, or written at once in a stream. Stop texts, token ids and log-probabilities appear where the request
 * wanted them. Appends to buffers and knows no connection. The call's thread, one at a time. */
#include "server/openai_write.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/json.h"
#include "server/disagg.h"

static bool is_chat(const struct qr_call *call)
{
    return call->kind->api == QR_API_CHAT;
}

void qr_write_head(struct qr_call *call)
{
    QR_ASSERT(call != NULL && call->model != NULL);
    QR_ASSERT(call->head.len == 0);
    const char *object = !is_chat(call) ? "text_completion" : call->params.stream ? "chat.completion.chunk" : "chat.completion";
    struct qr_buf *b = &call->head;
    if (call->params.stream)
        qr_buf_put_str(b, "data: ");
    qr_buf_printf(b, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", call->id, object, (long long)call->created_s);
    qr_json_put_str(b, call->model, strlen(call->model));
    qr_buf_printf(b, ",\"system_fingerprint\":\"%s\",\"choices\":[", call->server->fingerprint);
}

static void put_head(struct qr_buf *out, const struct qr_call *call)
{
    qr_buf_put(out, call->head.data, call->head.len);
}

static void put_ids(struct qr_buf *out, const struct qr_event *ev)
{
    for (int32_t i = 0; i < ev->n_tokens; i++) {
        qr_buf_put_comma(out);
        qr_buf_put_i64(out, ev->token[i].id);
    }
}

/* A buffer of JSON as the member `name`; nothing where it is empty. */
static void put_member(struct qr_buf *out, const char *name, const struct qr_buf *json)
{
    if (json->len == 0)
        return;
    qr_buf_printf(out, ",\"%s\":", name);
    qr_buf_put(out, json->data, json->len);
}

static void put_usage(struct qr_buf *out, const struct qr_call *call)
{
    int64_t prompt = 0, cached = 0, output = 0, reasoning = 0, accepted = 0, rejected = 0;
    for (int32_t i = 0; i < call->n_pieces; i++) {
        prompt += call->piece[i].n_prompt;
        cached += call->piece[i].n_cached;
    }
    for (int32_t i = 0; i < call->n_choices; i++) {
        output += call->choice[i].n_output;
        reasoning += call->choice[i].n_reasoning;
        accepted += call->choice[i].n_accepted;
        rejected += call->choice[i].n_rejected;
    }
    qr_buf_printf(out, "{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
                       "\"prompt_tokens_details\":{\"cached_tokens\":%lld},\"completion_tokens_details\":{\"reasoning_tokens\":%lld,"
                       "\"accepted_prediction_tokens\":%lld,\"rejected_prediction_tokens\":%lld}}",
                  (long long)prompt, (long long)output, (long long)(prompt + output), (long long)cached, (long long)reasoning, (long long)accepted,
                  (long long)rejected);
}

/* llama.cpp's: tokens of a phase, its time, and that as a rate. */
static void put_phase(struct qr_buf *out, const char *name, int64_t n, int64_t us)
{
    const double ms = (double)us * 1e-3;
    qr_buf_printf(out, "\"%s_n\":%lld,\"%s_ms\":%.3f,\"%s_per_token_ms\":%.3f,\"%s_per_second\":%.3f", name, (long long)n, name, ms, name,
                  n > 0 ? ms / (double)n : 0, name, us > 0 ? (double)n * 1e6 / (double)us : 0);
}

/* Where the request wants them and all choices have ended. Of several prompts, and choices, the sums: times that overlap count each. */
static void put_timings(struct qr_buf *out, const struct qr_call *call)
{
    int64_t prompt = 0, cached = 0, prompt_us = 0, output = 0, output_us = 0, drafted = 0, accepted = 0;
    if (!call->params.timings)
        return;
    for (int32_t i = 0; i < call->n_choices; i++) {
        const struct qr_choice *c = &call->choice[i];
        if (c->finish == QR_FINISH_NONE)
            return;
        output += c->n_output;
        output_us += c->piece->first_token_us > 0 ? c->ended_us - c->piece->first_token_us : 0;
        accepted += c->n_accepted;
        drafted += c->n_accepted + c->n_rejected;
    }
    for (int32_t i = 0; i < call->n_pieces; i++) {
        const struct qr_piece *p = &call->piece[i];
        cached += p->n_cached;
        prompt += p->n_prompt - p->n_cached;
        prompt_us += p->first_token_us > 0 ? p->first_token_us - p->admitted_us : 0;
    }
    qr_buf_printf(out, ",\"timings\":{\"cache_n\":%lld,", (long long)cached);
    put_phase(out, "prompt", prompt, prompt_us);
    qr_buf_put_byte(out, ',');
    put_phase(out, "predicted", output, output_us);
    qr_buf_printf(out, ",\"draft_n\":%lld,\"draft_n_accepted\":%lld}", (long long)drafted, (long long)accepted);
}

static const char *finish_text(const struct qr_choice *choice)
{
    if (choice->finish == QR_FINISH_STOP)
        return choice->n_calls > 0 ? "\"tool_calls\"" : "\"stop\"";
    return choice->finish == QR_FINISH_LENGTH ? "\"length\"" : "null";
}

/* vLLM's stop_reason: which stop string or stop id ended the text; absent when it was the model's own end. */
static void put_stop_reason(struct qr_buf *out, const struct qr_call *call, const struct qr_choice *choice)
{
    const struct qr_sampling *s = &call->params.sampling;
    if (choice->finish != QR_FINISH_STOP)
        return;
    if (choice->stop_index >= 0 && choice->stop_index < s->n_stops) {
        qr_buf_put_str(out, ",\"stop_reason\":");
        qr_json_put_str(out, s->stop[choice->stop_index], strlen(s->stop[choice->stop_index]));
        return;
    }
    for (int32_t i = 0; i < s->n_stop_ids; i++)
        if (s->stop_ids[i] == choice->stop_id) {
            qr_buf_put_str(out, ",\"stop_reason\":");
            qr_buf_put_i64(out, choice->stop_id);
            return;
        }
}

static void note_event(struct qr_choice *choice, const struct qr_event *ev)
{
    choice->n_output = ev->n_output;
    choice->finish = ev->finish;
    choice->piece->admitted_us = ev->req->admitted_us;
    choice->piece->first_token_us = ev->req->first_token_us;
    if (ev->finish != QR_FINISH_NONE) {
        choice->n_reasoning = ev->req->n_reasoning[ev->choice];
        choice->n_accepted = ev->req->n_accepted[ev->choice];
        choice->n_rejected = ev->req->n_rejected[ev->choice];
        choice->ended_us = qr_clock_us();
    }
    choice->stop_index = ev->stop_index;
    choice->stop_id = ev->stop_id;
}

/* The request is freed with its last event, so what it says about the prompt is written at the first. */
void qr_write_prompt_parts(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev)
{
    QR_ASSERT(call != NULL && choice != NULL);
    QR_ASSERT(ev != NULL && ev->req != NULL);
    struct qr_piece *piece = choice->piece;
    const struct qr_request *r = ev->req;
    if (choice->begun)
        return;
    if (call->params.prompt_logprobs && r->prompt_logprobs && piece->prompt_logprobs.len == 0)
        qr_prompt_logprobs_put(&piece->prompt_logprobs, call, r->prompt_logprobs, r->n_prompt);
    if (!call->params.echo)
        return;
    qr_buf_put(&choice->text, piece->prompt_text.data ? piece->prompt_text.data : "", piece->prompt_text.len);
    if (call->params.logprobs && r->prompt_logprobs)
        qr_logprobs_begin_prompt(call, choice, r->ids[0], r->n_prompt);
    for (int32_t i = 0; call->params.logprobs && r->prompt_logprobs && i < r->n_prompt; i++) {
        struct qr_token_logprob t = r->prompt_logprobs[i];
        t.id = r->ids[0][i];
        qr_logprobs_add(call, choice, &t, i > 0);
    }
}

static void add_logprobs(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev)
{
    for (int32_t i = 0; call->params.logprobs && i < ev->n_tokens; i++)
        qr_logprobs_add(call, choice, &ev->token[i], true);
}

void qr_write_note(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev)
{
    QR_ASSERT(call != NULL && choice != NULL);
    QR_ASSERT(ev != NULL);
    note_event(choice, ev);
    add_logprobs(call, choice, ev);
}

void qr_write_collect(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev)
{
    QR_ASSERT(call != NULL && choice != NULL);
    QR_ASSERT(!call->params.stream);
    choice->begun = true;
    note_event(choice, ev);
    if (!choice->parser)
        qr_buf_put(&choice->text, ev->text, (size_t)ev->text_len);
    if (call->params.return_token_ids)
        put_ids(&choice->ids, ev);
    add_logprobs(call, choice, ev);
}

/* ---- stream ---- */

static void end_chunk(struct qr_buf *out, const struct qr_call *call, bool ends)
{
    qr_buf_put_str(out, "}]");
    if (call->params.continuous_usage) {
        qr_buf_put_str(out, ",\"usage\":");
        put_usage(out, call);
    } else if (call->params.include_usage) {
        qr_buf_put_str(out, ",\"usage\":null");
    }
    if (ends && !call->params.include_usage) /* else the chunk of usage has them */
        put_timings(out, call);
    qr_buf_put_str(out, "}\n\n");
}

static void put_index(struct qr_buf *out, const struct qr_call *call, const struct qr_choice *choice)
{
    qr_buf_put_str(out, "{\"index\":");
    qr_buf_put_i64(out, choice - call->choice);
}

static void begin_chunk(struct qr_buf *out, const struct qr_call *call, const struct qr_choice *choice)
{
    put_head(out, call);
    put_index(out, call, choice);
}

static void put_logprobs(struct qr_buf *out, const struct qr_call *call, struct qr_choice *choice, bool present)
{
    qr_buf_put_str(out, ",\"logprobs\":");
    if (call->params.logprobs && present)
        qr_logprobs_put(out, call, choice);
    else
        qr_buf_put_str(out, "null");
}

static void put_finish(struct qr_buf *out, const struct qr_call *call, const struct qr_choice *choice)
{
    qr_buf_put_str(out, ",\"finish_reason\":");
    qr_buf_put_str(out, finish_text(choice));
    put_stop_reason(out, call, choice);
}

static void put_chunk_ids(struct qr_buf *out, const struct qr_call *call, const struct qr_event *ev)
{
    if (!call->params.return_token_ids)
        return;
    qr_buf_put_str(out, ",\"token_ids\":[");
    put_ids(out, ev);
    qr_buf_put_byte(out, ']');
}

/* Behind a delta. The first chunk of an event has its log-probabilities and ids. */
static void end_delta(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev, bool first, struct qr_buf *out)
{
    put_logprobs(out, call, choice, choice->logprob[0].len > 0);
    qr_buf_put_str(out, ",\"finish_reason\":null");
    if (first)
        put_chunk_ids(out, call, ev);
    end_chunk(out, call, false);
}

/* False: the event has none. */
static bool parts_chunks(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev, struct qr_buf *out)
{
    const char *const begin = choice->deltas.data, *const end = begin ? begin + choice->deltas.len : NULL, *from = begin, *lf;
    for (; from < end && (lf = memchr(from, '\n', (size_t)(end - from))) != NULL; from = lf + 1) {
        begin_chunk(out, call, choice);
        qr_buf_put_str(out, ",\"delta\":");
        qr_buf_put(out, from, (size_t)(lf - from));
        end_delta(call, choice, ev, from == begin, out);
    }
    return from > begin;
}

static void content_chunk(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev, size_t n, struct qr_buf *out)
{
    begin_chunk(out, call, choice);
    qr_buf_put_str(out, ",\"delta\":{\"content\":");
    qr_json_put_str(out, ev->text, n);
    qr_buf_put_byte(out, '}');
    end_delta(call, choice, ev, true, out);
}

static void chat_chunks(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev, struct qr_buf *out)
{
    if (!choice->begun) {
        begin_chunk(out, call, choice);
        qr_buf_put_str(out, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},\"logprobs\":null,\"finish_reason\":null");
        put_member(out, "prompt_token_ids", &choice->piece->prompt_ids);
        end_chunk(out, call, false);
    }
    const bool wants_tokens = ev->n_tokens > 0 && (call->params.logprobs || call->params.return_token_ids);
    const bool told = choice->parser && parts_chunks(call, choice, ev, out);
    if (!told && ((!choice->parser && ev->text_len > 0) || wants_tokens))
        content_chunk(call, choice, ev, choice->parser ? 0 : (size_t)ev->text_len, out);
    if (ev->finish != QR_FINISH_NONE) {
        begin_chunk(out, call, choice);
        qr_buf_put_str(out, ",\"delta\":{},\"logprobs\":null");
        put_finish(out, call, choice);
        end_chunk(out, call, true);
    }
}

static void completion_chunk(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev, struct qr_buf *out)
{
    bool wants_tokens = ev->n_tokens > 0 && (call->params.logprobs || call->params.return_token_ids);
    if (ev->text_len == 0 && choice->text.len == 0 && !wants_tokens && ev->finish == QR_FINISH_NONE)
        return;
    begin_chunk(out, call, choice);
    qr_buf_put_str(out, ",\"text\":");
    if (choice->text.len > 0) { /* the echoed prompt leaves with the first chunk */
        qr_buf_put(&choice->text, ev->text, (size_t)ev->text_len);
        qr_json_put_str(out, choice->text.data, choice->text.len);
        qr_buf_release(&choice->text);
    } else {
        qr_json_put_str(out, ev->text, (size_t)ev->text_len);
    }
    put_logprobs(out, call, choice, choice->logprob[0].len > 0);
    put_finish(out, call, choice);
    if (!choice->begun)
        put_member(out, "prompt_token_ids", &choice->piece->prompt_ids);
    put_chunk_ids(out, call, ev);
    end_chunk(out, call, ev->finish != QR_FINISH_NONE);
}

void qr_write_chunk(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev, struct qr_buf *out)
{
    QR_ASSERT(call != NULL && choice != NULL);
    QR_ASSERT(ev != NULL && call->params.stream);
    note_event(choice, ev);
    add_logprobs(call, choice, ev);
    if (is_chat(call))
        chat_chunks(call, choice, ev, out);
    else
        completion_chunk(call, choice, ev, out);
    choice->begun = true;
}

void qr_write_stream_end(struct qr_call *call, struct qr_buf *out)
{
    QR_ASSERT(call != NULL && out != NULL);
    QR_ASSERT(call->params.stream);
    if (call->params.include_usage) {
        put_head(out, call);
        qr_buf_put_str(out, "],\"usage\":");
        put_usage(out, call);
        put_timings(out, call);
        qr_buf_put_str(out, "}\n\n");
    }
    qr_buf_put_str(out, "data: [DONE]\n\n");
}

/* ---- whole ---- */

/* What is said of a prompt: chat says it once, completions of each choice. */
static void put_prompt(struct qr_buf *out, const struct qr_piece *piece)
{
    put_member(out, "prompt_token_ids", &piece->prompt_ids);
    put_member(out, "prompt_logprobs", &piece->prompt_logprobs);
}

static void put_message(struct qr_buf *out, const struct qr_choice *choice)
{
    qr_buf_put_str(out, ",\"message\":{\"role\":\"assistant\",\"content\":");
    if (choice->text.len == 0 && choice->n_calls > 0)
        qr_buf_put_str(out, "null");
    else
        qr_json_put_str(out, choice->text.data ? choice->text.data : "", choice->text.len);
    qr_buf_put_str(out, ",\"refusal\":null");
    qr_parts_put_members(out, choice);
    qr_buf_put_byte(out, '}');
}

static void put_choice(struct qr_call *call, struct qr_choice *choice, struct qr_buf *out)
{
    put_index(out, call, choice);
    if (is_chat(call)) {
        put_message(out, choice);
    } else {
        qr_buf_put_str(out, ",\"text\":");
        qr_json_put_str(out, choice->text.data ? choice->text.data : "", choice->text.len);
    }
    put_logprobs(out, call, choice, true);
    put_finish(out, call, choice);
    if (call->params.return_token_ids) {
        qr_buf_put_str(out, ",\"token_ids\":[");
        qr_buf_put(out, choice->ids.data ? choice->ids.data : "", choice->ids.len);
        qr_buf_put_byte(out, ']');
    }
    if (!is_chat(call))
        put_prompt(out, choice->piece);
    qr_buf_put_byte(out, '}');
}

void qr_write_release(struct qr_choice *choice)
{
    struct qr_buf *const held[] = {&choice->text, &choice->ids, &choice->reasoning, &choice->calls, &choice->arguments, &choice->said, &choice->deltas};
    QR_ASSERT(choice != NULL);
    for (int k = 0; k < QR_COUNT(held); k++)
        qr_buf_release(held[k]);
    for (int k = 0; k < QR_LOGPROB_PARTS; k++)
        qr_buf_release(&choice->logprob[k]);
    qr_items_release(&choice->items);
}

void qr_write_whole(struct qr_call *call, struct qr_buf *out)
{
    QR_ASSERT(call != NULL && out != NULL);
    QR_ASSERT(!call->params.stream);
    put_head(out, call);
    for (int32_t i = 0; i < call->n_choices; i++) {
        qr_buf_put_comma(out);
        put_choice(call, &call->choice[i], out);
        qr_write_release(&call->choice[i]); /* an answer may be large, and is not there twice */
    }
    qr_buf_put_str(out, "],\"usage\":");
    put_usage(out, call);
    put_timings(out, call);
    if (is_chat(call))
        put_prompt(out, &call->piece[0]);
    qr_disagg_put(out, call);
    qr_buf_put_byte(out, '}');
}
