/* Routes for people and machines that look after the server: /health /livez /readyz /version /metrics. */
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "server/metrics.h"
#include "server/route.h"

static void reply_status(struct qr_conn *c, int32_t status, const char *word)
{
    struct qr_buf b = {0};
    qr_buf_printf(&b, "{\"status\":\"%s\"}", word);
    struct qr_reply reply = {.status = status, .content_type = "application/json", .body = b.data, .len = b.len,
                             .extra = status == 503 ? "Retry-After: 1\r\n" : NULL};
    qr_conn_reply(c, &reply);
    qr_buf_release(&b);
}

/* The loop turns: that is all it says. */
void qr_api_livez(struct qr_server *s, struct qr_conn *c)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(c != NULL);
    reply_status(c, 200, "ok");
}

/* New requests would be served: the model is in, no drain, the engine moves. */
void qr_api_readyz(struct qr_server *s, struct qr_conn *c)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(c != NULL);
    const char *trouble = qr_server_trouble(s);
    reply_status(c, trouble ? 503 : 200, trouble ? trouble : "ready");
}

/* Like /readyz, but a drain is healthy: what is running goes on. */
void qr_api_health(struct qr_server *s, struct qr_conn *c)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(c != NULL);
    const char *trouble = qr_server_trouble(s);
    bool healthy = !trouble || strcmp(trouble, "draining") == 0;
    reply_status(c, healthy ? 200 : 503, trouble ? trouble : "ok");
}

void qr_api_version(struct qr_server *s, struct qr_conn *c)
{
    struct qr_buf b = {0};
    QR_ASSERT(s != NULL);
    QR_ASSERT(c != NULL);
    qr_buf_printf(&b, "{\"version\":\"" QUIRE_VERSION "\",\"name\":\"quire\",\"commit\":\"%s\",\"level\":\"%s\"}",
                  s->config.commit ? s->config.commit : "unknown", s->config.level ? s->config.level : "unknown");
    struct qr_reply reply = {.status = 200, .content_type = "application/json", .taken = &b};
    qr_conn_reply(c, &reply);
}

void qr_api_metrics(struct qr_server *s, struct qr_conn *c)
{
    struct qr_buf b = {0};
    QR_ASSERT(s != NULL);
    QR_ASSERT(c != NULL);
    qr_metrics_put(&b, s);
    struct qr_reply reply = {.status = 200, .content_type = "text/plain; version=0.0.4; charset=utf-8", .taken = &b};
    qr_conn_reply(c, &reply);
}
