/* chunk.c - see chunk.h. One pass over the tokens, no tree: a load generator reads tens of thousands of these per second. Each
 * kind of object is a table of members. */
#include "client/chunk.h"

#include <string.h>

#include "base/assert.h"
#include "base/json.h"

static const struct qr_json_limits limits = {.bytes_max = 64 << 20, .values_max = 4 << 20, .depth_max = 64, .nul_ok = true};

struct reader {
    struct qr_json_scan *scan; /* borrowed */
    struct qr_chunk *chunk;    /* borrowed */
    struct qr_err *err;        /* borrowed */
    struct qr_tool_call *tool; /* borrowed from chunk; the one being read */
    int64_t choice_index;
};

struct member {
    const char *name;
    int (*take)(struct reader *r, const struct qr_json_token *value);
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
static int take_object(struct reader *r, const struct qr_json_token *t, const struct member *table, int n)
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
            rc = i < n ? table[i].take(r, &value) : qr_json_skip(r->scan, &value, r->err);
        if (rc != 0)
            return rc;
    }
}

/* A string into `out`, appended; null leaves it. *present says which it was. */
static int take_string(struct reader *r, const struct qr_json_token *t, struct qr_buf *out, bool *present)
{
    if (t->event == QR_JSON_NULL)
        return 0;
    if (t->event != QR_JSON_STRING)
        return wrong(r, t, "a string or null");
    qr_json_unescape(out, t);
    if (present != NULL)
        *present = true;
    return 0;
}

/* ---- tool calls ---- */

static int take_tool_index(struct reader *r, const struct qr_json_token *t)
{
    int64_t v;
    if (!qr_json_token_i64(t, &v) || v < 0 || v >= QR_TOOL_CALLS_MAX)
        return wrong(r, t, "a tool call's index from 0 to 63");
    r->tool->index = (int32_t)v;
    return 0;
}

static int take_tool_id(struct reader *r, const struct qr_json_token *t)
{
    return take_string(r, t, &r->tool->id, NULL);
}

static int take_function_name(struct reader *r, const struct qr_json_token *t)
{
    return take_string(r, t, &r->tool->name, NULL);
}

static int take_function_arguments(struct reader *r, const struct qr_json_token *t)
{
    return take_string(r, t, &r->tool->arguments, NULL);
}

static int take_function(struct reader *r, const struct qr_json_token *t)
{
    static const struct member table[] = {{"name", take_function_name}, {"arguments", take_function_arguments}};
    return take_object(r, t, table, QR_COUNT(table));
}

static int take_tool_calls(struct reader *r, const struct qr_json_token *t)
{
    static const struct member table[] = {{"index", take_tool_index}, {"id", take_tool_id}, {"function", take_function}};
    if (t->event == QR_JSON_NULL)
        return 0;
    if (t->event != QR_JSON_ARRAY_BEGIN)
        return wrong(r, t, "an array of tool calls");
    struct qr_tool_calls *tools = &r->chunk->tools;
    for (;;) {
        struct qr_json_token item;
        int rc = qr_json_next(r->scan, &item, r->err);
        if (rc != 0 || item.event == QR_JSON_ARRAY_END)
            return rc;
        if (tools->n == QR_TOOL_CALLS_MAX)
            return wrong(r, &item, "at most 64 tool calls");
        r->tool = &tools->item[tools->n];
        r->tool->index = tools->n++; /* a whole answer numbers them by place */
        rc = take_object(r, &item, table, QR_COUNT(table));
        if (rc != 0)
            return rc;
    }
}

/* ---- choices ---- */

static int take_role(struct reader *r, const struct qr_json_token *t)
{
    return take_string(r, t, &r->chunk->role, NULL);
}

static int take_text(struct reader *r, const struct qr_json_token *t)
{
    return take_string(r, t, &r->chunk->text, &r->chunk->has_text);
}

static int take_refusal(struct reader *r, const struct qr_json_token *t)
{
    return take_string(r, t, &r->chunk->refusal, &r->chunk->has_refusal);
}

