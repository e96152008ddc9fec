/* api_responses.c - what clients ask of responses that were stored, or that are being made: GET and DELETE /v1/responses/{id}, GET {id}/input_items,
 * POST {id}/cancel. Those of another key are as if they were not there. Loop thread. */
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

static void put_item_id(struct qr_buf *out, const struct qr_json *item)
{
    const struct qr_json *id = item ? qr_json_find(item, "id") : NULL;
    if (id)
        qr_json_print(out, id);
    else
        qr_buf_put_str(out, "null");
}

/* All of them, from the first to the last. */
static void reply_items(struct qr_server *s, struct qr_conn *c, const struct asked *a)
{
    struct qr_buf body = {0};
    struct qr_json *v = NULL;
    struct qr_err err;
    qr_buf_put_str(&body, "{\"object\":\"list\",\"data\":[");
    const size_t begin = body.len - 1;
    if (!qr_responses_get(s->responses, &a->owner, a->id, QR_RESPONSE_INPUT, &body)) {
        qr_buf_release(&body);
        reply_missing(c, a);
        return;
    }
    qr_buf_put_byte(&body, ']');
    const int rc = qr_json_parse(&v, body.data + begin, body.len - begin, &qr_responses_limits, &err);
    const struct qr_json *first = rc == 0 ? qr_json_first(v) : NULL, *last = first;
    for (const struct qr_json *next = last; next; next = qr_json_after(next))
        last = next;
    qr_buf_put_str(&body, ",\"first_id\":");
    put_item_id(&body, first);
    qr_buf_put_str(&body, ",\"last_id\":");
    put_item_id(&body, last);
    qr_buf_put_str(&body, ",\"has_more\":false}");
    qr_json_free(v);
    reply_json(c, &body);
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

void qr_api_response_get(struct qr_server *s, struct qr_conn *c)
{
    struct asked a;
    QR_ASSERT(s != NULL && c != NULL);
    QR_ASSERT(s->responses != NULL);
    read_asked(&a, s, c);
    if (strcmp(a.what, "input_items") == 0)
        reply_items(s, c, &a);
    else if (a.what[0] == 0)
        reply_stored(s, c, &a);
    else
        reply_unknown(c, "GET");
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
