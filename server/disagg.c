/* disagg.c - the peer that a request names is found among those of --peer, and the answer of a prompt that was computed for another process says where its
 * blocks are. What is asked first is the engine's matter; here are no blocks. Finding is for libuv's pool, the rest for the loop thread. */
#include "server/disagg.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "engine/exchange.h"
#include "server/call.h"

#define KV QR_KV_TRANSFER_PARAMS

/* ---- finding the peer ---- */

/* Whether SGLang's fields name this process: by its role, or it listens for peers at that port, and no peer has that address. */
static bool is_asked(const struct qr_server *s, const char *address)
{
    const enum qr_side role = qr_engine_role(s->model.engine);
    const char *own = qr_engine_peer_address(s->model.engine), *own_port = own ? strrchr(own, ':') : NULL, *port = strrchr(address, ':');
    if (role != QR_ROLE_BOTH)
        return role == QR_ROLE_PREFILL;
    return own_port && port && strncmp(own, "unix:", 5) != 0 && strcmp(own_port, port) == 0 && qr_engine_peer(s->model.engine, address) < 0;
}

static void count(struct qr_call *call, enum qr_peer_hint hint)
{
    atomic_fetch_add_explicit(&call->server->n_hints[hint], 1, memory_order_relaxed);
}

static void ask(struct qr_call *call, const char *address, bool expected)
{
    call->peer = qr_engine_peer(call->server->model.engine, address);
    call->peer_expected = expected && call->peer >= 0;
    count(call, call->peer >= 0 ? QR_HINT_ASKED : QR_HINT_NO_PEER);
}

bool qr_disagg_find(struct qr_call *call)
{
    QR_ASSERT(call != NULL && call->server != NULL);
    struct qr_params *p = &call->params;
    const struct qr_disagg_params *d = &p->disagg;
    char address[QR_PEER_ADDRESS_MAX] = "";
    QR_ASSERT(d->port >= 0 && d->port <= QR_PORT_MAX);
    const bool whole = d->host && qr_disagg_address(address, sizeof address, d->host, d->port);
    if (d->bootstrap && is_asked(call->server, address)) {
        p->max_tokens = 1; /* the router drops the answer */
        p->sampling.min_tokens = 0;
    } else if (d->foreign) {
        count(call, QR_HINT_FOREIGN);
    } else if (d->host && !whole) {
        count(call, QR_HINT_NO_PEER);
    } else if (d->host) {
        ask(call, address, d->expected);
    } else if (call->kv_source[0]) {
        ask(call, call->kv_source, false);
    }
    if (!d->computes || qr_engine_peer_address(call->server->model.engine))
        return true;
    qr_api_error_set(&call->error, 400, "unsupported",
                     KV ".do_remote_decode: no other process can ask this one for blocks; start it with --peer-listen ADDRESS");
    snprintf(call->error.param, sizeof call->error.param, KV ".do_remote_decode");
    return false;
}

void qr_disagg_header(struct qr_call *call, struct qr_span field)
{
    QR_ASSERT(call != NULL);
    QR_ASSERT(call->peer == -1);
    if (field.data && field.len < sizeof call->kv_source)
        snprintf(call->kv_source, sizeof call->kv_source, "%.*s", (int)field.len, field.data);
    else if (field.data)
        count(call, QR_HINT_NO_PEER);
}

/* ---- the answer ---- */

void qr_disagg_put(struct qr_buf *out, const struct qr_call *call)
{
    QR_ASSERT(out != NULL && call != NULL);
    QR_ASSERT(call->n_pieces > 0);
    const struct qr_server *s = call->server;
    char host[QR_PEER_ADDRESS_MAX], engine[32];
    int32_t port = 0;
    if (!call->params.disagg.computes)
        return;
    snprintf(engine, sizeof engine, QR_ENGINE_ID "%016llx", (unsigned long long)qr_hash64(QR_ENGINE_ID, sizeof QR_ENGINE_ID, s->id_seed));
    qr_disagg_split(host, sizeof host, &port, qr_engine_peer_address(s->model.engine));
    qr_json_put_name(out, KV);
    qr_buf_put_str(out, "{\"do_remote_prefill\":true,\"do_remote_decode\":false,\"remote_block_ids\":[]");
    qr_json_put_member_text(out, "remote_engine_id", engine);
    qr_json_put_member_text(out, "remote_request_id", call->id);
    qr_json_put_member_text(out, "remote_host", host);
    qr_json_put_name(out, "remote_port");
    qr_buf_printf(out, port > 0 ? "%d" : "null", port);
    qr_json_put_member_i64(out, "tp_size", qr_engine_limits(s->model.engine)->n_ranks > 1 ? qr_engine_limits(s->model.engine)->n_ranks : 1);
    qr_json_put_member_i64(out, "remote_num_tokens", call->piece[0].n_prompt);
    qr_buf_put_byte(out, '}');
}

const char *qr_disagg_mode(const struct qr_server *s)
{
    static const char *const name[] = {[QR_ROLE_BOTH] = "null", [QR_ROLE_PREFILL] = "prefill", [QR_ROLE_DECODE] = "decode"};
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->phase == QR_PHASE_READY);
    return name[qr_engine_role(s->model.engine)];
}

int32_t qr_disagg_port(const struct qr_server *s)
{
    char host[QR_PEER_ADDRESS_MAX];
    int32_t port = 0;
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->phase == QR_PHASE_READY);
    if (qr_engine_peer_address(s->model.engine))
        qr_disagg_split(host, sizeof host, &port, qr_engine_peer_address(s->model.engine));
    return port;
}

/* ---- POST /v1/role ---- */

static void prepare_role(struct qr_call *call)
{
    static const char *const names[] = {[QR_ROLE_BOTH] = "both", [QR_ROLE_PREFILL] = "prefill", [QR_ROLE_DECODE] = "decode"};
    const struct qr_json *role;
    const struct qr_member members[] = {{"role", QR_JSON_T_STRING, "\"both\", \"prefill\" or \"decode\"", &role, true}};
    struct qr_json *doc = NULL;
    struct qr_err err = {0};
    char excerpt[72];
    size_t i = 0;
    int rc = qr_call_read(&doc, call, members, QR_COUNT(members), &err);
    while (rc == 0 && i < QR_COUNT(names) && !qr_json_says(role, names[i]))
        i++;
    if (rc == 0 && i == QR_COUNT(names))
        rc = qr_err_at(&err, QR_E_INVALID, "role", "role must be both, prefill or decode, found %s", qr_json_excerpt(excerpt, role));
    if (rc == 0) {
        qr_engine_set_role(call->server->model.engine, (enum qr_side)i);
        qr_buf_printf(&call->reply, "{\"role\":\"%s\"}", names[i]);
    } else {
        qr_call_fail(call, &err);
    }
    qr_json_free(doc);
}

const struct qr_call_kind qr_call_role = {.prepare = prepare_role};
