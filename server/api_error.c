#include "server/api_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "server/door.h"
#include "server/error_index.h"

void qr_api_error_set(struct qr_api_error *e, int32_t status, const char *code, const char *fmt, ...)
{
    QR_ASSERT(e != NULL && fmt != NULL);
    QR_ASSERT(status >= 400 && status < 600);
    *e = (struct qr_api_error){.status = status, .code = code};
    if (status == 429 || status == 503)
        e->retry_after_s = 1;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
}

void qr_api_error_from(struct qr_api_error *e, const struct qr_err *err)
{
    static const struct {
        enum qr_code from;
        int32_t status;
        const char *code;
    } row[] = {
        {QR_E_INVALID, 400, "invalid_value"},   {QR_E_TOO_LARGE, 400, "too_large"},   {QR_E_UNSUPPORTED, 400, "unsupported"},
        {QR_E_NOT_FOUND, 404, "not_found"},     {QR_E_NO_ROOM, 400, "no_room"},       {QR_E_BUSY, 429, "queue_full"},
        {QR_E_CLOSED, 503, "shutting_down"},    {QR_E_DENIED, 403, "denied"},
    };
    QR_ASSERT(e != NULL && err != NULL);
    QR_ASSERT(err->code != QR_OK);
    int32_t status = 500;
    const char *code = "internal_error";
    for (int i = 0; i < QR_COUNT(row); i++)
        if (row[i].from == err->code) {
            status = row[i].status;
            code = row[i].code;
        }
    qr_api_error_set(e, status, code, "%s", err->msg);
    memcpy(e->param, err->param, sizeof e->param);
}

static const char *type_of(int32_t status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 429: return "rate_limit_error";
    case 503: return "service_unavailable_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

static void put_string_or_null(struct qr_buf *out, const char *s)
{
    if (s && s[0])
        qr_json_put_str(out, s, strlen(s));
    else
        qr_buf_put_str(out, "null");
}

void qr_api_error_put(struct qr_buf *out, const struct qr_api_error *e, bool stream)
{
    QR_ASSERT(out != NULL && e != NULL);
    QR_ASSERT(e->status != 0);
    if (e->door && e->door->error) {
        e->door->error(out, e, stream);
        return;
    }
    qr_buf_put_str(out, stream ? "data: " : "");
    qr_buf_put_str(out, "{\"error\":{\"message\":");
    qr_json_put_str(out, e->message, strlen(e->message));
    qr_buf_printf(out, ",\"type\":\"%s\",\"param\":", type_of(e->status));
    put_string_or_null(out, e->param);
    qr_buf_put_str(out, ",\"code\":");
    put_string_or_null(out, e->code);
    qr_buf_printf(out, ",\"id\":\"%s\"", qr_error_row_of(e->code)->id);
    qr_buf_put_str(out, stream ? "}}\n\n" : "}}");
}

void qr_api_error_reply(struct qr_conn *c, const struct qr_api_error *e)
{
    QR_ASSERT(c != NULL && e != NULL);
    QR_ASSERT(e->status != 0);
    const int32_t status = e->door && e->door->status ? e->door->status(e) : e->status;
    struct qr_buf body = {0}, extra = {0};
    qr_api_error_put(&body, e, false);
    qr_buf_put_str(&extra, e->extra ? e->extra : "");
    qr_buf_printf(&extra, "x-error-id: %s\r\n", qr_error_row_of(e->code)->id);
    if (e->retry_after_s > 0)
        qr_buf_printf(&extra, "Retry-After: %d\r\n", e->retry_after_s);
    if (e->status == 401)
        qr_buf_put_str(&extra, "WWW-Authenticate: Bearer\r\n");
    if (e->status == 500) /* the same request would fail again: clients that retry on 5xx need not */
        qr_buf_put_str(&extra, "x-should-retry: false\r\n");
    struct qr_reply reply = {.status = status, .content_type = "application/json", .code = e->code, .extra = extra.data,
                             .body = body.data, .len = body.len};
    qr_conn_reply(c, &reply);
    qr_buf_release(&extra);
    qr_buf_release(&body);
}
