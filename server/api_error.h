/* api_error.h - what a client is told when something goes wrong: OpenAI's error object with all four keys, or a door's, and the HTTP status. */
#ifndef QR_SERVER_API_ERROR_H
#define QR_SERVER_API_ERROR_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "server/http_conn.h"

struct qr_door;

struct qr_api_error {
    int32_t status;         /* 0: no error */
    int32_t retry_after_s;  /* > 0: sent as Retry-After */
    const char *code;       /* borrowed, static; NULL becomes null */
    char param[128];        /* JSON path; "" becomes null */
    char message[600];
    const char *extra;      /* borrowed: further header lines with CR LF, or NULL */
    const struct qr_door *door; /* borrowed, static: whose form it has (door.h); NULL: OpenAI's */
};

void qr_api_error_set(struct qr_api_error *e, int32_t status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The status and code that belong to err->code; message and param are taken over. */
void qr_api_error_from(struct qr_api_error *e, const struct qr_err *err);

/* Appends {"error":{...}}, or the door's form of it; stream: framed as the last event of a stream. */
void qr_api_error_put(struct qr_buf *out, const struct qr_api_error *e, bool stream);

/* Answers a request that has not been answered yet. */
void qr_api_error_reply(struct qr_conn *c, const struct qr_api_error *e);

#endif
