/* api_responses.c - what clients ask of responses that were stored, or that are being made: GET and DELETE /v1/responses/{id}, GET {id}/input_items
 * (a page of them), POST {id}/cancel. Those of another key are as if they were not there. Loop thread. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "server/call.h"
#include "server/responses.h"
#include "server/route.h"

#define PREFIX "/v1/responses/"

/* Which response, and what of it. */
struct asked {
    struct qr_key_digest owner;
    char id[QR_RESPONSE_ID_MAX + 1]; /* "": none that could be one */
    char what[16];                   /* "", "cancel", "input_items"; else "?" */
};

static void read_asked(struct asked *a, const struct qr_server *s, const struct qr_conn *c)
{
    static const char *const known[] = {"cancel", "input_items"};
    const struct qr_http_head *h = qr_conn_head(c);
    const size_t n = sizeof PREFIX - 1;
    const struct qr_span key = qr_route_key(h);
    QR_ASSERT(h->path.len > n);
    const char *id = h->path.data + n, *slash = memchr(id, '/', h->path.len - n);
    const size_t n_id = slash ? (size_t)(slash - id) : h->path.len - n, n_what = slash ? h->path.len - n - n_id - 1 : 0;
    *a = (struct asked){.what = "?"};
    a->owner = qr_keys_find(s->keys, key.data, key.len)->digest; /* the route looked */
    if (n_id <= QR_RESPONSE_ID_MAX)
        memcpy(a->id, id, n_id);
    if (!slash)
        a->what[0] = 0;
    for (int i = 0; i < QR_COUNT(known) && slash; i++)
        if (strlen(known[i]) == n_what && memcmp(slash + 1, known[i], n_what) == 0)
            snprintf(a->what, sizeof a->what, "%s", known[i]);
}

static void reply_missing(struct qr_conn *c, const struct asked *a)
{
    struct qr_api_error e;
    qr_api_error_set(&e, 404, "not_found", "There is no response '%s': it was not stored, its time is over, or others have taken its place.", a->id);
    snprintf(e.param, sizeof e.param, "response_id");
    qr_api_error_reply(c, &e);
}

static void reply_unknown(struct qr_conn *c, const char *method)
{
    const struct qr_span path = qr_conn_head(c)->path;
    struct qr_api_error e;
    qr_api_error_set(&e, 404, "unknown_route", "There is no route %s %.*s.", method, path.len < 200 ? (int)path.len : 200, path.data);
    qr_api_error_reply(c, &e);
}

static void reply_json(struct qr_conn *c, struct qr_buf *body)
{
    struct qr_reply reply = {.status = 200, .content_type = "application/json", .taken = body};
    qr_conn_reply(c, &reply);
}

static void reply_wrong(struct qr_conn *c, const char *name, const char *expected, struct qr_span found)
{
    struct qr_api_error e;
    qr_api_error_set(&e, 400, "invalid_value", "%s must be %s, found %.*s", name, expected, found.len < 60 ? (int)found.len : 60, found.data);
    snprintf(e.param, sizeof e.param, "%s", name);
    qr_api_error_reply(c, &e);
}

/* A parameter behind '?', as it was sent; its length is 0 where it is not there. */
static struct qr_span parameter(const struct qr_conn *c, const char *name)
{
    struct qr_span rest = qr_conn_head(c)->query;
    const size_t n_name = strlen(name);
    while (rest.len > 0) {
        const char *amp = memchr(rest.data, '&', rest.len);
        const size_t n = amp ? (size_t)(amp - rest.data) : rest.len, n_used = n + (amp != NULL);
        if (n > n_name && rest.data[n_name] == '=' && memcmp(rest.data, name, n_name) == 0)
            return (struct qr_span){rest.data + n_name + 1, n - n_name - 1};
        rest = (struct qr_span){rest.data + n_used, rest.len - n_used};
    }
    return (struct qr_span){NULL, 0};
}

/* ---- pages of items ---- */

#define PAGE_MAX 100
#define PAGE_USUAL 20

/* Which of the items are wanted. */
struct page {
    struct qr_span after; /* an item's id; empty: from the first on */
    int32_t limit;
    bool ascending;       /* from the oldest to the newest */
};

