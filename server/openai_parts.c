/* openai_parts.c - an answer that is more than content: reasoning, content and calls of tools, as the dialect's parser tells them apart. What of one kind comes
 * with one event is put together; in a stream it becomes a delta, else it joins the choice. A special token that is no marker leaves the text here, as
 * the engine gives the text with all of them. The call's thread, in its account. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/json.h"
#include "server/forms.h"
#include "server/openai_write.h"

struct teller {
    struct qr_call *call;
    struct qr_choice *choice;
};

/* ---- special tokens ---- */

static bool is_marker(const struct qr_call *call, const char *text, size_t n)
{
    const struct qr_dialect *d = qr_forms_dialect(call->server->forms);
    const char *const marker[] = {qr_dialect_think_start(d), qr_dialect_think_end(d)};
    for (int i = 0; i < QR_COUNT(marker); i++)
        if (strlen(marker[i]) == n && memcmp(marker[i], text, n) == 0)
            return true;
    return false;
}

/* Remembers those that the event brings: their texts are looked for in what is said. */
static void note_specials(const struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev)
{
    const struct qr_tokenizer *t = call->server->model.tokenizer;
    for (int32_t i = 0; i < ev->n_tokens; i++) {
        const int32_t id = ev->token[i].id;
        int32_t k = 0;
        if (!qr_tokenizer_is_special(t, id))
            continue;
        while (k < choice->n_special && choice->special[k] != id)
            k++;
        if (k == choice->n_special && k < QR_SPECIALS_SEEN)
            choice->special[choice->n_special++] = id;
    }
}

static void cut_out(struct qr_buf *b, const char *text, size_t n)
{
    char *at, *from = b->data;
    while (n > 0 && b->len > 0 && (at = memmem(from, b->len - (size_t)(from - b->data), text, n)) != NULL) {
        memmove(at, at + n, b->len - (size_t)(at - b->data) - n);
        b->len -= n;
        b->data[b->len] = 0;
        from = at;
    }
}

/* Markers of thinking stay where the request wants them in the content. */
static void cut_specials(const struct qr_call *call, struct qr_choice *choice)
{
    for (int32_t i = 0; i < choice->n_special && choice->said.data; i++) {
        size_t n;
        const char *text = qr_tokenizer_token_bytes(call->server->model.tokenizer, choice->special[i], &n);
        if (call->params.thinking.separate || !is_marker(call, text, n))
            cut_out(&choice->said, text, n);
    }
}

/* ---- what is said ---- */

/* `"name":"text"` */
static void put_text_member(struct qr_buf *out, const char *name, const struct qr_buf *text)
{
    qr_json_put_name(out, name);
    qr_json_put_str(out, text->data ? text->data : "", text->len);
}

/* The same text under both names that clients know. */
static void put_reasoning(struct qr_buf *out, const struct qr_buf *text)
{
    put_text_member(out, "reasoning_content", text);
    put_text_member(out, "reasoning", text);
}

