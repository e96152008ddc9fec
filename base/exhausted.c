#include "base/exhausted.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/err.h"

_Noreturn void qr_exhausted(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("quire: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    _exit(qr_err_exit_status(QR_E_NO_ROOM)); /* not exit: other threads may run */
}
