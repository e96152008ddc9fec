/* sse_reader.c - bytes to events of a stream (sse_reader.h). Lines are gathered first; a field is read when its line
 * is complete, so the result cannot depend on how the bytes were cut. */
#include "client/sse_reader.h"

#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"

static const char bom[3] = {'\xef', '\xbb', '\xbf'};

void qr_sse_init(struct qr_sse_reader *r, size_t event_bytes_max, qr_sse_on_event *on_event, void *arg)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(on_event != NULL);
    QR_ASSERT(event_bytes_max > 0);
    *r = (struct qr_sse_reader){.on_event = on_event, .arg = arg, .event_bytes_max = event_bytes_max};
}

void qr_sse_release(struct qr_sse_reader *r)
{
    qr_buf_release(&r->line);
    qr_buf_release(&r->data);
    qr_buf_release(&r->decoded);
}

void qr_sse_reset(struct qr_sse_reader *r)
{
    qr_buf_clear(&r->line);
    qr_buf_clear(&r->data);
    r->n_bom = 0;
    r->after_cr = r->has_data = r->stopped = false;
}

void qr_sse_stop(struct qr_sse_reader *r)
{
    QR_ASSERT(r != NULL);
    r->stopped = true;
}

static void dispatch(struct qr_sse_reader *r)
{
    const struct qr_buf *said = &r->data;
    if (r->data.len > 0 && qr_utf8_valid_prefix(r->data.data, r->data.len) != r->data.len) {
        qr_buf_clear(&r->decoded);
        qr_buf_reserve(&r->decoded, 3 * r->data.len + 1);
        r->decoded.len = qr_utf8_lossy(r->decoded.data, r->data.data, r->data.len);
        r->decoded.data[r->decoded.len] = '\0';
        said = &r->decoded;
    }
    if (r->has_data)
        r->on_event(r->arg, said->len > 0 ? said->data : "", said->len);
    qr_buf_clear(&r->data);
    r->has_data = false;
}

static int take_line(struct qr_sse_reader *r, const char *line, size_t n, struct qr_err *err)
{
    if (n == 0) {
        dispatch(r);
        return 0;
    }
    const char *colon = memchr(line, ':', n);
    const char *end = line + n, *name_end = colon != NULL ? colon : end, *value = colon != NULL ? colon + 1 : end;
    if (name_end - line != 4 || memcmp(line, "data", 4) != 0)
        return 0; /* a comment, or another field */
    if (value < end && *value == ' ')
        value++;
    if (r->data.len + (size_t)(end - value) + 1 > r->event_bytes_max)
        return qr_err_set(err, QR_E_TOO_LARGE, "an event of the stream is larger than %zu bytes", r->event_bytes_max);
    if (r->has_data)
        qr_buf_put_byte(&r->data, '\n');
    qr_buf_put(&r->data, value, (size_t)(end - value));
    r->has_data = true;
    return 0;
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
