/* route.c - which handler a request goes to, and whether its sender may call it. Routes, access classes and body rules
 * are one table; host, origin and key are checked here and nowhere else. A path that exists with another method is 405;
 * paths of other services say what there is instead. The decision is made on the head, before a body is read. Loop
 * thread. */
#include "server/route.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "server/call.h"

static const struct qr_route routes[] = {
    {"POST", "/v1/chat/completions", QR_ACCESS_USER, true, .call = &qr_call_chat, .about = "Answer a conversation, whole or streamed."},
    {"POST", "/v1/responses", QR_ACCESS_USER, true, .call = &qr_call_responses,
     .about = "Answer a conversation in the shapes of the Responses API; may be stored."},
    {"POST", "/v1/responses/input_tokens", QR_ACCESS_USER, true, .call = &qr_call_response_tokens, .about = "Count the tokens of such a request."},
    {"POST", "/v1/responses/", QR_ACCESS_USER, false, .handle = qr_api_response_post, .about = "Cancel a response that is being made."},
    {"GET", "/v1/responses/", QR_ACCESS_USER, false, .handle = qr_api_response_get, .about = "A stored response, or its input_items."},
    {"DELETE", "/v1/responses/", QR_ACCESS_USER, false, .handle = qr_api_response_delete, .about = "Forget a stored response."},
    {"POST", "/v1/messages", QR_ACCESS_USER, true, .call = &qr_call_messages, .about = "Answer a conversation in the shapes of the Messages API."},
    {"POST", "/v1/messages/count_tokens", QR_ACCESS_USER, true, .call = &qr_call_count_tokens, .about = "Count the tokens of such a request."},
    {"POST", "/v1/completions", QR_ACCESS_USER, true, .call = &qr_call_completions, .about = "Continue texts or token ids; score a prompt."},
    {"POST", "/v1/chat/completions/render", QR_ACCESS_USER, true, .call = &qr_call_render_chat, .about = "The token ids that such a request would compute."},
    {"POST", "/v1/completions/render", QR_ACCESS_USER, true, .call = &qr_call_render_completions, .about = "The token ids that such a request would compute."},
    {"POST", "/v1/embeddings", QR_ACCESS_USER, true, .call = &qr_call_embeddings, .about = "Texts or token ids to vectors."},
    {"POST", "/v1/rerank", QR_ACCESS_USER, true, .call = &qr_call_rerank, .about = "Sort documents by how well they answer a query."},
    {"POST", "/v2/rerank", QR_ACCESS_USER, true, .call = &qr_call_rerank, .about = "The same as /v1/rerank."},
    {"POST", "/rerank", QR_ACCESS_USER, true, .call = &qr_call_rerank, .about = "The same as /v1/rerank."},
    {"POST", "/v1/score", QR_ACCESS_USER, true, .call = &qr_call_score, .about = "Scores of pairs of texts."},
    {"POST", "/score", QR_ACCESS_USER, true, .call = &qr_call_score, .about = "The same as /v1/score."},
    {"GET", "/v1/usage", QR_ACCESS_USER, false, .handle = qr_api_usage, .about = "What keys have used: an admin's key sees all, a user's its own."},
    {"GET", "/v1/models", QR_ACCESS_USER, true, .handle = qr_api_models, .about = "The names that the model is served under, and adapters."},
    {"GET", "/v1/models/", QR_ACCESS_USER, true, .handle = qr_api_model, .about = "One of them."},
    {"POST", "/v1/cache/pin", QR_ACCESS_ADMIN, true, .call = &qr_call_pin, .about = "Compute a prompt and keep it in the prefix cache."},
    {"GET", "/v1/cache/pins", QR_ACCESS_ADMIN, true, .handle = qr_api_pins, .about = "The prompts that are kept."},
    {"DELETE", "/v1/cache/pin/", QR_ACCESS_ADMIN, true, .handle = qr_api_unpin, .about = "Keep one of them no more."},
    {"POST", "/v1/load_lora_adapter", QR_ACCESS_ADMIN, true, .call = &qr_call_load_adapter, .about = "Serve one more adapter."},
    {"POST", "/v1/unload_lora_adapter", QR_ACCESS_ADMIN, true, .call = &qr_call_unload_adapter, .about = "Serve an adapter no more."},
    {"POST", "/v1/role", QR_ACCESS_ADMIN, true, .call = &qr_call_role, .about = "Compute prompts for peers, or have them computed by peers, first."},
    {"GET", "/v1/ops/state", QR_ACCESS_ADMIN, false, .handle = qr_api_ops_state, .about = "What the server does now."},
    {"GET", "/v1/ops/events", QR_ACCESS_ADMIN, false, .handle = qr_api_ops_events, .about = "The same each second, as events."},
    {"POST", "/v1/ops/requests/", QR_ACCESS_ADMIN, false, .handle = qr_api_ops_request, .about = "End a request: {id}/cancel."},
    {"POST", "/v1/ops/profile", QR_ACCESS_ADMIN, false, .handle = qr_api_ops_profile, .about = "A Chrome trace of some seconds."},
    {"POST", "/tokenize", QR_ACCESS_USER, true, .call = &qr_call_tokenize, .about = "A text or messages to token ids."},
    {"POST", "/detokenize", QR_ACCESS_USER, true, .call = &qr_call_detokenize, .about = "Token ids to text."},
    {"GET", "/openapi.json", QR_ACCESS_PUBLIC, false, .handle = qr_api_openapi, .about = "This description, as OpenAPI 3.1."},
    {"GET", "/docs", QR_ACCESS_PUBLIC, false, .handle = qr_api_docs, .about = "This description, and the index of errors, as a page."},
    {"GET", "/", QR_ACCESS_PUBLIC, false, .handle = qr_api_root, .about = "The page for people; for programs a line of text."},
    {"POST", "/api/chat", QR_ACCESS_USER, true, .call = &qr_call_ollama_chat, .about = "Answer a conversation in the shapes of ollama."},
    {"POST", "/api/generate", QR_ACCESS_USER, true, .call = &qr_call_ollama_generate, .about = "Continue a text in the shapes of ollama."},
    {"POST", "/api/embed", QR_ACCESS_USER, true, .call = &qr_call_ollama_embed, .about = "Texts to vectors in the shapes of ollama."},
    {"POST", "/api/embeddings", QR_ACCESS_USER, true, .call = &qr_call_ollama_embeddings, .about = "One text to a vector, as older clients of ollama ask."},
    {"POST", "/api/show", QR_ACCESS_USER, true, .call = &qr_call_ollama_show, .about = "What is known of the model."},
    {"GET", "/api/tags", QR_ACCESS_USER, true, .handle = qr_api_tags, .about = "The models that are served."},
    {"GET", "/api/ps", QR_ACCESS_USER, true, .handle = qr_api_ps, .about = "The models that are in memory."},
    {"GET", "/api/version", QR_ACCESS_USER, false, .handle = qr_api_ollama_version, .about = "The version, in the shapes of ollama."},
    {"GET", "/version", QR_ACCESS_USER, false, .handle = qr_api_version, .about = "Name, version, commit and the processor's level."},
    {"GET", "/health", QR_ACCESS_PUBLIC, false, .handle = qr_api_health, .about = "200 while requests are served, also during a drain."},
    {"GET", "/livez", QR_ACCESS_PUBLIC, false, .handle = qr_api_livez, .about = "200 whenever the process answers."},
    {"GET", "/readyz", QR_ACCESS_PUBLIC, false, .handle = qr_api_readyz, .about = "200 when a new request would be served."},
    {"GET", "/metrics", QR_ACCESS_METRICS, false, .handle = qr_api_metrics, .about = "Prometheus text."},
    {"GET", "/v1/loads", QR_ACCESS_LOOK, false, .handle = qr_api_loads, .about = "How much runs and waits, for routers."},
    {"GET", "/loads", QR_ACCESS_LOOK, false, .handle = qr_api_loads, .about = "The same as /v1/loads."},
    {"GET", "/server_info", QR_ACCESS_LOOK, true, .handle = qr_api_server_info, .about = "How the server was started, for routers."},
    {"GET", "/get_server_info", QR_ACCESS_LOOK, true, .handle = qr_api_server_info, .about = "The same as /server_info."},
    {"GET", "/model_info", QR_ACCESS_LOOK, true, .handle = qr_api_model_info, .about = "What is known of the model, for routers."},
    {"GET", "/get_model_info", QR_ACCESS_LOOK, true, .handle = qr_api_model_info, .about = "The same as /model_info."},
};

