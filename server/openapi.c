/* openapi.c - /openapi.json and /docs out of the tables that parse. What a body may hold is read from the fields of chat and completions, and from a door's
 * table, whose fields have the type of the chat field that they become. Bodies of other routes have no table at hand and are named here; tests send
 * each of these fields with a wrong type and look whether it is known. Pure; loop thread. */
#include "server/openapi.h"

#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "server/call.h"
#include "server/error_index.h"
#include "server/openai.h"
#include "server/route.h"

/* Fields of bodies without a table: name, type, '!' where it is required; "" is any type. */
static const struct {
    const char *path, *fields;
} bodies[] = {
    {"/tokenize", "model:string prompt:string messages: add_special_tokens:boolean return_token_strs:boolean"},
    {"/detokenize", "model:string tokens:array! skip_special_tokens:boolean"},
    {"/v1/embeddings", "model:string input:! dimensions: encoding_format:string truncate_prompt_tokens: add_special_tokens:boolean"},
    {"/v1/rerank", "model:string query:string! documents:! top_n:integer return_documents:boolean"},
    {"/v1/score", "model:string text_1:! text_2:!"},
    {"/v1/cache/pin", "model:string messages: prompt: cache_salt:string tools: key:string ttl:"},
    {"/v1/load_lora_adapter", "lora_name:string! lora_path:string! load_inplace:boolean"},
    {"/v1/unload_lora_adapter", "lora_name:string!"},
    {"/v1/role", "role:string!"},
    {"/api/embed", "model:string input:!"},
    {"/api/embeddings", "model:string prompt:string!"},
    {"/api/show", "model:string"},
    {"/v1/ops/profile", "seconds:number"},
};

static bool has_id(const struct qr_route *r)
{
    const size_t n = strlen(r->path);
    return n > 1 && r->path[n - 1] == '/';
}

/* A route's path as OpenAPI writes it: what follows a '/' at the end is {id}. */
static void put_path(struct qr_buf *out, const struct qr_route *r)
{
    qr_buf_put_str(out, r->path);
    if (has_id(r))
        qr_buf_put_str(out, strcmp(r->path, "/v1/ops/requests/") == 0 ? "{id}/cancel" : "{id}");
}

/* ---- fields ---- */

typedef void put_field(struct qr_buf *out, const char *name, const char *type, const struct qr_field *f, bool required);

static const char *json_type(const struct qr_field *f)
{
    switch (f->type) {
    case QR_FIELD_BOOL: return "boolean";
    case QR_FIELD_INT: return "integer";
    case QR_FIELD_FLOAT: return "number";
    case QR_FIELD_OTHER: return f->expected ? qr_json_type_name(f->json) : "";
    default: return "";
    }
}

static bool is_bounded(const struct qr_field *f)
{
    return f && (f->type == QR_FIELD_INT || f->type == QR_FIELD_FLOAT);
}

static const struct qr_field *find_field(const char *name, enum qr_api api)
{
    int32_t n;
    const struct qr_field *f = qr_fields(&n);
    for (int32_t i = 0; name && i < n; i++)
        if ((f[i].apis & api) && strcmp(f[i].name, name) == 0)
            return &f[i];
    return NULL;
}

static void each_named(struct qr_buf *out, const char *fields, put_field *put)
{
    char name[64], type[16];
    for (const char *p = fields; *p; p += strspn(p, " ")) {
        const size_t n = strcspn(p, ":"), m = strcspn(p + n + 1, "! ");
        QR_ASSERT(n < sizeof name && m < sizeof type);
        memcpy(name, p, n);
        name[n] = 0;
        memcpy(type, p + n + 1, m);
        type[m] = 0;
        p += n + 1 + m;
        put(out, name, type, NULL, *p == '!');
        p += *p == '!';
    }
}

