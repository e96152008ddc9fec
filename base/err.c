#include "base/err.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"

/* A text that was cut may end inside a character; clients get whole ones. */
static void drop_cut_character(char *text)
{
    size_t n = strlen(text);
    text[n - (size_t)qr_utf8_incomplete_tail(text, n)] = 0;
}

static void fill(struct qr_err *err, enum qr_code code, const char *param, const char *fmt, va_list ap)
    __attribute__((format(printf, 4, 0)));
static void fill(struct qr_err *err, enum qr_code code, const char *param, const char *fmt, va_list ap)
{
    struct qr_err filled = {.code = code}; /* apart, because the arguments may point into *err */
    snprintf(filled.param, sizeof filled.param, "%s", param);
    vsnprintf(filled.msg, sizeof filled.msg, fmt, ap);
    drop_cut_character(filled.param);
    drop_cut_character(filled.msg);
    *err = filled;
}

int qr_err_set(struct qr_err *err, enum qr_code code, const char *fmt, ...)
{
    QR_ASSERT(err != NULL);
    QR_ASSERT(code < 0);
    va_list ap;
    va_start(ap, fmt);
    fill(err, code, "", fmt, ap);
    va_end(ap);
    return code;
}

int qr_err_at(struct qr_err *err, enum qr_code code, const char *param, const char *fmt, ...)
{
    QR_ASSERT(err != NULL && param != NULL);
    QR_ASSERT(code < 0);
    va_list ap;
    va_start(ap, fmt);
    fill(err, code, param, fmt, ap);
    va_end(ap);
    return code;
}

int qr_err_range(struct qr_err *err, const char *what, const char *low, const char *high, const char *found)
{
    QR_ASSERT(what != NULL && found != NULL);
    QR_ASSERT(low != NULL && high != NULL);
    return qr_err_set(err, QR_E_USAGE, "%.300s must be from %s to %s, found %.80s", what, low, high, found);
}

int qr_err_prefix(struct qr_err *err, const char *fmt, ...)
{
    QR_ASSERT(err != NULL);
    QR_ASSERT(err->code < 0);
    char msg[sizeof err->msg];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    size_t used = n < 0 ? 0 : (size_t)n < sizeof msg ? (size_t)n : sizeof msg - 1;
    snprintf(msg + used, sizeof msg - used, "%.*s", (int)(sizeof msg - used - 1), err->msg);
    drop_cut_character(msg);
    memcpy(err->msg, msg, sizeof msg);
    return err->code;
}

int qr_err_exit_status(enum qr_code code)
{
    switch (code) {
    case QR_OK: return 0;
    case QR_E_USAGE: return 2;
    case QR_E_BIND: return 3;
    case QR_E_NOT_FOUND:
    case QR_E_DAMAGED:
    case QR_E_UNSUPPORTED:
    case QR_E_TOO_LARGE: /* of a file: what is longer or deeper than its readers go is broken for them */
    case QR_E_IO: return 4;
    case QR_E_NO_ROOM: return 5;
    case QR_E_INTERNAL: return 70;
    default: return 1;
    }
}
