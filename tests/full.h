/* full.h - how much a test does: all of it with QUIRE_FULL=1, else a part that has each choice with each other; of random
 * cases as many as QUIRE_TEST_SCALE says, fewer where a sanitizer makes everything slow (docs/testing.md). */
#ifndef QR_TESTS_FULL_H
#define QR_TESTS_FULL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static inline bool full_size(void)
{
    return getenv("QUIRE_FULL") != NULL;
}

/* 1 in a normal build. */
static inline double test_scale(void)
{
    const char *text = getenv("QUIRE_TEST_SCALE");
    return text && atof(text) > 0 ? atof(text) : 1;
}

/* Of n random cases, one at least. */
static inline int32_t test_cases(int32_t n)
{
    const double scaled = n * test_scale();
    return scaled < 1 ? 1 : (int32_t)scaled;
}

#endif
