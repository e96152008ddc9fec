#include "base/rng.h"

#include <sys/random.h>

#include "base/assert.h"
#include "base/both.h"

void qr_rng_words(uint32_t out[4], uint64_t seed, uint64_t stream, uint64_t pos)
{
    qr_philox(out, seed, stream, pos);
}

double qr_rng_unit(uint64_t seed, uint64_t stream, uint64_t pos)
{
    return qr_philox_unit(seed, stream, pos);
}

uint64_t qr_rng_seed_random(void)
{
    uint64_t seed = 0;
    while (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        ;
    return seed;
}

uint64_t qr_rng_next(struct qr_rng *r)
{
    QR_ASSERT(r != NULL);
    uint32_t w[4];
    qr_rng_words(w, r->seed, 0, r->pos++);
    return (uint64_t)w[0] << 32 | w[1];
}

uint32_t qr_rng_below(struct qr_rng *r, uint32_t n)
{
    QR_ASSERT(n > 0);
    uint64_t limit = UINT64_MAX - UINT64_MAX % n, x;
    do
        x = qr_rng_next(r);
    while (x >= limit);
    return (uint32_t)(x % n);
}

double qr_rng_next_unit(struct qr_rng *r)
{
    QR_ASSERT(r != NULL);
    return qr_rng_unit(r->seed, 0, r->pos++);
}
