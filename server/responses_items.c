/* responses_items.c - the conversation of a body of OpenAI's Responses API, and of the stored response that it goes on from, as chat messages. A run of an
 * assistant's items (reasoning, text, calls) is one message of it. Parts that are no text, and items of other kinds, are refused by name. On libuv's pool. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "server/call.h"
#include "server/responses.h"

int qr_responses_wrong(struct qr_err *err, const char *at, const char *name, const char *expected, const struct qr_json *found)
{
    char path[128];
    QR_ASSERT(err != NULL);
    QR_ASSERT(at != NULL && name != NULL && expected != NULL);
    snprintf(path, sizeof path, "%.96s.%.28s", at, name);
    return qr_json_is_null(found) ? qr_err_at(err, QR_E_INVALID, path, "%s is required: %s", path, expected) : qr_wrong_type(err, path, expected, found);
}

const struct qr_json *qr_responses_text(const struct qr_json *of, const char *name, const char *at, int *rc, struct qr_err *err)
{
    const struct qr_json *v = qr_json_find(of, name);
    QR_ASSERT(rc != NULL && err != NULL);
    QR_ASSERT(at != NULL && name != NULL);
    if (qr_json_text(v, NULL))
        return v;
    *rc = qr_responses_wrong(err, at, name, "a string", v);
    return NULL;
}

/* ---- content ---- */

#define PART_BEGIN "{\"type\":\"text\",\"text\":"

struct parts {
    struct qr_buf json; /* owned: of chat's, comma-separated */
    int32_t n;
};

static void add_part(struct parts *p, const struct qr_json *text)
{
    qr_buf_put_comma(&p->json);
    qr_buf_put_str(&p->json, PART_BEGIN);
    qr_json_print(&p->json, text);
    qr_buf_put_byte(&p->json, '}');
    p->n++;
}

/* One text is a string, as most clients of chat send it: both become the same tokens. */
static void put_content(struct qr_buf *out, const struct parts *p)
{
    const size_t begin = sizeof PART_BEGIN - 1;
    if (p->n == 0)
        qr_buf_put_str(out, "\"\"");
    else if (p->n == 1)
        qr_buf_put(out, p->json.data + begin, p->json.len - begin - 1);
    else {
        qr_buf_put_byte(out, '[');
        qr_buf_put(out, p->json.data, p->json.len);
        qr_buf_put_byte(out, ']');
    }
}

static int add_typed_part(struct parts *p, const struct qr_json *part, const char *at, struct qr_err *err)
{
    static const char *const text[] = {"input_text", "output_text", "text", "summary_text", "reasoning_text"};
    static const char *const other[] = {"input_image", "input_file", "input_audio"};
    char path[128], excerpt[72];
    int rc = 0;
    if (qr_json_type(part) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, at, "an object", part);
    const struct qr_json *type = qr_responses_text(part, "type", at, &rc, err);
    snprintf(path, sizeof path, "%.110s.type", at);
    if (rc != 0)
        return rc;
    for (int i = 0; i < QR_COUNT(other); i++)
        if (qr_json_says(type, other[i]))
            return qr_err_at(err, QR_E_UNSUPPORTED, path, "%s: \"%s\" is not supported; this model reads text only", path, other[i]);
    const char *member = qr_json_says(type, "refusal") ? "refusal" : NULL;
    for (int i = 0; i < QR_COUNT(text); i++)
        member = qr_json_says(type, text[i]) ? "text" : member;
    if (!member)
        return qr_err_at(err, QR_E_INVALID, path, "%s must be \"input_text\" or \"output_text\", found %s", path, qr_json_excerpt(excerpt, type));
    const struct qr_json *value = qr_responses_text(part, member, at, &rc, err);
    if (value)
        add_part(p, value);
    return rc;
}

/* A string, or an array of parts. */
static int read_parts(struct parts *p, const struct qr_json *v, const char *path, struct qr_err *err)
{
    char at[112];
    int rc = 0;
    int32_t i = 0;
    if (qr_json_text(v, NULL)) {
        add_part(p, v);
        return 0;
    }
    if (qr_json_is_null(v))
        return qr_err_at(err, QR_E_INVALID, path, "%s is required: a string or an array of parts", path);
    if (qr_json_type(v) != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, path, "a string or an array of parts", v);
    for (const struct qr_json *part = qr_json_first(v); part && rc == 0; part = qr_json_after(part), i++) {
        snprintf(at, sizeof at, "%.90s[%d]", path, i);
        rc = add_typed_part(p, part, at, err);
    }
    return rc;
}

