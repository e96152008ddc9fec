/* err.h - errors as values.
 *
 * A function that can fail because of something outside the program takes `struct qr_err *err` as its last parameter,
 * returns 0 or a negative qr_code, and fills *err exactly once where the cause is known: the thing, what was found,
 * what was expected, what to do. Callers above only prefix. On success *err is untouched. err is never NULL.
 */
#ifndef QR_BASE_ERR_H
#define QR_BASE_ERR_H

#include <stdarg.h>

enum qr_code {
    QR_OK = 0,
    QR_E_USAGE = -1,       /* a flag, an environment variable or a configuration file is wrong   (exit 2) */
    QR_E_BIND = -2,        /* the address cannot be listened on or connected to                  (exit 3) */
    QR_E_NOT_FOUND = -3,   /* a named file, model, route or key does not exist                   (exit 4) */
    QR_E_DAMAGED = -4,     /* a file's bytes contradict its format                               (exit 4) */
    QR_E_UNSUPPORTED = -5, /* well formed, but nothing here computes it                          (exit 4) */
    QR_E_IO = -6,          /* the operating system refused a read or a write                     (exit 4) */
    QR_E_NO_ROOM = -7,     /* it does not fit: memory, cache blocks, context                     (exit 5) */
    QR_E_INVALID = -8,     /* a request's content is wrong; `param` names the field              (HTTP 400) */
    QR_E_TOO_LARGE = -9,   /* a limit on size, depth, steps or count was passed                  (HTTP 413 or 400; exit 4) */
    QR_E_BUSY = -10,       /* a queue is full; try again later                                   (HTTP 429) */
    QR_E_CLOSED = -11,     /* shutting down, or the peer went away                               (HTTP 503) */
    QR_E_DENIED = -12,     /* no key, or a key that may not                                      (HTTP 401 or 403) */
    QR_E_INTERNAL = -13,   /* an invariant failed for one request only                           (HTTP 500) */
};

struct qr_err {
    enum qr_code code;
    char param[128]; /* JSON path of the offending request field ("messages[2].content"), or "" */
    char msg[500];   /* always terminated; cut at the end when too long */
};

/* Fills *err (param becomes "") and returns code. */
int qr_err_set(struct qr_err *err, enum qr_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Like qr_err_set, with the JSON path of the field that is wrong. */
int qr_err_at(struct qr_err *err, enum qr_code code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The one wording for a number out of range: "--port must be from 0 to 65535, found 99999" (QR_E_USAGE). */
int qr_err_range(struct qr_err *err, const char *what, const char *low, const char *high, const char *found);

/* Puts formatted context in front of err->msg ("model.safetensors: ..."), keeps code and param, returns the code. */
int qr_err_prefix(struct qr_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The process exit status for a code, as listed above; 70 for QR_E_INTERNAL, 1 for codes that have none. */
int qr_err_exit_status(enum qr_code code);

#endif
