/* GET /v1/usage: what keys have done since the start. A user's key sees its own, an admin's all; a key is told by its name. */
#include "base/assert.h"
#include "base/json.h"
#include "server/route.h"

static void put_limit(struct qr_buf *out, const char *name, int64_t limit)
{
    if (limit > 0)
        qr_buf_printf(out, ",\"%s\":%lld", name, (long long)limit);
    else
        qr_buf_printf(out, ",\"%s\":null", name);
}

static void put_key(struct qr_buf *out, const struct qr_key *key)
{
    const struct qr_key_use *u = &key->use;
    qr_buf_printf(out, "{\"object\":\"usage\",\"key\":\"%s\",\"admin\":%s,\"requests\":%lld,\"errors\":%lld,\"running\":%d", key->name, /* plain bytes */
                  key->role == QR_ROLE_ADMIN ? "true" : "false", (long long)u->n_requests, (long long)u->n_errors, key->state.n_running);
    qr_buf_printf(out, ",\"prompt_tokens\":%lld,\"cached_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld", (long long)u->prompt_tokens,
                  (long long)u->cached_tokens, (long long)u->output_tokens, (long long)(u->prompt_tokens + u->output_tokens));
    qr_buf_printf(out, ",\"limits\":{\"weight\":%lld", (long long)key->terms.weight);
    put_limit(out, "rpm", key->terms.rpm);
    put_limit(out, "tpm", key->terms.tpm);
    put_limit(out, "concurrent", key->terms.concurrent);
    qr_buf_put_str(out, "}}");
}

void qr_api_usage(struct qr_server *s, struct qr_conn *c)
{
    struct qr_buf b = {0};
    QR_ASSERT(s != NULL && c != NULL);
    const struct qr_span presented = qr_route_key(qr_conn_head(c));
    const struct qr_key *own = qr_keys_find(s->keys, presented.data, presented.len), *key;
    QR_ASSERT(own != NULL); /* the route looked */
    qr_buf_printf(&b, "{\"object\":\"list\",\"since\":%lld,\"data\":[", (long long)s->started_s);
    for (int32_t i = 0; (key = qr_keys_at(s->keys, i)) != NULL; i++) {
        if (own->role != QR_ROLE_ADMIN && key != own)
            continue;
        qr_buf_put_comma(&b);
        put_key(&b, key);
    }
    qr_buf_put_str(&b, "]}");
    struct qr_reply reply = {.status = 200, .content_type = "application/json", .taken = &b};
    qr_conn_reply(c, &reply);
}