/* ---- items ---- */

/* An assistant's message that is being collected. */
struct turn {
    struct parts content;
    struct qr_buf reasoning, calls; /* owned: the text; chat's calls, comma-separated */
    bool open;
    char source[64];                /* of its first item */
};

/* A conversation that is being translated. */
struct reading {
    struct qr_door_in *in;
    struct turn turn;
    struct qr_buf items;            /* owned: the items, as they are kept, comma-separated */
    int32_t n_items, n_messages;
};

static void begin_message(struct reading *r, const char *role, const char *source)
{
    qr_door_put_source(r->in, source);
    qr_buf_put_comma(&r->in->chat);
    qr_buf_printf(&r->in->chat, "{\"role\":\"%s\"", role);
    r->n_messages++;
}

static void release_turn(struct turn *t)
{
    qr_buf_release(&t->content.json);
    qr_buf_release(&t->reasoning);
    qr_buf_release(&t->calls);
    *t = (struct turn){.open = false};
}

static void end_turn(struct reading *r)
{
    struct turn *t = &r->turn;
    struct qr_buf *out = &r->in->chat;
    if (t->open) {
        begin_message(r, "assistant", t->source);
        qr_buf_put_str(out, ",\"content\":");
        if (t->content.n == 0 && t->calls.len > 0)
            qr_buf_put_str(out, "null");
        else
            put_content(out, &t->content);
        if (t->reasoning.len > 0) {
            qr_buf_put_str(out, ",\"reasoning_content\":");
            qr_json_put_str(out, t->reasoning.data, t->reasoning.len);
        }
        if (t->calls.len > 0) {
            qr_buf_put_str(out, ",\"tool_calls\":[");
            qr_buf_put(out, t->calls.data, t->calls.len);
            qr_buf_put_byte(out, ']');
        }
        qr_buf_put_byte(out, '}');
    }
    release_turn(t);
}

/* ends: the item cannot be a part of the turn that is open. */
static struct turn *begin_turn(struct reading *r, bool ends, const char *source)
{
    if (ends)
        end_turn(r);
    if (!r->turn.open)
        snprintf(r->turn.source, sizeof r->turn.source, "%s", source);
    r->turn.open = true;
    return &r->turn;
}

static int read_message(struct reading *r, const struct qr_json *item, const char *at, struct qr_err *err)
{
    static const char *const role[] = {"user", "assistant", "system", "developer"};
    char path[96], excerpt[72];
    struct parts parts = {.n = 0};
    const struct qr_json *given = qr_json_find(item, "role"), *content = qr_json_find(item, "content");
    int k = 0;
    while (k < QR_COUNT(role) && !qr_json_says(given, role[k]))
        k++;
    snprintf(path, sizeof path, "%.64s.role", at);
    if (k == QR_COUNT(role))
        return qr_err_at(err, QR_E_INVALID, path, "%s must be \"user\", \"assistant\", \"system\" or \"developer\", found %s", path,
                         given ? qr_json_excerpt(excerpt, given) : "none");
    snprintf(path, sizeof path, "%.64s.content", at);
    if (k == 1)
        return read_parts(&begin_turn(r, r->turn.content.n > 0, at)->content, content, path, err);
    const int rc = read_parts(&parts, content, path, err);
    end_turn(r);
    begin_message(r, role[k], at);
    qr_buf_put_str(&r->in->chat, ",\"content\":");
    put_content(&r->in->chat, &parts);
    qr_buf_put_byte(&r->in->chat, '}');
    qr_buf_release(&parts.json);
    return rc;
}

static int read_call(struct reading *r, const struct qr_json *item, const char *at, struct qr_err *err)
{
    int rc = 0;
    const struct qr_json *id = qr_responses_text(item, "call_id", at, &rc, err), *name = id ? qr_responses_text(item, "name", at, &rc, err) : NULL;
    const struct qr_json *arguments = name ? qr_responses_text(item, "arguments", at, &rc, err) : NULL;
    if (!arguments)
        return rc;
    struct qr_buf *out = &begin_turn(r, false, at)->calls;
    qr_buf_put_comma(out);
    qr_buf_put_str(out, "{\"type\":\"function\",\"id\":");
    qr_json_print(out, id);
    qr_buf_put_str(out, ",\"function\":{\"name\":");
    qr_json_print(out, name);
    qr_buf_put_str(out, ",\"arguments\":");
    qr_json_print(out, arguments);
    qr_buf_put_str(out, "}}");
    return 0;
}

