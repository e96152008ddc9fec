/* api_ollama.c - ollama's API: /api/chat and /api/generate as doors to chat (ollama_in.c has their fields), and what else its clients ask of a server.
 * A stream is one JSON object a line; calls of tools come whole. Loop thread, in the call's account; what is prepared is the pool's. */
#include <string.h>
#include <time.h>

#include "base/account.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "engine/adapters.h"
#include "server/call.h"
#include "server/forms.h"
#include "server/ollama.h"
#include "server/route.h"

#define VERSION "0.12.0" /* of ollama's API, as its clients compare it with the one that they need */
#define NEVER "9999-12-31T23:59:59Z"

/* ---- parts ---- */

static void put_time(struct qr_buf *out, int64_t at_s)
{
    char text[40];
    struct tm tm;
    time_t t = (time_t)at_s;
    gmtime_r(&t, &tm);
    strftime(text, sizeof text, "\"%Y-%m-%dT%H:%M:%SZ\"", &tm);
    qr_buf_put_str(out, text);
}

static void put_str(struct qr_buf *out, const struct qr_buf *text)
{
    qr_json_put_str(out, text->data ? text->data : "", text->len);
}

static void begin_line(struct qr_buf *out, const struct qr_call *call)
{
    qr_buf_put_str(out, "{\"model\":");
    qr_json_put_str(out, call->model, strlen(call->model));
    qr_buf_put_str(out, ",\"created_at\":");
    put_time(out, call->created_s);
}

/* What one line, or the whole answer, says; thinking and calls (JSON objects) are left out where they are empty. */
struct saying {
    struct qr_buf content, thinking, calls; /* owned */
};

static void release_saying(struct saying *s)
{
    qr_buf_release(&s->content);
    qr_buf_release(&s->thinking);
    qr_buf_release(&s->calls);
}

static bool is_generate(const struct qr_call *call)
{
    return call->kind->door->field == qr_ollama_generate_field;
}

static void put_saying(struct qr_buf *out, const struct qr_call *call, const struct saying *s)
{
    qr_buf_put_str(out, is_generate(call) ? ",\"response\":" : ",\"message\":{\"role\":\"assistant\",\"content\":");
    put_str(out, &s->content);
    if (s->thinking.len > 0) {
        qr_buf_put_str(out, ",\"thinking\":");
        put_str(out, &s->thinking);
    }
    if (s->calls.len > 0) {
        qr_buf_put_str(out, ",\"tool_calls\":[");
        qr_buf_put(out, s->calls.data, s->calls.len);
        qr_buf_put_byte(out, ']');
    }
    qr_buf_put_str(out, is_generate(call) ? "" : "}");
}

static void put_call(struct qr_buf *out, const struct qr_item *item)
{
    qr_buf_put_comma(out);
    qr_buf_put_str(out, "{\"id\":");
    put_str(out, &item->id);
    qr_buf_put_str(out, ",\"function\":{\"name\":");
    put_str(out, &item->name);
    qr_buf_put_str(out, ",\"arguments\":");
    qr_item_put_object(out, item);
    qr_buf_put_str(out, "}}");
}

static void put_logprobs(struct qr_buf *out, struct qr_call *call)
{
    struct qr_buf *items = &call->choice[0].logprob[0];
    if (items->len == 0)
        return;
    qr_buf_put_str(out, ",\"logprobs\":[");
    qr_buf_put(out, items->data, items->len);
    qr_buf_put_byte(out, ']');
    qr_buf_clear(items);
}

/* Times are nanoseconds there. */
static void put_end(struct qr_buf *out, const struct qr_call *call)
{
    const struct qr_choice *choice = &call->choice[0];
    const int64_t now_us = qr_clock_us(), first_us = choice->begun_us > 0 ? choice->begun_us : now_us;
    qr_buf_printf(out, ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%lld,\"load_duration\":0",
                  choice->finish == QR_FINISH_LENGTH ? "length" : "stop", (long long)(now_us - call->arrived_us) * 1000);
    qr_buf_printf(out, ",\"prompt_eval_count\":%d,\"prompt_eval_duration\":%lld", call->piece[0].n_prompt, (long long)(first_us - call->arrived_us) * 1000);
    qr_buf_printf(out, ",\"eval_count\":%d,\"eval_duration\":%lld}", choice->n_output, (long long)(now_us - first_us) * 1000);
}

