/* chunk.c - an answer or an event of a stream out of its JSON (chunk.h). One pass over the tokens, no tree: a load
 * generator reads tens of thousands of these per second. Each kind of object is a table of members, and a member says
 * where its value goes. What a table does not name is skipped, and checked as JSON all the same. One owning thread. */
#include "client/chunk.h"

#include <string.h>

#include "base/assert.h"
#include "base/json.h"

#define AT(field) offsetof(struct qr_chunk, field)
#define TOOL(field) offsetof(struct qr_tool_call, field)

static const struct qr_json_limits limits = {.bytes_max = 64 << 20, .values_max = 4 << 20, .depth_max = 64, .nul_ok = true};

struct reader {
    struct qr_json_scan *scan; /* borrowed */
    struct qr_err *err;        /* borrowed */
    int64_t choice_index;
};

/* `to` lies `offset` bytes into what the object fills. */
struct member {
    const char *name;
    int (*take)(struct reader *r, const struct qr_json_token *value, void *to);
    size_t offset;
};

const char *qr_buf_text(const struct qr_buf *b)
{
    QR_ASSERT(b != NULL);
    return b->len != 0 ? b->data : "";
}

static int wrong(struct reader *r, const struct qr_json_token *t, const char *expected)
{
    return qr_err_set(r->err, QR_E_INVALID, "at byte %zu of the server's JSON: expected %s", t->offset, expected);
}

/* Reads the members of the object that t begins; null counts as an empty object. */
static int take_object(struct reader *r, const struct qr_json_token *t, void *to, const struct member *table, int n)
{
    if (t->event == QR_JSON_NULL)
        return 0;
    if (t->event != QR_JSON_OBJECT_BEGIN)
        return wrong(r, t, "an object");
    for (;;) {
        struct qr_json_token key, value;
        int rc = qr_json_next(r->scan, &key, r->err);
        if (rc != 0 || key.event == QR_JSON_OBJECT_END)
            return rc;
        rc = qr_json_next(r->scan, &value, r->err);
        int i = 0;
        while (i < n && !qr_json_token_is(&key, table[i].name))
            i++;
        if (rc == 0)
            rc = i < n ? table[i].take(r, &value, (char *)to + table[i].offset) : qr_json_skip(r->scan, &value, r->err);
        if (rc != 0)
            return rc;
    }
}

/* A string, appended; null leaves the buffer. */
static int take_string(struct reader *r, const struct qr_json_token *t, void *to)
{
    if (t->event == QR_JSON_NULL)
        return 0;
    if (t->event != QR_JSON_STRING)
        return wrong(r, t, "a string or null");
    qr_json_unescape(to, t);
    return 0;
}

/* ---- tool calls ---- */

static int take_tool_index(struct reader *r, const struct qr_json_token *t, void *to)
{
    int64_t v;
    if (!qr_json_token_i64(t, &v) || v < 0 || v >= QR_TOOL_CALLS_MAX)
        return wrong(r, t, "a tool call's index from 0 to 63");
    *(int32_t *)to = (int32_t)v;
    return 0;
}

static int take_function(struct reader *r, const struct qr_json_token *t, void *to)
{
    static const struct member table[] = {{"name", take_string, TOOL(name)},
                                          {"arguments", take_string, TOOL(arguments)}};
    return take_object(r, t, to, table, QR_COUNT(table));
}

static int take_tool_calls(struct reader *r, const struct qr_json_token *t, void *to)
{
    static const struct member table[] = {
        {"index", take_tool_index, TOOL(index)}, {"id", take_string, TOOL(id)}, {"function", take_function, 0}};
    struct qr_tool_calls *tools = to;
    if (t->event == QR_JSON_NULL)
        return 0;
    if (t->event != QR_JSON_ARRAY_BEGIN)
        return wrong(r, t, "an array of tool calls");
    for (;;) {
        struct qr_json_token item;
        int rc = qr_json_next(r->scan, &item, r->err);
        if (rc != 0 || item.event == QR_JSON_ARRAY_END)
            return rc;
        if (tools->n == QR_TOOL_CALLS_MAX)
            return wrong(r, &item, "at most 64 tool calls");
        struct qr_tool_call *tool = &tools->item[tools->n];
        tool->index = tools->n++; /* a whole answer numbers them by place */
        rc = take_object(r, &item, tool, table, QR_COUNT(table));
        if (rc != 0)
            return rc;
    }
}