static int read_output(struct reading *r, const struct qr_json *item, const char *at, struct qr_err *err)
{
    char path[96];
    struct parts parts = {.n = 0};
    int rc = 0;
    const struct qr_json *id = qr_responses_text(item, "call_id", at, &rc, err);
    snprintf(path, sizeof path, "%.64s.output", at);
    rc = rc ? rc : read_parts(&parts, qr_json_find(item, "output"), path, err);
    if (rc == 0) {
        end_turn(r);
        begin_message(r, "tool", at);
        qr_buf_put_str(&r->in->chat, ",\"tool_call_id\":");
        qr_json_print(&r->in->chat, id);
        qr_buf_put_str(&r->in->chat, ",\"content\":");
        put_content(&r->in->chat, &parts);
        qr_buf_put_byte(&r->in->chat, '}');
    }
    qr_buf_release(&parts.json);
    return rc;
}

static void put_texts(struct qr_buf *out, const struct qr_json *parts)
{
    for (const struct qr_json *p = parts ? qr_json_first(parts) : NULL; p; p = qr_json_after(p)) {
        size_t n;
        const char *text = qr_json_text(qr_json_find(p, "text"), &n);
        if (text)
            qr_buf_put(out, text, n);
    }
}

/* Its content, or what we sent as encrypted_content, or its summary. That of others, which nothing here can read, says nothing. */
static int read_reasoning(struct reading *r, const struct qr_json *item, const char *at, struct qr_err *err)
{
    static const char *const lists[] = {"content", "summary"};
    const struct qr_json *sealed = qr_json_find(item, "encrypted_content");
    const size_t n_seal = sizeof QR_RESPONSES_SEAL - 1;
    size_t n = 0;
    int rc = 0;
    for (int i = 0; i < QR_COUNT(lists) && rc == 0; i++) {
        struct parts parts = {.n = 0};
        char path[96];
        const struct qr_json *v = qr_json_find(item, lists[i]);
        snprintf(path, sizeof path, "%.64s.%s", at, lists[i]);
        rc = qr_json_is_null(v) ? 0 : qr_json_type(v) != QR_JSON_T_ARRAY ? qr_wrong_type(err, path, "an array of parts", v) : read_parts(&parts, v, path, err);
        qr_buf_release(&parts.json);
    }
    if (rc == 0 && !qr_json_is_null(sealed) && !qr_json_text(sealed, &n))
        rc = qr_responses_wrong(err, at, "encrypted_content", "a string", sealed);
    if (rc != 0)
        return rc;
    struct qr_buf *out = &begin_turn(r, r->turn.content.n > 0 || r->turn.calls.len > 0, at)->reasoning;
    const size_t before = out->len;
    const char *text = qr_json_text(sealed, &n);
    put_texts(out, qr_json_find(item, "content"));
    if (out->len == before && text && n >= n_seal && memcmp(text, QR_RESPONSES_SEAL, n_seal) == 0)
        qr_buf_put(out, text + n_seal, n - n_seal);
    if (out->len == before)
        put_texts(out, qr_json_find(item, "summary"));
    return 0;
}

static const char *kind_of(const struct qr_json *item)
{
    const struct qr_json *type = qr_json_find(item, "type");
    return qr_json_is_null(type) ? "message" : qr_json_text(type, NULL);
}

static int read_known(struct reading *r, const struct qr_json *item, const char *at, struct qr_err *err)
{
    static const struct {
        const char *type;
        int (*read)(struct reading *r, const struct qr_json *item, const char *at, struct qr_err *err);
    } known[] = {{"message", read_message}, {"function_call", read_call}, {"function_call_output", read_output}, {"reasoning", read_reasoning}};
    char path[96], excerpt[72];
    const char *kind = kind_of(item);
    for (int i = 0; kind && i < QR_COUNT(known); i++)
        if (strcmp(kind, known[i].type) == 0)
            return known[i].read(r, item, at, err);
    snprintf(path, sizeof path, "%.64s.type", at);
    return qr_err_at(err, QR_E_UNSUPPORTED, path,
                     "%s must be \"message\", \"function_call\", \"function_call_output\", \"reasoning\" or \"item_reference\", found %s", path,
                     qr_json_excerpt(excerpt, qr_json_find(item, "type")));
}

