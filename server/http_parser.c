/* http_parser.c - one connection's bytes to requests: the gate first, then llhttp for the head, then the body by length
 * or in chunks. llhttp sees only heads that the gate has passed. Sizes are bounded before memory is taken, and memory
 * is the request's account. Whatever the cuts between reads, the same requests come out. No sockets, no clock. Loop
 * thread. */
#include "server/http_parser.h"

#include <llhttp.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/mem.h"
#include "server/chunks.h"

enum phase { PHASE_HEAD, PHASE_BODY, PHASE_TRAILERS, PHASE_BAD };

struct qr_http_parser {
    struct qr_http_limits limits;
    llhttp_settings_t settings;
    llhttp_t http;
    enum phase phase;
    bool skipped_line;              /* one empty line before the request line is tolerated */
    struct qr_gate gate;
    struct qr_http_head head;
    struct qr_buf head_bytes, body; /* owned */
    struct qr_span name, value;     /* of the field being read */
    struct qr_chunks chunks;
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

/* The last ones count: they are those of the nearest proxies. */
static void keep_last(struct qr_span field[QR_HTTP_FORWARDED_MAX], int32_t *n, struct qr_span value)
{
    if (*n == QR_HTTP_FORWARDED_MAX)
        memmove(field, field + 1, (size_t)--*n * sizeof *field);
    field[(*n)++] = value;
}

/* The first of several counts, but a proxy may have taken another key than this server would. */
static int keep_field(struct qr_http_parser *p)
{
    struct {
        const char *name;
        struct qr_span *to;
        bool is_key;
    } wanted[] = {
        {"host", &p->head.host, false}, /* set already where the target names one */
        {"authorization", &p->head.authorization, true},
        {"x-api-key", &p->head.api_key, true},
        {"api-key", &p->head.api_key, true},
        {"content-type", &p->head.content_type, false},
        {"content-encoding", &p->head.content_encoding, false},
        {"x-request-id", &p->head.request_id, false},
        {"origin", &p->head.origin, false},
        {"accept", &p->head.accept, false},
        {"if-none-match", &p->head.if_none_match, false},
        {"x-kv-cache-source-host-port", &p->head.kv_source, false},
    };
    struct qr_span value = trimmed(p->value);
    for (int i = 0; i < QR_COUNT(wanted); i++) {
        if (!qr_span_is_nocase(p->name, wanted[i].name))
            continue;
        if (wanted[i].to->data == NULL)
            *wanted[i].to = value;
        else if (wanted[i].is_key)
            return fail(p, 400, "A field with a key (Authorization, X-Api-Key, api-key) is given twice.");
    }
    if (qr_span_is_nocase(p->name, "x-forwarded-for"))
        keep_last(p->head.said.x_forwarded_for, &p->head.said.n_for, value);
    else if (qr_span_is_nocase(p->name, "forwarded"))
        keep_last(p->head.said.forwarded, &p->head.said.n_forwarded, value);
    if (qr_span_is_nocase(p->name, "expect")) {
        if (qr_span_is_nocase(value, "100-continue"))
            p->head.expect_continue = !p->head.http10;
        else
            p->head.expect_other = true;
    }
    return 0;
}

static int on_url(llhttp_t *http, const char *at, size_t n)
{
    struct qr_http_parser *p = http->data;
    size_t n_authority, before = qr_gate_authority(at, n, &n_authority);
    if (before > 0) /* instead of what Host says (RFC 9112, section 3.2.2) */
        p->head.host = (struct qr_span){at + before, n_authority};
    at += before + n_authority;
    n -= before + n_authority;
    const char *question = memchr(at, '?', n);
    size_t n_path = question ? (size_t)(question - at) : n;
    p->head.path = n_path > 0 ? (struct qr_span){at, n_path} : (struct qr_span){"/", 1};
    p->head.query = question ? (struct qr_span){question + 1, n - n_path - 1} : (struct qr_span){NULL, 0};
    return 0;
}

static int on_field(llhttp_t *http, const char *at, size_t n)
{
    struct qr_http_parser *p = http->data;
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
    return keep_field(http->data);
}

static int on_headers_complete(llhttp_t *http)
{
    struct qr_http_parser *p = http->data;
    http->upgrade = 0; /* an offered upgrade is not taken: the request is answered in HTTP/1.1 */
    p->head.chunked = (http->flags & F_CHUNKED) != 0;
    p->head.content_length = p->head.chunked ? -1 : (int64_t)http->content_length;
    p->head.keep_alive = llhttp_should_keep_alive(http) != 0;
    return 1; /* the body is read here: llhttp 8.1.0 refuses chunk extensions that RFC 9112 allows */
}

/* ---- */

struct qr_http_parser *qr_http_parser_new(const struct qr_http_limits *limits)
{
    QR_ASSERT(limits != NULL);
    QR_ASSERT(limits->head.head_bytes_max > 0 && limits->head.fields_max > 0);
    struct qr_http_parser *p = qr_alloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->limits = *limits;
    llhttp_settings_init(&p->settings);
    p->settings.on_url = on_url;
    p->settings.on_header_field = on_field;
    p->settings.on_header_value = on_value;
    p->settings.on_header_value_complete = on_value_complete;
    p->settings.on_headers_complete = on_headers_complete;
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
    if (p->head_bytes.len == 0)
        return QR_HTTP_MORE; /* no memory, which the connection looks at */
    qr_buf_drop_front(in, p->gate.head_len);
    qr_buf_clear(&p->body);
    p->head = (struct qr_http_head){.http10 = p->gate.http10};
    p->chunks = (struct qr_chunks){0};
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

static enum qr_http_step finish_message(struct qr_http_parser *p)
{
    p->phase = PHASE_HEAD;
    p->skipped_line = false;
    p->gate = (struct qr_gate){0};
    return QR_HTTP_DONE;
}

static enum qr_http_step read_trailers(struct qr_http_parser *p, struct qr_buf *in)
{
    enum qr_gate_verdict v = qr_gate_scan(&p->gate, in->data, in->len, &p->limits.head);
    if (v == QR_GATE_MORE)
        return QR_HTTP_MORE;
    if (v == QR_GATE_REFUSE)
        return bad(p, p->gate.status, p->gate.why);
    qr_buf_drop_front(in, p->gate.head_len);
    return finish_message(p);
}

static enum qr_http_step read_chunks(struct qr_http_parser *p, struct qr_buf *in)
{
    size_t used;
    enum qr_chunks_step step = qr_chunks_read(&p->chunks, &p->body, &used, in->data, in->len, p->limits.body_bytes_max);
    if (step == QR_CHUNKS_BAD)
        return bad(p, p->chunks.status, p->chunks.why);
    qr_buf_drop_front(in, used);
    if (step == QR_CHUNKS_MORE)
        return QR_HTTP_MORE;
    p->phase = PHASE_TRAILERS;
    p->gate = (struct qr_gate){.trailers = true};
    return read_trailers(p, in);
}

static enum qr_http_step read_body(struct qr_http_parser *p, struct qr_buf *in)
{
    if (p->head.chunked)
        return read_chunks(p, in);
    if ((uint64_t)p->head.content_length > p->limits.body_bytes_max)
        return bad(p, 413, "The request body is too large.");
    size_t left = (size_t)p->head.content_length - p->body.len, take = in->len < left ? in->len : left;
    if (take > 0 && p->body.len == 0) /* most requests have no body, and need no memory for one */
        qr_buf_reserve(&p->body, left);
    if (take > 0)
        qr_buf_put(&p->body, in->data, take);
    qr_buf_drop_front(in, take);
    return take == left ? finish_message(p) : QR_HTTP_MORE;
}

enum qr_http_step qr_http_parser_feed(struct qr_http_parser *p, struct qr_buf *in)
{
    QR_ASSERT(p != NULL && in != NULL);
    QR_ASSERT(p->phase != PHASE_BAD);
    return p->phase == PHASE_HEAD ? read_head(p, in) : p->phase == PHASE_BODY ? read_body(p, in) : read_trailers(p, in);
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