/* ---- answers ---- */

static void put_line(struct qr_call *call, struct qr_buf *out, struct saying *s)
{
    begin_line(out, call);
    put_saying(out, call, s);
    put_logprobs(out, call);
    qr_buf_put_str(out, ",\"done\":false}\n");
    release_saying(s);
}

static void item_text(struct qr_call *call, const struct qr_item *item, const char *text, size_t n, struct qr_buf *out)
{
    struct saying s = {.content = {0}};
    if (item->part == QR_PART_CALL)
        return;
    qr_buf_put(item->part == QR_PART_CONTENT ? &s.content : &s.thinking, text, n);
    put_line(call, out, &s);
}

static void item_end(struct qr_call *call, const struct qr_item *item, struct qr_buf *out)
{
    struct saying s = {.content = {0}};
    if (item->part != QR_PART_CALL)
        return;
    put_call(&s.calls, item);
    put_line(call, out, &s);
}

static void end(struct qr_call *call, struct qr_buf *out)
{
    const struct saying s = {.content = {0}};
    begin_line(out, call);
    put_saying(out, call, &s);
    put_logprobs(out, call);
    put_end(out, call);
    qr_buf_put_byte(out, '\n');
}

static void whole(struct qr_call *call, struct qr_buf *out)
{
    const struct qr_items *items = &call->choice[0].items;
    struct saying s = {.content = {0}};
    QR_ASSERT(call->n_choices == 1);
    QR_ASSERT(!call->params.stream);
    for (int32_t i = 0; i < items->n; i++) {
        const struct qr_item *item = &items->item[i];
        if (item->part == QR_PART_CALL)
            put_call(&s.calls, item);
        else
            qr_buf_put(item->part == QR_PART_CONTENT ? &s.content : &s.thinking, item->text.data, item->text.len);
    }
    begin_line(out, call);
    put_saying(out, call, &s);
    put_logprobs(out, call);
    put_end(out, call);
    release_saying(&s);
}

static void put_error(struct qr_buf *out, const struct qr_api_error *e, bool stream)
{
    qr_buf_put_str(out, "{\"error\":");
    qr_json_put_str(out, e->message, strlen(e->message));
    qr_buf_put_str(out, stream ? "}\n" : "}");
}

/* ---- the doors ---- */

#define OLLAMA                                                                                                                                                \
    .id_prefix = "ollama-", .call_prefix = "call_", .name_tail = ":latest", .stream_type = "application/x-ndjson", .bounds_length = true,                      \
    .keeps_items = true, .error = put_error
#define ANSWERS                                                                                                                                               \
    OLLAMA, .settle = qr_ollama_settle, .path = qr_ollama_path, .n_paths = QR_OLLAMA_PATHS, .item_text = item_text, .item_end = item_end, .end = end,          \
    .whole = whole

const struct qr_door qr_door_ollama_chat = {ANSWERS, .field = qr_ollama_chat_field, .n_fields = QR_OLLAMA_CHAT_FIELDS};
const struct qr_door qr_door_ollama_generate = {ANSWERS, .field = qr_ollama_generate_field, .n_fields = QR_OLLAMA_GENERATE_FIELDS};
const struct qr_door qr_door_ollama = {OLLAMA};