static void put_new_id(struct reading *r, const char *prefix)
{
    const struct qr_call *call = r->in->call;
    qr_buf_printf(&r->items, "\"%s_%s_i%d\"", prefix, call ? strchr(call->id, '_') + 1 : "", r->n_items);
}

/* An item as it is kept: a type, an id, then the others; content is parts. */
static void keep_item(struct reading *r, const struct qr_json *item)
{
    static const struct {
        const char *type, *prefix;
    } prefix[] = {{"message", "msg"}, {"function_call", "fc"}, {"function_call_output", "fco"}, {"reasoning", "rs"}};
    struct qr_buf *out = &r->items;
    const char *kind = kind_of(item);
    const struct qr_json *id = qr_json_find(item, "id");
    qr_buf_put_comma(out);
    qr_buf_printf(out, "{\"type\":\"%s\",\"id\":", kind);
    if (!qr_json_is_null(id))
        qr_json_print(out, id);
    for (int i = 0; i < QR_COUNT(prefix) && qr_json_is_null(id); i++)
        if (strcmp(kind, prefix[i].type) == 0)
            put_new_id(r, prefix[i].prefix);
    for (const struct qr_json *v = qr_json_first(item); v; v = qr_json_after(v)) {
        const char *key = qr_json_key(v);
        if (strcmp(key, "type") == 0 || strcmp(key, "id") == 0)
            continue;
        qr_buf_put_byte(out, ',');
        qr_json_put_str(out, key, strlen(key));
        qr_buf_put_byte(out, ':');
        const bool bare = strcmp(kind, "message") == 0 && strcmp(key, "content") == 0 && qr_json_text(v, NULL);
        if (bare)
            qr_buf_put_str(out, qr_json_says(qr_json_find(item, "role"), "assistant") ? "[{\"type\":\"output_text\",\"annotations\":[],\"text\":"
                                                                                     : "[{\"type\":\"input_text\",\"text\":");
        qr_json_print(out, v);
        qr_buf_put_str(out, bare ? "}]" : "");
    }
    qr_buf_put_byte(out, '}');
    r->n_items++;
}

static int read_item(struct reading *r, const struct qr_json *item, const char *at, struct qr_err *err)
{
    const struct qr_json *id = qr_json_find(item, "id");
    if (qr_json_type(item) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, at, "an object", item);
    if (!qr_json_is_null(id) && !qr_json_text(id, NULL))
        return qr_responses_wrong(err, at, "id", "a string", id);
    const int rc = read_known(r, item, at, err);
    if (rc == 0)
        keep_item(r, item);
    return rc;
}

/* The limits of a body are those of what comes from outside: a conversation grows by whole answers. */
static const struct qr_json_limits stored_limits = {.bytes_max = 64 << 20, .values_max = 4 << 20, .depth_max = 40};

/* Items of a stored response, as JSON. False: there is none. */
static bool load(struct reading *r, const char *id, struct qr_buf *out)
{
    const struct qr_call *call = r->in->call;
    struct qr_buf more = {0};
    if (!call || strlen(id) > QR_RESPONSE_ID_MAX)
        return false;
    qr_buf_put_byte(out, '[');
    bool found = qr_responses_get(call->server->responses, &call->digest, id, QR_RESPONSE_INPUT, out) &&
                 qr_responses_get(call->server->responses, &call->digest, id, QR_RESPONSE_OUTPUT, &more);
    if (found && more.len > 0) {
        qr_buf_put_comma(out);
        qr_buf_put(out, more.data, more.len);
    }
    qr_buf_put_byte(out, ']');
    qr_buf_release(&more);
    return found;
}

/* Items of a stored response: all, or the one of that id. *any: there was one. */
static int read_stored(struct reading *r, const char *response, const char *only, const char *at, bool *any, struct qr_err *err)
{
    struct qr_buf text = {0};
    struct qr_json *items = NULL;
    int rc = 0;
    *any = load(r, response, &text);
    if (*any)
        rc = qr_json_parse(&items, text.data, text.len, &stored_limits, err);
    *any = *any && !only;
    for (const struct qr_json *item = rc == 0 && items ? qr_json_first(items) : NULL; item && rc == 0; item = qr_json_after(item)) {
        if (only && !qr_json_says(qr_json_find(item, "id"), only))
            continue;
        *any = true;
        rc = read_item(r, item, at, err);
    }
    qr_json_free(items);
    qr_buf_release(&text);
    return rc;
}