const struct qr_route *qr_routes(int32_t *n)
{
    QR_ASSERT(n != NULL);
    QR_ASSERT(routes[0].call != NULL);
    *n = QR_COUNT(routes);
    return routes;
}

static bool path_matches(const struct qr_route *r, struct qr_span path)
{
    size_t n = strlen(r->path);
    if (n > 1 && r->path[n - 1] == '/')
        return path.len > n && memcmp(path.data, r->path, n) == 0;
    return path.len == n && memcmp(path.data, r->path, n) == 0;
}

static bool method_matches(const struct qr_route *r, struct qr_span method)
{
    return qr_span_is(method, r->method) || (qr_span_is(method, "HEAD") && strcmp(r->method, "GET") == 0);
}

/* NULL when no route has the path and method; *any_method says whether the path alone is known. */
static const struct qr_route *find_route(const struct qr_http_head *h, const struct qr_route **any_method)
{
    *any_method = NULL;
    for (int i = 0; i < QR_COUNT(routes); i++) {
        if (!path_matches(&routes[i], h->path))
            continue;
        *any_method = &routes[i];
        if (method_matches(&routes[i], h->method))
            return &routes[i];
    }
    return NULL;
}

struct qr_span qr_route_key(const struct qr_http_head *h)
{
    QR_ASSERT(h != NULL);
    struct qr_span a = h->authorization;
    if (!a.data || a.len < 7 || strncasecmp(a.data, "bearer ", 7) != 0)
        return h->api_key; /* as clients made for other services send it */
    a.data += 7;
    a.len -= 7;
    while (a.len > 0 && a.data[0] == ' ') {
        a.data++;
        a.len--;
    }
    QR_ASSERT(a.data != NULL);
    return a;
}

