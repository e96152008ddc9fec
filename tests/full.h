/* full.h - how much a test does: all of it with QUIRE_FULL=1, else a part that has each choice with each other
 * (docs/testing.md). */
#ifndef QR_TESTS_FULL_H
#define QR_TESTS_FULL_H

#include <stdbool.h>
#include <stdlib.h>

static inline bool full_size(void)
{
    return getenv("QUIRE_FULL") != NULL;
}

#endif
