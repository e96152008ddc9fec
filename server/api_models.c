/* GET /v1/models and /v1/models/{id}. */
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/adapters.h"
#include "server/route.h"

static void put_model(struct qr_buf *out, const struct qr_server *s, const char *name, int64_t created_s, bool adapter)
{
    qr_buf_put_str(out, "{\"id\":");
    qr_json_put_str(out, name, strlen(name));
    qr_buf_printf(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"quire\",\"root\":", (long long)created_s);
    const char *root = adapter ? name : s->names[0];
    qr_json_put_str(out, root, strlen(root));
    qr_buf_put_str(out, ",\"parent\":");
    if (adapter)
        qr_json_put_str(out, s->names[0], strlen(s->names[0]));
    else
        qr_buf_put_str(out, "null");
    qr_buf_printf(out, ",\"max_model_len\":%d}", qr_engine_limits(s->model.engine)->ctx_max);
}

/* The model under its names, then adapters that requests may ask for: all, or the one called `only`. Returns how many. */
static int32_t put_models(struct qr_buf *out, const struct qr_server *s, const char *only, size_t len)
{
    struct qr_adapter_info *info = qr_alloc(QR_ADAPTERS_MAX, sizeof *info);
    const int32_t n_adapters = qr_engine_adapters(s->model.engine, info, QR_ADAPTERS_MAX);
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_names + n_adapters; i++) {
        const struct qr_adapter_info *a = i < s->n_names ? NULL : &info[i - s->n_names];
        const char *name = a ? a->name : s->names[i];
        if ((a && a->leaving) || (only && (strlen(name) != len || memcmp(name, only, len) != 0)))
            continue;
        n++;
        qr_buf_put_comma(out);
        put_model(out, s, name, a ? a->loaded_s : s->created_s, a != NULL);
        if (only)
            break;
    }
    qr_free(info);
    return n;
}

static void reply_json(struct qr_conn *c, struct qr_buf *body)
{
    struct qr_reply reply = {.status = 200, .content_type = "application/json", .taken = body};
    qr_conn_reply(c, &reply);
}

void qr_api_models(struct qr_server *s, struct qr_conn *c)
{
    struct qr_buf b = {0};
    QR_ASSERT(s != NULL && c != NULL);
    QR_ASSERT(s->n_names > 0);
    qr_buf_put_str(&b, "{\"object\":\"list\",\"data\":[");
    put_models(&b, s, NULL, 0);
    qr_buf_put_str(&b, "],\"models\":[]}"); /* Codex looks for a catalog of its own there, and complains where there is none */
    reply_json(c, &b);
}

/* Percent-decoding: names with '/' or other bytes arrive encoded by some clients. */
static void decode(struct qr_buf *out, struct qr_span s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] == '%' && i + 2 < s.len && qr_hex_digit(s.data[i + 1]) >= 0 && qr_hex_digit(s.data[i + 2]) >= 0) {
            qr_buf_put_byte(out, (char)(qr_hex_digit(s.data[i + 1]) * 16 + qr_hex_digit(s.data[i + 2])));
            i += 2;
        } else {
            qr_buf_put_byte(out, s.data[i]);
        }
    }
}

void qr_api_model(struct qr_server *s, struct qr_conn *c)
{
    static const char prefix[] = "/v1/models/";
    struct qr_span path = qr_conn_head(c)->path;
    struct qr_buf b = {0}, name = {0};
    QR_ASSERT(s != NULL && s->n_names > 0);
    QR_ASSERT(path.len > sizeof prefix - 1);
    decode(&name, (struct qr_span){path.data + sizeof prefix - 1, path.len - (sizeof prefix - 1)});
    if (put_models(&b, s, name.data ? name.data : "", name.len) > 0) {
        reply_json(c, &b);
    } else {
        struct qr_api_error e;
        qr_api_error_set(&e, 404, "model_not_found", "The model '%.200s' does not exist; this server has '%.200s'.", name.data, s->names[0]);
        memcpy(e.param, "model", 6);
        qr_api_error_reply(c, &e);
    }
    qr_buf_release(&name);
}