static int take_reasoning(struct reader *r, const struct qr_json_token *t)
{
    if (r->chunk->has_reasoning) /* some servers send it under both of its names */
        return qr_json_skip(r->scan, t, r->err);
    return take_string(r, t, &r->chunk->reasoning, &r->chunk->has_reasoning);
}

static int take_message(struct reader *r, const struct qr_json_token *t)
{
    static const struct member table[] = {
        {"role", take_role},           {"content", take_text},        {"refusal", take_refusal},
        {"reasoning", take_reasoning}, {"reasoning_content", take_reasoning}, {"tool_calls", take_tool_calls},
    };
    return take_object(r, t, table, QR_COUNT(table));
}

static int take_finish(struct reader *r, const struct qr_json_token *t)
{
    return take_string(r, t, &r->chunk->finish, NULL);
}

static int take_choice_index(struct reader *r, const struct qr_json_token *t)
{
    return qr_json_token_i64(t, &r->choice_index) ? 0 : wrong(r, t, "a choice's index");
}

static int take_choices(struct reader *r, const struct qr_json_token *t)
{
    static const struct member table[] = {
        {"delta", take_message}, {"message", take_message},        {"text", take_text},
        {"index", take_choice_index}, {"finish_reason", take_finish},
    };
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
            rc = take_object(r, &item, table, QR_COUNT(table));
            r->chunk->has_choice = r->choice_index == 0;
        }
        if (rc != 0)
            return rc;
    }
}

/* ---- usage ---- */

static int take_count(struct reader *r, const struct qr_json_token *t, int64_t *out)
{
    if (t->event == QR_JSON_NULL)
        return 0;
    if (!qr_json_token_i64(t, out) || *out < 0)
        return wrong(r, t, "a number of tokens");
    return 0;
}

static int take_n_prompt(struct reader *r, const struct qr_json_token *t)
{
    return take_count(r, t, &r->chunk->usage.n_prompt);
}

static int take_n_output(struct reader *r, const struct qr_json_token *t)
{
    return take_count(r, t, &r->chunk->usage.n_output);
}

static int take_n_cached(struct reader *r, const struct qr_json_token *t)
{
    return take_count(r, t, &r->chunk->usage.n_cached);
}

static int take_prompt_details(struct reader *r, const struct qr_json_token *t)
{
    static const struct member table[] = {{"cached_tokens", take_n_cached}};
    return take_object(r, t, table, QR_COUNT(table));
}

static int take_usage(struct reader *r, const struct qr_json_token *t)
{
    static const struct member table[] = {
        {"prompt_tokens", take_n_prompt},
        {"completion_tokens", take_n_output},
        {"prompt_tokens_details", take_prompt_details},
    };
    r->chunk->has_usage = t->event == QR_JSON_OBJECT_BEGIN;
    return take_object(r, t, table, QR_COUNT(table));
}

/* ---- errors ---- */

static int take_error_message(struct reader *r, const struct qr_json_token *t)
{
    if (t->event != QR_JSON_STRING)
        return qr_json_skip(r->scan, t, r->err);
    r->chunk->is_error = true;
    qr_buf_clear(&r->chunk->error_message);
    return take_string(r, t, &r->chunk->error_message, NULL);
}

static int take_error_code(struct reader *r, const struct qr_json_token *t)
{
    qr_buf_clear(&r->chunk->error_code);
    if (t->event == QR_JSON_STRING)
        qr_json_unescape(&r->chunk->error_code, t);
    else if (t->event == QR_JSON_NUMBER)
        qr_buf_put(&r->chunk->error_code, t->text, t->len);
    return qr_json_skip(r->scan, t, r->err);
}

static int take_error(struct reader *r, const struct qr_json_token *t)
{
    static const struct member table[] = {{"message", take_error_message}, {"code", take_error_code}};
    if (t->event == QR_JSON_STRING)
        return take_error_message(r, t);
    r->chunk->is_error = t->event == QR_JSON_OBJECT_BEGIN;
    return take_object(r, t, table, QR_COUNT(table));
}