/* ---- choices ---- */

static int take_reasoning(struct reader *r, const struct qr_json_token *t, void *to)
{
    const struct qr_buf *reasoning = to; /* some servers send it under both of its names */
    return reasoning->len > 0 ? qr_json_skip(r->scan, t, r->err) : take_string(r, t, to);
}

static int take_message(struct reader *r, const struct qr_json_token *t, void *to)
{
    static const struct member table[] = {
        {"role", take_string, AT(role)},
        {"content", take_string, AT(text)},
        {"refusal", take_string, AT(refusal)},
        {"reasoning", take_reasoning, AT(reasoning)},
        {"reasoning_content", take_reasoning, AT(reasoning)},
        {"tool_calls", take_tool_calls, AT(tools)},
    };
    return take_object(r, t, to, table, QR_COUNT(table));
}

static int take_choice_index(struct reader *r, const struct qr_json_token *t, void *to)
{
    return qr_json_token_i64(t, &r->choice_index) ? 0 : wrong(r, t, "a choice's index");
}

static int take_choices(struct reader *r, const struct qr_json_token *t, void *to)
{
    static const struct member table[] = {
        {"delta", take_message, 0},          {"message", take_message, 0},
        {"text", take_string, AT(text)},     {"index", take_choice_index, 0},
        {"finish_reason", take_string, AT(finish)},
    };
    struct qr_chunk *c = to;
    if (t->event == QR_JSON_NULL)
        return 0;
    if (t->event != QR_JSON_ARRAY_BEGIN)
        return wrong(r, t, "an array of choices");
    for (int i = 0;; i++) {
        struct qr_json_token item;
        int rc = qr_json_next(r->scan, &item, r->err);
        if (rc != 0 || item.event == QR_JSON_ARRAY_END)
            return rc;
        if (i > 0)
            rc = qr_json_skip(r->scan, &item, r->err);
        else {
            r->choice_index = 0;
            rc = take_object(r, &item, c, table, QR_COUNT(table));
            c->has_choice = r->choice_index == 0;
        }
        if (rc != 0)
            return rc;
    }
}

/* ---- usage ---- */

static int take_count(struct reader *r, const struct qr_json_token *t, void *to)
{
    int64_t *count = to;
    if (t->event == QR_JSON_NULL)
        return 0;
    if (!qr_json_token_i64(t, count) || *count < 0)
        return wrong(r, t, "a number of tokens");
    return 0;
}

static int take_prompt_details(struct reader *r, const struct qr_json_token *t, void *to)
{
    static const struct member table[] = {{"cached_tokens", take_count, AT(usage.n_cached)}};
    return take_object(r, t, to, table, QR_COUNT(table));
}

static int take_usage(struct reader *r, const struct qr_json_token *t, void *to)
{
    static const struct member table[] = {
        {"prompt_tokens", take_count, AT(usage.n_prompt)},
        {"completion_tokens", take_count, AT(usage.n_output)},
        {"prompt_tokens_details", take_prompt_details, 0},
    };
    struct qr_chunk *c = to;
    c->has_usage = t->event == QR_JSON_OBJECT_BEGIN;
    return take_object(r, t, c, table, QR_COUNT(table));
}

/* ---- errors ---- */

static int take_error_message(struct reader *r, const struct qr_json_token *t, void *to)
{
    struct qr_chunk *c = to;
    if (t->event != QR_JSON_STRING)
        return qr_json_skip(r->scan, t, r->err);
    c->is_error = true;
    qr_buf_clear(&c->error_message);
    return take_string(r, t, &c->error_message);
}

static int take_error_code(struct reader *r, const struct qr_json_token *t, void *to)
{
    struct qr_buf *code = to;
    qr_buf_clear(code);
    if (t->event == QR_JSON_STRING)
        qr_json_unescape(code, t);
    else if (t->event == QR_JSON_NUMBER)
        qr_buf_put(code, t->text, t->len);
    return qr_json_skip(r->scan, t, r->err);
}

static int take_error(struct reader *r, const struct qr_json_token *t, void *to)
{
    static const struct member table[] = {{"message", take_error_message, 0},
                                          {"code", take_error_code, AT(error_code)}};
    struct qr_chunk *c = to;
    if (t->event == QR_JSON_STRING)
        return take_error_message(r, t, c);
    c->is_error = t->event == QR_JSON_OBJECT_BEGIN;
    return take_object(r, t, c, table, QR_COUNT(table));
}

