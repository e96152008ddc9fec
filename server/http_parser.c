#include "server/http_parser.h"

#include <llhttp.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/mem.h"

#define EXTENSION_BYTES_MAX 4096 /* chunk extensions carry nothing that is read here */

enum phase { PHASE_HEAD, PHASE_BODY, PHASE_BAD };

struct qr_http_parser {
    struct qr_http_limits limits;
    llhttp_settings_t settings;
    llhttp_t http;
    enum phase phase;
    bool complete;                  /* llhttp has seen the message's end */
    bool skipped_line;              /* one empty line before the request line is tolerated */
    struct qr_gate gate;
    struct qr_http_head head;
    struct qr_buf head_bytes, body; /* owned */
    struct qr_span name, value;     /* of the field being read */
    char last[4];                   /* the last bytes of the body as they came, to see how a chunked body ended */
    size_t n_extension;
    int32_t status;
    const char *why;                /* borrowed, static */
};

bool qr_span_is(struct qr_span s, const char *text)
{
    QR_ASSERT(text != NULL);
    return s.data != NULL && strlen(text) == s.len && memcmp(s.data, text, s.len) == 0;
}

bool qr_span_is_nocase(struct qr_span s, const char *text)
{
    QR_ASSERT(text != NULL);
    return s.data != NULL && strlen(text) == s.len && strncasecmp(s.data, text, s.len) == 0;
}

static struct qr_span trimmed(struct qr_span s)
{
    while (s.len > 0 && (s.data[0] == ' ' || s.data[0] == '\t')) {
        s.data++;
        s.len--;
    }
    while (s.len > 0 && (s.data[s.len - 1] == ' ' || s.data[s.len - 1] == '\t'))
        s.len--;
    return s;
}

static int fail(struct qr_http_parser *p, int32_t status, const char *why)
{
    p->status = status;
    p->why = why;
    return -1;
}

/* ---- llhttp's callbacks; the head is given in one piece, so its spans are whole ---- */

static void keep_field(struct qr_http_parser *p)
{
    struct {
        const char *name;
        struct qr_span *to;
    } wanted[] = {
        {"host", &p->head.host},
        {"authorization", &p->head.authorization},
        {"x-api-key", &p->head.api_key},
        {"api-key", &p->head.api_key},
        {"content-type", &p->head.content_type},
        {"content-encoding", &p->head.content_encoding},
        {"x-request-id", &p->head.request_id},
        {"origin", &p->head.origin},
    };
    struct qr_span value = trimmed(p->value);
    for (int i = 0; i < QR_COUNT(wanted); i++)
        if (qr_span_is_nocase(p->name, wanted[i].name) && wanted[i].to->data == NULL)
            *wanted[i].to = value;
    if (qr_span_is_nocase(p->name, "expect")) {
        if (qr_span_is_nocase(value, "100-continue"))
            p->head.expect_continue = !p->head.http10;
        else
            p->head.expect_other = true;
    }
}

static int on_url(llhttp_t *http, const char *at, size_t n)
{
    struct qr_http_parser *p = http->data;
    const char *question = memchr(at, '?', n);
    size_t n_path = question ? (size_t)(question - at) : n;
    p->head.path = (struct qr_span){at, n_path};
    p->head.query = (struct qr_span){at + n_path + (question != NULL), question ? n - n_path - 1 : 0};
    return 0;
}

static int on_field(llhttp_t *http, const char *at, size_t n)
{
    struct qr_http_parser *p = http->data;
    if (p->phase != PHASE_HEAD)
        return fail(p, 400, "Trailers after a chunked body are not accepted.");
    p->name = (struct qr_span){at, n};
    p->value = (struct qr_span){at, 0};
    return 0;
}

static int on_value(llhttp_t *http, const char *at, size_t n)
{
    struct qr_http_parser *p = http->data;
    p->value = (struct qr_span){at, n};
    return 0;
}

