/* responses_in.c - bodies of OpenAI's Responses API as chat bodies: which field means what, and items as messages. A run of an assistant's items
 * (reasoning, text, calls) is one message of it. Tools that are no functions are left out, parts that are no text are refused by name; bounds are chat's
 * where they are the same. Pure; on libuv's pool. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "server/call.h"
#include "server/responses.h"

#define LOGPROBS "message.output_text.logprobs" /* of include: without it there are none */

/* ---- values ---- */

static int wrong_member(struct qr_err *err, const char *at, const char *name, const char *expected, const struct qr_json *found)
{
    char path[128];
    snprintf(path, sizeof path, "%.96s.%.28s", at, name);
    return qr_json_is_null(found) ? qr_err_at(err, QR_E_INVALID, path, "%s is required: %s", path, expected) : qr_wrong_type(err, path, expected, found);
}

/* A member that must be a string. NULL: *rc says why not. */
static const struct qr_json *need_text(const struct qr_json *of, const char *name, const char *at, int *rc, struct qr_err *err)
{
    const struct qr_json *v = qr_json_find(of, name);
    if (qr_json_text(v, NULL))
        return v;
    *rc = wrong_member(err, at, name, "a string", v);
    return NULL;
}

static int check_type(const struct qr_json *v, enum qr_json_type type, const char *path, const char *expected, struct qr_err *err)
{
    return qr_json_is_null(v) || qr_json_type(v) == type ? 0 : qr_wrong_type(err, path, expected, v);
}

