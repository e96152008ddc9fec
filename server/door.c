/* door.c - a door's body becomes a chat body, field by field, and errors of that body are told in the door's words. Which field means what stands in the
 * door's own table. Pure, but for what a door's readers do; on libuv's pool, charged to the request's account. */
#include "server/door.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "server/api_error.h"
#include "server/openai.h"

#define FIELDS_MAX 48

/* ---- in ---- */

void qr_door_put_name(struct qr_door_in *in, const char *chat)
{
    QR_ASSERT(in != NULL && chat != NULL);
    qr_json_put_name(&in->chat, chat);
}

void qr_door_put_value(struct qr_door_in *in, const char *chat, const struct qr_json *v)
{
    if (qr_json_is_null(v))
        return;
    qr_door_put_name(in, chat);
    qr_json_print(&in->chat, v);
}

void qr_door_put_text(struct qr_door_in *in, const char *chat, const char *json)
{
    QR_ASSERT(json != NULL && json[0] != 0);
    qr_door_put_name(in, chat);
    qr_buf_put_str(&in->chat, json);
}

void qr_door_put_member(struct qr_buf *out, const char *name, const struct qr_json *v)
{
    QR_ASSERT(out != NULL && name != NULL);
    if (qr_json_is_null(v))
        return;
    qr_json_put_name(out, name);
    qr_json_print(out, v);
}

void qr_door_put_function(struct qr_buf *out, const struct qr_json *tool, const struct qr_json *parameters)
{
    QR_ASSERT(out != NULL);
    qr_buf_put_comma(out);
    if (!tool) {
        qr_buf_put_str(out, "{\"type\":\"other\"}");
        return;
    }
    qr_buf_put_str(out, "{\"type\":\"function\",\"function\":{");
    qr_door_put_member(out, "name", qr_json_find(tool, "name"));
    qr_door_put_member(out, "description", qr_json_find(tool, "description"));
    qr_door_put_member(out, "parameters", parameters);
    qr_door_put_member(out, "strict", qr_json_find(tool, "strict"));
    qr_buf_put_str(out, "}}");
}

int qr_door_put_tools(struct qr_door_in *in, const struct qr_json *v, qr_door_tool_fn *put, struct qr_err *err)
{
    int rc = 0;
    int32_t i = 0;
    QR_ASSERT(in != NULL && v != NULL);
    QR_ASSERT(put != NULL && err != NULL);
    if (qr_json_type(v) != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, "tools", "an array", v);
    qr_door_put_name(in, "tools");
    qr_buf_put_byte(&in->chat, '[');
    for (const struct qr_json *tool = qr_json_first(v); tool && rc == 0; tool = qr_json_after(tool), i++)
        rc = put(&in->chat, tool, i, err);
    qr_buf_put_byte(&in->chat, ']');
    return rc;
}

void qr_door_put_source(struct qr_door_in *in, const char *path)
{
    QR_ASSERT(in != NULL && path != NULL);
    qr_buf_put(&in->sources, path, strlen(path) + 1);
}

static int put_fields(const struct qr_door *door, struct qr_door_in *in, struct qr_err *err)
{
    int rc = 0;
    qr_buf_put_byte(&in->chat, '{');
    for (int32_t i = 0; i < door->n_fields && rc == 0; i++) {
        const struct qr_door_field *f = &door->field[i];
        const struct qr_json *v = qr_json_find(in->body, f->name);
        if (qr_json_is_null(v))
            continue;
        if (f->put)
            rc = f->put(in, v, err);
        else
            qr_door_put_value(in, f->chat, v);
    }
    rc = rc == 0 && door->settle ? door->settle(in, err) : rc;
    qr_buf_put_byte(&in->chat, '}');
    return rc;
}

int qr_door_translate(const struct qr_door *door, struct qr_door_in *in, const char *body, size_t len, struct qr_err *err)
{
    const char *wanted[FIELDS_MAX + 1] = {NULL};
    struct qr_json *doc = NULL;
    QR_ASSERT(door != NULL && in != NULL && in->chat.len == 0);
    QR_ASSERT(door->n_fields <= FIELDS_MAX);
    for (int32_t i = 0; i < door->n_fields; i++)
        wanted[i] = door->field[i].name;
    int rc = qr_body_parse(&doc, body, len, wanted, err);
    in->body = doc;
    rc = rc ? rc : put_fields(door, in, err);
    in->body = NULL;
    qr_json_free(doc);
    return rc;
}

