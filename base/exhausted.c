#include "base/exhausted.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/err.h"

_Noreturn void qr_exhausted(const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(stderr, "quire: %s\n", text); /* at once, whichever other threads come to the same end */
    _exit(qr_err_exit_status(QR_E_NO_ROOM)); /* not exit: other threads may run */
}
