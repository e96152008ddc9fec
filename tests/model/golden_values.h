/* golden_values.h - the numbers of which goldens' weights are made, as tools/golden/families.py has them. */
#ifndef QR_TESTS_MODEL_GOLDEN_VALUES_H
#define QR_TESTS_MODEL_GOLDEN_VALUES_H

#include <stdint.h>

static inline uint64_t golden_hash(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 0x100000001b3u;
    return h;
}

/* The upper 24 bits of splitmix64. */
static inline double golden_unit(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (double)((x ^ (x >> 31)) >> 40) / (1 << 24);
}

#endif
