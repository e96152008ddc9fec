/* seed.h - where random tests begin: at the same place each time, so that what has passed once does not fail by chance; QUIRE_TEST_SEED looks elsewhere. */
#ifndef QR_TESTS_SEED_H
#define QR_TESTS_SEED_H

#include <stdint.h>
#include <stdlib.h>

static inline uint64_t test_seed(void)
{
    const char *text = getenv("QUIRE_TEST_SEED");
    return text && *text ? strtoull(text, NULL, 10) : 20261122;
}

#endif
