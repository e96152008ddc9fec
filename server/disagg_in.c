/* disagg_in.c - what routers say of prefill and decode apart, as fields of a body: all of it comes down to the address of one peer, and to whether that
 * peer gets the prompt at the same time. Members of kv_transfer_params are a table: read, of a place and thus of no use, or refused by name. Pure; on libuv's
 * pool. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "server/disagg.h"

#define KV QR_KV_TRANSFER_PARAMS
#define HOST_MAX 240 /* with a port it is an address of QR_PEER_ADDRESS_MAX */

/* ---- members of an object ---- */

struct said {
    const char *name;
    enum qr_json_type type;
    const char *expected;
    const struct qr_json **value; /* NULL: of a place */
};

/* Every member is one of the table's, of its type or null. */
static int read_said(const struct qr_json *object, const char *path, const struct said *said, int32_t n, struct qr_err *err)
{
    for (const struct qr_json *v = qr_json_first(object); v; v = qr_json_after(v)) {
        char at[sizeof err->param];
        int32_t i = 0;
        snprintf(at, sizeof at, "%s.%.60s", path, qr_json_key(v));
        while (i < n && strcmp(said[i].name, qr_json_key(v)) != 0)
            i++;
        if (i == n && !qr_json_is_null(v))
            return qr_err_at(err, QR_E_UNSUPPORTED, at, "%s is not known here: vLLM's NIXL connector and llm-d's peer-to-peer fields are; leave it out", at);
        if (i == n || qr_json_is_null(v))
            continue;
        if (qr_json_type(v) != said[i].type)
            return qr_wrong_type(err, at, said[i].expected, v);
        if (said[i].value)
            *said[i].value = v;
    }
    return 0;
}

static int read_host(const char **host, const struct qr_json *v, const char *path, struct qr_err *err)
{
    size_t n;
    const char *text = qr_json_str(v, &n);
    if (n < 1 || n > HOST_MAX)
        return qr_err_at(err, QR_E_INVALID, path, "%s must be between 1 and %d bytes long, found %zu", path, HOST_MAX, n);
    *host = text;
    return 0;
}

/* Host and port of one party; both may be absent, as on the side that is asked. */
static int read_place(struct qr_disagg_params *d, const struct qr_json *host, const struct qr_json *port, const char *path, struct qr_err *err)
{
    char at[sizeof err->param];
    snprintf(at, sizeof at, "%s.remote_host", path);
    int rc = host ? read_host(&d->host, host, at, err) : 0;
    snprintf(at, sizeof at, "%s.remote_port", path);
    return rc || !port ? rc : qr_read_whole(&d->port, port, at, 1, QR_PORT_MAX, err);
}

static int need_host(const struct qr_disagg_params *d, const char *path, struct qr_err *err)
{
    char at[sizeof err->param];
    snprintf(at, sizeof at, "%s.remote_host", path);
    return d->host ? 0 : qr_err_at(err, QR_E_INVALID, at, "%s is required: who has the prompt's blocks", at);
}

/* {"kv_request_id", "remote_host", "remote_port"} */
static int read_party(struct qr_disagg_params *d, const struct qr_json *party, const char *path, struct qr_err *err)
{
    const struct qr_json *host = NULL, *port = NULL;
    const struct said said[] = {{"remote_host", QR_JSON_T_STRING, "a string", &host}, {"remote_port", QR_JSON_T_NUMBER, "an integer", &port},
                                {"kv_request_id", QR_JSON_T_STRING, "a string", NULL}};
    const int rc = read_said(party, path, said, QR_COUNT(said), err);
    return rc ? rc : read_place(d, host, port, path, err);
}

/* ---- kv_transfer_params ---- */

static bool is_true(const struct qr_json *v)
{
    return v && qr_json_bool(v);
}

int qr_read_kv_transfer_params(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    struct qr_disagg_params *d = &p->disagg;
    const struct qr_json *fetches = NULL, *computes = NULL, *engine = NULL, *host = NULL, *port = NULL, *prefiller = NULL, *decoder = NULL, *source = NULL;
    const struct said said[] = {
        {"do_remote_prefill", QR_JSON_T_BOOL, "true or false", &fetches}, {"do_remote_decode", QR_JSON_T_BOOL, "true or false", &computes},
        {"remote_engine_id", QR_JSON_T_STRING, "a string", &engine}, {"remote_host", QR_JSON_T_STRING, "a string", &host},
        {"remote_port", QR_JSON_T_NUMBER, "an integer", &port}, {"remote_prefiller", QR_JSON_T_OBJECT, "an object", &prefiller},
        {"remote_decoder", QR_JSON_T_OBJECT, "an object", &decoder}, {"remote_kv_source", QR_JSON_T_OBJECT, "an object", &source},
        {"remote_block_ids", QR_JSON_T_ARRAY, "an array", NULL}, {"remote_request_id", QR_JSON_T_STRING, "a string", NULL},
        {"tp_size", QR_JSON_T_NUMBER, "an integer", NULL}, {"remote_num_tokens", QR_JSON_T_NUMBER, "an integer", NULL},
    };
    struct qr_disagg_params ignored = {0};
    int rc = read_said(v, KV, said, QR_COUNT(said), err);
    if (rc == 0 && is_true(fetches) && is_true(computes))
        rc = qr_err_at(err, QR_E_INVALID, KV, KV ": do_remote_prefill and do_remote_decode cannot both be true");
    if (rc == 0 && is_true(fetches)) {
        d->foreign = engine && strncmp(qr_json_str(engine, NULL), QR_ENGINE_ID, sizeof QR_ENGINE_ID - 1) != 0;
        rc = read_place(d, host, port, KV, err);
        rc = rc ? rc : need_host(d, KV, err);
    }
    if (rc == 0 && source) {
        rc = read_party(d, source, KV ".remote_kv_source", err);
        rc = rc ? rc : need_host(d, KV ".remote_kv_source", err);
    }
    if (rc == 0 && prefiller) { /* computes just now what another may have had before */
        rc = read_party(d, prefiller, KV ".remote_prefiller", err);
        rc = rc ? rc : need_host(d, KV ".remote_prefiller", err);
        d->expected = true;
    }
    if (rc == 0 && decoder)
        rc = read_party(&ignored, decoder, KV ".remote_decoder", err);
    d->computes = is_true(computes);
    return rc;
}