/* The first route that does the same: others are further names of it. */
static const char *first_name(const struct qr_route *r)
{
    int32_t n;
    const struct qr_route *all = qr_routes(&n);
    for (int32_t i = 0; r->call && i < n; i++)
        if (all[i].call == r->call)
            return all[i].path;
    return r->path;
}

/* Every field of the route's body. */
static void each_field(struct qr_buf *out, const struct qr_route *r, put_field *put)
{
    int32_t n;
    const struct qr_door *door = r->call ? r->call->door : NULL;
    for (int32_t i = 0; door && i < door->n_fields; i++) {
        const struct qr_field *f = find_field(door->field[i].chat, QR_API_CHAT);
        put(out, door->field[i].name, f ? json_type(f) : "", f, false);
    }
    const struct qr_field *f = qr_fields(&n);
    for (int32_t i = 0; !door && r->call && r->call->api && i < n; i++)
        if (f[i].apis & r->call->api)
            put(out, f[i].name, json_type(&f[i]), &f[i], false);
    for (int i = 0; i < QR_COUNT(bodies); i++)
        if (strcmp(bodies[i].path, first_name(r)) == 0)
            each_named(out, bodies[i].fields, put);
}

static bool takes_body(const struct qr_route *r)
{
    return strcmp(r->method, "POST") == 0 && !has_id(r);
}

/* ---- JSON ---- */

static void put_property(struct qr_buf *out, const char *name, const char *type, const struct qr_field *f, bool required)
{
    qr_json_put_name(out, name);
    qr_buf_put_byte(out, '{');
    if (*type)
        qr_buf_printf(out, "\"type\":\"%s\"", type);
    if (is_bounded(f)) {
        qr_buf_printf(out, ",\"minimum\":%.17g", f->min);
        if (!f->max_is_ctx)
            qr_buf_printf(out, ",\"maximum\":%.17g", f->max);
    }
    const char *note = f && f->type == QR_FIELD_REFUSED ? f->why : NULL;
    note = f && f->type == QR_FIELD_IGNORED ? "Ignored." : f && f->max_is_ctx ? "At most the context length." : note;
    if (note) {
        qr_json_put_member_text(out, "description", note);
    }
    if (f && f->type == QR_FIELD_REFUSED)
        qr_buf_put_str(out, ",\"deprecated\":true");
    qr_buf_put_byte(out, '}');
}

static void put_required(struct qr_buf *out, const char *name, const char *type, const struct qr_field *f, bool required)
{
    if (!required)
        return;
    qr_buf_put_comma(out);
    qr_json_put_str(out, name, strlen(name));
}

static void put_body(struct qr_buf *out, const struct qr_route *r)
{
    qr_buf_put_str(out, ",\"requestBody\":{\"required\":true,\"content\":{\"application/json\":{\"schema\":{\"type\":\"object\",\"properties\":{");
    each_field(out, r, put_property);
    struct qr_buf required = {0};
    each_field(&required, r, put_required);
    qr_buf_put_byte(out, '}');
    if (required.len > 0)
        qr_buf_printf(out, ",\"required\":[%s]", required.data);
    qr_buf_put_str(out, "}}}}");
    qr_buf_release(&required);
}