/* Ids of items have their response's: "msg_ID_0". */
static int read_reference(struct reading *r, const struct qr_json *item, const char *at, struct qr_err *err)
{
    char response[QR_RESPONSE_ID_MAX + 1], path[96], excerpt[72];
    bool any = false;
    int rc = 0;
    const struct qr_json *id = qr_responses_text(item, "id", at, &rc, err);
    if (!id)
        return rc;
    const char *text = qr_json_str(id, NULL), *from = strchr(text, '_'), *to = from ? strchr(from + 1, '_') : NULL;
    if (to && to - from <= 32) {
        snprintf(response, sizeof response, "resp_%.*s", (int)(to - from - 1), from + 1);
        rc = read_stored(r, response, text, at, &any, err);
    }
    snprintf(path, sizeof path, "%.64s.id", at);
    return rc || any ? rc : qr_err_at(err, QR_E_NOT_FOUND, path, "%s: no item %s is stored", path, qr_json_excerpt(excerpt, id));
}

static int read_previous(struct reading *r, const struct qr_json *id, struct qr_err *err)
{
    static const char field[] = "previous_response_id";
    char excerpt[72];
    bool any = false;
    const int rc = read_stored(r, qr_json_str(id, NULL), NULL, field, &any, err);
    return rc || any ? rc : qr_err_at(err, QR_E_NOT_FOUND, field, "%s: no response %s is stored", field, qr_json_excerpt(excerpt, id));
}

static int read_items(struct reading *r, const struct qr_json *items, struct qr_err *err)
{
    int rc = 0;
    int32_t i = 0;
    for (const struct qr_json *item = qr_json_first(items); item && rc == 0; item = qr_json_after(item), i++) {
        char at[48];
        snprintf(at, sizeof at, "input[%d]", i);
        if (qr_json_type(item) == QR_JSON_T_OBJECT && qr_json_says(qr_json_find(item, "type"), "item_reference"))
            rc = read_reference(r, item, at, err);
        else
            rc = read_item(r, item, at, err);
    }
    return rc;
}

/* A text as the user's message. */
static void read_text(struct reading *r, const struct qr_json *text)
{
    end_turn(r);
    begin_message(r, "user", "input");
    qr_buf_put_str(&r->in->chat, ",\"content\":");
    qr_json_print(&r->in->chat, text);
    qr_buf_put_byte(&r->in->chat, '}');
    qr_buf_put_comma(&r->items);
    qr_buf_put_str(&r->items, "{\"type\":\"message\",\"id\":");
    put_new_id(r, "msg");
    qr_buf_put_str(&r->items, ",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":");
    qr_json_print(&r->items, text);
    qr_buf_put_str(&r->items, "}]}");
    r->n_items++;
}

static int read_conversation(struct reading *r, struct qr_err *err)
{
    const struct qr_json *body = r->in->body, *input = qr_json_find(body, "input"), *instructions = qr_json_find(body, "instructions");
    const struct qr_json *previous = qr_json_find(body, "previous_response_id");
    int rc = 0;
    if (qr_json_is_null(input))
        return qr_err_at(err, QR_E_INVALID, "input", "input is required: a string or an array of items");
    if (!qr_json_text(input, NULL) && qr_json_type(input) != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, "input", "a string or an array of items", input);
    if (!qr_json_is_null(instructions)) {
        begin_message(r, "system", "instructions");
        qr_buf_put_str(&r->in->chat, ",\"content\":");
        qr_json_print(&r->in->chat, instructions);
        qr_buf_put_byte(&r->in->chat, '}');
    }
    if (!qr_json_is_null(previous))
        rc = read_previous(r, previous, err);
    if (rc == 0 && qr_json_text(input, NULL))
        read_text(r, input);
    else if (rc == 0)
        rc = read_items(r, input, err);
    end_turn(r);
    if (r->n_items == 0) { /* clients ask so whether the server lives */
        begin_message(r, "user", "input");
        qr_buf_put_str(&r->in->chat, ",\"content\":\"\"}");
    }
    return rc;
}

int qr_responses_read(struct qr_door_in *in, struct qr_buf *items, struct qr_err *err)
{
    struct reading r = {.in = in};
    QR_ASSERT(in != NULL && in->body != NULL);
    QR_ASSERT(items != NULL && items->len == 0 && err != NULL);
    qr_door_put_name(in, "messages");
    qr_buf_put_byte(&in->chat, '[');
    const int rc = read_conversation(&r, err);
    qr_buf_put_byte(&in->chat, ']');
    release_turn(&r.turn);
    *items = r.items;
    return rc;
}
