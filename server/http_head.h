/* http_head.h - words of an answer's head: reasons, the date, request ids. Loop thread only. */
#ifndef QR_SERVER_HTTP_HEAD_H
#define QR_SERVER_HTTP_HEAD_H

#include <stdint.h>

#include "server/http_parser.h"

#define QR_REQUEST_ID_MAX 128

const char *qr_http_reason(int32_t status);

/* The time now as HTTP writes it; made once a second. */
struct qr_http_date {
    int64_t at_s;
    char text[40];
};
const char *qr_http_date(struct qr_http_date *date);

/* What goes before a chunk of n bytes. */
#define QR_HTTP_CHUNK_HEAD 20
const char *qr_http_chunk_head(char out[QR_HTTP_CHUNK_HEAD], size_t n);

/* A whole answer that says that there is no memory for one. */
void qr_http_last_words(char *out, size_t size);

/* The client's id when it is a plain name, else one that is made here. */
void qr_http_request_id(char out[QR_REQUEST_ID_MAX + 1], struct qr_span given);

#endif