static void put_operation(struct qr_buf *out, const struct qr_route *r)
{
    static const char *const who[] = {[QR_ACCESS_USER] = "any key of the server", [QR_ACCESS_PUBLIC] = "none", [QR_ACCESS_ADMIN] = "an admin key",
                                      [QR_ACCESS_METRICS] = "an admin's or a metrics key", [QR_ACCESS_LOOK] = "any key of the server, also a metrics key"};
    char method[8] = {0};
    for (size_t i = 0; r->method[i] && i + 1 < sizeof method; i++)
        method[i] = (char)(r->method[i] | 0x20);
    qr_buf_put_comma(out);
    qr_buf_printf(out, "\"%s\":{\"operationId\":\"%s", method, method);
    for (const char *p = r->path; *p; p++)
        qr_buf_put_byte(out, strchr("/.", *p) ? '_' : *p);
    qr_buf_put_byte(out, '"');
    qr_json_put_member_text(out, "summary", r->about);
    qr_buf_printf(out, ",\"description\":\"Key: %s.\",\"security\":[%s]", who[r->access],
                  r->access == QR_ACCESS_PUBLIC ? "" : "{\"bearer\":[]},{\"x-api-key\":[]},{}");
    if (has_id(r))
        qr_buf_put_str(out, ",\"parameters\":[{\"name\":\"id\",\"in\":\"path\",\"required\":true,\"schema\":{\"type\":\"string\"}}]");
    if (takes_body(r))
        put_body(out, r);
    qr_buf_put_str(out, ",\"responses\":{\"200\":{\"description\":\"The answer.\"},\"default\":{\"description\":\"An error; the header x-error-id names it.\","
                        "\"content\":{\"application/json\":{\"schema\":{\"$ref\":\"#/components/schemas/Error\"}}}}}}");
}

static void put_paths(struct qr_buf *out)
{
    int32_t n;
    const struct qr_route *r = qr_routes(&n);
    for (int32_t i = 0; i < n; i++) {
        int32_t first = 0;
        while (strcmp(r[first].path, r[i].path) != 0)
            first++;
        if (first < i) /* told with another method */
            continue;
        qr_buf_put_comma(out);
        qr_buf_put_byte(out, '"');
        put_path(out, &r[i]);
        qr_buf_put_str(out, "\":{");
        for (int32_t k = i; k < n; k++)
            if (strcmp(r[k].path, r[i].path) == 0)
                put_operation(out, &r[k]);
        qr_buf_put_byte(out, '}');
    }
}

void qr_openapi_put(struct qr_buf *out)
{
    int32_t n;
    const struct qr_error_row *e = qr_error_rows(&n);
    QR_ASSERT(out != NULL);
    QR_ASSERT(n > 1);
    qr_buf_put_str(out, "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"quire\",\"version\":\"" QUIRE_VERSION "\","
                        "\"description\":\"Made from the tables that parse.\"},\"paths\":{");
    put_paths(out);
    qr_buf_put_str(out, "},\"components\":{\"securitySchemes\":{\"bearer\":{\"type\":\"http\",\"scheme\":\"bearer\"},"
                        "\"x-api-key\":{\"type\":\"apiKey\",\"in\":\"header\",\"name\":\"x-api-key\"}},"
                        "\"schemas\":{\"Error\":{\"type\":\"object\",\"properties\":{\"error\":{\"type\":\"object\","
                        "\"required\":[\"message\",\"type\",\"param\",\"code\",\"id\"],\"properties\":{\"message\":{\"type\":\"string\"},"
                        "\"type\":{\"type\":\"string\"},\"param\":{\"type\":[\"string\",\"null\"]},\"code\":{\"enum\":[");
    for (int32_t i = 0; i < n; i++) {
        qr_buf_put_comma(out);
        qr_buf_printf(out, e[i].code ? "\"%s\"" : "null", e[i].code);
    }
    qr_buf_put_str(out, "]},\"id\":{\"type\":\"string\",\"pattern\":\"^Q[1-5][0-9]{2}$\"}}}}}}}}");
}

/* ---- the page ---- */

static void put_html(struct qr_buf *out, const char *text)
{
    for (const char *p = text; *p; p++)
        if (*p == '<')
            qr_buf_put_str(out, "&lt;");
        else if (*p == '&')
            qr_buf_put_str(out, "&amp;");
        else
            qr_buf_put_byte(out, *p);
}

static void put_html_field(struct qr_buf *out, const char *name, const char *type, const struct qr_field *f, bool required)
{
    if (f && f->type == QR_FIELD_IGNORED)
        return;
    qr_buf_printf(out, "<tr><td><code>%s</code>%s<td>%s<td>", name, required ? " *" : "", type);
    if (is_bounded(f) && f->max_is_ctx)
        qr_buf_printf(out, "%.10g to the context", f->min);
    else if (is_bounded(f))
        qr_buf_printf(out, "%.10g to %.10g", f->min, f->max);
    else if (f && f->type == QR_FIELD_REFUSED)
        put_html(out, f->why);
}