/* ---- bootstrap_host, bootstrap_port, bootstrap_room: each may be an array with one for each prompt ---- */

/* The value, or what all elements of an array are. NULL: there is none that is not null. */
static int the_one(const struct qr_json **out, const struct qr_json *v, const char *name, enum qr_json_type type, const char *expected, bool alike,
                   struct qr_err *err)
{
    const bool many = qr_json_type(v) == QR_JSON_T_ARRAY;
    int rc = 0;
    *out = NULL;
    for (const struct qr_json *e = many ? qr_json_first(v) : v; e && rc == 0; e = many ? qr_json_after(e) : NULL) {
        if (qr_json_is_null(e))
            continue;
        if (qr_json_type(e) != type)
            rc = qr_wrong_type(err, name, expected, e);
        else if (*out && alike && (type == QR_JSON_T_STRING ? strcmp(qr_json_str(e, NULL), qr_json_str(*out, NULL)) != 0 : qr_json_f64(e) != qr_json_f64(*out)))
            rc = qr_err_at(err, QR_E_UNSUPPORTED, name, "%s names several: the prompts of a request are asked of one peer; send a request for each", name);
        *out = *out ? *out : e;
    }
    return rc;
}

int qr_read_bootstrap_host(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    const struct qr_json *one;
    const int rc = the_one(&one, v, "bootstrap_host", QR_JSON_T_STRING, "a string, or an array of strings", true, err);
    p->disagg.bootstrap = rc == 0 && one;
    return rc || !one ? rc : read_host(&p->disagg.host, one, "bootstrap_host", err);
}

int qr_read_bootstrap_port(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    const struct qr_json *one;
    const int rc = the_one(&one, v, "bootstrap_port", QR_JSON_T_NUMBER, "an integer, or an array of integers", true, err);
    return rc || !one ? rc : qr_read_whole(&p->disagg.bootstrap_port, one, "bootstrap_port", 1, QR_PORT_MAX, err);
}

int qr_read_bootstrap_room(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    const struct qr_json *one;
    const int rc = the_one(&one, v, "bootstrap_room", QR_JSON_T_NUMBER, "an integer, or an array of integers", false, err);
    p->disagg.room = rc == 0 && one;
    return rc;
}

int qr_disagg_settle(struct qr_params *p, struct qr_err *err)
{
    QR_ASSERT(p != NULL && err != NULL);
    struct qr_disagg_params *d = &p->disagg;
    QR_ASSERT(d->host != NULL || !d->bootstrap);
    if (!d->bootstrap && (d->bootstrap_port > 0 || d->room))
        return qr_err_at(err, QR_E_INVALID, "bootstrap_host", "bootstrap_host is required with bootstrap_port and bootstrap_room");
    if (d->bootstrap && !qr_json_is_null(qr_json_find(p->doc, KV)))
        return qr_err_at(err, QR_E_INVALID, KV, KV " and bootstrap_host cannot both be given");
    if (d->computes && p->stream)
        return qr_err_at(err, QR_E_UNSUPPORTED, KV ".do_remote_decode", KV ".do_remote_decode needs a whole answer; leave stream out");
    if (d->bootstrap) {
        d->port = d->bootstrap_port;
        d->expected = true;
    }
    return 0;
}

/* ---- addresses ---- */

static bool has_no_port(const char *address)
{
    return strncmp(address, "unix:", 5) == 0;
}

bool qr_disagg_address(char *out, size_t size, const char *host, int64_t port)
{
    QR_ASSERT(out != NULL && size > 0);
    QR_ASSERT(host != NULL);
    const char *colon = strchr(host, ':');
    const bool bare6 = colon && !strchr(host, '[') && strchr(colon + 1, ':') != NULL; /* "ucx:HOST" has one colon */
    const int n = has_no_port(host) ? snprintf(out, size, "%s", host)
                                    : snprintf(out, size, "%s%s%s:%lld", bare6 ? "[" : "", host, bare6 ? "]" : "", (long long)port);
    return n > 0 && (size_t)n < size && (port > 0 || has_no_port(host));
}

void qr_disagg_split(char *host, size_t size, int32_t *port, const char *address)
{
    QR_ASSERT(host != NULL && port != NULL);
    QR_ASSERT(address != NULL && size > 0);
    const char *colon = has_no_port(address) ? NULL : strrchr(address, ':');
    size_t n = colon ? (size_t)(colon - address) : strlen(address);
    const bool six = n > 1 && address[0] == '[' && address[n - 1] == ']';
    snprintf(host, size, "%.*s", (int)(six ? n - 2 : n), address + six);
    *port = colon ? (int32_t)strtol(colon + 1, NULL, 10) : 0;
}
