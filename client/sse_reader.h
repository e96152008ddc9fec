/* sse_reader.h - bytes of a text/event-stream in, events out, whatever pieces the bytes arrive in.
 *
 * The rules are those of the WHATWG HTML standard, section 9.2 "Server-sent events": lines end in CR, LF or CRLF; one byte
 * order mark at the start is skipped; `:` begins a comment; one space after the colon is dropped; `data` lines are joined by
 * LF; an event without data is not dispatched; what has no closing blank line at the end of the stream is dropped;
 * ill-formed UTF-8 becomes U+FFFD. Types, ids and retry times say nothing in these servers' streams, and are skipped.
 * One owning thread. The reader allocates only while its buffers grow.
 */
#ifndef QR_CLIENT_SSE_READER_H
#define QR_CLIENT_SSE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* An event's data: borrowed for the time of the call, terminated, valid UTF-8. It must not feed or release the
 * reader. */
typedef void qr_sse_on_event(void *arg, const char *data, size_t n);

struct qr_sse_reader {
    qr_sse_on_event *on_event;
    void *arg;                        /* borrowed from the caller */
    size_t event_bytes_max;
    struct qr_buf line, data, decoded; /* owned */
    uint8_t n_bom;                    /* bytes of a byte order mark seen at the start; 3: past the start */
    bool after_cr, has_data, stopped;
};

void qr_sse_init(struct qr_sse_reader *r, size_t event_bytes_max, qr_sse_on_event *on_event, void *arg);
void qr_sse_release(struct qr_sse_reader *r);

/* Back to the start of a stream; buffers are kept. */
void qr_sse_reset(struct qr_sse_reader *r);

/* Takes n bytes. QR_E_TOO_LARGE when one line or one event passes event_bytes_max; the reader must then be reset. */
int qr_sse_feed(struct qr_sse_reader *r, const char *bytes, size_t n, struct qr_err *err);

/* From inside on_event: nothing more of this stream is wanted; the rest of it is ignored. */
void qr_sse_stop(struct qr_sse_reader *r);

#endif