static int check_one_of(const struct qr_json *v, const char *const *known, const char *path, const char *expected, struct qr_err *err)
{
    char excerpt[72];
    if (qr_json_is_null(v))
        return 0;
    for (; *known; known++)
        if (qr_json_says(v, *known))
            return 0;
    return qr_err_at(err, QR_E_INVALID, path, "%s must be %s, found %s", path, expected, qr_json_excerpt(excerpt, v));
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
    const struct qr_json *type = need_text(part, "type", at, &rc, err);
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
    const struct qr_json *value = need_text(part, member, at, &rc, err);
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
    const struct qr_json *id = need_text(item, "call_id", at, &rc, err), *name = id ? need_text(item, "name", at, &rc, err) : NULL;
    const struct qr_json *arguments = name ? need_text(item, "arguments", at, &rc, err) : NULL;
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
    const struct qr_json *id = need_text(item, "call_id", at, &rc, err);
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
        rc = wrong_member(err, at, "encrypted_content", "a string", sealed);
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

/* An item as it is kept: with a type, an id, and content that is parts. */
static void keep_item(struct reading *r, const struct qr_json *item)
{
    static const struct {
        const char *type, *prefix;
    } prefix[] = {{"message", "msg"}, {"function_call", "fc"}, {"function_call_output", "fco"}, {"reasoning", "rs"}};
    struct qr_buf *out = &r->items;
    const char *kind = kind_of(item);
    qr_buf_put_comma(out);
    qr_buf_printf(out, "{\"type\":\"%s\"", kind);
    for (int i = 0; i < QR_COUNT(prefix) && qr_json_is_null(qr_json_find(item, "id")); i++)
        if (strcmp(kind, prefix[i].type) == 0 && r->in->call)
            qr_buf_printf(out, ",\"id\":\"%s_%s_i%d\"", prefix[i].prefix, strchr(r->in->call->id, '_') + 1, r->n_items);
    for (const struct qr_json *v = qr_json_first(item); v; v = qr_json_after(v)) {
        const char *key = qr_json_key(v);
        if (strcmp(key, "type") == 0 || (strcmp(key, "id") == 0 && qr_json_is_null(v)))
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
    if (qr_json_type(item) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, at, "an object", item);
    const int rc = read_known(r, item, at, err);
    if (rc == 0)
        keep_item(r, item);
    return rc;
}

static int read_items(struct reading *r, const struct qr_json *items, struct qr_err *err)
{
    int rc = 0;
    int32_t i = 0;
    for (const struct qr_json *item = qr_json_first(items); item && rc == 0; item = qr_json_after(item), i++) {
        char at[48];
        snprintf(at, sizeof at, "input[%d]", i);
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
    qr_buf_put_str(&r->items, "{\"type\":\"message\"");
    if (r->in->call)
        qr_buf_printf(&r->items, ",\"id\":\"msg_%s_i%d\"", strchr(r->in->call->id, '_') + 1, r->n_items);
    qr_buf_put_str(&r->items, ",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":");
    qr_json_print(&r->items, text);
    qr_buf_put_str(&r->items, "}]}");
    r->n_items++;
}

static int read_conversation(struct reading *r, struct qr_err *err)
{
    const struct qr_json *body = r->in->body, *input = qr_json_find(body, "input"), *instructions = qr_json_find(body, "instructions");
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

/* ---- other fields ---- */

static int check_instructions(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return check_type(v, QR_JSON_T_STRING, "instructions", "a string", err);
}

static int check_metadata(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return check_type(v, QR_JSON_T_OBJECT, "metadata", "an object", err);
}

static int check_store(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return check_type(v, QR_JSON_T_BOOL, "store", "true or false", err);
}

static int check_include(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    int32_t i = 0;
    if (qr_json_type(v) != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, "include", "an array of strings", v);
    for (const struct qr_json *e = qr_json_first(v); e; e = qr_json_after(e), i++) {
        char at[32];
        snprintf(at, sizeof at, "include[%d]", i);
        if (!qr_json_text(e, NULL))
            return qr_wrong_type(err, at, "a string", e);
    }
    return 0;
}

static bool includes(const struct qr_json *body, const char *what)
{
    const struct qr_json *v = qr_json_find(body, "include");
    for (const struct qr_json *e = v ? qr_json_first(v) : NULL; e; e = qr_json_after(e))
        if (qr_json_says(e, what))
            return true;
    return false;
}

static int check_truncation(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    static const char *const known[] = {"auto", "disabled", NULL};
    return check_one_of(v, known, "truncation", "\"auto\" or \"disabled\"", err);
}

/* More than there is room for is a bound like another. */
static int put_max_tokens(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    int64_t n;
    const int rc = qr_read_whole(&n, v, "max_output_tokens", 1, INT32_MAX, err);
    const int32_t most = in->call ? qr_engine_limits(in->call->server->model.engine)->ctx_max : INT32_MAX;
    if (rc != 0)
        return rc;
    qr_door_put_name(in, "max_tokens");
    qr_buf_put_i64(&in->chat, n < most ? n : most);
    return 0;
}

static int put_top_logprobs(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    int64_t n;
    const int rc = qr_read_whole(&n, v, "top_logprobs", 0, QR_TOP_LOGPROBS_MAX, err);
    if (rc == 0 && includes(in->body, LOGPROBS))
        qr_door_put_value(in, "top_logprobs", v);
    return rc;
}

static void put_member(struct qr_buf *out, const char *name, const struct qr_json *v)
{
    if (qr_json_is_null(v))
        return;
    qr_buf_put_comma(out);
    qr_buf_printf(out, "\"%s\":", name);
    qr_json_print(out, v);
}

static int put_tool(struct qr_buf *out, const struct qr_json *tool, int32_t i, struct qr_err *err)
{
    char at[64];
    int rc = 0;
    snprintf(at, sizeof at, "tools[%d]", i);
    if (qr_json_type(tool) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, at, "an object", tool);
    const struct qr_json *type = need_text(tool, "type", at, &rc, err);
    if (!type)
        return rc;
    qr_buf_put_comma(out);
    if (!qr_json_says(type, "function")) { /* it keeps its place, and chat leaves it out */
        qr_buf_put_str(out, "{\"type\":\"other\"}");
        return 0;
    }
    qr_buf_put_str(out, "{\"type\":\"function\",\"function\":{");
    put_member(out, "name", qr_json_find(tool, "name"));
    put_member(out, "description", qr_json_find(tool, "description"));
    put_member(out, "parameters", qr_json_find(tool, "parameters"));
    put_member(out, "strict", qr_json_find(tool, "strict"));
    qr_buf_put_str(out, "}}");
    return 0;
}

static int put_tools(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    int rc = 0;
    int32_t i = 0;
    if (qr_json_type(v) != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, "tools", "an array", v);
    qr_door_put_name(in, "tools");
    qr_buf_put_byte(&in->chat, '[');
    for (const struct qr_json *tool = qr_json_first(v); tool && rc == 0; tool = qr_json_after(tool), i++)
        rc = put_tool(&in->chat, tool, i, err);
    qr_buf_put_byte(&in->chat, ']');
    return rc;
}

static void put_named(struct qr_buf *out, const struct qr_json *tool)
{
    qr_buf_put_str(out, "{\"type\":\"function\",\"function\":{");
    put_member(out, "name", qr_json_find(tool, "name"));
    qr_buf_put_str(out, "}}");
}

/* Those of them that are functions. */
static int put_allowed(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    const struct qr_json *tools = qr_json_find(v, "tools");
    if (qr_json_is_null(tools) || qr_json_type(tools) != QR_JSON_T_ARRAY)
        return wrong_member(err, "tool_choice", "tools", "an array of tools", tools);
    qr_door_put_name(in, "tool_choice");
    qr_buf_put_str(&in->chat, "{\"type\":\"allowed_tools\",\"allowed_tools\":{");
    put_member(&in->chat, "mode", qr_json_find(v, "mode"));
    qr_buf_put_comma(&in->chat);
    qr_buf_put_str(&in->chat, "\"tools\":[");
    for (const struct qr_json *t = qr_json_first(tools); t; t = qr_json_after(t))
        if (qr_json_says(qr_json_find(t, "type"), "function")) {
            qr_buf_put_comma(&in->chat);
            put_named(&in->chat, t);
        }
    qr_buf_put_str(&in->chat, "]}}");
    return 0;
}

static int put_tool_choice(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    const struct qr_json *type = qr_json_find(v, "type");
    int rc = 0;
    if (qr_json_says(type, "allowed_tools"))
        return put_allowed(in, v, err);
    if (!qr_json_says(type, "function")) {
        qr_door_put_value(in, "tool_choice", v);
        return 0;
    }
    if (!need_text(v, "name", "tool_choice", &rc, err))
        return rc;
    qr_door_put_name(in, "tool_choice");
    put_named(&in->chat, v);
    return 0;
}

static int put_format(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    if (qr_json_is_null(v))
        return 0;
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, "text.format", "an object with a type", v);
    qr_door_put_name(in, "response_format");
    if (!qr_json_says(qr_json_find(v, "type"), "json_schema")) {
        qr_json_print(&in->chat, v);
        return 0;
    }
    qr_buf_put_str(&in->chat, "{\"type\":\"json_schema\",\"json_schema\":{");
    put_member(&in->chat, "name", qr_json_find(v, "name"));
    put_member(&in->chat, "schema", qr_json_find(v, "schema"));
    put_member(&in->chat, "strict", qr_json_find(v, "strict"));
    qr_buf_put_str(&in->chat, "}}");
    return 0;
}

static int put_text(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    static const char *const known[] = {"low", "medium", "high", NULL};
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, "text", "an object", v);
    const int rc = check_one_of(qr_json_find(v, "verbosity"), known, "text.verbosity", "\"low\", \"medium\" or \"high\"", err);
    return rc ? rc : put_format(in, qr_json_find(v, "format"), err);
}

static int put_reasoning(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    static const char *const known[] = {"auto", "concise", "detailed", "none", NULL};
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, "reasoning", "an object", v);
    qr_door_put_value(in, "reasoning_effort", qr_json_find(v, "effort"));
    return check_one_of(qr_json_find(v, "summary"), known, "reasoning.summary", "\"auto\", \"concise\" or \"detailed\"", err);
}

static int refuse_background(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    if (qr_json_type(v) != QR_JSON_T_BOOL)
        return qr_wrong_type(err, "background", "true or false", v);
    return !qr_json_bool(v) ? 0 : qr_err_at(err, QR_E_UNSUPPORTED, "background", "background: answers are not made behind the client's back; use stream");
}

static int refuse_conversation(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return qr_err_at(err, QR_E_UNSUPPORTED, "conversation", "conversation: this server keeps responses, no conversations; use previous_response_id");
}

static int refuse_prompt(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return qr_err_at(err, QR_E_UNSUPPORTED, "prompt", "prompt: this server keeps no templates of prompts; use instructions and input");
}

static int refuse_previous(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return qr_err_at(err, QR_E_UNSUPPORTED, "previous_response_id", "previous_response_id: this server keeps no responses; send the conversation in input");
}

static int ignore(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err)
{
    return 0;
}

/* ---- what the answer repeats ---- */

static void repeat(struct qr_buf *out, const struct qr_json *body, const char *name, const char *usual)
{
    const struct qr_json *v = qr_json_find(body, name);
    qr_buf_put_comma(out);
    qr_buf_printf(out, "\"%s\":", name);
    if (qr_json_is_null(v))
        qr_buf_put_str(out, usual);
    else
        qr_json_print(out, v);
}

static void put_settings(struct qr_buf *out, const struct qr_json *body)
{
    static const char *const row[][2] = {{"background", "false"}, {"instructions", "null"}, {"max_output_tokens", "null"}, {"max_tool_calls", "null"},
                                         {"metadata", "{}"}, {"parallel_tool_calls", "true"}, {"previous_response_id", "null"},
                                         {"prompt_cache_key", "null"}, {"reasoning", "{\"effort\":null,\"summary\":null}"}, {"store", "true"},
                                         {"tool_choice", "\"auto\""}, {"tools", "[]"}, {"top_logprobs", "0"}, {"truncation", "\"disabled\""}};
    const struct qr_json *text = qr_json_find(body, "text"), *format = text ? qr_json_find(text, "format") : NULL;
    for (int i = 0; i < QR_COUNT(row); i++)
        repeat(out, body, row[i][0], row[i][1]);
    qr_buf_put_str(out, ",\"text\":{");
    if (qr_json_is_null(format))
        qr_buf_put_str(out, "\"format\":{\"type\":\"text\"}");
    put_member(out, "format", format);
    put_member(out, "verbosity", text ? qr_json_find(text, "verbosity") : NULL);
    qr_buf_put_byte(out, '}');
}

static void put_kept(struct qr_door_in *in, const struct qr_buf *items)
{
    const struct qr_json *store = qr_json_find(in->body, "store");
    struct qr_responses_kept kept = {.n_items = items->len, .store = qr_json_is_null(store) || qr_json_bool(store),
                                     .encrypted = includes(in->body, "reasoning.encrypted_content")};
    struct qr_buf members = {0};
    put_settings(&members, in->body);
    kept.n_members = members.len;
    qr_buf_put(&in->kept, &kept, sizeof kept);
    qr_buf_put(&in->kept, members.data, members.len);
    qr_buf_put(&in->kept, items->data ? items->data : "", items->len);
    qr_buf_release(&members);
}

int qr_responses_settle(struct qr_door_in *in, struct qr_err *err)
{
    struct reading r = {.in = in};
    QR_ASSERT(in != NULL && in->body != NULL);
    QR_ASSERT(err != NULL && in->kept.len == 0);
    if (includes(in->body, LOGPROBS))
        qr_door_put_text(in, "logprobs", "true");
    qr_door_put_name(in, "messages");
    qr_buf_put_byte(&in->chat, '[');
    const int rc = read_conversation(&r, err);
    qr_buf_put_byte(&in->chat, ']');
    if (rc == 0)
        put_kept(in, &r.items);
    release_turn(&r.turn);
    qr_buf_release(&r.items);
    return rc;
}

const struct qr_door_field qr_responses_field[QR_RESPONSES_FIELDS] = {
    {"model", "model", NULL}, {"input", NULL, ignore /* of settle */}, {"instructions", NULL, check_instructions},
    {"previous_response_id", NULL, refuse_previous}, {"max_output_tokens", "max_tokens", put_max_tokens}, {"max_tool_calls", NULL, ignore},
    {"tools", "tools", put_tools}, {"tool_choice", "tool_choice", put_tool_choice}, {"parallel_tool_calls", "parallel_tool_calls", NULL},
    {"text", NULL, put_text}, {"reasoning", NULL, put_reasoning}, {"include", NULL, check_include}, {"store", NULL, check_store},
    {"metadata", NULL, check_metadata}, {"truncation", NULL, check_truncation}, {"stream", "stream", NULL}, {"temperature", "temperature", NULL},
    {"top_p", "top_p", NULL}, {"top_logprobs", "top_logprobs", put_top_logprobs}, {"background", NULL, refuse_background},
    {"conversation", NULL, refuse_conversation}, {"prompt", NULL, refuse_prompt}, {"prompt_cache_key", NULL, ignore},
    /* Not of this API: what chat has beside. */
    {"seed", "seed", NULL}, {"top_k", "top_k", NULL}, {"min_p", "min_p", NULL}, {"cache_salt", "cache_salt", NULL}, {"priority", "priority", NULL},
    {"chat_template_kwargs", "chat_template_kwargs", NULL},
};

const struct qr_door_path qr_responses_path[QR_RESPONSES_PATHS] = {
    {"tools[#].function", "tools[#]"}, {"tool_choice.function", "tool_choice"}, {"tool_choice.allowed_tools", "tool_choice"},
    {"reasoning_effort", "reasoning.effort"}, {"response_format", "text.format"}, {"response_format.json_schema", "text.format"},
    {"response_format.json_schema.schema", "text.format.schema"}, {"logprobs", "include"}, {"max_tokens", "max_output_tokens"},
};