void qr_door_in_release(struct qr_door_in *in)
{
    QR_ASSERT(in != NULL);
    qr_buf_release(&in->chat);
    qr_buf_release(&in->sources);
    qr_buf_release(&in->kept);
}

/* ---- errors in the door's words ---- */

/* How much of `path` the pattern is, 0: it does not begin with that. '#' is any number, which *number becomes. */
static size_t match(const char *path, const char *pattern, int32_t *number)
{
    const char *at = path;
    for (; *pattern; pattern++) {
        if (*pattern != '#') {
            if (*at++ != *pattern)
                return 0;
            continue;
        }
        const char *first = at;
        for (*number = 0; *at >= '0' && *at <= '9' && at - first < 7; at++)
            *number = *number * 10 + (*at - '0');
        if (at == first)
            return 0;
    }
    return *at == 0 || *at == '.' || *at == '[' ? (size_t)(at - path) : 0;
}

struct renaming {
    const char *path, *own;    /* of chat; the best pattern for it so far */
    size_t n;                  /* of path that it stands for */
    int32_t number;
};

static void consider(struct renaming *r, const char *chat, const char *own)
{
    int32_t number = 0;
    const size_t n = chat ? match(r->path, chat, &number) : 0;
    if (n > r->n) {
        r->n = n;
        r->own = own;
        r->number = number;
    }
}

/* Where the chat message of that number comes from; NULL: the door did not say. */
static const char *source_of(const struct qr_buf *sources, int32_t i)
{
    const char *at = sources->data, *end = at ? at + sources->len : NULL;
    for (; at < end && i > 0; i--)
        at += strlen(at) + 1;
    return at < end ? at : NULL;
}

static void put_own(char out[128], const struct renaming *r)
{
    const char *number = strchr(r->own, '#'), *rest = r->path + r->n;
    if (number)
        snprintf(out, 128, "%.*s%d%s%s", (int)(number - r->own), r->own, r->number, number + 1, rest);
    else
        snprintf(out, 128, "%s%s", r->own, rest);
}

void qr_door_rename(const struct qr_door *door, const struct qr_buf *sources, struct qr_api_error *e)
{
    char own[128], message[sizeof e->message];
    struct renaming r = {.path = e->param};
    QR_ASSERT(door != NULL && sources != NULL && e != NULL);
    QR_ASSERT(e->status != 0);
    for (int32_t i = 0; i < door->n_fields; i++)
        consider(&r, door->field[i].chat, door->field[i].name);
    for (int32_t i = 0; i < door->n_paths; i++)
        consider(&r, door->path[i].chat, door->path[i].own);
    consider(&r, "messages[#]", "messages[#]");
    if (r.n == 0)
        return;
    const char *source = strcmp(r.own, "messages[#]") == 0 ? source_of(sources, r.number) : NULL;
    r.own = source ? source : r.own;
    put_own(own, &r);
    const size_t n = strlen(e->param);
    if (strncmp(e->message, e->param, n) == 0) {
        snprintf(message, sizeof message, "%s%s", own, e->message + n);
        memcpy(e->message, message, sizeof message);
    }
    memcpy(e->param, own, sizeof own);
}

struct door_paths {
    const char *begins, *name;
    const struct qr_door *door; /* whose form errors have; NULL: OpenAI's */
};

static const struct door_paths *find_paths(const char *path, size_t len)
{
    static const struct door_paths known[] = {{"/v1/messages", "messages", &qr_door_messages}, {"/api", "ollama", &qr_door_ollama},
                                              {"/v1/responses", "responses", NULL}, {"", "openai", NULL}};
    QR_ASSERT(path != NULL || len == 0);
    int i = 0;
    for (; known[i].begins[0]; i++) {
        const size_t n = strlen(known[i].begins);
        if (len >= n && memcmp(path, known[i].begins, n) == 0 && (len == n || path[n] == '/'))
            break;
    }
    return &known[i];
}

const struct qr_door *qr_door_of_path(const char *path, size_t len)
{
    return find_paths(path, len)->door;
}

const char *qr_door_name_of_path(const char *path, size_t len)
{
    return find_paths(path, len)->name;
}
