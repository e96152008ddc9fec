#include "base/assert.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

_Noreturn void qr_assert_failed(const char *file, int line, const char *what)
{
    fprintf(stderr, "quire: internal error: %s:%d: assertion failed: %s\n", file, line, what);
    abort();
}

_Noreturn void qr_panic(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("quire: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    abort();
}
