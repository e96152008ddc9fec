/* route.h - (method, path) to handler, and who may call it. The decision is made here and nowhere else; default is user. */
#ifndef QR_SERVER_ROUTE_H
#define QR_SERVER_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/state.h"

/* METRICS: admins and keys that may only look; LOOK: any key. */
enum qr_access { QR_ACCESS_USER, QR_ACCESS_PUBLIC, QR_ACCESS_ADMIN, QR_ACCESS_METRICS, QR_ACCESS_LOOK, QR_ACCESS_N };

struct qr_call_kind;

struct qr_route {
    const char *method;      /* "GET" answers HEAD too */
    const char *path;        /* one that ends in '/' takes everything below it, but "/" itself */
    enum qr_access access;
    bool needs_model;        /* 503 while loading or draining */
    const struct qr_call_kind *call; /* what is prepared on libuv's pool (call.h); NULL: `handle` answers at once */
    void (*handle)(struct qr_server *s, struct qr_conn *c);
    const char *about;       /* a sentence, for /openapi.json and /docs */
};
const struct qr_route *qr_routes(int32_t *n);

/* The connection handlers. head: refuses what must not go on (host, key, size, type). request: calls the route's handler. */
void qr_route_head(void *server, struct qr_conn *c);
void qr_route_request(void *server, struct qr_conn *c);
void qr_route_bad(void *server, struct qr_conn *c, int32_t status, const char *why);

/* Whether the request that a connection had is allowed by the keys of now, too. */
bool qr_route_still_allows(const struct qr_server *s, const struct qr_conn *c);

/* The key a request presents, or NULL data. */
struct qr_span qr_route_key(const struct qr_http_head *h);

/* The handlers. */
void qr_api_models(struct qr_server *s, struct qr_conn *c);
void qr_api_model(struct qr_server *s, struct qr_conn *c);
void qr_api_response_get(struct qr_server *s, struct qr_conn *c);
void qr_api_response_post(struct qr_server *s, struct qr_conn *c);
void qr_api_response_delete(struct qr_server *s, struct qr_conn *c);
void qr_api_health(struct qr_server *s, struct qr_conn *c);
void qr_api_livez(struct qr_server *s, struct qr_conn *c);
void qr_api_readyz(struct qr_server *s, struct qr_conn *c);
void qr_api_usage(struct qr_server *s, struct qr_conn *c);
void qr_api_pins(struct qr_server *s, struct qr_conn *c);
void qr_api_unpin(struct qr_server *s, struct qr_conn *c);
void qr_api_metrics(struct qr_server *s, struct qr_conn *c);
void qr_api_ops_state(struct qr_server *s, struct qr_conn *c);
void qr_api_ops_events(struct qr_server *s, struct qr_conn *c);
void qr_api_ops_request(struct qr_server *s, struct qr_conn *c);
void qr_api_ops_profile(struct qr_server *s, struct qr_conn *c);
void qr_api_openapi(struct qr_server *s, struct qr_conn *c);
void qr_api_docs(struct qr_server *s, struct qr_conn *c);
void qr_api_loads(struct qr_server *s, struct qr_conn *c);
void qr_api_server_info(struct qr_server *s, struct qr_conn *c);
void qr_api_model_info(struct qr_server *s, struct qr_conn *c);
void qr_api_root(struct qr_server *s, struct qr_conn *c);
void qr_api_tags(struct qr_server *s, struct qr_conn *c);
void qr_api_ps(struct qr_server *s, struct qr_conn *c);
void qr_api_ollama_version(struct qr_server *s, struct qr_conn *c);
void qr_api_version(struct qr_server *s, struct qr_conn *c);

#endif