/* A body without a prompt asks for the model to be loaded, which it is. True: that is answered, or an error. */
static bool answers_load(struct qr_call *call)
{
    const struct qr_json *model = NULL, *prompt = NULL;
    const struct qr_member members[] = {
        {"model", QR_JSON_T_STRING, "a string", .value = &model},
        {is_generate(call) ? "prompt" : "messages", QR_JSON_T_NULL, NULL, .value = &prompt},
    };
    struct qr_json *doc = NULL;
    struct qr_err err = {0};
    const bool read = qr_call_read(&doc, call, members, QR_COUNT(members), &err) == 0;
    const bool load = read && (!prompt || (qr_json_type(prompt) == QR_JSON_T_STRING && !*qr_json_str(prompt, NULL)) ||
                               (qr_json_type(prompt) == QR_JSON_T_ARRAY && qr_json_count(prompt) == 0));
    if (load && qr_call_check_model(call, model)) {
        const struct saying nothing = {.content = {0}};
        begin_line(&call->reply, call);
        put_saying(&call->reply, call, &nothing);
        qr_buf_put_str(&call->reply, ",\"done\":true,\"done_reason\":\"load\"}");
    }
    if (load)
        call->model = NULL; /* it may be a part of the body */
    qr_json_free(doc);
    return load;
}

static void prepare(struct qr_call *call)
{
    if (!answers_load(call))
        qr_call_prepare_chat(call);
}

/* ---- models ---- */

/* Hexadecimal digits that are a function of the program's version and the name: files have no digest here. */
static void put_digest(struct qr_buf *out, const struct qr_server *s, const char *name)
{
    uint64_t h = qr_hash64(s->fingerprint, strlen(s->fingerprint), 0);
    qr_buf_put_str(out, ",\"digest\":\"");
    for (int i = 0; i < 4; i++) {
        h = qr_hash64(name, strlen(name), h);
        qr_buf_printf(out, "%016llx", (unsigned long long)h);
    }
    qr_buf_put_byte(out, '"');
}

static void put_details(struct qr_buf *out, const struct qr_server *s)
{
    const char *family = qr_engine_model(s->model.engine)->arch_name;
    qr_buf_put_str(out, ",\"details\":{\"parent_model\":\"\",\"format\":\"\",\"family\":");
    qr_json_put_str(out, family, strlen(family));
    qr_buf_put_str(out, ",\"families\":[");
    qr_json_put_str(out, family, strlen(family));
    qr_buf_put_str(out, "],\"parameter_size\":\"\",\"quantization_level\":\"\"}");
}

static void put_model(struct qr_buf *out, const struct qr_server *s, const char *name, bool running)
{
    qr_buf_put_comma(out);
    qr_buf_put_str(out, "{\"name\":");
    qr_json_put_str(out, name, strlen(name));
    qr_buf_put_str(out, ",\"model\":");
    qr_json_put_str(out, name, strlen(name));
    qr_buf_put_str(out, ",\"size\":0");
    put_digest(out, s, name);
    put_details(out, s);
    if (running) {
        qr_buf_printf(out, ",\"expires_at\":\"" NEVER "\",\"size_vram\":0,\"context_length\":%d}", qr_engine_limits(s->model.engine)->ctx_max);
        return;
    }
    qr_buf_put_str(out, ",\"modified_at\":");
    put_time(out, s->created_s);
    qr_buf_put_byte(out, '}');
}

/* The model's names, and adapters that requests may name. */
static void reply_models(struct qr_server *s, struct qr_conn *c, bool running)
{
    struct qr_adapter_info *info = qr_alloc(QR_ADAPTERS_MAX, sizeof *info);
    const int32_t n_adapters = qr_engine_adapters(s->model.engine, info, QR_ADAPTERS_MAX);
    struct qr_buf b = {0};
    qr_buf_put_str(&b, "{\"models\":[");
    for (int32_t i = 0; i < s->n_names; i++)
        put_model(&b, s, s->names[i], running);
    for (int32_t i = 0; i < n_adapters; i++)
        if (!info[i].leaving)
            put_model(&b, s, info[i].name, running);
    qr_buf_put_str(&b, "]}");
    qr_free(info);
    struct qr_reply reply = {.status = 200, .content_type = "application/json", .taken = &b};
    qr_conn_reply(c, &reply);
}

