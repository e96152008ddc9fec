/* sse_reader.c - see sse_reader.h. Lines are gathered first; a field is read when its line is complete, so the result
 * cannot depend on how the bytes were cut. */
#include "client/sse_reader.h"

#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"

static const char bom[3] = {'\xef', '\xbb', '\xbf'};

void qr_sse_init(struct qr_sse_reader *r, size_t event_bytes_max, void (*on_event)(void *, const struct qr_sse_event *),
                 void *arg)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(on_event != NULL);
    QR_ASSERT(event_bytes_max > 0);
    *r = (struct qr_sse_reader){.on_event = on_event, .arg = arg, .event_bytes_max = event_bytes_max, .retry_ms = -1};
}

void qr_sse_release(struct qr_sse_reader *r)
{
    qr_buf_release(&r->line);
    qr_buf_release(&r->data);
    qr_buf_release(&r->type);
    qr_buf_release(&r->id);
    qr_buf_release(&r->decoded);
}

void qr_sse_reset(struct qr_sse_reader *r)
{
    qr_buf_clear(&r->line);
    qr_buf_clear(&r->data);
    qr_buf_clear(&r->type);
    qr_buf_clear(&r->id);
    r->retry_ms = -1;
    r->n_bom = 0;
    r->after_cr = r->has_data = r->stopped = false;
}

void qr_sse_stop(struct qr_sse_reader *r)
{
    QR_ASSERT(r != NULL);
    r->stopped = true;
}

struct span {
    size_t at, len; /* in r->decoded, when it had to be decoded */
    bool decoded;
};

/* Appends a repaired copy of `text` to r->decoded when it is not valid UTF-8. */
static struct span decode(struct qr_sse_reader *r, const struct qr_buf *text)
{
    struct span s = {.at = r->decoded.len, .len = text->len};
    if (text->len == 0 || qr_utf8_valid_prefix(text->data, text->len) == text->len)
        return s;
    qr_buf_reserve(&r->decoded, 3 * text->len + 2);
    s.len = qr_utf8_lossy(r->decoded.data + s.at, text->data, text->len);
    s.decoded = true;
    r->decoded.len += s.len;
    qr_buf_put_byte(&r->decoded, '\0');
    return s;
}

static const char *text_of(const struct qr_sse_reader *r, const struct qr_buf *text, struct span s)
{
    return s.decoded ? r->decoded.data + s.at : s.len != 0 ? text->data : "";
}

static void dispatch(struct qr_sse_reader *r)
{
    if (r->has_data) {
        qr_buf_clear(&r->decoded);
        struct span data = decode(r, &r->data), type = decode(r, &r->type), id = decode(r, &r->id);
        struct qr_sse_event e = {.data = text_of(r, &r->data, data), .data_len = data.len,
                                 .type = text_of(r, &r->type, type), .type_len = type.len,
                                 .last_id = text_of(r, &r->id, id), .last_id_len = id.len};
        if (e.type_len == 0) {
            e.type = "message";
            e.type_len = 7;
        }
        r->on_event(r->arg, &e);
    }
    qr_buf_clear(&r->data);
    qr_buf_clear(&r->type);
    r->has_data = false;
}

static void take_retry(struct qr_sse_reader *r, const char *value, size_t n)
{
    int64_t ms = 0;
    for (size_t i = 0; i < n; i++) {
        if (value[i] < '0' || value[i] > '9' || ms > INT64_MAX / 20)
            return;
        ms = ms * 10 + (value[i] - '0');
    }
    if (n > 0)
        r->retry_ms = ms;
}

static int take_field(struct qr_sse_reader *r, const char *name, size_t name_len, const char *value, size_t n,
                      struct qr_err *err)
{
    if (name_len == 4 && memcmp(name, "data", 4) == 0) {
        if (r->data.len + n + 1 > r->event_bytes_max)
            return qr_err_set(err, QR_E_TOO_LARGE, "an event of the stream is larger than %zu bytes", r->event_bytes_max);
        if (r->has_data)
            qr_buf_put_byte(&r->data, '\n');
        qr_buf_put(&r->data, value, n);
        r->has_data = true;
    } else if (name_len == 5 && memcmp(name, "event", 5) == 0) {
        qr_buf_clear(&r->type);
        qr_buf_put(&r->type, value, n);
    } else if (name_len == 2 && memcmp(name, "id", 2) == 0) {
        if (n != 0 && memchr(value, '\0', n) != NULL)
            return 0;
        qr_buf_clear(&r->id);
        qr_buf_put(&r->id, value, n);
    } else if (name_len == 5 && memcmp(name, "retry", 5) == 0)
        take_retry(r, value, n);
    return 0;
}

static int take_line(struct qr_sse_reader *r, const char *line, size_t n, struct qr_err *err)
{
    if (n == 0) {
        dispatch(r);
        return 0;
    }
    const char *colon = memchr(line, ':', n);
    if (colon == line)
        return 0; /* a comment */
    if (colon == NULL)
        return take_field(r, line, n, "", 0, err);
    const char *value = colon + 1, *end = line + n;
    if (value < end && *value == ' ')
        value++;
    return take_field(r, line, (size_t)(colon - line), value, (size_t)(end - value), err);
}

/* Skips a byte order mark at the very start; bytes that only began like one are put back in front of the first line. */
static const char *skip_bom(struct qr_sse_reader *r, const char *s, const char *end)
{
    while (r->n_bom < 3 && s < end) {
        if (*s != bom[r->n_bom]) {
            qr_buf_put(&r->line, bom, r->n_bom);
            r->n_bom = 3;
            return s;
        }
        r->n_bom++;
        s++;
    }
    return s;
}

int qr_sse_feed(struct qr_sse_reader *r, const char *bytes, size_t n, struct qr_err *err)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(bytes != NULL || n == 0);
    const char *end = bytes + n, *s = skip_bom(r, bytes, end);
    while (s < end && !r->stopped) {
        if (r->after_cr && *s == '\n') {
            r->after_cr = false;
            s++;
            continue;
        }
        r->after_cr = false;
        const char *eol = s;
        while (eol < end && *eol != '\n' && *eol != '\r')
            eol++;
        size_t len = (size_t)(eol - s);
        if (r->line.len + len > r->event_bytes_max + 16)
            return qr_err_set(err, QR_E_TOO_LARGE, "a line of the event stream is larger than %zu bytes", r->event_bytes_max);
        if (eol == end || r->line.len != 0)
            qr_buf_put(&r->line, s, len);
        if (eol == end)
            return 0;
        bool gathered = r->line.len != 0;
        int rc = take_line(r, gathered ? r->line.data : s, gathered ? r->line.len : len, err);
        if (rc != 0)
            return rc;
        qr_buf_clear(&r->line);
        r->after_cr = *eol == '\r';
        s = eol + 1;
    }
    return 0;
}