/* ---- a chunk ---- */

/* An older error shape has its message at the top ("message" beside "object": "error", or "detail"). */
static const struct member top[] = {
    {"choices", take_choices, 0},       {"usage", take_usage, 0},          {"error", take_error, 0},
    {"message", take_error_message, 0}, {"detail", take_error_message, 0},
};

void qr_chunk_init(struct qr_chunk *c)
{
    QR_ASSERT(c != NULL);
    memset(c, 0, sizeof *c);
    c->usage = (struct qr_usage){-1, -1, -1};
}

/* What a choice said: the buffers of its texts and of the first n_tools tool calls. */
static void each_buffer(struct qr_chunk *c, void (*fn)(struct qr_buf *b), int32_t n_tools)
{
    struct qr_buf *text[] = {&c->role, &c->text, &c->refusal, &c->reasoning, &c->finish};
    for (int i = 0; i < QR_COUNT(text); i++)
        fn(text[i]);
    for (int32_t i = 0; i < n_tools; i++) {
        fn(&c->tools.item[i].id);
        fn(&c->tools.item[i].name);
        fn(&c->tools.item[i].arguments);
    }
    c->tools.n = 0;
}

void qr_chunk_release(struct qr_chunk *c)
{
    each_buffer(c, qr_buf_release, QR_TOOL_CALLS_MAX);
    qr_buf_release(&c->error_message);
    qr_buf_release(&c->error_code);
}

static void clear_choice(struct qr_chunk *c)
{
    each_buffer(c, qr_buf_clear, c->tools.n);
    c->has_choice = false;
}

int qr_chunk_parse(struct qr_chunk *c, const char *data, size_t n, struct qr_err *err)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(data != NULL);
    clear_choice(c);
    qr_buf_clear(&c->error_message);
    qr_buf_clear(&c->error_code);
    c->has_usage = c->is_error = false;
    c->usage = (struct qr_usage){-1, -1, -1};
    c->done = n >= 6 && memcmp(data, "[DONE]", 6) == 0;
    if (c->done)
        return 0;
    struct reader r = {.scan = qr_json_scan_new(data, n, &limits), .err = err};
    struct qr_json_token t;
    int rc = qr_json_next(r.scan, &t, err);
    if (rc == 0)
        rc = take_object(&r, &t, c, top, QR_COUNT(top));
    if (rc == 0)
        rc = qr_json_next(r.scan, &t, err); /* nothing may follow */
    qr_json_scan_free(r.scan);
    if (rc == 0 && !c->has_choice)
        clear_choice(c);
    return rc;
}

bool qr_chunk_generates(const struct qr_chunk *c)
{
    QR_ASSERT(c != NULL);
    return c->has_choice && (c->text.len + c->refusal.len + c->reasoning.len > 0 || c->tools.n > 0);
}

/* ---- the sum of a stream's chunks ---- */

static void append(struct qr_buf *to, const struct qr_buf *from)
{
    if (from->len != 0)
        qr_buf_put(to, from->data, from->len);
}

static struct qr_tool_call *tool_at(struct qr_tool_calls *tools, int32_t index)
{
    for (int i = 0; i < tools->n; i++)
        if (tools->item[i].index == index)
            return &tools->item[i];
    QR_ASSERT(tools->n < QR_TOOL_CALLS_MAX); /* indices are below the limit, and each is taken once */
    tools->item[tools->n].index = index;
    return &tools->item[tools->n++];
}

void qr_chunk_add(struct qr_chunk *sum, const struct qr_chunk *c)
{
    QR_ASSERT(sum != NULL);
    QR_ASSERT(!c->is_error);
    if (c->done) {
        sum->done = true;
        return;
    }
    sum->n_chunks++;
    if (sum->role.len == 0)
        append(&sum->role, &c->role);
    append(&sum->text, &c->text);
    append(&sum->refusal, &c->refusal);
    append(&sum->reasoning, &c->reasoning);
    if (sum->finish.len == 0)
        append(&sum->finish, &c->finish);
    for (int i = 0; i < c->tools.n; i++) {
        const struct qr_tool_call *from = &c->tools.item[i];
        struct qr_tool_call *to = tool_at(&sum->tools, from->index);
        append(&to->id, &from->id);
        append(&to->name, &from->name);
        append(&to->arguments, &from->arguments);
    }
    if (c->has_usage)
        sum->usage = c->usage;
}
