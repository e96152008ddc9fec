#include "server/access.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "server/access_log.h"
#include "server/call.h"
#include "server/route.h"

#define TEXT_MAX 200 /* bytes of a path or a model's name */
#define GONE 499     /* nginx's status for a client that left before there was one */

/* Text of a client's choice, cut; NULL is null. */
static void put_cut(struct qr_buf *b, const char *name, const char *text, size_t n)
{
    qr_json_put_name(b, name);
    if (text)
        qr_json_put_str(b, text, n < TEXT_MAX ? n : TEXT_MAX);
    else
        qr_buf_put_str(b, "null");
}

/* Milliseconds, to the microsecond; a negative time is null. */
static void put_ms(struct qr_buf *b, const char *name, int64_t us)
{
    qr_json_put_name(b, name);
    if (us >= 0)
        qr_buf_printf(b, "%lld.%03d", (long long)(us / 1000), (int)(us % 1000));
    else
        qr_buf_put_str(b, "null");
}

static const struct qr_key *key_of(const struct qr_server *s, const struct qr_call *call, const struct qr_http_head *h)
{
    if (call)
        return call->key;
    const struct qr_span presented = h ? qr_route_key(h) : (struct qr_span){0};
    return presented.data ? qr_keys_find(s->keys, presented.data, presented.len) : NULL;
}

/* An error's code, or how the first answer ended. */
static const char *finish_of(const struct qr_call *call, const struct qr_answered *a)
{
    if (!a->whole || a->code)
        return a->whole ? a->code : "gone";
    if (call && call->error.status != 0) /* behind what was streamed */
        return call->error.code;
    if (!call || call->kind->api == 0 || call->n_choices == 0)
        return NULL;
    const struct qr_choice *choice = &call->choice[0];
    return choice->finish == QR_FINISH_STOP && choice->n_calls > 0 ? "tool_calls" : qr_finish_name(choice->finish);
}

static void put_line(struct qr_buf *b, const struct qr_server *s, struct qr_conn *c, const struct qr_answered *a)
{
    char now[QR_ACCESS_TIME], client[QR_ADDRESS_TEXT];
    static const struct qr_key_use nothing;
    const struct qr_http_head *h = a->head;
    const struct qr_call *call = qr_conn_call(c);
    const struct qr_key *key = key_of(s, call, h);
    const char *model = call && !call->preparing ? call->model : NULL;
    const struct qr_key_use *used = call ? &call->used : &nothing;
    qr_buf_put_byte(b, '{');
    qr_json_put_member_text(b, "time", qr_access_time(now));
    put_cut(b, "id", qr_conn_request_id(c), strlen(qr_conn_request_id(c)));
    qr_json_put_member_text(b, "client", a->client.n_bytes > 0 ? qr_address_text(client, &a->client) : NULL);
    qr_json_put_member_text(b, "key", key ? key->name : NULL);
    put_cut(b, "method", h ? h->method.data : NULL, h ? h->method.len : 0);
    put_cut(b, "path", h ? h->path.data : NULL, h ? h->path.len : 0);
    qr_json_put_member_i64(b, "status", a->status == 0 ? GONE : a->status);
    qr_json_put_member_text(b, "door", h ? qr_door_name_of_path(h->path.data, h->path.len) : NULL);
    put_cut(b, "model", model, model ? strlen(model) : 0);
    qr_json_put_member_i64(b, "prompt_tokens", used->prompt_tokens);
    qr_json_put_member_i64(b, "cached_tokens", used->cached_tokens);
    qr_json_put_member_i64(b, "output_tokens", used->output_tokens);
    put_ms(b, "ttft_ms", call && call->first_token_us > 0 ? call->first_token_us - a->begun_us : -1);
    put_ms(b, "total_ms", qr_clock_us() - a->begun_us);
    qr_json_put_member_text(b, "finish", finish_of(call, a));
    qr_json_put_member_i64(b, "bytes", a->bytes);
    qr_buf_put_str(b, "}\n");
}

void qr_access_answered(void *server, struct qr_conn *c, const struct qr_answered *a)
{
    struct qr_server *s = server;
    QR_ASSERT(s != NULL && c != NULL);
    QR_ASSERT(a != NULL);
    if (qr_log_on(QR_LOG_DEBUG) && a->head)
        qr_log(QR_LOG_DEBUG, "server", "answered status=%d id=%s method=%.*s path=%.*s us=%lld", a->status, qr_conn_request_id(c), (int)a->head->method.len,
               a->head->method.data, a->head->path.len < TEXT_MAX ? (int)a->head->path.len : TEXT_MAX, a->head->path.data,
               (long long)(qr_clock_us() - a->begun_us));
    if (!s->access)
        return;
    qr_buf_clear(&s->access_line);
    put_line(&s->access_line, s, c, a);
    qr_access_log_put(s->access, s->access_line.data, s->access_line.len);
}