/* ---- who may ---- */

static bool host_is(struct qr_span host, const char *name)
{
    size_t n = strlen(name);
    if (host.len < n || strncasecmp(host.data, name, n) != 0)
        return false;
    return host.len == n || host.data[n] == ':';
}

/* On a loopback address only local names are served: a web page whose name was pointed at 127.0.0.1 sends its own. */
static bool host_allowed(const struct qr_server *s, struct qr_span host)
{
    static const char *const local[] = {"localhost", "127.0.0.1", "[::1]"};
    if (!qr_http_is_loopback(s->http) || s->config.unix_socket || !host.data)
        return true;
    for (int i = 0; i < QR_COUNT(local); i++)
        if (host_is(host, local[i]))
            return true;
    for (int32_t i = 0; i < s->config.allowed_hosts.n; i++)
        if (host_is(host, s->config.allowed_hosts.item[i]))
            return true;
    const char *own = qr_http_address(s->http); /* another 127.x.y.z */
    return host.len <= strlen(own) && strncasecmp(host.data, own, host.len) == 0 && (own[host.len] == 0 || own[host.len] == ':');
}

static bool access_allowed(const struct qr_server *s, const struct qr_http_head *h, enum qr_access access, struct qr_api_error *e)
{
    if (access == QR_ACCESS_PUBLIC)
        return true;
    const struct qr_span key = qr_route_key(h);
    const struct qr_key *known = qr_keys_find(s->keys, key.data, key.len);
    const enum qr_role role = known ? known->role : QR_ROLE_NONE;
    static const uint8_t allowed[QR_ACCESS_N] = {
        [QR_ACCESS_USER] = 1 << QR_ROLE_USER | 1 << QR_ROLE_ADMIN,
        [QR_ACCESS_ADMIN] = 1 << QR_ROLE_ADMIN,
        [QR_ACCESS_METRICS] = 1 << QR_ROLE_METRICS | 1 << QR_ROLE_ADMIN,
        [QR_ACCESS_LOOK] = 1 << QR_ROLE_METRICS | 1 << QR_ROLE_USER | 1 << QR_ROLE_ADMIN,
    };
    if (role != QR_ROLE_NONE && (allowed[access] >> role & 1))
        return true;
    if (role == QR_ROLE_METRICS && access == QR_ACCESS_USER)
        qr_api_error_set(e, 403, "denied", "This key may only look: /metrics, /v1/loads, /server_info and /model_info.");
    else if (role != QR_ROLE_NONE)
        qr_api_error_set(e, 403, "admin_required", "%s", qr_keys_count(s->keys, QR_ROLE_ADMIN) > 0
                             ? "This route needs an admin key."
                             : "This route needs an admin key and the server has none; start it with --admin-key.");
    else if (key.data)
        qr_api_error_set(e, 401, "invalid_api_key", "The API key is not valid.");
    else
        qr_api_error_set(e, 401, "missing_api_key", "An API key is required: send the header 'Authorization: Bearer KEY'.");
    return false;
}