/* False: that is answered. */
static bool read_page(struct page *p, struct qr_conn *c)
{
    const struct qr_span limit = parameter(c, "limit"), order = parameter(c, "order");
    *p = (struct page){.after = parameter(c, "after"), .limit = limit.len > 0 ? 0 : PAGE_USUAL, .ascending = qr_span_is(order, "asc")};
    size_t i = 0;
    for (; i < limit.len && i < 4 && limit.data[i] >= '0' && limit.data[i] <= '9'; i++)
        p->limit = p->limit * 10 + (limit.data[i] - '0');
    if (i < limit.len || p->limit < 1 || p->limit > PAGE_MAX) {
        reply_wrong(c, "limit", "between 1 and 100", limit);
        return false;
    }
    if (order.len > 0 && !p->ascending && !qr_span_is(order, "desc")) {
        reply_wrong(c, "order", "asc or desc", order);
        return false;
    }
    return true;
}

/* The next of stored items, which are JSON objects with commas between them. They are walked as text, as there may be megabytes. */
static bool next_item(struct qr_span *rest, struct qr_span *item)
{
    const char *at = rest->data, *end = at + rest->len;
    int32_t depth = 0;
    bool text = false;
    if (rest->len == 0)
        return false;
    do {
        if (text && *at == '\\')
            at++;
        else if (*at == '"')
            text = !text;
        else if (!text)
            depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        at++;
    } while (depth > 0 && at < end);
    QR_ASSERT(depth == 0 && at <= end);
    *item = (struct qr_span){rest->data, (size_t)(at - rest->data)};
    at += at < end; /* the comma */
    *rest = (struct qr_span){at, (size_t)(end - at)};
    return true;
}

/* Of an item, as it is kept: {"type":"message","id":"ID",... */
static struct qr_span id_of(struct qr_span item)
{
    static const char before[] = "{\"type\":\"", between[] = "\",\"id\":\"";
    const char *type = item.data + sizeof before - 1, *end = memchr(type, '"', item.len - sizeof before + 1);
    QR_ASSERT(end != NULL && memcmp(end, between, sizeof between - 1) == 0);
    const char *id = end + sizeof between - 1;
    size_t n = 0;
    while (id[n] != '"')
        n += id[n] == '\\' ? 2 : 1;
    return (struct qr_span){id, n};
}

/* The items of a page, in its order; *more: there are others behind them. Returns how many, or -1: there is no item `after`. */
static int32_t turn_to(struct qr_span item[PAGE_MAX], bool *more, struct qr_span items, const struct page *p)
{
    struct qr_span rest = items, one, id;
    int64_t n_all = 0, after = -1;
    for (; next_item(&rest, &one); n_all++) {
        id = id_of(one);
        if (after < 0 && p->after.len > 0 && id.len == p->after.len && memcmp(id.data, p->after.data, id.len) == 0)
            after = n_all;
    }
    if (p->after.len > 0 && after < 0)
        return -1;
    const int64_t begin = p->ascending ? after + 1 : 0, end = p->ascending || after < 0 ? n_all : after; /* those left */
    const int64_t left = end - begin, n = left < p->limit ? left : p->limit, first = p->ascending ? begin : end - n;
    *more = n < left;
    rest = items;
    for (int64_t i = 0; i < first + n && next_item(&rest, &one); i++)
        if (i >= first)
            item[p->ascending ? i - first : first + n - 1 - i] = one;
    return (int32_t)n;
}

static void put_id(struct qr_buf *out, const char *name, const struct qr_span *item)
{
    const struct qr_span id = item ? id_of(*item) : (struct qr_span){NULL, 0};
    qr_buf_printf(out, item ? ",\"%s\":\"" : ",\"%s\":null", name);
    if (item) {
        qr_buf_put(out, id.data, id.len);
        qr_buf_put_byte(out, '"');
    }
}

