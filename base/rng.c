#include "base/rng.h"

#include <sys/random.h>

#include "base/assert.h"

#define MUL0 0xD2511F53u
#define MUL1 0xCD9E8D57u
#define WEYL0 0x9E3779B9u
#define WEYL1 0xBB67AE85u

/* Philox4x32 with ten rounds: counter (pos, stream), key (seed). */
void qr_rng_words(uint32_t out[4], uint64_t seed, uint64_t stream, uint64_t pos)
{
    uint32_t c0 = (uint32_t)pos, c1 = (uint32_t)(pos >> 32), c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)MUL0 * c0, p1 = (uint64_t)MUL1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += WEYL0;
        k1 += WEYL1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static double unit_of(const uint32_t w[4])
{
    uint64_t bits = ((uint64_t)w[0] << 32 | w[1]) >> 11;
    return (double)bits * 0x1p-53;
}

double qr_rng_unit(uint64_t seed, uint64_t stream, uint64_t pos)
{
    uint32_t w[4];
    qr_rng_words(w, seed, stream, pos);
    return unit_of(w);
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