static int on_value_complete(llhttp_t *http)
{
    struct qr_http_parser *p = http->data;
    if (p->phase == PHASE_HEAD)
        keep_field(p);
    return 0;
}

static int on_headers_complete(llhttp_t *http)
{
    struct qr_http_parser *p = http->data;
    http->upgrade = 0; /* an offered upgrade is not taken: the request is answered in HTTP/1.1 */
    p->head.chunked = (http->flags & F_CHUNKED) != 0;
    p->head.content_length = p->head.chunked ? -1 : (int64_t)http->content_length;
    p->head.keep_alive = llhttp_should_keep_alive(http) != 0;
    return 0;
}

static int on_body(llhttp_t *http, const char *at, size_t n)
{
    struct qr_http_parser *p = http->data;
    if (n > p->limits.body_bytes_max - p->body.len)
        return fail(p, 413, "The request body is too large.");
    qr_buf_put(&p->body, at, n);
    return 0;
}

static int on_extension(llhttp_t *http, const char *at, size_t n)
{
    struct qr_http_parser *p = http->data;
    p->n_extension += n;
    return p->n_extension > EXTENSION_BYTES_MAX ? fail(p, 400, "Chunk extensions are too long.") : 0;
}

static int on_complete(llhttp_t *http)
{
    struct qr_http_parser *p = http->data;
    p->complete = true;
    return p->phase == PHASE_BODY ? HPE_PAUSED : 0; /* bytes behind the body belong to the next request */
}

/* ---- */

struct qr_http_parser *qr_http_parser_new(const struct qr_http_limits *limits)
{
    QR_ASSERT(limits != NULL);
    QR_ASSERT(limits->head.head_bytes_max > 0 && limits->head.fields_max > 0);
    struct qr_http_parser *p = qr_alloc(1, sizeof *p);
    p->limits = *limits;
    llhttp_settings_init(&p->settings);
    p->settings.on_url = on_url;
    p->settings.on_header_field = on_field;
    p->settings.on_header_value = on_value;
    p->settings.on_header_value_complete = on_value_complete;
    p->settings.on_headers_complete = on_headers_complete;
    p->settings.on_body = on_body;
    p->settings.on_chunk_extension_name = on_extension;
    p->settings.on_chunk_extension_value = on_extension;
    p->settings.on_message_complete = on_complete;
    qr_gate_init(&p->gate);
    qr_buf_init(&p->head_bytes);
    qr_buf_init(&p->body);
    return p;
}

void qr_http_parser_free(struct qr_http_parser *p)
{
    if (!p)
        return;
    qr_buf_release(&p->head_bytes);
    qr_buf_release(&p->body);
    qr_free(p);
}

static enum qr_http_step bad(struct qr_http_parser *p, int32_t status, const char *why)
{
    p->phase = PHASE_BAD;
    if (p->status == 0)
        fail(p, status, why);
    return QR_HTTP_BAD;
}

static enum qr_http_step read_head(struct qr_http_parser *p, struct qr_buf *in)
{
    if (!p->skipped_line && p->gate.line == 0 && in->len >= 2 && memcmp(in->data, "\r\n", 2) == 0) {
        p->skipped_line = true;
        qr_buf_drop_front(in, 2);
    }
    if (!p->skipped_line && in->len == 1 && in->data[0] == '\r')
        return QR_HTTP_MORE;
    enum qr_gate_verdict v = qr_gate_scan(&p->gate, in->data, in->len, &p->limits.head);
    if (v == QR_GATE_MORE)
        return QR_HTTP_MORE;
    if (v == QR_GATE_REFUSE)
        return bad(p, p->gate.status, p->gate.why);
    qr_buf_clear(&p->head_bytes);
    qr_buf_put(&p->head_bytes, in->data, p->gate.head_len);
    qr_buf_drop_front(in, p->gate.head_len);
    qr_buf_clear(&p->body);
    p->head = (struct qr_http_head){.http10 = p->gate.http10};
    p->complete = false;
    p->n_extension = 0;
    memset(p->last, 0, sizeof p->last);
    llhttp_init(&p->http, HTTP_REQUEST, &p->settings);
    p->http.data = p;
    if (llhttp_execute(&p->http, p->head_bytes.data, p->head_bytes.len) != HPE_OK)
        return bad(p, 400, "The request's head is not valid HTTP.");
    const char *space = memchr(p->head_bytes.data, ' ', p->head_bytes.len);
    QR_ASSERT(space != NULL); /* the gate saw it */
    p->head.method = (struct qr_span){p->head_bytes.data, (size_t)(space - p->head_bytes.data)};
    p->phase = PHASE_BODY;
    return QR_HTTP_HEAD;
}

