#include "server/http_head.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/rng.h"

const char *qr_http_reason(int32_t status)
{
    static const struct {
        int32_t status;
        const char *reason;
    } row[] = {
        {200, "OK"}, {204, "No Content"}, {304, "Not Modified"}, {400, "Bad Request"}, {401, "Unauthorized"}, {403, "Forbidden"},
        {404, "Not Found"}, {405, "Method Not Allowed"}, {408, "Request Timeout"}, {409, "Conflict"},
        {413, "Content Too Large"}, {414, "URI Too Long"}, {415, "Unsupported Media Type"}, {417, "Expectation Failed"}, {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"}, {500, "Internal Server Error"}, {501, "Not Implemented"},
        {503, "Service Unavailable"}, {504, "Gateway Timeout"}, {505, "HTTP Version Not Supported"}, {529, "Overloaded"},
    };
    for (int i = 0; i < QR_COUNT(row); i++)
        if (row[i].status == status)
            return row[i].reason;
    return "Unknown";
}

const char *qr_http_date(struct qr_http_date *date)
{
    QR_ASSERT(date != NULL);
    const int64_t now_s = qr_clock_wall_s();
    if (now_s != date->at_s) {
        time_t t = (time_t)now_s;
        struct tm tm;
        gmtime_r(&t, &tm);
        strftime(date->text, sizeof date->text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
        date->at_s = now_s;
    }
    return date->text;
}

const char *qr_http_chunk_head(char out[QR_HTTP_CHUNK_HEAD], size_t n)
{
    static const char digit[] = "0123456789abcdef";
    int at = QR_HTTP_CHUNK_HEAD - 3;
    QR_ASSERT(out != NULL);
    QR_ASSERT(n > 0);
    memcpy(out + at, "\r\n", 3);
    for (size_t v = n; v > 0; v >>= 4)
        out[--at] = digit[v & 15];
    return out + at;
}

void qr_http_last_words(char *out, size_t size)
{
    static const char body[] = "{\"error\":{\"message\":\"There is no memory for this request beside others; try again later.\",\"type\":"
                               "\"service_unavailable_error\",\"param\":null,\"code\":\"overloaded\",\"id\":\"Q302\"}}";
    QR_ASSERT(out != NULL);
    const int n = snprintf(out, size, "HTTP/1.1 503 %s\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"
                           "Content-Length: %zu\r\n\r\n%s", qr_http_reason(503), sizeof body - 1, body);
    QR_ASSERT(n > 0 && (size_t)n < size);
}

static bool is_plain_name(struct qr_span s)
{
    if (!s.data || s.len == 0 || s.len > QR_REQUEST_ID_MAX)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        char ch = s.data[i];
        bool plain = (ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
        if (!plain && strchr("-_.:", ch) == NULL)
            return false;
    }
    return true;
}

void qr_http_request_id(char out[QR_REQUEST_ID_MAX + 1], struct qr_span given)
{
    static const char digit[] = "0123456789abcdef";
    QR_ASSERT(out != NULL);
    if (is_plain_name(given)) {
        memcpy(out, given.data, given.len);
        out[given.len] = 0;
        return;
    }
    const uint64_t r[2] = {qr_rng_seed_random(), qr_rng_seed_random()};
    memcpy(out, "req_", 4);
    for (int i = 0; i < 32; i++)
        out[4 + i] = digit[(r[i / 16] >> (4 * (i % 16))) & 15];
    out[36] = 0;
}