static void put_html_route(struct qr_buf *out, const struct qr_route *r)
{
    static const char *const who[] = {[QR_ACCESS_USER] = "", [QR_ACCESS_PUBLIC] = "public", [QR_ACCESS_ADMIN] = "admin key",
                                      [QR_ACCESS_METRICS] = "admin or metrics key", [QR_ACCESS_LOOK] = "any key"};
    struct qr_buf fields = {0};
    if (takes_body(r))
        each_field(&fields, r, put_html_field);
    qr_buf_printf(out, fields.len ? "<details><summary><b>%s</b> <code>" : "<p><b>%s</b> <code>", r->method);
    put_path(out, r);
    qr_buf_printf(out, "</code> <i>%s</i> ", who[r->access]);
    put_html(out, r->about);
    if (fields.len)
        qr_buf_printf(out, "</summary><table><tr><th>field<th>type<th>bounds%s</table></details>\n", fields.data);
    else
        qr_buf_put_str(out, "</p>\n");
    qr_buf_release(&fields);
}

void qr_openapi_put_page(struct qr_buf *out)
{
    int32_t n, n_errors;
    const struct qr_route *r = qr_routes(&n);
    const struct qr_error_row *e = qr_error_rows(&n_errors);
    QR_ASSERT(out != NULL);
    QR_ASSERT(n > 0);
    qr_buf_put_str(out, "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">"
                        "<title>quire: API</title><style>"
                        ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
                        "code{font:13px ui-monospace,monospace}table{border-collapse:collapse;margin:.5em 0 1em 1em}"
                        "td,th{text-align:left;padding:.15em .8em .15em 0;vertical-align:top;border-bottom:1px solid #8884}"
                        "i{opacity:.7;font-size:13px}p,details{margin:.35em 0}summary{cursor:pointer}"
                        ".e{overflow-x:auto}</style><h1>quire " QUIRE_VERSION "</h1><p>Routes, fields of their bodies with bounds (* is required), and errors, "
                        "made from the tables that parse. For programs: <a href=\"openapi.json\">openapi.json</a>.</p><h2>Routes</h2>\n");
    for (int32_t i = 0; i < n; i++)
        put_html_route(out, &r[i]);
    qr_buf_put_str(out, "<h2>Errors</h2><p>An error has <code>error.id</code>, and every API's answer the header <code>x-error-id</code>.</p>"
                        "<div class=e><table><tr><th>id<th>code<th>status<th>meaning<th>what to do\n");
    for (int32_t i = 0; i < n_errors; i++) {
        qr_buf_printf(out, "<tr id=%s><td>%s<td><code>%s</code><td>%s<td>", e[i].id, e[i].id, e[i].code ? e[i].code : "", e[i].status);
        put_html(out, e[i].meaning);
        qr_buf_put_str(out, "<td>");
        put_html(out, e[i].remedy);
        qr_buf_put_byte(out, '\n');
    }
    qr_buf_put_str(out, "</table></div>\n");
}

static void reply(struct qr_conn *c, const char *type, const char *fields, void (*put)(struct qr_buf *out))
{
    struct qr_buf b = {0};
    put(&b);
    struct qr_reply answer = {.status = 200, .content_type = type, .extra = fields, .taken = &b};
    qr_conn_reply(c, &answer);
    qr_buf_release(&b);
}

void qr_api_openapi(struct qr_server *s, struct qr_conn *c)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(c != NULL);
    reply(c, "application/json", NULL, qr_openapi_put);
}

void qr_api_docs(struct qr_server *s, struct qr_conn *c)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(c != NULL);
    reply(c, "text/html; charset=utf-8", "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'\r\n",
          qr_openapi_put_page);
}