void qr_api_tags(struct qr_server *s, struct qr_conn *c)
{
    QR_ASSERT(s != NULL && c != NULL);
    QR_ASSERT(s->n_names > 0);
    reply_models(s, c, false);
}

void qr_api_ps(struct qr_server *s, struct qr_conn *c)
{
    QR_ASSERT(s != NULL && c != NULL);
    QR_ASSERT(s->n_names > 0);
    reply_models(s, c, true);
}

static void put_capabilities(struct qr_buf *out, const struct qr_server *s)
{
    const struct qr_dialect *d = s->forms ? qr_forms_dialect(s->forms) : NULL;
    const struct qr_model_config *m = qr_engine_model(s->model.engine);
    const bool text = !m->headless;
    qr_buf_put_str(out, ",\"capabilities\":[");
    qr_buf_put_str(out, text ? "\"completion\"" : m->classifier ? "" : "\"embedding\"");
    qr_buf_put_str(out, text && d ? ",\"tools\"" : ""); /* where the template shows none a message does */
    qr_buf_put_str(out, text && d && qr_dialect_has_reasoning(d) ? ",\"thinking\"" : "");
    qr_buf_put_byte(out, ']');
}

static void put_info(struct qr_buf *out, const char *family, const char *name, int32_t value)
{
    struct qr_buf key = {0};
    qr_buf_printf(&key, "%s.%s", family, name);
    qr_buf_put_byte(out, ',');
    put_str(out, &key);
    qr_buf_printf(out, ":%d", value);
    qr_buf_release(&key);
}

static void prepare_show(struct qr_call *call)
{
    const struct qr_server *s = call->server;
    const struct qr_json *model = NULL, *name = NULL;
    const struct qr_member members[] = {
        {"model", QR_JSON_T_STRING, "a string", .value = &model},
        {"name", QR_JSON_T_STRING, "a string", .value = &name},
    };
    struct qr_err err = {0};
    struct qr_buf *b = &call->reply;
    if (qr_call_read(&call->params.doc, call, members, QR_COUNT(members), &err) != 0) {
        qr_call_fail(call, &err);
        return;
    }
    if (!qr_call_check_model(call, model ? model : name))
        return;
    const struct qr_model_config *m = qr_engine_model(s->model.engine);
    qr_buf_put_str(b, "{\"modelfile\":\"\",\"parameters\":\"\",\"template\":\"\"");
    put_details(b, s);
    qr_buf_put_str(b, ",\"model_info\":{\"general.architecture\":");
    qr_json_put_str(b, m->arch_name, strlen(m->arch_name));
    put_info(b, m->arch_name, "context_length", qr_engine_limits(s->model.engine)->ctx_max);
    put_info(b, m->arch_name, "embedding_length", m->n_embd);
    put_info(b, m->arch_name, "block_count", m->n_layers);
    qr_buf_put_byte(b, '}');
    put_capabilities(b, s);
    qr_buf_put_str(b, ",\"modified_at\":");
    put_time(b, s->created_s);
    qr_buf_put_byte(b, '}');
}

/* ---- what clients look for before they call ---- */

void qr_api_ollama_version(struct qr_server *s, struct qr_conn *c)
{
    static const char body[] = "{\"version\":\"" VERSION "\"}";
    struct qr_reply reply = {.status = 200, .content_type = "application/json", .body = body, .len = sizeof body - 1};
    QR_ASSERT(s != NULL && c != NULL);
    QR_ASSERT(sizeof body > 1);
    qr_conn_reply(c, &reply);
}

const struct qr_call_kind qr_call_ollama_chat = {.api = QR_API_CHAT, .counted = QR_COUNTED_OLLAMA, .door = &qr_door_ollama_chat, .prepare = prepare},
                          qr_call_ollama_generate = {.api = QR_API_CHAT, .counted = QR_COUNTED_OLLAMA, .door = &qr_door_ollama_generate, .prepare = prepare},
                          qr_call_ollama_show = {.api = QR_API_CHAT, .counted = QR_COUNTED_NOT, .door = &qr_door_ollama, .prepare = prepare_show};