static void put_arguments_delta(struct qr_buf *out, const struct qr_choice *choice, const char *text, size_t n)
{
    qr_buf_printf(out, "{\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":", choice->n_calls - 1);
    qr_json_put_str(out, text, n);
    qr_buf_put_str(out, "}}]}\n");
}

static void put_delta(struct qr_choice *choice)
{
    struct qr_buf *out = &choice->deltas;
    if (choice->part == QR_PART_ARGUMENTS) {
        put_arguments_delta(out, choice, choice->said.data, choice->said.len);
        return;
    }
    qr_buf_put_byte(out, '{');
    if (choice->part == QR_PART_REASONING)
        put_reasoning(out, &choice->said);
    else
        put_text_member(out, "content", &choice->said);
    qr_buf_put_str(out, "}\n");
}

/* What was said of one kind is complete. */
static void end_piece(const struct teller *t)
{
    struct qr_choice *choice = t->choice;
    const bool reasoning = choice->part == QR_PART_REASONING, arguments = choice->part == QR_PART_ARGUMENTS;
    if (!arguments && t->call->params.sampling.skip_special)
        cut_specials(t->call, choice);
    if (choice->said.len > 0 && (!reasoning || t->call->params.thinking.include)) {
        if (t->call->kind->door)
            qr_door_said(t->call, choice, choice->part, choice->said.data, choice->said.len);
        else if (t->call->params.stream)
            put_delta(choice);
        else
            qr_buf_put(arguments ? &choice->arguments : reasoning ? &choice->reasoning : &choice->text, choice->said.data, choice->said.len);
    }
    qr_buf_clear(&choice->said);
}

/* An id that is a function of the request, the choice and the call. */
static void make_id(char out[40], const struct teller *t)
{
    const struct qr_door *door = t->call->kind->door;
    const int64_t place[2] = {t->choice - t->call->choice, t->choice->n_calls};
    const uint64_t a = qr_hash64(t->call->id, strlen(t->call->id), 0), b = qr_hash64(place, sizeof place, a);
    if (qr_dialect_short_ids(qr_forms_dialect(t->call->server->forms))) /* the template refuses others when the call comes back */
        snprintf(out, 40, "%09llx", (unsigned long long)(b & 0xfffffffffu));
    else
        snprintf(out, 40, "%.12s%016llx%08llx", door ? door->call_prefix : "call_", (unsigned long long)b, (unsigned long long)(a & 0xffffffffu));
}

/* Up to where its arguments stand. */
static void begin_call(const struct teller *t, const struct qr_part_text *part)
{
    struct qr_choice *choice = t->choice;
    const bool stream = t->call->params.stream;
    char made[40];
    const char *id = part->id ? part->id : made; /* the family's own */
    make_id(made, t);
    choice->call_open = choice->call_bare = true;
    if (t->call->kind->door) {
        choice->n_calls++;
        qr_door_call_begin(t->call, choice, part->text, part->len, id);
        return;
    }
    struct qr_buf *out = stream ? &choice->deltas : &choice->calls;
    if (stream)
        qr_buf_printf(out, "{\"tool_calls\":[{\"index\":%d,\"id\":", choice->n_calls);
    else
        qr_buf_put_str(out, choice->n_calls ? ",{\"id\":" : "{\"id\":");
    qr_json_put_str(out, id, strlen(id));
    qr_buf_put_str(out, ",\"type\":\"function\",\"function\":{\"name\":");
    qr_json_put_str(out, part->text, part->len);
    qr_buf_put_str(out, stream ? ",\"arguments\":\"\"}}]}\n" : ",\"arguments\":");
    choice->n_calls++;
}

static void end_call(const struct teller *t, bool whole)
{
    struct qr_choice *choice = t->choice;
    if (!choice->call_open)
        return;
    choice->call_open = false;
    const bool bare = whole && choice->call_bare; /* a call without arguments has an empty object of them */
    if (t->call->kind->door) {
        qr_door_call_end(t->call, choice, bare, whole);
        return;
    }
    if (t->call->params.stream) {
        if (bare)
            put_arguments_delta(&choice->deltas, choice, "{}", 2);
        return;
    }
    qr_json_put_str(&choice->calls, bare ? "{}" : choice->arguments.data ? choice->arguments.data : "", bare ? 2 : choice->arguments.len);
    qr_buf_put_str(&choice->calls, "}}");
    qr_buf_clear(&choice->arguments);
}

static void said(void *user, const struct qr_part_text *part)
{
    const struct teller *t = user;
    struct qr_choice *choice = t->choice;
    if (part->part != choice->part)
        end_piece(t);
    choice->part = part->part;
    switch (part->part) {
    case QR_PART_ARGUMENTS: choice->call_bare &= part->len == 0; /* fall through */
    case QR_PART_CONTENT:
    case QR_PART_REASONING: qr_buf_put(&choice->said, part->text, part->len); break;
    case QR_PART_CALL: begin_call(t, part); break;
    case QR_PART_CALL_END: end_call(t, true); break;
    }
}

void qr_parts_feed(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev)
{
    QR_ASSERT(call != NULL && choice != NULL && ev != NULL);
    QR_ASSERT(choice->parser != NULL);
    struct teller t = {.call = call, .choice = choice};
    const bool end = ev->finish != QR_FINISH_NONE;
    if (!call->kind->door)
        qr_buf_clear(&choice->deltas);
    note_specials(call, choice, ev);
    qr_answer_parser_feed(choice->parser, ev->text, (size_t)ev->text_len, end, said, &t);
    end_piece(&t);
    if (end)
        end_call(&t, false);
}

void qr_parts_put_members(struct qr_buf *out, const struct qr_choice *choice)
{
    QR_ASSERT(out != NULL && choice != NULL);
    QR_ASSERT(!choice->call_open);
    if (choice->reasoning.len > 0)
        put_reasoning(out, &choice->reasoning);
    if (choice->calls.len > 0) {
        qr_buf_put_str(out, ",\"tool_calls\":[");
        qr_buf_put(out, choice->calls.data, choice->calls.len);
        qr_buf_put_byte(out, ']');
    }
}