bool qr_route_still_allows(const struct qr_server *s, const struct qr_conn *c)
{
    struct qr_api_error e;
    QR_ASSERT(s != NULL && c != NULL);
    const struct qr_http_head *h = qr_conn_head(c);
    const struct qr_route *same_path, *route = find_route(h, &same_path);
    QR_ASSERT(route != NULL); /* `head` let it pass */
    return access_allowed(s, h, route->access, &e);
}

static void allow_origin(struct qr_server *s, struct qr_conn *c, struct qr_span origin)
{
    char text[256];
    if (!origin.data || origin.len >= sizeof text)
        return;
    for (int32_t i = 0; i < s->config.cors_origins.n; i++) {
        const char *allowed = s->config.cors_origins.item[i];
        if (strcmp(allowed, "*") != 0 && !qr_span_is_nocase(origin, allowed))
            continue;
        memcpy(text, origin.data, origin.len);
        text[origin.len] = 0;
        qr_conn_set_cors(c, text);
        return;
    }
}

/* ---- the steps of qr_route_head; each answers and returns false, or returns true ---- */

static bool refuse(struct qr_conn *c, const struct qr_api_error *e)
{
    struct qr_api_error own = *e;
    const struct qr_span path = qr_conn_head(c)->path;
    own.door = qr_door_of_path(path.data, path.len);
    qr_api_error_reply(c, &own);
    return false;
}

/* Connections are counted by address as they come; of those of a proxy that is only known when it says whose they are. */
static bool check_client(const struct qr_server *s, struct qr_conn *c)
{
    struct qr_api_error e;
    if (s->trusted.n == 0 || qr_conn_count_client(c) <= s->config.per_address_max)
        return true;
    qr_api_error_set(&e, 503, "overloaded", "Too many requests from this address at a time; try again later.");
    return refuse(c, &e);
}

static bool check_body(struct qr_server *s, struct qr_conn *c, const struct qr_http_head *h)
{
    struct qr_api_error e;
    if (h->expect_other) {
        qr_api_error_set(&e, 417, "expectation_failed", "Only 'Expect: 100-continue' is known here.");
        return refuse(c, &e);
    }
    const int64_t room = s->budget.max_bytes / 2, most = s->config.body_bytes < room ? s->config.body_bytes : room;
    if (h->content_length > most) {
        qr_api_error_set(&e, 413, "body_too_large", "The request body has %lld bytes; the limit is %lld%s.", (long long)h->content_length, (long long)most,
                         most == room ? ", half of --max-bodies-size" : "");
        return refuse(c, &e);
    }
    if (h->content_length > 0 && !qr_conn_keep_room(c, h->content_length)) {
        qr_api_error_set(&e, 503, "overloaded", "Other requests hold the memory for bodies (--max-bodies-size, %lld MiB); try again later.",
                         (long long)(s->budget.max_bytes >> 20));
        return refuse(c, &e);
    }
    static const char json[] = "application/json";
    struct qr_span t = h->content_type;
    bool is_json = t.len >= sizeof json - 1 && strncasecmp(t.data, json, sizeof json - 1) == 0 &&
                   (t.len == sizeof json - 1 || strchr("; \t", t.data[sizeof json - 1]) != NULL);
    /* A web page can send any other type without asking first, and says where it comes from. ollama's clients say nothing of either. */
    const bool may_be_any = h->path.len > 5 && memcmp(h->path.data, "/api/", 5) == 0 && !h->origin.data;
    if (qr_span_is(h->method, "POST") && !is_json && !may_be_any) {
        qr_api_error_set(&e, 415, "unsupported_media_type", "The body must be sent with 'Content-Type: application/json'.");
        return refuse(c, &e);
    }
    if (h->content_encoding.len > 0 && !qr_span_is_nocase(h->content_encoding, "identity")) {
        qr_api_error_set(&e, 415, "unsupported_media_type", "The body must be sent as it is, without 'Content-Encoding: %.*s'.",
                         h->content_encoding.len < 40 ? (int)h->content_encoding.len : 40, h->content_encoding.data);
        return refuse(c, &e);
    }
    return true;
}

