#include "train/data/permute.h"

#include "base/assert.h"
#include "base/rng.h"

#define ROUNDS 8

/* The high `n_high` bits and the low `n_low` bits take turns in being changed by a function of the other part: each round can be undone. */
static uint64_t encipher(uint64_t x, int n_high, int n_low, uint64_t seed, uint64_t stream)
{
    const uint64_t high_mask = (UINT64_C(1) << n_high) - 1, low_mask = (UINT64_C(1) << n_low) - 1;
    uint64_t high = x >> n_low, low = x & low_mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint32_t w[4];
        qr_rng_words(w, seed, stream, round << 60 | (round % 2 == 0 ? low : high));
        const uint64_t f = (uint64_t)w[0] << 32 | w[1];
        if (round % 2 == 0)
            high ^= f & high_mask;
        else
            low ^= f & low_mask;
    }
    return high << n_low | low;
}

int64_t qr_permute(int64_t i, int64_t n, uint64_t seed, uint64_t stream)
{
    QR_ASSERT(n > 0 && n <= INT64_C(1) << 62);
    QR_ASSERT(i >= 0 && i < n);
    if (n == 1)
        return 0;
    const int bits = 64 - __builtin_clzll((uint64_t)n - 1);
    uint64_t x = (uint64_t)i;
    do
        x = encipher(x, bits / 2, bits - bits / 2, seed, stream);
    while (x >= (uint64_t)n);
    return (int64_t)x;
}