static void reply_page(struct qr_conn *c, struct qr_span items, const struct page *p)
{
    struct qr_span item[PAGE_MAX];
    struct qr_buf body = {0};
    bool more = false;
    const int32_t n = turn_to(item, &more, items, p);
    if (n < 0) {
        struct qr_api_error e;
        qr_api_error_set(&e, 404, "not_found", "after: the response has no item %.*s.", p->after.len < 60 ? (int)p->after.len : 60, p->after.data);
        snprintf(e.param, sizeof e.param, "after");
        qr_api_error_reply(c, &e);
        return;
    }
    qr_buf_put_str(&body, "{\"object\":\"list\",\"data\":[");
    for (int32_t i = 0; i < n; i++) {
        qr_buf_put_comma(&body);
        qr_buf_put(&body, item[i].data, item[i].len);
    }
    qr_buf_put_byte(&body, ']');
    put_id(&body, "first_id", n > 0 ? &item[0] : NULL);
    put_id(&body, "last_id", n > 0 ? &item[n - 1] : NULL);
    qr_buf_put_str(&body, more ? ",\"has_more\":true}" : ",\"has_more\":false}");
    reply_json(c, &body);
}

static void reply_items(struct qr_server *s, struct qr_conn *c, const struct asked *a)
{
    struct qr_buf items = {0};
    struct page p;
    if (!read_page(&p, c))
        return;
    if (qr_responses_get(s->responses, &a->owner, a->id, QR_RESPONSE_INPUT, &items))
        reply_page(c, (struct qr_span){items.data, items.len}, &p);
    else
        reply_missing(c, a);
    qr_buf_release(&items);
}

static void reply_stored(struct qr_server *s, struct qr_conn *c, const struct asked *a)
{
    struct qr_buf body = {0};
    if (qr_responses_get(s->responses, &a->owner, a->id, QR_RESPONSE_BODY, &body)) {
        reply_json(c, &body);
        return;
    }
    qr_buf_release(&body);
    reply_missing(c, a);
}

/* Events of a stream are not kept. False: that is answered. */
static bool wants_whole(struct qr_conn *c)
{
    const struct qr_span stream = parameter(c, "stream");
    struct qr_api_error e;
    if (!qr_span_is(stream, "true") && !qr_span_is(stream, "1"))
        return true;
    qr_api_error_set(&e, 400, "unsupported", "stream: a stored response is not streamed again, as none is made in the background; leave stream out.");
    snprintf(e.param, sizeof e.param, "stream");
    qr_api_error_reply(c, &e);
    return false;
}

void qr_api_response_get(struct qr_server *s, struct qr_conn *c)
{
    struct asked a;
    QR_ASSERT(s != NULL && c != NULL);
    QR_ASSERT(s->responses != NULL);
    read_asked(&a, s, c);
    if (strcmp(a.what, "input_items") == 0)
        reply_items(s, c, &a);
    else if (a.what[0] != 0)
        reply_unknown(c, "GET");
    else if (wants_whole(c))
        reply_stored(s, c, &a);
}

void qr_api_response_delete(struct qr_server *s, struct qr_conn *c)
{
    struct asked a;
    struct qr_buf body = {0};
    QR_ASSERT(s != NULL && c != NULL);
    QR_ASSERT(s->responses != NULL);
    read_asked(&a, s, c);
    if (a.what[0] != 0) {
        reply_unknown(c, "DELETE");
    } else if (!qr_responses_delete(s->responses, &a.owner, a.id)) {
        reply_missing(c, &a);
    } else {
        qr_buf_printf(&body, "{\"id\":\"%s\",\"object\":\"response\",\"deleted\":true}", a.id);
        reply_json(c, &body);
    }
}

/* One that runs ends as cancelled; one that has ended stays as it is. */
void qr_api_response_post(struct qr_server *s, struct qr_conn *c)
{
    struct asked a;
    struct qr_buf body = {0};
    QR_ASSERT(s != NULL && c != NULL);
    QR_ASSERT(s->responses != NULL);
    read_asked(&a, s, c);
    if (strcmp(a.what, "cancel") != 0) {
        reply_unknown(c, "POST");
        return;
    }
    struct qr_call *call = qr_calls_find(s, a.id, &a.owner);
    if (!call || call->kind != &qr_call_responses) {
        reply_stored(s, c, &a);
        return;
    }
    qr_responses_cancelled(call, &body);
    qr_call_cancel(call, "The response was cancelled.");
    reply_json(c, &body);
}