/* What the path of a route takes: "GET, HEAD". */
static const char *methods_of(char out[64], const char *path, bool head)
{
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < QR_COUNT(routes); i++)
        if (strcmp(routes[i].path, path) == 0)
            n += (size_t)snprintf(out + n, 64 - n, "%s%s%s", n > 0 ? ", " : "", routes[i].method, head && strcmp(routes[i].method, "GET") == 0 ? ", HEAD" : "");
    QR_ASSERT(n > 0 && n < 64);
    return out;
}

static void reply_options(struct qr_conn *c, const struct qr_route *route)
{
    char extra[300], methods[64];
    const char *method = route ? methods_of(methods, route->path, true) : "GET, POST";
    snprintf(extra, sizeof extra,
             "Allow: %s, OPTIONS\r\nAccess-Control-Allow-Methods: %s, OPTIONS\r\n"
             "Access-Control-Allow-Headers: authorization, *\r\nAccess-Control-Max-Age: 600\r\n", method, method); /* "*" leaves authorization out */
    struct qr_reply reply = {.status = 204, .extra = extra};
    qr_conn_reply(c, &reply);
}

/* What clients of other services, and people with a browser, ask for. A path that ends in '/' stands for all below it. */
static const char *other_service(struct qr_span path)
{
    static const struct {
        const char *path, *says;
    } table[] = {
        {"/api/", "; of Ollama's API there are chat, generate, embed, show, tags, ps and version"},
        {"/classify", "; of classifiers there are /v1/rerank and /v1/score, for models of one label"},
        {"/openai/deployments/", "; Azure's paths are not served, use /v1/chat/completions with the name in \"model\""},
    };
    for (int i = 0; i < QR_COUNT(table); i++) {
        const size_t n = strlen(table[i].path);
        if (path.len >= n && memcmp(path.data, table[i].path, n) == 0 && (path.len == n || table[i].path[n - 1] == '/'))
            return table[i].says;
    }
    return path.len == 1 || qr_span_is(path, "/v1") || qr_span_is(path, "/v1/") ? "; the API is below /v1, as /v1/models and /v1/chat/completions" : "";
}

/* The path without doubled slashes and without one at its end, as base addresses that end in one leave them. */
static struct qr_span without_slashes(char out[256], struct qr_span path)
{
    size_t n = 0;
    for (size_t i = 0; i < path.len && n < 256; i++)
        if (path.data[i] != '/' || n == 0 || out[n - 1] != '/')
            out[n++] = path.data[i];
    if (n > 1 && out[n - 1] == '/')
        n--;
    return (struct qr_span){out, n};
}

/* A client whose base address lacks /v1 (or has it twice) asks for the right thing at the wrong place: routes that are there with it, or without. */
static const char *meant_route(struct qr_span asked)
{
    static const char v1[] = "/v1";
    const size_t n = sizeof v1 - 1;
    char text[256];
    struct qr_span path = without_slashes(text, asked);
    for (int i = 0; i < QR_COUNT(routes); i++) {
        const char *known = routes[i].path;
        if (known[1] == 0)
            continue;
        if (path_matches(&routes[i], path))
            return known;
        const bool below = strncmp(known, v1, n) == 0 && known[n] == '/';
        if ((below && qr_span_is(path, known + n)) || (path.len > n && memcmp(path.data, v1, n) == 0 &&
                                                       path_matches(&routes[i], (struct qr_span){path.data + n, path.len - n})))
            return known;
    }
    return NULL;
}