/* ---- a chunk ---- */

/* An older error shape has its message at the top ("message" beside "object": "error", or "detail"). */
static int take_top(struct reader *r, const struct qr_json_token *t)
{
    static const struct member table[] = {
        {"choices", take_choices},       {"usage", take_usage},       {"error", take_error},
        {"message", take_error_message}, {"detail", take_error_message},
    };
    return take_object(r, t, table, QR_COUNT(table));
}

static void clear_tools(struct qr_tool_calls *tools)
{
    for (int i = 0; i < tools->n; i++) {
        qr_buf_clear(&tools->item[i].id);
        qr_buf_clear(&tools->item[i].name);
        qr_buf_clear(&tools->item[i].arguments);
    }
    tools->n = 0;
}

static void release_tools(struct qr_tool_calls *tools)
{
    for (int i = 0; i < QR_TOOL_CALLS_MAX; i++) {
        qr_buf_release(&tools->item[i].id);
        qr_buf_release(&tools->item[i].name);
        qr_buf_release(&tools->item[i].arguments);
    }
    tools->n = 0;
}

void qr_chunk_init(struct qr_chunk *c)
{
    QR_ASSERT(c != NULL);
    memset(c, 0, sizeof *c);
}

void qr_chunk_release(struct qr_chunk *c)
{
    struct qr_buf *bufs[] = {&c->role, &c->text, &c->refusal, &c->reasoning, &c->finish, &c->error_message, &c->error_code};
    for (int i = 0; i < QR_COUNT(bufs); i++)
        qr_buf_release(bufs[i]);
    release_tools(&c->tools);
}

static void clear_choice(struct qr_chunk *c)
{
    struct qr_buf *bufs[] = {&c->role, &c->text, &c->refusal, &c->reasoning, &c->finish};
    for (int i = 0; i < QR_COUNT(bufs); i++)
        qr_buf_clear(bufs[i]);
    clear_tools(&c->tools);
    c->has_choice = c->has_text = c->has_refusal = c->has_reasoning = false;
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
    struct reader r = {.scan = qr_json_scan_new(data, n, &limits), .chunk = c, .err = err};
    struct qr_json_token t;
    int rc = qr_json_next(r.scan, &t, err);
    if (rc == 0)
        rc = take_top(&r, &t);
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

/* ---- the answer ---- */

void qr_answer_init(struct qr_answer *a)
{
    QR_ASSERT(a != NULL);
    memset(a, 0, sizeof *a);
    a->usage = (struct qr_usage){-1, -1, -1};
}

void qr_answer_release(struct qr_answer *a)
{
    struct qr_buf *bufs[] = {&a->role, &a->text, &a->refusal, &a->reasoning, &a->finish};
    for (int i = 0; i < QR_COUNT(bufs); i++)
        qr_buf_release(bufs[i]);
    release_tools(&a->tools);
}

void qr_answer_clear(struct qr_answer *a)
{
    qr_answer_release(a);
    qr_answer_init(a);
}

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

void qr_answer_add(struct qr_answer *a, const struct qr_chunk *c)
{
    QR_ASSERT(a != NULL);
    QR_ASSERT(!c->is_error);
    if (c->done) {
        a->done = true;
        return;
    }
    a->n_chunks++;
    a->has_text |= c->has_text;
    a->has_refusal |= c->has_refusal;
    if (a->role.len == 0)
        append(&a->role, &c->role);
    append(&a->text, &c->text);
    append(&a->refusal, &c->refusal);
    append(&a->reasoning, &c->reasoning);
    if (a->finish.len == 0)
        append(&a->finish, &c->finish);
    for (int i = 0; i < c->tools.n; i++) {
        const struct qr_tool_call *from = &c->tools.item[i];
        struct qr_tool_call *to = tool_at(&a->tools, from->index);
        append(&to->id, &from->id);
        append(&to->name, &from->name);
        append(&to->arguments, &from->arguments);
    }
    if (c->has_usage) {
        a->usage = c->usage;
        a->has_usage = true;
    }
}