static void remember_last(struct qr_http_parser *p, const char *bytes, size_t n)
{
    size_t keep = n < 4 ? 4 - n : 0, take = n < 4 ? n : 4;
    memmove(p->last, p->last + 4 - keep, keep);
    memcpy(p->last + keep, bytes + n - take, take);
}

static enum qr_http_step finish_message(struct qr_http_parser *p)
{
    if (p->head.chunked && memcmp(p->last, "\r\n\r\n", 4) != 0)
        return bad(p, 400, "The chunked body does not end in CR LF CR LF.");
    p->phase = PHASE_HEAD;
    p->skipped_line = false;
    qr_gate_init(&p->gate);
    return QR_HTTP_DONE;
}

static enum qr_http_step read_body(struct qr_http_parser *p, struct qr_buf *in)
{
    if (p->complete)
        return finish_message(p);
    if (in->len == 0)
        return QR_HTTP_MORE;
    enum llhttp_errno e = llhttp_execute(&p->http, in->data, in->len);
    size_t used = in->len;
    if (e == HPE_PAUSED && p->complete) {
        used = (size_t)(llhttp_get_error_pos(&p->http) - in->data);
        QR_ASSERT(used <= in->len);
    } else if (e != HPE_OK) {
        return bad(p, 400, "The request's body is not framed as HTTP asks.");
    }
    remember_last(p, in->data, used);
    qr_buf_drop_front(in, used);
    return p->complete ? finish_message(p) : QR_HTTP_MORE;
}

enum qr_http_step qr_http_parser_feed(struct qr_http_parser *p, struct qr_buf *in)
{
    QR_ASSERT(p != NULL && in != NULL);
    QR_ASSERT(p->phase != PHASE_BAD);
    return p->phase == PHASE_HEAD ? read_head(p, in) : read_body(p, in);
}

const struct qr_http_head *qr_http_parser_head(const struct qr_http_parser *p)
{
    QR_ASSERT(p != NULL);
    return &p->head;
}

struct qr_buf *qr_http_parser_body(struct qr_http_parser *p)
{
    QR_ASSERT(p != NULL);
    return &p->body;
}

int32_t qr_http_parser_status(const struct qr_http_parser *p)
{
    QR_ASSERT(p != NULL && p->phase == PHASE_BAD);
    return p->status;
}

const char *qr_http_parser_why(const struct qr_http_parser *p)
{
    QR_ASSERT(p != NULL && p->phase == PHASE_BAD);
    return p->why;
}

bool qr_http_parser_idle(const struct qr_http_parser *p)
{
    QR_ASSERT(p != NULL);
    return p->phase == PHASE_HEAD;
}

size_t qr_http_parser_body_len(const struct qr_http_parser *p)
{
    QR_ASSERT(p != NULL);
    return p->body.len;
}

void qr_http_parser_trim(struct qr_http_parser *p)
{
    QR_ASSERT(p != NULL && p->phase == PHASE_HEAD);
    qr_buf_release(&p->head_bytes);
    qr_buf_release(&p->body);
}