static bool check_route(struct qr_conn *c, const struct qr_http_head *h, const struct qr_route **route)
{
    const struct qr_route *same_path;
    struct qr_api_error e;
    *route = find_route(h, &same_path);
    if (qr_span_is(h->method, "OPTIONS") && (same_path || qr_span_is(h->path, "*"))) {
        reply_options(c, same_path);
        return false;
    }
    if (!same_path) {
        const char *meant = meant_route(h->path);
        qr_api_error_set(&e, 404, "unknown_route", "There is no route %.*s%s%s.", h->path.len < 200 ? (int)h->path.len : 200, h->path.data,
                         meant ? "; there is " : "", meant ? meant : other_service(h->path));
        return refuse(c, &e);
    }
    if (!*route) {
        char methods[64], extra[96];
        qr_api_error_set(&e, 405, "method_not_allowed", "%s takes %s.", same_path->path, methods_of(methods, same_path->path, false));
        snprintf(extra, sizeof extra, "Allow: %s, OPTIONS\r\n", methods_of(methods, same_path->path, true));
        e.extra = extra;
        return refuse(c, &e);
    }
    return true;
}

/* What a handler makes an answer of is small, and needs no room in the budget: an operator of a full server must see
 * it. Without memory the connection answers. */
struct handling {
    struct qr_server *s;
    struct qr_conn *c;
    int32_t status;  /* of a request that is not valid, */
    const char *why; /* and the reason */
};

static void handle(struct handling h, void (*step)(void *handling))
{
    struct qr_account account;
    qr_account_init(&account, NULL);
    if (!qr_account_run(&account, step, &h))
        qr_conn_out_of_memory(h.c);
    qr_account_close(&account);
}

static void head(void *handling)
{
    const struct handling *of = handling;
    struct qr_server *s = of->s;
    struct qr_conn *c = of->c;
    const struct qr_http_head *h = qr_conn_head(c);
    const struct qr_route *route;
    struct qr_api_error e;
    QR_ASSERT(s != NULL && h->path.data != NULL);
    if (!host_allowed(s, h->host)) {
        qr_api_error_set(&e, 403, "host_not_allowed",
                         "This host name is not served on a loopback address; use localhost, or start the server with --allowed-host.");
        refuse(c, &e);
        return;
    }
    allow_origin(s, c, h->origin);
    if (!check_client(s, c) || !check_route(c, h, &route))
        return;
    QR_ASSERT(route != NULL);
    _Static_assert(QR_COUNT(routes) < QR_CONN_ROUTES_MAX, "each route has a number");
    qr_conn_set_route(c, (int32_t)(route - routes) + 1);
    if (!access_allowed(s, h, route->access, &e) || (route->needs_model && qr_server_unavailable(s, &e))) {
        refuse(c, &e);
        return;
    }
    check_body(s, c, h);
}

void qr_route_head(void *server, struct qr_conn *c)
{
    QR_ASSERT(server != NULL && c != NULL);
    handle((struct handling){.s = server, .c = c}, head);
}

static void request(void *handling)
{
    const struct handling *of = handling;
    const struct qr_route *same_path, *route = find_route(qr_conn_head(of->c), &same_path);
    struct qr_api_error e;
    QR_ASSERT(route != NULL); /* `head` let it pass */
    if (!access_allowed(of->s, qr_conn_head(of->c), route->access, &e) || /* while the body arrived keys may have been reloaded, */
        (route->needs_model && qr_server_unavailable(of->s, &e)))         /* and the drain may have begun */
        refuse(of->c, &e);
    else if (route->call)
        qr_call_start(of->s, of->c, route->call);
    else
        route->handle(of->s, of->c);
}

void qr_route_request(void *server, struct qr_conn *c)
{
    QR_ASSERT(server != NULL && c != NULL);
    handle((struct handling){.s = server, .c = c}, request);
}

static void bad(void *handling)
{
    const struct handling *of = handling;
    const int32_t status = of->status;
    struct qr_api_error e;
    const char *code = status == 408 ? "timeout" : status == 413 ? "body_too_large" : status == 431 || status == 414 ? "header_too_large"
                       : status == 503 ? "overloaded" : "bad_http";
    qr_api_error_set(&e, status, code, "%s", of->why);
    qr_api_error_reply(of->c, &e);
}

void qr_route_bad(void *server, struct qr_conn *c, int32_t status, const char *why)
{
    QR_ASSERT(server != NULL && c != NULL);
    QR_ASSERT(why != NULL);
    handle((struct handling){.s = server, .c = c, .status = status, .why = why}, bad);
}
