/* temp.h - names for what tests leave on disk for a moment. For Criterion's programs and plain ones. */
#ifndef QR_TESTS_TEMP_H
#define QR_TESTS_TEMP_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define TEMP_RANDOM 6 /* letters that mkdtemp and mkstemp put in place of as many X */

/* PARENT/quire-WHAT-abcdef, terminated; out has 64 bytes. */
static inline void temp_template(char *out, const char *parent, const char *what)
{
    int n = snprintf(out, 64 - TEMP_RANDOM, "%s/quire-%s-", parent, what);
    QR_ASSERT(n > 0 && n < 64 - TEMP_RANDOM);
    memset(out + n, 'X', TEMP_RANDOM);
    out[n + TEMP_RANDOM] = 0;
}

/* A new directory /tmp/quire-WHAT-abcdef; out has 64 bytes. */
static inline void temp_dir_make(char *out, const char *what)
{
    temp_template(out, "/tmp", what);
    QR_ASSERT(mkdtemp(out) != NULL);
}

#endif
